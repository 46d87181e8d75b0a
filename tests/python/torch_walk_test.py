#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""breakwater.torch: that what is remembered from one save for the next is used again, and never when it is not true.

    tests/python/torch_walk_test.py [CASE ...]     PYTHONPATH names the build's python/
"""

import collections
import gc
import pathlib
import sys
import unittest
import unittest.mock
import weakref

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import venv_python  # noqa: E402

venv_python.enter("torch")

import numpy as np  # noqa: E402
import torch  # noqa: E402
from breakwater import errors  # noqa: E402
from breakwater.torch import _columns, _encode  # noqa: E402


class Descriptions(unittest.TestCase):
    def test_they_are_used_again_while_nothing_moves(self):
        encoder = _encode.Encoder()
        state = {"a": torch.zeros(2, 3), "b": torch.zeros(4), "c": np.zeros(3), "d": torch.zeros(4)}
        first = encoder.encode(state).tensors
        encoder.encode(state)
        again = encoder.encode({k: v.detach() if k != "c" else v for k, v in state.items()}).tensors
        self.assertTrue(all(x is y for x, y in zip(first, again, strict=True)))
        for change in [lambda: state.update(b=torch.ones(4)), lambda: state["a"].t_(), lambda: state["a"].resize_(1, 3),
                       lambda: state.update(b=state["b"].view(torch.int32)), lambda: state.update(c=np.zeros(3)),
                       lambda: state.update(d=state["b"]), lambda: state.update(d=torch.zeros(4)),
                       lambda: state.update(b=state["d"], d=state["b"]), lambda: state.update(e=torch.zeros(1))]:
            encoder.encode(state)
            encoder.encode(state)
            change()
            fresh, kept = _encode.Encoder().encode(state), encoder.encode(state)
            self.assertEqual(kept.tree, fresh.tree)
            self.assertEqual([repr(t) for t in kept.tensors], [repr(t) for t in fresh.tensors])

    def test_what_cannot_be_described_is_noticed_later_too(self):
        encoder = _encode.Encoder()
        state = {"a": torch.zeros(2, 3), "b": torch.zeros(4)}
        for _ in range(3):
            encoder.encode(state)
        kept = state["b"]
        state["b"] = torch.zeros(4, device="meta")
        for _ in range(2):
            with self.assertRaisesRegex(errors.InvalidError, "^b: .*meta"):
                encoder.encode(state)
        state["b"] = kept
        self.assertEqual(len(encoder.encode(state).tensors), 2)

    def test_a_state_that_is_built_as_before_is_saved_with_the_values_of_now(self):
        encoder, ordered = _encode.Encoder(), collections.OrderedDict(a=1, b=torch.zeros(2))
        norm = torch.nn.BatchNorm1d(2)
        state = {"f": 0.0, "i": 1, "s": "x", "n": None, "d": {1: 2, "k": [1, (2, torch.zeros(1))]}, "o": ordered,
                 "norm": norm, "array": np.zeros(2), "t": torch.zeros(3), "size": torch.Size([1]), "b": b"1"}
        values = [
            lambda: state.update(f=-0.0), lambda: state.update(f=float("nan")), lambda: state.update(i=2),
            lambda: state.update(i=2**70), lambda: state.update(s="$y"), lambda: state.update(b=b"2"),
            lambda: state.update(size=torch.Size([2])), lambda: state["d"]["k"].__setitem__(0, 5), lambda: None,
            lambda: norm.num_batches_tracked.add_(1), lambda: state.update(t=torch.ones(4)),
            lambda: state.update(array=np.zeros(3)), lambda: state["t"].t_(), lambda: state.update(f=0.5)]
        structures = [
            lambda: state.update(i=True), lambda: state.update(s="\u00fc"), lambda: state.update(n=0.5),
            lambda: ordered.move_to_end("a"), lambda: state["d"].update({3: 3}), lambda: state["d"]["k"].append(1),
            lambda: norm.half(), lambda: state["t"].requires_grad_(), lambda: state["t"].requires_grad_(False),
            lambda: state.update(t=torch.nn.Parameter(state["t"])), lambda: setattr(ordered, "_metadata", {"v": 0}),
            lambda: ordered._metadata.update(w=1), lambda: state.update(array=np.zeros(2, np.int64)),
            lambda: state.update(d={"$hole": 1}), lambda: state.update(x="$hole"), lambda: state.update(x='"$hole'),
            lambda: state.update(x=norm), lambda: state.update({'x"$hole': 1}), lambda: state.update(d={1: 2}),
            lambda: state.update(d={True: 2}),
            lambda: state.update(d={1: 2}), lambda: state.update(d={1.0: 2})]
        for change in values + structures:
            encoder.encode(state)
            encoder.encode(state)
            encoder.encode(state)
            change()
            with unittest.mock.patch.object(_encode, "_Walk", side_effect=_encode._Walk) as walk:
                kept = encoder.encode(state)
            if change in values:
                self.assertEqual(walk.call_count, 0)
            fresh = _encode.Encoder().encode(state)
            self.assertEqual(kept.tree, fresh.tree)
            self.assertEqual([repr(t) for t in kept.tensors], [repr(t) for t in fresh.tensors])
        with self.assertRaisesRegex(errors.InvalidError, "^s: "):
            encoder.encode(state | {"s": "\ud83d\ude00"})

    def test_a_storage_that_became_smaller_where_it_was_is_noticed(self):
        memory = np.zeros(8, np.float32)
        tensor = torch.from_numpy(memory)
        encoder = _encode.Encoder()
        for _ in range(3):
            encoder.encode({"a": tensor})
        shorter = torch.from_numpy(memory[:5]).untyped_storage()
        with unittest.mock.patch.object(torch.Tensor, "untyped_storage", lambda _: shorter):
            with self.assertRaisesRegex(errors.InvalidError, "^a: its storage has been given back"):
                encoder.encode({"a": tensor})

    def test_they_keep_no_tensor_alive(self):
        encoder, tensor = _encode.Encoder(), torch.zeros(5)
        gone = []
        weakref.finalize(tensor, gone.append, 1)
        for _ in range(3):
            encoder.encode({"a": tensor})
        del tensor
        gc.collect()
        self.assertEqual(gone, [1])


class DescriptionsOneByOne(Descriptions):
    """The same where PyTorch has nothing that compares many tensors at once."""

    def setUp(self):
        patch = unittest.mock.patch.object(_columns, "TensorGuards", None)
        patch.start()
        self.addCleanup(patch.stop)


if __name__ == "__main__":
    unittest.main()
