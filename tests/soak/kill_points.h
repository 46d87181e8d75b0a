/* SPDX-License-Identifier: Apache-2.0 */
/* Named points: what a process was doing when it was killed. A point is the kind of the object that a system call was
 * about, whether it was the object itself, a temporary or a directory, on which tier, and which call; and a process can
 * be killed before or after it. Counts of all workers of a soak, in memory that they share. */
#ifndef BW_TEST_KILL_POINTS_H
#define BW_TEST_KILL_POINTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Who is killed. */
enum kill_role { KILL_RANK_0, KILL_RANK_1, KILL_PRUNE, KILL_DRAIN, KILL_ROLES };
const char *kill_role_name(enum kill_role role);

/* What an object is, by its name. */
enum kill_kind {
    KIND_OUTSIDE, /* of both tiers */
    KIND_STORE,   /* store.json, and the directory of the whole tier */
    KIND_UPPER,   /* directories that hold only directories */
    KIND_ENTRY,
    KIND_INVENTORY,
    KIND_REFUSAL,
    KIND_LAYOUT,
    KIND_CHECKPOINT, /* the directory of one */
    KIND_SUMMARY,
    KIND_MARK,
    KIND_DAMAGED,
    KIND_MANIFEST,
    KIND_INDEX,
    KIND_GROUP, /* the directory of a group's data */
    KIND_PACK,
    KIND_CONTENT,
    KIND_PLACEMENT,
    KIND_LOCK,
    KINDS
};

enum kill_class { CLASS_OBJECT, CLASS_TEMPORARY, CLASS_DIRECTORY, CLASSES };

enum kill_verb {
    VERB_CREATE,
    VERB_RESERVE,
    VERB_WRITE,
    VERB_SYNC,
    VERB_LINK,
    VERB_RENAME,
    VERB_UNLINK,
    VERB_RMDIR,
    VERB_MKDIR,
    VERB_LOCK,
    VERBS
};

#define KILL_POINTS (2u * KINDS * CLASSES * VERBS)

/* What a path below the scratch directory of a job is: "remote/runs/run/history/...". A path that is the directory of a
 * kind has that kind, and the class CLASS_DIRECTORY. Lengthens nothing that it does not know: KIND_OUTSIDE. */
struct kill_object {
    bool local;
    enum kill_kind kind;
    enum kill_class class;
};
struct kill_object kill_object_of(const char *path, bool directory);

unsigned kill_point(const struct kill_object *o, enum kill_verb verb);
enum kill_verb kill_point_verb(unsigned point);
enum kill_kind kill_point_kind(unsigned point);
/* "sync remote/entry temporary". */
void kill_point_name(unsigned point, char *ret, size_t bytes);

/* What a process of one role is killed at. */
struct kill_named {
    unsigned point;
    enum kill_role role;
};
/* One of the table of named points, by a random number. */
struct kill_named kill_named_at(uint64_t random);

struct kill_counts {
    atomic_uint seen[KILL_ROLES][KILL_POINTS];    /* by those who looked at every call of a run */
    atomic_uint hits[KILL_ROLES][KILL_POINTS][2]; /* killed before and after it */
    atomic_uint wholes[KILL_ROLES];               /* processes that came to their end before they were hit */
    atomic_ullong whole_calls[KILL_ROLES];        /* their calls */
    atomic_uint kills[KILL_ROLES], frozen, at_end;
    atomic_bool saving;
};

/* NULL: no memory. */
struct kill_counts *kill_counts_new(void);
/* A file of an earlier soak; nothing happens when there is none, or when it cannot be read. */
void kill_counts_load(struct kill_counts *c, const char *path);
/* Keeps them in a file; one process at a time. */
void kill_counts_save(struct kill_counts *c, const char *path);
/* A table of all named points and how often each was hit, those that never were marked; and what was hit besides. */
void kill_counts_print(const struct kill_counts *c, FILE *to);

#endif
