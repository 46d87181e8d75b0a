/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster in one thread. */
#include "cluster.h"

#include <string.h>

#include "base/text.h"
#include "base/vec.h"
#include "test.h"

void cluster_init(struct cluster *c, uint64_t seed) {
    memset(c, 0, sizeof *c);
    bwi_env_virtual_init(&c->env, seed);
    c->rng = seed;
    assert_int_equal(bwi_bucket_new(&c->env.env, &c->remote), 0);
}

static size_t pick(void *user, size_t n) {
    struct cluster *c = user;
    return (size_t)(test_random(&c->rng) % n);
}

static void on_event(void *user, const struct bw_event *e) {
    struct rank *r = user;
    if (e->type == BW_EVENT_SAVE_ENDED) r->last_end = *e;
    if (e->type == BW_EVENT_NOTE) r->notes++;
    if (e->type == BW_EVENT_ATTEMPT) {
        r->over.status = e->status;
        bwi_format(r->over.message, sizeof r->over.message, "%s", e->message);
    }
}

static void open_tier(struct cluster *c, unsigned node, enum bwi_tier tier, struct rank *r) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_bucket **b = tier == BWI_TIER_REMOTE ? &c->remote : &c->local[node];
    if (c->stores) {
        assert_ok(c->stores->open_tier(c, node, tier, r->loop, &r->ctx.tier[tier], &err), &err);
        return;
    }
    if (!*b) assert_int_equal(bwi_bucket_new(&c->env.env, b), 0);
    assert_ok(bwi_store_memory_open(*b, r->loop, bwi_tier_name(tier), &r->ctx.tier[tier], &err), &err);
}

void cluster_start(struct cluster *c, unsigned slot, unsigned node, uint32_t rank, const struct launch *l) {
    struct rank *r = &c->ranks[slot];
    struct bw_error err = BW_ERROR_INIT;
    assert_false(r->used);
    memset(r, 0, sizeof *r);
    r->used = true;
    if (c->stores && c->stores->open_io) assert_ok(c->stores->open_io(c, node, &r->io, &err), &err);
    assert_ok(bwi_loop_open(&c->env.env, r->io, &r->loop, &err), &err);
    assert_ok(bwi_arena_open(BWI_ARENA_MIN_BYTES, 0, &r->arena, &err), &err);
    if (c->shuffle) bwi_loop_set_picker(r->loop, pick, c);
    bwi_context_init(&r->ctx, r->loop);
    r->ctx.arena = r->arena;
    bwi_format(r->ctx.run, sizeof r->ctx.run, "run");
    open_tier(c, node, BWI_TIER_REMOTE, r);
    if (!l->single_tier) open_tier(c, node, BWI_TIER_LOCAL, r);
    struct bwi_session_config cfg = {.rank = rank,
                                     .world = l->world,
                                     .mode = l->mode,
                                     .resume_step = l->resume_step,
                                     .saves_in_flight_max = 4,
                                     .local_quota_bytes = l->quota,
                                     .retention = l->retention,
                                     .extent_bytes = 4096,
                                     .pack_bytes = 1 << 20};
    cfg.open_deadline_ns = c->env.now + (l->deadline_ms ? l->deadline_ms : 60000) * BWI_NS_PER_MS;
    bwi_format(cfg.job, sizeof cfg.job, "%s", l->job ? l->job : "job");
    bwi_format(cfg.launch, sizeof cfg.launch, "%s", l->launch);
    bwi_format(cfg.label, sizeof cfg.label, "%s", l->label ? l->label : "");
    assert_ok(bwi_session_new(&r->ctx, &cfg, &r->session, &err), &err);
    r->session->event = on_event;
    r->session->user = r;
    r->open = bwi_session_open(r->session, NULL);
}

/* One turn of every loop that runs, in order or shuffled. */
static bool turn_all(struct cluster *c) {
    bool any = false;
    unsigned from = c->shuffle ? (unsigned)(test_random(&c->rng) % CLUSTER_RANKS_MAX) : 0;
    for (unsigned i = 0; i < CLUSTER_RANKS_MAX; i++) {
        struct rank *r = &c->ranks[(from + i) % CLUSTER_RANKS_MAX];
        if (r->used && !r->stopped) any = bwi_loop_turn(r->loop, 0) || any;
    }
    return any;
}

static uint64_t next_time(struct cluster *c) {
    uint64_t next = BWI_NEVER;
    for (unsigned i = 0; i < CLUSTER_RANKS_MAX; i++) {
        struct rank *r = &c->ranks[i];
        if (!r->used || r->stopped) continue;
        uint64_t at = bwi_loop_next_ns(r->loop);
        if (at < next) next = at;
    }
    return next;
}

bool cluster_run(struct cluster *c, bool (*done)(struct cluster *c, void *user), void *user, uint64_t limit_ms) {
    uint64_t end = c->env.now + limit_ms * BWI_NS_PER_MS;
    for (;;) {
        if (done(c, user)) return true;
        if (turn_all(c)) continue;
        uint64_t next = next_time(c);
        if (next == BWI_NEVER || next > end) return done(c, user);
        if (next > c->env.now) c->env.now = next;
    }
}

struct range {
    unsigned first, n;
};

static bool opened(struct cluster *c, void *user) {
    struct range *g = user;
    for (unsigned i = g->first; i < g->first + g->n; i++)
        if (c->ranks[i].open->running) return false;
    return true;
}

void cluster_open(struct cluster *c, unsigned first, unsigned n) {
    struct range g = {first, n};
    assert_true(cluster_run(c, opened, &g, 600000));
}

static bool idle(struct cluster *c, void *user) {
    (void)c;
    struct rank *r = user;
    return bwi_session_idle(r->session) && bwi_loop_tasks(r->loop) == 0;
}

static void free_rank(struct rank *r) {
    bwi_session_free(r->session);
    for (int t = 0; t < BWI_TIERS; t++)
        if (r->ctx.tier[t]) r->ctx.tier[t]->close(r->ctx.tier[t]);
    assert_int_equal(bwi_arena_used(r->arena), 0);
    bwi_arena_close(r->arena);
    bwi_loop_close(r->loop);
    bwi_io_close(r->io);
    r->used = false;
}

void cluster_end(struct cluster *c, unsigned slot) {
    struct rank *r = &c->ranks[slot];
    r->stopped = false;
    bwi_session_close(r->session);
    bwi_session_give_up(r->session);
    assert_true(cluster_run(c, idle, r, 3600000));
    free_rank(r);
}

void cluster_kill(struct cluster *c, unsigned slot) {
    c->ranks[slot].stopped = true;
}

void cluster_fini(struct cluster *c) {
    for (unsigned i = 0; i < CLUSTER_RANKS_MAX; i++)
        if (c->ranks[i].used) cluster_end(c, i);
    for (unsigned i = 0; i < CLUSTER_RANKS_MAX; i++) bwi_bucket_free(c->local[i]);
    bwi_bucket_free(c->remote);
    assert_int_equal(bwi_alloc_live(), 0);
}
