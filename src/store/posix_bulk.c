/* SPDX-License-Identifier: Apache-2.0 */
/* Reading much data once. A worker asks what the page cache holds. What is there it copies out piece by piece, and
 * whoever looks at the bytes finds each piece in that processor's cache. All else comes past the page cache by one
 * large transfer, so that a trainer's own pages stay in it; only where there is no such way it comes through, and is
 * dropped again. */
#include "base/checked.h"
#include "base/vec.h"
#include "store/posix.h"
#include <errno.h>

#define ALIGN ((size_t)BWI_OS_DIRECT_ALIGN)
#define PIECE ((size_t)256 << 10) /* a part of a processor's second cache */
/* A kernel that reclaims what is idle takes a few pages from the midst of a file: to read those is cheaper than to read
 * all of it from the disk. */
#define FEW_MISSING 16u

/* ---- on a worker ---- */

/* From a disk, or over a network, all of it is asked for at once. */
static int64_t read_pieces(struct bwi_store_op *op, int fd, bool in_cache) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    const size_t piece = in_cache ? PIECE : op->bytes;
    size_t got = 0;
    while (got < op->bytes) {
        size_t want = bwi_min_u64(op->bytes - got, piece);
        uint8_t *to = op->aim != NULL && in_cache ? op->aim(op, got, &want) : (uint8_t *)op->buf + got;
        const int64_t n = os->pread(os, fd, to, want, op->offset + got);
        if (n < 0) return n;
        if (op->look != NULL) {
            op->look(op, to, (size_t)n);
            op->looked += (size_t)n;
        }
        got += (size_t)n;
        if ((size_t)n < want) break;
    }
    return (int64_t)got;
}

/* Negative: nobody says. */
static int64_t cached_bytes(struct bwi_store_op *op, int fd) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    if (op->uncached) return 0;
    return os->cached == NULL ? -EOPNOTSUPP : os->cached(os, fd, op->offset, op->bytes);
}

static bool is_in_cache(const struct bwi_store_op *op, int64_t cached) {
    return cached >= 0 && (uint64_t)cached >= op->bytes - op->bytes / FEW_MISSING;
}

static bool has_way(struct bwi_store_op *op, int fd) {
    const struct bwi_posix *p = bwi_posix_of(op);
    struct bwi_os *os = p->os;
    struct bwi_store_direct *d = &op->direct;
    if (d->none || d->fd >= 0) return !d->none;
    d->fd = p->no_direct || os->open_direct == NULL ? -1 : os->open_direct(os, fd, false);
    d->none = d->fd < 0;
    if (d->none) d->fd = -1;
    d->memory = d->none || os->direct_memory == NULL ? BWI_OS_DIRECT_ALIGN : os->direct_memory(os, d->fd);
    return !d->none;
}

/* What goes past the page cache: all whole blocks, and the last one if the buffer has room for all of it. A way that is
 * opened is kept with the handle. */
static void aim(struct bwi_store_op *op, int fd) {
    const uint64_t up = bwi_round_up(op->bytes, ALIGN);
    const size_t room = op->room_bytes >= up ? (size_t)up : op->bytes - op->bytes % ALIGN;
    if (op->handle == NULL || op->offset % ALIGN != 0 || room == 0 || !has_way(op, fd)) return;
    if ((uintptr_t)op->buf % op->direct.memory == 0)
        op->direct_room = room;
    else
        op->declined = op->may_decline;
}

static void read_open(struct bwi_store_op *op, int fd) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    const int64_t cached = cached_bytes(op, fd);
    const bool in_cache = is_in_cache(op, cached);
    if (!in_cache && !op->shared) aim(op, fd);
    if (op->direct_room > 0 || op->declined) return;
    op->req.result = read_pieces(op, fd, in_cache);
    if (cached == 0 && !op->shared) (void)os->advise_done(os, fd, op->offset, op->bytes);
}

void bwi_posix_read_bulk(struct bwi_store_op *op) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    if (op->req.fd < 0) op->req.fd = bwi_posix_open_key(op);
    op->req.result = op->req.fd < 0 ? op->req.fd : 0;
    if (op->req.fd < 0) return;
    read_open(op, op->req.fd);
    if (op->handle == NULL) os->close(os, op->req.fd);
}

/* ---- on the loop's thread ---- */

static void drop(struct bwi_os *os, int fd) {
    if (fd >= 0) os->close(os, fd);
}

/* Keeps what a worker has opened. Of two that opened at the same time the second one's is closed again. NULL: there is
 * no memory for a handle. */
static struct bwi_store_handle *keep(struct bwi_os *os, struct bwi_store_op *op) {
    struct bwi_store_handle *h = *op->handle;
    if (h == NULL) {
        h = op->req.fd < 0 ? NULL : bwi_calloc(1, sizeof *h);
        if (h != NULL) *h = (struct bwi_store_handle){.fd = op->req.fd, .direct = op->direct};
        *op->handle = h;
    }
    if (h == NULL || h->fd != op->req.fd) drop(os, op->req.fd);
    const bool known = h != NULL && h->direct.fd >= 0;
    if (h == NULL || (known && h->direct.fd != op->direct.fd))
        drop(os, op->direct.fd);
    else if (!known && (op->direct.fd >= 0 || op->direct.none))
        h->direct = op->direct;
    return h;
}

static bool go_on(struct bwi_posix *p, struct bwi_store_op *op, int fd, size_t bytes) {
    op->req.kind = BWI_IO_READ;
    op->req.fd = fd;
    op->req.offset = op->offset + op->direct_bytes;
    op->req.buf = (uint8_t *)op->buf + op->direct_bytes;
    op->req.bytes = bytes;
    bwi_io_submit(p->io, &op->req);
    return true;
}

static bool called(struct bwi_posix *p, struct bwi_store_op *op) {
    if (op->handle == NULL) return false;
    const struct bwi_store_handle *h = keep(p->os, op);
    if (op->error.status != 0 || op->direct_room == 0) return false;
    if (h != NULL) return go_on(p, op, h->direct.fd, op->direct_room);
    op->req.fd = -1; /* once more, by another way, for which no handle is needed */
    op->direct = (struct bwi_store_direct){.fd = -1, .none = true};
    op->direct_room = 0;
    bwi_io_submit(p->io, &op->req);
    return true;
}

/* A disk that wants another alignment, or memory that no device can write to: all of it comes through the page cache.
 */
static bool came_past(struct bwi_posix *p, struct bwi_store_op *op, struct bwi_store_handle *h) {
    const int64_t n = op->req.result;
    if (n == -EINVAL) h->direct.none = true;
    if (n == -EINVAL || n == -EFAULT) return go_on(p, op, h->fd, op->bytes);
    if (n < 0) return false;
    op->direct_bytes = bwi_min_u64((uint64_t)n, op->bytes);
    return op->direct_bytes < op->bytes && go_on(p, op, h->fd, op->bytes - (size_t)op->direct_bytes);
}

bool bwi_posix_bulk_goes_on(struct bwi_posix *p, struct bwi_store_op *op) {
    if (op->req.kind == BWI_IO_CALL) return called(p, op);
    struct bwi_store_handle *h = *op->handle;
    if (op->req.fd == h->direct.fd) return came_past(p, op, h);
    if (op->req.result >= 0) op->req.result += (int64_t)op->direct_bytes;
    return false;
}
