/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the C library by which time passes for the library, and by which it touches memory beforehand. */
#include "kill_clock.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)

static unsigned speed = 1;

typedef int clock_fn(clockid_t clock, struct timespec *ret);
typedef int wait_fn(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);

/* Found before there is a second thread. */
static clock_fn *real_clock;
static wait_fn *real_wait;

static void *found(const char *name) {
    return dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void find(void) {
    *(void **)&real_clock = found("clock_gettime");
    *(void **)&real_wait = found("pthread_cond_timedwait");
}

void kill_clock_speed(unsigned times) {
    speed = times;
}

static struct timespec time_of(uint64_t ns) {
    return (struct timespec){(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
}

static uint64_t ns_of(const struct timespec *t) {
    return (uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_nsec;
}

int clock_gettime(clockid_t clock, struct timespec *ret) {
    const int rc = real_clock != NULL ? real_clock(clock, ret) : (int)syscall(SYS_clock_gettime, clock, ret);
    if (rc == 0 && speed != 1 && clock == CLOCK_MONOTONIC) *ret = time_of(ns_of(ret) * speed);
    return rc;
}

/* The library waits for conditions by the monotonic clock only. */
int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    const struct timespec real = speed == 1 ? *until : time_of(ns_of(until) / speed);
    return real_wait(cond, mutex, &real);
}

/* The arena is much larger than what a small state needs of it, and each process would fill all of it with zeros. */
int madvise(void *at, size_t bytes, int advice) {
    if (advice == MADV_POPULATE_WRITE || advice == MADV_HUGEPAGE) return 0;
    return (int)syscall(SYS_madvise, at, bytes, advice);
}
