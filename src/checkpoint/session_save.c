/* SPDX-License-Identifier: Apache-2.0 */
/* One save, from its beginning to its end. doc/flows/save.md; the states are its steps. */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/session_private.h"

/* A mark that cannot be written is tried again this often; then it is left to the teller. */
#define MARK_TRIES 6u

static struct bwi_context *ctx_of(const struct bwi_save *v) {
    return v->session->ctx;
}
static bool two_tiers(const struct bwi_save *v) {
    return ctx_of(v)->tier[BWI_TIER_LOCAL] != NULL;
}
static enum bwi_tier first_tier(const struct bwi_save *v) {
    return two_tiers(v) ? BWI_TIER_LOCAL : BWI_TIER_REMOTE;
}
static uint64_t now(const struct bwi_save *v) {
    return bwi_loop_now_ns(ctx_of(v)->loop);
}

static enum bwi_step go(struct bwi_save *v, enum bwi_save_state state) {
    v->state = state;
    return BWI_STEP_AGAIN;
}

/* The first failure counts; everything that runs for the save is stopped. */
static enum bwi_step fail(struct bwi_save *v, const struct bw_error *e) {
    if (bwi_error_copy(&v->error, e) < 0 && v->error.message[0])
        bwi_error_wrap(&v->error, "save step %llu", (unsigned long long)v->step);
    return go(v, BWI_SAVE_STOP);
}

static enum bwi_step pause_save(struct bwi_save *v) {
    v->retry_ns = bwi_backoff_next(&v->backoff, ctx_of(v), now(v));
    bwi_task_wake_at(&v->task, v->retry_ns);
    return BWI_STEP_WAIT;
}

static bool pausing(struct bwi_save *v) {
    const bool wants_room = v->state == BWI_SAVE_ROOM || v->state == BWI_SAVE_QUEUE;
    if (wants_room && v->room_seen != v->session->room_changes) {
        bwi_backoff_reset(&v->backoff, ctx_of(v));
        v->retry_ns = 0;
    }
    if (now(v) >= v->retry_ns) return false;
    bwi_task_wake_at(&v->task, v->retry_ns);
    return true;
}

static enum bwi_step freeze(struct bwi_save *v) {
    if (!bwi_save_freeze(v)) return BWI_STEP_WAIT;
    return v->plan_error.status < 0 ? fail(v, &v->plan_error) : go(v, BWI_SAVE_ROOM);
}

/* --- room and packs ------------------------------------------------------------------------------------------ */

/* Something in flight can free room only while it is still on its way to the authority. A later one gets there only
 * after this one, unless it is being drained already or is ending: or they would wait for each other. */
static bool others_may_free_room(const struct bwi_save *v) {
    bool later = false;
    for (const struct bwi_save *o = v->session->saves; o; o = o->next) {
        if (o == v) later = true;
        if (o == v || o->state == BWI_SAVE_ENDED || o->state == BWI_SAVE_BEGUN) continue;
        if (!later || o->state > BWI_SAVE_QUEUE) return true;
    }
    return false;
}

/* What was promised to other saves and does not lie there whole yet: the local tier shows nothing of it. */
static uint64_t promised(const struct bwi_save *v) {
    uint64_t bytes = 0;
    bool later = false;
    for (const struct bwi_save *o = v->session->saves; o; o = o->next) {
        if (o == v) later = true;
        const bool has_room = o->state == BWI_SAVE_WRITE || o->state == BWI_SAVE_PUBLISH;
        const bool is_next = o->state == BWI_SAVE_ROOM && !later;
        if (o != v && (has_room || is_next)) bytes += o->plan.stored_bytes;
    }
    return bytes;
}

/* Only one save at a time captures before it has room. */
bool bwi_save_is_next(const struct bwi_save *v) {
    for (const struct bwi_save *o = v->session->saves; o && o != v; o = o->next)
        if (o->state == BWI_SAVE_FREEZE || o->state == BWI_SAVE_ROOM) return false;
    return true;
}

/* Capturing begins at once, so that the caller's memory is free as soon as possible; packs are begun when there is
 * room. */
static int start_write(struct bwi_save *v, struct bw_error *err) {
    if (two_tiers(v)) bwi_resident_begin(&v->resident, ctx_of(v)->arena, &v->plan);
    v->write = (struct bwi_pack_write){.ctx = ctx_of(v),
                                       .tier = first_tier(v),
                                       .plan = &v->plan,
                                       .id = v->id,
                                       .group = v->session->group,
                                       .fan_out = v->session->fan_out,
                                       .cow = v->cow.frozen ? &v->cow : NULL,
                                       .resident = &v->resident,
                                       .hold = two_tiers(v)};
    return bwi_pack_write_start(&v->write, &v->task, err);
}

/* Layout, content and placement with room to spare, and a block for each object and directory: without them a disk that
 * the packs fit exactly would refuse the last object of every save, while there is still something to evict. */
static uint64_t beside_packs(const struct bwi_plan *p) {
    return p->layout_bytes.len + p->content.extent_count * 64 + p->pack_count * UINT64_C(4096) + (UINT64_C(64) << 10);
}

/* Of packs that go, what this one could be written over. */
static uint64_t recyclable(const struct bwi_save *v) {
    const bool may = !(v->session->cfg.flags & BW_NO_RECYCLING) && ctx_of(v)->tier[BWI_TIER_LOCAL]->caps.recycles;
    return may ? v->plan.stored_bytes : 0;
}

static void start_room(struct bwi_save *v) {
    struct bwi_session *s = v->session;
    v->room = (struct bwi_room){.ctx = ctx_of(v),
                                .group = s->group,
                                .fan_out = s->fan_out,
                                .head = s->head.found ? &s->head.entry : NULL,
                                .busy = v->busy,
                                .busy_count = bwi_session_busy(s, v->busy, BWI_SAVES_MAX),
                                .need_bytes = v->plan.stored_bytes + promised(v),
                                .beside_bytes = beside_packs(&v->plan),
                                .may_wait = true,
                                .recycle_bytes = recyclable(v),
                                .refused = s->local_refused,
                                .quota_bytes = s->cfg.local_quota_bytes};
    v->room_seen = s->room_changes;
    bwi_room_start(&v->room, ctx_of(v)->loop, &v->task);
}

static void note_evictions(struct bwi_save *v) {
    const struct bwi_room *r = &v->room;
    if (r->task.error.status < 0 || !r->evicted) return;
    if (r->evicted_bytes)
        bwi_session_note(v->session, 0, v->step, "removed %u checkpoint%s from the local tier: %llu bytes", r->evicted,
                         r->evicted == 1 ? "" : "s", (unsigned long long)r->evicted_bytes);
    else
        bwi_session_note(v->session, 0, v->step, "removed what %u dead save%s had left on the local tier", r->evicted,
                         r->evicted == 1 ? "" : "s");
}

/* It would lose what was kept for it, and tidies up when it is complete itself. */
static bool another_is_written(const struct bwi_save *v) {
    for (const struct bwi_save *o = v->session->saves; o; o = o->next)
        if (o != v && (o->state == BWI_SAVE_ROOM || o->state == BWI_SAVE_WRITE)) return true;
    return false;
}

/* What was left for later goes now that nobody waits for it. It is none of this save's failures if it stays. */
static enum bwi_step tidy(struct bwi_save *v) {
    struct bwi_session *s = v->session;
    if (!v->room.task.step && recyclable(v) > 0 && another_is_written(v)) return go(v, BWI_SAVE_QUEUE);
    if (!v->room.task.step) {
        v->room = (struct bwi_room){.ctx = ctx_of(v),
                                    .group = s->group,
                                    .fan_out = s->fan_out,
                                    .head = s->head.found ? &s->head.entry : NULL,
                                    .busy = v->busy,
                                    .busy_count = bwi_session_busy(s, v->busy, BWI_SAVES_MAX),
                                    .leave_bytes = s->cfg.local_quota_bytes ? 0 : recyclable(v)};
        bwi_room_start(&v->room, ctx_of(v)->loop, &v->task);
    }
    if (v->room.task.running) return BWI_STEP_WAIT;
    const struct bw_error *e = &v->room.task.error;
    if (e->status < 0) bwi_session_note(s, e->status, v->step, "what is dead stays on the local tier: %s", e->message);
    note_evictions(v);
    if (v->room.evicted > 0) bwi_session_room_changed(s);
    v->room.task.step = NULL;
    return go(v, BWI_SAVE_QUEUE);
}

static enum bwi_step there_is_room(struct bwi_save *v) {
    struct bw_error e = BW_ERROR_INIT;
    if (!v->write.ctx && start_write(v, &e) < 0) return fail(v, &e);
    v->write.hold = false;
    bwi_task_wake(&v->write.task);
    return go(v, BWI_SAVE_WRITE);
}

static enum bwi_step make_room(struct bwi_save *v) {
    struct bw_error e = BW_ERROR_INIT;
    const bool may_capture = v->cow.frozen || bwi_save_is_next(v); /* what is frozen must not wait for others */
    if (!v->write.ctx && may_capture && start_write(v, &e) < 0) return fail(v, &e);
    bwi_save_watch_capture(v);
    if (!two_tiers(v)) return there_is_room(v);
    if (pausing(v)) return BWI_STEP_WAIT;
    if (!v->room.task.step) start_room(v);
    if (v->room.task.running) return BWI_STEP_WAIT;
    e = v->room.task.error;
    note_evictions(v);
    bool fits = e.status == 0 && v->room.fits;
    v->room.task.step = NULL;
    if (e.status < 0) return fail(v, &e);
    if (fits) return there_is_room(v);
    /* What ended while it was looked for may have freed enough. */
    if (v->room_seen != v->session->room_changes) return BWI_STEP_AGAIN;
    if (others_may_free_room(v)) return pause_save(v);
    bwi_error_set(&e, BW_E_NOSPACE, "%llu bytes do not fit on the local tier, and nothing there may be evicted",
                  (unsigned long long)v->plan.stored_bytes);
    return fail(v, &e);
}

/* What a disk shows as free may be less than it gives: a quota of the user, inodes, others who share it. From
 * now on this handle makes its room without believing it: else every other save would find out anew. */
static enum bwi_step fail_write(struct bwi_save *v, struct bw_error *e) {
    bwi_error_stage(e, BW_STAGE_WRITE);
    if (e->status == BW_E_NOSPACE) v->session->local_refused = two_tiers(v);
    return fail(v, e);
}

static void note_path(struct bwi_save *v) {
    const struct bwi_pack_write *w = &v->write;
    const char *how = w->direct_bytes == 0 ? "buffered" : w->cached_bytes == 0 ? "direct" : "direct in part";
    const struct bwi_io *io = bwi_loop_io(ctx_of(v)->loop);
    const bool may_ring = ctx_of(v)->tier[w->tier]->caps.node_local; /* others are left to threads */
    const char *who = !io ? "inline" : may_ring ? bwi_io_backend(io) : "threads";
    bwi_format(v->stats.write_path, sizeof v->stats.write_path, "%s, %s", who, how);
    v->stats.recycled_bytes = w->recycled_bytes;
}

static enum bwi_step write_packs(struct bwi_save *v) {
    bwi_save_watch_capture(v);
    if (v->write.task.running) return BWI_STEP_WAIT;
    v->captured = true;
    note_path(v);
    if (v->write.task.error.status < 0) {
        v->copy_lost = v->write.gone;
        return fail_write(v, &v->write.task.error);
    }
    bwi_session_level(v, BW_CAPTURED);
    return go(v, BWI_SAVE_PUBLISH);
}

/* --- layout, content, placement, summary --------------------------------------------------------------------- */

static int encode_placement(struct bwi_save *v, const struct bwi_sha *content, struct bw_error *err) {
    struct bwi_plan *p = &v->plan;
    struct bwi_placement place = {.content = *content,
                                  .writer = ctx_of(v)->writer,
                                  .pack_count = (uint32_t)p->pack_count,
                                  .extent_count = p->content.extent_count,
                                  .places = p->places};
    struct bwi_key *keys = bwi_calloc(p->pack_count + 1, sizeof *keys);
    place.packs = bwi_calloc(p->pack_count + 1, sizeof *place.packs);
    int rc = keys && place.packs ? 0 : bwi_error_nomem(err, (p->pack_count + 1) * sizeof *keys, "placement");
    for (uint32_t i = 0; rc == 0 && i < place.pack_count; i++) {
        keys[i] = bwi_key_pack(ctx_of(v)->run, v->session->fan_out, &v->id, v->session->group, i, ctx_of(v)->writer);
        place.packs[i] = (struct bwi_pack_ref){.key = bwi_span_str(keys[i].s),
                                               .file_bytes = p->packs[i].file_bytes,
                                               .header_bytes = p->packs[i].header.len,
                                               .header = v->write.headers[i]};
    }
    if (rc == 0) rc = bwi_placement_encode(&place, &v->placement, err);
    bwi_free(place.packs);
    bwi_free(keys);
    return rc;
}

static int make_summary(struct bwi_save *v, struct bw_error *err) {
    struct bwi_plan *p = &v->plan;
    struct bwi_session *s = v->session;
    int rc = bwi_content_encode(&p->content, &v->content, err);
    struct bwi_sha content = bwi_sha_of(bwi_buf_span(&v->content));
    if (rc == 0) rc = encode_placement(v, &content, err);
    if (rc < 0) return rc;
    struct bwi_summary *m = &v->summary;
    *m = (struct bwi_summary){.uuid = s->uuid,
                              .id = v->id,
                              .group = s->group,
                              .groups = s->groups,
                              .world = s->cfg.world,
                              .fan_out = s->fan_out,
                              .rank_count = 1,
                              .layout = p->layout_sha,
                              .content = content,
                              .layout_bytes = p->layout_bytes.len,
                              .content_bytes = v->content.len,
                              .placement_bytes = v->placement.len,
                              .writer = ctx_of(v)->writer,
                              .raw_bytes = p->raw_bytes,
                              .stored_bytes = p->stored_bytes,
                              .pack_count = (uint32_t)p->pack_count};
    m->ranks[0] = s->cfg.rank;
    m->placement = bwi_sha_of(bwi_buf_span(&v->placement));
    return 0;
}

/* The group is complete in the first tier. */
static enum bwi_step published(struct bwi_save *v) {
    struct bwi_session *s = v->session;
    enum bwi_tier t = first_tier(v);
    v->complete = true;
    v->tiers |= 1u << t;
    s->layout_known[t] = v->summary.layout;
    s->layout_known_set[t] = true;
    uint64_t *objects = t == BWI_TIER_LOCAL ? &v->stats.objects_local : &v->stats.objects_remote;
    *objects += v->write.objects + v->publish.objects;
    bwi_session_level(v, t == BWI_TIER_LOCAL ? BW_LOCAL : BW_REMOTE);
    bwi_backoff_reset(&v->backoff, s->ctx);
    return go(v, t == BWI_TIER_LOCAL ? BWI_SAVE_TIDY : BWI_SAVE_PENDING);
}

/* A group gets into the authority after those of lower steps: whoever sees a later step complete takes a lower one that
 * is not for one that lacks a group, and commits over it. */
static bool is_next(const struct bwi_save *v) {
    for (const struct bwi_save *o = v->session->saves; o && o != v; o = o->next)
        if (o->state != BWI_SAVE_BEGUN && o->state < BWI_SAVE_PENDING) return false;
    return true;
}

static enum bwi_step publish(struct bwi_save *v) {
    struct bwi_session *s = v->session;
    struct bw_error e = BW_ERROR_INIT;
    enum bwi_tier t = first_tier(v);
    if (!v->publish.ctx) {
        if (t == BWI_TIER_REMOTE && !is_next(v)) return BWI_STEP_WAIT;
        if (make_summary(v, &e) < 0) return fail(v, &e);
        bool known = s->layout_known_set[t] && bwi_sha_eq(&s->layout_known[t], &v->summary.layout);
        v->publish = (struct bwi_publish){.ctx = s->ctx,
                                          .store = s->ctx->tier[t],
                                          .summary = &v->summary,
                                          .layout = bwi_buf_span(&v->plan.layout_bytes),
                                          .content = bwi_buf_span(&v->content),
                                          .placement = bwi_buf_span(&v->placement),
                                          .layout_known = known};
        bwi_publish_start(&v->publish, s->ctx->loop, &v->task);
        return BWI_STEP_WAIT;
    }
    if (v->publish.task.running) return BWI_STEP_WAIT;
    if (v->publish.task.error.status < 0) return fail_write(v, &v->publish.task.error);
    return published(v);
}

/* --- drain --------------------------------------------------------------------------------------------------- */

/* Groups drain in step order, so that a later commit costs only a laggard that failed. */
static enum bwi_step queue(struct bwi_save *v) {
    if (!is_next(v)) return BWI_STEP_WAIT;
    if (pausing(v)) return BWI_STEP_WAIT;
    const struct bwi_session *x = v->session;
    bool known =
        x->layout_known_set[BWI_TIER_REMOTE] && bwi_sha_eq(&x->layout_known[BWI_TIER_REMOTE], &v->summary.layout);
    v->drain = (struct bwi_drain){.ctx = ctx_of(v),
                                  .id = v->id,
                                  .group = x->group,
                                  .fan_out = x->fan_out,
                                  .layout_known = known,
                                  .resident = &v->resident,
                                  .pace = x->cfg.drain_bytes_per_s ? &v->session->pace : NULL};
    v->state = BWI_SAVE_DRAIN;
    v->room_seen = x->room_changes;
    bwi_drain_start(&v->drain, ctx_of(v)->loop, &v->task);
    return BWI_STEP_WAIT;
}

static enum bwi_step drained(struct bwi_save *v) {
    struct bw_error *e = &v->drain.task.error;
    if (v->drain.task.running) return BWI_STEP_WAIT;
    v->stats.from_memory_bytes += v->drain.memory_bytes;
    if (e->status == 0) {
        bwi_resident_end(&v->resident);
        v->tiers |= 1u << BWI_TIER_REMOTE;
        v->held_up[0] = '\0';
        v->stats.objects_remote += v->drain.objects;
        v->session->layout_known[BWI_TIER_REMOTE] = v->summary.layout;
        v->session->layout_known_set[BWI_TIER_REMOTE] = true;
        bwi_session_level(v, BW_REMOTE);
        return go(v, BWI_SAVE_PENDING);
    }
    bwi_error_stage(e, BW_STAGE_DRAIN);
    bool hopeless =
        e->status == BW_E_CORRUPT || e->status == BW_E_NOTFOUND || e->status == BW_E_FORMAT || e->status == BW_E_EXISTS;
    v->copy_lost = e->status == BW_E_CORRUPT || e->status == BW_E_NOTFOUND;
    if (hopeless) return fail(v, e);
    /* While a whole local copy exists a drain is tried again; who waits is told when its deadline ends, who listens by
     * this note. */
    v->drain_failures++;
    bwi_format(v->held_up, sizeof v->held_up, "the drain has failed (%u): %.280s", v->drain_failures, e->message);
    if (bwi_session_tells(v->drain_failures))
        bwi_session_note(v->session, e->status, v->step, "drain failed (%u): %s", v->drain_failures, e->message);
    v->state = BWI_SAVE_QUEUE;
    return pause_save(v);
}

static void wake_the_rest(struct bwi_save *v) {
    for (struct bwi_save *o = v->next; o; o = o->next)
        if (o->task.running) bwi_task_wake(&o->task);
}

static enum bwi_step pending(struct bwi_save *v) {
    if (!v->told_pending) {
        v->told_pending = true;
        wake_the_rest(v);
        bwi_follow_soon(v->session);
        bwi_committer_wake(v->session);
        bwi_lookout_wake(v->session);
    }
    return BWI_STEP_WAIT;
}

/* --- the end ------------------------------------------------------------------------------------------------- */

static bool stop_child(struct bwi_task *t) {
    if (!t->running) return true;
    if (!t->cancel) bwi_task_cancel(t);
    return false;
}

static enum bwi_step stop(struct bwi_save *v) {
    if (!v->told_stop) wake_the_rest(v); /* it is before them no more, long as its end may take */
    v->told_stop = true;
    struct bwi_task *children[] = {&v->cow.task, &v->room.task, &v->write.task, &v->publish.task, &v->drain.task};
    unsigned running = 0;
    for (size_t i = 0; i < sizeof children / sizeof *children; i++) running += !stop_child(children[i]);
    if (!v->cow.task.running && !v->write.task.running && !v->is_planning) { /* nobody reads the memory any more */
        bwi_cow_end(&v->cow);
        v->captured = true;
    }
    if (running || v->is_planning) return BWI_STEP_WAIT;
    bwi_resident_end(&v->resident);
    if (v->committed || v->left) return BWI_STEP_END;
    return go(v, BWI_SAVE_CLEAN);
}

/* A summary that was sent may be there, also when the save was stopped before its answer came, or when that was no
 * clear refusal, or one of a summary that had been sent before: then others may commit what it names before they hear
 * of the failure. */
bool bwi_save_may_have_summary(const struct bwi_save *v) {
    const struct bwi_publish *p = &v->publish;
    const bool maybe = p->summary_sent && !p->summary_refused;
    return v->complete || (p->ctx && (maybe || p->task.error.status == BW_E_EXISTS));
}

/* Others may commit it, or have done so. */
static void become_unknown(struct bwi_save *v, const char *why) {
    const struct bw_error first = v->error;
    bw_error_clear(&v->error);
    bwi_error_set(&v->error, BW_E_UNKNOWN, "%.300s; %s", first.message, why);
}

/* Nobody needs to be told any more: the history has closed it, or the attempt is over. A new attempt may have gone on
 * from what was complete, before or after it failed here. */
static enum bwi_step give(struct bwi_save *v) {
    const int status = v->error.status;
    const bool told = v->committed || v->never_live || status == BW_E_UNKNOWN;
    if (!told && status != v->session->over_error.status && bwi_save_may_have_summary(v))
        become_unknown(v, "a new attempt may have gone on from it");
    return go(v, BWI_SAVE_GIVE);
}

/* The others are told later, by the teller; the save does not wait for that. Until then they may commit what is
 * complete in the authority; and the next launch may go on from what is complete on the nodes' tiers, or has done so
 * before the mark was there. */
static enum bwi_step leave_untold(struct bwi_save *v) {
    struct bwi_session *s = v->session;
    if (!s->closing) bwi_session_owe(s, &v->id, s->group, v->error.status, v->error.message, true);
    if (bwi_save_may_have_summary(v))
        become_unknown(v, "the other ranks could not be told, and may commit it all the same");
    return BWI_STEP_END;
}

/* A group without a summary is nothing to anybody: its bytes are given back at once. */
static enum bwi_step clean(struct bwi_save *v) {
    bool nothing = bwi_save_may_have_summary(v) || !v->write.ctx;
    if (!nothing && !v->cleaned) {
        struct bwi_key dir = bwi_key_data_of(ctx_of(v)->run, v->session->fan_out, &v->id, v->session->group);
        v->cleaned = true;
        bwi_call_prepare(&v->clean, BWI_STORE_DELETE_PREFIX, dir.s);
        bwi_call_submit(&v->clean, &v->task, ctx_of(v)->tier[first_tier(v)]);
        return BWI_STEP_WAIT;
    }
    if (v->clean.op.error.status < 0)
        bwi_session_note(v->session, v->clean.op.error.status, v->step, "leftovers stay for the next sweep: %s",
                         v->clean.op.error.message);
    /* Who was told by the history need not tell it. */
    return v->outcome_set || v->session->over ? give(v) : go(v, BWI_SAVE_MARK);
}

static enum bwi_step mark(struct bwi_save *v) {
    if (pausing(v)) return BWI_STEP_WAIT;
    if (!v->mark.ctx) {
        v->mark =
            (struct bwi_mark_put){.ctx = ctx_of(v), .id = v->id, .group = v->session->group, .status = v->error.status};
        bwi_format(v->mark.reason, sizeof v->mark.reason, "%.390s", v->error.message);
        bwi_mark_put_start(&v->mark, ctx_of(v)->loop, &v->task);
        return BWI_STEP_WAIT;
    }
    if (v->mark.task.running) return BWI_STEP_WAIT;
    if (v->outcome_set || v->session->over) return give(v);
    if (v->mark.task.error.status == 0) return go(v, BWI_SAVE_ABORT);
    if (++v->mark_failures >= MARK_TRIES || v->session->closing) {
        bwi_session_note(v->session, v->mark.task.error.status, v->step, "the other ranks could not be told%s: %s",
                         v->session->closing ? "" : " yet", v->mark.task.error.message);
        return leave_untold(v);
    }
    v->mark.ctx = NULL;
    return pause_save(v);
}

static int abort_entry(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    struct bwi_save *v = user;
    if (!a->head) return 1;
    char note[256];
    bwi_format(note, sizeof note, "rank %u: %.200s", v->session->cfg.rank, v->error.message);
    int rc = bwi_policy_abort(a, &v->id, note, ret, err);
    if (rc != BW_E_STATE) return rc;
    bw_error_clear(err);
    return 1;
}

/* Of the abort, the session's head says what became of the save, or the follower does, unless it was this save that
 * closed it: then it is told by itself. A try that is ahead of the history is aborted after the lower ones. */
static enum bwi_step aborted(struct bwi_save *v) {
    struct bwi_decide *d = &v->decide;
    const bool failed = d->task.error.status < 0;
    const enum bwi_fate fate = bwi_policy_fate(d->head.found ? &d->head.entry : NULL, &v->id);
    if (failed)
        bwi_session_note(v->session, d->task.error.status, v->step, "the abort could not be entered: %s",
                         d->task.error.message);
    if (d->created) v->never_live = v->outcome_set = true;
    if (!failed) bwi_session_new_head(v->session, &d->head); /* else it need not be durable */
    if (v->outcome_set) return give(v);
    return failed || fate == BWI_FATE_AHEAD ? leave_untold(v) : go(v, BWI_SAVE_HEAR);
}

static enum bwi_step abort_save(struct bwi_save *v) {
    if (!v->decide.ctx) {
        uint64_t patience = 30 * BWI_NS_PER_S;
        v->decide =
            (struct bwi_decide){.ctx = ctx_of(v), .next = abort_entry, .user = v, .deadline_ns = now(v) + patience};
        bwi_decide_start(&v->decide, ctx_of(v)->loop, &v->task);
        return BWI_STEP_WAIT;
    }
    return v->decide.task.running ? BWI_STEP_WAIT : aborted(v);
}

/* It may have been committed, and have left the lists again. */
static enum bwi_step hear(struct bwi_save *v) {
    const struct bwi_session *s = v->session;
    if (v->outcome_set) return give(v);
    const bool known = s->head.found && bwi_policy_fate(&s->head.entry, &v->id) == BWI_FATE_DEAD;
    if (!s->giving_up && !known && bwi_follow_running(s)) return BWI_STEP_WAIT;
    become_unknown(v, "the history has closed it, and what it said of it was not read");
    return BWI_STEP_END;
}

void bwi_save_outcome(struct bwi_save *v, bool committed, int status, const char *why) {
    if (v->outcome_set) return;
    v->outcome_set = true;
    v->committed = committed;
    /* Any other status says less: a new attempt may go on from it, or it was committed and has left the log. */
    v->never_live = !committed && (status == BW_E_ABORTED || status == BW_E_COVERAGE);
    if (committed) {
        bw_error_clear(&v->error);
        bwi_session_level(v, BW_COMMITTED);
    } else if (v->error.status == 0 || status == BW_E_UNKNOWN || v->copy_lost) {
        const struct bw_error first = v->error;
        bw_error_clear(&v->error);
        bwi_error_set(&v->error, status, "step %llu %s: %s%s%.200s", (unsigned long long)v->step,
                      status == BW_E_UNKNOWN ? "may have been committed or not" : "was not committed", why,
                      v->copy_lost ? "; before that: " : "", v->copy_lost ? first.message : "");
    }
    /* A save that is being described is not stopped under its caller's hands: its start fails. */
    if (v->state == BWI_SAVE_BEGUN) return;
    if (v->state < BWI_SAVE_STOP) v->state = BWI_SAVE_STOP;
    bwi_task_wake(&v->task);
}

static enum bwi_step save_step(struct bwi_task *t) {
    struct bwi_save *v = bwi_container_of(t, struct bwi_save, task);
    if (t->cancel && v->state < BWI_SAVE_STOP) v->state = BWI_SAVE_STOP;
    if (v->clean.busy) return BWI_STEP_WAIT;
    switch (v->state) {
    case BWI_SAVE_BEGUN: return BWI_STEP_WAIT;
    case BWI_SAVE_FREEZE: return freeze(v);
    case BWI_SAVE_ROOM: return make_room(v);
    case BWI_SAVE_WRITE: return write_packs(v);
    case BWI_SAVE_PUBLISH: return publish(v);
    case BWI_SAVE_TIDY: return tidy(v);
    case BWI_SAVE_QUEUE: return queue(v);
    case BWI_SAVE_DRAIN: return drained(v);
    case BWI_SAVE_PENDING: return pending(v);
    case BWI_SAVE_STOP: return stop(v);
    case BWI_SAVE_CLEAN: return clean(v);
    case BWI_SAVE_MARK: return mark(v);
    case BWI_SAVE_ABORT: return abort_save(v);
    case BWI_SAVE_HEAR: return hear(v);
    case BWI_SAVE_GIVE: return bwi_save_give(v);
    case BWI_SAVE_ENDED: break;
    }
    return BWI_STEP_END;
}

static void save_ended(struct bwi_task *t) {
    bwi_session_save_ended(bwi_container_of(t, struct bwi_save, task));
}

static void start_task(struct bwi_save *v) {
    v->task.step = save_step;
    v->task.ended = save_ended;
    v->task.name = "save";
    v->start_ns = now(v);
    bwi_backoff_reset(&v->backoff, ctx_of(v));
    bwi_task_start(ctx_of(v)->loop, &v->task, NULL);
}

void bwi_save_fail(struct bwi_save *v, const struct bw_error *e) {
    if (v->state >= BWI_SAVE_STOP) return;
    bwi_error_copy(&v->error, e);
    v->state = BWI_SAVE_STOP;
    if (v->task.running)
        bwi_task_wake(&v->task);
    else
        start_task(v);
}

/* --- called by the owner of the session ---------------------------------------------------------------------- */

/* The larger of this rank's last try of the step plus one, and the try that the history says is current. */
static uint32_t next_try(const struct bwi_session *s, uint64_t step) {
    uint32_t tri = s->head.found ? bwi_policy_try(&s->head.entry, step) : 0;
    for (uint32_t i = 0; i < s->begun_count; i++)
        if (s->begun[i].step == step && s->begun[i].tri + 1 > tri) tri = s->begun[i].tri + 1;
    return tri;
}

static void remember_try(struct bwi_session *s, uint64_t step, uint32_t tri) {
    if (s->begun_count > 0 && s->begun[0].step == step) { /* steps rise: its last try is the first one here */
        s->begun[0].tri = tri;
        return;
    }
    const uint32_t cap = sizeof s->begun / sizeof *s->begun;
    uint32_t keep = s->begun_count < cap ? s->begun_count : cap - 1;
    memmove(s->begun + 1, s->begun, keep * sizeof *s->begun);
    s->begun[0] = (struct bwi_begun){step, tri};
    s->begun_count = keep + 1;
}

static struct bwi_id begin_try(struct bwi_session *s, uint64_t step) {
    const struct bwi_id id = {.step = step, .attempt = s->attempt, .nonce = s->nonce, .tri = next_try(s, step)};
    remember_try(s, step, id.tri);
    s->highest_step = step;
    s->highest_set = true;
    return id;
}

int bwi_session_may_begin(struct bwi_session *s, uint64_t step, struct bw_error *err) {
    if (s->over) {
        bwi_error_copy(err, &s->over_error);
        return s->over_error.status;
    }
    if (s->closing) return bwi_error_set(err, BW_E_STATE, "the checkpointer is closing");
    if (step > BW_STEP_MAX)
        return bwi_error_set(err, BW_E_INVALID, "step %llu is above the greatest step %llu", (unsigned long long)step,
                             (unsigned long long)BW_STEP_MAX);
    if (s->highest_set && step < s->highest_step)
        return bwi_error_set(err, BW_E_REFUSED,
                             "step %llu is below step %llu, which was begun before: steps rise within a launch",
                             (unsigned long long)step, (unsigned long long)s->highest_step);
    if (s->resume.from_checkpoint && step <= s->resume.id.step)
        return bwi_error_set(err, BW_E_REFUSED, "step %llu is not above step %llu, from which this launch went on",
                             (unsigned long long)step, (unsigned long long)s->resume.id.step);
    if (s->head.found && s->head.entry.h_set && step <= s->head.entry.h)
        return bwi_error_set(err, BW_E_REFUSED, "step %llu is not above step %llu, which is committed",
                             (unsigned long long)step, (unsigned long long)s->head.entry.h);
    for (const struct bwi_save *v = s->saves; v; v = v->next)
        if (v->step == step && !v->outcome_set && v->error.status == 0)
            return bwi_error_set(err, BW_E_STATE, "step %llu is being saved", (unsigned long long)step);
    return 0;
}

int bwi_session_begin(struct bwi_session *s, uint64_t step, struct bwi_save **ret, struct bw_error *err) {
    int rc = bwi_session_may_begin(s, step, err);
    if (rc < 0) return rc;
    struct bwi_save *v = bwi_calloc(1, sizeof *v);
    if (!v) return bwi_error_nomem(err, sizeof *v, "save");
    v->session = s;
    v->step = step;
    v->id = begin_try(s, step);
    v->state = BWI_SAVE_BEGUN;
    v->begun_ns = v->start_ns = now(v);
    bwi_save_recall(v);
    struct bwi_save **at = &s->saves;
    while (*at) at = &(*at)->next;
    *at = v;
    s->stats.saves_begun++;
    bwi_session_stop_probe(s);
    *ret = v;
    return 0;
}

int bwi_session_start(struct bwi_save *v, struct bw_error *err) {
    struct bwi_session *s = v->session;
    struct bw_error e = BW_ERROR_INIT;
    if (v->started || v->state != BWI_SAVE_BEGUN)
        return bwi_error_set(err, BW_E_STATE, "step %llu was started already", (unsigned long long)v->step);
    v->started = true;
    v->start_ns = now(v);
    if (v->outcome_set || v->error.status) e = v->error;
    const bool same = bwi_plan_fits(&v->plan, &v->description);
    if (e.status == 0 && !same) bwi_description_own(&v->description, &e);
    if (e.status == 0 && !s->cfg.cow && bwi_save_plan(v, &e) == 0) bwi_save_planned(v);
    if (e.status < 0) {
        bwi_error_stage(&e, BW_STAGE_PLAN);
        bwi_error_wrap(&e, "save step %llu", (unsigned long long)v->step);
        v->reported = true;
        bwi_save_fail(v, &e);
        bwi_error_copy(err, &e);
        return e.status;
    }
    v->stats.described_bytes = v->description.bytes;
    v->stats.tensors = v->description.tensor_count;
    v->state = s->cfg.cow ? BWI_SAVE_FREEZE : BWI_SAVE_ROOM;
    uint64_t started = v->start_ns;
    start_task(v);
    v->start_ns = started; /* planning is part of the stall */
    return 0;
}

void bwi_session_cancel(struct bwi_save *v) {
    struct bw_error e = BW_ERROR_INIT;
    if (v->cancelled || v->state >= BWI_SAVE_STOP) return;
    v->cancelled = true;
    bwi_error_set(&e, BW_E_CANCELLED, "save step %llu: cancelled by the caller", (unsigned long long)v->step);
    bwi_save_fail(v, &e);
}

static void save_free(struct bwi_save *v) {
    bwi_pack_write_fini(&v->write);
    bwi_save_remember(v);
    bwi_buf_fini(&v->placement);
    bwi_buf_fini(&v->content);
    bwi_call_fini(&v->clean);
    bwi_decide_fini(&v->decide);
    bwi_head_fini(&v->give_head);
    bwi_free(v);
}

void bwi_session_release(struct bwi_save *v) {
    v->released = true;
    if (v->state == BWI_SAVE_BEGUN) {
        struct bw_error e = BW_ERROR_INIT;
        bwi_error_set(&e, BW_E_CANCELLED, "save step %llu: dropped before it was started", (unsigned long long)v->step);
        v->reported = true;
        bwi_save_fail(v, &e);
    }
    if (v->state != BWI_SAVE_ENDED) return;
    struct bwi_save **at = &v->session->saves;
    while (*at && *at != v) at = &(*at)->next;
    if (*at) *at = v->next;
    save_free(v);
}

/* No save: there may be any number of them while the authority does not answer. */
void bwi_session_skip(struct bwi_session *s, uint64_t step) {
    struct bw_error e = BW_ERROR_INIT;
    if (bwi_session_may_begin(s, step, &e) < 0) return;
    const struct bwi_id id = begin_try(s, step);
    struct bw_event ended = {.type = BW_EVENT_SAVE_ENDED, .step = step, .status = BW_E_SKIPPED};
    bwi_format(ended.message, sizeof ended.message, "skipped by rank %u", s->cfg.rank);
    s->stats.saves_skipped++;
    bwi_session_owe(s, &id, s->group, BW_E_SKIPPED, ended.message, true);
    if (s->event) s->event(s->user, &ended);
}
