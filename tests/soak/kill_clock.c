/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the C library by which time passes for the library, and by which it touches memory beforehand. */
#include "kill_clock.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)
#define FOR_ALL  __attribute__((visibility("default"))) /* the library looks for it */

static unsigned speed = 1;
static int64_t later;

typedef int wait_fn(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);

/* Found before there is a second thread. */
static wait_fn *real_wait;

__attribute__((constructor)) static void find(void) {
    *(void **)&real_wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
}

void kill_clock_set(unsigned times, int64_t later_s) {
    speed = times;
    later = later_s;
}

static struct timespec time_of(uint64_t ns) {
    return (struct timespec){(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
}

static uint64_t ns_of(const struct timespec *t) {
    return (uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_nsec;
}

uint64_t kill_clock_ms(void) {
    struct timespec t;
    (void)syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return ns_of(&t) / 1000000;
}

FOR_ALL int clock_gettime(clockid_t clock, struct timespec *ret) {
    const int rc = (int)syscall(SYS_clock_gettime, clock, ret);
    if (rc != 0) return rc;
    if (clock == CLOCK_MONOTONIC && speed != 1) *ret = time_of(ns_of(ret) * speed);
    if (clock == CLOCK_REALTIME) ret->tv_sec += later;
    return 0;
}

/* The library waits for conditions by the monotonic clock only. */
FOR_ALL int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    const struct timespec real = speed == 1 ? *until : time_of(ns_of(until) / speed);
    return real_wait(cond, mutex, &real);
}

/* The arena is much larger than what a small state needs of it, and each process would fill all of it with zeros. */
FOR_ALL int madvise(void *at, size_t bytes, int advice) {
    if (advice == MADV_POPULATE_WRITE || advice == MADV_HUGEPAGE) return 0;
    return (int)syscall(SYS_madvise, at, bytes, advice);
}

struct io_uring;
struct iovec;

/* That touches all of it, too. As where too little may be locked, the library does without. */
int io_uring_register_buffers(struct io_uring *ring, const struct iovec *buffers, unsigned count);
FOR_ALL int io_uring_register_buffers(struct io_uring *ring, const struct iovec *buffers, unsigned count) {
    (void)ring, (void)buffers, (void)count;
    return -ENOMEM;
}
