#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says which lines and branches of src/ the tests have run: the work behind ./dev coverage.

    tools/coverage.py [--lines PERCENT] [--branches PERCENT] [--list] BUILD

BUILD was compiled with -Db_coverage=true, and its tests have run. The table has a row per directory; --list shows every
line that never ran, by function, those first that treat no error. Fails where less is covered than asked for.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

GCOV = os.environ.get("GCOV", "gcov")
ROOT = pathlib.Path(__file__).resolve().parent.parent

# What a line says that is there for the case that something has failed.
FAILING = re.compile(
    r"\b(err|e|error|late|unseen|why)\b.*[;,]|bwi_error|error\(|errno|fail|BW_E_|-E[A-Z]+\b|\brc\b|nomem|goto out"
    r"|return (NULL|false|-1|1);|usage|damage|cannot|give_up|abandon|cancel|undo|discard|unlink|_free\(|_fini\(|close\("
)


@dataclasses.dataclass
class Line:
    count: int = 0
    function: str = ""
    branches: list = dataclasses.field(default_factory=list)


def gcov(path, build):
    command = [GCOV, "--json-format", "--stdout", "--branch-probabilities", str(path)]
    done = subprocess.run(command, cwd=build, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return [json.loads(text) for text in done.stdout.splitlines() if text.strip()]


def source_of(name, build):
    """The file's name below src/, or None for what is not ours."""
    path = pathlib.Path(name)
    path = (path if path.is_absolute() else build / path).resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT / "src") else None


def add(lines, found):
    line = lines[found["line_number"]]
    line.count += found["count"]
    line.function = found.get("function_name", line.function)
    taken = [b["count"] for b in found["branches"] if not b.get("throw")]
    if len(taken) != len(line.branches):
        line.branches = line.branches or taken
    else:
        line.branches = [a + b for a, b in zip(line.branches, taken)]


def collect(build):
    """file -> line number -> Line, over all objects that hold code of the file."""
    notes = sorted(p for p in build.rglob("*.gcno") if p.is_relative_to(build / "src") or "_src_" in p.name)
    files = collections.defaultdict(lambda: collections.defaultdict(Line))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for report in pool.map(lambda p: gcov(p, build), notes):
            for file in (f for r in report for f in r["files"]):
                name = source_of(file["file"], build)
                for found in file["lines"] if name else []:
                    add(files[name], found)
    return files


def share(part, whole):
    return 100.0 * part / whole if whole else 100.0


def tally(files):
    """directory -> [lines that ran, lines, branches taken, branches]"""
    rows = collections.defaultdict(lambda: [0, 0, 0, 0])
    for name, lines in files.items():
        row = rows[pathlib.PurePath(name).parent.as_posix()]
        for line in lines.values():
            row[0] += line.count > 0
            row[1] += 1
            row[2] += sum(b > 0 for b in line.branches)
            row[3] += len(line.branches)
    return rows


def print_table(rows):
    print(f"{'directory':20} {'lines':>8} {'run':>7}   {'branches':>8} {'taken':>7}")
    whole = [sum(column) for column in zip(*rows.values())]
    for name, row in [*sorted(rows.items()), ("all", whole)]:
        print(f"{name:20} {row[1]:8} {share(row[0], row[1]):6.1f}%   {row[3]:8} {share(row[2], row[3]):6.1f}%")
    return whole


def treats_an_error(text, number):
    """Whether the line, or the condition that leads to it, speaks of a failure."""
    return any(FAILING.search(text[i - 1]) for i in range(max(1, number - 2), number + 1))


def print_list(files):
    """Every line that never ran; those that treat no error come first."""
    found = {False: [], True: []}
    for name, lines in sorted(files.items()):
        text = (ROOT / name).read_text(encoding="utf-8").splitlines()
        for number, line in sorted(lines.items()):
            if line.count == 0:
                row = f"{name}:{number}: {line.function}: {text[number - 1].strip()}"
                found[treats_an_error(text, number)].append(row)
    for treats, title in ((False, "never ran, and treat no error"), (True, "never ran, and treat an error")):
        print(f"{len(found[treats])} lines {title}:")
        print("".join(f"  {row}\n" for row in found[treats]), end="")


def main(argv):
    parser = argparse.ArgumentParser(description="coverage of src/ by the tests that have run", add_help=True)
    parser.add_argument("--lines", type=float, default=0, metavar="PERCENT")
    parser.add_argument("--branches", type=float, default=0, metavar="PERCENT")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("build", type=pathlib.Path)
    options = parser.parse_args(argv)
    files = collect(options.build.resolve())
    if not files:
        sys.exit(f"{options.build}: no notes of gcov for src/; expected a build with -Db_coverage=true")
    if options.list:
        print_list(files)
    whole = print_table(tally(files))
    lines, branches = share(whole[0], whole[1]), share(whole[2], whole[3])
    for what, got, least in (("lines", lines, options.lines), ("branches", branches, options.branches)):
        if got < least:
            print(f"coverage: {got:.1f}% of the {what}, expected at least {least:.1f}%")
    return 1 if lines < options.lines or branches < options.branches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
