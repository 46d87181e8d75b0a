# SPDX-License-Identifier: Apache-2.0
# Two tiers: an import goes through the local one; repair takes the sound copy.
exec 2>&1
mkdir remote local
export BREAKWATER_REMOTE=file://$PWD/remote BREAKWATER_LOCAL=file://$PWD/local
"$PYTHON" "$TOOLS/safetensors_make.py" make a.safetensors w:F32:400x4:1
breakwater import --run r --step 1 a.safetensors > /dev/null; echo "exit $?"
breakwater import --run r --step 1 --allow-same-device --allow-node-local a.safetensors; echo "exit $?"
breakwater ls r
breakwater verify r; echo "exit $?"
pack=$(find local -name '*.safetensors')
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
breakwater export r --to out; echo "exit $?"
breakwater repair r; echo "exit $?"
breakwater repair r --copies --yes; echo "exit $?"
breakwater verify r; echo "exit $?"
breakwater drain r; echo "exit $?"
breakwater drain r --json | "$PYTHON" "$TOOLS/json_check.py" drain
