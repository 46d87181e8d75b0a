/* SPDX-License-Identifier: Apache-2.0 */
/* What a saved box and a wanted box have in common. Its elements are described as a grid of positions in the image of
 * the saved box, so the part that lies in some extent is found by seeking and copied row by row, whatever the number
 * of dimensions. */
#include "base/checked.h"
#include "checkpoint/plan_private.h"
#include <string.h>

/* The common elements, reduced to the fewest dimensions, the outermost first. Positions rise from one to the next. */
struct common {
    unsigned dims;
    uint64_t base;                 /* position of the first one, in elements of the saved box's image */
    uint64_t extent[BWI_DIMS_MAX]; /* each above 1 */
    uint64_t pitch[BWI_DIMS_MAX];  /* positions from one index to the next */
    int64_t offset;                /* of the first one in the wanted memory */
    int64_t stride[BWI_DIMS_MAX];  /* bytes of wanted memory */
    bool empty;
};

struct boxes {
    unsigned dims;
    const uint64_t *box_offset, *box_extent, *want_offset, *want_extent;
    const int64_t *want_stride; /* NULL: only whether there is anything */
};

/* Does an outer step equal a whole inner dimension, on both sides? Then both are one dimension. */
static bool joins(uint64_t outer_pitch, int64_t outer_stride, uint64_t extent, uint64_t pitch, int64_t stride) {
    int64_t span;
    if (extent > INT64_MAX || __builtin_mul_overflow(stride, (int64_t)extent, &span)) return false;
    return outer_pitch == pitch * extent && outer_stride == span;
}

/* Adds a dimension on the inside. */
static void common_add(struct common *c, uint64_t extent, uint64_t pitch, int64_t stride) {
    if (extent == 1) return;
    const unsigned n = c->dims;
    if (n > 0 && joins(c->pitch[n - 1], c->stride[n - 1], extent, pitch, stride)) {
        c->extent[n - 1] *= extent;
        c->pitch[n - 1] = pitch;
        c->stride[n - 1] = stride;
        return;
    }
    c->extent[n] = extent;
    c->pitch[n] = pitch;
    c->stride[n] = stride;
    c->dims++;
}

static struct common common_of(const struct boxes *b) {
    struct common c = {0};
    uint64_t pitch = 1; /* of the dimension at hand; the outermost first, so all of it to begin with */
    for (unsigned d = 0; d < b->dims; d++) {
        if (b->box_extent[d] == 0 || b->want_extent[d] == 0) {
            c.empty = true;
            return c;
        }
        pitch *= b->box_extent[d]; /* a saved box is sound: this fits */
    }
    for (unsigned d = 0; d < b->dims; d++) {
        /* Ends as last indices, so that a box that ends at 2^64 does not overflow. */
        const uint64_t low = bwi_max_u64(b->box_offset[d], b->want_offset[d]);
        const uint64_t last =
            bwi_min_u64(b->box_offset[d] + (b->box_extent[d] - 1), b->want_offset[d] + (b->want_extent[d] - 1));
        if (low > last) {
            c.empty = true;
            return c;
        }
        const int64_t stride = b->want_stride == NULL ? 0 : b->want_stride[d];
        pitch /= b->box_extent[d];
        c.base += (low - b->box_offset[d]) * pitch;
        c.offset += (int64_t)(low - b->want_offset[d]) * stride;
        common_add(&c, last - low + 1, pitch, stride);
    }
    return c;
}

/* An element of the common part. */
struct place {
    uint64_t index[BWI_DIMS_MAX];
    uint64_t position;
    int64_t offset;
};

static void place_update(const struct common *c, struct place *at) {
    at->position = c->base;
    at->offset = c->offset;
    for (unsigned d = 0; d < c->dims; d++) {
        at->position += at->index[d] * c->pitch[d];
        at->offset += (int64_t)at->index[d] * c->stride[d];
    }
}

/* Adds 1 to the index of dimension `d`, carrying outwards, with everything inside of it at 0. false: behind the last
 * element. */
static bool step(const struct common *c, struct place *at, unsigned d) {
    memset(at->index + d + 1, 0, sizeof at->index - (d + 1) * sizeof at->index[0]);
    for (;;) {
        if (++at->index[d] < c->extent[d]) break;
        at->index[d] = 0;
        if (d == 0) return false;
        d--;
    }
    place_update(c, at);
    return true;
}

/* The first common element at `position` or behind. */
static bool seek(const struct common *c, uint64_t position, struct place *ret) {
    struct place at = {0};
    uint64_t left = position > c->base ? position - c->base : 0;
    unsigned d = 0;
    for (; d < c->dims && left > 0; d++) {
        at.index[d] = left / c->pitch[d];
        if (at.index[d] >= c->extent[d]) { /* behind this row of dimension d: on with the next one */
            at.index[d] = c->extent[d] - 1;
            break;
        }
        left -= at.index[d] * c->pitch[d];
    }
    *ret = at;
    place_update(c, ret);
    if (left == 0) return true;
    /* Between two elements, or behind the last: one further in the innermost dimension that was looked at. */
    return c->dims > 0 && step(c, ret, d < c->dims ? d : c->dims - 1);
}

/* From `at` to the end of its innermost row, but only below position `end`. */
static uint64_t row_count(const struct common *c, const struct place *at, uint64_t end) {
    if (c->dims == 0) return 1;
    const unsigned last = c->dims - 1;
    return bwi_min_u64(c->extent[last] - at->index[last], bwi_div_ceil(end - at->position, c->pitch[last]));
}

uint64_t bwi_intersect_copy(const uint64_t *box_offset, const uint64_t *box_extent, const uint8_t *src,
                            uint64_t src_from, uint64_t src_bytes, const uint64_t *want_offset,
                            const struct bwi_strided *dst) {
    const struct boxes b = {dst->dims, box_offset, box_extent, want_offset, dst->extent, dst->stride};
    const struct common c = common_of(&b);
    const uint64_t elem = dst->elem_bytes;
    const uint64_t first = src_from / elem;
    const uint64_t end = first + src_bytes / elem;
    const int64_t dst_step = c.dims == 0 ? (int64_t)elem : c.stride[c.dims - 1];
    const int64_t src_step = c.dims == 0 ? (int64_t)elem : (int64_t)(c.pitch[c.dims - 1] * elem);
    struct place at;
    uint64_t copied = 0;
    bool more = !c.empty && seek(&c, first, &at);
    while (more && at.position < end) {
        const uint64_t n = row_count(&c, &at, end);
        bwi_copy_row(dst->data + at.offset, dst_step, src + (at.position - first) * elem, src_step, elem, n);
        copied += n * elem;
        if (c.dims > 0) at.index[c.dims - 1] += n - 1;
        more = c.dims > 0 && step(&c, &at, c.dims - 1);
    }
    return copied;
}

uint8_t *bwi_intersect_whole(const uint64_t *box_offset, const uint64_t *box_extent, uint64_t from, uint64_t n,
                             const uint64_t *want_offset, const struct bwi_strided *dst) {
    const struct boxes b = {dst->dims, box_offset, box_extent, want_offset, dst->extent, dst->stride};
    const struct common c = common_of(&b);
    const uint64_t elem = dst->elem_bytes;
    const uint64_t first = from / elem;
    const uint64_t count = c.dims == 0 ? 1 : c.extent[0];
    const bool in_line = c.dims == 0 || (c.dims == 1 && c.pitch[0] == 1 && c.stride[0] == (int64_t)elem);
    if (c.empty || n == 0 || !in_line || first < c.base || first - c.base >= count) return NULL;
    if (n / elem > count - (first - c.base)) return NULL;
    return dst->data + c.offset + (int64_t)((first - c.base) * elem);
}

bool bwi_intersect_any(uint8_t dims, uint8_t elem_bytes, const uint64_t *box_offset, const uint64_t *box_extent,
                       uint64_t from, uint64_t n, const uint64_t *want_offset, const uint64_t *want_extent) {
    if (n == 0) return false;
    const struct boxes b = {dims, box_offset, box_extent, want_offset, want_extent, NULL};
    const struct common c = common_of(&b);
    struct place at;
    if (c.empty || !seek(&c, from / elem_bytes, &at)) return false;
    return at.position <= (from + (n - 1)) / elem_bytes;
}
