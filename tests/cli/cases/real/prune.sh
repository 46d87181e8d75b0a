# SPDX-License-Identifier: Apache-2.0
# Retention, pins and rollback on a real run. An import may have swept inventories of those before it already: how many
# it gets to before it closes depends on time.
exec 2>&1
mkdir remote
export BREAKWATER_REMOTE=file://$PWD/remote
"$PYTHON" "$TOOLS/safetensors_make.py" make a.safetensors w:F32:40x4:1
for step in 1 2 3 4; do
    breakwater import --run r --step $step --job j --allow-node-local a.safetensors > /dev/null || echo failed
done
breakwater prune r --keep-last 2; echo "exit $?"
breakwater prune r --keep-last 2 --json | "$PYTHON" "$TOOLS/json_check.py" prune
breakwater prune r --pin 1 --yes; echo "exit $?"
breakwater prune r --keep-last 2 --grace 0 --yes; echo "exit $?"
breakwater ls r
breakwater prune r --retire 4 --yes; echo "exit $?"
breakwater prune r --retire 1 --yes; echo "exit $?"
breakwater prune r --unpin 1 --yes; echo "exit $?"
breakwater prune r --retire 1 --grace 0 --yes; echo "exit $?"
breakwater ls r
breakwater rollback r 3; echo "exit $?"
breakwater ls r
breakwater rollback r 3 --label back --yes; echo "exit $?"
breakwater ls r
breakwater rollback r 3 --json | "$PYTHON" "$TOOLS/json_check.py" rollback
breakwater rollback r 7 --yes; echo "exit $?"
aside=$(breakwater ls r | grep -w shelved | grep -o '[0-9]\{20\}\.[^ ]*')
breakwater prune r --shelved; echo "exit $?"
breakwater prune r --pin "$aside" --yes; echo "exit $?"
breakwater prune r --shelved --grace 0 --yes; echo "exit $?"
breakwater prune r --unpin "$aside" --yes; echo "exit $?"
breakwater prune r --shelved --grace 0 --yes; echo "exit $?"
breakwater ls r
breakwater verify r; echo "exit $?"
breakwater history r
