/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a training job: opens, looks at what it resumed from, saves step after step, closes. It does what a
 * trainer does and nothing that helps: it overwrites its memory as soon as it may, does not wait for anybody, gives up
 * when it is told that its attempt is over. */
#include "system.h"

#include "base/text.h"
#include "base/vec.h"
#include "test.h"
#include <inttypes.h>
#include <string.h>

/* Longer than this, of the time in which it runs, nothing may take: virtual time costs nothing. */
#define OPEN_MS    UINT64_C(20000)
#define STUCK_S    UINT64_C(60) /* a trainer that can begin no save for so long goes */
#define PATIENCE_S UINT64_C(7200)

enum phase { OPENING, RESTORING, TRAINING, WAITING, CLOSING, GIVING_UP };

struct held_save {
    struct bwi_save *save;
    struct state *memory;
    bool scrambled;
    uint64_t cancel_ns; /* when its caller thinks better of it */
};

struct trainer {
    const struct launch_plan *plan;
    struct bwi_session *session;
    struct bwi_task *open;
    struct compare *compare;
    enum phase phase;
    uint64_t since_ns;    /* of the phase */
    uint64_t patience_ns; /* with its own saves, at the end */
    uint64_t next_step, last_step, think_until, resumed, committed;
    bool member, over;
    struct held_save saves[SAVES_MAX];
    struct system *system;
    struct part *part;
};

static void enter(struct system *s, struct trainer *t, enum phase phase) {
    t->phase = phase;
    t->since_ns = s->env.now;
}

/* --- saves ---- */

static void shard_of(uint32_t rank, uint32_t world, uint64_t *offset, uint64_t *extent) {
    offset[0] = ROWS * rank / world;
    offset[1] = 0;
    extent[0] = ROWS * (rank + 1) / world - offset[0];
    extent[1] = COLS;
}

static void describe(struct bwi_save *v, struct state *m, uint32_t rank, uint32_t world) {
    struct bw_error err = BW_ERROR_INIT;
    uint64_t shape[2] = {ROWS, COLS}, offset[2], extent[2], cols = COLS;
    struct bw_tensor a = BW_TENSOR_INIT, b = BW_TENSOR_INIT;
    shard_of(rank, world, offset, extent);
    a.name = "sharded";
    a.dtype = b.dtype = BW_U32;
    a.dims = 2;
    a.shape = shape;
    a.offset = offset;
    a.extent = extent;
    a.data = m->sharded[offset[0]];
    b.name = "same";
    b.dims = 1;
    b.shape = &cols;
    b.data = m->same;
    b.replica_count = world;
    b.replica_index = rank;
    assert_ok(bwi_description_tensor(&v->description, &a, &err), &err);
    assert_ok(bwi_description_tensor(&v->description, &b, &err), &err);
    assert_ok(bwi_description_blob(&v->description, "rng", m->blob, sizeof m->blob, &err), &err);
}

static struct held_save *free_place(struct trainer *t) {
    for (unsigned i = 0; i < SAVES_MAX; i++)
        if (t->saves[i].save == NULL) return &t->saves[i];
    return NULL;
}

static bool begin_save(struct system *s, struct part *p, struct trainer *t) {
    struct held_save *h = free_place(t);
    struct bw_error err = BW_ERROR_INIT;
    const struct bwi_session_config *cfg = &t->session->cfg;
    if (h == NULL || bwi_session_places(t->session) >= cfg->saves_in_flight_max) return false;
    if (bwi_session_may_begin(t->session, t->next_step, &err) < 0 ||
        bwi_session_begin(t->session, t->next_step, &h->save, &err) < 0) {
        system_tell(s, p, "step %" PRIu64 " cannot begin: %s", t->next_step, err.message);
        t->over = true;
        return true;
    }
    h->memory = bwi_calloc(1, sizeof *h->memory);
    assert_non_null(h->memory);
    h->scrambled = false;
    /* Its bits follow from the try, which is known once it is started; nothing is read before the next turn. */
    describe(h->save, h->memory, cfg->rank, cfg->world);
    assert_ok(bwi_session_start(h->save, &err), &err);
    state_fill(h->memory, &h->save->id, cfg->rank);
    /* A blob is copied when it is described. */
    system_tell(s, p, "saves step %" PRIu64 ".%u", h->save->id.step, h->save->id.tri);
    h->cancel_ns = BWI_NEVER;
    if (!t->plan->final && !s->patient && system_chance(s, 5))
        h->cancel_ns = s->env.now + system_random(s, 2000) * BWI_NS_PER_MS;
    return true;
}

/* Somebody learns what has become of a save. */
static void tell(struct system *s, struct part *p, const struct bwi_save *v, enum bw_level level, int status) {
    if (s->hooks != NULL)
        s->hooks->told(s, p, v, level, status);
    else if (level == BW_LEVEL_NONE || level >= BW_COMMITTED)
        oracle_told(&s->oracle, &v->id, status);
}

static bool tend_save(struct system *s, struct part *p, struct trainer *t, struct held_save *h) {
    struct bwi_save *v = h->save;
    if (v == NULL) return false;
    if (v->captured && !h->scrambled) {
        memset(h->memory, 0xee, sizeof *h->memory);
        h->scrambled = true;
    }
    if (v->state != BWI_SAVE_ENDED && h->cancel_ns <= s->env.now) {
        system_tell(s, p, "cancels step %" PRIu64, v->id.step);
        h->cancel_ns = BWI_NEVER;
        bwi_session_cancel(v);
        return true;
    }
    if (h->cancel_ns < p->wake_ns) p->wake_ns = h->cancel_ns;
    if (v->state != BWI_SAVE_ENDED) return false;
    system_tell(s, p, "step %" PRIu64 ".%u ended: %s", v->id.step, v->id.tri,
                v->error.status != 0 ? v->error.message
                : v->committed       ? "committed"
                                     : "left");
    if (v->committed && v->id.step > t->committed) t->committed = v->id.step;
    if (!p->dead && (v->committed || v->error.status != 0))
        tell(s, p, v, BW_LEVEL_NONE, v->committed ? 0 : v->error.status);
    s->committed += v->committed;
    bwi_session_release(v);
    bwi_free(h->memory);
    *h = (struct held_save){0};
    return true;
}

static unsigned held(const struct trainer *t) {
    unsigned n = 0;
    for (unsigned i = 0; i < SAVES_MAX; i++) n += t->saves[i].save != NULL;
    return n;
}

/* COMMITTED is checked when it is told, not only at the end. */
static void on_event(void *user, const struct bw_event *e) {
    struct trainer *t = user;
    if (e->type == BW_EVENT_ATTEMPT) t->over = true;
    if (e->type != BW_EVENT_LEVEL || t->part->dead) return;
    for (const struct bwi_save *v = t->session->saves; v != NULL; v = v->next)
        if (v->step == e->step && v->level >= (enum bw_level)e->level)
            tell(t->system, t->part, v, (enum bw_level)e->level, 0);
}

/* --- phases ---- */

static struct bwi_restore_target target_of(const struct bwi_resume *m) {
    return (struct bwi_restore_target){.id = m->id,
                                       .committed = m->committed,
                                       .manifest = m->manifest,
                                       .world = m->world,
                                       .groups = m->groups,
                                       .uuid = m->uuid,
                                       .wait_ns = 60 * BWI_NS_PER_S,
                                       .may_repair = true,
                                       .io_timeout_ns = 600 * BWI_NS_PER_S};
}

static bool has_opened(struct system *s, struct part *p, struct trainer *t) {
    const struct bwi_resume *m = &t->session->resume;
    if (t->open->error.status != 0) {
        system_tell(s, p, "open failed: %s", t->open->error.message);
        s->final_beaten += t->plan->final && t->open->error.status == BW_E_SUPERSEDED;
        enter(s, t, GIVING_UP);
        return true;
    }
    t->member = true;
    t->resumed = m->from_checkpoint ? m->id.step : UINT64_MAX;
    t->next_step = m->from_checkpoint ? m->id.step + 1 : 1;
    t->last_step = (m->from_checkpoint ? m->id.step : 0) + t->plan->steps;
    system_tell(s, p, "attempt %u of launch %s resumes from step %" PRId64 " (%s)", t->session->attempt,
                t->plan->launch, (int64_t)t->resumed, m->reason);
    if (s->hooks != NULL && !p->dead) s->hooks->opened(s, p, t->session);
    if (m->from_checkpoint && (t->plan->final || system_chance(s, 60))) {
        const struct bwi_restore_target target = target_of(m);
        t->compare = compare_new(s, p, &target);
        enter(s, t, RESTORING);
    } else {
        enter(s, t, TRAINING);
    }
    return true;
}

static bool has_restored(struct system *s, struct part *p, struct trainer *t) {
    struct bw_error err = BW_ERROR_INIT;
    if (!compare_has_ended(s, t->compare, &err)) return false;
    t->compare = NULL;
    if (err.status != 0) system_tell(s, p, "restore: %s", err.message);
    if (err.status != 0 && t->plan->final)
        violated(s, "the last launch cannot read what it resumed from: %s", err.message);
    enter(s, t, TRAINING);
    return true;
}

static bool train(struct system *s, struct part *p, struct trainer *t) {
    const bool stuck = s->env.now - t->think_until > STUCK_S * BWI_NS_PER_S && t->think_until != 0;
    if (t->over || stuck || t->next_step > t->last_step) {
        enter(s, t, WAITING);
        return true;
    }
    if (s->env.now < t->think_until) {
        p->wake_ns = t->think_until;
        return false;
    }
    if (!begin_save(s, p, t)) {
        p->wake_ns = s->env.now + BWI_NS_PER_S;
        return false;
    }
    t->next_step +=
        !t->plan->final && !s->patient && system_chance(s, 5) ? 2 : 1; /* a step that this rank leaves out */
    t->think_until = s->env.now + system_random(s, system_chance(s, 70) ? 50 : 8000) * BWI_NS_PER_MS;
    return true;
}

/* Waits for its saves, for some time: an impatient one closes with saves in flight. */
static bool wait_for_saves(struct system *s, struct part *p, struct trainer *t) {
    const uint64_t patience_ns = t->plan->final ? 3600 * BWI_NS_PER_S : t->patience_ns;
    if (held(t) > 0 && !t->over && s->env.now - t->since_ns < patience_ns) {
        p->wake_ns = t->since_ns + patience_ns;
        return false;
    }
    bwi_session_close(t->session);
    enter(s, t, CLOSING);
    return true;
}

static bool close_softly(struct system *s, struct part *p, struct trainer *t) {
    const uint64_t patience_ns = t->plan->final ? 20 * BWI_NS_PER_S : t->patience_ns;
    if (!bwi_session_drained(t->session) && s->env.now - t->since_ns < patience_ns) {
        p->wake_ns = t->since_ns + patience_ns;
        return false;
    }
    enter(s, t, GIVING_UP);
    return true;
}

static bool give_up(struct system *s, struct part *p, struct trainer *t) {
    if (t->compare != NULL) {
        struct bw_error err = BW_ERROR_INIT;
        if (!compare_has_ended(s, t->compare, &err)) return false;
        t->compare = NULL;
    }
    if (!t->session->giving_up) {
        bwi_session_close(t->session);
        bwi_session_give_up(t->session);
        return true;
    }
    if (!bwi_session_idle(t->session) || bwi_loop_tasks(p->loop) != 0 || held(t) != 0) {
        p->wake_ns = s->env.now + BWI_NS_PER_S;
        return false;
    }
    p->gone = true;
    return true;
}

static bool step(struct system *s, struct part *p, struct trainer *t) {
    switch (t->phase) {
    case OPENING:
        if (p->dead && !t->open->cancel) bwi_task_cancel(t->open);
        return !t->open->running && has_opened(s, p, t);
    case RESTORING: return has_restored(s, p, t);
    case TRAINING: return train(s, p, t);
    case WAITING: return wait_for_saves(s, p, t);
    case CLOSING: return close_softly(s, p, t);
    case GIVING_UP: return give_up(s, p, t);
    }
    return false;
}

static void check_patience(struct system *s, const struct part *p, const struct trainer *t) {
    static const char *const names[] = {"open", "restore", "train", "wait", "close", "give up"};
    if (s->env.now - t->since_ns > PATIENCE_S * BWI_NS_PER_S && !p->dead)
        violated(s, "rank %u of launch %s is in phase %s for two hours", t->session->cfg.rank, t->plan->launch,
                 names[t->phase]);
}

static bool turn(struct system *s, struct part *p) {
    struct trainer *t = p->trainer;
    bool any = false;
    if (p->dead && t->phase > OPENING && t->phase < GIVING_UP) enter(s, t, GIVING_UP);
    for (unsigned i = 0; i < SAVES_MAX; i++) any = tend_save(s, p, t, &t->saves[i]) || any;
    any = step(s, p, t) || any;
    if (!p->gone) check_patience(s, p, t);
    return any;
}

static void end(struct system *s, struct part *p) {
    struct trainer *t = p->trainer;
    system_tell(s, p, "has ended");
    if (t->plan->final && !p->dead) {
        s->final_opened += t->member;
        s->final_committed += t->committed > 0;
    }
    bwi_session_free(t->session);
    bwi_free(t);
    p->trainer = NULL;
}

static struct bwi_session_config config_of(const struct system *s, const struct launch_plan *l, uint32_t rank) {
    struct bwi_session_config cfg = {.rank = rank,
                                     .world = l->world,
                                     .mode = l->mode,
                                     .resume_step = l->resume_step,
                                     .saves_in_flight_max = 3,
                                     .local_quota_bytes = s->quota,
                                     .retention = s->retention,
                                     .extent_bytes = 4096,
                                     .pack_bytes = 1 << 20};
    cfg.open_deadline_ns = s->env.now + (l->final ? 30 : 1) * OPEN_MS * BWI_NS_PER_MS;
    bwi_format(cfg.job, sizeof cfg.job, "%s", l->job);
    bwi_format(cfg.launch, sizeof cfg.launch, "%s", l->launch);
    bwi_format(cfg.label, sizeof cfg.label, "%s", l->label);
    return cfg;
}

struct part *trainer_new(struct system *s, const struct launch_plan *l, uint32_t rank) {
    struct bw_error err = BW_ERROR_INIT;
    struct part *p = part_new(s, rank % s->nodes, "rank");
    if (p == NULL) return NULL;
    struct trainer *t = bwi_calloc(1, sizeof *t);
    assert_non_null(t);
    const struct bwi_session_config cfg = config_of(s, l, rank);
    t->plan = l;
    t->system = s;
    t->part = p;
    t->patience_ns = (system_chance(s, 25) ? system_random(s, 300) : 30000) * BWI_NS_PER_MS;
    t->since_ns = s->env.now;
    p->turn = turn;
    p->end = end;
    p->trainer = t;
    assert_ok(bwi_session_new(&p->ctx, &cfg, &t->session, &err), &err);
    t->session->event = on_event;
    t->session->user = t;
    t->open = bwi_session_open(t->session, NULL);
    system_tell(s, p, "starts as rank %u of %u of launch %s, job %s", rank, l->world, l->launch, l->job);
    return p;
}

const struct launch_plan *trainer_plan(const struct part *p) {
    return p->trainer != NULL ? p->trainer->plan : NULL;
}
