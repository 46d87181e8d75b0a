# SPDX-License-Identifier: Apache-2.0
"""A tree and the tensors behind it as a state again: a new one, or into the memory of one that is there."""

import collections

import torch

from .. import Tensor, errors
from . import _objects, _placement, _tensors, _values
from ._encode import VERSION, is_under
from ._reading import Source
from ._values import broken, is_stateful, join, tag_of

_DICTS = (dict, collections.OrderedDict)
_SHOWN = 5


class Document:
    """What one rank has saved: its tree, and dtype, shape and name of each tensor in it."""

    def __init__(self, data):
        document = _values.load(data)
        if type(document) is not dict or document.get("format") != "breakwater.torch":
            raise broken("", "it was not written by breakwater.torch")
        if document.get("version") != VERSION:
            raise errors.VersionError(f"the checkpoint's tree has version {document.get('version')}; this program "
                                      f"reads version {VERSION}")
        try:
            self.tree, self._rows = document["tree"], document["tensors"]
            self.world, self.replicated = document["world"], document["replicated"]
        except KeyError as e:
            raise broken("", f"{e} is missing") from None
        prefixes = type(self.replicated) is list and all(type(p) is str for p in self.replicated)
        if type(self._rows) is not dict or type(self.world) is not int or not (self.replicated is True or prefixes):
            raise broken("", "a member is of the wrong type")

    def row(self, ref, path):
        """(name, dtype, shape) of a tensor."""
        row = self._rows.get(ref) if type(ref) is str else None
        ok = type(row) is list and len(row) in (2, 3) and type(row[0]) is str and row[0] in _tensors.OF_NAME
        ok = ok and type(row[1]) is list and all(type(n) is int and 0 <= n < _values.INT64 for n in row[1])
        ok = ok and type(row[-1] if len(row) == 3 else ref) is str
        if not ok:
            raise broken(path, f"there is no tensor {ref!r}, or one of a kind unknown here")
        return row[2] if len(row) == 3 else ref, row[0], tuple(row[1])

    def stand_ins(self):
        """All its tensors without memory: for checking them before any is made."""
        rows = {name: (dtype, shape) for name, dtype, shape in (self.row(ref, ref) for ref in self._rows)}
        try:
            return [Tensor(name, 0, dtype=dtype, shape=shape) for name, (dtype, shape) in rows.items()]
        except ValueError as e:  # a name or a shape that no tensor can have
            raise broken("", str(e)) from None

    def is_shared(self, path):
        return self.replicated is True or is_under(path, self.replicated)


class Loader:
    """Goes through a tree, and through a state beside it if there is one; notes what is to be read where.

    Nothing of the state is touched before finish: what does not fit is known by then, and told by check.
    """

    def __init__(self, document, only=None, strict=True):
        self._document, self._only, self._strict = document, only, strict
        self.reads = []  # Read
        self._models = {}  # path -> the DTensor that new tensors right under it are to lie like
        self._made = {}  # (name, flags) -> new tensor, so that ties are ties again
        self._after = []  # what to do once all has been read, in order
        self._missing, self._unexpected, self._different = [], [], []
        self._met = False  # whether anything that was asked for is there

    # ---- what is asked for ----

    def _wanted(self, path):
        if self._only is None:
            return True
        if is_under(path, self._only):
            self._met = True
            return True
        return any(p.startswith(path + ".") for p in self._only)

    def check(self):
        """Raises a MismatchError that names what does not fit, by path."""
        told = [(self._different, "differs")]
        if self._strict:
            told += [(self._missing, "not in the checkpoint"), (self._unexpected, "not in the state")]
        texts = []
        for paths, what in told:
            more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
            if paths:
                texts.append(f"{what}: {', '.join(paths[:_SHOWN])}{more}")
        if texts:
            raise errors.MismatchError("; ".join(texts))
        if self._only is not None and not self._met:
            raise errors.MismatchError(f"nothing in the checkpoint is under {', '.join(self._only)}")

    def finish(self):
        for do in self._after:
            do()

    def own_part(self, node, path="", depth=0):
        """The path of the first thing that belongs to the rank alone, among what is asked for; None: there is none."""
        if not self._wanted(path) and path or self._document.is_shared(path):
            return None
        tag, held = self._open(node, path, depth)
        pairs = _values.pairs(tag, held, path)
        if pairs is None:
            pairs = list(enumerate(_values.entries(tag, held, path) or []))
            if tag not in ("list", "tuple"):
                sharded = tag == "tensor" and type(held) is list and "sharded" in held[1:]
                return None if sharded else path or "the state"
        found = (self.own_part(child, join(path, k), depth + 1) for k, child in pairs)
        return next((p for p in found if p is not None), None)

    @staticmethod
    def _open(node, path, depth):
        if depth > _values.DEPTH_MAX + 1:
            raise broken(path, f"more than {_values.DEPTH_MAX} containers in one another")
        return tag_of(node, path)

    # ---- a new state ----

    def build(self, node, path="", depth=0):
        """The value of a node, with tensors that are still to be read."""
        tag, held = self._open(node, path, depth)
        if tag == "tensor":
            return self._new_tensor(held, path)
        if tag == "numpy":
            return self._new_array(held, path)
        if tag == "numpy_scalar":
            return _numpy_scalar(held, path)
        pairs = _values.pairs(tag, held, path)
        if pairs is not None:
            return self._new_dict(tag, held, pairs, path, depth)
        entries = _values.entries(tag, held, path)
        if entries is None:
            return _values.plain(tag, held, path)
        made = [self.build(n, join(path, i), depth + 1) for i, n in enumerate(entries)]
        return tuple(made) if tag == "tuple" else made

    def _new_dict(self, tag, held, pairs, path, depth):
        wanted = [(k, n, join(path, k)) for k, n in pairs]
        made = {k: self.build(n, p, depth + 1) for k, n, p in wanted if self._wanted(p)}
        if tag != "ordered_dict":
            return made
        made = collections.OrderedDict(made)
        if held[1] is not None:
            made._metadata = self._new_metadata(held[1], f"{path}._metadata", depth + 1)
        return made

    def _new_metadata(self, node, path, depth):
        """Versions of modules: plain values, whatever part was asked for."""
        loader = Loader(self._document)
        made = loader.build(node, path, depth)
        if loader.reads:
            raise broken(path, "tensors in a module's metadata")
        return made

    def _new_tensor(self, held, path):
        ref, *flags = held if type(held) is list and held else [None]
        if not all(f in ("parameter", "grad", "sharded") for f in flags):
            raise broken(path, f"a tensor with flags {flags!r}")
        name, dtype, shape = self._document.row(ref, path)
        if "grad" in flags and not (_tensors.OF_NAME[dtype].is_floating_point or dtype in ("C64", "C128")):
            raise broken(path, f"a tensor of {dtype} that requires a gradient")
        model = self._models.get(path.rpartition(".")[0])
        if model is not None and tuple(model.shape) == shape:
            return self._new_part(path, name, dtype, model)
        if (name, "") not in self._made:
            self._made[name, ""] = new = torch.empty(shape, dtype=_tensors.OF_NAME[dtype])
            self.reads.append((path, Source(name), dtype, shape, new))
        base, flags = self._made[name, ""], [f for f in flags if f != "sharded"]
        if not flags:
            return base
        if (name, *flags) not in self._made:
            view, grad = base.detach(), "grad" in flags
            self._made[name, *flags] = \
                torch.nn.Parameter(view, grad) if "parameter" in flags else view.requires_grad_(grad)
        return self._made[name, *flags]

    def _new_part(self, path, name, dtype, model):
        new = _placement.empty_like(model, _tensors.OF_NAME[dtype])
        source = Source(name, _placement.part_of(new, path))
        self.reads.append((path, source, dtype, source.part.shape, _placement.local(new)))
        return new

    def _new_array(self, held, path):
        import numpy as np

        name, dtype, shape = self._document.row(held[0] if type(held) is list and held else None, path)
        if dtype not in _tensors.TO_NUMPY:
            raise broken(path, f"an array of {dtype}")
        key = (name, "numpy")
        if key not in self._made:
            self._made[key] = np.empty(shape, _tensors.TO_NUMPY[dtype])
            self.reads.append((path, Source(name), dtype, shape, self._made[key]))
        return self._made[key]

    # ---- a state that is there ----

    def fill(self, into, node, path="", depth=0):
        """What takes the place of `into`: itself where it can be changed, else a new value."""
        if is_stateful(into):
            return self._fill_object(into, node, path, depth)
        tag, held = self._open(node, path, depth)
        if tag == "tensor" and isinstance(into, torch.Tensor):
            return self._fill_tensor(into, held, path)
        if tag == "numpy" and _tensors.is_array(into):
            return self._fill_array(into, held, path)
        pairs = _values.pairs(tag, held, path)
        if pairs is not None and type(into) in _DICTS:
            return self._fill_dict(into, pairs, path, depth)
        entries = _values.entries(tag, held, path)
        if entries is not None and type(into) is (tuple if tag == "tuple" else list):
            return self._fill_list(into, entries, path, depth)
        saved_plain = pairs is None and entries is None and tag not in ("tensor", "numpy")
        if into is None or (saved_plain and not _holds(into)):
            return self.build(node, path, depth)
        return self._differs(into, tag, path)

    def _differs(self, into, tag, path):
        kind = {"object": "dict", "numpy": "array"}.get(tag, tag)
        self._different.append(f"{path or 'the state'} ({type(into).__name__} here, {kind} there)")
        return into

    def _fill_tensor(self, into, held, path):
        name, dtype, shape = self._document.row(held[0] if type(held) is list and held else None, path)
        part = None
        if _placement.is_distributed(into):
            whole, part, into = into, _placement.part_of(into, path), _placement.local(into)
        _tensors.check(into, path)
        if into.is_neg() or (into.is_complex() and into.is_conj()):
            raise _values.refuse(path, "a conjugated or negated view cannot be loaded into; give what it is a view of")
        if _tensors.overlaps_itself(into):
            raise _values.refuse(path, "elements of it share memory (expanded?): it cannot be loaded into")
        self._read(path, name, dtype, shape, into, part)
        return into if part is None else whole

    def _fill_array(self, into, held, path):
        name, dtype, shape = self._document.row(held[0] if type(held) is list and held else None, path)
        _tensors.numpy_dtype(into, path)
        if not into.flags.writeable:
            return self.build({"$numpy": held}, path)
        if _tensors.overlaps_itself(into):
            raise _values.refuse(path, "elements of it share memory (broadcast?): it cannot be loaded into")
        self._read(path, name, dtype, shape, into)
        return into

    def _read(self, path, name, dtype, shape, into, part=None):
        here = _tensors.row(into, part)
        if here != [dtype, list(shape)]:
            self._different.append(f"{path} ({here[0]} {here[1]} here, {dtype} {list(shape)} there)")
        else:
            self.reads.append((path, Source(name, part), dtype, shape, into))

    def _fill_dict(self, into, pairs, path, depth):
        values, saved = {}, dict(pairs)
        for k, child in pairs:
            below = join(path, k)
            if not self._wanted(below):
                continue
            if k in into:
                values[k] = self.fill(into[k], child, below, depth + 1)
            else:
                self._unexpected.append(below)
        for k in into:
            if k not in saved and self._wanted(join(path, k)):
                self._missing.append(join(path, k))
        self._after.append(lambda: into.update(values))
        return into

    def _fill_list(self, into, entries, path, depth):
        if len(into) != len(entries) and not any(map(_holds, into)):
            values = [self.build(n, join(path, i), depth + 1) for i, n in enumerate(entries)]
        elif len(into) != len(entries):
            self._different.append(f"{path or 'the state'} ({len(into)} entries here, {len(entries)} there)")
            return into
        else:
            values = [self.fill(x, n, join(path, i), depth + 1)
                      for i, (x, n) in enumerate(zip(into, entries, strict=True))]
        if type(into) is tuple:
            return tuple(values)
        self._after.append(lambda: into.__setitem__(slice(None), values))
        return into

    def _fill_object(self, into, node, path, depth):
        """A module takes its tensors in place; others get a state of their own, as some have none before they begin."""
        tag, held = self._open(node, path, depth)
        if _values.pairs(tag, held, path) is None:
            return self._differs(into, tag, path)
        if isinstance(into, torch.nn.Module):
            state = into.state_dict()
            self.fill(state, node, path, depth + 1)
        else:
            self._refuse_part(into, path)
            if isinstance(into, torch.optim.Optimizer):
                self._models |= _objects.distributed_parameters(into, path)
            state = self.build(node, path, depth)
            self._different += _objects.misfits(into, state, path)
        self._after.append(lambda: into.load_state_dict(state))
        return into

    def _refuse_part(self, into, path):
        """What is no module takes its state as a whole."""
        if self._only is None or is_under(path, self._only):
            return
        part = next(p for p in self._only if not path or p.startswith(path + "."))
        raise errors.InvalidError(f"only: {part} is a part of {path or 'the state'}, which takes its state as a whole "
                                  f"({type(into).__name__}): name that, or give its state_dict() in its place")


def _holds(value):
    """Whether it is, or may hold, memory that is loaded in place."""
    containers = isinstance(value, (dict, list, tuple)) and type(value) is not torch.Size
    return containers or isinstance(value, torch.Tensor) or _tensors.is_array(value) or is_stateful(value)


def _numpy_scalar(held, path):
    import numpy as np

    if type(held) is not list or len(held) != 2 or held[0] not in _tensors.TO_NUMPY.values():
        raise broken(path, "expected dtype and bytes of a number of NumPy's")
    data = _values.to_bytes(held[1], path)
    if len(data) != np.dtype(held[0]).itemsize:
        raise broken(path, "the number of bytes is not that of its dtype")
    return np.frombuffer(data, held[0])[0]
