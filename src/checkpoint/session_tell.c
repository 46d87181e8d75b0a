/* SPDX-License-Identifier: Apache-2.0 */
/* The teller: what this rank still has to tell the others, as long as the session lives. doc/flows/save.md.
 *
 * A step that is skipped, a try that it will never make, a save that has failed while the authority could not be
 * reached: each is a mark, and mostly an abort entry too. A mark that is lost for good would leave the others waiting;
 * and an abort that is lost would keep every further try of that step from being committed. So they are tried again,
 * one after the other, until they are done or the history has closed what they are about.
 *
 * Their number is bounded: of too many the one of the lowest step goes, which the commit of a later one ends too. */
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/session_private.h"

#define DEBTS_MAX         64u
#define ABORT_PATIENCE_NS (30 * BWI_NS_PER_S)

enum tell_state { TELL_NEXT, TELL_MARK, TELL_ABORT };

struct debt {
    struct bwi_id id;
    uint32_t group;
    int status;
    bool abort;  /* the entry too; else whoever waits for it enters that */
    bool marked; /* the mark is there */
    bool noted;  /* a failure was told */
    char reason[400];
};

struct bwi_teller {
    struct bwi_task task;
    struct bwi_session *s;
    enum tell_state state;
    struct debt debts[DEBTS_MAX]; /* ascending by id: of a step the lower try must be aborted first */
    size_t count, at;
    struct debt now; /* being told */
    struct bwi_mark_put mark;
    struct bwi_decide decide;
    struct bwi_backoff backoff;
    uint64_t wake_ns;
};

static struct debt *find(struct bwi_teller *t, const struct bwi_id *id, uint32_t group) {
    for (size_t i = 0; i < t->count; i++)
        if (bwi_id_eq(&t->debts[i].id, id) && t->debts[i].group == group) return &t->debts[i];
    return NULL;
}

static void drop(struct bwi_teller *t, size_t i) {
    t->count--;
    memmove(&t->debts[i], &t->debts[i + 1], (t->count - i) * sizeof t->debts[0]);
    if (t->at > i) t->at--;
}

static void drop_now(struct bwi_teller *t) {
    const struct debt *d = find(t, &t->now.id, t->now.group);
    if (d) drop(t, (size_t)(d - t->debts));
}

/* Nobody waits for it any more. */
static bool is_settled(const struct bwi_session *s, const struct bwi_id *id) {
    if (s->over) return true;
    const enum bwi_fate fate = bwi_policy_fate(s->head.found ? &s->head.entry : NULL, id);
    return fate != BWI_FATE_COMMITTABLE && fate != BWI_FATE_AHEAD;
}

static void drop_settled(struct bwi_teller *t) {
    for (size_t i = t->count; i-- > 0;)
        if (is_settled(t->s, &t->debts[i].id)) drop(t, i);
}

/* --- telling ------------------------------------------------------------------------------------------------- */

static enum bwi_step pause_at(struct bwi_teller *t) {
    t->state = TELL_NEXT;
    t->wake_ns = bwi_backoff_next(&t->backoff, t->s->ctx, bwi_loop_now_ns(t->task.loop));
    return BWI_STEP_AGAIN;
}

/* While the handle is being closed each is tried once more; when that is given up, none after a failure. */
static enum bwi_step failed(struct bwi_teller *t, const struct bw_error *e) {
    struct bwi_session *s = t->s;
    struct debt *d = find(t, &t->now.id, t->now.group);
    if (d && (!d->noted || s->closing))
        bwi_session_note(s, e->status, d->id.step, "the other ranks could not be told%s: %s", s->closing ? "" : " yet",
                         e->message);
    if (d) d->noted = true;
    if (t->task.cancel) t->count = 0;
    if (!s->closing) return pause_at(t);
    drop_now(t);
    t->state = TELL_NEXT;
    return BWI_STEP_AGAIN;
}

static enum bwi_step start_mark(struct bwi_teller *t) {
    t->mark = (struct bwi_mark_put){.ctx = t->s->ctx, .id = t->now.id, .group = t->now.group, .status = t->now.status};
    bwi_format(t->mark.reason, sizeof t->mark.reason, "%s", t->now.reason);
    t->state = TELL_MARK;
    bwi_mark_put_start(&t->mark, t->task.loop, &t->task);
    return BWI_STEP_WAIT;
}

static int abort_entry(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    const struct bwi_teller *t = user;
    char note[256];
    if (!a->head) return 1;
    bwi_format(note, sizeof note, "rank %u: %.200s", t->s->cfg.rank, t->now.reason);
    int rc = bwi_policy_abort(a, &t->now.id, note, ret, err);
    if (rc != BW_E_STATE) return rc;
    bw_error_clear(err);
    return 1;
}

static enum bwi_step start_abort(struct bwi_teller *t) {
    t->decide = (struct bwi_decide){.ctx = t->s->ctx,
                                    .next = abort_entry,
                                    .user = t,
                                    .deadline_ns = bwi_loop_now_ns(t->task.loop) + ABORT_PATIENCE_NS};
    t->state = TELL_ABORT;
    bwi_decide_start(&t->decide, t->task.loop, &t->task);
    return BWI_STEP_WAIT;
}

static enum bwi_step marked(struct bwi_teller *t) {
    if (t->mark.task.running) return BWI_STEP_WAIT;
    if (t->mark.task.error.status < 0) return failed(t, &t->mark.task.error);
    struct debt *d = find(t, &t->now.id, t->now.group);
    bwi_backoff_reset(&t->backoff, t->s->ctx);
    bwi_committer_wake(t->s);
    if (d) d->marked = true;
    if (t->now.abort) return start_abort(t);
    drop_now(t);
    t->state = TELL_NEXT;
    return BWI_STEP_AGAIN;
}

/* A try that is ahead of the history is aborted when the lower ones are. */
static enum bwi_step aborted(struct bwi_teller *t) {
    struct bwi_decide *d = &t->decide;
    if (d->task.running) return BWI_STEP_WAIT;
    struct bw_error e = d->task.error;
    const bool early = !d->created && d->head.found && bwi_policy_fate(&d->head.entry, &t->now.id) == BWI_FATE_AHEAD;
    if (e.status == 0) bwi_session_new_head(t->s, &d->head);
    bwi_decide_fini(d);
    if (e.status < 0) return failed(t, &e);
    if (early && !t->s->closing) return pause_at(t);
    drop_now(t);
    bwi_backoff_reset(&t->backoff, t->s->ctx);
    t->state = TELL_NEXT;
    return BWI_STEP_AGAIN;
}

static enum bwi_step next(struct bwi_teller *t) {
    drop_settled(t);
    if (t->count == 0) return BWI_STEP_END;
    if (!t->s->closing && bwi_loop_now_ns(t->task.loop) < t->wake_ns) {
        bwi_task_wake_at(&t->task, t->wake_ns);
        return BWI_STEP_WAIT;
    }
    if (t->at >= t->count) t->at = 0;
    t->now = t->debts[t->at++];
    return t->now.marked ? start_abort(t) : start_mark(t);
}

static enum bwi_step teller_step(struct bwi_task *task) {
    struct bwi_teller *t = bwi_container_of(task, struct bwi_teller, task);
    switch (t->state) {
    case TELL_NEXT: return next(t);
    case TELL_MARK: return marked(t);
    case TELL_ABORT: break;
    }
    return aborted(t);
}

/* --- called by the others ------------------------------------------------------------------------------------ */

static void insert(struct bwi_teller *t, const struct debt *d) {
    if (t->count == DEBTS_MAX) drop_settled(t);
    if (t->count == DEBTS_MAX) drop(t, 0);
    size_t i = t->count;
    while (i > 0 && bwi_id_cmp(&t->debts[i - 1].id, &d->id) > 0) i--;
    memmove(&t->debts[i + 1], &t->debts[i], (t->count - i) * sizeof t->debts[0]);
    t->debts[i] = *d;
    t->count++;
    if (i < t->at) t->at++;
}

void bwi_session_owe(struct bwi_session *s, const struct bwi_id *id, uint32_t group, int status, const char *reason,
                     bool abort) {
    struct bwi_teller *t = s->teller;
    struct debt *known = find(t, id, group);
    if (known) {
        known->abort = known->abort || abort;
        return;
    }
    struct debt d = {.id = *id, .group = group, .status = status, .abort = abort};
    bwi_format(d.reason, sizeof d.reason, "%.390s", reason);
    t->s = s;
    insert(t, &d);
    if (t->task.running) return;
    t->task.step = teller_step;
    t->task.name = "teller";
    t->state = TELL_NEXT;
    t->wake_ns = 0;
    bwi_backoff_reset(&t->backoff, s->ctx);
    bwi_task_start(s->ctx->loop, &t->task, NULL);
}

struct bwi_teller *bwi_teller_new(void) {
    return bwi_calloc(1, sizeof(struct bwi_teller));
}

void bwi_teller_free(struct bwi_teller *t) {
    if (t) bwi_decide_fini(&t->decide);
    bwi_free(t);
}

void bwi_teller_wake(struct bwi_session *s) {
    if (s->teller->task.running) bwi_task_wake(&s->teller->task);
}

void bwi_teller_stop(struct bwi_session *s) {
    if (s->teller->task.running) bwi_task_cancel(&s->teller->task);
}

bool bwi_teller_running(const struct bwi_session *s) {
    return s->teller->task.running;
}
