/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a session while others change the run, from inventories that are not what they should be, and without memory;
 * and what is brought into the authority then. Whole jobs, in memory and virtual time. */
#include "checkpoint/decide.h"
#include "cluster_job.h"

/* --- the history moves ---------------------------------------------------------------------------------------- */

static bool count_down(struct cluster *c, void *user) {
    unsigned *left = user;
    (void)c;
    return (*left)-- == 0;
}

/* Turns only one slot, so often; false: its open has ended before. */
static bool turn_alone(struct cluster *c, unsigned slot, unsigned turns) {
    (void)cluster_run(c, count_down, &turns, 1000);
    return c->ranks[slot].open->running;
}

/* A launch is stopped after so many turns, while the attempt before it saves a step; and goes on. */
static void commit_during_an_open(struct cluster *c, unsigned turns, uint64_t pass_ms, bool *ret_opening,
                                  bool *ret_committed) {
    struct bwi_save *v;
    open_all(c, 0, &(struct launch){.launch = "a", .world = 1});
    commit_all(c, 0, 1, 10);
    cluster_start(c, 1, 1, 0, &(struct launch){.launch = "b", .world = 1});
    c->ranks[0].stopped = true;
    *ret_opening = turn_alone(c, 1, turns);
    c->ranks[0].stopped = false;
    c->ranks[1].stopped = true;
    save_all(c, 0, 1, 20, &v);
    assert_true(cluster_run(c, ended, v, 600000));
    *ret_committed = v->level == BW_COMMITTED;
    bwi_session_release(v);
    c->env.now += pass_ms * BWI_NS_PER_MS;
    c->ranks[1].stopped = false;
    cluster_open(c, 1, 1);
}

/* Either the step came before the launch, and the launch goes on from it; or it came too late, and nobody was told that
 * it is committed. */
static void a_commit_at_any_moment_of_an_open_is_gone_on_from_or_not_made(void **unused) {
    (void)unused;
    unsigned with = 0, without = 0;
    bool opening = true, committed = false;
    for (unsigned turns = 0; opening; turns++) {
        struct cluster c;
        cluster_init(&c, 50);
        commit_during_an_open(&c, turns, 0, &opening, &committed);
        assert_ok(c.ranks[1].open->error.status, &c.ranks[1].open->error);
        check_resumed(&c, 1, committed ? 20 : 10);
        with += committed;
        without += !committed;
        cluster_fini(&c);
    }
    assert_true(with > 5 && without > 0);
}

/* The same where the deadline of the open passes meanwhile: it was in time, or it says that it was not. */
static void an_open_whose_deadline_passes_while_others_decide_says_so(void **unused) {
    (void)unused;
    bool opening = true, committed = false, told = false;
    for (unsigned turns = 0; opening; turns++) {
        struct cluster c;
        cluster_init(&c, 51);
        commit_during_an_open(&c, turns, 61000, &opening, &committed);
        const struct bw_error *e = &c.ranks[1].open->error;
        if (e->status == 0)
            check_resumed(&c, 1, committed ? 20 : 10);
        else
            assert_int_equal(e->status, BW_E_TIMEOUT);
        told = told || strstr(e->message, "the history went on changing until the deadline") != NULL;
        cluster_fini(&c);
    }
    assert_true(told);
}

static int next_abort(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    const struct bwi_attempt *now = &a->head->attempt;
    const struct bwi_id id = {.step = 99, .attempt = now->number, .nonce = now->nonce};
    (void)user;
    return bwi_policy_abort(a, &id, "on demand", ret, err);
}

static bool has_arrived(struct cluster *c, void *user) {
    struct bwi_span bytes;
    (void)user;
    return bwi_bucket_get(c->remote, bwi_key_inventory("run", "b", 1).s, &bytes);
}

/* Whoever comes late reads another entry than that of the registration, which alone has the reason. */
static void a_late_rank_is_told_what_it_goes_on_from_if_not_why(void **unused) {
    (void)unused;
    for (int from = 0; from < 2; from++) {
        struct cluster c;
        struct launch l = {.launch = "a", .world = 2};
        cluster_init(&c, 52);
        open_all(&c, 0, &l);
        if (from) commit_all(&c, 0, 2, 10);
        for (uint32_t r = 0; r < 2; r++) cluster_end(&c, r);
        l.launch = "b";
        for (uint32_t r = 0; r < 2; r++) cluster_start(&c, 10 + r, r, r, &l);
        assert_true(cluster_run(&c, has_arrived, NULL, 1000));
        c.ranks[11].stopped = true;
        cluster_open(&c, 10, 1);
        struct bwi_decide d = {.ctx = &c.ranks[10].ctx, .next = next_abort, .deadline_ns = BWI_NEVER};
        bwi_decide_start(&d, c.ranks[10].loop, NULL);
        assert_true(cluster_run(&c, call_ended, &d.task, 60000));
        assert_ok(d.task.error.status, &d.task.error);
        bwi_decide_fini(&d);
        c.ranks[11].stopped = false;
        cluster_open(&c, 11, 1);
        assert_ok(c.ranks[11].open->error.status, &c.ranks[11].open->error);
        assert_string_equal(c.ranks[11].session->resume.reason, from ? "chosen by rank 0" : "a start from nothing");
        assert_int_equal(c.ranks[11].session->attempt, 2);
        if (from) check_resumed(&c, 11, 10);
        cluster_fini(&c);
    }
}

/* --- inventories ---------------------------------------------------------------------------------------------- */

/* A run, and stores that have their identities. */
static void make_run(struct cluster *c) {
    open_all(c, 20, &(struct launch){.launch = "first", .world = 1});
    cluster_end(c, 20);
}

static void put_inventory(struct cluster *c, const char *launch, uint32_t under, uint32_t group) {
    struct bwi_inventory v = {
        .group = group, .groups = 2, .world = 2, .rank_count = 1, .ranks = {group}, .writers = {7}, .seen_told = true};
    struct bwi_buf bytes = {0};
    struct bw_error err = BW_ERROR_INIT;
    bwi_format(v.job, sizeof v.job, "job");
    bwi_format(v.launch, sizeof v.launch, "%s", launch);
    assert_ok(bwi_inventory_encode(&v, &bytes, &err), &err);
    assert_true(bwi_bucket_put(c->remote, bwi_key_inventory("run", launch, under).s, bwi_buf_span(&bytes)));
    bwi_buf_fini(&bytes);
}

static void an_inventory_under_another_ranks_name_ends_the_launch(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 53);
    make_run(&c);
    put_inventory(&c, "a", 1, 0);
    cluster_start(&c, 0, 0, 0, &(struct launch){.launch = "a", .world = 2});
    cluster_open(&c, 0, 1);
    assert_fails(c.ranks[0].open->error.status, BW_E_CORRUPT, &c.ranks[0].open->error,
                 "launches/a/000001.json\" is that of another group");
    cluster_fini(&c);
}

static void what_is_no_inventory_makes_no_rank(void **unused) {
    (void)unused;
    static const char *const names[] = {"stranger", "00000x.json", "000007.json"};
    struct cluster c;
    cluster_init(&c, 54);
    make_run(&c);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct bwi_key key = bwi_key_launch("run", "a");
        (void)strncat(key.s, names[i], sizeof key.s - strlen(key.s) - 1);
        assert_true(bwi_bucket_put(c.remote, key.s, bwi_span_str("{}")));
    }
    cluster_start(&c, 0, 0, 0, &(struct launch){.launch = "a", .world = 2, .deadline_ms = 5000});
    cluster_open(&c, 0, 1);
    assert_fails(c.ranks[0].open->error.status, BW_E_TIMEOUT, &c.ranks[0].open->error,
                 "only 1 of 2 ranks of launch \"a\" have arrived; missing: 1.");
    cluster_end(&c, 0);
    open_all(&c, 2, &(struct launch){.launch = "b", .world = 2});
    cluster_fini(&c);
}

/* --- what is brought over after an open ------------------------------------------------------------------------ */

/* Step 10 is committed; step 20 is complete on both nodes, and nowhere else. Ends the ranks that have seen it. */
static void crash_before_the_drain(struct cluster *c) {
    struct bwi_save *v[2];
    open_all(c, 0, &(struct launch){.launch = "a", .world = 2});
    commit_all(c, 0, 2, 10);
    bwi_bucket_model(c->remote)->latency_ns = 3600 * BWI_NS_PER_S;
    save_all(c, 0, 2, 20, v);
    for (uint32_t r = 0; r < 2; r++) {
        wait_level(c, v[r], BW_LOCAL);
        bwi_session_release(v[r]);
        cluster_kill(c, r);
    }
    bwi_bucket_model(c->remote)->latency_ns = 0;
}

/* The first object of step 20 on a node whose key has this in it. */
static struct bwi_key key_on(struct cluster *c, unsigned node, const char *part) {
    struct bwi_key key = {{0}};
    for (size_t i = 0; i < bwi_bucket_objects(c->local[node]) && key.s[0] == '\0'; i++) {
        const char *at = bwi_bucket_key(c->local[node], i);
        if (strstr(at, "00000000000000000020.") && strstr(at, part)) bwi_format(key.s, sizeof key.s, "%s", at);
    }
    assert_true(key.s[0] != '\0');
    return key;
}

static struct bwi_buf copy_of(struct bwi_bucket *b, const struct bwi_key *key) {
    struct bwi_buf copy = {0};
    struct bwi_span bytes;
    assert_true(bwi_bucket_get(b, key->s, &bytes));
    bwi_buf_put(&copy, bytes.ptr, bytes.len);
    return copy;
}

static bool settled(struct cluster *c, void *user) {
    (void)user;
    const struct bwi_session *s = c->ranks[4].session;
    return s->head.found && !s->head.entry.from.open;
}

/* The mark that says so is put again until it is there. */
static void a_copy_that_is_damaged_is_given_up_even_if_that_cannot_be_said_at_once(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 56);
    crash_before_the_drain(&c);
    const struct bwi_key key = key_on(&c, 1, ".safetensors");
    struct bwi_buf pack = copy_of(c.local[1], &key);
    pack.ptr[pack.len - 1] ^= 1;
    assert_true(bwi_bucket_put(c.local[1], key.s, bwi_buf_span(&pack)));
    bwi_buf_fini(&pack);
    for (int i = 0; i < 20; i++) bwi_bucket_fail_next(c.remote, BWI_STORE_CREATE, "/failed/", BW_E_IO, false);
    open_all(&c, 4, &(struct launch){.launch = "b", .world = 2});
    assert_int_equal(c.ranks[4].session->resume.id.step, 20);
    assert_true(cluster_run(&c, settled, NULL, 600000));
    assert_null(bwi_policy_find_live(&c.ranks[4].session->head.entry, 20));
    for (unsigned i = 4; i < 6; i++) cluster_end(&c, i);
    open_all(&c, 6, &(struct launch){.launch = "c", .world = 2});
    check_resumed(&c, 6, 10);
    check_resumed(&c, 7, 10);
    cluster_fini(&c);
}

/* Another rank of its node may have brought it over, and evicted it: that is for the authority to say. */
static void a_copy_that_has_gone_is_not_given_up(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 57);
    crash_before_the_drain(&c);
    const struct bwi_key key = key_on(&c, 1, "/groups/");
    struct bwi_buf summary = copy_of(c.local[1], &key);
    for (uint32_t r = 0; r < 2; r++) cluster_start(&c, 4 + r, r, r, &(struct launch){.launch = "b", .world = 2});
    bwi_bucket_model(c.local[1])->latency_ns = BWI_NS_PER_S;
    cluster_open(&c, 4, 2);
    assert_true(bwi_bucket_remove(c.local[1], key.s)); /* while it is asked for */
    assert_false(cluster_run(&c, settled, NULL, 20000));
    assert_int_equal(c.ranks[5].over.status, 0);
    for (unsigned i = 4; i < 6; i++) cluster_end(&c, i);
    assert_true(bwi_bucket_put(c.local[1], key.s, bwi_buf_span(&summary)));
    bwi_buf_fini(&summary);
    bwi_bucket_model(c.local[1])->latency_ns = 0;
    open_all(&c, 6, &(struct launch){.launch = "c", .world = 2});
    check_resumed(&c, 7, 20);
    cluster_fini(&c);
}

/* --- memory --------------------------------------------------------------------------------------------------- */

/* Of both ranks. Each of them says so, or what the other one said; the next launch opens. */
static void any_allocation_of_an_open_may_fail(void **unused) {
    (void)unused;
    bool whole = false;
    unsigned long n = 1;
    for (; !whole; n += 1 + n / 60) {
        struct cluster c;
        struct launch l = {.launch = "a", .world = 2};
        cluster_init(&c, 55);
        open_all(&c, 0, &l);
        commit_all(&c, 0, 2, 10);
        for (uint32_t r = 0; r < 2; r++) cluster_end(&c, r);
        l.launch = "b";
        for (uint32_t r = 0; r < 2; r++) cluster_start(&c, 10 + r, r, r, &l);
        (void)bwi_alloc_fail_at(n);
        cluster_open(&c, 10, 2);
        whole = bwi_alloc_fail_at(0) < n;
        for (unsigned i = 10; i < 12; i++) {
            const struct bw_error *e = &c.ranks[i].open->error;
            if (e->status < 0 && e->status != BW_E_TIMEOUT) assert_int_equal(e->status, BW_E_NOMEM);
            cluster_end(&c, i);
        }
        l.launch = "c";
        open_all(&c, 12, &l);
        check_resumed(&c, 12, 10);
        cluster_fini(&c);
    }
    assert_true(n > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_at_any_moment_of_an_open_is_gone_on_from_or_not_made),
        cmocka_unit_test(an_open_whose_deadline_passes_while_others_decide_says_so),
        cmocka_unit_test(a_late_rank_is_told_what_it_goes_on_from_if_not_why),
        cmocka_unit_test(an_inventory_under_another_ranks_name_ends_the_launch),
        cmocka_unit_test(what_is_no_inventory_makes_no_rank),
        cmocka_unit_test(a_copy_that_is_damaged_is_given_up_even_if_that_cannot_be_said_at_once),
        cmocka_unit_test(a_copy_that_has_gone_is_not_given_up),
        cmocka_unit_test(any_allocation_of_an_open_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
