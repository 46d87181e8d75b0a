/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that go away while somebody looks at them are gone, not damaged, and nobody puts them back. A local copy is
 * evicted: its summary goes first, then its data. A checkpoint is retired: the history says so, then all of it goes. */
#include "base/error.h"
#include "checkpoint/policy_history.h"
#include "checkpoint/verify.h"
#include "reader.h"

static void small(struct fixture *f, struct world *w, uint32_t world) {
    fixture_init(f, w, world, FIXTURE_ROWS);
    fixture_tensor(f, "a", BW_F32, 2, (uint64_t[]){24, 300});
    fixture_tensor(f, "b", BW_I16, 1, (uint64_t[]){3000});
    fixture_tie(f, "a.tied", 0);
    fixture_blob(f, "rng", 5000);
}

static void evict_data(struct fixture *f, uint32_t group) {
    struct bwi_bucket *b = f->w->bucket[BWI_TIER_LOCAL];
    const struct bwi_key dir = bwi_key_data_of(f->w->ctx.run, f->fan_out, &f->id, group);
    for (size_t i = bwi_bucket_objects(b); i-- > 0;) {
        const char *key = bwi_bucket_key(b, i);
        if (strncmp(key, dir.s, strlen(dir.s)) == 0) assert_true(bwi_bucket_remove(b, key));
    }
}

static void evict_summary(struct fixture *f, uint32_t group) {
    assert_true(bwi_bucket_remove(f->w->bucket[BWI_TIER_LOCAL], bwi_key_summary(f->w->ctx.run, &f->id, group).s));
}

static void assert_absent(struct fixture *f, uint32_t group) {
    struct bwi_bucket *b = f->w->bucket[BWI_TIER_LOCAL];
    const struct bwi_key dir = bwi_key_data_of(f->w->ctx.run, f->fan_out, &f->id, group);
    const struct bwi_key summary = bwi_key_summary(f->w->ctx.run, &f->id, group);
    for (size_t i = 0; i < bwi_bucket_objects(b); i++) {
        const char *key = bwi_bucket_key(b, i);
        if (strncmp(key, dir.s, strlen(dir.s)) == 0 || strcmp(key, summary.s) == 0) fail_msg("it is back: %s", key);
    }
}

/* ---- verify ---- */

enum form { PLAIN, FAST, COMPRESSED, OF_ANOTHER, FORMS };

static void save_as(struct fixture *f, enum form form) {
    const struct bwi_id other = {90, 2, 0xabcd1234, 0};
    for (uint32_t g = 0; g < f->world; g++) {
        for (int t = 0; t < BWI_TIERS; t++) {
            fixture_save_group(f, g, (enum bwi_tier)t);
            if (form < COMPRESSED) continue;
            const bool guest = form == OF_ANOTHER;
            fixture_repack(f, g, (enum bwi_tier)t, guest ? BWI_CODEC_RAW : BWI_CODEC_ZSTD, guest ? &other : NULL);
        }
    }
    fixture_commit(f);
}

/* Evicts a group after some turns, its data at once or one turn later. false: verify was faster. */
static bool verify_while_it_goes(enum form form, uint64_t turns, bool at_once) {
    struct world w;
    struct fixture f;
    struct bwi_findings found = {0};
    world_open(&w, 5, 64 * KIB);
    small(&f, &w, 3);
    save_as(&f, form);
    struct bwi_verify v = {.ctx = &w.ctx,
                           .id = f.id,
                           .committed = true,
                           .manifest = f.manifest,
                           .fast = form == FAST,
                           .tiers = {true, true},
                           .findings = &found};
    bwi_verify_start(&v, w.loop, NULL);
    for (uint64_t i = 0; i < turns && v.task.running; i++) world_turn(&w);
    const bool running = v.task.running;
    evict_summary(&f, 1);
    if (!at_once && running) world_turn(&w);
    evict_data(&f, 1);
    world_run(&w);
    assert_ok(v.task.error.status, &v.task.error);
    for (size_t i = 0; i < found.count; i++) {
        if (found.list[i].severity > 0) fail_msg("form %d, turn %u: %s", form, (unsigned)turns, found.list[i].message);
    }
    assert_int_equal(v.damaged_objects, 0);
    assert_int_equal(v.bad_count[BWI_TIER_LOCAL], 0);
    bwi_verify_fini(&v);
    bwi_findings_fini(&found);
    world_close(&w);
    return running;
}

static void a_copy_that_is_evicted_while_it_is_verified_is_no_damage(void **state) {
    (void)state;
    for (int form = 0; form < FORMS; form++) {
        for (uint64_t turns = 0; verify_while_it_goes((enum form)form, turns, true); turns++)
            (void)verify_while_it_goes((enum form)form, turns, false);
    }
}

static void without_an_eviction_what_is_missing_is_damage(void **state) {
    (void)state;
    for (int form = 0; form < FORMS; form++) {
        struct world w;
        struct fixture f;
        struct bwi_findings found = {0};
        world_open(&w, 5, 64 * KIB);
        small(&f, &w, 3);
        save_as(&f, (enum form)form);
        if (form == OF_ANOTHER) {
            const struct bwi_id other = {90, 2, 0xabcd1234, 0};
            const struct bwi_key pack = bwi_key_pack("run", false, &other, 1, 0, w.ctx.writer + 1);
            assert_true(bwi_bucket_remove(w.bucket[0], pack.s));
        } else {
            evict_data(&f, 1);
        }
        struct bwi_verify v = {.ctx = &w.ctx,
                               .id = f.id,
                               .committed = true,
                               .manifest = f.manifest,
                               .fast = form == FAST,
                               .tiers = {true, true},
                               .findings = &found};
        bwi_verify_start(&v, w.loop, NULL);
        world_run(&w);
        assert_ok(v.task.error.status, &v.task.error);
        assert_true(v.damaged_objects > 0);
        assert_int_equal(v.bad_count[BWI_TIER_LOCAL], 1);
        assert_int_equal(v.bad_groups[BWI_TIER_LOCAL][0], 1);
        bwi_verify_fini(&v);
        bwi_findings_fini(&found);
        world_close(&w);
    }
}

static void put_entry(struct world *w, const struct bwi_entry *e, struct bwi_sha *ret_sha) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf bytes = {0};
    assert_ok(bwi_entry_encode(e, &bytes, &err), &err);
    *ret_sha = bwi_sha_of(bwi_buf_span(&bytes));
    world_put(w, BWI_TIER_REMOTE, bwi_key_entry("run", e->era, e->n).s, bwi_buf_span(&bytes));
    bwi_buf_fini(&bytes);
}

/* A history in which the fixture's checkpoint was committed, or a later one without it. */
static void put_history(struct fixture *f, bool kept) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_sha sha = {{0}};
    struct bwi_actor a = {.store = {{1}}, .time_ms = 1000, .host = "h"};
    const struct bwi_register r = {.run = "run",
                                   .job = "job",
                                   .launch = "launch",
                                   .world = f->world,
                                   .groups = f->world,
                                   .nonce = f->id.nonce,
                                   .uuid = f->uuid,
                                   .label = "",
                                   .note = ""};
    struct bwi_entry first = {0};
    struct bwi_entry second = {0};
    assert_ok(bwi_policy_register(&a, &r, &first, &err), &err);
    put_entry(f->w, &first, &sha);
    a.head = &first;
    a.head_sha = sha;
    struct bwi_kept k = {.id = f->id, .manifest = f->manifest, .bytes = 1, .time_ms = 1000};
    if (!kept) k.id.step++;
    assert_ok(bwi_policy_commit(&a, &k, &second, &err), &err);
    put_entry(f->w, &second, &sha);
    bwi_entry_fini(&first);
    bwi_entry_fini(&second);
}

/* All of the checkpoint is deleted after some turns. false: verify was faster. */
static bool verify_while_it_is_swept(uint64_t turns, bool kept) {
    struct world w;
    struct fixture f;
    struct bwi_findings found = {0};
    world_open(&w, 5, 64 * KIB);
    small(&f, &w, 2);
    f.id.attempt = 1;
    f.tiers[BWI_TIER_LOCAL] = false;
    fixture_save(&f);
    put_history(&f, kept);
    bwi_findings_add(&found, 2, BW_E_CORRUPT, "remote", NULL, "before", NULL, "of another one");
    struct bwi_verify v = {.ctx = &w.ctx,
                           .id = f.id,
                           .committed = true,
                           .manifest = f.manifest,
                           .tiers = {false, true},
                           .findings = &found};
    bwi_verify_start(&v, w.loop, NULL);
    for (uint64_t i = 0; i < turns && v.task.running; i++) world_turn(&w);
    const bool running = v.task.running;
    for (size_t i = bwi_bucket_objects(w.bucket[1]); i-- > 0;) {
        const char *key = bwi_bucket_key(w.bucket[1], i);
        if (strstr(key, "/history/") == NULL) assert_true(bwi_bucket_remove(w.bucket[1], key));
    }
    world_run(&w);
    assert_ok(v.task.error.status, &v.task.error);
    size_t damage = 0;
    for (size_t i = 1; i < found.count; i++) damage += found.list[i].severity == 2;
    assert_int_equal(v.damaged_objects > 0, damage > 0);
    if (turns == 0) assert_int_equal(damage > 0, kept);
    if (!kept) assert_int_equal(damage, 0);
    if (!kept) assert_int_equal(v.bad_count[BWI_TIER_REMOTE], 0);
    if (!kept && turns == 0) assert_non_null(strstr(found.list[1].message, "retired while it was verified"));
    assert_string_equal(found.list[0].message, "of another one");
    assert_int_equal(found.list[0].severity, 2);
    bwi_verify_fini(&v);
    bwi_findings_fini(&found);
    world_close(&w);
    return running;
}

static void a_checkpoint_that_is_swept_while_it_is_verified_is_no_damage(void **state) {
    (void)state;
    for (uint64_t turns = 0; verify_while_it_is_swept(turns, false); turns++) {
    }
    assert_true(verify_while_it_is_swept(0, true));
}

/* ---- restore ---- */

static void a_copy_that_was_evicted_after_it_was_read_is_not_put_back(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    world_open(&w, 8, 256 * KIB);
    small(&f, &w, 2);
    fixture_save(&f);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    assert_ok(reader_all(&x), &x.error);
    assert_int_equal(bwi_restore_get_stats(x.r)->remote_bytes, 0);
    evict_summary(&f, 1);
    evict_data(&f, 1);
    assert_ok(reader_all(&x), &x.error);
    assert_true(bwi_restore_get_stats(x.r)->remote_bytes > 0);
    assert_int_equal(bwi_restore_get_stats(x.r)->repaired_objects, 0);
    assert_absent(&f, 1);
    const uint64_t missed = bwi_restore_get_stats(x.r)->damaged_extents;
    assert_ok(reader_all(&x), &x.error);
    assert_int_equal(bwi_restore_get_stats(x.r)->damaged_extents, missed); /* nobody looks for it again */
    assert_absent(&f, 1);
    reader_close(&x);
    world_close(&w);
}

/* The content is damaged, and the copy goes before it can be put right. */
static void a_damaged_copy_that_was_evicted_is_not_put_back(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct piece p;
    world_open(&w, 8, 256 * KIB);
    small(&f, &w, 2);
    fixture_save(&f);
    fixture_damage(&w, BWI_TIER_LOCAL, bwi_key_content("run", false, &f.id, 1).s, FIXTURE_FLIP, 50);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    piece_make(&p, &f, 0, (uint64_t[]){0, 0}, (uint64_t[]){24, 300});
    struct bwi_restore_call c = {.what = BWI_RESTORE_READ, .r = x.r, .slices = &p.slice, .slice_count = 1};
    bwi_restore_call_start(&c, w.loop, NULL);
    const uint64_t before = w.ctx.tier[BWI_TIER_REMOTE]->ops[BWI_STORE_READ];
    while (bwi_restore_get_stats(x.r)->remote_bytes == 0 || w.ctx.tier[BWI_TIER_REMOTE]->ops[BWI_STORE_READ] == before)
        world_turn(&w);
    evict_summary(&f, 1);
    evict_data(&f, 1);
    world_run(&w);
    assert_ok(c.task.error.status, &c.task.error);
    assert_int_equal(piece_wrong(&p), 0);
    assert_int_equal(bwi_restore_get_stats(x.r)->repaired_objects, 0);
    assert_absent(&f, 1);
    bwi_free(p.memory);
    reader_close(&x);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_that_is_evicted_while_it_is_verified_is_no_damage),
        cmocka_unit_test(without_an_eviction_what_is_missing_is_damage),
        cmocka_unit_test(a_checkpoint_that_is_swept_while_it_is_verified_is_no_damage),
        cmocka_unit_test(a_copy_that_was_evicted_after_it_was_read_is_not_put_back),
        cmocka_unit_test(a_damaged_copy_that_was_evicted_is_not_put_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
