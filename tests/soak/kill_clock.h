/* SPDX-License-Identifier: Apache-2.0 */
/* A process in which time runs faster, so that the library's pauses and deadlines cost a fraction of what they say; in
 * which the date may be another one; and in which memory is touched only as it is used, since most of it never is. The
 * library finds these functions of the program's in place of the C library's. */
#ifndef BW_TEST_KILL_CLOCK_H
#define BW_TEST_KILL_CLOCK_H

#include <stdint.h>

/* From here on this process's monotonic time is the machine's, `times` over, in all processes alike; and its date is so
 * much later. */
void kill_clock_set(unsigned times, int64_t later_s);

/* The machine's own time. */
uint64_t kill_clock_ms(void);

#endif
