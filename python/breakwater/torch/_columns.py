# SPDX-License-Identifier: Apache-2.0
"""What descriptions of tensors are made of, of many tensors at once: a list for each property, compared as lists."""

import operator

import torch

from . import _tensors

try:  # compares type, dtype, shape and strides of many tensors in one call; not public: it may be missing one day
    from torch._C._dynamo.guards import TensorGuards
except ImportError:
    TensorGuards = None

_shape = operator.attrgetter("shape")
_dtype = operator.attrgetter("dtype")


class Columns:
    """Gives addresses, shapes, strides, dtypes and sizes of storages; remembers what it needs to give them sooner.

    Addresses and sizes are asked for each time. It keeps no tensor alive.
    """

    def __init__(self):
        self._last = None  # shapes, strides and dtypes
        self._are_alike = None  # whether tensors have all of these still, and are no promises
        self._tried = False

    def of(self, tensors, arrays):
        """The columns. Puts copies into `tensors` for what PyTorch would compute only when it is read."""
        if self._are_alike is None or len(tensors) != len(self._last[0]) or not self._are_alike(*tensors):
            self._look(tensors)
        addresses = list(map(torch.Tensor.data_ptr, tensors))
        # a storage that was made smaller may lie where it lay, or another in its place
        sizes = list(map(torch.UntypedStorage.nbytes, map(torch.Tensor.untyped_storage, tensors)))
        shapes, strides, dtypes = self._last
        return (
            addresses + [a.__array_interface__["data"][0] if a.size else 0 for a in arrays],
            shapes + [a.shape for a in arrays],
            strides + [a.strides for a in arrays],
            dtypes + [a.dtype.str for a in arrays],
            sizes + [a.nbytes for a in arrays],
        )

    def _look(self, tensors):
        lazy = _resolve(tensors)
        found = list(map(_shape, tensors)), list(map(torch.Tensor.stride, tensors)), list(map(_dtype, tensors))
        again = found == self._last
        if not again or lazy:
            self._last, self._are_alike, self._tried = found, None, lazy
        elif not self._tried and TensorGuards is not None:
            self._tried = True
            guards = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
            self._are_alike = guards.check if guards.check(*tensors) else None  # not where one is there twice


def _resolve(tensors):
    """Whether any of them was a promise only, and is a copy now."""
    lazy = any(map(torch.Tensor.is_neg, tensors))
    if not lazy and any(d.is_complex for d in set(map(_dtype, tensors))):
        lazy = any(map(torch.Tensor.is_conj, tensors))
    if lazy:
        tensors[:] = map(_tensors.resolved, tensors)
    return lazy
