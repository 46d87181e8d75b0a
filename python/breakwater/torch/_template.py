# SPDX-License-Identifier: Apache-2.0
"""What a training loop saves every time is built alike: then only its leaves are looked at, and the rest of its tree is
that of the last time."""

import collections
import operator

import torch

from .._core import flatten
from ._tensors import numpy
from ._values import PLAIN, dump, is_stateful

HOLE = "$hole"  #: where a plain value goes in the tree of a Template: no text of a state is written so
_KINDS = {torch.Tensor: 1, torch.nn.Parameter: 1, **dict.fromkeys(PLAIN, 3), dict: 4, list: 5, tuple: 6,
          collections.OrderedDict: 7}
_grad = operator.attrgetter("requires_grad")


class Flat:
    """A state as lists of its leaves, and a signature that is equal where nothing but those may differ."""

    def __init__(self):
        self.signature = self.tensors = self.arrays = self.plains = None  # None: it holds what is not walked so
        self.expanded = []  # (object, its state_dict())

    @classmethod
    def of(cls, state):
        """The Flat of a state; without a signature where a walk has to find out more."""
        flat, np = cls(), numpy()
        found = flatten(state, _KINDS if np is None else _KINDS | {np.ndarray: 2}, flat._expand)
        if found is not None:
            flat.signature, flat.tensors, flat.arrays, flat.plains = found
        return flat

    def _expand(self, value):
        if not is_stateful(value):
            return None
        self.expanded.append((value, value.state_dict()))
        return self.expanded[-1][1]


class Template:
    """The text of a tree, open where it has plain values. It keeps no tensor alive."""

    def __init__(self, flat, pieces):
        self._signature, self._plains, self._pieces = flat.signature, flat.plains, pieces
        self._texts = [_text(value) for value in flat.plains]
        self._grads = list(map(_grad, flat.tensors))  # which the tree tells

    @classmethod
    def of(cls, node, walk, flat):
        """The Template of a tree with holes; None: the walk has met other leaves, or in another order."""
        if not walk.holes:
            return None
        met = [*walk.leaves.values(), *walk.arrays.values(), *walk.plains]
        there = [*flat.tensors, *flat.arrays, *flat.plains]
        pieces = dump(node).split(dump(HOLE))
        if len(met) != len(there) or not all(map(operator.is_, met, there)) or len(pieces) != len(flat.plains) + 1:
            return None
        return cls(flat, pieces)

    def fill(self, flat):
        """The text of the tree with the plain values of a state; None: it is built in another way."""
        if flat.signature != self._signature or list(map(_grad, flat.tensors)) != self._grads:
            return None
        texts = list(self._texts)
        for i, (before, now) in enumerate(zip(self._plains, flat.plains, strict=True)):
            # equal ints and texts are the same, not so floats: 0.0 and -0.0
            if before is not now and (before != now or type(now) is float):
                if type(now) is str and not now.isascii():
                    return None  # may have to be refused by its path
                texts[i] = _text(now)
        self._plains, self._texts = flat.plains, texts
        text = [b""] * (2 * len(texts) + 1)
        text[::2], text[1::2] = self._pieces, texts
        return b"".join(text)


def _text(value):
    return dump(PLAIN[type(value)](value))
