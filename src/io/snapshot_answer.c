/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that answers writers. It takes no lock that is held while somebody touches memory that may be protected,
 * allocates nothing, and writes nowhere but to its stack, the tables and the area. */
#include "base/checked.h"
#include "base/copy.h"
#include "base/env.h"
#include "io/snapshot_private.h"

#define LINE ((uint64_t)64)

static uint64_t now_ns(void) {
    struct bwi_env *env = bwi_env_system();
    return env->now_ns(env);
}

/* Nobody waits any more, and what was copied is worth nothing. */
static void give_up(struct bwi_snapshots *s) {
    if (s->lost) return;
    s->lost = true; /* before anything is opened */
    s->wanting = false;
    bwi_snapshot_open_hulls(s);
}

/* ---- shadows ---- */

static bool take_shadow(struct bwi_snapshots *s, uint32_t *ret) {
    uint32_t top = s->shadow_free;
    while (top != 0)
        if (atomic_compare_exchange_weak(&s->shadow_free, &top, s->shadow_next[top - 1])) {
            *ret = top - 1;
            return true;
        }
    return false;
}

static void count_wait(struct bwi_snapshots *s, struct bwi_unit *u) {
    if (u->wanted_ns == 0) return;
    s->stats.wait_max_ns = bwi_max_u64(s->stats.wait_max_ns, now_ns() - u->wanted_ns);
    u->wanted_ns = 0;
}

/* The first run that ends behind the address. */
static size_t run_at(const struct bwi_snapshots *s, uint64_t address) {
    const struct bwi_hulls *h = &s->hulls;
    size_t low = 0, high = h->run_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (h->runs[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Copies what the save needs of [from, from + bytes), whole cache lines of it. Nothing else is touched: what lies
 * between the runs may be unmapped at any moment. */
static void put_aside(const struct bwi_snapshots *s, uint8_t *to, uint64_t from, uint64_t bytes) {
    const struct bwi_hulls *h = &s->hulls;
    for (size_t i = run_at(s, from); i < h->run_count && h->runs[i].start < from + bytes; i++) {
        const uint64_t start = bwi_max_u64(h->runs[i].start - h->runs[i].start % LINE, from);
        const uint64_t end = bwi_min_u64(bwi_round_up(h->runs[i].end, LINE), from + bytes);
        bwi_copy_blind(to + (start - from), bwi_protect_at(start), (size_t)(end - start));
    }
}

/* Puts a unit aside; true if that was still needed. */
static bool shadow_unit(struct bwi_snapshots *s, struct bwi_unit *u, uint64_t address, uint32_t shadow) {
    uint32_t state = UNIT_PROTECTED;
    if (!atomic_compare_exchange_strong(&u->state, &state, UNIT_SHADOWING)) return false;
    uint8_t *to = s->shadows + shadow * BWI_UNIT;
    put_aside(s, to, address, BWI_UNIT);
    bwi_unit_patch(s, u, to, 0, BWI_UNIT);
    s->stats.units++;
    u->shadow = shadow;
    u->state = UNIT_SHADOWED;
    if (u->readers == 0) bwi_unit_open(s, u, address);
    if (u->remaining == 0) bwi_unit_retire(s, u, address);
    return true;
}

/* ---- single pages ---- */

/* Whether a page is nothing but memory that the save needs. Else the allocator may keep its books there, and whoever
 * writes to them may hold the lock that everybody needs. */
static bool is_whole(const struct bwi_snapshots *s, uint64_t page) {
    const struct bwi_hulls *h = &s->hulls;
    const size_t run = bwi_range_find(h->runs, h->run_count, page);
    return run != SIZE_MAX && h->runs[run].end >= page + BWI_PAGE;
}

static bool is_needed(const struct bwi_snapshots *s, uint64_t page) {
    const size_t run = run_at(s, page);
    return run < s->hulls.run_count && s->hulls.runs[run].start < page + BWI_PAGE;
}

static struct bwi_page *page_of(const struct bwi_snapshots *s, const struct bwi_unit *u, uint64_t at) {
    for (uint32_t i = u->pages; i != 0; i = s->pages[i - 1].next)
        if (s->pages[i - 1].at == at) return &s->pages[i - 1];
    return NULL;
}

static void save_page(struct bwi_snapshots *s, struct bwi_unit *u, uint64_t address, uint64_t page) {
    if (s->page_count == s->page_cap) {
        give_up(s);
        return;
    }
    struct bwi_page *p = &s->pages[s->page_count];
    put_aside(s, s->page_bytes + s->page_count * BWI_PAGE, page, BWI_PAGE);
    p->next = u->pages;
    p->at = (uint32_t)(page - address);
    p->opened = 0;
    s->page_count++;
    s->stats.pages++;
    u->pages = s->page_count;
    atomic_fetch_add(&u->pages_waiting, 1);
    if (u->readers == 0) bwi_unit_open_pages(s, u, address);
}

/* ---- answers ---- */

static void queue(struct bwi_snapshots *s, struct bwi_unit *u) {
    s->stats.waits++;
    if (u->wanted_ns != 0) return;
    u->wanted_ns = now_ns();
    s->wanted[s->wanted_end++] = (uint32_t)(u - s->units);
    s->wanting = true;
}

static void want(struct bwi_snapshots *s, struct bwi_unit *u, uint64_t address, uint64_t page) {
    uint32_t shadow;
    if (page_of(s, u, page - address) != NULL) return; /* it is opened when its readers have left */
    if (take_shadow(s, &shadow)) {
        if (!shadow_unit(s, u, address, shadow)) bwi_shadow_give(s, shadow);
    } else if (!is_needed(s, page)) { /* nobody reads it, so there is nothing to put aside */
        if (s->os->off(s->os, s->fd, page, BWI_PAGE) < 0) (void)s->os->wake(s->os, s->fd, page, BWI_PAGE);
    } else if (!is_whole(s, page)) {
        save_page(s, u, address, page);
    } else {
        queue(s, u);
    }
}

/* Wakes whoever need not wait any more; if he must after all, he comes again. */
static void answer(struct bwi_snapshots *s, uint64_t page) {
    const struct bwi_hulls *h = &s->hulls;
    const size_t hull = s->live && !s->lost ? bwi_range_find(h->hulls, h->hull_count, page) : SIZE_MAX;
    if (hull == SIZE_MAX) {
        (void)s->os->wake(s->os, s->fd, page, BWI_PAGE);
        return;
    }
    const size_t number = s->hull_unit[hull] + (size_t)((page - h->hulls[hull].start) / BWI_UNIT);
    struct bwi_unit *u = &s->units[number];
    const uint64_t address = bwi_unit_address(s, hull, number);
    s->stats.faults++;
    if (u->state == UNIT_FREE)
        bwi_unit_open(s, u, address);
    else if (u->state == UNIT_PROTECTED)
        want(s, u, address, page);
    const struct bwi_page *p = page_of(s, u, page - address);
    if (u->opened || (p != NULL && p->opened)) (void)s->os->wake(s->os, s->fd, page, BWI_PAGE);
}

/* ---- those that wait ---- */

static size_t hull_of(const struct bwi_snapshots *s, size_t unit) {
    size_t hull = 0;
    while (hull + 1 < s->hulls.hull_count && s->hull_unit[hull + 1] <= unit) hull++;
    return hull;
}

/* Shadows that have become free go to those who have waited longest; those who need none any more leave. */
static void serve_waiting(struct bwi_snapshots *s) {
    while (s->wanted_first < s->wanted_end && !s->lost) {
        struct bwi_unit *u = &s->units[s->wanted[s->wanted_first]];
        uint32_t shadow;
        if (u->state == UNIT_PROTECTED) {
            if (!take_shadow(s, &shadow)) break;
            const size_t number = s->wanted[s->wanted_first];
            const uint64_t address = bwi_unit_address(s, hull_of(s, number), number);
            if (!shadow_unit(s, u, address, shadow)) bwi_shadow_give(s, shadow);
        }
        count_wait(s, u);
        s->wanted_first++;
    }
    s->wanting = s->wanted_first < s->wanted_end && !s->lost;
}

/* When the one who has waited longest has waited too long. */
static uint64_t patience_ns(const struct bwi_snapshots *s) {
    if (!s->live || !s->wanting || s->options.wait_ns == BWI_NEVER) return BWI_NEVER;
    return s->units[s->wanted[s->wanted_first]].wanted_ns + s->options.wait_ns;
}

static bool turn(struct bwi_snapshots *s, uint64_t *deadline_ns) {
    uint64_t page;
    bool go_on;
    bool any;
    do {
        any = s->os->next(s->os, s->fd, &page) == 1;
        bwi_mutex_lock(&s->lock);
        if (any) answer(s, page);
        if (s->live) serve_waiting(s);
        if (patience_ns(s) <= now_ns()) give_up(s);
        *deadline_ns = patience_ns(s);
        go_on = !s->stop;
        bwi_mutex_unlock(&s->lock);
    } while (any);
    return go_on;
}

void *bwi_snapshot_answer(void *arg) {
    struct bwi_snapshots *s = arg;
    uint64_t deadline_ns = BWI_NEVER;
    while (turn(s, &deadline_ns)) bwi_protect_wait(s->fd, s->wake_fd, deadline_ns);
    return NULL;
}
