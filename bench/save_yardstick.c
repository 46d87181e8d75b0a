/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700 /* nftw */
#include "save.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS_MAX 256u

/* --- copying ---- */

struct part {
    pthread_t thread;
    char *to;
    const char *from;
    size_t bytes;
};

static void *copy_part(void *arg) {
    const struct part *p = arg;
    memcpy(p->to, p->from, p->bytes);
    return NULL;
}

double yardstick_copy(char *to, const char *from, size_t bytes, unsigned threads) {
    struct part parts[THREADS_MAX];
    const size_t each = bytes / threads;
    const double begin = bench_wall_s();
    for (unsigned i = 0; i < threads; i++) {
        const size_t at = i * each;
        parts[i] = (struct part){.to = to + at, .from = from + at, .bytes = i + 1 < threads ? each : bytes - at};
        if (pthread_create(&parts[i].thread, NULL, copy_part, &parts[i]) != 0) bench_die("thread", strerror(EAGAIN));
    }
    for (unsigned i = 0; i < threads; i++) (void)pthread_join(parts[i].thread, NULL);
    return bench_wall_s() - begin;
}

/* --- fio ---- */

bool yardstick_has_fio(void) {
    return system("fio --version >/dev/null 2>&1") == 0;
}

static const char *file_of(const char *dir) {
    static char path[1100];
    snprintf(path, sizeof path, "%s/fio.dat", dir);
    return path;
}

/* The milliseconds that fio's only job took, from its JSON. */
static double job_ms(FILE *f) {
    char line[4096];
    double ms = -1;
    while (fgets(line, sizeof line, f) != NULL) {
        const char *at = strstr(line, "\"job_runtime\" : ");
        if (at != NULL) ms = atof(at + strlen("\"job_runtime\" : "));
    }
    return ms;
}

static double fio(const char *dir, size_t bytes, const char *what) {
    char command[2000];
    snprintf(command, sizeof command,
             "fio --name=bench --filename='%s' --size=%zu --bs=4m --ioengine=io_uring --iodepth=16 --direct=1 "
             "--fallocate=posix --randrepeat=0 --output-format=json %s 2>/dev/null",
             file_of(dir), bytes - bytes % ((size_t)4 << 20), what);
    FILE *f = popen(command, "re");
    if (f == NULL) bench_die("fio", strerror(errno));
    const double ms = job_ms(f);
    if (pclose(f) != 0 || ms <= 0) bench_die("fio", "failed");
    const size_t moved = bytes - bytes % ((size_t)4 << 20);
    return ms * 1e-3 * (double)bytes / (double)moved;
}

double yardstick_write(const char *dir, size_t bytes, bool fresh) {
    if (fresh) (void)unlink(file_of(dir));
    return fio(dir, bytes, "--rw=write --end_fsync=1");
}

double yardstick_read(const char *dir, size_t bytes) {
    return fio(dir, bytes, "--rw=read");
}

void yardstick_end(const char *dir) {
    (void)unlink(file_of(dir));
}

/* --- the page cache ---- */

static size_t pages_seen, pages_resident;
static enum { LOOK, DROP, LOAD } what_to_do;

static void look(int fd, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page;
    void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) bench_die("mmap", strerror(errno));
    unsigned char *in = bench_alloc(pages, 1);
    if (mincore(p, bytes, in) != 0) bench_die("mincore", strerror(errno));
    for (size_t i = 0; i < pages; i++) pages_resident += in[i] & 1;
    pages_seen += pages;
    free(in);
    (void)munmap(p, bytes);
}

static void load(int fd) {
    static char buffer[1 << 20];
    while (read(fd, buffer, sizeof buffer) > 0) continue;
}

static int visit(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)at;
    if (type != FTW_F || st->st_size == 0) return 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) bench_die(path, strerror(errno));
    if (what_to_do == DROP) (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (what_to_do == LOAD) load(fd);
    if (what_to_do == LOOK) look(fd, (size_t)st->st_size);
    (void)close(fd);
    return 0;
}

static void walk(const char *dir) {
    if (nftw(dir, visit, 16, FTW_PHYS) != 0) bench_die(dir, strerror(errno));
}

double resident_share(const char *dir) {
    pages_seen = pages_resident = 0;
    what_to_do = LOOK;
    walk(dir);
    return pages_seen == 0 ? 0 : (double)pages_resident / (double)pages_seen;
}

void make_cold(const char *dir) {
    sync(); /* dirty pages do not go */
    what_to_do = DROP;
    walk(dir);
    if (resident_share(dir) > 0) bench_die(dir, "its pages stay in the page cache: nothing here can be measured cold");
}

/* A kernel that reclaims what is idle takes some pages at once. */
#define WARM_SHARE 0.97

void make_warm(const char *dir) {
    what_to_do = LOAD;
    walk(dir);
    if (resident_share(dir) < WARM_SHARE)
        bench_die(dir, "does not stay in the page cache: nothing here can be measured warm");
}

/* --- computing ---- */

#define NUMBERS 16384 /* 128 KiB of a thread's own */
#define SWEEPS  400   /* of them in a step: some milliseconds */

struct worker {
    pthread_t thread;
    unsigned steps;
    double *seconds; /* per step */
    double sum;      /* so that nothing is left out */
};

static void *compute_worker(void *arg) {
    struct worker *w = arg;
    double *x = bench_alloc(NUMBERS, sizeof *x);
    for (unsigned s = 0; s < w->steps; s++) {
        const double begin = bench_wall_s();
        for (unsigned k = 0; k < SWEEPS; k++)
            for (unsigned i = 0; i < NUMBERS; i++) x[i] = x[i] * 0.999 + (double)(i + k);
        w->seconds[s] = bench_wall_s() - begin;
    }
    w->sum = x[NUMBERS / 2];
    free(x);
    return NULL;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void compute(unsigned threads, unsigned steps, struct compute *ret) {
    struct worker w[THREADS_MAX];
    double *seconds = bench_alloc((size_t)threads * steps, sizeof *seconds);
    const double begin = bench_wall_s();
    for (unsigned i = 0; i < threads; i++) {
        w[i] = (struct worker){.steps = steps, .seconds = seconds + (size_t)i * steps};
        if (pthread_create(&w[i].thread, NULL, compute_worker, &w[i]) != 0) bench_die("thread", strerror(EAGAIN));
    }
    for (unsigned i = 0; i < threads; i++) (void)pthread_join(w[i].thread, NULL);
    ret->total_s = bench_wall_s() - begin;
    const size_t n = (size_t)threads * steps;
    qsort(seconds, n, sizeof *seconds, by_value);
    ret->step_p99_s = seconds[n - 1 - n / 100];
    free(seconds);
}
