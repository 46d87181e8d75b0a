/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a checkpoint: the object, and the machine of one call. A call goes through its stages one after the
 * other; whatever fails, it first lets all that is in flight come to its end, then looks at what the failure
 * means, and ends. */
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/restore_private.h"
#include <assert.h>
#include <inttypes.h>

enum call_state {
    CALL_MANIFEST, /* manifest and head of the index */
    CALL_NEED,     /* which blocks of the index */
    CALL_BLOCKS,
    CALL_WORK,   /* what the call is for */
    CALL_SETTLE, /* waits for what is in flight */
    CALL_CLOSE,  /* gives buffers and open packs back */
    CALL_GONE,   /* something is damaged or missing: was the checkpoint swept away? */
    CALL_MARK,   /* damaged/<group>, or failed/<group> */
    CALL_MARKED,
    CALL_REPAIR,
    CALL_END,
};

/* ---- the object ---- */

int bwi_restore_new(struct bwi_context *ctx, const struct bwi_restore_target *t, struct bwi_restore **ret,
                    struct bw_error *err) {
    if (!t->committed && (t->groups == 0 || t->groups > BWI_GROUPS_MAX)) {
        return bwi_error_set(err, BW_E_INVALID, "restore: %" PRIu32 " groups, expected 1 to %u", t->groups,
                             BWI_GROUPS_MAX);
    }
    struct bwi_restore *r = bwi_calloc(1, sizeof *r);
    if (r == NULL) return bwi_error_nomem(err, sizeof *r, "restore");
    r->ctx = ctx;
    r->target = *t;
    bwi_id_text(&t->id, r->id_text);
    *ret = r;
    return 0;
}

static void blocks_free(struct bwi_restore *r) {
    for (uint32_t i = 0; r->blocks != NULL && i < r->head.block_count; i++) {
        struct bwi_restore_block *b = &r->blocks[i];
        bwi_index_block_fini(&b->block);
        bwi_buf_fini(&b->bytes);
        bwi_free(b->text);
        bwi_free(b->names);
    }
    bwi_free(r->blocks);
}

void bwi_restore_free(struct bwi_restore *r) {
    if (r == NULL) return;
    assert(r->running == NULL);
    bwi_restore_groups_free(r);
    bwi_restore_blobs_free(r);
    blocks_free(r);
    bwi_index_head_fini(&r->head);
    bwi_buf_fini(&r->index);
    bwi_buf_fini(&r->made);
    bwi_manifest_fini(&r->manifest);
    bwi_free(r->summaries);
    bwi_free(r);
}

const struct bw_restore_stats *bwi_restore_get_stats(const struct bwi_restore *r) {
    return &r->stats;
}

const struct bwi_manifest *bwi_restore_manifest(const struct bwi_restore *r) {
    return r->manifest_set && r->target.committed ? &r->manifest : NULL;
}

/* ---- failures ---- */

void bwi_restore_fail(struct bwi_restore_call *c, const struct bw_error *e) {
    (void)bwi_error_copy(&c->w->error, e);
}

void bwi_restore_nomem(struct bwi_restore_call *c, size_t bytes, const char *what) {
    (void)bwi_error_nomem(&c->w->error, bytes, what);
}

void bwi_restore_lost(struct bwi_restore_call *c, uint32_t group, const struct bw_error *e) {
    struct bwi_restore_work *w = c->w;
    if (w->error.status != 0) return;
    w->lost_set = true;
    w->lost_group = group;
    bwi_restore_fail(c, e);
}

/* ---- time ---- */

/* Bytes and objects of all that runs: as long as it changes, the call gets on. */
static uint64_t progress_of(const struct bwi_restore_call *c) {
    return c->w->progress + bwi_restore_groups_progress(c->r);
}

static void watch(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    const uint64_t limit = c->r->target.io_timeout_ns;
    const uint64_t now = bwi_loop_now_ns(c->task.loop);
    const uint64_t progress = progress_of(c);
    if (progress != w->seen_progress) {
        w->seen_progress = progress;
        w->seen_ns = now;
    }
    if (c->task.cancel) {
        (void)bwi_error_set(&w->error, BW_E_CANCELLED, "checkpoint %s: cancelled", c->r->id_text);
    } else if (limit > 0 && now - w->seen_ns >= limit) {
        (void)bwi_error_set(&w->error, BW_E_TIMEOUT, "checkpoint %s: no progress for %" PRIu64 " ms", c->r->id_text,
                            limit / BWI_NS_PER_MS);
    }
    if (w->error.status != 0 && c->state < (int)CALL_SETTLE) c->state = (int)CALL_SETTLE;
}

static void set_timer(struct bwi_restore_call *c) {
    const struct bwi_restore_work *w = c->w;
    const uint64_t limit = c->r->target.io_timeout_ns;
    uint64_t at = w->retry_ns;
    const uint64_t stuck = w->seen_ns > BWI_NEVER - limit ? BWI_NEVER : w->seen_ns + limit;
    if (c->state < (int)CALL_SETTLE && limit > 0 && stuck < at) at = stuck;
    bwi_task_wake_at(&c->task, at);
}

/* ---- stages ---- */

static enum bwi_step go(struct bwi_restore_call *c, enum call_state to) {
    c->state = (int)to;
    c->w->sub = 0;
    c->w->retry_ns = BWI_NEVER;
    return BWI_STEP_AGAIN;
}

/* Of a stage that may fail: then it is over, whatever it says. */
static enum bwi_step after(struct bwi_restore_call *c, enum bwi_ready ready, enum call_state next) {
    if (c->w->error.status != 0) return go(c, CALL_SETTLE);
    return ready == BWI_READY ? go(c, next) : BWI_STEP_WAIT;
}

/* A block may be needed twice: the second time it is loaded already. */
static void need_name(struct bwi_restore_call *c, const char *name) {
    struct bwi_restore_work *w = c->w;
    uint32_t block;
    if (bwi_index_head_find(&c->r->head, bwi_span_str(name), &block)) w->need[w->need_count++] = block;
}

static size_t need_most(const struct bwi_restore_call *c) {
    switch (c->what) {
    case BWI_RESTORE_TENSOR: return 1;
    case BWI_RESTORE_ALL_TENSORS: return c->r->head.block_count;
    case BWI_RESTORE_READ: return c->slice_count;
    case BWI_RESTORE_MANIFEST:
    case BWI_RESTORE_BLOBS:
    case BWI_RESTORE_RANK:
    case BWI_RESTORE_BLOB: break;
    }
    return 0;
}

static int find_needed(struct bwi_restore_call *c, struct bw_error *err) {
    struct bwi_restore_work *w = c->w;
    const size_t most = need_most(c);
    if (c->what == BWI_RESTORE_READ) {
        const int rc = bwi_restore_slices_shape(c->slices, c->slice_count, err);
        if (rc < 0) return rc;
    }
    if (most == 0) return 0;
    if (c->what == BWI_RESTORE_TENSOR && c->name == NULL) {
        return bwi_error_set(err, BW_E_INVALID, "tensor: name is NULL");
    }
    w->need = bwi_calloc(most, sizeof *w->need);
    if (w->need == NULL) return bwi_error_nomem(err, most * sizeof *w->need, "blocks of the index");
    if (c->what == BWI_RESTORE_TENSOR) need_name(c, c->name);
    for (size_t i = 0; c->what == BWI_RESTORE_READ && i < most; i++) need_name(c, c->slices[i].name);
    for (size_t i = 0; c->what == BWI_RESTORE_ALL_TENSORS && i < most; i++) w->need[w->need_count++] = (uint32_t)i;
    return 0;
}

static enum bwi_step call_need(struct bwi_restore_call *c) {
    struct bw_error e = BW_ERROR_INIT;
    if (find_needed(c, &e) < 0) bwi_restore_fail(c, &e);
    return after(c, BWI_READY, CALL_BLOCKS);
}

static enum bwi_ready work(struct bwi_restore_call *c) {
    switch (c->what) {
    case BWI_RESTORE_MANIFEST:
    case BWI_RESTORE_TENSOR:
    case BWI_RESTORE_ALL_TENSORS: break;
    case BWI_RESTORE_BLOBS: return bwi_restore_blobs_step(c);
    case BWI_RESTORE_RANK: return bwi_restore_rank_step(c);
    case BWI_RESTORE_READ: return bwi_restore_extents_step(c);
    case BWI_RESTORE_BLOB: return bwi_restore_blob_step(c);
    }
    return BWI_READY;
}

/* ---- the end ---- */

static bool drop_jobs(struct bwi_restore_call *c) {
    bool idle = true;
    for (size_t i = 0; i < BWI_RESTORE_JOBS; i++) {
        struct bwi_restore_job *j = &c->w->jobs[i];
        if (j->state == BWI_JOB_FREE) continue;
        if (j->call.busy || j->working) {
            idle = false;
        } else {
            bwi_restore_job_drop(j);
        }
    }
    return idle;
}

static enum bwi_step call_settle(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    const bool jobs = drop_jobs(c);
    const bool groups = bwi_restore_groups_settle(c);
    if (!jobs || !groups || c->task.pending > 0) return BWI_STEP_WAIT;
    if (c->what == BWI_RESTORE_READ) c->r->stats.read_ns += bwi_loop_now_ns(c->task.loop) - w->begin_ns;
    for (size_t i = 0; i < BWI_RESTORE_WINDOW; i++) {
        if (w->walk[i] != NULL) bwi_restore_group_unpin(w->walk[i]);
        w->walk[i] = NULL;
    }
    bwi_restore_open_release(c);
    if (w->index_handle != NULL) {
        const struct bwi_key key = bwi_key_index(c->r->ctx->run, &c->r->target.id, &c->r->manifest.index.root);
        bwi_call_prepare(&w->call, BWI_STORE_RELEASE, key.s);
        w->call.op.handle = &w->index_handle;
        bwi_call_submit(&w->call, &c->task, c->r->ctx->tier[BWI_TIER_REMOTE]);
    }
    return go(c, CALL_CLOSE);
}

static enum bwi_step call_close(struct bwi_restore_call *c) {
    const struct bwi_restore_work *w = c->w;
    if (c->task.pending > 0) return BWI_STEP_WAIT;
    if (w->error.status == 0) return go(c, w->fix_count > 0 ? CALL_REPAIR : CALL_END);
    if (w->unfit) return go(c, CALL_MARK);
    return go(c, w->missing || w->lost_set ? CALL_GONE : CALL_END);
}

static enum bwi_step call_gone(struct bwi_restore_call *c) {
    if (bwi_restore_gone_step(c) != BWI_READY) return BWI_STEP_WAIT;
    return go(c, c->w->lost_set ? CALL_MARK : CALL_END);
}

/* What does not fit together failed as a whole. Said at once: a trainer that dies of it says nothing more, and the next
 * launch would go on from there again. */
static enum bwi_step call_mark(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    if (!c->r->target.may_repair) return go(c, CALL_END);
    w->mark = (struct bwi_mark_put){.ctx = c->r->ctx,
                                    .id = c->r->target.id,
                                    .group = w->unfit ? 0 : w->lost_group,
                                    .damaged = !w->unfit,
                                    .status = w->error.status};
    (void)bwi_format(w->mark.reason, sizeof w->mark.reason, "%s", w->error.message);
    bwi_mark_put_start(&w->mark, c->task.loop, &c->task);
    return go(c, CALL_MARKED);
}

/* The error of the call is the damage, whether it could be written down or not. */
static enum bwi_step call_marked(struct bwi_restore_call *c) {
    return c->w->mark.task.running ? BWI_STEP_WAIT : go(c, CALL_END);
}

static enum bwi_step call_repair(struct bwi_restore_call *c) {
    return bwi_restore_repair_step(c) == BWI_READY ? go(c, CALL_END) : BWI_STEP_WAIT;
}

static void work_free(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    bwi_restore_gather_free(c);
    bwi_restore_gone_free(c);
    bwi_restore_repair_free(c);
    bwi_restore_batch_free(w->batch);
    for (size_t i = 0; i < BWI_RESTORE_WINDOW; i++) bwi_call_fini(&w->fetch[i].call);
    for (size_t i = 0; i < BWI_RESTORE_JOBS; i++) bwi_call_fini(&w->jobs[i].call);
    for (size_t i = 0; i < BWI_RESTORE_OPEN; i++) bwi_call_fini(&w->open[i].release);
    bwi_call_fini(&w->call);
    bwi_free(w->need);
    bwi_free(w->wants);
    bwi_free(w->hits);
    bwi_free(w);
    c->w = NULL;
}

static enum bwi_step call_end(struct bwi_restore_call *c) {
    if (c->w != NULL) {
        bwi_error_stage(&c->w->error, BW_STAGE_RESTORE);
        (void)bwi_error_copy(&c->task.error, &c->w->error);
        work_free(c);
    }
    c->r->running = NULL;
    return BWI_STEP_END;
}

/* ---- the task ---- */

static enum bwi_step call_stage(struct bwi_restore_call *c) {
    switch ((enum call_state)c->state) {
    case CALL_MANIFEST: return after(c, bwi_restore_manifest_step(c), CALL_NEED);
    case CALL_NEED: return call_need(c);
    case CALL_BLOCKS: return after(c, bwi_restore_blocks_step(c), CALL_WORK);
    case CALL_WORK: return after(c, work(c), CALL_SETTLE);
    case CALL_SETTLE: return call_settle(c);
    case CALL_CLOSE: return call_close(c);
    case CALL_GONE: return call_gone(c);
    case CALL_MARK: return call_mark(c);
    case CALL_MARKED: return call_marked(c);
    case CALL_REPAIR: return call_repair(c);
    case CALL_END: break;
    }
    return call_end(c);
}

static enum bwi_step call_step(struct bwi_task *t) {
    struct bwi_restore_call *c = bwi_container_of(t, struct bwi_restore_call, task);
    if (c->w == NULL) return call_end(c);
    if (c->state < (int)CALL_SETTLE) watch(c);
    const enum bwi_step step = call_stage(c);
    if (step == BWI_STEP_WAIT) set_timer(c);
    return step;
}

void bwi_restore_call_start(struct bwi_restore_call *c, struct bwi_loop *loop, struct bwi_task *parent) {
    assert(c->r->running == NULL);
    c->task.step = call_step;
    c->task.name = "restore";
    c->state = (int)CALL_MANIFEST;
    c->got_bytes = 0;
    c->r->running = c;
    bwi_task_start(loop, &c->task, parent);
    c->w = bwi_calloc(1, sizeof *c->w);
    if (c->w == NULL) {
        (void)bwi_error_nomem(&c->task.error, sizeof *c->w, "restore");
        return;
    }
    c->w->begin_ns = c->w->seen_ns = bwi_loop_now_ns(loop);
    c->w->retry_ns = BWI_NEVER;
    for (size_t i = 0; i < BWI_RESTORE_JOBS; i++) c->w->jobs[i].c = c;
    bwi_restore_groups_renew(c->r);
}
