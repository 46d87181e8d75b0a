#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the example programs.

examples_test.py DIRECTORY_OF_THE_PROGRAMS
"""

import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = pathlib.Path(sys.argv[1]).resolve()
CHECKPOINT_LINES_MAX = 39


class Examples(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        self.local, self.remote = f"file://{self.dir}/local", f"file://{self.dir}/remote"

    def run_it(self, *command, code=0):
        done = subprocess.run(
            [str(PROGRAMS / command[0]), *command[1:]], capture_output=True, text=True, timeout=100, check=False
        )
        self.assertEqual(done.returncode, code, f"{command}:\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def test_minimal_goes_on_counting(self):
        for launch in (1, 2, 3):
            self.assertEqual(self.run_it("minimal", self.local, self.remote, f"launch-{launch}"), f"{launch}\n")

    def test_minimal_reports_what_is_wrong(self):
        self.run_it("minimal", self.local, self.remote, "launch-1")
        said = self.run_it("minimal", self.local, self.remote, "launch-1", code=1)
        self.assertIn("launch-1", said)
        self.run_it("minimal", code=2)

    def test_reshard_reads_every_element(self):
        for launch in (1, 2):
            said = self.run_it("reshard", self.remote, f"launch-{launch}").splitlines()
            self.assertEqual(len(said), 3)
            for line in said:
                self.assertRegex(line, r"^reader \d of 3: columns \d+ to \d+, 0 wrong elements$")

    def trainer(self, *options):
        text = self.dir / "text"
        text.write_text("the quick brown fox jumps over the lazy dog. " * 400, encoding="utf-8")
        command = [PROGRAMS / "charlm", "--text", text, "--local", self.local, "--remote", self.remote, "--small"]
        return [str(word) for word in [*command, "--memory", "64", *options]]

    def test_a_rank_that_is_killed_ends_the_other(self):
        command = self.trainer("--launch", "launch-1", "--steps", "100000000", "--every", "100000000")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as launcher:
            self.addCleanup(launcher.kill)
            for line in launcher.stdout:
                if line.startswith("step 3 "):
                    break
            children = pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text(encoding="ascii")
            ranks = [int(pid) for pid in children.split()]
            self.assertEqual(len(ranks), 2)
            killed = time.monotonic()
            subprocess.run(["kill", "-KILL", str(ranks[0])], check=True)
            _, said = launcher.communicate(timeout=60)
            self.assertEqual(launcher.returncode, 128 + signal.SIGKILL)
            self.assertIn("another rank has ended", said)
            self.assertLess(time.monotonic() - killed, 30)

    def test_the_trainer_refuses_a_launch_id_that_was_used(self):
        command = self.trainer("--launch", "launch-1", "--steps", "2", "--every", "1")
        subprocess.run(command, capture_output=True, timeout=100, check=True)
        again = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
        self.assertNotEqual(again.returncode, 0)
        self.assertIn("launch-1", again.stderr)

    def test_what_a_user_copies_is_short(self):
        text = (HERE / "charlm/checkpoint.c").read_text(encoding="utf-8")
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#include")]
        self.assertLessEqual(len(lines), CHECKPOINT_LINES_MAX)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
