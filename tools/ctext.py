# SPDX-License-Identifier: Apache-2.0
"""What the checkers share: finding files, and looking at C without its comments and strings."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def files(root, places, suffixes):
    """All files below the places (directories or files, missing ones allowed) with one of the suffixes, sorted."""
    found = []
    for place in places:
        base = root / place
        if base.is_file():
            found.append(base)
        elif base.is_dir():
            found += [
                p for p in base.rglob("*") if p.is_file() and p.suffix in suffixes and "__pycache__" not in p.parts
            ]
    return sorted(set(found))


_TOKEN = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S)


def blank(text, strings=True):
    """The text with comments (and the insides of strings) replaced by blanks: lines and columns stay."""

    def cover(match):
        token = match.group(0)
        if token[0] in "\"'":
            return token[0] + " " * (len(token) - 2) + token[0] if strings else token
        return re.sub(r"[^\n]", " ", token)

    return _TOKEN.sub(cover, text)


def read(path):
    return path.read_text(encoding="utf-8")


def report(findings):
    """Prints findings, one a line, and returns the exit status."""
    for finding in findings:
        print(finding, file=sys.stderr)
    return 1 if findings else 0
