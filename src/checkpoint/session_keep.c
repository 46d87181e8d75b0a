/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper of rank 0: after a commit it retires what the retention rules do not keep, then sweeps what is dead.
 * doc/flows/prune.md. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/session_private.h"

enum keeper_state { KEEPER_SLEEP, KEEPER_RETIRE, KEEPER_RETIRED, KEEPER_SWEEP, KEEPER_SWEPT };

/* Data stays for the grace anyway, so more sweeps than a few per grace find nothing. */
#define SWEEPS_PER_GRACE 4u

/* A retirement that the store does not take is told after so long; the next commit tries again. */
#define RETIRE_PATIENCE_NS (30 * BWI_NS_PER_S)

struct bwi_keeper {
    struct bwi_task task;
    struct bwi_session *s;
    enum keeper_state state;
    bool asked;
    struct bwi_id *ids; /* to retire */
    size_t count;
    struct bwi_decide decide;
    struct bwi_sweep sweep;
    struct bwi_launch_watch watch; /* which launches never registered, and since when we know */
    struct bwi_id busy[BWI_SAVES_MAX];
    uint64_t next_sweep_ns;
};

static int retire(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    struct bwi_keeper *k = user;
    struct bwi_session *s = k->s;
    if (!a->head || !bwi_policy_is_current(a->head, s->attempt, s->nonce)) return 1;
    bwi_free(k->ids);
    k->ids = bwi_calloc(a->head->live_count + 1, sizeof *k->ids);
    if (!k->ids) return bwi_error_nomem(err, a->head->live_count * sizeof *k->ids, "retention");
    k->count = bwi_policy_retention(a->head, &s->cfg.retention, s->cfg.saves_in_flight_max, a->time_ms, k->ids);
    return k->count ? bwi_policy_retire(a, k->ids, k->count, ret, err) : 1;
}

static enum bwi_step start_retire(struct bwi_keeper *k) {
    if (k->s->cfg.retention.keep_last == 0) {
        k->state = KEEPER_SWEEP;
        return BWI_STEP_AGAIN;
    }
    k->decide = (struct bwi_decide){
        .ctx = k->s->ctx, .next = retire, .user = k, .deadline_ns = bwi_loop_now_ns(k->task.loop) + RETIRE_PATIENCE_NS};
    k->state = KEEPER_RETIRED;
    bwi_decide_start(&k->decide, k->task.loop, &k->task);
    return BWI_STEP_WAIT;
}

static enum bwi_step retired(struct bwi_keeper *k) {
    if (k->decide.task.running) {
        if (k->task.cancel && !k->decide.task.cancel) bwi_task_cancel(&k->decide.task);
        return BWI_STEP_WAIT;
    }
    int status = k->decide.task.error.status;
    if (status < 0 && status != BW_E_CANCELLED)
        bwi_session_note(k->s, status, 0, "retention: %s", k->decide.task.error.message);
    if (k->decide.created) bwi_session_note(k->s, 0, 0, "retired %zu checkpoints", k->count);
    if (status == 0) bwi_session_new_head(k->s, &k->decide.head); /* else it need not be durable */
    bwi_decide_fini(&k->decide);
    k->state = KEEPER_SWEEP;
    return BWI_STEP_AGAIN;
}

static enum bwi_step start_sweep(struct bwi_keeper *k) {
    struct bwi_session *s = k->s;
    uint64_t now = bwi_loop_now_ns(k->task.loop);
    k->state = KEEPER_SLEEP;
    if (now < k->next_sweep_ns || k->task.cancel) return BWI_STEP_AGAIN;
    k->next_sweep_ns = now + s->ctx->grace_ms * BWI_NS_PER_MS / SWEEPS_PER_GRACE;
    k->sweep = (struct bwi_sweep){.ctx = s->ctx, .tier = BWI_TIER_REMOTE, .busy = k->busy, .watch = &k->watch};
    k->sweep.busy_count = bwi_session_busy(s, k->busy, BWI_SAVES_MAX);
    k->state = KEEPER_SWEPT;
    bwi_sweep_start(&k->sweep, k->task.loop, &k->task);
    return BWI_STEP_WAIT;
}

static enum bwi_step swept(struct bwi_keeper *k) {
    struct bwi_sweep *w = &k->sweep;
    if (w->task.running) {
        if (k->task.cancel && !w->task.cancel) bwi_task_cancel(&w->task);
        return BWI_STEP_WAIT;
    }
    if (w->task.error.status < 0 && w->task.error.status != BW_E_CANCELLED)
        bwi_session_note(k->s, w->task.error.status, 0, "sweep: %s", w->task.error.message);
    if (w->checkpoints) bwi_session_note(k->s, 0, 0, "swept %llu dead checkpoints", (unsigned long long)w->checkpoints);
    k->state = KEEPER_SLEEP;
    return BWI_STEP_AGAIN;
}

static enum bwi_step keeper_step(struct bwi_task *t) {
    struct bwi_keeper *k = bwi_container_of(t, struct bwi_keeper, task);
    switch (k->state) {
    case KEEPER_SLEEP:
        if (t->cancel) return BWI_STEP_END;
        if (!k->asked) return BWI_STEP_WAIT;
        k->asked = false;
        k->state = KEEPER_RETIRE;
        return BWI_STEP_AGAIN;
    case KEEPER_RETIRE: return start_retire(k);
    case KEEPER_RETIRED: return retired(k);
    case KEEPER_SWEEP: return start_sweep(k);
    case KEEPER_SWEPT: break;
    }
    return swept(k);
}

struct bwi_keeper *bwi_keeper_new(void) {
    return bwi_calloc(1, sizeof(struct bwi_keeper));
}

void bwi_keeper_free(struct bwi_keeper *k) {
    if (!k) return;
    bwi_decide_fini(&k->decide);
    bwi_launch_watch_fini(&k->watch);
    bwi_free(k->ids);
    bwi_free(k);
}

void bwi_keeper_start(struct bwi_session *s) {
    struct bwi_keeper *k = s->keeper;
    k->s = s;
    k->task.step = keeper_step;
    k->task.name = "keeper";
    k->state = KEEPER_SLEEP;
    bwi_task_start(s->ctx->loop, &k->task, NULL);
}

void bwi_keeper_stop(struct bwi_session *s) {
    if (s->keeper->task.running) bwi_task_cancel(&s->keeper->task);
}

void bwi_keeper_wake(struct bwi_session *s) {
    if (!s->keeper->task.running) return;
    s->keeper->asked = true;
    bwi_task_wake(&s->keeper->task);
}

bool bwi_keeper_running(const struct bwi_session *s) {
    return s->keeper->task.running;
}
