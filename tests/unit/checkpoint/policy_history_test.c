/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of a run's history, one by one. */
#include <string.h>

#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/policy_history.h"
#include "checkpoint/policy_next.h"
#include "test.h"

/* A history under test: the newest entry, replaced by each event. */
struct log {
    struct bwi_entry head;
    bool any;
    uint32_t nonce;
    struct bw_error err;
};

static struct bwi_actor actor(struct log *l) {
    struct bwi_actor a = {.head = l->any ? &l->head : NULL,
                          .writer = 7,
                          .time_ms = 1000 + (int64_t)(l->any ? l->head.n : 0),
                          .host = "node"};
    a.head_sha.b[0] = l->any; /* any hash will do here: the log of these tests is not stored */
    return a;
}

static void take(struct log *l, struct bwi_entry *next) {
    struct bwi_buf bytes = {0};
    struct bwi_entry decoded = {0};
    assert_ok(bwi_entry_encode(next, &bytes, &l->err), &l->err); /* whatever a rule makes must be a valid entry */
    assert_ok(bwi_entry_decode(bwi_buf_span(&bytes), &decoded, &l->err), &l->err);
    bwi_buf_fini(&bytes);
    bwi_entry_fini(next);
    bwi_entry_fini(&l->head);
    l->head = decoded;
    l->any = true;
}

static struct bwi_register reg(struct log *l, const char *job, const char *launch) {
    struct bwi_register r = {
        .run = "run", .job = job, .launch = launch, .label = "", .world = 2, .groups = 2, .nonce = ++l->nonce};
    r.uuid.b[0] = 9;
    r.seen_set = l->any && l->head.attempt.set;
    r.seen_number = l->head.attempt.number;
    r.seen_nonce = l->head.attempt.nonce;
    return r;
}

static int try_register(struct log *l, struct bwi_register r) {
    struct bwi_entry next = {0};
    struct bwi_actor a = actor(l);
    const struct bwi_kept *newest = bwi_policy_newest(a.head);
    if (newest && r.mode != BWI_REGISTER_ROLLBACK)
        r.target_facts = (struct bwi_candidate){.id = newest->id, .world = 2, .groups = 2};
    if (r.mode == BWI_REGISTER_ROLLBACK || r.mode == BWI_REGISTER_DAMAGE)
        r.target_facts = (struct bwi_candidate){.id = r.target, .world = 2, .groups = 2};
    bw_error_clear(&l->err);
    int rc = bwi_policy_register(&a, &r, &next, &l->err);
    if (rc == 0) take(l, &next);
    return rc;
}

static void start(struct log *l, const char *launch) {
    assert_ok(try_register(l, reg(l, "job", launch)), &l->err);
}

static struct bwi_id id_of(struct log *l, uint64_t step, uint32_t tri) {
    return (struct bwi_id){.step = step, .attempt = l->head.attempt.number, .nonce = l->head.attempt.nonce, .tri = tri};
}

static int try_commit(struct log *l, struct bwi_id id) {
    struct bwi_entry next = {0};
    struct bwi_actor a = actor(l);
    struct bwi_kept k = {.id = id, .bytes = 10};
    k.manifest.b[0] = 1;
    bw_error_clear(&l->err);
    int rc = bwi_policy_commit(&a, &k, &next, &l->err);
    if (rc == 0) take(l, &next);
    return rc;
}

static void commit(struct log *l, uint64_t step) {
    assert_ok(try_commit(l, id_of(l, step, bwi_policy_try(&l->head, step))), &l->err);
}

static int try_abort(struct log *l, struct bwi_id id) {
    struct bwi_entry next = {0};
    struct bwi_actor a = actor(l);
    bw_error_clear(&l->err);
    int rc = bwi_policy_abort(&a, &id, "because", &next, &l->err);
    if (rc == 0) take(l, &next);
    return rc;
}

static int try_retire(struct log *l, struct bwi_id id) {
    struct bwi_entry next = {0};
    struct bwi_actor a = actor(l);
    bw_error_clear(&l->err);
    int rc = bwi_policy_retire(&a, &id, 1, &next, &l->err);
    if (rc == 0) take(l, &next);
    return rc;
}

static void fini(struct log *l) {
    bwi_entry_fini(&l->head);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void the_first_register_begins_era_one_from_nothing(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    assert_int_equal(l.head.n, 1);
    assert_int_equal(l.head.era, 1);
    assert_int_equal(l.head.attempt.number, 1);
    assert_false(l.head.from.set);
    assert_false(l.head.h_set);
    assert_int_equal(l.head.lineage_count, 1);
    fini(&l);
}

static void a_restart_goes_on_from_the_newest_and_counts_up(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    commit(&l, 10);
    commit(&l, 20);
    start(&l, "b");
    assert_int_equal(l.head.attempt.number, 2);
    assert_true(l.head.from.set);
    assert_false(l.head.from.open);
    assert_int_equal(l.head.from.id.step, 20);
    assert_int_equal(l.head.h, 20);
    assert_int_equal(l.head.live_count, 2);
    fini(&l);
}

static void steps_commit_in_order_and_end_lower_ones(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    struct bwi_id low = id_of(&l, 10, 0);
    assert_int_equal(bwi_policy_fate(&l.head, &low), BWI_FATE_COMMITTABLE);
    commit(&l, 20);
    assert_fails(try_commit(&l, low), BW_E_ABORTED, &l.err, "step 10");
    assert_int_equal(bwi_policy_fate(&l.head, &low), BWI_FATE_DEAD);
    fini(&l);
}

static void an_older_attempt_can_never_commit(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    struct bwi_id stale = id_of(&l, 30, 0);
    uint32_t number = l.head.attempt.number, nonce = l.head.attempt.nonce;
    start(&l, "b");
    assert_fails(try_commit(&l, stale), BW_E_ABORTED, &l.err, NULL);
    bw_error_clear(&l.err);
    assert_fails(bwi_policy_attempt_status(&l.head, number, nonce, "job", &l.err), BW_E_LAUNCH_LOST, &l.err,
                 "attempt 1");
    fini(&l);
}

static void the_nonce_counts_as_well_as_the_number(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    struct bwi_id other = id_of(&l, 30, 0);
    other.nonce ^= 1;
    assert_fails(try_commit(&l, other), BW_E_ABORTED, &l.err, NULL);
    assert_int_equal(bwi_policy_fate(&l.head, &other), BWI_FATE_DEAD);
    fini(&l);
}

static void an_aborted_try_is_closed_and_the_next_one_may_commit(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    struct bwi_id first = id_of(&l, 10, 0), second = id_of(&l, 10, 1);
    assert_int_equal(bwi_policy_fate(&l.head, &second), BWI_FATE_AHEAD);
    assert_ok(try_abort(&l, first), &l.err);
    assert_fails(try_abort(&l, first), BW_E_STATE, &l.err, NULL);
    assert_fails(try_commit(&l, first), BW_E_ABORTED, &l.err, NULL);
    assert_int_equal(bwi_policy_fate(&l.head, &first), BWI_FATE_DEAD);
    assert_ok(try_commit(&l, second), &l.err);
    assert_int_equal(l.head.try_count, 0); /* tries of steps that are past tell nothing */
    fini(&l);
}

static void a_launch_id_works_once(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    assert_fails(try_register(&l, reg(&l, "job", "a")), BW_E_LAUNCH_LOST, &l.err, "\"a\"");
    fini(&l);
}

static void a_launch_that_was_overtaken_is_lost_within_a_job(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    struct bwi_register slow = reg(&l, "job", "slow");
    start(&l, "quick");
    assert_fails(try_register(&l, slow), BW_E_LAUNCH_LOST, &l.err, "quick");
    fini(&l);
}

static void another_job_supersedes_and_the_old_ones_restarts_are_refused(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    uint32_t number = l.head.attempt.number, nonce = l.head.attempt.nonce;
    assert_ok(try_register(&l, reg(&l, "other", "b")), &l.err);
    bw_error_clear(&l.err);
    assert_fails(bwi_policy_attempt_status(&l.head, number, nonce, "job", &l.err), BW_E_SUPERSEDED, &l.err, "other");
    for (int i = 0; i < 3; i++)
        assert_fails(try_register(&l, reg(&l, "job", "again")), BW_E_SUPERSEDED, &l.err, "takeover");
    assert_string_equal(l.head.attempt.job, "other"); /* two launchers never alternate */
    fini(&l);
}

static void a_takeover_brings_a_superseded_job_back_once_per_label(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    assert_ok(try_register(&l, reg(&l, "other", "b")), &l.err);
    struct bwi_register r = reg(&l, "job", "c");
    r.mode = BWI_REGISTER_TAKEOVER;
    r.label = "mine";
    assert_ok(try_register(&l, r), &l.err);
    assert_string_equal(l.head.attempt.job, "job");
    assert_int_equal(l.head.superseded_count, 1);
    assert_string_equal(l.head.superseded[0], "other");
    assert_ok(try_register(&l, reg(&l, "third", "d")), &l.err);
    r = reg(&l, "job", "e");
    r.mode = BWI_REGISTER_TAKEOVER;
    r.label = "mine";
    assert_fails(try_register(&l, r), BW_E_SUPERSEDED, &l.err, NULL);
    fini(&l);
}

/* The newest is damaged, so the takeover goes back: it is a takeover all the same. */
static void a_takeover_that_goes_back_for_damage_is_still_one(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    struct bwi_id first = id_of(&l, 10, 0);
    assert_ok(try_commit(&l, first), &l.err);
    assert_ok(try_commit(&l, id_of(&l, 20, 0)), &l.err);
    assert_ok(try_register(&l, reg(&l, "other", "b")), &l.err);
    struct bwi_register r = reg(&l, "job", "c");
    r.mode = BWI_REGISTER_DAMAGE;
    r.label = "mine";
    r.target = first;
    assert_fails(try_register(&l, r), BW_E_SUPERSEDED, &l.err, NULL);
    r.takeover = true;
    assert_ok(try_register(&l, r), &l.err);
    assert_string_equal(l.head.attempt.job, "job");
    assert_string_equal(l.head.event.mode, "damage");
    assert_string_equal(l.head.event.label, "mine");
    assert_int_equal(l.head.superseded_count, 1);
    assert_string_equal(l.head.superseded[0], "other");
    assert_int_equal(l.head.live_count, 1);
    assert_int_equal(l.head.from.id.step, 10);
    assert_ok(try_register(&l, reg(&l, "other-2", "d")), &l.err);
    r = reg(&l, "job", "e");
    r.mode = BWI_REGISTER_DAMAGE;
    r.label = "mine";
    r.target = first;
    r.takeover = true;
    assert_fails(try_register(&l, r), BW_E_SUPERSEDED, &l.err, NULL); /* the label works once, as ever */
    fini(&l);
}

static void fresh_shelves_all_and_its_label_works_once(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    commit(&l, 10);
    struct bwi_register r = reg(&l, "job", "b");
    r.mode = BWI_REGISTER_FRESH;
    r.label = "new-data";
    assert_ok(try_register(&l, r), &l.err);
    assert_false(l.head.from.set);
    assert_false(l.head.h_set);
    assert_int_equal(l.head.live_count, 0);
    assert_int_equal(l.head.shelved_count, 1);
    commit(&l, 5);
    r = reg(&l, "job", "c");
    r.mode = BWI_REGISTER_FRESH;
    r.label = "new-data";
    assert_ok(try_register(&l, r), &l.err); /* means the default now */
    assert_int_equal(l.head.from.id.step, 5);
    assert_int_equal(l.head.live_count, 1);
    fini(&l);
}

static void rollback_shelves_what_is_newer_and_a_shelved_one_comes_back_alone(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    for (uint64_t s = 10; s <= 30; s += 10) commit(&l, s);
    struct bwi_id at20 = l.head.live[1].id, at30 = l.head.live[2].id;
    struct bwi_register r = reg(&l, "job", "b");
    r.mode = BWI_REGISTER_ROLLBACK;
    r.label = "back";
    r.target = at20;
    assert_ok(try_register(&l, r), &l.err);
    assert_int_equal(l.head.live_count, 2);
    assert_int_equal(l.head.shelved_count, 1);
    assert_int_equal(l.head.h, 20);
    assert_int_equal(bwi_policy_fate(&l.head, &at30), BWI_FATE_SHELVED);
    commit(&l, 30); /* the same step in another life */
    r = reg(&l, "job", "c");
    r.mode = BWI_REGISTER_ROLLBACK;
    r.label = "back-2";
    r.target = at30;
    assert_ok(try_register(&l, r), &l.err);
    assert_int_equal(l.head.live_count, 1);
    assert_true(bwi_id_eq(&l.head.live[0].id, &at30));
    assert_int_equal(l.head.shelved_count, 3);
    fini(&l);
}

static void an_uncommitted_checkpoint_that_is_whole_is_gone_on_from_and_committed_later(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    commit(&l, 10);
    struct bwi_candidate c = {.id = id_of(&l, 20, 0), .world = 2, .groups = 2};
    struct bwi_register r = reg(&l, "job", "b");
    r.newer = &c;
    assert_ok(try_register(&l, r), &l.err);
    assert_true(l.head.from.open);
    assert_int_equal(l.head.h, 20);
    assert_int_equal(bwi_policy_fate(&l.head, &c.id), BWI_FATE_COMMITTABLE);
    assert_ok(try_commit(&l, c.id), &l.err);
    assert_false(l.head.from.open);
    assert_int_equal(l.head.live_count, 2);
    fini(&l);
}

static void a_commit_above_closes_the_open_one(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    struct bwi_candidate c = {.id = id_of(&l, 20, 0), .world = 2, .groups = 2};
    struct bwi_register r = reg(&l, "job", "b");
    r.newer = &c;
    assert_ok(try_register(&l, r), &l.err);
    commit(&l, 30);
    assert_fails(try_commit(&l, c.id), BW_E_ABORTED, &l.err, NULL);
    assert_int_equal(bwi_policy_fate(&l.head, &c.id), BWI_FATE_DEAD);
    fini(&l);
}

static void the_newest_the_pinned_and_what_the_open_one_needs_are_never_retired(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    commit(&l, 10);
    commit(&l, 20);
    commit(&l, 30);
    struct bwi_id at10 = l.head.live[0].id, at20 = l.head.live[1].id, at30 = l.head.live[2].id;
    assert_fails(try_retire(&l, at30), BW_E_REFUSED, &l.err, "newest");
    struct bwi_entry next = {0};
    struct bwi_actor a = actor(&l);
    assert_ok(bwi_policy_pin(&a, &at20, true, &next, &l.err), &l.err);
    take(&l, &next);
    assert_fails(try_retire(&l, at20), BW_E_REFUSED, &l.err, "pinned");
    struct bwi_candidate c = {.id = id_of(&l, 40, 0), .world = 2, .groups = 2, .ref_count = 1};
    c.refs[0] = at10;
    struct bwi_register r = reg(&l, "job", "b");
    r.newer = &c;
    assert_ok(try_register(&l, r), &l.err);
    assert_fails(try_retire(&l, at10), BW_E_REFUSED, &l.err, "resumed from");
    assert_ok(try_abort(&l, c.id), &l.err); /* closes the open one */
    assert_ok(try_retire(&l, at10), &l.err);
    assert_int_equal(bwi_policy_fate(&l.head, &at10), BWI_FATE_DEAD);
    fini(&l);
}

static void a_checkpoint_whose_ref_was_retired_cannot_commit(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    commit(&l, 10);
    commit(&l, 20);
    struct bwi_id at10 = l.head.live[0].id, id = id_of(&l, 30, 0);
    assert_true(bwi_policy_committable(&l.head, &id, &at10, 1));
    assert_ok(try_retire(&l, at10), &l.err);
    assert_false(bwi_policy_committable(&l.head, &id, &at10, 1));
    fini(&l);
}

static void retired_data_that_a_live_one_refers_to_is_kept(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    commit(&l, 10);
    struct bwi_id at10 = l.head.live[0].id;
    struct bwi_kept k = {.id = id_of(&l, 20, 0), .ref_count = 1};
    k.refs[0] = at10;
    struct bwi_entry next = {0};
    struct bwi_actor a = actor(&l);
    assert_ok(bwi_policy_commit(&a, &k, &next, &l.err), &l.err);
    take(&l, &next);
    assert_ok(try_retire(&l, at10), &l.err);
    assert_int_equal(bwi_policy_fate(&l.head, &at10), BWI_FATE_REFERENCED);
    fini(&l);
}

static void repair_begins_an_era_of_no_job(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    commit(&l, 10);
    commit(&l, 20);
    struct bwi_id gone = l.head.live[0].id;
    struct bwi_kept found = {.id = id_of(&l, 30, 0), .bytes = 3};
    struct bwi_repair r = {
        .era = 1, .n = l.head.n + 1, .nonce = 77, .gone = &gone, .gone_count = 1, .found = &found, .found_count = 1};
    r.uuid.b[3] = 4;
    struct bwi_entry next = {0};
    struct bwi_actor a = actor(&l);
    uint64_t n = l.head.n;
    uint32_t number = l.head.attempt.number, nonce = l.head.attempt.nonce;
    assert_ok(bwi_policy_repair(&a, &r, &next, &l.err), &l.err);
    take(&l, &next);
    assert_int_equal(l.head.era, 2);
    assert_int_equal(l.head.n, n + 2);
    assert_int_equal(l.head.lineage_count, 2);
    assert_int_equal(l.head.live_count, 2);
    assert_int_equal(l.head.live[1].id.step, 30);
    bw_error_clear(&l.err);
    assert_fails(bwi_policy_attempt_status(&l.head, number, nonce, "job", &l.err), BW_E_LAUNCH_LOST, &l.err, NULL);
    start(&l, "b"); /* nobody was superseded */
    assert_int_equal(l.head.from.id.step, 30);
    fini(&l);
}

/* How many of these a repair makes live beside what is live already. */
static size_t taken_up(struct log *l, const struct bwi_kept *found, size_t count, const struct bwi_id *gone) {
    struct bwi_repair r = {.era = l->head.era,
                           .n = l->head.n + 1,
                           .nonce = 77,
                           .gone = gone,
                           .gone_count = gone != NULL,
                           .found = found,
                           .found_count = count};
    struct bwi_entry next = {0};
    struct bwi_actor a = actor(l);
    assert_ok(bwi_policy_repair(&a, &r, &next, &l->err), &l->err);
    const size_t live = next.live_count - l->head.live_count + r.gone_count;
    bwi_entry_fini(&next);
    return live;
}

static void a_repair_takes_up_only_what_may_be_committed(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    const struct bwi_kept past = {.id = id_of(&l, 40, 0)};
    start(&l, "b");
    commit(&l, 10);
    commit(&l, 20);
    const struct bwi_id at10 = l.head.live[0].id;
    struct bwi_kept k = {.id = id_of(&l, 30, 0)};
    struct bwi_kept in_order[] = {{.id = id_of(&l, 30, 0)}, {.id = id_of(&l, 40, 0), .ref_count = 1}};
    in_order[1].refs[0] = in_order[0].id;
    assert_int_equal(taken_up(&l, &past, 1, NULL), 0);
    assert_int_equal(taken_up(&l, &k, 1, NULL), 1);
    assert_int_equal(taken_up(&l, in_order, 2, NULL), 2);
    assert_int_equal(taken_up(&l, in_order + 1, 1, NULL), 0); /* what it refers to was never committed */
    k.refs[k.ref_count++] = at10;
    assert_int_equal(taken_up(&l, &k, 1, NULL), 1);
    assert_int_equal(taken_up(&l, &k, 1, &at10), 0);
    assert_ok(try_retire(&l, at10), &l.err);
    assert_int_equal(taken_up(&l, &k, 1, NULL), 0);
    k = (struct bwi_kept){.id = id_of(&l, 15, 0)}; /* a commit of a later step ended it */
    assert_int_equal(taken_up(&l, &k, 1, NULL), 0);
    k = (struct bwi_kept){.id = id_of(&l, 30, 0)};
    assert_ok(try_abort(&l, k.id), &l.err);
    assert_int_equal(taken_up(&l, &k, 1, NULL), 0);
    fini(&l);
}

/* Nobody asks for the refs of the open from when it is committed, because they are kept with it. */
static void a_repair_does_not_take_up_the_open_one_without_what_it_refers_to(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    commit(&l, 10);
    commit(&l, 20);
    const struct bwi_id at10 = l.head.live[0].id;
    struct bwi_candidate c = {.id = id_of(&l, 30, 0), .world = 2, .groups = 2, .ref_count = 1, .refs = {at10}};
    struct bwi_register r = reg(&l, "job", "b");
    r.newer = &c;
    assert_ok(try_register(&l, r), &l.err);
    const struct bwi_kept k = {.id = c.id, .ref_count = 1, .refs = {at10}};
    assert_int_equal(taken_up(&l, &k, 1, NULL), 1);
    assert_int_equal(taken_up(&l, &k, 1, &at10), 0);
    fini(&l);
}

static void an_archive_can_be_promoted_and_the_authority_not(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    struct bwi_entry next = {0};
    struct bwi_actor a = actor(&l);
    struct bwi_uuid uuid = {{5}};
    bw_error_clear(&l.err);
    assert_fails(bwi_policy_promote(&a, &uuid, 3, &next, &l.err), BW_E_REFUSED, &l.err, "no archive");
    a.store.b[0] = 1;
    bw_error_clear(&l.err);
    assert_ok(bwi_policy_promote(&a, &uuid, 3, &next, &l.err), &l.err);
    take(&l, &next);
    assert_int_equal(l.head.era, 2);
    assert_int_equal(l.head.store.b[0], 1);
    fini(&l);
}

static void launch_ids_are_forgotten_oldest_first(void **state) {
    (void)state;
    struct log l = {0};
    for (unsigned i = 0; i < BWI_LAUNCHES_KEPT + 5; i++) {
        char name[16];
        bwi_format(name, sizeof name, "l%u", i);
        start(&l, name);
    }
    assert_int_equal(l.head.launch_count, BWI_LAUNCHES_KEPT);
    assert_string_equal(l.head.launches[0], "l5");
    fini(&l);
}

static void retention_keeps_what_any_rule_keeps(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    for (uint64_t s = 1; s <= 10; s++) commit(&l, s * 10);
    struct bw_retention r = {.keep_last = 2, .keep_every_steps = 50};
    struct bwi_id ids[10];
    size_t n = bwi_policy_retention(&l.head, &r, 0, 1000000, ids);
    assert_int_equal(n, 7); /* 50, 90, 100 stay */
    for (size_t i = 0; i < n; i++) assert_true(ids[i].step % 50 != 0 && ids[i].step < 90);
    r.keep_younger_ms = 3; /* commit times are 1001 .. 1010 */
    n = bwi_policy_retention(&l.head, &r, 0, 1010, ids);
    assert_int_equal(n, 6);
    assert_int_equal(bwi_policy_retention(&l.head, &r, 0, 1, ids), 0); /* a clock set back makes everything young */
    l.head.live[0].time_ms = INT64_MIN; /* further back than a signed difference reaches: old */
    assert_int_equal(bwi_policy_retention(&l.head, &r, 0, INT64_MAX, ids), 7);
    r = (struct bw_retention){.keep_last = 1};
    assert_int_equal(bwi_policy_retention(&l.head, &r, 3, 1000000, ids),
                     6); /* never fewer than those in flight plus one */
    r.keep_last = 0;
    assert_int_equal(bwi_policy_retention(&l.head, &r, 0, 1000000, ids), 0);
    fini(&l);
}

/* --- memory ---- */

/* Rules that all apply to one history: job "other" has superseded "job"; 10, 20 and 30 are live, 40 is shelved. */
typedef int rule(struct log *l, struct bwi_entry *ret);

static int register_as(struct log *l, const char *job, enum bwi_register_mode mode, struct bwi_id target,
                       struct bwi_entry *ret) {
    struct bwi_register r = reg(l, job, "next");
    const struct bwi_actor a = actor(l);
    r.mode = mode;
    r.label = "x";
    r.target = target;
    r.target_facts = (struct bwi_candidate){.id = target, .world = 2, .groups = 2};
    return bwi_policy_register(&a, &r, ret, &l->err);
}
static int rule_fresh(struct log *l, struct bwi_entry *ret) {
    return register_as(l, "third", BWI_REGISTER_FRESH, (struct bwi_id){0}, ret);
}
static int rule_takeover(struct log *l, struct bwi_entry *ret) {
    return register_as(l, "job", BWI_REGISTER_TAKEOVER, l->head.live[2].id, ret);
}
static int rule_rollback(struct log *l, struct bwi_entry *ret) {
    return register_as(l, "other", BWI_REGISTER_ROLLBACK, l->head.live[0].id, ret);
}
static int rule_rollback_to_a_shelved_one(struct log *l, struct bwi_entry *ret) {
    return register_as(l, "other", BWI_REGISTER_ROLLBACK, l->head.shelved[0].id, ret);
}
static int rule_commit(struct log *l, struct bwi_entry *ret) {
    const struct bwi_actor a = actor(l);
    const struct bwi_kept k = {.id = id_of(l, 50, 0)};
    return bwi_policy_commit(&a, &k, ret, &l->err);
}
static int rule_abort(struct log *l, struct bwi_entry *ret) {
    const struct bwi_actor a = actor(l);
    const struct bwi_id id = id_of(l, 50, 0);
    return bwi_policy_abort(&a, &id, "because", ret, &l->err);
}
static int rule_retire(struct log *l, struct bwi_entry *ret) {
    const struct bwi_actor a = actor(l);
    return bwi_policy_retire(&a, &l->head.live[0].id, 1, ret, &l->err);
}
static int rule_pin(struct log *l, struct bwi_entry *ret) {
    const struct bwi_actor a = actor(l);
    return bwi_policy_pin(&a, &l->head.shelved[0].id, true, ret, &l->err);
}
static int rule_repair(struct log *l, struct bwi_entry *ret) {
    const struct bwi_actor a = actor(l);
    const struct bwi_kept found = {.id = id_of(l, 50, 0)};
    const struct bwi_repair r = {.era = l->head.era,
                                 .n = l->head.n + 1,
                                 .gone = &l->head.live[0].id,
                                 .gone_count = 1,
                                 .found = &found,
                                 .found_count = 1};
    return bwi_policy_repair(&a, &r, ret, &l->err);
}
static int rule_promote(struct log *l, struct bwi_entry *ret) {
    struct bwi_actor a = actor(l);
    const struct bwi_uuid uuid = {{5}};
    a.store.b[0] = 1;
    return bwi_policy_promote(&a, &uuid, 3, ret, &l->err);
}

static void every_rule_survives_running_out_of_memory(void **state) {
    (void)state;
    static rule *const rules[] = {rule_fresh,  rule_takeover, rule_rollback, rule_rollback_to_a_shelved_one,
                                  rule_commit, rule_abort,    rule_retire,   rule_pin,
                                  rule_repair, rule_promote};
    struct log l = {0};
    start(&l, "a");
    commit(&l, 40);
    assert_ok(try_register(&l, reg(&l, "other", "b")), &l.err);
    struct bwi_register r = reg(&l, "other", "c");
    r.mode = BWI_REGISTER_FRESH;
    r.label = "anew";
    assert_ok(try_register(&l, r), &l.err);
    for (uint64_t step = 10; step <= 30; step += 10) commit(&l, step);
    const long live = bwi_alloc_live();
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        int rc = BW_E_NOMEM;
        unsigned long n = 0;
        while (rc != 0) {
            struct bwi_entry next = {0};
            bw_error_clear(&l.err);
            (void)bwi_alloc_fail_at(++n);
            rc = rules[i](&l, &next);
            (void)bwi_alloc_fail_at(0);
            if (rc != 0) assert_fails(rc, BW_E_NOMEM, &l.err, "memory");
            bwi_entry_fini(&next);
            assert_int_equal(bwi_alloc_live(), live);
        }
        assert_true(n > 5);
    }
    fini(&l);
}

/* --- what no caller asks for ---- */

static void a_takeover_by_a_job_that_nobody_superseded_is_none(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    struct bwi_register r = reg(&l, "job", "b");
    r.mode = BWI_REGISTER_TAKEOVER;
    r.label = "mine";
    assert_int_equal(bwi_policy_mode(&l.head, &r), BWI_REGISTER_DEFAULT);
    assert_ok(try_register(&l, r), &l.err);
    assert_int_equal(l.head.label_count, 0); /* so it may still be used */
    fini(&l);
}

static void a_launch_that_another_jobs_came_before_is_superseded(void **state) {
    (void)state;
    struct log l = {0};
    const struct bwi_register slow = reg(&l, "job", "slow");
    assert_ok(try_register(&l, reg(&l, "other", "quick")), &l.err);
    assert_fails(try_register(&l, slow), BW_E_SUPERSEDED, &l.err, "job \"other\" registered first, as attempt 1");
    fini(&l);
}

static void an_attempt_that_no_history_knows_is_lost(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    assert_fails(bwi_policy_attempt_status(NULL, 3, 1, "job", &err), BW_E_LAUNCH_LOST, &err,
                 "attempt 3 is not in the history any more");
}

static void nobody_goes_on_from_what_is_not_newer_or_cannot_be_committed(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    commit(&l, 20);
    struct bwi_candidate c = {.id = id_of(&l, 20, 0), .world = 2, .groups = 2};
    struct bwi_register r = reg(&l, "job", "b");
    r.newer = &c;
    assert_fails(try_register(&l, r), BW_E_INTERNAL, &l.err, "not newer than the newest live");
    c.id = id_of(&l, 30, 0);
    assert_ok(try_abort(&l, c.id), &l.err);
    assert_fails(try_register(&l, r), BW_E_UNKNOWN, &l.err, "step 30 cannot be committed any more");
    r.newer = NULL;
    r.mode = BWI_REGISTER_ROLLBACK;
    r.label = "back";
    r.target = c.id;
    assert_fails(try_register(&l, r), BW_E_NOTFOUND, &l.err, "no live or shelved checkpoint of step 30");
    fini(&l);
}

/* Entries as nobody writes them: h says that the step is above all that is live. */
static void a_step_is_live_once_whatever_the_entry_says_of_h(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    commit(&l, 20);
    l.head.h = 10;
    assert_fails(try_commit(&l, id_of(&l, 20, 0)), BW_E_INTERNAL, &l.err, "step 20 is live already");
    const struct bwi_id never = id_of(&l, 30, 0);
    bw_error_clear(&l.err);
    assert_fails(bwi_next_unshelve(&l.head, &never, &l.err), BW_E_INTERNAL, &l.err, "step 30 is not shelved");
    fini(&l);
}

static void only_what_is_live_or_shelved_is_pinned_or_retired(void **state) {
    (void)state;
    struct log l = {0};
    struct bwi_entry next = {0};
    start(&l, "a");
    commit(&l, 20);
    const struct bwi_id never = id_of(&l, 30, 0);
    const struct bwi_actor a = actor(&l);
    assert_fails(try_retire(&l, never), BW_E_NOTFOUND, &l.err, "neither live nor shelved");
    bw_error_clear(&l.err);
    assert_fails(bwi_policy_pin(&a, &never, true, &next, &l.err), BW_E_NOTFOUND, &l.err, "neither live nor shelved");
    fini(&l);
}

/* Of a step that is not above h the entry alone cannot tell. */
static void an_entry_proves_that_a_try_was_aborted_only_above_h(void **state) {
    (void)state;
    struct log l = {0};
    start(&l, "a");
    const struct bwi_id at10 = id_of(&l, 10, 0), at20 = id_of(&l, 20, 0), again = id_of(&l, 20, 1);
    assert_false(bwi_policy_was_aborted(NULL, &at20));
    assert_false(bwi_policy_was_aborted(&l.head, &at20)); /* it can be committed */
    assert_ok(try_abort(&l, at10), &l.err);
    assert_ok(try_abort(&l, at20), &l.err);
    assert_true(bwi_policy_was_aborted(&l.head, &at10) && bwi_policy_was_aborted(&l.head, &at20));
    assert_false(bwi_policy_was_aborted(&l.head, &again));
    assert_ok(try_commit(&l, again), &l.err);
    assert_false(bwi_policy_was_aborted(&l.head, &again)); /* live */
    assert_false(bwi_policy_was_aborted(&l.head, &at20));  /* dead; a step that was committed and retired looks alike */
    start(&l, "b");
    assert_false(bwi_policy_was_aborted(&l.head, &at10)); /* of another attempt */
    fini(&l);
}

static void a_launch_is_beaten_by_whoever_registered_since_it_looked(void **state) {
    (void)state;
    struct log l = {0};
    assert_false(bwi_policy_is_beaten(NULL, false, 0));
    start(&l, "a");
    assert_true(bwi_policy_is_beaten(&l.head, false, 0));
    assert_false(bwi_policy_is_beaten(&l.head, true, 1));
    start(&l, "b");
    assert_true(bwi_policy_is_beaten(&l.head, true, 1));
    assert_false(bwi_policy_is_beaten(&l.head, true, 2) || bwi_policy_is_beaten(&l.head, true, 3));
    fini(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_register_begins_era_one_from_nothing),
        cmocka_unit_test(a_restart_goes_on_from_the_newest_and_counts_up),
        cmocka_unit_test(steps_commit_in_order_and_end_lower_ones),
        cmocka_unit_test(an_older_attempt_can_never_commit),
        cmocka_unit_test(the_nonce_counts_as_well_as_the_number),
        cmocka_unit_test(an_aborted_try_is_closed_and_the_next_one_may_commit),
        cmocka_unit_test(a_launch_id_works_once),
        cmocka_unit_test(a_launch_that_was_overtaken_is_lost_within_a_job),
        cmocka_unit_test(another_job_supersedes_and_the_old_ones_restarts_are_refused),
        cmocka_unit_test(a_takeover_brings_a_superseded_job_back_once_per_label),
        cmocka_unit_test(a_takeover_that_goes_back_for_damage_is_still_one),
        cmocka_unit_test(fresh_shelves_all_and_its_label_works_once),
        cmocka_unit_test(rollback_shelves_what_is_newer_and_a_shelved_one_comes_back_alone),
        cmocka_unit_test(an_uncommitted_checkpoint_that_is_whole_is_gone_on_from_and_committed_later),
        cmocka_unit_test(a_commit_above_closes_the_open_one),
        cmocka_unit_test(the_newest_the_pinned_and_what_the_open_one_needs_are_never_retired),
        cmocka_unit_test(a_checkpoint_whose_ref_was_retired_cannot_commit),
        cmocka_unit_test(retired_data_that_a_live_one_refers_to_is_kept),
        cmocka_unit_test(repair_begins_an_era_of_no_job),
        cmocka_unit_test(a_repair_takes_up_only_what_may_be_committed),
        cmocka_unit_test(a_repair_does_not_take_up_the_open_one_without_what_it_refers_to),
        cmocka_unit_test(an_archive_can_be_promoted_and_the_authority_not),
        cmocka_unit_test(launch_ids_are_forgotten_oldest_first),
        cmocka_unit_test(retention_keeps_what_any_rule_keeps),
        cmocka_unit_test(an_entry_proves_that_a_try_was_aborted_only_above_h),
        cmocka_unit_test(a_launch_is_beaten_by_whoever_registered_since_it_looked),
        cmocka_unit_test(every_rule_survives_running_out_of_memory),
        cmocka_unit_test(a_takeover_by_a_job_that_nobody_superseded_is_none),
        cmocka_unit_test(a_launch_that_another_jobs_came_before_is_superseded),
        cmocka_unit_test(an_attempt_that_no_history_knows_is_lost),
        cmocka_unit_test(nobody_goes_on_from_what_is_not_newer_or_cannot_be_committed),
        cmocka_unit_test(a_step_is_live_once_whatever_the_entry_says_of_h),
        cmocka_unit_test(only_what_is_live_or_shelved_is_pinned_or_retired),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
