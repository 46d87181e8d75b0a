/* SPDX-License-Identifier: Apache-2.0 */
/* Writing packs: on a store in memory with latencies and every kind of failure, and in a directory with an engine. */
#include "transfer_fixture.h"

#define EXTENT (16 * KIB)

static uint64_t file_bytes(const struct state *s) {
    uint64_t sum = 0;
    for (size_t i = 0; i < s->plan.pack_count; i++) sum += s->plan.packs[i].file_bytes;
    return sum;
}

static void check_written(struct world *w, const struct bwi_pack_write *pw, const struct state *s, uint32_t group) {
    assert_ok(pw->task.error.status, &pw->task.error);
    assert_true(pw->captured);
    assert_int_equal(pw->objects, s->plan.pack_count);
    assert_int_equal(pw->task.pending, 0);
    state_check(w, s, BWI_TIER_LOCAL, group, pw->headers);
}

/* ---- what comes back ---- */

static void a_mixed_state_comes_back_byte_for_byte_whatever_the_order(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    for (uint64_t seed = 0; seed < 25; seed++) {
        struct world w;
        struct state s;
        struct bwi_pack_write pw;
        world_open(&w, seed == 0 ? 0 : test_seed(seed), 128 * KIB);
        state_mixed(&s, seed, EXTENT, seed % 2 == 0 ? 64 * KIB : MIB);
        write_start(&w, &pw, &s, 3);
        world_run(&w);
        check_written(&w, &pw, &s, 3);
        assert_int_equal(w.progress.done_bytes, file_bytes(&s));
        assert_int_equal(world_upload_bytes(&w, BWI_TIER_LOCAL), 0);
        bwi_pack_write_fini(&pw);
        bwi_pack_write_fini(&pw);
        state_free(&s);
        world_close(&w);
    }
    assert_int_equal(bwi_alloc_live(), live);
}

static void a_mixed_state_comes_back_from_a_directory(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        struct world w;
        struct state s;
        struct bwi_pack_write pw;
        world_open_dirs(&w, NULL, 256 * KIB);
        state_mixed(&s, seed, EXTENT, 64 * KIB);
        assert_true(s.plan.pack_count > 1);
        write_start(&w, &pw, &s, 0);
        world_run(&w);
        check_written(&w, &pw, &s, 0);
        bwi_pack_write_fini(&pw);
        state_free(&s);
        world_close(&w);
    }
}

static void a_plan_without_a_byte_makes_no_object(void **state) {
    (void)state;
    struct world w;
    struct state s = {0};
    struct bwi_pack_write pw;
    world_open(&w, 1, 64 * KIB);
    bwi_description_init(&s.d);
    state_tensor(&s, "empty", BW_F32, NULL, 1, (uint64_t[]){0}, NULL);
    state_plan(&s, EXTENT, MIB);
    assert_int_equal(s.plan.pack_count, 0);
    write_start(&w, &pw, &s, 0);
    world_run(&w);
    check_written(&w, &pw, &s, 0);
    assert_int_equal(bwi_bucket_objects(w.bucket[0]), 0);
    assert_int_equal(w.ctx.tier[0]->ops[BWI_STORE_BEGIN], 0);
    bwi_pack_write_fini(&pw);
    state_free(&s);
    world_close(&w);
}

/* Small writes are headers. */
static void as_many_writes_are_in_flight_as_the_tier_is_to_have(void **state) {
    (void)state;
    static const unsigned depths[] = {0, 1, 3, 40};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        struct world w;
        struct state s = {0};
        struct bwi_pack_write pw;
        bwi_description_init(&s.d);
        state_plain(&s, "large", BW_U8, 60 * EXTENT);
        state_plan(&s, EXTENT, MIB);
        world_open(&w, 1 + i, MIB);
        w.ctx.io_depth[BWI_TIER_LOCAL] = depths[i];
        crowd_watch(w.ctx.tier[BWI_TIER_LOCAL], EXTENT);
        write_start(&w, &pw, &s, 0);
        world_run(&w);
        check_written(&w, &pw, &s, 0);
        assert_int_equal(crowd.most, depths[i] > 0 ? depths[i] : BWI_IO_DEPTH_USUAL);
        bwi_pack_write_fini(&pw);
        state_free(&s);
        world_close(&w);
    }
}

/* ---- memory ---- */

static void a_state_above_the_budget_flows_through_it(void **state) {
    (void)state;
    struct world w;
    struct state s = {0};
    struct bwi_pack_write pw;
    bwi_description_init(&s.d);
    const uint64_t shape[] = {192, 1 << 18};
    uint8_t *row = state_memory(&s, 4 << 18);
    state_tensor(&s, "large", BW_F32, row, 2, shape, (int64_t[]){0, 4}); /* 192 MiB out of one */
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_description_own(&s.d, &err), &err);
    assert_ok(bwi_plan_make(&s.d, 0, BWI_EXTENT_BYTES, BWI_PLAN_PACK_BYTES, &s.plan, &err), &err);
    world_open_dirs(&w, NULL, BWI_ARENA_MIN_BYTES);
    write_start(&w, &pw, &s, 0);
    world_run(&w);
    assert_ok(pw.task.error.status, &pw.task.error);
    assert_true(bwi_arena_peak(w.arena) > BWI_EXTENT_BYTES); /* several in flight */
    assert_true(bwi_arena_peak(w.arena) <= BWI_ARENA_MIN_BYTES);
    struct bwi_buf pack;
    assert_true(world_get(&w, BWI_TIER_LOCAL, state_key(&w, 0, 0).s, &pack));
    assert_int_equal(pack.len, s.plan.packs[0].file_bytes);
    for (size_t at = s.plan.packs[0].header.len; at < pack.len; at += 4 << 18) {
        assert_memory_equal(pack.ptr + at, row, 4 << 18);
    }
    bwi_buf_fini(&pack);
    bwi_pack_write_fini(&pw);
    state_free(&s);
    world_close(&w);
}

static void several_saves_share_an_arena_that_holds_two_chunks(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed < 10; seed++) {
        struct world w;
        struct state s[4];
        struct bwi_pack_write pw[4];
        world_open(&w, test_seed(seed), 2 * (EXTENT + BWI_ARENA_ALIGN));
        for (uint32_t i = 0; i < 4; i++) state_mixed(&s[i], 10 * seed + i, EXTENT, 64 * KIB);
        for (uint32_t i = 0; i < 4; i++) write_start(&w, &pw[i], &s[i], i);
        world_run(&w);
        for (uint32_t i = 0; i < 4; i++) {
            check_written(&w, &pw[i], &s[i], i);
            assert_true(pw[i].arena_wait_ns > 0);
            bwi_pack_write_fini(&pw[i]);
            state_free(&s[i]);
        }
        world_close(&w);
    }
}

static void a_chunk_above_the_budget_is_refused_at_once(void **state) {
    (void)state;
    struct world w;
    struct state s;
    struct bw_error err = BW_ERROR_INIT;
    world_open(&w, 0, 8 * KIB);
    state_mixed(&s, 1, EXTENT, MIB);
    struct bwi_pack_write pw = {.ctx = &w.ctx, .plan = &s.plan, .id = ID};
    assert_fails(bwi_pack_write_start(&pw, NULL, &err), BW_E_LIMIT, &err, "memory budget of 8192 bytes: a chunk of ");
    assert_null(pw.headers);
    bwi_pack_write_fini(&pw);
    state_free(&s);
    world_close(&w);
}

/* ---- captured ---- */

/* Notices captured by being woken, and then spoils the memory. */
struct parent {
    struct bwi_task task;
    struct bwi_pack_write pw;
    struct state *s;
    bool seen, seen_before_end;
    uint64_t seen_ns;
};

static enum bwi_step parent_step(struct bwi_task *t) {
    struct parent *p = bwi_container_of(t, struct parent, task);
    if (p->pw.captured && !p->seen) {
        p->seen = true;
        p->seen_before_end = p->pw.task.running;
        p->seen_ns = bwi_loop_now_ns(t->loop);
        for (size_t i = 0; i < p->s->memories; i++) memset(p->s->memory[i], 0xee, 8);
    }
    return p->pw.task.running ? BWI_STEP_WAIT : BWI_STEP_END;
}

static void parent_start(struct parent *p, struct world *w, struct state *s) {
    struct bw_error err = BW_ERROR_INIT;
    *p = (struct parent){.s = s, .pw = {.ctx = &w->ctx, .plan = &s->plan, .id = ID}};
    assert_ok(bwi_pack_write_start(&p->pw, &p->task, &err), &err);
    p->task.step = parent_step;
    p->task.name = "parent";
    bwi_task_start(w->loop, &p->task, NULL);
}

static void memory_may_change_once_captured_while_writes_go_on(void **state) {
    (void)state;
    struct world w;
    struct state s;
    struct parent p;
    world_open(&w, 0, MIB);
    bwi_bucket_model(w.bucket[0])->latency_ns = BWI_NS_PER_S; /* BEGIN alone takes a second */
    state_mixed(&s, 1, EXTENT, MIB);
    assert_true(s.plan.chunk_count <= 16);
    const uint64_t start = w.env.now;
    parent_start(&p, &w, &s);
    world_run(&w);
    assert_true(p.seen);
    assert_true(p.seen_before_end);
    assert_int_equal(p.seen_ns, start); /* capturing does not wait for the store when there are buffers */
    assert_int_equal(p.pw.captured_ns, start);
    assert_int_equal(p.pw.arena_wait_ns, 0);
    assert_true(w.env.now >= start + 3 * BWI_NS_PER_S);
    check_written(&w, &p.pw, &s, 0);
    bwi_pack_write_fini(&p.pw);
    state_free(&s);
    world_close(&w);
}

/* More chunks than would fit if each were as large as an extent may be. */
static void small_chunks_that_fit_are_captured_without_waiting(void **state) {
    (void)state;
    struct world w;
    struct state s;
    struct parent p;
    world_open(&w, 0, MIB);
    bwi_bucket_model(w.bucket[0])->latency_ns = BWI_NS_PER_S;
    memset(&s, 0, sizeof s);
    bwi_description_init(&s.d);
    for (unsigned i = 0; i < 80; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%02u", i);
        state_plain(&s, name, BW_U8, EXTENT / 2 + 100);
    }
    state_plan(&s, EXTENT, 64 * MIB);
    assert_true(s.plan.chunk_count > MIB / EXTENT && s.plan.stored_bytes < MIB);
    const uint64_t start = w.env.now;
    parent_start(&p, &w, &s);
    world_run(&w);
    assert_int_equal(p.seen_ns, start);
    check_written(&w, &p.pw, &s, 0);
    bwi_pack_write_fini(&p.pw);
    state_free(&s);
    world_close(&w);
}

/* The first chunks are smaller than the usual one: there are no slots any more when the arena has room still. */
static void slots_that_run_out_before_the_arena_does_are_used_again(void **state) {
    (void)state;
    const uint64_t small = 33 * KIB, large = 64 * KIB, smalls = 120, larges = 300;
    struct world w;
    struct state s = {.rng = 1};
    struct bwi_pack_write pw;
    world_open(&w, 0, 4 * MIB);
    bwi_description_init(&s.d);
    const uint8_t *memory = state_memory(&s, smalls * small + larges * large);
    for (uint64_t i = 0; i < smalls + larges; i++) {
        char name[16];
        const bool is_small = i < smalls;
        (void)snprintf(name, sizeof name, "t%04u", (unsigned)i);
        state_tensor(&s, name, BW_U8, memory, 1, is_small ? &small : &large, NULL);
        memory += is_small ? small : large;
    }
    state_plan(&s, 64 * KIB, 64 * MIB);
    assert_int_equal(s.plan.chunk_count, smalls + larges);
    write_start(&w, &pw, &s, 0);
    world_run(&w);
    assert_false(pw.task.running);
    check_written(&w, &pw, &s, 0);
    bwi_pack_write_fini(&pw);
    state_free(&s);
    world_close(&w);
}

static bool is_hashed(const struct bwi_plan *p) {
    const struct bwi_xxh none = {0};
    for (size_t i = 0; i < p->content.extent_count; i++)
        if (!bwi_xxh_eq(&p->content.extents[i], &none)) return true;
    return false;
}

/* Training waits for the capture, and hashing would take the processors from it: all chunks have a slot here, so
 * nothing has to be hashed to make room. */
static void nothing_is_hashed_before_all_is_captured(void **state) {
    (void)state;
    struct world w;
    struct state s;
    struct bwi_pack_write pw;
    world_open_dirs(&w, NULL, 64 * MIB);
    memset(&s, 0, sizeof s);
    bwi_description_init(&s.d);
    for (unsigned i = 0; i < 48; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%02u", i);
        state_plain(&s, name, BW_U8, MIB);
    }
    state_plan(&s, MIB, 64 * MIB);
    write_start(&w, &pw, &s, 0);
    while (!pw.captured) {
        assert_false(is_hashed(&s.plan));
        world_turn(&w);
    }
    world_run(&w);
    assert_true(is_hashed(&s.plan));
    bwi_pack_write_fini(&pw);
    state_free(&s);
    world_close(&w);
}

static void capturing_waits_for_buffers_and_says_how_long(void **state) {
    (void)state;
    struct world w;
    struct state s;
    struct parent p;
    world_open(&w, 0, 2 * (EXTENT + BWI_ARENA_ALIGN));
    bwi_bucket_model(w.bucket[0])->latency_ns = 1000;
    state_mixed(&s, 1, EXTENT, MIB);
    const uint64_t start = w.env.now;
    parent_start(&p, &w, &s);
    world_run(&w);
    check_written(&w, &p.pw, &s, 0);
    assert_true(p.seen_before_end);
    assert_true(p.seen_ns > start);
    assert_in_range(p.pw.arena_wait_ns, 1000, p.pw.captured_ns - start);
    bwi_pack_write_fini(&p.pw);
    state_free(&s);
    world_close(&w);
}

static void at_most_four_packs_are_open_and_capture_does_not_wait_for_their_end(void **state) {
    (void)state;
    struct world w;
    struct state s;
    struct parent p;
    world_open(&w, 0, MIB);
    bwi_bucket_model(w.bucket[0])->latency_ns = 1000;
    state_many(&s, 12);
    const uint64_t start = w.env.now;
    uint64_t most = 0;
    parent_start(&p, &w, &s);
    while (bwi_loop_tasks(w.loop) > 0) {
        world_turn(&w);
        const uint64_t open = w.ctx.tier[0]->ops[BWI_STORE_BEGIN] - bwi_bucket_objects(w.bucket[0]);
        if (open > most) most = open;
    }
    assert_int_equal(most, 4);
    assert_int_equal(p.seen_ns, start);
    check_written(&w, &p.pw, &s, 0);
    bwi_pack_write_fini(&p.pw);
    state_free(&s);
    world_close(&w);
}

static void each_pack_is_begun_and_finished_once_and_each_chunk_written_once(void **state) {
    (void)state;
    struct world w;
    struct state s;
    struct bwi_pack_write pw;
    world_open(&w, 4, 64 * KIB);
    state_mixed(&s, 1, EXTENT, 64 * KIB);
    write_start(&w, &pw, &s, 0);
    world_run(&w);
    const struct bwi_store *t = w.ctx.tier[0];
    assert_int_equal(t->ops[BWI_STORE_BEGIN], s.plan.pack_count);
    assert_int_equal(t->ops[BWI_STORE_FINISH], s.plan.pack_count);
    assert_int_equal(t->ops[BWI_STORE_WRITE], s.plan.pack_count + s.plan.chunk_count);
    assert_int_equal(t->ops[BWI_STORE_ABORT], 0);
    assert_int_equal(t->ops[BWI_STORE_HEAD], 0);
    assert_int_equal(t->bytes_in, file_bytes(&s));
    bwi_pack_write_fini(&pw);
    state_free(&s);
    world_close(&w);
}

/* ---- failures ---- */

/* A task that has failed left nothing but whole packs, as many as it says. */
static void check_failed(struct world *w, const struct bwi_pack_write *pw, const struct state *s, int status) {
    assert_int_equal(pw->task.error.status, status);
    assert_true(pw->captured);
    assert_int_equal(pw->task.pending, 0);
    assert_int_equal(bwi_arena_used(w->arena), 0);
    assert_int_equal(pw->objects, bwi_bucket_objects(w->bucket[0]));
    for (size_t i = 0; i < pw->objects; i++) { /* finished in order */
        struct bwi_span data = BWI_SPAN_NONE;
        assert_true(bwi_bucket_get(w->bucket[0], state_key(w, 0, i).s, &data));
        assert_int_equal(data.len, s->plan.packs[i].file_bytes);
    }
    assert_int_equal(world_upload_bytes(w, BWI_TIER_LOCAL), 0);
}

/* Runs a save in which the n-th operation of a kind fails. false: there were fewer. */
static bool save_with_failure(uint64_t seed, enum bwi_store_verb verb, uint64_t n) {
    struct world w;
    struct state s;
    struct bwi_pack_write pw;
    bool armed = false;
    world_open(&w, seed, 64 * KIB);
    state_many(&s, 12);
    write_start(&w, &pw, &s, 0);
    while (bwi_loop_tasks(w.loop) > 0) {
        if (!armed && w.ctx.tier[0]->ops[verb] >= n - 1) {
            bwi_bucket_fail_next(w.bucket[0], verb, NULL, BW_E_IO, false);
            armed = true;
        }
        world_turn(&w);
    }
    const bool failed = pw.task.error.status != 0;
    if (failed) {
        check_failed(&w, &pw, &s, BW_E_IO);
        assert_non_null(strstr(pw.task.error.message, "to the local tier: "));
        assert_non_null(strstr(pw.task.error.message, ".safetensors"));
    } else {
        check_written(&w, &pw, &s, 0);
    }
    bwi_pack_write_fini(&pw);
    state_free(&s);
    world_close(&w);
    return failed;
}

static void any_operation_may_fail_and_nothing_half_written_stays(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    const enum bwi_store_verb verbs[] = {BWI_STORE_BEGIN, BWI_STORE_WRITE, BWI_STORE_FINISH};
    for (size_t v = 0; v < 3; v++) {
        uint64_t n = 1;
        while (save_with_failure(test_seed(11), verbs[v], n)) n++;
        assert_true(n > 6);
    }
    assert_int_equal(bwi_alloc_live(), live);
}

static void failures_at_random_end_cleanly(void **state) {
    (void)state;
    unsigned failed = 0;
    for (uint64_t seed = 1; seed < 60; seed++) {
        struct world w;
        struct state s;
        struct bwi_pack_write pw;
        world_open(&w, test_seed(seed), 64 * KIB);
        bwi_bucket_model(w.bucket[0])->fail_every = 20;
        state_mixed(&s, seed, EXTENT, 48 * KIB);
        write_start(&w, &pw, &s, 0);
        world_run(&w);
        bwi_bucket_model(w.bucket[0])->fail_every = 0;
        if (pw.task.error.status != 0) {
            check_failed(&w, &pw, &s, BW_E_IO);
            failed++;
        } else {
            check_written(&w, &pw, &s, 0);
        }
        bwi_pack_write_fini(&pw);
        state_free(&s);
        world_close(&w);
    }
    assert_in_range(failed, 20, 59);
}

static void the_message_names_pack_tier_and_cause(void **state) {
    (void)state;
    struct world w;
    struct state s;
    struct bwi_pack_write pw;
    world_open(&w, 0, 64 * KIB);
    state_mixed(&s, 1, EXTENT, 48 * KIB);
    bwi_bucket_fail_next(w.bucket[0], BWI_STORE_WRITE, "/1-", BW_E_NOSPACE, false);
    write_start(&w, &pw, &s, 0);
    world_run(&w);
    assert_fails(pw.task.error.status, BW_E_NOSPACE, &pw.task.error,
                 "write pack 1 to the local tier: write \"runs/run/data/00/");
    bwi_pack_write_fini(&pw);
    state_free(&s);
    world_close(&w);
}

static void a_full_tier_is_found_before_anything_is_written(void **state) {
    (void)state;
    struct world w;
    struct state s;
    struct bwi_pack_write pw;
    world_open(&w, 0, 64 * KIB);
    state_mixed(&s, 1, EXTENT, MIB);
    bwi_bucket_model(w.bucket[0])->capacity_bytes = s.plan.packs[0].file_bytes - 1;
    write_start(&w, &pw, &s, 0);
    world_run(&w);
    check_failed(&w, &pw, &s, BW_E_NOSPACE);
    assert_int_equal(w.ctx.tier[0]->ops[BWI_STORE_WRITE], 0);
    assert_int_equal(w.progress.done_bytes, 0);
    bwi_pack_write_fini(&pw);
    state_free(&s);
    world_close(&w);
}

enum lost { LOST_AFTER_EFFECT, LOST_BEFORE_EFFECT, LOST_AND_ANOTHER_THERE, LOST_AND_NOT_DURABLE };

static void check_lost(enum lost how) {
    struct world w;
    struct state s;
    struct bwi_pack_write pw;
    world_open(&w, 2, 64 * KIB);
    state_mixed(&s, 1, EXTENT, 48 * KIB);
    bwi_bucket_fail_next(w.bucket[0], BWI_STORE_FINISH, "/0-", BW_E_UNKNOWN,
                         how == LOST_AFTER_EFFECT || how == LOST_AND_NOT_DURABLE);
    if (how == LOST_AND_NOT_DURABLE) bwi_bucket_fail_next(w.bucket[0], BWI_STORE_SYNC, "/data/", BW_E_IO, false);
    if (how == LOST_AND_ANOTHER_THERE) {
        world_put(&w, BWI_TIER_LOCAL, state_key(&w, 0, 0).s, bwi_span_str("of another size"));
    }
    write_start(&w, &pw, &s, 0);
    world_run(&w);
    assert_int_equal(w.ctx.tier[0]->ops[BWI_STORE_HEAD], 1);
    assert_int_equal(w.ctx.tier[0]->ops[BWI_STORE_SYNC], how == LOST_AFTER_EFFECT || how == LOST_AND_NOT_DURABLE);
    if (how == LOST_AFTER_EFFECT) {
        check_written(&w, &pw, &s, 0);
    } else if (how == LOST_AND_NOT_DURABLE) {
        assert_fails(pw.task.error.status, BW_E_IO, &pw.task.error, "write pack 0 to the local tier: sync ");
        assert_int_equal(pw.objects, 1); /* something to clean up */
    } else {
        assert_fails(pw.task.error.status, BW_E_UNKNOWN, &pw.task.error,
                     "no answer, and it cannot be seen whether the object exists");
        assert_int_equal(pw.objects, 0);
        assert_int_equal(world_upload_bytes(&w, BWI_TIER_LOCAL), 0);
    }
    bwi_pack_write_fini(&pw);
    state_free(&s);
    world_close(&w);
}

static void a_lost_answer_of_finish_is_asked_for(void **state) {
    (void)state;
    check_lost(LOST_AFTER_EFFECT);
    check_lost(LOST_BEFORE_EFFECT);
    check_lost(LOST_AND_ANOTHER_THERE);
    check_lost(LOST_AND_NOT_DURABLE);
}

static void a_pack_that_is_there_already_counts_by_its_size(void **state) {
    (void)state;
    for (size_t more = 0; more < 2; more++) {
        struct world w;
        struct state s;
        struct bwi_pack_write pw;
        world_open(&w, 0, 64 * KIB);
        state_mixed(&s, 1, EXTENT, 2 * MIB);
        assert_int_equal(s.plan.pack_count, 1);
        const size_t bytes = (size_t)s.plan.packs[0].file_bytes + more;
        uint8_t *zero = bwi_calloc(1, bytes);
        world_put(&w, BWI_TIER_LOCAL, state_key(&w, 0, 0).s, bwi_span(zero, bytes));
        bwi_free(zero);
        write_start(&w, &pw, &s, 0);
        world_run(&w);
        assert_int_equal(pw.task.error.status, more == 0 ? 0 : BW_E_EXISTS);
        assert_int_equal(pw.objects, more == 0 ? 1 : 0);
        bwi_pack_write_fini(&pw);
        state_free(&s);
        world_close(&w);
    }
}

static void cancelling_at_any_moment_gives_everything_back(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    for (uint64_t turns = 0;; turns++) {
        struct world w;
        struct state s;
        struct bwi_pack_write pw;
        world_open(&w, test_seed(9), 48 * KIB);
        state_mixed(&s, 1, EXTENT, 48 * KIB);
        write_start(&w, &pw, &s, 0);
        for (uint64_t i = 0; i < turns && pw.task.running; i++) world_turn(&w);
        const bool running = pw.task.running;
        if (running) {
            bwi_task_cancel(&pw.task);
            world_run(&w);
            check_failed(&w, &pw, &s, BW_E_CANCELLED);
        } else {
            check_written(&w, &pw, &s, 0);
        }
        bwi_pack_write_fini(&pw);
        state_free(&s);
        world_close(&w);
        if (!running) break;
    }
    assert_int_equal(bwi_alloc_live(), live);
}

static void a_save_that_waits_for_a_buffer_can_be_cancelled(void **state) {
    (void)state;
    struct world w;
    struct state s;
    struct bwi_pack_write pw;
    world_open(&w, 0, 20 * KIB);
    state_mixed(&s, 1, EXTENT, MIB);
    struct state other;
    struct bwi_pack_write before;
    state_mixed(&other, 2, EXTENT, MIB);
    bwi_bucket_model(w.bucket[0])->latency_ns = BWI_NS_PER_S;
    write_start(&w, &before, &other, 1); /* takes the arena for seconds */
    write_start(&w, &pw, &s, 0);
    (void)bwi_loop_turn(w.loop, 0);
    bwi_task_cancel(&pw.task);
    while (pw.task.running) world_turn(&w);
    assert_int_equal(pw.task.error.status, BW_E_CANCELLED);
    bwi_pack_write_fini(&pw);
    memset(&pw, 0xee, sizeof pw); /* the arena has forgotten it */
    world_run(&w);
    check_written(&w, &before, &other, 1);
    bwi_pack_write_fini(&before);
    state_free(&s);
    state_free(&other);
    world_close(&w);
}

static void running_out_of_memory_anywhere_is_an_error_and_leaks_nothing(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    for (unsigned long n = 1;; n++) {
        struct world w;
        struct state s;
        struct bw_error err = BW_ERROR_INIT;
        world_open(&w, test_seed(5), 64 * KIB);
        state_mixed(&s, 1, EXTENT, 48 * KIB);
        struct bwi_pack_write pw = {.ctx = &w.ctx, .plan = &s.plan, .id = ID};
        (void)bwi_alloc_fail_at(n);
        const int rc = bwi_pack_write_start(&pw, NULL, &err);
        world_run(&w);
        const bool fired = bwi_alloc_fail_at(0) >= n;
        if (rc < 0) assert_fails(rc, BW_E_NOMEM, &err, "writing packs");
        if (rc == 0 && fired) check_failed(&w, &pw, &s, BW_E_NOMEM);
        if (!fired) check_written(&w, &pw, &s, 0);
        bwi_pack_write_fini(&pw);
        state_free(&s);
        world_close(&w);
        if (!fired) break;
    }
    assert_int_equal(bwi_alloc_live(), live);
}

/* ---- a file system that fails ---- */

static bool has_pack(struct world *w, size_t pack) {
    struct bwi_buf b = {0};
    const bool there = world_get(w, BWI_TIER_LOCAL, state_key(w, 0, pack).s, &b);
    bwi_buf_fini(&b);
    return there;
}

static void system_calls_that_fail_never_leave_a_pack_that_was_not_announced(void **state) {
    (void)state;
    const uint32_t mask =
        1u << BWI_OS_OPEN | 1u << BWI_OS_WRITE | 1u << BWI_OS_FSYNC | 1u << BWI_OS_RESERVE | 1u << BWI_OS_LINK;
    for (uint64_t n = 1;; n++) {
        struct world w;
        struct state s;
        struct bwi_pack_write pw;
        struct bwi_os_fault *fault;
        assert_ok(bwi_os_fault_new(bwi_os_system(), &fault), NULL);
        world_open_dirs(&w, bwi_os_fault_table(fault), 64 * KIB);
        state_mixed(&s, 1, EXTENT, 96 * KIB);
        bwi_os_fault_at(fault, n, 1, mask, 5 /* EIO */);
        write_start(&w, &pw, &s, 0);
        world_run(&w);
        const bool fired = bwi_os_fault_fired(fault) > 0;
        bwi_os_fault_at(fault, 0, 0, 0, 0);
        if (pw.task.error.status == 0) check_written(&w, &pw, &s, 0);
        if (pw.task.error.status != 0) assert_int_equal(pw.task.error.status, BW_E_IO);
        for (size_t i = 0; i < s.plan.pack_count; i++) assert_int_equal(has_pack(&w, i), i < pw.objects);
        bwi_pack_write_fini(&pw);
        state_free(&s);
        world_close(&w);
        bwi_os_fault_free(fault);
        if (!fired) break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_writes_are_in_flight_as_the_tier_is_to_have),
        cmocka_unit_test(a_mixed_state_comes_back_byte_for_byte_whatever_the_order),
        cmocka_unit_test(a_mixed_state_comes_back_from_a_directory),
        cmocka_unit_test(a_plan_without_a_byte_makes_no_object),
        cmocka_unit_test(a_state_above_the_budget_flows_through_it),
        cmocka_unit_test(several_saves_share_an_arena_that_holds_two_chunks),
        cmocka_unit_test(a_chunk_above_the_budget_is_refused_at_once),
        cmocka_unit_test(memory_may_change_once_captured_while_writes_go_on),
        cmocka_unit_test(small_chunks_that_fit_are_captured_without_waiting),
        cmocka_unit_test(slots_that_run_out_before_the_arena_does_are_used_again),
        cmocka_unit_test(nothing_is_hashed_before_all_is_captured),
        cmocka_unit_test(capturing_waits_for_buffers_and_says_how_long),
        cmocka_unit_test(at_most_four_packs_are_open_and_capture_does_not_wait_for_their_end),
        cmocka_unit_test(each_pack_is_begun_and_finished_once_and_each_chunk_written_once),
        cmocka_unit_test(any_operation_may_fail_and_nothing_half_written_stays),
        cmocka_unit_test(failures_at_random_end_cleanly),
        cmocka_unit_test(the_message_names_pack_tier_and_cause),
        cmocka_unit_test(a_full_tier_is_found_before_anything_is_written),
        cmocka_unit_test(a_lost_answer_of_finish_is_asked_for),
        cmocka_unit_test(a_pack_that_is_there_already_counts_by_its_size),
        cmocka_unit_test(cancelling_at_any_moment_gives_everything_back),
        cmocka_unit_test(a_save_that_waits_for_a_buffer_can_be_cancelled),
        cmocka_unit_test(running_out_of_memory_anywhere_is_an_error_and_leaks_nothing),
        cmocka_unit_test(system_calls_that_fail_never_leave_a_pack_that_was_not_announced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
