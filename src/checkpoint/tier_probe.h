/* SPDX-License-Identifier: Apache-2.0 */
/* How many transfers a tier wants in flight, found out by writing to it for a moment, by the very path that saves take:
 * an upload that is never finished, written past the page cache in pieces of a save's size.
 *
 * The size of a transfer is no choice: it is the chunk of a save, an extent of the format, and what a device takes at
 * once the kernel cuts out of it. Nor is more depth on most disks: what is in flight anyway (64 MiB) keeps a disk busy
 * for as long as it takes to move that, which is longer than any answer of it below some 4 GB/s. So a few transfers
 * tell whether there is anything to choose; only on what is faster are depths compared, each twice and in mirrored
 * order, and the usual one stays unless another one is clearly better both times. A number that a busy disk makes up
 * changes nothing. */
#ifndef BWI_CHECKPOINT_TIER_PROBE_H
#define BWI_CHECKPOINT_TIER_PROBE_H

#include "checkpoint/context.h"

#define BWI_TIER_PROBE_TIME_NS (UINT64_C(150) * BWI_NS_PER_MS) /* nothing is begun after it */
#define BWI_TIER_PROBE_BYTES   (UINT64_C(656) << 20)           /* all that is written, at most */
#define BWI_TIER_PROBE_DEPTH   32u                             /* the most that is tried */
#define BWI_TIER_PROBE_PASSES  7u

struct bwi_tier_probe {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    enum bwi_tier tier;
    bool only_sweep; /* measures nothing: takes away what one that died has left */
    void *user;
    /* out, when it has ended; the task's error is only what was in the way, and no failure of anybody */
    unsigned depth;       /* to be used */
    uint64_t bytes_per_s; /* that the tier took at this depth, or at all; 0: nothing was measured */
    uint64_t bytes;       /* written */
    char why[96];         /* one line */
    /* inside */
    int state;
    struct bwi_call call, lock;
    struct bwi_call writes[BWI_TIER_PROBE_DEPTH];
    struct bwi_io_req fill;
    struct bwi_arena_wait buffer; /* all write the same bytes */
    struct bwi_store_upload *upload;
    struct bwi_store_lock *held;
    unsigned pass, begun, ended; /* writes of the pass */
    uint64_t start_ns, pass_ns;
    uint64_t rates[BWI_TIER_PROBE_PASSES];
};

/* Whether a tier is worth it: a file system of this node alone, past whose page cache there is a disk. */
bool bwi_tier_probe_may(const struct bwi_store *s);
/* With task.cancel set (bwi_task_cancel) it begins nothing more, and what it has found counts for nothing. Whatever
 * fails, nothing is left behind; of a process that dies, a temporary below probe/, which the next probe takes.
 */
void bwi_tier_probe_start(struct bwi_tier_probe *p, struct bwi_loop *loop, struct bwi_task *parent);

#endif
