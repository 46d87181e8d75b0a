/* SPDX-License-Identifier: Apache-2.0 */
/* A whole small system in one thread: ranks of several launches, tools beside them, an authority and the nodes' disks
 * behind unruly stores, virtual time. Whoever takes part may be stopped at any of its calls, for a while or for ever.
 * What happens follows from one seed. */
#ifndef BW_SOAK_SYSTEM_H
#define BW_SOAK_SYSTEM_H

#include "checkpoint/commit_all.h"
#include "checkpoint/restore.h"
#include "checkpoint/session.h"
#include "checkpoint/sweep.h"
#include "oracle.h"
#include "unruly.h"
#include <stdio.h>

#define PARTS_MAX    24u
#define NODES_MAX    4u
#define LAUNCHES_MAX 8u
#define SAVES_MAX    4u
#define ARENA_POOL   PARTS_MAX

#define ROWS 12u
#define COLS 60u

/* What a job of any world saves at a step: one sharded tensor, one replicated one, a blob of each rank. */
struct state {
    uint32_t sharded[ROWS][COLS], same[COLS];
    char blob[24];
};
/* All bits follow from the try that made them. */
void state_fill(struct state *s, const struct bwi_id *id, uint32_t rank); /* the blob is of this rank */

struct system;
struct part;

/* Stores that are not the net's, and what their soak wants to hear. Without them all is unruly. */
struct system_hooks {
    struct bwi_io *(*open_io)(struct system *s, struct part *p);
    void (*open_tier)(struct system *s, struct part *p, enum bwi_tier tier);
    uint64_t (*next_ns)(const struct part *p); /* when its engine has something for it */
    struct bwi_uuid (*identity)(struct system *s, enum bwi_tier tier, unsigned node); /* of a store, all 0: none yet */
    void (*died)(struct system *s, struct part *p);
    void (*freed)(struct system *s, struct part *p);
    void (*opened)(struct system *s, struct part *p, const struct bwi_session *x);
    /* level: BW_LEVEL_NONE at the end of a save, which is committed where the status is 0 */
    void (*told)(struct system *s, struct part *p, const struct bwi_save *v, enum bw_level level, int status);
};

/* One who takes part: a rank or a tool. */
struct part {
    bool used, dead, gone; /* gone: it has ended and was freed */
    unsigned node, number;
    const char *what;
    uint64_t frozen_until; /* 0: it runs */
    struct bwi_io *io;     /* NULL: what is in memory needs none */
    struct bwi_loop *loop;
    struct bwi_arena *arena;
    struct bwi_context ctx;
    struct unruly_stop stop;
    uint64_t sleep_ns;                              /* what becomes of it at the stop: BWI_NEVER: it dies */
    bool (*turn)(struct system *s, struct part *p); /* looks at its own state; true: something happened */
    void (*end)(struct system *s, struct part *p);  /* lets go of what it has, after `turn` has set `gone` */
    uint64_t wake_ns;                               /* when turn wants to be called, if nothing happens before */
    struct trainer *trainer;
    struct tool *tool;
};

struct launch_plan {
    char job[16], launch[16], label[16];
    enum bwi_register_mode mode;
    uint64_t resume_step;
    uint32_t world;
    uint64_t steps; /* to save, from the one it resumes from */
    bool final;
};

struct system {
    struct bwi_env_virtual env;
    const struct system_hooks *hooks; /* NULL: memory, through the net */
    unsigned nodes;                   /* that ranks are on */
    struct unruly_net *net;
    struct oracle oracle;
    struct bwi_bucket *remote, *local[NODES_MAX], *lost[NODES_MAX];
    struct part parts[PARTS_MAX];
    struct launch_plan launches[LAUNCHES_MAX];
    unsigned launch_count;
    uint64_t rng;
    bool single_tier, quiet;
    bool retires; /* somebody retires checkpoints on demand */
    bool patient; /* nobody cancels a save, or leaves a step out */
    bool talk;    /* tell what happens */
    uint64_t quota, capacity;
    struct bw_retention retention;
    struct bwi_arena **arenas; /* a pool that outlives the run */
    unsigned arena_count;
    unsigned final_opened, final_committed, final_beaten; /* ranks; beaten: another job registered first */
    uint64_t committed, restored; /* facts about the run: saves told COMMITTED, checkpoints compared bit for bit */
};

uint64_t system_random(struct system *s, uint64_t below);
bool system_chance(struct system *s, unsigned percent);
void system_tell(const struct system *s, const struct part *p, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define violated(s, ...) oracle_violated(&(s)->oracle, __VA_ARGS__)

/* parts.c */
/* A loop, an arena, a context with stores. With a chance it is to be stopped at some call. */
struct part *part_new(struct system *s, unsigned node, const char *what);
void part_kill(struct system *s, struct part *p);
void part_free(struct system *s, struct part *p); /* its end() has been called */
/* Turns everybody who runs, once, in a random order. */
bool parts_turn(struct system *s);
uint64_t parts_next_ns(const struct system *s);

/* trainer.c */
struct part *trainer_new(struct system *s, const struct launch_plan *l, uint32_t rank);
const struct launch_plan *trainer_plan(const struct part *p); /* NULL: it is a tool */

/* tool.c */
enum tool_kind {
    TOOL_SWEEP_REMOTE,
    TOOL_SWEEP_LOCAL,
    TOOL_RETIRE,
    TOOL_READ,
    TOOL_DRAIN,
    TOOL_COMMIT,
    TOOLS,
    TOOL_VERIFY
};
struct part *tool_new(struct system *s, enum tool_kind kind, unsigned node, uint64_t grace_ms);

/* restored.c */
/* A task that reads a checkpoint back, all of it, and compares every bit. */
struct compare;
struct compare *compare_new(struct system *s, struct part *p, const struct bwi_restore_target *t);
bool compare_has_ended(struct system *s, struct compare *c, struct bw_error *ret); /* true: it is freed */

#endif
