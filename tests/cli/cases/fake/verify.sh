# SPDX-License-Identifier: Apache-2.0
# Damage is exit code 3, and what it names cannot harm the terminal.
exec 2>&1
export BREAKWATER_REMOTE=file:///x
breakwater verify gpt; echo "exit $?"
breakwater verify gpt 1200 --fast; echo "exit $?"
breakwater verify damaged; echo "exit $?"
breakwater verify damaged --json > out.json; echo "exit $?"
"$PYTHON" "$TOOLS/json_check.py" verify < out.json
cat out.json
