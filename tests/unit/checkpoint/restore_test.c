/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a checkpoint: what is asked for, what is damaged and where it then comes from, what is waited for, and
 * every way to fail. */
#include "base/error.h"
#include "checkpoint/policy_history.h"
#include "reader.h"

static void small(struct fixture *f, struct world *w, uint32_t world) {
    fixture_init(f, w, world, FIXTURE_ROWS);
    fixture_tensor(f, "a", BW_F32, 2, (uint64_t[]){24, 300});
    fixture_tensor(f, "b", BW_I16, 1, (uint64_t[]){1000});
    fixture_tensor(f, "s", BW_F64, 0, NULL);
    fixture_tie(f, "a.tied", 0);
    fixture_blob(f, "rng", 5000);
    fixture_blob(f, "none", 0);
    f->metadata = "{\"lr\":0.5}";
}

/* ---- questions ---- */

static void names_shapes_boxes_blobs_and_metadata_are_told(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct bw_error err = BW_ERROR_INIT;
    world_open(&w, 5, 256 * KIB);
    small(&f, &w, 3);
    fixture_save(&f);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    struct bw_checkpoint_info info;
    assert_fails(bwi_restore_get_info(x.r, &info, &err), BW_E_STATE, &err, "has not been read yet");
    assert_ok(reader_ask(&x, BWI_RESTORE_MANIFEST, NULL, 0), &x.error);
    err = (struct bw_error)BW_ERROR_INIT;
    assert_ok(bwi_restore_get_info(x.r, &info, &err), &err);
    assert_int_equal(info.step, 100);
    assert_int_equal(info.world, 3);
    assert_int_equal(info.groups, 3);
    assert_int_equal(info.committed, 1);
    assert_int_equal(info.tensors, 4);
    assert_int_equal(info.raw_bytes, 24 * 300 * 4 + 2000 + 8 + 3 * 5000);
    assert_non_null(bwi_restore_manifest(x.r));
    struct bw_tensor_info ti;
    assert_fails(bwi_restore_get_tensor(x.r, "b", &ti, &err), BW_E_STATE, &err, NULL);
    assert_ok(reader_ask(&x, BWI_RESTORE_TENSOR, "b", 0), &x.error);
    err = (struct bw_error)BW_ERROR_INIT;
    assert_ok(bwi_restore_get_tensor(x.r, "b", &ti, &err), &err);
    assert_string_equal(ti.name, "b");
    assert_int_equal(ti.dtype, BW_I16);
    assert_int_equal(ti.shape[0], 1000);
    assert_int_equal(ti.bytes, 2000);
    assert_int_equal(ti.boxes, 3);
    struct bw_box_info box;
    assert_ok(bwi_restore_get_box(x.r, "b", 2, &box, &err), &err);
    assert_int_equal(box.group, 2);
    assert_int_equal(box.offset[0], 668);
    assert_int_equal(box.extent[0], 332);
    assert_fails(bwi_restore_get_box(x.r, "b", 3, &box, &err), BW_E_NOTFOUND, &err, "no box number 3, it has 3");
    err = (struct bw_error)BW_ERROR_INIT;
    assert_fails(bwi_restore_get_tensor(x.r, "zz", &ti, &err), BW_E_NOTFOUND, &err, "no tensor \"zz\"");
    assert_ok(reader_ask(&x, BWI_RESTORE_ALL_TENSORS, NULL, 0), &x.error);
    const char *const names[] = {"a", "a.tied", "b", "s"};
    err = (struct bw_error)BW_ERROR_INIT;
    for (uint64_t i = 0; i < 4; i++) {
        assert_ok(bwi_restore_get_tensor_at(x.r, i, &ti, &err), &err);
        assert_string_equal(ti.name, names[i]);
    }
    assert_null(ti.shape);
    assert_fails(bwi_restore_get_tensor_at(x.r, 4, &ti, &err), BW_E_NOTFOUND, &err, "no tensor number 4, it has 4");
    err = (struct bw_error)BW_ERROR_INIT;
    struct bw_blob_info blob;
    assert_fails(bwi_restore_get_blob(x.r, 0, &blob, &err), BW_E_STATE, &err, NULL);
    assert_ok(reader_ask(&x, BWI_RESTORE_BLOBS, NULL, 0), &x.error);
    err = (struct bw_error)BW_ERROR_INIT;
    assert_ok(bwi_restore_get_blob(x.r, 5, &blob, &err), &err);
    assert_string_equal(blob.name, "rng");
    assert_int_equal(blob.rank, 2);
    assert_int_equal(blob.bytes, 5000);
    assert_fails(bwi_restore_get_blob(x.r, 6, &blob, &err), BW_E_NOTFOUND, &err, "it has 6");
    err = (struct bw_error)BW_ERROR_INIT;
    const char *json;
    assert_fails(bwi_restore_get_metadata(x.r, 1, &json, &err), BW_E_STATE, &err, NULL);
    assert_ok(reader_ask(&x, BWI_RESTORE_RANK, NULL, 1), &x.error);
    err = (struct bw_error)BW_ERROR_INIT;
    assert_ok(bwi_restore_get_metadata(x.r, 1, &json, &err), &err);
    assert_string_equal(json, "{\"lr\":0.5}");
    assert_int_equal(reader_ask(&x, BWI_RESTORE_RANK, NULL, 3), BW_E_NOTFOUND);
    assert_non_null(strstr(x.error.message, "no rank 3, it was saved by 3 ranks"));
    reader_close(&x);
    world_close(&w);
}

static void an_index_of_many_blocks_is_read_by_name_and_in_order(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct bw_error err = BW_ERROR_INIT;
    static char names[FIXTURE_TENSORS][8002];
    world_open(&w, 4, 256 * KIB);
    fixture_init(&f, &w, 2, FIXTURE_ROWS);
    for (int i = 0; i < FIXTURE_TENSORS; i++) { /* long names fill the blocks */
        memset(names[i], 'a' + i, 8000);
        fixture_tensor(&f, names[i], BW_U8, 1, (uint64_t[]){16});
    }
    fixture_save(&f);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    struct bw_tensor_info ti;
    assert_ok(reader_ask(&x, BWI_RESTORE_TENSOR, names[11], 0), &x.error);
    assert_ok(bwi_restore_get_tensor(x.r, names[11], &ti, &err), &err);
    assert_fails(bwi_restore_get_tensor(x.r, names[0], &ti, &err), BW_E_STATE, &err, NULL); /* another block */
    assert_ok(reader_ask(&x, BWI_RESTORE_ALL_TENSORS, NULL, 0), &x.error);
    err = (struct bw_error)BW_ERROR_INIT;
    for (uint64_t i = 0; i < FIXTURE_TENSORS; i++) {
        assert_ok(bwi_restore_get_tensor_at(x.r, i, &ti, &err), &err);
        assert_string_equal(ti.name, names[i]);
    }
    assert_ok(reader_all(&x), &x.error);
    reader_close(&x);
    world_close(&w);
}

static void blobs_come_back_and_tell_their_length(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    uint8_t buf[5000];
    world_open(&w, 1, 256 * KIB);
    small(&f, &w, 2);
    fixture_save(&f);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    assert_int_equal(reader_blob(&x, 1, "rng", NULL, 0), BW_E_LIMIT);
    assert_int_equal(x.got_bytes, 5000);
    assert_int_equal(reader_blob(&x, 1, "rng", buf, 4999), BW_E_LIMIT);
    assert_non_null(strstr(x.error.message, "blob \"rng\" of rank 1 has 5000 bytes, the buffer 4999"));
    assert_ok(reader_blob(&x, 1, "rng", buf, sizeof buf), &x.error);
    for (uint64_t i = 0; i < 5000; i++) assert_int_equal(buf[i], fixture_blob_byte("rng", 1, i));
    assert_ok(reader_blob(&x, 0, "none", NULL, 0), &x.error);
    assert_int_equal(x.got_bytes, 0);
    assert_int_equal(reader_blob(&x, 0, "nope", buf, sizeof buf), BW_E_NOTFOUND);
    assert_non_null(strstr(x.error.message, "rank 0 has no blob \"nope\""));
    assert_int_equal(reader_blob(&x, 2, "rng", buf, sizeof buf), BW_E_NOTFOUND);
    assert_int_equal(reader_blob(&x, 0, NULL, buf, sizeof buf), BW_E_INVALID);
    assert_int_equal(reader_blob(&x, 0, "rng", NULL, 5000), BW_E_INVALID);
    reader_close(&x);
    world_close(&w);
}

static void what_is_expected_is_compared_strictly(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    world_open(&w, 1, 256 * KIB);
    small(&f, &w, 2);
    fixture_save(&f);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    assert_ok(reader_ask(&x, BWI_RESTORE_ALL_TENSORS, NULL, 0), &x.error);
    const uint64_t a[] = {24, 300}, b[] = {1000}, c[] = {1001};
    struct bw_expected e[] = {
        {"s", BW_F64, 0, NULL}, {"a", BW_F32, 2, a}, {"b", BW_I16, 1, b}, {"a.tied", BW_F32, 2, a}};
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_restore_compare(x.r, e, 4, 0, &err), &err);
    assert_ok(bwi_restore_compare(x.r, e, 2, BW_CHECK_SUBSET, &err), &err);
    assert_fails(bwi_restore_compare(x.r, e, 2, 0, &err), BW_E_MISMATCH, &err,
                 "tensor \"a.tied\": the checkpoint has F32 [24, 300], expected no such tensor (and 1 more differ)");
    e[2].shape = c;
    err = (struct bw_error)BW_ERROR_INIT;
    assert_fails(bwi_restore_compare(x.r, e, 4, 0, &err), BW_E_MISMATCH, &err,
                 "tensor \"b\": expected I16 [1001], the checkpoint has I16 [1000]");
    e[2].shape = b;
    e[2].dtype = BW_U16;
    err = (struct bw_error)BW_ERROR_INIT;
    assert_fails(bwi_restore_compare(x.r, e, 4, BW_CHECK_SUBSET, &err), BW_E_MISMATCH, &err, "expected U16 [1000]");
    e[2] = (struct bw_expected){"bb", BW_I16, 1, b};
    err = (struct bw_error)BW_ERROR_INIT;
    assert_fails(bwi_restore_compare(x.r, e, 4, BW_CHECK_SUBSET, &err), BW_E_MISMATCH, &err,
                 "tensor \"bb\": expected I16 [1000], the checkpoint has no such tensor");
    e[2].name = "a";
    err = (struct bw_error)BW_ERROR_INIT;
    assert_fails(bwi_restore_compare(x.r, e, 4, 0, &err), BW_E_INVALID, &err, "tensor \"a\": is there twice");
    err = (struct bw_error)BW_ERROR_INIT;
    assert_fails(bwi_restore_compare(x.r, e, 2, 6, &err), BW_E_INVALID, &err, "unknown flags 0x6");
    reader_close(&x);
    world_close(&w);
}

/* ---- slices ---- */

static void expect_slice(struct reader *x, const struct bw_slice *s, size_t n, int status, const char *text) {
    assert_int_equal(reader_read(x, s, n), status);
    if (strstr(x->error.message, text) == NULL) fail_msg("no \"%s\" in: %s", text, x->error.message);
    assert_int_equal(bwi_restore_get_stats(x->r)->local_bytes, 0); /* before a byte is read */
}

static void slices_are_checked_before_anything_is_read(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct piece p;
    world_open(&w, 1, 256 * KIB);
    small(&f, &w, 2);
    fixture_save(&f);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    piece_make(&p, &f, 0, (uint64_t[]){0, 0}, (uint64_t[]){24, 300});
    struct bw_slice s = p.slice;
    s.struct_size = 8;
    expect_slice(&x, &s, 1, BW_E_INVALID, "slice 0: struct_size is 8, expected");
    s = p.slice;
    s.name = NULL;
    expect_slice(&x, &s, 1, BW_E_INVALID, "slice 0: name is NULL");
    s = p.slice;
    s.name = "nope";
    expect_slice(&x, &s, 1, BW_E_NOTFOUND, "no tensor \"nope\"");
    s = p.slice;
    s.dtype = BW_BF16;
    expect_slice(&x, &s, 1, BW_E_MISMATCH, "tensor \"a\": the slice has dtype BF16, the checkpoint F32");
    s.dtype = 99;
    expect_slice(&x, &s, 1, BW_E_INVALID, "unknown dtype 99");
    s = p.slice;
    s.dims = 1;
    expect_slice(&x, &s, 1, BW_E_MISMATCH, "the slice has 1 dimensions, the checkpoint F32 [24, 300]");
    s.dims = 17;
    expect_slice(&x, &s, 1, BW_E_LIMIT, "17 dims, the limit is 16");
    s = p.slice;
    s.shape = (uint64_t[]){24, 301};
    expect_slice(&x, &s, 1, BW_E_MISMATCH, "the slice expects F32 [24, 301], the checkpoint has F32 [24, 300]");
    s = p.slice;
    s.offset = (uint64_t[]){1, 0};
    expect_slice(&x, &s, 1, BW_E_INVALID, "offset 1 + extent 24 in dimension 0 is above the shape's 24");
    s.offset = (uint64_t[]){UINT64_MAX, 0};
    expect_slice(&x, &s, 1, BW_E_INVALID, "is above the shape's 24");
    s.extent = NULL;
    s.offset = (uint64_t[]){0, 1};
    expect_slice(&x, &s, 1, BW_E_INVALID, "offset 1 + extent 300 in dimension 1");
    s = p.slice;
    s.data = NULL;
    expect_slice(&x, &s, 1, BW_E_INVALID, "data is NULL, expected room for 28800 bytes");
    s = p.slice;
    s.stride_bytes = (int64_t[]){INT64_MAX, 4};
    expect_slice(&x, &s, 1, BW_E_INVALID, "its strides leave the address space");
    s.stride_bytes = (int64_t[]){INT64_MIN / 32, 4};
    expect_slice(&x, &s, 1, BW_E_INVALID, "its strides leave the address space");
    s.stride_bytes = (int64_t[]){1200, 0};
    expect_slice(&x, &s, 1, BW_E_INVALID, "stride of 0 bytes in dimension 1: elements of 4 bytes overlap");
    s = p.slice;
    s.reserved = 1;
    expect_slice(&x, &s, 1, BW_E_INVALID, "reserved is 1");
    struct bw_slice two[] = {p.slice, p.slice};
    two[1].name = "b";
    two[1].dtype = BW_I16;
    two[1].dims = 1;
    two[1].shape = two[1].offset = two[1].extent = NULL;
    two[1].data = p.memory + 28798;
    expect_slice(&x, two, 2, BW_E_INVALID, "the memory of the slices of tensor \"a\" and tensor \"b\" overlaps");
    two[1].extent = (uint64_t[]){0}; /* an empty box touches nothing, wherever it points to */
    two[1].data = NULL;
    assert_ok(reader_read(&x, two, 2), &x.error);
    assert_int_equal(piece_wrong(&p), 0);
    assert_ok(reader_read(&x, NULL, 0), &x.error);
    assert_int_equal(reader_read(&x, NULL, 1), BW_E_INVALID);
    bwi_free(p.memory);
    reader_close(&x);
    world_close(&w);
}

static void an_extent_that_several_slices_need_is_read_once(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct piece p[6];
    struct bw_slice s[6];
    world_open(&w, 1, 256 * KIB);
    small(&f, &w, 1);
    fixture_save(&f);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    for (size_t i = 0; i < 6; i++) { /* columns, of the tensor and of its other name: each needs every extent */
        piece_make(&p[i], &f, i % 2 == 0 ? 0 : 3, (uint64_t[]){0, 50 * i}, (uint64_t[]){24, 50});
        s[i] = p[i].slice;
    }
    assert_ok(reader_read(&x, s, 6), &x.error);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(piece_wrong(&p[i]), 0);
        bwi_free(p[i].memory);
    }
    assert_int_equal(bwi_restore_get_stats(x.r)->local_bytes, 28800);
    assert_int_equal(bwi_restore_get_stats(x.r)->verified_bytes, 28800);
    reader_close(&x);
    world_close(&w);
}

static void the_arena_is_the_bound_whatever_is_read(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    world_open(&w, 9, 3 * 4 * KIB); /* three extents */
    small(&f, &w, 4);
    fixture_save(&f);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    assert_ok(reader_all(&x), &x.error);
    assert_true(bwi_arena_peak(w.arena) <= 3 * 4 * KIB);
    reader_close(&x);
    world_close(&w);
    world_open(&w, 0, 4 * KIB); /* a buffer that can never be had is an error, not a hang */
    fixture_init(&f, &w, 1, FIXTURE_ROWS);
    fixture_tensor(&f, "a", BW_U8, 1, (uint64_t[]){5000});
    f.extent_bytes = 8 * KIB;
    struct world big;
    world_open(&big, 0, 64 * KIB);
    struct bwi_arena *tight = w.arena;
    w.ctx.arena = big.arena;
    fixture_save(&f);
    w.ctx.arena = tight;
    const struct bwi_restore_target t2 = reader_target(&f, true);
    reader_open(&x, &f, &t2);
    assert_int_equal(reader_all(&x), BW_E_LIMIT);
    assert_non_null(strstr(x.error.message, "memory budget of 4096 bytes"));
    reader_close(&x);
    world_close(&w);
    world_close(&big);
}

/* ---- placements ---- */

static void compressed_extents_and_packs_of_other_checkpoints_are_followed(void **state) {
    (void)state;
    for (int codec = 0; codec < 2; codec++) {
        for (int foreign = 0; foreign < 2; foreign++) {
            struct world w;
            struct fixture f;
            struct reader x;
            const struct bwi_id other = {90, 2, 0xabcd1234, 0};
            uint8_t buf[5000];
            world_open(&w, 6, 256 * KIB);
            small(&f, &w, 2);
            for (uint32_t g = 0; g < 2; g++) {
                for (int t = 0; t < BWI_TIERS; t++) fixture_save_group(&f, g, (enum bwi_tier)t);
                fixture_repack(&f, g, BWI_TIER_REMOTE, (uint8_t)codec, foreign ? &other : NULL);
            }
            fixture_commit(&f);
            /* One tier differs from the other: a damaged raw extent here is served from a compressed one there. */
            const struct bwi_key pack = bwi_key_pack("run", false, &f.id, 1, 0, w.ctx.writer);
            fixture_damage(&w, BWI_TIER_LOCAL, pack.s, FIXTURE_FLIP, 4096 + 100);
            const struct bwi_restore_target t = reader_target(&f, true);
            reader_open(&x, &f, &t);
            assert_ok(reader_all(&x), &x.error);
            assert_int_equal(bwi_restore_get_stats(x.r)->damaged_extents, 1);
            reader_close(&x);
            f.w->ctx.tier[BWI_TIER_LOCAL]->close(f.w->ctx.tier[BWI_TIER_LOCAL]);
            f.w->ctx.tier[BWI_TIER_LOCAL] = NULL; /* the remote tier alone */
            reader_open(&x, &f, &t);
            assert_ok(reader_all(&x), &x.error);
            assert_ok(reader_blob(&x, 1, "rng", buf, sizeof buf), &x.error);
            assert_int_equal(buf[4999], fixture_blob_byte("rng", 1, 4999));
            reader_close(&x);
            struct bw_error err = BW_ERROR_INIT;
            assert_ok(bwi_store_memory_open(w.bucket[0], w.loop, "near", &w.ctx.tier[0], &err), &err);
            world_close(&w);
        }
    }
}

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

/* Whether reading tensors meets the damage at all: bytes behind the last extent are only verify's business. */
static bool matters(enum object o, enum fixture_damage d) {
    return !(o == PACK && d == FIXTURE_EXTEND) && !(o == INDEX && d == FIXTURE_EXTEND);
}

static void open_damaged(struct world *w, struct fixture *f, bool dirs) {
    if (dirs) {
        world_open_dirs(w, NULL, MIB);
    } else {
        world_open(w, 8, 256 * KIB);
    }
    small(f, w, 2);
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
    small(&f, &w, 2);
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
            small(&f, &w, 2);
            f.id.attempt = 1;
            f.tiers[BWI_TIER_LOCAL] = false;
            fixture_save(&f);
            put_history(&w, &f, kept != 0);
            const struct bwi_key key = key_of(&f, (enum object)o, &at);
            fixture_damage(&w, BWI_TIER_REMOTE, key.s, FIXTURE_DELETE, 0);
            const struct bwi_restore_target t = reader_target(&f, true);
            reader_open(&x, &f, &t);
            assert_int_equal(reader_all(&x), kept ? BW_E_CORRUPT : BW_E_NOTFOUND);
            if (x.error.status == BW_E_NOTFOUND) {
                assert_non_null(
                    strstr(x.error.message, "is gone: the history of run \"run\" does not name it any more"));
                assert_false(bwi_bucket_get(w.bucket[1], bwi_key_damaged("run", &f.id, 1).s, &mark));
            } else {
                assert_non_null(strstr(x.error.message, key.s));
            }
            reader_close(&x);
            world_close(&w);
        }
    }
}

/* ---- coverage ---- */

static void a_part_that_no_box_holds_is_an_error(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct piece p;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_group_meta m;
    struct bwi_index_builder *b = NULL;
    struct bwi_index_info info;
    struct bwi_buf bytes = {0};
    world_open(&w, 1, 256 * KIB);
    small(&f, &w, 2);
    fixture_save(&f);
    /* A manifest whose index knows the boxes of group 0 only. */
    struct bwi_manifest manifest = {0};
    fixture_meta(&f, 0, BWI_TIER_REMOTE, &m);
    m.summary.groups = m.summary.world = 1;
    assert_ok(bwi_index_builder_new(&b, &err), &err);
    assert_ok(bwi_index_builder_add(b, 0, &m.layout, &err), &err);
    assert_ok(bwi_index_builder_encode(b, &bytes, &info, &err), &err);
    world_put(&w, BWI_TIER_REMOTE, bwi_key_index("run", &f.id, &info.root).s, bwi_buf_span(&bytes));
    assert_ok(bwi_manifest_build(&m.summary, 1, &info, &manifest, &err), &err);
    bwi_buf_reset(&bytes);
    assert_ok(bwi_manifest_encode(&manifest, &bytes, &err), &err);
    f.manifest = bwi_sha_of(bwi_buf_span(&bytes));
    world_put(&w, BWI_TIER_REMOTE, bwi_key_manifest("run", &f.id, &f.manifest).s, bwi_buf_span(&bytes));
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    piece_make(&p, &f, 0, (uint64_t[]){0, 0}, (uint64_t[]){12, 300});
    assert_ok(reader_read(&x, &p.slice, 1), &x.error);
    p.extent[0] = 11;
    p.offset[0] = 2;
    assert_int_equal(reader_read(&x, &p.slice, 1), BW_E_CORRUPT);
    assert_non_null(strstr(x.error.message,
                           "tensor \"a\": the slice has 13200 bytes, its boxes gave 12000: no box holds the rest"));
    bwi_free(p.memory);
    reader_close(&x);
    bwi_index_builder_free(b);
    bwi_manifest_fini(&manifest);
    bwi_buf_fini(&bytes);
    bwi_group_meta_fini(&m);
    world_close(&w);
}

/* ---- a checkpoint that is not committed ---- */

static void uncommitted(struct world *w, struct fixture *f, struct bwi_restore_target *t) {
    world_open(w, 2, 256 * KIB);
    small(f, w, 3);
    *t = reader_target(f, false);
    t->wait_ns = 30 * BWI_NS_PER_S;
}

static void an_uncommitted_checkpoint_is_read_from_wherever_its_groups_are(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct bwi_restore_target t;
    struct bw_checkpoint_info info;
    struct bw_error err = BW_ERROR_INIT;
    uint8_t buf[5000];
    uncommitted(&w, &f, &t);
    fixture_save_group(&f, 0, BWI_TIER_REMOTE);
    fixture_save_group(&f, 1, BWI_TIER_LOCAL);
    fixture_save_group(&f, 2, BWI_TIER_REMOTE);
    fixture_save_group(&f, 2, BWI_TIER_LOCAL);
    reader_open(&x, &f, &t);
    assert_ok(reader_ask(&x, BWI_RESTORE_MANIFEST, NULL, 0), &x.error);
    assert_ok(bwi_restore_get_info(x.r, &info, &err), &err);
    assert_int_equal(info.committed, 0);
    assert_int_equal(info.tensors, 4);
    assert_int_equal(info.raw_bytes, 24 * 300 * 4 + 2000 + 8 + 3 * 5000);
    assert_null(bwi_restore_manifest(x.r));
    assert_ok(reader_all(&x), &x.error);
    assert_ok(reader_ask(&x, BWI_RESTORE_ALL_TENSORS, NULL, 0), &x.error);
    assert_ok(reader_ask(&x, BWI_RESTORE_BLOBS, NULL, 0), &x.error);
    assert_ok(reader_blob(&x, 1, "rng", buf, sizeof buf), &x.error);
    assert_int_equal(w.ctx.tier[1]->ops[BWI_STORE_LIST], 0);
    reader_close(&x);
    world_close(&w);
}

static void groups_that_are_nowhere_yet_are_waited_for(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct bwi_restore_target t;
    uncommitted(&w, &f, &t);
    fixture_save_group(&f, 0, BWI_TIER_LOCAL);
    fixture_save_group(&f, 2, BWI_TIER_REMOTE);
    reader_open(&x, &f, &t);
    struct bwi_restore_call c = {.what = BWI_RESTORE_MANIFEST, .r = x.r};
    bwi_restore_call_start(&c, w.loop, NULL);
    const uint64_t start = w.env.now;
    bool saved = false;
    while (c.task.running) {
        world_turn(&w);
        if (saved || w.env.now < start + 10 * BWI_NS_PER_S) continue;
        saved = true;
        struct world other; /* the group appears: its objects come from another world */
        struct fixture g;
        world_open(&other, 0, 256 * KIB);
        small(&g, &other, 3);
        fixture_save_group(&g, 1, BWI_TIER_REMOTE);
        for (size_t i = 0; i < bwi_bucket_objects(other.bucket[1]); i++) {
            struct bwi_span data = BWI_SPAN_NONE;
            const char *key = bwi_bucket_key(other.bucket[1], i);
            assert_true(bwi_bucket_get(other.bucket[1], key, &data));
            assert_true(bwi_bucket_put(w.bucket[1], key, data));
        }
        world_close(&other);
    }
    assert_ok(c.task.error.status, &c.task.error);
    assert_true(saved);
    assert_true(w.env.now < start + 20 * BWI_NS_PER_S);
    assert_ok(reader_all(&x), &x.error);
    reader_close(&x);
    world_close(&w);
}

static void waiting_ends_with_the_name_of_a_group(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct bwi_restore_target t;
    uncommitted(&w, &f, &t);
    fixture_save_group(&f, 0, BWI_TIER_LOCAL);
    reader_open(&x, &f, &t);
    const uint64_t start = w.env.now;
    assert_int_equal(reader_ask(&x, BWI_RESTORE_MANIFEST, NULL, 0), BW_E_TIMEOUT);
    assert_non_null(
        strstr(x.error.message,
               "2 of its 3 groups are on no tier that can be reached, the first is group 1: waited for 30000 ms"));
    assert_in_range(w.env.now - start, 30 * BWI_NS_PER_S, 31 * BWI_NS_PER_S);
    const uint64_t gets = w.ctx.tier[1]->ops[BWI_STORE_GET];
    assert_true(gets < 100); /* with back-off */
    fixture_save_group(&f, 1, BWI_TIER_LOCAL);
    fixture_save_group(&f, 2, BWI_TIER_LOCAL);
    assert_ok(reader_all(&x), &x.error); /* the next call waits anew */
    reader_close(&x);
    world_close(&w);
}

static void an_uncommitted_checkpoint_with_a_gap_or_of_another_world_is_refused(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct bwi_restore_target t;
    uncommitted(&w, &f, &t);
    for (uint32_t g = 0; g < 3; g++) fixture_save_group(&f, g, BWI_TIER_LOCAL);
    t.world = 4;
    reader_open(&x, &f, &t);
    assert_int_equal(reader_ask(&x, BWI_RESTORE_MANIFEST, NULL, 0), BW_E_CORRUPT);
    assert_non_null(strstr(x.error.message, "speak of 3 groups in a world of 3, the history of 3 in a world of 4"));
    reader_close(&x);
    t.world = 3;
    f.split = FIXTURE_COLUMNS; /* group 1 is saved again, split the other way */
    fixture_save_group(&f, 1, BWI_TIER_REMOTE);
    assert_true(bwi_bucket_remove(w.bucket[0], bwi_key_summary("run", &f.id, 1).s));
    reader_open(&x, &f, &t);
    assert_int_equal(reader_ask(&x, BWI_RESTORE_MANIFEST, NULL, 0), BW_E_COVERAGE);
    assert_non_null(strstr(x.error.message, "tensor \"a\": the box of group 0"));
    reader_close(&x);
    t.uuid.b[3] ^= 1;
    reader_open(&x, &f, &t);
    assert_int_equal(reader_ask(&x, BWI_RESTORE_MANIFEST, NULL, 0), BW_E_FOREIGN);
    reader_close(&x);
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_restore *none = NULL;
    t.groups = 0;
    assert_fails(bwi_restore_new(&w.ctx, &t, &none, &err), BW_E_INVALID, &err, "0 groups");
    world_close(&w);
}

/* ---- time ---- */

static void a_call_without_progress_ends_once_nothing_is_in_flight(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    world_open(&w, 0, 256 * KIB);
    small(&f, &w, 2);
    fixture_save(&f);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    bwi_bucket_model(w.bucket[1])->latency_ns = 200 * BWI_NS_PER_S;
    const uint64_t start = w.env.now;
    assert_int_equal(reader_ask(&x, BWI_RESTORE_MANIFEST, NULL, 0), BW_E_TIMEOUT);
    assert_non_null(strstr(x.error.message, "no progress for 120000 ms"));
    assert_int_equal(w.env.now - start, 200 * BWI_NS_PER_S);        /* the read owns its buffer until then */
    bwi_bucket_model(w.bucket[1])->latency_ns = 100 * BWI_NS_PER_S; /* slow, but it gets on */
    assert_ok(reader_all(&x), &x.error);
    reader_close(&x);
    world_close(&w);
}

static void a_call_can_be_cancelled_at_any_turn(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    world_open(&w, 11, 64 * KIB);
    small(&f, &w, 3);
    fixture_save(&f);
    const struct bwi_restore_target t = reader_target(&f, true);
    bool cancelled = true;
    for (uint64_t turn = 0; cancelled; turn++) {
        struct piece p;
        piece_make(&p, &f, 0, (uint64_t[]){0, 0}, (uint64_t[]){24, 300});
        reader_open(&x, &f, &t);
        struct bwi_restore_call c = {.what = BWI_RESTORE_READ, .r = x.r, .slices = &p.slice, .slice_count = 1};
        bwi_restore_call_start(&c, w.loop, NULL);
        for (uint64_t i = 0; i < turn && c.task.running; i++) world_turn(&w);
        cancelled = c.task.running;
        bwi_task_cancel(&c.task);
        world_run(&w);
        if (c.task.error.status != 0) assert_int_equal(c.task.error.status, BW_E_CANCELLED);
        if (c.task.error.status == 0) assert_int_equal(piece_wrong(&p), 0);
        assert_int_equal(bwi_arena_used(w.arena), 0);
        assert_ok(reader_read(&x, &p.slice, 1), &x.error);
        reader_close(&x);
        bwi_free(p.memory);
    }
    world_close(&w);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_shapes_boxes_blobs_and_metadata_are_told),
        cmocka_unit_test(an_index_of_many_blocks_is_read_by_name_and_in_order),
        cmocka_unit_test(blobs_come_back_and_tell_their_length),
        cmocka_unit_test(what_is_expected_is_compared_strictly),
        cmocka_unit_test(slices_are_checked_before_anything_is_read),
        cmocka_unit_test(an_extent_that_several_slices_need_is_read_once),
        cmocka_unit_test(the_arena_is_the_bound_whatever_is_read),
        cmocka_unit_test(compressed_extents_and_packs_of_other_checkpoints_are_followed),
        cmocka_unit_test(local_damage_is_served_from_the_remote_tier_and_put_right),
        cmocka_unit_test(nothing_is_put_right_without_leave),
        cmocka_unit_test(damage_on_every_tier_is_named_and_marked),
        cmocka_unit_test(two_packs_swapped_are_both_found),
        cmocka_unit_test(another_content_under_the_same_id_is_never_read),
        cmocka_unit_test(an_io_error_is_no_damage),
        cmocka_unit_test(what_is_missing_is_damage_or_gone_as_the_history_says),
        cmocka_unit_test(a_part_that_no_box_holds_is_an_error),
        cmocka_unit_test(an_uncommitted_checkpoint_is_read_from_wherever_its_groups_are),
        cmocka_unit_test(groups_that_are_nowhere_yet_are_waited_for),
        cmocka_unit_test(waiting_ends_with_the_name_of_a_group),
        cmocka_unit_test(an_uncommitted_checkpoint_with_a_gap_or_of_another_world_is_refused),
        cmocka_unit_test(a_call_without_progress_ends_once_nothing_is_in_flight),
        cmocka_unit_test(a_call_can_be_cancelled_at_any_turn),
        cmocka_unit_test(any_operation_may_fail),
        cmocka_unit_test(memory_may_run_out_at_any_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
