# SPDX-License-Identifier: Apache-2.0
# Each kind of damage to each kind of object: named, and exit code 3.
exec 2>&1
mkdir remote
export BREAKWATER_REMOTE=file://$PWD/remote
"$PYTHON" "$TOOLS/safetensors_make.py" make a.safetensors w:F32:400x4:1
"$PYTHON" "$TOOLS/safetensors_make.py" make b.safetensors w:F32:400x4:2
breakwater import --run r --step 1 --job j --allow-node-local a.safetensors > /dev/null || echo failed
breakwater import --run r --step 2 --job j --allow-node-local b.safetensors > /dev/null || echo failed
breakwater import --run s --step 1 --job j --allow-node-local b.safetensors > /dev/null || echo failed
breakwater verify r > out; echo "exit $?"; tail -1 out
mv remote sound
damage() {
    "$PYTHON" - "$1" "$2" "$3" << 'END'
import os, sys
kind, path, other = sys.argv[1:]
os.chmod(path, 0o600)
data = open(path, "rb").read()
if kind == "flipped":
    half = len(data) // 2
    data = data[:half] + bytes([data[half] ^ 4]) + data[half + 1:]
if kind == "shorter":
    data = data[:-1]
if kind == "longer":
    data += b"\0"
if kind == "swapped":
    mine, data = data, open(other, "rb").read()
    os.chmod(other, 0o600)
    open(other, "wb").write(mine)
if kind == "strange":
    data = open(other, "rb").read()
open(path, "wb").write(data)
if kind == "gone":
    os.remove(path)
END
}
for kind in flipped shorter longer swapped gone strange; do
    for object in '*.safetensors' content 'placement-*' 'groups/000000' 'manifest.*' 'history/*2.json'; do
        rm -rf remote
        cp -r sound remote
        path=$(find remote/runs/r -path "*/$object" | sort | head -1)
        other=$(find remote/runs/r -path "*/$object" | sort | tail -1)
        if [ $kind = swapped ] && [ "$path" = "$other" ]; then
            other=$(dirname "$path")/$(ls "$(dirname "$path")" | tail -1)
        fi
        [ $kind = strange ] && other=$(find remote/runs/s -path "*/$object" | head -1)
        damage $kind "$path" "$other"
        breakwater verify r > out
        code=$?
        named=no
        grep '^damaged' out | grep -qF "${path#remote/}" && named=named
        [ $kind = gone ] && grep '^damaged' out | grep -q 'entries 2 to 2 are missing' && named=named
        echo "$kind $object: exit $code, $named"
    done
done
