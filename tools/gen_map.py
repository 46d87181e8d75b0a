#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the version scripts of the shared libraries from the public headers.

    tools/gen_map.py          writes src/api/libbreakwater.map and src/mpi/libbreakwater-mpi.map
    tools/gen_map.py --check  writes nothing; fails when a file is out of date

The lists are what include/breakwater/*.h declares as BW_API; mpi.h is the second library's. They are checked in, so
that a change of a library's surface shows in review.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAP = "src/api/libbreakwater.map"
MPI_MAP = "src/mpi/libbreakwater-mpi.map"
MPI_HEADER = "mpi.h"
VERSION = "BREAKWATER_0"


def strip_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def declared(headers):
    """Names of all functions that the headers declare as BW_API, sorted."""
    names = set()
    for header in headers:
        text = strip_comments(header.read_text(encoding="utf-8"))
        text = re.sub(r"^[ \t]*#.*(?:\\\n.*)*$", "", text, flags=re.M)
        for found in re.finditer(r"\bBW_API\b([^;{]*?)\b(\w+)\s*\(", text):
            names.add(found.group(2))
    return sorted(names)


def public_headers(root, version_script_of=MAP):
    """The headers whose functions one of the libraries exports."""
    headers = sorted((root / "include/breakwater").glob("*.h"))
    return [header for header in headers if (header.name == MPI_HEADER) == (version_script_of == MPI_MAP)]


def version_script(names):
    lines = ["/* Made by tools/gen_map.py from include/breakwater/. Do not edit. */", VERSION + " {", "global:"]
    lines += [f"    {name};" for name in names]
    lines += ["local:", "    *;", "};"]
    return "\n".join(lines) + "\n"


def update(name, check):
    path = ROOT / name
    text = version_script(declared(public_headers(ROOT, name)))
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    if check:
        print(f"{name} is out of date: run tools/gen_map.py", file=sys.stderr)
        return 1
    path.write_text(text, encoding="utf-8")
    return 0


def main():
    parser = argparse.ArgumentParser(description="generate the version scripts")
    parser.add_argument("--check", action="store_true", help="fail when a file is out of date")
    options = parser.parse_args()
    return max([update(name, options.check) for name in (MAP, MPI_MAP)])


if __name__ == "__main__":
    sys.exit(main())
