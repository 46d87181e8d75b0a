/* SPDX-License-Identifier: Apache-2.0 */
/* Objects in the making: a temporary file that stays open from BEGIN to FINISH. Its bytes are written by the engine
 * directly. */
#include "base/vec.h"
#include "store/posix.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

static void upload_free(struct bwi_posix_upload *u) {
    if (!u) return;
    bwi_free(u->base.key);
    bwi_free(u);
}

static struct bwi_posix_upload *upload_new(struct bwi_store_op *op) {
    struct bwi_posix_upload *u = bwi_calloc(1, sizeof *u);
    char *key = bwi_strdup(op->key);
    if (!u || !key) {
        bwi_free(u);
        bwi_free(key);
        bwi_store_errno(op, -ENOMEM, "an upload");
        return NULL;
    }
    const char *slash = strrchr(key, '/');
    u->base.key = key;
    u->base.size_bytes = op->size_bytes;
    u->base.replace = op->replace;
    u->leaf = slash ? slash + 1 : key;
    u->dirfd = u->fd = u->direct = -1;
    return u;
}

/* Takes the temporary away again, if there is one, and all that the upload holds. Changes no error. */
static void discard(struct bwi_os *os, struct bwi_posix_upload *u) {
    if (u->direct >= 0) os->close(os, u->direct);
    if (u->fd >= 0) os->close(os, u->fd);
    if (u->fd >= 0 && u->tmp[0]) os->unlink(os, u->dirfd, u->tmp);
    if (u->dirfd >= 0) os->close(os, u->dirfd);
    upload_free(u);
}

/* Of what is being made "not found" says that its directory was deleted meanwhile. */
static void is_gone(struct bwi_store_op *op) {
    if (op->error.status != BW_E_NOTFOUND) return;
    op->error.status = BW_E_IO;
    op->outcome = BWI_STORE_GONE;
}

static int open_upload(struct bwi_store_op *op, struct bwi_posix_upload *u) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    const char *leaf = NULL;
    for (unsigned i = 0; i < BWI_POSIX_TRIES; i++) {
        bw_error_clear(&op->error);
        u->dirfd = bwi_posix_open_parent(op, true, &leaf);
        if (u->dirfd == -ENOENT) continue;
        if (u->dirfd < 0) return u->dirfd;
        u->fd = bwi_posix_take_spare(op, u->dirfd, u->tmp);
        if (u->fd < 0) u->fd = bwi_posix_open_tmp(op, u->dirfd, u->tmp);
        if (u->fd != -ENOENT) return u->fd;
        os->close(os, u->dirfd);
        u->dirfd = -1;
    }
    is_gone(op);
    return -ENOENT;
}

void bwi_posix_begin(struct bwi_store_op *op) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    struct bwi_posix_upload *u = upload_new(op);
    if (!u) return;
    int rc = open_upload(op, u);
    if (rc >= 0 && op->size_bytes > 0) {
        rc = os->reserve(os, u->fd, op->size_bytes);
        if (rc == -EOPNOTSUPP) rc = 0;
        if (rc < 0) bwi_store_errno(op, rc, "reserve %" PRIu64 " bytes in %s", op->size_bytes, op->store->url);
    }
    if (rc < 0) {
        discard(os, u);
        return;
    }
    const bool may = os->open_direct && !bwi_posix_of(op)->no_direct;
    if (may && op->size_bytes >= BWI_POSIX_DIRECT_MIN) u->direct = os->open_direct(os, u->fd, true);
    op->upload = &u->base;
}

/* Through the page cache, and on to the disk at once: else all of it would be begun by the fsync. */
void bwi_posix_write_behind(struct bwi_store_op *op) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    const struct bwi_posix_upload *u = bwi_posix_upload_of(op);
    const int64_t n = os->pwrite(os, u->fd, op->buf, op->bytes, op->offset);
    op->req.result = n;
    if (n < 0)
        bwi_store_errno(op, (int)n, "%zu bytes at offset %" PRIu64 " in %s", op->bytes, op->offset, op->store->url);
    else
        (void)os->write_behind(os, u->fd, op->offset, op->bytes);
}

/* Ends the way past the page cache. A kernel's own file system has one inode for both ways; others (FUSE) keep by
 * descriptor what is still to be written, and what has failed. */
static int seal_direct(struct bwi_store_op *op, struct bwi_posix_upload *u) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    if (u->direct < 0) return 0;
    int rc = op->store->caps.node_local ? 0 : os->fsync(os, u->direct);
    if (rc < 0) return bwi_store_errno(op, rc, "fsync past the page cache");
    rc = os->close(os, u->direct);
    u->direct = -1;
    return rc < 0 ? bwi_store_errno(op, rc, "close past the page cache") : 0;
}

/* Syncs the bytes and closes the file. The size is proven here, by the file system's word. */
static int seal(struct bwi_store_op *op, struct bwi_posix_upload *u) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    struct bwi_os_stat st;
    const bool past_cache = u->direct >= 0 && !u->no_direct;
    int rc = bwi_store_check_complete(op);
    if (rc < 0) return -EIO;
    rc = seal_direct(op, u);
    if (rc < 0) return rc;
    rc = os->fsync(os, u->fd);
    if (rc < 0) return bwi_store_errno(op, rc, "fsync");
    if (!past_cache && u->base.size_bytes >= BWI_POSIX_DIRECT_MIN) /* the trainer's own pages are worth more there */
        (void)os->advise_done(os, u->fd, 0, u->base.size_bytes);
    rc = os->stat_fd(os, u->fd, &st);
    if (rc < 0) return bwi_store_errno(op, rc, "stat");
    if (st.size_bytes != u->base.size_bytes) {
        bwi_store_fail(op, BW_E_INTERNAL, "the file has %" PRIu64 " bytes, expected %" PRIu64, st.size_bytes,
                       u->base.size_bytes);
        return -EIO;
    }
    rc = os->close(os, u->fd);
    u->fd = -1;
    if (rc == 0) return 0;
    os->unlink(os, u->dirfd, u->tmp);
    return bwi_store_errno(op, rc, "close");
}

/* The name is taken. Packs carry their writer's number in their key, so the size says whether it is the same upload
 * made twice. */
static int meet_existing(struct bwi_store_op *op, struct bwi_posix_upload *u) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    struct bwi_os_stat st;
    int fd = bwi_posix_open_existing(op, u->dirfd, u->leaf);
    if (fd < 0) return fd;
    int rc = os->stat_fd(os, fd, &st);
    if (rc < 0)
        bwi_store_errno(op, rc, "stat the object that is there already");
    else if (st.size_bytes == u->base.size_bytes)
        rc = bwi_posix_settle_same(op, u->dirfd, fd);
    else {
        op->outcome = BWI_STORE_OTHER;
        bwi_store_fail(op, BW_E_EXISTS, "exists already with %" PRIu64 " bytes, expected %" PRIu64, st.size_bytes,
                       u->base.size_bytes);
    }
    os->close(os, fd);
    return rc;
}

/* Whether this handle's own first upload of it is on disk cannot be known any more: this one takes its place. */
static bool is_again(struct bwi_store_op *op, const struct bwi_posix_upload *u) {
    struct bwi_posix *p = bwi_posix_of(op);
    struct bwi_os_stat st;
    if (!bwi_posix_in_doubt(p, u->base.key)) return false;
    return p->os->stat_at(p->os, u->dirfd, u->leaf, &st) == 0 && st.type == BWI_OS_FILE &&
           st.size_bytes == u->base.size_bytes;
}

void bwi_posix_finish(struct bwi_store_op *op) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    struct bwi_posix_upload *u = bwi_posix_upload_of(op);
    int rc = seal(op, u);
    bool again = rc == 0 && !u->base.replace && is_again(op, u);
    if (rc == 0 && (u->base.replace || again))
        rc = bwi_posix_publish_over(op, u->dirfd, u->tmp, u->leaf);
    else if (rc == 0)
        rc = bwi_posix_publish(op, u->dirfd, u->tmp, u->leaf);
    if (rc == 1)
        meet_existing(op, u);
    else if (rc == 0 && bwi_posix_settle(op, u->base.key, u->dirfd) == 0)
        op->outcome = again ? BWI_STORE_SAME : BWI_STORE_CREATED;
    is_gone(op);
    discard(os, u);
}

void bwi_posix_abort(struct bwi_store_op *op) {
    assert(!op->upload || op->upload->writes == 0);
    if (op->upload) discard(bwi_posix_of(op)->os, bwi_posix_upload_of(op));
}
