/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets of this process by name, for memory:NAME. The one piece of state that the library keeps for the whole
 * process: two handles that are given the same URL must meet in the same bucket. Empty as soon as the last store is
 * closed. */
#include "store/memory_bucket.h"
#include <stdio.h>
#include <string.h>

static struct bwi_mutex registry_lock = {PTHREAD_MUTEX_INITIALIZER};
static struct bwi_bucket *registry; /* guarded by registry_lock, and so is `attached` of those in it */

static struct bwi_bucket *find_locked(const char *name) {
    struct bwi_bucket *b = registry;
    while (b && strcmp(b->name, name) != 0) b = b->next;
    return b;
}

static struct bwi_bucket *make_locked(const char *name) {
    struct bwi_bucket *b = NULL;
    if (bwi_bucket_new(bwi_env_system(), &b) < 0) return NULL;
    b->shared = true;
    snprintf(b->name, sizeof b->name, "%s", name);
    b->next = registry;
    registry = b;
    return b;
}

static void unlink_locked(struct bwi_bucket *b) {
    struct bwi_bucket **link = &registry;
    while (*link != b) link = &(*link)->next;
    *link = b->next;
}

void bwi_registry_detach(struct bwi_bucket *b) {
    bwi_mutex_lock(&registry_lock);
    bool last = --b->attached == 0;
    if (last) unlink_locked(b);
    bwi_mutex_unlock(&registry_lock);
    if (last) bwi_bucket_free(b);
}

int bwi_store_memory_open_url(const char *name, const struct bwi_store_options *o, struct bwi_store **ret,
                              struct bw_error *err) {
    bwi_mutex_lock(&registry_lock);
    struct bwi_bucket *b = find_locked(name);
    bool make = !b && o->create && !o->read_only;
    if (make) b = make_locked(name);
    if (b) b->attached++;
    bwi_mutex_unlock(&registry_lock);
    if (!b && make) return bwi_error_nomem(err, sizeof *b, "a bucket");
    if (!b) return bwi_error_set(err, BW_E_NOTFOUND, "open store \"memory:%s\": no such bucket in this process", name);
    int rc = bwi_memory_attach(b, name, o, ret, err);
    if (rc < 0) bwi_registry_detach(b);
    return rc;
}
