/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks of one machine: processes that share a piece of memory for gradients and new weights, and meet at barriers.
 *
 * It stands for what torch.distributed or MPI do in a real job. Breakwater knows nothing of it.
 */
#ifndef CHARLM_TEAM_H
#define CHARLM_TEAM_H

#include <stddef.h>
#include <stdint.h>

#define TEAM_MAX 8

struct team_shared;

struct team {
    uint32_t rank, world;
    struct team_shared *shared;
    float *gradients[TEAM_MAX]; /* [count] each: rank r writes its own, all read */
    float *fresh;               /* [count] new weights: each rank writes the rows that it owns */
    size_t mapped_bytes;
    uint64_t meetings;
};

/* Maps the shared memory for `count` floats; before the ranks are forked. -1 with errno. */
int team_init(struct team *t, uint32_t world, size_t count);

/*
 * Runs `rank_main` in `world` child processes and gives the largest exit code. When one of them fails or is killed, the
 * others learn of it at their next barrier, and are killed if they are still there 20 s later.
 */
int team_run(struct team *t, int (*rank_main)(struct team *t, void *arg), void *arg);

/* Waits until every rank is here. -1: a rank has died, or did not come within two minutes. */
int team_meet(struct team *t);

/* Gives every rank the values of all, in the order of ranks: gather. -1 as team_meet. */
int team_share(struct team *t, double value, uint64_t number, double ret_values[TEAM_MAX],
               uint64_t ret_numbers[TEAM_MAX]);

#endif
