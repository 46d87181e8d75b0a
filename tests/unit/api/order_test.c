/* SPDX-License-Identifier: Apache-2.0 */
/* Findings come in the same order every time, although the groups of a checkpoint are verified at once. */
#include "test.h"
#include <breakwater/breakwater.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RANKS   6u
#define WAIT_MS UINT64_C(60000)

static char root[600], remote[700], local[700];

static void *run_rank(void *arg) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_options o = BW_OPTIONS_INIT;
    struct bw_checkpointer *ck = NULL;
    struct bw_save *save = NULL;
    o.run = "run", o.job = "job", o.launch = "launch", o.world = RANKS;
    o.rank = *(const uint32_t *)arg;
    o.remote_url = remote, o.local_url = local;
    o.local_io_depth = 16;
    o.memory_budget_bytes = UINT64_C(64) << 20;
    o.flags = BW_ALLOW_SAME_DEVICE | BW_ALLOW_NODE_LOCAL;
    int rc = bw_checkpointer_open(&o, &ck, &err);
    if (rc == 0) rc = bw_save_begin(ck, 1, &save, &err);
    if (rc == 0) rc = bw_save_blob(save, "bytes", "abc", 3, &err);
    if (rc == 0) rc = bw_save_start(save, &err);
    if (rc == 0) rc = bw_save_wait(save, BW_COMMITTED, WAIT_MS, &err);
    if (save != NULL) bw_save_release(save);
    if (ck != NULL && bw_checkpointer_close(ck, WAIT_MS, &err) < 0) rc = err.status;
    if (rc < 0) (void)fprintf(stderr, "rank %u: %s\n", o.rank, err.message);
    return rc == 0 ? arg : NULL;
}

static void save_all(void) {
    pthread_t thread[RANKS];
    uint32_t rank[RANKS];
    for (uint32_t i = 0; i < RANKS; i++) {
        rank[i] = i;
        assert_int_equal(pthread_create(&thread[i], NULL, run_rank, &rank[i]), 0);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        void *ended = NULL;
        assert_int_equal(pthread_join(thread[i], &ended), 0);
        assert_ptr_equal(ended, &rank[i]);
    }
}

static int damage(const char *path, const struct stat *st, int type, struct FTW *at) {
    if (type != FTW_F || strcmp(path + at->base, "content") != 0) return 0;
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    const int rc = pwrite(fd, "!", 1, st->st_size - 1) == 1 ? 0 : -1;
    (void)close(fd);
    return rc;
}

static void findings_are_sorted_by_tier_and_object(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    struct bw_catalog *catalog = NULL;
    struct bw_list *list = NULL;
    struct bw_finding f, last = {0};
    unsigned damaged = 0;
    (void)snprintf(root, sizeof root, "%s", test_mkdir());
    (void)snprintf(remote, sizeof remote, "%s/remote", root);
    (void)snprintf(local, sizeof local, "%s/local", root);
    save_all();
    assert_int_equal(nftw(root, damage, 16, FTW_PHYS), 0);
    o.remote_url = remote, o.local_url = local;
    assert_ok(bw_catalog_open(&o, &catalog, &err), &err);
    assert_ok(bw_catalog_verify(catalog, "run", NULL, 0, &list, &err), &err);
    for (size_t i = 0; bw_list_finding(list, i, &f); i++) {
        if (f.severity != 2) continue;
        if (damaged > 0) assert_true(strcmp(last.tier, f.tier) <= 0);
        if (damaged > 0 && strcmp(last.tier, f.tier) == 0) assert_true(strcmp(last.object, f.object) <= 0);
        last = f;
        damaged++;
    }
    assert_true(damaged >= 2 * RANKS); /* every group on both tiers */
    bw_list_free(list);
    bw_catalog_close(catalog);
    test_rmdir(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(findings_are_sorted_by_tier_and_object)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
