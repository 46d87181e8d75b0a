/* SPDX-License-Identifier: Apache-2.0 */
/* A thread for one job, and the hand-over of the job when its caller does not wait any longer. */
#include "api/guard.h"

#include "base/checked.h"
#include "base/env.h"
#include "base/error.h"
#include "base/vec.h"
#include "os/thread.h"

struct guard {
    struct bwi_job *job;
    struct bwi_thread thread;
    struct bwi_mutex mutex;
    struct bwi_cond cond;
    /* guarded by the mutex */
    bool done, gone;
    int status;
    struct bw_error error;
};

uint64_t bwi_ns_of_ms(uint64_t ms) {
    uint64_t ns;
    return bwi_mul_u64(ms, BWI_NS_PER_MS, &ns) ? ns : BWI_NEVER;
}

uint64_t bwi_patience_end_ns(uint64_t from_ns, uint64_t patience_ms) {
    uint64_t ns;
    return patience_ms > 0 && bwi_add_u64(from_ns, bwi_ns_of_ms(patience_ms), &ns) ? ns : BWI_NEVER;
}

static int guard_new(struct bwi_job *job, struct guard **ret, struct bw_error *err) {
    struct guard *g = bwi_calloc(1, sizeof *g);
    if (!g) return bwi_error_nomem(err, sizeof *g, "a thread");
    g->job = job;
    int rc = bwi_mutex_init(&g->mutex);
    if (rc == 0 && (rc = bwi_cond_init(&g->cond)) < 0) bwi_mutex_fini(&g->mutex);
    if (rc < 0) {
        bwi_free(g);
        return bwi_error_errno(err, rc, "make a lock");
    }
    *ret = g;
    return 0;
}

static void guard_free(struct guard *g) {
    bwi_cond_fini(&g->cond);
    bwi_mutex_fini(&g->mutex);
    bwi_free(g);
}

static void *guard_main(void *arg) {
    struct guard *g = arg;
    struct bw_error e = BW_ERROR_INIT;
    const int rc = g->job->run(g->job, &e);
    bwi_mutex_lock(&g->mutex);
    g->status = rc;
    g->error = e;
    g->done = true;
    const bool gone = g->gone;
    bwi_cond_signal(&g->cond);
    bwi_mutex_unlock(&g->mutex);
    if (gone) {
        g->job->discard(g->job);
        guard_free(g);
    }
    return NULL;
}

/* false: there was no sign of life for too long, and the thread is on its own. */
static bool wait_done(struct guard *g, uint64_t patience_ms, struct bwi_pulse *pulse) {
    struct bwi_env *env = bwi_env_system();
    const uint64_t begin = env->now_ns(env);
    bwi_mutex_lock(&g->mutex);
    while (!g->done) {
        const uint64_t heard = pulse ? bwi_max_u64(begin, atomic_load(&pulse->heard_ns)) : begin;
        const uint64_t end = bwi_patience_end_ns(heard, patience_ms);
        if (env->now_ns(env) >= end) break;
        (void)bwi_cond_wait(&g->cond, &g->mutex, end);
    }
    const bool done = g->done;
    if (!done) {
        bwi_thread_detach(&g->thread); /* under the lock: afterwards the thread frees what this is in */
        g->gone = true;
        if (pulse) atomic_store(&pulse->given_up, true);
    }
    bwi_mutex_unlock(&g->mutex);
    return done;
}

int bwi_guard(struct bwi_job *job, uint64_t patience_ms, struct bwi_pulse *pulse, bool *ret_gone,
              struct bw_error *err) {
    struct guard *g = NULL;
    *ret_gone = false;
    int rc = guard_new(job, &g, err);
    if (rc < 0) return rc;
    rc = bwi_thread_start(&g->thread, "bw-call", guard_main, g);
    if (rc < 0) {
        guard_free(g);
        return bwi_error_errno(err, rc, "start a thread");
    }
    if (!wait_done(g, patience_ms, pulse)) {
        *ret_gone = true;
        return bwi_error_set(err, BW_E_TIMEOUT, "no answer for %llu ms", (unsigned long long)patience_ms);
    }
    bwi_thread_join(&g->thread);
    rc = g->status;
    bwi_error_copy(err, &g->error);
    guard_free(g);
    return rc;
}
