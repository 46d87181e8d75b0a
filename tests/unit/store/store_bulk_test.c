/* SPDX-License-Identifier: Apache-2.0 */
/* Reading much data once: from the page cache what is in there, past it what is not, and what stays in there
 * afterwards. What the page cache holds is asked of the kernel. */
#include "rig.h"

#include "base/vec.h"
#include "os/memory.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define ALIGN ((size_t)BWI_OS_DIRECT_ALIGN)
#define BYTES ((size_t)(1 << 20) + 3 * ALIGN + 1000) /* whole blocks and a rest */
#define WHOLE (BYTES - BYTES % ALIGN)
#define ROOM  (WHOLE + ALIGN)

struct fixture {
    struct rig rig;
    struct bwi_store *s;
    struct bwi_os odd;
    struct bwi_memory memory;
    const uint8_t *bytes; /* of the object */
    uint8_t *to;          /* aligned; a block more than it needs */
    size_t shown;
    bool in_order; /* what was shown */
    struct bwi_store_handle *handle;
    const char *dir;
    unsigned files;
};
static struct fixture the;

#define S &f->rig, f->s

static void start(struct fixture *f) {
    rig_open(&f->rig, false, &f->odd);
    f->s = rig_store(&f->rig, f->dir, false);
    assert_op_ok(st_upload(S, "a/k", bwi_span(f->bytes, BYTES)));
}

static void stop(struct fixture *f) {
    if (f->handle != NULL) assert_op_ok(st_release(S, &f->handle));
    f->s->close(f->s);
    rig_close(&f->rig);
    f->s = NULL;
}

static int setup(void **state) {
    struct fixture *f = &the;
    uint64_t rng = 7;
    *f = (struct fixture){.files = rig_open_files(), .odd = *bwi_os_system(), .dir = test_mkdir(), .in_order = true};
    assert_int_equal(bwi_memory_map(2 * ROOM + 2 * ALIGN, &f->memory), 0);
    uint8_t *bytes = f->memory.ptr;
    for (size_t i = 0; i < BYTES; i++) bytes[i] = (uint8_t)test_random(&rng);
    f->bytes = bytes;
    f->to = bytes + ROOM;
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    if (f->s != NULL) stop(f);
    bwi_memory_unmap(&f->memory);
    test_rmdir(f->dir);
    assert_int_equal(rig_open_files(), f->files);
    return 0;
}

/* ---- the page cache ---- */

static int open_object(const struct fixture *f) {
    struct bwi_os *os = bwi_os_system();
    const int dir = os->open_root(os, f->dir, false);
    const int a = os->open_dir(os, dir, "a");
    const int fd = os->open_read(os, a, "k");
    (void)os->close(os, a);
    (void)os->close(os, dir);
    assert_true(fd >= 0);
    return fd;
}

static uint64_t cached(const struct fixture *f) {
    struct bwi_os *os = bwi_os_system();
    const int fd = open_object(f);
    const int64_t n = os->cached(os, fd, 0, BYTES);
    (void)os->close(os, fd);
    assert_true(n >= 0);
    return (uint64_t)n;
}

/* Brings all of it into the page cache, or none. false: this file system leaves no choice. */
static bool set_cached(const struct fixture *f, bool in) {
    struct bwi_os *os = bwi_os_system();
    const int fd = open_object(f);
    assert_int_equal(os->fsync(os, fd), 0); /* what is dirty stays */
    assert_int_equal(os->advise_done(os, fd, 0, BYTES), 0);
    const int direct = os->open_direct(os, fd, false);
    if (in) assert_int_equal(os->pread(os, fd, f->to, BYTES, 0), BYTES);
    memset(f->to, 0xee, ROOM + 2 * ALIGN);
    (void)os->close(os, fd);
    if (direct >= 0) (void)os->close(os, direct);
    return direct >= 0 && (cached(f) > 0) == in;
}

static bool is_tmpfs(const struct fixture *f) {
    struct bwi_os *os = bwi_os_system();
    struct bwi_os_space space;
    const int fd = open_object(f);
    assert_int_equal(os->space(os, fd, &space), 0);
    (void)os->close(os, fd);
    return space.fs_type == 0x01021994;
}

/* ---- reading ---- */

static void look(struct bwi_store_op *op, const uint8_t *piece, size_t bytes) {
    struct fixture *f = &the;
    f->in_order = f->in_order && op->looked == f->shown && memcmp(piece, f->bytes + f->shown, bytes) == 0;
    f->shown += bytes;
}

static struct bwi_store_op to_read(struct fixture *f, uint8_t *to) {
    f->shown = 0;
    return (struct bwi_store_op){.verb = BWI_STORE_READ,
                                 .key = "a/k",
                                 .buf = to,
                                 .bytes = BYTES,
                                 .handle = &f->handle,
                                 .bulk = true,
                                 .look = look};
}

static struct bwi_store_op read_ok(struct fixture *f, struct bwi_store_op op) {
    op = st_run(S, op);
    assert_op_ok(op);
    assert_false(op.declined);
    assert_memory_equal(op.buf, f->bytes, BYTES);
    assert_true(f->in_order);
    assert_int_equal(op.looked, f->shown);
    return op;
}

static void what_is_not_cached_comes_past_the_page_cache(void **state) {
    struct fixture *f = *state;
    start(f);
    if (!set_cached(f, false)) skip();
    struct bwi_store_op op = to_read(f, f->to);
    op.room_bytes = ROOM;
    op = read_ok(f, op);
    assert_int_equal(op.direct_bytes, BYTES);
    assert_int_equal(op.looked, 0);
    assert_int_equal(f->to[ROOM], 0xee);
    assert_int_equal(cached(f), 0);
}

static void nothing_is_written_behind_the_bytes_where_there_is_no_room(void **state) {
    struct fixture *f = *state;
    start(f);
    if (!set_cached(f, false)) skip();
    const struct bwi_store_op op = read_ok(f, to_read(f, f->to));
    assert_int_equal(op.direct_bytes, WHOLE);
    assert_int_equal(f->to[BYTES], 0xee);
    assert_true(cached(f) < WHOLE / 2);
}

static void what_is_cached_comes_from_there_and_is_shown_on_its_way(void **state) {
    struct fixture *f = *state;
    start(f);
    if (!set_cached(f, true)) skip();
    const struct bwi_store_op op = read_ok(f, to_read(f, f->to + 24));
    assert_int_equal(op.direct_bytes, 0);
    assert_int_equal(op.looked, BYTES);
    assert_int_equal(f->to[24 + BYTES], 0xee);
    assert_true(cached(f) >= BYTES);
}

static void who_knows_that_it_is_not_cached_is_believed(void **state) {
    struct fixture *f = *state;
    start(f);
    if (is_tmpfs(f) || !set_cached(f, true)) skip();
    struct bwi_store_op op = to_read(f, f->to);
    op.uncached = true;
    assert_int_equal(read_ok(f, op).direct_bytes, WHOLE);
}

static void memory_that_is_not_aligned_is_declined_if_that_is_wanted(void **state) {
    struct fixture *f = *state;
    start(f);
    if (!set_cached(f, false)) skip();
    struct bwi_store_op op = to_read(f, f->to + 1);
    op.may_decline = true;
    op = st_run(S, op);
    assert_op_ok(op);
    assert_true(op.declined);
    assert_int_equal(f->shown, 0);
    assert_int_equal(f->to[1], 0xee);
    assert_int_equal(f->s->bytes_out, 0);
    op = read_ok(f, to_read(f, f->to + 1)); /* else it comes through the page cache, and does not stay there */
    assert_int_equal(op.direct_bytes, 0);
    assert_int_equal(op.looked, BYTES);
    assert_int_equal(cached(f), 0);
}

static void a_read_without_a_handle_comes_through_the_page_cache(void **state) {
    struct fixture *f = *state;
    start(f);
    if (!set_cached(f, false)) skip();
    struct bwi_store_op op = to_read(f, f->to);
    op.handle = NULL;
    assert_int_equal(read_ok(f, op).direct_bytes, 0);
    assert_int_equal(cached(f), 0);
}

static void an_object_that_is_too_short_is_damaged_by_either_way(void **state) {
    struct fixture *f = *state;
    start(f);
    for (unsigned in = 0; in < 2; in++) {
        if (!set_cached(f, in == 1)) skip();
        struct bwi_store_op op = to_read(f, f->to);
        op.bytes = WHOLE + ALIGN;
        op.room_bytes = op.bytes;
        op = st_run(S, op);
        assert_op_fails(op, BW_E_CORRUPT, "ends at byte 1061864, expected at least 1064960");
    }
}

static void two_that_open_at_once_keep_one_of_each_descriptor(void **state) {
    struct fixture *f = *state;
    start(f);
    if (!set_cached(f, false)) skip();
    struct bwi_store_op op[2] = {to_read(f, f->to), to_read(f, f->to)};
    for (size_t i = 0; i < 2; i++) {
        op[i].bytes = 64 * ALIGN;
        op[i].offset = i * 64 * ALIGN;
        op[i].buf = f->to + op[i].offset;
        rig_submit(S, &op[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        rig_wait(&f->rig, &op[i]);
        assert_op_ok(op[i]);
        assert_int_equal(op[i].direct_bytes, 64 * ALIGN);
    }
    assert_memory_equal(f->to, f->bytes, 128 * ALIGN);
    const unsigned open = rig_open_files();
    assert_op_ok(st_release(S, &f->handle));
    assert_int_equal(open - rig_open_files(), 2);
}

static void without_memory_for_a_handle_it_is_read_all_the_same(void **state) {
    struct fixture *f = *state;
    start(f);
    if (!set_cached(f, false)) skip();
    const struct bwi_store_op op = to_read(f, f->to);
    bwi_alloc_fail_at(1);
    const struct bwi_store_op done = read_ok(f, op);
    bwi_alloc_fail_at(0);
    assert_int_equal(done.direct_bytes, 0);
}

/* ---- where it cannot ---- */

static int64_t nobody_says(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes) {
    (void)os, (void)fd, (void)offset, (void)bytes;
    return -ENOSYS;
}

/* Nothing is lost by that: what the page cache holds and the disk does not is written first. */
static void where_nobody_says_it_comes_past_the_page_cache(void **state) {
    struct fixture *f = *state;
    f->odd.cached = nobody_says;
    start(f);
    if (!set_cached(f, false)) skip();
    assert_int_equal(read_ok(f, to_read(f, f->to)).looked, 0);
    stop(f);
    f->odd.cached = NULL;
    start(f);
    assert_int_equal(read_ok(f, to_read(f, f->to)).looked, 0);
}

static void what_others_may_read_soon_stays_in_the_page_cache(void **state) {
    struct fixture *f = *state;
    start(f);
    if (!set_cached(f, false)) skip();
    struct bwi_store_op op = to_read(f, f->to);
    op.shared = true;
    assert_int_equal(read_ok(f, op).direct_bytes, 0);
    op = to_read(f, f->to);
    assert_int_equal(read_ok(f, op).looked, BYTES); /* there it is */
}

static int no_direct(struct bwi_os *os, int fd, bool write) {
    (void)os, (void)fd, (void)write;
    return -EINVAL;
}

static void a_file_system_without_a_way_past_it_is_no_failure(void **state) {
    struct fixture *f = *state;
    f->odd.open_direct = no_direct;
    start(f);
    (void)set_cached(f, false);
    struct bwi_store_op op = to_read(f, f->to + 1);
    op.may_decline = true; /* the address is not what keeps it */
    assert_int_equal(read_ok(f, op).direct_bytes, 0);
    stop(f);
    f->odd.open_direct = NULL;
    start(f);
    assert_int_equal(read_ok(f, to_read(f, f->to)).direct_bytes, 0);
}

/* A second descriptor that takes nothing. */
static int refuser, refusals, refusal;
static int open_refuser(struct bwi_os *os, int fd, bool write) {
    (void)os, (void)write;
    return refuser = dup(fd);
}
static int64_t pread_refused(struct bwi_os *os, int fd, void *buf, size_t n, uint64_t offset) {
    struct bwi_os *below = bwi_os_system();
    (void)os;
    if (fd != refuser) return below->pread(below, fd, buf, n, offset);
    refusals++;
    return refusal;
}
static int64_t nothing_cached(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes) {
    (void)os, (void)fd, (void)offset, (void)bytes;
    return 0;
}

static void start_refused(struct fixture *f, int err) {
    refusals = 0;
    refuser = -1;
    refusal = err;
    f->odd.open_direct = open_refuser;
    f->odd.pread = pread_refused;
    f->odd.cached = nothing_cached;
    f->odd.admit = NULL; /* all of it through the table */
    start(f);
    (void)set_cached(f, true);
    refuser = -1;
}

static void a_disk_that_wants_more_alignment_is_asked_once(void **state) {
    struct fixture *f = *state;
    start_refused(f, -EINVAL);
    if (is_tmpfs(f)) skip();
    for (unsigned i = 0; i < 3; i++) assert_int_equal(read_ok(f, to_read(f, f->to)).direct_bytes, 0);
    assert_int_equal(refusals, 1);
}

static void memory_that_no_device_can_write_to_is_written_by_the_kernel(void **state) {
    struct fixture *f = *state;
    start_refused(f, -EFAULT);
    if (is_tmpfs(f)) skip();
    for (unsigned i = 0; i < 3; i++) assert_int_equal(read_ok(f, to_read(f, f->to)).direct_bytes, 0);
    assert_int_equal(refusals, 3); /* other memory may do */
}

static void a_failure_past_the_page_cache_fails_the_read(void **state) {
    struct fixture *f = *state;
    start_refused(f, -EIO);
    if (is_tmpfs(f)) skip();
    assert_op_fails(st_run(S, to_read(f, f->to)), BW_E_IO, "read 1061864 bytes at offset 0: input/output error");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        CASE(what_is_not_cached_comes_past_the_page_cache),
        CASE(nothing_is_written_behind_the_bytes_where_there_is_no_room),
        CASE(what_is_cached_comes_from_there_and_is_shown_on_its_way),
        CASE(who_knows_that_it_is_not_cached_is_believed),
        CASE(memory_that_is_not_aligned_is_declined_if_that_is_wanted),
        CASE(a_read_without_a_handle_comes_through_the_page_cache),
        CASE(an_object_that_is_too_short_is_damaged_by_either_way),
        CASE(two_that_open_at_once_keep_one_of_each_descriptor),
        CASE(without_memory_for_a_handle_it_is_read_all_the_same),
        CASE(where_nobody_says_it_comes_past_the_page_cache),
        CASE(what_others_may_read_soon_stays_in_the_page_cache),
        CASE(a_file_system_without_a_way_past_it_is_no_failure),
        CASE(a_disk_that_wants_more_alignment_is_asked_once),
        CASE(memory_that_no_device_can_write_to_is_written_by_the_kernel),
        CASE(a_failure_past_the_page_cache_fails_the_read),
    };
    return test_run(tests, argc > 1 ? argv[1] : NULL, NULL, NULL);
}
