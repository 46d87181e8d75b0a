/* SPDX-License-Identifier: Apache-2.0 */
/* Mending what is damaged of one group on one tier. Only bytes that have been verified are ever written: a pack goes
 * through bwi_pack_copy, which holds it against its placement on the way, and is read back afterwards; the other
 * objects are what the other tier's summary names.
 *
 * Layout and content are the same on every tier. A placement is each tier's own: while it is sound, the tier's packs
 * are mended one by one. Where the placement or the summary that names it is lost, the other tier's take their place,
 * after all packs that they name: their keys are valid here too. Packs under other names stay; a sweep takes them. */
#include "base/error.h"
#include "checkpoint/mend_private.h"

enum group_state {
    GROUP_READ,
    GROUP_NEXT, /* damaged pack */
    GROUP_TOLD, /* is a compressed one what its placement says? */
    GROUP_COPIED,
    GROUP_CHECKED,
    GROUP_TAKE, /* the next pack of the other tier */
    GROUP_TAKEN,
    GROUP_PART,   /* the next metadata object */
    GROUP_LOOKED, /* at what is there */
    GROUP_PUT,
    GROUP_SETTLE,
};

enum { LAYOUT, CONTENT, PLACEMENT, SUMMARY, PARTS }; /* the summary last: it says that all is there */

static enum bwi_step go(struct bwi_mend_group *g, enum group_state to) {
    g->state = (int)to;
    return BWI_STEP_AGAIN;
}

static enum bwi_tier source(const struct bwi_mend_group *g) {
    return g->tier == BWI_TIER_LOCAL ? BWI_TIER_REMOTE : BWI_TIER_LOCAL;
}

static const struct bw_error *read_error(const struct bwi_mend_group *g, enum bwi_tier t) {
    return &g->read[t].task.error;
}

static bool is_fatal(int status) {
    return status == BW_E_NOMEM || status == BW_E_CANCELLED;
}

static enum bwi_step fail(struct bwi_mend_group *g, const struct bw_error *e) {
    (void)bwi_error_copy(&g->task.error, e);
    return go(g, GROUP_SETTLE);
}

/* Everything that is still open comes to the same. */
static enum bwi_step close_all(struct bwi_mend_group *g, enum bwi_mend_outcome outcome, const struct bw_error *why) {
    for (size_t i = 0; i < g->count; i++) {
        if (g->objects[i].outcome != BWI_MEND_OPEN) continue;
        g->objects[i].outcome = outcome;
        if (why != NULL) g->objects[i].why = *why;
    }
    return go(g, GROUP_SETTLE);
}

static enum bwi_step lose_all(struct bwi_mend_group *g, const struct bw_error *why) {
    return is_fatal(why->status) ? fail(g, why) : close_all(g, BWI_MEND_LOST, why);
}

/* ---- what both tiers have ---- */

static void read_tier(struct bwi_mend_group *g, enum bwi_tier t) {
    g->read[t] = (struct bwi_meta_read){.ctx = g->ctx,
                                        .tier = t,
                                        .id = g->id,
                                        .group = g->group,
                                        .want_layout = g->want_layout,
                                        .want_content = g->want_content,
                                        .want_uuid = g->want_uuid,
                                        .want_whole = g->want_whole,
                                        .meta = &g->meta[t]};
    bwi_meta_read_start(&g->read[t], g->task.loop, &g->task);
}

static bool is_listed(const struct bwi_mend_group *g, enum bwi_key_kind kind) {
    for (size_t i = 0; i < g->count; i++) {
        if (g->objects[i].kind == kind) return true;
    }
    return false;
}

static bool same_placement(const struct bwi_mend_group *g) {
    return g->meta[0].summary_ok && g->meta[1].summary_ok &&
           bwi_sha_eq(&g->meta[0].summary.placement, &g->meta[1].summary.placement);
}

static enum bwi_step begin_taking(struct bwi_mend_group *g) {
    g->taking = true;
    g->pack = 0;
    g->over = false;
    return go(g, GROUP_TAKE);
}

/* The metadata here is damaged. */
static enum bwi_step begin_metadata(struct bwi_mend_group *g) {
    const struct bw_error *e = read_error(g, source(g));
    if (e->status < 0) return lose_all(g, e);
    const bool lost = !g->meta[g->tier].summary_ok || is_listed(g, BWI_KEY_SUMMARY) ||
                      (is_listed(g, BWI_KEY_PLACEMENT) && !same_placement(g));
    if (lost) return begin_taking(g);
    g->part = LAYOUT;
    return go(g, GROUP_PART);
}

static enum bwi_step group_read(struct bwi_mend_group *g) {
    if (g->read[0].task.running || g->read[1].task.running) return BWI_STEP_WAIT;
    const struct bw_error *here = read_error(g, g->tier);
    const struct bw_error *there = read_error(g, source(g));
    if (is_fatal(here->status)) return fail(g, here);
    if (is_fatal(there->status)) return fail(g, there);
    g->at = 0;
    if (g->guest || here->status == 0) return go(g, GROUP_NEXT);
    if (g->tier == BWI_TIER_LOCAL && here->status == BW_E_NOTFOUND) return close_all(g, BWI_MEND_GONE, NULL);
    if (!bwi_is_damage(here->status)) return close_all(g, BWI_MEND_LOST, here);
    return begin_metadata(g);
}

/* ---- damaged packs, one by one ---- */

static bool find_pack(const struct bwi_group_meta *m, const char *key, uint32_t *ret) {
    return m->meta_ok && bwi_pack_find(&m->placement, key, ret);
}

static enum bwi_step start_copy(struct bwi_mend_group *g, const struct bwi_placement *p, uint32_t pack, bool over,
                                enum group_state then) {
    struct bw_error e = BW_ERROR_INIT;
    bwi_pack_copy_fini(&g->copy);
    g->copy = (struct bwi_pack_copy){.ctx = g->ctx,
                                     .from = g->ctx->tier[source(g)],
                                     .to = g->ctx->tier[g->tier],
                                     .placement = p,
                                     .pack = pack,
                                     .verify_only = g->dry_run,
                                     .replace = over};
    if (bwi_pack_copy_start(&g->copy, &g->task, &e) < 0) return fail(g, &e);
    return go(g, then);
}

/* Looks at the pack as it is on this tier. */
static enum bwi_step start_check(struct bwi_mend_group *g, const struct bwi_placement *p, uint32_t pack,
                                 enum group_state then) {
    struct bw_error e = BW_ERROR_INIT;
    bwi_pack_copy_fini(&g->copy);
    g->copy = (struct bwi_pack_copy){
        .ctx = g->ctx, .from = g->ctx->tier[g->tier], .placement = p, .pack = pack, .verify_only = true};
    if (bwi_pack_copy_start(&g->copy, &g->task, &e) < 0) return fail(g, &e);
    return go(g, then);
}

static bool is_compressed(const struct bwi_placement *p, uint32_t pack) {
    for (uint64_t i = 0; i < p->extent_count; i++) {
        if (p->places[i].pack == pack && p->places[i].codec != BWI_CODEC_RAW) return true;
    }
    return false;
}

static enum bwi_step end_pack(struct bwi_mend_group *g, const struct bw_error *why) {
    struct bwi_mend_object *o = &g->objects[g->at++];
    o->outcome = why == NULL ? BWI_MEND_DONE : BWI_MEND_LOST;
    if (why != NULL) o->why = *why;
    return go(g, GROUP_NEXT);
}

/* What this tier's own placement says about a pack comes first. */
static enum bwi_step group_next(struct bwi_mend_group *g) {
    struct bw_error e = BW_ERROR_INIT;
    uint32_t pack = 0;
    while (g->at < g->count && g->objects[g->at].kind != BWI_KEY_PACK) g->at++;
    if (g->at == g->count) return close_all(g, BWI_MEND_PASS, NULL);
    const char *key = g->objects[g->at].key;
    const struct bwi_group_meta *m = &g->meta[g->tier];
    if (!find_pack(m, key, &pack)) m = &g->meta[source(g)];
    if (!find_pack(m, key, &pack)) {
        (void)bwi_error_set(&e, BW_E_NOTFOUND, "no sound placement says what is in it");
        return end_pack(g, &e);
    }
    if (!is_compressed(&m->placement, pack)) return start_copy(g, &m->placement, pack, true, GROUP_COPIED);
    return start_check(g, &m->placement, pack, GROUP_TOLD);
}

/* Where the other tier keeps the same bytes in other packs, those and its placement can take the place of ours. */
static bool may_take(const struct bwi_mend_group *g, const struct bw_error *e) {
    return !g->guest && bwi_is_damage(e->status) && g->meta[source(g)].meta_ok && !same_placement(g);
}

/* The stored bytes of a compressed extent may be those that the placement names, and still not give what the content
 * names: then no copy of them helps, only another placement. */
static enum bwi_step group_told(struct bwi_mend_group *g) {
    if (g->copy.task.running) return BWI_STEP_WAIT;
    struct bw_error e = g->copy.task.error;
    if (is_fatal(e.status)) return fail(g, &e);
    if (e.status < 0) return start_copy(g, g->copy.placement, g->copy.pack, true, GROUP_COPIED);
    (void)bwi_error_set(&e, BW_E_CORRUPT, "it is stored as its placement says, and that does not give the content");
    return may_take(g, &e) ? begin_taking(g) : end_pack(g, &e);
}

static enum bwi_step group_copied(struct bwi_mend_group *g) {
    if (g->copy.task.running) return BWI_STEP_WAIT;
    const struct bw_error *e = &g->copy.task.error;
    if (is_fatal(e->status)) return fail(g, e);
    if (e->status < 0) return may_take(g, e) ? begin_taking(g) : end_pack(g, e);
    return g->dry_run ? end_pack(g, NULL) : start_check(g, g->copy.placement, g->copy.pack, GROUP_CHECKED);
}

static enum bwi_step group_checked(struct bwi_mend_group *g) {
    if (g->copy.task.running) return BWI_STEP_WAIT;
    struct bw_error e = g->copy.task.error;
    if (is_fatal(e.status)) return fail(g, &e);
    (void)bwi_error_wrap(&e, "damaged again after it was mended");
    return end_pack(g, e.status < 0 ? &e : NULL);
}

/* ---- the other tier's packs, all of them ---- */

/* Packs of other checkpoints and groups are theirs to mend; if one is not there, the next look at this group tells. */
static enum bwi_step group_take(struct bwi_mend_group *g) {
    const struct bwi_placement *p = &g->meta[source(g)].placement;
    while (g->pack < p->pack_count && !bwi_pack_is_own(p, g->pack, &g->id, g->group)) g->pack++;
    if (g->pack < p->pack_count) return start_copy(g, p, g->pack, g->over, GROUP_TAKEN);
    g->part = LAYOUT;
    return go(g, GROUP_PART);
}

static enum bwi_step group_taken(struct bwi_mend_group *g) {
    if (g->copy.task.running) return BWI_STEP_WAIT;
    const struct bw_error *e = &g->copy.task.error;
    if (e->status == BW_E_EXISTS && !g->over) { /* it is there with another size */
        g->over = true;
        return go(g, GROUP_TAKE);
    }
    if (e->status < 0) return lose_all(g, e);
    g->over = false;
    g->pack++;
    return go(g, GROUP_TAKE);
}

/* ---- metadata objects ---- */

static bool is_wanted(const struct bwi_mend_group *g) {
    if (g->part == PLACEMENT) return g->taking || same_placement(g);
    return g->part != SUMMARY || g->taking;
}

static struct bwi_key key_of(const struct bwi_mend_group *g) {
    const char *run = g->ctx->run;
    const struct bwi_summary *s = &g->meta[source(g)].summary;
    switch (g->part) {
    case LAYOUT: return bwi_key_layout(run, g->id.attempt, g->id.nonce, &s->layout);
    case CONTENT: return bwi_key_content(run, s->fan_out, &g->id, g->group);
    case PLACEMENT: return bwi_key_placement(run, s->fan_out, &g->id, g->group, s->writer);
    default: return bwi_key_summary(run, &g->id, g->group);
    }
}

static struct bwi_span bytes_of(const struct bwi_mend_group *g) {
    const struct bwi_group_meta *m = &g->meta[source(g)];
    switch (g->part) {
    case LAYOUT: return bwi_buf_span(&m->layout_bytes);
    case CONTENT: return bwi_buf_span(&m->content_bytes);
    case PLACEMENT: return bwi_buf_span(&m->placement_bytes);
    default: return bwi_buf_span(&g->summary);
    }
}

static enum bwi_step group_part(struct bwi_mend_group *g) {
    while (g->part < PARTS && !is_wanted(g)) g->part++;
    if (g->part == PARTS || g->dry_run) {
        g->anew = true;
        return close_all(g, BWI_MEND_DONE, NULL);
    }
    struct bw_error e = BW_ERROR_INIT;
    bwi_buf_reset(&g->summary);
    if (g->part == SUMMARY && bwi_summary_encode(&g->meta[source(g)].summary, &g->summary, &e) < 0) {
        return lose_all(g, &e);
    }
    const struct bwi_key key = key_of(g);
    bwi_call_get(&g->call, &g->task, g->ctx->tier[g->tier], key.s, bytes_of(g).len);
    return go(g, GROUP_LOOKED);
}

/* What is right already is not written again. */
static enum bwi_step group_looked(struct bwi_mend_group *g) {
    const struct bwi_store_op *op = &g->call.op;
    if (g->call.busy) return BWI_STEP_WAIT;
    if (op->error.status == 0 && bwi_span_eq(bwi_buf_span(&op->body), bytes_of(g))) {
        g->part++;
        return go(g, GROUP_PART);
    }
    if (op->error.status < 0 && !bwi_is_damage(op->error.status)) return lose_all(g, &op->error);
    const struct bwi_key key = key_of(g);
    bwi_call_prepare(&g->call, BWI_STORE_REPLACE, key.s);
    g->call.op.data = bytes_of(g);
    bwi_call_submit(&g->call, &g->task, g->ctx->tier[g->tier]);
    return go(g, GROUP_PUT);
}

static enum bwi_step group_put(struct bwi_mend_group *g) {
    if (g->call.busy) return BWI_STEP_WAIT;
    if (g->call.op.error.status < 0) return lose_all(g, &g->call.op.error);
    g->part++;
    return go(g, GROUP_PART);
}

/* ---- the machine ---- */

/* Tells those who work for us. true: none of them does. */
static bool stop_children(struct bwi_mend_group *g) {
    struct bwi_task *children[] = {&g->read[0].task, &g->read[1].task, &g->copy.task};
    bool idle = !g->call.busy;
    for (size_t i = 0; i < sizeof children / sizeof *children; i++) {
        if (children[i]->running) idle = false;
        if (children[i]->running && !children[i]->cancel) bwi_task_cancel(children[i]);
    }
    return idle;
}

static enum bwi_step group_step(struct bwi_task *t) {
    struct bwi_mend_group *g = bwi_container_of(t, struct bwi_mend_group, task);
    if (t->cancel && stop_children(g) && g->state != GROUP_SETTLE) {
        (void)bwi_error_set(&t->error, BW_E_CANCELLED, "mend: cancelled");
        g->state = GROUP_SETTLE;
    }
    switch ((enum group_state)g->state) {
    case GROUP_READ: return group_read(g);
    case GROUP_NEXT: return group_next(g);
    case GROUP_TOLD: return group_told(g);
    case GROUP_COPIED: return group_copied(g);
    case GROUP_CHECKED: return group_checked(g);
    case GROUP_TAKE: return group_take(g);
    case GROUP_TAKEN: return group_taken(g);
    case GROUP_PART: return group_part(g);
    case GROUP_LOOKED: return group_looked(g);
    case GROUP_PUT: return group_put(g);
    case GROUP_SETTLE: break;
    }
    return t->pending > 0 ? BWI_STEP_WAIT : BWI_STEP_END;
}

void bwi_mend_group_start(struct bwi_mend_group *g, struct bwi_loop *loop, struct bwi_task *parent) {
    g->task.step = group_step;
    g->task.name = "mend group";
    g->state = GROUP_READ;
    bwi_task_start(loop, &g->task, parent);
    if (g->ctx->tier[source(g)] == NULL) {
        struct bw_error e = BW_ERROR_INIT;
        (void)bwi_error_set(&e, BW_E_NOTFOUND, "there is no other tier to mend it from");
        (void)close_all(g, BWI_MEND_LOST, &e);
        return;
    }
    for (int tier = 0; tier < BWI_TIERS; tier++) read_tier(g, (enum bwi_tier)tier);
}

void bwi_mend_group_fini(struct bwi_mend_group *g) {
    bwi_pack_copy_fini(&g->copy);
    for (int t = 0; t < BWI_TIERS; t++) bwi_group_meta_fini(&g->meta[t]);
    bwi_buf_fini(&g->summary);
    bwi_call_fini(&g->call);
}
