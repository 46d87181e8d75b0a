#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what can be counted about style.

tools/check_style.py [--root DIR]            prints each finding with file and line; exit status 1 if there is one
tools/check_style.py [--root DIR] --measure  prints the lengths of files and functions as well
"""

import argparse
import pathlib
import re
import statistics
import sys

import ctext

FUNCTION_LINES_MAX = 80
FUNCTION_LINES_MEDIAN = 20
FILE_LINES_MAX = 900
LINE_BYTES_MAX = 120
HEADER_COMMENT_SHARE = 0.60

C_PLACES = ["src", "include", "python", "tests", "examples", "fuzz", "bench"]
SCRIPT_PLACES = C_PLACES + ["tools", "dev", ".ci/run"]
TEXT_PLACES = SCRIPT_PLACES + [
    "doc",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "TESTING.md",
    "meson.build",
    "meson_options.txt",
]
C_SUFFIXES = {".c", ".h"}
SCRIPT_SUFFIXES = C_SUFFIXES | {".py", ".sh"}
TEXT_SUFFIXES = SCRIPT_SUFFIXES | {".md", ".build", ".json", ".inc", ".map", ".txt"}
DATA = {"golden"}  # directories of fixtures, which are what they are

MARKS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")
NOT_A_FUNCTION = re.compile(r"^(struct|union|enum|typedef)\b[^()]*\{$|=\s*\{$")


def defined_name(head):
    """The function that these lines begin to define, or None. Attributes in front of it have parentheses too."""
    signature = head.split("{")[0]
    if "{" not in head or ";" in signature or NOT_A_FUNCTION.search(signature + "{"):
        return None
    while re.search(r"\([^()]*\(", signature):
        signature = re.sub(r"(\([^()]*)\([^()]*\)", r"\1", signature)
    names = re.findall(r"\b(\w+)\s*\(", signature)
    return names[-1] if names else None


def functions(text):
    """(name, first line, number of lines) of each function, from its signature to its closing brace.

    Relies on the layout that clang-format gives: a signature begins in column 0, and so does the closing brace.
    """
    lines = ctext.blank(text).splitlines()
    out, start = [], None
    at = 0
    while at < len(lines):
        line = lines[at].rstrip()
        if not line or line[0] in " \t#})" or line.endswith(":"):
            start = None if not line or line[0] == "#" else start
            at += 1
            continue
        if start is None or line[0] not in " \t":
            start = at
        end = at
        while end < len(lines) and not re.search(r"[;{}]\s*$", lines[end]):
            end += 1
        head = " ".join(lines[start : end + 1]).rstrip()
        name = defined_name(head)
        if name:
            close = end
            if not head.endswith("}"):
                while close < len(lines) and not lines[close].startswith("}"):
                    close += 1
            out.append((name, start + 1, close - start + 1))
            end = close
        elif head.endswith("{"):
            while end < len(lines) and not lines[end].startswith("}"):
                end += 1
        start = None
        at = end + 1
    return out


def check_functions(root, paths):
    out, lengths = [], []
    for path in paths:
        for name, line, count in functions(ctext.read(path)):
            if path.is_relative_to(root / "src"):
                lengths.append(count)
            if count > FUNCTION_LINES_MAX:
                out.append(
                    f"{path.relative_to(root)}:{line}: {name}() has {count} lines, at most {FUNCTION_LINES_MAX} are"
                    " allowed"
                )
    if lengths and statistics.median(lengths) > FUNCTION_LINES_MEDIAN:
        out.append(
            f"src: the median function has {statistics.median(lengths):g} lines, at most {FUNCTION_LINES_MEDIAN} are"
            " allowed"
        )
    return out


def check_script_lines(root, path):
    name = path.relative_to(root)
    lines = ctext.read(path).splitlines()
    out = []
    if len(lines) > FILE_LINES_MAX:
        out.append(f"{name}:{len(lines)}: the file has {len(lines)} lines, at most {FILE_LINES_MAX} are allowed")
    first = lines[1:2] if lines[:1] and lines[0].startswith("#!") else lines[:1]
    if not first or "SPDX-License-Identifier: Apache-2.0" not in first[0]:
        out.append(f"{name}:1: the first line (after #!) must say SPDX-License-Identifier: Apache-2.0")
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_BYTES_MAX:
            out.append(f"{name}:{number}: the line has {len(line)} characters, at most {LINE_BYTES_MAX} are allowed")
    return out


def check_text_lines(root, path):
    name = path.relative_to(root)
    text = ctext.read(path)
    out = []
    for number, line in enumerate(text.splitlines(), 1):
        if "\t" in line:
            out.append(f"{name}:{number}: a tab")
        if line != line.rstrip():
            out.append(f"{name}:{number}: blanks at the end of the line")
        mark = MARKS.search(line)
        if mark:
            out.append(f"{name}:{number}: {mark.group(1)}: finish it or put it into an issue")
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        out.append(f"{name}: must end with exactly one newline")
    return out


def check_basenames(root, paths):
    seen, out = {}, []
    for path in paths:
        name = path.relative_to(root)
        if path.name in seen:
            out.append(f"{name}: {seen[path.name]} has the same file name")
        seen.setdefault(path.name, name)
    return out


def comment_share(text):
    """Share of the lines that are not blank which are comment or carry one."""
    lines, inside, commented = 0, False, 0
    for line in text.splitlines():
        if not line.strip():
            continue
        lines += 1
        opened = "/*" in line or "//" in line
        commented += inside or opened
        if "/*" in line:
            inside = "*/" not in line.split("/*", 1)[1]
        elif inside and "*/" in line:
            inside = False
    return commented / lines if lines else 1.0


def check_comments(root, paths):
    out = []
    for path in paths:
        share = comment_share(ctext.read(path))
        if share < HEADER_COMMENT_SHARE:
            out.append(
                f"{path.relative_to(root)}: {share:.0%} of the lines carry comment, at least"
                f" {HEADER_COMMENT_SHARE:.0%} are expected"
            )
    return out


def not_data(root, paths):
    return [p for p in paths if not DATA & set(p.relative_to(root).parts)]


def check_tree(root):
    c_files = not_data(root, ctext.files(root, C_PLACES, C_SUFFIXES))
    out = check_functions(root, c_files)
    for path in not_data(root, ctext.files(root, SCRIPT_PLACES, SCRIPT_SUFFIXES)):
        out += check_script_lines(root, path)
    for path in not_data(root, ctext.files(root, TEXT_PLACES, TEXT_SUFFIXES)):
        out += check_text_lines(root, path)
    out += check_basenames(root, ctext.files(root, ["src"], C_SUFFIXES))
    out += check_comments(root, ctext.files(root, ["include"], {".h"}))
    return out


def measure(root):
    all_functions = []
    for path in ctext.files(root, ["src"], C_SUFFIXES):
        all_functions += [
            (count, f"{path.relative_to(root)}:{line} {name}") for name, line, count in functions(ctext.read(path))
        ]
    counts = sorted(count for count, _ in all_functions)
    if counts:
        print(
            f"{len(counts)} functions under src/: median {statistics.median(counts):g}, "
            f"p90 {counts[len(counts) * 9 // 10]}, longest {counts[-1]}"
        )
    for count, where in sorted(all_functions, reverse=True)[:10]:
        print(f"{count:6} {where}")


def main():
    parser = argparse.ArgumentParser(description="check what can be counted about style")
    parser.add_argument("--root", type=pathlib.Path, default=ctext.ROOT)
    parser.add_argument("--measure", action="store_true", help="print lengths as well")
    options = parser.parse_args()
    if options.measure:
        measure(options.root)
    return ctext.report(check_tree(options.root))


if __name__ == "__main__":
    sys.exit(main())
