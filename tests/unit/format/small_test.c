/* SPDX-License-Identifier: Apache-2.0 */
/* store.json, inventories, marks, refusals and ends of eras. */
#include "format/history.h"
#include "json_fixture.h"

/* --- store.json --- */

static int decode_store(struct bwi_span in, struct bw_error *err) {
    struct bwi_store_id s;
    return bwi_store_id_decode(in, &s, err);
}

static void store_json_goes_both_ways(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_store_id s;
    struct bwi_buf out = {0};
    const struct bwi_span in = fixture("good-store.json");
    assert_ok(bwi_store_id_decode(in, &s, &err), &err);
    assert_true(s.id.b[0] == 0x57 && s.id.b[1] == 0x07);
    assert_ok(bwi_store_id_encode(&s, &out, &err), &err);
    assert_true(bwi_span_eq(in, bwi_buf_span(&out)));
    detects_every_bit(in, decode_store);
    refuses_every_cut(in, decode_store, BW_E_CORRUPT);
    bwi_buf_fini(&out);
    span_free(in);
}

static void store_json_is_refused_where_it_breaks_a_rule(void **state) {
    (void)state;
    static const struct refusal rules[] = {
        {"id", NULL, "store.json: member \"id\": expected 32 hex digits, found nothing"},
        {"id", "\"5707E1D5707e1d5707e1d5707e1d5707\"", "expected 32 hex digits"},
        {"name", "\"x\"", "store.json: unknown member \"name\""},
        {"format", "\"breakwater-failed\"", "expected \"breakwater-store\", found \"breakwater-failed\""},
        {"version", "[0,1]", "version 0.1, which never existed"},
    };
    refuses_all(rules, sizeof rules / sizeof rules[0], "good-store.json", true, decode_store);
    struct bw_error err = BW_ERROR_INIT;
    const char byte = '{';
    assert_fails(decode_store(bwi_span(&byte, (1u << 20) + 1), &err), BW_E_FORMAT, &err,
                 "expected at most 1048576 bytes");
}

/* --- inventories --- */

static int decode_inventory(struct bwi_span in, struct bw_error *err) {
    struct bwi_inventory v;
    const int rc = bwi_inventory_decode(in, &v, err);
    if (rc == 0) bwi_inventory_fini(&v);
    return rc;
}

static void an_inventory_goes_both_ways(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_inventory v;
    struct bwi_buf out = {0};
    const struct bwi_span in = fixture("good-inventory.json");
    assert_ok(bwi_inventory_decode(in, &v, &err), &err);
    assert_string_equal(v.launch, "slurm-4711-0-3");
    assert_string_equal(v.job, "slurm-4711");
    assert_true(v.group == 1 && v.groups == 2 && v.world == 4 && v.rank_count == 2);
    assert_true(v.ranks[0] == 2 && v.writers[0] == 0xab && v.writers[1] == UINT64_C(0xfedcba9876543210));
    assert_true(v.hold_count == 3 && v.holds[1].group == 1 && v.holds[2].id.tri == 1 && v.holds[2].uuid.b[2] == 0x22);
    assert_true(v.holds[0].ref_count == 0 && v.holds[2].ref_count == 2 && v.holds[2].refs[1].step == 900);
    assert_string_equal(v.host, "node17.cluster.example");
    assert_ok(bwi_inventory_encode(&v, &out, &err), &err);
    assert_true(bwi_span_eq(in, bwi_buf_span(&out)));
    detects_every_bit(in, decode_inventory);
    refuses_every_cut(in, decode_inventory, BW_E_CORRUPT);
    bwi_buf_fini(&out);
    bwi_inventory_fini(&v);
    bwi_inventory_fini(&v);
    bwi_inventory_fini(NULL);
    span_free(in);
}

static void an_inventory_without_holds_is_an_inventory(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_inventory v;
    const struct bwi_span in = mutated("good-inventory.json", "holds", "[]", true);
    assert_ok(bwi_inventory_decode(in, &v, &err), &err);
    assert_true(v.hold_count == 0 && v.holds == NULL);
    bwi_inventory_fini(&v);
    span_free(in);
}

#define ID_900 "\"00000000000000000900.2-0badcafe.0\""

static void an_inventory_is_refused_where_it_breaks_a_rule(void **state) {
    (void)state;
    static const struct refusal rules[] = {
        {"launch", "null", "inventory: member \"launch\": expected a name, found null"},
        {"job", "\"a/b\"", "member \"job\": expected a name"},
        {"group", "2", "group 2 is not one of 2 groups"},
        {"group", "4294967296", "member \"group\""},
        {"groups", "0", "0 groups do not fit a world size of 4"},
        {"groups", "5", "5 groups do not fit a world size of 4"},
        {"world", "16777217", "world size 16777217 is above"},
        {"world", "3", "rank 3 is not below the world size 3"},
        {"ranks", "[]", "expected at least one rank"},
        {"ranks/0/0", "3", "its ranks do not ascend: 3 before 3"},
        {"ranks/1/0", "1", "its ranks do not ascend: 2 before 1"},
        {"ranks/1/1", "171", "rank 1: expected [rank, 16 hex digits]"},
        {"ranks/1", "[3]", "rank 1: expected [rank, 16 hex digits]"},
        {"ranks/1/+", "0", "rank 1: expected [rank, 16 hex digits]"},
        {"ranks", "7", "member \"ranks\": expected an array of at most 64"},
        {"holds", NULL, "member \"holds\""},
        {"holds/0/2", "1", "its holds do not ascend at 00000000000000000900.2-0badcafe.0 of group 1"},
        {"holds/2/0", "\"00000000000000000001.1-00000000.0\"", "its holds do not ascend"},
        {"holds/2/0", "\"1\"", "hold 2: expected [id, uuid, group, [0 to 8 refs]]"},
        {"holds/2/1", "null", "hold 2: expected [id, uuid, group, [0 to 8 refs]]"},
        {"holds/2/3", "null", "hold 2: expected [id, uuid, group, [0 to 8 refs]]"},
        {"holds/2/3", "[1]", "hold 2: expected [id, uuid, group, [0 to 8 refs]]"},
        {"holds/2/3", "[1,2,3,4,5,6,7,8,9]", "hold 2: expected [id, uuid, group, [0 to 8 refs]]"},
        {"holds/2/3/0", ID_900, "hold: its refs do not ascend at 00000000000000000900.2-0badcafe.0"},
        {"holds/1/3/+", ID_900, "hold: 00000000000000000900.2-0badcafe.0 refers to itself"},
        {"holds/2/2", "999999", "hold: group 999999 is not below 999999"},
        {"holds/2/+", "1", "hold 2: expected [id, uuid, group, [0 to 8 refs]]"},
        {"host", "\"a\\nb\"", "its host is not printable ASCII"},
        {"pid", "1", "unknown member \"pid\""},
    };
    refuses_all(rules, sizeof rules / sizeof rules[0], "good-inventory.json", true, decode_inventory);
}

static void a_group_has_at_most_64_ranks(void **state) {
    (void)state;
    for (uint32_t n = 64; n <= 65; n++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_buf out = {0};
        struct bwi_inventory v = {.launch = "l", .job = "j", .groups = 2, .world = 100};
        v.rank_count = n;
        for (uint32_t i = 0; i < 64; i++) v.ranks[i] = i;
        const int rc = bwi_inventory_encode(&v, &out, &err);
        if (n == 64)
            assert_ok(rc, &err);
        else
            assert_fails(rc, BW_E_LIMIT, &err, "inventory: has 65 ranks, at most 64 are allowed");
        bwi_buf_fini(&out);
    }
}

static void a_writer_of_inventories_is_held_to_the_rules(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    struct bwi_inventory v = {.launch = "l", .job = "j", .groups = 1, .world = 1, .rank_count = 1};
    assert_ok(bwi_inventory_encode(&v, &out, &err), &err);
    v.job[0] = '\0';
    assert_fails(bwi_inventory_encode(&v, &out, &err), BW_E_INVALID, &err, "its job is no valid name");
    v.job[0] = 'j';
    memset(v.host, 'h', sizeof v.host);
    bw_error_clear(&err);
    assert_fails(bwi_inventory_encode(&v, &out, &err), BW_E_INVALID, &err, "its host is not printable ASCII");
    bwi_buf_fini(&out);
}

static void an_inventory_tells_what_was_current_when_it_was_made(void **state) {
    (void)state;
    for (int none = 0; none < 2; none++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_inventory v;
        struct bwi_buf out = {0};
        const struct bwi_span in = fixture(none ? "good-inventory-seen-none.json" : "good-inventory-seen.json");
        assert_ok(bwi_inventory_decode(in, &v, &err), &err);
        assert_true(v.seen_told && v.seen_set == !none);
        assert_true(none || (v.seen_number == 2 && v.seen_nonce == 0x0badcafe));
        assert_ok(bwi_inventory_encode(&v, &out, &err), &err);
        assert_true(bwi_span_eq(in, bwi_buf_span(&out)));
        bwi_inventory_fini(&v);
        bwi_buf_fini(&out);
        span_free(in);
    }
    static const struct refusal rules[] = {
        {"seen", NULL, "inventory: seen: expected null or [attempt, 8 hex digits]"},
        {"seen", "[2]", "inventory: seen: expected null or"},
        {"seen", "[2,\"0BADCAFE\"]", "inventory: seen: expected null or"},
        {"seen", "[4294967296,\"0badcafe\"]", "inventory: seen: expected null or"},
        {"seen", "[0,\"0badcafe\"]", "the attempt that it has seen is number 0"},
        {"version", "[1,0]", "inventory: unknown member \"seen\""},
    };
    refuses_all(rules, sizeof rules / sizeof rules[0], "good-inventory-seen.json", true, decode_inventory);
}

/* --- marks --- */

static int decode_failed(struct bwi_span in, struct bw_error *err) {
    struct bwi_mark m;
    return bwi_mark_decode(in, false, &m, err);
}

static int decode_damaged(struct bwi_span in, struct bw_error *err) {
    struct bwi_mark m;
    return bwi_mark_decode(in, true, &m, err);
}

static void marks_go_both_ways(void **state) {
    (void)state;
    for (int damaged = 0; damaged < 2; damaged++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_mark m;
        struct bwi_buf out = {0};
        const struct bwi_span in = fixture(damaged ? "good-damaged.json" : "good-failed.json");
        assert_ok(bwi_mark_decode(in, damaged, &m, &err), &err);
        assert_true(m.id.step == 1000 && m.group == 1 && m.writer == UINT64_C(0xfedcba9876543210));
        assert_int_equal(m.status, damaged ? BW_E_CORRUPT : BW_E_NOSPACE);
        assert_ok(bwi_mark_encode(&m, damaged, &out, &err), &err);
        assert_true(bwi_span_eq(in, bwi_buf_span(&out)));
        detects_every_bit(in, damaged ? decode_damaged : decode_failed);
        refuses_every_cut(in, damaged ? decode_damaged : decode_failed, BW_E_CORRUPT);
        assert_fails(bwi_mark_decode(in, !damaged, &m, &err), BW_E_FORMAT, &err,
                     damaged ? "failed mark: member \"format\"" : "damaged mark: member \"format\"");
        bwi_buf_fini(&out);
        span_free(in);
    }
}

#define LONG_128                                                                                                       \
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" \
    "0123456789abcdef"

static void a_mark_is_refused_where_it_breaks_a_rule(void **state) {
    (void)state;
    static const struct refusal rules[] = {
        {"id", "null", "failed mark: member \"id\": expected a checkpoint id"},
        {"group", "999999", "failed mark: group 999999 is not below 999999"},
        {"writer", "\"\"", "expected 16 hex digits"},
        {"status", "0", "expected a negative status, found 0"},
        {"status", "5", "expected a negative status, found 5"},
        {"status", "-2147483649", "member \"status\": expected 32 bits, found -2147483649"},
        {"status", "\"BW_E_IO\"", "member \"status\": expected an integer"},
        {"reason", "\"a\\nb\"", "its reason is not one line of UTF-8"},
        {"reason", "\"a\\u007fb\"", "its reason is not one line of UTF-8"},
        {"reason", "\"a\\u009bb\"", "its reason is not one line of UTF-8"},
        {"reason", "\"" LONG_128 LONG_128 LONG_128 LONG_128 "\"", "expected at most 511 bytes, found 512"},
        {"pid", "1", "unknown member \"pid\""},
    };
    refuses_all(rules, sizeof rules / sizeof rules[0], "good-failed.json", true, decode_failed);
}

static void a_mark_keeps_a_status_that_this_release_does_not_know(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_mark m;
    const struct bwi_span in = mutated("good-failed.json", "status", "-2147483648", true);
    assert_ok(bwi_mark_decode(in, false, &m, &err), &err);
    assert_true(m.status == INT32_MIN);
    span_free(in);
}

static void a_writer_of_marks_is_held_to_the_rules(void **state) {
    (void)state;
    struct bwi_buf out = {0};
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_mark m = {.id = {.attempt = 1}, .status = BW_E_IO};
    assert_ok(bwi_mark_encode(&m, false, &out, &err), &err);
    m.status = 0;
    assert_fails(bwi_mark_encode(&m, false, &out, &err), BW_E_INVALID, &err, "expected a negative status");
    m.status = BW_E_IO;
    m.id.step = UINT64_MAX;
    bw_error_clear(&err);
    assert_fails(bwi_mark_encode(&m, true, &out, &err), BW_E_LIMIT, &err, "damaged mark: step 18446744073709551615");
    m.id.step = 0;
    m.id.attempt = 0;
    bw_error_clear(&err);
    assert_fails(bwi_mark_encode(&m, true, &out, &err), BW_E_INVALID, &err, "step 0 is of attempt 0");
    m.id.attempt = 1;
    memset(m.reason, 'r', sizeof m.reason);
    bw_error_clear(&err);
    assert_fails(bwi_mark_encode(&m, true, &out, &err), BW_E_INVALID, &err, "its reason is not one line");
    bwi_buf_fini(&out);
}

/* --- refusals --- */

static int decode_refused(struct bwi_span in, struct bw_error *err) {
    struct bwi_refusal r;
    return bwi_refusal_decode(in, &r, err);
}

static void a_refusal_goes_both_ways(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_refusal r;
    struct bwi_buf out = {0};
    const struct bwi_span in = fixture("good-refused.json");
    assert_ok(bwi_refusal_decode(in, &r, &err), &err);
    assert_string_equal(r.launch, "slurm-4711-0-3");
    assert_true(r.writer == 0xab && r.status == BW_E_NOTFOUND);
    assert_string_equal(r.reason, "resolve: no committed checkpoint of step 700 to go back to");
    assert_ok(bwi_refusal_encode(&r, &out, &err), &err);
    assert_true(bwi_span_eq(in, bwi_buf_span(&out)));
    detects_every_bit(in, decode_refused);
    refuses_every_cut(in, decode_refused, BW_E_CORRUPT);
    bwi_buf_fini(&out);
    span_free(in);
}

static void a_refusal_is_refused_where_it_breaks_a_rule(void **state) {
    (void)state;
    static const struct refusal rules[] = {
        {"launch", "\"a/b\"", "refusal: member \"launch\": expected"},
        {"launch", "null", "refusal: member \"launch\": expected"},
        {"writer", "\"AB\"", "expected 16 hex digits"},
        {"status", "0", "expected a negative status, found 0"},
        {"status", "2147483648", "member \"status\": expected 32 bits, found 2147483648"},
        {"reason", "\"a\\nb\"", "its reason is not one line of UTF-8"},
        {"reason", "\"" LONG_128 LONG_128 LONG_128 LONG_128 "\"", "expected at most 511 bytes, found 512"},
        {"rank", "0", "unknown member \"rank\""},
        {"format", "\"breakwater-failed\"", "expected \"breakwater-refused\""},
    };
    refuses_all(rules, sizeof rules / sizeof rules[0], "good-refused.json", true, decode_refused);
}

static void a_writer_of_refusals_is_held_to_the_rules(void **state) {
    (void)state;
    struct bwi_buf out = {0};
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_refusal r = {.launch = "l", .status = BW_E_IO};
    assert_ok(bwi_refusal_encode(&r, &out, &err), &err);
    r.status = 1;
    assert_fails(bwi_refusal_encode(&r, &out, &err), BW_E_INVALID, &err, "expected a negative status");
    r.status = BW_E_IO;
    memset(r.reason, 'r', sizeof r.reason);
    bw_error_clear(&err);
    assert_fails(bwi_refusal_encode(&r, &out, &err), BW_E_INVALID, &err, "its reason is not one line");
    r.reason[0] = r.launch[0] = '\0';
    bw_error_clear(&err);
    assert_fails(bwi_refusal_encode(&r, &out, &err), BW_E_INVALID, &err, "its launch is no valid name");
    bwi_buf_fini(&out);
}

/* --- ends of eras --- */

static int decode_era_end(struct bwi_span in, struct bw_error *err) {
    struct bwi_era_end e;
    return bwi_era_end_decode(in, &e, err);
}

static void an_end_of_an_era_goes_both_ways(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_era_end e;
    struct bwi_buf out = {0};
    const struct bwi_span in = fixture("good-era-end.json");
    assert_ok(bwi_era_end_decode(in, &e, &err), &err);
    assert_string_equal(e.run, "gpt-small");
    assert_true(e.era == 1 && e.n == 1235);
    assert_ok(bwi_era_end_encode(&e, &out, &err), &err);
    assert_true(bwi_span_eq(in, bwi_buf_span(&out)));
    detects_every_bit(in, decode_era_end);
    refuses_every_cut(in, decode_era_end, BW_E_CORRUPT);
    e.n = 0;
    assert_fails(bwi_era_end_encode(&e, &out, &err), BW_E_INVALID, &err, "expected an n above 0, found 0");
    bwi_buf_fini(&out);
    span_free(in);
}

static void an_end_of_an_era_is_refused_where_it_breaks_a_rule(void **state) {
    (void)state;
    static const struct refusal rules[] = {
        {"run", "\"a/b\"", "end of era: member \"run\": expected"},
        {"era", "0", "expected an era from 1 to 999999, found 0"},
        {"era", "1000000", "expected an era from 1 to 999999, found 1000000"},
        {"n", "0", "expected an n above 0, found 0"},
        {"n", "-1", "end of era: member \"n\": expected"},
        {"rank", "0", "unknown member \"rank\""},
        {"format", "\"breakwater-history\"", "expected \"breakwater-era-end\""},
    };
    refuses_all(rules, sizeof rules / sizeof rules[0], "good-era-end.json", true, decode_era_end);
}

/* --- all of them --- */

static void newer_major_versions_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *name;
        decode_fn *decode;
        const char *message;
    } cases[] = {
        {"newer-store.json", decode_store, "store.json: has format \"breakwater-store\" version 2.0"},
        {"newer-inventory.json", decode_inventory, "inventory: has format \"breakwater-inventory\" version 2.0"},
        {"newer-failed.json", decode_failed, "failed mark: has format \"breakwater-failed\" version 2.0"},
        {"newer-damaged.json", decode_damaged, "damaged mark: has format \"breakwater-damaged\" version 2.0"},
        {"newer-refused.json", decode_refused, "refusal: has format \"breakwater-refused\" version 2.0"},
        {"newer-era-end.json", decode_era_end, "end of era: has format \"breakwater-era-end\" version 2.0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bw_error err = BW_ERROR_INIT;
        const struct bwi_span in = fixture(cases[i].name);
        assert_fails(cases[i].decode(in, &err), BW_E_VERSION, &err, cases[i].message);
        span_free(in);
    }
}

static int all_of_them(void *arg, struct bw_error *err) {
    (void)arg;
    struct bwi_hold holds[2] = {{.id = {.step = 1, .attempt = 1}},
                                {.id = {.step = 2, .attempt = 1}, .ref_count = 1, .refs = {{.step = 1, .attempt = 1}}}};
    const struct bwi_inventory v = {
        .launch = "l", .job = "j", .groups = 1, .world = 1, .rank_count = 1, .holds = holds, .hold_count = 2};
    const struct bwi_mark m = {.id = {.attempt = 1}, .status = BW_E_IO};
    const struct bwi_refusal r = {.launch = "l", .status = BW_E_IO};
    const struct bwi_store_id s = {0};
    struct bwi_inventory back = {0};
    struct bwi_buf out = {0};
    int rc = bwi_store_id_encode(&s, &out, err);
    if (rc == 0) rc = bwi_mark_encode(&m, true, &out, err);
    if (rc == 0) rc = bwi_refusal_encode(&r, &out, err);
    bwi_buf_reset(&out);
    if (rc == 0) rc = bwi_inventory_encode(&v, &out, err);
    if (rc == 0) rc = bwi_inventory_decode(bwi_buf_span(&out), &back, err);
    bwi_inventory_fini(&back);
    bwi_buf_fini(&out);
    return rc;
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void **state) {
    (void)state;
    survives_without_memory(all_of_them, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_json_goes_both_ways),
        cmocka_unit_test(store_json_is_refused_where_it_breaks_a_rule),
        cmocka_unit_test(an_inventory_goes_both_ways),
        cmocka_unit_test(an_inventory_tells_what_was_current_when_it_was_made),
        cmocka_unit_test(an_inventory_without_holds_is_an_inventory),
        cmocka_unit_test(an_inventory_is_refused_where_it_breaks_a_rule),
        cmocka_unit_test(a_group_has_at_most_64_ranks),
        cmocka_unit_test(a_writer_of_inventories_is_held_to_the_rules),
        cmocka_unit_test(marks_go_both_ways),
        cmocka_unit_test(a_mark_is_refused_where_it_breaks_a_rule),
        cmocka_unit_test(a_mark_keeps_a_status_that_this_release_does_not_know),
        cmocka_unit_test(a_writer_of_marks_is_held_to_the_rules),
        cmocka_unit_test(an_end_of_an_era_goes_both_ways),
        cmocka_unit_test(an_end_of_an_era_is_refused_where_it_breaks_a_rule),
        cmocka_unit_test(a_refusal_goes_both_ways),
        cmocka_unit_test(a_refusal_is_refused_where_it_breaks_a_rule),
        cmocka_unit_test(a_writer_of_refusals_is_held_to_the_rules),
        cmocka_unit_test(newer_major_versions_are_refused_by_name),
        cmocka_unit_test(every_failed_allocation_is_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests_name("format/small", tests, NULL, NULL);
}
