/* SPDX-License-Identifier: Apache-2.0 */
/* Retention and room, as doc/flows/prune.md says them. */
#include "policy_naive.h"

__extension__ typedef __int128 wide; /* whatever is added up or taken away, it fits */

/* --- retention ---- */

bool naive_lets_go(const struct naive_world *w, const struct naive *s, int m, const struct bw_retention *r,
                   uint32_t in_flight, int64_t now_ms) {
    if (r->keep_last == 0 || s->kept[m].place != IS_LIVE) return false;
    uint32_t newer = 0;
    for (int k = 0; k < (int)w->count; k++)
        newer += s->kept[k].place == IS_LIVE && w->makings[k].id.step > w->makings[m].id.step;
    const bool one_of_the_last = newer < r->keep_last || newer < in_flight + 1;
    const bool by_step = r->keep_every_steps > 0 && w->makings[m].id.step % r->keep_every_steps == 0;
    const wide age = (wide)now_ms - s->kept[m].time_ms; /* below 0: of the future, since a clock was set back */
    const bool young = r->keep_younger_ms > 0 && age < (wide)r->keep_younger_ms;
    return !one_of_the_last && !by_step && !young && !s->kept[m].pinned && !naive_from_needs(w, s, m);
}

/* --- room ---- */

struct disk {
    const struct bwi_local_copy *copies;
    size_t count;
    const struct bwi_id *busy;
    size_t busy_count;
    size_t order[64]; /* this group's before the others', and the oldest first */
    bool *gone;
};

static bool comes_later(const struct bwi_local_copy *a, const struct bwi_local_copy *b) {
    if (a->other != b->other) return a->other;
    return bwi_id_cmp(&a->id, &b->id) > 0;
}

static void put_in_order(struct disk *d) {
    for (size_t i = 0; i < d->count; i++) {
        size_t at = i;
        for (; at > 0 && comes_later(&d->copies[d->order[at - 1]], &d->copies[i]); at--)
            d->order[at] = d->order[at - 1];
        d->order[at] = i;
    }
}

static bool is_committed(const struct bwi_local_copy *c) {
    return c->fate == BWI_FATE_LIVE || c->fate == BWI_FATE_SHELVED || c->fate == BWI_FATE_REFERENCED;
}

static bool is_untouchable(const struct disk *d, size_t at) {
    const struct bwi_local_copy *c = &d->copies[at];
    bool touched = c->foreign || c->stays;
    for (size_t i = 0; i < d->busy_count; i++) touched = touched || bwi_id_eq(&d->busy[i], &c->id);
    for (size_t i = 0; i < d->count; i++) {
        if (d->gone[i] || bwi_id_eq(&d->copies[i].id, &c->id)) continue;
        for (uint32_t k = 0; k < d->copies[i].ref_count; k++)
            touched = touched || bwi_id_eq(&d->copies[i].refs[k], &c->id);
    }
    return touched;
}

/* Of use to nobody: dead; or what an interrupted eviction has left of a committed one. */
static bool is_rubbish(const struct bwi_local_copy *c) {
    if (c->fate == BWI_FATE_DEAD) return true;
    return is_committed(c) && !c->complete && !c->newest;
}

static void drop_rubbish(struct disk *d) {
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < d->count; i++) {
            if (d->gone[i] || !is_rubbish(&d->copies[i]) || is_untouchable(d, i)) continue;
            d->gone[i] = changed = true;
        }
    }
}

static bool has_room(const struct disk *d, uint64_t need, uint64_t quota, uint64_t free_bytes) {
    wide room = (wide)free_bytes, used = (wide)need;
    for (size_t i = 0; i < d->count; i++) {
        const struct bwi_local_copy *c = &d->copies[i];
        if (d->gone[i]) room += (wide)c->bytes;
        if (!d->gone[i] && !c->foreign && !c->other) used += (wide)c->bytes;
    }
    return (wide)need <= room && (quota == 0 || used <= (wide)quota);
}

/* The first by order that lies in the authority as well, is not the newest, and is needed by nothing here. */
static bool drop_one(struct disk *d) {
    for (size_t i = 0; i < d->count; i++) {
        const size_t at = d->order[i];
        const struct bwi_local_copy *c = &d->copies[at];
        if (d->gone[at] || !c->complete || c->newest || !is_committed(c) || is_untouchable(d, at)) continue;
        d->gone[at] = true;
        return true;
    }
    return false;
}

bool naive_evict(const struct bwi_local_copy *copies, size_t count, const struct bwi_id *busy, size_t busy_count,
                 uint64_t need, uint64_t quota, uint64_t free_bytes, bool *ret) {
    struct disk d = {.copies = copies, .count = count, .busy = busy, .busy_count = busy_count, .gone = ret};
    for (size_t i = 0; i < count; i++) ret[i] = false;
    put_in_order(&d);
    drop_rubbish(&d);
    while (!has_room(&d, need, quota, free_bytes)) {
        if (!drop_one(&d)) {
            for (size_t i = 0; i < count; i++) ret[i] = false;
            drop_rubbish(&d);
            return false;
        }
        drop_rubbish(&d);
    }
    return true;
}
