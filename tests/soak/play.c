/* SPDX-License-Identifier: Apache-2.0 */
#include "play.h"

#include "base/vec.h"
#include "test.h"
#include <stdlib.h>

static bool turn(struct play *p) {
    bool any = !p->s->quiet && p->happen(p);
    if (p->deliver != NULL) any = p->deliver(p) || any;
    return parts_turn(p->s) || any;
}

bool play_until(struct play *p, bool (*done)(struct play *p), uint64_t limit_ns, const char *what) {
    struct system *s = p->s;
    const uint64_t end_ns = s->env.now + limit_ns;
    while (!done(p)) {
        const bool any = turn(p);
        if (++p->turns > p->turns_max) violated(s, "%s does not end: %u turns", what, p->turns);
        if (s->oracle.violation[0] != '\0') return false;
        if (any) continue;
        const uint64_t next = p->next_ns(p);
        if (next == BWI_NEVER || next > end_ns) {
            if (done(p)) break;
            violated(s, "%s: %s", what, next == BWI_NEVER ? "nothing happens any more" : "takes too long");
            return false;
        }
        if (next > s->env.now) s->env.now = next;
    }
    return s->oracle.violation[0] == '\0';
}

bool play_is_busy(const struct system *s, const struct launch_plan *l) {
    for (unsigned i = 0; i < PARTS_MAX; i++)
        if (s->parts[i].used && !s->parts[i].dead && trainer_plan(&s->parts[i]) == l) return true;
    return false;
}

bool play_nobody_is_left(const struct system *s) {
    for (unsigned i = 0; i < PARTS_MAX; i++)
        if (s->parts[i].used) return false;
    return true;
}

bool play_judge_final(struct system *s, const struct launch_plan *l) {
    if (s->final_opened != l->world)
        violated(s, "only %u of %u ranks of the last launch opened", s->final_opened, l->world);
    if (s->final_committed != l->world)
        violated(s, "only %u of %u ranks of the last launch have a commit", s->final_committed, l->world);
    return s->oracle.violation[0] == '\0';
}

struct pool *play_pool(void **state) {
    if (*state == NULL) *state = calloc(1, sizeof(struct pool));
    assert_non_null(*state);
    return *state;
}

void play_end(void *state) {
    struct pool *pool = state;
    for (unsigned i = 0; pool != NULL && i < pool->count; i++) bwi_arena_close(pool->arenas[i]);
    free(pool);
    assert_int_equal(bwi_alloc_live(), 0);
}
