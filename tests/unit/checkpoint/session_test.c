/* SPDX-License-Identifier: Apache-2.0 */
/* Launches, saves, failures and resumes of whole jobs, in memory and virtual time. */
#include "checkpoint/session_private.h"
#include "cluster_job.h"

static void one_rank_saves_and_a_restart_resumes_from_it(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 1);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    assert_false(c.ranks[0].session->resume.from_checkpoint);
    commit_all(&c, 0, 1, 10);
    commit_all(&c, 0, 1, 20);
    cluster_end(&c, 0);
    open_all(&c, 1, &(struct launch){.launch = "b", .world = 1});
    check_resumed(&c, 1, 20);
    cluster_fini(&c);
}

static void several_ranks_commit_together_and_resume_alike(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 2);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 3});
    for (uint64_t step = 1; step <= 5; step++) commit_all(&c, 0, 3, step);
    for (unsigned r = 0; r < 3; r++) cluster_end(&c, r);
    open_all(&c, 10, &(struct launch){.launch = "b", .world = 5});
    for (unsigned r = 10; r < 15; r++) check_resumed(&c, r, 5);
    cluster_fini(&c);
}

/* By a save that begins, or by the end: nothing is written any more, and nobody waits. */
static void the_measuring_of_a_tier_is_stopped_by_what_matters_more(void **unused) {
    (void)unused;
    for (unsigned by_save = 0; by_save < 2; by_save++) {
        struct cluster c;
        struct bwi_save *v = NULL;
        struct bw_error err = BW_ERROR_INIT;
        cluster_init(&c, 60 + by_save);
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
        struct bwi_session *s = c.ranks[0].session;
        bwi_session_start_probe(s);
        assert_false(bwi_session_probes(s)); /* it was not asked for */
        s->cfg.probe = true;
        bwi_session_start_probe(s);
        assert_false(bwi_session_probes(s)); /* what lies in memory is no disk */
        s->ctx->tier[BWI_TIER_LOCAL]->caps.node_local = s->ctx->tier[BWI_TIER_LOCAL]->caps.past_cache = true;
        bwi_session_start_probe(s);
        assert_true(bwi_session_probes(s));
        assert_string_equal(s->stats.local_io_why, "usual: not measured yet");
        if (by_save)
            assert_ok(bwi_session_begin(s, 1, &v, &err), &err);
        else
            bwi_session_close(s);
        (void)cluster_run(&c, never, NULL, 1000);
        assert_false(bwi_session_probes(s));
        assert_int_equal(s->probe->bytes, 0);
        assert_int_equal(s->stats.local_io_depth, BWI_IO_DEPTH_USUAL);
        assert_string_equal(s->stats.local_io_why, "usual: it was stopped, mostly by a save, before it was measured");
        if (v) bwi_session_release(v);
        cluster_fini(&c);
    }
}

/* In either order of describing and ending; where memory is to be protected a worker plans. */
static void a_state_that_stays_is_planned_once_and_only_one_save_has_that_plan(void **unused) {
    (void)unused;
    for (unsigned cow = 0; cow < 2; cow++) {
        struct cluster c;
        struct bwi_save *first, *second;
        cluster_init(&c, 30 + cow);
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
        struct bwi_session *s = c.ranks[0].session;
        s->cfg.cow = cow == 1;
        commit_all(&c, 0, 1, 1);
        const struct bwi_item_source *items = s->known_plan.items;
        assert_non_null(items);
        save_all(&c, 0, 1, 2, &first);
        assert_ptr_equal(first->plan.items, items);
        assert_null(s->known_plan.items);
        save_all(&c, 0, 1, 3, &second);
        assert_ptr_not_equal(second->plan.items, items);
        wait_level(&c, first, BW_COMMITTED);
        assert_true(cluster_run(&c, ended, first, 600000));
        bwi_session_release(first);
        assert_ptr_equal(s->known_plan.items, items);
        wait_level(&c, second, BW_COMMITTED);
        assert_true(cluster_run(&c, ended, second, 600000));
        bwi_session_release(second); /* what it had is kept instead */
        commit_all(&c, 0, 1, 4);
        cluster_end(&c, 0);
        open_all(&c, 1, &(struct launch){.launch = "b", .world = 1});
        check_resumed(&c, 1, 4);
        cluster_fini(&c);
    }
}

static void a_save_that_is_dropped_or_fails_leaves_a_plan_that_fits_or_none(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v;
    struct bw_error err = BW_ERROR_INIT;
    cluster_init(&c, 32);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    struct bwi_session *s = c.ranks[0].session;
    commit_all(&c, 0, 1, 1);
    const struct bwi_item_source *items = s->known_plan.items;
    assert_ok(bwi_session_begin(s, 2, &v, &err), &err); /* dropped before anything is described */
    bwi_session_release(v);
    (void)cluster_run(&c, never, NULL, 1000);
    assert_null(s->saves);
    save_all(&c, 0, 1, 3, &v);
    assert_ptr_equal(v->plan.items, items);
    bwi_session_cancel(v);
    assert_true(cluster_run(&c, ended, v, 600000));
    bwi_session_release(v);
    assert_ok(bwi_session_begin(s, 4, &v, &err), &err); /* something else is described, and dropped */
    assert_ok(bwi_description_blob(&v->description, "other", "x", 1, &err), &err);
    bwi_session_release(v);
    (void)cluster_run(&c, never, NULL, 1000);
    assert_null(s->saves);
    commit_all(&c, 0, 1, 5);
    cluster_end(&c, 0);
    open_all(&c, 1, &(struct launch){.launch = "b", .world = 1});
    check_resumed(&c, 1, 5);
    cluster_fini(&c);
}

static void a_single_tier_goes_straight_to_remote(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    cluster_init(&c, 3);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2, .single_tier = true});
    save_all(&c, 0, 2, 10, v);
    wait_level(&c, v[1], BW_LOCAL);
    assert_true(v[1]->level >= BW_REMOTE);
    assert_int_equal(v[1]->tiers, 1u << BWI_TIER_REMOTE);
    wait_level(&c, v[1], BW_COMMITTED);
    cluster_end(&c, 0);
    cluster_end(&c, 1);
    open_all(&c, 4, &(struct launch){.launch = "b", .world = 1, .single_tier = true});
    check_resumed(&c, 4, 10);
    cluster_fini(&c);
}

static bool is_stopping(struct cluster *c, void *user) {
    (void)c;
    return ((struct bwi_save *)user)->state > BWI_SAVE_PENDING;
}

static bool is_publishing(struct cluster *c, void *user) {
    (void)c;
    return ((struct bwi_save *)user)->publish.ctx != NULL;
}

/* Two saves of each rank at a time straight into the authority, where each write takes as long as it likes: the later
 * one is often written first. */
static void without_a_local_tier_a_later_save_does_not_end_the_one_before(void **unused) {
    (void)unused;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct cluster c;
        struct bwi_save *first[2], *second[2];
        cluster_init(&c, seed);
        bwi_bucket_model(c.remote)->jitter_ns = 50 * BWI_NS_PER_MS;
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 2, .single_tier = true});
        save_all(&c, 0, 2, 1, first);
        save_all(&c, 0, 2, 2, second);
        for (unsigned r = 0; r < 2; r++) {
            wait_level(&c, first[r], BW_COMMITTED);
            wait_level(&c, second[r], BW_COMMITTED);
        }
        cluster_fini(&c);
    }
}

static void without_a_local_tier_a_save_does_not_wait_for_the_end_of_one_that_failed(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *first, *second;
    cluster_init(&c, 1);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1, .single_tier = true});
    bwi_bucket_model(c.remote)->latency_ns = BWI_NS_PER_MS;
    bwi_bucket_fail_next(c.remote, BWI_STORE_CREATE, "/groups/", BW_E_IO, false);
    save_all(&c, 0, 1, 1, &first);
    save_all(&c, 0, 1, 2, &second);
    assert_true(cluster_run(&c, is_stopping, first, 60000));
    assert_int_equal(second->state, BWI_SAVE_PUBLISH);
    bwi_bucket_model(c.remote)->latency_ns = 60 * BWI_NS_PER_S; /* of all that its end takes */
    assert_true(cluster_run(&c, is_publishing, second, 1000));
    assert_true(first->state < BWI_SAVE_ENDED);
    bwi_bucket_model(c.remote)->latency_ns = 0;
    wait_level(&c, second, BW_COMMITTED);
    assert_true(cluster_run(&c, ended, first, 600000));
    assert_true(first->error.status < 0);
    cluster_fini(&c);
}

static void a_rank_that_fails_aborts_the_save_of_all_and_the_next_one_works(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[3];
    cluster_init(&c, 4);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 3});
    commit_all(&c, 0, 3, 10);
    bwi_bucket_fail_next(c.local[1], BWI_STORE_FINISH, NULL, BW_E_IO, false);
    save_all(&c, 0, 3, 20, v);
    for (unsigned r = 0; r < 3; r++) {
        assert_true(cluster_run(&c, ended, v[r], 60000));
        assert_int_equal(v[r]->error.status, r == 1 ? BW_E_IO : BW_E_ABORTED);
        bwi_session_release(v[r]);
    }
    commit_all(&c, 0, 3, 20); /* the same step again, as the next try */
    commit_all(&c, 0, 3, 30);
    for (unsigned r = 0; r < 3; r++) cluster_end(&c, r);
    open_all(&c, 8, &(struct launch){.launch = "b", .world = 3});
    check_resumed(&c, 9, 30);
    cluster_fini(&c);
}

static void after_a_crash_the_newest_that_all_nodes_hold_is_resumed_and_committed(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    cluster_init(&c, 5);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    commit_all(&c, 0, 2, 10);
    bwi_bucket_model(c.remote)->latency_ns = 3600 * BWI_NS_PER_S; /* nothing reaches the authority any more */
    save_all(&c, 0, 2, 20, v);
    wait_level(&c, v[0], BW_LOCAL);
    wait_level(&c, v[1], BW_LOCAL);
    cluster_kill(&c, 0);
    cluster_kill(&c, 1);
    bwi_bucket_model(c.remote)->latency_ns = 0;
    open_all(&c, 4, &(struct launch){.launch = "b", .world = 2});
    assert_false(c.ranks[4].session->resume.committed);
    commit_all(&c, 4, 2, 30);
    for (unsigned r = 4; r < 6; r++) check_resumed(&c, r, 20);
    cluster_fini(&c);
}

static bool committed_step(struct cluster *c, void *user) {
    const struct bwi_session *s = c->ranks[4].session;
    return s->head.found && bwi_policy_find_live(&s->head.entry, *(uint64_t *)user) != NULL;
}

static void what_was_resumed_uncommitted_is_committed_by_the_next_launch(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    uint64_t step = 20;
    cluster_init(&c, 6);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    bwi_bucket_model(c.remote)->latency_ns = 3600 * BWI_NS_PER_S;
    save_all(&c, 0, 2, 20, v);
    wait_level(&c, v[0], BW_LOCAL);
    wait_level(&c, v[1], BW_LOCAL);
    cluster_kill(&c, 0);
    cluster_kill(&c, 1);
    bwi_bucket_model(c.remote)->latency_ns = 0;
    open_all(&c, 4, &(struct launch){.launch = "b", .world = 2});
    assert_true(cluster_run(&c, committed_step, &step, 60000));
    cluster_fini(&c);
}

static void a_node_that_lost_its_disk_sends_all_back_to_the_committed_one(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    cluster_init(&c, 7);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    commit_all(&c, 0, 2, 10);
    bwi_bucket_model(c.remote)->latency_ns = 3600 * BWI_NS_PER_S;
    save_all(&c, 0, 2, 20, v);
    wait_level(&c, v[0], BW_LOCAL);
    wait_level(&c, v[1], BW_LOCAL);
    cluster_kill(&c, 0);
    cluster_kill(&c, 1);
    bwi_bucket_model(c.remote)->latency_ns = 0;
    struct launch l = {.launch = "b", .world = 2};
    cluster_start(&c, 4, 0, 0, &l);
    cluster_start(&c, 5, 9, 1, &l); /* another node: an empty disk */
    cluster_open(&c, 4, 2);
    check_resumed(&c, 4, 10);
    check_resumed(&c, 5, 10);
    cluster_fini(&c);
}

static void a_frozen_attempt_that_wakes_up_cannot_commit(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    cluster_init(&c, 8);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    commit_all(&c, 0, 2, 10);
    save_all(&c, 0, 2, 20, v);
    cluster_kill(&c, 0);
    cluster_kill(&c, 1);
    for (unsigned r = 0; r < 2; r++) { /* the next launch is on other nodes */
        c.local[60 + r] = c.local[r];
        c.local[r] = NULL;
    }
    open_all(&c, 4, &(struct launch){.launch = "b", .world = 2});
    check_resumed(&c, 4, 10);
    commit_all(&c, 4, 2, 20);
    c.ranks[0].stopped = c.ranks[1].stopped = false;
    for (unsigned r = 0; r < 2; r++) {
        assert_true(cluster_run(&c, ended, v[r], 600000));
        assert_int_equal(v[r]->error.status, BW_E_LAUNCH_LOST);
        assert_false(v[r]->committed);
        struct bwi_save *none;
        struct bw_error err = BW_ERROR_INIT;
        assert_fails(bwi_session_begin(c.ranks[r].session, 30, &none, &err), BW_E_LAUNCH_LOST, &err, "replaced");
    }
    commit_all(&c, 4, 2, 30);
    cluster_end(&c, 4);
    cluster_end(&c, 5);
    open_all(&c, 6, &(struct launch){.launch = "c", .world = 2});
    check_resumed(&c, 6, 30);
    cluster_fini(&c);
}

static void another_job_supersedes_for_good(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 9);
    open_all(&c, 0, &(struct launch){.job = "one", .launch = "a", .world = 1});
    commit_all(&c, 0, 1, 10);
    open_all(&c, 1, &(struct launch){.job = "two", .launch = "b", .world = 1});
    cluster_start(&c, 2, 2, 0, &(struct launch){.job = "one", .launch = "c", .world = 1});
    cluster_open(&c, 2, 1);
    assert_fails(c.ranks[2].open->error.status, BW_E_SUPERSEDED, &c.ranks[2].open->error, "two");
    commit_all(&c, 1, 1, 20);
    cluster_fini(&c);
}

static void a_rank_that_is_restarted_alone_is_refused(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 10);
    struct launch l = {.launch = "a", .world = 2};
    open_all(&c, 0, &l);
    cluster_kill(&c, 1);
    cluster_start(&c, 5, 1, 1, &l);
    cluster_open(&c, 5, 1);
    assert_fails(c.ranks[5].open->error.status, BW_E_NOT_MEMBER, &c.ranks[5].open->error, "restart all ranks");
    cluster_fini(&c);
}

static void a_launch_whose_ranks_do_not_all_arrive_names_them(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 11);
    struct launch l = {.launch = "a", .world = 4, .deadline_ms = 5000};
    cluster_start(&c, 0, 0, 0, &l);
    cluster_start(&c, 2, 2, 2, &l);
    cluster_open(&c, 0, 1);
    cluster_open(&c, 2, 1);
    assert_fails(c.ranks[0].open->error.status, BW_E_TIMEOUT, &c.ranks[0].open->error, "missing: 1, 3");
    assert_fails(c.ranks[2].open->error.status, BW_E_TIMEOUT, &c.ranks[2].open->error, "rank 0");
    cluster_fini(&c);
}

static void an_overlap_is_told_to_all(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    static struct state s;
    struct bw_error err = BW_ERROR_INIT;
    cluster_init(&c, 12);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    make_state(&s, 10);
    for (unsigned r = 0; r < 2; r++) {
        assert_ok(bwi_session_begin(c.ranks[r].session, 10, &v[r], &err), &err);
        describe(v[r], &s, 0, 2); /* both describe the first half, and both as the first replica */
        assert_ok(bwi_session_start(v[r], &err), &err);
    }
    for (unsigned r = 0; r < 2; r++) {
        assert_true(cluster_run(&c, ended, v[r], 60000));
        assert_int_equal(v[r]->error.status, r == 0 ? BW_E_COVERAGE : BW_E_ABORTED); /* rank 0 has looked itself */
        assert_non_null(strstr(v[r]->error.message, "\"same\""));
        bwi_session_release(v[r]);
    }
    commit_all(&c, 0, 2, 20);
    cluster_fini(&c);
}

static void a_skipped_step_ends_for_all(void **unused) {
    (void)unused;
    struct cluster c;
    static struct state s;
    cluster_init(&c, 13);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    make_state(&s, 10);
    struct bwi_save *v = save(&c, 0, 10, &s);
    bwi_session_skip(c.ranks[1].session, 10);
    assert_true(cluster_run(&c, ended, v, 60000));
    assert_int_equal(v->error.status, BW_E_ABORTED);
    commit_all(&c, 0, 2, 20);
    cluster_fini(&c);
}

static void rollback_and_fresh_work_once_per_label(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 14);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    for (uint64_t step = 10; step <= 30; step += 10) commit_all(&c, 0, 1, step);
    cluster_end(&c, 0);
    struct launch back = {.launch = "b", .world = 1, .mode = BWI_REGISTER_ROLLBACK, .label = "back", .resume_step = 10};
    open_all(&c, 1, &back);
    check_resumed(&c, 1, 10);
    commit_all(&c, 1, 1, 15);
    cluster_end(&c, 1);
    back.launch = "c";
    open_all(&c, 2, &back); /* the same command line again: goes on from 15 */
    check_resumed(&c, 2, 15);
    cluster_end(&c, 2);
    open_all(&c, 3, &(struct launch){.launch = "d", .world = 1, .mode = BWI_REGISTER_FRESH, .label = "anew"});
    assert_false(c.ranks[3].session->resume.from_checkpoint);
    cluster_fini(&c);
}

static void a_damaged_manifest_sends_the_launch_back_and_says_so(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 15);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    commit_all(&c, 0, 1, 10);
    commit_all(&c, 0, 1, 20);
    cluster_end(&c, 0);
    for (size_t i = 0; i < bwi_bucket_objects(c.remote); i++) {
        const char *key = bwi_bucket_key(c.remote, i);
        if (strstr(key, "/checkpoints/00000000000000000020.") && strstr(key, "manifest")) {
            assert_true(bwi_bucket_remove(c.remote, key));
            break;
        }
    }
    open_all(&c, 1, &(struct launch){.launch = "b", .world = 1});
    check_resumed(&c, 1, 10);
    assert_non_null(strstr(c.ranks[1].session->resume.reason, "went back"));
    cluster_fini(&c);
}

/* Flips one byte in the middle of every object of a bucket whose key contains both parts. */
static void flip(struct bwi_bucket *b, const char *part, const char *other) {
    for (size_t i = 0; i < bwi_bucket_objects(b); i++) {
        char key[512];
        struct bwi_span bytes;
        struct bwi_buf copy = {0};
        bwi_format(key, sizeof key, "%s", bwi_bucket_key(b, i));
        if (!strstr(key, part) || !strstr(key, other)) continue;
        assert_true(bwi_bucket_get(b, key, &bytes));
        bwi_buf_put(&copy, bytes.ptr, bytes.len);
        copy.ptr[copy.len / 2] ^= 1;
        assert_true(bwi_bucket_put(b, key, bwi_buf_span(&copy)));
        bwi_buf_fini(&copy);
    }
}

static void damage_on_every_tier_sends_the_next_launch_back(void **unused) {
    (void)unused;
    struct cluster c;
    static float got[ROWS][COLS];
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_restore *restore;
    cluster_init(&c, 19);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    commit_all(&c, 0, 1, 10);
    commit_all(&c, 0, 1, 20);
    cluster_end(&c, 0);
    flip(c.remote, "data/00/00000000000000000020.", ".safetensors");
    flip(c.local[0], "data/00/00000000000000000020.", ".safetensors");
    open_all(&c, 1, &(struct launch){.launch = "b", .world = 1});
    const struct bwi_resume *m = &c.ranks[1].session->resume;
    struct bwi_restore_target t = {.id = m->id,
                                   .committed = true,
                                   .manifest = m->manifest,
                                   .may_repair = true,
                                   .io_timeout_ns = 600 * BWI_NS_PER_S};
    assert_ok(bwi_restore_new(&c.ranks[1].ctx, &t, &restore, &err), &err);
    struct bw_slice slice = BW_SLICE_INIT;
    slice.name = "sharded";
    slice.dtype = BW_F32;
    slice.dims = 2;
    slice.data = got;
    struct bwi_restore_call call = {.r = restore, .what = BWI_RESTORE_READ, .slices = &slice, .slice_count = 1};
    bwi_restore_call_start(&call, c.ranks[1].loop, NULL);
    assert_true(cluster_run(&c, call_ended, &call.task, 600000));
    assert_fails(call.task.error.status, BW_E_CORRUPT, &call.task.error, "sharded");
    bwi_restore_free(restore);
    cluster_end(&c, 1);
    open_all(&c, 2, &(struct launch){.launch = "c", .world = 1}); /* on the node that holds the damaged copy */
    check_resumed(&c, 2, 10);
    assert_non_null(strstr(c.ranks[2].session->resume.reason, "went back"));
    cluster_fini(&c);
}

static void retention_retires_and_the_sweep_gives_the_bytes_back(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 16);
    struct launch l = {.launch = "a", .world = 2, .retention = {.keep_last = 5}};
    for (uint32_t r = 0; r < 2; r++) cluster_start(&c, r, r, r, &l);
    c.ranks[0].ctx.grace_ms = 0;
    cluster_open(&c, 0, 2);
    size_t objects = 0;
    for (uint64_t step = 1; step <= 30; step++) {
        commit_all(&c, 0, 2, step);
        if (step == 15) objects = bwi_bucket_objects(c.remote);
    }
    assert_true(bwi_bucket_objects(c.remote) <
                objects + 60); /* one entry a step and a retire entry, nothing else grows */
    assert_int_equal(c.ranks[0].session->head.entry.live_count <= 7, 1);
    cluster_fini(&c);
}

static void the_local_tier_keeps_to_its_quota(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 17);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1, .quota = 130000});
    size_t most = 0;
    for (uint64_t step = 1; step <= 12; step++) {
        commit_all(&c, 0, 1, step);
        if (bwi_bucket_objects(c.local[0]) > most) most = bwi_bucket_objects(c.local[0]);
    }
    assert_true(most < 20);
    cluster_fini(&c);
}

/* Latency, jitter and lost answers everywhere, tasks and ranks in random order: every save must end committed. */
static void random_delays_and_lost_answers_change_nothing(void **unused) {
    (void)unused;
    uint64_t first = test_seed(1000);
    for (uint64_t seed = first; seed < first + 40; seed++) {
        struct cluster c;
        cluster_init(&c, seed);
        c.shuffle = true;
        struct bwi_memory_model *m = bwi_bucket_model(c.remote);
        m->latency_ns = 2 * BWI_NS_PER_MS;
        m->jitter_ns = 50 * BWI_NS_PER_MS;
        m->lose_answer_every = 20;
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 3});
        for (uint64_t step = 1; step <= 4; step++) commit_all(&c, 0, 3, step);
        for (unsigned r = 0; r < 3; r++) cluster_end(&c, r);
        open_all(&c, 5, &(struct launch){.launch = "b", .world = 2});
        check_resumed(&c, 5, 4);
        cluster_fini(&c);
    }
}

static void a_failed_step_that_all_are_past_does_not_fill_the_log(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    cluster_init(&c, 18);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    bwi_bucket_fail_next(c.local[0], BWI_STORE_FINISH, NULL, BW_E_NOSPACE, false);
    save_all(&c, 0, 2, 10, v);
    for (unsigned r = 0; r < 2; r++) {
        assert_true(cluster_run(&c, ended, v[r], 60000));
        bwi_session_release(v[r]);
    }
    save_all(&c, 0, 2, 20, v);
    wait_level(&c, v[0], BW_COMMITTED);
    cluster_run(&c, never, NULL, 600000);
    assert_int_equal(c.ranks[0].session->head.entry.n, 3); /* register, abort, commit */
    cluster_fini(&c);
}

static void what_has_just_been_written_is_drained_from_memory(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v;
    cluster_init(&c, 24);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    save_all(&c, 0, 1, 1, &v);
    wait_level(&c, v, BW_COMMITTED);
    uint64_t chunks = 0;
    for (size_t i = 0; i < v->plan.chunk_count; i++) chunks += v->plan.chunks[i].bytes;
    assert_true(chunks > 0);
    assert_int_equal(v->stats.from_memory_bytes, chunks);
    assert_int_equal(bwi_arena_used(c.ranks[0].ctx.arena), 0);
    cluster_fini(&c);
}

/* A quota of the user, inodes, others who write at the same moment: the disk shows more than it gives. */
static void a_local_tier_that_has_refused_a_write_is_evicted_from_then_on(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v;
    cluster_init(&c, 22);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    for (uint64_t step = 1; step <= 3; step++) commit_all(&c, 0, 1, step);
    const size_t whole = bwi_bucket_objects(c.local[0]);
    bwi_bucket_fail_next(c.local[0], BWI_STORE_FINISH, NULL, BW_E_NOSPACE, false);
    save_all(&c, 0, 1, 4, &v);
    assert_true(cluster_run(&c, ended, v, 60000));
    assert_int_equal(v->error.status, BW_E_NOSPACE);
    bwi_session_release(v);
    for (uint64_t step = 5; step <= 8; step++) commit_all(&c, 0, 1, step);
    assert_int_equal(bwi_bucket_objects(c.local[0]), whole); /* each took the place of an older one */
    cluster_fini(&c);
}

/* The queue of events is short, and what else happens is told once. */
static void a_drain_that_fails_on_and_on_is_told_less_and_less(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v;
    cluster_init(&c, 23);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    commit_all(&c, 0, 1, 1);
    const uint64_t notes = c.ranks[0].notes;
    bwi_bucket_model(c.remote)->capacity_bytes = 1;
    save_all(&c, 0, 1, 2, &v);
    cluster_run(&c, never, NULL, 300000);
    assert_true(v->drain_failures > 20);
    assert_in_range(c.ranks[0].notes - notes, 4, 12);
    bwi_bucket_model(c.remote)->capacity_bytes = 0;
    wait_level(&c, v, BW_COMMITTED);
    cluster_fini(&c);
}

/* Calls to the authority that a failed step costs, with `steps` of them in the log since the last commit. */
static uint64_t calls_of_a_failed_step(uint64_t steps) {
    struct cluster c;
    struct bwi_save *v[2];
    uint64_t calls = 0;
    cluster_init(&c, 21);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    for (uint64_t step = 1; step <= steps; step++) {
        calls = 0;
        for (int k = 0; k <= BWI_STORE_SPACE; k++) calls -= c.ranks[0].ctx.tier[BWI_TIER_REMOTE]->ops[k];
        save_all(&c, 0, 2, step, v);
        bwi_session_cancel(v[1]);
        for (unsigned r = 0; r < 2; r++) {
            assert_true(cluster_run(&c, ended, v[r], 60000));
            bwi_session_release(v[r]);
        }
        cluster_run(&c, never, NULL, 10000);
        for (int k = 0; k <= BWI_STORE_SPACE; k++) calls += c.ranks[0].ctx.tier[BWI_TIER_REMOTE]->ops[k];
    }
    assert_int_equal(c.ranks[0].session->head.entry.try_count, steps);
    cluster_fini(&c);
    return calls;
}

static void many_failed_steps_cost_no_more_than_few(void **unused) {
    (void)unused;
    const uint64_t few = calls_of_a_failed_step(4);
    assert_in_range(calls_of_a_failed_step(60), 1, few + few / 2);
}

/* Every operation may fail: saves may fail with it, but whatever is reported as committed is what a restart finds. */
static void random_failures_never_make_a_false_commit(void **unused) {
    (void)unused;
    uint64_t first = test_seed(2000);
    for (uint64_t seed = first; seed < first + 30; seed++) {
        struct cluster c;
        struct bwi_save *v[3];
        static struct state s;
        uint64_t committed = 0;
        cluster_init(&c, seed);
        c.shuffle = true;
        struct bwi_memory_model *m = bwi_bucket_model(c.remote);
        m->latency_ns = BWI_NS_PER_MS;
        m->jitter_ns = 20 * BWI_NS_PER_MS;
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 3});
        m->fail_every = 25;
        m->lose_answer_every = 30;
        for (uint64_t step = 1; step <= 6; step++) {
            make_state(&s, step);
            for (unsigned r = 0; r < 3; r++) v[r] = save(&c, r, step, &s);
            for (unsigned r = 0; r < 3; r++) wait_level(&c, v[r], BW_CAPTURED);
            for (unsigned r = 0; r < 3; r++) assert_true(cluster_run(&c, ended, v[r], 3600000));
            for (unsigned r = 0; r < 3; r++) {
                if (v[r]->committed) committed = step;
                bwi_session_release(v[r]);
            }
        }
        m->fail_every = m->lose_answer_every = 0;
        for (unsigned r = 0; r < 3; r++) cluster_end(&c, r);
        open_all(&c, 5, &(struct launch){.launch = "b", .world = 2});
        const struct bwi_resume *f = &c.ranks[5].session->resume;
        assert_true(!committed || (f->from_checkpoint && f->id.step >= committed));
        if (f->from_checkpoint) check_resumed(&c, 5, f->id.step);
        cluster_fini(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_measuring_of_a_tier_is_stopped_by_what_matters_more),
        cmocka_unit_test(one_rank_saves_and_a_restart_resumes_from_it),
        cmocka_unit_test(several_ranks_commit_together_and_resume_alike),
        cmocka_unit_test(a_state_that_stays_is_planned_once_and_only_one_save_has_that_plan),
        cmocka_unit_test(a_save_that_is_dropped_or_fails_leaves_a_plan_that_fits_or_none),
        cmocka_unit_test(a_single_tier_goes_straight_to_remote),
        cmocka_unit_test(without_a_local_tier_a_later_save_does_not_end_the_one_before),
        cmocka_unit_test(without_a_local_tier_a_save_does_not_wait_for_the_end_of_one_that_failed),
        cmocka_unit_test(a_rank_that_fails_aborts_the_save_of_all_and_the_next_one_works),
        cmocka_unit_test(after_a_crash_the_newest_that_all_nodes_hold_is_resumed_and_committed),
        cmocka_unit_test(what_was_resumed_uncommitted_is_committed_by_the_next_launch),
        cmocka_unit_test(a_node_that_lost_its_disk_sends_all_back_to_the_committed_one),
        cmocka_unit_test(a_frozen_attempt_that_wakes_up_cannot_commit),
        cmocka_unit_test(another_job_supersedes_for_good),
        cmocka_unit_test(a_rank_that_is_restarted_alone_is_refused),
        cmocka_unit_test(a_launch_whose_ranks_do_not_all_arrive_names_them),
        cmocka_unit_test(an_overlap_is_told_to_all),
        cmocka_unit_test(a_skipped_step_ends_for_all),
        cmocka_unit_test(rollback_and_fresh_work_once_per_label),
        cmocka_unit_test(a_damaged_manifest_sends_the_launch_back_and_says_so),
        cmocka_unit_test(damage_on_every_tier_sends_the_next_launch_back),
        cmocka_unit_test(retention_retires_and_the_sweep_gives_the_bytes_back),
        cmocka_unit_test(the_local_tier_keeps_to_its_quota),
        cmocka_unit_test(a_failed_step_that_all_are_past_does_not_fill_the_log),
        cmocka_unit_test(what_has_just_been_written_is_drained_from_memory),
        cmocka_unit_test(a_local_tier_that_has_refused_a_write_is_evicted_from_then_on),
        cmocka_unit_test(a_drain_that_fails_on_and_on_is_told_less_and_less),
        cmocka_unit_test(many_failed_steps_cost_no_more_than_few),
        cmocka_unit_test(random_delays_and_lost_answers_change_nothing),
        cmocka_unit_test(random_failures_never_make_a_false_commit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
