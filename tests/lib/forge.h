/* SPDX-License-Identifier: Apache-2.0 */
/* Forged stores: the objects of a sound store, changed at will, with all hashes, seals, lengths and names made right
 * again. So what refuses such a store is not a checksum but the check of what the object means.
 *
 *     struct forge f = {0};
 *     forge_add(&f, key, bytes, n);                          (all objects of a store)
 *     struct forge_object *o = forge_find(&f, "/content");   (the first one whose key has this in it)
 *     forge_put(o, 52, &(uint32_t){7}, 4);
 *     forge_mend(&f);
 *
 * What a change has made of an object need not be well-formed: then only as much is made right as can be. */
#ifndef BW_TEST_FORGE_H
#define BW_TEST_FORGE_H

#include "hash/hash.h"
#include <stdint.h>

struct forge_object {
    char key[512];
    uint8_t *bytes;
    size_t len, cap;
    struct bwi_sha sha; /* under which others name it */
    bool gone;
};

struct forge {
    struct forge_object *objects;
    size_t count, cap;
};

/* Copies the object. Its bytes are sound, or at least what others name. */
struct forge_object *forge_add(struct forge *f, const char *key, const void *bytes, size_t n);
void forge_fini(struct forge *f);
/* NULL: there is none. */
struct forge_object *forge_find(const struct forge *f, const char *part);

/* Changes. Offsets are cut to what is there. */
void forge_put(struct forge_object *o, size_t at, const void *bytes, size_t n);                 /* over what is there */
void forge_splice(struct forge_object *o, size_t at, size_t gone, const void *bytes, size_t n); /* instead of it */
/* The first `from` of the object becomes `to`; false: it has none. */
bool forge_replace(struct forge_object *o, const char *from, const char *to);

/* Makes right, in the order in which objects name each other: hashes of extents and headers of packs, content,
 * placement, summaries, blocks and root of an index, manifest, history. Objects of one call are one tier of one store.
 */
void forge_mend(struct forge *f);

#endif
