# SPDX-License-Identifier: Apache-2.0
# On a terminal a long call shows how far it is, and takes it away again; elsewhere nothing is drawn.
export BREAKWATER_REMOTE=file:///x
"$PYTHON" "$TOOLS/pty_run.py" breakwater verify slow | grep -v '^RESULT\|^ok\|^warning\|^sound' > drawn
echo "exit ${PIPESTATUS[0]}"
bar='^verify  \[#*-*\]  *[0-9]*%  [0-9.]* MiB of 15.0 MiB  [0-9]* of 15  [0-9.]* MiB/s'
grep -c "$bar" drawn | awk '{ print ($1 > 3 ? "several" : $1) }'
breakwater verify slow 2>&1 | grep -c '%'
"$PYTHON" "$TOOLS/pty_run.py" breakwater verify gpt
first() { grep -o "^$1  \[[-#]*\]  *[0-9]*%  [0-9]* B of [0-9]* B" | head -n 1; }
"$PYTHON" "$TOOLS/safetensors_make.py" make a.safetensors w:U8:24:1
"$PYTHON" "$TOOLS/pty_run.py" breakwater diff slow 1000 1200 --tensors b > drawn; first diff < drawn
"$PYTHON" "$TOOLS/pty_run.py" breakwater export slow --to out --new-dtypes > drawn; first export < drawn
"$PYTHON" "$TOOLS/pty_run.py" breakwater import --run slow --step 1300 --job j --allow-node-local a.safetensors > drawn
first import < drawn
"$PYTHON" "$TOOLS/pty_run.py" breakwater repair slow > drawn
grep -c '^repair  [0-9.]* MiB  [0-9.]* MiB/s$' drawn | awk '{ print ($1 > 0 ? "drawn without a bar" : $1) }'
