/* SPDX-License-Identifier: Apache-2.0 */
/* What every test needs: cmocka in the right order, scratch directories, a seeded generator. */
#ifndef BW_TEST_H
#define BW_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <breakwater/error.h>
#include <cmocka.h>
#include <stdbool.h>

/* A fresh directory below $BW_TEST_DIR (default: $TMPDIR, else /tmp); removed by test_rmdir unless BW_TEST_KEEP is set.
 * The text is static storage of 8 slots in turn. */
const char *test_mkdir(void);
void test_rmdir(const char *path);

/* Runs the cases whose names match `filter`, such as "*_dtype_*"; NULL: all. One that matches none is a failure: a test
 * of that name would be green for ever. */
#define test_run(tests, filter, setup, teardown)                                                                       \
    test_run_group(#tests, (tests), sizeof(tests) / sizeof((tests)[0]), (filter), (setup), (teardown))
int test_run_group(const char *name, const struct CMUnitTest *tests, size_t count, const char *filter,
                   CMFixtureFunction setup, CMFixtureFunction teardown);

/* Threads of this process, without the kernel's own, which come and go with the transfers of a ring. */
unsigned test_threads(void);

/* What carries transfers out in tests that do not choose: enum bw_io_backend, by $BW_TEST_IO ("threads", "io_uring";
 * not set: BW_IO_AUTO), so that all of them can be run on each. */
uint32_t test_io_backend(void);

/* splitmix64; the seed is BW_TEST_SEED or the given one, and is printed by the failing assertion's message helpers. */
uint64_t test_seed(uint64_t dflt);
uint64_t test_random(uint64_t *state);

/* status is 0; on failure prints the error's message. */
#define assert_ok(call, err) test_assert_ok((call), (err), #call, __FILE__, __LINE__)
void test_assert_ok(int rc, const struct bw_error *err, const char *what, const char *file, int line);
/* status is `want`, and the message contains `part` (NULL: any). */
#define assert_fails(call, want, err, part) test_assert_fails((call), (want), (err), (part), #call, __FILE__, __LINE__)
void test_assert_fails(int rc, int want, const struct bw_error *err, const char *part, const char *what,
                       const char *file, int line);

#endif
