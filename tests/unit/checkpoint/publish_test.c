/* SPDX-License-Identifier: Apache-2.0 */
/* Making a group complete: the order, who was first, lost answers, and a stop at each operation. Marks. */
#include "group_fixture.h"

#define GROUP 3

static const enum bwi_tier FAR = BWI_TIER_REMOTE;

static void run_publish(struct world *w, struct bwi_publish *p) {
    bwi_publish_start(p, w->loop, NULL);
    world_run(w);
    assert_int_equal(p->task.pending, 0);
}

static size_t objects_of(const struct world *w) {
    return bwi_bucket_objects(w->bucket[BWI_TIER_REMOTE]);
}

static void a_group_is_published_in_any_order_of_answers(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct world w;
        struct made m;
        world_open(&w, seed == 0 ? 0 : test_seed(seed), 64 * KIB);
        made_open(&m, &w, FAR, &ID, GROUP, 1);
        struct bwi_publish p = made_publish(&m, &w, FAR);
        run_publish(&w, &p);
        assert_ok(p.task.error.status, &p.task.error);
        assert_int_equal(p.objects, 4);
        assert_false(p.was_complete);
        assert_int_equal(check_tier(&w, FAR), 1);
        made_close(&m);
        world_close(&w);
    }
    assert_int_equal(bwi_alloc_live(), live);
}

static void layout_content_and_placement_are_created_side_by_side(void **state) {
    (void)state;
    struct world w;
    struct made m;
    world_open(&w, 0, 64 * KIB);
    made_open(&m, &w, FAR, &ID, GROUP, 1);
    bwi_bucket_model(w.bucket[FAR])->latency_ns = 1000;
    const uint64_t start = w.env.now;
    struct bwi_publish p = made_publish(&m, &w, FAR);
    run_publish(&w, &p);
    assert_ok(p.task.error.status, &p.task.error);
    assert_int_equal(w.env.now - start, 2000);
    made_close(&m);
    world_close(&w);
}

static void publishing_twice_creates_nothing_more(void **state) {
    (void)state;
    struct world w;
    struct made m;
    world_open(&w, 1, 64 * KIB);
    made_open(&m, &w, FAR, &ID, GROUP, 1);
    made_put(&m, &w, FAR);
    const size_t objects = objects_of(&w);
    struct bwi_publish p = made_publish(&m, &w, FAR);
    run_publish(&w, &p);
    assert_ok(p.task.error.status, &p.task.error);
    assert_true(p.was_complete);
    assert_int_equal(p.objects, 0);
    assert_int_equal(objects_of(&w), objects);
    made_close(&m);
    world_close(&w);
}

static void a_known_layout_is_not_sent(void **state) {
    (void)state;
    struct world w;
    struct made m;
    world_open(&w, 1, 64 * KIB);
    made_open(&m, &w, FAR, &ID, GROUP, 1);
    struct bwi_publish p = made_publish(&m, &w, FAR);
    p.layout_known = true;
    run_publish(&w, &p);
    assert_ok(p.task.error.status, &p.task.error);
    assert_int_equal(p.objects, 3);
    assert_int_equal(w.ctx.tier[FAR]->ops[BWI_STORE_CREATE], 3);
    assert_int_equal(below(&w, FAR, bwi_key_layouts(w.ctx.run).s), 0);
    made_close(&m);
    world_close(&w);
}

/* The same state, written by another handle: its placement and summary are others, what they say is the same. */
static void another_writer_with_the_same_content_was_first(void **state) {
    (void)state;
    struct world w;
    struct made first, second;
    world_open(&w, 2, 64 * KIB);
    made_open(&first, &w, FAR, &ID, GROUP, 1);
    made_put(&first, &w, FAR);
    w.ctx.writer++;
    made_open(&second, &w, FAR, &ID, GROUP, 1);
    struct bwi_publish p = made_publish(&second, &w, FAR);
    run_publish(&w, &p);
    assert_ok(p.task.error.status, &p.task.error);
    assert_true(p.was_complete);
    assert_int_equal(p.objects, 1); /* its placement */
    struct bwi_buf summary = {0};
    struct bwi_summary s;
    assert_true(world_get(&w, FAR, bwi_key_summary(w.ctx.run, &ID, GROUP).s, &summary));
    assert_ok(bwi_summary_decode(bwi_buf_span(&summary), &s, NULL), NULL);
    assert_int_equal(s.writer, first.sum.writer);
    bwi_buf_fini(&summary);
    made_close(&first);
    made_close(&second);
    world_close(&w);
}

static void the_summary_of_another_writer_counts_only_once_it_is_durable(void **state) {
    static const char *const dirs[] = {"/groups/", "layouts/"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct world w;
        struct made first, second;
        world_open(&w, 2, 64 * KIB);
        made_open(&first, &w, FAR, &ID, GROUP, 1);
        made_put(&first, &w, FAR);
        w.ctx.writer++;
        made_open(&second, &w, FAR, &ID, GROUP, 1);
        struct bwi_publish p = made_publish(&second, &w, FAR);
        bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_SYNC, dirs[i], BW_E_IO, false);
        run_publish(&w, &p);
        assert_fails(p.task.error.status, BW_E_IO, &p.task.error, dirs[i]);
        assert_false(p.was_complete);
        made_close(&first);
        made_close(&second);
        world_close(&w);
    }
}

static void another_content_under_the_same_id_is_refused(void **state) {
    (void)state;
    for (int with_summary = 0; with_summary < 2; with_summary++) {
        struct world w;
        struct made first, second;
        world_open(&w, 2, 64 * KIB);
        made_open(&first, &w, FAR, &ID, GROUP, 1);
        if (with_summary)
            made_put(&first, &w, FAR);
        else
            world_put(&w, FAR, bwi_key_content(w.ctx.run, false, &ID, GROUP).s, bwi_buf_span(&first.content));
        w.ctx.writer++;
        made_open(&second, &w, FAR, &ID, GROUP, 2);
        struct bwi_publish p = made_publish(&second, &w, FAR);
        run_publish(&w, &p);
        assert_fails(p.task.error.status, BW_E_EXISTS, &p.task.error,
                     "publish 00000000000000000007.1-1234abcd.0 group 3: ");
        assert_non_null(strstr(p.task.error.message, "/content"));
        assert_int_equal(check_tier(&w, FAR), with_summary);
        made_close(&first);
        made_close(&second);
        world_close(&w);
    }
}

/* The summary says that it is this content: the object with its name is damaged, and that is the reader's to find. */
static void a_summary_that_says_the_same_counts_even_over_a_damaged_content(void **state) {
    (void)state;
    struct world w;
    struct made m;
    world_open(&w, 1, 64 * KIB);
    made_open(&m, &w, FAR, &ID, GROUP, 1);
    made_put(&m, &w, FAR);
    world_put(&w, FAR, bwi_key_content(w.ctx.run, false, &ID, GROUP).s, bwi_span("damaged", 7));
    struct bwi_publish p = made_publish(&m, &w, FAR);
    run_publish(&w, &p);
    assert_ok(p.task.error.status, &p.task.error);
    assert_true(p.was_complete);
    made_close(&m);
    world_close(&w);
}

static void a_layout_with_other_bytes_is_refused(void **state) {
    (void)state;
    struct world w;
    struct made m;
    world_open(&w, 1, 64 * KIB);
    made_open(&m, &w, FAR, &ID, GROUP, 1);
    const struct bwi_key key = bwi_key_layout(w.ctx.run, ID.attempt, ID.nonce, &m.sum.layout);
    world_put(&w, FAR, key.s, bwi_span("damaged", 7));
    struct bwi_publish p = made_publish(&m, &w, FAR);
    run_publish(&w, &p);
    assert_fails(p.task.error.status, BW_E_EXISTS, &p.task.error, key.s);
    assert_false(has_summary(&w, FAR, &ID, GROUP));
    made_close(&m);
    world_close(&w);
}

static void a_damaged_summary_in_the_way_is_named(void **state) {
    (void)state;
    struct world w;
    struct made m;
    world_open(&w, 1, 64 * KIB);
    made_open(&m, &w, FAR, &ID, GROUP, 1);
    const struct bwi_key key = bwi_key_summary(w.ctx.run, &ID, GROUP);
    world_put(&w, FAR, key.s, bwi_span("damaged", 7));
    struct bwi_publish p = made_publish(&m, &w, FAR);
    run_publish(&w, &p);
    assert_true(p.task.error.status < 0);
    assert_non_null(strstr(p.task.error.message, "another summary is there"));
    assert_non_null(strstr(p.task.error.message, key.s));
    made_close(&m);
    world_close(&w);
}

/* What lies there may be this group's own summary, or another one: nobody has seen it. */
static void a_summary_in_the_way_that_cannot_be_read_is_no_verdict(void **state) {
    (void)state;
    struct world w;
    struct made m;
    world_open(&w, 1, 64 * KIB);
    made_open(&m, &w, FAR, &ID, GROUP, 1);
    const struct bwi_key key = bwi_key_summary(w.ctx.run, &ID, GROUP);
    world_put(&w, FAR, key.s, bwi_span("damaged", 7));
    bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_GET, key.s, BW_E_IO, false);
    struct bwi_publish p = made_publish(&m, &w, FAR);
    run_publish(&w, &p);
    assert_fails(p.task.error.status, BW_E_IO, &p.task.error, key.s);
    made_close(&m);
    world_close(&w);
}

static void a_lost_answer_is_found_out(void **state) {
    (void)state;
    static const char *const part[] = {"/layouts/", "/content", "/placement", "/groups/"};
    for (int i = 0; i < 4; i++) {
        for (int effect = 0; effect < 2; effect++) {
            struct world w;
            struct made m;
            world_open(&w, 1, 64 * KIB);
            made_open(&m, &w, FAR, &ID, GROUP, 1);
            bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_CREATE, part[i], BW_E_UNKNOWN, effect);
            struct bwi_publish p = made_publish(&m, &w, FAR);
            run_publish(&w, &p);
            assert_ok(p.task.error.status, &p.task.error);
            assert_false(p.was_complete);
            assert_int_equal(check_tier(&w, FAR), 1);
            made_close(&m);
            world_close(&w);
        }
    }
}

static void a_store_that_loses_every_answer_ends_as_unknown(void **state) {
    (void)state;
    struct world w;
    struct made m;
    world_open(&w, 1, 64 * KIB);
    made_open(&m, &w, FAR, &ID, GROUP, 1);
    for (int i = 0; i < 4; i++) bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_CREATE, "/groups/", BW_E_UNKNOWN, false);
    struct bwi_publish p = made_publish(&m, &w, FAR);
    run_publish(&w, &p);
    assert_fails(p.task.error.status, BW_E_UNKNOWN, &p.task.error, "publish");
    made_close(&m);
    world_close(&w);
}

/* Only a refusal of what was sent once says that it is not there. */
static void a_refusal_is_clear_unless_an_answer_was_lost_before(void **state) {
    (void)state;
    static const int statuses[] = {BW_E_NOSPACE, BW_E_ACCESS, BW_E_NOMEM, BW_E_IO};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        for (int lost = 0; lost < 2; lost++) {
            struct world w;
            struct made m;
            world_open(&w, 1, 64 * KIB);
            made_open(&m, &w, FAR, &ID, GROUP, 1);
            if (lost) bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_CREATE, "/groups/", BW_E_UNKNOWN, true);
            bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_CREATE, "/groups/", statuses[i], false);
            struct bwi_publish p = made_publish(&m, &w, FAR);
            run_publish(&w, &p);
            assert_int_equal(p.task.error.status, statuses[i]);
            assert_true(p.summary_sent);
            assert_int_equal(p.summary_refused, !lost && statuses[i] != BW_E_IO);
            made_close(&m);
            world_close(&w);
        }
    }
}

static void cancelled_before_the_summary_it_leaves_none(void **state) {
    (void)state;
    for (int turns = 0; turns < 3; turns++) {
        struct world w;
        struct made m;
        world_open(&w, 3, 64 * KIB);
        made_open(&m, &w, FAR, &ID, GROUP, 1);
        struct bwi_publish p = made_publish(&m, &w, FAR);
        bwi_publish_start(&p, w.loop, NULL);
        for (int i = 0; i < turns; i++) world_turn(&w);
        bwi_task_cancel(&p.task);
        world_run(&w);
        assert_fails(p.task.error.status, BW_E_CANCELLED, &p.task.error, "cancelled");
        assert_int_equal(check_tier(&w, FAR), 0);
        made_close(&m);
        world_close(&w);
    }
}

/* Stops at every operation, before it or after it has had its effect; then does it all again. */
static void stopped_anywhere_it_leaves_no_false_summary_and_can_be_done_again(void **state) {
    (void)state;
    bool whole = false;
    for (uint64_t ops = 0; !whole; ops++) {
        for (int effect = 0; effect < 2; effect++) {
            struct world w;
            struct made m;
            world_open(&w, ops + 1, 64 * KIB);
            made_open(&m, &w, FAR, &ID, GROUP, 1);
            machine_stops_after(&w, ops, effect);
            struct bwi_publish p = made_publish(&m, &w, FAR);
            run_publish(&w, &p);
            machine_starts(&w);
            whole = p.task.error.status == 0;
            const size_t summaries = check_tier(&w, FAR);
            if (whole) assert_int_equal(summaries, 1);
            p = made_publish(&m, &w, FAR);
            run_publish(&w, &p);
            assert_ok(p.task.error.status, &p.task.error);
            assert_int_equal(check_tier(&w, FAR), 1);
            assert_int_equal(p.was_complete, summaries == 1);
            made_close(&m);
            world_close(&w);
        }
        assert_true(ops < 10);
    }
}

static void without_memory_it_fails_and_leaves_nothing_behind(void **state) {
    (void)state;
    for (unsigned long n = 1; n < 40; n++) {
        struct world w;
        struct made m;
        world_open(&w, 1, 64 * KIB);
        made_open(&m, &w, FAR, &ID, GROUP, 1);
        struct bwi_publish p = made_publish(&m, &w, FAR);
        (void)bwi_alloc_fail_at(n);
        run_publish(&w, &p);
        const unsigned long made = bwi_alloc_fail_at(0);
        if (p.task.error.status < 0) assert_int_equal(p.task.error.status, BW_E_NOMEM);
        const bool failed = p.task.error.status < 0;
        assert_int_equal(failed, made >= n);
        (void)check_tier(&w, FAR);
        made_close(&m);
        world_close(&w);
        if (!failed) return;
    }
    fail_msg("it never got through");
}

/* ---- marks ---- */

static struct bwi_mark_put mark_of(struct world *w, const char *reason) {
    struct bwi_mark_put m = {.ctx = &w->ctx, .id = ID, .group = GROUP, .status = BW_E_NOSPACE};
    (void)snprintf(m.reason, sizeof m.reason, "%s", reason);
    return m;
}

static void run_mark(struct world *w, struct bwi_mark_put *m) {
    bwi_mark_put_start(m, w->loop, NULL);
    world_run(w);
}

static struct bwi_mark read_mark(struct world *w, bool damaged) {
    const struct bwi_key key =
        damaged ? bwi_key_damaged(w->ctx.run, &ID, GROUP) : bwi_key_failed(w->ctx.run, &ID, GROUP);
    struct bwi_buf bytes = {0};
    struct bwi_mark m = {0};
    struct bw_error err = BW_ERROR_INIT;
    assert_true(world_get(w, FAR, key.s, &bytes));
    assert_ok(bwi_mark_decode(bwi_buf_span(&bytes), damaged, &m, &err), &err);
    bwi_buf_fini(&bytes);
    return m;
}

static void the_first_mark_counts(void **state) {
    (void)state;
    for (int damaged = 0; damaged < 2; damaged++) {
        struct world w;
        world_open(&w, 1, 64 * KIB);
        struct bwi_mark_put first = mark_of(&w, "the disk is full");
        struct bwi_mark_put second = mark_of(&w, "something else");
        first.damaged = second.damaged = damaged;
        run_mark(&w, &first);
        assert_ok(first.task.error.status, &first.task.error);
        run_mark(&w, &second);
        assert_ok(second.task.error.status, &second.task.error);
        const struct bwi_mark m = read_mark(&w, damaged);
        assert_string_equal(m.reason, "the disk is full");
        assert_int_equal(m.status, BW_E_NOSPACE);
        assert_int_equal(m.writer, w.ctx.writer);
        world_close(&w);
    }
}

static void the_mark_of_another_counts_only_once_it_is_durable(void **state) {
    static const char *const dirs[] = {"/failed/", "/damaged/"};
    (void)state;
    for (int damaged = 0; damaged < 2; damaged++) {
        struct world w;
        world_open(&w, 1, 64 * KIB);
        struct bwi_mark_put first = mark_of(&w, "the disk is full");
        struct bwi_mark_put second = mark_of(&w, "something else");
        first.damaged = second.damaged = damaged;
        run_mark(&w, &first);
        bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_SYNC, dirs[damaged], BW_E_IO, false);
        run_mark(&w, &second);
        assert_fails(second.task.error.status, BW_E_IO, &second.task.error, "sync");
        world_close(&w);
    }
}

static void a_reason_that_is_no_clean_line_is_cleaned(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1, 64 * KIB);
    struct bwi_mark_put x = mark_of(&w, "two\nlines, cut \xc3");
    x.status = 0; /* not an error: it must not look like success */
    run_mark(&w, &x);
    assert_ok(x.task.error.status, &x.task.error);
    const struct bwi_mark m = read_mark(&w, false);
    assert_string_equal(m.reason, "two?lines, cut ?");
    assert_int_equal(m.status, BW_E_INTERNAL);
    world_close(&w);
}

static void a_mark_whose_answer_is_lost_is_put_again(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1, 64 * KIB);
    struct bwi_mark_put x = mark_of(&w, "why");
    bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_CREATE, "/failed/", BW_E_UNKNOWN, false);
    run_mark(&w, &x);
    assert_ok(x.task.error.status, &x.task.error);
    (void)read_mark(&w, false);
    world_close(&w);
}

static void a_mark_that_cannot_be_written_says_so(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1, 64 * KIB);
    struct bwi_mark_put x = mark_of(&w, "why");
    bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_CREATE, "/failed/", BW_E_ACCESS, false);
    run_mark(&w, &x);
    assert_fails(x.task.error.status, BW_E_ACCESS, &x.task.error,
                 "mark 00000000000000000007.1-1234abcd.0 group 3 as failed: ");
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_is_published_in_any_order_of_answers),
        cmocka_unit_test(layout_content_and_placement_are_created_side_by_side),
        cmocka_unit_test(publishing_twice_creates_nothing_more),
        cmocka_unit_test(a_known_layout_is_not_sent),
        cmocka_unit_test(another_writer_with_the_same_content_was_first),
        cmocka_unit_test(the_summary_of_another_writer_counts_only_once_it_is_durable),
        cmocka_unit_test(another_content_under_the_same_id_is_refused),
        cmocka_unit_test(a_summary_that_says_the_same_counts_even_over_a_damaged_content),
        cmocka_unit_test(a_layout_with_other_bytes_is_refused),
        cmocka_unit_test(a_damaged_summary_in_the_way_is_named),
        cmocka_unit_test(a_summary_in_the_way_that_cannot_be_read_is_no_verdict),
        cmocka_unit_test(a_lost_answer_is_found_out),
        cmocka_unit_test(a_store_that_loses_every_answer_ends_as_unknown),
        cmocka_unit_test(a_refusal_is_clear_unless_an_answer_was_lost_before),
        cmocka_unit_test(cancelled_before_the_summary_it_leaves_none),
        cmocka_unit_test(stopped_anywhere_it_leaves_no_false_summary_and_can_be_done_again),
        cmocka_unit_test(without_memory_it_fails_and_leaves_nothing_behind),
        cmocka_unit_test(the_first_mark_counts),
        cmocka_unit_test(the_mark_of_another_counts_only_once_it_is_durable),
        cmocka_unit_test(a_reason_that_is_no_clean_line_is_cleaned),
        cmocka_unit_test(a_mark_whose_answer_is_lost_is_put_again),
        cmocka_unit_test(a_mark_that_cannot_be_written_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
