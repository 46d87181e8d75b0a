#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every kind of failure in doc/reliability.md has its test and its guard, and the other way round."""

import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def rows_of_page():
    page = (ROOT / "doc/reliability.md").read_text(encoding="utf-8")
    return re.findall(r"^\| .* \| `(row_[a-z_]+)` \|$", page, re.M)


def rows_of_tests():
    text = (ROOT / "tests/rows/meson.build").read_text(encoding="utf-8")
    listed = {"row_" + name for name in re.findall(r"^  '(\w+)': \[", text, re.M)}
    return listed | set(re.findall(r"test\('(row_[a-z_]+)'", text))


def rows_of_mutants():
    with (ROOT / "tests/mutants/rows.toml").open("rb") as f:
        return {m["test"] for m in tomllib.load(f)["mutant"]}


def main():
    page, tests, mutants = rows_of_page(), rows_of_tests(), rows_of_mutants()
    complaints = [f"doc/reliability.md: {r} is there {page.count(r)} times" for r in set(page) if page.count(r) > 1]
    for what, found in (("tests/rows/meson.build", tests), ("tests/mutants/rows.toml", mutants)):
        complaints += [f"{what}: {row} of doc/reliability.md is missing" for row in sorted(set(page) - found)]
        complaints += [f"doc/reliability.md: {row} of {what} is missing" for row in sorted(found - set(page))]
    if not page:
        complaints.append("doc/reliability.md: no row was found")
    print("\n".join(complaints) if complaints else f"{len(page)} rows, each with a test and a mutant")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
