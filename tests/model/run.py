#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the models of the protocol with spin.

    tests/model/run.py [--large] [--list] [NAME ...]

Every line of the table below is one run: a model, its sizes, and what must come out. "holds": no reachable state breaks
an assertion, and all states were seen. "found": a guard of the protocol is taken out, and spin must find what the guard
is for, or the model would prove nothing. --large adds the runs that take minutes and gigabytes. The last line is
"N passed, N failed".
"""

import dataclasses
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


SMALL, BIG = "STEPS=2 ATTEMPTS=2", "STEPS=3 ATTEMPTS=2"
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
    Run("history", "found", f"{SMALL} NO_COMPLETENESS_CHECK"),
    Run("history", "found", f"{SMALL} NO_GAP_READ"),
    Run("history", "found", f"{SMALL} NO_NEWEST_CHECK"),
    Run("history", "found", f"{SMALL} COORDINATORS=2 NO_COMPARE_AND_SWAP"),
    Run("history", "found", f"{BIG} NO_REFERENCE_CHECK"),
    Run("history", "found", f"{BIG} NO_REF_CHECK"),
    # The archive behind the authority.
    Run("archive", "holds", "ENTRIES=4"),
    Run("archive", "found", "NO_AHEAD"),
    Run("archive", "found", "ENTRY_FIRST"),
    Run("archive", "holds", "ENTRIES=5", large=True),
]

COMPILE = ["gcc", "-w", "-O2", "-DVECTORSZ=2048", "-DCOLLAPSE", "-DSAFETY", "-o", "pan", "pan.c"]


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


def main(argv):
    large, listing = "--large" in argv, "--list" in argv
    names = [a for a in argv if not a.startswith("--")]
    runs = [r for r in RUNS if (large or not r.large) and (not names or any(n in r.name for n in names))]
    if listing:
        print("\n".join(f"{r.want:6} {r.name}" for r in runs))
        return 0
    failed = 0
    for run in runs:
        with tempfile.TemporaryDirectory() as directory:
            start = time.time()
            got, facts = check(run, pathlib.Path(directory))
        good = got == run.want
        failed += not good
        print(f"{'ok' if good else 'FAILED'}: {run.name}: {got} ({facts}, {time.time() - start:.1f} s)", flush=True)
    print(f"{len(runs) - failed} passed, {failed} failed")
    return 1 if failed or not runs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
