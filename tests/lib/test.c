/* SPDX-License-Identifier: Apache-2.0 */
/* What every test needs. Static state is fine here: a test program is one thread of cases, one after the other. */
#include "test.h"
#include <breakwater/io.h>
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 8

static uint64_t seed_in_use;
static bool seed_drawn;

static const char *scratch_root(void) {
    const char *root = getenv("BW_TEST_DIR");
    if (root == NULL || root[0] == '\0') root = getenv("TMPDIR");
    return root == NULL || root[0] == '\0' ? "/tmp" : root;
}

const char *test_mkdir(void) {
    static char slots[SLOTS][512];
    static unsigned next;
    char *path = slots[next++ % SLOTS];
    const int chars = snprintf(path, sizeof slots[0], "%s/bw-test-XXXXXX", scratch_root());
    if (chars < 0 || (size_t)chars >= sizeof slots[0] || mkdtemp(path) == NULL) {
        fail_msg("no scratch directory below %s: %s", scratch_root(), strerror(errno));
    }
    return path;
}

/* One step of the removal: directories are opened up on the way down and removed on the way up. */
static int remove_entry(const FTSENT *e) {
    switch (e->fts_info) {
    case FTS_D: return (e->fts_statp->st_mode & 0700) == 0700 ? 0 : chmod(e->fts_accpath, 0700);
    case FTS_DP: return rmdir(e->fts_accpath);
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS: errno = e->fts_errno; return -1;
    default: return unlink(e->fts_accpath);
    }
}

void test_rmdir(const char *path) {
    if (path == NULL || getenv("BW_TEST_KEEP") != NULL) return;
    char copy[4096];
    const int chars = snprintf(copy, sizeof copy, "%s", path);
    if (chars < 0 || (size_t)chars >= sizeof copy) fail_msg("path too long: %s", path);
    char *const roots[] = {copy, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (walk == NULL) fail_msg("remove %s: %s", path, strerror(errno));
    FTSENT *e;
    while ((e = fts_read(walk)) != NULL) {
        if (remove_entry(e) != 0 && errno != ENOENT) {
            const int why = errno;
            print_error("remove %s: %s\n", e->fts_path, strerror(why));
            (void)fts_close(walk);
            fail();
        }
    }
    (void)fts_close(walk);
}

uint64_t test_seed(uint64_t dflt) {
    const char *text = getenv("BW_TEST_SEED");
    seed_in_use = text != NULL && text[0] != '\0' ? strtoull(text, NULL, 0) : dflt;
    seed_drawn = true;
    return seed_in_use;
}

uint64_t test_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Ends the case with what is known about the failure. */
static void report(int rc, const struct bw_error *err, const char *wanted, const char *what, const char *file,
                   int line) {
    print_error("%s\n  gave %s (%d), wanted %s\n", what, bw_status_name(rc), rc, wanted);
    if (err != NULL && err->status != 0) {
        char text[1024];
        (void)bw_error_format(err, text, sizeof text);
        print_error("  error object: %s\n", text);
    }
    if (seed_drawn) print_error("  repeat with BW_TEST_SEED=0x%llx\n", (unsigned long long)seed_in_use);
    _fail(file, line);
}

void test_assert_ok(int rc, const struct bw_error *err, const char *what, const char *file, int line) {
    if (rc != 0) report(rc, err, "success", what, file, line);
}

void test_assert_fails(int rc, int want, const struct bw_error *err, const char *part, const char *what,
                       const char *file, int line) {
    char wanted[512];
    (void)snprintf(wanted, sizeof wanted, "%s%s%s%s", bw_status_name(want), part != NULL ? " with \"" : "",
                   part != NULL ? part : "", part != NULL ? "\" in the message" : "");
    const bool status = rc == want && (err == NULL || err->status == want);
    const bool message = part == NULL || (err != NULL && strstr(err->message, part) != NULL);
    if (!status || !message) report(rc, err, wanted, what, file, line);
}

int test_run_group(const char *name, const struct CMUnitTest *tests, size_t count, const char *filter,
                   CMFixtureFunction setup, CMFixtureFunction teardown) {
    size_t chosen = 0;
    for (size_t i = 0; i < count; i++) chosen += filter == NULL || fnmatch(filter, tests[i].name, 0) == 0;
    if (chosen == 0) {
        fprintf(stderr, "%s: no case matches \"%s\"\n", name, filter);
        return 1;
    }
    cmocka_set_test_filter(filter);
    return _cmocka_run_group_tests(name, tests, count, setup, teardown);
}

uint32_t test_io_backend(void) {
    const char *name = getenv("BW_TEST_IO");
    if (name == NULL) return BW_IO_AUTO;
    const bool threads = strcmp(name, "threads") == 0;
    if (!threads && strcmp(name, "io_uring") != 0) fail_msg("BW_TEST_IO is \"%s\": expected threads or io_uring", name);
    return threads ? BW_IO_THREADS : BW_IO_URING;
}

static unsigned look_at_threads(void) {
    unsigned n = 0;
    DIR *d = opendir("/proc/self/task");
    if (d == NULL) fail_msg("/proc/self/task: %s", strerror(errno));
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[300], name[32] = "";
        (void)snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (f == NULL) continue;
        if (fgets(name, sizeof name, f) != NULL && strncmp(name, "iou-", 4) != 0) n++;
        (void)fclose(f);
    }
    (void)closedir(d);
    return n;
}

/* A thread of the kernel's has our name until it has given itself one. */
unsigned test_threads(void) {
    const struct timespec pause = {0, 2000000};
    const unsigned first = look_at_threads();
    (void)nanosleep(&pause, NULL);
    const unsigned second = look_at_threads();
    return first < second ? first : second;
}
