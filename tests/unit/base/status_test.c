/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes, element types and levels: the look-ups of the public headers. */
#include "test.h"
#include <breakwater/tensor.h>
#include <limits.h>
#include <string.h>

static void a_code_has_name_text_and_exit_code(void **state) {
    (void)state;
    assert_string_equal(bw_status_name(BW_OK), "BW_OK");
    assert_string_equal(bw_status_text(BW_OK), "success");
    assert_int_equal(bw_status_exit_code(BW_OK), 0);
    assert_string_equal(bw_status_name(BW_E_NOSPACE), "BW_E_NOSPACE");
    assert_string_equal(bw_status_text(BW_E_NOSPACE), "no space left");
    assert_string_equal(bw_status_retry_text(BW_E_NOSPACE), "yes, once room is made");
}

static void exit_codes_are_those_of_the_command_line(void **state) {
    (void)state;
    assert_int_equal(bw_status_exit_code(BW_E_IO), 1);
    assert_int_equal(bw_status_exit_code(BW_E_INVALID), 2);
    assert_int_equal(bw_status_exit_code(BW_E_CORRUPT), 3);
    assert_int_equal(bw_status_exit_code(BW_E_NOTFOUND), 4);
    assert_int_equal(bw_status_exit_code(BW_E_SUPERSEDED), 5);
}

static void the_numbers_are_stable(void **state) {
    (void)state;
    assert_int_equal(BW_E_INVALID, -1);
    assert_int_equal(BW_E_CORRUPT, -9);
    assert_int_equal(BW_E_UNKNOWN, -13);
    assert_int_equal(BW_E_INTERNAL, -27);
}

static void every_code_is_complete_and_unlike_the_others(void **state) {
    (void)state;
    for (int a = BW_OK; a >= BW_E_INTERNAL; a--) {
        assert_true(strlen(bw_status_text(a)) > 0);
        assert_true(strlen(bw_status_retry_text(a)) > 0);
        assert_in_range(bw_status_exit_code(a), 0, 5);
        assert_int_equal(strncmp(bw_status_name(a), a == 0 ? "BW_OK" : "BW_E_", 5), 0);
        for (int b = a - 1; b >= BW_E_INTERNAL; b--) {
            assert_string_not_equal(bw_status_name(a), bw_status_name(b));
            assert_string_not_equal(bw_status_text(a), bw_status_text(b));
        }
    }
}

static void a_number_that_is_no_code_is_told_as_such(void **state) {
    (void)state;
    const int none[] = {1, 1000, BW_E_INTERNAL - 1, INT_MIN, INT_MAX};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_string_equal(bw_status_name(none[i]), "?");
        assert_string_equal(bw_status_text(none[i]), "unknown status");
        assert_string_equal(bw_status_retry_text(none[i]), "no");
        assert_int_equal(bw_status_exit_code(none[i]), 1);
    }
}

static void every_dtype_is_found_by_its_name(void **state) {
    (void)state;
    for (int t = BW_BOOL; t <= BW_F8_E8M0; t++) {
        assert_int_equal(bw_dtype_parse(bw_dtype_name(t)), t);
        assert_true(bw_dtype_bytes(t) >= 1 && bw_dtype_bytes(t) <= 16);
    }
}

static void dtypes_are_named_as_safetensors_names_them(void **state) {
    (void)state;
    const struct {
        int dtype;
        const char *name;
        size_t bytes;
    } known[] = {{BW_BOOL, "BOOL", 1}, {BW_F8_E5M2, "F8_E5M2", 1}, {BW_F16, "F16", 2}, {BW_BF16, "BF16", 2},
                 {BW_F32, "F32", 4},   {BW_I64, "I64", 8},         {BW_C64, "C64", 8}, {BW_C128, "C128", 16},
                 {BW_U8, "U8", 1},     {BW_F8_E4M3, "F8_E4M3", 1}, {BW_U32, "U32", 4}, {BW_F8_E8M0, "F8_E8M0", 1}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        assert_string_equal(bw_dtype_name(known[i].dtype), known[i].name);
        assert_int_equal(bw_dtype_bytes(known[i].dtype), known[i].bytes);
    }
}

static void what_is_no_dtype_is_told_as_such(void **state) {
    (void)state;
    const int none[] = {0, -1, BW_F8_E8M0 + 1, INT_MIN, INT_MAX};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_string_equal(bw_dtype_name(none[i]), "?");
        assert_int_equal(bw_dtype_bytes(none[i]), 0);
    }
    assert_int_equal(bw_dtype_parse("f32"), 0);
    assert_int_equal(bw_dtype_parse("F3"), 0);
    assert_int_equal(bw_dtype_parse("F322"), 0);
    assert_int_equal(bw_dtype_parse("?"), 0);
    assert_int_equal(bw_dtype_parse(""), 0);
    assert_int_equal(bw_dtype_parse(NULL), 0);
}

static void levels_have_names(void **state) {
    (void)state;
    assert_string_equal(bw_level_name(BW_LEVEL_NONE), "none");
    assert_string_equal(bw_level_name(BW_CAPTURED), "captured");
    assert_string_equal(bw_level_name(BW_LOCAL), "local");
    assert_string_equal(bw_level_name(BW_REMOTE), "remote");
    assert_string_equal(bw_level_name(BW_COMMITTED), "committed");
    assert_string_equal(bw_level_name(-1), "?");
    assert_string_equal(bw_level_name(5), "?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_code_has_name_text_and_exit_code),
        cmocka_unit_test(exit_codes_are_those_of_the_command_line),
        cmocka_unit_test(the_numbers_are_stable),
        cmocka_unit_test(every_code_is_complete_and_unlike_the_others),
        cmocka_unit_test(a_number_that_is_no_code_is_told_as_such),
        cmocka_unit_test(every_dtype_is_found_by_its_name),
        cmocka_unit_test(dtypes_are_named_as_safetensors_names_them),
        cmocka_unit_test(what_is_no_dtype_is_told_as_such),
        cmocka_unit_test(levels_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
