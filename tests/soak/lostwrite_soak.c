/* SPDX-License-Identifier: Apache-2.0 */
/* One run: a few launches of a small job, and tools beside them, on disks that forget what was not synced. Processes
 * are killed, nodes and the server lose their power, a node is destroyed, each in the middle of some call. After all of
 * that a last launch has to go on from what was promised, read it back bit for bit, save, and leave nothing behind that
 * is not needed. */
#include "lost.h"
#include "play.h"

#include "base/text.h"
#include "base/vec.h"
#include "test.h"
#include <inttypes.h>
#include <string.h>

#define TURNS_MAX 400000u
#define HORIZON_S UINT64_C(3600)
#define TOOLS_MAX 3u
#define LONG_NS   (UINT64_C(30) * 3600 * BWI_NS_PER_S) /* after it temporaries are nobody's any more */
#define LIMIT_NS  (UINT64_C(24) * 3600 * BWI_NS_PER_S)

struct run {
    struct lost x; /* first */
    struct play play;
    unsigned started;
    uint64_t next_start_ns, tools_ns[TOOLS_MAX];
    unsigned tool_count;
    unsigned last_blows; /* at the start of the launch that runs */
};

static struct run *run_of(struct play *p) {
    return bwi_container_of(p, struct run, play);
}

static void draw(struct run *q) {
    struct lost *x = &q->x;
    struct system *s = &x->s;
    s->nodes = 1 + (unsigned)system_random(s, 3);
    s->patient = true;
    s->single_tier = system_chance(s, 15);
    s->retention.keep_last = system_chance(s, 40) ? 1 : 0;
    s->quota = system_chance(s, 25) ? 30000 : 0;
    x->friendly = system_chance(s, 8);
    x->failing_syncs = system_chance(s, 15);
    x->capacity = system_chance(s, 15) ? 40000 + system_random(s, 100000) : 0;
    x->grace_ms = system_chance(s, 50) ? 0 : 3600000;
    x->delay_ns = (system_chance(s, 50) ? 1 : 30) * BWI_NS_PER_MS;
    x->blows_left = 1 + (unsigned)system_random(s, 4);
    x->blow_ns = system_chance(s, 30) ? s->env.now + system_random(s, 20000) * BWI_NS_PER_MS : BWI_NEVER;
    s->launch_count = 1 + (unsigned)system_random(s, 3);
    for (unsigned i = 0; i < s->launch_count; i++) {
        struct launch_plan *l = &s->launches[i];
        *l = (struct launch_plan){.world = s->nodes + (uint32_t)system_random(s, 2), .steps = 1 + system_random(s, 3)};
        bwi_format(l->job, sizeof l->job, "job");
        bwi_format(l->launch, sizeof l->launch, "l%u", i);
    }
    q->tool_count = (unsigned)system_random(s, TOOLS_MAX + 1);
    for (unsigned i = 0; i < q->tool_count; i++) q->tools_ns[i] = s->env.now + system_random(s, 4000) * BWI_NS_PER_MS;
}

static void open_run(struct run *q, struct soak_run *r, struct pool *pool) {
    struct system *s = &q->x.s;
    q->x.r = r;
    bwi_env_virtual_init(&s->env, r->seed);
    s->rng = r->seed ^ UINT64_C(0x10571);
    s->talk = r->alone;
    s->hooks = &lost_hooks;
    s->arenas = pool->arenas;
    s->arena_count = pool->count;
    oracle_init(&s->oracle, LOST_RUN, NULL);
    draw(q);
    lost_open_disks(&q->x);
    lost_fail_syncs(&q->x);
    system_tell(s, NULL, "%u nodes%s%s%s", s->nodes, s->single_tier ? ", one tier" : "",
                q->x.friendly ? ", friendly disks" : "", q->x.failing_syncs ? ", failing syncs" : "");
}

static void close_run(struct run *q, struct pool *pool) {
    pool->count = q->x.s.arena_count;
    oracle_fini(&q->x.s.oracle);
    lost_close_disks(&q->x);
}

/* --- what happens ---- */

static bool is_room(const struct system *s, unsigned wanted) {
    unsigned free = 0;
    for (unsigned i = 0; i < PARTS_MAX; i++) free += !s->parts[i].used;
    return free >= wanted;
}

/* The launcher: the next launch comes when the last one is over, or a while after something has struck. Mostly it
 * first ends what is left of the last one. */
static bool maybe_launch(struct run *q) {
    struct system *s = &q->x.s;
    if (q->started == s->launch_count || !is_room(s, 8)) return false;
    const bool over = q->started == 0 || !play_is_busy(s, &s->launches[q->started - 1]);
    if (!over && (q->x.blows == q->last_blows || s->env.now < q->next_start_ns)) return false;
    for (unsigned i = 0; i < PARTS_MAX && !over && system_chance(s, 80); i++)
        if (s->parts[i].used && trainer_plan(&s->parts[i]) != NULL) part_kill(s, &s->parts[i]);
    const struct launch_plan *l = &s->launches[q->started];
    q->x.launch_ns[q->started++] = s->env.now;
    q->last_blows = (unsigned)q->x.blows;
    q->next_start_ns = s->env.now + system_random(s, 3000) * BWI_NS_PER_MS;
    for (uint32_t r = 0; r < l->world; r++) (void)trainer_new(s, l, r);
    return true;
}

static bool maybe_tool(struct run *q) {
    struct system *s = &q->x.s;
    bool any = false;
    for (unsigned i = 0; i < q->tool_count; i++) {
        if (q->tools_ns[i] > s->env.now) continue;
        q->tools_ns[i] = BWI_NEVER;
        const enum tool_kind kind = (enum tool_kind)system_random(s, TOOLS);
        s->retires = s->retires || kind == TOOL_RETIRE;
        (void)tool_new(s, kind, (unsigned)system_random(s, s->nodes), q->x.grace_ms);
        any = true;
    }
    return any;
}

static bool happen(struct play *p) {
    struct run *q = run_of(p);
    struct system *s = p->s;
    bool any = maybe_launch(q);
    any = maybe_tool(q) || any;
    if (q->x.blow_ns > s->env.now) return any;
    q->x.blow_ns = BWI_NEVER;
    lost_strike(&q->x, (enum blow)(BLOW_NODE + system_random(s, BLOWS - BLOW_NODE)),
                (unsigned)system_random(s, s->nodes), NULL);
    return true;
}

static uint64_t next_ns(struct play *p) {
    const struct run *q = run_of(p);
    const struct system *s = p->s;
    uint64_t next = parts_next_ns(s);
    if (s->quiet) return next;
    if (q->started < s->launch_count && q->x.blows != q->last_blows && q->next_start_ns > s->env.now)
        next = q->next_start_ns < next ? q->next_start_ns : next;
    for (unsigned i = 0; i < q->tool_count; i++) next = q->tools_ns[i] < next ? q->tools_ns[i] : next;
    return q->x.blow_ns < next ? q->x.blow_ns : next;
}

static bool launches_are_over(struct play *p) {
    const struct run *q = run_of(p);
    const struct system *s = p->s;
    if (q->started < s->launch_count) return false;
    return s->env.now > HORIZON_S * BWI_NS_PER_S || !play_is_busy(s, &s->launches[s->launch_count - 1]);
}

static bool nobody_is_left(struct play *p) {
    return play_nobody_is_left(p->s);
}

/* --- the end ---- */

/* Mostly the power fails once more, when nobody works; then all is as it should be. */
static bool settle(struct run *q) {
    struct system *s = &q->x.s;
    for (unsigned i = 0; i < PARTS_MAX; i++)
        if (s->parts[i].used) part_kill(s, &s->parts[i]);
    if (system_chance(s, 70)) lost_strike(&q->x, BLOW_ALL, 0, NULL);
    q->x.blow_ns = BWI_NEVER;
    for (unsigned n = 0; n < s->nodes; n++) {
        disk_fail_fsync(q->x.local[n], 0);
        disk_set_capacity(q->x.local[n], 0);
    }
    disk_fail_fsync(q->x.remote, 0);
    s->quiet = true;
    return play_until(&q->play, nobody_is_left, LIMIT_NS, "the end of the dead");
}

static bool play_final(struct run *q) {
    struct system *s = &q->x.s;
    q->x.launch_ns[s->launch_count] = s->env.now;
    struct launch_plan *l = &s->launches[s->launch_count++];
    *l = (struct launch_plan){.world = s->nodes + (uint32_t)system_random(s, 2), .steps = 2, .final = true};
    bwi_format(l->job, sizeof l->job, "job");
    bwi_format(l->launch, sizeof l->launch, "final");
    s->quota = 0;
    for (uint32_t r = 0; r < l->world; r++) assert_non_null(trainer_new(s, l, r));
    if (!play_until(&q->play, nobody_is_left, LIMIT_NS, "the last launch")) return false;
    return play_judge_final(s, l);
}

static bool use_tool(struct run *q, enum tool_kind kind, unsigned node) {
    q->x.grace_ms = 0;
    if (tool_new(&q->x.s, kind, node, 0) == NULL) return true;
    return play_until(&q->play, nobody_is_left, LIMIT_NS, "a tool at the end");
}

static bool play_rest(struct run *q) {
    struct system *s = &q->x.s;
    s->env.now += LONG_NS;
    if (!use_tool(q, TOOL_SWEEP_REMOTE, 0)) return false;
    for (unsigned n = 0; n < s->nodes; n++)
        if (!use_tool(q, TOOL_SWEEP_LOCAL, n)) return false;
    if (!use_tool(q, TOOL_VERIFY, 0) || !use_tool(q, TOOL_READ, 0)) return false;
    lost_check_history(&q->x);
    lost_check_leftovers(&q->x);
    return s->oracle.violation[0] == '\0';
}

static bool run(struct soak_run *r, void **state) {
    static struct run q;
    struct pool *pool = play_pool(state);
    memset(&q, 0, sizeof q);
    q.play = (struct play){.s = &q.x.s, .happen = happen, .next_ns = next_ns, .turns_max = TURNS_MAX};
    open_run(&q, r, pool);
    struct system *s = &q.x.s;
    const bool good = play_until(&q.play, launches_are_over, 100 * HORIZON_S * BWI_NS_PER_S, "the launches") &&
                      settle(&q) && play_final(&q) && play_rest(&q);
    system_tell(s, NULL,
                "%u turns, %" PRIu64 " changes, %" PRIu64 " blows, %u levels told, %" PRIu64 " commits, %" PRIu64
                " restores compared, %u temporaries left",
                q.play.turns, q.x.changes, q.x.blows, q.x.account.levels, s->committed, s->restored, q.x.hidden);
    if (!good) {
        bwi_format(r->message, sizeof r->message, "%s", s->oracle.violation);
        return false;
    }
    close_run(&q, pool);
    return true;
}

int main(int argc, char **argv) {
    const struct soak soak = {.name = "lostwrite", .run = run, .end = play_end, .run_s_max = 60};
    return soak_main(&soak, argc, argv);
}
