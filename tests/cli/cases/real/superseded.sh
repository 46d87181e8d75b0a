# SPDX-License-Identifier: Apache-2.0
# A job that another one has taken the run from cannot come back by itself.
exec 2>&1
mkdir remote
export BREAKWATER_REMOTE=file://$PWD/remote
"$PYTHON" "$TOOLS/safetensors_make.py" make a.safetensors w:F32:4:1
for job in one two one; do
    step=$((${step:-0} + 1))
    breakwater import --run r --step $step --job $job --allow-node-local a.safetensors; echo "exit $?"
done
breakwater ls
