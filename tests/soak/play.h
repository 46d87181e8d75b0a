/* SPDX-License-Identifier: Apache-2.0 */
/* What soaks of whole systems share: turning everybody until something is so, the last launch, and the arenas that
 * outlive a run. */
#ifndef BW_SOAK_PLAY_H
#define BW_SOAK_PLAY_H

#include "soak.h"
#include "system.h"

/* A system, and what happens to it from outside. */
struct play {
    struct system *s;
    bool (*happen)(struct play *p);      /* as long as the system is not quiet; true: something did */
    bool (*deliver)(struct play *p);     /* what the stores have done since; NULL: they do it by themselves */
    uint64_t (*next_ns)(struct play *p); /* when anything of it, or of a participant, is due */
    unsigned turns, turns_max;
};

/* Plays on until done() says so; false: a violation, and be it that nothing comes to an end. */
bool play_until(struct play *p, bool (*done)(struct play *p), uint64_t limit_ns, const char *what);

bool play_is_busy(const struct system *s, const struct launch_plan *l); /* somebody of it lives */
bool play_nobody_is_left(const struct system *s);
/* The last launch is over: all of it must have opened and committed. */
bool play_judge_final(struct system *s, const struct launch_plan *l);

struct pool {
    struct bwi_arena *arenas[ARENA_POOL];
    unsigned count;
};
struct pool *play_pool(void **state); /* of a soak's worker; made when it is first asked for */
void play_end(void *state);           /* closes it; nothing else may be left */

#endif
