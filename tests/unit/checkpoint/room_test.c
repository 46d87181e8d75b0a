/* SPDX-License-Identifier: Apache-2.0 */
/* Making room on the local tier, and the inventory of what is complete there. */
#include "checkpoint/room.h"
#include "group_fixture.h"
#include "os/os.h"

#define NONCE   0x1234abcdu
#define NONCE_2 0x5678u
#define MUCH    (UINT64_C(1) << 40)

static const enum bwi_tier NEAR = BWI_TIER_LOCAL;
static const struct bwi_id S1 = {1, 1, NONCE, 0}, S2 = {2, 1, NONCE, 0}, S3 = {3, 1, NONCE, 0}, S4 = {4, 1, NONCE, 0};

/* A run in its first attempt with steps 1, 2 and 3 committed and on this disk, and step 4 saved here but not committed
 * yet. */
struct job {
    struct world w;
    struct past past;
    uint64_t bytes; /* of one group */
};

static void job_open(struct job *j, uint64_t seed) {
    static const struct bwi_id *const saved[] = {&S1, &S2, &S3, &S4};
    memset(j, 0, sizeof *j);
    world_open(&j->w, seed, 64 * KIB);
    past_begin(&j->past, &j->w);
    past_register(&j->past, &j->w, "launch-1", NONCE, BWI_REGISTER_DEFAULT);
    for (int i = 0; i < 4; i++) j->bytes = save_group(&j->w, NEAR, saved[i], 0, &LIFE, NULL);
    for (int i = 0; i < 3; i++) past_commit(&j->past, &j->w, saved[i], NULL);
}

static void job_close(struct job *j) {
    past_end(&j->past);
    world_close(&j->w);
}

static struct bwi_room room_of(struct job *j, uint64_t need, uint64_t quota) {
    return (struct bwi_room){.ctx = &j->w.ctx, .head = &j->past.e, .need_bytes = need, .quota_bytes = quota};
}

static void room_run(struct job *j, struct bwi_room *r) {
    bwi_room_start(r, j->w.loop, NULL);
    world_run(&j->w);
    assert_int_equal(r->task.pending, 0);
    assert_null(r->w);
}

static void room_ok(struct job *j, struct bwi_room *r) {
    room_run(j, r);
    assert_ok(r->task.error.status, &r->task.error);
    (void)check_tier(&j->w, NEAR);
}

static bool there(struct job *j, const struct bwi_id *id) {
    const bool summary = has_summary(&j->w, NEAR, id, 0);
    assert_int_equal(data_of(&j->w, NEAR, id, 0) > 0, summary); /* all or nothing */
    return summary;
}

/* Whether somebody has the lock of a group. */
static bool locked(struct world *w, const struct bwi_id *id) {
    struct single s = {0};
    bwi_call_prepare(&s.call, BWI_STORE_LOCK, bwi_key_data_of(w->ctx.run, false, id, 0).s);
    single_run(w, &s, NEAR);
    if (s.call.op.error.status == BW_E_BUSY) return true;
    assert_ok(s.call.op.error.status, &s.call.op.error);
    struct single u = {0};
    bwi_call_prepare(&u.call, BWI_STORE_UNLOCK, bwi_key_data_of(w->ctx.run, false, id, 0).s);
    u.call.op.lock = s.call.op.lock;
    single_run(w, &u, NEAR);
    return false;
}

static void nothing_is_deleted_while_there_is_room(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 0);
    j.w.ctx.tier[NEAR]->caps.has_space = false; /* a store that cannot tell is never full */
    const size_t objects = bwi_bucket_objects(j.w.bucket[NEAR]);
    struct bwi_room r = room_of(&j, j.bytes, 5 * j.bytes);
    room_ok(&j, &r);
    assert_true(r.fits);
    assert_int_equal(r.evicted, 0);
    assert_int_equal(bwi_bucket_objects(j.w.bucket[NEAR]), objects);
    assert_int_equal(j.w.ctx.tier[NEAR]->ops[BWI_STORE_LOCK], 0);
    job_close(&j);
}

static void the_oldest_committed_goes_and_its_directory_with_it(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        struct job j;
        job_open(&j, seed == 0 ? 0 : test_seed(seed));
        struct bwi_room r = room_of(&j, j.bytes, 4 * j.bytes);
        room_ok(&j, &r);
        assert_true(r.fits);
        assert_int_equal(r.evicted, 1);
        assert_int_equal(r.evicted_bytes, j.bytes);
        assert_false(there(&j, &S1));
        assert_true(there(&j, &S2) && there(&j, &S3) && there(&j, &S4));
        assert_int_equal(below(&j.w, NEAR, bwi_key_checkpoint(j.w.ctx.run, &S1).s), 0);
        assert_false(locked(&j.w, &S1));
        job_close(&j);
    }
}

/* The disk has so many bytes left. */
static void leave_free(struct job *j, uint64_t bytes) {
    struct single s = {0};
    bwi_bucket_model(j->w.bucket[NEAR])->capacity_bytes = MUCH;
    bwi_call_prepare(&s.call, BWI_STORE_SPACE, NULL);
    single_run(&j->w, &s, NEAR);
    bwi_bucket_model(j->w.bucket[NEAR])->capacity_bytes = MUCH - s.call.op.free_bytes + bytes;
}

static void a_full_disk_makes_room_as_a_quota_does(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1);
    leave_free(&j, 100);
    struct bwi_room r = room_of(&j, j.bytes + 100, 0);
    room_ok(&j, &r);
    assert_true(r.fits);
    assert_int_equal(r.evicted, 1);
    assert_false(there(&j, &S1));
    job_close(&j);
}

/* Packs and what lies beside them share the disk: exactly what both need is enough, a byte less is not. */
static void what_lies_beside_the_packs_needs_room_on_the_disk_too(void **state) {
    (void)state;
    static const uint64_t beside[] = {0, 1, 4095, 4096, 64 * KIB, UINT64_C(1) << 33};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        for (int missing = 0; missing < 2; missing++) {
            struct job j;
            job_open(&j, 1);
            leave_free(&j, j.bytes + beside[i] - (uint64_t)missing);
            struct bwi_room r = room_of(&j, j.bytes, 0);
            r.beside_bytes = beside[i];
            room_ok(&j, &r);
            assert_true(r.fits);
            assert_int_equal(r.evicted, missing);
            assert_int_equal(there(&j, &S1), missing == 0);
            job_close(&j);
        }
    }
}

/* The quota is about packs. */
static void what_lies_beside_the_packs_is_not_counted_against_the_quota(void **state) {
    (void)state;
    static const uint64_t beside[] = {1, MIB, MUCH / 2};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        for (int missing = 0; missing < 2; missing++) {
            struct job j;
            job_open(&j, 1);
            leave_free(&j, MUCH);
            struct bwi_room r = room_of(&j, j.bytes, 5 * j.bytes - (uint64_t)missing);
            r.beside_bytes = beside[i];
            room_ok(&j, &r);
            assert_true(r.fits);
            assert_int_equal(r.evicted, missing);
            job_close(&j);
        }
    }
}

/* Evicting both that may go would free the packs' bytes, but not what is missing for the rest. */
static void what_lies_beside_the_packs_is_no_reason_to_evict_in_vain(void **state) {
    (void)state;
    static const uint64_t beside[] = {MIB, MUCH, UINT64_MAX};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        struct job j;
        job_open(&j, 1);
        leave_free(&j, 100);
        struct bwi_room r = room_of(&j, 2 * j.bytes, i % 2 == 0 ? 0 : MUCH);
        r.beside_bytes = beside[i];
        room_ok(&j, &r);
        assert_false(r.fits);
        assert_int_equal(r.evicted, 0);
        assert_true(there(&j, &S1) && there(&j, &S2));
        job_close(&j);
    }
}

/* How much leftovers free shows only when they are gone. */
static void leftovers_make_the_room_beside_the_packs_before_a_checkpoint_goes(void **state) {
    (void)state;
    struct job j;
    const struct bwi_id died = {5, 1, NONCE, 0};
    job_open(&j, 1);
    save_packs(&j.w, NEAR, &died, 0);
    past_register(&j.past, &j.w, "launch-2", NONCE_2, BWI_REGISTER_DEFAULT);
    leave_free(&j, j.bytes);
    struct bwi_room r = room_of(&j, j.bytes, 0);
    r.beside_bytes = 2 * j.bytes; /* of them one by step 4, which is dead, and one by what died */
    room_ok(&j, &r);
    assert_true(r.fits);
    assert_int_equal(r.evicted, 2);
    assert_false(there(&j, &S4));
    assert_int_equal(data_of(&j.w, NEAR, &died, 0), 0);
    assert_true(there(&j, &S1) && there(&j, &S2) && there(&j, &S3));
    job_close(&j);
}

static void the_newest_and_the_uncommitted_are_never_given_up(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1);
    struct bwi_room r = room_of(&j, 3 * j.bytes, 4 * j.bytes);
    room_ok(&j, &r);
    assert_false(r.fits);
    assert_int_equal(r.evicted, 0); /* it would be in vain */
    r = room_of(&j, 2 * j.bytes, 4 * j.bytes);
    room_ok(&j, &r);
    assert_true(r.fits);
    assert_int_equal(r.evicted, 2);
    assert_true(there(&j, &S3) && there(&j, &S4));
    job_close(&j);
}

static void without_a_history_nothing_may_go(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1);
    save_packs(&j.w, NEAR, &(struct bwi_id){9, 1, NONCE, 0}, 0);
    const size_t objects = bwi_bucket_objects(j.w.bucket[NEAR]);
    struct bwi_room r = room_of(&j, j.bytes, j.bytes);
    r.head = NULL;
    room_ok(&j, &r);
    assert_int_equal(r.evicted, 0);
    assert_int_equal(bwi_bucket_objects(j.w.bucket[NEAR]), objects);
    job_close(&j);
}

/* The second attempt went on from step 3: what the first one had not committed is dead. */
static void dead_data_goes_even_with_room_to_spare(void **state) {
    (void)state;
    struct job j;
    const struct bwi_id died = {5, 1, NONCE, 0}, now = {5, 2, NONCE_2, 0};
    job_open(&j, 1);
    save_packs(&j.w, NEAR, &died, 0);
    past_register(&j.past, &j.w, "launch-2", NONCE_2, BWI_REGISTER_DEFAULT);
    save_packs(&j.w, NEAR, &now, 0);
    struct bwi_room r = room_of(&j, 1, 0);
    room_ok(&j, &r);
    assert_true(r.fits);
    assert_int_equal(r.evicted, 2);
    assert_false(there(&j, &S4));
    assert_int_equal(data_of(&j.w, NEAR, &died, 0), 0);
    assert_true(data_of(&j.w, NEAR, &now, 0) > 0); /* somebody may be writing it */
    assert_true(there(&j, &S1) && there(&j, &S2) && there(&j, &S3));
    job_close(&j);
}

static void dead_data_to_which_something_kept_refers_stays(void **state) {
    (void)state;
    struct job j;
    const struct bwi_id now = {5, 2, NONCE_2, 0};
    job_open(&j, 1);
    past_register(&j.past, &j.w, "launch-2", NONCE_2, BWI_REGISTER_DEFAULT);
    (void)save_group(&j.w, NEAR, &now, 0, &LIFE, &S4);
    struct bwi_room r = room_of(&j, 1, 0);
    room_ok(&j, &r);
    assert_int_equal(r.evicted, 0);
    assert_true(there(&j, &S4));
    job_close(&j);
}

static void a_save_in_flight_is_left_alone(void **state) {
    (void)state;
    struct job j;
    const struct bwi_id busy[] = {S4, S1};
    job_open(&j, 1);
    past_register(&j.past, &j.w, "launch-2", NONCE_2, BWI_REGISTER_DEFAULT);
    struct bwi_room r = room_of(&j, j.bytes, 4 * j.bytes);
    r.busy = busy;
    r.busy_count = 2;
    room_ok(&j, &r);
    assert_true(r.fits);
    assert_int_equal(r.evicted, 1);
    assert_true(there(&j, &S4) && there(&j, &S1));
    assert_false(there(&j, &S2));
    job_close(&j);
}

static void another_life_of_the_run_is_left_alone(void **state) {
    (void)state;
    struct job j;
    const struct bwi_id old = {2, 1, 0x99, 0};
    job_open(&j, 1);
    (void)save_group(&j.w, NEAR, &old, 0, &OTHER_LIFE, NULL);
    struct bwi_room r = room_of(&j, j.bytes, 5 * j.bytes); /* it is not counted */
    room_ok(&j, &r);
    assert_true(r.fits);
    assert_int_equal(r.evicted, 0);
    assert_true(there(&j, &old));
    job_close(&j);
}

static void other_groups_are_left_alone_while_this_one_can_make_the_room(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1);
    (void)save_group(&j.w, NEAR, &S1, 1, &LIFE, NULL);
    save_packs(&j.w, NEAR, &(struct bwi_id){1, 1, NONCE, 7}, 1); /* dead, and of the other one */
    struct bwi_room r = room_of(&j, j.bytes, 4 * j.bytes);
    room_ok(&j, &r);
    assert_true(r.fits);
    assert_int_equal(r.evicted, 1);
    assert_false(there(&j, &S1));
    assert_true(has_summary(&j.w, NEAR, &S1, 1));
    assert_true(data_of(&j.w, NEAR, &S1, 1) > 0);
    assert_true(data_of(&j.w, NEAR, &(struct bwi_id){1, 1, NONCE, 7}, 1) > 0);
    job_close(&j);
}

/* ---- a disk that groups share ---- */

/* Another group's copies of all four, and a disk with so many bytes left. */
static void share(struct job *j, uint64_t seed, uint64_t free_bytes) {
    static const struct bwi_id *const saved[] = {&S1, &S2, &S3, &S4};
    job_open(j, seed);
    for (int i = 0; i < 4; i++) assert_int_equal(save_group(&j->w, NEAR, saved[i], 1, &LIFE, NULL), j->bytes);
    leave_free(j, free_bytes);
}

static bool other_there(struct job *j, const struct bwi_id *id) {
    const bool summary = has_summary(&j->w, NEAR, id, 1);
    assert_int_equal(data_of(&j->w, NEAR, id, 1) > 0, summary);
    return summary;
}

static void on_a_full_disk_old_copies_of_other_groups_go_after_its_own(void **state) {
    (void)state;
    for (uint64_t copies = 1; copies <= 5; copies++) {
        struct job j;
        share(&j, copies, 0);
        struct bwi_room r = room_of(&j, copies * j.bytes, copies > 4 ? 0 : 4 * j.bytes + copies * j.bytes);
        room_ok(&j, &r);
        assert_int_equal(r.fits, copies <= 4);
        const uint64_t gone = copies > 4 ? 0 : copies;
        assert_int_equal(r.evicted, gone);
        assert_int_equal(r.evicted_bytes, gone * j.bytes);
        assert_int_equal(there(&j, &S1), gone < 1);
        assert_int_equal(there(&j, &S2), gone < 2);
        assert_int_equal(other_there(&j, &S1), gone < 3);
        assert_int_equal(other_there(&j, &S2), gone < 4);
        assert_true(there(&j, &S3) && there(&j, &S4));
        assert_true(other_there(&j, &S3) && other_there(&j, &S4));
        job_close(&j);
    }
}

/* Nor are they looked at: a listing of everything for each save would be the price. */
static void other_groups_are_no_help_against_the_quota(void **state) {
    (void)state;
    struct job j;
    share(&j, 1, MUCH / 2);
    bwi_bucket_fail_next(j.w.bucket[NEAR], BWI_STORE_LIST, "/groups/", BW_E_IO, false);
    struct bwi_room r = room_of(&j, 3 * j.bytes, 4 * j.bytes);
    room_ok(&j, &r);
    assert_false(r.fits);
    assert_int_equal(r.evicted, 0);
    r = room_of(&j, MUCH / 4, 0);
    room_ok(&j, &r); /* nor while there is room */
    assert_true(r.fits);
    job_close(&j);
}

static void other_groups_copies_do_not_go_in_vain(void **state) {
    (void)state;
    struct job j;
    share(&j, 1, 0);
    struct bwi_room r = room_of(&j, 4 * j.bytes + 1, 0);
    room_ok(&j, &r);
    assert_false(r.fits);
    assert_int_equal(r.evicted, 0);
    job_close(&j);
}

/* In attempts with fan-out, and without. */
static void dead_data_of_other_groups_goes_before_their_checkpoints(void **state) {
    (void)state;
    const struct bwi_id died = {5, 1, NONCE, 0};
    const uint32_t far_group = 12;
    struct job j;
    share(&j, 1, 0);
    past_register(&j.past, &j.w, "launch-2", NONCE_2, BWI_REGISTER_DEFAULT); /* step 4 is dead, of both groups */
    const struct bwi_key spread = bwi_key_pack(j.w.ctx.run, true, &died, far_group, 0, 1);
    const struct bwi_key stray = bwi_key_pack(j.w.ctx.run, true, &died, 13, 0, 1);
    struct bwi_key wrong = stray; /* in a directory that is not its group's */
    memcpy(strstr(wrong.s, "/data/") + strlen("/data/"), strstr(spread.s, "/data/") + strlen("/data/"), 2);
    world_put(&j.w, NEAR, spread.s, bwi_span_str("a pack"));
    world_put(&j.w, NEAR, wrong.s, bwi_span_str("a pack"));
    leave_free(&j, 0);
    struct bwi_room r = room_of(&j, 4 * j.bytes, 0);
    room_ok(&j, &r);
    assert_true(r.fits);
    assert_int_equal(r.evicted, 5); /* of its own one that was dead and two that were old */
    assert_false(there(&j, &S4) || other_there(&j, &S4));
    assert_int_equal(below(&j.w, NEAR, spread.s), 0);
    assert_int_equal(below(&j.w, NEAR, wrong.s), 1);
    assert_true(other_there(&j, &S1) && other_there(&j, &S2));
    job_close(&j);
}

/* Step 4 of the other group may be committed, and refers to step 1 of whatever group. */
static void what_may_be_committed_keeps_what_it_needs_in_other_groups_too(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1);
    (void)save_group(&j.w, NEAR, &S1, 1, &LIFE, NULL);
    (void)save_group(&j.w, NEAR, &S2, 1, &LIFE, NULL);
    (void)save_group(&j.w, NEAR, &S4, 1, &LIFE, &S1);
    leave_free(&j, 0);
    struct bwi_room r = room_of(&j, 2 * j.bytes + 1, 0);
    room_ok(&j, &r);
    assert_false(r.fits);
    r = room_of(&j, 2 * j.bytes, 0);
    room_ok(&j, &r);
    assert_true(r.fits); /* by this group's own */
    assert_true(other_there(&j, &S1) && other_there(&j, &S2));
    r = room_of(&j, 3 * j.bytes, 0);
    room_ok(&j, &r);
    assert_true(r.fits);
    assert_true(other_there(&j, &S1) && other_there(&j, &S4));
    assert_false(other_there(&j, &S2));
    job_close(&j);
}

static void another_life_of_other_groups_is_left_alone(void **state) {
    (void)state;
    const struct bwi_id whole = {2, 1, 0x99, 0}, torn = {3, 1, 0x99, 0};
    struct job j;
    job_open(&j, 1);
    (void)save_group(&j.w, NEAR, &whole, 1, &OTHER_LIFE, NULL);
    save_packs(&j.w, NEAR, &torn, 1); /* perhaps it is being written */
    leave_free(&j, 0);
    struct bwi_room r = room_of(&j, 3 * j.bytes, 0);
    room_ok(&j, &r);
    assert_false(r.fits);
    assert_int_equal(r.evicted, 0);
    assert_true(other_there(&j, &whole));
    assert_true(data_of(&j.w, NEAR, &torn, 1) > 0);
    job_close(&j);
}

static void another_group_that_somebody_has_locked_is_passed_over(void **state) {
    (void)state;
    struct job j;
    share(&j, 1, 0);
    struct single s = {0};
    const struct bwi_key key = bwi_key_data_of(j.w.ctx.run, false, &S1, 1);
    bwi_call_prepare(&s.call, BWI_STORE_LOCK, key.s);
    single_run(&j.w, &s, NEAR);
    struct bwi_room r = room_of(&j, 3 * j.bytes, 0);
    room_ok(&j, &r);
    assert_true(r.fits);
    assert_true(other_there(&j, &S1));
    assert_false(other_there(&j, &S2));
    assert_false(there(&j, &S1)); /* its own of the same step is another matter */
    struct single u = {0};
    bwi_call_prepare(&u.call, BWI_STORE_UNLOCK, key.s);
    u.call.op.lock = s.call.op.lock;
    single_run(&j.w, &u, NEAR);
    job_close(&j);
}

static void what_other_groups_have_and_cannot_be_read_is_an_error(void **state) {
    (void)state;
    static const struct {
        enum bwi_store_verb verb;
        const char *part;
    } at[] = {{BWI_STORE_LIST, "/groups/"}, {BWI_STORE_GET, "/groups/000001"}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        struct job j;
        share(&j, 1, 0);
        const size_t objects = bwi_bucket_objects(j.w.bucket[NEAR]);
        bwi_bucket_fail_next(j.w.bucket[NEAR], at[i].verb, at[i].part, BW_E_IO, false);
        struct bwi_room r = room_of(&j, 3 * j.bytes, 0);
        room_run(&j, &r);
        assert_fails(r.task.error.status, BW_E_IO, &r.task.error, "making room for group 0: ");
        assert_false(r.fits);
        assert_int_equal(bwi_bucket_objects(j.w.bucket[NEAR]), objects);
        job_close(&j);
    }
}

static void among_other_groups_it_can_be_cancelled_or_stopped_at_any_moment(void **state) {
    (void)state;
    bool whole = false;
    for (int turns = 0; !whole; turns++) {
        struct job j;
        share(&j, 5, 0);
        struct bwi_room r = room_of(&j, 4 * j.bytes, 0);
        bwi_room_start(&r, j.w.loop, NULL);
        for (int i = 0; i < turns && r.task.running; i++) world_turn(&j.w);
        whole = !r.task.running;
        bwi_task_cancel(&r.task);
        world_run(&j.w);
        if (r.task.error.status < 0) assert_fails(r.task.error.status, BW_E_CANCELLED, &r.task.error, "cancelled");
        assert_false(locked(&j.w, &S1) || locked(&j.w, &S2));
        (void)check_tier(&j.w, NEAR);
        job_close(&j);
        assert_true(turns < 1000);
    }
    whole = false;
    for (uint64_t ops = 0; !whole; ops++) {
        struct job j;
        share(&j, ops + 1, 0);
        machine_stops_after(&j.w, ops, ops % 2 == 0);
        struct bwi_room r = room_of(&j, 4 * j.bytes, 0);
        room_run(&j, &r);
        machine_starts(&j.w);
        whole = machine.left > 0;
        (void)check_tier(&j.w, NEAR);
        r = room_of(&j, 4 * j.bytes, 0);
        room_ok(&j, &r);
        assert_true(r.fits);
        assert_true(there(&j, &S3) && there(&j, &S4) && other_there(&j, &S3) && other_there(&j, &S4));
        job_close(&j);
        assert_true(ops < 200);
    }
}

static void among_other_groups_it_may_run_out_of_memory(void **state) {
    (void)state;
    bool whole = false;
    for (unsigned long n = 1; !whole; n++) {
        struct job j;
        share(&j, 1, 0);
        struct bwi_room r = room_of(&j, 4 * j.bytes, 0);
        (void)bwi_alloc_fail_at(n);
        room_run(&j, &r);
        whole = bwi_alloc_fail_at(0) < n;
        if (r.task.error.status < 0) assert_int_equal(r.task.error.status, BW_E_NOMEM);
        (void)check_tier(&j.w, NEAR);
        job_close(&j);
        assert_true(n < 2000);
    }
}

static void a_group_that_somebody_has_locked_is_passed_over(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1);
    struct single s = {0};
    bwi_call_prepare(&s.call, BWI_STORE_LOCK, bwi_key_data_of(j.w.ctx.run, false, &S1, 0).s);
    single_run(&j.w, &s, NEAR);
    struct bwi_room r = room_of(&j, j.bytes, 4 * j.bytes);
    room_ok(&j, &r);
    assert_true(r.fits);
    assert_true(there(&j, &S1));
    assert_false(there(&j, &S2));
    r = room_of(&j, 2 * j.bytes, 4 * j.bytes);
    room_ok(&j, &r);
    assert_false(r.fits); /* and that is no error */
    struct single u = {0};
    bwi_call_prepare(&u.call, BWI_STORE_UNLOCK, bwi_key_data_of(j.w.ctx.run, false, &S1, 0).s);
    u.call.op.lock = s.call.op.lock;
    single_run(&j.w, &u, NEAR);
    job_close(&j);
}

static void a_full_disk_that_takes_no_lock_is_evicted_all_the_same(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1);
    bwi_bucket_fail_next(j.w.bucket[NEAR], BWI_STORE_LOCK, NULL, BW_E_NOSPACE, false);
    struct bwi_room r = room_of(&j, j.bytes, 4 * j.bytes);
    room_ok(&j, &r);
    assert_true(r.fits);
    assert_false(there(&j, &S1));
    job_close(&j);
}

/* The summary is no copy, so the packs are leftovers: of the newest they stay. */
static void a_damaged_summary_is_no_copy(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1);
    world_put(&j.w, NEAR, bwi_key_summary(j.w.ctx.run, &S1, 0).s, bwi_span("damaged", 7));
    world_put(&j.w, NEAR, bwi_key_summary(j.w.ctx.run, &S3, 0).s, bwi_span("damaged", 7));
    struct bwi_room r = room_of(&j, 1, 0);
    room_run(&j, &r);
    assert_ok(r.task.error.status, &r.task.error);
    assert_int_equal(r.evicted, 1);
    assert_false(has_summary(&j.w, NEAR, &S1, 0));
    assert_int_equal(data_of(&j.w, NEAR, &S1, 0), 0);
    assert_true(data_of(&j.w, NEAR, &S3, 0) > 0);
    job_close(&j);
}

static void layouts_go_with_the_last_checkpoint_of_a_past_attempt(void **state) {
    (void)state;
    struct job j;
    const struct bwi_id next = {5, 2, NONCE_2, 0};
    job_open(&j, 1);
    const struct bwi_key old = bwi_key_layouts_of(j.w.ctx.run, 1, NONCE);
    const struct bwi_key new = bwi_key_layouts_of(j.w.ctx.run, 2, NONCE_2);
    past_register(&j.past, &j.w, "launch-2", NONCE_2, BWI_REGISTER_DEFAULT);
    (void)save_group(&j.w, NEAR, &next, 0, &LIFE, NULL);
    past_commit(&j.past, &j.w, &next, NULL);
    struct bwi_room r = room_of(&j, 0, 2 * j.bytes);
    room_ok(&j, &r);
    assert_true(there(&j, &S3));
    assert_int_equal(below(&j.w, NEAR, old.s), 1);
    r = room_of(&j, j.bytes, 2 * j.bytes);
    room_ok(&j, &r);
    assert_false(there(&j, &S3));
    assert_true(there(&j, &next));
    assert_int_equal(below(&j.w, NEAR, old.s), 0);
    assert_int_equal(below(&j.w, NEAR, new.s), 1);
    job_close(&j);
}

/* ---- failures ---- */

static void what_cannot_be_deleted_is_an_error_only_if_it_is_needed(void **state) {
    (void)state;
    static const enum bwi_store_verb verbs[] = {BWI_STORE_LOCK, BWI_STORE_DELETE, BWI_STORE_SYNC,
                                                BWI_STORE_DELETE_PREFIX};
    for (int i = 0; i < 4; i++) {
        for (int needed = 0; needed < 2; needed++) {
            struct job j;
            job_open(&j, 1);
            bwi_bucket_fail_next(j.w.bucket[NEAR], verbs[i], NULL, BW_E_IO, false);
            struct bwi_room r = room_of(&j, needed ? 2 * j.bytes : j.bytes, 4 * j.bytes);
            room_run(&j, &r);
            if (needed) {
                assert_fails(r.task.error.status, BW_E_IO, &r.task.error, "making room for group 0: ");
                assert_false(r.fits);
            } else {
                assert_ok(r.task.error.status, &r.task.error);
                assert_true(r.fits);
            }
            assert_false(locked(&j.w, &S1));
            (void)check_tier(&j.w, NEAR);
            job_close(&j);
        }
    }
}

static void what_cannot_be_read_is_an_error(void **state) {
    (void)state;
    static const struct {
        enum bwi_store_verb verb;
        const char *part;
    } at[] = {{BWI_STORE_LIST, "/checkpoints/"},
              {BWI_STORE_LIST, "/data/"},
              {BWI_STORE_GET, "/groups/"},
              {BWI_STORE_SPACE, NULL}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        struct job j;
        job_open(&j, 1);
        const size_t objects = bwi_bucket_objects(j.w.bucket[NEAR]);
        bwi_bucket_fail_next(j.w.bucket[NEAR], at[i].verb, at[i].part, BW_E_IO, false);
        struct bwi_room r = room_of(&j, j.bytes, 4 * j.bytes);
        room_run(&j, &r);
        assert_fails(r.task.error.status, BW_E_IO, &r.task.error, "making room for group 0: ");
        assert_false(r.fits);
        assert_int_equal(bwi_bucket_objects(j.w.bucket[NEAR]), objects);
        job_close(&j);
    }
}

static void cancelled_at_any_moment_it_ends_and_lets_go(void **state) {
    (void)state;
    bool whole = false;
    for (int turns = 0; !whole; turns++) {
        struct job j;
        job_open(&j, 5);
        struct bwi_room r = room_of(&j, 2 * j.bytes, 4 * j.bytes);
        bwi_room_start(&r, j.w.loop, NULL);
        for (int i = 0; i < turns && r.task.running; i++) world_turn(&j.w);
        whole = !r.task.running;
        bwi_task_cancel(&r.task);
        world_run(&j.w);
        if (r.task.error.status < 0) assert_fails(r.task.error.status, BW_E_CANCELLED, &r.task.error, "cancelled");
        assert_false(locked(&j.w, &S1) || locked(&j.w, &S2));
        (void)check_tier(&j.w, NEAR);
        job_close(&j);
        assert_true(turns < 500);
    }
}

static void stopped_anywhere_the_next_one_finishes_the_job(void **state) {
    (void)state;
    bool whole = false;
    for (uint64_t ops = 0; !whole; ops++) {
        for (int effect = 0; effect < 2; effect++) {
            struct job j;
            job_open(&j, ops + 1);
            machine_stops_after(&j.w, ops, effect);
            struct bwi_room r = room_of(&j, 2 * j.bytes, 4 * j.bytes);
            room_run(&j, &r);
            machine_starts(&j.w);
            whole = machine.left > 0;
            (void)check_tier(&j.w, NEAR);
            r = room_of(&j, 2 * j.bytes, 4 * j.bytes);
            room_ok(&j, &r);
            assert_true(r.fits);
            assert_false(there(&j, &S1) || there(&j, &S2));
            assert_true(there(&j, &S3) && there(&j, &S4));
            job_close(&j);
        }
        assert_true(ops < 100);
    }
}

static void without_memory_it_fails_and_leaves_a_sound_tier(void **state) {
    (void)state;
    bool whole = false;
    for (unsigned long n = 1; !whole; n++) {
        struct job j;
        job_open(&j, 1);
        struct bwi_room r = room_of(&j, 2 * j.bytes, 4 * j.bytes);
        (void)bwi_alloc_fail_at(n);
        room_run(&j, &r);
        whole = bwi_alloc_fail_at(0) < n;
        if (r.task.error.status < 0) assert_int_equal(r.task.error.status, BW_E_NOMEM);
        (void)check_tier(&j.w, NEAR);
        assert_false(locked(&j.w, &S1) || locked(&j.w, &S2));
        job_close(&j);
        assert_true(n < 1000);
    }
}

static void on_a_directory_nothing_is_left_of_what_was_evicted(void **state) {
    (void)state;
    struct job j = {0};
    world_open_dirs(&j.w, bwi_os_system(), MIB);
    past_begin(&j.past, &j.w);
    past_register(&j.past, &j.w, "launch-1", NONCE, BWI_REGISTER_DEFAULT);
    j.bytes = save_group(&j.w, NEAR, &S1, 0, &LIFE, NULL);
    (void)save_group(&j.w, NEAR, &S2, 0, &LIFE, NULL);
    save_packs(&j.w, NEAR, &(struct bwi_id){1, 1, NONCE, 7}, 0);
    past_commit(&j.past, &j.w, &S1, NULL);
    past_commit(&j.past, &j.w, &S2, NULL);
    struct bwi_room r = room_of(&j, j.bytes, 2 * j.bytes);
    room_run(&j, &r);
    assert_ok(r.task.error.status, &r.task.error);
    assert_true(r.fits);
    assert_int_equal(r.evicted, 2);
    struct single s = {0};
    bwi_call_prepare(&s.call, BWI_STORE_LIST, "runs/run/data/00/");
    single_run(&j.w, &s, NEAR);
    assert_int_equal(s.call.op.names.len, 1);
    bwi_call_prepare(&s.call, BWI_STORE_LIST, "runs/run/checkpoints/");
    s.sent = false;
    single_run(&j.w, &s, NEAR);
    assert_int_equal(s.call.op.names.len, 1);
    assert_string_equal(s.call.op.names.name[0], "00000000000000000002.1-1234abcd.0/");
    bwi_call_fini(&s.call);
    job_close(&j);
}

/* ---- holds ---- */

static void holds_run(struct world *w, struct bwi_holds *h) {
    bwi_holds_start(h, w->loop, NULL);
    world_run(w);
    assert_int_equal(h->task.pending, 0);
}

static void the_holds_are_all_sound_summaries_in_order(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 5; seed++) {
        struct job j;
        const struct bwi_id late = {3, 10, 0x77, 0}, early = {3, 9, 0x77, 0}; /* "10" sorts before "9" as text */
        job_open(&j, seed == 0 ? 0 : test_seed(seed));
        (void)save_group(&j.w, NEAR, &late, 0, &OTHER_LIFE, &S1);
        (void)save_group(&j.w, NEAR, &early, 12, &LIFE, NULL);
        (void)save_group(&j.w, NEAR, &early, 2, &LIFE, NULL);
        save_packs(&j.w, NEAR, &(struct bwi_id){8, 1, NONCE, 0}, 0);
        world_put(&j.w, NEAR, bwi_key_summary(j.w.ctx.run, &S2, 0).s, bwi_span("damaged", 7));
        struct bwi_span other;
        assert_true(bwi_bucket_get(j.w.bucket[NEAR], bwi_key_summary(j.w.ctx.run, &S1, 0).s, &other));
        world_put(&j.w, NEAR, bwi_key_summary(j.w.ctx.run, &S1, 5).s, other); /* another group's */
        world_put(&j.w, NEAR, "runs/run/checkpoints/junk/groups/000001", bwi_span("x", 1));
        struct bwi_holds h = {.ctx = &j.w.ctx};
        holds_run(&j.w, &h);
        assert_ok(h.task.error.status, &h.task.error);
        assert_int_equal(h.count, 6);
        const struct bwi_id want[] = {S1, S3, early, early, late, S4};
        const uint32_t groups[] = {0, 0, 2, 12, 0, 0};
        for (size_t i = 0; i < 6; i++) {
            assert_true(bwi_id_eq(&h.list[i].id, &want[i]));
            assert_int_equal(h.list[i].group, groups[i]);
        }
        assert_true(bwi_uuid_eq(&h.list[4].uuid, &OTHER_LIFE));
        assert_int_equal(h.list[4].ref_count, 1);
        bwi_holds_fini(&h);
        bwi_holds_fini(&h);
        job_close(&j);
    }
    bwi_holds_fini(NULL);
}

static void nothing_held_is_an_empty_list_and_another_store_can_be_asked(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1);
    struct bwi_holds h = {.ctx = &j.w.ctx, .store = j.w.ctx.tier[BWI_TIER_REMOTE]};
    holds_run(&j.w, &h);
    assert_ok(h.task.error.status, &h.task.error);
    assert_int_equal(h.count, 0);
    (void)save_group(&j.w, BWI_TIER_REMOTE, &S1, 0, &LIFE, NULL);
    holds_run(&j.w, &h);
    assert_int_equal(h.count, 1);
    bwi_holds_fini(&h);
    job_close(&j);
}

static void holds_that_cannot_be_read_are_an_error(void **state) {
    (void)state;
    for (uint64_t ops = 0; ops < 9; ops++) {
        struct job j;
        job_open(&j, 1);
        machine_stops_after(&j.w, ops, false);
        struct bwi_holds h = {.ctx = &j.w.ctx};
        holds_run(&j.w, &h);
        machine_starts(&j.w);
        assert_fails(h.task.error.status, BW_E_IO, &h.task.error, "looking for complete groups: ");
        assert_int_equal(h.count, 0);
        assert_null(h.list);
        job_close(&j);
    }
}

static void holds_end_when_they_are_cancelled_or_out_of_memory(void **state) {
    (void)state;
    struct job j;
    job_open(&j, 1);
    struct bwi_holds h = {.ctx = &j.w.ctx};
    bwi_holds_start(&h, j.w.loop, NULL);
    bwi_task_cancel(&h.task);
    world_run(&j.w);
    assert_int_equal(h.task.error.status, BW_E_CANCELLED);
    const uint64_t *gets = &j.w.ctx.tier[NEAR]->ops[BWI_STORE_GET];
    h.pass_over = true;
    for (uint64_t n = 1, made = n, armed = UINT64_MAX; made + 1 >= n; n++) { /* and one cannot be read */
        if (armed != *gets) bwi_bucket_fail_next(j.w.bucket[NEAR], BWI_STORE_GET, NULL, BW_E_IO, false);
        armed = *gets;
        (void)bwi_alloc_fail_at(n);
        holds_run(&j.w, &h);
        made = bwi_alloc_fail_at(0);
        if (made < n) assert_true(h.count == 3 && h.unread_count == 1);
        if (h.task.error.status < 0) assert_int_equal(h.task.error.status, BW_E_NOMEM);
        bwi_holds_fini(&h);
        assert_true(n < 500);
    }
    job_close(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_deleted_while_there_is_room),
        cmocka_unit_test(the_oldest_committed_goes_and_its_directory_with_it),
        cmocka_unit_test(a_full_disk_makes_room_as_a_quota_does),
        cmocka_unit_test(what_lies_beside_the_packs_needs_room_on_the_disk_too),
        cmocka_unit_test(what_lies_beside_the_packs_is_not_counted_against_the_quota),
        cmocka_unit_test(what_lies_beside_the_packs_is_no_reason_to_evict_in_vain),
        cmocka_unit_test(leftovers_make_the_room_beside_the_packs_before_a_checkpoint_goes),
        cmocka_unit_test(the_newest_and_the_uncommitted_are_never_given_up),
        cmocka_unit_test(without_a_history_nothing_may_go),
        cmocka_unit_test(dead_data_goes_even_with_room_to_spare),
        cmocka_unit_test(dead_data_to_which_something_kept_refers_stays),
        cmocka_unit_test(a_save_in_flight_is_left_alone),
        cmocka_unit_test(another_life_of_the_run_is_left_alone),
        cmocka_unit_test(other_groups_are_left_alone_while_this_one_can_make_the_room),
        cmocka_unit_test(on_a_full_disk_old_copies_of_other_groups_go_after_its_own),
        cmocka_unit_test(other_groups_are_no_help_against_the_quota),
        cmocka_unit_test(other_groups_copies_do_not_go_in_vain),
        cmocka_unit_test(dead_data_of_other_groups_goes_before_their_checkpoints),
        cmocka_unit_test(what_may_be_committed_keeps_what_it_needs_in_other_groups_too),
        cmocka_unit_test(another_life_of_other_groups_is_left_alone),
        cmocka_unit_test(another_group_that_somebody_has_locked_is_passed_over),
        cmocka_unit_test(what_other_groups_have_and_cannot_be_read_is_an_error),
        cmocka_unit_test(among_other_groups_it_can_be_cancelled_or_stopped_at_any_moment),
        cmocka_unit_test(among_other_groups_it_may_run_out_of_memory),
        cmocka_unit_test(a_group_that_somebody_has_locked_is_passed_over),
        cmocka_unit_test(a_full_disk_that_takes_no_lock_is_evicted_all_the_same),
        cmocka_unit_test(a_damaged_summary_is_no_copy),
        cmocka_unit_test(layouts_go_with_the_last_checkpoint_of_a_past_attempt),
        cmocka_unit_test(what_cannot_be_deleted_is_an_error_only_if_it_is_needed),
        cmocka_unit_test(what_cannot_be_read_is_an_error),
        cmocka_unit_test(cancelled_at_any_moment_it_ends_and_lets_go),
        cmocka_unit_test(stopped_anywhere_the_next_one_finishes_the_job),
        cmocka_unit_test(without_memory_it_fails_and_leaves_a_sound_tier),
        cmocka_unit_test(on_a_directory_nothing_is_left_of_what_was_evicted),
        cmocka_unit_test(the_holds_are_all_sound_summaries_in_order),
        cmocka_unit_test(nothing_held_is_an_empty_list_and_another_store_can_be_asked),
        cmocka_unit_test(holds_that_cannot_be_read_are_an_error),
        cmocka_unit_test(holds_end_when_they_are_cancelled_or_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
