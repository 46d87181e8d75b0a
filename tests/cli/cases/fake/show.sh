# SPDX-License-Identifier: Apache-2.0
exec 2>&1
export BREAKWATER_REMOTE=file:///x
breakwater show gpt
breakwater show gpt 1000 --boxes --metadata --tensors 'a/*' --tensors '*w old*'
breakwater show gpt 00000000000000001300.1-0a1b2c3d.0
breakwater show gpt --json | "$PYTHON" "$TOOLS/json_check.py" show
breakwater show gpt --json --boxes --metadata | "$PYTHON" "$TOOLS/json_check.py" show
breakwater show gpt 00000000000000001300.1-0a1b2c3d.0 --json | "$PYTHON" "$TOOLS/json_check.py" show
breakwater show gpt 1000 --json --boxes --metadata | grep -v unix_ms
breakwater show gpt 1000 --local file:///y | grep '^complete'
