#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the version script of the shared library from the public headers.

    tools/gen_map.py          writes src/api/libbreakwater.map
    tools/gen_map.py --check  writes nothing; fails when the file is out of date

The list is what include/breakwater/*.h declares as BW_API. It is checked in, so that a change of the library's surface
shows in review.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAP = "src/api/libbreakwater.map"
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


def public_headers(root):
    return sorted((root / "include/breakwater").glob("*.h"))


def version_script(names):
    lines = ["/* Made by tools/gen_map.py from include/breakwater/. Do not edit. */", VERSION + " {", "global:"]
    lines += [f"    {name};" for name in names]
    lines += ["local:", "    *;", "};"]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description="generate the version script")
    parser.add_argument("--check", action="store_true", help="fail when the file is out of date")
    options = parser.parse_args()
    path = ROOT / MAP
    text = version_script(declared(public_headers(ROOT)))
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    if options.check:
        print(f"{MAP} is out of date: run tools/gen_map.py", file=sys.stderr)
        return 1
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
