/* SPDX-License-Identifier: Apache-2.0 */
/* How launches and saves that come to nothing end: everybody is told, and nothing is left of them. Whole jobs, in
 * memory and virtual time. */
#include "checkpoint/session_private.h"
#include "cluster_job.h"

static bool summary_is_on_its_way(struct cluster *c, void *user) {
    (void)c;
    return ((struct bwi_save *)user)->publish.summary_sent;
}

static bool tells_the_others(struct cluster *c, void *user) {
    (void)c;
    return ((struct bwi_save *)user)->state == BWI_SAVE_ABORT;
}

/* What groups have left of this id: summaries, and all data. */
static size_t left_of(struct bwi_bucket *b, const struct bwi_id *id) {
    char text[BWI_ID_TEXT_BYTES];
    size_t n = 0;
    bwi_id_text(id, text);
    for (size_t i = 0; i < bwi_bucket_objects(b); i++) {
        const char *key = bwi_bucket_key(b, i);
        n += strstr(key, text) && (strstr(key, "/groups/") || strstr(key, "/data/"));
    }
    return n;
}

/* From the moment at which a summary may be there others may commit what it names, until the history has closed it. */
static void a_save_that_is_given_up_while_its_summary_is_sent_keeps_its_bytes_until_it_is_closed(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    struct bwi_span found;
    cluster_init(&c, 40);
    bwi_bucket_model(c.remote)->latency_ns = 10 * BWI_NS_PER_MS;
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2, .single_tier = true});
    commit_all(&c, 0, 2, 10);
    save_all(&c, 0, 2, 20, v);
    assert_true(cluster_run(&c, summary_is_on_its_way, v[1], 600000));
    assert_false(v[1]->complete);
    bwi_session_cancel(v[1]);
    assert_true(cluster_run(&c, tells_the_others, v[1], 600000));
    const struct bwi_key summary = bwi_key_summary("run", &v[1]->id, 1);
    const struct bwi_key content = bwi_key_content("run", false, &v[1]->id, 1);
    assert_true(bwi_bucket_get(c.remote, summary.s, &found));
    assert_true(bwi_bucket_get(c.remote, content.s, &found));
    for (unsigned r = 0; r < 2; r++) assert_true(cluster_run(&c, ended, v[r], 600000));
    assert_int_equal(left_of(c.remote, &v[1]->id), 0);
    for (unsigned r = 0; r < 2; r++) bwi_session_release(v[r]);
    cluster_fini(&c);
}

/* With two tiers, where not even the mark can be put: the next launch may find the group on the node, and go on. */
static void a_save_that_may_be_whole_on_the_node_is_unknown_if_nobody_can_be_told(void **unused) {
    (void)unused;
    for (int told = 0; told < 2; told++) {
        struct cluster c;
        struct bwi_save *v[1];
        cluster_init(&c, 44);
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
        bwi_bucket_model(c.local[0])->latency_ns = 10 * BWI_NS_PER_MS;
        save_all(&c, 0, 1, 20, v);
        assert_true(cluster_run(&c, summary_is_on_its_way, v[0], 600000));
        for (int i = 0; i < 8 && !told; i++)
            bwi_bucket_fail_next(c.remote, BWI_STORE_CREATE, "/failed/", BW_E_IO, false);
        bwi_session_cancel(v[0]);
        assert_true(cluster_run(&c, ended, v[0], 600000));
        assert_int_equal(v[0]->error.status, told ? BW_E_CANCELLED : BW_E_UNKNOWN);
        bwi_session_release(v[0]);
        cluster_fini(&c);
    }
}

/* The same where the answer to the summary is that nobody knows. */
static void a_summary_without_an_answer_keeps_the_bytes_that_it_names(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[1];
    struct bwi_span found;
    cluster_init(&c, 41);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    for (int i = 0; i < 4; i++) bwi_bucket_fail_next(c.local[0], BWI_STORE_CREATE, "/groups/", BW_E_UNKNOWN, true);
    save_all(&c, 0, 1, 20, v);
    assert_true(cluster_run(&c, ended, v[0], 600000));
    assert_int_equal(v[0]->error.status, BW_E_UNKNOWN);
    const struct bwi_key summary = bwi_key_summary("run", &v[0]->id, 0);
    const struct bwi_key content = bwi_key_content("run", false, &v[0]->id, 0);
    assert_true(bwi_bucket_get(c.local[0], summary.s, &found));
    assert_true(bwi_bucket_get(c.local[0], content.s, &found));
    bwi_session_release(v[0]);
    cluster_fini(&c);
}

/* Starts all ranks of a launch that rank 0 cannot register: each of them is told at once. */
static void all_are_refused(struct cluster *c, unsigned first, const struct launch *l, int status, const char *why) {
    const uint64_t began = c->env.now;
    for (uint32_t r = 0; r < l->world; r++) cluster_start(c, first + r, r, r, l);
    cluster_open(c, first, l->world);
    for (uint32_t r = 0; r < l->world; r++) {
        const struct bw_error *e = &c->ranks[first + r].open->error;
        assert_fails(e->status, status, e, why);
        assert_int_equal(strstr(e->message, "rank 0 refused: ") != NULL, r > 0);
    }
    assert_true(c->env.now - began < 20 * BWI_NS_PER_S);
    for (uint32_t r = 0; r < l->world; r++) cluster_end(c, first + r);
}

static void what_rank_0_refuses_is_told_to_all_at_once(void **unused) {
    (void)unused;
    uint64_t first = test_seed(4000);
    for (uint64_t seed = first; seed < first + 10; seed++) {
        struct cluster c;
        cluster_init(&c, seed);
        c.shuffle = true;
        bwi_bucket_model(c.remote)->jitter_ns = 20 * BWI_NS_PER_MS;
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 3});
        commit_all(&c, 0, 3, 10);
        for (unsigned r = 0; r < 3; r++) cluster_end(&c, r);
        struct launch back = {
            .launch = "b", .world = 3, .mode = BWI_REGISTER_ROLLBACK, .label = "back", .resume_step = 700};
        all_are_refused(&c, 0, &back, BW_E_NOTFOUND, "no committed checkpoint of step 700 to go back to");
        assert_true(bwi_bucket_put(c.remote, bwi_key_entry("run", 1, 3).s, bwi_span("damaged", 7)));
        all_are_refused(&c, 0, &(struct launch){.launch = "c", .world = 3}, BW_E_CORRUPT, "repair it first");
        assert_true(bwi_bucket_remove(c.remote, bwi_key_entry("run", 1, 3).s));
        open_all(&c, 10, &(struct launch){.launch = "d", .world = 3}); /* another launch is another matter */
        check_resumed(&c, 10, 10);
        cluster_fini(&c);
    }
}

static void a_rank_that_comes_after_the_refusal_is_told_too(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 45);
    struct launch l = {.launch = "a", .world = 2, .deadline_ms = 5000};
    cluster_start(&c, 0, 0, 0, &l);
    cluster_open(&c, 0, 1);
    assert_fails(c.ranks[0].open->error.status, BW_E_TIMEOUT, &c.ranks[0].open->error, "missing: 1");
    l.deadline_ms = 600000;
    const uint64_t began = c.env.now;
    cluster_start(&c, 1, 1, 1, &l);
    cluster_open(&c, 1, 1);
    assert_fails(c.ranks[1].open->error.status, BW_E_TIMEOUT, &c.ranks[1].open->error, "rank 0 refused: only 1 of 2");
    assert_true(c.env.now - began < 20 * BWI_NS_PER_S);
    cluster_fini(&c);
}

/* It was killed while it gathered its ranks. */
static void a_launch_that_never_registered_is_swept_by_the_next_one(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_span found;
    cluster_init(&c, 51);
    for (int again = 0; again < 2; again++) { /* with and without a history before it */
        struct launch l = {.launch = again ? "c" : "a", .world = 2};
        cluster_start(&c, 0, 0, 0, &l);
        cluster_run(&c, never, NULL, 2000);
        assert_true(bwi_bucket_get(c.remote, bwi_key_inventory("run", l.launch, 0).s, &found));
        cluster_kill(&c, 0);
        open_all(&c, 4, &(struct launch){.launch = again ? "d" : "b", .world = 2});
        commit_all(&c, 4, 2, again ? 20 : 10);
        cluster_run(&c, never, NULL, 10000);
        assert_false(bwi_bucket_get(c.remote, bwi_key_inventory("run", l.launch, 0).s, &found));
        for (unsigned r = 4; r < 6; r++) cluster_end(&c, r);
        cluster_end(&c, 0);
    }
    cluster_fini(&c);
}

/* It is no rank 0 of this launch, so it speaks for nobody. */
static void a_second_start_of_rank_0_refuses_nothing(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_span found;
    cluster_init(&c, 46);
    struct launch l = {.launch = "a", .world = 3};
    cluster_start(&c, 0, 0, 0, &l);
    cluster_start(&c, 1, 1, 1, &l);
    cluster_run(&c, never, NULL, 2000);
    cluster_start(&c, 5, 0, 0, &l);
    cluster_open(&c, 5, 1);
    assert_int_equal(c.ranks[5].open->error.status, BW_E_NOT_MEMBER);
    assert_false(bwi_bucket_get(c.remote, bwi_key_refusal("run", "a").s, &found));
    cluster_start(&c, 2, 2, 2, &l);
    cluster_open(&c, 0, 3);
    for (unsigned r = 0; r < 3; r++) assert_ok(c.ranks[r].open->error.status, &c.ranks[r].open->error);
    cluster_fini(&c);
}

static void a_refusal_that_cannot_be_read_is_one_all_the_same(void **unused) {
    (void)unused;
    struct cluster c;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_refusal other = {.launch = "other", .status = BW_E_IO};
    struct bwi_buf bytes = {0};
    cluster_init(&c, 47);
    open_all(&c, 9, &(struct launch){.launch = "first", .world = 1});
    assert_ok(bwi_refusal_encode(&other, &bytes, &err), &err);
    assert_true(bwi_bucket_put(c.remote, bwi_key_refusal("run", "a").s, bwi_span("damaged", 7)));
    assert_true(bwi_bucket_put(c.remote, bwi_key_refusal("run", "b").s, bwi_buf_span(&bytes)));
    bwi_buf_fini(&bytes);
    for (unsigned i = 0; i < 2; i++) {
        struct launch l = {.launch = i ? "b" : "a", .world = 2};
        cluster_start(&c, i, i, 1, &l);
        cluster_open(&c, i, 1);
        assert_fails(c.ranks[i].open->error.status, BW_E_CORRUPT, &c.ranks[i].open->error,
                     i ? "it is that of launch \"other\"" : "rank 0 refused, but");
    }
    cluster_fini(&c);
}

static void a_step_that_was_aborted_leaves_nothing_in_the_authority(void **unused) {
    (void)unused;
    uint64_t first = test_seed(3000);
    for (uint64_t seed = first; seed < first + 20; seed++) {
        struct cluster c;
        struct bwi_save *v[2];
        static struct state s;
        const bool single = seed % 2;
        cluster_init(&c, seed);
        c.shuffle = true;
        bwi_bucket_model(c.remote)->jitter_ns = 20 * BWI_NS_PER_MS;
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 3, .single_tier = single});
        commit_all(&c, 0, 3, 10);
        make_state(&s, 20);
        for (unsigned r = 0; r < 2; r++) v[r] = save(&c, r, 20, &s);
        for (unsigned r = 0; r < 2; r++) wait_level(&c, v[r], BW_REMOTE);
        bwi_session_skip(c.ranks[2].session, 20);
        for (unsigned r = 0; r < 2; r++) {
            assert_true(cluster_run(&c, ended, v[r], 60000));
            assert_int_equal(v[r]->error.status, BW_E_ABORTED);
        }
        const struct bwi_id gone = v[0]->id;
        assert_int_equal(left_of(c.remote, &gone), 0);
        for (unsigned r = 0; r < 2; r++) bwi_session_release(v[r]);
        commit_all(&c, 0, 3, 30);
        assert_int_equal(single ? 0 : left_of(c.local[0], &gone), 0); /* that save has made room */
        for (unsigned r = 0; r < 3; r++) cluster_end(&c, r);
        open_all(&c, 8, &(struct launch){.launch = "b", .world = 2, .single_tier = single});
        check_resumed(&c, 9, 30);
        cluster_fini(&c);
    }
}

static void a_step_that_a_later_one_has_passed_leaves_nothing_in_the_authority(void **unused) {
    (void)unused;
    struct cluster c;
    static struct state s;
    cluster_init(&c, 42);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    make_state(&s, 20);
    struct bwi_save *v = save(&c, 1, 20, &s); /* rank 0 never makes it */
    wait_level(&c, v, BW_REMOTE);
    assert_true(left_of(c.remote, &v->id) > 0);
    commit_all(&c, 0, 2, 30);
    assert_true(cluster_run(&c, ended, v, 60000));
    assert_fails(v->error.status, BW_E_ABORTED, &v->error, "a later step was committed");
    assert_int_equal(left_of(c.remote, &v->id), 0);
    cluster_fini(&c);
}

/* Whoever comes after may have gone on from it: that one's sweep decides, after a grace. */
static void an_attempt_that_is_over_deletes_nothing_of_its_own(void **unused) {
    (void)unused;
    struct cluster c;
    static struct state s;
    cluster_init(&c, 43);
    struct launch l = {.launch = "a", .world = 2, .single_tier = true};
    open_all(&c, 0, &l);
    commit_all(&c, 0, 2, 10);
    make_state(&s, 20);
    struct bwi_save *v = save(&c, 1, 20, &s);
    wait_level(&c, v, BW_REMOTE);
    const size_t before = left_of(c.remote, &v->id);
    cluster_kill(&c, 0);
    cluster_kill(&c, 1);
    l.launch = "b";
    open_all(&c, 4, &l);
    check_resumed(&c, 4, 10);
    c.ranks[1].stopped = false;
    assert_true(cluster_run(&c, ended, v, 600000));
    assert_int_equal(v->error.status, BW_E_LAUNCH_LOST);
    assert_int_equal(left_of(c.remote, &v->id), before);
    for (unsigned r = 4; r < 6; r++) c.ranks[r].ctx.grace_ms = 0;
    commit_all(&c, 4, 2, 30);
    cluster_end(&c, 5);
    cluster_end(&c, 4);
    assert_int_equal(left_of(c.remote, &v->id), 0); /* the sweep of the one that is current */
    cluster_fini(&c);
}

static void what_cannot_be_given_back_is_left_and_told(void **unused) {
    (void)unused;
    static const enum bwi_store_verb verbs[] = {BWI_STORE_DELETE, BWI_STORE_DELETE_PREFIX};
    for (int i = 0; i < 2; i++) {
        struct cluster c;
        static struct state s;
        struct bwi_span found;
        cluster_init(&c, 44);
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
        make_state(&s, 20);
        struct bwi_save *v = save(&c, 0, 20, &s);
        wait_level(&c, v, BW_REMOTE);
        const uint64_t notes = c.ranks[0].notes;
        bwi_bucket_fail_next(c.remote, verbs[i], "20.", BW_E_ACCESS, false);
        bwi_session_skip(c.ranks[1].session, 20);
        assert_true(cluster_run(&c, ended, v, 60000));
        assert_int_equal(v->error.status, BW_E_ABORTED);
        assert_true(c.ranks[0].notes > notes);
        assert_true(left_of(c.remote, &v->id) > 0);
        /* nothing looks complete that is not */
        assert_int_equal(bwi_bucket_get(c.remote, bwi_key_summary("run", &v->id, 0).s, &found), i == 0);
        commit_all(&c, 0, 2, 30);
        cluster_fini(&c);
    }
}

static bool drained(struct cluster *c, void *user) {
    (void)c;
    return bwi_session_drained(user);
}

/* As a close with time enough. */
static void close_patiently(struct cluster *c, unsigned slot) {
    bwi_session_close(c->ranks[slot].session);
    assert_true(cluster_run(c, drained, c->ranks[slot].session, 600000));
    cluster_end(c, slot);
}

/* Rank 0 makes only one step, rank 1 only a later one: neither can ever be whole. */
static void a_step_that_a_rank_is_past_ends_for_the_others(void **unused) {
    (void)unused;
    struct cluster c;
    static struct state s;
    cluster_init(&c, 48);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    commit_all(&c, 0, 2, 10);
    make_state(&s, 20);
    struct bwi_save *twenty = save(&c, 0, 20, &s);
    wait_level(&c, twenty, BW_CAPTURED);
    make_state(&s, 30);
    struct bwi_save *thirty = save(&c, 1, 30, &s);
    assert_true(cluster_run(&c, ended, twenty, 60000));
    assert_fails(twenty->error.status, BW_E_ABORTED, &twenty->error, "rank 1 is past this step");
    assert_int_equal(left_of(c.remote, &twenty->id), 0);
    cluster_run(&c, never, NULL, 60000);
    assert_int_equal(thirty->state, BWI_SAVE_PENDING); /* rank 0 may still make it */
    assert_string_equal(thirty->held_up, "not complete for want of rank 0");
    close_patiently(&c, 0);
    assert_true(cluster_run(&c, ended, thirty, 60000));
    assert_fails(thirty->error.status, BW_E_ABORTED, &thirty->error, "rank 0 is closing, and has not saved this step");
    cluster_fini(&c);
}

/* The one that closes has not begun it; rank 0 is not there to enter the abort either. */
static void a_rank_that_closes_ends_the_steps_that_it_never_made(void **unused) {
    (void)unused;
    for (uint32_t closing = 0; closing < 2; closing++) {
        struct cluster c;
        static struct state s;
        cluster_init(&c, 49);
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
        commit_all(&c, 0, 2, 10);
        make_state(&s, 20);
        struct bwi_save *v = save(&c, 1 - closing, 20, &s);
        wait_level(&c, v, BW_REMOTE);
        close_patiently(&c, closing);
        assert_true(cluster_run(&c, ended, v, 60000));
        assert_fails(v->error.status, BW_E_ABORTED, &v->error, "is closing, and has not saved this step");
        assert_int_equal(left_of(c.remote, &v->id), 0);
        cluster_fini(&c);
    }
}

static void who_waits_in_vain_is_told_for_whom(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[4];
    static struct state s;
    cluster_init(&c, 50);
    struct launch l = {.launch = "a", .world = 4};
    open_all(&c, 0, &l);
    commit_all(&c, 0, 4, 10);
    make_state(&s, 20);
    for (unsigned r = 0; r < 4; r += 2) v[r] = save(&c, r, 20, &s); /* 1 and 3 hang */
    cluster_run(&c, never, NULL, 10000);
    for (unsigned r = 0; r < 4; r += 2) {
        assert_string_equal(v[r]->held_up, "not complete for want of ranks 1, 3");
        bwi_session_close(c.ranks[r].session);
        cluster_run(&c, never, NULL, 1000);
        bwi_session_give_up(c.ranks[r].session);
        assert_true(cluster_run(&c, ended, v[r], 60000));
        assert_fails(v[r]->error.status, BW_E_TIMEOUT, &v[r]->error,
                     "step 20 is remote, and not complete for want of ranks 1, 3; it is left for the next launch");
    }
    const struct bwi_id left = v[0]->id;
    for (unsigned r = 0; r < 4; r++) cluster_end(&c, r);
    assert_true(left_of(c.remote, &left) > 0); /* it may be completed */
    l.launch = "b";
    for (uint32_t r = 0; r < 4; r++) cluster_start(&c, r, r, r, &l);
    for (uint32_t r = 0; r < 4; r++) c.ranks[r].ctx.grace_ms = 0;
    cluster_open(&c, 0, 4);
    check_resumed(&c, 0, 10); /* the next launch has not gone on from it: it is dead */
    commit_all(&c, 0, 4, 30);
    for (unsigned r = 0; r < 4; r++) close_patiently(&c, r);
    assert_int_equal(left_of(c.remote, &left), 0);
    cluster_fini(&c);
}

/* Which steps a rank remembers having begun is bounded; of older ones it says nothing. */
static void a_step_that_may_have_been_made_is_never_refused(void **unused) {
    (void)unused;
    struct bwi_session s = {.closing = true};
    const struct bwi_id low = {5, 1, 1, 0}, made = {10, 1, 1, 1}, again = {10, 1, 1, 2}, high = {50, 1, 1, 0};
    assert_true(bwi_session_never_makes(&s, &low));
    s.begun[0].step = 10;
    s.begun[0].tri = 1;
    s.begun_count = 1;
    s.highest_step = 10;
    s.highest_set = true;
    assert_true(bwi_session_never_makes(&s, &low) && bwi_session_never_makes(&s, &high));
    assert_false(bwi_session_never_makes(&s, &made));
    assert_true(bwi_session_never_makes(&s, &again));
    s.closing = false;
    assert_true(bwi_session_never_makes(&s, &low));
    assert_false(bwi_session_never_makes(&s, &again) || bwi_session_never_makes(&s, &high));
    for (uint32_t i = 0; i < 16; i++) s.begun[i].step = 10 + 15 - i;
    s.begun_count = 16;
    s.highest_step = 25;
    assert_false(bwi_session_never_makes(&s, &low));
}

/* Each rank makes some of the steps. When all have closed, every step was either committed or aborted, and of those
 * that were aborted nothing is left. */
static void steps_that_only_some_ranks_make_all_come_to_an_end(void **unused) {
    (void)unused;
    uint64_t first = test_seed(6000);
    for (uint64_t seed = first; seed < first + 30; seed++) {
        struct cluster c;
        struct bwi_save *v[3][6] = {{NULL}};
        static struct state s;
        cluster_init(&c, seed);
        c.shuffle = true;
        bwi_bucket_model(c.remote)->jitter_ns = 50 * BWI_NS_PER_MS;
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 3, .single_tier = seed % 2});
        commit_all(&c, 0, 3, 1);
        for (unsigned i = 0; i < 6; i++) {
            make_state(&s, 10 + i);
            for (unsigned r = 0; r < 3; r++)
                if (test_random(&c.rng) % 3) v[r][i] = save(&c, r, 10 + i, &s);
            for (unsigned r = 0; r < 3; r++)
                if (v[r][i]) wait_level(&c, v[r][i], BW_CAPTURED);
        }
        cluster_run(&c, never, NULL, 60000);
        for (unsigned r = 0; r < 3; r++) bwi_session_close(c.ranks[r].session);
        for (unsigned r = 0; r < 3; r++) assert_true(cluster_run(&c, drained, c.ranks[r].session, 600000));
        uint64_t committed = 1;
        for (unsigned i = 0; i < 6; i++) {
            for (unsigned r = 0; r < 3; r++) {
                if (!v[r][i]) continue;
                assert_int_equal(v[r][i]->state, BWI_SAVE_ENDED);
                assert_int_equal(v[r][i]->error.status, v[r][i]->committed ? 0 : BW_E_ABORTED);
                if (v[r][i]->committed) committed = 10 + i;
                if (!v[r][i]->committed) assert_int_equal(left_of(c.remote, &v[r][i]->id), 0);
            }
        }
        for (unsigned r = 0; r < 3; r++) cluster_end(&c, r);
        open_all(&c, 5, &(struct launch){.launch = "b", .world = 2, .single_tier = seed % 2});
        check_resumed(&c, 5, committed);
        cluster_fini(&c);
    }
}

/* A save that is complete here, and dead. Not released. */
static struct bwi_save *leave_dead_data(struct cluster *c, struct bwi_id *ret) {
    struct bwi_save *v;
    open_all(c, 0, &(struct launch){.launch = "a", .world = 1});
    commit_all(c, 0, 1, 10);
    bwi_bucket_model(c->remote)->latency_ns = BWI_NS_PER_S;
    save_all(c, 0, 1, 20, &v);
    wait_level(c, v, BW_LOCAL);
    *ret = v->id;
    bwi_session_cancel(v);
    assert_true(cluster_run(c, ended, v, 600000));
    return v;
}

/* Deleting takes time, and nobody need wait for it where there is room in plenty. */
static void dead_data_goes_before_the_save_only_where_room_is_short(void **unused) {
    (void)unused;
    for (int is_short = 0; is_short < 2; is_short++) {
        struct cluster c;
        struct bwi_id gone;
        cluster_init(&c, 47);
        struct bwi_save *v = leave_dead_data(&c, &gone);
        if (is_short) c.ranks[0].session->cfg.local_quota_bytes = 3 * v->plan.stored_bytes - 1;
        bwi_session_release(v);
        save_all(&c, 0, 1, 30, &v);
        wait_level(&c, v, BW_LOCAL);
        if (is_short)
            assert_int_equal(left_of(c.local[0], &gone), 0);
        else
            assert_true(left_of(c.local[0], &gone) > 0);
        wait_level(&c, v, BW_COMMITTED);
        assert_int_equal(left_of(c.local[0], &gone), 0);
        cluster_fini(&c);
    }
}

static bool is_published_next(struct cluster *c, void *user) {
    (void)c;
    return ((struct bwi_save *)user)->state == BWI_SAVE_PUBLISH;
}

/* It is told, and the next save does it. */
static void dead_data_that_cannot_be_looked_for_fails_no_save(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_id gone;
    cluster_init(&c, 49);
    struct bwi_save *v = leave_dead_data(&c, &gone);
    bwi_session_release(v);
    save_all(&c, 0, 1, 30, &v);
    assert_true(cluster_run(&c, is_published_next, v, 600000));
    const uint64_t notes = c.ranks[0].notes;
    bwi_bucket_fail_next(c.local[0], BWI_STORE_LIST, NULL, BW_E_IO, false);
    wait_level(&c, v, BW_COMMITTED);
    assert_int_equal(c.ranks[0].notes, notes + 1);
    assert_true(left_of(c.local[0], &gone) > 0);
    commit_all(&c, 0, 1, 40);
    assert_int_equal(left_of(c.local[0], &gone), 0);
    cluster_fini(&c);
}

static bool has_room(struct cluster *c, void *user) {
    (void)c;
    return ((struct bwi_save *)user)->state > BWI_SAVE_ROOM;
}

/* It has looked for a while, so that its pauses are long by then. */
static void a_save_that_waits_for_room_goes_on_as_soon_as_another_one_makes_some(void **unused) {
    (void)unused;
    uint64_t first = test_seed(5000);
    for (uint64_t seed = first; seed < first + 10; seed++) {
        struct cluster c;
        struct bwi_save *ten, *twenty;
        cluster_init(&c, seed);
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
        commit_all(&c, 0, 1, 5);
        bwi_bucket_model(c.remote)->latency_ns = 5 * BWI_NS_PER_S;
        save_all(&c, 0, 1, 10, &ten);
        wait_level(&c, ten, BW_LOCAL);
        c.ranks[0].session->cfg.local_quota_bytes = 2 * ten->plan.stored_bytes + 100; /* that of 5 and 10 */
        save_all(&c, 0, 1, 20, &twenty);
        wait_level(&c, ten, BW_COMMITTED);
        assert_int_equal(twenty->state, BWI_SAVE_ROOM);
        const uint64_t then = c.env.now;
        assert_true(cluster_run(&c, has_room, twenty, 600000));
        assert_true(c.env.now - then < 10 * BWI_NS_PER_MS);
        cluster_fini(&c);
    }
}

/* --- asked twice, or too early ------------------------------------------------------------------------------- */

static void a_save_is_started_once(void **unused) {
    (void)unused;
    struct cluster c;
    struct bw_error err = BW_ERROR_INIT;
    static struct state s;
    cluster_init(&c, 91);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    make_state(&s, 10);
    struct bwi_save *v = save(&c, 0, 10, &s);
    assert_fails(bwi_session_start(v, &err), BW_E_STATE, &err, "step 10 was started already");
    wait_level(&c, v, BW_COMMITTED);
    cluster_fini(&c);
}

static void a_head_that_is_older_than_the_known_one_changes_nothing(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_span bytes;
    struct bwi_head older = {.found = true};
    struct bw_error err = BW_ERROR_INIT;
    cluster_init(&c, 92);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    commit_all(&c, 0, 1, 10);
    struct bwi_session *s = c.ranks[0].session;
    const uint64_t n = s->head.entry.n;
    assert_true(n >= 2 && s->head.entry.h == 10);
    assert_true(bwi_bucket_get(c.remote, bwi_key_entry("run", 1, 1).s, &bytes));
    assert_ok(bwi_entry_decode(bytes, &older.entry, &err), &err);
    bwi_session_apply_head(s, &older, &(struct bwi_gap){0});
    assert_int_equal(s->head.entry.n, n);
    assert_int_equal(s->head.entry.h, 10);
    assert_false(s->over);
    commit_all(&c, 0, 1, 20);
    cluster_fini(&c); /* what the older one held is freed */
}

/* By a mark first; who asks again wants the abort entry as well. */
static void what_is_owed_twice_is_owed_once_with_all_of_it(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_span found;
    cluster_init(&c, 93);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    struct bwi_session *s = c.ranks[0].session;
    const struct bwi_id id = {.step = 10, .attempt = s->attempt, .nonce = s->nonce};
    const uint64_t n = s->head.entry.n;
    bwi_session_owe(s, &id, 0, BW_E_IO, "first", false);
    bwi_session_owe(s, &id, 0, BW_E_IO, "again", true);
    cluster_run(&c, never, NULL, 5000);
    assert_true(bwi_bucket_get(c.remote, bwi_key_failed("run", &id, 0).s, &found));
    assert_true(bwi_bucket_get(c.remote, bwi_key_entry("run", 1, n + 1).s, &found));
    assert_false(bwi_bucket_get(c.remote, bwi_key_entry("run", 1, n + 2).s, &found));
    assert_int_equal(bwi_policy_try(&s->head.entry, 10), 1);
    cluster_fini(&c);
}

struct seen {
    const uint64_t *of;
    uint64_t n;
};

static bool more_than_seen(struct cluster *c, void *user) {
    (void)c;
    const struct seen *s = user;
    return *s->of > s->n;
}

static void a_committer_that_is_woken_before_its_time_does_not_look(void **unused) {
    (void)unused;
    struct cluster c;
    static struct state st;
    cluster_init(&c, 94);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    struct bwi_session *s = c.ranks[0].session;
    make_state(&st, 10);
    struct bwi_save *v = save(&c, 0, 10, &st);
    wait_level(&c, v, BW_REMOTE);
    cluster_kill(&c, 1);
    bwi_lookout_stop(s);
    bwi_follow_stop(s);
    cluster_run(&c, never, NULL, 120000); /* its looks are far apart by now */
    struct seen lists = {&c.ranks[0].ctx.tier[BWI_TIER_REMOTE]->ops[BWI_STORE_LIST], 0};
    lists.n = *lists.of;
    assert_true(cluster_run(&c, more_than_seen, &lists, 600000));
    cluster_run(&c, never, NULL, 10);
    lists.n = *lists.of;
    for (int i = 0; i < 5; i++) {
        bwi_task_wake((struct bwi_task *)(void *)s->committer); /* its first member */
        cluster_run(&c, never, NULL, 1);
        assert_int_equal(*lists.of, lists.n);
    }
    assert_true(cluster_run(&c, more_than_seen, &lists, 600000)); /* when it is time it looks */
    cluster_fini(&c);
}

/* Another launch has begun afresh and gone far: entries in between may have said what became of it. */
static void a_save_of_which_nobody_reads_what_became_of_it_is_unknown(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v =
        stop_at_local(&c, 95, &(struct launch){.launch = "b", .world = 1, .mode = BWI_REGISTER_FRESH, .label = "b"});
    commit_all(&c, 4, 1, 20);
    commit_all(&c, 4, 1, 30);
    cluster_kill(&c, 4);
    bwi_bucket_model(c.remote)->latency_ns = BWI_NS_PER_S;
    c.ranks[0].stopped = false;
    bwi_follow_stop(c.ranks[0].session); /* who would have read them */
    bwi_session_cancel(v);
    assert_true(cluster_run(&c, ended, v, 600000));
    assert_fails(v->error.status, BW_E_UNKNOWN, &v->error,
                 "the history has closed it, and what it said of it was not read");
    cluster_fini(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_that_is_given_up_while_its_summary_is_sent_keeps_its_bytes_until_it_is_closed),
        cmocka_unit_test(a_step_that_was_aborted_leaves_nothing_in_the_authority),
        cmocka_unit_test(a_step_that_a_later_one_has_passed_leaves_nothing_in_the_authority),
        cmocka_unit_test(an_attempt_that_is_over_deletes_nothing_of_its_own),
        cmocka_unit_test(what_cannot_be_given_back_is_left_and_told),
        cmocka_unit_test(a_save_that_may_be_whole_on_the_node_is_unknown_if_nobody_can_be_told),
        cmocka_unit_test(a_summary_without_an_answer_keeps_the_bytes_that_it_names),
        cmocka_unit_test(what_rank_0_refuses_is_told_to_all_at_once),
        cmocka_unit_test(a_rank_that_comes_after_the_refusal_is_told_too),
        cmocka_unit_test(a_launch_that_never_registered_is_swept_by_the_next_one),
        cmocka_unit_test(a_second_start_of_rank_0_refuses_nothing),
        cmocka_unit_test(a_refusal_that_cannot_be_read_is_one_all_the_same),
        cmocka_unit_test(a_step_that_a_rank_is_past_ends_for_the_others),
        cmocka_unit_test(a_rank_that_closes_ends_the_steps_that_it_never_made),
        cmocka_unit_test(who_waits_in_vain_is_told_for_whom),
        cmocka_unit_test(a_step_that_may_have_been_made_is_never_refused),
        cmocka_unit_test(steps_that_only_some_ranks_make_all_come_to_an_end),
        cmocka_unit_test(dead_data_goes_before_the_save_only_where_room_is_short),
        cmocka_unit_test(dead_data_that_cannot_be_looked_for_fails_no_save),
        cmocka_unit_test(a_save_that_waits_for_room_goes_on_as_soon_as_another_one_makes_some),
        cmocka_unit_test(a_save_is_started_once),
        cmocka_unit_test(a_head_that_is_older_than_the_known_one_changes_nothing),
        cmocka_unit_test(what_is_owed_twice_is_owed_once_with_all_of_it),
        cmocka_unit_test(a_committer_that_is_woken_before_its_time_does_not_look),
        cmocka_unit_test(a_save_of_which_nobody_reads_what_became_of_it_is_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
