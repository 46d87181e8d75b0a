/* SPDX-License-Identifier: Apache-2.0 */
/* Large anonymous memory, touched once. */
#ifndef BWI_OS_MEMORY_H
#define BWI_OS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

struct bwi_memory {
    void *ptr;
    size_t bytes;
    bool huge; /* the kernel was asked for huge pages and has them switched on */
};

/* Maps `bytes` (rounded up to 2 MiB), 2 MiB-aligned, asks for transparent huge pages, and keeps it out of core dumps. A
 * forked child does not have it: else each of a trainer's forks would make every page of it fault again, or copy all of
 * it at once where a ring has it registered. Does not touch it. 0 or a negative errno: -EINVAL for 0 bytes. */
int bwi_memory_map(size_t bytes, struct bwi_memory *ret);
/* Touches [offset, offset + bytes) so that later writes fault no more. Several threads may touch different parts. */
void bwi_memory_touch(struct bwi_memory *m, size_t offset, size_t bytes);
void bwi_memory_unmap(struct bwi_memory *m); /* idempotent */

#endif
