/* SPDX-License-Identifier: Apache-2.0 */
/* The store in a directory tree: opening it, and bringing operations to the engine and back. Verbs that block run as
 * calls on workers; the bytes of uploads and of open handles go to the engine as transfers. */
#include "store/posix.h"

#include "base/vec.h"
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static void release(struct bwi_store_op *op) {
    struct bwi_os *os = bwi_posix_of(op)->os;
    if (op->req.fd >= 0) os->close(os, op->req.fd);
    if (op->direct.fd >= 0) os->close(os, op->direct.fd);
}

static void read_some(struct bwi_store_op *op) {
    (op->bulk ? bwi_posix_read_bulk : bwi_posix_read)(op);
}

/* WRITE is a transfer: it comes here only when it was refused, or goes through the page cache in bulk. */
static void (*const calls[])(struct bwi_store_op *op) = {
    [BWI_STORE_CREATE] = bwi_posix_create, [BWI_STORE_GET] = bwi_posix_get,
    [BWI_STORE_READ] = read_some,          [BWI_STORE_RELEASE] = release,
    [BWI_STORE_HEAD] = bwi_posix_head,     [BWI_STORE_LIST] = bwi_posix_list,
    [BWI_STORE_DELETE] = bwi_posix_delete, [BWI_STORE_DELETE_PREFIX] = bwi_posix_delete_prefix,
    [BWI_STORE_BEGIN] = bwi_posix_begin,   [BWI_STORE_WRITE] = bwi_posix_write_behind,
    [BWI_STORE_FINISH] = bwi_posix_finish, [BWI_STORE_ABORT] = bwi_posix_abort,
    [BWI_STORE_SYNC] = bwi_posix_sync,     [BWI_STORE_REPLACE] = bwi_posix_replace,
    [BWI_STORE_LOCK] = bwi_posix_lock,     [BWI_STORE_UNLOCK] = bwi_posix_unlock,
    [BWI_STORE_SPACE] = bwi_posix_space,
};

/* What deletions have kept takes no room from anybody. FINISH has an upload to lose: where that needs a name it looks
 * for room itself. */
static bool makes_room(struct bwi_store_op *op, uint64_t before) {
    const bool takes = op->verb == BWI_STORE_CREATE || op->verb == BWI_STORE_BEGIN || op->verb == BWI_STORE_REPLACE ||
                       op->verb == BWI_STORE_LOCK;
    if (op->error.status != BW_E_NOSPACE || !takes || !bwi_posix_makes_room(op, before)) return false;
    bw_error_clear(&op->error);
    return true;
}

static void run_call(struct bwi_io_req *req) {
    struct bwi_store_op *op = req->user;
    const uint64_t before = bwi_posix_given_up(op);
    if (op->error.status != 0) return; /* it was refused, and only its completion is due */
    calls[op->verb](op);
    if (makes_room(op, before)) calls[op->verb](op);
}

/* Two first reads of one handle at the same time open the object twice: the second descriptor is closed again. */
static void keep_open(struct bwi_posix *p, struct bwi_store_op *op) {
    int fd = op->req.fd;
    if (!op->handle || op->req.kind != BWI_IO_CALL || fd < 0) return;
    struct bwi_store_handle *h = *op->handle || op->error.status != 0 ? NULL : bwi_calloc(1, sizeof *h);
    if (!h) { /* without memory for a handle the next read opens again */
        p->os->close(p->os, fd);
        return;
    }
    *h = (struct bwi_store_handle){.fd = fd, .direct = {.fd = -1}};
    *op->handle = h;
}

static void read_done(struct bwi_posix *p, struct bwi_store_op *op) {
    int64_t n = op->req.result;
    if (n < 0)
        bwi_store_errno(op, (int)n, "read %zu bytes at offset %" PRIu64, op->bytes, op->offset);
    else if (op->error.status == 0 && !op->declined && (uint64_t)n < op->bytes)
        bwi_store_fail(op, BW_E_CORRUPT, "ends at byte %" PRIu64 ", expected at least %" PRIu64,
                       op->offset + (uint64_t)n, op->offset + op->bytes);
    if (!op->bulk) keep_open(p, op);
}

/* --- writes of uploads ---- */

#define BEHIND_BYTES   ((size_t)1 << 20)
#define BEHIND_THREADS 4u

/* Of few workers one that hangs in a write would be the one for calls. */
static bool may_write_behind(const struct bwi_posix *p) {
    return p->os->write_behind && bwi_io_threads(p->io) >= BEHIND_THREADS;
}

/* As many bytes as may go past the page cache go that way, if the caller's memory is aligned for it; what is left at
 * the end of an object goes through it. Much that goes through it is written by a worker: a ring would copy it on the
 * loop's thread. */
static void aim(struct bwi_store_op *op) {
    const struct bwi_posix_upload *u = bwi_posix_upload_of(op);
    const size_t align = BWI_OS_DIRECT_ALIGN;
    const bool aligned = op->offset % align == 0 && (uintptr_t)op->buf % align == 0;
    const bool direct = u->direct >= 0 && !u->no_direct && aligned && op->bytes >= align;
    if (!direct && op->bytes >= BEHIND_BYTES && may_write_behind(bwi_posix_of(op))) return; /* it stays a call */
    op->req.kind = BWI_IO_WRITE;
    op->req.fd = direct ? u->direct : u->fd;
    op->req.bytes = direct ? op->bytes - op->bytes % align : op->bytes;
}

/* Goes on with what the last transfer has left over. true: there is nothing left. */
static bool is_written(struct bwi_posix *p, struct bwi_store_op *op) {
    struct bwi_posix_upload *u = op->upload ? bwi_posix_upload_of(op) : NULL;
    struct bwi_io_req *req = &op->req;
    if (u == NULL || req->kind != BWI_IO_WRITE || req->fd != u->direct) return true;
    if (req->result == -EINVAL) { /* this disk wants more than the usual alignment */
        u->no_direct = true;
        req->bytes = op->bytes;
    } else if (req->result >= 0) {
        op->direct_bytes = (uint64_t)req->result;
        if (op->direct_bytes == op->bytes) return true;
        req->offset += op->direct_bytes;
        req->buf = (uint8_t *)req->buf + op->direct_bytes;
        req->bytes = op->bytes - (size_t)op->direct_bytes;
    } else {
        return true;
    }
    req->fd = u->fd;
    bwi_io_submit(p->io, req);
    return false;
}

static void write_done(struct bwi_store_op *op) {
    int64_t n = op->req.result;
    if (op->req.kind == BWI_IO_WRITE && n < 0)
        bwi_store_errno(op, (int)n, "%zu bytes at offset %" PRIu64 " in %s", op->bytes, op->offset, op->store->url);
    if (op->upload) bwi_store_write_ended(op);
}

static void done(struct bwi_io_req *req) {
    struct bwi_store_op *op = req->user;
    struct bwi_posix *p = bwi_posix_of(op);
    if (op->verb == BWI_STORE_READ && op->bulk && bwi_posix_bulk_goes_on(p, op)) return;
    if (op->verb == BWI_STORE_READ) read_done(p, op);
    if (op->verb == BWI_STORE_WRITE && !is_written(p, op)) return;
    if (op->verb == BWI_STORE_WRITE) write_done(op);
    p->in_flight--;
    bwi_store_complete(op);
}

/* What is not simply a call. On the loop's thread. */
static void prepare(struct bwi_posix *p, struct bwi_store_op *op) {
    struct bwi_io_req *req = &op->req;
    struct bwi_env *env = bwi_loop_env(p->loop);
    bool refused = op->error.status != 0;
    if (op->verb == BWI_STORE_CREATE || op->verb == BWI_STORE_BEGIN || op->verb == BWI_STORE_REPLACE ||
        (op->verb == BWI_STORE_DELETE_PREFIX && op->keep_bytes > 0))
        op->due_ns = env->random_u64(env);
    if (op->verb == BWI_STORE_LIST && op->tidy) op->due_ns = (uint64_t)env->unix_ms(env);
    if (op->verb == BWI_STORE_WRITE) {
        if (op->upload) bwi_store_write_begun(op);
        if (!refused) aim(op);
    }
    if (op->verb == BWI_STORE_READ && !refused && op->handle && *op->handle) {
        if (!op->bulk) req->kind = BWI_IO_READ;
        req->fd = (*op->handle)->fd;
        op->direct = (*op->handle)->direct;
    }
    if (op->verb == BWI_STORE_RELEASE && op->handle && *op->handle) {
        req->fd = (*op->handle)->fd;
        op->direct = (*op->handle)->direct;
        bwi_free(*op->handle);
        *op->handle = NULL;
    }
}

static void submit(struct bwi_store *s, struct bwi_store_op *op) {
    struct bwi_posix *p = bwi_container_of(s, struct bwi_posix, base);
    bwi_store_check(op, p->read_only);
    op->req = (struct bwi_io_req){.kind = BWI_IO_CALL,
                                  .fd = -1,
                                  .offset = op->offset,
                                  .buf = op->buf,
                                  .bytes = op->bytes,
                                  .call = run_call,
                                  .user = op,
                                  .lane = &p->lane,
                                  .done = done};
    op->direct = (struct bwi_store_direct){.fd = -1};
    op->direct_room = 0;
    prepare(p, op);
    if (op->req.kind == BWI_IO_CALL) op->req.bytes = 0;
    p->in_flight++;
    bwi_io_submit(p->io, &op->req);
}

static void close_store(struct bwi_store *s) {
    struct bwi_posix *p = bwi_container_of(s, struct bwi_posix, base);
    assert(p->in_flight == 0);
    bwi_posix_fini_spares(p);
    if (p->root >= 0) p->os->close(p->os, p->root);
    bwi_free(p);
}

/* File systems of one machine. Everything else may be seen by other nodes. */
static bool is_local(uint64_t fs_type) {
    static const uint64_t local[] = {
        0xef53,     /* ext2, ext3, ext4 */
        0x58465342, /* xfs */
        0x9123683e, /* btrfs */
        0x01021994, /* tmpfs */
        0x858458f6, /* ramfs */
        0x794c7630, /* overlayfs */
        0x2fc12fc1, /* zfs */
        0xf2f52010, /* f2fs */
        0xca451a4e, /* bcachefs */
    };
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        if (local[i] == fs_type) return true;
    }
    return false;
}

/* Where a file is written over in its old blocks: ext4, xfs, and tmpfs in its old pages. Others (btrfs, zfs, f2fs,
 * bcachefs) take new ones each time; overlay has files open below that nobody sees above. */
static bool writes_in_place(uint64_t fs_type) {
    return fs_type == 0xef53 || fs_type == 0x58465342 || fs_type == 0x01021994;
}

/* tmpfs takes the flag, and goes through the page cache all the same. */
static bool is_memory(uint64_t fs_type) {
    return fs_type == 0x01021994 || fs_type == 0x858458f6;
}

static int open_root(struct bwi_posix *p, const char *path, bool create, struct bw_error *err) {
    struct bwi_os_stat st;
    struct bwi_os_space space;
    p->root = p->os->open_root(p->os, path, create);
    if (p->root < 0) return bwi_error_errno(err, -p->root, "open store \"%s\"", p->base.url);
    int rc = p->os->stat_fd(p->os, p->root, &st);
    if (rc == 0) rc = p->os->space(p->os, p->root, &space);
    if (rc < 0) return bwi_error_errno(err, -rc, "open store \"%s\": ask for its file system", p->base.url);
    p->no_direct = is_memory(space.fs_type);
    p->lane.no_ring = !is_local(space.fs_type);
    p->base.caps = (struct bwi_store_caps){.node_local = is_local(space.fs_type),
                                           .device = st.device,
                                           .has_space = true,
                                           .past_cache = p->os->open_direct != NULL && !p->no_direct};
    p->base.caps.recycles =
        writes_in_place(space.fs_type) && !p->read_only && p->os->open_alone != NULL && p->os->move_new != NULL;
    return 0;
}

int bwi_store_posix_open(const char *path, const char *url, const struct bwi_store_options *o, struct bwi_store **ret,
                         struct bw_error *err) {
    struct bwi_io *io = bwi_loop_io(o->loop);
    if (!io) return bwi_error_set(err, BW_E_INVALID, "open store \"%s\": its loop has no transfer engine", url);
    struct bwi_posix *p = bwi_calloc(1, sizeof *p);
    if (!p) return bwi_error_nomem(err, sizeof *p, "a store");
    atomic_flag_clear(&p->doubts.lock);
    int rc = bwi_posix_init_spares(p);
    if (rc < 0) {
        bwi_free(p);
        return bwi_error_errno(err, -rc, "open store \"%s\": make a lock", url);
    }
    p->base.submit = submit;
    p->base.close = close_store;
    snprintf(p->base.url, sizeof p->base.url, "%s", url);
    p->loop = o->loop;
    p->io = io;
    p->os = bwi_io_os(io);
    p->read_only = o->read_only;
    rc = open_root(p, path, o->create && !o->read_only, err);
    if (rc < 0) {
        close_store(&p->base);
        return rc;
    }
    *ret = &p->base;
    return 0;
}
