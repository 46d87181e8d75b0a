/* SPDX-License-Identifier: Apache-2.0 */
/* Reading an index: its head, and blocks one by one. Writing it is in index_build.c. */
#include "format/index.h"
#include "base/error.h"
#include "base/vec.h"
#include "format/index_parts.h"
#include "format/limits.h"
#include "format/shape.h"
#include <inttypes.h>

const struct bwi_object_head BWI_INDEX_HEAD = {"BWINDEX\0", "index"};

/* ---- the head ---- */

static int read_counts(struct bwi_reader *r, struct bwi_index_head *h, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_object(&BWI_INDEX_HEAD, err);
    h->block_count = bwi_read_u32(r);
    const uint32_t zero = bwi_read_u32(r);
    h->tensors = bwi_read_u64(r);
    h->boxes = bwi_read_u64(r);
    h->bytes = bwi_read_u64(r);
    int rc = bwi_head_whole(&BWI_INDEX_HEAD, r, err);
    if (rc == 0 && zero != 0) rc = bwi_error_set(err, BW_E_FORMAT, "index: padding is not zero");
    if (rc == 0) rc = bwi_head_limit(&b, h->bytes, BWI_INDEX_BYTES_MAX, "bytes");
    if (rc == 0 && h->boxes < h->tensors) {
        rc = bwi_error_set(err, BW_E_FORMAT, "index: %" PRIu64 " boxes of %" PRIu64 " tensors: each has one at least",
                           h->boxes, h->tensors);
    }
    if (rc == 0) rc = bwi_head_room(&BWI_INDEX_HEAD, r, (uint64_t)h->block_count * BWI_INDEX_REF_MIN, err);
    if (rc == 0) rc = bwi_head_array(&BWI_INDEX_HEAD, &h->blocks, h->block_count, sizeof *h->blocks, err);
    return rc;
}

/* One block's reference: it begins where the one before ended, and its first name is behind the one before. */
static int check_ref(const struct bwi_index_head *h, uint32_t i, uint64_t offset, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_object(&BWI_INDEX_HEAD, err);
    const struct bwi_index_block_ref *k = &h->blocks[i];
    int rc = bwi_shape_name_check(&b, "tensor", k->first_name);
    if (rc == 0 && i > 0) rc = bwi_shape_order_check(&b, "tensor", h->blocks[i - 1].first_name, k->first_name);
    if (rc == 0 && (k->tensors == 0 || (uint64_t)k->tensors * BWI_INDEX_TENSOR_MIN > k->bytes)) {
        rc = bwi_error_set(err, BW_E_FORMAT,
                           "index: block %" PRIu32 ": %" PRIu32 " tensors in %" PRIu32 " bytes cannot be", i,
                           k->tensors, k->bytes);
    }
    if (rc == 0 && k->offset != offset) {
        rc = bwi_error_set(err, BW_E_FORMAT, "index: block %" PRIu32 " is at %" PRIu64 ", expected %" PRIu64, i,
                           k->offset, offset);
    }
    return rc;
}

static int read_refs(struct bwi_reader *r, struct bwi_index_head *h, struct bw_error *err) {
    uint64_t offset = r->in.len; /* blocks follow the head */
    uint64_t tensors = 0;
    for (uint32_t i = 0; i < h->block_count; i++) {
        struct bwi_index_block_ref *k = &h->blocks[i];
        k->offset = bwi_read_u64(r);
        k->bytes = bwi_read_u32(r);
        k->tensors = bwi_read_u32(r);
        bwi_read_into(r, k->sha.b, sizeof k->sha.b);
        k->first_name = bwi_read_bytes(r, bwi_read_u32(r));
        k->first_tensor = tensors;
        int rc = bwi_head_whole(&BWI_INDEX_HEAD, r, err);
        if (rc == 0) rc = check_ref(h, i, offset, err);
        if (rc < 0) return rc;
        offset += k->bytes; /* neither sum overflows: at most 2^32 terms below 2^32, and the length of a span */
        tensors += k->tensors;
    }
    if (tensors != h->tensors) {
        return bwi_error_set(err, BW_E_FORMAT, "index: its blocks have %" PRIu64 " tensors, expected %" PRIu64, tensors,
                             h->tensors);
    }
    if (offset != h->bytes) {
        return bwi_error_set(err, BW_E_FORMAT, "index: its blocks end at %" PRIu64 ", expected %" PRIu64, offset,
                             h->bytes);
    }
    return 0;
}

int bwi_index_head_decode(struct bwi_span head, struct bwi_index_head *ret, struct bw_error *err) {
    struct bwi_index_head h = {0};
    struct bwi_reader r = bwi_reader(head);
    bool newer = false;
    int rc = bwi_head_read(&BWI_INDEX_HEAD, &r, &newer, err);
    if (rc == 0) rc = read_counts(&r, &h, err);
    if (rc == 0) rc = read_refs(&r, &h, err);
    if (rc == 0) rc = bwi_head_end(&BWI_INDEX_HEAD, &r, newer, err);
    if (rc < 0) {
        bwi_index_head_fini(&h);
        return rc;
    }
    *ret = h;
    return 0;
}

void bwi_index_head_fini(struct bwi_index_head *h) {
    if (h == NULL) return;
    bwi_free(h->blocks);
    *h = (struct bwi_index_head){0};
}

bool bwi_index_head_find(const struct bwi_index_head *h, struct bwi_span name, uint32_t *ret_block) {
    /* Blocks before `low` begin at or before the name, those from `high` on behind it. */
    uint32_t low = 0;
    uint32_t high = h->block_count;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if (bwi_span_cmp(h->blocks[mid].first_name, name) <= 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    if (low == 0) return false;
    *ret_block = low - 1;
    return true;
}

/* ---- a block ---- */

static int read_tensor(struct bwi_reader *r, struct bwi_index_tensor *t, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_object(&BWI_INDEX_HEAD, err);
    const uint32_t name_bytes = bwi_read_u32(r);
    t->dtype = bwi_read_u8(r);
    t->dims = bwi_read_u8(r);
    const uint16_t zero = bwi_read_u16(r);
    t->box_count = bwi_read_u32(r);
    t->name = bwi_read_bytes(r, name_bytes);
    int rc = bwi_head_whole(&BWI_INDEX_HEAD, r, err);
    if (rc == 0 && zero != 0) rc = bwi_error_set(err, BW_E_FORMAT, "index: padding of a tensor is not zero");
    if (rc == 0) rc = bwi_shape_name_check(&b, "tensor", t->name);
    if (rc == 0 && t->dims > BWI_DIMS_MAX) {
        rc = bwi_error_set(err, BW_E_FORMAT, "index: tensor %s: %u dimensions, the limit is %d",
                           bwi_shape_name_text(t->name).s, t->dims, BWI_DIMS_MAX);
    }
    if (rc == 0 && t->box_count == 0) {
        rc = bwi_error_set(err, BW_E_FORMAT, "index: tensor %s has no box", bwi_shape_name_text(t->name).s);
    }
    return rc;
}

static uint64_t box_bytes(unsigned dims) {
    return BWI_INDEX_BOX_MIN + 16u * (uint64_t)dims;
}

/* Counts boxes and numbers of the whole block before anything is allocated for them. The cursor is a copy. */
static int measure(struct bwi_reader r, uint32_t tensors, size_t *ret_boxes, size_t *ret_numbers,
                   struct bw_error *err) {
    size_t boxes = 0;
    size_t numbers = 0;
    for (uint32_t i = 0; i < tensors; i++) {
        struct bwi_index_tensor t = {0};
        int rc = read_tensor(&r, &t, err);
        if (rc < 0) return rc;
        /* No overflow: a count below 2^32 times at most 264 bytes. */
        const uint64_t bytes = 8u * (uint64_t)t.dims + t.box_count * box_bytes(t.dims);
        rc = bwi_head_room(&BWI_INDEX_HEAD, &r, bytes, err);
        if (rc < 0) return rc;
        (void)bwi_read_bytes(&r, (size_t)bytes);
        boxes += t.box_count;
        numbers += t.dims + 2u * (size_t)t.dims * t.box_count;
    }
    *ret_boxes = boxes;
    *ret_numbers = numbers;
    return 0;
}

static int read_boxes(struct bwi_reader *r, struct bwi_index_tensor *t, struct bwi_numbers *n, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_object(&BWI_INDEX_HEAD, err);
    const struct bwi_shape s = {t->name, t->dtype, t->dims, t->shape};
    for (uint32_t i = 0; i < t->box_count; i++) {
        struct bwi_index_box *x = &t->boxes[i];
        x->group = bwi_read_u32(r);
        x->item = bwi_read_u32(r);
        x->offset = bwi_numbers_read(n, r, t->dims);
        x->extent = bwi_numbers_read(n, r, t->dims);
        int rc = bwi_head_whole(&BWI_INDEX_HEAD, r, err);
        if (rc == 0 && (x->group >= BWI_GROUPS_MAX || x->item >= BWI_BOXES_MAX)) {
            rc = bwi_error_set(err, BW_E_FORMAT, "index: tensor %s: item %" PRIu32 " of group %" PRIu32 " cannot be",
                               bwi_shape_name_text(t->name).s, x->item, x->group);
        }
        if (rc == 0 && i > 0 && (x->group < x[-1].group || (x->group == x[-1].group && x->item <= x[-1].item))) {
            rc = bwi_error_set(err, BW_E_FORMAT,
                               "index: tensor %s: boxes do not ascend at item %" PRIu32 " of group %" PRIu32,
                               bwi_shape_name_text(t->name).s, x->item, x->group);
        }
        if (rc == 0) rc = bwi_shape_box_check(&b, &s, x->offset, x->extent);
        if (rc < 0) return rc;
    }
    return 0;
}

static int read_tensors(struct bwi_reader *r, struct bwi_index_block *k, struct bwi_numbers *n, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_object(&BWI_INDEX_HEAD, err);
    struct bwi_index_box *box = k->boxes;
    for (uint32_t i = 0; i < k->tensor_count; i++) {
        struct bwi_index_tensor *t = &k->tensors[i];
        int rc = read_tensor(r, t, err);
        if (rc < 0) return rc;
        t->shape = bwi_numbers_read(n, r, t->dims);
        t->boxes = box;
        box += t->box_count;
        rc = bwi_head_whole(&BWI_INDEX_HEAD, r, err);
        if (rc == 0) rc = bwi_shape_check(&b, &(struct bwi_shape){t->name, t->dtype, t->dims, t->shape});
        if (rc == 0 && i > 0) rc = bwi_shape_order_check(&b, "tensor", t[-1].name, t->name);
        if (rc == 0) rc = read_boxes(r, t, n, err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int check_hash(struct bwi_span in, const struct bwi_index_block_ref *ref, struct bw_error *err) {
    const struct bwi_shape_text first = bwi_shape_name_text(ref->first_name);
    if (in.len != ref->bytes) {
        return bwi_error_set(err, BW_E_CORRUPT, "index: block of %s: %zu bytes, expected %" PRIu32, first.s, in.len,
                             ref->bytes);
    }
    const struct bwi_sha found = bwi_sha_of(in);
    if (bwi_sha_eq(&found, &ref->sha)) return 0;
    return bwi_error_set(err, BW_E_CORRUPT, "index: block of %s: its hash is not the one in the head", first.s);
}

int bwi_index_block_decode(struct bwi_span in, const struct bwi_index_block_ref *ref, struct bwi_index_block *ret,
                           struct bw_error *err) {
    struct bwi_index_block k = {.tensor_count = ref->tensors};
    struct bwi_reader r = bwi_reader(in);
    struct bwi_numbers n = {0};
    size_t boxes = 0;
    int rc = check_hash(in, ref, err);
    if (rc == 0) rc = measure(r, k.tensor_count, &boxes, &n.cap, err);
    if (rc == 0) rc = bwi_head_array(&BWI_INDEX_HEAD, &k.tensors, k.tensor_count, sizeof *k.tensors, err);
    if (rc == 0) rc = bwi_head_array(&BWI_INDEX_HEAD, &k.boxes, boxes, sizeof *k.boxes, err);
    if (rc == 0) rc = bwi_head_array(&BWI_INDEX_HEAD, &k.numbers, (uint64_t)n.cap + 1, sizeof *k.numbers, err);
    n.ptr = k.numbers;
    if (rc == 0) rc = read_tensors(&r, &k, &n, err);
    if (rc == 0) rc = bwi_head_end(&BWI_INDEX_HEAD, &r, false, err);
    if (rc == 0 && k.tensor_count > 0 && !bwi_span_eq(k.tensors[0].name, ref->first_name)) {
        rc = bwi_error_set(err, BW_E_FORMAT, "index: block of %s begins with another tensor, %s",
                           bwi_shape_name_text(ref->first_name).s, bwi_shape_name_text(k.tensors[0].name).s);
    }
    if (rc < 0) {
        bwi_index_block_fini(&k);
        return rc;
    }
    *ret = k;
    return 0;
}

void bwi_index_block_fini(struct bwi_index_block *b) {
    if (b == NULL) return;
    bwi_free(b->tensors);
    bwi_free(b->numbers);
    bwi_free(b->boxes);
    *b = (struct bwi_index_block){0};
}
