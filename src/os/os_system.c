/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's table of system calls: files and names. Roots and listings are in os_dir.c, the page cache in
 * os_cache.c. */
#include "os/system.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/statfs.h>
#include <unistd.h>

/* Evaluates a call that returns -1 and errno until no signal gets in its way. */
#define RESTART(rc, call)                                                                                              \
    do {                                                                                                               \
        (rc) = (call);                                                                                                 \
    } while ((rc) == -1 && errno == EINTR)

int bwi_os_result(int rc) {
    return rc == -1 ? -errno : rc;
}

int bwi_os_descriptor(int fd) {
    if (fd < 0) return -errno;
    if (fd > STDERR_FILENO) return fd;
    const int moved = bwi_os_result(fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
    (void)close(fd);
    return moved;
}

enum bwi_os_type bwi_os_type_of(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFREG: return BWI_OS_FILE;
    case S_IFDIR: return BWI_OS_DIR;
    case S_IFLNK: return BWI_OS_SYMLINK;
    case S_IFIFO: return BWI_OS_FIFO;
    case S_IFSOCK: return BWI_OS_SOCKET;
    case S_IFCHR:
    case S_IFBLK: return BWI_OS_DEVICE;
    default: return BWI_OS_OTHER;
    }
}

static int system_close(struct bwi_os *os, int fd) {
    (void)os;
    /* Linux has released the descriptor even when a signal came; closing it again could hit somebody else's. */
    return close(fd) == 0 || errno == EINTR ? 0 : -errno;
}

static int system_open_dir(struct bwi_os *os, int dirfd, const char *path) {
    (void)os;
    int fd;
    RESTART(fd, openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    return bwi_os_descriptor(fd);
}

/* O_NONBLOCK was for a FIFO that took the file's place at the last moment; on a regular file io_uring would honour
 * it. */
static int check_regular(int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0) return -errno;
    if (!S_ISREG(st.st_mode)) return -EINVAL;
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) return -errno;
    return 0;
}

/* Opens what is there, if it is a regular file. It is looked at before it is opened as well: opening alone wakes the
 * other side of a FIFO and can start a device. */
static int open_regular(int dirfd, const char *path, int flags) {
    struct stat st;
    if (fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) != 0) return -errno;
    if (!S_ISREG(st.st_mode)) return -EINVAL;
    int fd;
    RESTART(fd, openat(dirfd, path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    fd = bwi_os_descriptor(fd);
    if (fd < 0) return fd == -ELOOP ? -EINVAL : fd;
    const int rc = check_regular(fd);
    if (rc == 0) return fd;
    (void)close(fd);
    return rc;
}

static int system_open_read(struct bwi_os *os, int dirfd, const char *path) {
    (void)os;
    return open_regular(dirfd, path, O_RDONLY);
}

/* A mode that the umask made narrower is put right. File systems without modes (their mount options rule) refuse;
 * that is no error. */
static int fix_mode(int rc) {
    return rc == 0 || errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -errno;
}

static int exact_file_mode(int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0) return -errno;
    return (st.st_mode & 0777) == BWI_OS_FILE_MODE ? 0 : fix_mode(fchmod(fd, BWI_OS_FILE_MODE));
}

static int system_open_new(struct bwi_os *os, int dirfd, const char *path) {
    int fd;
    RESTART(fd, openat(dirfd, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, BWI_OS_FILE_MODE));
    if (fd < 0) return -errno;
    fd = bwi_os_descriptor(fd);
    const int rc = fd < 0 ? fd : exact_file_mode(fd);
    if (rc == 0) return fd;
    if (fd >= 0) (void)system_close(os, fd);
    (void)unlinkat(dirfd, path, 0);
    return rc;
}

/* A lease for writing is granted only where no other descriptor, and so no mapping, has the file open: an open one by
 * whatever name, one that came through /proc, one of another user. Whoever opens it at this very moment makes the
 * kernel signal the holder: this thread, not the process, and not by SIGIO, which kills. */
static int check_alone(int fd) {
    const struct f_owner_ex me = {F_OWNER_TID, gettid()};
    if (fcntl(fd, F_SETOWN_EX, &me) != 0 || fcntl(fd, F_SETSIG, SIGURG) != 0) return -EOPNOTSUPP;
    if (fcntl(fd, F_SETLEASE, F_WRLCK) != 0) return errno == EAGAIN ? -EBUSY : -EOPNOTSUPP;
    const bool held = fcntl(fd, F_GETLEASE) == F_WRLCK;
    if (fcntl(fd, F_SETLEASE, F_UNLCK) != 0) return -errno;
    return held ? 0 : -EBUSY;
}

static int check_like_new(int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0) return -errno;
    const bool ours = st.st_uid == geteuid() && st.st_gid == getegid() && (st.st_mode & 07777) == BWI_OS_FILE_MODE;
    return ours && st.st_nlink == 1 ? 0 : -EBUSY;
}

static int system_open_alone(struct bwi_os *os, int dirfd, const char *path) {
    const int fd = open_regular(dirfd, path, O_RDWR);
    if (fd < 0) return fd;
    int rc = check_like_new(fd);
    if (rc == 0) rc = check_alone(fd);
    if (rc == 0) return fd;
    (void)system_close(os, fd);
    return rc;
}

/* -ENOENT and -EEXIST: somebody made or removed the file at the same moment. */
static int system_open_lock(struct bwi_os *os, int dirfd, const char *path) {
    const int fd = open_regular(dirfd, path, O_RDWR);
    return fd == -ENOENT ? system_open_new(os, dirfd, path) : fd;
}

/* Whether [offset, offset + n) can be addressed. */
static bool offset_fits(uint64_t offset, size_t n) {
    return offset <= INT64_MAX && n <= INT64_MAX - offset;
}

static int64_t system_pread(struct bwi_os *os, int fd, void *buf, size_t n, uint64_t offset) {
    (void)os;
    if (!offset_fits(offset, n)) return -EINVAL;
    size_t done = 0;
    while (done < n) {
        ssize_t got;
        RESTART(got, pread(fd, (char *)buf + done, n - done, (off_t)(offset + done)));
        if (got < 0 && errno == EINVAL && done > 0)
            break; /* past the page cache the rest at the end is no whole block */
        if (got < 0) return -errno;
        if (got == 0) break;
        done += (size_t)got;
    }
    return (int64_t)done;
}

static int64_t system_pwrite(struct bwi_os *os, int fd, const void *buf, size_t n, uint64_t offset) {
    (void)os;
    if (!offset_fits(offset, n)) return -EFBIG;
    size_t done = 0;
    while (done < n) {
        ssize_t put;
        RESTART(put, pwrite(fd, (const char *)buf + done, n - done, (off_t)(offset + done)));
        if (put < 0) return -errno;
        if (put == 0) return -EIO;
        done += (size_t)put;
    }
    return (int64_t)done;
}

static int system_fsync(struct bwi_os *os, int fd) {
    (void)os;
    int rc;
    RESTART(rc, fsync(fd));
    return bwi_os_result(rc);
}

static int system_truncate(struct bwi_os *os, int fd, uint64_t size) {
    (void)os;
    if (size > INT64_MAX) return -EFBIG;
    int rc;
    RESTART(rc, ftruncate(fd, (off_t)size));
    return bwi_os_result(rc);
}

/* What its counts of blocks mean. f_bsize is the size of a good transfer, which may be another number (FUSE). */
static uint64_t block_bytes(const struct statfs *fs) {
    return (uint64_t)(fs->f_frsize > 0 ? fs->f_frsize : fs->f_bsize);
}

/* Whether all that is free would not be enough beside what the file has already. A file system that does not say how
 * much that is has no blocks. */
static bool is_beyond_free(int fd, uint64_t bytes) {
    struct statfs fs;
    struct stat st;
    int rc;
    RESTART(rc, fstatfs(fd, &fs));
    if (rc != 0 || fs.f_blocks == 0 || block_bytes(&fs) == 0) return false;
    const uint64_t has = fstat(fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
    return bytes > has && (bytes - has) / block_bytes(&fs) > fs.f_bfree;
}

/* Not posix_fallocate: where the file system cannot reserve, the C library would write zeros through the whole file.
 * And nothing is asked for that cannot be had: ext4 takes all that is free before it says no, and whoever else writes
 * to that disk meanwhile finds it full. */
static int system_reserve(struct bwi_os *os, int fd, uint64_t bytes) {
    (void)os;
    if (bytes == 0) return 0;
    if (bytes > INT64_MAX) return -EFBIG;
    if (is_beyond_free(fd, bytes)) return -ENOSPC;
    int rc;
    RESTART(rc, fallocate(fd, 0, 0, (off_t)bytes));
    /* EPERM: a filter of system calls (seccomp) that does not know this one; who may not write hears it again then. */
    if (rc != 0 && (errno == ENOSYS || errno == EPERM)) return -EOPNOTSUPP;
    return bwi_os_result(rc);
}

/* A time that does not fit is one that anybody may give a file: the nearest that does. */
static int64_t whole_ms(const struct timespec *t) {
    int64_t ms;
    if (__builtin_mul_overflow((int64_t)t->tv_sec, INT64_C(1000), &ms) ||
        __builtin_add_overflow(ms, t->tv_nsec / 1000000, &ms))
        return t->tv_sec < 0 ? INT64_MIN : INT64_MAX;
    return ms;
}

static void fill_stat(const struct stat *st, struct bwi_os_stat *ret) {
    *ret = (struct bwi_os_stat){
        .type = bwi_os_type_of(st->st_mode),
        .size_bytes = (uint64_t)st->st_size,
        .nlink = st->st_nlink,
        .device = st->st_dev,
        .inode = st->st_ino,
        .mtime_ms = whole_ms(&st->st_mtim),
        .alloc_bytes = (uint64_t)st->st_blocks * 512,
    };
}

static int system_stat_fd(struct bwi_os *os, int fd, struct bwi_os_stat *ret) {
    (void)os;
    struct stat st;
    struct statx x;
    if (fstat(fd, &st) != 0) return -errno;
    fill_stat(&st, ret);
    if (ret->type == BWI_OS_DIR && statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &x) == 0 && (x.stx_mask & STATX_BTIME))
        ret->birth_ns = (int64_t)x.stx_btime.tv_sec * 1000000000 + x.stx_btime.tv_nsec;
    return 0;
}

static int system_stat_at(struct bwi_os *os, int dirfd, const char *path, struct bwi_os_stat *ret) {
    (void)os;
    struct stat st;
    if (fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) != 0) return -errno;
    fill_stat(&st, ret);
    return 0;
}

static int system_link(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    (void)os;
    return bwi_os_result(linkat(dirfd, from, dirfd, to, 0));
}

static int system_move_new(struct bwi_os *os, int from_dirfd, const char *from, int to_dirfd, const char *to) {
    (void)os;
    if (renameat2(from_dirfd, from, to_dirfd, to, RENAME_NOREPLACE) == 0) return 0;
    /* Old kernels do not know the call, file systems without the flag say EINVAL. */
    return errno == ENOSYS || errno == EINVAL ? -EOPNOTSUPP : -errno;
}

static int system_rename_new(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    return system_move_new(os, dirfd, from, dirfd, to);
}

static int system_rename_over(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    (void)os;
    return bwi_os_result(renameat(dirfd, from, dirfd, to));
}

static int system_unlink(struct bwi_os *os, int dirfd, const char *path) {
    (void)os;
    return bwi_os_result(unlinkat(dirfd, path, 0));
}

int bwi_os_mkdir_at(int dirfd, const char *path) {
    if (mkdirat(dirfd, path, BWI_OS_DIR_MODE) != 0) return -errno;
    struct stat st;
    int rc = fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
    /* A set-group-ID bit that came from the directory above stays. */
    if (rc == 0 && (st.st_mode & 0777) != BWI_OS_DIR_MODE) {
        rc = fix_mode(fchmodat(dirfd, path, (st.st_mode & 07000) | BWI_OS_DIR_MODE, 0));
    }
    if (rc != 0) (void)unlinkat(dirfd, path, AT_REMOVEDIR);
    return rc;
}

static int system_mkdir(struct bwi_os *os, int dirfd, const char *path) {
    (void)os;
    return bwi_os_mkdir_at(dirfd, path);
}

static int system_rmdir(struct bwi_os *os, int dirfd, const char *path) {
    (void)os;
    return bwi_os_result(unlinkat(dirfd, path, AT_REMOVEDIR));
}

static uint64_t blocks_to_bytes(uint64_t blocks, uint64_t block_bytes) {
    uint64_t bytes;
    return __builtin_mul_overflow(blocks, block_bytes, &bytes) ? UINT64_MAX : bytes;
}

static int system_space(struct bwi_os *os, int fd, struct bwi_os_space *ret) {
    (void)os;
    struct statfs fs;
    int rc;
    RESTART(rc, fstatfs(fd, &fs));
    if (rc != 0) return -errno;
    *ret = (struct bwi_os_space){
        .free_bytes = blocks_to_bytes(fs.f_bavail, block_bytes(&fs)),
        .total_bytes = blocks_to_bytes(fs.f_blocks, block_bytes(&fs)),
        .fs_type = (uint64_t)fs.f_type & UINT32_MAX, /* a magic number of 32 bits, sign-extended on some machines */
    };
    return 0;
}

static int system_lock(struct bwi_os *os, int fd) {
    (void)os;
    int rc;
    RESTART(rc, flock(fd, LOCK_EX | LOCK_NB));
    return bwi_os_result(rc);
}

static int system_unlock(struct bwi_os *os, int fd) {
    (void)os;
    int rc;
    RESTART(rc, flock(fd, LOCK_UN));
    return bwi_os_result(rc);
}

static int system_admit(struct bwi_os *os, enum bwi_os_call call) {
    (void)os;
    (void)call;
    return 0;
}

static const struct bwi_os system_table = {
    .open_root = bwi_os_system_open_root,
    .open_dir = system_open_dir,
    .open_read = system_open_read,
    .open_new = system_open_new,
    .open_alone = system_open_alone,
    .open_direct = bwi_os_system_open_direct,
    .direct_memory = bwi_os_system_direct_memory,
    .cached = bwi_os_system_cached,
    .open_lock = system_open_lock,
    .close = system_close,
    .pread = system_pread,
    .pwrite = system_pwrite,
    .fsync = system_fsync,
    .truncate = system_truncate,
    .reserve = system_reserve,
    .stat_fd = system_stat_fd,
    .stat_at = system_stat_at,
    .link = system_link,
    .rename_new = system_rename_new,
    .move_new = system_move_new,
    .rename_over = system_rename_over,
    .unlink = system_unlink,
    .mkdir = system_mkdir,
    .rmdir = system_rmdir,
    .dir_open = bwi_os_system_dir_open,
    .dir_next = bwi_os_system_dir_next,
    .dir_close = bwi_os_system_dir_close,
    .space = system_space,
    .lock = system_lock,
    .unlock = system_unlock,
    .advise_done = bwi_os_system_advise_done,
    .write_behind = bwi_os_system_write_behind,
    .admit = system_admit,
};

/* Constant, so that it lies in memory that nobody can write; calls take it only for the sake of other tables. */
struct bwi_os *bwi_os_system(void) {
    return (struct bwi_os *)(uintptr_t)&system_table;
}
