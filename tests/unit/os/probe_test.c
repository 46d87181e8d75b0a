/* SPDX-License-Identifier: Apache-2.0 */
/* What a machine and a directory can do: held against what the kernel says in other ways, and tried with limits
 * lowered. */
#include "os/os.h"
#include "os/probe.h"
#include "os/protect.h"
#include "sanitized.h"
#include "test.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned entries(const char *path) {
    DIR *d = opendir(path);
    assert_non_null(d);
    unsigned n = 0;
    while (readdir(d) != NULL) n++;
    closedir(d);
    return n - 2;
}

static int open_descriptors(void) {
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* ---- the machine ---- */

static void the_machine_says_what_other_calls_say(void **state) {
    (void)state;
    struct bwi_probe_machine m;
    struct rlimit r;
    bwi_probe_machine(&m);
    assert_memory_equal(m.kernel, "Linux ", 6);
    assert_int_equal(m.cpus, bwi_os_cpus());
    const uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES);
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    assert_in_range(m.memory_bytes, pages * page / 2, pages * page * 2);
    assert_in_range(m.memory_free_bytes, 1, m.memory_bytes);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
    assert_int_equal(m.descriptors, r.rlim_cur == RLIM_INFINITY ? UINT64_MAX : r.rlim_cur);
    assert_int_equal(m.descriptors_max, r.rlim_max == RLIM_INFINITY ? UINT64_MAX : r.rlim_max);
    assert_true(m.shm_free_bytes <= m.shm_bytes);
}

static void what_does_not_work_says_why(void **state) {
    (void)state;
    struct bwi_probe_machine m;
    bwi_probe_machine(&m);
    assert_true(m.io_uring <= 0);
    assert_in_range(m.io_uring_disabled + 1, 0, 3);
    if (m.io_uring_disabled == 2) assert_int_equal(m.io_uring, -EPERM);
    assert_true(m.userfaultfd <= 0);
    assert_in_range(m.userfaultfd_unprivileged + 1, 0, 2);
    if (m.userfaultfd < 0) assert_false(m.userfaultfd_user_only || m.userfaultfd_write_protect);
    const bool known = strcmp(m.huge_pages, "always") == 0 || strcmp(m.huge_pages, "madvise") == 0 ||
                       strcmp(m.huge_pages, "never") == 0 || m.huge_pages[0] == '\0';
    assert_true(known);
    if (m.huge_page_bytes != 0) assert_int_equal(m.huge_page_bytes & (m.huge_page_bytes - 1), 0);
}

static void memory_can_be_protected_where_a_handle_would_do_it(void **state) {
    (void)state;
    struct bwi_probe_machine m;
    struct bwi_protect *os = bwi_protect_system();
    const int fd = os->open(os);
    os->close(os, fd);
    bwi_probe_machine(&m);
    assert_int_equal(m.protection, fd < 0 ? fd : 0);
}

static void probing_leaves_no_descriptor_open(void **state) {
    (void)state;
    struct bwi_probe_machine m;
    struct bwi_probe_dir d;
    const char *dir = test_mkdir();
    const int before = open_descriptors();
    bwi_probe_machine(&m);
    assert_int_equal(bwi_probe_dir(dir, &d), 0);
    assert_int_not_equal(bwi_probe_dir("/nonexistent/dir", &d), 0);
    assert_int_equal(open_descriptors(), before);
    test_rmdir(dir);
}

/* Runs a check in a child, whose limits and privileges may be lowered. */
static void in_child(void (*check)(void)) {
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        check();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("the child says %#x", (unsigned)status);
}

static void with_low_limits(void) {
    struct bwi_probe_machine m;
    const struct rlimit locked = {65536, 65536};
    const struct rlimit files = {100, 200};
    if (setrlimit(RLIMIT_MEMLOCK, &locked) != 0 || setrlimit(RLIMIT_NOFILE, &files) != 0) _exit(1);
    bwi_probe_machine(&m);
    if (m.memlock_bytes != 65536) _exit(2);
    if (m.descriptors != 100 || m.descriptors_max != 200) _exit(3);
}

static void lowered_limits_are_seen(void **state) {
    (void)state;
    in_child(with_low_limits);
}

static void without_descriptors(void) {
    struct bwi_probe_machine m;
    const struct rlimit none = {0, 200};
    if (setrlimit(RLIMIT_NOFILE, &none) != 0) _exit(1);
    bwi_probe_machine(&m);
    if (m.io_uring == 0 || m.userfaultfd == 0 || m.protection == 0) _exit(2);
    if (m.memory_bytes != 0 || m.huge_pages[0] != '\0') _exit(3);
    if (m.io_uring_disabled != -1 || m.userfaultfd_unprivileged != -1) _exit(4);
}

static void a_process_without_descriptors_is_told_that_nothing_is_known(void **state) {
    (void)state;
    in_child(without_descriptors);
}

static void as_nobody(void) {
    struct bwi_probe_machine root;
    struct bwi_probe_machine m;
    bwi_probe_machine(&root);
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    bwi_probe_machine(&m);
    if (m.userfaultfd_unprivileged == 0 && m.userfaultfd == 0 && !m.userfaultfd_user_only) _exit(2);
    if (root.userfaultfd == 0 && root.userfaultfd_user_only) _exit(3);
}

/* Under a user whom nobody else has: its processes are counted. */
static void with_little_memory_and_few_threads(void) {
    struct bwi_probe_machine m;
    const struct rlimit locked = {65536, 65536}, processes = {9 + SANITIZER_THREADS, 9 + SANITIZER_THREADS};
    const uid_t user = 60000 + (uid_t)getpid() % 5000;
    if (setrlimit(RLIMIT_MEMLOCK, &locked) != 0 || setrlimit(RLIMIT_NPROC, &processes) != 0) _exit(1);
    if (setgid(65534) != 0 || setuid(user) != 0) _exit(2);
    bwi_probe_machine(&m);
    if (m.io_uring == 0 && m.ring_memory != -ENOMEM) _exit(3);
    if (m.threads != 8 || m.thread_error != -EAGAIN) _exit(4);
}

static void what_limits_keep_from_a_ring_and_from_threads_is_found_out(void **state) {
    (void)state;
    struct bwi_probe_machine m;
    bwi_probe_machine(&m);
    assert_int_equal(m.threads, BWI_PROBE_THREADS);
    assert_int_equal(m.thread_error, 0);
    assert_true(m.ring_memory <= 0);
    if (m.io_uring < 0) assert_int_equal(m.ring_memory, m.io_uring);
    if (geteuid() == 0) in_child(with_little_memory_and_few_threads);
}

static void without_privileges_only_faults_of_user_mode_are_handled(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    in_child(as_nobody);
}

/* ---- text ---- */

static void the_choice_is_what_stands_in_brackets(void **state) {
    (void)state;
    char mode[8];
    assert_true(bwi_probe_choice("always [madvise] never\n", mode, sizeof mode));
    assert_string_equal(mode, "madvise");
    assert_true(bwi_probe_choice("[]", mode, sizeof mode));
    assert_string_equal(mode, "");
    assert_false(bwi_probe_choice("always madvise never", mode, sizeof mode));
    assert_false(bwi_probe_choice("] always [", mode, sizeof mode));
    assert_false(bwi_probe_choice("[madvised]", mode, sizeof mode));
    assert_false(bwi_probe_choice("", mode, sizeof mode));
}

static void file_systems_have_names(void **state) {
    (void)state;
    char name[16];
    bwi_probe_fs_name(0xef53, name, sizeof name);
    assert_string_equal(name, "ext4");
    bwi_probe_fs_name(0x0bd00bd0, name, sizeof name);
    assert_string_equal(name, "lustre");
    bwi_probe_fs_name(0x12345678, name, sizeof name);
    assert_string_equal(name, "0x12345678");
    bwi_probe_fs_name(UINT64_C(0xffffffff00006969), name, sizeof name); /* a sign that was carried along */
    assert_string_equal(name, "nfs");
}

/* ---- directories ---- */

static void a_directory_can_be_written_and_is_empty_afterwards(void **state) {
    (void)state;
    struct bwi_probe_dir d;
    struct stat st;
    struct statfs fs;
    const char *dir = test_mkdir();
    assert_int_equal(bwi_probe_dir(dir, &d), 0);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(statfs(dir, &fs), 0);
    assert_int_equal(d.device, st.st_dev);
    assert_int_equal(d.total_bytes, (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize);
    assert_true(d.free_bytes > 0 && d.free_bytes <= d.total_bytes);
    assert_int_equal(d.write, 0);
    assert_true(d.direct <= 0 && d.direct != -EILSEQ);
    assert_true(d.fs_name[0] != '\0');
    assert_int_equal(entries(dir), 0);
    test_rmdir(dir);
}

/* A plain open of a file with a name is the other way to find out. */
static void direct_io_is_what_an_open_says(void **state) {
    (void)state;
    const char *dirs[] = {test_mkdir(), access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"};
    for (size_t i = 0; i < 2; i++) {
        struct bwi_probe_dir d;
        char path[256];
        (void)snprintf(path, sizeof path, "%s/probe_test.%ld", dirs[i], (long)getpid());
        const int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
        const int rc = fd < 0 ? -errno : 0;
        if (fd >= 0) (void)close(fd);
        (void)unlink(path);
        assert_int_equal(bwi_probe_dir(dirs[i], &d), 0);
        assert_int_equal(d.direct, rc);
    }
    test_rmdir(dirs[0]);
}

static void what_is_no_directory_is_an_error(void **state) {
    (void)state;
    struct bwi_probe_dir d = {.total_bytes = 7};
    char path[256];
    const char *dir = test_mkdir();
    (void)snprintf(path, sizeof path, "%s/file", dir);
    const int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(bwi_probe_dir(path, &d), -ENOTDIR);
    (void)snprintf(path, sizeof path, "%s/missing", dir);
    assert_int_equal(bwi_probe_dir(path, &d), -ENOENT);
    assert_int_equal(d.total_bytes, 7);
    test_rmdir(dir);
}

/* /proc takes no files, from anybody. */
static void a_directory_that_takes_no_files_says_so(void **state) {
    (void)state;
    struct bwi_probe_dir d;
    assert_int_equal(bwi_probe_dir("/proc", &d), 0);
    assert_true(d.write < 0);
    assert_int_equal(d.direct, d.write);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_says_what_other_calls_say),
        cmocka_unit_test(what_does_not_work_says_why),
        cmocka_unit_test(memory_can_be_protected_where_a_handle_would_do_it),
        cmocka_unit_test(probing_leaves_no_descriptor_open),
        cmocka_unit_test(lowered_limits_are_seen),
        cmocka_unit_test(a_process_without_descriptors_is_told_that_nothing_is_known),
        cmocka_unit_test(what_limits_keep_from_a_ring_and_from_threads_is_found_out),
        cmocka_unit_test(without_privileges_only_faults_of_user_mode_are_handled),
        cmocka_unit_test(the_choice_is_what_stands_in_brackets),
        cmocka_unit_test(file_systems_have_names),
        cmocka_unit_test(a_directory_can_be_written_and_is_empty_afterwards),
        cmocka_unit_test(direct_io_is_what_an_open_says),
        cmocka_unit_test(what_is_no_directory_is_an_error),
        cmocka_unit_test(a_directory_that_takes_no_files_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
