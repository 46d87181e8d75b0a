/* SPDX-License-Identifier: Apache-2.0 */
/* Memory runs out at any allocation of any public call: it says so, frees what it had, changes nothing that was
 * committed, and the next call works. */
#include "base/vec.h"
#include "sanitized.h"
#include "test.h"
#include <breakwater/breakwater.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define STEPS   3u
#define BYTES   6000u
#define WAIT_MS UINT64_C(60000)

static char root[600], remote[700], local[700];
static unsigned char saved[BYTES], got[BYTES];
static char newest[BW_ID_BYTES]; /* of step STEPS */

static void fill(uint64_t step) {
    for (unsigned i = 0; i < BYTES; i++) saved[i] = (unsigned char)(i * 7 + step);
}

/* ---- a job of one rank ---- */

static int open_as(const char *run, const char *launch, struct bw_checkpointer **ret, struct bw_error *err) {
    struct bw_options o = BW_OPTIONS_INIT;
    o.run = run, o.job = "job", o.launch = launch, o.world = 1;
    o.remote_url = remote, o.local_url = local;
    o.local_io_depth = 16;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.io_threads = 1;
    o.flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL;
    return bw_checkpointer_open(&o, ret, err);
}

static int open_launch(const char *run, struct bw_checkpointer **ret, struct bw_error *err) {
    return open_as(run, "launch", ret, err);
}

static int save_step(struct bw_checkpointer *ck, uint64_t step, struct bw_error *err) {
    struct bw_save *save = NULL;
    fill(step);
    int rc = bw_save_begin(ck, step, &save, err);
    if (rc == 0) rc = bw_save_tensor(save, &BW_TENSOR_OF("w", BW_U8, saved, BYTES), err);
    if (rc == 0) rc = bw_save_blob(save, "rng", "abc", 3, err);
    if (rc == 0) rc = bw_save_start(save, err);
    if (rc == 0) rc = bw_save_wait(save, BW_COMMITTED, WAIT_MS, err);
    bw_save_release(save);
    return rc;
}

static int read_step(struct bw_restore *r, uint64_t step, struct bw_error *err) {
    struct bw_slice s = BW_SLICE_OF("w", BW_U8, got, BYTES);
    const int rc = bw_restore_read(r, &s, 1, err);
    fill(step);
    if (rc == 0) assert_memory_equal(saved, got, BYTES);
    return rc;
}

static void save_all(void) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    assert_ok(open_launch("run", &ck, &err), &err);
    for (uint64_t step = 1; step <= STEPS; step++) assert_ok(save_step(ck, step, &err), &err);
    assert_ok(bw_checkpointer_close(ck, WAIT_MS, &err), &err);
}

/* ---- the calls of a catalog ---- */

typedef int look(struct bw_catalog *c, struct bw_list **ret, struct bw_error *err);

static int runs(struct bw_catalog *c, struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_runs(c, ret, err);
}
static int one_run(struct bw_catalog *c, struct bw_list **ret, struct bw_error *err) {
    struct bw_run_info info;
    (void)ret;
    return bw_catalog_run(c, "run", &info, err);
}
static int checkpoints(struct bw_catalog *c, struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_checkpoints(c, "run", ret, err);
}
static int objects(struct bw_catalog *c, struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_objects(c, "run", newest, ret, err);
}
static int refs(struct bw_catalog *c, struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_refs(c, "run", ret, err);
}
static int history(struct bw_catalog *c, struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_history(c, "run", ret, err);
}
static int verify(struct bw_catalog *c, struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_verify(c, "run", NULL, 0, ret, err);
}
static int repair(struct bw_catalog *c, struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_repair(c, "run", BW_REPAIR_COPIES | BW_REPAIR_HISTORY, ret, err);
}
static int prune(struct bw_catalog *c, struct bw_list **ret, struct bw_error *err) {
    const struct bw_prune_options o = {.struct_size = sizeof o, .grace_ms = UINT64_MAX};
    return bw_catalog_prune(c, "run", &o, ret, err);
}
static int roll_back(struct bw_catalog *c, struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_rollback(c, "run", 1, NULL, "back", 1, ret, err);
}
static int drain(struct bw_catalog *c, struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_drain(c, "run", ret, err);
}
/* Pins and unpins change the history; what is pinned is unpinned by the next one. */
static int pin(struct bw_catalog *c, struct bw_list **ret, struct bw_error *err) {
    (void)ret;
    return bw_catalog_pin(c, "run", newest, 1, err);
}

static int open_catalog(struct bw_catalog **ret, struct bw_error *err) {
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    o.remote_url = remote, o.local_url = local;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.io_threads = 1;
    return bw_catalog_open(&o, ret, err);
}

static struct bw_catalog *catalog(void) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_catalog *c = NULL;
    assert_ok(open_catalog(&c, &err), &err);
    return c;
}

/* Nobody takes an allocation that failed for damage. */
static void check_findings(const struct bw_list *list) {
    struct bw_finding f;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++)
        if (f.severity > 1) assert_int_equal(f.status, BW_E_NOMEM);
}

/* false: the call has ended before its n-th allocation. */
static bool try_look(struct bw_catalog *c, look *call, unsigned long n) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    const long live = bwi_alloc_live();
    (void)bwi_alloc_fail_at(n);
    const int rc = call(c, &list, &err);
    const bool reached = bwi_alloc_fail_at(0) >= n;
    if (rc != 0) assert_fails(rc, BW_E_NOMEM, &err, "memory");
    check_findings(list);
    bw_list_free(list);
    assert_int_equal(bwi_alloc_live(), live);
    return reached;
}

static void any_allocation_of_a_catalog_may_fail(void **state) {
    static look *const calls[] = {runs,   one_run, checkpoints, objects,   refs,  history,
                                  verify, repair,  prune,       roll_back, drain, pin};
    struct bw_catalog *c = catalog();
    unsigned trials = 0;
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bw_list *list = NULL;
        unsigned of_this = 0;
        for (unsigned long n = 1; try_look(c, calls[i], n); n += FULL_OR(1, 5)) of_this++;
        assert_true(of_this >= 5);
        assert_ok(calls[i](c, &list, &err), &err);
        bw_list_free(list);
        trials += of_this;
    }
    bw_catalog_close(c);
    (void)printf("  an allocation failed %u times\n", trials);
}

static void any_allocation_of_a_catalogs_open_may_fail(void **state) {
    unsigned long n = 1;
    (void)state;
    for (bool reached = true; reached; n++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bw_catalog *c = NULL;
        const long live = bwi_alloc_live();
        (void)bwi_alloc_fail_at(n);
        const int rc = open_catalog(&c, &err);
        reached = bwi_alloc_fail_at(0) >= n;
        if (rc != 0) assert_fails(rc, BW_E_NOMEM, &err, "memory");
        bw_catalog_close(c);
        assert_int_equal(bwi_alloc_live(), live);
    }
    assert_true(n > 10);
}

/* The newest entry is damaged, and what it committed is found: a look at what a repair would do. */
static bool try_to_mend(struct bw_catalog *c, unsigned long n) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_finding f;
    bool found = false;
    const long live = bwi_alloc_live();
    (void)bwi_alloc_fail_at(n);
    const int rc = bw_catalog_repair(c, "broken", 0, &list, &err);
    const bool reached = bwi_alloc_fail_at(0) >= n;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++)
        found = found || strstr(f.message, "complete: it would become live") != NULL;
    if (rc != 0) assert_fails(rc, BW_E_NOMEM, &err, "memory");
    assert_int_equal(rc == 0, found); /* no era would begin without it */
    bw_list_free(list);
    assert_int_equal(bwi_alloc_live(), live);
    return reached;
}

static void any_allocation_of_a_repair_of_the_history_may_fail(void **state) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    char path[900];
    unsigned long n = 1;
    (void)state;
    assert_ok(open_launch("broken", &ck, &err), &err);
    assert_ok(save_step(ck, 1, &err), &err);
    assert_ok(bw_checkpointer_close(ck, WAIT_MS, &err), &err);
    (void)snprintf(path, sizeof path, "%s/runs/broken/history/%06u.%020u.json", remote, 1u, 2u);
    assert_int_equal(truncate(path, 100), 0);
    struct bw_catalog *c = catalog();
    while (try_to_mend(c, n)) n += FULL_OR(1, 5);
    assert_true(n > 50);
    bw_catalog_close(c);
}

/* Of a store in memory: its racers take turns in an order of their own, so the last allocations are looked for from the
 * end. */
static bool try_to_examine(unsigned long n, unsigned long *ret_made) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_doctor_options o = BW_DOCTOR_OPTIONS_INIT;
    o.remote_url = "memory:examined";
    const long live = bwi_alloc_live();
    (void)bwi_alloc_fail_at(n);
    const int rc = bw_doctor(&o, &list, &err);
    *ret_made = bwi_alloc_fail_at(0);
    if (rc != 0) assert_fails(rc, BW_E_NOMEM, &err, "memory");
    check_findings(list);
    bw_list_free(list);
    assert_int_equal(bwi_alloc_live(), live);
    return rc == 0;
}

static void any_allocation_of_an_examination_may_fail(void **state) {
    unsigned long made = 0, ignored = 0;
    unsigned refused = 0;
    (void)state;
    assert_true(try_to_examine(ULONG_MAX, &made));
    assert_true(made > 100);
    for (unsigned long n = 1; n + 12 < made; n += made / FULL_OR(40, 10)) (void)try_to_examine(n, &ignored);
    for (unsigned long n = made - 12; n <= made; n++) refused += !try_to_examine(n, &ignored);
    assert_true(refused >= 1); /* what was found, and the list of it */
}

/* ---- readers ---- */

static bool try_to_read(unsigned long n) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_reader_options o = BW_READER_OPTIONS_INIT;
    struct bw_restore *r = NULL;
    struct bw_tensor_info tensor;
    size_t bytes = 0;
    o.run = "run", o.remote_url = remote, o.local_url = local;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.io_threads = 1;
    const long live = bwi_alloc_live();
    (void)bwi_alloc_fail_at(n);
    int rc = bw_reader_open(&o, &r, &err);
    if (rc == 0) rc = bw_restore_tensor(r, "w", &tensor, &err);
    if (rc == 0) rc = read_step(r, STEPS, &err);
    if (rc == 0) rc = bw_restore_blob(r, 0, "rng", got, sizeof got, &bytes, &err);
    bw_restore_close(r);
    const bool reached = bwi_alloc_fail_at(0) >= n;
    if (rc != 0) assert_fails(rc, BW_E_NOMEM, &err, "memory");
    assert_int_equal(bwi_alloc_live(), live);
    return reached;
}

static void any_allocation_of_a_reader_may_fail(void **state) {
    unsigned long n = 1;
    (void)state;
    while (try_to_read(n)) n += FULL_OR(1, 5);
    assert_true(n > 50);
}

/* Of a launch, whose thread goes on meanwhile. */
static void any_allocation_of_a_resumed_reader_may_fail(void **state) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    unsigned long n = 1;
    (void)state;
    assert_ok(open_as("run", "again", &ck, &err), &err);
    for (bool reached = true; reached; n++) {
        struct bw_restore *r = NULL;
        bw_error_clear(&err);
        (void)bwi_alloc_fail_at(n);
        int rc = bw_restore_open(ck, &r, &err);
        if (rc == 0) rc = read_step(r, STEPS, &err);
        reached = bwi_alloc_fail_at(0) >= n;
        bw_restore_close(r);
        if (rc != 0) assert_fails(rc, BW_E_NOMEM, &err, "memory");
    }
    assert_true(n > 20);
    bw_error_clear(&err);
    assert_ok(bw_checkpointer_close(ck, WAIT_MS, &err), &err);
}

/* ---- a launch ---- */

/* Of a run of its own: each log is as long as the others. */
static bool try_to_save(unsigned long n) {
    struct bw_error err = BW_ERROR_INIT, closed = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    char run[32];
    const long live = bwi_alloc_live();
    (void)snprintf(run, sizeof run, "run-%lu", n);
    (void)bwi_alloc_fail_at(n);
    int rc = open_launch(run, &ck, &err);
    if (rc == 0) rc = save_step(ck, 1, &err);
    const int end = ck == NULL ? 0 : bw_checkpointer_close(ck, WAIT_MS, &closed);
    const bool reached = bwi_alloc_fail_at(0) >= n;
    if (rc != 0) assert_fails(rc, BW_E_NOMEM, &err, "memory");
    if (end != 0) assert_fails(end, BW_E_NOMEM, &closed, "memory");
    assert_int_equal(bwi_alloc_live(), live);
    return reached;
}

static void any_allocation_of_a_launch_may_fail(void **state) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    unsigned trials = 0;
    (void)state;
    for (unsigned long n = 1; try_to_save(n); n += FULL_OR(2, 31)) trials++;
    assert_true(trials >= FULL_OR(60u, 4u));
    assert_ok(open_launch("run-1", &ck, &err), &err); /* nothing is in the way of the next one */
    assert_ok(save_step(ck, 2, &err), &err);
    assert_ok(bw_checkpointer_close(ck, WAIT_MS, &err), &err);
    assert_false(try_to_read(100000));
    (void)printf("  an allocation failed %u times\n", trials);
}

static int setup(void **state) {
    (void)state;
    (void)snprintf(root, sizeof root, "%s", test_mkdir());
    (void)snprintf(remote, sizeof remote, "%s/remote", root);
    (void)snprintf(local, sizeof local, "%s/local", root);
    save_all();
    struct bw_catalog *c = catalog();
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_checkpoint_row row;
    assert_ok(bw_catalog_checkpoints(c, "run", &list, &err), &err);
    for (size_t i = 0; bw_list_checkpoint(list, i, &row); i++) (void)snprintf(newest, sizeof newest, "%s", row.id);
    bw_list_free(list);
    bw_catalog_close(c);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    test_rmdir(root);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_allocation_of_a_catalog_may_fail),
        cmocka_unit_test(any_allocation_of_a_catalogs_open_may_fail),
        cmocka_unit_test(any_allocation_of_a_repair_of_the_history_may_fail),
        cmocka_unit_test(any_allocation_of_an_examination_may_fail),
        cmocka_unit_test(any_allocation_of_a_reader_may_fail),
        cmocka_unit_test(any_allocation_of_a_resumed_reader_may_fail),
        cmocka_unit_test(any_allocation_of_a_launch_may_fail),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
