/* SPDX-License-Identifier: Apache-2.0 */
/* Putting damaged local copies right, after the call has been served from the remote tier. Only right bytes are
 * ever written: a pack goes through bwi_pack_copy, which verifies it on the way; metadata is what the remote
 * tier's summary names. A copy whose summary is gone was evicted, and is not put back. A repair that fails leaves the
 * damage where it was, and is tried again by the next call that meets it. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/restore_private.h"
#include <string.h>

enum fix_state {
    FIX_NEXT,
    FIX_THERE, /* is the local copy still there? */
    FIX_META,  /* the remote tier's metadata of the group */
    FIX_PACK,  /* one pack is copied over the damaged one */
    FIX_PACK_COPIED,
    FIX_PACKS, /* all packs of the group that are not there are copied */
    FIX_COPIED,
    FIX_OBJECT, /* the next metadata object */
    FIX_LOOKED, /* at the local one */
    FIX_REPLACED,
};

enum { LAYOUT, CONTENT, PLACEMENT, SUMMARY, OBJECTS }; /* the summary last: it says that all is there */

struct bwi_restore_repair {
    enum fix_state state;
    size_t at;
    struct bwi_id id; /* whose pack or metadata it is: a checkpoint may refer to packs of another one */
    uint32_t group;
    bool reading, copying;
    struct bwi_meta_read read;
    struct bwi_group_meta meta;
    uint32_t pack;
    bool over; /* the copy replaces what is there */
    struct bwi_pack_copy copy;
    int object;
    struct bwi_buf summary;
    struct bwi_call call;
    uint64_t done; /* operations that have ended */
    uint64_t seen, seen_ns;
    bool give_up;
};

void bwi_restore_fix_add(struct bwi_restore_call *c, uint32_t group, const struct bwi_key *pack) {
    struct bwi_restore_work *w = c->w;
    if (!c->r->target.may_repair || w->fix_count == BWI_RESTORE_FIXES) return;
    for (size_t i = 0; i < w->fix_count; i++) {
        const struct bwi_restore_fix *f = &w->fixes[i];
        if (pack == NULL ? f->metadata && f->group == group : !f->metadata && strcmp(f->pack.s, pack->s) == 0) return;
    }
    struct bwi_restore_fix *f = &w->fixes[w->fix_count++];
    f->group = group;
    f->metadata = pack == NULL;
    if (pack != NULL) f->pack = *pack;
}

void bwi_restore_repair_free(struct bwi_restore_call *c) {
    struct bwi_restore_repair *p = c->w->repair;
    if (p == NULL) return;
    bwi_pack_copy_fini(&p->copy);
    bwi_group_meta_fini(&p->meta);
    bwi_buf_fini(&p->summary);
    bwi_call_fini(&p->call);
    bwi_free(p);
    c->w->repair = NULL;
}

static struct bwi_store *local(const struct bwi_restore_call *c) {
    return c->r->ctx->tier[BWI_TIER_LOCAL];
}

static enum bwi_step go(struct bwi_restore_repair *p, enum fix_state to) {
    p->state = to;
    return BWI_STEP_AGAIN;
}

/* ---- what is to be put right ---- */

static enum bwi_step fix_done(struct bwi_restore_repair *p) {
    bwi_pack_copy_fini(&p->copy);
    bwi_group_meta_fini(&p->meta);
    bwi_buf_fini(&p->summary);
    p->at++;
    return go(p, FIX_NEXT);
}

/* What was found out about the local copy before is not true any more. */
static void forget(struct bwi_restore *r, uint32_t group) {
    for (size_t i = 0; i < BWI_RESTORE_GROUPS; i++) {
        struct bwi_restore_group *g = r->groups[i];
        if (g != NULL && g->group == group) bwi_restore_source_forget(&g->tier[BWI_TIER_LOCAL]);
    }
}

static enum bwi_step fix_next(struct bwi_restore_call *c, struct bwi_restore_repair *p) {
    const struct bwi_restore_fix *f = &c->w->fixes[p->at];
    const struct bwi_key key = bwi_key_summary(c->r->ctx->run, &c->r->target.id, f->group);
    bwi_call_prepare(&p->call, BWI_STORE_HEAD, key.s);
    bwi_call_submit(&p->call, &c->task, local(c));
    p->state = FIX_THERE;
    return BWI_STEP_WAIT;
}

/* Packs may be of another checkpoint, of which nothing is known but what its own summary says. */
static enum bwi_step fix_there(struct bwi_restore_call *c, struct bwi_restore_repair *p) {
    const struct bwi_restore_fix *f = &c->w->fixes[p->at];
    struct bwi_key_parts parts;
    if (p->call.busy) return BWI_STEP_WAIT;
    p->done++;
    if (p->call.op.error.status == BW_E_NOTFOUND) forget(c->r, f->group);
    if (p->call.op.error.status != 0 && p->call.op.error.status != BW_E_CORRUPT) return fix_done(p);
    p->id = c->r->target.id;
    p->group = f->group;
    if (!f->metadata) {
        if (!bwi_key_parse(f->pack.s, &parts)) return fix_done(p);
        p->id = parts.id;
        p->group = parts.group;
    }
    const bool own = bwi_id_eq(&p->id, &c->r->target.id);
    p->read = own ? bwi_restore_meta_read(c->r, BWI_TIER_REMOTE, p->group, &p->meta)
                  : (struct bwi_meta_read){
                        .ctx = c->r->ctx, .tier = BWI_TIER_REMOTE, .id = p->id, .group = p->group, .meta = &p->meta};
    p->reading = true;
    p->state = FIX_META;
    bwi_meta_read_start(&p->read, c->task.loop, &c->task);
    return BWI_STEP_WAIT;
}

static enum bwi_step start_copy(struct bwi_restore_call *c, struct bwi_restore_repair *p, enum fix_state then) {
    struct bw_error e = BW_ERROR_INIT;
    bwi_pack_copy_fini(&p->copy);
    p->copy = (struct bwi_pack_copy){.ctx = c->r->ctx,
                                     .from = c->r->ctx->tier[BWI_TIER_REMOTE],
                                     .to = local(c),
                                     .placement = &p->meta.placement,
                                     .pack = p->pack,
                                     .replace = p->over};
    if (bwi_pack_copy_start(&p->copy, &c->task, &e) < 0) return fix_done(p);
    p->copying = true;
    p->state = then;
    return BWI_STEP_WAIT;
}

static enum bwi_step fix_meta(struct bwi_restore_call *c, struct bwi_restore_repair *p) {
    const struct bwi_restore_fix *f = &c->w->fixes[p->at];
    if (p->read.task.running) return BWI_STEP_WAIT;
    p->reading = false;
    c->r->stats.metadata_objects += p->read.objects;
    if (p->read.task.error.status != 0) return fix_done(p);
    p->over = true;
    if (!f->metadata && bwi_pack_find(&p->meta.placement, f->pack.s, &p->pack)) return go(p, FIX_PACK);
    /* The remote tier keeps the bytes in other packs: the local copy becomes what the remote one is. */
    if (!f->metadata && !bwi_id_eq(&p->id, &c->r->target.id)) return fix_done(p);
    p->pack = 0;
    p->over = false;
    return go(p, FIX_PACKS);
}

static enum bwi_step fix_pack_copied(struct bwi_restore_call *c, struct bwi_restore_repair *p) {
    if (p->copy.task.running) return BWI_STEP_WAIT;
    p->copying = false;
    if (p->copy.task.error.status == 0) c->r->stats.repaired_objects++;
    return fix_done(p);
}

/* ---- a group as a whole ---- */

/* Packs of other checkpoints are left alone: their own placements know what is in them. */
static enum bwi_step fix_packs(struct bwi_restore_call *c, struct bwi_restore_repair *p) {
    const struct bwi_placement *m = &p->meta.placement;
    while (p->pack < m->pack_count && !bwi_pack_is_own(m, p->pack, &p->id, p->group)) p->pack++;
    if (p->pack < m->pack_count) return start_copy(c, p, FIX_COPIED);
    p->object = 0;
    bwi_buf_reset(&p->summary);
    if (bwi_summary_encode(&p->meta.summary, &p->summary, NULL) < 0) return fix_done(p);
    return go(p, FIX_OBJECT);
}

static enum bwi_step fix_copied(struct bwi_restore_call *c, struct bwi_restore_repair *p) {
    if (p->copy.task.running) return BWI_STEP_WAIT;
    p->copying = false;
    const int status = p->copy.task.error.status;
    if (status == BW_E_EXISTS && !p->over) { /* it is there with another size */
        p->over = true;
        return go(p, FIX_PACKS);
    }
    if (status != 0) return fix_done(p);
    if (!p->copy.skipped) c->r->stats.repaired_objects++;
    p->over = false;
    p->pack++;
    return go(p, FIX_PACKS);
}

/* ---- metadata objects ---- */

static struct bwi_key key_of(const struct bwi_restore_call *c, const struct bwi_restore_repair *p) {
    const char *run = c->r->ctx->run;
    const struct bwi_summary *s = &p->meta.summary;
    switch (p->object) {
    case LAYOUT: return bwi_key_layout(run, p->id.attempt, p->id.nonce, &s->layout);
    case CONTENT: return bwi_key_content(run, s->fan_out, &p->id, p->group);
    case PLACEMENT: return bwi_key_placement(run, s->fan_out, &p->id, p->group, s->writer);
    default: return bwi_key_summary(run, &p->id, p->group);
    }
}

static struct bwi_span bytes_of(const struct bwi_restore_repair *p) {
    switch (p->object) {
    case LAYOUT: return bwi_buf_span(&p->meta.layout_bytes);
    case CONTENT: return bwi_buf_span(&p->meta.content_bytes);
    case PLACEMENT: return bwi_buf_span(&p->meta.placement_bytes);
    default: return bwi_buf_span(&p->summary);
    }
}

static enum bwi_step fix_object(struct bwi_restore_call *c, struct bwi_restore_repair *p) {
    if (p->object == OBJECTS) {
        forget(c->r, p->group);
        return fix_done(p);
    }
    const struct bwi_key key = key_of(c, p);
    p->state = FIX_LOOKED;
    bwi_call_get(&p->call, &c->task, local(c), key.s, bytes_of(p).len);
    return BWI_STEP_WAIT;
}

static enum bwi_step fix_looked(struct bwi_restore_call *c, struct bwi_restore_repair *p) {
    if (p->call.busy) return BWI_STEP_WAIT;
    p->done++;
    const struct bwi_store_op *op = &p->call.op;
    if (op->error.status == 0 && bwi_span_eq(bwi_buf_span(&op->body), bytes_of(p))) {
        p->object++;
        return go(p, FIX_OBJECT);
    }
    if (op->error.status != 0 && !bwi_is_damage(op->error.status)) return fix_done(p);
    const struct bwi_key key = key_of(c, p);
    bwi_call_prepare(&p->call, BWI_STORE_REPLACE, key.s);
    p->call.op.data = bytes_of(p);
    bwi_call_submit(&p->call, &c->task, local(c));
    p->state = FIX_REPLACED;
    return BWI_STEP_WAIT;
}

static enum bwi_step fix_replaced(struct bwi_restore_call *c, struct bwi_restore_repair *p) {
    if (p->call.busy) return BWI_STEP_WAIT;
    p->done++;
    if (p->call.op.error.status != 0) return fix_done(p);
    c->r->stats.repaired_objects++;
    p->object++;
    return go(p, FIX_OBJECT);
}

/* ---- the machine ---- */

/* A repair that gets nowhere does not hold up the call for longer than io_timeout_ns. */
static void watch(struct bwi_restore_call *c, struct bwi_restore_repair *p) {
    const uint64_t limit = c->r->target.io_timeout_ns;
    const uint64_t now = bwi_loop_now_ns(c->task.loop);
    const uint64_t seen = 1 + p->at + p->done + p->read.objects + (p->copying ? p->copy.bytes : 0) + p->pack;
    if (seen != p->seen) {
        p->seen = seen;
        p->seen_ns = now;
    }
    if (c->task.cancel || (limit > 0 && now - p->seen_ns >= limit)) p->give_up = true;
    if (p->give_up && p->reading && !p->read.task.cancel) bwi_task_cancel(&p->read.task);
    if (p->give_up && p->copying && !p->copy.task.cancel) bwi_task_cancel(&p->copy.task);
    const bool timed = limit > 0 && !p->give_up && p->seen_ns < BWI_NEVER - limit;
    c->w->retry_ns = timed ? p->seen_ns + limit : BWI_NEVER;
}

static enum bwi_step fix_step(struct bwi_restore_call *c, struct bwi_restore_repair *p) {
    switch (p->state) {
    case FIX_NEXT: return fix_next(c, p);
    case FIX_THERE: return fix_there(c, p);
    case FIX_META: return fix_meta(c, p);
    case FIX_PACK: return start_copy(c, p, FIX_PACK_COPIED);
    case FIX_PACK_COPIED: return fix_pack_copied(c, p);
    case FIX_PACKS: return fix_packs(c, p);
    case FIX_COPIED: return fix_copied(c, p);
    case FIX_OBJECT: return fix_object(c, p);
    case FIX_LOOKED: return fix_looked(c, p);
    case FIX_REPLACED: break;
    }
    return fix_replaced(c, p);
}

enum bwi_ready bwi_restore_repair_step(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    if (w->repair == NULL) w->repair = bwi_calloc(1, sizeof *w->repair);
    struct bwi_restore_repair *p = w->repair;
    if (p == NULL) return BWI_READY; /* the call itself was served */
    watch(c, p);
    for (;;) {
        const bool idle = !p->reading && !p->copying && !p->call.busy;
        if (idle && (p->give_up || (p->state == FIX_NEXT && p->at == w->fix_count))) return BWI_READY;
        if (fix_step(c, p) == BWI_STEP_WAIT) return BWI_WAIT;
    }
}
