#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes guards out of the library, one at a time, and sees that a test notices: the work behind ./dev mutants.

    tools/mutants.py [--list] [--check] [NAME ...]

tests/mutants/*.toml list the mutants. Each has a name; a file; `changes`, pairs of a text that stands in it exactly
once and what comes in its place; `test`, the test that must fail then; and, if its own arguments are not wanted,
`args`. NAME is a part of a mutant's or a test's name. The tree is copied to build-mutants/ and changed there. --check
only looks whether every text is still there, once. The last line is "N passed, N failed": a mutant that is caught has
passed.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build-mutants"
TREE, BUILD = WORK / "tree", WORK / "build"
MESON = os.environ.get("MESON") or ("/usr/bin/meson" if os.path.exists("/usr/bin/meson") else "meson")
LIMIT_S = 600


@dataclasses.dataclass
class Mutant:
    name: str
    file: str
    changes: list
    test: str
    args: list | None = None

    def change(self, text):
        for old, new in self.changes:
            text = text.replace(old, new)
        return text


def load():
    found = []
    for path in sorted((ROOT / "tests/mutants").glob("*.toml")):
        with path.open("rb") as f:
            found += [Mutant(**m) for m in tomllib.load(f)["mutant"]]
    return found


def complaints(mutants):
    """What is wrong with the list itself."""
    seen = set()
    for m in mutants:
        path = ROOT / m.file
        text = path.read_text() if path.is_file() else ""
        for old, new in m.changes:
            if text.count(old) != 1 or old == new:
                yield f"{m.name}: stands {text.count(old)} times in {m.file}, expected once: {old[:60]!r}"
        if m.name in seen:
            yield f"{m.name}: two of this name"
        seen.add(m.name)


def copy_tree():
    """The files of the tree as they are now; what has not changed keeps its time, so that it is not built again."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, (n.decode() for n in names)):
        source, target = ROOT / name, TREE / name
        if not source.is_file():
            continue
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    for venv in ROOT.glob(".venv*"):  # without its packages a test fails whatever it tests
        if not (TREE / venv.name).exists():
            (TREE / venv.name).symlink_to(venv)


def configure():
    if not (BUILD / "build.ninja").is_file():
        subprocess.run([MESON, "setup", BUILD, TREE], check=True, capture_output=True)
    subprocess.run(["ninja", "-C", BUILD, "build.ninja"], check=True, capture_output=True)
    files = {t["id"]: t["filename"] for t in introspect("--targets")}
    tests = {t["name"]: t for t in introspect("--tests")}
    for test in tests.values():
        test["takes"] = [file for target in test["depends"] for file in files.get(target, [])]
    return tests


def introspect(what):
    told = subprocess.run([MESON, "introspect", what, BUILD], capture_output=True, text=True, check=True)
    return json.loads(told.stdout)


def run(mutant, test):
    """How it ended, and what there is to say about it."""
    # A test may be given another program to run, or the whole build to find its programs in.
    programs = [pathlib.Path(word) for word in test["cmd"] + test["takes"]]
    targets = [str(p.relative_to(BUILD)) for p in programs if p.is_relative_to(BUILD) and p != BUILD]
    build = subprocess.run(["ninja", "-C", BUILD, *targets], capture_output=True, text=True, check=False)
    if build.returncode:
        return "does not build", build.stdout[-600:]
    own = 2 if test["cmd"][1:] and test["cmd"][1].endswith(".py") else 1  # an interpreter, and what it runs
    command = [*test["cmd"][:own], *mutant.args] if mutant.args is not None else test["cmd"]
    env = {**os.environ, **test.get("env", {})}
    try:
        done = subprocess.run(command, cwd=test.get("workdir") or BUILD, env=env, capture_output=True, text=True,
                              errors="replace", timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return "caught", f"no end after {LIMIT_S} s"
    if done.returncode == 0:
        return "SURVIVED", done.stdout[-300:]
    lines = (done.stdout + done.stderr).splitlines()
    said = [line for line in lines if any(word in line for word in ("violation:", "FAILED", "ERROR"))]
    return "caught", said[0][:150] if said else f"exit status {done.returncode}"


def try_one(mutant, tests):
    if mutant.test not in tests:
        return "FAILED", f"there is no test {mutant.test}"
    path = TREE / mutant.file
    sound = path.read_text()
    path.write_text(mutant.change(sound))
    try:
        return run(mutant, tests[mutant.test])
    finally:
        path.write_text(sound)


def means(name, mutant):
    return name in mutant.name or name in mutant.test


def main(argv):
    if wrong := [a for a in argv if a.startswith("-") and a not in ("--list", "--check")]:
        print(f"unknown option {wrong[0]}\n{__doc__}", file=sys.stderr)
        return 2
    names = [a for a in argv if not a.startswith("--")]
    mutants = load()
    wrong = list(complaints(mutants))
    print("\n".join(wrong), end="\n" if wrong else "")
    chosen = [m for m in mutants if not names or any(means(n, m) for n in names)]
    unknown = [n for n in names if not any(means(n, m) for m in mutants)]
    for name in unknown:
        print(f"failed: {name}: no such mutant or test; ./dev mutants --list shows all", flush=True)
    wrong += unknown
    if "--list" in argv:
        for m in chosen:
            print(f"{m.test:24} {m.name}")
    if "--check" in argv or "--list" in argv:
        return 1 if wrong else 0
    tests, caught = {}, 0
    if chosen:
        copy_tree()
        tests = configure()
    for mutant in chosen:
        start = time.time()
        how, what = try_one(mutant, tests)
        caught += how == "caught"
        print(f"{how}: {mutant.name}, by {mutant.test} in {time.time() - start:.0f} s: {what.strip()}", flush=True)
    print(f"{caught} passed, {len(chosen) - caught + len(wrong)} failed")
    return 0 if caught == len(chosen) and chosen and not wrong else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
