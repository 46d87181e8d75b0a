/* SPDX-License-Identifier: Apache-2.0 */
#include "io/hull.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/vec.h"
#include <stdlib.h>
#include <string.h>

#define BRIDGE_BYTES ((uint64_t)8 << 20)

static int add(struct bwi_range **list, size_t *count, size_t *cap, struct bwi_range r) {
    void *grown = *list;
    if (!bwi_vec_reserve(&grown, cap, *count + 1, sizeof r)) return -1;
    *list = grown;
    (*list)[(*count)++] = r;
    return 0;
}

static int add_edge(struct bwi_hulls *h, uint64_t start, uint64_t end) {
    if (start >= end) return 0;
    h->edge_bytes += end - start;
    return add(&h->edges, &h->edge_count, &h->edge_cap, (struct bwi_range){start, end});
}

/* ---- runs ---- */

static int by_start(const void *a, const void *b) {
    const struct bwi_range *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static bool sorted(const struct bwi_range *r, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (r[i].start < r[i - 1].start) return false;
    return true;
}

static int make_runs(struct bwi_hulls *h, const struct bwi_range *ranges, size_t count) {
    void *all = NULL;
    if (!bwi_vec_reserve(&all, &h->run_cap, count + 1, sizeof *h->runs)) return -1;
    h->runs = all;
    if (count > 0) memcpy(h->runs, ranges, count * sizeof *ranges);
    if (!sorted(h->runs, count)) qsort(h->runs, count, sizeof *h->runs, by_start);
    for (size_t i = 0; i < count; i++) {
        const struct bwi_range r = h->runs[i];
        struct bwi_range *last = h->run_count > 0 ? &h->runs[h->run_count - 1] : NULL;
        if (r.start >= r.end) continue;
        if (last != NULL && r.start <= last->end)
            last->end = bwi_max_u64(last->end, r.end);
        else
            h->runs[h->run_count++] = r;
    }
    return 0;
}

/* ---- hulls ---- */

/* Parts of runs that one hull is to cover. */
struct group {
    struct bwi_range span;
    uint64_t bytes; /* of runs; 0: it is empty */
    uint64_t last;  /* of the last run */
    uint64_t gaps;  /* bytes between them */
};

/* The group's hull, with what sticks out at either end as edges. */
static int close_group(struct bwi_hulls *h, struct group *g, size_t first_run, size_t end_run) {
    if (g->bytes == 0) return 0;
    const uint64_t start = bwi_round_up(g->span.start, BWI_UNIT), end = g->span.end - g->span.end % BWI_UNIT;
    const struct bwi_range hull = start < end ? (struct bwi_range){start, end} : (struct bwi_range){0, 0};
    const uint64_t edges = h->edge_bytes;
    int rc = 0;
    for (size_t i = first_run; rc == 0 && i < end_run; i++) {
        const uint64_t from = bwi_max_u64(h->runs[i].start, g->span.start);
        const uint64_t to = bwi_min_u64(h->runs[i].end, g->span.end);
        if (hull.end == 0) {
            rc = add_edge(h, from, to);
        } else {
            rc = add_edge(h, from, bwi_min_u64(to, hull.start));
            if (rc == 0) rc = add_edge(h, bwi_max_u64(from, hull.end), to);
        }
    }
    if (rc == 0 && hull.end != 0) rc = add(&h->hulls, &h->hull_count, &h->hull_cap, hull);
    h->hull_bytes += hull.end - hull.start;
    h->inside_bytes += g->bytes - (h->edge_bytes - edges);
    g->bytes = 0;
    return rc;
}

static bool joins(const struct group *g, const struct bwi_mapping *m, uint64_t start, uint64_t bytes) {
    if (g->bytes == 0 || g->span.start < m->start) return false;
    const uint64_t gap = start - g->span.end;
    return gap <= BRIDGE_BYTES && gap <= g->last + bytes && g->gaps + gap <= g->bytes + bytes;
}

/* The part of a run that lies in the mapping at `at`, or before the next one; its end. */
static uint64_t part_end(const struct bwi_mapping *m, bool found, uint64_t at, uint64_t end, bool *plain) {
    *plain = found && m->plain && m->start <= at;
    if (!found) return end;
    return bwi_min_u64(end, m->start <= at ? m->end : m->start);
}

static int make_hulls(struct bwi_hulls *h, bwi_find_mapping find, void *user) {
    struct group g = {0};
    struct bwi_mapping m = {0};
    size_t first = 0;
    bool found = true, plain;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < h->run_count; i++) {
        for (uint64_t at = h->runs[i].start, end; rc == 0 && at < h->runs[i].end; at = end) {
            if (found && m.end <= at) found = find(user, at, &m) == 0 && m.end > at;
            end = part_end(&m, found, at, h->runs[i].end, &plain);
            if (!plain || !joins(&g, &m, at, end - at)) {
                rc = close_group(h, &g, first, i + 1);
                g = (struct group){.span = {at, at}};
                first = i;
            }
            if (rc == 0 && !plain) rc = add_edge(h, at, end);
            if (!plain) continue;
            g.gaps += at - g.span.end;
            g.span.end = end;
            g.bytes += end - at;
            g.last = end - at;
        }
    }
    return rc == 0 ? close_group(h, &g, first, h->run_count) : rc;
}

int bwi_hulls_make(const struct bwi_range *ranges, size_t count, bwi_find_mapping find, void *user,
                   struct bwi_hulls *ret, struct bw_error *err) {
    *ret = (struct bwi_hulls){0};
    if (make_runs(ret, ranges, count) == 0 && make_hulls(ret, find, user) == 0) {
        if (ret->edge_count > 0) qsort(ret->edges, ret->edge_count, sizeof *ret->edges, by_start);
        return 0;
    }
    bwi_hulls_fini(ret);
    return bwi_error_nomem(err, count * sizeof *ranges, "the memory of a save");
}

void bwi_hulls_fini(struct bwi_hulls *h) {
    bwi_free(h->runs);
    bwi_free(h->hulls);
    bwi_free(h->edges);
    *h = (struct bwi_hulls){0};
}

size_t bwi_range_find(const struct bwi_range *list, size_t count, uint64_t address) {
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (list[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && list[low].start <= address ? low : SIZE_MAX;
}
