#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""breakwater.torch with real DTensors: saved by some ranks, loaded by others, bit for bit.

    tests/python/sharded_test.py [CASE ...]     PYTHONPATH names the build's python/
"""

import multiprocessing
import os
import pathlib
import random
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import venv_python  # noqa: E402

venv_python.enter("torch")

import breakwater as bw  # noqa: E402
import breakwater.torch as bt  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from breakwater import errors  # noqa: E402
from breakwater.torch import _placement  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import (DTensor, Partial, Replicate, Shard, distribute_tensor,  # noqa: E402
                                      init_device_mesh)
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module  # noqa: E402

FLAGS = bw.ALLOW_SAME_DEVICE | bw.ALLOW_NODE_LOCAL
MESHES = {1: (1, 1), 2: (1, 2), 3: (3, 1), 4: (2, 2)}  #: number of ranks -> their mesh of two dimensions
R, S0, S1 = Replicate(), Shard(0), Shard(1)
#: name -> (shape, placements on a mesh of one dimension, or of two)
LAYOUTS = {
    "rows": ((10, 3), [S0]), "columns": ((3, 7), [S1]), "few": ((2, 5), [S0]), "all": ((4,), [R]), "scalar": ((), [R]),
    "none": ((0, 3), [S0]), "hybrid": ((9, 2), [R, S0]), "turned": ((9, 2), [S1, R]), "both": ((7, 6), [S0, S1]),
    "twice": ((11,), [S0, S0]), "crossed": ((5, 3), [S1, S0]), "copies": ((3, 2), [R, R]), "rank": ((6,), [S0]),
}


def value(name, shape, dtype=torch.float32):
    """The whole of a tensor, the same on all ranks: any bits at all."""
    data = random.Random(name).randbytes(max(1, torch.Size(shape).numel()) * dtype.itemsize)
    return torch.frombuffer(bytearray(data), dtype=dtype)[:torch.Size(shape).numel()].reshape(shape)


def layouts(world, like=lambda name, shape: value(name, shape)):
    line, plane = init_device_mesh("cpu", (world,)), init_device_mesh("cpu", MESHES[world])
    state = {}
    for name, (shape, placements) in LAYOUTS.items():
        mesh = line if len(placements) == 1 else plane
        state[name] = distribute_tensor(like(name, shape), mesh, placements, src_data_rank=None)
    return state


class Model(torch.nn.Module):
    """Sizes that no number of ranks divides."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(5, 10), torch.nn.Linear(10, 3)

    def forward(self, x):
        return self.outer(self.inner(x).relu())


def trained(world, steps, tensor_parallel=False):
    """A sharded model with the moments of some steps; of none, if it is to be loaded into."""
    torch.manual_seed(1 if steps else 2)
    model = Model()
    mesh = init_device_mesh("cpu", MESHES[world], mesh_dim_names=("data", "tensor"))
    if tensor_parallel:
        parallelize_module(model, mesh["tensor"], {"inner": ColwiseParallel(), "outer": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"] if tensor_parallel else init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(steps):
        model(torch.ones(2, 5)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"model": model, "optimizer": optimizer}


def whole(state):
    """path -> bits of each tensor in a state, all of it."""
    if hasattr(state, "state_dict"):
        state = state.state_dict()
    if isinstance(state, dict):
        return {f"{k}.{path}": bits for k, v in state.items() for path, bits in whole(v).items()}
    if not isinstance(state, torch.Tensor):
        return {}
    full = state.detach().full_tensor() if isinstance(state, DTensor) else state.detach()
    return {str(full.dtype): full.contiguous().reshape(-1).view(torch.uint8).tolist()}


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="bw-sharded-")
        self.addCleanup(scratch.cleanup)
        self.dir, self.meetings = scratch.name, 0

    def open(self, **options):
        given = dict(run="r", job="j", flags=FLAGS, memory_budget_bytes=64 << 20, open_timeout_ms=60000,
                     replicated=["optimizer", "step"]) | options
        return bt.Checkpointer(f"{self.dir}/remote", **given)

    def ranks(self, world, body):
        """Runs body(rank) in so many processes with a Gloo group."""
        self.meetings += 1
        context = multiprocessing.get_context("fork")
        running = [context.Process(target=self.be, args=(rank, world, body)) for rank in range(world)]
        for process in running:
            process.start()
        for process in running:
            process.join(90)
            process.kill()
            process.join()
        self.assertEqual([process.exitcode for process in running], [0] * world)

    def be(self, rank, world, body):
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{self.dir}/meet{self.meetings}", rank=rank,
                                world_size=world)
        body(rank)
        dist.barrier()
        dist.destroy_process_group()

    def through(self, worlds, make, expected):
        """Saved by the first number of ranks, and by each other one what that has loaded."""
        def go(rank, world, first):
            state = make(world, first) | {"step": 7 if first else 0, "own": rank}
            with self.open() as ck:
                if not first:
                    self.assertRaisesRegex(errors.MismatchError, "own belongs to one rank", ck.load, state)
                    ck.load(state, only=[k for k in state if k != "own"])
                self.assertEqual(state.pop("step"), 7)
                self.lie_alike(state.get("optimizer"))
                self.assertEqual(whole({k: v for k, v in state.items() if k != "own"}), expected(world))
                ck.save((ck.resumed_step or 0) + 1, state | {"step": 7}).wait(timeout_s=60)

        for i, world in enumerate(worlds):
            self.ranks(world, lambda rank, world=world, first=i == 0: go(rank, world, first))


    def lie_alike(self, optimizer):
        """The moments are DTensors that lie as their parameters do."""
        for parameter, moments in optimizer.state.items() if optimizer is not None else []:
            for moment in (moments["exp_avg"], moments["exp_avg_sq"]):
                self.assertIsInstance(moment, DTensor)
                self.assertEqual((moment.placements, moment.device_mesh, moment.to_local().shape),
                                 (parameter.placements, parameter.device_mesh, parameter.to_local().shape))


class Layouts(Case):
    def test_any_number_of_ranks_loads_what_any_other_saved(self):
        want = whole({name: value(name, shape) for name, (shape, _) in LAYOUTS.items()})
        zeros = lambda _, shape: torch.zeros(shape)  # noqa: E731
        self.through([4, 2, 3, 1], lambda world, first: layouts(world) if first else layouts(world, zeros),
                     lambda _: want)
        back = bt.load_from(f"{self.dir}/remote", "r", only=list(LAYOUTS))
        self.assertEqual(whole(back), want)
        self.assertTrue(all(type(t) is torch.Tensor for t in back.values()))
        with bw.Reader(f"{self.dir}/remote", "r", 1) as reader:
            boxes = {t["name"]: (t["shape"], t["boxes"]) for t in reader.tensors()}
        self.assertEqual([boxes[n] for n in ("rows", "few", "hybrid", "both", "all/rank", "all")],
                         [((10, 3), 4), ((2, 5), 4), ((9, 2), 2), ((7, 6), 4), ((6,), 4), ((4,), 1)])

    def test_each_rank_reads_its_part_alone(self):
        def make(whole):
            return {"w": distribute_tensor(whole, init_device_mesh("cpu", (2,)), [S0], src_data_rank=None)}

        def saved(_):
            with self.open() as ck:
                save = ck.save(1, make(value("w", (64, 1 << 16))))
                self.assertLess(save.stats()["described_bytes"], 9 << 20)
                save.wait(timeout_s=60)

        def loaded(rank):
            state = make(torch.zeros(64, 1 << 16))
            with self.open() as ck, ck._core.restore() as reader:
                bt._checkpointer._load(reader, rank, state, only=None, strict=True, shared_only=True)
                self.assertLess(reader.stats()["verified_bytes"], 9 << 20)
            self.assertEqual(whole(state), whole({"w": value("w", (64, 1 << 16))}))

        self.ranks(2, saved)
        self.ranks(2, loaded)

    def test_what_is_no_part_of_a_tensor_is_refused_by_its_path(self):
        def go(rank):
            mesh = init_device_mesh("cpu", (2,))
            partial = DTensor.from_local(torch.ones(3), mesh, [Partial()])
            wrong = DTensor.from_local(torch.ones(3), mesh, [S0], run_check=False, shape=(4,), stride=(1,))
            elsewhere = DTensor.from_local(torch.ones(3), dist.DeviceMesh("cpu", [1 - rank]), [S0], run_check=False)
            with self.open() as ck:
                for tensor, says in ((partial, "Partial.* redistribute"), (wrong, r"holds \[3\] of it"),
                                     (elsewhere, "not in its mesh")):
                    with self.assertRaisesRegex(errors.InvalidError, rf"^a\.w: .*{says}"):
                        ck.save(1, {"a": {"w": tensor}})
                state = {"a": {"w": distribute_tensor(torch.ones(3, 2), mesh, [S0], src_data_rank=None)}}
                ck.save(1, state).wait(timeout_s=60)
            with self.open() as ck:
                other = {"a": {"w": distribute_tensor(torch.ones(2, 3), mesh, [S0], src_data_rank=None)}}
                with self.assertRaisesRegex(errors.MismatchError, r"a\.w \(F32 \[2, 3\] here, F32 \[3, 2\] there"):
                    ck.load(other)
                with self.assertRaisesRegex(errors.InvalidError, r"^a\.w: .*Partial"):
                    ck.load({"a": {"w": partial}})

        self.ranks(2, go)


class Training(Case):
    def test_models_and_moments_are_those_that_were_saved(self):
        for kind in (False, True):
            with self.subTest(tensor_parallel=kind), tempfile.TemporaryDirectory() as self.dir:
                reference = pathlib.Path(self.dir) / "reference"

                def expected(world, reference=reference):
                    return torch.load(reference)

                def make(world, first, kind=kind, reference=reference):
                    made = trained(world, 2 if first else 0, kind)
                    if first:
                        found = whole(made)
                        if dist.get_rank() == 0:
                            torch.save(found, reference)
                        dist.barrier()
                        self.assertEqual(sum(path.startswith("optimizer") for path in found), 12)
                        self.assertTrue(any(isinstance(t["exp_avg"], DTensor)
                                            for t in made["optimizer"].state_dict()["state"].values()))
                    return made

                self.through([4, 2, 3] if kind else [4, 3, 1], make, expected)


class Boxes(unittest.TestCase):
    def test_strided_shards_divide_what_those_behind_them_have_divided(self):
        from torch.distributed.tensor.placement_types import _StridedShard

        for placements, sizes, order in [
                ([S0, S0], (2, 3), [0, 1]), ([S1, S0], (2, 3), [0, 1]), ([R, S0], (2, 3), [1]),
                ([_StridedShard(0, split_factor=3), S0], (2, 3), [1, 0]),
                ([_StridedShard(0, split_factor=3), S1, S0], (2, 5, 3), [1, 2, 0]),
                ([_StridedShard(0, split_factor=6), S0, S0], (4, 2, 3), [1, 2, 0])]:
            self.assertEqual(_placement._order(placements, sizes), order)

    def test_a_dimension_is_divided_as_torch_chunk_does(self):
        for size in range(12):
            for count in range(1, 6):
                chunks = [len(c) for c in torch.arange(size).chunk(count)] if size else []
                want = chunks + [0] * (count - len(chunks))
                self.assertEqual([_placement._chunk(size, count, i)[1] for i in range(count)], want)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
