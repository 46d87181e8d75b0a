/* SPDX-License-Identifier: Apache-2.0 */
/* A ring that the kernel grants and then does not serve, as a kernel before 5.6 does, a limit of processes, or a filter
 * of system calls that came later: every transfer is carried out all the same, by threads. The linker puts the
 * functions of this file in front of the ring's. */
#include "base/env.h"
#include "io/engine.h"
#include "os/ring.h"
#include "test.h"
#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SOON  (UINT64_C(20) * BWI_NS_PER_S) /* longer than anything here takes */
#define PARTS 40u
#define PART  5000u
#define DEPTH 7u
#define LARGE ((size_t)32 << 20) /* takes a while */

/* --- a kernel that is not what it was ---- */

static struct {
    bool is_old;     /* it does not know the later half of io_uring */
    int refusal;     /* of every submission; 0: none */
    unsigned undone; /* every so many-th result says that nothing was done; 0: none does */
    unsigned results;
} kernel;

int __real_io_uring_queue_init_params(unsigned entries, struct io_uring *r, struct io_uring_params *p);
int __wrap_io_uring_queue_init_params(unsigned entries, struct io_uring *r, struct io_uring_params *p);
int __wrap_io_uring_queue_init_params(unsigned entries, struct io_uring *r, struct io_uring_params *p) {
    const int rc = __real_io_uring_queue_init_params(entries, r, p);
    if (kernel.is_old) p->features &= ~(unsigned)IORING_FEAT_RW_CUR_POS;
    return rc;
}

int __real_io_uring_submit(struct io_uring *r);
int __wrap_io_uring_submit(struct io_uring *r);
int __wrap_io_uring_submit(struct io_uring *r) {
    return kernel.refusal ? kernel.refusal : __real_io_uring_submit(r);
}

int __real_io_uring_submit_and_wait_timeout(struct io_uring *r, struct io_uring_cqe **c, unsigned n,
                                            struct __kernel_timespec *t, sigset_t *mask);
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *r, struct io_uring_cqe **c, unsigned n,
                                            struct __kernel_timespec *t, sigset_t *mask);
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *r, struct io_uring_cqe **c, unsigned n,
                                            struct __kernel_timespec *t, sigset_t *mask) {
    return kernel.refusal ? kernel.refusal : __real_io_uring_submit_and_wait_timeout(r, c, n, t, mask);
}

unsigned __real_bwi_ring_reap(struct bwi_ring *r, struct bwi_ring_done *ret, unsigned max, uint64_t deadline_ns,
                              bool *ret_woken);
unsigned __wrap_bwi_ring_reap(struct bwi_ring *r, struct bwi_ring_done *ret, unsigned max, uint64_t deadline_ns,
                              bool *ret_woken);
unsigned __wrap_bwi_ring_reap(struct bwi_ring *r, struct bwi_ring_done *ret, unsigned max, uint64_t deadline_ns,
                              bool *ret_woken) {
    const unsigned n = __real_bwi_ring_reap(r, ret, max, deadline_ns, ret_woken);
    for (unsigned i = 0; i < n && kernel.undone > 0; i++)
        if (++kernel.results % kernel.undone == 0) ret[i].result = kernel.results % 2 ? -EAGAIN : -ECANCELED;
    return n;
}

/* --- a file in parts ---- */

struct fixture {
    const char *dir;
    int fd;
    struct bwi_io *io;
    struct bwi_io_req req[PARTS];
    uint8_t out[PARTS * PART], in[PARTS * PART];
    unsigned done;
};
static struct fixture the;

static uint64_t soon(void) {
    struct bwi_env *env = bwi_env_system();
    return env->now_ns(env) + SOON;
}

static void count(struct bwi_io_req *req) {
    (void)req;
    the.done++;
}

static void finish_all(struct fixture *f, unsigned but) {
    while (bwi_io_in_flight(f->io) > but) assert_true(bwi_io_reap(f->io, soon()) > 0);
}

static void submit_all(struct fixture *f, enum bwi_io_kind kind, uint8_t *buf) {
    for (unsigned i = 0; i < PARTS; i++) {
        const size_t at = (size_t)i * PART;
        f->req[i] =
            (struct bwi_io_req){.kind = kind, .fd = f->fd, .offset = at, .buf = buf + at, .bytes = PART, .done = count};
        bwi_io_submit(f->io, &f->req[i]);
    }
}

static void check_all(const struct fixture *f) {
    for (unsigned i = 0; i < PARTS; i++) assert_int_equal(f->req[i].result, PART);
}

/* Twice as many requests as there are parts, and one. */
static void write_and_read_back(struct fixture *f, unsigned but) {
    submit_all(f, BWI_IO_WRITE, f->out);
    finish_all(f, but);
    check_all(f);
    struct bwi_io_req sync = {.kind = BWI_IO_FSYNC, .fd = f->fd, .done = count};
    bwi_io_submit(f->io, &sync);
    finish_all(f, but);
    assert_int_equal(sync.result, 0);
    submit_all(f, BWI_IO_READ, f->in);
    finish_all(f, but);
    check_all(f);
    assert_memory_equal(f->in, f->out, sizeof f->in);
}

static int setup(void **state) {
    struct fixture *f = &the;
    struct bwi_os *os = bwi_os_system();
    struct bw_error err = BW_ERROR_INIT;
    uint64_t rng = 11;
    memset(&kernel, 0, sizeof kernel);
    memset(f, 0, sizeof *f);
    f->dir = test_mkdir();
    const int root = os->open_root(os, f->dir, false);
    f->fd = os->open_new(os, root, "file");
    assert_true(f->fd >= 0);
    (void)os->close(os, root);
    for (size_t i = 0; i < sizeof f->out; i++) f->out[i] = (uint8_t)test_random(&rng);
    const struct bwi_io_options o = {.threads = 2, .backend = BW_IO_URING, .depth = DEPTH};
    assert_ok(bwi_io_open(&o, &f->io, &err), &err);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    bwi_io_close(f->io);
    (void)close(f->fd);
    test_rmdir(f->dir);
    return 0;
}

/* --- cases ---- */

static void a_ring_of_a_kernel_that_reads_and_writes_otherwise_is_none(void **state) {
    (void)state;
    struct bwi_io *io = NULL;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_io_options o = {.threads = 1};
    kernel.is_old = true;
    assert_ok(bwi_io_open(&o, &io, &err), &err);
    assert_string_equal(bwi_io_backend(io), "threads");
    assert_string_equal(bwi_io_why_not(io), "no io_uring: Function not implemented");
    bwi_io_close(io);
    io = NULL;
    o.backend = BW_IO_URING;
    assert_fails(bwi_io_open(&o, &io, &err), BW_E_UNSUPPORTED, &err, "Function not implemented");
}

static void what_the_ring_could_not_do_a_thread_does(void **state) {
    struct fixture *f = *state;
    for (kernel.undone = 1; kernel.undone <= 3; kernel.undone++) {
        f->done = 0;
        write_and_read_back(f, 0);
        assert_int_equal(f->done, 2 * PARTS + 1);
    }
    assert_true(kernel.results >= 3 * (2 * PARTS + 1));
    assert_string_equal(bwi_io_backend(f->io), "io_uring"); /* still: it does some */
}

static void a_ring_that_stops_leaves_everything_to_threads(void **state) {
    struct fixture *f = *state;
    kernel.refusal = -EPERM;
    write_and_read_back(f, 0);
    assert_int_equal(f->done, 2 * PARTS + 1);
    assert_string_equal(bwi_io_backend(f->io), "threads");
    assert_string_equal(bwi_io_why_not(f->io), "the io_uring has stopped: Operation not permitted");
    bwi_io_wake(f->io);
    assert_int_equal(bwi_io_reap(f->io, soon()), 0);
}

/* A read of a pipe is in the kernel when the ring stops. It ends there, and is told. */
static void what_a_ring_that_stops_had_begun_is_waited_for(void **state) {
    struct fixture *f = *state;
    char got[4] = "";
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct bwi_io_req req = {.kind = BWI_IO_READ, .fd = ends[0], .buf = got, .bytes = 3, .done = count};
    bwi_io_submit(f->io, &req);
    assert_int_equal(bwi_io_reap(f->io, 0), 0);
    kernel.refusal = -EPERM;
    write_and_read_back(f, 1);
    assert_int_equal(f->done, 2 * PARTS + 1);
    assert_int_equal(write(ends[1], "abc", 3), 3);
    finish_all(f, 0);
    assert_int_equal(req.result, 3);
    assert_string_equal(got, "abc");
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* Threads of the kernel's tell nobody but the ring. */
static void what_threads_of_the_kernel_had_begun_is_looked_for(void **state) {
    struct fixture *f = *state;
    uint8_t *large = calloc(1, LARGE);
    assert_non_null(large);
    struct bwi_io_req req = {.kind = BWI_IO_WRITE, .fd = f->fd, .buf = large, .bytes = LARGE, .done = count};
    bwi_io_submit(f->io, &req);
    (void)bwi_io_reap(f->io, 0);
    kernel.refusal = -EPERM;
    const uint64_t end = soon();
    finish_all(f, 0);
    assert_true(soon() < end + SOON / 2); /* not only when the wait was over */
    assert_int_equal(req.result, LARGE);
    free(large);
}

static void what_passes_stops_no_ring(void **state) {
    struct fixture *f = *state;
    struct bwi_env *env = bwi_env_system();
    submit_all(f, BWI_IO_WRITE, f->out);
    kernel.refusal = -EAGAIN;
    assert_int_equal(bwi_io_reap(f->io, env->now_ns(env) + BWI_NS_PER_MS), 0);
    kernel.refusal = 0;
    finish_all(f, 0);
    check_all(f);
    assert_string_equal(bwi_io_backend(f->io), "io_uring");
}

static bool has_ring(void) {
    struct bwi_ring *r = NULL;
    if (bwi_ring_open(1, -1, &r) < 0) return false;
    bwi_ring_close(r);
    return true;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        CASE(a_ring_of_a_kernel_that_reads_and_writes_otherwise_is_none),
        CASE(what_the_ring_could_not_do_a_thread_does),
        CASE(a_ring_that_stops_leaves_everything_to_threads),
        CASE(what_a_ring_that_stops_had_begun_is_waited_for),
        CASE(what_threads_of_the_kernel_had_begun_is_looked_for),
        CASE(what_passes_stops_no_ring),
    };
    if (!has_ring()) {
        printf("no io_uring here: not tried\n");
        return 77;
    }
    return test_run(tests, argc > 1 ? argv[1] : NULL, NULL, NULL);
}
