/* SPDX-License-Identifier: Apache-2.0 */
/* The index: its head, and a block behind the hash that the head holds for it.
 * Reaches src/format/index.c */
#include "format/index.h"
#include "fuzz.h"

/* What a reader counts on: every box lies in its tensor. */
static void check_tensor(const struct bwi_index_tensor *t) {
    fuzz_require(t->name.len > 0 && t->box_count > 0);
    for (uint32_t i = 0; i < t->box_count; i++)
        for (unsigned d = 0; d < t->dims; d++)
            fuzz_require(t->boxes[i].extent[d] <= t->shape[d] &&
                         t->boxes[i].offset[d] <= t->shape[d] - t->boxes[i].extent[d]);
}

static void read_block(const struct bwi_index_block_ref *ref, const uint8_t *data, size_t size) {
    struct bwi_index_block_ref right = *ref;
    struct bwi_index_block block;
    struct bw_error err = BW_ERROR_INIT;
    right.sha = bwi_sha_of(bwi_span(data, size));
    right.bytes = (uint32_t)size;
    if (bwi_index_block_decode(bwi_span(data, size), &right, &block, &err) != 0) return;
    for (uint32_t i = 0; i < block.tensor_count; i++) check_tensor(&block.tensors[i]);
    bwi_index_block_fini(&block);
}

/* The first 2 bytes of the input are the length of the head; a block follows it. */
void fuzz_one(uint8_t *data, size_t size) {
    if (size < 2) return;
    const size_t head_bytes = (size_t)data[0] | (size_t)data[1] << 8;
    if (head_bytes > size - 2) return;
    uint8_t *head_copy = fuzz_copy(data + 2, head_bytes);
    uint8_t *block_copy = fuzz_copy(data + 2 + head_bytes, size - 2 - head_bytes);
    struct bwi_index_head head;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_index_head_decode(bwi_span(head_copy, head_bytes), &head, &err) == 0) {
        uint32_t found = 0;
        for (uint32_t i = 0; i < head.block_count; i++)
            fuzz_require(bwi_index_head_find(&head, head.blocks[i].first_name, &found) && found == i);
        for (uint32_t i = 0; i < head.block_count && i < 4; i++) {
            read_block(&head.blocks[i], block_copy, size - 2 - head_bytes);
        }
        bwi_index_head_fini(&head);
    } else {
        fuzz_failed(err);
    }
    free(block_copy);
    free(head_copy);
}
