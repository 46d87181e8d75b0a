/* SPDX-License-Identifier: Apache-2.0 */
/* A commit ends all lower steps, and a job may be writing while this looks. So what is complete behind one that was not
 * is only looked at, and a new round begins: groups drain in step order, so whatever the lower ones will ever have is
 * there by then. Each round adds to what is known to be complete or is the last one. doc/flows/commit.md. */
#include "checkpoint/commit_all.h"
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/history_head.h"
#include "checkpoint/names.h"
#include "checkpoint/source.h"
#include <stdlib.h>

/* A look that fails says nothing, and a commit of a later one would end that step: so it is tried again first. */
#define TRIES 4u

enum commit_all_state { ALL_HEAD, ALL_LIST, ALL_LISTED, ALL_PICK, ALL_GROUPS, ALL_LOOKED, ALL_PAUSE, ALL_END };

struct bwi_commit_all_work {
    struct bwi_head head;
    struct bwi_head_read read;
    struct bwi_call list, groups;
    struct bwi_commit commit;
    bool looking; /* commit is in use */
    /* of this round */
    struct bwi_id *ids; /* lowest first */
    size_t count, at;
    bool incomplete;   /* one of those before `at` is */
    unsigned failures; /* of looks at this one */
    uint64_t retry_ns;
    struct bwi_backoff backoff;
    struct bwi_findings findings;
    /* of all rounds */
    struct bwi_id *complete; /* were seen to be */
    size_t complete_count, complete_cap;
};

static enum bwi_step go(struct bwi_commit_all *a, enum commit_all_state to) {
    a->state = (int)to;
    return BWI_STEP_AGAIN;
}

static enum bwi_step wait_in(struct bwi_commit_all *a, enum commit_all_state in) {
    a->state = (int)in;
    return BWI_STEP_WAIT;
}

static enum bwi_step fail(struct bwi_commit_all *a, const struct bw_error *e) {
    (void)bwi_error_copy(&a->task.error, e);
    return go(a, ALL_END);
}

/* --- a round ------------------------------------------------------------------------------------------------- */

static enum bwi_step begin_round(struct bwi_commit_all *a) {
    struct bwi_commit_all_work *w = a->w;
    bwi_free(w->ids);
    w->ids = NULL;
    w->count = w->at = 0;
    w->incomplete = false;
    w->failures = 0;
    bwi_findings_fini(&w->findings);
    w->read = (struct bwi_head_read){.ctx = a->ctx, .head = &w->head};
    bwi_head_read_start(&w->read, a->task.loop, &a->task);
    return wait_in(a, ALL_LIST);
}

static enum bwi_step list(struct bwi_commit_all *a) {
    struct bwi_commit_all_work *w = a->w;
    if (w->read.task.error.status < 0) return fail(a, &w->read.task.error);
    const struct bwi_key key = bwi_key_checkpoints(a->ctx->run);
    bwi_call_list(&w->list, &a->task, a->ctx->tier[BWI_TIER_REMOTE], key.s, NULL);
    return wait_in(a, ALL_LISTED);
}

static int order(const void *x, const void *y) {
    return bwi_id_cmp(x, y);
}

static enum bwi_step listed(struct bwi_commit_all *a) {
    struct bwi_commit_all_work *w = a->w;
    const struct bwi_store_op *op = &w->list.op;
    if (op->error.status < 0) return fail(a, &op->error);
    w->ids = bwi_calloc(op->names.len + 1, sizeof *w->ids);
    if (w->ids == NULL) {
        (void)bwi_error_nomem(&a->task.error, (op->names.len + 1) * sizeof *w->ids, "a listing");
        return go(a, ALL_END);
    }
    for (size_t i = 0; i < op->names.len; i++)
        if (bwi_names_id(&op->names, i, &w->ids[w->count]) &&
            bwi_policy_fate(&w->head.entry, &w->ids[w->count]) == BWI_FATE_COMMITTABLE)
            w->count++;
    if (w->count > 1) qsort(w->ids, w->count, sizeof *w->ids, order);
    return go(a, ALL_PICK);
}

static void take_findings(struct bwi_commit_all *a) {
    const struct bwi_findings *f = &a->w->findings;
    a->findings->failed = a->findings->failed || f->failed;
    for (size_t i = 0; i < f->count; i++) {
        struct bwi_id id;
        const bool named = bwi_id_parse(bwi_span_str(f->list[i].id), &id);
        bwi_findings_add(a->findings, f->list[i].severity, f->list[i].status, "remote", named ? &id : NULL, "commit",
                         "", "%s", f->list[i].message);
    }
}

/* --- one checkpoint ------------------------------------------------------------------------------------------ */

static const struct bwi_id *current(const struct bwi_commit_all *a) {
    return &a->w->ids[a->w->at];
}

static enum bwi_step pick(struct bwi_commit_all *a) {
    struct bwi_commit_all_work *w = a->w;
    if (w->at == w->count) {
        take_findings(a);
        return go(a, ALL_END);
    }
    const struct bwi_key key = bwi_key_groups(a->ctx->run, current(a));
    bwi_call_list(&w->groups, &a->task, a->ctx->tier[BWI_TIER_REMOTE], key.s, NULL);
    return wait_in(a, ALL_GROUPS);
}

static bool was_complete(const struct bwi_commit_all *a) {
    const struct bwi_commit_all_work *w = a->w;
    for (size_t i = 0; i < w->complete_count; i++)
        if (bwi_id_eq(&w->complete[i], current(a))) return true;
    return false;
}

static enum bwi_step look(struct bwi_commit_all *a) {
    struct bwi_commit_all_work *w = a->w;
    const struct bwi_entry *e = &w->head.entry;
    const bool from = e->from.set && e->from.open && bwi_id_eq(&e->from.id, current(a));
    w->commit = (struct bwi_commit){.ctx = a->ctx,
                                    .id = *current(a),
                                    .groups = from ? e->from.groups : e->attempt.groups,
                                    .world = from ? e->from.world : e->attempt.world,
                                    .lineage_of = e,
                                    .look_only = w->incomplete && !was_complete(a),
                                    .deadline_ns = bwi_loop_now_ns(a->task.loop) + a->patience_ns};
    w->looking = true;
    bwi_commit_start(&w->commit, a->task.loop, &a->task);
    return wait_in(a, ALL_LOOKED);
}

static enum bwi_step next(struct bwi_commit_all *a) {
    a->w->at++;
    a->w->failures = 0;
    return go(a, ALL_PICK);
}

/* Where only marks lie in the authority, nobody need have begun that try: an abort would open the next one, which
 * whoever is past that step would refuse by a mark, and so on each time. */
static enum bwi_step grouped(struct bwi_commit_all *a) {
    struct bwi_commit_all_work *w = a->w;
    const struct bwi_store_op *op = &w->groups.op;
    if (op->error.status < 0) return fail(a, &op->error);
    if (op->names.len > 0) return look(a);
    bwi_findings_add(&w->findings, 1, 0, "remote", current(a), "commit", "", "no group of it is in the authority");
    w->incomplete = true;
    return next(a);
}

static void tell(struct bwi_findings *f, const struct bwi_commit *m) {
    const struct bw_error *e = &m->task.error;
    if (e->status < 0)
        bwi_findings_add(f, 2, e->status, "remote", &m->id, "commit", "", "%s", e->message);
    else if (m->result == BWI_COMMIT_DONE)
        bwi_findings_add(f, 0, 0, "remote", &m->id, "commit", "", "committed");
    else if (m->result == BWI_COMMIT_ABORTED)
        bwi_findings_add(f, 1, BW_E_ABORTED, "remote", &m->id, "commit", "", "aborted: %s", m->reason);
    else if (m->missing == 0)
        bwi_findings_add(f, 1, 0, "remote", &m->id, "commit", "", "an earlier try of its step is not decided");
    else
        bwi_findings_add(f, 1, 0, "remote", &m->id, "commit", "", "%u of %u groups are missing, the first is group %u",
                         m->missing, m->groups, m->first_missing);
}

static bool remember(struct bwi_commit_all *a) {
    struct bwi_commit_all_work *w = a->w;
    void *grown = w->complete;
    const bool ok = bwi_vec_reserve(&grown, &w->complete_cap, w->complete_count + 1, sizeof *w->complete);
    w->complete = grown;
    if (ok)
        w->complete[w->complete_count++] = *current(a);
    else
        (void)bwi_error_nomem(&a->task.error, sizeof *w->complete, "complete checkpoints");
    return ok;
}

static void end_look(struct bwi_commit_all_work *w) {
    bwi_commit_fini(&w->commit);
    w->looking = false;
}

/* What is damaged stays so. */
static bool is_to_be_tried_again(struct bwi_commit_all *a) {
    struct bwi_commit_all_work *w = a->w;
    const int status = w->commit.task.error.status;
    if (status == 0 || bwi_is_damage(status) || ++w->failures >= TRIES) return false;
    if (w->failures == 1) bwi_backoff_reset(&w->backoff, a->ctx);
    w->retry_ns = bwi_backoff_next(&w->backoff, a->ctx, bwi_loop_now_ns(a->task.loop));
    return true;
}

static enum bwi_step pause(struct bwi_commit_all *a) {
    if (bwi_loop_now_ns(a->task.loop) >= a->w->retry_ns) return go(a, ALL_PICK);
    bwi_task_wake_at(&a->task, a->w->retry_ns);
    return BWI_STEP_WAIT;
}

static enum bwi_step looked(struct bwi_commit_all *a) {
    struct bwi_commit_all_work *w = a->w;
    const struct bwi_commit *m = &w->commit;
    if (is_to_be_tried_again(a)) {
        end_look(w);
        return go(a, ALL_PAUSE);
    }
    const bool decided = m->task.error.status == 0 && m->result != BWI_COMMIT_INCOMPLETE;
    const bool again = m->task.error.status == 0 && !decided && m->look_only && m->missing == 0;
    tell(decided ? a->findings : &w->findings, m);
    w->incomplete |= !decided;
    end_look(w);
    if (again) return go(a, remember(a) ? ALL_HEAD : ALL_END);
    return next(a);
}

/* --- the machine --------------------------------------------------------------------------------------------- */

static enum bwi_step finish(struct bwi_commit_all *a) {
    (void)bwi_error_wrap(&a->task.error, "committing what is complete");
    return BWI_STEP_END;
}

static bool is_waiting(struct bwi_commit_all *a) {
    struct bwi_task *const children[] = {&a->w->read.task, &a->w->commit.task};
    bool waiting = a->task.pending > 0;
    for (size_t i = 0; i < 2; i++) {
        if (!children[i]->running) continue;
        waiting = true;
        if (a->task.cancel && !children[i]->cancel) bwi_task_cancel(children[i]);
    }
    return waiting;
}

static enum bwi_step commit_all_step(struct bwi_task *t) {
    struct bwi_commit_all *a = bwi_container_of(t, struct bwi_commit_all, task);
    if (a->w == NULL) return finish(a); /* no memory for it */
    if (is_waiting(a)) return BWI_STEP_WAIT;
    if (t->cancel && a->state != ALL_END) {
        (void)bwi_error_set(&t->error, BW_E_CANCELLED, "cancelled");
        a->state = ALL_END;
    }
    switch ((enum commit_all_state)a->state) {
    case ALL_HEAD: return begin_round(a);
    case ALL_LIST: return list(a);
    case ALL_LISTED: return listed(a);
    case ALL_PICK: return pick(a);
    case ALL_GROUPS: return grouped(a);
    case ALL_LOOKED: return looked(a);
    case ALL_PAUSE: return pause(a);
    case ALL_END: break;
    }
    return finish(a);
}

void bwi_commit_all_start(struct bwi_commit_all *a, struct bwi_loop *loop, struct bwi_task *parent) {
    a->task.step = commit_all_step;
    a->task.name = "commit_all";
    a->state = ALL_HEAD;
    bwi_task_start(loop, &a->task, parent);
    a->w = bwi_calloc(1, sizeof *a->w);
    if (a->w == NULL) {
        (void)bwi_error_nomem(&a->task.error, sizeof *a->w, "committing what is complete");
        a->state = ALL_END;
    }
}

void bwi_commit_all_fini(struct bwi_commit_all *a) {
    struct bwi_commit_all_work *w = a->w;
    if (w == NULL) return;
    if (w->looking) bwi_commit_fini(&w->commit);
    bwi_call_fini(&w->list);
    bwi_call_fini(&w->groups);
    bwi_findings_fini(&w->findings);
    bwi_head_fini(&w->head);
    bwi_free(w->ids);
    bwi_free(w->complete);
    bwi_free(w);
    a->w = NULL;
}
