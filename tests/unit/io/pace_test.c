/* SPDX-License-Identifier: Apache-2.0 */
/* Pacing: how much goes when, for any sizes. */
#include "io/pace.h"
#include "test.h"

#define S UINT64_C(1000000000)

static void a_rate_of_zero_is_no_limit(void **state) {
    (void)state;
    struct bwi_pace p;
    bwi_pace_init(&p, 0, 0);
    assert_int_equal(bwi_pace_take(&p, 7, UINT64_MAX), 7);
    assert_int_equal(bwi_pace_take(&p, 7, UINT64_MAX), 7);
}

static void the_burst_goes_at_once_and_the_rest_at_the_rate(void **state) {
    (void)state;
    struct bwi_pace p;
    bwi_pace_init(&p, 1000, 500);
    assert_int_equal(bwi_pace_take(&p, 10 * S, 500), 10 * S);
    assert_int_equal(bwi_pace_take(&p, 10 * S, 1000), 11 * S);
    assert_int_equal(bwi_pace_take(&p, 10 * S, 1), 11 * S + S / 1000);
}

static void without_a_burst_every_byte_waits_its_time(void **state) {
    (void)state;
    struct bwi_pace p;
    bwi_pace_init(&p, 1000, 0);
    assert_int_equal(bwi_pace_take(&p, S, 250), S + S / 4);
}

static void idle_time_counts_for_the_burst_only(void **state) {
    (void)state;
    struct bwi_pace p;
    bwi_pace_init(&p, 1000, 500);
    assert_int_equal(bwi_pace_take(&p, S, 500), S);
    assert_int_equal(bwi_pace_take(&p, 100 * S, 500), 100 * S);
    assert_int_equal(bwi_pace_take(&p, 100 * S, 500), 100 * S + S / 2);
}

static void one_take_larger_than_the_burst_waits_and_passes(void **state) {
    (void)state;
    struct bwi_pace p;
    bwi_pace_init(&p, 1000, 10);
    assert_int_equal(bwi_pace_take(&p, S, 2010), 3 * S);
}

static void huge_numbers_saturate(void **state) {
    (void)state;
    struct bwi_pace p;
    bwi_pace_init(&p, 1, 0);
    assert_true(bwi_pace_take(&p, S, UINT64_MAX) == UINT64_MAX);
    assert_true(bwi_pace_take(&p, S, 1) == UINT64_MAX);
    bwi_pace_init(&p, 1, UINT64_MAX);
    assert_int_equal(bwi_pace_take(&p, S, UINT64_MAX), S);
    bwi_pace_init(&p, UINT64_MAX, 1);
    assert_int_equal(bwi_pace_take(&p, S, 100), S + 1);
}

/* Sends n bytes at the time that it is told, and checks the promise over every window that starts with the first byte.
 */
static void never_more_than_burst_and_rate_in_any_time(void **state) {
    (void)state;
    uint64_t rng = test_seed(1);
    for (int round = 0; round < 200; round++) {
        struct bwi_pace p;
        uint64_t rate = 1 + test_random(&rng) % 1000000, burst = test_random(&rng) % 100000, start = S, now = start,
                 sent = 0;
        bwi_pace_init(&p, rate, burst);
        for (int i = 0; i < 100; i++) {
            uint64_t n = test_random(&rng) % 5000, at = bwi_pace_take(&p, now, n);
            assert_true(at >= now);
            sent += n;
            double allowed = (double)burst + (double)rate * (double)(at - start) / 1e9;
            assert_true((double)sent <= allowed + 1e-3);
            now = at; /* back to back: never idle, so it is not late either */
            assert_true((double)sent >= allowed - (double)burst - (double)rate / 1e9 * 200 - 1 || sent <= burst);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rate_of_zero_is_no_limit),
        cmocka_unit_test(the_burst_goes_at_once_and_the_rest_at_the_rate),
        cmocka_unit_test(without_a_burst_every_byte_waits_its_time),
        cmocka_unit_test(idle_time_counts_for_the_burst_only),
        cmocka_unit_test(one_take_larger_than_the_burst_waits_and_passes),
        cmocka_unit_test(huge_numbers_saturate),
        cmocka_unit_test(never_more_than_burst_and_rate_in_any_time),
    };
    return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
