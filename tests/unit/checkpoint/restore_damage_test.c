/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a checkpoint that is damaged, or gone: another tier serves, the copy is put right, or the error names it. */
#include "base/error.h"
#include "checkpoint/policy_history.h"
#include "reader.h"

/* ---- damage ---- */

enum object { MANIFEST, INDEX, LAYOUT, CONTENT, PLACEMENT, SUMMARY, PACK, OBJECTS };

/* The key of an object of group 1, and a byte of it that matters. */
static struct bwi_key key_of(struct fixture *f, enum object o, uint64_t *at) {
    struct bwi_group_meta m;
    const char *run = f->w->ctx.run;
    *at = UINT64_MAX;
    fixture_meta(f, 1, BWI_TIER_REMOTE, &m);
    struct bwi_key key = bwi_key_manifest(run, &f->id, &f->manifest);
    if (o == INDEX) key = bwi_key_index(run, &f->id, &f->root);
    if (o == LAYOUT) key = bwi_key_layout(run, f->id.attempt, f->id.nonce, &m.summary.layout);
    if (o == CONTENT) key = bwi_key_content(run, false, &f->id, 1);
    if (o == PLACEMENT) key = bwi_key_placement(run, false, &f->id, 1, m.summary.writer);
    if (o == SUMMARY) key = bwi_key_summary(run, &f->id, 1);
    if (o == PACK) {
        key = bwi_key_pack(run, false, &f->id, 1, 0, m.summary.writer);
        *at = m.placement.places[0].offset;
    }
    bwi_group_meta_fini(&m);
    return key;
}

/* Whether reading tensors suffers from the damage at all: bytes behind the last extent are only verify's business, and
 * an index is made again from the layouts. */
static bool matters(enum object o, enum fixture_damage d) {
    return !(o == PACK && d == FIXTURE_EXTEND) && o != INDEX;
}

static void open_damaged(struct world *w, struct fixture *f, bool dirs) {
    if (dirs) {
        world_open_dirs(w, NULL, MIB);
    } else {
        world_open(w, 8, 256 * KIB);
    }
    fixture_small(f, w, 2);
    f->blob_count = 0; /* the last extent of a pack is a tensor's, so that a truncated one is noticed */
    fixture_save(f);
}

static void local_damage(enum object o, enum fixture_damage d, bool dirs) {
    struct world w;
    struct fixture f;
    struct reader x;
    struct bwi_buf before = {0};
    struct bwi_buf after = {0};
    uint64_t at;
    open_damaged(&w, &f, dirs);
    const struct bwi_key key = key_of(&f, o, &at);
    assert_true(world_get(&w, BWI_TIER_LOCAL, key.s, &before));
    fixture_damage(&w, BWI_TIER_LOCAL, key.s, d, at);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    assert_ok(reader_all(&x), &x.error);
    const struct bw_restore_stats *s = bwi_restore_get_stats(x.r);
    const bool absent = o == SUMMARY && d == FIXTURE_DELETE; /* is not damage: the group is not there */
    if (matters(o, d)) {
        assert_true(s->remote_bytes > 0);
        assert_int_equal(s->damaged_extents > 0, o == PACK);
        assert_int_equal(s->repaired_objects, absent ? 0 : 1);
    }
    if (matters(o, d) && !absent) {
        assert_true(world_get(&w, BWI_TIER_LOCAL, key.s, &after));
        assert_true(bwi_span_eq(bwi_buf_span(&before), bwi_buf_span(&after)));
        const uint64_t remote = s->remote_bytes;
        assert_ok(reader_all(&x), &x.error); /* now it comes from near again */
        assert_int_equal(s->remote_bytes, remote);
        assert_int_equal(s->repaired_objects, 1);
    }
    reader_close(&x);
    bwi_buf_fini(&before);
    bwi_buf_fini(&after);
    world_close(&w);
}

static void local_damage_is_served_from_the_remote_tier_and_put_right(void **state) {
    (void)state;
    for (int o = LAYOUT; o < OBJECTS; o++) {
        for (int d = 0; d < FIXTURE_DAMAGES; d++) {
            local_damage((enum object)o, (enum fixture_damage)d, false);
            if (d == FIXTURE_FLIP || d == FIXTURE_DELETE) local_damage((enum object)o, (enum fixture_damage)d, true);
        }
    }
}

static void nothing_is_put_right_without_leave(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    uint64_t at;
    open_damaged(&w, &f, false);
    const struct bwi_key key = key_of(&f, PACK, &at);
    fixture_damage(&w, BWI_TIER_LOCAL, key.s, FIXTURE_FLIP, at);
    struct bwi_restore_target t = reader_target(&f, true);
    t.may_repair = false;
    reader_open(&x, &f, &t);
    assert_ok(reader_all(&x), &x.error);
    assert_int_equal(bwi_restore_get_stats(x.r)->damaged_extents, 1);
    assert_int_equal(bwi_restore_get_stats(x.r)->repaired_objects, 0);
    assert_int_equal(w.ctx.tier[0]->ops[BWI_STORE_REPLACE], 0);
    fixture_damage(&w, BWI_TIER_REMOTE, key.s, FIXTURE_FLIP, at);
    assert_int_equal(reader_all(&x), BW_E_CORRUPT);
    struct bwi_span mark;
    assert_false(bwi_bucket_get(w.bucket[1], bwi_key_damaged("run", &f.id, 1).s, &mark));
    reader_close(&x);
    world_close(&w);
}

static void check_mark(struct world *w, const struct fixture *f, const char *key) {
    struct bwi_span bytes = BWI_SPAN_NONE;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_mark mark;
    assert_true(bwi_bucket_get(w->bucket[1], bwi_key_damaged("run", &f->id, 1).s, &bytes));
    assert_ok(bwi_mark_decode(bytes, true, &mark, &err), &err);
    assert_int_equal(mark.group, 1);
    assert_int_equal(mark.status, BW_E_CORRUPT);
    if (strstr(mark.reason, key) == NULL) fail_msg("no \"%s\" in: %s", key, mark.reason);
}

static void damage_everywhere(enum object o, enum fixture_damage d, bool local) {
    struct world w;
    struct fixture f;
    struct reader x;
    uint64_t at;
    open_damaged(&w, &f, false);
    const struct bwi_key key = key_of(&f, o, &at);
    fixture_damage(&w, BWI_TIER_REMOTE, key.s, d, at);
    if (local && o >= LAYOUT) fixture_damage(&w, BWI_TIER_LOCAL, key.s, d, at);
    if (!local) assert_true(bwi_bucket_remove(w.bucket[0], bwi_key_summary("run", &f.id, 1).s));
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    const int rc = reader_all(&x);
    if (matters(o, d)) {
        const bool gone = o < LAYOUT && d == FIXTURE_DELETE; /* without a history nobody can tell damage from an end */
        assert_int_equal(rc, gone ? BW_E_NOTFOUND : BW_E_CORRUPT);
        if (strstr(x.error.message, key.s) == NULL) fail_msg("no \"%s\" in: %s", key.s, x.error.message);
        assert_non_null(strstr(x.error.message, "checkpoint 00000000000000000100.2-abcd1234.0: "));
        assert_int_equal(x.error.stage, BW_STAGE_RESTORE);
        if (o == PACK) assert_non_null(strstr(x.error.message, ": group 1: remote tier: pack "));
        if (o == PACK && d == FIXTURE_FLIP) assert_non_null(strstr(x.error.message, "tensor \"a\": "));
        if (o >= LAYOUT) check_mark(&w, &f, key.s);
        assert_int_equal(bwi_restore_get_stats(x.r)->repaired_objects, 0);
    } else {
        assert_int_equal(rc, 0);
    }
    reader_close(&x);
    world_close(&w);
}

static void damage_on_every_tier_is_named_and_marked(void **state) {
    (void)state;
    for (int o = 0; o < OBJECTS; o++) {
        for (int d = 0; d < FIXTURE_DAMAGES; d++) {
            damage_everywhere((enum object)o, (enum fixture_damage)d, true);
            damage_everywhere((enum object)o, (enum fixture_damage)d, false);
        }
    }
}

static void two_packs_swapped_are_both_found(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct bwi_buf a = {0};
    struct bwi_buf b = {0};
    open_damaged(&w, &f, false);
    const struct bwi_key one = bwi_key_pack("run", false, &f.id, 0, 0, w.ctx.writer);
    const struct bwi_key two = bwi_key_pack("run", false, &f.id, 1, 0, w.ctx.writer);
    assert_true(world_get(&w, BWI_TIER_LOCAL, one.s, &a));
    assert_true(world_get(&w, BWI_TIER_LOCAL, two.s, &b));
    world_put(&w, BWI_TIER_LOCAL, one.s, bwi_buf_span(&b));
    world_put(&w, BWI_TIER_LOCAL, two.s, bwi_buf_span(&a));
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    assert_ok(reader_all(&x), &x.error);
    assert_int_equal(bwi_restore_get_stats(x.r)->repaired_objects, 2);
    reader_close(&x);
    bwi_buf_fini(&a);
    bwi_buf_fini(&b);
    world_close(&w);
}

static void another_content_under_the_same_id_is_never_read(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    world_open(&w, 8, 256 * KIB);
    fixture_small(&f, &w, 2);
    f.salt = 1; /* sound in itself, and not what was committed */
    for (uint32_t g = 0; g < 2; g++) fixture_save_group(&f, g, BWI_TIER_LOCAL);
    f.salt = 0;
    f.tiers[BWI_TIER_LOCAL] = false;
    fixture_save(&f);
    struct bwi_restore_target t = reader_target(&f, true);
    t.may_repair = false;
    reader_open(&x, &f, &t);
    assert_ok(reader_all(&x), &x.error);
    assert_int_equal(bwi_restore_get_stats(x.r)->local_bytes, 0);
    reader_close(&x);
    t.may_repair = true;
    reader_open(&x, &f, &t); /* metadata is put right first, then the packs, which have the right size */
    for (int i = 0; i < 3; i++) assert_ok(reader_all(&x), &x.error);
    const uint64_t remote = bwi_restore_get_stats(x.r)->remote_bytes;
    assert_ok(reader_all(&x), &x.error);
    assert_int_equal(bwi_restore_get_stats(x.r)->remote_bytes, remote);
    reader_close(&x);
    world_close(&w);
}

static void an_io_error_is_no_damage(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct bwi_span mark;
    open_damaged(&w, &f, false);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    assert_ok(reader_ask(&x, BWI_RESTORE_ALL_TENSORS, NULL, 0), &x.error);
    bwi_bucket_fail_next(w.bucket[0], BWI_STORE_READ, "safetensors", BW_E_IO, false);
    assert_ok(reader_all(&x), &x.error); /* another tier has it */
    assert_int_equal(bwi_restore_get_stats(x.r)->damaged_extents, 0);
    assert_int_equal(bwi_restore_get_stats(x.r)->repaired_objects, 0);
    assert_true(bwi_restore_get_stats(x.r)->remote_bytes > 0);
    bwi_bucket_fail_next(w.bucket[0], BWI_STORE_READ, "/000001/", BW_E_IO, false);
    bwi_bucket_fail_next(w.bucket[1], BWI_STORE_READ, "/000001/", BW_E_IO, false);
    assert_int_equal(reader_all(&x), BW_E_IO);
    assert_non_null(strstr(x.error.message, "injected failure"));
    assert_non_null(strstr(x.error.message, "tensor \"a\": group 1: local tier: pack "));
    assert_false(bwi_bucket_get(w.bucket[1], bwi_key_damaged("run", &f.id, 1).s, &mark));
    assert_ok(reader_all(&x), &x.error); /* and later it is there again */
    reader_close(&x);
    world_close(&w);
}

/* ---- what the history says ---- */

static void put_entry(struct world *w, const struct bwi_entry *e, struct bwi_sha *ret_sha) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf bytes = {0};
    assert_ok(bwi_entry_encode(e, &bytes, &err), &err);
    *ret_sha = bwi_sha_of(bwi_buf_span(&bytes));
    world_put(w, BWI_TIER_REMOTE, bwi_key_entry("run", e->era, e->n).s, bwi_buf_span(&bytes));
    bwi_buf_fini(&bytes);
}

/* A history in which the fixture's checkpoint was committed, or in which a later one was instead. */
static void put_history(struct world *w, struct fixture *f, bool kept) {
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
    put_entry(w, &first, &sha);
    a.head = &first;
    a.head_sha = sha;
    struct bwi_kept k = {.id = f->id, .manifest = f->manifest, .bytes = 1, .time_ms = 1000};
    if (!kept) k.id.step++;
    assert_ok(bwi_policy_commit(&a, &k, &second, &err), &err);
    put_entry(w, &second, &sha);
    bwi_entry_fini(&first);
    bwi_entry_fini(&second);
}

static void what_is_missing_is_damage_or_gone_as_the_history_says(void **state) {
    (void)state;
    for (int kept = 0; kept < 2; kept++) {
        for (int o = 0; o < OBJECTS; o++) {
            struct world w;
            struct fixture f;
            struct reader x;
            struct bwi_span mark;
            uint64_t at;
            world_open(&w, 8, 256 * KIB);
            fixture_small(&f, &w, 2);
            f.id.attempt = 1;
            f.tiers[BWI_TIER_LOCAL] = false;
            fixture_save(&f);
            put_history(&w, &f, kept != 0);
            const struct bwi_key key = key_of(&f, (enum object)o, &at);
            fixture_damage(&w, BWI_TIER_REMOTE, key.s, FIXTURE_DELETE, 0);
            const struct bwi_restore_target t = reader_target(&f, true);
            reader_open(&x, &f, &t);
            const int rc = reader_all(&x);
            assert_int_equal(rc, o == INDEX ? 0 : kept ? BW_E_CORRUPT : BW_E_NOTFOUND);
            if (rc == BW_E_NOTFOUND) {
                assert_non_null(
                    strstr(x.error.message, "is gone: the history of run \"run\" does not name it any more"));
                assert_false(bwi_bucket_get(w.bucket[1], bwi_key_damaged("run", &f.id, 1).s, &mark));
            } else if (rc < 0) {
                assert_non_null(strstr(x.error.message, key.s));
            }
            reader_close(&x);
            world_close(&w);
        }
    }
}

/* A byte in the head, or in the last block. What was loaded before the damage stays as it is. */
static void lost_index(enum fixture_damage d, bool head, bool loaded, bool layout_too) {
    struct world w;
    struct fixture f;
    struct reader x;
    struct bw_tensor_info before, after;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf index = {0};
    uint64_t at;
    world_open(&w, 4, 256 * KIB);
    fixture_long_names(&f, &w, 2);
    fixture_save(&f);
    const struct bwi_key key = key_of(&f, INDEX, &at);
    const struct bwi_key layout = key_of(&f, LAYOUT, &at);
    assert_true(world_get(&w, BWI_TIER_REMOTE, key.s, &index));
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    if (loaded) {
        assert_ok(reader_ask(&x, BWI_RESTORE_TENSOR, f.tensors[0].name, 0), &x.error);
        assert_ok(bwi_restore_get_tensor(x.r, f.tensors[0].name, &before, &err), &err);
    }
    fixture_damage(&w, BWI_TIER_REMOTE, key.s, d, head ? 60 : index.len - 9);
    for (int i = 0; layout_too && i < BWI_TIERS; i++) fixture_damage(&w, (enum bwi_tier)i, layout.s, FIXTURE_FLIP, 50);
    const int rc = reader_all(&x);
    assert_int_equal(rc, layout_too ? BW_E_CORRUPT : 0);
    if (layout_too && strstr(x.error.message, layout.s) == NULL) fail_msg("no \"%s\": %s", layout.s, x.error.message);
    if (!layout_too) assert_ok(reader_ask(&x, BWI_RESTORE_ALL_TENSORS, NULL, 0), &x.error);
    if (loaded) {
        assert_ok(bwi_restore_get_tensor(x.r, f.tensors[0].name, &after, &err), &err);
        assert_ptr_equal(before.name, after.name);
        assert_string_equal(before.name, f.tensors[0].name);
    }
    reader_close(&x);
    bwi_buf_fini(&index);
    world_close(&w);
}

static void a_lost_index_is_made_again_from_the_layouts(void **state) {
    (void)state;
    for (int d = 0; d < FIXTURE_DAMAGES; d++) {
        for (int how = 0; how < 4; how++) lost_index((enum fixture_damage)d, how & 1, how & 2, false);
    }
    lost_index(FIXTURE_FLIP, true, false, true);
    lost_index(FIXTURE_DELETE, false, true, true);
}

/* ---- sweeps ---- */

/* Reads with a damaged local pack and a damaged local content, so that repairing is a part of it; the n-th
 * operation of a kind fails. false: there were fewer. */
static bool read_with_failure(enum bwi_store_verb verb, enum bwi_tier tier, uint64_t n, unsigned *failures) {
    struct world w;
    struct fixture f;
    struct reader x;
    struct piece p;
    uint64_t at;
    open_damaged(&w, &f, false);
    const struct bwi_key pack = key_of(&f, PACK, &at);
    fixture_damage(&w, BWI_TIER_LOCAL, pack.s, FIXTURE_FLIP, at);
    fixture_damage(&w, BWI_TIER_LOCAL, bwi_key_content("run", false, &f.id, 0).s, FIXTURE_FLIP, 50);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    piece_make(&p, &f, 0, (uint64_t[]){0, 0}, (uint64_t[]){24, 300});
    struct bwi_restore_call c = {.what = BWI_RESTORE_READ, .r = x.r, .slices = &p.slice, .slice_count = 1};
    const uint64_t *ops = &w.ctx.tier[tier]->ops[verb];
    const uint64_t base = *ops;
    uint64_t armed = UINT64_MAX;
    bwi_restore_call_start(&c, w.loop, NULL);
    while (c.task.running) {
        if (armed == UINT64_MAX && *ops - base >= n - 1) {
            bwi_bucket_fail_next(w.bucket[tier], verb, NULL, BW_E_IO, false);
            armed = *ops;
        }
        world_turn(&w);
    }
    const bool hit = *ops > armed;
    if (c.task.error.status == 0) {
        assert_int_equal(piece_wrong(&p), 0);
    } else {
        assert_int_equal(c.task.error.status, BW_E_IO);
        (*failures)++;
    }
    assert_false(bwi_bucket_get(w.bucket[1], bwi_key_damaged("run", &f.id, 1).s, &(struct bwi_span){0}));
    bwi_free(p.memory);
    reader_close(&x);
    world_close(&w);
    return hit;
}

static void any_operation_may_fail(void **state) {
    (void)state;
    const enum bwi_store_verb verbs[] = {BWI_STORE_GET,    BWI_STORE_READ,    BWI_STORE_BEGIN, BWI_STORE_WRITE,
                                         BWI_STORE_FINISH, BWI_STORE_REPLACE, BWI_STORE_HEAD};
    const long live = bwi_alloc_live();
    unsigned failures = 0;
    uint64_t runs = 0;
    for (size_t v = 0; v < sizeof verbs / sizeof *verbs; v++) {
        for (int tier = 0; tier < BWI_TIERS; tier++) {
            uint64_t n = 1;
            while (read_with_failure(verbs[v], (enum bwi_tier)tier, n, &failures)) n++;
            runs += n;
        }
    }
    assert_true(runs > 40);
    assert_true(failures > 3);
    assert_int_equal(bwi_alloc_live(), live);
}

static void memory_may_run_out_at_any_allocation(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    uint64_t at;
    open_damaged(&w, &f, false);
    const struct bwi_key pack = key_of(&f, PACK, &at);
    const struct bwi_restore_target t = reader_target(&f, true);
    const long live = bwi_alloc_live();
    bool failed = true;
    for (unsigned long n = 1; failed; n++) {
        struct piece p;
        fixture_damage(&w, BWI_TIER_LOCAL, pack.s, FIXTURE_FLIP, at);
        piece_make(&p, &f, 0, (uint64_t[]){0, 0}, (uint64_t[]){24, 300});
        reader_open(&x, &f, &t);
        (void)bwi_alloc_fail_at(n);
        const int rc = reader_read(&x, &p.slice, 1);
        const unsigned long made = bwi_alloc_fail_at(0);
        failed = made >= n;
        if (rc != 0) {
            assert_int_equal(rc, BW_E_NOMEM);
        } else {
            assert_int_equal(piece_wrong(&p), 0);
        }
        bwi_free(p.memory);
        reader_close(&x);
        struct bwi_span data = BWI_SPAN_NONE;
        assert_true(bwi_bucket_get(w.bucket[1], pack.s, &data));
        assert_true(bwi_bucket_put(w.bucket[0], pack.s, data));
    }
    assert_int_equal(bwi_alloc_live(), live);
    for (int what = 0; what < BWI_RESTORE_READ; what++) {
        for (int committed = 0; committed < 2; committed++) {
            struct bwi_restore_target target = reader_target(&f, committed != 0);
            target.wait_ns = BWI_NS_PER_S;
            failed = true;
            for (unsigned long n = 1; failed; n++) {
                reader_open(&x, &f, &target);
                (void)bwi_alloc_fail_at(n);
                const int rc = reader_ask(&x, (enum bwi_restore_what)what, "a", 1);
                failed = bwi_alloc_fail_at(0) >= n;
                if (rc != 0) assert_int_equal(rc, BW_E_NOMEM);
                reader_close(&x);
            }
        }
    }
    assert_int_equal(bwi_alloc_live(), live);
    world_close(&w);
}

/* What a call asks of every group, and of an index that has to be made again. */
static void memory_may_run_out_while_all_groups_are_asked(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    uint64_t at;
    unsigned failures = 0;
    uint8_t buf[5000];
    world_open(&w, 8, 256 * KIB);
    fixture_small(&f, &w, 2);
    fixture_save(&f);
    fixture_damage(&w, BWI_TIER_REMOTE, key_of(&f, INDEX, &at).s, FIXTURE_DELETE, 0);
    const struct bwi_restore_target t = reader_target(&f, true);
    const long live = bwi_alloc_live();
    for (int blobs = 0; blobs < 2; blobs++) {
        bool failed = true;
        for (unsigned long n = 1; failed; n++) {
            reader_open(&x, &f, &t);
            (void)bwi_alloc_fail_at(n);
            int rc = reader_ask(&x, blobs ? BWI_RESTORE_BLOBS : BWI_RESTORE_ALL_TENSORS, NULL, 0);
            failed = bwi_alloc_fail_at(0) >= n;
            if (rc != 0) assert_fails(rc, BW_E_NOMEM, &x.error, NULL);
            failures += rc != 0;
            rc = blobs ? reader_blob(&x, 1, "rng", buf, sizeof buf) : reader_all(&x); /* it works again */
            assert_ok(rc, &x.error);
            if (blobs) assert_int_equal(buf[99], fixture_blob_byte("rng", 1, 99));
            reader_close(&x);
        }
    }
    assert_true(failures > 20);
    assert_int_equal(bwi_alloc_live(), live);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_damage_is_served_from_the_remote_tier_and_put_right),
        cmocka_unit_test(nothing_is_put_right_without_leave),
        cmocka_unit_test(damage_on_every_tier_is_named_and_marked),
        cmocka_unit_test(two_packs_swapped_are_both_found),
        cmocka_unit_test(another_content_under_the_same_id_is_never_read),
        cmocka_unit_test(an_io_error_is_no_damage),
        cmocka_unit_test(what_is_missing_is_damage_or_gone_as_the_history_says),
        cmocka_unit_test(a_lost_index_is_made_again_from_the_layouts),
        cmocka_unit_test(any_operation_may_fail),
        cmocka_unit_test(memory_may_run_out_at_any_allocation),
        cmocka_unit_test(memory_may_run_out_while_all_groups_are_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
