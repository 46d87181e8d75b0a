/* SPDX-License-Identifier: Apache-2.0 */
/* History entries: round trips, and every rule that binds an entry by itself. The fixtures are written by another
 * encoder (tests/golden/format/json/make_json.py). */
#include "format/history.h"
#include "growth.h"
#include "json_fixture.h"

#define FULL  "good-entry-full.json"
#define FIRST "good-entry-first.json"

static int decode(struct bwi_span in, struct bw_error *err) {
    struct bwi_entry e;
    const int rc = bwi_entry_decode(in, &e, err);
    if (rc == 0) bwi_entry_fini(&e);
    return rc;
}

static struct bwi_entry decoded(const char *name) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_entry e;
    const struct bwi_span in = fixture(name);
    assert_ok(bwi_entry_decode(in, &e, &err), &err);
    span_free(in);
    return e;
}

static void assert_encodes_as(const struct bwi_entry *e, const char *name) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    const struct bwi_span want = fixture(name);
    assert_ok(bwi_entry_encode(e, &out, &err), &err);
    bwi_buf_u8(&out, 0);
    assert_string_equal(out.ptr, want.ptr);
    bwi_buf_fini(&out);
    span_free(want);
}

static void the_first_entry_is_decoded_member_by_member(void **state) {
    (void)state;
    struct bwi_entry e = decoded(FIRST);
    assert_string_equal(e.run, "gpt-small");
    assert_true(e.era == 1 && e.n == 1 && bwi_sha_is_zero(&e.prev));
    assert_true(e.lineage_count == 1 && e.lineage[0].era == 1 && e.lineage[0].n == 1 && e.lineage[0].uuid.b[1] == 0x11);
    assert_true(e.store.b[0] == 0x57 && e.writer == 0xab && e.time_ms == INT64_C(1760000000000));
    assert_string_equal(e.host, "node1");
    assert_int_equal(e.event.type, BWI_EVENT_REGISTER);
    assert_string_equal(e.event.mode, "default");
    assert_string_equal(e.event.label, "");
    assert_string_equal(e.event.note, "");
    assert_true(e.attempt.set && e.attempt.number == 1 && e.attempt.nonce == 0x0badcafe && e.attempt.world == 2);
    assert_string_equal(e.attempt.job, "slurm-4711");
    assert_string_equal(e.attempt.launch, "slurm-4711-0-0");
    assert_true(!e.from.set && !e.h_set && e.try_count == 0 && e.live_count == 0 && e.shelved_count == 0);
    assert_int_equal(e.launch_count, 1);
    assert_encodes_as(&e, FIRST);
    bwi_entry_fini(&e);
}

static void a_full_entry_is_decoded_member_by_member(void **state) {
    (void)state;
    struct bwi_entry e = decoded(FULL);
    assert_true(e.lineage_count == 2 && e.lineage[1].era == 3 && e.lineage[1].n == 40 && e.era == 3 && e.n == 57);
    assert_true(e.event.type == BWI_EVENT_COMMIT && e.event.id_count == 1 && e.event.ids[0].step == 400);
    assert_string_equal(e.event.note, "two groups, 3 \xc2\xb5s after the last");
    assert_true(e.attempt.fan_out && e.attempt.world == 128 && e.attempt.groups == 66);
    assert_true(e.from.set && e.from.open && !e.from.fan_out && e.from.ref_count == 2 && e.from.refs[1].step == 200);
    assert_true(e.h_set && e.h == 400 && e.try_count == 2);
    assert_true(e.tries[1].step == INT64_MAX && e.tries[1].tri == UINT32_MAX);
    assert_int_equal(e.live_count, 3);
    assert_true(e.live[1].bytes == INT64_MAX && e.live[1].pinned && e.live[1].refs[0].step == 100);
    assert_true(e.live[2].id.attempt == 3 && e.live[2].id.nonce == 0xdeadbeef && e.live[2].ref_count == 2);
    assert_true(e.shelved_count == 2 && e.shelved[0].time_ms == -1 && e.shelved[0].id.tri == 2);
    assert_string_equal(e.labels[0], "back-to-300");
    assert_string_equal(e.superseded[0], "slurm-4000");
    assert_encodes_as(&e, FULL);
    bwi_entry_fini(&e);
    bwi_entry_fini(&e); /* twice is harmless */
    bwi_entry_fini(NULL);
}

static void a_copy_shares_nothing_with_its_original(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_entry e = decoded(FULL), copy;
    assert_ok(bwi_entry_copy(&e, &copy, &err), &err);
    assert_ptr_not_equal(copy.live, e.live);
    bwi_entry_fini(&e);
    assert_encodes_as(&copy, FULL);
    bwi_entry_fini(&copy);
}

static void members_of_a_newer_minor_version_are_passed_over(void **state) {
    (void)state;
    struct bwi_entry e = decoded("good-entry-newer-minor.json");
    assert_encodes_as(&e, FULL);
    bwi_entry_fini(&e);
}

static void event_names_are_those_of_the_format(void **state) {
    (void)state;
    static const char *const names[] = {"register", "commit", "abort", "retire", "pin", "unpin", "repair", "promote"};
    for (int i = 0; i < 8; i++) assert_string_equal(bwi_event_name((enum bwi_event)(i + 1)), names[i]);
    assert_string_equal(bwi_event_name((enum bwi_event)0), "?");
    assert_string_equal(bwi_event_name((enum bwi_event)9), "?");
}

#define ID_100  "\"00000000000000000100.1-0badcafe.0\""
#define ID_200  "\"00000000000000000200.1-0badcafe.0\""
#define ID_300  "\"00000000000000000300.2-00c0ffee.0\""
#define LONG_64 "\"0123456789012345678901234567890123456789012345678901234567890123\""

#define KEPT(id) "{\"id\":" id ",\"manifest\":" LONG_64 ",\"bytes\":0,\"refs\":[],\"time_ms\":0,\"pinned\":false}"

static const struct refusal rules[] = {
    /* identity */
    {"run", "\"../x\"", "member \"run\": expected a name"},
    {"run", "null", "member \"run\""},
    {"store", "\"5707\"", "member \"store\": expected 32 hex digits"},
    {"era", "0", "era 0 is not from 1 to 999999"},
    {"era", "1000000", "era 1000000 is not from 1 to 999999"},
    {"era", "2", "its lineage ends with era 3, the entry is of era 2"},
    {"era", "4294967296", "member \"era\""},
    {"n", "0", "n 0 is not from 1"},
    {"n", "39", "n 39 is below the first n 40 of its era"},
    {"n", "-1", "member \"n\""},
    {"prev", "null", "names no entry before it"},
    {"prev", "\"0000000000000000000000000000000000000000000000000000000000000000\"",
     "expected null or a hash, found zeros"},
    {"prev", "\"00\"", "member \"prev\": expected 64 hex digits"},
    {"prev", NULL, "member \"prev\""},
    {"writer", "\"FEDCBA9876543210\"", "member \"writer\": expected 16 hex digits"},
    {"writer", "7", "member \"writer\""},
    {"time_ms", "null", "member \"time_ms\": expected an integer"},
    {"host", "\"n\\u00e9\"", "its host is not printable ASCII"},
    {"host", "\"a\\tb\"", "its host is not printable ASCII"},
    {"host", LONG_64, "member \"host\": expected at most 63 bytes, found 64"},
    {"h", "-1", "member \"h\""},
    {"surprise", "1", "unknown member \"surprise\""},
    {"lineage", NULL, "member \"lineage\": expected an array"},
    {"format", "\"breakwater-manifest\"", "member \"format\": expected \"breakwater-history\""},
    /* lineage */
    {"lineage", "[]", "its lineage is empty"},
    {"lineage/0/0", "2", "begins with era 2 at n 1, expected era 1 at n 1"},
    {"lineage/0/1", "2", "begins with era 1 at n 2, expected era 1 at n 1"},
    {"lineage/1/0", "1", "its lineage does not ascend at row 1 (era 1, n 40)"},
    {"lineage/1/1", "1", "its lineage does not ascend at row 1 (era 3, n 1)"},
    {"lineage/1/2", "\"x\"", "element 1 of \"lineage\": expected [era, n, uuid]"},
    {"lineage/1", "[3,40]", "element 1 of \"lineage\""},
    {"lineage/1/+", "0", "element 1 of \"lineage\""},
    {"lineage/1", "{}", "element 1 of \"lineage\""},
    /* event */
    {"event", "null", "event: expected an object, found null"},
    {"event/type", "\"explode\"", "there is no event \"explode\""},
    {"event/type", "3", "event: member \"type\""},
    {"event/type", "\"promote\"", "event \"promote\" cannot be about 1 checkpoints"},
    {"event/ids", "[]", "event \"commit\" cannot be about 0 checkpoints"},
    {"event/ids", "[" ID_100 "," ID_200 "]", "event \"commit\" cannot be about 2 checkpoints"},
    {"event/ids/0", "\"400\"", "element 0 of \"ids\": expected a checkpoint id"},
    {"event/ids", "3", "event: member \"ids\""},
    {"event/label", "\"x\"", "event \"commit\" has a label or a mode"},
    {"event/mode", "\"fresh\"", "event \"commit\" has a label or a mode"},
    {"event/mode", "\"abcdefghijklmnop\"", "there is no mode \"abcdefghijklmnop\""},
    {"event/label", "\"a b\"", "event: member \"label\": expected a name or null"},
    {"event/note", "\"a\\nb\"", "the event's note is not one line of UTF-8"},
    {"event/note", "\"a\\u0085b\"", "the event's note is not one line of UTF-8"},
    {"event/note", NULL, "event: member \"note\""},
    {"event/extra", "1", "event: unknown member \"extra\""},
    /* attempt */
    {"attempt", "[]", "attempt: expected an object, found an array of 0"},
    {"attempt/number", "0", "attempts count from 1, found 0"},
    {"attempt/nonce", "\"beef\"", "attempt: member \"nonce\": expected 8 hex digits"},
    {"attempt/nonce", "\"DEADBEEF\"", "attempt: member \"nonce\""},
    {"attempt/job", "null", "an attempt has a job and a launch, or neither"},
    {"attempt/launch", "null", "an attempt has a job and a launch, or neither"},
    {"attempt/launch", "\"\"", "attempt: member \"launch\": expected a name or null"},
    {"attempt/world", "0", "attempt: 66 groups do not fit a world size of 0"},
    {"attempt/world", "65", "attempt: 66 groups do not fit a world size of 65"},
    {"attempt/world", "16777217", "attempt: world size 16777217 is above 16777216"},
    {"attempt/groups", "0", "attempt: 0 groups do not fit"},
    {"attempt/groups", "1000000", "attempt: 1000000 groups are above 999999"},
    {"attempt/fan_out", "1", "attempt: member \"fan_out\": expected true or false"},
    {"attempt/extra", "1", "attempt: unknown member"},
    /* from */
    {"from", "1", "from: expected an object, found 1"},
    {"from/id", "null", "from: member \"id\": expected a checkpoint id"},
    {"from/groups", "3", "from: 3 groups do not fit a world size of 2"},
    {"from/open", "null", "from: member \"open\""},
    {"from/refs", "[" ID_200 "," ID_100 "]", "from: its refs do not ascend"},
    {"from/refs", "[" ID_100 "," ID_100 "]", "from: its refs do not ascend"},
    {"from/refs", "[" ID_300 "]", "from: 00000000000000000300.2-00c0ffee.0 refers to itself"},
    {"from/refs", "[1,2,3,4,5,6,7,8,9]", "from: member \"refs\": expected an array of at most 8"},
    {"from/refs/0", "1", "element 0 of \"refs\": expected a checkpoint id"},
    {"from/extra", "1", "from: unknown member"},
    /* tries */
    {"tries/0/1", "0", "try 0 of step 401 is listed"},
    {"tries/0/0", "400", "a try of step 400 is listed, which is not above h 400"},
    {"tries/1/0", "401", "its tries do not ascend at step 401"},
    {"tries/1", "[402]", "element 1 of \"tries\": expected [step, try]"},
    {"tries/1/+", "0", "element 1 of \"tries\""},
    {"tries/1/1", "4294967296", "element 1 of \"tries\""},
    {"tries", "{}", "member \"tries\""},
    /* checkpoints */
    {"ids/0", ID_200, "element 1 of \"ids\": expected an id above the one before it"},
    {"ids/0", "0", "element 0 of \"ids\": expected a checkpoint id"},
    {"ids/+", "\"00000000000000000401.3-deadbeef.1\"", "element 5 of \"ids\": expected every id to be used"},
    {"live/0/id", "5", "live 0: member \"id\": expected a number of one of 5 ids"},
    {"live/0/id", "-1", "live 0: member \"id\""},
    {"live/0/id", ID_100, "live 0: member \"id\""},
    {"live/0/manifest", "\"\"", "live 0: member \"manifest\": expected 64 hex digits"},
    {"live/0/bytes", "-1", "live 0: member \"bytes\""},
    {"live/0/time_ms", "\"now\"", "live 0: member \"time_ms\""},
    {"live/0/pinned", "0", "live 0: member \"pinned\""},
    {"live/0/refs", "[0]", "00000000000000000100.1-0badcafe.0 refers to itself"},
    {"live/2/refs", "[1,0]", "its refs do not ascend"},
    {"live/2/refs", "[0,0]", "its refs do not ascend"},
    {"live/2/refs", "[0,5]", "live 2: ref 1: expected a number of one of 5 ids"},
    {"live/2/refs", "[0,1,2,3,0,1,2,3,0]", "live 2: member \"refs\": expected an array of at most 8"},
    {"live/2/extra", "1", "live 2: unknown member \"extra\""},
    {"live/2", "4", "live 2: expected an object, found 4"},
    {"live/1/id", "4", "the steps of its live checkpoints do not ascend at 00000000000000000400"},
    {"shelved", "[" KEPT("3") "," KEPT("2") "]", "the ids of its shelved checkpoints do not ascend"},
    {"shelved/+", KEPT("4"), "is both live and shelved"},
    {"shelved", "null", "member \"shelved\""},
    /* names */
    {"labels/0", "\"again\"", "label \"again\" is listed twice"},
    {"labels/0", "\"\"", "element 0 of \"labels\": expected a name"},
    {"launches/0", "\"slurm-4711-0-3\"", "launch \"slurm-4711-0-3\" is listed twice"},
    {"launches/0", "null", "element 0 of \"launches\""},
    {"superseded/+", "\"slurm-4000\"", "superseded job \"slurm-4000\" is listed twice"},
    {"superseded", NULL, "member \"superseded\""},
};

static const struct refusal rules_of_the_first[] = {
    {"prev", "\"1111111111111111111111111111111111111111111111111111111111111111\"",
     "the first of all names an entry before it"},
    {"event/mode", "null", "there is no mode \"\" of register"},
    {"event/mode", "\"backwards\"", "there is no mode \"backwards\" of register"},
    {"event/ids", "[" ID_100 "," ID_200 "]", "event \"register\" cannot be about 2 checkpoints"},
    {"h", "1.0", "expected integers only"},
};

static void each_rule_is_refused_with_a_message_that_names_it(void **state) {
    (void)state;
    refuses_all(rules, sizeof rules / sizeof rules[0], FULL, true, decode);
    refuses_all(rules_of_the_first, sizeof rules_of_the_first / sizeof rules_of_the_first[0], FIRST, true, decode);
}

static void every_member_is_required(void **state) {
    (void)state;
    const struct bwi_span in = fixture(FULL);
    json_t *root = json_loadb((const char *)in.ptr, in.len, 0, NULL), *child;
    const char *key;
    size_t members = 0;
    json_object_foreach(root, key, child) {
        if (strcmp(key, "~sha256") == 0) continue;
        const struct bwi_span without = mutated(FULL, key, NULL, true);
        struct bw_error err = BW_ERROR_INIT;
        assert_fails(decode(without, &err), BW_E_FORMAT, &err, key);
        span_free(without);
        members++;
    }
    assert_int_equal(members, 22);
    json_decref(root);
    span_free(in);
}

static void what_is_allowed_at_the_edges_is_taken(void **state) {
    (void)state;
    static const struct {
        const char *path, *value;
    } edges[] = {
        {"attempt", "null"},
        {"from", "null"},
        {"h", "0"},
        {"h", "null"},
        {"tries", "[]"},
        {"host", "\"\""},
        {"attempt", "{\"number\":4,\"nonce\":\"00000000\",\"job\":null,\"launch\":null,\"world\":0,\"groups\":0,\"fan_"
                    "out\":false}"},
        {"event", "{\"type\":\"repair\",\"ids\":[],\"label\":null,\"mode\":null,\"note\":\"\"}"},
        {"event", "{\"type\":\"promote\",\"ids\":[],\"label\":null,\"mode\":null,\"note\":\"\"}"},
        {"event", "{\"type\":\"retire\",\"ids\":[" ID_200 "," ID_100 "],\"label\":null,\"mode\":null,\"note\":\"\"}"},
        {"event", "{\"type\":\"register\",\"ids\":[" ID_300 "],\"label\":\"b\",\"mode\":\"rollback\",\"note\":\"\"}"},
    };
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_entry e;
        struct bwi_buf out = {0};
        const struct bwi_span in = mutated(FULL, edges[i].path, edges[i].value, true);
        assert_ok(bwi_entry_decode(in, &e, &err), &err);
        assert_ok(bwi_entry_encode(&e, &out, &err), &err);
        assert_true(bwi_span_eq(in, bwi_buf_span(&out)));
        bwi_buf_fini(&out);
        bwi_entry_fini(&e);
        span_free(in);
    }
}

static void damage_is_told_from_malformation(void **state) {
    (void)state;
    const struct bwi_span in = fixture(FIRST), full = fixture(FULL);
    detects_every_bit(in, decode);
    refuses_every_cut(full, decode, BW_E_CORRUPT);
    span_free(in);
    span_free(full);
}

/* Digits and letters changed under a seal that is right: what is accepted all the same is written again as it was. */
static void what_is_accepted_is_canonical(void **state) {
    (void)state;
    uint64_t rng = test_seed(815);
    const struct bwi_span in = fixture(FULL);
    const size_t digits = in.len - 66;
    uint8_t *copy = malloc(in.len + 1);
    assert_non_null(copy);
    size_t accepted = 0;
    for (int round = 0; round < 20000; round++) {
        memcpy(copy, in.ptr, in.len + 1);
        const uint64_t r = test_random(&rng);
        copy[r % digits] = (uint8_t) "0123456789abcdef\"[]{},:-.\\ "[(r >> 32) % 27];
        const struct bwi_sha sha = bwi_sha_of(bwi_span(copy, digits));
        char hex[BWI_SHA_HEX_BYTES];
        bwi_sha_hex(&sha, hex);
        memcpy(copy + digits, hex, 64);
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_entry e;
        if (bwi_entry_decode(bwi_span(copy, in.len), &e, &err) < 0) continue;
        if (strstr((char *)copy, "\"version\":[1,0]") != NULL) {
            struct bwi_buf out = {0};
            assert_ok(bwi_entry_encode(&e, &out, &err), &err);
            assert_memory_equal(out.ptr, copy, in.len);
            bwi_buf_fini(&out);
            accepted++;
        }
        bwi_entry_fini(&e);
    }
    assert_true(accepted > 100);
    free(copy);
    span_free(in);
}

static void a_newer_major_version_is_refused_by_name(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    const struct bwi_span in = fixture("newer-entry.json");
    assert_fails(decode(in, &err), BW_E_VERSION, &err,
                 "history entry: has format \"breakwater-history\" version 2.0, this release reads up to 1.x");
    span_free(in);
}

static void an_entry_above_its_limit_is_not_even_looked_at(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    const char byte = '{';
    assert_fails(decode(bwi_span(&byte, (64u << 20) + 1), &err), BW_E_FORMAT, &err,
                 "expected at most 67108864 bytes, found 67108865");
}

/* The writer's side: what a caller gets wrong. */
typedef void spoil_fn(struct bwi_entry *e);
static void spoil_run(struct bwi_entry *e) {
    e->run[0] = '/';
}
static void spoil_run_end(struct bwi_entry *e) {
    memset(e->run, 'a', sizeof e->run);
}
static void spoil_n(struct bwi_entry *e) {
    e->n = UINT64_C(1) << 63;
}
static void spoil_prev(struct bwi_entry *e) {
    memset(&e->prev, 0, sizeof e->prev);
}
static void spoil_host(struct bwi_entry *e) {
    memset(e->host, 'a', sizeof e->host);
}
static void spoil_note(struct bwi_entry *e) {
    memset(e->event.note, 'a', sizeof e->event.note);
}
static void spoil_note_utf8(struct bwi_entry *e) {
    e->event.note[0] = (char)0xff;
}
static void spoil_mode(struct bwi_entry *e) {
    memset(e->event.mode, 'a', sizeof e->event.mode);
}
static void spoil_event(struct bwi_entry *e) {
    e->event.type = (enum bwi_event)9;
}
static void spoil_event_step(struct bwi_entry *e) {
    e->event.ids[0].step = UINT64_C(1) << 63;
}
static void spoil_bytes(struct bwi_entry *e) {
    e->live[0].bytes = UINT64_C(1) << 63;
}
static void spoil_refs(struct bwi_entry *e) {
    e->live[0].ref_count = 9;
}
static void spoil_from_refs(struct bwi_entry *e) {
    e->from.ref_count = UINT32_MAX;
}
static void spoil_h(struct bwi_entry *e) {
    e->h = UINT64_C(1) << 63;
}
static void spoil_step(struct bwi_entry *e) {
    e->tries[1].step = UINT64_C(1) << 63;
}
static void spoil_live_attempt(struct bwi_entry *e) {
    e->live[2].id.attempt = 0;
}
static void spoil_ref_attempt(struct bwi_entry *e) {
    e->from.refs[0].attempt = 0;
}
static void spoil_live_step(struct bwi_entry *e) {
    e->live[2].id.step = UINT64_MAX;
}
static void spoil_label(struct bwi_entry *e) {
    memset(e->labels[0], 'a', sizeof e->labels[0]);
}

static void a_writer_is_held_to_the_same_rules(void **state) {
    (void)state;
    static const struct {
        spoil_fn *spoil;
        int want;
        const char *message;
    } cases[] = {
        {spoil_run, BW_E_INVALID, "history entry: its run is no valid name"},
        {spoil_run_end, BW_E_INVALID, "its run is no valid name"},
        {spoil_n, BW_E_LIMIT, "n 9223372036854775808 is not from 1 to 9223372036854775807"},
        {spoil_prev, BW_E_INVALID, "names no entry before it"},
        {spoil_host, BW_E_INVALID, "its host is not printable ASCII"},
        {spoil_note, BW_E_INVALID, "the event's note is not one line of UTF-8"},
        {spoil_note_utf8, BW_E_INVALID, "the event's note is not one line of UTF-8"},
        {spoil_mode, BW_E_INVALID, "the event's mode has no end"},
        {spoil_event, BW_E_INVALID, "there is no event 9"},
        {spoil_event_step, BW_E_LIMIT, "step 9223372036854775808 is above"},
        {spoil_bytes, BW_E_LIMIT, "has 9223372036854775808 bytes"},
        {spoil_refs, BW_E_LIMIT, "refers to 9 checkpoints, at most 8 are allowed"},
        {spoil_from_refs, BW_E_LIMIT, "from: refers to 4294967295 checkpoints"},
        {spoil_h, BW_E_LIMIT, "step 9223372036854775808 is above"},
        {spoil_step, BW_E_LIMIT, "step 9223372036854775808 is above"},
        {spoil_live_step, BW_E_LIMIT, "step 18446744073709551615 is above"},
        {spoil_live_attempt, BW_E_INVALID, "step 400 is of attempt 0, they count from 1"},
        {spoil_ref_attempt, BW_E_INVALID, "from: step 100 is of attempt 0"},
        {spoil_label, BW_E_INVALID, "label 0 is no valid name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_buf out = {0};
        struct bwi_entry e = decoded(FULL);
        cases[i].spoil(&e);
        assert_fails(bwi_entry_encode(&e, &out, &err), cases[i].want, &err, cases[i].message);
        assert_int_equal(out.len, 0);
        bwi_buf_fini(&out);
        bwi_entry_fini(&e);
    }
}

static void at_most_a_thousand_launches_are_kept(void **state) {
    (void)state;
    for (size_t n = 1000; n <= 1001; n++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_buf out = {0};
        struct bwi_entry e = decoded(FIRST);
        bwi_free(e.launches);
        e.launches = bwi_calloc(n, sizeof *e.launches);
        assert_non_null(e.launches);
        for (size_t i = 0; i < n; i++) (void)snprintf(e.launches[i], sizeof e.launches[i], "launch-%zu", i);
        e.launch_count = n;
        const int rc = bwi_entry_encode(&e, &out, &err);
        if (n == 1000)
            assert_ok(rc, &err);
        else
            assert_fails(rc, BW_E_LIMIT, &err, "1001 launches are listed, at most 1000 are kept");
        bwi_buf_fini(&out);
        bwi_entry_fini(&e);
    }
}

static int whole_life(void *arg, struct bw_error *err) {
    struct bwi_entry e = {0}, copy = {0};
    struct bwi_buf out = {0};
    const struct bwi_span *in = arg;
    int rc = bwi_entry_decode(*in, &e, err);
    if (rc == 0) rc = bwi_entry_copy(&e, &copy, err);
    if (rc == 0) rc = bwi_entry_encode(&copy, &out, err);
    if (rc == 0 && !bwi_span_eq(*in, bwi_buf_span(&out))) rc = BW_E_INTERNAL;
    bwi_buf_fini(&out);
    bwi_entry_fini(&e);
    bwi_entry_fini(&copy);
    return rc;
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void **state) {
    (void)state;
    struct bwi_span in = fixture(FULL);
    survives_without_memory(whole_life, &in);
    span_free(in);
}

/* n live checkpoints, each with eight refs, there and back. */
static double seconds_of_an_entry(size_t n) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_entry e = decoded(FIRST), back;
    e.live = bwi_calloc(n, sizeof *e.live);
    assert_non_null(e.live);
    e.live_count = n;
    for (uint64_t i = 0; i < n; i++) {
        e.live[i].id = (struct bwi_id){.step = 1000 * i, .attempt = 1, .nonce = 5};
        e.live[i].ref_count = i < 8 ? (uint32_t)i : 8;
        for (uint64_t r = 0; r < e.live[i].ref_count; r++) e.live[i].refs[r] = e.live[i - e.live[i].ref_count + r].id;
    }
    struct bwi_buf out = {0};
    const clock_t start = clock();
    assert_ok(bwi_entry_encode(&e, &out, &err), &err);
    assert_ok(bwi_entry_decode(bwi_buf_span(&out), &back, &err), &err);
    const double took_s = seconds_since(start);
    assert_true(out.len < n * 260);
    assert_int_equal(back.live_count, n);
    assert_memory_equal(back.live, e.live, n * sizeof *e.live);
    bwi_buf_fini(&out);
    bwi_entry_fini(&e);
    bwi_entry_fini(&back);
    return took_s;
}

static void a_long_entry_is_small_and_takes_time_by_its_length(void **state) {
    (void)state;
    assert_no_square(seconds_of_an_entry, 20000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_entry_is_decoded_member_by_member),
        cmocka_unit_test(a_full_entry_is_decoded_member_by_member),
        cmocka_unit_test(a_copy_shares_nothing_with_its_original),
        cmocka_unit_test(members_of_a_newer_minor_version_are_passed_over),
        cmocka_unit_test(event_names_are_those_of_the_format),
        cmocka_unit_test(each_rule_is_refused_with_a_message_that_names_it),
        cmocka_unit_test(every_member_is_required),
        cmocka_unit_test(what_is_allowed_at_the_edges_is_taken),
        cmocka_unit_test(damage_is_told_from_malformation),
        cmocka_unit_test(what_is_accepted_is_canonical),
        cmocka_unit_test(a_newer_major_version_is_refused_by_name),
        cmocka_unit_test(an_entry_above_its_limit_is_not_even_looked_at),
        cmocka_unit_test(a_writer_is_held_to_the_same_rules),
        cmocka_unit_test(at_most_a_thousand_launches_are_kept),
        cmocka_unit_test(every_failed_allocation_is_reported_and_nothing_leaks),
        cmocka_unit_test(a_long_entry_is_small_and_takes_time_by_its_length),
    };
    return cmocka_run_group_tests_name("format/history", tests, NULL, NULL);
}
