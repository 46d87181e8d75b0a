/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to a process around a save: it forks, is told to end, gives a save up half described, has closed its
 * standard streams. No call hangs, nothing is torn, nothing is left running. */
#include "confine.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATE (2 * MIB + 5)

/* --- fork ---- */

struct family {
    struct place p;
    struct board *board;
    struct bw_checkpointer *ck;
    struct bw_save *begun, *started;
    struct bw_restore *restore;
    struct bw_catalog *catalog;
};

static void save_calls_are_refused(struct bw_save *v) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_tensor t = BW_TENSOR_INIT;
    const char *part = "is a child of it";
    must_fail(bw_save_tensor(v, &t, &err), BW_E_STATE, &err, part);
    must_fail(bw_save_blob(v, "blob", "x", 1, &err), BW_E_STATE, &err, part);
    must_fail(bw_save_metadata(v, "{}", &err), BW_E_STATE, &err, part);
    must_fail(bw_save_start(v, &err), BW_E_STATE, &err, part);
    must_fail(bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err), BW_E_STATE, &err, part);
    must_fail(bw_save_error(v, &err), BW_E_STATE, &err, part);
    must_fail(bw_save_cancel(v, &err), BW_E_STATE, &err, part);
    must_eq(bw_save_level(v), BW_LEVEL_NONE);
    bw_save_release(v);
}

static void restore_calls_are_refused(struct bw_restore *r) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpoint_info info;
    struct bw_tensor_info tensor;
    struct bw_slice slice = BW_SLICE_INIT;
    const char *json = NULL;
    uint64_t count = 0;
    size_t got = 0;
    const char *part = "is a child of it";
    must_fail(bw_restore_info(r, &info, &err), BW_E_STATE, &err, part);
    must_fail(bw_restore_tensor(r, "w", &tensor, &err), BW_E_STATE, &err, part);
    must_fail(bw_restore_tensor_at(r, 0, &tensor, &err), BW_E_STATE, &err, part);
    must_fail(bw_restore_check(r, NULL, 0, 0, &err), BW_E_STATE, &err, part);
    must_fail(bw_restore_read(r, &slice, 1, &err), BW_E_STATE, &err, part);
    must_fail(bw_restore_blob_count(r, &count, &err), BW_E_STATE, &err, part);
    must_fail(bw_restore_blob(r, 0, "b", NULL, 0, &got, &err), BW_E_STATE, &err, part);
    must_fail(bw_restore_metadata(r, 0, &json, &err), BW_E_STATE, &err, part);
    bw_restore_close(r);
}

static int child_of_a_trainer(void *arg, unsigned i) {
    struct family *f = arg;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *v = NULL;
    struct bw_restore *r = NULL;
    struct bw_list *list = NULL;
    struct bw_event event;
    struct bw_checkpointer_stats stats;
    char part[64];
    (void)i;
    (void)snprintf(part, sizeof part, "opened by process %d", (int)getppid());
    must_fail(bw_save_begin(f->ck, 50, &v, &err), BW_E_STATE, &err, part);
    must_fail(bw_restore_open(f->ck, &r, &err), BW_E_STATE, &err, part);
    must_fail(bw_catalog_runs(f->catalog, &list, &err), BW_E_STATE, &err, part);
    save_calls_are_refused(f->begun);
    save_calls_are_refused(f->started);
    restore_calls_are_refused(f->restore);
    must_eq(bw_checkpointer_poll(f->ck, &event), 0);
    bw_checkpointer_look(f->ck);
    bw_checkpointer_stats(f->ck, &stats);
    bw_catalog_close(f->catalog);
    must_fail(bw_checkpointer_close(f->ck, WAIT_MS, &err), BW_E_STATE, &err, part);
    if (!SANITIZED) check_bytes(&f->p, 1, STATE, 1); /* a reader of its own; ThreadSanitizer allows no threads here */
    raise_flag(&f->board->status[0]);
    await_flag(&f->board->status[1]); /* it lives on, with copies of all descriptors */
    return 0;
}

static void a_forked_child_is_refused_at_once_and_its_parent_does_not_notice(void **state) {
    (void)state;
    struct family f = {.board = board_new()};
    struct bw_error err = BW_ERROR_INIT;
    void *m = malloc(STATE), *n = malloc(STATE);
    place_make(&f.p);
    f.ck = open_alone(&f.p, "one");
    save_filled(f.ck, 1, STATE);
    close_ok(f.ck);
    f.ck = open_alone(&f.p, "two");
    f.catalog = catalog_of(&f.p);
    must_ok(bw_restore_open(f.ck, &f.restore, &err), &err);
    f.started = begin_filled(f.ck, 2, m, STATE);
    f.begun = begin(f.ck, 3);
    add_bytes(f.begun, "w", n, STATE);
    const pid_t child = spawn(child_of_a_trainer, &f, 0);
    await_flag(&f.board->status[0]);
    read_bytes(f.restore, "w", n, STATE);
    must(is_filled(n, STATE, 1));
    fill(n, STATE, 3);
    bw_restore_close(f.restore);
    start(f.begun);
    finish(f.started);
    finish(f.begun);
    bw_catalog_close(f.catalog);
    close_ok(f.ck);
    f.ck = open_alone(&f.p, "three"); /* nothing is held by the child */
    must_eq(resumed_of(f.ck).step, 3);
    save_filled(f.ck, 4, STATE);
    close_ok(f.ck);
    raise_flag(&f.board->status[1]);
    must_eq(reap(child), 0);
    must_be_sound(&f.p);
    for (uint64_t step = 1; step <= 4; step++) check_bytes(&f.p, step, STATE, step);
    board_free(f.board);
    place_drop(&f.p);
    free(m);
    free(n);
}

/* --- told to end ---- */

static volatile sig_atomic_t told;

static void on_term(int sig) {
    (void)sig;
    told = 1;
}

/* A trainer whose drain is too slow for the last save to be committed within the grace. */
static int trainer(void *arg, unsigned i) {
    struct family *f = arg;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_options o = options_of(&f->p, "one", 0, 1);
    struct sigaction act = {.sa_handler = on_term};
    void *m = malloc(32 * MIB);
    (void)i;
    must_eq(sigaction(SIGTERM, &act, NULL), 0);
    const unsigned threads = test_threads();
    o.drain_bytes_per_s = MIB;
    struct bw_checkpointer *ck = open_with(&o);
    save_filled(ck, 1, 1000);
    struct bw_save *v = begin_filled(ck, 2, m, 32 * MIB);
    wait_for(v, BW_LOCAL);
    raise_flag(&f->board->status[0]);
    while (!told) sleep_ms(1);
    const uint64_t from = clock_ms();
    must_fail(bw_checkpointer_close(ck, 3000, &err), BW_E_TIMEOUT, &err, "step 2 is local");
    must(clock_ms() - from < 5000);
    must_eq(test_threads(), threads);
    free(m);
    return 0;
}

static void a_process_told_to_end_closes_within_its_grace_and_the_next_launch_goes_on_from_there(void **state) {
    (void)state;
    struct family f = {.board = board_new()};
    place_make(&f.p);
    const pid_t pid = spawn(trainer, &f, 0);
    await_flag(&f.board->status[0]);
    must_eq(kill(pid, SIGTERM), 0);
    must_eq(reap(pid), 0);
    struct bw_checkpointer *ck = open_alone(&f.p, "two");
    must(resumed_of(ck).step == 2 && resumed_of(ck).from_checkpoint == 1);
    struct bw_error err = BW_ERROR_INIT;
    struct bw_restore *r = NULL;
    void *m = malloc(32 * MIB);
    must_ok(bw_restore_open(ck, &r, &err), &err);
    read_bytes(r, "w", m, 32 * MIB);
    must(is_filled(m, 32 * MIB, 2));
    bw_restore_close(r);
    close_ok(ck); /* brings what was local to the authority */
    check_bytes(&f.p, 2, 32 * MIB, 2);
    must_be_sound(&f.p);
    free(m);
    board_free(f.board);
    place_drop(&f.p);
}

static const int deadly[] = {SIGTERM, SIGINT, SIGHUP};

/* The same without a handler: the signal kills, also where who started the test ignores it (nohup, a shell's background
 * job). */
static int careless(void *arg, unsigned i) {
    struct family *f = arg;
    (void)signal(deadly[i], SIG_DFL);
    struct bw_checkpointer *ck = open_alone(&f->p, "one");
    void *m = malloc(STATE);
    for (uint64_t step = 1; step < UINT64_MAX; step++) {
        finish(begin_filled(ck, step, m, STATE));
        atomic_store(&f->board->value[0], step);
        raise_flag(&f->board->status[0]);
    }
    return 1;
}

static void a_signal_that_kills_leaves_what_was_committed(void **state) {
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        struct family f = {.board = board_new()};
        place_make(&f.p);
        const pid_t pid = spawn(careless, &f, i);
        await_flag(&f.board->status[0]);
        sleep_ms(20 * i);
        must_eq(kill(pid, deadly[i]), 0);
        must_eq(reap(pid), -deadly[i]);
        const uint64_t committed = atomic_load(&f.board->value[0]);
        struct bw_checkpointer *ck = open_alone(&f.p, "two");
        const uint64_t step = resumed_of(ck).step;
        must(step == committed || step == committed + 1);
        close_ok(ck);
        check_bytes(&f.p, step, STATE, step);
        must_be_sound(&f.p);
        board_free(f.board);
        place_drop(&f.p);
    }
}

/* --- a save that is given up between begin and start ---- */

static void a_save_that_is_never_started_leaves_nothing_and_the_step_may_come_again(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    void *m = malloc(STATE);
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    save_filled(ck, 1, STATE);
    const unsigned threads = test_threads();
    for (unsigned i = 0; i < 20; i++) {
        struct bw_save *v = begin(ck, 2);
        add_bytes(v, "w", m, i % 2 ? STATE : 1);
        bw_save_release(v); /* as by a destructor on the way out */
    }
    must_eq(test_threads(), threads);
    save_filled(ck, 2, STATE);
    save_filled(ck, 3, STATE);
    struct bw_save *last = begin(ck, 4);
    add_bytes(last, "w", m, STATE);
    must_fail(bw_checkpointer_close(ck, WAIT_MS, &err), BW_E_CANCELLED, &err, "before the save was started");
    must_eq(history_of(&p).commits, 3);
    check_bytes(&p, 3, STATE, 3);
    must_be_sound(&p);
    free(m);
    place_drop(&p);
}

/* --- standard streams ---- */

static int without_streams(void *arg, unsigned first) {
    struct place *p = arg;
    for (int fd = (int)first; fd <= STDERR_FILENO; fd++) (void)close(fd);
    struct bw_checkpointer *ck = open_alone(p, "one");
    void *m = malloc(STATE);
    for (uint64_t step = 1; step <= 20; step++) {
        struct bw_save *v = begin_filled(ck, step, m, STATE);
        for (unsigned i = 0; i < 200; i++) /* what a trainer prints meanwhile */
            for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) must(write(fd, "loss 0.1\n", 9) < 0);
        finish(v);
    }
    for (int fd = (int)first; fd <= STDERR_FILENO; fd++) must(fcntl(fd, F_GETFD) < 0);
    close_ok(ck);
    free(m);
    return 0;
}

static void what_a_process_without_streams_prints_lands_in_no_object(void **state) {
    (void)state;
    for (unsigned first = 0; first < 2; first++) {
        struct place p;
        place_make(&p);
        must_eq(reap(spawn(without_streams, &p, first)), 0);
        for (uint64_t step = 1; step <= 20; step++) check_bytes(&p, step, STATE, step);
        must_be_sound(&p);
        place_drop(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_child_is_refused_at_once_and_its_parent_does_not_notice),
        cmocka_unit_test(a_process_told_to_end_closes_within_its_grace_and_the_next_launch_goes_on_from_there),
        cmocka_unit_test(a_signal_that_kills_leaves_what_was_committed),
        cmocka_unit_test(a_save_that_is_never_started_leaves_nothing_and_the_step_may_come_again),
        cmocka_unit_test(what_a_process_without_streams_prints_lands_in_no_object),
    };
    return run_cases(tests);
}
