# SPDX-License-Identifier: Apache-2.0
# What two steps have in common.
exec 2>&1
make() { "$PYTHON" "$TOOLS/safetensors_make.py" make "$@"; }
mkdir remote
export BREAKWATER_REMOTE=file://$PWD/remote
make a.safetensors same:F32:4x4:1 changed:F32:8:2 gone:U8:5:3 dtype:I32:2:4 shape:U8:2x3:5
make b.safetensors same:F32:4x4:1 changed:F32:8:9 new:U8:6:3 dtype:F32:2:4 shape:U8:3x2:5
breakwater import --run r --step 1 --allow-node-local a.safetensors
breakwater import --run r --step 2 --allow-node-local b.safetensors; echo "exit $?"
breakwater import --run r --step 2 --job import --allow-node-local b.safetensors; echo "exit $?"
breakwater import --run r --step 2 --job import --allow-node-local b.safetensors; echo "exit $?"
breakwater diff r 1 2; echo "exit $?"
breakwater diff r 2 1 --tensors 's*'
breakwater diff r 1 2 --json | "$PYTHON" "$TOOLS/json_check.py" diff
breakwater diff r 1 3; echo "exit $?"
breakwater diff nothing 1 2; echo "exit $?"
for side in a b; do
    mkdir -p $side/blobs/0
    cp b.safetensors $side/model.safetensors
    printf same > $side/blobs/0/same
    printf "of $side" > $side/blobs/0/changed
    printf "%s" $side > $side/blobs/0/only-$side
done
breakwater import --run blobs --step 1 --allow-node-local --with-blobs a
breakwater import --run blobs --step 2 --job import --allow-node-local --with-blobs b
breakwater diff blobs 1 2
breakwater diff blobs 1 2 --json | "$PYTHON" "$TOOLS/json_check.py" diff
