/* SPDX-License-Identifier: Apache-2.0 */
#include "io/pool.h"

#include "base/error.h"
#include "base/vec.h"
#include "os/thread.h"
#include <stdio.h>

struct queue {
    struct bwi_io_req *head, *tail;
};

struct bwi_pool {
    struct bwi_os *os;
    int wake_fd;
    unsigned threads;   /* started */
    unsigned calls_max; /* workers that calls may occupy at once */
    struct bwi_mutex lock;
    /* guarded by lock */
    struct bwi_cond work; /* something to do, or stop */
    struct bwi_cond done; /* something finished, or woken */
    struct queue transfers, calls, finished;
    unsigned calls_running;
    bool call_next; /* whose turn it is when both queues have something */
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

static struct bwi_io_req *pop(struct queue *q) {
    struct bwi_io_req *req = q->head;
    if (!req) return NULL;
    q->head = req->next;
    if (!q->head) q->tail = NULL;
    req->next = NULL;
    return req;
}

static struct bwi_io_req *pick_locked(struct bwi_pool *p) {
    bool call = p->calls.head && p->calls_running < p->calls_max;
    if (call && p->transfers.head) call = p->call_next;
    p->call_next = !call;
    if (!call) return pop(&p->transfers);
    p->calls_running++;
    return pop(&p->calls);
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
    bwi_mutex_lock(&p->lock);
    while ((req = next_locked(p)) != NULL) {
        bool call = req->kind == BWI_IO_CALL;
        bwi_mutex_unlock(&p->lock);
        bwi_io_execute(p->os, req);
        bwi_mutex_lock(&p->lock);
        if (call) {
            p->calls_running--;
            if (p->calls.head) bwi_cond_signal(&p->work);
        }
        finish_locked(p, req);
    }
    bwi_mutex_unlock(&p->lock);
    return NULL;
}

static int init_locks(struct bwi_pool *p) {
    int rc = bwi_mutex_init(&p->lock);
    if (rc < 0) return rc;
    rc = bwi_cond_init(&p->work);
    if (rc < 0) {
        bwi_mutex_fini(&p->lock);
        return rc;
    }
    rc = bwi_cond_init(&p->done);
    if (rc < 0) {
        bwi_cond_fini(&p->work);
        bwi_mutex_fini(&p->lock);
    }
    return rc;
}

static int start_workers(struct bwi_pool *p, unsigned count, struct bw_error *err) {
    for (; p->threads < count; p->threads++) {
        char name[16];
        snprintf(name, sizeof name, "bw-io-%u", p->threads % 1000u);
        int rc = bwi_thread_start(&p->thread[p->threads], name, work, p);
        if (rc < 0) return bwi_error_errno(err, -rc, "start I/O thread %u of %u", p->threads + 1, count);
    }
    return 0;
}

int bwi_pool_open(struct bwi_os *os, unsigned threads, int wake_fd, struct bwi_pool **ret, struct bw_error *err) {
    const size_t bytes = sizeof(struct bwi_pool) + threads * sizeof(struct bwi_thread);
    struct bwi_pool *p = bwi_calloc(1, bytes);
    if (!p) return bwi_error_nomem(err, bytes, "the I/O threads");
    p->os = os;
    p->wake_fd = wake_fd;
    p->calls_max = threads == 1 ? 1 : threads - (threads >= 8 ? threads / 4 : 1);
    int rc = init_locks(p);
    if (rc < 0) {
        bwi_free(p);
        return bwi_error_errno(err, -rc, "make the locks of the I/O threads");
    }
    rc = start_workers(p, threads, err);
    if (rc < 0) {
        bwi_pool_close(p);
        return rc;
    }
    *ret = p;
    return 0;
}

void bwi_pool_close(struct bwi_pool *p) {
    if (!p) return;
    bwi_mutex_lock(&p->lock);
    p->stop = true;
    bwi_cond_broadcast(&p->work);
    bwi_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->threads; i++) bwi_thread_join(&p->thread[i]);
    bwi_cond_fini(&p->done);
    bwi_cond_fini(&p->work);
    bwi_mutex_fini(&p->lock);
    bwi_free(p);
}

void bwi_pool_submit(struct bwi_pool *p, struct bwi_io_req *req) {
    bwi_mutex_lock(&p->lock);
    push(req->kind == BWI_IO_CALL ? &p->calls : &p->transfers, req);
    bwi_cond_signal(&p->work);
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
