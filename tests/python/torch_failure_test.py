#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that die, disks that are full, and launches that are superseded, under torchrun."""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import venv_python  # noqa: E402

venv_python.enter("torch")

import breakwater as bw  # noqa: E402
import breakwater.torch as bt  # noqa: E402

FLAGS = bw.ALLOW_SAME_DEVICE | bw.ALLOW_NODE_LOCAL
#: Where a rank dies, and which.
DEATHS = [("plan", 1), ("capture", 0), ("write", 1), ("drain", 0), ("commit", 1), ("commit", 0)]
STEPS = 3

HEAD = """
    import os, signal, sys, time
    import torch, torch.distributed as dist, breakwater as bw, breakwater.torch as bt
    from breakwater import errors
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world, dir = dist.get_rank(), dist.get_world_size(), sys.argv[1]
    life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    def say(*what):
        with open(dir + "/said", "a") as f:
            f.write(" ".join(map(str, (*what, "\\n"))))
    def same(number):
        both = [torch.zeros(1, dtype=torch.int64) for _ in range(world)]
        dist.all_gather(both, torch.tensor([number]))
        return len({int(b) for b in both}) == 1
    def checkpointer(**options):
        return bt.Checkpointer(dir + "/remote", local=dir + f"/local{rank}", run="r", flags=%d,
                               memory_budget_bytes=64 << 20, open_timeout_ms=60000, **options)
""" % FLAGS


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="bw-failure-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def torchrun(self, text, *arguments, restarts=0, run_id=None):
        """Started: two ranks that run the text."""
        worker = self.dir / f"worker{len(list(self.dir.glob('worker*')))}.py"
        worker.write_text(textwrap.dedent(HEAD) + textwrap.dedent(text))
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--max-restarts={restarts}",
                   "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--monitor-interval=0.1",
                   "--local-addr=localhost", *([f"--rdzv-id={run_id}"] if run_id else []), str(worker), str(self.dir),
                   *arguments]
        environ = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        started = subprocess.Popen(command, env=os.environ | environ, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, started)
        return started

    def end(self, started):
        if started.poll() is None:
            started.terminate()
        started.wait()
        started.stderr.close()

    def run_to_end(self, started):
        _, err = started.communicate(timeout=200)
        self.assertEqual(started.returncode, 0, err)

    def await_said(self, started, first, rest):
        deadline = time.monotonic() + 60
        while started.poll() is None and time.monotonic() < deadline:
            if (self.dir / "said").exists() and rest in self.said(first):
                return
            time.sleep(0.05)
        self.fail(f"{first} {rest} did not come")

    def said(self, first):
        """What the ranks have noted, of the lines that begin with a word."""
        lines = [line.split() for line in (self.dir / "said").read_text().splitlines()]
        return [line[1:] for line in lines if line[0] == first]


class Deaths(Case):
    def test_whoever_dies_wherever_the_next_launch_goes_on_from_what_both_have(self):
        """In each life of the ranks but the last, one dies at another place. The state is a function of the step, so
        that a mix of two would show."""
        worker = f"""
            deaths = {DEATHS!r}
            place, victim = deaths[life] if life < len(deaths) else ("", -1)
            class Deadly:
                def state_dict(self):
                    if armed and place == "plan":
                        os.kill(os.getpid(), signal.SIGKILL)
                    return {{}}
                def load_state_dict(self, state):
                    pass
            def die(save):
                level = {{"capture": None, "write": "captured", "drain": "local", "commit": "remote"}}[place]
                if level:
                    save.wait(level, 60)
                os.kill(os.getpid(), signal.SIGKILL)
            armed = False
            with checkpointer(replicated="w", drain_bytes_per_s=16 << 20) as ck:
                state = {{"w": torch.zeros(1 << 20), "own": torch.full((1 << 18,), 1.0 * rank), "step": 0,
                          "deadly": Deadly()}}
                if ck.resumed_step is not None:
                    ck.load(state)
                begun = state["step"]
                assert begun == (ck.resumed_step or 0) and same(begun)
                assert (state["w"] == 3.0 * begun).all() and (state["own"] == begun + rank).all()
                say("resumed", life, rank, begun)
                for step in range(begun + 1, begun + {STEPS} + 1):
                    state["w"].fill_(3.0 * step)
                    state["own"].fill_(float(step + rank))
                    state["step"] = step
                    armed = rank == victim and step == begun + {STEPS}
                    save = ck.save(step, state, wait=not armed)
                    if armed:
                        die(save)
                    if step < begun + {STEPS} or victim < 0:
                        save.wait("committed", 60)
            say("ended", rank, state["step"])
            dist.destroy_process_group()
        """
        self.run_to_end(self.torchrun(worker, restarts=len(DEATHS)))
        resumed = {}
        for life, _, step in self.said("resumed"):
            resumed.setdefault(int(life), set()).add(int(step))
        self.assertEqual(sorted(resumed), list(range(len(DEATHS) + 1)))
        self.assertTrue(all(len(steps) == 1 for steps in resumed.values()), resumed)
        steps = [min(resumed[life]) for life in sorted(resumed)]
        for before, after in zip(steps, steps[1:], strict=False):
            self.assertIn(after - before, (STEPS - 1, STEPS))  # what was committed is never lost
        ended = self.said("ended")
        self.assertEqual(ended, [[str(rank), str(steps[-1] + STEPS)] for rank in sorted(int(e[0]) for e in ended)])
        for rank in (0, 1):
            back = bt.load_from(str(self.dir / "remote"), "r", rank=rank)
            last = steps[-1] + STEPS
            self.assertTrue((back["w"] == 3.0 * last).all() and (back["own"] == last + rank).all())
        self.assertEqual([f for f in bw.verify(str(self.dir / "remote"), "r") if f["severity"] == "damage"], [])


class FullDisk(Case):
    def test_a_rank_whose_disk_is_full_fails_the_step_for_all_and_the_next_one_works(self):
        """No file of the rank may be larger than so much: what a disk without room answers, for a while."""
        self.run_to_end(self.torchrun("""
            import resource
            with checkpointer() as ck:
                state = {"own": torch.full((1 << 20,), float(rank))}
                ck.save(1, state).wait("committed", 60)
                if rank == 1:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
                begun = time.monotonic()
                try:
                    ck.save(2, state).wait("committed", 60)
                    say("committed", rank, 2)
                except errors.Error as e:
                    say("failed", rank, int(time.monotonic() - begun), type(e).__name__)
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                dist.barrier()  # the training goes on
                state["own"] += 1
                ck.save(3, state).wait("committed", 60)
                say("committed", rank, 3)
            dist.destroy_process_group()
        """))
        failed = {rank: int(seconds) for rank, seconds, _ in self.said("failed")}
        self.assertEqual(sorted(failed), ["0", "1"])
        self.assertLess(max(failed.values()), 30)
        self.assertEqual(sorted(self.said("committed")), [["0", "3"], ["1", "3"]])
        for rank in (0, 1):
            self.assertTrue((bt.load_from(str(self.dir / "remote"), "r", rank=rank)["own"] == rank + 1).all())


class Superseded(Case):
    def test_a_superseded_job_that_is_restarted_trains_no_step_until_its_launcher_gives_up(self):
        worker = """
            name, steps, other = sys.argv[2], int(sys.argv[3]), sys.argv[4]
            def there(word):
                return os.path.exists(dir + "/said") and any(l.startswith(word) for l in open(dir + "/said"))
            try:
                ck = checkpointer()
            except errors.Error as e:
                say("refused", name, life, rank, type(e).__name__)
                raise SystemExit(1)
            with ck:
                state = {"step": 0, "w": torch.zeros(1000)}
                if ck.resumed_step is not None:
                    ck.load(state)
                for step in range(state["step"] + 1, steps + 1):
                    state["step"] = step
                    state["w"].fill_(float(step))
                    say("trained", name, life, rank, step)
                    ck.save(step, state).wait("committed", 60)
                    while other and step == 2 and not there("trained " + other):
                        time.sleep(0.05)
            say("ended", name, rank)
            dist.destroy_process_group()
        """
        first = self.torchrun(worker, "first", "9", "second", restarts=2, run_id="first")
        self.await_said(first, "trained", ["first", "0", "0", "2"])
        second = self.torchrun(worker, "second", "5", "", run_id="second")
        self.run_to_end(second)
        _, err = first.communicate(timeout=100)
        self.assertNotEqual(first.returncode, 0)
        trained = self.said("trained")
        self.assertEqual({t[1] for t in trained if t[0] == "first"}, {"0"})  # only in its first life
        refused = [r for r in self.said("refused") if r[0] == "first"]
        self.assertEqual({r[1] for r in refused}, {"1", "2"}, err)
        self.assertEqual({r[3] for r in refused}, {"SupersededError"})
        self.assertEqual(sorted(e for e in self.said("ended")), [["second", "0"], ["second", "1"]])
        attempts = {int(c["id"].split(".")[1].split("-")[0]) for c in bw.checkpoints(str(self.dir / "remote"), "r")}
        self.assertEqual(attempts, {1, 2})


if __name__ == "__main__":
    unittest.main()
