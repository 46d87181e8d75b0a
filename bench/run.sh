#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Benchmarks. ./dev bench builds first, then comes here.
#
#   ./dev bench save DIR [--mib N] [--rounds N] [--only memory|save|loop|restore] [--json FILE]
#       what a save costs, beside memcpy and a plain write and fsync
#   ./dev bench pytorch DIR [--mib N] [--rounds N] [--only save|steps|memory|load] [--json FILE]
#       saving and loading a PyTorch state, beside what else there is for it
#   ./dev bench format [hash|json|history|manifest|layout|content|index|pack]... [--rounds N] [--small] [--json FILE]
#       what encoding, decoding and looking up cost at the sizes of large jobs, beside a hash of the same bytes
#   ./dev bench ranks [--ranks N] [--tensors N] [--saves N] [--latency-ms N] [--straggler-ms N] [--seed N] [--json FILE]
#       what many simulated ranks ask of their store, second by second, and what committing takes; in virtual time
#
# BUILD says which build directory is measured (default build), BENCH_PYTHON which Python has PyTorch (default: the one
# of .venv-bench).
set -euo pipefail
tree=$(dirname "$(dirname "$(readlink -f "$0")")")
build=$(readlink -f "${BUILD:-$tree/build}")

usage() {
    [ $# -eq 0 ] || echo "bench: $*" >&2
    sed -n '5,12s/^# \{0,1\}//p' "$tree/bench/run.sh" >&2
    exit 2
}

# in_scratch NAME DIR COMMAND...: runs a benchmark in a directory of its own below DIR, and takes that away again.
in_scratch() {
    local name=$1 dir=${2:-} made='' scratch
    [ -n "$dir" ] && [ "${dir#-}" = "$dir" ] || usage "$name: no directory was given"
    shift 2
    if [ ! -e "$dir" ]; then
        mkdir "$dir" # one level, so that a name that was mistyped is told
        made=$(readlink -f "$dir")
    fi
    scratch=$(mktemp -d "$(readlink -f "$dir")/breakwater-bench.XXXXXX")
    # shellcheck disable=SC2064 # the names as they are now
    trap "rm -rf '$scratch'; [ -z '$made' ] || rmdir '$made'" EXIT
    "$name" "$scratch" "$@"
}

save() {
    "$build/bench/bench_save" "$@"
}

pytorch() {
    local python=${BENCH_PYTHON:-$tree/.venv-bench/bin/python3}
    PYTHONPATH=$build/python "$python" "$tree/bench/pytorch/run.py" "$@" --prune "$build/src/cli/breakwater"
}

case ${1:-} in
save | pytorch) in_scratch "$@" ;;
format) exec "$build/bench/bench_format" "${@:2}" ;;
ranks) exec "$build/bench/bench_ranks" "${@:2}" ;;
'') usage ;;
*) usage "no benchmark is called \"$1\"" ;;
esac
