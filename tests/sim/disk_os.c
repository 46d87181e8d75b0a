/* SPDX-License-Identifier: Apache-2.0 */
/* The table of system calls in front of disks that forget: what one process sees and does. */
#include "disk_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DISKS_MAX  8u
#define FILES_MAX  256u
#define FIRST_FILE 3
#define FREE_BYTES (UINT64_C(1) << 40)

struct disk_file {
    struct disk_inode *inode; /* NULL: free */
    struct disk *disk;
    uint64_t generation;
    bool direct; /* past the page cache */
};

struct disk_process {
    struct bwi_os os; /* first */
    unsigned client;
    bool dead;
    struct disk_mount {
        char name[32];
        struct disk *disk;
    } mounts[DISKS_MAX];
    struct disk_file files[FILES_MAX];
    uint64_t changes, stop_at;    /* 0: never */
    uint64_t syncs, stop_at_sync; /* of directories of this name; likewise */
    const char *stop_name;        /* NULL: of any */
    void (*stop)(void *user);
    void *stop_user;
};

struct bwi_os_dir {
    struct bwi_os_dirent *list;
    size_t count, at;
};

static struct disk_process *process_of(struct bwi_os *os) {
    return (void *)os; /* its first member */
}

/* Before anything changes; what stops here has no effect. */
static int change(struct bwi_os *os) {
    struct disk_process *p = process_of(os);
    if (p->dead) return -EIO;
    if (++p->changes == p->stop_at) p->stop(p->stop_user);
    return p->dead ? -EIO : 0;
}

/* The same, before an fsync of a directory. */
static int change_by_sync(struct bwi_os *os, const struct disk_inode *i) {
    struct disk_process *p = process_of(os);
    const bool counts = i->type == BWI_OS_DIR && (p->stop_name == NULL || strcmp(i->name, p->stop_name) == 0);
    if (!p->dead && counts && ++p->syncs == p->stop_at_sync) p->stop(p->stop_user);
    return change(os);
}

/* --- descriptors ---- */

static bool is_alive(const struct disk_file *f) {
    return f->inode != NULL && f->generation == f->disk->generation;
}

static int file_at(struct bwi_os *os, int fd, struct disk_file **ret) {
    struct disk_process *p = process_of(os);
    if (p->dead) return -EIO;
    if (fd < FIRST_FILE || fd >= FIRST_FILE + (int)FILES_MAX) return -EBADF;
    struct disk_file *f = &p->files[fd - FIRST_FILE];
    if (f->inode == NULL) return -EBADF;
    if (!is_alive(f)) return -ESTALE;
    *ret = f;
    return 0;
}

static int inode_at(struct bwi_os *os, int fd, enum bwi_os_type type, struct disk_inode **ret) {
    struct disk_file *f = NULL;
    const int rc = file_at(os, fd, &f);
    if (rc != 0) return rc;
    if (f->inode->type != type) return type == BWI_OS_DIR ? -ENOTDIR : -EBADF;
    *ret = f->inode;
    return 0;
}

static int open_inode(struct disk_process *p, struct disk_inode *i) {
    for (unsigned k = 0; k < FILES_MAX; k++) {
        struct disk_file *f = &p->files[k];
        if (f->inode != NULL) continue;
        *f = (struct disk_file){.inode = i, .disk = i->disk, .generation = i->disk->generation};
        i->open++;
        return FIRST_FILE + (int)k;
    }
    return -EMFILE;
}

static void close_file(struct disk_file *f) {
    if (is_alive(f)) {
        f->inode->open--;
        if (f->inode->lock == f) f->inode->lock = NULL;
    }
    *f = (struct disk_file){0};
}

static int sim_close(struct bwi_os *os, int fd) {
    struct disk_file *f = NULL;
    const int rc = file_at(os, fd, &f);
    if (rc == -ESTALE) process_of(os)->files[fd - FIRST_FILE] = (struct disk_file){0};
    if (rc != 0) return rc;
    close_file(f);
    return 0;
}

/* --- opening ---- */

static int walk(struct bwi_os *os, int dirfd, const char *path, struct disk_inode **ret) {
    struct disk_inode *dir = NULL;
    const int rc = inode_at(os, dirfd, BWI_OS_DIR, &dir);
    return rc != 0 ? rc : disk_walk(dir, path, ret);
}

/* The directory in which a name is to change. Nothing can be made in one that was removed. */
static int walk_parent(struct bwi_os *os, int dirfd, const char *path, struct disk_inode **ret, const char **ret_leaf) {
    struct disk_inode *dir = NULL;
    int rc = inode_at(os, dirfd, BWI_OS_DIR, &dir);
    if (rc == 0) rc = disk_walk_parent(dir, path, ret, ret_leaf);
    if (rc == 0 && (*ret)->names == 0 && *ret != (*ret)->disk->root) rc = -ENOENT;
    return rc;
}

static struct disk *find_disk(struct disk_process *p, const char **path) {
    *path += strspn(*path, "/");
    const size_t len = strcspn(*path, "/");
    for (unsigned k = 0; k < DISKS_MAX; k++) {
        struct disk_mount *m = &p->mounts[k];
        if (m->disk == NULL || strlen(m->name) != len || memcmp(m->name, *path, len) != 0) continue;
        *path += len;
        return m->disk;
    }
    return NULL;
}

static void sync_dir(struct disk_inode *dir) {
    disk_sync_entries(dir);
    dir->disk->floor_seq = dir->disk->seq;
}

/* Like the kernel's: what is made is synced, and so is what was found. */
static int make_path(struct disk_inode *dir, const char *path, struct disk_inode **ret) {
    for (;;) {
        char name[DISK_NAME_MAX + 1];
        path += strspn(path, "/");
        const size_t len = strcspn(path, "/");
        if (len == 0) break;
        memcpy(name, path, len);
        name[len] = '\0';
        path += len;
        struct disk_inode *next = disk_lookup(dir, name);
        if (next != NULL && next->type != BWI_OS_DIR) return -ENOTDIR;
        if (next == NULL) {
            next = disk_inode_new(dir->disk, BWI_OS_DIR);
            disk_set_entry(dir, name, next);
        }
        sync_dir(dir);
        dir = next;
    }
    *ret = dir;
    return 0;
}

static int sim_open_root(struct bwi_os *os, const char *path, bool create) {
    struct disk_process *p = process_of(os);
    struct disk_inode *dir = NULL;
    int rc = create ? change(os) : p->dead ? -EIO : 0;
    if (rc != 0) return rc;
    struct disk *d = find_disk(p, &path);
    if (d == NULL) return -ENOENT;
    rc = create ? make_path(d->root, path, &dir) : disk_walk(d->root, path, &dir);
    if (rc != 0) return rc;
    return dir->type == BWI_OS_DIR ? open_inode(p, dir) : -ENOTDIR;
}

static int sim_open_dir(struct bwi_os *os, int dirfd, const char *path) {
    struct disk_inode *i = NULL;
    const int rc = walk(os, dirfd, path, &i);
    if (rc != 0) return rc;
    return i->type == BWI_OS_DIR ? open_inode(process_of(os), i) : -ENOTDIR;
}

static int sim_open_read(struct bwi_os *os, int dirfd, const char *path) {
    struct disk_inode *i = NULL;
    const int rc = walk(os, dirfd, path, &i);
    if (rc != 0) return rc;
    return i->type == BWI_OS_FILE ? open_inode(process_of(os), i) : -EINVAL;
}

/* A change: a name that is to be made, and the directory for it. */
static int find_free(struct bwi_os *os, int dirfd, const char *path, struct disk_inode **ret_dir,
                     const char **ret_leaf) {
    int rc = change(os);
    if (rc == 0) rc = walk_parent(os, dirfd, path, ret_dir, ret_leaf);
    if (rc != 0) return rc;
    return disk_lookup(*ret_dir, *ret_leaf) != NULL ? -EEXIST : 0;
}

static int sim_open_new(struct bwi_os *os, int dirfd, const char *path) {
    struct disk_inode *dir = NULL;
    const char *leaf = NULL;
    const int rc = find_free(os, dirfd, path, &dir, &leaf);
    if (rc != 0) return rc;
    struct disk_inode *f = disk_inode_new(dir->disk, BWI_OS_FILE);
    f->client = process_of(os)->client;
    const int fd = open_inode(process_of(os), f);
    if (fd >= 0) disk_set_entry(dir, leaf, f);
    return fd;
}

static int sim_open_lock(struct bwi_os *os, int dirfd, const char *path) {
    const int fd = sim_open_read(os, dirfd, path);
    return fd == -ENOENT ? sim_open_new(os, dirfd, path) : fd;
}

static int sim_open_alone(struct bwi_os *os, int dirfd, const char *path) {
    struct disk_inode *i = NULL;
    const int rc = walk(os, dirfd, path, &i);
    if (rc != 0) return rc;
    if (i->type != BWI_OS_FILE) return -EINVAL;
    return i->open > 0 || i->names != 1 ? -EBUSY : open_inode(process_of(os), i);
}

static int sim_open_direct(struct bwi_os *os, int fd, bool write) {
    struct disk_inode *f = NULL;
    struct disk_file *file = NULL;
    (void)write;
    int rc = inode_at(os, fd, BWI_OS_FILE, &f);
    if (rc == 0) rc = open_inode(process_of(os), f);
    if (rc >= 0 && file_at(os, rc, &file) == 0) file->direct = true;
    return rc;
}

/* --- bytes ---- */

/* Nothing of a third of all blocks, so that both ways of reading are gone. */
static int64_t sim_cached(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes) {
    struct disk_inode *f = NULL;
    const int rc = inode_at(os, fd, BWI_OS_FILE, &f);
    if (rc != 0) return rc;
    return offset / BWI_OS_DIRECT_ALIGN % 3 == 0 ? 0 : (int64_t)bytes;
}

/* Past the page cache it is as strict as any, at the end of a file too. */
static bool is_refused(struct bwi_os *os, int fd, const void *buf, size_t n, uint64_t offset) {
    struct disk_file *file = NULL;
    if (file_at(os, fd, &file) != 0 || !file->direct) return false;
    return ((uintptr_t)buf | n | offset) % BWI_OS_DIRECT_ALIGN != 0;
}

static int64_t sim_pread(struct bwi_os *os, int fd, void *buf, size_t n, uint64_t offset) {
    struct disk_inode *f = NULL;
    const int rc = inode_at(os, fd, BWI_OS_FILE, &f);
    if (rc != 0) return rc;
    if (is_refused(os, fd, buf, n, offset)) return -EINVAL;
    if (offset >= f->now.len) return 0;
    const size_t there = f->now.len - offset < n ? f->now.len - (size_t)offset : n;
    memcpy(buf, f->now.ptr + offset, there);
    return (int64_t)there;
}

static bool has_room(const struct disk_inode *f, uint64_t size) {
    const struct disk *d = f->disk;
    if (size <= f->now.len || d->model.capacity_bytes == 0) return true;
    return disk_used_bytes(d) + (size - f->now.len) <= d->model.capacity_bytes;
}

static int change_file(struct bwi_os *os, int fd, uint64_t size, struct disk_inode **ret) {
    int rc = change(os);
    if (rc == 0) rc = inode_at(os, fd, BWI_OS_FILE, ret);
    if (rc == 0 && !has_room(*ret, size)) rc = -ENOSPC;
    if (rc == 0) (*ret)->client = process_of(os)->client;
    return rc;
}

static int64_t sim_pwrite(struct bwi_os *os, int fd, const void *buf, size_t n, uint64_t offset) {
    struct disk_inode *f = NULL;
    const int rc = change_file(os, fd, offset + n, &f);
    if (rc != 0) return rc;
    disk_write(f, buf, n, offset);
    return (int64_t)n;
}

static int sim_truncate(struct bwi_os *os, int fd, uint64_t size) {
    struct disk_inode *f = NULL;
    const int rc = change_file(os, fd, size, &f);
    if (rc == 0) disk_resize(f, size);
    return rc;
}

static int sim_reserve(struct bwi_os *os, int fd, uint64_t bytes) {
    struct disk_inode *f = NULL;
    const int rc = change_file(os, fd, bytes, &f);
    if (rc == 0 && bytes > f->now.len) disk_resize(f, bytes);
    return rc;
}

static int sim_fsync(struct bwi_os *os, int fd) {
    struct disk_file *f = NULL;
    int rc = file_at(os, fd, &f);
    if (rc == 0) rc = change_by_sync(os, f->inode);
    if (rc == 0) rc = file_at(os, fd, &f); /* the disk may have crashed */
    if (rc != 0) return rc;
    struct disk *d = f->disk;
    const bool is_dir = f->inode->type == BWI_OS_DIR, counts = !is_dir || !d->fail_files_only;
    const bool fails = counts && d->fail_fsync > 0 && --d->fail_fsync == 0;
    if (fails && is_dir) disk_drop_entries(f->inode);
    if (fails && !is_dir) disk_drop_data(f->inode);
    if (fails) return -EIO;
    if (is_dir)
        disk_sync_entries(f->inode);
    else
        disk_sync_data(f->inode);
    d->floor_seq = d->seq;
    return 0;
}

/* --- names ---- */

static int sim_link(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    struct disk_inode *f = NULL, *dir = NULL;
    const char *leaf = NULL;
    int rc = change(os);
    if (rc == 0) rc = walk(os, dirfd, from, &f);
    if (rc == 0) rc = walk_parent(os, dirfd, to, &dir, &leaf);
    if (rc != 0) return rc;
    if (disk_lookup(dir, leaf) != NULL) return -EEXIST;
    if (f->type != BWI_OS_FILE) return -EPERM;
    disk_set_entry(dir, leaf, f);
    return 0;
}

static int rename_file(struct bwi_os *os, int dirfd, const char *from, int to_dirfd, const char *to, bool over) {
    struct disk_inode *old_dir = NULL, *dir = NULL;
    const char *old_leaf = NULL, *leaf = NULL;
    int rc = change(os);
    if (rc == 0) rc = walk_parent(os, dirfd, from, &old_dir, &old_leaf);
    if (rc == 0) rc = walk_parent(os, to_dirfd, to, &dir, &leaf);
    if (rc != 0) return rc;
    struct disk_inode *f = disk_lookup(old_dir, old_leaf), *there = disk_lookup(dir, leaf);
    if (f == NULL) return -ENOENT;
    if (there != NULL && !over) return -EEXIST;
    if (f->type != BWI_OS_FILE || (there != NULL && there->type != BWI_OS_FILE)) return -EISDIR;
    if (f == there) return 0;
    disk_set_entry(dir, leaf, f);
    disk_set_entry(old_dir, old_leaf, NULL);
    return 0;
}

static int sim_rename_new(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    return rename_file(os, dirfd, from, dirfd, to, false);
}

static int sim_rename_over(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    return rename_file(os, dirfd, from, dirfd, to, true);
}

static int sim_move_new(struct bwi_os *os, int from_dirfd, const char *from, int to_dirfd, const char *to) {
    return rename_file(os, from_dirfd, from, to_dirfd, to, false);
}

static int remove_name(struct bwi_os *os, int dirfd, const char *path, enum bwi_os_type type) {
    struct disk_inode *dir = NULL;
    const char *leaf = NULL;
    int rc = change(os);
    if (rc == 0) rc = walk_parent(os, dirfd, path, &dir, &leaf);
    if (rc != 0) return rc;
    struct disk_inode *i = disk_lookup(dir, leaf);
    if (i == NULL) return -ENOENT;
    if (i->type != type) return type == BWI_OS_DIR ? -ENOTDIR : -EISDIR;
    if (type == BWI_OS_DIR && !disk_is_empty(i)) return -ENOTEMPTY;
    disk_set_entry(dir, leaf, NULL);
    return 0;
}

static int sim_unlink(struct bwi_os *os, int dirfd, const char *path) {
    return remove_name(os, dirfd, path, BWI_OS_FILE);
}

static int sim_rmdir(struct bwi_os *os, int dirfd, const char *path) {
    return remove_name(os, dirfd, path, BWI_OS_DIR);
}

static int sim_mkdir(struct bwi_os *os, int dirfd, const char *path) {
    struct disk_inode *dir = NULL;
    const char *leaf = NULL;
    const int rc = find_free(os, dirfd, path, &dir, &leaf);
    if (rc != 0) return rc;
    struct disk_inode *made = disk_inode_new(dir->disk, BWI_OS_DIR);
    (void)snprintf(made->name, sizeof made->name, "%.31s", leaf);
    disk_set_entry(dir, leaf, made);
    return 0;
}

/* --- looking ---- */

static void fill_stat(const struct disk_inode *i, struct bwi_os_stat *ret) {
    *ret = (struct bwi_os_stat){
        .type = i->type,
        .size_bytes = i->now.len,
        .nlink = i->names,
        .device = i->disk->model.device,
        .inode = i->number,
        .mtime_ms = i->mtime_ms,
        .alloc_bytes = i->now.len,
        .birth_ns = i->type == BWI_OS_DIR ? i->birth_ns : 0,
    };
}

static int sim_stat_fd(struct bwi_os *os, int fd, struct bwi_os_stat *ret) {
    struct disk_file *f = NULL;
    const int rc = file_at(os, fd, &f);
    if (rc == 0) fill_stat(f->inode, ret);
    return rc;
}

static int sim_stat_at(struct bwi_os *os, int dirfd, const char *path, struct bwi_os_stat *ret) {
    struct disk_inode *i = NULL;
    const int rc = walk(os, dirfd, path, &i);
    if (rc == 0) fill_stat(i, ret);
    return rc;
}

static int sim_dir_open(struct bwi_os *os, int dirfd, const char *path, struct bwi_os_dir **ret) {
    struct disk_inode *dir = NULL;
    const int rc = walk(os, dirfd, path, &dir);
    if (rc != 0) return rc;
    if (dir->type != BWI_OS_DIR) return -ENOTDIR;
    struct bwi_os_dir *list = disk_alloc(1, sizeof *list);
    list->list = disk_alloc(dir->entry_count, sizeof *list->list);
    for (size_t k = 0; k < dir->entry_count; k++) {
        const struct disk_inode *i = disk_entry_now(&dir->entries[k]);
        if (i == NULL) continue;
        struct bwi_os_dirent *e = &list->list[list->count++];
        memcpy(e->name, dir->entries[k].name, sizeof e->name);
        e->type = i->type;
    }
    *ret = list;
    return 0;
}

static int sim_dir_next(struct bwi_os *os, struct bwi_os_dir *d, struct bwi_os_dirent *ret) {
    if (process_of(os)->dead) return -EIO;
    if (d->at == d->count) return 0;
    *ret = d->list[d->at++];
    return 1;
}

static void sim_dir_close(struct bwi_os *os, struct bwi_os_dir *d) {
    (void)os;
    if (d == NULL) return;
    free(d->list);
    free(d);
}

static int sim_space(struct bwi_os *os, int fd, struct bwi_os_space *ret) {
    struct disk_file *f = NULL;
    const int rc = file_at(os, fd, &f);
    if (rc != 0) return rc;
    const struct disk_model *m = &f->disk->model;
    const uint64_t total = m->capacity_bytes != 0 ? m->capacity_bytes : FREE_BYTES, used = disk_used_bytes(f->disk);
    *ret = (struct bwi_os_space){
        .free_bytes = used < total ? total - used : 0, .total_bytes = total, .fs_type = m->is_remote ? 0x6969 : 0xef53};
    return 0;
}

static int sim_lock(struct bwi_os *os, int fd) {
    struct disk_file *f = NULL;
    const int rc = file_at(os, fd, &f);
    if (rc != 0) return rc;
    if (f->inode->lock != NULL && f->inode->lock != f) return -EWOULDBLOCK;
    f->inode->lock = f;
    return 0;
}

static int sim_unlock(struct bwi_os *os, int fd) {
    struct disk_file *f = NULL;
    const int rc = file_at(os, fd, &f);
    if (rc == 0 && f->inode->lock == f) f->inode->lock = NULL;
    return rc;
}

static int sim_advise_done(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes) {
    (void)os, (void)fd, (void)offset, (void)bytes;
    return 0;
}

static const struct bwi_os sim_table = {
    .open_root = sim_open_root,
    .open_dir = sim_open_dir,
    .open_read = sim_open_read,
    .open_new = sim_open_new,
    .open_alone = sim_open_alone,
    .open_direct = sim_open_direct,
    .cached = sim_cached,
    .open_lock = sim_open_lock,
    .close = sim_close,
    .pread = sim_pread,
    .pwrite = sim_pwrite,
    .fsync = sim_fsync,
    .truncate = sim_truncate,
    .reserve = sim_reserve,
    .stat_fd = sim_stat_fd,
    .stat_at = sim_stat_at,
    .link = sim_link,
    .rename_new = sim_rename_new,
    .move_new = sim_move_new,
    .rename_over = sim_rename_over,
    .unlink = sim_unlink,
    .mkdir = sim_mkdir,
    .rmdir = sim_rmdir,
    .dir_open = sim_dir_open,
    .dir_next = sim_dir_next,
    .dir_close = sim_dir_close,
    .space = sim_space,
    .lock = sim_lock,
    .unlock = sim_unlock,
    .advise_done = sim_advise_done,
};

/* --- processes ---- */

struct disk_process *disk_process_new(unsigned client) {
    struct disk_process *p = disk_alloc(1, sizeof *p);
    p->os = sim_table;
    p->client = client;
    return p;
}

void disk_attach(struct disk_process *p, const char *name, struct disk *d) {
    unsigned k = 0;
    while (p->mounts[k].disk != NULL) k++;
    p->mounts[k].disk = d;
    memcpy(p->mounts[k].name, name, strlen(name) + 1);
}

struct bwi_os *disk_os(struct disk_process *p) {
    return &p->os;
}

void disk_process_kill(struct disk_process *p) {
    for (unsigned k = 0; k < FILES_MAX; k++) close_file(&p->files[k]);
    p->dead = true;
}

bool disk_process_is_dead(const struct disk_process *p) {
    return p->dead;
}

void disk_process_free(struct disk_process *p) {
    if (p == NULL) return;
    disk_process_kill(p);
    free(p);
}

void disk_stop_at(struct disk_process *p, uint64_t n, void (*stop)(void *user), void *user) {
    p->stop_at = n > 0 ? p->changes + n : 0;
    p->stop = stop;
    p->stop_user = user;
}

void disk_stop_at_sync(struct disk_process *p, const char *name, uint64_t n, void (*stop)(void *user), void *user) {
    p->stop_at_sync = n > 0 ? p->syncs + n : 0;
    p->stop_name = name;
    p->stop = stop;
    p->stop_user = user;
}

uint64_t disk_changes(const struct disk_process *p) {
    return p->changes;
}

unsigned disk_open_files(const struct disk_process *p) {
    unsigned n = 0;
    for (unsigned k = 0; k < FILES_MAX; k++) n += p->files[k].inode != NULL;
    return n;
}
