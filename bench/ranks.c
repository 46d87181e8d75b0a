/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated ranks. */
#include "ranks.h"

#include "base/text.h"
#include "base/vec.h"
#include "bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES (UINT64_C(1) << 30) /* of all ranks together: mapped, and touched only where it is used */
#define PATIENCE_NS (RANKS_SECONDS_MAX * BWI_NS_PER_S)

/* What a rank sees of the store: each call is counted, and handed on. */
struct door {
    struct bwi_store base;
    struct ranks *world;
    uint64_t control; /* in this phase */
};

struct rank {
    struct bwi_context ctx;
    struct bwi_session *session;
    struct bwi_task *open;
    struct bwi_save *save;
    struct door door;
};

struct ranks {
    struct ranks_config config;
    struct bwi_env_virtual env;
    struct bwi_bucket *bucket;
    struct bwi_loop *loop;
    struct bwi_store *store;
    struct bwi_arena *arena;
    struct rank *rank;
    float *values;
    struct ranks_count *count; /* of this phase */
};

static void need(int rc, const char *what, const struct bw_error *err) {
    if (rc < 0) bench_die(what, err->message);
}

/* --- counting -------------------------------------------------------------------------------------------------- */

static bool is_data(const struct bwi_store_op *op) {
    switch (op->verb) {
    case BWI_STORE_BEGIN:
    case BWI_STORE_WRITE:
    case BWI_STORE_FINISH: return true;
    case BWI_STORE_CREATE: return strstr(op->key, "/history/") == NULL && strstr(op->key, "/launches/") == NULL;
    case BWI_STORE_GET:
    case BWI_STORE_READ:
    case BWI_STORE_RELEASE:
    case BWI_STORE_HEAD:
    case BWI_STORE_LIST:
    case BWI_STORE_DELETE:
    case BWI_STORE_DELETE_PREFIX:
    case BWI_STORE_ABORT:
    case BWI_STORE_SYNC:
    case BWI_STORE_REPLACE:
    case BWI_STORE_LOCK:
    case BWI_STORE_UNLOCK:
    case BWI_STORE_SPACE: break;
    }
    return false;
}

static void go_through(struct bwi_store *s, struct bwi_store_op *op) {
    struct door *d = bwi_container_of(s, struct door, base);
    struct ranks *w = d->world;
    struct ranks_count *n = w->count;
    const enum ranks_call what = is_data(op) ? RANKS_DATA : RANKS_CONTROL;
    const uint64_t second = (w->env.now - n->began_ns) / BWI_NS_PER_S;
    n->all[what]++;
    d->control += what == RANKS_CONTROL;
    if (second < RANKS_SECONDS_MAX) {
        n->per_s[what][second]++;
        if (n->seconds <= second) n->seconds = (uint32_t)second + 1;
    }
    w->store->submit(w->store, op);
}

static void stay(struct bwi_store *s) {
    (void)s;
}

static void begin_phase(struct ranks *w, struct ranks_count *n) {
    memset(n, 0, sizeof *n);
    n->began_ns = w->env.now;
    w->count = n;
    for (uint32_t r = 0; r < w->config.ranks; r++) w->rank[r].door.control = 0;
}

static void end_phase(struct ranks *w) {
    struct ranks_count *n = w->count;
    n->coordinator = w->rank[0].door.control;
    for (uint32_t r = 1; r < w->config.ranks; r++)
        if (w->rank[r].door.control > n->most_per_rank) n->most_per_rank = w->rank[r].door.control;
}

/* --- the machine's own memory ------------------------------------------------------------------------------------ */

static uint64_t status_bytes(const char *name) {
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0) sscanf(line + strlen(name), ": %llu", &kib);
    if (f) fclose(f);
    return kib * 1024;
}

/* The peak is counted from here. */
static uint64_t forget_peak(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (f) {
        fputs("5\n", f);
        fclose(f);
    }
    return status_bytes("VmRSS");
}

/* --- time -------------------------------------------------------------------------------------------------------- */

typedef bool done_fn(struct ranks *w);

static void run_until(struct ranks *w, done_fn *done, const char *what) {
    const uint64_t end = w->env.now + PATIENCE_NS;
    while (!done(w)) {
        if (bwi_loop_turn(w->loop, 0)) continue;
        const uint64_t next = bwi_loop_next_ns(w->loop);
        if (next == BWI_NEVER || next > end) bench_die(what, "it does not end");
        if (next > w->env.now) w->env.now = next;
    }
}

static double seconds_since(const struct ranks *w, uint64_t ns) {
    return (double)(w->env.now - ns) / (double)BWI_NS_PER_S;
}

/* --- the world --------------------------------------------------------------------------------------------------- */

static void make_rank(struct ranks *w, uint32_t r) {
    struct rank *k = &w->rank[r];
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_session_config cfg = {.job = "job",
                                     .launch = "launch",
                                     .rank = r,
                                     .world = w->config.ranks,
                                     .saves_in_flight_max = 2,
                                     .open_deadline_ns = w->env.now + PATIENCE_NS,
                                     .extent_bytes = BWI_EXTENT_BYTES,
                                     .pack_bytes = BWI_PLAN_PACK_BYTES};
    k->door = (struct door){.base = {.submit = go_through, .close = stay, .caps = w->store->caps}, .world = w};
    bwi_context_init(&k->ctx, w->loop);
    bwi_context_pace(&k->ctx, r, w->config.ranks);
    bwi_format(k->ctx.run, sizeof k->ctx.run, "run");
    k->ctx.arena = w->arena;
    k->ctx.tier[BWI_TIER_REMOTE] = &k->door.base;
    need(bwi_session_new(&k->ctx, &cfg, &k->session, &err), "make a rank", &err);
}

struct ranks *ranks_new(const struct ranks_config *c) {
    struct ranks *w = bench_alloc(1, sizeof *w);
    struct bw_error err = BW_ERROR_INIT;
    w->config = *c;
    bwi_env_virtual_init(&w->env, c->seed);
    need(bwi_bucket_new(&w->env.env, &w->bucket), "make a bucket", &err);
    bwi_bucket_model(w->bucket)->latency_ns = c->latency_ns;
    need(bwi_loop_open(&w->env.env, NULL, &w->loop, &err), "make a loop", &err);
    need(bwi_store_memory_open(w->bucket, w->loop, "ranks", &w->store, &err), "make a store", &err);
    need(bwi_arena_open(ARENA_BYTES, 0, &w->arena, &err), "make an arena", &err);
    w->rank = bench_alloc(c->ranks, sizeof *w->rank);
    w->values = bench_alloc((size_t)c->ranks * c->tensors, sizeof *w->values);
    for (uint32_t r = 0; r < c->ranks; r++) make_rank(w, r);
    return w;
}

static bool all_idle(struct ranks *w) {
    for (uint32_t r = 0; r < w->config.ranks; r++)
        if (!bwi_session_idle(w->rank[r].session)) return false;
    return bwi_loop_tasks(w->loop) == 0;
}

void ranks_free(struct ranks *w) {
    static struct ranks_count unheard;
    begin_phase(w, &unheard);
    for (uint32_t r = 0; r < w->config.ranks; r++) bwi_session_close(w->rank[r].session);
    for (uint32_t r = 0; r < w->config.ranks; r++) bwi_session_give_up(w->rank[r].session);
    run_until(w, all_idle, "close");
    for (uint32_t r = 0; r < w->config.ranks; r++) bwi_session_free(w->rank[r].session);
    w->store->close(w->store);
    bwi_arena_close(w->arena);
    bwi_loop_close(w->loop);
    bwi_bucket_free(w->bucket);
    free(w->values);
    free(w->rank);
    free(w);
}

/* --- open -------------------------------------------------------------------------------------------------------- */

static bool all_open(struct ranks *w) {
    for (uint32_t r = 0; r < w->config.ranks; r++)
        if (w->rank[r].open->running) return false;
    return true;
}

void ranks_open(struct ranks *w, struct ranks_count *ret, double *ret_s) {
    begin_phase(w, ret);
    for (uint32_t r = 0; r < w->config.ranks; r++) w->rank[r].open = bwi_session_open(w->rank[r].session, NULL);
    run_until(w, all_open, "open");
    for (uint32_t r = 0; r < w->config.ranks; r++) need(w->rank[r].open->error.status, "open", &w->rank[r].open->error);
    *ret_s = seconds_since(w, ret->began_ns);
    end_phase(w);
}

/* --- save -------------------------------------------------------------------------------------------------------- */

static void start_save(struct ranks *w, uint32_t r, uint64_t step) {
    struct bw_error err = BW_ERROR_INIT;
    struct rank *k = &w->rank[r];
    const uint64_t shape = w->config.ranks, offset = r, extent = 1;
    need(bwi_session_begin(k->session, step, &k->save, &err), "begin", &err);
    for (uint32_t t = 0; t < w->config.tensors; t++) {
        char name[64];
        bwi_format(name, sizeof name, "model.layers.%u.weight", t);
        const struct bw_tensor tensor = {.struct_size = sizeof tensor,
                                         .dtype = BW_F32,
                                         .name = name,
                                         .data = w->values + (size_t)r * w->config.tensors + t,
                                         .dims = 1,
                                         .shape = &shape,
                                         .offset = &offset,
                                         .extent = &extent};
        need(bwi_description_tensor(&k->save->description, &tensor, &err), "describe", &err);
    }
    need(bwi_session_start(k->save, &err), "start", &err);
}

static bool is_there(const struct rank *k) {
    if (k->save->error.status < 0) bench_die("save", k->save->error.message);
    return k->save->level >= BW_REMOTE;
}

static bool all_but_the_last_are_there(struct ranks *w) {
    for (uint32_t r = 0; r + 1 < w->config.ranks; r++)
        if (!is_there(&w->rank[r])) return false;
    return true;
}

static bool the_last_may_begin(struct ranks *w) {
    return w->env.now >= w->count->began_ns + w->config.straggler_ns;
}

static bool the_last_is_there(struct ranks *w) {
    return is_there(&w->rank[w->config.ranks - 1]);
}

static bool is_committed(struct ranks *w) {
    return w->rank[0].save->level == BW_COMMITTED;
}

static bool all_have_heard(struct ranks *w) {
    for (uint32_t r = 0; r < w->config.ranks; r++)
        if (w->rank[r].save->state != BWI_SAVE_ENDED) return false;
    return true;
}

/* The last rank has not begun yet. */
static void save_all_but_the_last(struct ranks *w, uint64_t step, struct ranks_count *count) {
    begin_phase(w, count);
    for (uint32_t r = 0; r + 1 < w->config.ranks; r++) start_save(w, r, step);
    run_until(w, all_but_the_last_are_there, "save");
    run_until(w, the_last_may_begin, "wait");
}

void ranks_save(struct ranks *w, uint64_t step, struct ranks_save *ret) {
    const uint32_t last = w->config.ranks - 1;
    memset(ret, 0, sizeof *ret);
    save_all_but_the_last(w, step, &ret->count);
    start_save(w, last, step);
    run_until(w, the_last_is_there, "save the last");
    const uint64_t there_ns = w->env.now, before = forget_peak();
    const double cpu = bench_cpu_s();
    run_until(w, is_committed, "commit");
    ret->commit_s = seconds_since(w, there_ns);
    ret->commit_cpu_s = bench_cpu_s() - cpu;
    const uint64_t peak = status_bytes("VmHWM");
    ret->commit_bytes = peak > before ? peak - before : 0;
    run_until(w, all_have_heard, "hear");
    ret->heard_s = seconds_since(w, there_ns);
    end_phase(w);
    for (uint32_t r = 0; r <= last; r++) {
        if (!w->rank[r].save->committed) bench_die("save", w->rank[r].save->error.message);
        bwi_session_release(w->rank[r].save);
    }
}

void ranks_fail(struct ranks *w, uint64_t step, struct ranks_count *ret, double *ret_s) {
    const uint32_t last = w->config.ranks - 1;
    save_all_but_the_last(w, step, ret);
    start_save(w, last, step);
    bwi_session_cancel(w->rank[last].save);
    const uint64_t failed_ns = w->env.now;
    run_until(w, all_have_heard, "hear of a failure");
    *ret_s = seconds_since(w, failed_ns);
    end_phase(w);
    for (uint32_t r = 0; r <= last; r++) {
        if (w->rank[r].save->error.status == 0) bench_die("fail", "a rank has not heard of it");
        bwi_session_release(w->rank[r].save);
    }
}
