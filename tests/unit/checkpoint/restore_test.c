/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a checkpoint: what is asked for, what is waited for, and
 * every way to fail. */
#include "base/error.h"
#include "checkpoint/policy_history.h"
#include "checkpoint/restore_private.h"
#include "reader.h"

/* The small fixture of `groups` ranks, saved and committed, and a reader of it. */
static void open_small(struct world *w, struct fixture *f, struct reader *x, uint64_t seed, uint32_t groups) {
    world_open(w, seed, 256 * KIB);
    fixture_small(f, w, groups);
    fixture_save(f);
    const struct bwi_restore_target t = reader_target(f, true);
    reader_open(x, f, &t);
}

static void close_both(struct world *w, struct reader *x) {
    reader_close(x);
    world_close(w);
}

/* ---- questions ---- */

static void names_shapes_boxes_blobs_and_metadata_are_told(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct bw_error err = BW_ERROR_INIT;
    open_small(&w, &f, &x, 5, 3);
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
    close_both(&w, &x);
}

static void an_index_of_many_blocks_is_read_by_name_and_in_order(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct bw_error err = BW_ERROR_INIT;
    world_open(&w, 4, 256 * KIB);
    fixture_long_names(&f, &w, 2);
    fixture_save(&f);
    const struct bwi_restore_target t = reader_target(&f, true);
    reader_open(&x, &f, &t);
    struct bw_tensor_info ti;
    assert_ok(reader_ask(&x, BWI_RESTORE_TENSOR, f.tensors[11].name, 0), &x.error);
    assert_ok(bwi_restore_get_tensor(x.r, f.tensors[11].name, &ti, &err), &err);
    assert_fails(bwi_restore_get_tensor(x.r, f.tensors[0].name, &ti, &err), BW_E_STATE, &err, NULL); /* another block */
    assert_ok(reader_ask(&x, BWI_RESTORE_ALL_TENSORS, NULL, 0), &x.error);
    err = (struct bw_error)BW_ERROR_INIT;
    for (uint64_t i = 0; i < FIXTURE_TENSORS; i++) {
        assert_ok(bwi_restore_get_tensor_at(x.r, i, &ti, &err), &err);
        assert_string_equal(ti.name, f.tensors[i].name);
    }
    assert_ok(reader_all(&x), &x.error);
    close_both(&w, &x);
}

static void blobs_come_back_and_tell_their_length(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    uint8_t buf[5000];
    open_small(&w, &f, &x, 1, 2);
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
    close_both(&w, &x);
}

static void what_is_expected_is_compared_strictly(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    open_small(&w, &f, &x, 1, 2);
    const uint64_t a[] = {24, 300}, b[] = {1000}, c[] = {1001};
    struct bw_expected e[] = {
        {"s", BW_F64, 0, NULL}, {"a", BW_F32, 2, a}, {"b", BW_I16, 1, b}, {"a.tied", BW_F32, 2, a}};
    struct bw_error err = BW_ERROR_INIT;
    assert_fails(bwi_restore_compare(x.r, e, 4, 0, &err), BW_E_STATE, &err, "its index has not been read yet");
    assert_ok(reader_ask(&x, BWI_RESTORE_ALL_TENSORS, NULL, 0), &x.error);
    err = (struct bw_error)BW_ERROR_INIT;
    assert_ok(bwi_restore_compare(x.r, e, 4, 0, &err), &err);
    (void)bwi_alloc_fail_at(1);
    const int rc = bwi_restore_compare(x.r, e, 4, 0, &err);
    (void)bwi_alloc_fail_at(0);
    assert_fails(rc, BW_E_NOMEM, &err, "expected tensors");
    bw_error_clear(&err);
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
    e[2].dtype = 99;
    err = (struct bw_error)BW_ERROR_INIT;
    assert_fails(bwi_restore_compare(x.r, e, 4, 0, &err), BW_E_INVALID, &err, "tensor \"bb\": unknown dtype 99");
    e[2] = (struct bw_expected){"bb", BW_I16, BW_DIMS_MAX + 1, b};
    err = (struct bw_error)BW_ERROR_INIT;
    assert_fails(bwi_restore_compare(x.r, e, 4, 0, &err), BW_E_LIMIT, &err, "tensor \"bb\": 17 dims, the limit is 16");
    e[2] = (struct bw_expected){"a", BW_I16, 1, b};
    err = (struct bw_error)BW_ERROR_INIT;
    assert_fails(bwi_restore_compare(x.r, e, 4, 0, &err), BW_E_INVALID, &err, "tensor \"a\": is there twice");
    err = (struct bw_error)BW_ERROR_INIT;
    assert_fails(bwi_restore_compare(x.r, e, 2, 6, &err), BW_E_INVALID, &err, "unknown flags 0x6");
    assert_fails(reader_ask(&x, BWI_RESTORE_TENSOR, NULL, 0), BW_E_INVALID, &x.error, "tensor: name is NULL");
    close_both(&w, &x);
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
    open_small(&w, &f, &x, 1, 2);
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
    close_both(&w, &x);
}

static void an_extent_that_several_slices_need_is_read_once(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct piece p[6];
    struct bw_slice s[6];
    open_small(&w, &f, &x, 1, 1);
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
    close_both(&w, &x);
}

static void the_arena_is_the_bound_whatever_is_read(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    world_open(&w, 9, 3 * 4 * KIB); /* three extents */
    fixture_small(&f, &w, 4);
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

/* An index may say so, though nobody can have saved it. */
static void a_slice_larger_than_an_address_space_is_refused(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    struct piece p;
    open_small(&w, &f, &x, 1, 2);
    assert_ok(reader_ask(&x, BWI_RESTORE_TENSOR, "a", 0), &x.error);
    piece_make(&p, &f, 0, (uint64_t[]){0, 0}, (uint64_t[]){24, 300});
    uint64_t *shape = (uint64_t *)(uintptr_t)bwi_restore_find_tensor(x.r, bwi_span_str("a"))->shape;
    shape[0] = UINT64_C(1) << 40;
    shape[1] = UINT64_C(1) << 21;
    p.slice.shape = p.slice.offset = p.slice.extent = NULL;
    expect_slice(&x, &p.slice, 1, BW_E_INVALID,
                 "slice of tensor \"a\": 9223372036854775808 bytes do not fit the address space");
    bwi_free(p.memory);
    close_both(&w, &x);
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
            fixture_small(&f, &w, 2);
            fixture_save_repacked(&f, (uint8_t)codec, foreign ? &other : NULL);
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
    fixture_small(&f, &w, 2);
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
    fixture_small(f, w, 3);
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
    close_both(&w, &x);
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
        fixture_small(&g, &other, 3);
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
    close_both(&w, &x);
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
    close_both(&w, &x);
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
    assert_non_null(strstr(x.error.message, "tensor \"a\": the box of rank 0"));
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
    open_small(&w, &f, &x, 0, 2);
    bwi_bucket_model(w.bucket[1])->latency_ns = 200 * BWI_NS_PER_S;
    const uint64_t start = w.env.now;
    assert_int_equal(reader_ask(&x, BWI_RESTORE_MANIFEST, NULL, 0), BW_E_TIMEOUT);
    assert_non_null(strstr(x.error.message, "no progress for 120000 ms"));
    assert_int_equal(w.env.now - start, 200 * BWI_NS_PER_S);        /* the read owns its buffer until then */
    bwi_bucket_model(w.bucket[1])->latency_ns = 100 * BWI_NS_PER_S; /* slow, but it gets on */
    assert_ok(reader_all(&x), &x.error);
    close_both(&w, &x);
}

static void a_call_can_be_cancelled_at_any_turn(void **state) {
    (void)state;
    struct world w;
    struct fixture f;
    struct reader x;
    world_open(&w, 11, 64 * KIB);
    fixture_small(&f, &w, 3);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_shapes_boxes_blobs_and_metadata_are_told),
        cmocka_unit_test(an_index_of_many_blocks_is_read_by_name_and_in_order),
        cmocka_unit_test(blobs_come_back_and_tell_their_length),
        cmocka_unit_test(what_is_expected_is_compared_strictly),
        cmocka_unit_test(slices_are_checked_before_anything_is_read),
        cmocka_unit_test(an_extent_that_several_slices_need_is_read_once),
        cmocka_unit_test(the_arena_is_the_bound_whatever_is_read),
        cmocka_unit_test(a_slice_larger_than_an_address_space_is_refused),
        cmocka_unit_test(compressed_extents_and_packs_of_other_checkpoints_are_followed),
        cmocka_unit_test(a_part_that_no_box_holds_is_an_error),
        cmocka_unit_test(an_uncommitted_checkpoint_is_read_from_wherever_its_groups_are),
        cmocka_unit_test(groups_that_are_nowhere_yet_are_waited_for),
        cmocka_unit_test(waiting_ends_with_the_name_of_a_group),
        cmocka_unit_test(an_uncommitted_checkpoint_with_a_gap_or_of_another_world_is_refused),
        cmocka_unit_test(a_call_without_progress_ends_once_nothing_is_in_flight),
        cmocka_unit_test(a_call_can_be_cancelled_at_any_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
