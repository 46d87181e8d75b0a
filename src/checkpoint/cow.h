/* SPDX-License-Identifier: Apache-2.0 */
/* Capturing by write-protection: a task that looks at a description's memory, copies what cannot be protected into a
 * part of the arena, and protects the rest. Once it has ended with `frozen` set, the caller may write to all of it, and
 * bwi_plan_fill takes the bytes as they were. doc/flows/capture.md.
 *
 * Where the memory, the kernel or the arena do not allow it, or where it is not worth it, `frozen` stays false and
 * `why_not` says why; nothing has happened then. It never ends with an error. */
#ifndef BWI_CHECKPOINT_COW_H
#define BWI_CHECKPOINT_COW_H

#include "checkpoint/context.h"
#include "checkpoint/plan.h"
#include "io/snapshot.h"

#define BWI_COW_PARTS 16u

struct bwi_cow_part {
    struct bwi_cow *owner;
    unsigned number;
    struct bwi_io_req req;
};

struct bwi_cow {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    const struct bwi_description *description; /* `mine` is set in it */
    bool must_copy; /* another save is to be captured first: what were frozen now would stay so until then */
    /* out */
    bool frozen; /* until bwi_cow_end */
    bool ran;    /* it was */
    bool lost;   /* after bwi_cow_end: it was given up, and what was filled is worth nothing */
    char why_not[96];
    uint64_t copied_bytes;           /* at once, since they could not be protected */
    uint64_t protect_ns;             /* how long protecting took */
    struct bwi_snapshot_stats stats; /* after bwi_cow_end */
    /* inside */
    struct bwi_snapshots *snapshots;
    struct bwi_arena_wait area;
    struct bwi_range *ranges;
    size_t range_count;
    uint8_t **staged;      /* per tensor, then per blob: where it was copied; NULL: it was not */
    uint64_t staged_bytes; /* of them */
    bool tied_to_device;   /* of tensors that begin at one address one is a device\'s, another is not */
    unsigned parts;
    struct bwi_cow_part part[BWI_COW_PARTS];
};
void bwi_cow_start(struct bwi_cow *c, struct bwi_task *parent);
/* Bytes [offset, offset + bytes) of one item of the plan of that description, as they were, and their hash. Any thread.
 */
void bwi_cow_copy(const struct bwi_cow *c, const struct bwi_item_source *item, uint64_t offset, uint32_t bytes,
                  uint8_t *dst, struct bwi_xxh *ret_hash);
/* Whether a writer waits now for what has not been copied. */
bool bwi_cow_is_wanted(const struct bwi_cow *c);
/* Whether a writer has waited for so long that all was opened. */
bool bwi_cow_is_lost(const struct bwi_cow *c);
/* Opens everything and lets go of the arena; nothing may be filling. Idempotent. */
void bwi_cow_end(struct bwi_cow *c);

#endif
