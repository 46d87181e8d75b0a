/* SPDX-License-Identifier: Apache-2.0 */
/* The last look at a run, when nobody is at work any more. */
#ifndef BW_TEST_KILL_CHECK_H
#define BW_TEST_KILL_CHECK_H

#include "kill_job.h"

/* Takes a struct kill_part of the last launch: the history is sound, all that was told to be committed is live or was
 * retired by the rules, all live checkpoints are read and compared and verify, and after a sweep nothing is left over.
 */
int kill_check_main(void *arg);

#endif
