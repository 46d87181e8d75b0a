/* SPDX-License-Identifier: Apache-2.0 */
/* The histogram: values below 16 have a bucket each; above, every power of two is split into 16 equal ones. */
#include "base/stats.h"
#include <stddef.h>

#define SUB_BITS 4 /* log2 of BWI_HIST_SUB */

static unsigned exponent_of(uint64_t value) {
    return 63u - (unsigned)__builtin_clzll(value);
}

static size_t bucket_of(uint64_t value) {
    if (value < BWI_HIST_SUB) return (size_t)value;
    const unsigned e = exponent_of(value);
    return (size_t)(e - SUB_BITS + 1) * BWI_HIST_SUB + (size_t)(value >> (e - SUB_BITS) & (BWI_HIST_SUB - 1));
}

/* The greatest value of a bucket. */
static uint64_t bucket_end(size_t bucket) {
    if (bucket < BWI_HIST_SUB) return bucket;
    const unsigned shift = (unsigned)(bucket / BWI_HIST_SUB) - 1;
    const uint64_t start = (uint64_t)(BWI_HIST_SUB + bucket % BWI_HIST_SUB) << shift;
    return start + ((UINT64_C(1) << shift) - 1);
}

/* Stays at the top instead of starting over: a figure that is too small would be believed. */
static uint64_t add_up(uint64_t a, uint64_t b) {
    uint64_t r;
    return __builtin_add_overflow(a, b, &r) ? UINT64_MAX : r;
}

static uint32_t add_up_u32(uint32_t a, uint32_t b) {
    uint32_t r;
    return __builtin_add_overflow(a, b, &r) ? UINT32_MAX : r;
}

void bwi_hist_add(struct bwi_hist *h, uint64_t value) {
    if (h->count == 0 || value < h->min) h->min = value;
    if (h->count == 0 || value > h->max) h->max = value;
    h->count++;
    h->sum = add_up(h->sum, value);
    const size_t at = bucket_of(value);
    h->bucket[at] = add_up_u32(h->bucket[at], 1);
}

uint64_t bwi_hist_quantile(const struct bwi_hist *h, double q) {
    if (h->count == 0) return 0;
    if (!(q > 0)) return h->min;
    if (q >= 1) return h->max;
    const double exact = q * (double)h->count;
    uint64_t rank = (uint64_t)exact;
    if ((double)rank < exact || rank == 0) rank++;
    uint64_t seen = 0;
    for (size_t i = 0; i < BWI_HIST_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen < rank) continue;
        const uint64_t end = bucket_end(i);
        if (end > h->max) return h->max;
        return end < h->min ? h->min : end;
    }
    return h->max;
}

void bwi_hist_merge(struct bwi_hist *to, const struct bwi_hist *from) {
    if (from->count == 0) return;
    if (to->count == 0 || from->min < to->min) to->min = from->min;
    if (to->count == 0 || from->max > to->max) to->max = from->max;
    to->count = add_up(to->count, from->count);
    to->sum = add_up(to->sum, from->sum);
    for (size_t i = 0; i < BWI_HIST_BUCKETS; i++) to->bucket[i] = add_up_u32(to->bucket[i], from->bucket[i]);
}
