/* SPDX-License-Identifier: Apache-2.0 */
/* Ten thousand ranks in one thread: real sessions on one loop, in virtual time, over one store in memory that delays
 * each call and counts it. */
#ifndef BW_BENCH_RANKS_H
#define BW_BENCH_RANKS_H

#include "checkpoint/session.h"
#include "store/store_memory.h"

#define RANKS_SECONDS_MAX 600u

/* What a call is for. */
enum ranks_call {
    RANKS_DATA,    /* packs, and what describes them: written once per save and rank, whatever anybody waits for */
    RANKS_CONTROL, /* everything else: looking, waiting, deciding */
    RANKS_CALLS
};

/* Calls of one phase, per second of virtual time. */
struct ranks_count {
    uint64_t per_s[RANKS_CALLS][RANKS_SECONDS_MAX];
    uint64_t all[RANKS_CALLS];
    uint64_t coordinator;   /* control, of rank 0 */
    uint64_t most_per_rank; /* control, of any other */
    uint64_t began_ns;
    uint32_t seconds; /* with a call in them, counted from the first */
};

struct ranks_config {
    uint32_t ranks;
    uint32_t tensors;      /* each is shared out among all ranks */
    uint64_t latency_ns;   /* of each call */
    uint64_t straggler_ns; /* the last rank begins its save so much later than the others */
    uint64_t seed;
};

struct ranks_save {
    struct ranks_count count;
    double commit_s;       /* from the last rank's data being there to rank 0's entry */
    double heard_s;        /* and until every rank has heard of it */
    double commit_cpu_s;   /* of it all: the time that this machine needed for the first of these */
    uint64_t commit_bytes; /* memory, above what all ranks had before */
};

struct ranks;

struct ranks *ranks_new(const struct ranks_config *c);
void ranks_free(struct ranks *w);
/* All ranks come at one moment. */
void ranks_open(struct ranks *w, struct ranks_count *ret, double *ret_s);
/* All ranks save a step: all but the last one at one moment. */
void ranks_save(struct ranks *w, uint64_t step, struct ranks_save *ret);
/* The same, but the last one gives its save up: until all have heard and given back what they wrote. */
void ranks_fail(struct ranks *w, uint64_t step, struct ranks_count *ret, double *ret_s);

#endif
