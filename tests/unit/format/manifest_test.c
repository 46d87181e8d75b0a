/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest: both ways, its rules, and building it from summaries. */
#include "format/manifest.h"
#include "growth.h"
#include "json_fixture.h"

#define GOOD "good-manifest.json"

static int decode(struct bwi_span in, struct bw_error *err) {
    struct bwi_manifest m;
    const int rc = bwi_manifest_decode(in, &m, err);
    if (rc == 0) bwi_manifest_fini(&m);
    return rc;
}

static void a_manifest_goes_both_ways(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_manifest m;
    struct bwi_buf out = {0};
    const struct bwi_span in = fixture(GOOD);
    assert_ok(bwi_manifest_decode(in, &m, &err), &err);
    assert_true(m.id.step == 400 && m.id.attempt == 3 && m.uuid.b[0] == 0xf0 && m.world == 3 && !m.fan_out);
    assert_true(m.group_count == 2 && m.groups[0].rank_count == 2 && m.groups[0].ranks[1] == 2 &&
                m.groups[1].ranks[0] == 1);
    assert_true(m.groups[0].layout_bytes == 4096 && m.groups[1].content_bytes == 256 &&
                m.groups[1].raw_bytes == 234567);
    assert_true(m.ref_count == 2 && m.refs[1].step == 200 && m.raw_bytes == 1234567);
    assert_true(m.index.bytes == 8192 && m.index.head_bytes == 512 && m.index.tensors == 12 && m.index.boxes == 20);
    assert_ok(bwi_manifest_encode(&m, &out, &err), &err);
    assert_true(bwi_span_eq(in, bwi_buf_span(&out)));
    refuses_every_cut(in, decode, BW_E_FORMAT);
    bwi_buf_fini(&out);
    bwi_manifest_fini(&m);
    bwi_manifest_fini(&m);
    bwi_manifest_fini(NULL);
    span_free(in);
}

#define ID_100 "\"00000000000000000100.1-0badcafe.0\""
#define ID_400 "\"00000000000000000400.3-deadbeef.1\""

static void a_manifest_is_refused_where_it_breaks_a_rule(void **state) {
    (void)state;
    static const struct refusal rules[] = {
        {"id", "\"400\"", "manifest: member \"id\": expected a checkpoint id"},
        {"uuid", "null", "member \"uuid\""},
        {"world", "2", "group 0: rank 2 is not below the world size 2"},
        {"world", "4", "its groups hold 3 ranks, the world size is 4"},
        {"world", "0", "2 groups do not fit a world size of 0"},
        {"world", "16777217", "world size 16777217 is above 16777216"},
        {"fan_out", "0", "member \"fan_out\""},
        {"groups", "[]", "0 groups do not fit"},
        {"groups", "{}", "member \"groups\""},
        {"groups/0", "[1]", "group 0: expected [layout, bytes, content, bytes, raw bytes, [1 to 64 ranks]]"},
        {"groups/0/+", "1", "group 0: expected"},
        {"groups/1/0", "\"\"", "group 1: expected"},
        {"groups/1/1", "-1", "group 1: expected"},
        {"groups/1/1", "4294967297", "group 1: its layout has 4294967297 bytes, at most 4294967296 are allowed"},
        {"groups/1/1", "0", "group 1: its layout has no bytes"},
        {"groups/1/3", "0", "group 1: its content has no bytes"},
        {"index/bytes", "0", "its index has no bytes"},
        {"index/head_bytes", "0", "its index's head has no bytes"},
        {"groups/1/2", "null", "group 1: expected"},
        {"groups/1/3", "5368709121", "group 1: its content has 5368709121 bytes"},
        {"groups/1/4", "234568", "has 1234567 bytes, its groups together 1234568"},
        {"groups/1/4", "9223372036854775807", "its groups have more than 9223372036854775807 bytes"},
        {"groups/1/5", "[]", "group 1: expected"},
        {"groups/1/5", "1", "group 1: expected"},
        {"groups/1/5", "[-1]", "group 1: expected"},
        {"groups/1/5", "[2]", "rank 2 is in group 0 and in group 1"},
        {"groups/0/5", "[2,0]", "group 0: its ranks do not ascend: 2 before 0"},
        {"groups/0/5", "[0,0]", "group 0: its ranks do not ascend: 0 before 0"},
        {"groups/0/5", "[0]", "its groups hold 2 ranks, the world size is 3"},
        {"refs/1", ID_100, "its refs do not ascend"},
        {"refs/1", ID_400, "00000000000000000400.3-deadbeef.1 refers to itself"},
        {"refs/1", "1", "ref 1: expected a checkpoint id"},
        {"refs", "[1,2,3,4,5,6,7,8,9]", "member \"refs\": expected an array of at most 8"},
        {"index", "[]", "index: expected an object"},
        {"index/root", "\"ab\"", "index: member \"root\": expected 64 hex digits"},
        {"index/bytes", "17179869185", "its index has 17179869185 bytes"},
        {"index/head_bytes", "8193", "its index's head has 8193 bytes, at most 8192"},
        {"index/tensors", "-1", "index: member \"tensors\""},
        {"index/boxes", "null", "index: member \"boxes\""},
        {"index/extra", "1", "index: unknown member \"extra\""},
        {"raw_bytes", "1", "has 1 bytes, its groups together 1234567"},
        {"host", "\"node\"", "unknown member \"host\""},
        {"version", "[0,9]", "version 0.9, which never existed"},
    };
    refuses_all(rules, sizeof rules / sizeof rules[0], GOOD, false, decode);
    struct bw_error err = BW_ERROR_INIT;
    const struct bwi_span newer = fixture("newer-manifest.json");
    assert_fails(decode(newer, &err), BW_E_VERSION, &err,
                 "manifest: has format \"breakwater-manifest\" version 2.0, this release reads up to 1.x");
    span_free(newer);
    const char byte = '{';
    bw_error_clear(&err);
    assert_fails(decode(bwi_span(&byte, (512u << 20) + 1), &err), BW_E_FORMAT, &err,
                 "expected at most 536870912 bytes");
}

static void members_of_a_newer_minor_version_are_passed_over(void **state) {
    (void)state;
    static const struct {
        const char *path, *value;
    } additions[] = {{"zone", "[{}]"}, {"index/depth", "3"}, {"groups/0/+", "\"more\""}};
    for (size_t i = 0; i < 3; i++) {
        const struct bwi_span in = mutated(GOOD, additions[i].path, additions[i].value, false);
        struct bw_error err = BW_ERROR_INIT;
        assert_fails(decode(in, &err), BW_E_FORMAT, &err, NULL);
        char *minor = strstr((char *)(uintptr_t)in.ptr, "\"version\":[1,0]");
        assert_non_null(minor);
        minor[13] = '1';
        bw_error_clear(&err);
        assert_ok(decode(in, &err), &err);
        span_free(in);
    }
}

/* --- building --- */

static struct bwi_id id_of(uint64_t step) {
    return (struct bwi_id){.step = step, .attempt = 3, .nonce = 7};
}

/* Group g of `groups` holds the ranks g, g + groups, ...: `per_group` of them. */
static struct bwi_summary *summaries_of(uint32_t groups, uint32_t per_group) {
    struct bwi_summary *all = calloc(groups, sizeof *all);
    assert_non_null(all);
    for (uint32_t g = 0; g < groups; g++) {
        struct bwi_summary *s = &all[g];
        s->id = id_of(500);
        memset(s->uuid.b, 0xab, sizeof s->uuid.b);
        s->group = g;
        s->groups = groups;
        s->world = groups * per_group;
        s->fan_out = true;
        s->rank_count = per_group;
        for (uint32_t i = 0; i < per_group; i++) s->ranks[i] = g + i * groups;
        memset(&s->layout, (int)(g & 0xff), sizeof s->layout);
        memset(&s->content, (int)(g + 1) & 0xff, sizeof s->content);
        s->layout_bytes = 123456;
        s->content_bytes = 9876;
        s->raw_bytes = UINT64_C(80000000000) + g;
    }
    return all;
}

static const struct bwi_index_info some_index = {.bytes = 1000, .head_bytes = 100, .tensors = 5, .boxes = 9};

static void a_manifest_is_built_from_summaries(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_summary *all = summaries_of(3, 2);
    struct bwi_manifest m, back;
    struct bwi_buf out = {0};
    all[0].refs[0] = id_of(30);
    all[0].refs[1] = id_of(10);
    all[0].ref_count = 2;
    all[2].refs[0] = id_of(20);
    all[2].refs[1] = id_of(30);
    all[2].ref_count = 2;
    assert_ok(bwi_manifest_build(all, 3, &some_index, &m, &err), &err);
    assert_true(m.group_count == 3 && m.world == 6 && m.fan_out && m.raw_bytes == UINT64_C(240000000003));
    assert_true(m.ref_count == 3 && m.refs[0].step == 10 && m.refs[1].step == 20 && m.refs[2].step == 30);
    assert_ptr_equal(m.groups[1].ranks, all[1].ranks);
    assert_ok(bwi_manifest_encode(&m, &out, &err), &err);
    assert_ok(bwi_manifest_decode(bwi_buf_span(&out), &back, &err), &err);
    assert_true(back.groups[2].ranks[1] == 5 && back.groups[2].layout.b[0] == 2 && back.groups[2].content.b[31] == 3);
    bwi_manifest_fini(&m);
    bwi_manifest_fini(&back);
    bwi_buf_fini(&out);
    free(all);
}

static void a_rank_is_found_in_its_group(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_summary *all = summaries_of(3, 4);
    struct bwi_manifest m;
    assert_ok(bwi_manifest_build(all, 3, &some_index, &m, &err), &err);
    for (uint32_t rank = 0; rank < 12; rank++) {
        uint32_t group = 99;
        assert_true(bwi_manifest_group_of_rank(&m, rank, &group));
        assert_int_equal(group, rank % 3);
    }
    uint32_t group = 99;
    assert_false(bwi_manifest_group_of_rank(&m, 12, &group));
    assert_int_equal(group, 99);
    bwi_manifest_fini(&m);
    free(all);
}

typedef void spoil_fn(struct bwi_summary *all);
static void spoil_id(struct bwi_summary *all) {
    all[1].id.tri = 9;
}
static void spoil_uuid(struct bwi_summary *all) {
    all[1].uuid.b[15] = 0xac;
}
static void spoil_group(struct bwi_summary *all) {
    all[1].group = 2;
}
static void spoil_groups(struct bwi_summary *all) {
    all[1].groups = 4;
}
static void spoil_world(struct bwi_summary *all) {
    all[1].world = 7;
}
static void spoil_fan_out(struct bwi_summary *all) {
    all[1].fan_out = false;
}
static void spoil_rank_twice(struct bwi_summary *all) {
    all[1].ranks[0] = 0;
}
static void spoil_rank_missing(struct bwi_summary *all) {
    all[1].rank_count = 1;
}
static void spoil_rank_order(struct bwi_summary *all) {
    all[1].ranks[1] = 1;
}
static void spoil_rank_outside(struct bwi_summary *all) {
    all[1].ranks[1] = 6;
}
static void spoil_rank_count(struct bwi_summary *all) {
    all[1].rank_count = 65;
}
static void spoil_refs(struct bwi_summary *all) {
    for (uint32_t g = 0; g < 3; g++) {
        all[g].ref_count = 3;
        for (uint32_t r = 0; r < 3; r++) all[g].refs[r] = id_of(10 * g + r);
    }
}
static void spoil_ref_count(struct bwi_summary *all) {
    all[1].ref_count = 9;
}
static void spoil_ref_self(struct bwi_summary *all) {
    all[1].ref_count = 1;
    all[1].refs[0] = id_of(500);
}
static void spoil_raw_bytes(struct bwi_summary *all) {
    all[1].raw_bytes = UINT64_MAX;
}
static void spoil_layout_bytes(struct bwi_summary *all) {
    all[1].layout_bytes = UINT64_MAX;
}

static void summaries_that_do_not_agree_are_refused_with_both_values(void **state) {
    (void)state;
    static const struct {
        spoil_fn *spoil;
        int want;
        const char *message;
    } cases[] = {
        {spoil_id, BW_E_FORMAT,
         "group 1 has checkpoint 00000000000000000500.3-00000007.9, group 0 has 00000000000000000500.3-00000007.0"},
        {spoil_uuid, BW_E_FORMAT,
         "group 1 has uuid abababababababababababababababac, group 0 has abababababababababababababababab"},
        {spoil_group, BW_E_FORMAT, "the summary of group 1 says that it is group 2"},
        {spoil_groups, BW_E_FORMAT, "group 1 knows of 4 groups, there are 3"},
        {spoil_world, BW_E_FORMAT, "group 1 has world size 7, group 0 has 6"},
        {spoil_fan_out, BW_E_FORMAT, "group 1 has fan-out off, group 0 has on"},
        {spoil_rank_twice, BW_E_COVERAGE, "rank 0 is in group 0 and in group 1"},
        {spoil_rank_missing, BW_E_COVERAGE, "its groups hold 5 ranks, the world size is 6"},
        {spoil_rank_order, BW_E_FORMAT, "group 1: its ranks do not ascend: 1 before 1"},
        {spoil_rank_outside, BW_E_FORMAT, "group 1: rank 6 is not below the world size 6"},
        {spoil_rank_count, BW_E_FORMAT, "group 1: has 65 ranks"},
        {spoil_refs, BW_E_LIMIT, "group 2 is one too many: all refer to more than 8 others"},
        {spoil_ref_count, BW_E_FORMAT, "group 1 refers to 9 checkpoints"},
        {spoil_ref_self, BW_E_FORMAT, "00000000000000000500.3-00000007.0 refers to itself"},
        {spoil_raw_bytes, BW_E_LIMIT, "the bytes of groups 0 to 1 do not fit 64 bits"},
        {spoil_layout_bytes, BW_E_FORMAT, "group 1: its layout has 18446744073709551615 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_summary *all = summaries_of(3, 2);
        struct bwi_manifest m = {.world = 77};
        cases[i].spoil(all);
        assert_fails(bwi_manifest_build(all, 3, &some_index, &m, &err), cases[i].want, &err, cases[i].message);
        assert_int_equal(m.world, 77);
        free(all);
    }
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_manifest m;
    assert_fails(bwi_manifest_build(NULL, 0, &some_index, &m, &err), BW_E_INVALID, &err,
                 "expected 1 to 999999 groups, found 0");
}

static void a_writer_is_held_to_the_same_rules(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_summary *all = summaries_of(2, 1);
    struct bwi_manifest m;
    struct bwi_buf out = {0};
    assert_ok(bwi_manifest_build(all, 2, &some_index, &m, &err), &err);
    m.raw_bytes++;
    assert_fails(bwi_manifest_encode(&m, &out, &err), BW_E_INVALID, &err, "its groups together");
    m.raw_bytes--;
    m.index.bytes = UINT64_MAX;
    bw_error_clear(&err);
    assert_fails(bwi_manifest_encode(&m, &out, &err), BW_E_LIMIT, &err, "its index has");
    m.index = some_index;
    m.index.boxes = UINT64_MAX;
    bw_error_clear(&err);
    assert_fails(bwi_manifest_encode(&m, &out, &err), BW_E_LIMIT, &err, "its index counts");
    m.index = some_index;
    m.id.step = UINT64_MAX;
    bw_error_clear(&err);
    assert_fails(bwi_manifest_encode(&m, &out, &err), BW_E_LIMIT, &err, "step 18446744073709551615 is above");
    m.id.step = 1;
    all[1].ranks[0] = 0;
    bw_error_clear(&err);
    assert_fails(bwi_manifest_encode(&m, &out, &err), BW_E_INVALID, &err, "rank 0 is in group 0 and in group 1");
    assert_int_equal(out.len, 0);
    bwi_manifest_fini(&m);
    bwi_buf_fini(&out);
    free(all);
}

/* n groups of eight ranks, made, there and back. */
static double seconds_of_a_manifest(size_t n) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_summary *all = summaries_of((uint32_t)n, 8);
    struct bwi_manifest m, back;
    struct bwi_buf out = {0};
    const clock_t start = clock();
    assert_ok(bwi_manifest_build(all, (uint32_t)n, &some_index, &m, &err), &err);
    assert_ok(bwi_manifest_encode(&m, &out, &err), &err);
    assert_ok(bwi_manifest_decode(bwi_buf_span(&out), &back, &err), &err);
    const double took_s = seconds_since(start);
    assert_true(out.len < 300 * n);
    assert_int_equal(back.world, 8 * n);
    uint32_t group = 0;
    assert_true(bwi_manifest_group_of_rank(&back, (uint32_t)(8 * n - 1), &group));
    assert_int_equal(group, n - 1);
    bwi_manifest_fini(&m);
    bwi_manifest_fini(&back);
    bwi_buf_fini(&out);
    free(all);
    return took_s;
}

static void a_large_manifest_stays_small_and_takes_time_by_its_length(void **state) {
    (void)state;
    assert_no_square(seconds_of_a_manifest, 10000);
}

static int whole_life(void *arg, struct bw_error *err) {
    struct bwi_manifest m = {0}, back = {0};
    struct bwi_buf out = {0};
    int rc = bwi_manifest_build(arg, 3, &some_index, &m, err);
    if (rc == 0) rc = bwi_manifest_encode(&m, &out, err);
    if (rc == 0) rc = bwi_manifest_decode(bwi_buf_span(&out), &back, err);
    bwi_manifest_fini(&m);
    bwi_manifest_fini(&back);
    bwi_buf_fini(&out);
    return rc;
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void **state) {
    (void)state;
    struct bwi_summary *all = summaries_of(3, 2);
    survives_without_memory(whole_life, all);
    free(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manifest_goes_both_ways),
        cmocka_unit_test(a_manifest_is_refused_where_it_breaks_a_rule),
        cmocka_unit_test(members_of_a_newer_minor_version_are_passed_over),
        cmocka_unit_test(a_manifest_is_built_from_summaries),
        cmocka_unit_test(a_rank_is_found_in_its_group),
        cmocka_unit_test(summaries_that_do_not_agree_are_refused_with_both_values),
        cmocka_unit_test(a_writer_is_held_to_the_same_rules),
        cmocka_unit_test(a_large_manifest_stays_small_and_takes_time_by_its_length),
        cmocka_unit_test(every_failed_allocation_is_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests_name("format/manifest", tests, NULL, NULL);
}
