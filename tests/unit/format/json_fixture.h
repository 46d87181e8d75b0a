/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the formats that carry JSON: the fixtures of tests/golden/format/json/, and copies of them in
 * which one value is another. */
#ifndef BW_TEST_JSON_FIXTURE_H
#define BW_TEST_JSON_FIXTURE_H

#include "base/vec.h"
#include "hash/hash.h"
#include "test.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES BW_SOURCE_DIR "/tests/golden/format/json/"

/* A whole file; free with free(). One NUL is put behind it. */
static inline struct bwi_span file_read(const char *path) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) fail_msg("cannot open %s", path);
    char *text = NULL;
    size_t len = 0, cap = 0;
    for (;;) {
        if (len + 1 >= cap) {
            cap = cap == 0 ? 65536 : cap * 2;
            text = realloc(text, cap);
            if (text == NULL) fail_msg("out of memory");
        }
        const size_t got = fread(text + len, 1, cap - len - 1, f);
        if (got == 0) break;
        len += got;
    }
    text[len] = '\0';
    (void)fclose(f);
    return bwi_span(text, len);
}

static inline struct bwi_span fixture(const char *name) {
    char path[512];
    (void)snprintf(path, sizeof path, FIXTURES "%s", name);
    return file_read(path);
}

static inline void span_free(struct bwi_span s) {
    free((void *)(uintptr_t)s.ptr);
}

static inline json_t *child_of(json_t *at, const char *step) {
    json_t *child = json_is_array(at) ? json_array_get(at, strtoul(step, NULL, 10)) : json_object_get(at, step);
    if (child == NULL) fail_msg("the fixture has no \"%s\"", step);
    return child;
}

/* What the seal ought to be for any text, canonical or not: appended to an object's text without its brace. */
static inline struct bwi_span sealed_again(char *text) {
    const size_t body = strlen(text) - 1;
    char *out = malloc(body + 90);
    assert_non_null(out);
    memcpy(out, text, body);
    const size_t head = body + (size_t)sprintf(out + body, "%s\"~sha256\":\"", body > 1 ? "," : "");
    const struct bwi_sha sha = bwi_sha_of(bwi_span(out, head));
    bwi_sha_hex(&sha, out + head);
    (void)strcpy(out + head + 64, "\"}");
    free(text);
    return bwi_span(out, head + 66);
}

/* The fixture with the value at `path` ("live/0/id") replaced by JSON text `value`; NULL: removed. */
static inline struct bwi_span mutated(const char *name, const char *path, const char *value, bool sealed) {
    const struct bwi_span in = fixture(name);
    json_t *root = json_loadb((const char *)in.ptr, in.len, 0, NULL);
    assert_non_null(root);
    (void)json_object_del(root, "~sha256");
    char steps[128];
    (void)snprintf(steps, sizeof steps, "%s", path);
    json_t *at = root;
    char *step = steps, *slash;
    while ((slash = strchr(step, '/')) != NULL) {
        *slash = '\0';
        at = child_of(at, step);
        step = slash + 1;
    }
    json_t *v = value == NULL ? NULL : json_loads(value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (value != NULL && v == NULL) fail_msg("not JSON: %s", value);
    if (json_is_array(at) && v == NULL)
        assert_int_equal(json_array_remove(at, strtoul(step, NULL, 10)), 0);
    else if (json_is_array(at) && strcmp(step, "+") == 0)
        assert_int_equal(json_array_append_new(at, v), 0);
    else if (json_is_array(at))
        assert_int_equal(json_array_set_new(at, strtoul(step, NULL, 10), v), 0);
    else if (v == NULL)
        assert_int_equal(json_object_del(at, step), 0);
    else
        assert_int_equal(json_object_set_new(at, step, v), 0);
    char *text = json_dumps(root, JSON_SORT_KEYS | JSON_COMPACT);
    assert_non_null(text);
    json_decref(root);
    span_free(in);
    return sealed ? sealed_again(text) : bwi_span(text, strlen(text));
}

/* One rule: the fixture with this change is refused, with this in the message. */
struct refusal {
    const char *path, *value, *message;
};

/* Decodes and releases what came out. */
typedef int decode_fn(struct bwi_span in, struct bw_error *err);

static inline void refuses_all(const struct refusal *rules, size_t count, const char *name, bool sealed,
                               decode_fn *decode) {
    for (size_t i = 0; i < count; i++) {
        const struct bwi_span in = mutated(name, rules[i].path, rules[i].value, sealed);
        struct bw_error err = BW_ERROR_INIT;
        const int rc = decode(in, &err);
        if (rc != BW_E_FORMAT || strstr(err.message, rules[i].message) == NULL)
            fail_msg("%s = %s: status %d, message \"%s\", expected \"%s\"", rules[i].path,
                     rules[i].value == NULL ? "(removed)" : rules[i].value, rc, err.message, rules[i].message);
        span_free(in);
    }
}

static inline void refuses_every_cut(struct bwi_span in, decode_fn *decode, int want) {
    for (size_t n = 0; n < in.len; n++) {
        uint8_t *cut = malloc(n + 1); /* of its own size: a read past it is seen by the sanitizer */
        assert_non_null(cut);
        memcpy(cut, in.ptr, n);
        struct bw_error err = BW_ERROR_INIT;
        const int rc = decode(bwi_span(cut, n), &err);
        if (rc != want) fail_msg("cut to %zu of %zu bytes: status %d, message \"%s\"", n, in.len, rc, err.message);
        free(cut);
    }
}

static inline void detects_every_bit(struct bwi_span in, decode_fn *decode) {
    uint8_t *copy = malloc(in.len);
    assert_non_null(copy);
    memcpy(copy, in.ptr, in.len);
    for (size_t bit = 0; bit < in.len * 8; bit++) {
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
        struct bw_error err = BW_ERROR_INIT;
        const int rc = decode(bwi_span(copy, in.len), &err);
        if (rc != BW_E_CORRUPT) fail_msg("bit %zu: status %d, message \"%s\"", bit, rc, err.message);
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    free(copy);
}

/* Fails the n-th allocation for n = 1, 2, ... until none fails; nothing may be left behind. */
static inline void survives_without_memory(int (*work)(void *, struct bw_error *), void *arg) {
    for (unsigned long n = 1;; n++) {
        struct bw_error err = BW_ERROR_INIT;
        const long before = bwi_alloc_live();
        (void)bwi_alloc_fail_at(n);
        const int rc = work(arg, &err);
        const unsigned long made = bwi_alloc_fail_at(0);
        if (bwi_alloc_live() != before) fail_msg("allocation %lu fails: %ld are left", n, bwi_alloc_live() - before);
        if (made < n) {
            if (rc != 0) fail_msg("no allocation failed, yet status %d, message \"%s\"", rc, err.message);
            assert_true(n > 1);
            return;
        }
        if (rc != BW_E_NOMEM) fail_msg("allocation %lu fails: status %d, message \"%s\"", n, rc, err.message);
    }
}

#endif
