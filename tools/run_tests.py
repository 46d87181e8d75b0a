#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the tests of one or more build directories and counts what passed: the work behind ./dev test.

    tools/run_tests.py [--list] BUILD[:KIND] ... [-- NAME ...]

KIND is plain, clang, valgrind, coverage, asan or tsan. NAME is a test, a suite, or a pattern such as "history*".
Sanitizer builds leave out what would only run again (suites structure, headers, docs, install, model, bench), and what
is too big for them (large); the one for threads leaves out what is about processes or single threads (no-tsan). The
one for coverage runs what is not repeated for its own sake, and says afterwards which lines of src/ that ran. A build
that fails counts as one failed test. The last line is "N passed, N failed".
"""

import contextlib
import dataclasses
import fcntl
import fnmatch
import itertools
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

MESON = os.environ.get("MESON") or ("/usr/bin/meson" if os.path.exists("/usr/bin/meson") else "meson")
WHOLE = {"plain", "clang", "valgrind"}
COUNTED = {"unit", "sim", "fuzz", "integration", "cli"}
COVERED = ["--list", "--lines", "98", "--branches", "88"]
ASKED = {"rows", "slurm"}  # parts of what runs elsewhere; what needs Slurm
ONCE = {"structure", "headers", "docs", "install", "large", "model", "bench"}
VALGRIND = "valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite"
SLOWER = {"plain": 1, "clang": 1, "valgrind": 30, "coverage": 3, "asan": 3, "tsan": 8}  # how much longer one may take
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}
PASSED = {"OK", "EXPECTEDFAIL"}
TELLING = re.compile(r"^\[ +(ERROR|LINE|FAILED) +\]|[Ff]ail|[Ee]rror|SUMMARY|WARNING: Thread|^ +status |!=|no space")
TOLD = 30


@dataclasses.dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0


def introspect(build, what):
    listing = subprocess.run([MESON, "introspect", f"--{what}", build], capture_output=True, text=True, check=True)
    return json.loads(listing.stdout)


def tests_of(build, kind):
    """Names of the tests of a build with their suites."""
    found = {}
    for test in introspect(build, "tests"):
        suites = {suite.split(":")[-1] for suite in test["suite"]}
        left_out = ONCE | ({"no-tsan"} if kind == "tsan" else set())
        counted = kind != "coverage" or suites & COUNTED
        if counted and (kind in WHOLE or not suites & left_out):
            found[test["name"]] = suites
    return found


def select(tests, names):
    """The tests that the names mean (without names all but those that want to be asked for), and the names that mean
    none."""
    if not names:
        return sorted(t for t, suites in tests.items() if not suites & ASKED), []
    chosen, unknown = set(), []
    for name in names:
        meant = {t for t, suites in tests.items() if name in suites or fnmatch.fnmatchcase(t, name)}
        chosen |= meant
        if not meant:
            unknown.append(name)
    return sorted(chosen), unknown


def without_address_randomisation():
    """A prefix that switches it off where that is allowed: the sanitizers' shadow memory does not fit every layout."""
    prefix = ["setarch", platform.machine(), "-R"]
    try:
        return prefix if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0 else []
    except OSError:
        return []


def telling_lines(test):
    """The lines of a failed test's output that say what failed; all is in the log that meson names."""
    said = (test.get("stdout", "") + "\n" + test.get("stderr", "")).splitlines()
    told = [line for line in said if TELLING.search(line) and not line.startswith(("[ RUN", "[       OK"))]
    return told[:TOLD] or said[-TOLD:]


@contextlib.contextmanager
def log_of_its_own(build):
    """A name for meson's logs that no other run in this directory has meanwhile: the first that is free."""
    logs = pathlib.Path(build) / "meson-logs"
    logs.mkdir(exist_ok=True)
    for n in itertools.count(1):
        name = "testlog" if n == 1 else f"testlog{n}"
        with (logs / f"{name}.lock").open("w", encoding="utf-8") as lock:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield name
                return


def run(build, kind, chosen, count):
    with log_of_its_own(build) as name:
        log = pathlib.Path(build) / "meson-logs" / f"{name}{'-valgrind' if kind == 'valgrind' else ''}.json"
        log.unlink(missing_ok=True)
        run_into(build, kind, chosen, name)
        if log.is_file():
            tell(build, kind, chosen, log, count)
        else:
            print(f"{build}: meson test left no log")
            count.failed += 1


def run_into(build, kind, chosen, name):
    command = [MESON, "test", "-C", build, "--no-rebuild", "--print-errorlogs", "--logbase", name]
    command += ["--timeout-multiplier", str(SLOWER[kind])]
    if kind == "valgrind":
        command += ["--wrapper", VALGRIND]
    env = {**SANITIZER_OPTIONS, **os.environ}
    if kind == "coverage":  # the others take a ring where there is one: so every test runs on both
        env.setdefault("BW_TEST_IO", "threads")
    prefix = without_address_randomisation() if kind in ("asan", "tsan") else []
    subprocess.run(prefix + command + chosen, env=env, check=False)


def tell(build, kind, chosen, log, count):
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
    for test in lines:
        if test["result"] in PASSED:
            count.passed += 1
        elif test["result"] == "SKIP":
            count.skipped += 1
            print(f"skipped: {test['name']}")
        else:
            count.failed += 1
            print(f"failed ({kind}): {test['name']}: {test['result']}")
            for line in telling_lines(test):
                print("    " + line[:400])
    if len(lines) < len(chosen):
        print(f"{build}: {len(chosen)} tests were to run, {len(lines)} did")
        count.failed += len(chosen) - len(lines)


def files_for(build, chosen):
    """What of the build the chosen tests use: programs that they run or are handed, and what they say they need."""
    root = pathlib.Path(build).resolve()
    made = {target["id"]: target["filename"] for target in introspect(build, "targets")}
    every = {name for names in made.values() for name in names}
    used = set()
    for test in introspect(build, "tests"):
        if test["name"] in chosen:
            used |= every & set(test["cmd"])
            used |= {name for target in test["depends"] for name in made[target]}
    return sorted(str(pathlib.Path(name).relative_to(root)) for name in used)


def ninja(build, *files):
    return subprocess.run(["ninja", "-C", build, "--quiet", *files], check=False).returncode == 0


def make(build, kind, names):
    """Builds, one run at a time, by the lock that ./dev takes: two in one directory write over each other's files. What
    runs some of the tests only builds no more than these take. The chosen tests, and names that mean none; None if
    there is nothing to run them with."""
    with pathlib.Path(__file__).resolve().parent.with_name("dev").open(encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ninja(build, "build.ninja"):
            return None
        chosen, unknown = select(tests_of(build, kind), names)
        files = files_for(build, chosen) if chosen and kind not in WHOLE else []
        return (chosen, unknown) if not chosen or ninja(build, *files) else None


def forget_counts(build):
    for path in pathlib.Path(build).rglob("*.gcda"):
        path.unlink()


def look_at_counts(build, count):
    """What of src/ the tests have run. It counts as a test, unless only some have: a share that has fallen is a
    failure."""
    command = [sys.executable, str(pathlib.Path(__file__).with_name("coverage.py")), *COVERED, build]
    if count is None:
        subprocess.run([*command[:2], build], check=False)
    elif subprocess.run(command, check=False).returncode:
        print("failed (coverage): less was run than must be")
        count.failed += 1
    else:
        count.passed += 1


def run_counted(build, chosen, whole, count):
    """One such run at a time, for all of them count in the same files."""
    with (pathlib.Path(build) / "counts.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        forget_counts(build)
        if chosen:
            run(build, "coverage", chosen, count)
        look_at_counts(build, count if whole else None)


def main(argv):
    listing = argv[:1] == ["--list"]
    argv = argv[listing:]
    at = argv.index("--") if "--" in argv else len(argv)
    builds = [(b.split(":") + ["plain"])[:2] for b in argv[:at]]
    names = argv[at + 1 :]
    if listing:
        for name, suites in sorted(tests_of(*builds[0]).items()):
            print(f"{name:32} {' '.join(sorted(suites))}")
        return 0
    count = Count()
    for build, kind in builds:
        print(f"== {kind}: {build}", flush=True)
        made = make(build, kind, names)
        if made is None:
            print(f"failed ({kind}): the build")
            count.failed += 1
            continue
        chosen, unknown = made
        for name in unknown:
            print(f"failed ({kind}): {name}: no such test or suite; ./dev test --list shows all")
            count.failed += 1
        if kind == "coverage":
            run_counted(build, chosen, not names, count)
        elif chosen:
            run(build, kind, chosen, count)
    if count.skipped:
        print(f"{count.skipped} skipped")
    print(f"{count.passed} passed, {count.failed} failed", flush=True)
    return 1 if count.failed or not count.passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
