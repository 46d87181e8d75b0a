/* SPDX-License-Identifier: Apache-2.0 */
/* What a probe of a tier chooses, on devices that are made up in virtual time; and that it leaves nothing behind, on
 * real directories, whatever fails. */
#include "checkpoint/tier_probe.h"
#include "sanitized.h"
#include "transfer_fixture.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARENA (16 * MIB)
#define GB    UINT64_C(1000000000)

/* --- a disk in front of the memory store ---- */

/* The store moves a thousandth of the bytes, at a thousandth of the speed, and keeps them in one place. */
#define SMALLER 1024u

static struct {
    void (*submit)(struct bwi_store *s, struct bwi_store_op *op);
    struct bwi_memory_model *model;
    void (*done)(struct bwi_store_op *op);
    bool cached;         /* writes go through the page cache */
    uint64_t crowd_ns;   /* the square of what is in flight makes a write so many times later */
    uint64_t latency_ns; /* of one alone */
    unsigned in_flight, most;
} disk;

static void disk_done(struct bwi_store_op *op) {
    disk.in_flight--;
    op->bytes *= SMALLER;
    disk.done(op);
}

static void disk_submit(struct bwi_store *s, struct bwi_store_op *op) {
    if (op->verb == BWI_STORE_BEGIN) op->size_bytes /= SMALLER;
    if (op->verb == BWI_STORE_WRITE) {
        if (!disk.cached) op->direct_bytes = op->bytes;
        op->bytes /= SMALLER;
        op->offset = 0;
        disk.done = op->done;
        op->done = disk_done;
        disk.in_flight++;
        disk.most = disk.in_flight > disk.most ? disk.in_flight : disk.most;
        disk.model->latency_ns = disk.latency_ns + (uint64_t)disk.in_flight * disk.in_flight * disk.crowd_ns;
    }
    disk.submit(s, op);
}

static void disk_open(struct world *w, uint64_t seed, uint64_t bytes_per_s, uint64_t latency_ns) {
    world_open(w, seed, ARENA);
    struct bwi_store *s = w->ctx.tier[BWI_TIER_LOCAL];
    memset(&disk, 0, sizeof disk);
    disk.submit = s->submit;
    disk.model = bwi_bucket_model(w->bucket[BWI_TIER_LOCAL]);
    disk.model->bytes_per_s = bytes_per_s / SMALLER;
    disk.model->jitter_ns = 0;
    disk.latency_ns = latency_ns;
    s->submit = disk_submit;
}

static void probe_start(struct world *w, struct bwi_tier_probe *p) {
    *p = (struct bwi_tier_probe){.ctx = &w->ctx, .tier = BWI_TIER_LOCAL};
    bwi_tier_probe_start(p, w->loop, NULL);
}

/* Nothing of it is left in the bucket: no upload, no lock. */
static void nothing_left(struct world *w) {
    struct single s = {0};
    assert_int_equal(world_upload_bytes(w, BWI_TIER_LOCAL), 0);
    bwi_call_prepare(&s.call, BWI_STORE_LOCK, "probe/");
    single_run(w, &s, BWI_TIER_LOCAL);
    assert_ok(s.call.op.error.status, &s.call.op.error);
    struct single u = {0};
    bwi_call_prepare(&u.call, BWI_STORE_UNLOCK, "probe/");
    u.call.op.lock = s.call.op.lock;
    single_run(w, &u, BWI_TIER_LOCAL);
}

static void expect(struct world *w, struct bwi_tier_probe *p, unsigned depth, const char *why) {
    probe_start(w, p);
    world_run(w);
    if (p->depth != depth || strncmp(p->why, why, strlen(why)) != 0)
        fail_msg("expected %u, \"%s\", found %u, \"%s\"", depth, why, p->depth, p->why);
    nothing_left(w);
}

/* --- choosing ---- */

static void a_disk_that_answers_late_gets_more_in_flight(void **state) {
    (void)state;
    struct world w;
    struct bwi_tier_probe p;
    disk_open(&w, 0, 20 * GB, 5 * BWI_NS_PER_MS);
    expect(&w, &p, 32, "measured: 32 in flight move at least ");
    assert_int_equal(p.task.error.status, 0);
    assert_int_equal(p.bytes, BWI_TIER_PROBE_BYTES);
    assert_int_equal(disk.most, 32);
    assert_true(p.bytes_per_s > 10 * GB && p.bytes_per_s < 20 * GB);
    world_close(&w);
}

static void a_disk_that_many_make_slow_gets_fewer(void **state) {
    (void)state;
    struct world w;
    struct bwi_tier_probe p;
    disk_open(&w, 0, 40 * GB, 0);
    disk.crowd_ns = BWI_NS_PER_MS / 50;
    expect(&w, &p, 8, "measured: 8 in flight move at least ");
    world_close(&w);
}

static void a_disk_that_any_depth_keeps_busy_keeps_the_usual_one(void **state) {
    (void)state;
    struct world w;
    struct bwi_tier_probe p;
    disk_open(&w, 0, 10 * GB, BWI_NS_PER_MS / 100);
    expect(&w, &p, BWI_IO_DEPTH_USUAL, "usual: measured, and no other depth is clearly better");
    assert_true(p.bytes_per_s > 9 * GB && p.bytes_per_s <= 10 * GB);
    world_close(&w);
}

/* Answers that come early or late by as much as a dozen writes take. */
static void noise_does_not_change_the_depth(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= FULL_OR(100, 20); seed++) {
        struct world w;
        struct bwi_tier_probe p;
        disk_open(&w, seed, 10 * GB, BWI_NS_PER_MS / 100);
        disk.model->jitter_ns = 2 * BWI_NS_PER_MS;
        probe_start(&w, &p);
        world_run(&w);
        if (p.depth != BWI_IO_DEPTH_USUAL) fail_msg("seed %llu: %s", (unsigned long long)seed, p.why);
        nothing_left(&w);
        world_close(&w);
    }
}

static void a_slower_disk_is_left_alone_soon(void **state) {
    (void)state;
    static const struct {
        uint64_t bytes_per_s, bytes;
    } disks[] = {{GB / 10, 16 * MIB}, {GB, 16 * MIB}, {2 * GB, 112 * MIB}};
    for (size_t i = 0; i < sizeof disks / sizeof *disks; i++) {
        struct world w;
        struct bwi_tier_probe p;
        disk_open(&w, 0, disks[i].bytes_per_s, BWI_NS_PER_MS / 100);
        expect(&w, &p, BWI_IO_DEPTH_USUAL, "usual: it keeps this disk busy, as was measured");
        assert_int_equal(p.bytes, disks[i].bytes);
        assert_in_range(p.bytes_per_s, disks[i].bytes_per_s * 9 / 10, disks[i].bytes_per_s + 1000);
        world_close(&w);
    }
}

/* A disk that becomes slow while it is measured. */
static void nothing_is_begun_after_its_time(void **state) {
    (void)state;
    struct world w;
    struct bwi_tier_probe p;
    disk_open(&w, 0, 20 * GB, 5 * BWI_NS_PER_MS);
    probe_start(&w, &p);
    while (p.pass < 2) world_turn(&w);
    disk.latency_ns = 40 * BWI_NS_PER_MS;
    const uint64_t began = p.start_ns;
    world_run(&w);
    assert_int_equal(p.depth, BWI_IO_DEPTH_USUAL);
    assert_string_equal(p.why, "usual: it keeps this disk busy, as was measured");
    assert_true(bwi_loop_now_ns(w.loop) - began < BWI_TIER_PROBE_TIME_NS + 50 * BWI_NS_PER_MS);
    nothing_left(&w);
    world_close(&w);
}

/* --- not measuring ---- */

static void a_tier_without_room_or_past_the_cache_is_not_measured(void **state) {
    (void)state;
    struct world w;
    struct bwi_tier_probe p;
    disk_open(&w, 0, 10 * GB, 1000);
    disk.cached = true;
    expect(&w, &p, BWI_IO_DEPTH_USUAL, "usual: writes go through the page cache");
    disk.model->capacity_bytes = 4 * BWI_TIER_PROBE_BYTES - 1;
    expect(&w, &p, BWI_IO_DEPTH_USUAL, "usual: there is too little room to measure");
    assert_int_equal(p.bytes, 0);
    world_close(&w);
}

static void of_two_at_a_time_one_measures(void **state) {
    (void)state;
    struct world w;
    struct bwi_tier_probe p[2];
    disk_open(&w, 0, 10 * GB, 1000);
    probe_start(&w, &p[0]);
    probe_start(&w, &p[1]);
    world_run(&w);
    const unsigned other = p[0].bytes > 0;
    assert_true(p[!other].bytes > 0);
    assert_int_equal(p[other].bytes, 0);
    assert_string_equal(p[other].why, "usual: another rank of this node probes");
    nothing_left(&w);
    world_close(&w);
}

static void only_a_disk_of_this_node_is_measured(void **state) {
    (void)state;
    struct bwi_store s = {.caps = {.node_local = true, .past_cache = true}};
    assert_true(bwi_tier_probe_may(&s));
    s.caps.past_cache = false; /* it lies in memory */
    assert_false(bwi_tier_probe_may(&s));
    s.caps = (struct bwi_store_caps){.past_cache = true}; /* others see it */
    assert_false(bwi_tier_probe_may(&s));
    assert_false(bwi_tier_probe_may(NULL));
}

/* --- ending early ---- */

static void stopped_at_any_moment_it_gives_all_back_and_changes_nothing(void **state) {
    (void)state;
    for (uint64_t turns = 0, all = 1; turns <= all; turns += turns < 40 ? 1 : FULL_OR(5, 23)) {
        struct world w;
        struct bwi_tier_probe p;
        disk_open(&w, 1 + turns, 20 * GB, 5 * BWI_NS_PER_MS);
        probe_start(&w, &p);
        for (uint64_t i = 0; i < turns && p.task.running; i++) world_turn(&w);
        const bool ended = !p.task.running;
        bwi_task_cancel(&p.task);
        const uint64_t before = p.bytes;
        world_run(&w);
        if (ended) assert_true(turns > 100); /* there was much to stop */
        if (!ended) {
            all = turns + 23;
            assert_int_equal(p.bytes, before);
            assert_true(p.depth == BWI_IO_DEPTH_USUAL || p.pass == BWI_TIER_PROBE_PASSES); /* it had ended */
        }
        nothing_left(&w);
        world_close(&w);
    }
}

static void own_granted(struct bwi_arena_wait *b) {
    (void)b;
}

static void while_others_have_the_memory_it_waits_and_can_be_stopped(void **state) {
    (void)state;
    for (int stop = 0; stop < 2; stop++) {
        struct world w;
        struct bwi_tier_probe p;
        disk_open(&w, 0, 10 * GB, 1000);
        struct bwi_arena_wait all = {.bytes = ARENA, .granted = own_granted};
        bwi_arena_acquire(w.arena, &all);
        probe_start(&w, &p);
        while (bwi_loop_turn(w.loop, 0) || bwi_loop_next_ns(w.loop) != BWI_NEVER)
            w.env.now = bwi_loop_next_ns(w.loop) == BWI_NEVER ? w.env.now : bwi_loop_next_ns(w.loop);
        assert_true(p.task.running);
        assert_int_equal(p.bytes, 0);
        if (stop) bwi_task_cancel(&p.task);
        if (stop) world_run(&w);
        bwi_arena_release(w.arena, all.ptr, ARENA);
        world_run(&w);
        assert_int_equal(p.bytes > 0, !stop);
        nothing_left(&w);
        world_close(&w);
    }
}

static void whatever_fails_leaves_the_usual_depth_and_nothing_else(void **state) {
    (void)state;
    static const enum bwi_store_verb verbs[] = {BWI_STORE_SPACE, BWI_STORE_LOCK, BWI_STORE_BEGIN, BWI_STORE_WRITE};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        struct world w;
        struct bwi_tier_probe p;
        disk_open(&w, 0, 20 * GB, 5 * BWI_NS_PER_MS);
        bwi_bucket_fail_next(w.bucket[BWI_TIER_LOCAL], verbs[i], "", BW_E_IO, false);
        expect(&w, &p, BWI_IO_DEPTH_USUAL, "usual: not measured: ");
        assert_int_equal(p.task.error.status, BW_E_IO);
        world_close(&w);
    }
}

/* --- on directories ---- */

static int64_t no_write(struct bwi_os *os, int fd, const void *buf, size_t n, uint64_t offset) {
    (void)os, (void)fd, (void)buf, (void)offset;
    return (int64_t)n;
}

static unsigned entries(const char *dir) {
    unsigned n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    while (readdir(d) != NULL) n++;
    (void)closedir(d);
    return n - 2;
}

static unsigned descriptors(void) {
    unsigned n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void leave_dead_probe(const struct world *w) {
    char path[600];
    const char *dir = w->dir[BWI_TIER_LOCAL];
    snprintf(path, sizeof path, "%s/probe", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/probe/.0123456789abcdef.tmp", dir);
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static int no_room(struct bwi_os *os, int fd, struct bwi_os_space *ret) {
    (void)os, (void)fd;
    *ret = (struct bwi_os_space){.free_bytes = MIB, .total_bytes = GB};
    return 0;
}

/* It may be what takes the room. */
static void what_one_that_died_has_left_goes_also_where_nothing_is_measured(void **state) {
    (void)state;
    for (int sweeps = 0; sweeps < 2; sweeps++) {
        struct bwi_os os = *bwi_os_system();
        struct world w;
        world_open_dirs(&w, &os, ARENA);
        os.space = no_room;
        leave_dead_probe(&w);
        struct bwi_tier_probe p = {.ctx = &w.ctx, .tier = BWI_TIER_LOCAL, .only_sweep = sweeps == 1};
        bwi_tier_probe_start(&p, w.loop, NULL);
        world_run(&w);
        assert_int_equal(p.bytes, 0);
        assert_string_equal(p.why, sweeps ? "usual: nothing was to be measured"
                                          : "usual: there is too little room to measure");
        assert_int_equal(entries(w.dir[BWI_TIER_LOCAL]), 0);
        world_close(&w);
    }
}

/* Each system call in turn, of a disk that takes no time. */
static void whichever_call_fails_no_file_and_no_descriptor_is_left(void **state) {
    (void)state;
    struct bwi_os os = *bwi_os_system();
    os.pwrite = no_write;
    os.admit = NULL;
    struct bwi_os_fault *fault = NULL;
    struct world w;
    assert_int_equal(bwi_os_fault_new(&os, &fault), 0);
    world_open_dirs(&w, bwi_os_fault_table(fault), ARENA);
    struct bwi_tier_probe p;
    const unsigned before = descriptors();
    unsigned left = 0;
    for (uint64_t n = 1, fired = 1; fired > 0; n++) {
        const uint64_t had = bwi_os_fault_fired(fault);
        bwi_os_fault_at(fault, n, 1, UINT32_MAX & ~(UINT32_C(1) << BWI_OS_WRITE), EIO);
        probe_start(&w, &p);
        world_run(&w);
        bwi_os_fault_at(fault, 0, 0, 0, 0);
        fired = bwi_os_fault_fired(fault) - had;
        const bool all = p.bytes == BWI_TIER_PROBE_BYTES; /* then it was only what came afterwards */
        assert_true(p.task.error.status == 0 || p.depth == BWI_IO_DEPTH_USUAL || all);
        assert_int_equal(descriptors(), before);
        left += entries(w.dir[BWI_TIER_LOCAL]); /* what could not be removed the next one takes */
        assert_true(fired > 0 || entries(w.dir[BWI_TIER_LOCAL]) == 0);
        if (fired == 0) assert_true(n > 8);
    }
    assert_true(left > 0);
    for (uint64_t n = 1; n <= 3; n++) {
        bwi_os_fault_at(fault, n * 2, 1, UINT32_C(1) << BWI_OS_WRITE, EIO);
        probe_start(&w, &p);
        world_run(&w);
        assert_int_equal(p.depth, BWI_IO_DEPTH_USUAL);
        assert_int_equal(entries(w.dir[BWI_TIER_LOCAL]), 0);
    }
    world_close(&w);
    bwi_os_fault_free(fault);
}

/* The very disk below, and what a probe that died has left there. */
static void a_real_disk_is_measured_and_what_another_one_left_goes(void **state) {
    (void)state;
    struct world w;
    struct bwi_tier_probe p;
    world_open_dirs(&w, NULL, ARENA);
    char path[512];
    (void)snprintf(path, sizeof path, "%s/probe", w.dir[BWI_TIER_LOCAL]);
    assert_int_equal(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/probe/.0123456789abcdef.tmp", w.dir[BWI_TIER_LOCAL]);
    const int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    probe_start(&w, &p);
    world_run(&w);
    print_message("%s: %llu MB/s after %llu MiB\n", p.why, (unsigned long long)(p.bytes_per_s / 1000000),
                  (unsigned long long)(p.bytes / MIB));
    assert_true(p.depth >= 8 && p.depth <= 32 && p.why[0] != '\0');
    assert_int_equal(entries(w.dir[BWI_TIER_LOCAL]), 0);
    world_close(&w);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_that_answers_late_gets_more_in_flight),
        cmocka_unit_test(a_disk_that_many_make_slow_gets_fewer),
        cmocka_unit_test(a_disk_that_any_depth_keeps_busy_keeps_the_usual_one),
        cmocka_unit_test(noise_does_not_change_the_depth),
        cmocka_unit_test(a_slower_disk_is_left_alone_soon),
        cmocka_unit_test(nothing_is_begun_after_its_time),
        cmocka_unit_test(a_tier_without_room_or_past_the_cache_is_not_measured),
        cmocka_unit_test(of_two_at_a_time_one_measures),
        cmocka_unit_test(only_a_disk_of_this_node_is_measured),
        cmocka_unit_test(stopped_at_any_moment_it_gives_all_back_and_changes_nothing),
        cmocka_unit_test(while_others_have_the_memory_it_waits_and_can_be_stopped),
        cmocka_unit_test(whatever_fails_leaves_the_usual_depth_and_nothing_else),
        cmocka_unit_test(what_one_that_died_has_left_goes_also_where_nothing_is_measured),
        cmocka_unit_test(whichever_call_fails_no_file_and_no_descriptor_is_left),
        cmocka_unit_test(a_real_disk_is_measured_and_what_another_one_left_goes),
    };
    return test_run(tests, argc > 1 ? argv[1] : NULL, NULL, NULL);
}
