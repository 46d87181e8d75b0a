/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, locks, conditions and eventfds. */
#include "base/env.h"
#include "os/thread.h"
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

static uint64_t now_ns(void) {
    struct bwi_env *env = bwi_env_system();
    return env->now_ns(env);
}

struct probe {
    sigset_t mask;
    char name[16];
};

static void *look_around(void *arg) {
    struct probe *p = arg;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &p->mask);
    return NULL;
}

static void a_thread_blocks_signals_and_its_maker_does_not(void **state) {
    (void)state;
    struct probe p;
    sigset_t before;
    sigset_t after;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &before);
    struct bwi_thread t;
    assert_int_equal(bwi_thread_start(&t, "probe", look_around, &p), 0);
    bwi_thread_join(&t);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &after);
    const int blocked[] = {SIGTERM, SIGINT, SIGHUP, SIGALRM, SIGCHLD, SIGUSR1, SIGPIPE, SIGXFSZ, SIGRTMIN};
    for (size_t i = 0; i < sizeof blocked / sizeof blocked[0]; i++) {
        assert_int_equal(sigismember(&p.mask, blocked[i]), 1);
        assert_int_equal(sigismember(&after, blocked[i]), sigismember(&before, blocked[i]));
    }
    assert_int_equal(sigismember(&p.mask, SIGSEGV), 0);
    assert_int_equal(sigismember(&p.mask, SIGBUS), 0);
}

struct gate {
    struct bwi_mutex lock;
    struct bwi_cond cond;
    bool open;
    unsigned through;
    unsigned counter;
};

static void gate_init(struct gate *g) {
    *g = (struct gate){0};
    assert_int_equal(bwi_mutex_init(&g->lock), 0);
    assert_int_equal(bwi_cond_init(&g->cond), 0);
}

static void gate_fini(struct gate *g) {
    bwi_cond_fini(&g->cond);
    bwi_mutex_fini(&g->lock);
}

static void *pass_gate(void *arg) {
    struct gate *g = arg;
    bwi_mutex_lock(&g->lock);
    while (!g->open) (void)bwi_cond_wait(&g->cond, &g->lock, BWI_NEVER);
    g->through++;
    bwi_mutex_unlock(&g->lock);
    return NULL;
}

static void open_gate(struct gate *g) {
    bwi_mutex_lock(&g->lock);
    g->open = true;
    bwi_cond_broadcast(&g->cond);
    bwi_mutex_unlock(&g->lock);
}

static void a_long_name_is_cut(void **state) {
    (void)state;
    struct gate g;
    gate_init(&g);
    struct bwi_thread t;
    assert_int_equal(bwi_thread_start(&t, "breakwater-writer-number-1", pass_gate, &g), 0);
    char name[16] = "";
    const int rc = pthread_getname_np(t.id, name, sizeof name);
    open_gate(&g);
    bwi_thread_join(&t);
    assert_int_equal(rc, 0);
    assert_string_equal(name, "breakwater-writ");
    gate_fini(&g);
}

static void joining_twice_or_never_started_does_nothing(void **state) {
    (void)state;
    struct probe p;
    struct bwi_thread t = {0};
    bwi_thread_join(NULL);
    bwi_thread_join(&t);
    assert_int_equal(bwi_thread_start(&t, "probe", look_around, &p), 0);
    assert_true(t.started);
    bwi_thread_join(&t);
    assert_false(t.started);
    bwi_thread_join(&t);
}

static void a_broadcast_wakes_everybody(void **state) {
    (void)state;
    struct gate g;
    gate_init(&g);
    struct bwi_thread t[4];
    for (int i = 0; i < 4; i++) assert_int_equal(bwi_thread_start(&t[i], "waiter", pass_gate, &g), 0);
    open_gate(&g);
    for (int i = 0; i < 4; i++) bwi_thread_join(&t[i]);
    assert_int_equal(g.through, 4);
    gate_fini(&g);
}

static void *count_up(void *arg) {
    struct gate *g = arg;
    for (int i = 0; i < 20000; i++) {
        bwi_mutex_lock(&g->lock);
        g->counter++;
        bwi_mutex_unlock(&g->lock);
    }
    return NULL;
}

static void a_mutex_excludes(void **state) {
    (void)state;
    struct gate g;
    gate_init(&g);
    struct bwi_thread t[3];
    for (int i = 0; i < 3; i++) assert_int_equal(bwi_thread_start(&t[i], "count", count_up, &g), 0);
    for (int i = 0; i < 3; i++) bwi_thread_join(&t[i]);
    assert_int_equal(g.counter, 60000);
    gate_fini(&g);
}

static void a_deadline_ends_a_wait(void **state) {
    (void)state;
    struct gate g;
    gate_init(&g);
    bwi_mutex_lock(&g.lock);
    assert_false(bwi_cond_wait(&g.cond, &g.lock, 1)); /* long past */
    const uint64_t start = now_ns();
    bool in_time = true;
    while (in_time) in_time = bwi_cond_wait(&g.cond, &g.lock, start + 20 * BWI_NS_PER_MS);
    const uint64_t waited = now_ns() - start;
    bwi_mutex_unlock(&g.lock);
    assert_true(waited >= 20 * BWI_NS_PER_MS);
    assert_true(waited < 20 * BWI_NS_PER_S);
    gate_fini(&g);
}

static void *open_later(void *arg) {
    open_gate(arg);
    return NULL;
}

static void a_signal_ends_a_wait_before_its_deadline(void **state) {
    (void)state;
    struct gate g;
    gate_init(&g);
    struct bwi_thread t;
    bwi_mutex_lock(&g.lock);
    assert_int_equal(bwi_thread_start(&t, "opener", open_later, &g), 0);
    bool in_time = true;
    const uint64_t deadline = now_ns() + 60 * BWI_NS_PER_S;
    while (!g.open && in_time) in_time = bwi_cond_wait(&g.cond, &g.lock, deadline);
    assert_true(in_time);
    assert_true(g.open);
    bwi_cond_signal(&g.cond); /* nobody waits: no harm */
    bwi_mutex_unlock(&g.lock);
    bwi_thread_join(&t);
    gate_fini(&g);
}

static bool readable(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static void an_eventfd_is_readable_from_signal_to_drain(void **state) {
    (void)state;
    const int fd = bwi_eventfd_open();
    assert_true(fd >= 0);
    assert_false(readable(fd));
    bwi_eventfd_signal(fd);
    bwi_eventfd_signal(fd);
    assert_true(readable(fd));
    bwi_eventfd_drain(fd);
    assert_false(readable(fd));
    bwi_eventfd_drain(fd); /* returns at once when there is nothing */
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    bwi_eventfd_close(fd);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    bwi_eventfd_close(-1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_blocks_signals_and_its_maker_does_not),
        cmocka_unit_test(a_long_name_is_cut),
        cmocka_unit_test(joining_twice_or_never_started_does_nothing),
        cmocka_unit_test(a_broadcast_wakes_everybody),
        cmocka_unit_test(a_mutex_excludes),
        cmocka_unit_test(a_deadline_ends_a_wait),
        cmocka_unit_test(a_signal_ends_a_wait_before_its_deadline),
        cmocka_unit_test(an_eventfd_is_readable_from_signal_to_drain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
