/* SPDX-License-Identifier: Apache-2.0 */
/* What every coordinator of one run needs: its stores, its arena, its identity. And calls: store operations on behalf
 * of a task. */
#ifndef BWI_CHECKPOINT_CONTEXT_H
#define BWI_CHECKPOINT_CONTEXT_H

#include "format/history.h"
#include "format/id.h"
#include "io/arena.h"
#include "io/loop.h"
#include "io/snapshot.h"
#include "store/store.h"

enum bwi_tier { BWI_TIER_LOCAL = 0, BWI_TIER_REMOTE = 1, BWI_TIERS = 2 };
const char *bwi_tier_name(enum bwi_tier t); /* "local", "remote" */

#define BWI_IO_DEPTH_USUAL 16u /* transfers in flight: 64 MiB, enough to keep a disk busy */
#define BWI_IO_DEPTH_MAX   64u

struct bwi_context {
    char run[BWI_NAME_BUF];
    struct bwi_loop *loop;
    struct bwi_env *env;
    struct bwi_arena *arena;         /* NULL where nothing moves bulk data */
    struct bwi_snapshots *snapshots; /* NULL: saves copy, because: */
    char snapshots_why_not[96];
    struct bwi_store *tier[BWI_TIERS];   /* tier[LOCAL] may be NULL. tier[REMOTE] is the authority */
    struct bwi_uuid store_id[BWI_TIERS]; /* of their store.json */
    unsigned io_depth[BWI_TIERS];        /* of what is written to a tier; 0: the usual one */
    uint64_t writer;                     /* of this handle: random */
    char host[64];
    uint64_t poll_min_ns, poll_max_ns; /* of waiting for others: first and last period */
    uint64_t spread_ns;                /* ranks that begin at one moment begin within so long; 0: at once */
    uint64_t grace_ms;                 /* of a sweep */
    struct bwi_progress *progress;     /* NULL: nobody asks */
    struct bwi_sha durable_head;       /* of the history: bytes of an entry that this handle knows to be on disk */
    struct bwi_decide *deciding; /* the decision in flight, and those that wait for their turn (checkpoint/decide.h) */
};

/* Defaults for everything but run, loop, arena and tiers: env of the loop, a random writer, the host's name. */
void bwi_context_init(struct bwi_context *c, struct bwi_loop *loop);

/* The pauses of one rank of many: rank 0, for which all others wait, looks often; the others together ask their store
 * for no more than about two thousand looks a second, from the first second on. */
void bwi_context_pace(struct bwi_context *c, uint32_t rank, uint32_t world);

static inline unsigned bwi_context_io_depth(const struct bwi_context *c, enum bwi_tier t) {
    return c->io_depth[t] > 0 ? c->io_depth[t] : BWI_IO_DEPTH_USUAL;
}

/* Written by the loop's thread, read by others. */
struct bwi_progress {
    _Atomic uint64_t done_bytes, total_bytes, done_items, total_items;
};
void bwi_progress_add(const struct bwi_context *c, uint64_t done_bytes); /* does nothing when nobody asks */

/* A store operation of a task. While it is in flight, `busy` is true and task->pending counts it; its completion wakes
 * the task. The task looks at op.error. One call object is reused for one operation after the other. */
struct bwi_call {
    struct bwi_store_op op;
    struct bwi_task *task;
    struct bwi_store *store;
    unsigned resent; /* creates whose answer was lost are sent again a few times */
    bool busy;
    struct bwi_key key; /* op.key points here: keys and `after` are copied, data and buffers are borrowed until done */
    char after[256];    /* op.after points here */
};
/* Prepares an operation: zeroes all of it, sets verb and key (copied). Frees what the last one had returned. */
void bwi_call_prepare(struct bwi_call *c, enum bwi_store_verb verb, const char *key);
void bwi_call_submit(struct bwi_call *c, struct bwi_task *t, struct bwi_store *s);
void bwi_call_fini(struct bwi_call *c); /* frees results; not while busy */

/* The most common ones in one line. */
void bwi_call_get(struct bwi_call *c, struct bwi_task *t, struct bwi_store *s, const char *key, uint64_t limit_bytes);
void bwi_call_create(struct bwi_call *c, struct bwi_task *t, struct bwi_store *s, const char *key,
                     struct bwi_span data);
void bwi_call_list(struct bwi_call *c, struct bwi_task *t, struct bwi_store *s, const char *prefix, const char *after);

/* Waiting for others without a storm: a period that begins at poll_min, grows by half each time up to poll_max, times a
 * random phase in [0.5, 1.5). */
struct bwi_backoff {
    uint64_t period_ns;
};
void bwi_backoff_reset(struct bwi_backoff *b, const struct bwi_context *c);
uint64_t bwi_backoff_next(struct bwi_backoff *b, const struct bwi_context *c,
                          uint64_t now_ns); /* the time to try again */

#endif
