/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of CPUs, and threads that keep to them. */
#include "os/cpus.h"
#include "os/thread.h"
#include "test.h"
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void lists_are_read_as_the_kernel_writes_them(void **state) {
    (void)state;
    static const struct {
        const char *list;
        int count, has, lacks;
    } good[] = {{"0", 1, 0, 1},     {"3", 1, 3, 0},   {"0-3", 4, 3, 4},       {"0-1,8", 3, 8, 2},
                {"5,1,5", 2, 1, 0}, {"7-7", 1, 7, 6}, {"16383", 1, 16383, 0}, {"0-16383", 16384, 9, -1}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct bwi_cpus c;
        assert_int_equal(bwi_cpus_parse(good[i].list, &c), 0);
        assert_int_equal(CPU_COUNT_S(sizeof c.mask, c.mask), good[i].count);
        assert_true(CPU_ISSET_S((size_t)good[i].has, sizeof c.mask, c.mask));
        if (good[i].lacks >= 0) assert_false(CPU_ISSET_S((size_t)good[i].lacks, sizeof c.mask, c.mask));
    }
    static const char *const bad[] = {
        "", " ", "a", "-1", "1-", "0,", ",0", "3-1", "0 1", "16384", "0-1-", "0x1", "99999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct bwi_cpus c;
        if (bwi_cpus_parse(bad[i], &c) != -EINVAL) fail_msg("\"%s\" was taken", bad[i]);
    }
}

static int first_of(const struct bwi_cpus *c) {
    size_t i = 0;
    while (!CPU_ISSET_S(i, sizeof c->mask, c->mask)) i++;
    return (int)i;
}

static struct bwi_cpus mine(void) {
    struct bwi_cpus c = {0};
    assert_int_equal(sched_getaffinity(0, sizeof c.mask, c.mask), 0);
    return c;
}

static void *where(void *arg) {
    *(struct bwi_cpus *)arg = mine();
    return NULL;
}

static void threads_run_where_the_one_that_starts_them_does(void **state) {
    (void)state;
    const struct bwi_cpus all = mine();
    struct bwi_cpus one = {0}, before, theirs;
    struct bwi_thread t;
    CPU_SET_S((size_t)first_of(&all), sizeof one.mask, one.mask);
    assert_int_equal(bwi_cpus_check(&one), 0);
    assert_int_equal(bwi_cpus_enter(&one, &before), 0);
    assert_int_equal(bwi_thread_start(&t, "where", where, &theirs), 0);
    bwi_thread_join(&t);
    assert_true(CPU_EQUAL_S(sizeof one.mask, theirs.mask, one.mask));
    bwi_cpus_leave(&before);
    const struct bwi_cpus after = mine();
    assert_true(CPU_EQUAL_S(sizeof all.mask, after.mask, all.mask));
}

static void a_cpu_that_is_not_there_is_named(void **state) {
    (void)state;
    struct bwi_cpus none, before;
    assert_int_equal(bwi_cpus_parse("16000", &none), 0);
    assert_int_equal(bwi_cpus_check(&none), 16001);
    assert_int_equal(bwi_cpus_enter(&none, &before), -EINVAL);
    const struct bwi_cpus after = mine();
    assert_true(CPU_EQUAL_S(sizeof after.mask, before.mask, after.mask));
}

static void *give_way(void *arg) {
    bwi_thread_give_way(4);
    *(int *)arg = getpriority(PRIO_PROCESS, (id_t)gettid());
    return NULL;
}

static void a_thread_gives_way_by_itself(void **state) {
    (void)state;
    struct bwi_thread t;
    const int nice = getpriority(PRIO_PROCESS, 0);
    int theirs = 99;
    assert_int_equal(bwi_thread_start(&t, "nice", give_way, &theirs), 0);
    bwi_thread_join(&t);
    assert_int_equal(theirs, nice > 4 ? nice : 4);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), nice);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read_as_the_kernel_writes_them),
        cmocka_unit_test(threads_run_where_the_one_that_starts_them_does),
        cmocka_unit_test(a_cpu_that_is_not_there_is_named),
        cmocka_unit_test(a_thread_gives_way_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
