# SPDX-License-Identifier: Apache-2.0
"""A checkpoint as torch.distributed.checkpoint loads it: boxes of tensors into the planner's memory."""

import dataclasses
import io
from typing import Any, Self

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType
from torch.futures import Future

from ... import Reader, errors
from .. import _reading, _tensors, _values
from .._checkpointer import TREE
from .._decode import Document, Loader
from .._values import broken
from . import _index


class StorageReader(dcp.StorageReader):
    """The storage_reader of torch.distributed.checkpoint's load, for any checkpoint that was saved through it.

    url, run, local, options
              as in breakwater.Reader: id, memory_budget_bytes, ...
    step      the checkpoint of this step; None: the newest. load's checkpoint_id goes first
    cast      True: what was saved with another dtype is converted, as PyTorch does it; else that is a MismatchError

    It takes no part in a job. What a launch goes on from is read with StorageWriter.reader.
    """

    def __init__(self, url: str, *, run: str, step: int | None = None, local: str | None = None, cast: bool = False,
                 **options: Any) -> None:
        self._set(lambda step: Reader(url, run, step, local_url=local, **options), cast)
        self._step = step

    @classmethod
    def _of(cls, checkpointer, cast) -> Self:
        """One of what a launch goes on from."""
        def open_resumed(step):
            if step not in (None, checkpointer.resumed_step):
                raise errors.InvalidError(f"this launch goes on from step {checkpointer.resumed_step}, found {step} "
                                          "asked for: expected a StorageReader(url, run=...)")
            return checkpointer._core.restore()

        self = cls.__new__(cls)
        self._set(open_resumed, cast)
        return self

    def _set(self, opener, cast):
        super().__init__()
        self._opener, self._cast, self._step, self._checkpoint_id = opener, cast, None, None
        self._reader, self._index, self._trees = None, None, {}
        self.stats: dict[str, int] = {}  #: of the last load: bytes read, verified, ...; see breakwater.Reader

    def close(self) -> None:
        """Closes what is open; load does so when it has read."""
        reader, self._reader, self._trees = self._reader, None, {}
        if reader is not None:
            self.stats = reader.stats()
            reader.close()

    # ---- StorageReader ----

    def reset(self, checkpoint_id: Any = None) -> None:
        """Notes the step. Whatever is wrong with it is told where all ranks hear it."""
        self._checkpoint_id = checkpoint_id

    def read_metadata(self) -> Metadata:
        """Opens the checkpoint, and makes DCP's metadata of its index."""
        self.close()
        step = self._step if self._checkpoint_id is None else _index.step_of(self._checkpoint_id)
        self._reader = self._opener(step)
        self._index = read_index(self._reader)
        return _index.metadata(self._index, StorageMeta(checkpoint_id=self._checkpoint_id))

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool) -> None:
        """Nothing: it is open."""

    def prepare_local_plan(self, plan: dcp.LoadPlan) -> dcp.LoadPlan:
        """Adds which checkpoint this is."""
        return dataclasses.replace(plan, storage_data=self._reader.info()["id"])

    def prepare_global_plan(self, plans: list[dcp.LoadPlan]) -> list[dcp.LoadPlan]:
        """All ranks read one checkpoint, or none."""
        if len({plan.storage_data for plan in plans}) > 1:
            raise errors.MismatchError("the ranks have opened different checkpoints, as the newest has changed "
                                       "meanwhile: expected a step (checkpoint_id)")
        return plans

    def read_data(self, plan: dcp.LoadPlan, planner: dcp.LoadPlanner) -> Future[None]:
        """Reads boxes into the planner's tensors, and gives it the other values."""
        try:
            tensors = [item for item in plan.items if item.type != LoadItemType.BYTE_IO]
            self._read_boxes([(item, planner.resolve_tensor(item).detach()) for item in tensors], planner)
            for item in plan.items:
                if item.type == LoadItemType.BYTE_IO:
                    planner.load_bytes(item, self._packed(item.storage_index.fqn))
        finally:
            self.close()
        future = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Whether it says a step."""
        return _index.says_step(checkpoint_id)

    # ---- tensors ----

    def _read_boxes(self, items, planner):
        direct, packed = [], []
        for item, into in items:
            (direct if self._is_direct(item, into) else packed).append((item, into))
        read_parts(self._reader, [(item.storage_index.fqn, self._source(item), into) for item, into in direct])
        for item, into in packed:
            row = self._index.tensors[item.storage_index.fqn]
            memory = torch.empty(item.lengths, dtype=_tensors.OF_NAME[row.dtype])
            self._reader.read([self._source(item).described(memory)])
            into.copy_(memory)
        for item, into in items:
            planner.commit_tensor(item, into)

    def _is_direct(self, item, into):
        """Whether its memory can be read into. What would be converted without leave is refused."""
        row, path = self._index.tensors[item.storage_index.fqn], item.dest_index.fqn
        if into.shape != item.lengths:
            raise errors.MismatchError(f"{path}: the planner gives {list(into.shape)}, and has planned "
                                       f"{list(item.lengths)}")
        if into.dtype != _tensors.OF_NAME[row.dtype]:
            if not self._cast:
                raise errors.MismatchError(f"{path}: {into.dtype} here, {row.dtype} in the checkpoint (cast=True "
                                           "converts)")
            return False
        plain = type(into) in (torch.Tensor, torch.nn.Parameter) and into.layout is torch.strided
        lazy = plain and (into.is_neg() or (into.is_complex() and into.is_conj()))
        return plain and into.device.type == "cpu" and not lazy and not _tensors.overlaps_itself(into)

    def _source(self, item):
        return self._index.tensors[item.storage_index.fqn].source(item.storage_offsets, item.lengths)

    # ---- other values ----

    def _packed(self, fqn):
        """A value in the form that a planner takes: made here, of what was decoded."""
        data = io.BytesIO()
        torch.save(self.value(fqn), data)
        data.seek(0)
        return data

    def value(self, fqn):
        """A value of the open checkpoint."""
        return read_value(self._reader, self._index, fqn, self._trees)


def read_index(reader):
    """The Index of a checkpoint, compared with what the checkpoint itself says."""
    try:
        data = reader.blob(0, _index.BLOB)
    except errors.NotFoundError as e:
        raise errors.NotFoundError(f"this checkpoint was not saved through torch.distributed.checkpoint: {e}") from None
    index = _index.load(data)
    reader.check(index.stand_ins(), subset=True)
    return index


def read_parts(reader, reads):
    """Reads (path, Source, memory); one memory that two names share must get the same from both."""
    first, ties = {}, []
    for path, source, into in reads:
        where = (into.data_ptr(), into.shape, into.stride(), into.dtype)
        if into.numel() > 0 and first.setdefault(where, (path, source, into))[0] != path:
            ties.append((path, source, first[where]))
    _reading.read(reader, [(path, source, into.dtype, into.shape, into) for path, source, into in first.values()])
    for path, source, (other, _, into) in ties:
        again = torch.empty(into.shape, dtype=into.dtype)
        reader.read([source.described(again)])
        if not torch.equal(_reading.bits(again), _reading.bits(into)):
            raise errors.MismatchError(f"{other} and {path} are one tensor here, and differ in the checkpoint")


def read_value(reader, index, fqn, trees):
    """A value that is no tensor. `trees` keeps what was read of the ranks."""
    rank = index.values[fqn]
    if rank not in trees:
        document = Document(reader.blob(rank, TREE))
        reader.check(document.stand_ins(), subset=True)
        pairs = _values.pairs(*_values.tag_of(document.tree, ""), "")
        trees[rank] = document, dict(pairs or [])
    document, nodes = trees[rank]
    if fqn not in nodes:
        raise broken(fqn, f"it is not in the tree of rank {rank}")
    loader = Loader(document)
    value = loader.build(nodes[fqn], fqn)
    _reading.read(reader, loader.reads)
    return value
