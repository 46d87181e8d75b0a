/* SPDX-License-Identifier: Apache-2.0 */
/* The wall clock jumps between and during saves. This program's clock_gettime stands in front of the C library's for
 * the whole process, the library included; the monotonic clock goes on as it does. Only the history counts, and what is
 * kept by age is never given up too early by more than the clock was wrong. */
#include "job.h"
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STATE (1 * MIB + 3)
#define YEAR  (INT64_C(365) * 86400)

static atomic_llong offset_s;
static atomic_uint asked;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *ret) {
    const long rc = syscall(SYS_clock_gettime, clock, ret);
    if (rc == 0 && clock == CLOCK_REALTIME) {
        atomic_fetch_add(&asked, 1);
        ret->tv_sec += (time_t)atomic_load(&offset_s);
        if (ret->tv_sec < 0) ret->tv_sec = 0;
    }
    return (int)rc;
}

static void set_clock(int64_t offset) {
    atomic_store(&offset_s, offset);
}

static const int64_t jumps[] = {0, -3600, -10 * YEAR, 30 * YEAR, -100 * YEAR, 200 * YEAR, -1, 0};
#define JUMPS (sizeof jumps / sizeof jumps[0])

static void whatever_the_clock_says_the_newest_is_the_last_committed(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    for (unsigned i = 0; i < JUMPS; i++) {
        char launch[32];
        (void)snprintf(launch, sizeof launch, "launch-%u", i);
        set_clock(jumps[i]);
        struct bw_checkpointer *ck = open_alone(&p, launch);
        must_eq(resumed_of(ck).step, i * 2);
        save_filled(ck, i * 2 + 1, STATE);
        set_clock(-jumps[i]);
        save_filled(ck, i * 2 + 2, STATE);
        close_ok(ck);
        check_bytes(&p, UINT64_MAX, STATE, i * 2 + 2);
    }
    must(atomic_load(&asked) > 0);
    must_eq(history_of(&p).live, 2 * JUMPS);
    for (uint64_t step = 1; step <= 2 * JUMPS; step++) check_bytes(&p, step, STATE, step);
    must_be_sound(&p);
    set_clock(0);
    place_drop(&p);
}

/* A save waits by the monotonic clock: no deadline comes early or never. */
static void a_jump_during_a_save_ends_no_wait(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    place_make(&p);
    struct bw_options o = options_of(&p, "one", 0, 1);
    void *m = malloc(24 * MIB);
    o.drain_bytes_per_s = 16 * MIB;
    struct bw_checkpointer *ck = open_with(&o);
    for (uint64_t i = 0; i < JUMPS; i++) {
        struct bw_save *v = begin_filled(ck, i + 1, m, i == 0 ? 24 * MIB : STATE);
        set_clock(jumps[JUMPS - 1 - i]);
        must_ok(bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err), &err);
        bw_save_release(v);
    }
    struct bw_save *v = begin_filled(ck, 100, m, 24 * MIB);
    set_clock(-50 * YEAR);
    const uint64_t from = clock_ms();
    must_fail(bw_save_wait(v, BW_COMMITTED, 300, &err), BW_E_TIMEOUT, &err, "it goes on");
    must(clock_ms() - from >= 300 && clock_ms() - from < 20000);
    finish(v);
    close_ok(ck);
    set_clock(0);
    free(m);
    place_drop(&p);
}

static uint64_t kept_of(const struct place *p) {
    return history_of(p).live;
}

/* What was committed under a clock far behind looks old, what was under one far ahead looks young. The newest
 * saves_in_flight_max + 1 stay in any case. */
static void retention_by_age_keeps_the_newest_whatever_the_clock_says(void **state) {
    (void)state;
    for (unsigned i = 0; i < JUMPS; i++) {
        struct place p;
        place_make(&p);
        struct bw_options o = options_of(&p, "one", 0, 1);
        o.retention.keep_last = 1;
        o.retention.keep_younger_ms = UINT64_C(86400000);
        struct bw_checkpointer *ck = open_with(&o);
        for (uint64_t step = 1; step <= 6; step++) {
            set_clock(step % 2 ? jumps[i] : -jumps[i]);
            save_filled(ck, step, STATE);
        }
        close_ok(ck);
        must(kept_of(&p) >= 3);
        for (uint64_t step = 4; step <= 6; step++) check_bytes(&p, step, STATE, step);
        must_be_sound(&p);
        set_clock(0);
        place_drop(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_the_clock_says_the_newest_is_the_last_committed),
        cmocka_unit_test(a_jump_during_a_save_ends_no_wait),
        cmocka_unit_test(retention_by_age_keeps_the_newest_whatever_the_clock_says),
    };
    return run_cases(tests);
}
