/* SPDX-License-Identifier: Apache-2.0 */
/* Many small things of one life, one behind the other in memory: taken in order, given back from the last one backwards
 * or all at once. What was taken never moves. Zero-initialised is empty. */
#ifndef BWI_BASE_PILE_H
#define BWI_BASE_PILE_H

#include <stddef.h>

struct bwi_pile_block;
struct bwi_pile {
    struct bwi_pile_block *first;
    struct bwi_pile_block *now; /* that things are taken from; those behind it are empty */
};

void bwi_pile_fini(struct bwi_pile *p);
/* Aligned to 8 bytes, not zeroed. NULL: out of memory, nothing changed. */
void *bwi_pile_take(struct bwi_pile *p, size_t bytes);
/* Gives back a thing and all that was taken after it. The memory is kept for what is taken next. */
void bwi_pile_rewind(struct bwi_pile *p, const void *to);

#endif
