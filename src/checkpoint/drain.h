/* SPDX-License-Identifier: Apache-2.0 */
/* Copying one group of one checkpoint from the local tier to the authority: idempotent, resumable, paced.
 * doc/flows/drain.md. */
#ifndef BWI_CHECKPOINT_DRAIN_H
#define BWI_CHECKPOINT_DRAIN_H

#include "checkpoint/publish.h"
#include "checkpoint/source.h"
#include "checkpoint/transfer.h"

struct bwi_drain {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    struct bwi_id id;
    uint32_t group;
    bool fan_out;
    bool layout_known; /* this group's layout of this attempt is known to be in the authority: not sent again */
    struct bwi_resident
        *resident;         /* what of its packs is in memory still; NULL: nothing. Stays valid until the task ends */
    struct bwi_pace *pace; /* shared by the drains of a handle; NULL: none */
    /* out */
    bool was_complete;       /* it was in the authority already */
    uint64_t objects, bytes; /* created and copied */
    uint64_t memory_bytes;   /* of them, those that came from memory */
    /* inside */
    int state;
    bool local_gone;         /* no summary on the local tier: only the authority can have it */
    bool far_there, skipped; /* the authority has a summary; it had some of the packs */
    struct bw_error
        unsynced; /* why the authority's copy is not known to be durable; status 0: nobody asked, or it is */
    struct bwi_call call, lock;
    struct bwi_summary far;
    struct bwi_group_meta meta;
    struct bwi_meta_read read;
    struct bwi_pack_copy copy;
    struct bwi_publish publish;
    uint32_t pack;
    struct bwi_backoff backoff;
    uint64_t wake_ns;          /* waiting for another drain until then; 0: not waiting */
    uint64_t patient_until_ns; /* from then on without the lock; 0: nobody else was met */
    bool impatient;
    struct bwi_store_lock *held;
};
/* Ends with BW_E_NOTFOUND when the group is not complete locally, with BW_E_CORRUPT when the local copy is damaged (and
 * the authority has none), else with the store's error; a retry is the caller's. Another process that drains the same
 * group is waited for, half a minute at most: it may be stopped. */
void bwi_drain_start(struct bwi_drain *d, struct bwi_loop *loop, struct bwi_task *parent);

#endif
