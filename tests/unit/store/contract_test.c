/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the contract of stores against every kind of store that there is. */
#include "contract.h"

#include "base/vec.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct contract_kind kinds[] = {
    {.name = "posix", .dir = ""},
    {.name = "posix_tmpfs", .dir = "/dev/shm"},
    {.name = "memory"},
    {.name = "memory_slow", .model = {.latency_ns = 3000000, .jitter_ns = 20000000, .bytes_per_s = 50000000}},
    {.name = "memory_url", .url = "memory:contract"},
};
#define KINDS (sizeof kinds / sizeof *kinds)

struct run {
    const struct contract_kind *kind;
    const struct contract_case *test;
    struct contract c;
    unsigned files;
    long live;
};

struct bwi_store *contract_open(struct contract *c, bool read_only) {
    if (!c->bucket) return rig_store(&c->rig, c->url, read_only);
    struct bwi_store *s = NULL;
    struct bw_error err = BW_ERROR_INIT;
    if (read_only) return NULL;
    assert_ok(bwi_store_memory_open(c->bucket, c->rig.loop, "contract", &s, &err), &err);
    return s;
}

static bool make_root(struct contract *c) {
    if (!*c->kind->dir) {
        snprintf(c->root, sizeof c->root, "%s", test_mkdir());
        return true;
    }
    snprintf(c->root, sizeof c->root, "%s/bw-test-XXXXXX", c->kind->dir);
    return mkdtemp(c->root) != NULL;
}

static int setup(void **state) {
    struct run *run = *state;
    struct contract *c = &run->c;
    *c = (struct contract){.kind = run->kind};
    run->files = rig_open_files();
    run->live = bwi_alloc_live();
    bool bucket = !c->kind->dir && !c->kind->url;
    if (c->kind->dir && !make_root(c)) {
        print_message("skipped: no directory can be made in %s\n", c->kind->dir);
        return 0;
    }
    rig_open(&c->rig, bucket, NULL);
    if (bucket) {
        assert_int_equal(bwi_bucket_new(&c->rig.v.env, &c->bucket), 0);
        *bwi_bucket_model(c->bucket) = c->kind->model;
    }
    snprintf(c->url, sizeof c->url, "%s", c->kind->url ? c->kind->url : c->root);
    c->a = contract_open(c, false);
    c->b = contract_open(c, false);
    return 0;
}

static void run_case(void **state) {
    struct run *run = *state;
    if (!run->c.a) skip();
    run->test->run(&run->c);
}

static int teardown(void **state) {
    struct run *run = *state;
    struct contract *c = &run->c;
    if (!c->a) return 0;
    c->a->close(c->a);
    c->b->close(c->b);
    bwi_bucket_free(c->bucket);
    rig_close(&c->rig);
    if (c->kind->dir) test_rmdir(c->root);
    if (rig_open_files() != run->files) print_error("%u descriptors were left open\n", rig_open_files() - run->files);
    if (bwi_alloc_live() != run->live)
        print_error("%ld allocations were not given back\n", bwi_alloc_live() - run->live);
    return rig_open_files() == run->files && bwi_alloc_live() == run->live ? 0 : -1;
}

int main(void) {
    int failed = 0;
    size_t n = contract_case_count;
    struct run *runs = calloc(n, sizeof *runs);
    struct CMUnitTest *tests = calloc(n, sizeof *tests);
    char(*names)[128] = calloc(n, sizeof *names);
    if (!runs || !tests || !names) return 1;
    for (size_t k = 0; k < KINDS; k++) {
        for (size_t i = 0; i < n; i++) {
            runs[i] = (struct run){.kind = &kinds[k], .test = &contract_cases[i]};
            snprintf(names[i], sizeof names[i], "%s: %s", kinds[k].name, contract_cases[i].name);
            tests[i] = (struct CMUnitTest){names[i], run_case, setup, teardown, &runs[i]};
        }
        failed += _cmocka_run_group_tests(kinds[k].name, tests, n, NULL, NULL);
    }
    free(names);
    free(tests);
    free(runs);
    return failed;
}
