/* SPDX-License-Identifier: Apache-2.0 */
/* Advisory locks: flock on a hidden file in the directory. The kernel drops it with the process. */
#include "base/vec.h"
#include "store/posix.h"
#include <errno.h>
#include <string.h>

#define LOCK_NAME ".lock"

/* A file that was unlinked (a deletion of the prefix) after it was opened locks nobody out any more. */
static int still_named(struct bwi_os *os, int dirfd, int fd) {
    struct bwi_os_stat open, named;
    int rc = os->stat_fd(os, fd, &open);
    if (rc == 0) rc = os->stat_at(os, dirfd, LOCK_NAME, &named);
    if (rc != 0) return rc;
    return open.inode == named.inode && open.device == named.device ? 0 : -ENOENT;
}

/* The locked descriptor. -ENOENT and -EEXIST: somebody made or removed the file at the same moment; again. */
static int try_lock(struct bwi_store_op *op, int dirfd) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    int fd = os->open_lock(os, dirfd, LOCK_NAME);
    if (fd == -EEXIST || fd == -ENOENT) return fd;
    if (fd < 0) return bwi_store_errno(op, fd, "open " LOCK_NAME);
    int rc = os->lock(os, fd);
    if (rc == -EWOULDBLOCK)
        bwi_store_fail(op, BW_E_BUSY, "held by another process, or by another part of this one");
    else if (rc < 0)
        bwi_store_errno(op, rc, "flock " LOCK_NAME);
    if (rc == 0) {
        rc = still_named(os, dirfd, fd);
        if (rc < 0 && rc != -ENOENT) bwi_store_errno(op, rc, "stat " LOCK_NAME);
    }
    if (rc == 0) return fd;
    os->close(os, fd);
    return rc;
}

void bwi_posix_lock(struct bwi_store_op *op) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    size_t len = strlen(op->key);
    struct bwi_store_lock *lock = bwi_calloc(1, sizeof *lock);
    if (!lock) {
        bwi_store_errno(op, -ENOMEM, "a lock");
        return;
    }
    int fd = -ENOENT;
    for (unsigned i = 0; i < BWI_POSIX_TRIES && (fd == -ENOENT || fd == -EEXIST); i++) {
        bw_error_clear(&op->error);
        int dirfd = bwi_posix_open_dir(op, op->key, len > 0 ? len - 1 : 0, true);
        fd = dirfd < 0 ? dirfd : try_lock(op, dirfd);
        if (dirfd >= 0) os->close(os, dirfd);
    }
    if (fd >= 0) {
        lock->fd = fd;
        op->lock = lock;
        return;
    }
    bwi_free(lock);
    bwi_store_errno(op, -EBUSY, LOCK_NAME " comes and goes"); /* unless the cause is known */
    if (op->error.status == BW_E_NOTFOUND) op->error.status = BW_E_IO;
}

void bwi_posix_unlock(struct bwi_store_op *op) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    if (!op->lock) return;
    os->unlock(os, op->lock->fd); /* a child that was forked meanwhile has the descriptor too */
    os->close(os, op->lock->fd);
    bwi_free(op->lock);
}
