/* SPDX-License-Identifier: Apache-2.0 */
/* From keys to directories. One component at a time with O_NOFOLLOW, so a symbolic link anywhere below the root leads
 * nowhere.
 *
 * Durability of directories: an object survives a power cut only if every directory above it does. Whoever made a
 * directory may not have synced it yet, so before the first creation in a directory this store syncs the one above it,
 * made by whomever, and remembers that. A directory that was seen to be missing is always a new one, though it may well
 * have the inode number of the one that was removed. */
#include "base/vec.h"
#include "store/posix.h"
#include <errno.h>
#include <string.h>

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 32;
}

/* A directory that was removed and made again by others is another one: by its inode, or, since numbers are used
 * again, by its birth where the file system tells that. */
static uint64_t fingerprint(const char *path, size_t len, const struct bwi_os_stat *st) {
    uint64_t h = mix(mix(mix(UINT64_C(0x2545f4914f6cdd1d), st->device), st->inode), (uint64_t)st->birth_ns);
    for (size_t i = 0; i < len; i++) h = mix(h, (uint8_t)path[i]);
    return h ? h : 1;
}

/* The table is searched in a few neighbouring slots, so that the handful of directories on one path do not push each
 * other out. */
static bool known_durable(struct bwi_posix *p, uint64_t id) {
    for (uint64_t i = 0; i < BWI_POSIX_DURABLE_WAYS; i++) {
        if (atomic_load(&p->durable[(id + i) % BWI_POSIX_DURABLE_SLOTS]) == id) return true;
    }
    return false;
}

static void note_durable(struct bwi_posix *p, uint64_t id) {
    for (uint64_t i = 0; i < BWI_POSIX_DURABLE_WAYS; i++) {
        uint64_t empty = 0;
        if (atomic_compare_exchange_strong(&p->durable[(id + i) % BWI_POSIX_DURABLE_SLOTS], &empty, id)) return;
    }
    atomic_store(&p->durable[(id + id / BWI_POSIX_DURABLE_SLOTS % BWI_POSIX_DURABLE_WAYS) % BWI_POSIX_DURABLE_SLOTS],
                 id);
}

/* Makes the entry `name` of the directory `fd`, at path[0, len), in `parent` durable. One that could not be is taken
 * away again while it is empty, so that the next fsync has a new entry to write. */
static int make_durable(struct bwi_store_op *op, int parent, int fd, const char *name, const char *path, size_t len,
                        bool is_new) {
    struct bwi_posix *p = bwi_posix_of(op);
    struct bwi_os_stat st;
    int rc = p->os->stat_fd(p->os, fd, &st);
    if (rc < 0) return bwi_store_errno(op, rc, "stat directory \"%.*s\"", (int)len, path);
    uint64_t id = fingerprint(path, len, &st);
    if (!is_new && known_durable(p, id)) return 0;
    rc = p->os->fsync(p->os, parent);
    if (rc < 0) (void)p->os->rmdir(p->os, parent, name);
    if (rc < 0) return bwi_store_errno(op, rc, "fsync the directory above \"%.*s\"", (int)len, path);
    if (!known_durable(p, id)) note_durable(p, id);
    return 0;
}

void bwi_posix_forget_durable(struct bwi_posix *p) {
    for (size_t i = 0; i < BWI_POSIX_DURABLE_SLOTS; i++) atomic_store(&p->durable[i], 0);
}

/* Why `name` could not be opened as a directory. An object in its place means that nothing is below it. */
static int explain_dir(struct bwi_store_op *op, int parent, const char *name, int rc, bool make) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    struct bwi_os_stat st = {0};
    if (rc != -ENOTDIR && rc != -ELOOP) return bwi_store_errno(op, rc, "open directory \"%s\"", name);
    if (os->stat_at(os, parent, name, &st) < 0 || st.type != BWI_OS_FILE) {
        bwi_store_fail(op, BW_E_IO, "\"%s\" is neither a file nor a directory: refused", name);
        return -ENOTDIR;
    }
    if (!make) return bwi_store_errno(op, -ENOENT, "open directory \"%s\"", name);
    bwi_store_fail(op, BW_E_IO, "\"%s\" is an object: nothing can be created below it", name);
    return -ENOTDIR;
}

/* *is_new: it was missing, and was made, by this call or by somebody at the same time. */
static int enter(struct bwi_store_op *op, int parent, const char *name, bool make, bool *is_new) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    int fd = os->open_dir(os, parent, name);
    *is_new = fd == -ENOENT && make;
    if (*is_new) {
        int rc = os->mkdir(os, parent, name);
        if (rc < 0 && rc != -EEXIST) return bwi_store_errno(op, rc, "make directory \"%s\"", name);
        fd = os->open_dir(os, parent, name);
    }
    return fd < 0 ? explain_dir(op, parent, name, fd, make) : fd;
}

int bwi_posix_open_dir(struct bwi_store_op *op, const char *path, size_t len, bool make) {
    struct bwi_posix *p = bwi_posix_of(op);
    int fd = p->root;
    for (size_t at = 0; at < len;) {
        char name[BWI_STORE_COMPONENT_MAX + 1];
        const char *slash = memchr(path + at, '/', len - at);
        size_t n = slash ? (size_t)(slash - path) - at : len - at;
        memcpy(name, path + at, n); /* the key was checked: it fits */
        name[n] = '\0';
        bool is_new = false;
        int next = enter(op, fd, name, make, &is_new);
        int rc = next >= 0 && make ? make_durable(op, fd, next, name, path, at + n, is_new) : 0;
        if (fd != p->root) p->os->close(p->os, fd);
        if (next < 0) return next;
        if (rc < 0) {
            p->os->close(p->os, next);
            return rc;
        }
        fd = next;
        at += n + 1;
    }
    if (fd != p->root) return fd;
    fd = p->os->open_dir(p->os, p->root, ".");
    return fd < 0 ? bwi_store_errno(op, fd, "open the root directory") : fd;
}

int bwi_posix_open_parent(struct bwi_store_op *op, bool make, const char **ret_leaf) {
    size_t len = strlen(op->key);
    if (len > 0 && op->key[len - 1] == '/') len--;
    const char *slash = memrchr(op->key, '/', len);
    *ret_leaf = slash ? slash + 1 : op->key;
    return bwi_posix_open_dir(op, op->key, slash ? (size_t)(slash - op->key) : 0, make);
}

void bwi_posix_refuse(struct bwi_store_op *op, enum bwi_os_type type) {
    static const char *const found[] = {
        [BWI_OS_DIR] = "a directory", [BWI_OS_SYMLINK] = "a symbolic link", [BWI_OS_FIFO] = "a FIFO",
        [BWI_OS_SOCKET] = "a socket", [BWI_OS_DEVICE] = "a device",         [BWI_OS_OTHER] = "no file"};
    bwi_store_fail(op, BW_E_CORRUPT, "is %s: expected a regular file", found[type]);
}

int bwi_posix_open_object(struct bwi_store_op *op, int dirfd, const char *leaf) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    int fd = os->open_read(os, dirfd, leaf);
    if (fd >= 0) return fd;
    struct bwi_os_stat st;
    bool odd = fd == -EINVAL || fd == -ELOOP || fd == -EISDIR;
    if (!odd || os->stat_at(os, dirfd, leaf, &st) < 0 || st.type == BWI_OS_FILE) return bwi_store_errno(op, fd, "open");
    bwi_posix_refuse(op, st.type);
    return fd;
}

int bwi_posix_open_existing(struct bwi_store_op *op, int dirfd, const char *leaf) {
    int fd = bwi_posix_open_object(op, dirfd, leaf);
    if (op->error.status != BW_E_CORRUPT) return fd;
    op->error.status = BW_E_EXISTS;
    op->outcome = BWI_STORE_OTHER;
    return fd;
}
