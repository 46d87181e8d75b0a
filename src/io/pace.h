/* SPDX-License-Identifier: Apache-2.0 */
/* Pacing: a token bucket that says when the next n bytes may go. Pure: time comes in, a time comes out. */
#ifndef BWI_IO_PACE_H
#define BWI_IO_PACE_H

#include <stdint.h>

struct bwi_pace {
    uint64_t rate_bytes_per_s; /* 0: unlimited */
    uint64_t burst_bytes;
    uint64_t tat_ns; /* theoretical arrival time of the next byte */
};
void bwi_pace_init(struct bwi_pace *p, uint64_t rate_bytes_per_s, uint64_t burst_bytes);
/* Takes n bytes and returns the time at which they may be sent: now_ns or later. */
uint64_t bwi_pace_take(struct bwi_pace *p, uint64_t now_ns, uint64_t bytes);

#endif
