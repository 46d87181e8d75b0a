/* SPDX-License-Identifier: Apache-2.0 */
/* A hash map from byte strings to numbers: finding duplicates and looking names up. Keys are borrowed and must
 * outlive the map. Zero-initialised is empty. No removal: the users build it, ask it, and drop it. */
#ifndef BWI_BASE_MAP_H
#define BWI_BASE_MAP_H

#include "base/span.h"

struct bwi_map_slot {
    struct bwi_span key; /* ptr NULL: free */
    uint64_t value;
    uint64_t hash;
};

struct bwi_map {
    struct bwi_map_slot *slots;
    size_t cap; /* 0 or a power of two */
    size_t len;
    uint64_t seed; /* keys come from files: a seed of its own keeps a hostile file from making them all collide */
};

void bwi_map_fini(struct bwi_map *m);
/* false: out of memory. *ret_old is the value that the key had and keeps, *ret_was tells whether it had one. Both may
 * be NULL. */
bool bwi_map_put(struct bwi_map *m, struct bwi_span key, uint64_t value, uint64_t *ret_old, bool *ret_was);
bool bwi_map_get(const struct bwi_map *m, struct bwi_span key, uint64_t *ret_value);

#endif
