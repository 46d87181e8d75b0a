/* SPDX-License-Identifier: Apache-2.0 */
/* The session: what its machines share, and what a new head of the history means for the saves. */
#include "checkpoint/session.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/session_private.h"

int bwi_session_new(struct bwi_context *ctx, const struct bwi_session_config *cfg, struct bwi_session **ret,
                    struct bw_error *err) {
    struct bwi_session *s = bwi_calloc(1, sizeof *s);
    if (!s) return bwi_error_nomem(err, sizeof *s, "session");
    s->ctx = ctx;
    s->cfg = *cfg;
    s->group = cfg->rank;
    s->groups = cfg->world;
    bwi_session_tell_depths(s);
    bwi_pace_init(&s->pace, cfg->drain_bytes_per_s, UINT64_C(8) << 20);
    s->open = bwi_open_new();
    s->follow = bwi_follow_new();
    s->committer = bwi_committer_new();
    s->keeper = bwi_keeper_new();
    s->salvage = bwi_salvage_new();
    s->lookout = bwi_lookout_new();
    s->teller = bwi_teller_new();
    if (!s->open || !s->follow || !s->committer || !s->keeper || !s->salvage || !s->lookout || !s->teller) {
        bwi_session_free(s);
        return bwi_error_nomem(err, sizeof *s, "session");
    }
    *ret = s;
    return 0;
}

void bwi_session_free(struct bwi_session *s) {
    if (!s) return;
    while (s->saves) {
        struct bwi_save *v = s->saves;
        v->released = true;
        v->state = BWI_SAVE_ENDED;
        bwi_session_release(v);
    }
    bwi_open_free(s->open);
    bwi_follow_free(s->follow);
    bwi_committer_free(s->committer);
    bwi_keeper_free(s->keeper);
    bwi_salvage_free(s->salvage);
    bwi_lookout_free(s->lookout);
    bwi_teller_free(s->teller);
    bwi_free(s->probe);
    bwi_index_cache_fini(&s->index_cache);
    bwi_head_fini(&s->head);
    bwi_plan_fini(&s->known_plan);
    bwi_description_fini(&s->known);
    bwi_free(s);
}

static void emit(struct bwi_session *s, struct bw_event *e) {
    if (s->event) s->event(s->user, e);
}

void bwi_session_note(struct bwi_session *s, int status, uint64_t step, const char *fmt, ...) {
    struct bw_event e = {.type = BW_EVENT_NOTE, .status = status, .step = step};
    char text[BW_ERROR_MESSAGE_BYTES + 256];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    bwi_text_words(e.message, sizeof e.message, text);
    emit(s, &e);
}

static void note_time(struct bwi_save *v, enum bw_level level, uint64_t ns) {
    struct bw_save_stats *t = &v->stats;
    if (level >= BW_CAPTURED && !t->capture_ns) t->capture_ns = ns;
    if (level >= BW_LOCAL && !t->local_ns && (v->tiers & (1u << BWI_TIER_LOCAL))) t->local_ns = ns;
    if (level >= BW_REMOTE && !t->remote_ns) t->remote_ns = ns;
    if (level >= BW_COMMITTED && !t->committed_ns) t->committed_ns = ns;
}

void bwi_session_level(struct bwi_save *v, enum bw_level level) {
    if (level <= v->level) return;
    v->level = level;
    uint64_t ns = bwi_loop_now_ns(v->session->ctx->loop) - v->start_ns;
    note_time(v, level, ns ? ns : 1);
    struct bw_event e = {.type = BW_EVENT_LEVEL, .step = v->step, .level = (uint32_t)level};
    emit(v->session, &e);
}

void bwi_session_room_changed(struct bwi_session *s) {
    s->room_changes++;
    for (struct bwi_save *v = s->saves; v; v = v->next)
        if (v->task.running && v->state != BWI_SAVE_ENDED) bwi_task_wake(&v->task);
}

void bwi_session_save_ended(struct bwi_save *v) {
    struct bwi_session *s = v->session;
    v->state = BWI_SAVE_ENDED;
    v->captured = true;
    if (v->committed)
        s->stats.saves_committed++;
    else
        s->stats.saves_failed++;
    struct bw_event e = {
        .type = BW_EVENT_SAVE_ENDED, .step = v->step, .level = (uint32_t)v->level, .status = v->error.status};
    bwi_format(e.message, sizeof e.message, "%s", v->error.message);
    emit(s, &e);
    bwi_session_room_changed(s);
    bwi_keeper_wake(s); /* a failed one may have left complete groups too */
    if (v->released && !v->reported) bwi_error_copy(&s->unheard, &v->error);
    if (v->released) bwi_session_release(v);
}

void bwi_session_over(struct bwi_session *s, const struct bw_error *e) {
    if (s->over) return;
    s->over = true;
    s->over_error = *e;
    struct bw_event ev = {.type = BW_EVENT_ATTEMPT, .status = e->status};
    bwi_format(ev.message, sizeof ev.message, "%s", e->message);
    emit(s, &ev);
}

/* --- the history has spoken ---------------------------------------------------------------------------------- */

void bwi_gap_fini(struct bwi_gap *g) {
    bwi_free(g->list);
    *g = (struct bwi_gap){0};
}

bool bwi_gap_add(struct bwi_gap *g, const struct bwi_entry *e) {
    if (e->event.type != BWI_EVENT_COMMIT && e->event.type != BWI_EVENT_ABORT) return true;
    for (size_t i = 0; i < e->event.id_count; i++) {
        void *grown = g->list;
        bool ok = bwi_vec_reserve(&grown, &g->cap, g->count + 1, sizeof *g->list);
        g->list = grown;
        if (!ok) return false;
        g->list[g->count].id = e->event.ids[i];
        g->list[g->count].type = e->event.type;
        bwi_format(g->list[g->count].note, sizeof g->list[g->count].note, "%s", e->event.note);
        g->count++;
    }
    return true;
}

/* Decided by the head alone: 1 committed, 0 still open, -1 closed without being in the head. */
static int verdict(const struct bwi_entry *head, const struct bwi_id *id) {
    switch (bwi_policy_fate(head, id)) {
    case BWI_FATE_LIVE:
    case BWI_FATE_SHELVED:
    case BWI_FATE_REFERENCED: return 1;
    case BWI_FATE_COMMITTABLE:
    case BWI_FATE_AHEAD: return 0;
    case BWI_FATE_DEAD: break;
    }
    return -1;
}

static bool undecided(const struct bwi_save *v) {
    return !v->outcome_set && v->state != BWI_SAVE_ENDED;
}

bool bwi_session_needs_gap(const struct bwi_session *s, const struct bwi_head *head) {
    if (!s->head.found || head->entry.n <= s->head.entry.n + 1) return false;
    for (const struct bwi_save *v = s->saves; v; v = v->next)
        if (undecided(v) && verdict(&head->entry, &v->id) < 0) return true;
    return false;
}

static void closed_without(struct bwi_session *s, struct bwi_save *v, const struct bwi_gap *gap) {
    char why[160] = "";
    for (size_t i = 0; i < gap->count; i++) {
        if (!bwi_id_eq(&gap->list[i].id, &v->id)) continue;
        if (gap->list[i].type == BWI_EVENT_COMMIT) {
            bwi_save_outcome(v, true, 0, "");
            return;
        }
        bwi_format(why, sizeof why, "%s", gap->list[i].note);
    }
    if (why[0])
        bwi_save_outcome(v, false, BW_E_ABORTED, why);
    else if (gap->hole)
        bwi_save_outcome(v, false, BW_E_UNKNOWN, "entries of the history that tell what became of it are gone");
    else if (s->over)
        bwi_save_outcome(v, false, s->over_error.status, s->over_error.message);
    else
        bwi_save_outcome(v, false, BW_E_ABORTED, "a later step was committed first");
}

/* Only a mark: whoever begins that try sees it, and writes the abort. An abort entry from here would open the next try,
 * and so on for ever. */
void bwi_session_refuse(struct bwi_session *s, uint64_t step, uint32_t tri) {
    const struct bwi_id id = {.step = step, .attempt = s->attempt, .nonce = s->nonce, .tri = tri};
    const bool past = s->highest_set && step < s->highest_step;
    char reason[128];
    bwi_format(reason, sizeof reason, "rank %u %s", s->cfg.rank,
               past ? "is past this step" : "is closing, and has not saved this step");
    bwi_session_owe(s, &id, s->group, BW_E_SKIPPED, reason, false);
}

/* Others may move on to a try of a step that this rank is past: they must not wait for it. Each is refused once: what
 * the last head said already was refused then, unless this rank has passed its step since. */
static void refuse_past_tries(struct bwi_session *s, const struct bwi_entry *last) {
    const struct bwi_entry *e = &s->head.entry;
    if (!s->highest_set || s->over || s->closing) return;
    const uint64_t refused_below = s->refused_below;
    s->refused_below = s->highest_step;
    for (size_t i = 0, k = 0; i < e->try_count; i++) {
        const struct bwi_try *t = &e->tries[i];
        while (last && k < last->try_count && last->tries[k].step < t->step) k++;
        const bool said = last && k < last->try_count && last->tries[k].step == t->step && last->tries[k].tri == t->tri;
        const struct bwi_id id = {.step = t->step, .attempt = s->attempt, .nonce = s->nonce, .tri = t->tri};
        if (said && t->step < refused_below) continue;
        if (bwi_session_never_makes(s, &id)) bwi_session_refuse(s, t->step, t->tri);
    }
}

bool bwi_session_never_makes(const struct bwi_session *s, const struct bwi_id *id) {
    const uint32_t cap = sizeof s->begun / sizeof *s->begun;
    if (!s->closing && !(s->highest_set && id->step < s->highest_step)) return false;
    for (uint32_t b = 0; b < s->begun_count; b++)
        if (s->begun[b].step == id->step && s->begun[b].tri >= id->tri) return false;
    for (const struct bwi_save *v = s->saves; v; v = v->next)
        if (bwi_id_eq(&v->id, id)) return false;
    /* What was begun before those that are remembered may have been made. */
    return s->begun_count < cap || id->step > s->begun[cap - 1].step;
}

void bwi_session_looked(struct bwi_session *s, const struct bwi_commit *look) {
    const struct bw_error *e = &look->task.error;
    for (struct bwi_save *v = s->saves; v; v = v->next) {
        if (!bwi_id_eq(&v->id, &look->id)) continue;
        v->held_up[0] = '\0';
        if (e->status < 0 && e->status != BW_E_CANCELLED)
            bwi_format(v->held_up, sizeof v->held_up, "the commit is tried again: %.280s", e->message);
        else if (look->result == BWI_COMMIT_INCOMPLETE && look->missing > 0)
            bwi_format(v->held_up, sizeof v->held_up, "not complete for want of rank%s %s",
                       look->missing > 1 ? "s" : "", look->missing_list);
    }
}

bool bwi_session_is_newer(const struct bwi_session *s, const struct bwi_head *head) {
    if (!head->found || !s->head.found) return head->found;
    if (head->entry.era != s->head.entry.era) return head->entry.era > s->head.entry.era;
    return head->entry.n > s->head.entry.n;
}

void bwi_session_apply_head(struct bwi_session *s, struct bwi_head *head, const struct bwi_gap *gap) {
    struct bw_error e = BW_ERROR_INIT;
    /* A decision may have brought a newer one while this was read; and what was read below damage says nothing new. */
    if (!bwi_session_is_newer(s, head)) {
        bwi_head_fini(head);
        return;
    }
    if (s->opened && bwi_policy_attempt_status(&head->entry, s->attempt, s->nonce, s->cfg.job, &e) < 0)
        bwi_session_over(s, &e);
    struct bwi_head last = s->head;
    s->head = *head;
    *head = (struct bwi_head){0};
    for (struct bwi_save *v = s->saves, *next; v; v = next) {
        next = v->next;
        if (!undecided(v)) continue;
        int said = verdict(&s->head.entry, &v->id);
        if (said > 0) bwi_save_outcome(v, true, 0, "");
        if (said < 0) closed_without(s, v, gap);
    }
    refuse_past_tries(s, last.found ? &last.entry : NULL);
    bwi_head_fini(&last);
    bwi_session_room_changed(s); /* what is dead or committed by this entry may go */
    bwi_teller_wake(s);
    if (s->opened) bwi_committer_wake(s);
}

void bwi_session_new_head(struct bwi_session *s, struct bwi_head *head) {
    if (!head->found) return;
    const bool newer = bwi_session_is_newer(s, head);
    if (!newer || bwi_session_needs_gap(s, head)) {
        if (newer && s->opened) bwi_follow_wake(s);
        bwi_head_fini(head);
        return;
    }
    struct bwi_gap gap = {0};
    gap.hole = !bwi_gap_add(&gap, &head->entry);
    bwi_session_apply_head(s, head, &gap);
    bwi_gap_fini(&gap);
}

void bwi_session_look(struct bwi_session *s) {
    if (!s->opened || s->over) return;
    bwi_follow_wake(s);
    bwi_committer_wake(s);
}

/* --- closing ------------------------------------------------------------------------------------------------- */

uint32_t bwi_session_in_flight(const struct bwi_session *s) {
    uint32_t n = 0;
    for (const struct bwi_save *v = s->saves; v; v = v->next) n += v->state != BWI_SAVE_ENDED;
    return n;
}

uint32_t bwi_session_places(const struct bwi_session *s) {
    uint32_t n = 0;
    for (const struct bwi_save *v = s->saves; v; v = v->next) n += v->state != BWI_SAVE_ENDED && !v->committed;
    return n;
}

size_t bwi_session_busy(const struct bwi_session *s, struct bwi_id *ret, size_t cap) {
    size_t n = 0;
    for (const struct bwi_save *v = s->saves; v && n < cap; v = v->next)
        if (v->state != BWI_SAVE_ENDED) ret[n++] = v->id;
    return n;
}

void bwi_session_close(struct bwi_session *s) {
    struct bw_error dropped = BW_ERROR_INIT;
    bwi_error_set(&dropped, BW_E_CANCELLED, "the checkpointer was closed before the save was started");
    s->closing = true;
    bwi_session_stop_probe(s);
    for (struct bwi_save *v = s->saves, *next; v; v = next) {
        next = v->next;
        if (v->state == BWI_SAVE_BEGUN) bwi_save_fail(v, &dropped);
    }
    bwi_lookout_wake(s);
    bwi_teller_wake(s);
    bwi_keeper_stop(s);
}

void bwi_session_give_up(struct bwi_session *s) {
    struct bw_error late = BW_ERROR_INIT;
    bwi_error_set(&late, BW_E_CANCELLED, "the checkpointer was closed before the save was complete");
    s->closing = s->giving_up = true;
    bwi_session_stop_probe(s);
    for (struct bwi_save *v = s->saves, *next; v; v = next) {
        next = v->next;
        if (v->state >= BWI_SAVE_STOP) { /* it is ending by itself */
            bwi_task_wake(&v->task);
            continue;
        }
        v->left = v->complete && !v->outcome_set;
        if (v->left) {
            bwi_error_set(&v->error, BW_E_TIMEOUT, "step %llu is %s%s%s; it is left for the next launch",
                          (unsigned long long)v->step, bw_level_name((int)v->level), v->held_up[0] ? ", and " : "",
                          v->held_up);
            bwi_task_cancel(&v->task);
        } else {
            bwi_save_fail(v, &late);
        }
    }
    bwi_task_cancel((struct bwi_task *)(void *)s->open); /* the task is its first member */
    bwi_follow_stop(s);
    bwi_committer_stop(s);
    bwi_keeper_stop(s);
    bwi_salvage_stop(s);
    bwi_lookout_stop(s);
    bwi_teller_stop(s);
}

bool bwi_session_drained(const struct bwi_session *s) {
    bool from_open = s->head.found && s->head.entry.from.set && s->head.entry.from.open;
    bool waits = from_open && s->cfg.rank == 0 && s->opened && !s->over;
    return bwi_session_in_flight(s) == 0 && !waits && !bwi_salvage_running(s) && !bwi_lookout_owes(s) &&
           !bwi_teller_running(s);
}

bool bwi_session_idle(const struct bwi_session *s) {
    const struct bwi_task *open = (const struct bwi_task *)(const void *)s->open;
    return !open->running && bwi_session_in_flight(s) == 0 && !bwi_teller_running(s) && !bwi_follow_running(s) &&
           !bwi_committer_running(s) && !bwi_keeper_running(s) && !bwi_salvage_running(s) && !bwi_lookout_running(s) &&
           !bwi_session_probes(s);
}
