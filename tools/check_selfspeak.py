#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the tree speaks of the project alone: no path of one machine, no word about how the tree came about.

tools/check_selfspeak.py [--root DIR]
"""

import argparse
import pathlib
import re
import subprocess
import sys

import ctext

RULES = [
    ("a path of one machine", r"(?<![\w.$}])/(?:work|root|farm)(?:/|\b)|/home/[a-z]"),
    (
        "a note about who or what wrote this",
        r"\bco-authored|\b(?:ai|llm|coding) (?:agents?|assistants?)\b|\bthis session\b",
    ),
    ("a page that is not in this repository", r"\b(?:DESIGN|PROTOCOL|failures)\.md|\bissue #?\d+\b"),
]
RULES = [(what, re.compile(pattern, re.I)) for what, pattern in RULES]
SKIP = {".git", ".venv", "__pycache__"}
THESE = {"check_selfspeak.py", "checkers_test.py"}  # they spell the rules out


def tracked(root):
    """Files that belong to the tree: git's word where it is a checkout, else everything but build directories."""
    listing = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        return sorted(p for p in (root / n for n in listing.stdout.decode().split("\0") if n) if p.is_file())
    return [
        p
        for p in sorted(root.rglob("*"))
        if p.is_file() and not any(part in SKIP or part.startswith("build") for part in p.relative_to(root).parts)
    ]


def check_tree(root):
    out = []
    for path in tracked(root):
        if path.name in THESE:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a fixture
        for number, line in enumerate(text.splitlines(), 1):
            for what, pattern in RULES:
                found = pattern.search(line)
                if found:
                    out.append(f'{path.relative_to(root)}:{number}: "{found.group(0)}": {what}')
    return out


def main():
    parser = argparse.ArgumentParser(description="check that the tree speaks of the project alone")
    parser.add_argument("--root", type=pathlib.Path, default=ctext.ROOT)
    return ctext.report(check_tree(parser.parse_args().root))


if __name__ == "__main__":
    sys.exit(main())
