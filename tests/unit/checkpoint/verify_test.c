/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying: whatever is damaged is found and named, whatever is sound is called sound. */
#include "base/error.h"
#include "checkpoint/verify.h"
#include "fixture.h"

static void small(struct fixture *f, struct world *w, uint32_t world) {
    fixture_init(f, w, world, FIXTURE_ROWS);
    fixture_tensor(f, "a", BW_F32, 2, (uint64_t[]){24, 300});
    fixture_tensor(f, "b", BW_I16, 1, (uint64_t[]){3000});
    fixture_tensor(f, "s", BW_F64, 0, NULL);
    fixture_tie(f, "a.tied", 0);
    fixture_blob(f, "rng", 5000);
}

struct verifying {
    struct fixture *f;
    struct bwi_verify v;
    struct bwi_findings found;
};

static void verifying_init(struct verifying *x, struct fixture *f) {
    memset(x, 0, sizeof *x);
    x->f = f;
    x->v = (struct bwi_verify){.ctx = &f->w->ctx,
                               .id = f->id,
                               .committed = true,
                               .manifest = f->manifest,
                               .tiers = {true, true},
                               .findings = &x->found};
}

static void verifying_run(struct verifying *x) {
    bwi_verify_start(&x->v, x->f->w->loop, NULL);
    world_run(x->f->w);
    assert_int_equal(x->v.task.pending, 0);
    assert_null(x->v.w);
}

static void verifying_fini(struct verifying *x) {
    bwi_verify_fini(&x->v);
    bwi_verify_fini(&x->v);
    bwi_findings_fini(&x->found);
}

static size_t count(const struct verifying *x, uint32_t severity, const char *tier) {
    size_t n = 0;
    for (size_t i = 0; i < x->found.count; i++) {
        const struct bw_finding *p = &x->found.list[i];
        n += p->severity == severity && (tier == NULL || strcmp(p->tier, tier) == 0);
    }
    return n;
}

/* A finding about this object, this tensor (NULL: any), with this text. */
static bool has(const struct verifying *x, const char *tier, const char *object, const char *tensor, const char *text) {
    for (size_t i = 0; i < x->found.count; i++) {
        const struct bw_finding *p = &x->found.list[i];
        if (strcmp(p->tier, tier) == 0 && strcmp(p->object, object) == 0 &&
            (tensor == NULL || strcmp(p->tensor, tensor) == 0) && strstr(p->message, text) != NULL) {
            return true;
        }
    }
    return false;
}

static void tell(const struct verifying *x) {
    for (size_t i = 0; i < x->found.count; i++) {
        const struct bw_finding *p = &x->found.list[i];
        print_message("%u %d %s %s [%s] %s\n", p->severity, p->status, p->tier, p->object, p->tensor, p->message);
    }
}

#define assert_has(x, tier, object, tensor, text)                                                                      \
    do {                                                                                                               \
        if (!has(x, tier, object, tensor, text)) {                                                                     \
            tell(x);                                                                                                   \
            fail_msg("no finding: %s %s %s", tier, object, text);                                                      \
        }                                                                                                              \
    } while (0)

/* ---- sound ---- */

static void a_sound_checkpoint_gives_one_finding_per_tier(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct world w;
        struct fixture f;
        struct verifying x;
        if (how < 2) world_open(&w, (uint64_t)how * 7, 64 * KIB);
        if (how >= 2) world_open_dirs(&w, NULL, MIB);
        small(&f, &w, 5);
        fixture_save(&f);
        verifying_init(&x, &f);
        x.v.fast = how % 2 == 1;
        memset(&w.progress, 0, sizeof w.progress);
        verifying_run(&x);
        assert_ok(x.v.task.error.status, &x.v.task.error);
        assert_int_equal(x.found.count, 2);
        assert_int_equal(count(&x, 0, "local"), 1);
        assert_int_equal(count(&x, 0, "remote"), 1);
        assert_string_equal(x.found.list[0].id, "00000000000000000100.2-abcd1234.0");
        const char *text = x.v.fast ? "complete: 5 of 5 groups, 5 packs" : "sound: 5 of 5 groups, 5 packs";
        assert_non_null(strstr(x.found.list[0].message, text));
        assert_int_equal(x.v.damaged_objects, 0);
        assert_int_equal(w.progress.done_items, 10);
        assert_int_equal(w.progress.total_items, 10);
        if (!x.v.fast) assert_true(x.v.bytes > 2 * (24 * 300 * 4 + 6000 + 5 * 5000));
        if (x.v.fast) assert_int_equal(w.progress.done_bytes, 0);
        verifying_fini(&x);
        world_close(&w);
    }
}

static void groups_that_are_not_on_the_local_tier_are_no_damage(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct verifying x;
    world_open(&w, 3, 64 * KIB);
    small(&f, &w, 4);
    f.tiers[BWI_TIER_LOCAL] = false;
    fixture_save(&f);
    fixture_save_group(&f, 2, BWI_TIER_LOCAL);
    verifying_init(&x, &f);
    verifying_run(&x);
    assert_int_equal(x.found.count, 2);
    assert_non_null(strstr(x.found.list[0].message, "sound: 1 of 4 groups"));
    verifying_fini(&x);
    world_close(&w);
}

/* In memory, and with an engine whose workers check what was read. */
static void compressed_extents_and_packs_of_others_are_verified_too(void **state) {
    (void)state;
    for (int how = 0; how < 8; how++) {
        const uint8_t codec = how & 1;
        const bool foreign = how & 2, engine = how & 4;
        struct world w;
        struct fixture f;
        struct verifying x;
        const struct bwi_id other = {90, 2, 0xabcd1234, 0};
        if (engine)
            world_open_dirs(&w, NULL, MIB);
        else
            world_open(&w, 6, 256 * KIB);
        small(&f, &w, 2);
        fixture_save_repacked(&f, codec, foreign ? &other : NULL);
        verifying_init(&x, &f);
        verifying_run(&x);
        if (x.found.count != 2) tell(&x);
        assert_int_equal(x.found.count, 2);
        verifying_fini(&x);
        const struct bwi_key pack = bwi_key_pack("run", false, foreign ? &other : &f.id, 1, 0, w.ctx.writer + 1);
        struct bwi_group_meta m;
        fixture_meta(&f, 1, BWI_TIER_REMOTE, &m);
        fixture_damage(&w, BWI_TIER_REMOTE, pack.s, FIXTURE_FLIP, m.placement.places[0].offset + 5);
        bwi_group_meta_fini(&m);
        verifying_init(&x, &f);
        verifying_run(&x);
        assert_has(&x, "remote", pack.s, "a", "extent 0");
        assert_has(&x, "remote", pack.s, "a.tied", "extent 0");
        assert_int_equal(count(&x, 2, NULL), 2);
        assert_int_equal(x.v.damaged_objects, 1);
        assert_int_equal(x.v.bad_count[BWI_TIER_REMOTE], 1);
        assert_int_equal(x.v.bad_groups[BWI_TIER_REMOTE][0], 1);
        verifying_fini(&x);
        fixture_damage(&w, BWI_TIER_REMOTE, pack.s, FIXTURE_FLIP, 100); /* the header, too */
        verifying_init(&x, &f);
        verifying_run(&x);
        assert_true(count(&x, 2, "remote") >= 2);
        assert_has(&x, "remote", pack.s, NULL, "header");
        verifying_fini(&x);
        world_close(&w);
    }
}

/* ---- damage ---- */

enum object { MANIFEST, INDEX, LAYOUT, CONTENT, PLACEMENT, SUMMARY, PACK, OBJECTS };

static struct bwi_key key_of(struct fixture *f, enum object o, uint32_t group) {
    struct bwi_group_meta m;
    const char *run = f->w->ctx.run;
    fixture_meta(f, group, BWI_TIER_REMOTE, &m);
    struct bwi_key key = bwi_key_manifest(run, &f->id, &f->manifest);
    if (o == INDEX) key = bwi_key_index(run, &f->id, &f->root);
    if (o == LAYOUT) key = bwi_key_layout(run, f->id.attempt, f->id.nonce, &m.summary.layout);
    if (o == CONTENT) key = bwi_key_content(run, f->fan_out, &f->id, group);
    if (o == PLACEMENT) key = bwi_key_placement(run, f->fan_out, &f->id, group, m.summary.writer);
    if (o == SUMMARY) key = bwi_key_summary(run, &f->id, group);
    if (o == PACK) key = bwi_key_pack(run, f->fan_out, &f->id, group, 0, m.summary.writer);
    bwi_group_meta_fini(&m);
    return key;
}

static void one_damage(enum object o, enum fixture_damage d, enum bwi_tier tier, bool fast) {
    struct world w;
    struct fixture f;
    struct verifying x;
    world_open(&w, 8, 64 * KIB);
    small(&f, &w, 3);
    fixture_save(&f);
    const struct bwi_key key = key_of(&f, o, 1);
    fixture_damage(&w, tier, key.s, d, UINT64_MAX);
    verifying_init(&x, &f);
    x.v.fast = fast;
    verifying_run(&x);
    assert_ok(x.v.task.error.status, &x.v.task.error);
    const bool same_size = d == FIXTURE_FLIP || d == FIXTURE_SWAP;
    const bool absent = o == SUMMARY && d == FIXTURE_DELETE && tier == BWI_TIER_LOCAL;
    if (absent || (fast && o == PACK && same_size)) { /* what fast does not promise */
        assert_int_equal(x.found.count, 2);
    } else {
        const char *name = bwi_tier_name(tier);
        assert_has(&x, name, key.s, NULL, "");
        assert_int_equal(count(&x, 0, name), 0);
        assert_int_equal(x.v.damaged_objects, 1);
        assert_int_equal(x.v.bad_count[tier], o >= LAYOUT ? 1 : 0);
        if (o >= LAYOUT) assert_int_equal(x.v.bad_groups[tier][0], 1);
        const enum bwi_tier other = tier == BWI_TIER_LOCAL ? BWI_TIER_REMOTE : BWI_TIER_LOCAL;
        assert_int_equal(count(&x, 0, bwi_tier_name(other)), 1); /* the other tier is sound and said to be */
    }
    verifying_fini(&x);
    world_close(&w);
}

static void every_damage_of_every_object_on_either_tier_is_found(void **state) {
    (void)state;
    for (int o = 0; o < OBJECTS; o++) {
        for (int d = 0; d < FIXTURE_DAMAGES; d++) {
            for (int fast = 0; fast < 2; fast++) {
                one_damage((enum object)o, (enum fixture_damage)d, BWI_TIER_REMOTE, fast != 0);
                if (o >= LAYOUT) one_damage((enum object)o, (enum fixture_damage)d, BWI_TIER_LOCAL, fast != 0);
            }
        }
    }
}

static void every_flipped_byte_is_found(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct verifying x;
    world_open(&w, 0, 64 * KIB);
    fixture_init(&f, &w, 1, FIXTURE_ROWS);
    fixture_tensor(&f, "a", BW_U8, 1, (uint64_t[]){5000});
    f.tiers[BWI_TIER_LOCAL] = false;
    fixture_save(&f);
    for (size_t i = 0; i < bwi_bucket_objects(w.bucket[1]); i++) {
        struct bwi_key key;
        (void)snprintf(key.s, sizeof key.s, "%s", bwi_bucket_key(w.bucket[1], i));
        struct bwi_span data = BWI_SPAN_NONE;
        assert_true(bwi_bucket_get(w.bucket[1], key.s, &data));
        const uint64_t step = data.len > 600 ? 97 : 1;
        for (uint64_t at = 0; at < data.len; at += step) {
            fixture_damage(&w, BWI_TIER_REMOTE, key.s, FIXTURE_FLIP, at);
            verifying_init(&x, &f);
            verifying_run(&x);
            assert_has(&x, "remote", key.s, NULL, "");
            assert_int_equal(x.v.damaged_objects, 1);
            verifying_fini(&x);
            fixture_damage(&w, BWI_TIER_REMOTE, key.s, FIXTURE_FLIP, at);
        }
    }
    world_close(&w);
}

static void damage_in_several_objects_is_found_in_one_pass(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct verifying x;
    struct bwi_key keys[OBJECTS];
    world_open(&w, 12, 64 * KIB);
    small(&f, &w, OBJECTS + 1);
    fixture_save(&f);
    for (int o = INDEX; o < OBJECTS; o++) keys[o] = key_of(&f, (enum object)o, (uint32_t)o);
    const struct bwi_key content = key_of(&f, CONTENT, LAYOUT); /* a second one in a group */
    for (int o = INDEX; o < OBJECTS; o++) fixture_damage(&w, BWI_TIER_REMOTE, keys[o].s, FIXTURE_FLIP, UINT64_MAX);
    fixture_damage(&w, BWI_TIER_REMOTE, content.s, FIXTURE_TRUNCATE, 0);
    verifying_init(&x, &f);
    verifying_run(&x);
    for (int o = INDEX; o < OBJECTS; o++) assert_has(&x, "remote", keys[o].s, NULL, "");
    assert_has(&x, "remote", content.s, NULL, "");
    assert_int_equal(x.v.damaged_objects, OBJECTS - INDEX + 1);
    assert_int_equal(x.v.bad_count[BWI_TIER_REMOTE], OBJECTS - LAYOUT);
    for (uint32_t i = 0; i < OBJECTS - LAYOUT; i++) assert_int_equal(x.v.bad_groups[BWI_TIER_REMOTE][i], LAYOUT + i);
    assert_int_equal(count(&x, 0, "local"), 1);
    verifying_fini(&x);
    /* Only the groups that are asked for, and nothing of the whole. */
    verifying_init(&x, &f);
    const uint32_t only[] = {0, PACK};
    x.v.only_groups = only;
    x.v.only_group_count = 2;
    x.v.tiers[BWI_TIER_LOCAL] = false;
    verifying_run(&x);
    assert_int_equal(x.v.damaged_objects, 1);
    assert_int_equal(x.v.bad_groups[BWI_TIER_REMOTE][0], PACK);
    verifying_fini(&x);
    verifying_init(&x, &f);
    x.v.only_groups = only;
    x.v.only_group_count = 1;
    x.v.tiers[BWI_TIER_LOCAL] = false;
    verifying_run(&x);
    assert_int_equal(x.found.count, 1);
    assert_non_null(strstr(x.found.list[0].message, "sound: 1 of 1 group, 1 pack"));
    verifying_fini(&x);
    world_close(&w);
}

static void a_lost_pack_names_sixteen_tensors_and_counts_the_rest(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct verifying x;
    static char names[FIXTURE_TENSORS][16];
    world_open(&w, 0, 64 * KIB);
    fixture_init(&f, &w, 1, FIXTURE_ROWS);
    for (int i = 0; i < 10; i++) {
        (void)snprintf(names[i], sizeof names[i], "t%d", i);
        fixture_tensor(&f, names[i], BW_U8, 1, (uint64_t[]){100});
    }
    for (int i = 10; i < FIXTURE_TENSORS; i++) {
        (void)snprintf(names[i], sizeof names[i], "x%d", i);
        fixture_tie(&f, names[i], i % 10);
    }
    const char *const blobs[] = {"b0", "b1", "b2", "b3"};
    for (int i = 0; i < 4; i++) fixture_blob(&f, blobs[i], 10);
    fixture_save(&f);
    const struct bwi_key key = key_of(&f, PACK, 0);
    fixture_damage(&w, BWI_TIER_REMOTE, key.s, FIXTURE_DELETE, 0);
    verifying_init(&x, &f);
    x.v.tiers[BWI_TIER_LOCAL] = false;
    verifying_run(&x);
    assert_int_equal(count(&x, 2, "remote"), 16 + 1);
    for (int i = 0; i < 8; i++) assert_has(&x, "remote", key.s, names[i], "is hit");
    assert_has(&x, "remote", key.s, names[15], "is hit"); /* another name of t5 */
    assert_has(&x, "remote", key.s, "", "8 more tensors and blobs are hit");
    assert_int_equal(x.v.damaged_objects, 1);
    verifying_fini(&x);
    world_close(&w);
}

static void another_content_under_the_same_id_is_damage(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct verifying x;
    world_open(&w, 0, 64 * KIB);
    small(&f, &w, 2);
    f.salt = 1;
    fixture_save_group(&f, 1, BWI_TIER_LOCAL);
    f.salt = 0;
    f.tiers[BWI_TIER_LOCAL] = false;
    fixture_save(&f);
    verifying_init(&x, &f);
    verifying_run(&x);
    assert_has(&x, "local", key_of(&f, SUMMARY, 1).s, NULL, "the summary names content");
    assert_int_equal(x.v.bad_count[BWI_TIER_LOCAL], 1);
    assert_int_equal(count(&x, 0, "remote"), 1);
    verifying_fini(&x);
    world_close(&w);
}

static void an_index_that_the_layouts_do_not_give_is_found(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct verifying x;
    struct bw_error err = BW_ERROR_INIT;
    world_open(&w, 0, 64 * KIB);
    small(&f, &w, 2);
    fixture_save(&f);
    /* A manifest with an index of its own that is sound in itself, but lacks a tensor. */
    struct bwi_group_meta m[2];
    struct bwi_index_builder *b = NULL;
    struct bwi_index_info info;
    struct bwi_buf bytes = {0};
    struct bwi_summary s[2];
    struct bwi_manifest manifest = {0};
    assert_ok(bwi_index_builder_new(&b, &err), &err);
    for (uint32_t g = 0; g < 2; g++) {
        fixture_meta(&f, g, BWI_TIER_REMOTE, &m[g]);
        s[g] = m[g].summary;
        if (g == 0) assert_ok(bwi_index_builder_add(b, g, &m[g].layout, &err), &err);
    }
    assert_ok(bwi_index_builder_encode(b, &bytes, &info, &err), &err);
    world_put(&w, BWI_TIER_REMOTE, bwi_key_index("run", &f.id, &info.root).s, bwi_buf_span(&bytes));
    bwi_buf_reset(&bytes);
    assert_ok(bwi_manifest_build(s, 2, &info, &manifest, &err), &err);
    assert_ok(bwi_manifest_encode(&manifest, &bytes, &err), &err);
    f.manifest = bwi_sha_of(bwi_buf_span(&bytes));
    world_put(&w, BWI_TIER_REMOTE, bwi_key_manifest("run", &f.id, &f.manifest).s, bwi_buf_span(&bytes));
    verifying_init(&x, &f);
    verifying_run(&x);
    assert_has(&x, "remote", bwi_key_checkpoint("run", &f.id).s, NULL, "the layouts give an index with the root");
    assert_int_equal(x.v.damaged_objects, 1);
    verifying_fini(&x);
    bwi_index_builder_free(b);
    bwi_manifest_fini(&manifest);
    bwi_buf_fini(&bytes);
    for (int g = 0; g < 2; g++) bwi_group_meta_fini(&m[g]);
    world_close(&w);
}

static void without_a_manifest_the_groups_are_verified_all_the_same(void **state) {
    (void)state;
    for (int listing = 0; listing < 2; listing++) {
        struct world w;
        struct fixture f;
        struct verifying x;
        world_open(&w, 0, 64 * KIB);
        small(&f, &w, 3);
        fixture_save(&f);
        const struct bwi_key manifest = key_of(&f, MANIFEST, 0);
        const struct bwi_key pack = key_of(&f, PACK, 2);
        fixture_damage(&w, BWI_TIER_REMOTE, manifest.s, FIXTURE_DELETE, 0);
        fixture_damage(&w, BWI_TIER_REMOTE, pack.s, FIXTURE_FLIP, 5000);
        if (listing == 0) bwi_bucket_fail_next(w.bucket[1], BWI_STORE_LIST, NULL, BW_E_IO, false);
        verifying_init(&x, &f);
        verifying_run(&x);
        assert_has(&x, "remote", manifest.s, NULL, "is missing");
        if (listing == 0) {
            assert_has(&x, "remote", bwi_key_groups("run", &f.id).s, NULL, "injected failure");
            assert_int_equal(count(&x, 0, NULL), 0); /* nothing was seen that could be called sound */
        } else {
            assert_has(&x, "remote", pack.s, "a", "is hit");
            assert_int_equal(count(&x, 0, "local"), 1);
        }
        assert_int_equal(x.v.damaged_objects, 1 + listing);
        verifying_fini(&x);
        world_close(&w);
    }
}

static void an_uncommitted_checkpoint_is_verified_as_far_as_it_goes(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct verifying x;
    world_open(&w, 2, 64 * KIB);
    small(&f, &w, 3);
    fixture_save_group(&f, 0, BWI_TIER_LOCAL);
    fixture_save_group(&f, 1, BWI_TIER_REMOTE);
    verifying_init(&x, &f);
    x.v.committed = false;
    x.v.groups = 3;
    verifying_run(&x);
    assert_int_equal(count(&x, 2, NULL), 0);
    assert_int_equal(count(&x, 1, NULL), 1);
    assert_has(&x, "", "", NULL, "not committed: 1 groups are on no tier that was looked at, the first is group 2");
    assert_int_equal(count(&x, 0, NULL), 2);
    verifying_fini(&x);
    f.split = FIXTURE_COLUMNS; /* all groups are there, but they overlap */
    fixture_save_group(&f, 2, BWI_TIER_REMOTE);
    verifying_init(&x, &f);
    x.v.committed = false;
    x.v.groups = 3;
    verifying_run(&x);
    assert_has(&x, "remote", bwi_key_checkpoint("run", &f.id).s, NULL, "tensor \"a\": the box of rank 0");
    verifying_fini(&x);
    world_close(&w);
}

/* ---- failures ---- */

static void what_cannot_be_read_is_told_but_is_no_damage(void **state) {
    (void)state;
    const enum bwi_store_verb verbs[] = {BWI_STORE_GET, BWI_STORE_READ, BWI_STORE_HEAD};
    const long live = bwi_alloc_live();
    uint64_t runs = 0;
    for (size_t v = 0; v < 3; v++) {
        for (int tier = 0; tier < BWI_TIERS; tier++) {
            bool hit = true;
            for (uint64_t n = 1; hit; n++) {
                struct world w;
                struct fixture f;
                struct verifying x;
                world_open(&w, 4, 64 * KIB);
                small(&f, &w, 2);
                fixture_save(&f);
                verifying_init(&x, &f);
                const uint64_t *ops = &w.ctx.tier[tier]->ops[verbs[v]];
                const uint64_t base = *ops;
                uint64_t armed = UINT64_MAX;
                bwi_verify_start(&x.v, w.loop, NULL);
                while (x.v.task.running) {
                    if (armed == UINT64_MAX && *ops - base >= n - 1) {
                        bwi_bucket_fail_next(w.bucket[tier], verbs[v], NULL, BW_E_IO, false);
                        armed = *ops;
                    }
                    world_turn(&w);
                }
                hit = *ops > armed;
                assert_ok(x.v.task.error.status, &x.v.task.error);
                assert_int_equal(x.v.damaged_objects, 0);
                assert_int_equal(x.v.bad_count[0] + x.v.bad_count[1], 0);
                assert_int_equal(count(&x, 2, bwi_tier_name((enum bwi_tier)tier)), hit ? 1 : 0);
                assert_int_equal(count(&x, 0, NULL), hit ? 1 : 2);
                verifying_fini(&x);
                world_close(&w);
                runs++;
            }
        }
    }
    assert_true(runs > 30);
    assert_int_equal(bwi_alloc_live(), live);
}

/* The file, the header, an extent: of a pack that is read piece by piece. */
static void a_pack_of_another_that_cannot_be_read_is_told_but_is_no_damage(void **state) {
    (void)state;
    static const struct {
        enum bwi_store_verb verb;
        unsigned nth; /* of its reads */
        const char *text;
    } calls[] = {{BWI_STORE_HEAD, 0, "injected failure"},
                 {BWI_STORE_READ, 0, "injected failure"},
                 {BWI_STORE_READ, 1, "extent 0: "}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct world w;
        struct fixture f;
        struct verifying x;
        const struct bwi_id other = {90, 2, 0xabcd1234, 0};
        world_open(&w, 0, 256 * KIB);
        small(&f, &w, 1);
        fixture_save_repacked(&f, BWI_CODEC_RAW, &other);
        const struct bwi_key pack = bwi_key_pack("run", false, &other, 0, 0, w.ctx.writer + 1);
        verifying_init(&x, &f);
        x.v.tiers[BWI_TIER_LOCAL] = false;
        const uint64_t *reads = &w.ctx.tier[BWI_TIER_REMOTE]->ops[calls[i].verb], base = *reads;
        bwi_verify_start(&x.v, w.loop, NULL);
        for (bool armed = false; x.v.task.running; world_turn(&w)) {
            if (armed || *reads - base < calls[i].nth) continue;
            bwi_bucket_fail_next(w.bucket[BWI_TIER_REMOTE], calls[i].verb, pack.s, BW_E_IO, false);
            armed = true;
        }
        assert_ok(x.v.task.error.status, &x.v.task.error);
        assert_has(&x, "remote", pack.s, NULL, calls[i].text);
        assert_int_equal(count(&x, 2, "remote"), 1);
        assert_int_equal(x.v.damaged_objects, 0);
        verifying_fini(&x);
        world_close(&w);
    }
}

static void an_extent_that_does_not_fit_the_memory_budget_is_not_verified(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct verifying x;
    struct bw_error err = BW_ERROR_INIT;
    const struct bwi_id other = {90, 2, 0xabcd1234, 0};
    struct bwi_arena *little = NULL, *whole;
    world_open(&w, 0, 256 * KIB);
    whole = w.arena;
    small(&f, &w, 1);
    f.extent_bytes = 8 * KIB;
    fixture_save_repacked(&f, BWI_CODEC_RAW, &other);
    assert_ok(bwi_arena_open(4 * KIB, 0, &little, &err), &err);
    w.ctx.arena = little;
    verifying_init(&x, &f);
    x.v.tiers[BWI_TIER_LOCAL] = false;
    verifying_run(&x);
    assert_fails(x.v.task.error.status, BW_E_LIMIT, &x.v.task.error, "memory budget: an extent of pack \"");
    assert_int_equal(count(&x, 0, NULL), 0);
    assert_int_equal(bwi_arena_used(little), 0);
    verifying_fini(&x);
    bwi_arena_close(little);
    w.ctx.arena = whole;
    world_close(&w);
}

static void a_header_of_another_s_pack_that_does_not_fit_the_memory_budget_is_not_verified(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct verifying x;
    struct bwi_group_meta m;
    struct bw_error err = BW_ERROR_INIT;
    const struct bwi_id other = {90, 2, 0xabcd1234, 0};
    struct bwi_arena *little = NULL;
    struct bwi_buf bytes = {0}, longer = {0};
    world_open(&w, 0, 256 * KIB);
    struct bwi_arena *const whole = w.arena;
    small(&f, &w, 1);
    fixture_save_repacked(&f, BWI_CODEC_RAW, &other);
    fixture_meta(&f, 0, BWI_TIER_REMOTE, &m);
    const struct bwi_key pack = bwi_pack_key_of(&m.placement, 0);
    assert_true(world_get(&w, BWI_TIER_REMOTE, pack.s, &bytes));
    bwi_buf_zero(&longer, 4 * KIB);
    bwi_buf_put(&longer, bytes.ptr, bytes.len);
    world_put(&w, BWI_TIER_REMOTE, pack.s, bwi_buf_span(&longer));
    m.placement.packs[0].header_bytes += 4 * KIB;
    m.placement.packs[0].file_bytes += 4 * KIB;
    for (uint64_t e = 0; e < m.placement.extent_count; e++) m.placement.places[e].offset += 4 * KIB;
    fixture_place(&f, BWI_TIER_REMOTE, &m);
    bwi_group_meta_fini(&m);
    bwi_buf_fini(&bytes);
    bwi_buf_fini(&longer);
    assert_ok(bwi_arena_open(4 * KIB, 0, &little, &err), &err);
    w.ctx.arena = little;
    verifying_init(&x, &f);
    x.v.tiers[BWI_TIER_LOCAL] = false;
    verifying_run(&x);
    assert_fails(x.v.task.error.status, BW_E_LIMIT, &x.v.task.error,
                 "memory budget: the header of a pack has 8192 bytes");
    assert_int_equal(x.v.damaged_objects, 0);
    assert_int_equal(bwi_arena_used(little), 0);
    verifying_fini(&x);
    bwi_arena_close(little);
    w.ctx.arena = whole;
    world_close(&w);
}

static void memory_may_run_out_at_any_allocation(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct verifying x;
    const struct bwi_id other = {90, 2, 0xabcd1234, 0};
    world_open(&w, 0, 64 * KIB);
    small(&f, &w, 2);
    for (uint32_t g = 0; g < 2; g++) {
        for (int t = 0; t < BWI_TIERS; t++) fixture_save_group(&f, g, (enum bwi_tier)t);
    }
    fixture_repack(&f, 0, BWI_TIER_REMOTE, BWI_CODEC_ZSTD, &other);
    fixture_commit(&f);
    fixture_damage(&w, BWI_TIER_REMOTE, key_of(&f, PACK, 1).s, FIXTURE_FLIP, 5000);
    const struct bwi_key of_other = bwi_key_pack("run", false, &other, 0, 0, w.ctx.writer + 1);
    fixture_damage(&w, BWI_TIER_REMOTE, of_other.s, FIXTURE_FLIP, UINT64_MAX);
    const long live = bwi_alloc_live();
    bool failed = true;
    for (unsigned long n = 1; failed; n++) {
        verifying_init(&x, &f);
        (void)bwi_alloc_fail_at(n);
        verifying_run(&x);
        failed = bwi_alloc_fail_at(0) >= n;
        if (x.v.task.error.status != 0) {
            assert_int_equal(x.v.task.error.status, BW_E_NOMEM);
        } else {
            assert_true(x.v.damaged_objects == 2); /* never taken for damage */
        }
        verifying_fini(&x);
    }
    assert_int_equal(bwi_alloc_live(), live);
    world_close(&w);
}

static void it_can_be_cancelled_at_any_turn(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    bool running = true;
    world_open(&w, 21, 64 * KIB);
    small(&f, &w, 3);
    fixture_save(&f);
    for (uint64_t turn = 0; running; turn++) {
        struct verifying x;
        verifying_init(&x, &f);
        bwi_verify_start(&x.v, w.loop, NULL);
        for (uint64_t i = 0; i < turn && x.v.task.running; i++) world_turn(&w);
        running = x.v.task.running;
        bwi_task_cancel(&x.v.task);
        world_run(&w);
        if (x.v.task.error.status != 0) assert_int_equal(x.v.task.error.status, BW_E_CANCELLED);
        assert_int_equal(x.v.damaged_objects, 0);
        assert_int_equal(bwi_arena_used(w.arena), 0);
        verifying_fini(&x);
    }
    world_close(&w);
}

static void findings_are_cut_and_stay_on_one_line(void **state) {
    (void)state;
    struct bwi_findings f = {0};
    char name[2000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (size_t i = 254; i < 260; i += 2) memcpy(name + i, "\xc3\xa4", 2);
    bwi_findings_add(&f, 1, BW_E_IO, NULL, NULL, NULL, name, "two\nlines of %s", "text");
    assert_int_equal(f.count, 1);
    assert_int_equal(f.list[0].severity, 1);
    assert_string_equal(f.list[0].tier, "");
    assert_string_equal(f.list[0].object, "");
    assert_int_equal(strlen(f.list[0].tensor), 254); /* not half a character */
    assert_string_equal(f.list[0].message, "two?lines of text");
    (void)bwi_alloc_fail_at(1);
    for (int i = 0; i < 100; i++) bwi_findings_add(&f, 0, 0, "local", NULL, NULL, NULL, "%d", i);
    (void)bwi_alloc_fail_at(0);
    assert_true(f.failed);
    bwi_findings_fini(&f);
    bwi_findings_fini(&f);
    bwi_findings_fini(NULL);
}

static void a_message_that_does_not_fit_ends_with_a_whole_word_and_says_so(void **state) {
    (void)state;
    struct bwi_findings f = {0};
    char words[1000] = "";
    for (size_t n = 0; n + 6 < sizeof words; n = strlen(words)) memcpy(words + n, "grain ", 7);
    bwi_findings_add(&f, 2, BW_E_IO, "remote", NULL, "key", NULL, "%s", words);
    const char *message = f.list[0].message;
    assert_int_equal(strlen(message), 66 * 6 - 1 + 4);
    assert_string_equal(message + strlen(message) - 15, "grain grain ...");
    memset(words, 'n', sizeof words - 1);
    bwi_findings_add(&f, 2, BW_E_IO, "remote", NULL, "key", NULL, "%s", words);
    assert_int_equal(strlen(f.list[1].message), sizeof f.list[1].message - 1);
    assert_string_equal(f.list[1].message + sizeof f.list[1].message - 7, "nn ...");
    bwi_findings_fini(&f);
}

static void what_is_not_mended_names_its_object_once_and_leaves_room_for_the_reason(void **state) {
    (void)state;
    char text[BWI_FINDING_TEXT_BYTES];
    char long_text[BW_ERROR_MESSAGE_BYTES] = "";
    for (size_t n = 0; n + 5 < sizeof long_text; n = strlen(long_text)) memcpy(long_text + n, "word ", 6);
    bwi_finding_about("a/key", "tensor \"w\" is hit: pack \"a/key\" is missing", text);
    assert_string_equal(text, "tensor \"w\" is hit: pack is missing");
    bwi_finding_about("a/key", "pack \"a/key.2\" is missing", text);
    assert_string_equal(text, "pack \"a/key.2\" is missing");
    bwi_finding_about("a/key", "local tier: \"a/key\": 1 byte too many", text);
    assert_string_equal(text, "local tier: 1 byte too many");
    bwi_finding_not_mended("a/key", "pack \"a/key\" is missing", "no copy of \"a/key\"", text);
    assert_string_equal(text, "pack is missing; not to be mended: no copy of \"a/key\"");
    bwi_finding_not_mended("a/key", long_text, "no copy", text);
    assert_non_null(strstr(text, "word ...; not to be mended: no copy"));
    assert_true(strlen(text) > sizeof text - 12);
    bwi_finding_not_mended("a/key", "short", long_text, text);
    assert_ptr_equal(strstr(text, "short; not to be mended: word word"), text);
    assert_true(strlen(text) > sizeof text - 12);
    bwi_finding_not_mended("a/key", long_text, long_text, text);
    assert_true(strstr(text, "word ...; not to be mended: word word") > text + 170);
    assert_string_equal(text + strlen(text) - 9, " word ...");
    assert_true(strlen(text) > sizeof text - 12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_checkpoint_gives_one_finding_per_tier),
        cmocka_unit_test(groups_that_are_not_on_the_local_tier_are_no_damage),
        cmocka_unit_test(compressed_extents_and_packs_of_others_are_verified_too),
        cmocka_unit_test(every_damage_of_every_object_on_either_tier_is_found),
        cmocka_unit_test(every_flipped_byte_is_found),
        cmocka_unit_test(damage_in_several_objects_is_found_in_one_pass),
        cmocka_unit_test(a_lost_pack_names_sixteen_tensors_and_counts_the_rest),
        cmocka_unit_test(another_content_under_the_same_id_is_damage),
        cmocka_unit_test(an_index_that_the_layouts_do_not_give_is_found),
        cmocka_unit_test(without_a_manifest_the_groups_are_verified_all_the_same),
        cmocka_unit_test(an_uncommitted_checkpoint_is_verified_as_far_as_it_goes),
        cmocka_unit_test(what_cannot_be_read_is_told_but_is_no_damage),
        cmocka_unit_test(a_pack_of_another_that_cannot_be_read_is_told_but_is_no_damage),
        cmocka_unit_test(an_extent_that_does_not_fit_the_memory_budget_is_not_verified),
        cmocka_unit_test(a_header_of_another_s_pack_that_does_not_fit_the_memory_budget_is_not_verified),
        cmocka_unit_test(memory_may_run_out_at_any_allocation),
        cmocka_unit_test(it_can_be_cancelled_at_any_turn),
        cmocka_unit_test(findings_are_cut_and_stay_on_one_line),
        cmocka_unit_test(a_message_that_does_not_fit_ends_with_a_whole_word_and_says_so),
        cmocka_unit_test(what_is_not_mended_names_its_object_once_and_leaves_room_for_the_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
