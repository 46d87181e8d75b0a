/* SPDX-License-Identifier: Apache-2.0 */
/* Coverage held against counting every element: tilings that are right, and every way to spoil one; and that thousands
 * of boxes are quick. */
#include "base/vec.h"
#include "boxes.h"
#include "format/index.h"
#include <inttypes.h>
#include <time.h>

#define BOXES 400

struct tiling {
    unsigned dims;
    uint64_t shape[BWI_DIMS_MAX];
    uint32_t count;
    uint64_t offset[BOXES][BWI_DIMS_MAX], extent[BOXES][BWI_DIMS_MAX];
    struct bwi_index_box boxes[BOXES];
};

static struct bwi_index_tensor tensor_of_tiling(struct tiling *t) {
    for (uint32_t i = 0; i < t->count; i++) {
        t->boxes[i] =
            (struct bwi_index_box){.group = i, .item = i, .offset = t->offset[i], .extent = t->extent[i], .rank = i};
    }
    return (struct bwi_index_tensor){.name = bwi_span_str("w"),
                                     .dtype = BW_F32,
                                     .dims = (uint8_t)t->dims,
                                     .shape = t->shape,
                                     .box_count = t->count,
                                     .boxes = t->boxes};
}

static int check(struct tiling *t, struct bw_error *err) {
    const struct bwi_index_tensor x = tensor_of_tiling(t);
    return bwi_coverage_check(&x, 1, err);
}

static void add(struct tiling *t, const uint64_t *offset, const uint64_t *extent) {
    assert_true(t->count < BOXES);
    memcpy(t->offset[t->count], offset, sizeof t->offset[0]);
    memcpy(t->extent[t->count], extent, sizeof t->extent[0]);
    t->count++;
}

/* Cuts a box again and again, so that pieces meet in every way. */
static void cut(struct tiling *t, uint64_t *rng, uint64_t *offset, uint64_t *extent, int depth) {
    const unsigned d = t->dims == 0 ? 0 : (unsigned)below(rng, t->dims);
    if (depth == 0 || t->dims == 0 || extent[d] < 2 || below(rng, 6) == 0) {
        add(t, offset, extent);
        return;
    }
    const uint64_t whole = extent[d];
    const uint64_t first = below(rng, 8) == 0 ? 0 : 1 + below(rng, whole - 1); /* sometimes an empty box */
    extent[d] = first;
    cut(t, rng, offset, extent, depth - 1);
    extent[d] = whole - first;
    offset[d] += first;
    cut(t, rng, offset, extent, depth - 1);
    offset[d] -= first;
    extent[d] = whole;
}

static void random_tiling(struct tiling *t, uint64_t *rng) {
    uint64_t offset[BWI_DIMS_MAX] = {0}, extent[BWI_DIMS_MAX] = {0};
    *t = (struct tiling){.dims = (unsigned)below(rng, 5)};
    for (unsigned d = 0; d < t->dims; d++) extent[d] = t->shape[d] = 1 + below(rng, 7);
    cut(t, rng, offset, extent, 6);
    for (uint32_t i = t->count; i > 1; i--) { /* in any order */
        const uint64_t with = below(rng, i);
        uint64_t tmp[BWI_DIMS_MAX];
        memcpy(tmp, t->offset[i - 1], sizeof tmp);
        memcpy(t->offset[i - 1], t->offset[with], sizeof tmp);
        memcpy(t->offset[with], tmp, sizeof tmp);
        memcpy(tmp, t->extent[i - 1], sizeof tmp);
        memcpy(t->extent[i - 1], t->extent[with], sizeof tmp);
        memcpy(t->extent[with], tmp, sizeof tmp);
    }
}

/* Moves, grows, shrinks, drops or doubles a box, within the shape. */
static void spoil(struct tiling *t, uint64_t *rng) {
    const uint32_t i = (uint32_t)below(rng, t->count);
    const unsigned d = t->dims == 0 ? 0 : (unsigned)below(rng, t->dims);
    uint64_t *offset = &t->offset[i][d], *extent = &t->extent[i][d];
    switch (below(rng, 5)) {
    case 0: add(t, t->offset[i], t->extent[i]); break;
    case 1:
        t->count--;
        memcpy(t->offset[i], t->offset[t->count], sizeof t->offset[0]);
        memcpy(t->extent[i], t->extent[t->count], sizeof t->extent[0]);
        break;
    case 2: *extent += t->dims > 0 && *offset + *extent < t->shape[d]; break;
    case 3: *extent -= t->dims > 0 && *extent > 0; break;
    default: *offset -= t->dims > 0 && *offset > 0; break;
    }
}

static unsigned boxes_with(const struct tiling *t, const uint64_t *index) {
    unsigned n = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        bool in = true;
        for (unsigned d = 0; d < t->dims; d++) {
            in = in && index[d] >= t->offset[i][d] && index[d] - t->offset[i][d] < t->extent[i][d];
        }
        n += in;
    }
    return n;
}

static void count_elements(const struct tiling *t, uint64_t *ret_missing, uint64_t *ret_doubled) {
    *ret_missing = *ret_doubled = 0;
    for (uint64_t i = 0; i < elements(t->dims, t->shape); i++) {
        uint64_t index[BWI_DIMS_MAX];
        unravel(t->dims, t->shape, i, index);
        const unsigned n = boxes_with(t, index);
        *ret_missing += n == 0;
        *ret_doubled += n > 1;
    }
}

/* The element that a message names. */
static void parse_list(const char *text, unsigned dims, uint64_t *ret) {
    assert_non_null(text);
    text = strchr(text, '[');
    for (unsigned d = 0; d < dims; d++) {
        char *end;
        assert_non_null(text);
        ret[d] = strtoull(text + 1, &end, 10);
        text = end;
    }
}

static void check_verdict(struct tiling *t) {
    uint64_t missing, doubled;
    struct bw_error err = BW_ERROR_INIT;
    count_elements(t, &missing, &doubled);
    const int rc = check(t, &err);
    if (missing == 0 && doubled == 0) {
        assert_ok(rc, &err);
    } else if (doubled > 0) {
        assert_fails(rc, BW_E_COVERAGE, &err, "overlap");
        unsigned a, b;
        const char *second = strstr(err.message, "and the box of rank ");
        assert_int_equal(sscanf(err.message, "tensor \"w\": the box of rank %u", &a), 1);
        assert_non_null(second);
        assert_int_equal(sscanf(second, "and the box of rank %u", &b), 1);
        assert_true(a < b && b < t->count);
        for (unsigned d = 0; d < t->dims; d++) {
            assert_true(t->offset[a][d] < t->offset[b][d] + t->extent[b][d]);
            assert_true(t->offset[b][d] < t->offset[a][d] + t->extent[a][d]);
        }
    } else {
        char want[128];
        snprintf(want, sizeof want, "tensor \"w\": %" PRIu64 " of %" PRIu64 " elements are in no box, one of them is ",
                 missing, elements(t->dims, t->shape));
        assert_fails(rc, BW_E_COVERAGE, &err, want);
        uint64_t index[BWI_DIMS_MAX] = {0};
        parse_list(strstr(err.message, "is ["), t->dims, index);
        for (unsigned d = 0; d < t->dims; d++) assert_true(index[d] < t->shape[d]);
        assert_int_equal(boxes_with(t, index), 0);
    }
}

static void tilings_pass_and_spoilt_ones_are_told_apart(void **state) {
    (void)state;
    uint64_t rng = test_seed(31);
    static struct tiling t;
    for (int i = 0; i < 3000; i++) {
        random_tiling(&t, &rng);
        struct bw_error err = BW_ERROR_INIT;
        assert_ok(check(&t, &err), &err);
        for (int k = 0; k < 3 && t.count > 0; k++) {
            spoil(&t, &rng);
            check_verdict(&t);
        }
    }
    assert_int_equal(bwi_alloc_live(), 0);
}

static void a_scalar_needs_exactly_one_box(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    static struct tiling t;
    const uint64_t none[BWI_DIMS_MAX] = {0};
    t = (struct tiling){0};
    assert_fails(check(&t, &err), BW_E_COVERAGE, &err,
                 "tensor \"w\": 1 of 1 elements are in no box, one of them is []");
    add(&t, none, none);
    bw_error_clear(&err);
    assert_ok(check(&t, &err), &err);
    add(&t, none, none);
    assert_fails(check(&t, &err), BW_E_COVERAGE, &err,
                 "tensor \"w\": the box of rank 0 (offset [], extent []) and the box of rank 1 (offset [], extent []) "
                 "overlap");
}

static void a_tensor_without_elements_needs_no_box_and_may_have_many(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    static struct tiling t;
    t = (struct tiling){.dims = 2, .shape = {3, 0}};
    assert_ok(check(&t, &err), &err);
    const uint64_t offset[BWI_DIMS_MAX] = {0}, extent[BWI_DIMS_MAX] = {3, 0};
    add(&t, offset, extent);
    add(&t, offset, extent);
    assert_ok(check(&t, &err), &err);
    assert_ok(bwi_coverage_check(NULL, 0, &err), &err);
}

static void a_box_outside_of_the_shape_is_named(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    static struct tiling t;
    t = (struct tiling){.dims = 1, .shape = {10}};
    const uint64_t offset[BWI_DIMS_MAX] = {UINT64_MAX}, extent[BWI_DIMS_MAX] = {2};
    add(&t, offset, extent);
    assert_fails(check(&t, &err), BW_E_COVERAGE, &err,
                 "tensor \"w\": the box of rank 0 (offset [18446744073709551615], extent [2]) leaves the shape [10]");
}

static void the_tensor_that_is_wrong_is_named_among_many(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    const uint64_t shape[] = {8}, zero[] = {0}, seven[] = {7};
    struct bwi_index_box whole = {0, 0, zero, shape, 0}, part = {4, 0, zero, seven, 4};
    const struct bwi_index_tensor t[] = {{bwi_span_str("good"), BW_U8, 1, shape, 1, &whole},
                                         {bwi_span_str("bad"), BW_U8, 1, shape, 1, &part},
                                         {bwi_span_str("worse"), BW_U8, 1, shape, 0, NULL}};
    assert_ok(bwi_coverage_check(t, 1, &err), &err);
    assert_fails(bwi_coverage_check(t, 3, &err), BW_E_COVERAGE, &err,
                 "tensor \"bad\": 1 of 8 elements are in no box, one of them is [7]");
}

static void long_lists_are_cut_in_messages(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    static struct tiling t;
    t = (struct tiling){.dims = 16};
    uint64_t offset[BWI_DIMS_MAX], extent[BWI_DIMS_MAX];
    for (unsigned d = 0; d < 16; d++) {
        offset[d] = UINT64_C(1000000000000000) + d;
        extent[d] = 1;
        t.shape[d] = offset[d] + 1;
    }
    add(&t, offset, extent);
    add(&t, offset, extent);
    assert_fails(check(&t, &err), BW_E_COVERAGE, &err,
                 "the box of rank 0 (offset [1000000000000000, 1000000000000001, ...], extent");
    assert_non_null(strstr(err.message, " overlap"));
}

/* ---- many boxes ---- */

struct grid {
    uint32_t count;
    uint64_t (*numbers)[4]; /* offset, extent */
    struct bwi_index_box *boxes;
};

/* rows times columns boxes of uneven sizes. */
static struct grid make_grid(uint32_t rows, uint32_t columns, uint64_t *ret_shape) {
    struct grid g = {rows * columns, NULL, NULL};
    g.numbers = calloc(g.count, sizeof *g.numbers);
    g.boxes = calloc(g.count, sizeof *g.boxes);
    uint64_t y = 0;
    for (uint32_t r = 0; r < rows; r++) {
        const uint64_t height = 3 + r % 5;
        uint64_t x = 0;
        for (uint32_t c = 0; c < columns; c++) {
            const uint64_t width = 2 + c % 7;
            uint64_t *n = g.numbers[r * columns + c];
            n[0] = y;
            n[1] = x;
            n[2] = height;
            n[3] = width;
            g.boxes[r * columns + c] = (struct bwi_index_box){r * columns + c, 0, n, n + 2, 0};
            x += width;
        }
        y += height;
        ret_shape[1] = x;
    }
    ret_shape[0] = y;
    return g;
}

static void time_grid(uint32_t rows, uint32_t columns) {
    struct bw_error err = BW_ERROR_INIT;
    uint64_t shape[2];
    struct grid g = make_grid(rows, columns, shape);
    const struct bwi_index_tensor t = {bwi_span_str("grid"), BW_F32, 2, shape, g.count, g.boxes};
    const clock_t start = clock();
    assert_ok(bwi_coverage_check(&t, 1, &err), &err);
    double s = (double)(clock() - start) / CLOCKS_PER_SEC;
    print_message("%u x %u boxes checked in %.4f s", rows, columns, s);
    assert_true(s < 5);

    const clock_t gap = clock();
    uint64_t *one = g.numbers[rows / 2 * columns + columns / 2];
    one[3]--;
    assert_fails(bwi_coverage_check(&t, 1, &err), BW_E_COVERAGE, &err, "elements are in no box");
    s = (double)(clock() - gap) / CLOCKS_PER_SEC;
    print_message(", a gap found in %.4f s\n", s);
    assert_true(s < 5);
    one[3]++;
    one[1]--;
    one[3]++;
    bw_error_clear(&err);
    if (columns > 1) assert_fails(bwi_coverage_check(&t, 1, &err), BW_E_COVERAGE, &err, "overlap");
    free(g.numbers);
    free(g.boxes);
}

static void ten_thousand_boxes_are_quick(void **state) {
    (void)state;
    time_grid(10000, 1);
    time_grid(1, 10000);
    time_grid(100, 100);
    time_grid(5, 2000);
}

static void a_hundred_thousand_tensors_are_quick(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    const uint64_t shape[] = {4, 4}, zero[] = {0, 0}, two[] = {2, 0}, half[] = {2, 4};
    struct bwi_index_box boxes[] = {{0, 0, zero, half, 0}, {1, 0, two, half, 1}};
    struct bwi_index_tensor *t = calloc(100000, sizeof *t);
    for (size_t i = 0; i < 100000; i++) {
        t[i] = (struct bwi_index_tensor){bwi_span_str("t"), BW_F32, 2, shape, 2, boxes};
    }
    const clock_t start = clock();
    assert_ok(bwi_coverage_check(t, 100000, &err), &err);
    const double s = (double)(clock() - start) / CLOCKS_PER_SEC;
    print_message("100000 tensors checked in %.4f s\n", s);
    assert_true(s < 5);
    free(t);
}

static void out_of_memory_is_reported(void **state) {
    (void)state;
    static struct tiling t;
    const uint64_t offset[BWI_DIMS_MAX] = {0}, extent[BWI_DIMS_MAX] = {4};
    t = (struct tiling){.dims = 1, .shape = {4}};
    add(&t, offset, extent);
    for (unsigned long n = 1;; n++) {
        struct bw_error err = BW_ERROR_INIT;
        (void)bwi_alloc_fail_at(n);
        const int rc = check(&t, &err);
        (void)bwi_alloc_fail_at(0);
        if (rc == 0) {
            assert_int_equal(n, 3);
            break;
        }
        assert_fails(rc, BW_E_NOMEM, &err, NULL);
        assert_int_equal(bwi_alloc_live(), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tilings_pass_and_spoilt_ones_are_told_apart),
        cmocka_unit_test(a_scalar_needs_exactly_one_box),
        cmocka_unit_test(a_tensor_without_elements_needs_no_box_and_may_have_many),
        cmocka_unit_test(a_box_outside_of_the_shape_is_named),
        cmocka_unit_test(the_tensor_that_is_wrong_is_named_among_many),
        cmocka_unit_test(long_lists_are_cut_in_messages),
        cmocka_unit_test(ten_thousand_boxes_are_quick),
        cmocka_unit_test(a_hundred_thousand_tensors_are_quick),
        cmocka_unit_test(out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
