/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's training state as a list of pieces of memory: what has to be in a checkpoint so that training goes on
 * exactly. */
#ifndef CHARLM_STATE_H
#define CHARLM_STATE_H

#include "corpus.h"
#include "params.h"

/* A part of a tensor that lies in this rank's memory. */
struct part {
    char name[40];
    uint32_t dims;
    uint32_t replicas; /* how many ranks hold the same bytes; 1: this box is this rank's own */
    uint32_t replica;  /* this rank's place among them */
    uint64_t shape[2]; /* of the whole tensor */
    uint64_t offset[2];
    uint64_t extent[2];
    float *data;
};

/* What is not a tensor. Small, so a save may have a copy that nobody changes. */
struct small_state {
    uint64_t rng;             /* which n-grams are dropped next; each rank's own */
    struct position position; /* where training is in the text; the same on all ranks */
};

#define STATE_PARTS_MAX (3 * PARAM_COUNT)

struct state {
    struct part parts[STATE_PARTS_MAX]; /* weights: replicated; both moments: this rank's rows */
    size_t part_count;
    struct small_state now;   /* changes with every step */
    struct small_state saved; /* as it was when the save began */
};

/* Lists the parts of `p`. The memory stays where it is as long as `p` lives. */
void state_init(struct state *s, const struct params *p, uint32_t rank, uint32_t world, uint64_t seed);

/* Bytes of this rank's parts, replicas included. */
uint64_t state_bytes(const struct state *s);

#endif
