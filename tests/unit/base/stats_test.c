/* SPDX-License-Identifier: Apache-2.0 */
/* The histogram, against the same values in a sorted array. */
#include "base/stats.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

#define VALUES 20000

static int by_value(const void *a, const void *b) {
    uint64_t x;
    uint64_t y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* Every quantile lies between the exact one and 6.25 % more. */
static void check_against_sorted(uint64_t *values, size_t n) {
    static struct bwi_hist h;
    memset(&h, 0, sizeof h);
    for (size_t i = 0; i < n; i++) bwi_hist_add(&h, values[i]);
    qsort(values, n, sizeof values[0], by_value);
    assert_int_equal(h.count, n);
    assert_true(h.min == values[0]);
    assert_true(h.max == values[n - 1]);
    const double qs[] = {0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999};
    for (size_t i = 0; i < sizeof qs / sizeof qs[0]; i++) {
        size_t rank = 1;
        while ((double)rank < qs[i] * (double)n) rank++;
        const uint64_t exact = values[rank - 1];
        const uint64_t got = bwi_hist_quantile(&h, qs[i]);
        assert_true(got >= exact);
        assert_true(got - exact <= exact / 16);
    }
    assert_true(bwi_hist_quantile(&h, 0) == values[0]);
    assert_true(bwi_hist_quantile(&h, 1) == values[n - 1]);
}

static void quantiles_agree_with_a_sorted_array(void **state) {
    (void)state;
    static uint64_t values[VALUES];
    uint64_t rng = test_seed(42);
    for (unsigned bits = 1; bits <= 64; bits++) {
        for (size_t i = 0; i < VALUES / 16; i++) values[i] = test_random(&rng) >> (64 - bits);
        check_against_sorted(values, VALUES / 16);
    }
    for (size_t i = 0; i < VALUES; i++) values[i] = test_random(&rng) >> (test_random(&rng) % 64);
    check_against_sorted(values, VALUES);
}

static void few_values_are_exact(void **state) {
    (void)state;
    uint64_t one[] = {1234567};
    check_against_sorted(one, 1);
    static struct bwi_hist h;
    memset(&h, 0, sizeof h);
    for (uint64_t v = 0; v < 16; v++) bwi_hist_add(&h, v);
    for (int i = 1; i <= 16; i++) assert_int_equal(bwi_hist_quantile(&h, i / 16.0), i - 1);
    assert_int_equal(h.sum, 120);
}

static void an_empty_histogram_gives_zero(void **state) {
    (void)state;
    static struct bwi_hist h;
    memset(&h, 0, sizeof h);
    assert_int_equal(bwi_hist_quantile(&h, 0.5), 0);
    bwi_hist_merge(&h, &h);
    assert_int_equal(h.count, 0);
}

/* A bucket counts no further than its 32 bits; the values beyond are not lost to the count of all. */
static void behind_a_full_bucket_the_greatest_value_is_the_answer(void **state) {
    (void)state;
    static struct bwi_hist h;
    memset(&h, 0, sizeof h);
    bwi_hist_add(&h, 100);
    bwi_hist_add(&h, 7);
    const struct bwi_hist one = h;
    for (int i = 0; i < 33; i++) bwi_hist_merge(&h, &h);
    assert_true(h.count == UINT64_C(2) << 33);
    bwi_hist_merge(&h, &one);
    assert_int_equal(bwi_hist_quantile(&h, 0.1), 7);
    assert_int_equal(bwi_hist_quantile(&h, 0.9), 100);
}

static void the_greatest_value_has_a_bucket(void **state) {
    (void)state;
    static struct bwi_hist h;
    memset(&h, 0, sizeof h);
    bwi_hist_add(&h, UINT64_MAX);
    assert_int_equal(h.bucket[BWI_HIST_BUCKETS - 1], 1);
    assert_true(bwi_hist_quantile(&h, 0.5) == UINT64_MAX);
}

static void the_sum_stays_at_the_top(void **state) {
    (void)state;
    static struct bwi_hist h;
    memset(&h, 0, sizeof h);
    bwi_hist_add(&h, UINT64_MAX);
    bwi_hist_add(&h, 5);
    assert_true(h.sum == UINT64_MAX);
    assert_int_equal(h.count, 2);
    assert_int_equal(h.min, 5);
}

static void merging_is_like_adding_everything_to_one(void **state) {
    (void)state;
    static struct bwi_hist a, b, all;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    memset(&all, 0, sizeof all);
    uint64_t rng = test_seed(7);
    for (int i = 0; i < 5000; i++) {
        const uint64_t v = test_random(&rng) >> 20;
        bwi_hist_add(i % 3 == 0 ? &a : &b, v);
        bwi_hist_add(&all, v);
    }
    static struct bwi_hist sum;
    memset(&sum, 0, sizeof sum);
    bwi_hist_merge(&sum, &a);
    bwi_hist_merge(&sum, &b);
    assert_memory_equal(&sum, &all, sizeof all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_agree_with_a_sorted_array),
        cmocka_unit_test(few_values_are_exact),
        cmocka_unit_test(an_empty_histogram_gives_zero),
        cmocka_unit_test(the_greatest_value_has_a_bucket),
        cmocka_unit_test(behind_a_full_bucket_the_greatest_value_is_the_answer),
        cmocka_unit_test(the_sum_stays_at_the_top),
        cmocka_unit_test(merging_is_like_adding_everything_to_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
