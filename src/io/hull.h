/* SPDX-License-Identifier: Apache-2.0 */
/* What of the memory that a save needs can be write-protected, and in how few pieces. Protecting costs per piece and
 * nearly nothing per byte, so the tensors' memory is covered by *hulls*: ranges of whole units (2 MiB, a huge page),
 * the gaps between tensors included. What a hull does not cover is an *edge*, to be copied.
 *
 * Hulls are rounded in, never out: so no memory before the first and behind the last tensor is ever protected, a
 * thread's stack for instance. A gap is bridged only within one mapping, and where it is neither large nor larger than
 * what it lies between. Pure but for the question after mappings. */
#ifndef BWI_IO_HULL_H
#define BWI_IO_HULL_H

#include "os/protect.h"
#include <breakwater/error.h>

#define BWI_UNIT ((size_t)2 << 20)

/* Addresses: [start, end). */
struct bwi_range {
    uint64_t start, end;
};

struct bwi_hulls {
    struct bwi_range *runs; /* all memory that is needed: by address, apart from each other */
    size_t run_count, run_cap;
    struct bwi_range *hulls; /* by address */
    size_t hull_count, hull_cap;
    struct bwi_range *edges; /* parts of runs, by address */
    size_t edge_count, edge_cap;
    uint64_t hull_bytes, edge_bytes;
    uint64_t inside_bytes; /* of runs, in hulls */
};

/* Finds the mapping of an address, or the next one: 0, or a negative errno. */
typedef int (*bwi_find_mapping)(void *user, uint64_t address, struct bwi_mapping *ret);

/* `ranges` in any order, overlapping or not; what lies in no plain mapping, or in none at all, is an edge. */
int bwi_hulls_make(const struct bwi_range *ranges, size_t count, bwi_find_mapping find, void *user,
                   struct bwi_hulls *ret, struct bw_error *err);
void bwi_hulls_fini(struct bwi_hulls *h);

/* The element of a sorted list that holds the address; SIZE_MAX: none does. */
size_t bwi_range_find(const struct bwi_range *list, size_t count, uint64_t address);

#endif
