/* SPDX-License-Identifier: Apache-2.0 */
/* An authority that some ranks of a job, or all of them, do not reach for a while. Whole jobs, in memory and virtual
 * time. */
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_is_cut_off_delays_the_commit_and_loses_nothing),
        cmocka_unit_test(an_authority_that_is_down_delays_the_commit_and_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
