# SPDX-License-Identifier: Apache-2.0
exec 2>&1
export BREAKWATER_REMOTE=file:///x
breakwater ls
echo "exit $?"
breakwater ls gpt
breakwater ls --json | "$PYTHON" "$TOOLS/json_check.py" ls
breakwater ls gpt --json | "$PYTHON" "$TOOLS/json_check.py" ls
breakwater ls gpt --json | grep -v unix_ms | head -22
breakwater ls --json | grep -v unix_ms
