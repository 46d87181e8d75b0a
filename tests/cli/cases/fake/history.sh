# SPDX-License-Identifier: Apache-2.0
exec 2>&1
export BREAKWATER_REMOTE=file:///x
breakwater history gpt; echo "exit $?"
breakwater history damaged; echo "exit $?"
breakwater history damaged --json > out.json; echo "exit $?"
"$PYTHON" "$TOOLS/json_check.py" history < out.json
tail -n 22 out.json
