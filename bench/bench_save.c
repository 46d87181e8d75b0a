/* SPDX-License-Identifier: Apache-2.0 */
/* What saving and restoring cost, beside what the machine does at best: memcpy by as many threads, and fio on the same
 * file system with the same blocks, as many in flight, its fsync included. Everything that is compared is measured in
 * turn in one run, so that a noisy machine hits all sides alike; results are ratios of medians, with the interval.
 *
 *     bench_save DIR [--mib N] [--rounds N] [--only memory|save|loop|restore] [--json FILE]
 *
 * Prints a table, and with --json a line per figure: name, ratio, low, high, target, met, against what, bytes. */
#include "save.h"
#include <errno.h>
#include <linux/magic.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define DISK_STATES 9u /* that lie there at once: four in each tier, and the files of fio */

enum mode { COPY, COW, MODES };
static const char *const mode_names[MODES] = {"copy", "cow"};

struct bench {
    const char *dir, *only; /* NULL: all of it */
    FILE *json;
    size_t bytes, rounds;
    unsigned cpus, steps;
    bool has_fio, in_memory;
    struct state state;
    char *warm; /* as large as the state, touched */
    uint64_t budget_bytes[MODES];
    struct run run; /* of the mode that is measured */
    struct save_times last[MODES][LAYOUTS];
    /* what is measured */
    struct pairs stall[MODES][LAYOUTS], local[MODES], in_place, cpu[MODES], many_stall, many_local;
    struct pairs cold[LAYOUTS], warmed[LAYOUTS], slow[MODES], p99[MODES], faults, memory[MODES];
};

/* --- memory ---- */

static double status_bytes(const char *key) {
    char line[256];
    uint64_t kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, strlen(key)) == 0) kib = strtoull(line + strlen(key), NULL, 10);
    if (f != NULL) (void)fclose(f);
    return (double)kib * 1024;
}

static void forget_peak(void) {
    FILE *f = fopen("/proc/self/clear_refs", "we");
    const bool done = f != NULL && fputs("5", f) >= 0;
    if ((f != NULL && fclose(f) != 0) || !done) bench_die("/proc/self/clear_refs", strerror(errno));
}

#define MEMORY_SAVES 3u

/* The peak of a handle, from before it is opened: several saves of each layout. It stays open for what is measured
 * next, which finds all that is used again in its place. */
static void open_run(struct bench *b, enum mode m) {
    (void)malloc_trim(0);
    forget_peak();
    const double before = status_bytes("VmRSS:") + status_bytes("HugetlbPages:");
    run_open(&b->run, b->dir, mode_names[m], &b->state, b->budget_bytes[m], m == COW);
    for (unsigned i = 0; i < MEMORY_SAVES * LAYOUTS; i++)
        run_save(&b->run, (enum layout)(i / MEMORY_SAVES), &b->last[m][i / MEMORY_SAVES]);
    const double peak = status_bytes("VmHWM:") + status_bytes("HugetlbPages:");
    pairs_add(&b->memory[m], (peak - before - (double)b->budget_bytes[m]) / 1048576.0, 1);
}

/* --- saves ---- */

/* Trainers save the same state again and again: the second of two saves is what counts, and what it is like after
 * another layout is not. */
static void save_again(struct bench *b, enum mode m, enum layout l, struct save_times *ret) {
    run_save(&b->run, l, ret);
    const double copy_s = yardstick_copy(b->warm, b->state.memory, b->state.bytes, b->cpus);
    run_save(&b->run, l, ret);
    pairs_add(&b->stall[m][l], ret->stall_s, copy_s);
}

static void measure_saves(struct bench *b, enum mode m) {
    struct save_times *t = b->last[m];
    for (unsigned l = 0; l < LAYOUTS; l++) save_again(b, m, (enum layout)l, &t[l]);
    pairs_add(&b->cpu[m], t[LARGE].local_cpu_s / ((double)b->state.bytes * 1e-9), 1);
    if (b->has_fio) /* throughputs: ours over theirs */
        pairs_add(&b->local[m], yardstick_write(b->dir, b->state.bytes, true), t[LARGE].local_s);
    if (m != COPY) return;
    if (b->has_fio) pairs_add(&b->in_place, yardstick_write(b->dir, b->state.bytes, false), t[LARGE].local_s);
    pairs_add(&b->many_stall, t[SMALL].stall_s, t[LARGE].stall_s);
    pairs_add(&b->many_local, t[SMALL].local_s, t[LARGE].local_s);
    pairs_add(&b->faults, (double)t[LARGE].faults, 1);
}

/* --- restores ---- */

/* Of the newest checkpoint, which has this layout. */
static void measure_restore(struct bench *b, const struct run *r, enum layout layout) {
    make_cold(r->newest);
    const double cold_s = run_restore(r, layout, b->warm);
    if (b->has_fio) pairs_add(&b->cold[layout], yardstick_read(b->dir, b->state.bytes), cold_s);
    if (memcmp(b->warm, b->state.memory, b->state.bytes) != 0) bench_die("restore", "gave other bytes");
    make_warm(r->newest);
    const double warm_s = run_restore(r, layout, b->warm);
    const double copy_s = yardstick_copy(b->warm, b->state.memory, b->state.bytes, b->cpus);
    pairs_add(&b->warmed[layout], copy_s, warm_s);
}

static void measure_restores(struct bench *b, struct run *r) {
    struct save_times t;
    if (b->has_fio) (void)yardstick_write(b->dir, b->state.bytes, true); /* what it reads */
    for (unsigned l = 0; l < LAYOUTS; l++) {
        run_save(r, (enum layout)l, &t);
        make_cold(r->local); /* pages of another checkpoint would be kept rather than those of this one */
        for (size_t i = 0; i < b->rounds; i++) measure_restore(b, r, (enum layout)l);
    }
}

/* --- beside a computation ---- */

#define STEPS       120u
#define STEPS_SMALL 4u /* with which nothing is measured */

static double process_cpu_s(void) {
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* (T with - T alone) x CPUs - background CPU, over T alone x CPUs: what the save costs beyond the processor time that
 * it needs. While all CPUs compute, what is no computation is ours. */
static void measure_slowdown(struct bench *b, enum mode m) {
    struct compute alone, with;
    compute(b->cpus, b->steps, &alone);
    struct bw_save *save = run_begin(&b->run);
    const double cpu = process_cpu_s();
    compute(b->cpus, b->steps, &with);
    const double used_s = process_cpu_s() - cpu;
    run_finish(&b->run, save);
    const double computed_s = alone.total_s * b->cpus;
    const double background_s = used_s > computed_s ? used_s - computed_s : 0;
    pairs_add(&b->slow[m], ((with.total_s - alone.total_s) * b->cpus - background_s) / computed_s, 1);
    pairs_add(&b->p99[m], with.step_p99_s, alone.step_p99_s);
}

/* --- the whole ---- */

struct row {
    struct figure f;
    const struct pairs *p;
    bool value; /* no ratio of times */
};

static void report(struct bench *b) {
    const size_t n = b->state.bytes;
    char copy[64];
    snprintf(copy, sizeof copy, "memcpy into warm memory, %u threads", b->cpus);
    const struct row rows[] = {
        {{"stall, copy, 300 tensors", copy, 1.15, false, n}, &b->stall[COPY][LARGE], false},
        {{"stall, copy, 20,000 tensors", copy, 1.15, false, n}, &b->stall[COPY][SMALL], false},
        {{"stall, cow, 300 tensors", copy, 0.02, false, n}, &b->stall[COW][LARGE], false},
        {{"stall, cow, 20,000 tensors", copy, 0.02, false, n}, &b->stall[COW][SMALL], false},
        {{"begin to LOCAL, throughput, copy", "fio write of a new file, fsync", 0.95, true, n}, &b->local[COPY], false},
        {{"begin to LOCAL, throughput, cow", "fio write of a new file, fsync", 0.95, true, n}, &b->local[COW], false},
        {{"begin to LOCAL, throughput, beside in place", "fio write in place, fsync", 0.95, true, n},
         &b->in_place,
         false},
        {{"restore, cold, throughput, 300 tensors", "fio read", 0.95, true, n}, &b->cold[LARGE], false},
        {{"restore, cold, throughput, 20,000 tensors", "fio read", 0.95, true, n}, &b->cold[SMALL], false},
        {{"restore, warm, throughput, 300 tensors", copy, 0.5, true, n}, &b->warmed[LARGE], false},
        {{"restore, warm, throughput, 20,000 tensors", copy, 0.5, true, n}, &b->warmed[SMALL], false},
        {{"CPU seconds per GB, begin to LOCAL, copy", "", 0.15, false, n}, &b->cpu[COPY], true},
        {{"CPU seconds per GB, begin to LOCAL, cow", "", 0.15, false, n}, &b->cpu[COW], true},
        {{"slow-down of a computing loop, copy", "the loop alone", 0.05, false, n}, &b->slow[COPY], true},
        {{"slow-down of a computing loop, cow", "the loop alone", 0.05, false, n}, &b->slow[COW], true},
        {{"p99 of its steps, copy", "the loop alone", 1.5, false, n}, &b->p99[COPY], false},
        {{"p99 of its steps, cow", "the loop alone", 1.5, false, n}, &b->p99[COW], false},
        {{"stall of 20,000 tensors, copy", "300 tensors", 1.3, false, n}, &b->many_stall, false},
        {{"begin to LOCAL of 20,000 tensors, copy", "300 tensors", 1.3, false, n}, &b->many_local, false},
        {{"page faults of a save, copy", "", 4096, false, n}, &b->faults, true},
        {{"memory of a handle above its budget, copy, MiB", "", 64, false, n}, &b->memory[COPY], true},
        {{"memory of a handle above its budget, cow, MiB", "", 64, false, n}, &b->memory[COW], true},
    };
    figure_heading();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].p->count > 0) (rows[i].value ? figure_report_value : figure_report)(b->json, &rows[i].f, rows[i].p);
}

static bool wants(const struct bench *b, const char *what) {
    return b->only == NULL || strcmp(b->only, what) == 0;
}

static void parse(struct bench *b, int argc, char **argv) {
    b->bytes = (size_t)1024 << 20;
    b->rounds = 7;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--mib") == 0)
            b->bytes = bench_number(argv[i], value, 8, 65536) << 20, i++;
        else if (strcmp(argv[i], "--rounds") == 0)
            b->rounds = bench_number(argv[i], value, 1, ROUNDS_MAX), i++;
        else if (strcmp(argv[i], "--only") == 0 && value)
            b->only = value, i++;
        else if (strcmp(argv[i], "--json") == 0 && value)
            b->json = bench_open(value), i++;
        else if (argv[i][0] != '-' && !b->dir)
            b->dir = argv[i];
        else
            bench_die(argv[i], "usage: bench_save DIR [--mib N] [--rounds N] [--only WHAT] [--json FILE]");
    }
    if (!b->dir || b->dir[0] != '/' || strlen(b->dir) > 1000)
        bench_die("DIR", "expected an absolute path of an existing directory");
    if (b->only && !wants(b, "memory") && !wants(b, "save") && !wants(b, "loop") && !wants(b, "restore"))
        bench_die("--only", "expected memory, save, loop or restore");
    b->cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    b->steps = b->bytes >= (size_t)256 << 20 ? STEPS : STEPS_SMALL;
    b->has_fio = yardstick_has_fio();
}

/* A disk that is full in the middle would have it wait, for as long as a save waits for room. */
static void expect_room(const struct bench *b) {
    struct statvfs fs;
    char why[160];
    if (statvfs(b->dir, &fs) != 0) bench_die(b->dir, strerror(errno));
    const size_t has = (size_t)fs.f_bavail * fs.f_frsize >> 20, needs = DISK_STATES * b->bytes >> 20;
    if (has >= needs) return;
    snprintf(why, sizeof why, "has %zu MiB of room, and a state of %zu MiB needs %zu: see --mib", has, b->bytes >> 20,
             needs);
    bench_die(b->dir, why);
}

/* There nothing is ever out of the page cache. */
static bool lies_in_memory(const char *dir) {
    struct statfs fs;
    return statfs(dir, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

static void open_state(struct bench *b) {
    state_open(&b->state, b->bytes);
    b->warm = bench_alloc(b->state.bytes, 1);
    memset(b->warm, 1, b->state.bytes);
    b->budget_bytes[COPY] = b->state.bytes + b->state.bytes / 8 + (UINT64_C(64) << 20);
    b->budget_bytes[COW] = b->state.bytes / 4 + (UINT64_C(256) << 20);
}

/* One mode after the other: a state that is large does not lie on the disk twice as often as it must. */
static void measure_mode(struct bench *b, enum mode m) {
    open_run(b, m);
    for (size_t i = 0; wants(b, "save") && i < b->rounds; i++) measure_saves(b, m);
    for (size_t i = 0; wants(b, "loop") && i < b->rounds; i++) measure_slowdown(b, m);
    /* With the budget that is small: what is to be warm has to fit into memory, too. */
    if (wants(b, "restore") && m == COW && !b->in_memory) measure_restores(b, &b->run);
    run_close(&b->run);
    run_remove(&b->run);
}

static void close_all(struct bench *b) {
    state_close(&b->state);
    yardstick_end(b->dir);
    free(b->warm);
    if (b->json && fclose(b->json) != 0) bench_die("--json", strerror(errno));
}

int main(int argc, char **argv) {
    static struct bench b;
    parse(&b, argc, argv);
    expect_room(&b);
    b.in_memory = b.only == NULL && lies_in_memory(b.dir);
    bench_facts(b.json);
    open_state(&b);
    if (!b.has_fio) printf("fio is not installed: the disk is compared with nothing\n");
    if (b.in_memory) printf("%s lies in memory: restores are left out, for none can be cold\n", b.dir);
    printf("state %.0f MiB, %zu pairs, both tiers in %s\n", (double)b.state.bytes / 1048576.0, b.rounds, b.dir);
    for (unsigned m = 0; m < MODES; m++) measure_mode(&b, (enum mode)m);
    for (unsigned m = 0; m < MODES; m++)
        printf("%s: written by %s; captured by %s%s%s\n", m == COW ? "cow" : "copy", b.last[m][LARGE].write_path,
               b.last[m][LARGE].capture_mode, b.last[m][LARGE].capture_why[0] ? ": " : "",
               b.last[m][LARGE].capture_why);
    putchar('\n');
    report(&b);
    close_all(&b);
    return 0;
}
