/* SPDX-License-Identifier: Apache-2.0 */
/* A histogram of durations or sizes: log-linear buckets (16 per power of two, so a quantile is off by at most 6.25 %),
 * exact count, sum, minimum and maximum. Fixed size, no allocation, one writer at a time. */
#ifndef BWI_BASE_STATS_H
#define BWI_BASE_STATS_H

#include <stdint.h>

#define BWI_HIST_SUB     16
#define BWI_HIST_BUCKETS (61 * BWI_HIST_SUB)

struct bwi_hist {
    uint64_t count, sum, min, max;
    uint32_t bucket[BWI_HIST_BUCKETS];
};

void bwi_hist_add(struct bwi_hist *h, uint64_t value);
/* The smallest value v such that at least `q` (0..1) of all values are <= v, rounded up to its bucket's upper end and
 * clamped to [min, max]. 0 when empty. */
uint64_t bwi_hist_quantile(const struct bwi_hist *h, double q);
void bwi_hist_merge(struct bwi_hist *to, const struct bwi_hist *from);

#endif
