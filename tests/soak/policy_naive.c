/* SPDX-License-Identifier: Apache-2.0 */
/* The table of events of doc/flows/README.md, row by row. */
#include "policy_naive.h"

#include <stdio.h>
#include <string.h>

/* --- looking ---- */

bool naive_is_kept(const struct naive *s, int m) {
    return s->kept[m].place != NOWHERE;
}

bool naive_refers(const struct naive_world *w, int m, int to) {
    for (unsigned i = 0; i < w->makings[m].ref_count; i++)
        if (w->makings[m].refs[i] == to) return true;
    return false;
}

int naive_newest(const struct naive_world *w, const struct naive *s) {
    int newest = NOBODY;
    for (int m = 0; m < (int)w->count; m++) {
        if (s->kept[m].place != IS_LIVE) continue;
        if (newest == NOBODY || w->makings[m].id.step > w->makings[newest].id.step) newest = m;
    }
    return newest;
}

int naive_live_of(const struct naive_world *w, const struct naive *s, uint64_t step) {
    for (int m = 0; m < (int)w->count; m++)
        if (s->kept[m].place == IS_LIVE && w->makings[m].id.step == step) return m;
    return NOBODY;
}

/* The live one; else the first by id of those that are shelved. */
int naive_of_step(const struct naive_world *w, const struct naive *s, uint64_t step) {
    int best = naive_live_of(w, s, step);
    const bool live = best != NOBODY;
    for (int m = 0; !live && m < (int)w->count; m++) {
        if (s->kept[m].place != IS_SHELVED || w->makings[m].id.step != step) continue;
        if (best == NOBODY || bwi_id_cmp(&w->makings[m].id, &w->makings[best].id) < 0) best = m;
    }
    return best;
}

bool naive_floor(const struct naive *s, uint64_t *ret) {
    uint64_t h = 0;
    for (unsigned i = 0; i < s->past_count; i++)
        if (s->past[i] > h) h = s->past[i];
    *ret = h;
    return s->past_count > 0;
}

static bool is_past(const struct naive *s, uint64_t step) {
    uint64_t h;
    return naive_floor(s, &h) && step <= h;
}

uint32_t naive_try(const struct naive *s, uint64_t step) {
    uint32_t count = 0;
    for (unsigned i = 0; i < s->aborted_count; i++) count += s->aborted[i] == step;
    return is_past(s, step) ? 0 : count;
}

bool naive_is_current(const struct naive *s, uint32_t number, uint32_t nonce) {
    return s->begun && s->attempt.set && s->attempt.number == number && s->attempt.nonce == nonce;
}

bool naive_has(const struct names *n, int name) {
    for (unsigned i = 0; i < n->count; i++)
        if (n->list[i] == name) return true;
    return false;
}

static bool is_open_from(const struct naive *s, int m) {
    return s->from_open && s->from == m;
}

/* But for its refs. */
static bool is_open(const struct naive_world *w, const struct naive *s, int m) {
    const struct bwi_id *id = &w->makings[m].id;
    if (!s->begun) return false;
    if (is_open_from(s, m)) return true;
    if (!naive_is_current(s, id->attempt, id->nonce)) return false;
    if (is_past(s, id->step)) return false;
    return id->tri == naive_try(s, id->step);
}

static bool is_ref_of_live(const struct naive_world *w, const struct naive *s, int m) {
    for (int k = 0; k < (int)w->count; k++)
        if (s->kept[k].place == IS_LIVE && naive_refers(w, k, m)) return true;
    return false;
}

bool naive_committable(const struct naive_world *w, const struct naive *s, int m) {
    if (!is_open(w, s, m)) return false;
    if (is_open_from(s, m)) return true;
    for (unsigned i = 0; i < w->makings[m].ref_count; i++) {
        const int ref = w->makings[m].refs[i];
        if (s->kept[ref].place != IS_LIVE && !is_ref_of_live(w, s, ref)) return false;
    }
    return true;
}

bool naive_from_needs(const struct naive_world *w, const struct naive *s, int m) {
    return s->from_open && naive_refers(w, s->from, m);
}

static bool is_needed(const struct naive_world *w, const struct naive *s, int m) {
    for (int k = 0; k < (int)w->count; k++)
        if (naive_is_kept(s, k) && naive_refers(w, k, m)) return true;
    return naive_from_needs(w, s, m);
}

/* An attempt that has not registered yet; or a try that has not been come to. */
static bool is_ahead(const struct naive_world *w, const struct naive *s, int m) {
    const struct bwi_id *id = &w->makings[m].id;
    if (!s->begun || !s->attempt.set || id->attempt > s->attempt.number) return true;
    return naive_is_current(s, id->attempt, id->nonce) && !is_past(s, id->step) && id->tri > naive_try(s, id->step);
}

enum bwi_fate naive_fate(const struct naive_world *w, const struct naive *s, int m) {
    if (s->kept[m].place == IS_LIVE) return BWI_FATE_LIVE;
    if (s->kept[m].place == IS_SHELVED) return BWI_FATE_SHELVED;
    if (is_needed(w, s, m)) return BWI_FATE_REFERENCED;
    if (is_open(w, s, m)) return BWI_FATE_COMMITTABLE;
    return is_ahead(w, s, m) ? BWI_FATE_AHEAD : BWI_FATE_DEAD;
}

bool naive_was_aborted(const struct naive_world *w, const struct naive *s, int m) {
    const struct bwi_id *id = &w->makings[m].id;
    return naive_fate(w, s, m) == BWI_FATE_DEAD && naive_is_current(s, id->attempt, id->nonce) &&
           !is_past(s, id->step) && id->tri < naive_try(s, id->step);
}

bool naive_layouts_dead(const struct naive_world *w, const struct naive *s, uint32_t number, uint32_t nonce) {
    if (!s->begun || !s->attempt.set) return false;
    const bool beyond = number > s->attempt.number;
    const struct bwi_id *from = s->from_open ? &w->makings[s->from].id : NULL;
    const bool of_from = from != NULL && from->attempt == number && from->nonce == nonce;
    return !beyond && !naive_is_current(s, number, nonce) && !of_from;
}

int naive_attempt_status(const struct naive *s, uint32_t number, uint32_t nonce, int job) {
    if (naive_is_current(s, number, nonce)) return 0;
    if (!s->begun || !s->attempt.set) return BW_E_LAUNCH_LOST;
    const bool by_another = s->attempt.job != NOBODY && s->attempt.job != job;
    return by_another || naive_has(&s->superseded, job) ? BW_E_SUPERSEDED : BW_E_LAUNCH_LOST;
}

bool naive_is_beaten(const struct naive *s, bool seen_set, uint32_t seen_number) {
    const uint32_t seen = seen_set ? seen_number : 0; /* attempts count from 1 */
    return s->begun && s->attempt.set && s->attempt.number > seen;
}

/* --- register ---- */

enum bwi_register_mode naive_mode(const struct naive *s, const struct naive_ask *a) {
    const bool on_demand =
        a->mode == BWI_REGISTER_ROLLBACK || a->mode == BWI_REGISTER_FRESH || a->mode == BWI_REGISTER_TAKEOVER;
    if (on_demand && naive_has(&s->labels, a->label)) return BWI_REGISTER_DEFAULT;
    if (a->mode == BWI_REGISTER_TAKEOVER && !naive_has(&s->superseded, a->job)) return BWI_REGISTER_DEFAULT;
    return a->mode;
}

/* A takeover that is granted, beside going back for damage too. */
static bool takes_over(const struct naive *s, const struct naive_ask *a) {
    const bool wished = a->mode == BWI_REGISTER_TAKEOVER || (a->mode == BWI_REGISTER_DAMAGE && a->takeover);
    return wished && naive_has(&s->superseded, a->job) && !naive_has(&s->labels, a->label);
}

/* Only so many are remembered. */
static bool launch_was_used(const struct naive *s, int launch) {
    const unsigned forgotten = s->launch_count > BWI_LAUNCHES_KEPT ? s->launch_count - BWI_LAUNCHES_KEPT : 0;
    for (unsigned i = forgotten; i < s->launch_count; i++)
        if (s->launches[i] == launch) return true;
    return false;
}

int naive_may_register(const struct naive *s, const struct naive_ask *a) {
    if (!s->begun) return 0;
    if (launch_was_used(s, a->launch)) return BW_E_LAUNCH_LOST;
    const bool nothing_new = a->seen_set ? naive_is_current(s, a->seen_number, a->seen_nonce) : !s->attempt.set;
    const bool another = s->attempt.job != NOBODY && s->attempt.job != a->job;
    if (!nothing_new) return another ? BW_E_SUPERSEDED : BW_E_LAUNCH_LOST;
    if (naive_has(&s->superseded, a->job) && !takes_over(s, a)) return BW_E_SUPERSEDED;
    return 0;
}

static void begin_event(struct naive *s, enum bwi_event type) {
    s->n++;
    memset(&s->event, 0, sizeof s->event);
    s->event.type = type;
    s->event.label = NOBODY;
}

static void subject(struct naive *s, int m) {
    s->event.ids[s->event.id_count++] = m;
}

static void note(struct naive *s, const char *text) {
    (void)snprintf(s->event.note, sizeof s->event.note, "%s", text != NULL ? text : "");
}

static void use_name(struct names *n, int name) {
    n->list[n->count++] = name;
}

static void drop_name(struct names *n, int name) {
    struct names rest = {.count = 0};
    for (unsigned i = 0; i < n->count; i++)
        if (n->list[i] != name) use_name(&rest, n->list[i]);
    *n = rest;
}

static void go_on_from(const struct naive_world *w, struct naive *s, int m, bool open) {
    s->from = m;
    s->from_open = open;
    s->past[s->past_count++] = w->makings[m].id.step;
    subject(s, m);
}

/* To a live one: those above it are set aside. To a shelved one: all others are. */
static void roll_back(const struct naive_world *w, struct naive *s, int target) {
    const bool was_live = s->kept[target].place == IS_LIVE;
    for (int m = 0; m < (int)w->count; m++) {
        const bool above = w->makings[m].id.step > w->makings[target].id.step;
        if (s->kept[m].place == IS_LIVE && (above || !was_live)) s->kept[m].place = IS_SHELVED;
    }
    s->kept[target].place = IS_LIVE;
}

static int may_go_on(const struct naive_world *w, const struct naive *s, const struct naive_ask *a,
                     enum bwi_register_mode mode) {
    if (mode == BWI_REGISTER_FRESH) return 0;
    if (mode == BWI_REGISTER_ROLLBACK || mode == BWI_REGISTER_DAMAGE)
        return s->begun && naive_is_kept(s, a->target) ? 0 : BW_E_NOTFOUND;
    if (a->newer == NOBODY) return 0;
    const int newest = naive_newest(w, s);
    if (newest != NOBODY && w->makings[a->newer].id.step <= w->makings[newest].id.step) return BW_E_INTERNAL;
    return naive_committable(w, s, a->newer) ? 0 : BW_E_UNKNOWN;
}

static void take_place(const struct naive_world *w, struct naive *s, const struct naive_ask *a,
                       enum bwi_register_mode mode) {
    const int newest = naive_newest(w, s);
    switch (mode) {
    case BWI_REGISTER_FRESH:
        for (int m = 0; m < (int)w->count; m++)
            if (s->kept[m].place == IS_LIVE) s->kept[m].place = IS_SHELVED;
        break;
    case BWI_REGISTER_ROLLBACK:
    case BWI_REGISTER_DAMAGE:
        roll_back(w, s, a->target);
        go_on_from(w, s, a->target, false);
        break;
    case BWI_REGISTER_DEFAULT:
    case BWI_REGISTER_TAKEOVER:
        if (a->newer != NOBODY)
            go_on_from(w, s, a->newer, true);
        else if (newest != NOBODY)
            go_on_from(w, s, newest, false);
        break;
    }
}

int naive_register(const struct naive_world *w, struct naive *s, const struct naive_ask *a) {
    static const char *const names[] = {"default", "rollback", "fresh", "takeover", "damage"};
    int rc = naive_may_register(s, a);
    const enum bwi_register_mode mode = naive_mode(s, a);
    if (rc == 0) rc = may_go_on(w, s, a, mode);
    if (rc < 0) return rc;
    const bool over = takes_over(s, a);
    const int before = s->begun && s->attempt.set ? s->attempt.job : NOBODY;
    if (!s->begun) {
        s->era = 1;
        s->eras[s->era_count++] = (struct naive_era){1, 1, a->uuid};
    }
    s->begun = true;
    begin_event(s, BWI_EVENT_REGISTER);
    (void)snprintf(s->event.mode, sizeof s->event.mode, "%s", names[mode]);
    note(s, a->note);
    s->from = NOBODY;
    s->from_open = false;
    s->past_count = s->aborted_count = 0;
    s->attempt.number = s->attempt.set ? s->attempt.number + 1 : 1;
    s->attempt.set = true;
    s->attempt.nonce = a->nonce;
    s->attempt.job = a->job;
    s->attempt.launch = a->launch;
    s->attempt.world = a->world;
    s->attempt.groups = a->groups;
    s->attempt.fan_out = a->fan_out;
    take_place(w, s, a, mode);
    if (over || mode == BWI_REGISTER_ROLLBACK || mode == BWI_REGISTER_FRESH) {
        use_name(&s->labels, a->label);
        s->event.label = a->label;
    }
    if (over) drop_name(&s->superseded, a->job);
    if (before != NOBODY && before != a->job && !naive_has(&s->superseded, before)) use_name(&s->superseded, before);
    s->launches[s->launch_count++] = a->launch;
    return 0;
}

/* --- commit and abort ---- */

static void make_live(const struct naive_world *w, struct naive *s, int m, int64_t time_ms) {
    s->kept[m].place = IS_LIVE;
    s->kept[m].pinned = false;
    s->kept[m].time_ms = time_ms;
    s->past[s->past_count++] = w->makings[m].id.step;
    s->from_open = false;
}

int naive_commit(const struct naive_world *w, struct naive *s, int m, int64_t time_ms) {
    if (!naive_committable(w, s, m)) return BW_E_ABORTED;
    if (naive_live_of(w, s, w->makings[m].id.step) != NOBODY) return BW_E_INTERNAL;
    begin_event(s, BWI_EVENT_COMMIT);
    subject(s, m);
    make_live(w, s, m, time_ms);
    return 0;
}

int naive_abort(const struct naive_world *w, struct naive *s, int m, const char *reason) {
    if (!is_open(w, s, m)) return BW_E_STATE;
    begin_event(s, BWI_EVENT_ABORT);
    subject(s, m);
    note(s, reason);
    if (is_open_from(s, m))
        s->from_open = false;
    else
        s->aborted[s->aborted_count++] = w->makings[m].id.step;
    return 0;
}

/* --- retire, pin, repair, promote ---- */

int naive_retire(const struct naive_world *w, struct naive *s, const int *list, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        if (!s->begun || !naive_is_kept(s, list[i])) return BW_E_NOTFOUND;
        if (list[i] == naive_newest(w, s) || s->kept[list[i]].pinned || naive_from_needs(w, s, list[i]))
            return BW_E_REFUSED;
    }
    begin_event(s, BWI_EVENT_RETIRE);
    for (unsigned i = 0; i < count; i++) {
        s->kept[list[i]].place = NOWHERE;
        subject(s, list[i]);
    }
    return 0;
}

int naive_pin(struct naive *s, int m, bool pinned) {
    if (!s->begun || !naive_is_kept(s, m)) return BW_E_NOTFOUND;
    begin_event(s, pinned ? BWI_EVENT_PIN : BWI_EVENT_UNPIN);
    s->kept[m].pinned = pinned;
    subject(s, m);
    return 0;
}

/* The era that follows, behind entry n of era `era`; an attempt of no job, in which nothing is open. */
static void next_era(const struct naive_world *w, struct naive *s, uint32_t era, uint64_t n, unsigned char uuid,
                     uint32_t nonce) {
    const int newest = naive_newest(w, s);
    s->era = era + 1;
    s->n = n + 1;
    s->eras[s->era_count++] = (struct naive_era){s->era, s->n, uuid};
    s->attempt.number = s->attempt.set ? s->attempt.number + 1 : 1;
    s->attempt.set = true;
    s->attempt.nonce = nonce;
    s->attempt.job = s->attempt.launch = NOBODY;
    s->attempt.world = s->attempt.groups = 0;
    s->attempt.fan_out = false;
    s->from = NOBODY;
    s->from_open = false;
    s->aborted_count = s->past_count = 0;
    if (newest != NOBODY) s->past[s->past_count++] = w->makings[newest].id.step;
}

static bool is_in(const int *list, unsigned count, int m) {
    for (unsigned i = 0; i < count; i++)
        if (list[i] == m) return true;
    return false;
}

static bool refers_to_gone(const struct naive_world *w, const struct naive_repair *r, int m) {
    for (unsigned i = 0; i < w->makings[m].ref_count; i++)
        if (is_in(r->gone, r->gone_count, w->makings[m].refs[i])) return true;
    return false;
}

int naive_repair(const struct naive_world *w, struct naive *s, const struct naive_repair *r) {
    unsigned found = 0;
    begin_event(s, BWI_EVENT_REPAIR);
    for (unsigned i = 0; i < r->gone_count; i++) {
        s->kept[r->gone[i]].place = NOWHERE;
        subject(s, r->gone[i]);
    }
    for (unsigned i = 0; i < r->found_count; i++) {
        const int m = r->found[i];
        if (!naive_committable(w, s, m) || refers_to_gone(w, r, m)) continue;
        if (naive_live_of(w, s, w->makings[m].id.step) != NOBODY) continue;
        make_live(w, s, m, r->time_ms);
        found++;
    }
    next_era(w, s, r->era, r->n, r->uuid, r->nonce);
    (void)snprintf(s->event.note, sizeof s->event.note,
                   "entry %u.%llu is damaged; %u checkpoints lost, %u found complete", r->era,
                   (unsigned long long)r->damaged_n, r->gone_count, found);
    return 0;
}

int naive_promote(const struct naive_world *w, struct naive *s, unsigned char store, unsigned char uuid,
                  uint32_t nonce) {
    if (s->store == store) return BW_E_REFUSED;
    const uint64_t n = s->n;
    begin_event(s, BWI_EVENT_PROMOTE);
    next_era(w, s, s->era, n, uuid, nonce);
    return 0;
}
