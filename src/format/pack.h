/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a pack: a valid safetensors file that any reader opens. doc/format/pack.md.
 * Also reads and writes headers of foreign safetensors files (export, import). */
#ifndef BWI_FORMAT_PACK_H
#define BWI_FORMAT_PACK_H

#include "base/span.h"
#include "format/limits.h"
#include <breakwater/error.h>

struct bwi_pack_entry {
    struct bwi_span name;
    uint8_t dtype; /* one of safetensors' own 15 when written */
    uint8_t dims;
    uint64_t shape[BWI_DIMS_MAX];
    uint64_t begin, end; /* of its data, counted from the end of the header */
};

struct bwi_pack_header {
    struct bwi_pack_entry *entries; /* in order of their bytes, without holes from 0 to data_bytes */
    size_t count, cap;
    uint64_t data_bytes;
    struct bwi_span metadata; /* canonical JSON object of strings, or empty */
    struct bwi_buf names;     /* decoded: holds names and metadata */
};

/* Appends 8 + JSON bytes, the JSON padded with blanks so that the sum is a multiple of `align` (1: none).
 * Canonical: entries in the given order. */
int bwi_pack_header_encode(const struct bwi_pack_header *h, uint64_t align, struct bwi_buf *out, struct bw_error *err);
/* `in` begins with the 8 bytes of length and holds the whole header; file_bytes is the file's size. Refuses: a
 * length above BWI_PACK_HEADER_MAX or the file, JSON that is malformed, nests too deeply or repeats a key, offsets
 * that leave holes, overlap, end outside the file or contradict shape and dtype, trailing bytes, unknown dtypes.
 * Accepts entries in any order of keys. */
int bwi_pack_header_decode(struct bwi_span in, uint64_t file_bytes, struct bwi_pack_header *ret, struct bw_error *err);
void bwi_pack_header_fini(struct bwi_pack_header *h);
/* Bytes 0..7 -> 8 + JSON length, checked against file_bytes and BWI_PACK_HEADER_MAX. */
int bwi_pack_header_length(struct bwi_span first8, uint64_t file_bytes, uint64_t *ret_bytes, struct bw_error *err);
/* Upper bound of the JSON bytes that one entry takes, for deciding when a pack is full without encoding. */
size_t bwi_pack_entry_json_bytes(const struct bwi_pack_entry *e);
bool bwi_pack_dtype(uint8_t dtype); /* one of the fifteen */

#endif
