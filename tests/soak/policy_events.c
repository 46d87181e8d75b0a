/* SPDX-License-Identifier: Apache-2.0 */
/* The events, asked of both. Whoever asks knows the newest state or an older one; on an older one the answers are
 * compared and nothing comes of it, as when the name of the next entry is taken. */
#include "policy_twin.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define JOBS   4u
#define LABELS 12u

/* One decision: what it is made on, and what both have answered. */
struct question {
    struct bwi_actor actor;
    bool newest;
    struct naive after; /* of the head; then of the answer */
    struct bwi_entry next;
    int rc, want;
};

static void ask(struct twin *t, struct question *q) {
    unsigned back = 0;
    if (t->head_count > 1 && twin_chance(t, 12)) back = (unsigned)twin_random(t, t->head_count);
    const struct twin_head *head = t->head_count > 0 ? &t->heads[t->head_count - 1 - back] : NULL;
    memset(&q->next, 0, sizeof q->next);
    q->newest = back == 0;
    q->after = head != NULL ? head->naive : *twin_naive(t);
    q->actor = (struct bwi_actor){.head = head != NULL ? &head->entry : NULL,
                                  .store = twin_uuid(q->after.begun ? q->after.store : t->store),
                                  .writer = 1 + twin_random(t, 1000),
                                  .time_ms = t->time_ms,
                                  .host = "node"};
    q->actor.head_sha.b[0] = head != NULL;
    q->actor.head_sha.b[1] = (uint8_t)q->after.n;
    if (!q->after.begun) q->after.store = t->store;
}

static bool same_maker(struct twin *t, const struct question *q) {
    const struct bwi_entry *e = &q->next;
    const struct bwi_sha none = {{0}};
    if (!bwi_sha_eq(&e->prev, q->actor.head != NULL ? &q->actor.head_sha : &none))
        return twin_violated(t, "the entry before is another");
    if (!bwi_uuid_eq(&e->store, &q->actor.store)) return twin_violated(t, "the store is another");
    if (e->writer != q->actor.writer || e->time_ms != q->actor.time_ms || strcmp(e->host, q->actor.host) != 0)
        return twin_violated(t, "the writer, the time or the host is another");
    return strcmp(e->run, "run") == 0 || twin_violated(t, "the run is another");
}

/* Both answers are there. `honest`: it may become the newest. */
static bool answered(struct twin *t, struct question *q, bool honest, const char *what) {
    if (q->rc != q->want) {
        if (q->rc == 0) bwi_entry_fini(&q->next);
        return twin_violated(t, "%s: status %d, and by the naive rules %d", what, q->rc, q->want);
    }
    if (q->rc < 0) twin_tell(t, "%s refused: %d, on %s", what, q->rc, q->newest ? "the newest" : "an older one");
    if (q->rc < 0) return true;
    if (!same_maker(t, q) || !twin_same(t, &q->next, &q->after)) {
        bwi_entry_fini(&q->next);
        return false;
    }
    if (q->newest && honest && twin_chance(t, 88)) return twin_accept(t, &q->next, &q->after);
    bwi_entry_fini(&q->next);
    return true;
}

/* --- a running job ---- */

static bool commit(struct twin *t, struct question *q) {
    const int m = twin_draw_making(t);
    struct bwi_kept k = twin_kept(t, m, 77); /* a commit sets its own time, and pins nothing */
    k.pinned = twin_chance(t, 50);
    q->want = naive_commit(&t->world, &q->after, m, t->time_ms);
    q->rc = bwi_policy_commit(&q->actor, &k, &q->next, NULL);
    return answered(t, q, t->facts[m].complete, "commit");
}

static bool give_up(struct twin *t, struct question *q) {
    const int m = twin_draw_making(t);
    const char *reason = twin_chance(t, 20) ? NULL : "no space";
    q->want = naive_abort(&t->world, &q->after, m, reason);
    q->rc = bwi_policy_abort(&q->actor, &t->world.makings[m].id, reason, &q->next, NULL);
    return answered(t, q, true, "abort");
}

/* --- launches ---- */

static void look(struct twin *t, struct waiting *w) {
    const struct naive *s = twin_naive(t);
    const bool same_job = s->begun && s->attempt.set && s->attempt.job != NOBODY && twin_chance(t, 50);
    *w = (struct waiting){.used = true,
                          .job = same_job ? s->attempt.job : (int)twin_random(t, JOBS),
                          .launch = t->next_launch++,
                          .seen_set = s->begun && s->attempt.set,
                          .seen_number = s->attempt.number,
                          .seen_nonce = s->attempt.nonce};
    if (twin_chance(t, 5) && w->launch > 0) w->launch = (int)twin_random(t, (uint64_t)w->launch);
    if (twin_chance(t, 3)) w->seen_nonce++;
    if (twin_chance(t, 3)) w->seen_set = !w->seen_set;
}

static enum bwi_register_mode draw_mode(struct twin *t) {
    const unsigned kind = (unsigned)twin_random(t, 100);
    if (kind < 12) return BWI_REGISTER_ROLLBACK;
    if (kind < 18) return BWI_REGISTER_FRESH;
    if (kind < 38) return BWI_REGISTER_TAKEOVER;
    return kind < 50 ? BWI_REGISTER_DAMAGE : BWI_REGISTER_DEFAULT;
}

static int draw_target(struct twin *t, const struct naive *s) {
    const int kept = twin_draw_kept(t, s);
    if (kept != NOBODY && twin_chance(t, 92)) return kept;
    return twin_draw_making(t);
}

static void draw_ask(struct twin *t, const struct naive *s, const struct waiting *w, struct naive_ask *ret) {
    *ret = (struct naive_ask){.job = w->job,
                              .launch = w->launch,
                              .mode = draw_mode(t),
                              .takeover = twin_chance(t, 40),
                              .seen_set = w->seen_set,
                              .seen_number = w->seen_number,
                              .seen_nonce = w->seen_nonce,
                              .nonce = ++t->next_nonce,
                              .groups = 1 + (uint32_t)twin_random(t, 3),
                              .fan_out = twin_chance(t, 50),
                              .note = twin_chance(t, 50) ? NULL : "why"};
    ret->world = ret->groups + (uint32_t)twin_random(t, 3);
    ret->uuid = t->next_uuid;
    ret->label = ret->mode == BWI_REGISTER_DEFAULT ? NOBODY : (int)twin_random(t, LABELS);
    ret->target = draw_target(t, s);
    ret->newer = twin_chance(t, 40) ? twin_draw_making(t) : NOBODY;
}

/* The facts of what the ask comes to, as resolve would have read them. */
static int facts_of(struct twin *t, const struct naive *s, const struct naive_ask *a) {
    const enum bwi_register_mode mode = naive_mode(s, a);
    const bool back = mode == BWI_REGISTER_ROLLBACK || mode == BWI_REGISTER_DAMAGE;
    return back ? a->target : naive_newest(&t->world, s);
}

static bool enter(struct twin *t, struct question *q, struct waiting *w) {
    struct naive_ask a;
    char job[BWI_NAME_BUF], launch[BWI_NAME_BUF], label[BWI_NAME_BUF];
    if (!w->used) return true;
    draw_ask(t, &q->after, w, &a);
    twin_name('j', a.job, job);
    twin_name('l', a.launch, launch);
    twin_name('x', a.label, label);
    const struct bwi_candidate newer = twin_candidate(t, a.newer);
    const struct bwi_register r = {.run = "run",
                                   .job = job,
                                   .launch = launch,
                                   .world = a.world,
                                   .groups = a.groups,
                                   .fan_out = a.fan_out,
                                   .nonce = a.nonce,
                                   .uuid = twin_uuid(a.uuid),
                                   .mode = a.mode,
                                   .takeover = a.takeover,
                                   .label = label,
                                   .target = t->world.makings[a.target].id,
                                   .target_facts = twin_candidate(t, facts_of(t, &q->after, &a)),
                                   .newer = a.newer != NOBODY ? &newer : NULL,
                                   .seen_set = a.seen_set,
                                   .seen_number = a.seen_number,
                                   .seen_nonce = a.seen_nonce,
                                   .note = a.note};
    const bool beaten = bwi_policy_is_beaten(q->actor.head, a.seen_set, a.seen_number);
    const int may = naive_may_register(&q->after, &a);
    if (bwi_policy_mode(q->actor.head, &r) != naive_mode(&q->after, &a))
        return twin_violated(t, "another mode applies");
    if (bwi_policy_may_register(q->actor.head, &r, NULL) != may) return twin_violated(t, "may register, or may not");
    if (beaten && may == 0) return twin_violated(t, "a launch that was beaten may register");
    q->want = naive_register(&t->world, &q->after, &a);
    q->rc = bwi_policy_register(&q->actor, &r, &q->next, NULL);
    if (q->rc == 0 && q->newest) w->used = twin_chance(t, 20); /* one that tries again finds its launch id used */
    if (q->rc == 0 && !q->actor.head) t->next_uuid++;
    return answered(t, q, true, "register");
}

static bool launch(struct twin *t, struct question *q) {
    struct waiting *looks = &t->waiting[twin_random(t, WAITING_MAX)];
    if (twin_chance(t, 70)) look(t, looks);
    return enter(t, q, twin_chance(t, 60) ? looks : &t->waiting[twin_random(t, WAITING_MAX)]);
}

/* --- keeping house ---- */

static bool retire(struct twin *t, struct question *q) {
    int list[3];
    struct bwi_id ids[3];
    unsigned count = 0;
    const unsigned want = 1 + (unsigned)twin_random(t, 3);
    while (count < want) {
        const int m = draw_target(t, &q->after);
        bool again = false;
        for (unsigned i = 0; i < count; i++) again = again || list[i] == m;
        if (again && twin_chance(t, 80)) break;
        if (again) continue;
        ids[count] = t->world.makings[m].id;
        list[count++] = m;
    }
    if (count == 0) return true;
    q->want = naive_retire(&t->world, &q->after, list, count);
    q->rc = bwi_policy_retire(&q->actor, ids, count, &q->next, NULL);
    return answered(t, q, true, "retire");
}

/* What retention lets go can be retired. */
static bool retain(struct twin *t, struct question *q) {
    struct bwi_id ids[MAKINGS_MAX];
    int list[MAKINGS_MAX];
    const struct bw_retention r = {.keep_last = 1 + (uint32_t)twin_random(t, 4)};
    const size_t count = bwi_policy_retention(q->actor.head, &r, 0, t->time_ms, ids);
    if (count == 0) return true;
    for (size_t i = 0; i < count; i++)
        for (int m = 0; m < (int)t->world.count; m++)
            if (bwi_id_eq(&ids[i], &t->world.makings[m].id)) list[i] = m;
    q->want = naive_retire(&t->world, &q->after, list, (unsigned)count);
    q->rc = bwi_policy_retire(&q->actor, ids, count, &q->next, NULL);
    if (q->want < 0) return twin_violated(t, "retention lets go what may not be retired");
    return answered(t, q, true, "retention");
}

static bool pin(struct twin *t, struct question *q) {
    const int m = draw_target(t, &q->after);
    const bool pinned = twin_chance(t, 45);
    q->want = naive_pin(&q->after, m, pinned);
    q->rc = bwi_policy_pin(&q->actor, &t->world.makings[m].id, pinned, &q->next, NULL);
    return answered(t, q, true, "pin");
}

/* Deletes what some head calls dead, of now or of before: whoever sweeps may have read it long ago. One from before a
 * repair knows an era that has ended. */
static bool sweep(struct twin *t) {
    if (t->head_count == 0) return true;
    const struct twin_head *newest = &t->heads[t->head_count - 1];
    const struct twin_head *head = &t->heads[twin_random(t, t->head_count)];
    if (head->entry.era != newest->entry.era) head = newest;
    for (unsigned m = 0; m < t->world.count; m++) {
        const struct bwi_id *id = &t->world.makings[m].id;
        if (!t->facts[m].complete || bwi_policy_fate(&head->entry, id) != BWI_FATE_DEAD || twin_chance(t, 30)) continue;
        const enum bwi_fate now = bwi_policy_fate(&newest->entry, id);
        if (now != BWI_FATE_DEAD)
            return twin_violated(t, "step %" PRIu64 ", attempt %u, try %u was swept, and its fate is %d", id->step,
                                 id->attempt, id->tri, now);
        t->facts[m].complete = false;
    }
    return true;
}

/* --- damage ---- */

static bool has_data(const struct twin *t, int m) {
    for (unsigned i = 0; i < t->world.makings[m].ref_count; i++)
        if (!t->facts[t->world.makings[m].refs[i]].complete) return false;
    return t->facts[m].complete;
}

static bool goes_before(const struct twin *t, int a, int b) {
    return bwi_id_cmp(&t->world.makings[a].id, &t->world.makings[b].id) < 0;
}

static void add_in_order(const struct twin *t, int *list, unsigned *count, int m) {
    unsigned at = (*count)++;
    for (; at > 0 && goes_before(t, m, list[at - 1]); at--) list[at] = list[at - 1];
    list[at] = m;
}

/* What a repair finds on this head: lost is what has no data, or now and then one more; found is what is complete, and
 * now and then what a head long ago would have let in. */
static void draw_repair(struct twin *t, const struct naive *base, struct naive_repair *ret) {
    const struct naive *s = twin_naive(t);
    *ret = (struct naive_repair){.era = s->era,
                                 .n = s->n + 1,
                                 .damaged_n = s->n,
                                 .time_ms = 500 + (int64_t)twin_random(t, 100),
                                 .uuid = t->next_uuid,
                                 .nonce = ++t->next_nonce};
    for (int m = 0; m < (int)t->world.count; m++) {
        const bool lost = !has_data(t, m) || twin_chance(t, 4);
        if (naive_is_kept(base, m) && lost) ret->gone[ret->gone_count++] = m;
        const bool open = naive_fate(&t->world, base, m) == BWI_FATE_COMMITTABLE;
        if (!naive_is_kept(base, m) && has_data(t, m) && (open || twin_chance(t, 10)))
            add_in_order(t, ret->found, &ret->found_count, m);
    }
}

/* The newest entries are damaged; the newest sound one is some entries back, or the newest itself, when a repair that
 * died has left the end of its era. */
static bool repair(struct twin *t, struct question *q) {
    struct bwi_id gone[MAKINGS_MAX];
    struct bwi_kept found[MAKINGS_MAX];
    struct naive_repair r;
    if (t->head_count == 0 || twin_naive(t)->era_count + 2 > ERAS_MAX) return true;
    const struct twin_head *base = &t->heads[t->head_count - 1 - twin_random(t, t->head_count > 3 ? 4 : 1)];
    q->after = base->naive;
    q->actor.head = &base->entry;
    q->actor.store = twin_uuid(base->naive.store);
    q->newest = true;
    draw_repair(t, &base->naive, &r);
    for (unsigned i = 0; i < r.gone_count; i++) gone[i] = t->world.makings[r.gone[i]].id;
    for (unsigned i = 0; i < r.found_count; i++) found[i] = twin_kept(t, r.found[i], r.time_ms);
    const struct bwi_repair ask = {.era = r.era,
                                   .n = r.n,
                                   .damaged_n = r.damaged_n,
                                   .uuid = twin_uuid(r.uuid),
                                   .nonce = r.nonce,
                                   .gone = gone,
                                   .gone_count = r.gone_count,
                                   .found = found,
                                   .found_count = r.found_count};
    q->want = naive_repair(&t->world, &q->after, &r);
    q->rc = bwi_policy_repair(&q->actor, &ask, &q->next, NULL);
    t->next_uuid++;
    return answered(t, q, true, "repair");
}

static bool promote(struct twin *t, struct question *q) {
    const unsigned char store = twin_chance(t, 30) ? q->after.store : (unsigned char)(t->store + 1);
    const struct bwi_uuid uuid = twin_uuid(t->next_uuid);
    const uint32_t nonce = ++t->next_nonce;
    if (q->actor.head == NULL || q->after.era_count + 2 > ERAS_MAX) return true;
    q->actor.store = twin_uuid(store);
    q->want = naive_promote(&t->world, &q->after, store, t->next_uuid, nonce);
    q->after.store = store;
    q->rc = bwi_policy_promote(&q->actor, &uuid, nonce, &q->next, NULL);
    if (q->rc == 0 && q->newest) t->store = store;
    t->next_uuid++;
    return answered(t, q, true, "promote");
}

/* --- all of them ---- */

bool twin_event(struct twin *t) {
    static const struct {
        unsigned share;
        bool (*ask)(struct twin *t, struct question *q);
    } events[] = {{44, commit}, {14, give_up}, {16, launch}, {8, retire},
                  {3, retain},  {5, pin},      {1, repair},  {1, promote}};
    struct question q;
    unsigned kind = (unsigned)twin_random(t, 100);
    t->time_ms += twin_chance(t, 5) ? -10 : (int64_t)twin_random(t, 30);
    ask(t, &q);
    const bool nobody_runs = !q.after.begun || q.after.attempt.job == NOBODY;
    if (nobody_runs && twin_chance(t, 60)) return launch(t, &q);
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++) {
        if (kind < events[i].share) return events[i].ask(t, &q);
        kind -= events[i].share;
    }
    return sweep(t);
}
