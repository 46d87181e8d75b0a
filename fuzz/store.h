/* SPDX-License-Identifier: Apache-2.0 */
/* A whole small store in memory: made by the library itself, changed as an input says, and used in every way. */
#ifndef BW_FUZZ_STORE_H
#define BW_FUZZ_STORE_H

#include "checkpoint/context.h"
#include "forge.h"

enum { STORE_ROWS = 8, STORE_COLS = 150, STORE_SAME = 1500 };

/* What is saved at a step, by two ranks: a sharded tensor of two halves, a replicated one, and a blob of each. */
struct store_state {
    uint32_t sharded[STORE_ROWS][STORE_COLS], same[STORE_SAME];
    char blob[16];
};
void store_state_of(struct store_state *s, uint64_t step);

/* Two launches: three steps, back to the second, another one, and one that only one rank has brought to its end. */
void store_make(struct forge tiers[BWI_TIERS]);

/* What is left out, so that more inputs fit into an hour. */
enum { STORE_NO_READ = 1, STORE_NO_MEND = 2, STORE_NO_SWEEP = 4, STORE_NO_JOB = 8 };

/* Opens, lists, verifies, restores, mends, sweeps it, and lets a job go on from it. `chain`: no hash was made right, so
 * that wrong data is impossible: what is read without an error must be what was saved. */
void store_use(const struct forge tiers[BWI_TIERS], bool chain, unsigned without);

#endif
