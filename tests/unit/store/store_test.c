/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, URLs, and buckets that are found by their name. */
#include "rig.h"

#include "base/vec.h"
#include "os/thread.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void keys_are_components_and_slashes(void **state) {
    (void)state;
    static const char *const good[] = {"a", "a/b", "A-z_0.9/x", "a..b", "-", "_", "a/-/b.", "store.json"};
    static const char *const bad[] = {"",   "/",    "a/",   "/a",  "a//b", ".",    "..",
                                      ".a", "a/.b", "a/..", "a b", "a\t",  "\x7f", "\xff"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_true(bwi_store_key_valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(bwi_store_key_valid(bad[i]));
    assert_false(bwi_store_key_valid(NULL));
    assert_true(bwi_store_prefix_valid(""));
    assert_true(bwi_store_prefix_valid("a/"));
    assert_true(bwi_store_prefix_valid("a/b/"));
    static const char *const no_prefix[] = {"a", "/", "a//", "../", "a/../", ".a/"};
    for (size_t i = 0; i < 6; i++) assert_false(bwi_store_prefix_valid(no_prefix[i]));
    assert_false(bwi_store_prefix_valid(NULL));
}

struct fixture {
    struct rig rig;
    char dir[512];
};

static int setup(void **state) {
    static struct fixture f;
    rig_open(&f.rig, false, NULL);
    snprintf(f.dir, sizeof f.dir, "%s", test_mkdir());
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    rig_close(&f->rig);
    test_rmdir(f->dir);
    return 0;
}

static int try_open(struct fixture *f, const char *url, bool create, struct bw_error *err) {
    struct bwi_store *s = NULL;
    struct bwi_store_options o = {.loop = f->rig.loop, .create = create};
    bw_error_clear(err);
    int rc = bwi_store_open(url, &o, &s, err);
    assert_true(rc == 0 || s == NULL);
    if (s) s->close(s);
    return rc;
}

static void urls_that_are_not_understood_are_refused_by_name(void **state) {
    static const struct {
        const char *url;
        int status;
        const char *message;
    } cases[] = {
        {"", BW_E_INVALID, "store: expected a URL or an absolute path, found nothing"},
        {"some/dir", BW_E_INVALID,
         "store \"some/dir\" is a relative path: expected an absolute one, or a URL such as file:///path"},
        {"./x", BW_E_INVALID, "relative path"},
        {"file:x", BW_E_INVALID, "expected file:/// and an absolute path"},
        {"file:/x", BW_E_INVALID, "expected file:/// and an absolute path"},
        {"file://host/x", BW_E_INVALID,
         "store \"file://host/x\": expected file:/// and an absolute path on this machine"},
        {"file:///x%2", BW_E_INVALID, "expected two hex digits after '%', found \"2\""},
        {"file:///x%zz", BW_E_INVALID, "expected two hex digits after '%', found \"zz\""},
        {"file:///x%00y", BW_E_INVALID, "a path cannot hold a NUL byte"},
        {"file:///x?mode=secret", BW_E_INVALID, "store \"file:///x\": unknown parameter \"mode\""},
        {"file:///x#part", BW_E_INVALID, "store \"file:///x\": expected no fragment"},
        {"memory:", BW_E_INVALID, "store \"memory:\": expected memory: and a name"},
        {"memory:a/b", BW_E_INVALID, "expected memory: and a name"},
        {"memory:a?latency=1", BW_E_INVALID, "store \"memory:a\": unknown parameter \"latency\""},
        {"s3://bucket/x?endpoint=e&key=secret", BW_E_UNSUPPORTED,
         "store \"s3://bucket/x\": this build has no S3 store"},
        {"gs://bucket", BW_E_UNSUPPORTED, "store \"gs://bucket\": unknown scheme \"gs\", expected file or memory"},
        {"FILE:///x", BW_E_UNSUPPORTED, "unknown scheme \"FILE\""},
    };
    struct bw_error err = BW_ERROR_INIT;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_fails(try_open(*state, cases[i].url, true, &err), cases[i].status, &err, cases[i].message);
        assert_null(strstr(err.message, "secret"));
    }
    assert_fails(try_open(*state, NULL, true, &err), BW_E_INVALID, &err, "found nothing");
}

static void paths_that_are_too_long_are_refused(void **state) {
    char url[5000];
    struct bw_error err = BW_ERROR_INIT;
    memset(url, 'x', sizeof url);
    url[0] = '/';
    url[600] = '\0';
    assert_fails(try_open(*state, url, true, &err), BW_E_LIMIT, &err,
                 "the path is too long, expected at most 511 bytes of URL");
    url[600] = 'x';
    url[sizeof url - 1] = '\0';
    assert_fails(try_open(*state, url, true, &err), BW_E_LIMIT, &err, "the path is too long");
    memcpy(url, "file:///", 8);
    assert_fails(try_open(*state, url, true, &err), BW_E_LIMIT, &err, "the URL is too long");
}

static void one_directory_has_several_names(void **state) {
    struct fixture *f = *state;
    char path[600], url[700];
    rig_path(path, sizeof path, f->dir, "a b?#%");
    struct bwi_store *plain = rig_store(&f->rig, path, false);
    snprintf(url, sizeof url, "file://%s/a%%20b%%3f%%23%%25", f->dir);
    assert_string_equal(plain->url, url);
    struct bwi_store *decoded = rig_store(&f->rig, url, false);
    assert_string_equal(decoded->url, url);
    assert_op_ok(st_create(&f->rig, plain, "k", "x"));
    assert_object(&f->rig, decoded, "k", "x");
    strcat(path, "//");
    struct bwi_store *slashes = rig_store(&f->rig, path, false);
    assert_string_equal(slashes->url, url);
    assert_object(&f->rig, slashes, "k", "x");
    plain->close(plain);
    decoded->close(decoded);
    slashes->close(slashes);
}

static void a_missing_root_is_made_only_on_demand(void **state) {
    struct fixture *f = *state;
    char path[600];
    struct stat st;
    struct bw_error err = BW_ERROR_INIT;
    rig_path(path, sizeof path, f->dir, "x/y/z");
    assert_fails(try_open(f, path, false, &err), BW_E_NOTFOUND, &err, "no such file or directory");
    assert_non_null(strstr(err.message, "open store \"file:///"));
    assert_int_not_equal(stat(path, &st), 0);
    assert_ok(try_open(f, path, true, &err), &err);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_fails(try_open(f, "memory:nobody", false, &err), BW_E_NOTFOUND, &err,
                 "open store \"memory:nobody\": no such bucket in this process");
}

static void a_file_in_place_of_the_root_is_an_error(void **state) {
    struct fixture *f = *state;
    char path[600];
    struct bw_error err = BW_ERROR_INIT;
    rig_path(path, sizeof path, f->dir, "file");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_fails(try_open(f, path, true, &err), BW_E_IO, &err, "not a directory");
}

static void a_directory_needs_a_loop_with_an_engine(void **state) {
    struct fixture *f = *state;
    struct rig still;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_store *s = NULL;
    rig_open(&still, true, NULL);
    struct bwi_store_options o = {.loop = still.loop, .create = true};
    assert_fails(bwi_store_open(f->dir, &o, &s, &err), BW_E_INVALID, &err, "its loop has no transfer engine");
    assert_null(s);
    rig_close(&still);
}

static void opening_without_memory_fails_and_leaks_nothing(void **state) {
    struct fixture *f = *state;
    const char *const urls[] = {f->dir, "memory:starved"};
    struct bw_error err = BW_ERROR_INIT;
    for (size_t i = 0; i < 2; i++) {
        long live = bwi_alloc_live();
        unsigned files = rig_open_files();
        for (unsigned long n = 1;; n++) {
            bwi_alloc_fail_at(n);
            int rc = try_open(f, urls[i], true, &err);
            bwi_alloc_fail_at(0);
            if (rc == 0) break;
            assert_int_equal(rc, BW_E_NOMEM);
            assert_true(n < 100);
        }
        assert_int_equal(bwi_alloc_live(), live);
        assert_int_equal(rig_open_files(), files);
    }
}

static void a_named_bucket_lives_as_long_as_a_store_is_open(void **state) {
    struct fixture *f = *state;
    long live = bwi_alloc_live();
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_store *a = rig_store(&f->rig, "memory:x", false), *other = rig_store(&f->rig, "memory:y", false);
    assert_op_ok(st_create(&f->rig, a, "k", "1"));
    assert_no_object(&f->rig, other, "k");
    struct bwi_store *b = rig_store(&f->rig, "memory:x", true);
    a->close(a);
    assert_object(&f->rig, b, "k", "1");
    assert_string_equal(b->url, "memory:x");
    b->close(b);
    other->close(other);
    assert_fails(try_open(f, "memory:x", false, &err), BW_E_NOTFOUND, &err, NULL);
    assert_int_equal(bwi_alloc_live(), live);
}

/* ---- one bucket, several threads, each with its own loop ---- */

#define THREADS 3
#define KEYS    200

struct racer {
    struct bwi_thread thread;
    int number;
    int created, other, wrong;
};

static void quiet_done(struct bwi_store_op *op) {
    op->user = op;
}

static void *race(void *arg) {
    struct racer *r = arg;
    struct bwi_loop *loop = NULL;
    struct bwi_store *s = NULL;
    if (bwi_loop_open(bwi_env_system(), NULL, &loop, NULL) < 0) return NULL;
    if (bwi_store_open("memory:race", &(struct bwi_store_options){.loop = loop, .create = true}, &s, NULL) < 0)
        return NULL;
    for (int i = 0; i < KEYS; i++) {
        char key[32], text[32];
        snprintf(key, sizeof key, "k/%d", i);
        snprintf(text, sizeof text, "by %d", r->number);
        struct bwi_store_op op = {.verb = BWI_STORE_CREATE, .done = quiet_done, .key = key, .data = bwi_span_str(text)};
        bwi_store_submit(s, &op);
        while (op.user != &op) bwi_loop_turn(loop, 0);
        if (op.outcome == BWI_STORE_CREATED)
            r->created++;
        else if (op.outcome == BWI_STORE_OTHER)
            r->other++;
        else
            r->wrong++;
    }
    s->close(s);
    bwi_loop_close(loop);
    return NULL;
}

static void a_named_bucket_is_shared_by_threads(void **state) {
    struct fixture *f = *state;
    struct racer racers[THREADS] = {0};
    int created = 0;
    struct bwi_store *keep = rig_store(&f->rig, "memory:race", false);
    for (int i = 0; i < THREADS; i++) {
        racers[i].number = i;
        assert_int_equal(bwi_thread_start(&racers[i].thread, "racer", race, &racers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        bwi_thread_join(&racers[i].thread);
        assert_int_equal(racers[i].wrong, 0);
        assert_int_equal(racers[i].created + racers[i].other, KEYS);
        created += racers[i].created;
    }
    assert_int_equal(created, KEYS);
    struct bwi_store_op op = st_list(&f->rig, keep, "k/", NULL);
    assert_int_equal(op.names.len, KEYS);
    bwi_store_names_fini(&op.names);
    keep->close(keep);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_components_and_slashes),
        CASE(urls_that_are_not_understood_are_refused_by_name),
        CASE(paths_that_are_too_long_are_refused),
        CASE(one_directory_has_several_names),
        CASE(a_missing_root_is_made_only_on_demand),
        CASE(a_file_in_place_of_the_root_is_an_error),
        CASE(a_directory_needs_a_loop_with_an_engine),
        CASE(opening_without_memory_fails_and_leaks_nothing),
        CASE(a_named_bucket_lives_as_long_as_a_store_is_open),
        CASE(a_named_bucket_is_shared_by_threads),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
