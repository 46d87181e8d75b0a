# SPDX-License-Identifier: Apache-2.0
# Whole tensors from boxes; sharding; dtypes that safetensors cannot hold; nothing is overwritten without demand.
exec 2>&1
export BREAKWATER_REMOTE=file:///x
breakwater export gpt --to new; echo "exit $?"
ls -A
breakwater export gpt --to new --skip-unsupported
"$PYTHON" "$TOOLS/safetensors_make.py" dump new/model.safetensors
breakwater export gpt --to new --new-dtypes; echo "exit $?"
breakwater export gpt --to new --new-dtypes --force --shard-bytes 60
ls -A new
cat new/model.safetensors.index.json
"$PYTHON" "$TOOLS/safetensors_make.py" dump new/*.safetensors
breakwater export gpt 1000 --to new --force --with-blobs
find new -type f | sort
cat 'new/blobs/0/%2E.%2Frng%20state'; echo
cat new/metadata/0.json; echo
tail -c +9 new/model.safetensors | grep -a -o '{"__metadata__.*}}'
breakwater export gpt 1000 --to new --force --tensors 'nothing*'; echo "exit $?"
breakwater export gpt 1000 --to new --force --tensors 'a/*'
find new -type f | sort
mkdir other; echo mine > other/notes; echo old > other/model-00001-of-00009.safetensors
breakwater export gpt 1000 --to other; echo "exit $?"
breakwater export gpt 1000 --to other --force --tensors b
find other | sort
breakwater export gpt 1000 --to other/notes; echo "exit $?"
breakwater export slow 1000 --to long --with-blobs; echo "exit $?"; ls -A long
# A build that measures coverage cannot write its counts there either, and says so.
(trap '' XFSZ; ulimit -f 0; GCOV_PREFIX=/dev/null breakwater export gpt 1000 --to little; echo "exit $?") 2>&1 |
    grep -v '^profiling:'
ls -A little
breakwater export gpt 1000 --to json --json --with-blobs > out.json; echo "exit $?"
"$PYTHON" "$TOOLS/json_check.py" export < out.json
cat out.json
breakwater export gpt --to json --json --skip-unsupported --force > out.json; echo "exit $?"
"$PYTHON" "$TOOLS/json_check.py" export < out.json
breakwater export gpt 1000 --to json --json; echo "exit $?"
