/* SPDX-License-Identifier: Apache-2.0 */
/* What all benchmarks share: ending with a message, numbers of the command line, the facts of the machine, and the
 * spread of a list. */
#ifndef BW_BENCH_BENCH_H
#define BW_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

void bench_die(const char *what, const char *why) __attribute__((noreturn)); /* exits with 1 */

/* The number behind an option of the command line; dies when it is missing or not from least to most. */
size_t bench_number(const char *option, const char *text, size_t least, size_t most);

FILE *bench_open(const char *path); /* for writing; dies when that cannot be */

void *bench_alloc(size_t n, size_t bytes); /* zeroed; dies without memory; free() it */

double bench_wall_s(void); /* monotonic */
double bench_cpu_s(void);  /* used by this thread: what others do meanwhile does not count, a slow host does */

struct bench_spread {
    double p10, median, p90; /* between neighbours by straight line */
};
struct bench_spread bench_spread_of(const double *list, size_t n); /* n from 1 */

/* Prints processor, kernel, compiler, memory and load, and as a line of JSON with name "machine" if `json` is set. */
void bench_facts(FILE *json);

/* A JSON string with its quotes. */
void bench_json_string(FILE *json, const char *text);

#endif
