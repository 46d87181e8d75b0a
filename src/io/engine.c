/* SPDX-License-Identifier: Apache-2.0 */
/* The transfer engine on a pool of threads. One lock guards two queues of requests (transfers, calls) and one of
 * completions; all links are the requests' own. Calls may take long, so they never occupy every worker, and workers
 * take from both queues in turn: neither kind starves. */
#include "io/engine.h"

#include "base/error.h"
#include "base/vec.h"
#include "os/thread.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>

#define THREADS_MIN      4u
#define THREADS_AUTO_MAX 16u
#define THREADS_MAX      256u

struct queue {
    struct bwi_io_req *head, *tail;
};

struct bwi_io {
    struct bwi_os *os;
    unsigned threads;   /* started */
    unsigned calls_max; /* workers that calls may occupy at once */
    unsigned in_flight; /* the loop's thread only */
    struct bwi_mutex lock;
    /* guarded by lock */
    struct bwi_cond work; /* something to do, or stop */
    struct bwi_cond done; /* something finished, or woken */
    struct queue transfers, calls, finished;
    unsigned calls_running;
    bool call_next; /* whose turn it is when both queues have something */
    bool stop;
    bool woken;
    struct bwi_thread thread[]; /* the loop's thread only */
};

static void push(struct queue *q, struct bwi_io_req *req) {
    req->next = NULL;
    if (q->tail)
        q->tail->next = req;
    else
        q->head = req;
    q->tail = req;
}

static struct bwi_io_req *pop(struct queue *q) {
    struct bwi_io_req *req = q->head;
    if (!req) return NULL;
    q->head = req->next;
    if (!q->head) q->tail = NULL;
    req->next = NULL;
    return req;
}

static struct bwi_io_req *pick_locked(struct bwi_io *io) {
    bool call = io->calls.head && io->calls_running < io->calls_max;
    if (call && io->transfers.head) call = io->call_next;
    io->call_next = !call;
    if (!call) return pop(&io->transfers);
    io->calls_running++;
    return pop(&io->calls);
}

/* The next request for this worker; NULL when the engine closes. */
static struct bwi_io_req *next_locked(struct bwi_io *io) {
    for (;;) {
        struct bwi_io_req *req = pick_locked(io);
        if (req || io->stop) return req;
        bwi_cond_wait(&io->work, &io->lock, UINT64_MAX);
    }
}

static void *work(void *arg) {
    struct bwi_io *io = arg;
    struct bwi_io_req *req;
    bwi_mutex_lock(&io->lock);
    while ((req = next_locked(io)) != NULL) {
        bool call = req->kind == BWI_IO_CALL;
        bwi_mutex_unlock(&io->lock);
        bwi_io_execute(io->os, req);
        bwi_mutex_lock(&io->lock);
        if (call) {
            io->calls_running--;
            if (io->calls.head) bwi_cond_signal(&io->work);
        }
        push(&io->finished, req);
        bwi_cond_signal(&io->done);
    }
    bwi_mutex_unlock(&io->lock);
    return NULL;
}

static unsigned thread_count(const struct bwi_io_options *o) {
    if (o && o->threads > 0) return o->threads;
    unsigned n = 2 * bwi_os_cpus();
    return n < THREADS_MIN ? THREADS_MIN : n > THREADS_AUTO_MAX ? THREADS_AUTO_MAX : n;
}

static int init_locks(struct bwi_io *io) {
    int rc = bwi_mutex_init(&io->lock);
    if (rc < 0) return rc;
    rc = bwi_cond_init(&io->work);
    if (rc < 0) {
        bwi_mutex_fini(&io->lock);
        return rc;
    }
    rc = bwi_cond_init(&io->done);
    if (rc < 0) {
        bwi_cond_fini(&io->work);
        bwi_mutex_fini(&io->lock);
    }
    return rc;
}

static int start_workers(struct bwi_io *io, unsigned count, struct bw_error *err) {
    for (; io->threads < count; io->threads++) {
        char name[16];
        snprintf(name, sizeof name, "bw-io-%u", io->threads % 1000u);
        int rc = bwi_thread_start(&io->thread[io->threads], name, work, io);
        if (rc < 0) return bwi_error_errno(err, -rc, "start I/O thread %u of %u", io->threads + 1, count);
    }
    return 0;
}

int bwi_io_open(const struct bwi_io_options *o, struct bwi_io **ret, struct bw_error *err) {
    unsigned count = thread_count(o);
    if (count > THREADS_MAX)
        return bwi_error_set(err, BW_E_INVALID, "I/O threads: expected at most %u, found %u", THREADS_MAX, count);
    size_t bytes = sizeof(struct bwi_io) + count * sizeof(struct bwi_thread);
    struct bwi_io *io = bwi_calloc(1, bytes);
    if (!io) return bwi_error_nomem(err, bytes, "the transfer engine");
    io->os = o && o->os ? o->os : bwi_os_system();
    io->calls_max = count == 1 ? 1 : count - (count >= 8 ? count / 4 : 1);
    int rc = init_locks(io);
    if (rc < 0) {
        bwi_free(io);
        return bwi_error_errno(err, -rc, "make the locks of the transfer engine");
    }
    rc = start_workers(io, count, err);
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
    bwi_mutex_lock(&io->lock);
    io->stop = true;
    bwi_cond_broadcast(&io->work);
    bwi_mutex_unlock(&io->lock);
    for (unsigned i = 0; i < io->threads; i++) bwi_thread_join(&io->thread[i]);
    bwi_cond_fini(&io->done);
    bwi_cond_fini(&io->work);
    bwi_mutex_fini(&io->lock);
    bwi_free(io);
}

void bwi_io_submit(struct bwi_io *io, struct bwi_io_req *req) {
    io->in_flight++;
    bwi_mutex_lock(&io->lock);
    push(req->kind == BWI_IO_CALL ? &io->calls : &io->transfers, req);
    bwi_cond_signal(&io->work);
    bwi_mutex_unlock(&io->lock);
}

/* All that has finished. A wake-up is used up only by a call that would have waited: a poll in between must not swallow
 * it. */
static struct bwi_io_req *take_finished(struct bwi_io *io, uint64_t deadline_ns) {
    bwi_mutex_lock(&io->lock);
    while (!io->finished.head && !io->woken && deadline_ns != 0) {
        if (!bwi_cond_wait(&io->done, &io->lock, deadline_ns)) break;
    }
    struct bwi_io_req *all = io->finished.head;
    if (!all && deadline_ns != 0) io->woken = false;
    io->finished = (struct queue){NULL, NULL};
    bwi_mutex_unlock(&io->lock);
    return all;
}

unsigned bwi_io_reap(struct bwi_io *io, uint64_t deadline_ns) {
    unsigned delivered = 0;
    struct bwi_io_req *next, *req = take_finished(io, deadline_ns);
    for (; req; req = next) {
        next = req->next; /* done() may free the request or submit it again */
        req->next = NULL;
        io->in_flight--;
        delivered++;
        req->done(req);
    }
    return delivered;
}

void bwi_io_wake(struct bwi_io *io) {
    bwi_mutex_lock(&io->lock);
    io->woken = true;
    bwi_cond_signal(&io->done);
    bwi_mutex_unlock(&io->lock);
}

struct bwi_os *bwi_io_os(struct bwi_io *io) {
    return io->os;
}
unsigned bwi_io_in_flight(const struct bwi_io *io) {
    return io->in_flight;
}

const char *bwi_io_backend(const struct bwi_io *io) {
    (void)io;
    return "threads";
}
