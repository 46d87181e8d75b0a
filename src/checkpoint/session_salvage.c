/* SPDX-License-Identifier: Apache-2.0 */
/* Salvage: what this launch went on from was not committed yet, and this node holds some of its groups. They are
 * brought into the authority, first of all, so that it can be committed. doc/flows/drain.md. Its failure holds nothing
 * else up. */
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/session_private.h"

enum salvage_state { SALVAGE_NEXT, SALVAGE_DRAIN, SALVAGE_MARK };

struct bwi_salvage {
    struct bwi_task task;
    struct bwi_session *s;
    enum salvage_state state;
    struct bwi_id id;
    bool fan_out;
    uint32_t *groups; /* held here */
    size_t count, at;
    uint64_t retry_ns;
    uint32_t failures;
    struct bwi_drain drain;
    struct bwi_mark_put mark;
    struct bwi_backoff backoff;
};

static bool still_open(const struct bwi_salvage *v) {
    const struct bwi_from *f = &v->s->head.entry.from;
    return f->set && f->open && bwi_id_eq(&f->id, &v->id);
}

static enum bwi_step next_group(struct bwi_salvage *v) {
    if (v->task.cancel || v->at == v->count || !still_open(v)) return BWI_STEP_END;
    if (bwi_loop_now_ns(v->task.loop) < v->retry_ns) {
        bwi_task_wake_at(&v->task, v->retry_ns);
        return BWI_STEP_WAIT;
    }
    v->drain = (struct bwi_drain){.ctx = v->s->ctx, .id = v->id, .group = v->groups[v->at], .fan_out = v->fan_out};
    v->state = SALVAGE_DRAIN;
    bwi_drain_start(&v->drain, v->task.loop, &v->task);
    return BWI_STEP_WAIT;
}

/* A local copy that is damaged is no copy, and neither is one of another content than the authority's: the checkpoint
 * cannot be completed from here, and the others are told. */
static enum bwi_step give_up_group(struct bwi_salvage *v, const struct bw_error *e) {
    v->mark = (struct bwi_mark_put){.ctx = v->s->ctx, .id = v->id, .group = v->groups[v->at], .status = e->status};
    bwi_format(v->mark.reason, sizeof v->mark.reason, "%.390s", e->message);
    v->state = SALVAGE_MARK;
    bwi_mark_put_start(&v->mark, v->task.loop, &v->task);
    return BWI_STEP_WAIT;
}

static enum bwi_step drained(struct bwi_salvage *v) {
    const struct bw_error *e = &v->drain.task.error;
    if (v->drain.task.running) {
        if (v->task.cancel && !v->drain.task.cancel) bwi_task_cancel(&v->drain.task);
        return BWI_STEP_WAIT;
    }
    v->state = SALVAGE_NEXT;
    if (e->status == 0) {
        if (!v->drain.was_complete)
            bwi_session_note(v->s, 0, v->id.step, "group %u of step %llu was brought into the authority",
                             v->groups[v->at], (unsigned long long)v->id.step);
        v->failures = 0;
        v->at++;
        bwi_committer_wake(v->s);
        return BWI_STEP_AGAIN;
    }
    if (v->task.cancel) return BWI_STEP_END;
    if (e->status == BW_E_CORRUPT || e->status == BW_E_FORMAT || e->status == BW_E_EXISTS) return give_up_group(v, e);
    if (e->status == BW_E_NOTFOUND) { /* another rank of this node has evicted or finished it */
        v->at++;
        return BWI_STEP_AGAIN;
    }
    if (bwi_session_tells(++v->failures))
        bwi_session_note(v->s, e->status, v->id.step, "salvage is tried again: %s", e->message);
    v->retry_ns = bwi_backoff_next(&v->backoff, v->s->ctx, bwi_loop_now_ns(v->task.loop));
    return BWI_STEP_AGAIN;
}

static enum bwi_step marked(struct bwi_salvage *v) {
    if (v->mark.task.running) return BWI_STEP_WAIT;
    if (v->mark.task.error.status < 0)
        bwi_session_owe(v->s, &v->id, v->mark.group, v->mark.status, v->mark.reason, false);
    v->at++;
    v->state = SALVAGE_NEXT;
    bwi_committer_wake(v->s);
    return BWI_STEP_AGAIN;
}

static enum bwi_step salvage_step(struct bwi_task *t) {
    struct bwi_salvage *v = bwi_container_of(t, struct bwi_salvage, task);
    switch (v->state) {
    case SALVAGE_NEXT: return next_group(v);
    case SALVAGE_DRAIN: return drained(v);
    case SALVAGE_MARK: break;
    }
    return marked(v);
}

struct bwi_salvage *bwi_salvage_new(void) {
    return bwi_calloc(1, sizeof(struct bwi_salvage));
}

void bwi_salvage_free(struct bwi_salvage *v) {
    if (v) bwi_free(v->groups);
    bwi_free(v);
}

int bwi_salvage_hold(struct bwi_session *s, const struct bwi_summary *held, size_t count, struct bw_error *err) {
    struct bwi_salvage *v = s->salvage;
    if (!s->resume.from_checkpoint || s->resume.committed || count == 0) return 0;
    v->groups = bwi_calloc(count, sizeof *v->groups);
    if (!v->groups) return bwi_error_nomem(err, count * sizeof *v->groups, "salvage");
    /* Ranks that share a disk all see all of it: each begins with its own group. */
    for (size_t i = 0; i < count; i++) {
        if (!bwi_id_eq(&held[i].id, &s->resume.id)) continue;
        v->groups[v->count++] = held[i].group;
        if (held[i].group != s->group) continue;
        v->groups[v->count - 1] = v->groups[0];
        v->groups[0] = s->group;
    }
    v->id = s->resume.id;
    v->fan_out = s->resume.fan_out;
    return 0;
}

void bwi_salvage_start(struct bwi_session *s) {
    struct bwi_salvage *v = s->salvage;
    if (v->count == 0) return;
    v->s = s;
    v->task.step = salvage_step;
    v->task.name = "salvage";
    v->state = SALVAGE_NEXT;
    bwi_backoff_reset(&v->backoff, s->ctx);
    bwi_task_start(s->ctx->loop, &v->task, NULL);
}

void bwi_salvage_stop(struct bwi_session *s) {
    if (s->salvage->task.running) bwi_task_cancel(&s->salvage->task);
}

bool bwi_salvage_running(const struct bwi_session *s) {
    return s->salvage->task.running;
}
