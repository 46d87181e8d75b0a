/* SPDX-License-Identifier: Apache-2.0 */
#include "io/pool.h"

#include "base/error.h"
#include "base/vec.h"
#include "os/cpus.h"
#include "os/thread.h"
#include <stdio.h>

struct queue {
    struct bwi_io_req *head, *tail;
};

struct bwi_pool {
    struct bwi_os *os;
    int wake_fd;
    unsigned size;      /* workers, without the urgent ones */
    unsigned urgent;    /* urgent ones, which are behind the others */
    int urgent_error;   /* why there are fewer urgent ones than were asked for */
    int nice;           /* of the others */
    unsigned threads;   /* of all, started */
    unsigned calls_max; /* workers that calls may occupy at once */
    struct bwi_mutex lock;
    /* guarded by lock */
    struct bwi_cond work; /* something to do, or stop */
    struct bwi_cond done; /* something finished, or woken */
    struct bwi_cond urgent_work;
    struct queue transfers, calls, urgent_calls, finished;
    unsigned calls_running;
    struct bwi_io_lane lanes; /* all of them together */
    bool call_next;           /* whose turn it is when both queues have something */
    bool stop;
    bool woken;
    struct bwi_thread thread[]; /* the opener's only */
};

static void push(struct queue *q, struct bwi_io_req *req) {
    req->next = NULL;
    if (q->tail)
        q->tail->next = req;
    else
        q->head = req;
    q->tail = req;
}

/* All but so many, and at least one. */
static unsigned all_but(unsigned count, unsigned kept) {
    return count > kept ? count - kept : 1;
}

static bool has_room_locked(const struct bwi_pool *p, const struct bwi_io_lane *l, bool call, unsigned kept) {
    return l->running < all_but(p->size, kept) && (!call || l->calls < all_but(p->calls_max, kept));
}

static bool may_run_locked(const struct bwi_pool *p, const struct bwi_io_req *req) {
    const bool call = req->kind == BWI_IO_CALL;
    if (call && p->calls_running >= p->calls_max) return false;
    return !req->lane || (has_room_locked(p, req->lane, call, 2) && has_room_locked(p, &p->lanes, call, 1));
}

struct found {
    struct bwi_io_req *before, *req; /* before it in its queue; NULL: none */
};

/* The first request that may run. */
static struct found first_locked(const struct bwi_pool *p, const struct queue *q) {
    struct found f = {NULL, q->head};
    while (f.req && !may_run_locked(p, f.req)) f = (struct found){f.req, f.req->next};
    return f;
}

static struct bwi_io_req *take_out(struct queue *q, struct found f) {
    if (f.before)
        f.before->next = f.req->next;
    else
        q->head = f.req->next;
    if (q->tail == f.req) q->tail = f.before;
    f.req->next = NULL;
    return f.req;
}

static void account(struct bwi_io_lane *l, bool call, bool begins) {
    l->running += begins ? 1u : -1u;
    if (call) l->calls += begins ? 1u : -1u;
}

static void account_locked(struct bwi_pool *p, const struct bwi_io_req *req, bool begins) {
    const bool call = req->kind == BWI_IO_CALL;
    if (call) p->calls_running += begins ? 1u : -1u;
    if (!req->lane) return;
    account(req->lane, call, begins);
    account(&p->lanes, call, begins);
}

static struct bwi_io_req *pick_locked(struct bwi_pool *p) {
    const struct found call = first_locked(p, &p->calls), transfer = first_locked(p, &p->transfers);
    const bool is_call = call.req && (!transfer.req || p->call_next);
    if (!is_call && !transfer.req) return NULL;
    struct bwi_io_req *req = is_call ? take_out(&p->calls, call) : take_out(&p->transfers, transfer);
    p->call_next = !is_call;
    account_locked(p, req, true);
    return req;
}

/* The next request for this worker; NULL when the engine closes. */
static struct bwi_io_req *next_locked(struct bwi_pool *p) {
    for (;;) {
        struct bwi_io_req *req = pick_locked(p);
        if (req || p->stop) return req;
        bwi_cond_wait(&p->work, &p->lock, UINT64_MAX);
    }
}

/* Whoever waits at the eventfd takes all that has finished once it is signalled. */
static void finish_locked(struct bwi_pool *p, struct bwi_io_req *req) {
    const bool first = p->finished.head == NULL;
    push(&p->finished, req);
    if (p->wake_fd < 0)
        bwi_cond_signal(&p->done);
    else if (first)
        bwi_eventfd_signal(p->wake_fd);
}

static void *work(void *arg) {
    struct bwi_pool *p = arg;
    struct bwi_io_req *req;
    bwi_thread_give_way(p->nice);
    bwi_mutex_lock(&p->lock);
    while ((req = next_locked(p)) != NULL) {
        bwi_mutex_unlock(&p->lock);
        bwi_io_execute(p->os, req);
        bwi_mutex_lock(&p->lock);
        account_locked(p, req, false);
        if (p->calls.head || p->transfers.head) bwi_cond_signal(&p->work); /* what had to wait for this one */
        finish_locked(p, req);
    }
    bwi_mutex_unlock(&p->lock);
    return NULL;
}

static struct bwi_io_req *next_urgent_locked(struct bwi_pool *p) {
    while (!p->urgent_calls.head && !p->stop) bwi_cond_wait(&p->urgent_work, &p->lock, UINT64_MAX);
    return p->urgent_calls.head ? take_out(&p->urgent_calls, (struct found){NULL, p->urgent_calls.head}) : NULL;
}

static void *work_urgently(void *arg) {
    struct bwi_pool *p = arg;
    struct bwi_io_req *req;
    bwi_mutex_lock(&p->lock);
    while ((req = next_urgent_locked(p)) != NULL) {
        bwi_mutex_unlock(&p->lock);
        bwi_io_execute(p->os, req);
        bwi_mutex_lock(&p->lock);
        finish_locked(p, req);
    }
    bwi_mutex_unlock(&p->lock);
    return NULL;
}

static int init_locks(struct bwi_pool *p) {
    struct bwi_cond *conds[] = {&p->work, &p->urgent_work, &p->done};
    int rc = bwi_mutex_init(&p->lock);
    if (rc < 0) return rc;
    for (size_t i = 0; i < sizeof conds / sizeof *conds; i++) {
        rc = bwi_cond_init(conds[i]);
        if (rc == 0) continue;
        while (i-- > 0) bwi_cond_fini(conds[i]);
        bwi_mutex_fini(&p->lock);
        return rc;
    }
    return 0;
}

static int start_workers(struct bwi_pool *p, unsigned count, struct bw_error *err) {
    for (; p->threads < count; p->threads++) {
        const bool urgent = p->threads >= p->size;
        char name[16];
        snprintf(name, sizeof name, urgent ? "bw-capture-%u" : "bw-io-%u",
                 (urgent ? p->threads - p->size : p->threads) % 1000u);
        int rc = bwi_thread_start(&p->thread[p->threads], name, urgent ? work_urgently : work, p);
        if (rc < 0 && urgent) { /* there are others to do it */
            p->urgent_error = rc;
            break;
        }
        if (rc < 0) return bwi_error_errno(err, -rc, "start I/O thread %u of %u", p->threads + 1, p->size);
    }
    return 0;
}

int bwi_pool_open(struct bwi_os *os, const struct bwi_pool_options *o, int wake_fd, struct bwi_pool **ret,
                  struct bw_error *err) {
    const unsigned threads = o->threads, all = o->threads + o->urgent_threads;
    const size_t bytes = sizeof(struct bwi_pool) + all * sizeof(struct bwi_thread);
    struct bwi_pool *p = bwi_calloc(1, bytes);
    if (!p) return bwi_error_nomem(err, bytes, "the I/O threads");
    p->os = os;
    p->wake_fd = wake_fd;
    p->size = threads;
    p->urgent = o->urgent_threads;
    p->nice = o->nice;
    p->calls_max = threads == 1 ? 1 : threads - (threads >= 8 ? threads / 4 : 1);
    int rc = init_locks(p);
    if (rc < 0) {
        bwi_free(p);
        return bwi_error_errno(err, -rc, "make the locks of the I/O threads");
    }
    rc = start_workers(p, all, err);
    if (rc == 0) p->urgent = p->threads - p->size;
    if (rc < 0) {
        bwi_pool_close(p);
        return rc;
    }
    *ret = p;
    return 0;
}

unsigned bwi_pool_urgent_threads(const struct bwi_pool *p) {
    return p->urgent;
}

int bwi_pool_urgent_error(const struct bwi_pool *p) {
    return p->urgent_error;
}

unsigned bwi_pool_threads(const struct bwi_pool *p) {
    return p->size;
}

void bwi_pool_close(struct bwi_pool *p) {
    if (!p) return;
    bwi_mutex_lock(&p->lock);
    p->stop = true;
    bwi_cond_broadcast(&p->work);
    bwi_cond_broadcast(&p->urgent_work);
    bwi_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->threads; i++) bwi_thread_join(&p->thread[i]);
    bwi_cond_fini(&p->done);
    bwi_cond_fini(&p->urgent_work);
    bwi_cond_fini(&p->work);
    bwi_mutex_fini(&p->lock);
    bwi_free(p);
}

void bwi_pool_submit(struct bwi_pool *p, struct bwi_io_req *req) {
    const bool urgent = req->urgent && p->urgent > 0;
    bwi_mutex_lock(&p->lock);
    push(urgent ? &p->urgent_calls : req->kind == BWI_IO_CALL ? &p->calls : &p->transfers, req);
    bwi_cond_signal(urgent ? &p->urgent_work : &p->work);
    bwi_mutex_unlock(&p->lock);
}

struct bwi_io_req *bwi_pool_take(struct bwi_pool *p) {
    bwi_mutex_lock(&p->lock);
    struct bwi_io_req *all = p->finished.head;
    p->finished = (struct queue){NULL, NULL};
    bwi_mutex_unlock(&p->lock);
    return all;
}

void bwi_pool_wait(struct bwi_pool *p, uint64_t deadline_ns) {
    bwi_mutex_lock(&p->lock);
    while (!p->finished.head && !p->woken) {
        if (!bwi_cond_wait(&p->done, &p->lock, deadline_ns)) break;
    }
    if (!p->finished.head) p->woken = false;
    bwi_mutex_unlock(&p->lock);
}

void bwi_pool_wake(struct bwi_pool *p) {
    bwi_mutex_lock(&p->lock);
    p->woken = true;
    if (p->wake_fd < 0)
        bwi_cond_signal(&p->done);
    else
        bwi_eventfd_signal(p->wake_fd);
    bwi_mutex_unlock(&p->lock);
}

bool bwi_pool_woken(struct bwi_pool *p) {
    bwi_mutex_lock(&p->lock);
    const bool woken = p->woken;
    p->woken = false;
    bwi_mutex_unlock(&p->lock);
    return woken;
}
