/* SPDX-License-Identifier: Apache-2.0 */
/* A random number generator whose whole state is 8 bytes: a checkpoint must hold it, or a resumed run goes another way.
 */
#ifndef CHARLM_RANDOM_H
#define CHARLM_RANDOM_H

#include <stdint.h>

/* SplitMix64. */
static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* In [0, 1). */
static inline float random_unit(uint64_t *state) {
    return (float)(random_next(state) >> 40) * (1.0f / 16777216.0f);
}

/* In 0 .. n - 1. The bias of the remainder is below n / 2^64. */
static inline uint64_t random_below(uint64_t *state, uint64_t n) {
    return random_next(state) % n;
}

#endif
