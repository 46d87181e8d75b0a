# SPDX-License-Identifier: Apache-2.0
# Tensors above the buffer of an export and of a read, and above 16 MiB extents; of one each innermost row is.
exec 2>&1
mkdir remote
export BREAKWATER_REMOTE=file://$PWD/remote
"$PYTHON" "$TOOLS/safetensors_make.py" make a.safetensors big:F32:1000x5000:1 deep:U8:2x2x8400000:2 small:F64:3:3
"$PYTHON" "$TOOLS/safetensors_make.py" make b.safetensors big:F32:1000x5000:1 deep:U8:2x2x8400000:9 small:F64:3:3
breakwater import --run r --step 1 --allow-node-local --memory 64MiB a.safetensors; echo "exit $?"
breakwater import --run r --step 2 --job import --allow-node-local b.safetensors; echo "exit $?"
breakwater export r 1 --to out --memory 72MiB; echo "exit $?"
dump() { "$PYTHON" "$TOOLS/safetensors_make.py" dump --any "$@"; }
cmp <(dump a.safetensors) <(dump out/*) && echo same
breakwater diff r 1 2 --memory 144MiB
breakwater diff r 1 2 --json | "$PYTHON" "$TOOLS/json_check.py" diff
