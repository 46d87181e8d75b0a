/* SPDX-License-Identifier: Apache-2.0 */
/* Whether both have decided the same, and answer the same to whoever asks. */
#include "policy_twin.h"

#include "checkpoint/sweep.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SAME(a, b, what)                                                                                               \
    do {                                                                                                               \
        t->checks++;                                                                                                   \
        if ((a) != (b))                                                                                                \
            return twin_violated(t, "%s: %" PRIu64 ", and by the naive rules %" PRIu64, (what), (uint64_t)(a),         \
                                 (uint64_t)(b));                                                                       \
    } while (0)

/* --- an entry ---- */

static bool same_name(struct twin *t, const char *found, char kind, int want, const char *what) {
    char name[BWI_NAME_BUF];
    twin_name(kind, want, name);
    t->checks++;
    return strcmp(found, name) == 0 || twin_violated(t, "%s: \"%s\", and by the naive rules \"%s\"", what, found, name);
}

static bool same_names(struct twin *t, char (*found)[BWI_NAME_BUF], size_t found_count, char kind, const int *want,
                       size_t count, const char *what) {
    SAME(found_count, count, what);
    for (size_t i = 0; i < count; i++)
        if (!same_name(t, found[i], kind, want[i], what)) return false;
    return true;
}

static bool same_id(struct twin *t, const struct bwi_id *found, int want, const char *what) {
    t->checks++;
    return bwi_id_eq(found, &t->world.makings[want].id) ||
           twin_violated(t, "%s: step %" PRIu64 ", attempt %u, try %u is not that of the naive rules", what,
                         found->step, found->attempt, found->tri);
}

static bool same_refs(struct twin *t, const struct bwi_id *refs, uint32_t count, int want, const char *what) {
    const struct making *m = &t->world.makings[want];
    SAME(count, m->ref_count, what);
    for (uint32_t i = 0; i < count; i++)
        if (!same_id(t, &refs[i], m->refs[i], what)) return false;
    return true;
}

static bool same_list(struct twin *t, const struct bwi_kept *list, size_t count, const struct naive *s,
                      enum place place) {
    size_t want = 0;
    for (unsigned m = 0; m < t->world.count; m++) want += s->kept[m].place == place;
    SAME(count, want, "how many are live, or shelved");
    for (size_t i = 0; i < count; i++) {
        const struct bwi_kept *k = &list[i];
        int m = 0;
        while (m < (int)t->world.count && !bwi_id_eq(&t->world.makings[m].id, &k->id)) m++;
        if (m == (int)t->world.count || s->kept[m].place != place)
            return twin_violated(t, "step %" PRIu64 ", attempt %u, try %u is %s", k->id.step, k->id.attempt, k->id.tri,
                                 place == IS_LIVE ? "live" : "shelved");
        if (i > 0 && bwi_id_cmp(&list[i - 1].id, &k->id) >= 0) return twin_violated(t, "a list does not ascend");
        const struct bwi_kept want_kept = twin_kept(t, m, s->kept[m].time_ms);
        SAME(k->pinned, s->kept[m].pinned, "pinned");
        SAME(k->time_ms, want_kept.time_ms, "the time of a commit");
        SAME(k->bytes, want_kept.bytes, "bytes");
        SAME(k->manifest.b[0], want_kept.manifest.b[0], "the manifest");
        if (!same_refs(t, k->refs, k->ref_count, m, "refs of a kept one")) return false;
    }
    return true;
}

static bool same_event(struct twin *t, const struct bwi_event_info *v, const struct naive_event *want) {
    SAME(v->type, want->type, "the event");
    SAME(v->id_count, want->id_count, "how many the event is about");
    for (size_t i = 0; i < v->id_count; i++)
        if (!same_id(t, &v->ids[i], want->ids[i], "the event's subject")) return false;
    if (strcmp(v->mode, want->mode) != 0) return twin_violated(t, "mode: \"%s\", not \"%s\"", v->mode, want->mode);
    if (strcmp(v->note, want->note) != 0) return twin_violated(t, "note: \"%s\", not \"%s\"", v->note, want->note);
    return same_name(t, v->label, 'x', want->label, "the event's label");
}

static bool same_attempt(struct twin *t, const struct bwi_attempt *a, const struct naive *s) {
    SAME(a->set, s->attempt.set, "whether there is an attempt");
    SAME(a->number, s->attempt.number, "the attempt's number");
    SAME(a->nonce, s->attempt.nonce, "the attempt's nonce");
    SAME(a->world, s->attempt.world, "the attempt's world");
    SAME(a->groups, s->attempt.groups, "the attempt's groups");
    SAME(a->fan_out, s->attempt.fan_out, "the attempt's fan-out");
    return same_name(t, a->job, 'j', s->attempt.job, "the attempt's job") &&
           same_name(t, a->launch, 'l', s->attempt.launch, "the attempt's launch");
}

static bool same_from(struct twin *t, const struct bwi_from *f, const struct naive *s) {
    SAME(f->set, s->from != NOBODY, "whether it went on from something");
    SAME(f->open, s->from_open, "whether what it went on from is open");
    if (!f->set) return true;
    const struct making *m = &t->world.makings[s->from];
    SAME(f->world, m->world, "the world of what it went on from");
    SAME(f->groups, m->groups, "the groups of what it went on from");
    SAME(f->fan_out, m->fan_out, "the fan-out of what it went on from");
    return same_id(t, &f->id, s->from, "what it went on from") &&
           same_refs(t, f->refs, f->ref_count, s->from, "refs of what it went on from");
}

static bool same_tries(struct twin *t, const struct bwi_entry *e, const struct naive *s) {
    uint64_t h;
    SAME(e->h_set, naive_floor(s, &h), "whether there is a floor");
    if (e->h_set) SAME(e->h, h, "the floor");
    for (size_t i = 0; i < e->try_count; i++) {
        SAME(e->tries[i].tri, naive_try(s, e->tries[i].step), "a try");
        if (e->tries[i].tri == 0) return twin_violated(t, "try 0 is listed");
        if (i > 0 && e->tries[i - 1].step >= e->tries[i].step) return twin_violated(t, "tries do not ascend");
    }
    size_t want = 0; /* each step counts where it stands last */
    for (unsigned i = 0; i < s->aborted_count; i++) {
        bool again = false;
        for (unsigned k = i + 1; k < s->aborted_count; k++) again = again || s->aborted[k] == s->aborted[i];
        want += !again && naive_try(s, s->aborted[i]) > 0;
    }
    SAME(e->try_count, want, "how many tries are listed");
    return true;
}

static bool same_lineage(struct twin *t, const struct bwi_entry *e, const struct naive *s) {
    SAME(e->era, s->era, "era");
    SAME(e->n, s->n, "n");
    SAME(e->lineage_count, s->era_count, "eras");
    for (size_t i = 0; i < e->lineage_count; i++) {
        const struct bwi_uuid uuid = twin_uuid(s->eras[i].uuid);
        SAME(e->lineage[i].era, s->eras[i].era, "an era of the lineage");
        SAME(e->lineage[i].n, s->eras[i].n, "the first n of an era");
        SAME(bwi_uuid_eq(&e->lineage[i].uuid, &uuid), true, "the uuid of an era");
    }
    return true;
}

bool twin_same(struct twin *t, const struct bwi_entry *e, const struct naive *s) {
    const unsigned forgotten = s->launch_count > BWI_LAUNCHES_KEPT ? s->launch_count - BWI_LAUNCHES_KEPT : 0;
    return same_lineage(t, e, s) && same_attempt(t, &e->attempt, s) && same_from(t, &e->from, s) &&
           same_tries(t, e, s) && same_list(t, e->live, e->live_count, s, IS_LIVE) &&
           same_list(t, e->shelved, e->shelved_count, s, IS_SHELVED) && same_event(t, &e->event, &s->event) &&
           same_names(t, e->labels, e->label_count, 'x', s->labels.list, s->labels.count, "labels") &&
           same_names(t, e->superseded, e->superseded_count, 'j', s->superseded.list, s->superseded.count,
                      "superseded jobs") &&
           same_names(t, e->launches, e->launch_count, 'l', s->launches + forgotten, s->launch_count - forgotten,
                      "launches");
}

/* --- questions ---- */

static bool same_kept(struct twin *t, const struct bwi_kept *found, int want, const char *what) {
    SAME(found != NULL, want != NOBODY, what);
    return found == NULL || same_id(t, &found->id, want, what);
}

static bool same_of_making(struct twin *t, const struct bwi_entry *e, const struct naive *s, int m) {
    const struct naive_world *w = &t->world;
    const struct bwi_kept k = twin_kept(t, m, 0);
    const struct bwi_id *id = &k.id;
    SAME(bwi_policy_fate(e, id), naive_fate(w, s, m), "fate");
    SAME(bwi_policy_committable(e, id, k.refs, k.ref_count), naive_committable(w, s, m), "committable");
    SAME(bwi_policy_was_aborted(e, id), naive_was_aborted(w, s, m), "proved to be aborted");
    SAME(bwi_policy_layouts_dead(e, id->attempt, id->nonce), naive_layouts_dead(w, s, id->attempt, id->nonce),
         "layouts dead");
    SAME(bwi_policy_is_current(e, id->attempt, id->nonce), naive_is_current(s, id->attempt, id->nonce), "current");
    SAME(bwi_policy_try(e, id->step), naive_try(s, id->step), "the current try");
    SAME(bwi_policy_is_beaten(e, false, id->attempt), naive_is_beaten(s, false, id->attempt), "beaten");
    SAME(bwi_policy_is_beaten(e, true, id->attempt), naive_is_beaten(s, true, id->attempt), "beaten");
    if (e != NULL) SAME(bwi_policy_from_needs(e, id), naive_from_needs(w, s, m), "needed by the open from");
    const int job = (int)twin_random(t, 4);
    char name[BWI_NAME_BUF];
    twin_name('j', job, name);
    SAME(bwi_policy_attempt_status(e, id->attempt, id->nonce, name, NULL),
         naive_attempt_status(s, id->attempt, id->nonce, job), "what became of an attempt");
    return same_kept(t, bwi_policy_find_kept(e, id), naive_is_kept(s, m) ? m : NOBODY, "a kept one") &&
           same_kept(t, bwi_policy_find_live(e, id->step), naive_live_of(w, s, id->step), "the live one of a step") &&
           same_kept(t, bwi_policy_find_step(e, id->step), naive_of_step(w, s, id->step), "the one of a step");
}

static bool same_lineages(struct twin *t, const struct bwi_entry *e, const struct naive *s) {
    for (unsigned char u = 0; u < 4; u++) {
        const struct bwi_uuid uuid = twin_uuid(u);
        bool want = false;
        for (unsigned i = 0; i < s->era_count; i++) want = want || s->eras[i].uuid == u;
        SAME(bwi_policy_in_lineage(e, &uuid), want, "in the lineage");
    }
    if (e == NULL) return true;
    const struct bwi_uuid uuid = twin_uuid(s->eras[s->era_count - 1].uuid);
    SAME(bwi_uuid_eq(bwi_policy_uuid(e), &uuid), true, "the uuid of the current era");
    return true;
}

static bool same_retention(struct twin *t, const struct bwi_entry *e, const struct naive *s) {
    struct bwi_id ids[MAKINGS_MAX];
    const struct bw_retention r = {.keep_last = (uint32_t)twin_random(t, 5),
                                   .keep_every_steps = twin_random(t, 4),
                                   .keep_younger_ms = twin_chance(t, 50) ? 0 : twin_random(t, 200)};
    const uint32_t in_flight = (uint32_t)twin_random(t, 4);
    int64_t now_ms = t->time_ms - 20 + (int64_t)twin_random(t, 60);
    if (twin_chance(t, 3)) now_ms = twin_chance(t, 50) ? INT64_MIN : INT64_MAX; /* anybody may have made it up */
    const size_t count = bwi_policy_retention(e, &r, in_flight, now_ms, ids);
    size_t want = 0;
    for (int m = 0; m < (int)t->world.count; m++) {
        const bool goes = naive_lets_go(&t->world, s, m, &r, in_flight, now_ms);
        bool listed = false;
        for (size_t i = 0; i < count; i++) listed = listed || bwi_id_eq(&ids[i], &t->world.makings[m].id);
        SAME(listed, goes, "let go by retention");
        want += goes;
    }
    SAME(count, want, "how many retention lets go");
    return true;
}

/* By the heads that are still known, as by a log that was trimmed. */
static bool same_dead_since(struct twin *t, int m) {
    struct bwi_entry entries[HEADS_MAX];
    int64_t want = INT64_MIN;
    for (unsigned i = 0; i < t->head_count; i++) {
        entries[i] = t->heads[i].entry; /* borrowed */
        if (naive_fate(&t->world, &t->heads[i].naive, m) != BWI_FATE_DEAD) want = INT64_MAX;
        if (naive_fate(&t->world, &t->heads[i].naive, m) == BWI_FATE_DEAD && want == INT64_MAX)
            want = entries[i].time_ms;
    }
    if (t->head_count == 0) want = INT64_MIN;
    SAME(bwi_policy_dead_since(entries, t->head_count, &t->world.makings[m].id), want, "dead since");
    return true;
}

bool twin_same_answers(struct twin *t, const struct bwi_entry *e, const struct naive *s) {
    bool same = same_kept(t, bwi_policy_newest(e), naive_newest(&t->world, s), "the newest") &&
                same_lineages(t, e, s) && same_retention(t, e, s);
    for (unsigned i = 0; same && i < 5 && t->world.count > 0; i++) {
        const int m = twin_any_making(t);
        same = same_of_making(t, e, s, m) && same_dead_since(t, m);
    }
    return same;
}
