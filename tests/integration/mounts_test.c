/* SPDX-License-Identifier: Apache-2.0 */
/* Tiers on other file systems than a plain disk, and readers who may not write. Each case has mounts of its own. */
#include "confine.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define STATE (2 * MIB + 7)

/* Runs a case in a process whose mounts are its own. */
static void with_mounts(int (*main)(void *arg, unsigned i)) {
    struct place p;
    if (!may_mount()) skip();
    place_make(&p);
    must_eq(reap(spawn(main, &p, 0)), 0);
    place_drop(&p);
}

static void must_be_on(const char *path, uint64_t magic) {
    struct statfs fs;
    must_eq(statfs(path, &fs), 0);
    must_eq((uint64_t)fs.f_type & UINT32_MAX, magic);
}

/* The tiers are put below `path`. */
static struct place place_at(const char *path) {
    struct place p;
    (void)snprintf(p.root, sizeof p.root, "%.590s", path);
    (void)snprintf(p.remote, sizeof p.remote, "%.590s/remote", path);
    (void)snprintf(p.local, sizeof p.local, "%.590s/local", path);
    return p;
}

/* Only disks can be written past the page cache; an overlay says what the file system below it can do. */
static const char *path_of(const struct place *p) {
    struct statfs below;
    must(statfs(p->root, &below) == 0);
    const bool threads = test_io_backend() == BW_IO_THREADS;
    if (below.f_type == TMPFS_MAGIC) return threads ? "threads, buffered" : "io_uring, buffered";
    return threads ? "threads, direct" : "io_uring, direct";
}

static void save_and_come_back(const struct place *p) {
    struct bw_save_stats stats;
    void *m = malloc(STATE);
    struct bw_checkpointer *ck = open_alone(p, "one");
    struct bw_save *v = begin_filled(ck, 1, m, STATE);
    wait_for(v, BW_COMMITTED);
    bw_save_stats(v, &stats);
    must(strcmp(stats.write_path, path_of(p)) == 0);
    bw_save_release(v);
    close_ok(ck);
    ck = open_alone(p, "two");
    must_eq(resumed_of(ck).step, 1);
    save_filled(ck, 2, STATE);
    close_ok(ck);
    check_bytes(p, 1, STATE, 1);
    check_bytes(p, 2, STATE, 2);
    must_be_sound(p);
    free(m);
}

static int on_tmpfs(void *arg, unsigned i) {
    const struct place *p = arg;
    (void)i;
    own_mounts();
    mount_tmpfs(path_in(p->root, "mem"), 64 * MIB);
    const struct place q = place_at(path_in(p->root, "mem"));
    must_be_on(q.root, TMPFS_MAGIC);
    save_and_come_back(&q);
    return 0;
}

static void on_tmpfs_which_has_no_direct_io_all_works(void **state) {
    (void)state;
    with_mounts(on_tmpfs);
}

static int on_overlay(void *arg, unsigned i) {
    const struct place *p = arg;
    (void)i;
    own_mounts();
    mount_tmpfs(path_in(p->root, "mem"), 64 * MIB);
    mount_overlay(path_in(p->root, "over"), path_in(p->root, "mem/parts"));
    const struct place q = place_at(path_in(p->root, "over"));
    must_be_on(q.root, OVERLAYFS_SUPER_MAGIC);
    save_and_come_back(&q);
    return 0;
}

static void on_an_overlay_all_works(void **state) {
    (void)state;
    with_mounts(on_overlay);
}

static int with_small_shm(void *arg, unsigned i) {
    const struct place *p = arg;
    (void)i;
    own_mounts();
    must_eq(mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k"), 0);
    save_and_come_back(p);
    return 0;
}

static void a_small_dev_shm_does_not_matter(void **state) {
    (void)state;
    with_mounts(with_small_shm);
}

/* --- a full authority ---- */

/* Takes all but so many bytes of the file system. */
static void leave_free(int ballast, uint64_t bytes) {
    struct statvfs fs;
    must_eq(fstatvfs(ballast, &fs), 0);
    const uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (free_bytes > bytes) must_eq(posix_fallocate(ballast, 0, (off_t)(free_bytes - bytes)), 0);
}

static void keep_last(const struct place *p, uint32_t count, uint64_t grace_ms) {
    struct bw_prune_options o = {.struct_size = sizeof o, .retention.keep_last = count, .grace_ms = grace_ms};
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_catalog *c = catalog_of(p);
    must_ok(bw_catalog_prune(c, RUN, &o, &list, &err), &err);
    bw_list_free(list);
    bw_catalog_close(c);
}

/* One save that finds so much room, and all it wants a moment later. True: the first was not enough. */
static bool save_with_room(struct bw_checkpointer *ck, uint64_t step, int ballast, uint64_t room, void *m) {
    struct bw_error err = BW_ERROR_INIT;
    leave_free(ballast, room);
    struct bw_save *v = begin_filled(ck, step, m, STATE);
    const int rc = bw_save_wait(v, BW_COMMITTED, FULL_OR(700, 1500), &err);
    if (rc < 0) must_be(rc, BW_E_TIMEOUT, &err, "no space left on device", "a save", __FILE__, __LINE__);
    must_eq(ftruncate(ballast, 0), 0);
    finish(v);
    return rc < 0;
}

/* It becomes full at another place each time. */
static int on_full_tmpfs(void *arg, unsigned i) {
    const struct place *p = arg;
    struct place q = *p;
    unsigned refused = 0;
    uint64_t step = 0;
    void *m = malloc(STATE);
    (void)i;
    own_mounts();
    mount_tmpfs(path_in(p->root, "mem"), 24 * MIB);
    (void)snprintf(q.remote, sizeof q.remote, "%.600s/mem/remote", p->root);
    const int ballast = open(path_in(p->root, "mem/ballast"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(ballast >= 0);
    struct bw_checkpointer *ck = open_alone(&q, "one");
    for (uint64_t room = 0; room < 3 * MIB; room += room < 28000 ? 4096 : 700000) {
        refused += save_with_room(ck, ++step, ballast, room, m);
        check_bytes(&q, UINT64_MAX, STATE, step);
        if (step % 3 == 0) keep_last(&q, 1, 0);
    }
    must(refused > 3 && refused < step);
    close_ok(ck);
    must_be_sound(&q);
    free(m);
    return 0;
}

static void on_a_full_authority_a_save_says_so_and_goes_on_when_there_is_room(void **state) {
    (void)state;
    with_mounts(on_full_tmpfs);
}

/* What it retires is an entry more, and that is what does not fit. */
static int prune_on_full_tmpfs(void *arg, unsigned i) {
    struct place q = *(const struct place *)arg;
    struct statvfs fs;
    (void)i;
    own_mounts();
    mount_tmpfs(path_in(q.root, "mem"), 24 * MIB);
    (void)snprintf(q.remote, sizeof q.remote, "%.600s/mem/remote", q.root);
    const int ballast = open(path_in(q.root, "mem/ballast"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(ballast >= 0);
    struct bw_checkpointer *ck = open_alone(&q, "one");
    for (uint64_t step = 1; step <= 6; step++) save_filled(ck, step, STATE);
    close_ok(ck);
    keep_last(&q, 3, UINT64_MAX); /* steps 1 to 3 are dead, and stay for the grace */
    leave_free(ballast, 0);
    keep_last(&q, 1, 0);
    must_eq(fstatvfs(ballast, &fs), 0);
    must((uint64_t)fs.f_bavail * fs.f_frsize >= 5 * STATE);
    check_bytes(&q, UINT64_MAX, STATE, 6);
    must_be_sound(&q);
    return 0;
}

static void a_full_authority_is_pruned_all_the_same(void **state) {
    (void)state;
    with_mounts(prune_on_full_tmpfs);
}

/* --- a local tier that shows space and gives none ---- */

/* It runs out of files long before it runs out of bytes. */
static int on_a_disk_of_few_files(void *arg, unsigned i) {
    struct place q = *(const struct place *)arg;
    struct bw_error err = BW_ERROR_INIT;
    unsigned refused = 0;
    uint8_t m[5000];
    (void)i;
    own_mounts();
    mount_tmpfs(path_in(q.root, "mem"), 24 * MIB);
    must_eq(mount("tmpfs", path_in(q.root, "mem"), "tmpfs", MS_REMOUNT, "nr_inodes=40"), 0);
    (void)snprintf(q.local, sizeof q.local, "%.600s/mem/local", q.root);
    struct bw_checkpointer *ck = open_alone(&q, "one");
    for (uint64_t step = 1; step <= 12; step++) {
        struct bw_save *v = begin_filled(ck, step, m, sizeof m);
        const int rc = bw_save_wait(v, BW_COMMITTED, WAIT_MS, &err);
        if (rc < 0) must_be(rc, BW_E_NOSPACE, &err, "no space left on device", "a save", __FILE__, __LINE__);
        refused += rc < 0;
        bw_save_release(v);
        if (rc == 0) check_bytes(&q, UINT64_MAX, sizeof m, step);
    }
    must_eq(refused, 1); /* from then on it knows */
    close_ok(ck);
    must_be_sound(&q);
    return 0;
}

static void a_local_tier_that_runs_out_of_files_fails_one_save_and_then_evicts(void **state) {
    (void)state;
    with_mounts(on_a_disk_of_few_files);
}

/* --- another user on a read-only mount ---- */

static void verbs_that_change_are_refused(const char *remote) {
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    struct bw_prune_options prune = {.struct_size = sizeof prune};
    struct bw_error err = BW_ERROR_INIT;
    struct bw_catalog *c = NULL;
    struct bw_list *list = NULL;
    o.remote_url = remote;
    o.memory_budget_bytes = 64 * MIB;
    must_ok(bw_catalog_open(&o, &c, &err), &err);
    prune.retention.keep_last = 1;
    must_fail(bw_catalog_prune(c, RUN, &prune, &list, &err), BW_E_ACCESS, &err, "read-only file system");
    bw_catalog_close(c);
}

static int reader_of_a_read_only_mount(void *arg, unsigned i) {
    const struct place *p = arg;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    (void)i;
    struct place q = place_at(path_in(p->root, "ro"));
    (void)snprintf(q.remote, sizeof q.remote, "%s", q.root);
    must_eq(chmod(p->root, 0755), 0);
    give_to_stranger(p->remote);
    own_mounts();
    mount_read_only(q.remote, p->remote);
    become_stranger();
    check_bytes(&q, UINT64_MAX, STATE, 3);
    check_bytes(&q, 1, STATE, 1);
    must_be_sound(&q);
    must_eq(history_of(&q).commits, 3);
    verbs_that_change_are_refused(q.remote);
    struct bw_options o = options_of(&q, "other", 0, 1);
    o.local_url = NULL;
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_ACCESS, &err, "read-only file system");
    return 0;
}

static void another_user_reads_and_verifies_from_a_read_only_mount(void **state) {
    (void)state;
    struct place p;
    if (!may_mount()) skip();
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    for (uint64_t step = 1; step <= 3; step++) save_filled(ck, step, STATE);
    close_ok(ck);
    must_eq(reap(spawn(reader_of_a_read_only_mount, &p, 0)), 0);
    place_drop(&p);
}

/* The local tier belongs to another user: a reader goes on to the authority, a launch says what it may not open. */
static int stranger_with_a_local_tier(void *arg, unsigned i) {
    const struct place *p = arg;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    (void)i;
    must_eq(chmod(p->root, 0777), 0);
    give_to_stranger(p->remote);
    become_stranger();
    struct bw_options o = options_of(p, "other", 0, 1);
    must_fail(bw_checkpointer_open(&o, &ck, &err), BW_E_ACCESS, &err, "local tier");
    o.local_url = path_in(p->root, "own");
    ck = open_with(&o);
    must_eq(resumed_of(ck).step, 3);
    save_filled(ck, 4, STATE);
    close_ok(ck);
    return 0;
}

static void a_local_tier_of_another_user_is_refused_by_name(void **state) {
    (void)state;
    struct place p;
    if (geteuid() != 0) skip();
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    for (uint64_t step = 1; step <= 3; step++) save_filled(ck, step, STATE);
    close_ok(ck);
    must_eq(reap(spawn(stranger_with_a_local_tier, &p, 0)), 0);
    check_bytes(&p, 4, STATE, 4);
    place_drop(&p);
}

/* The file system of the authority turns read-only in the middle, as after an error of the disk. */
static int with_a_remount(void *arg, unsigned i) {
    const struct place *p = arg;
    struct bw_error err = BW_ERROR_INIT;
    void *m = malloc(STATE);
    (void)i;
    own_mounts();
    const char *mem = path_in(p->root, "mem");
    mount_tmpfs(mem, 64 * MIB);
    struct place q = *p;
    (void)snprintf(q.remote, sizeof q.remote, "%.600s/mem/remote", p->root);
    struct bw_checkpointer *ck = open_alone(&q, "one");
    save_filled(ck, 1, STATE);
    must_eq(mount(NULL, mem, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    struct bw_save *v = begin_filled(ck, 2, m, STATE);
    wait_for(v, BW_LOCAL);
    must_fail(bw_save_wait(v, BW_COMMITTED, 1500, &err), BW_E_TIMEOUT, &err, "read-only file system");
    check_bytes(&q, UINT64_MAX, STATE, 1);
    must_eq(mount(NULL, mem, NULL, MS_REMOUNT, NULL), 0);
    finish(v);
    save_filled(ck, 3, STATE);
    close_ok(ck);
    check_bytes(&q, 2, STATE, 2);
    must_be_sound(&q);
    free(m);
    return 0;
}

static void an_authority_that_turns_read_only_is_told_and_the_save_goes_on_afterwards(void **state) {
    (void)state;
    with_mounts(with_a_remount);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_tmpfs_which_has_no_direct_io_all_works),
        cmocka_unit_test(on_an_overlay_all_works),
        cmocka_unit_test(a_small_dev_shm_does_not_matter),
        cmocka_unit_test(on_a_full_authority_a_save_says_so_and_goes_on_when_there_is_room),
        cmocka_unit_test(a_full_authority_is_pruned_all_the_same),
        cmocka_unit_test(a_local_tier_that_runs_out_of_files_fails_one_save_and_then_evicts),
        cmocka_unit_test(another_user_reads_and_verifies_from_a_read_only_mount),
        cmocka_unit_test(a_local_tier_of_another_user_is_refused_by_name),
        cmocka_unit_test(an_authority_that_turns_read_only_is_told_and_the_save_goes_on_afterwards),
    };
    return run_cases(tests);
}
