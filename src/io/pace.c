/* SPDX-License-Identifier: Apache-2.0 */
/* Pacing by the generic cell rate algorithm: one number says how far the bytes that were let through have run ahead of
 * the rate. Whatever the sizes, no more than burst + rate * t bytes go in any time t; what was not used in the past
 * counts for the burst only. */
#include "io/pace.h"

#include <stdbool.h>

__extension__ typedef unsigned __int128 wide; /* bytes * 10^9 does not fit 64 bits from 18 GB on */

static uint64_t add_saturating(uint64_t a, uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* The time that `bytes` take at the rate. */
static uint64_t time_ns(const struct bwi_pace *p, uint64_t bytes, bool round_up) {
    wide ns = ((wide)bytes * 1000000000u + (round_up ? p->rate_bytes_per_s - 1 : 0)) / p->rate_bytes_per_s;
    return ns > UINT64_MAX ? UINT64_MAX : (uint64_t)ns;
}

void bwi_pace_init(struct bwi_pace *p, uint64_t rate_bytes_per_s, uint64_t burst_bytes) {
    *p = (struct bwi_pace){.rate_bytes_per_s = rate_bytes_per_s, .burst_bytes = burst_bytes};
}

/* Both roundings are towards waiting, so that many small takes do not get more through than one large one. */
uint64_t bwi_pace_take(struct bwi_pace *p, uint64_t now_ns, uint64_t bytes) {
    if (p->rate_bytes_per_s == 0) return now_ns;
    uint64_t from_ns = p->tat_ns > now_ns ? p->tat_ns : now_ns;
    p->tat_ns = add_saturating(from_ns, time_ns(p, bytes, true));
    uint64_t burst_ns = time_ns(p, p->burst_bytes, false);
    uint64_t at_ns = p->tat_ns > burst_ns ? p->tat_ns - burst_ns : 0;
    return at_ns > now_ns ? at_ns : now_ns;
}
