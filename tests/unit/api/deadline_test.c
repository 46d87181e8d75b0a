/* SPDX-License-Identifier: Apache-2.0 */
/* Tiers that do not answer, through the public interface: calls end by their deadline, handles can be closed, and what
 * hung clears up behind itself once the mount answers.
 *
 * The program's own openat() stands in front of the C library's: while the gate is shut, every thread but the test's
 * waits in it, as it would in the kernel. */
#include "sanitized.h"
#include "test.h"
#include <breakwater/breakwater.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SHORT_MS UINT64_C(1000) /* long enough for what does not hang, on a machine that is busy */
#define LONG_MS  UINT64_C(60000)

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool shut;
    bool writes;     /* only what makes a file hangs */
    const char *end; /* of the paths that hang; NULL: all do */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static pthread_t test_thread;

static bool ends_with(const char *path, const char *end) {
    if (end == NULL) return true;
    const size_t n = strlen(path);
    return n >= strlen(end) && strcmp(path + n - strlen(end), end) == 0;
}

__attribute__((visibility("default"))) int openat(int dirfd, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const unsigned mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, unsigned) : 0;
    va_end(args);
    if (!pthread_equal(pthread_self(), test_thread)) {
        pthread_mutex_lock(&gate.lock);
        while (gate.shut && ends_with(path, gate.end) && (!gate.writes || (flags & O_CREAT) != 0))
            pthread_cond_wait(&gate.changed, &gate.lock);
        pthread_mutex_unlock(&gate.lock);
    }
    return (int)syscall(SYS_openat, dirfd, path, flags, mode);
}

static void set_gate(bool shut, const char *end) {
    pthread_mutex_lock(&gate.lock);
    gate.shut = shut;
    gate.end = end;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

/* How far the library's clock is behind the one that waits go by: a wait of that much more takes no longer. */
static atomic_uint behind_s;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *ret) {
    const long rc = syscall(SYS_clock_gettime, clock, ret);
    if (rc == 0 && clock == CLOCK_MONOTONIC) ret->tv_sec -= (time_t)atomic_load(&behind_s);
    return (int)rc;
}

/* ---- what is left ---- */

static unsigned descriptors_here(void) {
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    unsigned n = 0;
    while (readdir(d) != NULL) n++;
    closedir(d);
    return n;
}

/* A detached thread tells nobody that it has gone: it is looked for, and a minute is enough for any of them. */
static void await_count(unsigned (*count)(void), unsigned n) {
    const struct timespec pause = {0, 1000000};
    for (int i = 0; i < 60000 && count() != n; i++) (void)nanosleep(&pause, NULL);
    assert_int_equal(count(), n);
}

struct left {
    unsigned threads, descriptors;
};

static struct left count_left(void) {
    return (struct left){test_threads(), descriptors_here()};
}

static void await_left(struct left before) {
    await_count(test_threads, before.threads);
    await_count(descriptors_here, before.descriptors);
}

/* ---- a store with one run ---- */

static char remote[600];
static struct bw_resumed made; /* the checkpoint of step 1 */

static void save_in(const char *run, const char *local, uint64_t step) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_options o = BW_OPTIONS_INIT;
    struct bw_checkpointer *ck = NULL;
    struct bw_save *save = NULL;
    char launch[32];
    (void)snprintf(launch, sizeof launch, "launch-%u", (unsigned)step);
    o.run = run, o.job = "job", o.launch = launch, o.world = 1, o.remote_url = remote, o.local_url = local;
    o.local_io_depth = 16;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL;
    assert_ok(bw_checkpointer_open(&o, &ck, &err), &err);
    if (step == 2) bw_checkpointer_resumed(ck, &made);
    assert_ok(bw_save_begin(ck, step, &save, &err), &err);
    assert_ok(bw_save_blob(save, "bytes", "abc", 3, &err), &err);
    assert_ok(bw_save_start(save, &err), &err);
    assert_ok(bw_save_wait(save, BW_COMMITTED, LONG_MS, &err), &err);
    bw_save_release(save);
    assert_ok(bw_checkpointer_close(ck, LONG_MS, &err), &err);
}

static int make_store(void **state) {
    (void)state;
    test_thread = pthread_self();
    (void)snprintf(remote, sizeof remote, "%s/hangs", test_mkdir());
    save_in("run", NULL, 1);
    save_in("run", NULL, 2);
    return 0;
}

static int drop_store(void **state) {
    (void)state;
    *strrchr(remote, '/') = '\0';
    test_rmdir(remote);
    return 0;
}

static struct bw_catalog *open_catalog(uint64_t io_timeout_ms) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    struct bw_catalog *catalog = NULL;
    o.remote_url = remote;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.io_timeout_ms = io_timeout_ms;
    assert_ok(bw_catalog_open(&o, &catalog, &err), &err);
    return catalog;
}

/* ---- cases ---- */

static void opening_ends_by_its_deadline_and_leaves_nothing(void **state) {
    (void)state;
    const struct left before = count_left();
    struct bw_error err = BW_ERROR_INIT;
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    struct bw_reader_options r = BW_READER_OPTIONS_INIT;
    struct bw_catalog *catalog = NULL;
    struct bw_restore *restore = NULL;
    set_gate(true, NULL);
    o.remote_url = remote;
    o.io_timeout_ms = SHORT_MS;
    assert_fails(bw_catalog_open(&o, &catalog, &err), BW_E_TIMEOUT, &err, "hangs\": no answer for 1000 ms");
    r.run = "run";
    r.remote_url = remote;
    r.io_timeout_ms = SHORT_MS;
    assert_fails(bw_reader_open(&r, &restore, &err), BW_E_TIMEOUT, &err, "run \"run\": no answer for 1000 ms");
    assert_null(catalog);
    assert_null(restore);
    set_gate(false, NULL);
    await_left(before);
}

static void a_call_ends_by_its_deadline_and_the_next_one_works_again(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_run_info run;
    struct bw_catalog *catalog = open_catalog(SHORT_MS);
    set_gate(true, NULL);
    assert_fails(bw_catalog_checkpoints(catalog, "run", &list, &err), BW_E_TIMEOUT, &err, "no answer for 1000 ms");
    assert_fails(bw_catalog_run(catalog, "run", &run, &err), BW_E_TIMEOUT, &err, "has not come back for 1000 ms");
    assert_null(list);
    set_gate(false, NULL);
    int rc = BW_E_TIMEOUT; /* until the first call has come back, which takes as long as it takes */
    for (int i = 0; i < 1000 && rc == BW_E_TIMEOUT; i++) rc = bw_catalog_run(catalog, "run", &run, &err);
    assert_ok(rc, &err);
    assert_int_equal(run.live, 2);
    assert_int_equal(run.newest_step, 2);
    bw_catalog_close(catalog);
}

static void closing_does_not_wait_for_what_hangs(void **state) {
    (void)state;
    const struct left before = count_left();
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_catalog *catalog = open_catalog(SHORT_MS);
    set_gate(true, NULL);
    assert_fails(bw_catalog_verify(catalog, "run", NULL, 0, &list, &err), BW_E_TIMEOUT, &err, NULL);
    bw_catalog_close(catalog);
    assert_null(list);
    set_gate(false, NULL);
    await_left(before);
}

static void what_nobody_waits_for_any_more_changes_nothing(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_run_info run;
    struct bw_catalog *catalog = open_catalog(SHORT_MS);
    char id[BW_ID_BYTES];
    (void)snprintf(id, sizeof id, "%s", made.id);
    const char *ids[] = {id};
    struct bw_prune_options p = {.struct_size = sizeof p, .retire_ids = ids, .retire_count = 1};
    set_gate(true, NULL);
    assert_fails(bw_catalog_prune(catalog, "run", &p, &list, &err), BW_E_TIMEOUT, &err, NULL);
    memset(id, 'x', sizeof id - 1); /* the call has a copy */
    set_gate(false, NULL);
    int rc = BW_E_TIMEOUT;
    for (int i = 0; i < 1000 && rc == BW_E_TIMEOUT; i++) rc = bw_catalog_run(catalog, "run", &run, &err);
    assert_ok(rc, &err);
    assert_int_equal(run.live, 2);
    bw_catalog_close(catalog);
}

static void signs_of_life_keep_a_call_going(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_catalog *catalog = open_catalog(LONG_MS);
    assert_ok(bw_catalog_history(catalog, "run", &list, &err), &err);
    assert_int_equal(bw_list_count(list), 4);
    bw_list_free(list);
    bw_catalog_close(catalog);
    catalog = open_catalog(0); /* for ever */
    assert_ok(bw_catalog_history(catalog, "run", &list, &err), &err);
    bw_list_free(list);
    bw_catalog_close(catalog);
}

/* Its own deadline can end no call that hangs in the kernel: half a minute behind it the launch is left alone. The
 * memory of its handle stays, which a sanitizer calls a leak. */
static void opening_a_launch_whose_call_never_comes_back_ends(void **state) {
    (void)state;
    if (SANITIZED) skip();
    const struct left before = count_left();
    struct bw_error err = BW_ERROR_INIT;
    struct bw_options o = BW_OPTIONS_INIT;
    struct bw_checkpointer *ck = NULL;
    o.run = "run", o.job = "job", o.launch = "hangs", o.world = 1, o.remote_url = remote;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL;
    o.open_timeout_ms = SHORT_MS;
    set_gate(true, "history");
    atomic_store(&behind_s, 30);
    const int rc = bw_checkpointer_open(&o, &ck, &err);
    atomic_store(&behind_s, 0);
    assert_fails(rc, BW_E_TIMEOUT, &err, "open run \"run\": a tier does not answer");
    assert_null(ck);
    set_gate(false, NULL);
    await_left(before);
}

static void remove_from_authority(const char *pattern) {
    char command[900];
    (void)snprintf(command, sizeof command, "rm -r %s/runs/drained/%s", remote, pattern);
    assert_int_equal(system(command), 0);
}

/* A step that the local tier has and the authority does not: as if nobody had ever drained it. */
static void a_drain_that_nobody_waits_for_copies_and_commits_nothing_more(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_run_info run;
    struct bw_finding f;
    char local[700];
    (void)snprintf(local, sizeof local, "%s-local", remote);
    save_in("drained", local, 3);
    remove_from_authority("history/*2.json");
    remove_from_authority("checkpoints/*");
    remove_from_authority("data/*");
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    struct bw_catalog *catalog = NULL;
    o.remote_url = remote, o.local_url = local;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.io_timeout_ms = SHORT_MS;
    assert_ok(bw_catalog_open(&o, &catalog, &err), &err);
    gate.writes = true;
    set_gate(true, NULL);
    assert_fails(bw_catalog_drain(catalog, "drained", &list, &err), BW_E_TIMEOUT, &err, "no answer for 1000 ms");
    set_gate(false, NULL);
    gate.writes = false;
    int rc = BW_E_TIMEOUT;
    for (int i = 0; i < 1000 && rc == BW_E_TIMEOUT; i++) rc = bw_catalog_run(catalog, "drained", &run, &err);
    assert_ok(rc, &err);
    assert_int_equal(run.live, 0);
    assert_ok(bw_catalog_drain(catalog, "drained", &list, &err), &err);
    assert_true(bw_list_finding(list, 0, &f));
    assert_string_equal(f.message, "copied to the authority");
    bw_list_free(list);
    assert_ok(bw_catalog_run(catalog, "drained", &run, &err), &err);
    assert_int_equal(run.live, 1);
    bw_catalog_close(catalog);
    test_rmdir(local);
}

/* How often a check of a tier is told of with a status. */
static unsigned tells(const struct bw_list *list, const char *tier, const char *check, int status, const char *text) {
    struct bw_finding f;
    unsigned n = 0;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++)
        n += strcmp(f.tier, tier) == 0 && strcmp(f.object, check) == 0 && f.status == status &&
             strstr(f.message, text) != NULL;
    return n;
}

static void the_doctor_finds_what_hangs_and_examines_the_other_tier(void **state) {
    (void)state;
    const struct left before = count_left();
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_doctor_options o = BW_DOCTOR_OPTIONS_INIT;
    const char *local = test_mkdir();
    o.remote_url = remote;
    o.timeout_ms = SHORT_MS;
    set_gate(true, "hangs");
    assert_ok(bw_doctor(&o, &list, &err), &err);
    assert_int_equal(tells(list, "remote", "store", BW_E_TIMEOUT, "does not answer: no answer for 1000 ms"), 1);
    assert_int_equal(tells(list, "remote", "create once", 0, ""), 0);
    bw_list_free(list);
    o.local_url = local;
    o.remote_url = NULL;
    o.timeout_ms = LONG_MS;
    assert_ok(bw_doctor(&o, &list, &err), &err);
    assert_int_equal(tells(list, "local", "create once", 0, "holds"), 1);
    bw_list_free(list);
    set_gate(false, NULL);
    await_left(before);
    test_rmdir(local);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_ends_by_its_deadline_and_leaves_nothing),
        cmocka_unit_test(a_call_ends_by_its_deadline_and_the_next_one_works_again),
        cmocka_unit_test(closing_does_not_wait_for_what_hangs),
        cmocka_unit_test(what_nobody_waits_for_any_more_changes_nothing),
        cmocka_unit_test(signs_of_life_keep_a_call_going),
        cmocka_unit_test(the_doctor_finds_what_hangs_and_examines_the_other_tier),
        cmocka_unit_test(opening_a_launch_whose_call_never_comes_back_ends),
        cmocka_unit_test(a_drain_that_nobody_waits_for_copies_and_commits_nothing_more),
    };
    return cmocka_run_group_tests(tests, make_store, drop_store);
}
