/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the kernel, turned into calls of the simulated table. The kernel caches no name and no attribute, and
 * writes through, so that it knows nothing that the disk could have lost. */
#define FUSE_USE_VERSION 35
#include "forgetful_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_MAX_BYTES 255
#define INO_UNKNOWN    0xffffffffu /* 0 would be a name that was removed */

struct view {
    struct forgetful_view v;
    struct bwi_os *os;
    int root;
    atomic_uint *mounted;
};

static struct view *view(void) {
    return fuse_get_context()->private_data;
}

static struct bwi_os *os_to_change(void) {
    struct view *w = view();
    w->v.before_each(w->v.user);
    return w->os;
}

/* "/a/b" is "a/b" of the root, and "/" is "." */
static const char *below(const char *path) {
    return path[1] != '\0' ? path + 1 : ".";
}

static int fd_of(const struct fuse_file_info *fi) {
    return (int)fi->fh;
}

static int keep(struct fuse_file_info *fi, int fd) {
    if (fd < 0) return fd;
    fi->fh = (uint64_t)fd;
    return 0;
}

static void fill_stat(const struct bwi_os_stat *from, struct stat *to) {
    memset(to, 0, sizeof *to);
    to->st_mode = from->type == BWI_OS_DIR ? S_IFDIR | 0700 : S_IFREG | 0600;
    to->st_nlink = from->type == BWI_OS_DIR ? 2 : (nlink_t)from->nlink;
    to->st_ino = from->inode;
    to->st_size = (off_t)from->size_bytes;
    to->st_blocks = (blkcnt_t)((from->alloc_bytes + 511) / 512);
    to->st_mtim.tv_sec = from->mtime_ms / 1000;
    to->st_mtim.tv_nsec = from->mtime_ms % 1000 * 1000000;
}

static int op_getattr(const char *path, struct stat *st, struct fuse_file_info *fi) {
    struct view *w = view();
    struct bwi_os_stat s;
    const int rc = fi != NULL ? w->os->stat_fd(w->os, fd_of(fi), &s) : w->os->stat_at(w->os, w->root, below(path), &s);
    if (rc == 0) fill_stat(&s, st);
    return rc;
}

/* --- files ---- */

static int op_create(const char *path, mode_t mode, struct fuse_file_info *fi) {
    struct bwi_os *os = os_to_change();
    (void)mode;
    return keep(fi, os->open_new(os, view()->root, below(path)));
}

static int op_open(const char *path, struct fuse_file_info *fi) {
    struct view *w = view();
    return keep(fi, w->os->open_read(w->os, w->root, below(path)));
}

static int op_release(const char *path, struct fuse_file_info *fi) {
    struct view *w = view();
    (void)path;
    return w->os->close(w->os, fd_of(fi));
}

static int op_read(const char *path, char *buf, size_t n, off_t offset, struct fuse_file_info *fi) {
    struct view *w = view();
    (void)path;
    return (int)w->os->pread(w->os, fd_of(fi), buf, n, (uint64_t)offset);
}

static int op_write(const char *path, const char *buf, size_t n, off_t offset, struct fuse_file_info *fi) {
    struct bwi_os *os = os_to_change();
    (void)path;
    return (int)os->pwrite(os, fd_of(fi), buf, n, (uint64_t)offset);
}

static int op_truncate(const char *path, off_t size, struct fuse_file_info *fi) {
    struct bwi_os *os = os_to_change();
    if (fi != NULL) return os->truncate(os, fd_of(fi), (uint64_t)size);
    const int fd = os->open_read(os, view()->root, below(path));
    if (fd < 0) return fd;
    const int rc = os->truncate(os, fd, (uint64_t)size);
    (void)os->close(os, fd);
    return rc;
}

static int op_fallocate(const char *path, int mode, off_t offset, off_t bytes, struct fuse_file_info *fi) {
    struct bwi_os *os = os_to_change();
    (void)path;
    return mode == 0 ? os->reserve(os, fd_of(fi), (uint64_t)(offset + bytes)) : -EOPNOTSUPP;
}

static int op_fsync(const char *path, int only_data, struct fuse_file_info *fi) {
    struct bwi_os *os = os_to_change();
    (void)path;
    (void)only_data;
    return os->fsync(os, fd_of(fi));
}

/* --- names ---- */

static int op_link(const char *from, const char *to) {
    struct bwi_os *os = os_to_change();
    return os->link(os, view()->root, below(from), below(to));
}

static int op_rename(const char *from, const char *to, unsigned flags) {
    struct bwi_os *os = os_to_change();
    if (flags == RENAME_NOREPLACE) return os->rename_new(os, view()->root, below(from), below(to));
    return flags == 0 ? os->rename_over(os, view()->root, below(from), below(to)) : -EINVAL;
}

static int op_unlink(const char *path) {
    struct bwi_os *os = os_to_change();
    return os->unlink(os, view()->root, below(path));
}

static int op_mkdir(const char *path, mode_t mode) {
    struct bwi_os *os = os_to_change();
    (void)mode;
    return os->mkdir(os, view()->root, below(path));
}

static int op_rmdir(const char *path) {
    struct bwi_os *os = os_to_change();
    return os->rmdir(os, view()->root, below(path));
}

static int op_opendir(const char *path, struct fuse_file_info *fi) {
    struct view *w = view();
    return keep(fi, w->os->open_dir(w->os, w->root, below(path)));
}

static int op_readdir(const char *path, void *buf, fuse_fill_dir_t add, off_t offset, struct fuse_file_info *fi,
                      enum fuse_readdir_flags flags) {
    struct view *w = view();
    struct bwi_os_dir *d = NULL;
    struct bwi_os_dirent e;
    (void)path, (void)offset, (void)flags;
    int rc = w->os->dir_open(w->os, fd_of(fi), ".", &d);
    while (rc >= 0 && (rc = w->os->dir_next(w->os, d, &e)) > 0) {
        struct stat st = {.st_mode = e.type == BWI_OS_DIR ? S_IFDIR : S_IFREG, .st_ino = INO_UNKNOWN};
        (void)add(buf, e.name, &st, 0, 0);
    }
    w->os->dir_close(w->os, d);
    return rc;
}

/* --- the rest ---- */

static int op_statfs(const char *path, struct statvfs *ret) {
    struct view *w = view();
    struct bwi_os_space s;
    (void)path;
    const int rc = w->os->space(w->os, w->root, &s);
    if (rc != 0) return rc;
    *ret = (struct statvfs){.f_bsize = 4096, .f_frsize = 4096, .f_namemax = NAME_MAX_BYTES};
    ret->f_blocks = s.total_bytes / 4096;
    ret->f_bfree = ret->f_bavail = s.free_bytes / 4096;
    return 0;
}

static int op_utimens(const char *path, const struct timespec t[2], struct fuse_file_info *fi) {
    struct view *w = view();
    (void)fi;
    return disk_touch(w->v.disk, below(path), t[1].tv_sec * 1000 + t[1].tv_nsec / 1000000) ? 0 : -ENOENT;
}

static int op_chmod(const char *path, mode_t mode, struct fuse_file_info *fi) {
    (void)path, (void)mode, (void)fi;
    return 0;
}

static void *op_init(struct fuse_conn_info *conn, struct fuse_config *cfg) {
    struct view *w = view();
    conn->want &= ~(unsigned)FUSE_CAP_WRITEBACK_CACHE;
    cfg->use_ino = 1;
    cfg->hard_remove = 1; /* what is open lives on without a name, here as there */
    cfg->nullpath_ok = 1;
    cfg->entry_timeout = cfg->attr_timeout = cfg->negative_timeout = 0;
    atomic_fetch_add(w->mounted, 1);
    return w;
}

static const struct fuse_operations ops = {
    .getattr = op_getattr,
    .create = op_create,
    .open = op_open,
    .release = op_release,
    .read = op_read,
    .write = op_write,
    .truncate = op_truncate,
    .fallocate = op_fallocate,
    .fsync = op_fsync,
    .fsyncdir = op_fsync,
    .link = op_link,
    .rename = op_rename,
    .unlink = op_unlink,
    .mkdir = op_mkdir,
    .rmdir = op_rmdir,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .releasedir = op_release,
    .statfs = op_statfs,
    .utimens = op_utimens,
    .chmod = op_chmod,
    .init = op_init,
};

bool forgetful_serve(const struct forgetful_view *v, const char *at, atomic_uint *mounted) {
    char name[] = "forgetful";
    char *argv[] = {name, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, argv);
    struct view w = {.v = *v, .os = disk_os(v->process), .mounted = mounted};
    w.root = w.os->open_root(w.os, "/disk", false);
    struct fuse *fuse = w.root >= 0 ? fuse_new(&args, &ops, sizeof ops, &w) : NULL;
    if (fuse == NULL) return false;
    const bool good = fuse_mount(fuse, at) == 0;
    if (good) (void)fuse_loop(fuse);
    if (good) fuse_unmount(fuse);
    fuse_destroy(fuse);
    return good;
}
