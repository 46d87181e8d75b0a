#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trains a small GPT under torchrun, sharded over two ranks with FSDP2: once undisturbed, once killed in the middle of a
# save, once told to end. Proves that all end with the same bits, and that three ranks, and one, load what two have
# saved. Fails when anything is not as it must be.
#
#   examples/pytorch/quickstart.sh [--small] [--build DIR] [DIR]
#
# DIR is a directory to work in, which must be new or empty, and is kept; without it a temporary one is used, and
# removed. --small trains for fewer steps, as a test. The Python in $TORCH_PYTHON (default: that of .venv-torch) must
# have PyTorch.
set -euo pipefail
export LC_ALL=C OMP_NUM_THREADS=1
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
build=$root/build dir='' steps=60 every=10 launch_pid=''
# shellcheck source=examples/quickstart_common.sh
. "$root/examples/quickstart_common.sh"

# torchrun, and the ranks, which have sessions of their own.
kill_launch() {
    local ranks
    ranks=$(cat /proc/"$launch_pid"/task/*/children 2>/dev/null) || true
    # shellcheck disable=SC2086
    kill -KILL "$launch_pid" $ranks 2>/dev/null || true
    wait "$launch_pid" 2>/dev/null || true
    launch_pid=''
}

cleanup() {
    [ -z "$launch_pid" ] || kill_launch
    [ -z "$scratch" ] || rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

while [ $# -gt 0 ]; do
    case $1 in
    --small) steps=12 every=3 ;;
    --build) build=$(cd "$2" && pwd) && shift ;;
    -*) fail "unknown option $1" ;;
    *) dir=$1 ;;
    esac
    shift
done
python=${TORCH_PYTHON:-$root/.venv-torch/bin/python3}
command=$build/src/cli/breakwater
[ -x "$command" ] || fail "$command does not exist; build first: ./dev build"
[ -x "$python" ] || fail "$python does not exist"
enter "$dir"

# launch RANKS DIR STEPS: prints what the trainer prints, which also goes to log.
launch() {
    PYTHONPATH=$build/python "$python" -m torch.distributed.run --standalone --nproc-per-node "$1" \
        "$root/examples/pytorch/gpt.py" "$dir/$2" --steps "$3" --every "$every" --hash >log 2>errors &
    launch_pid=$!
}

# Of the launch, within ten minutes.
await_end() {
    local i
    for ((i = 0; i < 6000; i++)); do
        kill -0 "$launch_pid" 2>/dev/null || return 0
        sleep 0.1
    done
    fail "the training does not end"
}

finish() {
    await_end
    wait "$launch_pid" || { cat log errors >&2; fail "the training ended with an error"; }
    launch_pid=''
    grep -v '^step' log
}

hash_of() {
    sed -n "s/^$1.* hash //p" log
}

# A line of the log, within a minute.
await() {
    local i
    for ((i = 0; i < 600; i++)); do
        grep -q "$1" log && return 0
        kill -0 "$launch_pid" 2>/dev/null || { cat log errors >&2; fail "the training ended before \"$1\""; }
        sleep 0.1
    done
    fail "\"$1\" did not come"
}

say "$steps steps on 2 ranks, undisturbed"
launch 2 whole "$steps"
finish
whole=$(hash_of ended)

half=$((steps / 2 / every * every))
say "the same, but killed while step $half or the one behind it is saved"
launch 2 killed "$steps"
await "^step $((half + 1)) " # the save before was waited for
kill_launch
"$command" ls gpt --remote "$dir/killed/remote"
say "and started again"
launch 2 killed "$steps"
finish
[ -n "$(hash_of resumed)" ] || fail "it began anew, although a step was committed"
[ "$(hash_of ended)" = "$whole" ] || fail "expected the weights and moments $whole, found $(hash_of ended)"
echo "the same bits as undisturbed: $whole"

say "told to end by SIGTERM, as a scheduler does: it saves once more"
launch 2 told 100000
await "^step $((every + 1)) "
kill -TERM "$launch_pid"
await_end
wait "$launch_pid" || true # torchrun calls it a failure
launch_pid=''
last=$(sed -n 's/^ended with step \([0-9]*\).*/\1/p' log)
[ -n "$last" ] || { cat log errors >&2; fail "it did not end by itself"; }
saved=$("$command" ls gpt --remote "$dir/told/remote" --json | sed -n 's/.*"step": *\([0-9]*\).*/\1/p' |
    sort -n | tail -1)
[ "$saved" = "$last" ] || fail "it ended with step $last, and the newest checkpoint is that of step $saved"
echo "ended with step $last, which is committed"

for ranks in 3 1; do
    say "what 2 ranks have saved, loaded by $ranks"
    launch "$ranks" whole "$steps"
    finish
    [ "$(hash_of resumed)" = "$whole" ] || fail "expected the weights and moments $whole, found $(hash_of resumed)"
done
say "all as it must be"
[ -n "$scratch" ] || echo "kept in $dir: $command ls gpt --remote $dir/whole/remote"
