#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden tests of the command.

    tests/cli/run.py --command BREAKWATER [--kind fake|real] [--update] [CASE...]

A case is a shell script cases/KIND/NAME.sh with, beside it,

    NAME.stdout  what it prints to standard output
    NAME.stderr  what it prints to standard error; none: nothing
    NAME.exit    its exit code; none: 0

In .stdout and .stderr "*" stands for any text within a line, and a line "..." for any number of lines. A script runs
under "bash -u" in an empty folder, with the command in front of PATH and $TOOLS naming this folder. In the output of
the real command, what differs from run to run is replaced first (see settled). Kind "fake" runs the
command with a made-up library behind it (fake_api.c), kind "real" the command that is installed.

--update rewrites the expectations that are not met; look at the difference before it is committed.
The last line is "N passed, N failed"; exit code 77 when there is no command.
"""
import argparse
import difflib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT_S = 120


def fits(pattern, text):
    """Whether text is what the pattern says."""
    parts = []
    for line in pattern.splitlines(keepends=True):
        if line.rstrip("\n") == "...":
            parts.append("(?:.*\n)*")
        else:
            parts.append(".*".join(re.escape(piece) for piece in line.split("*")))
    return re.fullmatch("".join(parts), text) is not None


def settled(text):
    """Output of the real command without what differs from run to run: nonces, writers, hashes, times, ages."""
    for pattern, instead in ((r"(?<=\d{20}\.)(\d+)-[0-9a-f]{8}\.", r"\1-nnnnnnnn."),
                             (r"(?<=layouts/)(\d+)-[0-9a-f]{8}", r"\1-nnnnnnnn"),
                             (r"\b[0-9a-f]{32}\b", "h" * 32), (r"\b[0-9a-f]{16}\b", "h" * 16),
                             (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "YYYY-MM-DD hh:mm:ss"),
                             (r" +\d+ (?:s|min)(?=  )", "  AGE"), (r" +AGE(?=  )", "  AGE"),
                             (r"\bimport-\d{13}-\d+-h{16}\b", "import-LAUNCH"), (r"\(\d+ (?:s|min) ago\)", "(AGE ago)"),
                             (r"\bHOST +NOTE\b", "HOST  NOTE"), (rf"\b{re.escape(socket.gethostname())} +", "HOST  "),
                             (r"\b(rollback-\d+)-\d{13}\b", r"\1-TIME")):
        text = re.sub(pattern, instead, text)
    return text


def read(path, default):
    return path.read_text(encoding="utf-8") if path.is_file() else default


def differences(want, got, name):
    lines = difflib.unified_diff(want.splitlines(), got.splitlines(), f"{name}, expected", f"{name}, found",
                                 lineterm="")
    return "\n".join(lines)


def execute(script, command):
    """Exit code, standard output and standard error of a case. Scratch paths come as $PWD."""
    with tempfile.TemporaryDirectory(prefix="breakwater-cli-") as scratch:
        place = pathlib.Path(scratch).resolve()
        (place / "bin").mkdir()
        (place / "bin/breakwater").symlink_to(command)
        (place / "work").mkdir()
        env = {k: v for k, v in os.environ.items() if not k.startswith("BREAKWATER_")}
        env.update(PATH=f"{place / 'bin'}:{env.get('PATH', '/usr/bin:/bin')}", TOOLS=str(HERE), PYTHON=sys.executable,
                   LC_ALL="C.UTF-8", SCHEMA=str(HERE.parent.parent / "doc/schema"))
        done = subprocess.run(["bash", "-u", str(script)], cwd=place / "work", env=env, capture_output=True,
                              check=False, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
        return done.returncode, *(out.decode("utf-8", "backslashreplace").replace(str(place / "work"), "$PWD")
                                  for out in (done.stdout, done.stderr))


def run_case(script, command, update):
    """Problems of a case, an empty list if there is none."""
    code, out, err = execute(script, command)
    if script.parent.name == "real":
        out, err = settled(out), settled(err)
    problems = []
    expected_code = int(read(script.with_suffix(".exit"), "0"))
    if code != expected_code:
        problems.append(f"exit code {code}, expected {expected_code}")
        if update:
            write_or_remove(script.with_suffix(".exit"), f"{code}\n" if code else "")
    for suffix, got in ((".stdout", out), (".stderr", err)):
        want = read(script.with_suffix(suffix), "")
        if fits(want, got):
            continue
        problems.append(differences(want, got, suffix[1:]))
        if update:
            write_or_remove(script.with_suffix(suffix), got)
    if problems and update:
        print(f"updated {script.name}")
        return []
    if problems:
        problems.append(f"it printed:\n{out}{err}")
    return problems


def write_or_remove(path, text):
    if text:
        path.write_text(text, encoding="utf-8")
    else:
        path.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description="golden tests of the command")
    parser.add_argument("--command", required=True, help="the built command")
    parser.add_argument("--kind", choices=["fake", "real"], default="real")
    parser.add_argument("--update", action="store_true", help="rewrite expectations that are not met")
    parser.add_argument("cases", nargs="*", help="names of cases; none: all")
    options = parser.parse_args()
    command = shutil.which(options.command)
    if command is None:
        print(f"no command {options.command}")
        return 77
    scripts = sorted((HERE / "cases" / options.kind).glob("*.sh"))
    chosen = [s for s in scripts if not options.cases or s.stem in options.cases]
    if not chosen:
        sys.exit(f"no case of kind {options.kind} is named {' or '.join(options.cases)}")
    failed = 0
    for script in chosen:
        problems = run_case(script, pathlib.Path(command).resolve(), options.update)
        print(f"{'FAIL' if problems else 'ok  '} {options.kind}/{script.stem}")
        if problems:
            failed += 1
            print("\n".join(problems))
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
