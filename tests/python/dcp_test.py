#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""breakwater.torch.dcp with the real torch.distributed.checkpoint: what its users save and load, with other numbers of
ranks, and what goes wrong.

    tests/python/dcp_test.py [CASE ...]     PYTHONPATH names the build's python/
"""

import contextlib
import gc
import io
import logging
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest
import unittest.mock
import warnings
import weakref
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import venv_python  # noqa: E402

venv_python.enter("torch")

import breakwater as bw  # noqa: E402
import breakwater.torch as bt  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from breakwater import errors  # noqa: E402
from breakwater.torch import dcp as bd  # noqa: E402
from breakwater.torch.dcp import __main__ as command  # noqa: E402
from breakwater.torch.dcp import _convert, _folder, _index, _pickled  # noqa: E402
from torch.distributed import checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint import state_dict as parts  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner  # noqa: E402
from torch.distributed.checkpoint.staging import AsyncStager  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh  # noqa: E402
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module  # noqa: E402

FLAGS = bw.ALLOW_SAME_DEVICE | bw.ALLOW_NODE_LOCAL
RANKS_S = 60  # what ranks of a test may take
warnings.filterwarnings("ignore", message="torch.distributed is disabled")
warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)


def fill(shape, seed):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


class Model(torch.nn.Module):
    """Sizes that no number of ranks divides, a buffer, and one tensor that has two names."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(13, 6)
        self.inner = torch.nn.Linear(6, 7)
        self.head = torch.nn.Linear(6, 13, bias=False)
        self.register_buffer("count", torch.tensor(5))

    def forward(self, x):
        return self.head(self.inner(self.embed(x))[..., :6])


class Position:
    """A Stateful that is neither module nor optimizer."""

    def __init__(self, at):
        self.at = at

    def state_dict(self):
        return {"at": self.at, "name": "part-1", "seen": (1, 2.5, None)}

    def load_state_dict(self, state):
        self.at = state["at"]


class Trained:
    """What the tutorial of DCP calls AppState: get_state_dict and set_state_dict behind the Stateful protocol."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model, optimizer = parts.get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer}

    def load_state_dict(self, state):
        parts.set_state_dict(self.model, self.optimizer, model_state_dict=state["model"],
                             optim_state_dict=state["optim"])


def train(seed, mesh, steps):
    """A sharded model that has made some steps with Adam."""
    torch.manual_seed(seed)
    model = Model()
    for module in (model.inner, model):
        fully_shard(module, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(steps):
        model(torch.arange(8).reshape(2, 4) + step).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return Trained(model, optimizer)


def whole(state, path=""):
    """path -> value, with the whole of each DTensor."""
    if isinstance(state, dict):
        return {k: v for name, value in state.items() for k, v in whole(value, f"{path}.{name}").items()}
    return {path: state.full_tensor() if isinstance(state, DTensor) else state}


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="bw-dcp-")
        self.addCleanup(scratch.cleanup)
        self.dir, self.meetings = scratch.name, 0

    def open(self, **options):
        given = dict(run="r", flags=FLAGS, memory_budget_bytes=64 << 20, open_timeout_ms=60000, timeout_s=60) | options
        writer = bd.StorageWriter(f"{self.dir}/remote", **given)
        self.addCleanup(lambda: None if writer.closed else writer._checkpointer.close(5))
        return writer

    def reader(self, **options):
        return bd.StorageReader(f"{self.dir}/remote", run="r", **options)

    def ranks(self, world, body):
        """Runs body(rank) in so many processes with a Gloo group."""
        self.meetings += 1
        children = []
        for rank in range(world):
            children.append(os.fork())
            if children[-1] == 0:
                os._exit(self.be(rank, world, body))
        codes, deadline = {}, time.monotonic() + RANKS_S
        while len(codes) < world:
            for pid in set(children) - codes.keys():
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    codes[pid] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        self.assertEqual([codes[pid] for pid in children], [0] * world)

    def be(self, rank, world, body):
        code = 1
        try:
            os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "LOCAL_RANK": str(rank)}
            dist.init_process_group("gloo", init_method=f"file://{self.dir}/meet{self.meetings}", rank=rank,
                                    world_size=world)
            body(rank)
            dist.barrier()
            dist.destroy_process_group()
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        return code

    def same(self, a, b):
        self.assertEqual(a.keys(), b.keys())
        for path, value in a.items():
            if isinstance(value, torch.Tensor):
                self.assertEqual((value.dtype, value.shape), (b[path].dtype, b[path].shape), path)
                self.assertTrue(torch.equal(value, b[path]), path)
            else:
                self.assertEqual((type(value), value), (type(b[path]), b[path]), path)


class OneRank(Case):
    def state(self, seed):
        return {"w": fill((4, 5), seed), "turned": fill((6, 7), seed).t(), "none": torch.empty(0, 3),
                "scalar": torch.tensor(seed, dtype=torch.int16), "list": [fill(2, seed), {"deep": fill((), seed)}],
                "lr": 0.5 + seed, "pair": (fill(3, seed), "x"), "odd/\n~": fill(1, seed), "position": Position(seed)}

    def test_what_is_saved_is_an_ordinary_checkpoint_and_comes_back(self):
        state = self.state(1)
        with self.open() as writer:
            self.assertIsNone(writer.resumed_step)
            made = dcp.save(state, checkpoint_id="out/step-12", storage_writer=writer)
            self.assertEqual(writer.last.level, "committed")
        self.assertEqual(set(made.state_dict_metadata), set(bd.StorageReader(
            f"{self.dir}/remote", run="r").read_metadata().state_dict_metadata))
        with bw.Reader(f"{self.dir}/remote", "r", 12) as reader:
            names = {t["name"]: t["shape"] for t in reader.tensors()}
        self.assertEqual(names["list.1.deep"], ())
        self.assertEqual(names["turned"], (7, 6))
        self.assertEqual(names["pair.0"], (3,))
        self.assertFalse([f for f in bw.verify(f"{self.dir}/remote", "r") if f["severity"] != "fact"])
        back = self.state(2)
        memory = back["w"].data_ptr()
        dcp.load(back, storage_reader=self.reader())
        self.assertEqual(back["w"].data_ptr(), memory)
        self.assertEqual((back["position"].at, back["lr"], back["pair"][1]), (1, 1.5, "x"))
        for name in ("w", "turned", "scalar", "odd/\n~"):
            self.assertTrue(torch.equal(back[name], state[name]), name)
        self.assertTrue(torch.equal(back["list"][1]["deep"], state["list"][1]["deep"]))
        self.assertTrue(torch.equal(back["pair"][0], state["pair"][0]))

    def test_no_pickle_lies_in_the_checkpoint(self):
        with self.open() as writer:
            dcp.save({"value": {"a": (1, "marker"), "b": torch.Size([3])}}, checkpoint_id=1, storage_writer=writer)
        with bw.Reader(f"{self.dir}/remote", "r") as reader:
            blobs = {b["name"]: reader.blob(0, b["name"]) for b in reader.blobs()}
        self.assertEqual(sorted(blobs), ["dcp", "tree"])
        self.assertTrue(all(data.isascii() and data.startswith(b"{") for data in blobs.values()))
        self.assertIn(b"marker", blobs["tree"])
        values = {"value.a": (1, "marker"), "value.b": torch.Size([3])}
        self.assertEqual(bt.load_from(f"{self.dir}/remote", "r"), values)

    def test_what_only_a_pickle_could_hold_is_refused_by_its_path(self):
        with self.open() as writer:
            for value in ({1, 2}, Position, lambda: 0, 1j):
                with self.assertRaisesRegex(CheckpointException, r"InvalidError: a\.b\.2: a .* cannot be saved"):
                    dcp.save({"a": {"b": (0, 1, value)}}, checkpoint_id=3, storage_writer=writer)
            with self.assertRaisesRegex(CheckpointException, "InvalidError: a.b: .*meta tensor"):
                dcp.save({"a": {"b": torch.empty(3, device="meta")}}, checkpoint_id=3, storage_writer=writer)
            dcp.save({"a": torch.ones(3)}, checkpoint_id=3, storage_writer=writer)
        self.assertEqual([c["step"] for c in bw.checkpoints(f"{self.dir}/remote", "r") if c["state"] == "live"], [3])

    def test_a_planner_of_ones_own_is_obeyed(self):
        class Halves(DefaultSavePlanner):
            def create_local_plan(self):
                plan = super().create_local_plan()
                for item in plan.items:
                    if item.tensor_data is not None:
                        item.tensor_data.properties.dtype = torch.float16
                return plan

            def resolve_data(self, item):
                data = super().resolve_data(item)
                return data if isinstance(data, io.BytesIO) else data.to(torch.float16)

        class Forgets(DefaultSavePlanner):
            def create_global_plan(self, plans):
                plans, metadata = super().create_global_plan(plans)
                return plans, type(metadata)(metadata.state_dict_metadata, planner_data={"other": ("x",)})

        w = fill((5, 3), 1)
        with self.open() as writer:
            dcp.save({"w": w, "n": (7,)}, checkpoint_id=1, storage_writer=writer, planner=Halves())
            with self.assertRaisesRegex(CheckpointException, "create_global_plan makes planner_data that differs"):
                dcp.save({"w": w}, checkpoint_id=2, storage_writer=writer, planner=Forgets())
            with self.assertRaisesRegex(CheckpointException, "expected the step, .*found 'latest'"):
                dcp.save({"w": w}, checkpoint_id="latest", storage_writer=writer)
        back = {"w": torch.zeros(5, 3, dtype=torch.float16), "n": None}
        dcp.load(back, storage_reader=self.reader(step=1))
        self.assertTrue(torch.equal(back["w"], w.half()))
        self.assertEqual(back["n"], (7,))
        back = {"w": torch.zeros(5, 3)}
        with self.assertRaisesRegex(CheckpointException, "MismatchError: w: torch.float32 here, F16 in the checkpoint"):
            dcp.load(back, storage_reader=self.reader(step=1))
        dcp.load(back, storage_reader=self.reader(step=1, cast=True))
        self.assertTrue(torch.equal(back["w"], w.half().float()))

    def test_any_memory_is_loaded_into_and_ties_are_compared(self):
        w, other = fill((4, 6), 1), fill((4, 6), 2)
        with self.open() as writer:
            dcp.save({"a": w, "b": w, "c": other}, checkpoint_id=1, storage_writer=writer)
        base = torch.zeros(6, 4, 2)
        tied = base[..., 0].t()
        dcp.load({"a": tied, "b": tied, "c": base[..., 1].t()}, storage_reader=self.reader())
        self.assertTrue(torch.equal(tied, w) and torch.equal(base[..., 1].t(), other))
        with self.assertRaisesRegex(CheckpointException, "a and c are one tensor here, and differ in the checkpoint"):
            dcp.load({"a": tied, "c": tied}, storage_reader=self.reader())
        grown = torch.nn.Parameter(torch.zeros(4, 6))
        dcp.load({"c": grown}, storage_reader=self.reader())
        self.assertTrue(torch.equal(grown.detach(), other))

    def test_planners_that_keep_their_plans_or_the_nesting_are_obeyed(self):
        state = {"a": {"w": fill((3, 2), 1), "n": (1,)}, "b": torch.ones(2)}
        with self.open() as writer:
            for step in (1, 2, 3):
                state["b"] = state["b"] if step < 3 else torch.ones(5)
                dcp.save(state, checkpoint_id=step, storage_writer=writer,
                         planner=DefaultSavePlanner(enable_plan_caching=True))
            dcp.save(state, checkpoint_id=4, storage_writer=writer,
                     planner=DefaultSavePlanner(flatten_state_dict=False))
        for step in (1, 2, 3, 4):
            back = {"a": {"w": torch.zeros(3, 2), "n": None}, "b": torch.zeros(5 if step > 2 else 2)}
            dcp.load(back, checkpoint_id=step, storage_reader=self.reader(),
                     planner=DefaultLoadPlanner(step != 4, flatten_sharded_tensors=step != 4))
            self.assertTrue(torch.equal(back["a"]["w"], state["a"]["w"]) and bool(back["b"].all()), step)
            self.assertEqual(back["a"]["n"], (1,))

    def test_nothing_is_kept_alive_once_it_is_saved(self):
        with self.open() as writer:
            w = torch.ones(1000)
            memory = weakref.ref(w.untyped_storage())
            dcp.save({"w": w, "values": (w,)}, checkpoint_id=1, storage_writer=writer)
            self.assertIsNotNone(memory())
            del w
            gc.collect()
            self.assertIsNone(memory())

    def test_a_step_is_said_in_few_ways(self):
        self.assertEqual([_index.step_of(i) for i in (0, 7, "7", "a/b-08", pathlib.Path("x/step_9"))], [0, 7, 7, 8, 9])
        for wrong in (None, -1, True, "", "a9/b", 1.5):
            self.assertRaises(errors.InvalidError, _index.step_of, wrong)
            self.assertFalse(bd.StorageWriter.validate_checkpoint_id(wrong))

    def test_hostile_indices_are_refused(self):
        good = _index.Index({"w": _index.Row("w", "F32", (2,))}, {"v": 0}, {"w": ("w",)})
        data = _index.dump(good)
        self.assertEqual(_index.load(data), good)
        for old, new in ((b'"version":1,"t', b'"version":2,"t'), (b'"F32"', b'"F33"'), (b'"v":0', b'"v":-1'),
                         (b'"v":0', b'"w":0'), (b"[2]", b"[-2]"), (b'{"$size":[2]}', b"[2]"),
                         (b'"planner_data"', b'"other"'), (b'"values"', b'"valves"'), (b'{"w":["F32"', b'["F32"')):
            changed = data.replace(old, new)
            self.assertNotEqual(changed, data)
            with self.assertRaises((errors.FormatError, errors.VersionError), msg=changed):
                _index.load(changed)
        strange = _index.Index({f: _index.Row(_index.name_of(f), "U8", ()) for f in ("", "a\0", "x" * 9000)}, {}, None)
        self.assertEqual(_index.load(_index.dump(strange)), strange)
        with self.assertRaisesRegex(errors.InvalidError, "tensors in planner_data"):
            _index.dump(good._replace(planner_data={"t": torch.ones(1)}))

    def test_what_dcp_did_not_save_is_told_apart(self):
        with bt.Checkpointer(f"{self.dir}/remote", run="r", flags=FLAGS, memory_budget_bytes=64 << 20) as ck:
            ck.save(1, {"w": torch.ones(3)}).wait(timeout_s=60)
        with self.assertRaisesRegex(CheckpointException, "was not saved through torch.distributed.checkpoint"):
            dcp.load({"w": torch.ones(3)}, storage_reader=self.reader())
        with self.assertRaisesRegex(CheckpointException, "no live checkpoint of step 5"):
            dcp.load({"w": torch.ones(3)}, storage_reader=self.reader(step=5))


class ManyRanks(Case):
    def test_fsdp_and_adam_go_on_with_any_number_of_ranks(self):
        def save(rank):
            trained = train(1, init_device_mesh("cpu", (2,)), 3)
            with self.open(local=f"{self.dir}/local{rank}") as writer:
                dcp.save({"app": trained, "step": 3}, checkpoint_id=3, storage_writer=writer)
            self.keep(trained)

        def load(mesh):
            names = ("replicate", "shard")[-len(mesh):]
            trained = train(2, init_device_mesh("cpu", mesh, mesh_dim_names=names), 1)
            dcp.load({"step": 0, "app": trained}, storage_reader=self.reader())
            self.same(self.kept(), whole(trained.state_dict()))

        self.ranks(2, save)
        self.ranks(4, lambda rank: load((2, 2)))
        self.ranks(1, lambda rank: load((1,)))

    def keep(self, trained):
        state = whole(trained.state_dict())
        if dist.get_rank() == 0:
            torch.save(state, f"{self.dir}/expected.pt")

    def kept(self):
        return torch.load(f"{self.dir}/expected.pt", weights_only=True)

    def test_every_placement_is_loaded_with_every_other(self):
        tensors = {"even": fill((8, 8), 1), "uneven": fill((7, 5), 2), "few": fill((3, 2), 3), "flat": fill(9, 4)}
        placements = [(Shard(0), Shard(1)), (Shard(1), Replicate()), (Replicate(), Shard(0)), (Shard(0), Shard(0))]

        def spread(mesh, scale):
            return {f"{name}.{i}": distribute_tensor(t * scale, mesh, [Shard(0) if t.dim() == 1 and x == Shard(1) else x
                                                                      for x in p])
                    for name, t in tensors.items() for i, p in enumerate(placements)}

        def save(rank):
            mesh = init_device_mesh("cpu", (2, 2))
            with self.open() as writer:
                dcp.save(spread(mesh, 1) | {"plain": tensors["flat"]}, checkpoint_id=1, storage_writer=writer)

        def load(rank):
            mesh = init_device_mesh("cpu", (1, 2))
            for turn in range(len(placements)):
                placements.append(placements.pop(0))
                state = spread(mesh, 0)
                dcp.load(state, storage_reader=self.reader())
                for name, t in state.items():
                    self.assertTrue(torch.equal(t.full_tensor(), tensors[name.partition(".")[0]]), (turn, name))

        self.ranks(4, save)
        self.ranks(2, load)
        alone = {f"{name}.{i}": torch.zeros_like(t) for name, t in tensors.items() for i in range(len(placements))}
        dcp.load(alone | {"plain": torch.zeros(9)}, storage_reader=self.reader())
        self.assertTrue(all(torch.equal(t, tensors[n.partition(".")[0]]) for n, t in alone.items()))

    def test_what_ddp_holds_alike_is_written_once(self):
        def save(rank):
            torch.manual_seed(0)
            model = torch.nn.parallel.DistributedDataParallel(Model())
            with self.open() as writer:
                dcp.save({"model": parts.get_model_state_dict(model)}, checkpoint_id=1, storage_writer=writer)
                written = torch.tensor(writer.last.stats()["raw_bytes"])
            dist.all_reduce(written)
            tensors = sum(t.nbytes for t in model.state_dict().values())
            self.assertLess(int(written), tensors + 8192)
            fresh = torch.nn.parallel.DistributedDataParallel(Model())
            state = {"model": parts.get_model_state_dict(fresh)}
            self.assertFalse(torch.equal(fresh.module.head.weight, model.module.head.weight))
            dcp.load(state, storage_reader=self.reader())
            parts.set_model_state_dict(fresh, state["model"])
            self.assertTrue(torch.equal(fresh.module.head.weight, model.module.head.weight))

        self.ranks(2, save)

    def test_a_launch_goes_on_from_what_dcp_saved(self):
        def run(rank):
            time.sleep(1.3 if rank == 0 else 0)  # longer than the others ask the store at once
            with self.open(local=f"{self.dir}/local{rank}", job="j") as writer:
                state = {"n": (writer.resumed_step or 0,), "w": torch.zeros(4)}
                if writer.resumed_step is not None:
                    dcp.load(state, storage_reader=writer.reader())
                    self.assertEqual((state["n"], float(state["w"][0])), ((writer.resumed_step,), writer.resumed_step))
                    with self.assertRaisesRegex(CheckpointException, "goes on from step 1, found 9 asked for"):
                        dcp.load(state, checkpoint_id=9, storage_reader=writer.reader())
                step = (writer.resumed_step or 0) + 1
                dcp.save({"n": (step,), "w": torch.full((4,), float(step))}, checkpoint_id=step, storage_writer=writer)

        self.ranks(2, run)
        self.ranks(2, run)
        self.assertEqual([c["step"] for c in bw.checkpoints(f"{self.dir}/remote", "r")], [1, 2])

    def test_ranks_that_opened_different_checkpoints_load_neither(self):
        def run(rank):
            with self.open() as writer:
                for step in (1, 2):
                    dcp.save({"w": torch.full((4,), float(step))}, checkpoint_id=step, storage_writer=writer)
            w = torch.zeros(4)
            with self.assertRaisesRegex(CheckpointException, "the ranks have opened different checkpoints"):
                dcp.load({"w": w}, storage_reader=self.reader(step=1 + rank))
            self.assertEqual(float(w.sum()), 0)

        self.ranks(2, run)


class Larger(Case):
    def test_only_what_a_rank_needs_is_read(self):
        whole_bytes = 32 << 20

        def run(rank):
            mesh = init_device_mesh("cpu", (4,))
            w = torch.arange(whole_bytes // 4, dtype=torch.int32).reshape(-1, 1024)
            with self.open() as writer:
                dcp.save({"w": distribute_tensor(w, mesh, [Shard(0)])}, checkpoint_id=1, storage_writer=writer)
            narrow, reader = distribute_tensor(torch.zeros_like(w)[:, :], mesh, [Shard(0)]), self.reader()
            dcp.load({"w": narrow}, storage_reader=reader)
            self.assertTrue(torch.equal(narrow.to_local(), w.chunk(4)[rank]))
            self.assertLess(reader.stats["remote_bytes"], whole_bytes // 2)
            self.assertGreaterEqual(reader.stats["verified_bytes"], whole_bytes // 4)

        self.ranks(4, run)

    def test_tensor_parallel_and_fsdp_together_come_back_as_fsdp(self):
        def model(mesh, plan):
            torch.manual_seed(7 if plan else 8)
            made = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.ReLU(), torch.nn.Linear(12, 8))
            if plan:
                parallelize_module(made, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
            fully_shard(made, mesh=mesh["dp"] if plan else mesh)
            return Trained(made, torch.optim.AdamW(made.parameters()))

        def save(rank):
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            trained = model(mesh, True)
            trained.model(fill((3, 8), 1)).sum().backward()
            trained.optimizer.step()
            with self.open() as writer:
                dcp.save({"app": trained}, checkpoint_id=1, storage_writer=writer)
            ManyRanks.keep(self, trained)

        def load(rank):
            trained = model(init_device_mesh("cpu", (3,)), False)
            dcp.load({"app": trained}, storage_reader=self.reader())
            self.same(ManyRanks.kept(self), whole(trained.state_dict()))

        self.ranks(4, save)
        self.ranks(3, load)


class Broken(DefaultSavePlanner):
    """Raises in one of its methods, on one rank."""

    def __init__(self, method, bad):
        super().__init__()
        if bad:
            setattr(self, method, self._raise)

    def _raise(self, *args, **kwargs):
        raise ValueError("broken on purpose")


class Failures(Case):
    def test_what_one_rank_raises_all_ranks_get_and_go_on(self):
        def run(rank):
            mesh = init_device_mesh("cpu", (2,))
            state = {"w": torch.full((4,), rank), "d": distribute_tensor(fill((5, 2), 1), mesh, [Shard(0)])}
            with self.open() as writer:
                step = 0
                for method in ("create_local_plan", "finish_plan", "finish_plan", "resolve_data"):
                    for bad in (0, 1, 1, 0):
                        step += bad  # the same step again, or a higher one
                        began = time.monotonic()
                        with self.assertRaisesRegex(CheckpointException, "broken on purpose"):
                            dcp.save(state, checkpoint_id=step, storage_writer=writer,
                                     planner=Broken(method, rank == bad))
                        self.assertLess(time.monotonic() - began, 30)
                with self.assertRaisesRegex(CheckpointException, "s: a builtins.set cannot be saved"):
                    dcp.save(state | {"s": {1}}, checkpoint_id=step + 1, storage_writer=writer)
                with self.assertRaisesRegex(CheckpointException, "s.0: a DTensor in a value that one rank writes"):
                    dcp.save(state | {"s": (state["d"],)}, checkpoint_id=step + 1, storage_writer=writer)
                dcp.save(state, checkpoint_id=step + 1, storage_writer=writer)

        self.ranks(2, run)
        self.assertEqual([c["step"] for c in bw.checkpoints(f"{self.dir}/remote", "r") if c["state"] == "live"], [9])

    def test_a_rank_that_is_killed_holds_nobody_up(self):
        def run(rank):
            began = time.monotonic()
            writer = self.open()
            planner = DefaultSavePlanner()
            if rank == 1:
                planner.lookup_object = lambda index: os.kill(os.getpid(), signal.SIGKILL)
            with self.assertRaises((CheckpointException, RuntimeError)):
                dcp.save({"w": torch.ones(2), "d": distribute_tensor(fill((5, 2), 1), init_device_mesh("cpu", (2,)),
                                                                     [Shard(0)])},
                         checkpoint_id=1, storage_writer=writer, planner=planner)
            with self.assertRaises(errors.Error):
                writer._checkpointer.close(1)
            self.assertLess(time.monotonic() - began, 30)
            os._exit(0)

        with self.assertRaisesRegex(AssertionError, r"Lists differ: \[0, -9\]"):
            self.ranks(2, run)

    def test_other_ranks_than_those_of_the_launch_are_refused(self):
        def run(rank):
            alone = dist.new_group([1])
            with self.open() as writer:
                with self.assertRaisesRegex(errors.InvalidError, "use_collectives=False makes each rank's part"):
                    dcp.save({"w": torch.ones(2)}, checkpoint_id=1, storage_writer=writer, use_collectives=False)
                if rank == 1:
                    with self.assertRaisesRegex(CheckpointException, "this is rank 1 of 2 for Breakwater and rank 0"):
                        dcp.save({"w": torch.ones(2)}, checkpoint_id=1, storage_writer=writer, process_group=alone)
                if rank == 0:
                    with self.assertRaisesRegex(CheckpointException, "1 ranks save, and this launch has 2"):
                        dcp.save({"w": torch.ones(2)}, checkpoint_id=1, storage_writer=writer, no_dist=True)
                dist.barrier()
                dcp.save({"w": torch.ones(2)}, checkpoint_id=1, storage_writer=writer)

        self.ranks(2, run)


class Async(Case):
    def test_async_save_returns_once_the_state_may_change_and_clones_nothing(self):
        def run(rank):
            mesh = init_device_mesh("cpu", (2,))
            state = {"w": distribute_tensor(torch.ones(7, 300), mesh, [Shard(0)]), "n": [0]}
            with self.open() as writer:
                self.assertIsInstance(writer, AsyncStager)
                futures = []
                for step in range(1, 5):
                    state["w"].to_local().fill_(step)
                    state["n"][0] = step
                    before = state["w"].to_local().data_ptr()
                    with unittest.mock.patch.object(torch.Tensor, "clone", side_effect=AssertionError("a clone")):
                        futures.append(dcp.async_save(state, checkpoint_id=step, storage_writer=writer))
                    self.assertEqual(before, state["w"].to_local().data_ptr())
                    state["w"].to_local().zero_()
                    state["n"][0] = -1
                self.assertIn("w", futures[-1].result().state_dict_metadata)
                self.assertTrue(all(f.done() for f in futures))
            for step in range(1, 5):
                back = {"w": distribute_tensor(torch.zeros(7, 300), mesh, [Shard(0)]), "n": None}
                dcp.load(back, storage_reader=self.reader(step=step))
                self.assertTrue(bool((back["w"].full_tensor() == step).all()), step)
                self.assertEqual(back["n"], [step])

        self.ranks(2, run)

    def test_a_failure_before_the_capture_is_in_the_future(self):
        def run(rank):
            state = {"w": distribute_tensor(fill((5, 2), 1), init_device_mesh("cpu", (2,)), [Shard(0)])}
            with self.open() as writer:
                for step, method in enumerate(("set_up_planner", "create_local_plan", "finish_plan", "resolve_data")):
                    future = dcp.async_save(state, checkpoint_id=step, storage_writer=writer,
                                            planner=Broken(method, rank == 1))
                    with self.assertRaisesRegex(CheckpointException, "broken on purpose"):
                        future.result(60)
                future = dcp.async_save(state, checkpoint_id=9, storage_writer=writer)
                future.result(60)

        self.ranks(2, run)

    def test_who_does_not_wait_asks_later_and_who_clones_may(self):
        with self.open(synchronize=False) as writer:
            w = torch.ones(1000)
            future = dcp.async_save({"w": w}, checkpoint_id=1, storage_writer=writer)
            writer.synchronize_staging()
            w.zero_()
            future.result(60)
            stager = dcp.staging.BlockingAsyncStager()
            dcp.async_save({"w": w + 2}, checkpoint_id=2, storage_writer=writer, async_stager=stager).result(60)
        for step in (1, 2):
            back = {"w": torch.zeros(1000)}
            dcp.load(back, storage_reader=self.reader(step=step))
            self.assertEqual(float(back["w"].sum()), 1000 * step)

    def test_a_save_that_nobody_makes_is_not_waited_for_for_ever(self):
        with self.open(timeout_s=0.3) as writer:
            writer.stage({})
            with self.assertRaisesRegex(errors.DeadlineError, "was not captured within 0.3 s"):
                writer.synchronize_staging()
            with self.assertRaisesRegex(errors.InvalidError, "a StorageWriter stays in its process"):
                pickle.dumps(writer)
            writer.synchronize_staging()
            thread = threading.Thread(target=lambda: (writer.stage({}), writer.reset(1)))
            thread.start()
            thread.join()
            writer.synchronize_staging()


class Converter(Case):
    STATE = {"w": torch.arange(60.0).reshape(12, 5), "half": torch.arange(7).bfloat16(), "turned": fill((4, 3), 5).t(),
             "part": fill((9, 9), 6)[2:5, 1:8:2], "none": torch.empty(0, 3),
             "scalar": torch.tensor(3, dtype=torch.int16),
             "wide": torch.tensor([1, 65535], dtype=torch.uint16), "truth": torch.tensor([True, False]),
             "values": {"lr": 0.25, "pair": (torch.arange(3), "x"), "list": [1, None]}}

    def zeros(self):
        tensors = {k: torch.zeros_like(v) for k, v in self.STATE.items() if isinstance(v, torch.Tensor)}
        return tensors | {"values": {"lr": 0, "pair": None, "list": None}}

    def equal(self, state, expected=None):
        expected = self.STATE if expected is None else expected
        self.assertEqual(state["values"]["pair"][1], "x")
        self.assertTrue(torch.equal(state["values"]["pair"][0], torch.arange(3)))
        values = ("lr", "list")
        self.same({k: state["values"][k] for k in values}, {k: expected["values"][k] for k in values})
        state, expected = ({k: v for k, v in s.items() if k != "values"} for s in (state, expected))
        self.same(state, expected)

    def folder(self, state=None, name="old/step-7", **options):
        path = f"{self.dir}/{name}"
        dcp.save(self.STATE if state is None else state, storage_writer=dcp.FileSystemWriter(path, **options))
        return path

    def take(self, folder, **options):
        given = dict(run="r", flags=FLAGS, memory_budget_bytes=64 << 20) | options
        return bd.import_folder(folder, f"{self.dir}/remote", **given)

    def test_a_directory_becomes_a_checkpoint_and_a_directory_again(self):
        self.assertEqual(self.take(self.folder()), 7)
        state = self.zeros()
        dcp.load(state, storage_reader=self.reader(step=7))
        self.equal(state)
        with unittest.mock.patch.object(_convert, "CHUNK_BYTES", 100):
            self.assertEqual(bd.export_folder(f"{self.dir}/remote", f"{self.dir}/new", run="r"), 7)
        state = self.zeros()
        dcp.load(state, storage_reader=dcp.FileSystemReader(f"{self.dir}/new"))
        self.equal(state)
        metadata = dcp.FileSystemReader(f"{self.dir}/new").read_metadata()
        self.assertEqual(len(metadata.state_dict_metadata["w"].chunks), 3)
        self.assertEqual(metadata.planner_data["values.lr"], ("values", "lr"))
        self.assertRaises(errors.RefusedError, bd.export_folder, f"{self.dir}/remote", f"{self.dir}/new", run="r")
        self.assertEqual(self.take(f"{self.dir}/new", step=8, job="import"), 8)
        state = self.zeros()
        dcp.load(state, checkpoint_id=8, storage_reader=self.reader())
        self.equal(state)

    def test_shards_of_many_ranks_go_both_ways(self):
        def save(rank):
            trained = train(1, init_device_mesh("cpu", (2,)), 2)
            dcp.save({"app": trained}, storage_writer=dcp.FileSystemWriter(f"{self.dir}/old"))
            ManyRanks.keep(self, trained)

        def load(rank):
            for reader in (self.reader(), dcp.FileSystemReader(f"{self.dir}/new")):
                trained = train(2, init_device_mesh("cpu", (2,)), 1)
                dcp.load({"app": trained}, storage_reader=reader)
                self.same(ManyRanks.kept(self), whole(trained.state_dict()))

        self.ranks(2, save)
        self.take(f"{self.dir}/old", step=1, scratch=self.dir)
        bd.export_folder(f"{self.dir}/remote", f"{self.dir}/new", run="r")
        self.ranks(2, load)

    def test_the_command_does_both(self):
        folder = self.folder()
        args = ["import", folder, f"{self.dir}/remote", "--run", "r", "--allow-node-local"]
        done = subprocess.run([sys.executable, "-m", "breakwater.torch.dcp", *args], capture_output=True, text=True,
                              check=False, timeout=100)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "imported step 7 of run r\n", ""))
        said = self.command("export", f"{self.dir}/remote", f"{self.dir}/new", "--run", "r", "--step", "7")
        self.assertEqual(said, (0, "exported step 7 of run r\n", ""))
        self.assertEqual(self.command(*args), (
            1, "", 'import: run "r" has a history: expected job, the one that makes this checkpoint\n'))

    def command(self, *args):
        out, err = io.StringIO(), io.StringIO()
        with unittest.mock.patch.object(sys, "argv", ["dcp", *args]), contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            code = command.main()
        return code, out.getvalue(), err.getvalue()

    def test_neither_holds_the_state_in_memory(self):
        def run(rank):
            state = {f"w{i}": torch.full((4 << 20,), i, dtype=torch.int32) for i in range(12)}
            folder = self.folder(state, thread_count=1)
            del state
            with Highest() as taken:
                self.take(folder)
            self.assertLess(taken.bytes, 128 << 20)
            with Highest() as given:
                bd.export_folder(f"{self.dir}/remote", f"{self.dir}/new", run="r", memory_budget_bytes=64 << 20)
            self.assertLess(given.bytes, 128 << 20)

        self.ranks(1, run)

    def test_a_metadata_that_could_run_something_is_refused(self):
        folder, marker = self.folder(), f"{self.dir}/ran"

        class Runs:
            def __reduce__(self):
                return os.system, (f"touch {marker}",)

        good = pathlib.Path(folder, ".metadata").read_bytes()
        metadata = dcp.FileSystemReader(folder).read_metadata()
        metadata.planner_data = Runs()
        for data in (pickle.dumps(metadata), pickle.dumps(Runs()), pickle.dumps(os.path.join), pickle.dumps({}), b"",
                     good[:-40], pickle.dumps(dcp.metadata.Metadata({})), pickle.dumps(dcp.metadata.Metadata),
                     pickle.dumps(torch.nn.Linear(1, 1)), b"cbuiltins\neval\n(S'1'\ntR.", b"\x80\x04K\x01."):
            pathlib.Path(folder, ".metadata").write_bytes(data)
            with self.assertRaisesRegex(errors.FormatError, "step-7/.metadata: ", msg=data):
                self.take(folder)
        self.assertFalse(os.path.exists(marker))
        self.assertFalse(os.path.exists(f"{self.dir}/remote"))

    def test_what_a_pickle_does_to_a_class_stays_with_it(self):
        name = b"ctorch.distributed.checkpoint.metadata\nMetadataIndex\n"
        hostile = name + b"(N(dS'__eq__'\nI1\nstb."
        with self.assertRaises(errors.FormatError):
            _pickled.read_metadata(io.BytesIO(hostile))
        self.assertEqual(dcp.metadata.MetadataIndex("a"), dcp.metadata.MetadataIndex("a"))

    def test_broken_directories_are_refused_by_file(self):
        def change(metadata, do):
            do(metadata)
            pathlib.Path(folder, ".metadata").write_bytes(pickle.dumps(metadata))

        def item(metadata, fqn="w"):
            return next(v for k, v in metadata.storage_data.items() if k.fqn == fqn)

        folder = self.folder({"w": torch.arange(60.0).reshape(12, 5), "v": (1, 2)})
        good = pathlib.Path(folder, ".metadata").read_bytes()
        for do, error, text in (
            (lambda m: setattr(item(m), "relative_path", "../old/x"), errors.FormatError, "an item in the file"),
            (lambda m: setattr(item(m), "relative_path", "gone"), errors.NotFoundError, "gone: there is no such file"),
            (lambda m: setattr(item(m), "offset", 1 << 40), errors.FormatError, "bytes, and .* are needed"),
            (lambda m: setattr(item(m), "offset", item(m).offset + 1), errors.FormatError, "__0_0.distcp: "),
            (lambda m: setattr(item(m), "transform_descriptors", ["zstd"]), errors.UnsupportedError, "transformed"),
            (lambda m: setattr(m.state_dict_metadata["w"], "size", torch.Size([13, 5])), errors.FormatError,
             "w: its chunks are not the whole of it"),
            (lambda m: setattr(m.state_dict_metadata["w"].properties, "dtype", torch.int32), errors.FormatError,
             "w: torch.float32 .* in .metadata"),
            (lambda m: setattr(m.state_dict_metadata["w"].properties, "dtype", torch.complex32), errors.FormatError,
             "w: the dtype torch.complex32 cannot be saved"),
            (lambda m: m.storage_data.clear(), errors.FormatError, "w: the chunk at .* is in no file"),
            (lambda m: m.storage_data.pop(dcp.metadata.MetadataIndex("v")), errors.FormatError, "KeyError: .'v', None"),
            (lambda m: setattr(item(m, "v"), "length", 20), errors.InvalidError, "v: no plain value"),
        ):
            change(pickle.loads(good), do)
            with self.assertRaisesRegex(error, text, msg=text):
                self.take(folder)
        pathlib.Path(folder, ".metadata").write_bytes(good)
        data = pathlib.Path(folder, "__0_0.distcp")
        data.write_bytes(data.read_bytes().replace(torch.arange(60.0).numpy().tobytes()[:64], bytes(64)))
        with self.assertRaisesRegex(errors.CorruptError, "__0_0.distcp: .* another CRC-32"):
            self.take(folder)
        self.assertFalse(bw.checkpoints(f"{self.dir}/remote", "r") if os.path.exists(f"{self.dir}/remote") else [])

    def test_chunks_that_overlap_or_leave_gaps_are_refused(self):
        chunk = _folder.Chunk
        good = [chunk((0, 0), (2, 3), "", 0, 0), chunk((0, 3), (4, 1), "", 0, 0), chunk((2, 0), (2, 3), "", 0, 0)]
        _folder._cover("w", good, (4, 4))
        _folder._cover("s", [chunk((), (), "", 0, 0)], ())
        for broken in (good[:2], [*good[:2], chunk((1, 0), (2, 3), "", 0, 0)]):
            with self.assertRaises(ValueError):
                _folder._cover("w", broken, (4, 4))

    def test_tensors_that_a_pickle_makes_up_are_refused(self):
        folder = self.folder({"w": torch.arange(60.0)})
        data = pathlib.Path(folder, "__0_0.distcp")
        good = data.read_bytes()
        for old, new, text in ((b"_rebuild_tensor_v2", b"_rebuild_tensor_v9", "names torch._utils._rebuild_tensor_v9"),
                               (b"FloatStorage", b"FloatStoragf", "names torch.FloatStoragf"),
                               (b"storage", b"storagf", "refers to something that is no storage"),
                               (b"K<\x85", b"K=\x85", "torch.float32 .61,. at 0")):
            data.write_bytes(self.repacked(good, old, new))
            with self.assertRaisesRegex(errors.FormatError, f"__0_0.distcp: .*{text}"):
                self.take(folder)

    def repacked(self, item, old, new):
        """The zip file with another data.pkl, of the same length."""
        made = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(item)) as before, zipfile.ZipFile(made, "w") as after:
            for name in before.namelist():
                data = before.read(name)
                after.writestr(name, data.replace(old, new) if name.endswith(".pkl") else data)
        self.assertLessEqual(len(made.getvalue()), len(item))
        return made.getvalue().rjust(len(item), b"\0")


class Highest:
    """The most anonymous memory that this process has, beyond what it had."""

    def __enter__(self):
        self.first, self.bytes, self.over = self.now(), 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        self.thread.join()

    def watch(self):
        while not self.over.wait(0.003):
            self.bytes = max(self.bytes, self.now() - self.first)

    @staticmethod
    def now():
        line = next(x for x in pathlib.Path("/proc/self/status").read_text().splitlines() if x.startswith("RssAnon"))
        return int(line.split()[1]) << 10


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # DCP tells each failed load twice
    torch.set_num_threads(1)
    unittest.main()
