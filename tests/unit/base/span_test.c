/* SPDX-License-Identifier: Apache-2.0 */
/* Spans, the growing buffer, and the little-endian cursors. */
#include "base/span.h"
#include "base/vec.h"
#include "test.h"
#include <string.h>

static void spans_compare_bytewise_and_a_prefix_comes_first(void **state) {
    (void)state;
    assert_int_equal(bwi_span_cmp(bwi_span_str("a"), bwi_span_str("a")), 0);
    assert_int_equal(bwi_span_cmp(bwi_span_str("a"), bwi_span_str("ab")), -1);
    assert_int_equal(bwi_span_cmp(bwi_span_str("b"), bwi_span_str("ab")), 1);
    assert_int_equal(bwi_span_cmp(bwi_span_str("\x7f"), bwi_span_str("\x80")), -1);
    assert_int_equal(bwi_span_cmp(BWI_SPAN_NONE, bwi_span_str("")), 0);
    assert_int_equal(bwi_span_cmp(BWI_SPAN_NONE, bwi_span_str("a")), -1);
}

static void spans_are_equal_by_content(void **state) {
    (void)state;
    assert_true(bwi_span_eq(bwi_span("a\0b", 3), bwi_span("a\0b", 3)));
    assert_false(bwi_span_eq(bwi_span("a\0b", 3), bwi_span("a\0c", 3)));
    assert_false(bwi_span_eq(bwi_span_str("a"), bwi_span_str("ab")));
    assert_true(bwi_span_eq(BWI_SPAN_NONE, bwi_span_str("")));
    assert_int_equal(bwi_span_str(NULL).len, 0);
}

static void what_is_written_is_little_endian(void **state) {
    (void)state;
    struct bwi_buf b = {0};
    bwi_buf_u8(&b, 0x01);
    bwi_buf_u16(&b, 0x0302);
    bwi_buf_u32(&b, 0x07060504);
    bwi_buf_u64(&b, UINT64_C(0x0f0e0d0c0b0a0908));
    bwi_buf_zero(&b, 2);
    bwi_buf_str(&b, "hi");
    bwi_buf_put(&b, NULL, 0);
    const uint8_t want[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 'h', 'i'};
    assert_false(b.failed);
    assert_int_equal(b.len, sizeof want);
    assert_memory_equal(b.ptr, want, sizeof want);
    bwi_buf_fini(&b);
}

static void what_was_written_is_read_back(void **state) {
    (void)state;
    struct bwi_buf b = {0};
    bwi_buf_u8(&b, 0xfe);
    bwi_buf_u16(&b, 0xfedc);
    bwi_buf_u32(&b, 0xfedcba98u);
    bwi_buf_u64(&b, UINT64_C(0xfedcba9876543210));
    bwi_buf_str(&b, "tail!");
    struct bwi_reader r = bwi_reader(bwi_buf_span(&b));
    assert_int_equal(bwi_read_u8(&r), 0xfe);
    assert_int_equal(bwi_read_u16(&r), 0xfedc);
    assert_int_equal(bwi_read_u32(&r), 0xfedcba98u);
    assert_true(bwi_read_u64(&r) == UINT64_C(0xfedcba9876543210));
    const struct bwi_span ta = bwi_read_bytes(&r, 2);
    assert_true(bwi_span_eq(ta, bwi_span_str("ta")));
    assert_ptr_equal(ta.ptr, b.ptr + 15); /* borrowed, not copied */
    char rest[3];
    bwi_read_into(&r, rest, 3);
    assert_memory_equal(rest, "il!", 3);
    assert_int_equal(bwi_reader_left(&r), 0);
    assert_false(r.failed);
    bwi_buf_fini(&b);
}

static void read_past_the_end_gives_zero_and_sticks(void **state) {
    (void)state;
    const uint8_t in[7] = {1, 2, 3, 4, 5, 6, 7};
    struct bwi_reader r = bwi_reader(bwi_span(in, sizeof in));
    assert_int_equal(bwi_read_u8(&r), 1);
    assert_true(bwi_read_u64(&r) == 0);
    assert_true(r.failed);
    assert_int_equal(bwi_read_u8(&r), 0); /* though there are bytes left */
    assert_int_equal(bwi_read_u16(&r), 0);
    assert_int_equal(bwi_read_u32(&r), 0);
    assert_null(bwi_read_bytes(&r, 1).ptr);
    char dst[2] = {'x', 'x'};
    bwi_read_into(&r, dst, 2);
    assert_memory_equal(dst, "\0\0", 2);
    assert_int_equal(bwi_reader_left(&r), 0);
}

static void a_huge_length_is_past_the_end_and_does_not_wrap(void **state) {
    (void)state;
    const uint8_t in[4] = {1, 2, 3, 4};
    struct bwi_reader r = bwi_reader(bwi_span(in, sizeof in));
    (void)bwi_read_u16(&r);
    assert_int_equal(bwi_read_bytes(&r, SIZE_MAX).len, 0);
    assert_true(r.failed);
}

static void reading_nothing_succeeds_even_from_nothing(void **state) {
    (void)state;
    struct bwi_reader r = bwi_reader(BWI_SPAN_NONE);
    assert_int_equal(bwi_read_bytes(&r, 0).len, 0);
    bwi_read_into(&r, NULL, 0);
    assert_false(r.failed);
}

static void a_buffer_grows_and_keeps_what_it_has(void **state) {
    (void)state;
    struct bwi_buf b = {0};
    for (uint32_t i = 0; i < 50000; i++) bwi_buf_u32(&b, i);
    assert_false(b.failed);
    assert_int_equal(b.len, 200000);
    for (uint32_t i = 0; i < 50000; i++) assert_int_equal(bwi_le32(b.ptr + 4 * i), i);
    bwi_buf_fini(&b);
}

static void resetting_keeps_the_memory(void **state) {
    (void)state;
    struct bwi_buf b = {0};
    bwi_buf_str(&b, "abc");
    const uint8_t *ptr = b.ptr;
    b.failed = true;
    bwi_buf_reset(&b);
    assert_false(b.failed);
    assert_int_equal(b.len, 0);
    bwi_buf_str(&b, "d");
    assert_ptr_equal(b.ptr, ptr);
    bwi_buf_fini(&b);
    bwi_buf_fini(&b);
    bwi_buf_fini(NULL);
    assert_null(b.ptr);
}

static void printing_appends_text_of_any_length(void **state) {
    (void)state;
    struct bwi_buf b = {0};
    bwi_buf_printf(&b, "%s=%d", "a", 1);
    bwi_buf_printf(&b, "%s", "");
    bwi_buf_printf(&b, "%5000s", "x");
    assert_int_equal(b.len, 5003);
    assert_memory_equal(b.ptr, "a=1 ", 4);
    assert_int_equal(b.ptr[5002], 'x');
    bwi_buf_fini(&b);
}

static void an_append_that_fails_sticks(void **state) {
    (void)state;
    struct bwi_buf b = {0};
    (void)bwi_alloc_fail_at(1);
    bwi_buf_str(&b, "lost");
    assert_true(b.failed);
    (void)bwi_alloc_fail_at(0);
    bwi_buf_u8(&b, 1);
    bwi_buf_zero(&b, 1);
    bwi_buf_printf(&b, "x");
    assert_true(b.failed);
    assert_int_equal(b.len, 0);
    bwi_buf_fini(&b);
}

static void a_size_that_wraps_fails(void **state) {
    (void)state;
    struct bwi_buf b = {0};
    bwi_buf_str(&b, "abc");
    assert_false(bwi_buf_reserve(&b, SIZE_MAX));
    assert_true(b.failed);
    bwi_buf_fini(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_compare_bytewise_and_a_prefix_comes_first),
        cmocka_unit_test(spans_are_equal_by_content),
        cmocka_unit_test(what_is_written_is_little_endian),
        cmocka_unit_test(what_was_written_is_read_back),
        cmocka_unit_test(read_past_the_end_gives_zero_and_sticks),
        cmocka_unit_test(a_huge_length_is_past_the_end_and_does_not_wrap),
        cmocka_unit_test(reading_nothing_succeeds_even_from_nothing),
        cmocka_unit_test(a_buffer_grows_and_keeps_what_it_has),
        cmocka_unit_test(resetting_keeps_the_memory),
        cmocka_unit_test(printing_appends_text_of_any_length),
        cmocka_unit_test(an_append_that_fails_sticks),
        cmocka_unit_test(a_size_that_wraps_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
