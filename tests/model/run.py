#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the models of the protocol with spin.

    tests/model/run.py [--large] [--list] [--check] [NAME ...]

Every line of the table below is one run: a model, its sizes, and what must come out. "holds": no reachable state breaks
an assertion, and all states were seen. "found": a guard of the protocol is taken out, and spin must find what the guard
is for, or the model would prove nothing. --large adds the runs that take minutes and gigabytes. --check only looks
whether each switch of a model is in a run that is for it, and each define of a run in its model. The last line is
"N passed, N failed".
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Run:
    model: str
    want: str  # holds, found
    defines: str
    large: bool = False

    @property
    def name(self):
        return f"{self.model} {self.defines}".strip()


SMALL, TRIES, LATER = "STEPS=2 ATTEMPTS=2", "STEPS=1 ATTEMPTS=1 TRIES=2", "STEPS=3 ATTEMPTS=2 BEGUN"
RUNS = [
    # The log: create-once as compare-and-swap, trimming, repair.
    Run("log", "holds", "DECIDERS=2 COMMITS=3 KEPT=2"),
    Run("log", "holds", "DECIDERS=2 COMMITS=2 KEPT=3 REPAIRERS=1"),
    Run("log", "found", "DECIDERS=2 COMMITS=3 KEPT=2 NO_STRAY_CHECK"),
    Run("log", "found", "DECIDERS=2 COMMITS=3 KEPT=2 STRAY_OFF_BY_ONE"),
    Run("log", "found", "DECIDERS=2 COMMITS=3 KEPT=2 NO_LISTING_AFTER_READING"),
    Run("log", "found", "DECIDERS=2 COMMITS=2 KEPT=3 REPAIRERS=1 NO_END_OF_ERA"),
    Run("log", "holds", "DECIDERS=2 COMMITS=2 KEPT=3 REPAIRERS=2", large=True),
    Run("log", "holds", "DECIDERS=3 COMMITS=2 KEPT=2", large=True),
    # What the history decides, and the data.
    Run("history", "holds", SMALL),
    Run("history", "holds", "STEPS=2 ATTEMPTS=1 TRIES=2"),
    Run("history", "holds", LATER),
    Run("history", "holds", f"{SMALL} ROLLBACK"),
    Run("history", "holds", f"{SMALL} DAMAGE"),
    Run("history", "holds", "STEPS=2 ATTEMPTS=1 GROUPS=2 READER"),
    Run("history", "holds", "STEPS=1 ATTEMPTS=2 GROUPS=2 NODE_LOSS"),
    Run("history", "found", f"{SMALL} NO_COMPLETENESS_CHECK"),
    Run("history", "found", f"{SMALL} NO_GAP_READ"),
    Run("history", "found", f"{SMALL} NO_NEWEST_CHECK"),
    Run("history", "found", f"{SMALL} NO_FLOOR"),
    Run("history", "found", f"{SMALL} COORDINATORS=2 NO_COMPARE_AND_SWAP"),
    Run("history", "found", f"{TRIES} NO_TRY_CHECK"),
    Run("history", "found", f"{TRIES} NO_AHEAD"),
    Run("history", "found", f"{LATER} NO_REFERENCE_CHECK"),
    Run("history", "found", f"{LATER} NO_REF_CHECK"),
    Run("history", "found", f"{LATER} NO_REF_OF_FROM"),
    Run("history", "found", "STEPS=2 ATTEMPTS=1 GROUPS=2 READER NO_RESTART"),
    Run("history", "holds", f"{SMALL} READER", large=True),
    Run("history", "holds", "STEPS=1 ATTEMPTS=2 TRIES=2", large=True),
    Run("history", "holds", f"{LATER} ROLLBACK", large=True),
    Run("history", "holds", "STEPS=3 ATTEMPTS=2", large=True),
    # A group's objects on two tiers.
    Run("group", "holds", "DRAINS=2"),
    Run("group", "holds", "DRAINS=1 POWER_CUT"),
    Run("group", "found", "DRAINS=1 NO_SYNC_OF_DATA"),
    Run("group", "found", "DRAINS=1 NO_SENT_CHECK"),
    Run("group", "found", "DRAINS=1 SUMMARY_FIRST"),
    Run("group", "found", "DRAINS=2 NO_SYNC_OF_PACKS"),
    Run("group", "found", "DRAINS=2 NO_SYNC_OF_GROUPS"),
    Run("group", "found", "DRAINS=1 NO_SYNC_BEFORE_COMMIT"),
    Run("group", "found", "DRAINS=1 NO_COMMITTED_CHECK"),
    Run("group", "found", "DRAINS=1 DATA_FIRST"),
    Run("group", "found", "DRAINS=1 POWER_CUT NO_SYNC_OF_EVICTION"),
    Run("group", "found", "DRAINS=1 NO_DEAD_CHECK"),
    Run("group", "holds", "DRAINS=2 POWER_CUT", large=True),
    # What a rank is told that waits for others.
    Run("follow", "holds", "NAMES=5"),
    Run("follow", "holds", "NAMES=4 POWER_CUT"),
    Run("follow", "found", "NAMES=5 NO_GAP_READ"),
    Run("follow", "found", "NAMES=5 NO_CHAIN"),
    Run("follow", "found", "NAMES=5 NO_HOLES"),
    Run("follow", "found", "NAMES=4 POWER_CUT NO_SYNC"),
    Run("follow", "holds", "NAMES=6 KEPT=3", large=True),
    Run("follow", "holds", "NAMES=6 POWER_CUT", large=True),
    Run("follow", "holds", "NAMES=5 DECIDERS=3", large=True),
    # A launch, and processes that are not of it.
    Run("launch", "holds", "LAUNCHES=2 TWICE SWEEP"),
    Run("launch", "holds", "LAUNCHES=2 LATER SWEEP ONE_JOB"),
    Run("launch", "holds", "LAUNCHES=2 SWEEP SWEEP_BEATEN"),
    Run("launch", "holds", "LAUNCHES=2 POWER_CUT"),
    Run("launch", "holds", "LAUNCHES=3"),
    Run("launch", "found", "LAUNCHES=2 TWICE NO_WRITER_CHECK"),
    Run("launch", "found", "LAUNCHES=2 LATER SWEEP ONE_JOB NO_LAUNCH_ID_CHECK"),
    Run("launch", "found", "LAUNCHES=3 NO_SEEN_CHECK"),
    Run("launch", "found", "LAUNCHES=3 NO_SUPERSEDED_CHECK"),
    Run("launch", "found", "LAUNCHES=2 TWICE SWEEP NO_CURRENT_CHECK"),
    Run("launch", "found", "LAUNCHES=2 SWEEP SWEEP_BEATEN NO_BEATEN_CHECK"),
    Run("launch", "found", "LAUNCHES=2 POWER_CUT NO_SYNC"),
    Run("launch", "holds", "LAUNCHES=3 SWEEP SWEEP_BEATEN", large=True),
    Run("launch", "holds", "LAUNCHES=3 ONE_JOB POWER_CUT", large=True),
    # The archive behind the authority.
    Run("archive", "holds", "ENTRIES=4"),
    Run("archive", "holds", "ENTRIES=3 LIFE"),
    Run("archive", "found", "ENTRIES=4 NO_AHEAD"),
    Run("archive", "found", "ENTRIES=4 ENTRY_FIRST"),
    Run("archive", "found", "ENTRIES=4 NO_RETIRED_CHECK"),
    Run("archive", "found", "ENTRIES=3 LIFE NO_LOG_CHECK"),
    Run("archive", "holds", "ENTRIES=4 LIFE", large=True),
    Run("archive", "holds", "ENTRIES=5", large=True),
]

COMPILE = ["gcc", "-w", "-O1", "-DVECTORSZ=2048", "-DCOLLAPSE", "-DSAFETY", "-o", "pan", "pan.c"]


def check(run, directory):
    """What came out, and what there is to say about it."""
    defines = ["-D" + d for d in run.defines.split()]
    model = str(HERE / (run.model + ".pml"))
    spin = subprocess.run(["spin", *defines, "-a", model], cwd=directory, capture_output=True, text=True, check=False)
    if spin.returncode or not (directory / "pan.c").is_file():
        return "error", (spin.stdout + spin.stderr).strip()[-400:]
    subprocess.run([*COMPILE[:2], f"-DMEMLIM={16000 if run.large else 4000}", *COMPILE[2:]], cwd=directory, check=True)
    bits = 28 if run.large else 24
    search = ["./pan", "-m2000000", f"-w{bits}", "-n"]
    pan = subprocess.run(search, cwd=directory, capture_output=True, text=True, check=False)
    states = re.search(r"(\d[\d.e+]*) states, stored", pan.stdout)
    facts = f"{int(float(states.group(1))) if states else 0:,} states"
    broken = re.search(r"pan:1: (assertion violated .*?)(?: \(at depth \d+\))?$", pan.stdout, re.M)
    if broken:
        return "found", f"{facts}, {broken.group(1)[:160]}"
    incomplete = "Search not completed" in pan.stdout or "max search depth too small" in pan.stdout
    if "errors: 0" not in pan.stdout or incomplete:
        return "error", (facts + ": " + pan.stdout[-300:] + pan.stderr[-300:]).replace("\n", " ")
    return "holds", facts


def timed(run):
    with tempfile.TemporaryDirectory() as directory:
        start = time.time()
        return *check(run, pathlib.Path(directory)), time.time() - start


def complaints():
    """What a model has and no run tries, and what a run defines and its model does not know."""
    for path in sorted(HERE.glob("*.pml")):
        text = path.read_text()
        sizes = set(re.findall(r"#ifndef (\w+)\n#define \1\b", text))
        switches = set(re.findall(r"^#ifn?def (\w+)", text, re.M)) - sizes
        runs = [r for r in RUNS if r.model == path.stem]
        tried = {want: {d.split("=")[0] for r in runs if r.want == want for d in r.defines.split()}
                 for want in ("holds", "found")}
        for name in sorted(switches - tried["holds"] - tried["found"]):
            yield f"{path.name}: no run has {name}"
        for name in sorted(s for s in switches - tried["found"] if s.startswith("NO_")):
            yield f"{path.name}: {name} takes a guard out, and no run expects that to be found"
        for name in sorted((tried["holds"] | tried["found"]) - switches - sizes):
            yield f"{path.name}: a run defines {name}, which it does not know"
        if not any(r.want == "holds" and not r.large for r in runs):
            yield f"{path.name}: no run of the suite expects it to hold"


def unknown(names, large):
    """What is said of each name that is part of no run's."""
    for name in names:
        meant = [r for r in RUNS if name in r.name]
        if not meant:
            yield f"{name}: no such run; ./dev model --list shows all"
        elif not large and all(r.large for r in meant):
            yield f"{name}: only large runs; ./dev model --large runs them"


def main(argv):
    if wrong := [a for a in argv if a.startswith("-") and a not in ("--large", "--list", "--check")]:
        print(f"unknown option {wrong[0]}\n{__doc__}", file=sys.stderr)
        return 2
    if "--check" in argv:
        wrong = list(complaints())
        print("\n".join(wrong), end="\n" if wrong else "")
        return 1 if wrong else 0
    large, listing = "--large" in argv, "--list" in argv
    names = [a for a in argv if not a.startswith("--")]
    missing = list(unknown(names, large))
    for line in missing:
        print(f"failed: {line}", file=sys.stderr if listing else sys.stdout)
    runs = [r for r in RUNS if (large or not r.large) and (not names or any(n in r.name for n in names))]
    if listing:
        for r in runs:
            print(f"{r.want:6} {r.name}")
        return 1 if missing else 0
    failed = 0
    workers = 1 if large else os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for run, (got, facts, seconds) in zip(runs, pool.map(timed, runs)):
            good = got == run.want
            failed += not good
            print(f"{'ok' if good else 'FAILED'}: {run.name}: {got} ({facts}, {seconds:.1f} s)", flush=True)
    failed += len(missing)
    print(f"{len(runs) + len(missing) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
