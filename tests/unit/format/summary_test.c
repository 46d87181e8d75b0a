/* SPDX-License-Identifier: Apache-2.0 */
/* Summaries: round trips, every rule in both directions, and that no changed bit is missed. */
#include "codec_checks.h"
#include "examples.h"
#include "format/summary.h"
#include <breakwater/tensor.h>

static void make(struct bwi_summary *s) {
    memset(s, 0, sizeof *s);
    for (unsigned i = 0; i < 16; i++) s->uuid.b[i] = (uint8_t)(0xe0 + i);
    s->id = (struct bwi_id){7, 1, 0x2a, 0};
    s->group = 1, s->groups = 2, s->world = 4;
    s->rank_count = 2;
    s->ranks[0] = 2, s->ranks[1] = 3;
    s->layout = bwi_sha_of(EXAMPLE(LAYOUT));
    s->content = bwi_sha_of(EXAMPLE(CONTENT));
    s->placement = bwi_sha_of(EXAMPLE(PLACEMENT));
    s->layout_bytes = sizeof EXAMPLE_LAYOUT;
    s->content_bytes = sizeof EXAMPLE_CONTENT;
    s->placement_bytes = sizeof EXAMPLE_PLACEMENT;
    s->writer = UINT64_C(0x0123456789abcdef);
    s->raw_bytes = 45;
    s->stored_bytes = 4141;
    s->pack_count = 1;
    s->ref_count = 1;
    s->refs[0] = (struct bwi_id){5, 1, 0x2a, 0};
}

static int pass(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_summary s;
    const int rc = bwi_summary_decode(in, &s, err);
    return rc == 0 ? bwi_summary_encode(&s, out, err) : rc;
}

/* Gives changed bytes the hash that belongs to them, so that the rules behind it are reached. */
static void seal(uint8_t *p, size_t n) {
    const struct bwi_sha sha = bwi_sha_of(bwi_span(p, n - 32));
    memcpy(p + n - 32, sha.b, 32);
}

static int sealed_pass(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    uint8_t p[2048];
    assert_true(in.len <= sizeof p);
    if (in.len < 32) return pass(in, out, err);
    memcpy(p, in.ptr, in.len);
    seal(p, in.len);
    return pass(bwi_span(p, in.len), out, err);
}

static void assert_encodes(const struct bwi_summary *s) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    struct bwi_summary back;
    assert_ok(bwi_summary_encode(s, &out, &err), &err);
    assert_true(out.len <= BWI_SUMMARY_BYTES_MAX);
    check_same_bytes(pass, bwi_buf_span(&out));
    assert_ok(bwi_summary_decode(bwi_buf_span(&out), &back, &err), &err);
    assert_memory_equal(back.ranks, s->ranks, sizeof s->ranks);
    bwi_buf_fini(&out);
}

static void assert_refused(const struct bwi_summary *s, int status, const char *message) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    assert_fails(bwi_summary_encode(s, &out, &err), status, &err, message);
    assert_int_equal(out.len, 0);
    bwi_buf_fini(&out);
}

static void the_example_is_written_byte_for_byte(void **state) {
    (void)state;
    struct bwi_summary s;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    make(&s);
    assert_ok(bwi_summary_encode(&s, &out, &err), &err);
    assert_int_equal(out.len, sizeof EXAMPLE_SUMMARY);
    assert_memory_equal(out.ptr, EXAMPLE_SUMMARY, out.len);
    bwi_buf_fini(&out);
}

static void the_example_is_read_field_by_field(void **state) {
    (void)state;
    struct bwi_summary want, s;
    struct bw_error err = BW_ERROR_INIT;
    make(&want);
    assert_ok(bwi_summary_decode(EXAMPLE(SUMMARY), &s, &err), &err);
    assert_true(bwi_uuid_eq(&s.uuid, &want.uuid));
    assert_true(bwi_id_eq(&s.id, &want.id));
    assert_int_equal(s.group, 1);
    assert_int_equal(s.groups, 2);
    assert_int_equal(s.world, 4);
    assert_false(s.fan_out);
    assert_int_equal(s.rank_count, 2);
    assert_int_equal(s.ranks[0], 2);
    assert_int_equal(s.ranks[1], 3);
    assert_true(bwi_sha_eq(&s.layout, &want.layout));
    assert_true(bwi_sha_eq(&s.content, &want.content));
    assert_true(bwi_sha_eq(&s.placement, &want.placement));
    assert_int_equal(s.layout_bytes, want.layout_bytes);
    assert_int_equal(s.content_bytes, want.content_bytes);
    assert_int_equal(s.placement_bytes, want.placement_bytes);
    assert_true(s.writer == want.writer);
    assert_int_equal(s.raw_bytes, 45);
    assert_int_equal(s.stored_bytes, 4141);
    assert_int_equal(s.pack_count, 1);
    assert_int_equal(s.ref_count, 1);
    assert_true(bwi_id_eq(&s.refs[0], &want.refs[0]));
}

static void the_largest_summary_fits_into_a_kibibyte(void **state) {
    (void)state;
    struct bwi_summary s;
    make(&s);
    s.id = (struct bwi_id){INT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    s.world = BWI_WORLD_MAX, s.groups = BWI_GROUPS_MAX, s.group = BWI_GROUPS_MAX - 1;
    s.fan_out = true;
    s.rank_count = BWI_GROUP_RANKS_MAX;
    for (uint32_t i = 0; i < s.rank_count; i++) s.ranks[i] = BWI_WORLD_MAX - BWI_GROUP_RANKS_MAX + i;
    s.ref_count = BWI_REFS_MAX;
    for (uint32_t i = 0; i < s.ref_count; i++) s.refs[i] = (struct bwi_id){INT64_MAX, 1, 0, i};
    s.layout_bytes = BWI_LAYOUT_BYTES_MAX, s.content_bytes = BWI_CONTENT_BYTES_MAX;
    s.placement_bytes = BWI_PLACEMENT_BYTES_MAX, s.pack_count = BWI_PACKS_MAX;
    s.raw_bytes = s.stored_bytes = INT64_MAX, s.writer = UINT64_MAX;
    assert_encodes(&s);
}

static void the_smallest_summary_is_that_of_a_lone_rank_without_refs(void **state) {
    (void)state;
    struct bwi_summary s;
    make(&s);
    s.group = 0, s.groups = 1, s.world = 1, s.rank_count = 1, s.ranks[0] = 0, s.ranks[1] = 0;
    s.ref_count = s.pack_count = 0, s.raw_bytes = s.stored_bytes = 0;
    s.id = (struct bwi_id){0, 1, 0, 0};
    assert_encodes(&s);
}

static void an_id_has_an_attempt_and_a_step_that_json_can_hold(void **state) {
    (void)state;
    struct bwi_summary s;
    make(&s);
    s.id.attempt = 0;
    assert_refused(&s, BW_E_INVALID, "summary: its id: step 7 of attempt 0 cannot be");
    make(&s);
    s.id.step = BW_STEP_MAX + 1;
    assert_refused(&s, BW_E_INVALID, "step 9223372036854775808 of attempt 1 cannot be");
    make(&s);
    s.refs[0].attempt = 0;
    assert_refused(&s, BW_E_INVALID, "summary: ref: step 5 of attempt 0 cannot be");
}

static void group_groups_and_world_fit_together(void **state) {
    (void)state;
    struct bwi_summary s;
    make(&s);
    s.group = 2;
    assert_refused(&s, BW_E_INVALID, "summary: group 2 of 2 in a world of 4 ranks cannot be");
    s.group = 0, s.groups = 5;
    assert_refused(&s, BW_E_INVALID, "group 0 of 5 in a world of 4 ranks cannot be");
    s.groups = 0;
    assert_refused(&s, BW_E_INVALID, "group 0 of 0 in a world of 4 ranks cannot be");
    s.groups = BWI_GROUPS_MAX + 1;
    assert_refused(&s, BW_E_LIMIT, "1000000 groups, the limit is 999999");
    make(&s);
    s.world = BWI_WORLD_MAX + 1;
    assert_refused(&s, BW_E_LIMIT, "16777217 ranks of the world, the limit is 16777216");
}

static void ranks_ascend_within_the_world(void **state) {
    (void)state;
    struct bwi_summary s;
    make(&s);
    s.ranks[1] = 4;
    assert_refused(&s, BW_E_INVALID, "summary: rank 4 is out of order or outside of a world of 4");
    s.ranks[1] = 2;
    assert_refused(&s, BW_E_INVALID, "rank 2 is out of order");
    s.ranks[1] = 1;
    assert_refused(&s, BW_E_INVALID, "rank 1 is out of order");
    s.rank_count = 0;
    assert_refused(&s, BW_E_INVALID, "no ranks, expected at least one");
    s.rank_count = BWI_GROUP_RANKS_MAX + 1;
    assert_refused(&s, BW_E_LIMIT, "65 ranks, the limit is 64");
}

static void refs_ascend_and_none_is_the_summary_itself(void **state) {
    (void)state;
    struct bwi_summary s;
    make(&s);
    s.refs[0] = s.id;
    assert_refused(&s, BW_E_INVALID, "summary: it refers to itself, 00000000000000000007.1-0000002a.0");
    make(&s);
    s.ref_count = 2;
    s.refs[1] = s.refs[0];
    assert_refused(&s, BW_E_INVALID, "summary: refs do not ascend at 00000000000000000005.1-0000002a.0");
    s.refs[1].step = 4;
    assert_refused(&s, BW_E_INVALID, "refs do not ascend at 00000000000000000004.1-0000002a.0");
    s.refs[1].step = 6;
    assert_encodes(&s);
    s.ref_count = BWI_REFS_MAX + 1;
    assert_refused(&s, BW_E_LIMIT, "9 refs, the limit is 8");
}

static void sizes_are_within_the_limits_of_their_formats(void **state) {
    (void)state;
    struct bwi_summary s;
    make(&s);
    s.layout_bytes = BWI_LAYOUT_BYTES_MAX + 1;
    assert_refused(&s, BW_E_LIMIT, "bytes of layout, the limit is 4294967296");
    make(&s);
    s.content_bytes = BWI_CONTENT_BYTES_MAX + 1;
    assert_refused(&s, BW_E_LIMIT, "bytes of content, the limit is 5368709120");
    make(&s);
    s.placement_bytes = BWI_PLACEMENT_BYTES_MAX + 1;
    assert_refused(&s, BW_E_LIMIT, "bytes of placement, the limit is 12884901888");
    make(&s);
    s.pack_count = BWI_PACKS_MAX + 1;
    assert_refused(&s, BW_E_LIMIT, "65537 packs, the limit is 65536");
    make(&s);
    s.raw_bytes = UINT64_C(1) << 63;
    assert_refused(&s, BW_E_LIMIT, "9223372036854775808 raw bytes, the limit is 9223372036854775807");
    make(&s);
    s.stored_bytes = UINT64_MAX;
    assert_refused(&s, BW_E_LIMIT, "18446744073709551615 stored bytes, the limit is 9223372036854775807");
    make(&s);
    s.placement_bytes = 0;
    assert_refused(&s, BW_E_INVALID, "placement of 0 bytes: none is ever empty");
}

static void every_rule_holds_for_what_is_read(void **state) {
    (void)state;
    static const struct check_patch patches[] = {
        {40, 4, "\0\0\0\0", BW_E_FORMAT, "its id: step 7 of attempt 0 cannot be"},
        {39, 1, "\x80", BW_E_FORMAT, "its id: step 9223372036854775815 of attempt 1 cannot be"},
        {52, 4, "\2\0\0\0", BW_E_FORMAT, "group 2 of 2 in a world of 4 ranks cannot be"},
        {56, 4, "\5\0\0\0", BW_E_FORMAT, "group 1 of 5 in a world of 4 ranks cannot be"},
        {60, 4, "\1\0\0\1", BW_E_FORMAT, "16777217 ranks of the world"},
        {60, 4, "\3\0\0\0", BW_E_FORMAT, "rank 3 is out of order or outside of a world of 3"},
        {64, 1, "\2", BW_E_FORMAT, "fan-out is 2, expected 0 or 1"},
        {67, 1, "\1", BW_E_FORMAT, "fan-out is 16777216, expected 0 or 1"},
        {68, 4, "\0\0\0\0", BW_E_FORMAT, "8 bytes after its end"},
        {68, 4, "\3\0\0\0", BW_E_FORMAT, "cut short"},
        {68, 4, "\x41\0\0\0", BW_E_FORMAT, "65 ranks, the limit is 64"},
        {68, 4, "\xff\xff\xff\xff", BW_E_FORMAT, "4294967295 ranks, the limit is 64"},
        {72, 4, "\0\0\0\0", BW_E_FORMAT, "20 bytes after its end"},
        {72, 4, "\x09\0\0\0", BW_E_FORMAT, "9 refs, the limit is 8"},
        {76, 4, "\1\0\1\0", BW_E_FORMAT, "65537 packs"},
        {176, 8, "\0\0\0\0\0\0\0\0", BW_E_FORMAT, "layout of 0, content of 192"},
        {196, 4, "\4\0\0\0", BW_E_FORMAT, "bytes of placement, the limit is"},
        {215, 1, "\x80", BW_E_FORMAT, "9223372036854775853 raw bytes, the limit is"},
        {223, 1, "\x80", BW_E_FORMAT, "stored bytes, the limit is"},
        {228, 4, "\2\0\0\0", BW_E_FORMAT, "rank 2 is out of order"},
        {232, 1, "\7", BW_E_FORMAT, "it refers to itself, 00000000000000000007.1-0000002a.0"},
        {240, 1, "\0", BW_E_FORMAT, "ref: step 5 of attempt 0 cannot be"},
    };
    check_patches(sealed_pass, EXAMPLE(SUMMARY), patches, sizeof patches / sizeof patches[0]);
}

static void the_hash_is_looked_at_first(void **state) {
    (void)state;
    static const struct check_patch patches[] = {
        {0, 1, "X", BW_E_CORRUPT, "summary: its bytes have the hash "},
        {8, 1, "\2", BW_E_CORRUPT, "summary: its bytes have the hash "},
        {68, 4, "\xff\xff\xff\xff", BW_E_CORRUPT, ", it ends with 350b53a8c52e9914..."},
        {283, 1, "\0", BW_E_CORRUPT, NULL},
    };
    check_patches(pass, EXAMPLE(SUMMARY), patches, sizeof patches / sizeof patches[0]);
}

static void a_summary_above_a_kibibyte_is_refused(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    uint8_t p[1025] = {0};
    memcpy(p, EXAMPLE_SUMMARY, sizeof EXAMPLE_SUMMARY - 32);
    p[10] = 1; /* a newer minor version may have 740 more bytes, and not one above the limit */
    seal(p, 1024);
    assert_ok(pass(bwi_span(p, 1024), &out, &err), &err);
    seal(p, 1025);
    assert_fails(pass(bwi_span(p, 1025), &out, &err), BW_E_FORMAT, &err, "summary: 1025 bytes, the limit is 1024");
    bwi_buf_fini(&out);
}

static void versions_are_told_apart_behind_the_hash(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    const size_t body = sizeof EXAMPLE_SUMMARY - 32;
    uint8_t p[sizeof EXAMPLE_SUMMARY + 5];
    memcpy(p, EXAMPLE_SUMMARY, body);
    memcpy(p + body, "extra", 5);
    assert_fails(sealed_pass(bwi_span(p, sizeof p), &out, &err), BW_E_FORMAT, &err, "5 bytes after its end");
    p[10] = 1;
    assert_ok(sealed_pass(bwi_span(p, sizeof p), &out, &err), NULL);
    p[8] = 2;
    bw_error_clear(&err);
    assert_fails(sealed_pass(bwi_span(p, sizeof p), &out, &err), BW_E_VERSION, &err,
                 "summary: version 2.1 is newer than the newest known, 1.0");
    p[8] = 1, p[12] = 4;
    bw_error_clear(&err);
    assert_fails(sealed_pass(bwi_span(p, sizeof p), &out, &err), BW_E_VERSION, &err, "summary: flags 0x00000004");
    p[0] = 'b';
    bw_error_clear(&err);
    assert_fails(sealed_pass(bwi_span(p, sizeof p), &out, &err), BW_E_FORMAT, &err,
                 "summary: expected magic \"BWSUMMRY\", found bytes 6257");
    bwi_buf_fini(&out);
}

static void no_prefix_is_accepted(void **state) {
    (void)state;
    check_every_prefix(pass, EXAMPLE(SUMMARY));
    check_every_prefix(sealed_pass, EXAMPLE(SUMMARY));
}

static void no_changed_bit_is_missed(void **state) {
    (void)state;
    check_every_bit(pass, EXAMPLE(SUMMARY), true);
    for (size_t bit = 0; bit < sizeof EXAMPLE_SUMMARY * 8; bit++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_summary s;
        uint8_t p[sizeof EXAMPLE_SUMMARY];
        memcpy(p, EXAMPLE_SUMMARY, sizeof p);
        p[bit / 8] = (uint8_t)(p[bit / 8] ^ 1u << bit % 8);
        assert_fails(bwi_summary_decode(bwi_span(p, sizeof p), &s, &err), BW_E_CORRUPT, &err,
                     "summary: its bytes have the hash");
    }
}

/* As sealed_pass; gives back the bytes that were sealed, for the comparison in check_changed. */
static int resealed_pass(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    const int rc = sealed_pass(in, out, err);
    if (rc == 0 && out->len == in.len) memcpy(out->ptr + out->len - 32, in.ptr + in.len - 32, 32);
    return rc;
}

static void no_sealed_damage_leads_to_a_crash_or_to_other_bytes(void **state) {
    (void)state;
    check_every_bit(resealed_pass, EXAMPLE(SUMMARY), false);
    check_random_damage(resealed_pass, EXAMPLE(SUMMARY), 20000);
}

static void out_of_memory_is_reported(void **state) {
    (void)state;
    check_out_of_memory(pass, EXAMPLE(SUMMARY));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_is_written_byte_for_byte),
        cmocka_unit_test(the_example_is_read_field_by_field),
        cmocka_unit_test(the_largest_summary_fits_into_a_kibibyte),
        cmocka_unit_test(the_smallest_summary_is_that_of_a_lone_rank_without_refs),
        cmocka_unit_test(an_id_has_an_attempt_and_a_step_that_json_can_hold),
        cmocka_unit_test(group_groups_and_world_fit_together),
        cmocka_unit_test(ranks_ascend_within_the_world),
        cmocka_unit_test(refs_ascend_and_none_is_the_summary_itself),
        cmocka_unit_test(sizes_are_within_the_limits_of_their_formats),
        cmocka_unit_test(every_rule_holds_for_what_is_read),
        cmocka_unit_test(the_hash_is_looked_at_first),
        cmocka_unit_test(a_summary_above_a_kibibyte_is_refused),
        cmocka_unit_test(versions_are_told_apart_behind_the_hash),
        cmocka_unit_test(no_prefix_is_accepted),
        cmocka_unit_test(no_changed_bit_is_missed),
        cmocka_unit_test(no_sealed_damage_leads_to_a_crash_or_to_other_bytes),
        cmocka_unit_test(out_of_memory_is_reported),
    };
    return cmocka_run_group_tests_name("summary", tests, NULL, NULL);
}
