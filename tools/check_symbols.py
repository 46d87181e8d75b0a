#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that built libraries export what their public headers declare, and nothing else.

    tools/check_symbols.py LIBRARY...

The list of the library's version script must be the same, and every name must begin with bw_.
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


def compare(declared, mapped, found, name=gen_map.MAP):
    """Findings about three sets of names: of the headers, of the version script, of the library."""
    out = [f"{bad}: public functions are named bw_..." for bad in sorted(declared) if not bad.startswith("bw_")]
    out += [
        f"{symbol}: declared as BW_API and missing in {name}: run tools/gen_map.py"
        for symbol in sorted(declared - mapped)
    ]
    out += [
        f"{symbol}: in {name} and not declared as BW_API: run tools/gen_map.py" for symbol in sorted(mapped - declared)
    ]
    out += [f"{symbol}: declared as BW_API and not defined in the library" for symbol in sorted(declared - found)]
    out += [f"{symbol}: exported by the library and not declared as BW_API" for symbol in sorted(found - declared)]
    return out


def check(library):
    name = gen_map.MPI_MAP if "breakwater-mpi" in library else gen_map.MAP
    declared = set(gen_map.declared(gen_map.public_headers(ctext.ROOT, name)))
    return compare(declared, listed(ctext.read(ctext.ROOT / name)), exported(library), name)


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: check_symbols.py LIBRARY...")
    return ctext.report([finding for library in sys.argv[1:] for finding in check(library)])


if __name__ == "__main__":
    sys.exit(main())
