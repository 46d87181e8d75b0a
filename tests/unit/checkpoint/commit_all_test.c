/* SPDX-License-Identifier: Apache-2.0 */
/* Committing all that is complete, beside a job that goes on writing. */
#include "checkpoint/commit_all.h"
#include "commit_job.h"

#define SEVEN UINT64_C(7)
#define EIGHT UINT64_C(8)

/* Groups 0 of steps 7 and 8 are there, of two each. */
static void begin(struct job *j) {
    job_init(j, 2, 1);
    bwi_bucket_model(j->bucket)->latency_ns = BWI_NS_PER_MS;
    for (j->id.step = SEVEN; j->id.step <= EIGHT; j->id.step++) put_group(j, 0, false, 1);
}

static void put_last(struct job *j, uint64_t step) {
    j->id.step = step;
    put_group(j, 1, false, 1);
}

static uint64_t calls_of(const struct job *j) {
    uint64_t n = 0;
    for (int i = 0; i <= BWI_STORE_SPACE; i++) n += j->ctx.tier[BWI_TIER_REMOTE]->ops[i];
    return n;
}

static void start(struct job *j, struct bwi_commit_all *all, struct bwi_findings *f) {
    *all = (struct bwi_commit_all){.ctx = &j->ctx, .patience_ns = 60 * BWI_NS_PER_S, .findings = f};
    bwi_commit_all_start(all, j->loop, NULL);
}

/* The status; the findings are those of this pass. */
static int commit_all(struct job *j, struct bwi_findings *f) {
    struct bwi_commit_all all;
    bwi_findings_fini(f);
    start(j, &all, f);
    job_run(j, &all.task);
    j->err = all.task.error;
    bwi_commit_all_fini(&all);
    return j->err.status;
}

/* Whether the newest entry holds the step live. */
static bool is_live(struct job *j, uint64_t step) {
    struct bwi_head head = {0};
    struct bwi_head_read read = {.ctx = &j->ctx, .head = &head};
    bwi_head_read_start(&read, j->loop, NULL);
    job_run(j, &read.task);
    assert_ok(read.task.error.status, &read.task.error);
    const bool live = bwi_policy_find_live(&head.entry, step) != NULL;
    bwi_head_fini(&head);
    return live;
}

static void assert_finding(const struct bwi_findings *f, size_t i, uint64_t step, uint32_t severity, const char *what) {
    struct bwi_id id;
    assert_true(i < f->count);
    assert_true(bwi_id_parse(bwi_span_str(f->list[i].id), &id));
    assert_int_equal(id.step, step);
    assert_int_equal(f->list[i].severity, severity);
    assert_string_equal(f->list[i].message, what);
}

static void what_is_complete_is_committed_lowest_first(void **state) {
    (void)state;
    struct job j;
    struct bwi_findings f = {0};
    begin(&j);
    put_last(&j, SEVEN);
    put_last(&j, EIGHT);
    assert_ok(commit_all(&j, &f), &j.err);
    assert_int_equal(f.count, 2);
    assert_finding(&f, 0, SEVEN, 0, "committed");
    assert_finding(&f, 1, EIGHT, 0, "committed");
    assert_ok(commit_all(&j, &f), &j.err);
    assert_int_equal(f.count, 0);
    bwi_findings_fini(&f);
    job_fini(&j);
}

/* It lacks a group for good: it was looked at again after the later one had been seen complete. */
static void an_incomplete_one_does_not_hold_up_a_later_one(void **state) {
    (void)state;
    struct job j;
    struct bwi_findings f = {0};
    begin(&j);
    put_last(&j, EIGHT);
    assert_ok(commit_all(&j, &f), &j.err);
    assert_int_equal(f.count, 2);
    assert_finding(&f, 0, EIGHT, 0, "committed");
    assert_finding(&f, 1, SEVEN, 1, "1 of 2 groups are missing, the first is group 1");
    bwi_findings_fini(&f);
    job_fini(&j);
}

static void one_of_which_only_marks_are_there_is_left_alone(void **state) {
    (void)state;
    struct job j;
    struct bwi_findings f = {0};
    struct bwi_buf bytes = {0};
    job_init(&j, 2, 1);
    const struct bwi_mark m = {.id = j.id, .group = 1, .status = BW_E_SKIPPED};
    assert_ok(bwi_mark_encode(&m, false, &bytes, &j.err), &j.err);
    put(&j, bwi_key_failed("run", &j.id, 1), &bytes);
    assert_ok(commit_all(&j, &f), &j.err);
    assert_int_equal(f.count, 1);
    assert_finding(&f, 0, SEVEN, 1, "no group of it is in the authority");
    put_group(&j, 0, false, 1);
    assert_ok(commit_all(&j, &f), &j.err);
    assert_int_equal(f.count, 1);
    assert_int_equal(f.list[0].status, BW_E_ABORTED);
    bwi_findings_fini(&f);
    job_fini(&j);
}

/* Runs it; before the k-th store call group 1 of step 7 comes, and then that of step 8, as groups are drained. false:
 * it ended before that. */
static bool complete_both_before(struct job *j, uint64_t k, struct bwi_findings *f) {
    struct bwi_commit_all all;
    const uint64_t before = calls_of(j);
    bool done = false;
    start(j, &all, f);
    while (all.task.running) {
        if (!done && calls_of(j) - before >= k) {
            put_last(j, SEVEN);
            put_last(j, EIGHT);
            done = true;
        }
        if (!bwi_loop_turn(j->loop, 0)) j->env.now = bwi_loop_next_ns(j->loop);
    }
    assert_ok(all.task.error.status, &all.task.error);
    bwi_commit_all_fini(&all);
    return done;
}

static void what_becomes_complete_meanwhile_is_not_passed_over(void **state) {
    (void)state;
    uint64_t k = 0;
    for (bool done = true; done; k++) {
        struct job j;
        struct bwi_findings f = {0};
        begin(&j);
        done = complete_both_before(&j, k, &f);
        if (done) {
            assert_true(is_live(&j, SEVEN) || !is_live(&j, EIGHT));
            assert_ok(commit_all(&j, &f), &j.err);
            assert_true(is_live(&j, SEVEN) && is_live(&j, EIGHT));
        }
        bwi_findings_fini(&f);
        job_fini(&j);
    }
}

/* Only then the later one goes first. */
static void a_look_that_fails_is_tried_again(void **state) {
    (void)state;
    for (int failures = 7; failures <= 8; failures++) { /* in two rounds */
        struct job j;
        struct bwi_findings f = {0};
        begin(&j);
        put_last(&j, SEVEN);
        const struct bwi_key summary = bwi_key_summary("run", &j.id, 1);
        put_last(&j, EIGHT);
        for (int i = 0; i < failures; i++) bwi_bucket_fail_next(j.bucket, BWI_STORE_GET, summary.s, BW_E_IO, false);
        assert_ok(commit_all(&j, &f), &j.err);
        assert_int_equal(f.count, 2);
        assert_true(is_live(&j, EIGHT));
        assert_int_equal(is_live(&j, SEVEN), failures == 7);
        bwi_findings_fini(&f);
        job_fini(&j);
    }
}

/* What is damaged stays so. */
static void a_damaged_one_is_told_and_does_not_hold_up_a_later_one(void **state) {
    (void)state;
    struct job j;
    struct bwi_findings f = {0};
    begin(&j);
    put_last(&j, SEVEN);
    assert_true(bwi_bucket_put(j.bucket, bwi_key_summary("run", &j.id, 1).s, bwi_span("damaged", 7)));
    put_last(&j, EIGHT);
    assert_ok(commit_all(&j, &f), &j.err);
    assert_int_equal(f.count, 2);
    assert_finding(&f, 0, EIGHT, 0, "committed");
    assert_int_equal(f.list[1].severity, 2);
    assert_int_equal(f.list[1].status, BW_E_CORRUPT);
    bwi_findings_fini(&f);
    job_fini(&j);
}

static void every_operation_may_fail_and_the_next_pass_commits(void **state) {
    (void)state;
    static const enum bwi_store_verb verbs[] = {BWI_STORE_LIST, BWI_STORE_GET, BWI_STORE_CREATE, BWI_STORE_SYNC};
    static const char *const parts[] = {"/history/", "/checkpoints/", "/groups/", "/failed/", "/index/", "/manifest"};
    unsigned failures = 0;
    for (size_t v = 0; v < sizeof verbs / sizeof *verbs; v++) {
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            struct job j;
            struct bwi_findings f = {0};
            begin(&j);
            put_last(&j, SEVEN);
            put_last(&j, EIGHT);
            bwi_bucket_fail_next(j.bucket, verbs[v], parts[p], BW_E_ACCESS, false);
            bool failed = commit_all(&j, &f) < 0;
            for (size_t i = 0; i < f.count; i++) failed |= f.list[i].severity == 2;
            failures += failed;
            assert_true(failed || (is_live(&j, SEVEN) && is_live(&j, EIGHT))); /* tried again, or told */
            assert_true(is_live(&j, SEVEN) || !is_live(&j, EIGHT));
            bwi_bucket_fail_next(j.bucket, verbs[v], parts[p], 0, false);
            assert_ok(commit_all(&j, &f), &j.err);
            assert_true(is_live(&j, EIGHT));
            bwi_findings_fini(&f);
            job_fini(&j);
        }
    }
    assert_true(failures >= 4); /* listings, and reading the history: these are not tried again */
}

static void memory_may_run_out_at_any_allocation(void **state) {
    (void)state;
    unsigned failures = 0;
    for (unsigned long n = 1; n < 2000; n += 1 + n / 40) {
        struct job j;
        struct bwi_findings f = {0};
        begin(&j);
        put_last(&j, EIGHT);
        bwi_alloc_fail_at(n);
        const bool failed = commit_all(&j, &f) < 0;
        bwi_alloc_fail_at(0);
        failures += failed;
        assert_true(failed || f.failed || f.count == 2); /* a finding that is missing is told of */
        assert_ok(commit_all(&j, &f), &j.err);
        assert_true(is_live(&j, EIGHT));
        bwi_findings_fini(&f);
        job_fini(&j);
    }
    assert_true(failures > 5);
}

static void it_can_be_cancelled_at_any_call(void **state) {
    (void)state;
    unsigned cancelled = 0;
    bool done = false;
    for (uint64_t k = 0; !done; k++) {
        struct job j;
        struct bwi_commit_all all;
        struct bwi_findings f = {0};
        begin(&j);
        put_last(&j, EIGHT);
        start(&j, &all, &f);
        while (all.task.running) {
            if (calls_of(&j) >= k && !all.task.cancel) bwi_task_cancel(&all.task);
            if (!bwi_loop_turn(j.loop, 0)) j.env.now = bwi_loop_next_ns(j.loop);
        }
        cancelled += all.task.error.status == BW_E_CANCELLED;
        done = all.task.error.status == 0;
        bwi_commit_all_fini(&all);
        assert_ok(commit_all(&j, &f), &j.err);
        assert_true(is_live(&j, EIGHT));
        bwi_findings_fini(&f);
        job_fini(&j);
    }
    assert_true(cancelled > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_complete_is_committed_lowest_first),
        cmocka_unit_test(an_incomplete_one_does_not_hold_up_a_later_one),
        cmocka_unit_test(one_of_which_only_marks_are_there_is_left_alone),
        cmocka_unit_test(what_becomes_complete_meanwhile_is_not_passed_over),
        cmocka_unit_test(a_look_that_fails_is_tried_again),
        cmocka_unit_test(a_damaged_one_is_told_and_does_not_hold_up_a_later_one),
        cmocka_unit_test(every_operation_may_fail_and_the_next_pass_commits),
        cmocka_unit_test(memory_may_run_out_at_any_allocation),
        cmocka_unit_test(it_can_be_cancelled_at_any_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
