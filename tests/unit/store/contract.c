/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of the contract. Each starts with two stores on the same empty place: A and B. */
#include "contract.h"

#include "base/vec.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define A &c->rig, c->a
#define B &c->rig, c->b

static uint8_t *pattern(size_t bytes, uint64_t seed) {
    uint8_t *p = malloc(bytes + 8);
    assert_non_null(p);
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t v = test_random(&seed);
        memcpy(p + i, &v, 8);
    }
    return p;
}

static const size_t sizes[] = {0, 1, 511, 512, 513, 4095, 4096, 4097, 65536, 65537, (1 << 20) + 3};
#define SIZES (sizeof sizes / sizeof *sizes)

/* ---- creating and reading ---- */

static void what_was_created_is_read_back_by_others(struct contract *c) {
    for (size_t i = 0; i < SIZES; i++) {
        char key[64];
        snprintf(key, sizeof key, "runs/r/o%zu", sizes[i]);
        uint8_t *data = pattern(sizes[i], i);
        assert_outcome(st_create_bytes(A, key, bwi_span(data, sizes[i])), BWI_STORE_CREATED);
        struct bwi_store_op got = st_get(B, key, sizes[i]);
        assert_op_ok(got);
        assert_int_equal(got.body.len, sizes[i]);
        if (sizes[i] > 0) assert_memory_equal(got.body.ptr, data, sizes[i]);
        bwi_buf_fini(&got.body);
        struct bwi_store_op head = st_head(B, key);
        assert_op_ok(head);
        assert_int_equal(head.size_bytes, sizes[i]);
        free(data);
    }
}

static void creating_the_same_bytes_again_is_success(struct contract *c) {
    assert_outcome(st_create(A, "k", "bytes"), BWI_STORE_CREATED);
    assert_outcome(st_create(A, "k", "bytes"), BWI_STORE_SAME);
    assert_outcome(st_create(B, "k", "bytes"), BWI_STORE_SAME);
    assert_outcome(st_create(A, "empty", ""), BWI_STORE_CREATED);
    assert_outcome(st_create(B, "empty", ""), BWI_STORE_SAME);
}

static void other_bytes_under_a_taken_key_are_refused(struct contract *c) {
    assert_outcome(st_create(A, "d/k", "first"), BWI_STORE_CREATED);
    static const char *const others[] = {"fires", "firs", "first!", ""};
    for (size_t i = 0; i < 4; i++) {
        struct bwi_store_op op = st_create(B, "d/k", others[i]);
        assert_op_fails(op, BW_E_EXISTS, "create \"d/k\": exists already with other content: ");
        assert_int_equal(op.outcome, BWI_STORE_OTHER);
    }
    assert_object(A, "d/k", "first");
}

/* Several creators of one key at the same moment, half of them in each store. */
static void race(struct contract *c, const char *key, size_t n, bool same) {
    struct bwi_store_op ops[16];
    char texts[16][16];
    unsigned created = 0, answered = 0;
    const char *winner = NULL;
    for (size_t i = 0; i < n; i++) {
        snprintf(texts[i], sizeof texts[i], "bytes %zu", same ? (size_t)0 : i);
        ops[i] = (struct bwi_store_op){.verb = BWI_STORE_CREATE, .key = key, .data = bwi_span_str(texts[i])};
        rig_submit(&c->rig, i % 2 ? c->a : c->b, &ops[i]);
    }
    for (size_t i = 0; i < n; i++) {
        rig_wait(&c->rig, &ops[i]);
        if (ops[i].outcome == BWI_STORE_CREATED) {
            created++;
            winner = texts[i];
            assert_op_ok(ops[i]);
        } else if (same) {
            assert_outcome(ops[i], BWI_STORE_SAME);
            answered++;
        } else {
            assert_op_fails(ops[i], BW_E_EXISTS, key);
            assert_int_equal(ops[i].outcome, BWI_STORE_OTHER);
            answered++;
        }
    }
    assert_int_equal(created, 1);
    assert_int_equal(answered, n - 1);
    assert_object(A, key, winner);
}

static void of_creators_at_one_moment_exactly_one_wins(struct contract *c) {
    char key[64];
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "new%d/dir/other", i);
        race(c, key, 2, false);
        snprintf(key, sizeof key, "new%d/dir/many", i);
        race(c, key, 16, i % 2 == 0);
    }
}

static void get_refuses_more_than_its_limit(struct contract *c) {
    assert_op_ok(st_create(A, "k", "12345"));
    struct bwi_store_op op = st_get(A, "k", 5);
    assert_op_ok(op);
    bwi_buf_fini(&op.body);
    op = st_get(A, "k", 4);
    assert_op_fails(op, BW_E_FORMAT, "get \"k\": has 5 bytes, expected at most 4");
    assert_null(op.body.ptr);
}

static void what_is_missing_is_not_found(struct contract *c) {
    char byte;
    struct bwi_store_handle *h = NULL;
    assert_op_ok(st_create(A, "there/k", "x"));
    static const char *const keys[] = {"no", "no/such/key", "there/no", "there/no/such"};
    for (size_t i = 0; i < 4; i++) {
        assert_no_object(A, keys[i]);
        assert_op_fails(st_read(A, keys[i], 0, &byte, 1, NULL), BW_E_NOTFOUND, "read \"");
        assert_op_fails(st_read(A, keys[i], 0, &byte, 1, &h), BW_E_NOTFOUND, "read \"");
        assert_null(h);
        assert_op_ok(st_key(A, BWI_STORE_DELETE, keys[i]));
    }
    assert_listing(A, "no/", NULL, "");
    assert_listing(A, "there/no/such/", NULL, "");
    assert_op_ok(st_key(A, BWI_STORE_DELETE_PREFIX, "no/"));
    assert_op_ok(st_key(A, BWI_STORE_DELETE_PREFIX, "there/no/such/"));
    assert_op_ok(st_key(A, BWI_STORE_SYNC, "no/"));
    assert_object(A, "there/k", "x");
}

static void a_prefix_is_not_an_object(struct contract *c) {
    char byte;
    const int status =
        c->kind->dir || c->kind->tree ? BW_E_CORRUPT : BW_E_NOTFOUND; /* in a tree it takes the place of an object */
    assert_op_ok(st_create(A, "a/b", "x"));
    assert_op_fails(st_get(A, "a", 10), status, "get \"a\"");
    assert_op_fails(st_head(A, "a"), status, "head \"a\"");
    assert_op_fails(st_read(A, "a", 0, &byte, 1, NULL), status, "read \"a\"");
    assert_op_ok(st_key(A, BWI_STORE_DELETE, "a"));
    assert_object(A, "a/b", "x");
}

static void nothing_is_below_an_object(struct contract *c) {
    assert_op_ok(st_create(A, "a", "x"));
    assert_no_object(A, "a/b");
    assert_listing(A, "a/", NULL, "");
    assert_op_ok(st_key(A, BWI_STORE_DELETE, "a/b"));
    assert_op_ok(st_key(A, BWI_STORE_DELETE_PREFIX, "a/"));
    assert_op_ok(st_key(A, BWI_STORE_DELETE_PREFIX, "a/b/"));
    assert_object(A, "a", "x");
}

static void ranges_are_read_exactly(struct contract *c) {
    uint8_t *data = pattern(10000, 5), buf[10000];
    struct bwi_store_handle *h = NULL;
    assert_op_ok(st_create_bytes(A, "d/k", bwi_span(data, 10000)));
    for (int kept = 0; kept < 2; kept++) {
        for (size_t at = 0; at <= 10000; at += 1250) {
            memset(buf, 0, sizeof buf);
            assert_op_ok(st_read(B, "d/k", at, buf, 10000 - at, kept ? &h : NULL));
            assert_memory_equal(buf, data + at, 10000 - at);
        }
        assert_op_fails(st_read(B, "d/k", 9999, buf, 2, kept ? &h : NULL), BW_E_CORRUPT,
                        "read \"d/k\": ends at byte 10000, expected at least 10001");
        assert_op_fails(st_read(B, "d/k", 20000, buf, 1, kept ? &h : NULL), BW_E_CORRUPT, "expected at least 20001");
    }
    assert_op_ok(st_release(B, &h));
    assert_null(h);
    assert_op_ok(st_release(B, &h)); /* nothing is kept: nothing happens */
    assert_op_ok(st_release(B, NULL));
    free(data);
}

static void several_first_reads_share_one_handle(struct contract *c) {
    uint8_t *data = pattern(8192, 6), buf[16][512];
    struct bwi_store_op ops[16];
    struct bwi_store_handle *h = NULL;
    unsigned files = rig_open_files();
    assert_op_ok(st_create_bytes(A, "d/k", bwi_span(data, 8192)));
    for (size_t i = 0; i < 16; i++) {
        ops[i] = (struct bwi_store_op){
            .verb = BWI_STORE_READ, .key = "d/k", .offset = 512 * i, .buf = buf[i], .bytes = 512, .handle = &h};
        rig_submit(&c->rig, c->a, &ops[i]);
    }
    for (size_t i = 0; i < 16; i++) {
        rig_wait(&c->rig, &ops[i]);
        assert_op_ok(ops[i]);
    }
    assert_memory_equal(buf, data, 8192);
    assert_true(rig_open_files() <= files + 1);
    assert_op_ok(st_release(A, &h));
    assert_int_equal(rig_open_files(), files);
    free(data);
}

/* ---- listing ---- */

static void a_listing_is_one_level_sorted_bytewise(struct contract *c) {
    static const char *const keys[] = {"p/b", "p/a0", "p/a/x", "p/a/y/z", "p/a.c", "p/a-b", "p/B", "p/_", "q", "pp/x"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) assert_op_ok(st_create(A, keys[i], "123"));
    assert_listing(B, "p/", NULL, "B _ a-b a.c a/ a0 b");
    assert_listing(B, "", NULL, "p/ pp/ q");
    assert_listing(B, "p/a/", NULL, "x y/");
    assert_listing(B, "p/", "", "B _ a-b a.c a/ a0 b");
    assert_listing(B, "p/", "a-b", "a.c a/ a0 b");
    assert_listing(B, "p/", "a/", "a0 b");
    assert_listing(B, "p/", "a", "a-b a.c a/ a0 b");
    assert_listing(B, "p/", "a/x", "a0 b");
    assert_listing(B, "p/", "b", "");
    struct bwi_store_op op = st_list(A, "p/", "a.c");
    bwi_store_names_fini(&op.names);
    bwi_store_names_fini(&op.names); /* twice: nothing happens */
}

static void pages_of_a_long_listing_make_the_whole(struct contract *c) {
    char key[64], last[64] = "";
    size_t seen = 0;
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "h/%06d", i * 7919 % 300);
        assert_op_ok(st_create(A, key, "x"));
    }
    for (;;) { /* as if only 64 had been returned each time */
        struct bwi_store_op op = st_list(B, "h/", last);
        assert_op_ok(op);
        assert_int_equal(op.names.len, 300 - seen);
        size_t n = op.names.len < 64 ? op.names.len : 64;
        for (size_t i = 0; i < n; i++) {
            snprintf(key, sizeof key, "%06zu", seen++);
            assert_string_equal(op.names.name[i], key);
            snprintf(last, sizeof last, "%s", key);
        }
        bwi_store_names_fini(&op.names);
        if (n == 0) break;
    }
    assert_int_equal(seen, 300);
}

/* ---- deleting ---- */

static void a_deleted_object_is_gone_and_can_be_made_anew(struct contract *c) {
    assert_op_ok(st_create(A, "d/k", "one"));
    assert_op_ok(st_create(A, "d/kk", "other"));
    assert_op_ok(st_key(B, BWI_STORE_DELETE, "d/k"));
    assert_no_object(A, "d/k");
    assert_object(A, "d/kk", "other");
    assert_outcome(st_create(A, "d/k", "two"), BWI_STORE_CREATED);
    assert_object(B, "d/k", "two");
}

static void a_deleted_prefix_takes_all_below_and_nothing_beside(struct contract *c) {
    static const char *const below[] = {"a/p/x", "a/p/y/z", "a/p/1/2/3/4/5/6/7/8/9/10/11/12/13/14"};
    static const char *const beside[] = {"a/p-q/x", "a/pp", "a/p0", "b/p/x"};
    for (size_t i = 0; i < 3; i++) assert_op_ok(st_create(A, below[i], "x"));
    for (size_t i = 0; i < 4; i++) assert_op_ok(st_create(A, beside[i], "keep"));
    assert_op_ok(st_key(B, BWI_STORE_DELETE_PREFIX, "a/p/"));
    for (size_t i = 0; i < 3; i++) assert_no_object(A, below[i]);
    for (size_t i = 0; i < 4; i++) assert_object(A, beside[i], "keep");
    assert_listing(A, "a/", NULL, "p-q/ p0 pp");
    assert_listing(A, "a/p/", NULL, "");
    assert_outcome(st_create(A, below[1], "new"), BWI_STORE_CREATED);
    assert_object(B, below[1], "new");
    assert_op_fails(st_key(A, BWI_STORE_DELETE_PREFIX, ""), BW_E_INVALID, "the whole store cannot be meant");
}

static void an_upload_does_not_survive_the_deletion_of_its_prefix(struct contract *c) {
    struct bwi_store_op begun = st_begin(A, "a/p/k", 3);
    assert_op_ok(begun);
    struct bwi_store_upload *u = begun.upload;
    assert_op_ok(st_write(A, u, 0, "abc", 3));
    assert_op_ok(st_key(B, BWI_STORE_DELETE_PREFIX, "a/p/"));
    const struct bwi_store_op finished = st_finish(A, u);
    assert_op_fails(finished, BW_E_IO, "finish \"a/p/k\": ");
    assert_int_equal(finished.outcome, BWI_STORE_GONE);
    assert_no_object(A, "a/p/k");
}

/* ---- uploads ---- */

static void an_upload_is_seen_whole_or_not_at_all(struct contract *c) {
    size_t bytes = 5 * 65536 + 17;
    uint8_t *data = pattern(bytes, 9);
    struct bwi_store_op writes[6], begun = st_begin(A, "d/pack", bytes);
    assert_op_ok(begun);
    for (size_t i = 0; i < 6; i++) { /* all at once, from the back */
        size_t at = (5 - i) * 65536, n = bytes - at < 65536 ? bytes - at : 65536;
        writes[i] = (struct bwi_store_op){
            .verb = BWI_STORE_WRITE, .upload = begun.upload, .offset = at, .buf = data + at, .bytes = n};
        rig_submit(&c->rig, c->a, &writes[i]);
    }
    for (size_t i = 0; i < 6; i++) {
        rig_wait(&c->rig, &writes[i]);
        assert_op_ok(writes[i]);
    }
    assert_no_object(B, "d/pack");
    assert_listing(B, "d/", NULL, "");
    assert_outcome(st_finish(A, begun.upload), BWI_STORE_CREATED);
    struct bwi_store_op got = st_get(B, "d/pack", bytes);
    assert_op_ok(got);
    assert_int_equal(got.body.len, bytes);
    assert_memory_equal(got.body.ptr, data, bytes);
    bwi_buf_fini(&got.body);
    free(data);
}

static void uploads_of_all_sizes(struct contract *c) {
    for (size_t i = 0; i < SIZES; i++) {
        char key[64];
        snprintf(key, sizeof key, "d/o%zu", sizes[i]);
        uint8_t *data = pattern(sizes[i], i);
        assert_outcome(st_upload(A, key, bwi_span(data, sizes[i])), BWI_STORE_CREATED);
        assert_int_equal(st_head(B, key).size_bytes, sizes[i]);
        assert_outcome(st_create_bytes(B, key, bwi_span(data, sizes[i])), BWI_STORE_SAME);
        free(data);
    }
}

static void an_aborted_upload_leaves_nothing(struct contract *c) {
    unsigned files = rig_open_files();
    struct bwi_store_op begun = st_begin(A, "d/k", 100000);
    assert_op_ok(begun);
    assert_op_ok(st_write(A, begun.upload, 4096, "xyz", 3));
    assert_op_ok(st_abort(A, begun.upload));
    assert_op_ok(st_abort(A, NULL));
    assert_no_object(A, "d/k");
    assert_listing(A, "d/", NULL, "");
    assert_int_equal(rig_open_files(), files);
    if (c->kind->dir) assert_int_equal(rig_hidden_files(c->root), 0);
    assert_outcome(st_upload(A, "d/k", bwi_span_str("now")), BWI_STORE_CREATED);
    assert_object(B, "d/k", "now");
}

static void a_second_upload_of_one_key_is_compared_by_size(struct contract *c) {
    assert_outcome(st_upload(A, "d/k", bwi_span_str("first")), BWI_STORE_CREATED);
    assert_outcome(st_upload(B, "d/k", bwi_span_str("FIRST")), BWI_STORE_SAME);
    struct bwi_store_op op = st_upload(B, "d/k", bwi_span_str("longer"));
    assert_op_fails(op, BW_E_EXISTS, "finish \"d/k\": exists already with 5 bytes, expected 6");
    assert_int_equal(op.outcome, BWI_STORE_OTHER);
    assert_object(A, "d/k", "first");
    assert_op_fails(st_create(A, "d/k", "FIRST"), BW_E_EXISTS, NULL);
}

static void of_two_uploads_of_one_key_the_first_to_finish_wins(struct contract *c) {
    struct bwi_store_op x = st_begin(A, "d/k", 3), y = st_begin(B, "d/k", 3);
    assert_op_ok(x);
    assert_op_ok(y);
    assert_op_ok(st_write(A, x.upload, 0, "xxx", 3));
    assert_op_ok(st_write(B, y.upload, 0, "yyy", 3));
    assert_outcome(st_finish(B, y.upload), BWI_STORE_CREATED);
    assert_outcome(st_finish(A, x.upload), BWI_STORE_SAME);
    assert_object(A, "d/k", "yyy");
}

static void a_write_that_failed_poisons_its_upload(struct contract *c) {
    char buf[8192] = {0};
    static const struct {
        uint64_t offset;
        size_t bytes;
        const char *message;
    } bad[] = {
        {100, 8, "write \"d/k\": offset 100: expected a multiple of 4096"},
        {4096, 5000, "write \"d/k\": 5000 bytes at offset 4096: the upload has 8192 bytes"},
        {UINT64_C(1) << 63, 8, "beyond the largest object"},
    };
    for (size_t i = 0; i < 3; i++) {
        struct bwi_store_op begun = st_begin(A, "d/k", 8192);
        assert_op_ok(begun);
        assert_op_fails(st_write(A, begun.upload, bad[i].offset, buf, bad[i].bytes), BW_E_INVALID, bad[i].message);
        assert_op_ok(st_write(A, begun.upload, 0, buf, 8192));
        assert_op_fails(st_finish(A, begun.upload), BW_E_INVALID, bad[i].message);
        assert_no_object(A, "d/k");
        assert_listing(A, "d/", NULL, "");
    }
}

static void an_upload_with_missing_bytes_cannot_be_finished(struct contract *c) {
    struct bwi_store_op begun = st_begin(A, "d/k", 5000);
    assert_op_ok(begun);
    assert_op_ok(st_write(A, begun.upload, 4096, "tail", 4));
    assert_op_fails(st_finish(A, begun.upload), BW_E_INTERNAL,
                    "finish \"d/k\": 5000 bytes were announced and 4 written");
    assert_no_object(A, "d/k");
    assert_op_fails(st_finish(A, NULL), BW_E_INVALID, "finish: no upload was given");
    assert_op_fails(st_write(A, NULL, 0, "x", 1), BW_E_INVALID, "write: no upload was given");
}

static void replacing_changes_the_whole_object(struct contract *c) {
    assert_op_ok(st_create(A, "d/k", "damaged"));
    assert_op_ok(st_replace(B, "d/k", "right bytes"));
    assert_object(A, "d/k", "right bytes");
    assert_op_ok(st_replace(A, "d/k", ""));
    assert_object(B, "d/k", "");
    assert_op_ok(st_replace(A, "new/dir/k", "was missing"));
    assert_object(B, "new/dir/k", "was missing");
    assert_listing(A, "d/", NULL, "k");
}

static struct bwi_store_op upload_over(struct contract *c, const char *key, const char *text, bool abort) {
    struct bwi_store_op begun = st_run(
        A, (struct bwi_store_op){.verb = BWI_STORE_BEGIN, .key = key, .size_bytes = strlen(text), .replace = true});
    if (begun.error.status != 0) return begun;
    assert_op_ok(st_write(A, begun.upload, 0, text, strlen(text)));
    return abort ? st_abort(A, begun.upload) : st_finish(A, begun.upload);
}

static void an_upload_may_replace_a_damaged_object(struct contract *c) {
    assert_op_ok(st_create(A, "d/pack", "damaged bytes"));
    assert_op_ok(upload_over(c, "d/pack", "right", true));
    assert_object(B, "d/pack", "damaged bytes"); /* not before its FINISH */
    assert_outcome(upload_over(c, "d/pack", "right", false), BWI_STORE_CREATED);
    assert_object(B, "d/pack", "right");
    assert_outcome(upload_over(c, "d/new", "was missing", false), BWI_STORE_CREATED);
    assert_object(B, "d/new", "was missing");
    assert_listing(A, "d/", NULL, "new pack");
    assert_outcome(st_upload(A, "d/pack", bwi_span_str("other")), BWI_STORE_SAME); /* without it: as ever */
    assert_object(B, "d/pack", "right");
}

/* ---- keys ---- */

static char *repeat(const char *unit, size_t n) {
    char *s = calloc(1, strlen(unit) * n + 1);
    assert_non_null(s);
    for (size_t i = 0; i < n; i++) strcat(s, unit);
    return s;
}

static void refuse_key(struct contract *c, const char *key) {
    static const enum bwi_store_verb verbs[] = {BWI_STORE_CREATE, BWI_STORE_GET,   BWI_STORE_READ,   BWI_STORE_HEAD,
                                                BWI_STORE_DELETE, BWI_STORE_BEGIN, BWI_STORE_REPLACE};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        assert_op_fails(st_key(A, verbs[i], key), BW_E_INVALID,
                        "not a key: expected components of [A-Za-z0-9._-], separated by '/'");
}

static void refuse_prefix(struct contract *c, const char *key) {
    static const enum bwi_store_verb verbs[] = {BWI_STORE_LIST, BWI_STORE_DELETE_PREFIX, BWI_STORE_SYNC,
                                                BWI_STORE_LOCK};
    for (size_t i = 0; i < 4; i++)
        assert_op_fails(st_key(A, verbs[i], key), BW_E_INVALID, "not a prefix: expected a key and a final '/'");
}

static void keys_that_are_none_are_refused_by_every_verb(struct contract *c) {
    char *long_part = repeat("x", 256), *deep = repeat("d/", 17), *long_key = repeat("0123456789/", 92);
    deep[33] = '\0'; /* 17 components, no final '/' */
    long_key[1001] = '\0';
    const char *const bad[] = {"/",   "/a",   "a//b",     ".",    "..",  "a/..", "a/../b", "a/.b",    ".lock",
                               "a b", "a\nb", "\xc3\xa9", "a\\b", "a:b", "a*",   "%2e",    long_part, deep};
    refuse_key(c, NULL);
    refuse_key(c, "");
    refuse_key(c, "a/");
    refuse_key(c, long_key);
    refuse_prefix(c, NULL);
    refuse_prefix(c, "a");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char prefix[1200];
        refuse_key(c, bad[i]);
        snprintf(prefix, sizeof prefix, "%s/", bad[i]);
        refuse_prefix(c, prefix);
    }
    assert_listing(A, "", NULL, "");
    free(long_part);
    free(deep);
    free(long_key);
}

static void the_longest_keys_work(struct contract *c) {
    char *part = repeat("x", 255), *deep = repeat("d/", 16),
         *key = repeat("0123456789.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/", 16);
    deep[31] = '\0';
    key[1000] = '\0';
    assert_int_equal(strlen(key), 1000);
    assert_op_ok(st_create(A, part, "1"));
    assert_object(B, part, "1");
    assert_op_ok(st_create(A, deep, "2"));
    assert_object(B, deep, "2");
    assert_op_ok(st_create(A, key, "3"));
    assert_object(B, key, "3");
    assert_outcome(st_upload(A, key, bwi_span_str("3")), BWI_STORE_SAME);
    key[64] = '\0';
    assert_op_ok(st_key(A, BWI_STORE_DELETE_PREFIX, key));
    deep[2] = '\0';
    assert_op_ok(st_key(A, BWI_STORE_DELETE_PREFIX, deep));
    assert_listing(A, "", NULL, part);
    free(part);
    free(deep);
    free(key);
}

static void buffers_that_are_missing_are_refused(struct contract *c) {
    struct bwi_store_op op = {.verb = BWI_STORE_CREATE, .key = "k", .data = {NULL, 3}};
    assert_op_fails(st_run(A, op), BW_E_INVALID, "create \"k\": no buffer was given");
    op.verb = BWI_STORE_REPLACE;
    assert_op_fails(st_run(A, op), BW_E_INVALID, "replace \"k\": no buffer was given");
    assert_op_fails(st_read(A, "k", 0, NULL, 1, NULL), BW_E_INVALID, "read \"k\": no buffer was given");
    assert_op_fails(st_begin(A, "k", UINT64_MAX), BW_E_LIMIT,
                    "begin \"k\": 18446744073709551615 bytes: beyond the largest object");
    assert_no_object(A, "k");
}

/* ---- locks, space, counts ---- */

static void a_lock_is_held_by_one(struct contract *c) {
    struct bwi_store_op x = st_key(A, BWI_STORE_LOCK, "d/group/"), y = st_key(A, BWI_STORE_LOCK, "d/");
    assert_op_ok(x);
    assert_op_ok(y);
    assert_op_fails(st_key(A, BWI_STORE_LOCK, "d/group/"), BW_E_BUSY, "lock \"d/group/\": held by another process");
    assert_op_fails(st_key(B, BWI_STORE_LOCK, "d/group/"), BW_E_BUSY, NULL);
    assert_listing(B, "d/group/", NULL, "");
    assert_op_ok(st_unlock(A, x.lock));
    assert_op_ok(st_unlock(A, NULL));
    x = st_key(B, BWI_STORE_LOCK, "d/group/");
    assert_op_ok(x);
    struct bwi_store_op root = st_key(A, BWI_STORE_LOCK, "");
    assert_op_ok(root);
    assert_op_ok(st_unlock(A, root.lock));
    assert_op_ok(st_unlock(B, x.lock));
    assert_op_ok(st_unlock(A, y.lock));
}

static void syncing_a_prefix_succeeds(struct contract *c) {
    assert_op_ok(st_create(A, "d/k", "x"));
    assert_op_ok(st_key(B, BWI_STORE_SYNC, "d/"));
    assert_op_ok(st_key(B, BWI_STORE_SYNC, ""));
}

static void space_is_known(struct contract *c) {
    struct bwi_store_op op = st_run(A, (struct bwi_store_op){.verb = BWI_STORE_SPACE});
    assert_op_ok(op);
    assert_true(c->a->caps.has_space);
    assert_true(op.free_bytes > 0 && op.total_bytes >= op.free_bytes);
}

static void operations_and_bytes_are_counted(struct contract *c) {
    char buf[4];
    assert_op_ok(st_create(A, "k", "12345"));
    assert_op_ok(st_create(A, "k", "12345")); /* the same: nothing is taken */
    assert_op_ok(st_replace(A, "k", "1234567"));
    assert_outcome(st_upload(A, "u", bwi_span_str("123")), BWI_STORE_CREATED);
    assert_op_fails(st_create(A, "k", "x"), BW_E_EXISTS, NULL);
    assert_int_equal(c->a->bytes_in, 15);
    assert_op_ok(st_read(A, "k", 1, buf, 4, NULL));
    struct bwi_store_op op = st_get(A, "k", 100);
    bwi_buf_fini(&op.body);
    assert_op_fails(st_get(A, "k", 1), BW_E_FORMAT, NULL);
    assert_int_equal(c->a->bytes_out, 11);
    assert_int_equal(c->a->ops[BWI_STORE_CREATE], 3);
    assert_int_equal(c->a->ops[BWI_STORE_GET], 2);
    assert_int_equal(c->a->ops[BWI_STORE_READ], 1);
    assert_int_equal(c->a->ops[BWI_STORE_BEGIN], 1);
    assert_int_equal(c->a->ops[BWI_STORE_WRITE], 1);
    assert_int_equal(c->a->ops[BWI_STORE_FINISH], 1);
    assert_int_equal(c->b->ops[BWI_STORE_CREATE], 0);
}

static void a_read_only_store_changes_nothing(struct contract *c) {
    assert_op_ok(st_create(A, "d/k", "x"));
    struct bwi_store *ro = contract_open(c, true);
    if (!ro) skip();
    static const enum bwi_store_verb keyed[] = {BWI_STORE_CREATE, BWI_STORE_DELETE, BWI_STORE_BEGIN, BWI_STORE_REPLACE};
    for (size_t i = 0; i < 4; i++)
        assert_op_fails(st_key(&c->rig, ro, keyed[i], "d/k"), BW_E_ACCESS, "was opened read-only");
    assert_op_fails(st_key(&c->rig, ro, BWI_STORE_DELETE_PREFIX, "d/"), BW_E_ACCESS, "was opened read-only");
    assert_op_fails(st_key(&c->rig, ro, BWI_STORE_LOCK, "d/"), BW_E_ACCESS, "was opened read-only");
    assert_object(&c->rig, ro, "d/k", "x");
    assert_listing(&c->rig, ro, "d/", NULL, "k");
    assert_op_ok(st_key(&c->rig, ro, BWI_STORE_SYNC, "d/"));
    ro->close(ro);
}

/* ---- no memory ---- */

/* Runs an operation with every allocation failing in turn: an error, nothing leaked, and it works afterwards. */
static struct bwi_store_op starve(struct contract *c, struct bwi_store_op op) {
    for (unsigned long n = 1;; n++) {
        long live = bwi_alloc_live();
        bwi_alloc_fail_at(n);
        struct bwi_store_op done = st_run(A, op);
        bwi_alloc_fail_at(0);
        if (done.error.status == 0) return done;
        assert_op_fails(done, BW_E_NOMEM, NULL);
        assert_int_equal(bwi_alloc_live(), live);
        assert_true(n < 1000);
    }
}

static void without_memory_an_operation_fails_and_leaks_nothing(struct contract *c) {
    char buf[8];
    struct bwi_store_handle *h = NULL;
    unsigned files = rig_open_files();
    assert_op_ok(st_create(A, "warm", "")); /* a bucket's own array stays */
    starve(c, (struct bwi_store_op){.verb = BWI_STORE_CREATE, .key = "d/k", .data = bwi_span("12345678", 8)});
    starve(c, (struct bwi_store_op){.verb = BWI_STORE_CREATE, .key = "d/k", .data = bwi_span("12345678", 8)});
    starve(c, (struct bwi_store_op){.verb = BWI_STORE_REPLACE, .key = "d/k", .data = bwi_span("87654321", 8)});
    struct bwi_store_op op = starve(c, (struct bwi_store_op){.verb = BWI_STORE_GET, .key = "d/k", .limit_bytes = 8});
    bwi_buf_fini(&op.body);
    starve(c, (struct bwi_store_op){.verb = BWI_STORE_READ, .key = "d/k", .buf = buf, .bytes = 8, .handle = &h});
    starve(c, (struct bwi_store_op){.verb = BWI_STORE_RELEASE, .handle = &h});
    op = starve(c, (struct bwi_store_op){.verb = BWI_STORE_LIST, .key = "d/"});
    assert_int_equal(op.names.len, 1);
    bwi_store_names_fini(&op.names);
    op = starve(c, (struct bwi_store_op){.verb = BWI_STORE_BEGIN, .key = "d/u", .size_bytes = 4});
    starve(c, (struct bwi_store_op){.verb = BWI_STORE_WRITE, .upload = op.upload, .buf = buf, .bytes = 4});
    assert_outcome(st_finish(A, op.upload), BWI_STORE_CREATED);
    op = starve(c, (struct bwi_store_op){.verb = BWI_STORE_LOCK, .key = "d/"});
    assert_op_ok(st_unlock(A, op.lock));
    starve(c, (struct bwi_store_op){.verb = BWI_STORE_DELETE_PREFIX, .key = "d/"});
    assert_listing(A, "", NULL, "warm");
    assert_int_equal(rig_open_files(), files);
}

/* ---- against a model ---- */

#define KEYS 12

static void check_model(struct contract *c, const char *const keys[KEYS], const int values[KEYS]) {
    char text[32];
    for (int i = 0; i < KEYS; i++) {
        snprintf(text, sizeof text, "value %d", values[i]);
        if (values[i] < 0)
            assert_no_object(B, keys[i]);
        else
            assert_object(B, keys[i], text);
    }
}

static void model_step(struct contract *c, const char *const keys[KEYS], int values[KEYS], uint64_t *rng) {
    size_t i = test_random(rng) % KEYS;
    int v = (int)(test_random(rng) % 3);
    char text[32];
    snprintf(text, sizeof text, "value %d", v);
    struct bwi_span data = bwi_span_str(text);
    enum bwi_store_outcome made = values[i] < 0 ? BWI_STORE_CREATED : BWI_STORE_SAME;
    struct bwi_store *s = test_random(rng) % 2 ? c->a : c->b;
    switch (test_random(rng) % 6) {
    case 0:
    case 1:
        if (values[i] >= 0 && values[i] != v)
            assert_op_fails(st_create(&c->rig, s, keys[i], text), BW_E_EXISTS, NULL);
        else
            assert_outcome(st_create(&c->rig, s, keys[i], text), made);
        if (values[i] < 0) values[i] = v;
        break;
    case 2:
        assert_outcome(st_upload(&c->rig, s, keys[i], data), made); /* all values have one size */
        if (values[i] < 0) values[i] = v;
        break;
    case 3:
        assert_op_ok(st_replace(&c->rig, s, keys[i], text));
        values[i] = v;
        break;
    case 4:
        assert_op_ok(st_key(&c->rig, s, BWI_STORE_DELETE, keys[i]));
        values[i] = -1;
        break;
    default: {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "%.*s/", (int)strcspn(keys[i], "/"), keys[i]);
        assert_op_ok(st_key(&c->rig, s, BWI_STORE_DELETE_PREFIX, prefix));
        for (size_t k = 0; k < KEYS; k++) {
            if (strncmp(keys[k], prefix, strlen(prefix)) == 0) values[k] = -1;
        }
    }
    }
}

static void it_does_what_a_naive_model_does(struct contract *c) {
    static const char *const keys[KEYS] = {"a/1",   "a/2",     "a/3/4",   "a/3/5/6", "b/1",  "b/2/3",
                                           "b/2/4", "c/x/y/z", "c/x/y/w", "ab/1",    "a-/1", "d/1"};
    int values[KEYS];
    uint64_t rng = test_seed(77);
    for (int i = 0; i < KEYS; i++) values[i] = -1;
    int steps = c->kind->dir ? 150 : 1500;
    for (int n = 0; n < steps; n++) {
        model_step(c, keys, values, &rng);
        if (n % 10 == 0) check_model(c, keys, values);
    }
    check_model(c, keys, values);
}

#define CASE(f)                                                                                                        \
    { #f, f }
const struct contract_case contract_cases[] = {
    CASE(what_was_created_is_read_back_by_others),
    CASE(creating_the_same_bytes_again_is_success),
    CASE(other_bytes_under_a_taken_key_are_refused),
    CASE(of_creators_at_one_moment_exactly_one_wins),
    CASE(get_refuses_more_than_its_limit),
    CASE(what_is_missing_is_not_found),
    CASE(a_prefix_is_not_an_object),
    CASE(nothing_is_below_an_object),
    CASE(ranges_are_read_exactly),
    CASE(several_first_reads_share_one_handle),
    CASE(a_listing_is_one_level_sorted_bytewise),
    CASE(pages_of_a_long_listing_make_the_whole),
    CASE(a_deleted_object_is_gone_and_can_be_made_anew),
    CASE(a_deleted_prefix_takes_all_below_and_nothing_beside),
    CASE(an_upload_does_not_survive_the_deletion_of_its_prefix),
    CASE(an_upload_is_seen_whole_or_not_at_all),
    CASE(uploads_of_all_sizes),
    CASE(an_aborted_upload_leaves_nothing),
    CASE(a_second_upload_of_one_key_is_compared_by_size),
    CASE(of_two_uploads_of_one_key_the_first_to_finish_wins),
    CASE(a_write_that_failed_poisons_its_upload),
    CASE(an_upload_with_missing_bytes_cannot_be_finished),
    CASE(replacing_changes_the_whole_object),
    CASE(an_upload_may_replace_a_damaged_object),
    CASE(keys_that_are_none_are_refused_by_every_verb),
    CASE(the_longest_keys_work),
    CASE(buffers_that_are_missing_are_refused),
    CASE(a_lock_is_held_by_one),
    CASE(syncing_a_prefix_succeeds),
    CASE(space_is_known),
    CASE(operations_and_bytes_are_counted),
    CASE(a_read_only_store_changes_nothing),
    CASE(without_memory_an_operation_fails_and_leaks_nothing),
    CASE(it_does_what_a_naive_model_does),
};
const size_t contract_case_count = sizeof contract_cases / sizeof *contract_cases;
