# SPDX-License-Identifier: Apache-2.0
"""DTensors: which box of the whole tensor this rank holds, who else holds the same, and new ones that lie alike."""

import functools
import hashlib
import math
import sys
import typing

import torch

from ._values import refuse


class Part(typing.NamedTuple):
    """Where a rank's memory lies in a whole tensor, elements; and how many ranks hold these same bytes."""

    shape: tuple
    offset: tuple
    extent: tuple
    replica_count: int
    replica_index: int
    replica_group: int

    def description(self):
        """The arguments of breakwater.Tensor."""
        return self._asdict()

    def box(self):
        """Those of them that say where it lies."""
        return {"shape": self.shape, "offset": self.offset, "extent": self.extent}


def is_distributed(value):
    """Whether it is a DTensor: none can be before PyTorch's module of them is imported."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def local(value):
    """The memory of a DTensor on this rank."""
    with torch.no_grad():
        return value.to_local()


def part_of(value, path):
    """The Part of a DTensor; an InvalidError names its path where it is no box."""
    try:
        part = _computed(value.device_mesh, value.placements, tuple(value.shape), torch.distributed.get_world_size())
    except ValueError as e:
        raise refuse(path, str(e)) from None
    held = tuple(local(value).shape)
    if held != part.extent:
        raise refuse(path, f"this rank holds {list(held)} of it, where its placements {value.placements} say "
                           f"{list(part.extent)}")
    return part


@functools.lru_cache(4096)
def _computed(mesh, placements, shape, world):
    """Many tensors of a model lie alike. ValueError: says why there is no box."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise ValueError("this rank has no part of it: it is not in its mesh")
    offset, extent = [0] * len(shape), list(shape)
    for dim in _order(placements, mesh.shape):
        axis = placements[dim].dim
        begin, extent[axis] = _chunk(extent[axis], mesh.shape[dim], coordinate[dim])
        offset[axis] += begin
    return Part(shape, tuple(offset), tuple(extent), *_replicas(placements, mesh, coordinate, world))


def _chunk(size, count, index):
    """(begin, length) of a rank's part of a dimension, as torch.chunk divides it."""
    full = -(-size // count)
    begin = min(full * index, size)
    return begin, min(full, size - begin)


def _order(placements, sizes):
    """The dimensions of the mesh that divide the tensor, in the order in which they do.

    That is their own order, but for the strided shards of FSDP over tensor parallelism: they divide what others behind
    them, which make `split_factor` parts, have divided already.
    """
    order = []
    for dim in reversed(range(len(placements))):
        placement = placements[dim]
        if placement.is_replicate():
            continue
        if placement.is_partial() or not hasattr(placement, "dim"):
            raise ValueError(f"what is placed as {placement!r} has no values of its own; redistribute it first")
        factor, at = getattr(placement, "split_factor", 1), 0
        while factor > 1 and at < len(order):
            same = placements[order[at]].dim == placement.dim
            factor, at = factor // sizes[order[at]] if same else factor, at + 1
        order.insert(at, dim)
    return order


def _replicas(placements, mesh, coordinate, world):
    """How many ranks hold the same, which of them this is, and a number for them: 0 if they are all."""
    along = [dim for dim, p in enumerate(placements) if p.is_replicate()]
    count, index = math.prod(mesh.shape[dim] for dim in along), 0
    if count <= 1:
        return 0, 0, 0
    for dim in along:
        index = index * mesh.shape[dim] + coordinate[dim]
    place = tuple(slice(None) if dim in along else c for dim, c in enumerate(coordinate))
    ranks = sorted(mesh.mesh[place].reshape(-1).tolist())
    if len(ranks) == world:
        return count, index, 0
    return count, index, int.from_bytes(hashlib.sha256(repr(ranks).encode()).digest()[:8], "big") | 1


def empty_like(value, dtype):
    """A new DTensor that lies as another one does."""
    from torch.distributed.tensor import DTensor

    memory = torch.empty(local(value).shape, dtype=dtype)
    return DTensor.from_local(memory, value.device_mesh, value.placements, run_check=False, shape=value.shape,
                              stride=value.stride())
