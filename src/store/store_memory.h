/* SPDX-License-Identifier: Apache-2.0 */
/* A store in memory with modelled latency, bandwidth and failures, for tests and the simulator. A bucket holds the
 * objects; any number of stores, one per participant and loop, are attached to it. Not thread-safe across loops: all
 * participants of one bucket run on one thread, except buckets opened by URL (memory:NAME), which are locked and live
 * as long as some store is attached.
 *
 * An operation has its effect when it completes, at the time that the model gives it, all at once; whether it is made
 * to fail is decided when it is submitted. One whose answer is lost has its effect then too, and answers BW_E_UNKNOWN
 * one further delay later, so that others may see the effect before. RELEASE, ABORT, UNLOCK and what is refused at once
 * cost no time and are never made to fail. */
#ifndef BWI_STORE_STORE_MEMORY_H
#define BWI_STORE_STORE_MEMORY_H

#include "store/store.h"

struct bwi_memory_model {
    uint64_t latency_ns;     /* of each operation */
    uint64_t jitter_ns;      /* uniformly added, from env->random */
    uint64_t bytes_per_s;    /* of the bucket, shared by all in order of submission; 0 = unlimited */
    uint64_t capacity_bytes; /* BW_E_NOSPACE above it; 0 = unlimited */
    uint64_t fail_every; /* on average one of so many operations fails with BW_E_IO before having an effect; 0 = none */
    uint64_t lose_answer_every; /* one of so many CREATE, FINISH, REPLACE, DELETE, DELETE_PREFIX has its effect but
                                   answers BW_E_UNKNOWN; 0 = none */
};

struct bwi_bucket;
int bwi_bucket_new(struct bwi_env *env, struct bwi_bucket **ret); /* 0 or BW_E_NOMEM; env outlives it */
void bwi_bucket_free(struct bwi_bucket *b);
struct bwi_memory_model *bwi_bucket_model(struct bwi_bucket *b); /* may be changed at any time */

/* A store on the bucket whose completions are delivered through `loop` (as a source). name: shown as memory:NAME. */
int bwi_store_memory_open(struct bwi_bucket *b, struct bwi_loop *loop, const char *name, struct bwi_store **ret,
                          struct bw_error *err);

/* Direct access for tests: damage, look, count. */
size_t bwi_bucket_objects(const struct bwi_bucket *b);
bool bwi_bucket_get(const struct bwi_bucket *b, const char *key, struct bwi_span *ret);
bool bwi_bucket_put(struct bwi_bucket *b, const char *key, struct bwi_span data); /* over whatever is there */
bool bwi_bucket_remove(struct bwi_bucket *b, const char *key);
const char *bwi_bucket_key(const struct bwi_bucket *b, size_t i); /* i-th in sorted order */

/* The next operation with this verb and a key that contains `part` (NULL: any) fails so, once. effect: it has its
 * effect all the same (nothing is given out, though: no upload, lock, body). At most 32 may be planned at a time. */
void bwi_bucket_fail_next(struct bwi_bucket *b, enum bwi_store_verb verb, const char *part, int status, bool effect);

#endif
