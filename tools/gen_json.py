#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes doc/json.md, the readable form of the schemas in doc/schema/.

    tools/gen_json.py          writes doc/json.md
    tools/gen_json.py --check  writes nothing; fails when it is out of date
"""
import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOP = """\
<!-- Made by tools/gen_json.py from doc/schema/. Do not edit. -->
# What `--json` prints

Every verb but `completion` and `help` prints one JSON object with `--json`. Its member `schema` names what it is:
`breakwater-<verb>/<version>`. The version rises when a member changes its meaning or goes away; members may be added at
any time, so a reader ignores those that it does not know. The machine-readable form of this page is
`doc/schema/<verb>.json` (JSON Schema, draft 2020-12).

* The object goes to standard output, and only when the call has succeeded or has found damage; diagnoses go to standard
  error. The exit code is the same as without `--json`.
* Unsigned 64-bit numbers that may exceed 2^63 - 1 (marked *integer or digits*) are integers up to there and strings of
  digits above. Where a number is unknown or has no meaning the value is `null`.
* Text is UTF-8. Bytes of a name that are not UTF-8 come as U+FFFD.
* A finding of severity `damage` is damage or a failure; its `status` tells which.
"""


def kind(value):
    """The type of a value in words."""
    if "$ref" in value:
        return value["$ref"].rsplit("/", 1)[-1]
    if "const" in value:
        return f"`\"{value['const']}\"`"
    if "anyOf" in value:
        return "integer or digits" + (" or null" if {"type": "null"} in value["anyOf"] else "")
    if "enum" in value:
        return ", ".join("null" if v is None else f"`{v}`" for v in value["enum"])
    types = value["type"] if isinstance(value["type"], list) else [value["type"]]
    words = [f"array of {kind(value['items'])}" if t == "array" else t for t in types]
    return " or ".join(words)


def members(value):
    out = ["| member | type | means |", "|---|---|---|"]
    required = set(value.get("required", []))
    for name, member in value["properties"].items():
        optional = "" if name in required else " (optional)"
        out.append(f"| `{name}`{optional} | {kind(member)} | {member.get('description', '')} |")
    return out


def page():
    out = [TOP]
    for path in sorted((ROOT / "doc/schema").glob("*.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        out += [f"## {path.stem}", "", f"{schema['title']}.", ""] + members(schema) + [""]
        for name, value in schema.get("$defs", {}).items():
            out += [f"### {path.stem}: {name}", ""] + members(value) + [""]
    return "\n".join(out).rstrip("\n") + "\n"


def main():
    parser = argparse.ArgumentParser(description="generate doc/json.md")
    parser.add_argument("--check", action="store_true", help="fail when it is out of date")
    options = parser.parse_args()
    path = ROOT / "doc/json.md"
    text = page()
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    if options.check:
        print("doc/json.md is out of date: run tools/gen_json.py", file=sys.stderr)
        return 1
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
