/* SPDX-License-Identifier: Apache-2.0 */
/* Canonical text: one spelling is accepted, every other one is refused. */
#include "base/text.h"
#include "test.h"
#include <stdio.h>
#include <string.h>

static void hex_is_written_in_lower_case_and_read_back(void **state) {
    (void)state;
    const uint8_t in[] = {0x00, 0x1f, 0xa0, 0xff};
    char text[9];
    bwi_hex_encode(in, sizeof in, text);
    assert_string_equal(text, "001fa0ff");
    uint8_t out[4] = {0};
    assert_true(bwi_hex_decode(text, 8, out, sizeof out));
    assert_memory_equal(in, out, sizeof in);
    bwi_hex_encode(in, 0, text);
    assert_string_equal(text, "");
}

static void hex_of_another_length_or_spelling_is_refused_and_writes_nothing(void **state) {
    (void)state;
    uint8_t out[2] = {7, 7};
    assert_false(bwi_hex_decode("abc", 3, out, 2));
    assert_false(bwi_hex_decode("abcde", 5, out, 2));
    assert_false(bwi_hex_decode("abcD", 4, out, 2));
    assert_false(bwi_hex_decode("abcg", 4, out, 2));
    assert_false(bwi_hex_decode("ab d", 4, out, 2));
    assert_false(bwi_hex_decode("0x12", 4, out, 2));
    assert_false(bwi_hex_decode("ab`/", 4, out, 2));
    assert_false(bwi_hex_decode("", 0, out, SIZE_MAX / 2 + 1));
    assert_int_equal(out[0], 7);
    assert_int_equal(out[1], 7);
}

static void hex_numbers_have_a_given_number_of_digits(void **state) {
    (void)state;
    uint64_t v = 7;
    assert_true(bwi_hex_u64("ffffffffffffffff", 16, &v));
    assert_true(v == UINT64_MAX);
    assert_true(bwi_hex_u64("00ab", 4, &v));
    assert_int_equal(v, 0xab);
    assert_false(bwi_hex_u64("", 0, &v));
    assert_false(bwi_hex_u64("00000000000000000", 17, &v));
    assert_false(bwi_hex_u64("0A", 2, &v));
    assert_int_equal(v, 0xab);
}

static void canonical_decimals_are_read(void **state) {
    (void)state;
    uint64_t v = 7;
    assert_true(bwi_dec_u64(bwi_span_str("0"), &v));
    assert_int_equal(v, 0);
    assert_true(bwi_dec_u64(bwi_span_str("18446744073709551615"), &v));
    assert_true(v == UINT64_MAX);
    assert_true(bwi_dec_u64(bwi_span("123456", 3), &v));
    assert_int_equal(v, 123);
}

static void other_decimals_are_refused_and_write_nothing(void **state) {
    (void)state;
    const char *bad[] = {"",
                         "00",
                         "01",
                         "-1",
                         "+1",
                         " 1",
                         "1 ",
                         "1.0",
                         "1e3",
                         "0x1",
                         "18446744073709551616",
                         "99999999999999999999",
                         "184467440737095516150",
                         "\xd9\xa1"};
    uint64_t v = 7;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(bwi_dec_u64(bwi_span_str(bad[i]), &v));
    assert_false(bwi_dec_u64(BWI_SPAN_NONE, &v));
    assert_false(bwi_dec_u64(bwi_span("1\0", 2), &v));
    assert_int_equal(v, 7);
}

static void padded_decimals_have_a_given_number_of_digits(void **state) {
    (void)state;
    uint64_t v = 7;
    assert_true(bwi_dec_padded_u64("00000000000000000042", 20, &v));
    assert_int_equal(v, 42);
    assert_true(bwi_dec_padded_u64("18446744073709551615", 20, &v));
    assert_true(v == UINT64_MAX);
    assert_false(bwi_dec_padded_u64("18446744073709551616", 20, &v));
    assert_false(bwi_dec_padded_u64("0000000000000000004x", 20, &v));
    assert_false(bwi_dec_padded_u64("", 0, &v));
    assert_true(v == UINT64_MAX);
}

static void utf8_that_follows_the_standard_is_valid(void **state) {
    (void)state;
    const char *good[] = {"",
                          "a\x7f",
                          "\xc2\x80",         /* U+0080, least of two bytes */
                          "\xdf\xbf",         /* U+07FF */
                          "\xe0\xa0\x80",     /* U+0800 */
                          "\xed\x9f\xbf",     /* U+D7FF, last before the surrogates */
                          "\xee\x80\x80",     /* U+E000, first after them */
                          "\xef\xbf\xbf",     /* U+FFFF */
                          "\xf0\x90\x80\x80", /* U+10000 */
                          "\xf4\x8f\xbf\xbf", /* U+10FFFF, the last one */
                          "caf\xc3\xa9 \xf0\x9f\x98\x80 | .."};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) assert_true(bwi_utf8_valid(bwi_span_str(good[i])));
}

static void utf8_that_breaks_the_standard_is_refused(void **state) {
    (void)state;
    const char *bad[] = {"\x80", /* a continuation alone */
                         "\xbf",
                         "\xc0\x80",         /* U+0000 in two bytes */
                         "\xc1\xbf",         /* U+007F in two bytes */
                         "\xe0\x9f\xbf",     /* U+07FF in three */
                         "\xf0\x8f\xbf\xbf", /* U+FFFF in four */
                         "\xed\xa0\x80",     /* U+D800 */
                         "\xed\xbf\xbf",     /* U+DFFF */
                         "\xf4\x90\x80\x80", /* U+110000 */
                         "\xf5\x80\x80\x80",
                         "\xf8\x88\x80\x80\x80",
                         "\xfe",
                         "\xff",
                         "\xc3", /* cut */
                         "\xe2\x82",
                         "\xf0\x9f\x98",
                         "\xc3z", /* interrupted */
                         "\xe2\x82z",
                         "ok\xf0\x9f\x98z"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(bwi_utf8_valid(bwi_span_str(bad[i])));
    assert_false(bwi_utf8_valid(bwi_span("a\0b", 3)));
}

static void a_code_point_is_given_with_its_length(void **state) {
    (void)state;
    uint32_t code = 7;
    assert_int_equal(bwi_utf8_next(bwi_span_str("\xf0\x9f\x98\x80z"), &code), 4);
    assert_int_equal(code, 0x1f600);
    assert_int_equal(bwi_utf8_next(bwi_span("\0", 1), &code), 1);
    assert_int_equal(code, 0);
    code = 7;
    assert_int_equal(bwi_utf8_next(BWI_SPAN_NONE, &code), 0);
    assert_int_equal(bwi_utf8_next(bwi_span_str("\xff"), &code), 0);
    assert_int_equal(code, 7);
}

static void names_follow_their_rule(void **state) {
    (void)state;
    char name[BWI_NAME_MAX + 2];
    memset(name, 'n', sizeof name);
    name[BWI_NAME_MAX] = '\0';
    assert_int_equal(strlen(name), 128);
    assert_true(bwi_name_valid(name));
    name[BWI_NAME_MAX] = 'n';
    name[BWI_NAME_MAX + 1] = '\0';
    assert_false(bwi_name_valid(name));
    const char *good[] = {"a", "Z", "0", "a.b_c-D", "9..", "a-", "gpt-7b.v2"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) assert_true(bwi_name_valid(good[i]));
    const char *bad[] = {"",    ".",   "..",  ".a",          "-a",    "_a",  "a/b",
                         "a b", "a\n", "a:b", "caf\xc3\xa9", "a\x7f", "a\\", "/"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_false(bwi_name_valid(bad[i]));
    assert_false(bwi_name_valid(NULL));
}

static void formatting_tells_whether_all_fitted(void **state) {
    (void)state;
    char buf[4];
    assert_true(bwi_format(buf, sizeof buf, "%d", 123));
    assert_string_equal(buf, "123");
    assert_false(bwi_format(buf, sizeof buf, "%d", 1234));
    assert_string_equal(buf, "123");
    assert_false(bwi_format(NULL, 0, "%d", 1));
}

static void sizes_are_written_for_people(void **state) {
    (void)state;
    const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.0 KiB"},
                 {1536, "1.5 KiB"},
                 {(UINT64_C(1) << 20) - 1, "1.0 MiB"},
                 {UINT64_C(3) << 29, "1.5 GiB"},
                 {UINT64_C(1) << 40, "1.0 TiB"},
                 {UINT64_C(1) << 50, "1.0 PiB"},
                 {UINT64_MAX, "16.0 EiB"}};
    char text[16];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        bwi_text_bytes(sizes[i].bytes, text, sizeof text);
        assert_string_equal(text, sizes[i].text);
    }
}

typedef void cut_fn(char *buf, size_t buf_bytes, const char *text);

/* And nothing behind the buffer is touched. */
static void assert_cut(cut_fn *cut, const char *text, size_t buf_bytes, const char *expected) {
    char buf[64];
    memset(buf, 'x', sizeof buf);
    cut(buf, buf_bytes, text);
    assert_string_equal(buf, expected);
    assert_int_equal(buf[buf_bytes], 'x');
}

static void assert_line(const char *text, size_t buf_bytes, const char *line) {
    assert_cut(bwi_text_line, text, buf_bytes, line);
}

static void a_line_has_nothing_in_it_that_starts_or_reorders_one(void **state) {
    (void)state;
    assert_line("Gr\xc3\xb6\xc3\x9f"
                "e 4",
                32,
                "Gr\xc3\xb6\xc3\x9f"
                "e 4");
    assert_line("a\nb\tc\x7f", 32, "a?b?c?");
    assert_line("a\xc2\x85z", 32, "a?z");                  /* C1 */
    assert_line("a\xe2\x80\xa8z\xe2\x80\xa9", 32, "a?z?"); /* separators of lines and paragraphs */
    assert_line("a\xe2\x80\xaez\xe2\x81\xa7", 32, "a?z?"); /* an override, an isolate */
    assert_line("a\xe2\x80\xafz\xe2\x81\xaa", 32, "a\xe2\x80\xafz\xe2\x81\xaa"); /* their neighbours */
    assert_line("\xff\xc3", 32, "??");                                           /* no UTF-8 */
    assert_line(NULL, 32, "");
}

static void a_line_that_is_too_long_is_cut_between_characters(void **state) {
    (void)state;
    char untouched = 'x';
    assert_line("abcd", 5, "abcd");
    assert_line("abcde", 5, "abcd");
    assert_line("abc\xc3\xb6", 5, "abc");
    assert_line("abc", 1, "");
    bwi_text_line(&untouched, 0, "abc");
    assert_int_equal(untouched, 'x');
}

static void assert_words(const char *text, size_t buf_bytes, const char *words) {
    assert_cut(bwi_text_words, text, buf_bytes, words);
}

static void a_sentence_that_is_too_long_ends_with_a_whole_word_and_says_so(void **state) {
    (void)state;
    assert_words("", 5, "");
    assert_words("no room", 8, "no room");
    assert_words("there is no room left", 22, "there is no room left");
    assert_words("there is no room left", 21, "there is no room ...");
    assert_words("there is no room left", 20, "there is no ...");
    assert_words("there is no room left", 16, "there is no ...");
    assert_words("a wordwithoutanend", 14, "a wordwit ..."); /* not all but the first letter is given up for it */
    assert_words("abcdefgh", 5, " ...");
    assert_words("abcd\xc3\xa4\xc3\xa4\xc3\xa4", 10, "abcd ..."); /* not half a character */
    assert_int_equal(bwi_text_fit("ab\xc3\xa4", 3), 2);
    assert_int_equal(bwi_text_fit("ab\xc3\xa4", 4), 4);
    assert_int_equal(bwi_text_fit("ab", 9), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hex_is_written_in_lower_case_and_read_back),
        cmocka_unit_test(hex_of_another_length_or_spelling_is_refused_and_writes_nothing),
        cmocka_unit_test(hex_numbers_have_a_given_number_of_digits),
        cmocka_unit_test(canonical_decimals_are_read),
        cmocka_unit_test(other_decimals_are_refused_and_write_nothing),
        cmocka_unit_test(padded_decimals_have_a_given_number_of_digits),
        cmocka_unit_test(utf8_that_follows_the_standard_is_valid),
        cmocka_unit_test(utf8_that_breaks_the_standard_is_refused),
        cmocka_unit_test(a_code_point_is_given_with_its_length),
        cmocka_unit_test(names_follow_their_rule),
        cmocka_unit_test(formatting_tells_whether_all_fitted),
        cmocka_unit_test(sizes_are_written_for_people),
        cmocka_unit_test(a_line_has_nothing_in_it_that_starts_or_reorders_one),
        cmocka_unit_test(a_line_that_is_too_long_is_cut_between_characters),
        cmocka_unit_test(a_sentence_that_is_too_long_ends_with_a_whole_word_and_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
