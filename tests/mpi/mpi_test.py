#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks under a real mpirun, on loopback: who they are, what they tell each other, what ends when one does not come,
and the example, which is killed and goes on.

mpi_test.py BUILD
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(sys.argv[1]).resolve()
LIMIT_S = 60
# Open MPI as root, with more ranks than cores, without ssh, and on loopback alone.
ENVIRONMENT = {
    **os.environ,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_plm_rsh_agent": "false",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_oob_tcp_if_include": "lo",
}
for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "BW_JOB"):
    ENVIRONMENT.pop(name, None)


class Ranks(unittest.TestCase):
    def setUp(self):
        self.assertIsNotNone(shutil.which("mpirun"), "mpirun is missing: ./dev setup installs it")
        scratch = tempfile.TemporaryDirectory(dir=os.environ.get("BW_TEST_DIR"))
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        self.url = f"file://{self.dir}/remote"

    def command(self, world, program, *words):
        return ["mpirun", "-n", str(world), str(BUILD / program), *map(str, words)]

    def run_it(self, world, program, *words, code=0):
        done = subprocess.run(
            self.command(world, program, *words), capture_output=True, text=True, timeout=LIMIT_S, check=False,
            env=ENVIRONMENT,
        )
        if code is not None:
            self.assertEqual(done.returncode, code, f"{words}:\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr


class Library(Ranks):
    def probe(self, world, scenario, code=0):
        return self.run_it(world, "tests/mpi/ranks_probe", scenario, self.url, code=code)

    def test_each_opening_is_a_launch_that_all_ranks_have_alike(self):
        said = self.probe(3, "twice")
        for rank in range(3):
            self.assertIn(f"rank {rank}: attempt 1 from step -1\n", said)
            self.assertIn(f"rank {rank}: attempt 2 from step 1\n", said)
        self.assertEqual(len(re.findall(r"step [12]: BW_OK", said)), 6, said)
        self.assertEqual(len(re.findall(r"close: BW_OK", said)), 6, said)

    def test_a_rank_that_does_not_come_is_waited_for_until_the_deadline(self):
        said = self.probe(3, "absent", code=None)
        for rank in range(2):
            self.assertRegex(said, rf"rank {rank}: open: BW_E_TIMEOUT after [12] s: .*not all of the 3 ranks have come")

    def test_all_open_or_none(self):
        said = self.probe(3, "refused")
        self.assertRegex(said, r"rank 1: open: BW_E_INVALID after \d s: option saves_in_flight_max is 99")
        for rank in (0, 2):
            self.assertRegex(said, rf"rank {rank}: open: BW_E_\w+ after \d s: ")
        self.assertNotIn("BW_OK", said)

    def test_a_failed_save_is_told_to_all_and_the_next_one_works(self):
        said = self.probe(3, "cancelled")
        self.assertRegex(said, r"rank 1: step 1: BW_E_CANCELLED")
        for rank in (0, 2):
            self.assertRegex(said, rf"rank {rank}: step 1: BW_E_ABORTED")
            self.assertRegex(said, rf"rank {rank}: hears of rank 1, step 1: BW_E_CANCELLED")
        self.assertEqual(len(re.findall(r"step 2: BW_OK", said)), 3, said)

    def test_a_rank_that_hangs_holds_no_close_up(self):
        said = self.probe(3, "hanging", code=None)
        for rank in (0, 2):
            self.assertRegex(said, rf"rank {rank}: close: BW_OK after [12] s")

    def test_what_makes_no_sense_is_refused(self):
        said = self.probe(1, "misused")
        for what in ("null communicator", "null options", "null result", "null wait"):
            self.assertRegex(said, rf"{what}: BW_E_INVALID")
        self.assertRegex(said, r"long job: BW_E_INVALID after 0 s: rank 0: option job has 129 bytes")
        self.assertRegex(said, "null close: BW_OK")
        self.assertRegex(said, "null poll: 0")
        self.assertRegex(said, "after the end: BW_E_STATE")

    def test_news_make_ranks_look_and_only_then(self):
        said = self.run_it(3, "tests/mpi/news_probe", code=None)
        for rank in range(3):
            self.assertIn(f"rank {rank} is done\n", said)


class Example(Ranks):
    def train(self, world, steps, *more, code=0):
        return self.run_it(world, "examples/mpi_train", self.url, "--local", f"{self.dir}/local", "--steps", steps,
                           "--every", 5, *more, code=code)

    @staticmethod
    def weights(said):
        return re.search(r"^weights (\w+)$", said, re.M).group(1)

    def jobs(self):
        command = [BUILD / "src/cli/breakwater", "history", "--remote", self.url, "--json", "mpi"]
        return set(re.findall(r'"(parent-[^"]+)"', subprocess.run(command, capture_output=True, text=True,
                                                                  check=True).stdout))

    def kill_at(self, step, world, number):
        """Starts the training, and sends rank 1 a signal at a step. What was said, and the exit code."""
        command = self.command(world, "examples/mpi_train", self.url, "--local", f"{self.dir}/local", "--steps", 60,
                               "--every", 5, "--pause-ms", 20)
        said, pid = "", None
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=ENVIRONMENT) as job:
            self.addCleanup(job.kill)
            for line in job.stdout:
                said += line
                found = re.match(r"rank 1 is process (\d+)", line)
                pid = int(found.group(1)) if found else pid
                if line.startswith(f"step {step} loss"):
                    os.kill(pid, number)
            began = time.monotonic()
            code = job.wait(timeout=LIMIT_S)
        self.assertLess(time.monotonic() - began, LIMIT_S)
        return said, code

    def test_a_rank_that_is_killed_ends_the_job_and_any_number_of_ranks_goes_on(self):
        whole = self.weights(self.train(2, 60))
        shutil.rmtree(self.dir / "remote")
        shutil.rmtree(self.dir / "local")
        said, code = self.kill_at(23, 3, signal.SIGKILL)
        self.assertNotEqual(code, 0, said)
        self.assertNotIn("weights", said)
        for world, steps in ((3, 40), (1, 45), (4, 60)):
            said = self.train(world, steps)
            resumed = int(re.search(r"attempt \d+: step (\d+) ", said).group(1))
            self.assertGreaterEqual(resumed, {40: 15, 45: 40, 60: 45}[steps], said)
        self.assertEqual(self.weights(said), whole)
        self.assertEqual(len(self.jobs()), 1, "each mpirun of one shell belongs to the same job")

    def test_a_job_that_is_asked_to_stop_saves_once_more(self):
        said, code = self.kill_at(12, 2, signal.SIGUSR1)
        self.assertEqual(code, 0, said)
        last = int(re.findall(r"^step (\d+) loss", said, re.M)[-1])
        self.assertLess(last, 60)
        self.assertIn(f"attempt 2: step {last} ", self.train(2, last + 1))

    def test_its_usage_is_told(self):
        self.assertIn("usage: train", self.run_it(1, "examples/mpi_train", "--steps", "x", code=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
