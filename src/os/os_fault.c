/* SPDX-License-Identifier: Apache-2.0 */
/* The table that makes a chosen call fail. A call that is made to fail does not reach the table below, with two
 * exceptions that a caller has to cope with: a failing pwrite has written half, and a failing close has closed. */
#include "base/vec.h"
#include "os/os.h"
#include "os/thread.h"
#include <errno.h>
#include <stdlib.h>

struct bwi_os_fault {
    struct bwi_os table;
    struct bwi_os *below;
    struct bwi_mutex lock; /* guards all that follows */
    uint64_t wait;         /* matching calls that still succeed */
    uint64_t left;         /* matching calls that then fail */
    uint32_t mask;
    int err; /* negative */
    uint64_t fired;
    uint64_t count[BWI_OS_CALLS];
};

static struct bwi_os_fault *fault_of(struct bwi_os *os) {
    return (void *)os; /* its first member */
}

/* Counts a call; 0, or the error that it has to give. */
static int hit(struct bwi_os *os, enum bwi_os_call call) {
    struct bwi_os_fault *f = fault_of(os);
    int err = 0;
    bwi_mutex_lock(&f->lock);
    f->count[call]++;
    if (f->left > 0 && (f->mask & UINT32_C(1) << call) != 0) {
        if (f->wait > 0) {
            f->wait--;
        } else {
            if (f->left != UINT64_MAX) f->left--;
            f->fired++;
            err = f->err;
        }
    }
    bwi_mutex_unlock(&f->lock);
    return err;
}

/* The body of a call that simply passes on when it is not made to fail. */
#define PASS(kind, method, ...)                                                                                        \
    const int err = hit(os, kind);                                                                                     \
    if (err != 0) return err;                                                                                          \
    struct bwi_os *below = fault_of(os)->below;                                                                        \
    return below->method(below, __VA_ARGS__)

static int fault_open_root(struct bwi_os *os, const char *path, bool create) {
    PASS(BWI_OS_OPEN, open_root, path, create);
}

static int fault_open_dir(struct bwi_os *os, int dirfd, const char *path) {
    PASS(BWI_OS_OPEN, open_dir, dirfd, path);
}

static int fault_open_read(struct bwi_os *os, int dirfd, const char *path) {
    PASS(BWI_OS_OPEN, open_read, dirfd, path);
}

static int fault_open_new(struct bwi_os *os, int dirfd, const char *path) {
    PASS(BWI_OS_OPEN, open_new, dirfd, path);
}

/* A table without one of the next two gets none by being counted. */
static int fault_open_alone(struct bwi_os *os, int dirfd, const char *path) {
    if (fault_of(os)->below->open_alone == NULL) return -EOPNOTSUPP;
    PASS(BWI_OS_OPEN, open_alone, dirfd, path);
}

static int fault_open_direct(struct bwi_os *os, int fd, bool write) {
    if (fault_of(os)->below->open_direct == NULL) return -EOPNOTSUPP;
    PASS(BWI_OS_OPEN, open_direct, fd, write);
}

static unsigned fault_direct_memory(struct bwi_os *os, int fd) {
    struct bwi_os *below = fault_of(os)->below;
    return below->direct_memory ? below->direct_memory(below, fd) : BWI_OS_DIRECT_ALIGN;
}

static int64_t fault_cached(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes) {
    if (fault_of(os)->below->cached == NULL) return -EOPNOTSUPP;
    PASS(BWI_OS_STAT, cached, fd, offset, bytes);
}

static int fault_open_lock(struct bwi_os *os, int dirfd, const char *path) {
    PASS(BWI_OS_OPEN, open_lock, dirfd, path);
}

static int fault_close(struct bwi_os *os, int fd) {
    const int err = hit(os, BWI_OS_CLOSE);
    struct bwi_os *below = fault_of(os)->below;
    const int rc = below->close(below, fd);
    return err != 0 ? err : rc;
}

static int64_t fault_pread(struct bwi_os *os, int fd, void *buf, size_t n, uint64_t offset) {
    PASS(BWI_OS_READ, pread, fd, buf, n, offset);
}

static int64_t fault_pwrite(struct bwi_os *os, int fd, const void *buf, size_t n, uint64_t offset) {
    const int err = hit(os, BWI_OS_WRITE);
    struct bwi_os *below = fault_of(os)->below;
    const int64_t put = below->pwrite(below, fd, buf, err != 0 ? n / 2 : n, offset);
    return err != 0 ? err : put;
}

static int fault_fsync(struct bwi_os *os, int fd) {
    PASS(BWI_OS_FSYNC, fsync, fd);
}

static int fault_truncate(struct bwi_os *os, int fd, uint64_t size) {
    PASS(BWI_OS_TRUNCATE, truncate, fd, size);
}

static int fault_reserve(struct bwi_os *os, int fd, uint64_t bytes) {
    PASS(BWI_OS_RESERVE, reserve, fd, bytes);
}

static int fault_stat_fd(struct bwi_os *os, int fd, struct bwi_os_stat *ret) {
    PASS(BWI_OS_STAT, stat_fd, fd, ret);
}

static int fault_stat_at(struct bwi_os *os, int dirfd, const char *path, struct bwi_os_stat *ret) {
    PASS(BWI_OS_STAT, stat_at, dirfd, path, ret);
}

static int fault_link(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    PASS(BWI_OS_LINK, link, dirfd, from, to);
}

static int fault_rename_new(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    PASS(BWI_OS_RENAME, rename_new, dirfd, from, to);
}

static int fault_rename_over(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    PASS(BWI_OS_RENAME, rename_over, dirfd, from, to);
}

static int fault_move_new(struct bwi_os *os, int from_dirfd, const char *from, int to_dirfd, const char *to) {
    if (fault_of(os)->below->move_new == NULL) return -EOPNOTSUPP;
    PASS(BWI_OS_RENAME, move_new, from_dirfd, from, to_dirfd, to);
}

static int fault_unlink(struct bwi_os *os, int dirfd, const char *path) {
    PASS(BWI_OS_UNLINK, unlink, dirfd, path);
}

static int fault_mkdir(struct bwi_os *os, int dirfd, const char *path) {
    PASS(BWI_OS_MKDIR, mkdir, dirfd, path);
}

static int fault_rmdir(struct bwi_os *os, int dirfd, const char *path) {
    PASS(BWI_OS_RMDIR, rmdir, dirfd, path);
}

static int fault_dir_open(struct bwi_os *os, int dirfd, const char *path, struct bwi_os_dir **ret) {
    PASS(BWI_OS_READDIR, dir_open, dirfd, path, ret);
}

static int fault_dir_next(struct bwi_os *os, struct bwi_os_dir *d, struct bwi_os_dirent *ret) {
    PASS(BWI_OS_READDIR, dir_next, d, ret);
}

static void fault_dir_close(struct bwi_os *os, struct bwi_os_dir *d) {
    struct bwi_os *below = fault_of(os)->below;
    below->dir_close(below, d);
}

static int fault_space(struct bwi_os *os, int fd, struct bwi_os_space *ret) {
    PASS(BWI_OS_SPACE, space, fd, ret);
}

static int fault_lock(struct bwi_os *os, int fd) {
    PASS(BWI_OS_LOCK, lock, fd);
}

static int fault_unlock(struct bwi_os *os, int fd) {
    struct bwi_os *below = fault_of(os)->below;
    return below->unlock(below, fd);
}

static int fault_write_behind(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes) {
    struct bwi_os *below = fault_of(os)->below;
    return below->write_behind ? below->write_behind(below, fd, offset, bytes) : 0;
}

static int fault_advise_done(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes) {
    struct bwi_os *below = fault_of(os)->below;
    return below->advise_done(below, fd, offset, bytes);
}

/* Nothing is written by a write that is refused here. */
static int fault_admit(struct bwi_os *os, enum bwi_os_call call) {
    return hit(os, call);
}

static const struct bwi_os fault_table = {
    .open_root = fault_open_root,
    .open_dir = fault_open_dir,
    .open_read = fault_open_read,
    .open_new = fault_open_new,
    .open_alone = fault_open_alone,
    .open_direct = fault_open_direct,
    .direct_memory = fault_direct_memory,
    .cached = fault_cached,
    .open_lock = fault_open_lock,
    .close = fault_close,
    .pread = fault_pread,
    .pwrite = fault_pwrite,
    .fsync = fault_fsync,
    .truncate = fault_truncate,
    .reserve = fault_reserve,
    .stat_fd = fault_stat_fd,
    .stat_at = fault_stat_at,
    .link = fault_link,
    .rename_new = fault_rename_new,
    .move_new = fault_move_new,
    .rename_over = fault_rename_over,
    .unlink = fault_unlink,
    .mkdir = fault_mkdir,
    .rmdir = fault_rmdir,
    .dir_open = fault_dir_open,
    .dir_next = fault_dir_next,
    .dir_close = fault_dir_close,
    .space = fault_space,
    .lock = fault_lock,
    .unlock = fault_unlock,
    .advise_done = fault_advise_done,
    .write_behind = fault_write_behind,
    .admit = fault_admit,
};

int bwi_os_fault_new(struct bwi_os *below, struct bwi_os_fault **ret) {
    struct bwi_os_fault *f = bwi_calloc(1, sizeof *f);
    if (f == NULL) return -ENOMEM;
    const int rc = bwi_mutex_init(&f->lock);
    if (rc != 0) {
        bwi_free(f);
        return rc;
    }
    f->table = fault_table;
    if (below->admit == NULL) f->table.admit = NULL;
    f->below = below;
    *ret = f;
    return 0;
}

void bwi_os_fault_free(struct bwi_os_fault *f) {
    if (f == NULL) return;
    bwi_mutex_fini(&f->lock);
    bwi_free(f);
}

struct bwi_os *bwi_os_fault_table(struct bwi_os_fault *f) {
    return &f->table;
}

void bwi_os_fault_at(struct bwi_os_fault *f, uint64_t n, uint64_t repeat, uint32_t mask, int err) {
    bwi_mutex_lock(&f->lock);
    f->wait = n > 0 ? n - 1 : 0;
    f->left = n > 0 ? repeat : 0;
    f->mask = mask;
    f->err = -abs(err);
    bwi_mutex_unlock(&f->lock);
}

/* The lock is taken from const objects too: reading a counter does not change what the object is. */
static uint64_t read_counter(const struct bwi_os_fault *f, const uint64_t *counter) {
    struct bwi_mutex *lock = (struct bwi_mutex *)(uintptr_t)&f->lock;
    bwi_mutex_lock(lock);
    const uint64_t v = *counter;
    bwi_mutex_unlock(lock);
    return v;
}

uint64_t bwi_os_fault_fired(const struct bwi_os_fault *f) {
    return read_counter(f, &f->fired);
}

uint64_t bwi_os_fault_count(const struct bwi_os_fault *f, enum bwi_os_call call) {
    return call < BWI_OS_CALLS ? read_counter(f, &f->count[call]) : 0;
}
