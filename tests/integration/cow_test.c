/* SPDX-License-Identifier: Apache-2.0 */
/* Saves that write-protect the tensors instead of copying them: what is committed is what was there at start, whatever
 * is written from wait_writable on; what cannot be protected is copied and told; and nothing stays protected, however a
 * save ends. */
#include "confine.h"
#include "job.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STATE   (96 * MIB)
#define TENSORS 37u
#define WRITERS 2

struct model {
    struct place place;
    unsigned char *memory, *read;
    bool restless; /* its writers */
    atomic_bool stop;
    pthread_t writers[WRITERS];
};

static unsigned char *map(size_t bytes) {
    unsigned char *p = mmap(NULL, bytes + 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(p != MAP_FAILED);
    p += -(uintptr_t)p & (2 * MIB - 1);
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static void model_open(struct model *m) {
    *m = (struct model){0};
    place_make(&m->place);
    m->memory = map(STATE);
    m->read = malloc(STATE);
}

static void model_close(struct model *m) {
    (void)munmap(m->memory, STATE);
    free(m->read);
    place_drop(&m->place);
}

static struct bw_options cow_options(const struct model *m, const char *launch, uint64_t budget) {
    struct bw_options o = options_of(&m->place, launch, 0, 1);
    o.capture = BW_CAPTURE_COW;
    o.memory_budget_bytes = budget;
    return o;
}

/* Tensor i, with a few bytes between it and the next one. */
static unsigned char *tensor_of(const struct model *m, unsigned i, size_t *bytes) {
    const size_t each = STATE / TENSORS;
    *bytes = each - 40;
    return m->memory + i * each + 8;
}

static void fill_all(struct model *m, uint64_t seed) {
    for (unsigned i = 0; i < TENSORS; i++) {
        size_t bytes;
        unsigned char *at = tensor_of(m, i, &bytes);
        fill(at, bytes, seed + i);
    }
}

static struct bw_save *describe(struct model *m, struct bw_checkpointer *ck, uint64_t step) {
    struct bw_save *v = begin(ck, step);
    for (unsigned i = 0; i < TENSORS; i++) {
        char name[32];
        size_t bytes;
        const unsigned char *at = tensor_of(m, i, &bytes);
        snprintf(name, sizeof name, "t%02u", i);
        add_bytes(v, name, at, bytes);
    }
    return v;
}

static void writable(struct bw_save *v) {
    struct bw_error err = BW_ERROR_INIT;
    must_ok(bw_save_wait_writable(v, WAIT_MS, &err), &err);
}

static void check_all(struct model *m, uint64_t step, uint64_t seed) {
    struct bw_restore *r = reader_of(&m->place, step);
    for (unsigned i = 0; i < TENSORS; i++) {
        char name[32];
        size_t bytes;
        (void)tensor_of(m, i, &bytes);
        snprintf(name, sizeof name, "t%02u", i);
        read_bytes(r, name, m->read, bytes);
        must(is_filled(m->read, bytes, seed + i));
    }
    bw_restore_close(r);
}

static struct bw_save_stats stats_of(struct bw_save *v) {
    struct bw_save_stats stats;
    bw_save_stats(v, &stats);
    return stats;
}

/* Whether this machine can do it at all; where it cannot the save says why, and these cases have nothing to show. */
static bool can_protect(struct model *m) {
    struct bw_options o = cow_options(m, "probe", 256 * MIB);
    struct bw_checkpointer *ck = open_with(&o);
    fill_all(m, 1);
    struct bw_save *v = describe(m, ck, 1);
    start(v);
    wait_for(v, BW_COMMITTED);
    const struct bw_save_stats stats = stats_of(v);
    const bool can = strcmp(stats.capture_mode, "cow") == 0;
    if (!can) print_message("captured by %s: %s\n", stats.capture_mode, stats.capture_why);
    must(can == (stats.capture_why[0] == '\0'));
    bw_save_release(v);
    close_ok(ck);
    return can;
}

/* ---- those who write ---- */

/* Nobody orders these writes; what is read of them is ordered by the kernel, which the thread sanitizer does not see.
 */
__attribute__((no_sanitize("thread"), noinline)) static void put(volatile unsigned char *at, unsigned char byte) {
    *at = byte;
}

/* Writers that never rest leave the library's threads, which give way, next to nothing of the processors. */
#define BURST 4096u

static void *write_anywhere(void *arg) {
    struct model *m = arg;
    uint64_t seed = (uint64_t)(uintptr_t)&seed;
    const struct timespec rest = {.tv_nsec = m->restless ? 0 : 2000000};
    while (!m->stop) {
        for (unsigned i = 0; i < BURST; i++) put(m->memory + test_random(&seed) % STATE, (unsigned char)seed);
        if (rest.tv_nsec > 0) (void)nanosleep(&rest, NULL);
    }
    return NULL;
}

static void let_write(struct model *m) {
    m->stop = false;
    for (int i = 0; i < WRITERS; i++) must(pthread_create(&m->writers[i], NULL, write_anywhere, m) == 0);
}

static void stop_writing(struct model *m) {
    m->stop = true;
    for (int i = 0; i < WRITERS; i++) must(pthread_join(m->writers[i], NULL) == 0);
}

/* Nothing waits for anything: every page is written by this thread. */
static void must_be_open(struct model *m) {
    for (size_t at = 0; at < STATE; at += 4096) put(m->memory + at, 1);
}

/* ---- cases ---- */

/* A machine whose processors are busy may take as long to protect as to copy, and then it copies. That is right, and
 * nothing that is looked for here. */
static bool took_too_long(const struct bw_save_stats *s) {
    return strcmp(s->capture_mode, "copy") == 0 && strstr(s->capture_why, "as dear as copying") != NULL;
}

#define TRIES 20u

/* Saves three times by write-protection. */
static void saves_of(struct model *m, uint64_t budget, const char *launch, uint64_t first) {
    struct bw_options o = cow_options(m, launch, budget);
    struct bw_checkpointer *ck = open_with(&o);
    uint64_t caught = 0;
    unsigned protected = 0;
    for (uint64_t step = first; protected < 3; step++) {
        must(step < first + TRIES);
        fill_all(m, 100 * step);
        struct bw_save *v = describe(m, ck, step);
        start(v);
        writable(v);
        let_write(m);
        wait_for(v, BW_COMMITTED);
        stop_writing(m);
        const struct bw_save_stats stats = stats_of(v);
        if (took_too_long(&stats)) {
            bw_save_release(v);
            check_all(m, step, 100 * step);
            continue;
        }
        protected++;
        must(strcmp(stats.capture_mode, "cow") == 0 && stats.capture_why[0] == '\0');
        must(stats.stall_ns > 0 && stats.stall_ns <= stats.capture_ns && stats.capture_ns <= stats.local_ns);
        must(stats.protect_ns > 0 && stats.copied_bytes < 5 * MIB);
        caught += stats.writes_caught;
        must(stats.writes_waited <= stats.writes_caught && (stats.writes_waited > 0) == (stats.write_wait_max_ns > 0));
        bw_save_release(v);
        must_be_open(m);
        check_all(m, step, 100 * step);
    }
    must(caught > 0 || budget > STATE); /* with a large one all may be captured before anybody writes */
    close_ok(ck);
}

static void a_save_is_of_its_start_whatever_is_written_afterwards(void **state) {
    struct model m;
    (void)state;
    model_open(&m);
    if (can_protect(&m)) {
        saves_of(&m, 256 * MIB, "roomy", 10);
        saves_of(&m, 64 * MIB, "narrow", 40);
        must_be_sound(&m.place);
    }
    model_close(&m);
}

/* A second save finds the first one being captured. */
static void saves_that_overlap_are_right_as_well(void **state) {
    struct model m;
    (void)state;
    model_open(&m);
    struct bw_options o = cow_options(&m, "one", 64 * MIB);
    o.saves_in_flight_max = 3;
    struct bw_checkpointer *ck = open_with(&o);
    struct bw_save *v[3];
    for (uint64_t i = 0; i < 3; i++) {
        fill_all(&m, 1000 * i);
        v[i] = describe(&m, ck, i + 1);
        start(v[i]);
        writable(v[i]);
    }
    let_write(&m);
    for (uint64_t i = 0; i < 3; i++) finish(v[i]);
    stop_writing(&m);
    for (uint64_t i = 0; i < 3; i++) check_all(&m, i + 1, 1000 * i);
    close_ok(ck);
    model_close(&m);
}

static void what_cannot_be_protected_is_copied_at_once(void **state) {
    struct model m;
    struct bw_error err = BW_ERROR_INIT;
    const uint64_t shape[] = {1024, 512}, bytes = 12 * MIB;
    const int64_t transposed[] = {1, 1024};
    (void)state;
    model_open(&m);
    struct bw_options o = cow_options(&m, "one", 256 * MIB);
    struct bw_checkpointer *ck = open_with(&o);
    fill_all(&m, 5);
    unsigned char *device = malloc(bytes), *strided = malloc(1024 * 512), *blob = malloc(bytes);
    unsigned char *want = malloc(1024 * 512);
    fill(device, bytes, 1);
    fill(strided, 1024 * 512, 2);
    fill(blob, bytes, 3);
    for (size_t i = 0; i < 1024; i++)
        for (size_t k = 0; k < 512; k++) want[i * 512 + k] = strided[i + k * 1024];
    struct bw_save *v = describe(&m, ck, 1);
    struct bw_tensor t = BW_TENSOR_INIT;
    t.name = "device", t.dtype = BW_U8, t.dims = 1, t.shape = &bytes, t.data = device, t.flags = BW_TENSOR_DEVICE;
    must_ok(bw_save_tensor(v, &t, &err), &err);
    t = (struct bw_tensor)BW_TENSOR_INIT;
    t.name = "strided", t.dtype = BW_U8, t.dims = 2, t.shape = shape, t.stride_bytes = transposed, t.data = strided;
    must_ok(bw_save_tensor(v, &t, &err), &err);
    must_ok(bw_save_blob(v, "blob", blob, bytes, &err), &err);
    start(v);
    writable(v);
    memset(device, 0, bytes);
    memset(strided, 0, 1024 * 512);
    memset(blob, 0, bytes);
    memset(m.memory, 0, STATE);
    wait_for(v, BW_COMMITTED);
    const struct bw_save_stats stats = stats_of(v);
    if (strcmp(stats.capture_mode, "cow") == 0) must(stats.copied_bytes >= bytes + 1024 * 512);
    bw_save_release(v);
    close_ok(ck);
    check_all(&m, 1, 5);
    struct bw_restore *r = reader_of(&m.place, 1);
    read_bytes(r, "device", m.read, bytes);
    must(is_filled(m.read, bytes, 1));
    struct bw_slice slice = BW_SLICE_INIT;
    slice.name = "strided", slice.dtype = BW_U8, slice.dims = 2, slice.shape = shape, slice.data = m.read;
    must_ok(bw_restore_read(r, &slice, 1, &err), &err);
    must(memcmp(m.read, want, 1024 * 512) == 0);
    size_t got = 0;
    must_ok(bw_restore_blob(r, 0, "blob", m.read, bytes, &got, &err), &err);
    must(got == bytes && is_filled(m.read, bytes, 3));
    bw_restore_close(r);
    free(device);
    free(strided);
    free(blob);
    free(want);
    model_close(&m);
}

/* Two names for one tensor are saved once; each unit of it is opened when that is done. */
static void tensors_that_are_one_are_captured_once(void **state) {
    struct model m;
    (void)state;
    model_open(&m);
    struct bw_options o = cow_options(&m, "one", 64 * MIB);
    struct bw_checkpointer *ck = open_with(&o);
    fill_all(&m, 3);
    struct bw_save *v = describe(&m, ck, 1);
    for (unsigned i = 0; i < TENSORS; i++) {
        char name[32];
        size_t bytes;
        const unsigned char *at = tensor_of(&m, i, &bytes);
        snprintf(name, sizeof name, "again%02u", i);
        add_bytes(v, name, at, bytes);
    }
    start(v);
    writable(v);
    let_write(&m);
    wait_for(v, BW_COMMITTED);
    stop_writing(&m);
    bw_save_release(v);
    close_ok(ck);
    check_all(&m, 1, 3);
    model_close(&m);
}

/* Under one name it is said that a device writes the memory, under another one it is not. */
static void a_tensor_that_is_one_with_a_devices_is_copied(void **state) {
    struct model m;
    struct bw_error err = BW_ERROR_INIT;
    size_t bytes;
    (void)state;
    model_open(&m);
    const bool can = can_protect(&m);
    struct bw_options o = cow_options(&m, "one", 256 * MIB);
    struct bw_checkpointer *ck = open_with(&o);
    fill_all(&m, 4);
    struct bw_save *v = describe(&m, ck, 2);
    struct bw_tensor t = BW_TENSOR_INIT;
    t.data = tensor_of(&m, 5, &bytes);
    const uint64_t shape = bytes;
    t.name = "device", t.dtype = BW_U8, t.dims = 1, t.shape = &shape, t.flags = BW_TENSOR_DEVICE;
    must_ok(bw_save_tensor(v, &t, &err), &err);
    start(v);
    writable(v);
    let_write(&m);
    wait_for(v, BW_COMMITTED);
    stop_writing(&m);
    const struct bw_save_stats stats = stats_of(v);
    must(strcmp(stats.capture_mode, "copy") == 0);
    if (can) must(strstr(stats.capture_why, "a device may write to what tensors share") != NULL);
    bw_save_release(v);
    close_ok(ck);
    check_all(&m, 2, 4);
    model_close(&m);
}

/* ---- where it is not to be had ---- */

static void copied(struct model *m, const char *why) {
    struct bw_options o = cow_options(m, "copied", 256 * MIB);
    struct bw_checkpointer *ck = open_with(&o);
    fill_all(m, 9);
    struct bw_save *v = describe(m, ck, 1);
    start(v);
    writable(v);
    let_write(m);
    wait_for(v, BW_COMMITTED);
    stop_writing(m);
    const struct bw_save_stats stats = stats_of(v);
    must(strcmp(stats.capture_mode, "copy") == 0);
    must_at(strstr(stats.capture_why, why) != NULL, stats.capture_why, why, __FILE__, __LINE__);
    must(stats.stall_ns > 0 && stats.stall_ns == stats.capture_ns);
    bw_save_release(v);
    close_ok(ck);
    check_all(m, 1, 9);
}

static int under_seccomp(void *arg, unsigned i) {
    static const int calls[] = {SYS_userfaultfd};
    (void)i;
    (void)unlink("/nothing");
    refuse_calls(calls, 1, EPERM);
    become_stranger();
    copied(arg, "userfaultfd: Operation not permitted");
    return 0;
}

/* A stranger may see the faults of user code, but not the kernel's own. */
static int as_stranger(void *arg, unsigned i) {
    (void)i;
    become_stranger();
    copied(arg, "userfaultfd: ");
    return 0;
}

static void in_process(int (*run)(void *, unsigned)) {
    struct model m;
    model_open(&m);
    if (may_mount()) {
        give_to_stranger(m.place.root);
        run_ranks(run, &m, 1);
    }
    model_close(&m);
}

static void without_userfaultfd_everything_is_copied(void **state) {
    (void)state;
    in_process(under_seccomp);
}

static void without_the_right_to_see_all_faults_everything_is_copied(void **state) {
    (void)state;
    in_process(as_stranger);
}

static void a_state_on_shared_memory_is_copied(void **state) {
    struct model m;
    (void)state;
    model_open(&m);
    const bool can = can_protect(&m);
    (void)munmap(m.memory, STATE);
    m.memory = mmap(NULL, STATE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(m.memory != MAP_FAILED);
    struct place fresh = m.place;
    place_make(&m.place);
    if (can) copied(&m, "most of the memory cannot be write-protected");
    place_drop(&fresh);
    model_close(&m);
}

/* ---- ends ---- */

static void cancelled_or_closed_it_leaves_nothing_protected(void **state) {
    struct model m;
    struct bw_error err = BW_ERROR_INIT;
    (void)state;
    model_open(&m);
    struct bw_options o = cow_options(&m, "one", 64 * MIB);
    struct bw_checkpointer *ck = open_with(&o);
    fill_all(&m, 1);
    struct bw_save *v = describe(&m, ck, 1);
    start(v);
    writable(v);
    must_ok(bw_save_cancel(v, &err), &err);
    must_be_open(&m);
    bw_save_release(v);
    v = describe(&m, ck, 2);
    start(v);
    writable(v);
    let_write(&m);
    (void)bw_checkpointer_close(ck, 0, &err);
    stop_writing(&m);
    must_be_open(&m);
    model_close(&m);
}

static void a_writer_that_waits_too_long_costs_the_save_and_nothing_else(void **state) {
    struct model m;
    struct bw_error err = BW_ERROR_INIT;
    (void)state;
    model_open(&m);
    if (!can_protect(&m)) {
        model_close(&m);
        skip();
    }
    struct bw_options o = cow_options(&m, "one", 64 * MIB);
    o.capture_wait_ms = 1;
    m.restless = true;
    struct bw_checkpointer *ck = open_with(&o);
    bool lost = false;
    for (uint64_t step = 2; step < 40 && !lost; step++) {
        fill_all(&m, step);
        struct bw_save *v = describe(&m, ck, step);
        start(v);
        writable(v);
        let_write(&m);
        const int rc = bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err);
        stop_writing(&m);
        lost = rc == BW_E_IO;
        if (lost) must(strstr(err.message, "waited for too long") != NULL && err.stage == BW_STAGE_CAPTURE);
        if (!lost) must_ok(rc, &err);
        must_be_open(&m);
        bw_save_release(v);
        if (!lost) check_all(&m, step, step);
    }
    must(lost);
    fill_all(&m, 100);
    struct bw_save *v = describe(&m, ck, 100);
    start(v);
    finish(v);
    check_all(&m, 100, 100);
    close_ok(ck);
    must_be_sound(&m.place);
    model_close(&m);
}

static void a_restore_waits_until_its_memory_is_captured(void **state) {
    struct model m;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_restore *r;
    (void)state;
    model_open(&m);
    struct bw_options o = cow_options(&m, "one", 64 * MIB);
    struct bw_checkpointer *ck = open_with(&o);
    fill_all(&m, 7);
    struct bw_save *v = describe(&m, ck, 1);
    start(v);
    finish(v);
    close_ok(ck);
    o = cow_options(&m, "two", 64 * MIB);
    ck = open_with(&o);
    must_ok(bw_restore_open(ck, &r, &err), &err);
    fill_all(&m, 8);
    v = describe(&m, ck, 2);
    start(v);
    writable(v);
    for (unsigned i = 0; i < TENSORS; i++) {
        char name[32];
        size_t bytes;
        unsigned char *at = tensor_of(&m, i, &bytes);
        snprintf(name, sizeof name, "t%02u", i);
        read_bytes(r, name, at, bytes);
        must(is_filled(at, bytes, 7 + i));
    }
    bw_restore_close(r);
    finish(v);
    close_ok(ck);
    check_all(&m, 2, 8);
    model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_is_of_its_start_whatever_is_written_afterwards),
        cmocka_unit_test(saves_that_overlap_are_right_as_well),
        cmocka_unit_test(what_cannot_be_protected_is_copied_at_once),
        cmocka_unit_test(tensors_that_are_one_are_captured_once),
        cmocka_unit_test(a_tensor_that_is_one_with_a_devices_is_copied),
        cmocka_unit_test(without_userfaultfd_everything_is_copied),
        cmocka_unit_test(without_the_right_to_see_all_faults_everything_is_copied),
        cmocka_unit_test(a_state_on_shared_memory_is_copied),
        cmocka_unit_test(cancelled_or_closed_it_leaves_nothing_protected),
        cmocka_unit_test(a_writer_that_waits_too_long_costs_the_save_and_nothing_else),
        cmocka_unit_test(a_restore_waits_until_its_memory_is_captured),
    };
    return run_cases(tests);
}
