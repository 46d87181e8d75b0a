#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the fixtures of the formats that carry JSON: an encoder of its own, from doc/format/*.md alone.

make_json.py          writes the files beside this script
make_json.py --check  compares them with what would be written; exit status 1 if one differs
"""
import hashlib
import json
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent

UUID = "00112233445566778899aabbccddeeff"
UUID_2 = "f0e1d2c3b4a5968778695a4b3c2d1e0f"
STORE = "5707e1d5707e1d5707e1d5707e1d5707"


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sealed(value):
    """The object with "~sha256" as its last member: the hash of all bytes before its own first digit."""
    text = canonical(value)[:-1] + (b"," if value else b"") + b'"~sha256":"'
    return text + hashlib.sha256(text).hexdigest().encode() + b'"}'


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def checkpoint(step, attempt, nonce, tri):
    return f"{step:020d}.{attempt}-{nonce}.{tri}"


def store():
    return {"format": "breakwater-store", "version": [1, 0], "id": STORE}


def inventory():
    return {
        "format": "breakwater-inventory", "version": [1, 0],
        "launch": "slurm-4711-0-3", "job": "slurm-4711",
        "group": 1, "groups": 2, "world": 4,
        "ranks": [[2, "00000000000000ab"], [3, "fedcba9876543210"]],
        "holds": [
            [checkpoint(900, 2, "0badcafe", 0), UUID, 0, []],
            [checkpoint(900, 2, "0badcafe", 0), UUID, 1, []],
            [checkpoint(1000, 2, "0badcafe", 1), UUID, 1,
             [checkpoint(800, 2, "0badcafe", 0), checkpoint(900, 2, "0badcafe", 0)]],
        ],
        "host": "node17.cluster.example",
    }


def mark(kind):
    return {
        "format": f"breakwater-{kind}", "version": [1, 0],
        "id": checkpoint(1000, 2, "0badcafe", 0), "group": 1, "writer": "fedcba9876543210",
        "status": -5 if kind == "failed" else -9,
        "reason": "write pack 0: no space left on device (Größe \"4 GiB\")" if kind == "failed"
        else "extent 7 of pack 0: its bytes hash to something else",
    }


def refused():
    return {
        "format": "breakwater-refused", "version": [1, 0],
        "launch": "slurm-4711-0-3", "writer": "00000000000000ab", "status": -7,
        "reason": "resolve: no committed checkpoint of step 700 to go back to",
    }


def era_end():
    return {"format": "breakwater-era-end", "version": [1, 0], "run": "gpt-small", "era": 1, "n": 1235}


def entry_first():
    return {
        "format": "breakwater-history", "version": [1, 0],
        "run": "gpt-small", "lineage": [[1, 1, UUID]], "store": STORE, "era": 1, "n": 1, "prev": None,
        "writer": "00000000000000ab", "time_ms": 1760000000000, "host": "node1",
        "event": {"type": "register", "ids": [], "label": None, "mode": "default", "note": ""},
        "attempt": {"number": 1, "nonce": "0badcafe", "job": "slurm-4711", "launch": "slurm-4711-0-0",
                    "world": 2, "groups": 2, "fan_out": False},
        "from": None, "h": None, "tries": [], "ids": [], "live": [], "shelved": [],
        "labels": [], "launches": ["slurm-4711-0-0"], "superseded": [],
    }


def entry_full():
    a, b, c, d, e = (checkpoint(100, 1, "0badcafe", 0), checkpoint(200, 1, "0badcafe", 0),
                     checkpoint(250, 1, "0badcafe", 2), checkpoint(300, 2, "00c0ffee", 0),
                     checkpoint(400, 3, "deadbeef", 1))
    ids = [a, b, c, d, e]
    return {
        "format": "breakwater-history", "version": [1, 0],
        "run": "gpt-small", "lineage": [[1, 1, UUID], [3, 40, UUID_2]], "store": STORE, "era": 3, "n": 57,
        "prev": sha("entry 56"), "writer": "fedcba9876543210", "time_ms": 1760000600000,
        "host": "node17.cluster.example",
        "event": {"type": "commit", "ids": [e], "label": None, "mode": None, "note": "two groups, 3 µs after the last"},
        "attempt": {"number": 3, "nonce": "deadbeef", "job": "slurm-4711", "launch": "slurm-4711-0-3",
                    "world": 128, "groups": 66, "fan_out": True},
        "from": {"id": d, "world": 2, "groups": 2, "fan_out": False, "refs": [a, b], "open": True},
        "h": 400, "tries": [[401, 1], [9223372036854775807, 4294967295]],
        "ids": ids,
        "live": [
            {"id": 0, "manifest": sha("a"), "bytes": 0, "refs": [], "time_ms": 1760000100000, "pinned": False},
            {"id": 1, "manifest": sha("b"), "bytes": 9223372036854775807, "refs": [0], "time_ms": 1760000200000,
             "pinned": True},
            {"id": 4, "manifest": sha("e"), "bytes": 123456789, "refs": [0, 1], "time_ms": 1760000600000,
             "pinned": False},
        ],
        "shelved": [
            {"id": 2, "manifest": sha("c"), "bytes": 77, "refs": [0], "time_ms": -1, "pinned": False},
            {"id": 3, "manifest": sha("d"), "bytes": 78, "refs": [], "time_ms": 1760000300000, "pinned": True},
        ],
        "labels": ["back-to-300", "again"], "launches": ["slurm-4711-0-0", "slurm-4711-0-3"],
        "superseded": ["slurm-4000"],
    }


def manifest():
    return {
        "format": "breakwater-manifest", "version": [1, 0],
        "id": checkpoint(400, 3, "deadbeef", 1), "uuid": UUID_2, "world": 3, "fan_out": False,
        "groups": [
            [sha("layout 0"), 4096, sha("content 0"), 512, 1000000, [0, 2]],
            [sha("layout 1"), 2048, sha("content 1"), 256, 234567, [1]],
        ],
        "refs": [checkpoint(100, 1, "0badcafe", 0), checkpoint(200, 1, "0badcafe", 0)],
        "index": {"root": sha("index"), "bytes": 8192, "head_bytes": 512, "tensors": 12, "boxes": 20},
        "raw_bytes": 1234567,
    }


def newer_minor(value):
    """A later minor version: members that we do not know, at every level that may have them."""
    value = json.loads(json.dumps(value))
    value["version"] = [1, 7]
    value["zone"] = {"name": "later", "list": [[1], [2, {"x": None}]]}
    value["attempt"]["colour"] = "blue"
    value["event"]["why"] = ["no", "idea"]
    value["from"]["speed"] = 12
    value["live"][0]["tags"] = []
    value["lineage"][0].append("a column more")
    value["tries"][1].append(0)
    return value


def newer_major(value):
    """A later major version: nothing but the head can be relied on."""
    return {"format": value["format"], "version": [2, 0], "everything": "is different"}


def pack(json_text, data, align):
    pad = -(8 + len(json_text)) % align
    return struct.pack("<Q", len(json_text) + pad) + json_text + b" " * pad + data


def pack_own():
    text = (b'{"__metadata__":{"breakwater":"1.0","run":"gpt-small"},'
            b'"wte":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},'
            b'"empty":{"dtype":"BF16","shape":[0,7],"data_offsets":[24,24]},'
            b'"scalar":{"dtype":"I64","shape":[],"data_offsets":[24,32]},'
            b'"bw:0":{"dtype":"U8","shape":[5],"data_offsets":[32,37]}}')
    return pack(text, bytes(range(37)), 4096)


def pack_foreign():
    """Another program's: keys in any order, blanks, escapes, a dtype beyond the fifteen, metadata at the end."""
    text = (b'{ "b\\u00e9\\ud83d\\ude00/\\"\\\\" :\n\t{"shape":[ 1 , 2 ],"data_offsets":[8,24],"dtype":"C64"},\r\n'
            b' "a" : {"data_offsets":[0,8], "dtype" : "F64", "shape" : [1]} ,'
            b'"__metadata__":{"z":"\\u000a\\/","a":""}}   ')
    return pack(text, bytes(range(24)), 1)


def damaged(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


def fixtures():
    entry, full = sealed(entry_first()), entry_full()
    yield "good-store.json", sealed(store())
    yield "good-inventory.json", sealed(inventory())
    yield "good-inventory-seen.json", sealed(dict(inventory(), version=[1, 1], seen=[2, "0badcafe"]))
    yield "good-inventory-seen-none.json", sealed(dict(inventory(), version=[1, 1], holds=[], seen=None))
    yield "good-failed.json", sealed(mark("failed"))
    yield "good-damaged.json", sealed(mark("damaged"))
    yield "good-refused.json", sealed(refused())
    yield "good-era-end.json", sealed(era_end())
    yield "good-entry-first.json", entry
    yield "good-entry-full.json", sealed(full)
    yield "good-entry-newer-minor.json", sealed(newer_minor(full))
    yield "good-manifest.json", canonical(manifest())
    yield "good-pack.safetensors", pack_own()
    yield "good-pack-foreign.safetensors", pack_foreign()

    yield "newer-store.json", sealed(newer_major(store()))
    yield "newer-inventory.json", sealed(newer_major(inventory()))
    yield "newer-failed.json", sealed(newer_major(mark("failed")))
    yield "newer-damaged.json", sealed(newer_major(mark("damaged")))
    yield "newer-refused.json", sealed(newer_major(refused()))
    yield "newer-era-end.json", sealed(newer_major(era_end()))
    yield "newer-entry.json", sealed(newer_major(full))
    yield "newer-manifest.json", canonical(newer_major(manifest()))

    yield "bad-entry-bit.json", damaged(entry, 100)
    yield "bad-entry-cut.json", entry[:-1]
    yield "bad-entry-blank.json", sealed_text(canonical(entry_first()).replace(b',"era":1,', b', "era":1,'))
    yield "bad-entry-order.json", sealed_text(canonical(entry_first()).replace(b'"era":1,"event"', b'"event"', 1)
                                              .replace(b'"from":', b'"era":1,"from":', 1))
    yield "bad-manifest-rank-twice.json", canonical(dict(manifest(), groups=[
        manifest()["groups"][0], manifest()["groups"][1][:5] + [[2]]]))
    text = b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}'
    yield "bad-pack-overlap.safetensors", pack(text, b"123", 8)
    text = b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}'
    yield "bad-pack-hole.safetensors", pack(text, b"123", 8)


def sealed_text(text):
    """Seals a text that is not canonical: so it is refused for that alone."""
    text = text[:-1] + b',"~sha256":"'
    return text + hashlib.sha256(text).hexdigest().encode() + b'"}'


def main():
    check = sys.argv[1:] == ["--check"]
    wrong = []
    for name, data in fixtures():
        path = HERE / name
        if not check:
            path.write_bytes(data)
        elif not path.exists() or path.read_bytes() != data:
            wrong.append(name)
    for name in wrong:
        print(f"{name}: differs from what make_json.py writes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
