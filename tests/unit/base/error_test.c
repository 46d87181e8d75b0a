/* SPDX-License-Identifier: Apache-2.0 */
/* The error object: the first error wins, and no message can be forged. */
#include "base/error.h"
#include "base/text.h"
#include "test.h"
#include <errno.h>
#include <string.h>

static void setting_fills_status_and_message(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    assert_int_equal(bwi_error_set(&err, BW_E_INVALID, "rank: expected below %d, found %d", 4, 7), BW_E_INVALID);
    assert_int_equal(err.status, BW_E_INVALID);
    assert_int_equal(err.os_errno, 0);
    assert_string_equal(err.message, "rank: expected below 4, found 7");
}

static void the_first_error_wins(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    bwi_error_errno(&err, ENOSPC, "write pack");
    const struct bw_error first = err;
    assert_int_equal(bwi_error_set(&err, BW_E_CORRUPT, "later"), BW_E_CORRUPT);
    assert_int_equal(bwi_error_errno(&err, EIO, "close"), BW_E_IO);
    assert_int_equal(bwi_error_nomem(&err, 10, "text"), BW_E_NOMEM);
    assert_memory_equal(&err, &first, sizeof err);
}

static void every_function_accepts_null(void **state) {
    (void)state;
    assert_int_equal(bwi_error_set(NULL, BW_E_IO, "x"), BW_E_IO);
    assert_int_equal(bwi_error_errno(NULL, ENOENT, "x"), BW_E_NOTFOUND);
    assert_int_equal(bwi_error_wrap(NULL, "x"), 0);
    assert_int_equal(bwi_error_nomem(NULL, 1, "x"), BW_E_NOMEM);
    assert_int_equal(bwi_error_copy(NULL, NULL), 0);
    bwi_error_stage(NULL, BW_STAGE_OPEN);
    bw_error_clear(NULL);
    struct bw_error from = BW_ERROR_INIT;
    bwi_error_set(&from, BW_E_IO, "x");
    assert_int_equal(bwi_error_copy(NULL, &from), BW_E_IO);
}

static void a_failure_never_becomes_a_success(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    assert_int_equal(bwi_error_set(&err, 0, "wrong"), BW_E_INTERNAL);
    assert_int_equal(err.status, BW_E_INTERNAL);
    assert_int_equal(bwi_error_set(NULL, 5, "wrong"), BW_E_INTERNAL);
}

static void an_errno_value_gives_status_and_lower_case_text(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    assert_int_equal(bwi_error_errno(&err, ENOSPC, "write pack \"%s\"", "a/b"), BW_E_NOSPACE);
    assert_string_equal(err.message, "write pack \"a/b\": no space left on device");
    assert_int_equal(err.os_errno, ENOSPC);
}

static void an_errno_value_may_be_negative(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    assert_int_equal(bwi_error_errno(&err, -EACCES, "open"), BW_E_ACCESS);
    assert_string_equal(err.message, "open: permission denied");
    assert_int_equal(err.os_errno, EACCES);
}

static void acronyms_and_unknown_numbers_are_described_too(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    bwi_error_errno(&err, EADV, "x"); /* "Advertise error" */
    assert_string_equal(err.message, "x: advertise error");
    bw_error_clear(&err);
    bwi_error_errno(&err, ESRMNT, "x"); /* "Srmount error" */
    assert_string_equal(err.message, "x: srmount error");
    bw_error_clear(&err);
    bwi_error_errno(&err, EDOTDOT, "x"); /* "RFS specific error" */
    assert_string_equal(err.message, "x: RFS specific error");
    bw_error_clear(&err);
    bwi_error_errno(&err, 9999, "x");
    assert_string_equal(err.message, "x: error number 9999");
    assert_int_equal(err.status, BW_E_IO);
}

static void errno_values_map_to_codes(void **state) {
    (void)state;
    const struct {
        int os_errno, status;
    } map[] = {{ENOSPC, BW_E_NOSPACE}, {EDQUOT, BW_E_NOSPACE},  {EACCES, BW_E_ACCESS},     {EPERM, BW_E_ACCESS},
               {EROFS, BW_E_ACCESS},   {ENOENT, BW_E_NOTFOUND}, {ENOMEM, BW_E_NOMEM},      {EFBIG, BW_E_LIMIT},
               {EIO, BW_E_IO},         {EEXIST, BW_E_IO},       {ETIMEDOUT, BW_E_TIMEOUT}, {0, BW_E_IO}};
    for (size_t i = 0; i < sizeof map / sizeof map[0]; i++) {
        assert_int_equal(bwi_status_of_errno(map[i].os_errno), map[i].status);
        assert_int_equal(bwi_status_of_errno(-map[i].os_errno), map[i].status);
    }
}

static void wrapping_puts_context_outermost_first(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    bwi_error_set(&err, BW_E_IO, "inner");
    assert_int_equal(bwi_error_wrap(&err, "write pack \"%s\"", "p"), BW_E_IO);
    assert_int_equal(bwi_error_wrap(&err, "save step %d", 1200), BW_E_IO);
    assert_string_equal(err.message, "save step 1200: write pack \"p\": inner");
}

static void wrapping_nothing_does_nothing(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    assert_int_equal(bwi_error_wrap(&err, "context"), 0);
    assert_string_equal(err.message, "");
}

static void a_long_message_is_cut_and_says_so(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    char text[2000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    bwi_error_set(&err, BW_E_IO, "%s", text);
    assert_int_equal(strlen(err.message), BW_ERROR_MESSAGE_BYTES - 1);
    assert_string_equal(err.message + BW_ERROR_MESSAGE_BYTES - 5, "a...");
}

static void a_message_of_the_greatest_length_is_not_cut(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    bwi_error_set(&err, BW_E_IO, "%*s", BW_ERROR_MESSAGE_BYTES - 1, "x");
    assert_int_equal(strlen(err.message), BW_ERROR_MESSAGE_BYTES - 1);
    assert_int_equal(err.message[BW_ERROR_MESSAGE_BYTES - 2], 'x');
    /* Nothing of the description fits any more: the reader must see that something is missing. */
    bw_error_clear(&err);
    bwi_error_errno(&err, EIO, "%*s", BW_ERROR_MESSAGE_BYTES - 1, "x");
    assert_string_equal(err.message + BW_ERROR_MESSAGE_BYTES - 5, " ...");
}

static void wrapping_a_full_message_keeps_the_context_and_cuts_the_end(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    bwi_error_set(&err, BW_E_IO, "%*s", BW_ERROR_MESSAGE_BYTES - 1, "x");
    bwi_error_wrap(&err, "outer");
    assert_int_equal(strncmp(err.message, "outer:  ", 8), 0);
    assert_string_equal(err.message + BW_ERROR_MESSAGE_BYTES - 4, "...");
}

static void a_cut_never_leaves_half_a_character(void **state) {
    (void)state;
    for (int pad = 0; pad < 4; pad++) {
        struct bw_error err = BW_ERROR_INIT;
        char text[1000];
        memset(text, 'a', (size_t)pad);
        size_t at = (size_t)pad;
        for (; at + 5 < sizeof text; at += 4) memcpy(text + at, "\xf0\x9f\x98\x80", 4);
        text[at] = '\0';
        bwi_error_set(&err, BW_E_IO, "%s", text);
        const size_t len = strlen(err.message);
        assert_true(len >= BW_ERROR_MESSAGE_BYTES - 4);
        assert_true(bwi_utf8_valid(bwi_span_str(err.message)));
        assert_null(strchr(err.message, '?'));
        assert_string_equal(err.message + len - 3, "...");
    }
}

static void a_hostile_name_cannot_forge_a_second_line(void **state) {
    (void)state;
    const struct {
        const char *in, *out;
    } names[] = {
        {"a\nb", "a?b"},
        {"a\r\tb\x1b[2J", "a??b?[2J"},
        {"a\x7f", "a?"},
        {"a\xc2\x85z", "a??z"},      /* U+0085, next line */
        {"a\xe2\x80\xa8z", "a???z"}, /* U+2028, line separator */
        {"a\xe2\x80\xaez", "a???z"}, /* U+202E, right-to-left override */
        {"a\xe2\x81\xa6z", "a???z"}, /* U+2066, an isolate */
        {"a\xff\xfez", "a??z"},      /* no UTF-8 */
        {"a\xc0\xafz", "a??z"},      /* an overlong slash */
        {"a\xed\xa0\x80z", "a???z"}, /* a surrogate */
        {"caf\xc3\xa9 \xf0\x9f\x98\x80", "caf\xc3\xa9 \xf0\x9f\x98\x80"},
        {"a\xe2\x82", "a??"}, /* an unfinished character */
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct bw_error err = BW_ERROR_INIT;
        bwi_error_set(&err, BW_E_IO, "%s", names[i].in);
        assert_string_equal(err.message, names[i].out);
    }
}

static void a_context_is_sanitised_too(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    bwi_error_errno(&err, EIO, "a\nb");
    bwi_error_wrap(&err, "run \"%s\"", "c\rd");
    assert_string_equal(err.message, "run \"c?d\": a?b: input/output error");
}

static void the_stage_is_set_once_and_only_on_a_failure(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    bwi_error_stage(&err, BW_STAGE_DRAIN);
    assert_int_equal(err.stage, BW_STAGE_NONE);
    bwi_error_set(&err, BW_E_IO, "x");
    bwi_error_stage(&err, BW_STAGE_WRITE);
    bwi_error_stage(&err, BW_STAGE_COMMIT);
    assert_int_equal(err.stage, BW_STAGE_WRITE);
}

static void copying_takes_everything_unless_there_is_an_error_already(void **state) {
    (void)state;
    struct bw_error from = BW_ERROR_INIT;
    struct bw_error to = BW_ERROR_INIT;
    assert_int_equal(bwi_error_copy(&to, &from), 0);
    assert_int_equal(to.status, 0);
    bwi_error_errno(&from, ENOENT, "x");
    bwi_error_stage(&from, BW_STAGE_OPEN);
    assert_int_equal(bwi_error_copy(&to, &from), BW_E_NOTFOUND);
    assert_memory_equal(&to, &from, sizeof to);
    bw_error_clear(&from);
    bwi_error_set(&from, BW_E_CORRUPT, "y");
    assert_int_equal(bwi_error_copy(&to, &from), BW_E_CORRUPT);
    assert_int_equal(to.status, BW_E_NOTFOUND);
}

static void out_of_memory_tells_how_much_for_what(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    assert_int_equal(bwi_error_nomem(&err, 4096, "the index"), BW_E_NOMEM);
    assert_string_equal(err.message, "out of memory: 4096 bytes for the index");
}

static void clearing_leaves_nothing(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    const struct bw_error none = BW_ERROR_INIT;
    bwi_error_errno(&err, EIO, "x");
    bwi_error_stage(&err, BW_STAGE_OPEN);
    bw_error_clear(&err);
    assert_memory_equal(&err, &none, sizeof err);
}

static void formatting_names_code_errno_stage_and_what_to_do(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    bwi_error_errno(&err, ENOSPC, "write pack");
    bwi_error_stage(&err, BW_STAGE_WRITE);
    err.http_status = 507;
    char text[512];
    const char *want = "write pack: no space left on device\n"
                       "status BW_E_NOSPACE (-5: no space left), errno 28 (ENOSPC), HTTP status 507, stage write\n"
                       "try again: yes, once room is made";
    assert_int_equal(bw_error_format(&err, text, sizeof text), strlen(want));
    assert_string_equal(text, want);
}

static void formatting_leaves_out_what_is_not_known(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    char text[512];
    assert_int_equal(bw_error_format(NULL, text, sizeof text), 7);
    assert_string_equal(text, "success");
    assert_int_equal(bw_error_format(&err, text, sizeof text), 7);
    err.status = -1000;
    (void)bw_error_format(&err, text, sizeof text);
    assert_string_equal(text, "unknown status\nstatus ? (-1000: unknown status)\ntry again: no");
}

static void formatting_cuts_like_snprintf(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    bwi_error_set(&err, BW_E_IO, "abcdef");
    char text[4] = "zzz";
    const size_t full = bw_error_format(&err, NULL, 0);
    assert_true(full > 6);
    assert_int_equal(bw_error_format(&err, text, sizeof text), full);
    assert_string_equal(text, "abc");
    /* A message without its NUL, as a broken caller could leave it, is not read beyond its end. */
    memset(err.message, 'm', sizeof err.message);
    assert_true(bw_error_format(&err, text, sizeof text) > BW_ERROR_MESSAGE_BYTES);
    assert_string_equal(text, "mmm");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_fills_status_and_message),
        cmocka_unit_test(the_first_error_wins),
        cmocka_unit_test(every_function_accepts_null),
        cmocka_unit_test(a_failure_never_becomes_a_success),
        cmocka_unit_test(an_errno_value_gives_status_and_lower_case_text),
        cmocka_unit_test(an_errno_value_may_be_negative),
        cmocka_unit_test(acronyms_and_unknown_numbers_are_described_too),
        cmocka_unit_test(errno_values_map_to_codes),
        cmocka_unit_test(wrapping_puts_context_outermost_first),
        cmocka_unit_test(wrapping_nothing_does_nothing),
        cmocka_unit_test(a_long_message_is_cut_and_says_so),
        cmocka_unit_test(a_message_of_the_greatest_length_is_not_cut),
        cmocka_unit_test(wrapping_a_full_message_keeps_the_context_and_cuts_the_end),
        cmocka_unit_test(a_cut_never_leaves_half_a_character),
        cmocka_unit_test(a_hostile_name_cannot_forge_a_second_line),
        cmocka_unit_test(a_context_is_sanitised_too),
        cmocka_unit_test(the_stage_is_set_once_and_only_on_a_failure),
        cmocka_unit_test(copying_takes_everything_unless_there_is_an_error_already),
        cmocka_unit_test(out_of_memory_tells_how_much_for_what),
        cmocka_unit_test(clearing_leaves_nothing),
        cmocka_unit_test(formatting_names_code_errno_stage_and_what_to_do),
        cmocka_unit_test(formatting_leaves_out_what_is_not_known),
        cmocka_unit_test(formatting_cuts_like_snprintf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
