/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation: growing, the failures that a test asks for, and the count of what lives. */
#include "base/vec.h"
#include "test.h"
#include <string.h>

static void a_vector_grows_zeroed_and_keeps_its_elements(void **state) {
    (void)state;
    void *ptr = NULL;
    size_t cap = 0;
    for (size_t want = 1; want <= 10000; want++) {
        assert_true(bwi_vec_reserve(&ptr, &cap, want, sizeof(uint64_t)));
        assert_true(cap >= want);
        uint64_t *v = ptr;
        assert_int_equal(v[want - 1], 0);
        v[want - 1] = want;
    }
    for (size_t i = 0; i < 10000; i++) assert_int_equal(((uint64_t *)ptr)[i], i + 1);
    assert_true(cap < 20001); /* doubling, not more */
    bwi_free(ptr);
}

static void room_that_is_there_already_allocates_nothing(void **state) {
    (void)state;
    void *ptr = NULL;
    size_t cap = 0;
    assert_true(bwi_vec_reserve(&ptr, &cap, 10, 4));
    (void)bwi_alloc_fail_at(0);
    assert_true(bwi_vec_reserve(&ptr, &cap, 10, 4));
    assert_true(bwi_vec_reserve(&ptr, &cap, 0, 4));
    assert_int_equal(bwi_alloc_fail_at(0), 0);
    bwi_free(ptr);
}

static void a_size_that_overflows_fails_and_changes_nothing(void **state) {
    (void)state;
    void *ptr = NULL;
    size_t cap = 0;
    assert_true(bwi_vec_reserve(&ptr, &cap, 4, 8));
    void *const before = ptr;
    const size_t cap_before = cap;
    assert_false(bwi_vec_reserve(&ptr, &cap, SIZE_MAX, 8));
    assert_false(bwi_vec_reserve(&ptr, &cap, SIZE_MAX / 8 + 1, 8));
    assert_ptr_equal(ptr, before);
    assert_int_equal(cap, cap_before);
    bwi_free(ptr);
    assert_null(bwi_calloc(SIZE_MAX / 2, 4));
}

static void the_nth_allocation_fails_and_only_that(void **state) {
    (void)state;
    (void)bwi_alloc_fail_at(3);
    void *a = bwi_malloc(1);
    void *b = bwi_calloc(1, 1);
    char *c = bwi_strdup("x");
    void *d = bwi_malloc(1);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(c);
    assert_non_null(d);
    assert_int_equal(bwi_alloc_fail_at(0), 4);
    bwi_free(a);
    bwi_free(b);
    bwi_free(d);
}

static void a_failed_growth_changes_nothing(void **state) {
    (void)state;
    void *ptr = NULL;
    size_t cap = 0;
    assert_true(bwi_vec_reserve(&ptr, &cap, 1, 1));
    void *const before = ptr;
    (void)bwi_alloc_fail_at(1);
    assert_false(bwi_vec_reserve(&ptr, &cap, 1000, 1));
    assert_ptr_equal(ptr, before);
    assert_true(bwi_vec_reserve(&ptr, &cap, 1000, 1));
    (void)bwi_alloc_fail_at(0);
    bwi_free(ptr);
}

static void what_lives_is_counted(void **state) {
    (void)state;
    const long before = bwi_alloc_live();
    void *ptr = NULL;
    size_t cap = 0;
    assert_true(bwi_vec_reserve(&ptr, &cap, 1, 1));
    assert_true(bwi_vec_reserve(&ptr, &cap, 1000, 1)); /* moved, not one more */
    char *s = bwi_strdup("abc");
    assert_string_equal(s, "abc");
    assert_int_equal(bwi_alloc_live(), before + 2);
    bwi_free(s);
    bwi_free(ptr);
    bwi_free(NULL);
    assert_int_equal(bwi_alloc_live(), before);
}

static void nothing_is_a_valid_size(void **state) {
    (void)state;
    void *a = bwi_malloc(0);
    void *b = bwi_calloc(0, 8);
    assert_non_null(a);
    assert_non_null(b);
    bwi_free(a);
    bwi_free(b);
    assert_null(bwi_strdup(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_vector_grows_zeroed_and_keeps_its_elements),
        cmocka_unit_test(room_that_is_there_already_allocates_nothing),
        cmocka_unit_test(a_size_that_overflows_fails_and_changes_nothing),
        cmocka_unit_test(the_nth_allocation_fails_and_only_that),
        cmocka_unit_test(a_failed_growth_changes_nothing),
        cmocka_unit_test(what_lives_is_counted),
        cmocka_unit_test(nothing_is_a_valid_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
