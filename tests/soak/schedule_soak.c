/* SPDX-License-Identifier: Apache-2.0 */
/* One run: a few launches of a small job and tools beside them, over stores that fail, delay, drop and repeat what they
 * are told, with participants that die or sleep in the middle. Then all is quiet, and a last launch has to go on from
 * the right checkpoint, save, and leave nothing behind that is not needed. */
#include "play.h"

#include "base/text.h"
#include "base/vec.h"
#include "test.h"
#include <inttypes.h>
#include <string.h>

#define RUN         "run"
#define TURNS_MAX   1000000u
#define HORIZON_S   UINT64_C(600)
#define TOOLS_MAX   4u
#define FINAL_AGAIN 3u
#define FINAL_LIMIT (UINT64_C(24) * 3600 * BWI_NS_PER_S)

struct run {
    struct system s;
    struct play play;
    struct soak_run *r;
    unsigned started;       /* launches */
    uint64_t next_start_ns; /* of the next one, whatever became of the last one */
    uint64_t tools_ns[TOOLS_MAX];
    unsigned tool_count, tools_started;
    uint64_t node_loss_ns;              /* BWI_NEVER: never */
    uint64_t outage_ns, outage_ends_ns; /* of all stores; BWI_NEVER: none */
    struct unruly_model usual;
    uint64_t final_steps;
};

static struct run *run_of(struct play *p) {
    return bwi_container_of(p, struct run, play);
}

/* --- what is drawn ---- */

static void draw_faults(struct run *x) {
    struct system *s = &x->s;
    struct unruly_model *m = unruly_model_of(s->net);
    const unsigned kind = (unsigned)system_random(s, 10);
    m->delay_ns = (system_chance(s, 50) ? 2 : 60) * BWI_NS_PER_MS;
    if (kind < 2) return;
    m->slow = 400;
    m->slow_ns = (system_chance(s, 50) ? 3 : 100) * BWI_NS_PER_S;
    m->again = 1500;
    m->lose = m->drop = m->fail = kind < 7 ? 300 : 2500;
}

static void draw_launches(struct run *x) {
    struct system *s = &x->s;
    const bool small = system_chance(s, 75);
    s->launch_count = 1 + (unsigned)system_random(s, small ? 2 : 3);
    x->final_steps = small ? 1 : 2;
    for (unsigned i = 0; i < s->launch_count; i++) {
        struct launch_plan *l = &s->launches[i];
        const unsigned mode = (unsigned)system_random(s, 100);
        l->world = 1 + (uint32_t)system_random(s, small ? 2 : 3);
        l->steps = small ? 1 + system_random(s, 2) : 2 + system_random(s, 4);
        l->mode = mode < 80   ? BWI_REGISTER_DEFAULT
                  : mode < 88 ? BWI_REGISTER_TAKEOVER
                  : mode < 96 ? BWI_REGISTER_ROLLBACK
                              : BWI_REGISTER_FRESH;
        l->resume_step = 1 + system_random(s, 4);
        bwi_format(l->job, sizeof l->job, "j%u", system_chance(s, 70) ? 0 : i);
        bwi_format(l->launch, sizeof l->launch, "l%u", i);
        bwi_format(l->label, sizeof l->label, "%s", l->mode == BWI_REGISTER_DEFAULT ? "" : l->launch);
    }
}

static void draw_rest(struct run *x) {
    struct system *s = &x->s;
    s->single_tier = system_chance(s, 20);
    if (system_chance(s, 40)) s->retention.keep_last = 1;
    if (system_chance(s, 15)) s->quota = 40000;
    x->node_loss_ns = system_chance(s, 12) ? system_random(s, 120000) * BWI_NS_PER_MS : BWI_NEVER;
    x->outage_ns = system_chance(s, 25) ? system_random(s, 5000) * BWI_NS_PER_MS : BWI_NEVER;
    x->tool_count = (unsigned)system_random(s, TOOLS_MAX + 1);
    for (unsigned i = 0; i < x->tool_count; i++)
        x->tools_ns[i] = system_random(s, system_chance(s, 50) ? 3000 : 120000) * BWI_NS_PER_MS;
}

static void look(void *user, struct bwi_bucket *b, const struct bwi_store_op *op) {
    struct system *s = user;
    if (b == s->remote) oracle_look(&s->oracle, op);
}

static void open_run(struct run *x, struct soak_run *r, struct pool *pool) {
    struct system *s = &x->s;
    x->r = r;
    x->outage_ends_ns = BWI_NEVER;
    bwi_env_virtual_init(&s->env, r->seed);
    s->rng = r->seed ^ UINT64_C(0x5eed);
    s->talk = r->alone;
    s->nodes = NODES_MAX;
    s->net = unruly_net_new(&s->env, r->seed + 1, look, s);
    assert_int_equal(bwi_bucket_new(&s->env.env, &s->remote), 0);
    for (unsigned i = 0; i < NODES_MAX; i++) assert_int_equal(bwi_bucket_new(&s->env.env, &s->local[i]), 0);
    oracle_init(&s->oracle, RUN, s->remote);
    s->arenas = pool->arenas;
    s->arena_count = pool->count;
    draw_faults(x);
    draw_launches(x);
    draw_rest(x);
}

static void close_run(struct run *x, struct pool *pool) {
    struct system *s = &x->s;
    pool->count = s->arena_count;
    unruly_net_free(s->net);
    oracle_fini(&s->oracle);
    bwi_bucket_free(s->remote);
    for (unsigned i = 0; i < NODES_MAX; i++) {
        bwi_bucket_free(s->local[i]);
        bwi_bucket_free(s->lost[i]);
    }
}

/* --- what happens ---- */

static void start_launch(struct run *x) {
    struct system *s = &x->s;
    const struct launch_plan *l = &s->launches[x->started++];
    for (uint32_t r = 0; r < l->world; r++) (void)trainer_new(s, l, r);
    const uint64_t wait_ms = system_chance(s, 50) ? 300000 : system_chance(s, 50) ? 300 : 8000;
    x->next_start_ns = s->env.now + (1 + system_random(s, wait_ms)) * BWI_NS_PER_MS;
}

/* The launcher: the next launch comes when the last one is over, or when somebody has lost patience with it. */
static bool maybe_launch(struct run *x) {
    struct system *s = &x->s;
    if (x->started == s->launch_count) return false;
    const bool over = x->started == 0 || !play_is_busy(s, &s->launches[x->started - 1]);
    if (!over && s->env.now < x->next_start_ns) return false;
    start_launch(x);
    return true;
}

static void lose_node(struct system *s, unsigned node) {
    system_tell(s, NULL, "node %u is lost", node);
    for (unsigned i = 0; i < PARTS_MAX; i++)
        if (s->parts[i].used && s->parts[i].node == node) part_kill(s, &s->parts[i]);
    s->lost[node] = s->local[node];
    s->local[node] = NULL;
    assert_int_equal(bwi_bucket_new(&s->env.env, &s->local[node]), 0);
}

/* For a while nearly every call fails, or has no answer. */
static void maybe_outage(struct run *x) {
    struct system *s = &x->s;
    struct unruly_model *m = unruly_model_of(s->net);
    if (x->outage_ns <= s->env.now) {
        system_tell(s, NULL, "an outage begins");
        x->usual = *m;
        *(system_chance(s, 50) ? &m->fail : &m->drop) = 60000;
        x->outage_ns = BWI_NEVER;
        x->outage_ends_ns = s->env.now + system_random(s, system_chance(s, 50) ? 3000 : 100000) * BWI_NS_PER_MS;
    } else if (x->outage_ends_ns <= s->env.now) {
        system_tell(s, NULL, "the outage is over");
        *m = x->usual;
        x->outage_ends_ns = BWI_NEVER;
    }
}

static bool happen(struct play *p) {
    struct run *x = run_of(p);
    struct system *s = &x->s;
    bool any = maybe_launch(x);
    maybe_outage(x);
    for (unsigned i = 0; i < x->tool_count; i++) {
        if (x->tools_ns[i] > s->env.now) continue;
        x->tools_ns[i] = BWI_NEVER;
        (void)tool_new(s, (enum tool_kind)system_random(s, TOOLS), (unsigned)system_random(s, 3),
                       system_chance(s, 50) ? 0 : 3600000);
        any = true;
    }
    if (x->node_loss_ns <= s->env.now) {
        x->node_loss_ns = BWI_NEVER;
        lose_node(s, (unsigned)system_random(s, 3));
        any = true;
    }
    return any;
}

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t next_ns(struct play *p) {
    const struct run *x = run_of(p);
    const struct system *s = &x->s;
    uint64_t next = earlier(unruly_net_next_ns(s->net), parts_next_ns(s));
    if (s->quiet) return next;
    if (x->started < s->launch_count) next = earlier(next, x->next_start_ns);
    for (unsigned i = 0; i < x->tool_count; i++) next = earlier(next, x->tools_ns[i]);
    next = earlier(next, earlier(x->outage_ns, x->outage_ends_ns));
    return earlier(next, x->node_loss_ns);
}

static bool deliver(struct play *p) {
    return unruly_net_turn(p->s->net);
}

static bool launches_are_over(struct play *p) {
    const struct run *x = run_of(p);
    const struct system *s = p->s;
    if (s->env.now > HORIZON_S * BWI_NS_PER_S) return true;
    if (x->started < s->launch_count) return false;
    for (unsigned i = 0; i < s->launch_count; i++)
        if (play_is_busy(s, &s->launches[i])) return false;
    return true;
}

static bool nobody_is_left(struct play *p) {
    return play_nobody_is_left(p->s) && unruly_net_next_ns(p->s->net) == BWI_NEVER;
}

static bool final_launch_is_over(struct play *p) {
    return !play_is_busy(p->s, &p->s->launches[p->s->launch_count - 1]);
}

/* --- the end ---- */

static void be_quiet(struct system *s) {
    struct unruly_model *m = unruly_model_of(s->net);
    *m = (struct unruly_model){.delay_ns = 2 * BWI_NS_PER_MS};
    s->quiet = true;
    for (unsigned i = 0; i < PARTS_MAX; i++) s->parts[i].stop.calls = 0;
}

/* A new job. false: there are more participants than places, so there is nothing to see here. */
static bool start_final(struct run *x) {
    struct system *s = &x->s;
    struct launch_plan *l = &s->launches[s->launch_count++];
    *l = (struct launch_plan){.world = 1 + (uint32_t)system_random(s, 3), .steps = x->final_steps, .final = true};
    bwi_format(l->job, sizeof l->job, "final");
    bwi_format(l->launch, sizeof l->launch, "final%u", s->launch_count);
    s->quota = 0;
    x->started++;
    for (uint32_t r = 0; r < l->world; r++)
        if (trainer_new(s, l, r) == NULL) return false;
    return true;
}

/* Whatever slept through the rest of it, the last job must come to its end, and to two more checkpoints. Somebody's
 * registration that was under way may still come first, once for each of them: then its launcher starts it again. */
static bool play_final(struct run *x) {
    struct system *s = &x->s;
    for (unsigned again = 0;; again++) {
        s->final_beaten = s->final_opened = s->final_committed = 0;
        if (!start_final(x)) return true;
        if (!play_until(&x->play, final_launch_is_over, FINAL_LIMIT, "the last launch")) return false;
        if (s->final_beaten == 0 || again == FINAL_AGAIN) return play_judge_final(s, &s->launches[s->launch_count - 1]);
    }
}

static bool use_tool(struct run *x, enum tool_kind kind, unsigned node) {
    if (tool_new(&x->s, kind, node, 0) == NULL) return true;
    return play_until(&x->play, nobody_is_left, FINAL_LIMIT, "a tool at the end");
}

static void check_leftovers(struct system *s, const struct bwi_bucket *b, const char *where) {
    for (size_t i = 0; i < bwi_bucket_objects(b); i++)
        if (!oracle_may_lie(&s->oracle, bwi_bucket_key(b, i)))
            violated(s, "left over after all in the %s tier: %s", where, bwi_bucket_key(b, i));
}

static bool play_rest(struct run *x) {
    struct system *s = &x->s;
    if (!play_until(&x->play, nobody_is_left, FINAL_LIMIT, "the end of all others")) return false;
    if (!use_tool(x, TOOL_SWEEP_REMOTE, 0)) return false;
    for (unsigned node = 0; node < 3; node++)
        if (bwi_bucket_objects(s->local[node]) > 0 && !use_tool(x, TOOL_SWEEP_LOCAL, node)) return false;
    if (!use_tool(x, TOOL_READ, 3)) return false;
    check_leftovers(s, s->remote, "remote");
    for (unsigned node = 0; node < 3; node++) check_leftovers(s, s->local[node], "local");
    return s->oracle.violation[0] == '\0';
}

static bool run(struct soak_run *r, void **state) {
    static struct run x;
    struct pool *pool = play_pool(state);
    memset(&x, 0, sizeof x);
    x.play = (struct play){.s = &x.s, .happen = happen, .deliver = deliver, .next_ns = next_ns, .turns_max = TURNS_MAX};
    open_run(&x, r, pool);
    bool good = play_until(&x.play, launches_are_over, 100 * HORIZON_S * BWI_NS_PER_S, "the launches");
    be_quiet(&x.s);
    good = good && play_final(&x) && play_rest(&x);
    system_tell(&x.s, NULL,
                "%u turns, %" PRIu64 " calls, %" PRIu64 " entries, %" PRIu64 " commits told, %" PRIu64
                " restores compared",
                x.play.turns, unruly_net_calls(x.s.net), x.s.oracle.entries, x.s.committed, x.s.restored);
    if (!good) {
        bwi_format(r->message, sizeof r->message, "%s", x.s.oracle.violation);
        return false;
    }
    close_run(&x, pool);
    return true;
}

int main(int argc, char **argv) {
    const struct soak soak = {.name = "schedule", .run = run, .end = play_end, .run_s_max = 60};
    return soak_main(&soak, argc, argv);
}
