#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes and looks at safetensors files without any library but Python's own.

    safetensors_make.py make FILE [--metadata KEY=VALUE]... NAME:DTYPE:SHAPE:SEED...   SHAPE is "2x3", "" is a scalar
    safetensors_make.py dump [--any] FILE...   one line for each tensor, by name: name, dtype, shape, SHA-256 of its
                                               bytes; without --any everything must be aligned
    safetensors_make.py header FILE TEXT [BYTES]   a file with this header and so many bytes of zero, however wrong

A NAME is read as a Python string, so "\\n" and "\\u1f600" may be in it; "%c" stands for a colon.
"""
import hashlib
import json
import random
import struct
import sys

BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4,
         "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8, "C64": 8, "F8_E8M0": 1}


def elements(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count


def content(dtype, count, seed):
    """Random bits, so that NaN payloads and negative zeros are among them; truth values stay 0 or 1."""
    data = random.Random(seed).randbytes(count * BYTES[dtype])
    return bytes(b & 1 for b in data) if dtype == "BOOL" else data


def make(path, words):
    header, data = {}, b""
    for word in words:
        if word.startswith("--metadata="):
            key, value = word[len("--metadata="):].split("=", 1)
            header.setdefault("__metadata__", {})[key] = value
            continue
        name, dtype, extents, seed = word.split(":")
        name = name.encode("latin-1", "backslashreplace").decode("unicode_escape").replace("%c", ":")
        shape = [int(n) for n in extents.split("x")] if extents else []
        values = content(dtype, elements(shape), seed)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def dump(paths):
    lines = {}
    for path in paths:
        with open(path, "rb") as file:
            raw = file.read()
        (length,) = struct.unpack("<Q", raw[:8])
        header = json.loads(raw[8:8 + length])
        data = raw[8 + length:]
        end = max((e["data_offsets"][1] for n, e in header.items() if n != "__metadata__"), default=0)
        assert (8 + length) % 8 == 0 or "--any" in sys.argv, f"{path}: tensors are not aligned"
        assert end == len(data), f"{path}: {len(data)} bytes of tensors, offsets end at {end}"
        for name, e in header.items():
            if name == "__metadata__":
                continue
            begin, end = e["data_offsets"]
            aligned = begin % BYTES[e["dtype"]] == 0 or "--any" in sys.argv
            assert aligned, f"{path}: {name} is not aligned to its elements"
            assert end - begin == elements(e["shape"]) * BYTES[e["dtype"]], f"{path}: {name} has another size"
            lines[name] = f"{ascii(name)} {e['dtype']} {e['shape']} {hashlib.sha256(data[begin:end]).hexdigest()[:16]}"
    for name in sorted(lines):
        print(lines[name])


def main():
    verb, rest = sys.argv[1], sys.argv[2:]
    if verb == "make":
        make(rest[0], rest[1:])
    elif verb == "dump":
        dump([path for path in rest if path != "--any"])
    elif verb == "header":
        text = rest[1].encode()
        with open(rest[0], "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text + bytes(int(rest[2]) if len(rest) > 2 else 0))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
