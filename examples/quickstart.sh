#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trains a small language model twice: once undisturbed, once killed in the middle of saves and started again. Proves
# that both end with the same bits, and shows what the saves cost. Fails when anything is not as it must be.
#
#   examples/quickstart.sh [--small] [--build DIR] [DIR]
#
# DIR is a directory to work in, which must be new or empty, and is kept; without it a temporary one is used, and
# removed.
# --small trains a tiny model, as a test. --build names the build directory.
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)

build=$root/build small= dir= launch_pid= prefix=()
killed_step= killed_at= safe= lost= # of the last kill
steps=72 every=12 model=(--memory 160) drain_rate=64000000 need_mib=4000

# shellcheck source=examples/quickstart_common.sh
. "$root/examples/quickstart_common.sh"

cleanup() {
    [ -z "$launch_pid" ] || kill -KILL -- "-$launch_pid" 2>/dev/null || true
    [ -z "${scratch:-}" ] || rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

while [ $# -gt 0 ]; do
    case $1 in
    --small) small=1 ;;
    --build) build=$(cd "$2" && pwd) && shift ;;
    -*) fail "unknown option $1" ;;
    *) dir=$1 ;;
    esac
    shift
done
if [ -n "$small" ]; then
    steps=24 every=4 model=(--small --memory 64) drain_rate=600000 need_mib=100
fi
trainer=$build/examples/charlm
command=$build/src/cli/breakwater
for program in "$trainer" "$command"; do
    [ -x "$program" ] || fail "$program does not exist; build first: ./dev build"
done

enter "$dir"
free_mib=$(df -Pm "$dir" | awk 'NR == 2 {print $4}')
[ "$free_mib" -ge "$need_mib" ] || fail "$dir has $free_mib MiB free, $need_mib MiB are needed"
local_url=file://$dir/local remote_url=file://$dir/remote
tiers=(--local "$local_url" --remote "$remote_url")

# A text that every Debian system has: the licences. Elsewhere: the pages of this project.
make_corpus() {
    find /usr/share/common-licenses -type f 2>/dev/null | sort | xargs -r cat >corpus.txt
    if [ "$(wc -c <corpus.txt)" -lt 100000 ]; then
        find "$root" -name '*.md' -not -path '*/build*' | sort | xargs cat "$root/LICENSE" >>corpus.txt
    fi
    [ "$(wc -c <corpus.txt)" -ge 50000 ] || fail "no text to learn in /usr/share/common-licenses"
}

# train RUN LAUNCH [OPTION...]: in the foreground or, after "start", in the background as a process group of its own.
train() {
    "${prefix[@]}" "$trainer" --text corpus.txt "${tiers[@]}" --run "$1" --job job-1 --launch "$2" \
        --steps $steps --every $every "${model[@]}" "${@:3}" >"$1.$2.log" 2>"$1.$2.err"
}

# What a launch printed beyond its steps, and what rank 0 noted.
show() {
    sed -n 's/^resumed \([0-9]*\) \([a-z]*\)/   went on from step \1 (\2)/p' "$1.$2.log"
    sed -n '/^weights\|^held out\|^writes/s/^/   /p' "$1.$2.log"
    sed -n 's/^rank 0/   note of rank 0/p' "$1.$2.err"
}

failed_launch() {
    cat "$1.$2.log" "$1.$2.err" >&2
    fail "$2 of run $1 ended before it should"
}

last_step() { awk '/^step/ {n = $2} END {print n + 0}' "$1"; }
resumed_step() { awk '/^resumed/ {print $2}' "$1"; }

# Newest committed step of a run, 0 if there is none: what the command says, not what a process believes of itself.
committed_step() {
    "$command" ls "$1" --remote "$remote_url" | awk '$1 ~ /^[0-9]+$/ && / live / && $1 > n {n = $1} END {print n + 0}'
}

# hear SECONDS: a line that a rank tells, if there is one by then, is kept in `told` and is `line`. No process is
# started for it: the ranks do not wait for who listens.
hear() {
    read -r -t "$1" line <&3 || return
    echo "$line" >>told
}

# From what the ranks told: the newest step whose save reached a level on both, and how many ranks had it of a step.
newest_told() { awk -v l="$1" '$2 == l && ++n[$3] == 2 && $3 > top {top = $3} END {print top + 0}' told; }
ranks_told() { awk -v l="$1" -v s="$2" '$2 == l && $3 == s {n++} END {print n + 0}' told; }

# kill_in_save LAUNCH LEVEL STEP: starts a launch of the run "killed" and kills all of its processes with SIGKILL as
# soon as both ranks have told that the save of STEP has reached LEVEL. It must not be committed by then.
kill_in_save() {
    local launch=$1 level=$2 step=$3 line heard=0 committed
    rm -f tell told && mkfifo tell && : >told
    exec 3<>tell
    prefix=(exec setsid) && train killed "$launch" --tell tell --drain-rate "$drain_rate" &
    launch_pid=$!
    while [ "$heard" -lt 2 ]; do
        if hear 1; then
            [[ $line != *" $level $step"* ]] || heard=$((heard + 1))
        elif ! kill -0 "$launch_pid" 2>/dev/null; then
            failed_launch killed "$launch"
        fi
    done
    kill -KILL -- "-$launch_pid" 2>/dev/null || failed_launch killed "$launch"
    wait "$launch_pid" 2>/dev/null || true
    launch_pid=
    while hear 0.1; do :; done
    exec 3>&-
    show killed "$launch"
    [ -z "$killed_step" ] || check_resumed "$launch"
    committed=$(committed_step killed)
    [ "$committed" -lt "$step" ] || fail "step $step was committed before the kill arrived: not the middle of a save"
    killed_step=$step killed_at=$(last_step "killed.$launch.log")
    safe=$(newest_told local)
    [ "$safe" -gt "$committed" ] || safe=$committed
    printf '   killed both ranks with SIGKILL at step %s, in the save of step %s\n' "$killed_at" "$step"
    printf '   it was CAPTURED on %s ranks and LOCAL on %s; newest step that is LOCAL on both: %s, COMMITTED: %s\n' \
        "$(ranks_told captured "$step")" "$(ranks_told local "$step")" "$safe" "$committed"
}

steps_text() { [ "$1" = 1 ] && echo "1 step" || echo "$1 steps"; }

# check_resumed LAUNCH: the launch after a kill went on from the newest safe step: the newest one that all ranks had
# whole on the local tier or that was committed. One that was being saved then may have become LOCAL unheard.
check_resumed() {
    local from
    from=$(resumed_step "killed.$1.log")
    [ "$from" -ge "$safe" ] || fail "$1 went on from step $from, although $safe was safe"
    [ "$from" -le "$killed_at" ] || fail "$1 went on from step $from, although only $killed_at had been made"
    lost="$lost $((killed_at - from))"
    printf '   the kill before lost %s: %s had been made, and it went on from %s\n' \
        "$(steps_text $((killed_at - from)))" "$killed_at" "$from"
}

# same_bits: every step of every launch, those made twice as well, must have the loss of the undisturbed run, to the
# last bit (%a prints them all); and the files that hold weights and moments must be equal.
same_bits() {
    grep -h '^step' reference.launch-1.log | sort >reference.steps
    grep -h '^step' killed.launch-*.log | sort -u >killed.steps
    [ "$(wc -l <reference.steps)" = $steps ] || fail "the undisturbed run printed other than $steps steps"
    diff reference.steps killed.steps >steps.diff || fail "the losses differ: $(head -3 steps.diff | tr '\n' ' ')"
    for rank in 0 1; do
        cmp "reference.state.$rank" "killed.state.$rank" || fail "the state of rank $rank differs"
    done
    diff <(grep -h '^weights\|^held' reference.launch-1.log) <(grep -h '^weights\|^held' killed.launch-3.log) ||
        fail "weights or held-out loss differ"
    sha256sum reference.state.? killed.state.? | sed 's/^/   /'
    printf '   every loss of all %s steps is the same, and so is every bit of weights and moments\n' $steps
}

# quantiles TEXT FIELD-PROGRAM: a line of the table from the numbers (ns) that the awk program prints.
quantiles() {
    cat reference.report.0 reference.report.1 | awk "$2" | sort -n | awk -v text="$1" '
        function rank(p) { i = int(p * NR); if (i < p * NR) i++; return value[i < 1 ? 1 : i] / 1e6 }
        { value[NR] = $1 }
        END { if (NR) printf "   %-46s %4d %10.2f %10.2f %10.2f\n", text, NR, rank(0.5), rank(0.99), value[NR] / 1e6 }'
}

table() {
    local saves disk
    disk=$(df -P . | awk 'NR == 2 {print $1}')
    saves=$(grep -h '^save' reference.report.? | wc -l)
    [ "$saves" = $((2 * steps / every)) ] || fail "$saves saves were measured, expected $((2 * steps / every))"
    ! grep -q '^failed' reference.report.? || fail "a save failed: $(grep -h '^failed' reference.report.? | head -1)"
    printf '   %-46s %4s %10s %10s %10s\n' "milliseconds" n p50 p99 max
    quantiles "stall, Breakwater: begin to training goes on" '/^save/ {print $3}'
    quantiles "stall, synchronous: write and fsync" '/^sync/ {print $3}'
    quantiles "start to CAPTURED" '/^save/ {print $4}'
    quantiles "start to LOCAL" '/^save/ {print $5}'
    quantiles "start to COMMITTED" '/^save/ {print $6}'
    quantiles "a step while no save is in flight" '/^step/ && !$4 {print $3}'
    quantiles "a step while a save is in flight" '/^step/ && $4 {print $3}'
    awk '/^save/ {raw[FILENAME] = $7; how = $8 " (" substr($0, index($0, "\"") + 1)} /^sync/ {plain[FILENAME] = $4}
        END {for (f in raw) {a += raw[f]; b += plain[f]}
            sub(/"$/, ")", how)
            printf "   a save: %.1f MiB by two ranks, the synchronous one %.1f MiB; capture mode and write path: %s\n",
                a / 1048576, b / 1048576, how}' reference.report.0 reference.report.1
    cat <<END
   Measured in the undisturbed run, by both ranks. A Breakwater save stalls training in begin, describe and start, and
   where a step must wait for CAPTURED before it changes the weights. The synchronous save writes the same state into
   one file per rank, when no other save is in flight. Both tiers are on one disk here: $disk.
   The last save has no next step to hide its copying behind. n is small: p99 is the largest value or close to it.
END
    printf '   steps lost by the kills:%s\n' "$lost"
}

# The model's Adam moments and weights are the state: it must be large enough to mean something.
check_size() {
    local bytes
    bytes=$(cat reference.state.? | wc -c)
    [ -n "$small" ] || [ "$bytes" -ge 128000000 ] || fail "the state has only $bytes bytes"
    awk -v b="$bytes" '/^step/ {if (!n++) first = $4; last = $4}
        END {printf "   state: %.1f MiB; bits per byte: ", b / 1048576
            printf "%.3f in the first step, %.3f in the last\n", first, last
            exit !(last < first)}' reference.launch-1.log || fail "the model has not learnt anything"
}

make_corpus
say "Undisturbed: $steps steps, a checkpoint every $every, two ranks"
prefix=(env)
train reference launch-1 --report reference.report --plain plain --out reference.state ||
    failed_launch reference launch-1
rm -f plain.?
show reference launch-1
check_size

say "Killed between CAPTURED and LOCAL"
kill_in_save launch-1 captured $((steps / every / 2 * every))

say "Started again; killed between LOCAL and COMMITTED"
kill_in_save launch-2 local $(((steps / every - 2) * every))

say "Started again; to the end"
train killed launch-3 --out killed.state || failed_launch killed launch-3
show killed launch-3
check_resumed launch-3

say "The same bits?"
same_bits

say "What it cost"
table

say "breakwater ls"
"$command" ls "${tiers[@]}"
echo
"$command" ls killed "${tiers[@]}"

say "breakwater verify"
for run in reference killed; do
    "$command" verify "$run" "${tiers[@]}" >"verify.$run" || { cat "verify.$run"; fail "verify found damage in $run"; }
    printf '   %s: ' "$run" && tail -1 "verify.$run"
done
if [ -n "${scratch:-}" ]; then
    say "Nothing is kept; quickstart.sh DIR, or ./dev quickstart DIR, keeps the stores in DIR"
else
    say "The stores are kept; to look at them"
    printf '   %s ls --local %s --remote %s\n' "$command" "$local_url" "$remote_url"
fi
printf '\nquickstart: all is as it must be (%s s)\n' $((SECONDS))
