/* SPDX-License-Identifier: Apache-2.0 */
/* A group's layout, content and placement against each other, as they would lie behind hashes that are right: what
 * passes is all that a reader counts on; and the index that the layout gives covers it or is refused.
 * Reaches src/format/placement.c src/format/content.c src/format/index_build.c src/checkpoint/coverage.c */
#include "checkpoint/extent_check.h"
#include "checkpoint/source.h"
#include "fuzz.h"

static const char run[] = "r";
static const struct bwi_id own = {.step = 7, .attempt = 1, .nonce = 42, .tri = 0};
static const struct bwi_id ref = {.step = 5, .attempt = 1, .nonce = 42, .tri = 0};

struct group {
    struct bwi_layout layout;
    struct bwi_content content;
    struct bwi_placement placement;
};

/* Every extent lies in its pack, and takes no more than the format allows to hold. */
static void check_extents(const struct group *g) {
    for (uint32_t item = 0; item < g->content.item_count; item++) {
        uint64_t sum = 0;
        for (uint64_t k = 0; k < g->content.first_extent[item + 1] - g->content.first_extent[item]; k++) {
            const struct bwi_extent x =
                bwi_extent_of(&g->content, &g->placement, item, g->content.first_extent[item] + k);
            const struct bwi_pack_ref *pack = &g->placement.packs[x.place->pack];
            fuzz_require(x.place->offset >= pack->header_bytes && x.place->stored_bytes > 0);
            fuzz_require(x.place->offset + x.place->stored_bytes <= pack->file_bytes);
            fuzz_require(x.raw_bytes > 0 && x.raw_bytes <= g->content.extent_bytes);
            fuzz_require(bwi_extent_buffer_bytes(&x) <= 3 * (size_t)BWI_EXTENT_BYTES_MAX);
            sum += x.raw_bytes;
        }
        fuzz_require(sum == g->content.raw_bytes[item]);
    }
    for (uint32_t i = 0; i < g->placement.pack_count; i++) {
        const struct bwi_key key = bwi_pack_key_of(&g->placement, i);
        struct bwi_key_parts parts;
        fuzz_require(bwi_key_parse(key.s, &parts) && parts.kind == BWI_KEY_PACK && strcmp(parts.run, run) == 0);
        fuzz_require(bwi_id_eq(&parts.id, &own) || bwi_id_eq(&parts.id, &ref));
    }
}

static void check_index(const struct bwi_layout *layout) {
    struct bwi_buf index = {0};
    struct bwi_index_info info;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_index_make(layout, 1, &index, &info, &err) == 0) {
        struct bwi_index_head head;
        fuzz_require(bwi_index_head_decode(bwi_span(index.ptr, info.head_bytes), &head, &err) == 0);
        fuzz_require(head.tensors == info.tensors && head.boxes == info.boxes && head.bytes == index.len);
        bwi_index_head_fini(&head);
    } else {
        fuzz_failed(err);
    }
    bwi_buf_fini(&index);
}

static void check_group(struct group *g) {
    struct bw_error err = BW_ERROR_INIT;
    check_index(&g->layout);
    if (bwi_content_check(&g->content, &g->layout, &err) == 0 &&
        bwi_placement_check(&g->placement, &g->content, run, &own, &ref, 1, &err) == 0)
        check_extents(g);
    else
        fuzz_failed(err);
}

/* Two lengths of 2 bytes, then the three objects. */
void fuzz_one(uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    struct group g;
    struct bw_error err = BW_ERROR_INIT;
    const size_t layout_bytes = fuzz_take(&in, 2), content_bytes = fuzz_take(&in, 2);
    const struct bwi_span layout = fuzz_take_span(&in, layout_bytes), content = fuzz_take_span(&in, content_bytes);
    if (bwi_layout_decode(layout, &g.layout, &err) < 0) return;
    if (bwi_content_decode(content, &g.content, &err) == 0) {
        if (bwi_placement_decode(bwi_span(in.at, in.left), &g.placement, &err) == 0) {
            check_group(&g);
            bwi_placement_fini(&g.placement);
        }
        bwi_content_fini(&g.content);
    }
    bwi_layout_fini(&g.layout);
}
