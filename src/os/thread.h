/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, locks and wake-ups. Only os/, io/ and the outermost loop (api/) include this. Library threads block all
 * signals, so that the application's handlers run on its own threads; only those that a thread's own instructions raise
 * (SIGSEGV and the like) stay open, so that the application's crash handler sees them. */
#ifndef BWI_OS_THREAD_H
#define BWI_OS_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct bwi_thread {
    pthread_t id;
    bool started;
};
/* name: at most 15 bytes, shown by ps and gdb. Returns 0 or a negative errno. */
int bwi_thread_start(struct bwi_thread *t, const char *name, void *(*run)(void *), void *arg);
void bwi_thread_join(struct bwi_thread *t);   /* idempotent */
void bwi_thread_detach(struct bwi_thread *t); /* nobody will join it: it must free what is its own */

struct bwi_mutex {
    pthread_mutex_t m;
};
struct bwi_cond {
    pthread_cond_t c; /* on CLOCK_MONOTONIC */
};
int bwi_mutex_init(struct bwi_mutex *m);
void bwi_mutex_fini(struct bwi_mutex *m);
void bwi_mutex_lock(struct bwi_mutex *m);
void bwi_mutex_unlock(struct bwi_mutex *m);
int bwi_cond_init(struct bwi_cond *c);
void bwi_cond_fini(struct bwi_cond *c);
void bwi_cond_signal(struct bwi_cond *c);
void bwi_cond_broadcast(struct bwi_cond *c);
/* deadline_ns: CLOCK_MONOTONIC, UINT64_MAX = none. false when it passed. */
bool bwi_cond_wait(struct bwi_cond *c, struct bwi_mutex *m, uint64_t deadline_ns);

/* An eventfd for event loops: nonblocking, close-on-exec. */
int bwi_eventfd_open(void); /* descriptor or negative errno */
void bwi_eventfd_signal(int fd);
void bwi_eventfd_drain(int fd);
bool bwi_eventfd_wait(int fd, uint64_t timeout_ns); /* false: it was not signalled for so long */
void bwi_eventfd_close(int fd);

#endif
