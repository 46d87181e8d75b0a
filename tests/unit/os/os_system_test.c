/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's table: files and names. */
#include "os/os.h"
#include "os/thread.h"
#include "scratch.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Each case gets an open scratch directory. */
static struct bwi_os *os;
static const char *dir_path;
static int dir;

static int setup(void **state) {
    (void)state;
    return scratch_open(&os, &dir_path, &dir);
}

static int teardown(void **state) {
    (void)state;
    scratch_close(os, dir_path, dir);
    return 0;
}

static int new_file(const char *name, const char *text) {
    const int fd = os->open_new(os, dir, name);
    assert_true(fd >= 0);
    assert_int_equal(os->pwrite(os, fd, text, strlen(text), 0), strlen(text));
    return fd;
}

static unsigned mode_of(const char *name) {
    struct stat st;
    assert_int_equal(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st.st_mode & 07777;
}

static bool is_there(const char *name) {
    return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void what_is_written_is_read_back(void **state) {
    (void)state;
    const int fd = new_file("f", "hello");
    assert_int_equal(os->pwrite(os, fd, "world", 5, 10), 5);
    assert_int_equal(os->fsync(os, fd), 0);
    char buf[32];
    memset(buf, 'x', sizeof buf);
    assert_int_equal(os->pread(os, fd, buf, 15, 0), 15);
    assert_memory_equal(buf, "hello\0\0\0\0\0world", 15);
    assert_int_equal(os->close(os, fd), 0);
    const int again = os->open_read(os, dir, "f");
    assert_true(again >= 0);
    assert_int_equal(os->pread(os, again, buf, 5, 10), 5);
    assert_memory_equal(buf, "world", 5);
    assert_int_equal(os->close(os, again), 0);
}

static void a_read_is_short_only_at_the_end(void **state) {
    (void)state;
    const int fd = new_file("f", "hello");
    char buf[32];
    assert_int_equal(os->pread(os, fd, buf, sizeof buf, 0), 5);
    assert_int_equal(os->pread(os, fd, buf, sizeof buf, 3), 2);
    assert_int_equal(os->pread(os, fd, buf, sizeof buf, 5), 0);
    assert_int_equal(os->pread(os, fd, buf, sizeof buf, 5000), 0);
    assert_int_equal(os->pread(os, fd, buf, 0, 0), 0);
    assert_int_equal(os->pwrite(os, fd, buf, 0, 0), 0);
    (void)os->close(os, fd);
}

static void an_offset_that_does_not_fit_is_refused(void **state) {
    (void)state;
    const int fd = new_file("f", "hello");
    char buf[8] = {0};
    assert_int_equal(os->pread(os, fd, buf, 1, UINT64_MAX), -EINVAL);
    assert_int_equal(os->pread(os, fd, buf, sizeof buf, INT64_MAX), -EINVAL);
    assert_int_equal(os->pwrite(os, fd, buf, 1, UINT64_MAX), -EFBIG);
    assert_int_equal(os->pwrite(os, fd, buf, sizeof buf, INT64_MAX), -EFBIG);
    assert_int_equal(os->truncate(os, fd, UINT64_MAX), -EFBIG);
    assert_int_equal(os->reserve(os, fd, UINT64_MAX), -EFBIG);
    assert_int_equal(os->advise_done(os, fd, UINT64_MAX, 1), -EINVAL);
    (void)os->close(os, fd);
}

static void a_bad_descriptor_is_an_error_everywhere(void **state) {
    (void)state;
    char buf[8] = {0};
    struct bwi_os_stat st = {.size_bytes = 7};
    struct bwi_os_space space = {.free_bytes = 7};
    assert_int_equal(os->close(os, -1), -EBADF);
    assert_int_equal(os->pread(os, -1, buf, 1, 0), -EBADF);
    assert_int_equal(os->pwrite(os, -1, buf, 1, 0), -EBADF);
    assert_int_equal(os->fsync(os, -1), -EBADF);
    assert_int_equal(os->truncate(os, -1, 0), -EBADF);
    assert_int_equal(os->reserve(os, -1, 1), -EBADF);
    assert_int_equal(os->stat_fd(os, -1, &st), -EBADF);
    assert_int_equal(os->space(os, -1, &space), -EBADF);
    assert_int_equal(os->lock(os, -1), -EBADF);
    assert_int_equal(os->unlock(os, -1), -EBADF);
    assert_int_equal(os->advise_done(os, -1, 0, 1), -EBADF);
    assert_int_equal(st.size_bytes, 7); /* outputs are written on success only */
    assert_int_equal(space.free_bytes, 7);
}

static void writing_to_a_file_opened_for_reading_fails(void **state) {
    (void)state;
    (void)os->close(os, new_file("f", "x"));
    const int fd = os->open_read(os, dir, "f");
    assert_int_equal(os->pwrite(os, fd, "y", 1, 0), -EBADF);
    (void)os->close(os, fd);
}

static void a_new_file_must_be_new(void **state) {
    (void)state;
    (void)os->close(os, new_file("f", "x"));
    assert_int_equal(os->open_new(os, dir, "f"), -EEXIST);
    assert_int_equal(symlinkat("nowhere", dir, "dangling"), 0);
    assert_int_equal(os->open_new(os, dir, "dangling"), -EEXIST);
    assert_false(is_there("nowhere"));
    assert_int_equal(os->open_new(os, dir, "no/such"), -ENOENT);
}

static void modes_do_not_depend_on_the_umask(void **state) {
    (void)state;
    const mode_t masks[] = {0000, 0022, 0077, 0277, 0777};
    const mode_t before = umask(0);
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        char name[16];
        (void)umask(masks[i]);
        (void)snprintf(name, sizeof name, "f%zu", i);
        (void)os->close(os, os->open_new(os, dir, name));
        assert_int_equal(mode_of(name), 0600);
        (void)snprintf(name, sizeof name, "d%zu", i);
        assert_int_equal(os->mkdir(os, dir, name), 0);
        assert_int_equal(mode_of(name), 0700);
    }
    (void)umask(before);
}

static void a_directory_keeps_the_group_bit_of_the_one_above(void **state) {
    (void)state;
    assert_int_equal(fchmod(dir, 02700), 0);
    const mode_t before = umask(0777);
    assert_int_equal(os->mkdir(os, dir, "d"), 0);
    (void)umask(before);
    assert_int_equal(mode_of("d") & 0777, 0700);
    struct stat st;
    assert_int_equal(fstat(dir, &st), 0);
    assert_int_equal(mode_of("d") & S_ISGID, st.st_mode & S_ISGID);
}

static void only_regular_files_are_opened_for_reading(void **state) {
    (void)state;
    (void)os->close(os, new_file("file", "x"));
    assert_int_equal(mkfifoat(dir, "fifo", 0600), 0);
    assert_int_equal(mkdirat(dir, "dir", 0700), 0);
    assert_int_equal(symlinkat("file", dir, "link"), 0);
    assert_int_equal(symlinkat("nowhere", dir, "dangling"), 0);
    assert_int_equal(symlinkat("loop", dir, "loop"), 0);
    const char *bad[] = {"fifo", "dir", "link", "dangling", "loop"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(os->open_read(os, dir, bad[i]), -EINVAL);
    }
    assert_int_equal(os->open_read(os, dir, "missing"), -ENOENT);
    assert_int_equal(os->open_read(os, dir, "file/x"), -ENOTDIR);
}

static void devices_and_sockets_are_not_opened(void **state) {
    (void)state;
    const int dev = os->open_root(os, "/dev", false);
    assert_true(dev >= 0);
    assert_int_equal(os->open_read(os, dev, "null"), -EINVAL);
    assert_int_equal(os->open_read(os, dev, "zero"), -EINVAL);
    (void)os->close(os, dev);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    (void)snprintf(name.sun_path, sizeof name.sun_path, "%s/socket", dir_path);
    const int s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (const struct sockaddr *)&name, sizeof name), 0);
    assert_int_equal(os->open_read(os, dir, "socket"), -EINVAL);
    (void)close(s);
}

/* A writer that waits in open() must go on waiting: opening the FIFO to look at it would let it through. */
static void a_fifo_is_not_even_touched(void **state) {
    (void)state;
    assert_int_equal(mkfifoat(dir, "fifo", 0600), 0);
    assert_int_equal(os->open_read(os, dir, "fifo"), -EINVAL);
    assert_int_equal(openat(dir, "fifo", O_WRONLY | O_NONBLOCK), -1);
    assert_int_equal(errno, ENXIO);
}

static void descriptors_are_closed_on_exec_and_block(void **state) {
    (void)state;
    const int made = new_file("f", "x");
    const int read = os->open_read(os, dir, "f");
    assert_int_equal(os->mkdir(os, dir, "d"), 0);
    const int below = os->open_dir(os, dir, "d");
    const int fds[] = {dir, made, read, below};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        assert_true(fds[i] >= 0);
        assert_int_equal(fcntl(fds[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        assert_int_equal(fcntl(fds[i], F_GETFL) & O_NONBLOCK, 0);
    }
    for (size_t i = 1; i < sizeof fds / sizeof fds[0]; i++) assert_int_equal(os->close(os, fds[i]), 0);
}

static void only_directories_are_opened_as_such(void **state) {
    (void)state;
    (void)os->close(os, new_file("file", "x"));
    assert_int_equal(os->mkdir(os, dir, "d"), 0);
    assert_int_equal(symlinkat("d", dir, "link"), 0);
    assert_int_equal(os->open_dir(os, dir, "file"), -ENOTDIR);
    assert_int_equal(os->open_dir(os, dir, "link"), -ENOTDIR);
    assert_int_equal(os->open_dir(os, dir, "missing"), -ENOENT);
    assert_int_equal(os->mkdir(os, dir, "d"), -EEXIST);
}

static void stat_tells_type_size_and_identity(void **state) {
    (void)state;
    const int fd = new_file("f", "hello");
    struct bwi_os_stat by_fd;
    struct bwi_os_stat by_name;
    assert_int_equal(os->link(os, dir, "f", "g"), 0);
    assert_int_equal(os->stat_fd(os, fd, &by_fd), 0);
    assert_int_equal(os->stat_at(os, dir, "g", &by_name), 0);
    assert_int_equal(by_fd.type, BWI_OS_FILE);
    assert_int_equal(by_fd.size_bytes, 5);
    assert_int_equal(by_fd.nlink, 2);
    assert_int_equal(by_fd.inode, by_name.inode);
    assert_int_equal(by_fd.device, by_name.device);
    const int64_t age = (int64_t)time(NULL) - by_fd.mtime_ms / 1000;
    assert_true(age >= -2 && age <= 60);
    assert_int_equal(os->mkdir(os, dir, "d"), 0);
    assert_int_equal(os->stat_at(os, dir, "d", &by_name), 0);
    assert_int_equal(by_name.type, BWI_OS_DIR);
    assert_int_equal(symlinkat("f", dir, "l"), 0);
    assert_int_equal(os->stat_at(os, dir, "l", &by_name), 0);
    assert_int_equal(by_name.type, BWI_OS_SYMLINK); /* the link itself */
    assert_int_equal(os->stat_at(os, dir, "missing", &by_name), -ENOENT);
    (void)os->close(os, fd);
}

static void truncating_cuts_and_extends(void **state) {
    (void)state;
    const int fd = new_file("f", "hello");
    struct bwi_os_stat st;
    assert_int_equal(os->truncate(os, fd, 2), 0);
    assert_int_equal(os->stat_fd(os, fd, &st), 0);
    assert_int_equal(st.size_bytes, 2);
    assert_int_equal(os->truncate(os, fd, 4), 0);
    char buf[8];
    assert_int_equal(os->pread(os, fd, buf, sizeof buf, 0), 4);
    assert_memory_equal(buf, "he\0\0", 4);
    (void)os->close(os, fd);
}

static void reserving_allocates_or_says_that_it_cannot(void **state) {
    (void)state;
    const int fd = new_file("f", "hello");
    const uint64_t bytes = UINT64_C(1) << 20;
    const int rc = os->reserve(os, fd, bytes);
    struct bwi_os_stat st;
    assert_int_equal(os->stat_fd(os, fd, &st), 0);
    if (rc == 0) {
        assert_int_equal(st.size_bytes, bytes);
        assert_true(st.alloc_bytes >= bytes);
    } else {
        assert_int_equal(rc, -EOPNOTSUPP);
        assert_int_equal(st.size_bytes, 5); /* nothing was emulated by writing zeros */
    }
    assert_int_equal(os->reserve(os, fd, 0), 0);
    char buf[5];
    assert_int_equal(os->pread(os, fd, buf, 5, 0), 5);
    assert_memory_equal(buf, "hello", 5);
    (void)os->close(os, fd);
}

/* At once, and without having filled the disk on the way to the answer. */
static void reserving_more_than_there_is_fails(void **state) {
    (void)state;
    const int fd = new_file("f", "");
    struct bwi_os_space space;
    assert_int_equal(os->space(os, fd, &space), 0);
    const int rc = os->reserve(os, fd, space.total_bytes + (UINT64_C(1) << 30));
    assert_true(rc == -ENOSPC || rc == -EOPNOTSUPP || rc == -EFBIG);
    struct bwi_os_stat st;
    assert_int_equal(os->stat_fd(os, fd, &st), 0);
    assert_int_equal(st.alloc_bytes, 0);
    (void)os->close(os, fd);
}

static void a_link_never_replaces(void **state) {
    (void)state;
    (void)os->close(os, new_file("a", "a"));
    (void)os->close(os, new_file("b", "b"));
    assert_int_equal(os->link(os, dir, "a", "b"), -EEXIST);
    assert_int_equal(os->link(os, dir, "missing", "c"), -ENOENT);
    assert_int_equal(symlinkat("a", dir, "s"), 0);
    assert_int_equal(os->link(os, dir, "s", "t"), 0);
    struct bwi_os_stat st;
    assert_int_equal(os->stat_at(os, dir, "t", &st), 0);
    assert_int_equal(st.type, BWI_OS_SYMLINK); /* the symbolic link was not followed */
}

static void renaming_to_a_new_name_never_replaces(void **state) {
    (void)state;
    (void)os->close(os, new_file("a", "a"));
    (void)os->close(os, new_file("b", "bb"));
    const int rc = os->rename_new(os, dir, "a", "b");
    if (rc == -EOPNOTSUPP) skip();
    assert_int_equal(rc, -EEXIST);
    assert_int_equal(os->rename_new(os, dir, "a", "c"), 0);
    assert_false(is_there("a"));
    assert_true(is_there("c"));
    assert_int_equal(os->rename_new(os, dir, "missing", "d"), -ENOENT);
}

static void moving_to_another_directory_never_replaces(void **state) {
    (void)state;
    assert_int_equal(os->mkdir(os, dir, "d"), 0);
    const int to = os->open_dir(os, dir, "d");
    (void)os->close(os, new_file("a", "a"));
    (void)os->close(os, new_file("d/b", "bb"));
    const int rc = os->move_new(os, dir, "a", to, "b");
    if (rc != -EOPNOTSUPP) {
        assert_int_equal(rc, -EEXIST);
        assert_int_equal(os->move_new(os, dir, "a", to, "c"), 0);
        assert_false(is_there("a"));
        assert_true(is_there("d/c"));
        assert_int_equal(os->move_new(os, dir, "missing", to, "e"), -ENOENT);
    }
    (void)os->close(os, to);
}

/* Whether it may be written over; whoever else has it open prevents that. */
static int alone(void) {
    const int fd = os->open_alone(os, dir, "f");
    if (fd < 0) return fd;
    assert_int_equal(os->pwrite(os, fd, "new", 3, 0), 3);
    assert_int_equal(os->close(os, fd), 0);
    return 0;
}

static void a_file_is_alone_only_where_nobody_else_has_it(void **state) {
    (void)state;
    (void)os->close(os, new_file("f", "old"));
    if (alone() == -EOPNOTSUPP) skip();
    assert_int_equal(alone(), 0);
    const int reader = os->open_read(os, dir, "f");
    assert_int_equal(alone(), -EBUSY);
    void *map = mmap(NULL, 3, PROT_READ, MAP_PRIVATE, reader, 0);
    (void)os->close(os, reader);
    assert_int_equal(alone(), -EBUSY);
    assert_int_equal(munmap(map, 3), 0);
    assert_int_equal(alone(), 0);
    assert_int_equal(os->link(os, dir, "f", "g"), 0);
    assert_int_equal(alone(), -EBUSY);
    assert_int_equal(os->unlink(os, dir, "g"), 0);
    assert_int_equal(fchmodat(dir, "f", 0640, 0), 0);
    assert_int_equal(alone(), -EBUSY);
    assert_int_equal(fchmodat(dir, "f", 0600, 0), 0);
    assert_int_equal(alone(), 0);
    assert_int_equal(os->open_alone(os, dir, "missing"), -ENOENT);
    assert_int_equal(os->open_alone(os, dir, "."), -EINVAL);
}

/* Who opens it while it is asked for waits for the answer; the signal that the kernel sends must not end this process.
 */
static void asking_whether_a_file_is_alone_survives_who_opens_it_meanwhile(void **state) {
    (void)state;
    (void)os->close(os, new_file("f", "old"));
    const pid_t child = fork();
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            const int fd = openat(dir, "f", O_RDONLY | O_CLOEXEC);
            if (fd >= 0) (void)close(fd);
        }
    }
    for (unsigned i = 0; i < 20000; i++) {
        const int rc = alone();
        assert_true(rc == 0 || rc == -EBUSY || rc == -EOPNOTSUPP || rc == -EWOULDBLOCK);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void renaming_over_replaces(void **state) {
    (void)state;
    (void)os->close(os, new_file("a", "a"));
    (void)os->close(os, new_file("b", "bb"));
    assert_int_equal(os->rename_over(os, dir, "a", "b"), 0);
    struct bwi_os_stat st;
    assert_int_equal(os->stat_at(os, dir, "b", &st), 0);
    assert_int_equal(st.size_bytes, 1);
    assert_int_equal(os->rename_over(os, dir, "a", "b"), -ENOENT);
}

static void files_and_directories_are_removed_each_by_its_own_call(void **state) {
    (void)state;
    (void)os->close(os, new_file("f", "x"));
    assert_int_equal(os->mkdir(os, dir, "d"), 0);
    assert_int_equal(os->mkdir(os, dir, "d/e"), 0);
    assert_int_equal(os->rmdir(os, dir, "f"), -ENOTDIR);
    assert_true(os->unlink(os, dir, "d") < 0);
    assert_int_equal(os->rmdir(os, dir, "d"), -ENOTEMPTY);
    assert_int_equal(os->rmdir(os, dir, "d/e"), 0);
    assert_int_equal(os->rmdir(os, dir, "d"), 0);
    assert_int_equal(os->unlink(os, dir, "f"), 0);
    assert_int_equal(os->unlink(os, dir, "f"), -ENOENT);
    assert_int_equal(os->rmdir(os, dir, "d"), -ENOENT);
}

static void space_is_told(void **state) {
    (void)state;
    struct bwi_os_space space = {0};
    assert_int_equal(os->space(os, dir, &space), 0);
    assert_true(space.total_bytes >= space.free_bytes);
    assert_true(space.total_bytes > 0);
    assert_true(space.fs_type > 0 && space.fs_type <= UINT32_MAX);
}

static void a_lock_is_held_by_one_descriptor(void **state) {
    (void)state;
    const int a = new_file("lock", "");
    const int b = os->open_read(os, dir, "lock");
    assert_int_equal(os->lock(os, a), 0);
    assert_int_equal(os->lock(os, a), 0);
    assert_int_equal(os->lock(os, b), -EWOULDBLOCK);
    assert_int_equal(os->close(os, a), 0);
    assert_int_equal(os->lock(os, b), 0);
    (void)os->close(os, b);
}

static void a_file_to_lock_is_made_once_and_can_be_written(void **state) {
    (void)state;
    const int made = os->open_lock(os, dir, "lock");
    assert_true(made >= 0);
    assert_int_equal(mode_of("lock"), 0600);
    assert_int_equal(os->pwrite(os, made, "x", 1, 0), 1);
    const int there = os->open_lock(os, dir, "lock");
    assert_true(there >= 0);
    char byte = 0;
    assert_int_equal(os->pread(os, there, &byte, 1, 0), 1);
    assert_int_equal(os->pwrite(os, there, "y", 1, 0), 1);
    assert_int_equal(fcntl(there, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(os->close(os, made), 0);
    assert_int_equal(os->close(os, there), 0);
    assert_int_equal(mkfifoat(dir, "fifo", 0600), 0);
    assert_int_equal(mkdirat(dir, "dir", 0700), 0);
    assert_int_equal(symlinkat("nowhere", dir, "dangling"), 0);
    const char *bad[] = {"fifo", "dir", "dangling"};
    for (size_t i = 0; i < 3; i++) assert_int_equal(os->open_lock(os, dir, bad[i]), -EINVAL);
    assert_false(is_there("nowhere"));
}

/* As a forked child has one. */
static void unlocking_lets_go_whoever_has_a_copy_of_the_descriptor(void **state) {
    (void)state;
    const int a = new_file("lock", "");
    const int copy = dup(a);
    const int b = os->open_read(os, dir, "lock");
    assert_true(copy >= 0 && b >= 0);
    assert_int_equal(os->lock(os, a), 0);
    assert_int_equal(os->close(os, a), 0);
    assert_int_equal(os->lock(os, b), -EWOULDBLOCK);
    assert_int_equal(os->unlock(os, copy), 0);
    assert_int_equal(os->lock(os, b), 0);
    (void)os->close(os, copy);
    (void)os->close(os, b);
}

static void the_page_cache_is_advised(void **state) {
    (void)state;
    const int fd = new_file("f", "hello");
    assert_int_equal(os->advise_done(os, fd, 0, 5), 0);
    assert_int_equal(os->advise_done(os, fd, 4096, 0), 0);
    (void)os->close(os, fd);
}

#define FILE_LIMIT (UINT64_C(1) << 20)

/* Writes across the limit, then beyond it. */
static void *write_too_much(void *arg) {
    const int fd = *(const int *)arg;
    static int64_t got[3];
    char buf[8192];
    memset(buf, 'x', sizeof buf);
    got[0] = os->pwrite(os, fd, buf, sizeof buf, FILE_LIMIT - sizeof buf / 2);
    got[1] = os->pwrite(os, fd, buf, sizeof buf, FILE_LIMIT);
    got[2] = os->truncate(os, fd, FILE_LIMIT + 1);
    return got;
}

static void a_file_that_grows_too_large_is_an_error_on_a_library_thread(void **state) {
    (void)state;
    int fd = new_file("f", "x");
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {FILE_LIMIT, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct bwi_thread t = {0};
    const int rc = bwi_thread_start(&t, "writer", write_too_much, &fd);
    void *result = NULL;
    if (rc == 0) (void)pthread_join(t.id, &result);
    (void)setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(rc, 0);
    const int64_t *got = result;
    assert_int_equal(got[0], -EFBIG); /* never short, though half of it was written */
    assert_int_equal(got[1], -EFBIG);
    assert_int_equal(got[2], -EFBIG);
    (void)os->close(os, fd);
}

static volatile sig_atomic_t signals;

static void on_signal(int sig) {
    (void)sig;
    signals = signals + 1;
}

/* A signal every millisecond, without SA_RESTART: large transfers must come out whole. */
static void signals_do_not_cut_a_transfer(void **state) {
    (void)state;
    const size_t bytes = (size_t)32 << 20;
    char *buf = malloc(bytes);
    assert_non_null(buf);
    memset(buf, 'x', bytes);
    const struct sigaction act = {.sa_handler = on_signal};
    struct sigaction before;
    assert_int_equal(sigaction(SIGALRM, &act, &before), 0);
    timer_t timer;
    assert_int_equal(timer_create(CLOCK_MONOTONIC, NULL, &timer), 0);
    const struct itimerspec every = {{0, 1000000}, {0, 1000000}};
    assert_int_equal(timer_settime(timer, 0, &every, NULL), 0);
    const int fd = os->open_new(os, dir, "f");
    const int64_t put = os->pwrite(os, fd, buf, bytes, 0);
    const int synced = os->fsync(os, fd);
    const int64_t got = os->pread(os, fd, buf, bytes, 0);
    (void)timer_delete(timer);
    (void)sigaction(SIGALRM, &before, NULL);
    assert_int_equal(put, bytes);
    assert_int_equal(synced, 0);
    assert_int_equal(got, bytes);
    assert_true(signals > 0);
    (void)os->close(os, fd);
    free(buf);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(what_is_written_is_read_back),
        CASE(a_read_is_short_only_at_the_end),
        CASE(an_offset_that_does_not_fit_is_refused),
        CASE(a_bad_descriptor_is_an_error_everywhere),
        CASE(writing_to_a_file_opened_for_reading_fails),
        CASE(a_new_file_must_be_new),
        CASE(modes_do_not_depend_on_the_umask),
        CASE(a_directory_keeps_the_group_bit_of_the_one_above),
        CASE(only_regular_files_are_opened_for_reading),
        CASE(devices_and_sockets_are_not_opened),
        CASE(a_fifo_is_not_even_touched),
        CASE(descriptors_are_closed_on_exec_and_block),
        CASE(only_directories_are_opened_as_such),
        CASE(stat_tells_type_size_and_identity),
        CASE(truncating_cuts_and_extends),
        CASE(reserving_allocates_or_says_that_it_cannot),
        CASE(reserving_more_than_there_is_fails),
        CASE(a_link_never_replaces),
        CASE(renaming_to_a_new_name_never_replaces),
        CASE(moving_to_another_directory_never_replaces),
        CASE(a_file_is_alone_only_where_nobody_else_has_it),
        CASE(asking_whether_a_file_is_alone_survives_who_opens_it_meanwhile),
        CASE(renaming_over_replaces),
        CASE(files_and_directories_are_removed_each_by_its_own_call),
        CASE(space_is_told),
        CASE(a_lock_is_held_by_one_descriptor),
        CASE(a_file_to_lock_is_made_once_and_can_be_written),
        CASE(unlocking_lets_go_whoever_has_a_copy_of_the_descriptor),
        CASE(the_page_cache_is_advised),
        CASE(a_file_that_grows_too_large_is_an_error_on_a_library_thread),
        CASE(signals_do_not_cut_a_transfer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
