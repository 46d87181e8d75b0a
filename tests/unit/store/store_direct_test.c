/* SPDX-License-Identifier: Apache-2.0 */
/* Uploads past the page cache: which bytes go that way, and what happens where they cannot. Which way they went is what
 * the operation says, and what the descriptors saw; that the object is the same is read back. */
#include "rig.h"

#include "base/vec.h"
#include "os/memory.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ALIGN ((size_t)BWI_OS_DIRECT_ALIGN)
#define BYTES ((size_t)(1 << 20) + 3 * ALIGN + 1000) /* whole blocks and a rest */
#define WHOLE (BYTES - BYTES % ALIGN)

struct fixture {
    struct rig rig;
    struct bwi_store *s;
    struct bwi_os odd;
    struct bwi_memory memory;
    uint8_t *bytes; /* BYTES of them, aligned, and some to move them in */
    const char *dir;
    bool can;       /* the scratch directory's file system can */
    unsigned files; /* open before */
};
static struct fixture the;

#define S &f->rig, f->s

static bool is_possible(const char *dir) {
    struct bwi_os *os = bwi_os_system();
    struct bwi_os_space space;
    const int root = os->open_root(os, dir, false);
    const int fd = os->open_new(os, root, "probe");
    const int direct = os->open_direct(os, fd, true);
    assert_int_equal(os->space(os, root, &space), 0);
    assert_int_equal(os->unlink(os, root, "probe"), 0);
    if (direct >= 0) (void)os->close(os, direct);
    (void)os->close(os, fd);
    (void)os->close(os, root);
    return direct >= 0 && space.fs_type != 0x01021994; /* tmpfs */
}

static int setup(void **state) {
    struct fixture *f = &the;
    uint64_t rng = 7;
    *f = (struct fixture){.files = rig_open_files(), .odd = *bwi_os_system(), .dir = test_mkdir()};
    assert_int_equal(bwi_memory_map(BYTES + ALIGN, &f->memory), 0);
    f->bytes = f->memory.ptr;
    for (size_t i = 0; i < BYTES; i++) f->bytes[i] = (uint8_t)test_random(&rng);
    f->can = is_possible(f->dir);
    *state = f;
    return 0;
}

static void start(struct fixture *f, struct bwi_os *os) {
    rig_open(&f->rig, false, os);
    f->s = rig_store(&f->rig, f->dir, false);
}

static void stop(struct fixture *f) {
    if (f->s == NULL) return;
    f->s->close(f->s);
    rig_close(&f->rig);
    f->s = NULL;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    stop(f);
    bwi_memory_unmap(&f->memory);
    assert_int_equal(rig_hidden_files(f->dir), 0);
    test_rmdir(f->dir);
    assert_int_equal(rig_open_files(), f->files);
    return 0;
}

/* Uploads all of it from `from`, and says how many bytes went past the page cache. */
static uint64_t upload(struct fixture *f, const char *key, const uint8_t *from) {
    struct bwi_store_op op = st_begin(S, key, BYTES);
    assert_op_ok(op);
    struct bwi_store_upload *u = op.upload;
    const struct bwi_store_op head = st_write(S, u, 0, from, 2 * ALIGN);
    assert_op_ok(head);
    const struct bwi_store_op rest = st_write(S, u, 2 * ALIGN, from + 2 * ALIGN, BYTES - 2 * ALIGN);
    assert_op_ok(rest);
    assert_op_ok(st_finish(S, u));
    op = st_get(S, key, BYTES);
    assert_op_ok(op);
    assert_int_equal(op.body.len, BYTES);
    assert_memory_equal(op.body.ptr, from, BYTES);
    bwi_buf_fini(&op.body);
    return head.direct_bytes + rest.direct_bytes;
}

static void whole_blocks_go_past_the_page_cache_and_the_rest_through_it(void **state) {
    struct fixture *f = *state;
    start(f, NULL);
    assert_int_equal(upload(f, "a/k", f->bytes), f->can ? WHOLE : 0);
}

static void memory_that_is_not_aligned_goes_through_the_page_cache(void **state) {
    struct fixture *f = *state;
    start(f, NULL);
    memmove(f->bytes + 64, f->bytes, BYTES);
    assert_int_equal(upload(f, "a/k", f->bytes + 64), 0);
}

static void small_objects_go_through_the_page_cache(void **state) {
    struct fixture *f = *state;
    start(f, NULL);
    struct bwi_store_op op = st_begin(S, "a/k", 2 * ALIGN);
    assert_op_ok(op);
    const struct bwi_store_op write = st_write(S, op.upload, 0, f->bytes, 2 * ALIGN);
    assert_op_ok(write);
    assert_int_equal(write.direct_bytes, 0);
    assert_op_ok(st_finish(S, op.upload));
}

/* --- where it cannot ---- */

static int no_direct(struct bwi_os *os, int fd, bool write) {
    (void)os, (void)fd, (void)write;
    return -EINVAL;
}

static void a_file_system_without_it_is_no_failure(void **state) {
    struct fixture *f = *state;
    f->odd.open_direct = no_direct;
    start(f, &f->odd);
    assert_int_equal(upload(f, "a/k", f->bytes), 0);
    f->odd.open_direct = NULL;
    assert_int_equal(upload(f, "a/l", f->bytes), 0);
}

/* ---- in bulk through the page cache ---- */

static uint64_t begun_bytes;

static int note_behind(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes) {
    (void)offset;
    begun_bytes += bytes;
    return bwi_os_system()->write_behind(os, fd, 0, bytes);
}

static int64_t left_in_the_cache(const struct fixture *f, const char *path) {
    struct bwi_os *os = bwi_os_system();
    const int root = os->open_root(os, f->dir, false);
    const int fd = os->open_read(os, root, path);
    assert_true(fd >= 0);
    const int64_t bytes = os->cached(os, fd, 0, BYTES);
    (void)os->close(os, fd);
    (void)os->close(os, root);
    return bytes;
}

static void what_goes_through_the_page_cache_goes_on_at_once_and_does_not_stay(void **state) {
    struct fixture *f = *state;
    f->odd.open_direct = no_direct;
    f->odd.write_behind = note_behind;
    start(f, &f->odd);
    begun_bytes = 0;
    struct bwi_store_op op = st_begin(S, "k", BYTES);
    assert_op_ok(op);
    assert_op_ok(st_write(S, op.upload, 0, f->bytes, ALIGN));
    assert_op_ok(st_write(S, op.upload, ALIGN, f->bytes + ALIGN, BYTES - ALIGN));
    assert_int_equal(begun_bytes, BYTES - ALIGN); /* little is not worth it */
    assert_op_ok(st_finish(S, op.upload));
    if (f->can) assert_int_equal(left_in_the_cache(f, "k"), 0);
    op = st_get(S, "k", BYTES);
    assert_op_ok(op);
    assert_memory_equal(op.body.ptr, f->bytes, BYTES);
    bwi_buf_fini(&op.body);
}

/* Faults are put in front of it as of every call, and a failure only means the other way. */
static void a_table_that_counts_passes_it_on(void **state) {
    struct fixture *f = *state;
    struct bwi_os_fault *fault = NULL;
    assert_int_equal(bwi_os_fault_new(&f->odd, &fault), 0);
    start(f, bwi_os_fault_table(fault));
    assert_int_equal(upload(f, "a/k", f->bytes), f->can ? WHOLE : 0);
    f->odd.open_direct = NULL;
    assert_int_equal(upload(f, "a/l", f->bytes), 0);
    stop(f);
    bwi_os_fault_free(fault);
}

/* A second descriptor that takes nothing, or that fails. */
static int refuser, refusals, refusal;
static int open_refuser(struct bwi_os *os, int fd, bool write) {
    (void)os, (void)write;
    refuser = dup(fd);
    return refuser;
}
static int64_t pwrite_refused(struct bwi_os *os, int fd, const void *buf, size_t n, uint64_t offset) {
    struct bwi_os *below = bwi_os_system();
    (void)os;
    if (fd != refuser) return below->pwrite(below, fd, buf, n, offset);
    refusals++;
    return refusal;
}

static void start_refused(struct fixture *f, int err) {
    refusals = 0;
    refusal = err;
    f->odd.open_direct = open_refuser;
    f->odd.pwrite = pwrite_refused;
    f->odd.admit = NULL; /* all of it through the table */
    start(f, &f->odd);
}

static void a_disk_that_wants_more_alignment_is_asked_once_for_each_upload(void **state) {
    struct fixture *f = *state;
    start_refused(f, -EINVAL);
    assert_int_equal(upload(f, "a/k", f->bytes), 0);
    assert_int_equal(refusals, f->can ? 1 : 0);
}

static void a_failure_past_the_page_cache_fails_the_write(void **state) {
    struct fixture *f = *state;
    start_refused(f, -EIO);
    struct bwi_store_op op = st_begin(S, "a/k", BYTES);
    assert_op_ok(op);
    const struct bwi_store_op write = st_write(S, op.upload, 0, f->bytes, BYTES);
    if (f->can) assert_op_fails(write, BW_E_IO, "bytes at offset 0 in ");
    assert_op_ok(st_abort(S, op.upload));
}

/* --- a file system that keeps by descriptor what is still to be written, as many do that are no kernel's own ---- */

static struct {
    int direct;                   /* the second descriptor, while it is open */
    bool unsynced;                /* it was written through since its last fsync */
    bool named_too_soon;          /* the object got its name before that, or before the descriptor was closed */
    int fsync_error, close_error; /* of the second descriptor */
} keeper;

static int keep_open(struct bwi_os *os, int fd, bool write) {
    (void)os, (void)write;
    keeper.direct = dup(fd);
    return keeper.direct;
}
static int64_t keep_pwrite(struct bwi_os *os, int fd, const void *buf, size_t n, uint64_t offset) {
    struct bwi_os *below = bwi_os_system();
    (void)os;
    if (fd == keeper.direct) keeper.unsynced = true;
    return below->pwrite(below, fd, buf, n, offset);
}
static int keep_fsync(struct bwi_os *os, int fd) {
    struct bwi_os *below = bwi_os_system();
    (void)os;
    if (fd != keeper.direct) return below->fsync(below, fd);
    if (keeper.fsync_error == 0) keeper.unsynced = false;
    return keeper.fsync_error;
}
static int keep_close(struct bwi_os *os, int fd) {
    struct bwi_os *below = bwi_os_system();
    (void)os;
    const int rc = below->close(below, fd);
    if (fd != keeper.direct) return rc;
    keeper.direct = -1;
    return keeper.close_error;
}
static int keep_link(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    struct bwi_os *below = bwi_os_system();
    (void)os;
    if (keeper.unsynced || keeper.direct >= 0) keeper.named_too_soon = true;
    return below->link(below, dirfd, from, to);
}
static int keep_space(struct bwi_os *os, int fd, struct bwi_os_space *ret) {
    struct bwi_os *below = bwi_os_system();
    (void)os;
    const int rc = below->space(below, fd, ret);
    ret->fs_type = 0x65735546; /* FUSE */
    return rc;
}

static void start_kept(struct fixture *f) {
    memset(&keeper, 0, sizeof keeper);
    keeper.direct = -1;
    f->odd.open_direct = keep_open;
    f->odd.pwrite = keep_pwrite;
    f->odd.fsync = keep_fsync;
    f->odd.close = keep_close;
    f->odd.link = keep_link;
    f->odd.space = keep_space;
    f->odd.admit = NULL; /* all of it through the table */
    start(f, &f->odd);
}

static void both_descriptors_are_synced_before_the_object_has_its_name(void **state) {
    struct fixture *f = *state;
    start_kept(f);
    assert_int_equal(upload(f, "a/k", f->bytes), WHOLE);
    assert_false(keeper.unsynced);
    assert_false(keeper.named_too_soon);
}

static void what_the_second_descriptor_says_at_last_fails_the_upload(void **state) {
    struct fixture *f = *state;
    start_kept(f);
    for (unsigned i = 0; i < 2; i++) {
        struct bwi_store_op op = st_begin(S, "a/k", BYTES);
        assert_op_ok(op);
        assert_op_ok(st_write(S, op.upload, 0, f->bytes, BYTES));
        *(i == 0 ? &keeper.fsync_error : &keeper.close_error) = -EDQUOT;
        const struct bwi_store_op end = st_finish(S, op.upload);
        assert_op_fails(end, BW_E_NOSPACE, i == 0 ? "fsync past the page cache" : "close past the page cache");
        keeper.fsync_error = keeper.close_error = 0;
        assert_op_fails(st_head(S, "a/k"), BW_E_NOTFOUND, "a/k");
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        CASE(whole_blocks_go_past_the_page_cache_and_the_rest_through_it),
        CASE(memory_that_is_not_aligned_goes_through_the_page_cache),
        CASE(small_objects_go_through_the_page_cache),
        CASE(a_file_system_without_it_is_no_failure),
        CASE(what_goes_through_the_page_cache_goes_on_at_once_and_does_not_stay),
        CASE(a_table_that_counts_passes_it_on),
        CASE(a_disk_that_wants_more_alignment_is_asked_once_for_each_upload),
        CASE(a_failure_past_the_page_cache_fails_the_write),
        CASE(both_descriptors_are_synced_before_the_object_has_its_name),
        CASE(what_the_second_descriptor_says_at_last_fails_the_upload),
    };
    return test_run(tests, argc > 1 ? argv[1] : NULL, NULL, NULL);
}
