#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Benchmarks. ./dev bench builds first, then comes here.
#
#   ./dev bench save DIR [--mib N] [--rounds N] [--only save|loop|restore] [--json FILE]
#       what a save costs, beside memcpy and a plain write and fsync
#   ./dev bench format [hash|json|history|manifest|layout|content|index|pack]... [--rounds N] [--small] [--json FILE]
#       what encoding, decoding and looking up cost at the sizes of large jobs, beside a hash of the same bytes
#
# BUILD says which build directory is measured (default build).
set -euo pipefail
tree=$(dirname "$(dirname "$(readlink -f "$0")")")
build=$(readlink -f "${BUILD:-$tree/build}")

usage() {
    [ $# -eq 0 ] || echo "bench: $*" >&2
    sed -n '5,10s/^# \{0,1\}//p' "$tree/bench/run.sh" >&2
    exit 2
}

save() {
    local dir=${1:-} made='' scratch
    [ -n "$dir" ] && [ "${dir#-}" = "$dir" ] || usage "save: no directory was given"
    shift
    if [ ! -e "$dir" ]; then
        mkdir "$dir" # one level, so that a name that was mistyped is told
        made=$(readlink -f "$dir")
    fi
    scratch=$(mktemp -d "$(readlink -f "$dir")/breakwater-bench.XXXXXX")
    # shellcheck disable=SC2064 # the names as they are now
    trap "rm -rf '$scratch'; [ -z '$made' ] || rmdir '$made'" EXIT
    "$build/bench/bench_save" "$scratch" "$@"
}

case ${1:-} in
save) save "${@:2}" ;;
format) exec "$build/bench/bench_format" "${@:2}" ;;
'') usage ;;
*) usage "no benchmark is called \"$1\"" ;;
esac
