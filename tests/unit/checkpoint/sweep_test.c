/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep: what is dead goes after its grace, what is not stays, whatever stops it. */
#include "base/text.h"
#include "checkpoint/sweep.h"
#include "group_fixture.h"
#include "os/os.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define NONCE   0x1234abcdu
#define NONCE_2 0x5678u
#define HOUR_MS INT64_C(3600000)

static const enum bwi_tier NEAR = BWI_TIER_LOCAL;
static const enum bwi_tier FAR = BWI_TIER_REMOTE;
/* Step 1 is retired, 2 and 3 are live, 4 was not committed when the second attempt began, nor was 5, which has packs
 * only. 6 is the new attempt's. */
static const struct bwi_id S1 = {1, 1, NONCE, 0}, S2 = {2, 1, NONCE, 0}, S3 = {3, 1, NONCE, 0}, S4 = {4, 1, NONCE, 0},
                           S5 = {5, 1, NONCE, 0}, S6 = {6, 2, NONCE_2, 0};

struct job {
    struct world w;
    struct past past;
    struct bwi_findings findings;
};

static int64_t now_ms(struct job *j) {
    return j->w.ctx.env->unix_ms(j->w.ctx.env);
}

/* Everything lies in `tier`. What is dead has been so for two hours. */
static void job_fill(struct job *j, enum bwi_tier tier) {
    static const struct bwi_id *const saved[] = {&S1, &S2, &S3, &S4};
    struct world *w = &j->w;
    past_begin(&j->past, w);
    j->past.time_ms = now_ms(j) - 3 * HOUR_MS;
    past_register(&j->past, w, "launch-1", NONCE, BWI_REGISTER_DEFAULT);
    for (int i = 0; i < 4; i++) (void)save_group(w, tier, saved[i], 0, &LIFE, NULL);
    for (int i = 0; i < 3; i++) past_commit(&j->past, w, saved[i], NULL);
    save_packs(w, tier, &S5, 0);
    j->past.time_ms = now_ms(j) - 2 * HOUR_MS;
    past_retire(&j->past, w, &S1);
    past_register(&j->past, w, "launch-2", NONCE_2, BWI_REGISTER_DEFAULT);
    (void)save_group(w, tier, &S6, 0, &LIFE, NULL);
    w->ctx.grace_ms = (uint64_t)HOUR_MS;
}

static void job_open(struct job *j, uint64_t seed, enum bwi_tier tier) {
    memset(j, 0, sizeof *j);
    world_open(&j->w, seed, 64 * KIB);
    j->w.env.unix_at_0 = INT64_C(1700000000000);
    job_fill(j, tier);
}

static void job_close(struct job *j) {
    bwi_findings_fini(&j->findings);
    past_end(&j->past);
    world_close(&j->w);
}

static struct bwi_sweep sweep_of(struct job *j, enum bwi_tier tier) {
    bwi_findings_fini(&j->findings);
    return (struct bwi_sweep){.ctx = &j->w.ctx, .tier = tier, .findings = &j->findings};
}

static void sweep_run(struct job *j, struct bwi_sweep *s) {
    bwi_sweep_start(s, j->w.loop, NULL);
    world_run(&j->w);
    assert_int_equal(s->task.pending, 0);
    assert_null(s->w);
}

static void sweep_ok(struct job *j, struct bwi_sweep *s) {
    sweep_run(j, s);
    assert_ok(s->task.error.status, &s->task.error);
}

static bool any_left(struct job *j, enum bwi_tier tier, const struct bwi_id *id) {
    return data_of(&j->w, tier, id, 0) > 0 || below(&j->w, tier, bwi_key_checkpoint(j->w.ctx.run, id).s) > 0;
}

static bool whole(struct job *j, enum bwi_tier tier, const struct bwi_id *id) {
    return has_summary(&j->w, tier, id, 0) && data_of(&j->w, tier, id, 0) == 4;
}

static void check_swept(struct job *j, enum bwi_tier tier) {
    assert_false(any_left(j, tier, &S1) || any_left(j, tier, &S4) || any_left(j, tier, &S5));
    assert_true(whole(j, tier, &S2) && whole(j, tier, &S3) && whole(j, tier, &S6));
    assert_int_equal(check_tier(&j->w, tier), 3);
}

static size_t findings_of(const struct job *j, uint32_t severity) {
    size_t n = 0;
    for (size_t i = 0; i < j->findings.count; i++) n += j->findings.list[i].severity == severity;
    return n;
}

static void what_is_dead_goes_and_nothing_else_in_either_tier(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        for (int t = 0; t < BWI_TIERS; t++) {
            struct job j;
            job_open(&j, seed == 0 ? 0 : test_seed(seed), (enum bwi_tier)t);
            struct bwi_sweep s = sweep_of(&j, (enum bwi_tier)t);
            sweep_ok(&j, &s);
            check_swept(&j, (enum bwi_tier)t);
            assert_int_equal(s.checkpoints, 3);
            assert_true(s.bytes > 2 * 18000);
            assert_int_equal(s.objects, 10); /* of the two with summaries */
            assert_int_equal(findings_of(&j, 0), 3);
            assert_int_equal(j.findings.count, 3);
            assert_string_equal(j.findings.list[0].tier, bwi_tier_name((enum bwi_tier)t));
            assert_string_equal(j.findings.list[0].id, "00000000000000000001.1-1234abcd.0");
            s = sweep_of(&j, (enum bwi_tier)t);
            sweep_ok(&j, &s);
            assert_int_equal(s.checkpoints + s.objects + s.bytes + j.findings.count, 0);
            job_close(&j);
        }
    }
}

static void a_dry_run_tells_the_same_and_deletes_nothing(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    const size_t objects = bwi_bucket_objects(j.w.bucket[FAR]);
    struct bwi_sweep dry = sweep_of(&j, FAR);
    dry.dry_run = true;
    sweep_ok(&j, &dry);
    assert_int_equal(bwi_bucket_objects(j.w.bucket[FAR]), objects);
    assert_int_equal(findings_of(&j, 0), 3);
    assert_non_null(strstr(j.findings.list[0].message, "would be deleted"));
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    assert_int_equal(s.checkpoints, dry.checkpoints);
    assert_int_equal(s.objects, dry.objects);
    assert_int_equal(s.bytes, dry.bytes);
    job_close(&j);
}

static void without_a_history_nothing_is_dead(void **state) {
    (void)state;
    struct job j = {0};
    world_open(&j.w, 1, 64 * KIB);
    (void)save_group(&j.w, FAR, &S1, 0, &LIFE, NULL);
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    assert_int_equal(s.checkpoints, 0);
    assert_true(whole(&j, FAR, &S1));
    job_close(&j);
}

static void marks_index_and_manifest_go_with_their_checkpoint(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    const struct bwi_sha sha = bwi_sha_of(bwi_span("x", 1));
    world_put(&j.w, FAR, bwi_key_manifest("run", &S1, &sha).s, bwi_span("m", 1));
    world_put(&j.w, FAR, bwi_key_index("run", &S1, &sha).s, bwi_span("i", 1));
    world_put(&j.w, FAR, bwi_key_failed("run", &S4, 0).s, bwi_span("f", 1));
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    check_swept(&j, FAR);
    assert_int_equal(s.objects, 12);
    job_close(&j);
}

static void data_is_found_below_every_fan_out(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    const struct bwi_key pack = bwi_key_pack("run", true, &S5, 70, 0, 1);
    world_put(&j.w, FAR, pack.s, bwi_span("p", 1));
    world_put(&j.w, FAR, "runs/run/data/zz/00000000000000000001.1-1234abcd.0/000000/content", bwi_span("p", 1));
    world_put(&j.w, FAR, "runs/run/data/00/junk/x", bwi_span("p", 1));
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    check_swept(&j, FAR);
    assert_int_equal(below(&j.w, FAR, pack.s), 0);
    assert_int_equal(below(&j.w, FAR, "runs/run/data/zz/"), 1); /* not ours */
    assert_int_equal(below(&j.w, FAR, "runs/run/data/00/junk/"), 1);
    job_close(&j);
}

/* ---- grace ---- */

static void what_died_less_than_the_grace_ago_stays(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    j.w.ctx.grace_ms = (uint64_t)(2 * HOUR_MS + 60000);
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    assert_int_equal(s.checkpoints, 0);
    assert_true(any_left(&j, FAR, &S1) && any_left(&j, FAR, &S4) && any_left(&j, FAR, &S5));
    j.w.env.now += 120 * BWI_NS_PER_S;
    for (uint64_t beyond = UINT64_MAX; beyond >= UINT64_MAX / 2; beyond -= UINT64_MAX / 2) { /* longer than any clock */
        j.w.ctx.grace_ms = beyond;
        s = sweep_of(&j, FAR);
        sweep_ok(&j, &s);
        assert_int_equal(s.checkpoints, 0);
    }
    j.w.ctx.grace_ms = (uint64_t)(2 * HOUR_MS + 60000);
    s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    check_swept(&j, FAR);
    job_close(&j);
}

/* Step 2 dies just now, the others are old enough. */
static void the_grace_counts_for_each_by_itself(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    j.past.time_ms = now_ms(&j) - 1000;
    past_retire(&j.past, &j.w, &S2);
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    check_swept(&j, FAR);
    j.w.ctx.grace_ms = 0;
    s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    assert_int_equal(s.checkpoints, 1);
    assert_false(any_left(&j, FAR, &S2));
    job_close(&j);
}

static void a_death_that_has_left_the_log_is_old_enough(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    j.w.ctx.grace_ms = (uint64_t)(100 * HOUR_MS);
    for (uint64_t n = 1; n < j.past.e.n; n++)
        assert_true(bwi_bucket_remove(j.w.bucket[FAR], bwi_key_entry("run", 1, n).s));
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    check_swept(&j, FAR);
    job_close(&j);
}

static void a_long_log_is_read_only_as_far_as_the_grace_goes_back(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    struct bwi_id id = S6;
    for (int i = 0; i < 100; i++) {
        id.step++;
        j.past.time_ms = now_ms(&j) - 2 * HOUR_MS + i * HOUR_MS / 60;
        past_commit(&j.past, &j.w, &id, NULL);
    }
    const uint64_t gets = j.w.ctx.tier[FAR]->ops[BWI_STORE_GET];
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    assert_in_range(j.w.ctx.tier[FAR]->ops[BWI_STORE_GET] - gets, 40, 60);
    assert_false(any_left(&j, FAR, &S1) || any_left(&j, FAR, &S4));
    job_close(&j);
}

static void a_damaged_old_entry_only_makes_it_wait_longer(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    j.past.time_ms = now_ms(&j) - 1000;
    past_commit(&j.past, &j.w, &S6, NULL);
    world_put(&j.w, FAR, bwi_key_entry("run", 1, j.past.e.n - 1).s, bwi_span("damaged", 7));
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    /* that step 1 was retired is known from the entry before; that 4 and 5 died only from the one after */
    assert_false(any_left(&j, FAR, &S1));
    assert_true(any_left(&j, FAR, &S4) && any_left(&j, FAR, &S5));
    job_close(&j);
}

/* ---- what is not touched ---- */

static void saves_in_flight_are_left_alone(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    const struct bwi_id busy[] = {S4, S5};
    struct bwi_sweep s = sweep_of(&j, FAR);
    s.busy = busy;
    s.busy_count = 2;
    sweep_ok(&j, &s);
    assert_int_equal(s.checkpoints, 1);
    assert_true(any_left(&j, FAR, &S4) && any_left(&j, FAR, &S5));
    job_close(&j);
}

static void refs_of_the_living_stay(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    (void)save_group(&j.w, FAR, &(struct bwi_id){7, 2, NONCE_2, 0}, 0, &LIFE, &S3);
    past_commit(&j.past, &j.w, &(struct bwi_id){7, 2, NONCE_2, 0}, &S3);
    past_retire(&j.past, &j.w, &S3);
    j.w.ctx.grace_ms = 0;
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    assert_true(whole(&j, FAR, &S3));
    job_close(&j);
}

static void another_life_is_told_and_goes_only_on_demand(void **state) {
    (void)state;
    struct job j;
    const struct bwi_id old = {4, 1, 0x99, 0}, beyond = {4, 9, 0x99, 0};
    job_open(&j, 1, FAR);
    (void)save_group(&j.w, FAR, &old, 0, &OTHER_LIFE, NULL);
    (void)save_group(&j.w, FAR, &beyond, 0, &OTHER_LIFE, NULL);
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    assert_int_equal(s.checkpoints, 3);
    assert_int_equal(findings_of(&j, 1), 2);
    assert_true(whole(&j, FAR, &old) && whole(&j, FAR, &beyond));
    s = sweep_of(&j, FAR);
    s.drop_foreign = true;
    sweep_ok(&j, &s);
    assert_int_equal(s.checkpoints, 1);
    assert_false(any_left(&j, FAR, &old));
    assert_true(whole(&j, FAR, &beyond)); /* an attempt that the head does not know yet may have begun */
    assert_int_equal(findings_of(&j, 1), 1);
    for (size_t i = 0; i < j.findings.count; i++)
        if (j.findings.list[i].severity == 1) assert_int_equal(j.findings.list[i].status, BW_E_FOREIGN);
    job_close(&j);
}

static void a_damaged_summary_does_not_save_the_dead(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    world_put(&j.w, FAR, bwi_key_summary("run", &S4, 0).s, bwi_span("damaged", 7));
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    check_swept(&j, FAR);
    job_close(&j);
}

static void an_archive_is_refused(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    const size_t objects = bwi_bucket_objects(j.w.bucket[FAR]);
    j.w.ctx.store_id[FAR] = OTHER_LIFE;
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_run(&j, &s);
    assert_fails(s.task.error.status, BW_E_FOREIGN, &s.task.error, "sweep of the remote tier: ");
    assert_int_equal(s.task.error.stage, BW_STAGE_PRUNE);
    assert_int_equal(bwi_bucket_objects(j.w.bucket[FAR]), objects);
    job_close(&j);
}

static void a_damaged_head_is_refused(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    const size_t objects = bwi_bucket_objects(j.w.bucket[FAR]);
    world_put(&j.w, FAR, bwi_key_entry("run", 1, j.past.e.n).s, bwi_span("damaged", 7));
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_run(&j, &s);
    assert_fails(s.task.error.status, BW_E_CORRUPT, &s.task.error, "repair the run first");
    assert_int_equal(bwi_bucket_objects(j.w.bucket[FAR]), objects);
    job_close(&j);
}

/* ---- layouts and launches ---- */

static void layouts_go_when_no_checkpoint_of_their_attempt_is_left(void **state) {
    (void)state;
    for (int dry = 1; dry >= 0; dry--) {
        struct job j;
        job_open(&j, 1, FAR);
        j.w.ctx.grace_ms = 0;
        past_commit(&j.past, &j.w, &S6, NULL);
        struct bwi_sweep s = sweep_of(&j, FAR);
        sweep_ok(&j, &s);
        assert_int_equal(below(&j.w, FAR, bwi_key_layouts_of("run", 1, NONCE).s), 1);
        past_retire(&j.past, &j.w, &S2);
        past_retire(&j.past, &j.w, &S3);
        s = sweep_of(&j, FAR);
        s.dry_run = dry;
        sweep_ok(&j, &s);
        assert_int_equal(s.checkpoints, 2);
        assert_int_equal(s.objects, 11);
        assert_int_equal(j.findings.count, 3);
        assert_int_equal(below(&j.w, FAR, bwi_key_layouts_of("run", 1, NONCE).s), dry);
        assert_int_equal(below(&j.w, FAR, bwi_key_layouts_of("run", 2, NONCE_2).s), 1);
        job_close(&j);
    }
}

static void put_inventory(struct job *j, const char *launch) {
    world_put(&j->w, FAR, bwi_key_inventory("run", launch, 0).s, bwi_span("{}", 2));
}

static bool has_inventory(struct job *j, const char *launch) {
    return below(&j->w, FAR, bwi_key_launch("run", launch).s) > 0;
}

static void inventories_of_past_launches_go_and_those_of_the_current_one_stay(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    put_inventory(&j, "launch-1");
    world_put(&j.w, FAR, bwi_key_refusal("run", "launch-1").s, bwi_span("{}", 2));
    put_inventory(&j, "launch-2");
    put_inventory(&j, "launch-3"); /* it is gathering its ranks */
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    assert_false(has_inventory(&j, "launch-1"));
    assert_true(has_inventory(&j, "launch-2") && has_inventory(&j, "launch-3"));
    job_close(&j);
}

/* Of a launch whose group has seen this attempt as the current one; 0: none. */
static void put_seen(struct job *j, const char *launch, uint32_t group, uint32_t seen) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf bytes = {0};
    struct bwi_inventory v = {.job = "job", .group = group, .groups = 2, .world = 2, .rank_count = 1};
    v.ranks[0] = group;
    v.seen_told = true;
    v.seen_set = seen > 0;
    v.seen_number = seen;
    v.seen_nonce = 1;
    (void)bwi_format(v.launch, sizeof v.launch, "%s", launch);
    assert_ok(bwi_inventory_encode(&v, &bytes, &err), &err);
    world_put(&j->w, FAR, bwi_key_inventory("run", launch, group).s, bwi_buf_span(&bytes));
    bwi_buf_fini(&bytes);
}

/* The second attempt is current. */
static void a_launch_goes_at_once_when_another_one_has_registered_since_it_looked(void **state) {
    (void)state;
    for (int dry = 1; dry >= 0; dry--) {
        struct job j;
        job_open(&j, 1, FAR);
        put_seen(&j, "beaten", 0, 1);
        put_seen(&j, "beaten", 1, 1);
        put_seen(&j, "beaten-first", 0, 0);
        put_seen(&j, "gathering", 0, 2);
        put_seen(&j, "gathering", 1, 1); /* that one does not register */
        put_seen(&j, "ahead", 0, 3);     /* it knows more than this sweep */
        put_seen(&j, "headless", 1, 1);
        put_seen(&j, "launch-2", 0, 1); /* the current one */
        put_inventory(&j, "damaged");
        struct bwi_sweep s = sweep_of(&j, FAR);
        s.dry_run = dry;
        sweep_ok(&j, &s);
        assert_int_equal(has_inventory(&j, "beaten"), dry);
        assert_int_equal(has_inventory(&j, "beaten-first"), dry);
        assert_true(has_inventory(&j, "gathering") && has_inventory(&j, "ahead") && has_inventory(&j, "headless"));
        assert_true(has_inventory(&j, "launch-2") && has_inventory(&j, "damaged"));
        assert_int_equal(s.checkpoints, 3);
        assert_int_equal(findings_of(&j, 0), 5);
        job_close(&j);
    }
}

static void a_launch_that_never_registers_goes_after_a_day_under_watch(void **state) {
    (void)state;
    struct job j;
    struct bwi_launch_watch watch = {0};
    job_open(&j, 1, FAR);
    put_inventory(&j, "never");
    put_inventory(&j, "launch-2");
    for (int hour = 0; hour < 30; hour++) {
        struct bwi_sweep s = sweep_of(&j, FAR);
        s.watch = &watch;
        if (hour == 10) put_inventory(&j, "later");
        sweep_ok(&j, &s);
        assert_int_equal(has_inventory(&j, "never"), hour < 24);
        j.w.env.now += 3601 * BWI_NS_PER_S;
    }
    assert_false(has_inventory(&j, "never"));
    assert_true(has_inventory(&j, "later") && has_inventory(&j, "launch-2"));
    assert_int_equal(watch.count, 1); /* what is gone is forgotten */
    bwi_launch_watch_fini(&watch);
    bwi_launch_watch_fini(NULL);
    job_close(&j);
}

/* ---- failures ---- */

static void what_cannot_be_deleted_does_not_save_the_others(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    bwi_bucket_fail_next(j.w.bucket[FAR], BWI_STORE_DELETE_PREFIX, "00000000000000000001.1-", BW_E_ACCESS, false);
    struct bwi_sweep s = sweep_of(&j, FAR);
    sweep_run(&j, &s);
    assert_fails(s.task.error.status, BW_E_ACCESS, &s.task.error, "sweep of the remote tier: ");
    assert_int_equal(s.checkpoints, 2);
    assert_true(whole(&j, FAR, &S1));
    assert_false(any_left(&j, FAR, &S4) || any_left(&j, FAR, &S5));
    s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    check_swept(&j, FAR);
    job_close(&j);
}

static void history_is_durable_before_anything_is_deleted_for_it(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, NEAR);
    const size_t objects = bwi_bucket_objects(j.w.bucket[NEAR]);
    bwi_bucket_fail_next(j.w.bucket[FAR], BWI_STORE_SYNC, "/history/", BW_E_IO, false);
    struct bwi_sweep s = sweep_of(&j, NEAR);
    sweep_run(&j, &s);
    assert_fails(s.task.error.status, BW_E_IO, &s.task.error, "sweep of the local tier: ");
    assert_int_equal(bwi_bucket_objects(j.w.bucket[NEAR]), objects);
    job_close(&j);
}

static void stopped_anywhere_the_next_sweep_finishes_the_job(void **state) {
    (void)state;
    for (int t = 0; t < BWI_TIERS; t++) {
        bool done = false;
        for (uint64_t ops = 0; !done; ops++) {
            for (int effect = 0; effect < 2; effect++) {
                struct job j;
                job_open(&j, ops + 1, (enum bwi_tier)t);
                put_inventory(&j, "launch-1");
                machine_stops_after(&j.w, ops, effect);
                struct bwi_sweep s = sweep_of(&j, (enum bwi_tier)t);
                sweep_run(&j, &s);
                machine_starts(&j.w);
                done = machine.left > 0;
                (void)check_tier(&j.w, (enum bwi_tier)t);
                s = sweep_of(&j, (enum bwi_tier)t);
                sweep_ok(&j, &s);
                check_swept(&j, (enum bwi_tier)t);
                if (t == FAR) assert_false(has_inventory(&j, "launch-1"));
                job_close(&j);
            }
            assert_true(ops < 100);
        }
    }
}

static void cancelled_at_any_moment_it_ends(void **state) {
    (void)state;
    bool done = false;
    for (int turns = 0; !done; turns++) {
        struct job j;
        job_open(&j, 5, FAR);
        struct bwi_sweep s = sweep_of(&j, FAR);
        bwi_sweep_start(&s, j.w.loop, NULL);
        for (int i = 0; i < turns && s.task.running; i++) world_turn(&j.w);
        done = !s.task.running;
        bwi_task_cancel(&s.task);
        world_run(&j.w);
        if (s.task.error.status < 0) assert_fails(s.task.error.status, BW_E_CANCELLED, &s.task.error, NULL);
        (void)check_tier(&j.w, FAR);
        job_close(&j);
        assert_true(turns < 1000);
    }
}

static void without_memory_it_fails_and_leaves_a_sound_tier(void **state) {
    (void)state;
    bool done = false;
    for (unsigned long n = 1; !done; n++) {
        struct job j;
        job_open(&j, 1, FAR);
        struct bwi_sweep s = sweep_of(&j, FAR);
        (void)bwi_alloc_fail_at(n);
        sweep_run(&j, &s);
        done = bwi_alloc_fail_at(0) < n;
        if (s.task.error.status < 0) assert_int_equal(s.task.error.status, BW_E_NOMEM);
        (void)check_tier(&j.w, FAR);
        assert_true(whole(&j, FAR, &S2) && whole(&j, FAR, &S3) && whole(&j, FAR, &S6));
        job_close(&j);
        assert_true(n < 5000);
    }
}

/* What a decision that died left in history/, so long ago that nobody is at work on it. */
static void leave_temporary(const struct job *j, char path[512]) {
    const struct timespec t[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    (void)snprintf(path, 512, "%s/runs/run/history/.0123456789abcdef.tmp", j->w.dir[FAR]);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static void it_works_on_directories(void **state) {
    (void)state;
    struct job j = {0};
    char left[512];
    world_open_dirs(&j.w, bwi_os_system(), MIB);
    job_fill(&j, FAR);
    leave_temporary(&j, left);
    struct bwi_sweep s = sweep_of(&j, FAR);
    s.dry_run = true;
    sweep_ok(&j, &s);
    assert_int_equal(access(left, F_OK), 0);
    s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(s.checkpoints, 3);
    struct single l = {0};
    bwi_call_prepare(&l.call, BWI_STORE_LIST, "runs/run/data/00/");
    single_run(&j.w, &l, FAR);
    assert_int_equal(l.call.op.names.len, 3);
    bwi_call_prepare(&l.call, BWI_STORE_LIST, "runs/run/checkpoints/");
    l.sent = false;
    single_run(&j.w, &l, FAR);
    assert_int_equal(l.call.op.names.len, 3);
    bwi_call_fini(&l.call);
    s = sweep_of(&j, FAR);
    sweep_ok(&j, &s);
    assert_int_equal(s.checkpoints, 0);
    job_close(&j);
}

static void old_temporaries_in_the_log_go_also_when_nothing_is_dead_and_without_a_grace(void **state) {
    (void)state;
    for (unsigned dead = 0; dead < 2; dead++) {
        struct job j = {0};
        char left[512];
        world_open_dirs(&j.w, bwi_os_system(), MIB);
        job_fill(&j, FAR);
        if (dead) j.w.ctx.grace_ms = 0;
        struct bwi_sweep s = sweep_of(&j, FAR);
        if (!dead) sweep_ok(&j, &s);
        leave_temporary(&j, left);
        s = sweep_of(&j, NEAR);
        sweep_ok(&j, &s);
        assert_int_equal(access(left, F_OK), 0); /* of no concern to a local tier */
        s = sweep_of(&j, FAR);
        sweep_ok(&j, &s);
        assert_int_equal(s.checkpoints, dead ? 3 : 0);
        assert_int_equal(access(left, F_OK), -1);
        job_close(&j);
    }
}

/* ---- since when ---- */

static void dead_since_is_the_time_of_the_first_entry_that_says_so(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1, FAR);
    struct bwi_entry log[16];
    memset(log, 0, sizeof log);
    size_t count = 0;
    for (uint64_t n = 1; n <= j.past.e.n; n++, count++) {
        struct bwi_span bytes;
        assert_true(bwi_bucket_get(j.w.bucket[FAR], bwi_key_entry("run", 1, n).s, &bytes));
        assert_ok(bwi_entry_decode(bytes, &log[count], NULL), NULL);
        log[count].time_ms = (int64_t)n * 100;
    }
    /* 1 register, 2-4 commits, 5 retire step 1, 6 register */
    assert_int_equal(count, 6);
    assert_true(bwi_policy_dead_since(log, count, &S1) == 500);
    assert_true(bwi_policy_dead_since(log, count, &S4) == 600);
    assert_true(bwi_policy_dead_since(log, count, &S2) == INT64_MAX);
    assert_true(bwi_policy_dead_since(log, count, &S6) == INT64_MAX);
    assert_true(bwi_policy_dead_since(log + 4, count - 4, &S1) == INT64_MIN);
    assert_true(bwi_policy_dead_since(log + 4, count - 4, &S4) == 600);
    assert_true(bwi_policy_dead_since(NULL, 0, &S1) == INT64_MIN);
    for (size_t i = 0; i < count; i++) bwi_entry_fini(&log[i]);
    job_close(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_dead_goes_and_nothing_else_in_either_tier),
        cmocka_unit_test(a_dry_run_tells_the_same_and_deletes_nothing),
        cmocka_unit_test(without_a_history_nothing_is_dead),
        cmocka_unit_test(marks_index_and_manifest_go_with_their_checkpoint),
        cmocka_unit_test(data_is_found_below_every_fan_out),
        cmocka_unit_test(what_died_less_than_the_grace_ago_stays),
        cmocka_unit_test(the_grace_counts_for_each_by_itself),
        cmocka_unit_test(a_death_that_has_left_the_log_is_old_enough),
        cmocka_unit_test(a_long_log_is_read_only_as_far_as_the_grace_goes_back),
        cmocka_unit_test(a_damaged_old_entry_only_makes_it_wait_longer),
        cmocka_unit_test(saves_in_flight_are_left_alone),
        cmocka_unit_test(refs_of_the_living_stay),
        cmocka_unit_test(another_life_is_told_and_goes_only_on_demand),
        cmocka_unit_test(a_damaged_summary_does_not_save_the_dead),
        cmocka_unit_test(an_archive_is_refused),
        cmocka_unit_test(a_damaged_head_is_refused),
        cmocka_unit_test(layouts_go_when_no_checkpoint_of_their_attempt_is_left),
        cmocka_unit_test(inventories_of_past_launches_go_and_those_of_the_current_one_stay),
        cmocka_unit_test(a_launch_goes_at_once_when_another_one_has_registered_since_it_looked),
        cmocka_unit_test(a_launch_that_never_registers_goes_after_a_day_under_watch),
        cmocka_unit_test(what_cannot_be_deleted_does_not_save_the_others),
        cmocka_unit_test(history_is_durable_before_anything_is_deleted_for_it),
        cmocka_unit_test(stopped_anywhere_the_next_sweep_finishes_the_job),
        cmocka_unit_test(cancelled_at_any_moment_it_ends),
        cmocka_unit_test(without_memory_it_fails_and_leaves_a_sound_tier),
        cmocka_unit_test(it_works_on_directories),
        cmocka_unit_test(old_temporaries_in_the_log_go_also_when_nothing_is_dead_and_without_a_grace),
        cmocka_unit_test(dead_since_is_the_time_of_the_first_entry_that_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
