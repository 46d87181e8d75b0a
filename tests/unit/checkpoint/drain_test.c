/* SPDX-License-Identifier: Apache-2.0 */
/* Draining a group: byte for byte, once, whoever else does it, whatever stops it. */
#include "checkpoint/drain.h"
#include "group_fixture.h"
#include "os/os.h"

#define GROUP 3

static const enum bwi_tier NEAR = BWI_TIER_LOCAL;
static const enum bwi_tier FAR = BWI_TIER_REMOTE;
static const char WHO[] = "drain 00000000000000000007.1-1234abcd.0 group 3: ";

static struct bwi_drain drain_of(struct world *w) {
    return (struct bwi_drain){.ctx = &w->ctx, .id = ID, .group = GROUP};
}

static void drain_run(struct world *w, struct bwi_drain *d) {
    bwi_drain_start(d, w->loop, NULL);
    world_run(w);
    assert_int_equal(d->task.pending, 0);
}

/* Everything of the group lies in both tiers with the same bytes. */
static void check_same(const struct world *w) {
    for (size_t i = 0; i < bwi_bucket_objects(w->bucket[NEAR]); i++) {
        const char *key = bwi_bucket_key(w->bucket[NEAR], i);
        struct bwi_span near, far;
        assert_true(bwi_bucket_get(w->bucket[NEAR], key, &near));
        if (!bwi_bucket_get(w->bucket[FAR], key, &far)) fail_msg("\"%s\" is missing", key);
        assert_true(bwi_span_eq(near, far));
    }
    assert_int_equal(bwi_bucket_objects(w->bucket[NEAR]), bwi_bucket_objects(w->bucket[FAR]));
}

/* Nobody holds the lock any more. */
static void check_unlocked(struct world *w) {
    struct single s = {0};
    bwi_call_prepare(&s.call, BWI_STORE_LOCK, bwi_key_data_of(w->ctx.run, false, &ID, GROUP).s);
    single_run(w, &s, NEAR);
    assert_ok(s.call.op.error.status, &s.call.op.error);
    struct single u = {0};
    bwi_call_prepare(&u.call, BWI_STORE_UNLOCK, bwi_key_data_of(w->ctx.run, false, &ID, GROUP).s);
    u.call.op.lock = s.call.op.lock;
    single_run(w, &u, NEAR);
}

static void open_saved(struct world *w, uint64_t seed) {
    world_open(w, seed, 64 * KIB);
    (void)save_group(w, NEAR, &ID, GROUP, &LIFE, NULL);
}

static void a_group_comes_over_byte_for_byte(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct world w;
        open_saved(&w, seed == 0 ? 0 : test_seed(seed));
        struct bwi_drain d = drain_of(&w);
        drain_run(&w, &d);
        assert_ok(d.task.error.status, &d.task.error);
        assert_false(d.was_complete);
        assert_int_equal(d.objects, 6); /* two packs, layout, content, placement, summary */
        assert_true(d.bytes > 18000);
        check_same(&w);
        check_unlocked(&w);
        assert_int_equal(check_tier(&w, FAR), 1);
        world_close(&w);
    }
    assert_int_equal(bwi_alloc_live(), live);
}

static void drained_again_it_copies_nothing(void **state) {
    (void)state;
    struct world w;
    open_saved(&w, 1);
    struct bwi_drain d = drain_of(&w);
    drain_run(&w, &d);
    const uint64_t begun = w.ctx.tier[FAR]->ops[BWI_STORE_BEGIN];
    d = drain_of(&w);
    drain_run(&w, &d);
    assert_ok(d.task.error.status, &d.task.error);
    assert_true(d.was_complete);
    assert_int_equal(d.objects, 0);
    assert_int_equal(d.bytes, 0);
    assert_int_equal(w.ctx.tier[FAR]->ops[BWI_STORE_BEGIN], begun);
    check_unlocked(&w);
    world_close(&w);
}

static void a_known_layout_is_not_sent(void **state) {
    (void)state;
    struct world w;
    open_saved(&w, 1);
    struct bwi_drain d = drain_of(&w);
    d.layout_known = true;
    drain_run(&w, &d);
    assert_ok(d.task.error.status, &d.task.error);
    assert_int_equal(d.objects, 5);
    assert_int_equal(below(&w, FAR, bwi_key_layouts(w.ctx.run).s), 0);
    world_close(&w);
}

/* Names that somebody else made are durable before a summary counts on them. */
static void packs_that_are_there_are_not_copied_but_synced(void **state) {
    (void)state;
    struct world w;
    open_saved(&w, 1);
    bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_CREATE, "/groups/", BW_E_IO, false);
    struct bwi_drain d = drain_of(&w);
    drain_run(&w, &d);
    assert_fails(d.task.error.status, BW_E_IO, &d.task.error, WHO);
    assert_int_equal(w.ctx.tier[FAR]->ops[BWI_STORE_SYNC], 0);
    d = drain_of(&w);
    drain_run(&w, &d);
    assert_ok(d.task.error.status, &d.task.error);
    assert_int_equal(d.objects, 1);
    assert_int_equal(d.bytes, 0);
    assert_int_equal(w.ctx.tier[FAR]->ops[BWI_STORE_SYNC], 1);
    check_same(&w);
    world_close(&w);
}

static void a_sync_that_fails_is_no_success(void **state) {
    (void)state;
    struct world w;
    open_saved(&w, 1);
    bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_CREATE, "/groups/", BW_E_IO, false);
    bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_SYNC, NULL, BW_E_IO, false);
    for (int i = 0; i < 2; i++) {
        struct bwi_drain d = drain_of(&w);
        drain_run(&w, &d);
        assert_fails(d.task.error.status, BW_E_IO, &d.task.error, WHO);
        assert_int_equal(check_tier(&w, FAR), 0);
    }
    check_unlocked(&w);
    world_close(&w);
}

static void what_is_nowhere_is_not_found_and_leaves_no_directory(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1, 64 * KIB);
    struct bwi_drain d = drain_of(&w);
    drain_run(&w, &d);
    assert_fails(d.task.error.status, BW_E_NOTFOUND, &d.task.error, WHO);
    assert_int_equal(w.ctx.tier[NEAR]->ops[BWI_STORE_LOCK], 0);
    world_close(&w);
}

static void what_only_the_authority_has_is_complete(void **state) {
    (void)state;
    struct world w;
    world_open(&w, 1, 64 * KIB);
    (void)save_group(&w, FAR, &ID, GROUP, &LIFE, NULL);
    struct bwi_drain d = drain_of(&w);
    drain_run(&w, &d);
    assert_ok(d.task.error.status, &d.task.error);
    assert_true(d.was_complete);
    world_close(&w);
}

static void another_content_in_the_authority_is_refused(void **state) {
    (void)state;
    struct world w;
    struct made m;
    open_saved(&w, 1);
    made_open(&m, &w, FAR, &ID, GROUP, 99);
    made_put(&m, &w, FAR);
    made_close(&m);
    struct bwi_drain d = drain_of(&w);
    drain_run(&w, &d);
    assert_fails(d.task.error.status, BW_E_EXISTS, &d.task.error, WHO);
    check_unlocked(&w);
    world_close(&w);
}

/* Flips a byte in the middle of an object. */
static void damage(struct world *w, enum bwi_tier tier, const char *key) {
    struct bwi_buf bytes = {0};
    assert_true(world_get(w, tier, key, &bytes));
    bytes.ptr[bytes.len / 2] ^= 1;
    world_put(w, tier, key, bwi_buf_span(&bytes));
    bwi_buf_fini(&bytes);
}

static void any_damaged_local_object_is_damage_and_never_goes_over(void **state) {
    (void)state;
    struct world w;
    open_saved(&w, 1);
    const size_t objects = bwi_bucket_objects(w.bucket[NEAR]);
    world_close(&w);
    for (size_t i = 0; i < objects; i++) {
        open_saved(&w, i + 1);
        damage(&w, NEAR, bwi_bucket_key(w.bucket[NEAR], i));
        struct bwi_drain d = drain_of(&w);
        drain_run(&w, &d);
        assert_true(d.task.error.status == BW_E_CORRUPT || d.task.error.status == BW_E_FORMAT);
        assert_non_null(strstr(d.task.error.message, WHO));
        assert_int_equal(check_tier(&w, FAR), 0);
        check_unlocked(&w);
        world_close(&w);
    }
}

static void a_damaged_local_copy_does_not_matter_once_the_authority_has_it(void **state) {
    (void)state;
    struct world w;
    open_saved(&w, 1);
    struct bwi_drain d = drain_of(&w);
    drain_run(&w, &d);
    assert_ok(d.task.error.status, &d.task.error);
    damage(&w, NEAR, bwi_key_summary(w.ctx.run, &ID, GROUP).s);
    d = drain_of(&w);
    drain_run(&w, &d);
    assert_ok(d.task.error.status, &d.task.error);
    assert_true(d.was_complete);
    bwi_bucket_fail_next(w.bucket[NEAR], BWI_STORE_HEAD, "/groups/", BW_E_CORRUPT, false); /* no file in its place */
    d = drain_of(&w);
    drain_run(&w, &d);
    assert_ok(d.task.error.status, &d.task.error);
    assert_true(d.was_complete);
    world_close(&w);
}

static void a_damaged_summary_in_the_authority_is_named(void **state) {
    (void)state;
    struct world w;
    open_saved(&w, 1);
    world_put(&w, FAR, bwi_key_summary(w.ctx.run, &ID, GROUP).s, bwi_span("damaged", 7));
    struct bwi_drain d = drain_of(&w);
    drain_run(&w, &d);
    assert_true(d.task.error.status < 0);
    assert_non_null(strstr(d.task.error.message, "remote tier: "));
    check_unlocked(&w);
    world_close(&w);
}

/* ---- packs of other checkpoints ---- */

static const struct bwi_id BASE = {5, 1, 0x1234abcd, 0};

/* A group of ID whose first pack is one of BASE. */
static struct bwi_key save_referring(struct world *w, uint64_t *ret_bytes) {
    struct made base, m;
    made_open(&base, w, NEAR, &BASE, GROUP, 1);
    made_put(&base, w, NEAR);
    made_open(&m, w, NEAR, &ID, GROUP, 1);
    m.sum.refs[m.sum.ref_count++] = BASE;
    const struct bwi_key own = m.keys[0];
    const struct bwi_key other = base.keys[0];
    *ret_bytes = m.s.plan.packs[0].file_bytes;
    /* the placement names the base's pack: both have the same bytes */
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_placement p = {0};
    struct bwi_buf bytes = {0};
    assert_ok(bwi_placement_decode(bwi_buf_span(&m.placement), &p, &err), &err);
    p.packs[0].key = bwi_span_str(other.s);
    assert_ok(bwi_placement_encode(&p, &bytes, &err), &err);
    bwi_placement_fini(&p);
    bwi_buf_fini(&m.placement);
    m.placement = bytes;
    m.sum.placement = bwi_sha_of(bwi_buf_span(&bytes));
    m.sum.placement_bytes = bytes.len;
    assert_true(bwi_bucket_remove(w->bucket[NEAR], own.s));
    made_put(&m, w, NEAR);
    made_close(&base);
    made_close(&m);
    return other;
}

static void a_pack_of_another_checkpoint_must_be_in_the_authority(void **state) {
    (void)state;
    struct world w;
    uint64_t bytes;
    world_open(&w, 1, 64 * KIB);
    const struct bwi_key other = save_referring(&w, &bytes);
    struct bwi_drain d = drain_of(&w);
    drain_run(&w, &d);
    assert_fails(d.task.error.status, BW_E_NOTFOUND, &d.task.error, other.s);
    world_put(&w, FAR, other.s, bwi_span("short", 5));
    d = drain_of(&w);
    drain_run(&w, &d);
    assert_fails(d.task.error.status, BW_E_NOTFOUND, &d.task.error, other.s);
    bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_HEAD, other.s, BW_E_CORRUPT, false); /* no file in its place */
    d = drain_of(&w);
    drain_run(&w, &d);
    assert_fails(d.task.error.status, BW_E_NOTFOUND, &d.task.error, other.s);
    assert_int_equal(check_tier(&w, FAR), 0);
    assert_true(bwi_bucket_remove(w.bucket[FAR], other.s));
    d = (struct bwi_drain){.ctx = &w.ctx, .id = BASE, .group = GROUP};
    drain_run(&w, &d);
    assert_ok(d.task.error.status, &d.task.error);
    d = drain_of(&w);
    drain_run(&w, &d);
    assert_ok(d.task.error.status, &d.task.error);
    assert_int_equal(check_tier(&w, FAR), 2);
    check_same(&w);
    world_close(&w);
}

/* ---- others ---- */

static void two_drains_of_one_group_end_with_one_copy(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed < 60; seed++) {
        struct world w;
        open_saved(&w, test_seed(seed));
        bwi_bucket_model(w.bucket[FAR])->jitter_ns = seed % 2 == 0 ? 5000 : 200 * BWI_NS_PER_MS;
        struct bwi_drain d[2] = {drain_of(&w), drain_of(&w)};
        bwi_drain_start(&d[0], w.loop, NULL);
        bwi_drain_start(&d[1], w.loop, NULL);
        world_run(&w);
        for (int i = 0; i < 2; i++) assert_ok(d[i].task.error.status, &d[i].task.error);
        assert_int_equal(d[0].was_complete + d[1].was_complete, 1);
        assert_int_equal(d[0].objects + d[1].objects, 6);
        check_same(&w);
        check_unlocked(&w);
        world_close(&w);
    }
}

static void a_drain_waits_for_another_one_and_ends_when_the_summary_appears(void **state) {
    (void)state;
    struct world w;
    open_saved(&w, 1);
    struct single s = {0};
    bwi_call_prepare(&s.call, BWI_STORE_LOCK, bwi_key_data_of(w.ctx.run, false, &ID, GROUP).s);
    single_run(&w, &s, NEAR);
    struct bwi_drain d = drain_of(&w);
    bwi_drain_start(&d, w.loop, NULL);
    const uint64_t until = w.env.now + 20 * BWI_NS_PER_S;
    while (w.env.now < until) world_turn(&w);
    assert_true(d.task.running);
    assert_in_range(w.ctx.tier[NEAR]->ops[BWI_STORE_LOCK], 8, 30); /* it asks less and less often */
    const struct bwi_key key = bwi_key_summary(w.ctx.run, &ID, GROUP);
    struct bwi_span summary;
    assert_true(bwi_bucket_get(w.bucket[NEAR], key.s, &summary));
    world_put(&w, FAR, key.s, summary);
    world_run(&w);
    assert_ok(d.task.error.status, &d.task.error);
    assert_true(d.was_complete);
    struct single u = {0};
    bwi_call_prepare(&u.call, BWI_STORE_UNLOCK, bwi_key_data_of(w.ctx.run, false, &ID, GROUP).s);
    u.call.op.lock = s.call.op.lock;
    single_run(&w, &u, NEAR);
    world_close(&w);
}

/* It may be a process that is stopped for ever, and others wait for this group. */
static void whoever_holds_the_lock_is_not_waited_for_without_end(void **state) {
    (void)state;
    struct world w;
    open_saved(&w, 1);
    struct single s = {0};
    bwi_call_prepare(&s.call, BWI_STORE_LOCK, bwi_key_data_of(w.ctx.run, false, &ID, GROUP).s);
    single_run(&w, &s, NEAR);
    const uint64_t begun = w.env.now;
    struct bwi_drain d = drain_of(&w);
    drain_run(&w, &d);
    assert_ok(d.task.error.status, &d.task.error);
    assert_in_range(w.env.now - begun, 30 * BWI_NS_PER_S, 60 * BWI_NS_PER_S);
    assert_int_equal(check_tier(&w, FAR), 1);
    struct single u = {0};
    bwi_call_prepare(&u.call, BWI_STORE_UNLOCK, bwi_key_data_of(w.ctx.run, false, &ID, GROUP).s);
    u.call.op.lock = s.call.op.lock;
    single_run(&w, &u, NEAR);
    check_same(&w);
    world_close(&w);
}

/* Whoever put the summary may not have made its name durable. */
static const char *const synced_first[] = {"/groups/", "/layouts/"};

static void a_summary_that_is_there_already_counts_when_it_is_synced(void **state) {
    (void)state;
    struct world w;
    open_saved(&w, 1);
    struct bwi_drain d = drain_of(&w);
    drain_run(&w, &d);
    const uint64_t synced = w.ctx.tier[FAR]->ops[BWI_STORE_SYNC];
    assert_true(bwi_bucket_remove(w.bucket[NEAR], bwi_key_summary(w.ctx.run, &ID, GROUP).s));
    for (int i = 0; i < 2; i++) {
        bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_SYNC, synced_first[i], BW_E_IO, false);
        d = drain_of(&w);
        drain_run(&w, &d);
        assert_fails(d.task.error.status, BW_E_IO, &d.task.error, WHO);
        assert_false(d.was_complete);
    }
    d = drain_of(&w);
    drain_run(&w, &d);
    assert_ok(d.task.error.status, &d.task.error);
    assert_true(d.was_complete);
    assert_int_equal(w.ctx.tier[FAR]->ops[BWI_STORE_SYNC], synced + 5);
    world_close(&w);
}

/* Names that this handle could not make durable are vouched for by no fsync any more. */
static void what_cannot_be_synced_is_put_once_more_from_the_local_copy(void **state) {
    (void)state;
    struct world w;
    open_saved(&w, 1);
    struct bwi_drain d = drain_of(&w);
    drain_run(&w, &d);
    for (int i = 0; i < 2; i++) {
        const uint64_t created = w.ctx.tier[FAR]->ops[BWI_STORE_CREATE];
        bwi_bucket_fail_next(w.bucket[FAR], BWI_STORE_SYNC, synced_first[i], BW_E_IO, false);
        d = drain_of(&w);
        drain_run(&w, &d);
        assert_ok(d.task.error.status, &d.task.error);
        assert_true(d.was_complete);
        assert_int_equal(w.ctx.tier[FAR]->ops[BWI_STORE_CREATE], created + 4);
    }
    world_close(&w);
}

static void a_disk_that_takes_no_lock_is_drained_all_the_same(void **state) {
    (void)state;
    struct world w;
    open_saved(&w, 1);
    bwi_bucket_fail_next(w.bucket[NEAR], BWI_STORE_LOCK, NULL, BW_E_NOSPACE, false);
    struct bwi_drain d = drain_of(&w);
    drain_run(&w, &d);
    assert_ok(d.task.error.status, &d.task.error);
    check_same(&w);
    world_close(&w);
}

/* ---- stopped ---- */

static void cancelled_at_any_moment_it_ends_and_lets_go(void **state) {
    (void)state;
    bool whole = false;
    for (int turns = 0; !whole; turns++) {
        struct world w;
        open_saved(&w, 5);
        struct bwi_drain d = drain_of(&w);
        bwi_drain_start(&d, w.loop, NULL);
        for (int i = 0; i < turns && d.task.running; i++) world_turn(&w);
        whole = !d.task.running;
        bwi_task_cancel(&d.task);
        world_run(&w);
        if (d.task.error.status < 0) {
            assert_fails(d.task.error.status, BW_E_CANCELLED, &d.task.error, WHO);
            assert_int_equal(check_tier(&w, FAR), 0);
        }
        check_unlocked(&w);
        assert_int_equal(world_upload_bytes(&w, FAR), 0);
        world_close(&w);
        assert_true(turns < 500);
    }
}

static void a_drain_that_waits_can_be_cancelled(void **state) {
    (void)state;
    struct world w;
    open_saved(&w, 1);
    struct single s = {0};
    bwi_call_prepare(&s.call, BWI_STORE_LOCK, bwi_key_data_of(w.ctx.run, false, &ID, GROUP).s);
    single_run(&w, &s, NEAR);
    struct bwi_drain d = drain_of(&w);
    bwi_drain_start(&d, w.loop, NULL);
    for (int i = 0; i < 40; i++) world_turn(&w);
    assert_true(d.task.running);
    bwi_task_cancel(&d.task);
    const uint64_t now = w.env.now;
    world_run(&w);
    assert_true(w.env.now - now < BWI_NS_PER_MS);
    assert_int_equal(d.task.error.status, BW_E_CANCELLED);
    struct single u = {0};
    bwi_call_prepare(&u.call, BWI_STORE_UNLOCK, bwi_key_data_of(w.ctx.run, false, &ID, GROUP).s);
    u.call.op.lock = s.call.op.lock;
    single_run(&w, &u, NEAR);
    world_close(&w);
}

static void stopped_anywhere_the_next_drain_finishes_the_job(void **state) {
    (void)state;
    bool whole = false;
    for (uint64_t ops = 0; !whole; ops++) {
        for (int effect = 0; effect < 2; effect++) {
            struct world w;
            open_saved(&w, ops + 1);
            machine_stops_after(&w, ops, effect);
            struct bwi_drain d = drain_of(&w);
            drain_run(&w, &d);
            machine_starts(&w);
            whole = d.task.error.status == 0;
            (void)check_tier(&w, FAR);
            check_unlocked(&w);
            d = drain_of(&w);
            drain_run(&w, &d);
            assert_ok(d.task.error.status, &d.task.error);
            check_same(&w);
            world_close(&w);
        }
        assert_true(ops < 100);
    }
}

static void without_memory_it_fails_lets_go_and_works_the_next_time(void **state) {
    (void)state;
    bool whole = false;
    for (unsigned long n = 1; !whole; n++) {
        struct world w;
        open_saved(&w, 1);
        struct bwi_drain d = drain_of(&w);
        (void)bwi_alloc_fail_at(n);
        drain_run(&w, &d);
        whole = bwi_alloc_fail_at(0) < n;
        if (d.task.error.status < 0) assert_int_equal(d.task.error.status, BW_E_NOMEM);
        (void)check_tier(&w, FAR);
        check_unlocked(&w);
        d = drain_of(&w);
        drain_run(&w, &d);
        assert_ok(d.task.error.status, &d.task.error);
        check_same(&w);
        world_close(&w);
        assert_true(n < 500);
    }
}

static void it_works_on_directories(void **state) {
    (void)state;
    struct world w;
    world_open_dirs(&w, bwi_os_system(), MIB);
    (void)save_group(&w, NEAR, &ID, GROUP, &LIFE, NULL);
    struct bwi_drain d = drain_of(&w);
    drain_run(&w, &d);
    assert_ok(d.task.error.status, &d.task.error);
    assert_int_equal(d.objects, 6);
    check_unlocked(&w);
    d = drain_of(&w);
    drain_run(&w, &d);
    assert_ok(d.task.error.status, &d.task.error);
    assert_true(d.was_complete);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_comes_over_byte_for_byte),
        cmocka_unit_test(drained_again_it_copies_nothing),
        cmocka_unit_test(a_known_layout_is_not_sent),
        cmocka_unit_test(packs_that_are_there_are_not_copied_but_synced),
        cmocka_unit_test(a_sync_that_fails_is_no_success),
        cmocka_unit_test(what_is_nowhere_is_not_found_and_leaves_no_directory),
        cmocka_unit_test(what_only_the_authority_has_is_complete),
        cmocka_unit_test(another_content_in_the_authority_is_refused),
        cmocka_unit_test(any_damaged_local_object_is_damage_and_never_goes_over),
        cmocka_unit_test(a_damaged_local_copy_does_not_matter_once_the_authority_has_it),
        cmocka_unit_test(a_damaged_summary_in_the_authority_is_named),
        cmocka_unit_test(a_pack_of_another_checkpoint_must_be_in_the_authority),
        cmocka_unit_test(two_drains_of_one_group_end_with_one_copy),
        cmocka_unit_test(a_drain_waits_for_another_one_and_ends_when_the_summary_appears),
        cmocka_unit_test(whoever_holds_the_lock_is_not_waited_for_without_end),
        cmocka_unit_test(a_summary_that_is_there_already_counts_when_it_is_synced),
        cmocka_unit_test(what_cannot_be_synced_is_put_once_more_from_the_local_copy),
        cmocka_unit_test(a_disk_that_takes_no_lock_is_drained_all_the_same),
        cmocka_unit_test(cancelled_at_any_moment_it_ends_and_lets_go),
        cmocka_unit_test(a_drain_that_waits_can_be_cancelled),
        cmocka_unit_test(stopped_anywhere_the_next_drain_finishes_the_job),
        cmocka_unit_test(without_memory_it_fails_lets_go_and_works_the_next_time),
        cmocka_unit_test(it_works_on_directories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
