/* SPDX-License-Identifier: Apache-2.0 */
/* The transfer engine: a ring of the kernel's for transfers where there is one, and a pool of threads for calls, and
 * for transfers where there is none. With a ring there is one place to wait at: the pool signals an eventfd that the
 * ring watches. */
#include "io/engine.h"

#include "base/env.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "io/pool.h"
#include "os/ring.h"
#include "os/thread.h"
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define THREADS_MIN      6u /* fewer leave no room beside a lane that hangs */
#define THREADS_AUTO_MAX 16u
#define THREADS_MAX      256u
#define DEPTH_AUTO       64u
#define DEPTH_MAX        4096u
#define TAKE_MAX         32u /* completions of the ring that are taken at once */

struct bwi_io {
    struct bwi_os *os;
    struct bwi_pool *pool;
    struct bwi_ring *ring; /* NULL: threads */
    int wake_fd;           /* -1: none */
    unsigned in_flight;
    struct bwi_io_req *head, *tail; /* transfers for which the ring has no room yet, or that are refused */
    char why_not[160];              /* there is no ring */
    int unregistered;               /* why the ring does not know the memory: a negative errno; 0 */
    unsigned urgent_wanted;
};

static void say_why_not(struct bwi_io *io, const char *what, int rc) {
    bwi_format(io->why_not, sizeof io->why_not, "%s: %s", what, strerrordesc_np(-rc));
}

/* --- transfers through the ring ------------------------------------------------------------------------------ */

/* What is there of a transfer: its result counts the bytes that were moved as long as it is in flight. */
static size_t part_of(const struct bwi_io_req *req) {
    const size_t left = req->bytes - (size_t)req->result;
    return left < BWI_RING_BYTES_MAX ? left : BWI_RING_BYTES_MAX;
}

static void queue_part(struct bwi_io *io, struct bwi_io_req *req) {
    static const enum bwi_ring_verb verbs[] = {
        [BWI_IO_READ] = BWI_RING_READ, [BWI_IO_WRITE] = BWI_RING_WRITE, [BWI_IO_FSYNC] = BWI_RING_FSYNC};
    const struct bwi_ring_op op = {.verb = verbs[req->kind],
                                   .fd = req->fd,
                                   .offset = req->offset + (uint64_t)req->result,
                                   .buf = (uint8_t *)req->buf + req->result,
                                   .bytes = req->kind == BWI_IO_FSYNC ? 0 : part_of(req),
                                   .user = req};
    bwi_ring_queue(io->ring, &op);
}

/* Whether transfers go to a ring. One that breaks is not mended: the threads do it all from then on. */
static bool has_ring(const struct bwi_io *io) {
    return io->ring && bwi_ring_broken(io->ring) == 0;
}

static void append(struct bwi_io *io, struct bwi_io_req *req) {
    req->next = NULL;
    if (io->tail)
        io->tail->next = req;
    else
        io->head = req;
    io->tail = req;
}

static unsigned deliver(struct bwi_io *io, struct bwi_io_req *req) {
    req->next = NULL;
    io->in_flight--;
    req->done(req);
    return 1;
}

static struct bwi_io_req *next_in_line(struct bwi_io *io) {
    struct bwi_io_req *req = io->head;
    io->head = req->next;
    if (!io->head) io->tail = NULL;
    return req;
}

/* What is next in line goes to the ring, as far as there is room; what may not go is delivered. */
static unsigned fill_ring(struct bwi_io *io) {
    unsigned delivered = 0;
    while (io->head && !has_ring(io)) bwi_pool_submit(io->pool, next_in_line(io));
    while (io->head && bwi_ring_has_room(io->ring)) {
        struct bwi_io_req *req = next_in_line(io);
        req->result = req->bytes > INT64_MAX ? -EINVAL : io->os->admit(io->os, bwi_io_call_of(req->kind));
        if (req->result < 0)
            delivered += deliver(io, req);
        else
            queue_part(io, req);
    }
    return delivered;
}

/* A part has ended; true: so has all of it. A direct read that meets the end of the file leaves a rest that is not
 * aligned any more: that the kernel does not take it says that this is the end. */
static bool has_ended(struct bwi_io_req *req, int32_t result) {
    if (result == -EINTR) return false;
    const bool at_end = req->kind == BWI_IO_READ && (result == 0 || (result == -EINVAL && req->result > 0));
    if (req->kind == BWI_IO_FSYNC || (result < 0 && !at_end)) {
        req->result = result;
        return true;
    }
    if (at_end) return true;
    if (result == 0 && req->bytes > 0) {
        req->result = -EIO;
        return true;
    }
    req->result += result;
    return (size_t)req->result == req->bytes;
}

/* What the ring could not do, a thread does, from the beginning: the kernel had no thread to give it to (a limit of
 * processes, RLIMIT_NPROC or of a container, counts the kernel's as well), or takes nothing any more. The ring has room
 * for the rest of a transfer: the part that has ended has left it. */
static unsigned go_on(struct bwi_io *io, struct bwi_io_req *req, int32_t result) {
    const bool undone = result == -EAGAIN || result == -ECANCELED;
    if (!undone && has_ended(req, result)) return deliver(io, req);
    if (undone || !has_ring(io))
        bwi_pool_submit(io->pool, req);
    else
        queue_part(io, req);
    return 0;
}

static unsigned reap_ring(struct bwi_io *io, uint64_t deadline_ns, bool *ret_woken) {
    struct bwi_ring_done done[TAKE_MAX];
    unsigned delivered = fill_ring(io);
    const unsigned n = bwi_ring_reap(io->ring, done, TAKE_MAX, delivered > 0 ? 0 : deadline_ns, ret_woken);
    if (!has_ring(io)) say_why_not(io, "the io_uring has stopped", bwi_ring_broken(io->ring));
    for (unsigned i = 0; i < n; i++) delivered += go_on(io, done[i].user, done[i].result);
    return delivered;
}

/* --- both ---------------------------------------------------------------------------------------------------- */

static unsigned reap_pool(struct bwi_io *io) {
    unsigned delivered = 0;
    struct bwi_io_req *next, *req = bwi_pool_take(io->pool);
    for (; req; req = next) {
        next = req->next; /* done() may free the request or submit it again */
        delivered += deliver(io, req);
    }
    return delivered;
}

/* A signal of the eventfd says that the pool has something, or had until a moment ago. */
static unsigned reap_both(struct bwi_io *io, uint64_t deadline_ns) {
    struct bwi_env *env = bwi_env_system();
    bool signalled;
    unsigned delivered = reap_pool(io);
    delivered += reap_ring(io, 0, &signalled);
    while (delivered == 0 && deadline_ns != 0 && !bwi_pool_woken(io->pool)) {
        delivered = reap_pool(io);
        if (delivered > 0) break;
        delivered = reap_ring(io, deadline_ns, &signalled);
        delivered += reap_pool(io);
        if (delivered == 0 && !signalled && env->now_ns(env) >= deadline_ns) break;
    }
    return delivered;
}

unsigned bwi_io_reap(struct bwi_io *io, uint64_t deadline_ns) {
    if (io->ring) return reap_both(io, deadline_ns);
    unsigned delivered = reap_pool(io);
    if (delivered > 0 || deadline_ns == 0) return delivered;
    bwi_pool_wait(io->pool, deadline_ns);
    return reap_pool(io);
}

void bwi_io_submit(struct bwi_io *io, struct bwi_io_req *req) {
    io->in_flight++;
    const bool may_ring = req->kind != BWI_IO_CALL && !(req->lane && req->lane->no_ring);
    if (may_ring && has_ring(io))
        append(io, req);
    else
        bwi_pool_submit(io->pool, req);
}

void bwi_io_wake(struct bwi_io *io) {
    bwi_pool_wake(io->pool);
}

/* --- opening ------------------------------------------------------------------------------------------------- */

static unsigned thread_count(const struct bwi_io_options *o) {
    if (o->threads > 0) return o->threads;
    unsigned n = 2 * bwi_os_cpus();
    return n < THREADS_MIN ? THREADS_MIN : n > THREADS_AUTO_MAX ? THREADS_AUTO_MAX : n;
}

static int check(const struct bwi_io_options *o, struct bw_error *err) {
    if (o->threads > THREADS_MAX)
        return bwi_error_set(err, BW_E_INVALID, "I/O threads: expected at most %u, found %u", THREADS_MAX, o->threads);
    if (o->urgent_threads > THREADS_MAX)
        return bwi_error_set(err, BW_E_INVALID, "threads for capturing: expected at most %u, found %u", THREADS_MAX,
                             o->urgent_threads);
    if (o->depth > DEPTH_MAX)
        return bwi_error_set(err, BW_E_INVALID, "I/O depth: expected at most %u, found %u", DEPTH_MAX, o->depth);
    return 0;
}

/* Without an eventfd or a ring the threads do it all, and `why_not` says so. */
static int open_ring(struct bwi_io *io, const struct bwi_io_options *o) {
    int rc = io->os->admit ? 0 : -EOPNOTSUPP;
    if (rc == 0) rc = io->wake_fd = bwi_eventfd_open();
    if (rc >= 0) rc = bwi_ring_open(o->depth > 0 ? o->depth : DEPTH_AUTO, io->wake_fd, &io->ring);
    if (rc == 0) return 0;
    if (io->wake_fd >= 0) bwi_eventfd_close(io->wake_fd);
    io->wake_fd = -1;
    say_why_not(io, "no io_uring", rc);
    return rc;
}

static int open_parts(struct bwi_io *io, const struct bwi_io_options *o, struct bw_error *err) {
    if (o->backend == BW_IO_THREADS)
        bwi_format(io->why_not, sizeof io->why_not, "threads were asked for");
    else if (open_ring(io, o) < 0 && o->backend == BW_IO_URING)
        return bwi_error_set(err, BW_E_UNSUPPORTED, "I/O: %s", io->why_not);
    io->urgent_wanted = o->urgent_threads;
    const struct bwi_pool_options po = {
        .threads = thread_count(o), .urgent_threads = o->urgent_threads, .nice = o->nice};
    return bwi_pool_open(io->os, &po, io->wake_fd, &io->pool, err);
}

int bwi_io_open(const struct bwi_io_options *o, struct bwi_io **ret, struct bw_error *err) {
    static const struct bwi_io_options defaults = {0};
    if (!o) o = &defaults;
    int rc = check(o, err);
    if (rc < 0) return rc;
    struct bwi_io *io = bwi_calloc(1, sizeof *io);
    if (!io) return bwi_error_nomem(err, sizeof *io, "the transfer engine");
    io->os = o->os ? o->os : bwi_os_system();
    io->wake_fd = -1;
    rc = open_parts(io, o, err);
    if (rc < 0) {
        bwi_io_close(io);
        return rc;
    }
    *ret = io;
    return 0;
}

void bwi_io_close(struct bwi_io *io) {
    if (!io) return;
    assert(io->in_flight == 0);
    bwi_pool_close(io->pool);
    bwi_ring_close(io->ring);
    if (io->wake_fd >= 0) bwi_eventfd_close(io->wake_fd);
    bwi_free(io);
}

void bwi_io_register(struct bwi_io *io, void *ptr, size_t bytes) {
    if (io->ring) io->unregistered = bwi_ring_register(io->ring, ptr, bytes);
}

/* --- what it is ---------------------------------------------------------------------------------------------- */

struct bwi_os *bwi_io_os(struct bwi_io *io) {
    return io->os;
}

unsigned bwi_io_threads(const struct bwi_io *io) {
    return bwi_pool_threads(io->pool);
}

unsigned bwi_io_urgent_threads(const struct bwi_io *io) {
    const unsigned own = bwi_pool_urgent_threads(io->pool);
    return own > 0 ? own : bwi_pool_threads(io->pool);
}

unsigned bwi_io_in_flight(const struct bwi_io *io) {
    return io->in_flight;
}

const char *bwi_io_backend(const struct bwi_io *io) {
    return has_ring(io) ? "io_uring" : "threads";
}

const char *bwi_io_why_not(const struct bwi_io *io) {
    return io->why_not;
}

/* Behind what is said already. */
__attribute__((format(printf, 3, 4))) static void add(char *ret, size_t ret_bytes, const char *fmt, ...) {
    char text[160];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const size_t used = strlen(ret);
    bwi_format(ret + used, ret_bytes - used, "%s%s", used > 0 ? "; " : "", text);
}

void bwi_io_lacks(const struct bwi_io *io, char *ret, size_t ret_bytes) {
    const unsigned urgent = bwi_pool_urgent_threads(io->pool);
    bwi_format(ret, ret_bytes, "%s", io->why_not);
    if (has_ring(io) && io->unregistered < 0)
        add(ret, ret_bytes, "the io_uring looks memory up anew for each transfer: registering it: %s",
            strerrordesc_np(-io->unregistered));
    if (urgent < io->urgent_wanted)
        add(ret, ret_bytes, "%u of %u threads for capturing: start one more: %s", urgent, io->urgent_wanted,
            strerrordesc_np(-bwi_pool_urgent_error(io->pool)));
}
