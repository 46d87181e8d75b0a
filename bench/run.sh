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
    sed -n '5,10s/^# \{0,1\}//p' "$tree/bench/run.sh" >&2
    exit 2
}

save() {
    local dir=${1:-} scratch
    [ -n "$dir" ] && [ "${dir#-}" = "$dir" ] || usage
    shift
    mkdir -p "$dir"
    scratch=$(mktemp -d "$(readlink -f "$dir")/breakwater-bench.XXXXXX")
    # shellcheck disable=SC2064 # the name as it is now
    trap "rm -rf '$scratch'" EXIT
    "$build/bench/bench_save" "$scratch" "$@"
}

case ${1:-} in
save) save "${@:2}" ;;
format) exec "$build/bench/bench_format" "${@:2}" ;;
*) usage ;;
esac
