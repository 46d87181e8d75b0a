/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of an experiment: ranks of a launch, and tools beside them. */
#ifndef BW_TEST_KILL_JOB_H
#define BW_TEST_KILL_JOB_H

#include "kill_account.h"

struct kill_part {
    struct kill_account *account;
    unsigned launch; /* its place */
    unsigned rank;
    uint32_t keep_last; /* a prune's; 0: it only sweeps */
    atomic_int result;
};

/* Opens, compares what it goes on from, saves, closes. Each takes a struct kill_part; 0: all that it did went well. */
int kill_rank_main(void *arg);
/* Prunes, or drains, again and again until it is told to stop. */
int kill_prune_main(void *arg);
int kill_drain_main(void *arg);

/* In this process the clock runs fast, and the date is that of this launch. */
void kill_enter(const struct kill_part *p);

struct bw_catalog *kill_catalog(const struct kill_account *a, struct bw_error *err);

#endif
