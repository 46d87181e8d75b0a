/* SPDX-License-Identifier: Apache-2.0 */
/* Context, calls and back-off. */
#include "transfer_fixture.h"
#include <inttypes.h>

static void a_fresh_context_has_defaults_and_a_writer_of_its_own(void **state) {
    (void)state;
    struct bwi_env_virtual env;
    struct bwi_loop *loop;
    bwi_env_virtual_init(&env, 42);
    assert_ok(bwi_loop_open(&env.env, NULL, &loop, NULL), NULL);
    struct bwi_context a;
    struct bwi_context b;
    memset(&a, 0xff, sizeof a);
    bwi_context_init(&a, loop);
    bwi_context_init(&b, loop);
    assert_ptr_equal(a.loop, loop);
    assert_ptr_equal(a.env, &env.env);
    assert_true(a.writer != b.writer);
    assert_true(a.poll_min_ns > 0 && a.poll_min_ns <= a.poll_max_ns);
    assert_int_equal(a.grace_ms, 3600000);
    assert_null(a.arena);
    assert_null(a.tier[BWI_TIER_LOCAL]);
    assert_null(a.tier[BWI_TIER_REMOTE]);
    assert_null(a.progress);
    assert_string_equal(a.run, "");
    assert_true(strlen(a.host) > 0);
    for (const char *p = a.host; *p != '\0'; p++) assert_true(*p >= 0x20 && *p <= 0x7e);
    bwi_loop_close(loop);
}

static void tiers_have_names(void **state) {
    (void)state;
    assert_string_equal(bwi_tier_name(BWI_TIER_LOCAL), "local");
    assert_string_equal(bwi_tier_name(BWI_TIER_REMOTE), "remote");
    assert_string_equal(bwi_tier_name(BWI_TIERS), "?");
}

static void progress_is_added_where_somebody_asks(void **state) {
    (void)state;
    struct bwi_progress p = {0};
    struct bwi_context c = {.progress = &p};
    bwi_progress_add(&c, 5);
    bwi_progress_add(&c, 7);
    assert_int_equal(p.done_bytes, 12);
    c.progress = NULL;
    bwi_progress_add(&c, 1);
    assert_int_equal(p.done_bytes, 12);
}

/* ---- calls ---- */

/* Creates, gets and lists with one call object. */
struct user {
    struct bwi_task task;
    struct world *w;
    struct bwi_call call;
    int at;
};

static enum bwi_step user_step(struct bwi_task *t) {
    struct user *u = bwi_container_of(t, struct user, task);
    struct bwi_store *s = u->w->ctx.tier[0];
    if (u->call.busy) {
        assert_int_equal(t->pending, 1);
        return BWI_STEP_WAIT;
    }
    assert_int_equal(t->pending, 0);
    switch (u->at++) {
    case 0: bwi_call_create(&u->call, t, s, "a/b", bwi_span_str("hello")); break;
    case 1:
        assert_int_equal(u->call.op.outcome, BWI_STORE_CREATED);
        bwi_call_get(&u->call, t, s, "a/b", 100);
        break;
    case 2:
        assert_int_equal(u->call.op.body.len, 5);
        assert_memory_equal(u->call.op.body.ptr, "hello", 5);
        bwi_call_list(&u->call, t, s, "a/", NULL);
        break;
    case 3:
        assert_int_equal(u->call.op.body.len, 0); /* freed, not kept */
        assert_int_equal(u->call.op.names.len, 1);
        assert_string_equal(u->call.op.names.name[0], "b");
        bwi_call_list(&u->call, t, s, "a/", "b");
        break;
    case 4:
        assert_int_equal(u->call.op.names.len, 0);
        bwi_call_get(&u->call, t, s, "a/b", 4);
        break;
    case 5:
        assert_int_equal(u->call.op.error.status, BW_E_FORMAT);
        bwi_call_get(&u->call, t, s, "not//a/key", 4);
        break;
    case 6:
        assert_int_equal(u->call.op.error.status, BW_E_INVALID);
        bwi_call_get(&u->call, t, s, "a/b", UINT64_MAX);
        break;
    default: return BWI_STEP_END;
    }
    return BWI_STEP_WAIT;
}

static void one_call_serves_one_operation_after_the_other(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    struct world w;
    world_open(&w, 3, MIB);
    struct user u = {.w = &w};
    u.task.step = user_step;
    u.task.name = "user";
    bwi_task_start(w.loop, &u.task, NULL);
    world_run(&w);
    assert_int_equal(u.at, 8);
    assert_int_equal(u.call.op.error.status, 0);
    assert_int_equal(u.call.op.body.len, 5);
    assert_int_equal(u.task.pending, 0);
    bwi_call_fini(&u.call);
    bwi_call_fini(&u.call);
    assert_null(u.call.op.body.ptr);
    world_close(&w);
    assert_int_equal(bwi_alloc_live(), live);
}

static void preparing_clears_what_the_last_operation_left(void **state) {
    (void)state;
    struct bwi_call c = {0};
    c.op.offset = 5;
    c.op.replace = true;
    c.op.error.status = BW_E_IO;
    c.op.limit_bytes = 3;
    bwi_call_prepare(&c, BWI_STORE_HEAD, "k");
    assert_int_equal(c.op.verb, BWI_STORE_HEAD);
    assert_string_equal(c.op.key, "k");
    assert_int_equal(c.op.offset, 0);
    assert_false(c.op.replace);
    assert_int_equal(c.op.error.status, 0);
    assert_int_equal(c.op.limit_bytes, 0);
}

/* ---- back-off ---- */

static void periods_grow_by_half_up_to_the_longest(void **state) {
    (void)state;
    struct bwi_env_virtual env;
    bwi_env_virtual_init(&env, test_seed(5));
    struct bwi_context c = {.env = &env.env, .poll_min_ns = 1000, .poll_max_ns = 100000};
    struct bwi_backoff b = {0};
    bwi_backoff_reset(&b, &c);
    assert_int_equal(b.period_ns, 1000);
    for (uint64_t want = 1000; want < 100000; want += want / 2) {
        assert_int_equal(b.period_ns, want);
        const uint64_t at = bwi_backoff_next(&b, &c, 50);
        assert_in_range(at, 50 + want / 2, 50 + want / 2 + want - 1);
    }
    for (int i = 0; i < 100; i++) {
        assert_int_equal(b.period_ns, 100000);
        (void)bwi_backoff_next(&b, &c, 0);
    }
    bwi_backoff_reset(&b, &c);
    assert_int_equal(b.period_ns, 1000);
}

static void phases_spread_over_the_whole_range(void **state) {
    (void)state;
    struct bwi_env_virtual env;
    bwi_env_virtual_init(&env, test_seed(6));
    struct bwi_context c = {.env = &env.env, .poll_min_ns = 1000, .poll_max_ns = 1000};
    unsigned low = 0;
    unsigned high = 0;
    for (int i = 0; i < 1000; i++) {
        struct bwi_backoff b = {0}; /* not reset: begins at the shortest all the same */
        const uint64_t at = bwi_backoff_next(&b, &c, 0);
        assert_in_range(at, 500, 1499);
        low += at < 750;
        high += at >= 1250;
    }
    assert_in_range(low, 150, 350);
    assert_in_range(high, 150, 350);
}

static void the_end_of_time_is_not_passed(void **state) {
    (void)state;
    struct bwi_env_virtual env;
    bwi_env_virtual_init(&env, 7);
    struct bwi_context c = {.env = &env.env, .poll_min_ns = 1000, .poll_max_ns = 1000};
    struct bwi_backoff b = {0};
    assert_int_equal(bwi_backoff_next(&b, &c, BWI_NEVER - 10), BWI_NEVER - 1);
}

/* Ranks that wait look at their store so often, all together, on average over a period. */
static uint64_t looks_per_s(uint32_t world, uint64_t period_ns) {
    return world * BWI_NS_PER_S / period_ns;
}

static void the_pauses_of_many_ranks_are_so_long_that_they_are_no_storm(void **state) {
    (void)state;
    static const uint32_t worlds[] = {1, 2, 8, 64, 1024, 10000, 999999};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        const uint32_t world = worlds[i];
        struct bwi_context first = {0}, other = {0};
        bwi_context_pace(&first, 0, world);
        bwi_context_pace(&other, 1, world);
        /* Rank 0 looks soon, and now and then; nobody is left out for longer than 5 seconds. */
        assert_int_equal(first.poll_min_ns, 20 * BWI_NS_PER_MS);
        assert_int_equal(first.spread_ns, 0);
        assert_true(first.poll_max_ns <= other.poll_max_ns && other.poll_max_ns <= 5 * BWI_NS_PER_S);
        assert_true(first.poll_max_ns >= 200 * BWI_NS_PER_MS && other.poll_min_ns <= other.poll_max_ns);
        if (world <= 10000) assert_true(looks_per_s(world, other.poll_min_ns) <= 3200);
        if (world <= 10000) assert_true(world * BWI_NS_PER_S <= 2001 * (other.spread_ns + BWI_NS_PER_S));
        if (world <= 8) assert_int_equal(other.poll_min_ns, 20 * BWI_NS_PER_MS);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fresh_context_has_defaults_and_a_writer_of_its_own),
        cmocka_unit_test(tiers_have_names),
        cmocka_unit_test(progress_is_added_where_somebody_asks),
        cmocka_unit_test(one_call_serves_one_operation_after_the_other),
        cmocka_unit_test(preparing_clears_what_the_last_operation_left),
        cmocka_unit_test(periods_grow_by_half_up_to_the_longest),
        cmocka_unit_test(phases_spread_over_the_whole_range),
        cmocka_unit_test(the_end_of_time_is_not_passed),
        cmocka_unit_test(the_pauses_of_many_ranks_are_so_long_that_they_are_no_storm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
