#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the manual pages: section 1 from the table of the command, breakwater.7 from its source and the status codes.

    tools/gen_man.py BREAKWATER          writes doc/man/*.1 and doc/man/breakwater.7; BREAKWATER is the built command
    tools/gen_man.py BREAKWATER --check  writes nothing; fails and names each page that is out of date or left over

Without BREAKWATER only breakwater.7 is made or checked.

The pages are checked in, so that a reader and a package find them in place.
"""
import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ROOT / "doc/man"
sys.path.insert(0, str(ROOT / "tools"))
import gen_status  # noqa: E402


def of_command(command, *words):
    return subprocess.run([command, "__man", *words], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout


def concepts():
    exits = "\n".join(f".TP\n.B {n}\n{text}" for n, text in gen_status.EXIT_CODES.items())
    status = gen_status.manual(gen_status.load())
    status = "\n".join(line for line in status.splitlines() if not line.startswith('.\\"'))
    source = (PAGES / "breakwater.7.in").read_text(encoding="utf-8")
    source = source.replace("Source of breakwater.7: tools/gen_man.py puts the tables into it.",
                            "Made by tools/gen_man.py from breakwater.7.in and tools/status.json. Do not edit.")
    return source.replace("@EXITS@", exits).replace("@STATUS@", status)


def main():
    parser = argparse.ArgumentParser(description="generate the manual pages")
    parser.add_argument("command", nargs="?", help="the built command")
    parser.add_argument("--check", action="store_true", help="fail when a page is out of date")
    options = parser.parse_args()
    made = {"breakwater.7": concepts()}
    for page in of_command(options.command).split() if options.command else []:
        name = "breakwater.1" if page == "breakwater" else f"breakwater-{page}.1"
        made[name] = of_command(options.command, page)
    stale = 0
    for name, text in made.items():
        path = PAGES / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if options.check:
            print(f"doc/man/{name} is out of date: run tools/gen_man.py with the built command", file=sys.stderr)
            stale = 1
        else:
            path.write_text(text, encoding="utf-8")
    for path in sorted(PAGES.glob("breakwater*.[17]")):
        if options.command and path.name not in made:
            print(f"doc/man/{path.name} belongs to no verb: remove it", file=sys.stderr)
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
