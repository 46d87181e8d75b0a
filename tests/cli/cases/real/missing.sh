# SPDX-License-Identifier: Apache-2.0
# What is not there.
exec 2>&1
breakwater ls --remote "file://$PWD/nothing"; echo "exit $?"
breakwater ls --remote "$PWD"; echo "exit $?"
breakwater ls --remote "s9://bucket"; echo "exit $?"
mkdir remote
"$PYTHON" "$TOOLS/safetensors_make.py" make a.safetensors w:F32:4:1
export BREAKWATER_REMOTE=file://$PWD/remote
breakwater import --run r --step 1 a.safetensors > /dev/null; echo "exit $?"
breakwater import --run r --step 1 a.safetensors --allow-node-local > /dev/null; echo "exit $?"
for verb in 'ls' 'show' 'verify' 'history' 'drain' 'prune' 'repair' 'export --to x'; do
    breakwater ${verb%% *} other ${verb#"${verb%% *}"}; echo "exit $?"
done
breakwater show r 2; echo "exit $?"
breakwater ls ../r; echo "exit $?"
breakwater ls "$(printf 'x%.0s' $(seq 129))"; echo "exit $?"
find . -name x -o -name other
breakwater drain r; echo "exit $?"
breakwater drain r --local "file://$PWD/local"; echo "exit $?"
breakwater export r -o x 2>&1 | head -1
echo "this is no safetensors file" > b.safetensors
breakwater import --run r --step 2 --job j b.safetensors --allow-node-local; echo "exit $?"
