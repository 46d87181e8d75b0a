/* SPDX-License-Identifier: Apache-2.0 */
/* What lies in a tier when all is over: nothing but what is needed, and what the pages say may stay. */
#ifndef BW_TEST_KILL_TREE_H
#define BW_TEST_KILL_TREE_H

#include "kill_account.h"

#define KILL_LIVE_MAX 32u

/* The checkpoints that are live, the current launch, and its attempt. */
struct kill_needed {
    char id[KILL_LIVE_MAX][BW_ID_BYTES];
    unsigned count;
    const char *launch;
    uint32_t attempt;
    unsigned kills; /* how many processes may have left something where it stays */
};

/* Makes all that lies below a directory three days older. */
void kill_tree_age(const char *dir);
/* Whatever lies below a tier's directory and should not is a violation. */
void kill_tree_check(struct kill_account *a, const char *dir, const struct kill_needed *n);

#endif
