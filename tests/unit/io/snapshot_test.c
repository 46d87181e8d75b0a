/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of real memory with the real kernel: what is copied is what was there at the beginning, whoever writes in
 * the meantime and wherever; writers always get on; and nothing stays protected. */
#include "base/env.h"
#include "base/error.h"
#include "io/snapshot.h"
#include "os/thread.h"
#include "test.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB     ((size_t)1 << 20)
#define RANGES  4000
#define WRITERS 3
#define COPIERS 2
#define LONG_NS (60 * BWI_NS_PER_S)

/* ---- memory, and what of it is needed ---- */

struct scene {
    struct bwi_snapshots *snapshots;
    uint8_t *memory, *area, *copy;
    size_t bytes, area_bytes;
    uint64_t salt;
    struct bwi_range ranges[RANGES];
    size_t copy_at[RANGES], count;
    _Atomic size_t next; /* to be copied */
    _Atomic bool stop;
    _Atomic uint64_t writes;
    _Atomic unsigned wrong; /* hashes */
    uint64_t seed;
};

static uint64_t word_at(const struct scene *c, const void *at) {
    uint64_t x = c->salt + (uint64_t)(uintptr_t)at * UINT64_C(0x9e3779b97f4a7c15);
    return test_random(&x);
}

static uint8_t *map(size_t bytes, int advice) {
    uint8_t *p = mmap(NULL, bytes + 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    p += -(uintptr_t)p & (2 * MIB - 1);
    assert_int_equal(madvise(p, bytes, advice), 0);
    return p;
}

static void fill(const struct scene *c) {
    for (size_t at = 0; at < c->bytes; at += 8) {
        const uint64_t word = word_at(c, c->memory + at);
        memcpy(c->memory + at, &word, 8);
    }
}

static bool open_scene(struct scene *c, size_t bytes, int advice, size_t area_bytes, uint64_t wait_ns) {
    const struct bwi_snapshots_options o = {.workers = 2, .wait_ns = wait_ns, .always = true};
    struct bw_error err = BW_ERROR_INIT;
    memset(c, 0, sizeof *c);
    c->seed = test_seed(77);
    if (bwi_snapshots_open(&o, &c->snapshots, &err) < 0) {
        print_message("no write-protection here: %s\n", err.message);
        return false;
    }
    c->bytes = bytes;
    c->area_bytes = area_bytes;
    c->memory = map(bytes, advice);
    c->area = map(area_bytes, MADV_HUGEPAGE);
    c->copy = map(bytes + bytes / 2, MADV_HUGEPAGE);
    c->salt = test_random(&c->seed);
    fill(c);
    return true;
}

static void close_scene(struct scene *c) {
    bwi_snapshots_close(c->snapshots);
    (void)munmap(c->memory, c->bytes);
    (void)munmap(c->area, c->area_bytes);
    (void)munmap(c->copy, c->bytes + c->bytes / 2);
}

static void add_range(struct scene *c, size_t from, size_t bytes) {
    const size_t n = c->count++;
    assert_true(n < RANGES && from + bytes <= c->bytes);
    c->ranges[n].start = (uint64_t)(uintptr_t)(c->memory + from);
    c->ranges[n].end = c->ranges[n].start + bytes;
    if (n > 0) c->copy_at[n] = c->copy_at[n - 1] + (size_t)(c->ranges[n - 1].end - c->ranges[n - 1].start);
}

static void begin(struct scene *c, struct bwi_snapshot_need *need) {
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_snapshot_prepare(c->snapshots, c->ranges, c->count, need, &err), &err);
    assert_true(need->edge_bytes + BWI_SNAPSHOT_AREA_MIN <= c->area_bytes);
    bwi_snapshot_begin(c->snapshots, c->area, c->area_bytes);
    for (unsigned part = 0; part < 3; part++) assert_int_equal(bwi_snapshot_work(c->snapshots, part, 3), 0);
}

/* ---- who writes, and who copies ---- */

static void sleep_ms(unsigned ms) {
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

/* Nobody orders these writes; what is read of them is ordered by the kernel, which the thread sanitizer does not see.
 */
__attribute__((no_sanitize("thread"), noinline)) static void put(uint8_t *at, uint64_t word) {
    volatile uint64_t *to = (volatile uint64_t *)(void *)at;
    *to = word;
}

/* Every page, in an order of its own, again and again, with rests in which others get at the processors. */
static void *write_all(void *arg) {
    struct scene *c = arg;
    uint64_t seed = c->seed + atomic_fetch_add(&c->writes, 1);
    for (unsigned n = 1; !c->stop; n++) {
        put(c->memory + test_random(&seed) % (c->bytes / 8) * 8, test_random(&seed));
        (void)atomic_fetch_add_explicit(&c->writes, 1, memory_order_relaxed);
        if (n % 4096 == 0) sleep_ms(1);
    }
    return NULL;
}

static void *copy_all(void *arg) {
    struct scene *c = arg;
    for (size_t n; (n = atomic_fetch_add(&c->next, 1)) < c->count;) {
        size_t at = 0;
        const size_t bytes = (size_t)(c->ranges[n].end - c->ranges[n].start);
        while (at < bytes) { /* as chunks do: a range goes in pieces */
            const size_t piece = bytes - at < 3 * MIB + 123 ? bytes - at : 3 * MIB + 123;
            uint8_t *to = c->copy + c->copy_at[n] + at;
            struct bwi_xxh_state hash;
            bwi_xxh_init(&hash);
            bwi_snapshot_copy(c->snapshots, to, bwi_protect_at(c->ranges[n].start) + at, piece, &hash);
            const struct bwi_xxh told = bwi_xxh_final(&hash), is = bwi_xxh_of(bwi_span(to, piece));
            if (!bwi_xxh_eq(&told, &is)) (void)atomic_fetch_add(&c->wrong, 1);
            at += piece;
        }
    }
    return NULL;
}

static void run(struct scene *c, void *(*work)(void *), unsigned count, pthread_t *threads) {
    for (unsigned i = 0; i < count; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, c), 0);
}

static void join(pthread_t *threads, unsigned count) {
    for (unsigned i = 0; i < count; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void check_copy(const struct scene *c) {
    assert_int_equal(c->wrong, 0);
    for (size_t n = 0; n < c->count; n++) {
        const uint8_t *start = bwi_protect_at(c->ranges[n].start), *end = bwi_protect_at(c->ranges[n].end);
        for (const uint8_t *at = start; at < end;) {
            const uint8_t *word_start = (const uint8_t *)((uintptr_t)at & ~(uintptr_t)7);
            const uint64_t word = word_at(c, word_start);
            const size_t skip = (size_t)(at - word_start);
            const size_t bytes = (size_t)(end - at) < 8 - skip ? (size_t)(end - at) : 8 - skip;
            if (memcmp(c->copy + c->copy_at[n] + (at - start), (const uint8_t *)&word + skip, bytes) != 0)
                fail_msg("range %zu: a byte near %td is not what it was", n, at - start);
            at += bytes;
        }
    }
}

/* Nothing is protected: every page can be written, by this thread, at once. */
static void check_open(struct scene *c) {
    for (size_t at = 0; at < c->bytes; at += 4096) put(c->memory + at, 1);
}

/* ---- ranges ---- */

static void few_large(struct scene *c) {
    for (size_t i = 0; i < 5; i++) add_range(c, i * (c->bytes / 5) + 1000, c->bytes / 5 - 5000);
}

static void many_small_with_headers(struct scene *c) {
    for (size_t at = 16; at + 40000 < c->bytes && c->count < RANGES; at += 40000) add_range(c, at, 40000 - 16);
}

static void overlapping(struct scene *c) {
    add_range(c, 0, c->bytes);
    add_range(c, c->bytes / 4 + 3, c->bytes / 4);
}

static void random_ranges(struct scene *c) {
    size_t at = 0;
    for (int i = 0; i < 40 && at < c->bytes; i++) {
        const size_t n = test_random(&c->seed) % (3 * MIB);
        if (at + n > c->bytes) break;
        add_range(c, at, n);
        at += n + (test_random(&c->seed) % 3 == 0 ? test_random(&c->seed) % (2 * MIB) : test_random(&c->seed) % 64);
    }
}

static void played(int advice, size_t area, void (*layout)(struct scene *), unsigned rounds) {
    struct scene c;
    pthread_t writers[WRITERS], copiers[COPIERS];
    if (!open_scene(&c, 48 * MIB, advice, area, LONG_NS)) skip();
    for (unsigned round = 0; round < rounds; round++) {
        struct bwi_snapshot_need need;
        struct bwi_snapshot_stats stats;
        c.count = 0;
        c.next = 0;
        c.stop = false;
        c.writes = 0;
        c.salt++;
        fill(&c);
        layout(&c);
        begin(&c, &need);
        run(&c, write_all, WRITERS, writers);
        while (c.writes < WRITERS + 5) sleep_ms(1); /* some come before anything is copied */
        run(&c, copy_all, COPIERS, copiers);
        join(copiers, COPIERS);
        assert_false(bwi_snapshot_lost(c.snapshots));
        bwi_snapshot_end(c.snapshots, &stats);
        c.stop = true;
        join(writers, WRITERS);
        check_copy(&c);
        check_open(&c);
        assert_true(stats.faults > 0 || need.hull_bytes == 0);
    }
    close_scene(&c);
}

static void huge_pages_are_copied_as_they_were(void **state) {
    (void)state;
    played(MADV_HUGEPAGE, 40 * MIB, few_large, 3);
}

static void small_pages_are_copied_as_they_were(void **state) {
    (void)state;
    played(MADV_NOHUGEPAGE, 40 * MIB, few_large, 3);
}

static void small_ranges_with_the_allocators_books_between_them_are_copied_as_they_were(void **state) {
    (void)state;
    played(MADV_HUGEPAGE, 40 * MIB, many_small_with_headers, 3);
    played(MADV_HUGEPAGE, 64 * MIB, many_small_with_headers, 1);
}

static void ranges_that_overlap_are_copied_each(void **state) {
    (void)state;
    played(MADV_HUGEPAGE, 20 * MIB, overlapping, 2);
}

static void random_layouts_are_copied_as_they_were(void **state) {
    (void)state;
    played(MADV_HUGEPAGE, 50 * MIB, random_ranges, 6);
    played(MADV_NOHUGEPAGE, 50 * MIB, random_ranges, 2);
}

/* ---- writers that must not wait, and those that have to ---- */

struct write_one {
    uint8_t *at;
    size_t step, count;
    _Atomic size_t written;
    _Atomic bool done;
};

static void *write_some(void *arg) {
    struct write_one *w = arg;
    for (; w->written < w->count; w->written++) put(w->at + w->written * w->step, w->written);
    w->done = true;
    return NULL;
}

/* A few shadows, and nobody copies: a writer to the tensors' own pages waits, one to the books between them does
 * not. */
static void the_allocators_books_can_be_written_although_nothing_is_copied(void **state) {
    struct scene c;
    struct bwi_snapshot_need need;
    struct bwi_snapshot_stats stats;
    pthread_t threads[2];
    (void)state;
    if (!open_scene(&c, 48 * MIB, MADV_HUGEPAGE, 12 * MIB, LONG_NS)) skip();
    many_small_with_headers(&c);
    begin(&c, &need);
    struct write_one tensors = {.at = c.memory + 8192, .step = 2 * MIB, .count = 20};
    struct write_one books = {.at = c.memory + 40000 * 100 + 8, .step = 0, .count = 1};
    assert_int_equal(pthread_create(&threads[0], NULL, write_some, &tensors), 0);
    while (tensors.written < 1) sleep_ms(1);
    sleep_ms(50); /* and then there are no shadows any more */
    for (size_t i = 0; i < 100; i++) {
        books.at = c.memory + 40000 * (100 + i * 10) + 8; /* eight bytes before a range */
        books.at -= (uintptr_t)books.at % 8;
        books.written = 0;
        (void)write_some(&books);
    }
    assert_true(books.done);
    assert_false(tensors.done);
    (void)copy_all(&c);
    bwi_snapshot_end(c.snapshots, &stats);
    join(threads, 1);
    assert_true(tensors.done);
    assert_true(stats.pages > 50 && stats.waits > 0 && stats.wait_max_ns > 0 && stats.units >= 2);
    check_copy(&c);
    check_open(&c);
    close_scene(&c);
}

static void a_writer_that_has_waited_too_long_ends_the_snapshot(void **state) {
    struct scene c;
    struct bwi_snapshot_need need;
    struct bwi_snapshot_stats stats;
    (void)state;
    if (!open_scene(&c, 48 * MIB, MADV_HUGEPAGE, 12 * MIB, 300 * BWI_NS_PER_MS)) skip();
    few_large(&c);
    begin(&c, &need);
    struct write_one w = {.at = c.memory + 2 * MIB, .step = 2 * MIB, .count = 20};
    (void)write_some(&w); /* comes back: nobody copies */
    assert_true(bwi_snapshot_lost(c.snapshots));
    check_open(&c);
    bwi_snapshot_end(c.snapshots, &stats);
    /* And the next one is none the worse. */
    fill(&c);
    c.next = 0;
    begin(&c, &need);
    assert_false(bwi_snapshot_lost(c.snapshots));
    (void)copy_all(&c);
    bwi_snapshot_end(c.snapshots, &stats);
    check_copy(&c);
    close_scene(&c);
}

static void books_that_do_not_fit_end_the_snapshot(void **state) {
    struct scene c;
    struct bwi_snapshot_need need;
    struct bwi_snapshot_stats stats;
    (void)state;
    if (!open_scene(&c, 48 * MIB, MADV_HUGEPAGE, 12 * MIB, LONG_NS)) skip();
    many_small_with_headers(&c);
    begin(&c, &need);
    struct write_one w = {.at = c.memory + 40000, .step = 40000, .count = 1000};
    (void)write_some(&w);
    assert_true(w.done && bwi_snapshot_lost(c.snapshots));
    bwi_snapshot_end(c.snapshots, &stats);
    check_open(&c);
    close_scene(&c);
}

static void what_the_kernel_writes_waits_like_everybody(void **state) {
    struct scene c;
    struct bwi_snapshot_need need;
    struct bwi_snapshot_stats stats;
    (void)state;
    if (!open_scene(&c, 16 * MIB, MADV_HUGEPAGE, 40 * MIB, LONG_NS)) skip();
    add_range(&c, 0, c.bytes);
    begin(&c, &need);
    const int fd = open("/dev/zero", O_RDONLY);
    assert_int_equal(read(fd, c.memory + 5 * MIB, 3 * MIB), 3 * MIB);
    (void)close(fd);
    for (size_t i = 0; i < 3 * MIB; i++) assert_int_equal(c.memory[5 * MIB + i], 0);
    (void)copy_all(&c);
    bwi_snapshot_end(c.snapshots, &stats);
    assert_true(stats.faults > 0);
    check_copy(&c);
    close_scene(&c);
}

static void a_forked_child_writes_as_it_likes(void **state) {
    struct scene c;
    struct bwi_snapshot_need need;
    struct bwi_snapshot_stats stats;
    (void)state;
    if (!open_scene(&c, 16 * MIB, MADV_HUGEPAGE, 40 * MIB, LONG_NS)) skip();
    add_range(&c, 0, c.bytes);
    begin(&c, &need);
    const pid_t child = fork();
    if (child == 0) {
        check_open(&c);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    put(c.memory + 4 * MIB, 1);
    (void)copy_all(&c);
    bwi_snapshot_end(c.snapshots, &stats);
    check_copy(&c);
    check_open(&c);
    close_scene(&c);
}

/* ---- memory that is not for it ---- */

static void shared_memory_and_files_are_edges(void **state) {
    struct scene c;
    struct bwi_snapshot_need need;
    struct bwi_snapshot_stats stats;
    struct bw_error err = BW_ERROR_INIT;
    (void)state;
    if (!open_scene(&c, 16 * MIB, MADV_HUGEPAGE, 40 * MIB, LONG_NS)) skip();
    const int fd = memfd_create("tensor", 0);
    assert_true(fd >= 0 && ftruncate(fd, (off_t)(8 * MIB)) == 0);
    uint8_t *places[] = {
        mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
        mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0),
        mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0),
    };
    for (size_t i = 0; i < 3; i++) {
        assert_true(places[i] != MAP_FAILED);
        const uint64_t start = (uint64_t)(uintptr_t)places[i];
        const struct bwi_range r = {start, start + 8 * MIB};
        assert_ok(bwi_snapshot_prepare(c.snapshots, &r, 1, &need, &err), &err);
        assert_int_equal(need.inside_bytes, 0);
        assert_int_equal(need.edge_bytes, 8 * MIB);
        bwi_snapshot_end(c.snapshots, &stats);
        (void)munmap(places[i], 8 * MIB);
    }
    (void)close(fd);
    close_scene(&c);
}

static void memory_that_is_unmapped_meanwhile_does_not_keep_the_rest(void **state) {
    struct scene c;
    struct bwi_snapshot_need need;
    struct bwi_snapshot_stats stats;
    pthread_t thread;
    (void)state;
    if (!open_scene(&c, 48 * MIB, MADV_HUGEPAGE, 12 * MIB, LONG_NS)) skip();
    add_range(&c, 0, c.bytes);
    begin(&c, &need);
    struct write_one w = {.at = c.memory + 30 * MIB, .step = 2 * MIB, .count = 8};
    assert_int_equal(pthread_create(&thread, NULL, write_some, &w), 0);
    sleep_ms(50);
    assert_false(w.done); /* there are few shadows, and nobody copies */
    const int fd = memfd_create("other", 0);
    assert_int_equal(ftruncate(fd, (off_t)(4 * MIB)), 0);
    assert_int_equal(munmap(c.memory + 6 * MIB, MIB), 0);
    assert_true(mmap(c.memory + 8 * MIB, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) ==
                c.memory + 8 * MIB);
    bwi_snapshot_end(c.snapshots, &stats);
    assert_int_equal(pthread_join(thread, NULL), 0);
    put(c.memory + 6 * MIB - 8, 1);
    put(c.memory + 7 * MIB, 1);
    put(c.memory + 20 * MIB, 1);
    (void)close(fd);
    close_scene(&c);
}

/* What lies between tensors is the allocator's, who unmaps it, or maps something else there, when it likes. */
static void gaps_that_are_unmapped_or_replaced_meanwhile_do_no_harm(void **state) {
    struct scene c;
    struct bwi_snapshot_need need;
    struct bwi_snapshot_stats stats;
    (void)state;
    for (size_t area = 12; area <= 40; area += 28) { /* few shadows, and enough */
        if (!open_scene(&c, 48 * MIB, MADV_HUGEPAGE, area * MIB, LONG_NS)) skip();
        for (size_t i = 0; i < 24; i++) add_range(&c, i * 2 * MIB + 300, MIB);
        begin(&c, &need);
        assert_int_equal(munmap(c.memory + 5 * MIB + 8192, MIB / 2), 0);
        const int fd = memfd_create("other", 0);
        assert_int_equal(ftruncate(fd, (off_t)MIB), 0);
        assert_true(mmap(c.memory + 9 * MIB + 8192, MIB / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) !=
                    MAP_FAILED);
        (void)close(fd);
        struct write_one w[] = {{.at = c.memory + 4 * MIB + 4096}, {.at = c.memory + 8 * MIB + 4096}};
        pthread_t threads[2];
        for (int i = 0; i < 2; i++) {
            w[i].count = 1;
            assert_int_equal(pthread_create(&threads[i], NULL, write_some, &w[i]), 0);
        }
        join(threads, 2);                        /* before anything is copied: there are shadows for both */
        put(c.memory + 9 * MIB + 4096 * 250, 1); /* behind what was replaced, in the same unit */
        (void)copy_all(&c);
        bwi_snapshot_end(c.snapshots, &stats);
        assert_int_equal(stats.units >= 2, 1);
        check_copy(&c);
        close_scene(&c);
    }
}

static void what_nobody_needs_between_tensors_is_written_without_end(void **state) {
    struct scene c;
    struct bwi_snapshot_need need;
    struct bwi_snapshot_stats stats;
    (void)state;
    if (!open_scene(&c, 128 * MIB, MADV_HUGEPAGE, 12 * MIB, LONG_NS)) skip();
    for (size_t i = 0; i < 256; i++) add_range(&c, i * MIB / 2, MIB / 4);
    begin(&c, &need);
    for (size_t i = 0; i < 256; i++)
        for (size_t at = MIB / 4; at < MIB / 2; at += 4096) put(c.memory + i * MIB / 2 + at, 1);
    assert_false(bwi_snapshot_lost(c.snapshots));
    (void)copy_all(&c);
    bwi_snapshot_end(c.snapshots, &stats);
    assert_true(stats.pages == 0 && stats.faults > 1000);
    check_copy(&c);
    check_open(&c);
    close_scene(&c);
}

/* ---- the kernel that says no ---- */

struct refusing {
    struct bwi_protect table;
    int (*call)(struct bwi_protect *, int, uint64_t, uint64_t);
    unsigned calls, fail_at;
};
static struct refusing refusing;

static int refuse(struct bwi_protect *p, int fd, uint64_t address, uint64_t bytes) {
    return ++refusing.calls == refusing.fail_at ? -ENOMEM : refusing.call(p, fd, address, bytes);
}

static void refused(bool add, unsigned fail_at) {
    struct scene c;
    struct bwi_snapshot_need need;
    struct bwi_snapshot_stats stats;
    struct bw_error err = BW_ERROR_INIT;
    if (!open_scene(&c, 200 * MIB, MADV_HUGEPAGE, 12 * MIB, LONG_NS)) skip();
    bwi_snapshots_close(c.snapshots);
    refusing = (struct refusing){.table = *bwi_protect_system(), .fail_at = fail_at};
    refusing.call = add ? refusing.table.add : refusing.table.on;
    *(add ? &refusing.table.add : &refusing.table.on) = refuse;
    const struct bwi_snapshots_options o = {.os = &refusing.table, .workers = 2, .wait_ns = LONG_NS, .always = true};
    assert_ok(bwi_snapshots_open(&o, &c.snapshots, &err), &err);
    add_range(&c, 0, 70 * MIB);
    add_range(&c, 100 * MIB, 100 * MIB);
    assert_ok(bwi_snapshot_prepare(c.snapshots, c.ranges, c.count, &need, &err), &err);
    bwi_snapshot_begin(c.snapshots, c.area, c.area_bytes);
    assert_int_equal(bwi_snapshot_work(c.snapshots, 0, 1), -ENOMEM);
    bwi_snapshot_end(c.snapshots, &stats);
    check_open(&c);
    close_scene(&c);
}

static void a_refused_call_leaves_nothing_protected(void **state) {
    (void)state;
    for (unsigned n = 1; n <= 2; n++) refused(true, n);
    for (unsigned n = 1; n <= 4; n++) refused(false, n);
}

/* Two handles on one heap: the second one's hull covers the first one's tensors. */
static void what_somebody_else_protects_is_left_alone(void **state) {
    struct scene c, other;
    struct bwi_snapshot_need need;
    struct bwi_snapshot_stats stats;
    struct bw_error err = BW_ERROR_INIT;
    (void)state;
    if (!open_scene(&c, 32 * MIB, MADV_HUGEPAGE, 40 * MIB, LONG_NS)) skip();
    assert_true(open_scene(&other, 32 * MIB, MADV_HUGEPAGE, 40 * MIB, LONG_NS));
    for (size_t i = 0; i < 4; i++) add_range(&c, i * 8 * MIB, 4 * MIB);
    for (size_t i = 0; i < 3; i++) {
        other.ranges[i].start = (uint64_t)(uintptr_t)(c.memory + i * 8 * MIB + 4 * MIB);
        other.ranges[i].end = other.ranges[i].start + 4 * MIB;
    }
    begin(&c, &need);
    assert_ok(bwi_snapshot_prepare(other.snapshots, other.ranges, 3, &need, &err), &err);
    bwi_snapshot_begin(other.snapshots, other.area, other.area_bytes);
    assert_int_equal(bwi_snapshot_work(other.snapshots, 0, 1), -EBUSY);
    bwi_snapshot_end(other.snapshots, &stats);
    check_open(&c); /* still seen: else the copy had these bytes */
    (void)copy_all(&c);
    bwi_snapshot_end(c.snapshots, &stats);
    assert_true(stats.faults > 0);
    check_copy(&c);
    close_scene(&other);
    close_scene(&c);
}

static void protecting_that_is_as_dear_as_copying_is_not_done(void **state) {
    struct scene c;
    struct bwi_snapshot_need need;
    struct bwi_snapshot_stats stats;
    struct bw_error err = BW_ERROR_INIT;
    (void)state;
    if (!open_scene(&c, 400 * MIB, MADV_NOHUGEPAGE, 12 * MIB, LONG_NS)) skip();
    bwi_snapshots_close(c.snapshots);
    const struct bwi_snapshots_options o = {.workers = 1000, .wait_ns = LONG_NS};
    assert_ok(bwi_snapshots_open(&o, &c.snapshots, &err), &err);
    add_range(&c, 0, c.bytes);
    assert_ok(bwi_snapshot_prepare(c.snapshots, c.ranges, c.count, &need, &err), &err);
    bwi_snapshot_begin(c.snapshots, c.area, c.area_bytes);
    assert_int_equal(bwi_snapshot_work(c.snapshots, 0, 1), -EDOM);
    bwi_snapshot_end(c.snapshots, &stats);
    check_open(&c);
    close_scene(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(huge_pages_are_copied_as_they_were),
        cmocka_unit_test(small_pages_are_copied_as_they_were),
        cmocka_unit_test(small_ranges_with_the_allocators_books_between_them_are_copied_as_they_were),
        cmocka_unit_test(ranges_that_overlap_are_copied_each),
        cmocka_unit_test(random_layouts_are_copied_as_they_were),
        cmocka_unit_test(the_allocators_books_can_be_written_although_nothing_is_copied),
        cmocka_unit_test(a_writer_that_has_waited_too_long_ends_the_snapshot),
        cmocka_unit_test(books_that_do_not_fit_end_the_snapshot),
        cmocka_unit_test(what_the_kernel_writes_waits_like_everybody),
        cmocka_unit_test(a_forked_child_writes_as_it_likes),
        cmocka_unit_test(shared_memory_and_files_are_edges),
        cmocka_unit_test(memory_that_is_unmapped_meanwhile_does_not_keep_the_rest),
        cmocka_unit_test(gaps_that_are_unmapped_or_replaced_meanwhile_do_no_harm),
        cmocka_unit_test(what_nobody_needs_between_tensors_is_written_without_end),
        cmocka_unit_test(what_somebody_else_protects_is_left_alone),
        cmocka_unit_test(a_refused_call_leaves_nothing_protected),
        cmocka_unit_test(protecting_that_is_as_dear_as_copying_is_not_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
