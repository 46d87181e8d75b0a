#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs fuzz targets and shows how far they reach: the work behind ./dev fuzz.

    tools/fuzz.py SECONDS RUNS TARGET ...

Each target runs for SECONDS (0: no limit) or RUNS inputs (-1: no limit), whichever is over first. It begins with its
corpus in fuzz/corpus/ and what earlier runs have found, in build-fuzz/corpus/. At the end stands a row per target:
inputs tried, libFuzzer's edges and features, and how many of the regions and lines its corpus covers of the sources
that the comment at the top of the target names behind "Reaches". The exit status is 0 when no target has failed.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-fuzz"
COVERAGE = ROOT / "build-fuzz-coverage"


# Inputs of `store` say what is done to it; a run takes long, and has many features to account for.
OPTIONS = {"store": ["-max_len=160", "-len_control=0", "-entropic=0"]}


def build(directory, targets):
    subprocess.run(["ninja", "-C", directory, "--quiet", *[f"fuzz/{t}_fuzz" for t in targets]], check=True)


def folders(target):
    own = BUILD / "corpus" / target
    own.mkdir(parents=True, exist_ok=True)
    kept = ROOT / "fuzz/corpus" / target
    return [str(own)] + [str(kept)] * kept.is_dir()


def run(target, seconds, runs):
    """How it ended, and libFuzzer's last words: inputs tried, edges, features."""
    command = [str(BUILD / "fuzz" / f"{target}_fuzz"), f"-max_total_time={seconds}", f"-runs={runs}", "-timeout=20",
               "-rss_limit_mb=4096", "-print_final_stats=1", f"-artifact_prefix={BUILD}/{target}-",
               *OPTIONS.get(target, []), *folders(target)]
    tried, edges, features = 0, 0, 0
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as fuzzer:
        for line in fuzzer.stderr:
            if found := re.match(r"#(\d+)\s.*cov: (\d+) ft: (\d+)", line):
                tried, edges, features = (int(g) for g in found.groups())
            if found := re.match(r"stat::number_of_executed_units: (\d+)", line):
                tried = int(found.group(1))
            if not re.match(r"#\d+\s+(NEW|REDUCE|RELOAD)", line):
                print(line, end="", flush=True)
    return fuzzer.returncode, tried, edges, features


def reached(target):
    """Regions and lines of the sources that it is for, in percent."""
    sources = re.findall(r"src/\S+\.c\b", (ROOT / "fuzz" / f"{target}_fuzz.c").read_text().split("#include")[0])
    program, raw = COVERAGE / "fuzz" / f"{target}_fuzz", COVERAGE / f"{target}.profraw"
    subprocess.run([program, "-runs=0", *folders(target)], check=True, capture_output=True,
                   env={**os.environ, "LLVM_PROFILE_FILE": str(raw)})
    merged = raw.with_suffix(".profdata")
    subprocess.run([tool("llvm-profdata"), "merge", "-o", merged, raw], check=True)
    report = subprocess.run([tool("llvm-cov"), "export", "-summary-only", f"-instr-profile={merged}", program],
                            check=True, capture_output=True, text=True)
    files = json.loads(report.stdout)["data"][0]["files"]
    files = [f["summary"] for f in files if f["filename"].endswith(tuple(sources))]
    return [100 * sum(f[what]["covered"] for f in files) / sum(f[what]["count"] for f in files)
            for what in ("regions", "lines")]


def tool(name):
    return shutil.which(name) or f"{name}-14"


def main(argv):
    seconds, runs, targets = int(argv[0]), int(argv[1]), [t.removesuffix("_fuzz") for t in argv[2:]]
    build(BUILD, targets)
    build(COVERAGE, targets)
    rows, failed = [], 0
    for target in targets:
        print(f"== {target}", flush=True)
        code, tried, edges, features = run(target, seconds, runs)
        failed += code != 0
        rows.append((target, tried, edges, features, *reached(target), "" if code == 0 else "  FAILED"))
    print(f"{'target':14}{'executions':>12}{'edges':>8}{'features':>10}{'regions':>10}{'lines':>9}")
    for row in rows:
        print("{:14}{:12}{:8}{:10}{:9.1f}%{:8.1f}%{}".format(*row))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
