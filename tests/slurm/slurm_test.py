#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples as jobs of a real Slurm: started by srun, put back into the queue, superseded, asked to stop.

slurm_test.py BUILD PYTHON   PYTHON: one that has PyTorch, or a path at which there is none
"""

import os
import pathlib
import re
import sys
import tempfile
import unittest

import cluster

BUILD, PYTHON = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
TREE = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(dir=os.environ.get("BW_TEST_DIR"))
        cls.addClassCleanup(scratch.cleanup)
        cls.cluster = cluster.Cluster(scratch.name)
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self):
        self.dir = self.cluster.dir / self.id().rpartition("_")[2]
        self.url = f"file://{self.dir}/remote"

    def train(self, steps, *more):
        words = (BUILD / "examples/mpi_train", self.url, "--local", f"{self.dir}/local", "--steps", steps, *more)
        return " ".join(str(word) for word in words)

    def wait_for(self, out, pattern):
        self.cluster.until(lambda: out.exists() and re.search(pattern, out.read_text("utf-8"), re.M), pattern)

    def ended(self, job, out):
        self.cluster.until(lambda: self.cluster.state(job) == "", f"the end of job {job}")
        return out.read_text("utf-8")

    def history(self):
        return self.cluster.run(BUILD / "src/cli/breakwater", "history", "--remote", self.url, "mpi", "--json")

    def test_a_job_that_is_put_back_into_the_queue_goes_on(self):
        job, out = self.cluster.submit("requeue", 3, self.train(60, "--every", 5, "--pause-ms", 50))
        self.wait_for(out, "^step 12 loss")
        self.cluster.requeue(job)
        said = self.ended(job, out)
        self.assertIn("start 1", said)
        self.assertGreaterEqual(int(re.search(r"attempt 2: step (\d+) ", said).group(1)), 5, said)
        self.assertIn(f'"slurm-loop-{job}"', self.history())
        alone = self.cluster.run("srun", "-n1", BUILD / "examples/mpi_train", f"{self.url}-alone", "--steps", "60")
        self.assertEqual(*(re.search(r"^weights (\w+)$", text, re.M).group(1) for text in (said, alone)))

    def test_a_job_that_was_superseded_is_refused_when_it_comes_back(self):
        job, out = self.cluster.submit("old", 2, self.train(1000, "--every", 5, "--pause-ms", 50))
        self.wait_for(out, "^step 7 loss")
        self.cluster.run("scontrol", "requeuehold", job)
        self.cluster.until(lambda: self.cluster.state(job) == "PENDING", "the old job in the queue")
        new, new_out = self.cluster.submit("new", 2, self.train(60, "--every", 5))
        self.assertRegex(self.ended(new, new_out), r"attempt 2: step (\d+) ")
        before = sorted(path for path in self.dir.rglob("*") if "launches" not in path.parts)
        self.cluster.run("scontrol", "release", job)
        self.cluster.start_now(job)
        said = self.ended(job, out)
        self.assertRegex(said, "superseded")
        self.assertNotIn("attempt 3", said)
        self.assertEqual(before, sorted(path for path in self.dir.rglob("*") if "launches" not in path.parts))

    def test_a_job_that_is_told_to_end_saves_once_more(self):
        job, out = self.cluster.submit("stop", 2, self.train(1000, "--every", 500, "--pause-ms", 50))
        self.wait_for(out, "^step 7 loss")
        self.cluster.run("scancel", "--signal=TERM", job)
        last = int(re.findall(r"^step (\d+) loss", self.ended(job, out), re.M)[-1])
        said = self.cluster.run("srun", "-n4", "--overcommit", *self.train(last + 1).split())
        self.assertIn(f"attempt 2: step {last} ", said)

    @unittest.skipUnless(PYTHON.exists(), "no Python with PyTorch: ./dev test pytorch makes one")
    def test_pytorch_goes_on_as_well(self):
        self.cluster.environment["PYTHONPATH"] = f"{BUILD}/python"
        command = f"{PYTHON} {TREE}/examples/pytorch/train.py {self.dir} 40"
        job, out = self.cluster.submit("pytorch", 1, command)
        self.wait_for(out, "^step 10 loss")
        self.cluster.requeue(job)
        said = self.ended(job, out)
        whole = self.cluster.run("srun", "-n1", PYTHON, TREE / "examples/pytorch/train.py", f"{self.dir}/whole", "40")
        last = [re.findall(r"^step 40 loss (\S+)$", text, re.M)[-1] for text in (said, whole)]
        self.assertEqual(*last)
        self.assertIn("start 1", said)


if __name__ == "__main__":
    if reason := cluster.why_not():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
