/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a checkpoint: tensor -> boxes -> groups, in blocks that are read and verified one by one.
 * doc/format/index.md. Tensors are sorted by name; boxes of a tensor by (group, item). */
#ifndef BWI_FORMAT_INDEX_H
#define BWI_FORMAT_INDEX_H

#include "format/layout.h"
#include <breakwater/error.h>

struct bwi_index_box {
    uint32_t group;
    uint32_t item; /* in the group's layout */
    const uint64_t *offset;
    const uint64_t *extent;
    uint32_t rank; /* that holds it, as the layout says; the encoded index does not: 0 in a decoded block */
};

struct bwi_index_tensor {
    struct bwi_span name;
    uint8_t dtype, dims;
    const uint64_t *shape;
    uint32_t box_count;
    struct bwi_index_box *boxes;
};

/* Building: group by group, any order of groups; the result does not depend on it. Layouts must outlive the builder. */
struct bwi_index_builder;
int bwi_index_builder_new(struct bwi_index_builder **ret, struct bw_error *err);
void bwi_index_builder_free(struct bwi_index_builder *b);
/* BW_E_COVERAGE if a tensor has another dtype or shape than in an earlier group. Layouts in which nothing is borrowed
 * from shorter-lived memory. After a failure the builder can only be freed. A group that is added twice is found when
 * the result is asked for (BW_E_INVALID). */
int bwi_index_builder_add(struct bwi_index_builder *b, uint32_t group, const struct bwi_layout *l,
                          struct bw_error *err);

struct bwi_index_info {
    struct bwi_sha root; /* SHA-256 of the head: it holds the hash of every block */
    uint64_t bytes;      /* of the whole object */
    uint64_t head_bytes; /* of the head, at its beginning */
    uint64_t tensors, boxes;
};
int bwi_index_builder_encode(struct bwi_index_builder *b, struct bwi_buf *out, struct bwi_index_info *ret,
                             struct bw_error *err);
/* All tensors in order, for the coverage check. Valid until the builder is freed or added to. */
int bwi_index_builder_tensors(struct bwi_index_builder *b, const struct bwi_index_tensor **ret, size_t *ret_count,
                              struct bw_error *err);

/* Reading. The head is the first head_bytes of the object, no more and no less; its caller has checked their hash. */
struct bwi_index_block_ref {
    uint64_t offset;
    uint32_t bytes;
    uint32_t tensors;
    uint64_t first_tensor; /* number of its first tensor in the index */
    struct bwi_sha sha;
    struct bwi_span first_name;
};
struct bwi_index_head {
    struct bwi_index_block_ref *blocks;
    uint32_t block_count;
    uint64_t tensors, boxes, bytes;
};
int bwi_index_head_decode(struct bwi_span head, struct bwi_index_head *ret, struct bw_error *err); /* borrows names */
void bwi_index_head_fini(struct bwi_index_head *h);
/* The block that holds `name` if any does. false: before the first. */
bool bwi_index_head_find(const struct bwi_index_head *h, struct bwi_span name, uint32_t *ret_block);

struct bwi_index_block {
    struct bwi_index_tensor *tensors;
    uint32_t tensor_count;
    uint64_t *numbers;
    struct bwi_index_box *boxes;
};
/* Checks the hash first. Borrows names from `in`. */
int bwi_index_block_decode(struct bwi_span in, const struct bwi_index_block_ref *ref, struct bwi_index_block *ret,
                           struct bw_error *err);
void bwi_index_block_fini(struct bwi_index_block *b);

#endif
