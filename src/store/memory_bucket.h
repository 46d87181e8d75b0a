/* SPDX-License-Identifier: Apache-2.0 */
/* The memory store's own declarations: the bucket and what its files share. Functions that end in _locked are called
 * with the bucket held. */
#ifndef BWI_STORE_MEMORY_BUCKET_H
#define BWI_STORE_MEMORY_BUCKET_H

#include "os/thread.h"
#include "store/store_memory.h"
#include "store/store_private.h"

#define BWI_BUCKET_PLANS      32u /* failures that may be planned at once */
#define BWI_BUCKET_PART_BYTES 256

struct bwi_object {
    char *key;
    uint8_t *ptr;
    size_t len;
};

struct bwi_memory_upload {
    struct bwi_store_upload base;
    struct bwi_bucket *bucket;
    uint8_t *ptr;
    bool gone; /* its prefix was deleted meanwhile */
    struct bwi_memory_upload *next;
};

struct bwi_store_lock {
    char *prefix;
    struct bwi_store_lock *next;
};

/* A failure that waits for its operation. */
struct bwi_bucket_plan {
    enum bwi_store_verb verb;
    char part[BWI_BUCKET_PART_BYTES]; /* "" is in every key */
    int status;
    bool effect;
};

struct bwi_bucket {
    struct bwi_env *env;
    struct bwi_memory_model model;
    struct bwi_object **objects; /* sorted by key */
    size_t len, cap;
    uint64_t used_bytes;    /* of objects and uploads */
    uint64_t busy_until_ns; /* when the shared bandwidth is free again */
    struct bwi_memory_upload *uploads;
    struct bwi_store_lock *locks;
    struct bwi_bucket_plan plans[BWI_BUCKET_PLANS];
    size_t plan_count;
    unsigned attached; /* stores; guarded by the registry's lock when shared */
    bool shared;       /* opened by URL, maybe from several threads: guarded by `lock` */
    struct bwi_mutex lock;
    char name[132];
    struct bwi_bucket *next; /* the registry's */
};

static inline void bwi_bucket_hold(struct bwi_bucket *b) {
    if (b->shared) bwi_mutex_lock(&b->lock);
}
static inline void bwi_bucket_let_go(struct bwi_bucket *b) {
    if (b->shared) bwi_mutex_unlock(&b->lock);
}

/* memory_bucket.c */
/* The first object whose key is not below. */
size_t bwi_bucket_lower_bound(const struct bwi_bucket *b, const char *key);
struct bwi_object *bwi_bucket_find(const struct bwi_bucket *b, const char *key);
bool bwi_bucket_fits(const struct bwi_bucket *b, uint64_t more_bytes);
/* Puts an object in, over one of that key. Takes `ptr` over when it succeeds. The bytes count as used. */
bool bwi_bucket_set(struct bwi_bucket *b, const char *key, uint8_t *ptr, size_t len);
void bwi_bucket_remove_at(struct bwi_bucket *b, size_t i);
/* Takes an upload off the bucket and gives its bytes back. */
void bwi_bucket_drop_upload(struct bwi_memory_upload *u);
void bwi_bucket_unlock(struct bwi_bucket *b, struct bwi_store_lock *lock);

/* memory_ops.c: runs an operation's effect on the bucket. */
void bwi_memory_run_locked(struct bwi_bucket *b, struct bwi_store_op *op);
/* Takes back what an operation gave out, for one whose answer is lost. */
void bwi_memory_undo_locked(struct bwi_bucket *b, struct bwi_store_op *op);

/* memory_model.c */
struct bwi_memory_fate {
    int status; /* how it is made to fail; 0: it is not */
    bool effect;
};
struct bwi_memory_fate bwi_memory_fate_locked(struct bwi_bucket *b, const struct bwi_store_op *op);
uint64_t bwi_memory_due_locked(struct bwi_bucket *b, const struct bwi_store_op *op, uint64_t now_ns);
uint64_t bwi_memory_delay_locked(struct bwi_bucket *b); /* latency and jitter */

/* store_memory.c */
int bwi_memory_attach(struct bwi_bucket *b, const char *name, const struct bwi_store_options *o, struct bwi_store **ret,
                      struct bw_error *err);

/* memory_registry.c */
void bwi_registry_detach(struct bwi_bucket *b);

#endif
