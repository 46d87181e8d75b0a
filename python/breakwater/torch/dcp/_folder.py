# SPDX-License-Identifier: Apache-2.0
"""A directory that torch.distributed.checkpoint's FileSystemWriter has written: what is in it, and where its bytes lie.
The files are mapped, so a tensor is memory without being read."""

import io
import math
import mmap
import pathlib
import struct
import typing
import zipfile
import zlib

import torch

from ... import errors
from .. import _tensors
from . import _index, _pickled

_LOCAL_HEADER_BYTES = 30  #: of an entry in a zip file; two lengths at its end, then name and extra


class Chunk(typing.NamedTuple):
    """A part of a tensor, and the bytes of its item."""

    offsets: tuple
    sizes: tuple
    file: str
    at: int
    length: int


def _size(value):
    if type(value) is not tuple or not all(type(n) is int and 0 <= n < 1 << 63 for n in value):
        raise ValueError(f"expected sizes, found {value!r}")
    return value


class Folder:
    """Knows all tensors and values of the directory by name; `index` has them too."""

    def __init__(self, path, *, checked=True):
        self._path, self._checked, self._maps = pathlib.Path(path), checked, {}
        with self._named(".metadata"), (self._path / ".metadata").open("rb") as file:
            metadata = _pickled.read_metadata(file)
            self._entries = self._entries_of(metadata)
            self.chunks, self.values, tensors = {}, {}, {}
            for fqn, entry in metadata.member("state_dict_metadata", dict).items():
                if type(fqn) is not str or type(entry).__name__ not in ("TensorStorageMetadata",
                                                                       "BytesStorageMetadata"):
                    raise ValueError(f"an entry {fqn!r} of an unknown kind")
                if type(entry).__name__ == "BytesStorageMetadata":
                    self.values[fqn] = self._entries[fqn, None]
                    continue
                tensors[fqn] = self._row(fqn, entry)
                self.chunks[fqn] = self._chunks(fqn, entry, tensors[fqn].shape)
            self.index = _index.Index(tensors, dict.fromkeys(self.values, 0), metadata.member("planner_data", object))

    def _named(self, name):
        return _Named(self._path / name)

    # ---- .metadata ----

    @staticmethod
    def _entries_of(metadata):
        """(name, offset) -> (file, at, length) of all items."""
        entries = {}
        for index, info in metadata.member("storage_data", dict).items():
            if type(index).__name__ != "MetadataIndex" or type(info).__name__ != "_StorageInfo":
                raise ValueError("an item of an unknown kind: was it written by a FileSystemWriter?")
            if info.member("transform_descriptors", object):
                raise errors.UnsupportedError("its files are transformed (compressed?): save it without extensions")
            file, at, length = (info.member("relative_path", str), info.member("offset", int),
                                info.member("length", int))
            if "/" in file or file in ("", ".", "..") or at < 0 or length < 0:
                raise ValueError(f"an item in the file {file!r} at {at}")
            entries[index.member("fqn", str), index.member("offset", (tuple, type(None)))] = file, at, length
        return entries

    @staticmethod
    def _row(fqn, entry):
        properties = entry.member("properties", _pickled.Record)
        dtype = properties.state[0] if type(getattr(properties, "state", None)) is tuple else None
        if dtype not in _tensors.DTYPES:
            raise ValueError(f"{fqn}: the dtype {dtype} cannot be saved")
        return _index.Row(_index.name_of(fqn), _tensors.DTYPES[dtype], _size(entry.member("size", tuple)))

    def _chunks(self, fqn, entry, shape):
        chunks = []
        for chunk in entry.member("chunks", list):
            offsets, sizes = _size(chunk.member("offsets", tuple)), _size(chunk.member("sizes", tuple))
            if len(offsets) != len(shape) or len(sizes) != len(shape) or \
                    any(o + n > whole for o, n, whole in zip(offsets, sizes, shape, strict=True)):
                raise ValueError(f"{fqn}: a chunk at {offsets} of {sizes} in a tensor of {shape}")
            if (fqn, offsets) not in self._entries:
                raise ValueError(f"{fqn}: the chunk at {offsets} is in no file")
            if 0 not in sizes:
                chunks.append(Chunk(offsets, sizes, *self._entries[fqn, offsets]))
        _cover(fqn, chunks, shape)
        return chunks

    # ---- the files ----

    def bytes_of(self, fqn):
        """The bytes of a value: what torch.save made of it."""
        return bytes(self._item(*self.values[fqn]))

    def tensor(self, fqn, chunk):
        """A chunk as a tensor over the mapping."""
        with self._named(chunk.file):
            item = self._item(chunk.file, chunk.at, chunk.length)
            layout, storage = self._storage(item)
            row = self.index.tensors[fqn]
            if layout.shape != chunk.sizes or _tensors.DTYPES.get(layout.dtype) != row.dtype:
                raise ValueError(f"{fqn}: {layout.dtype} {layout.shape} at {chunk.at}, and {row.dtype} {chunk.sizes} "
                                 "in .metadata")
            if layout.reach() > len(storage):
                raise ValueError(f"{fqn}: {layout.reach()} bytes are needed, and there are {len(storage)}")
            flat = torch.frombuffer(storage, dtype=layout.dtype, count=layout.reach() // layout.dtype.itemsize)
            return flat.as_strided(layout.shape, layout.stride, layout.offset)

    def _item(self, file, at, length):
        if file not in self._maps:
            with self._named(file), (self._path / file).open("rb") as opened:
                self._maps[file] = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY))
        whole = self._maps[file]
        if at + length > len(whole):
            raise errors.FormatError(f"{self._path / file}: it has {len(whole)} bytes, and {at + length} are needed")
        return whole[at:at + length]

    def _storage(self, item):
        """(layout, bytes) of the tensor in an item, which is a zip file."""
        with zipfile.ZipFile(_View(item)) as archive:
            names = {name.partition("/")[2]: name for name in archive.namelist()}
            if "byteorder" in names and archive.read(names["byteorder"]) != b"little":
                raise errors.UnsupportedError("it was written on a machine of another byte order")
            with archive.open(names["data.pkl"]) as file:
                layout = _pickled.read_layout(file)
            info = archive.getinfo(names[f"data/{layout.key}"])
        if info.compress_type != zipfile.ZIP_STORED:
            raise ValueError("its elements are compressed")
        name, extra = struct.unpack("<HH", item[info.header_offset + 26:info.header_offset + _LOCAL_HEADER_BYTES])
        at = info.header_offset + _LOCAL_HEADER_BYTES + name + extra
        storage = item[at:at + info.file_size]
        if len(storage) != info.file_size or (self._checked and zlib.crc32(storage) != info.CRC):
            raise errors.CorruptError("the elements of a tensor have another CRC-32 than is noted there")
        return layout, storage


class _Named:
    """Says of which file something is told, and makes one kind of error of what a broken file does."""

    def __init__(self, path):
        self._path = path

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, errors.Error):
            if str(self._path) not in str(error):
                raise type(error)(f"{self._path}: {error}") from None
        elif isinstance(error, FileNotFoundError):
            raise errors.NotFoundError(f"{self._path}: there is no such file") from None
        elif isinstance(error, (ValueError, KeyError, AttributeError, TypeError, OverflowError, struct.error,
                                zipfile.BadZipFile)):
            what = "" if kind is ValueError else f"{kind.__name__}: "
            raise errors.FormatError(f"{self._path}: {what}{error}") from None


class _View(io.RawIOBase):
    """Memory as a file."""

    def __init__(self, memory):
        super().__init__()
        self._memory, self._at = memory, 0

    def seekable(self):
        return True

    def readable(self):
        return True

    def tell(self):
        return self._at

    def seek(self, offset, whence=0):
        self._at = offset + (0, self._at, len(self._memory))[whence]
        if self._at < 0:
            raise ValueError("a place before the beginning")
        return self._at

    def readinto(self, into):
        part = self._memory[self._at:self._at + len(into)]
        into[:len(part)] = part
        self._at += len(part)
        return len(part)


def _cover(fqn, chunks, shape):
    """Chunks must hold every element once."""
    if sum(math.prod(c.sizes) for c in chunks) != math.prod(shape):
        raise ValueError(f"{fqn}: its chunks are not the whole of it")
    ordered = sorted(chunks, key=lambda c: c.offsets)
    for i, one in enumerate(ordered):
        for other in ordered[i + 1:]:
            if not shape or other.offsets[0] >= one.offsets[0] + one.sizes[0]:
                break
            if all(a < b + n and b < a + m for a, m, b, n in zip(one.offsets, one.sizes, other.offsets, other.sizes,
                                                                 strict=True)):
                raise ValueError(f"{fqn}: its chunks at {one.offsets} and {other.offsets} overlap")
