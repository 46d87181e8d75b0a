/* SPDX-License-Identifier: Apache-2.0 */
/* Reading objects and asking about them. */
#include "base/checked.h"
#include "store/posix.h"
#include <errno.h>
#include <inttypes.h>

int bwi_posix_open_key(struct bwi_store_op *op) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    const char *leaf = NULL;
    int dirfd = bwi_posix_open_parent(op, false, &leaf);
    if (dirfd < 0) return dirfd;
    int fd = bwi_posix_open_object(op, dirfd, leaf);
    os->close(os, dirfd);
    return fd;
}

static void get_open(struct bwi_store_op *op, int fd) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    struct bwi_os_stat st;
    int rc = os->stat_fd(os, fd, &st);
    if (rc < 0) {
        bwi_store_errno(op, rc, "stat");
        return;
    }
    if (st.size_bytes > op->limit_bytes) {
        bwi_store_fail(op, BW_E_FORMAT, "has %" PRIu64 " bytes, expected at most %zu", st.size_bytes, op->limit_bytes);
        return;
    }
    size_t bytes = (size_t)st.size_bytes;
    if (bytes == 0) return;
    if (!bwi_buf_reserve(&op->body, bytes)) {
        bwi_store_errno(op, -ENOMEM, "%zu bytes for the object", bytes);
    } else {
        int64_t n = os->pread(os, fd, op->body.ptr, bytes, 0);
        if (n < 0)
            bwi_store_errno(op, (int)n, "read");
        else if ((size_t)n < bytes)
            bwi_store_fail(op, BW_E_CORRUPT, "ends after %" PRId64 " of %zu bytes", n, bytes);
        else
            op->body.len = bytes;
    }
    if (op->error.status != 0) bwi_buf_fini(&op->body);
}

void bwi_posix_get(struct bwi_store_op *op) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    int fd = bwi_posix_open_key(op);
    if (fd < 0) return;
    get_open(op, fd);
    os->close(os, fd);
}

void bwi_posix_read(struct bwi_store_op *op) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    int fd = bwi_posix_open_key(op);
    op->req.result = fd;
    if (fd < 0) return;
    op->req.result = op->bytes > 0 ? os->pread(os, fd, op->buf, op->bytes, op->offset) : 0;
    if (op->handle)
        op->req.fd = fd;
    else
        os->close(os, fd);
}

void bwi_posix_head(struct bwi_store_op *op) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    struct bwi_os_stat st;
    const char *leaf = NULL;
    int dirfd = bwi_posix_open_parent(op, false, &leaf);
    if (dirfd < 0) return;
    int rc = os->stat_at(os, dirfd, leaf, &st);
    os->close(os, dirfd);
    if (rc < 0)
        bwi_store_errno(op, rc, "stat");
    else if (st.type == BWI_OS_FILE) {
        op->size_bytes = st.size_bytes;
        op->doubtful = bwi_posix_in_doubt(bwi_posix_of(op), op->key);
    } else
        bwi_posix_refuse(op, st.type);
}

void bwi_posix_space(struct bwi_store_op *op) {
    struct bwi_posix *p = bwi_posix_of(op);
    struct bwi_os_space space;
    int rc = p->os->space(p->os, p->root, &space);
    if (rc < 0) {
        bwi_store_errno(op, rc, "%s", op->store->url);
        return;
    }
    op->free_bytes = space.free_bytes + bwi_min_u64(bwi_posix_spare_bytes(op), UINT64_MAX - space.free_bytes);
    op->total_bytes = space.total_bytes;
}
