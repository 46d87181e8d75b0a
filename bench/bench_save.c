/* SPDX-License-Identifier: Apache-2.0 */
/* What a save costs, beside what the machine could do at best and what people do without Breakwater. Everything that is
 * compared is measured in turn in one run, so that a noisy machine hits all sides alike; the results are ratios of
 * medians, with the spread of the pairs.
 *
 *     bench_save DIR [--mib N] [--rounds N] [--json FILE]
 *
 * Prints a table, and with --json a line per figure: name, ratio, low, high (of the pairs), against what, bytes,
 * seconds of both sides. */
#include "bench.h"
#include <breakwater/breakwater.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX 64
#define TENSORS    300
#define TIMEOUT_MS 600000

enum side { COPY, STALL, LOCAL, COMMITTED, PLAIN, SIDES };

struct bench {
    const char *dir;
    FILE *json;
    size_t bytes, rounds;
    char *state, *warm;
    double seconds[SIDES][ROUNDS_MAX];
    struct bw_checkpointer *ck;
    struct bw_error err;
};

static void must(const struct bench *b, int rc, const char *what) {
    if (rc < 0) bench_die(what, b->err.message);
}

static char *memory(size_t bytes) {
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) bench_die("memory", strerror(errno));
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 1, bytes); /* the first touch is not what is measured */
    return p;
}

static void open_run(struct bench *b) {
    static char local[1100], remote[1100], launch[64];
    struct bw_options o = BW_OPTIONS_INIT;
    snprintf(local, sizeof local, "file://%s/local", b->dir);
    snprintf(remote, sizeof remote, "file://%s/remote", b->dir);
    snprintf(launch, sizeof launch, "bench-%ld-%ld", (long)time(NULL), (long)getpid());
    o.run = "bench", o.job = "bench", o.launch = launch, o.world = 1;
    o.local_url = local, o.remote_url = remote, o.flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL;
    o.memory_budget_bytes = b->bytes + b->bytes / 8 + (UINT64_C(64) << 20);
    o.local_quota_bytes = 3 * b->bytes;
    o.retention.keep_last = 2;
    must(b, bw_checkpointer_open(&o, &b->ck, &b->err), "open");
}

static void describe(struct bench *b, struct bw_save *save) {
    uint64_t each = b->bytes / TENSORS;
    for (unsigned i = 0; i < TENSORS; i++) {
        char name[32];
        struct bw_tensor t = BW_TENSOR_INIT;
        snprintf(name, sizeof name, "tensor.%03u", i);
        t.name = name, t.dtype = BW_U8, t.dims = 1, t.shape = &each, t.data = b->state + i * each;
        must(b, bw_save_tensor(save, &t, &b->err), "describe");
    }
}

static void measure_save(struct bench *b, size_t round) {
    struct bw_save *save;
    double begin = bench_wall_s();
    must(b, bw_save_begin(b->ck, round + 1, &save, &b->err), "begin");
    describe(b, save);
    must(b, bw_save_start(save, &b->err), "start");
    must(b, bw_save_wait(save, BW_CAPTURED, TIMEOUT_MS, &b->err), "capture");
    b->seconds[STALL][round] = bench_wall_s() - begin;
    must(b, bw_save_wait(save, BW_LOCAL, TIMEOUT_MS, &b->err), "local");
    b->seconds[LOCAL][round] = bench_wall_s() - begin;
    must(b, bw_save_wait(save, BW_COMMITTED, TIMEOUT_MS, &b->err), "commit");
    b->seconds[COMMITTED][round] = bench_wall_s() - begin;
    bw_save_release(save);
}

/* What a trainer does that saves by itself: one file, written and synced, its name too. */
static void measure_plain(struct bench *b, size_t round) {
    char path[1100];
    snprintf(path, sizeof path, "%s/plain", b->dir);
    double begin = bench_wall_s();
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) bench_die(path, strerror(errno));
    for (size_t at = 0; at < b->bytes;) {
        ssize_t n = write(fd, b->state + at, b->bytes - at);
        if (n < 0) bench_die(path, strerror(errno));
        at += (size_t)n;
    }
    if (fsync(fd) < 0 || close(fd) < 0) bench_die(path, strerror(errno));
    b->seconds[PLAIN][round] = bench_wall_s() - begin;
    unlink(path);
}

static void report(struct bench *b, const char *name, enum side a, enum side c, const char *against) {
    double pairs[ROUNDS_MAX], low = 1e300, high = 0;
    for (size_t i = 0; i < b->rounds; i++) {
        pairs[i] = b->seconds[a][i] / b->seconds[c][i];
        low = pairs[i] < low ? pairs[i] : low;
        high = pairs[i] > high ? pairs[i] : high;
    }
    double ours = bench_spread_of(b->seconds[a], b->rounds).median,
           theirs = bench_spread_of(b->seconds[c], b->rounds).median, ratio = ours / theirs;
    printf("%-24s %8.3f   %8.3f .. %-8.3f %10.1f ms  %10.1f ms  %s\n", name, ratio, low, high, ours * 1e3, theirs * 1e3,
           against);
    if (b->json)
        fprintf(b->json,
                "{\"name\":\"%s\",\"ratio\":%.4f,\"low\":%.4f,\"high\":%.4f,\"against\":\"%s\",\"bytes\":%zu,"
                "\"seconds\":%.6f,\"against_seconds\":%.6f,\"pairs\":%zu}\n",
                name, ratio, low, high, against, b->bytes, ours, theirs, b->rounds);
}

static void describe_run(const struct bench *b) {
    bench_facts(b->json);
    printf("state %.0f MiB in %d tensors, %zu pairs, both tiers in %s\n\n", (double)b->bytes / 1048576.0, TENSORS,
           b->rounds, b->dir);
}

static void parse(struct bench *b, int argc, char **argv) {
    b->bytes = (size_t)256 << 20;
    b->rounds = 7;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--mib") == 0)
            b->bytes = bench_number(value, 1, 65536) << 20, i++;
        else if (strcmp(argv[i], "--rounds") == 0)
            b->rounds = bench_number(value, 1, ROUNDS_MAX), i++;
        else if (strcmp(argv[i], "--json") == 0 && value)
            b->json = bench_open(value), i++;
        else if (argv[i][0] != '-' && !b->dir)
            b->dir = argv[i];
        else
            bench_die(argv[i], "usage: bench_save DIR [--mib N] [--rounds N] [--json FILE]");
    }
    if (!b->dir || b->dir[0] != '/' || strlen(b->dir) > 1000)
        bench_die("DIR", "expected an absolute path of an existing directory");
    b->bytes -= b->bytes % TENSORS;
}

int main(int argc, char **argv) {
    static struct bench b;
    parse(&b, argc, argv);
    b.state = memory(b.bytes);
    b.warm = memory(b.bytes);
    open_run(&b);
    describe_run(&b);
    for (size_t i = 0; i < b.rounds; i++) {
        double begin = bench_wall_s();
        memcpy(b.warm, b.state, b.bytes);
        b.seconds[COPY][i] = bench_wall_s() - begin;
        measure_save(&b, i);
        measure_plain(&b, i);
    }
    must(&b, bw_checkpointer_close(b.ck, TIMEOUT_MS, &b.err), "close");
    printf("%-24s %8s   %-20s %13s  %13s\n", "figure", "ratio", "low .. high of pairs", "median", "against");
    report(&b, "stall / memcpy", STALL, COPY, "memcpy of the state into warm memory, one thread");
    report(&b, "stall / plain save", STALL, PLAIN, "write and fsync of one file, which stops the training");
    report(&b, "local / plain save", LOCAL, PLAIN, "write and fsync of one file");
    report(&b, "committed / plain save", COMMITTED, PLAIN, "write and fsync of one file; two copies are written here");
    if (b.json && fclose(b.json) != 0) bench_die("--json", strerror(errno));
    return 0;
}
