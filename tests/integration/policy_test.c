/* SPDX-License-Identifier: Apache-2.0 */
/* What a handle does when there is too much, too little room, or too little time: saves in flight, cancelling and
 * letting go, closing, events, quota, retention, a single tier. */
#include "job.h"
#include <fts.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define STATE (2 * MIB)
/* With the first 8 MiB a pace is not felt: ballast makes a save last. */
#define BALLAST (24 * MIB)

static unsigned char ballast[BALLAST];

static struct bw_save *begin_slow(struct bw_checkpointer *ck, uint64_t step, void *m) {
    struct bw_save *v = begin(ck, step);
    fill(m, STATE, step);
    add_bytes(v, "w", m, STATE);
    add_bytes(v, "ballast", ballast, BALLAST);
    start(v);
    return v;
}

/* A drain that takes seconds: 24 MiB at 6 MiB/s. */
static struct bw_options slow_options(const struct place *p, const char *launch) {
    struct bw_options o = options_of(p, launch, 0, 1);
    o.drain_bytes_per_s = 6 * MIB;
    o.saves_in_flight_max = 1;
    return o;
}

/* --- one save too many ---- */

static void a_save_too_many_waits_for_its_turn(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *next = NULL;
    void *m = malloc(STATE);
    place_make(&p);
    struct bw_options o = slow_options(&p, "one");
    struct bw_checkpointer *ck = open_with(&o);
    struct bw_save *v = begin_slow(ck, 1, m);
    wait_for(v, BW_LOCAL);
    must_ok(bw_save_begin(ck, 2, &next, &err), &err); /* as long as it takes */
    must_eq(bw_save_level(v), BW_COMMITTED);
    bw_save_release(v);
    add_bytes(next, "w", m, STATE);
    commit(next);
    close_ok(ck);
    free(m);
    place_drop(&p);
}

static void its_wait_has_a_deadline(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *next = NULL;
    void *m = malloc(STATE);
    place_make(&p);
    struct bw_options o = slow_options(&p, "one");
    o.busy_timeout_ms = 100;
    struct bw_checkpointer *ck = open_with(&o);
    struct bw_save *v = begin_slow(ck, 1, m);
    wait_for(v, BW_CAPTURED);
    const uint64_t began = clock_ms();
    must_fail(bw_save_begin(ck, 2, &next, &err), BW_E_BUSY, &err, "step 2");
    must(clock_ms() - began >= 90 && clock_ms() - began < FULL_OR(1500, 20000));
    finish(v);
    save_filled(ck, 2, STATE);
    close_ok(ck);
    free(m);
    place_drop(&p);
}

static void a_save_too_many_is_skipped(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *next = NULL;
    struct bw_checkpointer_stats stats;
    void *m = malloc(STATE);
    place_make(&p);
    struct bw_options o = slow_options(&p, "one");
    o.on_busy = BW_BUSY_SKIP;
    struct bw_checkpointer *ck = open_with(&o);
    struct bw_save *v = begin_slow(ck, 1, m);
    const uint64_t began = clock_ms();
    for (uint64_t step = 2; step <= 4; step++)
        must_fail(bw_save_begin(ck, step, &next, &err), BW_E_SKIPPED, &err, "skipped");
    must(clock_ms() - began < FULL_OR(1500, 20000));
    finish(v); /* the steps that were skipped do it no harm */
    must_fail(bw_save_begin(ck, 3, &next, &err), BW_E_REFUSED, &err, "step 3");
    bool begun = false;
    for (unsigned i = 0; i < 1000 && !begun; i++) { /* what is left of the skipped ones may still be told */
        const int rc = bw_save_begin(ck, 5 + i, &next, &err);
        must(rc == 0 || rc == BW_E_SKIPPED);
        begun = rc == 0;
        if (!begun) sleep_ms(10);
    }
    must(begun);
    add_bytes(next, "w", m, STATE);
    commit(next);
    for (unsigned i = 0; i < 1000; i++) { /* a save ends a moment after its commit */
        bw_checkpointer_stats(ck, &stats);
        if (stats.saves_committed == 2) break;
        sleep_ms(1);
    }
    must(stats.saves_skipped >= 3);
    must_eq(stats.saves_committed, 2);
    must_eq(stats.saves_failed, 0);
    must_eq(stats.saves_begun, 2);
    close_ok(ck);
    free(m);
    place_drop(&p);
}

static void a_save_too_many_fails(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *next = NULL;
    void *m = malloc(STATE), *m2 = malloc(STATE);
    place_make(&p);
    struct bw_options o = slow_options(&p, "one");
    o.on_busy = BW_BUSY_FAIL;
    o.saves_in_flight_max = 2;
    struct bw_checkpointer *ck = open_with(&o);
    struct bw_save *v = begin_slow(ck, 1, m), *w = begin_filled(ck, 2, m2, STATE);
    must_fail(bw_save_begin(ck, 3, &next, &err), BW_E_BUSY, &err, "in flight");
    wait_for(v, BW_COMMITTED);
    wait_for(w, BW_COMMITTED);
    bw_save_release(v);
    bw_save_release(w);
    save_filled(ck, 3, STATE);
    close_ok(ck);
    check_bytes(&p, 2, STATE, 2);
    free(m);
    free(m2);
    place_drop(&p);
}

/* --- giving up and letting go ---- */

static void a_cancelled_save_ends_and_the_next_one_works(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    place_make(&p);
    struct bw_options o = slow_options(&p, "one");
    struct bw_checkpointer *ck = open_with(&o);
    void *m = malloc(STATE);
    save_filled(ck, 1, STATE);
    struct bw_save *v = begin(ck, 2); /* before its start */
    add_bytes(v, "w", m, STATE);
    must_ok(bw_save_cancel(v, &err), &err);
    must_fail(bw_save_start(v, &err), BW_E_STATE, &err, NULL);
    must_fail(bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err), BW_E_CANCELLED, &err, "step 2");
    bw_save_release(v);
    v = begin_slow(ck, 3, m); /* while it is captured */
    must_ok(bw_save_cancel(v, &err), &err);
    memset(m, 0, STATE); /* and nobody reads it any more */
    must_fail(bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err), BW_E_CANCELLED, &err, "step 3");
    must_eq(bw_save_error(v, &err), BW_E_CANCELLED);
    bw_save_release(v);
    v = begin_slow(ck, 4, m); /* while it drains */
    wait_for(v, BW_LOCAL);
    must_ok(bw_save_cancel(v, &err), &err);
    must_fail(bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err), BW_E_CANCELLED, &err, "step 4");
    must_eq(bw_save_level(v), BW_LOCAL);
    bw_save_release(v);
    v = begin_filled(ck, 4, m, STATE); /* the same step again */
    wait_for(v, BW_COMMITTED);
    must_ok(bw_save_cancel(v, &err), &err); /* too late */
    must_eq(bw_save_level(v), BW_COMMITTED);
    must_eq(bw_save_error(v, &err), 0);
    bw_save_release(v);
    close_ok(ck); /* what was cancelled is no failure that nobody heard of */
    check_bytes(&p, 4, STATE, 4);
    must_eq(history_of(&p).live, 2);
    free(m);
    place_drop(&p);
}

static void a_save_that_was_let_go_is_committed(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    for (uint64_t step = 1; step <= 3; step++) {
        void *m = malloc(STATE);
        struct bw_save *v = begin_filled(ck, step, m, STATE);
        bw_save_release(v); /* waits for the capture */
        memset(m, 0xff, STATE);
        free(m);
    }
    close_ok(ck);
    for (uint64_t step = 1; step <= 3; step++) check_bytes(&p, step, STATE, step);
    place_drop(&p);
}

static void a_save_that_was_never_started_is_dropped(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    bw_save_release(begin(ck, 1));
    save_filled(ck, 1, STATE);
    struct bw_save *v = begin(ck, 2); /* closing drops it */
    (void)v;
    const int rc = bw_checkpointer_close(ck, WAIT_MS, &err);
    must_be(rc, BW_E_CANCELLED, &err, "before the save was started", "close", __FILE__, __LINE__);
    ck = open_alone(&p, "two");
    must_eq(resumed_of(ck).step, 1);
    close_ok(ck);
    place_drop(&p);
}

/* --- closing ---- */

static void what_is_local_at_the_deadline_is_left_for_the_next_launch(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_restore *r = NULL;
    void *m = malloc(STATE);
    place_make(&p);
    struct bw_options o = slow_options(&p, "one");
    o.drain_bytes_per_s = MIB; /* far too slow for the deadline */
    struct bw_checkpointer *ck = open_with(&o);
    save_filled(ck, 1, STATE);
    struct bw_save *v = begin_slow(ck, 2, m);
    wait_for(v, BW_LOCAL);
    const uint64_t began = clock_ms();
    must_fail(bw_checkpointer_close(ck, 200, &err), BW_E_TIMEOUT, &err, "step 2");
    must(strstr(err.message, "left for the next launch") != NULL);
    must(clock_ms() - began < FULL_OR(3000, 20000));
    o = options_of(&p, "two", 0, 1);
    ck = open_with(&o);
    must(resumed_of(ck).from_checkpoint == 1 && resumed_of(ck).step == 2 && resumed_of(ck).committed == 0);
    must(strstr(resumed_of(ck).reason, "step 2") != NULL);
    char id[BW_ID_BYTES];
    (void)snprintf(id, sizeof id, "%s", resumed_of(ck).id);
    must_ok(bw_restore_open(ck, &r, &err), &err);
    read_bytes(r, "w", m, STATE);
    must(is_filled(m, STATE, 2));
    must_fail(bw_checkpointer_close(ck, 0, &err), BW_E_STATE, &err, "restore");
    bw_restore_close(r);
    for (unsigned i = 0; state_of(&p, id) != BW_CKPT_LIVE; i++) { /* and it is brought into the authority */
        must(i < 600);
        sleep_ms(50);
    }
    save_filled(ck, 3, STATE);
    close_ok(ck);
    check_bytes(&p, 2, STATE, 2);
    check_bytes(&p, 3, STATE, 3);
    free(m);
    place_drop(&p);
}

static void what_is_not_local_at_the_deadline_is_given_up(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    const uint64_t n = FULL_OR(200, 40) * MIB;
    void *m = calloc(1, n);
    must(m != NULL);
    save_filled(ck, 1, STATE);
    struct bw_save *v = begin(ck, 2);
    add_bytes(v, "w", m, n);
    start(v);
    const int rc = bw_checkpointer_close(ck, 0, &err);
    must(rc == BW_E_CANCELLED || rc == BW_E_TIMEOUT || rc == 0);
    free(m); /* nobody reads it any more */
    ck = open_alone(&p, "two");
    must_eq(resumed_of(ck).step, rc == BW_E_CANCELLED ? 1 : 2);
    save_filled(ck, 3, STATE);
    close_ok(ck);
    place_drop(&p);
}

/* --- events ---- */

static bool readable(int fd, int timeout_ms) {
    struct pollfd f = {.fd = fd, .events = POLLIN};
    return poll(&f, 1, timeout_ms) == 1;
}

static void events_tell_what_happens_and_the_descriptor_wakes(void **state) {
    (void)state;
    struct place p;
    struct bw_event e;
    void *m = malloc(STATE);
    uint32_t level = 0;
    bool ended = false;
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    while (bw_checkpointer_poll(ck, &e)) {
    }
    must(!readable(bw_checkpointer_fd(ck), 0));
    bw_save_release(begin_filled(ck, 1, m, STATE));
    while (!ended) {
        must(readable(bw_checkpointer_fd(ck), 60000));
        while (bw_checkpointer_poll(ck, &e)) {
            must(e.step == 1 && e.status == 0 && e.lost == 0);
            if (e.type == BW_EVENT_LEVEL) must_eq(e.level, ++level);
            ended = ended || e.type == BW_EVENT_SAVE_ENDED;
        }
    }
    must_eq(level, BW_COMMITTED);
    must_eq(e.level, BW_COMMITTED);
    must(!readable(bw_checkpointer_fd(ck), 0));
    close_ok(ck);
    free(m);
    place_drop(&p);
}

static void events_that_nobody_takes_are_counted(void **state) {
    (void)state;
    struct place p;
    struct bw_event e;
    char byte = 1;
    unsigned taken = 0, lost = 0;
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    for (uint64_t step = 1; step <= 70; step++) save_bytes(ck, step, &byte, 1);
    while (bw_checkpointer_poll(ck, &e)) {
        lost += e.lost;
        taken++;
    }
    must_eq(taken, 256);
    must(lost >= 70 * 5 - 256);
    close_ok(ck);
    place_drop(&p);
}

/* --- a failure that nobody waits for ---- */

static void await_end(struct bw_checkpointer *ck, uint64_t step, int want) {
    struct bw_event e = {0};
    while (e.type != BW_EVENT_SAVE_ENDED || e.step != step) {
        must(readable(bw_checkpointer_fd(ck), 60000));
        (void)bw_checkpointer_poll(ck, &e);
    }
    must_eq(e.status, want);
    must(e.message[0] != 0);
}

static int failing_in_the_background(void *arg, unsigned single_tier) {
    struct place *p = arg;
    struct bw_error err = BW_ERROR_INIT;
    void *m = malloc(STATE);
    (void)signal(SIGXFSZ, SIG_IGN);
    struct bw_options o = options_of(p, "one", 0, 1);
    if (single_tier) o.local_url = NULL;
    struct bw_checkpointer *ck = open_with(&o);
    save_filled(ck, 1, STATE);
    limit_files(MIB);
    struct bw_save *v = begin_filled(ck, 2, m, STATE);
    bw_save_release(v);
    await_end(ck, 2, BW_E_LIMIT);
    unlimit_files();
    save_filled(ck, 3, STATE);
    must_fail(bw_checkpointer_close(ck, WAIT_MS, &err), BW_E_LIMIT, &err, "step 2");
    /* A failure that a wait has reported is not told twice. */
    o.launch = "two";
    ck = open_with(&o);
    limit_files(MIB);
    v = begin_filled(ck, 4, m, STATE);
    must_fail(bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err), BW_E_LIMIT, &err, "step 4");
    bw_save_release(v);
    unlimit_files();
    close_ok(ck);
    /* The events tell it too. */
    o.launch = "three";
    ck = open_with(&o);
    limit_files(MIB);
    v = begin_filled(ck, 5, m, STATE);
    await_end(ck, 5, BW_E_LIMIT);
    must_eq(bw_save_error(v, &err), BW_E_LIMIT);
    unlimit_files();
    close_ok(ck);
    free(m);
    return 0;
}

static void a_failure_in_the_background_is_reported_by_close(void **state) {
    (void)state;
    for (unsigned single = 0; single < 2; single++) {
        struct place p;
        place_make(&p);
        must_eq(reap(spawn(failing_in_the_background, &p, single)), 0);
        check_bytes(&p, 3, STATE, 3);
        must_eq(history_of(&p).live, 2);
        place_drop(&p);
    }
}

/* --- room ---- */

static uint64_t bytes_below(const char *path) {
    uint64_t bytes = 0;
    char copy[700];
    (void)snprintf(copy, sizeof copy, "%s", path);
    char *const roots[] = {copy, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    must(walk != NULL);
    for (FTSENT *e; (e = fts_read(walk)) != NULL;)
        if (e->fts_info == FTS_F) bytes += (uint64_t)e->fts_statp->st_size;
    (void)fts_close(walk);
    return bytes;
}

static void the_local_tier_stays_within_its_quota(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_event e;
    bool told = false;
    place_make(&p);
    struct bw_options o = options_of(&p, "one", 0, 1);
    o.local_quota_bytes = 5 * STATE;
    struct bw_checkpointer *ck = open_with(&o);
    for (uint64_t step = 1; step <= 9; step++) {
        save_filled(ck, step, STATE);
        must(bytes_below(p.local) <= o.local_quota_bytes);
    }
    while (bw_checkpointer_poll(ck, &e))
        told = told || (e.type == BW_EVENT_NOTE && strstr(e.message, "from the local tier") != NULL);
    must(told);
    /* Two that can never fit fail, and do not wait for each other; what is there stays. */
    struct bw_save *v = begin(ck, 10), *w = begin(ck, 11);
    add_bytes(v, "w", ballast, 6 * STATE);
    add_bytes(w, "w", ballast, 6 * STATE);
    start(v);
    start(w);
    must_fail(bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err), BW_E_NOSPACE, &err, "local tier");
    must_fail(bw_save_wait(w, BW_COMMITTED, WAIT_MS, &err), BW_E_NOSPACE, &err, "local tier");
    bw_save_release(v);
    bw_save_release(w);
    save_filled(ck, 12, STATE);
    must(bytes_below(p.local) <= o.local_quota_bytes);
    close_ok(ck);
    for (uint64_t step = 1; step <= 9; step++) check_bytes(&p, step, STATE, step);
    check_bytes(&p, 12, STATE, 12);
    place_drop(&p);
}

static bool is_recycling_here(const struct place *p) {
    struct statfs fs;
    must(statfs(p->root, &fs) == 0);
    return fs.f_type == 0xef53 || fs.f_type == 0x58465342 || fs.f_type == 0x01021994;
}

static uint64_t save_recycling(struct bw_checkpointer *ck, uint64_t step) {
    struct bw_save_stats stats;
    void *m = malloc(STATE);
    must(m != NULL);
    struct bw_save *v = begin_filled(ck, step, m, STATE);
    wait_for(v, BW_COMMITTED);
    bw_save_stats(v, &stats);
    finish(v);
    free(m);
    return stats.recycled_bytes;
}

/* What evictions give is written over from the first one on, if nothing forbids it, with room in plenty as well. */
static void saves_are_written_over_what_leaves_the_local_tier(void **state) {
    (void)state;
    for (unsigned way = 0; way < 3; way++) {
        struct place p;
        place_make(&p);
        struct bw_options o = options_of(&p, "one", 0, 1);
        if (way == 0) o.retention.keep_last = 1, o.saves_in_flight_max = 1;
        if (way > 0) o.local_quota_bytes = 5 * STATE / 2;
        if (way == 2) o.flags |= BW_NO_RECYCLING;
        struct bw_checkpointer *ck = open_with(&o);
        unsigned whole = 0;
        for (uint64_t step = 1; step <= 8; step++) {
            const uint64_t recycled = save_recycling(ck, step);
            must(recycled == 0 || (step > 2 && way < 2 && is_recycling_here(&p)));
            whole += recycled >= STATE;
        }
        must(way == 2 || !is_recycling_here(&p) || whole >= 3); /* the first ones meet nothing that may go */
        close_ok(ck);
        for (uint64_t step = way == 0 ? 7 : 1; step <= 8; step++) check_bytes(&p, step, STATE, step);
        place_drop(&p);
    }
}

/* Saves that overlap: none takes what was kept for the other, none loses bytes. */
static void two_saves_in_flight_are_written_over_what_is_dead(void **state) {
    (void)state;
    enum { SAVES = 12 };
    struct place p;
    place_make(&p);
    struct bw_options o = options_of(&p, "one", 0, 1);
    o.retention.keep_last = 1;
    o.saves_in_flight_max = 2;
    struct bw_checkpointer *ck = open_with(&o);
    void *m[2] = {malloc(STATE), malloc(STATE)};
    struct bw_save *v[2] = {NULL, NULL};
    uint64_t recycled = 0;
    for (uint64_t step = 1; step <= SAVES + 2; step++) {
        struct bw_save **at = &v[step % 2];
        struct bw_save_stats stats;
        if (*at != NULL) {
            wait_for(*at, BW_COMMITTED);
            bw_save_stats(*at, &stats);
            recycled += stats.recycled_bytes;
            finish(*at);
        }
        *at = step <= SAVES ? begin_filled(ck, step, m[step % 2], STATE) : NULL;
    }
    must(recycled > 0 || !is_recycling_here(&p));
    close_ok(ck);
    check_bytes(&p, SAVES, STATE, SAVES);
    free(m[0]);
    free(m[1]);
    place_drop(&p);
}

/* With a drain that is slower than the saves, a save waits for room that a commit makes. */
static void a_save_waits_for_room_that_a_commit_makes(void **state) {
    (void)state;
    struct place p;
    enum { SAVES = 6 };
    void *m[SAVES + 1];
    struct bw_save *v[SAVES + 1];
    place_make(&p);
    struct bw_options o = options_of(&p, "one", 0, 1);
    o.local_quota_bytes = 3 * STATE;
    o.drain_bytes_per_s = 4 * MIB;
    o.saves_in_flight_max = 8;
    struct bw_checkpointer *ck = open_with(&o);
    for (uint64_t step = 1; step <= SAVES; step++) {
        m[step] = malloc(STATE);
        v[step] = begin_filled(ck, step, m[step], STATE);
    }
    for (uint64_t step = 1; step <= SAVES; step++) {
        finish(v[step]);
        free(m[step]);
        must(bytes_below(p.local) <= o.local_quota_bytes);
    }
    close_ok(ck);
    for (uint64_t step = 1; step <= SAVES; step++) check_bytes(&p, step, STATE, step);
    place_drop(&p);
}

/* It is captured meanwhile; the memory that takes is not that which the drain needs, for whose end it waits. */
static void a_save_that_waits_for_room_leaves_memory_to_the_drain(void **state) {
    (void)state;
    struct place p;
    const uint64_t size[] = {0, 60 * MIB, 60 * MIB, 80 * MIB};
    void *m[4];
    struct bw_save *v[4];
    place_make(&p);
    struct bw_options o = options_of(&p, "one", 0, 1);
    o.local_quota_bytes = 150 * MIB;
    o.drain_bytes_per_s = 60 * MIB;
    o.saves_in_flight_max = 3;
    struct bw_checkpointer *ck = open_with(&o);
    for (uint64_t step = 1; step <= 3; step++) {
        m[step] = malloc(size[step]);
        must(m[step] != NULL);
        fill(m[step], size[step], step);
        v[step] = begin(ck, step);
        add_bytes(v[step], "w", m[step], size[step]);
        start(v[step]);
        if (step == 1) wait_for(v[step], BW_COMMITTED);
    }
    for (uint64_t step = 1; step <= 3; step++) {
        finish(v[step]);
        free(m[step]);
    }
    close_ok(ck);
    check_bytes(&p, 3, size[3], 3);
    place_drop(&p);
}

static void retention_keeps_what_its_rules_say(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_checkpoint_row row;
    char kept[64] = "", byte = 1;
    place_make(&p);
    struct bw_options o = options_of(&p, "one", 0, 1);
    o.saves_in_flight_max = 1;
    o.retention.keep_last = 3;
    o.retention.keep_every_steps = 5;
    struct bw_checkpointer *ck = open_with(&o);
    for (uint64_t step = 1; step <= 13; step++) save_bytes(ck, step, &byte, 1);
    for (unsigned i = 0; history_of(&p).live > 5; i++) { /* the last retirement follows the last commit */
        must(i < 300);
        sleep_ms(20);
    }
    close_ok(ck);
    struct bw_catalog *c = catalog_of(&p);
    must_ok(bw_catalog_checkpoints(c, RUN, &list, &err), &err);
    for (size_t i = 0; bw_list_checkpoint(list, i, &row); i++) {
        if (row.state != BW_CKPT_LIVE) continue;
        const size_t at = strlen(kept);
        (void)snprintf(kept + at, sizeof kept - at, "%llu ", (unsigned long long)row.step);
    }
    bw_list_free(list);
    bw_catalog_close(c);
    must_at(strcmp(kept, "5 10 11 12 13 ") == 0, kept, "the rules keep these", __FILE__, __LINE__);
    place_drop(&p);
}

/* --- tiers ---- */

static void with_one_tier_a_save_goes_straight_to_it(void **state) {
    (void)state;
    struct place p;
    struct bw_save_stats stats;
    struct bw_restore *r = NULL;
    struct bw_error err = BW_ERROR_INIT;
    void *m = malloc(STATE);
    place_make(&p);
    struct bw_options o = options_of(&p, "one", 0, 1);
    o.local_url = NULL;
    struct bw_checkpointer *ck = open_with(&o);
    struct bw_save *v = begin_filled(ck, 1, m, STATE);
    wait_for(v, BW_LOCAL);
    must(bw_save_level(v) >= BW_REMOTE);
    wait_for(v, BW_COMMITTED);
    bw_save_stats(v, &stats);
    must(stats.objects_local == 0 && stats.objects_remote > 0 && stats.tiers == 2 && stats.local_ns == 0);
    must(stats.capture_ns > 0 && stats.capture_ns <= stats.remote_ns && stats.remote_ns <= stats.committed_ns);
    bw_save_release(v);
    close_ok(ck);
    o.launch = "two";
    ck = open_with(&o);
    must_ok(bw_restore_open(ck, &r, &err), &err);
    read_bytes(r, "w", m, STATE);
    must(is_filled(m, STATE, 1));
    bw_restore_close(r);
    close_ok(ck);
    free(m);
    place_drop(&p);
}

static void with_two_tiers_the_levels_come_in_order(void **state) {
    (void)state;
    struct place p;
    struct bw_save_stats stats;
    void *m = malloc(STATE);
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    struct bw_save *v = begin_filled(ck, 1, m, STATE);
    for (int level = BW_CAPTURED; level <= BW_COMMITTED; level++) {
        wait_for(v, (enum bw_level)level);
        must((int)bw_save_level(v) >= level);
    }
    bw_save_stats(v, &stats);
    must_eq(stats.tiers, 3);
    must(stats.capture_ns > 0 && stats.capture_ns <= stats.local_ns && stats.local_ns <= stats.remote_ns &&
         stats.remote_ns <= stats.committed_ns);
    must(strcmp(stats.capture_mode, "copy") == 0 && strstr(stats.write_path, ", ") != NULL);
    bw_save_release(v);
    close_ok(ck);
    free(m);
    place_drop(&p);
}

static void tiers_that_fail_together_must_be_declared(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    place_make(&p);
    struct bw_options o = options_of(&p, "one", 0, 1);
    o.flags = BW_ALLOW_NODE_LOCAL;
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_REFUSED, &err, "BW_ALLOW_SAME_DEVICE");
    o.flags = BW_ALLOW_NODE_LOCAL | BW_ALLOW_SAME_DEVICE;
    o.local_url = p.remote;
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_INVALID, &err, "same store");
    struct stat st;
    if (stat("/dev/shm", &st) == 0) { /* a file system that dies with the node */
        char shm[] = "/dev/shm/bw-test-XXXXXX";
        must(mkdtemp(shm) != NULL);
        o = options_of(&p, "two", 0, 1);
        o.flags = 0;
        o.local_url = NULL;
        o.remote_url = shm;
        must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_REFUSED, &err, "BW_ALLOW_NODE_LOCAL");
        test_rmdir(shm);
    }
    place_drop(&p);
}

/* --- drains beside a job ---- */

/* The path of the checkpoint of that step and try in the authority, as the pattern of an id's end says. */
static void checkpoint_path(const struct place *p, const char *pattern, char ret[700]) {
    glob_t found;
    must_eq(glob(path_in(p->remote, "runs/" RUN "/checkpoints/%s", pattern), 0, NULL, &found), 0);
    must_eq(found.gl_pathc, 1);
    (void)snprintf(ret, 700, "%s", found.gl_pathv[0]);
    globfree(&found);
}

static void drain_once(const struct place *p) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_catalog *c = catalog_of(p);
    must_ok(bw_catalog_drain(c, RUN, &list, &err), &err);
    bw_list_free(list);
    bw_catalog_close(c);
}

/* A rank that is past a step refuses its next try by a mark; whoever aborted that would be shown another one. */
static void a_drain_enters_no_abort_for_a_try_that_nobody_has_begun(void **state) {
    (void)state;
    struct place p;
    char aborted[700], next[700];
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    save_filled(ck, 10, STATE);
    bw_save_release(begin(ck, 20)); /* dropped: a mark, and the abort */
    const uint64_t until = clock_ms() + WAIT_MS;
    while (history_of(&p).aborts == 0 && clock_ms() < until) sleep_ms(20);
    close_ok(ck);
    checkpoint_path(&p, "00000000000000000020.*.0", aborted);
    (void)snprintf(next, sizeof next, "%s", aborted);
    next[strlen(next) - 1] = '1';
    must_eq(rename(aborted, next), 0);
    drain_once(&p);
    must_eq(history_of(&p).aborts, 1);
    place_drop(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_too_many_waits_for_its_turn),
        cmocka_unit_test(its_wait_has_a_deadline),
        cmocka_unit_test(a_save_too_many_is_skipped),
        cmocka_unit_test(a_save_too_many_fails),
        cmocka_unit_test(a_cancelled_save_ends_and_the_next_one_works),
        cmocka_unit_test(a_save_that_was_let_go_is_committed),
        cmocka_unit_test(a_save_that_was_never_started_is_dropped),
        cmocka_unit_test(what_is_local_at_the_deadline_is_left_for_the_next_launch),
        cmocka_unit_test(what_is_not_local_at_the_deadline_is_given_up),
        cmocka_unit_test(events_tell_what_happens_and_the_descriptor_wakes),
        cmocka_unit_test(events_that_nobody_takes_are_counted),
        cmocka_unit_test(a_failure_in_the_background_is_reported_by_close),
        cmocka_unit_test(the_local_tier_stays_within_its_quota),
        cmocka_unit_test(saves_are_written_over_what_leaves_the_local_tier),
        cmocka_unit_test(two_saves_in_flight_are_written_over_what_is_dead),
        cmocka_unit_test(a_save_waits_for_room_that_a_commit_makes),
        cmocka_unit_test(a_save_that_waits_for_room_leaves_memory_to_the_drain),
        cmocka_unit_test(retention_keeps_what_its_rules_say),
        cmocka_unit_test(with_one_tier_a_save_goes_straight_to_it),
        cmocka_unit_test(with_two_tiers_the_levels_come_in_order),
        cmocka_unit_test(tiers_that_fail_together_must_be_declared),
        cmocka_unit_test(a_drain_enters_no_abort_for_a_try_that_nobody_has_begun),
    };
    return run_cases(tests);
}
