/* SPDX-License-Identifier: Apache-2.0 */
/* Putting damaged copies of one committed checkpoint right from the other tier. doc/flows/verify.md.
 *
 * It verifies the checkpoint on both tiers, then, for every group that is damaged on one and sound on the other: packs
 * through bwi_pack_copy with replace, the other objects (layout, content, placement, summary) through REPLACE with the
 * sound tier's bytes. A damaged manifest or index in the authority is built again from summaries and layouts (a pure
 * function of them) and replaced if its hash is the one that the history holds. Afterwards it verifies again what it
 * has written, and removes damaged/<group> of groups that are sound now. */
#ifndef BWI_CHECKPOINT_MEND_H
#define BWI_CHECKPOINT_MEND_H

#include "checkpoint/verify.h"

struct bwi_mend {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    struct bwi_id id;
    struct bwi_sha manifest;
    bool dry_run;                  /* only tells what is damaged and from where it could be put right */
    struct bwi_findings *findings; /* severity 2: damaged and not to be mended; 1: would be mended; 0: was mended */
    /* out */
    uint64_t mended, lost; /* objects */
    /* inside */
    int state;
    struct bwi_mend_work *w;
};
void bwi_mend_start(struct bwi_mend *m, struct bwi_loop *loop, struct bwi_task *parent);
void bwi_mend_fini(struct bwi_mend *m);

#endif
