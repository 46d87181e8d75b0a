/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts to bytes and back. All rules are in check(), which serves both directions: an encoder cannot write what its
 * decoder would refuse. */
#include "format/layout.h"
#include "base/error.h"
#include "base/vec.h"
#include "format/shape.h"
#include <inttypes.h>

/* Bytes of the shortest record of each kind: what a count is held against before anything is allocated for it. */
#define TENSOR_MIN 9u
#define BOX_MIN    16u
#define BLOB_MIN   9u

static const struct bwi_object_head HEAD = {"BWLAYOUT", "layout"};

static struct bwi_shape shape_of(const struct bwi_tensor *t) {
    return (struct bwi_shape){t->name, t->dtype, t->dims, t->shape};
}

uint64_t bwi_layout_items(const struct bwi_layout *l) {
    return (uint64_t)l->box_count + l->blob_count;
}

uint64_t bwi_box_bytes(const struct bwi_layout *l, uint32_t box) {
    const struct bwi_box *b = &l->boxes[box];
    const struct bwi_tensor *t = &l->tensors[b->tensor];
    uint64_t bytes = 0;
    (void)bwi_shape_bytes(t->dtype, t->dims, b->extent, &bytes);
    return bytes;
}

/* Boxes and blobs are in order of (tensor, rank) and (rank, name). */
static int box_cmp(const struct bwi_box *b, uint32_t tensor, uint32_t rank) {
    if (b->tensor != tensor) return b->tensor < tensor ? -1 : 1;
    return (b->rank > rank) - (b->rank < rank);
}

static int blob_cmp(const struct bwi_blob *b, uint32_t rank, struct bwi_span name) {
    if (b->rank != rank) return b->rank < rank ? -1 : 1;
    return bwi_span_cmp(b->name, name);
}

struct wanted {
    uint32_t tensor, rank;
    struct bwi_span name;
};

static int tensor_is(const struct bwi_layout *l, uint32_t i, const struct wanted *w) {
    return bwi_span_cmp(l->tensors[i].name, w->name);
}

static int box_is(const struct bwi_layout *l, uint32_t i, const struct wanted *w) {
    return box_cmp(&l->boxes[i], w->tensor, w->rank);
}

static int blob_is(const struct bwi_layout *l, uint32_t i, const struct wanted *w) {
    return blob_cmp(&l->blobs[i], w->rank, w->name);
}

static bool search(const struct bwi_layout *l, uint32_t count, const struct wanted *w,
                   int (*cmp)(const struct bwi_layout *l, uint32_t i, const struct wanted *w), uint32_t *ret) {
    uint32_t low = 0;
    uint32_t high = count;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        const int order = cmp(l, mid, w);
        if (order == 0) {
            *ret = mid;
            return true;
        }
        if (order < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return false;
}

bool bwi_layout_find(const struct bwi_layout *l, struct bwi_span name, uint32_t *ret_tensor) {
    return search(l, l->tensor_count, &(struct wanted){.name = name}, tensor_is, ret_tensor);
}

bool bwi_layout_find_box(const struct bwi_layout *l, uint32_t tensor, uint32_t rank, uint32_t *ret) {
    return search(l, l->box_count, &(struct wanted){.tensor = tensor, .rank = rank}, box_is, ret);
}

bool bwi_layout_find_blob(const struct bwi_layout *l, uint32_t rank, struct bwi_span name, uint32_t *ret_blob) {
    return search(l, l->blob_count, &(struct wanted){.rank = rank, .name = name}, blob_is, ret_blob);
}

/* ---- the rules ---- */

static int check_counts(const struct bwi_layout *l, const struct bwi_blame *b) {
    int rc = 0;
    if (l->rank_count == 0) rc = bwi_error_set(b->err, b->broken, "%s: no ranks, expected at least one", b->what);
    if (rc == 0) rc = bwi_head_limit(b, l->rank_count, BWI_GROUP_RANKS_MAX, "ranks");
    if (rc == 0) rc = bwi_head_limit(b, l->tensor_count, BWI_TENSORS_MAX, "tensors");
    if (rc == 0) rc = bwi_head_limit(b, l->box_count, BWI_BOXES_MAX, "boxes");
    if (rc == 0) rc = bwi_head_limit(b, l->blob_count, BWI_BLOBS_MAX, "blobs");
    return rc;
}

static int check_ranks(const struct bwi_layout *l, const struct bwi_blame *b) {
    for (uint32_t i = 0; i < l->rank_count; i++) {
        if (l->ranks[i] >= BWI_WORLD_MAX) {
            return bwi_error_set(b->err, b->above, "%s: rank %" PRIu32 ", the limit is %" PRIu32, b->what, l->ranks[i],
                                 BWI_WORLD_MAX - 1);
        }
        if (i > 0 && l->ranks[i] <= l->ranks[i - 1]) {
            return bwi_error_set(b->err, b->broken, "%s: ranks do not ascend: %" PRIu32 " comes after %" PRIu32,
                                 b->what, l->ranks[i], l->ranks[i - 1]);
        }
    }
    return 0;
}

static bool has_rank(const struct bwi_layout *l, uint32_t rank) {
    for (uint32_t i = 0; i < l->rank_count; i++) { /* at most BWI_GROUP_RANKS_MAX */
        if (l->ranks[i] == rank) return true;
    }
    return false;
}

static int check_tensors(const struct bwi_layout *l, const struct bwi_blame *b) {
    for (uint32_t i = 0; i < l->tensor_count; i++) {
        const struct bwi_shape s = shape_of(&l->tensors[i]);
        int rc = bwi_shape_check(b, &s);
        if (rc == 0 && i > 0) rc = bwi_shape_order_check(b, "tensor", l->tensors[i - 1].name, s.name);
        if (rc < 0) return rc;
    }
    return 0;
}

/* A tie names an earlier box that is not tied itself, of the same rank, dtype and extent. */
static int check_tie(const struct bwi_layout *l, uint32_t i, const struct bwi_blame *b) {
    const struct bwi_box *box = &l->boxes[i];
    if (box->tied == BWI_NOT_TIED) return 0;
    const struct bwi_tensor *t = &l->tensors[box->tensor];
    const struct bwi_shape_text name = bwi_shape_name_text(t->name);
    if (box->tied >= i) {
        return bwi_error_set(b->err, b->broken,
                             "%s: tensor %s: box %" PRIu32 " is tied to box %" PRIu32 ", which is not before it",
                             b->what, name.s, i, box->tied);
    }
    const struct bwi_box *to = &l->boxes[box->tied];
    const struct bwi_tensor *tt = &l->tensors[to->tensor];
    const char *wrong = NULL;
    if (to->tied != BWI_NOT_TIED) {
        wrong = "which is tied itself";
    } else if (to->rank != box->rank) {
        wrong = "which is of another rank";
    } else if (tt->dtype != t->dtype) {
        wrong = "which is of another dtype";
    } else if (tt->dims != t->dims || !bwi_shape_same(t->dims, to->extent, box->extent)) {
        wrong = "which is of another extent";
    }
    if (wrong == NULL) return 0;
    return bwi_error_set(b->err, b->broken, "%s: tensor %s: box %" PRIu32 " is tied to box %" PRIu32 ", %s", b->what,
                         name.s, i, box->tied, wrong);
}

/* The box before i leads to its tensor: boxes are sorted, none is twice there, and no tensor is left out between them.
 */
static int check_box_order(const struct bwi_layout *l, uint32_t i, const struct bwi_blame *b) {
    const struct bwi_box *box = &l->boxes[i];
    if (i > 0 && box_cmp(&l->boxes[i - 1], box->tensor, box->rank) >= 0) {
        return bwi_error_set(b->err, b->broken,
                             "%s: boxes do not ascend: (tensor %" PRIu32 ", rank %" PRIu32 ") comes after (%" PRIu32
                             ", %" PRIu32 ")",
                             b->what, box->tensor, box->rank, l->boxes[i - 1].tensor, l->boxes[i - 1].rank);
    }
    const uint32_t next = i == 0 ? 0 : l->boxes[i - 1].tensor + 1;
    if (box->tensor <= next) return 0;
    return bwi_error_set(b->err, b->broken, "%s: tensor %s has no box", b->what,
                         bwi_shape_name_text(l->tensors[next].name).s);
}

static int check_boxes(const struct bwi_layout *l, const struct bwi_blame *b) {
    for (uint32_t i = 0; i < l->box_count; i++) {
        const struct bwi_box *box = &l->boxes[i];
        if (box->tensor >= l->tensor_count) {
            return bwi_error_set(b->err, b->broken, "%s: box %" PRIu32 " is of tensor %" PRIu32 ", there are %" PRIu32,
                                 b->what, i, box->tensor, l->tensor_count);
        }
        const struct bwi_shape s = shape_of(&l->tensors[box->tensor]);
        if (!has_rank(l, box->rank)) {
            return bwi_error_set(b->err, b->broken, "%s: tensor %s: rank %" PRIu32 " of a box is none of the layout's",
                                 b->what, bwi_shape_name_text(s.name).s, box->rank);
        }
        int rc = check_box_order(l, i, b);
        if (rc == 0) rc = bwi_shape_box_check(b, &s, box->offset, box->extent);
        if (rc == 0) rc = check_tie(l, i, b);
        if (rc < 0) return rc;
    }
    const uint32_t reached = l->box_count == 0 ? 0 : l->boxes[l->box_count - 1].tensor + 1;
    if (reached == l->tensor_count) return 0;
    return bwi_error_set(b->err, b->broken, "%s: tensor %s has no box", b->what,
                         bwi_shape_name_text(l->tensors[reached].name).s);
}

static int check_blobs(const struct bwi_layout *l, const struct bwi_blame *b) {
    for (uint32_t i = 0; i < l->blob_count; i++) {
        const struct bwi_blob *blob = &l->blobs[i];
        const int rc = bwi_shape_name_check(b, "blob", blob->name);
        if (rc < 0) return rc;
        const struct bwi_shape_text name = bwi_shape_name_text(blob->name);
        if (!has_rank(l, blob->rank)) {
            return bwi_error_set(b->err, b->broken, "%s: blob %s: rank %" PRIu32 " is none of the layout's", b->what,
                                 name.s, blob->rank);
        }
        if (i > 0 && blob_cmp(&l->blobs[i - 1], blob->rank, blob->name) >= 0) {
            return bwi_error_set(b->err, b->broken,
                                 "%s: blobs do not ascend by (rank, name): (%" PRIu32
                                 ", %s) is too late or twice there",
                                 b->what, blob->rank, name.s);
        }
    }
    return 0;
}

static int check(const struct bwi_layout *l, const struct bwi_blame *b) {
    int rc = check_counts(l, b);
    if (rc == 0) rc = check_ranks(l, b);
    if (rc == 0) rc = check_tensors(l, b);
    if (rc == 0) rc = check_boxes(l, b);
    if (rc == 0) rc = check_blobs(l, b);
    return rc;
}

/* ---- encoding ---- */

static void put_numbers(struct bwi_buf *out, const uint64_t *numbers, unsigned n) {
    for (unsigned i = 0; i < n; i++) bwi_buf_u64(out, numbers[i]);
}

static void put_tensor(struct bwi_buf *out, const struct bwi_tensor *t) {
    bwi_buf_u32(out, (uint32_t)t->name.len);
    bwi_buf_u8(out, t->dtype);
    bwi_buf_u8(out, t->dims);
    bwi_buf_u16(out, 0);
    bwi_buf_put(out, t->name.ptr, t->name.len);
    put_numbers(out, t->shape, t->dims);
}

static void put_box(struct bwi_buf *out, const struct bwi_box *b, unsigned dims) {
    bwi_buf_u32(out, b->tensor);
    bwi_buf_u32(out, b->rank);
    bwi_buf_u32(out, b->tied);
    bwi_buf_u32(out, 0);
    put_numbers(out, b->offset, dims);
    put_numbers(out, b->extent, dims);
}

static void put_blob(struct bwi_buf *out, const struct bwi_blob *b) {
    bwi_buf_u32(out, b->rank);
    bwi_buf_u32(out, (uint32_t)b->name.len);
    bwi_buf_put(out, b->name.ptr, b->name.len);
}

int bwi_layout_encode(const struct bwi_layout *l, struct bwi_buf *out, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_caller(&HEAD, err);
    const int rc = check(l, &b);
    if (rc < 0) return rc;
    const size_t start = out->len;
    bwi_head_write(&HEAD, out);
    bwi_buf_u32(out, l->rank_count);
    bwi_buf_u32(out, l->tensor_count);
    bwi_buf_u32(out, l->box_count);
    bwi_buf_u32(out, l->blob_count);
    for (uint32_t i = 0; i < l->rank_count; i++) bwi_buf_u32(out, l->ranks[i]);
    for (uint32_t i = 0; i < l->tensor_count; i++) put_tensor(out, &l->tensors[i]);
    for (uint32_t i = 0; i < l->box_count; i++) put_box(out, &l->boxes[i], l->tensors[l->boxes[i].tensor].dims);
    for (uint32_t i = 0; i < l->blob_count; i++) put_blob(out, &l->blobs[i]);
    return bwi_head_written(&HEAD, out, start, BWI_LAYOUT_BYTES_MAX, err);
}

/* ---- decoding ---- */

static int read_counts(struct bwi_reader *r, struct bwi_layout *l, struct bw_error *err) {
    l->rank_count = bwi_read_u32(r);
    l->tensor_count = bwi_read_u32(r);
    l->box_count = bwi_read_u32(r);
    l->blob_count = bwi_read_u32(r);
    const struct bwi_blame b = bwi_blame_object(&HEAD, err);
    int rc = bwi_head_whole(&HEAD, r, err);
    if (rc == 0) rc = check_counts(l, &b);
    /* None of these sums overflows: the counts are below 2^24. */
    const uint64_t least = (uint64_t)l->rank_count * 4 + (uint64_t)l->tensor_count * TENSOR_MIN +
                           (uint64_t)l->box_count * BOX_MIN + (uint64_t)l->blob_count * BLOB_MIN;
    if (rc == 0) rc = bwi_head_room(&HEAD, r, least, err);
    return rc;
}

static int reserve(struct bwi_layout *l, struct bw_error *err) {
    int rc = bwi_head_array(&HEAD, &l->ranks, l->rank_count, sizeof *l->ranks, err);
    if (rc == 0) rc = bwi_head_array(&HEAD, &l->tensors, l->tensor_count, sizeof *l->tensors, err);
    if (rc == 0) rc = bwi_head_array(&HEAD, &l->boxes, l->box_count, sizeof *l->boxes, err);
    if (rc == 0) rc = bwi_head_array(&HEAD, &l->blobs, l->blob_count, sizeof *l->blobs, err);
    return rc;
}

static int read_tensor(struct bwi_reader *r, struct bwi_tensor *t, uint32_t i, struct bw_error *err) {
    const uint32_t name_bytes = bwi_read_u32(r);
    t->dtype = bwi_read_u8(r);
    t->dims = bwi_read_u8(r);
    const uint16_t zero = bwi_read_u16(r);
    t->name = bwi_read_bytes(r, name_bytes);
    int rc = bwi_head_whole(&HEAD, r, err);
    if (rc == 0 && zero != 0)
        rc = bwi_error_set(err, BW_E_FORMAT, "layout: tensor %" PRIu32 ": padding is not zero", i);
    if (rc == 0 && t->dims > BWI_DIMS_MAX) {
        rc = bwi_error_set(err, BW_E_FORMAT, "layout: tensor %s: %u dimensions, the limit is %d",
                           bwi_shape_name_text(t->name).s, t->dims, BWI_DIMS_MAX);
    }
    return rc;
}

/* An upper bound for the numbers of the object, close to their count: those of the shapes, and all that is left behind
 * them that is no fixed part of a record. The cursor is a copy; nothing is kept. */
static int count_numbers(struct bwi_reader r, const struct bwi_layout *l, size_t *ret, struct bw_error *err) {
    size_t numbers = 0;
    for (uint32_t i = 0; i < l->tensor_count; i++) {
        struct bwi_tensor t = {0};
        int rc = read_tensor(&r, &t, i, err);
        (void)bwi_read_bytes(&r, (size_t)t.dims * 8);
        if (rc == 0) rc = bwi_head_whole(&HEAD, &r, err);
        if (rc < 0) return rc;
        numbers += t.dims;
    }
    const uint64_t fixed = (uint64_t)l->box_count * BOX_MIN + (uint64_t)l->blob_count * BLOB_MIN;
    const size_t left = bwi_reader_left(&r);
    if (fixed > left) return bwi_head_room(&HEAD, &r, fixed, err);
    *ret = numbers + (left - (size_t)fixed) / 8;
    return 0;
}

static int read_tensors(struct bwi_reader *r, struct bwi_layout *l, struct bwi_numbers *n, struct bw_error *err) {
    for (uint32_t i = 0; i < l->tensor_count; i++) {
        int rc = read_tensor(r, &l->tensors[i], i, err);
        l->tensors[i].shape = bwi_numbers_read(n, r, l->tensors[i].dims);
        if (rc == 0) rc = bwi_head_whole(&HEAD, r, err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int read_boxes(struct bwi_reader *r, struct bwi_layout *l, struct bwi_numbers *n, struct bw_error *err) {
    for (uint32_t i = 0; i < l->box_count; i++) {
        struct bwi_box *b = &l->boxes[i];
        b->tensor = bwi_read_u32(r);
        b->rank = bwi_read_u32(r);
        b->tied = bwi_read_u32(r);
        const uint32_t zero = bwi_read_u32(r);
        /* A tensor that does not exist has no dimensions here; check() refuses it. */
        const unsigned dims = b->tensor < l->tensor_count ? l->tensors[b->tensor].dims : 0;
        b->offset = bwi_numbers_read(n, r, dims);
        b->extent = bwi_numbers_read(n, r, dims);
        const int rc = bwi_head_whole(&HEAD, r, err);
        if (rc < 0) return rc;
        if (zero != 0) return bwi_error_set(err, BW_E_FORMAT, "layout: box %" PRIu32 ": padding is not zero", i);
    }
    return 0;
}

static int read_blobs(struct bwi_reader *r, struct bwi_layout *l, struct bw_error *err) {
    for (uint32_t i = 0; i < l->blob_count; i++) {
        l->blobs[i].rank = bwi_read_u32(r);
        l->blobs[i].name = bwi_read_bytes(r, bwi_read_u32(r));
        const int rc = bwi_head_whole(&HEAD, r, err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int read_records(struct bwi_reader *r, struct bwi_layout *l, struct bw_error *err) {
    struct bwi_numbers n = {0};
    for (uint32_t i = 0; i < l->rank_count; i++) l->ranks[i] = bwi_read_u32(r);
    int rc = count_numbers(*r, l, &n.cap, err);
    if (rc == 0) rc = bwi_head_array(&HEAD, &l->numbers, (uint64_t)n.cap + 1, sizeof *l->numbers, err);
    n.ptr = l->numbers;
    if (rc == 0) rc = read_tensors(r, l, &n, err);
    if (rc == 0) rc = read_boxes(r, l, &n, err);
    if (rc == 0) rc = read_blobs(r, l, err);
    return rc;
}

int bwi_layout_decode(struct bwi_span in, struct bwi_layout *ret, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_object(&HEAD, err);
    struct bwi_layout l = {0};
    struct bwi_reader r = bwi_reader(in);
    bool newer = false;
    int rc = bwi_head_limit(&b, in.len, BWI_LAYOUT_BYTES_MAX, "bytes");
    if (rc == 0) rc = bwi_head_read(&HEAD, &r, &newer, err);
    if (rc == 0) rc = read_counts(&r, &l, err);
    if (rc == 0) rc = reserve(&l, err);
    if (rc == 0) rc = read_records(&r, &l, err);
    if (rc == 0) rc = bwi_head_end(&HEAD, &r, newer, err);
    if (rc == 0) rc = check(&l, &b);
    if (rc < 0) {
        bwi_layout_fini(&l);
        return rc;
    }
    *ret = l;
    return 0;
}

void bwi_layout_fini(struct bwi_layout *l) {
    if (l == NULL) return;
    bwi_free(l->ranks);
    bwi_free(l->tensors);
    bwi_free(l->boxes);
    bwi_free(l->blobs);
    bwi_free(l->numbers);
    *l = (struct bwi_layout){0};
}
