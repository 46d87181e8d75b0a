/* SPDX-License-Identifier: Apache-2.0 */
/* A remote tier that stops to answer, at one moment of a drain or another, and a job that goes on: what it saves is
 * captured and local as before. The remote is a mounted file system (sim/forgetful.h) that stands still. */
#include "forgetful.h"
#include "job.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define STATE (16 * MIB) /* more than the kernel hands over at once to such a file system without waiting */
#define SOON  UINT64_C(20000)
#define HUNG  1500u /* until most of what a job asks its remote for from time to time hangs there, too */

enum flag { COMMITTED, AIMED, ENDED, WORKS };

struct stage {
    struct place p;
    struct board *board;
    struct forgetful *disk;
};

static bool is_local_soon(struct bw_checkpointer *ck, uint64_t step, void *m) {
    struct bw_save *v = begin_filled(ck, step, m, STATE);
    const bool captured = bw_save_wait(v, BW_CAPTURED, SOON, NULL) == 0;
    return captured && bw_save_wait(v, BW_LOCAL, SOON, NULL) == 0;
}

/* With as many workers as a machine of few processors gets. It does not end: what hangs could not. */
static int job(void *arg, unsigned i) {
    struct stage *s = arg;
    struct bw_options o = options_of(&s->p, "one", 0, 1);
    void *m = malloc(STATE);
    (void)i;
    o.io_threads = 4;
    o.saves_in_flight_max = 8;
    struct bw_checkpointer *ck = open_with(&o);
    save_filled(ck, 1, STATE);
    raise_flag(&s->board->status[COMMITTED]);
    await_flag(&s->board->status[AIMED]);
    bool works = is_local_soon(ck, 2, m);
    sleep_ms(HUNG);
    for (uint64_t step = 3; step <= 5 && works; step++) works = is_local_soon(ck, step, m);
    if (works) raise_flag(&s->board->status[WORKS]);
    raise_flag(&s->board->status[ENDED]);
    (void)pause();
    return 0;
}

/* The disk stands still before the n-th change from then on. */
static void at_change(uint64_t n) {
    struct stage s = {.board = board_new()};
    place_make(&s.p);
    (void)snprintf(s.p.remote, sizeof s.p.remote, "%s", test_mkdir());
    s.disk = forgetful_start(s.p.remote);
    assert_non_null(s.disk);
    const pid_t pid = spawn(job, &s, 0);
    await_flag(&s.board->status[COMMITTED]);
    forgetful_aim(s.disk, "", n);
    raise_flag(&s.board->status[AIMED]);
    for (unsigned ms = 0; ms < 2 * WAIT_MS && atomic_load(&s.board->status[ENDED]) == 0; ms++) sleep_ms(1);
    const bool still = forgetful_stands_still(s.disk), works = atomic_load(&s.board->status[WORKS]) != 0;
    (void)kill(pid, SIGKILL);
    (void)forgetful_go_on(s.disk);
    assert_int_equal(reap(pid), -SIGKILL);
    forgetful_stop(s.disk);
    test_rmdir(s.p.remote);
    place_drop(&s.p);
    board_free(s.board);
    assert_true(still);
    assert_true(works);
}

static void while_a_remote_hangs_that_takes_no_data_saves_are_captured_and_local(void **state) {
    (void)state;
    at_change(12);
}

static void while_a_remote_hangs_that_names_nothing_saves_are_captured_and_local(void **state) {
    (void)state;
    at_change(40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(while_a_remote_hangs_that_takes_no_data_saves_are_captured_and_local),
        cmocka_unit_test(while_a_remote_hangs_that_names_nothing_saves_are_captured_and_local),
    };
    if (!forgetful_is_possible()) {
        printf("no FUSE here: not tried\n");
        return 77;
    }
    return run_cases(tests);
}
