#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmark of PyTorch's states in small, with the ways that need nothing but PyTorch, and checks its lines of
JSON. How fast anything is decides nothing here.

    run_test.py BUILD
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TREE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests/lib"))
import venv_python  # noqa: E402

venv_python.enter("torch")
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
FIGURE = {"name", "ratio", "low", "high", "target", "at_least", "met", "against", "bytes", "pairs"}
TIMES = {"seconds", "against_seconds"}


def bench(*args):
    return subprocess.run([TREE / "bench/run.sh", "pytorch", *map(str, args)], capture_output=True, text=True,
                          check=False, env={**os.environ, "BUILD": str(BUILD), "BENCH_PYTHON": sys.executable})


class Bench(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir=os.environ.get("BW_TEST_DIR"))
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def test_it_measures_all_that_is_installed_and_cleans_up(self):
        done = bench(self.dir / "d", "--mib", 1, "--rounds", 1, "--json", self.dir / "out.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        machine, *lines = [json.loads(line) for line in (self.dir / "out.json").read_text("utf-8").splitlines()]
        self.assertEqual((machine["name"], machine["rounds"]), ("machine", 1))
        self.assertGreaterEqual(machine["bytes"], 1 << 20)
        figures = [line for line in lines if not line["name"].startswith("left out: ")]
        for line in figures:
            self.assertEqual(set(line) - TIMES, FIGURE)
            self.assertGreaterEqual(line["ratio"], 0)
            if line["target"] is not None:
                self.assertEqual(line["met"], line["low"] <= line["target"])
        told = {(line["name"], line["against"]): line["target"] for line in figures}
        self.assertEqual(len(told), len(figures))
        for ours in ("Breakwater, copy", "Breakwater, cow"):
            self.assertEqual(told["stall, " + ours, "DCP async_save, thread"], 0.2)
            self.assertEqual(told["until durable, " + ours, "DCP save, sync_files"], 0.5)
            self.assertIn(("step beside a save, " + ours, "DCP async_save, process"), told)
        for heat in ("cold", "warm"):
            self.assertEqual(told["load, " + heat, "DCP save, sync_files"], 0.5)
            targets = {t for (name, _), t in told.items() if name == "load, " + heat and t is not None}
            self.assertIn(targets, ({0.5, 1.0}, {0.5}))  # the fastest of the others may be DCP
        for line in lines:
            if line not in figures:
                self.assertIn(line["lacks"], done.stdout)
        self.assertFalse((self.dir / "d").exists())

    def test_what_is_not_understood_is_refused(self):
        for args in [(), ("--mib", 1), (self.dir / "d", "--rounds", 0), (self.dir / "d", "--only", "speed")]:
            done = bench(*args)
            self.assertEqual(done.returncode, 2, args)
            self.assertNotEqual(done.stderr, "")
        self.assertEqual(list(self.dir.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
