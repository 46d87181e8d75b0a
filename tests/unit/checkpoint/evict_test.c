/* SPDX-License-Identifier: Apache-2.0 */
/* What goes from the local tier, as a pure function: rules one by one, and thousands of cases against a plain
 * reference. */
#include "checkpoint/room.h"
#include "test.h"
#include <stdio.h>
#include <string.h>

#define COPIES 9

static struct bwi_id step(uint64_t s) {
    return (struct bwi_id){s, 1, 2, 0};
}

static struct bwi_local_copy copy(uint64_t s, enum bwi_fate fate, uint64_t bytes) {
    return (struct bwi_local_copy){.id = step(s), .complete = true, .bytes = bytes, .fate = fate};
}

static void refer(struct bwi_local_copy *c, uint64_t s) {
    c->refs[c->ref_count++] = step(s);
}

static bool evict(struct bwi_local_copy *c, size_t n, uint64_t need, uint64_t quota, uint64_t free_bytes) {
    return bwi_policy_evict(c, n, NULL, 0, need, quota, free_bytes);
}

static void nothing_goes_while_it_fits(void **state) {
    (void)state;
    struct bwi_local_copy c[] = {copy(1, BWI_FATE_LIVE, 10), copy(2, BWI_FATE_SHELVED, 10)};
    assert_true(evict(c, 2, 10, 30, 10));
    assert_false(c[0].evict || c[1].evict);
    assert_true(evict(NULL, 0, 0, 0, 0));
}

static void the_oldest_goes_first_and_no_more_than_needed(void **state) {
    (void)state;
    struct bwi_local_copy c[] = {copy(3, BWI_FATE_LIVE, 10), copy(1, BWI_FATE_LIVE, 10), copy(2, BWI_FATE_LIVE, 10)};
    c[0].newest = true;
    assert_true(evict(c, 3, 1, 30, UINT64_MAX));
    assert_true(c[1].evict);
    assert_false(c[0].evict || c[2].evict);
    assert_true(evict(c, 3, 11, 30, UINT64_MAX));
    assert_true(c[1].evict && c[2].evict);
    assert_false(c[0].evict);
}

static void free_space_counts_as_well_as_the_quota(void **state) {
    (void)state;
    struct bwi_local_copy c[] = {copy(1, BWI_FATE_LIVE, 10), copy(2, BWI_FATE_LIVE, 10), copy(3, BWI_FATE_LIVE, 10)};
    assert_true(evict(c, 3, 15, 0, 5));
    assert_true(c[0].evict);
    assert_false(c[1].evict);
    assert_true(evict(c, 3, 16, 0, 5));
    assert_true(c[0].evict && c[1].evict);
}

static void what_would_not_help_does_not_go(void **state) {
    (void)state;
    struct bwi_local_copy c[] = {copy(1, BWI_FATE_LIVE, 10), copy(2, BWI_FATE_DEAD, 10), copy(3, BWI_FATE_LIVE, 10)};
    c[2].newest = true;
    assert_false(evict(c, 3, 31, 0, 10));
    assert_false(c[0].evict || c[2].evict);
    assert_true(c[1].evict); /* it is of no use anyway */
}

static void dead_data_goes_even_with_room_to_spare(void **state) {
    (void)state;
    struct bwi_local_copy c[] = {copy(1, BWI_FATE_DEAD, 10), copy(2, BWI_FATE_DEAD, 0), copy(3, BWI_FATE_LIVE, 10)};
    c[1].complete = false;
    assert_true(evict(c, 3, 0, 0, UINT64_MAX));
    assert_true(c[0].evict && c[1].evict);
    assert_false(c[2].evict);
}

static void what_an_interrupted_eviction_left_goes(void **state) {
    (void)state;
    static const enum bwi_fate fates[] = {BWI_FATE_LIVE, BWI_FATE_SHELVED, BWI_FATE_REFERENCED};
    for (int i = 0; i < 3; i++) {
        struct bwi_local_copy c = copy(1, fates[i], 0);
        c.complete = false;
        assert_true(evict(&c, 1, 0, 0, UINT64_MAX));
        assert_true(c.evict);
        c.newest = true;
        assert_true(evict(&c, 1, 0, 0, UINT64_MAX));
        assert_false(c.evict);
    }
}

static void what_may_still_be_committed_stays_with_all_that_it_needs(void **state) {
    (void)state;
    struct bwi_local_copy c[] = {copy(1, BWI_FATE_LIVE, 10), copy(2, BWI_FATE_DEAD, 10),
                                 copy(3, BWI_FATE_COMMITTABLE, 10), copy(4, BWI_FATE_AHEAD, 10)};
    refer(&c[2], 1);
    refer(&c[3], 2);
    assert_false(evict(c, 4, 1, 40, UINT64_MAX));
    for (int i = 0; i < 4; i++) assert_false(c[i].evict);
}

static void an_incomplete_one_that_may_be_committed_stays(void **state) {
    (void)state;
    struct bwi_local_copy c[] = {copy(1, BWI_FATE_COMMITTABLE, 0), copy(2, BWI_FATE_AHEAD, 0)};
    c[0].complete = c[1].complete = false;
    assert_false(evict(c, 2, 1, 0, 0));
    assert_false(c[0].evict || c[1].evict);
}

static void another_life_is_neither_taken_nor_counted(void **state) {
    (void)state;
    struct bwi_local_copy c[] = {copy(1, BWI_FATE_DEAD, 100), copy(2, BWI_FATE_LIVE, 10)};
    c[0].foreign = true;
    c[0].complete = false;
    assert_true(evict(c, 2, 10, 20, UINT64_MAX));
    assert_false(c[0].evict || c[1].evict);
}

static void a_save_in_flight_is_never_touched(void **state) {
    (void)state;
    const struct bwi_id busy[] = {step(1), step(2)};
    struct bwi_local_copy c[] = {copy(1, BWI_FATE_DEAD, 10), copy(2, BWI_FATE_LIVE, 10), copy(3, BWI_FATE_LIVE, 10)};
    assert_true(bwi_policy_evict(c, 3, busy, 2, 1, 30, UINT64_MAX));
    assert_false(c[0].evict || c[1].evict);
    assert_true(c[2].evict);
}

static void what_only_an_evicted_one_needed_can_go_after_it(void **state) {
    (void)state;
    struct bwi_local_copy c[] = {copy(1, BWI_FATE_REFERENCED, 10), copy(2, BWI_FATE_LIVE, 10),
                                 copy(3, BWI_FATE_LIVE, 10)};
    c[2].newest = true;
    refer(&c[1], 1);
    assert_true(evict(c, 3, 1, 30, UINT64_MAX));
    assert_true(c[1].evict);
    assert_false(c[0].evict);
    assert_true(evict(c, 3, 11, 30, UINT64_MAX));
    assert_true(c[0].evict && c[1].evict);
}

static void sums_that_overflow_do_not_make_room(void **state) {
    (void)state;
    struct bwi_local_copy c[] = {copy(1, BWI_FATE_COMMITTABLE, UINT64_MAX), copy(2, BWI_FATE_COMMITTABLE, UINT64_MAX)};
    assert_false(evict(c, 2, 1, UINT64_MAX - 1, UINT64_MAX));
    assert_false(evict(c, 2, UINT64_MAX, UINT64_MAX - 1, UINT64_MAX));
}

static void other_groups_go_last_and_count_against_no_quota(void **state) {
    (void)state;
    struct bwi_local_copy c[] = {copy(1, BWI_FATE_LIVE, 10), copy(2, BWI_FATE_LIVE, 10), copy(3, BWI_FATE_LIVE, 10),
                                 copy(9, BWI_FATE_LIVE, 10)};
    c[0].other = c[1].other = c[3].other = c[3].newest = true;
    assert_true(evict(c, 4, 10, 20, 10));
    for (int i = 0; i < 4; i++) assert_false(c[i].evict);
    assert_true(evict(c, 4, 20, 0, 10));
    assert_true(c[2].evict); /* its own, though it is the newer one */
    assert_false(c[0].evict || c[1].evict);
    assert_true(evict(c, 4, 30, 0, 10));
    assert_true(c[2].evict && c[0].evict);
    assert_false(c[1].evict);
    assert_false(evict(c, 4, 50, 0, 10)); /* the newest is never given up */
    for (int i = 0; i < 4; i++) assert_false(c[i].evict);
    assert_false(evict(c, 4, 21, 20, UINT64_MAX)); /* and nobody else helps against the quota */
}

static bool later(struct bwi_local_copy *c, size_t n, uint64_t need, uint64_t quota, uint64_t free_bytes) {
    return bwi_policy_evict_later(c, n, NULL, 0, need, quota, free_bytes);
}

static void deleting_waits_where_there_is_room_in_plenty(void **state) {
    (void)state;
    struct bwi_local_copy c[] = {copy(1, BWI_FATE_DEAD, 10), copy(2, BWI_FATE_LIVE, 10)};
    c[0].evict = true; /* of an earlier look */
    assert_true(later(c, 2, 10, 0, 10 * BWI_ROOM_SHARERS));
    assert_false(later(c, 2, 10, 0, 10 * BWI_ROOM_SHARERS - 1));
    assert_false(later(c, 2, UINT64_MAX / 2, 0, UINT64_MAX));
    assert_true(later(c, 2, 10, 30, UINT64_MAX)); /* the quota counts what is dead as long as it lies there */
    assert_false(later(c, 2, 10, 29, UINT64_MAX));
    c[0].complete = false; /* nobody knows what it takes */
    assert_false(later(c, 2, 10, 30, UINT64_MAX));
    assert_true(bwi_policy_evict_later(c, 2, &c[0].id, 1, 10, 30, UINT64_MAX)); /* a save in flight: the need has it */
    assert_false(bwi_policy_evict_later(c, 2, &c[1].id, 1, 10, 30, UINT64_MAX));
    c[0].foreign = true;
    assert_true(later(c, 2, 10, 30, UINT64_MAX));
}

static void as_much_of_what_is_dead_as_can_be_written_over_does_not_wait(void **state) {
    (void)state;
    struct bwi_local_copy c[] = {copy(1, BWI_FATE_LIVE, 10), copy(2, BWI_FATE_DEAD, 10), copy(3, BWI_FATE_DEAD, 10),
                                 copy(4, BWI_FATE_DEAD, 10), copy(5, BWI_FATE_LIVE, 10)};
    refer(&c[0], 2);
    assert_true(bwi_policy_recycle(c, 5, NULL, 0, 10));
    assert_true(c[2].evict); /* the oldest that nothing needs */
    assert_false(c[0].evict || c[1].evict || c[3].evict || c[4].evict);
    assert_true(bwi_policy_recycle(c, 5, NULL, 0, 11));
    assert_true(c[2].evict && c[3].evict);
    assert_true(bwi_policy_recycle(c, 5, NULL, 0, 100));
    assert_false(c[0].evict || c[1].evict || c[4].evict); /* what is of use goes only for want of room */
    assert_false(bwi_policy_recycle(c, 5, NULL, 0, 0));
    assert_false(c[2].evict || c[3].evict);
    assert_true(bwi_policy_recycle(c, 5, &c[2].id, 1, 100));
    assert_false(c[2].evict);
}

static void what_somebody_works_on_stays(void **state) {
    (void)state;
    struct bwi_local_copy c[] = {copy(1, BWI_FATE_DEAD, 10), copy(2, BWI_FATE_LIVE, 10), copy(3, BWI_FATE_LIVE, 10)};
    c[0].stays = c[1].stays = true;
    assert_true(evict(c, 3, 1, 30, UINT64_MAX));
    assert_false(c[0].evict || c[1].evict);
    assert_true(c[2].evict);
}

/* ---- the reference: sets of numbers, and the rules as they are written down ---- */

struct problem {
    struct bwi_local_copy c[COPIES];
    size_t n;
    struct bwi_id busy[2];
    size_t busy_count;
    uint64_t need, quota, free_bytes;
};

static bool ref_untouchable(const struct problem *p, size_t i) {
    const struct bwi_local_copy *c = &p->c[i];
    for (size_t b = 0; b < p->busy_count; b++)
        if (bwi_id_eq(&p->busy[b], &c->id)) return true;
    return c->foreign || c->stays || c->fate == BWI_FATE_COMMITTABLE || c->fate == BWI_FATE_AHEAD ||
           (c->newest && c->fate != BWI_FATE_DEAD);
}

static bool ref_needed(const struct problem *p, unsigned gone, size_t i) {
    for (size_t k = 0; k < p->n; k++)
        for (uint32_t r = 0; k != i && !(gone >> k & 1) && r < p->c[k].ref_count; r++)
            if (bwi_id_eq(&p->c[k].refs[r], &p->c[i].id)) return true;
    return false;
}

static unsigned ref_garbage(const struct problem *p, unsigned gone) {
    for (size_t round = 0; round < p->n; round++)
        for (size_t i = 0; i < p->n; i++) {
            const bool useless = p->c[i].fate == BWI_FATE_DEAD || !p->c[i].complete;
            if (useless && !ref_untouchable(p, i) && !ref_needed(p, gone, i)) gone |= 1u << i;
        }
    return gone;
}

static bool ref_fits(const struct problem *p, unsigned gone) {
    uint64_t kept = 0, freed = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (gone >> i & 1)
            freed += p->c[i].bytes;
        else if (!p->c[i].foreign && !p->c[i].other)
            kept += p->c[i].bytes;
    }
    return p->need <= p->free_bytes + freed && (p->quota == 0 || kept + p->need <= p->quota);
}

static uint64_t ref_rank(const struct bwi_local_copy *c) {
    return c->id.step + (c->other ? 1000 : 0);
}

static bool ref_evict(const struct problem *p, unsigned *ret_gone) {
    const unsigned garbage = ref_garbage(p, 0);
    unsigned gone = garbage;
    while (!ref_fits(p, gone)) {
        size_t best = p->n;
        for (size_t i = 0; i < p->n; i++) {
            if (gone >> i & 1 || ref_untouchable(p, i) || p->c[i].fate == BWI_FATE_DEAD || !p->c[i].complete) continue;
            if (ref_needed(p, gone, i)) continue;
            if (best == p->n || ref_rank(&p->c[i]) < ref_rank(&p->c[best])) best = i;
        }
        if (best == p->n) {
            *ret_gone = garbage;
            return false;
        }
        gone = ref_garbage(p, gone | 1u << best);
    }
    *ret_gone = gone;
    return true;
}

static void make_problem(struct problem *p, uint64_t *rng) {
    static const enum bwi_fate fates[] = {BWI_FATE_LIVE, BWI_FATE_LIVE,  BWI_FATE_SHELVED,    BWI_FATE_REFERENCED,
                                          BWI_FATE_DEAD, BWI_FATE_AHEAD, BWI_FATE_COMMITTABLE};
    memset(p, 0, sizeof *p);
    p->n = (size_t)(test_random(rng) % (COPIES + 1));
    for (size_t i = 0; i < p->n; i++) {
        struct bwi_local_copy *c = &p->c[i];
        *c = copy(i * 7 % COPIES, fates[test_random(rng) % 7], test_random(rng) % 10);
        c->complete = test_random(rng) % 4 != 0;
        c->foreign = test_random(rng) % 12 == 0;
        if (c->foreign) c->complete = false;
        if (!c->complete) c->bytes = 0;
        c->newest = test_random(rng) % 8 == 0;
        c->other = test_random(rng) % 4 == 0;
        c->stays = test_random(rng) % 16 == 0;
        while (c->ref_count < 3 && test_random(rng) % 3 == 0) refer(c, test_random(rng) % COPIES);
    }
    p->busy_count = (size_t)(test_random(rng) % 3);
    for (size_t b = 0; b < p->busy_count; b++) p->busy[b] = step(test_random(rng) % COPIES);
    p->need = test_random(rng) % 30;
    p->quota = test_random(rng) % 3 == 0 ? 0 : test_random(rng) % 60;
    p->free_bytes = test_random(rng) % 30;
}

static void it_agrees_with_a_plain_reference(void **state) {
    (void)state;
    uint64_t rng = test_seed(1);
    unsigned fitted = 0, evicted = 0;
    for (int round = 0; round < 100000; round++) {
        struct problem p;
        unsigned want = 0, found = 0;
        make_problem(&p, &rng);
        const bool want_fits = ref_evict(&p, &want);
        const bool fits = bwi_policy_evict(p.c, p.n, p.busy, p.busy_count, p.need, p.quota, p.free_bytes);
        for (size_t i = 0; i < p.n; i++) found |= p.c[i].evict ? 1u << i : 0;
        if (fits != want_fits || found != want)
            fail_msg("round %d: fits %d, expected %d; went %x, expected %x", round, fits, want_fits, found, want);
        for (size_t i = 0; i < p.n; i++)
            if (p.c[i].evict) assert_false(ref_needed(&p, found, i));
        fitted += fits;
        evicted += fits && found != ref_garbage(&p, 0);
    }
    assert_in_range(fitted, 20000, 90000);
    assert_in_range(evicted, 2000, 90000); /* the interesting cases are many */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_goes_while_it_fits),
        cmocka_unit_test(the_oldest_goes_first_and_no_more_than_needed),
        cmocka_unit_test(free_space_counts_as_well_as_the_quota),
        cmocka_unit_test(what_would_not_help_does_not_go),
        cmocka_unit_test(dead_data_goes_even_with_room_to_spare),
        cmocka_unit_test(what_an_interrupted_eviction_left_goes),
        cmocka_unit_test(what_may_still_be_committed_stays_with_all_that_it_needs),
        cmocka_unit_test(an_incomplete_one_that_may_be_committed_stays),
        cmocka_unit_test(another_life_is_neither_taken_nor_counted),
        cmocka_unit_test(a_save_in_flight_is_never_touched),
        cmocka_unit_test(what_only_an_evicted_one_needed_can_go_after_it),
        cmocka_unit_test(sums_that_overflow_do_not_make_room),
        cmocka_unit_test(other_groups_go_last_and_count_against_no_quota),
        cmocka_unit_test(deleting_waits_where_there_is_room_in_plenty),
        cmocka_unit_test(as_much_of_what_is_dead_as_can_be_written_over_does_not_wait),
        cmocka_unit_test(what_somebody_works_on_stays),
        cmocka_unit_test(it_agrees_with_a_plain_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
