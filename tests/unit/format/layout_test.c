/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts: round trips, every rule in both directions, damage, and size. */
#include "codec_checks.h"
#include "examples.h"
#include "format/head.h"
#include "format/layout.h"
#include <breakwater/tensor.h>

/* The layout of EXAMPLE_layout, by hand. Each test gets its own copy and may break it. */
struct sample {
    uint32_t ranks[2];
    struct bwi_tensor tensors[3];
    struct bwi_box boxes[4];
    struct bwi_blob blobs[2];
    uint64_t zero[16], wide[2], square[2], lower[2];
    char name[BWI_TENSOR_NAME_MAX + 2];
    struct bwi_layout layout;
};

static void make(struct sample *s) {
    memset(s, 0, sizeof *s);
    s->ranks[0] = 2, s->ranks[1] = 3;
    s->wide[0] = 4, s->wide[1] = 2;
    s->square[0] = 2, s->square[1] = 2;
    s->lower[0] = 2;
    s->tensors[0] = (struct bwi_tensor){bwi_span_str("step"), BW_I64, 0, s->zero};
    s->tensors[1] = (struct bwi_tensor){bwi_span_str("w"), BW_F32, 2, s->wide};
    s->tensors[2] = (struct bwi_tensor){bwi_span_str("w.tied"), BW_F32, 2, s->square};
    s->boxes[0] = (struct bwi_box){0, 2, BWI_NOT_TIED, s->zero, s->zero};
    s->boxes[1] = (struct bwi_box){1, 2, BWI_NOT_TIED, s->zero, s->square};
    s->boxes[2] = (struct bwi_box){1, 3, BWI_NOT_TIED, s->lower, s->square};
    s->boxes[3] = (struct bwi_box){2, 3, 2, s->zero, s->square};
    s->blobs[0] = (struct bwi_blob){2, bwi_span_str("rng")};
    s->blobs[1] = (struct bwi_blob){3, bwi_span_str("rng")};
    s->layout = (struct bwi_layout){s->ranks, 2, s->tensors, 3, s->boxes, 4, s->blobs, 1, NULL};
}

static int pass(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_layout l = {0};
    int rc = bwi_layout_decode(in, &l, err);
    if (rc == 0) rc = bwi_layout_encode(&l, out, err);
    bwi_layout_fini(&l);
    bwi_layout_fini(&l);
    return rc;
}

static void assert_encodes(struct sample *s) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    assert_ok(bwi_layout_encode(&s->layout, &out, &err), &err);
    check_same_bytes(pass, bwi_buf_span(&out));
    bwi_buf_fini(&out);
}

static void assert_refused(struct sample *s, int status, const char *message) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    assert_fails(bwi_layout_encode(&s->layout, &out, &err), status, &err, message);
    assert_int_equal(out.len, 0);
    bwi_buf_fini(&out);
}

static void the_example_is_written_byte_for_byte(void **state) {
    (void)state;
    struct sample s;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    make(&s);
    assert_ok(bwi_layout_encode(&s.layout, &out, &err), &err);
    assert_int_equal(out.len, sizeof EXAMPLE_LAYOUT);
    assert_memory_equal(out.ptr, EXAMPLE_LAYOUT, out.len);
    bwi_buf_fini(&out);
}

static void the_example_is_read_field_by_field(void **state) {
    (void)state;
    struct bwi_layout l;
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_layout_decode(EXAMPLE(LAYOUT), &l, &err), &err);
    assert_int_equal(l.rank_count, 2);
    assert_int_equal(l.ranks[1], 3);
    assert_int_equal(l.tensor_count, 3);
    assert_true(bwi_span_eq(l.tensors[2].name, bwi_span_str("w.tied")));
    assert_int_equal(l.tensors[0].dtype, BW_I64);
    assert_int_equal(l.tensors[0].dims, 0);
    assert_int_equal(l.tensors[1].shape[0], 4);
    assert_int_equal(l.box_count, 4);
    assert_int_equal(l.boxes[2].offset[0], 2);
    assert_int_equal(l.boxes[2].extent[1], 2);
    assert_int_equal(l.boxes[0].tied, BWI_NOT_TIED);
    assert_int_equal(l.boxes[3].tied, 2);
    assert_int_equal(l.blob_count, 1);
    assert_true(bwi_span_eq(l.blobs[0].name, bwi_span_str("rng")));
    assert_int_equal(bwi_layout_items(&l), 5);
    assert_int_equal(bwi_box_bytes(&l, 0), 8); /* no dimensions: one element */
    assert_int_equal(bwi_box_bytes(&l, 1), 16);
    bwi_layout_fini(&l);
}

static void tensors_boxes_and_blobs_are_found_or_not(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.layout.blob_count = 2;
    uint32_t at = 99;
    assert_true(bwi_layout_find(&s.layout, bwi_span_str("w"), &at));
    assert_int_equal(at, 1);
    assert_true(bwi_layout_find_box(&s.layout, 1, 3, &at));
    assert_int_equal(at, 2);
    assert_true(bwi_layout_find_blob(&s.layout, 3, bwi_span_str("rng"), &at));
    assert_int_equal(at, 1);
    at = 99;
    assert_false(bwi_layout_find(&s.layout, bwi_span_str("v"), &at));
    assert_false(bwi_layout_find(&s.layout, bwi_span_str("w."), &at));
    assert_false(bwi_layout_find(&s.layout, bwi_span_str("x"), &at));
    assert_false(bwi_layout_find_box(&s.layout, 2, 2, &at));
    assert_false(bwi_layout_find_blob(&s.layout, 2, bwi_span_str("rnh"), &at));
    assert_int_equal(at, 99);
}

static void a_layout_without_tensors_and_one_with_only_a_blob_are_sound(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.layout.tensor_count = s.layout.box_count = 0;
    assert_encodes(&s);
    s.layout.blob_count = 0;
    assert_encodes(&s);
    s.layout = (struct bwi_layout){.ranks = s.ranks, .rank_count = 1};
    assert_encodes(&s);
}

static void empty_boxes_and_shapes_with_a_zero_are_sound(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    uint64_t none[2] = {0, 2};
    uint64_t end[2] = {4, 0};
    s.boxes[2].extent = none;
    s.boxes[2].offset = end; /* an empty box may begin at the end */
    s.boxes[3].tied = BWI_NOT_TIED;
    assert_encodes(&s);
    assert_int_equal(bwi_box_bytes(&s.layout, 2), 0);
    uint64_t shape[3] = {UINT64_MAX / 4, 0, 1};
    make(&s);
    s.tensors[2] = (struct bwi_tensor){bwi_span_str("x"), BW_F32, 3, shape};
    s.boxes[3] = (struct bwi_box){2, 3, BWI_NOT_TIED, s.zero, shape};
    assert_encodes(&s);
}

static void a_tensor_may_have_sixteen_dimensions_and_2_to_the_64_less_4_bytes(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    uint64_t shape[16];
    for (int d = 0; d < 16; d++) shape[d] = 1;
    shape[3] = UINT64_MAX / 4;
    s.tensors[2] = (struct bwi_tensor){bwi_span_str("x"), BW_F32, 16, shape};
    s.boxes[3] = (struct bwi_box){2, 3, BWI_NOT_TIED, s.zero, shape};
    assert_encodes(&s);
    assert_true(bwi_box_bytes(&s.layout, 3) == UINT64_MAX / 4 * 4);
    shape[3]++;
    assert_refused(&s, BW_E_INVALID, "layout: tensor \"x\": bytes of F32 [1, 1, 1, 4611686018427387904");
}

static void any_utf8_name_up_to_the_limit_is_kept(void **state) {
    (void)state;
    static const char *const names[] = {
        "../../etc/passwd", "/",    ".hidden",           "a b|c\n\t", "\xf0\x9f\x8c\x8a",
        "__metadata__",     "bw:0", "\xc3\xa9t\xc3\xa9", "\x01"};
    struct sample s;
    make(&s);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        s.blobs[0].name = bwi_span_str(names[i]);
        assert_encodes(&s);
    }
    memset(s.name, 'n', sizeof s.name);
    s.blobs[0].name = bwi_span(s.name, BWI_TENSOR_NAME_MAX);
    assert_encodes(&s);
}

/* ---- what an encoder refuses ---- */

static void names_that_are_empty_too_long_or_not_utf8_are_refused(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    memset(s.name, 'w', sizeof s.name);
    s.tensors[2].name = bwi_span(s.name, BWI_TENSOR_NAME_MAX + 1);
    assert_refused(&s, BW_E_LIMIT, "name of 8193 bytes, the limit is 8192");
    s.tensors[2].name = bwi_span_str("w\xff");
    assert_refused(&s, BW_E_INVALID, "tensor \"w?\": name is not UTF-8 without NUL");
    s.tensors[2].name = bwi_span("w\0w", 3);
    assert_refused(&s, BW_E_INVALID, "name is not UTF-8 without NUL");
    s.tensors[0].name = BWI_SPAN_NONE;
    assert_refused(&s, BW_E_INVALID, "layout: empty name of a tensor");
    make(&s);
    s.blobs[0].name = BWI_SPAN_NONE;
    assert_refused(&s, BW_E_INVALID, "layout: empty name of a blob");
}

static void tensors_must_be_sorted_and_unique(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.tensors[2].name = bwi_span_str("w");
    assert_refused(&s, BW_E_INVALID, "layout: two tensors are named \"w\"");
    s.tensors[2].name = bwi_span_str("v");
    assert_refused(&s, BW_E_INVALID, "layout: tensors are not sorted: \"v\" comes after \"w\"");
}

static void unknown_dtypes_and_too_many_dimensions_are_refused(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.tensors[1].dtype = 0;
    assert_refused(&s, BW_E_INVALID, "tensor \"w\": unknown dtype 0");
    s.tensors[1].dtype = 21;
    assert_refused(&s, BW_E_INVALID, "tensor \"w\": unknown dtype 21");
    make(&s);
    s.tensors[0].dims = 17;
    assert_refused(&s, BW_E_LIMIT, "tensor \"step\": 17 dimensions, the limit is 16");
}

static void boxes_outside_of_their_shape_are_refused(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.lower[0] = 3;
    assert_refused(&s, BW_E_INVALID, "tensor \"w\": box leaves the shape in dimension 0: offset 3, extent 2, size 4");
    s.lower[0] = UINT64_MAX;
    assert_refused(&s, BW_E_INVALID, "offset 18446744073709551615, extent 2, size 4");
    make(&s);
    s.lower[1] = 1;
    assert_refused(&s, BW_E_INVALID, "in dimension 1: offset 1, extent 2, size 2");
    uint64_t past[2] = {5, 0};
    uint64_t none[2] = {0, 0};
    make(&s);
    s.boxes[2].offset = past, s.boxes[2].extent = none;
    assert_refused(&s, BW_E_INVALID, "in dimension 0: offset 5, extent 0, size 4");
}

static void boxes_must_be_sorted_unique_and_of_known_tensors_and_ranks(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.boxes[2].rank = 2;
    assert_refused(&s, BW_E_INVALID, "boxes do not ascend: (tensor 1, rank 2) comes after (1, 2)");
    make(&s);
    s.boxes[1].rank = 3, s.boxes[2].rank = 2;
    assert_refused(&s, BW_E_INVALID, "boxes do not ascend: (tensor 1, rank 2) comes after (1, 3)");
    make(&s);
    s.boxes[3].tensor = 3;
    assert_refused(&s, BW_E_INVALID, "box 3 is of tensor 3, there are 3");
    make(&s);
    s.boxes[3].rank = 4;
    assert_refused(&s, BW_E_INVALID, "tensor \"w.tied\": rank 4 of a box is none of the layout's");
}

static void every_tensor_needs_a_box(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.layout.box_count = 3;
    assert_refused(&s, BW_E_INVALID, "layout: tensor \"w.tied\" has no box");
    s.layout.box_count = 0;
    assert_refused(&s, BW_E_INVALID, "layout: tensor \"step\" has no box");
    make(&s);
    s.boxes[1] = s.boxes[3];
    s.boxes[1].tied = BWI_NOT_TIED;
    s.layout.box_count = 2;
    assert_refused(&s, BW_E_INVALID, "layout: tensor \"w\" has no box");
    make(&s);
    s.layout.boxes++, s.layout.box_count = 3;
    assert_refused(&s, BW_E_INVALID, "layout: tensor \"step\" has no box");
}

static void a_tie_names_an_earlier_equal_box_of_the_same_rank_that_is_not_tied(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.boxes[3].tied = 3;
    assert_refused(&s, BW_E_INVALID, "tensor \"w.tied\": box 3 is tied to box 3, which is not before it");
    s.boxes[3].tied = 4;
    assert_refused(&s, BW_E_INVALID, "box 3 is tied to box 4, which is not before it");
    s.boxes[3].tied = 1;
    assert_refused(&s, BW_E_INVALID, "box 3 is tied to box 1, which is of another rank");
    make(&s);
    s.tensors[2].dtype = BW_I32;
    assert_refused(&s, BW_E_INVALID, "box 3 is tied to box 2, which is of another dtype");
    make(&s);
    uint64_t thin[2] = {1, 2};
    s.boxes[3].extent = thin;
    assert_refused(&s, BW_E_INVALID, "box 3 is tied to box 2, which is of another extent");
    uint64_t flat[1] = {4};
    make(&s);
    s.tensors[2].dims = 1, s.tensors[2].shape = flat, s.boxes[3].extent = flat;
    assert_refused(&s, BW_E_INVALID, "which is of another extent");
    make(&s);
    s.ranks[0] = 3, s.layout.rank_count = 1; /* all of rank 3: w, w.tied, and one more tied to w.tied */
    s.tensors[0] = s.tensors[1], s.tensors[1] = s.tensors[2];
    s.tensors[2].name = bwi_span_str("w.tied.too");
    s.boxes[0] = (struct bwi_box){0, 3, BWI_NOT_TIED, s.lower, s.square};
    s.boxes[1] = (struct bwi_box){1, 3, 0, s.zero, s.square};
    s.boxes[2] = (struct bwi_box){2, 3, 1, s.zero, s.square};
    s.layout.box_count = 3, s.layout.blob_count = 0;
    assert_refused(&s, BW_E_INVALID, "tensor \"w.tied.too\": box 2 is tied to box 1, which is tied itself");
    s.boxes[2].tied = 0;
    assert_encodes(&s);
}

/* The end of every encoder. No layout that a test can hold has the 4 GiB that are its limit. */
static void what_is_longer_than_readers_take_is_not_written(void **state) {
    (void)state;
    static const struct bwi_object_head head = {.what = "layout"};
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    bwi_buf_put(&out, "before", 6);
    bwi_buf_put(&out, "record", 6);
    assert_ok(bwi_head_written(&head, &out, 6, 6, &err), &err);
    assert_int_equal(out.len, 12);
    assert_fails(bwi_head_written(&head, &out, 6, 5, &err), BW_E_LIMIT, &err, "layout: 6 bytes, the limit is 5");
    assert_true(bwi_span_eq(bwi_buf_span(&out), bwi_span_str("before")));
    bwi_buf_fini(&out);
}

static void ranks_must_ascend_and_stay_below_the_limit(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.ranks[1] = 2;
    assert_refused(&s, BW_E_INVALID, "ranks do not ascend: 2 comes after 2");
    s.ranks[1] = 1;
    assert_refused(&s, BW_E_INVALID, "ranks do not ascend: 1 comes after 2");
    s.ranks[1] = BWI_WORLD_MAX;
    assert_refused(&s, BW_E_LIMIT, "rank 16777216, the limit is 16777215");
    s.layout.rank_count = 0;
    assert_refused(&s, BW_E_INVALID, "no ranks, expected at least one");
    s.layout.rank_count = 65;
    assert_refused(&s, BW_E_LIMIT, "65 ranks, the limit is 64");
}

static void blobs_must_be_sorted_unique_and_of_known_ranks(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.layout.blob_count = 2;
    assert_encodes(&s);
    s.blobs[1].rank = 2;
    assert_refused(&s, BW_E_INVALID, "blobs do not ascend by (rank, name): (2, \"rng\")");
    s.blobs[1].name = bwi_span_str("pos");
    assert_refused(&s, BW_E_INVALID, "blobs do not ascend by (rank, name): (2, \"pos\")");
    s.blobs[1].rank = 7;
    assert_refused(&s, BW_E_INVALID, "blob \"pos\": rank 7 is none of the layout's");
}

static void counts_above_their_limits_are_refused_before_anything_is_looked_at(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.layout.tensor_count = BWI_TENSORS_MAX + 1;
    assert_refused(&s, BW_E_LIMIT, "16777217 tensors, the limit is 16777216");
    make(&s);
    s.layout.box_count = BWI_BOXES_MAX + 1;
    assert_refused(&s, BW_E_LIMIT, "16777217 boxes, the limit is 16777216");
    make(&s);
    s.layout.blob_count = BWI_BLOBS_MAX + 1;
    assert_refused(&s, BW_E_LIMIT, "1048577 blobs, the limit is 1048576");
}

static void a_failed_encoding_leaves_what_was_in_the_buffer(void **state) {
    (void)state;
    struct sample s;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    bwi_buf_str(&out, "before");
    make(&s);
    assert_ok(bwi_layout_encode(&s.layout, &out, &err), &err);
    assert_int_equal(out.len, 6 + sizeof EXAMPLE_LAYOUT); /* it is appended */
    s.boxes[0].rank = 9;
    assert_fails(bwi_layout_encode(&s.layout, &out, &err), BW_E_INVALID, &err, NULL);
    assert_int_equal(out.len, 6 + sizeof EXAMPLE_LAYOUT);
    bwi_buf_fini(&out);
}

/* ---- what a decoder refuses ---- */

static void every_rule_holds_for_what_is_read(void **state) {
    (void)state;
    static const struct check_patch patches[] = {
        {16, 4, "\0\0\0\0", BW_E_FORMAT, "no ranks, expected at least one"},
        {16, 4, "\x41\0\0\0", BW_E_FORMAT, "65 ranks, the limit is 64"},
        {20, 4, "\1\0\0\1", BW_E_FORMAT, "16777217 tensors, the limit is 16777216"},
        {20, 4, "\0\0\0\1", BW_E_FORMAT, "cut short: its records take at least"},
        {24, 4, "\xff\xff\xff\xff", BW_E_FORMAT, "4294967295 boxes, the limit is 16777216"},
        {28, 4, "\xff\xff\x0f\0", BW_E_FORMAT, "cut short: its records take at least"},
        {28, 4, "\1\0\x10\0", BW_E_FORMAT, "1048577 blobs, the limit is 1048576"},
        {36, 4, "\2\0\0\0", BW_E_FORMAT, "ranks do not ascend"},
        {36, 4, "\0\0\0\1", BW_E_FORMAT, "rank 16777216, the limit is 16777215"},
        {40, 4, "\xff\xff\xff\xff", BW_E_FORMAT, "cut short"},
        {44, 1, "\x15", BW_E_FORMAT, "tensor \"step\": unknown dtype 21"},
        {45, 1, "\x11", BW_E_FORMAT, "tensor \"step\": 17 dimensions, the limit is 16"},
        {46, 1, "\1", BW_E_FORMAT, "tensor 0: padding is not zero"},
        {47, 1, "\1", BW_E_FORMAT, "tensor 0: padding is not zero"},
        {48, 4, "zzzz", BW_E_FORMAT, "tensors are not sorted: \"w\" comes after \"zzzz\""},
        {48, 4, "st\0p", BW_E_FORMAT, "name is not UTF-8 without NUL"},
        {48, 4, "\xed\xa0\x80p", BW_E_FORMAT, "name is not UTF-8 without NUL"},
        {68, 1, "\x40", BW_E_FORMAT, "tensor \"w\": bytes of F32 [4611686018427387908, 2] do not fit 64 bits"},
        {107, 4, "\3\0\0\0", BW_E_FORMAT, "box 0 is of tensor 3, there are 3"},
        {111, 4, "\1\0\0\0", BW_E_FORMAT, "tensor \"step\": rank 1 of a box is none of the layout's"},
        {115, 4, "\0\0\0\0", BW_E_FORMAT, "box 0 is tied to box 0, which is not before it"},
        {119, 4, "\0\0\0\1", BW_E_FORMAT, "box 0: padding is not zero"},
        {127, 4, "\3\0\0\0", BW_E_FORMAT, "boxes do not ascend: (tensor 1, rank 3) comes after (1, 3)"},
        {139, 4, "\3\0\0\0", BW_E_FORMAT, "box leaves the shape in dimension 0: offset 3, extent 2, size 4"},
        {211, 4, "\3\0\0\0", BW_E_FORMAT, "box leaves the shape in dimension 1: offset 0, extent 3, size 2"},
        {219, 4, "\1\0\0\0", BW_E_FORMAT, "boxes do not ascend"},
        {227, 4, "\1\0\0\0", BW_E_FORMAT, "which is of another rank"},
        {251, 4, "\1\0\0\0", BW_E_FORMAT, "which is of another extent"},
        {267, 4, "\1\0\0\0", BW_E_FORMAT, "blob \"rng\": rank 1 is none of the layout's"},
        {271, 4, "\0\0\0\0", BW_E_FORMAT, "3 bytes after its end, expected none"},
        {271, 4, "\4\0\0\0", BW_E_FORMAT, "cut short"},
    };
    check_patches(pass, EXAMPLE(LAYOUT), patches, sizeof patches / sizeof patches[0]);
}

static void a_box_that_claims_the_bytes_of_all_others_is_refused(void **state) {
    (void)state;
    /* 1 rank, 1 tensor of 16 dimensions, 3 boxes: the first takes what the fixed parts of the other two need. */
    struct bwi_buf b = {0};
    struct bwi_buf out = {0};
    struct bw_error err = BW_ERROR_INIT;
    bwi_buf_put(&b, EXAMPLE_LAYOUT, 16);
    bwi_buf_u32(&b, 1), bwi_buf_u32(&b, 1), bwi_buf_u32(&b, 3), bwi_buf_u32(&b, 0);
    bwi_buf_u32(&b, 0);
    bwi_buf_u32(&b, 1), bwi_buf_u8(&b, BW_F32), bwi_buf_u8(&b, 16), bwi_buf_u16(&b, 0), bwi_buf_u8(&b, 'x');
    bwi_buf_zero(&b, 16 * 8);
    bwi_buf_u32(&b, 0), bwi_buf_u32(&b, 0), bwi_buf_u32(&b, BWI_NOT_TIED), bwi_buf_u32(&b, 0);
    bwi_buf_zero(&b, 32 * 8);
    assert_fails(check_copy(pass, b.ptr, b.len, &out, &err), BW_E_FORMAT, &err, "cut short");
    bwi_buf_fini(&b);
    bwi_buf_fini(&out);
}

static void a_newer_version_is_refused_by_name_and_a_newer_minor_one_is_read(void **state) {
    (void)state;
    check_versions(pass, EXAMPLE(LAYOUT));
}

static void no_prefix_is_accepted(void **state) {
    (void)state;
    check_every_prefix(pass, EXAMPLE(LAYOUT));
}

static void no_changed_bit_leads_to_a_crash_or_to_other_bytes(void **state) {
    (void)state;
    check_every_bit(pass, EXAMPLE(LAYOUT), false);
    check_random_damage(pass, EXAMPLE(LAYOUT), 20000);
}

static void out_of_memory_leaves_nothing_behind(void **state) {
    (void)state;
    check_out_of_memory(pass, EXAMPLE(LAYOUT));
    bwi_layout_fini(NULL);
}

/* ---- size ---- */

#define MANY 100000u

static void a_hundred_thousand_tensors_make_a_round_trip(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    struct bwi_layout back;
    uint32_t ranks[2] = {0, 1};
    uint64_t shape[1] = {6}, half[1] = {3}, zero[1] = {0};
    char(*names)[32] = calloc(MANY, sizeof *names);
    struct bwi_tensor *tensors = calloc(MANY, sizeof *tensors);
    struct bwi_box *boxes = calloc(2 * MANY, sizeof *boxes);
    for (uint32_t i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof names[i], "layer.%06u.weight", i);
        tensors[i] = (struct bwi_tensor){bwi_span_str(names[i]), BW_BF16, 1, shape};
        boxes[2 * i] = (struct bwi_box){i, 0, BWI_NOT_TIED, zero, half};
        boxes[2 * i + 1] = (struct bwi_box){i, 1, BWI_NOT_TIED, half, half};
    }
    const struct bwi_layout l = {ranks, 2, tensors, MANY, boxes, 2 * MANY, NULL, 0, NULL};
    assert_ok(bwi_layout_encode(&l, &out, &err), &err);
    check_same_bytes(pass, bwi_buf_span(&out));
    assert_ok(bwi_layout_decode(bwi_buf_span(&out), &back, &err), &err);
    assert_int_equal(back.tensor_count, MANY);
    for (uint32_t i = 0; i < MANY; i += 777) {
        uint32_t at = 0;
        assert_true(bwi_layout_find(&back, bwi_span_str(names[i]), &at));
        assert_int_equal(at, i);
        assert_true(bwi_layout_find_box(&back, i, 1, &at));
        assert_int_equal(at, 2 * i + 1);
        assert_int_equal(back.boxes[at].offset[0], 3);
    }
    bwi_layout_fini(&back);
    bwi_buf_fini(&out);
    free(boxes);
    free(tensors);
    free(names);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_is_written_byte_for_byte),
        cmocka_unit_test(the_example_is_read_field_by_field),
        cmocka_unit_test(tensors_boxes_and_blobs_are_found_or_not),
        cmocka_unit_test(a_layout_without_tensors_and_one_with_only_a_blob_are_sound),
        cmocka_unit_test(empty_boxes_and_shapes_with_a_zero_are_sound),
        cmocka_unit_test(a_tensor_may_have_sixteen_dimensions_and_2_to_the_64_less_4_bytes),
        cmocka_unit_test(any_utf8_name_up_to_the_limit_is_kept),
        cmocka_unit_test(names_that_are_empty_too_long_or_not_utf8_are_refused),
        cmocka_unit_test(tensors_must_be_sorted_and_unique),
        cmocka_unit_test(unknown_dtypes_and_too_many_dimensions_are_refused),
        cmocka_unit_test(boxes_outside_of_their_shape_are_refused),
        cmocka_unit_test(boxes_must_be_sorted_unique_and_of_known_tensors_and_ranks),
        cmocka_unit_test(every_tensor_needs_a_box),
        cmocka_unit_test(a_tie_names_an_earlier_equal_box_of_the_same_rank_that_is_not_tied),
        cmocka_unit_test(what_is_longer_than_readers_take_is_not_written),
        cmocka_unit_test(ranks_must_ascend_and_stay_below_the_limit),
        cmocka_unit_test(blobs_must_be_sorted_unique_and_of_known_ranks),
        cmocka_unit_test(counts_above_their_limits_are_refused_before_anything_is_looked_at),
        cmocka_unit_test(a_failed_encoding_leaves_what_was_in_the_buffer),
        cmocka_unit_test(every_rule_holds_for_what_is_read),
        cmocka_unit_test(a_box_that_claims_the_bytes_of_all_others_is_refused),
        cmocka_unit_test(a_newer_version_is_refused_by_name_and_a_newer_minor_one_is_read),
        cmocka_unit_test(no_prefix_is_accepted),
        cmocka_unit_test(no_changed_bit_leads_to_a_crash_or_to_other_bytes),
        cmocka_unit_test(out_of_memory_leaves_nothing_behind),
        cmocka_unit_test(a_hundred_thousand_tensors_make_a_round_trip),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
