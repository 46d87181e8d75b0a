/* SPDX-License-Identifier: Apache-2.0 */
#include "bench.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif
#ifdef __OPTIMIZE__
#define OPTIMISED true
#else
#define OPTIMISED false
#endif

void bench_die(const char *what, const char *why) {
    fflush(stdout);
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
    exit(1);
}

size_t bench_number(const char *option, const char *text, size_t least, size_t most) {
    char *end, why[160];
    unsigned long v = text ? strtoul(text, &end, 10) : 0;
    if (text && *text && !*end && v >= least && v <= most) return v;
    snprintf(why, sizeof why, "expected a number from %zu to %zu, found %.40s", least, most, text ? text : "none");
    bench_die(option, why);
}

FILE *bench_open(const char *path) {
    FILE *f = fopen(path, "we");
    if (!f) bench_die(path, strerror(errno));
    return f;
}

void *bench_alloc(size_t n, size_t bytes) {
    void *p = calloc(n ? n : 1, bytes);
    if (!p) bench_die("memory", strerror(ENOMEM));
    return p;
}

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double bench_wall_s(void) {
    return seconds(CLOCK_MONOTONIC);
}

double bench_cpu_s(void) {
    return seconds(CLOCK_THREAD_CPUTIME_ID);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const double *sorted, size_t n, double q) {
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;
    return i + 1 < n ? sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

struct bench_spread bench_spread_of(const double *list, size_t n) {
    double *sorted = bench_alloc(n, sizeof *sorted);
    memcpy(sorted, list, n * sizeof *list);
    qsort(sorted, n, sizeof *sorted, by_value);
    struct bench_spread s = {quantile(sorted, n, 0.1), quantile(sorted, n, 0.5), quantile(sorted, n, 0.9)};
    free(sorted);
    return s;
}

void bench_json_string(FILE *json, const char *text) {
    fputc('"', json);
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\')
            fprintf(json, "\\%c", c);
        else if (c < 0x20)
            fprintf(json, "\\u%04x", c);
        else
            fputc(c, json);
    }
    fputc('"', json);
}

/* The value of the first line of /proc/cpuinfo that begins with `key`; false where there is none. */
static bool cpuinfo(const char *key, char *ret, size_t ret_bytes) {
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[4096];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(ret, ret_bytes, "%s", colon + 1 + strspn(colon + 1, " "));
        found = true;
    }
    if (f) fclose(f);
    return found;
}

void bench_facts(FILE *json) {
    struct utsname u;
    uname(&u);
    char cpu[256], flags[4096];
    double load[1] = {0};
    if (!cpuinfo("model name", cpu, sizeof cpu)) snprintf(cpu, sizeof cpu, "%s", u.machine);
    bool virtual = cpuinfo("flags", flags, sizeof flags) && strstr(flags, " hypervisor");
    if (getloadavg(load, 1) < 1) load[0] = 0;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    double gib = (double)pages * (double)page / 1073741824.0;
    printf("%s, %ld CPUs%s, %.0f GiB of memory, load %.2f; %s %s; %s%s\n", cpu, cpus,
           virtual ? " of a virtual machine" : "", gib, load[0], u.sysname, u.release, COMPILER,
           OPTIMISED ? "" : ", NOT OPTIMISED");
    if (!json) return;
    fputs("{\"name\":\"machine\",\"cpu\":", json);
    bench_json_string(json, cpu);
    fputs(",\"kernel\":", json);
    bench_json_string(json, u.release);
    fputs(",\"compiler\":", json);
    bench_json_string(json, COMPILER);
    fprintf(json, ",\"optimised\":%s,\"virtual\":%s,\"cpus\":%ld,\"memory_gib\":%.0f,\"load\":%.2f}\n",
            OPTIMISED ? "true" : "false", virtual ? "true" : "false", cpus, gib, load[0]);
}
