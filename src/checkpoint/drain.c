/* SPDX-License-Identifier: Apache-2.0 */
/* Brings one complete group from the local tier into the authority. doc/flows/drain.md; the states are its steps.
 *
 * Nothing here hangs on the lock: two drains of one group write the same bytes under the same keys. It only saves
 * them the double work, so it is waited for, but not for ever: whoever holds it may be stopped. */
#include "checkpoint/drain.h"
#include "base/error.h"
#include "checkpoint/source.h"
#include <inttypes.h>
#include <string.h>

#define LOCK_PATIENCE_NS (30 * BWI_NS_PER_S)

enum drain_state {
    DRAIN_ASK_LOCAL,
    DRAIN_LOCAL,
    DRAIN_LOCK,
    DRAIN_LOCKED,
    DRAIN_LOOK, /* has the authority a summary already? */
    DRAIN_LOOKED,
    DRAIN_SYNC_GROUPS,  /* it has: that name may not be durable yet, */
    DRAIN_SYNC_LAYOUTS, /* nor the layout's */
    DRAIN_COMPLETE,
    DRAIN_PAUSE, /* somebody else drains it */
    DRAIN_READ,
    DRAIN_PACK,
    DRAIN_FOREIGN_PACK, /* one of a checkpoint that this one refers to */
    DRAIN_COPY,
    DRAIN_PUBLISH,
    DRAIN_PUBLISHED,
    DRAIN_UNLOCK,
    DRAIN_END,
};

static struct bwi_store *local(const struct bwi_drain *d) {
    return d->ctx->tier[BWI_TIER_LOCAL];
}

static struct bwi_store *authority(const struct bwi_drain *d) {
    return d->ctx->tier[BWI_TIER_REMOTE];
}

static enum bwi_step go(struct bwi_drain *d, enum drain_state to) {
    d->state = (int)to;
    return BWI_STEP_AGAIN;
}

static enum bwi_step wait_in(struct bwi_drain *d, enum drain_state in) {
    d->state = (int)in;
    return BWI_STEP_WAIT;
}

static enum bwi_step fail(struct bwi_drain *d, const struct bw_error *e) {
    (void)bwi_error_copy(&d->task.error, e);
    return go(d, DRAIN_UNLOCK);
}

static enum bwi_step cancelled(struct bwi_drain *d) {
    (void)bwi_error_set(&d->task.error, BW_E_CANCELLED, "cancelled");
    return go(d, DRAIN_UNLOCK);
}

/* A child that runs is told to stop when we are. */
static bool runs(struct bwi_drain *d, struct bwi_task *child) {
    if (child->running && d->task.cancel && !child->cancel) bwi_task_cancel(child);
    return child->running;
}

/* ---- is there anything to do, and is it ours to do ---- */

/* Looked at before the lock, which would leave a directory where there was none. */
static enum bwi_step ask_local(struct bwi_drain *d) {
    if (d->task.cancel) return cancelled(d);
    const struct bwi_key key = bwi_key_summary(d->ctx->run, &d->id, d->group);
    bwi_call_prepare(&d->call, BWI_STORE_HEAD, key.s);
    bwi_call_submit(&d->call, &d->task, local(d));
    return wait_in(d, DRAIN_LOCAL);
}

static enum bwi_step asked_local(struct bwi_drain *d) {
    const struct bw_error *e = &d->call.op.error;
    d->local_gone = e->status == BW_E_NOTFOUND;
    if (d->local_gone) return go(d, DRAIN_LOOK);
    return e->status < 0 && e->status != BW_E_CORRUPT ? fail(d, e) : go(d, DRAIN_LOCK); /* damage is told by reading */
}

static enum bwi_step lock(struct bwi_drain *d) {
    if (d->task.cancel) return cancelled(d);
    const struct bwi_key key = bwi_key_data_of(d->ctx->run, d->fan_out, &d->id, d->group);
    bwi_call_prepare(&d->lock, BWI_STORE_LOCK, key.s);
    bwi_call_submit(&d->lock, &d->task, local(d));
    return wait_in(d, DRAIN_LOCKED);
}

/* A full or read-only disk cannot take a lock, and is the last one that should not be drained. */
static enum bwi_step locked(struct bwi_drain *d) {
    d->held = d->lock.op.lock;
    return go(d, DRAIN_LOOK);
}

static bool somebody_else_drains(const struct bwi_drain *d) {
    return d->held == NULL && d->lock.op.error.status == BW_E_BUSY && !d->impatient;
}

/* Whoever put the summary may have died, or have been refused an answer, before its name was durable. */
static enum bwi_step sync_dir(struct bwi_drain *d, const char *prefix, enum drain_state then) {
    bwi_call_prepare(&d->call, BWI_STORE_SYNC, prefix);
    bwi_call_submit(&d->call, &d->task, authority(d));
    return wait_in(d, then);
}

static enum bwi_step read_local(struct bwi_drain *d) {
    d->read = (struct bwi_meta_read){.ctx = d->ctx,
                                     .tier = BWI_TIER_LOCAL,
                                     .id = d->id,
                                     .group = d->group,
                                     .summary_only = d->far_there && d->unsynced.status == 0,
                                     .meta = &d->meta};
    bwi_meta_read_start(&d->read, d->task.loop, &d->task);
    return wait_in(d, DRAIN_READ);
}

/* It may have been an earlier try of ours that could not make its names durable. Then no fsync vouches for them any
 * more, and only the same bytes, put once more, can become durable. */
static enum bwi_step not_synced(struct bwi_drain *d) {
    if (d->local_gone) return fail(d, &d->call.op.error);
    d->unsynced = d->call.op.error;
    return read_local(d);
}

static enum bwi_step groups_synced(struct bwi_drain *d) {
    if (d->call.op.error.status < 0) return not_synced(d);
    const struct bwi_key layouts = bwi_key_layouts_of(d->ctx->run, d->id.attempt, d->id.nonce);
    return sync_dir(d, layouts.s, DRAIN_COMPLETE);
}

static enum bwi_step complete(struct bwi_drain *d) {
    if (d->call.op.error.status < 0) return not_synced(d);
    d->was_complete = true;
    return go(d, DRAIN_UNLOCK);
}

static enum bwi_step look(struct bwi_drain *d) {
    if (d->task.cancel) return cancelled(d);
    const struct bwi_key key = bwi_key_summary(d->ctx->run, &d->id, d->group);
    bwi_call_get(&d->call, &d->task, authority(d), key.s, BWI_SUMMARY_BYTES_MAX);
    return wait_in(d, DRAIN_LOOKED);
}

static enum bwi_step nowhere(struct bwi_drain *d) {
    (void)bwi_error_set(&d->task.error, BW_E_NOTFOUND, "it is not complete on the local tier, nor in the authority");
    return go(d, DRAIN_UNLOCK);
}

static enum bwi_step looked(struct bwi_drain *d) {
    const struct bwi_store_op *op = &d->call.op;
    d->far_there = op->error.status == 0;
    if (op->error.status < 0 && op->error.status != BW_E_NOTFOUND) return fail(d, &op->error);
    if (d->far_there && bwi_summary_decode(bwi_buf_span(&op->body), &d->far, &d->task.error) < 0) {
        (void)bwi_error_wrap(&d->task.error, "remote tier: \"%s\"", op->key);
        return go(d, DRAIN_UNLOCK);
    }
    if (d->far_there && d->local_gone) return go(d, DRAIN_SYNC_GROUPS);
    if (d->local_gone) return nowhere(d);
    if (!d->far_there && somebody_else_drains(d)) return go(d, DRAIN_PAUSE);
    return read_local(d);
}

static enum bwi_step pausing(struct bwi_drain *d) {
    if (d->task.cancel) return cancelled(d);
    const uint64_t now = bwi_loop_now_ns(d->task.loop);
    if (d->patient_until_ns == 0) d->patient_until_ns = now + LOCK_PATIENCE_NS;
    if (d->wake_ns == 0) {
        d->wake_ns = bwi_backoff_next(&d->backoff, d->ctx, now);
    } else if (now >= d->wake_ns) {
        d->wake_ns = 0;
        d->impatient = now >= d->patient_until_ns;
        return go(d, DRAIN_ASK_LOCAL);
    }
    bwi_task_wake_at(&d->task, d->wake_ns);
    return BWI_STEP_WAIT;
}

/* ---- the local copy ---- */

static bool is_same(const struct bwi_summary *a, const struct bwi_summary *b) {
    return bwi_id_eq(&a->id, &b->id) && a->group == b->group && bwi_sha_eq(&a->layout, &b->layout) &&
           bwi_sha_eq(&a->content, &b->content);
}

/* With a summary in the authority the local one is only held against it; one that cannot be read says nothing. */
static enum bwi_step read_done(struct bwi_drain *d) {
    if (runs(d, &d->read.task)) return BWI_STEP_WAIT;
    const bool failed = d->read.task.error.status < 0;
    if (d->unsynced.status < 0) return failed ? fail(d, &d->unsynced) : go(d, DRAIN_PACK);
    if (!d->far_there) return failed ? fail(d, &d->read.task.error) : go(d, DRAIN_PACK);
    if (!d->meta.summary_ok || is_same(&d->far, &d->meta.summary)) return go(d, DRAIN_SYNC_GROUPS);
    (void)bwi_error_set(&d->task.error, BW_E_EXISTS, "the authority has it with another layout or content");
    return go(d, DRAIN_UNLOCK);
}

/* ---- packs ---- */

static bool is_own_pack(const struct bwi_drain *d, const struct bwi_pack_ref *pack, struct bwi_key *ret_key) {
    struct bwi_key_parts parts;
    *ret_key = (struct bwi_key){{0}};
    memcpy(ret_key->s, pack->key.ptr, pack->key.len < sizeof ret_key->s ? pack->key.len : sizeof ret_key->s - 1);
    return bwi_key_parse(ret_key->s, &parts) && bwi_id_eq(&parts.id, &d->id);
}

static enum bwi_step next_pack(struct bwi_drain *d) {
    const struct bwi_placement *p = &d->meta.placement;
    struct bwi_key key;
    if (d->task.cancel) return cancelled(d);
    if (d->pack == p->pack_count) return go(d, DRAIN_PUBLISH);
    if (!is_own_pack(d, &p->packs[d->pack], &key)) {
        bwi_call_prepare(&d->call, BWI_STORE_HEAD, key.s);
        bwi_call_submit(&d->call, &d->task, authority(d));
        return wait_in(d, DRAIN_FOREIGN_PACK);
    }
    d->copy = (struct bwi_pack_copy){.ctx = d->ctx,
                                     .from = local(d),
                                     .to = authority(d),
                                     .placement = p,
                                     .pack = d->pack,
                                     .pace = d->pace,
                                     .depth = bwi_context_io_depth(d->ctx, BWI_TIER_REMOTE),
                                     .resident = d->resident};
    if (bwi_pack_copy_start(&d->copy, &d->task, &d->task.error) < 0) return go(d, DRAIN_UNLOCK);
    return wait_in(d, DRAIN_COPY);
}

/* What a checkpoint refers to is brought there by its own drain; here it must be there already. */
static enum bwi_step foreign_pack(struct bwi_drain *d) {
    const struct bwi_store_op *op = &d->call.op;
    const uint64_t want = d->meta.placement.packs[d->pack].file_bytes;
    if (bwi_is_damage(op->error.status) || (op->error.status == 0 && op->size_bytes != want)) {
        (void)bwi_error_set(&d->task.error, BW_E_NOTFOUND,
                            "it refers to pack \"%s\" of %" PRIu64 " bytes, which the authority does not have", op->key,
                            want);
        return go(d, DRAIN_UNLOCK);
    }
    if (op->error.status < 0) return fail(d, &op->error);
    d->pack++;
    return go(d, DRAIN_PACK);
}

static enum bwi_step copied(struct bwi_drain *d) {
    if (runs(d, &d->copy.task)) return BWI_STEP_WAIT;
    bwi_pack_copy_fini(&d->copy);
    if (d->copy.task.error.status < 0) return fail(d, &d->copy.task.error);
    d->skipped = d->skipped || d->copy.skipped;
    d->objects += !d->copy.skipped;
    d->bytes += d->copy.bytes;
    d->memory_bytes += d->copy.memory_bytes;
    d->pack++;
    return go(d, DRAIN_PACK);
}

/* ---- the other three objects and the summary ---- */

/* All keys are those of the local tier, so its placement and summary are right there as they are. */
static enum bwi_step publish(struct bwi_drain *d) {
    const struct bwi_group_meta *m = &d->meta;
    d->publish = (struct bwi_publish){.ctx = d->ctx,
                                      .store = authority(d),
                                      .summary = &m->summary,
                                      .layout = bwi_buf_span(&m->layout_bytes),
                                      .content = bwi_buf_span(&m->content_bytes),
                                      .placement = bwi_buf_span(&m->placement_bytes),
                                      .layout_known = d->layout_known && d->unsynced.status == 0,
                                      .sync_packs = d->skipped};
    bwi_publish_start(&d->publish, d->task.loop, &d->task);
    return wait_in(d, DRAIN_PUBLISHED);
}

static enum bwi_step published(struct bwi_drain *d) {
    if (runs(d, &d->publish.task)) return BWI_STEP_WAIT;
    d->objects += d->publish.objects;
    d->was_complete = d->publish.was_complete;
    (void)bwi_error_copy(&d->task.error, &d->publish.task.error);
    return go(d, DRAIN_UNLOCK);
}

/* ---- the end ---- */

static enum bwi_step unlock(struct bwi_drain *d) {
    if (d->held == NULL) return go(d, DRAIN_END);
    const struct bwi_key key = bwi_key_data_of(d->ctx->run, d->fan_out, &d->id, d->group);
    bwi_call_prepare(&d->lock, BWI_STORE_UNLOCK, key.s);
    d->lock.op.lock = d->held;
    d->held = NULL;
    bwi_call_submit(&d->lock, &d->task, local(d));
    return wait_in(d, DRAIN_END);
}

static enum bwi_step finish(struct bwi_drain *d) {
    char id[BWI_ID_TEXT_BYTES];
    bwi_id_text(&d->id, id);
    (void)bwi_error_wrap(&d->task.error, "drain %s group %" PRIu32, id, d->group);
    bwi_call_fini(&d->call);
    bwi_call_fini(&d->lock);
    bwi_pack_copy_fini(&d->copy);
    bwi_group_meta_fini(&d->meta);
    return BWI_STEP_END;
}

static enum bwi_step drain_step(struct bwi_task *t) {
    struct bwi_drain *d = bwi_container_of(t, struct bwi_drain, task);
    if (t->pending > 0) return BWI_STEP_WAIT;
    switch ((enum drain_state)d->state) {
    case DRAIN_ASK_LOCAL: return ask_local(d);
    case DRAIN_LOCAL: return asked_local(d);
    case DRAIN_LOCK: return lock(d);
    case DRAIN_LOCKED: return locked(d);
    case DRAIN_LOOK: return look(d);
    case DRAIN_LOOKED: return looked(d);
    case DRAIN_SYNC_GROUPS: return sync_dir(d, bwi_key_groups(d->ctx->run, &d->id).s, DRAIN_SYNC_LAYOUTS);
    case DRAIN_SYNC_LAYOUTS: return groups_synced(d);
    case DRAIN_COMPLETE: return complete(d);
    case DRAIN_PAUSE: return pausing(d);
    case DRAIN_READ: return read_done(d);
    case DRAIN_PACK: return next_pack(d);
    case DRAIN_FOREIGN_PACK: return foreign_pack(d);
    case DRAIN_COPY: return copied(d);
    case DRAIN_PUBLISH: return publish(d);
    case DRAIN_PUBLISHED: return published(d);
    case DRAIN_UNLOCK: return unlock(d);
    case DRAIN_END: break;
    }
    return finish(d);
}

void bwi_drain_start(struct bwi_drain *d, struct bwi_loop *loop, struct bwi_task *parent) {
    d->task.step = drain_step;
    d->task.name = "drain";
    d->state = DRAIN_ASK_LOCAL;
    d->was_complete = d->far_there = d->skipped = d->local_gone = false;
    d->objects = d->bytes = d->memory_bytes = 0;
    d->pack = 0;
    d->wake_ns = 0;
    d->held = NULL;
    d->unsynced = (struct bw_error)BW_ERROR_INIT;
    d->call = (struct bwi_call){0};
    d->lock = (struct bwi_call){0};
    memset(&d->meta, 0, sizeof d->meta);
    memset(&d->copy, 0, sizeof d->copy);
    bwi_backoff_reset(&d->backoff, d->ctx);
    bwi_task_start(loop, &d->task, parent);
}
