/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at groups that are marked as damaged. A batch of them at a time goes all the way to the removal of their
 * marks, so a look that is cut short has saved the next one that much. */
#include "checkpoint/marked.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/mend_private.h"

#define BATCH 4u /* as many as verify looks at side by side */
/* Looks at one group: its metadata, then its packs; once more for what damages while it is mended. */
#define ROUNDS 3u

enum marked_state {
    MARKED_MANIFEST,
    MARKED_MANIFEST_READ,
    MARKED_BATCH,
    MARKED_VERIFY,
    MARKED_VERIFIED,
    MARKED_MEND,
    MARKED_MENDED,
    MARKED_UNMARK,
    MARKED_UNMARKED,
    MARKED_END,
};

struct bwi_marked_work {
    struct bwi_call call;
    struct bwi_manifest manifest;
    size_t at, len;        /* the batch in groups[] */
    uint32_t order[BATCH]; /* groups that are verified */
    size_t order_count;
    struct bwi_verify verify;
    struct bwi_findings found;
    struct bwi_mend_objects objects;
    size_t object, run;
    struct bwi_mend_group mend;
    unsigned round;
    uint64_t mended; /* in this round */
    size_t mark;
};

static enum bwi_step go(struct bwi_marked *m, enum marked_state to) {
    m->state = (int)to;
    return BWI_STEP_AGAIN;
}

static enum bwi_step fail(struct bwi_marked *m, const struct bw_error *e) {
    (void)bwi_error_copy(&m->task.error, e);
    return go(m, MARKED_END);
}

static struct bwi_store *authority(const struct bwi_marked *m) {
    return m->ctx->tier[BWI_TIER_REMOTE];
}

static enum bwi_step read_manifest(struct bwi_marked *m) {
    const struct bwi_key key = bwi_key_manifest(m->ctx->run, &m->id, &m->manifest);
    bwi_call_get(&m->w->call, &m->task, authority(m), key.s, BWI_MANIFEST_BYTES_MAX);
    m->state = MARKED_MANIFEST_READ;
    return BWI_STEP_WAIT;
}

static enum bwi_step manifest_read(struct bwi_marked *m) {
    struct bwi_marked_work *w = m->w;
    struct bw_error e = w->call.op.error;
    if (e.status == 0) (void)bwi_manifest_take(bwi_buf_span(&w->call.op.body), &m->manifest, &m->id, &w->manifest, &e);
    if (bwi_is_damage(e.status)) return go(m, MARKED_END);
    return e.status < 0 ? fail(m, &e) : go(m, MARKED_BATCH);
}

/* --- one batch ----------------------------------------------------------------------------------------------- */

static enum bwi_step next_batch(struct bwi_marked *m) {
    struct bwi_marked_work *w = m->w;
    bool bad = false;
    for (size_t i = w->at; i < w->at + w->len; i++) bad = bad || m->groups[i].bad[BWI_TIER_REMOTE];
    w->at += w->len;
    w->len = m->count - w->at < BATCH ? m->count - w->at : BATCH;
    if (w->len == 0 || (bad && m->stop_at_bad)) return go(m, MARKED_END);
    w->order_count = w->len;
    for (size_t i = 0; i < w->len; i++) w->order[i] = m->groups[w->at + i].group;
    w->round = 0;
    return go(m, MARKED_VERIFY);
}

static enum bwi_step verify(struct bwi_marked *m) {
    struct bwi_marked_work *w = m->w;
    bwi_findings_fini(&w->found);
    bwi_verify_fini(&w->verify);
    w->verify = (struct bwi_verify){.ctx = m->ctx,
                                    .id = m->id,
                                    .committed = m->pending == 0,
                                    .manifest = m->manifest,
                                    .groups = m->pending,
                                    .tiers = {m->held, !m->held || m->pending == 0},
                                    .only_groups = w->order,
                                    .only_group_count = w->order_count,
                                    .findings = &w->found};
    bwi_verify_start(&w->verify, m->task.loop, &m->task);
    return go(m, MARKED_VERIFIED);
}

static bool is_among(const uint32_t *list, size_t count, uint32_t group) {
    for (size_t i = 0; i < count; i++)
        if (list[i] == group) return true;
    return false;
}

/* Something in the authority could not be looked at: it is neither sound nor damaged. Where its key does not tell the
 * group, it may be that of any. */
static bool is_unsure(const struct bwi_marked *m, const struct bw_finding *f, uint32_t group) {
    struct bwi_key_parts parts;
    const bool here = strcmp(f->tier, bwi_tier_name(BWI_TIER_LOCAL)) == 0;
    if (f->severity < 2 || here || bwi_is_damage(f->status)) return false;
    const bool named = bwi_key_parse(f->object, &parts) && bwi_id_eq(&parts.id, &m->id) &&
                       parts.kind != BWI_KEY_LAYOUT && parts.kind != BWI_KEY_MANIFEST && parts.kind != BWI_KEY_INDEX;
    return !named || parts.group == group;
}

static void judge(struct bwi_marked *m, struct bwi_marked_group *g) {
    const struct bwi_marked_work *w = m->w;
    g->unsure = false;
    for (int t = 0; t < BWI_TIERS; t++) g->bad[t] = is_among(w->verify.bad_groups[t], w->verify.bad_count[t], g->group);
    for (size_t i = 0; i < w->found.count; i++) g->unsure = g->unsure || is_unsure(m, &w->found.list[i], g->group);
}

static enum bwi_step verified(struct bwi_marked *m) {
    struct bwi_marked_work *w = m->w;
    if (w->verify.task.running) return BWI_STEP_WAIT;
    if (w->verify.task.error.status < 0) return fail(m, &w->verify.task.error);
    for (size_t i = w->at; i < w->at + w->len; i++)
        if (is_among(w->order, w->order_count, m->groups[i].group)) judge(m, &m->groups[i]);
    w->mark = 0;
    if (m->pending > 0) return go(m, MARKED_BATCH);
    if (!m->held || w->round + 1 == ROUNDS) return go(m, MARKED_UNMARK);
    w->object = w->mended = 0;
    if (bwi_mend_objects_make(&w->objects, &w->found, &m->id, &w->manifest)) return go(m, MARKED_MEND);
    (void)bwi_error_nomem(&m->task.error, w->found.count * sizeof *w->objects.list, "what is damaged");
    return go(m, MARKED_END);
}

/* What was mended is looked at as a whole again: only that says that the group is sound. */
static enum bwi_step mended_all(struct bwi_marked *m) {
    struct bwi_marked_work *w = m->w;
    if (w->mended == 0) return go(m, MARKED_UNMARK);
    w->order_count = 0;
    for (size_t i = w->at; i < w->at + w->len; i++)
        if (m->groups[i].bad[BWI_TIER_REMOTE]) w->order[w->order_count++] = m->groups[i].group;
    w->round++;
    return go(m, MARKED_VERIFY);
}

static enum bwi_step mend(struct bwi_marked *m) {
    struct bwi_marked_work *w = m->w;
    const struct bwi_mend_objects *all = &w->objects;
    while (w->object < all->count &&
           (all->list[w->object].tier != BWI_TIER_REMOTE || all->list[w->object].group == BWI_MEND_NO_GROUP))
        w->object++;
    if (w->object == all->count) return mended_all(m);
    struct bwi_mend_object *o = &w->objects.list[w->object];
    const bool guest = !bwi_id_eq(&o->id, &m->id);
    const struct bwi_manifest_group *want =
        !guest && o->group < w->manifest.group_count ? &w->manifest.groups[o->group] : NULL;
    w->run = bwi_mend_objects_run(all, w->object);
    bwi_mend_group_fini(&w->mend);
    w->mend = (struct bwi_mend_group){.ctx = m->ctx,
                                      .tier = BWI_TIER_REMOTE,
                                      .id = o->id,
                                      .group = o->group,
                                      .guest = guest,
                                      .want_layout = want ? &want->layout : NULL,
                                      .want_content = want ? &want->content : NULL,
                                      .want_uuid = want ? &w->manifest.uuid : NULL,
                                      .want_whole = want ? &w->manifest : NULL,
                                      .objects = o,
                                      .count = w->run};
    bwi_mend_group_start(&w->mend, m->task.loop, &m->task);
    return go(m, MARKED_MENDED);
}

static enum bwi_step mended(struct bwi_marked *m) {
    struct bwi_marked_work *w = m->w;
    if (w->mend.task.running) return BWI_STEP_WAIT;
    if (w->mend.task.error.status < 0) return fail(m, &w->mend.task.error);
    for (size_t i = w->object; i < w->object + w->run; i++) {
        const struct bwi_mend_object *o = &w->objects.list[i];
        if (o->outcome == BWI_MEND_DONE) w->mended++;
        if (o->outcome == BWI_MEND_LOST && m->lost.status == 0)
            (void)bwi_error_set(&m->lost, o->why.status, "%.200s: %.200s", o->key, o->why.message);
    }
    m->mended += w->mended;
    w->object += w->run;
    return go(m, MARKED_MEND);
}

/* --- marks --------------------------------------------------------------------------------------------------- */

static enum bwi_step unmark(struct bwi_marked *m) {
    struct bwi_marked_work *w = m->w;
    while (w->mark < w->len) {
        const struct bwi_marked_group *g = &m->groups[w->at + w->mark++];
        if (g->bad[BWI_TIER_REMOTE] || g->unsure) continue;
        const struct bwi_key key = bwi_key_damaged(m->ctx->run, &m->id, g->group);
        bwi_call_prepare(&w->call, BWI_STORE_DELETE, key.s);
        bwi_call_submit(&w->call, &m->task, authority(m));
        m->state = MARKED_UNMARKED;
        return BWI_STEP_WAIT;
    }
    return go(m, MARKED_BATCH);
}

/* --- the task ------------------------------------------------------------------------------------------------ */

static enum bwi_step end(struct bwi_marked *m) {
    struct bwi_marked_work *w = m->w;
    if (m->task.error.status < 0) (void)bwi_error_wrap(&m->task.error, "looking at what is marked as damaged");
    if (w) {
        bwi_call_fini(&w->call);
        bwi_manifest_fini(&w->manifest);
        bwi_verify_fini(&w->verify);
        bwi_findings_fini(&w->found);
        bwi_mend_objects_fini(&w->objects);
        bwi_mend_group_fini(&w->mend);
        bwi_free(w);
    }
    m->w = NULL;
    return BWI_STEP_END;
}

/* true: it is to end, and nothing works for it any more. */
static bool is_over(struct bwi_marked *m) {
    struct bwi_marked_work *w = m->w;
    const bool late = bwi_loop_now_ns(m->task.loop) >= m->deadline_ns;
    if (!m->task.cancel && !late) return false;
    if (m->task.cancel)
        (void)bwi_error_set(&m->task.error, BW_E_CANCELLED, "cancelled");
    else
        (void)bwi_error_set(&m->task.error, BW_E_TIMEOUT,
                            "%zu of %zu groups were looked at by the deadline; the next launch goes on from there",
                            w->at, m->count);
    struct bwi_task *children[] = {&w->verify.task, &w->mend.task};
    bool idle = m->task.pending == 0;
    for (size_t i = 0; i < sizeof children / sizeof *children; i++) {
        if (!children[i]->running) continue;
        idle = false;
        if (!children[i]->cancel) bwi_task_cancel(children[i]);
    }
    return idle;
}

static enum bwi_step marked_step(struct bwi_task *t) {
    struct bwi_marked *m = bwi_container_of(t, struct bwi_marked, task);
    if (!m->w || m->state == MARKED_END || is_over(m)) return end(m);
    if (t->pending > 0) return BWI_STEP_WAIT;
    switch ((enum marked_state)m->state) {
    case MARKED_MANIFEST: return read_manifest(m);
    case MARKED_MANIFEST_READ: return manifest_read(m);
    case MARKED_BATCH: return next_batch(m);
    case MARKED_VERIFY: return verify(m);
    case MARKED_VERIFIED: return verified(m);
    case MARKED_MEND: return mend(m);
    case MARKED_MENDED: return mended(m);
    case MARKED_UNMARK:
    case MARKED_UNMARKED: /* a mark that stays is looked at again, that is all */
    case MARKED_END: break;
    }
    return unmark(m);
}

void bwi_marked_start(struct bwi_marked *m, struct bwi_loop *loop, struct bwi_task *parent) {
    m->task.step = marked_step;
    m->task.name = "marked";
    m->state = m->pending > 0 ? MARKED_BATCH : MARKED_MANIFEST;
    m->mended = 0;
    m->lost = (struct bw_error)BW_ERROR_INIT;
    bwi_task_start(loop, &m->task, parent);
    m->w = bwi_calloc(1, sizeof *m->w);
    if (m->w)
        bwi_task_wake_at(&m->task, m->deadline_ns);
    else
        (void)bwi_error_nomem(&m->task.error, sizeof *m->w, "what is marked as damaged");
}
