/* SPDX-License-Identifier: Apache-2.0 */
/* Mending: what one tier has sound is put right on the other one, byte for byte; what no tier has is said to be lost;
 * and nothing else is touched. */
#include "base/error.h"
#include "checkpoint/mend.h"
#include "checkpoint/mend_private.h"
#include "fixture.h"
#include "sanitized.h"

static void small(struct fixture *f, struct world *w, uint32_t world) {
    fixture_init(f, w, world, FIXTURE_ROWS);
    fixture_tensor(f, "a", BW_F32, 2, (uint64_t[]){24, 300});
    fixture_tensor(f, "b", BW_I16, 1, (uint64_t[]){3000});
    fixture_blob(f, "rng", 5000);
    f->pack_bytes = 16 * KIB; /* several packs in a group */
}

/* ---- all objects of a tier ---- */

struct snapshot {
    size_t n;
    struct bwi_key key[160];
    struct bwi_buf bytes[160];
};

static void snapshot_take(struct snapshot *s, struct world *w, enum bwi_tier t) {
    s->n = bwi_bucket_objects(w->bucket[t]);
    assert_true(s->n <= 160);
    for (size_t i = 0; i < s->n; i++) {
        struct bwi_span data = BWI_SPAN_NONE;
        (void)snprintf(s->key[i].s, sizeof s->key[i].s, "%s", bwi_bucket_key(w->bucket[t], i));
        assert_true(bwi_bucket_get(w->bucket[t], s->key[i].s, &data));
        s->bytes[i] = (struct bwi_buf){0};
        bwi_buf_put(&s->bytes[i], data.ptr, data.len);
        assert_false(s->bytes[i].failed);
    }
}

static bool snapshot_eq(const struct snapshot *s, struct world *w, enum bwi_tier t) {
    if (bwi_bucket_objects(w->bucket[t]) != s->n) return false;
    for (size_t i = 0; i < s->n; i++) {
        struct bwi_span data = BWI_SPAN_NONE;
        if (!bwi_bucket_get(w->bucket[t], s->key[i].s, &data)) return false;
        if (!bwi_span_eq(data, bwi_buf_span(&s->bytes[i]))) return false;
    }
    return true;
}

static void snapshot_free(struct snapshot *s) {
    for (size_t i = 0; i < s->n; i++) bwi_buf_fini(&s->bytes[i]);
    s->n = 0;
}

/* ---- a mend ---- */

struct mending {
    struct world w;
    struct fixture f;
    struct bwi_mend m;
    struct bwi_findings found;
    struct snapshot before[BWI_TIERS];
};

static void mending_open(struct mending *x, uint64_t seed, uint32_t world) {
    memset(x, 0, sizeof *x);
    world_open(&x->w, seed, 128 * KIB);
    small(&x->f, &x->w, world);
    fixture_save(&x->f);
    for (int t = 0; t < BWI_TIERS; t++) snapshot_take(&x->before[t], &x->w, (enum bwi_tier)t);
}

static void mending_start(struct mending *x, bool dry_run) {
    bwi_findings_fini(&x->found);
    x->m = (struct bwi_mend){
        .ctx = &x->w.ctx, .id = x->f.id, .manifest = x->f.manifest, .dry_run = dry_run, .findings = &x->found};
    bwi_mend_start(&x->m, x->w.loop, NULL);
}

static void mending_end(struct mending *x) {
    assert_int_equal(x->m.task.pending, 0);
    bwi_mend_fini(&x->m);
    bwi_mend_fini(&x->m);
}

static void mending_run(struct mending *x, bool dry_run) {
    mending_start(x, dry_run);
    world_run(&x->w);
    mending_end(x);
    assert_ok(x->m.task.error.status, &x->m.task.error);
}

static void mending_close(struct mending *x) {
    bwi_findings_fini(&x->found);
    for (int t = 0; t < BWI_TIERS; t++) snapshot_free(&x->before[t]);
    world_close(&x->w);
}

static bool is_as_before(struct mending *x) {
    return snapshot_eq(&x->before[0], &x->w, BWI_TIER_LOCAL) && snapshot_eq(&x->before[1], &x->w, BWI_TIER_REMOTE);
}

static void tell(const struct mending *x) {
    for (size_t i = 0; i < x->found.count; i++) {
        const struct bw_finding *p = &x->found.list[i];
        print_message("%u %d %s %s [%s] %s\n", p->severity, p->status, p->tier, p->object, p->tensor, p->message);
    }
}

static size_t count(const struct mending *x, uint32_t severity) {
    size_t n = 0;
    for (size_t i = 0; i < x->found.count; i++) n += x->found.list[i].severity == severity;
    return n;
}

static bool has(const struct mending *x, uint32_t severity, const char *tier, const char *object, const char *text) {
    for (size_t i = 0; i < x->found.count; i++) {
        const struct bw_finding *p = &x->found.list[i];
        if (p->severity == severity && strcmp(p->tier, tier) == 0 && strcmp(p->object, object) == 0 &&
            strstr(p->message, text) != NULL) {
            return true;
        }
    }
    return false;
}

#define assert_has(x, severity, tier, object, text)                                                                    \
    do {                                                                                                               \
        if (!has(x, severity, tier, object, text)) {                                                                   \
            tell(x);                                                                                                   \
            fail_msg("no finding: %d %s %s %s", severity, tier, object, text);                                         \
        }                                                                                                              \
    } while (0)

#define assert_found(x, facts, warnings, damages)                                                                      \
    do {                                                                                                               \
        if (count(x, 0) != (facts) || count(x, 1) != (warnings) || count(x, 2) != (damages)) {                         \
            tell(x);                                                                                                   \
            fail_msg("%zu, %zu, %zu findings", count(x, 0), count(x, 1), count(x, 2));                                 \
        }                                                                                                              \
    } while (0)

/* Whatever is there now verifies. */
static void assert_sound(struct mending *x) {
    struct bwi_findings found = {0};
    struct bwi_verify v = {.ctx = &x->w.ctx,
                           .id = x->f.id,
                           .committed = true,
                           .manifest = x->f.manifest,
                           .tiers = {true, true},
                           .findings = &found};
    bwi_verify_start(&v, x->w.loop, NULL);
    world_run(&x->w);
    assert_ok(v.task.error.status, &v.task.error);
    if (v.damaged_objects != 0) fail_msg("still damaged: %s %s", found.list[0].object, found.list[0].message);
    bwi_verify_fini(&v);
    bwi_findings_fini(&found);
}

static const char *tier_text(int t) {
    return bwi_tier_name((enum bwi_tier)t);
}

static struct bwi_key pack_key(const struct mending *x, uint32_t group, uint32_t n) {
    return bwi_key_pack(x->w.ctx.run, x->f.fan_out, &x->f.id, group, n, x->w.ctx.writer);
}

static struct bwi_key summary_key(const struct mending *x, uint32_t group) {
    return bwi_key_summary(x->w.ctx.run, &x->f.id, group);
}

static struct bwi_key manifest_key(const struct mending *x) {
    return bwi_key_manifest(x->w.ctx.run, &x->f.id, &x->f.manifest);
}

static struct bwi_key index_key(const struct mending *x) {
    return bwi_key_index(x->w.ctx.run, &x->f.id, &x->f.root);
}

static struct bwi_key put_mark(struct mending *x, uint32_t group) {
    const struct bwi_key key = bwi_key_damaged(x->w.ctx.run, &x->f.id, group);
    assert_true(bwi_bucket_put(x->w.bucket[BWI_TIER_REMOTE], key.s, bwi_span_str("a mark")));
    return key;
}

static bool is_there(struct mending *x, const char *key) {
    struct bwi_span data;
    return bwi_bucket_get(x->w.bucket[BWI_TIER_REMOTE], key, &data);
}

/* ---- what can be mended ---- */

static void a_sound_checkpoint_is_left_alone(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct mending x;
        mending_open(&x, seed, 3);
        for (int dry = 0; dry < 2; dry++) {
            mending_run(&x, dry == 1);
            assert_found(&x, 0, 0, 0);
            assert_int_equal(x.m.mended + x.m.lost, 0);
            for (int t = 0; t < BWI_TIERS; t++) assert_int_equal(x.w.ctx.tier[t]->ops[BWI_STORE_REPLACE], 0);
            assert_true(is_as_before(&x));
        }
        mending_close(&x);
    }
}

/* Every object of both tiers in turn, damaged in every way. */
static void every_damage_of_every_object_is_mended_from_the_other_tier(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 2);
    for (int t = 0; t < BWI_TIERS; t++) {
        for (size_t i = 0; i < x.before[t].n; i++) {
            const char *key = x.before[t].key[i].s;
            struct bwi_key_parts parts;
            assert_true(bwi_key_parse(key, &parts));
            const bool whole = parts.kind == BWI_KEY_MANIFEST || parts.kind == BWI_KEY_INDEX;
            for (int d = 0; d < FIXTURE_DAMAGES; d++) {
                if (t == BWI_TIER_LOCAL && d == FIXTURE_DELETE && parts.kind == BWI_KEY_SUMMARY) continue;
                fixture_damage(&x.w, (enum bwi_tier)t, key, (enum fixture_damage)d, UINT64_MAX);
                assert_false(is_as_before(&x));
                mending_run(&x, true);
                assert_has(&x, 1, tier_text(t), key, whole ? "would be made again" : "would be mended from the ");
                assert_int_equal(x.m.mended, 1);
                assert_int_equal(x.m.lost, 0);
                assert_false(is_as_before(&x));
                mending_run(&x, false);
                assert_has(&x, 0, tier_text(t), key, whole ? "made again from the summ" : "mended from the ");
                if (!whole) assert_has(&x, 0, tier_text(t), key, tier_text(!t));
                assert_found(&x, 1, 0, 0);
                assert_int_equal(x.m.mended, 1);
                assert_true(is_as_before(&x));
            }
        }
    }
    mending_close(&x);
}

static void damage_all_over_is_mended_whatever_the_order(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct mending x;
        uint64_t rng = test_seed(seed + 1);
        mending_open(&x, seed == 0 ? 0 : test_seed(seed), 5);
        /* Each object on one tier at most. */
        for (size_t i = 0; i < x.before[1].n; i++) {
            const char *key = x.before[1].key[i].s;
            struct bwi_key_parts parts;
            assert_true(bwi_key_parse(key, &parts));
            const bool whole = parts.kind == BWI_KEY_MANIFEST || parts.kind == BWI_KEY_INDEX;
            const uint64_t dice = test_random(&rng);
            const enum fixture_damage d = (enum fixture_damage)(dice % FIXTURE_DAMAGES);
            if (dice >> 32 & 1) continue;
            /* A group whose metadata is gone on one tier is whole on the other one. */
            const enum bwi_tier t = parts.kind == BWI_KEY_PACK || whole ? BWI_TIER_REMOTE : BWI_TIER_LOCAL;
            if (t == BWI_TIER_LOCAL && d == FIXTURE_DELETE) continue;
            fixture_damage(&x.w, t, key, d, UINT64_MAX);
        }
        mending_run(&x, false);
        assert_int_equal(count(&x, 2), 0);
        if (!is_as_before(&x)) tell(&x);
        assert_true(is_as_before(&x));
        mending_close(&x);
    }
}

static void each_tier_mends_the_packs_of_the_other(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 2);
    const struct bwi_key keys[] = {pack_key(&x, 0, 0), pack_key(&x, 0, 1)};
    fixture_damage(&x.w, BWI_TIER_REMOTE, keys[0].s, FIXTURE_FLIP, UINT64_MAX);
    fixture_damage(&x.w, BWI_TIER_LOCAL, keys[1].s, FIXTURE_DELETE, 0);
    mending_run(&x, false);
    assert_has(&x, 0, "remote", keys[0].s, "mended from the local tier");
    assert_has(&x, 0, "local", keys[1].s, "mended from the remote tier");
    assert_found(&x, 2, 0, 0);
    assert_true(is_as_before(&x));
    mending_close(&x);
}

static void a_whole_tier_without_anything_but_its_history_comes_back(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 3);
    for (size_t i = 0; i < x.before[1].n; i++) {
        assert_true(bwi_bucket_remove(x.w.bucket[BWI_TIER_REMOTE], x.before[1].key[i].s));
    }
    mending_run(&x, false);
    assert_int_equal(count(&x, 2), 0);
    assert_has(&x, 0, "remote", manifest_key(&x).s, "made again");
    assert_has(&x, 0, "remote", index_key(&x).s, "made again");
    assert_true(is_as_before(&x));
    mending_close(&x);
}

/* Directories: what is mended has its name and its bytes there too. */
static void it_works_in_directories(void **state) {
    (void)state;
    struct mending x;
    memset(&x, 0, sizeof x);
    world_open_dirs(&x.w, NULL, MIB);
    small(&x.f, &x.w, 2);
    fixture_save(&x.f);
    fixture_damage(&x.w, BWI_TIER_REMOTE, pack_key(&x, 1, 0).s, FIXTURE_FLIP, UINT64_MAX);
    fixture_damage(&x.w, BWI_TIER_LOCAL, pack_key(&x, 0, 1).s, FIXTURE_EXTEND, 0);
    fixture_damage(&x.w, BWI_TIER_REMOTE, summary_key(&x, 0).s, FIXTURE_DELETE, 0);
    fixture_damage(&x.w, BWI_TIER_REMOTE, manifest_key(&x).s, FIXTURE_TRUNCATE, 0);
    mending_run(&x, false);
    assert_found(&x, 4, 0, 0);
    assert_int_equal(x.m.mended, 4);
    assert_sound(&x);
    mending_close(&x);
}

/* ---- placements that differ ---- */

/* The other tier keeps the same bytes in other packs: they are taken over with the placement that names them. */
static void a_tier_takes_over_where_its_packs_have_no_copy(void **state) {
    (void)state;
    for (int t = 0; t < BWI_TIERS; t++) {
        for (int what = 0; what < 3; what++) {
            struct mending x;
            mending_open(&x, 0, 2);
            fixture_repack(&x.f, 1, (enum bwi_tier) !t, BWI_CODEC_RAW, NULL);
            const struct bwi_key pack = bwi_key_pack(x.w.ctx.run, false, &x.f.id, 1, 0, x.w.ctx.writer + 1);
            const struct bwi_key keys[] = {pack_key(&x, 1, 1), summary_key(&x, 1),
                                           bwi_key_placement(x.w.ctx.run, false, &x.f.id, 1, x.w.ctx.writer)};
            fixture_damage(&x.w, (enum bwi_tier)t, keys[what].s, FIXTURE_FLIP, UINT64_MAX);
            /* In the first case the copy under its old name is gone as well. */
            if (what == 0) fixture_damage(&x.w, (enum bwi_tier) !t, keys[0].s, FIXTURE_DELETE, 0);
            mending_run(&x, true);
            assert_has(&x, 1, tier_text(t), keys[what].s, "would be mended");
            mending_run(&x, false);
            assert_has(&x, 0, tier_text(t), keys[what].s, "mended from the");
            assert_found(&x, 1, 0, 0);
            struct bwi_span data;
            assert_true(bwi_bucket_get(x.w.bucket[t], pack.s, &data));
            assert_sound(&x);
            mending_close(&x);
        }
    }
}

/* A tier's own placement stays as long as it is sound. */
static void layout_and_content_are_mended_under_a_tier_s_own_placement(void **state) {
    (void)state;
    struct mending x;
    struct bwi_group_meta m;
    struct bwi_group_meta now;
    mending_open(&x, 0, 2);
    fixture_repack(&x.f, 1, BWI_TIER_LOCAL, BWI_CODEC_RAW, NULL);
    fixture_meta(&x.f, 1, BWI_TIER_LOCAL, &m);
    const struct bwi_key content = bwi_key_content(x.w.ctx.run, false, &x.f.id, 1);
    const struct bwi_key layout = bwi_key_layout(x.w.ctx.run, x.f.id.attempt, x.f.id.nonce, &m.summary.layout);
    fixture_damage(&x.w, BWI_TIER_LOCAL, content.s, FIXTURE_SWAP, 0);
    fixture_damage(&x.w, BWI_TIER_LOCAL, layout.s, FIXTURE_TRUNCATE, 0);
    mending_run(&x, false);
    assert_found(&x, 2, 0, 0);
    fixture_meta(&x.f, 1, BWI_TIER_LOCAL, &now);
    assert_int_equal(now.summary.writer, x.w.ctx.writer + 1);
    bwi_group_meta_fini(&m);
    bwi_group_meta_fini(&now);
    assert_sound(&x);
    mending_close(&x);
}

/* Metadata that is damaged hides packs that are: they are looked at when it has been mended. */
static void damaged_packs_behind_damaged_metadata_are_found_and_mended(void **state) {
    (void)state;
    const int kinds = 3;
    for (int kind = 0; kind < kinds; kind++) {
        struct mending x;
        mending_open(&x, 0, 2);
        const struct bwi_key keys[] = {summary_key(&x, 0), bwi_key_content(x.w.ctx.run, false, &x.f.id, 0),
                                       bwi_key_placement(x.w.ctx.run, false, &x.f.id, 0, x.w.ctx.writer)};
        fixture_damage(&x.w, BWI_TIER_REMOTE, keys[kind].s, FIXTURE_FLIP, UINT64_MAX);
        fixture_damage(&x.w, BWI_TIER_REMOTE, pack_key(&x, 0, 0).s, FIXTURE_FLIP, UINT64_MAX);
        fixture_damage(&x.w, BWI_TIER_REMOTE, pack_key(&x, 0, 1).s, FIXTURE_TRUNCATE, 0);
        mending_run(&x, false);
        assert_int_equal(count(&x, 2), 0);
        assert_has(&x, 0, "remote", pack_key(&x, 0, 0).s, "mended");
        assert_true(is_as_before(&x));
        mending_close(&x);
    }
}

/* Another placement, and the summary that names it. */
/* ---- compressed packs ---- */

/* A placement that mistakes one extent for another: each hash of stored bytes is right, and what they give is wrong. */
static void mistake(struct mending *x, uint32_t group, enum bwi_tier tier) {
    struct bwi_group_meta m;
    fixture_meta(&x->f, group, tier, &m);
    const struct bwi_place first = m.placement.places[0];
    m.placement.places[0] = m.placement.places[1];
    m.placement.places[1] = first;
    fixture_place(&x->f, tier, &m);
    bwi_group_meta_fini(&m);
}

static void compressed_packs_are_mended(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 2);
    for (int t = 0; t < BWI_TIERS; t++) fixture_repack(&x.f, 1, (enum bwi_tier)t, BWI_CODEC_ZSTD, NULL);
    const struct bwi_key key = bwi_key_pack(x.w.ctx.run, false, &x.f.id, 1, 0, x.w.ctx.writer + 1);
    for (int dry = 1; dry >= 0; dry--) {
        if (dry == 1) fixture_damage(&x.w, BWI_TIER_REMOTE, key.s, FIXTURE_FLIP, UINT64_MAX);
        mending_run(&x, dry == 1);
        assert_found(&x, dry == 1 ? 0 : 1, dry == 1 ? 1 : 0, 0);
    }
    assert_sound(&x);
    mending_close(&x);
}

static void a_placement_that_is_wrong_is_not_mended_by_copying_packs(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 2);
    for (int t = 0; t < BWI_TIERS; t++) fixture_repack(&x.f, 1, (enum bwi_tier)t, BWI_CODEC_ZSTD, NULL);
    const struct bwi_key key = bwi_key_pack(x.w.ctx.run, false, &x.f.id, 1, 0, x.w.ctx.writer + 1);
    mistake(&x, 1, BWI_TIER_REMOTE);
    mending_run(&x, true);
    assert_found(&x, 0, 1, 0);
    mending_run(&x, false);
    assert_has(&x, 0, "remote", key.s, "mended from the local tier"); /* with the placement from there */
    assert_found(&x, 1, 0, 0);
    assert_sound(&x);
    for (int t = 0; t < BWI_TIERS; t++) mistake(&x, 1, (enum bwi_tier)t);
    mending_run(&x, false);
    for (int t = 0; t < BWI_TIERS; t++) {
        assert_has(&x, 2, tier_text(t), key.s,
                   "it is stored as its placement says, and that does not give the content");
    }
    assert_int_equal(x.m.mended, 0);
    assert_int_equal(x.m.lost, 2);
    mending_close(&x);
}

/* ---- packs of other checkpoints ---- */

/* Makes group `group` of f lie in the packs of the same group of another checkpoint with the same content. */
static void refer(struct fixture *f, struct fixture *to, uint32_t group, enum bwi_tier tier) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_group_meta own;
    struct bwi_group_meta other;
    struct bwi_buf bytes = {0};
    fixture_meta(f, group, tier, &own);
    fixture_meta(to, group, tier, &other);
    assert_true(bwi_sha_eq(&own.summary.content, &other.summary.content));
    struct bwi_summary *s = &own.summary;
    other.placement.writer = f->w->ctx.writer + 9;
    assert_ok(bwi_placement_encode(&other.placement, &bytes, &err), &err);
    s->placement = bwi_sha_of(bwi_buf_span(&bytes));
    s->placement_bytes = bytes.len;
    s->writer = other.placement.writer;
    s->ref_count = 1;
    s->refs[0] = to->id;
    world_put(f->w, tier, bwi_key_placement(f->w->ctx.run, false, &f->id, group, s->writer).s, bwi_buf_span(&bytes));
    bwi_buf_reset(&bytes);
    assert_ok(bwi_summary_encode(s, &bytes, &err), &err);
    world_put(f->w, tier, bwi_key_summary(f->w->ctx.run, &f->id, group).s, bwi_buf_span(&bytes));
    bwi_buf_fini(&bytes);
    bwi_group_meta_fini(&own);
    bwi_group_meta_fini(&other);
}

static void packs_of_a_checkpoint_that_is_referred_to_are_mended(void **state) {
    (void)state;
    struct mending x;
    struct fixture base;
    mending_open(&x, 0, 2);
    small(&base, &x.w, 2);
    base.id.step = 90;
    fixture_save(&base);
    for (int t = 0; t < BWI_TIERS; t++) refer(&x.f, &base, 1, (enum bwi_tier)t);
    fixture_commit(&x.f);
    const struct bwi_key key = bwi_key_pack(x.w.ctx.run, false, &base.id, 1, 0, x.w.ctx.writer);
    for (int t = 0; t < BWI_TIERS; t++) {
        for (int d = 0; d < FIXTURE_DAMAGES; d++) {
            struct bwi_buf now = {0};
            struct bwi_span same = BWI_SPAN_NONE;
            assert_true(world_get(&x.w, (enum bwi_tier) !t, key.s, &now));
            fixture_damage(&x.w, (enum bwi_tier)t, key.s, (enum fixture_damage)d, UINT64_MAX);
            mending_run(&x, false);
            assert_has(&x, 0, tier_text(t), key.s, "mended");
            assert_found(&x, 1, 0, 0);
            assert_true(bwi_bucket_get(x.w.bucket[t], key.s, &same));
            assert_true(bwi_span_eq(same, bwi_buf_span(&now)));
            bwi_buf_fini(&now);
        }
    }
    mending_close(&x);
}

/* No placement of the other checkpoint names that pack, so nobody can say what all of it should be. */
static void a_pack_that_no_placement_names_is_lost(void **state) {
    (void)state;
    struct mending x;
    struct fixture base;
    mending_open(&x, 0, 2);
    small(&base, &x.w, 2);
    base.id.step = 90;
    fixture_save(&base);
    for (int t = 0; t < BWI_TIERS; t++) fixture_repack(&x.f, 1, (enum bwi_tier)t, BWI_CODEC_RAW, &base.id);
    fixture_commit(&x.f);
    const struct bwi_key key = bwi_key_pack(x.w.ctx.run, false, &base.id, 1, 0, x.w.ctx.writer + 1);
    fixture_damage(&x.w, BWI_TIER_REMOTE, key.s, FIXTURE_DELETE, 0);
    const struct bwi_key mark = put_mark(&x, 0);
    mending_run(&x, false);
    assert_has(&x, 2, "remote", key.s, "not to be mended: no sound placement says what is in it");
    assert_int_equal(x.m.lost, 1);
    assert_true(is_there(&x, mark.s)); /* it is not known which groups need that pack */
    mending_close(&x);
}

/* A placement that names a pack of a group that is not on this tier, or of one that there is not at all. */
static void a_pack_of_a_group_that_is_not_here_is_lost(void **state) {
    (void)state;
    for (uint32_t named = 1; named <= 7001; named += 7000) {
        struct mending x;
        struct bwi_group_meta m;
        mending_open(&x, 0, 2);
        fixture_damage(&x.w, BWI_TIER_LOCAL, summary_key(&x, 1).s, FIXTURE_DELETE, 0);
        const struct bwi_key key = bwi_key_pack(x.w.ctx.run, false, &x.f.id, named, 0, x.w.ctx.writer + 5);
        fixture_meta(&x.f, 0, BWI_TIER_LOCAL, &m);
        m.placement.packs[0].key = bwi_span_str(key.s);
        fixture_place(&x.f, BWI_TIER_LOCAL, &m);
        bwi_group_meta_fini(&m);
        const struct bwi_key mark = put_mark(&x, 0);
        mending_run(&x, true);
        assert_has(&x, 2, "local", key.s, "not to be mended: its group is not on this tier");
        mending_run(&x, false);
        assert_has(&x, 2, "local", key.s, "not to be mended: it is damaged still: what was tried did not help");
        assert_int_equal(x.m.lost, 1);
        assert_true(is_there(&x, mark.s));
        mending_close(&x);
    }
}

/* Two groups name the pack of a third: it is one object, whose first finding tells of it. */
static void a_pack_that_several_groups_find_damaged_is_mended_once(void **state) {
    (void)state;
    const struct bwi_id id = {90, 2, 0xabcd1234, 0};
    const struct bwi_key pack = bwi_key_pack("run", false, &id, 0, 0, 1);
    const struct bwi_key between = bwi_key_content("run", false, &id, 1);
    const char *const keys[] = {pack.s, pack.s, between.s, pack.s};
    struct bwi_findings found = {0};
    struct bwi_mend_objects o = {0};
    for (size_t i = 0; i < 4; i++) bwi_findings_add(&found, 2, BW_E_CORRUPT, "remote", &id, keys[i], "", "%zu", i);
    assert_true(bwi_mend_objects_make(&o, &found, &id, NULL));
    assert_int_equal(o.count, 2);
    assert_string_equal(o.list[0].key, pack.s);
    assert_int_equal(o.list[0].finding, 0);
    assert_int_equal(o.list[0].findings, 2);
    assert_string_equal(o.list[1].key, between.s);
    bwi_mend_objects_fini(&o);
    bwi_findings_fini(&found);
}

/* ---- what is lost ---- */

static void what_is_damaged_on_both_tiers_is_lost_and_the_rest_is_mended(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 2);
    const struct bwi_key both = pack_key(&x, 0, 0);
    const struct bwi_key one = pack_key(&x, 1, 0);
    fixture_damage(&x.w, BWI_TIER_LOCAL, both.s, FIXTURE_FLIP, UINT64_MAX);
    fixture_damage(&x.w, BWI_TIER_REMOTE, both.s, FIXTURE_DELETE, 0);
    fixture_damage(&x.w, BWI_TIER_REMOTE, one.s, FIXTURE_FLIP, UINT64_MAX);
    const struct bwi_key marks[] = {put_mark(&x, 0), put_mark(&x, 1)};
    for (int dry = 1; dry >= 0; dry--) {
        mending_run(&x, dry == 1);
        assert_has(&x, 2, "remote", both.s, "not to be mended: pack \"");
        assert_has(&x, 2, "local", both.s, "not to be mended: ");
        assert_has(&x, dry == 1 ? 1 : 0, "remote", one.s, "mended from the local tier");
        assert_has(&x, dry == 1 ? 1 : 0, "remote", marks[1].s, dry == 1 ? "would be removed" : "was removed");
        assert_int_equal(x.m.lost, 2);
        assert_int_equal(x.m.mended, 1);
        assert_true(is_there(&x, marks[0].s));
        assert_int_equal(is_there(&x, marks[1].s), dry);
    }
    bool tensor = false;
    for (size_t i = 0; i < x.found.count; i++) {
        const struct bw_finding *p = &x.found.list[i];
        assert_string_equal(p->id, "00000000000000000100.2-abcd1234.0");
        tensor = tensor || (p->severity == 2 && strcmp(p->tensor, "a") == 0 && p->status == BW_E_CORRUPT);
    }
    assert_true(tensor);
    mending_close(&x);
}

static void a_group_without_metadata_on_either_tier_is_lost(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 2);
    fixture_damage(&x.w, BWI_TIER_LOCAL, summary_key(&x, 0).s, FIXTURE_DELETE, 0);
    fixture_damage(&x.w, BWI_TIER_REMOTE, summary_key(&x, 0).s, FIXTURE_FLIP, UINT64_MAX);
    mending_run(&x, false);
    assert_has(&x, 2, "remote", summary_key(&x, 0).s, "not to be mended: local tier: ");
    assert_found(&x, 0, 0, 1);
    /* And then there is no way to make a manifest. */
    fixture_damage(&x.w, BWI_TIER_REMOTE, manifest_key(&x).s, FIXTURE_FLIP, UINT64_MAX);
    fixture_damage(&x.w, BWI_TIER_REMOTE, pack_key(&x, 1, 0).s, FIXTURE_FLIP, UINT64_MAX);
    const struct bwi_key mark = put_mark(&x, 1);
    mending_run(&x, false);
    assert_has(&x, 2, "remote", manifest_key(&x).s, "its SHA-256 is ");
    assert_has(&x, 2, "remote", manifest_key(&x).s, "not to be mended: group 0: remote tier: ");
    assert_has(&x, 2, "remote", summary_key(&x, 0).s, "not to be mended");
    assert_has(&x, 0, "remote", pack_key(&x, 1, 0).s, "mended from the local tier");
    assert_true(is_there(&x, mark.s));
    mending_close(&x);
}

static void without_another_tier_everything_damaged_is_lost(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 2);
    struct bwi_store *near = x.w.ctx.tier[BWI_TIER_LOCAL];
    x.w.ctx.tier[BWI_TIER_LOCAL] = NULL;
    fixture_damage(&x.w, BWI_TIER_REMOTE, pack_key(&x, 0, 0).s, FIXTURE_FLIP, UINT64_MAX);
    fixture_damage(&x.w, BWI_TIER_REMOTE, index_key(&x).s, FIXTURE_FLIP, UINT64_MAX);
    mending_run(&x, false);
    assert_has(&x, 2, "remote", pack_key(&x, 0, 0).s, "not to be mended: there is no other tier to mend it from");
    assert_has(&x, 0, "remote", index_key(&x).s, "made again"); /* all summaries and layouts are here */
    assert_int_equal(x.m.lost, 1);
    assert_int_equal(x.m.mended, 1);
    x.w.ctx.tier[BWI_TIER_LOCAL] = near;
    mending_close(&x);
}

static void a_checkpoint_of_which_nothing_is_there_is_lost(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 1);
    for (int t = 0; t < BWI_TIERS; t++) {
        for (size_t i = 0; i < x.before[t].n; i++) {
            assert_true(bwi_bucket_remove(x.w.bucket[t], x.before[t].key[i].s));
        }
    }
    mending_run(&x, false);
    assert_has(&x, 2, "remote", manifest_key(&x).s, "not to be mended: no tier has a summary of it");
    assert_found(&x, 0, 0, 1);
    mending_close(&x);
}

/* A name is soon made: it costs no memory for a million groups, and does not keep the manifest from being made again.
 */
static void a_stray_summary_under_a_high_number_is_passed_over(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 2);
    fixture_damage(&x.w, BWI_TIER_REMOTE, manifest_key(&x).s, FIXTURE_FLIP, UINT64_MAX);
    world_put(&x.w, BWI_TIER_REMOTE, summary_key(&x, 99999).s, bwi_span_str("?"));
    mending_run(&x, false);
    assert_has(&x, 0, "remote", manifest_key(&x).s, "made again from the summaries and layouts");
    assert_found(&x, 1, 0, 0);
    mending_close(&x);
}

/* What the tiers hold is sound, but of another checkpoint than the history names. */
static void a_manifest_that_the_history_does_not_name_is_not_written(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 2);
    x.f.manifest.b[5] ^= 1;
    mending_run(&x, false);
    assert_has(&x, 2, "remote", manifest_key(&x).s, "what the summaries and layouts give: its SHA-256 is ");
    assert_true(is_as_before(&x));
    mending_close(&x);
}

/* ---- marks ---- */

static void marks_of_groups_that_are_sound_are_removed(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 3);
    const struct bwi_key marks[] = {put_mark(&x, 0), put_mark(&x, 2)};
    fixture_damage(&x.w, BWI_TIER_REMOTE, pack_key(&x, 2, 0).s, FIXTURE_FLIP, UINT64_MAX);
    mending_run(&x, false);
    assert_found(&x, 3, 0, 0);
    for (int i = 0; i < 2; i++) assert_has(&x, 0, "remote", marks[i].s, "the group is sound: its mark was removed");
    assert_true(is_as_before(&x));
    mending_close(&x);
}

static void a_mark_that_cannot_be_removed_stays_and_is_told(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 2);
    const struct bwi_key mark = put_mark(&x, 1);
    bwi_bucket_fail_next(x.w.bucket[BWI_TIER_REMOTE], BWI_STORE_DELETE, mark.s, BW_E_IO, false);
    mending_run(&x, false);
    assert_found(&x, 0, 0, 1);
    assert_has(&x, 2, "remote", mark.s, "the mark stays: ");
    assert_true(is_there(&x, mark.s));
    mending_close(&x);
}

/* ---- tiers that fail ---- */

static void what_cannot_be_read_is_passed_on_and_its_mark_stays(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 2);
    const struct bwi_key marks[] = {put_mark(&x, 0), put_mark(&x, 1)};
    bwi_bucket_fail_next(x.w.bucket[BWI_TIER_LOCAL], BWI_STORE_READ, pack_key(&x, 0, 0).s, BW_E_IO, false);
    mending_run(&x, false);
    assert_found(&x, 1, 0, 1);
    assert_int_equal(x.found.list[0].status, BW_E_IO);
    assert_string_equal(x.found.list[0].object, pack_key(&x, 0, 0).s);
    assert_int_equal(x.m.lost, 0);
    assert_true(is_there(&x, marks[0].s));
    assert_false(is_there(&x, marks[1].s));
    mending_close(&x);
}

static void a_write_that_fails_leaves_the_damage_and_says_so(void **state) {
    (void)state;
    const enum bwi_store_verb verbs[] = {BWI_STORE_BEGIN, BWI_STORE_FINISH, BWI_STORE_REPLACE, BWI_STORE_REPLACE,
                                         BWI_STORE_REPLACE};
    for (int i = 0; i < 5; i++) {
        struct mending x;
        mending_open(&x, 0, 2);
        const struct bwi_key keys[] = {pack_key(&x, 0, 0), pack_key(&x, 0, 0), summary_key(&x, 0), manifest_key(&x),
                                       index_key(&x)};
        fixture_damage(&x.w, BWI_TIER_REMOTE, keys[i].s, FIXTURE_FLIP, UINT64_MAX);
        bwi_bucket_fail_next(x.w.bucket[BWI_TIER_REMOTE], verbs[i], i == 1 ? NULL : keys[i].s, BW_E_NOSPACE, false);
        mending_run(&x, false);
        assert_has(&x, 2, "remote", keys[i].s, "not to be mended: ");
        assert_int_equal(x.m.mended, 0);
        assert_int_equal(x.m.lost, 1);
        assert_int_equal(world_upload_bytes(&x.w, BWI_TIER_REMOTE), 0);
        mending_run(&x, false);
        assert_true(is_as_before(&x));
        mending_close(&x);
    }
}

static void a_manifest_that_cannot_be_read_is_not_touched(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 2);
    bwi_bucket_fail_next(x.w.bucket[BWI_TIER_REMOTE], BWI_STORE_GET, manifest_key(&x).s, BW_E_TIMEOUT, false);
    mending_run(&x, false);
    assert_found(&x, 0, 0, 1);
    assert_int_equal(x.found.list[0].status, BW_E_TIMEOUT);
    assert_true(is_as_before(&x));
    mending_close(&x);
}

static void what_is_damaged_over_and_over_is_given_up(void **state) {
    (void)state;
    struct mending x;
    mending_open(&x, 0, 2);
    const struct bwi_key key = bwi_key_content(x.w.ctx.run, false, &x.f.id, 0);
    const struct bwi_span bad = bwi_span_str("not what it was");
    mending_start(&x, false);
    while (bwi_loop_tasks(x.w.loop) > 0) {
        assert_true(bwi_bucket_put(x.w.bucket[BWI_TIER_REMOTE], key.s, bad));
        world_turn(&x.w);
        assert_true(x.w.turns < 100000);
    }
    mending_end(&x);
    assert_ok(x.m.task.error.status, &x.m.task.error);
    assert_has(&x, 2, "remote", key.s, "it is damaged still: what was tried did not help");
    assert_int_equal(x.m.lost, 1);
    mending_close(&x);
}

/* ---- the end of a mend that does not end by itself ---- */

static void damage_some(struct mending *x) {
    fixture_damage(&x->w, BWI_TIER_REMOTE, manifest_key(x).s, FIXTURE_FLIP, UINT64_MAX);
    fixture_damage(&x->w, BWI_TIER_REMOTE, index_key(x).s, FIXTURE_DELETE, 0);
    fixture_damage(&x->w, BWI_TIER_REMOTE, summary_key(x, 0).s, FIXTURE_FLIP, UINT64_MAX);
    fixture_damage(&x->w, BWI_TIER_REMOTE, pack_key(x, 0, 0).s, FIXTURE_FLIP, UINT64_MAX);
    fixture_damage(&x->w, BWI_TIER_LOCAL, pack_key(x, 1, 0).s, FIXTURE_TRUNCATE, 0);
    (void)put_mark(x, 1);
}

static void it_can_be_cancelled_at_any_time_and_the_next_one_finishes(void **state) {
    (void)state;
    bool whole = false;
    for (unsigned at = 0; !whole; at += 3) {
        struct mending x;
        mending_open(&x, 5, 2);
        damage_some(&x);
        mending_start(&x, false);
        for (unsigned i = 0; i < at && bwi_loop_tasks(x.w.loop) > 0; i++) world_turn(&x.w);
        whole = bwi_loop_tasks(x.w.loop) == 0;
        if (!whole) bwi_task_cancel(&x.m.task);
        world_run(&x.w);
        mending_end(&x);
        if (x.m.task.error.status != 0) {
            assert_fails(x.m.task.error.status, BW_E_CANCELLED, &x.m.task.error, "mend 00000000000000000100.2-");
        }
        mending_run(&x, false);
        assert_int_equal(count(&x, 2), 0);
        assert_true(is_as_before(&x));
        mending_close(&x);
    }
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    const long live = bwi_alloc_live();
    bool whole = false;
    for (unsigned long n = 1; !whole; n += n < 40 ? 1 : FULL_OR(1, 7)) {
        struct mending x;
        mending_open(&x, 0, 2);
        damage_some(&x);
        (void)bwi_alloc_fail_at(n);
        mending_start(&x, false);
        world_run(&x.w);
        whole = bwi_alloc_fail_at(0) < n;
        mending_end(&x);
        const int status = x.m.task.error.status;
        if (status != 0 && status != BW_E_NOMEM) fail_msg("%lu: %s", n, x.m.task.error.message);
        if (whole) assert_int_equal(status, 0);
        mending_run(&x, false);
        assert_int_equal(count(&x, 2), 0);
        assert_true(is_as_before(&x));
        mending_close(&x);
    }
    assert_int_equal(bwi_alloc_live(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_checkpoint_is_left_alone),
        cmocka_unit_test(every_damage_of_every_object_is_mended_from_the_other_tier),
        cmocka_unit_test(damage_all_over_is_mended_whatever_the_order),
        cmocka_unit_test(each_tier_mends_the_packs_of_the_other),
        cmocka_unit_test(a_whole_tier_without_anything_but_its_history_comes_back),
        cmocka_unit_test(it_works_in_directories),
        cmocka_unit_test(a_tier_takes_over_where_its_packs_have_no_copy),
        cmocka_unit_test(layout_and_content_are_mended_under_a_tier_s_own_placement),
        cmocka_unit_test(damaged_packs_behind_damaged_metadata_are_found_and_mended),
        cmocka_unit_test(compressed_packs_are_mended),
        cmocka_unit_test(a_placement_that_is_wrong_is_not_mended_by_copying_packs),
        cmocka_unit_test(packs_of_a_checkpoint_that_is_referred_to_are_mended),
        cmocka_unit_test(a_pack_that_no_placement_names_is_lost),
        cmocka_unit_test(a_pack_of_a_group_that_is_not_here_is_lost),
        cmocka_unit_test(a_pack_that_several_groups_find_damaged_is_mended_once),
        cmocka_unit_test(what_is_damaged_on_both_tiers_is_lost_and_the_rest_is_mended),
        cmocka_unit_test(a_group_without_metadata_on_either_tier_is_lost),
        cmocka_unit_test(without_another_tier_everything_damaged_is_lost),
        cmocka_unit_test(a_checkpoint_of_which_nothing_is_there_is_lost),
        cmocka_unit_test(a_stray_summary_under_a_high_number_is_passed_over),
        cmocka_unit_test(a_manifest_that_the_history_does_not_name_is_not_written),
        cmocka_unit_test(marks_of_groups_that_are_sound_are_removed),
        cmocka_unit_test(a_mark_that_cannot_be_removed_stays_and_is_told),
        cmocka_unit_test(what_cannot_be_read_is_passed_on_and_its_mark_stays),
        cmocka_unit_test(a_write_that_fails_leaves_the_damage_and_says_so),
        cmocka_unit_test(a_manifest_that_cannot_be_read_is_not_touched),
        cmocka_unit_test(what_is_damaged_over_and_over_is_given_up),
        cmocka_unit_test(it_can_be_cancelled_at_any_time_and_the_next_one_finishes),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
