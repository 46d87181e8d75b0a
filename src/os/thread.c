/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, locks and wake-ups over pthreads and eventfd. */
#include "os/thread.h"
#include "base/env.h"
#include "base/text.h"
#include "os/system.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* All signals but those that the thread's own instructions raise: blocked, these would kill the process without the
 * application's crash handler. */
static void library_signals(sigset_t *ret) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
    (void)sigfillset(ret);
    for (unsigned i = 0; i < sizeof own / sizeof own[0]; i++) (void)sigdelset(ret, own[i]);
}

/* With a guard page, whatever the application's default is: so no mapping reaches from below a stack of ours into it.
 */
static int create(struct bwi_thread *t, void *(*run)(void *), void *arg) {
    pthread_attr_t attr;
    int rc = pthread_attr_init(&attr);
    if (rc != 0) return rc;
    rc = pthread_create(&t->id, &attr, run, arg);
    (void)pthread_attr_destroy(&attr);
    return rc;
}

int bwi_thread_start(struct bwi_thread *t, const char *name, void *(*run)(void *), void *arg) {
    t->started = false;
    sigset_t blocked;
    sigset_t before;
    library_signals(&blocked);
    /* A thread starts with the mask of the one that makes it, so there is no moment at which a signal could get in. */
    int rc = pthread_sigmask(SIG_BLOCK, &blocked, &before);
    if (rc != 0) return -rc;
    rc = create(t, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) return -rc;
    t->started = true;
    char shown[16];
    (void)bwi_format(shown, sizeof shown, "%s", name);
    (void)pthread_setname_np(t->id, shown);
    return 0;
}

void bwi_thread_detach(struct bwi_thread *t) {
    if (!t->started) return;
    pthread_detach(t->id);
    t->started = false;
}

void bwi_thread_join(struct bwi_thread *t) {
    if (t == NULL || !t->started) return;
    (void)pthread_join(t->id, NULL);
    t->started = false;
}

int bwi_mutex_init(struct bwi_mutex *m) {
    return -pthread_mutex_init(&m->m, NULL);
}

void bwi_mutex_fini(struct bwi_mutex *m) {
    (void)pthread_mutex_destroy(&m->m);
}

void bwi_mutex_lock(struct bwi_mutex *m) {
    (void)pthread_mutex_lock(&m->m);
}

void bwi_mutex_unlock(struct bwi_mutex *m) {
    (void)pthread_mutex_unlock(&m->m);
}

int bwi_cond_init(struct bwi_cond *c) {
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc != 0) return -rc;
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (rc == 0) rc = pthread_cond_init(&c->c, &attr);
    (void)pthread_condattr_destroy(&attr);
    return -rc;
}

void bwi_cond_fini(struct bwi_cond *c) {
    (void)pthread_cond_destroy(&c->c);
}

void bwi_cond_signal(struct bwi_cond *c) {
    (void)pthread_cond_signal(&c->c);
}

void bwi_cond_broadcast(struct bwi_cond *c) {
    (void)pthread_cond_broadcast(&c->c);
}

bool bwi_cond_wait(struct bwi_cond *c, struct bwi_mutex *m, uint64_t deadline_ns) {
    if (deadline_ns == BWI_NEVER) {
        (void)pthread_cond_wait(&c->c, &m->m);
        return true;
    }
    const struct timespec until = {
        .tv_sec = (time_t)(deadline_ns / BWI_NS_PER_S),
        .tv_nsec = (long)(deadline_ns % BWI_NS_PER_S),
    };
    return pthread_cond_timedwait(&c->c, &m->m, &until) != ETIMEDOUT;
}

int bwi_eventfd_open(void) {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return bwi_os_descriptor(fd);
}

void bwi_eventfd_signal(int fd) {
    const uint64_t one = 1;
    /* EAGAIN: the counter is at its top, so the descriptor is readable already. */
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

void bwi_eventfd_drain(int fd) {
    uint64_t count;
    while (read(fd, &count, sizeof count) < 0 && errno == EINTR) continue;
}

bool bwi_eventfd_wait(int fd, uint64_t timeout_ns) {
    const struct timespec t = {.tv_sec = (time_t)(timeout_ns / BWI_NS_PER_S),
                               .tv_nsec = (long)(timeout_ns % BWI_NS_PER_S)};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return ppoll(&p, 1, &t, NULL) > 0;
}

void bwi_eventfd_close(int fd) {
    if (fd >= 0) (void)close(fd);
}
