# SPDX-License-Identifier: Apache-2.0
"""What DCP's metadata consists of, as the blob of rank 0: a document of breakwater.torch without tensors."""

import hashlib
import os
import re
import typing

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import WriteItemType

from ... import Tensor, errors
from .. import _tensors
from .._decode import Document, Loader
from .._encode import Encoder
from .._placement import Part
from .._reading import Source
from .._values import broken, refuse

BLOB = "dcp"
VERSION = 1
_HASHED_FROM_BYTES = 1024  #: of a name that is too long so much is kept


class Row(typing.NamedTuple):
    """A tensor: how it is called in the checkpoint, and what it is."""

    name: str
    dtype: str
    shape: tuple

    def source(self, offsets, sizes):
        """A part of it."""
        return Source(self.name, Part(self.shape, tuple(offsets), tuple(sizes), 0, 0, 0))


class Index(typing.NamedTuple):
    """Everything that DCP knows by a name."""

    tensors: dict  # name of DCP's -> Row
    values: dict  # name of DCP's -> rank whose tree holds it
    planner_data: typing.Any

    def stand_ins(self):
        """All tensors without memory: to compare them with the checkpoint."""
        return [Tensor(r.name, 0, dtype=r.dtype, shape=r.shape) for r in self.tensors.values()]


def step_of(checkpoint_id):
    """The step that DCP's checkpoint_id says: a number, or the digits that a path ends in."""
    if isinstance(checkpoint_id, int) and not isinstance(checkpoint_id, bool) and checkpoint_id >= 0:
        return checkpoint_id
    if isinstance(checkpoint_id, (str, os.PathLike)):
        digits = re.search(r"[0-9]+$", os.fspath(checkpoint_id))
        if digits is not None:
            return int(digits.group())
    raise errors.InvalidError("checkpoint_id: expected the step, as a number or as a path that ends in one, found "
                              f"{checkpoint_id!r}")


def says_step(checkpoint_id):
    """Whether it says a step."""
    try:
        step_of(checkpoint_id)
    except errors.InvalidError:
        return False
    return True


def name_of(fqn):
    """What a tensor is called in the checkpoint: as by DCP, where that is a name."""
    name = fqn.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
    if name and name == fqn and len(name.encode()) <= _tensors.NAME_BYTES_MAX:
        return name
    digest = hashlib.sha256(fqn.encode("utf-8", "backslashreplace")).hexdigest()
    return name.encode()[:_HASHED_FROM_BYTES].decode(errors="ignore") + "~" + digest


def row_of(item):
    """The Row of a write item."""
    data = item.tensor_data
    dtype = _tensors.DTYPES.get(data.properties.dtype)
    if dtype is None:
        raise refuse(item.index.fqn, f"the dtype {data.properties.dtype} cannot be saved")
    return Row(name_of(item.index.fqn), dtype, tuple(data.size))


def of_plans(plans):
    """The Index of what all ranks will write. planner_data is the union of theirs, as by the default planner."""
    index, merged = Index({}, {}, None), {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            if item.type == WriteItemType.BYTE_IO:
                index.values[item.index.fqn] = rank
            else:
                index.tensors[item.index.fqn] = row_of(item)
        if isinstance(plan.planner_data, dict):
            merged = {**plan.planner_data, **merged}
    return index._replace(planner_data=merged or None)


def dump(index):
    """An Index as bytes."""
    tensors = {}
    for fqn, row in index.tensors.items():
        tensors[fqn] = [row.dtype, torch.Size(row.shape), *([row.name] if row.name != fqn else [])]
    try:
        plan = Encoder().encode({"version": VERSION, "tensors": tensors, "values": index.values,
                                 "planner_data": index.planner_data})
    except errors.InvalidError as e:
        raise errors.InvalidError(f"what the planner wants to keep: {e}") from None
    if plan.tensors:
        raise errors.InvalidError("what the planner wants to keep: tensors in planner_data cannot be saved")
    return plan.tree


def load(data):
    """Bytes as an Index; whatever they are, it is of the right types."""
    document = Document(data)
    loader = Loader(document)
    root = loader.build(document.tree)
    if loader.reads or type(root) is not dict:
        raise broken("", "this is no index of torch.distributed.checkpoint")
    if root.get("version") != VERSION:
        raise errors.VersionError(f"the checkpoint's index of DCP has version {root.get('version')}; this program "
                                  f"reads version {VERSION}")
    tensors, values = root.get("tensors"), root.get("values")
    if type(tensors) is not dict or type(values) is not dict or "planner_data" not in root:
        raise broken("", "a member of the index of DCP is missing or of the wrong type")
    for fqn, rank in values.items():
        if type(fqn) is not str or type(rank) is not int or rank < 0 or fqn in tensors:
            raise broken(f"values.{fqn}", "expected a rank")
    return Index({fqn: _row(fqn, row) for fqn, row in tensors.items()}, values, root["planner_data"])


def _row(fqn, row):
    ok = type(fqn) is str and type(row) is list and len(row) in (2, 3) and row[0] in _tensors.OF_NAME
    ok = ok and isinstance(row[1], torch.Size) and all(n >= 0 for n in row[1]) and type(row[-1]) in (str, torch.Size)
    if not ok:
        raise broken(f"tensors.{fqn}", "expected dtype, shape and name")
    return Row(row[2] if len(row) == 3 else fqn, row[0], tuple(row[1]))


def metadata(index, storage_meta):
    """The Index as DCP's Metadata. Each tensor is one chunk: any box of it can be read, whatever was written."""
    entries = {fqn: BytesStorageMetadata() for fqn in index.values}
    for fqn, row in index.tensors.items():
        shape = torch.Size(row.shape)
        whole = ChunkStorageMetadata(torch.Size([0] * len(shape)), shape)
        entries[fqn] = TensorStorageMetadata(TensorProperties(_tensors.OF_NAME[row.dtype]), shape, [whole])
    return Metadata(entries, planner_data=index.planner_data, storage_meta=storage_meta)
