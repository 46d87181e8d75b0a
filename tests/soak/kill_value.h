/* SPDX-License-Identifier: Apache-2.0 */
/* The state that is saved: every byte of it follows from who saved it, when, and where it belongs, so that any mixture
 * of two states is seen. */
#ifndef BW_TEST_KILL_VALUE_H
#define BW_TEST_KILL_VALUE_H

#include "kill_account.h"

#define KILL_SHARE 1536u /* bytes of a rank's share of the tensor that is spread over all ranks */
#define KILL_OWN   640u  /* and of what each has for itself, and of what all hold alike */
#define KILL_BLOB  72u

struct kill_state {
    uint8_t spread[KILL_RANKS * KILL_SHARE]; /* a rank fills its part only */
    uint8_t own[KILL_OWN], same[KILL_OWN], blob[KILL_BLOB];
};

/* Fills what `rank` saves of a step in the launch of that place. */
void kill_state_fill(struct kill_state *s, const struct kill_account *a, unsigned launch, uint64_t step, unsigned rank);
/* Describes it to the library. */
int kill_state_describe(const struct kill_state *s, struct bw_save *v, unsigned rank, struct bw_error *err);
/* Reads all that all ranks saved, and compares it with what the id says it must be. Whatever is wrong is a violation.
 */
void kill_state_compare(struct kill_account *a, struct bw_restore *r, const char *id);

#endif
