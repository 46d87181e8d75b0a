/* SPDX-License-Identifier: Apache-2.0 */
/* Commit: from summaries to the entry, on the memory store, up to 1,024 groups. */
#include "commit_job.h"
#include "os/os.h"
#include <stdio.h>

static void look(struct job *j, struct bwi_index_cache *cache, struct bwi_commit *c) {
    *c = (struct bwi_commit){.ctx = &j->ctx,
                             .id = j->id,
                             .groups = j->groups,
                             .world = j->groups,
                             .lineage_of = &j->head,
                             .cache = cache,
                             .deadline_ns = BWI_NEVER};
    bwi_commit_start(c, j->loop, NULL);
    job_run(j, &c->task);
}

static void a_missing_group_is_named_and_nothing_is_decided(void **state) {
    (void)state;
    struct job j;
    struct bwi_commit c;
    job_init(&j, 4, 2);
    for (uint32_t g = 0; g < 4; g++)
        if (g != 2) put_group(&j, g, false, 1);
    look(&j, NULL, &c);
    assert_ok(c.task.error.status, &c.task.error);
    assert_int_equal(c.result, BWI_COMMIT_INCOMPLETE);
    assert_int_equal(c.missing, 1);
    assert_int_equal(c.first_missing, 2);
    assert_string_equal(c.missing_list, "2");
    bwi_commit_fini(&c);
    job_fini(&j);
}

static void of_many_missing_groups_the_first_eight_are_named(void **state) {
    (void)state;
    static const struct {
        uint32_t groups;
        const char *list;
    } cases[] = {
        {9, "0, 1, 3, 4, 5, 6, 7, 8"}, {10, "0, 1, 3, 4, 5, 6, 7, 8, ..."}, {500, "0, 1, 3, 4, 5, 6, 7, 8, ..."}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job j;
        struct bwi_commit c;
        job_init(&j, cases[i].groups, 2);
        put_group(&j, 2, false, 1);
        look(&j, NULL, &c);
        assert_int_equal(c.result, BWI_COMMIT_INCOMPLETE);
        assert_int_equal(c.missing, cases[i].groups - 1);
        assert_int_equal(c.first_missing, 0);
        assert_string_equal(c.missing_list, cases[i].list);
        bwi_commit_fini(&c);
        job_fini(&j);
    }
}

static void all_groups_make_it_live_and_a_second_look_does_no_harm(void **state) {
    (void)state;
    struct job j;
    struct bwi_commit c;
    job_init(&j, 3, 5);
    for (uint32_t g = 0; g < 3; g++) put_group(&j, g, false, 1);
    for (int i = 0; i < 2; i++) {
        look(&j, NULL, &c);
        assert_ok(c.task.error.status, &c.task.error);
        assert_int_equal(c.result, BWI_COMMIT_DONE);
        assert_int_equal(c.head.entry.n, 2);
        assert_int_equal(c.head.entry.live_count, 1);
        bwi_commit_fini(&c);
    }
    job_fini(&j);
}

static void a_failed_mark_aborts_with_its_reason(void **state) {
    (void)state;
    struct job j;
    struct bwi_commit c;
    struct bwi_buf bytes = {0};
    job_init(&j, 2, 1);
    put_group(&j, 0, false, 1);
    struct bwi_mark m = {.id = j.id, .group = 1, .status = BW_E_NOSPACE};
    bwi_format(m.reason, sizeof m.reason, "the disk is full");
    assert_ok(bwi_mark_encode(&m, false, &bytes, &j.err), &j.err);
    put(&j, bwi_key_failed("run", &j.id, 1), &bytes);
    look(&j, NULL, &c);
    assert_int_equal(c.result, BWI_COMMIT_ABORTED);
    assert_int_equal(c.reason_status, BW_E_NOSPACE);
    assert_non_null(strstr(c.reason, "the disk is full"));
    assert_int_equal(bwi_policy_try(&c.head.entry, 7), 1);
    bwi_commit_fini(&c);
    job_fini(&j);
}

/* Complete, or given up: nothing is decided about a try before the lower ones of its step. */
static void a_try_that_is_ahead_of_the_history_waits(void **state) {
    (void)state;
    for (int given_up = 0; given_up < 2; given_up++) {
        struct job j;
        struct bwi_commit c;
        struct bwi_buf bytes = {0};
        job_init(&j, 1, 1);
        j.id.tri = 1;
        put_group(&j, 0, false, 1);
        struct bwi_mark m = {.id = j.id, .status = BW_E_NOSPACE, .reason = "full"};
        assert_ok(bwi_mark_encode(&m, false, &bytes, &j.err), &j.err);
        if (given_up) put(&j, bwi_key_failed("run", &j.id, 0), &bytes);
        bwi_buf_fini(&bytes);
        look(&j, NULL, &c);
        assert_ok(c.task.error.status, &c.task.error);
        assert_int_equal(c.result, BWI_COMMIT_INCOMPLETE);
        assert_int_equal(c.missing, 0);
        assert_int_equal(c.head.entry.n, 1);
        bwi_commit_fini(&c);
        job_fini(&j);
    }
}

static void one_whose_ref_was_retired_is_aborted(void **state) {
    (void)state;
    struct job j;
    struct bwi_commit c;
    job_init(&j, 2, 1);
    const struct bwi_id gone = {.step = 5, .attempt = 1, .nonce = 5};
    j.ref = &gone;
    for (uint32_t g = 0; g < 2; g++) put_group(&j, g, false, 1);
    look(&j, NULL, &c);
    assert_ok(c.task.error.status, &c.task.error);
    assert_int_equal(c.result, BWI_COMMIT_ABORTED);
    assert_non_null(strstr(c.reason, "was retired"));
    assert_int_equal(bwi_policy_try(&c.head.entry, 7), 1);
    bwi_commit_fini(&c);
    job_fini(&j);
}

static void a_gap_in_coverage_aborts_and_names_the_tensor(void **state) {
    (void)state;
    struct job j;
    struct bwi_commit c;
    job_init(&j, 3, 2);
    for (uint32_t g = 0; g < 3; g++) put_group(&j, g, g == 1, 1);
    look(&j, NULL, &c);
    assert_int_equal(c.result, BWI_COMMIT_ABORTED);
    assert_int_equal(c.reason_status, BW_E_COVERAGE);
    assert_non_null(strstr(c.reason, "layer.00000000.w"));
    bwi_commit_fini(&c);
    job_fini(&j);
}

static void a_summary_of_another_life_is_refused(void **state) {
    (void)state;
    struct job j;
    struct bwi_commit c;
    job_init(&j, 2, 1);
    put_group(&j, 0, false, 1);
    put_group(&j, 1, false, 9);
    look(&j, NULL, &c);
    assert_fails(c.task.error.status, BW_E_FOREIGN, &c.task.error, "another life");
    bwi_commit_fini(&c);
    job_fini(&j);
}

/* Damage, and names that are none: whoever asks again gets the same answer. */
static void an_object_in_the_place_of_another_is_refused(void **state) {
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        struct job j;
        struct bwi_commit c;
        struct bwi_span other;
        job_init(&j, 2, 1);
        for (uint32_t g = 0; g < 2; g++) put_group(&j, g, false, 1);
        uint64_t bytes;
        const struct bwi_sha sha[2] = {put_layout(&j, 0, false, &bytes), put_layout(&j, 1, false, &bytes)};
        const struct bwi_key to = layout ? bwi_key_layout("run", 1, 5, &sha[0]) : bwi_key_summary("run", &j.id, 0);
        const struct bwi_key from = layout ? bwi_key_layout("run", 1, 5, &sha[1]) : bwi_key_summary("run", &j.id, 1);
        assert_true(bwi_bucket_get(j.bucket, from.s, &other));
        struct bwi_buf copy = {0};
        bwi_buf_put(&copy, other.ptr, other.len);
        put(&j, to, &copy);
        look(&j, NULL, &c);
        assert_fails(c.task.error.status, BW_E_CORRUPT, &c.task.error,
                     layout ? "its SHA-256 is not that in the summary of group 0"
                            : "it belongs to group 1 of 2 of step 7");
        assert_non_null(strstr(c.task.error.message, to.s));
        bwi_commit_fini(&c);
        job_fini(&j);
    }
}

static void a_mark_that_says_nothing_aborts_all_the_same(void **state) {
    (void)state;
    static const char *const names[] = {"000001", "stranger"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct job j;
        struct bwi_commit c;
        struct bwi_buf bytes = {0};
        struct bwi_key key;
        job_init(&j, 2, 1);
        bwi_buf_put(&bytes, "{}", 2);
        key = bwi_key_failed_dir("run", &j.id);
        (void)strncat(key.s, names[i], sizeof key.s - strlen(key.s) - 1);
        put(&j, key, &bytes);
        look(&j, NULL, &c);
        assert_int_equal(c.result, BWI_COMMIT_ABORTED);
        assert_int_equal(c.reason_status, BW_E_ABORTED);
        assert_string_equal(c.reason, i == 0 ? "group 000001 gave up" : "group strang gave up");
        bwi_commit_fini(&c);
        job_fini(&j);
    }
}

static void what_is_no_group_is_not_counted(void **state) {
    (void)state;
    static const char *const names[] = {"000002", "00000", "stranger"};
    struct job j;
    struct bwi_commit c;
    job_init(&j, 2, 1);
    put_group(&j, 0, false, 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct bwi_key key = bwi_key_groups("run", &j.id);
        struct bwi_buf bytes = {0};
        bwi_buf_put(&bytes, "x", 1);
        (void)strncat(key.s, names[i], sizeof key.s - strlen(key.s) - 1);
        put(&j, key, &bytes);
    }
    look(&j, NULL, &c);
    assert_int_equal(c.result, BWI_COMMIT_INCOMPLETE);
    assert_string_equal(c.missing_list, "1");
    bwi_commit_fini(&c);
    put_group(&j, 1, false, 1);
    look(&j, NULL, &c);
    assert_int_equal(c.result, BWI_COMMIT_DONE);
    bwi_commit_fini(&c);
    job_fini(&j);
}

/* Every store operation fails in turn: an error or success, never a wrong entry, and the next look commits. */
static void every_operation_may_fail_and_the_next_look_commits(void **state) {
    (void)state;
    static const enum bwi_store_verb verbs[] = {BWI_STORE_LIST, BWI_STORE_GET, BWI_STORE_CREATE, BWI_STORE_SYNC};
    for (size_t v = 0; v < sizeof verbs / sizeof *verbs; v++) {
        for (int effect = 0; effect < 2; effect++) {
            struct job j;
            struct bwi_commit c;
            job_init(&j, 2, 3);
            for (uint32_t g = 0; g < 2; g++) put_group(&j, g, false, 1);
            bwi_bucket_fail_next(j.bucket, verbs[v], NULL, effect ? BW_E_UNKNOWN : BW_E_IO, effect != 0);
            look(&j, NULL, &c);
            bwi_commit_fini(&c);
            look(&j, NULL, &c);
            assert_ok(c.task.error.status, &c.task.error);
            assert_int_equal(c.result, BWI_COMMIT_DONE);
            assert_int_equal(c.head.entry.n, 2);
            bwi_commit_fini(&c);
            job_fini(&j);
        }
    }
}

static void memory_may_run_out_at_any_allocation(void **state) {
    (void)state;
    for (unsigned long n = 1; n < 2000; n += 1 + n / 40) {
        struct job j;
        struct bwi_commit c;
        job_init(&j, 2, 3);
        for (uint32_t g = 0; g < 2; g++) put_group(&j, g, false, 1);
        bwi_alloc_fail_at(n);
        look(&j, NULL, &c);
        bwi_alloc_fail_at(0);
        int status = c.task.error.status;
        bwi_commit_fini(&c);
        look(&j, NULL, &c);
        assert_int_equal(c.result, BWI_COMMIT_DONE);
        bwi_commit_fini(&c);
        job_fini(&j);
        if (status == 0) continue;
        assert_true(status == BW_E_NOMEM || status == BW_E_IO || status == BW_E_UNKNOWN);
    }
}

static void a_thousand_groups_commit_in_bounded_time_and_memory(void **state) {
    (void)state;
    struct job j;
    struct bwi_commit c;
    struct bwi_index_cache cache = {0};
    struct bwi_env *clock = bwi_env_system();
    job_init(&j, 1024, 300);
    for (uint32_t g = 0; g < j.groups; g++) put_group(&j, g, false, 1);
    for (int round = 0; round < 2; round++) {
        uint64_t rss = bwi_os_rss_bytes(), begin = clock->now_ns(clock);
        uint64_t *ops = j.ctx.tier[BWI_TIER_REMOTE]->ops;
        uint64_t gets = ops[BWI_STORE_GET], lists = ops[BWI_STORE_LIST];
        look(&j, &cache, &c);
        uint64_t ns = clock->now_ns(clock) - begin;
        assert_ok(c.task.error.status, &c.task.error);
        assert_int_equal(c.result, BWI_COMMIT_DONE);
        printf("commit of 1,024 groups with 300 tensors each, layouts %s: %.3f s, memory %+.1f MiB, %llu reads, %llu "
               "listings\n",
               round ? "known" : "new", (double)ns / 1e9, ((double)bwi_os_rss_bytes() - (double)rss) / 1048576,
               (unsigned long long)(ops[BWI_STORE_GET] - gets), (unsigned long long)(ops[BWI_STORE_LIST] - lists));
        assert_true(ops[BWI_STORE_GET] - gets <=
                    (round ? 1100u : 2100u)); /* one small object per group, and the layouts once */
        bwi_commit_fini(&c);
        /* The next step of the same attempt has the same layouts. */
        j.id.step++;
        if (round == 0)
            for (uint32_t g = 0; g < j.groups; g++) put_group(&j, g, false, 1);
    }
    bwi_index_cache_fini(&cache);
    job_fini(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_group_is_named_and_nothing_is_decided),
        cmocka_unit_test(of_many_missing_groups_the_first_eight_are_named),
        cmocka_unit_test(all_groups_make_it_live_and_a_second_look_does_no_harm),
        cmocka_unit_test(a_failed_mark_aborts_with_its_reason),
        cmocka_unit_test(a_try_that_is_ahead_of_the_history_waits),
        cmocka_unit_test(one_whose_ref_was_retired_is_aborted),
        cmocka_unit_test(a_gap_in_coverage_aborts_and_names_the_tensor),
        cmocka_unit_test(a_summary_of_another_life_is_refused),
        cmocka_unit_test(an_object_in_the_place_of_another_is_refused),
        cmocka_unit_test(a_mark_that_says_nothing_aborts_all_the_same),
        cmocka_unit_test(what_is_no_group_is_not_counted),
        cmocka_unit_test(every_operation_may_fail_and_the_next_look_commits),
        cmocka_unit_test(memory_may_run_out_at_any_allocation),
        cmocka_unit_test(a_thousand_groups_commit_in_bounded_time_and_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
