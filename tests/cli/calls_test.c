/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs when calls of the C library fail: what failed is told, no half export is found, and no descriptor stays open.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/export.h"
#include "cli/import.h"
#include "cli/tiers.h"
#include "test.h"

/* --- calls of the C library, in front of its own ---- */

static struct {
    unsigned long writes, failing_write; /* the number of the one that fails; 0: none */
    bool no_lists, no_random, no_threads, terminal, little_space, full_disk, bad_close;
    bool catches; /* the end of the process */
    jmp_buf caught;
} call;

/* A pointer to a function is none to an object. */
#define REAL(name)                                                                                                     \
    static __typeof__(&(name)) real;                                                                                   \
    if (real == NULL) {                                                                                                \
        void *at = dlsym(RTLD_NEXT, #name);                                                                            \
        memcpy(&real, &at, sizeof real);                                                                               \
    }

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset) {
    REAL(pwrite)
    errno = EIO;
    return call.failing_write != 0 && ++call.writes == call.failing_write ? -1 : real(fd, bytes, n, offset);
}
DIR *fdopendir(int fd) {
    REAL(fdopendir)
    errno = ENOMEM;
    return call.no_lists ? NULL : real(fd);
}
ssize_t getrandom(void *buf, size_t n, unsigned flags) {
    errno = ENOSYS;
    return call.no_random ? -1 : (ssize_t)syscall(SYS_getrandom, buf, n, flags);
}
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg) {
    REAL(pthread_create)
    return call.no_threads ? EAGAIN : real(t, a, run, arg);
}
int isatty(int fd) {
    REAL(isatty)
    return call.terminal ? 1 : real(fd);
}
int fstatvfs(int fd, struct statvfs *fs) {
    REAL(fstatvfs)
    const int rc = real(fd, fs);
    if (call.little_space) fs->f_blocks = 1, fs->f_frsize = 1, fs->f_bfree = 0;
    return rc;
}
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
    REAL(fallocate)
    errno = ENOSPC;
    return call.full_disk ? -1 : real(fd, mode, offset, bytes);
}
int fclose(FILE *f) {
    REAL(fclose)
    errno = EDQUOT;
    return call.bad_close && f == stdout ? EOF : real(f);
}
void _exit(int code) {
    if (call.catches) longjmp(call.caught, 100 + code);
    (void)syscall(SYS_exit_group, code);
    for (;;) continue;
}

static unsigned open_files(void) {
    unsigned n = 0;
    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* --- verbs ---- */

static int run(const char *verb, const char *const argv[], struct bw_error *err) {
    struct cli_args args = {0};
    int argc = 0;
    while (argv[argc] != NULL) argc++;
    const struct cli_verb *v = cli_verb_find(verb);
    assert_non_null(v);
    bw_error_clear(err);
    int rc = cli_args_parse(v, argc, (char *const *)(uintptr_t)argv, &args, err);
    if (rc == 0) rc = v->run(&args, err);
    cli_args_fini(&args);
    return rc;
}

/* Several files, an index, a blob, and metadata. */
static int export(const char *to, struct bw_error *err) {
    const char *const argv[] = {"gpt",           "1000", "--to",     to,          "--force", "--with-blobs",
                                "--shard-bytes", "60",   "--remote", "file:///x", NULL};
    return run("export", argv, err);
}

static bool is_there(const char *dir, const char *name) {
    char path[700];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void any_write_of_an_export_may_fail(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    struct bw_error err = BW_ERROR_INIT;
    const unsigned before = open_files();
    unsigned failed = 0, of_index = 0, of_blobs = 0;
    int rc = -1;
    for (unsigned long n = 1; rc != 0; n++) {
        call.writes = 0;
        call.failing_write = n;
        rc = export(dir, &err);
        call.failing_write = 0;
        assert_int_equal(open_files(), before);
        assert_int_equal(is_there(dir, CLI_INDEX_NAME), rc == 0);
        assert_false(is_there(dir, ".breakwater-export/0"));
        if (rc == 0) break;
        assert_fails(rc, BW_E_IO, &err, "write \"");
        failed++;
        of_index += strstr(err.message, CLI_INDEX_NAME) != NULL;
        of_blobs += strstr(err.message, "blobs/0/") != NULL;
    }
    assert_true(failed >= 6);
    assert_int_equal(of_index, 1);
    assert_true(of_blobs >= 1);
    assert_true(is_there(dir, "metadata/0.json"));
    test_rmdir(dir);
}

static void a_file_that_does_not_fit_is_refused_before_its_first_byte(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    const unsigned before = open_files();
    for (int asked = 0; asked < 2; asked++) {
        struct bw_error err = BW_ERROR_INIT;
        call.little_space = asked != 0;
        call.full_disk = asked == 0;
        call.writes = 0;
        call.failing_write = 1000;
        const int rc = export(dir, &err);
        const unsigned long writes = call.writes;
        call.little_space = call.full_disk = false;
        call.failing_write = 0;
        assert_fails(rc, BW_E_NOSPACE, &err, "write \"model-00001-of-");
        assert_int_equal(err.os_errno, ENOSPC);
        assert_int_equal(writes, 0);
        assert_int_equal(open_files(), before);
        assert_false(is_there(dir, CLI_INDEX_NAME));
    }
    test_rmdir(dir);
}

static void a_file_larger_than_files_can_be_is_refused(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    struct bw_error err = BW_ERROR_INIT;
    struct cli_export_shard shard = {.bytes = (uint64_t)INT64_MAX, .name = CLI_SINGLE_NAME};
    struct cli_export x = {.run = "gpt", .shards = &shard, .shard_count = 1};
    assert_ok(cli_folder_open(dir, false, &x.folder, &err), &err);
    const unsigned before = open_files();
    assert_fails(cli_export_write(&x, &err), BW_E_LIMIT, &err, "bytes are too many for a file");
    assert_non_null(strstr(err.message, CLI_SINGLE_NAME));
    assert_int_equal(open_files(), before);
    cli_folder_close(&x.folder);
    test_rmdir(dir);
}

static void folders_for_whose_list_there_is_no_memory_are_told(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(export(dir, &err), &err);
    const unsigned before = open_files();
    struct cli_import m = {0};
    call.no_lists = true;
    const int exported = export(dir, &err);
    char said[BW_ERROR_MESSAGE_BYTES];
    (void)snprintf(said, sizeof said, "%s", err.message);
    bw_error_clear(&err);
    const int imported = cli_import_blobs(&m, dir, &err);
    call.no_lists = false;
    assert_int_equal(exported, BW_E_NOMEM);
    assert_non_null(strstr(said, ": out of memory"));
    assert_fails(imported, BW_E_NOMEM, &err, "/blobs\": out of memory");
    assert_int_equal(m.blob_count, 0);
    assert_int_equal(open_files(), before);
    assert_true(is_there(dir, CLI_INDEX_NAME)); /* the earlier export */
    cli_import_close(&m);
    test_rmdir(dir);
}

static void without_random_numbers_nothing_is_imported(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    struct bw_error err = BW_ERROR_INIT;
    const char *const argv[] = {"--run", "new", "--step", "5", "--remote", "file:///x", "--allow-node-local",
                                dir,     NULL};
    assert_ok(export(dir, &err), &err);
    const unsigned before = open_files();
    call.no_random = true;
    const int rc = run("import", argv, &err);
    call.no_random = false;
    assert_fails(rc, BW_E_IO, &err, "no random number for the launch id");
    assert_int_equal(open_files(), before);
    assert_ok(run("import", argv, &err), &err);
    test_rmdir(dir);
}

static int count_call(void *ctx, struct bw_error *err) {
    ++*(unsigned *)ctx;
    return cli_fail(err, BW_E_CORRUPT, "found");
}

/* And does its work in the thread that called. */
static void without_a_thread_no_progress_is_drawn(void **state) {
    (void)state;
    unsigned calls = 0;
    struct bw_error err = BW_ERROR_INIT;
    const struct cli_call long_call = {"verify", count_call, NULL, &calls};
    call.terminal = call.no_threads = true;
    const int rc = cli_call_long(&long_call, &err);
    call.terminal = call.no_threads = false;
    assert_fails(rc, BW_E_CORRUPT, &err, "found");
    assert_int_equal(calls, 1);
}

static void output_that_is_lost_when_it_is_closed_is_a_failure(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    call.bad_close = true;
    const int rc = cli_finish_output(&err);
    call.bad_close = false;
    assert_fails(rc, BW_E_NOSPACE, &err, "write to standard output");
    assert_int_equal(err.os_errno, EDQUOT);
}

static int end_of_memory(void) {
    const int code = setjmp(call.caught);
    call.catches = code == 0;
    if (code == 0) cli_out_of_memory();
    return code - 100;
}

/* What it says, or nothing where nobody can hear it: with exit code 1. */
static void out_of_memory_the_command_says_a_word_and_ends(void **state) {
    (void)state;
    for (int deaf = 0; deaf < 2; deaf++) {
        int ends[2];
        char said[100] = "";
        assert_int_equal(pipe(ends), 0);
        const int keep = dup(STDERR_FILENO);
        (void)dup2(deaf ? ends[0] : ends[1], STDERR_FILENO); /* the end for reading cannot be written */
        const int code = end_of_memory();
        (void)dup2(keep, STDERR_FILENO);
        (void)close(keep);
        (void)close(ends[1]);
        assert_int_equal(code, 1);
        assert_int_equal(read(ends[0], said, sizeof said - 1) > 0, !deaf);
        assert_string_equal(said, deaf ? "" : "breakwater: out of memory\n");
        (void)close(ends[0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_write_of_an_export_may_fail),
        cmocka_unit_test(a_file_that_does_not_fit_is_refused_before_its_first_byte),
        cmocka_unit_test(a_file_larger_than_files_can_be_is_refused),
        cmocka_unit_test(folders_for_whose_list_there_is_no_memory_are_told),
        cmocka_unit_test(without_random_numbers_nothing_is_imported),
        cmocka_unit_test(without_a_thread_no_progress_is_drawn),
        cmocka_unit_test(output_that_is_lost_when_it_is_closed_is_a_failure),
        cmocka_unit_test(out_of_memory_the_command_says_a_word_and_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
