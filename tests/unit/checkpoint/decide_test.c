/* SPDX-License-Identifier: Apache-2.0 */
/* The compare-and-swap on a run's log, and reading its head: participants that sleep for as long as it hurts most, each
 * with a loop of its own that is not turned while it sleeps. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/decide.h"
#include "store/store_memory.h"
#include "test.h"

#define KEPT BWI_HISTORY_KEPT

struct log {
    struct bwi_env_virtual env;
    struct bwi_bucket *bucket;
};

/* One participant: a process with its own loop on the same store. */
struct participant {
    struct log *log;
    struct bwi_loop *loop;
    struct bwi_context ctx;
    struct participant *meanwhile; /* whom it sees decide `sleeps` times between its reading and its creating */
    uint64_t sleeps;
    const char *reason;
};

static void participant_open(struct participant *p, struct log *l, uint64_t writer) {
    struct bw_error err = BW_ERROR_INIT;
    *p = (struct participant){.log = l, .reason = "a test"};
    assert_ok(bwi_loop_open(&l->env.env, NULL, &p->loop, &err), &err);
    bwi_context_init(&p->ctx, p->loop);
    (void)snprintf(p->ctx.run, sizeof p->ctx.run, "run");
    p->ctx.writer = writer;
    assert_ok(bwi_store_memory_open(l->bucket, p->loop, "m", &p->ctx.tier[BWI_TIER_REMOTE], &err), &err);
}

static void participant_close(struct participant *p) {
    assert_int_equal(bwi_loop_tasks(p->loop), 0);
    p->ctx.tier[BWI_TIER_REMOTE]->close(p->ctx.tier[BWI_TIER_REMOTE]);
    bwi_loop_close(p->loop);
}

static void turn(struct participant *p) {
    if (bwi_loop_turn(p->loop, 0)) return;
    const uint64_t next = bwi_loop_next_ns(p->loop);
    if (next == BWI_NEVER) fail_msg("%u tasks wait for nothing", bwi_loop_tasks(p->loop));
    if (next > p->log->env.now) p->log->env.now = next;
}

static void put_entry(struct log *l, const struct bwi_entry *e, uint32_t era, uint64_t n) {
    struct bwi_buf bytes = {0};
    assert_ok(bwi_entry_encode(e, &bytes, NULL), NULL);
    assert_true(bwi_bucket_put(l->bucket, bwi_key_entry("run", era, n).s, bwi_buf_span(&bytes)));
    bwi_buf_fini(&bytes);
}

/* A log whose only entry registers attempt 1. */
static void log_open(struct log *l) {
    struct bw_error err = BW_ERROR_INIT;
    memset(l, 0, sizeof *l);
    bwi_env_virtual_init(&l->env, 1);
    assert_int_equal(bwi_bucket_new(&l->env.env, &l->bucket), 0);
    struct bwi_actor a = {.time_ms = 1, .host = "h"};
    struct bwi_register r = {
        .run = "run", .job = "job", .launch = "l", .label = "", .world = 1, .groups = 1, .nonce = 5};
    struct bwi_entry first = {0};
    r.uuid.b[0] = 1;
    assert_ok(bwi_policy_register(&a, &r, &first, &err), &err);
    put_entry(l, &first, 1, 1);
    bwi_entry_fini(&first);
}

static void log_close(struct log *l) {
    bwi_bucket_free(l->bucket);
    assert_int_equal(bwi_alloc_live(), 0);
}

static bool has_entry(struct log *l, uint32_t era, uint64_t n) {
    struct bwi_span data;
    return bwi_bucket_get(l->bucket, bwi_key_entry("run", era, n).s, &data);
}

static void open_one(struct log *l, struct participant *a) {
    log_open(l);
    participant_open(a, l, 1);
}

static void open_two(struct log *l, struct participant *a, struct participant *b) {
    open_one(l, a);
    participant_open(b, l, 2);
}

static void close_one(struct log *l, struct participant *a) {
    participant_close(a);
    log_close(l);
}

static void close_two(struct log *l, struct participant *a, struct participant *b) {
    participant_close(b);
    close_one(l, a);
}

static void decide_times(struct participant *p, uint64_t times);

/* The decision that is made here over and over: to abort the current try of step 7. */
static int next_abort(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    struct participant *p = user;
    const struct bwi_id id = {.step = 7, .attempt = 1, .nonce = 5, .tri = bwi_policy_try(a->head, 7)};
    const int rc = bwi_policy_abort(a, &id, p->reason, ret, err);
    if (p->sleeps > 0) decide_times(p->meanwhile, p->sleeps);
    p->sleeps = 0;
    return rc;
}

static void decide_start(struct participant *p, struct bwi_decide *d) {
    d->ctx = &p->ctx;
    d->next = next_abort;
    d->user = p;
    if (d->deadline_ns == 0) d->deadline_ns = BWI_NEVER;
    bwi_decide_start(d, p->loop, NULL);
}

static void decide(struct participant *p, struct bwi_decide *d) {
    decide_start(p, d);
    while (d->task.running) turn(p);
}

static void decide_well(struct participant *p, struct bwi_decide *d) {
    decide(p, d);
    assert_ok(d->task.error.status, &d->task.error);
}

/* So often, by one participant. */
static void decide_times(struct participant *p, uint64_t times) {
    for (uint64_t i = 0; i < times; i++) {
        struct bwi_decide d = {0};
        decide_well(p, &d);
        bwi_decide_fini(&d);
    }
}

/* The reader has listed, and sleeps before it reads. */
static void read_until_get(struct participant *p, struct bwi_head_read *r) {
    bwi_head_read_start(r, p->loop, NULL);
    while (!r->get.busy) turn(p);
}

static void read_head(struct participant *p, struct bwi_head *ret) {
    struct bwi_head_read r = {.ctx = &p->ctx, .head = ret};
    bwi_head_read_start(&r, p->loop, NULL);
    while (r.task.running) turn(p);
    assert_ok(r.task.error.status, &r.task.error);
}

/* The log is whole from its first name on, each entry holds the hash of the one before, and the try has risen by one
 * with each: nothing was decided twice and nothing was lost. */
static void assert_chain(struct participant *p, uint64_t first, uint64_t last) {
    struct bwi_sha before = {{0}};
    for (uint64_t n = first; n <= last; n++) {
        struct bwi_span data;
        struct bwi_entry e = {0};
        assert_true(bwi_bucket_get(p->log->bucket, bwi_key_entry("run", 1, n).s, &data));
        assert_ok(bwi_entry_decode(data, &e, NULL), NULL);
        if (n > first) assert_true(bwi_sha_eq(&e.prev, &before));
        assert_int_equal(bwi_policy_try(&e, 7), n - 1);
        before = bwi_sha_of(data);
        bwi_entry_fini(&e);
    }
}

/* ---- deciding ---- */

static void a_decision_is_the_next_entry(void **state) {
    (void)state;
    struct log l;
    struct participant a;
    struct bwi_decide d = {0};
    struct bwi_head head = {0};
    open_one(&l, &a);
    decide_well(&a, &d);
    assert_true(d.created);
    assert_int_equal(d.head.entry.n, 2);
    assert_int_equal(d.rounds, 0);
    read_head(&a, &head);
    assert_int_equal(head.entry.n, 2);
    assert_true(bwi_sha_eq(&head.sha, &d.head.sha));
    assert_chain(&a, 1, 2);
    bwi_head_fini(&head);
    bwi_decide_fini(&d);
    close_one(&l, &a);
}

static void whoever_is_late_starts_over_on_what_the_other_one_decided(void **state) {
    (void)state;
    struct log l;
    struct participant a, b;
    struct bwi_decide d = {0};
    open_two(&l, &a, &b);
    a.meanwhile = &b;
    a.sleeps = 3;
    decide_well(&a, &d);
    assert_int_equal(d.rounds, 1);
    assert_int_equal(d.head.entry.n, 5);
    assert_int_equal(d.head.entry.writer, 1);
    assert_chain(&a, 1, 5);
    bwi_decide_fini(&d);
    close_two(&l, &a, &b);
}

/* n + 1 is trimmed when the log has come to n + 1 + KEPT: from then on its name is free again for a sleeper. */
static void a_sleeper_never_takes_a_name_that_was_trimmed_for_a_decision(void **state) {
    (void)state;
    for (uint64_t sleeps = KEPT - 1; sleeps <= KEPT + 3; sleeps++) {
        struct log l;
        struct participant a, b;
        struct bwi_decide d = {0};
        open_two(&l, &a, &b);
        a.meanwhile = &b;
        a.sleeps = sleeps;
        decide_well(&a, &d);
        assert_int_equal(d.rounds, 1);
        assert_int_equal(d.head.entry.n, 1 + sleeps + 1);
        assert_int_equal(has_entry(&l, 1, 2), 1 + sleeps + 1 < 2 + KEPT);
        assert_chain(&a, 1 + sleeps + 1 - KEPT + 1, 1 + sleeps + 1);
        bwi_decide_fini(&d);
        close_two(&l, &a, &b);
    }
}

static void the_log_keeps_so_many_entries_and_goes_oldest_first(void **state) {
    (void)state;
    struct log l;
    struct participant a;
    open_one(&l, &a);
    for (uint64_t n = 2; n <= KEPT + 20; n++) {
        decide_times(&a, 1);
        assert_int_equal(bwi_bucket_objects(l.bucket), n < KEPT ? n : KEPT);
        assert_true(has_entry(&l, 1, n < KEPT ? 1 : n - KEPT + 1));
    }
    close_one(&l, &a);
}

static void an_answer_that_is_lost_is_found_out(void **state) {
    (void)state;
    for (int effect = 0; effect < 2; effect++) {
        struct log l;
        struct participant a;
        struct bwi_decide d = {0};
        open_one(&l, &a);
        for (int i = 0; i < 9; i++)
            bwi_bucket_fail_next(l.bucket, BWI_STORE_CREATE, "history/", BW_E_UNKNOWN, effect == 1);
        decide_well(&a, &d);
        assert_int_equal(d.head.entry.n, 2);
        assert_chain(&a, 1, 2);
        bwi_decide_fini(&d);
        close_one(&l, &a);
    }
}

static void no_answer_by_the_deadline_is_unknown_and_a_clear_refusal_is_not(void **state) {
    (void)state;
    const int status[] = {BW_E_UNKNOWN, BW_E_TIMEOUT, BW_E_NOSPACE};
    const int told[] = {BW_E_UNKNOWN, BW_E_UNKNOWN, BW_E_NOSPACE};
    for (int i = 0; i < 3; i++) {
        struct log l;
        struct participant a;
        open_one(&l, &a);
        struct bwi_decide d = {.deadline_ns = l.env.now + 1};
        for (int k = 0; k < 30; k++) bwi_bucket_fail_next(l.bucket, BWI_STORE_CREATE, "history/", status[i], false);
        decide_start(&a, &d);
        while (d.task.running) {
            turn(&a);
            if (d.sent) l.env.now += BWI_NS_PER_S;
        }
        assert_int_equal(d.task.error.status, told[i]);
        assert_false(d.created);
        assert_false(has_entry(&l, 1, 2));
        bwi_decide_fini(&d);
        close_one(&l, &a);
    }
}

/* The entry exists; but whether it counts only a listing tells, and none comes. */
static void without_a_listing_behind_it_a_decision_is_unknown(void **state) {
    (void)state;
    for (int in_time = 0; in_time < 2; in_time++) {
        struct log l;
        struct participant a;
        open_one(&l, &a);
        bwi_bucket_model(l.bucket)->latency_ns = BWI_NS_PER_MS;
        struct bwi_decide d = {.deadline_ns = l.env.now + BWI_NS_PER_S};
        decide_start(&a, &d);
        while (!d.sent) turn(&a);
        for (int k = 0; k < (in_time ? 2 : 32); k++)
            bwi_bucket_fail_next(l.bucket, BWI_STORE_LIST, "history/", BW_E_IO, false);
        for (unsigned i = 0; d.task.running; i++) {
            if (i % 2) bwi_task_wake(&d.task); /* without a cause: it asks no sooner for that */
            turn(&a);
        }
        if (in_time) assert_ok(d.task.error.status, &d.task.error);
        if (!in_time) assert_fails(d.task.error.status, BW_E_UNKNOWN, &d.task.error, "injected failure");
        assert_int_equal(d.created, in_time);
        assert_true(has_entry(&l, 1, 2));
        bwi_decide_fini(&d);
        close_one(&l, &a);
    }
}

/* A lost answer and then a clear refusal: the first one may still land, so nobody says that it failed. */
static void a_refusal_after_a_lost_answer_is_no_clear_one(void **state) {
    (void)state;
    struct log l;
    struct participant a;
    open_one(&l, &a);
    struct bwi_decide d = {.deadline_ns = l.env.now + 1};
    for (int k = 0; k < 4; k++) bwi_bucket_fail_next(l.bucket, BWI_STORE_CREATE, "history/", BW_E_UNKNOWN, false);
    for (int k = 0; k < 9; k++) bwi_bucket_fail_next(l.bucket, BWI_STORE_CREATE, "history/", BW_E_NOSPACE, false);
    decide_start(&a, &d);
    while (d.task.running) {
        turn(&a);
        if (l.env.now < BWI_NS_PER_S && d.unsure) l.env.now += 10 * BWI_NS_PER_MS;
    }
    assert_int_equal(d.task.error.status, BW_E_UNKNOWN);
    bwi_decide_fini(&d);
    close_one(&l, &a);
}

static int next_nothing(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    (void)user, (void)a, (void)ret, (void)err;
    return 1;
}

/* What others have decided is told to somebody only when it is durable. */
static void with_nothing_to_decide_the_log_is_synced(void **state) {
    (void)state;
    struct log l;
    struct participant a;
    open_one(&l, &a);
    for (int fails = 1; fails >= 0; fails--) {
        struct bwi_decide d = {.ctx = &a.ctx, .next = next_nothing, .deadline_ns = BWI_NEVER};
        if (fails) bwi_bucket_fail_next(l.bucket, BWI_STORE_SYNC, "history/", BW_E_IO, false);
        bwi_decide_start(&d, a.loop, NULL);
        while (d.task.running) turn(&a);
        assert_int_equal(d.task.error.status, fails ? BW_E_IO : 0);
        assert_false(d.created);
        bwi_decide_fini(&d);
    }
    assert_int_equal(a.ctx.tier[BWI_TIER_REMOTE]->ops[BWI_STORE_SYNC], 2);
    close_one(&l, &a);
}

/* One decision of a process at a time: whoever stands behind one that hangs is let go all the same. */
static void in_line_a_deadline_and_a_cancel_count(void **state) {
    (void)state;
    struct log l;
    struct participant a;
    open_one(&l, &a);
    bwi_bucket_model(l.bucket)->latency_ns = 60 * BWI_NS_PER_S;
    struct bwi_decide d[3] = {
        {.deadline_ns = BWI_NEVER}, {.deadline_ns = l.env.now + BWI_NS_PER_S}, {.deadline_ns = BWI_NEVER}};
    for (int i = 0; i < 3; i++) decide_start(&a, &d[i]);
    bwi_task_cancel(&d[2].task);
    while (d[1].task.running || d[2].task.running) turn(&a);
    assert_int_equal(d[1].task.error.status, BW_E_TIMEOUT);
    assert_int_equal(d[2].task.error.status, BW_E_CANCELLED);
    assert_true(l.env.now < 3 * BWI_NS_PER_S);
    while (d[0].task.running) turn(&a);
    assert_ok(d[0].task.error.status, &d[0].task.error);
    for (int i = 0; i < 3; i++) bwi_decide_fini(&d[i]);
    close_one(&l, &a);
}

/* It is not waited for like an answer that was lost. */
static void what_is_no_file_under_the_name_of_the_next_entry_is_left_to_the_head(void **state) {
    (void)state;
    struct log l;
    struct participant a;
    struct bwi_decide d = {0};
    open_one(&l, &a);
    bwi_bucket_fail_next(l.bucket, BWI_STORE_CREATE, "history/", BW_E_IO, false);
    bwi_bucket_fail_next(l.bucket, BWI_STORE_GET, "0002.json", BW_E_CORRUPT, false);
    decide_well(&a, &d);
    assert_int_equal(d.rounds, 1);
    assert_chain(&a, 1, 2);
    bwi_decide_fini(&d);
    close_one(&l, &a);
}

static void a_damaged_newest_entry_stops_whoever_would_write(void **state) {
    (void)state;
    struct log l;
    struct participant a;
    struct bwi_decide d = {0};
    struct bwi_head head = {0};
    open_one(&l, &a);
    decide(&a, &d);
    bwi_decide_fini(&d);
    assert_true(bwi_bucket_put(l.bucket, bwi_key_entry("run", 1, 2).s, bwi_span_str("{}")));
    d = (struct bwi_decide){0};
    decide(&a, &d);
    assert_fails(d.task.error.status, BW_E_CORRUPT, &d.task.error,
                 "the newest history entry of run \"run\" is damaged (");
    assert_false(has_entry(&l, 1, 3));
    read_head(&a, &head);
    assert_true(head.damaged);
    assert_int_equal(head.damaged_n, 2);
    assert_int_equal(head.entry.n, 1);
    bwi_head_fini(&head);
    bwi_decide_fini(&d);
    close_one(&l, &a);
}

/* A repair that was begun and has not ended: nobody goes on in that era, and it is told apart from damage. */
static void behind_the_end_of_an_era_nobody_goes_on(void **state) {
    (void)state;
    struct log l;
    struct participant a;
    struct bwi_decide d = {0};
    struct bwi_head head = {0};
    struct bwi_buf bytes = {0};
    struct bwi_era_end end = {.run = "run", .era = 1, .n = 2};
    open_one(&l, &a);
    assert_ok(bwi_era_end_encode(&end, &bytes, NULL), NULL);
    assert_true(bwi_bucket_put(l.bucket, bwi_key_entry("run", 1, 2).s, bwi_buf_span(&bytes)));
    decide(&a, &d);
    assert_fails(d.task.error.status, BW_E_CORRUPT, &d.task.error,
                 "ends era 1: a repair was begun there and has not ended");
    read_head(&a, &head);
    assert_true(head.damaged && head.ended);
    assert_int_equal(head.damaged_n, 2);
    assert_int_equal(head.entry.n, 1);
    bwi_head_fini(&head);
    /* Under another name it is damage like any other. */
    assert_true(bwi_bucket_put(l.bucket, bwi_key_entry("run", 1, 3).s, bwi_buf_span(&bytes)));
    read_head(&a, &head);
    assert_true(head.damaged && !head.ended);
    bwi_head_fini(&head);
    bwi_decide_fini(&d);
    bwi_buf_fini(&bytes);
    close_one(&l, &a);
}

static void nobody_decides_in_an_archive(void **state) {
    (void)state;
    struct log l;
    struct participant a;
    struct bwi_decide d = {0};
    open_one(&l, &a);
    a.ctx.store_id[BWI_TIER_REMOTE].b[3] = 9;
    decide(&a, &d);
    assert_fails(d.task.error.status, BW_E_FOREIGN, &d.task.error, "this store is an archive of run \"run\"");
    bwi_decide_fini(&d);
    close_one(&l, &a);
}

/* ---- reading the head ---- */

/* A reader lists, sleeps while the log goes on and is trimmed, and finds what a sleeper has put under the old name. */
static void a_reader_does_not_believe_a_stray(void **state) {
    (void)state;
    for (uint64_t n = KEPT - 1; n <= KEPT + 1; n++) {
        struct log l;
        struct participant a, b;
        struct bwi_head head = {0};
        struct bwi_span first = BWI_SPAN_NONE;
        struct bwi_buf stray = {0};
        open_two(&l, &a, &b);
        assert_true(bwi_bucket_get(l.bucket, bwi_key_entry("run", 1, 1).s, &first));
        bwi_buf_put(&stray, first.ptr, first.len);
        struct bwi_head_read r = {.ctx = &a.ctx, .head = &head};
        read_until_get(&a, &r);
        decide_times(&b, n);
        assert_int_equal(has_entry(&l, 1, 1), n < KEPT);
        if (n >= KEPT) assert_true(bwi_bucket_put(l.bucket, bwi_key_entry("run", 1, 1).s, bwi_buf_span(&stray)));
        while (r.task.running) turn(&a);
        assert_ok(r.task.error.status, &r.task.error);
        assert_int_equal(head.entry.n, n < KEPT ? 1 : n + 1);
        bwi_buf_fini(&stray);
        bwi_head_fini(&head);
        close_two(&l, &a, &b);
    }
}

static void an_entry_trimmed_before_it_was_read_is_looked_for_again(void **state) {
    (void)state;
    struct log l;
    struct participant a, b;
    struct bwi_head head = {0};
    open_two(&l, &a, &b);
    struct bwi_head_read r = {.ctx = &a.ctx, .head = &head};
    read_until_get(&a, &r);
    decide_times(&b, KEPT);
    while (r.task.running) turn(&a);
    assert_ok(r.task.error.status, &r.task.error);
    assert_int_equal(head.entry.n, KEPT + 1);
    bwi_head_fini(&head);
    close_two(&l, &a, &b);
}

static void when_no_entry_is_sound_the_newest_is_told(void **state) {
    (void)state;
    struct log l;
    struct participant a;
    struct bwi_head head = {0};
    open_one(&l, &a);
    for (uint64_t n = 1; n <= 3; n++)
        assert_true(bwi_bucket_put(l.bucket, bwi_key_entry("run", 1, n).s, bwi_span_str("{}")));
    struct bwi_head_read r = {.ctx = &a.ctx, .head = &head};
    bwi_head_read_start(&r, a.loop, NULL);
    while (r.task.running) turn(&a);
    assert_fails(r.task.error.status, BW_E_CORRUPT, &r.task.error, "no entry is sound: 000001.00000000000000000003");
    assert_false(head.found);
    bwi_head_fini(&head);
    close_one(&l, &a);
}

static void who_is_woken_before_its_time_tries_no_sooner(void **state) {
    (void)state;
    struct log l;
    struct participant a;
    struct bwi_decide d = {0};
    open_one(&l, &a);
    const uint64_t *creates = &a.ctx.tier[BWI_TIER_REMOTE]->ops[BWI_STORE_CREATE];
    for (int k = 0; k < 6; k++) bwi_bucket_fail_next(l.bucket, BWI_STORE_CREATE, "history/", BW_E_UNKNOWN, false);
    decide_start(&a, &d);
    while (d.retry_ns <= l.env.now) turn(&a);
    const uint64_t tried = *creates;
    for (int i = 0; i < 10; i++) {
        bwi_task_wake(&d.task);
        while (bwi_loop_turn(a.loop, 0)) continue;
        assert_int_equal(*creates, tried);
    }
    const uint64_t due = d.retry_ns;
    while (d.task.running) turn(&a);
    assert_ok(d.task.error.status, &d.task.error);
    assert_true(d.created && *creates > tried && l.env.now >= due);
    bwi_decide_fini(&d);
    close_one(&l, &a);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    bool whole = false;
    for (unsigned long n = 1; !whole; n++) {
        struct log l;
        struct participant a;
        struct bwi_decide d = {0};
        open_one(&l, &a);
        (void)bwi_alloc_fail_at(n);
        decide(&a, &d);
        whole = bwi_alloc_fail_at(0) < n;
        if (whole) assert_ok(d.task.error.status, &d.task.error);
        if (d.task.error.status != 0) assert_int_equal(d.task.error.status, BW_E_NOMEM);
        if (d.task.error.status != 0) assert_false(d.created);
        bwi_decide_fini(&d);
        d = (struct bwi_decide){0};
        decide_well(&a, &d);
        bwi_decide_fini(&d);
        close_one(&l, &a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_decision_is_the_next_entry),
        cmocka_unit_test(whoever_is_late_starts_over_on_what_the_other_one_decided),
        cmocka_unit_test(a_sleeper_never_takes_a_name_that_was_trimmed_for_a_decision),
        cmocka_unit_test(the_log_keeps_so_many_entries_and_goes_oldest_first),
        cmocka_unit_test(an_answer_that_is_lost_is_found_out),
        cmocka_unit_test(no_answer_by_the_deadline_is_unknown_and_a_clear_refusal_is_not),
        cmocka_unit_test(without_a_listing_behind_it_a_decision_is_unknown),
        cmocka_unit_test(a_refusal_after_a_lost_answer_is_no_clear_one),
        cmocka_unit_test(with_nothing_to_decide_the_log_is_synced),
        cmocka_unit_test(in_line_a_deadline_and_a_cancel_count),
        cmocka_unit_test(what_is_no_file_under_the_name_of_the_next_entry_is_left_to_the_head),
        cmocka_unit_test(a_damaged_newest_entry_stops_whoever_would_write),
        cmocka_unit_test(behind_the_end_of_an_era_nobody_goes_on),
        cmocka_unit_test(nobody_decides_in_an_archive),
        cmocka_unit_test(a_reader_does_not_believe_a_stray),
        cmocka_unit_test(an_entry_trimmed_before_it_was_read_is_looked_for_again),
        cmocka_unit_test(when_no_entry_is_sound_the_newest_is_told),
        cmocka_unit_test(who_is_woken_before_its_time_tries_no_sooner),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
