/* SPDX-License-Identifier: Apache-2.0 */
/* A training job as a test sees it. */
#include "job.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static bool in_rank; /* a process that was spawned: it has no case to fail */

/* --- checks ---- */

/* Ends a process that was spawned, without what its parent has put off until its own end; but a build that counts
 * what runs (gcov) writes its counts then. */
static _Noreturn void leave(int status) {
    (void)fflush(NULL);
#ifdef BW_COVERAGE
    exit(status);
#else
    _exit(status);
#endif
}

static void failed(const char *file, int line) {
    if (in_rank) leave(99);
    _fail(file, line);
}

void must_at(bool ok, const char *more, const char *what, const char *file, int line) {
    if (ok) return;
    (void)fprintf(stderr, "%s:%d: not true: %s%s%s\n", file, line, what, more ? ": " : "", more ? more : "");
    failed(file, line);
}

void must_equal(long long a, long long b, const char *what, const char *file, int line) {
    if (a == b) return;
    (void)fprintf(stderr, "%s:%d: not true: %s: %lld and %lld\n", file, line, what, a, b);
    failed(file, line);
}

void must_be(int rc, int want, const struct bw_error *err, const char *part, const char *what, const char *file,
             int line) {
    const bool status = rc == want && (rc == 0 || err == NULL || err->status == want);
    const bool message = part == NULL || (err != NULL && strstr(err->message, part) != NULL);
    if (status && message) return;
    (void)fprintf(stderr, "%s:%d: %s\n  gave %s, wanted %s%s%s\n  error: %s %s\n", file, line, what, bw_status_name(rc),
                  bw_status_name(want), part ? " with " : "", part ? part : "",
                  err != NULL ? bw_status_name(err->status) : "", err != NULL ? err->message : "");
    failed(file, line);
}

/* --- places ---- */

const char *path_in(const char *dir, const char *fmt, ...) {
    static char slots[8][1400];
    static unsigned next;
    char *path = slots[next++ % 8];
    char name[600];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    (void)snprintf(path, sizeof slots[0], "%.700s/%s", dir, name);
    return path;
}

void place_make(struct place *p) {
    (void)snprintf(p->root, sizeof p->root, "%s", test_mkdir());
    (void)snprintf(p->remote, sizeof p->remote, "%s/remote", p->root);
    (void)snprintf(p->local, sizeof p->local, "%s/local", p->root);
}

void place_drop(struct place *p) {
    test_rmdir(p->root);
}

/* --- checkpointers ---- */

struct bw_options options_of(const struct place *p, const char *launch, uint32_t rank, uint32_t world) {
    struct bw_options o = BW_OPTIONS_INIT;
    o.flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL;
    o.run = RUN;
    o.job = "job";
    o.launch = launch;
    o.rank = rank;
    o.world = world;
    o.local_url = p->local;
    o.remote_url = p->remote;
    o.memory_budget_bytes = 64 * MIB;
    o.io_threads = 2;
    o.io_backend = test_io_backend();
    o.local_io_depth = 16; /* nothing is measured */
    o.open_timeout_ms = WAIT_MS;
    return o;
}

struct bw_checkpointer *open_with(const struct bw_options *o) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    must_ok(bw_checkpointer_open(o, &ck, &err), &err);
    return ck;
}

struct bw_checkpointer *open_alone(const struct place *p, const char *launch) {
    const struct bw_options o = options_of(p, launch, 0, 1);
    return open_with(&o);
}

void close_ok(struct bw_checkpointer *ck) {
    struct bw_error err = BW_ERROR_INIT;
    must_ok(bw_checkpointer_close(ck, WAIT_MS, &err), &err);
}

struct bw_resumed resumed_of(struct bw_checkpointer *ck) {
    struct bw_resumed r = {0};
    bw_checkpointer_resumed(ck, &r);
    return r;
}

struct bw_save *begin(struct bw_checkpointer *ck, uint64_t step) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *v = NULL;
    must_ok(bw_save_begin(ck, step, &v, &err), &err);
    return v;
}

void add_box(struct bw_save *v, const char *name, enum bw_dtype dtype, const void *data, uint32_t dims,
             const uint64_t *shape, const uint64_t *offset, const uint64_t *extent) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_tensor t = BW_TENSOR_INIT;
    t.dtype = dtype;
    t.name = name;
    t.data = data;
    t.dims = dims;
    t.shape = shape;
    t.offset = offset;
    t.extent = extent;
    must_ok(bw_save_tensor(v, &t, &err), &err);
}

void add_bytes(struct bw_save *v, const char *name, const void *data, uint64_t n) {
    add_box(v, name, BW_U8, data, 1, &n, NULL, NULL);
}

void start(struct bw_save *v) {
    struct bw_error err = BW_ERROR_INIT;
    must_ok(bw_save_start(v, &err), &err);
}

void wait_for(struct bw_save *v, enum bw_level level) {
    struct bw_error err = BW_ERROR_INIT;
    must_ok(bw_save_wait(v, level, WAIT_MS, &err), &err);
}

void finish(struct bw_save *v) {
    wait_for(v, BW_COMMITTED);
    bw_save_release(v);
}

void commit(struct bw_save *v) {
    start(v);
    finish(v);
}

void save_bytes(struct bw_checkpointer *ck, uint64_t step, const void *data, uint64_t n) {
    struct bw_save *v = begin(ck, step);
    add_bytes(v, "w", data, n);
    commit(v);
}

void save_filled(struct bw_checkpointer *ck, uint64_t step, uint64_t n) {
    void *m = malloc(n);
    must(m != NULL);
    finish(begin_filled(ck, step, m, n));
    free(m);
}

struct bw_save *begin_filled(struct bw_checkpointer *ck, uint64_t step, void *m, uint64_t n) {
    struct bw_save *v = begin(ck, step);
    fill(m, n, step);
    add_bytes(v, "w", m, n);
    start(v);
    return v;
}

struct bw_restore *reader_of(const struct place *p, uint64_t step) {
    struct bw_reader_options o = BW_READER_OPTIONS_INIT;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_restore *r = NULL;
    o.run = RUN;
    o.remote_url = p->remote;
    o.step = step;
    o.memory_budget_bytes = 64 * MIB;
    o.io_threads = 2;
    o.io_backend = test_io_backend();
    must_ok(bw_reader_open(&o, &r, &err), &err);
    return r;
}

void read_bytes(struct bw_restore *r, const char *name, void *to, uint64_t n) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_slice s = BW_SLICE_INIT;
    s.dtype = BW_U8;
    s.name = name;
    s.data = to;
    s.dims = 1;
    s.shape = &n;
    must_ok(bw_restore_read(r, &s, 1, &err), &err);
}

void check_bytes(const struct place *p, uint64_t step, uint64_t n, uint64_t seed) {
    void *got = malloc(n + 1);
    must(got != NULL);
    struct bw_restore *r = reader_of(p, step);
    read_bytes(r, "w", got, n);
    must(is_filled(got, n, seed));
    bw_restore_close(r);
    free(got);
}

/* --- catalogs ---- */

struct bw_catalog *catalog_of(const struct place *p) {
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_catalog *c = NULL;
    o.remote_url = p->remote;
    o.memory_budget_bytes = 64 * MIB;
    o.io_threads = 2;
    o.io_backend = test_io_backend();
    must_ok(bw_catalog_open(&o, &c, &err), &err);
    return c;
}

struct history_facts history_of(const struct place *p) {
    struct history_facts f = {0};
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_history_row row;
    char last[BW_NAME_BYTES] = "";
    struct bw_catalog *c = catalog_of(p);
    must_ok(bw_catalog_history(c, RUN, &list, &err), &err);
    for (size_t i = 0; bw_list_history(list, i, &row); i++) {
        must_eq(row.status, 0);
        f.live = row.live;
        f.commits += strcmp(row.event, "commit") == 0;
        f.aborts += strcmp(row.event, "abort") == 0;
        if (strcmp(row.event, "register") != 0) continue;
        f.changes_of_job += f.registers > 0 && strcmp(row.job, last) != 0;
        f.registers++;
        (void)snprintf(last, sizeof last, "%s", row.job);
    }
    bw_list_free(list);
    bw_catalog_close(c);
    return f;
}

void must_be_sound(const struct place *p) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_finding f;
    struct bw_catalog *c = catalog_of(p);
    must_ok(bw_catalog_verify(c, RUN, NULL, 0, &list, &err), &err);
    must(bw_list_count(list) > 0);
    for (size_t i = 0; bw_list_finding(list, i, &f); i++)
        must_at(f.severity < 2, f.message, f.object, __FILE__, __LINE__);
    bw_list_free(list);
    bw_catalog_close(c);
}

uint32_t state_of(const struct place *p, const char *id) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_checkpoint_row row;
    uint32_t state = 0;
    struct bw_catalog *c = catalog_of(p);
    must_ok(bw_catalog_checkpoints(c, RUN, &list, &err), &err);
    for (size_t i = 0; bw_list_checkpoint(list, i, &row); i++)
        if (strcmp(row.id, id) == 0) state = row.state;
    bw_list_free(list);
    bw_catalog_close(c);
    return state;
}

/* --- patterns ---- */

/* Eight bytes that tell the seed and their place; no two places of a test's memory hold the same. */
static uint64_t word_at(uint64_t seed, uint64_t i) {
    uint64_t z = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (seed + 1) * UINT64_C(0xd1b54a32d192ed03);
    z = (z ^ z >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ z >> 32;
}

void fill(void *to, uint64_t n, uint64_t seed) {
    unsigned char *at = to;
    for (uint64_t i = 0; i < n / 8; i++) {
        const uint64_t w = word_at(seed, i);
        memcpy(at + i * 8, &w, 8);
    }
    const uint64_t w = word_at(seed, n / 8);
    if (n % 8 > 0) memcpy(at + n / 8 * 8, &w, n % 8);
}

bool is_filled(const void *from, uint64_t n, uint64_t seed) {
    const unsigned char *at = from;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < n / 8; i++) {
        const uint64_t w = word_at(seed, i);
        wrong |= (uint64_t)(memcmp(at + i * 8, &w, 8) != 0);
    }
    const uint64_t w = word_at(seed, n / 8);
    return wrong == 0 && (n % 8 == 0 || memcmp(at + n / 8 * 8, &w, n % 8) == 0);
}

uint32_t element_value(uint64_t seed, uint64_t linear) {
    return (uint32_t)word_at(seed, linear);
}

/* --- processes ---- */

struct board *board_new(void) {
    void *b = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(b != MAP_FAILED);
    return b;
}

void board_free(struct board *b) {
    (void)munmap(b, sizeof *b);
}

void sleep_ms(unsigned ms) {
    const struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000L};
    (void)nanosleep(&t, NULL);
}

uint64_t clock_ms(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void limit_files(uint64_t bytes) {
    struct rlimit r;
    must_eq(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = bytes;
    must_eq(setrlimit(RLIMIT_FSIZE, &r), 0);
}

void unlimit_files(void) {
    struct rlimit r;
    must_eq(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = r.rlim_max;
    must_eq(setrlimit(RLIMIT_FSIZE, &r), 0);
}

void meet(struct board *b, unsigned place, unsigned count) {
    atomic_fetch_add(&b->arrived[place], 1);
    for (unsigned i = 0; atomic_load(&b->arrived[place]) < count; i++) {
        must(i < WAIT_MS);
        sleep_ms(1);
    }
}

void raise_flag(atomic_int *flag) {
    atomic_store(flag, 1);
}

void await_flag(atomic_int *flag) {
    for (unsigned i = 0; atomic_load(flag) == 0; i++) {
        must(i < WAIT_MS);
        sleep_ms(1);
    }
}

pid_t spawn(int (*main)(void *arg, unsigned i), void *arg, unsigned i) {
    (void)fflush(NULL);
    const pid_t pid = fork();
    must(pid >= 0);
    if (pid != 0) return pid;
    in_rank = true;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives a case that was cut off */
    leave(main(arg, i));
}

int reap(pid_t pid) {
    int status = 0;
    for (unsigned i = 0; i < 2 * WAIT_MS; i += 2) {
        const pid_t got = waitpid(pid, &status, WNOHANG);
        must(got >= 0);
        if (got == pid) return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
        sleep_ms(2);
    }
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    must_at(false, NULL, "a process ends", __FILE__, __LINE__);
    return -1;
}

void run_ranks(int (*main)(void *arg, unsigned i), void *arg, unsigned n) {
    pid_t pids[64];
    must(n <= 64);
    for (unsigned i = 0; i < n; i++) pids[i] = spawn(main, arg, i);
    int worst = 0;
    for (unsigned i = 0; i < n; i++) {
        const int rc = reap(pids[i]);
        if (rc != 0) (void)fprintf(stderr, "process %u of %u ended with %d\n", i, n, rc);
        if (worst == 0) worst = rc;
    }
    must_eq(worst, 0);
}
