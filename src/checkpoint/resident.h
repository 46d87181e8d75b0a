/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of a save that stay in the arena after they were written to the local tier, so that the drain need not read
 * them back. They are a loan: whoever needs a buffer gets it from here, those first that the drain would come to last.
 * doc/flows/drain.md.
 *
 * Loop's thread only. Nothing here fails: what is not kept is read from the local tier. */
#ifndef BWI_CHECKPOINT_RESIDENT_H
#define BWI_CHECKPOINT_RESIDENT_H

#include "checkpoint/plan.h"
#include "io/arena.h"

struct bwi_resident {
    struct bwi_arena_lender lender;
    struct bwi_arena *arena;     /* NULL: nothing is kept */
    const struct bwi_plan *plan; /* outlives this */
    struct bwi_resident_buffer {
        uint8_t *ptr; /* NULL: not here */
        size_t bytes; /* of the buffer */
        bool in_use;
    } * buffers; /* by the number of the chunk */
    bool spoilt; /* memory that is not what was hashed: nothing is read from here any more */
    size_t last; /* no chunk from here on is here */
};

/* Begins to keep. Without memory for its books it keeps nothing. */
void bwi_resident_begin(struct bwi_resident *k, struct bwi_arena *arena, const struct bwi_plan *plan);
/* Gives back all there is; nothing may be in use. Idempotent, and fine for one that was never begun. */
void bwi_resident_end(struct bwi_resident *k);
/* A chunk that has been written: its buffer belongs to `k` from now on, unless somebody waits for one. false: it does
 * not, and is the caller's still. */
bool bwi_resident_put(struct bwi_resident *k, size_t chunk, uint8_t *ptr, size_t bytes);

/* The first chunk of a pack that is here and begins at `offset` of the file or behind it; SIZE_MAX: none. `k` may be
 * NULL. */
size_t bwi_resident_find(const struct bwi_resident *k, size_t pack, uint64_t offset);
/* Its bytes, which stay until it is dropped. */
const uint8_t *bwi_resident_use(struct bwi_resident *k, size_t chunk);
/* Whether one that is in use is still what was hashed: it may lie here for long, in the memory of somebody else's
 * program. Any thread. */
bool bwi_resident_is_sound(const struct bwi_resident *k, size_t chunk);
void bwi_resident_drop(struct bwi_resident *k, size_t chunk);

#endif
