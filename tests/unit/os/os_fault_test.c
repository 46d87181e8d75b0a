/* SPDX-License-Identifier: Apache-2.0 */
/* The table that makes calls fail: it must count right, fire exactly where told, and otherwise be invisible. */
#include "base/vec.h"
#include "os/os.h"
#include "os/thread.h"
#include "test.h"
#include <errno.h>
#include <string.h>

#define BIT(call) (UINT32_C(1) << (call))
#define ALL       (BIT(BWI_OS_CALLS) - 1)

static struct bwi_os *below;
static struct bwi_os_fault *fault;
static struct bwi_os *os; /* the fault table */
static const char *dir_path;
static int dir;

static int setup(void **state) {
    (void)state;
    below = bwi_os_system();
    dir_path = test_mkdir();
    dir = below->open_root(below, dir_path, false);
    if (dir < 0 || bwi_os_fault_new(below, &fault) != 0) return 1;
    os = bwi_os_fault_table(fault);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    bwi_os_fault_free(fault);
    (void)below->close(below, dir);
    test_rmdir(dir_path);
    return bwi_alloc_live() != 0;
}

static void without_a_fault_everything_passes_through(void **state) {
    (void)state;
    const int fd = os->open_new(os, dir, "f");
    assert_true(fd >= 0);
    char buf[8];
    assert_int_equal(os->pwrite(os, fd, "hello", 5, 0), 5);
    assert_int_equal(os->pread(os, fd, buf, sizeof buf, 0), 5);
    assert_memory_equal(buf, "hello", 5);
    assert_int_equal(os->fsync(os, fd), 0);
    assert_int_equal(os->fsync(os, fd), 0);
    assert_int_equal(os->advise_done(os, fd, 0, 5), 0);
    assert_int_equal(os->close(os, fd), 0);
    assert_int_equal(bwi_os_fault_count(fault, BWI_OS_OPEN), 1);
    assert_int_equal(bwi_os_fault_count(fault, BWI_OS_WRITE), 1);
    assert_int_equal(bwi_os_fault_count(fault, BWI_OS_READ), 1);
    assert_int_equal(bwi_os_fault_count(fault, BWI_OS_FSYNC), 2);
    assert_int_equal(bwi_os_fault_count(fault, BWI_OS_CLOSE), 1);
    assert_int_equal(bwi_os_fault_count(fault, BWI_OS_LINK), 0);
    assert_int_equal(bwi_os_fault_count(fault, BWI_OS_CALLS), 0);
    assert_int_equal(bwi_os_fault_fired(fault), 0);
}

static void the_nth_call_fails_and_only_that(void **state) {
    (void)state;
    bwi_os_fault_at(fault, 3, 1, ALL, EIO);
    assert_int_equal(os->mkdir(os, dir, "a"), 0);
    assert_int_equal(os->mkdir(os, dir, "b"), 0);
    assert_int_equal(os->mkdir(os, dir, "c"), -EIO);
    assert_int_equal(os->mkdir(os, dir, "c"), 0); /* it had not happened */
    assert_int_equal(bwi_os_fault_fired(fault), 1);
    assert_int_equal(bwi_os_fault_count(fault, BWI_OS_MKDIR), 4);
}

static void only_the_kinds_in_the_mask_count(void **state) {
    (void)state;
    bwi_os_fault_at(fault, 2, 1, BIT(BWI_OS_RMDIR) | BIT(BWI_OS_SPACE), EIO);
    struct bwi_os_space space;
    assert_int_equal(os->mkdir(os, dir, "a"), 0);
    assert_int_equal(os->rmdir(os, dir, "a"), 0);
    assert_int_equal(os->mkdir(os, dir, "a"), 0);
    assert_int_equal(os->space(os, dir, &space), -EIO);
    assert_int_equal(os->rmdir(os, dir, "a"), 0);
}

static void a_fault_repeats_as_often_as_told(void **state) {
    (void)state;
    bwi_os_fault_at(fault, 1, 3, BIT(BWI_OS_FSYNC), EIO);
    for (int i = 0; i < 3; i++) assert_int_equal(os->fsync(os, dir), -EIO);
    assert_int_equal(os->fsync(os, dir), 0);
    assert_int_equal(bwi_os_fault_fired(fault), 3);
}

static void a_fault_for_ever_stays_until_switched_off(void **state) {
    (void)state;
    bwi_os_fault_at(fault, 2, UINT64_MAX, BIT(BWI_OS_FSYNC), ENOSPC);
    assert_int_equal(os->fsync(os, dir), 0);
    for (int i = 0; i < 1000; i++) assert_int_equal(os->fsync(os, dir), -ENOSPC);
    bwi_os_fault_at(fault, 0, UINT64_MAX, BIT(BWI_OS_FSYNC), ENOSPC);
    assert_int_equal(os->fsync(os, dir), 0);
    assert_int_equal(bwi_os_fault_fired(fault), 1000);
}

static void setting_a_fault_again_starts_from_now(void **state) {
    (void)state;
    bwi_os_fault_at(fault, 2, 1, BIT(BWI_OS_FSYNC), EIO);
    assert_int_equal(os->fsync(os, dir), 0);
    bwi_os_fault_at(fault, 2, 1, BIT(BWI_OS_FSYNC), -EROFS);
    assert_int_equal(os->fsync(os, dir), 0);
    assert_int_equal(os->fsync(os, dir), -EROFS);
}

static void a_failing_write_has_written_half(void **state) {
    (void)state;
    const int fd = os->open_new(os, dir, "f");
    bwi_os_fault_at(fault, 1, 1, BIT(BWI_OS_WRITE), ENOSPC);
    assert_int_equal(os->pwrite(os, fd, "abcdefgh", 8, 0), -ENOSPC);
    char buf[16];
    assert_int_equal(os->pread(os, fd, buf, sizeof buf, 0), 4);
    assert_memory_equal(buf, "abcd", 4);
    (void)os->close(os, fd);
}

static void a_failing_close_has_closed(void **state) {
    (void)state;
    const int fd = os->open_new(os, dir, "f");
    bwi_os_fault_at(fault, 1, 1, BIT(BWI_OS_CLOSE), EIO);
    assert_int_equal(os->close(os, fd), -EIO);
    assert_int_equal(below->fsync(below, fd), -EBADF);
}

static void what_fails_has_not_happened(void **state) {
    (void)state;
    const int fd = os->open_new(os, dir, "f");
    struct bwi_os_stat st;
    bwi_os_fault_at(fault, 1, UINT64_MAX, ALL, EIO);
    assert_int_equal(os->open_new(os, dir, "g"), -EIO);
    assert_int_equal(os->link(os, dir, "f", "g"), -EIO);
    assert_int_equal(os->rename_new(os, dir, "f", "g"), -EIO);
    assert_int_equal(os->rename_over(os, dir, "f", "g"), -EIO);
    assert_int_equal(os->move_new(os, dir, "f", dir, "g"), -EIO);
    assert_int_equal(os->open_alone(os, dir, "f"), -EIO);
    assert_int_equal(os->mkdir(os, dir, "g"), -EIO);
    assert_int_equal(os->unlink(os, dir, "f"), -EIO);
    assert_int_equal(os->truncate(os, fd, 100), -EIO);
    assert_int_equal(os->reserve(os, fd, 100), -EIO);
    assert_int_equal(os->lock(os, fd), -EIO);
    assert_int_equal(below->stat_at(below, dir, "g", &st), -ENOENT);
    assert_int_equal(below->stat_at(below, dir, "f", &st), 0);
    assert_int_equal(st.size_bytes, 0);
    (void)below->close(below, fd);
}

static void every_kind_can_fail(void **state) {
    (void)state;
    const int fd = os->open_new(os, dir, "f");
    char buf[4] = {0};
    struct bwi_os_stat st;
    struct bwi_os_space space;
    struct bwi_os_dir *d = NULL;
    struct bwi_os_dirent e;
    assert_int_equal(os->dir_open(os, dir, ".", &d), 0);
    const uint64_t listings = bwi_os_fault_count(fault, BWI_OS_READDIR);
    bwi_os_fault_at(fault, 1, UINT64_MAX, ALL, EIO);
    assert_int_equal(os->open_root(os, dir_path, true), -EIO);
    assert_int_equal(os->open_dir(os, dir, "."), -EIO);
    assert_int_equal(os->open_read(os, dir, "f"), -EIO);
    assert_int_equal(os->open_lock(os, dir, "f"), -EIO);
    assert_int_equal(os->pread(os, fd, buf, 1, 0), -EIO);
    assert_int_equal(os->stat_fd(os, fd, &st), -EIO);
    assert_int_equal(os->stat_at(os, dir, "f", &st), -EIO);
    assert_int_equal(os->rmdir(os, dir, "f"), -EIO);
    struct bwi_os_dir *none = NULL;
    assert_int_equal(os->dir_open(os, dir, ".", &none), -EIO);
    assert_null(none);
    assert_int_equal(os->dir_next(os, d, &e), -EIO);
    assert_int_equal(os->space(os, dir, &space), -EIO);
    assert_int_equal(bwi_os_fault_count(fault, BWI_OS_READDIR), listings + 2);
    assert_int_equal(bwi_os_fault_fired(fault), 11);
    assert_int_equal(os->unlock(os, fd), 0); /* these never do */
    assert_int_equal(os->advise_done(os, fd, 0, 1), 0);
    os->dir_close(os, d);
    (void)below->close(below, fd);
}

static void tables_can_be_stacked(void **state) {
    (void)state;
    struct bwi_os_fault *upper = NULL;
    assert_int_equal(bwi_os_fault_new(os, &upper), 0);
    struct bwi_os *top = bwi_os_fault_table(upper);
    bwi_os_fault_at(fault, 1, 1, BIT(BWI_OS_FSYNC), EIO);
    assert_int_equal(top->fsync(top, dir), -EIO);
    assert_int_equal(bwi_os_fault_fired(upper), 0);
    assert_int_equal(bwi_os_fault_count(upper, BWI_OS_FSYNC), 1);
    bwi_os_fault_free(upper);
}

static void out_of_memory_is_told(void **state) {
    (void)state;
    struct bwi_os_fault *f = NULL;
    (void)bwi_alloc_fail_at(1);
    assert_int_equal(bwi_os_fault_new(below, &f), -ENOMEM);
    (void)bwi_alloc_fail_at(0);
    assert_null(f);
    bwi_os_fault_free(NULL);
}

#define ROUNDS 2000

static void *stat_often(void *arg) {
    (void)arg;
    struct bwi_os_stat st;
    for (int i = 0; i < ROUNDS; i++) (void)os->stat_fd(os, dir, &st);
    return NULL;
}

static void threads_share_the_counters(void **state) {
    (void)state;
    struct bwi_thread t[4];
    bwi_os_fault_at(fault, 100, 50, BIT(BWI_OS_STAT), EIO);
    for (int i = 0; i < 4; i++) assert_int_equal(bwi_thread_start(&t[i], "stat", stat_often, NULL), 0);
    for (int i = 0; i < 4; i++) bwi_thread_join(&t[i]);
    assert_int_equal(bwi_os_fault_count(fault, BWI_OS_STAT), 4 * ROUNDS);
    assert_int_equal(bwi_os_fault_fired(fault), 50);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(without_a_fault_everything_passes_through),
        CASE(the_nth_call_fails_and_only_that),
        CASE(only_the_kinds_in_the_mask_count),
        CASE(a_fault_repeats_as_often_as_told),
        CASE(a_fault_for_ever_stays_until_switched_off),
        CASE(setting_a_fault_again_starts_from_now),
        CASE(a_failing_write_has_written_half),
        CASE(a_failing_close_has_closed),
        CASE(what_fails_has_not_happened),
        CASE(every_kind_can_fail),
        CASE(tables_can_be_stacked),
        CASE(out_of_memory_is_told),
        CASE(threads_share_the_counters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
