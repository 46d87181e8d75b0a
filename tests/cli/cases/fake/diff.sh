# SPDX-License-Identifier: Apache-2.0
exec 2>&1
export BREAKWATER_REMOTE=file:///x
breakwater diff gpt 1000 1200; echo "exit $?"
breakwater diff gpt 1200 1000 --tensors b
breakwater diff gpt 1200 00000000000000001200.1-0a1b2c3d.0
breakwater diff gpt 1200 1200 --tensors 'a*'
breakwater diff gpt 1000 1200 --json > out.json
"$PYTHON" "$TOOLS/json_check.py" diff < out.json
cat out.json
breakwater diff gpt 1200 1200 --json | grep identical
breakwater diff gpt 1000 1200 --tensors 'nothing*'; echo "exit $?"
