/* SPDX-License-Identifier: Apache-2.0 */
/* What all stores have in common: which keys there are, what an operation must bring, what its errors read like. */
#include "store/store.h"

#include "base/checked.h"
#include "base/vec.h"
#include "store/store_private.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { CHANGES = 1, KEY = 2, PREFIX = 4, ROOT = 8, UPLOAD = 16, NEVER_FAILS = 32 };

static const struct verb {
    const char *name;
    unsigned needs;
} verbs[] = {
    [BWI_STORE_CREATE] = {"create", CHANGES | KEY},
    [BWI_STORE_GET] = {"get", KEY},
    [BWI_STORE_READ] = {"read", KEY},
    [BWI_STORE_RELEASE] = {"release", NEVER_FAILS},
    [BWI_STORE_HEAD] = {"head", KEY},
    [BWI_STORE_LIST] = {"list", PREFIX | ROOT},
    [BWI_STORE_DELETE] = {"delete", CHANGES | KEY},
    [BWI_STORE_DELETE_PREFIX] = {"delete prefix", CHANGES | PREFIX},
    [BWI_STORE_BEGIN] = {"begin", CHANGES | KEY},
    [BWI_STORE_WRITE] = {"write", CHANGES | UPLOAD},
    [BWI_STORE_FINISH] = {"finish", CHANGES | UPLOAD},
    [BWI_STORE_ABORT] = {"abort", NEVER_FAILS},
    [BWI_STORE_SYNC] = {"sync", PREFIX | ROOT},
    [BWI_STORE_REPLACE] = {"replace", CHANGES | KEY},
    [BWI_STORE_LOCK] = {"lock", CHANGES | PREFIX | ROOT},
    [BWI_STORE_UNLOCK] = {"unlock", NEVER_FAILS},
    [BWI_STORE_SPACE] = {"space", 0},
};

const char *bwi_store_verb_name(enum bwi_store_verb verb) {
    return verbs[verb].name;
}

/* ---- keys ---- */

bool bwi_store_component_valid(const char *name, size_t len) {
    if (len == 0 || len > BWI_STORE_COMPONENT_MAX || name[0] == '.') return false;
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        bool digit = c >= '0' && c <= '9';
        if (!letter && !digit && c != '.' && c != '_' && c != '-') return false;
    }
    return true;
}

static bool components_valid(const char *key, size_t len) {
    if (len == 0 || len > BWI_STORE_KEY_MAX) return false;
    unsigned count = 0;
    for (size_t at = 0; at <= len;) {
        const char *slash = memchr(key + at, '/', len - at);
        size_t n = slash ? (size_t)(slash - key) - at : len - at;
        if (++count > BWI_STORE_COMPONENTS_MAX || !bwi_store_component_valid(key + at, n)) return false;
        at += n + 1;
    }
    return true;
}

bool bwi_store_key_valid(const char *key) {
    return key && components_valid(key, strnlen(key, BWI_STORE_KEY_MAX + 1));
}

bool bwi_store_prefix_valid(const char *key) {
    if (!key) return false;
    if (!*key) return true;
    size_t len = strnlen(key, BWI_STORE_KEY_MAX + 2);
    return key[len - 1] == '/' && components_valid(key, len - 1);
}

const char *bwi_store_op_key(const struct bwi_store_op *op) {
    if ((verbs[op->verb].needs & UPLOAD) || op->verb == BWI_STORE_ABORT) return op->upload ? op->upload->key : NULL;
    return op->key;
}

/* ---- messages ---- */

static void name_op(struct bwi_store_op *op) {
    const char *key = bwi_store_op_key(op), *verb = bwi_store_verb_name(op->verb);
    if (key)
        bwi_error_wrap(&op->error, "%s \"%.300s\"", verb, key);
    else
        bwi_error_wrap(&op->error, "%s", verb);
}

static void format_text(char *buf, size_t buf_bytes, const char *fmt, va_list args)
    __attribute__((format(printf, 3, 0)));
static void format_text(char *buf, size_t buf_bytes, const char *fmt, va_list args) {
    if (vsnprintf(buf, buf_bytes, fmt, args) < 0) *buf = '\0';
}

int bwi_store_fail(struct bwi_store_op *op, int status, const char *fmt, ...) {
    if (op->error.status != 0) return status;
    char text[BW_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    format_text(text, sizeof text, fmt, args);
    va_end(args);
    bwi_error_set(&op->error, status, "%s", text);
    name_op(op);
    return status;
}

int bwi_store_errno(struct bwi_store_op *op, int os_errno, const char *fmt, ...) {
    if (op->error.status != 0) return os_errno;
    char text[BW_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    format_text(text, sizeof text, fmt, args);
    va_end(args);
    bwi_error_errno(&op->error, os_errno, "%s", text);
    name_op(op);
    return os_errno;
}

/* ---- checks ---- */

static int check_key(struct bwi_store_op *op, unsigned needs) {
    if ((needs & KEY) && !bwi_store_key_valid(op->key))
        return bwi_store_fail(op, BW_E_INVALID, "not a key: expected components of [A-Za-z0-9._-], separated by '/'%s",
                              op->key ? "" : ", found none");
    if (!(needs & PREFIX)) return 0;
    if (!bwi_store_prefix_valid(op->key))
        return bwi_store_fail(op, BW_E_INVALID, "not a prefix: expected a key and a final '/'%s",
                              op->key ? "" : ", found none");
    if (!*op->key && !(needs & ROOT)) return bwi_store_fail(op, BW_E_INVALID, "the whole store cannot be meant");
    return 0;
}

static int check_write(struct bwi_store_op *op) {
    uint64_t end = 0, size = op->upload->size_bytes;
    if (op->offset % BWI_STORE_ALIGN != 0)
        return bwi_store_fail(op, BW_E_INVALID, "offset %llu: expected a multiple of %llu",
                              (unsigned long long)op->offset, (unsigned long long)BWI_STORE_ALIGN);
    if (!bwi_add_u64(op->offset, op->bytes, &end) || end > size)
        return bwi_store_fail(op, BW_E_INVALID, "%zu bytes at offset %llu: the upload has %llu bytes", op->bytes,
                              (unsigned long long)op->offset, (unsigned long long)size);
    return 0;
}

static int check_buffers(struct bwi_store_op *op) {
    uint64_t end = 0;
    bool moves = op->verb == BWI_STORE_READ || op->verb == BWI_STORE_WRITE;
    bool gives = op->verb == BWI_STORE_CREATE || op->verb == BWI_STORE_REPLACE;
    if ((moves && !op->buf && op->bytes > 0) || (gives && !op->data.ptr && op->data.len > 0))
        return bwi_store_fail(op, BW_E_INVALID, "no buffer was given");
    if (moves && (op->bytes > INT64_MAX || !bwi_add_u64(op->offset, op->bytes, &end) || end > INT64_MAX))
        return bwi_store_fail(op, BW_E_INVALID, "%zu bytes at offset %llu: beyond the largest object", op->bytes,
                              (unsigned long long)op->offset);
    if (op->verb == BWI_STORE_BEGIN && op->size_bytes > INT64_MAX)
        return bwi_store_fail(op, BW_E_LIMIT, "%llu bytes: beyond the largest object",
                              (unsigned long long)op->size_bytes);
    return op->verb == BWI_STORE_WRITE ? check_write(op) : 0;
}

int bwi_store_check(struct bwi_store_op *op, bool read_only) {
    unsigned needs = verbs[op->verb].needs;
    if (needs & NEVER_FAILS) return 0;
    int rc = check_key(op, needs);
    if (rc < 0) return rc;
    if ((needs & CHANGES) && read_only)
        return bwi_store_fail(op, BW_E_ACCESS, "the store %s was opened read-only", op->store->url);
    if ((needs & UPLOAD) && !op->upload) return bwi_store_fail(op, BW_E_INVALID, "no upload was given");
    return check_buffers(op);
}

void bwi_store_write_begun(struct bwi_store_op *op) {
    op->upload->writes++;
}

/* Different numbers for different offsets, without a pattern. */
static uint64_t scatter(uint64_t offset) {
    uint64_t z = (offset ^ offset >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void bwi_store_write_ended(struct bwi_store_op *op) {
    struct bwi_store_upload *u = op->upload;
    u->writes--;
    if (op->error.status != 0) {
        bwi_error_copy(&u->error, &op->error);
        return;
    }
    u->written_bytes += op->bytes;
    u->seams += scatter(op->offset) - scatter(op->offset + op->bytes);
}

int bwi_store_check_complete(struct bwi_store_op *op) {
    struct bwi_store_upload *u = op->upload;
    assert(u->writes == 0);
    if (u->error.status != 0) return bwi_error_copy(&op->error, &u->error);
    if (u->written_bytes != u->size_bytes)
        return bwi_store_fail(op, BW_E_INTERNAL, "%llu bytes were announced and %llu written",
                              (unsigned long long)u->size_bytes, (unsigned long long)u->written_bytes);
    if (u->seams != scatter(0) - scatter(u->size_bytes))
        return bwi_store_fail(op, BW_E_INTERNAL, "some of its %llu bytes were written twice, and others never",
                              (unsigned long long)u->size_bytes);
    return 0;
}

/* ---- operations ---- */

void bwi_store_submit(struct bwi_store *s, struct bwi_store_op *op) {
    assert(op->verb <= BWI_STORE_SPACE && op->done);
    s->ops[op->verb]++;
    op->store = s;
    op->next = NULL;
    op->outcome = 0;
    op->looked = 0;
    op->declined = false;
    op->direct_bytes = 0;
    op->recycled_bytes = 0;
    op->error = (struct bw_error)BW_ERROR_INIT;
    op->body = (struct bwi_buf){0};
    op->names = (struct bwi_store_names){0};
    s->submit(s, op);
}

/* Bytes that a successful operation took from the caller. */
static uint64_t bytes_taken(const struct bwi_store_op *op) {
    if (op->verb == BWI_STORE_WRITE) return op->bytes;
    bool whole = op->verb == BWI_STORE_REPLACE || (op->verb == BWI_STORE_CREATE && op->outcome == BWI_STORE_CREATED);
    return whole ? op->data.len : 0;
}

void bwi_store_complete(struct bwi_store_op *op) {
    if (op->error.status == 0) {
        op->store->bytes_in += bytes_taken(op);
        if (op->verb == BWI_STORE_GET) op->store->bytes_out += op->body.len;
        if (op->verb == BWI_STORE_READ && !op->declined) op->store->bytes_out += op->bytes;
    }
    if (op->verb == BWI_STORE_FINISH || op->verb == BWI_STORE_ABORT) op->upload = NULL;
    if (op->verb == BWI_STORE_UNLOCK) op->lock = NULL;
    op->done(op);
}

/* ---- listings ---- */

void bwi_store_names_fini(struct bwi_store_names *n) {
    for (size_t i = 0; i < n->len; i++) bwi_free(n->name[i]);
    bwi_free(n->name);
    *n = (struct bwi_store_names){0};
}

bool bwi_store_names_add(struct bwi_store_names *n, const char *after, const char *name, size_t len, bool prefix) {
    void *names = n->name;
    if (!bwi_vec_reserve(&names, &n->cap, n->len + 1, sizeof *n->name)) return false;
    n->name = names;
    char *copy = bwi_malloc(len + 2);
    if (!copy) return false;
    memcpy(copy, name, len);
    if (prefix) copy[len++] = '/';
    copy[len] = '\0';
    if (after && strcmp(copy, after) <= 0) {
        bwi_free(copy);
        return true;
    }
    n->name[n->len++] = copy;
    return true;
}

static void names_swap(struct bwi_store_names *n, size_t i, size_t j) {
    char *name = n->name[i];
    n->name[i] = n->name[j];
    n->name[j] = name;
}

static void names_sift(struct bwi_store_names *n, size_t at, size_t len) {
    for (size_t child; (child = 2 * at + 1) < len; at = child) {
        if (child + 1 < len && strcmp(n->name[child], n->name[child + 1]) < 0) child++;
        if (strcmp(n->name[at], n->name[child]) >= 0) return;
        names_swap(n, at, child);
    }
}

/* Heap sort: no memory, no bad case. */
void bwi_store_names_sort(struct bwi_store_names *n) {
    for (size_t i = n->len / 2; i-- > 0;) names_sift(n, i, n->len);
    for (size_t len = n->len; len > 1; len--) {
        names_swap(n, 0, len - 1);
        names_sift(n, 0, len - 1);
    }
}
