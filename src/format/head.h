/* SPDX-License-Identifier: Apache-2.0 */
/* What the binary formats share: the head that every object begins with, and the tools of their decoders.
 * doc/format/binary.md
 *
 *   0  8 bytes  magic
 *   8  u16      major version
 *  10  u16      minor version
 *  12  u32      flags
 */
#ifndef BWI_FORMAT_HEAD_H
#define BWI_FORMAT_HEAD_H

#include "base/span.h"
#include <breakwater/error.h>

#define BWI_HEAD_BYTES 16
#define BWI_HEAD_MAJOR                                                                                                 \
    1 /* newest version of every binary format that this release knows, and the one that it writes                     \
       */
#define BWI_HEAD_MINOR 0

struct bwi_object_head {
    const char *magic; /* 8 bytes */
    const char *what;  /* names the object in messages: "layout" */
};

/* Whom to blame when a rule is broken: a decoder blames the object, an encoder its caller. One set of checks serves
 * both. */
struct bwi_blame {
    const char *what;
    int broken; /* a rule of the format: BW_E_FORMAT or BW_E_INVALID */
    int above;  /* a limit: BW_E_FORMAT or BW_E_LIMIT */
    struct bw_error *err;
};
struct bwi_blame bwi_blame_object(const struct bwi_object_head *h, struct bw_error *err);
struct bwi_blame bwi_blame_caller(const struct bwi_object_head *h, struct bw_error *err);

void bwi_head_write(const struct bwi_object_head *h, struct bwi_buf *out);
/* Magic, version, flags. *ret_newer: the minor version is above ours, so bytes may follow that we do not know. */
int bwi_head_read(const struct bwi_object_head *h, struct bwi_reader *r, bool *ret_newer, struct bw_error *err);
/* After the last known record: nothing was missing; nothing is left unless the object is newer. */
int bwi_head_end(const struct bwi_object_head *h, const struct bwi_reader *r, bool newer, struct bw_error *err);
/* BW_E_FORMAT if the reader ran over the end. */
int bwi_head_whole(const struct bwi_object_head *h, const struct bwi_reader *r, struct bw_error *err);
/* To be asked before memory is allocated for records that take at least so many bytes: are there as many left? */
int bwi_head_room(const struct bwi_object_head *h, const struct bwi_reader *r, uint64_t least_bytes,
                  struct bw_error *err);
/* A count against its limit. */
int bwi_head_limit(const struct bwi_blame *b, uint64_t found, uint64_t max, const char *what);
/* The end of every encoder: out of memory, or above the format's limit of bytes. `start` is the length that `out` had
 * before; restored on failure. */
int bwi_head_written(const struct bwi_object_head *h, struct bwi_buf *out, size_t start, uint64_t max_bytes,
                     struct bw_error *err);

/* An array for decoded records; *ret stays NULL when count is 0. */
int bwi_head_array(const struct bwi_object_head *h, void *ret_ptr, uint64_t count, size_t size, struct bw_error *err);

/* One array that holds all u64 numbers of an object (shapes, offsets, extents). */
struct bwi_numbers {
    uint64_t *ptr;
    size_t len, cap;
};
/* Reads n numbers. NULL: they do not fit; the object is cut short. Never NULL for n = 0. */
const uint64_t *bwi_numbers_read(struct bwi_numbers *n, struct bwi_reader *r, size_t count);

#endif
