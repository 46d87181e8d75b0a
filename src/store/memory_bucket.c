/* SPDX-License-Identifier: Apache-2.0 */
/* The bucket of a memory store: objects in a sorted array, uploads in the making, locks. */
#include "store/memory_bucket.h"
#include "base/vec.h"
#include <assert.h>
#include <string.h>

int bwi_bucket_new(struct bwi_env *env, struct bwi_bucket **ret) {
    struct bwi_bucket *b = bwi_calloc(1, sizeof *b);
    if (!b) return BW_E_NOMEM;
    if (bwi_mutex_init(&b->lock) < 0) {
        bwi_free(b);
        return BW_E_NOMEM;
    }
    b->env = env;
    *ret = b;
    return 0;
}

static void object_free(struct bwi_object *o) {
    if (!o) return;
    bwi_free(o->key);
    bwi_free(o->ptr);
    bwi_free(o);
}

void bwi_bucket_free(struct bwi_bucket *b) {
    if (!b) return;
    assert(b->attached == 0);
    for (size_t i = 0; i < b->len; i++) object_free(b->objects[i]);
    while (b->uploads) bwi_bucket_drop_upload(b->uploads);
    while (b->locks) bwi_bucket_unlock(b, b->locks);
    bwi_free(b->objects);
    bwi_mutex_fini(&b->lock);
    bwi_free(b);
}

struct bwi_memory_model *bwi_bucket_model(struct bwi_bucket *b) {
    return &b->model;
}

size_t bwi_bucket_lower_bound(const struct bwi_bucket *b, const char *key) {
    size_t low = 0, high = b->len;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(b->objects[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct bwi_object *bwi_bucket_find(const struct bwi_bucket *b, const char *key) {
    size_t i = bwi_bucket_lower_bound(b, key);
    return i < b->len && strcmp(b->objects[i]->key, key) == 0 ? b->objects[i] : NULL;
}

bool bwi_bucket_fits(const struct bwi_bucket *b, uint64_t more_bytes) {
    uint64_t capacity = b->model.capacity_bytes;
    return capacity == 0 || (b->used_bytes <= capacity && more_bytes <= capacity - b->used_bytes);
}

static bool insert(struct bwi_bucket *b, const char *key, uint8_t *ptr, size_t len) {
    void *objects = b->objects;
    bool room = bwi_vec_reserve(&objects, &b->cap, b->len + 1, sizeof *b->objects);
    b->objects = objects;
    struct bwi_object *o = room ? bwi_calloc(1, sizeof *o) : NULL;
    if (!o) return false;
    o->key = bwi_strdup(key);
    if (!o->key) {
        bwi_free(o);
        return false;
    }
    o->ptr = ptr;
    o->len = len;
    size_t at = bwi_bucket_lower_bound(b, key);
    memmove(b->objects + at + 1, b->objects + at, (b->len - at) * sizeof *b->objects);
    b->objects[at] = o;
    b->len++;
    b->used_bytes += len;
    return true;
}

bool bwi_bucket_set(struct bwi_bucket *b, const char *key, uint8_t *ptr, size_t len) {
    struct bwi_object *o = bwi_bucket_find(b, key);
    if (!o) return insert(b, key, ptr, len);
    bwi_free(o->ptr);
    b->used_bytes += len;
    b->used_bytes -= o->len;
    o->ptr = ptr;
    o->len = len;
    return true;
}

void bwi_bucket_remove_at(struct bwi_bucket *b, size_t i) {
    b->used_bytes -= b->objects[i]->len;
    object_free(b->objects[i]);
    b->len--;
    memmove(b->objects + i, b->objects + i + 1, (b->len - i) * sizeof *b->objects);
}

void bwi_bucket_drop_upload(struct bwi_memory_upload *u) {
    struct bwi_bucket *b = u->bucket;
    struct bwi_memory_upload **link = &b->uploads;
    while (*link && *link != u) link = &(*link)->next;
    if (*link) *link = u->next;
    if (u->ptr) b->used_bytes -= u->base.size_bytes;
    bwi_free(u->ptr);
    bwi_free(u->base.key);
    bwi_free(u);
}

void bwi_bucket_unlock(struct bwi_bucket *b, struct bwi_store_lock *lock) {
    struct bwi_store_lock **link = &b->locks;
    while (*link && *link != lock) link = &(*link)->next;
    if (*link) *link = lock->next;
    bwi_free(lock->prefix);
    bwi_free(lock);
}

/* ---- direct access for tests ---- */

size_t bwi_bucket_objects(const struct bwi_bucket *b) {
    return b->len;
}

bool bwi_bucket_get(const struct bwi_bucket *b, const char *key, struct bwi_span *ret) {
    const struct bwi_object *o = bwi_bucket_find(b, key);
    if (o) *ret = bwi_span(o->ptr, o->len);
    return o != NULL;
}

bool bwi_bucket_put(struct bwi_bucket *b, const char *key, struct bwi_span data) {
    uint8_t *copy = bwi_malloc(data.len);
    if (!copy) return false;
    if (data.len > 0) memcpy(copy, data.ptr, data.len);
    if (bwi_bucket_set(b, key, copy, data.len)) return true;
    bwi_free(copy);
    return false;
}

bool bwi_bucket_remove(struct bwi_bucket *b, const char *key) {
    size_t i = bwi_bucket_lower_bound(b, key);
    if (i == b->len || strcmp(b->objects[i]->key, key) != 0) return false;
    bwi_bucket_remove_at(b, i);
    return true;
}

const char *bwi_bucket_key(const struct bwi_bucket *b, size_t i) {
    return i < b->len ? b->objects[i]->key : NULL;
}

void bwi_bucket_fail_next(struct bwi_bucket *b, enum bwi_store_verb verb, const char *part, int status, bool effect) {
    assert(b->plan_count < BWI_BUCKET_PLANS && (!part || strlen(part) < BWI_BUCKET_PART_BYTES));
    struct bwi_bucket_plan *plan = &b->plans[b->plan_count++];
    *plan = (struct bwi_bucket_plan){.verb = verb, .status = status, .effect = effect};
    if (part) memcpy(plan->part, part, strlen(part) + 1);
}
