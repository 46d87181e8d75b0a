# SPDX-License-Identifier: Apache-2.0
# What both quickstarts begin with; sourced by them.

scratch='' # a directory that goes at the end

say() { printf '\n== %s\n' "$*"; }

fail() {
    printf '\nquickstart: FAILED: %s\n' "$*" >&2
    exit 1
}

# enter DIR: goes to a directory to work in, which must be new or empty; "": to a temporary one. Sets dir.
enter() {
    dir=$1
    if [ -n "$dir" ]; then
        mkdir -p "$dir" && dir=$(cd "$dir" && pwd)
        [ -z "$(ls -A "$dir")" ] || fail "$dir is not empty"
    else
        scratch=$(mktemp -d "${BW_TEST_DIR:-${TMPDIR:-/tmp}}/breakwater-quickstart.XXXXXX")
        dir=$scratch
    fi
    cd "$dir"
}
