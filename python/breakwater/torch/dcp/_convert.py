# SPDX-License-Identifier: Apache-2.0
"""A directory of torch.distributed.checkpoint as a checkpoint, and back, without holding it in memory."""

import io
import math
import mmap
import pathlib
import secrets
import tempfile

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from ... import Checkpointer, Reader, errors
from .. import _tensors
from .._checkpointer import TREE
from .._encode import Encoder
from .._import import check_history
from .._values import refuse
from . import _index, _reader
from ._folder import Folder

CHUNK_BYTES = 64 << 20  #: of what an export reads at once
_ALIGNMENT = 64


def import_folder(folder, url, *, run, step=None, local=None, job=None, scratch=None, checked=True, **options):
    """Makes a checkpoint of a directory; returns when it is committed, with its step.

    folder   what FileSystemWriter has written
    step     None: the number that the directory's name ends in
    job      as in breakwater.Checkpointer; required where the run has a history, which this job then goes on with
    scratch  a directory for what a tensor of several chunks is put together in; None: that of temporary files
    checked  False: the CRC-32 of tensors is not compared (set_crc32_options(False) writes none)
    options  as in breakwater.Checkpointer
    """
    step = _index.step_of(pathlib.Path(folder).resolve()) if step is None else step
    source = Folder(folder, checked=checked)
    index, values = _index.dump(source.index), {fqn: _value(source, fqn) for fqn in source.values}
    plan = Encoder().encode(values)
    check_history(url, run, job)
    with tempfile.TemporaryFile(prefix="breakwater-", dir=scratch) as file:
        tensors = _assembled(source, file)
        described = [_tensors.described(source.index.tensors[fqn].name, tensor) for fqn, tensor in tensors.items()]
        with Checkpointer(run=run, job=job or "import", launch=f"import-{secrets.token_hex(10)}", rank=0, world=1,
                          local_url=local, remote_url=url, **options) as ck:
            save = ck.begin(step)
            save.keep([tensors, plan.alive])
            save.add([*described, *plan.tensors])
            save.blob(TREE, plan.tree)
            save.blob(_index.BLOB, index)
            save.start()
            save.wait("committed")
    return step


def _value(source, fqn):
    try:
        return torch.load(io.BytesIO(source.bytes_of(fqn)), map_location="cpu", weights_only=True)
    except errors.Error:
        raise
    except Exception as e:
        raise refuse(fqn, f"no plain value: {e}") from None


def _assembled(source, file):
    """name -> tensor: in its file where it is one chunk, else put together in the scratch file."""
    apart, end = {}, 0
    for fqn, chunks in source.chunks.items():
        if len(chunks) > 1:
            row = source.index.tensors[fqn]
            apart[fqn] = end
            end += -(-math.prod(row.shape) * _tensors.OF_NAME[row.dtype].itemsize // _ALIGNMENT) * _ALIGNMENT
    file.truncate(end)
    room = mmap.mmap(file.fileno(), end) if end > 0 else None
    return {fqn: _whole(source, fqn, room, apart.get(fqn)) for fqn in source.chunks}


def _whole(source, fqn, room, at):
    row, chunks = source.index.tensors[fqn], source.chunks[fqn]
    dtype = _tensors.OF_NAME[row.dtype]
    if at is None:
        return source.tensor(fqn, chunks[0]) if chunks else torch.empty(row.shape, dtype=dtype)
    whole = torch.frombuffer(room, dtype=dtype, count=math.prod(row.shape), offset=at).view(row.shape)
    for chunk in chunks:
        whole[tuple(slice(o, o + n) for o, n in zip(chunk.offsets, chunk.sizes, strict=True))] = \
            source.tensor(fqn, chunk)
    return whole


def export_folder(url, folder, *, run, step=None, local=None, **options):
    """Makes a directory for torch.distributed.checkpoint of a checkpoint that was saved through it; returns its step.

    folder   is made; one that holds a checkpoint is refused
    step     None: the newest
    options  as in breakwater.Reader
    """
    if (pathlib.Path(folder) / ".metadata").exists():
        raise errors.RefusedError(f"{folder}: there is a checkpoint in it already")
    with Reader(url, run, step, local_url=local, **options) as reader:
        writer = dcp.FileSystemWriter(folder, per_thread_copy_ahead=0, overwrite=False)
        dcp.save({}, storage_writer=writer, planner=_Exporter(reader), no_dist=True)
        return reader.info()["step"]


class _Exporter(dcp.SavePlanner):
    """Plans all of a checkpoint, and reads it part by part when it is asked for."""

    def __init__(self, reader):
        super().__init__()
        self._reader, self._index, self._trees = reader, _reader.read_index(reader), {}
        self._room = None  # for the largest piece

    def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
        """There is no state."""

    def create_local_plan(self):
        """All values, and all tensors in pieces of whole rows."""
        items = [WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO) for fqn in self._index.values]
        for fqn, row in self._index.tensors.items():
            items += [_item(fqn, row, chunk) for chunk in _pieces(row)]
        self._room = bytearray(max((_bytes(item) for item in items), default=0))
        return dcp.SavePlan(items)

    def create_global_plan(self, all_plans):
        """DCP's own metadata, and what the planner kept that saved it."""
        plans, metadata = create_default_global_save_plan(all_plans)
        metadata.planner_data = self._index.planner_data
        return plans, metadata

    def finish_plan(self, new_plan):
        """As it is."""
        return new_plan

    def resolve_data(self, write_item):
        """Reads it. FileSystemWriter keeps all tensors that it has written: so all are over the same memory."""
        fqn = write_item.index.fqn
        if write_item.type == WriteItemType.BYTE_IO:
            data = io.BytesIO()
            torch.save(_reader.read_value(self._reader, self._index, fqn, self._trees), data)
            return data
        row, chunk = self._index.tensors[fqn], write_item.tensor_data.chunk
        memory = self._memory(_tensors.OF_NAME[row.dtype], chunk.sizes)
        self._reader.read([row.source(chunk.offsets, chunk.sizes).described(memory)])
        return memory

    def _memory(self, dtype, sizes):
        count = math.prod(sizes)
        if count == 0:
            return torch.empty(sizes, dtype=dtype)
        return torch.frombuffer(self._room, dtype=dtype, count=count).view(sizes)


def _bytes(item):
    data = item.tensor_data
    return 0 if data is None else math.prod(data.chunk.sizes) * data.properties.dtype.itemsize


def _item(fqn, row, chunk):
    data = TensorWriteData(chunk, TensorProperties(_tensors.OF_NAME[row.dtype]), torch.Size(row.shape))
    return WriteItem(MetadataIndex(fqn, chunk.offsets), WriteItemType.SHARD, tensor_data=data)


def _pieces(row):
    """Chunks of at most CHUNK_BYTES, but of one row at least."""
    if not row.shape or 0 in row.shape:
        return [ChunkStorageMetadata(torch.Size([0] * len(row.shape)), torch.Size(row.shape))]
    row_bytes = math.prod(row.shape[1:]) * _tensors.OF_NAME[row.dtype].itemsize
    rows, rest = max(1, CHUNK_BYTES // row_bytes), row.shape[1:]
    return [ChunkStorageMetadata(torch.Size([at] + [0] * len(rest)), torch.Size([min(rows, row.shape[0] - at), *rest]))
            for at in range(0, row.shape[0], rows)]
