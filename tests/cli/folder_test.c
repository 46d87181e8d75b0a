/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of an export when calls fail, each in turn: the error names what failed, and whoever finds an index finds
 * all that it names, of one export. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/folder.h"
#include "test.h"

/* --- calls of the C library, in front of its own ---- */

static unsigned long calls, failing; /* the number of the one that fails; 0: none */
static bool no_renameat2;

static bool fails(void) {
    if (failing == 0 || ++calls != failing) return false;
    errno = EIO;
    return true;
}

int mkdirat(int fd, const char *path, mode_t mode) {
    return fails() ? -1 : (int)syscall(SYS_mkdirat, fd, path, mode);
}
int mkdir(const char *path, mode_t mode) {
    return mkdirat(AT_FDCWD, path, mode);
}
int unlinkat(int fd, const char *path, int flags) {
    return fails() ? -1 : (int)syscall(SYS_unlinkat, fd, path, flags);
}
int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags) {
    if (no_renameat2 && flags != 0) {
        errno = EINVAL;
        return -1;
    }
    return fails() ? -1 : (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}
int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    return renameat2(from_fd, from, to_fd, to, 0);
}
int fsync(int fd) {
    return fails() ? -1 : (int)syscall(SYS_fsync, fd);
}

/* --- exports ---- */

static const char *const names[] = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                    "blobs/0/rng", "metadata/0.json", CLI_INDEX_NAME};
enum { NAMES = sizeof names / sizeof *names };

/* What export number `n` writes. */
static int write_file(struct cli_folder *f, const char *name, char n, struct bw_error *err) {
    int fd = -1;
    int rc = cli_folder_create(f, name, &fd, err);
    if (rc < 0) return rc;
    rc = cli_write_at(fd, &n, 1, 0, name, err);
    const int end = cli_folder_finish(f, fd, name, err);
    return rc < 0 ? rc : end;
}

static int export(const char *dir, bool force, char n, struct bw_error *err) {
    struct cli_folder f;
    int rc = cli_folder_open(dir, force, &f, err);
    if (rc < 0) return rc;
    for (size_t i = 0; rc == 0 && i < NAMES; i++) rc = write_file(&f, names[i], n, err);
    if (rc == 0) rc = cli_folder_publish(&f, err);
    cli_folder_close(&f);
    return rc;
}

static char content(const char *dir, const char *name) {
    char path[700], c = 0;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    if (f == NULL) return '-';
    if (fread(&c, 1, 1, f) != 1) c = '?';
    (void)fclose(f);
    return c;
}

/* Returns which export it is; '-': none. */
static char look(const char *dir) {
    const char index = content(dir, CLI_INDEX_NAME);
    for (size_t i = 0; index != '-' && i < 2; i++) assert_int_equal(content(dir, names[i]), index);
    return index;
}

static bool exists(const char *dir, const char *name) {
    return content(dir, name) != '-';
}

static void put(const char *dir, const char *name, const char *text) {
    char path[700];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
}

static void an_index_names_files_of_one_export_whatever_fails(void **state) {
    (void)state;
    unsigned told = 0, hidden = 0;
    char dir[600];
    bool reached = true;
    for (unsigned long n = 1; reached; n++) {
        struct bw_error err = BW_ERROR_INIT;
        (void)snprintf(dir, sizeof dir, "%s", test_mkdir());
        assert_ok(export(dir, false, 'a', &err), &err);
        calls = 0;
        failing = n;
        const int rc = export(dir, true, 'b', &err);
        reached = calls >= failing;
        failing = 0;
        const char found = look(dir);
        if (rc == 0) assert_int_equal(found, 'b');
        if (rc != 0) assert_fails(rc, BW_E_IO, &err, "\"/");
        if (rc != 0) assert_true(err.os_errno == EIO);
        told += rc != 0;
        hidden += rc == 0 && reached; /* what is left of the stage goes with the next export */
        bw_error_clear(&err);
        assert_ok(export(dir, true, 'c', &err), &err);
        assert_int_equal(look(dir), 'c');
        assert_false(exists(dir, ".breakwater-export/0"));
        test_rmdir(dir);
    }
    assert_true(told > 15 && hidden < 10);
}

/* As on file systems that know no rename without replacing. */
static void without_that_call_nobody_elses_file_is_replaced_either(void **state) {
    (void)state;
    for (int without = 0; without < 2; without++) {
        struct bw_error err = BW_ERROR_INIT;
        const char *dir = test_mkdir();
        struct cli_folder f;
        no_renameat2 = without;
        assert_ok(cli_folder_open(dir, false, &f, &err), &err);
        for (size_t i = 0; i < NAMES; i++) assert_ok(write_file(&f, names[i], 'a', &err), &err);
        put(dir, names[1], "mine");
        assert_fails(cli_folder_publish(&f, &err), BW_E_EXISTS, &err, names[1]);
        cli_folder_close(&f);
        assert_int_equal(content(dir, names[1]), 'm');
        assert_false(exists(dir, CLI_INDEX_NAME));
        bw_error_clear(&err);
        assert_ok(export(dir, true, 'b', &err), &err); /* now it is an earlier export's */
        assert_int_equal(look(dir), 'b');
        no_renameat2 = false;
        test_rmdir(dir);
    }
}

/* --- what cannot be done ---- */

/* A link in the stage's place: the files that lie behind it are somebody else's, whatever they are called. */
static void a_stage_that_is_a_link_is_not_entered(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    char path[700];
    const char *dir = test_mkdir();
    (void)snprintf(path, sizeof path, "%s/others", dir);
    assert_int_equal(mkdir(path, 0777), 0);
    put(dir, "others/1", "mine");
    (void)snprintf(path, sizeof path, "%s/.breakwater-export", dir);
    assert_int_equal(symlink("others", path), 0);
    assert_fails(export(dir, true, 'a', &err), BW_E_IO, &err, "/.breakwater-export\"");
    assert_int_equal(content(dir, "others/1"), 'm');
    assert_int_equal(content(dir, "others/0"), '-');
    assert_int_equal(look(dir), '-');
    test_rmdir(dir);
}

static void an_errno_becomes_the_status_that_fits(void **state) {
    static const struct {
        int os_errno, status;
    } pairs[] = {{ENOSPC, BW_E_NOSPACE}, {EDQUOT, BW_E_NOSPACE},  {EACCES, BW_E_ACCESS}, {EPERM, BW_E_ACCESS},
                 {EROFS, BW_E_ACCESS},   {ENOENT, BW_E_NOTFOUND}, {EEXIST, BW_E_EXISTS}, {ENOMEM, BW_E_NOMEM},
                 {EIO, BW_E_IO},         {EMFILE, BW_E_IO}};
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct bw_error err = BW_ERROR_INIT;
        assert_fails(cli_fail_errno(&err, pairs[i].os_errno, "open \"x\""), pairs[i].status, &err, "open \"x\": ");
        assert_int_equal(err.os_errno, pairs[i].os_errno);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_index_names_files_of_one_export_whatever_fails),
        cmocka_unit_test(without_that_call_nobody_elses_file_is_replaced_either),
        cmocka_unit_test(a_stage_that_is_a_link_is_not_entered),
        cmocka_unit_test(an_errno_becomes_the_status_that_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
