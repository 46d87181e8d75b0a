/* SPDX-License-Identifier: Apache-2.0 */
/* A loop to run store operations on, one at a time or several at once, and one short call for each verb. */
#ifndef BW_STORE_RIG_H
#define BW_STORE_RIG_H

#include "test.h"

#include "base/env.h"
#include "io/engine.h"
#include "io/loop.h"
#include "store/store.h"

struct rig {
    struct bwi_env_virtual v;
    bool virtual_time;
    struct bwi_io *io; /* NULL on virtual time */
    struct bwi_loop *loop;
};

/* os: NULL = the system's. */
void rig_open(struct rig *r, bool virtual_time, struct bwi_os *os);
void rig_close(struct rig *r);
struct bwi_store *rig_store(struct rig *r, const char *url, bool read_only);

/* Submits; rig_wait returns when the operation is done. */
void rig_submit(struct rig *r, struct bwi_store *s, struct bwi_store_op *op);
void rig_wait(struct rig *r, struct bwi_store_op *op);
bool rig_is_done(const struct bwi_store_op *op);

/* Each runs one operation to its end and returns it. */
struct bwi_store_op st_run(struct rig *r, struct bwi_store *s, struct bwi_store_op op);
struct bwi_store_op st_create(struct rig *r, struct bwi_store *s, const char *key, const char *text);
struct bwi_store_op st_create_bytes(struct rig *r, struct bwi_store *s, const char *key, struct bwi_span data);
struct bwi_store_op st_replace(struct rig *r, struct bwi_store *s, const char *key, const char *text);
struct bwi_store_op st_get(struct rig *r, struct bwi_store *s, const char *key, size_t limit);
struct bwi_store_op st_read(struct rig *r, struct bwi_store *s, const char *key, uint64_t offset, void *buf,
                            size_t bytes, struct bwi_store_handle **handle);
struct bwi_store_op st_release(struct rig *r, struct bwi_store *s, struct bwi_store_handle **handle);
struct bwi_store_op st_head(struct rig *r, struct bwi_store *s, const char *key);
struct bwi_store_op st_list(struct rig *r, struct bwi_store *s, const char *prefix, const char *after);
/* DELETE, DELETE_PREFIX, SYNC, LOCK, SPACE, or any other verb that takes a key only. */
struct bwi_store_op st_key(struct rig *r, struct bwi_store *s, enum bwi_store_verb verb, const char *key);
struct bwi_store_op st_unlock(struct rig *r, struct bwi_store *s, struct bwi_store_lock *lock);
struct bwi_store_op st_begin(struct rig *r, struct bwi_store *s, const char *key, uint64_t size);
struct bwi_store_op st_write(struct rig *r, struct bwi_store *s, struct bwi_store_upload *u, uint64_t offset,
                             const void *buf, size_t bytes);
struct bwi_store_op st_finish(struct rig *r, struct bwi_store *s, struct bwi_store_upload *u);
struct bwi_store_op st_abort(struct rig *r, struct bwi_store *s, struct bwi_store_upload *u);
/* A whole upload in one go. */
struct bwi_store_op st_upload(struct rig *r, struct bwi_store *s, const char *key, struct bwi_span data);

#define assert_op_ok(expr)                  rig_assert_ok((expr), #expr, __FILE__, __LINE__)
#define assert_op_fails(expr, status, part) rig_assert_fails((expr), (status), (part), #expr, __FILE__, __LINE__)
/* Success with this outcome. */
#define assert_outcome(expr, want) rig_assert_outcome((expr), (want), #expr, __FILE__, __LINE__)
void rig_assert_ok(struct bwi_store_op op, const char *what, const char *file, int line);
void rig_assert_fails(struct bwi_store_op op, int status, const char *part, const char *what, const char *file,
                      int line);
void rig_assert_outcome(struct bwi_store_op op, enum bwi_store_outcome want, const char *what, const char *file,
                        int line);

/* The object is there and holds exactly this. */
void assert_object(struct rig *r, struct bwi_store *s, const char *key, const char *text);
void assert_no_object(struct rig *r, struct bwi_store *s, const char *key);
/* The listing is exactly these names, joined by blanks. */
void assert_listing(struct rig *r, struct bwi_store *s, const char *prefix, const char *after, const char *names);

/* Directories of the file system directly. */
unsigned rig_open_files(void);              /* descriptors of this process */
unsigned rig_hidden_files(const char *dir); /* names that begin with '.', at any depth */
void rig_path(char *buf, size_t bytes, const char *dir, const char *name);

#endif
