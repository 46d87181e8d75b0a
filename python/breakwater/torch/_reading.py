# SPDX-License-Identifier: Apache-2.0
"""Bytes of a checkpoint into tensors: straight into their memory, and never two values into one place unheard."""

import typing

import torch

from .. import errors
from . import _tensors


class Source(typing.NamedTuple):
    """A tensor of a checkpoint, or a part of one."""

    name: str
    part: typing.Any = None  #: a Part; None: all of it

    def described(self, into):
        """The Tensor that reads it into memory."""
        return _tensors.described(self.name, into, **({} if self.part is None else self.part.box()))


def read(reader, reads):
    """Reads what a Loader has noted. A MismatchError names two destinations that share memory and differ in values."""
    direct, late = _divide(reads)
    reader.read([source.described(into) for _, source, _, _, into in direct])
    done = [(path, into) for path, _, _, _, into in direct]
    for path, source, _, _, into in late:
        _read_over(reader, path, source.described(into), into, done)
        done.append((path, into))
    for _, _, _, _, into in reads:
        if isinstance(into, torch.Tensor) and not into.is_inference():
            torch.autograd.graph.increment_version(into)


def _divide(reads):
    """(those that can be read at once, those whose memory reaches into another's). What is named twice is read once."""
    spans, seen, direct, late = [], {}, [], []
    for row in reads:
        path, name, _, _, into = row
        if not isinstance(into, torch.Tensor) or into.numel() == 0:
            direct.append(row)
            continue
        where = (into.data_ptr(), into.shape, into.stride(), into.dtype)
        other = seen.setdefault(where, row)
        if other is row:
            spans.append((*_tensors.span(into), len(spans), row))
        elif other[1] != name:
            raise errors.MismatchError(f"{other[0]} and {path} are one tensor here, and two in the checkpoint")
    end = 0
    for low, high, _, row in sorted(spans, key=lambda s: s[:3]):
        (late if low < end else direct).append(row)
        end = max(end, high)
    return direct, late


def bits(tensor):
    """Its elements in order, as bytes."""
    return tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def _read_over(reader, path, described, into, done):
    """Reads a tensor whose memory lies among that of others, which must not change by it."""
    low, high = _tensors.span(into)
    others = [(p, t) for p, t in done if isinstance(t, torch.Tensor) and t.numel() > 0 and _meets(t, low, high)]
    before = [bits(t) for _, t in others]
    reader.read([described])
    for (other, t), was in zip(others, before, strict=True):
        if not torch.equal(bits(t), was):
            raise errors.MismatchError(f"{other} and {path} share memory here, and have different values in the "
                                       "checkpoint")


def _meets(tensor, low, high):
    begin, end = _tensors.span(tensor)
    return begin < high and low < end
