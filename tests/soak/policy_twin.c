/* SPDX-License-Identifier: Apache-2.0 */
/* What the twin is made of, and what must be true after each step whatever the rules say. */
#include "policy_twin.h"

#include "base/text.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- telling and drawing ---- */

bool twin_violated(struct twin *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(t->run->message, sizeof t->run->message, fmt, ap);
    va_end(ap);
    return false;
}

void twin_tell(const struct twin *t, const char *fmt, ...) {
    if (!t->run->alone) return;
    va_list ap;
    va_start(ap, fmt);
    (void)vprintf(fmt, ap);
    va_end(ap);
    (void)printf("\n");
}

uint64_t twin_random(struct twin *t, uint64_t below) {
    t->rng += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = t->rng;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return below > 0 ? (z ^ (z >> 31)) % below : 0;
}

bool twin_chance(struct twin *t, unsigned percent) {
    return twin_random(t, 100) < percent;
}

/* --- numbers and what they stand for ---- */

const struct bwi_entry *twin_entry(const struct twin *t) {
    return t->head_count > 0 ? &t->heads[t->head_count - 1].entry : NULL;
}

const struct naive *twin_naive(const struct twin *t) {
    static const struct naive nothing = {.from = NOBODY};
    return t->head_count > 0 ? &t->heads[t->head_count - 1].naive : &nothing;
}

void twin_name(char kind, int number, char ret[BWI_NAME_BUF]) {
    ret[0] = '\0';
    if (number != NOBODY) (void)snprintf(ret, BWI_NAME_BUF, "%c%d", kind, number);
}

struct bwi_uuid twin_uuid(unsigned char number) {
    return (struct bwi_uuid){.b = {number, 1}};
}

struct bwi_kept twin_kept(const struct twin *t, int m, int64_t time_ms) {
    const struct making *from = &t->world.makings[m];
    struct bwi_kept k = {.id = from->id, .bytes = from->bytes, .time_ms = time_ms, .ref_count = from->ref_count};
    k.manifest.b[0] = from->manifest;
    for (unsigned i = 0; i < from->ref_count; i++) k.refs[i] = t->world.makings[from->refs[i]].id;
    return k;
}

struct bwi_candidate twin_candidate(const struct twin *t, int m) {
    if (m == NOBODY) return (struct bwi_candidate){.world = 0};
    const struct making *from = &t->world.makings[m];
    const struct bwi_kept k = twin_kept(t, m, 0);
    struct bwi_candidate c = {.id = from->id,
                              .world = from->world,
                              .groups = from->groups,
                              .fan_out = from->fan_out,
                              .ref_count = k.ref_count};
    memcpy(c.refs, k.refs, sizeof c.refs);
    return c;
}

/* --- what must be true ---- */

/* What the history holds is complete, with all that it refers to, and so is what the open from refers to. */
static bool data_is_there(struct twin *t, const struct naive *s) {
    for (int m = 0; m < (int)t->world.count; m++) {
        const struct bwi_id *id = &t->world.makings[m].id;
        const bool kept = naive_is_kept(s, m);
        if (kept && !t->facts[m].complete)
            return twin_violated(t, "step %" PRIu64 ", attempt %u, is kept without its data", id->step, id->attempt);
        for (int r = 0; r < (int)t->world.count; r++) {
            const bool needed = (kept && naive_refers(&t->world, m, r)) ||
                                (s->from_open && s->from == m && naive_refers(&t->world, m, r));
            if (needed && !t->facts[r].complete)
                return twin_violated(t, "what step %" PRIu64 ", attempt %u, refers to has no data", id->step,
                                     id->attempt);
        }
    }
    return true;
}

/* Dead is for ever; and what an entry has proved to be aborted was never live, and never becomes it. */
static bool fates_hold(struct twin *t, const struct bwi_entry *e) {
    for (unsigned m = 0; m < t->world.count; m++) {
        const struct bwi_id *id = &t->world.makings[m].id;
        struct twin_fact *f = &t->facts[m];
        const enum bwi_fate fate = bwi_policy_fate(e, id);
        if (f->dead && fate != BWI_FATE_DEAD)
            return twin_violated(t, "step %" PRIu64 ", attempt %u, try %u was dead", id->step, id->attempt, id->tri);
        f->dead = fate == BWI_FATE_DEAD;
        f->was_live = f->was_live || fate == BWI_FATE_LIVE;
        f->aborted = f->aborted || bwi_policy_was_aborted(e, id);
        if (f->aborted && f->was_live)
            return twin_violated(t, "step %" PRIu64 ", attempt %u, try %u was aborted, and live", id->step, id->attempt,
                                 id->tri);
    }
    return true;
}

/* Newest never goes back but on demand or for damage; the floor never falls in an attempt; attempts count up by one. */
static bool order_holds(struct twin *t, const struct bwi_entry *before, const struct bwi_entry *e) {
    const enum bwi_event type = e->event.type;
    const bool begins = type == BWI_EVENT_REGISTER || type == BWI_EVENT_REPAIR || type == BWI_EVENT_PROMOTE;
    const struct bwi_kept *was = bwi_policy_newest(before), *is = bwi_policy_newest(e);
    const bool on_demand =
        type == BWI_EVENT_REPAIR || e->event.label[0] != '\0' || strcmp(e->event.mode, "damage") == 0;
    if (was != NULL && !on_demand && (is == NULL || is->id.step < was->id.step))
        return twin_violated(t, "the newest went back from step %" PRIu64, was->id.step);
    if (before == NULL) return true;
    if (!begins && before->h_set && (!e->h_set || e->h < before->h)) return twin_violated(t, "the floor fell");
    if (type != BWI_EVENT_REPAIR && e->attempt.number != before->attempt.number + begins)
        return twin_violated(t, "attempt %u follows attempt %u", e->attempt.number, before->attempt.number);
    if (begins && e->try_count > 0) return twin_violated(t, "tries outlive their attempt");
    return true;
}

/* Any entry that a rule makes must be one that can be written and read again. */
static bool format_holds(struct twin *t, const struct bwi_entry *e) {
    struct bwi_buf bytes = {0};
    struct bwi_entry again = {0};
    struct bw_error err = BW_ERROR_INIT;
    int rc = bwi_entry_encode(e, &bytes, &err);
    if (rc == 0) rc = bwi_entry_decode(bwi_buf_span(&bytes), &again, &err);
    bwi_buf_fini(&bytes);
    bwi_entry_fini(&again);
    return rc == 0 || twin_violated(t, "no valid entry: %s", err.message);
}

bool twin_accept(struct twin *t, struct bwi_entry *next, const struct naive *after) {
    const bool repaired = next->event.type == BWI_EVENT_REPAIR;
    for (unsigned m = 0; repaired && m < t->world.count; m++) /* it goes back behind what was decided */
        t->facts[m].dead = t->facts[m].aborted = t->facts[m].was_live = false;
    if (!order_holds(t, twin_entry(t), next) || !data_is_there(t, after) || !fates_hold(t, next) ||
        (twin_chance(t, 6) && !format_holds(t, next))) {
        bwi_entry_fini(next);
        return false;
    }
    if (t->head_count == HEADS_MAX) {
        bwi_entry_fini(&t->heads[0].entry);
        memmove(&t->heads[0], &t->heads[1], (HEADS_MAX - 1) * sizeof t->heads[0]);
        t->head_count--;
    }
    t->heads[t->head_count].entry = *next;
    t->heads[t->head_count].naive = *after;
    t->head_count++;
    twin_tell(t, "%u.%" PRIu64 " %s %s: attempt %u, live %zu, shelved %zu, h %" PRIu64 ", %s", next->era, next->n,
              bwi_event_name(next->event.type), next->event.mode, next->attempt.number, next->live_count,
              next->shelved_count, next->h, next->from.open ? "from is open" : "");
    return true;
}
