#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the C example of README.md and runs it: twice, as two launches of one job.

readme_test.py LIBRARY C_COMPILER...
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
sys.dont_write_bytecode = True

import readme_example  # noqa: E402

LIBRARY = pathlib.Path(sys.argv[1]).resolve()
COMPILER = sys.argv[2:]
FLAGS = "-std=c17 -Wall -Wextra -Wpedantic -Werror".split()


class Readme(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        self.program = self.dir / "example"
        source = self.dir / "example.c"
        source.write_text(readme_example.example(), encoding="utf-8")
        where = [f"-I{ROOT / 'include'}", f"-L{LIBRARY.parent}", f"-Wl,-rpath,{LIBRARY.parent}", "-lbreakwater"]
        self.run_ok([*COMPILER, *FLAGS, str(source), "-o", str(self.program), *where])

    def run_ok(self, command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 0, f"{command}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def launch(self, name):
        tiers = [f"file://{self.dir}/nvme", f"file://{self.dir}/shared"]
        return self.run_ok([str(self.program), *tiers, name])

    def test_the_second_launch_goes_on_where_the_first_ended(self):
        self.assertEqual(self.launch("launch-1"), "step 1 is committed\n")
        self.assertEqual(self.launch("launch-2"), "step 2 is committed\n")

    def test_it_is_short(self):
        lines = readme_example.example().splitlines()
        self.assertLessEqual(len([x for x in lines if x.strip() and not x.startswith("#include")]), 20)

    def test_it_says_how_it_is_used(self):
        done = subprocess.run([str(self.program)], capture_output=True, text=True, timeout=10, check=False)
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
