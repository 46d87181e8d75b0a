/* SPDX-License-Identifier: Apache-2.0 */
/* A store that is to be damaged: a job of several ranks, attempts and eras on two tiers, an archive of it, and another
 * run beside it. Every object is kept as it was, so that each trial can be undone. */
#ifndef BW_TEST_DAMAGE_KIT_H
#define BW_TEST_DAMAGE_KIT_H

#include "job.h"

#define STRANGER "stranger" /* the run beside it */

enum tier { LOCAL, REMOTE, ARCHIVE, TIERS };
const char *tier_text(enum tier t);    /* as the test calls it */
const char *tier_of_list(enum tier t); /* as findings do: to its own catalog an archive is the remote tier */

enum class { STORE_ID, ENTRY, INVENTORY, LAYOUT, SUMMARY, MANIFEST, INDEX, PACK, CONTENT, PLACEMENT, CLASSES };
const char *class_text(enum class c);

struct object {
    enum tier tier;
    enum class class;
    bool strange; /* of the other run */
    char key[400];
    char id[BW_ID_BYTES]; /* checkpoint; of an object of an attempt, the first one made in it; or "" */
    unsigned char *bytes;
    size_t n;
};

struct checkpoint {
    char id[BW_ID_BYTES];
    uint64_t seed; /* what its tensors are filled with */
};

#define CHECKPOINTS_MAX 8u

/* All that lies in the tiers. */
struct store {
    struct place p;
    char archive[700];
    struct object *list; /* by tier, then by key */
    size_t count, cap;
    struct checkpoint checkpoints[CHECKPOINTS_MAX];
    unsigned checkpoint_count;
};

/* Steps 1 and 2; back to 1, so that the first 2 is shelved; 2 once more; a new era; 3. Two ranks on one node. */
void store_make(struct store *s);
void store_drop(struct store *s);
/* Undoes whatever has happened: what differs is written, what is missing is made, what is too many is removed. */
void store_undo(const struct store *s);
/* Calls what for each object of a tier that is not as it was made; how many. Objects that are too many count too. */
size_t store_changed(const struct store *s, enum tier t);

const char *object_path(const struct store *s, const struct object *o);
void object_write(const struct store *s, const struct object *o, const void *bytes, size_t n);
void object_remove(const struct store *s, const struct object *o);

/* ---- restoring ---- */

enum restored { RIGHT, REFUSED, WRONG };

/* Reads all of a checkpoint, tensors, blobs and metadata; with_local: from both tiers. */
enum restored restore_all(const struct store *s, enum tier of, bool with_local, const struct checkpoint *c,
                          struct bw_error *err);
/* The same by an object that is open already. */
enum restored restore_with(struct bw_restore *r, uint64_t seed, struct bw_error *err);

#endif
