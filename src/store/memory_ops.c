/* SPDX-License-Identifier: Apache-2.0 */
/* What each verb does to a bucket. */
#include "base/vec.h"
#include "store/memory_bucket.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint8_t *copy_of(struct bwi_store_op *op, struct bwi_span data) {
    uint8_t *copy = bwi_malloc(data.len);
    if (!copy)
        bwi_store_fail(op, BW_E_NOMEM, "out of memory: %zu bytes for the object", data.len);
    else if (data.len > 0)
        memcpy(copy, data.ptr, data.len);
    return copy;
}

static bool check_space(struct bwi_bucket *b, struct bwi_store_op *op, uint64_t bytes) {
    if (bwi_bucket_fits(b, bytes)) return true;
    bwi_store_fail(op, BW_E_NOSPACE,
                   "%" PRIu64 " bytes in %s: no space left, %" PRIu64 " of %" PRIu64 " bytes are used", bytes,
                   op->store->url, b->used_bytes, b->model.capacity_bytes);
    return false;
}

static bool put_copy(struct bwi_bucket *b, struct bwi_store_op *op) {
    uint8_t *copy = copy_of(op, op->data);
    if (!copy) return false;
    if (bwi_bucket_set(b, op->key, copy, op->data.len)) return true;
    bwi_free(copy);
    bwi_store_fail(op, BW_E_NOMEM, "out of memory: an object's entry");
    return false;
}

static void create(struct bwi_bucket *b, struct bwi_store_op *op) {
    const struct bwi_object *o = bwi_bucket_find(b, op->key);
    if (!o) {
        if (check_space(b, op, op->data.len) && put_copy(b, op)) op->outcome = BWI_STORE_CREATED;
    } else if (o->len == op->data.len && (o->len == 0 || memcmp(o->ptr, op->data.ptr, o->len) == 0)) {
        op->outcome = BWI_STORE_SAME;
    } else {
        op->outcome = BWI_STORE_OTHER;
        bwi_store_fail(op, BW_E_EXISTS, "exists already with other content: %zu bytes were offered, %zu are there",
                       op->data.len, o->len);
    }
}

static void replace(struct bwi_bucket *b, struct bwi_store_op *op) {
    if (check_space(b, op, op->data.len)) put_copy(b, op); /* both copies exist for a moment, as they do on a disk */
}

static struct bwi_object *must_find(struct bwi_bucket *b, struct bwi_store_op *op) {
    struct bwi_object *o = bwi_bucket_find(b, op->key);
    if (!o) bwi_store_fail(op, BW_E_NOTFOUND, "no such object");
    return o;
}

static void get(struct bwi_bucket *b, struct bwi_store_op *op) {
    const struct bwi_object *o = must_find(b, op);
    if (!o) return;
    if (o->len > op->limit_bytes) {
        bwi_store_fail(op, BW_E_FORMAT, "has %zu bytes, expected at most %zu", o->len, op->limit_bytes);
        return;
    }
    bwi_buf_put(&op->body, o->ptr, o->len);
    if (!op->body.failed) return;
    bwi_buf_fini(&op->body);
    bwi_store_fail(op, BW_E_NOMEM, "out of memory: %zu bytes for the object", o->len);
}

static void read_range(struct bwi_bucket *b, struct bwi_store_op *op) {
    const struct bwi_object *o = must_find(b, op);
    if (!o) return;
    uint64_t there = op->offset < o->len ? o->len - op->offset : 0;
    if (there < op->bytes)
        bwi_store_fail(op, BW_E_CORRUPT, "ends at byte %zu, expected at least %" PRIu64, o->len,
                       op->offset + op->bytes);
    else if (op->bytes > 0)
        memcpy(op->buf, o->ptr + op->offset, op->bytes);
}

static void head(struct bwi_bucket *b, struct bwi_store_op *op) {
    const struct bwi_object *o = must_find(b, op);
    if (o) op->size_bytes = o->len;
}

static bool below(const char *key, const char *prefix) {
    return strncmp(key, prefix, strlen(prefix)) == 0;
}

/* The index after all objects below a child prefix: the byte after '/' in the order of keys is '0'. */
static size_t skip_child(const struct bwi_bucket *b, const char *prefix, const char *child, size_t len) {
    char end[2 * (BWI_STORE_KEY_MAX + 2)];
    snprintf(end, sizeof end, "%s%.*s0", prefix, (int)len, child);
    return bwi_bucket_lower_bound(b, end);
}

static void list(struct bwi_bucket *b, struct bwi_store_op *op) {
    size_t skip = strlen(op->key), i = bwi_bucket_lower_bound(b, op->key);
    bool room = true;
    while (room && i < b->len && below(b->objects[i]->key, op->key)) {
        const struct bwi_object *o = b->objects[i];
        const char *name = o->key + skip, *slash = strchr(name, '/');
        size_t len = slash ? (size_t)(slash - name) : strlen(name);
        room = bwi_store_names_add(&op->names, op->after, name, len, slash != NULL);
        i = slash ? skip_child(b, op->key, name, len) : i + 1;
    }
    if (room) return;
    bwi_store_names_fini(&op->names);
    bwi_store_fail(op, BW_E_NOMEM, "out of memory: a listing");
}

static void delete_object(struct bwi_bucket *b, struct bwi_store_op *op) {
    bwi_bucket_remove(b, op->key);
}

static void delete_prefix(struct bwi_bucket *b, struct bwi_store_op *op) {
    size_t i = bwi_bucket_lower_bound(b, op->key);
    while (i < b->len && below(b->objects[i]->key, op->key)) bwi_bucket_remove_at(b, i);
    for (struct bwi_memory_upload *u = b->uploads; u; u = u->next) {
        if (!below(u->base.key, op->key) || u->gone) continue;
        u->gone = true; /* its buffer stays until its end: writes to it may be in flight */
    }
}

static void begin(struct bwi_bucket *b, struct bwi_store_op *op) {
    if (!check_space(b, op, op->size_bytes)) return;
    struct bwi_memory_upload *u = bwi_calloc(1, sizeof *u);
    if (u) {
        u->base.key = bwi_strdup(op->key);
        u->ptr = bwi_calloc(1, (size_t)op->size_bytes);
    }
    if (!u || !u->base.key || !u->ptr) {
        if (u) {
            bwi_free(u->base.key);
            bwi_free(u->ptr);
        }
        bwi_free(u);
        bwi_store_fail(op, BW_E_NOMEM, "out of memory: an upload of %" PRIu64 " bytes", op->size_bytes);
        return;
    }
    u->base.size_bytes = op->size_bytes;
    u->base.replace = op->replace;
    u->bucket = b;
    u->next = b->uploads;
    b->uploads = u;
    b->used_bytes += op->size_bytes;
    op->upload = &u->base;
}

static struct bwi_memory_upload *upload_of(struct bwi_store_op *op) {
    return bwi_container_of(op->upload, struct bwi_memory_upload, base);
}

static void write_range(struct bwi_bucket *b, struct bwi_store_op *op) {
    (void)b;
    if (op->bytes > 0) memcpy(upload_of(op)->ptr + op->offset, op->buf, op->bytes);
}

/* The upload itself is dropped when the operation completes; here its bytes change hands. */
static void finish(struct bwi_bucket *b, struct bwi_store_op *op) {
    struct bwi_memory_upload *u = upload_of(op);
    if (bwi_store_check_complete(op) < 0) return;
    if (u->gone) {
        bwi_store_fail(op, BW_E_IO, "its prefix was deleted meanwhile");
        op->outcome = BWI_STORE_GONE;
        return;
    }
    const struct bwi_object *o = u->base.replace ? NULL : bwi_bucket_find(b, u->base.key);
    if (o) {
        op->outcome = o->len == u->base.size_bytes ? BWI_STORE_SAME : BWI_STORE_OTHER;
        if (op->outcome == BWI_STORE_OTHER)
            bwi_store_fail(op, BW_E_EXISTS, "exists already with %zu bytes, expected %" PRIu64, o->len,
                           u->base.size_bytes);
    } else if (bwi_bucket_set(b, u->base.key, u->ptr, (size_t)u->base.size_bytes)) {
        b->used_bytes -= u->base.size_bytes; /* was counted at BEGIN */
        u->ptr = NULL;
        op->outcome = BWI_STORE_CREATED;
    } else {
        bwi_store_fail(op, BW_E_NOMEM, "out of memory: an object's entry");
    }
}

static void lock(struct bwi_bucket *b, struct bwi_store_op *op) {
    for (const struct bwi_store_lock *l = b->locks; l; l = l->next) {
        if (strcmp(l->prefix, op->key) != 0) continue;
        bwi_store_fail(op, BW_E_BUSY, "held by another process, or by another part of this one");
        return;
    }
    struct bwi_store_lock *l = bwi_calloc(1, sizeof *l);
    if (l) l->prefix = bwi_strdup(op->key);
    if (!l || !l->prefix) {
        bwi_free(l);
        bwi_store_fail(op, BW_E_NOMEM, "out of memory: a lock");
        return;
    }
    l->next = b->locks;
    b->locks = l;
    op->lock = l;
}

static void unlock(struct bwi_bucket *b, struct bwi_store_op *op) {
    if (op->lock) bwi_bucket_unlock(b, op->lock);
}

static void space(struct bwi_bucket *b, struct bwi_store_op *op) {
    uint64_t capacity = b->model.capacity_bytes;
    op->total_bytes = capacity > 0 ? capacity : UINT64_MAX;
    op->free_bytes = capacity == 0 ? UINT64_MAX : b->used_bytes < capacity ? capacity - b->used_bytes : 0;
}

static void (*const runs[])(struct bwi_bucket *b, struct bwi_store_op *op) = {
    [BWI_STORE_CREATE] = create,
    [BWI_STORE_GET] = get,
    [BWI_STORE_READ] = read_range,
    [BWI_STORE_RELEASE] = NULL, /* nothing is kept open */
    [BWI_STORE_HEAD] = head,
    [BWI_STORE_LIST] = list,
    [BWI_STORE_DELETE] = delete_object,
    [BWI_STORE_DELETE_PREFIX] = delete_prefix,
    [BWI_STORE_BEGIN] = begin,
    [BWI_STORE_WRITE] = write_range,
    [BWI_STORE_FINISH] = finish,
    [BWI_STORE_ABORT] = NULL, /* dropped when the operation completes */
    [BWI_STORE_SYNC] = NULL,  /* what can be seen is as durable as it gets */
    [BWI_STORE_REPLACE] = replace,
    [BWI_STORE_LOCK] = lock,
    [BWI_STORE_UNLOCK] = unlock,
    [BWI_STORE_SPACE] = space,
};

void bwi_memory_run_locked(struct bwi_bucket *b, struct bwi_store_op *op) {
    if (runs[op->verb]) runs[op->verb](b, op);
}

void bwi_memory_undo_locked(struct bwi_bucket *b, struct bwi_store_op *op) {
    bw_error_clear(&op->error);
    op->outcome = 0;
    bwi_buf_fini(&op->body);
    bwi_store_names_fini(&op->names);
    if (op->verb == BWI_STORE_BEGIN && op->upload) {
        bwi_bucket_drop_upload(upload_of(op));
        op->upload = NULL;
    }
    if (op->verb == BWI_STORE_LOCK && op->lock) {
        bwi_bucket_unlock(b, op->lock);
        op->lock = NULL;
    }
}
