/* SPDX-License-Identifier: Apache-2.0 */
/* An authority that some ranks of a job, or all of them, do not reach for a while, or that is set back to an older
 * state. Whole jobs, in memory and virtual time. */
#include "checkpoint/session_private.h"
#include "cluster_job.h"

#define MINUTE_MS UINT64_C(60000)

/* The ways of the ranks to the authority. A call on one that is cut fails and has no effect; what is on its way already
 * arrives. */
static struct {
    struct bwi_store *store;
    bool cut;
} ways[2];
static void (*on_the_way)(struct bwi_store *s, struct bwi_store_op *op);

static bool is_free_of_calls(enum bwi_store_verb verb) {
    return verb == BWI_STORE_WRITE || verb == BWI_STORE_RELEASE || verb == BWI_STORE_ABORT || verb == BWI_STORE_UNLOCK;
}

static void submit_if_there_is_a_way(struct bwi_store *s, struct bwi_store_op *op) {
    for (unsigned r = 0; r < 2; r++) {
        if (ways[r].store == s && ways[r].cut && !is_free_of_calls(op->verb))
            (void)bwi_error_set(&op->error, BW_E_TIMEOUT, "there is no way to it");
    }
    on_the_way(s, op);
}

static void open_job(struct cluster *c, uint64_t seed) {
    cluster_init(c, seed);
    open_all(c, 0, &(struct launch){.launch = "a", .world = 2});
    bwi_bucket_model(c->remote)->latency_ns = BWI_NS_PER_MS;
    for (unsigned r = 0; r < 2; r++) {
        ways[r].store = c->ranks[r].ctx.tier[BWI_TIER_REMOTE];
        ways[r].cut = false;
        on_the_way = ways[r].store->submit;
        ways[r].store->submit = submit_if_there_is_a_way;
    }
}

/* Bit r: rank r. */
static void cut_off(unsigned ranks) {
    for (unsigned r = 0; r < 2; r++) ways[r].cut = (ranks >> r & 1u) != 0;
}

static void wait_for_both(struct cluster *c, struct bwi_save *v[2], enum bw_level level) {
    for (unsigned r = 0; r < 2; r++) wait_level(c, v[r], level);
}

static void check_waiting(struct bwi_save *v[2]) {
    for (unsigned r = 0; r < 2; r++) {
        assert_true(v[r]->state != BWI_SAVE_ENDED);
        assert_false(v[r]->committed);
        assert_true(v[r]->level < BW_COMMITTED);
    }
}

static void commit_both(struct cluster *c, struct bwi_save *v[2]) {
    wait_for_both(c, v, BW_COMMITTED);
    for (unsigned r = 0; r < 2; r++) {
        assert_true(cluster_run(c, ended, v[r], 10 * MINUTE_MS));
        bwi_session_release(v[r]);
    }
}

/* The next launch, on the same nodes and with a way to the authority, goes on from `step`. */
static void go_on_from(struct cluster *c, uint64_t step) {
    for (unsigned r = 0; r < 2; r++) cluster_kill(c, r);
    open_all(c, 4, &(struct launch){.launch = "b", .world = 2});
    check_resumed(c, 4, step);
    commit_all(c, 4, 2, step + 10);
}

static void a_rank_that_is_cut_off_delays_the_commit_and_loses_nothing(void **unused) {
    (void)unused;
    for (unsigned rank = 0; rank < 2; rank++) {
        struct cluster c;
        struct bwi_save *v[2];
        open_job(&c, 90 + rank);
        commit_all(&c, 0, 2, 10);
        const uint64_t notes = c.ranks[rank].notes;
        cut_off(1u << rank);
        save_all(&c, 0, 2, 20, v);
        wait_for_both(&c, v, BW_LOCAL);
        cluster_run(&c, never, NULL, 30 * MINUTE_MS);
        check_waiting(v);
        assert_int_equal(v[rank]->level, BW_LOCAL);
        assert_int_equal(v[1 - rank]->level, BW_REMOTE);
        assert_true(c.ranks[rank].notes > notes);
        cut_off(0);
        commit_both(&c, v);
        cut_off(1u << rank);
        save_all(&c, 0, 2, 30, v);
        wait_for_both(&c, v, BW_LOCAL);
        go_on_from(&c, 30);
        cluster_fini(&c);
    }
}

static bool are_pending(struct cluster *c, void *user) {
    (void)c;
    struct bwi_save **v = user;
    return v[0]->state == BWI_SAVE_PENDING && v[1]->state == BWI_SAVE_PENDING;
}

/* Before anything of a step is there, or when all is and only the decision is missing. */
static void an_authority_that_is_down_delays_the_commit_and_loses_nothing(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    open_job(&c, 92);
    commit_all(&c, 0, 2, 10);
    for (uint64_t step = 20; step <= 30; step += 10) {
        cut_off(step == 20 ? 3 : 0);
        save_all(&c, 0, 2, step, v);
        if (step == 20)
            wait_for_both(&c, v, BW_LOCAL);
        else
            assert_true(cluster_run(&c, are_pending, v, MINUTE_MS));
        const uint64_t notes = c.ranks[0].notes;
        cut_off(3);
        cluster_run(&c, never, NULL, 60 * MINUTE_MS);
        check_waiting(v);
        assert_true(c.ranks[0].notes > notes);
        cut_off(0);
        commit_both(&c, v);
    }
    cut_off(3);
    save_all(&c, 0, 2, 40, v);
    wait_for_both(&c, v, BW_LOCAL);
    go_on_from(&c, 40);
    cluster_fini(&c);
}

/* --- an older state in its place ----------------------------------------------------------------------------- */

#define OBJECTS_MAX 64

struct backup {
    size_t count;
    char keys[OBJECTS_MAX][256];
    struct bwi_buf bytes[OBJECTS_MAX];
};

static void back_up(struct bwi_bucket *b, struct backup *ret) {
    *ret = (struct backup){.count = bwi_bucket_objects(b)};
    assert_in_range(ret->count, 1, OBJECTS_MAX);
    for (size_t i = 0; i < ret->count; i++) {
        struct bwi_span bytes;
        bwi_format(ret->keys[i], sizeof ret->keys[i], "%s", bwi_bucket_key(b, i));
        assert_true(bwi_bucket_get(b, ret->keys[i], &bytes));
        bwi_buf_put(&ret->bytes[i], bytes.ptr, bytes.len);
    }
}

/* Nothing that came behind it is there afterwards. */
static void put_back(struct bwi_bucket *b, struct backup *from) {
    while (bwi_bucket_objects(b) > 0) assert_true(bwi_bucket_remove(b, bwi_bucket_key(b, 0)));
    for (size_t i = 0; i < from->count; i++) {
        assert_true(bwi_bucket_put(b, from->keys[i], bwi_buf_span(&from->bytes[i])));
        bwi_buf_fini(&from->bytes[i]);
    }
}

static const struct bwi_kept *live(struct cluster *c, unsigned slot, uint64_t step) {
    return bwi_policy_find_live(&c->ranks[slot].session->head.entry, step);
}

/* Launch a has committed 10 and 20, launch b 30, of which it has the id; then the authority is set back to where 10 was
 * the newest. */
static struct bwi_id go_back_to_10(struct cluster *c, uint64_t seed) {
    static struct backup older;
    struct bwi_id lost = {0};
    cluster_init(c, seed);
    open_all(c, 0, &(struct launch){.launch = "a", .world = 2});
    commit_all(c, 0, 2, 10);
    back_up(c->remote, &older);
    commit_all(c, 0, 2, 20);
    for (unsigned r = 0; r < 2; r++) cluster_end(c, r);
    open_all(c, 2, &(struct launch){.launch = "b", .world = 2});
    check_resumed(c, 2, 20);
    commit_all(c, 2, 2, 30);
    lost = live(c, 2, 30)->id;
    for (unsigned r = 2; r < 4; r++) cluster_end(c, r);
    put_back(c->remote, &older);
    return lost;
}

/* An older state of the store in its place: told once, and again only if it happens again. */
static void a_history_that_goes_back_is_told(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 84);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    commit_all(&c, 0, 1, 5);
    commit_all(&c, 0, 1, 10);
    struct bwi_session *s = c.ranks[0].session;
    const struct bwi_key newest = bwi_key_entry("run", 1, s->head.entry.n);
    struct bwi_buf copy = {0};
    struct bwi_span bytes;
    assert_true(bwi_bucket_get(c.remote, newest.s, &bytes));
    bwi_buf_put(&copy, bytes.ptr, bytes.len);
    const uint64_t notes = c.ranks[0].notes;
    cluster_run(&c, never, NULL, MINUTE_MS);
    assert_int_equal(c.ranks[0].notes, notes);
    for (unsigned times = 1; times <= 2; times++) {
        assert_true(bwi_bucket_remove(c.remote, newest.s));
        cluster_run(&c, never, NULL, MINUTE_MS);
        assert_int_equal(c.ranks[0].notes, notes + times);
        assert_true(bwi_bucket_put(c.remote, newest.s, bwi_buf_span(&copy)));
        cluster_run(&c, never, NULL, MINUTE_MS);
        assert_int_equal(c.ranks[0].notes, notes + times);
    }
    assert_false(s->over);
    bwi_buf_fini(&copy);
    cluster_fini(&c);
}

static bool has_closed_from(struct cluster *c, void *user) {
    const struct bwi_session *s = c->ranks[*(unsigned *)user].session;
    return s->head.found && !s->head.entry.from.open && !bwi_salvage_running(s);
}

static bool is_held(struct cluster *c, unsigned node, const struct bwi_id *id) {
    const struct bwi_key key = bwi_key_summary("run", id, node);
    struct bwi_span bytes;
    return bwi_bucket_get(c->local[node], key.s, &bytes);
}

/* By that history 20 of launch a may still be committed, and both nodes hold it: it is, once more. 30 is of an attempt
 * that never was, so what is left of it is dead. */
static void a_history_that_goes_back_is_what_the_next_launch_goes_by(void **unused) {
    (void)unused;
    struct cluster c;
    unsigned four = 4;
    const struct bwi_id lost = go_back_to_10(&c, 94);
    open_all(&c, 4, &(struct launch){.launch = "c", .world = 2});
    assert_false(c.ranks[4].session->resume.committed);
    check_resumed(&c, 4, 20);
    assert_true(cluster_run(&c, has_closed_from, &four, MINUTE_MS));
    assert_non_null(live(&c, 4, 20));
    assert_null(live(&c, 4, 30));
    for (unsigned r = 0; r < 2; r++) assert_true(is_held(&c, r, &lost));
    commit_all(&c, 4, 2, 30); /* its saves make room */
    const struct bwi_id again = live(&c, 4, 30)->id;
    assert_false(bwi_id_eq(&again, &lost));
    for (unsigned r = 0; r < 2; r++) assert_true(!is_held(&c, r, &lost) && is_held(&c, r, &again));
    for (unsigned r = 4; r < 6; r++) cluster_end(&c, r);
    open_all(&c, 6, &(struct launch){.launch = "d", .world = 2});
    assert_true(c.ranks[6].session->resume.committed);
    check_resumed(&c, 6, 30);
    cluster_fini(&c);
}

/* Other nodes, which hold nothing: no more is claimed than the authority has. */
static void a_history_that_goes_back_without_the_disks_is_all_there_is(void **unused) {
    (void)unused;
    struct cluster c;
    (void)go_back_to_10(&c, 95);
    for (unsigned r = 0; r < 2; r++) cluster_start(&c, 4 + r, 2 + r, r, &(struct launch){.launch = "c", .world = 2});
    cluster_open(&c, 4, 2);
    for (unsigned r = 4; r < 6; r++) assert_ok(c.ranks[r].open->error.status, &c.ranks[r].open->error);
    assert_true(c.ranks[4].session->resume.committed);
    check_resumed(&c, 4, 10);
    commit_all(&c, 4, 2, 20);
    cluster_fini(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_is_cut_off_delays_the_commit_and_loses_nothing),
        cmocka_unit_test(an_authority_that_is_down_delays_the_commit_and_loses_nothing),
        cmocka_unit_test(a_history_that_goes_back_is_told),
        cmocka_unit_test(a_history_that_goes_back_is_what_the_next_launch_goes_by),
        cmocka_unit_test(a_history_that_goes_back_without_the_disks_is_all_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
