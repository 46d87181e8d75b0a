# SPDX-License-Identifier: Apache-2.0
# A dry run unless --yes; what is to be pinned is not in the list of what would go.
exec 2>&1
export BREAKWATER_REMOTE=file:///x
breakwater prune gpt; echo "exit $?"
breakwater prune gpt --keep-last 2 --keep-every 500 --keep-younger 1h30min --grace 0
breakwater prune gpt --keep-last 2 --yes
breakwater prune gpt --keep-last 2 --pin 1000 --unpin 00000000000000000900.1-0a1b2c3d.1
breakwater prune gpt --pin 1000
breakwater prune gpt --pin 1000 --yes
breakwater prune gpt --keep-last 2 --pin 1000 --json > out.json
"$PYTHON" "$TOOLS/json_check.py" prune < out.json
cat out.json
breakwater prune gpt --pin 1000 --yes --json | "$PYTHON" "$TOOLS/json_check.py" prune
breakwater prune gpt --shelved
breakwater prune gpt --shelved --yes --json | "$PYTHON" "$TOOLS/json_check.py" prune
