# SPDX-License-Identifier: Apache-2.0
# The newest entry of the history is damaged: it is said, writers refuse, and repair begins a new era.
exec 2>&1
mkdir remote
export BREAKWATER_REMOTE=file://$PWD/remote
"$PYTHON" "$TOOLS/safetensors_make.py" make a.safetensors w:F32:4:1
for step in 1 2; do
    breakwater import --run r --step $step --job j --allow-node-local a.safetensors > /dev/null || echo failed
done
entry=$(find remote/runs/r/history -type f | sort | tail -1)
"$PYTHON" - "$entry" << 'END'
import os, sys
os.chmod(sys.argv[1], 0o600)
with open(sys.argv[1], "r+b") as f:
    f.seek(40)
    byte = f.read(1)[0]
    f.seek(40)
    f.write(bytes([byte ^ 1]))
END
breakwater history r > out; echo "exit $?"; tail -1 out
breakwater ls r; echo "exit $?"
breakwater ls r --json > out.json; echo "exit $?"; "$PYTHON" "$TOOLS/json_check.py" ls < out.json
breakwater show r > out; echo "exit $?"; grep '^step' out
breakwater verify r > out; echo "exit $?"; grep damaged out
breakwater import --run r --step 3 --job j --allow-node-local a.safetensors; echo "exit $?"
breakwater prune r --keep-last 1 --yes; echo "exit $?"
breakwater repair r; echo "exit $?"
breakwater repair r --history; echo "exit $?"
breakwater repair r --history --yes; echo "exit $?"
breakwater ls r
breakwater history r > out; echo "exit $?"; tail -2 out
breakwater import --run r --step 3 --job j --allow-node-local a.safetensors; echo "exit $?"
