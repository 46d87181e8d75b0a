/* SPDX-License-Identifier: Apache-2.0 */
/* Coverage: every element of every tensor lies in exactly one box. Boxes that do not overlap and hold together as many
 * elements as the tensor leave no gap. Overlaps are found by a sweep along the dimension in which the boxes begin at
 * the most different places: only boxes that are cut by the same plane are compared. */
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/plan.h"
#include "format/index.h"
#include "format/shape.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct key {
    uint64_t begin;
    uint32_t box;
};

/* Scratch memory for the tensor with the most boxes. */
struct sweep {
    struct key *keys; /* boxes that are not empty, by where they begin in one dimension */
    uint32_t *open;   /* boxes that the plane cuts */
    size_t keys_cap, open_cap;
};

static int by_begin(const void *left, const void *right) {
    const struct key *a = left;
    const struct key *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return (a->box > b->box) - (a->box < b->box);
}

/* ---- for messages ---- */

struct list_text {
    char s[64];
};

/* "[4, 8]"; cut where it is long. */
static struct list_text list_text(unsigned dims, const uint64_t *numbers) {
    struct list_text t = {"["};
    for (unsigned d = 0; d < dims; d++) {
        const size_t at = strlen(t.s);
        if (at + 28 > sizeof t.s) {
            (void)bwi_format(t.s + at, sizeof t.s - at, "...");
            break;
        }
        (void)bwi_format(t.s + at, sizeof t.s - at, "%" PRIu64 "%s", numbers[d], d + 1 < dims ? ", " : "");
    }
    const size_t at = strlen(t.s);
    (void)bwi_format(t.s + at, sizeof t.s - at, "]");
    return t;
}

static int blame_overlap(const struct bwi_index_tensor *t, uint32_t a, uint32_t b, struct bw_error *err) {
    const struct bwi_index_box *x = &t->boxes[a < b ? a : b];
    const struct bwi_index_box *y = &t->boxes[a < b ? b : a];
    return bwi_error_set(err, BW_E_COVERAGE,
                         "tensor %s: the box of rank %" PRIu32 " (offset %s, extent %s) and the box of rank %" PRIu32
                         " (offset %s, extent %s) overlap",
                         bwi_shape_name_text(t->name).s, x->rank, list_text(t->dims, x->offset).s,
                         list_text(t->dims, x->extent).s, y->rank, list_text(t->dims, y->offset).s,
                         list_text(t->dims, y->extent).s);
}

/* ---- boxes ---- */

static bool is_empty(unsigned dims, const uint64_t *extent) {
    for (unsigned d = 0; d < dims; d++) {
        if (extent[d] == 0) return true;
    }
    return false;
}

/* Elements; the shape's fit 64 bits, and those of a box in it too. */
static uint64_t volume_of(unsigned dims, const uint64_t *extent) {
    uint64_t v = 1;
    for (unsigned d = 0; d < dims; d++) v *= extent[d];
    return v;
}

static bool overlap(unsigned dims, const struct bwi_index_box *a, const struct bwi_index_box *b) {
    for (unsigned d = 0; d < dims; d++) {
        if (a->offset[d] + a->extent[d] <= b->offset[d] || b->offset[d] + b->extent[d] <= a->offset[d]) return false;
    }
    return true;
}

/* Readers of layouts have refused such a box; every sum here relies on it. */
static int check_inside(const struct bwi_index_tensor *t, struct bw_error *err) {
    for (uint32_t i = 0; i < t->box_count; i++) {
        const struct bwi_index_box *b = &t->boxes[i];
        for (unsigned d = 0; d < t->dims; d++) {
            if (b->offset[d] <= t->shape[d] && b->extent[d] <= t->shape[d] - b->offset[d]) continue;
            return bwi_error_set(err, BW_E_COVERAGE,
                                 "tensor %s: the box of rank %" PRIu32 " (offset %s, extent %s) leaves the shape %s",
                                 bwi_shape_name_text(t->name).s, b->rank, list_text(t->dims, b->offset).s,
                                 list_text(t->dims, b->extent).s, list_text(t->dims, t->shape).s);
        }
    }
    return 0;
}

/* ---- the sweep ---- */

/* Sorts the boxes by where they begin in dimension d; returns how many different places that are. */
static size_t sort_along(const struct bwi_index_tensor *t, unsigned d, struct key *keys, size_t *ret_n) {
    size_t n = 0;
    for (uint32_t i = 0; i < t->box_count; i++) {
        if (is_empty(t->dims, t->boxes[i].extent)) continue;
        keys[n++] = (struct key){d < t->dims ? t->boxes[i].offset[d] : 0, i};
    }
    qsort(keys, n, sizeof *keys, by_begin);
    size_t places = n > 0;
    for (size_t i = 1; i < n; i++) places += keys[i].begin != keys[i - 1].begin;
    *ret_n = n;
    return places;
}

static size_t sort_best(const struct bwi_index_tensor *t, struct key *keys, unsigned *ret_dim) {
    unsigned best = 0;
    unsigned sorted = 0;
    size_t most = 0;
    size_t n = 0;
    for (unsigned d = 0; d < t->dims || d == 0; d++) {
        const size_t places = sort_along(t, d, keys, &n);
        sorted = d;
        if (places <= most) continue;
        most = places;
        best = d;
        if (places == n) break; /* it does not get better */
    }
    if (sorted != best) (void)sort_along(t, best, keys, &n);
    *ret_dim = best;
    return n;
}

static int check_overlaps(const struct bwi_index_tensor *t, struct sweep *s, struct bw_error *err) {
    unsigned dim;
    const size_t n = sort_best(t, s->keys, &dim);
    size_t open = 0;
    for (size_t i = 0; i < n; i++) {
        const struct bwi_index_box *box = &t->boxes[s->keys[i].box];
        size_t kept = 0;
        for (size_t k = 0; k < open; k++) {
            const struct bwi_index_box *other = &t->boxes[s->open[k]];
            if (overlap(t->dims, box, other)) return blame_overlap(t, s->open[k], s->keys[i].box, err);
            const bool cut = t->dims == 0 || other->offset[dim] + other->extent[dim] > s->keys[i].begin;
            if (cut) s->open[kept++] = s->open[k];
        }
        s->open[kept] = s->keys[i].box;
        open = kept + 1;
    }
    return 0;
}

/* ---- gaps ---- */

/* Elements of a region that lie in boxes; the boxes do not overlap. */
static uint64_t covered_in(const struct bwi_index_tensor *t, const uint64_t *low, const uint64_t *extent) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->box_count; i++) {
        const struct bwi_index_box *b = &t->boxes[i];
        uint64_t v = 1;
        for (unsigned d = 0; d < t->dims && v > 0; d++) {
            const uint64_t from = bwi_max_u64(low[d], b->offset[d]);
            const uint64_t to = bwi_min_u64(low[d] + extent[d], b->offset[d] + b->extent[d]);
            v = to > from ? v * (to - from) : 0;
        }
        sum += v;
    }
    return sum;
}

/* Halves a region that has a gap, and keeps a half that has one, until one element is left. */
static void find_gap(const struct bwi_index_tensor *t, uint64_t *low) {
    uint64_t extent[BWI_DIMS_MAX];
    for (unsigned d = 0; d < t->dims; d++) {
        low[d] = 0;
        extent[d] = t->shape[d];
    }
    for (unsigned d = 0; d < t->dims; d++) {
        while (extent[d] > 1) {
            const uint64_t whole = extent[d];
            extent[d] = whole / 2;
            if (covered_in(t, low, extent) < volume_of(t->dims, extent)) continue;
            low[d] += extent[d];
            extent[d] = whole - extent[d];
        }
    }
}

static int check_tensor(const struct bwi_index_tensor *t, struct sweep *s, struct bw_error *err) {
    int rc = check_inside(t, err);
    if (rc < 0 || is_empty(t->dims, t->shape)) return rc;
    rc = check_overlaps(t, s, err);
    if (rc < 0) return rc;
    uint64_t covered = 0;
    for (uint32_t i = 0; i < t->box_count; i++) covered += volume_of(t->dims, t->boxes[i].extent);
    const uint64_t all = volume_of(t->dims, t->shape);
    if (covered == all) return 0;
    uint64_t gap[BWI_DIMS_MAX] = {0};
    find_gap(t, gap);
    return bwi_error_set(err, BW_E_COVERAGE,
                         "tensor %s: %" PRIu64 " of %" PRIu64 " elements are in no box, one of them is %s",
                         bwi_shape_name_text(t->name).s, all - covered, all, list_text(t->dims, gap).s);
}

int bwi_coverage_check(const struct bwi_index_tensor *tensors, size_t count, struct bw_error *err) {
    struct sweep s = {0};
    size_t most = 1;
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].box_count > most) most = tensors[i].box_count;
    }
    int rc = 0;
    if (!bwi_vec_reserve((void **)&s.keys, &s.keys_cap, most, sizeof *s.keys) ||
        !bwi_vec_reserve((void **)&s.open, &s.open_cap, most, sizeof *s.open)) {
        rc = bwi_error_nomem(err, most * (sizeof *s.keys + sizeof *s.open), "coverage check");
    }
    for (size_t i = 0; i < count && rc == 0; i++) rc = check_tensor(&tensors[i], &s, err);
    bwi_free(s.keys);
    bwi_free(s.open);
    return rc;
}
