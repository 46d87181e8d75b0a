/* SPDX-License-Identifier: Apache-2.0 */
/* Time and randomness, real and virtual. */
#include "base/env.h"
#include "test.h"
#include <errno.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void real_time_moves_on_and_is_never_zero(void **state) {
    (void)state;
    struct bwi_env *env = bwi_env_system();
    const uint64_t a = env->now_ns(env);
    const struct timespec nap = {0, 2000000};
    (void)nanosleep(&nap, NULL);
    const uint64_t b = env->now_ns(env);
    assert_true(a > 0);
    assert_true(b - a >= 2000000);
}

static void the_wall_clock_agrees_with_the_c_library(void **state) {
    (void)state;
    struct bwi_env *env = bwi_env_system();
    const int64_t diff = env->unix_ms(env) / 1000 - (int64_t)time(NULL);
    assert_true(diff >= -2 && diff <= 2);
}

static bool forbidden;

/* In front of the C library's. */
ssize_t getrandom(void *buf, size_t bytes, unsigned flags) {
    if (!forbidden) return (ssize_t)syscall(SYS_getrandom, buf, bytes, flags);
    errno = ENOSYS;
    return -1;
}

/* As under a filter that forbids the call: writers and launches must still differ. */
static void without_getrandom_real_numbers_differ_too(void **state) {
    (void)state;
    struct bwi_env *env = bwi_env_system();
    uint64_t seen[64];
    forbidden = true;
    for (size_t i = 0; i < 64; i++) {
        seen[i] = env->random_u64(env);
        for (size_t k = 0; k < i; k++) assert_true(seen[k] != seen[i]);
    }
    forbidden = false;
}

static void real_numbers_differ(void **state) {
    (void)state;
    struct bwi_env *env = bwi_env_system();
    const uint64_t a = env->random_u64(env);
    assert_true(a != env->random_u64(env));
}

static void virtual_time_stands_still_until_it_is_moved(void **state) {
    (void)state;
    struct bwi_env_virtual v;
    bwi_env_virtual_init(&v, 1);
    struct bwi_env *env = &v.env;
    const uint64_t now = env->now_ns(env);
    const int64_t wall = env->unix_ms(env);
    assert_true(now > 0);
    assert_true(env->now_ns(env) == now);
    v.now += 5 * BWI_NS_PER_S;
    assert_true(env->now_ns(env) == now + 5 * BWI_NS_PER_S);
    assert_true(env->unix_ms(env) == wall + 5000);
    v.now = 0;
    assert_true(env->now_ns(env) > 0);
    assert_true(env->unix_ms(env) == v.unix_at_0);
}

static void virtual_numbers_follow_from_the_seed(void **state) {
    (void)state;
    struct bwi_env_virtual v;
    bwi_env_virtual_init(&v, 0);
    /* The published first outputs of splitmix64 from state 0. */
    assert_true(v.env.random_u64(&v.env) == UINT64_C(0xe220a8397b1dcdaf));
    assert_true(v.env.random_u64(&v.env) == UINT64_C(0x6e789e6aa1b965f4));
    struct bwi_env_virtual again;
    bwi_env_virtual_init(&again, 0);
    assert_true(again.env.random_u64(&again.env) == UINT64_C(0xe220a8397b1dcdaf));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_time_moves_on_and_is_never_zero),
        cmocka_unit_test(the_wall_clock_agrees_with_the_c_library),
        cmocka_unit_test(real_numbers_differ),
        cmocka_unit_test(without_getrandom_real_numbers_differ_too),
        cmocka_unit_test(virtual_time_stands_still_until_it_is_moved),
        cmocka_unit_test(virtual_numbers_follow_from_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
