/* SPDX-License-Identifier: Apache-2.0 */
/* Those who take part: how they come, sleep, die and go. */
#include "system.h"

#include "base/text.h"
#include "base/vec.h"
#include "test.h"
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

uint64_t system_random(struct system *s, uint64_t below) {
    return below == 0 ? 0 : test_random(&s->rng) % below;
}

bool system_chance(struct system *s, unsigned percent) {
    return system_random(s, 100) < percent;
}

void system_tell(const struct system *s, const struct part *p, const char *fmt, ...) {
    va_list args;
    if (!s->talk) return;
    printf("%10.3f ms  ", (double)s->env.now / 1e6);
    if (p != NULL) printf("%s %u (node %u): ", p->what, p->number, p->node);
    va_start(args, fmt);
    (void)vprintf(fmt, args);
    va_end(args);
    putchar('\n');
}

static size_t pick(void *user, size_t n) {
    return (size_t)system_random(user, n);
}

static struct bwi_arena *take_arena(struct system *s) {
    struct bwi_arena *a = NULL;
    struct bw_error err = BW_ERROR_INIT;
    if (s->arena_count > 0) return s->arenas[--s->arena_count];
    assert_ok(bwi_arena_open(BWI_ARENA_MIN_BYTES, 0, &a, &err), &err);
    return a;
}

/* Half of all who take part are to be stopped at one of their calls. */
static void draw_stop(struct system *s, struct part *p) {
    if (s->quiet || !system_chance(s, 50)) return;
    p->stop.calls = 1 + system_random(s, system_chance(s, 50) ? 40 : 160);
    p->stop.after = system_chance(s, 50);
    p->sleep_ns = BWI_NEVER;
    if (system_chance(s, 60)) p->sleep_ns = system_random(s, system_chance(s, 70) ? 3000 : 120000) * BWI_NS_PER_MS;
}

static void open_tier(struct system *s, struct part *p, enum bwi_tier tier, struct bwi_bucket *b) {
    struct bw_error err = BW_ERROR_INIT;
    if (s->hooks != NULL) {
        s->hooks->open_tier(s, p, tier);
        return;
    }
    assert_ok(unruly_open(s->net, b, p->loop, bwi_tier_name(tier), &p->ctx.tier[tier], &err), &err);
    unruly_stop_at(p->ctx.tier[tier], &p->stop);
}

struct part *part_new(struct system *s, unsigned node, const char *what) {
    struct bw_error err = BW_ERROR_INIT;
    unsigned i = 0;
    while (i < PARTS_MAX && s->parts[i].used) i++;
    if (i == PARTS_MAX) return NULL;
    struct part *p = &s->parts[i];
    *p = (struct part){.used = true, .node = node, .number = i, .what = what, .wake_ns = BWI_NEVER};
    if (s->hooks != NULL) p->io = s->hooks->open_io(s, p);
    assert_ok(bwi_loop_open(&s->env.env, p->io, &p->loop, &err), &err);
    bwi_loop_set_picker(p->loop, pick, s);
    p->arena = take_arena(s);
    bwi_context_init(&p->ctx, p->loop);
    p->ctx.arena = p->arena;
    bwi_format(p->ctx.run, sizeof p->ctx.run, "%s", s->oracle.run);
    if (s->hooks == NULL) draw_stop(s, p);
    open_tier(s, p, BWI_TIER_REMOTE, s->remote);
    if (!s->single_tier) open_tier(s, p, BWI_TIER_LOCAL, s->local[node]);
    return p;
}

void part_kill(struct system *s, struct part *p) {
    if (p->dead) return;
    system_tell(s, p, "dies");
    p->dead = true;
    p->frozen_until = 0;
    if (s->hooks != NULL) s->hooks->died(s, p);
    for (int t = 0; t < BWI_TIERS && s->hooks == NULL; t++)
        if (p->ctx.tier[t] != NULL) unruly_died(p->ctx.tier[t]);
}

void part_free(struct system *s, struct part *p) {
    for (int t = 0; t < BWI_TIERS; t++)
        if (p->ctx.tier[t] != NULL) p->ctx.tier[t]->close(p->ctx.tier[t]);
    assert_int_equal(bwi_arena_used(p->arena), 0);
    s->arenas[s->arena_count++] = p->arena;
    bwi_loop_close(p->loop);
    bwi_io_close(p->io);
    if (s->hooks != NULL) s->hooks->freed(s, p);
    p->used = false;
}

static void stop_here(struct system *s, struct part *p) {
    p->stop.reached = false;
    if (p->sleep_ns == BWI_NEVER) {
        system_tell(s, p, "stops %s verb %d of %s", p->stop.after ? "after" : "before", (int)p->stop.verb, p->stop.key);
        part_kill(s, p);
        return;
    }
    system_tell(s, p, "sleeps for %" PRIu64 " ms %s verb %d of %s", p->sleep_ns / BWI_NS_PER_MS,
                p->stop.after ? "after" : "before", (int)p->stop.verb, p->stop.key);
    p->frozen_until = s->env.now + p->sleep_ns + 1;
}

static bool turn_one(struct system *s, struct part *p) {
    if (p->frozen_until > s->env.now) return false;
    if (p->frozen_until != 0) {
        system_tell(s, p, "wakes up");
        p->frozen_until = 0;
    }
    bool any = bwi_loop_turn(p->loop, 0);
    if (p->stop.reached && !p->dead) {
        stop_here(s, p);
        return true;
    }
    if (p->wake_ns <= s->env.now) p->wake_ns = BWI_NEVER;
    any = p->turn(s, p) || any;
    if (!p->gone) return any;
    p->end(s, p);
    part_free(s, p);
    return true;
}

bool parts_turn(struct system *s) {
    bool any = false;
    const unsigned from = (unsigned)system_random(s, PARTS_MAX);
    for (unsigned i = 0; i < PARTS_MAX; i++) {
        struct part *p = &s->parts[(from + i) % PARTS_MAX];
        if (p->used) any = turn_one(s, p) || any;
    }
    return any;
}

uint64_t parts_next_ns(const struct system *s) {
    uint64_t next = BWI_NEVER;
    for (unsigned i = 0; i < PARTS_MAX; i++) {
        const struct part *p = &s->parts[i];
        if (!p->used) continue;
        uint64_t at = bwi_loop_next_ns(p->loop);
        if (p->wake_ns < at) at = p->wake_ns;
        if (s->hooks != NULL && s->hooks->next_ns(p) < at) at = s->hooks->next_ns(p);
        if (p->frozen_until > s->env.now) at = p->frozen_until;
        if (at < next) next = at;
    }
    return next;
}
