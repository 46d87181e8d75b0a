/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody made and never synced, and others count on: whole jobs on disks that forget. A process dies between
 * giving a name and syncing its directory, the next launch goes on from what it sees, the power fails, and the launch
 * after it must go on from the same. */
#include "cluster_job.h"
#include "disk.h"
#include "disk_tier.h"
#include <stdlib.h>

#define SEEDS 12u

struct site {
    struct cluster c;
    struct disk *remote, *local;
    struct disk_process *processes[8];
    unsigned process_count;
    const char *stop_name; /* the next process dies before its n-th fsync of a directory of this name; n == 0: never */
    uint64_t stop_sync;
};

static void kill_it(void *user) {
    disk_process_kill(user);
}

static int open_io(struct cluster *c, unsigned node, struct bwi_io **ret, struct bw_error *err) {
    struct site *s = c->user;
    struct disk_process *p = disk_process_new(node);
    s->processes[s->process_count++] = p;
    disk_attach(p, "remote", s->remote);
    disk_attach(p, "local", s->local);
    disk_stop_at_sync(p, s->stop_name, s->stop_sync, kill_it, p);
    s->stop_sync = 0;
    const struct bwi_io_options o = {.os = disk_os(p)};
    return bwi_io_open(&o, ret, err);
}

static const struct cluster_stores stores = {open_io, disk_tier};

static void open_site(struct site *s, uint64_t seed) {
    *s = (struct site){0};
    cluster_init(&s->c, seed);
    s->c.stores = &stores;
    s->c.user = s;
    s->remote = disk_new(&s->c.env.env, &(struct disk_model){.is_remote = true, .device = 1});
    s->local = disk_new(&s->c.env.env, &(struct disk_model){.device = 2});
}

static void close_site(struct site *s) {
    cluster_fini(&s->c);
    for (unsigned i = 0; i < s->process_count; i++) disk_process_free(s->processes[i]);
    disk_free(s->remote);
    disk_free(s->local);
}

static bool has_died(struct cluster *c, void *user) {
    (void)c;
    return disk_process_is_dead(user);
}

/* A launch saves step 1 and dies before its n-th sync of a directory groups/. */
static void die_at(struct site *s, uint64_t sync) {
    struct bwi_save *v[1];
    s->stop_name = "groups";
    s->stop_sync = sync;
    open_all(&s->c, 0, &(struct launch){.launch = "dies", .world = 1});
    save_all(&s->c, 0, 1, 1, v);
    assert_true(cluster_run(&s->c, has_died, s->processes[s->process_count - 1], 60000));
    cluster_kill(&s->c, 0);
}

static void go_on(struct site *s, unsigned slot, const char *launch) {
    open_all(&s->c, slot, &(struct launch){.launch = launch, .world = 1});
    assert_true(s->c.ranks[slot].session->resume.from_checkpoint);
    assert_int_equal(s->c.ranks[slot].session->resume.id.step, 1);
}

static void lose_power(struct site *s, unsigned slot, uint64_t seed) {
    disk_process_kill(s->processes[s->process_count - 1]);
    cluster_kill(&s->c, slot);
    disk_crash(s->local, seed);
    disk_crash(s->remote, seed);
}

static void what_a_launch_goes_on_from_on_its_node_stays_there(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct site s;
        open_site(&s, seed);
        die_at(&s, 1);
        go_on(&s, 1, "sees");
        lose_power(&s, 1, seed);
        go_on(&s, 2, "after");
        check_resumed(&s.c, 2, 1);
        close_site(&s);
    }
}

static void what_a_launch_goes_on_from_in_the_authority_stays_there(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct site s;
        open_site(&s, seed);
        die_at(&s, 2);      /* the first is that of the local tier */
        disk_free(s.local); /* the node is lost, and another one takes its place */
        s.local = disk_new(&s.c.env.env, &(struct disk_model){.device = 3});
        go_on(&s, 1, "sees");
        lose_power(&s, 1, seed);
        go_on(&s, 2, "after");
        check_resumed(&s.c, 2, 1);
        close_site(&s);
    }
}

/* Rank 0 dies when its commit entry can be seen and is not safe. Rank 1 sees it. */
static void what_a_rank_is_told_of_the_log_stays_there(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct site s;
        struct bwi_save *v[2];
        open_site(&s, seed);
        s.stop_name = "history";
        s.stop_sync = 2; /* the first is that of the register entry */
        open_all(&s.c, 0, &(struct launch){.launch = "dies", .world = 2});
        save_all(&s.c, 0, 2, 1, v);
        assert_true(cluster_run(&s.c, has_died, s.processes[0], 60000));
        cluster_kill(&s.c, 0);
        wait_level(&s.c, v[1], BW_COMMITTED);
        lose_power(&s, 1, seed);
        go_on(&s, 2, "after");
        assert_true(s.c.ranks[2].session->resume.committed);
        check_resumed(&s.c, 2, 1);
        close_site(&s);
    }
}

/* The names of the log that can be seen, a bit each. */
static void look_at_log(void *user, const char *path, uint64_t bytes) {
    static const char log[] = "bw/runs/run/history/000001.";
    unsigned *seen = user;
    (void)bytes;
    if (strncmp(path, log, sizeof log - 1) == 0) *seen |= 1u << strtoul(path + sizeof log - 1, NULL, 10);
}

/* A process dies when its entry can be seen and is not safe; the next one decides on it, and dies somewhere there. */
static void the_log_never_has_a_hole(void **state) {
    bool both = false;
    (void)state;
    for (uint64_t seed = 1; seed <= 10 * SEEDS; seed++) {
        struct site s;
        unsigned seen = 0;
        open_site(&s, seed);
        for (unsigned slot = 0; slot < 2; slot++) {
            s.stop_name = "history";
            s.stop_sync = slot == 0 ? 1 : 1 + seed % 2;
            cluster_start(&s.c, slot, 0, 0, &(struct launch){.launch = slot == 0 ? "dies" : "too", .world = 1});
            assert_true(cluster_run(&s.c, has_died, s.processes[slot], 60000));
            cluster_kill(&s.c, slot);
        }
        disk_crash(s.remote, seed);
        disk_each(s.remote, look_at_log, &seen);
        assert_int_not_equal(seen, 1u << 2); /* the second without the first */
        both = both || seen == (1u << 1 | 1u << 2);
        close_site(&s);
    }
    assert_true(both);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_launch_goes_on_from_on_its_node_stays_there),
        cmocka_unit_test(what_a_rank_is_told_of_the_log_stays_there),
        cmocka_unit_test(the_log_never_has_a_hole),
        cmocka_unit_test(what_a_launch_goes_on_from_in_the_authority_stays_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
