/* SPDX-License-Identifier: Apache-2.0 */
/* Content and placement: which bytes, and where they lie. doc/format/content.md, doc/format/placement.md.
 *
 * An item of raw_bytes bytes has ceil(raw_bytes / extent_bytes) extents, all of extent_bytes but the last; a tied box
 * has raw_bytes 0 here and none. Extents are numbered through, item after item. */
#ifndef BWI_FORMAT_CONTENT_H
#define BWI_FORMAT_CONTENT_H

#include "format/id.h"
#include "format/layout.h"
#include <breakwater/error.h>

struct bwi_content {
    struct bwi_sha layout; /* SHA-256 of the layout that this belongs to */
    uint32_t extent_bytes; /* 4 KiB .. BWI_EXTENT_BYTES_MAX, a power of two */
    uint32_t item_count;
    uint64_t *raw_bytes;    /* per item */
    uint64_t *first_extent; /* per item and one past the last: derived, not encoded */
    uint64_t extent_count;
    struct bwi_xxh *extents; /* XXH3-128 of the raw bytes */
    uint32_t meta_count;     /* user metadata: a JSON object for each rank of the layout; empty span = none */
    struct bwi_span *meta;   /* borrowed from the input when decoded */
};

int bwi_content_encode(const struct bwi_content *c, struct bwi_buf *out, struct bw_error *err);
int bwi_content_decode(struct bwi_span in, struct bwi_content *ret, struct bw_error *err);
void bwi_content_fini(struct bwi_content *c); /* frees all arrays; idempotent */
/* Makes first_extent from raw_bytes and extent_bytes, sets extent_count. first_extent is NULL before, or what an
 * earlier call made; it is allocated here and freed by bwi_content_fini. */
int bwi_content_number(struct bwi_content *c, struct bw_error *err);
/* Raw length of the k-th extent of an item. */
uint64_t bwi_content_extent_bytes(const struct bwi_content *c, uint32_t item, uint64_t k);
/* That content and layout fit: item count, raw bytes of each box, ties. */
int bwi_content_check(const struct bwi_content *c, const struct bwi_layout *l, struct bw_error *err);

enum bwi_codec { BWI_CODEC_RAW = 0, BWI_CODEC_ZSTD = 1 };

struct bwi_place {
    uint32_t pack;
    uint8_t codec;
    uint64_t offset; /* in the pack's file */
    uint64_t stored_bytes;
    struct bwi_xxh stored; /* XXH3-128 of the stored bytes; with RAW the same as the content's */
};

struct bwi_pack_ref {
    struct bwi_span key; /* full key, of a pack of this run */
    uint64_t file_bytes;
    uint64_t header_bytes; /* 8 + length of the JSON; data begins here */
    struct bwi_xxh header; /* XXH3-128 of these first bytes */
};

struct bwi_placement {
    struct bwi_sha content;
    uint64_t writer;
    uint32_t pack_count;
    struct bwi_pack_ref *packs; /* no key twice; keys are borrowed from the input when decoded */
    uint64_t extent_count;
    struct bwi_place *places; /* in the content's order */
};

int bwi_placement_encode(const struct bwi_placement *p, struct bwi_buf *out, struct bw_error *err);
int bwi_placement_decode(struct bwi_span in, struct bwi_placement *ret, struct bw_error *err);
void bwi_placement_fini(struct bwi_placement *p);
/* That a placement fits its content, and that every pack is one of run `run`, of checkpoint `own` or of one in `refs`,
 * of any group. Places lie within their packs behind the header; those of one pack do not overlap unless they are
 * equal. */
int bwi_placement_check(const struct bwi_placement *p, const struct bwi_content *c, const char *run,
                        const struct bwi_id *own, const struct bwi_id *refs, size_t ref_count, struct bw_error *err);

#endif
