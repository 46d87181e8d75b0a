#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the fixtures of the binary formats: layout, content, placement, summary, index.

It is written from the pages doc/format/*.md, not from the C code, so that the two check each other. Needs nothing but
Python's standard library.

    make_binary.py            writes all *.bin files beside itself
    make_binary.py --check    tells whether they are what it would write
    make_binary.py --doc NAME prints the annotated example of doc/format/NAME.md
    make_binary.py --c        prints tests/unit/format/examples.h
"""

import hashlib
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
U32_MAX = 2**32 - 1
F32, I64 = 12, 14


class Writer:
    """Bytes with a note for each field."""

    def __init__(self):
        self.data = b""
        self.fields = []  # (offset, bytes, note)

    def raw(self, data, note):
        if data:
            self.fields.append((len(self.data), data, note))
        self.data += data
        return self

    def u8(self, v, note):
        return self.raw(struct.pack("<B", v), note)

    def u16(self, v, note):
        return self.raw(struct.pack("<H", v), note)

    def u32(self, v, note):
        return self.raw(struct.pack("<I", v), note)

    def u64(self, v, note):
        return self.raw(struct.pack("<Q", v), note)

    def u64s(self, numbers, note):
        return self.raw(struct.pack(f"<{len(numbers)}Q", *numbers), f"{note} {list(numbers)}")

    def text(self, s, note="name"):
        """Repeated in the note if it is short."""
        return self.raw(s, f'{note} "{s.decode("ascii", "replace")}"' if len(s) <= 16 else note)


def head(w, magic, major=1, minor=0, flags=0):
    w.raw(magic, 'magic "%s"' % magic.decode().replace("\0", "\\0"))
    w.u16(major, "major version").u16(minor, "minor version").u32(flags, "flags")


def sha(data):
    return hashlib.sha256(data).digest()


def some_hash(first):
    """16 bytes that are easy to find in a dump; decoders do not look at the bytes behind them."""
    return bytes(range(first, first + 16))


# ---- layout ----

TENSORS = [(b"step", I64, []), (b"w", F32, [4, 2]), (b"w.tied", F32, [2, 2])]
BOXES = [  # tensor, rank, tied, offset, extent
    (0, 2, U32_MAX, [], []),
    (1, 2, U32_MAX, [0, 0], [2, 2]),
    (1, 3, U32_MAX, [2, 0], [2, 2]),
    (2, 3, 2, [0, 0], [2, 2]),
]
BLOBS = [(2, b"rng")]


def layout(ranks=(2, 3), tensors=TENSORS, boxes=BOXES, blobs=BLOBS, counts=None, tail=b"", **version):
    w = Writer()
    head(w, b"BWLAYOUT", **version)
    counts = counts or (len(ranks), len(tensors), len(boxes), len(blobs))
    for n, what in zip(counts, ("ranks", "tensors", "boxes", "blobs")):
        w.u32(n, f"number of {what}")
    for rank in ranks:
        w.u32(rank, f"rank {rank}")
    for i, (name, dtype, shape) in enumerate(tensors):
        w.u32(len(name), f"tensor {i}: bytes of its name").u8(dtype, "dtype").u8(len(shape), "dimensions")
        w.u16(0, "zero").text(name).u64s(shape, "shape")
    for i, (tensor, rank, tied, offset, extent) in enumerate(boxes):
        w.u32(tensor, f"box {i}: tensor").u32(rank, "rank")
        w.u32(tied, "tied to no box" if tied == U32_MAX else "tied to box")
        w.u32(0, "zero").u64s(offset, "offset").u64s(extent, "extent")
    for i, (rank, name) in enumerate(blobs):
        w.u32(rank, f"blob {i}: rank").u32(len(name), "bytes of its name").text(name)
    return w.raw(tail, "more")


# ---- content ----

ITEM_BYTES = [8, 16, 16, 0, 5]  # step, w of rank 2, w of rank 3, w.tied (tied), the blob


def content(items=ITEM_BYTES, extent_bytes=4096, extents=None, meta=(b'{"lr":1}', b""), tail=b"", **version):
    w = Writer()
    head(w, b"BWCONTNT", **version)
    count = sum(-(-n // extent_bytes) for n in items) if extents is None else extents
    w.raw(sha(layout().data), "SHA-256 of the layout").u32(extent_bytes, "bytes of an extent")
    w.u32(len(items), "number of items").u64(count, "number of extents")
    w.u32(len(meta), "number of ranks with metadata").u32(0, "zero")
    for i, n in enumerate(items):
        w.u64(n, f"raw bytes of item {i}")
    for i in range(count):
        w.raw(some_hash(0x10 * (i + 1)), f"XXH3-128 of extent {i}")
    for i, text in enumerate(meta):
        w.u32(len(text), f"metadata {i}: bytes").text(text, "text")
    return w.raw(tail, "more")


# ---- placement ----

WRITER = 0x0123456789ABCDEF
KEY = b"runs/r/data/00/00000000000000000007.1-0000002a.0/000001/0-0123456789abcdef.safetensors"
PLACES = [(0, 0, 4096, 8), (0, 0, 4104, 16), (0, 0, 4120, 16), (0, 0, 4136, 5)]  # pack, codec, offset, bytes


def placement(key=KEY, file_bytes=4141, header_bytes=4096, places=PLACES, tail=b"", **version):
    w = Writer()
    head(w, b"BWPLACMT", **version)
    w.raw(sha(content().data), "SHA-256 of the content").u64(WRITER, "writer").u32(1, "number of packs")
    w.u32(0, "zero").u64(len(places), "number of extents")
    w.u64(file_bytes, "pack 0: bytes of its file").u64(header_bytes, "bytes of its header")
    w.raw(some_hash(0xA0), "XXH3-128 of its header").u16(len(key), "bytes of its key").text(key, "key")
    for i, (pack, codec, offset, stored) in enumerate(places):
        w.u32(pack, f"extent {i}: pack").u8(codec, "codec").raw(bytes(3), "zero").u64(offset, "offset")
        w.u64(stored, "stored bytes").raw(some_hash(0x10 * (i + 1)), "XXH3-128 of the stored bytes")
    return w.raw(tail, "more")


# ---- summary ----


def put_id(w, what, step, attempt, nonce, tri):
    w.u64(step, f"{what}: step").u32(attempt, "attempt").u32(nonce, "nonce").u32(tri, "try")


def summary(group=1, fan_out=0, refs=((5, 1, 0x2A, 0),), tail=b"", break_hash=False, **version):
    w = Writer()
    head(w, b"BWSUMMRY", **version)
    w.raw(bytes(range(0xE0, 0xF0)), "uuid")
    put_id(w, "id", 7, 1, 0x2A, 0)
    w.u32(group, "group").u32(2, "groups").u32(4, "world").u8(fan_out, "fan-out").raw(bytes(3), "zero")
    w.u32(2, "number of ranks").u32(len(refs), "number of refs").u32(1, "number of packs of its own")
    objects = [("layout", layout().data), ("content", content().data), ("placement", placement().data)]
    for what, data in objects:
        w.raw(sha(data), f"SHA-256 of the {what}")
    for what, data in objects:
        w.u64(len(data), f"bytes of the {what}")
    w.u64(WRITER, "writer").u64(sum(ITEM_BYTES), "raw bytes").u64(4141, "stored bytes")
    w.u32(2, "rank 2").u32(3, "rank 3")
    for i, ref in enumerate(refs):
        put_id(w, f"ref {i}", *ref)
    w.raw(tail, "more")
    trailer = sha(w.data)
    if break_hash:
        trailer = bytes([trailer[0] ^ 1]) + trailer[1:]
    return w.raw(trailer, "SHA-256 of all bytes before")


# ---- index ----


def index_block(group=1):
    w = Writer()
    for i, (name, dtype, shape) in enumerate(TENSORS):
        boxes = [(item, box) for item, box in enumerate(BOXES) if box[0] == i]
        w.u32(len(name), f"tensor {i}: bytes of its name").u8(dtype, "dtype").u8(len(shape), "dimensions")
        w.u16(0, "zero").u32(len(boxes), "number of boxes").text(name).u64s(shape, "shape")
        for item, (_, _, _, offset, extent) in boxes:
            w.u32(group, "box: group").u32(item, "item").u64s(offset, "offset").u64s(extent, "extent")
    return w


def index(gap=0, tail=b"", break_hash=False, **version):
    w = Writer()
    block = index_block()
    name = TENSORS[0][0]
    head_bytes = 48 + 52 + len(name) + len(tail)
    head(w, b"BWINDEX\0", **version)
    w.u32(1, "number of blocks").u32(0, "zero")
    w.u64(len(TENSORS), "number of tensors").u64(len(BOXES), "number of boxes")
    w.u64(head_bytes + gap + len(block.data), "bytes of the index")
    w.u64(head_bytes + gap, "block 0: offset").u32(len(block.data), "bytes").u32(len(TENSORS), "tensors")
    hashed = sha(block.data + (b"x" if break_hash else b""))
    w.raw(hashed, "SHA-256 of the block").u32(len(name), "bytes of its first name").text(name)
    w.raw(tail, "more").raw(bytes(gap), "gap")
    for offset, data, note in block.fields:
        w.raw(data, note)
    return w


# ---- all of them ----

FIXTURES = {
    "good-layout": layout(),
    "good-layout-newer-minor": layout(minor=1, tail=b"new"),
    "good-layout-empty": layout(tensors=[], boxes=[], blobs=[]),
    "bad-layout-magic": layout().data.replace(b"BWLAYOUT", b"BWLAYOFF"),
    "bad-layout-cut": layout().data[:-1],
    "bad-layout-tail": layout(tail=b"x"),
    "bad-layout-count": layout(counts=(2, 2**24, 4, 1)),
    "bad-layout-unsorted": layout(tensors=[TENSORS[0], TENSORS[2], TENSORS[1]]),
    "bad-layout-outside": layout(boxes=BOXES[:2] + [(1, 3, U32_MAX, [3, 0], [2, 2])] + BOXES[3:]),
    "bad-layout-overflow": layout(tensors=[TENSORS[0], (b"w", F32, [2**62, 2]), TENSORS[2]]),
    "bad-layout-tie": layout(boxes=BOXES[:3] + [(2, 3, 3, [0, 0], [2, 2])]),
    "bad-layout-rank": layout(blobs=[(1, b"rng")]),
    "newer-layout": layout(major=2),
    "newer-layout-flags": layout(flags=1),
    "good-content": content(),
    "good-content-newer-minor": content(minor=7, tail=b"new"),
    "bad-content-extents": content(extents=5),
    "bad-content-extent-bytes": content(extent_bytes=6000),
    "bad-content-metadata": content(meta=(b"\xff", b"")),
    "newer-content": content(major=2),
    "good-placement": placement(),
    "good-placement-newer-minor": placement(minor=1, tail=b"new"),
    "bad-placement-key": placement(key=KEY.replace(b"runs/r/", b"runs/../")),
    "bad-placement-outside": placement(file_bytes=4140),
    "bad-placement-header": placement(places=[(0, 0, 4095, 8)] + PLACES[1:]),
    "bad-placement-codec": placement(places=[(0, 2, 4096, 8)] + PLACES[1:]),
    "newer-placement": placement(major=2),
    "good-summary": summary(),
    "good-summary-newer-minor": summary(minor=1, tail=b"new"),
    "bad-summary-hash": summary(break_hash=True),
    "bad-summary-group": summary(group=2),
    "bad-summary-fan-out": summary(fan_out=2),
    "bad-summary-ref": summary(refs=((7, 1, 0x2A, 0),)),
    "newer-summary": summary(major=2),
    "good-index": index(),
    "good-index-newer-minor": index(minor=1, tail=b"new"),
    "bad-index-gap": index(gap=1),
    "bad-index-hash": index(break_hash=True),
    "newer-index": index(major=2),
}

EXAMPLES = ("layout", "content", "placement", "summary", "index")


def data_of(fixture):
    return fixture if isinstance(fixture, bytes) else fixture.data


def doc(name):
    """One field a line, 16 bytes at most; a longer field goes on without a note."""
    for offset, data, note in FIXTURES["good-" + name].fields:
        for at in range(0, len(data), 16):
            line = f"{offset + at:4}  {data[at:at + 16].hex(' '):47}  {note if at == 0 else ''}"
            print(line.rstrip())


def c():
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* The examples of doc/format/, byte by byte. Do not edit: made by")
    print(" * tests/golden/format/binary/make_binary.py --c > tests/unit/format/examples.h */")
    print("#ifndef BW_TEST_FORMAT_EXAMPLES_H\n#define BW_TEST_FORMAT_EXAMPLES_H\n\n#include <stdint.h>\n")
    print("/* clang-format off */")
    for name in EXAMPLES:
        print(f"static const uint8_t EXAMPLE_{name.upper()}[] = {{")
        for _, data, note in FIXTURES["good-" + name].fields:
            for at in range(0, len(data), 8):
                hexes = ", ".join(f"0x{v:02x}" for v in data[at:at + 8])
                print(f"    {hexes}," + (f" /* {note} */" if at == 0 else ""))
        print("};\n")
    print("#endif")


def main(args):
    if args[:1] == ["--doc"]:
        doc(args[1])
    elif args == ["--c"]:
        c()
    elif args == ["--check"]:
        wrong = [n for n, f in FIXTURES.items() if (HERE / f"{n}.bin").read_bytes() != data_of(f)]
        print("\n".join(f"{n}.bin differs" for n in wrong) or f"{len(FIXTURES)} fixtures are as written")
        return 1 if wrong else 0
    else:
        for name, fixture in FIXTURES.items():
            (HERE / f"{name}.bin").write_bytes(data_of(fixture))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
