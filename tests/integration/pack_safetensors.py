#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs against another implementation of safetensors, both ways.

pack_safetensors.py PACK_TOOL

Our pack (pack_tool write) is opened with the safetensors package: names, dtypes, shapes, metadata and every byte. Files
that the package writes are read by pack_tool read, which must find the same.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import venv_python  # noqa: E402

venv_python.enter()

import numpy  # noqa: E402
import safetensors  # noqa: E402
import safetensors.numpy  # noqa: E402

DTYPE_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
               "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8}
NUMPY = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "F16": "float16",
         "I32": "int32", "U32": "uint32", "F32": "float32", "F64": "float64", "I64": "int64", "U64": "uint64"}


def tool(*args):
    done = subprocess.run([sys.argv[1], *map(str, args)], capture_output=True)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def read_by_us(path):
    """What pack_tool finds: metadata, and for each name its dtype, shape, begin and end."""
    status, out, err = tool("read", path)
    assert status == 0, err
    metadata, *lines = out.split("\n")[:-1]
    tensors = {}
    for line in lines:
        name, dtype, shape, begin, end = line.split(" ")
        tensors[bytes.fromhex(name).decode()] = (dtype, json.loads(shape), int(begin), int(end))
    assert len(tensors) == len(lines)
    return json.loads(metadata) if metadata else None, tensors


def our_pack_is_read_by_the_package(scratch):
    path = scratch / "ours.safetensors"
    status, _, err = tool("write", path)
    assert status == 0, err
    raw = path.read_bytes()
    header = 8 + int.from_bytes(raw[:8], "little")
    assert header % 4096 == 0
    data = raw[header:]
    assert all(byte == (31 * k + 7) & 0xff for k, byte in enumerate(data))

    metadata, ours = read_by_us(path)
    theirs = dict(safetensors.deserialize(raw))
    assert set(theirs) == set(ours) and len(ours) == 25
    assert {"..", "a/b", " ", 'quote"back\\slash', "tab\tline\n\x01", "größe", "😀", "bw:0"} < set(theirs)
    for name, tensor in theirs.items():
        dtype, shape, begin, end = ours[name]
        assert (tensor["dtype"], list(tensor["shape"])) == (dtype, shape), name
        assert bytes(tensor["data"]) == data[begin:end], name
    assert {dtype for dtype, _, _, _ in ours.values()} == set(DTYPE_BYTES)

    with safetensors.safe_open(path, framework="numpy") as f:
        assert f.metadata() == metadata == {'k"': "v\né", "z": ""}
        for name in f.keys():
            dtype, shape, begin, end = ours[name]
            if dtype not in NUMPY or dtype == "BOOL":  # our bytes are not all 0 or 1
                continue
            tensor = f.get_tensor(name)
            assert tensor.dtype == NUMPY[dtype] and list(tensor.shape) == shape, name
            assert tensor.tobytes() == data[begin:end], name


def packs_of_the_package_are_read_by_us(scratch):
    rng = numpy.random.default_rng(7)
    shapes = [(), (1,), (0,), (3, 0, 2), (5, 7), (2, 3, 4, 5), (1,) * 16]
    names = ["a", "A", "..", "x/y", " ", "ü", "😀", "q\"\\/\b\f\n\r\t\x01\x7f", "bw:0", "k" * 4096]
    tensors = {}
    for i, dtype in enumerate(sorted(NUMPY.values())):
        for j, shape in enumerate(shapes):
            name = names[j % len(names)] + f".{dtype}.{i}.{j}"
            tensors[name] = rng.integers(0, 2, size=shape).astype(dtype)
    for metadata in (None, {}, {"format": "np"}, {"z": "ä\n\"\\", "a": "", "": "empty key"}):
        path = scratch / "theirs.safetensors"
        safetensors.numpy.save_file(tensors, path, metadata=metadata)
        raw = path.read_bytes()
        data = raw[8 + int.from_bytes(raw[:8], "little"):]
        found, ours = read_by_us(path)
        assert (found or None) == (metadata or None), (found, metadata)
        assert set(ours) == set(tensors)
        for name, tensor in tensors.items():
            dtype, shape, begin, end = ours[name]
            assert NUMPY[dtype] == tensor.dtype and shape == list(tensor.shape), name
            assert data[begin:end] == tensor.tobytes(), name


def a_file_without_tensors_is_read(scratch):
    path = scratch / "none.safetensors"
    safetensors.numpy.save_file({}, path)
    assert read_by_us(path)[1] == {}


def what_the_package_refuses_we_refuse(scratch):
    def entry(name, dtype, shape, begin, end):
        return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}'

    cases = {
        "hole": ("{" + entry("a", "U8", [1], 1, 2) + "}", 2),
        "overlap": ("{" + entry("a", "U8", [2], 0, 2) + "," + entry("b", "U8", [2], 1, 3) + "}", 3),
        "trailing byte": ("{" + entry("a", "U8", [1], 0, 1) + "}", 2),
        "outside": ("{" + entry("a", "U8", [2], 0, 2) + "}", 1),
        "shape": ("{" + entry("a", "F32", [2], 0, 4) + "}", 4),
        "overflow": ("{" + entry("a", "F64", [2**61], 0, 0) + "}", 0),
        "real": ("{" + entry("a", "U8", [1.0], 0, 1) + "}", 1),
        "dtype": ("{" + entry("a", "U9", [1], 0, 1) + "}", 1),
        "metadata": ('{"__metadata__":{"a":1}}', 0),
        "text": ("{", 0),
    }
    for what, (text, data_bytes) in cases.items():
        raw = len(text).to_bytes(8, "little") + text.encode() + bytes(data_bytes)
        path = scratch / "bad.safetensors"
        path.write_bytes(raw)
        try:
            safetensors.deserialize(raw)
        except safetensors.SafetensorError:
            pass
        else:
            raise AssertionError(f"{what}: the package reads it")
        status, _, err = tool("read", path)
        assert status == 1 and "pack header: " in err, (what, status, err)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        for case in (our_pack_is_read_by_the_package, packs_of_the_package_are_read_by_us,
                     a_file_without_tensors_is_read, what_the_package_refuses_we_refuse):
            case(pathlib.Path(scratch))
            print(f"ok {case.__name__}")


if __name__ == "__main__":
    main()
