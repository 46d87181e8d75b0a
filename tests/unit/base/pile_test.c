/* SPDX-License-Identifier: Apache-2.0 */
/* A pile against what was put into it: nothing moves, nothing overlaps, and what is given back is used again. */
#include "base/pile.h"
#include "base/vec.h"
#include "test.h"
#include <stdint.h>
#include <string.h>

#define MOST 3000

struct thing {
    uint8_t *at;
    size_t bytes;
};

static struct thing take(struct bwi_pile *p, size_t bytes, uint8_t with) {
    const struct thing t = {bwi_pile_take(p, bytes), bytes};
    assert_non_null(t.at);
    assert_int_equal((uintptr_t)t.at % 8, 0);
    memset(t.at, with, bytes);
    return t;
}

static void check(const struct thing *t, uint8_t with) {
    for (size_t k = 0; k < t->bytes; k++) assert_int_equal(t->at[k], with);
}

static void what_is_taken_stays_where_and_what_it_is_until_it_is_given_back(void **state) {
    (void)state;
    uint64_t rng = test_seed(7);
    static struct thing things[MOST];
    struct bwi_pile p = {0};
    size_t n = 0;
    for (int round = 0; round < 40; round++) {
        const size_t to = test_random(&rng) % MOST;
        if (to < n) bwi_pile_rewind(&p, things[to].at);
        for (n = to < n ? to : n; n < to; n++) {
            const size_t most = test_random(&rng) % 50 == 0 ? 100000 : 200; /* some are larger than any block */
            things[n] = take(&p, test_random(&rng) % most, (uint8_t)n);
        }
        for (size_t i = 0; i < n; i++) check(&things[i], (uint8_t)i);
    }
    bwi_pile_fini(&p);
    bwi_pile_fini(&p);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void what_was_given_back_is_taken_again_without_an_allocation(void **state) {
    (void)state;
    struct bwi_pile p = {0};
    const struct thing first = take(&p, 24, 1), second = take(&p, 24, 2);
    for (int i = 0; i < 5000; i++) (void)take(&p, 100, 3);
    bwi_pile_rewind(&p, second.at);
    (void)bwi_alloc_fail_at(0);
    assert_ptr_equal(take(&p, 24, 4).at, second.at);
    for (int i = 0; i < 5000; i++) (void)take(&p, 100, 5);
    assert_int_equal(bwi_alloc_fail_at(0), 0);
    check(&first, 1);
    bwi_pile_fini(&p);
}

static void without_memory_nothing_changes(void **state) {
    (void)state;
    struct bwi_pile p = {0};
    (void)bwi_alloc_fail_at(1);
    assert_null(bwi_pile_take(&p, 8));
    const struct thing t = take(&p, 3990, 1);
    (void)bwi_alloc_fail_at(1);
    assert_null(bwi_pile_take(&p, 100));
    assert_ptr_equal(bwi_pile_take(&p, 8), t.at + 3992);
    assert_null(bwi_pile_take(&p, SIZE_MAX));
    assert_null(bwi_pile_take(&p, SIZE_MAX - 16));
    check(&t, 1);
    bwi_pile_fini(&p);
    assert_int_equal(bwi_alloc_live(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_taken_stays_where_and_what_it_is_until_it_is_given_back),
        cmocka_unit_test(what_was_given_back_is_taken_again_without_an_allocation),
        cmocka_unit_test(without_memory_nothing_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
