/* SPDX-License-Identifier: Apache-2.0 */
/* The transfer engine: every request comes back once, on the thread that reaps, with the right result. */
#include "base/env.h"
#include "base/vec.h"
#include "io/engine.h"
#include "os/thread.h"
#include "sanitized.h"
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOON (UINT64_C(20) * BWI_NS_PER_S) /* longer than anything here takes */

static uint64_t now(void) {
    struct bwi_env *env = bwi_env_system();
    return env->now_ns(env);
}

static enum bw_io_backend backend; /* of the cases that run with each */

static struct bwi_io *open_io(unsigned threads, struct bwi_os *os) {
    struct bwi_io *io = NULL;
    struct bw_error err = BW_ERROR_INIT;
    const struct bwi_io_options o = {.os = os, .threads = threads, .backend = backend, .depth = 7};
    assert_ok(bwi_io_open(&o, &io, &err), &err);
    return io;
}

static void finish_all(struct bwi_io *io) {
    while (bwi_io_in_flight(io) > 0) assert_true(bwi_io_reap(io, now() + SOON) > 0);
}

static void count(struct bwi_io_req *req) {
    ++*(int *)req->user;
}

static int scratch_file(const char *dir) {
    struct bwi_os *os = bwi_os_system();
    int root = os->open_root(os, dir, false);
    int fd = os->open_new(os, root, "file");
    assert_true(fd >= 0);
    os->close(os, root);
    return fd;
}

static void bytes_go_and_come_back(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    int fd = scratch_file(dir), done = 0;
    struct bwi_io *io = open_io(2, NULL);
    char out[] = "0123456789", in[16] = {0};
    struct bwi_io_req w = {
        .kind = BWI_IO_WRITE, .fd = fd, .offset = 3, .buf = out, .bytes = 10, .user = &done, .done = count};
    bwi_io_submit(io, &w);
    finish_all(io);
    assert_int_equal(w.result, 10);
    struct bwi_io_req s = {.kind = BWI_IO_FSYNC, .fd = fd, .user = &done, .done = count};
    bwi_io_submit(io, &s);
    finish_all(io);
    assert_int_equal(s.result, 0);
    struct bwi_io_req r = {
        .kind = BWI_IO_READ, .fd = fd, .offset = 8, .buf = in, .bytes = sizeof in, .user = &done, .done = count};
    bwi_io_submit(io, &r);
    finish_all(io);
    assert_int_equal(r.result, 5); /* short at the end of the file */
    assert_memory_equal(in, "56789", 5);
    assert_int_equal(done, 3);
    assert_string_equal(bwi_io_backend(io), backend == BW_IO_URING ? "io_uring" : "threads");
    assert_string_equal(bwi_io_why_not(io), backend == BW_IO_URING ? "" : "threads were asked for");
    bwi_io_close(io);
    bwi_os_system()->close(bwi_os_system(), fd);
    test_rmdir(dir);
}

static void errors_are_negative_errnos(void **state) {
    (void)state;
    int done = 0;
    char byte = 0;
    struct bwi_io *io = open_io(1, NULL);
    struct bwi_io_req r[] = {
        {.kind = BWI_IO_READ, .fd = -1, .buf = &byte, .bytes = 1, .user = &done, .done = count},
        {.kind = BWI_IO_WRITE, .fd = -1, .buf = &byte, .bytes = 1, .user = &done, .done = count},
        {.kind = BWI_IO_FSYNC, .fd = -1, .user = &done, .done = count},
        {.kind = BWI_IO_READ, .fd = 0, .buf = &byte, .bytes = SIZE_MAX, .user = &done, .done = count},
    };
    for (size_t i = 0; i < 4; i++) bwi_io_submit(io, &r[i]);
    assert_int_equal(bwi_io_in_flight(io), 4);
    finish_all(io);
    for (size_t i = 0; i < 3; i++) assert_int_equal(r[i].result, -EBADF);
    assert_int_equal(r[3].result, -EINVAL);
    assert_int_equal(done, 4);
    bwi_io_close(io);
}

/* A table whose reads give at most 3 bytes at a time. */
static int64_t short_pread(struct bwi_os *os, int fd, void *buf, size_t n, uint64_t offset) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    return below->pread(below, fd, buf, n < 3 ? n : 3, offset);
}

static void a_read_goes_on_after_a_short_one(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    int fd = scratch_file(dir), done = 0;
    struct bwi_os os = *bwi_os_system();
    os.pread = short_pread;
    struct bwi_io *io = open_io(1, &os);
    assert_ptr_equal(bwi_io_os(io), &os);
    char in[8] = {0};
    assert_int_equal(os.pwrite(&os, fd, "abcdefgh", 8, 0), 8);
    struct bwi_io_req r = {.kind = BWI_IO_READ, .fd = fd, .buf = in, .bytes = 8, .user = &done, .done = count};
    bwi_io_submit(io, &r);
    finish_all(io);
    assert_int_equal(r.result, 8);
    assert_memory_equal(in, "abcdefgh", 8);
    bwi_io_close(io);
    os.close(&os, fd);
    test_rmdir(dir);
}

/* ---- many ---- */

#define MANY 10000

struct one {
    struct bwi_io_req req;
    struct bwi_io *io;
    int fd;
    uint64_t value;
    atomic_int *called;
    int stage;
    int *finished;
};

static void one_call(struct bwi_io_req *req) {
    struct one *o = req->user;
    atomic_fetch_add(o->called, 1);
    req->result = (int64_t)o->value;
}

/* write, then read back, then a call: each submitted from the completion of the one before */
static void one_done(struct bwi_io_req *req) {
    struct one *o = req->user;
    uint64_t offset = req->offset;
    switch (o->stage++) {
    case 0:
        assert_int_equal(req->result, 8);
        o->value = 0;
        *req = (struct bwi_io_req){.kind = BWI_IO_READ,
                                   .fd = o->fd,
                                   .offset = offset,
                                   .buf = &o->value,
                                   .bytes = 8,
                                   .user = o,
                                   .done = one_done};
        bwi_io_submit(o->io, req);
        break;
    case 1:
        assert_int_equal(req->result, 8);
        assert_int_equal(o->value, offset * 3);
        *req =
            (struct bwi_io_req){.kind = BWI_IO_CALL, .offset = offset, .call = one_call, .user = o, .done = one_done};
        bwi_io_submit(o->io, req);
        break;
    default: assert_int_equal(req->result, (int64_t)(offset * 3)); ++*o->finished;
    }
}

static void ten_thousand_requests_each_come_back_once(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    int fd = scratch_file(dir), finished = 0;
    atomic_int called = 0;
    struct bwi_io *io = open_io(6, NULL);
    struct one *all = calloc(MANY, sizeof *all);
    assert_non_null(all);
    for (unsigned i = 0; i < MANY; i++) {
        all[i] = (struct one){.io = io, .fd = fd, .value = UINT64_C(24) * i, .called = &called, .finished = &finished};
        all[i].req = (struct bwi_io_req){.kind = BWI_IO_WRITE,
                                         .fd = fd,
                                         .offset = UINT64_C(8) * i,
                                         .buf = &all[i].value,
                                         .bytes = 8,
                                         .user = &all[i],
                                         .done = one_done};
        bwi_io_submit(io, &all[i].req);
    }
    finish_all(io);
    assert_int_equal(finished, MANY);
    assert_int_equal(atomic_load(&called), MANY);
    bwi_io_close(io);
    free(all);
    bwi_os_system()->close(bwi_os_system(), fd);
    test_rmdir(dir);
}

/* ---- fairness ---- */

struct gate {
    struct bwi_mutex lock;
    struct bwi_cond changed;
    bool open;
    bool reached; /* a worker stands before it */
};

static void wait_at_gate(struct bwi_io_req *req) {
    struct gate *g = req->buf;
    bwi_mutex_lock(&g->lock);
    g->reached = true;
    bwi_cond_broadcast(&g->changed);
    while (!g->open) bwi_cond_wait(&g->changed, &g->lock, UINT64_MAX);
    bwi_mutex_unlock(&g->lock);
    req->result = 0;
}

static void await_worker(struct gate *g) {
    bwi_mutex_lock(&g->lock);
    while (!g->reached) bwi_cond_wait(&g->changed, &g->lock, UINT64_MAX);
    bwi_mutex_unlock(&g->lock);
}

static void open_gate(struct gate *g) {
    bwi_mutex_lock(&g->lock);
    g->open = true;
    bwi_cond_broadcast(&g->changed);
    bwi_mutex_unlock(&g->lock);
}

#define BLOCKERS 20

/* More calls than there are workers for them. */
static void block_workers(struct bwi_io *io, struct gate *g, struct bwi_io_req calls[BLOCKERS], int *done) {
    for (int i = 0; i < BLOCKERS; i++) {
        calls[i] =
            (struct bwi_io_req){.kind = BWI_IO_CALL, .call = wait_at_gate, .buf = g, .user = done, .done = count};
        bwi_io_submit(io, &calls[i]);
    }
}

static void calls_that_block_leave_a_worker_for_transfers(void **state) {
    (void)state;
    struct gate gate = {.open = false};
    bwi_mutex_init(&gate.lock);
    bwi_cond_init(&gate.changed);
    for (unsigned threads = 2; threads <= 9; threads += 7) {
        int calls_done = 0, done = 0;
        gate.open = false;
        struct bwi_io *io = open_io(threads, NULL);
        struct bwi_io_req calls[BLOCKERS], transfer = {.kind = BWI_IO_FSYNC, .fd = -1, .user = &done, .done = count};
        block_workers(io, &gate, calls, &calls_done);
        bwi_io_submit(io, &transfer);
        assert_int_equal(bwi_io_reap(io, now() + SOON), 1);
        assert_int_equal(done, 1);
        assert_int_equal(calls_done, 0);
        open_gate(&gate);
        finish_all(io);
        assert_int_equal(calls_done, BLOCKERS);
        bwi_io_close(io);
    }
    bwi_cond_fini(&gate.changed);
    bwi_mutex_fini(&gate.lock);
}

/* ---- what is urgent ---- */

struct where {
    char name[16];
    int nice;
};

static void note_thread(struct bwi_io_req *req) {
    struct where *w = req->buf;
    (void)prctl(PR_GET_NAME, w->name);
    w->nice = getpriority(PRIO_PROCESS, (id_t)gettid());
    req->result = 0;
}

static void what_is_urgent_has_threads_of_its_own_that_give_way_to_nobody(void **state) {
    (void)state;
    struct gate gate = {.open = false};
    bwi_mutex_init(&gate.lock);
    bwi_cond_init(&gate.changed);
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_io *io = NULL;
    const struct bwi_io_options o = {.threads = 2, .urgent_threads = 2, .nice = 3, .backend = backend};
    assert_ok(bwi_io_open(&o, &io, &err), &err);
    assert_int_equal(bwi_io_threads(io), 2);
    assert_int_equal(bwi_io_urgent_threads(io), 2);
    const int nice = getpriority(PRIO_PROCESS, 0);
    struct bwi_io_req calls[BLOCKERS];
    struct where usual = {.nice = 99}, urgent[5];
    int calls_done = 0, done = 0;
    struct bwi_io_req first = {.kind = BWI_IO_CALL, .call = note_thread, .buf = &usual, .user = &done, .done = count};
    bwi_io_submit(io, &first);
    finish_all(io);
    assert_memory_equal(usual.name, "bw-io-", 6);
    assert_int_equal(usual.nice, nice > 3 ? nice : 3);
    block_workers(io, &gate, calls, &calls_done);
    struct bwi_io_req now_please[5];
    for (int i = 0; i < 5; i++) {
        now_please[i] = (struct bwi_io_req){
            .kind = BWI_IO_CALL, .urgent = true, .call = note_thread, .buf = &urgent[i], .user = &done, .done = count};
        bwi_io_submit(io, &now_please[i]);
    }
    while (done < 6) assert_true(bwi_io_reap(io, now() + SOON) > 0);
    assert_int_equal(calls_done, 0);
    for (int i = 0; i < 5; i++) {
        assert_memory_equal(urgent[i].name, "bw-capture-", 11);
        assert_int_equal(urgent[i].nice, nice);
    }
    open_gate(&gate);
    finish_all(io);
    assert_int_equal(calls_done, BLOCKERS);
    bwi_io_close(io);
    bwi_cond_fini(&gate.changed);
    bwi_mutex_fini(&gate.lock);
}

static void without_threads_of_its_own_it_goes_with_the_rest(void **state) {
    (void)state;
    struct where w = {.nice = 99};
    int done = 0;
    struct bwi_io *io = open_io(2, NULL);
    struct bwi_io_req call = {
        .kind = BWI_IO_CALL, .urgent = true, .call = note_thread, .buf = &w, .user = &done, .done = count};
    assert_int_equal(bwi_io_urgent_threads(io), 2);
    bwi_io_submit(io, &call);
    finish_all(io);
    assert_memory_equal(w.name, "bw-io-", 6);
    bwi_io_close(io);
}

static int place; /* of what runs next; one worker counts */

static void note_place(struct bwi_io_req *req) {
    req->result = place++;
}

/* ---- lanes ---- */

#define HUNG 20

/* Calls, and perhaps transfers, of a lane, all of which wait at the gate. */
struct hung {
    struct bwi_io_lane lane;
    struct bwi_io_req req[HUNG];
};

static struct gate the_gate;
static int fsync_at_gate(struct bwi_os *os, int fd) {
    struct bwi_io_req at = {.buf = &the_gate};
    (void)os, (void)fd;
    wait_at_gate(&at);
    return 0;
}

static void hang(struct bwi_io *io, struct hung *h, bool mixed, int *done) {
    *h = (struct hung){.lane = {.no_ring = true}};
    for (int i = 0; i < HUNG; i++) {
        h->req[i] = (struct bwi_io_req){.kind = mixed && i % 2 ? BWI_IO_FSYNC : BWI_IO_CALL,
                                        .call = wait_at_gate,
                                        .buf = &the_gate,
                                        .lane = &h->lane,
                                        .user = done,
                                        .done = count};
        bwi_io_submit(io, &h->req[i]);
    }
}

static void await(struct bwi_io *io, const int *done) {
    const uint64_t end = now() + SOON;
    while (*done == 0 && now() < end) (void)bwi_io_reap(io, end);
    assert_int_equal(*done, 1);
}

static void a_lane_that_hangs_leaves_workers_to_another_and_both_leave_one_to_what_has_none(void **state) {
    (void)state;
    static struct hung one, other;
    struct bwi_os os = *bwi_os_system();
    os.fsync = fsync_at_gate;
    bwi_mutex_init(&the_gate.lock);
    bwi_cond_init(&the_gate.changed);
    for (unsigned i = 0; i < 6; i++) {
        const unsigned threads = 4 + 6 * (i / 2);
        const bool mixed = i % 2;
        int hung = 0, done[3] = {0};
        the_gate.open = false;
        struct bwi_io *io = open_io(threads, &os);
        hang(io, &one, mixed, &hung);
        struct bwi_io_lane lane = {.no_ring = true};
        struct bwi_io_req call = {
            .kind = BWI_IO_CALL, .call = note_place, .lane = &lane, .user = &done[0], .done = count};
        struct bwi_io_req read = {.kind = BWI_IO_READ, .fd = -1, .lane = &lane, .user = &done[1], .done = count};
        bwi_io_submit(io, &call);
        await(io, &done[0]);
        bwi_io_submit(io, &read);
        await(io, &done[1]);
        hang(io, &other, mixed, &hung);
        struct bwi_io_req free_call = {.kind = BWI_IO_CALL, .call = note_place, .user = &done[2], .done = count};
        bwi_io_submit(io, &free_call);
        await(io, &done[2]);
        assert_int_equal(hung, 0);
        open_gate(&the_gate);
        finish_all(io);
        assert_int_equal(hung, 2 * HUNG);
        assert_int_equal(one.lane.running + one.lane.calls + other.lane.running + other.lane.calls, 0);
        bwi_io_close(io);
    }
    bwi_cond_fini(&the_gate.changed);
    bwi_mutex_fini(&the_gate.lock);
}

static int noting_fsync(struct bwi_os *os, int fd) {
    (void)os;
    (void)fd;
    return place++;
}
static void no_op(struct bwi_io_req *req) {
    (void)req;
}

/* One worker, held at a gate while both queues fill: afterwards it takes from them in turn. */
static void one_worker_takes_from_both_queues_in_turn(void **state) {
    (void)state;
    struct gate gate = {.open = false};
    bwi_mutex_init(&gate.lock);
    bwi_cond_init(&gate.changed);
    struct bwi_os os = *bwi_os_system();
    os.fsync = noting_fsync;
    struct bwi_io *io = open_io(1, &os);
    int done = 0;
    struct bwi_io_req held = {.kind = BWI_IO_CALL, .call = wait_at_gate, .buf = &gate, .user = &done, .done = count};
    struct bwi_io_req calls[8], transfers[8];
    place = 0;
    bwi_io_submit(io, &held);
    await_worker(&gate);
    for (int i = 0; i < 8; i++) {
        calls[i] = (struct bwi_io_req){.kind = BWI_IO_CALL, .call = note_place, .done = no_op};
        transfers[i] = (struct bwi_io_req){.kind = BWI_IO_FSYNC, .done = no_op};
        bwi_io_submit(io, &calls[i]);
        bwi_io_submit(io, &transfers[i]);
    }
    open_gate(&gate);
    finish_all(io);
    assert_int_equal(place, 16);
    for (int i = 0; i < 8; i++) { /* and first come, first served within a kind */
        assert_int_equal(calls[i].result / 2, i);
        assert_int_equal(transfers[i].result / 2, i);
    }
    bwi_io_close(io);
    bwi_cond_fini(&gate.changed);
    bwi_mutex_fini(&gate.lock);
}

/* ---- waiting ---- */

static void a_reap_waits_no_longer_than_its_deadline(void **state) {
    (void)state;
    struct bwi_io *io = open_io(1, NULL);
    uint64_t start = now();
    assert_int_equal(bwi_io_reap(io, 0), 0);
    assert_int_equal(bwi_io_reap(io, start + 30 * BWI_NS_PER_MS), 0);
    assert_true(now() >= start + 30 * BWI_NS_PER_MS);
    bwi_io_close(io);
}

static void *wake_later(void *arg) {
    struct bwi_env *env = bwi_env_system();
    struct bwi_mutex lock;
    struct bwi_cond never;
    bwi_mutex_init(&lock);
    bwi_cond_init(&never);
    bwi_mutex_lock(&lock);
    bwi_cond_wait(&never, &lock, env->now_ns(env) + 20 * BWI_NS_PER_MS);
    bwi_mutex_unlock(&lock);
    bwi_cond_fini(&never);
    bwi_mutex_fini(&lock);
    bwi_io_wake(arg);
    return NULL;
}

static void a_wake_from_another_thread_ends_the_wait(void **state) {
    (void)state;
    struct bwi_io *io = open_io(1, NULL);
    struct bwi_thread t = {0};
    assert_int_equal(bwi_thread_start(&t, "waker", wake_later, io), 0);
    uint64_t start = now();
    assert_int_equal(bwi_io_reap(io, start + SOON), 0);
    assert_true(now() < start + SOON);
    bwi_thread_join(&t);
    bwi_io_close(io);
}

static void a_wake_before_the_wait_is_not_lost_in_a_poll(void **state) {
    (void)state;
    struct bwi_io *io = open_io(1, NULL);
    bwi_io_wake(io);
    assert_int_equal(bwi_io_reap(io, 0), 0);
    uint64_t start = now();
    assert_int_equal(bwi_io_reap(io, start + SOON), 0);
    assert_true(now() < start + SOON);
    start = now(); /* and it is used up now */
    assert_int_equal(bwi_io_reap(io, start + 10 * BWI_NS_PER_MS), 0);
    assert_true(now() >= start + 10 * BWI_NS_PER_MS);
    bwi_io_close(io);
}

static void memory_may_run_out_while_it_is_opened(void **state) {
    (void)state;
    const struct bwi_io_options o = {.threads = 2, .backend = backend};
    struct bwi_io *io = NULL;
    struct bw_error err = BW_ERROR_INIT;
    long live = bwi_alloc_live();
    unsigned failures = 0;
    for (unsigned long n = 1;; n++) {
        bw_error_clear(&err);
        bwi_alloc_fail_at(n);
        int rc = bwi_io_open(&o, &io, &err);
        bwi_alloc_fail_at(0);
        if (rc == 0) break;
        assert_true(rc < 0 && err.status == rc && err.message[0]);
        assert_null(io);
        assert_int_equal(bwi_alloc_live(), live);
        failures++;
    }
    assert_int_equal(failures, backend == BW_IO_URING ? 3 : 2);
    bwi_io_close(io);
    assert_int_equal(bwi_alloc_live(), live);
    bwi_io_close(NULL);
}

static void options_that_cannot_be_are_refused(void **state) {
    (void)state;
    struct bwi_io *io = NULL;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_io_options o = {.threads = 257};
    assert_fails(bwi_io_open(&o, &io, &err), BW_E_INVALID, &err, "I/O threads: expected at most 256, found 257");
    bw_error_clear(&err);
    o = (struct bwi_io_options){.urgent_threads = 257};
    assert_fails(bwi_io_open(&o, &io, &err), BW_E_INVALID, &err,
                 "threads for capturing: expected at most 256, found 257");
    bw_error_clear(&err);
    o = (struct bwi_io_options){.depth = 4097};
    assert_fails(bwi_io_open(&o, &io, &err), BW_E_INVALID, &err, "I/O depth: expected at most 4096, found 4097");
    assert_null(io);
}

/* ---- what it goes without ---- */

/* In a child whose user nobody else is, for its processes are counted; the text of what the engine lacks there. */
static void lacks_of(struct bwi_io_options o, size_t locked_bytes, unsigned processes, char *ret, size_t ret_bytes) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit locked = {locked_bytes, locked_bytes};
        const rlim_t most = processes + SANITIZER_THREADS;
        const struct rlimit counted = {most, most};
        static _Alignas(4096) uint8_t memory[1 << 18];
        struct bwi_io *io = NULL;
        bool ok = setrlimit(RLIMIT_MEMLOCK, &locked) == 0 && setrlimit(RLIMIT_NPROC, &counted) == 0;
        ok = ok && setgid(65534) == 0 && setuid(60000 + (uid_t)getpid() % 5000) == 0;
        ok = ok && bwi_io_open(&o, &io, NULL) == 0;
        if (!ok) _exit(1);
        bwi_io_register(io, memory, sizeof memory);
        bwi_io_lacks(io, ret, ret_bytes);
        bwi_io_close(io);
        _exit(write(ends[1], ret, ret_bytes) == (ssize_t)ret_bytes ? 0 : 2);
    }
    int status = -1;
    (void)close(ends[1]);
    const ssize_t got = read(ends[0], ret, ret_bytes);
    (void)close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(got, ret_bytes);
}

#define LACKS_THREADS "3 of 8 threads for capturing: start one more: Resource temporarily unavailable"

static void threads_for_capturing_that_cannot_be_had_are_told(void **state) {
    (void)state;
    char text[256] = "";
    if (geteuid() != 0) skip();
    const struct bwi_io_options o = {.threads = 2, .urgent_threads = 8, .backend = BW_IO_THREADS};
    lacks_of(o, 1 << 20, 6, text, sizeof text); /* itself, two workers, and three */
    assert_string_equal(text, "threads were asked for; " LACKS_THREADS);
}

/* Cut where it does not fit. */
static void memory_that_the_ring_does_not_know_is_told(void **state) {
    (void)state;
    char text[256] = "", few[40] = "";
    if (geteuid() != 0) skip();
    struct bwi_io_options o = {.threads = 2, .backend = BW_IO_URING};
    lacks_of(o, 65536, 64, text, sizeof text);
    assert_string_equal(text, "the io_uring looks memory up anew for each transfer: registering it: "
                              "Cannot allocate memory");
    o.urgent_threads = 8;
    lacks_of(o, 65536, 6, text, sizeof text);
    assert_non_null(strstr(text, "Cannot allocate memory; " LACKS_THREADS));
    lacks_of(o, 65536, 6, few, sizeof few);
    assert_string_equal(few, "the io_uring looks memory up anew for e");
    o.urgent_threads = 0;
    lacks_of(o, 1 << 20, 64, text, sizeof text);
    assert_string_equal(text, "");
}

/* ---- the ring ---- */

/* A table that reads and writes by itself must be asked. */
static void a_table_that_admits_no_ring_gets_threads(void **state) {
    (void)state;
    struct bwi_os os = *bwi_os_system();
    struct bwi_io *io = NULL;
    struct bw_error err = BW_ERROR_INIT;
    os.admit = NULL;
    struct bwi_io_options o = {.os = &os, .threads = 1};
    assert_ok(bwi_io_open(&o, &io, &err), &err);
    assert_string_equal(bwi_io_backend(io), "threads");
    assert_string_equal(bwi_io_why_not(io), "no io_uring: Operation not supported");
    bwi_io_close(io);
    o.backend = BW_IO_URING;
    io = NULL;
    assert_fails(bwi_io_open(&o, &io, &err), BW_E_UNSUPPORTED, &err, "I/O: no io_uring: ");
    assert_null(io);
}

static void the_ring_carries_no_transfer_of_a_lane_that_may_have_none(void **state) {
    (void)state;
    struct bwi_os os = *bwi_os_system();
    os.fsync = noting_fsync;
    struct bwi_io *io = open_io(1, &os);
    for (int no_ring = 0; no_ring < 2; no_ring++) {
        struct bwi_io_lane lane = {.no_ring = no_ring != 0};
        struct bwi_io_req r = {.kind = BWI_IO_FSYNC, .fd = -1, .lane = &lane, .done = no_op};
        place = 0;
        bwi_io_submit(io, &r);
        finish_all(io);
        assert_int_equal(place, no_ring);
        assert_int_equal(r.result, no_ring ? 0 : -EBADF);
    }
    bwi_io_close(io);
}

static void what_the_table_does_not_admit_is_not_done(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    int fd = scratch_file(dir), done = 0;
    struct bwi_os_fault *fault = NULL;
    assert_int_equal(bwi_os_fault_new(bwi_os_system(), &fault), 0);
    struct bwi_io *io = open_io(1, bwi_os_fault_table(fault));
    char byte = 'x';
    struct bwi_io_req r[] = {
        {.kind = BWI_IO_WRITE, .fd = fd, .buf = &byte, .bytes = 1, .user = &done, .done = count},
        {.kind = BWI_IO_FSYNC, .fd = fd, .user = &done, .done = count},
        {.kind = BWI_IO_READ, .fd = fd, .buf = &byte, .bytes = 1, .user = &done, .done = count},
    };
    bwi_os_fault_at(fault, 1, UINT64_MAX, UINT32_C(1) << BWI_OS_WRITE | UINT32_C(1) << BWI_OS_FSYNC, EIO);
    for (size_t i = 0; i < 3; i++) bwi_io_submit(io, &r[i]);
    finish_all(io);
    assert_int_equal(r[0].result, -EIO);
    assert_int_equal(r[1].result, -EIO);
    assert_int_equal(r[2].result, 0); /* the file is as empty as before */
    assert_int_equal(done, 3);
    assert_int_equal(bwi_os_fault_fired(fault), 2);
    bwi_io_close(io);
    bwi_os_fault_free(fault);
    bwi_os_system()->close(bwi_os_system(), fd);
    test_rmdir(dir);
}

/* Of a direct read the rest behind the end of the file is not aligned. */
static void a_direct_read_ends_with_the_file(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    char path[512];
    int fd = scratch_file(dir), done = 0;
    struct bwi_io *io = open_io(1, NULL);
    uint8_t *buf = aligned_alloc(4096, 16384);
    assert_non_null(buf);
    memset(buf, 7, 16384);
    assert_int_equal(bwi_os_system()->pwrite(bwi_os_system(), fd, buf, 9000, 0), 9000);
    (void)snprintf(path, sizeof path, "%s/file", dir);
    const int direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (direct >= 0) { /* not every file system has it */
        bwi_io_register(io, buf, 16384);
        struct bwi_io_req r = {
            .kind = BWI_IO_READ, .fd = direct, .buf = buf, .bytes = 16384, .user = &done, .done = count};
        bwi_io_submit(io, &r);
        finish_all(io);
        assert_int_equal(r.result, 9000);
        close(direct);
    }
    bwi_io_close(io);
    free(buf);
    bwi_os_system()->close(bwi_os_system(), fd);
    test_rmdir(dir);
}

static int has_ring(void **state) {
    struct bwi_io *io = NULL;
    const struct bwi_io_options o = {.threads = 1, .backend = BW_IO_URING};
    (void)state;
    backend = BW_IO_URING;
    const int rc = bwi_io_open(&o, &io, NULL);
    if (rc == 0) bwi_io_close(io);
    return rc;
}

static int has_threads(void **state) {
    (void)state;
    backend = BW_IO_THREADS;
    return 0;
}

#define EACH                                                                                                           \
    cmocka_unit_test(bytes_go_and_come_back), cmocka_unit_test(errors_are_negative_errnos),                            \
        cmocka_unit_test(ten_thousand_requests_each_come_back_once),                                                   \
        cmocka_unit_test(calls_that_block_leave_a_worker_for_transfers),                                               \
        cmocka_unit_test(a_lane_that_hangs_leaves_workers_to_another_and_both_leave_one_to_what_has_none),             \
        cmocka_unit_test(what_is_urgent_has_threads_of_its_own_that_give_way_to_nobody),                               \
        cmocka_unit_test(without_threads_of_its_own_it_goes_with_the_rest),                                            \
        cmocka_unit_test(a_reap_waits_no_longer_than_its_deadline),                                                    \
        cmocka_unit_test(a_wake_from_another_thread_ends_the_wait),                                                    \
        cmocka_unit_test(a_wake_before_the_wait_is_not_lost_in_a_poll),                                                \
        cmocka_unit_test(memory_may_run_out_while_it_is_opened)

int main(void) {
    const struct CMUnitTest threads[] = {
        EACH,
        cmocka_unit_test(a_read_goes_on_after_a_short_one),
        cmocka_unit_test(one_worker_takes_from_both_queues_in_turn),
        cmocka_unit_test(options_that_cannot_be_are_refused),
        cmocka_unit_test(threads_for_capturing_that_cannot_be_had_are_told),
    };
    const struct CMUnitTest ring[] = {
        EACH,
        cmocka_unit_test(a_table_that_admits_no_ring_gets_threads),
        cmocka_unit_test(the_ring_carries_no_transfer_of_a_lane_that_may_have_none),
        cmocka_unit_test(what_the_table_does_not_admit_is_not_done),
        cmocka_unit_test(a_direct_read_ends_with_the_file),
        cmocka_unit_test(memory_that_the_ring_does_not_know_is_told),
    };
    int failed = cmocka_run_group_tests_name("engine on threads", threads, has_threads, NULL);
    if (has_ring(NULL) == 0)
        failed += cmocka_run_group_tests_name("engine on a ring", ring, NULL, NULL);
    else
        printf("no io_uring here: not tried\n");
    return failed;
}
