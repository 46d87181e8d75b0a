/* SPDX-License-Identifier: Apache-2.0 */
/* What every store promises, as cases that run unchanged against each of them. */
#ifndef BW_STORE_CONTRACT_H
#define BW_STORE_CONTRACT_H

#include "rig.h"
#include "store/store_memory.h"

struct contract_kind {
    const char *name;
    const char *dir; /* POSIX: below which directory; "": the tests' own. NULL: memory, or `tree` */
    bool tree;       /* another directory tree */
    const char *url; /* memory by URL; NULL: a bucket on virtual time with this model */
    struct bwi_memory_model model;
};

struct contract {
    struct rig rig;
    const struct contract_kind *kind;
    struct bwi_bucket *bucket;
    char url[600], root[512];
    struct bwi_store *a, *b; /* two stores on the same objects */
};

struct contract_case {
    const char *name;
    void (*run)(struct contract *c);
};

extern const struct contract_case contract_cases[];
extern const size_t contract_case_count;

/* Another store on the same objects; NULL where this kind has no read-only one. */
struct bwi_store *contract_open(struct contract *c, bool read_only);

#endif
