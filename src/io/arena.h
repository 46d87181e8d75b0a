/* SPDX-License-Identifier: Apache-2.0 */
/* The arena: one budget of host memory, mapped and touched once at open and reused for ever. Everything that is
 * captured, written, drained or restored in bulk goes through buffers from here, so memory does not grow with the
 * state.
 *
 * Used from the loop's thread only; no lock. Buffers are multiples of 4 KiB, 4 KiB-aligned, first fit by address.
 *
 * Why this cannot deadlock: whoever waits for a buffer holds none (a request acquires all it needs in one call), and
 * whoever holds one needs only I/O to finish in order to release it. Waiters are served first come, first served; a
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
/* Tells the engine of the memory: bwi_io_register. It touches all of it, so only where it was touched anyway. */
void bwi_arena_register(const struct bwi_arena *a, struct bwi_io *io);
uint64_t bwi_arena_budget(const struct bwi_arena *a);
uint64_t bwi_arena_used(const struct bwi_arena *a);
uint64_t bwi_arena_largest_free(const struct bwi_arena *a); /* the largest buffer that would be granted now */
uint64_t bwi_arena_peak(const struct bwi_arena *a);

#endif
