/* SPDX-License-Identifier: Apache-2.0 */
#include "compare.h"
#include "hash/hash.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_S    2e-3 /* a sample lasts at least this long: far above the clock's grain and one interrupt */
#define REPEATS_MAX 1000000

static char subject[256]; /* of the figures that follow */

/* Keeps the compiler from leaving out work whose result nobody looks at. */
static void keep(const void *p) {
    __asm__ volatile("" : : "r"(p) : "memory");
}

size_t compare_size(const struct compare *c, size_t full) {
    size_t n = c->small ? full / 100 : full;
    return n ? n : 1;
}

void compare_must(int rc, const struct bw_error *err, const char *what) {
    if (rc != 0) bench_die(what, err->message);
}

void compare_subject(struct compare *c, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(subject, sizeof subject, fmt, args);
    va_end(args);
    printf("\n%s%s\n", subject, c->small ? " (small: not a measurement)" : "");
}

void compare_fini(struct compare *c) {
    free(c->copy);
    c->copy = NULL;
}

static const char *against_name(enum compare_against a) {
    switch (a) {
    case COMPARE_MEMCPY: return "memcpy";
    case COMPARE_XXH3: return "xxh3";
    case COMPARE_SHA256: return "sha256";
    }
    return "?";
}

static void run_once(const struct compare_case *k) {
    struct bw_error err = BW_ERROR_INIT;
    int rc = k->run(k->state, &err);
    if (rc != k->want) bench_die(k->name, rc == 0 ? "succeeded, which it must not" : err.message);
}

static void yardstick_once(struct compare *c, const struct compare_case *k) {
    struct bwi_xxh xxh;
    struct bwi_sha sha;
    switch (k->against) {
    case COMPARE_MEMCPY:
        memcpy(c->copy, k->bytes.ptr, k->bytes.len);
        keep(c->copy);
        break;
    case COMPARE_XXH3:
        xxh = bwi_xxh_of(k->bytes);
        keep(&xxh);
        break;
    case COMPARE_SHA256:
        sha = bwi_sha_of(k->bytes);
        keep(&sha);
        break;
    }
}

/* Seconds of one execution, of `repeats`. */
static double sample(struct compare *c, const struct compare_case *k, bool yardstick, size_t repeats) {
    double begin = bench_cpu_s();
    for (size_t i = 0; i < repeats; i++) {
        if (yardstick)
            yardstick_once(c, k);
        else
            run_once(k);
    }
    return (bench_cpu_s() - begin) / (double)repeats;
}

/* How often to repeat for a sample; warms caches and memory as well. */
static size_t repeats_for(struct compare *c, const struct compare_case *k, bool yardstick) {
    (void)sample(c, k, yardstick, 1);
    size_t repeats = 1;
    while (!c->small && repeats < REPEATS_MAX && sample(c, k, yardstick, repeats) * (double)repeats < SAMPLE_S)
        repeats *= 2;
    return repeats;
}

static void report(struct compare *c, const struct compare_case *k, const double *ours, const double *theirs) {
    double *pairs = bench_alloc(c->rounds, sizeof *pairs);
    for (size_t i = 0; i < c->rounds; i++) pairs[i] = ours[i] / (theirs[i] > 0 ? theirs[i] : 1e-9);
    struct bench_spread s = bench_spread_of(ours, c->rounds), r = bench_spread_of(pairs, c->rounds);
    double theirs_s = bench_spread_of(theirs, c->rounds).median, ratio = s.median / (theirs_s > 0 ? theirs_s : 1e-9);
    double ns = s.median * 1e9 / (double)k->items;
    double mib_per_s = (double)k->bytes.len / 1048576.0 / (s.median > 0 ? s.median : 1e-9);
    printf("  %-24s %10.3f  %9.3f .. %-9.3f %10.1f %11.1f %9.3f  %8.3f .. %-8.3f %s\n", k->name, s.median * 1e3,
           s.p10 * 1e3, s.p90 * 1e3, ns, mib_per_s, ratio, r.p10, r.p90, against_name(k->against));
    fflush(stdout);
    if (c->json) {
        fputs("{\"name\":", c->json);
        bench_json_string(c->json, k->name);
        fputs(",\"of\":", c->json);
        bench_json_string(c->json, subject);
        fprintf(c->json,
                ",\"bytes\":%zu,\"items\":%zu,\"seconds\":%.9f,\"p10\":%.9f,\"p90\":%.9f,\"ratio\":%.6f,"
                "\"ratio_p10\":%.6f,\"ratio_p90\":%.6f,\"against\":\"%s\",\"against_seconds\":%.9f,\"pairs\":%zu}\n",
                k->bytes.len, k->items, s.median, s.p10, s.p90, ratio, r.p10, r.p90, against_name(k->against), theirs_s,
                c->rounds);
    }
    free(pairs);
}

void compare_run(struct compare *c, const struct compare_case *k) {
    double *ours = bench_alloc(c->rounds, sizeof *ours), *theirs = bench_alloc(c->rounds, sizeof *theirs);
    if (k->against == COMPARE_MEMCPY && k->bytes.len > c->copy_bytes) {
        free(c->copy);
        c->copy = bench_alloc(k->bytes.len, 1);
        c->copy_bytes = k->bytes.len;
    }
    size_t repeats = repeats_for(c, k, false), yard_repeats = repeats_for(c, k, true);
    for (size_t i = 0; i < c->rounds; i++) { /* each side goes first in every other pair */
        if (i % 2 == 0) ours[i] = sample(c, k, false, repeats);
        theirs[i] = sample(c, k, true, yard_repeats);
        if (i % 2 == 1) ours[i] = sample(c, k, false, repeats);
    }
    report(c, k, ours, theirs);
    free(ours);
    free(theirs);
}
