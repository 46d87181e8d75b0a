/* SPDX-License-Identifier: Apache-2.0 */
/* Resolve alone: what is not committed yet and refers to others, what cannot be read, and what is damaged. The whole of
 * it, with jobs around, is in the session tests. */
#include "checkpoint/resolve.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "format/manifest.h"
#include "format/summary.h"
#include "os/os.h"
#include "store/store_memory.h"
#include "test.h"

#define GROUPS 2u

/* A run of one attempt with live steps 10, 20 ... in the authority, and what nodes say that they hold. */
struct run {
    struct bwi_env_virtual env;
    struct bwi_bucket *bucket;
    struct bwi_loop *loop;
    struct bwi_context ctx;
    struct bwi_head head;
    struct bwi_hold held[GROUPS];
    struct bwi_inventory inventory;
    struct bwi_register reg;
    struct bwi_resolve r;
    struct bw_error err;
};

static struct bwi_actor actor(struct run *j) {
    return (struct bwi_actor){.head = j->head.found ? &j->head.entry : NULL, .time_ms = 5, .host = "node"};
}

static void take(struct run *j, struct bwi_entry *next) {
    bwi_entry_fini(&j->head.entry);
    j->head.entry = *next;
    j->head.found = true;
}

static struct bwi_id id_of(uint64_t step) {
    return (struct bwi_id){.step = step, .attempt = 1, .nonce = 5};
}

static void put(struct run *j, struct bwi_key key, struct bwi_buf *bytes) {
    assert_true(bwi_bucket_put(j->bucket, key.s, bwi_buf_span(bytes)));
    bwi_buf_fini(bytes);
}

/* Puts the manifest of a step, and commits it. */
static void commit(struct run *j, uint64_t step) {
    uint32_t ranks[GROUPS] = {0, 1};
    struct bwi_manifest_group groups[GROUPS];
    for (uint32_t g = 0; g < GROUPS; g++)
        groups[g] =
            (struct bwi_manifest_group){.ranks = &ranks[g], .rank_count = 1, .layout_bytes = 100, .content_bytes = 100};
    struct bwi_manifest m = {.id = id_of(step),
                             .world = GROUPS,
                             .groups = groups,
                             .group_count = GROUPS,
                             .index = {.bytes = 4096, .head_bytes = 4096}};
    struct bwi_buf bytes = {0};
    struct bwi_entry next = {0};
    const struct bwi_actor a = actor(j);
    assert_ok(bwi_manifest_encode(&m, &bytes, &j->err), &j->err);
    const struct bwi_kept k = {.id = m.id, .manifest = bwi_sha_of(bwi_buf_span(&bytes)), .bytes = 10};
    put(j, bwi_key_manifest("run", &k.id, &k.manifest), &bytes);
    assert_ok(bwi_policy_commit(&a, &k, &next, &j->err), &j->err);
    take(j, &next);
}

static void run_init(struct run *j, uint64_t last) {
    memset(j, 0, sizeof *j);
    bwi_env_virtual_init(&j->env, 1);
    assert_int_equal(bwi_bucket_new(&j->env.env, &j->bucket), 0);
    assert_ok(bwi_loop_open(&j->env.env, NULL, &j->loop, &j->err), &j->err);
    bwi_context_init(&j->ctx, j->loop);
    bwi_format(j->ctx.run, sizeof j->ctx.run, "run");
    assert_ok(bwi_store_memory_open(j->bucket, j->loop, "m", &j->ctx.tier[BWI_TIER_REMOTE], &j->err), &j->err);
    const struct bwi_actor a = actor(j);
    struct bwi_entry next = {0};
    j->reg = (struct bwi_register){
        .run = "run", .job = "job", .launch = "l", .label = "", .world = GROUPS, .groups = GROUPS, .nonce = 5};
    j->reg.uuid.b[0] = 1;
    assert_ok(bwi_policy_register(&a, &j->reg, &next, &j->err), &j->err);
    take(j, &next);
    for (uint64_t step = 10; step <= last; step += 10) commit(j, step);
    j->inventory.holds = j->held;
}

static void run_fini(struct run *j) {
    bwi_head_fini(&j->head);
    j->ctx.tier[BWI_TIER_REMOTE]->close(j->ctx.tier[BWI_TIER_REMOTE]);
    bwi_loop_close(j->loop);
    bwi_bucket_free(j->bucket);
    assert_int_equal(bwi_alloc_live(), 0);
}

/* A group of a step that nobody has committed, in the authority. */
static void bring(struct run *j, uint64_t step, uint32_t group, const uint64_t *refs, uint32_t ref_count) {
    struct bwi_summary s = {.id = id_of(step),
                            .group = group,
                            .groups = GROUPS,
                            .world = GROUPS,
                            .rank_count = 1,
                            .ranks = {group},
                            .layout_bytes = 100,
                            .content_bytes = 100,
                            .placement_bytes = 100,
                            .raw_bytes = 1000,
                            .stored_bytes = 4096,
                            .pack_count = 1,
                            .ref_count = ref_count};
    struct bwi_buf bytes = {0};
    s.uuid.b[0] = 1;
    for (uint32_t i = 0; i < ref_count; i++) s.refs[i] = id_of(refs[i]);
    assert_ok(bwi_summary_encode(&s, &bytes, &j->err), &j->err);
    put(j, bwi_key_summary("run", &s.id, group), &bytes);
}

/* The same, on some node. */
static void hold(struct run *j, uint64_t step, uint32_t group, const uint64_t *refs, uint32_t ref_count) {
    struct bwi_hold *h = &j->held[j->inventory.hold_count++];
    *h = (struct bwi_hold){.id = id_of(step), .uuid.b[0] = 1, .group = group, .ref_count = ref_count};
    for (uint32_t i = 0; i < ref_count; i++) h->refs[i] = id_of(refs[i]);
}

static void begin(struct run *j) {
    bw_error_clear(&j->err);
    j->r = (struct bwi_resolve){.ctx = &j->ctx,
                                .head = &j->head,
                                .inventories = &j->inventory,
                                .inventory_count = 1,
                                .reg = &j->reg,
                                .deadline_ns = BWI_NEVER};
    bwi_resolve_start(&j->r, j->loop, NULL);
}

static int resolve(struct run *j) {
    begin(j);
    while (j->r.task.running) assert_true(bwi_loop_turn(j->loop, 0));
    return bwi_error_copy(&j->err, &j->r.task.error);
}

/* Nothing is chosen but the committed checkpoint of that step. */
static void assert_committed(struct run *j, uint64_t step) {
    assert_ok(resolve(j), &j->err);
    assert_null(j->reg.newer);
    assert_int_equal(j->reg.target.step, step);
}

static void damage(struct run *j, const struct bwi_key *key) {
    struct bwi_span bytes;
    struct bwi_buf copy = {0};
    assert_true(bwi_bucket_get(j->bucket, key->s, &bytes));
    bwi_buf_put(&copy, bytes.ptr, bytes.len);
    copy.ptr[copy.len / 2] ^= 1;
    put(j, *key, &copy);
}

/* --- what is not committed yet ------------------------------------------------------------------------------- */

/* One group is on a node, the other in the authority; each says what it refers to itself. */
static void what_the_groups_refer_to_is_joined(void **state) {
    (void)state;
    struct run j;
    run_init(&j, 30);
    hold(&j, 40, 0, (const uint64_t[]){10, 30}, 2);
    bring(&j, 40, 1, (const uint64_t[]){10, 20}, 2);
    assert_ok(resolve(&j), &j.err);
    assert_non_null(j.reg.newer);
    assert_int_equal(j.reg.newer->id.step, 40);
    assert_int_equal(j.reg.newer->ref_count, 3);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(j.reg.newer->refs[i].step, 10 * (i + 1));
    assert_non_null(strstr(j.r.note, "step 40 is not committed yet, but all 2 groups have it complete"));
    run_fini(&j);
}

static void one_that_refers_to_what_was_never_live_is_passed_over(void **state) {
    (void)state;
    struct run j;
    run_init(&j, 20);
    for (uint32_t g = 0; g < GROUPS; g++) bring(&j, 30, g, NULL, 0); /* older, and whole */
    for (uint32_t g = 0; g < GROUPS; g++) bring(&j, 40, g, (const uint64_t[]){10, 15}, 2);
    assert_ok(resolve(&j), &j.err);
    assert_non_null(j.reg.newer);
    assert_int_equal(j.reg.newer->id.step, 30);
    run_fini(&j);
}

/* Each group has as many refs as it may, and not the same ones. */
static void one_that_refers_to_too_many_is_passed_over(void **state) {
    (void)state;
    static const uint64_t low[] = {10, 20, 30, 40, 50, 60, 70, 80}, high[] = {90, 100};
    for (int on_nodes = 0; on_nodes < 2; on_nodes++) {
        struct run j;
        run_init(&j, 100);
        bring(&j, 110, 0, low, BWI_REFS_MAX);
        bring(&j, 110, 1, high, 2);
        if (on_nodes) {
            hold(&j, 110, 0, low, BWI_REFS_MAX);
            hold(&j, 110, 1, high, 2);
        }
        assert_committed(&j, 100);
        run_fini(&j);
    }
}

static void one_of_which_a_summary_says_nothing_is_passed_over(void **state) {
    (void)state;
    const struct bwi_id at30 = id_of(30);
    const struct bwi_key key = bwi_key_summary("run", &at30, 1);
    static const int answers[] = {BW_E_NOTFOUND, BW_E_CORRUPT, BW_E_FORMAT};
    for (size_t i = 0; i <= sizeof answers / sizeof *answers; i++) {
        struct run j;
        run_init(&j, 20);
        for (uint32_t g = 0; g < GROUPS; g++) bring(&j, 30, g, NULL, 0);
        if (i < sizeof answers / sizeof *answers)
            bwi_bucket_fail_next(j.bucket, BWI_STORE_GET, key.s, answers[i], false);
        else
            damage(&j, &key);
        assert_committed(&j, 20);
        run_fini(&j);
    }
}

/* --- what is committed --------------------------------------------------------------------------------------- */

static void when_no_manifest_is_sound_the_newest_is_named(void **state) {
    (void)state;
    struct run j;
    run_init(&j, 20);
    for (size_t i = 0; i < 2; i++) {
        const struct bwi_kept *k = &j.head.entry.live[i];
        const struct bwi_key key = bwi_key_manifest("run", &k->id, &k->manifest);
        damage(&j, &key);
    }
    assert_fails(resolve(&j), BW_E_CORRUPT, &j.err,
                 "no checkpoint that may be gone back to is sound: 00000000000000000020.1-00000005.0: manifest");
    run_fini(&j);
}

/* --- errors -------------------------------------------------------------------------------------------------- */

/* Whatever cannot be read might be what counts: nobody goes on from something older for an error that may pass. */
static void an_answer_that_does_not_come_fails_it_and_is_told(void **state) {
    (void)state;
    static const struct {
        enum bwi_store_verb verb;
        const char *part;
    } calls[] = {{BWI_STORE_LIST, "/checkpoints/"}, {BWI_STORE_LIST, "/groups/"}, {BWI_STORE_LIST, "/failed/"},
                 {BWI_STORE_SYNC, "/groups/"},      {BWI_STORE_GET, "/groups/"},  {BWI_STORE_GET, "/manifest."},
                 {BWI_STORE_LIST, "/damaged/"}};
    struct run j;
    run_init(&j, 20);
    bring(&j, 30, 0, NULL, 0);
    bring(&j, 30, 1, (const uint64_t[]){15}, 1);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        bwi_bucket_fail_next(j.bucket, calls[i].verb, calls[i].part, BW_E_IO, false);
        assert_fails(resolve(&j), BW_E_IO, &j.err, "resolve");
    }
    assert_committed(&j, 20);
    run_fini(&j);
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    struct run j;
    unsigned long n = 1;
    run_init(&j, 20);
    hold(&j, 40, 0, NULL, 0);
    for (uint32_t g = 0; g < GROUPS; g++) bring(&j, 30, g, NULL, 0);
    const long live = bwi_alloc_live();
    for (;; n++) {
        (void)bwi_alloc_fail_at(n);
        const int rc = resolve(&j);
        const bool reached = bwi_alloc_fail_at(0) >= n;
        assert_int_equal(bwi_alloc_live(), live);
        if (!reached) break;
        assert_fails(rc, BW_E_NOMEM, &j.err, NULL);
    }
    assert_true(n > 10);
    assert_non_null(j.reg.newer);
    assert_int_equal(j.reg.newer->id.step, 30);
    run_fini(&j);
}

static void cancel_ends_it_wherever_it_is(void **state) {
    (void)state;
    struct run j;
    unsigned after = 0;
    run_init(&j, 20);
    for (uint32_t g = 0; g < GROUPS; g++) bring(&j, 30, g, (const uint64_t[]){15}, 1);
    for (bool whole = false; !whole; after++) {
        begin(&j);
        for (unsigned i = 0; i < after && j.r.task.running; i++) (void)bwi_loop_turn(j.loop, 0);
        whole = !j.r.task.running;
        if (!whole) bwi_task_cancel(&j.r.task);
        while (j.r.task.running) assert_true(bwi_loop_turn(j.loop, 0));
        const struct bw_error *e = &j.r.task.error;
        if (!whole) assert_fails(e->status, BW_E_CANCELLED, e, NULL);
    }
    assert_true(after > 3);
    assert_int_equal(j.reg.target.step, 20);
    run_fini(&j);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_groups_refer_to_is_joined),
        cmocka_unit_test(one_that_refers_to_what_was_never_live_is_passed_over),
        cmocka_unit_test(one_that_refers_to_too_many_is_passed_over),
        cmocka_unit_test(one_of_which_a_summary_says_nothing_is_passed_over),
        cmocka_unit_test(when_no_manifest_is_sound_the_newest_is_named),
        cmocka_unit_test(an_answer_that_does_not_come_fails_it_and_is_told),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(cancel_ends_it_wherever_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
