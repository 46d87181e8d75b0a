# SPDX-License-Identifier: Apache-2.0
# On a terminal a long call shows how far it is, and takes it away again; elsewhere nothing is drawn.
export BREAKWATER_REMOTE=file:///x
"$PYTHON" "$TOOLS/pty_run.py" breakwater verify slow | grep -v '^RESULT\|^ok\|^warning\|^sound' > drawn
echo "exit ${PIPESTATUS[0]}"
bar='^verify  \[#*-*\]  *[0-9]*%  [0-9.]* MiB of 15.0 MiB  [0-9]* of 15  [0-9.]* MiB/s'
grep -c "$bar" drawn | awk '{ print ($1 > 3 ? "several" : $1) }'
breakwater verify slow 2>&1 | grep -c '%'
"$PYTHON" "$TOOLS/pty_run.py" breakwater verify gpt
