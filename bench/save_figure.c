/* SPDX-License-Identifier: Apache-2.0 */
#include "save.h"
#include <stdlib.h>
#include <string.h>

#define DRAWS 2000

void pairs_add(struct pairs *p, double ours, double theirs) {
    if (p->count == ROUNDS_MAX) bench_die("pairs", "there are too many");
    p->ours[p->count] = ours;
    p->theirs[p->count++] = theirs > 0 ? theirs : 1e-9;
}

static double value_of(const double *ours, const double *theirs, size_t n) {
    const double mine = bench_spread_of(ours, n).median;
    return theirs == NULL ? mine : mine / bench_spread_of(theirs, n).median;
}

static uint64_t next_random(uint64_t *state) {
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The bootstrap: as many pairs drawn with repetition, again and again; the middle 95 % of what they give. */
static void interval_of(const struct pairs *p, bool ratio, double *low, double *high) {
    static double values[DRAWS];
    double ours[ROUNDS_MAX], theirs[ROUNDS_MAX];
    uint64_t rng = 1;
    for (size_t d = 0; d < DRAWS; d++) {
        for (size_t i = 0; i < p->count; i++) {
            const size_t drawn = (size_t)(next_random(&rng) % p->count);
            ours[i] = p->ours[drawn];
            theirs[i] = p->theirs[drawn];
        }
        values[d] = value_of(ours, ratio ? theirs : NULL, p->count);
    }
    qsort(values, DRAWS, sizeof *values, by_value);
    *low = values[DRAWS / 40];
    *high = values[DRAWS - 1 - DRAWS / 40];
}

void figure_heading(void) {
    printf("%-42s %8s  %-19s %8s  %-4s %10s %10s  %s\n", "figure", "ratio", "95 % interval", "target", "met", "ours",
           "theirs", "against");
}

static void report(FILE *json, const struct figure *f, const struct pairs *p, bool ratio) {
    double low, high;
    const double value = value_of(p->ours, ratio ? p->theirs : NULL, p->count);
    const double ours = bench_spread_of(p->ours, p->count).median, theirs = bench_spread_of(p->theirs, p->count).median;
    interval_of(p, ratio, &low, &high);
    const bool met = f->at_least ? high >= f->target : low <= f->target;
    printf("%-42s %8.3f  %8.3f .. %-7.3f %s%7.3f  %-4s", f->name, value, low, high, f->at_least ? ">" : "<", f->target,
           met ? "yes" : "no");
    if (ratio)
        printf(" %8.1fms %8.1fms", ours * 1e3, theirs * 1e3);
    else
        printf(" %10s %10s", "", "");
    printf("  %s\n", f->against);
    fflush(stdout);
    if (json == NULL) return;
    fputs("{\"name\":", json);
    bench_json_string(json, f->name);
    fprintf(json,
            ",\"ratio\":%.5f,\"low\":%.5f,\"high\":%.5f,\"target\":%.3f,\"at_least\":%s,\"met\":%s,\"against\":", value,
            low, high, f->target, f->at_least ? "true" : "false", met ? "true" : "false");
    bench_json_string(json, f->against);
    fprintf(json, ",\"bytes\":%zu,\"pairs\":%zu", f->bytes, p->count);
    if (ratio) fprintf(json, ",\"seconds\":%.6f,\"against_seconds\":%.6f", ours, theirs);
    fputs("}\n", json);
}

void figure_report(FILE *json, const struct figure *f, const struct pairs *p) {
    report(json, f, p, true);
}

void figure_report_value(FILE *json, const struct figure *f, const struct pairs *p) {
    report(json, f, p, false);
}
