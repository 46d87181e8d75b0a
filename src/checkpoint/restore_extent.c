/* SPDX-License-Identifier: Apache-2.0 */
/* One extent: a buffer, the stored bytes from the nearest tier, their check on a worker, and the copy to all places
 * that want something of it. Where a tier does not serve, the buffer is given back and the next tier is asked, which
 * has a placement of its own. */
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/restore_private.h"
#include "format/shape.h"
#include <inttypes.h>

static const struct bwi_restore_pair *first_pair(const struct bwi_restore_job *j) {
    return &j->batch->pairs[j->first];
}

void bwi_restore_job_begin(struct bwi_restore_job *j, struct bwi_restore_batch *b) {
    struct bwi_restore_call *c = j->c;
    const size_t first = b->at;
    while (b->at < b->count && b->pairs[b->at].extent == b->pairs[first].extent) b->at++;
    *j = (struct bwi_restore_job){
        .c = c, .state = BWI_JOB_META, .batch = b, .first = first, .count = b->at - first, .tier = BWI_TIER_LOCAL};
    b->jobs++;
}

static void give_back(struct bwi_restore_job *j) {
    struct bwi_arena *a = j->c->r->ctx->arena;
    bwi_arena_cancel(a, &j->buffer);
    bwi_arena_release(a, j->buffer.ptr, j->buffer.bytes);
    j->buffer = (struct bwi_arena_wait){0};
    bwi_restore_open_leave(j->open);
    j->open = NULL;
}

void bwi_restore_job_drop(struct bwi_restore_job *j) {
    give_back(j);
    bwi_call_fini(&j->call);
    j->batch->jobs--;
    if (j->batch != j->c->w->batch && j->batch->jobs == 0) bwi_restore_batch_free(j->batch);
    j->batch = NULL;
    j->state = BWI_JOB_FREE;
}

/* ---- failures ---- */

/* What is read, for messages: the first of those who want it. */
static void whose(const struct bwi_restore_job *j, char *buf, size_t buf_bytes) {
    const struct bwi_restore_work *w = j->c->w;
    const struct bwi_restore_want *x = &w->wants[w->hits[first_pair(j)->hit].want];
    (void)bwi_format(buf, buf_bytes, "%s %s", x->blob ? "blob" : "tensor",
                     bwi_shape_name_text(bwi_span_str(x->name)).s);
}

/* This tier does not serve; the next one is asked. */
static void tier_failed(struct bwi_restore_job *j, const struct bw_error *cause) {
    char what[128];
    struct bw_error *e = &j->error[j->tier];
    whose(j, what, sizeof what);
    *e = *cause;
    if (j->tier == BWI_TIER_LOCAL && bwi_is_damage(e->status)) {
        bwi_restore_fix_add(j->c, j->batch->group->group, &j->pack);
    }
    if (e->status == BW_E_NOTFOUND) e->status = BW_E_CORRUPT;
    (void)bwi_error_wrap(
        e, "checkpoint %s: %s: group %" PRIu32 ": %s tier: pack \"%s\", %" PRIu64 " bytes at offset %" PRIu64,
        j->c->r->id_text, what, j->batch->group->group, bwi_tier_name(j->tier), j->pack.s,
        j->extent.place->stored_bytes, j->extent.place->offset);
    give_back(j);
    j->tier++;
    j->state = BWI_JOB_META;
}

/* No tier is left. Damage everywhere is a loss; whatever may pass is told instead. */
static void extent_lost(struct bwi_restore_job *j) {
    struct bwi_restore_call *c = j->c;
    const struct bwi_restore_group *g = j->batch->group;
    const struct bw_error *damage = NULL;
    for (int t = 0; t < BWI_TIERS; t++) {
        const bool tried = j->error[t].status != 0;
        const struct bw_error *e = tried ? &j->error[t] : &g->tier[t].error;
        if (!bwi_is_damage(e->status)) {
            struct bw_error told = *e;
            if (!tried) (void)bwi_error_wrap(&told, "checkpoint %s: group %" PRIu32, c->r->id_text, g->group);
            bwi_restore_fail(c, &told);
            return;
        }
        if (tried || damage == NULL) damage = e;
    }
    bwi_restore_lost(c, g->group, damage);
}

/* ---- before the read ---- */

static void granted(struct bwi_arena_wait *w) {
    struct bwi_restore_job *j = w->user;
    bwi_task_wake(&j->c->task);
}

static bool set_place(struct bwi_restore_job *j) {
    const struct bwi_group_meta *m = &j->batch->group->tier[j->tier].meta;
    const struct bwi_restore_pair *p = first_pair(j);
    j->extent = bwi_extent_of(&m->content, &m->placement, p->item, p->extent);
    j->pack = bwi_pack_key_of(&m->placement, j->extent.place->pack);
    const size_t need = bwi_extent_buffer_bytes(&j->extent);
    const uint64_t budget = bwi_arena_budget(j->c->r->ctx->arena);
    if (need <= budget) return true;
    struct bw_error e = BW_ERROR_INIT;
    (void)bwi_error_set(&e, BW_E_LIMIT, "memory budget of %" PRIu64 " bytes: an extent of pack \"%s\" needs %zu",
                        budget, j->pack.s, need);
    bwi_restore_fail(j->c, &e);
    return false;
}

static bool job_meta(struct bwi_restore_job *j) {
    const enum bwi_ready ready = bwi_restore_group_find(j->c, j->batch->group, j->tier, &j->tier);
    if (ready == BWI_WAIT) return false;
    if (ready == BWI_NOWHERE) {
        extent_lost(j);
        return false;
    }
    if (!set_place(j)) return false;
    j->state = BWI_JOB_BUFFER;
    j->buffer = (struct bwi_arena_wait){.bytes = bwi_extent_buffer_bytes(&j->extent), .granted = granted, .user = j};
    bwi_arena_acquire(j->c->r->ctx->arena, &j->buffer);
    return true;
}

static bool job_buffer(struct bwi_restore_job *j) {
    struct bwi_restore_call *c = j->c;
    if (j->buffer.ptr == NULL) return false;
    j->open = bwi_restore_open_take(c, j->batch->group->group, j->tier, j->extent.place->pack);
    bwi_call_prepare(&j->call, BWI_STORE_READ, j->pack.s);
    j->call.op.offset = j->extent.place->offset;
    j->call.op.buf = j->buffer.ptr;
    j->call.op.bytes = (size_t)j->extent.place->stored_bytes;
    j->call.op.handle = j->open == NULL ? NULL : &j->open->handle;
    bwi_call_submit(&j->call, &c->task, c->r->ctx->tier[j->tier]);
    j->state = BWI_JOB_READ;
    return true;
}

/* ---- the check, on a worker ---- */

static void check_and_copy(struct bwi_restore_job *j) {
    const struct bwi_restore_work *w = j->c->w;
    const uint8_t *raw = NULL;
    j->verdict = bwi_extent_check(&j->extent, j->buffer.ptr, &raw, j->why);
    if (j->verdict != 0) return;
    for (size_t i = j->first; i < j->first + j->count; i++) {
        struct bwi_restore_pair *p = &j->batch->pairs[i];
        const struct bwi_restore_hit *h = &w->hits[p->hit];
        const struct bwi_restore_want *x = &w->wants[h->want];
        p->copied = bwi_intersect_copy(h->box_offset, h->box_extent, raw, p->item_offset, j->extent.raw_bytes,
                                       x->offset, &x->to);
    }
}

static void check_call(struct bwi_io_req *r) {
    check_and_copy(r->user);
    r->result = 0;
}

static void check_done(struct bwi_io_req *r) {
    struct bwi_restore_job *j = r->user;
    j->working = false;
    j->c->task.pending--;
    bwi_task_wake(&j->c->task);
}

static void begin_check(struct bwi_restore_job *j) {
    struct bwi_io *io = bwi_loop_io(j->c->task.loop);
    j->state = BWI_JOB_CHECK;
    if (io == NULL) {
        check_and_copy(j);
        return;
    }
    j->working = true;
    j->c->task.pending++;
    j->req = (struct bwi_io_req){.kind = BWI_IO_CALL, .call = check_call, .done = check_done, .user = j};
    bwi_io_submit(io, &j->req);
}

static bool job_read(struct bwi_restore_job *j) {
    struct bw_restore_stats *s = &j->c->r->stats;
    if (j->call.busy) return false;
    j->c->w->progress++;
    if (j->call.op.error.status != 0) {
        const struct bw_error cause = j->call.op.error;
        tier_failed(j, &cause);
        return true;
    }
    *(j->tier == BWI_TIER_LOCAL ? &s->local_bytes : &s->remote_bytes) += j->extent.place->stored_bytes;
    begin_check(j);
    return true;
}

/* ---- after the check ---- */

static void served(struct bwi_restore_job *j) {
    struct bwi_restore_work *w = j->c->w;
    struct bw_restore_stats *s = &j->c->r->stats;
    for (size_t i = j->first; i < j->first + j->count; i++) {
        const struct bwi_restore_pair *p = &j->batch->pairs[i];
        w->wants[w->hits[p->hit].want].got += p->copied;
    }
    s->verified_bytes += j->extent.raw_bytes;
    bwi_progress_add(j->c->r->ctx, j->extent.raw_bytes);
    w->progress++;
    if (j->tier == BWI_TIER_REMOTE && bwi_is_damage(j->error[BWI_TIER_LOCAL].status)) s->damaged_extents++;
}

static bool job_check(struct bwi_restore_job *j) {
    if (j->working) return false;
    if (j->verdict != 0) {
        struct bw_error e = BW_ERROR_INIT;
        (void)bwi_error_set(&e, j->verdict, "%s", j->why);
        tier_failed(j, &e);
        return true;
    }
    served(j);
    bwi_restore_job_drop(j);
    return true;
}

bool bwi_restore_job_step(struct bwi_restore_job *j) {
    switch (j->state) {
    case BWI_JOB_FREE: break;
    case BWI_JOB_META: return job_meta(j);
    case BWI_JOB_BUFFER: return job_buffer(j);
    case BWI_JOB_READ: return job_read(j);
    case BWI_JOB_CHECK: return job_check(j);
    }
    return false;
}
