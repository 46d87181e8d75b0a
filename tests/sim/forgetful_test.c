/* SPDX-License-Identifier: Apache-2.0 */
/* That what the kernel shows of a forgetful disk is a file system, and that a crash takes what was not synced. */
#include "test.h"

#include "forgetful.h"
#include "os/os.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct stage {
    const char *dir;
    struct forgetful *f;
    int root;
};

static void enter(struct stage *s) {
    s->root = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(s->root >= 0);
}

static void open_stage(struct stage *s) {
    s->dir = test_mkdir();
    s->f = forgetful_start(s->dir);
    assert_non_null(s->f);
    enter(s);
}

static void close_stage(struct stage *s) {
    if (s->root >= 0) assert_int_equal(close(s->root), 0);
    forgetful_stop(s->f);
    test_rmdir(s->dir);
}

static void crash(struct stage *s, uint64_t seed) {
    assert_int_equal(close(s->root), 0);
    assert_true(forgetful_crash(s->f, seed));
    enter(s);
}

static void make(const struct stage *s, const char *name, bool synced) {
    const int fd = openat(s->root, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "text", 4, 0), 4);
    if (synced) assert_int_equal(fsync(fd), 0);
    assert_int_equal(close(fd), 0);
}

static bool is_whole(const struct stage *s, const char *name) {
    char buf[8] = "";
    const int fd = openat(s->root, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const ssize_t n = read(fd, buf, sizeof buf);
    assert_int_equal(close(fd), 0);
    return n == 4 && memcmp(buf, "text", 4) == 0;
}

static void what_was_synced_stays_and_what_was_not_may_go(void **state) {
    struct stage s;
    bool lost = false, kept = false;
    (void)state;
    open_stage(&s);
    make(&s, "synced", true);
    assert_int_equal(fsync(s.root), 0);
    for (uint64_t seed = 1; seed <= 20; seed++) {
        char name[16];
        (void)snprintf(name, sizeof name, "loose%u", (unsigned)seed);
        make(&s, name, true);
        crash(&s, seed);
        assert_true(is_whole(&s, "synced"));
        *(is_whole(&s, name) ? &kept : &lost) = true;
    }
    assert_true(lost && kept);
    close_stage(&s);
}

static void without_a_crash_nothing_is_lost(void **state) {
    struct stage s;
    (void)state;
    open_stage(&s);
    make(&s, "loose", false);
    assert_int_equal(close(s.root), 0);
    assert_true(forgetful_go_on(s.f));
    enter(&s);
    assert_true(is_whole(&s, "loose"));
    close_stage(&s);
}

static void the_table_of_the_kernel_works_on_it(void **state) {
    struct bwi_os *os = bwi_os_system();
    struct bwi_os_stat st;
    struct stage s;
    (void)state;
    open_stage(&s);
    make(&s, "a", true);
    assert_int_equal(os->link(os, s.root, "a", "b"), 0);
    assert_int_equal(os->link(os, s.root, "a", "b"), -EEXIST);
    assert_int_equal(os->stat_at(os, s.root, "b", &st), 0);
    assert_int_equal(st.nlink, 2);
    assert_int_equal(os->rename_new(os, s.root, "a", "b"), -EEXIST);
    assert_int_equal(os->rename_over(os, s.root, "a", "c"), 0);
    assert_int_equal(os->mkdir(os, s.root, "d"), 0);
    const int fd = os->open_new(os, s.root, "d/f");
    assert_true(fd >= 0);
    assert_int_equal(os->rmdir(os, s.root, "d"), -ENOTEMPTY);
    assert_int_equal(os->reserve(os, fd, 5000), 0);
    assert_int_equal(os->truncate(os, fd, 7), 0);
    assert_int_equal(os->unlink(os, s.root, "d/f"), 0);
    assert_int_equal(os->pwrite(os, fd, "open still", 10, 0), 10); /* what is open needs no name */
    assert_int_equal(os->lock(os, fd), 0);
    assert_int_equal(os->close(os, fd), 0);
    assert_int_equal(os->rmdir(os, s.root, "d"), 0);
    close_stage(&s);
}

static void whoever_asks_a_disk_that_stands_still_waits_until_he_is_killed(void **state) {
    struct stage s;
    (void)state;
    open_stage(&s);
    assert_int_equal(mkdirat(s.root, "groups", 0700), 0);
    assert_int_equal(fsync(s.root), 0);
    forgetful_aim(s.f, "groups", 1);
    const pid_t pid = fork();
    if (pid == 0) {
        make(&s, "groups/name", true);
        const int fd = openat(s.root, "groups", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)fsync(fd);
        _exit(0);
    }
    while (!forgetful_stands_still(s.f)) (void)usleep(1000);
    assert_int_equal(kill(pid, SIGKILL), 0);
    int status = 0;
    crash(&s, 2);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(faccessat(s.root, "groups", F_OK, 0), 0);
    make(&s, "after", true);
    close_stage(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_synced_stays_and_what_was_not_may_go),
        cmocka_unit_test(without_a_crash_nothing_is_lost),
        cmocka_unit_test(the_table_of_the_kernel_works_on_it),
        cmocka_unit_test(whoever_asks_a_disk_that_stands_still_waits_until_he_is_killed),
    };
    if (!forgetful_is_possible()) {
        (void)printf("skipped: no /dev/fuse\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
