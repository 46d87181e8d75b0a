/* SPDX-License-Identifier: Apache-2.0 */
/* Who may decide: several launches and jobs at one run, whatever the timing; going back, starting afresh, taking over,
 * and ranks that are alone. */
#include "job.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATE (2 * MIB)

struct scene {
    struct place p;
    struct board *board;
    unsigned ms; /* of the timing that is tried */
};

#define BALLAST (16 * MIB) /* more than a pace lets through at once */

static void scene_make(struct scene *s) {
    place_make(&s->p);
    s->board = board_new();
}

static void scene_drop(struct scene *s) {
    board_free(s->board);
    place_drop(&s->p);
}

/* A launch on a node of its own. */
static int try_open(struct scene *s, const char *job, const char *launch, struct bw_checkpointer **ret,
                    struct bw_error *err) {
    struct bw_options o = options_of(&s->p, launch, 0, 1);
    const char *local = path_in(s->p.root, "local-%s", launch);
    o.job = job;
    o.local_url = local;
    return bw_checkpointer_open(&o, ret, err);
}

static struct bw_checkpointer *open_as(struct scene *s, const char *job, const char *launch) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    must_ok(try_open(s, job, launch, &ck, &err), &err);
    return ck;
}

/* --- two launches of one job ---- */

static void the_older_launch_of_a_job_is_told_to_restart(void **state) {
    (void)state;
    struct scene s;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *v = NULL;
    void *m = malloc(STATE);
    scene_make(&s);
    struct bw_checkpointer *older = open_as(&s, "job", "one");
    save_filled(older, 1, STATE);
    struct bw_checkpointer *newer = open_as(&s, "job", "two");
    must(resumed_of(newer).step == 1 && resumed_of(newer).committed == 1);
    must_eq(resumed_of(newer).attempt, resumed_of(older).attempt + 1);
    /* It may not have heard of it yet; then its save ends with the same. */
    int rc = bw_save_begin(older, 2, &v, &err);
    if (rc == 0) {
        add_bytes(v, "w", m, STATE);
        rc = bw_save_start(v, &err); /* which may have heard of the other one as well */
        if (rc == 0) rc = bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err);
        bw_save_release(v);
    }
    must_be(rc, BW_E_LAUNCH_LOST, &err, "two", "the older launch", __FILE__, __LINE__);
    must_fail(bw_save_begin(older, 3, &v, &err), BW_E_LAUNCH_LOST, &err, "two");
    save_filled(newer, 2, STATE);
    close_ok(newer);
    (void)bw_checkpointer_close(older, WAIT_MS, NULL);
    check_bytes(&s.p, 2, STATE, 2);
    must_eq(history_of(&s.p).commits, 2);
    free(m);
    scene_drop(&s);
}

static int racing_launch(void *arg, unsigned i) {
    struct scene *s = arg;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    char launch[32];
    (void)snprintf(launch, sizeof launch, "race-%u", i);
    meet(s->board, 0, 4);
    const int opened = try_open(s, "job", launch, &ck, &err);
    must(opened == 0 || opened == BW_E_LAUNCH_LOST);
    meet(s->board, 1, 4);
    if (opened < 0) return 0;
    void *m = malloc(STATE);
    struct bw_save *v = NULL;
    atomic_store(&s->board->value[i], resumed_of(ck).attempt);
    int rc = bw_save_begin(ck, 7, &v, &err);
    if (rc == 0) {
        fill(m, STATE, i);
        add_bytes(v, "w", m, STATE);
        rc = bw_save_start(v, &err); /* which may have heard of the other one as well */
        if (rc == 0) rc = bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err);
        bw_save_release(v);
    }
    must(rc == 0 || rc == BW_E_LAUNCH_LOST);
    if (rc == 0) atomic_store(&s->board->status[i], 1);
    (void)bw_checkpointer_close(ck, WAIT_MS, NULL);
    free(m);
    return 0;
}

static void of_launches_that_start_at_once_one_commits(void **state) {
    (void)state;
    for (unsigned round = 0; round < FULL_OR(4, 2); round++) {
        struct scene s;
        uint64_t attempt = 0;
        unsigned winner = 0, winners = 0;
        scene_make(&s);
        run_ranks(racing_launch, &s, 4);
        for (unsigned i = 0; i < 4; i++) {
            const uint64_t a = atomic_load(&s.board->value[i]);
            winners += (unsigned)atomic_load(&s.board->status[i]);
            if (a > attempt) winner = i;
            attempt = a > attempt ? a : attempt;
        }
        must_eq(winners, 1);
        must_eq(atomic_load(&s.board->status[winner]), 1);
        must_eq(history_of(&s.p).commits, 1);
        check_bytes(&s.p, 7, STATE, winner);
        scene_drop(&s);
    }
}

/* --- two jobs ---- */

#define OTHER 1002 /* the seed of what the older job has in step 2 */

/* Goes as far as LOCAL, is frozen there by its parent, and finds out afterwards. */
static int frozen_job(void *arg, unsigned slow) {
    struct scene *s = arg;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    void *m = malloc(STATE), *ballast = calloc(1, BALLAST);
    struct bw_options o = options_of(&s->p, "frozen", 0, 1);
    o.job = "older";
    const char *local = path_in(s->p.root, "local-frozen");
    o.local_url = local;
    if (slow) o.drain_bytes_per_s = 4 * MIB; /* seconds from LOCAL to COMMITTED */
    must_ok(bw_checkpointer_open(&o, &ck, &err), &err);
    save_filled(ck, 1, STATE);
    struct bw_save *v = begin(ck, 2);
    fill(m, STATE, OTHER);
    add_bytes(v, "w", m, STATE);
    if (slow) add_bytes(v, "ballast", ballast, BALLAST);
    start(v);
    wait_for(v, BW_LOCAL);
    struct bw_save_stats stats;
    bw_save_stats(v, &stats);
    (void)snprintf(s->board->text[0], sizeof s->board->text[0], "%s", stats.id);
    raise_flag(&s->board->status[0]);
    const int rc = bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err);
    atomic_store(&s->board->status[1], rc);
    bw_save_release(v);
    struct bw_save *after = NULL;
    if (rc < 0) must_fail(bw_save_begin(ck, 3, &after, &err), BW_E_SUPERSEDED, &err, "newer");
    (void)bw_checkpointer_close(ck, WAIT_MS, NULL);
    free(ballast);
    free(m);
    return 0;
}

static void freeze_between_local_and_committed(struct scene *s, bool slow, unsigned ms) {
    const pid_t pid = spawn(frozen_job, s, slow);
    await_flag(&s->board->status[0]);
    sleep_ms(ms);
    (void)kill(pid, SIGSTOP);
    struct bw_checkpointer *newer = open_as(s, "newer", "second");
    const struct bw_resumed from = resumed_of(newer);
    must(from.from_checkpoint == 1);
    save_filled(newer, from.step + 1, STATE);
    (void)kill(pid, SIGCONT);
    must_eq(reap(pid), 0);
    save_filled(newer, from.step + 2, STATE);
    close_ok(newer);
    check_bytes(&s->p, from.step, STATE, from.step == 2 ? OTHER : from.step);
    check_bytes(&s->p, from.step + 1, STATE, from.step + 1); /* the same step with other data, if the older is late */
    check_bytes(&s->p, from.step + 2, STATE, from.step + 2);
    /* The older job has committed before the newer one registered, or never. */
    const int rc = atomic_load(&s->board->status[1]);
    const uint32_t kept = state_of(&s->p, s->board->text[0]);
    must(rc == 0 || rc == BW_E_SUPERSEDED);
    must_eq(rc == 0, kept == BW_CKPT_LIVE);
    if (slow) must_eq(rc, BW_E_SUPERSEDED);
}

static void a_job_frozen_before_its_commit_is_superseded(void **state) {
    (void)state;
    struct scene s;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    scene_make(&s);
    freeze_between_local_and_committed(&s, true, 50);
    /* Its restarts are refused, until somebody asks for it by a label. */
    must_fail(try_open(&s, "older", "again", &ck, &err), BW_E_SUPERSEDED, &err, "newer");
    must_eq(bw_status_exit_code(BW_E_SUPERSEDED), 5);
    struct bw_options o = options_of(&s.p, "taken", 0, 1);
    o.job = "older";
    o.resume = BW_RESUME_TAKEOVER;
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_REFUSED, &err, "label");
    o.label = "give-it-back";
    ck = open_with(&o);
    must_eq(resumed_of(ck).step, 3); /* of the newer job */
    close_ok(ck);
    must_fail(try_open(&s, "newer", "newer-again", &ck, &err), BW_E_SUPERSEDED, &err, "older");
    /* Its label used again means the default: and a superseded job is refused. */
    o.job = "newer";
    o.launch = "taken-again";
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_SUPERSEDED, &err, "older");
    scene_drop(&s);
}

static void whatever_the_timing_a_job_commits_before_the_next_one_or_never(void **state) {
    (void)state;
    for (unsigned ms = 0; ms < FULL_OR(48, 120); ms += FULL_OR(4, 40)) {
        struct scene s;
        scene_make(&s);
        freeze_between_local_and_committed(&s, false, ms);
        scene_drop(&s);
    }
}

/* --- launchers ---- */

static int trainer(void *arg, unsigned i) {
    struct scene *s = arg;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    char launch[48], job[16];
    (void)snprintf(job, sizeof job, "job-%u", i / 1000);
    (void)snprintf(launch, sizeof launch, "%s-%u", job, i % 1000);
    int rc = try_open(s, job, launch, &ck, &err);
    void *m = malloc(STATE);
    for (uint64_t step = rc == 0 ? resumed_of(ck).step + 1 : 0; rc == 0 && atomic_load(&s->board->status[9]) == 0;
         step++) {
        struct bw_save *v = NULL;
        rc = bw_save_begin(ck, step, &v, &err);
        if (rc < 0) break;
        fill(m, STATE, step);
        add_bytes(v, "w", m, STATE);
        rc = bw_save_start(v, &err); /* which may have heard of the other one as well */
        if (rc == 0) rc = bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err);
        bw_save_release(v);
    }
    free(m);
    const uint64_t began = clock_ms();
    (void)bw_checkpointer_close(ck, 1000, NULL);
    must(clock_ms() - began < FULL_OR(5000, 20000)); /* nothing was left to wait for */
    return bw_status_exit_code(rc);
}

/* Restarts whatever fails, unless the exit code says that it is final. */
static int launcher(void *arg, unsigned i) {
    struct scene *s = arg;
    unsigned starts = 0;
    sleep_ms(i * s->ms);
    while (starts < 100 && atomic_load(&s->board->status[9]) == 0) {
        atomic_store(&s->board->value[i], starts + 1);
        const int code = reap(spawn(trainer, s, i * 1000 + starts++));
        if (code == 0) break;
        sleep_ms(5);
    }
    return 0;
}

static uint64_t starts_of(const struct scene *s) {
    return atomic_load(&s->board->value[0]) + atomic_load(&s->board->value[1]);
}

static void two_launchers_that_restart_on_failure_never_alternate(void **state) {
    (void)state;
    static const unsigned apart[] = {0, 10, 300};
    for (size_t k = 0; k < 3; k++) {
        struct scene s;
        scene_make(&s);
        s.ms = apart[k];
        const pid_t first = spawn(launcher, &s, 0), second = spawn(launcher, &s, 1);
        sleep_ms(FULL_OR(2500, 5000));
        for (int i = 0; i < 200 && (starts_of(&s) <= 2 || history_of(&s.p).commits == 0); i++) sleep_ms(100);
        raise_flag(&s.board->status[9]);
        must_eq(reap(first), 0);
        must_eq(reap(second), 0);
        const struct history_facts h = history_of(&s.p);
        must(h.commits > 0);
        must(h.changes_of_job <= 1);
        must(h.registers <= 4);
        must(starts_of(&s) > 2); /* one of them did try again */
        scene_drop(&s);
    }
}

/* --- from where ---- */

static struct bw_checkpointer *resume_with(struct scene *s, const char *launch, uint32_t how, uint64_t step,
                                           const char *label) {
    struct bw_options o = options_of(&s->p, launch, 0, 1);
    o.resume = how;
    o.resume_step = step;
    o.label = label;
    return open_with(&o);
}

static void a_fresh_start_needs_a_label_that_works_once(void **state) {
    (void)state;
    struct scene s;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    scene_make(&s);
    ck = open_alone(&s.p, "one");
    save_filled(ck, 1, STATE);
    save_filled(ck, 2, STATE);
    close_ok(ck);
    struct bw_options o = options_of(&s.p, "two", 0, 1);
    o.resume = BW_RESUME_FRESH;
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_REFUSED, &err, "label");
    o.label = "";
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_REFUSED, &err, "label");
    o.label = "a/b";
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_INVALID, &err, "label");
    ck = resume_with(&s, "three", BW_RESUME_FRESH, 0, "afresh");
    must_eq(resumed_of(ck).from_checkpoint, 0);
    must_eq(history_of(&s.p).live, 0);
    save_filled(ck, 1, STATE);
    close_ok(ck);
    ck = resume_with(&s, "four", BW_RESUME_FRESH, 0, "afresh"); /* the launcher repeats its command line */
    must(resumed_of(ck).from_checkpoint == 1 && resumed_of(ck).step == 1);
    must_eq(resumed_of(ck).attempt, 3);
    close_ok(ck);
    check_bytes(&s.p, 1, STATE, 1);
    scene_drop(&s);
}

static void a_rollback_shelves_what_is_newer_once(void **state) {
    (void)state;
    struct scene s;
    struct bw_error err = BW_ERROR_INIT;
    scene_make(&s);
    struct bw_checkpointer *ck = open_alone(&s.p, "one");
    for (uint64_t step = 1; step <= 4; step++) save_filled(ck, step, STATE);
    close_ok(ck);
    struct bw_options o = options_of(&s.p, "none", 0, 1);
    o.resume = BW_RESUME_ROLLBACK;
    o.resume_step = 9;
    o.label = "to-nine";
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_NOTFOUND, &err, "step 9");
    ck = resume_with(&s, "two", BW_RESUME_ROLLBACK, 2, "to-two");
    must(resumed_of(ck).step == 2 && resumed_of(ck).committed == 1);
    must_eq(history_of(&s.p).live, 2);
    save_filled(ck, 3, STATE);
    save_filled(ck, 5, STATE);
    close_ok(ck);
    ck = resume_with(&s, "three", BW_RESUME_ROLLBACK, 2, "to-two");
    must_eq(resumed_of(ck).step, 5);
    close_ok(ck);
    must_eq(history_of(&s.p).live, 4);
    /* What was shelved can be had back, by name of its step, where no live one has it. */
    ck = resume_with(&s, "four", BW_RESUME_ROLLBACK, 4, "to-four");
    must_eq(resumed_of(ck).step, 4);
    close_ok(ck);
    must_eq(history_of(&s.p).live, 1);
    scene_drop(&s);
}

/* --- ranks that are alone ---- */

static int rank_of_two(void *arg, unsigned rank) {
    struct scene *s = arg;
    struct bw_options o = options_of(&s->p, "pair", rank, 2);
    struct bw_checkpointer *ck = open_with(&o);
    meet(s->board, 0, 2);
    if (rank == 1) raise_flag(&s->board->status[0]);
    if (rank == 0) await_flag(&s->board->status[1]);
    if (rank == 0) close_ok(ck);
    if (rank == 1)
        for (;;) sleep_ms(1000); /* until it is killed */
    return 0;
}

static void a_rank_that_is_restarted_alone_is_not_a_member(void **state) {
    (void)state;
    struct scene s;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    scene_make(&s);
    const pid_t zero = spawn(rank_of_two, &s, 0), one = spawn(rank_of_two, &s, 1);
    await_flag(&s.board->status[0]);
    (void)kill(one, SIGKILL);
    must_eq(reap(one), -SIGKILL);
    struct bw_options o = options_of(&s.p, "pair", 1, 2);
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_NOT_MEMBER, &err, "restart all ranks");
    o.rank = 0;
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_NOT_MEMBER, &err, "pair");
    raise_flag(&s.board->status[1]);
    must_eq(reap(zero), 0);
    /* Later, under a newer launch, the old id is no good either. */
    ck = open_alone(&s.p, "alone");
    o.rank = 0;
    struct bw_checkpointer *old = NULL;
    const int rc = bw_checkpointer_open(&o, &old, &err);
    must(rc == BW_E_LAUNCH_LOST || rc == BW_E_NOT_MEMBER);
    must(strstr(err.message, "pair") != NULL);
    close_ok(ck);
    scene_drop(&s);
}

static int early_rank(void *arg, unsigned rank) {
    struct scene *s = arg;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    struct bw_options o = options_of(&s->p, "early", rank, 2);
    o.open_timeout_ms = FULL_OR(1500, 6000);
    const int rc = bw_checkpointer_open(&o, &ck, &err);
    must(rc == BW_E_TIMEOUT || rc == BW_E_NOT_MEMBER);
    atomic_store(&s->board->status[rank], rc);
    return 0;
}

static void a_second_start_of_a_rank_is_not_a_member(void **state) {
    (void)state;
    struct scene s;
    scene_make(&s);
    const pid_t one = spawn(early_rank, &s, 1);
    sleep_ms(FULL_OR(400, 3000));
    const pid_t two = spawn(early_rank, &s, 1);
    must_eq(reap(two), 0);
    must_eq(atomic_load(&s.board->status[1]), BW_E_NOT_MEMBER);
    must_eq(reap(one), 0);
    must_eq(atomic_load(&s.board->status[1]), BW_E_TIMEOUT);
    scene_drop(&s);
}

static int waiting_rank(void *arg, unsigned i) {
    struct scene *s = arg;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    const uint32_t rank = i == 0 ? 0 : 2;
    struct bw_options o = options_of(&s->p, "missing", rank, 4);
    o.open_timeout_ms = 1500;
    const uint64_t began = clock_ms();
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_TIMEOUT, &err,
              rank == 0 ? "only 2 of 4 ranks of launch \"missing\" have arrived; missing: 1, 3"
                        : "launch \"missing\""); /* rank 0's refusal, or the deadline that both have */
    must(clock_ms() - began >= 1400 && clock_ms() - began < FULL_OR(6000, 30000));
    return 0;
}

static void ranks_that_are_missing_are_named(void **state) {
    (void)state;
    struct scene s;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    scene_make(&s);
    run_ranks(waiting_rank, &s, 2);
    struct bw_catalog *c = catalog_of(&s.p);
    must_fail(bw_catalog_history(c, RUN, &list, &err), BW_E_NOTFOUND, &err, RUN); /* nothing was registered */
    bw_catalog_close(c);
    close_ok(open_alone(&s.p, "later"));
    scene_drop(&s);
}

static int hanging_rank(void *arg, unsigned rank) {
    struct scene *s = arg;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_options o = options_of(&s->p, "hang", rank, 2);
    struct bw_checkpointer *ck = open_with(&o);
    if (rank == 0) {
        void *m = malloc(STATE);
        struct bw_save *v = begin_filled(ck, 20, m, STATE);
        wait_for(v, BW_REMOTE);
        must_fail(bw_save_wait(v, BW_COMMITTED, 3000, &err), BW_E_TIMEOUT, &err,
                  "is remote, not yet committed, and not complete for want of rank 1; it goes on");
        bw_save_release(v);
        must_fail(bw_checkpointer_close(ck, 500, &err), BW_E_TIMEOUT, &err,
                  "step 20 is remote, and not complete for want of rank 1; it is left for the next launch");
        free(m);
    }
    meet(s->board, 0, 2); /* until then rank 1 does nothing at all */
    if (rank == 1) close_ok(ck);
    return 0;
}

static void a_rank_that_hangs_is_named_by_waits_and_by_the_close(void **state) {
    (void)state;
    struct scene s;
    scene_make(&s);
    run_ranks(hanging_rank, &s, 2);
    struct bw_checkpointer *next = open_alone(&s.p, "next");
    must(!resumed_of(next).from_checkpoint);
    save_filled(next, 30, STATE);
    close_ok(next);
    scene_drop(&s);
}

struct other_world {
    struct scene s;
    uint32_t world[2];
    const char *job[2], *part;
};

static int disagreeing_rank(void *arg, unsigned rank) {
    struct other_world *w = arg;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    struct bw_options o = options_of(&w->s.p, "disagree", rank, w->world[rank]);
    o.job = w->job[rank];
    o.open_timeout_ms = 3000;
    const int rc = bw_checkpointer_open(&o, &ck, &err);
    if (rank == 0) must_be(rc, BW_E_INVALID, &err, w->part, "rank 0 names it", __FILE__, __LINE__);
    if (rank == 1) must(rc == BW_E_INVALID || rc == BW_E_TIMEOUT);
    return 0;
}

static void ranks_that_disagree_are_told_so(void **state) {
    (void)state;
    struct other_world cases[] = {
        {.world = {2, 3}, .job = {"job", "job"}, .part = "rank 1 was started with world size 3, rank 0 with 2"},
        {.world = {2, 2}, .job = {"job", "joke"}, .part = "rank 1 was started as job \"joke\", rank 0 as \"job\""},
    };
    for (size_t i = 0; i < 2; i++) {
        scene_make(&cases[i].s);
        run_ranks(disagreeing_rank, &cases[i], 2);
        scene_drop(&cases[i].s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_older_launch_of_a_job_is_told_to_restart),
        cmocka_unit_test(of_launches_that_start_at_once_one_commits),
        cmocka_unit_test(a_job_frozen_before_its_commit_is_superseded),
        cmocka_unit_test(whatever_the_timing_a_job_commits_before_the_next_one_or_never),
        cmocka_unit_test(two_launchers_that_restart_on_failure_never_alternate),
        cmocka_unit_test(a_fresh_start_needs_a_label_that_works_once),
        cmocka_unit_test(a_rollback_shelves_what_is_newer_once),
        cmocka_unit_test(a_rank_that_is_restarted_alone_is_not_a_member),
        cmocka_unit_test(a_second_start_of_a_rank_is_not_a_member),
        cmocka_unit_test(ranks_that_are_missing_are_named),
        cmocka_unit_test(a_rank_that_hangs_is_named_by_waits_and_by_the_close),
        cmocka_unit_test(ranks_that_disagree_are_told_so),
    };
    return run_cases(tests);
}
