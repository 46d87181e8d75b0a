/* SPDX-License-Identifier: Apache-2.0 */
/* A soak: one experiment, repeated as often as somebody wants, each time from another number. Everything that a run
 * does follows from its number as far as the experiment can make it so; a run that finds a violation is repeated alone
 * with --only.
 *
 *     schedule_soak --count N [--seed S] [--jobs J] [--dir DIR] [--state FILE] [--only I] [--violations N]
 *
 * --jobs workers (default: one per CPU) are processes of their own; a run that crashes, hangs or fails an assertion
 * takes only its worker with it, counts as a violation, and its output is shown. --state keeps how far the soak has
 * come, so that one that was stopped goes on. It stops after --violations of them (20). The last line is "N runs, N
 * violations"; the exit status is 0 when there was none. */
#ifndef BW_TEST_SOAK_H
#define BW_TEST_SOAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct soak_run {
    uint64_t seed;     /* of this run alone */
    uint64_t index;    /* its place in the soak */
    bool alone;        /* --only: tell what happens, on standard output */
    const char *dir;   /* the worker's own scratch directory: empty at first, never emptied; removed at its end */
    char message[512]; /* what was violated */
};

struct soak {
    const char *name;
    const char *help;   /* lines about options of its own, which it has taken out of argv; NULL: none */
    unsigned run_s_max; /* a run that takes longer hangs, which is a violation; 0: 120 */
    /* false: a violation, with a message. May fail cmocka's assertions, too. state: of this worker, NULL at first; what
     * it keeps from one run to the next must not decide how a run ends. */
    bool (*run)(struct soak_run *r, void **state);
    void (*end)(void *state); /* of a worker; NULL allowed */
};

int soak_main(const struct soak *s, int argc, char **argv);

#endif
