/* SPDX-License-Identifier: Apache-2.0 */
/* Deletes what is dead in one tier, one checkpoint after the other: summaries, data, the rest of its directory, so that
 * a crash leaves something that the next sweep finds. doc/flows/prune.md. */
#include "checkpoint/sweep.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/sweep_private.h"
#include <inttypes.h>
#include <string.h>

static enum bwi_step wait_in(struct bwi_sweep *s, enum bwi_sweep_state in) {
    s->state = (int)in;
    return BWI_STEP_WAIT;
}

enum bwi_step bwi_sweep_fail(struct bwi_sweep *s, const struct bw_error *e) {
    (void)bwi_error_copy(&s->task.error, e);
    return bwi_sweep_go(s, BWI_SWEEP_END);
}

void bwi_sweep_delete_prefix(struct bwi_sweep *s, struct bwi_call *call, const char *prefix) {
    bwi_call_prepare(call, BWI_STORE_DELETE_PREFIX, prefix);
    bwi_call_submit(call, &s->task, bwi_sweep_store(s));
}

static struct bwi_swept *current(const struct bwi_sweep *s) {
    return &s->w->list[s->w->at];
}

/* This one stays; the others need not wait for it. */
static enum bwi_step pass_over(struct bwi_sweep *s, const struct bw_error *e) {
    (void)bwi_error_copy(&s->w->first, e);
    s->w->at++;
    return bwi_sweep_go(s, BWI_SWEEP_NEXT);
}

/* ---- what is this one ---- */

static enum bwi_step next(struct bwi_sweep *s) {
    struct bwi_sweep_work *w = s->w;
    if (s->task.cancel) {
        (void)bwi_error_set(&s->task.error, BW_E_CANCELLED, "cancelled");
        return bwi_sweep_go(s, BWI_SWEEP_END);
    }
    if (w->at == w->count) return bwi_sweep_go(s, BWI_SWEEP_REST);
    bwi_free(w->groups);
    w->groups = NULL;
    w->group_count = 0;
    w->objects = w->bytes = 0;
    w->foreign = false;
    bw_error_clear(&w->now);
    if (!current(s)->in_checkpoints) return bwi_sweep_go(s, BWI_SWEEP_DELETE);
    const struct bwi_key groups = bwi_key_groups(s->ctx->run, &current(s)->id);
    const struct bwi_key checkpoint = bwi_key_checkpoint(s->ctx->run, &current(s)->id);
    bwi_call_list(&w->calls[0], &s->task, bwi_sweep_store(s), groups.s, NULL);
    bwi_call_list(&w->calls[1], &s->task, bwi_sweep_store(s), checkpoint.s, NULL);
    return wait_in(s, BWI_SWEEP_LOOKED);
}

static enum bwi_step looked(struct bwi_sweep *s) {
    struct bwi_sweep_work *w = s->w;
    const struct bwi_store_op *groups = &w->calls[0].op;
    const struct bwi_store_op *all = &w->calls[1].op;
    if (groups->error.status < 0) return pass_over(s, &groups->error);
    if (all->error.status < 0) return pass_over(s, &all->error);
    w->groups = bwi_calloc(groups->names.len + 1, sizeof *w->groups);
    if (w->groups == NULL) {
        (void)bwi_error_nomem(&s->task.error, groups->names.len * sizeof *w->groups, "a listing");
        return bwi_sweep_go(s, BWI_SWEEP_END);
    }
    for (size_t i = 0; i < groups->names.len; i++)
        if (bwi_names_group(&groups->names, i, false, &w->groups[w->group_count])) w->group_count++;
    w->objects = groups->names.len;
    for (size_t i = 0; i < all->names.len; i++) w->objects += all->names.name[i][strlen(all->names.name[i]) - 1] != '/';
    bwi_window_begin(&w->window);
    return bwi_sweep_go(s, BWI_SWEEP_SUMMARIES);
}

static bool send_summary(void *user, size_t i, struct bwi_call *call) {
    struct bwi_sweep *s = user;
    const struct bwi_key key = bwi_key_summary(s->ctx->run, &current(s)->id, s->w->groups[i]);
    bwi_call_get(call, &s->task, bwi_sweep_store(s), key.s, BWI_SUMMARY_BYTES_MAX);
    return true;
}

/* A damaged summary says nothing, so the id alone decides. One of a version that we do not know may say anything. */
static void take_summary(void *user, size_t i, struct bwi_store_op *op, struct bw_error *err) {
    struct bwi_sweep *s = user;
    struct bwi_sweep_work *w = s->w;
    struct bwi_summary m;
    (void)i;
    const int rc = op->error.status;
    if (rc == BW_E_NOTFOUND || rc == BW_E_CORRUPT || rc == BW_E_FORMAT) return;
    if (bwi_error_copy(err, &op->error) < 0) return;
    const int decoded = bwi_summary_decode(bwi_buf_span(&op->body), &m, NULL);
    if (decoded == BW_E_VERSION) w->foreign = true;
    if (decoded < 0) return;
    if (!bwi_policy_in_lineage(&w->head.entry, &m.uuid)) w->foreign = true;
    if (!bwi_add_u64(w->bytes, m.stored_bytes, &w->bytes)) w->bytes = UINT64_MAX;
    w->objects += m.pack_count + UINT64_C(2); /* and content and placement */
}

static enum bwi_step read_summaries(struct bwi_sweep *s) {
    static const struct bwi_window_ops ops = {send_summary, take_summary};
    const int rc = bwi_window_run(&s->w->window, s->w->group_count, &ops, s, &s->w->now);
    if (rc == 0) return BWI_STEP_WAIT;
    return rc < 0 ? pass_over(s, &s->w->now) : bwi_sweep_go(s, BWI_SWEEP_DELETE);
}

/* ---- deleting it ---- */

static void tell(struct bwi_sweep *s, uint32_t severity, int status, const char *what) {
    const struct bwi_swept *c = current(s);
    if (s->findings == NULL) return;
    char amount[32];
    bwi_text_bytes(s->w->bytes, amount, sizeof amount);
    const struct bwi_key key = bwi_key_checkpoint(s->ctx->run, &c->id);
    bwi_findings_add(s->findings, severity, status, bwi_tier_name(s->tier), &c->id, key.s, NULL,
                     "%s: %zu group%s, %" PRIu64 " object%s, %s", what, s->w->group_count,
                     s->w->group_count == 1 ? "" : "s", s->w->objects, s->w->objects == 1 ? "" : "s", amount);
}

static enum bwi_step done(struct bwi_sweep *s) {
    struct bwi_sweep_work *w = s->w;
    current(s)->gone = true;
    tell(s, 0, 0, s->dry_run ? "dead, would be deleted" : "dead, deleted");
    s->checkpoints++;
    s->objects += w->objects;
    s->bytes += w->bytes;
    w->at++;
    return bwi_sweep_go(s, BWI_SWEEP_NEXT);
}

static enum bwi_step judge(struct bwi_sweep *s) {
    struct bwi_sweep_work *w = s->w;
    const struct bwi_swept *c = current(s);
    if (w->foreign && !(c->dead && s->drop_foreign)) tell(s, 1, BW_E_FOREIGN, "of another life of this run, kept");
    if (!c->dead || (w->foreign && !s->drop_foreign)) {
        w->at++;
        return bwi_sweep_go(s, BWI_SWEEP_NEXT);
    }
    if (s->dry_run) return done(s);
    bwi_call_fini(&w->calls[0]);
    bwi_call_fini(&w->calls[1]);
    if (c->in_checkpoints) bwi_sweep_delete_prefix(s, &w->calls[0], bwi_key_groups(s->ctx->run, &c->id).s);
    return bwi_sweep_go(s, BWI_SWEEP_SUMMARIES_GONE);
}

static bool send_data(void *user, size_t i, struct bwi_call *call) {
    struct bwi_sweep *s = user;
    const struct bwi_swept *c = current(s);
    char id[BWI_ID_TEXT_BYTES];
    char key[sizeof(struct bwi_key) + BWI_ID_TEXT_BYTES];
    if (!bwi_sweep_has_ff(c, (unsigned)i)) return false;
    bwi_id_text(&c->id, id);
    (void)bwi_format(key, sizeof key, "%s%02zx/%s/", bwi_key_data(s->ctx->run).s, i, id);
    bwi_sweep_delete_prefix(s, call, key);
    return true;
}

static void take_data(void *user, size_t i, struct bwi_store_op *op, struct bw_error *err) {
    (void)user;
    (void)i;
    (void)bwi_error_copy(err, &op->error);
}

static enum bwi_step summaries_gone(struct bwi_sweep *s) {
    struct bwi_sweep_work *w = s->w;
    if (w->calls[0].op.error.status < 0) return pass_over(s, &w->calls[0].op.error);
    bwi_window_begin(&w->window);
    return bwi_sweep_go(s, BWI_SWEEP_DELETE_DATA);
}

static enum bwi_step delete_data(struct bwi_sweep *s) {
    static const struct bwi_window_ops ops = {send_data, take_data};
    struct bwi_sweep_work *w = s->w;
    const int rc = bwi_window_run(&w->window, BWI_FAN_OUT, &ops, s, &w->now);
    if (rc == 0) return BWI_STEP_WAIT;
    return rc < 0 ? pass_over(s, &w->now) : bwi_sweep_go(s, BWI_SWEEP_DATA_GONE);
}

static enum bwi_step data_gone(struct bwi_sweep *s) {
    const struct bwi_swept *c = current(s);
    if (c->in_checkpoints) bwi_sweep_delete_prefix(s, &s->w->calls[0], bwi_key_checkpoint(s->ctx->run, &c->id).s);
    return bwi_sweep_go(s, BWI_SWEEP_GONE);
}

static enum bwi_step gone(struct bwi_sweep *s) {
    const struct bw_error *e = &s->w->calls[0].op.error;
    return e->status < 0 ? pass_over(s, e) : done(s);
}

/* ---- the task ---- */

static enum bwi_step finish(struct bwi_sweep *s) {
    struct bwi_sweep_work *w = s->w;
    if (w != NULL) {
        (void)bwi_error_copy(&s->task.error, &w->first);
        bwi_head_fini(&w->head);
        bwi_call_fini(&w->calls[0]);
        bwi_call_fini(&w->calls[1]);
        bwi_call_fini(&w->sync);
        bwi_window_fini(&w->window);
        for (size_t i = 0; i < w->log_count; i++) bwi_entry_fini(&w->log[i]);
        bwi_free(w->log);
        bwi_free(w->list);
        bwi_free(w->groups);
        bwi_free(w);
    }
    s->w = NULL;
    (void)bwi_error_wrap(&s->task.error, "sweep of the %s tier", bwi_tier_name(s->tier));
    bwi_error_stage(&s->task.error, BW_STAGE_PRUNE);
    return BWI_STEP_END;
}

static enum bwi_step act(struct bwi_sweep *s) {
    switch (s->state) {
    case BWI_SWEEP_NEXT: return next(s);
    case BWI_SWEEP_LOOKED: return looked(s);
    case BWI_SWEEP_SUMMARIES: return read_summaries(s);
    case BWI_SWEEP_DELETE: return judge(s);
    case BWI_SWEEP_SUMMARIES_GONE: return summaries_gone(s);
    case BWI_SWEEP_DELETE_DATA: return delete_data(s);
    case BWI_SWEEP_DATA_GONE: return data_gone(s);
    default: break;
    }
    return gone(s);
}

/* In these states answers are taken while others are still on their way. */
static bool is_windowed(int state) {
    return state == BWI_SWEEP_DATA || state == BWI_SWEEP_LOG_READ || state == BWI_SWEEP_SUMMARIES ||
           state == BWI_SWEEP_DELETE_DATA;
}

static enum bwi_step sweep_step(struct bwi_task *t) {
    struct bwi_sweep *s = bwi_container_of(t, struct bwi_sweep, task);
    if (t->pending > 0 && !is_windowed(s->state)) return BWI_STEP_WAIT;
    if (s->state < BWI_SWEEP_NEXT) return bwi_sweep_find(s);
    if (s->state < BWI_SWEEP_REST) return act(s);
    if (s->state < BWI_SWEEP_END) return bwi_sweep_rest(s);
    return finish(s);
}

void bwi_sweep_start(struct bwi_sweep *s, struct bwi_loop *loop, struct bwi_task *parent) {
    s->task.step = sweep_step;
    s->task.name = "sweep";
    s->state = BWI_SWEEP_HEAD;
    s->checkpoints = s->objects = s->bytes = 0;
    bwi_task_start(loop, &s->task, parent);
    s->w = bwi_calloc(1, sizeof *s->w);
    if (s->w == NULL) {
        (void)bwi_error_nomem(&s->task.error, sizeof *s->w, "a sweep");
        s->state = BWI_SWEEP_END;
        return;
    }
    s->w->read = (struct bwi_head_read){.ctx = s->ctx, .head = &s->w->head};
    bwi_head_read_start(&s->w->read, loop, &s->task);
}
