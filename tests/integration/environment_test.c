/* SPDX-License-Identifier: Apache-2.0 */
/* Machines that allow less: system calls that a container refuses, limits of a process, a umask. What can be done
 * without is done without, and said; what cannot fails with an error that names it, and older checkpoints stay. */
#include "confine.h"
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STATE (3 * MIB + 17)

/* A case's process, in which it does what it likes with itself. */
static void in_a_process(int (*main)(void *arg, unsigned i), void *arg) {
    run_ranks(main, arg, 1);
}

static void in_a_place(int (*main)(void *arg, unsigned i)) {
    struct place p;
    place_make(&p);
    in_a_process(main, &p);
    place_drop(&p);
}

/* A whole life of two launches: save, close, resume, restore, save, verify. */
static void save_and_come_back(struct place *p) {
    void *got = malloc(STATE);
    struct bw_error err = BW_ERROR_INIT;
    struct bw_restore *r = NULL;
    struct bw_checkpointer *ck = open_alone(p, "one");
    save_filled(ck, 1, STATE);
    close_ok(ck);
    ck = open_alone(p, "two");
    must(resumed_of(ck).from_checkpoint == 1 && resumed_of(ck).step == 1);
    must_ok(bw_restore_open(ck, &r, &err), &err);
    read_bytes(r, "w", got, STATE);
    must(is_filled(got, STATE, 1));
    bw_restore_close(r);
    save_filled(ck, 2, STATE);
    close_ok(ck);
    check_bytes(p, 2, STATE, 2);
    must_be_sound(p);
    free(got);
}

/* --- what a doctor says ---- */

static bool doctor_says(const char *what, uint32_t severity, const char *part) {
    struct bw_doctor_options o = BW_DOCTOR_OPTIONS_INIT;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_finding f;
    bool said = false;
    must_ok(bw_doctor(&o, &list, &err), &err);
    for (size_t i = 0; bw_list_finding(list, i, &f); i++) {
        if (strcmp(f.object, what) != 0) continue;
        said = f.severity == severity && strstr(f.message, part) != NULL;
        if (!said) (void)fprintf(stderr, "%s: severity %u: %s\n", what, f.severity, f.message);
    }
    bw_list_free(list);
    return said;
}

/* --- system calls ---- */

static void check_path_taken(struct place *p) {
    struct bw_save_stats stats;
    struct bw_checkpointer_stats whole;
    struct bw_checkpointer *ck = open_alone(p, "path");
    void *m = malloc(STATE);
    struct bw_save *v = begin_filled(ck, 3, m, STATE);
    wait_for(v, BW_COMMITTED);
    bw_save_stats(v, &stats);
    bw_save_release(v);
    bw_checkpointer_stats(ck, &whole);
    must(strcmp(stats.write_path, "threads, direct") == 0 && strcmp(stats.capture_mode, "copy") == 0);
    must(strcmp(whole.io_backend, "threads") == 0);
    const bool asked = test_io_backend() == BW_IO_THREADS;
    must(strcmp(whole.io_lacks, asked ? "threads were asked for" : "no io_uring: Operation not permitted") == 0);
    must(whole.local_io_depth == 16 && strcmp(whole.local_io_why, "given") == 0);
    close_ok(ck);
    free(m);
}

/* There may be another way to it than the call: the device. */
static bool finds_userfaultfd(struct place *p) {
    struct bw_save_stats stats;
    struct bw_options o = options_of(p, "cow", 0, 1);
    o.capture = BW_CAPTURE_COW;
    struct bw_checkpointer *ck = open_with(&o);
    void *m = malloc(STATE);
    struct bw_save *v = begin_filled(ck, 4, m, STATE);
    wait_for(v, BW_COMMITTED);
    bw_save_stats(v, &stats);
    bw_save_release(v);
    close_ok(ck);
    free(m);
    return strncmp(stats.capture_why, "userfaultfd: ", 13) != 0;
}

static int without_rings(void *arg, unsigned i) {
    (void)i;
    const int calls[] = {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_userfaultfd};
    struct place *p = arg;
    refuse_calls(calls, 4, EPERM);
    must_eq(syscall(SYS_userfaultfd, 0), -1);
    save_and_come_back(p);
    check_path_taken(p);
    must(doctor_says("io_uring", 0, "not permitted"));
    must(doctor_says("userfaultfd", 0, finds_userfaultfd(p) ? "with write protection" : "not permitted"));
    return 0;
}

static void without_io_uring_and_userfaultfd_a_save_takes_the_next_path_and_says_which(void **state) {
    (void)state;
    in_a_place(without_rings);
}

/* Waits until the local tier has been measured, or the reason is known why it is not. */
static struct bw_checkpointer_stats measured(struct bw_checkpointer *ck) {
    struct bw_checkpointer_stats s = {0};
    for (uint64_t end = clock_ms() + WAIT_MS; clock_ms() < end; sleep_ms(5)) {
        bw_checkpointer_stats(ck, &s);
        if (strcmp(s.local_io_why, "usual: not measured yet") != 0) break;
    }
    return s;
}

static void no_probe_left_at(const char *dir) {
    must(access(path_in(dir, "probe"), F_OK) < 0 && errno == ENOENT);
}

/* With a ring and without one. */
static int measures_the_tier(void *arg, unsigned i) {
    (void)i;
    const int calls[] = {SYS_io_uring_setup};
    struct place *p = arg;
    for (int without = 0; without < 2; without++) {
        struct bw_options o = options_of(p, without ? "without" : "with", 0, 1);
        o.local_io_depth = 0;
        o.remote_io_depth = 5;
        if (without) refuse_calls(calls, 1, EPERM);
        struct bw_checkpointer *ck = open_with(&o);
        const struct bw_checkpointer_stats s = measured(ck);
        print_message("%s: %llu MB/s, %s\n", o.launch, (unsigned long long)s.local_io_bytes_per_s / 1000000,
                      s.local_io_why);
        must(s.remote_io_depth == 5 && (s.local_io_depth == 8 || s.local_io_depth == 16 || s.local_io_depth == 32));
        must(strncmp(s.local_io_why, "usual: ", 7) == 0 || strncmp(s.local_io_why, "measured: ", 10) == 0);
        must(strstr(s.local_io_why, "not measured yet") == NULL);
        save_filled(ck, 1 + (uint64_t)without, STATE);
        close_ok(ck);
        no_probe_left_at(p->local);
        check_bytes(p, 1 + (uint64_t)without, STATE, 1 + (uint64_t)without);
    }
    return 0;
}

static void the_local_tier_is_measured_where_nothing_else_is_asked_for(void **state) {
    (void)state;
    in_a_place(measures_the_tier);
}

/* Its depth is what it was, whenever it begins. */
static void a_save_does_not_wait_for_the_measuring(void **state) {
    (void)state;
    struct place p;
    place_make(&p);
    struct bw_options o = options_of(&p, "early", 0, 1);
    o.local_io_depth = 0;
    struct bw_checkpointer *ck = open_with(&o);
    save_filled(ck, 1, STATE);
    const struct bw_checkpointer_stats s = measured(ck);
    must(s.local_io_depth >= 8 && s.local_io_why[0] != '\0');
    close_ok(ck);
    o.launch = "closed-at-once";
    ck = open_with(&o);
    close_ok(ck);
    no_probe_left_at(p.local);
    check_bytes(&p, 1, STATE, 1);
    place_drop(&p);
}

/* A job whose world becomes narrower after its first save. */
static const char *narrow_after_a_save(struct place *p, void (*narrow)(void)) {
    static struct bw_checkpointer_stats stats;
    struct bw_checkpointer *ck = open_alone(p, "one");
    save_filled(ck, 1, STATE);
    narrow();
    save_filled(ck, 2, STATE);
    bw_checkpointer_stats(ck, &stats);
    close_ok(ck);
    check_bytes(p, 2, STATE, 2);
    must_be_sound(p);
    return stats.io_backend;
}

static void refuse_rings(void) {
    const int calls[] = {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register};
    refuse_calls(calls, 3, EPERM);
}

static int without_rings_from_now_on(void *arg, unsigned i) {
    (void)i;
    must(strcmp(narrow_after_a_save(arg, refuse_rings), "threads") == 0);
    return 0;
}

static void a_filter_that_comes_later_takes_the_ring_away_and_no_save_fails(void **state) {
    (void)state;
    in_a_place(without_rings_from_now_on);
}

/* All that is asked for beyond reading, writing, syncing and naming files, as a filter that knows an older kernel would
 * refuse it. */
static const int conveniences[] = {SYS_io_uring_setup,  SYS_userfaultfd,  SYS_fallocate, SYS_fadvise64,
                                   SYS_statx,           SYS_renameat2,    SYS_madvise,   SYS_syncfs,
                                   SYS_copy_file_range, SYS_memfd_create, SYS_fchmodat,  SYS_sched_getaffinity};

static int with_the_least_calls(void *arg, unsigned error) {
    const size_t count = sizeof conveniences / sizeof conveniences[0];
    refuse_calls(conveniences, count - SANITIZED, (int)error); /* sanitizers cannot do without the last one */
    save_and_come_back(arg);
    return 0;
}

static void under_a_filter_that_refuses_every_convenience_all_works(void **state) {
    (void)state;
    const int errors[] = {EPERM, ENOSYS};
    for (unsigned i = 0; i < 2; i++) {
        struct place p;
        place_make(&p);
        must_eq(reap(spawn(with_the_least_calls, &p, (unsigned)errors[i])), 0);
        place_drop(&p);
    }
}

static int without_links(void *arg, unsigned i) {
    (void)i;
    const int calls[] = {SYS_link, SYS_linkat};
    refuse_calls(calls, 2, EPERM);
    save_and_come_back(arg);
    return 0;
}

static void where_hard_links_are_refused_names_are_given_by_renaming(void **state) {
    (void)state;
    in_a_place(without_links);
}

static int without_any_creation(void *arg, unsigned i) {
    (void)i;
    const int calls[] = {SYS_link, SYS_linkat, SYS_renameat2};
    struct place *p = arg;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = open_alone(p, "one");
    save_filled(ck, 1, STATE);
    refuse_calls(calls, 3, EPERM);
    void *m = malloc(STATE);
    struct bw_save *v = begin_filled(ck, 2, m, STATE);
    must_fail(bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err), BW_E_ACCESS, &err, "runs/run/");
    bw_save_release(v);
    (void)bw_checkpointer_close(ck, 2000, NULL);
    check_bytes(p, 1, STATE, 1);
    free(m);
    return 0;
}

static void a_file_system_that_creates_nothing_once_is_refused_by_name(void **state) {
    (void)state;
    in_a_place(without_any_creation);
}

static int without_huge_pages(void *arg, unsigned i) {
    (void)i;
    must_eq(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
    save_and_come_back(arg);
    return 0;
}

static void without_huge_pages_all_works(void **state) {
    (void)state;
    in_a_place(without_huge_pages);
}

static int on_one_cpu(void *arg, unsigned i) {
    (void)i;
    cpu_set_t all, one;
    size_t first = 0;
    must_eq(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(first, &all)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    must_eq(sched_setaffinity(0, sizeof one, &one), 0);
    save_and_come_back(arg);
    must(doctor_says("CPUs", 0, "1 for this process"));
    return 0;
}

static void on_one_cpu_all_works(void **state) {
    (void)state;
    in_a_place(on_one_cpu);
}

/* --- limits ---- */

static int with_little_locked_memory(void *arg, unsigned i) {
    (void)i;
    limit(RLIMIT_MEMLOCK, 65536);
    save_and_come_back(arg);
    must(doctor_says("locked memory", 1, "64.0 KiB"));
    return 0;
}

static void with_64_kib_of_locked_memory_all_works_and_the_doctor_warns(void **state) {
    (void)state;
    in_a_place(with_little_locked_memory);
}

/* A launch with room for so many descriptors: it succeeds, or fails with a reason that names the want. 1: it did. */
static int with_descriptors(void *arg, unsigned room) {
    struct place *p = arg;
    struct bw_options o = options_of(p, room % 2 ? "odd" : "even", 0, 1);
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    struct bw_save *v = NULL;
    char launch[32];
    (void)snprintf(launch, sizeof launch, "room-%u", room);
    o.launch = launch;
    o.open_timeout_ms = 1500;
    limit(RLIMIT_NOFILE, (uint64_t)next_descriptor() + room);
    int rc = bw_checkpointer_open(&o, &ck, &err);
    void *m = malloc(STATE);
    if (rc == 0 && (rc = bw_save_begin(ck, 100 + room, &v, &err)) == 0) {
        fill(m, STATE, 100 + room);
        add_bytes(v, "w", m, STATE);
        start(v);
        rc = bw_save_wait(v, BW_COMMITTED, 1500, &err);
        bw_save_release(v);
    }
    if (ck) (void)bw_checkpointer_close(ck, 500, NULL);
    free(m);
    if (rc == 0) return 1;
    must_at(strstr(err.message, "too many open files") != NULL, err.message, "the want is named", __FILE__, __LINE__);
    return 0;
}

static void with_few_descriptors_a_launch_works_or_names_the_want(void **state) {
    (void)state;
    struct place p;
    unsigned room = 0;
    uint64_t newest = 1;
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "first");
    save_filled(ck, 1, STATE);
    close_ok(ck);
    for (int worked = 0; worked == 0; room++) {
        must_at(room < 64, NULL, "64 descriptors are enough", __FILE__, __LINE__);
        worked = reap(spawn(with_descriptors, &p, room));
        must(worked == 0 || worked == 1);
        if (worked) newest = 100 + room;
        check_bytes(&p, newest, STATE, newest);
    }
    (void)printf("             %u descriptors are enough\n", room - 1);
    must(room > 3);
    ck = open_alone(&p, "last");
    must_eq(resumed_of(ck).step, newest);
    save_filled(ck, 1000, STATE);
    close_ok(ck);
    must_be_sound(&p);
    place_drop(&p);
}

/* A file size that stops the save somewhere: at a pack, at a small object, at the history entry. */
static int with_small_files(void *arg, unsigned bytes) {
    struct place *p = arg;
    struct bw_error err = BW_ERROR_INIT;
    char launch[32];
    (void)snprintf(launch, sizeof launch, "files-%u", bytes);
    struct bw_checkpointer *ck = open_alone(p, launch);
    void *m = malloc(STATE);
    limit_files(bytes);
    struct bw_save *v = begin_filled(ck, 10 + resumed_of(ck).step, m, STATE);
    must_fail(bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err), BW_E_LIMIT, &err, "file too large");
    must_at(strstr(err.message, "runs/run/") != NULL, err.message, "the object is named", __FILE__, __LINE__);
    bw_save_release(v);
    unlimit_files();
    save_filled(ck, 20 + resumed_of(ck).step, STATE);
    close_ok(ck);
    free(m);
    return 0;
}

static void where_files_may_not_grow_the_save_fails_by_name_and_the_next_one_works(void **state) {
    (void)state;
    const unsigned bytes[] = {0, 100, 600, 4096, 65536, 3 * MIB};
    struct place p;
    uint64_t step = 1;
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "first");
    save_filled(ck, step, STATE);
    close_ok(ck);
    for (unsigned i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        must_eq(reap(spawn(with_small_files, &p, bytes[i])), 0);
        check_bytes(&p, step, STATE, step);
        step += 20;
        check_bytes(&p, UINT64_MAX, STATE, step);
    }
    must_be_sound(&p);
    place_drop(&p);
}

static int with_little_address_space(void *arg, unsigned i) {
    (void)i;
    struct place *p = arg;
    struct bw_options o = options_of(p, "small", 0, 1);
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    limit(RLIMIT_AS, 96 * MIB);
    o.memory_budget_bytes = 256 * MIB;
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_NOMEM, &err, "268435456");
    return 0;
}

static void a_budget_that_cannot_be_had_is_refused_with_its_size(void **state) {
    (void)state;
    if (SANITIZED) skip(); /* shadows take more address space than that */
    in_a_place(with_little_address_space);
}

static int with_few_threads(void *arg, unsigned i) {
    (void)i;
    struct place *p = arg;
    struct bw_options o = options_of(p, "alone", 0, 1);
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    become_stranger();
    limit(RLIMIT_NPROC, 0);
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_IO, &err, "start a thread");
    return 0;
}

static void threads_that_cannot_be_had_are_named(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    in_a_place(with_few_threads);
}

/* What of a ring's work would block is done by threads of the kernel's, which count as the user's. */
static int without_another_thread(void *arg, unsigned i) {
    struct place *p = arg;
    struct bw_checkpointer *ck = NULL;
    (void)i;
    give_to_stranger(p->root);
    become_stranger();
    ck = open_alone(p, "one");
    limit(RLIMIT_NPROC, 0);
    save_filled(ck, 1, STATE);
    close_ok(ck);
    return 0;
}

static void threads_that_the_kernel_cannot_have_fail_no_save(void **state) {
    struct place p;
    (void)state;
    if (geteuid() != 0) skip();
    place_make(&p);
    in_a_process(without_another_thread, &p);
    check_bytes(&p, 1, STATE, 1);
    must_be_sound(&p);
    place_drop(&p);
}

/* --- modes ---- */

static void check_modes(const char *root) {
    char *roots[] = {(char *)(uintptr_t)root, NULL};
    unsigned files = 0;
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    must(walk != NULL);
    for (FTSENT *e = fts_read(walk); e != NULL; e = fts_read(walk)) {
        const unsigned mode = e->fts_statp->st_mode & 0777;
        if (e->fts_info == FTS_D) must_at(mode == 0700, e->fts_path, "a directory has 0700", __FILE__, __LINE__);
        if (e->fts_info == FTS_F) must_at(mode == 0600, e->fts_path, "a file has 0600", __FILE__, __LINE__);
        files += e->fts_info == FTS_F;
    }
    (void)fts_close(walk);
    must(files > 10);
}

static int with_umask(void *arg, unsigned mask) {
    struct place *p = arg;
    (void)umask((mode_t)mask);
    save_and_come_back(p);
    (void)umask(022);
    check_modes(p->remote);
    check_modes(p->local);
    return 0;
}

static void whatever_the_umask_files_have_the_same_modes(void **state) {
    (void)state;
    const unsigned masks[] = {077, 0777, 0};
    for (unsigned i = 0; i < 3; i++) {
        struct place p;
        place_make(&p);
        must_eq(reap(spawn(with_umask, &p, masks[i])), 0);
        place_drop(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_local_tier_is_measured_where_nothing_else_is_asked_for),
        cmocka_unit_test(a_save_does_not_wait_for_the_measuring),
        cmocka_unit_test(without_io_uring_and_userfaultfd_a_save_takes_the_next_path_and_says_which),
        cmocka_unit_test(a_filter_that_comes_later_takes_the_ring_away_and_no_save_fails),
        cmocka_unit_test(under_a_filter_that_refuses_every_convenience_all_works),
        cmocka_unit_test(where_hard_links_are_refused_names_are_given_by_renaming),
        cmocka_unit_test(a_file_system_that_creates_nothing_once_is_refused_by_name),
        cmocka_unit_test(without_huge_pages_all_works),
        cmocka_unit_test(on_one_cpu_all_works),
        cmocka_unit_test(with_64_kib_of_locked_memory_all_works_and_the_doctor_warns),
        cmocka_unit_test(with_few_descriptors_a_launch_works_or_names_the_want),
        cmocka_unit_test(where_files_may_not_grow_the_save_fails_by_name_and_the_next_one_works),
        cmocka_unit_test(a_budget_that_cannot_be_had_is_refused_with_its_size),
        cmocka_unit_test(threads_that_cannot_be_had_are_named),
        cmocka_unit_test(threads_that_the_kernel_cannot_have_fail_no_save),
        cmocka_unit_test(whatever_the_umask_files_have_the_same_modes),
    };
    return run_cases(tests);
}
