/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel or another process can do between two calls, or refuse, and no test can make a real one do: calls of
 * the C library that answer so. Whatever is half made goes again, and no descriptor stays open. */
#include "base/vec.h"
#include "os/os.h"
#include "os/probe.h"
#include "os/system.h"
#include "scratch.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* --- calls of the C library, in front of its own ---- */

static bool swaps;      /* a FIFO takes the place of what was just looked at */
static bool bad_modes;  /* no mode can be changed */
static bool no_locks;   /* there is no memory for a lock */
static bool no_count;   /* the kernel has no cachestat */
static bool no_answer;  /* userfaultfd opens and does not say what it can do */
static int64_t of_time; /* seconds of the time that a file has; 0: its own */

/* A pointer to a function is none to an object. */
#define REAL(name)                                                                                                     \
    static __typeof__(&(name)) real;                                                                                   \
    if (real == NULL) {                                                                                                \
        void *at = dlsym(RTLD_NEXT, #name);                                                                            \
        memcpy(&real, &at, sizeof real);                                                                               \
    }

int fstatat(int fd, const char *path, struct stat *st, int flags) {
    REAL(fstatat)
    const int rc = real(fd, path, st, flags);
    if (swaps && rc == 0 && (unlinkat(fd, path, 0) != 0 || mkfifoat(fd, path, 0600) != 0)) return -1;
    return rc;
}
int fstat(int fd, struct stat *st) {
    REAL(fstat)
    const int rc = real(fd, st);
    if (of_time != 0) st->st_mtim.tv_sec = of_time;
    return rc;
}
int fchmod(int fd, mode_t mode) {
    REAL(fchmod)
    errno = EIO;
    return bad_modes ? -1 : real(fd, mode);
}
int pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a) {
    REAL(pthread_mutex_init)
    return no_locks ? ENOMEM : real(m, a);
}
int ioctl(int fd, unsigned long request, ...) {
    va_list list;
    va_start(list, request);
    void *arg = va_arg(list, void *);
    va_end(list);
    errno = EINVAL;
    return no_answer && request == UFFDIO_API ? -1 : (int)syscall(SYS_ioctl, fd, request, arg);
}
long syscall(long number, ...) {
    REAL(syscall)
    long a[6];
    va_list list;
    va_start(list, number);
    for (size_t i = 0; i < 6; i++) a[i] = va_arg(list, long); /* more than were given are whatever is there */
    va_end(list);
    errno = ENOSYS;
    return no_count && number == 451 ? -1 : real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* --- a scratch directory ---- */

static struct bwi_os *os;
static const char *dir_path;
static int dir;

static unsigned open_files(void) {
    unsigned n = 0;
    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static int setup(void **state) {
    (void)state;
    return scratch_open(&os, &dir_path, &dir);
}

static int teardown(void **state) {
    (void)state;
    scratch_close(os, dir_path, dir);
    return bwi_alloc_live() != 0;
}

static int new_file(const char *name) {
    const int fd = os->open_new(os, dir, name);
    assert_true(fd >= 0);
    return fd;
}

/* --- cases ---- */

/* Without having waited for whoever writes into it. */
static void a_fifo_that_took_the_place_of_a_file_is_not_read(void **state) {
    (void)state;
    (void)os->close(os, new_file("f"));
    const unsigned before = open_files();
    swaps = true;
    const int fd = os->open_read(os, dir, "f");
    swaps = false;
    assert_int_equal(fd, -EINVAL);
    assert_int_equal(open_files(), before);
}

static void a_new_file_whose_mode_cannot_be_set_is_removed(void **state) {
    (void)state;
    const unsigned before = open_files();
    const mode_t mask = umask(0777);
    bad_modes = true;
    const int fd = os->open_new(os, dir, "f");
    bad_modes = false;
    (void)umask(mask);
    assert_int_equal(fd, -EIO);
    assert_int_equal(open_files(), before);
    assert_int_equal(faccessat(dir, "f", F_OK, 0), -1);
    assert_int_equal(os->close(os, new_file("f")), 0); /* its name is free */
}

static void a_time_that_does_not_fit_is_the_nearest_that_does(void **state) {
    static const struct {
        int64_t seconds, ms;
    } times[] = {{INT64_MAX, INT64_MAX}, {INT64_MIN, INT64_MIN}, {INT64_MAX / 1000 + 1, INT64_MAX}};
    (void)state;
    const int fd = new_file("f");
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct bwi_os_stat st;
        of_time = times[i].seconds;
        const int rc = os->stat_fd(os, fd, &st);
        of_time = 0;
        assert_int_equal(rc, 0);
        assert_true(st.mtime_ms == times[i].ms);
    }
    (void)os->close(os, fd);
}

/* By its count, and where the kernel has none, page by page. */
static void what_the_page_cache_holds_is_told_by_old_kernels_too(void **state) {
    static const uint8_t bytes[10 * 4096 + 100];
    (void)state;
    const long page = sysconf(_SC_PAGESIZE);
    const int fd = new_file("f");
    assert_int_equal(os->pwrite(os, fd, bytes, sizeof bytes, 0), sizeof bytes);
    assert_int_equal(os->fsync(os, fd), 0);
    for (int old = 0; old < 2; old++) {
        no_count = old == 1;
        assert_int_equal(os->cached(os, fd, 0, sizeof bytes), (10 * 4096 / page + 1) * page);
        assert_int_equal(os->cached(os, fd, 4095, 2), page > 4096 ? page : 2 * page);
        assert_int_equal(os->cached(os, fd, 100, 0), 0);
        assert_int_equal(os->cached(os, fd, 1, UINT64_MAX), -EINVAL);
    }
    assert_int_equal(os->advise_done(os, fd, 0, sizeof bytes), 0);
    const int64_t left = os->cached(os, fd, 0, sizeof bytes); /* all of it where the file system is memory */
    no_count = false;
    assert_int_equal(os->cached(os, fd, 0, sizeof bytes), left);
    (void)os->close(os, fd);
}

static void a_type_of_file_that_nobody_knows_is_told_as_such(void **state) {
    (void)state;
    assert_int_equal(bwi_os_type_of(0600), BWI_OS_OTHER);
    assert_int_equal(bwi_os_type_of(S_IFBLK | 0600), BWI_OS_DEVICE);
}

static void a_table_of_faults_without_its_lock_is_not_made(void **state) {
    (void)state;
    struct bwi_os_fault *fault = NULL;
    no_locks = true;
    const int rc = bwi_os_fault_new(os, &fault);
    no_locks = false;
    assert_int_equal(rc, -ENOMEM);
    assert_null(fault);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void userfaultfd_that_does_not_say_what_it_can_do_does_not_work(void **state) {
    (void)state;
    struct bwi_probe_machine m;
    bwi_probe_machine(&m);
    const bool opens = m.userfaultfd == 0;
    const unsigned before = open_files();
    no_answer = true;
    bwi_probe_machine(&m);
    no_answer = false;
    assert_true(opens ? m.userfaultfd == -EINVAL : m.userfaultfd < 0);
    assert_false(m.userfaultfd_write_protect);
    assert_int_equal(open_files(), before);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_fifo_that_took_the_place_of_a_file_is_not_read),
        CASE(a_new_file_whose_mode_cannot_be_set_is_removed),
        CASE(a_time_that_does_not_fit_is_the_nearest_that_does),
        CASE(what_the_page_cache_holds_is_told_by_old_kernels_too),
        CASE(a_type_of_file_that_nobody_knows_is_told_as_such),
        CASE(a_table_of_faults_without_its_lock_is_not_made),
        CASE(userfaultfd_that_does_not_say_what_it_can_do_does_not_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
