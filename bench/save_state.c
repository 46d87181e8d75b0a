/* SPDX-License-Identifier: Apache-2.0 */
#include "save.h"
#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define HUGE ((size_t)2 << 20)

const unsigned layout_tensors[LAYOUTS] = {[LARGE] = 300, [SMALL] = 20000};

/* --- the state ---- */

static uint64_t word_of(uint64_t seed, size_t at) {
    uint64_t x = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + at;
    x = (x ^ (x >> 31)) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ (x >> 29);
}

static void state_change(struct state *s, uint64_t seed) {
    for (size_t at = 0; at < s->bytes; at += sizeof(uint64_t)) {
        const uint64_t word = word_of(seed, at);
        memcpy(s->memory + at, &word, sizeof word);
    }
}

void state_open(struct state *s, size_t bytes) {
    const size_t unit = (size_t)60000 * 64;
    s->bytes = bytes - bytes % unit;
    if (s->bytes == 0) bench_die("--mib", "too small for so many tensors");
    const size_t room = s->bytes + HUGE;
    char *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) bench_die("memory", strerror(errno));
    s->memory = p + (-(uintptr_t)p & (HUGE - 1));
    (void)madvise(s->memory, s->bytes, MADV_HUGEPAGE);
    state_change(s, 0); /* the first touch is not what is measured */
}

void state_close(struct state *s) {
    (void)munmap(s->memory, s->bytes);
    s->memory = NULL;
}

/* --- a run ---- */

static void must(int rc, const char *what, const struct bw_error *err) {
    if (rc < 0) bench_die(what, err->message);
}

void run_open(struct run *r, const char *dir, const char *name, const struct state *s, uint64_t budget_bytes,
              bool cow) {
    static unsigned launches;
    char launch[64];
    struct bw_options o = BW_OPTIONS_INIT;
    struct bw_error err = BW_ERROR_INIT;
    *r = (struct run){.state = s};
    snprintf(r->local, sizeof r->local, "%s/%s-local", dir, name);
    snprintf(r->remote, sizeof r->remote, "%s/%s-remote", dir, name);
    snprintf(launch, sizeof launch, "bench-%ld-%ld-%u", (long)time(NULL), (long)getpid(), launches++);
    o.run = "bench", o.job = "bench", o.launch = launch, o.world = 1;
    o.local_url = r->local, o.remote_url = r->remote, o.flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL;
    o.memory_budget_bytes = budget_bytes;
    o.capture = cow ? BW_CAPTURE_COW : BW_CAPTURE_COPY;
    o.local_io_depth = 16; /* nothing else is written beside what is measured */
    o.retention.keep_last = 1;
    o.saves_in_flight_max = 1;
    must(bw_checkpointer_open(&o, &r->ck, &err), "open", &err);
}

void run_close(struct run *r) {
    struct bw_error err = BW_ERROR_INIT;
    must(bw_checkpointer_close(r->ck, TIMEOUT_MS, &err), "close", &err);
    r->ck = NULL;
}

/* A trainer has its names already. */
static const char *name_of(unsigned i) {
    static char names[20000][20];
    if (names[i][0] == '\0') snprintf(names[i], sizeof names[i], "tensor.%05u", i);
    return names[i];
}

static void describe(const struct state *s, enum layout layout, struct bw_save *save) {
    struct bw_error err = BW_ERROR_INIT;
    const uint64_t each = s->bytes / layout_tensors[layout];
    for (unsigned i = 0; i < layout_tensors[layout]; i++) {
        struct bw_tensor t = BW_TENSOR_INIT;
        t.name = name_of(i), t.dtype = BW_U8, t.dims = 1, t.shape = &each, t.data = s->memory + i * each;
        must(bw_save_tensor(save, &t, &err), "describe", &err);
    }
}

static void wait_writable(struct bw_save *save) {
    struct bw_error err = BW_ERROR_INIT;
    must(bw_save_wait_writable(save, TIMEOUT_MS, &err), "wait", &err);
}

static void wait_for(struct bw_save *save, enum bw_level level) {
    struct bw_error err = BW_ERROR_INIT;
    must(bw_save_wait(save, level, TIMEOUT_MS, &err), "wait", &err);
}

static struct bw_save *start(struct run *r, enum layout layout) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *save;
    must(bw_save_begin(r->ck, ++r->step, &save, &err), "begin", &err);
    describe(r->state, layout, save);
    must(bw_save_start(save, &err), "start", &err);
    return save;
}

/* What retention has let go of stays for an hour else, and every save takes a state's bytes of the disk. Not measured.
 */
static void sweep(const struct run *r) {
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    const struct bw_prune_options now = {.struct_size = sizeof now};
    struct bw_error err = BW_ERROR_INIT;
    struct bw_catalog *catalog;
    struct bw_list *list;
    o.remote_url = r->remote;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    must(bw_catalog_open(&o, &catalog, &err), "open the catalog", &err);
    must(bw_catalog_prune(catalog, "bench", &now, &list, &err), "prune", &err);
    bw_list_free(list);
    bw_catalog_close(catalog);
}

static double process_cpu_s(uint64_t *faults) {
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    if (faults != NULL) *faults = (uint64_t)u.ru_minflt + (uint64_t)u.ru_majflt;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void note_newest(struct run *r, const char *id) {
    char pattern[1300];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/runs/bench/data/*/%s", r->local, id);
    if (glob(pattern, 0, NULL, &found) != 0 || found.gl_pathc != 1) bench_die(pattern, "is not there, or not once");
    snprintf(r->newest, sizeof r->newest, "%s", found.gl_pathv[0]);
    globfree(&found);
}

void run_save(struct run *r, enum layout layout, struct save_times *ret) {
    struct bw_save_stats stats;
    uint64_t before, after;
    const double begin = bench_wall_s(), cpu = process_cpu_s(&before) - bench_cpu_s();
    struct bw_save *save = start(r, layout);
    wait_writable(save);
    ret->stall_s = bench_wall_s() - begin;
    wait_for(save, BW_LOCAL);
    ret->local_s = bench_wall_s() - begin;
    ret->local_cpu_s = process_cpu_s(&after) - bench_cpu_s() - cpu;
    ret->faults = after - before;
    wait_for(save, BW_COMMITTED);
    ret->committed_s = bench_wall_s() - begin;
    bw_save_stats(save, &stats);
    snprintf(ret->write_path, sizeof ret->write_path, "%s", stats.write_path);
    snprintf(ret->capture_mode, sizeof ret->capture_mode, "%s", stats.capture_mode);
    snprintf(ret->capture_why, sizeof ret->capture_why, "%s", stats.capture_why);
    bw_save_release(save);
    note_newest(r, stats.id);
    sweep(r);
}

struct bw_save *run_begin(struct run *r) {
    struct bw_save *save = start(r, LARGE);
    wait_writable(save);
    return save;
}

void run_finish(const struct run *r, struct bw_save *save) {
    wait_for(save, BW_COMMITTED);
    bw_save_release(save);
    sweep(r);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)type, (void)at;
    return remove(path);
}

void run_remove(const struct run *r) {
    if (nftw(r->local, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) bench_die(r->local, strerror(errno));
    if (nftw(r->remote, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) bench_die(r->remote, strerror(errno));
}

/* --- restoring ---- */

double run_restore(const struct run *r, enum layout layout, char *into) {
    struct bw_reader_options o = BW_READER_OPTIONS_INIT;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_restore *restore;
    const struct state *s = r->state;
    const unsigned tensors = layout_tensors[layout];
    const uint64_t each = s->bytes / tensors;
    struct bw_slice *slices = bench_alloc(tensors, sizeof *slices);
    for (unsigned i = 0; i < tensors; i++) {
        slices[i] = (struct bw_slice)BW_SLICE_INIT;
        slices[i].name = name_of(i), slices[i].dtype = BW_U8, slices[i].dims = 1, slices[i].shape = &each;
        slices[i].data = into + i * each;
    }
    o.run = "bench", o.local_url = r->local, o.remote_url = r->remote;
    const double begin = bench_wall_s();
    must(bw_reader_open(&o, &restore, &err), "open for reading", &err);
    must(bw_restore_read(restore, slices, tensors, &err), "restore", &err);
    const double seconds = bench_wall_s() - begin;
    bw_restore_close(restore);
    free(slices);
    return seconds;
}
