#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a built libbreakwater.so exports what the public headers declare, and nothing else.

    tools/check_symbols.py LIBRARY

The list of src/api/libbreakwater.map must be the same, and every name must begin with bw_.
"""

import re
import subprocess
import sys

import ctext
import gen_map


def exported(library):
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    names = set()
    for line in listing.splitlines():
        kind, symbol = line.split()[-2:]
        if kind != "A":  # the name of the version itself
            names.add(symbol.split("@")[0])
    return names


def listed(text):
    body = re.search(r"global:(.*?)local:", gen_map.strip_comments(text), re.S)
    return set(re.findall(r"(\w+);", body.group(1))) if body else set()


def compare(declared, mapped, found):
    """Findings about three sets of names: of the headers, of the version script, of the library."""
    out = [f"{name}: public functions are named bw_..." for name in sorted(declared) if not name.startswith("bw_")]
    out += [
        f"{name}: declared as BW_API and missing in {gen_map.MAP}: run tools/gen_map.py"
        for name in sorted(declared - mapped)
    ]
    out += [
        f"{name}: in {gen_map.MAP} and not declared as BW_API: run tools/gen_map.py"
        for name in sorted(mapped - declared)
    ]
    out += [f"{name}: declared as BW_API and not defined in the library" for name in sorted(declared - found)]
    out += [f"{name}: exported by the library and not declared as BW_API" for name in sorted(found - declared)]
    return out


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check_symbols.py LIBRARY")
    declared = set(gen_map.declared(gen_map.public_headers(ctext.ROOT)))
    mapped = listed(ctext.read(ctext.ROOT / gen_map.MAP))
    return ctext.report(compare(declared, mapped, exported(sys.argv[1])))


if __name__ == "__main__":
    sys.exit(main())
