/* SPDX-License-Identifier: Apache-2.0 */
/* Checked arithmetic. Each returns false on overflow and leaves *ret untouched then. */
#ifndef BWI_BASE_CHECKED_H
#define BWI_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool bwi_add_u64(uint64_t a, uint64_t b, uint64_t *ret) {
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *ret = r;
    return true;
}

static inline bool bwi_mul_u64(uint64_t a, uint64_t b, uint64_t *ret) {
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *ret = r;
    return true;
}

static inline bool bwi_u64_to_size(uint64_t v, size_t *ret) {
    if (v > SIZE_MAX) return false;
    *ret = (size_t)v;
    return true;
}

/* Rounds up to a multiple of `to`, a power of two; the caller has excluded overflow. */
static inline uint64_t bwi_round_up(uint64_t v, uint64_t to) {
    return (v + to - 1) & ~(to - 1);
}
static inline uint64_t bwi_min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}
static inline uint64_t bwi_max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}
static inline uint64_t bwi_div_ceil(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0);
}

#endif
