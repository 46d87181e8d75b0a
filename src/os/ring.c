/* SPDX-License-Identifier: Apache-2.0 */
/* The ring, over liburing. The eventfd is watched by a poll that lives in the ring, so that there is one place to wait
 * at. */
#include "os/ring.h"
#include "base/checked.h"
#include "base/env.h"
#include "base/vec.h"
#include "os/system.h"
#include "os/thread.h"
#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <poll.h>

#define PARTS_MAX          1024u /* 1 TiB */
#define KERNEL_THREADS_MAX 16u

/* The thread sanitizer does not see that liburing unmaps a ring's memory: the next ring at the same address would race
 * with the one before. */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *p);
void __tsan_release(void *p);
static char mapped;
#define IS_MAPPED() __tsan_acquire(&mapped)
#define IS_GONE()   __tsan_release(&mapped)
#else
#define IS_MAPPED() ((void)0)
#define IS_GONE()   ((void)0)
#endif

struct bwi_ring {
    struct io_uring uring;
    int wake_fd;
    unsigned depth, in_flight;
    unsigned place_mask;        /* a place's number in the queue of those to hand over */
    int broken;                 /* why the kernel takes nothing any more; 0: it does */
    bool watching;              /* the poll is queued or in the kernel */
    uintptr_t fixed, fixed_end; /* registered memory, in parts of BWI_RING_BYTES_MAX */
};

/* Completions are handled on the thread that reaps in any case: no interrupt of it is needed. Kernels before 5.19 do
 * not know that, and those before 5.18 not the other one. Those before 5.6 open a ring that refuses every read and
 * write of one buffer, which came together with the feature that is looked for. */
static int init(struct bwi_ring *r, unsigned places) {
    static const unsigned flags[] = {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL, 0};
    struct io_uring_params p = {0};
    int rc = -EINVAL;
    for (size_t i = 0; i < sizeof flags / sizeof *flags && rc == -EINVAL; i++) {
        p = (struct io_uring_params){.flags = flags[i]};
        rc = io_uring_queue_init_params(places, &r->uring, &p);
    }
    r->place_mask = p.sq_entries - 1;
    if (rc < 0 || (p.features & IORING_FEAT_RW_CUR_POS)) return rc;
    io_uring_queue_exit(&r->uring);
    return -ENOSYS;
}

/* A ring's descriptor is none of the standard streams' either: its memory is mapped, so it may move. */
static int move_above_streams(struct io_uring *uring) {
    const int fd = bwi_os_descriptor(uring->ring_fd);
    uring->ring_fd = uring->enter_ring_fd = fd < 0 ? -1 : fd;
    if (fd < 0) io_uring_queue_exit(uring);
    return fd < 0 ? fd : 0;
}

int bwi_ring_open(unsigned depth, int wake_fd, struct bwi_ring **ret) {
    struct bwi_ring *r = bwi_calloc(1, sizeof *r);
    if (r == NULL) return -ENOMEM;
    r->depth = depth;
    r->wake_fd = wake_fd;
    int rc = init(r, depth + 1); /* and the poll */
    IS_MAPPED();
    if (rc == 0) rc = move_above_streams(&r->uring);
    if (rc < 0) {
        bwi_free(r);
        return rc;
    }
    (void)io_uring_ring_dontfork(&r->uring);
    /* What the kernel cannot do at once it gives to threads of its own. Older ones know no limit. */
    unsigned threads[2] = {KERNEL_THREADS_MAX, KERNEL_THREADS_MAX};
    (void)io_uring_register_iowq_max_workers(&r->uring, threads);
    *ret = r;
    return 0;
}

void bwi_ring_close(struct bwi_ring *r) {
    if (r == NULL) return;
    assert(r->in_flight == 0);
    /* A forked child has the descriptor until it execs or exits, and with it, memory that stays registered. */
    if (r->fixed != 0) (void)io_uring_unregister_buffers(&r->uring);
    IS_GONE();
    io_uring_queue_exit(&r->uring);
    bwi_free(r);
}

int bwi_ring_register(struct bwi_ring *r, void *ptr, size_t bytes) {
    struct iovec parts[PARTS_MAX];
    const size_t count = (size_t)bwi_div_ceil(bytes, BWI_RING_BYTES_MAX);
    assert(r->fixed == 0);
    if (count > PARTS_MAX) return -EINVAL;
    for (size_t i = 0; i < count; i++) {
        const size_t at = i * BWI_RING_BYTES_MAX;
        parts[i] = (struct iovec){(uint8_t *)ptr + at, bwi_min_u64(bytes - at, BWI_RING_BYTES_MAX)};
    }
    const int rc = io_uring_register_buffers(&r->uring, parts, (unsigned)count);
    if (rc < 0) return rc;
    r->fixed = (uintptr_t)ptr;
    r->fixed_end = r->fixed + bytes;
    return 0;
}

bool bwi_ring_has_room(const struct bwi_ring *r) {
    return r->in_flight < r->depth;
}

/* The part of the registered memory that all of the buffer lies in; -1: none. */
static int part_of(const struct bwi_ring *r, const struct bwi_ring_op *op) {
    const uintptr_t at = (uintptr_t)op->buf;
    if (op->bytes == 0 || at < r->fixed || at >= r->fixed_end || op->bytes > r->fixed_end - at) return -1;
    const uintptr_t first = (at - r->fixed) / BWI_RING_BYTES_MAX;
    const uintptr_t last = (at - r->fixed + op->bytes - 1) / BWI_RING_BYTES_MAX;
    return first == last ? (int)first : -1;
}

/* There are as many places as operations in flight, and one for the poll; a place is free again once the kernel has
 * taken what lies in it. */
static struct io_uring_sqe *place(struct bwi_ring *r) {
    struct io_uring_sqe *e = io_uring_get_sqe(&r->uring);
    if (e == NULL) {
        (void)io_uring_submit(&r->uring);
        e = io_uring_get_sqe(&r->uring);
    }
    assert(e != NULL);
    return e;
}

void bwi_ring_queue(struct bwi_ring *r, const struct bwi_ring_op *op) {
    assert(bwi_ring_has_room(r) && op->user != NULL && op->bytes <= BWI_RING_BYTES_MAX);
    struct io_uring_sqe *e = place(r);
    const unsigned n = (unsigned)op->bytes;
    const int part = part_of(r, op);
    switch (op->verb) {
    case BWI_RING_READ:
        if (part >= 0)
            io_uring_prep_read_fixed(e, op->fd, op->buf, n, op->offset, part);
        else
            io_uring_prep_read(e, op->fd, op->buf, n, op->offset);
        break;
    case BWI_RING_WRITE:
        if (part >= 0)
            io_uring_prep_write_fixed(e, op->fd, op->buf, n, op->offset, part);
        else
            io_uring_prep_write(e, op->fd, op->buf, n, op->offset);
        break;
    case BWI_RING_FSYNC: io_uring_prep_fsync(e, op->fd, 0); break;
    }
    io_uring_sqe_set_data(e, op->user);
    r->in_flight++;
}

static void watch(struct bwi_ring *r) {
    if (r->watching) return;
    struct io_uring_sqe *e = place(r);
    io_uring_prep_poll_add(e, r->wake_fd, POLLIN);
    io_uring_sqe_set_data(e, NULL);
    r->watching = true;
}

static unsigned take(struct bwi_ring *r, struct bwi_ring_done *ret, unsigned max, bool *ret_woken) {
    struct io_uring_cqe *c;
    unsigned n = 0;
    while (n < max && io_uring_peek_cqe(&r->uring, &c) == 0) {
        void *const user = io_uring_cqe_get_data(c);
        if (user == NULL) {
            r->watching = false;
            *ret_woken = true;
            bwi_eventfd_drain(r->wake_fd);
        } else {
            ret[n++] = (struct bwi_ring_done){user, c->res};
            r->in_flight--;
        }
        io_uring_cqe_seen(&r->uring, c);
    }
    return n;
}

/* A lack of memory, or of room for results, passes. What else the kernel refuses it refuses for good: a filter of
 * system calls that came later does not go away. */
static void note(struct bwi_ring *r, int rc) {
    const bool passes = rc >= 0 || rc == -EAGAIN || rc == -EBUSY || rc == -EINTR || rc == -ETIME || rc == -ENOMEM;
    if (!passes) r->broken = rc;
}

/* What the kernel of a broken ring has not taken. */
static unsigned take_back(struct bwi_ring *r, struct bwi_ring_done *ret, unsigned max) {
    const unsigned left = io_uring_sq_ready(&r->uring), first = r->uring.sq.sqe_tail - left;
    unsigned n = 0;
    for (unsigned i = 0; i < left && n < max; i++) {
        struct io_uring_sqe *e = &r->uring.sq.sqes[(first + i) & r->place_mask];
        void *const user = (void *)(uintptr_t)e->user_data;
        if (user == NULL) continue; /* the poll, or taken back before */
        ret[n++] = (struct bwi_ring_done){user, -ECANCELED};
        e->user_data = 0;
        r->in_flight--;
    }
    return n;
}

/* The eventfd alone tells that the pool has something. What the kernel still carries out it ends without telling. */
static void wait_beside(struct bwi_ring *r, uint64_t left_ns, bool *ret_woken) {
    if (r->in_flight > 0) left_ns = bwi_min_u64(left_ns, BWI_NS_PER_MS);
    if (!bwi_eventfd_wait(r->wake_fd, left_ns)) return;
    *ret_woken = true;
    bwi_eventfd_drain(r->wake_fd);
}

/* Until one is there. Returns early now and then. */
static void wait_for_one(struct bwi_ring *r, uint64_t deadline_ns, uint64_t now_ns, bool *ret_woken) {
    struct io_uring_cqe *c;
    const uint64_t left = deadline_ns - now_ns;
    struct __kernel_timespec t = {.tv_sec = (int64_t)(left / BWI_NS_PER_S),
                                  .tv_nsec = (long long)(left % BWI_NS_PER_S)};
    if (r->broken < 0)
        wait_beside(r, left, ret_woken);
    else if (deadline_ns == BWI_NEVER)
        note(r, io_uring_submit_and_wait(&r->uring, 1));
    else
        note(r, io_uring_submit_and_wait_timeout(&r->uring, &c, 1, &t, NULL));
}

unsigned bwi_ring_reap(struct bwi_ring *r, struct bwi_ring_done *ret, unsigned max, uint64_t deadline_ns,
                       bool *ret_woken) {
    struct bwi_env *env = bwi_env_system();
    *ret_woken = false;
    if (r->broken == 0) {
        watch(r);
        note(r, io_uring_submit(&r->uring));
    }
    for (;;) {
        unsigned n = take(r, ret, max, ret_woken);
        if (r->broken < 0) n += take_back(r, ret + n, max - n);
        const uint64_t now_ns = env->now_ns(env);
        if (n > 0 || *ret_woken || deadline_ns <= now_ns) return n;
        wait_for_one(r, deadline_ns, now_ns, ret_woken);
    }
}

int bwi_ring_broken(const struct bwi_ring *r) {
    return r->broken;
}
