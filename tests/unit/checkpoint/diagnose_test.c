/* SPDX-License-Identifier: Apache-2.0 */
/* What is said about machines and tiers that a test cannot have, and about stores that do not keep their word. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/diagnose.h"
#include "test.h"
#include <errno.h>
#include <string.h>

#define GIB (UINT64_C(1) << 30)

static const struct bw_finding *find(const struct bwi_findings *f, const char *check) {
    for (size_t i = 0; i < f->count; i++) {
        if (strcmp(f->list[i].object, check) == 0) return &f->list[i];
    }
    return NULL;
}

static void expect(const struct bwi_findings *f, const char *check, uint32_t severity, const char *text) {
    const struct bw_finding *x = find(f, check);
    if (x == NULL) {
        fail_msg("nothing is said about %s", check);
        return;
    }
    if (strstr(x->message, text) == NULL) fail_msg("%s: no \"%s\" in: %s", check, text, x->message);
    assert_int_equal(x->severity, severity);
}

/* ---- the depth of a tier ---- */

static void the_depth_of_a_tier_is_told_with_what_was_measured(void **state) {
    (void)state;
    struct bwi_findings f = {0};
    struct bwi_tier_probe p = {
        .depth = 32, .bytes_per_s = 6100 * UINT64_C(1000000), .why = "measured: 32 in flight ..."};
    bwi_diagnose_depth(&p, &f);
    expect(&f, "depth", 0,
           "32 writes of 4 MiB in flight, 6100 MB/s in a moment of writing: measured: 32 in flight ...");
    bwi_findings_fini(&f);
    p = (struct bwi_tier_probe){.depth = 16, .why = "usual: there is too little room to measure"};
    bwi_diagnose_depth(&p, &f);
    expect(&f, "depth", 0, "16 writes of 4 MiB in flight: usual: there is too little room to measure");
    bwi_findings_fini(&f);
    (void)bwi_error_set(&p.task.error, BW_E_IO, "delete prefix \"probe/\": I/O error");
    bwi_diagnose_depth(&p, &f);
    expect(&f, "depth", 1, "16 writes of 4 MiB in flight: delete prefix \"probe/\": I/O error");
    bwi_findings_fini(&f);
}

/* ---- the machine ---- */

static struct bwi_probe_machine good_machine(void) {
    return (struct bwi_probe_machine){.kernel = "Linux 6.1.0",
                                      .cpus = 8,
                                      .memory_bytes = 64 * GIB,
                                      .memory_free_bytes = 32 * GIB,
                                      .memlock_bytes = UINT64_MAX,
                                      .descriptors = 1024,
                                      .descriptors_max = UINT64_MAX,
                                      .threads = BWI_PROBE_THREADS,
                                      .userfaultfd_write_protect = true,
                                      .userfaultfd_unprivileged = 1,
                                      .huge_pages = "madvise",
                                      .huge_page_bytes = 2 << 20,
                                      .shm_bytes = GIB,
                                      .shm_free_bytes = GIB / 2};
}

static void a_good_machine_gives_facts_only(void **state) {
    (void)state;
    struct bwi_findings f = {0};
    const struct bwi_probe_machine m = good_machine();
    bwi_diagnose_machine(&m, &f);
    for (size_t i = 0; i < f.count; i++) assert_int_equal(f.list[i].severity, 0);
    expect(&f, "kernel", 0, "Linux 6.1.0");
    expect(&f, "CPUs", 0, "8 for this process");
    expect(&f, "memory", 0, "64.0 GiB, of which 32.0 GiB are available");
    expect(&f, "/dev/shm", 0, "1.0 GiB, of which 512.0 MiB are free");
    expect(&f, "huge pages", 0, "transparent huge pages of 2.0 MiB: madvise");
    expect(&f, "locked memory", 0, "RLIMIT_MEMLOCK is unlimited");
    expect(&f, "descriptors", 0, "RLIMIT_NOFILE is 1024");
    expect(&f, "io_uring", 0, "available; 64.0 MiB of memory could be registered with it");
    expect(&f, "threads", 0, "33 could be started");
    expect(&f, "userfaultfd", 0, "available, with write protection");
    bwi_findings_fini(&f);
}

static void low_limits_are_warnings(void **state) {
    (void)state;
    struct bwi_findings f = {0};
    struct bwi_probe_machine m = good_machine();
    m.memlock_bytes = 65536;
    m.descriptors = 255;
    bwi_diagnose_machine(&m, &f);
    expect(&f, "locked memory", 1, "RLIMIT_MEMLOCK is 64.0 KiB: expected at least 64.0 MiB");
    expect(&f, "descriptors", 1, "RLIMIT_NOFILE is 255: expected at least 256");
    bwi_findings_fini(&f);
    m.memlock_bytes = BWI_DIAGNOSE_MEMLOCK_LEAST;
    m.descriptors = 256;
    bwi_diagnose_machine(&m, &f);
    expect(&f, "locked memory", 0, "is 64.0 MiB");
    expect(&f, "descriptors", 0, "is 256");
    bwi_findings_fini(&f);
    m.descriptors = UINT64_MAX;
    bwi_diagnose_machine(&m, &f);
    expect(&f, "descriptors", 0, "unlimited");
    bwi_findings_fini(&f);
}

static void what_a_handle_would_go_without_is_a_warning(void **state) {
    (void)state;
    struct bwi_findings f = {0};
    struct bwi_probe_machine m = good_machine();
    m.ring_memory = -ENOMEM;
    m.threads = 7;
    m.thread_error = -EAGAIN;
    bwi_diagnose_machine(&m, &f);
    expect(&f, "io_uring", 1,
           "available, but memory cannot be registered with it (64.0 MiB of it: cannot allocate memory)");
    expect(&f, "threads", 1, "7 could be started, of up to 33 that a handle starts by itself: ");
    bwi_findings_fini(&f);
}

static void what_the_kernel_refuses_is_told_with_its_reason(void **state) {
    (void)state;
    static const struct {
        int rc, setting;
        const char *text;
    } rings[] = {
        {-EPERM, 2, "operation not permitted, for all processes by kernel.io_uring_disabled = 2; a pool of threads"},
        {-EPERM, 1, "for unprivileged processes by kernel.io_uring_disabled = 1"},
        {-EPERM, 0, "by a container's seccomp filter or a security module"},
        {-EPERM, -1, "by a container's seccomp filter or a security module"},
        {-ENOSYS, -1, "this kernel has none, or a seccomp filter hides it"},
        {-ENOMEM, 0, "not available: cannot allocate memory; a pool of threads"},
    };
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) {
        struct bwi_findings f = {0};
        struct bwi_probe_machine m = good_machine();
        m.io_uring = rings[i].rc;
        m.io_uring_disabled = rings[i].setting;
        bwi_diagnose_machine(&m, &f);
        expect(&f, "io_uring", 0, rings[i].text);
        bwi_findings_fini(&f);
    }
    struct bwi_findings f = {0};
    struct bwi_probe_machine m = good_machine();
    m.userfaultfd = m.protection = -EPERM;
    m.userfaultfd_unprivileged = 0;
    m.huge_pages[0] = '\0';
    bwi_diagnose_machine(&m, &f);
    expect(&f, "userfaultfd", 0,
           "not permitted, by a container's seccomp filter or, for unprivileged processes, by "
           "vm.unprivileged_userfaultfd = "
           "0; states");
    expect(&f, "huge pages", 0, "no transparent huge pages");
    bwi_findings_fini(&f);
    m = good_machine();
    m.userfaultfd_user_only = true;
    m.userfaultfd_write_protect = false;
    strcpy(m.huge_pages, "never");
    m.protection = -EPERM;
    bwi_diagnose_machine(&m, &f);
    expect(&f, "userfaultfd", 0, "available, without write protection; for faults in user mode only");
    expect(&f, "huge pages", 0, "switched off");
    bwi_findings_fini(&f);
}

static const char *userfaultfd_of(const struct bwi_probe_machine *m, struct bwi_findings *f) {
    bwi_findings_fini(f);
    bwi_diagnose_machine(m, f);
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->list[i].object, "userfaultfd") == 0) return f->list[i].message;
    return "";
}

/* What the kernel offers is one thing, whether a handle takes it another. */
static void it_says_whether_states_are_captured_by_copying_all_the_same(void **state) {
    (void)state;
    struct bwi_findings f = {0};
    struct bwi_probe_machine m = good_machine();
    m.protection = -EOPNOTSUPP;
    assert_string_equal(userfaultfd_of(&m, &f),
                        "available, with write protection; states are captured by copying, because only Linux 6.4 to "
                        "6.11 and from 6.18 on, without KSM, keep it");
    m.protection = -EPERM;
    m.userfaultfd_user_only = true;
    assert_string_equal(userfaultfd_of(&m, &f), "available, with write protection; for faults in user mode only "
                                                "(vm.unprivileged_userfaultfd = 0); states are captured by copying");
    m.protection = 0; /* by way of /dev/userfaultfd */
    assert_string_equal(userfaultfd_of(&m, &f), "available, with write protection");
    m = good_machine();
    m.userfaultfd = -EPERM;
    m.userfaultfd_write_protect = false;
    assert_string_equal(userfaultfd_of(&m, &f), "available, with write protection");
    bwi_findings_fini(&f);
}

/* ---- tiers ---- */

static struct bwi_diagnose_tier good_tier(enum bwi_tier tier) {
    struct bwi_diagnose_tier t = {.tier = tier, .url = "file:///lustre/bw", .caps = {.device = 7 + (uint64_t)tier}};
    t.caps.past_cache = true;
    t.found = (struct bwi_probe_dir){.fs_name = "lustre", .device = 0x2a, .free_bytes = 900 * GIB};
    t.found.total_bytes = 1000 * GIB;
    memset(t.store_id.b, 0xab, sizeof t.store_id.b);
    return t;
}

static void a_good_tier_gives_facts_only(void **state) {
    (void)state;
    struct bwi_findings f = {0};
    const struct bwi_diagnose_tier t = good_tier(BWI_TIER_REMOTE);
    bwi_diagnose_tier(&t, &f);
    for (size_t i = 0; i < f.count; i++) {
        assert_int_equal(f.list[i].severity, 0);
        assert_string_equal(f.list[i].tier, "remote");
    }
    expect(&f, "store", 0, "file:///lustre/bw");
    expect(&f, "file system", 0, "lustre on device 2a, which other nodes may see");
    expect(&f, "space", 0, "900.0 GiB of 1000.0 GiB are free");
    expect(&f, "direct I/O", 0, "works on lustre");
    expect(&f, "store.json", 0, "store abababababababababababababababab");
    assert_null(find(&f, "node-local"));
    bwi_findings_fini(&f);
}

static void a_remote_tier_of_one_node_is_a_warning_and_a_local_one_is_not(void **state) {
    (void)state;
    struct bwi_findings f = {0};
    struct bwi_diagnose_tier t = good_tier(BWI_TIER_REMOTE);
    t.caps.node_local = true;
    bwi_diagnose_tier(&t, &f);
    expect(&f, "node-local", 1, "lost with the node");
    expect(&f, "file system", 0, "of this node alone");
    bwi_findings_fini(&f);
    t.tier = BWI_TIER_LOCAL;
    bwi_diagnose_tier(&t, &f);
    assert_null(find(&f, "node-local"));
    bwi_findings_fini(&f);
}

static void little_space_is_a_warning(void **state) {
    (void)state;
    static const struct {
        uint64_t free, total;
        uint32_t severity;
    } cases[] = {
        {GIB, 2 * GIB, 0}, {GIB - 1, 2 * GIB, 1}, {50 * GIB, 1000 * GIB, 0}, {50 * GIB - 1, 1000 * GIB, 1}, {0, 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bwi_findings f = {0};
        struct bwi_diagnose_tier t = good_tier(BWI_TIER_LOCAL);
        t.found.free_bytes = cases[i].free;
        t.found.total_bytes = cases[i].total;
        bwi_diagnose_tier(&t, &f);
        expect(&f, "space", cases[i].severity, " are free");
        bwi_findings_fini(&f);
    }
}

static void what_a_directory_refuses_is_told(void **state) {
    (void)state;
    struct bwi_findings f = {0};
    struct bwi_diagnose_tier t = good_tier(BWI_TIER_LOCAL);
    t.made = true;
    t.found.direct = -EINVAL;
    t.store_status = BW_E_NOTFOUND;
    bwi_diagnose_tier(&t, &f);
    expect(&f, "store", 1,
           "does not exist: a launch would make it, unless a mount is missing there or the URL is wrong; it was made "
           "for this examination and is gone again");
    expect(&f, "direct I/O", 0, "refused on lustre: invalid argument");
    expect(&f, "store.json", 0, "this is not a store yet");
    bwi_findings_fini(&f);
    t.found.direct = -EILSEQ;
    t.store_status = BW_E_CORRUPT;
    t.store_error = "the seal is wrong";
    bwi_diagnose_tier(&t, &f);
    expect(&f, "direct I/O", 2, "read back with other bytes");
    expect(&f, "store.json", 2, "the seal is wrong");
    assert_int_equal(f.list[f.count - 1].status, BW_E_CORRUPT);
    bwi_findings_fini(&f);
    t.found.direct = 0;
    t.caps.past_cache = false;
    bwi_diagnose_tier(&t, &f);
    expect(&f, "direct I/O", 0, "accepted on lustre, which lies in memory: transfers go through the page cache");
    bwi_findings_fini(&f);
    t.found.write = t.found.direct = -EACCES;
    bwi_diagnose_tier(&t, &f);
    expect(&f, "direct I/O", 1, "not tried: no file can be made: permission denied");
    bwi_findings_fini(&f);
    t.dir = -EIO;
    bwi_diagnose_tier(&t, &f);
    expect(&f, "file system", 1, "cannot be examined: input/output error");
    bwi_findings_fini(&f);
    t.dir = 1;
    bwi_diagnose_tier(&t, &f);
    assert_null(find(&f, "file system"));
    bwi_findings_fini(&f);
}

static void tiers_that_fail_together_are_a_warning(void **state) {
    (void)state;
    struct bwi_findings f = {0};
    struct bwi_diagnose_tier local = good_tier(BWI_TIER_LOCAL);
    struct bwi_diagnose_tier remote = good_tier(BWI_TIER_REMOTE);
    bwi_diagnose_pair(&local, &remote, &f);
    assert_int_equal(f.count, 0);
    local.caps.device = remote.caps.device;
    bwi_diagnose_pair(&local, &remote, &f);
    expect(&f, "same device", 1, "they fail together");
    bwi_findings_fini(&f);
    local.caps.device = remote.caps.device = 0; /* not known */
    bwi_diagnose_pair(&local, &remote, &f);
    assert_int_equal(f.count, 0);
}

/* ---- creating once ---- */

#define WON                                                                                                            \
    { 0, BWI_STORE_CREATED }
#define SAME                                                                                                           \
    { 0, BWI_STORE_SAME }
#define LOST                                                                                                           \
    { BW_E_EXISTS, BWI_STORE_OTHER }
#define UNKNOWN                                                                                                        \
    { BW_E_UNKNOWN, 0 }
#define FAILED                                                                                                         \
    { BW_E_IO, 0 }

struct round {
    struct bwi_diagnose_try tries[3];
    unsigned holder;
    const char *wrong; /* NULL: it holds */
};

/* A round that holds, and then this one. */
static void race(const struct round *r, const struct bw_error *error, struct bwi_findings *f) {
    struct bwi_diagnose_try tries[6] = {LOST, WON, LOST};
    const unsigned holder[2] = {1, r->holder};
    memcpy(tries + 3, r->tries, sizeof r->tries);
    const struct bwi_diagnose_race d = {
        .racers = 3, .rounds = 2, .tries = tries, .holder = holder, .took_ns = 10000000, .error = error};
    bwi_diagnose_race(&d, BWI_TIER_LOCAL, f);
    assert_int_equal(f->count, 1);
    assert_string_equal(f->list[0].tier, "local");
}

static void each_way_in_which_creating_once_can_break_is_seen(void **state) {
    (void)state;
    static const struct round rounds[] = {
        {{WON, LOST, LOST}, 0, NULL},
        {{UNKNOWN, LOST, LOST}, 0, NULL},
        {{UNKNOWN, LOST, UNKNOWN}, 2, NULL},
        {{UNKNOWN, WON, LOST}, 1, NULL},
        {{WON, WON, LOST}, 0, "more than one racer was told that it had created"},
        {{LOST, LOST, LOST}, 0, "no racer was told that it had created"},
        {{WON, LOST, LOST}, 1, "other bytes than those of the racer that created it"},
        {{WON, LOST, LOST}, 3, "the object is gone, or has bytes that no racer wrote"},
        {{UNKNOWN, LOST, LOST}, 3, "the object is gone"},
        {{UNKNOWN, LOST, LOST}, 1, "the bytes of a racer that lost"},
        {{UNKNOWN, WON, LOST}, 0, "other bytes than those of the racer that created it"},
        {{WON, SAME, LOST}, 0, "a racer was told that its bytes had been there before"},
        {{WON, {BW_E_EXISTS, BWI_STORE_SAME}, LOST}, 0, "a racer was told that its bytes had been there before"},
    };
    const struct bw_error none = BW_ERROR_INIT;
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        struct bwi_findings f = {0};
        race(&rounds[i], &none, &f);
        if (rounds[i].wrong == NULL) {
            expect(&f, "create once", 0, "holds: 2 races of 3 handles on this host, 5000 us each");
        } else {
            expect(&f, "create once", 2, rounds[i].wrong);
            expect(&f, "create once", 2, "does not hold: in race 2 of 3 handles");
            assert_int_equal(f.list[0].status, BW_E_UNSUPPORTED);
        }
        bwi_findings_fini(&f);
    }
}

static void a_tier_that_fails_is_told_with_its_error(void **state) {
    (void)state;
    const struct round cut = {{WON, FAILED, WON}, 3, NULL}; /* says nothing */
    struct bw_error error = BW_ERROR_INIT;
    struct bwi_findings f = {0};
    (void)bwi_error_set(&error, BW_E_ACCESS, "create \"doctor/r00\": read-only file system");
    race(&cut, &error, &f);
    expect(&f, "create once", 2, "the tier cannot be used: create \"doctor/r00\": read-only file system");
    assert_int_equal(f.list[0].status, BW_E_ACCESS);
    bwi_findings_fini(&f);
    /* What was seen before it failed counts more. */
    const struct round broken = {{WON, WON, LOST}, 0, NULL};
    race(&broken, &error, &f);
    expect(&f, "create once", 2, "does not hold");
    bwi_findings_fini(&f);
}

static void no_memory_is_remembered_in_the_list(void **state) {
    (void)state;
    struct bwi_findings f = {0};
    const struct bwi_probe_machine m = good_machine();
    (void)bwi_alloc_fail_at(1);
    bwi_diagnose_machine(&m, &f);
    (void)bwi_alloc_fail_at(0);
    assert_true(f.failed);
    bwi_findings_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_depth_of_a_tier_is_told_with_what_was_measured),
        cmocka_unit_test(a_good_machine_gives_facts_only),
        cmocka_unit_test(what_a_handle_would_go_without_is_a_warning),
        cmocka_unit_test(low_limits_are_warnings),
        cmocka_unit_test(what_the_kernel_refuses_is_told_with_its_reason),
        cmocka_unit_test(it_says_whether_states_are_captured_by_copying_all_the_same),
        cmocka_unit_test(a_good_tier_gives_facts_only),
        cmocka_unit_test(a_remote_tier_of_one_node_is_a_warning_and_a_local_one_is_not),
        cmocka_unit_test(little_space_is_a_warning),
        cmocka_unit_test(what_a_directory_refuses_is_told),
        cmocka_unit_test(tiers_that_fail_together_are_a_warning),
        cmocka_unit_test(each_way_in_which_creating_once_can_break_is_seen),
        cmocka_unit_test(a_tier_that_fails_is_told_with_its_error),
        cmocka_unit_test(no_memory_is_remembered_in_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
