/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a cluster's job save, and how a test goes through launches, saves and resumes with it. */
#ifndef BW_TEST_CLUSTER_JOB_H
#define BW_TEST_CLUSTER_JOB_H

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "cluster.h"
#include "test.h"
#include <string.h>

#define ROWS 24u
#define COLS 300u

/* The state of a job of `world` ranks at a step: one sharded tensor, one replicated one, one blob per rank. */
struct state {
    float sharded[ROWS][COLS], same[COLS];
    char blob[16];
};

static inline void make_state(struct state *s, uint64_t step) {
    for (unsigned i = 0; i < ROWS; i++)
        for (unsigned k = 0; k < COLS; k++) s->sharded[i][k] = (float)(step * 100000 + i * COLS + k);
    for (unsigned k = 0; k < COLS; k++) s->same[k] = (float)(step * 7 + k);
    bwi_format(s->blob, sizeof s->blob, "rng-%llu", (unsigned long long)step);
}

static inline void shard_of(uint32_t rank, uint32_t world, uint64_t *offset, uint64_t *extent) {
    offset[0] = ROWS * rank / world;
    offset[1] = 0;
    extent[0] = ROWS * (rank + 1) / world - offset[0];
    extent[1] = COLS;
}

static inline void describe(struct bwi_save *v, const struct state *s, uint32_t rank, uint32_t world) {
    struct bw_error err = BW_ERROR_INIT;
    uint64_t shape[2] = {ROWS, COLS}, offset[2], extent[2], cols = COLS;
    shard_of(rank, world, offset, extent);
    struct bw_tensor t = BW_TENSOR_INIT;
    t.name = "sharded";
    t.dtype = BW_F32;
    t.dims = 2;
    t.shape = shape;
    t.offset = offset;
    t.extent = extent;
    t.data = s->sharded[offset[0]];
    assert_ok(bwi_description_tensor(&v->description, &t, &err), &err);
    struct bw_tensor r = BW_TENSOR_INIT;
    r.name = "same";
    r.dtype = BW_F32;
    r.dims = 1;
    r.shape = &cols;
    r.data = s->same;
    r.replica_count = world;
    r.replica_index = rank;
    assert_ok(bwi_description_tensor(&v->description, &r, &err), &err);
    assert_ok(bwi_description_blob(&v->description, "rng", s->blob, sizeof s->blob, &err), &err);
}

static inline struct bwi_save *save(struct cluster *c, unsigned slot, uint64_t step, const struct state *s) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_session *x = c->ranks[slot].session;
    struct bwi_save *v;
    assert_ok(bwi_session_begin(x, step, &v, &err), &err);
    describe(v, s, x->cfg.rank, x->cfg.world);
    assert_ok(bwi_session_start(v, &err), &err);
    return v;
}

struct wait {
    struct bwi_save *v;
    enum bw_level level;
};

static inline bool reached(struct cluster *c, void *user) {
    (void)c;
    struct wait *w = user;
    return w->v->level >= w->level || w->v->state == BWI_SAVE_ENDED;
}

static inline bool ended(struct cluster *c, void *user) {
    (void)c;
    return ((struct bwi_save *)user)->state == BWI_SAVE_ENDED;
}

static inline void wait_level(struct cluster *c, struct bwi_save *v, enum bw_level level) {
    struct wait w = {v, level};
    assert_true(cluster_run(c, reached, &w, 600000));
    if (v->level < level) fail_msg("step %llu ended: %s", (unsigned long long)v->step, v->error.message);
}

static inline void save_all(struct cluster *c, unsigned first, uint32_t world, uint64_t step, struct bwi_save **ret) {
    static struct state s;
    make_state(&s, step);
    for (uint32_t r = 0; r < world; r++) ret[r] = save(c, first + r, step, &s);
    for (uint32_t r = 0; r < world; r++) wait_level(c, ret[r], BW_CAPTURED);
    memset(&s, 0xee, sizeof s); /* whatever is read of it from now on is wrong */
}

static inline void commit_all(struct cluster *c, unsigned first, uint32_t world, uint64_t step) {
    struct bwi_save *v[CLUSTER_RANKS_MAX];
    save_all(c, first, world, step, v);
    for (uint32_t r = 0; r < world; r++) {
        wait_level(c, v[r], BW_COMMITTED);
        assert_true(cluster_run(c, ended, v[r], 600000));
        bwi_session_release(v[r]);
    }
}

static inline bool never(struct cluster *c, void *user) {
    (void)c;
    (void)user;
    return false;
}

static inline void open_all(struct cluster *c, unsigned first, const struct launch *l) {
    for (uint32_t r = 0; r < l->world; r++) cluster_start(c, first + r, r, r, l);
    cluster_open(c, first, l->world);
    for (uint32_t r = 0; r < l->world; r++)
        assert_ok(c->ranks[first + r].open->error.status, &c->ranks[first + r].open->error);
}

static inline bool call_ended(struct cluster *c, void *user) {
    (void)c;
    return !((struct bwi_task *)user)->running;
}

/* Reads a blob or slices; 0, or the error. */
static inline int read_part(struct cluster *c, struct rank *r, struct bwi_restore_call *call, struct bw_error *err) {
    bwi_restore_call_start(call, r->loop, NULL);
    assert_true(cluster_run(c, call_ended, &call->task, 600000));
    return bwi_error_copy(err, &call->task.error);
}

static inline int read_all(struct cluster *c, struct rank *r, struct bwi_restore *restore, struct state *ret,
                           struct bw_error *err) {
    uint64_t shape[2] = {ROWS, COLS}, cols = COLS;
    struct bw_slice s[2] = {BW_SLICE_INIT, BW_SLICE_INIT};
    s[0].name = "sharded";
    s[0].dtype = BW_F32;
    s[0].dims = 2;
    s[0].shape = shape;
    s[0].data = ret->sharded;
    s[1].name = "same";
    s[1].dtype = BW_F32;
    s[1].dims = 1;
    s[1].shape = &cols;
    s[1].data = ret->same;
    struct bwi_restore_call call = {.r = restore, .what = BWI_RESTORE_READ, .slices = s, .slice_count = 2};
    struct bwi_restore_call blob = {.r = restore,
                                    .what = BWI_RESTORE_BLOB,
                                    .name = "rng",
                                    .rank = 0,
                                    .buf = ret->blob,
                                    .buf_bytes = sizeof ret->blob};
    const int rc = read_part(c, r, &call, err);
    return rc < 0 ? rc : read_part(c, r, &blob, err);
}

/* Reads everything of a checkpoint through one slot, and compares it bit for bit with the state of `step`. 0, or the
 * error; other bits fail the case. */
static inline int read_state(struct cluster *c, unsigned slot, const struct bwi_restore_target *t, uint64_t step,
                             struct bw_error *err) {
    static struct state want, got;
    struct bwi_restore *restore;
    int rc = bwi_restore_new(&c->ranks[slot].ctx, t, &restore, err);
    if (rc < 0) return rc;
    rc = read_all(c, &c->ranks[slot], restore, &got, err);
    bwi_restore_free(restore);
    if (rc < 0) return rc;
    memset(want.blob, 0, sizeof want.blob);
    make_state(&want, step);
    assert_memory_equal(want.sharded, got.sharded, sizeof want.sharded);
    assert_memory_equal(want.same, got.same, sizeof want.same);
    assert_string_equal(want.blob, got.blob);
    return 0;
}

/* What one slot goes on from is the state of `step`. */
static inline void check_resumed(struct cluster *c, unsigned slot, uint64_t step) {
    const struct bwi_resume *m = &c->ranks[slot].session->resume;
    struct bw_error err = BW_ERROR_INIT;
    assert_true(m->from_checkpoint);
    assert_int_equal(m->id.step, step);
    struct bwi_restore_target t = {.id = m->id,
                                   .committed = m->committed,
                                   .manifest = m->manifest,
                                   .world = m->world,
                                   .groups = m->groups,
                                   .uuid = m->uuid,
                                   .wait_ns = 60 * BWI_NS_PER_S,
                                   .may_repair = true,
                                   .io_timeout_ns = 600 * BWI_NS_PER_S};
    assert_ok(read_state(c, slot, &t, step, &err), &err);
}

/* A launch whose only rank stops for a while when its save of step 10 is LOCAL, and the next one, in slot 4. */
static inline struct bwi_save *stop_at_local(struct cluster *c, uint64_t seed, const struct launch *next) {
    struct bwi_save *v;
    cluster_init(c, seed);
    open_all(c, 0, &(struct launch){.launch = "a", .world = 1});
    bwi_bucket_model(c->remote)->latency_ns = BWI_NS_PER_S;
    save_all(c, 0, 1, 10, &v);
    wait_level(c, v, BW_LOCAL);
    cluster_kill(c, 0);
    bwi_bucket_model(c->remote)->latency_ns = 0;
    open_all(c, 4, next);
    return v;
}

#endif
