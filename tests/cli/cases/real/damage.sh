# SPDX-License-Identifier: Apache-2.0
# A flipped bit is found, named, and exit code 3; without another copy it cannot be put right.
exec 2>&1
mkdir remote
export BREAKWATER_REMOTE=file://$PWD/remote
"$PYTHON" "$TOOLS/safetensors_make.py" make a.safetensors w:F32:400x4:1
breakwater import --run r --step 1 --job j --allow-node-local a.safetensors > /dev/null || echo failed
pack=$(find remote -name '*.safetensors')
"$PYTHON" - "$pack" << 'END'
import os, sys
os.chmod(sys.argv[1], 0o600)
with open(sys.argv[1], "r+b") as f:
    f.seek(-5, 2)
    byte = f.read(1)[0]
    f.seek(-5, 2)
    f.write(bytes([byte ^ 1]))
END
breakwater verify r; echo "exit $?"
breakwater verify r --fast; echo "exit $?"
breakwater verify r --json | "$PYTHON" "$TOOLS/json_check.py" verify
breakwater export r --to out; echo "exit $?"
find out
breakwater repair r; echo "exit $?"
breakwater repair r --copies --yes; echo "exit $?"
truncate -s -1 "$pack"
breakwater verify r --fast; echo "exit $?"
rm "$pack"
breakwater verify r; echo "exit $?"
breakwater show r | tail -1; echo "exit ${PIPESTATUS[0]}"
breakwater repair r; echo "exit $?"
rm -f $(find remote -name 'manifest*')
breakwater verify r --fast; echo "exit $?"
breakwater show r > out.txt 2> err.txt; echo "exit $?"; head -1 err.txt
grep -e '^step' -e 'cannot be read' -e '^objects' out.txt
breakwater show r --json 2> err.txt > out.json; echo "exit $?"; "$PYTHON" "$TOOLS/json_check.py" show < out.json
