/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoint somebody has in mind: mostly one that there may be, and now and then any other. */
#include "policy_twin.h"

#include <string.h>

int twin_any_making(struct twin *t) {
    return (int)twin_random(t, t->world.count);
}

static int known(const struct twin *t, const struct bwi_id *id) {
    for (unsigned m = 0; m < t->world.count; m++)
        if (bwi_id_eq(&t->world.makings[m].id, id)) return (int)m;
    return NOBODY;
}

static bool refers(const struct making *m, int to) {
    for (unsigned i = 0; i < m->ref_count; i++)
        if (m->refs[i] == to) return true;
    return false;
}

/* Ascending by id, once each. */
static void add_ref(const struct twin *t, struct making *m, int ref) {
    const struct bwi_id *id = &t->world.makings[ref].id;
    if (m->ref_count == BWI_REFS_MAX || bwi_id_eq(id, &m->id) || refers(m, ref)) return;
    unsigned at = m->ref_count++;
    for (; at > 0 && bwi_id_cmp(&t->world.makings[m->refs[at - 1]].id, id) > 0; at--) m->refs[at] = m->refs[at - 1];
    m->refs[at] = (unsigned short)ref;
}

/* What is live, what that refers to, or anything. */
static void draw_refs(struct twin *t, struct making *m) {
    const struct naive *s = twin_naive(t);
    if (t->world.count == 0 || twin_chance(t, 55)) return;
    const unsigned count = twin_chance(t, 5) ? BWI_REFS_MAX : 1 + (unsigned)twin_random(t, 2);
    for (unsigned i = 0; i < count; i++) {
        int ref = twin_any_making(t);
        for (unsigned tries = 0; tries < 8 && s->kept[ref].place != IS_LIVE && twin_chance(t, 93); tries++)
            ref = twin_any_making(t);
        const struct making *r = &t->world.makings[ref];
        if (r->ref_count > 0 && twin_chance(t, 35)) ref = r->refs[twin_random(t, r->ref_count)];
        add_ref(t, m, ref);
    }
}

static int make(struct twin *t, const struct bwi_id *id) {
    struct making *m = &t->world.makings[t->world.count];
    *m = (struct making){.id = *id, .bytes = 1 + twin_random(t, 1000)};
    m->manifest = (unsigned char)(1 + twin_random(t, 255));
    m->groups = 1 + (uint32_t)twin_random(t, 4);
    m->world = m->groups + (uint32_t)twin_random(t, 3);
    m->fan_out = twin_chance(t, 50);
    draw_refs(t, m);
    t->facts[t->world.count] = (struct twin_fact){.complete = twin_chance(t, 80)};
    return (int)t->world.count++;
}

/* A step near the floor, and mostly above it. */
static uint64_t draw_step(struct twin *t, const struct naive *s) {
    uint64_t h;
    if (!naive_floor(s, &h)) return twin_random(t, 4);
    if (twin_chance(t, 12)) return h - (h > 3 ? twin_random(t, 4) : twin_random(t, h + 1));
    return h + 1 + twin_random(t, 3);
}

static struct bwi_id draw_id(struct twin *t) {
    const struct naive *s = twin_naive(t);
    struct bwi_id id = {.step = draw_step(t, s), .attempt = s->attempt.number, .nonce = s->attempt.nonce};
    const unsigned kind = (unsigned)twin_random(t, 100);
    id.tri = naive_try(s, id.step);
    if (kind < 5)
        id.attempt += 1 + (uint32_t)twin_random(t, 2);
    else if (kind < 10)
        id.nonce++;
    else if (kind < 14 && id.attempt > 1)
        id.attempt--;
    else if (kind < 22)
        id.tri += 1 + (uint32_t)twin_random(t, 2);
    else if (kind < 28 && id.tri > 0)
        id.tri--;
    if (id.attempt == 0) id.attempt = 1;
    return id;
}

int twin_draw_making(struct twin *t) {
    const struct naive *s = twin_naive(t);
    if (t->world.count > 0 && twin_chance(t, 22)) return twin_any_making(t);
    if (s->from_open && twin_chance(t, 20)) return s->from;
    const struct bwi_id id = draw_id(t);
    const int m = known(t, &id);
    if (m != NOBODY) return m;
    return t->world.count == MAKINGS_MAX ? twin_any_making(t) : make(t, &id);
}

int twin_draw_kept(struct twin *t, const struct naive *s) {
    int kept[MAKINGS_MAX];
    unsigned count = 0;
    for (int m = 0; m < (int)t->world.count; m++)
        if (naive_is_kept(s, m)) kept[count++] = m;
    return count > 0 ? kept[twin_random(t, count)] : NOBODY;
}
