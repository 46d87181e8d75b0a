/* SPDX-License-Identifier: Apache-2.0 */
/* Creating once. A temporary file is written and synced beside the object and then linked to its name, so the name
 * never stands for half an object, two creators cannot both win, and a process that dies in between leaves nothing but
 * a temporary that no listing shows. */
#include "base/vec.h"
#include "store/posix.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COMPARE_BYTES 65536u

void bwi_posix_tmp_name(struct bwi_store_op *op, char tmp[BWI_POSIX_TMP_BYTES]) {
    /* The number was drawn at submission: the generator of a test is not for several threads. */
    op->due_ns = op->due_ns * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    snprintf(tmp, BWI_POSIX_TMP_BYTES, ".%016" PRIx64 ".tmp", op->due_ns);
}

int bwi_posix_open_tmp(struct bwi_store_op *op, int dirfd, char tmp[BWI_POSIX_TMP_BYTES]) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    int fd = -EEXIST;
    for (unsigned i = 0; fd == -EEXIST && i < BWI_POSIX_TRIES; i++) {
        bwi_posix_tmp_name(op, tmp);
        fd = os->open_new(os, dirfd, tmp);
    }
    return fd < 0 ? bwi_store_errno(op, fd, "make a temporary file in %s", op->store->url) : fd;
}

/* Writes the whole object to a temporary and syncs it. On failure nothing is left. */
static int write_tmp(struct bwi_store_op *op, int dirfd, char tmp[BWI_POSIX_TMP_BYTES]) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    int fd = bwi_posix_open_tmp(op, dirfd, tmp);
    if (fd < 0) return fd;
    int64_t n = op->data.len > 0 ? os->pwrite(os, fd, op->data.ptr, op->data.len, 0) : 0;
    int rc = n < 0 ? bwi_store_errno(op, (int)n, "write %zu bytes to %s", op->data.len, op->store->url) : 0;
    if (rc == 0) {
        rc = os->fsync(os, fd);
        if (rc < 0) bwi_store_errno(op, rc, "fsync");
    }
    int closed = os->close(os, fd);
    if (rc == 0 && closed < 0) rc = bwi_store_errno(op, closed, "close");
    if (rc < 0) os->unlink(os, dirfd, tmp);
    return rc;
}

/* NFS may lose the answer to a link that was made and then say EEXIST, or anything, to the repetition: only the count
 * tells. */
static bool was_linked(struct bwi_os *os, int dirfd, const char *tmp) {
    struct bwi_os_stat st;
    return os->stat_at(os, dirfd, tmp, &st) == 0 && st.nlink == 2;
}

/* After a link or rename that failed: whether it may have been made all the same (a time-out on NFS, a file system that
 * shuts down). The temporary tells; -ENOENT says that it went away with its directory. */
static bool is_doubtful(struct bwi_os *os, int dirfd, const char *tmp, int rc) {
    struct bwi_os_stat st;
    return rc < 0 && rc != -EEXIST && rc != -ENOENT && os->stat_at(os, dirfd, tmp, &st) < 0;
}

/* Fails the operation of which a link or rename failed. */
static int not_published(struct bwi_store_op *op, int rc, bool doubtful, const char *what) {
    bwi_store_errno(op, rc, "%s", what);
    if (doubtful) op->error.status = BW_E_UNKNOWN;
    return rc;
}

int bwi_posix_publish(struct bwi_store_op *op, int dirfd, const char *tmp, const char *leaf) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    const char *what = "link the temporary file to its name";
    const uint64_t before = bwi_posix_given_up(op);
    int rc = os->link(os, dirfd, tmp, leaf);
    if (rc == -ENOSPC && bwi_posix_makes_room(op, before)) rc = os->link(os, dirfd, tmp, leaf);
    if (rc < 0 && was_linked(os, dirfd, tmp)) rc = 0;
    if (rc == -EPERM || rc == -EOPNOTSUPP || rc == -ENOSYS || rc == -EMLINK) {
        what = "rename the temporary file to its name";
        rc = os->rename_new(os, dirfd, tmp, leaf);
        if (rc == 0) return 0;
    }
    bool doubtful = is_doubtful(os, dirfd, tmp, rc);
    os->unlink(os, dirfd, tmp); /* a leftover is not visible, and goes with its directory */
    if (rc == -EEXIST) return 1;
    return rc < 0 ? not_published(op, rc, doubtful, what) : 0;
}

int bwi_posix_publish_over(struct bwi_store_op *op, int dirfd, const char *tmp, const char *leaf) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    const uint64_t before = bwi_posix_given_up(op);
    int rc = os->rename_over(os, dirfd, tmp, leaf);
    if (rc == -ENOSPC && bwi_posix_makes_room(op, before)) rc = os->rename_over(os, dirfd, tmp, leaf);
    if (rc == 0) return 0;
    bool doubtful = is_doubtful(os, dirfd, tmp, rc);
    os->unlink(os, dirfd, tmp);
    return not_published(op, rc, doubtful, "rename the temporary file over the object");
}

/* ---- what could not be made durable ---- */

/* The slot of a key; with "" a free one. */
static char *doubt_slot(struct bwi_posix_doubts *d, const char *key) {
    for (size_t i = 0; i < BWI_POSIX_DOUBTS; i++)
        if (strcmp(d->key[i], key) == 0) return d->key[i];
    return NULL;
}

static void lock_doubts(struct bwi_posix_doubts *d) {
    while (atomic_flag_test_and_set_explicit(&d->lock, memory_order_acquire)) continue;
}

static void unlock_doubts(struct bwi_posix_doubts *d) {
    atomic_flag_clear_explicit(&d->lock, memory_order_release);
}

static void note_doubt(struct bwi_posix *p, const char *key) {
    struct bwi_posix_doubts *d = &p->doubts;
    lock_doubts(d);
    char *slot = doubt_slot(d, key);
    if (!slot) slot = doubt_slot(d, "");
    if (slot)
        snprintf(slot, sizeof d->key[0], "%s", key);
    else
        d->all = true;
    atomic_store(&d->any, true);
    unlock_doubts(d);
}

void bwi_posix_forget_doubt(struct bwi_posix *p, const char *key) {
    struct bwi_posix_doubts *d = &p->doubts;
    size_t len = strlen(key);
    bool is_prefix = len > 0 && key[len - 1] == '/';
    if (!atomic_load(&d->any)) return;
    lock_doubts(d);
    for (size_t i = 0; i < BWI_POSIX_DOUBTS; i++)
        if (is_prefix ? strncmp(d->key[i], key, len) == 0 : strcmp(d->key[i], key) == 0) d->key[i][0] = '\0';
    unlock_doubts(d);
}

bool bwi_posix_in_doubt(struct bwi_posix *p, const char *key) {
    struct bwi_posix_doubts *d = &p->doubts;
    if (!atomic_load(&d->any)) return false;
    lock_doubts(d);
    bool doubt = d->all || doubt_slot(d, key) != NULL;
    unlock_doubts(d);
    return doubt;
}

bool bwi_posix_doubt_in(struct bwi_posix *p, const char *prefix) {
    struct bwi_posix_doubts *d = &p->doubts;
    size_t len = strlen(prefix);
    if (!atomic_load(&d->any)) return false;
    lock_doubts(d);
    bool doubt = d->all;
    for (size_t i = 0; i < BWI_POSIX_DOUBTS && !doubt; i++)
        doubt = d->key[i][0] && strncmp(d->key[i], prefix, len) == 0 && !strchr(d->key[i] + len, '/');
    unlock_doubts(d);
    return doubt;
}

/* ---- making it durable ---- */

int bwi_posix_settle(struct bwi_store_op *op, const char *key, int dirfd) {
    struct bwi_posix *p = bwi_posix_of(op);
    int rc = p->os->fsync(p->os, dirfd);
    if (rc == 0) {
        bwi_posix_forget_doubt(p, key);
        return 0;
    }
    note_doubt(p, key);
    bwi_store_errno(op, rc, "fsync the directory after the object got its name");
    op->error.status = BW_E_UNKNOWN;
    return rc;
}

int bwi_posix_settle_same(struct bwi_store_op *op, int dirfd, int fd) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    int rc = os->fsync(os, fd);
    if (rc < 0) return bwi_store_errno(op, rc, "fsync the object that is there already");
    rc = os->fsync(os, dirfd);
    if (rc < 0) return bwi_store_errno(op, rc, "fsync the directory of the object that is there already");
    op->outcome = BWI_STORE_SAME;
    return 0;
}

/* 1: the file holds exactly these bytes, 0: others. */
static int compare(struct bwi_store_op *op, int fd, uint64_t *ret_size) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    struct bwi_os_stat st;
    int rc = os->stat_fd(os, fd, &st);
    if (rc < 0) return bwi_store_errno(op, rc, "stat");
    *ret_size = st.size_bytes;
    if (st.size_bytes != op->data.len) return 0;
    uint8_t *buf = bwi_malloc(COMPARE_BYTES);
    if (!buf) return bwi_store_errno(op, -ENOMEM, "compare with the object that is there already");
    int same = 1;
    for (size_t at = 0; same == 1 && at < op->data.len;) {
        size_t n = op->data.len - at < COMPARE_BYTES ? op->data.len - at : COMPARE_BYTES;
        int64_t got = os->pread(os, fd, buf, n, at);
        if (got < 0)
            same = bwi_store_errno(op, (int)got, "read the object that is there already");
        else if ((size_t)got < n || memcmp(buf, op->data.ptr + at, n) != 0)
            same = 0;
        at += n;
    }
    bwi_free(buf);
    return same;
}

static int write_over(struct bwi_store_op *op, int dirfd, const char *leaf) {
    char tmp[BWI_POSIX_TMP_BYTES];
    int rc = write_tmp(op, dirfd, tmp);
    if (rc == 0) rc = bwi_posix_publish_over(op, dirfd, tmp, leaf);
    return rc < 0 ? rc : bwi_posix_settle(op, op->key, dirfd);
}

/* The same bytes are there already. What was decided when they got their name stays so: the same bytes take their
 * place at once. */
static int settle_existing(struct bwi_store_op *op, int dirfd, const char *leaf, int fd) {
    struct bwi_posix *p = bwi_posix_of(op);
    if (!bwi_posix_in_doubt(p, op->key)) {
        int rc = bwi_posix_settle_same(op, dirfd, fd);
        if (rc < 0) note_doubt(p, op->key);
        return rc;
    }
    int rc = write_over(op, dirfd, leaf);
    if (rc == 0) op->outcome = BWI_STORE_SAME;
    return rc;
}

/* 0: there is no such object; 1: there is, and the operation is decided. */
static int meet_existing(struct bwi_store_op *op, int dirfd, const char *leaf) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    uint64_t size = 0;
    int fd = bwi_posix_open_existing(op, dirfd, leaf);
    if (fd == -ENOENT) {
        bw_error_clear(&op->error);
        return 0;
    }
    if (fd < 0) return fd;
    int rc = compare(op, fd, &size);
    if (rc == 1)
        rc = settle_existing(op, dirfd, leaf, fd);
    else if (rc == 0) {
        op->outcome = BWI_STORE_OTHER;
        bwi_store_fail(op, BW_E_EXISTS,
                       "exists already with other content: %zu bytes were offered, %" PRIu64 " are there", op->data.len,
                       size);
    }
    os->close(os, fd);
    return rc < 0 ? rc : 1;
}

/* -ENOENT: the directory or the temporary went away in between (a deletion of the prefix); it can be tried again. */
static int try_create(struct bwi_store_op *op, int dirfd, const char *leaf) {
    char tmp[BWI_POSIX_TMP_BYTES];
    int rc = meet_existing(op, dirfd, leaf);
    if (rc != 0) return rc;
    rc = write_tmp(op, dirfd, tmp);
    if (rc == 0) rc = bwi_posix_publish(op, dirfd, tmp, leaf);
    if (rc < 0) return rc;
    if (rc == 1) {
        rc = meet_existing(op, dirfd, leaf);
        return rc == 0 ? bwi_store_errno(op, -ENOENT, "the object was there and is gone") : rc;
    }
    rc = bwi_posix_settle(op, op->key, dirfd);
    if (rc == 0) op->outcome = BWI_STORE_CREATED;
    return rc;
}

/* Runs `make` in the directory of the key, again when that directory is removed under it. */
static void in_directory(struct bwi_store_op *op, int (*make)(struct bwi_store_op *op, int dirfd, const char *leaf)) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    const char *leaf = NULL;
    for (unsigned i = 0; i < BWI_POSIX_TRIES; i++) {
        bw_error_clear(&op->error);
        int dirfd = bwi_posix_open_parent(op, true, &leaf), rc = dirfd;
        if (dirfd >= 0) {
            rc = make(op, dirfd, leaf);
            os->close(os, dirfd);
        }
        if (rc != -ENOENT) return;
    }
    if (op->error.status == BW_E_NOTFOUND) op->error.status = BW_E_IO; /* what is created cannot be "not found" */
}

void bwi_posix_create(struct bwi_store_op *op) {
    in_directory(op, try_create);
}
void bwi_posix_replace(struct bwi_store_op *op) {
    in_directory(op, write_over);
}
