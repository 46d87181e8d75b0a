/* SPDX-License-Identifier: Apache-2.0 */
/* Deleting what is dead in one tier: checkpoints, data without a checkpoint, layouts of past attempts, inventories of
 * launches that never registered. doc/flows/prune.md.
 *
 * It decides on the head that it reads itself, and deletes only what bwi_policy_fate calls DEAD, after a grace: the
 * entry that made it dead must be older than ctx->grace_ms (by the entries' own times; where that entry is gone from
 * the log, it is old enough). Data of a uuid outside the lineage is reported, never deleted unless drop_foreign. Order
 * for one checkpoint: summaries, then data, then the rest of its directory: a crash leaves something that the next
 * sweep finds and finishes. What cannot be deleted is passed over; the task ends with the first such error. An archive,
 * or a history whose newest entry is damaged, is refused (BW_E_FOREIGN, BW_E_CORRUPT). */
#ifndef BWI_CHECKPOINT_SWEEP_H
#define BWI_CHECKPOINT_SWEEP_H

#include "checkpoint/history_head.h"
#include "checkpoint/policy_history.h"
#include "checkpoint/verify.h"

/* Launches that had not registered when an earlier sweep of this process saw them. A store tells no times, so only who
 * stays can say that a launch has not come to anything for a day; who sweeps once takes only those that another launch
 * has beaten, as their inventories tell. */
struct bwi_launch_watch {
    struct bwi_watched {
        char launch[BWI_NAME_BUF];
        uint64_t since_ns; /* monotonic */
        bool seen;         /* by the sweep that runs */
    } * list;
    size_t count, cap;
};
void bwi_launch_watch_fini(struct bwi_launch_watch *w);

struct bwi_sweep {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    enum bwi_tier tier;        /* decided by the authority's head in both cases */
    const struct bwi_id *busy; /* saves in flight of this handle: never touched */
    size_t busy_count;
    bool dry_run, drop_foreign;
    struct bwi_launch_watch *watch; /* kept by the caller from one sweep to the next; NULL: none */
    struct bwi_findings *findings;  /* NULL: nobody wants them. One finding of severity 0 per thing that went or would
                                       go, 1 for foreign data */
    /* out */
    uint64_t checkpoints, objects, bytes; /* deleted (or would be); bytes and packs where a summary told them */
    /* inside */
    int state;
    struct bwi_sweep_work *w;
};
void bwi_sweep_start(struct bwi_sweep *s, struct bwi_loop *loop, struct bwi_task *parent);

/* Pure: since when (ms of the wall clock) `id` is dead, from the times of the log: the first entry after which its fate
 * is DEAD for good. entries: the log oldest first, all that is left of it. INT64_MIN: longer than the log goes back.
 * INT64_MAX: it is not dead. */
int64_t bwi_policy_dead_since(const struct bwi_entry *entries, size_t count, const struct bwi_id *id);

#endif
