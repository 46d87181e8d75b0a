/* SPDX-License-Identifier: Apache-2.0 */
/* The layout: what a group holds. Names, dtypes, shapes, boxes, names of blobs; the same from step to step.
 * doc/format/layout.md.
 *
 * Item numbers: boxes 0 .. box_count - 1 in the layout's order, then blobs. Content and placement speak of items. */
#ifndef BWI_FORMAT_LAYOUT_H
#define BWI_FORMAT_LAYOUT_H

#include "base/span.h"
#include "format/limits.h"
#include "hash/hash.h"
#include <breakwater/error.h>

#define BWI_NOT_TIED UINT32_MAX

struct bwi_tensor {
    struct bwi_span name; /* UTF-8, 1 .. BWI_TENSOR_NAME_MAX bytes, no NUL byte */
    uint8_t dtype;
    uint8_t dims;
    const uint64_t *shape; /* dims of them */
};

struct bwi_box {
    uint32_t tensor; /* number in tensors */
    uint32_t rank;
    uint32_t tied; /* item number of the earlier box whose bytes these are (two names on one storage); BWI_NOT_TIED */
    const uint64_t *offset; /* dims of the tensor */
    const uint64_t *extent;
};

struct bwi_blob {
    uint32_t rank;
    struct bwi_span name;
};

/* Encoded sorted: tensors by name (unique), boxes by (tensor, rank) (unique), blobs by (rank, name) (unique), ranks
 * ascending (unique). */
struct bwi_layout {
    uint32_t *ranks; /* of the group; at least one */
    uint32_t rank_count;
    struct bwi_tensor *tensors;
    uint32_t tensor_count;
    struct bwi_box *boxes;
    uint32_t box_count;
    struct bwi_blob *blobs;
    uint32_t blob_count;
    uint64_t *numbers; /* decoded: holds all shapes, offsets and extents */
};

int bwi_layout_encode(const struct bwi_layout *l, struct bwi_buf *out, struct bw_error *err);
/* Names are borrowed from `in`, which must outlive the layout. Refuses with BW_E_FORMAT whatever breaks a rule,
 * BW_E_VERSION a newer major version. */
int bwi_layout_decode(struct bwi_span in, struct bwi_layout *ret, struct bw_error *err);
void bwi_layout_fini(struct bwi_layout *l); /* of a decoded one; idempotent */

uint64_t bwi_layout_items(const struct bwi_layout *l);
/* Bytes of a box: product of extents times element size. The layout is sound, so it does not overflow. */
uint64_t bwi_box_bytes(const struct bwi_layout *l, uint32_t box);
bool bwi_layout_find(const struct bwi_layout *l, struct bwi_span name, uint32_t *ret_tensor);        /* binary search */
bool bwi_layout_find_box(const struct bwi_layout *l, uint32_t tensor, uint32_t rank, uint32_t *ret); /* binary search */
bool bwi_layout_find_blob(const struct bwi_layout *l, uint32_t rank, struct bwi_span name, uint32_t *ret_blob);

#endif
