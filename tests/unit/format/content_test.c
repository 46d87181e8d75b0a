/* SPDX-License-Identifier: Apache-2.0 */
/* Contents: numbering of extents, round trips, every rule in both directions, damage, and the fit with a layout. */
#include "codec_checks.h"
#include "examples.h"
#include "format/content.h"
#include <breakwater/tensor.h>

struct sample {
    uint64_t raw_bytes[5];
    struct bwi_xxh extents[4];
    struct bwi_span meta[2];
    struct bwi_content content;
};

static void make(struct sample *s) {
    memset(s, 0, sizeof *s);
    static const uint64_t raw_bytes[] = {8, 16, 16, 0, 5};
    memcpy(s->raw_bytes, raw_bytes, sizeof raw_bytes);
    for (unsigned e = 0; e < 4; e++) {
        for (unsigned i = 0; i < 16; i++) s->extents[e].b[i] = (uint8_t)(0x10 * (e + 1) + i);
    }
    s->meta[0] = bwi_span_str("{\"lr\":1}");
    s->content = (struct bwi_content){
        .layout = bwi_sha_of(EXAMPLE(LAYOUT)),
        .extent_bytes = 4096,
        .item_count = 5,
        .raw_bytes = s->raw_bytes,
        .extent_count = 4,
        .extents = s->extents,
        .meta_count = 2,
        .meta = s->meta,
    };
}

static int pass(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_content c = {0};
    int rc = bwi_content_decode(in, &c, err);
    if (rc == 0) rc = bwi_content_encode(&c, out, err);
    bwi_content_fini(&c);
    bwi_content_fini(&c);
    return rc;
}

static void assert_refused(struct sample *s, int status, const char *message) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    assert_fails(bwi_content_encode(&s->content, &out, &err), status, &err, message);
    assert_int_equal(out.len, 0);
    bwi_buf_fini(&out);
}

static void the_example_is_written_byte_for_byte(void **state) {
    (void)state;
    struct sample s;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    make(&s);
    assert_ok(bwi_content_encode(&s.content, &out, &err), &err);
    assert_int_equal(out.len, sizeof EXAMPLE_CONTENT);
    assert_memory_equal(out.ptr, EXAMPLE_CONTENT, out.len);
    check_same_bytes(pass, EXAMPLE(CONTENT));
    bwi_buf_fini(&out);
}

static void the_example_is_read_field_by_field(void **state) {
    (void)state;
    struct bwi_content c;
    struct bw_error err = BW_ERROR_INIT;
    const struct bwi_sha layout = bwi_sha_of(EXAMPLE(LAYOUT));
    assert_ok(bwi_content_decode(EXAMPLE(CONTENT), &c, &err), &err);
    assert_true(bwi_sha_eq(&c.layout, &layout));
    assert_int_equal(c.extent_bytes, 4096);
    assert_int_equal(c.item_count, 5);
    assert_int_equal(c.raw_bytes[4], 5);
    assert_int_equal(c.extent_count, 4);
    static const uint64_t first[] = {0, 1, 2, 3, 3, 4};
    assert_memory_equal(c.first_extent, first, sizeof first);
    assert_int_equal(c.extents[3].b[15], 0x4f);
    assert_int_equal(c.meta_count, 2);
    assert_true(bwi_span_eq(c.meta[0], bwi_span_str("{\"lr\":1}")));
    assert_int_equal(c.meta[1].len, 0);
    bwi_content_fini(&c);
}

static void extents_are_numbered_through_item_after_item(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    uint64_t raw_bytes[] = {0, 1, 4095, 4096, 4097, 0, 3 * 4096};
    struct bwi_content c = {.extent_bytes = 4096, .item_count = 7, .raw_bytes = raw_bytes};
    assert_ok(bwi_content_number(&c, &err), &err);
    static const uint64_t first[] = {0, 0, 1, 2, 3, 5, 5, 8};
    assert_memory_equal(c.first_extent, first, sizeof first);
    assert_int_equal(c.extent_count, 8);
    assert_int_equal(bwi_content_extent_bytes(&c, 1, 0), 1);
    assert_int_equal(bwi_content_extent_bytes(&c, 3, 0), 4096);
    assert_int_equal(bwi_content_extent_bytes(&c, 4, 0), 4096);
    assert_int_equal(bwi_content_extent_bytes(&c, 4, 1), 1);
    assert_int_equal(bwi_content_extent_bytes(&c, 6, 2), 4096);
    c.extent_bytes = 8192; /* numbered again: what was there is given back */
    assert_ok(bwi_content_number(&c, &err), &err);
    assert_int_equal(c.extent_count, 6);
    c.raw_bytes = NULL;
    bwi_content_fini(&c);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void numbering_refuses_what_no_content_can_hold(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    uint64_t raw_bytes[] = {UINT64_MAX, UINT64_MAX};
    struct bwi_content c = {.extent_bytes = 4096, .item_count = 2, .raw_bytes = raw_bytes};
    assert_fails(bwi_content_number(&c, &err), BW_E_LIMIT, &err, "4503599627370496 extents, the limit is 268435456");
    assert_null(c.first_extent);
    c.extent_bytes = 5000;
    bw_error_clear(&err);
    assert_fails(bwi_content_number(&c, &err), BW_E_INVALID, &err, "extents of 5000 bytes, expected a power of two");
    c.extent_bytes = 0;
    bw_error_clear(&err);
    assert_fails(bwi_content_number(&c, &err), BW_E_INVALID, &err, "extents of 0 bytes");
    c.extent_bytes = 4096;
    c.item_count = UINT32_MAX;
    bw_error_clear(&err);
    assert_fails(bwi_content_number(&c, &err), BW_E_LIMIT, &err, "4294967295 items, the limit is 17825792");
    bwi_content_fini(NULL);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void extent_sizes_are_powers_of_two_from_4_kib_to_16_mib(void **state) {
    (void)state;
    struct sample s;
    static const uint32_t bad[] = {0, 1, 2048, 4095, 4097, 12288, 1u << 25, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        make(&s);
        s.content.extent_bytes = bad[i];
        assert_refused(&s, BW_E_INVALID, "expected a power of two from 4096 to 16777216");
    }
    for (uint32_t good = 4096; good <= 1u << 24; good *= 2) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_buf out = {0};
        make(&s);
        s.content.extent_bytes = good;
        assert_ok(bwi_content_encode(&s.content, &out, &err), &err);
        check_same_bytes(pass, bwi_buf_span(&out));
        bwi_buf_fini(&out);
    }
}

static void what_breaks_a_rule_is_not_written(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.content.extent_count = 5;
    assert_refused(&s, BW_E_INVALID, "content: 5 extents, its items have 4");
    make(&s);
    s.content.meta[1] = bwi_span_str("\xff");
    assert_refused(&s, BW_E_INVALID, "content: metadata 1 is not UTF-8 without NUL");
    make(&s);
    s.content.meta_count = 0;
    assert_refused(&s, BW_E_INVALID, "content: metadata of no rank");
    s.content.meta_count = 65;
    assert_refused(&s, BW_E_LIMIT, "65 ranks with metadata, the limit is 64");
    make(&s);
    s.content.item_count = BWI_BOXES_MAX + BWI_BLOBS_MAX + 1;
    assert_refused(&s, BW_E_LIMIT, "17825793 items, the limit is 17825792");
    make(&s);
    char *large = calloc(1, BWI_METADATA_MAX + 2);
    memset(large, ' ', BWI_METADATA_MAX + 1);
    s.content.meta[0] = bwi_span(large, BWI_METADATA_MAX + 1);
    assert_refused(&s, BW_E_LIMIT, "1048577 bytes of metadata, the limit is 1048576");
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    s.content.meta[0].len = BWI_METADATA_MAX;
    assert_ok(bwi_content_encode(&s.content, &out, &err), &err);
    check_same_bytes(pass, bwi_buf_span(&out));
    bwi_buf_fini(&out);
    free(large);
}

static void every_rule_holds_for_what_is_read(void **state) {
    (void)state;
    static const struct check_patch patches[] = {
        {48, 4, "\0\x0f\0\0", BW_E_FORMAT, "extents of 3840 bytes, expected a power of two"},
        {48, 4, "\0\0\0\2", BW_E_FORMAT, "extents of 33554432 bytes"},
        {52, 4, "\xff\xff\xff\xff", BW_E_FORMAT, "4294967295 items, the limit is 17825792"},
        {52, 4, "\xff\xff\0\1", BW_E_FORMAT, "cut short: its records take at least"},
        {52, 4, "\4\0\0\0", BW_E_FORMAT, "4 extents, its items have 3"},
        {56, 8, "\5\0\0\0\0\0\0\0", BW_E_FORMAT, "cut short: its records take at least"},
        {56, 8, "\3\0\0\0\0\0\0\0", BW_E_FORMAT, "3 extents, its items have 4"},
        {56, 8, "\0\0\0\x10\0\0\0\0", BW_E_FORMAT, "cut short: its records take at least"},
        {56, 8, "\1\0\0\x10\0\0\0\0", BW_E_FORMAT, "268435457 extents, the limit is 268435456"},
        {56, 8, "\xff\xff\xff\xff\xff\xff\xff\xff", BW_E_FORMAT, "18446744073709551615 extents"},
        {64, 4, "\0\0\0\0", BW_E_FORMAT, "metadata of no rank"},
        {64, 4, "\x41\0\0\0", BW_E_FORMAT, "65 ranks with metadata, the limit is 64"},
        {64, 4, "\1\0\0\0", BW_E_FORMAT, "4 bytes after its end, expected none"},
        {68, 4, "\0\0\0\1", BW_E_FORMAT, "padding is not zero"},
        {72, 8, "\xff\xff\xff\xff\xff\xff\xff\xff", BW_E_FORMAT, "4503599627370496 extents, the limit is 268435456"},
        {72, 8, "\0\0\0\0\0\0\0\0", BW_E_FORMAT, "4 extents, its items have 3"},
        {96, 8, "\1\0\0\0\0\0\0\0", BW_E_FORMAT, "4 extents, its items have 5"},
        {176, 4, "\1\0\x10\0", BW_E_FORMAT, "cut short"},
        {176, 4, "\xff\xff\xff\xff", BW_E_FORMAT, "cut short"},
        {180, 1, "\xc0", BW_E_FORMAT, "metadata 0 is not UTF-8 without NUL"},
        {180, 1, "\0", BW_E_FORMAT, "metadata 0 is not UTF-8 without NUL"},
        {188, 4, "\1\0\0\0", BW_E_FORMAT, "cut short"},
    };
    check_patches(pass, EXAMPLE(CONTENT), patches, sizeof patches / sizeof patches[0]);
}

static void metadata_above_the_limit_is_refused_when_read(void **state) {
    (void)state;
    struct sample s;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    struct bwi_buf again = {0};
    char *large = malloc(BWI_METADATA_MAX);
    memset(large, ' ', BWI_METADATA_MAX);
    make(&s);
    s.content.meta[1] = bwi_span(large, BWI_METADATA_MAX);
    assert_ok(bwi_content_encode(&s.content, &out, &err), &err);
    bwi_buf_u8(&out, ' ');
    bwi_put_le32(out.ptr + 188, BWI_METADATA_MAX + 1);
    assert_fails(pass(bwi_buf_span(&out), &again, &err), BW_E_FORMAT, &err,
                 "1048577 bytes of metadata, the limit is 1048576");
    bwi_buf_fini(&out);
    bwi_buf_fini(&again);
    free(large);
}

static void a_content_fits_its_layout_or_is_refused(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_layout l;
    struct sample s;
    make(&s);
    assert_ok(bwi_layout_decode(EXAMPLE(LAYOUT), &l, &err), &err);
    assert_ok(bwi_content_check(&s.content, &l, &err), &err);
    s.raw_bytes[4] = 12345; /* a blob has any length */
    assert_ok(bwi_content_check(&s.content, &l, &err), &err);
    s.raw_bytes[1] = 15;
    assert_fails(bwi_content_check(&s.content, &l, &err), BW_E_FORMAT, &err,
                 "content: tensor \"w\", rank 2: 15 bytes, expected 16");
    make(&s);
    s.raw_bytes[3] = 16;
    bw_error_clear(&err);
    assert_fails(bwi_content_check(&s.content, &l, &err), BW_E_FORMAT, &err,
                 "content: tensor \"w.tied\", rank 3 (tied): 16 bytes, expected 0");
    make(&s);
    s.content.item_count = 4;
    bw_error_clear(&err);
    assert_fails(bwi_content_check(&s.content, &l, &err), BW_E_FORMAT, &err, "4 items, its layout has 5");
    make(&s);
    s.content.meta_count = 1;
    bw_error_clear(&err);
    assert_fails(bwi_content_check(&s.content, &l, &err), BW_E_FORMAT, &err, "metadata of 1 ranks, its layout has 2");
    bwi_layout_fini(&l);
}

static void a_newer_version_is_refused_by_name_and_a_newer_minor_one_is_read(void **state) {
    (void)state;
    check_versions(pass, EXAMPLE(CONTENT));
}

static void no_prefix_is_accepted(void **state) {
    (void)state;
    check_every_prefix(pass, EXAMPLE(CONTENT));
}

static void no_changed_bit_leads_to_a_crash_or_to_other_bytes(void **state) {
    (void)state;
    check_every_bit(pass, EXAMPLE(CONTENT), false);
    check_random_damage(pass, EXAMPLE(CONTENT), 20000);
}

static void out_of_memory_leaves_nothing_behind(void **state) {
    (void)state;
    check_out_of_memory(pass, EXAMPLE(CONTENT));
    struct bw_error err = BW_ERROR_INIT;
    uint64_t raw_bytes[1] = {1};
    struct bwi_content c = {.extent_bytes = 4096, .item_count = 1, .raw_bytes = raw_bytes};
    (void)bwi_alloc_fail_at(1);
    assert_fails(bwi_content_number(&c, &err), BW_E_NOMEM, &err, NULL);
    (void)bwi_alloc_fail_at(0);
    assert_null(c.first_extent);
}

static void a_hundred_thousand_items_make_a_round_trip(void **state) {
    (void)state;
    enum { MANY = 100000 };
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    struct bwi_span meta[1] = {BWI_SPAN_NONE};
    uint64_t seed = 1;
    uint64_t *raw_bytes = bwi_calloc(MANY, sizeof *raw_bytes);
    for (int i = 0; i < MANY; i++) raw_bytes[i] = test_random(&seed) % 20000;
    struct bwi_content c = {
        .extent_bytes = 4096, .item_count = MANY, .raw_bytes = raw_bytes, .meta_count = 1, .meta = meta};
    assert_ok(bwi_content_number(&c, &err), &err);
    c.extents = bwi_calloc(c.extent_count, sizeof *c.extents);
    for (uint64_t e = 0; e < c.extent_count; e++) memcpy(c.extents[e].b, &e, sizeof e);
    assert_ok(bwi_content_encode(&c, &out, &err), &err);
    check_same_bytes(pass, bwi_buf_span(&out));
    bwi_buf_fini(&out);
    c.meta = NULL;
    bwi_content_fini(&c);
    assert_int_equal(bwi_alloc_live(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_is_written_byte_for_byte),
        cmocka_unit_test(the_example_is_read_field_by_field),
        cmocka_unit_test(extents_are_numbered_through_item_after_item),
        cmocka_unit_test(numbering_refuses_what_no_content_can_hold),
        cmocka_unit_test(extent_sizes_are_powers_of_two_from_4_kib_to_16_mib),
        cmocka_unit_test(what_breaks_a_rule_is_not_written),
        cmocka_unit_test(every_rule_holds_for_what_is_read),
        cmocka_unit_test(metadata_above_the_limit_is_refused_when_read),
        cmocka_unit_test(a_content_fits_its_layout_or_is_refused),
        cmocka_unit_test(a_newer_version_is_refused_by_name_and_a_newer_minor_one_is_read),
        cmocka_unit_test(no_prefix_is_accepted),
        cmocka_unit_test(no_changed_bit_leads_to_a_crash_or_to_other_bytes),
        cmocka_unit_test(out_of_memory_leaves_nothing_behind),
        cmocka_unit_test(a_hundred_thousand_items_make_a_round_trip),
    };
    return cmocka_run_group_tests_name("content", tests, NULL, NULL);
}
