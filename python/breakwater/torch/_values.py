# SPDX-License-Identifier: Apache-2.0
"""Values that are not tensors, as JSON and back with their types. Nothing that is read here can run."""

import base64
import json
import math
import re
import struct

import torch

from .. import errors

DEPTH_MAX = 64  #: containers within containers
INT64 = 1 << 63  #: beyond it an int is written in base 16, as no JSON reader has to know it
KEYS = (type(None), bool, int, float, str, bytes, tuple)  #: exact types of a dict's keys
_DTYPES = {str(d).removeprefix("torch."): d for d in vars(torch).values() if isinstance(d, torch.dtype)}
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def is_stateful(value):
    """Whether a module, an optimizer, a scheduler ... that gives its state and takes it back."""
    kind = type(value)
    return callable(getattr(kind, "state_dict", None)) and callable(getattr(kind, "load_state_dict", None))


def refuse(path, why):
    """The exception for a value that cannot be saved."""
    return errors.InvalidError(f"{path or 'the state'}: {why}")


def broken(path, why):
    """The exception for a tree that does not keep to its format."""
    return errors.FormatError(f"the checkpoint's tree at {path or 'its root'}: {why}")


def join(path, key):
    """Where the entry of a key lies: the dotted path that people read."""
    text = key if type(key) is str else str(key)
    return f"{path}.{text}" if path else text


# ---- to JSON ----


def from_int(n):
    return n if -INT64 <= n < INT64 else {"$int": hex(n)}


def from_float(x):
    return x if math.isfinite(x) else {"$float": struct.pack(">d", x).hex()}


def from_str(text):
    return "$" + text if text.startswith("$") else text


def from_bytes(data):
    return {"$bytes": base64.b64encode(data).decode("ascii")}


def check_text(text, path):
    """Refuses what JSON would give back as another text: halves of a character that stand side by side."""
    if not text.isascii() and _PAIR.search(text) is not None:
        raise refuse(path, "a text with two surrogates that make one character is none that can be saved")


def from_key(key, path):
    """A dict's key: a plain value, or a tuple of such."""
    kind = type(key)
    if kind not in KEYS:
        raise refuse(path, f"a key of type {kind.__name__} is none that can be saved")
    if key != key:
        raise refuse(path, "the key NaN is equal to no key: nobody would find it again")
    if kind is str:
        check_text(key, path)
    return {"$tuple": [from_key(k, path) for k in key]} if kind is tuple else PLAIN[kind](key)


#: type -> the node of a value, for all that hold nothing else
PLAIN = {
    type(None): lambda _: None,
    bool: lambda b: b,
    int: from_int,
    float: from_float,
    str: from_str,
    bytes: from_bytes,
    torch.Size: lambda s: {"$size": list(s)},
    torch.dtype: lambda d: {"$dtype": str(d).removeprefix("torch.")},
}


def dump(document):
    """A document as bytes of ASCII."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")


# ---- from JSON ----


def _no_key_twice(pairs):
    whole = dict(pairs)
    if len(whole) != len(pairs):
        raise ValueError("a key twice in one object")
    return whole


def _no_constant(name):
    raise ValueError(f"{name} is no JSON")


def load(data):
    """Bytes as a document, or a FormatError."""
    try:
        return json.loads(data.decode("ascii"), object_pairs_hook=_no_key_twice, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        raise broken("", f"no JSON: {e}") from None


def tag_of(node, path):
    """(tag, what it holds) of a node: "dict", "list", "tuple", ...; "tensor" with its name and flags; "value"."""
    kind = type(node)
    if kind is str and node.startswith("$:"):
        return "tensor", [node[2:]]
    if kind is list:
        return "list", node
    if kind is not dict:
        return "value", node
    if len(node) == 1:
        (key, held), = node.items()
        if key.startswith("$"):
            return key[1:], held
    for key in node:
        if key.startswith("$"):
            raise broken(path, f"the tag {key!r} is not alone")
    return "object", node


def _expect(ok, path, what):
    if not ok:
        raise broken(path, f"expected {what}")


def _to_int(held, path):
    _expect(type(held) is str, path, "an integer in base 16")
    try:
        return int(held, 16)
    except ValueError:
        raise broken(path, "expected an integer in base 16") from None


def _to_float(held, path):
    try:
        return struct.unpack(">d", bytes.fromhex(held))[0]
    except (TypeError, ValueError, struct.error):
        raise broken(path, "expected the 8 bytes of a float") from None


def to_bytes(held, path):
    try:
        return base64.b64decode(held, validate=True)
    except (TypeError, ValueError):
        raise broken(path, "expected bytes in base 64") from None


def _to_size(held, path):
    _expect(type(held) is list and all(type(n) is int and -INT64 <= n < INT64 for n in held), path,
            "numbers of a size")
    return torch.Size(held)


def _to_dtype(held, path):
    dtype = _DTYPES.get(held) if type(held) is str else None
    _expect(dtype is not None, path, f"a dtype that this PyTorch knows, found {held!r}")
    return dtype


#: tag -> the value, for all that hold nothing else
TAGS = {"int": _to_int, "float": _to_float, "bytes": to_bytes, "size": _to_size, "dtype": _to_dtype}


def plain(tag, held, path):
    """The value of a node that holds no other."""
    if tag in TAGS:
        return TAGS[tag](held, path)
    if tag != "value":
        raise errors.VersionError(f"the checkpoint's tree at {path or 'its root'}: unknown tag \"${tag}\"")
    if type(held) is str and held.startswith("$"):
        _expect(held.startswith("$$"), path, "a text that begins with \"$$\"")
        return held[1:]
    return held


def key(node, path, depth=0):
    """A dict's key."""
    _expect(depth < DEPTH_MAX, path, "fewer tuples in a key")
    tag, held = tag_of(node, path)
    if tag != "tuple":
        _expect(tag in ("value", "int", "float", "bytes"), path, "a key")
        value = plain(tag, held, path)
        _expect(value == value, path, "a key that is equal to itself")
        return value
    _expect(type(held) is list, path, "a list of a tuple's entries")
    return tuple(key(n, path, depth + 1) for n in held)


def pairs(tag, held, path):
    """(key, node) pairs of a dict of any kind, in its order; None: it is no dict."""
    if tag == "object":
        return list(held.items())
    if tag == "ordered_dict":
        _expect(type(held) is list and len(held) == 2, path, "entries and metadata")
        inner = tag_of(held[0], path)
        _expect(inner[0] in ("object", "dict"), path, "a dict")
        return pairs(*inner, path)
    if tag != "dict":
        return None
    ok = type(held) is list and all(type(p) is list and len(p) == 2 for p in held)
    _expect(ok, path, "pairs of keys and values")
    found = [(key(k, path), node) for k, node in held]
    _expect(len({k for k, _ in found}) == len(found), path, "no key twice")
    return found


def entries(tag, held, path):
    """Nodes of a list or tuple; None: it is neither."""
    if tag not in ("list", "tuple"):
        return None
    _expect(type(held) is list, path, "a list of entries")
    return held
