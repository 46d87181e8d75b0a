/* SPDX-License-Identifier: Apache-2.0 */
/* A run in memory whose groups are put into the authority by hand, for those who commit them. */
#ifndef BW_TEST_COMMIT_JOB_H
#define BW_TEST_COMMIT_JOB_H

#include <string.h>

#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/commit.h"
#include "store/store_memory.h"
#include "test.h"

/* A run with one registered attempt, and groups that are put into the authority by hand. */
struct job {
    struct bwi_env_virtual env;
    struct bwi_bucket *bucket;
    struct bwi_loop *loop;
    struct bwi_context ctx;
    struct bwi_entry head;
    struct bwi_id id;
    const struct bwi_id *ref; /* of each group */
    uint32_t groups, tensors;
    struct bw_error err;
};

static inline void put(struct job *j, struct bwi_key key, struct bwi_buf *bytes) {
    assert_true(bwi_bucket_put(j->bucket, key.s, bwi_buf_span(bytes)));
    bwi_buf_fini(bytes);
}

static inline void job_init(struct job *j, uint32_t groups, uint32_t tensors) {
    memset(j, 0, sizeof *j);
    j->groups = groups;
    j->tensors = tensors;
    bwi_env_virtual_init(&j->env, 1);
    assert_int_equal(bwi_bucket_new(&j->env.env, &j->bucket), 0);
    assert_ok(bwi_loop_open(&j->env.env, NULL, &j->loop, &j->err), &j->err);
    bwi_context_init(&j->ctx, j->loop);
    bwi_format(j->ctx.run, sizeof j->ctx.run, "run");
    assert_ok(bwi_store_memory_open(j->bucket, j->loop, "m", &j->ctx.tier[BWI_TIER_REMOTE], &j->err), &j->err);
    struct bwi_actor a = {.time_ms = 1, .host = "h"};
    struct bwi_register r = {
        .run = "run", .job = "job", .launch = "l", .label = "", .world = groups, .groups = groups, .nonce = 5};
    r.fan_out = groups > BWI_GROUPS_FLAT;
    r.uuid.b[0] = 1;
    assert_ok(bwi_policy_register(&a, &r, &j->head, &j->err), &j->err);
    struct bwi_buf bytes = {0};
    assert_ok(bwi_entry_encode(&j->head, &bytes, &j->err), &j->err);
    put(j, bwi_key_entry("run", 1, 1), &bytes);
    j->id = (struct bwi_id){.step = 7, .attempt = 1, .nonce = 5};
}

static inline void job_fini(struct job *j) {
    bwi_entry_fini(&j->head);
    j->ctx.tier[BWI_TIER_REMOTE]->close(j->ctx.tier[BWI_TIER_REMOTE]);
    bwi_loop_close(j->loop);
    bwi_bucket_free(j->bucket);
    assert_int_equal(bwi_alloc_live(), 0);
}

/* Group g holds rows [g, g + 1) of every tensor; `shift` moves its rows by one, which leaves a gap and an overlap. */
static inline struct bwi_sha put_layout(struct job *j, uint32_t g, bool shift, uint64_t *ret_bytes) {
    struct bwi_tensor *t = bwi_calloc(j->tensors, sizeof *t);
    struct bwi_box *b = bwi_calloc(j->tensors, sizeof *b);
    char(*names)[24] = bwi_calloc(j->tensors, sizeof *names);
    uint64_t shape[2] = {j->groups, 64}, offset[2] = {shift ? (g + 1) % j->groups : g, 0}, extent[2] = {1, 64};
    uint32_t rank = g;
    for (uint32_t i = 0; i < j->tensors; i++) {
        bwi_format(names[i], sizeof names[i], "layer.%08u.w", i);
        t[i] = (struct bwi_tensor){.name = bwi_span_str(names[i]), .dtype = BW_F32, .dims = 2, .shape = shape};
        b[i] = (struct bwi_box){.tensor = i, .rank = g, .tied = BWI_NOT_TIED, .offset = offset, .extent = extent};
    }
    struct bwi_layout l = {
        .ranks = &rank, .rank_count = 1, .tensors = t, .tensor_count = j->tensors, .boxes = b, .box_count = j->tensors};
    struct bwi_buf bytes = {0};
    assert_ok(bwi_layout_encode(&l, &bytes, &j->err), &j->err);
    struct bwi_sha sha = bwi_sha_of(bwi_buf_span(&bytes));
    *ret_bytes = bytes.len;
    put(j, bwi_key_layout("run", 1, 5, &sha), &bytes);
    bwi_free(t);
    bwi_free(b);
    bwi_free(names);
    return sha;
}

static inline void put_group(struct job *j, uint32_t g, bool shift, uint8_t uuid) {
    struct bwi_summary s = {.id = j->id,
                            .group = g,
                            .groups = j->groups,
                            .world = j->groups,
                            .fan_out = j->groups > BWI_GROUPS_FLAT,
                            .rank_count = 1,
                            .content_bytes = 100,
                            .placement_bytes = 100,
                            .raw_bytes = 1000,
                            .stored_bytes = 4096,
                            .pack_count = 1};
    s.uuid.b[0] = uuid;
    if (j->ref) s.refs[s.ref_count++] = *j->ref;
    s.ranks[0] = g;
    s.layout = put_layout(j, g, shift, &s.layout_bytes);
    s.content.b[0] = (uint8_t)(g + 1);
    s.content.b[1] = (uint8_t)(g >> 8);
    s.placement.b[0] = 1;
    struct bwi_buf bytes = {0};
    assert_ok(bwi_summary_encode(&s, &bytes, &j->err), &j->err);
    put(j, bwi_key_summary("run", &j->id, g), &bytes);
}

/* Turns the loop, and moves the time, until the task has ended. */
static inline void job_run(struct job *j, const struct bwi_task *t) {
    while (t->running) {
        if (bwi_loop_turn(j->loop, 0)) continue;
        uint64_t next = bwi_loop_next_ns(j->loop);
        assert_true(next != BWI_NEVER);
        j->env.now = next;
    }
}

#endif
