/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors around 2 GiB and above 4 GiB: where 31 and 32 bits end. Needs 7 GiB of memory and 11 GiB of disk; in the
 * plain build only. */
#include "job.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define GIB   (1024 * MIB)
#define MOST  (4 * GIB + 4097)
#define CHUNK (256 * MIB + 1) /* of reading back: cuts anywhere */

static void *map(uint64_t n) {
    void *m = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(m != MAP_FAILED);
    return m;
}

static struct bw_slice slice_of(const uint64_t *shape, void *to) {
    struct bw_slice s = BW_SLICE_INIT;
    s.dtype = BW_U8;
    s.name = "w";
    s.data = to;
    s.dims = 1;
    s.shape = shape;
    return s;
}

static void compare_in_chunks(struct bw_restore *r, const unsigned char *m, uint64_t n) {
    struct bw_error err = BW_ERROR_INIT;
    unsigned char *got = map(CHUNK);
    for (uint64_t at = 0; at < n; at += CHUNK) {
        const uint64_t extent = n - at < CHUNK ? n - at : CHUNK;
        struct bw_slice s = slice_of(&n, got);
        s.offset = &at;
        s.extent = &extent;
        must_ok(bw_restore_read(r, &s, 1, &err), &err);
        must(memcmp(got, m + at, extent) == 0);
    }
    (void)munmap(got, CHUNK);
}

static void compare_whole(struct bw_restore *r, const unsigned char *m, uint64_t n) {
    struct bw_error err = BW_ERROR_INIT;
    unsigned char *got = map(n);
    struct bw_slice s = slice_of(&n, got);
    must_ok(bw_restore_read(r, &s, 1, &err), &err);
    must(memcmp(got, m, n) == 0);
    (void)munmap(got, n);
}

static void tensors_around_2_gib_and_above_4_come_back(void **state) {
    (void)state;
    static const uint64_t sizes[] = {2 * GIB - 1, 2 * GIB, 2 * GIB + 1, MOST};
    unsigned char *m = map(MOST);
    fill(m, MOST, 1);
    for (size_t i = 0; i < 4; i++) {
        struct place p;
        place_make(&p);
        struct bw_options o = options_of(&p, "one", 0, 1);
        o.local_url = NULL;
        struct bw_checkpointer *ck = open_with(&o);
        struct bw_save *v = begin(ck, 1);
        struct bw_error err = BW_ERROR_INIT;
        add_bytes(v, "w", m, sizes[i]);
        start(v);
        must_ok(bw_save_wait(v, BW_COMMITTED, 20 * WAIT_MS, &err), &err);
        bw_save_release(v);
        close_ok(ck);
        struct bw_restore *r = reader_of(&p, 1);
        compare_in_chunks(r, m, sizes[i]);
        if (i == 2) compare_whole(r, m, sizes[i]);
        bw_restore_close(r);
        place_drop(&p);
    }
    (void)munmap(m, MOST);
}

/* A blob is one piece of memory too. */
static void a_blob_above_2_gib_comes_back(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    const uint64_t n = 2 * GIB + 1;
    size_t bytes = 0;
    place_make(&p);
    unsigned char *m = map(n), *got = map(n);
    fill(m, n, 2);
    struct bw_options o = options_of(&p, "one", 0, 1);
    o.local_url = NULL;
    struct bw_checkpointer *ck = open_with(&o);
    struct bw_save *v = begin(ck, 1);
    must_ok(bw_save_blob(v, "b", m, n, &err), &err);
    start(v);
    must_ok(bw_save_wait(v, BW_COMMITTED, 20 * WAIT_MS, &err), &err);
    bw_save_release(v);
    close_ok(ck);
    struct bw_restore *r = reader_of(&p, 1);
    must_ok(bw_restore_blob(r, 0, "b", got, n, &bytes, &err), &err);
    must(bytes == n && memcmp(m, got, n) == 0);
    bw_restore_close(r);
    (void)munmap(m, n);
    (void)munmap(got, n);
    place_drop(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_around_2_gib_and_above_4_come_back),
        cmocka_unit_test(a_blob_above_2_gib_comes_back),
    };
    if (SANITIZED) return 77; /* skipped */
    return run_cases(tests);
}
