/* SPDX-License-Identifier: Apache-2.0 */
/* A small world for the tests of packs and metadata: two tiers (in memory on virtual time, or directories with an
 * engine), an arena, a context; and states to save, with the bytes that are expected of them worked out in the plainest
 * way. */
#ifndef BW_TEST_TRANSFER_FIXTURE_H
#define BW_TEST_TRANSFER_FIXTURE_H

#include "base/vec.h"
#include "checkpoint/transfer.h"
#include "store/store_memory.h"
#include "test.h"
#include <breakwater/tensor.h>
#include <stdio.h>
#include <string.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

struct world {
    struct bwi_env_virtual env; /* memory stores */
    struct bwi_io *io;          /* directories */
    struct bwi_loop *loop;
    struct bwi_arena *arena;
    struct bwi_bucket *bucket[BWI_TIERS];
    const char *dir[BWI_TIERS];
    struct bwi_context ctx;
    struct bwi_progress progress;
    uint64_t rng; /* of the picker */
    uint64_t turns;
};

static const struct bwi_id ID = {7, 1, 0x1234abcd, 0};

static inline size_t world_pick(void *user, size_t n) {
    struct world *w = user;
    return (size_t)(test_random(&w->rng) % n);
}

static inline void world_context(struct world *w) {
    bwi_context_init(&w->ctx, w->loop);
    (void)snprintf(w->ctx.run, sizeof w->ctx.run, "run");
    w->ctx.arena = w->arena;
    w->ctx.writer = 0x0123456789abcdefu;
    w->ctx.progress = &w->progress;
}

/* seed 0: no latency, tasks in the order of their waking. Else latencies and the order of tasks follow from it. */
static inline void world_open(struct world *w, uint64_t seed, uint64_t arena_bytes) {
    struct bw_error err = BW_ERROR_INIT;
    memset(w, 0, sizeof *w);
    bwi_env_virtual_init(&w->env, seed);
    w->rng = seed;
    assert_ok(bwi_loop_open(&w->env.env, NULL, &w->loop, &err), &err);
    assert_ok(bwi_arena_open(arena_bytes, 0, &w->arena, &err), &err);
    world_context(w);
    for (int t = 0; t < BWI_TIERS; t++) {
        assert_ok(bwi_bucket_new(&w->env.env, &w->bucket[t]), NULL);
        assert_ok(bwi_store_memory_open(w->bucket[t], w->loop, t == 0 ? "near" : "far", &w->ctx.tier[t], &err), &err);
        if (seed == 0) continue;
        bwi_bucket_model(w->bucket[t])->latency_ns = 1000;
        bwi_bucket_model(w->bucket[t])->jitter_ns = 5000;
    }
    if (seed != 0) bwi_loop_set_picker(w->loop, world_pick, w);
}

static inline void world_open_dirs(struct world *w, struct bwi_os *os, uint64_t arena_bytes) {
    struct bw_error err = BW_ERROR_INIT;
    memset(w, 0, sizeof *w);
    const struct bwi_io_options io = {.os = os, .threads = 4, .backend = (enum bw_io_backend)test_io_backend()};
    assert_ok(bwi_io_open(&io, &w->io, &err), &err);
    assert_ok(bwi_loop_open(bwi_env_system(), w->io, &w->loop, &err), &err);
    assert_ok(bwi_arena_open(arena_bytes, 0, &w->arena, &err), &err);
    world_context(w);
    const struct bwi_store_options o = {.loop = w->loop, .create = true};
    for (int t = 0; t < BWI_TIERS; t++) {
        w->dir[t] = test_mkdir();
        assert_ok(bwi_store_open(w->dir[t], &o, &w->ctx.tier[t], &err), &err);
    }
}

/* Nothing that a task did is left behind: no buffer, no operation, no task. */
static inline void world_close(struct world *w) {
    assert_int_equal(bwi_arena_used(w->arena), 0);
    assert_int_equal(bwi_loop_tasks(w->loop), 0);
    for (int t = 0; t < BWI_TIERS; t++) {
        w->ctx.tier[t]->close(w->ctx.tier[t]);
        bwi_bucket_free(w->bucket[t]);
        test_rmdir(w->dir[t]);
    }
    bwi_arena_close(w->arena);
    bwi_loop_close(w->loop);
    bwi_io_close(w->io);
}

/* One turn; on virtual time a jump to the next event when there is nothing to do now. */
static inline void world_turn(struct world *w) {
    w->turns++;
    if (w->io != NULL) {
        (void)bwi_loop_turn(w->loop, bwi_loop_now_ns(w->loop) + 10 * BWI_NS_PER_S);
        return;
    }
    if (bwi_loop_turn(w->loop, 0)) return;
    const uint64_t next = bwi_loop_next_ns(w->loop);
    if (next == BWI_NEVER) fail_msg("%u tasks wait for nothing", bwi_loop_tasks(w->loop));
    w->env.now = next;
}

static inline void world_run(struct world *w) {
    while (bwi_loop_tasks(w->loop) > 0) world_turn(w);
}

/* ---- single store operations ---- */

struct single {
    struct bwi_task task;
    struct bwi_call call;
    struct bwi_store *store;
    bool sent;
};

static inline enum bwi_step single_step(struct bwi_task *t) {
    struct single *s = bwi_container_of(t, struct single, task);
    if (!s->sent) {
        s->sent = true;
        bwi_call_submit(&s->call, t, s->store);
    }
    return s->call.busy ? BWI_STEP_WAIT : BWI_STEP_END;
}

static inline void single_run(struct world *w, struct single *s, enum bwi_tier tier) {
    s->store = w->ctx.tier[tier];
    s->task.step = single_step;
    s->task.name = "single";
    bwi_task_start(w->loop, &s->task, NULL);
    world_run(w);
}

/* false: there is no such object. */
static inline bool world_get(struct world *w, enum bwi_tier tier, const char *key, struct bwi_buf *ret) {
    struct single s = {0};
    bwi_call_prepare(&s.call, BWI_STORE_GET, key);
    s.call.op.limit_bytes = SIZE_MAX;
    single_run(w, &s, tier);
    if (s.call.op.error.status == BW_E_NOTFOUND) return false;
    assert_ok(s.call.op.error.status, &s.call.op.error);
    *ret = s.call.op.body;
    return true;
}

/* Puts bytes over whatever there is. */
static inline void world_put(struct world *w, enum bwi_tier tier, const char *key, struct bwi_span data) {
    if (w->bucket[tier] != NULL) {
        assert_true(bwi_bucket_put(w->bucket[tier], key, data));
        return;
    }
    struct single s = {0};
    bwi_call_prepare(&s.call, BWI_STORE_REPLACE, key);
    s.call.op.data = data;
    single_run(w, &s, tier);
    assert_ok(s.call.op.error.status, &s.call.op.error);
}

/* Bytes that a bucket holds beside its objects: uploads that nobody has ended. */
static inline uint64_t world_upload_bytes(struct world *w, enum bwi_tier tier) {
    struct bwi_memory_model *m = bwi_bucket_model(w->bucket[tier]);
    const struct bwi_memory_model before = *m;
    const uint64_t much = UINT64_C(1) << 50;
    *m = (struct bwi_memory_model){.capacity_bytes = much};
    struct single s = {0};
    bwi_call_prepare(&s.call, BWI_STORE_SPACE, NULL);
    single_run(w, &s, tier);
    *m = before;
    uint64_t used = much - s.call.op.free_bytes;
    for (size_t i = 0; i < bwi_bucket_objects(w->bucket[tier]); i++) {
        struct bwi_span data = BWI_SPAN_NONE;
        assert_true(bwi_bucket_get(w->bucket[tier], bwi_bucket_key(w->bucket[tier], i), &data));
        used -= data.len;
    }
    return used;
}

/* ---- writes in flight to a tier ---- */

/* In front of a tier's store: how many writes of at least so many bytes were in flight at once. */
static struct crowd {
    struct bwi_store *store;
    void (*submit)(struct bwi_store *s, struct bwi_store_op *op);
    void (*done)(struct bwi_store_op *op);
    size_t least_bytes;
    unsigned now, most;
} crowd;

static inline void crowd_done(struct bwi_store_op *op) {
    crowd.now--;
    crowd.done(op);
}

static inline void crowd_submit(struct bwi_store *s, struct bwi_store_op *op) {
    if (op->verb == BWI_STORE_WRITE && op->bytes >= crowd.least_bytes) {
        crowd.done = op->done;
        op->done = crowd_done;
        crowd.now++;
        crowd.most = crowd.now > crowd.most ? crowd.now : crowd.most;
    }
    crowd.submit(s, op);
}

static inline void crowd_watch(struct bwi_store *s, size_t least_bytes) {
    crowd = (struct crowd){.store = s, .submit = s->submit, .least_bytes = least_bytes};
    s->submit = crowd_submit;
}

/* ---- states ---- */

#define STATE_TENSORS 96

/* What a rank holds: memory, its description, its plan, and a row-major image of each item. */
struct state {
    struct bwi_description d;
    struct bwi_plan plan;
    uint8_t *memory[STATE_TENSORS];
    uint8_t **image; /* per item of the layout, as it was when the plan was made */
    size_t memories;
    uint64_t rng;
};

static inline uint8_t *state_memory(struct state *s, uint64_t bytes) {
    uint8_t *p = bwi_malloc((size_t)bytes + 8);
    assert_non_null(p);
    for (uint64_t i = 0; i < bytes; i += 8) {
        const uint64_t v = test_random(&s->rng);
        memcpy(p + i, &v, 8);
    }
    assert_true(s->memories < STATE_TENSORS);
    s->memory[s->memories++] = p;
    return p;
}

static inline void state_tensor(struct state *s, const char *name, int dtype, const void *data, uint32_t dims,
                                const uint64_t *shape, const int64_t *stride) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_tensor t = BW_TENSOR_INIT;
    t.dtype = (uint32_t)dtype;
    t.name = name;
    t.data = data;
    t.dims = dims;
    t.shape = shape;
    t.stride_bytes = stride;
    assert_ok(bwi_description_tensor(&s->d, &t, &err), &err);
}

static inline void state_plain(struct state *s, const char *name, int dtype, uint64_t elements) {
    state_tensor(s, name, dtype, state_memory(s, elements * bw_dtype_bytes(dtype)), 1, &elements, NULL);
}

static inline void state_blob(struct state *s, const char *name, uint64_t bytes) {
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_description_blob(&s->d, name, state_memory(s, bytes), (size_t)bytes, &err), &err);
}

/* The image of a strided box, element by element. */
static inline uint8_t *image_of(const struct bwi_tensor_source *s) {
    const size_t elem = bw_dtype_bytes(s->dtype);
    uint8_t *image = bwi_malloc((size_t)s->bytes + 1);
    assert_non_null(image);
    uint64_t index[BWI_DIMS_MAX] = {0};
    for (uint64_t at = 0; at < s->bytes; at += elem) {
        const uint8_t *from = s->data;
        for (uint8_t d = 0; d < s->dims; d++) from += (int64_t)index[d] * s->stride[d];
        memcpy(image + at, from, elem);
        for (int d = (int)s->dims - 1; d >= 0 && ++index[d] == s->extent[d]; d--) index[d] = 0;
    }
    return image;
}

static inline void state_plan(struct state *s, uint32_t extent_bytes, uint64_t pack_bytes) {
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_description_own(&s->d, &err), &err);
    assert_ok(bwi_plan_make(&s->d, 0, extent_bytes, pack_bytes, &s->plan, &err), &err);
    s->image = bwi_calloc(s->plan.content.item_count + 1, sizeof *s->image);
    assert_non_null(s->image);
    for (uint32_t i = 0; i < s->plan.content.item_count; i++) {
        const struct bwi_item_source *item = &s->plan.items[i];
        s->image[i] = item->tensor != NULL ? image_of(item->tensor) : bwi_malloc((size_t)item->blob->bytes + 1);
        if (item->blob != NULL) memcpy(s->image[i], item->blob->data, (size_t)item->blob->bytes);
    }
}

/* A bit of everything: several dtypes, transposed, broadcast, reversed, tied, empty, scalar, large and small, blobs. */
static inline void state_mixed(struct state *s, uint64_t seed, uint32_t extent_bytes, uint64_t pack_bytes) {
    memset(s, 0, sizeof *s);
    s->rng = seed + 1;
    bwi_description_init(&s->d);
    state_plain(s, "weights", BW_F32, 20000);
    state_tensor(s, "weights, tied", BW_F32, s->d.tensors[0].data, 1, (uint64_t[]){20000}, NULL);
    state_tensor(s, "transposed", BW_BF16, state_memory(s, 2 * 100 * 70), 2, (uint64_t[]){70, 100},
                 (int64_t[]){2, 140});
    state_tensor(s, "broadcast", BW_F64, state_memory(s, 8 * 30), 2, (uint64_t[]){50, 30}, (int64_t[]){0, 8});
    state_tensor(s, "reversed", BW_U8, state_memory(s, 5000) + 4999, 1, (uint64_t[]){5000}, (int64_t[]){-1});
    state_plain(s, "scale/e8m0", BW_F8_E8M0, 4097);
    state_plain(s, "odd", BW_U8, 4095);
    state_tensor(s, "scalar", BW_F64, state_memory(s, 8), 0, NULL, NULL);
    state_tensor(s, "empty", BW_F32, NULL, 2, (uint64_t[]){0, 5}, NULL);
    state_plain(s, "bw:0", BW_I16, 33);
    state_blob(s, "rng", 2501);
    state_blob(s, "none", 0);
    state_plan(s, extent_bytes, pack_bytes);
}

/* n tensors that get a pack each. */
static inline void state_many(struct state *s, uint64_t n) {
    memset(s, 0, sizeof *s);
    bwi_description_init(&s->d);
    for (uint64_t i = 0; i < n; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%u", (unsigned)i);
        state_plain(s, name, BW_U8, 9000 + i);
    }
    state_plan(s, 16 * KIB, 16 * KIB);
    assert_int_equal(s->plan.pack_count, n);
}

static inline void state_free(struct state *s) {
    for (uint32_t i = 0; s->image != NULL && i < s->plan.content.item_count; i++) bwi_free(s->image[i]);
    bwi_free(s->image);
    bwi_plan_fini(&s->plan);
    bwi_description_fini(&s->d);
    for (size_t i = 0; i < s->memories; i++) bwi_free(s->memory[i]);
    memset(s, 0, sizeof *s);
}

static inline struct bwi_key state_key(const struct world *w, uint32_t group, size_t pack) {
    return bwi_key_pack(w->ctx.run, false, &ID, group, (uint32_t)pack, w->ctx.writer);
}

/* The k-th extent of an item lies where its place says, with the bytes of the image, and hashed right. */
static inline void check_extent(const struct state *s, uint32_t item, uint64_t k, const struct bwi_buf *packs) {
    const struct bwi_content *c = &s->plan.content;
    const struct bwi_place *p = &s->plan.places[c->first_extent[item] + k];
    const struct bwi_span want =
        bwi_span(s->image[item] + k * c->extent_bytes, (size_t)bwi_content_extent_bytes(c, item, k));
    assert_int_equal(p->stored_bytes, want.len);
    assert_true(p->offset + p->stored_bytes <= packs[p->pack].len);
    assert_memory_equal(packs[p->pack].ptr + p->offset, want.ptr, want.len);
    const struct bwi_xxh hash = bwi_xxh_of(want);
    assert_true(bwi_xxh_eq(&hash, &c->extents[c->first_extent[item] + k]));
    assert_true(bwi_xxh_eq(&hash, &p->stored));
}

/* All of a state lies in a tier, byte for byte, in packs with their whole header and size. `headers`: their hashes. */
static inline void state_check(struct world *w, const struct state *s, enum bwi_tier tier, uint32_t group,
                               const struct bwi_xxh *headers) {
    struct bwi_buf *packs = bwi_calloc(s->plan.pack_count + 1, sizeof *packs);
    assert_non_null(packs);
    for (size_t i = 0; i < s->plan.pack_count; i++) {
        const struct bwi_buf *header = &s->plan.packs[i].header;
        assert_true(world_get(w, tier, state_key(w, group, i).s, &packs[i]));
        assert_int_equal(packs[i].len, s->plan.packs[i].file_bytes);
        assert_memory_equal(packs[i].ptr, header->ptr, header->len);
        const struct bwi_xxh hash = bwi_xxh_of(bwi_buf_span(header));
        assert_true(bwi_xxh_eq(&hash, &headers[i]));
    }
    const struct bwi_content *c = &s->plan.content;
    for (uint32_t i = 0; i < c->item_count; i++) {
        for (uint64_t k = 0; k < c->first_extent[i + 1] - c->first_extent[i]; k++) check_extent(s, i, k, packs);
    }
    for (size_t i = 0; i < s->plan.pack_count; i++) bwi_buf_fini(&packs[i]);
    bwi_free(packs);
}

/* ---- writing ---- */

static inline void write_start(struct world *w, struct bwi_pack_write *pw, struct state *s, uint32_t group) {
    struct bw_error err = BW_ERROR_INIT;
    *pw = (struct bwi_pack_write){.ctx = &w->ctx, .tier = BWI_TIER_LOCAL, .plan = &s->plan, .id = ID, .group = group};
    assert_ok(bwi_pack_write_start(pw, NULL, &err), &err);
}

/* ---- placements ---- */

struct placed {
    struct bwi_placement p;
    struct bwi_key *keys;
};

/* The placement of a state that has been written: borrows its places. */
static inline void placed_make(struct placed *x, const struct world *w, const struct state *s, uint32_t group,
                               const struct bwi_xxh *headers) {
    const size_t n = s->plan.pack_count;
    x->keys = bwi_calloc(n + 1, sizeof *x->keys);
    x->p = (struct bwi_placement){.writer = w->ctx.writer,
                                  .pack_count = (uint32_t)n,
                                  .packs = bwi_calloc(n + 1, sizeof *x->p.packs),
                                  .extent_count = s->plan.content.extent_count,
                                  .places = s->plan.places};
    assert_non_null(x->keys);
    assert_non_null(x->p.packs);
    for (size_t i = 0; i < n; i++) {
        x->keys[i] = state_key(w, group, i);
        x->p.packs[i] = (struct bwi_pack_ref){bwi_span_str(x->keys[i].s), s->plan.packs[i].file_bytes,
                                              s->plan.packs[i].header.len, headers[i]};
    }
}

static inline void placed_free(struct placed *x) {
    bwi_free(x->keys);
    bwi_free(x->p.packs);
    memset(x, 0, sizeof *x);
}

#endif
