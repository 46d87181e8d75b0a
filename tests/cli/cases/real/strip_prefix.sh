# SPDX-License-Identifier: Apache-2.0
# A model that was saved as one part of a state, exported under the names that its own loader looks for.
exec 2>&1
dump() { "$PYTHON" "$TOOLS/safetensors_make.py" dump "$@"; }
mkdir remote
export BREAKWATER_REMOTE=file://$PWD/remote
"$PYTHON" "$TOOLS/safetensors_make.py" make in.safetensors \
    model.a:F32:2x3:1 model.model.b:U8:5:2 model.:U8:1:3 w:U8:3:4 model.w:U8:3:5 model.__metadata__:U8:1:6
breakwater import --run r --step 1 --allow-node-local in.safetensors; echo "exit $?"
breakwater export r --to out --tensors 'model.[am]*' --strip-prefix model. --shard-bytes 8; echo "exit $?"
dump --any in.safetensors
dump out/*.safetensors
grep safetensors out/model.safetensors.index.json
breakwater export r --to out2 --tensors w --tensors model.w --strip-prefix model.; echo "exit $?"
breakwater export r --to out2 --tensors 'model._*' --strip-prefix model.; echo "exit $?"
breakwater export r --to out2 --tensors model. --strip-prefix model. > /dev/null; echo "exit $?"
dump out2/model.safetensors
breakwater export r --to out3 --tensors w --strip-prefix nothing > /dev/null; echo "exit $?"
dump out3/model.safetensors
