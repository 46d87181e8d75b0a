/* SPDX-License-Identifier: Apache-2.0 */
/* From slices to extents. First which saved boxes the slices meet, by the index alone; then, group by group as their
 * metadata comes in, which extents of those boxes hold anything that is wanted, in the order in which they lie. Pure.
 */
#include "base/checked.h"
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/restore_private.h"
#include "format/shape.h"
#include <breakwater/tensor.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- boxes ---- */

int bwi_restore_hit_add(struct bwi_restore_work *w, const struct bwi_restore_hit *h, struct bw_error *err) {
    if (!bwi_vec_reserve((void **)&w->hits, &w->hit_cap, w->hit_count + 1, sizeof *w->hits)) {
        return bwi_error_nomem(err, w->hit_count * sizeof *w->hits, "boxes to read");
    }
    w->hits[w->hit_count++] = *h;
    return 0;
}

static int hits_of(struct bwi_restore_work *w, size_t want, struct bw_error *err) {
    const struct bwi_restore_want *x = &w->wants[want];
    const struct bwi_index_tensor *t = x->tensor;
    int rc = 0;
    if (x->bytes == 0) return 0;
    for (uint32_t i = 0; i < t->box_count && rc == 0; i++) {
        const struct bwi_index_box *b = &t->boxes[i];
        uint64_t bytes = 0;
        (void)bwi_shape_bytes(t->dtype, t->dims, b->extent, &bytes);
        if (!bwi_intersect_any(t->dims, x->to.elem_bytes, b->offset, b->extent, 0, bytes, x->offset, x->extent))
            continue;
        const struct bwi_restore_hit h = {b->group, b->item, want, b->offset, b->extent};
        rc = bwi_restore_hit_add(w, &h, err);
    }
    return rc;
}

static int hit_order(const void *left, const void *right) {
    const struct bwi_restore_hit *a = left;
    const struct bwi_restore_hit *b = right;
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    if (a->item != b->item) return a->item < b->item ? -1 : 1;
    return (a->want > b->want) - (a->want < b->want);
}

int bwi_restore_plan_hits(struct bwi_restore_call *c, struct bw_error *err) {
    struct bwi_restore_work *w = c->w;
    int rc = 0;
    for (size_t i = 0; i < w->want_count && rc == 0; i++) rc = hits_of(w, i, err);
    if (rc == 0 && w->hit_count > 1) qsort(w->hits, w->hit_count, sizeof *w->hits, hit_order);
    for (size_t i = 0; i < w->hit_count && rc == 0; i++) {
        if (w->hits[i].group < c->r->manifest.group_count) continue;
        rc = bwi_error_set(err, BW_E_CORRUPT, "checkpoint %s: the index names group %" PRIu32 ", there are %" PRIu32,
                           c->r->id_text, w->hits[i].group, c->r->manifest.group_count);
    }
    return rc;
}

/* ---- extents ---- */

/* The item whose bytes a hit's box has; the layout must say of the box what the index says. */
static int resolve_item(const struct bwi_restore *r, const struct bwi_restore_want *want,
                        const struct bwi_restore_hit *h, const struct bwi_layout *l, uint32_t *ret,
                        struct bw_error *err) {
    *ret = h->item;
    if (want->tensor == NULL) return 0;
    const struct bwi_index_tensor *t = want->tensor;
    bool fits = h->item < l->box_count;
    if (fits) {
        const struct bwi_box *b = &l->boxes[h->item];
        const struct bwi_tensor *lt = &l->tensors[b->tensor];
        fits = bwi_span_eq(lt->name, t->name) && lt->dtype == t->dtype && lt->dims == t->dims &&
               bwi_shape_same(t->dims, b->offset, h->box_offset) && bwi_shape_same(t->dims, b->extent, h->box_extent);
        if (b->tied != BWI_NOT_TIED) *ret = b->tied;
    }
    if (fits) return 0;
    return bwi_error_set(err, BW_E_CORRUPT,
                         "checkpoint %s: tensor %s: the index says that item %" PRIu32 " of group %" PRIu32
                         " is a box of it, the group's layout does not",
                         r->id_text, bwi_shape_name_text(t->name).s, h->item, h->group);
}

static int add_pair(struct bwi_restore_batch *b, const struct bwi_restore_pair *p, struct bw_error *err) {
    if (!bwi_vec_reserve((void **)&b->pairs, &b->cap, b->count + 1, sizeof *b->pairs)) {
        return bwi_error_nomem(err, b->count * sizeof *b->pairs, "extents to read");
    }
    b->pairs[b->count++] = *p;
    return 0;
}

static int add_pairs(const struct bwi_restore_work *w, size_t hit, uint32_t item, const struct bwi_content *content,
                     struct bwi_restore_batch *b, struct bw_error *err) {
    const struct bwi_restore_hit *h = &w->hits[hit];
    const struct bwi_restore_want *x = &w->wants[h->want];
    const uint64_t first = content->first_extent[item];
    int rc = 0;
    for (uint64_t k = 0; rc == 0 && first + k < content->first_extent[item + 1]; k++) {
        const uint64_t from = k * content->extent_bytes;
        const uint64_t n = bwi_content_extent_bytes(content, item, k);
        if (!bwi_intersect_any(x->to.dims, x->to.elem_bytes, h->box_offset, h->box_extent, from, n, x->offset,
                               x->extent)) {
            continue;
        }
        const struct bwi_restore_pair p = {first + k, item, from, hit, 0};
        rc = add_pair(b, &p, err);
    }
    return rc;
}

static int pair_order(const void *left, const void *right, void *places_of) {
    const struct bwi_restore_pair *a = left;
    const struct bwi_restore_pair *b = right;
    const struct bwi_place *places = ((const struct bwi_placement *)places_of)->places;
    const struct bwi_place *p = &places[a->extent];
    const struct bwi_place *q = &places[b->extent];
    if (p->pack != q->pack) return p->pack < q->pack ? -1 : 1;
    if (p->offset != q->offset) return p->offset < q->offset ? -1 : 1;
    if (a->extent != b->extent) return a->extent < b->extent ? -1 : 1;
    return (a->hit > b->hit) - (a->hit < b->hit);
}

void bwi_restore_batch_free(struct bwi_restore_batch *b) {
    if (b == NULL) return;
    bwi_restore_group_unpin(b->group);
    bwi_free(b->pairs);
    bwi_free(b);
}

int bwi_restore_plan_batch(struct bwi_restore_call *c, struct bwi_restore_group *g, enum bwi_tier tier,
                           struct bwi_restore_batch **ret, struct bw_error *err) {
    struct bwi_restore_work *w = c->w;
    struct bwi_group_meta *m = &g->tier[tier].meta;
    struct bwi_restore_batch *b = bwi_calloc(1, sizeof *b);
    if (b == NULL) return bwi_error_nomem(err, sizeof *b, "extents to read");
    b->group = g;
    b->tier = tier;
    g->pins++;
    int rc = 0;
    for (; rc == 0 && w->hit_at < w->hit_count && w->hits[w->hit_at].group == g->group; w->hit_at++) {
        const struct bwi_restore_hit *h = &w->hits[w->hit_at];
        uint32_t item;
        rc = resolve_item(c->r, &w->wants[h->want], h, &m->layout, &item, err);
        if (rc == 0) rc = add_pairs(w, w->hit_at, item, &m->content, b, err);
    }
    if (rc < 0) {
        bwi_restore_batch_free(b);
        return rc;
    }
    if (b->count > 1) qsort_r(b->pairs, b->count, sizeof *b->pairs, pair_order, &m->placement);
    *ret = b;
    return 0;
}
