/* SPDX-License-Identifier: Apache-2.0 */
/* What many ranks ask of their store while they open, save and commit.
 *
 *     bench_ranks [--ranks N] [--tensors N] [--saves N] [--latency-ms N] [--straggler-ms N] [--seed N] [--json FILE] */
#include "bench.h"
#include "ranks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    struct ranks_config config;
    size_t saves;
    FILE *json;
};

static void print_seconds(const struct ranks_count *n, enum ranks_call what) {
    printf("    %s/s:", what == RANKS_DATA ? "data" : "control");
    for (uint32_t s = 0; s < n->seconds; s++) printf(" %llu", (unsigned long long)n->per_s[what][s]);
    printf("\n");
}

static uint64_t most_per_s(const struct ranks_count *n, enum ranks_call what) {
    uint64_t most = 0;
    for (uint32_t s = 0; s < n->seconds; s++)
        if (n->per_s[what][s] > most) most = n->per_s[what][s];
    return most;
}

static void json_list(FILE *f, const struct ranks_count *n, enum ranks_call what) {
    fprintf(f, "[");
    for (uint32_t s = 0; s < n->seconds; s++) fprintf(f, "%s%llu", s ? "," : "", (unsigned long long)n->per_s[what][s]);
    fprintf(f, "]");
}

/* The numbers of a phase, up to where its own begin. */
static void json_count(FILE *f, const char *name, const struct job *job, const struct ranks_count *n) {
    fprintf(f, "{\"name\":\"%s\",\"ranks\":%u,\"tensors\":%u,\"latency_ms\":%g,\"data\":%llu,\"control\":%llu", name,
            job->config.ranks, job->config.tensors, (double)job->config.latency_ns / 1e6,
            (unsigned long long)n->all[RANKS_DATA], (unsigned long long)n->all[RANKS_CONTROL]);
    fprintf(f, ",\"control_of_coordinator\":%llu,\"control_most_per_rank\":%llu,\"data_per_s\":",
            (unsigned long long)n->coordinator, (unsigned long long)n->most_per_rank);
    json_list(f, n, RANKS_DATA);
    fprintf(f, ",\"control_per_s\":");
    json_list(f, n, RANKS_CONTROL);
}

static void print_count(const struct ranks_count *n, uint32_t ranks) {
    printf("    calls: data %.1f, control %.1f per rank (most %llu; coordinator %llu); most in a second: data %llu, "
           "control %llu\n",
           (double)n->all[RANKS_DATA] / ranks, (double)n->all[RANKS_CONTROL] / ranks,
           (unsigned long long)n->most_per_rank, (unsigned long long)n->coordinator,
           (unsigned long long)most_per_s(n, RANKS_DATA), (unsigned long long)most_per_s(n, RANKS_CONTROL));
    print_seconds(n, RANKS_DATA);
    print_seconds(n, RANKS_CONTROL);
}

static void run_open(struct ranks *w, const struct job *job) {
    static struct ranks_count n;
    double s;
    ranks_open(w, &n, &s);
    printf("ranks-open: all %u are open after %.2f s\n", job->config.ranks, s);
    print_count(&n, job->config.ranks);
    if (!job->json) return;
    json_count(job->json, "ranks-open", job, &n);
    fprintf(job->json, ",\"open_s\":%.6f}\n", s);
}

static void run_save(struct ranks *w, const struct job *job, size_t nth) {
    static struct ranks_save v;
    ranks_save(w, 10 * (uint64_t)(nth + 1), &v);
    printf("ranks-save %zu: committed %.2f s after the last rank's data was there (%.2f s of this CPU), heard by all "
           "after %.2f s; memory for it %.0f MiB\n",
           nth + 1, v.commit_s, v.commit_cpu_s, v.heard_s, (double)v.commit_bytes / (1 << 20));
    print_count(&v.count, job->config.ranks);
    fflush(stdout);
    if (!job->json) return;
    json_count(job->json, "ranks-save", job, &v.count);
    fprintf(job->json, ",\"nth\":%zu,\"commit_s\":%.6f,\"commit_cpu_s\":%.6f,\"heard_s\":%.6f,\"commit_bytes\":%llu}\n",
            nth + 1, v.commit_s, v.commit_cpu_s, v.heard_s, (unsigned long long)v.commit_bytes);
}

static void run_fail(struct ranks *w, const struct job *job) {
    static struct ranks_count n;
    double s;
    ranks_fail(w, 10 * (uint64_t)(job->saves + 1), &n, &s);
    printf("ranks-fail: one gives its save up; all have heard, and given back what they wrote, after %.2f s\n", s);
    print_count(&n, job->config.ranks);
    if (!job->json) return;
    json_count(job->json, "ranks-fail", job, &n);
    fprintf(job->json, ",\"heard_s\":%.6f}\n", s);
}

static struct job read_job(int argc, char **argv) {
    struct job job = {
        .config = {.ranks = 1024, .tensors = 16, .latency_ns = 5000000, .straggler_ns = 10000000000u, .seed = 1},
        .saves = 3};
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value) bench_die(name, "a value is missing");
        if (strcmp(name, "--ranks") == 0)
            job.config.ranks = (uint32_t)bench_number(name, value, 2, 100000);
        else if (strcmp(name, "--tensors") == 0)
            job.config.tensors = (uint32_t)bench_number(name, value, 1, 10000);
        else if (strcmp(name, "--saves") == 0)
            job.saves = bench_number(name, value, 1, 100);
        else if (strcmp(name, "--latency-ms") == 0)
            job.config.latency_ns = bench_number(name, value, 0, 10000) * BWI_NS_PER_MS;
        else if (strcmp(name, "--straggler-ms") == 0)
            job.config.straggler_ns = bench_number(name, value, 0, 300000) * BWI_NS_PER_MS;
        else if (strcmp(name, "--seed") == 0)
            job.config.seed = bench_number(name, value, 0, SIZE_MAX);
        else if (strcmp(name, "--json") == 0)
            job.json = bench_open(value);
        else
            bench_die(name, "no such option");
    }
    return job;
}

int main(int argc, char **argv) {
    struct job job = read_job(argc, argv);
    bench_facts(job.json);
    printf("%u ranks, %u tensors shared out among all of them, %g ms a call, the last rank comes %g s late\n",
           job.config.ranks, job.config.tensors, (double)job.config.latency_ns / 1e6,
           (double)job.config.straggler_ns / 1e9);
    struct ranks *w = ranks_new(&job.config);
    run_open(w, &job);
    for (size_t i = 0; i < job.saves; i++) run_save(w, &job, i);
    run_fail(w, &job);
    ranks_free(w);
    if (job.json) fclose(job.json);
    return 0;
}
