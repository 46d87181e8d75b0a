/* SPDX-License-Identifier: Apache-2.0 */
/* What is read at once, from the nearest tier: one extent, or several small ones side by side. If all of an extent
 * belongs in a row to one place it is read straight to there, when the store can do that; else into a buffer. Where a
 * tier does not serve, the buffer is given back and the next tier is asked, which has a placement of its own. */
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/restore_private.h"
#include "format/shape.h"
#include <inttypes.h>

static const struct bwi_restore_pair *first_pair(const struct bwi_restore_job *j) {
    return &j->batch->pairs[j->first];
}

#define RUN_BYTES (UINT64_C(4) << 20)
#define AIM_BYTES ((size_t)16 << 10) /* of an extent: to copy a smaller one costs less than a call of its own */
#define RUN_GAP   BWI_PACK_ALIGN     /* the pad between two items of a pack */

/* As many as are read at once fit into the budget. */
static uint64_t run_bytes(const struct bwi_restore_call *c) {
    return bwi_min_u64(RUN_BYTES, bwi_arena_budget(c->r->ctx->arena) / BWI_RESTORE_JOBS);
}

static uint64_t end_of(const struct bwi_place *p) {
    return p->offset + p->stored_bytes;
}

/* Whether `next`, which begins no earlier than the last one of a run, may be read with it. */
static bool joins(const struct bwi_place *first, uint64_t run_end, const struct bwi_place *next, uint64_t most) {
    if (next->pack != first->pack || first->codec != BWI_CODEC_RAW || next->codec != BWI_CODEC_RAW) return false;
    if (first->stored_bytes >= BWI_PACK_BIG_BYTES || next->stored_bytes >= BWI_PACK_BIG_BYTES) return false;
    if (next->offset < first->offset || end_of(next) - first->offset > most) return false;
    return next->offset <= run_end || next->offset - run_end <= RUN_GAP;
}

/* The first pair from `first` on, up to `end`, that is not read together with it. most: bytes of a run; 0: one extent
 * alone. */
static size_t run_from(const struct bwi_restore_batch *b, const struct bwi_placement *p, size_t first, size_t end,
                       uint64_t most) {
    const struct bwi_place *start = &p->places[b->pairs[first].extent];
    uint64_t run_end = end_of(start);
    size_t i = first + 1;
    for (; i < end; i++) {
        const struct bwi_place *next = &p->places[b->pairs[i].extent];
        if (b->pairs[i].extent == b->pairs[first].extent) continue;
        if (!joins(start, run_end, next, most)) break;
        run_end = bwi_max_u64(run_end, end_of(next));
    }
    return i;
}

void bwi_restore_job_begin(struct bwi_restore_job *j, struct bwi_restore_batch *b) {
    struct bwi_restore_call *c = j->c;
    const size_t first = b->at;
    b->at = run_from(b, &b->group->tier[b->tier].meta.placement, first, b->count, run_bytes(c));
    *j = (struct bwi_restore_job){
        .c = c, .state = BWI_JOB_META, .batch = b, .first = first, .end = b->at, .tier = BWI_TIER_LOCAL};
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

/* With the pairs from `first` on, from the nearest tier. */
static void start_over(struct bwi_restore_job *j, size_t first) {
    give_back(j);
    j->first = first;
    j->tier = BWI_TIER_LOCAL;
    for (int t = 0; t < BWI_TIERS; t++) j->error[t] = (struct bw_error)BW_ERROR_INIT;
    j->state = BWI_JOB_META;
}

/* This tier does not serve; the next one is asked. In a run that is damaged each extent is looked at by itself. */
static void tier_failed(struct bwi_restore_job *j, const struct bw_error *cause) {
    if (j->several && bwi_is_damage(cause->status)) {
        j->alone = true;
        start_over(j, j->first);
        return;
    }
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

static uint64_t end_of_all(const struct bwi_restore_job *j, const struct bwi_placement *p) {
    uint64_t end = 0;
    for (size_t i = j->first; i < j->first + j->count; i++)
        end = bwi_max_u64(end, end_of(&p->places[j->batch->pairs[i].extent]));
    return end;
}

/* Whole blocks, so that they can come past the page cache. */
static uint64_t block_of(const struct bwi_restore_job *j) {
    return j->extent.place->offset - j->extent.place->offset % BWI_PACK_ALIGN;
}

static size_t stored_room(const struct bwi_restore_job *j) {
    return (size_t)bwi_round_up(j->to - block_of(j), BWI_PACK_ALIGN);
}

static size_t buffer_bytes(const struct bwi_restore_job *j) {
    const bool packed = j->extent.place->codec != BWI_CODEC_RAW;
    return stored_room(j) + (packed ? (size_t)bwi_round_up(j->extent.raw_bytes, BWI_PACK_ALIGN) : 0);
}

static bool set_place(struct bwi_restore_job *j) {
    const struct bwi_placement *p = &j->batch->group->tier[j->tier].meta.placement;
    j->count = run_from(j->batch, p, j->first, j->end, j->alone ? 0 : run_bytes(j->c)) - j->first;
    j->several = run_from(j->batch, p, j->first, j->end, 0) - j->first < j->count;
    j->extent = bwi_restore_extent_at(j, j->first);
    j->pack = bwi_pack_key_of(p, j->extent.place->pack);
    j->to = end_of_all(j, p);
    j->straight = j->several ? NULL : bwi_restore_row(j, j->first, &j->extent);
    j->uncached = false;
    const size_t need = buffer_bytes(j);
    const uint64_t budget = bwi_arena_budget(j->c->r->ctx->arena);
    if (need <= budget) return true;
    struct bw_error e = BW_ERROR_INIT;
    (void)bwi_error_set(&e, BW_E_LIMIT, "memory budget of %" PRIu64 " bytes: an extent of pack \"%s\" needs %zu",
                        budget, j->pack.s, need);
    bwi_restore_fail(j->c, &e);
    return false;
}

/* ---- the read ---- */

static void begin_read(struct bwi_restore_job *j, uint64_t from, uint8_t *to, size_t room_bytes) {
    struct bwi_restore_call *c = j->c;
    struct bwi_store_op *op = &j->call.op;
    if (j->open == NULL) {
        j->open = bwi_restore_open_take(c, j->batch->group->group, j->tier, j->extent.place->pack);
    }
    j->from = from;
    j->state = BWI_JOB_READ;
    bwi_restore_check_begin(j);
    bwi_call_prepare(&j->call, BWI_STORE_READ, j->pack.s);
    op->offset = from;
    op->buf = to;
    op->bytes = (size_t)(j->to - from);
    op->handle = j->open == NULL ? NULL : &j->open->handle;
    op->bulk = true;
    op->uncached = j->uncached;
    /* Ranks of a node read what is replicated at the same time, and over a network it costs most. */
    op->shared = j->tier == BWI_TIER_REMOTE && !c->r->ctx->tier[j->tier]->caps.node_local;
    op->may_decline = j->into_caller;
    op->room_bytes = room_bytes;
    op->look = bwi_restore_look;
    op->aim = j->several && op->bytes / j->count >= AIM_BYTES ? bwi_restore_aim : NULL;
    bwi_call_submit(&j->call, &c->task, c->r->ctx->tier[j->tier]);
}

static void ask_buffer(struct bwi_restore_job *j) {
    j->state = BWI_JOB_BUFFER;
    j->into_caller = false;
    j->buffer = (struct bwi_arena_wait){.bytes = buffer_bytes(j), .granted = granted, .user = j};
    bwi_arena_acquire(j->c->r->ctx->arena, &j->buffer);
}

static bool job_meta(struct bwi_restore_job *j) {
    const enum bwi_ready ready = bwi_restore_group_find(j->c, j->batch->group, j->tier, &j->tier);
    if (ready == BWI_WAIT) return false;
    if (ready == BWI_NOWHERE) {
        extent_lost(j);
        return false;
    }
    if (!set_place(j)) return false;
    j->into_caller = j->straight != NULL;
    if (j->into_caller)
        begin_read(j, j->extent.place->offset, j->straight, (size_t)j->extent.place->stored_bytes);
    else
        ask_buffer(j);
    return true;
}

static bool job_buffer(struct bwi_restore_job *j) {
    if (j->buffer.ptr == NULL) return false;
    begin_read(j, block_of(j), j->buffer.ptr, stored_room(j));
    return true;
}

/* ---- the check ---- */

static void check_call(struct bwi_io_req *r) {
    bwi_restore_check(r->user);
    r->result = 0;
}

static void check_done(struct bwi_io_req *r) {
    struct bwi_restore_job *j = r->user;
    j->working = false;
    j->c->task.pending--;
    bwi_task_wake(&j->c->task);
}

/* What was looked at as it came needs no worker any more. */
static void begin_check(struct bwi_restore_job *j) {
    struct bwi_io *io = bwi_loop_io(j->c->task.loop);
    const bool is_little = (j->straight != NULL || j->several) && j->call.op.looked == j->call.op.bytes;
    j->state = BWI_JOB_CHECK;
    if (io == NULL || is_little) {
        bwi_restore_check(j);
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
    } else if (j->call.op.declined) {
        j->uncached = true;
        ask_buffer(j);
    } else {
        *(j->tier == BWI_TIER_LOCAL ? &s->local_bytes : &s->remote_bytes) += j->to - j->extent.place->offset;
        begin_check(j);
    }
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
    s->verified_bytes += j->raw_bytes;
    bwi_progress_add(j->c->r->ctx, j->raw_bytes);
    w->progress++;
    if (j->tier == BWI_TIER_REMOTE && bwi_is_damage(j->error[BWI_TIER_LOCAL].status)) s->damaged_extents++;
}

/* Others can write to a caller's memory, and a fork while a device does can part it from what came: what was not sound
 * there says nothing of the tier. It is read once more, into a buffer. */
static void not_sound(struct bwi_restore_job *j) {
    if (j->into_caller) {
        ask_buffer(j);
        return;
    }
    struct bw_error e = BW_ERROR_INIT;
    (void)bwi_error_set(&e, j->verdict, "%s", j->why);
    tier_failed(j, &e);
}

static bool job_check(struct bwi_restore_job *j) {
    if (j->working) return false;
    if (j->verdict != 0) {
        not_sound(j);
        return true;
    }
    served(j);
    if (j->first + j->count < j->end)
        start_over(j, j->first + j->count);
    else
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
