#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Benchmarks. ./dev bench builds first, then comes here.
#
#   ./dev bench save DIR [--mib N] [--rounds N] [--json FILE]
#       what a save costs, beside memcpy and a plain write and fsync
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

usage() {
    sed -n '3,7s/^# \{0,1\}//p' bench/run.sh >&2
    exit 2
}

[ $# -ge 2 ] || usage
what=$1 dir=$2
shift 2
[ "$what" = save ] || usage
mkdir -p "$dir"
scratch=$(mktemp -d "$(readlink -f "$dir")/breakwater-bench.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
"${BUILD:-build}/bench/bench_save" "$scratch" "$@"
