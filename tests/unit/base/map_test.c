/* SPDX-License-Identifier: Apache-2.0 */
/* The map from byte strings to numbers. */
#include "base/map.h"
#include "base/vec.h"
#include "test.h"
#include <stdio.h>
#include <string.h>

#define KEYS      100000
#define KEY_BYTES 24

static void a_hundred_thousand_keys_are_found_again(void **state) {
    (void)state;
    char(*keys)[KEY_BYTES] = bwi_calloc(KEYS, KEY_BYTES);
    assert_non_null(keys);
    struct bwi_map m = {0};
    for (uint64_t i = 0; i < KEYS; i++) {
        (void)snprintf(keys[i], KEY_BYTES, "layers.%llu.w", (unsigned long long)i);
        bool was = true;
        assert_true(bwi_map_put(&m, bwi_span_str(keys[i]), i, NULL, &was));
        assert_false(was);
    }
    assert_int_equal(m.len, KEYS);
    assert_true(m.cap < 4 * KEYS);
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t v = UINT64_MAX;
        assert_true(bwi_map_get(&m, bwi_span_str(keys[i]), &v));
        assert_int_equal(v, i);
    }
    assert_false(bwi_map_get(&m, bwi_span_str("layers.100000.w"), NULL));
    bwi_map_fini(&m);
    bwi_free(keys);
}

static void a_second_put_keeps_and_gives_the_old_value(void **state) {
    (void)state;
    struct bwi_map m = {0};
    uint64_t old = 7;
    bool was = true;
    assert_true(bwi_map_put(&m, bwi_span_str("k"), 1, &old, &was));
    assert_false(was);
    assert_int_equal(old, 7);
    const char other_place[] = "k";
    assert_true(bwi_map_put(&m, bwi_span_str(other_place), 2, &old, &was));
    assert_true(was);
    assert_int_equal(old, 1);
    uint64_t v = 0;
    assert_true(bwi_map_get(&m, bwi_span_str("k"), &v));
    assert_int_equal(v, 1);
    assert_int_equal(m.len, 1);
    bwi_map_fini(&m);
}

static void keys_are_bytes_and_may_be_empty_or_hold_nul(void **state) {
    (void)state;
    struct bwi_map m = {0};
    assert_true(bwi_map_put(&m, BWI_SPAN_NONE, 1, NULL, NULL));
    assert_true(bwi_map_put(&m, bwi_span("\0", 1), 2, NULL, NULL));
    assert_true(bwi_map_put(&m, bwi_span("\0\0", 2), 3, NULL, NULL));
    assert_true(bwi_map_put(&m, bwi_span("12345678", 8), 4, NULL, NULL));
    assert_true(bwi_map_put(&m, bwi_span("123456789", 9), 5, NULL, NULL));
    uint64_t v = 0;
    assert_true(bwi_map_get(&m, bwi_span_str(""), &v));
    assert_int_equal(v, 1);
    assert_true(bwi_map_get(&m, bwi_span("\0", 1), &v));
    assert_int_equal(v, 2);
    assert_true(bwi_map_get(&m, bwi_span("\0\0", 2), &v));
    assert_int_equal(v, 3);
    assert_true(bwi_map_get(&m, bwi_span("12345678", 8), &v));
    assert_int_equal(v, 4);
    assert_true(bwi_map_get(&m, bwi_span("123456789", 9), &v));
    assert_int_equal(v, 5);
    bwi_map_fini(&m);
}

static void an_empty_map_has_nothing_and_is_freed_twice(void **state) {
    (void)state;
    struct bwi_map m = {0};
    uint64_t v = 7;
    assert_false(bwi_map_get(&m, bwi_span_str("k"), &v));
    assert_int_equal(v, 7);
    bwi_map_fini(&m);
    bwi_map_fini(&m);
    bwi_map_fini(NULL);
}

/* Fills a map with 1,000 numbers; false when an allocation failed. */
static bool fill(struct bwi_map *m, const uint64_t *numbers) {
    for (size_t i = 0; i < 1000; i++) {
        if (!bwi_map_put(m, bwi_span(&numbers[i], sizeof numbers[i]), i, NULL, NULL)) return false;
    }
    return true;
}

static void out_of_memory_is_told_and_loses_nothing(void **state) {
    (void)state;
    uint64_t numbers[1000];
    for (uint64_t i = 0; i < 1000; i++) numbers[i] = i * i;
    const long before = bwi_alloc_live();
    unsigned long n = 1;
    for (;; n++) {
        struct bwi_map m = {0};
        (void)bwi_alloc_fail_at(n);
        const bool done = fill(&m, numbers);
        (void)bwi_alloc_fail_at(0);
        for (size_t i = 0; i < m.len; i++) {
            uint64_t v = UINT64_MAX;
            assert_true(bwi_map_get(&m, bwi_span(&numbers[i], sizeof numbers[i]), &v));
            assert_int_equal(v, i);
        }
        assert_true(done || fill(&m, numbers)); /* and goes on once there is memory */
        assert_int_equal(m.len, 1000);
        bwi_map_fini(&m);
        if (done) break;
    }
    assert_in_range(n, 5, 20);
    assert_int_equal(bwi_alloc_live(), before);
}

static void maps_hash_under_different_seeds(void **state) {
    (void)state;
    struct bwi_map a = {0};
    struct bwi_map b = {0};
    assert_true(bwi_map_put(&a, bwi_span_str("k"), 1, NULL, NULL));
    assert_true(bwi_map_put(&b, bwi_span_str("k"), 1, NULL, NULL));
    assert_true(a.seed != b.seed);
    bwi_map_fini(&a);
    bwi_map_fini(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_thousand_keys_are_found_again),
        cmocka_unit_test(a_second_put_keeps_and_gives_the_old_value),
        cmocka_unit_test(keys_are_bytes_and_may_be_empty_or_hold_nul),
        cmocka_unit_test(an_empty_map_has_nothing_and_is_freed_twice),
        cmocka_unit_test(out_of_memory_is_told_and_loses_nothing),
        cmocka_unit_test(maps_hash_under_different_seeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
