#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks in small and checks that their figures are whole: lines of JSON whose numbers fit each other.

    bench_test.py BUILD

How fast anything is decides nothing here.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parent / "run.sh"
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
SUBJECTS = {"hash", "json", "history", "manifest", "layout", "content", "placement", "index", "pack"}
MACHINE = {"name", "cpu", "kernel", "compiler", "optimised", "virtual", "cpus", "memory_gib", "load"}
FORMAT = {"name", "of", "bytes", "items", "seconds", "p10", "p90", "ratio", "ratio_p10", "ratio_p90", "against",
          "against_seconds", "pairs"}  # fmt: skip
SAVE = {"name", "ratio", "low", "high", "target", "at_least", "met", "against", "bytes", "pairs"}
TIMES = {"seconds", "against_seconds"}  # of a ratio of times


def refuse(word):
    raise ValueError(f"{word} is not JSON")


def bench(*args):
    return subprocess.run([RUN, *args], capture_output=True, text=True, check=False, env={**os.environ, "BUILD": BUILD})


class Bench(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir=os.environ.get("BW_TEST_DIR"))
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        self.json = self.dir / "out.json"

    def figures(self, *args, least=0):
        """The lines of --json but the machine's, which is the first, and what was printed."""
        done = bench(*args, "--json", self.json)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = [json.loads(line, parse_constant=refuse) for line in self.json.read_text("utf-8").splitlines()]
        self.assertEqual(lines[0]["name"], "machine")
        self.assertEqual(set(lines[0]), MACHINE)
        self.assertIn(lines[0]["kernel"], done.stdout)
        self.assertGreater(len(lines), 1)
        for line in lines[1:]:
            for key, value in line.items():
                if isinstance(value, (int, float)) and least is not None:
                    self.assertGreaterEqual(value, least, f"{key} of {line}")
            self.assertIn(line["name"], done.stdout)
        return lines[1:], done.stdout

    def test_format_measures_every_subject(self):
        lines, printed = self.figures("format", "--small", "--rounds", "3")
        self.assertIn("not a measurement", printed)
        for line in lines:
            self.assertEqual(set(line), FORMAT)
            self.assertEqual(line["pairs"], 3)
            self.assertIn(line["against"], ("memcpy", "xxh3", "sha256"))
            self.assertGreater(min(line["bytes"], line["items"]), 0)
            self.assertTrue(line["p10"] <= line["seconds"] <= line["p90"], line)
            self.assertLessEqual(line["ratio_p10"], line["ratio_p90"])
        self.assertEqual({line["of"].split(":")[0] for line in lines}, SUBJECTS)
        names = [(line["of"], line["name"]) for line in lines]
        self.assertEqual(len(names), len(set(names)))

    def test_format_measures_only_what_is_named(self):
        lines, _ = self.figures("format", "hash", "pack", "--small", "--rounds", "1")
        self.assertEqual({line["of"].split(":")[0] for line in lines}, {"hash", "pack"})

    def test_save_measures_all_and_cleans_up(self):
        lines, printed = self.figures("save", self.dir / "tiers", "--mib", "8", "--rounds", "2", least=None)
        for line in lines:
            self.assertIn(set(line) - SAVE, (set(), TIMES))
            self.assertEqual(set(line) & SAVE, SAVE)
            self.assertLessEqual(line["low"], line["high"])
            reaches = line["high"] >= line["target"] if line["at_least"] else line["low"] <= line["target"]
            self.assertEqual(line["met"], reaches, line)
        names = [line["name"] for line in lines]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(any("fio" in line["against"] for line in lines), shutil.which("fio") is not None)
        for what in ("stall, copy", "stall, cow", "restore, warm", "CPU seconds", "slow-down", "page faults", "memory"):
            self.assertTrue(any(name.startswith(what) for name in names), what)
        self.assertRegex(printed, "captured by copy")
        self.assertFalse((self.dir / "tiers").exists())

    def phases(self, ranks):
        """Of so many ranks: their opening, two saves, and one that a rank gives up."""
        lines, _ = self.figures("ranks", "--ranks", str(ranks), "--saves", "2", "--straggler-ms", "20000")
        self.assertEqual([line["name"] for line in lines], ["ranks-open", "ranks-save", "ranks-save", "ranks-fail"])
        for line in lines:
            for what in ("data", "control"):
                self.assertEqual(sum(line[f"{what}_per_s"]), line[what], line)
        return lines

    def test_what_a_rank_asks_of_its_store_does_not_grow_with_the_ranks(self):
        """Counts of calls in virtual time: the same on every machine."""
        for ranks, looks in ((64, 100), (1024, 30)):
            opened, *saves, failed = self.phases(ranks)
            self.assertLessEqual(failed["control_most_per_rank"], looks + 20)  # what it wrote is given back
            self.assertLess(failed["heard_s"], 10)
            self.assertLessEqual(opened["control_most_per_rank"], 20)
            self.assertLessEqual(opened["control_of_coordinator"], ranks + 60)
            for saved in saves:
                self.assertLessEqual(saved["data"], 8 * ranks + 20)
                self.assertLessEqual(saved["control_most_per_rank"], looks)  # of 20 s during which it waits
                # A summary and, once, a layout of each; else looks whose number goes by the time only, and the first
                # commit's sweep, which looks into each of the 256 parts that data is spread over.
                self.assertLessEqual(saved["control_of_coordinator"], 2 * ranks + 600)
                self.assertLess(saved["commit_s"], 2)
            self.assertLessEqual(saves[1]["control_of_coordinator"], ranks + 300)

    def test_many_ranks_that_come_at_one_moment_are_no_storm(self):
        opened, *saves, failed = self.phases(1024)
        self.assertLess(max(opened["control_per_s"]), 8 * 1024)
        for saved in [*saves, failed]:
            waiting = saved["control_per_s"][:20]  # before the last rank comes
            self.assertLess(waiting[0], 2 * 1024)
            self.assertLessEqual(waiting[0], 4 * sorted(waiting)[10])
            self.assertLess(max(saved["control_per_s"]), 4 * 1024)

    def test_what_is_not_understood_is_refused(self):
        refused = [((), 2), (("speed",), 2), (("save",), 2), (("save", self.dir / "no" / "dir"), 1),
                   (("format", "speed"), 1), (("format", "--rounds", "0"), 1), (("format", "--rounds"), 1),
                   (("ranks", "--ranks", "1"), 1), (("ranks", "--what", "1"), 1), (("ranks", "--json"), 1)]  # fmt: skip
        for args, code in refused:
            done = bench(*args)
            self.assertEqual(done.returncode, code, args)
            self.assertNotEqual(done.stderr, "")
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_save_leaves_out_what_memory_cannot_show(self):
        if not pathlib.Path("/dev/shm").is_dir():
            self.skipTest("there is no tmpfs to try it on")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            lines, printed = self.figures("save", memory, "--mib", "8", "--rounds", "1", least=None)
        self.assertIn("lies in memory", printed)
        self.assertEqual([line["name"] for line in lines if line["name"].startswith("restore")], [])

    def test_what_is_wrong_with_an_option_or_a_disk_is_told(self):
        room = " MiB of room, and a state of 65536 MiB needs 589824: see --mib\n"
        for args, told in ((("--mib", "none"), "--mib: expected a number from 8 to 65536, found none\n"),
                           (("--rounds",), "--rounds: expected a number from 1 to "),
                           (("--mib", "65536"), room)):  # fmt: skip
            if told == room and shutil.disk_usage(self.dir).free >= 9 << 36:
                continue
            done = bench("save", self.dir, *args)
            self.assertEqual((done.returncode, done.stdout), (1, ""), args)
            self.assertIn(told, done.stderr)


if __name__ == "__main__":
    unittest.main()
