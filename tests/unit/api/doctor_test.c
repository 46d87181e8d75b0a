/* SPDX-License-Identifier: Apache-2.0 */
/* The doctor through the public interface: it tells the truth about directories as they are, and leaves them as they
 * were. */
#include "test.h"
#include <breakwater/catalog.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- calls of the C library, in front of its own ---- */

/* The thread that reads a store's identity is the one that reads back what the racers have written. */
static struct {
    bool no_read, no_unlink; /* of the objects that were raced for */
    pthread_t reader;
} refused;

static bool is_raced_for(const char *path) {
    return path[0] == 'r' && strspn(path + 1, "0123456789") == 2 && path[3] == '\0';
}

__attribute__((visibility("default"))) int openat(int dirfd, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const unsigned mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, unsigned) : 0;
    va_end(args);
    if (refused.no_read && strcmp(path, "store.json") == 0) refused.reader = pthread_self();
    errno = EIO;
    if (refused.no_read && is_raced_for(path) && pthread_equal(refused.reader, pthread_self())) return -1;
    return (int)syscall(SYS_openat, dirfd, path, flags, mode);
}
__attribute__((visibility("default"))) int unlinkat(int dirfd, const char *path, int flags) {
    errno = EIO;
    if (refused.no_unlink && is_raced_for(path)) return -1;
    return (int)syscall(SYS_unlinkat, dirfd, path, flags);
}

static unsigned entries(const char *path) {
    DIR *d = opendir(path);
    if (d == NULL) return 0;
    unsigned n = 0;
    while (readdir(d) != NULL) n++;
    closedir(d);
    return n - 2;
}

static void tell(const struct bw_list *list) {
    struct bw_finding f;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++) {
        print_message("%u %d %s [%s] %s\n", f.severity, f.status, f.tier, f.object, f.message);
    }
}

/* The finding of a check on a tier. */
static struct bw_finding find(const struct bw_list *list, const char *tier, const char *check) {
    struct bw_finding f;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++) {
        if (strcmp(f.tier, tier) == 0 && strcmp(f.object, check) == 0) return f;
    }
    tell(list);
    fail_msg("nothing is said about %s %s", tier, check);
    return f;
}

static void expect(const struct bw_list *list, const char *tier, const char *check, uint32_t severity,
                   const char *text) {
    const struct bw_finding f = find(list, tier, check);
    if (f.severity != severity || strstr(f.message, text) == NULL) {
        fail_msg("%s %s: expected %u \"%s\", found %u: %s", tier, check, severity, text, f.severity, f.message);
    }
}

static size_t damages(const struct bw_list *list) {
    struct bw_finding f;
    size_t n = 0;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++) n += f.severity == 2;
    return n;
}

static int doctor(const char *remote, const char *local, struct bw_list **ret_list, struct bw_error *err) {
    struct bw_doctor_options o = BW_DOCTOR_OPTIONS_INIT;
    o.remote_url = remote;
    o.local_url = local;
    return bw_doctor(&o, ret_list, err);
}

static struct bw_list *examine(const char *remote, const char *local) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    assert_ok(doctor(remote, local, &list, &err), &err);
    assert_non_null(list);
    return list;
}

static void write_file(const char *dir, const char *name, const char *text) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* ---- what is examined ---- */

static void without_tiers_the_machine_alone_is_examined(void **state) {
    (void)state;
    static const char *const checks[] = {"kernel",        "CPUs",        "memory",  "/dev/shm", "huge pages",
                                         "locked memory", "descriptors", "threads", "io_uring", "userfaultfd"};
    struct bw_list *list = examine(NULL, NULL);
    assert_int_equal(bw_list_count(list), sizeof checks / sizeof *checks);
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) (void)find(list, "", checks[i]);
    assert_int_equal(damages(list), 0);
    bw_list_free(list);
    list = examine("", "");
    assert_int_equal(bw_list_count(list), sizeof checks / sizeof *checks);
    bw_list_free(list);
}

/* Of the local tier, where it is a disk of this node; of nothing else. */
static void expect_depth(struct bw_list *list) {
    struct bw_finding f;
    bool is_disk = true;
    unsigned said = 0;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++) {
        if (strcmp(f.tier, "local") == 0 && strcmp(f.object, "file system") == 0)
            is_disk = strstr(f.message, "tmpfs") == NULL && strstr(f.message, "of this node alone") != NULL;
        if (strcmp(f.object, "depth") != 0) continue;
        said++;
        assert_string_equal(f.tier, "local");
        assert_non_null(strstr(f.message, " writes of 4 MiB in flight"));
    }
    assert_int_equal(said, is_disk);
}

static void empty_directories_are_examined_and_stay_empty(void **state) {
    (void)state;
    const char *remote = test_mkdir();
    const char *local = test_mkdir();
    struct bw_list *list = examine(remote, local);
    static const char *const tiers[] = {"remote", "local"};
    for (int i = 0; i < 2; i++) {
        expect(list, tiers[i], "store", 0, "file:///");
        expect(list, tiers[i], "store.json", 0, "not a store yet");
        expect(list, tiers[i], "create once", 0, "holds: 48 races of 4 handles");
        (void)find(list, tiers[i], "file system");
        (void)find(list, tiers[i], "direct I/O");
        (void)find(list, tiers[i], "space");
    }
    expect(list, "", "same device", 1, "they fail together");
    assert_int_equal(damages(list), 0);
    expect_depth(list);
    bw_list_free(list);
    assert_int_equal(entries(remote), 0);
    assert_int_equal(entries(local), 0);
    test_rmdir(remote);
    test_rmdir(local);
}

static void one_tier_is_enough(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    struct bw_finding f;
    for (int i = 0; i < 2; i++) {
        struct bw_list *list = examine(i == 0 ? dir : NULL, i == 0 ? NULL : dir);
        expect(list, i == 0 ? "remote" : "local", "create once", 0, "holds");
        for (size_t k = 0; bw_list_finding(list, k, &f); k++) {
            assert_string_not_equal(f.tier, i == 0 ? "local" : "remote");
            assert_string_not_equal(f.object, "same device");
        }
        bw_list_free(list);
    }
    assert_int_equal(entries(dir), 0);
    test_rmdir(dir);
}

static void directories_that_are_not_there_are_gone_again(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    static const struct {
        const char *scheme, *path;
    } forms[] = {{"", "/a/b/c"}, {"file://", "/a%20b/c%2Bd/"}, {"", "//a//b//"}, {"", "/a"}, {"", "/a/../b"}};
    write_file(dir, "other", "somebody else's");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char url[512];
        (void)snprintf(url, sizeof url, "%s%s%s", forms[i].scheme, dir, forms[i].path);
        struct bw_list *list = examine(url, NULL);
        if (strstr(url, "..") == NULL) {
            expect(list, "remote", "store", 1, "it was made for this examination and is gone again");
            expect(list, "remote", "create once", 0, "holds");
        }
        bw_list_free(list);
        if (entries(dir) != 1) fail_msg("%s leaves something behind", url);
    }
    test_rmdir(dir);
}

static void a_store_is_left_as_it_is(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    char path[512];
    struct stat before;
    struct stat after;
    write_file(dir, "store.json", "{}");
    (void)snprintf(path, sizeof path, "%s/runs", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(stat(path, &before), 0);
    struct bw_list *list = examine(NULL, dir);
    expect(list, "local", "store.json", 2, "store.json");
    expect(list, "local", "create once", 0, "holds");
    assert_int_equal(damages(list), 1);
    bw_list_free(list);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(entries(dir), 2);
    test_rmdir(dir);
}

/* A launch refuses such a remote store; a local one gets a new identity. */
static void runs_without_an_identity_are_told(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    char path[512];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, i == 0 ? "runs" : "runs/demo");
        assert_int_equal(mkdir(path, 0700), 0);
        struct bw_list *list = examine(dir, NULL);
        expect(list, "remote", "store.json", i == 0 ? 0 : 2,
               i == 0 ? "not a store yet; the first launch makes it one" : "every launch is refused");
        bw_list_free(list);
    }
    struct bw_list *list = examine(NULL, dir);
    expect(list, "local", "store.json", 0, "the first launch makes it one");
    bw_list_free(list);
    test_rmdir(dir);
}

static void a_store_tells_its_identity(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    char text[4096] = "";
    FILE *f = fopen(BW_SOURCE_DIR "/tests/golden/format/json/good-store.json", "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    assert_int_equal(fclose(f), 0);
    write_file(dir, "store.json", text);
    struct bw_list *list = examine(dir, NULL);
    const struct bw_finding x = find(list, "remote", "store.json");
    assert_int_equal(x.severity, 0);
    assert_memory_equal(x.message, "store ", 6);
    assert_non_null(strstr(text, x.message + 6));
    assert_int_equal(strlen(x.message), 6 + 32);
    bw_list_free(list);
    test_rmdir(dir);
}

static void memory_is_raced_too(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = examine("memory:doctor", NULL);
    expect(list, "remote", "create once", 0, "holds: 48 races of 4 handles");
    bw_list_free(list);
    struct bw_catalog *catalog = NULL;
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    o.remote_url = "memory:doctor";
    assert_fails(bw_catalog_open(&o, &catalog, &err), BW_E_NOTFOUND, &err, "no such bucket");
}

/* ---- what cannot be ---- */

static void arguments_that_make_no_sense_are_refused(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    assert_fails(doctor("/tmp", NULL, NULL, &err), BW_E_INVALID, &err, "ret_list is null");
    assert_fails(doctor("relative/path", NULL, &list, &err), BW_E_INVALID, &err, "remote tier: store \"relative");
    assert_fails(doctor("s3://bucket/x", NULL, &list, &err), BW_E_UNSUPPORTED, &err, "no S3 store");
    assert_fails(doctor(NULL, "file://host/x", &list, &err), BW_E_INVALID, &err, "local tier: store \"file://host");
    struct bw_doctor_options o = BW_DOCTOR_OPTIONS_INIT;
    assert_fails(bw_doctor(NULL, &list, &err), BW_E_INVALID, &err, "options is null");
    o.struct_size -= 4; /* half of timeout_ms */
    assert_fails(bw_doctor(&o, &list, &err), BW_E_INVALID, &err, "struct_size is 28, expected 32");
    assert_null(list);
    assert_int_equal(doctor("relative/path", NULL, &list, NULL), BW_E_INVALID);
}

static void a_tier_that_cannot_be_opened_is_a_finding_and_the_other_is_examined(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    char path[512];
    write_file(dir, "file", "no directory");
    (void)snprintf(path, sizeof path, "%s/file/below", dir);
    struct bw_list *list = examine(path, dir);
    expect(list, "remote", "store", 2, "the tier cannot be used: open store ");
    expect(list, "local", "create once", 0, "holds");
    assert_int_equal(damages(list), 1);
    bw_list_free(list);
    assert_int_equal(entries(dir), 1);
    test_rmdir(dir);
}

/* /proc takes no objects, whoever asks. */
static void a_tier_that_cannot_be_written_is_damage(void **state) {
    (void)state;
    struct bw_list *list = examine(NULL, "/proc");
    const struct bw_finding f = find(list, "local", "create once");
    assert_int_equal(f.severity, 2);
    assert_true(f.status < 0);
    assert_non_null(strstr(f.message, "the tier cannot be used: create \"doctor-"));
    expect(list, "local", "direct I/O", 1, "not tried");
    assert_int_equal(damages(list), 1);
    bw_list_free(list);
}

/* Runs a check in a child, whose limits and privileges may be lowered. */
static void in_child(void (*check)(const char *dir), const char *dir) {
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        check(dir);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("the child says %#x", (unsigned)status);
}

static bool says(const struct bw_list *list, const char *check, uint32_t severity, int32_t status, const char *text) {
    struct bw_finding f;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++) {
        if (strcmp(f.object, check) == 0 && f.severity == severity && f.status == status &&
            strstr(f.message, text) != NULL) {
            return true;
        }
    }
    tell(list);
    return false;
}

static void as_nobody(const char *dir) {
    struct bw_list *list = NULL;
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    if (doctor(dir, NULL, &list, NULL) != 0) _exit(2);
    if (!says(list, "create once", 2, BW_E_ACCESS, "permission denied")) _exit(3);
    bw_list_free(list);
}

static void a_directory_of_somebody_else_is_damage(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    const char *dir = test_mkdir();
    assert_int_equal(chmod(dir, 0755), 0);
    in_child(as_nobody, dir);
    assert_int_equal(entries(dir), 0);
    test_rmdir(dir);
}

static void with_few_descriptors(const char *dir) {
    struct bw_list *list = NULL;
    const struct rlimit few = {64, 64};
    const struct rlimit none = {12, 12};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) _exit(1);
    if (doctor(dir, NULL, &list, NULL) != 0) _exit(2);
    if (!says(list, "descriptors", 1, 0, "RLIMIT_NOFILE is 64: expected at least 256")) _exit(3);
    if (!says(list, "create once", 0, 0, "holds")) _exit(4);
    bw_list_free(list);
    if (setrlimit(RLIMIT_NOFILE, &none) != 0) _exit(5);
    if (doctor(dir, NULL, &list, NULL) != 0) _exit(6);
    if (!says(list, "create once", 2, BW_E_IO, "too many open files")) _exit(7);
    bw_list_free(list);
}

static void few_descriptors_are_told_and_none_end_it_in_order(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    in_child(with_few_descriptors, dir);
    assert_int_equal(entries(dir), 0);
    test_rmdir(dir);
}

static unsigned open_descriptors(void) {
    unsigned n = 0;
    for (int fd = 0; fd < 1024; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Nothing is said about who won, then. */
static void what_was_raced_for_and_cannot_be_read_is_damage(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    write_file(dir, "store.json", "{}");
    refused.no_read = true;
    struct bw_list *list = examine(dir, NULL);
    refused.no_read = false;
    expect(list, "remote", "create once", 2, "the tier cannot be used: get \"doctor-");
    assert_int_equal(find(list, "remote", "create once").status, BW_E_IO);
    bw_list_free(list);
    assert_int_equal(entries(dir), 1);
    test_rmdir(dir);
}

static void what_cannot_be_removed_again_is_told(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    struct bw_finding f;
    bool told = false;
    refused.no_unlink = true;
    struct bw_list *list = examine(dir, NULL);
    refused.no_unlink = false;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++)
        told = told || (f.severity == 2 && f.status == BW_E_IO && strncmp(f.object, "doctor-", 7) == 0 &&
                        strstr(f.message, "what was written for the examination is left behind") != NULL);
    if (!told) tell(list);
    assert_true(told);
    expect(list, "remote", "create once", 0, "holds");
    bw_list_free(list);
    assert_int_equal(entries(dir), 1);
    test_rmdir(dir);
}

static void nothing_is_left_open(void **state) {
    (void)state;
    const char *dir = test_mkdir();
    bw_list_free(examine(dir, NULL));
    const unsigned before = open_descriptors();
    const unsigned threads = test_threads();
    for (int i = 0; i < 3; i++) bw_list_free(examine(i == 1 ? "/proc" : dir, NULL));
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(test_threads(), threads);
    test_rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_tiers_the_machine_alone_is_examined),
        cmocka_unit_test(empty_directories_are_examined_and_stay_empty),
        cmocka_unit_test(one_tier_is_enough),
        cmocka_unit_test(directories_that_are_not_there_are_gone_again),
        cmocka_unit_test(a_store_is_left_as_it_is),
        cmocka_unit_test(runs_without_an_identity_are_told),
        cmocka_unit_test(a_store_tells_its_identity),
        cmocka_unit_test(memory_is_raced_too),
        cmocka_unit_test(arguments_that_make_no_sense_are_refused),
        cmocka_unit_test(a_tier_that_cannot_be_opened_is_a_finding_and_the_other_is_examined),
        cmocka_unit_test(a_tier_that_cannot_be_written_is_damage),
        cmocka_unit_test(a_directory_of_somebody_else_is_damage),
        cmocka_unit_test(few_descriptors_are_told_and_none_end_it_in_order),
        cmocka_unit_test(nothing_is_left_open),
        cmocka_unit_test(what_was_raced_for_and_cannot_be_read_is_damage),
        cmocka_unit_test(what_cannot_be_removed_again_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
