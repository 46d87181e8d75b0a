/* SPDX-License-Identifier: Apache-2.0 */
/* From a description to a plan: the layout in its canonical order, ties, and the content's numbering. Where the bytes
 * go is in plan_pack.c. */
#include "base/checked.h"
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/plan_private.h"
#include <stdlib.h>
#include <string.h>

void bwi_plan_fini(struct bwi_plan *p) {
    if (p == NULL) return;
    bwi_free(p->layout.ranks);
    bwi_free(p->layout.tensors);
    bwi_free(p->layout.boxes);
    bwi_free(p->layout.blobs);
    bwi_buf_fini(&p->layout_bytes);
    bwi_content_fini(&p->content);
    bwi_free(p->items);
    bwi_free(p->places);
    bwi_free(p->pieces);
    bwi_free(p->chunks);
    for (size_t i = 0; i < p->pack_count; i++) bwi_buf_fini(&p->packs[i].header);
    bwi_free(p->packs);
    *p = (struct bwi_plan){0};
}

/* *ret_ptr is a pointer to the first element. */
static int allot(void *ret_ptr, uint64_t count, size_t size, const char *what, struct bw_error *err) {
    size_t n;
    void *p = bwi_u64_to_size(count, &n) ? bwi_calloc(n, size) : NULL;
    if (p == NULL) {
        (void)bwi_error_nomem(err, (size_t)count * size, what);
        return BW_E_NOMEM;
    }
    memcpy(ret_ptr, &p, sizeof p);
    return 0;
}

/* ---- the layout ---- */

static int by_tensor_name(const void *left, const void *right) {
    const struct bwi_item_source *a = left;
    const struct bwi_item_source *b = right;
    return bwi_span_cmp(bwi_span_str(a->tensor->name), bwi_span_str(b->tensor->name));
}

static int by_blob_name(const void *left, const void *right) {
    const struct bwi_item_source *a = left;
    const struct bwi_item_source *b = right;
    return bwi_span_cmp(bwi_span_str(a->blob->name), bwi_span_str(b->blob->name));
}

static int make_items(const struct bwi_description *d, struct bwi_plan *p, struct bw_error *err) {
    uint32_t boxes = 0;
    for (size_t i = 0; i < d->tensor_count; i++) boxes += d->tensors[i].mine;
    const uint32_t blobs = (uint32_t)d->blob_count; /* both counts are bounded by the description */
    const int rc = allot(&p->items, (uint64_t)boxes + blobs, sizeof *p->items, "items of a plan", err);
    if (rc < 0) return rc;
    uint32_t n = 0;
    for (size_t i = 0; i < d->tensor_count; i++) {
        if (d->tensors[i].mine) p->items[n++].tensor = &d->tensors[i];
    }
    for (size_t i = 0; i < d->blob_count; i++) p->items[n++].blob = &d->blobs[i];
    qsort(p->items, boxes, sizeof *p->items, by_tensor_name);
    qsort(p->items + boxes, blobs, sizeof *p->items, by_blob_name);
    p->layout.tensor_count = p->layout.box_count = boxes;
    p->layout.blob_count = blobs;
    return 0;
}

static int make_layout(uint32_t rank, struct bwi_plan *p, struct bw_error *err) {
    struct bwi_layout *l = &p->layout;
    int rc = allot(&l->ranks, 1, sizeof *l->ranks, "layout", err);
    if (rc == 0) rc = allot(&l->tensors, l->tensor_count, sizeof *l->tensors, "layout", err);
    if (rc == 0) rc = allot(&l->boxes, l->box_count, sizeof *l->boxes, "layout", err);
    if (rc == 0) rc = allot(&l->blobs, l->blob_count, sizeof *l->blobs, "layout", err);
    if (rc < 0) return rc;
    l->ranks[0] = rank;
    l->rank_count = 1;
    for (uint32_t i = 0; i < l->box_count; i++) {
        const struct bwi_tensor_source *s = p->items[i].tensor;
        l->tensors[i] = (struct bwi_tensor){bwi_span_str(s->name), s->dtype, s->dims, s->shape};
        l->boxes[i] = (struct bwi_box){i, rank, BWI_NOT_TIED, s->offset, s->extent};
    }
    for (uint32_t i = 0; i < l->blob_count; i++) {
        l->blobs[i] = (struct bwi_blob){rank, bwi_span_str(p->items[l->box_count + i].blob->name)};
    }
    return 0;
}

/* ---- ties ---- */

struct view {
    const struct bwi_tensor_source *s;
    uint32_t item;
};

/* 0: the same memory, seen alike. Sizes that differ need no look: extents and dtype are equal then. */
static int view_cmp(const struct bwi_tensor_source *a, const struct bwi_tensor_source *b) {
    const uintptr_t at_a = (uintptr_t)a->data;
    const uintptr_t at_b = (uintptr_t)b->data;
    if (at_a != at_b) return at_a < at_b ? -1 : 1;
    if (a->dtype != b->dtype) return a->dtype < b->dtype ? -1 : 1;
    if (a->dims != b->dims) return a->dims < b->dims ? -1 : 1;
    const int extents = memcmp(a->extent, b->extent, sizeof *a->extent * a->dims);
    return extents != 0 ? extents : memcmp(a->stride, b->stride, sizeof *a->stride * a->dims);
}

bool bwi_same_view(const struct bwi_tensor_source *a, const struct bwi_tensor_source *b) {
    return view_cmp(a, b) == 0;
}

static int by_view(const void *left, const void *right) {
    const struct view *a = left;
    const struct view *b = right;
    const int order = view_cmp(a->s, b->s);
    return order != 0 ? order : (a->item > b->item) - (a->item < b->item);
}

static int tie(struct bwi_plan *p, struct bw_error *err) {
    struct view *views = NULL;
    const int rc = allot(&views, p->layout.box_count, sizeof *views, "ties", err);
    if (rc < 0) return rc;
    size_t n = 0;
    for (uint32_t i = 0; i < p->layout.box_count; i++) {
        if (p->items[i].tensor->bytes > 0) views[n++] = (struct view){p->items[i].tensor, i};
    }
    qsort(views, n, sizeof *views, by_view);
    for (size_t first = 0, i = 1; i < n; i++) {
        if (view_cmp(views[first].s, views[i].s) == 0) {
            p->layout.boxes[views[i].item].tied = views[first].item;
        } else {
            first = i;
        }
    }
    bwi_free(views);
    return 0;
}

/* ---- the content ---- */

static uint64_t item_bytes(const struct bwi_plan *p, uint32_t item) {
    if (item >= p->layout.box_count) return p->items[item].blob->bytes;
    return p->layout.boxes[item].tied == BWI_NOT_TIED ? p->items[item].tensor->bytes : 0;
}

static int make_content(const struct bwi_description *d, uint32_t extent_bytes, struct bwi_plan *p,
                        struct bw_error *err) {
    struct bwi_content *c = &p->content;
    c->layout = p->layout_sha;
    c->extent_bytes = extent_bytes;
    c->item_count = (uint32_t)bwi_layout_items(&p->layout);
    int rc = allot(&c->raw_bytes, c->item_count, sizeof *c->raw_bytes, "content", err);
    if (rc == 0) rc = allot(&c->meta, 1, sizeof *c->meta, "content", err);
    if (rc < 0) return rc;
    c->meta_count = 1;
    c->meta[0] = bwi_buf_span(&d->metadata);
    for (uint32_t i = 0; i < c->item_count; i++) {
        c->raw_bytes[i] = item_bytes(p, i);
        p->raw_bytes += c->raw_bytes[i]; /* a part of the description's total, which does not overflow */
    }
    rc = bwi_content_number(c, err);
    if (rc < 0) return rc;
    return allot(&c->extents, c->extent_count, sizeof *c->extents, "content", err);
}

/* ---- all of it ---- */

static struct bwi_plan_origin origin_of(const struct bwi_description *d) {
    return (struct bwi_plan_origin){d->tensors, d->blobs, d->tensor_count, d->blob_count, d->version};
}

bool bwi_plan_fits(const struct bwi_plan *p, const struct bwi_description *d) {
    const struct bwi_plan_origin *a = &p->from;
    const struct bwi_plan_origin b = origin_of(d);
    const bool is_made = p->layout_bytes.len > 0;
    return is_made && a->version == b.version && a->tensors == b.tensors && a->tensor_count == b.tensor_count &&
           a->blobs == b.blobs && a->blob_count == b.blob_count;
}

void bwi_plan_renew(struct bwi_plan *p, const struct bwi_description *d) {
    const struct bwi_xxh none = {0};
    p->content.meta[0] = bwi_buf_span(&d->metadata);
    for (uint64_t i = 0; i < p->content.extent_count; i++) p->content.extents[i] = p->places[i].stored = none;
    p->cow = NULL;
}

int bwi_plan_make(const struct bwi_description *d, uint32_t rank, uint32_t extent_bytes, uint64_t pack_bytes,
                  struct bwi_plan *ret, struct bw_error *err) {
    struct bwi_plan p = {.from = origin_of(d)};
    int rc = make_items(d, &p, err);
    if (rc == 0) rc = make_layout(rank, &p, err);
    if (rc == 0) rc = tie(&p, err);
    if (rc == 0) rc = bwi_layout_encode(&p.layout, &p.layout_bytes, err);
    if (rc == 0) p.layout_sha = bwi_sha_of(bwi_buf_span(&p.layout_bytes));
    if (rc == 0) rc = make_content(d, extent_bytes, &p, err);
    if (rc == 0) rc = bwi_plan_pack(&p, pack_bytes, err);
    if (rc < 0) {
        bwi_plan_fini(&p);
        return rc;
    }
    *ret = p;
    return 0;
}
