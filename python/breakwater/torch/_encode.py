# SPDX-License-Identifier: Apache-2.0
"""A state as a tree of JSON and a list of described tensors: what one rank hands to one save."""

import base64
import collections
import hashlib
import typing

import torch

from . import _placement, _tensors
from ._columns import Columns
from ._template import HOLE, Flat, Template
from ._values import DEPTH_MAX, PLAIN, check_text, dump, from_key, is_stateful, refuse

VERSION = 1
_OWN = "rank"  #: names of a rank's own tensors begin with it, its number, and a slash


class Plan(typing.NamedTuple):
    """What to save, and what has to live until it is captured."""

    tensors: list
    tree: bytes
    alive: list


def is_under(path, prefixes):
    """Whether a path is one of these or lies below one."""
    return any(path == p or path.startswith(p + ".") for p in prefixes)


class Encoder:
    """Remembers of a save what it can use for the next one: descriptions of tensors that have stayed where they were.

    It keeps no tensor alive: where address, dtype, shape and strides are the same, so is the description.
    """

    def __init__(self, rank=0, world=1, replicated=()):
        self._rank, self._world, self._replicated = rank, world, replicated
        self._properties = Columns()
        self._forget()

    def _forget(self):
        self._refs, self._columns, self._table = [], None, b"{}"
        self._parts = {}  # reference -> Part, of DTensors
        self._template = None  # of a tree with the same structure
        self._tensors = []  # what is described, ties once
        self._slots = []  # reference by reference: its place in there
        self._tied = set()  # numbers of references whose memory is that of another one
        self._names, self._rows, self._by_memory = [], {}, {}

    def encode(self, state):
        """The Plan of a state; an InvalidError names the path of what cannot be saved."""
        flat = Flat.of(state)
        tree = self._template and self._template.fill(flat)
        if tree is not None:
            return self._plan(self._refs, flat.tensors, flat.arrays, {}, tree)
        walk = _Walk(flat, holes=flat.signature is not None)
        node = walk.node(state, "", 0)
        template = Template.of(node, walk, flat)
        if walk.holes and template is None:  # what is at hand was not made for its own sake
            walk = _Walk(flat)
            node = walk.node(state, "", 0)
        self._template = None
        plan = self._plan([*walk.leaves, *walk.arrays], list(walk.leaves.values()), list(walk.arrays.values()),
                          walk.parts, template.fill(flat) if template else dump(node))
        self._template = template
        return plan

    def _plan(self, refs, tensors, arrays, parts, tree):
        try:
            columns = self._properties.of(tensors, arrays)
        except (RuntimeError, NotImplementedError):  # memory that cannot be had: the checks say of which
            _check_all(dict(zip(refs, tensors)))
            raise
        values = [*tensors, *arrays]
        known = self._columns is not None and refs == self._refs and parts == self._parts
        if not known or not self._patch(values, columns):
            self._describe_all(refs, values, columns, parts)
        return Plan(list(self._tensors), self._document(tree), values)

    @property
    def distributed(self):
        """References of what was a DTensor in the state that was encoded last."""
        return list(self._parts)

    def _document(self, tree):
        shared = self._replicated if self._replicated is True else list(self._replicated)
        head = dump({"format": "breakwater.torch", "version": VERSION, "rank": self._rank, "world": self._world,
                     "replicated": shared})
        return head[:-1] + b',"tensors":' + self._table + b',"tree":' + tree + b"}"

    # ---- describing ----

    def _describe_all(self, refs, values, columns, parts):
        _check_all(dict(zip(refs, values, strict=True)))
        template = self._template
        self._forget()  # nothing is remembered of what is not whole
        self._refs, self._parts = refs, parts
        taken = set()
        for i, (ref, value) in enumerate(zip(refs, values, strict=True)):
            memory = self._memory(columns, i)
            first = self._by_memory.setdefault(memory, i) if memory[0] != 0 else i
            if first != i:
                self._tied |= {first, i}
                name, slot = self._names[first], self._slots[first]
            else:
                name, slot = self._name(ref, taken), len(self._tensors)
                self._tensors.append(self._described(name, ref, value))
            self._names.append(name)
            self._slots.append(slot)
            self._rows[ref] = _tensors.row(value, parts.get(ref)) + ([name] if name != ref else [])
        self._columns, self._table, self._template = columns, dump(self._rows), template

    def _memory(self, columns, i):
        """What two references have in common that are one tensor."""
        return columns[0][i], columns[1][i], columns[2][i], columns[3][i], self._parts.get(self._refs[i])

    def _described(self, name, ref, value):
        if ref in self._parts:
            return _tensors.described(name, value, **self._parts[ref].description())
        if self._world > 1 and self._is_replicated(ref):
            return _tensors.described(name, value, replica_count=self._world, replica_index=self._rank)
        return _tensors.described(name, value)

    def _patch(self, values, columns):
        """Describes only what has changed. False: more has changed than that."""
        old, changed = self._columns, set()
        for before, now in zip(old, columns, strict=True):
            if before != now:
                changed |= {i for i, (a, b) in enumerate(zip(before, now, strict=True)) if a != b}
        if not self._tied.isdisjoint(changed):
            return False
        for i in changed:
            self._by_memory.pop(self._memory(old, i), None)
        for i in changed:
            memory = self._memory(columns, i)
            if memory[0] != 0 and self._by_memory.setdefault(memory, i) != i:
                return False
        try:
            self._redescribe(changed, values)
        except BaseException:
            self._forget()
            raise
        self._columns = columns
        return True

    def _redescribe(self, changed, values):
        rows = False
        for i in changed:
            ref, value, name = self._refs[i], values[i], self._names[i]
            _check_all({ref: value})
            self._tensors[self._slots[i]] = self._described(name, ref, value)
            row = _tensors.row(value, self._parts.get(ref)) + ([name] if name != ref else [])
            rows = rows or row != self._rows[ref]
            self._rows[ref] = row
        if rows:
            self._table = dump(self._rows)

    # ---- names ----

    def _is_replicated(self, ref):
        return self._replicated is True or is_under(ref, self._replicated)

    def _is_own(self, ref):
        """Whether it is this rank's alone, among several."""
        return self._world > 1 and ref not in self._parts and not self._is_replicated(ref)

    def _name(self, ref, taken):
        """A name that the library takes, of no other tensor."""
        name = ref.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0") or "tensor"
        if self._is_own(ref):
            name = f"{_OWN}{self._rank}/{name}"
        elif name.startswith(_OWN) and self._world > 1:
            name = "all/" + name
        if len(name.encode()) > _tensors.NAME_BYTES_MAX:
            name = name.encode()[:1024].decode(errors="ignore") + "~" + hashlib.sha256(ref.encode(
                "utf-8", "backslashreplace")).hexdigest()
        name = _unique(name, taken)
        taken.add(name)
        return name


def _check_all(values):
    """Refuses the first that cannot be saved, by its path."""
    for ref, value in values.items():
        if isinstance(value, torch.Tensor):
            _tensors.check(value, ref)
        else:
            _tensors.check_array(value, ref)


def _unique(name, taken):
    n, found = 2, name
    while found in taken:
        found = f"{name}~{n}"
        n += 1
    return found


class _Walk:
    """One way through a state, in its own order."""

    def __init__(self, flat, holes=False):
        self.holes = holes  # whether plain values are left open in the tree, for a Template
        self.plains = []
        self._expanded = iter(flat.expanded)
        self.leaves = {}  # reference -> torch.Tensor
        self.arrays = {}  # reference -> numpy.ndarray
        self.parts = {}  # reference -> Part, of those that are DTensors: leaves has their memory here

    def node(self, value, path, depth):
        kind = type(value)
        if kind is torch.Tensor:
            return self._tensor(value, path)
        plain = PLAIN.get(kind)
        if plain is not None:
            if kind is str:
                check_text(value, path)
            if not self.holes:
                return plain(value)
            self.plains.append(value)
            return HOLE
        if depth > DEPTH_MAX:
            raise refuse(path, f"expected at most {DEPTH_MAX} containers in one another (or does it hold itself?)")
        held = _CONTAINERS.get(kind)
        if held is not None:
            return held(self, value, path, depth)
        return self._other(value, path, depth)

    def _other(self, value, path, depth):
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if _tensors.is_array(value):
            _tensors.check_array(value, path)
            ref = self._reference(path)
            self.arrays[ref] = value
            return {"$numpy": [ref]}
        if _tensors.is_scalar(value):
            _tensors.numpy_dtype(value, path)
            return {"$numpy_scalar": [value.dtype.str, base64.b64encode(value.tobytes()).decode("ascii")]}
        if is_stateful(value):
            return self.node(self._state_of(value), path, depth + 1)
        kind = type(value)
        raise refuse(path, f"a {kind.__module__}.{kind.__qualname__} cannot be saved; expected tensors, None, bool, "
                           "int, float, str, bytes, NumPy arrays and numbers, and dict, list, tuple of these")

    def _state_of(self, value):
        """Asked for already, as a rule: some make it anew each time."""
        known, state = next(self._expanded, (None, None))
        return state if known is value else value.state_dict()

    def _tensor(self, value, path):
        ref = path
        if path in self.leaves or path in self.arrays or not path:
            ref = self._reference(path)
        if _placement.is_distributed(value):
            return self._distributed(value, ref, path)
        self.leaves[ref] = value
        if type(value) is torch.Tensor and not value.requires_grad:
            return "$:" + ref
        if type(value) is not torch.Tensor:
            _tensors.check(value, path)  # subclasses may pretend anything
        flags = ["parameter"] if type(value) is torch.nn.Parameter else []
        return {"$tensor": [ref, *flags, *(["grad"] if value.requires_grad else [])]}

    def _distributed(self, value, ref, path):
        """A tensor of all ranks, of which this one gives its part."""
        self.parts[ref] = _placement.part_of(value, path)
        self.leaves[ref] = _placement.local(value)
        flags = ["parameter"] if isinstance(value, torch.nn.Parameter) else []
        return {"$tensor": [ref, *flags, *(["grad"] if value.requires_grad else []), "sharded"]}

    def _reference(self, path):
        return _unique(path or "tensor", self.leaves.keys() | self.arrays.keys())

    def _dict(self, value, path, depth):
        """Written for speed: most of a state is tensors in dicts."""
        prefix, leaves, nodes, odd = path + "." if path else "", self.leaves, {}, False
        for k, v in value.items():
            odd = odd or type(k) is not str or k[:1] == "$" or not k.isascii()
            below = f"{prefix}{k}"
            if type(v) is not torch.Tensor:
                nodes[k] = self.node(v, below, depth + 1)
            elif v.requires_grad or below in leaves or not below:
                nodes[k] = self._tensor(v, below)
            else:
                leaves[below] = v
                nodes[k] = "$:" + below
        if not odd:
            return nodes
        keys = [from_key(k, path) for k in nodes]
        plain = all(type(k) is str and k[:1] != "$" for k in nodes)
        return nodes if plain else {"$dict": [list(pair) for pair in zip(keys, nodes.values(), strict=True)]}

    def _ordered_dict(self, value, path, depth):
        more = dict(vars(value))
        metadata = more.pop("_metadata", None)  # where modules note versions
        if more:
            raise refuse(path, f"an OrderedDict with attributes of its own ({', '.join(more)}) cannot be saved")
        held = self._dict(value, path, depth)
        node = None if metadata is None else self.node(metadata, f"{path}._metadata", depth + 1)
        return {"$ordered_dict": [held, node]}

    def _list(self, value, path, depth):
        prefix = path + "." if path else ""
        return [self.node(v, f"{prefix}{i}", depth + 1) for i, v in enumerate(value)]

    def _tuple(self, value, path, depth):
        return {"$tuple": self._list(value, path, depth)}


#: exact type -> how it is walked
_CONTAINERS = {dict: _Walk._dict, collections.OrderedDict: _Walk._ordered_dict, list: _Walk._list, tuple: _Walk._tuple}
