# SPDX-License-Identifier: Apache-2.0
# Every dtype and awkward size and name: import, export, the same bits; then everything that can be asked about it.
exec 2>&1
make() { "$PYTHON" "$TOOLS/safetensors_make.py" make "$@"; }
dump() { "$PYTHON" "$TOOLS/safetensors_make.py" dump "$@"; }
check() { "$PYTHON" "$TOOLS/json_check.py" "$@"; }
mkdir remote
export BREAKWATER_REMOTE=file://$PWD/remote
make in.safetensors --metadata=format=pt --metadata=note=hi \
    bool:BOOL:5:1 u8:U8:511:2 i8:I8:512:3 e5:F8_E5M2:513:4 e4:F8_E4M3:3x3:5 i16:I16:7:6 u16:U16:1:7 f16:F16:4095:8 \
    bf16:BF16:4097:9 i32:I32:2x3x4:10 u32:U32:1x1x1x1:11 f32:F32:100x100:12 f64:F64:33:13 i64:I64:9:14 u64:U64:10:15 \
    scalar:F64::16 empty:F32:0:17 empty2:F32:3x0x2:18 'a/b/../c':U8:3:19 '.hid':U8:4:20 ' sp ace|':U8:5:21 \
    '\U0001f600':U8:6:22 'line\nbreak\x1b[31m':U8:7:23 case:U8:1:24 CASE:U8:1:25 'bw%c0':U8:12:26 'bw%cpad':F32:1:27
breakwater import --run r --step 10 --allow-node-local in.safetensors; echo "exit $?"
breakwater import --run other --step 10 --allow-node-local in.safetensors --json | check import
breakwater export other --to other --json | check export
breakwater export r --to out; echo "exit $?"
dump --any in.safetensors > before
dump out/model.safetensors > after
cmp before after && wc -l < after
breakwater ls
breakwater ls --json | check ls
breakwater ls r
breakwater ls r --json | check ls
breakwater show r
breakwater show r 10 --json --boxes --metadata | check show
breakwater verify r; echo "exit $?"
breakwater verify r 10 --fast; echo "exit $?"
breakwater verify r --json | check verify
breakwater history r
breakwater history r --json | check history
breakwater diff r 10 10; echo "exit $?"
