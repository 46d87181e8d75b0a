/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster in one thread: many sessions, each on its own loop, with stores in memory and virtual time. Any rank can be
 * stopped for ever or for a while; the order in which ranks and tasks run follows from a seed. */
#ifndef BW_TEST_CLUSTER_H
#define BW_TEST_CLUSTER_H

#include "checkpoint/restore.h"
#include "checkpoint/session.h"
#include "store/store_memory.h"

#define CLUSTER_RANKS_MAX 64

struct rank {
    bool used, stopped; /* stopped: its loop is not turned */
    struct bwi_io *io;  /* NULL: what is in memory needs none */
    struct bwi_loop *loop;
    struct bwi_arena *arena;
    struct bwi_context ctx;
    struct bwi_session *session;
    struct bwi_task *open;
    struct bw_event last_end; /* of the save that ended last */
    struct bw_error over;     /* the attempt is over */
    uint64_t notes;
};

struct cluster;

/* Other stores than those in memory. Each is called when a rank starts; what they make is closed with the rank. */
struct cluster_stores {
    int (*open_io)(struct cluster *c, unsigned node, struct bwi_io **ret, struct bw_error *err); /* NULL: none */
    int (*open_tier)(struct cluster *c, unsigned node, enum bwi_tier tier, struct bwi_loop *loop,
                     struct bwi_store **ret, struct bw_error *err);
};

struct cluster {
    const struct cluster_stores *stores; /* NULL: memory */
    void *user;                          /* of those who use it */
    struct bwi_env_virtual env;
    struct bwi_bucket *remote;
    struct bwi_bucket *local[CLUSTER_RANKS_MAX]; /* per node */
    struct rank ranks[CLUSTER_RANKS_MAX];
    uint64_t rng;
    bool shuffle; /* random order of ranks and tasks */
};

void cluster_init(struct cluster *c, uint64_t seed);
void cluster_fini(struct cluster *c); /* every rank is ended first; fails if anything leaks */

struct launch {
    const char *job, *launch, *label;
    uint32_t world;
    enum bwi_register_mode mode;
    uint64_t resume_step;
    bool single_tier;
    uint64_t quota;
    struct bw_retention retention;
    uint64_t deadline_ms; /* of open, 0: 60 s */
};
/* Starts rank r of a launch in slot `slot` on node `node`. */
void cluster_start(struct cluster *c, unsigned slot, unsigned node, uint32_t r, const struct launch *l);
/* Stops the participant: nothing of it runs any more, until cluster_fini ends it. What it had in flight may still take
 * effect, as with a real store. */
void cluster_kill(struct cluster *c, unsigned slot);
/* Turns all loops until done() is true; moves the time when nothing is ready. false: `limit_ms` of virtual time have
 * passed, or nothing can happen any more. */
bool cluster_run(struct cluster *c, bool (*done)(struct cluster *c, void *user), void *user, uint64_t limit_ms);
/* Until the opens of slots [first, first + n) have ended. */
void cluster_open(struct cluster *c, unsigned first, unsigned n);
/* Until session `slot` is idle after give_up; frees it. */
void cluster_end(struct cluster *c, unsigned slot);

#endif
