/* SPDX-License-Identifier: Apache-2.0 */
/* What saves are told, and when, where failures, delays and lost answers come between. Whole jobs, in memory and
 * virtual time. */
#include "checkpoint/session_private.h"
#include "cluster_job.h"

static uint64_t calls_of(struct rank *r) {
    uint64_t n = 0;
    for (int i = 0; i <= BWI_STORE_SPACE; i++) n += r->ctx.tier[BWI_TIER_REMOTE]->ops[i];
    return n;
}

static uint64_t lists_of(struct rank *r) {
    return r->ctx.tier[BWI_TIER_REMOTE]->ops[BWI_STORE_LIST];
}

static void pass(struct cluster *c, uint64_t ms) {
    cluster_run(c, never, NULL, ms);
}

static bool in_state(struct bwi_save *v, enum bwi_save_state state) {
    return v->state == state;
}

static bool is_pending(struct cluster *c, void *user) {
    (void)c;
    return in_state(user, BWI_SAVE_PENDING);
}

static bool tells(struct cluster *c, void *user) {
    (void)c;
    return ((struct bwi_save *)user)->state >= BWI_SAVE_MARK;
}

static bool enters_the_abort(struct cluster *c, void *user) {
    (void)c;
    return in_state(user, BWI_SAVE_ABORT);
}

static bool is_there(struct bwi_bucket *b, struct bwi_key key) {
    struct bwi_span found;
    return bwi_bucket_get(b, key.s, &found);
}

static void fail_marks(struct cluster *c, const char *part, unsigned n) {
    for (unsigned i = 0; i < n; i++) bwi_bucket_fail_next(c->remote, BWI_STORE_CREATE, part, BW_E_IO, false);
}

static void fail_locally(struct cluster *c, unsigned node) {
    bwi_bucket_fail_next(c->local[node], BWI_STORE_FINISH, NULL, BW_E_IO, false);
}

static void wait_ended(struct cluster *c, struct bwi_save *v) {
    assert_true(cluster_run(c, ended, v, 600000));
}

static void wait_committed(struct cluster *c, struct bwi_save *v) {
    wait_ended(c, v);
    if (!v->committed) fail_msg("step %llu: %s", (unsigned long long)v->step, v->error.message);
}

/* --- a summary that may be there ----------------------------------------------------------------------------- */

/* Its first answer was lost, and what was sent again was refused: the first may count all the same. */
static void a_summary_that_is_refused_only_when_sent_again_keeps_its_bytes(void **unused) {
    (void)unused;
    static const int refusals[] = {BW_E_NOSPACE, BW_E_ACCESS, BW_E_NOMEM};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct cluster c;
        struct bwi_save *v[2];
        cluster_init(&c, 60);
        bwi_bucket_model(c.remote)->latency_ns = BWI_NS_PER_MS;
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 2, .single_tier = true});
        commit_all(&c, 0, 2, 10);
        bwi_bucket_fail_next(c.remote, BWI_STORE_CREATE, "/groups/000001", BW_E_UNKNOWN, true);
        bwi_bucket_fail_next(c.remote, BWI_STORE_CREATE, "/groups/000001", refusals[i], false);
        save_all(&c, 0, 2, 20, v);
        assert_true(cluster_run(&c, tells, v[1], 60000));
        assert_int_equal(v[1]->error.status, refusals[i]);
        cluster_kill(&c, 1);
        wait_committed(&c, v[0]);
        assert_true(is_there(c.remote, bwi_key_content("run", false, &v[1]->id, 1)));
        cluster_end(&c, 0);
        open_all(&c, 4, &(struct launch){.launch = "b", .world = 2, .single_tier = true});
        check_resumed(&c, 4, 20);
        cluster_fini(&c);
    }
}

/* --- the history is read ------------------------------------------------------------------------------------- */

typedef int next_fn(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err);

/* Somebody's decision, by way of one rank's stores. */
static void decide_as(struct cluster *c, unsigned slot, next_fn *next, void *user) {
    struct rank *r = &c->ranks[slot];
    struct bwi_decide d = {.ctx = &r->ctx, .next = next, .user = user, .deadline_ns = BWI_NEVER};
    bwi_decide_start(&d, r->loop, NULL);
    assert_true(cluster_run(c, call_ended, &d.task, 60000));
    assert_ok(d.task.error.status, &d.task.error);
    assert_true(d.created);
    bwi_decide_fini(&d);
}

static int abort_1000(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    const struct bwi_session *s = user;
    struct bwi_id id = {.step = 1000, .attempt = s->attempt, .nonce = s->nonce, .tri = bwi_policy_try(a->head, 1000)};
    return bwi_policy_abort(a, &id, "x", ret, err);
}

static int commit_id(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    const struct bwi_kept k = {.id = *(struct bwi_id *)user, .bytes = 1};
    return bwi_policy_commit(a, &k, ret, err);
}

static int retire_id(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    return bwi_policy_retire(a, user, 1, ret, err);
}

/* Puts the commit of `id` behind the head that `s` knows, into the bucket alone. */
static struct bwi_key put_commit(struct cluster *c, const struct bwi_session *s, const struct bwi_id *id) {
    struct bw_error err = BW_ERROR_INIT;
    const struct bwi_head *h = &s->head;
    struct bwi_actor a = {.head = &h->entry, .head_sha = h->sha, .store = h->entry.store, .time_ms = 1, .host = "h"};
    struct bwi_kept k = {.id = *id, .bytes = 1};
    struct bwi_entry e = {0};
    struct bwi_buf bytes = {0};
    assert_ok(bwi_policy_commit(&a, &k, &e, &err), &err);
    assert_ok(bwi_entry_encode(&e, &bytes, &err), &err);
    const struct bwi_key key = bwi_key_entry("run", e.era, e.n);
    assert_false(is_there(c->remote, key));
    assert_true(bwi_bucket_put(c->remote, key.s, bwi_buf_span(&bytes)));
    bwi_buf_fini(&bytes);
    bwi_entry_fini(&e);
    return key;
}

/* A committer was frozen with its commit in its hands; its create arrives when the log has gone on, and it has not
 * looked yet whether it counts. */
static void a_stray_entry_commits_nothing(void **unused) {
    (void)unused;
    struct cluster c;
    static struct state s;
    cluster_init(&c, 61);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2, .single_tier = true});
    make_state(&s, 10);
    struct bwi_save *v = save(&c, 1, 10, &s);
    wait_level(&c, v, BW_REMOTE);
    pass(&c, 50);
    cluster_kill(&c, 0);
    cluster_kill(&c, 1);
    open_all(&c, 4, &(struct launch){.launch = "b", .world = 1, .single_tier = true});
    for (int i = 0; i < 910; i++) decide_as(&c, 4, abort_1000, c.ranks[4].session);
    put_commit(&c, c.ranks[0].session, &v->id);
    c.ranks[1].stopped = false;
    wait_ended(&c, v);
    assert_false(v->committed);
    assert_int_equal(v->error.status, BW_E_UNKNOWN);
    cluster_fini(&c);
}

/* Here the name in the gap was free for another reason; the entry above it names another one. */
static void an_entry_that_the_next_one_does_not_name_is_not_believed(void **unused) {
    (void)unused;
    struct cluster c;
    static struct state s;
    cluster_init(&c, 62);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2, .single_tier = true});
    make_state(&s, 10);
    struct bwi_save *v = save(&c, 1, 10, &s);
    wait_level(&c, v, BW_REMOTE);
    pass(&c, 50);
    cluster_kill(&c, 0);
    cluster_kill(&c, 1);
    open_all(&c, 4, &(struct launch){.launch = "b", .world = 1, .single_tier = true});
    for (int i = 0; i < 3; i++) decide_as(&c, 4, abort_1000, c.ranks[4].session);
    const struct bwi_entry *known = &c.ranks[0].session->head.entry;
    assert_true(bwi_bucket_remove(c.remote, bwi_key_entry("run", known->era, known->n + 1).s));
    put_commit(&c, c.ranks[0].session, &v->id);
    c.ranks[1].stopped = false;
    wait_ended(&c, v);
    assert_false(v->committed);
    assert_int_equal(v->error.status, BW_E_UNKNOWN);
    cluster_fini(&c);
}

/* The caller cancels while others commit, and the checkpoint has been retired when the abort is to be entered. */
static void a_cancelled_save_that_others_committed_is_told_so(void **unused) {
    (void)unused;
    for (int gone = 0; gone < 2; gone++) { /* the entry that tells is gone: nobody knows */
        struct cluster c;
        static struct state s;
        cluster_init(&c, 63);
        bwi_bucket_model(c.remote)->latency_ns = BWI_NS_PER_MS;
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 2, .single_tier = true});
        make_state(&s, 10);
        struct bwi_save *v = save(&c, 1, 10, &s);
        wait_level(&c, v, BW_REMOTE);
        bwi_session_cancel(v);
        assert_true(cluster_run(&c, enters_the_abort, v, 60000));
        cluster_kill(&c, 1);
        struct bwi_id ten = v->id, twenty = ten;
        twenty.step = 20;
        const struct bwi_entry *known = &c.ranks[1].session->head.entry;
        const struct bwi_key key = bwi_key_entry("run", known->era, known->n + 1);
        decide_as(&c, 0, commit_id, &ten);
        decide_as(&c, 0, commit_id, &twenty);
        decide_as(&c, 0, retire_id, &ten);
        if (gone) assert_true(bwi_bucket_remove(c.remote, key.s));
        c.ranks[1].stopped = false;
        wait_ended(&c, v);
        assert_int_equal(v->committed, !gone);
        assert_int_equal(v->error.status, gone ? BW_E_UNKNOWN : 0);
        cluster_fini(&c);
    }
}

static void fail_syncs(struct cluster *c) {
    for (int i = 0; i < 31; i++) bwi_bucket_fail_next(c->remote, BWI_STORE_SYNC, "/history/", BW_E_IO, false);
}

/* Somebody's entry is there, and nobody has made its name durable: a crash could take it back. */
static void an_entry_that_may_not_be_durable_is_not_reported(void **unused) {
    (void)unused;
    for (unsigned who = 0; who < 2; who++) { /* the keeper comes upon it; the abort of a cancelled save */
        struct cluster c;
        static struct state s;
        cluster_init(&c, 69);
        bwi_bucket_model(c.remote)->latency_ns = BWI_NS_PER_MS;
        open_all(&c, 0,
                 &(struct launch){.launch = "a", .world = 2, .single_tier = true, .retention = {.keep_last = 5}});
        make_state(&s, 10);
        struct bwi_save *v = save(&c, who, 10, &s);
        assert_true(cluster_run(&c, is_pending, v, 60000));
        if (who == 1) bwi_session_cancel(v);
        if (who == 1) assert_true(cluster_run(&c, enters_the_abort, v, 60000));
        cluster_kill(&c, who);
        decide_as(&c, 1 - who, commit_id, &v->id);
        c.ranks[who].stopped = false;
        fail_syncs(&c);
        if (who == 0) bwi_keeper_wake(c.ranks[0].session);
        pass(&c, 100);
        assert_false(v->committed);
        assert_int_equal(v->state, who == 0 ? BWI_SAVE_PENDING : BWI_SAVE_ENDED);
        if (who == 1) assert_int_equal(v->error.status, BW_E_UNKNOWN);
        wait_ended(&c, v);
        assert_int_equal(v->committed, who == 0);
        cluster_fini(&c);
    }
}

static void a_cancelled_save_that_others_aborted_stays_cancelled(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    cluster_init(&c, 64);
    bwi_bucket_model(c.remote)->latency_ns = BWI_NS_PER_MS;
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    save_all(&c, 0, 2, 10, v);
    bwi_session_cancel(v[1]);
    bwi_session_cancel(v[0]);
    for (unsigned r = 0; r < 2; r++) {
        wait_ended(&c, v[r]);
        assert_int_equal(v[r]->error.status, BW_E_CANCELLED);
    }
    cluster_fini(&c);
}

static int abort_id(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    return bwi_policy_abort(a, user, "others gave it up", ret, err);
}

/* A sweep may take what is dead while it is being drained: that is no damage, and the history says what it was. */
static void a_copy_that_is_gone_because_the_save_is_dead_is_told_as_the_abort(void **unused) {
    (void)unused;
    for (unsigned dead = 0; dead < 2; dead++) {
        struct cluster c;
        struct bwi_save *v[2];
        cluster_init(&c, 80);
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
        bwi_bucket_model(c.remote)->latency_ns = BWI_NS_PER_S;
        save_all(&c, 0, 2, 10, v);
        wait_level(&c, v[0], BW_LOCAL);
        assert_true(bwi_bucket_remove(c.local[0], bwi_key_content("run", false, &v[0]->id, 0).s));
        assert_true(cluster_run(&c, tells, v[0], 60000));
        assert_int_equal(v[0]->error.status, BW_E_CORRUPT);
        cluster_kill(&c, 0);
        if (dead) decide_as(&c, 1, abort_id, &v[0]->id);
        c.ranks[0].stopped = false;
        wait_ended(&c, v[0]);
        assert_int_equal(v[0]->error.status, dead ? BW_E_ABORTED : BW_E_CORRUPT);
        assert_non_null(strstr(v[0]->error.message, "/content\": the summary names it, and it is missing"));
        assert_true(!dead ||
                    strstr(v[0]->error.message, "step 10 was not committed: others gave it up; before that: "));
        cluster_fini(&c);
    }
}

static bool is_writing(struct cluster *c, void *user) {
    (void)c;
    const struct bwi_save *v = user;
    return v->state == BWI_SAVE_WRITE && v->captured && v->write.task.running;
}

/* Its packs go while they are written. If others have given it up, a sweep without grace may have taken them: then it
 * is told as aborted; else as what it is, an error of this tier. */
static void packs_that_go_while_they_are_written_are_told_as_the_abort(void **unused) {
    (void)unused;
    for (unsigned dead = 0; dead < 2; dead++) {
        struct cluster c;
        struct bwi_save *v[2];
        cluster_init(&c, 81);
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
        bwi_bucket_model(c.local[0])->latency_ns = BWI_NS_PER_S;
        save_all(&c, 0, 2, 10, v);
        assert_true(cluster_run(&c, is_writing, v[0], 60000));
        struct bwi_store *tier = c.ranks[0].ctx.tier[BWI_TIER_LOCAL];
        struct bwi_call remove = {0};
        struct bwi_task waits = {0};
        bwi_call_prepare(&remove, BWI_STORE_DELETE_PREFIX, bwi_key_data_of("run", false, &v[0]->id, 0).s);
        bwi_call_submit(&remove, &waits, tier);
        assert_true(cluster_run(&c, tells, v[0], 60000));
        assert_int_equal(v[0]->error.status, BW_E_IO);
        cluster_kill(&c, 0);
        if (dead) decide_as(&c, 1, abort_id, &v[0]->id);
        c.ranks[0].stopped = false;
        wait_ended(&c, v[0]);
        assert_int_equal(v[0]->error.status, dead ? BW_E_ABORTED : BW_E_IO);
        assert_non_null(strstr(v[0]->error.message, "its prefix was deleted meanwhile"));
        assert_int_equal(remove.op.error.status, 0);
        bwi_call_fini(&remove);
        cluster_fini(&c);
    }
}

static bool is_over(struct cluster *c, void *user) {
    return c->ranks[*(unsigned *)user].over.status != 0;
}

/* Its caller cancels it when a new launch has gone on from it, which may yet bring it to its end. */
static void a_save_that_a_new_attempt_went_on_from_does_not_fail_for_certain(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v = stop_at_local(&c, 82, &(struct launch){.launch = "b", .world = 1});
    assert_int_equal(c.ranks[4].session->resume.id.step, 10);
    cluster_kill(&c, 4);
    c.ranks[0].stopped = false;
    assert_true(cluster_run(&c, is_over, &(unsigned){0}, 60000));
    assert_int_not_equal(v->state, BWI_SAVE_ENDED);
    bwi_session_cancel(v);
    wait_ended(&c, v);
    assert_fails(v->error.status, BW_E_UNKNOWN, &v->error, "a new attempt may have gone on from it");
    cluster_fini(&c);
}

/* The same, and its abort cannot be entered: it never hears of the new attempt, which went on before its mark. */
static void a_save_whose_abort_cannot_be_entered_does_not_fail_for_certain(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v = stop_at_local(&c, 83, &(struct launch){.launch = "b", .world = 1});
    assert_int_equal(c.ranks[4].session->resume.id.step, 10);
    cluster_kill(&c, 4);
    fail_syncs(&c);
    c.ranks[0].stopped = false;
    bwi_session_cancel(v);
    wait_ended(&c, v);
    assert_true(is_there(c.remote, bwi_key_failed("run", &v->id, 0)));
    assert_fails(v->error.status, BW_E_UNKNOWN, &v->error, "the other ranks could not be told");
    cluster_fini(&c);
}

static bool entry_is_there(struct cluster *c, void *user) {
    return is_there(c->remote, bwi_key_entry("run", 1, *(uint64_t *)user));
}

static bool confirms_its_read(struct cluster *c, void *user) {
    (void)user;
    const struct bwi_decide *d = c->ranks[0].ctx.deciding;
    return d && d->read.task.running && d->read.state == 3;
}

/* The follower reads while a decision brings a newer head. */
static void what_the_history_said_is_never_taken_back(void **unused) {
    (void)unused;
    struct cluster c;
    static struct state s;
    cluster_init(&c, 65);
    bwi_bucket_model(c.remote)->latency_ns = BWI_NS_PER_MS;
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2, .single_tier = true});
    struct bwi_session *zero = c.ranks[0].session;
    make_state(&s, 20);
    struct bwi_save *v = save(&c, 0, 20, &s);
    assert_true(cluster_run(&c, is_pending, v, 60000));
    uint64_t n = zero->head.entry.n + 1;
    save(&c, 1, 20, &s);
    bwi_session_skip(c.ranks[1].session, 30); /* its abort is the next entry */
    assert_true(cluster_run(&c, entry_is_there, &n, 60000));
    assert_true(cluster_run(&c, confirms_its_read, NULL, 60000));
    bwi_follow_wake(zero);
    uint64_t last = 0;
    for (int i = 0; i < 12; i++) {
        pass(&c, 1);
        assert_true(zero->head.entry.n >= last);
        last = zero->head.entry.n;
    }
    assert_int_equal(last, n + 1);
    cluster_fini(&c);
}

/* Known and then damaged: an attempt is not over because of what was read below. */
static void damage_behind_what_is_known_ends_no_attempt(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 66);
    open_all(&c, 9, &(struct launch){.launch = "first", .world = 1});
    commit_all(&c, 9, 1, 5);
    cluster_end(&c, 9);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    struct bwi_session *s = c.ranks[0].session;
    const uint64_t n = s->head.entry.n;
    for (uint64_t k = n; k < n + 2; k++)
        assert_true(bwi_bucket_put(c.remote, bwi_key_entry("run", 1, k).s, bwi_span("damaged", 7)));
    pass(&c, 10000);
    assert_false(s->over);
    assert_int_equal(s->head.entry.n, n);
    cluster_fini(&c);
}

/* --- the order of commits ------------------------------------------------------------------------------------ */

static bool both_pending(struct cluster *c, void *user) {
    (void)c;
    struct bwi_save **v = user;
    return in_state(v[0], BWI_SAVE_PENDING) && in_state(v[1], BWI_SAVE_PENDING);
}

static bool looks_at_the_second(struct cluster *c, void *user) {
    return lists_of(&c->ranks[0]) - *(uint64_t *)user == 3;
}

/* Rank 0 has found 10 incomplete, and then sees 20 complete: 10 was too, before. */
static void a_later_step_does_not_overtake_a_complete_one(void **unused) {
    (void)unused;
    struct cluster c;
    static struct state s10, s20;
    struct bwi_save *a[2], *b[2];
    uint64_t before;
    cluster_init(&c, 67);
    bwi_bucket_model(c.remote)->latency_ns = BWI_NS_PER_MS;
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    commit_all(&c, 0, 2, 5);
    make_state(&s10, 10);
    make_state(&s20, 20);
    a[0] = save(&c, 0, 10, &s10);
    b[0] = save(&c, 0, 20, &s20);
    struct bwi_save *mine[2] = {a[0], b[0]};
    assert_true(cluster_run(&c, both_pending, mine, 60000));
    do { /* between two rounds */
        before = lists_of(&c.ranks[0]);
        pass(&c, 12);
    } while (lists_of(&c.ranks[0]) != before);
    assert_true(cluster_run(&c, looks_at_the_second, &before, 60000));
    cluster_kill(&c, 0);
    a[1] = save(&c, 1, 10, &s10);
    b[1] = save(&c, 1, 20, &s20);
    struct bwi_save *theirs[2] = {a[1], b[1]};
    assert_true(cluster_run(&c, both_pending, theirs, 60000));
    c.ranks[0].stopped = false;
    for (unsigned r = 0; r < 2; r++) {
        wait_committed(&c, a[r]);
        wait_committed(&c, b[r]);
    }
    cluster_fini(&c);
}

/* That a complete one cannot be read for a while says nothing about it; only after that the later ones go on. */
static void a_step_that_cannot_be_decided_for_a_while_is_not_passed_over(void **unused) {
    (void)unused;
    for (unsigned for_ever = 0; for_ever < 2; for_ever++) {
        struct cluster c;
        struct bwi_save *a[2], *b[2];
        cluster_init(&c, 83);
        bwi_bucket_model(c.remote)->latency_ns = BWI_NS_PER_MS;
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
        save_all(&c, 0, 1, 10, &a[0]);
        save_all(&c, 0, 1, 20, &b[0]);
        struct bwi_save *mine[2] = {a[0], b[0]};
        assert_true(cluster_run(&c, both_pending, mine, 60000));
        cluster_kill(&c, 0);
        save_all(&c, 1, 1, 10, &a[1]);
        save_all(&c, 1, 1, 20, &b[1]);
        struct bwi_save *theirs[2] = {a[1], b[1]};
        assert_true(cluster_run(&c, both_pending, theirs, 60000));
        const struct bwi_key summary = bwi_key_summary("run", &a[0]->id, 1);
        for (int i = 0; i < (for_ever ? 30 : 6); i++)
            bwi_bucket_fail_next(c.remote, BWI_STORE_GET, summary.s, BW_E_IO, false);
        c.ranks[0].stopped = false;
        for (unsigned r = 0; r < 2; r++) {
            wait_ended(&c, a[r]);
            wait_committed(&c, b[r]);
            assert_int_equal(a[r]->error.status, for_ever ? BW_E_ABORTED : 0);
        }
        cluster_fini(&c);
    }
}

struct listing {
    struct rank *r;
    uint64_t more_than;
};

static bool lists_more(struct cluster *c, void *user) {
    (void)c;
    const struct listing *l = user;
    return lists_of(l->r) > l->more_than;
}

/* Pauses have grown to their longest by then. */
static void who_is_woken_while_looking_looks_again_at_once(void **unused) {
    (void)unused;
    for (unsigned rank = 0; rank < 2; rank++) { /* the committer; the follower */
        struct cluster c;
        static struct state s;
        cluster_init(&c, 68);
        open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
        make_state(&s, 10);
        struct bwi_save *v = save(&c, rank, 10, &s);
        assert_true(cluster_run(&c, is_pending, v, 60000));
        cluster_kill(&c, 1 - rank);
        bwi_lookout_stop(c.ranks[rank].session); /* what it lists is not counted here */
        pass(&c, 120000);
        if (rank == 0) bwi_follow_stop(c.ranks[0].session);
        bwi_bucket_model(c.remote)->latency_ns = 10 * BWI_NS_PER_MS;
        struct listing l = {&c.ranks[rank], lists_of(&c.ranks[rank])};
        assert_true(cluster_run(&c, lists_more, &l, 60000));
        if (rank == 0)
            bwi_committer_wake(c.ranks[0].session);
        else
            bwi_follow_wake(c.ranks[1].session);
        l.more_than = lists_of(l.r) + (rank == 0); /* a look is two listings, a read one */
        assert_true(cluster_run(&c, lists_more, &l, 60));
        cluster_fini(&c);
    }
}

/* --- what is owed to the others ------------------------------------------------------------------------------ */

/* Some tries fail, and the marks of those whose keys contain `part` cannot be put for a while. */
static void save_again_after(const char *part, unsigned failures) {
    struct cluster c;
    struct bwi_save *v[1];
    cluster_init(&c, 70);
    bwi_bucket_model(c.remote)->latency_ns = BWI_NS_PER_MS;
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    fail_marks(&c, part, 31);
    for (unsigned i = 0; i < failures; i++) {
        fail_locally(&c, 0);
        save_all(&c, 0, 1, 10, v);
        wait_ended(&c, v[0]);
        assert_int_equal(v[0]->error.status, BW_E_IO);
        bwi_session_release(v[0]);
    }
    save_all(&c, 0, 1, 10, v);
    assert_int_equal(v[0]->id.tri, failures);
    assert_true(cluster_run(&c, is_pending, v[0], 60000));
    pass(&c, 1000);
    const uint64_t before = calls_of(&c.ranks[0]);
    pass(&c, 5000); /* try 0 is in the way all the time: nobody hammers the store */
    assert_true(calls_of(&c.ranks[0]) - before < 500);
    assert_int_equal(v[0]->state, BWI_SAVE_PENDING);
    wait_committed(&c, v[0]);
    cluster_fini(&c);
}

static void a_step_whose_failure_could_not_be_told_is_saved_again(void **unused) {
    (void)unused;
    for (unsigned failures = 1; failures <= 3; failures++) {
        save_again_after("/failed/", failures);
        save_again_after(".0/failed/", failures); /* the later ones wait for the first */
    }
}

/* It had nobody but this rank to tell of it, and that rank does not save the step again. */
static void a_failure_is_told_as_soon_as_it_can_be(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    cluster_init(&c, 71);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    fail_marks(&c, "/failed/000001", 10);
    fail_locally(&c, 1);
    save_all(&c, 0, 2, 10, v);
    wait_ended(&c, v[1]);
    assert_int_equal(v[0]->state, BWI_SAVE_PENDING);
    wait_ended(&c, v[0]);
    assert_fails(v[0]->error.status, BW_E_ABORTED, &v[0]->error, "write pack 0 to the local tier");
    cluster_fini(&c);
}

static void a_refusal_is_told_as_soon_as_it_can_be(void **unused) {
    (void)unused;
    struct cluster c;
    static struct state s;
    cluster_init(&c, 72);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    fail_marks(&c, "/failed/000001", 3);
    make_state(&s, 10);
    struct bwi_save *ten = save(&c, 0, 10, &s);
    wait_level(&c, ten, BW_CAPTURED);
    make_state(&s, 20);
    save(&c, 1, 20, &s);
    wait_ended(&c, ten);
    assert_fails(ten->error.status, BW_E_ABORTED, &ten->error, "rank 1 is past this step");
    cluster_fini(&c);
}

static bool is_down(struct cluster *c, void *user) {
    (void)user;
    return bwi_session_idle(c->ranks[0].session);
}

/* A close does not hang on what cannot be told. */
static void what_cannot_be_told_holds_no_close_up(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[1];
    cluster_init(&c, 73);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    bwi_bucket_model(c.remote)->fail_every = 1;
    fail_locally(&c, 0);
    save_all(&c, 0, 1, 10, v);
    wait_ended(&c, v[0]);
    for (uint64_t step = 11; step < 20; step++) bwi_session_skip(c.ranks[0].session, step);
    pass(&c, 5000);
    bwi_session_close(c.ranks[0].session);
    pass(&c, 1000);
    bwi_session_give_up(c.ranks[0].session);
    assert_true(cluster_run(&c, is_down, NULL, 10000));
    bwi_bucket_model(c.remote)->fail_every = 0;
    cluster_fini(&c);
}

/* A rank that has made a try, and many steps after it, still waits for it. */
static void a_rank_never_refuses_what_it_has_made_itself(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[1];
    cluster_init(&c, 74);
    bwi_bucket_model(c.remote)->latency_ns = 20 * BWI_NS_PER_MS;
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    fail_locally(&c, 0);
    save_all(&c, 0, 1, 10, v);
    wait_ended(&c, v[0]);
    bwi_session_release(v[0]);
    bwi_bucket_model(c.remote)->fail_every = 1; /* the authority is down */
    save_all(&c, 0, 1, 10, v);
    wait_level(&c, v[0], BW_LOCAL);
    for (uint64_t s = 11; s < 28; s++) {
        bwi_session_skip(c.ranks[0].session, s);
        pass(&c, 5000);
    }
    bwi_bucket_model(c.remote)->fail_every = 0; /* and is back, but not for what it is to drain */
    for (int i = 0; i < 28; i++) bwi_bucket_fail_next(c.remote, BWI_STORE_BEGIN, "10.", BW_E_IO, false);
    bwi_session_skip(c.ranks[0].session, 28);
    wait_committed(&c, v[0]);
    cluster_fini(&c);
}

/* However long the authority hangs, steps that are skipped take no room, and hide no save. */
static void any_number_of_steps_may_be_skipped(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[1];
    struct bwi_id busy[BWI_SAVES_MAX];
    cluster_init(&c, 75);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    bwi_bucket_model(c.remote)->latency_ns = 3600 * BWI_NS_PER_S;
    for (uint64_t step = 10; step < 300; step++) bwi_session_skip(c.ranks[0].session, step);
    save_all(&c, 0, 1, 300, v);
    assert_int_equal(bwi_session_in_flight(c.ranks[0].session), 1);
    assert_int_equal(bwi_session_busy(c.ranks[0].session, busy, BWI_SAVES_MAX), 1);
    assert_true(bwi_id_eq(&busy[0], &v[0]->id));
    assert_int_equal(c.ranks[0].session->stats.saves_skipped, 290);
    assert_int_equal(c.ranks[0].session->stats.saves_begun, 1);
    bwi_bucket_model(c.remote)->latency_ns = 0;
    pass(&c, 3500000);
    pass(&c, 200000);
    assert_true(v[0]->committed);
    commit_all(&c, 0, 1, 400);
    cluster_fini(&c);
}

static void the_last_steps_that_were_skipped_are_told(void **unused) {
    (void)unused;
    struct cluster c;
    static struct state s;
    cluster_init(&c, 76);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2});
    make_state(&s, 290);
    struct bwi_save *v = save(&c, 0, 290, &s);
    assert_true(cluster_run(&c, is_pending, v, 60000));
    fail_marks(&c, "/failed/000001", 5);
    for (uint64_t step = 10; step < 300; step++) bwi_session_skip(c.ranks[1].session, step);
    wait_ended(&c, v);
    assert_fails(v->error.status, BW_E_ABORTED, &v->error, "skipped by rank 1");
    commit_all(&c, 0, 2, 400);
    cluster_fini(&c);
}

/* --- room ---------------------------------------------------------------------------------------------------- */

static struct bwi_save *save_many(struct cluster *c, uint64_t step, unsigned n) {
    static float data[4000];
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_save *v;
    assert_ok(bwi_session_begin(c->ranks[0].session, step, &v, &err), &err);
    for (unsigned i = 0; i < n; i++) {
        char name[128];
        uint64_t one = 1;
        bwi_format(name, sizeof name, "%0100u", i);
        struct bw_tensor t = BW_TENSOR_INIT;
        t.name = name;
        t.dtype = BW_F32;
        t.dims = 1;
        t.shape = &one;
        t.data = data + i;
        assert_ok(bwi_description_tensor(&v->description, &t, &err), &err);
    }
    assert_ok(bwi_session_start(v, &err), &err);
    return v;
}

/* 20 waits for room while 10 is on its way; 30 fits, and waits for 20 to be drained. When 10 has ended nothing frees
 * any. */
static void a_save_does_not_wait_for_room_behind_one_that_waits_for_it(void **unused) {
    (void)unused;
    struct cluster c;
    cluster_init(&c, 77);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 1});
    struct bwi_save *ten = save_many(&c, 10, 1);
    bwi_bucket_model(c.remote)->latency_ns = 500 * BWI_NS_PER_MS;
    wait_level(&c, ten, BW_LOCAL);
    uint64_t used = 0;
    struct bwi_span object;
    for (size_t i = 0; i < bwi_bucket_objects(c.local[0]); i++) {
        assert_true(bwi_bucket_get(c.local[0], bwi_bucket_key(c.local[0], i), &object));
        used += object.len;
    }
    struct bwi_save *twenty = save_many(&c, 20, 3000); /* fits but for its layout */
    bwi_bucket_model(c.local[0])->capacity_bytes = used + twenty->plan.stored_bytes + 120000;
    assert_true(twenty->plan.layout_bytes.len > 200000);
    pass(&c, 5);
    assert_int_equal(twenty->state, BWI_SAVE_ROOM);
    struct bwi_save *thirty = save_many(&c, 30, 1);
    wait_level(&c, thirty, BW_LOCAL);
    wait_committed(&c, ten);
    wait_ended(&c, twenty);
    assert_int_equal(twenty->error.status, BW_E_NOSPACE);
    wait_committed(&c, thirty);
    cluster_fini(&c);
}

/* --- salvage ------------------------------------------------------------------------------------------------- */

static bool from_is_closed(struct cluster *c, void *user) {
    (void)user;
    const struct bwi_session *s = c->ranks[4].session;
    return s->head.found && !s->head.entry.from.open && !bwi_salvage_running(s);
}

/* Both ranks hold 20, and nothing of it has reached the authority when they die. */
static void leave_20(struct cluster *c, struct bwi_save **v) {
    open_all(c, 0, &(struct launch){.launch = "a", .world = 2});
    bwi_bucket_model(c->remote)->latency_ns = 3600 * BWI_NS_PER_S;
    save_all(c, 0, 2, 20, v);
    for (unsigned r = 0; r < 2; r++) wait_level(c, v[r], BW_LOCAL);
    for (unsigned r = 0; r < 2; r++) cluster_kill(c, r);
    bwi_bucket_model(c->remote)->latency_ns = 0;
}

static void what_the_authority_has_with_another_content_is_given_up(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    cluster_init(&c, 78);
    leave_20(&c, v);
    const struct bwi_key content = bwi_key_content("run", false, &v[1]->id, 1);
    assert_true(bwi_bucket_put(c.remote, content.s, bwi_span("another", 7)));
    open_all(&c, 4, &(struct launch){.launch = "b", .world = 2});
    assert_false(c.ranks[4].session->resume.committed);
    assert_true(cluster_run(&c, from_is_closed, NULL, 60000));
    assert_null(bwi_policy_find_live(&c.ranks[4].session->head.entry, 20));
    commit_all(&c, 4, 2, 30);
    cluster_fini(&c);
}

static bool all_down(struct cluster *c, void *user) {
    (void)user;
    return bwi_session_idle(c->ranks[4].session) && bwi_session_idle(c->ranks[5].session);
}

static void a_salvage_that_is_stopped_complains_of_nothing(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    cluster_init(&c, 79);
    leave_20(&c, v);
    open_all(&c, 4, &(struct launch){.launch = "b", .world = 2});
    bwi_bucket_model(c.remote)->latency_ns = BWI_NS_PER_S;
    pass(&c, 500);
    assert_true(bwi_salvage_running(c.ranks[5].session));
    const uint64_t notes = c.ranks[5].notes;
    for (unsigned r = 4; r < 6; r++) bwi_session_close(c.ranks[r].session);
    for (unsigned r = 4; r < 6; r++) bwi_session_give_up(c.ranks[r].session);
    assert_true(cluster_run(&c, all_down, NULL, 60000));
    assert_int_equal(c.ranks[5].notes, notes);
    cluster_fini(&c);
}

/* Its pauses are as long as they get: what it does not look for it does not find. */
static void who_has_heard_something_looks_at_once(void **unused) {
    (void)unused;
    struct cluster c;
    struct bwi_save *v[2];
    static struct state s;
    cluster_init(&c, 80);
    open_all(&c, 0, &(struct launch){.launch = "a", .world = 2, .single_tier = true});
    for (unsigned r = 0; r < 2; r++) c.ranks[r].ctx.poll_min_ns = c.ranks[r].ctx.poll_max_ns = 100 * BWI_NS_PER_S;
    make_state(&s, 10);
    v[0] = save(&c, 0, 10, &s);
    assert_true(cluster_run(&c, is_pending, v[0], 1000));
    pass(&c, 1000);
    v[1] = save(&c, 1, 10, &s);
    assert_true(cluster_run(&c, is_pending, v[1], 1000));
    pass(&c, 1000);
    assert_false(v[0]->committed);
    bwi_session_look(c.ranks[0].session);
    pass(&c, 1);
    assert_true(v[0]->committed);
    assert_false(v[1]->committed);
    bwi_session_look(c.ranks[1].session);
    pass(&c, 1);
    assert_true(v[1]->committed);
    cluster_fini(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_summary_that_is_refused_only_when_sent_again_keeps_its_bytes),
        cmocka_unit_test(a_stray_entry_commits_nothing),
        cmocka_unit_test(an_entry_that_the_next_one_does_not_name_is_not_believed),
        cmocka_unit_test(a_cancelled_save_that_others_committed_is_told_so),
        cmocka_unit_test(an_entry_that_may_not_be_durable_is_not_reported),
        cmocka_unit_test(a_cancelled_save_that_others_aborted_stays_cancelled),
        cmocka_unit_test(packs_that_go_while_they_are_written_are_told_as_the_abort),
        cmocka_unit_test(a_save_that_a_new_attempt_went_on_from_does_not_fail_for_certain),
        cmocka_unit_test(a_save_whose_abort_cannot_be_entered_does_not_fail_for_certain),
        cmocka_unit_test(a_copy_that_is_gone_because_the_save_is_dead_is_told_as_the_abort),
        cmocka_unit_test(what_the_history_said_is_never_taken_back),
        cmocka_unit_test(damage_behind_what_is_known_ends_no_attempt),
        cmocka_unit_test(a_later_step_does_not_overtake_a_complete_one),
        cmocka_unit_test(a_step_that_cannot_be_decided_for_a_while_is_not_passed_over),
        cmocka_unit_test(who_is_woken_while_looking_looks_again_at_once),
        cmocka_unit_test(a_step_whose_failure_could_not_be_told_is_saved_again),
        cmocka_unit_test(a_failure_is_told_as_soon_as_it_can_be),
        cmocka_unit_test(a_refusal_is_told_as_soon_as_it_can_be),
        cmocka_unit_test(what_cannot_be_told_holds_no_close_up),
        cmocka_unit_test(a_rank_never_refuses_what_it_has_made_itself),
        cmocka_unit_test(any_number_of_steps_may_be_skipped),
        cmocka_unit_test(the_last_steps_that_were_skipped_are_told),
        cmocka_unit_test(a_save_does_not_wait_for_room_behind_one_that_waits_for_it),
        cmocka_unit_test(what_the_authority_has_with_another_content_is_given_up),
        cmocka_unit_test(a_salvage_that_is_stopped_complains_of_nothing),
        cmocka_unit_test(who_has_heard_something_looks_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
