/* SPDX-License-Identifier: Apache-2.0 */
/* What goes from the local tier to make room. Pure. */
#include "base/checked.h"
#include "checkpoint/room.h"

static bool is_committed(enum bwi_fate f) {
    return f == BWI_FATE_LIVE || f == BWI_FATE_SHELVED || f == BWI_FATE_REFERENCED;
}

static bool is_busy(const struct bwi_local_copy *c, const struct bwi_id *busy, size_t busy_count) {
    for (size_t i = 0; i < busy_count; i++)
        if (bwi_id_eq(&busy[i], &c->id)) return true;
    return false;
}

/* Something that stays refers to it. */
static bool is_needed(const struct bwi_local_copy *copies, size_t count, const struct bwi_id *id) {
    for (size_t i = 0; i < count; i++) {
        if (copies[i].evict || bwi_id_eq(&copies[i].id, id)) continue;
        for (uint32_t k = 0; k < copies[i].ref_count; k++)
            if (bwi_id_eq(&copies[i].refs[k], id)) return true;
    }
    return false;
}

/* Of use to nobody: dead, or what an eviction that was interrupted has left of a committed one. */
static bool is_garbage(const struct bwi_local_copy *c) {
    return c->fate == BWI_FATE_DEAD || (!c->complete && !c->newest && is_committed(c->fate));
}

static bool may_go(const struct bwi_local_copy *c) {
    return c->complete && !c->newest && is_committed(c->fate);
}

static bool goes_before(const struct bwi_local_copy *a, const struct bwi_local_copy *b) {
    return a->other != b->other ? b->other : bwi_id_cmp(&a->id, &b->id) <= 0;
}

/* The oldest that satisfies `want` and that nothing needs, of this group if there is one. */
static struct bwi_local_copy *oldest(struct bwi_local_copy *copies, size_t count, const struct bwi_id *busy,
                                     size_t busy_count, bool (*want)(const struct bwi_local_copy *c)) {
    struct bwi_local_copy *best = NULL;
    for (size_t i = 0; i < count; i++) {
        struct bwi_local_copy *c = &copies[i];
        if (c->evict || c->foreign || c->stays || !want(c) || is_busy(c, busy, busy_count)) continue;
        if (best != NULL && goes_before(best, c)) continue;
        if (!is_needed(copies, count, &c->id)) best = c;
    }
    return best;
}

static uint64_t add(uint64_t a, uint64_t b) {
    uint64_t sum = UINT64_MAX;
    (void)bwi_add_u64(a, b, &sum);
    return sum;
}

/* The directory's free bytes do not show yet what has been marked. */
static bool fits(const struct bwi_local_copy *copies, size_t count, uint64_t need, uint64_t quota,
                 uint64_t free_bytes) {
    uint64_t used = 0;
    uint64_t room = free_bytes;
    for (size_t i = 0; i < count; i++) {
        if (copies[i].evict)
            room = add(room, copies[i].bytes);
        else if (!copies[i].foreign && !copies[i].other)
            used = add(used, copies[i].bytes);
    }
    return need <= room && (quota == 0 || add(used, need) <= quota);
}

static void mark_garbage(struct bwi_local_copy *copies, size_t count, const struct bwi_id *busy, size_t busy_count) {
    struct bwi_local_copy *c;
    while ((c = oldest(copies, count, busy, busy_count, is_garbage)) != NULL) c->evict = true;
}

bool bwi_policy_evict(struct bwi_local_copy *copies, size_t count, const struct bwi_id *busy, size_t busy_count,
                      uint64_t need, uint64_t quota, uint64_t free_bytes) {
    for (size_t i = 0; i < count; i++) copies[i].evict = false;
    mark_garbage(copies, count, busy, busy_count);
    while (!fits(copies, count, need, quota, free_bytes)) {
        struct bwi_local_copy *c = oldest(copies, count, busy, busy_count, may_go);
        if (c == NULL) {
            /* In vain: what is whole stays, for a restart that reads from here. */
            for (size_t i = 0; i < count; i++) copies[i].evict = false;
            mark_garbage(copies, count, busy, busy_count);
            return false;
        }
        c->evict = true;
        mark_garbage(copies, count, busy, busy_count); /* what only that one needed */
    }
    return true;
}

/* What an incomplete copy takes is not known, so it never waits. A save in flight has promised what it takes: `need`
 * has that in it. */
bool bwi_policy_evict_later(struct bwi_local_copy *copies, size_t count, const struct bwi_id *busy, size_t busy_count,
                            uint64_t need, uint64_t quota, uint64_t free_bytes) {
    uint64_t all = 0;
    if (__builtin_mul_overflow(need, (uint64_t)BWI_ROOM_SHARERS, &all)) return false;
    for (size_t i = 0; i < count; i++)
        if (!copies[i].foreign && !copies[i].complete && !is_busy(&copies[i], busy, busy_count)) return false;
    for (size_t i = 0; i < count; i++) copies[i].evict = false;
    return all <= free_bytes && fits(copies, count, need, quota, free_bytes);
}

bool bwi_policy_recycle(struct bwi_local_copy *copies, size_t count, const struct bwi_id *busy, size_t busy_count,
                        uint64_t need) {
    struct bwi_local_copy *c;
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) copies[i].evict = false;
    while (bytes < need && (c = oldest(copies, count, busy, busy_count, is_garbage)) != NULL) {
        c->evict = true;
        bytes = add(bytes, c->bytes);
    }
    return bytes > 0;
}
