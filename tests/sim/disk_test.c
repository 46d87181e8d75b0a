/* SPDX-License-Identifier: Apache-2.0 */
/* That simulated disks lose all that a crash may take, nothing that was synced, and look like the kernel's to whoever
 * lives. A case about crashes repeats them by many seeds, and wants each outcome that may be, and no other. */
#include "test.h"

#include "disk.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SEEDS 400u
#define BLOCK 512u

struct stage {
    struct bwi_env_virtual env;
    struct disk *d;
    struct disk_process *p;
    struct bwi_os *os;
    int root;
};

static void open_stage(struct stage *s, const struct disk_model *m) {
    bwi_env_virtual_init(&s->env, 1);
    s->d = disk_new(&s->env.env, m);
    s->p = disk_process_new(1);
    disk_attach(s->p, "disk", s->d);
    s->os = disk_os(s->p);
    s->root = s->os->open_root(s->os, "/disk", true);
    assert_true(s->root >= 0);
}

static void close_stage(struct stage *s) {
    disk_process_free(s->p);
    disk_free(s->d);
}

/* The power fails, and another process looks at what is left. */
static void crash(struct stage *s, uint64_t seed) {
    disk_crash(s->d, seed);
    disk_process_free(s->p);
    s->p = disk_process_new(1);
    disk_attach(s->p, "disk", s->d);
    s->os = disk_os(s->p);
    s->root = s->os->open_root(s->os, "/disk", false);
    assert_true(s->root >= 0);
    assert_true(disk_is_safe(s->d));
}

static int make(struct stage *s, const char *path, const void *bytes, size_t n) {
    const int fd = s->os->open_new(s->os, s->root, path);
    assert_true(fd >= 0);
    if (n > 0) assert_int_equal(s->os->pwrite(s->os, fd, bytes, n, 0), n);
    return fd;
}

static void make_synced(struct stage *s, const char *path, const void *bytes, size_t n) {
    const int fd = make(s, path, bytes, n);
    assert_int_equal(s->os->fsync(s->os, fd), 0);
    assert_int_equal(s->os->close(s->os, fd), 0);
}

static int sync_dir(struct stage *s, const char *path) {
    const int fd = s->os->open_dir(s->os, s->root, path);
    const int rc = s->os->fsync(s->os, fd);
    assert_int_equal(s->os->close(s->os, fd), 0);
    return rc;
}

static bool is_there(struct stage *s, const char *path) {
    struct bwi_os_stat st;
    return s->os->stat_at(s->os, s->root, path, &st) == 0;
}

/* Its bytes; negative: it is not there. */
static int64_t content(struct stage *s, const char *path, void *buf, size_t bytes) {
    const int fd = s->os->open_read(s->os, s->root, path);
    if (fd < 0) return fd;
    const int64_t n = s->os->pread(s->os, fd, buf, bytes, 0);
    assert_int_equal(s->os->close(s->os, fd), 0);
    return n;
}

/* What happens before the crash, and what is left as a number below 32. */
typedef void (*deed)(struct stage *s);
typedef unsigned (*outcome)(struct stage *s);

static uint32_t outcomes_on(const struct disk_model *m, deed before, outcome after) {
    uint32_t seen = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct stage s;
        open_stage(&s, m);
        before(&s);
        crash(&s, test_seed(7) * 1000 + seed);
        seen |= UINT32_C(1) << after(&s);
        close_stage(&s);
    }
    return seen;
}

static uint32_t outcomes(deed before, outcome after) {
    return outcomes_on(NULL, before, after);
}

static unsigned names_ab(struct stage *s) {
    return (unsigned)is_there(s, "a") | (unsigned)is_there(s, "b") << 1;
}

#define SEEN(n) (UINT32_C(1) << (n))

/* --- names ---- */

static void make_a_and_sync_all(struct stage *s) {
    make_synced(s, "a", "old", 3);
    assert_int_equal(sync_dir(s, "."), 0);
}

static void what_was_synced_with_its_name_is_there_after_every_crash(void **state) {
    (void)state;
    assert_int_equal(outcomes(make_a_and_sync_all, names_ab), SEEN(1));
}

static void make_a_and_b(struct stage *s) {
    make_synced(s, "a", "1", 1);
    make_synced(s, "b", "2", 1);
}

static void the_sync_of_a_file_says_nothing_of_its_name_and_the_later_one_may_come_alone(void **state) {
    (void)state;
    assert_int_equal(outcomes(make_a_and_b, names_ab), SEEN(0) | SEEN(1) | SEEN(2) | SEEN(3));
}

static void link_and_unlink(struct stage *s) {
    make_a_and_sync_all(s);
    assert_int_equal(s->os->link(s->os, s->root, "a", "b"), 0);
    assert_int_equal(s->os->unlink(s->os, s->root, "a"), 0);
}

static void a_link_and_an_unlink_are_each_there_or_not(void **state) {
    (void)state;
    assert_int_equal(outcomes(link_and_unlink, names_ab), SEEN(0) | SEEN(1) | SEEN(2) | SEEN(3));
}

static void rename_a(struct stage *s) {
    make_a_and_sync_all(s);
    assert_int_equal(s->os->rename_new(s->os, s->root, "a", "b"), 0);
}

static void a_rename_may_leave_both_names_or_neither(void **state) {
    (void)state;
    assert_int_equal(outcomes(rename_a, names_ab), SEEN(0) | SEEN(1) | SEEN(2) | SEEN(3));
}

static void rename_over_a(struct stage *s) {
    make_a_and_sync_all(s);
    make_synced(s, "b", "new", 3);
    assert_int_equal(s->os->rename_over(s->os, s->root, "b", "a"), 0);
}

static unsigned old_or_new_a(struct stage *s) {
    char buf[8] = "";
    const int64_t n = content(s, "a", buf, sizeof buf);
    if (n != 3) return 9;
    return memcmp(buf, "old", 3) == 0 ? 0 : memcmp(buf, "new", 3) == 0 ? 1 : 9;
}

static void a_rename_over_a_name_leaves_the_old_or_the_new_file(void **state) {
    (void)state;
    assert_int_equal(outcomes(rename_over_a, old_or_new_a), SEEN(0) | SEEN(1));
}

static void unlink_and_make_anew(struct stage *s) {
    make_a_and_sync_all(s);
    assert_int_equal(s->os->unlink(s->os, s->root, "a"), 0);
    make_synced(s, "a", "new", 3);
}

static unsigned old_new_or_no_a(struct stage *s) {
    return is_there(s, "a") ? old_or_new_a(s) : 2;
}

static void a_name_that_was_removed_and_made_anew_may_be_old_new_or_gone(void **state) {
    (void)state;
    assert_int_equal(outcomes(unlink_and_make_anew, old_new_or_no_a), SEEN(0) | SEEN(1) | SEEN(2));
}

static void make_d_with_f(struct stage *s) {
    assert_int_equal(s->os->mkdir(s->os, s->root, "d"), 0);
    make_synced(s, "d/f", "1", 1);
}

static void make_d_with_f_and_sync_it(struct stage *s) {
    make_d_with_f(s);
    assert_int_equal(sync_dir(s, "d"), 0);
}

static unsigned names_d_f(struct stage *s) {
    return (unsigned)is_there(s, "d") | (unsigned)is_there(s, "d/f") << 1;
}

static void a_directory_and_what_is_in_it_are_lost_apart(void **state) {
    (void)state;
    assert_int_equal(outcomes(make_d_with_f, names_d_f), SEEN(0) | SEEN(1) | SEEN(3));
    assert_int_equal(outcomes(make_d_with_f_and_sync_it, names_d_f), SEEN(0) | SEEN(3));
}

static void remove_d_with_f(struct stage *s) {
    make_d_with_f_and_sync_it(s);
    assert_int_equal(sync_dir(s, "."), 0);
    assert_int_equal(s->os->unlink(s->os, s->root, "d/f"), 0);
    assert_int_equal(s->os->rmdir(s->os, s->root, "d"), 0);
}

static void a_directory_that_was_removed_may_come_back_with_what_was_in_it(void **state) {
    (void)state;
    assert_int_equal(outcomes(remove_d_with_f, names_d_f), SEEN(0) | SEEN(1) | SEEN(3));
}

/* --- bytes ---- */

static void overwrite_a_block(struct stage *s) {
    uint8_t old[BLOCK], new[BLOCK];
    memset(old, 1, sizeof old);
    memset(new, 2, sizeof new);
    make_synced(s, "a", old, sizeof old);
    assert_int_equal(sync_dir(s, "."), 0);
    const int fd = s->os->open_lock(s->os, s->root, "a");
    assert_int_equal(s->os->pwrite(s->os, fd, new, sizeof new, 0), BLOCK);
}

static unsigned kind_of_block(struct stage *s) {
    uint8_t b[BLOCK + 1];
    if (content(s, "a", b, sizeof b) != BLOCK) return 9;
    const bool even = memcmp(b, b + 1, BLOCK - 1) == 0;
    if (even && b[0] <= 2) return b[0] == 1 ? 0 : b[0] == 2 ? 1 : 2;
    return b[0] == 2 && b[BLOCK - 1] == 1 ? 3 : even ? 4 : 9;
}

static void a_block_that_was_not_synced_is_old_new_zero_half_or_anything(void **state) {
    (void)state;
    assert_int_equal(outcomes(overwrite_a_block, kind_of_block), SEEN(0) | SEEN(1) | SEEN(2) | SEEN(3) | SEEN(4));
}

static void append_two_blocks(struct stage *s) {
    uint8_t bytes[3 * BLOCK];
    memset(bytes, 3, sizeof bytes);
    make_synced(s, "a", bytes, BLOCK);
    assert_int_equal(sync_dir(s, "."), 0);
    const int fd = s->os->open_lock(s->os, s->root, "a");
    assert_int_equal(s->os->pwrite(s->os, fd, bytes + BLOCK, 2 * BLOCK, BLOCK), 2 * BLOCK);
}

static unsigned blocks_of_a(struct stage *s) {
    uint8_t b[4 * BLOCK];
    const int64_t n = content(s, "a", b, sizeof b);
    if (n < (int64_t)BLOCK || n % BLOCK != 0) return 9;
    for (unsigned i = 0; i < BLOCK; i++)
        if (b[i] != 3) return 8; /* what was synced is untouched */
    return (unsigned)(n / BLOCK);
}

static void a_size_that_was_not_synced_is_old_new_or_in_between(void **state) {
    (void)state;
    assert_int_equal(outcomes(append_two_blocks, blocks_of_a), SEEN(1) | SEEN(2) | SEEN(3));
}

/* --- an fsync that fails ---- */

static void lose_the_bytes_of_a(struct stage *s) {
    const int fd = make(s, "a", "new", 3);
    disk_fail_fsync(s->d, 1);
    assert_int_equal(s->os->fsync(s->os, fd), -EIO);
    assert_int_equal(s->os->fsync(s->os, fd), 0); /* it lies */
    assert_int_equal(sync_dir(s, "."), 0);
}

static unsigned whether_a_is_whole(struct stage *s) {
    char buf[8] = "";
    return content(s, "a", buf, sizeof buf) == 3 && memcmp(buf, "new", 3) == 0;
}

static void bytes_whose_sync_failed_may_be_lost_although_a_later_one_succeeds(void **state) {
    (void)state;
    assert_int_equal(outcomes(lose_the_bytes_of_a, whether_a_is_whole), SEEN(0) | SEEN(1));
}

static void lose_the_name_of_a(struct stage *s) {
    make_synced(s, "a", "new", 3);
    disk_fail_fsync(s->d, 1);
    assert_int_equal(sync_dir(s, "."), -EIO);
    assert_int_equal(sync_dir(s, "."), 0); /* it lies */
}

static void give_the_name_of_a_anew(struct stage *s) {
    lose_the_name_of_a(s);
    make_synced(s, "b", "new", 3);
    assert_int_equal(s->os->rename_over(s->os, s->root, "b", "a"), 0);
    assert_int_equal(sync_dir(s, "."), 0);
}

static void a_name_whose_sync_failed_is_safe_only_when_it_is_given_anew(void **state) {
    (void)state;
    assert_int_equal(outcomes(lose_the_name_of_a, names_ab), SEEN(0) | SEEN(1));
    assert_int_equal(outcomes(give_the_name_of_a_anew, names_ab), SEEN(1));
}

/* --- kinder disks ---- */

static const struct disk_model friendly = {.friendly = true};

static void a_friendly_disk_loses_names_in_the_order_in_which_they_came(void **state) {
    (void)state;
    assert_int_equal(outcomes_on(&friendly, rename_a, names_ab), SEEN(1) | SEEN(2) | SEEN(3));
    assert_int_equal(outcomes_on(&friendly, make_a_and_sync_all, names_ab), SEEN(1));
}

static void a_friendly_disk_has_a_block_as_it_was_or_as_it_was_to_be(void **state) {
    (void)state;
    assert_int_equal(outcomes_on(&friendly, overwrite_a_block, kind_of_block), SEEN(0) | SEEN(1));
}

/* --- processes and nodes ---- */

static struct disk_process *another(struct stage *s, unsigned client, int *ret_root) {
    struct disk_process *p = disk_process_new(client);
    disk_attach(p, "disk", s->d);
    *ret_root = disk_os(p)->open_root(disk_os(p), "/disk", false);
    assert_true(*ret_root >= 0);
    return p;
}

static void a_process_that_is_killed_loses_its_locks_and_nothing_that_it_wrote(void **state) {
    struct stage s;
    int root = -1;
    (void)state;
    open_stage(&s, NULL);
    struct disk_process *other = another(&s, 1, &root);
    struct bwi_os *os = disk_os(other);
    const int fd = make(&s, "a", "new", 3), same = os->open_lock(os, root, "a");
    assert_int_equal(s.os->lock(s.os, fd), 0);
    assert_int_equal(os->lock(os, same), -EWOULDBLOCK);
    disk_process_kill(s.p);
    assert_int_equal(os->lock(os, same), 0);
    assert_int_equal(s.os->unlink(s.os, s.root, "a"), -EIO);
    assert_int_equal(s.os->open_read(s.os, s.root, "a"), -EIO);
    assert_int_equal(s.os->open_root(s.os, "/disk", true), -EIO);
    char buf[8];
    assert_int_equal(os->pread(os, same, buf, sizeof buf, 0), 3);
    assert_false(disk_is_safe(s.d));
    disk_process_free(other);
    close_stage(&s);
}

static void a_crash_leaves_no_descriptor_and_no_lock(void **state) {
    struct stage s;
    (void)state;
    open_stage(&s, NULL);
    make_a_and_sync_all(&s);
    const int fd = s.os->open_lock(s.os, s.root, "a");
    assert_int_equal(s.os->lock(s.os, fd), 0);
    disk_crash(s.d, 1);
    char buf[8];
    assert_int_equal(s.os->pread(s.os, fd, buf, sizeof buf, 0), -ESTALE);
    assert_int_equal(s.os->open_read(s.os, s.root, "a"), -ESTALE);
    assert_int_equal(s.os->close(s.os, fd), -ESTALE);
    assert_int_equal(s.os->close(s.os, fd), -EBADF);
    const int root = s.os->open_root(s.os, "/disk", false), again = s.os->open_lock(s.os, root, "a");
    assert_int_equal(s.os->lock(s.os, again), 0);
    close_stage(&s);
}

static void a_client_that_is_lost_takes_its_own_unsynced_bytes_and_no_name(void **state) {
    const struct disk_model remote = {.is_remote = true};
    unsigned lost = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct stage s;
        char buf[8];
        int root = -1;
        open_stage(&s, &remote);
        struct disk_process *other = another(&s, 2, &root);
        struct bwi_os *os = disk_os(other);
        make_synced(&s, "a", "1", 1);
        (void)make(&s, "b", "2", 1);
        assert_int_equal(os->pwrite(os, os->open_new(os, root, "c"), "3", 1, 0), 1);
        disk_lose_client(s.d, 1, seed);
        assert_int_equal(content(&s, "a", buf, sizeof buf), 1);
        assert_int_equal(content(&s, "c", buf, sizeof buf), 1);
        const int64_t n = content(&s, "b", buf, sizeof buf);
        assert_in_range(n, 0, 1);
        lost += n == 0;
        disk_process_free(other);
        close_stage(&s);
    }
    assert_in_range(lost, 1, 49);
}

static void kill_it(void *user) {
    disk_process_kill(user);
}

static void a_process_stops_before_the_change_at_which_it_was_to_stop(void **state) {
    struct stage s;
    (void)state;
    open_stage(&s, NULL);
    disk_stop_at(s.p, 2, kill_it, s.p);
    assert_int_equal(s.os->mkdir(s.os, s.root, "a"), 0);
    assert_true(is_there(&s, "a")); /* looking is no change */
    assert_int_equal(s.os->mkdir(s.os, s.root, "b"), -EIO);
    assert_true(disk_process_is_dead(s.p));
    crash(&s, 3);
    assert_false(is_there(&s, "b"));
    close_stage(&s);
}

static void a_process_stops_before_the_sync_of_a_directory_at_which_it_was_to_stop(void **state) {
    struct stage s;
    (void)state;
    open_stage(&s, NULL);
    disk_stop_at_sync(s.p, "d", 2, kill_it, s.p);
    assert_int_equal(s.os->mkdir(s.os, s.root, "d"), 0);
    assert_int_equal(sync_dir(&s, "d"), 0);
    assert_int_equal(sync_dir(&s, "."), 0);
    make_synced(&s, "d/a", "1", 1);
    const int fd = s.os->open_dir(s.os, s.root, "d");
    assert_int_equal(s.os->fsync(s.os, fd), -EIO);
    assert_true(disk_process_is_dead(s.p));
    assert_false(disk_is_safe(s.d));
    close_stage(&s);
}

static void a_full_disk_says_so_and_has_room_again_when_something_goes(void **state) {
    const struct disk_model small = {.capacity_bytes = 1000};
    struct stage s;
    (void)state;
    open_stage(&s, &small);
    const int fd = make(&s, "a", NULL, 0);
    assert_int_equal(s.os->reserve(s.os, fd, 900), 0);
    assert_int_equal(s.os->pwrite(s.os, make(&s, "b", NULL, 0), (char[200]){0}, 200, 0), -ENOSPC);
    assert_int_equal(s.os->unlink(s.os, s.root, "a"), 0);
    assert_int_equal(s.os->close(s.os, fd), 0);
    make_synced(&s, "c", (char[200]){0}, 200);
    assert_int_equal(disk_used_bytes(s.d), 200);
    close_stage(&s);
}

/* --- beside the kernel's ---- */

struct twin {
    struct bwi_os *os;
    int root;
};

static const char *const paths[] = {"a", "b", "d", "d/a", "d/b", "e", "e/a", "a/b", "d/d"};

static int64_t act(const struct twin *t, unsigned what, const char *a, const char *b, uint64_t number) {
    struct bwi_os *os = t->os;
    struct bwi_os_stat st = {0};
    char buf[64] = "";
    int64_t rc = 0;
    int fd = -1;
    switch (what) {
    case 0: fd = os->open_new(os, t->root, a); break;
    case 1: fd = os->open_read(os, t->root, a); break;
    case 2: fd = os->open_dir(os, t->root, a); break;
    case 3: return os->link(os, t->root, a, b);
    case 4: /* no store renames a directory */
        if (os->stat_at(os, t->root, a, &st) == 0 && st.type == BWI_OS_DIR) return 0;
        return os->rename_new(os, t->root, a, b);
    case 5: return os->unlink(os, t->root, a);
    case 6: return os->mkdir(os, t->root, a);
    case 7: return os->rmdir(os, t->root, a);
    case 8:
        rc = os->stat_at(os, t->root, a, &st);
        return rc != 0
                   ? rc
                   : (int64_t)((unsigned)st.type * 100000 + (st.type == BWI_OS_FILE) * (st.size_bytes * 10 + st.nlink));
    case 9:
        fd = os->open_lock(os, t->root, a);
        if (fd >= 0) rc = os->pwrite(os, fd, "twelve bytes", 12, number % 40);
        break;
    default:
        fd = os->open_lock(os, t->root, a);
        if (fd >= 0) rc = number % 2 == 0 ? os->truncate(os, fd, number % 50) : os->pread(os, fd, buf, sizeof buf, 0);
        break;
    }
    if (fd < 0) return fd;
    for (unsigned i = 0; i < sizeof buf; i++) rc = (rc * 31 + buf[i]) % INT32_MAX;
    assert_int_equal(os->close(os, fd), 0);
    return rc;
}

static void whoever_lives_sees_what_a_kernel_would_show(void **state) {
    struct stage s;
    uint64_t rng = test_seed(5);
    const char *dir = test_mkdir();
    const struct twin real = {bwi_os_system(), bwi_os_system()->open_root(bwi_os_system(), dir, false)};
    (void)state;
    open_stage(&s, NULL);
    const struct twin sim = {s.os, s.root};
    for (unsigned i = 0; i < 20000; i++) {
        const unsigned what = (unsigned)(test_random(&rng) % 11);
        const char *a = paths[test_random(&rng) % 9], *b = paths[test_random(&rng) % 9];
        const uint64_t number = test_random(&rng);
        const int64_t want = act(&real, what, a, b, number), got = act(&sim, what, a, b, number);
        if (want != got)
            fail_msg("act %u on %s, %s: %lld, the kernel's is %lld", what, a, b, (long long)got, (long long)want);
    }
    assert_int_equal(disk_open_files(s.p), 1);
    close_stage(&s);
    (void)real.os->close(real.os, real.root);
    test_rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_synced_with_its_name_is_there_after_every_crash),
        cmocka_unit_test(the_sync_of_a_file_says_nothing_of_its_name_and_the_later_one_may_come_alone),
        cmocka_unit_test(a_link_and_an_unlink_are_each_there_or_not),
        cmocka_unit_test(a_rename_may_leave_both_names_or_neither),
        cmocka_unit_test(a_rename_over_a_name_leaves_the_old_or_the_new_file),
        cmocka_unit_test(a_name_that_was_removed_and_made_anew_may_be_old_new_or_gone),
        cmocka_unit_test(a_directory_and_what_is_in_it_are_lost_apart),
        cmocka_unit_test(a_directory_that_was_removed_may_come_back_with_what_was_in_it),
        cmocka_unit_test(a_block_that_was_not_synced_is_old_new_zero_half_or_anything),
        cmocka_unit_test(a_size_that_was_not_synced_is_old_new_or_in_between),
        cmocka_unit_test(bytes_whose_sync_failed_may_be_lost_although_a_later_one_succeeds),
        cmocka_unit_test(a_name_whose_sync_failed_is_safe_only_when_it_is_given_anew),
        cmocka_unit_test(a_friendly_disk_loses_names_in_the_order_in_which_they_came),
        cmocka_unit_test(a_friendly_disk_has_a_block_as_it_was_or_as_it_was_to_be),
        cmocka_unit_test(a_process_that_is_killed_loses_its_locks_and_nothing_that_it_wrote),
        cmocka_unit_test(a_crash_leaves_no_descriptor_and_no_lock),
        cmocka_unit_test(a_client_that_is_lost_takes_its_own_unsynced_bytes_and_no_name),
        cmocka_unit_test(a_process_stops_before_the_change_at_which_it_was_to_stop),
        cmocka_unit_test(a_process_stops_before_the_sync_of_a_directory_at_which_it_was_to_stop),
        cmocka_unit_test(a_full_disk_says_so_and_has_room_again_when_something_goes),
        cmocka_unit_test(whoever_lives_sees_what_a_kernel_would_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
