/* SPDX-License-Identifier: Apache-2.0 */
/* The follower: reads the history now and then, and says what became of the saves. doc/flows/commit.md.
 *
 * Nobody is believed before his entry is durable: before anything is reported because of somebody else's entry,
 * history/ is synced. Where entries between two looks might tell of a save that has left the lists again, they are read
 * too, from the newest one down: each names the one before it by its hash. */
#include "base/checked.h"
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/session_private.h"

enum follow_state { FOLLOW_SLEEP, FOLLOW_READ, FOLLOW_SYNC, FOLLOW_GAP, FOLLOW_GAP_ENTRY };

/* A listing may be old for a moment. So many in a row that lack what is known say that it is gone. */
#define FOLLOW_BEHIND 5u

/* With nothing to wait for the history is looked at this seldom: only to learn that the attempt is over. */
#define FOLLOW_IDLE_NS (2 * BWI_NS_PER_S)
/* And with many groups more seldom still, so that all of them together ask no more than fifty times a second. */
#define FOLLOW_IDLE_GROUP_NS (20 * BWI_NS_PER_MS)

struct bwi_follow {
    struct bwi_task task;
    struct bwi_session *s;
    enum follow_state state;
    struct bwi_head_read read;
    struct bwi_head head;
    struct bwi_history_sync sync;
    struct bwi_call call;
    struct bwi_gap gap;
    uint64_t gap_n, gap_from; /* read last, and the oldest to read */
    struct bwi_sha gap_sha;   /* of the entry before gap_n */
    bool asked;
    unsigned behind; /* looks in a row that showed less than is known */
    uint64_t wake_ns;
    struct bwi_backoff backoff;
};

/* Only saves that are complete in the authority wait for others. */
static bool waiting(const struct bwi_session *s) {
    for (const struct bwi_save *v = s->saves; v; v = v->next)
        if (v->state == BWI_SAVE_PENDING) return true;
    return false;
}

static enum bwi_step sleep_on(struct bwi_follow *f) {
    if (f->task.cancel) return BWI_STEP_END; /* nobody wakes it again */
    struct bwi_session *s = f->s;
    uint64_t now = bwi_loop_now_ns(f->task.loop);
    /* Rank 0 commits by itself and hears of it there. */
    bool eager = waiting(s) && s->cfg.rank != 0;
    uint64_t idle = bwi_max_u64(FOLLOW_IDLE_NS, s->groups * FOLLOW_IDLE_GROUP_NS);
    f->wake_ns = eager ? bwi_backoff_next(&f->backoff, s->ctx, now) : now + idle;
    f->state = FOLLOW_SLEEP;
    if (f->asked) return BWI_STEP_AGAIN; /* while it was looking */
    bwi_task_wake_at(&f->task, f->wake_ns);
    return BWI_STEP_WAIT;
}

static enum bwi_step start_read(struct bwi_follow *f) {
    if (!f->asked && bwi_loop_now_ns(f->task.loop) < f->wake_ns) {
        bwi_task_wake_at(&f->task, f->wake_ns);
        return BWI_STEP_WAIT;
    }
    if (f->asked) bwi_backoff_reset(&f->backoff, f->s->ctx);
    f->asked = false;
    f->read = (struct bwi_head_read){.ctx = f->s->ctx, .known = &f->s->head, .head = &f->head};
    f->state = FOLLOW_READ;
    bwi_head_read_start(&f->read, f->task.loop, &f->task);
    return BWI_STEP_WAIT;
}

/* Somebody has put an older state of the store in its place, or has deleted entries: what was reported may be gone. */
static void look_for_a_step_back(struct bwi_follow *f) {
    if (f->read.task.error.status < 0) return;
    f->behind = f->read.gone ? f->behind + 1 : 0;
    if (f->behind != FOLLOW_BEHIND) return;
    bwi_session_note(
        f->s, BW_E_CORRUPT, 0,
        "entry %llu of the history is not there any more: the authority was set back to an older state, or "
        "entries were deleted; what was committed since may be lost",
        (unsigned long long)f->s->head.entry.n);
}

static enum bwi_step was_read(struct bwi_follow *f) {
    if (f->read.task.running) return BWI_STEP_WAIT;
    look_for_a_step_back(f);
    /* A history that cannot be read now says nothing; waits end at their deadlines. */
    if (f->read.task.error.status < 0 || f->read.unchanged || !bwi_session_is_newer(f->s, &f->head)) {
        bwi_head_fini(&f->head);
        return sleep_on(f);
    }
    f->state = FOLLOW_SYNC;
    f->sync.ctx = f->s->ctx;
    bwi_history_sync_start(&f->sync, f->task.loop, &f->task);
    return BWI_STEP_WAIT;
}

/* Entries that the log has left behind were trimmed, and their names are free for strays. */
static void begin_gap(struct bwi_follow *f) {
    const struct bwi_entry *e = &f->head.entry;
    const uint64_t oldest = e->n > BWI_HISTORY_KEPT ? e->n - BWI_HISTORY_KEPT + 1 : 1;
    bwi_gap_fini(&f->gap);
    f->gap.hole = !bwi_gap_add(&f->gap, e);
    f->gap_n = f->gap_from = e->n;
    f->gap_sha = e->prev;
    if (!bwi_session_needs_gap(f->s, &f->head)) return;
    f->gap_from = bwi_max_u64(f->s->head.entry.n + 1, oldest);
    if (f->s->head.entry.n + 1 < oldest) f->gap.hole = true;
}

static enum bwi_step synced(struct bwi_follow *f) {
    if (f->sync.task.running) return BWI_STEP_WAIT;
    if (f->sync.task.error.status < 0) {
        bwi_head_fini(&f->head);
        return sleep_on(f);
    }
    begin_gap(f);
    f->state = FOLLOW_GAP;
    return BWI_STEP_AGAIN;
}

/* A damaged or trimmed entry leaves a hole: what it said is unknown. Eras change only by repair and promotion, whose
 * entries follow on each other too. */
static enum bwi_step read_gap(struct bwi_follow *f) {
    if (f->gap_n > f->gap_from) {
        f->gap_n--;
        uint32_t era = f->head.entry.era;
        for (size_t i = f->head.entry.lineage_count; i-- > 0;) {
            if (f->head.entry.lineage[i].n > f->gap_n) continue;
            era = f->head.entry.lineage[i].era;
            break;
        }
        struct bwi_key key = bwi_key_entry(f->s->ctx->run, era, f->gap_n);
        f->state = FOLLOW_GAP_ENTRY;
        bwi_call_get(&f->call, &f->task, f->s->ctx->tier[BWI_TIER_REMOTE], key.s, BWI_ENTRY_BYTES_MAX);
        return BWI_STEP_WAIT;
    }
    bwi_session_apply_head(f->s, &f->head, &f->gap);
    bwi_gap_fini(&f->gap);
    return sleep_on(f);
}

/* One that is not the entry which the one above it names is no part of the log. Behind a hole the last known name is
 * looked for further down: a repair goes on from the newest sound entry. */
static enum bwi_step gap_entry(struct bwi_follow *f) {
    const struct bwi_span bytes = bwi_buf_span(&f->call.op.body);
    struct bwi_entry e = {0};
    bool sound = f->call.op.error.status == 0;
    const struct bwi_sha sha = bwi_sha_of(sound ? bytes : bwi_span("", 0));
    sound = sound && bwi_sha_eq(&sha, &f->gap_sha) && bwi_entry_decode(bytes, &e, NULL) == 0;
    if (sound) f->gap_sha = e.prev;
    if (!sound || !bwi_gap_add(&f->gap, &e)) f->gap.hole = true;
    bwi_entry_fini(&e);
    f->state = FOLLOW_GAP;
    return BWI_STEP_AGAIN;
}

static enum bwi_step follow_step(struct bwi_task *t) {
    struct bwi_follow *f = bwi_container_of(t, struct bwi_follow, task);
    if (t->pending) return BWI_STEP_WAIT;
    if (t->cancel && f->state == FOLLOW_SLEEP) return BWI_STEP_END;
    switch (f->state) {
    case FOLLOW_SLEEP: return start_read(f);
    case FOLLOW_READ: return was_read(f);
    case FOLLOW_SYNC: return synced(f);
    case FOLLOW_GAP: return read_gap(f);
    case FOLLOW_GAP_ENTRY: break;
    }
    return gap_entry(f);
}

struct bwi_follow *bwi_follow_new(void) {
    return bwi_calloc(1, sizeof(struct bwi_follow));
}

void bwi_follow_free(struct bwi_follow *f) {
    if (!f) return;
    bwi_call_fini(&f->call);
    bwi_gap_fini(&f->gap);
    bwi_head_fini(&f->head);
    bwi_free(f);
}

void bwi_follow_start(struct bwi_session *s) {
    struct bwi_follow *f = s->follow;
    f->s = s;
    f->task.step = follow_step;
    f->task.name = "follow";
    f->state = FOLLOW_SLEEP;
    bwi_backoff_reset(&f->backoff, s->ctx);
    f->wake_ns = bwi_loop_now_ns(s->ctx->loop) + s->ctx->poll_max_ns;
    bwi_task_start(s->ctx->loop, &f->task, NULL);
}

void bwi_follow_stop(struct bwi_session *s) {
    if (s->follow->task.running) bwi_task_cancel(&s->follow->task);
}

void bwi_follow_wake(struct bwi_session *s) {
    if (!s->follow->task.running) return;
    s->follow->asked = true;
    bwi_task_wake(&s->follow->task);
}

/* Not at once, but for rank 0: what has just come is not decided yet, and all ranks come at the same moment. */
void bwi_follow_soon(struct bwi_session *s) {
    struct bwi_follow *f = s->follow;
    if (!f->task.running) return;
    if (s->cfg.rank == 0) {
        bwi_follow_wake(s);
        return;
    }
    bwi_backoff_reset(&f->backoff, s->ctx);
    if (f->state != FOLLOW_SLEEP) return; /* it looks at how long to sleep when it goes to sleep */
    const uint64_t at = bwi_backoff_next(&f->backoff, s->ctx, bwi_loop_now_ns(f->task.loop));
    if (at >= f->wake_ns) return;
    f->wake_ns = at;
    bwi_task_wake_at(&f->task, at);
}

bool bwi_follow_running(const struct bwi_session *s) {
    return s->follow->task.running;
}
