/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that can be interrupted. The library has no way to call a call off, and Python's signal handlers run in the
 * main thread only, between two instructions of Python: so the call runs on a thread of its own, and the caller looks
 * up from waiting ten times a second. */
#include "core.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_UP_NS 100000000L

struct inside {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool done, abandoned;
};

static void free_inside(struct inside *in) {
    (void)pthread_cond_destroy(&in->cond);
    (void)pthread_mutex_destroy(&in->mutex);
    free(in);
}

static void drop(struct job *j) {
    struct handle *held = j->held;
    if (j->drop != NULL)
        j->drop(j);
    else
        free(j);
    core_leave(held);
}

static struct inside *new_inside(void) {
    struct inside *in = calloc(1, sizeof *in);
    pthread_condattr_t a;
    if (in == NULL) return NULL;
    if (pthread_condattr_init(&a) != 0) goto fail;
    (void)pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    const int rc = pthread_cond_init(&in->cond, &a);
    (void)pthread_condattr_destroy(&a);
    if (rc != 0) goto fail;
    if (pthread_mutex_init(&in->mutex, NULL) == 0) return in;
    (void)pthread_cond_destroy(&in->cond);
fail:
    free(in);
    return NULL;
}

static void *work(void *arg) {
    struct job *j = arg;
    struct inside *in = j->inside;
    j->rc = j->run(j);
    (void)pthread_mutex_lock(&in->mutex);
    in->done = true;
    const bool abandoned = in->abandoned;
    (void)pthread_cond_signal(&in->cond);
    (void)pthread_mutex_unlock(&in->mutex);
    if (!abandoned) return NULL;
    free_inside(in);
    drop(j);
    return NULL;
}

/* Signals are for the threads of Python. */
static bool start(struct job *j) {
    pthread_t thread;
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&thread, NULL, work, j);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) (void)pthread_detach(thread);
    return rc == 0;
}

/* Without the interpreter's lock. */
static bool wait_a_moment(struct inside *in) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += LOOK_UP_NS;
    if (t.tv_nsec >= 1000000000L) t.tv_sec++, t.tv_nsec -= 1000000000L;
    (void)pthread_mutex_lock(&in->mutex);
    int rc = 0;
    while (!in->done && rc == 0) rc = pthread_cond_timedwait(&in->cond, &in->mutex, &t);
    const bool done = in->done;
    (void)pthread_mutex_unlock(&in->mutex);
    return done;
}

/* true: it had come back meanwhile, and is ours. */
static bool abandon(struct inside *in) {
    (void)pthread_mutex_lock(&in->mutex);
    const bool done = in->done;
    in->abandoned = !done;
    (void)pthread_mutex_unlock(&in->mutex);
    return done;
}

int job_run(struct job *j) {
    struct inside *in = j->inside = new_inside();
    if (in == NULL) {
        drop(j);
        (void)PyErr_NoMemory();
        return -1;
    }
    bool done = !start(j), interrupted = false;
    if (done) { /* no thread is to be had: then it cannot be interrupted */
        Py_BEGIN_ALLOW_THREADS
        j->rc = j->run(j);
        Py_END_ALLOW_THREADS
    }
    while (!done) {
        Py_BEGIN_ALLOW_THREADS
        done = wait_a_moment(in);
        Py_END_ALLOW_THREADS
        interrupted = !done && PyErr_CheckSignals() < 0;
        if (interrupted && !abandon(in)) return -1;
        done = done || interrupted;
    }
    free_inside(in);
    if (interrupted) drop(j);
    return interrupted ? -1 : 0;
}
