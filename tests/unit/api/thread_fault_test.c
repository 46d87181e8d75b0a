/* SPDX-License-Identifier: Apache-2.0 */
/* A machine that gives no more locks or threads: each in turn fails the open that needs it, which says so and leaves
 * nothing behind. */
#include "base/vec.h"
#include "store/store_memory.h"
#include "test.h"
#include <breakwater/breakwater.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define WAIT_MS UINT64_C(60000)

static char root[600], remote[700], local[700];

/* --- calls of the C library, in front of its own ---- */

static atomic_ulong calls, failing; /* the number of the one that fails; 0: none */

static bool fails(void) {
    return atomic_load(&failing) != 0 && atomic_fetch_add(&calls, 1) + 1 == atomic_load(&failing);
}

/* A pointer to a function is none to an object. */
#define REAL(name)                                                                                                     \
    static __typeof__(&(name)) real;                                                                                   \
    if (real == NULL) {                                                                                                \
        void *at = dlsym(RTLD_NEXT, #name);                                                                            \
        memcpy(&real, &at, sizeof real);                                                                               \
    }

int pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a) {
    REAL(pthread_mutex_init)
    return fails() ? ENOMEM : real(m, a);
}
/* Each condition variable begins with one. */
int pthread_condattr_init(pthread_condattr_t *a) {
    REAL(pthread_condattr_init)
    return fails() ? ENOMEM : real(a);
}
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg) {
    REAL(pthread_create)
    return fails() ? EAGAIN : real(t, a, run, arg);
}

/* --- what is opened ---- */

typedef int opening(struct bw_error *err);

static int launch(struct bw_error *err) {
    static unsigned number;
    struct bw_options o = BW_OPTIONS_INIT;
    struct bw_checkpointer *ck = NULL;
    char name[32];
    (void)snprintf(name, sizeof name, "launch-%u", number++);
    o.run = "run", o.job = "job", o.launch = name, o.world = 1;
    o.remote_url = remote, o.local_url = local;
    o.local_io_depth = 16;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.io_threads = 2;
    o.flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL;
    int rc = bw_checkpointer_open(&o, &ck, err);
    if (rc == 0) rc = bw_checkpointer_close(ck, WAIT_MS, err);
    return rc;
}

static int catalog(struct bw_error *err) {
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    struct bw_catalog *c = NULL;
    struct bw_list *list = NULL;
    o.remote_url = remote, o.local_url = local;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.io_threads = 2;
    int rc = bw_catalog_open(&o, &c, err);
    if (rc == 0) rc = bw_catalog_runs(c, &list, err);
    bw_list_free(list);
    bw_catalog_close(c);
    return rc;
}

static int reader(struct bw_error *err) {
    struct bw_reader_options o = BW_READER_OPTIONS_INIT;
    struct bw_restore *r = NULL;
    o.run = "saved", o.remote_url = remote, o.local_url = local;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.io_threads = 2;
    const int rc = bw_reader_open(&o, &r, err);
    bw_restore_close(r);
    return rc;
}

static void save_once(void) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_options o = BW_OPTIONS_INIT;
    struct bw_checkpointer *ck = NULL;
    struct bw_save *save = NULL;
    o.run = "saved", o.job = "job", o.launch = "one", o.world = 1;
    o.remote_url = remote, o.local_url = local;
    o.local_io_depth = 16;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL;
    assert_ok(bw_checkpointer_open(&o, &ck, &err), &err);
    assert_ok(bw_save_begin(ck, 1, &save, &err), &err);
    assert_ok(bw_save_tensor(save, &BW_TENSOR_OF("w", BW_U8, root, 100), &err), &err);
    assert_ok(bw_save_start(save, &err), &err);
    assert_ok(bw_save_wait(save, BW_COMMITTED, WAIT_MS, &err), &err);
    bw_save_release(save);
    assert_ok(bw_checkpointer_close(ck, WAIT_MS, &err), &err);
}

static void any_lock_and_thread_may_be_refused(void **state) {
    static opening *const all[] = {launch, catalog, reader};
    unsigned told = 0;
    (void)state;
    (void)snprintf(root, sizeof root, "%s", test_mkdir());
    (void)snprintf(remote, sizeof remote, "%s/remote", root);
    (void)snprintf(local, sizeof local, "%s/local", root);
    save_once();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool reached = true;
        for (unsigned long n = 1; reached; n++) {
            struct bw_error err = BW_ERROR_INIT;
            const long live = bwi_alloc_live();
            atomic_store(&calls, 0);
            atomic_store(&failing, n);
            const int rc = all[i](&err);
            reached = atomic_load(&calls) >= n;
            atomic_store(&failing, 0);
            if (rc != 0 && strstr(err.message, "lock") == NULL && strstr(err.message, "thread") == NULL)
                fail_msg("opening %zu, call %lu: %s", i, n, err.message);
            assert_true(rc == 0 || reached); /* what only makes it faster may be missing */
            assert_int_equal(bwi_alloc_live(), live);
            told += rc != 0;
        }
    }
    (void)printf("  an open was refused %u times\n", told);
    assert_true(told > 30);
    test_rmdir(root);
}

static void a_store_in_memory_without_its_lock_is_not_made(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    struct bwi_bucket *bucket = NULL;
    atomic_store(&calls, 0);
    atomic_store(&failing, 1);
    const int rc = bwi_bucket_new(bwi_env_system(), &bucket);
    atomic_store(&failing, 0);
    assert_int_equal(rc, BW_E_NOMEM);
    assert_null(bucket);
    assert_int_equal(bwi_alloc_live(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_lock_and_thread_may_be_refused),
        cmocka_unit_test(a_store_in_memory_without_its_lock_is_not_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
