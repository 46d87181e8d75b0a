/* SPDX-License-Identifier: Apache-2.0 */
/* Indexes: building from layouts in any order, reading block by block, every rule of the reader, damage, and size. */
#include "codec_checks.h"
#include "examples.h"
#include "format/index.h"
#include "format/index_parts.h"
#include "format/limits.h"
#include <breakwater/tensor.h>

#define HEAD_BYTES 104u /* of the example; a reader has it from the manifest */

/* ---- small layouts that hold what a test wants ---- */

/* One rank, `count` tensors "t0000000", ...: F32 of shape {6}, of which this group holds {offset, 3}. */
struct group {
    uint32_t rank[1];
    uint64_t shape[1], offset[1], extent[1];
    char (*names)[16];
    struct bwi_tensor *tensors;
    struct bwi_box *boxes;
    struct bwi_layout layout;
};

static void make_group(struct group *g, uint32_t first, uint32_t count, uint64_t offset) {
    memset(g, 0, sizeof *g);
    g->shape[0] = 6, g->offset[0] = offset, g->extent[0] = 3;
    g->names = calloc(count, sizeof *g->names);
    g->tensors = calloc(count, sizeof *g->tensors);
    g->boxes = calloc(count, sizeof *g->boxes);
    for (uint32_t i = 0; i < count; i++) {
        (void)snprintf(g->names[i], sizeof g->names[i], "t%07u", first + i);
        g->tensors[i] = (struct bwi_tensor){bwi_span_str(g->names[i]), BW_F32, 1, g->shape};
        g->boxes[i] = (struct bwi_box){i, 0, BWI_NOT_TIED, g->offset, g->extent};
    }
    g->layout = (struct bwi_layout){g->rank, 1, g->tensors, count, g->boxes, count, NULL, 0, NULL};
}

static void drop_group(struct group *g) {
    free(g->boxes);
    free(g->tensors);
    free(g->names);
}

static struct bwi_index_builder *new_builder(void) {
    struct bwi_index_builder *b = NULL;
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_index_builder_new(&b, &err), &err);
    return b;
}

static void encode(struct bwi_index_builder *b, struct bwi_buf *out, struct bwi_index_info *info) {
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_index_builder_encode(b, out, info, &err), &err);
    assert_int_equal(out->len, info->bytes);
    const struct bwi_sha root = bwi_sha_of(bwi_span(out->ptr, info->head_bytes));
    assert_true(bwi_sha_eq(&root, &info->root));
}

/* ---- the whole object as a reader sees it ---- */

static int read_all(struct bwi_span in, size_t head_bytes, struct bw_error *err) {
    struct bwi_index_head h;
    int rc = bwi_index_head_decode(bwi_span(in.ptr, head_bytes), &h, err);
    if (rc < 0) return rc;
    if (h.bytes != in.len) rc = BW_E_CORRUPT;
    for (uint32_t i = 0; i < h.block_count && rc == 0; i++) {
        struct bwi_index_block k;
        rc = bwi_index_block_decode(bwi_span(in.ptr + h.blocks[i].offset, h.blocks[i].bytes), &h.blocks[i], &k, err);
        if (rc == 0) bwi_index_block_fini(&k);
    }
    bwi_index_head_fini(&h);
    return rc;
}

/* Root first, as whoever holds a manifest does. */
static int pass(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    const struct bwi_sha want = bwi_sha_of(bwi_span(EXAMPLE_INDEX, HEAD_BYTES));
    if (in.len < HEAD_BYTES) return bwi_index_head_decode(in, &(struct bwi_index_head){0}, err);
    const struct bwi_sha found = bwi_sha_of(bwi_span(in.ptr, HEAD_BYTES));
    if (!bwi_sha_eq(&want, &found) || in.len != sizeof EXAMPLE_INDEX) {
        (void)snprintf(err->message, sizeof err->message, "root");
        return err->status = BW_E_CORRUPT;
    }
    const int rc = read_all(in, HEAD_BYTES, err);
    if (rc == 0) bwi_buf_put(out, in.ptr, in.len);
    return rc;
}

/* The head alone, without its root: only its own rules are left. What is accepted is given back as it was. */
static int head_pass(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_index_head h;
    const int rc = bwi_index_head_decode(in, &h, err);
    if (rc < 0) return rc;
    bwi_index_head_fini(&h);
    bwi_index_head_fini(&h);
    bwi_buf_put(out, in.ptr, in.len);
    return 0;
}

/* A block with the hash that belongs to it: only its own rules are left. */
static int block_pass(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    const struct bwi_index_block_ref ref = {0, (uint32_t)in.len, 3, 0, bwi_sha_of(in), bwi_span_str("step")};
    struct bwi_index_block k;
    const int rc = bwi_index_block_decode(in, &ref, &k, err);
    if (rc < 0) return rc;
    bwi_index_block_fini(&k);
    bwi_index_block_fini(&k);
    bwi_buf_put(out, in.ptr, in.len);
    return 0;
}

static struct bwi_span example_head(void) {
    return bwi_span(EXAMPLE_INDEX, HEAD_BYTES);
}
static struct bwi_span example_block(void) {
    return bwi_span(EXAMPLE_INDEX + HEAD_BYTES, sizeof EXAMPLE_INDEX - HEAD_BYTES);
}

/* ---- the example ---- */

static void the_example_is_built_byte_for_byte(void **state) {
    (void)state;
    struct bwi_layout l;
    struct bwi_index_info info;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    struct bwi_index_builder *b = new_builder();
    assert_ok(bwi_layout_decode(EXAMPLE(LAYOUT), &l, &err), &err);
    assert_ok(bwi_index_builder_add(b, 1, &l, &err), &err);
    encode(b, &out, &info);
    assert_int_equal(out.len, sizeof EXAMPLE_INDEX);
    assert_memory_equal(out.ptr, EXAMPLE_INDEX, out.len);
    assert_int_equal(info.head_bytes, HEAD_BYTES);
    assert_int_equal(info.tensors, 3);
    assert_int_equal(info.boxes, 4);
    bwi_buf_fini(&out);
    bwi_index_builder_free(b);
    bwi_layout_fini(&l);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void the_example_is_read_field_by_field(void **state) {
    (void)state;
    struct bwi_index_head h;
    struct bwi_index_block k;
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_index_head_decode(example_head(), &h, &err), &err);
    assert_int_equal(h.block_count, 1);
    assert_int_equal(h.tensors, 3);
    assert_int_equal(h.boxes, 4);
    assert_int_equal(h.bytes, sizeof EXAMPLE_INDEX);
    assert_int_equal(h.blocks[0].offset, HEAD_BYTES);
    assert_int_equal(h.blocks[0].first_tensor, 0);
    assert_ok(bwi_index_block_decode(example_block(), &h.blocks[0], &k, &err), &err);
    assert_int_equal(k.tensor_count, 3);
    assert_true(bwi_span_eq(k.tensors[0].name, bwi_span_str("step")));
    assert_int_equal(k.tensors[0].dims, 0);
    assert_int_equal(k.tensors[0].box_count, 1);
    assert_int_equal(k.tensors[1].dtype, BW_F32);
    assert_int_equal(k.tensors[1].shape[0], 4);
    assert_int_equal(k.tensors[1].box_count, 2);
    assert_int_equal(k.tensors[1].boxes[1].group, 1);
    assert_int_equal(k.tensors[1].boxes[1].item, 2);
    assert_int_equal(k.tensors[1].boxes[1].offset[0], 2);
    assert_int_equal(k.tensors[1].boxes[1].extent[1], 2);
    assert_int_equal(k.tensors[2].boxes[0].item, 3); /* a tied box is there like any other */
    bwi_index_block_fini(&k);
    bwi_index_head_fini(&h);
}

/* ---- building ---- */

static void the_result_does_not_depend_on_the_order_of_groups(void **state) {
    (void)state;
    enum { GROUPS = 40 };
    struct group g[GROUPS];
    struct bwi_index_info info[2];
    struct bwi_buf out[2] = {{0}, {0}};
    struct bw_error err = BW_ERROR_INIT;
    uint64_t seed = test_seed(7);
    /* Overlapping ranges of names, so that some are everywhere and some in one group only. */
    for (uint32_t i = 0; i < GROUPS; i++) make_group(&g[i], (i * 37) % 100, 20 + i * 5, i % 2 * 3);
    for (int round = 0; round < 5; round++) {
        uint32_t order[GROUPS];
        struct bwi_index_builder *b = new_builder();
        for (uint32_t i = 0; i < GROUPS; i++) order[i] = i;
        for (uint32_t i = GROUPS - 1; i > 0 && round > 0; i--) {
            const uint32_t k = (uint32_t)(test_random(&seed) % (i + 1));
            const uint32_t was = order[i];
            order[i] = order[k], order[k] = was;
        }
        for (uint32_t i = 0; i < GROUPS; i++)
            assert_ok(bwi_index_builder_add(b, order[i], &g[order[i]].layout, &err), &err);
        bwi_buf_reset(&out[round > 0]);
        encode(b, &out[round > 0], &info[round > 0]);
        if (round > 0) {
            assert_int_equal(out[0].len, out[1].len);
            assert_memory_equal(out[0].ptr, out[1].ptr, out[0].len);
        }
        bwi_index_builder_free(b);
    }
    assert_ok(read_all(bwi_buf_span(&out[0]), info[0].head_bytes, &err), &err);
    for (uint32_t i = 0; i < GROUPS; i++) drop_group(&g[i]);
    bwi_buf_fini(&out[0]);
    bwi_buf_fini(&out[1]);
}

static void tensors_come_sorted_by_name_and_boxes_by_group_and_item(void **state) {
    (void)state;
    struct group a, c;
    struct bw_error err = BW_ERROR_INIT;
    const struct bwi_index_tensor *t = NULL;
    size_t count = 0;
    struct bwi_layout l;
    struct bwi_index_builder *b = new_builder();
    make_group(&a, 5, 3, 0);
    make_group(&c, 3, 4, 3);
    assert_ok(bwi_layout_decode(EXAMPLE(LAYOUT), &l, &err), &err);
    assert_ok(bwi_index_builder_add(b, 9, &a.layout, &err), &err);
    assert_ok(bwi_index_builder_add(b, 2, &c.layout, &err), &err);
    assert_ok(bwi_index_builder_tensors(b, &t, &count, &err), &err);
    assert_int_equal(count, 5);
    assert_true(bwi_span_eq(t[0].name, bwi_span_str("t0000003")));
    assert_true(bwi_span_eq(t[2].name, bwi_span_str("t0000005")));
    assert_int_equal(t[2].box_count, 2);
    assert_int_equal(t[2].boxes[0].group, 2);
    assert_int_equal(t[2].boxes[0].item, 2);
    assert_int_equal(t[2].boxes[0].offset[0], 3);
    assert_int_equal(t[2].boxes[1].group, 9);
    assert_int_equal(t[2].boxes[1].item, 0);
    assert_int_equal(t[4].box_count, 1);
    assert_ok(bwi_index_builder_tensors(b, &t, &count, &err), &err); /* asked again: nothing is made anew */
    /* More may be added after a look. */
    assert_ok(bwi_index_builder_add(b, 4, &l, &err), &err);
    assert_ok(bwi_index_builder_tensors(b, &t, &count, &err), &err);
    assert_int_equal(count, 8);
    assert_true(bwi_span_eq(t[0].name, bwi_span_str("step")));
    assert_int_equal(t[6].box_count, 2);
    assert_int_equal(t[6].boxes[0].item, 1);
    assert_int_equal(t[6].boxes[1].item, 2);
    bwi_index_builder_free(b);
    bwi_layout_fini(&l);
    drop_group(&a);
    drop_group(&c);
    bwi_index_head_fini(NULL);
    bwi_index_block_fini(NULL);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void a_tensor_of_another_dtype_or_shape_is_named_with_both_sides(void **state) {
    (void)state;
    struct group a, c;
    uint64_t wide[2] = {6, 1}, zero[2] = {0, 0};
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_index_builder *b = new_builder();
    make_group(&a, 0, 3, 0);
    make_group(&c, 0, 3, 3);
    a.rank[0] = 40, c.rank[0] = 70; /* people know ranks, not groups */
    c.tensors[1].dtype = BW_BF16;
    assert_ok(bwi_index_builder_add(b, 4, &a.layout, &err), &err);
    assert_fails(bwi_index_builder_add(b, 7, &c.layout, &err), BW_E_COVERAGE, &err,
                 "tensor \"t0000001\": rank 40 has F32 [6], rank 70 has BF16 [6]");
    /* Half of a group is no state to go on from. */
    const struct bwi_index_tensor *t = NULL;
    size_t count = 77;
    bw_error_clear(&err);
    assert_fails(bwi_index_builder_tensors(b, &t, &count, &err), BW_E_STATE, &err,
                 "an earlier group could not be added");
    assert_int_equal(count, 77);
    bw_error_clear(&err);
    assert_fails(bwi_index_builder_add(b, 8, &a.layout, &err), BW_E_STATE, &err, NULL);
    bwi_index_builder_free(b);
    b = new_builder();
    c.tensors[1] = (struct bwi_tensor){c.tensors[1].name, BW_F32, 2, wide};
    c.boxes[1].offset = zero, c.boxes[1].extent = wide;
    bw_error_clear(&err);
    assert_ok(bwi_index_builder_add(b, 7, &c.layout, &err), &err);
    assert_fails(bwi_index_builder_add(b, 4, &a.layout, &err), BW_E_COVERAGE, &err,
                 "tensor \"t0000001\": rank 70 has F32 [6, 1], rank 40 has F32 [6]");
    bwi_index_builder_free(b);
    b = new_builder();
    c.tensors[1] = a.tensors[1], wide[0] = 7;
    c.tensors[1].shape = wide;
    bw_error_clear(&err);
    assert_ok(bwi_index_builder_add(b, 4, &a.layout, &err), &err);
    assert_fails(bwi_index_builder_add(b, 7, &c.layout, &err), BW_E_COVERAGE, &err, "rank 70 has F32 [7]");
    bwi_index_builder_free(b);
    drop_group(&a);
    drop_group(&c);
}

static void a_long_name_and_a_long_shape_still_tell_both_sides(void **state) {
    (void)state;
    char name[8192];
    uint64_t huge[16], other[16], zero[16] = {0};
    struct group a, c;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_index_builder *b = new_builder();
    memset(name, 'n', sizeof name);
    for (int d = 0; d < 16; d++) huge[d] = other[d] = UINT64_MAX;
    huge[0] = other[0] = 0, other[1] = 1;
    make_group(&a, 0, 1, 0);
    make_group(&c, 0, 1, 0);
    c.rank[0] = 1;
    a.tensors[0] = (struct bwi_tensor){bwi_span(name, sizeof name), BW_U8, 16, huge};
    c.tensors[0] = (struct bwi_tensor){bwi_span(name, sizeof name), BW_F8_E4M3FNUZ, 16, other};
    a.boxes[0].offset = c.boxes[0].offset = a.boxes[0].extent = c.boxes[0].extent = zero;
    assert_ok(bwi_index_builder_add(b, 0, &a.layout, &err), &err);
    assert_fails(bwi_index_builder_add(b, 1, &c.layout, &err), BW_E_COVERAGE, &err,
                 "nnn...\": rank 0 has U8 [0, 18446744073709551615, ");
    assert_non_null(strstr(err.message, "...], rank 1 has F8_E4M3FNUZ [0, 1, 1844"));
    bwi_index_builder_free(b);
    drop_group(&a);
    drop_group(&c);
}

static void a_group_twice_or_above_the_limit_is_refused(void **state) {
    (void)state;
    struct group a;
    struct bw_error err = BW_ERROR_INIT;
    const struct bwi_index_tensor *t = NULL;
    size_t count = 0;
    struct bwi_index_builder *b = new_builder();
    make_group(&a, 0, 3, 0);
    assert_fails(bwi_index_builder_add(b, 999999, &a.layout, &err), BW_E_INVALID, &err,
                 "index: group 999999, the limit is 999998");
    bw_error_clear(&err);
    assert_ok(bwi_index_builder_add(b, 5, &a.layout, &err), &err);
    assert_ok(bwi_index_builder_add(b, 3, &a.layout, &err), &err);
    assert_ok(bwi_index_builder_add(b, 5, &a.layout, &err), &err);
    assert_fails(bwi_index_builder_tensors(b, &t, &count, &err), BW_E_INVALID, &err, "index: group 5 was added twice");
    bwi_index_builder_free(b);
    bwi_index_builder_free(NULL);
    drop_group(&a);
}

/* Their numbers alone: nobody has memory for so many. */
static void an_index_that_would_be_too_large_is_refused_before_it_is_written(void **state) {
    static const struct {
        struct bwi_index_tensor tensor;
        size_t count;
        const char *says;
    } cases[] = {
        {{.dims = 16, .box_count = 16268815}, 1, "tensor \"wide\": its 16268815 boxes take more than 4 GiB"},
        {{.dims = 16, .box_count = 16268814}, 4, NULL},
        {{.dims = 16, .box_count = 16268814}, 5, "index: 21474835528 bytes, the limit is 17179869184"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bwi_index_tensor tensors[5];
        struct bwi_index_plan p = {.blocks = 77};
        struct bw_error err = BW_ERROR_INIT;
        for (size_t k = 0; k < 5; k++) {
            tensors[k] = cases[i].tensor;
            tensors[k].name = bwi_span_str("wide");
        }
        const int rc = bwi_index_plan(tensors, cases[i].count, &p, &err);
        if (cases[i].says == NULL)
            assert_ok(rc, &err);
        else
            assert_fails(rc, BW_E_LIMIT, &err, cases[i].says);
        assert_int_equal(p.blocks, rc == 0 ? cases[i].count : 77);
    }
}

static void more_boxes_than_an_index_can_hold_are_refused_before_they_are_counted(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_index_builder *b = new_builder();
    struct group g;
    struct bwi_layout many;
    make_group(&g, 0, 3, 0);
    many = g.layout;
    many.box_count = (uint32_t)BWI_INDEX_BOXES_MAX - 2;
    assert_ok(bwi_index_builder_add(b, 0, &g.layout, &err), &err);
    assert_fails(bwi_index_builder_add(b, 1, &many, &err), BW_E_LIMIT, &err,
                 "index: 3 boxes and 2147483646 more, the limit is 2147483648");
    bw_error_clear(&err);
    assert_fails(bwi_index_builder_add(b, 1, &g.layout, &err), BW_E_STATE, &err, "an earlier group");
    bwi_index_builder_free(b);
    drop_group(&g);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void an_index_of_nothing_is_a_head_without_blocks(void **state) {
    (void)state;
    struct group a;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_index_info info;
    struct bwi_buf out = {0};
    struct bwi_index_head h;
    uint32_t block = 0;
    struct bwi_index_builder *b = new_builder();
    make_group(&a, 0, 1, 0);
    a.layout.tensor_count = a.layout.box_count = 0;
    encode(b, &out, &info);
    assert_int_equal(out.len, 48);
    bwi_buf_reset(&out);
    assert_ok(bwi_index_builder_add(b, 0, &a.layout, &err), &err);
    encode(b, &out, &info);
    assert_int_equal(info.bytes, 48);
    assert_int_equal(info.tensors, 0);
    assert_ok(bwi_index_head_decode(bwi_buf_span(&out), &h, &err), &err);
    assert_int_equal(h.block_count, 0);
    assert_false(bwi_index_head_find(&h, bwi_span_str("x"), &block));
    bwi_index_head_fini(&h);
    bwi_buf_fini(&out);
    bwi_index_builder_free(b);
    drop_group(&a);
}

static void blocks_keep_to_their_size_and_every_name_is_found_in_its_own(void **state) {
    (void)state;
    enum { MANY = 5000 };
    struct group a, c;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_index_info info;
    struct bwi_buf out = {0};
    struct bwi_index_head h;
    struct bwi_index_builder *b = new_builder();
    make_group(&a, 0, MANY, 0);
    make_group(&c, 0, MANY, 3);
    assert_ok(bwi_index_builder_add(b, 0, &a.layout, &err), &err);
    assert_ok(bwi_index_builder_add(b, 1, &c.layout, &err), &err);
    bwi_buf_str(&out, "junk before"); /* it is appended */
    assert_ok(bwi_index_builder_encode(b, &out, &info, &err), &err);
    const struct bwi_span whole = bwi_span(out.ptr + 11, out.len - 11);
    assert_ok(read_all(whole, info.head_bytes, &err), &err);
    assert_ok(bwi_index_head_decode(bwi_span(whole.ptr, info.head_bytes), &h, &err), &err);
    assert_true(h.block_count > 5);
    uint32_t next = 0;
    for (uint32_t i = 0; i < h.block_count; i++) {
        assert_true(h.blocks[i].bytes <= BWI_INDEX_BLOCK_BYTES);
        assert_int_equal(h.blocks[i].first_tensor, next);
        if (i + 1 < h.block_count) assert_true(h.blocks[i].bytes > BWI_INDEX_BLOCK_BYTES - 200);
        for (uint32_t k = 0; k < h.blocks[i].tensors; k++) {
            uint32_t block = UINT32_MAX;
            assert_true(bwi_index_head_find(&h, bwi_span_str(a.names[next++]), &block));
            assert_int_equal(block, i);
        }
    }
    assert_int_equal(next, MANY);
    uint32_t block = 77;
    assert_false(bwi_index_head_find(&h, bwi_span_str("a"), &block));
    assert_int_equal(block, 77);
    assert_true(bwi_index_head_find(&h, bwi_span_str("z"), &block));
    assert_int_equal(block, h.block_count - 1);
    bwi_index_head_fini(&h);
    bwi_buf_fini(&out);
    bwi_index_builder_free(b);
    drop_group(&a);
    drop_group(&c);
}

static void a_tensor_with_more_boxes_than_a_block_takes_gets_one_of_its_own(void **state) {
    (void)state;
    enum { GROUPS = 4000 }; /* 24 bytes a box */
    struct group a, all;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_index_info info;
    struct bwi_buf out = {0};
    struct bwi_index_head h;
    struct bwi_index_block k;
    struct bwi_index_builder *b = new_builder();
    make_group(&all, 10, 1, 0);
    make_group(&a, 0, 30, 0);
    for (uint32_t i = 1; i < GROUPS; i++) assert_ok(bwi_index_builder_add(b, i, &all.layout, &err), &err);
    assert_ok(bwi_index_builder_add(b, 0, &a.layout, &err), &err);
    encode(b, &out, &info);
    assert_ok(bwi_index_head_decode(bwi_span(out.ptr, info.head_bytes), &h, &err), &err);
    assert_int_equal(h.block_count, 3);
    assert_int_equal(h.blocks[1].tensors, 1);
    assert_true(h.blocks[1].bytes > BWI_INDEX_BLOCK_BYTES);
    assert_ok(bwi_index_block_decode(bwi_span(out.ptr + h.blocks[1].offset, h.blocks[1].bytes), &h.blocks[1], &k, &err),
              &err);
    assert_int_equal(k.tensors[0].box_count, GROUPS);
    for (uint32_t i = 0; i < GROUPS; i++) assert_int_equal(k.tensors[0].boxes[i].group, i);
    bwi_index_block_fini(&k);
    bwi_index_head_fini(&h);
    bwi_buf_fini(&out);
    bwi_index_builder_free(b);
    drop_group(&a);
    drop_group(&all);
}

/* ---- reading ---- */

static void every_rule_of_the_head_holds(void **state) {
    (void)state;
    static const struct check_patch patches[] = {
        {16, 4, "\0\0\0\0", BW_E_FORMAT, "index: its blocks have 0 tensors, expected 3"},
        {16, 4, "\2\0\0\0", BW_E_FORMAT, "index: cut short: its records take at least 106 bytes, 56 are left"},
        {16, 4, "\xff\xff\xff\xff", BW_E_FORMAT, "index: cut short"},
        {20, 4, "\1\0\0\0", BW_E_FORMAT, "index: padding is not zero"},
        {24, 8, "\2\0\0\0\0\0\0\0", BW_E_FORMAT, "index: its blocks have 3 tensors, expected 2"},
        {32, 8, "\2\0\0\0\0\0\0\0", BW_E_FORMAT, "index: 2 boxes of 3 tensors: each has one at least"},
        {40, 8, "\x38\1\0\0\0\0\0\0", BW_E_FORMAT, "index: its blocks end at 311, expected 312"},
        {40, 8, "\1\0\0\0\4\0\0\0", BW_E_FORMAT, "17179869185 bytes, the limit is 17179869184"},
        {48, 8, "\x69\0\0\0\0\0\0\0", BW_E_FORMAT, "index: block 0 is at 105, expected 104"},
        {48, 8, "\0\0\0\0\0\0\0\0", BW_E_FORMAT, "index: block 0 is at 0, expected 104"},
        {56, 4, "\xce\0\0\0", BW_E_FORMAT, "index: its blocks end at 310, expected 311"},
        {56, 4, "\x3e\0\0\0", BW_E_FORMAT, "index: block 0: 3 tensors in 62 bytes cannot be"},
        {60, 4, "\0\0\0\0", BW_E_FORMAT, "index: block 0: 0 tensors in 207 bytes cannot be"},
        {60, 4, "\xff\xff\xff\xff", BW_E_FORMAT, "4294967295 tensors in 207 bytes cannot be"},
        {96, 4, "\5\0\0\0", BW_E_FORMAT, "index: cut short"},
        {96, 4, "\0\0\0\0", BW_E_FORMAT, "index: empty name of a tensor"},
        {96, 4, "\3\0\0\0", BW_E_FORMAT, "1 bytes after its end, expected none"},
        {100, 1, "\xff", BW_E_FORMAT, "name is not UTF-8 without NUL"},
    };
    check_patches(head_pass, example_head(), patches, sizeof patches / sizeof patches[0]);
}

static void first_names_of_blocks_ascend(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf b = {0};
    struct bwi_index_head h;
    bwi_buf_put(&b, EXAMPLE_INDEX, HEAD_BYTES);
    bwi_buf_put(&b, EXAMPLE_INDEX + 48, 56); /* the same block again */
    bwi_put_le32(b.ptr + 16, 2);
    bwi_put_le64(b.ptr + 24, 6);
    bwi_put_le64(b.ptr + 32, 8);
    bwi_put_le64(b.ptr + 40, 160 + 2 * 207);
    bwi_put_le64(b.ptr + 48, 160);
    bwi_put_le64(b.ptr + 104, 160 + 207);
    assert_fails(bwi_index_head_decode(bwi_buf_span(&b), &h, &err), BW_E_FORMAT, &err,
                 "index: two tensors are named \"step\"");
    b.ptr[b.len - 1] = 'a';
    bw_error_clear(&err);
    assert_fails(bwi_index_head_decode(bwi_buf_span(&b), &h, &err), BW_E_FORMAT, &err,
                 "index: tensors are not sorted: \"stea\" comes after \"step\"");
    b.ptr[b.len - 1] = 'q';
    bw_error_clear(&err);
    assert_ok(bwi_index_head_decode(bwi_buf_span(&b), &h, &err), &err);
    assert_int_equal(h.blocks[1].first_tensor, 3);
    bwi_index_head_fini(&h);
    bwi_buf_fini(&b);
}

static void every_rule_of_a_block_holds(void **state) {
    (void)state;
    enum { AT = HEAD_BYTES };
    static const struct check_patch patches[] = {
        {104 - AT, 4, "\xff\xff\xff\xff", BW_E_FORMAT, "index: cut short"},
        {104 - AT, 4, "\0\0\0\0", BW_E_FORMAT, "index: empty name of a tensor"},
        {108 - AT, 1, "\0", BW_E_FORMAT, "index: tensor \"step\": unknown dtype 0"},
        {109 - AT, 1, "\x11", BW_E_FORMAT, "index: tensor \"step\": 17 dimensions, the limit is 16"},
        {110 - AT, 1, "\1", BW_E_FORMAT, "index: padding of a tensor is not zero"},
        {112 - AT, 4, "\0\0\0\0", BW_E_FORMAT, "index: tensor \"step\" has no box"},
        {112 - AT, 4, "\xff\xff\xff\xff", BW_E_FORMAT,
         "index: cut short: its records take at least 34359738360 bytes, 191 are left"},
        {116 - AT, 4, "stop", BW_E_FORMAT, "index: block of \"step\" begins with another tensor, \"stop\""},
        {116 - AT, 4, "x\0yz", BW_E_FORMAT, "name is not UTF-8 without NUL"},
        {116 - AT, 4, "zzzz", BW_E_FORMAT, "index: tensors are not sorted: \"w\" comes after \"zzzz\""},
        {120 - AT, 4, "\x3f\x42\x0f\0", BW_E_FORMAT, "index: tensor \"step\": item 0 of group 999999 cannot be"},
        {124 - AT, 4, "\0\0\0\1", BW_E_FORMAT, "index: tensor \"step\": item 16777216 of group 1 cannot be"},
        {148 - AT, 1, "\x40", BW_E_FORMAT,
         "index: tensor \"w\": bytes of F32 [4611686018427387908, 2] do not fit 64 bits"},
        {165 - AT, 1, "\3", BW_E_FORMAT,
         "index: tensor \"w\": box leaves the shape in dimension 0: offset 3, extent 2, size 4"},
        {201 - AT, 4, "\1\0\0\0", BW_E_FORMAT, "index: tensor \"w\": boxes do not ascend at item 1 of group 1"},
        {197 - AT, 4, "\0\0\0\0", BW_E_FORMAT, "index: tensor \"w\": boxes do not ascend at item 2 of group 0"},
        {245 - AT, 4, "\2\0\0\0", BW_E_FORMAT, "index: cut short"},
    };
    check_patches(block_pass, example_block(), patches, sizeof patches / sizeof patches[0]);
}

static void nothing_follows_the_last_tensor_of_a_block(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf b = {0};
    struct bwi_buf out = {0};
    bwi_buf_put(&b, example_block().ptr, example_block().len);
    bwi_buf_u8(&b, 0);
    assert_fails(block_pass(bwi_buf_span(&b), &out, &err), BW_E_FORMAT, &err,
                 "index: 1 bytes after its end, expected none");
    bwi_buf_fini(&b);
    bwi_buf_fini(&out);
}

static void a_block_is_checked_against_its_hash_and_length(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_index_head h;
    struct bwi_index_block k;
    assert_ok(bwi_index_head_decode(example_head(), &h, &err), &err);
    const struct bwi_span block = example_block();
    assert_fails(bwi_index_block_decode(bwi_span(block.ptr, block.len - 1), &h.blocks[0], &k, &err), BW_E_CORRUPT, &err,
                 "index: block of \"step\": 206 bytes, expected 207");
    h.blocks[0].sha.b[31] ^= 1;
    bw_error_clear(&err);
    assert_fails(bwi_index_block_decode(block, &h.blocks[0], &k, &err), BW_E_CORRUPT, &err,
                 "index: block of \"step\": its hash is not the one in the head");
    bwi_index_head_fini(&h);
}

static void a_newer_version_is_refused_by_name_and_a_newer_minor_one_is_read(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_index_head h;
    uint8_t p[HEAD_BYTES + 3] = {0};
    memcpy(p, EXAMPLE_INDEX, HEAD_BYTES);
    memcpy(p + HEAD_BYTES, "new", 3);
    bwi_put_le64(p + 40, sizeof EXAMPLE_INDEX + 3); /* blocks begin behind the longer head */
    bwi_put_le64(p + 48, HEAD_BYTES + 3);
    assert_fails(bwi_index_head_decode(bwi_span(p, sizeof p), &h, &err), BW_E_FORMAT, &err, "3 bytes after its end");
    p[10] = 1;
    bw_error_clear(&err);
    assert_ok(bwi_index_head_decode(bwi_span(p, sizeof p), &h, &err), &err);
    bwi_index_head_fini(&h);
    p[9] = 1;
    assert_fails(bwi_index_head_decode(bwi_span(p, sizeof p), &h, &err), BW_E_VERSION, &err,
                 "index: version 257.1 is newer");
    p[9] = 0, p[12] = 1;
    bw_error_clear(&err);
    assert_fails(bwi_index_head_decode(bwi_span(p, sizeof p), &h, &err), BW_E_VERSION, &err, "index: flags 0x00000001");
    p[7] = 'X';
    bw_error_clear(&err);
    assert_fails(bwi_index_head_decode(bwi_span(p, sizeof p), &h, &err), BW_E_FORMAT, &err,
                 "index: expected magic \"BWINDEX");
}

static void no_prefix_is_accepted(void **state) {
    (void)state;
    check_every_prefix(pass, EXAMPLE(INDEX));
    check_every_prefix(head_pass, example_head());
    check_every_prefix(block_pass, example_block());
}

static void no_changed_bit_is_missed_and_none_leads_to_a_crash(void **state) {
    (void)state;
    check_every_bit(pass, EXAMPLE(INDEX), true);
    check_every_bit(head_pass, example_head(), false);
    check_every_bit(block_pass, example_block(), false);
    check_random_damage(head_pass, example_head(), 20000);
    check_random_damage(block_pass, example_block(), 20000);
}

/* All of building and reading in one. */
static int build_and_read(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct group a, c;
    struct bwi_index_builder *b = NULL;
    struct bwi_index_info info = {0};
    (void)in;
    make_group(&a, 0, 40, 0);
    make_group(&c, 20, 40, 3);
    int rc = bwi_index_builder_new(&b, err);
    if (rc == 0) rc = bwi_index_builder_add(b, 1, &a.layout, err);
    if (rc == 0) rc = bwi_index_builder_add(b, 0, &c.layout, err);
    if (rc == 0) rc = bwi_index_builder_encode(b, out, &info, err);
    if (rc == 0) rc = read_all(bwi_buf_span(out), info.head_bytes, err);
    bwi_index_builder_free(b);
    drop_group(&a);
    drop_group(&c);
    return rc;
}

static void out_of_memory_leaves_nothing_behind(void **state) {
    (void)state;
    check_out_of_memory(build_and_read, BWI_SPAN_NONE);
}

/* ---- size ---- */

static void a_hundred_thousand_tensors_make_a_round_trip(void **state) {
    (void)state;
    enum { MANY = 100000 };
    struct group a, c;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_index_info info;
    struct bwi_buf out = {0};
    struct bwi_index_head h;
    struct bwi_index_builder *b = new_builder();
    make_group(&a, 0, MANY, 0);
    make_group(&c, 0, MANY, 3);
    assert_ok(bwi_index_builder_add(b, 1, &c.layout, &err), &err);
    assert_ok(bwi_index_builder_add(b, 0, &a.layout, &err), &err);
    encode(b, &out, &info);
    assert_int_equal(info.tensors, MANY);
    assert_int_equal(info.boxes, 2 * MANY);
    assert_ok(bwi_index_head_decode(bwi_span(out.ptr, info.head_bytes), &h, &err), &err);
    uint32_t at = 0;
    for (uint32_t i = 0; i < h.block_count; i++) {
        struct bwi_index_block k;
        assert_ok(
            bwi_index_block_decode(bwi_span(out.ptr + h.blocks[i].offset, h.blocks[i].bytes), &h.blocks[i], &k, &err),
            &err);
        for (uint32_t t = 0; t < k.tensor_count; t++, at++) {
            assert_true(bwi_span_eq(k.tensors[t].name, bwi_span_str(a.names[at])));
            assert_int_equal(k.tensors[t].box_count, 2);
            assert_int_equal(k.tensors[t].boxes[1].group, 1);
            assert_int_equal(k.tensors[t].boxes[1].item, at);
            assert_int_equal(k.tensors[t].boxes[1].offset[0], 3);
        }
        bwi_index_block_fini(&k);
    }
    assert_int_equal(at, MANY);
    bwi_index_head_fini(&h);
    bwi_buf_fini(&out);
    bwi_index_builder_free(b);
    drop_group(&a);
    drop_group(&c);
}

static void two_thousand_groups_of_a_thousand_tensors_are_joined(void **state) {
    (void)state;
    struct group a;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_index_info info;
    struct bwi_buf out = {0};
    struct bwi_index_builder *b = new_builder();
    make_group(&a, 0, 1000, 0);
    for (uint32_t i = 0; i < 2000; i++) assert_ok(bwi_index_builder_add(b, (i * 7) % 2000, &a.layout, &err), &err);
    encode(b, &out, &info);
    assert_int_equal(info.tensors, 1000);
    assert_int_equal(info.boxes, 2000000);
    bwi_buf_fini(&out);
    bwi_index_builder_free(b);
    drop_group(&a);
    assert_int_equal(bwi_alloc_live(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_is_built_byte_for_byte),
        cmocka_unit_test(the_example_is_read_field_by_field),
        cmocka_unit_test(the_result_does_not_depend_on_the_order_of_groups),
        cmocka_unit_test(tensors_come_sorted_by_name_and_boxes_by_group_and_item),
        cmocka_unit_test(a_tensor_of_another_dtype_or_shape_is_named_with_both_sides),
        cmocka_unit_test(a_long_name_and_a_long_shape_still_tell_both_sides),
        cmocka_unit_test(a_group_twice_or_above_the_limit_is_refused),
        cmocka_unit_test(an_index_that_would_be_too_large_is_refused_before_it_is_written),
        cmocka_unit_test(more_boxes_than_an_index_can_hold_are_refused_before_they_are_counted),
        cmocka_unit_test(an_index_of_nothing_is_a_head_without_blocks),
        cmocka_unit_test(blocks_keep_to_their_size_and_every_name_is_found_in_its_own),
        cmocka_unit_test(a_tensor_with_more_boxes_than_a_block_takes_gets_one_of_its_own),
        cmocka_unit_test(every_rule_of_the_head_holds),
        cmocka_unit_test(first_names_of_blocks_ascend),
        cmocka_unit_test(every_rule_of_a_block_holds),
        cmocka_unit_test(nothing_follows_the_last_tensor_of_a_block),
        cmocka_unit_test(a_block_is_checked_against_its_hash_and_length),
        cmocka_unit_test(a_newer_version_is_refused_by_name_and_a_newer_minor_one_is_read),
        cmocka_unit_test(no_prefix_is_accepted),
        cmocka_unit_test(no_changed_bit_is_missed_and_none_leads_to_a_crash),
        cmocka_unit_test(out_of_memory_leaves_nothing_behind),
        cmocka_unit_test(a_hundred_thousand_tensors_make_a_round_trip),
        cmocka_unit_test(two_thousand_groups_of_a_thousand_tensors_are_joined),
    };
    return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
