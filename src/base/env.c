/* SPDX-License-Identifier: Apache-2.0 */
/* Time and randomness: the real ones, and virtual ones that a test moves by hand. */
#include "base/env.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <time.h>

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t = {0};
    (void)clock_gettime(clock, &t); /* cannot fail: the clocks are there on every Linux */
    return (uint64_t)t.tv_sec * BWI_NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint64_t splitmix(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t system_now_ns(struct bwi_env *env) {
    (void)env;
    const uint64_t now = clock_ns(CLOCK_MONOTONIC);
    return now != 0 ? now : 1;
}

static int64_t system_unix_ms(struct bwi_env *env) {
    (void)env;
    return (int64_t)(clock_ns(CLOCK_REALTIME) / BWI_NS_PER_MS);
}

/* Only a seccomp filter that forbids getrandom leads here: the 16 random bytes that the kernel gives to each process,
 * mixed with both clocks. */
static uint64_t random_without_getrandom(void) {
    uint64_t state = clock_ns(CLOCK_MONOTONIC) ^ clock_ns(CLOCK_REALTIME) << 20;
    const unsigned char *seed = (const unsigned char *)(uintptr_t)getauxval(AT_RANDOM);
    for (size_t i = 0; seed != NULL && i < 16; i++) {
        state ^= (uint64_t)seed[i] << (i % 8 * 8);
        (void)splitmix(&state);
    }
    return splitmix(&state);
}

static uint64_t system_random_u64(struct bwi_env *env) {
    (void)env;
    uint64_t v = 0;
    return getrandom(&v, sizeof v, 0) == (ssize_t)sizeof v ? v : random_without_getrandom();
}

static const struct bwi_env system_env = {system_now_ns, system_unix_ms, system_random_u64};

/* Constant, so that it lies in memory that nobody can write; calls take it only for the sake of virtual ones. */
struct bwi_env *bwi_env_system(void) {
    return (struct bwi_env *)(uintptr_t)&system_env;
}

static struct bwi_env_virtual *virtual_of(struct bwi_env *env) {
    return (void *)env;
} /* its first member */

static uint64_t virtual_now_ns(struct bwi_env *env) {
    const uint64_t now = virtual_of(env)->now;
    return now != 0 ? now : 1;
}

static int64_t virtual_unix_ms(struct bwi_env *env) {
    const struct bwi_env_virtual *v = virtual_of(env);
    return v->unix_at_0 + (int64_t)(v->now / BWI_NS_PER_MS);
}

static uint64_t virtual_random_u64(struct bwi_env *env) {
    return splitmix(&virtual_of(env)->rng);
}

void bwi_env_virtual_init(struct bwi_env_virtual *v, uint64_t seed) {
    *v = (struct bwi_env_virtual){
        .env = {virtual_now_ns, virtual_unix_ms, virtual_random_u64},
        .now = BWI_NS_PER_S,
        .unix_at_0 = INT64_C(1767225600000), /* 2026-01-01T00:00:00Z */
        .rng = seed,
    };
}
