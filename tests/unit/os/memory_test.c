/* SPDX-License-Identifier: Apache-2.0 */
/* Large memory, and what the kernel says about host and process. */
#include "os/memory.h"
#include "os/os.h"
#include "os/thread.h"
#include "test.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* Pages of [p, p + bytes) that are in memory. */
static size_t resident_pages(void *p, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t n = bytes / page;
    unsigned char *in = malloc(n);
    assert_non_null(in);
    assert_int_equal(mincore(p, bytes, in), 0);
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += in[i] & 1;
    free(in);
    return count;
}

static void memory_is_rounded_up_aligned_and_untouched(void **state) {
    (void)state;
    struct bwi_memory m = {0};
    assert_int_equal(bwi_memory_map(5 * MIB, &m), 0);
    assert_int_equal(m.bytes, 6 * MIB);
    assert_int_equal((uintptr_t)m.ptr % (2 * MIB), 0);
    assert_int_equal(resident_pages(m.ptr, m.bytes), 0);
    memset(m.ptr, 0x5a, m.bytes);
    bwi_memory_unmap(&m);
    assert_null(m.ptr);
    bwi_memory_unmap(&m);
    bwi_memory_unmap(NULL);
}

static void many_mappings_are_all_aligned(void **state) {
    (void)state;
    struct bwi_memory m[8];
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(bwi_memory_map(1 + i * MIB, &m[i]), 0);
        assert_int_equal((uintptr_t)m[i].ptr % (2 * MIB), 0);
        memset(m[i].ptr, (int)i, m[i].bytes);
    }
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(((char *)m[i].ptr)[m[i].bytes - 1], i);
        bwi_memory_unmap(&m[i]);
    }
}

static void sizes_that_cannot_be_are_refused(void **state) {
    (void)state;
    struct bwi_memory m = {.bytes = 7};
    assert_int_equal(bwi_memory_map(0, &m), -EINVAL);
    assert_int_equal(bwi_memory_map(SIZE_MAX, &m), -ENOMEM);
    assert_int_equal(bwi_memory_map(SIZE_MAX / 2, &m), -ENOMEM);
    assert_int_equal(m.bytes, 7);
}

static void touching_makes_pages_resident_and_changes_nothing(void **state) {
    (void)state;
    struct bwi_memory m = {0};
    assert_int_equal(bwi_memory_map(8 * MIB, &m), 0);
    char *p = m.ptr;
    p[5000] = 'x';
    bwi_memory_touch(&m, 100, 4 * MIB);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    assert_true(resident_pages(p, 4 * MIB) == 4 * MIB / page);
    assert_int_equal(p[5000], 'x');
    assert_int_equal(p[0], 0);
    bwi_memory_touch(&m, 6 * MIB, SIZE_MAX); /* cut at the end */
    assert_true(resident_pages(p + 6 * MIB, 2 * MIB) == 2 * MIB / page);
    bwi_memory_touch(&m, 8 * MIB, 1);
    bwi_memory_touch(&m, SIZE_MAX, 1);
    bwi_memory_touch(&m, 0, 0);
    bwi_memory_unmap(&m);
}

struct part {
    struct bwi_memory *m;
    size_t offset, bytes;
};

static void *touch_part(void *arg) {
    const struct part *p = arg;
    bwi_memory_touch(p->m, p->offset, p->bytes);
    char *own = (char *)p->m->ptr + p->offset;
    for (size_t i = 0; i < p->bytes; i += 1024) own[i] = 'x';
    return NULL;
}

/* Parts that meet within a page: a touch must not undo what the neighbour writes. */
static void threads_touch_parts_of_one_mapping(void **state) {
    (void)state;
    struct bwi_memory m = {0};
    assert_int_equal(bwi_memory_map(4 * MIB, &m), 0);
    struct bwi_thread t[4];
    struct part parts[4];
    for (size_t i = 0; i < 4; i++) {
        parts[i] = (struct part){&m, i * 1000 * 1024, 1000 * 1024};
        assert_int_equal(bwi_thread_start(&t[i], "touch", touch_part, &parts[i]), 0);
    }
    for (size_t i = 0; i < 4; i++) bwi_thread_join(&t[i]);
    for (size_t i = 0; i < 4000; i++) assert_int_equal(((char *)m.ptr)[i * 1024], 'x');
    bwi_memory_unmap(&m);
}

static void the_resident_set_grows_by_what_is_touched(void **state) {
    (void)state;
    const uint64_t before = bwi_os_rss_bytes();
    assert_true(before > MIB);
    struct bwi_memory m = {0};
    assert_int_equal(bwi_memory_map(64 * MIB, &m), 0);
    const uint64_t mapped = bwi_os_rss_bytes();
    bwi_memory_touch(&m, 0, m.bytes);
    const uint64_t touched = bwi_os_rss_bytes();
    assert_true(mapped < before + 8 * MIB);
    assert_true(touched >= mapped + 60 * MIB);
    bwi_memory_unmap(&m);
    assert_true(bwi_os_rss_bytes() < touched - 50 * MIB);
}

static bool nameless;

/* In front of the C library's. */
int gethostname(char *name, size_t bytes) {
    struct utsname u;
    if (nameless || uname(&u) != 0) return -1;
    (void)snprintf(name, bytes, "%s", u.nodename);
    return 0;
}

static void the_host_has_a_name_that_is_cut_to_fit(void **state) {
    (void)state;
    char want[256] = "";
    assert_int_equal(gethostname(want, sizeof want - 1), 0);
    char name[256] = "";
    nameless = true;
    bwi_os_hostname(name, sizeof name);
    assert_string_equal(name, "unknown");
    nameless = false;
    bwi_os_hostname(name, sizeof name);
    assert_string_equal(name, want[0] != '\0' ? want : "unknown");
    char cut[2] = "z";
    bwi_os_hostname(cut, sizeof cut);
    assert_int_equal(strlen(cut), 1);
    assert_int_equal(cut[0], name[0]);
}

static void the_cpus_are_those_this_process_may_run_on(void **state) {
    (void)state;
    cpu_set_t before;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(bwi_os_cpus(), CPU_COUNT(&before));
    cpu_set_t one;
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &before)) continue;
        CPU_SET(i, &one);
        break;
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    const unsigned cpus = bwi_os_cpus();
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(cpus, 1);
}

static void ends_with(pid_t child, int code) {
    int status = 0;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

/* By fork(), by the system call alone, which no handler of the C library sees, and a child's child. */
#ifdef __SANITIZE_THREAD__
#define VFORK_IS_FORK 1
#else
#define VFORK_IS_FORK 0
#endif

static void a_birthmark_is_there_in_its_own_process_only(void **state) {
    (void)state;
    const volatile uint32_t *mark = bwi_os_birthmark();
    assert_non_null(mark);
    assert_int_equal(*mark, 1);
    pid_t child = fork();
    if (child == 0) {
        const pid_t second = fork();
        if (second == 0) _exit(*mark == 0 ? 7 : 1);
        int status = 0;
        (void)waitpid(second, &status, 0);
        _exit(*mark == 0 && WEXITSTATUS(status) == 7 ? 7 : 1);
    }
    ends_with(child, 7);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) _exit(*mark == 0 ? 7 : 1);
    ends_with(child, 7);
    child = vfork(); /* shares the memory, but where a sanitizer makes a fork of it */
    if (child == 0) _exit(*mark == (VFORK_IS_FORK ? 0 : 1) ? 7 : 1);
    ends_with(child, 7);
    assert_int_equal(*mark, 1);
    bwi_os_birthmark_free(mark);
    bwi_os_birthmark_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_rounded_up_aligned_and_untouched),
        cmocka_unit_test(many_mappings_are_all_aligned),
        cmocka_unit_test(sizes_that_cannot_be_are_refused),
        cmocka_unit_test(touching_makes_pages_resident_and_changes_nothing),
        cmocka_unit_test(threads_touch_parts_of_one_mapping),
        cmocka_unit_test(the_resident_set_grows_by_what_is_touched),
        cmocka_unit_test(the_host_has_a_name_that_is_cut_to_fit),
        cmocka_unit_test(the_cpus_are_those_this_process_may_run_on),
        cmocka_unit_test(a_birthmark_is_there_in_its_own_process_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
