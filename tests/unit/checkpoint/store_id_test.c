/* SPDX-License-Identifier: Apache-2.0 */
/* The identity of a store: made once, agreed on, and missed when it is gone. */
#include "checkpoint/store_id.h"
#include "format/json.h"
#include "group_fixture.h"

#define FILE_NAME "store.json"
#define LATENCY   1000u
#define MAKERS    6
#define OPS       8u /* reading, looking, making, reading again; in two tiers */

static const enum bwi_tier NEAR = BWI_TIER_LOCAL, FAR = BWI_TIER_REMOTE;
static const char *const A_RUN = "runs/run/history/000001.00000000000000000001.json";

static struct bwi_uuid uuid_of(uint8_t first) {
    return (struct bwi_uuid){{first}};
}

static void put_id(struct world *w, enum bwi_tier tier, uint8_t first) {
    const struct bwi_store_id id = {uuid_of(first)};
    struct bwi_buf bytes = {0};
    assert_ok(bwi_store_id_encode(&id, &bytes, NULL), NULL);
    world_put(w, tier, FILE_NAME, bwi_buf_span(&bytes));
    bwi_buf_fini(&bytes);
}

/* What lies there; false: nothing. */
static bool found_id(struct world *w, enum bwi_tier tier, struct bwi_uuid *ret) {
    struct bwi_span bytes = BWI_SPAN_NONE;
    struct bwi_store_id id;
    if (!bwi_bucket_get(w->bucket[tier], FILE_NAME, &bytes)) return false;
    assert_ok(bwi_store_id_decode(bytes, &id, NULL), NULL);
    *ret = id.id;
    return true;
}

static void put_run(struct world *w, enum bwi_tier tier) {
    world_put(w, tier, A_RUN, bwi_span("x", 1));
}

/* Each operation takes its time, so that something else can happen between any two. */
static void slow_down(struct world *w, uint64_t jitter_ns) {
    for (int t = 0; t < BWI_TIERS; t++) {
        bwi_bucket_model(w->bucket[t])->latency_ns = LATENCY;
        bwi_bucket_model(w->bucket[t])->jitter_ns = jitter_ns;
    }
}

static struct bwi_store_ids run_ids(struct world *w, bool create) {
    struct bwi_store_ids s = {.ctx = &w->ctx, .create = create};
    bwi_store_ids_start(&s, w->loop, NULL);
    world_run(w);
    return s;
}

/* The context and the tier say the same. */
static void assert_known(struct world *w, enum bwi_tier tier) {
    struct bwi_uuid found;
    assert_true(found_id(w, tier, &found));
    assert_true(bwi_uuid_eq(&found, &w->ctx.store_id[tier]));
}

static void empty_tiers_get_an_identity_each_and_keep_it(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1, MIB);
    struct bwi_store_ids s = run_ids(&w, true);
    assert_ok(s.task.error.status, &s.task.error);
    assert_known(&w, NEAR);
    assert_known(&w, FAR);
    assert_false(bwi_uuid_eq(&w.ctx.store_id[NEAR], &w.ctx.store_id[FAR]));
    const struct bwi_uuid near = w.ctx.store_id[NEAR], far = w.ctx.store_id[FAR];
    for (int create = 0; create < 2; create++) {
        memset(w.ctx.store_id, 0, sizeof w.ctx.store_id);
        s = run_ids(&w, create);
        assert_ok(s.task.error.status, &s.task.error);
        assert_true(bwi_uuid_eq(&w.ctx.store_id[NEAR], &near) && bwi_uuid_eq(&w.ctx.store_id[FAR], &far));
    }
    world_close(&w);
}

static void a_reader_makes_none(void **state) {
    (void)state;
    for (int t = 0; t < BWI_TIERS; t++) {
        struct world w;
        world_open(&w, 1, MIB);
        put_id(&w, (enum bwi_tier)(1 - t), 7);
        struct bwi_store_ids s = run_ids(&w, false);
        assert_fails(s.task.error.status, BW_E_NOTFOUND, &s.task.error,
                     t == 0
                         ? "local store \"memory:near\": it is no store: there is no \"store.json\" (the next launch "
                           "makes one)"
                         : "remote store \"memory:far\": it is no store: there is no \"store.json\" (the first "
                           "launch in an empty place makes one)");
        assert_int_equal(bwi_bucket_objects(w.bucket[t]), 0);
        world_close(&w);
    }
}

/* ---- it is gone ---- */

static void runs_in_a_remote_store_without_its_identity_are_not_taken_over(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1, MIB);
    put_run(&w, FAR);
    struct bwi_store_ids s = run_ids(&w, true);
    assert_fails(
        s.task.error.status, BW_E_FOREIGN, &s.task.error,
        "remote store \"memory:far\": it holds runs, but \"store.json\" is missing: put that back, or choose an "
        "empty place, or move \"runs/\" into another store and promote each run there (breakwater repair "
        "--promote)");
    assert_int_equal(bwi_bucket_objects(w.bucket[FAR]), 1);
    put_id(&w, FAR, 7);
    s = run_ids(&w, true);
    assert_ok(s.task.error.status, &s.task.error);
    assert_known(&w, FAR);
    world_close(&w);
}

static void a_local_tier_that_has_lost_its_identity_gets_a_new_one(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1, MIB);
    (void)save_group(&w, NEAR, &ID, 0, &LIFE, NULL);
    const size_t objects = bwi_bucket_objects(w.bucket[NEAR]);
    struct bwi_store_ids s = run_ids(&w, true);
    assert_ok(s.task.error.status, &s.task.error);
    assert_known(&w, NEAR);
    assert_int_equal(bwi_bucket_objects(w.bucket[NEAR]), objects + 1);
    world_close(&w);
}

static void a_history_without_an_identity_is_no_local_tier(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1, MIB);
    put_run(&w, NEAR);
    struct bwi_store_ids s = run_ids(&w, true);
    assert_fails(
        s.task.error.status, BW_E_FOREIGN, &s.task.error,
        "local store \"memory:near\": it holds the history of run \"run\", but \"store.json\" is missing: this "
        "is a remote store that has lost it, choose another directory for the local tier");
    assert_int_equal(bwi_bucket_objects(w.bucket[NEAR]), 1);
    world_close(&w);
}

/* ---- it is damaged ---- */

static void a_damaged_identity_says_what_can_be_done(void **state) {
    (void)state;
    static char large[BWI_JSON_SMALL_MAX + 1];
    const struct {
        struct bwi_span bytes;
        int status;
        const char *what;
    } bad[] = {
        {bwi_span("", 0), BW_E_CORRUPT, "store.json: 0 bytes are too few to hold its hash"},
        {bwi_span("damaged", 7), BW_E_CORRUPT, "store.json: 7 bytes are too few to hold its hash"},
        {bwi_span(large, 400), BW_E_CORRUPT, "store.json: "},
        {bwi_span(large, sizeof large), BW_E_FORMAT, "get \"store.json\": has 1048577 bytes, expected at most 1048576"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        for (int at = 0; at < 4; at++) {
            const int t = at / 2;
            struct world w;
            world_open(&w, 1, MIB);
            put_id(&w, (enum bwi_tier)(1 - t), 7);
            world_put(&w, (enum bwi_tier)t, FILE_NAME, bad[i].bytes);
            struct bwi_store_ids s = run_ids(&w, at % 2 == 0);
            assert_fails(s.task.error.status, bad[i].status, &s.task.error, bad[i].what);
            assert_fails(s.task.error.status, bad[i].status, &s.task.error,
                         t == 0
                             ? ": if this is the right directory, remove that file: the next launch makes a new one, "
                               "and what lies beside it stays in use"
                             : ": put a sound copy of it back, or move \"runs/\" into another store and promote each "
                               "run there (breakwater repair --promote)");
            assert_non_null(strstr(s.task.error.message,
                                   t == 0 ? "local store \"memory:near\": " : "remote store \"memory:far\": "));
            world_close(&w);
        }
    }
}

/* As the message says. */
static void a_damaged_local_identity_that_was_removed_is_made_anew(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1, MIB);
    (void)save_group(&w, NEAR, &ID, 0, &LIFE, NULL);
    world_put(&w, NEAR, FILE_NAME, bwi_span("damaged", 7));
    struct bwi_store_ids s = run_ids(&w, true);
    assert_int_equal(s.task.error.status, BW_E_CORRUPT);
    assert_true(bwi_bucket_remove(w.bucket[NEAR], FILE_NAME));
    s = run_ids(&w, true);
    assert_ok(s.task.error.status, &s.task.error);
    assert_known(&w, NEAR);
    assert_true(has_summary(&w, NEAR, &ID, 0));
    world_close(&w);
}

/* It is not damaged: nothing is to be removed. */
static void an_identity_that_cannot_be_read_or_is_newer_comes_without_advice(void **state) {
    (void)state;
    for (int newer = 0; newer < 2; newer++) {
        struct world w;
        struct bwi_buf bytes = {0};
        bool failed = false;
        world_open(&w, 1, MIB);
        json_t *o = bwi_json_start("breakwater-store", newer ? 2 : 1, 0, &failed);
        const struct bwi_uuid id = uuid_of(7);
        bwi_json_set(o, "id", bwi_json_of_uuid(&id), &failed);
        assert_ok(bwi_json_finish(o, failed, true, BWI_JSON_SMALL_MAX, FILE_NAME, &bytes, NULL), NULL);
        world_put(&w, NEAR, FILE_NAME, bwi_buf_span(&bytes));
        if (!newer) bwi_bucket_fail_next(w.bucket[NEAR], BWI_STORE_GET, FILE_NAME, BW_E_IO, false);
        struct bwi_store_ids s = run_ids(&w, true);
        assert_fails(s.task.error.status, newer ? BW_E_VERSION : BW_E_IO, &s.task.error,
                     "local store \"memory:near\": ");
        assert_null(strstr(s.task.error.message, "remove"));
        bwi_buf_fini(&bytes);
        world_close(&w);
    }
}

/* ---- several at once ---- */

/* Another maker creates the identity after `first` turns and a run after `second`: whatever we saw of it, we end with
 * the identity that lies there. Returns whether we saw the run before the identity. */
static bool overtaken(enum bwi_tier tier, uint64_t first, uint64_t second, bool *ret_over) {
    struct world w;
    struct bwi_uuid found;
    world_open(&w, 0, MIB);
    slow_down(&w, 0);
    put_id(&w, (enum bwi_tier)(1 - tier), 1);
    struct bwi_store_ids s = {.ctx = &w.ctx, .create = true};
    bwi_store_ids_start(&s, w.loop, NULL);
    for (uint64_t turn = 0; turn < first && s.task.running; turn++) world_turn(&w);
    *ret_over = !s.task.running;
    if (!found_id(&w, tier, &found)) put_id(&w, tier, 9);
    for (uint64_t turn = first; turn < second && s.task.running; turn++) world_turn(&w);
    put_run(&w, tier);
    bool looked = s.looked;
    while (s.task.running) {
        world_turn(&w);
        looked = looked || s.looked;
    }
    assert_ok(s.task.error.status, &s.task.error);
    assert_known(&w, tier);
    world_close(&w);
    return looked;
}

static void who_is_overtaken_by_the_maker_takes_its_identity(void **state) {
    (void)state;
    for (int t = 0; t < BWI_TIERS; t++) {
        unsigned looked = 0, moments = 0;
        bool over = false;
        for (uint64_t first = 0; !over; first++, moments++) {
            for (uint64_t second = first; second < first + 12; second++)
                looked += overtaken((enum bwi_tier)t, first, second, &over);
        }
        assert_in_range(moments, 4, 100); /* reading, looking, making, reading again */
        assert_int_not_equal(looked, 0);  /* it has happened */
    }
}

static void makers_at_once_agree(void **state) {
    (void)state;
    const uint64_t first = test_seed(1);
    for (uint64_t seed = first; seed < first + 100; seed++) {
        struct world w;
        struct bwi_context ctx[MAKERS];
        struct bwi_store_ids s[MAKERS];
        world_open(&w, seed, MIB);
        slow_down(&w, 3 * LATENCY);
        for (int i = 0; i < MAKERS; i++) {
            ctx[i] = w.ctx;
            s[i] = (struct bwi_store_ids){.ctx = &ctx[i], .create = true};
            bwi_store_ids_start(&s[i], w.loop, NULL);
        }
        world_run(&w);
        for (int i = 0; i < MAKERS; i++) {
            assert_ok(s[i].task.error.status, &s[i].task.error);
            memcpy(w.ctx.store_id, ctx[i].store_id, sizeof ctx[i].store_id);
            assert_known(&w, NEAR);
            assert_known(&w, FAR);
        }
        world_close(&w);
    }
}

/* ---- failures ---- */

static void a_maker_without_an_answer_knows_what_it_made(void **state) {
    (void)state;
    for (int t = 0; t < BWI_TIERS; t++) {
        for (int effect = 0; effect < 2; effect++) {
            struct world w;
            world_open(&w, 1, MIB);
            bwi_bucket_fail_next(w.bucket[t], BWI_STORE_CREATE, FILE_NAME, BW_E_UNKNOWN, effect);
            struct bwi_store_ids s = run_ids(&w, true);
            assert_ok(s.task.error.status, &s.task.error);
            assert_known(&w, NEAR);
            assert_known(&w, FAR);
            world_close(&w);
        }
    }
}

static void stopped_anywhere_the_next_one_opens_the_store(void **state) {
    (void)state;
    for (uint64_t ops = 0; ops <= OPS; ops++) {
        for (int effect = 0; effect < 2; effect++) {
            struct world w;
            world_open(&w, ops + 1, MIB);
            machine_stops_after(&w, ops, effect);
            struct bwi_store_ids s = run_ids(&w, true);
            machine_starts(&w);
            if (ops < OPS)
                assert_fails(s.task.error.status, BW_E_IO, &s.task.error,
                             ops < OPS / 2 ? "local store \"memory:near\": " : "remote store \"memory:far\": ");
            else
                assert_ok(s.task.error.status, &s.task.error);
            s = run_ids(&w, true);
            assert_ok(s.task.error.status, &s.task.error);
            assert_known(&w, NEAR);
            assert_known(&w, FAR);
            world_close(&w);
        }
    }
}

static void without_memory_it_fails_and_makes_nothing_false(void **state) {
    (void)state;
    bool whole = false;
    for (unsigned long n = 1; !whole; n++) {
        struct world w;
        world_open(&w, 1, MIB);
        (void)bwi_alloc_fail_at(n);
        struct bwi_store_ids s = run_ids(&w, true);
        whole = bwi_alloc_fail_at(0) < n;
        if (s.task.error.status < 0) assert_int_equal(s.task.error.status, BW_E_NOMEM);
        s = run_ids(&w, true);
        assert_ok(s.task.error.status, &s.task.error);
        assert_known(&w, NEAR);
        assert_known(&w, FAR);
        world_close(&w);
        assert_true(n < 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_tiers_get_an_identity_each_and_keep_it),
        cmocka_unit_test(a_reader_makes_none),
        cmocka_unit_test(runs_in_a_remote_store_without_its_identity_are_not_taken_over),
        cmocka_unit_test(a_local_tier_that_has_lost_its_identity_gets_a_new_one),
        cmocka_unit_test(a_history_without_an_identity_is_no_local_tier),
        cmocka_unit_test(a_damaged_identity_says_what_can_be_done),
        cmocka_unit_test(a_damaged_local_identity_that_was_removed_is_made_anew),
        cmocka_unit_test(an_identity_that_cannot_be_read_or_is_newer_comes_without_advice),
        cmocka_unit_test(who_is_overtaken_by_the_maker_takes_its_identity),
        cmocka_unit_test(makers_at_once_agree),
        cmocka_unit_test(a_maker_without_an_answer_knows_what_it_made),
        cmocka_unit_test(stopped_anywhere_the_next_one_opens_the_store),
        cmocka_unit_test(without_memory_it_fails_and_makes_nothing_false),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
