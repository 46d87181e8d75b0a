/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of a saved and a wanted box, held against a walk over every element of the saved one. */
#include "base/checked.h"
#include "boxes.h"

#define CASES 6000

struct pair {
    unsigned dims;
    size_t elem;
    uint64_t shape[BWI_DIMS_MAX];
    uint64_t box_offset[BWI_DIMS_MAX], box_extent[BWI_DIMS_MAX];
    uint64_t want_offset[BWI_DIMS_MAX], want_extent[BWI_DIMS_MAX];
    int64_t stride[BWI_DIMS_MAX];
};

static void random_interval(uint64_t *rng, uint64_t size, uint64_t *ret_offset, uint64_t *ret_extent) {
    if (below(rng, 3) == 0) {
        *ret_offset = 0;
        *ret_extent = size;
        return;
    }
    *ret_offset = below(rng, size);
    *ret_extent = below(rng, 15) == 0 ? 0 : 1 + below(rng, size - *ret_offset);
}

static struct pair random_pair(uint64_t *rng) {
    struct pair p = {.dims = (unsigned)below(rng, 5)};
    const size_t sizes[] = {1, 2, 4, 8, 16};
    p.elem = sizes[below(rng, 5)];
    for (unsigned d = 0; d < p.dims; d++) {
        p.shape[d] = 1 + below(rng, 7);
        random_interval(rng, p.shape[d], &p.box_offset[d], &p.box_extent[d]);
        random_interval(rng, p.shape[d], &p.want_offset[d], &p.want_extent[d]);
    }
    random_strides(rng, p.dims, p.elem, p.want_extent, p.stride);
    for (unsigned d = 0; d < p.dims; d++) {
        if (p.stride[d] == 0) p.want_extent[d] = bwi_min_u64(p.want_extent[d], 1); /* no aliases */
    }
    return p;
}

/* Where element i of the saved box lies in the wanted memory. false: it is not wanted. */
static bool wanted_at(const struct pair *p, uint64_t i, int64_t *ret) {
    uint64_t index[BWI_DIMS_MAX];
    unravel(p->dims, p->box_extent, i, index);
    for (unsigned d = 0; d < p->dims; d++) {
        const uint64_t g = p->box_offset[d] + index[d];
        if (g < p->want_offset[d] || g - p->want_offset[d] >= p->want_extent[d]) return false;
        index[d] = g - p->want_offset[d];
    }
    *ret = element_offset(p->dims, index, p->stride);
    return true;
}

static void check_part(const struct pair *p, const uint8_t *image, uint64_t from, uint64_t n, const struct memory *m,
                       uint8_t *want) {
    uint64_t hits = 0;
    memset(m->ptr, 0xcc, m->bytes);
    memset(want, 0xcc, m->bytes);
    for (uint64_t i = from; i < from + n; i++) {
        int64_t at;
        if (!wanted_at(p, i, &at)) continue;
        memcpy(want + (int64_t)m->first + at, image + i * p->elem, p->elem);
        hits++;
    }
    const struct bwi_strided dst = {m->ptr + m->first, (uint8_t)p->dims, (uint8_t)p->elem, p->want_extent, p->stride};
    uint8_t *part = malloc(n * p->elem + 1); /* only these bytes may be read */
    memcpy(part, image + from * p->elem, n * p->elem);
    const uint64_t copied =
        bwi_intersect_copy(p->box_offset, p->box_extent, part, from * p->elem, n * p->elem, p->want_offset, &dst);
    assert_int_equal(copied, hits * p->elem);
    assert_memory_equal(m->ptr, want, m->bytes);
    assert_int_equal(bwi_intersect_any((uint8_t)p->dims, (uint8_t)p->elem, p->box_offset, p->box_extent, from * p->elem,
                                       n * p->elem, p->want_offset, p->want_extent),
                     hits > 0);
    free(part);
}

static void exactly_what_is_wanted_is_copied_from_any_part(void **state) {
    (void)state;
    uint64_t rng = test_seed(21);
    for (int k = 0; k < CASES; k++) {
        const struct pair p = random_pair(&rng);
        const uint64_t n = elements(p.dims, p.box_extent);
        const struct memory m = memory_for(p.dims, p.elem, p.want_extent, p.stride);
        uint8_t *image = malloc(n * p.elem + 1), *want = malloc(m.bytes + 1);
        fill_random(&rng, image, n * p.elem);
        check_part(&p, image, 0, n, &m, want);
        for (int i = 0; i < 4; i++) {
            const uint64_t from = below(&rng, n + 1);
            check_part(&p, image, from, below(&rng, n - from + 1), &m, want);
        }
        free(image);
        free(want);
        free(m.ptr);
    }
}

static uint64_t rows, rows_found;

/* Whether all elements of the part are wanted, one after the other in memory; the place of the first. */
static bool is_row(const struct pair *p, uint64_t from, uint64_t n, int64_t *ret) {
    int64_t at;
    for (uint64_t i = from; i < from + n; i++) {
        if (!wanted_at(p, i, &at)) return false;
        if (i == from) *ret = at;
        if (at != *ret + (int64_t)((i - from) * p->elem)) return false;
    }
    return n > 0;
}

static void check_whole(const struct pair *p, uint64_t from, uint64_t n, const struct memory *m) {
    int64_t at = 0;
    const bool row = is_row(p, from, n, &at);
    const struct bwi_strided dst = {m->ptr + m->first, (uint8_t)p->dims, (uint8_t)p->elem, p->want_extent, p->stride};
    const uint8_t *found =
        bwi_intersect_whole(p->box_offset, p->box_extent, from * p->elem, n * p->elem, p->want_offset, &dst);
    rows += row;
    rows_found += found != NULL;
    if (found != NULL) assert_true(row && found == dst.data + at);
}

/* A row of a box that is cut up otherwise need not be found. */
static void a_part_that_belongs_in_a_row_to_one_place_is_told(void **state) {
    (void)state;
    uint64_t rng = test_seed(23);
    rows = rows_found = 0;
    for (int k = 0; k < CASES; k++) {
        const struct pair p = random_pair(&rng);
        const uint64_t n = elements(p.dims, p.box_extent);
        const struct memory m = memory_for(p.dims, p.elem, p.want_extent, p.stride);
        check_whole(&p, 0, n, &m);
        for (int i = 0; i < 4; i++) {
            const uint64_t from = below(&rng, n + 1);
            check_whole(&p, from, below(&rng, n - from + 1), &m);
        }
        free(m.ptr);
    }
    assert_true(rows_found > CASES / 10 && rows_found > rows / 3);
}

static void the_parts_of_a_box_add_up(void **state) {
    (void)state;
    uint64_t rng = test_seed(22);
    for (int k = 0; k < 500; k++) {
        const struct pair p = random_pair(&rng);
        const uint64_t n = elements(p.dims, p.box_extent);
        const struct memory m = memory_for(p.dims, p.elem, p.want_extent, p.stride);
        uint8_t *image = malloc(n * p.elem + 1);
        fill_random(&rng, image, n * p.elem);
        const struct bwi_strided dst = {m.ptr + m.first, (uint8_t)p.dims, (uint8_t)p.elem, p.want_extent, p.stride};
        const uint64_t all = bwi_intersect_copy(p.box_offset, p.box_extent, image, 0, n * p.elem, p.want_offset, &dst);
        uint64_t sum = 0;
        const uint64_t step = 1 + below(&rng, 9);
        for (uint64_t at = 0; at < n; at += step) {
            sum += bwi_intersect_copy(p.box_offset, p.box_extent, image + at * p.elem, at * p.elem,
                                      bwi_min_u64(step, n - at) * p.elem, p.want_offset, &dst);
        }
        assert_int_equal(sum, all);
        free(image);
        free(m.ptr);
    }
}

static void bytes_in_the_middle_of_an_element_count_as_that_element(void **state) {
    (void)state;
    const uint64_t zero[] = {0}, four[] = {4}, one[] = {1}, at_two[] = {2};
    /* Element 2 of F64: bytes 16 to 23. */
    assert_false(bwi_intersect_any(1, 8, zero, four, 0, 16, at_two, one));
    assert_true(bwi_intersect_any(1, 8, zero, four, 0, 17, at_two, one));
    assert_true(bwi_intersect_any(1, 8, zero, four, 23, 1, at_two, one));
    assert_false(bwi_intersect_any(1, 8, zero, four, 24, 8, at_two, one));
    assert_false(bwi_intersect_any(1, 8, zero, four, 16, 0, at_two, one));
}

static void boxes_at_the_end_of_the_numbers_do_not_overflow(void **state) {
    (void)state;
    const uint64_t offset[] = {UINT64_MAX - 4}, extent[] = {4}, want_offset[] = {UINT64_MAX - 2}, want_extent[] = {2};
    const uint8_t image[] = {1, 2, 3, 4};
    uint8_t got[2] = {0};
    const int64_t stride[] = {1};
    const struct bwi_strided dst = {got, 1, 1, want_extent, stride};
    assert_int_equal(bwi_intersect_copy(offset, extent, image, 0, 4, want_offset, &dst), 2);
    assert_int_equal(got[0], 3);
    assert_int_equal(got[1], 4);
}

static void a_large_box_is_searched_without_walking_it(void **state) {
    (void)state;
    const uint64_t zero[] = {0, 0, 0}, extent[] = {1 << 20, 1 << 20, 1 << 20}, want[] = {1 << 19, 7, 9},
                   one[] = {1, 1, 1};
    const uint64_t at = ((UINT64_C(1) << 19) << 40) + (UINT64_C(7) << 20) + 9;
    assert_true(bwi_intersect_any(3, 1, zero, extent, at, 1, want, one));
    assert_false(bwi_intersect_any(3, 1, zero, extent, at + 1, (UINT64_C(1) << 60) - at - 1, want, one));
    assert_false(bwi_intersect_any(3, 1, zero, extent, 0, at, want, one));
    uint8_t got = 0;
    const uint8_t src[] = {8, 9, 10};
    const int64_t stride[] = {1, 1, 1};
    const struct bwi_strided dst = {&got, 3, 1, one, stride};
    assert_int_equal(bwi_intersect_copy(zero, extent, src, at - 1, 3, want, &dst), 1);
    assert_int_equal(got, 9);
}

static void sixteen_dimensions_work(void **state) {
    (void)state;
    uint64_t rng = test_seed(23);
    for (int k = 0; k < 30; k++) {
        struct pair p = {.dims = BWI_DIMS_MAX, .elem = 2};
        for (unsigned d = 0; d < p.dims; d++) {
            p.shape[d] = 2;
            p.box_extent[d] = 1 + (below(&rng, 3) > 0);
            p.want_extent[d] = 1 + (below(&rng, 4) > 0);
            p.box_offset[d] = below(&rng, 3 - p.box_extent[d]);
            p.want_offset[d] = p.box_extent[d] == 2 ? below(&rng, 3 - p.want_extent[d]) : 0;
            if (p.want_extent[d] == 1 && p.box_extent[d] == 1) p.want_offset[d] = p.box_offset[d];
        }
        int64_t step = 2;
        for (unsigned d = 0; d < p.dims; d++) { /* column-major: nothing joins */
            p.stride[d] = step;
            step *= (int64_t)p.want_extent[d];
        }
        const uint64_t n = elements(p.dims, p.box_extent);
        const struct memory m = memory_for(p.dims, p.elem, p.want_extent, p.stride);
        uint8_t *image = malloc(n * p.elem), *want = malloc(m.bytes);
        fill_random(&rng, image, n * p.elem);
        check_part(&p, image, n / 3, n / 2, &m, want);
        free(image);
        free(want);
        free(m.ptr);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exactly_what_is_wanted_is_copied_from_any_part),
        cmocka_unit_test(a_part_that_belongs_in_a_row_to_one_place_is_told),
        cmocka_unit_test(the_parts_of_a_box_add_up),
        cmocka_unit_test(bytes_in_the_middle_of_an_element_count_as_that_element),
        cmocka_unit_test(boxes_at_the_end_of_the_numbers_do_not_overflow),
        cmocka_unit_test(a_large_box_is_searched_without_walking_it),
        cmocka_unit_test(sixteen_dimensions_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
