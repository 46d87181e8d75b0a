/* SPDX-License-Identifier: Apache-2.0 */
/* Brings to their end all checkpoints of a run that lie in the authority and are neither committed nor dead, lowest
 * step first, beside whoever is still writing them. doc/flows/commit.md. */
#ifndef BWI_CHECKPOINT_COMMIT_ALL_H
#define BWI_CHECKPOINT_COMMIT_ALL_H

#include "checkpoint/commit.h"
#include "checkpoint/verify.h"

struct bwi_commit_all {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    uint64_t patience_ns;          /* of each decision */
    struct bwi_findings *findings; /* added to: one for each checkpoint. Severity 0: committed; 1: aborted, or groups
                                      are missing; 2: it could not be decided */
    /* inside */
    int state;
    struct bwi_commit_all_work *w;
};
/* The task fails only where the run's head or its checkpoints cannot be read. */
void bwi_commit_all_start(struct bwi_commit_all *a, struct bwi_loop *loop, struct bwi_task *parent);
void bwi_commit_all_fini(struct bwi_commit_all *a);

#endif
