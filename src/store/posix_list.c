/* SPDX-License-Identifier: Apache-2.0 */
/* Listing one level, and deleting objects and whole prefixes. */
#include "store/posix.h"
#include <errno.h>
#include <string.h>

#define LEFT_MS INT64_C(86400000) /* the age of a temporary that nobody makes an object of any more */
#define PASSES  64 /* over a directory that is filled again while it is emptied: by one that was believed dead */

/* Opens the directory of a prefix. -ENOENT, without an error: nothing is below it. */
static int open_prefix(struct bwi_store_op *op) {
    size_t len = strlen(op->key);
    int fd = bwi_posix_open_dir(op, op->key, len > 0 ? len - 1 : 0, false);
    if (fd == -ENOENT) bw_error_clear(&op->error);
    return fd;
}

static int add_name(struct bwi_store_op *op, const struct bwi_os_dirent *e) {
    size_t len = strlen(e->name);
    /* Names that no key can have (lost+found, an editor's backup) are not the store's. What is no regular file is an
     * object's place that is taken, and whoever reads it is told. */
    if (!bwi_store_component_valid(e->name, len)) return 0;
    if (bwi_store_names_add(&op->names, op->after, e->name, len, e->type == BWI_OS_DIR)) return 0;
    return bwi_store_errno(op, -ENOMEM, "%zu names", op->names.len);
}

static bool is_tmp(const char *name) {
    return name[0] == '.' && strspn(name + 1, "0123456789abcdef") == 16 && strcmp(name + 17, ".tmp") == 0;
}

/* A creation that is still at work after a day makes its temporary once more: only the clock's word is needed. */
static void tidy(struct bwi_store_op *op, int dirfd, const char *name) {
    struct bwi_posix *p = bwi_posix_of(op);
    struct bwi_os_stat st;
    if (!op->tidy || p->read_only || !is_tmp(name)) return;
    if (p->os->stat_at(p->os, dirfd, name, &st) < 0 || st.type != BWI_OS_FILE) return;
    if (st.mtime_ms < (int64_t)op->due_ns - LEFT_MS) (void)p->os->unlink(p->os, dirfd, name);
}

static int list_dir(struct bwi_store_op *op, int dirfd) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    struct bwi_os_dir *d = NULL;
    struct bwi_os_dirent e;
    int rc = os->dir_open(os, dirfd, ".", &d);
    if (rc == -ENOENT) return 0; /* removed since it was opened */
    if (rc < 0) return bwi_store_errno(op, rc, "open the directory for reading");
    while ((rc = os->dir_next(os, d, &e)) > 0) {
        tidy(op, dirfd, e.name);
        rc = add_name(op, &e);
        if (rc < 0) break;
    }
    if (rc < 0) bwi_store_errno(op, rc, "read the directory");
    os->dir_close(os, d);
    return rc;
}

void bwi_posix_list(struct bwi_store_op *op) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    int dirfd = open_prefix(op);
    if (dirfd < 0) return;
    if (list_dir(op, dirfd) < 0)
        bwi_store_names_fini(&op->names);
    else
        bwi_store_names_sort(&op->names);
    os->close(os, dirfd);
}

void bwi_posix_sync(struct bwi_store_op *op) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    int dirfd = open_prefix(op);
    if (dirfd < 0) return;
    int rc = os->fsync(os, dirfd);
    if (rc < 0)
        bwi_store_errno(op, rc, "fsync the directory");
    else if (bwi_posix_doubt_in(bwi_posix_of(op), op->key)) {
        op->doubtful = true;
        bwi_store_fail(op, BW_E_IO,
                       "an earlier fsync for a name in it failed, and no later one proves that it is there");
    }
    os->close(os, dirfd);
}

void bwi_posix_delete(struct bwi_store_op *op) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    const char *leaf = NULL;
    int dirfd = bwi_posix_open_parent(op, false, &leaf), rc = dirfd;
    if (dirfd >= 0) {
        rc = os->unlink(os, dirfd, leaf);
        if (rc == -EISDIR) rc = -ENOENT; /* a prefix: there is no such object */
        if (rc < 0 && rc != -ENOENT)
            bwi_store_errno(op, rc, "unlink");
        else
            bwi_posix_forget_doubt(bwi_posix_of(op), op->key);
        os->close(os, dirfd);
    }
    if (rc == -ENOENT) bw_error_clear(&op->error);
}

static int remove_entry(struct bwi_store_op *op, int parent, const char *name, enum bwi_os_type type, unsigned depth);

/* Somebody else has removed it: in a directory that is open, file systems of other machines call that stale. If all of
 * the mount is, the directory above says so next. */
static bool is_away(int rc) {
    return rc == -ENOENT || rc == -ESTALE;
}

/* One pass over a directory. An entry that cannot be removed is reported and does not stop the others: space matters
 * more. */
static int remove_entries(struct bwi_store_op *op, int dirfd, unsigned depth) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    struct bwi_os_dir *d = NULL;
    struct bwi_os_dirent e;
    int first = 0, rc = os->dir_open(os, dirfd, ".", &d);
    if (is_away(rc)) return 0;
    if (rc < 0) return bwi_store_errno(op, rc, "open a directory for reading");
    while ((rc = os->dir_next(os, d, &e)) > 0) {
        rc = remove_entry(op, dirfd, e.name, e.type, depth);
        if (rc < 0 && first == 0) first = rc;
    }
    os->dir_close(os, d);
    if (is_away(rc)) rc = 0;
    if (rc < 0) bwi_store_errno(op, rc, "read a directory");
    return first < 0 ? first : rc;
}

static int empty_dir(struct bwi_store_op *op, int parent, const char *name, unsigned depth) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    int dirfd = os->open_dir(os, parent, name);
    if (is_away(dirfd)) return 0;
    if (dirfd < 0) return bwi_store_errno(op, dirfd, "open directory \"%s\"", name);
    int rc = remove_entries(op, dirfd, depth);
    os->close(os, dirfd);
    return rc;
}

/* Opened anew for each pass: somebody else who deletes it may have removed it, and a third one made it again. */
static int remove_dir(struct bwi_store_op *op, int parent, const char *name, unsigned depth) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    const bool keeps = op->keeps && depth == 1; /* directly below the prefix */
    int rc = 0;
    if (depth > BWI_STORE_COMPONENTS_MAX) {
        bwi_store_fail(op, BW_E_LIMIT, "\"%s\" is deeper than %u directories", name, BWI_STORE_COMPONENTS_MAX);
        return -ELOOP;
    }
    for (int pass = 0; pass < PASSES; pass++) {
        rc = empty_dir(op, parent, name, depth + 1);
        if (rc < 0) break;
        rc = os->rmdir(os, parent, name);
        if (rc != -ENOTEMPTY || keeps) break;
    }
    if (rc == -ENOENT || (rc == -ENOTEMPTY && keeps)) rc = 0;
    return rc < 0 ? bwi_store_errno(op, rc, "remove directory \"%s\"", name) : 0;
}

/* Symbolic links and all other things are unlinked, never opened. */
static int remove_entry(struct bwi_store_op *op, int parent, const char *name, enum bwi_os_type type, unsigned depth) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    if (type == BWI_OS_DIR) return remove_dir(op, parent, name, depth);
    if (op->keep_bytes > 0 && bwi_posix_is_spare(bwi_posix_of(op), name)) return 0;
    int rc = os->unlink(os, parent, name);
    return rc < 0 && !is_away(rc) ? bwi_store_errno(op, rc, "unlink \"%s\"", name) : 0;
}

/* Removes the directory `leaf` of a prefix, with what is in it. */
static int remove_prefix(struct bwi_store_op *op, int parent, const char *leaf) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    struct bwi_os_stat st;
    char name[BWI_STORE_COMPONENT_MAX + 1];
    size_t len = strcspn(leaf, "/");
    memcpy(name, leaf, len);
    name[len] = '\0';
    int rc = os->stat_at(os, parent, name, &st);
    if (rc == -ENOENT || (rc == 0 && st.type == BWI_OS_FILE))
        return 0; /* an object of that name is not below the prefix */
    if (rc < 0) return bwi_store_errno(op, rc, "stat");
    op->keeps = bwi_posix_keep(op);
    rc = remove_entry(op, parent, name, st.type, 1);
    int synced = os->fsync(os, parent);
    return synced < 0 ? bwi_store_errno(op, synced, "fsync the directory above") : rc;
}

void bwi_posix_delete_prefix(struct bwi_store_op *op) {
    struct bwi_posix *p = bwi_posix_of(op);
    const char *leaf = NULL;
    int parent = bwi_posix_open_parent(op, false, &leaf);
    if (parent == -ENOENT) bw_error_clear(&op->error);
    if (parent < 0) return;
    if (remove_prefix(op, parent, leaf) == 0) bwi_posix_forget_doubt(p, op->key);
    p->os->close(p->os, parent);
    bwi_posix_forget_durable(p);
}
