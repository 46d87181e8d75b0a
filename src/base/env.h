/* SPDX-License-Identifier: Apache-2.0 */
/* The seam for time and randomness. Nothing above base/ and os/ reads a clock or draws a number in any other way, so a
 * test or a simulation gives its own and every run can be repeated. */
#ifndef BWI_BASE_ENV_H
#define BWI_BASE_ENV_H

#include <stdint.h>

struct bwi_env {
    uint64_t (*now_ns)(struct bwi_env *env); /* monotonic, for deadlines and periods; never 0 */
    int64_t (*unix_ms)(struct bwi_env *env); /* wall clock: shown to people, and the grace of a sweep; nothing else */
    uint64_t (*random_u64)(struct bwi_env *env);
};

/* The real one: CLOCK_MONOTONIC, CLOCK_REALTIME, getrandom. Shared, immutable. */
struct bwi_env *bwi_env_system(void);

/* A virtual one for tests and simulation: time stands still until it is moved; numbers follow from the seed
 * (splitmix64). */
struct bwi_env_virtual {
    struct bwi_env env;
    uint64_t now;      /* ns */
    int64_t unix_at_0; /* ms of the wall clock at now == 0 */
    uint64_t rng;
};
void bwi_env_virtual_init(struct bwi_env_virtual *v, uint64_t seed);

#define BWI_NS_PER_MS UINT64_C(1000000)
#define BWI_NS_PER_S  UINT64_C(1000000000)
#define BWI_NEVER     UINT64_MAX

#endif
