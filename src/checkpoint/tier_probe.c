/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/tier_probe.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "format/limits.h"
#include <string.h>

#define PIECE      ((size_t)BWI_EXTENT_BYTES)
#define PREFIX     "probe/"  /* goes in the end, with what a probe that died has left there */
#define KEY        "probe/x" /* of an object that never comes into being */
#define BESIDE     8u        /* writes of a pass above its depth: so many see the depth full */
#define SCOUTS     4u
#define BUSY       "it keeps this disk busy, as was measured"
#define FULL_LEAST (4 * BWI_TIER_PROBE_BYTES) /* free bytes; and a twentieth of the whole */

/* The first one looks whether the tier is fast at all. The others meet each depth twice, in mirrored order: what drifts
 * while they run falls on all of them. */
static const unsigned depths[BWI_TIER_PROBE_PASSES] = {SCOUTS, BWI_IO_DEPTH_USUAL, 8, 32, 32, 8, BWI_IO_DEPTH_USUAL};

enum probe_state {
    PROBE_ASK,
    PROBE_LOCKED, /* others of this node would measure each other */
    PROBE_SPACE,
    PROBE_BEGUN,
    PROBE_BUFFER,
    PROBE_FILLED,
    PROBE_RUN,
    PROBE_SETTLE, /* waits for the writes that are in flight */
    PROBE_ABORTED,
    PROBE_SWEPT,
    PROBE_UNLOCKED,
};

static enum bwi_step go(struct bwi_tier_probe *p, enum probe_state to) {
    p->state = (int)to;
    return BWI_STEP_AGAIN;
}

static struct bwi_store *store_of(const struct bwi_tier_probe *p) {
    return p->ctx->tier[p->tier];
}

static enum bwi_step send(struct bwi_tier_probe *p, struct bwi_call *c, enum probe_state then) {
    bwi_call_submit(c, &p->task, store_of(p));
    p->state = (int)then;
    return BWI_STEP_WAIT;
}

/* Nothing more is begun; what is held is given back. */
static enum bwi_step end(struct bwi_tier_probe *p, const char *why) {
    if (p->why[0] == '\0') bwi_format(p->why, sizeof p->why, "usual: %s", why);
    return go(p, PROBE_SETTLE);
}

static enum bwi_step fail(struct bwi_tier_probe *p, const struct bw_error *e) {
    (void)bwi_error_copy(&p->task.error, e);
    if (p->why[0] == '\0') bwi_format(p->why, sizeof p->why, "usual: not measured: %s", e->message);
    return go(p, PROBE_SETTLE);
}

/* ---- before the first byte ---- */

static enum bwi_step ask_lock(struct bwi_tier_probe *p) {
    bwi_call_prepare(&p->lock, BWI_STORE_LOCK, PREFIX);
    return send(p, &p->lock, PROBE_LOCKED);
}

/* From here on it ends with deleting what lies below the prefix: one that died may have left there more than is free.
 */
static enum bwi_step locked(struct bwi_tier_probe *p) {
    const struct bw_error *e = &p->lock.op.error;
    if (e->status == BW_E_BUSY) return end(p, "another rank of this node probes");
    if (e->status < 0) return fail(p, e);
    p->held = p->lock.op.lock;
    if (p->only_sweep) return end(p, "nothing was to be measured");
    bwi_call_prepare(&p->call, BWI_STORE_SPACE, NULL);
    return send(p, &p->call, PROBE_SPACE);
}

static enum bwi_step asked_space(struct bwi_tier_probe *p) {
    const struct bwi_store_op *op = &p->call.op;
    if (op->error.status < 0) return fail(p, &op->error);
    if (op->free_bytes < FULL_LEAST || op->free_bytes < op->total_bytes / 20)
        return end(p, "there is too little room to measure");
    bwi_call_prepare(&p->call, BWI_STORE_BEGIN, KEY);
    p->call.op.size_bytes = BWI_TIER_PROBE_BYTES;
    return send(p, &p->call, PROBE_BEGUN);
}

static void granted(struct bwi_arena_wait *w) {
    struct bwi_tier_probe *p = w->user;
    bwi_task_wake(&p->task);
}

static enum bwi_step begun(struct bwi_tier_probe *p) {
    p->upload = p->call.op.upload;
    if (p->call.op.error.status < 0) return fail(p, &p->call.op.error);
    p->buffer = (struct bwi_arena_wait){.bytes = PIECE, .granted = granted, .user = p};
    bwi_arena_acquire(p->ctx->arena, &p->buffer);
    return go(p, PROBE_BUFFER);
}

/* Bytes that no disk makes smaller. On a worker. */
static void fill(struct bwi_io_req *r) {
    struct bwi_tier_probe *p = r->user;
    uint64_t x = p->start_ns | 1;
    for (size_t at = 0; at < PIECE; at += sizeof x) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(p->buffer.ptr + at, &x, sizeof x);
    }
    r->result = 0;
}

static void filled(struct bwi_io_req *r) {
    struct bwi_tier_probe *p = r->user;
    p->task.pending--;
    bwi_task_wake(&p->task);
}

static enum bwi_step has_buffer(struct bwi_tier_probe *p) {
    if (p->buffer.ptr == NULL) return BWI_STEP_WAIT;
    p->fill = (struct bwi_io_req){.kind = BWI_IO_CALL, .call = fill, .done = filled, .user = p};
    p->state = PROBE_FILLED;
    p->start_ns = bwi_loop_now_ns(p->task.loop);
    p->task.pending++;
    bwi_loop_call(p->task.loop, &p->fill);
    return BWI_STEP_WAIT;
}

/* ---- passes ---- */

static unsigned writes_of(unsigned pass) {
    return pass == 0 ? SCOUTS : depths[pass] + BESIDE;
}

static uint64_t bytes_from(unsigned pass) {
    uint64_t bytes = 0;
    for (; pass < BWI_TIER_PROBE_PASSES; pass++) bytes += (uint64_t)writes_of(pass) * PIECE;
    return bytes;
}

static void begin_pass(struct bwi_tier_probe *p) {
    p->begun = p->ended = 0;
    p->pass_ns = bwi_loop_now_ns(p->task.loop);
}

static enum bwi_step measure(struct bwi_tier_probe *p) {
    p->start_ns = bwi_loop_now_ns(p->task.loop);
    begin_pass(p);
    return go(p, PROBE_RUN);
}

static bool begin_write(struct bwi_tier_probe *p) {
    if (p->begun == writes_of(p->pass) || p->begun - p->ended == depths[p->pass]) return false;
    struct bwi_call *c = p->writes;
    while (c->task != NULL) c++;
    p->begun++;
    bwi_call_prepare(c, BWI_STORE_WRITE, NULL);
    c->op.upload = p->upload;
    c->op.offset = p->bytes;
    c->op.buf = p->buffer.ptr;
    c->op.bytes = PIECE;
    p->bytes += PIECE;
    bwi_call_submit(c, &p->task, store_of(p));
    return true;
}

/* A call without a task is free. */
static void end_writes(struct bwi_tier_probe *p) {
    for (struct bwi_call *c = p->writes; c < p->writes + BWI_TIER_PROBE_DEPTH; c++) {
        if (c->task == NULL || c->busy) continue;
        const struct bwi_store_op *op = &c->op;
        if (op->error.status < 0) (void)fail(p, &op->error);
        if (op->error.status == 0 && op->direct_bytes < op->bytes) (void)end(p, "writes go through the page cache");
        c->task = NULL;
        p->ended++;
    }
}

static uint64_t rate_of(uint64_t bytes, uint64_t ns) {
    return (uint64_t)((double)bytes / (double)bwi_max_u64(ns, 1) * (double)BWI_NS_PER_S);
}

/* The slower of the two passes of a depth, and the faster one. */
static uint64_t worst_of(const struct bwi_tier_probe *p, unsigned pass) {
    return bwi_min_u64(p->rates[pass], p->rates[BWI_TIER_PROBE_PASSES - pass]);
}
static uint64_t best_of(const struct bwi_tier_probe *p, unsigned pass) {
    return bwi_max_u64(p->rates[pass], p->rates[BWI_TIER_PROBE_PASSES - pass]);
}

/* Clearly better: by more than 15 %, its worse time against the better one of the usual depth. Of several such ones the
 * smallest within a tenth of the best. */
static unsigned best_pass(const struct bwi_tier_probe *p) {
    const unsigned usual = 1, first = 2, last = BWI_TIER_PROBE_PASSES / 2;
    const uint64_t least = best_of(p, usual) * 115 / 100;
    uint64_t most = least;
    for (unsigned i = first; i <= last; i++) most = bwi_max_u64(most, worst_of(p, i));
    for (unsigned i = first; i <= last; i++)
        if (worst_of(p, i) > least && worst_of(p, i) >= most - most / 10) return i;
    return usual;
}

static enum bwi_step choose(struct bwi_tier_probe *p) {
    const unsigned pass = best_pass(p);
    p->depth = depths[pass];
    p->bytes_per_s = worst_of(p, pass);
    if (pass == 1) return end(p, "measured, and no other depth is clearly better");
    bwi_format(p->why, sizeof p->why, "measured: %u in flight move at least %llu MB/s, %u at most %llu", p->depth,
               (unsigned long long)(p->bytes_per_s / 1000000), BWI_IO_DEPTH_USUAL,
               (unsigned long long)(best_of(p, 1) / 1000000));
    return go(p, PROBE_SETTLE);
}

/* What is left is not begun where it would take too long: then the disk is so slow that the usual depth is enough. Of a
 * disk that answers late the few of the first pass get only their share: it may be faster by as much as there are
 * fewer. */
static enum bwi_step end_pass(struct bwi_tier_probe *p) {
    const uint64_t now = bwi_loop_now_ns(p->task.loop), spent = now - p->start_ns;
    const uint64_t rate = rate_of((uint64_t)writes_of(p->pass) * PIECE, now - p->pass_ns);
    p->rates[p->pass++] = rate;
    p->bytes_per_s = bwi_max_u64(p->bytes_per_s, rate);
    if (p->pass == BWI_TIER_PROBE_PASSES) return choose(p);
    const double at_best = (double)bwi_max_u64(rate, 1) * (p->pass == 1 ? BWI_IO_DEPTH_USUAL / SCOUTS : 1);
    const double needed = (double)bytes_from(p->pass) / at_best * (double)BWI_NS_PER_S;
    if ((double)spent + needed > (double)BWI_TIER_PROBE_TIME_NS) return end(p, BUSY);
    begin_pass(p);
    return BWI_STEP_AGAIN;
}

static enum bwi_step run(struct bwi_tier_probe *p) {
    end_writes(p);
    if (p->state != PROBE_RUN) return BWI_STEP_AGAIN;
    if (p->ended == writes_of(p->pass)) return end_pass(p);
    const uint64_t now = bwi_loop_now_ns(p->task.loop);
    if (now - p->start_ns > BWI_TIER_PROBE_TIME_NS) {
        p->bytes_per_s = bwi_max_u64(p->bytes_per_s, rate_of((uint64_t)p->ended * PIECE, now - p->pass_ns));
        return end(p, BUSY);
    }
    while (begin_write(p)) continue;
    return BWI_STEP_WAIT;
}

/* ---- after the last one ---- */

static enum bwi_step settle(struct bwi_tier_probe *p) {
    if (p->task.pending > 0) return BWI_STEP_WAIT;
    bwi_arena_cancel(p->ctx->arena, &p->buffer);
    if (p->buffer.ptr != NULL) bwi_arena_release(p->ctx->arena, p->buffer.ptr, p->buffer.bytes);
    p->buffer.ptr = NULL;
    if (p->upload == NULL) return go(p, PROBE_ABORTED);
    bwi_call_prepare(&p->call, BWI_STORE_ABORT, NULL);
    p->call.op.upload = p->upload;
    p->upload = NULL;
    return send(p, &p->call, PROBE_ABORTED);
}

static enum bwi_step aborted(struct bwi_tier_probe *p) {
    if (p->held == NULL) return go(p, PROBE_UNLOCKED);
    bwi_call_prepare(&p->call, BWI_STORE_DELETE_PREFIX, PREFIX);
    return send(p, &p->call, PROBE_SWEPT);
}

/* The lock's own file is gone as well: who waits for it finds out, and makes it anew. */
static enum bwi_step swept(struct bwi_tier_probe *p) {
    (void)bwi_error_copy(&p->task.error, &p->call.op.error);
    bwi_call_prepare(&p->lock, BWI_STORE_UNLOCK, PREFIX);
    p->lock.op.lock = p->held;
    p->held = NULL;
    return send(p, &p->lock, PROBE_UNLOCKED);
}

static enum bwi_step finish(struct bwi_tier_probe *p) {
    bwi_call_fini(&p->call);
    bwi_call_fini(&p->lock);
    return BWI_STEP_END;
}

/* What was begun has ended, and what it gave is held: only then is it known what there is to give back. */
static enum bwi_step cancel(struct bwi_tier_probe *p) {
    p->depth = BWI_IO_DEPTH_USUAL;
    if (p->state == PROBE_LOCKED) p->held = p->lock.op.lock;
    if (p->state == PROBE_BEGUN) p->upload = p->call.op.upload;
    p->why[0] = '\0';
    return end(p, "it was stopped, mostly by a save, before it was measured");
}

static enum bwi_step probe_step(struct bwi_task *t) {
    struct bwi_tier_probe *p = bwi_container_of(t, struct bwi_tier_probe, task);
    if (p->call.busy || p->lock.busy || (p->state == PROBE_FILLED && t->pending > 0)) return BWI_STEP_WAIT;
    if (t->cancel && p->state < PROBE_SETTLE) return cancel(p);
    switch ((enum probe_state)p->state) {
    case PROBE_ASK: return ask_lock(p);
    case PROBE_LOCKED: return locked(p);
    case PROBE_SPACE: return asked_space(p);
    case PROBE_BEGUN: return begun(p);
    case PROBE_BUFFER: return has_buffer(p);
    case PROBE_FILLED: return measure(p);
    case PROBE_RUN: return run(p);
    case PROBE_SETTLE: return settle(p);
    case PROBE_ABORTED: return aborted(p);
    case PROBE_SWEPT: return swept(p);
    case PROBE_UNLOCKED: break;
    }
    return finish(p);
}

bool bwi_tier_probe_may(const struct bwi_store *s) {
    return s != NULL && s->caps.node_local && s->caps.past_cache;
}

void bwi_tier_probe_start(struct bwi_tier_probe *p, struct bwi_loop *loop, struct bwi_task *parent) {
    p->depth = BWI_IO_DEPTH_USUAL;
    p->task.step = probe_step;
    p->task.name = "tier probe";
    bwi_task_start(loop, &p->task, parent);
}
