/* SPDX-License-Identifier: Apache-2.0 */
/* Roots and listings. The program's own fsync and readdir stand before those of the C library, to see which directories
 * are synced, to make a sync fail, and to be a file system that does not tell types. */
#include "base/vec.h"
#include "os/os.h"
#include "test.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYNCS 64

static ino_t synced[SYNCS];
static size_t syncs;
static size_t fail_sync_at; /* 1: the next one; 0: none */
static int fail_sync_with;
static bool types_unknown;
static int fail_readdir_with; /* after the first entry */
static bool fail_fdopendir;
static unsigned whole_syncs; /* of file systems */

int syncfs(int fd) {
    (void)fd;
    whole_syncs++;
    return 0;
}

DIR *fdopendir(int fd) {
    static DIR *(*real)(int);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "fdopendir");
    if (!fail_fdopendir) return real(fd);
    errno = ENOMEM;
    return NULL;
}

int fsync(int fd) {
    struct stat st;
    if (fstat(fd, &st) == 0 && syncs < SYNCS) synced[syncs++] = st.st_ino;
    if (fail_sync_at > 0 && --fail_sync_at == 0) {
        errno = fail_sync_with;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

struct dirent *readdir(DIR *stream) {
    static struct dirent *(*real)(DIR *);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "readdir64");
    if (fail_readdir_with != 0) {
        errno = fail_readdir_with;
        return NULL;
    }
    struct dirent *e = real(stream);
    if (e != NULL && types_unknown) e->d_type = DT_UNKNOWN;
    return e;
}

static struct bwi_os *os;
static const char *dir_path;

static int setup(void **state) {
    (void)state;
    os = bwi_os_system();
    dir_path = test_mkdir();
    syncs = 0;
    fail_sync_at = 0;
    types_unknown = false;
    fail_readdir_with = 0;
    return 0;
}

static int teardown(void **state) {
    (void)state;
    fail_readdir_with = 0;
    test_rmdir(dir_path);
    return 0;
}

/* A path below the scratch directory; static. */
static const char *at(const char *below) {
    static char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", dir_path, below);
    return path;
}

static bool was_synced(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (size_t i = 0; i < syncs; i++) {
        if (synced[i] == st.st_ino) return true;
    }
    return false;
}

static void assert_private_dir(const char *path) {
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void a_missing_chain_is_made_private_whatever_the_umask(void **state) {
    (void)state;
    const mode_t masks[] = {0000, 0077, 0777};
    const mode_t before = umask(0);
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        char below[32];
        (void)umask(masks[i]);
        (void)snprintf(below, sizeof below, "%zu/b/c", i);
        const int fd = os->open_root(os, at(below), true);
        assert_true(fd >= 0);
        assert_private_dir(at(below));
        below[3] = '\0';
        assert_private_dir(at(below));
        assert_int_equal(os->close(os, fd), 0);
    }
    (void)umask(before);
}

static void every_directory_above_one_that_was_made_is_synced(void **state) {
    (void)state;
    assert_int_equal(mkdir(at("old"), 0700), 0);
    const int fd = os->open_root(os, at("old/a//b/c/"), true);
    assert_true(fd >= 0);
    assert_true(was_synced(at("old")));
    assert_true(was_synced(at("old/a")));
    assert_true(was_synced(at("old/a/b")));
    assert_true(was_synced(dir_path)); /* whoever made "old" may have died before syncing it */
    (void)os->close(os, fd);
}

static void a_root_that_is_found_has_its_entry_synced_when_asked_to_create(void **state) {
    (void)state;
    assert_int_equal(mkdir(at("root"), 0755), 0);
    int fd = os->open_root(os, at("root"), false);
    assert_true(fd >= 0);
    assert_int_equal(syncs, 0);
    (void)os->close(os, fd);
    fd = os->open_root(os, at("root"), true);
    assert_true(fd >= 0);
    assert_true(was_synced(dir_path));
    struct stat st;
    assert_int_equal(stat(at("root"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0755); /* what is there stays as it is */
    (void)os->close(os, fd);
}

static void a_failed_sync_fails_the_opening(void **state) {
    (void)state;
    /* Of the directory above the one found, of the one found, and of the first one made. */
    for (size_t n = 1; n <= 3; n++) {
        char below[32];
        (void)snprintf(below, sizeof below, "%zu/b", n);
        fail_sync_at = n;
        fail_sync_with = EIO;
        assert_int_equal(os->open_root(os, at(below), true), -EIO);
    }
    fail_sync_at = 1;
    assert_int_equal(os->open_root(os, dir_path, true), -EIO);
}

static void a_read_only_place_above_what_is_found_is_no_error(void **state) {
    (void)state;
    fail_sync_at = 1;
    fail_sync_with = EROFS;
    const int fd = os->open_root(os, dir_path, true);
    assert_true(fd >= 0);
    (void)os->close(os, fd);
}

static void a_root_may_be_a_symbolic_link_or_relative(void **state) {
    (void)state;
    assert_int_equal(mkdir(at("real"), 0700), 0);
    assert_int_equal(symlink("real", at("link")), 0);
    int fd = os->open_root(os, at("link"), true);
    assert_true(fd >= 0);
    (void)os->close(os, fd);
    fd = os->open_root(os, at("link/sub"), true);
    assert_true(fd >= 0);
    (void)os->close(os, fd);
    assert_private_dir(at("real/sub"));
    const int before = open(".", O_PATH | O_DIRECTORY);
    assert_int_equal(chdir(dir_path), 0);
    fd = os->open_root(os, "real/../rel/./x", true);
    assert_int_equal(fchdir(before), 0);
    (void)close(before);
    assert_true(fd >= 0);
    (void)os->close(os, fd);
    assert_private_dir(at("rel/x"));
}

static void a_root_that_cannot_be_is_an_error(void **state) {
    (void)state;
    const int fd = open(at("file"), O_CREAT | O_WRONLY, 0600);
    (void)close(fd);
    assert_int_equal(symlink("nowhere", at("dangling")), 0);
    assert_int_equal(os->open_root(os, at("missing"), false), -ENOENT);
    for (int create = 0; create < 2; create++) {
        assert_int_equal(os->open_root(os, at("file"), create), -ENOTDIR);
        assert_int_equal(os->open_root(os, at("file/x"), create), -ENOTDIR);
        assert_int_equal(os->open_root(os, at("dangling"), create), -ENOENT);
        assert_int_equal(os->open_root(os, "", create), -ENOENT);
    }
    char name[NAME_MAX + 2];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(os->open_root(os, at(name), true), -ENAMETOOLONG);
    char below[NAME_MAX + 16];
    (void)snprintf(below, sizeof below, "a/%s", name);
    assert_int_equal(os->open_root(os, at(below), true), -ENAMETOOLONG);
}

/* Descriptors that are open in this process. */
static size_t open_descriptors(void) {
    size_t n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void no_descriptor_is_left_behind(void **state) {
    (void)state;
    const size_t before = open_descriptors();
    const int fd = os->open_root(os, at("a/b/c/d"), true);
    (void)os->close(os, fd);
    (void)os->open_root(os, at("a/b/c/d/e"), false);
    (void)os->open_root(os, "", true);
    for (size_t n = 1; n < 5; n++) {
        char below[32];
        (void)snprintf(below, sizeof below, "f%zu/b/c", n);
        fail_sync_at = n;
        fail_sync_with = EIO;
        const int root = os->open_root(os, at(below), true);
        if (root >= 0) (void)os->close(os, root);
    }
    assert_int_equal(open_descriptors(), before);
}

static void make_entries(void) {
    assert_int_equal(mkdir(at("dir"), 0700), 0);
    (void)close(open(at("file"), O_CREAT | O_WRONLY, 0600));
    (void)close(open(at(".hidden"), O_CREAT | O_WRONLY, 0600));
    assert_int_equal(symlink("file", at("link")), 0);
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
}

static void check_listing(void) {
    struct bwi_os_dir *d = NULL;
    assert_int_equal(os->dir_open(os, AT_FDCWD, dir_path, &d), 0);
    struct bwi_os_dirent e;
    unsigned seen = 0;
    int rc;
    while ((rc = os->dir_next(os, d, &e)) == 1) {
        const struct {
            const char *name;
            enum bwi_os_type type;
        } known[] = {{"dir", BWI_OS_DIR},
                     {"file", BWI_OS_FILE},
                     {".hidden", BWI_OS_FILE},
                     {"link", BWI_OS_SYMLINK},
                     {"fifo", BWI_OS_FIFO}};
        unsigned found = 0;
        for (unsigned i = 0; i < sizeof known / sizeof known[0]; i++) {
            if (strcmp(e.name, known[i].name) != 0) continue;
            assert_int_equal(e.type, known[i].type);
            found = 1u << i;
        }
        assert_int_not_equal(found, 0); /* neither "." nor ".." nor anything else */
        seen |= found;
    }
    assert_int_equal(rc, 0);
    assert_int_equal(seen, 31);
    assert_int_equal(os->dir_next(os, d, &e), 0);
    os->dir_close(os, d);
}

static void a_listing_gives_names_and_types(void **state) {
    (void)state;
    make_entries();
    check_listing();
}

static void types_that_the_file_system_does_not_tell_are_looked_up(void **state) {
    (void)state;
    make_entries();
    types_unknown = true;
    check_listing();
}

static void a_listing_that_breaks_off_is_an_error_and_not_the_end(void **state) {
    (void)state;
    make_entries();
    struct bwi_os_dir *d = NULL;
    struct bwi_os_dirent e;
    assert_int_equal(os->dir_open(os, AT_FDCWD, dir_path, &d), 0);
    assert_int_equal(os->dir_next(os, d, &e), 1);
    fail_readdir_with = EIO;
    assert_int_equal(os->dir_next(os, d, &e), -EIO);
    os->dir_close(os, d);
}

static void the_longest_name_fits(void **state) {
    (void)state;
    char name[NAME_MAX + 1];
    memset(name, 'n', NAME_MAX);
    name[NAME_MAX] = '\0';
    assert_int_equal(mkdir(at(name), 0700), 0);
    struct bwi_os_dir *d = NULL;
    struct bwi_os_dirent e;
    assert_int_equal(os->dir_open(os, AT_FDCWD, dir_path, &d), 0);
    assert_int_equal(os->dir_next(os, d, &e), 1);
    assert_string_equal(e.name, name);
    os->dir_close(os, d);
}

static void only_a_real_directory_is_listed(void **state) {
    (void)state;
    make_entries();
    struct bwi_os_dir *const untouched = (struct bwi_os_dir *)(uintptr_t)8;
    struct bwi_os_dir *d = untouched;
    const int root = os->open_root(os, dir_path, false);
    assert_int_equal(os->dir_open(os, root, "file", &d), -ENOTDIR);
    assert_int_equal(os->dir_open(os, root, "link", &d), -ENOTDIR);
    assert_int_equal(os->dir_open(os, root, "fifo", &d), -ENOTDIR);
    assert_int_equal(os->dir_open(os, root, "missing", &d), -ENOENT);
    (void)bwi_alloc_fail_at(1);
    assert_int_equal(os->dir_open(os, root, "dir", &d), -ENOMEM);
    (void)bwi_alloc_fail_at(0);
    assert_ptr_equal(d, untouched);
    os->dir_close(os, NULL);
    assert_int_equal(os->dir_open(os, root, ".", &d), 0);
    os->dir_close(os, d);
    (void)os->close(os, root);
    assert_int_equal(bwi_alloc_live(), 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* A directory that may be written but not read: whatever cannot be synced by itself is synced with all of its file
 * system. */
static void what_is_made_in_a_directory_that_cannot_be_read_is_durable_too(void **state) {
    (void)state;
    unsigned whole = 0;
    for (size_t n = 1; n <= 6; n++) {
        char path[600];
        (void)snprintf(path, sizeof path, "%s/made-%zu/below", dir_path, n);
        whole_syncs = 0;
        fail_sync_at = n;
        fail_sync_with = EACCES;
        const int fd = os->open_root(os, path, true);
        fail_sync_at = 0;
        assert_true(fd >= 0);
        assert_int_equal(access(path, F_OK), 0);
        (void)close(fd);
        whole += whole_syncs;
    }
    assert_int_equal(whole, 2); /* for each of the two that are made */
}

static void a_listing_without_memory_leaves_nothing_open(void **state) {
    (void)state;
    struct bwi_os_dir *d = NULL;
    const size_t before = open_descriptors();
    fail_fdopendir = true;
    assert_int_equal(os->dir_open(os, AT_FDCWD, dir_path, &d), -ENOMEM);
    fail_fdopendir = false;
    assert_null(d);
    assert_int_equal(open_descriptors(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_missing_chain_is_made_private_whatever_the_umask),
        CASE(every_directory_above_one_that_was_made_is_synced),
        CASE(a_root_that_is_found_has_its_entry_synced_when_asked_to_create),
        CASE(a_failed_sync_fails_the_opening),
        CASE(a_read_only_place_above_what_is_found_is_no_error),
        CASE(a_root_may_be_a_symbolic_link_or_relative),
        CASE(what_is_made_in_a_directory_that_cannot_be_read_is_durable_too),
        CASE(a_root_that_cannot_be_is_an_error),
        CASE(no_descriptor_is_left_behind),
        CASE(a_listing_without_memory_leaves_nothing_open),
        CASE(a_listing_gives_names_and_types),
        CASE(types_that_the_file_system_does_not_tell_are_looked_up),
        CASE(a_listing_that_breaks_off_is_an_error_and_not_the_end),
        CASE(the_longest_name_fits),
        CASE(only_a_real_directory_is_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
