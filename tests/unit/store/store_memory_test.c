/* SPDX-License-Identifier: Apache-2.0 */
/* The memory store's model: time, bandwidth, capacity, failures, lost answers. What all stores promise is in
 * contract.c. */
#include "rig.h"

#include "base/vec.h"
#include "store/store_memory.h"
#include <stdio.h>
#include <string.h>

#define MS BWI_NS_PER_MS

struct fixture {
    struct rig rig;
    struct bwi_bucket *bucket;
    struct bwi_memory_model *model;
    struct bwi_store *a, *b;
    long live;
};

static int setup(void **state) {
    static struct fixture f;
    f.live = bwi_alloc_live();
    rig_open(&f.rig, true, NULL);
    assert_int_equal(bwi_bucket_new(&f.rig.v.env, &f.bucket), 0);
    f.model = bwi_bucket_model(f.bucket);
    assert_int_equal(bwi_store_memory_open(f.bucket, f.rig.loop, "one", &f.a, NULL), 0);
    assert_int_equal(bwi_store_memory_open(f.bucket, f.rig.loop, "two", &f.b, NULL), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    f->a->close(f->a);
    f->b->close(f->b);
    bwi_bucket_free(f->bucket);
    rig_close(&f->rig);
    return bwi_alloc_live() == f->live ? 0 : -1;
}

#define A &f->rig, f->a

static uint64_t took(struct fixture *f, const char *key, const char *text) {
    uint64_t start = f->rig.v.now;
    assert_op_ok(st_create(A, key, text));
    return f->rig.v.now - start;
}

static void every_operation_takes_the_latency(void **state) {
    struct fixture *f = *state;
    f->model->latency_ns = 5 * MS;
    assert_string_equal(f->a->url, "memory:one");
    assert_int_equal(took(f, "a", "x"), 5 * MS);
    assert_int_equal(took(f, "b", "x"), 5 * MS);
    uint64_t start = f->rig.v.now;
    assert_op_ok(st_head(A, "a"));
    assert_int_equal(f->rig.v.now - start, 5 * MS);
    start = f->rig.v.now;
    assert_op_ok(st_abort(A, NULL));
    assert_op_fails(st_head(A, "not a key"), BW_E_INVALID, NULL);
    assert_int_equal(f->rig.v.now, start);
}

static void the_effect_comes_with_the_completion(void **state) {
    struct fixture *f = *state;
    f->model->latency_ns = 5 * MS;
    struct bwi_store_op op = {.verb = BWI_STORE_CREATE, .key = "k", .data = bwi_span_str("x")};
    rig_submit(&f->rig, f->a, &op);
    f->rig.v.now += 5 * MS - 1;
    bwi_loop_turn(f->rig.loop, 0);
    assert_int_equal(bwi_bucket_objects(f->bucket), 0);
    assert_int_equal(bwi_loop_next_ns(f->rig.loop), f->rig.v.now + 1);
    f->rig.v.now++;
    bwi_loop_turn(f->rig.loop, 0);
    assert_true(rig_is_done(&op));
    assert_int_equal(bwi_bucket_objects(f->bucket), 1);
}

static void jitter_is_uniform_within_its_bounds(void **state) {
    struct fixture *f = *state;
    f->model->latency_ns = 10 * MS;
    f->model->jitter_ns = 4 * MS;
    unsigned low = 0;
    for (int i = 0; i < 400; i++) {
        char key[32];
        snprintf(key, sizeof key, "k%d", i);
        uint64_t ns = took(f, key, "x");
        assert_true(ns >= 10 * MS && ns <= 14 * MS);
        low += ns < 12 * MS;
    }
    assert_true(low > 140 && low < 260);
}

static void jitter_changes_the_order_of_completions(void **state) {
    struct fixture *f = *state;
    f->model->jitter_ns = 100 * MS;
    unsigned swapped = 0;
    for (int i = 0; i < 50; i++) {
        struct bwi_store_op x = {.verb = BWI_STORE_LIST, .key = ""}, y = x;
        rig_submit(&f->rig, f->a, &x);
        rig_submit(&f->rig, f->a, &y);
        rig_wait(&f->rig, &y);
        swapped += !rig_is_done(&x);
        rig_wait(&f->rig, &x);
    }
    assert_true(swapped > 10 && swapped < 40);
}

static void bandwidth_is_shared_in_order_of_submission(void **state) {
    struct fixture *f = *state;
    static uint8_t bytes[1000];
    f->model->bytes_per_s = 1000000; /* 1,000 bytes take 1 ms */
    f->model->latency_ns = 10 * MS;
    uint64_t start = f->rig.v.now;
    struct bwi_store_op ops[4];
    char keys[4][8];
    for (int i = 0; i < 4; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        ops[i] = (struct bwi_store_op){.verb = BWI_STORE_CREATE, .key = keys[i], .data = bwi_span(bytes, 1000)};
        rig_submit(&f->rig, i % 2 ? f->a : f->b, &ops[i]);
    }
    for (unsigned i = 0; i < 4; i++) {
        rig_wait(&f->rig, &ops[i]);
        assert_int_equal(f->rig.v.now - start, (i + 1) * MS + 10 * MS);
    }
    start = f->rig.v.now;
    struct bwi_store_op got = st_get(A, "k0", 1000);
    bwi_buf_fini(&got.body);
    assert_int_equal(f->rig.v.now - start, 11 * MS);
    start = f->rig.v.now;
    assert_op_ok(st_read(A, "k0", 0, bytes, 500, NULL));
    assert_int_equal(f->rig.v.now - start, 10 * MS + MS / 2);
}

static void capacity_counts_objects_and_uploads(void **state) {
    struct fixture *f = *state;
    f->model->capacity_bytes = 100;
    static const uint8_t bytes[101];
    assert_op_ok(st_create_bytes(A, "a", bwi_span(bytes, 60)));
    struct bwi_store_op op = st_create_bytes(A, "b", bwi_span(bytes, 41));
    assert_op_fails(op, BW_E_NOSPACE, "create \"b\": 41 bytes in memory:one: no space left, 60 of 100 bytes are used");
    struct bwi_store_op u = st_begin(A, "u", 40);
    assert_op_ok(u);
    assert_op_fails(st_create_bytes(A, "b", bwi_span(bytes, 1)), BW_E_NOSPACE, NULL);
    assert_op_fails(st_begin(A, "v", 1), BW_E_NOSPACE, "begin \"v\": ");
    op = st_run(A, (struct bwi_store_op){.verb = BWI_STORE_SPACE});
    assert_int_equal(op.free_bytes, 0);
    assert_int_equal(op.total_bytes, 100);
    assert_op_ok(st_abort(A, u.upload));
    assert_outcome(st_upload(A, "u", bwi_span(bytes, 40)), BWI_STORE_CREATED);
    assert_op_ok(st_key(A, BWI_STORE_DELETE_PREFIX, "none/"));
    assert_op_ok(st_key(A, BWI_STORE_DELETE, "u"));
    op = st_run(A, (struct bwi_store_op){.verb = BWI_STORE_SPACE});
    assert_int_equal(op.free_bytes, 40);
    f->model->capacity_bytes = 0;
    op = st_run(A, (struct bwi_store_op){.verb = BWI_STORE_SPACE});
    assert_true(op.free_bytes == UINT64_MAX && op.total_bytes == UINT64_MAX);
}

static void some_operations_fail_without_an_effect(void **state) {
    struct fixture *f = *state;
    f->model->fail_every = 4;
    unsigned failed = 0;
    for (int i = 0; i < 400; i++) {
        char key[32];
        snprintf(key, sizeof key, "k%03d", i);
        struct bwi_store_op op = st_create(A, key, "x");
        bool there = bwi_bucket_get(f->bucket, key, &(struct bwi_span){0});
        assert_int_equal(there, op.error.status == 0);
        if (op.error.status == 0) continue;
        assert_op_fails(op, BW_E_IO, "injected failure");
        failed++;
    }
    assert_true(failed > 60 && failed < 140);
}

static void some_answers_are_lost_but_the_effect_is_there(void **state) {
    struct fixture *f = *state;
    f->model->lose_answer_every = 3;
    f->model->latency_ns = MS;
    unsigned lost = 0;
    for (int i = 0; i < 300; i++) {
        char key[32];
        snprintf(key, sizeof key, "k%03d", i);
        uint64_t start = f->rig.v.now;
        struct bwi_store_op op = i % 2 ? st_create(A, key, "x") : st_upload(A, key, bwi_span_str("x"));
        assert_true(bwi_bucket_get(f->bucket, key, &(struct bwi_span){0}));
        if (op.error.status == 0) continue;
        assert_op_fails(op, BW_E_UNKNOWN, "no answer came");
        if (i % 2) assert_int_equal(f->rig.v.now - start, 2 * MS); /* later than the effect */
        assert_int_equal(op.outcome, 0);
        assert_op_ok(st_head(A, key)); /* questions are always answered */
        lost++;
    }
    assert_true(lost > 60 && lost < 140);
}

static void a_lost_answer_shows_after_its_effect(void **state) {
    struct fixture *f = *state;
    f->model->latency_ns = 5 * MS;
    bwi_bucket_fail_next(f->bucket, BWI_STORE_CREATE, NULL, BW_E_UNKNOWN, true);
    struct bwi_store_op op = {.verb = BWI_STORE_CREATE, .key = "k", .data = bwi_span_str("x")};
    rig_submit(&f->rig, f->a, &op);
    assert_true(f->rig.v.now > 0);
    f->rig.v.now += 5 * MS;
    bwi_loop_turn(f->rig.loop, 0);
    assert_false(rig_is_done(&op));
    assert_true(bwi_bucket_get(f->bucket, "k", &(struct bwi_span){0}));
    rig_wait(&f->rig, &op);
    assert_op_fails(op, BW_E_UNKNOWN, "create \"k\": no answer came");
    assert_outcome(st_create(A, "k", "x"), BWI_STORE_SAME);
}

static void a_planned_failure_meets_its_operation_once(void **state) {
    struct fixture *f = *state;
    bwi_bucket_fail_next(f->bucket, BWI_STORE_CREATE, "history/", BW_E_NOSPACE, false);
    bwi_bucket_fail_next(f->bucket, BWI_STORE_CREATE, NULL, BW_E_ACCESS, true);
    bwi_bucket_fail_next(f->bucket, BWI_STORE_GET, "k", BW_E_TIMEOUT, false);
    assert_op_fails(st_create(A, "groups/1", "x"), BW_E_ACCESS, "create \"groups/1\": injected failure");
    assert_object(A, "groups/1", "x"); /* with effect, and the plan for GET does not match */
    assert_op_fails(st_create(A, "r/history/1", "x"), BW_E_NOSPACE, NULL);
    assert_false(bwi_bucket_get(f->bucket, "r/history/1", &(struct bwi_span){0}));
    assert_op_ok(st_create(A, "r/history/1", "x"));
    assert_op_ok(st_create(A, "k", "x"));
    assert_op_fails(st_get(A, "k", 10), BW_E_TIMEOUT, NULL);
    assert_object(A, "k", "x");
}

static void a_failure_gives_nothing_out(void **state) {
    struct fixture *f = *state;
    assert_op_ok(st_create(A, "k", "x"));
    for (int effect = 0; effect < 2; effect++) {
        static const enum bwi_store_verb verbs[] = {BWI_STORE_BEGIN, BWI_STORE_LOCK, BWI_STORE_GET, BWI_STORE_LIST};
        for (size_t i = 0; i < 4; i++) bwi_bucket_fail_next(f->bucket, verbs[i], NULL, BW_E_IO, effect);
        struct bwi_store_op op = st_begin(A, "u", 10);
        assert_op_fails(op, BW_E_IO, "begin \"u\"");
        assert_null(op.upload);
        op = st_key(A, BWI_STORE_LOCK, "d/");
        assert_op_fails(op, BW_E_IO, "lock \"d/\"");
        assert_null(op.lock);
        op = st_get(A, "k", 10);
        assert_op_fails(op, BW_E_IO, "get \"k\"");
        assert_null(op.body.ptr);
        op = st_list(A, "", NULL);
        assert_op_fails(op, BW_E_IO, "list \"\"");
        assert_int_equal(op.names.len, 0);
    }
    struct bwi_store_op lock = st_key(A, BWI_STORE_LOCK, "d/");
    assert_op_ok(lock); /* it was not left taken */
    assert_op_ok(st_unlock(A, lock.lock));
}

static void an_upload_ends_with_its_finish_however_that_ends(void **state) {
    struct fixture *f = *state;
    bwi_bucket_fail_next(f->bucket, BWI_STORE_WRITE, "d/u", BW_E_IO, false);
    assert_op_fails(st_upload(A, "d/u", bwi_span_str("x")), BW_E_IO, "write \"d/u\": injected failure");
    bwi_bucket_fail_next(f->bucket, BWI_STORE_FINISH, "d/u", BW_E_IO, false);
    assert_op_fails(st_upload(A, "d/u", bwi_span_str("x")), BW_E_IO, "finish \"d/u\": injected failure");
    assert_no_object(A, "d/u");
    bwi_bucket_fail_next(f->bucket, BWI_STORE_FINISH, "d/u", BW_E_UNKNOWN, true);
    assert_op_fails(st_upload(A, "d/u", bwi_span_str("x")), BW_E_UNKNOWN, "finish \"d/u\": no answer came");
    assert_object(A, "d/u", "x");
    assert_outcome(st_upload(A, "d/u", bwi_span_str("y")), BWI_STORE_SAME);
}

static void a_test_may_look_and_damage(void **state) {
    struct fixture *f = *state;
    struct bwi_span got;
    assert_true(bwi_bucket_put(f->bucket, "b", bwi_span_str("two")));
    assert_true(bwi_bucket_put(f->bucket, "a", bwi_span_str("one")));
    assert_true(bwi_bucket_put(f->bucket, "a", bwi_span_str("changed")));
    assert_int_equal(bwi_bucket_objects(f->bucket), 2);
    assert_string_equal(bwi_bucket_key(f->bucket, 0), "a");
    assert_string_equal(bwi_bucket_key(f->bucket, 1), "b");
    assert_null(bwi_bucket_key(f->bucket, 2));
    assert_true(bwi_bucket_get(f->bucket, "a", &got));
    assert_true(bwi_span_eq(got, bwi_span_str("changed")));
    assert_object(A, "a", "changed");
    assert_true(bwi_bucket_remove(f->bucket, "a"));
    assert_false(bwi_bucket_remove(f->bucket, "a"));
    assert_false(bwi_bucket_get(f->bucket, "a", &got));
    assert_no_object(A, "a");
    bwi_bucket_free(NULL);
}

static void an_object_for_which_there_is_no_memory_is_not_put(void **state) {
    struct fixture *f = *state;
    struct bwi_span got;
    unsigned refused = 0;
    for (bool done = false; !done; refused += !done) {
        (void)bwi_alloc_fail_at(refused + 1);
        done = bwi_bucket_put(f->bucket, "a", bwi_span_str("one"));
        (void)bwi_alloc_fail_at(0);
        assert_int_equal(bwi_bucket_get(f->bucket, "a", &got), done);
    }
    assert_true(refused >= 3); /* the bytes, the object, its key */
    assert_object(A, "a", "one");
}

struct chain {
    struct bwi_store_op op;
    struct fixture *f;
    int left;
};
static void again(struct bwi_store_op *op) {
    struct chain *c = bwi_container_of(op, struct chain, op);
    if (--c->left > 0) bwi_store_submit(c->f->a, op);
}

static void without_latency_one_turn_delivers_what_was_there(void **state) {
    struct fixture *f = *state;
    struct chain c = {.op = {.verb = BWI_STORE_HEAD, .done = again, .key = "k"}, .f = f, .left = 5};
    bwi_store_submit(f->a, &c.op);
    for (int left = 4; left >= 0; left--) {
        assert_true(bwi_loop_turn(f->rig.loop, 0));
        assert_int_equal(c.left, left); /* a chain of completions does not keep the loop from its other work */
    }
    assert_false(bwi_loop_turn(f->rig.loop, 0));
}

static void the_same_seed_meets_the_same_fate(void **state) {
    (void)state;
    uint64_t ends[2];
    unsigned failed[2] = {0};
    for (int run = 0; run < 2; run++) {
        struct rig rig;
        struct bwi_bucket *b = NULL;
        struct bwi_store *s = NULL;
        rig_open(&rig, true, NULL);
        assert_int_equal(bwi_bucket_new(&rig.v.env, &b), 0);
        *bwi_bucket_model(b) = (struct bwi_memory_model){.latency_ns = MS, .jitter_ns = MS, .fail_every = 5};
        assert_int_equal(bwi_store_memory_open(b, rig.loop, "x", &s, NULL), 0);
        for (int i = 0; i < 100; i++) failed[run] += st_create(&rig, s, "k", "x").error.status != 0;
        ends[run] = rig.v.now;
        s->close(s);
        bwi_bucket_free(b);
        rig_close(&rig);
    }
    assert_int_equal(ends[0], ends[1]);
    assert_int_equal(failed[0], failed[1]);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(every_operation_takes_the_latency),
        CASE(the_effect_comes_with_the_completion),
        CASE(jitter_is_uniform_within_its_bounds),
        CASE(jitter_changes_the_order_of_completions),
        CASE(bandwidth_is_shared_in_order_of_submission),
        CASE(capacity_counts_objects_and_uploads),
        CASE(some_operations_fail_without_an_effect),
        CASE(some_answers_are_lost_but_the_effect_is_there),
        CASE(a_lost_answer_shows_after_its_effect),
        CASE(a_planned_failure_meets_its_operation_once),
        CASE(a_failure_gives_nothing_out),
        CASE(an_upload_ends_with_its_finish_however_that_ends),
        CASE(a_test_may_look_and_damage),
        CASE(an_object_for_which_there_is_no_memory_is_not_put),
        CASE(without_latency_one_turn_delivers_what_was_there),
        cmocka_unit_test(the_same_seed_meets_the_same_fate),
    };
    return cmocka_run_group_tests_name("store_memory", tests, NULL, NULL);
}
