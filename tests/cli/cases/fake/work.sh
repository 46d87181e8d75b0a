# SPDX-License-Identifier: Apache-2.0
# drain, rollback, repair, doctor: what they say, and the schemas.
exec 2>&1
export BREAKWATER_REMOTE=file:///x
breakwater drain gpt
breakwater drain gpt --json | "$PYTHON" "$TOOLS/json_check.py" drain
breakwater rollback gpt 1000
breakwater rollback gpt 1000 --dry-run
breakwater rollback gpt 00000000000000000900.1-0a1b2c3d.1 --label oops --yes
breakwater rollback gpt 1000 --json | "$PYTHON" "$TOOLS/json_check.py" rollback
breakwater repair gpt; echo "exit $?"
breakwater repair damaged --dry-run; echo "exit $?"
breakwater repair damaged --copies --history; echo "exit $?"
breakwater repair damaged --copies --promote --yes; echo "exit $?"
breakwater repair damaged --json | "$PYTHON" "$TOOLS/json_check.py" repair
breakwater doctor; echo "exit $?"
breakwater doctor --local file:///l; echo "exit $?"
breakwater doctor --json | "$PYTHON" "$TOOLS/json_check.py" doctor
breakwater version --json | "$PYTHON" "$TOOLS/json_check.py" version
