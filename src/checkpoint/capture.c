/* SPDX-License-Identifier: Apache-2.0 */
/* Copying between strided memory and the row-major image of a box, and filling chunks. A box is first reduced to the
 * fewest dimensions that tell the same story: whole contiguous memory becomes one copy, contiguous rows become one
 * copy each. Everything else goes element by element. */
#include "base/checked.h"
#include "base/copy.h"
#include "checkpoint/cow.h"
#include "checkpoint/plan_private.h"
#include <breakwater/tensor.h>
#include <string.h>

/* ---- rows ---- */

/* For a `unit` that the compiler knows, so that each element is one move. */
#define COPY_UNITS(unit)                                                                                               \
    for (uint64_t i = 0; i < count; i++, dst += dst_step, src += src_step) memcpy(dst, src, unit)

void bwi_copy_row(uint8_t *dst, int64_t dst_step, const uint8_t *src, int64_t src_step, uint64_t unit, uint64_t count) {
    if (count == 1 || ((uint64_t)dst_step == unit && (uint64_t)src_step == unit)) {
        memcpy(dst, src, (size_t)(unit * count));
        return;
    }
    switch (unit) {
    case 1: COPY_UNITS(1); break;
    case 2: COPY_UNITS(2); break;
    case 4: COPY_UNITS(4); break;
    case 8: COPY_UNITS(8); break;
    case 16: COPY_UNITS(16); break;
    default: COPY_UNITS((size_t)unit); break;
    }
}

/* ---- grids: strided memory in its simplest form ---- */

struct grid {
    uint64_t unit;                 /* contiguous bytes at each point */
    unsigned dims;                 /* of points */
    uint64_t extent[BWI_DIMS_MAX]; /* the innermost first; each above 1 */
    int64_t stride[BWI_DIMS_MAX];
};

/* Is `outer` what one gets by going on with `inner` where its extent ends? */
static bool continues(int64_t outer, int64_t inner, uint64_t inner_extent) {
    int64_t span;
    if (inner_extent > INT64_MAX || __builtin_mul_overflow(inner, (int64_t)inner_extent, &span)) return false;
    return outer == span;
}

static void grid_add(struct grid *g, uint64_t extent, int64_t stride) {
    if (extent == 1) return;
    const unsigned top = g->dims;
    if (top == 0 && stride >= 0 && (uint64_t)stride == g->unit) {
        g->unit *= extent;
    } else if (top > 0 && continues(stride, g->stride[top - 1], g->extent[top - 1])) {
        g->extent[top - 1] *= extent;
    } else {
        g->extent[top] = extent;
        g->stride[top] = stride;
        g->dims++;
    }
}

static struct grid grid_of(unsigned dims, uint64_t elem_bytes, const uint64_t *extent, const int64_t *stride) {
    struct grid g = {.unit = elem_bytes};
    for (unsigned d = dims; d-- > 0;) grid_add(&g, extent[d], stride[d]);
    return g;
}

/* A place in the image of a grid, and in its memory. */
struct place {
    uint64_t index[BWI_DIMS_MAX];
    int64_t offset;  /* of the point */
    uint64_t within; /* bytes of its unit that lie behind us */
};

static struct place seek(const struct grid *g, uint64_t byte) {
    struct place at = {.within = byte % g->unit};
    uint64_t point = byte / g->unit;
    for (unsigned d = 0; d < g->dims; d++) {
        at.index[d] = point % g->extent[d];
        point /= g->extent[d];
        at.offset += (int64_t)at.index[d] * g->stride[d];
    }
    return at;
}

/* By `count` points that do not leave the innermost row, and into the next row where they reach its end. */
static void advance(const struct grid *g, struct place *at, uint64_t count) {
    for (unsigned d = 0; d < g->dims; d++) {
        at->index[d] += count;
        if (at->index[d] < g->extent[d]) {
            at->offset += (int64_t)count * g->stride[d];
            return;
        }
        at->offset -= (int64_t)(at->index[d] - count) * g->stride[d];
        at->index[d] = 0;
        count = 1;
    }
}

/* What can be copied at once: `count` units of `bytes`, the memory's at `offset` and then `stride` apart. */
struct run {
    int64_t offset, stride;
    uint64_t bytes, count;
};

/* The run at a place, of at most n > 0 bytes; moves the place behind it. */
static struct run next_run(const struct grid *g, struct place *at, uint64_t n) {
    struct run r = {.offset = at->offset + (int64_t)at->within, .count = 1};
    if (at->within > 0 || n < g->unit) {
        r.bytes = bwi_min_u64(n, g->unit - at->within);
        at->within += r.bytes;
        if (at->within < g->unit) return r;
        at->within = 0;
    } else {
        r.bytes = g->unit;
        if (g->dims > 0) {
            r.count = bwi_min_u64(g->extent[0] - at->index[0], n / g->unit);
            r.stride = g->stride[0];
        }
    }
    advance(g, at, r.count);
    return r;
}

/* ---- boxes ---- */

void bwi_gather(const struct bwi_tensor_source *s, uint64_t from, uint64_t n, uint8_t *dst) {
    if (n == 0) return;
    if (s->contiguous) { /* without a look at its numbers, which of many small ones are cold */
        bwi_copy_past_cache(dst, s->data + from, (size_t)n);
        return;
    }
    const struct grid g = grid_of(s->dims, bw_dtype_bytes(s->dtype), s->extent, s->stride);
    struct place at = seek(&g, from);
    while (n > 0) {
        const struct run r = next_run(&g, &at, n);
        if (r.count == 1)
            bwi_copy_past_cache(dst, s->data + r.offset, r.bytes);
        else
            bwi_copy_row(dst, (int64_t)r.bytes, s->data + r.offset, r.stride, r.bytes, r.count);
        dst += r.bytes * r.count;
        n -= r.bytes * r.count;
    }
}

void bwi_scatter(const struct bwi_strided *d, uint64_t from, uint64_t n, const uint8_t *src) {
    if (n == 0) return;
    const struct grid g = grid_of(d->dims, d->elem_bytes, d->extent, d->stride);
    struct place at = seek(&g, from);
    while (n > 0) {
        const struct run r = next_run(&g, &at, n);
        bwi_copy_row(d->data + r.offset, r.stride, src, (int64_t)r.bytes, r.bytes, r.count);
        src += r.bytes * r.count;
        n -= r.bytes * r.count;
    }
}

/* ---- chunks ---- */

static void set_hash(struct bwi_plan *p, const struct bwi_piece *piece, const struct bwi_xxh *hash) {
    p->content.extents[piece->extent] = *hash;
    p->places[piece->extent].stored = *hash; /* raw: what is stored is what there is */
}

static void fill_from_cow(struct bwi_plan *p, const struct bwi_piece *piece, uint8_t *dst) {
    struct bwi_xxh hash;
    bwi_cow_copy(p->cow, &p->items[piece->item], piece->item_offset, piece->bytes, dst, &hash);
    set_hash(p, piece, &hash);
}

void bwi_plan_fill(struct bwi_plan *p, const struct bwi_chunk *c, uint8_t *dst) {
    uint64_t done = 0;
    for (size_t i = 0; i < c->pieces; i++) {
        const struct bwi_piece *piece = &p->pieces[c->first_piece + i];
        const struct bwi_item_source *item = &p->items[piece->item];
        const uint64_t at = piece->pack_offset - c->pack_offset;
        memset(dst + done, 0, (size_t)(at - done));
        if (p->cow != NULL)
            fill_from_cow(p, piece, dst + at);
        else if (item->tensor != NULL)
            bwi_gather(item->tensor, piece->item_offset, piece->bytes, dst + at);
        else
            bwi_copy_past_cache(dst + at, item->blob->data + piece->item_offset, piece->bytes);
        done = at + piece->bytes;
    }
    memset(dst + done, 0, (size_t)(c->bytes - done));
}

void bwi_plan_hash(struct bwi_plan *p, const struct bwi_chunk *c, const uint8_t *bytes) {
    for (size_t i = 0; i < c->pieces; i++) {
        const struct bwi_piece *piece = &p->pieces[c->first_piece + i];
        const uint64_t at = piece->pack_offset - c->pack_offset;
        const struct bwi_xxh hash = bwi_xxh_of(bwi_span(bytes + at, piece->bytes));
        set_hash(p, piece, &hash);
    }
}
