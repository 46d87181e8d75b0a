/* SPDX-License-Identifier: Apache-2.0 */
/* Checked arithmetic at its edges. */
#include "base/checked.h"
#include "test.h"

static void a_sum_that_fits_is_given(void **state) {
    (void)state;
    uint64_t r = 7;
    assert_true(bwi_add_u64(UINT64_MAX - 1, 1, &r));
    assert_int_equal(r, UINT64_MAX);
    assert_true(bwi_add_u64(0, 0, &r));
    assert_int_equal(r, 0);
}

static void a_sum_that_overflows_is_refused_and_writes_nothing(void **state) {
    (void)state;
    uint64_t r = 7;
    assert_false(bwi_add_u64(UINT64_MAX, 1, &r));
    assert_false(bwi_add_u64(UINT64_MAX, UINT64_MAX, &r));
    assert_int_equal(r, 7);
}

static void a_product_that_fits_is_given(void **state) {
    (void)state;
    uint64_t r = 7;
    assert_true(bwi_mul_u64(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &r));
    assert_int_equal(r, UINT64_MAX - UINT32_MAX);
    assert_true(bwi_mul_u64(UINT64_MAX, 0, &r));
    assert_int_equal(r, 0);
}

static void a_product_that_overflows_is_refused_and_writes_nothing(void **state) {
    (void)state;
    uint64_t r = 7;
    assert_false(bwi_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &r));
    assert_int_equal(r, 7);
}

static void a_size_is_converted(void **state) {
    (void)state;
    size_t r = 7;
    assert_true(bwi_u64_to_size(12345, &r));
    assert_int_equal(r, 12345);
}

static void rounding_up_keeps_multiples(void **state) {
    (void)state;
    assert_int_equal(bwi_round_up(0, 4096), 0);
    assert_int_equal(bwi_round_up(1, 4096), 4096);
    assert_int_equal(bwi_round_up(4096, 4096), 4096);
    assert_int_equal(bwi_round_up(4097, 4096), 8192);
}

static void division_rounds_up_without_overflow(void **state) {
    (void)state;
    assert_int_equal(bwi_div_ceil(0, 3), 0);
    assert_int_equal(bwi_div_ceil(9, 3), 3);
    assert_int_equal(bwi_div_ceil(10, 3), 4);
    assert_int_equal(bwi_div_ceil(UINT64_MAX, 2), UINT64_C(1) << 63);
    assert_int_equal(bwi_min_u64(3, 4), 3);
    assert_int_equal(bwi_max_u64(3, 4), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_that_fits_is_given),
        cmocka_unit_test(a_sum_that_overflows_is_refused_and_writes_nothing),
        cmocka_unit_test(a_product_that_fits_is_given),
        cmocka_unit_test(a_product_that_overflows_is_refused_and_writes_nothing),
        cmocka_unit_test(a_size_is_converted),
        cmocka_unit_test(rounding_up_keeps_multiples),
        cmocka_unit_test(division_rounds_up_without_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
