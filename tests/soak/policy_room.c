/* SPDX-License-Identifier: Apache-2.0 */
/* Room on a disk: any mixture of copies, asked of both. */
#include "policy_twin.h"

#include <string.h>

#define COPIES_MAX 14u
#define IDS        6u

static struct bwi_id any_id(struct twin *t) {
    return (struct bwi_id){.step = 1 + twin_random(t, IDS), .attempt = 1};
}

static enum bwi_fate any_fate(struct twin *t) {
    static const enum bwi_fate fates[] = {BWI_FATE_LIVE,        BWI_FATE_LIVE,  BWI_FATE_LIVE, BWI_FATE_SHELVED,
                                          BWI_FATE_REFERENCED,  BWI_FATE_DEAD,  BWI_FATE_DEAD, BWI_FATE_COMMITTABLE,
                                          BWI_FATE_COMMITTABLE, BWI_FATE_AHEAD, BWI_FATE_DEAD};
    return fates[twin_random(t, sizeof fates / sizeof fates[0])];
}

static void draw_copy(struct twin *t, struct bwi_local_copy *ret) {
    *ret = (struct bwi_local_copy){.id = any_id(t),
                                   .complete = twin_chance(t, 80),
                                   .foreign = twin_chance(t, 6),
                                   .bytes = twin_random(t, 50),
                                   .fate = any_fate(t),
                                   .other = twin_chance(t, 35),
                                   .stays = twin_chance(t, 6),
                                   .evict = twin_chance(t, 50)};
    ret->newest = ret->fate == BWI_FATE_LIVE && twin_chance(t, 20);
    if (twin_chance(t, 1)) ret->bytes = UINT64_MAX - twin_random(t, 100);
    while (ret->ref_count < 2 && twin_chance(t, 22)) ret->refs[ret->ref_count++] = any_id(t);
}

/* Whatever the rules: what may still be needed is never taken, and nothing that stays refers to what goes. */
static bool nothing_needed_goes(struct twin *t, const struct bwi_local_copy *c, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!c[i].evict) continue;
        if (c[i].foreign || c[i].stays || c[i].newest || c[i].fate == BWI_FATE_COMMITTABLE ||
            c[i].fate == BWI_FATE_AHEAD)
            return twin_violated(t, "room: copy %zu goes, which must stay", i);
        for (size_t k = 0; k < count; k++)
            for (uint32_t r = 0; !c[k].evict && r < c[k].ref_count; r++)
                if (!bwi_id_eq(&c[k].id, &c[i].id) && bwi_id_eq(&c[k].refs[r], &c[i].id))
                    return twin_violated(t, "room: copy %zu goes, to which copy %zu refers", i, k);
    }
    return true;
}

bool twin_room(struct twin *t) {
    struct bwi_local_copy copies[COPIES_MAX];
    struct bwi_id busy[2];
    bool gone[COPIES_MAX];
    const size_t count = twin_random(t, COPIES_MAX + 1);
    const size_t busy_count = twin_random(t, 3);
    for (size_t i = 0; i < count; i++) draw_copy(t, &copies[i]);
    for (size_t i = 0; i < busy_count; i++) busy[i] = any_id(t);
    const uint64_t need = twin_chance(t, 2) ? UINT64_MAX - 1 : twin_random(t, 150);
    const uint64_t quota = twin_chance(t, 50) ? 0 : 1 + twin_random(t, 250);
    const uint64_t room = twin_chance(t, 2) ? UINT64_MAX : twin_random(t, 150);
    const bool want = naive_evict(copies, count, busy, busy_count, need, quota, room, gone);
    const bool fits = bwi_policy_evict(copies, count, busy, busy_count, need, quota, room);
    t->checks += 1 + count;
    if (fits != want) return twin_violated(t, "room: fits %d, and by the naive rules %d", fits, want);
    for (size_t i = 0; i < count; i++)
        if (copies[i].evict != gone[i])
            return twin_violated(t, "room: copy %zu of %zu goes %d, and by the naive rules %d", i, count,
                                 copies[i].evict, gone[i]);
    return nothing_needed_goes(t, copies, count);
}
