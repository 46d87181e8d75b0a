# SPDX-License-Identifier: Apache-2.0
# Wrong usage: exit code 2, a message that names the thing, nothing on standard output.
exec 2>&1
export BREAKWATER_REMOTE=file:///x
try() { breakwater "$@"; echo "exit $?"; }
try
try --json
try --remote file:///x ls
try lss
try historyy
try hi
try frobnicate
try ls --jsn
try ls --frobnicate
try ls -x
try ls a b
try ls --json=yes
try ls --memory
try ls --memory 63M
try ls --memory 12parsecs
try ls --memory 99999999999999999999
try ls --remote ''
try ls --remote file:///a --remote file:///b
try ls --timeout 5parsecs
try version --timeout 1s
try show
try show gpt abc
try show gpt 9223372036854775808
try show gpt 00000000000000001200.1-XYZ.0
try diff gpt 1000
try diff gpt 1000 1200 --memory 143MiB
try export gpt
try export gpt --to x --memory 71MiB
try export gpt --to x --shard-bytes 0
try import --run r --step 1
try import f.safetensors --step 1
try import f.safetensors --run r
try import f.safetensors --run r --step -1
try prune gpt --keep-every 10
try prune gpt --keep-younger 1h
try prune gpt --keep-last 0
try prune gpt --keep-last 4294967296
try prune gpt --keep-last 3 --keep-younger 10
try prune gpt --keep-last 3 --keep-younger 10parsecs
try prune gpt --retire x
try repair gpt --yes
try rollback gpt
try rollback gpt now
try prune gpt --dry-run --yes
try drain gpt --dry-run
try completion tcsh
try help nothing
try doctor --remote=
