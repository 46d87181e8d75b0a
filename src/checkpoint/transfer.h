/* SPDX-License-Identifier: Apache-2.0 */
/* The two ways in which a pack comes into being: written from memory, and copied from another tier. Both are tasks.
 *
 * Order in both: BEGIN, all WRITEs (several in flight, bounded by the arena), FINISH. If anything fails the upload is
 * aborted, nothing gets a name, and the task ends with the first error; it never ends while a buffer or an operation of
 * its is in flight. */
#ifndef BWI_CHECKPOINT_TRANSFER_H
#define BWI_CHECKPOINT_TRANSFER_H

#include "checkpoint/context.h"
#include "checkpoint/cow.h"
#include "checkpoint/plan.h"
#include "checkpoint/resident.h"
#include "io/pace.h"

/* What stays free in one piece while the packs are held back. What is captured then stays in memory until there is
 * room, which others make by draining; they need a window, and what they hold they give back. */
#define BWI_HOLD_LEAVES_BYTES (UINT64_C(32) << 20)

/* Writes all packs of a plan to one tier: captures chunk by chunk into arena buffers (BWI_IO_CALL on the engine's
 * workers; inline where the loop has no engine), hashes, writes. The header of a pack is written first. `captured`
 * becomes true, and `parent` is woken, when the last chunk has been copied: from then on the description's memory is
 * not read any more. Packs are finished one after the other, after all their writes. */
struct bwi_pack_write {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    enum bwi_tier tier;
    struct bwi_plan *plan;
    struct bwi_id id;
    uint32_t group;
    bool fan_out;
    struct bwi_cow *cow;           /* the memory is write-protected; opened when it is captured. NULL: it is not */
    struct bwi_resident *resident; /* begun: takes what has been written; NULL: nothing is kept */
    bool hold; /* no pack is begun while this is set: only the memory is captured, as far as the arena goes.
                  Whoever clears it wakes the task */
    /* out */
    bool captured;             /* also true when the task ends with an error: nothing reads the memory any more */
    uint64_t captured_ns;      /* when (monotonic) */
    uint64_t arena_wait_ns;    /* time in which the next chunk waited for a buffer */
    uint64_t objects;          /* packs that exist now */
    uint64_t direct_bytes;     /* written past the page cache */
    uint64_t cached_bytes;     /* written through it, although whole blocks */
    uint64_t recycled_bytes;   /* of the packs, those that lie where retired ones lay */
    bool gone;                 /* with an error: what was written of a pack was deleted meanwhile */
    struct bwi_xxh *headers;   /* per pack: XXH3-128 of its header; owned by the task's owner: bwi_pack_write_fini */
    struct bwi_pack_writer *w; /* inside */
};
/* `done` may be NULL; it is the task's `ended`. The struct stays valid until then. If task.cancel is set it stops at
 * the next chunk with BW_E_CANCELLED. */
int bwi_pack_write_start(struct bwi_pack_write *w, struct bwi_task *parent, struct bw_error *err);
void bwi_pack_write_fini(struct bwi_pack_write *w); /* not while running; idempotent */

/* Copies one pack byte for byte under its own key from a tier to another one (drain, repair, archives). Verifies before
 * FINISH: the header's hash, the stored hash of every extent, and that every byte that belongs to no extent is zero.
 * Reads ahead a window of buffers, hashes in order. Paced where `pace` is given. A damaged source is BW_E_CORRUPT
 * naming pack and extent. What is in memory still (a pack that was written a moment ago) is not read; where it is
 * not what was hashed any more, the copy fails with BW_E_IO, and the next one reads it. If the target has the object
 * already with the right size, nothing is copied and `skipped` says so (a drain that was interrupted goes on where it
 * was). */
struct bwi_pack_copy {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    struct bwi_store *from, *to;
    const struct bwi_placement *placement;
    uint32_t pack;                 /* number in the placement */
    struct bwi_pace *pace;         /* NULL: none */
    struct bwi_resident *resident; /* chunks of this pack that are in memory; NULL: none */
    unsigned depth;                /* pieces under way at most; 0: the usual number */
    bool verify_only;              /* reads and verifies, writes nothing (verify) */
    bool replace; /* the target's copy is damaged: put the right bytes over it (through REPLACE semantics: written as an
                     upload under a new temporary and moved over the name) */
    /* out */
    bool skipped;
    uint64_t bytes;        /* copied or verified */
    uint64_t memory_bytes; /* of them, those that were kept in memory */
    /* verify_only: every damaged extent, not only the first, is reported here (numbers in the placement), up to bad_cap
     */
    uint64_t *bad;
    size_t bad_count, bad_cap;
    struct bwi_pack_copier *c; /* inside */
};
int bwi_pack_copy_start(struct bwi_pack_copy *c, struct bwi_task *parent, struct bw_error *err);
void bwi_pack_copy_fini(struct bwi_pack_copy *c);

#endif
