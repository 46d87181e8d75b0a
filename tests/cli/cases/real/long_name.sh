# SPDX-License-Identifier: Apache-2.0
# A tensor whose name has 4,096 bytes, and many tiny tensors.
exec 2>&1
mkdir remote
export BREAKWATER_REMOTE=file://$PWD/remote
"$PYTHON" "$TOOLS/safetensors_make.py" make in.safetensors \
    "$(printf 'n%.0s' $(seq 4096)):U8:3:1" $(seq -f 't%g:F32:1:x' 2000)
breakwater import --run r --step 1 --allow-node-local in.safetensors; echo "exit $?"
breakwater export r --to out --shard-bytes 4000
"$PYTHON" "$TOOLS/safetensors_make.py" dump --any in.safetensors > before
"$PYTHON" "$TOOLS/safetensors_make.py" dump out/*.safetensors | cmp - before && wc -l < before
ls out
"$PYTHON" - << 'END'
import json
index = json.load(open("out/model.safetensors.index.json"))
print(index["metadata"], len(index["weight_map"]), sorted(set(index["weight_map"].values())))
END
