/* SPDX-License-Identifier: Apache-2.0 */
/* Contents to bytes and back, and whether a content fits its layout. */
#include "format/content.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "format/head.h"
#include "format/shape.h"
#include <inttypes.h>

#define ITEMS_MAX ((uint64_t)BWI_BOXES_MAX + BWI_BLOBS_MAX)

static const struct bwi_object_head HEAD = {"BWCONTNT", "content"};

/* ---- the rules ---- */

static int check_extent_bytes(uint32_t v, const struct bwi_blame *b) {
    if (v >= BWI_PACK_ALIGN && v <= BWI_EXTENT_BYTES_MAX && (v & (v - 1)) == 0) return 0;
    return bwi_error_set(b->err, b->broken,
                         "%s: extents of %" PRIu32 " bytes, expected a power of two from %" PRIu64 " to %" PRIu32,
                         b->what, v, BWI_PACK_ALIGN, BWI_EXTENT_BYTES_MAX);
}

/* Extents of all items; first (nullable) gets the number of each item's first one, and one past the last. */
static int number(const struct bwi_content *c, const struct bwi_blame *b, uint64_t *first, uint64_t *ret_count) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < c->item_count; i++) {
        if (first != NULL) first[i] = count;
        count += bwi_div_ceil(c->raw_bytes[i], c->extent_bytes); /* at most 2^28 + 2^52 */
        const int rc = bwi_head_limit(b, count, BWI_EXTENTS_MAX, "extents");
        if (rc < 0) return rc;
    }
    if (first != NULL) first[c->item_count] = count;
    *ret_count = count;
    return 0;
}

static int check_counts(const struct bwi_content *c, const struct bwi_blame *b) {
    int rc = check_extent_bytes(c->extent_bytes, b);
    if (rc == 0) rc = bwi_head_limit(b, c->item_count, ITEMS_MAX, "items");
    if (rc == 0) rc = bwi_head_limit(b, c->extent_count, BWI_EXTENTS_MAX, "extents");
    if (rc == 0 && c->meta_count == 0) {
        rc = bwi_error_set(b->err, b->broken, "%s: metadata of no rank, expected at least one", b->what);
    }
    if (rc == 0) rc = bwi_head_limit(b, c->meta_count, BWI_GROUP_RANKS_MAX, "ranks with metadata");
    return rc;
}

static int check_extent_count(uint64_t found, uint64_t need, const struct bwi_blame *b) {
    if (found == need) return 0;
    return bwi_error_set(b->err, b->broken, "%s: %" PRIu64 " extents, its items have %" PRIu64, b->what, found, need);
}

static int check_meta(const struct bwi_content *c, const struct bwi_blame *b) {
    for (uint32_t i = 0; i < c->meta_count; i++) {
        const int rc = bwi_head_limit(b, c->meta[i].len, BWI_METADATA_MAX, "bytes of metadata");
        if (rc < 0) return rc;
        if (!bwi_utf8_valid(c->meta[i])) {
            return bwi_error_set(b->err, b->broken, "%s: metadata %" PRIu32 " is not UTF-8 without NUL", b->what, i);
        }
    }
    return 0;
}

int bwi_content_number(struct bwi_content *c, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_caller(&HEAD, err);
    uint64_t *first = NULL;
    uint64_t count = 0;
    int rc = check_extent_bytes(c->extent_bytes, &b);
    if (rc == 0) rc = bwi_head_limit(&b, c->item_count, ITEMS_MAX, "items");
    if (rc == 0) rc = bwi_head_array(&HEAD, &first, (uint64_t)c->item_count + 1, sizeof *first, err);
    if (rc == 0) rc = number(c, &b, first, &count);
    if (rc < 0) {
        bwi_free(first);
        return rc;
    }
    bwi_free(c->first_extent);
    c->first_extent = first;
    c->extent_count = count;
    return 0;
}

uint64_t bwi_content_extent_bytes(const struct bwi_content *c, uint32_t item, uint64_t k) {
    return bwi_min_u64(c->extent_bytes, c->raw_bytes[item] - k * c->extent_bytes);
}

/* ---- encoding ---- */

static int check(const struct bwi_content *c, const struct bwi_blame *b) {
    uint64_t need = 0;
    int rc = check_counts(c, b);
    if (rc == 0) rc = number(c, b, NULL, &need);
    if (rc == 0) rc = check_extent_count(c->extent_count, need, b);
    if (rc == 0) rc = check_meta(c, b);
    return rc;
}

int bwi_content_encode(const struct bwi_content *c, struct bwi_buf *out, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_caller(&HEAD, err);
    const int rc = check(c, &b);
    if (rc < 0) return rc;
    const size_t start = out->len;
    bwi_head_write(&HEAD, out);
    bwi_buf_put(out, c->layout.b, sizeof c->layout.b);
    bwi_buf_u32(out, c->extent_bytes);
    bwi_buf_u32(out, c->item_count);
    bwi_buf_u64(out, c->extent_count);
    bwi_buf_u32(out, c->meta_count);
    bwi_buf_u32(out, 0);
    for (uint32_t i = 0; i < c->item_count; i++) bwi_buf_u64(out, c->raw_bytes[i]);
    bwi_buf_put(out, c->extents, (size_t)c->extent_count * sizeof *c->extents);
    for (uint32_t i = 0; i < c->meta_count; i++) {
        bwi_buf_u32(out, (uint32_t)c->meta[i].len);
        bwi_buf_put(out, c->meta[i].ptr, c->meta[i].len);
    }
    return bwi_head_written(&HEAD, out, start, BWI_CONTENT_BYTES_MAX, err);
}

/* ---- decoding ---- */

static int read_fixed(struct bwi_reader *r, struct bwi_content *c, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_object(&HEAD, err);
    bwi_read_into(r, c->layout.b, sizeof c->layout.b);
    c->extent_bytes = bwi_read_u32(r);
    c->item_count = bwi_read_u32(r);
    c->extent_count = bwi_read_u64(r);
    c->meta_count = bwi_read_u32(r);
    const uint32_t zero = bwi_read_u32(r);
    int rc = bwi_head_whole(&HEAD, r, err);
    if (rc == 0 && zero != 0) rc = bwi_error_set(err, BW_E_FORMAT, "content: padding is not zero");
    if (rc == 0) rc = check_counts(c, &b);
    /* No overflow: all three counts are bounded now. */
    const uint64_t least =
        (uint64_t)c->item_count * 8 + c->extent_count * sizeof(struct bwi_xxh) + (uint64_t)c->meta_count * 4;
    if (rc == 0) rc = bwi_head_room(&HEAD, r, least, err);
    return rc;
}

static int reserve(struct bwi_content *c, struct bw_error *err) {
    int rc = bwi_head_array(&HEAD, &c->raw_bytes, c->item_count, sizeof *c->raw_bytes, err);
    if (rc == 0)
        rc = bwi_head_array(&HEAD, &c->first_extent, (uint64_t)c->item_count + 1, sizeof *c->first_extent, err);
    if (rc == 0) rc = bwi_head_array(&HEAD, &c->extents, c->extent_count, sizeof *c->extents, err);
    if (rc == 0) rc = bwi_head_array(&HEAD, &c->meta, c->meta_count, sizeof *c->meta, err);
    return rc;
}

static int read_records(struct bwi_reader *r, struct bwi_content *c, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_object(&HEAD, err);
    uint64_t need = 0;
    for (uint32_t i = 0; i < c->item_count; i++) c->raw_bytes[i] = bwi_read_u64(r);
    int rc = number(c, &b, c->first_extent, &need);
    if (rc == 0) rc = check_extent_count(c->extent_count, need, &b);
    if (rc < 0) return rc;
    if (c->extent_count > 0) bwi_read_into(r, c->extents, (size_t)c->extent_count * sizeof *c->extents);
    for (uint32_t i = 0; i < c->meta_count; i++) c->meta[i] = bwi_read_bytes(r, bwi_read_u32(r));
    rc = bwi_head_whole(&HEAD, r, err);
    if (rc == 0) rc = check_meta(c, &b);
    return rc;
}

int bwi_content_decode(struct bwi_span in, struct bwi_content *ret, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_object(&HEAD, err);
    struct bwi_content c = {0};
    struct bwi_reader r = bwi_reader(in);
    bool newer = false;
    int rc = bwi_head_limit(&b, in.len, BWI_CONTENT_BYTES_MAX, "bytes");
    if (rc == 0) rc = bwi_head_read(&HEAD, &r, &newer, err);
    if (rc == 0) rc = read_fixed(&r, &c, err);
    if (rc == 0) rc = reserve(&c, err);
    if (rc == 0) rc = read_records(&r, &c, err);
    if (rc == 0) rc = bwi_head_end(&HEAD, &r, newer, err);
    if (rc < 0) {
        bwi_content_fini(&c);
        return rc;
    }
    *ret = c;
    return 0;
}

void bwi_content_fini(struct bwi_content *c) {
    if (c == NULL) return;
    bwi_free(c->raw_bytes);
    bwi_free(c->first_extent);
    bwi_free(c->extents);
    bwi_free(c->meta);
    *c = (struct bwi_content){0};
}

/* ---- against the layout ---- */

int bwi_content_check(const struct bwi_content *c, const struct bwi_layout *l, struct bw_error *err) {
    if (c->item_count != bwi_layout_items(l)) {
        return bwi_error_set(err, BW_E_FORMAT, "content: %" PRIu32 " items, its layout has %" PRIu64, c->item_count,
                             bwi_layout_items(l));
    }
    if (c->meta_count != l->rank_count) {
        return bwi_error_set(err, BW_E_FORMAT, "content: metadata of %" PRIu32 " ranks, its layout has %" PRIu32,
                             c->meta_count, l->rank_count);
    }
    for (uint32_t i = 0; i < l->box_count; i++) {
        const bool tied = l->boxes[i].tied != BWI_NOT_TIED;
        const uint64_t want = tied ? 0 : bwi_box_bytes(l, i);
        if (c->raw_bytes[i] == want) continue;
        return bwi_error_set(err, BW_E_FORMAT,
                             "content: tensor %s, rank %" PRIu32 "%s: %" PRIu64 " bytes, expected %" PRIu64,
                             bwi_shape_name_text(l->tensors[l->boxes[i].tensor].name).s, l->boxes[i].rank,
                             tied ? " (tied)" : "", c->raw_bytes[i], want);
    }
    return 0;
}
