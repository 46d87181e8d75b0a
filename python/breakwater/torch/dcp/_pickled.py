# SPDX-License-Identifier: Apache-2.0
"""The pickles in a directory of torch.distributed.checkpoint, read without running anything: what a pickle may name is
a short list, and each name on it stands for a plain value or for a class that is made for this one pickle."""

import pickle
import typing

import torch

from ... import errors

_METADATA = "torch.distributed.checkpoint.metadata"
_RECORDS = {(_METADATA, name) for name in (
    "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "TensorProperties",
    "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING")} | {("torch.distributed.checkpoint.filesystem",
                                                                 "_StorageInfo")}
_STORAGES = {
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64, "ComplexDoubleStorage": torch.complex128,
}


class Record:
    """An object of DCP's metadata: its name and its members. What a pickle does to it stays with it."""

    def __init__(self, *args):
        self.args = args

    def __setstate__(self, state):
        self.state = state

    def member(self, name, kind, default=None):
        """A member of the right type, or a ValueError."""
        state = getattr(self, "state", None)
        value = state.get(name, default) if type(state) is dict else default
        if not isinstance(value, kind):
            raise ValueError(f"{type(self).__name__}.{name}: expected {kind}, found {type(value).__name__}")
        return value


class _Reader(pickle.Unpickler):
    """Finds what it is told, and nothing else."""

    def __init__(self, file):
        super().__init__(file)
        self._found = {}

    def find_class(self, module, name):
        if (module, name) not in self._found:
            self._found[module, name] = self.find(module, name)
        return self._found[module, name]

    def find(self, module, name):
        """What a name stands for."""
        plain = {("torch", "Size"): lambda values=(): tuple(values),
                 ("collections", "OrderedDict"): dict}.get((module, name))
        dtype = getattr(torch, name, None) if module == "torch" else None
        if plain is None and isinstance(dtype, torch.dtype):
            return dtype
        if plain is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no data needs")
        return plain

    def read(self):
        """The value, or a FormatError: whatever a broken pickle does."""
        try:
            return self.load()
        except MemoryError:
            raise
        except Exception as e:
            raise errors.FormatError(f"{e}") from None


class _MetadataReader(_Reader):
    def find(self, module, name):
        if (module, name) in _RECORDS:
            return type(name, (Record,), {})
        if module in ("pathlib", "pathlib._local") and name.endswith("Path"):
            return lambda *parts: "/".join(map(str, parts))
        if (module, name) == ("builtins", "getattr"):  # how some Pythons write a member of an enumeration
            return lambda of, name: f"{of}.{name}"
        if (module, name) == ("torch.serialization", "_get_layout"):
            return str
        return super().find(module, name)


def read_metadata(file):
    """The Record of a .metadata file, checked no further than that it is one."""
    found = _MetadataReader(file).read()
    if type(found).__name__ != "Metadata" or not isinstance(found, Record):
        raise errors.FormatError("it holds no Metadata of torch.distributed.checkpoint")
    return found


class Layout(typing.NamedTuple):
    """Where the elements of a tensor lie in the file of a storage."""

    key: str
    dtype: torch.dtype
    offset: int
    shape: tuple
    stride: tuple

    def reach(self):
        """Bytes of the storage that it needs."""
        if 0 in self.shape:
            return 0
        last = self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))
        return (last + 1) * self.dtype.itemsize


class _TensorReader(_Reader):
    def find(self, module, name):
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, size, stride, *_: Layout(*storage, offset, tuple(size), tuple(stride))
        if (module, name) == ("torch._utils", "_rebuild_tensor_v3"):
            return lambda storage, offset, size, stride, grad, hooks, dtype, *_: Layout(
                storage[0], dtype, offset, tuple(size), tuple(stride))
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) in (("torch.storage", "UntypedStorage"), ("torch", "UntypedStorage")):
            return torch.uint8
        return super().find(module, name)

    def persistent_load(self, pid):
        kind, dtype, key = pid[:3]
        if kind != "storage" or not isinstance(dtype, torch.dtype) or type(key) is not str:
            raise pickle.UnpicklingError("it refers to something that is no storage")
        return key, dtype


def read_layout(file):
    """The Layout of the one tensor that a data.pkl describes."""
    found = _TensorReader(file).read()
    if not isinstance(found, Layout):
        raise errors.FormatError("it holds no plain tensor")
    numbers = (found.offset, *found.shape, *found.stride)
    ok = all(type(n) is int and n >= 0 for n in numbers) and len(found.shape) == len(found.stride)
    if not ok or not isinstance(found.dtype, torch.dtype) or type(found.key) is not str:
        raise errors.FormatError("it describes a tensor that cannot be")
    return found
