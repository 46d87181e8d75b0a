/* SPDX-License-Identifier: Apache-2.0 */
/* A process in which time runs faster, so that the library's pauses and deadlines cost a fraction of what they say; and
 * in which memory is touched only as it is used, since most of it never is. The library finds these functions of the
 * program's in place of the C library's. */
#ifndef BW_TEST_KILL_CLOCK_H
#define BW_TEST_KILL_CLOCK_H

/* From here on this process's clock runs `times` as fast: its monotonic time is the machine's, that many times over, in
 * all processes alike. 1: as it always does. */
void kill_clock_speed(unsigned times);

#endif
