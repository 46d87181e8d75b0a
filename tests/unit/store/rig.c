/* SPDX-License-Identifier: Apache-2.0 */
/* Running operations to their end, and looking at what a store holds. See rig.h. */
#include "rig.h"

#include "base/error.h"
#include "base/vec.h"
#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE (UINT64_C(60) * BWI_NS_PER_S)

void rig_open(struct rig *r, bool virtual_time, struct bwi_os *os) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_io_options o = {.os = os, .threads = 4, .backend = (enum bw_io_backend)test_io_backend()};
    *r = (struct rig){.virtual_time = virtual_time};
    bwi_env_virtual_init(&r->v, test_seed(11));
    if (!virtual_time) assert_ok(bwi_io_open(&o, &r->io, &err), &err);
    assert_ok(bwi_loop_open(virtual_time ? &r->v.env : bwi_env_system(), r->io, &r->loop, &err), &err);
}

void rig_close(struct rig *r) {
    bwi_loop_close(r->loop);
    bwi_io_close(r->io);
    *r = (struct rig){0};
}

struct bwi_store *rig_store(struct rig *r, const char *url, bool read_only) {
    struct bwi_store *s = NULL;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_store_options o = {.loop = r->loop, .create = !read_only, .read_only = read_only};
    assert_ok(bwi_store_open(url, &o, &s, &err), &err);
    return s;
}

static void mark_done(struct bwi_store_op *op) {
    op->user = op;
}
bool rig_is_done(const struct bwi_store_op *op) {
    return op->user == op;
}

void rig_submit(struct rig *r, struct bwi_store *s, struct bwi_store_op *op) {
    (void)r;
    op->done = mark_done;
    op->user = NULL;
    bwi_store_submit(s, op);
}

void rig_wait(struct rig *r, struct bwi_store_op *op) {
    uint64_t until = bwi_loop_now_ns(r->loop) + PATIENCE;
    while (!rig_is_done(op)) {
        if (bwi_loop_turn(r->loop, until) || rig_is_done(op)) continue;
        uint64_t next = bwi_loop_next_ns(r->loop);
        if (r->virtual_time && next != BWI_NEVER)
            r->v.now = next;
        else
            assert_true(bwi_loop_now_ns(r->loop) < until && !r->virtual_time);
    }
}

struct bwi_store_op st_run(struct rig *r, struct bwi_store *s, struct bwi_store_op op) {
    rig_submit(r, s, &op);
    assert_false(rig_is_done(&op)); /* never from within submit */
    rig_wait(r, &op);
    return op;
}

struct bwi_store_op st_create_bytes(struct rig *r, struct bwi_store *s, const char *key, struct bwi_span data) {
    return st_run(r, s, (struct bwi_store_op){.verb = BWI_STORE_CREATE, .key = key, .data = data});
}
struct bwi_store_op st_create(struct rig *r, struct bwi_store *s, const char *key, const char *text) {
    return st_create_bytes(r, s, key, bwi_span_str(text));
}
struct bwi_store_op st_replace(struct rig *r, struct bwi_store *s, const char *key, const char *text) {
    return st_run(r, s, (struct bwi_store_op){.verb = BWI_STORE_REPLACE, .key = key, .data = bwi_span_str(text)});
}
struct bwi_store_op st_get(struct rig *r, struct bwi_store *s, const char *key, size_t limit) {
    return st_run(r, s, (struct bwi_store_op){.verb = BWI_STORE_GET, .key = key, .limit_bytes = limit});
}
struct bwi_store_op st_read(struct rig *r, struct bwi_store *s, const char *key, uint64_t offset, void *buf,
                            size_t bytes, struct bwi_store_handle **handle) {
    return st_run(
        r, s,
        (struct bwi_store_op){
            .verb = BWI_STORE_READ, .key = key, .offset = offset, .buf = buf, .bytes = bytes, .handle = handle});
}
struct bwi_store_op st_release(struct rig *r, struct bwi_store *s, struct bwi_store_handle **handle) {
    return st_run(r, s, (struct bwi_store_op){.verb = BWI_STORE_RELEASE, .handle = handle});
}
struct bwi_store_op st_head(struct rig *r, struct bwi_store *s, const char *key) {
    return st_run(r, s, (struct bwi_store_op){.verb = BWI_STORE_HEAD, .key = key});
}
struct bwi_store_op st_list(struct rig *r, struct bwi_store *s, const char *prefix, const char *after) {
    return st_run(r, s, (struct bwi_store_op){.verb = BWI_STORE_LIST, .key = prefix, .after = after});
}
struct bwi_store_op st_key(struct rig *r, struct bwi_store *s, enum bwi_store_verb verb, const char *key) {
    return st_run(r, s, (struct bwi_store_op){.verb = verb, .key = key});
}
struct bwi_store_op st_unlock(struct rig *r, struct bwi_store *s, struct bwi_store_lock *lock) {
    return st_run(r, s, (struct bwi_store_op){.verb = BWI_STORE_UNLOCK, .lock = lock});
}
struct bwi_store_op st_begin(struct rig *r, struct bwi_store *s, const char *key, uint64_t size) {
    return st_run(r, s, (struct bwi_store_op){.verb = BWI_STORE_BEGIN, .key = key, .size_bytes = size});
}
struct bwi_store_op st_write(struct rig *r, struct bwi_store *s, struct bwi_store_upload *u, uint64_t offset,
                             const void *buf, size_t bytes) {
    void *borrowed = (void *)(uintptr_t)buf; /* it is only read */
    return st_run(
        r, s,
        (struct bwi_store_op){.verb = BWI_STORE_WRITE, .upload = u, .offset = offset, .buf = borrowed, .bytes = bytes});
}
struct bwi_store_op st_finish(struct rig *r, struct bwi_store *s, struct bwi_store_upload *u) {
    return st_run(r, s, (struct bwi_store_op){.verb = BWI_STORE_FINISH, .upload = u});
}
struct bwi_store_op st_abort(struct rig *r, struct bwi_store *s, struct bwi_store_upload *u) {
    return st_run(r, s, (struct bwi_store_op){.verb = BWI_STORE_ABORT, .upload = u});
}

struct bwi_store_op st_upload(struct rig *r, struct bwi_store *s, const char *key, struct bwi_span data) {
    struct bwi_store_op op = st_begin(r, s, key, data.len);
    if (op.error.status != 0) return op;
    struct bwi_store_upload *u = op.upload;
    if (data.len > 0) st_write(r, s, u, 0, data.ptr, data.len);
    return st_finish(r, s, u);
}

void rig_assert_ok(struct bwi_store_op op, const char *what, const char *file, int line) {
    test_assert_ok(op.error.status, &op.error, what, file, line);
}
void rig_assert_fails(struct bwi_store_op op, int status, const char *part, const char *what, const char *file,
                      int line) {
    test_assert_fails(op.error.status, status, &op.error, part, what, file, line);
}
void rig_assert_outcome(struct bwi_store_op op, enum bwi_store_outcome want, const char *what, const char *file,
                        int line) {
    test_assert_ok(op.error.status, &op.error, what, file, line);
    _assert_int_equal(op.outcome, want, file, line);
}

void assert_object(struct rig *r, struct bwi_store *s, const char *key, const char *text) {
    struct bwi_store_op op = st_get(r, s, key, 1 << 24);
    assert_op_ok(op);
    assert_int_equal(op.body.len, strlen(text));
    assert_memory_equal(op.body.ptr ? (const char *)op.body.ptr : "", text, op.body.len);
    bwi_buf_fini(&op.body);
}

void assert_no_object(struct rig *r, struct bwi_store *s, const char *key) {
    assert_op_fails(st_head(r, s, key), BW_E_NOTFOUND, "head \"");
    assert_op_fails(st_get(r, s, key, 100), BW_E_NOTFOUND, "get \"");
}

void assert_listing(struct rig *r, struct bwi_store *s, const char *prefix, const char *after, const char *names) {
    struct bwi_store_op op = st_list(r, s, prefix, after);
    struct bwi_buf joined = {0};
    assert_op_ok(op);
    for (size_t i = 0; i < op.names.len; i++) bwi_buf_printf(&joined, i == 0 ? "%s" : " %s", op.names.name[i]);
    bwi_buf_u8(&joined, 0);
    assert_string_equal((const char *)joined.ptr, names);
    bwi_buf_fini(&joined);
    bwi_store_names_fini(&op.names);
}

unsigned rig_open_files(void) {
    DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static unsigned hidden;
static int count_hidden(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    if (at->level > 0 && path[at->base] == '.') hidden++;
    return 0;
}

unsigned rig_hidden_files(const char *dir) {
    hidden = 0;
    assert_int_equal(nftw(dir, count_hidden, 8, FTW_PHYS), 0);
    return hidden;
}

void rig_path(char *buf, size_t bytes, const char *dir, const char *name) {
    int n = snprintf(buf, bytes, "%s/%s", dir, name);
    assert_true(n > 0 && (size_t)n < bytes);
}
