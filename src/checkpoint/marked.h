/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at groups that a reader has marked as damaged, before anybody believes the mark. doc/flows/open.md,
 * resolve.md. */
#ifndef BWI_CHECKPOINT_MARKED_H
#define BWI_CHECKPOINT_MARKED_H

#include "checkpoint/verify.h"

struct bwi_marked_group {
    uint32_t group;
    /* out */
    bool bad[BWI_TIERS]; /* damage is confirmed there, and stays */
    bool unsure;         /* something in the authority could not be looked at: it may be sound */
};

/* Task: a few groups at a time are verified; what is damaged in the authority is put right from this node's copy, where
 * that is sound; and the marks of groups that are sound in the authority are removed, so that the next launch need not
 * look at them again, even if this one does not come to the end. A manifest that is damaged is somebody else's to
 * tell: then nothing is looked at. Fails with BW_E_TIMEOUT at the deadline, and with BW_E_CANCELLED.
 *
 * Of a checkpoint that is not committed nothing is mended, and the marks stay: they go with it, or are looked at once
 * it is committed. Whoever holds it looks at this node's copies, the others at the authority's. */
struct bwi_marked {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    struct bwi_id id;
    struct bwi_sha manifest;
    uint32_t pending;                /* groups of one that is not committed; 0: it is */
    struct bwi_marked_group *groups; /* borrowed */
    size_t count;
    bool held;        /* this node's local tier holds them: it is looked at too */
    bool stop_at_bad; /* groups after one that is damaged in the authority are of no interest */
    uint64_t deadline_ns;
    /* out */
    uint64_t mended;      /* objects, in the authority */
    struct bw_error lost; /* why the first one that was held here could not be mended; status 0: none */
    /* inside */
    int state;
    struct bwi_marked_work *w;
};
void bwi_marked_start(struct bwi_marked *m, struct bwi_loop *loop, struct bwi_task *parent);

#endif
