/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of every binary codec: no prefix is accepted, no changed bit is missed or leads to a crash, no failed
 * allocation leaves anything behind, and whatever is accepted is written back as the same bytes. */
#ifndef BW_TEST_CODEC_CHECKS_H
#define BW_TEST_CODEC_CHECKS_H

#include "base/span.h"
#include "base/vec.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Decodes `in` and encodes what it found into `out`. */
typedef int (*check_pass)(struct bwi_span in, struct bwi_buf *out, struct bw_error *err);

#define EXAMPLE(name) bwi_span(EXAMPLE_##name, sizeof EXAMPLE_##name)

static inline bool check_is_refusal(int rc) {
    return rc == BW_E_FORMAT || rc == BW_E_CORRUPT || rc == BW_E_VERSION;
}

/* Passes a copy that ends where its memory ends, so that a sanitizer sees a byte read too many. */
static inline int check_copy(check_pass pass, const uint8_t *p, size_t n, struct bwi_buf *out, struct bw_error *err) {
    uint8_t *copy = malloc(n == 0 ? 1 : n);
    assert_non_null(copy);
    if (n > 0) memcpy(copy, p, n);
    const int rc = pass(bwi_span(copy, n), out, err);
    free(copy);
    return rc;
}

static inline void check_same_bytes(check_pass pass, struct bwi_span good) {
    struct bwi_buf out = {0};
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(check_copy(pass, good.ptr, good.len, &out, &err), &err);
    assert_int_equal(out.len, good.len);
    assert_memory_equal(out.ptr, good.ptr, good.len);
    bwi_buf_fini(&out);
}

static inline void check_every_prefix(check_pass pass, struct bwi_span good) {
    const long live = bwi_alloc_live();
    for (size_t n = 0; n < good.len; n++) {
        struct bwi_buf out = {0};
        struct bw_error err = BW_ERROR_INIT;
        const int rc = check_copy(pass, good.ptr, n, &out, &err);
        if (rc != BW_E_FORMAT && rc != BW_E_CORRUPT) fail_msg("%zu of %zu bytes: %d, %s", n, good.len, rc, err.message);
        assert_int_not_equal(err.message[0], '\0');
        if (n < 16) assert_non_null(strstr(err.message, "cut short"));
        bwi_buf_fini(&out);
        assert_int_equal(bwi_alloc_live(), live);
    }
}

/* One input that was made by changing a good one: refused, or accepted and then written back alike. A minor version
 * that is newer (bytes 10 and 11) is accepted and not written back. */
static inline bool check_changed(check_pass pass, const uint8_t *p, size_t n) {
    struct bwi_buf out = {0};
    struct bw_error err = BW_ERROR_INIT;
    const long live = bwi_alloc_live();
    const int rc = check_copy(pass, p, n, &out, &err);
    if (rc != 0 && !check_is_refusal(rc)) fail_msg("a changed object gives %d, %s", rc, err.message);
    if (rc == 0 && p[10] == 0 && p[11] == 0) {
        assert_int_equal(out.len, n);
        assert_memory_equal(out.ptr, p, n);
    }
    bwi_buf_fini(&out);
    assert_int_equal(bwi_alloc_live(), live);
    return rc == 0;
}

static inline void check_every_bit(check_pass pass, struct bwi_span good, bool all_refused) {
    uint8_t *p = malloc(good.len);
    assert_non_null(p);
    memcpy(p, good.ptr, good.len);
    for (size_t bit = 0; bit < good.len * 8; bit++) {
        p[bit / 8] = (uint8_t)(p[bit / 8] ^ 1u << bit % 8);
        if (check_changed(pass, p, good.len) && all_refused) fail_msg("bit %zu was changed and nobody saw", bit);
        p[bit / 8] = (uint8_t)(p[bit / 8] ^ 1u << bit % 8);
    }
    free(p);
}

/* Several bytes at once, at random, with a liking for those that make counts and lengths extreme. */
static inline void check_random_damage(check_pass pass, struct bwi_span good, int times) {
    static const uint8_t liked[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    uint64_t state = test_seed(0x5eed);
    uint8_t *p = malloc(good.len);
    assert_non_null(p);
    for (int t = 0; t < times; t++) {
        memcpy(p, good.ptr, good.len);
        for (uint64_t k = 1 + test_random(&state) % 4; k > 0; k--) {
            const uint64_t draw = test_random(&state);
            p[test_random(&state) % good.len] =
                draw % 4 == 0 ? (uint8_t)(draw >> 8) : liked[(draw >> 8) % sizeof liked];
        }
        (void)check_changed(pass, p, good.len);
    }
    free(p);
}

/* The n-th allocation fails, for n = 1, 2, ... until none does. */
static inline void check_out_of_memory(check_pass pass, struct bwi_span good) {
    const long live = bwi_alloc_live();
    int failed = 0;
    for (unsigned long n = 1;; n++) {
        struct bwi_buf out = {0};
        struct bw_error err = BW_ERROR_INIT;
        (void)bwi_alloc_fail_at(n);
        const int rc = pass(good, &out, &err);
        (void)bwi_alloc_fail_at(0);
        bwi_buf_fini(&out);
        assert_int_equal(bwi_alloc_live(), live);
        if (rc == 0) break;
        assert_int_equal(rc, BW_E_NOMEM);
        failed++;
    }
    assert_int_not_equal(failed, 0);
}

/* A newer minor version may have more bytes behind what we know; ours may not. */
static inline void check_versions(check_pass pass, struct bwi_span good) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    uint8_t *p = malloc(good.len + 5);
    assert_non_null(p);
    memcpy(p, good.ptr, good.len);
    memcpy(p + good.len, "extra", 5);
    assert_fails(pass(bwi_span(p, good.len + 5), &out, &err), BW_E_FORMAT, &err, "5 bytes after its end");
    p[10] = 1;
    bw_error_clear(&err);
    assert_ok(pass(bwi_span(p, good.len + 5), &out, &err), &err);
    p[8] = 2;
    assert_fails(pass(bwi_span(p, good.len + 5), &out, &err), BW_E_VERSION, &err,
                 "version 2.1 is newer than the newest known, 1.0");
    p[8] = 0;
    bw_error_clear(&err);
    assert_fails(pass(bwi_span(p, good.len + 5), &out, &err), BW_E_FORMAT, &err, "version 0.1 never existed");
    p[8] = 1;
    p[15] = 0x80;
    bw_error_clear(&err);
    assert_fails(pass(bwi_span(p, good.len + 5), &out, &err), BW_E_VERSION, &err, "flags 0x80000000");
    p[0] = 'X';
    bw_error_clear(&err);
    assert_fails(pass(bwi_span(p, good.len + 5), &out, &err), BW_E_FORMAT, &err, "expected magic");
    bwi_buf_fini(&out);
    free(p);
}

/* A rule of the decoder: the example with some bytes replaced is refused in these words. */
struct check_patch {
    size_t at;
    size_t n;
    const char *bytes;
    int status;
    const char *message;
};

static inline void check_patches(check_pass pass, struct bwi_span good, const struct check_patch *patches,
                                 size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_buf out = {0};
        uint8_t *p = malloc(good.len);
        assert_non_null(p);
        memcpy(p, good.ptr, good.len);
        memcpy(p + patches[i].at, patches[i].bytes, patches[i].n);
        assert_fails(check_copy(pass, p, good.len, &out, &err), patches[i].status, &err, patches[i].message);
        bwi_buf_fini(&out);
        free(p);
    }
}

#endif
