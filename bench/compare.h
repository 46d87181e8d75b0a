/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring a function beside a yardstick: both in turn, many times, in one process. Each pair gives a ratio, so that a
 * machine that is slow for a while hits both sides; what is reported are medians and the ratio of the medians, with
 * the tenth and ninetieth percentiles of both. Processor time of the thread is what counts, since nothing here waits.
 */
#ifndef BW_BENCH_COMPARE_H
#define BW_BENCH_COMPARE_H

#include "base/span.h"
#include "bench.h"
#include <breakwater/error.h>

#define COMPARE_ROUNDS_MAX 1000

/* Done to the same bytes as what is measured. */
enum compare_against { COMPARE_MEMCPY, COMPARE_XXH3, COMPARE_SHA256 };

struct compare {
    size_t rounds;
    bool small; /* everything a hundredth of its size: shows that it runs, measures nothing */
    FILE *json;
    void *copy; /* where memcpy copies to */
    size_t copy_bytes;
};

struct compare_case {
    const char *name;
    int (*run)(void *state, struct bw_error *err);
    void *state;
    int want;              /* what run returns; anything else ends the benchmark */
    struct bwi_span bytes; /* what it reads or writes, and what the yardstick is laid at */
    enum compare_against against;
    size_t items; /* in it: tensors, look-ups, ...; at least 1 */
};

size_t compare_size(const struct compare *c, size_t full); /* full, or a hundredth of it; at least 1 */

/* A heading: what the following figures are about. */
void compare_subject(struct compare *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void compare_run(struct compare *c, const struct compare_case *k);
void compare_fini(struct compare *c);

/* For preparing: dies with the message of err unless rc is 0. */
void compare_must(int rc, const struct bw_error *err, const char *what);

#endif
