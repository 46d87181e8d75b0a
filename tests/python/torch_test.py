#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""breakwater.torch with the real PyTorch: what comes back, what is refused, many ranks, and a run that is killed.

    tests/python/torch_test.py [CASE ...]     PYTHONPATH names the build's python/; BW_TEST_SEED: other random states
"""

import collections
import gc
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import types
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import venv_python  # noqa: E402

venv_python.enter("torch")

import breakwater as bw  # noqa: E402
import breakwater.torch as bt  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from breakwater import errors  # noqa: E402
from breakwater.torch import _decode, _encode, _ranks, _tensors  # noqa: E402

SEED = int(os.environ.get("BW_TEST_SEED", "1"))
FLAGS = bw.ALLOW_SAME_DEVICE | bw.ALLOW_NODE_LOCAL
DTYPES = list(_tensors.DTYPES)
OPTIONS = dict(run="r", job="j", flags=FLAGS, memory_budget_bytes=64 << 20)


def bits(tensor):
    """Its elements in order, as bytes."""
    plain = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


def random_tensor(rng, dtype, shape):
    """Any bits at all: NaNs with payloads, infinities, -0.0."""
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    data = bytes(b % 2 if dtype is torch.bool else b for b in rng.randbytes(count))
    flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(shape)


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="bw-torch-")
        self.addCleanup(scratch.cleanup)
        self.dir = scratch.name

    def open(self, **options):
        given = OPTIONS | dict(local=f"{self.dir}/local") | options
        ck = bt.Checkpointer(f"{self.dir}/remote", **given)
        self.addCleanup(lambda: None if ck.closed else ck.close(5))
        return ck

    def commit(self, state, **options):
        with self.open(**options) as ck:
            ck.save((ck.resumed_step or 0) + 1, state).wait(timeout_s=60)

    def load(self, state=None, **options):
        return bt.load_from(f"{self.dir}/remote", "r", state=state, **options)

    def same(self, a, b, path=""):
        """Types, order, and every bit."""
        self.assertIs(type(a), type(b), path)
        if isinstance(a, torch.Tensor):
            self.assertEqual((a.dtype, a.shape, a.requires_grad), (b.dtype, b.shape, b.requires_grad), path)
            self.assertEqual(bits(a), bits(b), path)
        elif isinstance(a, (np.ndarray, np.generic)):
            self.assertEqual((a.dtype, a.shape, a.tobytes()), (b.dtype, b.shape, b.tobytes()), path)
        elif isinstance(a, dict):
            self.assertEqual([(type(k), k) for k in a], [(type(k), k) for k in b], path)
            for k in a:
                self.same(a[k], b[k], f"{path}.{k}")
        elif isinstance(a, (list, tuple)):
            self.assertEqual(len(a), len(b), path)
            for i, (x, y) in enumerate(zip(a, b)):
                self.same(x, y, f"{path}.{i}")
        elif isinstance(a, float):
            self.assertEqual(struct.pack(">d", a), struct.pack(">d", b), path)
        else:
            self.assertEqual(a, b, path)


class Tensors(Case):
    def test_every_dtype_comes_back_bit_by_bit(self):
        self.assertEqual(len(DTYPES), 20)
        rng = random.Random(SEED)
        state = {str(d): random_tensor(rng, d, (3, 5)) for d in DTYPES}
        self.commit(state)
        self.same(self.load(), state)
        into = {str(d): torch.zeros(3, 5, dtype=torch.uint8).to(d) for d in DTYPES}
        self.assertIs(self.load(into), into)
        self.same(into, state)

    def test_any_layout_is_its_elements_in_order(self):
        base = torch.arange(120.0).reshape(4, 5, 6)
        state = {"view": base[1:3, ::2, 1], "turned": base.permute(2, 0, 1), "base": base,
                 "expanded": base[:, :1, :1].expand(4, 7, 3), "scalar": torch.tensor(3.5), "none": torch.empty(0, 4),
                 "channels": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
                 "conj": torch.randn(3, dtype=torch.complex64).conj(),
                 "neg": torch.randn(3, dtype=torch.complex64).conj().imag}
        self.commit(state)
        self.same(self.load(), state)
        into = {k: torch.zeros(*v.shape, 2, dtype=v.dtype)[..., 0] for k, v in state.items()}
        self.same(self.load(into), state)

    def test_only_what_a_view_shows_is_saved(self):
        with self.open() as ck:
            save = ck.save(1, {"w": torch.zeros(1 << 20)[5:9]})
            save.wait(timeout_s=60)
            self.assertLess(save.stats()["described_bytes"], 1000)

    def test_ties_are_saved_once_and_are_ties_again(self):
        w = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4))
        state = {"embed": w, "head": w, "data": w.data, "turned": w.data.t(), "other": w.data.clone()}
        with self.open() as ck:
            save = ck.save(1, state)
            self.assertEqual(save.stats()["tensors"], 3)
            save.wait(timeout_s=60)
        back = self.load()
        self.same(back, state)
        self.assertIs(back["embed"], back["head"])
        self.assertEqual(back["embed"].data_ptr(), back["data"].data_ptr())
        self.assertNotEqual(back["embed"].data_ptr(), back["other"].data_ptr())
        with torch.no_grad():
            w.zero_()
        self.load(state)
        self.same(state, back)

    def test_parameters_and_gradients_are_told_from_plain_tensors(self):
        fixed = torch.nn.Parameter(torch.ones(3), requires_grad=False)
        state = {"p": torch.nn.Parameter(torch.ones(2)), "fixed": fixed,
                 "leaf": torch.ones(4, requires_grad=True), "made": torch.ones(5, requires_grad=True) * 2}
        self.commit(state)
        self.same(self.load(), state)

    def test_names_that_read_alike_are_two_tensors(self):
        state = {"a.b": torch.tensor(1), "a": {"b": torch.tensor(2)}, "a.b~2": torch.tensor(3), 0: torch.tensor(4),
                 "0": torch.tensor(5), "": torch.tensor(6), "n\0l": torch.tensor(7), "x" * 9000: torch.tensor(8),
                 "x" * 9001: torch.tensor(9), "\ud800": torch.tensor(10), "/../😀|": torch.tensor(11),
                 "tensor": torch.tensor(12), "$": torch.tensor(13)}
        self.commit(state)
        self.same(self.load(), state)
        self.commit(torch.arange(3))
        self.same(self.load(), torch.arange(3))

    def test_each_save_has_the_values_of_its_moment_wherever_they_lie(self):
        with self.open(saves_in_flight_max=4, keep_last=0) as ck:
            for step in range(1, 6):
                state = {"still": torch.full((100,), step), "new": [torch.full((50,), step + i) for i in range(3)]}
                state["tied"] = state["new"][step % 3]
                ck.save(step, state)
                for t in (state["still"], *state["new"]):
                    t.fill_(-1)
                del state
                gc.collect()
        for step in range(1, 6):
            back = self.load(step=step)
            self.assertTrue((back["still"] == step).all())
            self.assertEqual([int(t[0]) for t in back["new"]], [step, step + 1, step + 2])
            self.assertEqual(int(back["tied"][0]), step + step % 3)

    def test_what_has_no_memory_of_its_own_is_refused_by_its_path(self):
        gone = torch.ones(8)
        gone.untyped_storage().resize_(0)
        short = torch.ones(8)[4:]
        short.untyped_storage().resize_(20)

        class Odd(torch.Tensor):
            pass

        with self.open() as ck:
            for wrong, says in [
                    (torch.empty(3, device="meta"), "meta"),
                    (torch.eye(3).to_sparse(), "sparse_coo"),
                    (torch.eye(3).to_sparse_csr(), "sparse_csr"),
                    (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "qint8"),
                    (torch.ones(2, dtype=torch.complex32), "complex32"),
                    (torch.ones([1] * 17), "16 dimensions"),
                    (torch.ones(2).as_subclass(Odd), "Odd"),
                    (torch.nn.UninitializedParameter(), "UninitializedParameter"),
                    (gone, "given back"), (short, "given back")]:
                with self.assertRaisesRegex(errors.InvalidError, rf"^model\.1\.w: .*{says}"):
                    ck.save(1, {"model": [None, {"w": wrong}]})
            ck.save(1, {"w": torch.ones(2)}).wait(timeout_s=60)
            self.assertEqual(ck.stats()["saves_begun"], 1)

    def test_a_tensor_elsewhere_is_refused_and_says_what_to_do(self):
        meta = torch.empty(2, device="meta")
        with unittest.mock.patch.object(torch.Tensor, "device", torch.device("cuda:0")):
            with self.assertRaisesRegex(errors.InvalidError, r"w: a tensor on cuda:0 .*\.cpu\(\)"):
                _tensors.check(meta, "w")


class Values(Case):
    def test_they_come_back_with_their_types(self):
        nan = struct.unpack(">d", bytes.fromhex("7ff8000000000123"))[0]
        np.random.seed(3)
        state = {"none": None, "bools": [True, False], "ints": [0, -1, 2**53 + 1, 2**63 - 1, -2**63, 2**63, 10**5000],
                 "floats": [0.0, -0.0, 0.1, 5e-324, float("inf"), -float("inf"), nan],
                 "texts": ["", "$", "$:a", "é\n\0"], "bytes": b"\0\xff",
                 "empty": [[], (), {}, collections.OrderedDict()], "tuple": (1, (2, [3])),
                 (1, "a", None): {0: 1, True: 2, 1.5: 3, b"k": 4, None: 5}, "$list": 1, "one": {"$int": "0x1"},
                 "python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state(),
                 "generator": torch.Generator().manual_seed(7).get_state(), "size": torch.Size([2, 3]),
                 "dtype": torch.bfloat16, "scalars": [np.float32(0.1), np.int64(-5), np.bool_(True), np.complex128(1j)],
                 "arrays": [np.arange(6).reshape(2, 3)[:, ::-1], np.array(5.0), np.zeros((0, 2), np.uint16)]}
        self.commit(state)
        back = self.load()
        self.same(back, state)
        random.setstate(back["python"])
        np.random.set_state(back["numpy"])
        torch.set_rng_state(back["torch"])

    def test_random_states_come_back(self):
        for seed in range(SEED, SEED + 12):
            with self.subTest(f"BW_TEST_SEED={seed}"):
                state = random_state(random.Random(seed))
                self.commit(state)
                back = self.load()
                self.same(back, state)
                with self.open(launch=f"again{seed}") as ck:
                    self.same(ck.load(), state)

    def test_anything_else_is_refused_by_its_path(self):
        loop = []
        loop.append(loop)
        marked = collections.OrderedDict()
        marked.note = 1
        with self.open() as ck:
            for wrong in [{1}, bytearray(1), 1j, object(), print, int, collections.defaultdict(list), loop, marked,
                          np.array(["a"]), np.array([None]), np.zeros((1,) * 17),
                          np.zeros(1, ">f4"), np.datetime64("2020"), signal.SIGINT,
                          collections.namedtuple("P", "x")(1), {frozenset(): 1}, {signal.SIGINT: 1}, slice(1),
                          {float("nan"): 1}, {(1, float("nan")): 1}, "\ud83d\ude00", {"a\ud83d\ude00": 1}]:
                with self.assertRaisesRegex(errors.InvalidError, r"^a\.0"):
                    ck.save(1, {"a": [wrong]})

    def test_a_modules_versions_come_back(self):
        state = torch.nn.BatchNorm1d(3).state_dict()
        self.commit(state)
        back = self.load()
        self.same(back, state)
        self.assertEqual(back._metadata, state._metadata)


def random_state(rng, depth=0):
    kinds = [lambda: None, lambda: rng.random() < 0.5, lambda: rng.getrandbits(rng.choice([3, 60, 90])) - 7,
             lambda: struct.unpack(">d", rng.randbytes(8))[0], lambda: rng.choice(["", "$a", "w", "ü", "$$"]),
             lambda: rng.randbytes(rng.randrange(5)), lambda: torch.Size([rng.randrange(4)]),
             lambda: rng.choice(DTYPES), lambda: np.float32(rng.random()),
             lambda: np.frombuffer(rng.randbytes(24), np.uint16).reshape(3, 4).T, lambda: random_view(rng)]
    if depth < 4:
        several = range(rng.randrange(6 if depth else 9))
        kinds += [lambda: [random_state(rng, depth + 1) for _ in several],
                  lambda: tuple(random_state(rng, depth + 1) for _ in several),
                  lambda: {rng.choice("abc$.") * rng.randrange(4): random_state(rng, depth + 1) for _ in several},
                  lambda: {rng.choice([None, 1, 2.5, b"", (1, "a"), "s"]): random_state(rng, depth + 1)
                           for _ in several}] * 2
    return (rng.choice(kinds) if depth else kinds[-2])()


def random_view(rng):
    shape = [rng.randrange(1, 4) for _ in range(rng.randrange(4))]
    t = random_tensor(rng, rng.choice(DTYPES), shape)
    if shape and rng.random() < 0.5:
        t = t.transpose(0, -1)[::rng.randrange(1, 3)]
    if t.dtype.is_floating_point and rng.random() < 0.3:
        t = torch.nn.Parameter(t, requires_grad=rng.random() < 0.5)
    return t


class Trees(Case):
    def document(self, tree, tensors=None, **more):
        whole = dict(format="breakwater.torch", version=1, rank=0, world=1, replicated=[], tensors=tensors or {},
                     tree=tree) | more
        return _decode.Document(json.dumps(whole).encode())

    def test_what_keeps_to_no_format_is_refused(self):
        row = {"t": ["F32", [2]], "i": ["I64", [1]]}
        deep = []
        for _ in range(80):
            deep = [deep]
        for tree in [{"$int": 5}, {"$int": "z"}, {"$float": "00"}, {"$bytes": "@"}, {"$size": [None]}, {"$tuple": 1},
                     {"$dtype": "load"}, {"$dict": [[1]]}, {"$dict": [[[], 1]]}, {"$dict": [["a", 1], ["a", 2]]},
                     {"$ordered_dict": [[], None]}, {"$a": 1, "b": 2}, "$x", "$:absent", {"$tensor": []},
                     {"$tensor": ["t", "code"]}, {"$tensor": ["i", "grad"]}, {"$numpy": [7]}, {"$tensor": 5},
                     {"$numpy_scalar": ["|O8", ""]}, {"$numpy_scalar": ["<f4", "AA=="]}, deep, {"$tensor": ["t", []]},
                     {"$numpy_scalar": [[], ""]}, {"$size": [1 << 70]}, {"$dtype": "Tensor.dtype"}, {"$dtype": []},
                     {"$dict": [[{"$float": "7ff8000000000000"}, 1]]}, {"$dict": [[1, 1], [True, 2]]},
                     {"$dict": [[{"$float": []}, 1]]}, {"$ordered_dict": [{}, {"v": "$:t"}]}, {"$bytes": {}}]:
            with self.assertRaises(errors.FormatError, msg=str(tree)):
                _decode.Loader(self.document({"a": tree}, row)).build({"a": tree})
        with self.assertRaisesRegex(errors.VersionError, r"tree at a: unknown tag \"\$later\""):
            _decode.Loader(self.document({})).build({"a": {"$later": 1}})
        with self.assertRaises(errors.VersionError):
            self.document({}, version=2)
        for data in [b"", b"[]", b"\xff", b'{"a":1,"a":2}', b"[NaN]", b"[" * 100000, b'{"format":"breakwater.torch"}']:
            with self.assertRaises((errors.FormatError, errors.VersionError)):
                _decode.Document(data)
        for row in (["F32", [-1]], [["F32"], [1]], ["F32", [1 << 80]], ["F32", [1.0]], ["F32", [1], "n\0"],
                    ["F32", [1], "\ud800"], ["F32", [1] * 17], "F32", ["F32", 1, 1]):
            with self.assertRaises(errors.FormatError, msg=str(row)):
                self.document({}, {"t": row}).stand_ins()
        with self.assertRaises(errors.FormatError):
            self.document({}, world=[])

    def test_a_tree_that_lies_about_a_tensor_is_found_out_before_memory_is_had(self):
        with bw.Checkpointer(**OPTIONS, launch="l", rank=0, world=1, remote_url=f"{self.dir}/remote") as ck:
            tree = json.dumps(dict(format="breakwater.torch", version=1, rank=0, world=1, replicated=[],
                                   tensors={"w": ["F32", [1 << 50]]}, tree={"w": "$:w"}))
            ck.save(1, [bw.Tensor("w", np.zeros(4, np.float32))], blobs={"tree": tree.encode()}).wait(timeout_s=60)
        with self.assertRaises(errors.MismatchError):
            self.load()

    def test_it_is_what_the_page_says(self):
        plan = _encode.Encoder(3, 4, ("model",)).encode(
            {"model": {"weight": torch.zeros(2, 3)}, "rng": torch.zeros(4, dtype=torch.uint8), "step": 7})
        self.assertEqual(json.loads(plan.tree), {
            "format": "breakwater.torch", "version": 1, "rank": 3, "world": 4, "replicated": ["model"],
            "tensors": {"model.weight": ["F32", [2, 3]], "rng": ["U8", [4], "rank3/rng"]},
            "tree": {"model": {"weight": "$:model.weight"}, "rng": "$:rng", "step": 7}})
        self.assertEqual([t.name for t in plan.tensors], ["model.weight", "rank3/rng"])


class Loading(Case):
    def setUp(self):
        super().setUp()
        self.state = {"model": {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3)}, "step": 7, "seen": [1, 2, 3]}
        self.commit(self.state)

    def zeros(self, **more):
        return {"model": {"w": torch.zeros(2, 3), "b": torch.zeros(3)}, "step": 0, "seen": [0]} | more

    def test_it_is_in_place_and_complete(self):
        into = self.zeros()
        model, w, seen = into["model"], into["model"]["w"], into["seen"]
        self.assertIs(self.load(into), into)
        self.same(into, self.state)
        self.assertTrue(into["model"] is model and model["w"] is w and into["seen"] is seen)

    def test_what_does_not_fit_is_told_by_path_and_nothing_is_touched(self):
        for more, says in [
                (dict(extra=1), "not in the checkpoint: extra$"),
                (dict(model={"w": torch.zeros(2, 3)}), r"not in the state: model\.b$"),
                (dict(model={"w": torch.zeros(3, 2), "b": torch.zeros(3, dtype=torch.float64)}),
                 r"differs: model\.w \(F32 \[3, 2\] here, F32 \[2, 3\] there\), model\.b \(F64 \[3\] here, F32 \[3\]"),
                (dict(model=[]), r"differs: model \(list here, dict there\)"),
                (dict(step=torch.zeros(1)), r"differs: step \(Tensor here, value there\)"),
                (dict(model={"w": torch.zeros(2, 3), **{f"x{i}": 0 for i in range(9)}}), "x4 and 4 more; .*: model.b")]:
            into = self.zeros(**more)
            with self.assertRaisesRegex(errors.MismatchError, says):
                self.load(into)
            self.assertEqual(into["seen"], [0])
            if "model" not in more:
                self.assertEqual(into["model"]["w"].sum(), 0)

    def test_strictness_can_be_left_but_no_shape(self):
        into = self.zeros(extra=1, model={"w": torch.zeros(2, 3)})
        self.load(into, strict=False)
        self.assertEqual((into["extra"], into["step"], into["model"]["w"].sum()), (1, 7, 15))
        with self.assertRaises(errors.MismatchError):
            self.load(self.zeros(model={"w": torch.zeros(1)}), strict=False)

    def test_a_part_is_loaded_alone(self):
        into = self.zeros()
        self.load(into, only="model.w")
        self.assertEqual((into["step"], into["model"]["b"].sum(), into["model"]["w"].sum()), (0, 0, 15))
        self.same(self.load(only=["model.b", "step"]), {"model": {"b": torch.ones(3)}, "step": 7})
        with self.assertRaisesRegex(errors.MismatchError, "under mod"):
            self.load(only="mod")
        for wrong in ([1], True, ""):
            with self.assertRaises(errors.InvalidError):
                self.load(only=wrong)

    def test_destinations_of_any_kind_are_read_into(self):
        wide = torch.zeros(3, 4).t()[:2]
        into = self.zeros(model={"w": wide[:, :3], "b": torch.nn.Parameter(torch.zeros(3))})
        version = into["model"]["b"]._version
        self.load(into)
        self.assertEqual((into["model"]["w"].sum(), wide.sum(), into["model"]["b"].sum()), (15, 15, 3))
        self.assertGreater(into["model"]["b"]._version, version)
        for wrong, says in [(torch.zeros(1).expand(3), "share memory"), (torch.zeros(3, device="meta"), "meta"),
                            (torch.zeros(5).as_strided((3,), (0,)), "share memory")]:
            with self.assertRaisesRegex(errors.InvalidError, rf"model\.b: .*{says}"):
                self.load(self.zeros(model={"w": torch.zeros(2, 3), "b": wrong}))

    def test_destinations_that_overlap_are_told_unless_the_values_agree(self):
        flat = torch.zeros(9)
        with self.assertRaisesRegex(errors.MismatchError, r"model\.w and model\.b|model\.b and model\.w"):
            self.load(self.zeros(model={"w": flat[:6].view(2, 3), "b": flat[3:6]}))
        with self.assertRaisesRegex(errors.MismatchError, "one tensor here, and two"):
            self.commit({"x": torch.ones(3), "y": torch.zeros(3)})
            self.load({"x": flat[:3], "y": flat[:3]})
        base = torch.arange(12.0).reshape(3, 4)
        self.commit({"base": base, "column": base[:, 1], "odd": base[:, 1::2]})
        into = torch.zeros(3, 4)
        self.load({"base": into, "column": into[:, 1], "odd": into[:, 1::2]})
        self.assertTrue(torch.equal(into, base))
        into = torch.zeros(3, 4)
        self.load({"base": None, "column": into[:, 0], "odd": into[:, 1::2]})
        self.assertTrue(torch.equal(into[:, 0], base[:, 1]) and torch.equal(into[:, 1::2], base[:, 1::2]))

    def test_arrays_are_read_into_where_they_can_be(self):
        self.commit({"a": np.arange(4), "b": np.arange(3)})
        a, fixed = np.zeros(4, np.int64), np.zeros(3, np.int64)
        fixed.flags.writeable = False
        back = self.load({"a": a, "b": fixed})
        self.assertTrue(back["a"] is a and a.sum() == 6 and fixed.sum() == 0)
        self.same(back["b"], np.arange(3))
        broadcast = np.lib.stride_tricks.as_strided(np.zeros(1, np.int64), (4,), (0,), writeable=True)
        with self.assertRaisesRegex(errors.InvalidError, "^a: elements of it share memory"):
            self.load({"a": broadcast, "b": None})
        backwards = np.zeros(8, np.int64)[::-2]
        self.assertEqual(self.load({"a": backwards, "b": None})["a"].tolist(), [0, 1, 2, 3])

    def test_from_nothing_there_is_nothing_to_load(self):
        with self.open(run="empty") as ck:
            self.assertIsNone(ck.resumed_step)
            with self.assertRaises(errors.NotFoundError):
                ck.load()
        with self.assertRaises(LookupError):
            bt.load_from(f"{self.dir}/remote", "r", 99)


class Training(Case):
    def make(self):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5),
                                    torch.nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        return {"model": model, "optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2),
                "rng": None}

    def train(self, parts, steps):
        losses = []
        for _ in range(steps):
            parts["optimizer"].zero_grad()
            loss = parts["model"](torch.randn(16, 4)).square().mean()
            loss.backward()
            parts["optimizer"].step()
            parts["scheduler"].step()
            losses.append(loss.item())
        return losses

    def test_objects_give_their_state_and_take_it_back(self):
        parts = self.make()
        self.train(parts, 3)
        with self.open() as ck:
            ck.save(3, parts | {"rng": torch.get_rng_state()}).wait(timeout_s=60)
        expected = self.train(parts, 4)
        again = self.make()
        pointers = [p.data_ptr() for p in again["model"].parameters()]
        with self.open() as ck:
            self.assertEqual(ck.resumed_step, 3)
            ck.load(again)
        self.assertEqual([p.data_ptr() for p in again["model"].parameters()], pointers)
        torch.set_rng_state(again["rng"])
        self.assertEqual(self.train(again, 4), expected)
        weights = self.make()
        self.load(weights, only="model")
        self.assertEqual(weights["optimizer"].state_dict()["state"], {})

    def test_what_an_object_would_refuse_is_told_before_anything_is_touched(self):
        parts = self.make()
        parts["scheduler"] = torch.optim.lr_scheduler.LambdaLR(parts["optimizer"], lambda step: 1 / (step + 1))
        self.train(parts, 2)
        self.commit(parts)
        two = torch.optim.AdamW([{"params": list(self.make()["model"].parameters())}, {"params": [torch.ones(1)]}])
        fewer = torch.optim.AdamW(list(self.make()["model"].parameters())[:3])
        chained = torch.optim.lr_scheduler.ChainedScheduler([parts["scheduler"]])
        for name, other, says in [
                ("optimizer", two, r"optimizer \(parameter groups of \[6, 1\] here, of \[6\] there\)"),
                ("optimizer", fewer, r"optimizer \(parameter groups of \[3\] here, of \[6\] there\)"),
                ("optimizer", parts["scheduler"], r"optimizer\.lr_lambdas \(1 entries here, nothing there\)"),
                ("scheduler", two, r"scheduler \(AdamW here, something else there\)"),
                ("scheduler", chained, r"scheduler\._schedulers \(1 entries here, nothing there\)"),
                ("scheduler", torch.optim.lr_scheduler.LambdaLR(two, [lambda _: 1, lambda _: 2]),
                 r"scheduler\.lr_lambdas \(2 entries here, 1 entries there\)")]:
            into = self.make() | {"scheduler": torch.optim.lr_scheduler.LambdaLR(fewer, lambda _: 1)} | {name: other}
            before = bits(into["model"][0].weight)
            with self.assertRaisesRegex(errors.MismatchError, says, msg=says):
                self.load(into)
            self.assertEqual(bits(into["model"][0].weight), before)

    def test_a_part_of_what_takes_its_state_whole_is_refused_before_anything_is_touched(self):
        parts = self.make()
        self.train(parts, 2)
        self.commit(parts)
        into = self.make()
        before = bits(into["model"][0].weight)
        for only in ("optimizer.state", ["model", "optimizer.state.0"], ["model", "scheduler.base_lrs"]):
            with self.assertRaisesRegex(errors.InvalidError, "only: (optim|sched).* takes its state as a whole"):
                self.load(into, only=only)
            self.assertEqual(bits(into["model"][0].weight), before)
        self.load(into, only=["model.0", "optimizer"])
        self.assertEqual(bits(into["model"][0].weight), bits(parts["model"][0].weight))
        self.assertNotEqual(bits(into["model"][3].weight), bits(parts["model"][3].weight))
        self.same(into["optimizer"].state_dict(), parts["optimizer"].state_dict())

    def test_a_save_can_be_waited_for_at_the_last_moment(self):
        for capture in (bw.Capture.COPY, bw.Capture.COW):
            parts = self.make()
            self.train(parts, 1)
            before = {k: v.clone() for k, v in parts["model"].state_dict().items()}
            with self.open(run=f"late{capture}", capture=capture, launch=f"l{capture}") as ck:
                save = ck.save(1, parts["model"].state_dict(), wait=False)
                hook = parts["optimizer"].register_step_pre_hook(lambda *_: save.wait_writable())
                parts["model"].eval()  # else the forward pass writes running means
                self.train(parts, 1)
                hook.remove()
                save.wait(timeout_s=60)
                del save
            back = bt.load_from(f"{self.dir}/remote", f"late{capture}")
            self.assertTrue(all(torch.equal(back[k], v) for k, v in before.items()))

    def test_what_is_saved_outlives_its_tensors(self):
        with self.open() as ck:
            first = ck.save(1, [torch.full((1 << 16,), i) for i in range(20)], wait=False)
            gc.collect()
            junk = [torch.full((1 << 16,), -1) for _ in range(20)]
            first.wait(timeout_s=60)
            ck.save(2, junk).wait(timeout_s=60)
        self.assertEqual([int(t[0]) for t in self.load(step=1)], list(range(20)))


class Example(Case):
    """examples/pytorch/train.py, which prints each step with the bits of its loss."""

    PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "examples/pytorch/train.py"

    def run_until(self, folder, step, steps=30, number=signal.SIGKILL):
        """The lines that it prints; it gets a signal as soon as that step is among them."""
        command = [sys.executable, str(self.PROGRAM), f"{self.dir}/{folder}", str(steps)]
        lines = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                lines.append(line)
                if line.startswith(f"step {step} "):
                    process.send_signal(number)
        killed = step is not None and number == signal.SIGKILL
        self.assertEqual(process.returncode, -signal.SIGKILL if killed else 0)
        return lines

    def test_killed_and_started_again_it_ends_with_the_same_bits(self):
        whole = self.run_until("whole", None)
        self.assertEqual(len(whole), 30)
        told = {}
        for kill in (7, 19, None):
            lines = self.run_until("killed", kill)
            for line in lines:
                step = int(line.split()[1])
                self.assertEqual(told.setdefault(step, line), line)
        self.assertGreater(int(lines[0].split()[1]), 1)
        self.assertEqual(list(told.values()), whole)
        self.same(*(bt.load_from(f"{self.dir}/{folder}/remote", "example") for folder in ("whole", "killed")))


    def test_told_to_end_it_saves_the_step_that_it_has_come_to(self):
        lines = self.run_until("told", 5, 100000, signal.SIGTERM)
        step = int(lines[-1].split()[1])
        self.assertLess(step, 100000)
        back = bt.load_from(f"{self.dir}/told/remote", "example")
        self.assertEqual(back["step"], step)


class Preempted(Case):
    def test_all_ranks_end_after_the_step_behind_the_one_that_was_told(self):
        store, told, ended = dist.HashStore(), {(1, 3): True, (2, 4): True}, {}
        gates = [threading.Barrier(3) for _ in range(8)]

        def train(rank, group):
            preemption = bt.Preemption(types.SimpleNamespace(_ranks=group, _launch="l"))
            for step in range(1, 8):
                gates[step].wait(20)  # the exchange of gradients
                if (rank, step) in told:
                    preemption._tell()
                if preemption.is_last(step):
                    ended[rank] = step, preemption.left_s is not None
                    return

        groups = []
        for rank in range(3):
            with unittest.mock.patch.multiple(dist, get_rank=lambda rank=rank: rank, get_world_size=lambda: 3), \
                    unittest.mock.patch.object(dist.distributed_c10d, "_get_default_store", lambda: store):
                groups.append(_ranks.Group("r", 20))
        with unittest.mock.patch.object(signal, "signal"):
            threads = [threading.Thread(target=train, args=(rank, group)) for rank, group in enumerate(groups)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
        self.assertEqual(ended, {rank: (4, True) for rank in range(3)})

    def test_ranks_given_by_hand_cannot_agree_on_a_step(self):
        with self.open(rank=0, world=1) as ck:
            before = signal.getsignal(signal.SIGTERM)
            with bt.Preemption(ck, signals=[signal.SIGTERM, signal.SIGUSR1]) as preemption:
                self.assertFalse(preemption.is_last(1))
                self.assertIsNone(preemption.left_s)
                os.kill(os.getpid(), signal.SIGUSR1)
                self.assertTrue(preemption.is_last(1))
                self.assertTrue(20 < preemption.left_s <= 25)
            self.assertTrue(ck.closed)
            self.assertEqual(signal.getsignal(signal.SIGTERM), before)
        with self.assertRaisesRegex(errors.InvalidError, "cannot agree on their last step"):
            bt.Preemption(types.SimpleNamespace(_ranks=_ranks.Alone(0, 2)))

    def test_torchrun_told_to_end_leaves_a_checkpoint_of_one_step(self):
        worker = pathlib.Path(self.dir) / "worker.py"
        worker.write_text(textwrap.dedent(f"""
            import torch, torch.distributed as dist, breakwater.torch as bt
            torch.set_num_threads(1)
            dist.init_process_group("gloo")
            options = dict(run="r", flags={FLAGS}, memory_budget_bytes=64 << 20)
            with bt.Checkpointer({self.dir + "/remote"!r}, **options) as ck, bt.Preemption(ck) as preemption:
                state = {{"sum": torch.zeros(3), "rank": dist.get_rank()}}
                for step in range(1, 100000):
                    one = torch.ones(3)
                    dist.all_reduce(one)
                    state["sum"] += one
                    last = preemption.is_last(step)
                    if last:
                        ck.save(step, state)
                        break
                    print("step", step, flush=True)
            print("ended", dist.get_rank(), step, ck.closed, flush=True)
        """))
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d",
                   "--rdzv-endpoint=localhost:0", "--local-addr=localhost", str(worker)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {
                "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}) as process:
            for line in process.stdout:
                if line == "step 20\n":
                    process.send_signal(signal.SIGTERM)
                    break
            out, err = process.communicate(timeout=90)
        ended = sorted(line.split() for line in out.splitlines() if line.startswith("ended"))
        self.assertEqual([e[:2] + e[3:] for e in ended], [["ended", str(r), "True"] for r in (0, 1)], err)
        self.assertEqual(ended[0][2], ended[1][2])
        for rank in (0, 1):
            back = self.load(rank=rank, step=int(ended[0][2]))
            self.assertTrue((back["sum"] == 2 * int(ended[0][2])).all() and back["rank"] == rank)


class Ranks(Case):
    def start(self, text, count, **environ):
        head = f"""
            import os, sys, random
            import torch, torch.distributed as dist, breakwater as bw, breakwater.torch as bt
            rank, world, dir = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), {self.dir!r}
            torch.set_num_threads(1)
            meet = f"file://{{dir}}/meet{{sys.argv[1]}}"
            dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world)
            def open(**options):
                return bt.Checkpointer(dir + "/remote", local=dir + f"/local{{rank}}", run="r", flags={FLAGS},
                                       memory_budget_bytes=64 << 20, open_timeout_ms=60000, **options)
        """
        self.meeting = getattr(self, "meeting", 0) + 1
        whole = textwrap.dedent(head) + textwrap.dedent(text) + "\ndist.destroy_process_group()\n"
        base = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": str(count)} | environ
        running = [subprocess.Popen([sys.executable, "-c", whole, str(self.meeting)], env=base | {"RANK": str(rank)},
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for rank in range(count)]
        said = []
        for process in running:
            try:
                out, err = process.communicate(timeout=100)
            finally:
                process.kill()
            self.assertEqual((process.returncode, err), (0, ""))
            said.append(out)
        return said

    def test_ranks_agree_save_their_parts_and_go_on_with_another_number(self):
        self.start("""
            assert sys.argv[1] == "1"
            with open(replicated="model") as ck:
                assert (ck.rank, ck.world, ck.resumed_step) == (rank, 2, None)
                state = {"model": {f"w{i}": torch.full((1000,), i) for i in range(8)}, "own": torch.tensor(rank),
                         "seen": [rank]}
                save = ck.save(1, state)
                save.wait(timeout_s=60)
                print(save.stats()["raw_bytes"])
        """, 2)
        self.start("""
            with open(replicated="model") as ck:
                assert ck.resumed_step == 1
                back = ck.load({"model": None, "own": torch.tensor(-1), "seen": []})
                assert int(back["own"]) == rank and back["seen"] == [rank] and int(back["model"]["w7"][0]) == 7
        """, 2)
        with self.open(launch="alone", local=None) as ck:
            with self.assertRaisesRegex(errors.MismatchError, "own belongs to one rank alone, .* by 2 ranks"):
                ck.load()
            self.assertEqual(list(ck.load(only="model")["model"]), [f"w{i}" for i in range(8)])
            self.assertEqual(ck.load(from_rank=1)["seen"], [1])
            self.assertEqual(int(ck.load(from_rank=1)["own"]), 1)
        self.assertEqual(self.load(rank=0)["seen"], [0])
        names = sorted(t["name"] for t in bw.Reader(f"{self.dir}/remote", "r").tensors())
        self.assertEqual(names, [f"model.w{i}" for i in range(8)] + ["rank0/own", "rank1/own"])

    def test_torchrun_restarts_ranks_that_go_on_where_they_were(self):
        worker = pathlib.Path(self.dir) / "worker.py"
        worker.write_text(textwrap.dedent(f"""
            import os, signal
            import torch, torch.distributed as dist, breakwater.torch as bt
            torch.set_num_threads(1)
            dist.init_process_group("gloo")
            rank, dir = dist.get_rank(), {self.dir!r}
            with bt.Checkpointer(dir + "/remote", run="r", flags={FLAGS}, memory_budget_bytes=64 << 20,
                                 replicated="w") as ck:
                state = {{"w": torch.zeros(1000), "own": torch.zeros(3) + rank, "step": 0}}
                if ck.resumed_step is not None:
                    ck.load(state)
                    assert state["step"] == ck.resumed_step >= 2
                for step in range(state["step"] + 1, 6):
                    state["w"] += step
                    state["own"] *= 2
                    state["step"] = step
                    save = ck.save(step, state)
                    if step == 3 and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                        os.kill(os.getpid(), signal.SIGKILL)
                    save.wait(timeout_s=60)
            print("ended", rank, ck.resumed_step, flush=True)
            dist.destroy_process_group()
        """))
        done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1",
                               "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--monitor-interval=0.1",
                               "--local-addr=localhost", str(worker)], capture_output=True, text=True, timeout=150,
                              check=False, env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
                                                       "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        ended = sorted(line.split() for line in done.stdout.splitlines() if line.startswith("ended"))
        self.assertEqual([e[:2] for e in ended], [["ended", "0"], ["ended", "1"]])
        self.assertGreaterEqual(int(ended[0][2]), 2)
        for rank in (0, 1):
            back = self.load(rank=rank)
            self.assertTrue((back["w"] == 15).all() and (back["own"] == rank * 32).all() and back["step"] == 5)

    def test_what_earlier_ranks_left_in_the_store_is_not_believed(self):
        store = dist.HashStore()
        groups = []
        for rank in (0, 1, 2, 0, 1, 2):
            with unittest.mock.patch.multiple(dist, get_rank=lambda rank=rank: rank, get_world_size=lambda: 3), \
                    unittest.mock.patch.object(dist.distributed_c10d, "_get_default_store", lambda: store):
                groups.append(_ranks.Group("r", 0.3 if len(groups) == 3 else 20))
        heard = {}

        def agree(life, rank, text):
            heard[life, rank] = groups[3 * life + rank].agree(text)

        def together(*who):
            threads = [threading.Thread(target=agree, args=w) for w in who]
            for t in threads:
                t.start()
                time.sleep(0.1)
            for t in threads:
                t.join()

        together((0, 1, "b"), (0, 0, "first"), (0, 2, "c"))
        with self.assertRaisesRegex(errors.DeadlineError, "ranks 1, 2 have not come"):
            agree(1, 0, "early")
        groups[3] = groups[0]
        together((1, 2, "c"), (1, 0, "second"), (1, 1, "b"))
        self.assertEqual([heard[w] for w in sorted(heard)], ["first"] * 3 + ["second"] * 3)
        groups[1]._timeout_s = 0.1
        with self.assertRaisesRegex(errors.DeadlineError, "rank 0 did not say"):
            agree(0, 1, "b")

    def test_ranks_without_a_process_group_are_told(self):
        with unittest.mock.patch.dict(os.environ, {"WORLD_SIZE": "2"}):
            with self.assertRaisesRegex(errors.InvalidError, "init_process_group"):
                self.open()
        with self.assertRaisesRegex(errors.InvalidError, "both or neither"):
            self.open(rank=0)
        with self.assertRaisesRegex(errors.InvalidError, "job and launch"):
            self.open(rank=0, world=2)
        self.open(rank=0, world=1, launch="given").close()

    def test_the_job_is_the_launchers_where_that_is_unique(self):
        me = _ranks.job_of_launcher({})
        self.assertEqual(me, _ranks.job_of_launcher({"TORCHELASTIC_RUN_ID": "none"}))
        self.assertRegex(me, rf"^parent-.*{os.getppid()}-[0-9a-f]{{16}}")
        self.assertEqual(_ranks.job_of_launcher({"TORCHELASTIC_RUN_ID": "abc", "SLURM_JOB_ID": "7"}), "torchrun-abc")
        self.assertEqual(_ranks.job_of_launcher({"SLURM_JOB_ID": "7", "SLURM_CLUSTER_NAME": "c"}), "slurm-c-7")
        odd = [_ranks.as_id(t) for t in ("a/b", "a_b", "a" * 300, "a" * 301)]
        self.assertEqual(len(set(odd)), 4)
        for name in odd:
            self.assertRegex(name, r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
        child = subprocess.run([sys.executable, "-c", "from breakwater.torch import _ranks as r; print(r._life_of("
                                f"{os.getppid()}))"], capture_output=True, text=True, check=True)
        self.assertEqual(child.stdout.strip(), _ranks._life_of(os.getppid()))


if __name__ == "__main__":
    unittest.main(warnings="ignore")  # PyTorch's, about kinds of tensors that are to be refused
