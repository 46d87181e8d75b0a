/* SPDX-License-Identifier: Apache-2.0 */
/* The lookout: what keeps a checkpoint from being committed, seen from this rank. doc/flows/commit.md.
 *
 * It sleeps while all goes well. When a save of this rank has been waiting for the others for a while, and when the
 * handle is being closed, it looks in the authority
 *   - for tries of other ranks that this rank will never make: it says so by a mark, so that nobody waits for it;
 *   - at its own pending saves: a mark means an abort, which only rank 0 would enter otherwise, and only for a step
 * that it has saved itself; and which ranks are missing is kept for whoever waits. */
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/names.h"
#include "checkpoint/session_private.h"

enum lookout_state { LOOKOUT_SLEEP, LOOKOUT_LISTED, LOOKOUT_NEXT, LOOKOUT_LOOKED };

#define LOOKOUT_FIRST_NS (2 * BWI_NS_PER_S)
#define LOOKOUT_MOST_NS  (30 * BWI_NS_PER_S)
/* With many groups more seldom, so that all ranks together ask for about fifty pages a second. */
#define LOOKOUT_PAGE_NS     (20 * BWI_NS_PER_MS)
#define LOOKOUT_PAGE_GROUPS 1000u
#define LOOKOUT_PATIENCE_NS (30 * BWI_NS_PER_S)
#define LOOKOUT_REMEMBERED  16u

struct bwi_lookout {
    struct bwi_task task;
    struct bwi_session *s;
    enum lookout_state state;
    struct bwi_call call;
    struct bwi_commit look;
    bool looking; /* look is in use */
    bool armed;   /* wake_ns and period_ns count */
    bool closed;  /* it has looked since the handle is being closed */
    uint64_t period_ns, wake_ns;
    struct bwi_id pending[BWI_SAVES_MAX];
    size_t count, at;
    struct bwi_id refused[LOOKOUT_REMEMBERED]; /* the last ones */
    size_t refused_count;
};

static bool is_waiting(const struct bwi_save *v) {
    return v->state == BWI_SAVE_PENDING && !v->outcome_set;
}

static bool any_waits(const struct bwi_session *s) {
    for (const struct bwi_save *v = s->saves; v; v = v->next)
        if (is_waiting(v)) return true;
    return false;
}

static uint64_t least_ns(const struct bwi_lookout *l) {
    const uint64_t pages = 1 + l->s->groups / LOOKOUT_PAGE_GROUPS;
    return bwi_max_u64(LOOKOUT_FIRST_NS, l->s->groups * pages * LOOKOUT_PAGE_NS);
}

/* Half of the period, and up to a whole one more, so that ranks do not come together. */
static void set_alarm(struct bwi_lookout *l, uint64_t period_ns) {
    struct bwi_env *env = l->s->ctx->env;
    l->period_ns = period_ns;
    l->wake_ns = bwi_loop_now_ns(l->task.loop) + period_ns / 2 + env->random_u64(env) % period_ns;
}

static enum bwi_step rest(struct bwi_lookout *l) {
    const uint64_t most = bwi_max_u64(LOOKOUT_MOST_NS, least_ns(l));
    const uint64_t grown = l->period_ns + l->period_ns / 2;
    if (l->armed) set_alarm(l, grown < most ? grown : most);
    l->state = LOOKOUT_SLEEP;
    return BWI_STEP_AGAIN;
}

static enum bwi_step list(struct bwi_lookout *l) {
    const struct bwi_session *s = l->s;
    const struct bwi_key key = bwi_key_checkpoints(s->ctx->run);
    char after[BWI_ID_TEXT_BYTES];
    bwi_format(after, sizeof after, "%020llu", (unsigned long long)s->head.entry.h);
    l->state = LOOKOUT_LISTED;
    bwi_call_list(&l->call, &l->task, s->ctx->tier[BWI_TIER_REMOTE], key.s, s->head.entry.h_set ? after : NULL);
    return BWI_STEP_WAIT;
}

static enum bwi_step sleep_on(struct bwi_lookout *l) {
    if (l->task.cancel) return BWI_STEP_END;
    if (l->s->over || !l->s->head.found) return BWI_STEP_WAIT;
    if (l->s->closing && !l->closed) return list(l);
    if (!any_waits(l->s)) {
        l->armed = false;
        return BWI_STEP_WAIT;
    }
    if (!l->armed) set_alarm(l, least_ns(l));
    l->armed = true;
    if (bwi_loop_now_ns(l->task.loop) < l->wake_ns) {
        bwi_task_wake_at(&l->task, l->wake_ns);
        return BWI_STEP_WAIT;
    }
    return list(l);
}

/* Said once: the mark stays until somebody enters the abort. */
static bool is_said(const struct bwi_lookout *l, const struct bwi_id *id) {
    for (size_t i = 0; i < l->refused_count; i++)
        if (bwi_id_eq(&l->refused[i], id)) return true;
    return false;
}

static void say(struct bwi_lookout *l, const struct bwi_id *id) {
    if (l->refused_count == LOOKOUT_REMEMBERED) l->refused_count = 0;
    l->refused[l->refused_count++] = *id;
    bwi_session_refuse(l->s, id->step, id->tri);
}

static enum bwi_step listed(struct bwi_lookout *l) {
    struct bwi_session *s = l->s;
    const struct bwi_store_op *op = &l->call.op;
    l->closed = s->closing;
    for (size_t i = 0; op->error.status == 0 && i < op->names.len; i++) {
        struct bwi_id id;
        if (!bwi_names_id(&op->names, i, &id) || id.attempt != s->attempt || id.nonce != s->nonce) continue;
        if (bwi_policy_fate(&s->head.entry, &id) != BWI_FATE_COMMITTABLE || is_said(l, &id)) continue;
        if (bwi_session_never_makes(s, &id)) say(l, &id);
    }
    l->count = l->at = 0;
    for (const struct bwi_save *v = s->saves; v && l->count < BWI_SAVES_MAX; v = v->next)
        if (is_waiting(v)) l->pending[l->count++] = v->id;
    /* Rank 0's committer looks at them anyway. */
    if (s->cfg.rank == 0) l->count = 0;
    l->state = LOOKOUT_NEXT;
    return BWI_STEP_AGAIN;
}

static enum bwi_step next(struct bwi_lookout *l) {
    if (l->at == l->count || l->task.cancel) return rest(l);
    l->look = (struct bwi_commit){.ctx = l->s->ctx,
                                  .id = l->pending[l->at++],
                                  .groups = l->s->groups,
                                  .world = l->s->cfg.world,
                                  .lineage_of = &l->s->head.entry,
                                  .look_only = true,
                                  .deadline_ns = bwi_loop_now_ns(l->task.loop) + LOOKOUT_PATIENCE_NS};
    l->looking = true;
    l->state = LOOKOUT_LOOKED;
    bwi_commit_start(&l->look, l->task.loop, &l->task);
    return BWI_STEP_WAIT;
}

static enum bwi_step looked(struct bwi_lookout *l) {
    struct bwi_commit *m = &l->look;
    if (m->task.running) {
        if (l->task.cancel && !m->task.cancel) bwi_task_cancel(&m->task);
        return BWI_STEP_WAIT;
    }
    bwi_session_looked(l->s, m);
    struct bwi_head head = m->head;
    m->head = (struct bwi_head){0};
    bwi_commit_fini(m);
    l->looking = false;
    l->state = LOOKOUT_NEXT;
    bwi_session_new_head(l->s, &head);
    return BWI_STEP_AGAIN;
}

static enum bwi_step lookout_step(struct bwi_task *t) {
    struct bwi_lookout *l = bwi_container_of(t, struct bwi_lookout, task);
    if (t->pending) return BWI_STEP_WAIT;
    switch (l->state) {
    case LOOKOUT_SLEEP: return sleep_on(l);
    case LOOKOUT_LISTED: return listed(l);
    case LOOKOUT_NEXT: return next(l);
    case LOOKOUT_LOOKED: break;
    }
    return looked(l);
}

struct bwi_lookout *bwi_lookout_new(void) {
    return bwi_calloc(1, sizeof(struct bwi_lookout));
}

void bwi_lookout_free(struct bwi_lookout *l) {
    if (!l) return;
    if (l->looking) bwi_commit_fini(&l->look);
    bwi_call_fini(&l->call);
    bwi_free(l);
}

void bwi_lookout_start(struct bwi_session *s) {
    struct bwi_lookout *l = s->lookout;
    l->s = s;
    l->task.step = lookout_step;
    l->task.name = "lookout";
    l->state = LOOKOUT_SLEEP;
    bwi_task_start(s->ctx->loop, &l->task, NULL);
}

void bwi_lookout_stop(struct bwi_session *s) {
    if (s->lookout->task.running) bwi_task_cancel(&s->lookout->task);
}

void bwi_lookout_wake(struct bwi_session *s) {
    if (s->lookout->task.running) bwi_task_wake(&s->lookout->task);
}

bool bwi_lookout_running(const struct bwi_session *s) {
    return s->lookout->task.running;
}

bool bwi_lookout_owes(const struct bwi_session *s) {
    return s->lookout->task.running && s->closing && !s->over && !s->lookout->closed;
}
