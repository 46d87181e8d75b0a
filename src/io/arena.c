/* SPDX-License-Identifier: Apache-2.0 */
/* The arena. Free ranges are kept as a list in address order whose links lie in the free memory itself, so that neither
 * acquire nor release ever allocates; there are few ranges, because buffers are large and neighbours are merged at
 * once. */
#include "io/arena.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/vec.h"
#include "os/thread.h"
#include <assert.h>

#define TOUCH_THREADS_MAX 64u

struct range {
    struct range *next; /* at a higher address */
    size_t bytes;
};

struct bwi_arena {
    struct bwi_memory memory;
    uint64_t budget, used, peak; /* bytes, multiples of BWI_ARENA_ALIGN */
    struct range *free;          /* by address, never adjacent */
    struct bwi_arena_wait *head, *tail;
    struct bwi_arena_lender *lenders; /* the last one first */
    bool lending;                     /* lend() runs below */
    bool serving;                     /* granted() callbacks run below; they may release and cancel */
};

struct touch {
    struct bwi_thread thread;
    struct bwi_memory *memory;
    size_t offset, bytes;
};

static void *touch_run(void *arg) {
    struct touch *t = arg;
    bwi_memory_touch(t->memory, t->offset, t->bytes);
    return NULL;
}

/* Each thread touches one part; the caller's own thread takes the part of any that cannot be started. */
static void touch(struct bwi_arena *a, unsigned threads) {
    struct touch parts[TOUCH_THREADS_MAX] = {0};
    if (threads > TOUCH_THREADS_MAX) threads = TOUCH_THREADS_MAX;
    uint64_t part = bwi_round_up(bwi_div_ceil(a->budget, threads), BWI_ARENA_ALIGN), at = 0;
    for (unsigned i = 0; i < threads && at < a->budget; i++) {
        struct touch *t = &parts[i];
        t->memory = &a->memory;
        t->offset = (size_t)at;
        t->bytes = (size_t)bwi_min_u64(part, a->budget - at);
        at += t->bytes;
        bool last = at == a->budget;
        if (last || bwi_thread_start(&t->thread, "bw-touch", touch_run, t) < 0) touch_run(t);
    }
    for (unsigned i = 0; i < threads; i++) bwi_thread_join(&parts[i].thread);
}

int bwi_arena_open(uint64_t budget_bytes, unsigned touch_threads, struct bwi_arena **ret, struct bw_error *err) {
    size_t bytes = 0;
    uint64_t budget = budget_bytes - budget_bytes % BWI_ARENA_ALIGN;
    if (budget == 0)
        return bwi_error_set(err, BW_E_INVALID, "memory budget: expected at least %u bytes, found %llu",
                             BWI_ARENA_ALIGN, (unsigned long long)budget_bytes);
    if (!bwi_u64_to_size(budget, &bytes))
        return bwi_error_set(err, BW_E_LIMIT, "memory budget of %llu bytes is above what this machine can address",
                             (unsigned long long)budget);
    struct bwi_arena *a = bwi_calloc(1, sizeof *a);
    if (!a) return bwi_error_nomem(err, sizeof *a, "the arena");
    int rc = bwi_memory_map(bytes, &a->memory);
    if (rc < 0) {
        bwi_free(a);
        return bwi_error_errno(err, -rc, "map %llu bytes for the memory budget", (unsigned long long)budget);
    }
    a->budget = budget;
    if (touch_threads > 0) touch(a, touch_threads);
    a->free = a->memory.ptr;
    *a->free = (struct range){NULL, bytes};
    *ret = a;
    return 0;
}

void bwi_arena_close(struct bwi_arena *a) {
    if (!a) return;
    assert(a->used == 0 && !a->head && !a->lenders);
    bwi_memory_unmap(&a->memory);
    bwi_free(a);
}

static size_t rounded(size_t bytes) {
    return bytes == 0 ? BWI_ARENA_ALIGN : (size_t)bwi_round_up(bytes, BWI_ARENA_ALIGN);
}

/* First fit: the front of the lowest range that is large enough. NULL: none is. */
static uint8_t *take(struct bwi_arena *a, size_t bytes) {
    struct range **link = &a->free;
    while (*link && (*link)->bytes < bytes) link = &(*link)->next;
    struct range *found = *link;
    if (!found) return NULL;
    if (found->bytes == bytes) {
        *link = found->next;
    } else {
        struct range *rest = (struct range *)(void *)((uint8_t *)found + bytes);
        *rest = (struct range){found->next, found->bytes - bytes};
        *link = rest;
    }
    a->used += bytes;
    a->peak = bwi_max_u64(a->peak, a->used);
    return (uint8_t *)found;
}

static bool grant(struct bwi_arena *a, struct bwi_arena_wait *w) {
    uint8_t *ptr = take(a, rounded(w->bytes));
    if (ptr) w->ptr = ptr;
    return ptr != NULL;
}

/* Serves waiters from the front as far as memory goes. A callback that releases or cancels does not get here again: the
 * outer call sees what it freed. */
static void serve(struct bwi_arena *a) {
    if (a->serving) return;
    a->serving = true;
    while (a->head && grant(a, a->head)) {
        struct bwi_arena_wait *w = a->head;
        a->head = w->next;
        if (!a->head) a->tail = NULL;
        w->next = NULL;
        w->queued = 0;
        w->granted(w);
    }
    a->serving = false;
}

/* One buffer comes back; it may be that of a waiter by now. */
static bool borrow(struct bwi_arena *a) {
    if (a->lending) return false;
    a->lending = true;
    bool lent = false;
    for (struct bwi_arena_lender *l = a->lenders; l && !lent; l = l->next) lent = l->lend(l);
    a->lending = false;
    return lent;
}

void bwi_arena_acquire(struct bwi_arena *a, struct bwi_arena_wait *w) {
    assert(w->bytes <= a->budget && !w->queued);
    w->next = NULL;
    w->ptr = NULL;
    if (!a->head && grant(a, w)) {
        w->granted(w);
        return;
    }
    w->queued = 1;
    if (a->tail)
        a->tail->next = w;
    else
        a->head = w;
    a->tail = w;
    while (w->queued && borrow(a)) continue;
}

void bwi_arena_cancel(struct bwi_arena *a, struct bwi_arena_wait *w) {
    if (!w->queued) return;
    struct bwi_arena_wait *before = NULL;
    for (struct bwi_arena_wait *at = a->head; at != w; at = at->next) before = at;
    if (before)
        before->next = w->next;
    else
        a->head = w->next;
    if (a->tail == w) a->tail = before;
    w->next = NULL;
    w->queued = 0;
    if (!before) serve(a); /* smaller ones may have waited behind it */
}

void bwi_arena_release(struct bwi_arena *a, uint8_t *ptr, size_t bytes) {
    if (!ptr) return;
    bytes = rounded(bytes);
    assert(bytes <= a->used && ptr >= (uint8_t *)a->memory.ptr);
    struct range *before = NULL, *after = a->free;
    for (; after && (uint8_t *)after < ptr; after = after->next) before = after;
    assert(!before || (uint8_t *)before + before->bytes <= ptr);
    assert(!after || ptr + bytes <= (uint8_t *)after);
    struct range *r = (struct range *)(void *)ptr;
    *r = (struct range){after, bytes};
    if (before)
        before->next = r;
    else
        a->free = r;
    if (after && ptr + bytes == (uint8_t *)after) *r = (struct range){after->next, bytes + after->bytes};
    if (before && (uint8_t *)before + before->bytes == ptr) *before = (struct range){r->next, before->bytes + r->bytes};
    a->used -= bytes;
    serve(a);
}

void bwi_arena_add_lender(struct bwi_arena *a, struct bwi_arena_lender *l) {
    l->next = a->lenders;
    a->lenders = l;
}

void bwi_arena_remove_lender(struct bwi_arena *a, struct bwi_arena_lender *l) {
    struct bwi_arena_lender **link = &a->lenders;
    while (*link && *link != l) link = &(*link)->next;
    if (*link) *link = l->next;
    l->next = NULL;
}

bool bwi_arena_is_wanted(const struct bwi_arena *a) {
    return a->head != NULL;
}

static uint64_t largest_range(const struct bwi_arena *a) {
    uint64_t most = 0;
    for (const struct range *r = a->free; r; r = r->next) most = bwi_max_u64(most, r->bytes);
    return most;
}

static uint64_t free_or_lent(const struct bwi_arena *a) {
    uint64_t bytes = a->budget - a->used;
    for (const struct bwi_arena_lender *l = a->lenders; l; l = l->next) bytes += l->bytes;
    return bytes;
}

uint64_t bwi_arena_largest_free(struct bwi_arena *a, uint64_t wanted) {
    uint64_t most = largest_range(a);
    while (most < wanted && free_or_lent(a) >= wanted && borrow(a)) most = largest_range(a);
    return most;
}

void bwi_arena_register(const struct bwi_arena *a, struct bwi_io *io) {
    bwi_io_register(io, a->memory.ptr, a->memory.bytes);
}

uint64_t bwi_arena_budget(const struct bwi_arena *a) {
    return a->budget;
}
uint64_t bwi_arena_used(const struct bwi_arena *a) {
    return a->used;
}
uint64_t bwi_arena_peak(const struct bwi_arena *a) {
    return a->peak;
}
