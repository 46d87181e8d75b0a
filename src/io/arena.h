/* SPDX-License-Identifier: Apache-2.0 */
/* The arena: one budget of host memory, mapped and touched once at open and reused for ever. Everything that is
 * captured, written, drained or restored in bulk goes through buffers from here, so memory does not grow with the
 * state.
 *
 * Used from the loop's thread only; no lock. Buffers are multiples of 4 KiB, 4 KiB-aligned, first fit by address.
 *
 * Why this cannot deadlock: whoever waits for a buffer holds none (a request acquires all it needs in one call), and
 * whoever holds one needs only I/O to finish in order to release it, or lends it and gives it back when it is asked.
 * Waiters are served first come, first served; a
 * small one does not overtake a large one, so a large one cannot starve. */
#ifndef BWI_IO_ARENA_H
#define BWI_IO_ARENA_H

#include "io/engine.h"
#include "os/memory.h"
#include <breakwater/error.h>
#include <stdint.h>

struct bwi_arena;

/* A request for a buffer, embedded in whoever waits. */
struct bwi_arena_wait {
    size_t bytes; /* in: what is needed */
    /* Called from acquire at once, or later from release or from another one's cancel. */
    void (*granted)(struct bwi_arena_wait *w);
    void *user;
    uint8_t *ptr;                /* out: the buffer, when granted */
    struct bwi_arena_wait *next; /* the arena's while waiting */
    int queued;
};

/* Somebody who holds buffers only because nobody else needs them: each call gives one back, with bwi_arena_release;
 * false: there is none to give. Embedded in whoever lends. */
struct bwi_arena_lender {
    bool (*lend)(struct bwi_arena_lender *l);
    uint64_t bytes;                /* that it could give back now, kept by whoever lends */
    struct bwi_arena_lender *next; /* the arena's */
};

#define BWI_ARENA_ALIGN 4096u
/* Two of the largest extents (16 MiB) and room for packing around them. */
#define BWI_ARENA_MIN_BYTES (UINT64_C(64) << 20)

/* The budget is rounded down to 4 KiB. `touch_threads` threads touch the memory before the call returns; 0 leaves it
 * untouched (readers, tools). */
int bwi_arena_open(uint64_t budget_bytes, unsigned touch_threads, struct bwi_arena **ret, struct bw_error *err);
void bwi_arena_close(struct bwi_arena *a);
/* bytes == 0 takes one page, so that a buffer always has an address; bytes above the budget are a broken invariant,
 * checked by assert. */
void bwi_arena_acquire(struct bwi_arena *a, struct bwi_arena_wait *w);
/* Withdraws a waiting request; does nothing when it is not queued. */
void bwi_arena_cancel(struct bwi_arena *a, struct bwi_arena_wait *w);
void bwi_arena_release(struct bwi_arena *a, uint8_t *ptr, size_t bytes);
/* Lenders are asked when a request cannot be granted, the last one first; and not from within lend. */
void bwi_arena_add_lender(struct bwi_arena *a, struct bwi_arena_lender *l);
void bwi_arena_remove_lender(struct bwi_arena *a, struct bwi_arena_lender *l);
bool bwi_arena_is_wanted(const struct bwi_arena *a); /* somebody waits for a buffer */
/* The largest buffer that would be granted now. Lenders are asked as long as it is below `wanted`, if all that they
 * have could be enough. */
uint64_t bwi_arena_largest_free(struct bwi_arena *a, uint64_t wanted);
/* Tells the engine of the memory: bwi_io_register. It touches all of it, so only where it was touched anyway. */
void bwi_arena_register(const struct bwi_arena *a, struct bwi_io *io);
uint64_t bwi_arena_budget(const struct bwi_arena *a);
uint64_t bwi_arena_used(const struct bwi_arena *a);
uint64_t bwi_arena_peak(const struct bwi_arena *a);

#endif
