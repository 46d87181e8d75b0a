# SPDX-License-Identifier: Apache-2.0
# What cannot be imported is refused before the run knows of it: a job that uses the run keeps its attempt. Metadata of
# two files of one name in two folders is kept of both.
exec 2>&1
mkdir remote one two bad
export BREAKWATER_REMOTE=file://$PWD/remote
make() { "$PYTHON" "$TOOLS/safetensors_make.py" "$@"; }
try() { breakwater import --run r --job j --allow-node-local "$@"; echo "exit $?"; }
make make one/m.safetensors --metadata=who=one v:F32:4:1
make make two/m.safetensors --metadata=who=two w:F32:4:2
try --step 1 one/m.safetensors two/m.safetensors
"$PYTHON" - "$TOOLS" <<'END'
import sys; sys.path.insert(0, sys.argv[1]); import safetensors_make
safetensors_make.make("long.safetensors", ["--metadata=k=" + "v" * (1 << 20), "w:F32:4:2"])
END
try --step 2 long.safetensors
make header wide.safetensors '{"a":{"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}}'
try --step 2 wide.safetensors
mkdir -p bad/metadata; cp one/m.safetensors bad/model.safetensors; echo '{"a":' > bad/metadata/0.json
try --step 2 bad --with-blobs
breakwater history r | grep -c register
mkdir out
breakwater export r --to out --with-blobs > /dev/null; cat out/metadata/0.json; echo
