/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the history: looking at an entry, and the events of a running job (register, commit, abort). The events of
 * keeping house are in policy_keep.c. */
#include "checkpoint/policy_history.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/policy_next.h"

const struct bwi_kept *bwi_policy_newest(const struct bwi_entry *head) {
    return head && head->live_count ? &head->live[head->live_count - 1] : NULL;
}

const struct bwi_kept *bwi_policy_find_live(const struct bwi_entry *head, uint64_t step) {
    for (size_t i = 0; head && i < head->live_count; i++)
        if (head->live[i].id.step == step) return &head->live[i];
    return NULL;
}

static const struct bwi_kept *find_in(const struct bwi_kept *list, size_t count, const struct bwi_id *id) {
    for (size_t i = 0; i < count; i++)
        if (bwi_id_eq(&list[i].id, id)) return &list[i];
    return NULL;
}

const struct bwi_kept *bwi_policy_find_kept(const struct bwi_entry *head, const struct bwi_id *id) {
    if (!head) return NULL;
    const struct bwi_kept *k = find_in(head->live, head->live_count, id);
    return k ? k : find_in(head->shelved, head->shelved_count, id);
}

const struct bwi_kept *bwi_policy_find_step(const struct bwi_entry *head, uint64_t step) {
    const struct bwi_kept *k = bwi_policy_find_live(head, step);
    for (size_t i = 0; head && !k && i < head->shelved_count; i++)
        if (head->shelved[i].id.step == step) k = &head->shelved[i];
    return k;
}

uint32_t bwi_policy_try(const struct bwi_entry *head, uint64_t step) {
    for (size_t i = 0; head && i < head->try_count; i++)
        if (head->tries[i].step == step) return head->tries[i].tri;
    return 0;
}

bool bwi_policy_is_current(const struct bwi_entry *head, uint32_t attempt, uint32_t nonce) {
    return head && head->attempt.set && head->attempt.number == attempt && head->attempt.nonce == nonce;
}

bool bwi_policy_in_lineage(const struct bwi_entry *head, const struct bwi_uuid *uuid) {
    for (size_t i = 0; head && i < head->lineage_count; i++)
        if (bwi_uuid_eq(&head->lineage[i].uuid, uuid)) return true;
    return false;
}

const struct bwi_uuid *bwi_policy_uuid(const struct bwi_entry *head) {
    return &head->lineage[head->lineage_count - 1].uuid;
}

static bool name_in(char (*list)[BWI_NAME_BUF], size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], name) == 0) return true;
    return false;
}

static bool is_open_from(const struct bwi_entry *head, const struct bwi_id *id) {
    return head && head->from.set && head->from.open && bwi_id_eq(&head->from.id, id);
}

static bool refers(const struct bwi_id *refs, uint32_t count, const struct bwi_id *id) {
    for (uint32_t i = 0; i < count; i++)
        if (bwi_id_eq(&refs[i], id)) return true;
    return false;
}

/* A ref is safe to build on while it is live, or while something live needs it too. */
static bool ref_is_safe(const struct bwi_entry *head, const struct bwi_id *ref) {
    for (size_t i = 0; i < head->live_count; i++)
        if (bwi_id_eq(&head->live[i].id, ref) || refers(head->live[i].refs, head->live[i].ref_count, ref)) return true;
    return false;
}

/* The part of committable that an id alone decides. */
static bool may_commit_id(const struct bwi_entry *head, const struct bwi_id *id) {
    if (!head) return false;
    if (is_open_from(head, id)) return true;
    return bwi_policy_is_current(head, id->attempt, id->nonce) && (!head->h_set || id->step > head->h) &&
           id->tri == bwi_policy_try(head, id->step);
}

bool bwi_policy_committable(const struct bwi_entry *head, const struct bwi_id *id, const struct bwi_id *refs,
                            uint32_t ref_count) {
    if (!may_commit_id(head, id)) return false;
    if (is_open_from(head, id)) return true; /* its refs are kept with it */
    for (uint32_t i = 0; i < ref_count; i++)
        if (!ref_is_safe(head, &refs[i])) return false;
    return true;
}

static bool is_referenced(const struct bwi_entry *head, const struct bwi_id *id) {
    for (size_t i = 0; i < head->live_count; i++)
        if (refers(head->live[i].refs, head->live[i].ref_count, id)) return true;
    for (size_t i = 0; i < head->shelved_count; i++)
        if (refers(head->shelved[i].refs, head->shelved[i].ref_count, id)) return true;
    return head->from.set && head->from.open && refers(head->from.refs, head->from.ref_count, id);
}

/* A try that the entry does not know yet. Steps that are not above h are past in this attempt, whatever their try: h
 * never falls within it. */
static bool is_ahead(const struct bwi_entry *head, const struct bwi_id *id) {
    uint32_t current = head->attempt.set ? head->attempt.number : 0;
    if (id->attempt > current) return true;
    return bwi_policy_is_current(head, id->attempt, id->nonce) && (!head->h_set || id->step > head->h) &&
           id->tri > bwi_policy_try(head, id->step);
}

enum bwi_fate bwi_policy_fate(const struct bwi_entry *head, const struct bwi_id *id) {
    if (!head) return BWI_FATE_AHEAD;
    if (find_in(head->live, head->live_count, id)) return BWI_FATE_LIVE;
    if (find_in(head->shelved, head->shelved_count, id)) return BWI_FATE_SHELVED;
    if (is_referenced(head, id)) return BWI_FATE_REFERENCED;
    if (may_commit_id(head, id)) return BWI_FATE_COMMITTABLE;
    return is_ahead(head, id) ? BWI_FATE_AHEAD : BWI_FATE_DEAD;
}

/* A commit raises h to its step, and h never falls within an attempt: above h none has been committed. */
bool bwi_policy_was_aborted(const struct bwi_entry *head, const struct bwi_id *id) {
    if (!head || bwi_policy_fate(head, id) != BWI_FATE_DEAD) return false;
    return bwi_policy_is_current(head, id->attempt, id->nonce) && (!head->h_set || id->step > head->h);
}

bool bwi_policy_layouts_dead(const struct bwi_entry *head, uint32_t attempt, uint32_t nonce) {
    if (!head || !head->attempt.set || attempt > head->attempt.number) return false;
    if (bwi_policy_is_current(head, attempt, nonce)) return false;
    return !(head->from.set && head->from.open && head->from.id.attempt == attempt && head->from.id.nonce == nonce);
}

int bwi_policy_attempt_status(const struct bwi_entry *head, uint32_t number, uint32_t nonce, const char *job,
                              struct bw_error *err) {
    if (bwi_policy_is_current(head, number, nonce)) return 0;
    const struct bwi_attempt *now = head ? &head->attempt : NULL;
    if (!now || !now->set)
        return bwi_error_set(err, BW_E_LAUNCH_LOST, "attempt %u is not in the history any more", number);
    if (name_in(head->superseded, head->superseded_count, job) || (now->job[0] && strcmp(now->job, job) != 0))
        return bwi_error_set(err, BW_E_SUPERSEDED,
                             "attempt %u of job \"%s\" was superseded by attempt %u of job \"%s\"", number, job,
                             now->number, now->job);
    if (!now->launch[0])
        return bwi_error_set(
            err, BW_E_LAUNCH_LOST,
            "attempt %u of job \"%s\" ended with attempt %u, which a repair or a rollback by hand began", number, job,
            now->number);
    return bwi_error_set(err, BW_E_LAUNCH_LOST, "attempt %u of job \"%s\" was replaced by attempt %u (launch \"%s\")",
                         number, job, now->number, now->launch);
}

/* --- register ------------------------------------------------------------------------------------------------ */

enum bwi_register_mode bwi_policy_mode(const struct bwi_entry *head, const struct bwi_register *r) {
    if (r->mode == BWI_REGISTER_DEFAULT || r->mode == BWI_REGISTER_DAMAGE) return r->mode;
    if (head && name_in(head->labels, head->label_count, r->label)) return BWI_REGISTER_DEFAULT;
    if (r->mode == BWI_REGISTER_TAKEOVER && !(head && name_in(head->superseded, head->superseded_count, r->job)))
        return BWI_REGISTER_DEFAULT;
    return r->mode;
}

/* Whether this launch takes over from the job that superseded its own. */
static bool takes_over(const struct bwi_entry *head, const struct bwi_register *r) {
    struct bwi_register wish = *r;
    if (r->mode == BWI_REGISTER_DAMAGE && r->takeover) wish.mode = BWI_REGISTER_TAKEOVER;
    return bwi_policy_mode(head, &wish) == BWI_REGISTER_TAKEOVER;
}

static int check_nobody_won(const struct bwi_entry *head, const struct bwi_register *r, struct bw_error *err) {
    bool same = head->attempt.set == r->seen_set &&
                (!r->seen_set || bwi_policy_is_current(head, r->seen_number, r->seen_nonce));
    if (same) return 0;
    if (head->attempt.job[0] && strcmp(head->attempt.job, r->job) != 0)
        return bwi_error_set(err, BW_E_SUPERSEDED, "job \"%s\" registered first, as attempt %u", head->attempt.job,
                             head->attempt.number);
    return bwi_error_set(err, BW_E_LAUNCH_LOST, "launch \"%s\" registered first, as attempt %u", head->attempt.launch,
                         head->attempt.number);
}

/* Attempts count upwards for ever. One above that of the entry proves nothing: the entry may not be the newest. */
bool bwi_policy_is_beaten(const struct bwi_entry *head, bool seen_set, uint32_t seen_number) {
    if (!head || !head->attempt.set) return false;
    return !seen_set || seen_number < head->attempt.number;
}

int bwi_policy_may_register(const struct bwi_entry *head, const struct bwi_register *r, struct bw_error *err) {
    if (!head) return 0;
    if (name_in(head->launches, head->launch_count, r->launch))
        return bwi_error_set(err, BW_E_LAUNCH_LOST, "launch id \"%s\" was used before; every start needs its own",
                             r->launch);
    int rc = check_nobody_won(head, r, err);
    if (rc < 0) return rc;
    if (name_in(head->superseded, head->superseded_count, r->job) && !takes_over(head, r))
        return bwi_error_set(err, BW_E_SUPERSEDED,
                             "job \"%s\" was superseded by job \"%s\"; only a takeover brings it back", r->job,
                             head->attempt.job);
    return 0;
}

static void set_from(struct bwi_entry *next, const struct bwi_id *id, const struct bwi_candidate *facts, bool open) {
    next->from.set = true;
    next->from.id = *id;
    next->from.world = facts->world;
    next->from.groups = facts->groups;
    next->from.fan_out = facts->fan_out;
    next->from.ref_count = facts->ref_count;
    memcpy(next->from.refs, facts->refs, sizeof next->from.refs);
    next->from.open = open;
    next->h_set = true;
    next->h = id->step;
}

static int from_default(const struct bwi_entry *head, const struct bwi_register *r, struct bwi_entry *next,
                        struct bw_error *err) {
    const struct bwi_kept *newest = bwi_policy_newest(head);
    const struct bwi_candidate *c = r->newer;
    if (c) {
        if (newest && c->id.step <= newest->id.step)
            return bwi_error_set(err, BW_E_INTERNAL, "candidate is not newer than the newest live checkpoint");
        if (!bwi_policy_committable(head, &c->id, c->refs, c->ref_count))
            return bwi_error_set(err, BW_E_UNKNOWN, "the chosen checkpoint of step %llu cannot be committed any more",
                                 (unsigned long long)c->id.step);
        set_from(next, &c->id, c, true);
    } else if (newest) {
        set_from(next, &newest->id, &r->target_facts, false);
    }
    return 0;
}

static int from_rollback(const struct bwi_entry *head, const struct bwi_register *r, struct bwi_entry *next,
                         struct bw_error *err) {
    const struct bwi_kept *k = bwi_policy_find_kept(head, &r->target);
    if (!k)
        return bwi_error_set(err, BW_E_NOTFOUND, "no live or shelved checkpoint of step %llu to go back to",
                             (unsigned long long)r->target.step);
    bool live = find_in(head->live, head->live_count, &r->target) != NULL;
    /* Another life of the run may have passed the same steps, so a shelved one comes back alone. */
    if (bwi_next_shelve(next, live ? &r->target.step : NULL, err) < 0) return err ? err->status : BW_E_NOMEM;
    if (!live && bwi_next_unshelve(next, &r->target, err) < 0) return BW_E_NOMEM;
    set_from(next, &r->target, &r->target_facts, false);
    return 0;
}

static int choose_from(const struct bwi_entry *head, const struct bwi_register *r, enum bwi_register_mode mode,
                       struct bwi_entry *next, struct bw_error *err) {
    switch (mode) {
    case BWI_REGISTER_ROLLBACK:
    case BWI_REGISTER_DAMAGE: return from_rollback(head, r, next, err);
    case BWI_REGISTER_FRESH: return bwi_next_shelve(next, NULL, err);
    case BWI_REGISTER_DEFAULT:
    case BWI_REGISTER_TAKEOVER: break;
    }
    return from_default(head, r, next, err);
}

/* Labels, launches and superseded jobs. */
static int remember(const struct bwi_entry *head, const struct bwi_register *r, enum bwi_register_mode mode,
                    struct bwi_entry *next, struct bw_error *err) {
    const bool over = takes_over(head, r);
    if (mode == BWI_REGISTER_ROLLBACK || mode == BWI_REGISTER_FRESH || over) {
        if (bwi_next_name(&next->labels, &next->label_count, r->label, err) < 0) return BW_E_NOMEM;
        bwi_format(next->event.label, sizeof next->event.label, "%s", r->label);
    }
    if (over) bwi_next_drop_name(next->superseded, &next->superseded_count, r->job);
    if (head && head->attempt.set && head->attempt.job[0] && strcmp(head->attempt.job, r->job) != 0 &&
        !name_in(next->superseded, next->superseded_count, head->attempt.job) &&
        bwi_next_name(&next->superseded, &next->superseded_count, head->attempt.job, err) < 0)
        return BW_E_NOMEM;
    if (bwi_next_name(&next->launches, &next->launch_count, r->launch, err) < 0) return BW_E_NOMEM;
    while (next->launch_count > BWI_LAUNCHES_KEPT)
        bwi_next_drop_name(next->launches, &next->launch_count, next->launches[0]);
    return 0;
}

static void set_attempt(const struct bwi_entry *head, const struct bwi_register *r, struct bwi_entry *next) {
    struct bwi_attempt *a = &next->attempt;
    a->number = head && head->attempt.set ? head->attempt.number + 1 : 1;
    a->set = true;
    a->nonce = r->nonce;
    a->world = r->world;
    a->groups = r->groups;
    a->fan_out = r->fan_out;
    bwi_format(a->job, sizeof a->job, "%s", r->job);
    bwi_format(a->launch, sizeof a->launch, "%s", r->launch);
}

int bwi_policy_register(const struct bwi_actor *a, const struct bwi_register *r, struct bwi_entry *ret,
                        struct bw_error *err) {
    static const char *const mode_name[] = {"default", "rollback", "fresh", "takeover", "damage"};
    struct bw_error scratch = BW_ERROR_INIT;
    struct bw_error *e = err ? err : &scratch;
    if (bwi_policy_may_register(a->head, r, e) < 0) return e->status;
    enum bwi_register_mode mode = bwi_policy_mode(a->head, r);
    struct bwi_entry next = {0};
    if (bwi_next_begin(a, BWI_EVENT_REGISTER, r->run, &r->uuid, &next, e) < 0) return e->status;
    next.from = (struct bwi_from){0};
    next.h_set = false;
    next.h = 0;
    next.try_count = 0;
    set_attempt(a->head, r, &next);
    bwi_format(next.event.mode, sizeof next.event.mode, "%s", mode_name[mode]);
    bwi_text_line(next.event.note, sizeof next.event.note, r->note ? r->note : "");
    if (choose_from(a->head, r, mode, &next, e) < 0 || remember(a->head, r, mode, &next, e) < 0 ||
        (next.from.set && bwi_next_subject(&next, &next.from.id, e) < 0)) {
        bwi_entry_fini(&next);
        return e->status;
    }
    *ret = next;
    return 0;
}

/* --- commit and abort ---------------------------------------------------------------------------------------- */

int bwi_policy_commit(const struct bwi_actor *a, const struct bwi_kept *k, struct bwi_entry *ret,
                      struct bw_error *err) {
    struct bw_error scratch = BW_ERROR_INIT;
    struct bw_error *e = err ? err : &scratch;
    if (!bwi_policy_committable(a->head, &k->id, k->refs, k->ref_count))
        return bwi_error_set(e, BW_E_ABORTED, "step %llu, attempt %u, try %u cannot be committed any more",
                             (unsigned long long)k->id.step, k->id.attempt, k->id.tri);
    if (bwi_policy_find_live(a->head, k->id.step))
        return bwi_error_set(e, BW_E_INTERNAL, "step %llu is live already", (unsigned long long)k->id.step);
    struct bwi_entry next = {0};
    if (bwi_next_begin(a, BWI_EVENT_COMMIT, NULL, NULL, &next, e) < 0) return e->status;
    struct bwi_kept kept = *k;
    kept.time_ms = a->time_ms;
    kept.pinned = false;
    if (bwi_next_commit(&next, &kept, e) < 0 || bwi_next_subject(&next, &k->id, e) < 0) {
        bwi_entry_fini(&next);
        return e->status;
    }
    *ret = next;
    return 0;
}

int bwi_policy_abort(const struct bwi_actor *a, const struct bwi_id *id, const char *reason, struct bwi_entry *ret,
                     struct bw_error *err) {
    struct bw_error scratch = BW_ERROR_INIT;
    struct bw_error *e = err ? err : &scratch;
    if (!may_commit_id(a->head, id))
        return bwi_error_set(e, BW_E_STATE, "step %llu, attempt %u, try %u is not open any more",
                             (unsigned long long)id->step, id->attempt, id->tri);
    struct bwi_entry next = {0};
    if (bwi_next_begin(a, BWI_EVENT_ABORT, NULL, NULL, &next, e) < 0) return e->status;
    bwi_text_line(next.event.note, sizeof next.event.note, reason ? reason : "");
    int rc = bwi_next_subject(&next, id, e);
    if (rc == 0 && is_open_from(a->head, id))
        next.from.open = false;
    else if (rc == 0)
        rc = bwi_next_try(&next, id->step, id->tri + 1, e);
    if (rc < 0) {
        bwi_entry_fini(&next);
        return rc;
    }
    *ret = next;
    return 0;
}
