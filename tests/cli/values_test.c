/* SPDX-License-Identifier: Apache-2.0 */
/* How the command reads numbers, sizes, durations and names, and how it writes them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/args.h"
#include "cli/export.h"
#include "cli/help.h"
#include "cli/out.h"
#include "test.h"

static void sizes_are_read_with_their_units(void **state) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"4096", 4096},
        {"7B", 7},
        {"1K", 1024},
        {"1KiB", 1024},
        {"1kB", 1000},
        {"1kb", 1000},
        {"64MiB", 67108864},
        {"5GB", 5000000000},
        {"5 GB", 5000000000},
        {"1.5G", 1610612736},
        {"0.5KiB", 512},
        {"2T", 2199023255552},
        {"1.000000001GB", 1000000001},
        {"18446744073709551615", UINT64_MAX},
    };
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      "1.",
                                      ".5K",
                                      "1.5",
                                      "1.5B",
                                      "1X",
                                      "1KK",
                                      " 1",
                                      "1  K",
                                      "0x10",
                                      "18446744073709551616",
                                      "18014398509481984K",
                                      "1e3",
                                      "K"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 99;
        assert_true(cli_parse_bytes(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 99;
        if (cli_parse_bytes(bad[i], &bytes)) fail_msg("\"%s\" was taken", bad[i]);
    }
}

static void durations_need_a_unit(void **state) {
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {{"0", 0},          {"500ms", 500},    {"90s", 90000},     {"15min", 900000},    {"15m", 900000},
                {"12h", 43200000}, {"7d", 604800000}, {"2w", 1209600000}, {"1h30min", 5400000}, {"1d1ms", 86400001}};
    static const char *const bad[] = {
        "", "1", "s", "1x", "1h30", "-1s", "1 s", "18446744073709551615s", "1.5h", "18446744073709551615ms"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t ms = 99;
        assert_true(cli_parse_duration(good[i].text, &ms));
        assert_int_equal(ms, good[i].ms);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t ms = 99;
        if (cli_parse_duration(bad[i], &ms)) fail_msg("\"%s\" was taken", bad[i]);
    }
}

static void numbers_are_decimal_and_fit_into_64_bits(void **state) {
    uint64_t n = 0;
    (void)state;
    assert_true(cli_parse_u64("18446744073709551615", &n));
    assert_int_equal(n, UINT64_MAX);
    assert_true(cli_parse_u64("007", &n));
    assert_int_equal(n, 7);
    assert_false(cli_parse_u64("18446744073709551616", &n));
    assert_false(cli_parse_u64("", &n));
    assert_false(cli_parse_u64("1 ", &n));
    assert_false(cli_parse_u64("-1", &n));
}

static void escaped(const char *text, const char *want) {
    struct cli_buf b = {0};
    cli_buf_escaped(&b, text);
    assert_string_equal(b.data, want);
    cli_buf_fini(&b);
}

static void names_cannot_harm_a_terminal(void **state) {
    (void)state;
    escaped("", "");
    escaped("layers.0/weight |", "layers.0/weight |");
    escaped("a\nb\tc\rd\\", "a\\nb\\tc\\rd\\\\");
    escaped("\x1b[31m\x7f", "\\x1b[31m\\x7f");
    escaped("\xc3\xa9\xf0\x9f\x98\x80", "\xc3\xa9\xf0\x9f\x98\x80");
    escaped("\xc2\x9b", "\\u{9b}");             /* a control character of its own in UTF-8 */
    escaped("\xe2\x80\xae", "\\u{202e}");       /* turns the direction of what follows */
    escaped("\xff\xc3", "\\xff\\xc3");          /* no UTF-8 */
    escaped("\xc0\xaf", "\\xc0\\xaf");          /* a slash in too many bytes */
    escaped("\xed\xa0\x80", "\\xed\\xa0\\x80"); /* half a surrogate pair */
}

static void widths_count_columns_of_a_terminal(void **state) {
    (void)state;
    assert_int_equal(cli_width(""), 0);
    assert_int_equal(cli_width("abc"), 3);
    assert_int_equal(cli_width("\xc3\xa9"), 1);
}

static void sizes_and_ages_are_short(void **state) {
    char text[CLI_TEXT_BYTES];
    (void)state;
    assert_string_equal(cli_bytes_text(0, text), "0 B");
    assert_string_equal(cli_bytes_text(1023, text), "1023 B");
    assert_string_equal(cli_bytes_text(1024, text), "1.0 KiB");
    assert_string_equal(cli_bytes_text(1048575, text), "1.0 MiB");
    assert_string_equal(cli_bytes_text(UINT64_MAX, text), "16.0 EiB");
    assert_string_equal(cli_bytes_or_dash(0, text), "-");
    assert_string_equal(cli_age_text(0, 5000, text), "-");
    assert_string_equal(cli_age_text(1000, 4999, text), "3 s");
    assert_string_equal(cli_age_text(1000, 500, text), "0 s"); /* written by a clock that is ahead */
    assert_string_equal(cli_age_text(1000, 1000 + 119000, text), "119 s");
    assert_string_equal(cli_age_text(1000, 1000 + 120000, text), "2 min");
    assert_string_equal(cli_age_text(1000, 1000 + 2 * 3600000, text), "2 h");
    assert_string_equal(cli_age_text(1000, 1000 + 48 * 3600000LL, text), "2 d");
    assert_string_equal(cli_time_text(1764000000000, text), "2025-11-24 16:00:00");
    /* Times that somebody made up. */
    assert_string_equal(cli_age_text(INT64_MIN, INT64_MAX, text), "213503982334 d");
    assert_string_equal(cli_age_text(INT64_MAX, INT64_MIN, text), "0 s");
    assert_string_equal(cli_time_text(INT64_MAX, text), "292278994-08-17 07:12:55");
    assert_string_equal(cli_time_text(INT64_MIN, text), "-292275055-05-16 16:47:05");
}

static void encoded(const char *name, const char *want) {
    struct cli_buf b = {0};
    cli_percent_encode(&b, name);
    assert_string_equal(b.data, want);
    cli_buf_fini(&b);
}

static void names_of_files_stay_in_their_folder(void **state) {
    (void)state;
    encoded("rng", "rng");
    encoded("..", "%2E.");
    encoded("../x", "%2E.%2Fx");
    encoded("a b%\xc3\xa9.pt", "a%20b%25%C3%A9.pt");
    encoded(".hidden", "%2Ehidden");
}

static void the_nearest_word_is_found_if_it_is_near(void **state) {
    static const char *const names[] = {"history", "help", "verify", "ls", NULL};
    (void)state;
    assert_string_equal(cli_nearest("histoyr", names), "history");
    assert_string_equal(cli_nearest("veriffy", names), "verify");
    assert_string_equal(cli_nearest("his", names), "history");
    assert_string_equal(cli_nearest("sl", names), "ls");
    assert_null(cli_nearest("frobnicate", names));
    assert_null(cli_nearest("", names));
    assert_null(cli_nearest("a-word-of-more-than-thirty-one-letters", names));
}

static void text_for_a_manual_page_is_shown_as_it_is_written(void **state) {
    static const struct {
        const char *text;
        bool line_start;
        const char *want;
    } texts[] = {{".SH", true, "\\&.SH"},   {".SH", false, ".SH"},         {"'s", true, "\\&\\(aqs"},
                 {"C:\\a", true, "C:\\ea"}, {"--yes", false, "\\-\\-yes"}, {"", true, ""}};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char *got = NULL;
        size_t n = 0;
        FILE *to = open_memstream(&got, &n);
        assert_non_null(to);
        cli_man_text(to, texts[i].text, texts[i].line_start);
        assert_int_equal(fclose(to), 0);
        assert_string_equal(got, texts[i].want);
        free(got);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_for_a_manual_page_is_shown_as_it_is_written),
        cmocka_unit_test(sizes_are_read_with_their_units),
        cmocka_unit_test(durations_need_a_unit),
        cmocka_unit_test(numbers_are_decimal_and_fit_into_64_bits),
        cmocka_unit_test(names_cannot_harm_a_terminal),
        cmocka_unit_test(widths_count_columns_of_a_terminal),
        cmocka_unit_test(sizes_and_ages_are_short),
        cmocka_unit_test(names_of_files_stay_in_their_folder),
        cmocka_unit_test(the_nearest_word_is_found_if_it_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
