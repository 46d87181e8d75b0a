/* SPDX-License-Identifier: Apache-2.0 */
/* The committer of rank 0: looks at the checkpoints that are not committed, lowest step first, and commits or aborts
 * what is ripe. doc/flows/commit.md.
 *
 * One waiter looks for all ranks, with a period that grows while nothing happens. Nothing is lost when it dies: whoever
 * finds all summaries may commit. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/session_private.h"
#include "checkpoint/source.h"

/* A decision that the store does not take is told after so long, and tried again: a create that had no answer and an
 * entry that is created anew can only both be refused or one of them be there. */
#define COMMIT_PATIENCE_NS (30 * BWI_NS_PER_S)
/* So many failures in a row hold the later steps up: a commit of one of them would end the step that could not be
 * decided, complete as it may be. */
#define HOLDING_FAILURES 8u

enum committer_state { COMMITTER_SLEEP, COMMITTER_PICK, COMMITTER_LOOK };

struct target {
    struct bwi_id id;
    uint32_t groups, world;
    bool incomplete; /* at the last look of this round, for all that it could tell */
    bool complete;   /* all of its groups were there at some look of this round */
};

struct bwi_committer {
    struct bwi_task task;
    struct bwi_session *s;
    enum committer_state state;
    struct target targets[BWI_SAVES_MAX];
    size_t count, at;
    struct bwi_commit commit;
    bool started; /* commit is in use */
    bool asked;
    uint32_t failures; /* since something was decided */
    uint64_t wake_ns;
    struct bwi_backoff backoff;
};

static void add_target(struct bwi_committer *c, const struct bwi_id *id, uint32_t groups, uint32_t world) {
    if (c->count == BWI_SAVES_MAX) return;
    size_t at = c->count++;
    for (; at > 0 && bwi_id_cmp(&c->targets[at - 1].id, id) > 0; at--) c->targets[at] = c->targets[at - 1];
    c->targets[at] = (struct target){.id = *id, .groups = groups, .world = world};
}

/* What may be ripe: what this launch went on from, if that is not committed yet, and what this rank has brought into
 * the authority itself. */
static void collect(struct bwi_committer *c) {
    struct bwi_session *s = c->s;
    const struct bwi_from *f = &s->head.entry.from;
    c->count = c->at = 0;
    if (s->head.found && f->set && f->open) add_target(c, &f->id, f->groups, f->world);
    for (const struct bwi_save *v = s->saves; v; v = v->next)
        if (v->state == BWI_SAVE_PENDING && !v->outcome_set) add_target(c, &v->id, s->groups, s->cfg.world);
}

static enum bwi_step sleep_on(struct bwi_committer *c) {
    if (c->task.cancel) return BWI_STEP_END; /* nobody wakes it again */
    collect(c);
    uint64_t now = bwi_loop_now_ns(c->task.loop);
    c->wake_ns = c->count ? bwi_backoff_next(&c->backoff, c->s->ctx, now) : BWI_NEVER;
    c->state = COMMITTER_SLEEP;
    if (c->asked) return BWI_STEP_AGAIN; /* while it was looking */
    bwi_task_wake_at(&c->task, c->wake_ns);
    return BWI_STEP_WAIT;
}

static enum bwi_step wake_up(struct bwi_committer *c) {
    if (c->task.cancel) return BWI_STEP_END;
    if (!c->asked && bwi_loop_now_ns(c->task.loop) < c->wake_ns) {
        bwi_task_wake_at(&c->task, c->wake_ns);
        return BWI_STEP_WAIT;
    }
    if (c->asked) bwi_backoff_reset(&c->backoff, c->s->ctx);
    c->asked = false;
    collect(c);
    c->state = COMMITTER_PICK;
    return BWI_STEP_AGAIN;
}

/* A commit ends all lower steps. Groups are drained in step order, so a lower step that is not complete when a later
 * one has been seen complete lacks a group for good, or for long: it must be looked at after that, not before. */
static bool may_overtake(const struct bwi_committer *c, const struct target *t) {
    for (const struct target *lower = c->targets; lower < t; lower++)
        if (lower->incomplete) return true;
    return false;
}

static enum bwi_step pick(struct bwi_committer *c) {
    if (c->at >= c->count || c->task.cancel) return sleep_on(c);
    const struct target *t = &c->targets[c->at++];
    c->commit = (struct bwi_commit){.ctx = c->s->ctx,
                                    .id = t->id,
                                    .groups = t->groups,
                                    .world = t->world,
                                    .lineage_of = &c->s->head.entry,
                                    .cache = &c->s->index_cache,
                                    .look_only = !t->complete && may_overtake(c, t),
                                    .deadline_ns = bwi_loop_now_ns(c->task.loop) + COMMIT_PATIENCE_NS};
    c->started = true;
    c->state = COMMITTER_LOOK;
    bwi_commit_start(&c->commit, c->task.loop, &c->task);
    return BWI_STEP_WAIT;
}

/* The others read of an abort; who has found the gap or the overlap says which. */
static void tell_uncovered(struct bwi_committer *c, const struct bwi_id *id, const struct bw_error *e) {
    for (struct bwi_save *v = c->s->saves; v; v = v->next)
        if (bwi_id_eq(&v->id, id) && v->state != BWI_SAVE_ENDED) bwi_save_outcome(v, false, e->status, e->message);
}

/* What is damaged stays so; every other failure may be over the next time. */
static bool holds_up(const struct bwi_committer *c, int status) {
    return status < 0 && !bwi_is_damage(status) && c->failures < HOLDING_FAILURES;
}

/* Told to the session by the head that the decision has brought; where that says nothing, the follower looks. */
static enum bwi_step looked(struct bwi_committer *c) {
    struct bwi_commit *m = &c->commit;
    if (m->task.running) {
        if (c->task.cancel && !m->task.cancel) bwi_task_cancel(&m->task);
        return BWI_STEP_WAIT;
    }
    struct target *t = &c->targets[c->at - 1];
    int status = m->task.error.status;
    t->incomplete = status < 0 || m->result == BWI_COMMIT_INCOMPLETE;
    if (status == 0 && t->incomplete && m->look_only && m->missing == 0) {
        t->complete = true;
        c->at = 0;
    }
    bool decided = status == 0 && m->result != BWI_COMMIT_INCOMPLETE;
    bwi_session_looked(c->s, m);
    if (status < 0 && status != BW_E_CANCELLED && bwi_session_tells(++c->failures))
        bwi_session_note(c->s, status, m->id.step, "commit is tried again: %s", m->task.error.message);
    struct bwi_head head = m->head;
    struct bwi_id id = m->id;
    struct bw_error uncovered = BW_ERROR_INIT;
    if (decided && m->result == BWI_COMMIT_ABORTED && m->reason_status == BW_E_COVERAGE)
        bwi_error_set(&uncovered, BW_E_COVERAGE, "%s", m->reason);
    m->head = (struct bwi_head){0};
    bwi_commit_fini(m);
    c->started = false;
    c->state = COMMITTER_PICK;
    if (!decided) {
        bwi_head_fini(&head);
        return holds_up(c, status) ? sleep_on(c) : BWI_STEP_AGAIN;
    }
    if (uncovered.status < 0) tell_uncovered(c, &id, &uncovered);
    if (head.found) bwi_session_new_head(c->s, &head);
    bwi_backoff_reset(&c->backoff, c->s->ctx);
    c->failures = 0;
    collect(c);
    return BWI_STEP_AGAIN;
}

static enum bwi_step committer_step(struct bwi_task *t) {
    struct bwi_committer *c = bwi_container_of(t, struct bwi_committer, task);
    switch (c->state) {
    case COMMITTER_SLEEP: return wake_up(c);
    case COMMITTER_PICK: return pick(c);
    case COMMITTER_LOOK: break;
    }
    return looked(c);
}

struct bwi_committer *bwi_committer_new(void) {
    return bwi_calloc(1, sizeof(struct bwi_committer));
}

void bwi_committer_free(struct bwi_committer *c) {
    if (c && c->started) bwi_commit_fini(&c->commit);
    bwi_free(c);
}

void bwi_committer_start(struct bwi_session *s) {
    struct bwi_committer *c = s->committer;
    c->s = s;
    c->task.step = committer_step;
    c->task.name = "committer";
    c->state = COMMITTER_SLEEP;
    c->asked = true;
    bwi_backoff_reset(&c->backoff, s->ctx);
    bwi_task_start(s->ctx->loop, &c->task, NULL);
}

void bwi_committer_stop(struct bwi_session *s) {
    if (s->committer->task.running) bwi_task_cancel(&s->committer->task);
}

void bwi_committer_wake(struct bwi_session *s) {
    if (!s->committer->task.running) return;
    s->committer->asked = true;
    bwi_task_wake(&s->committer->task);
}

bool bwi_committer_running(const struct bwi_session *s) {
    return s->committer->task.running;
}
