/* SPDX-License-Identifier: Apache-2.0 */
/* Gathering and scattering held against a walk element by element, from any byte to any byte; filling chunks. Memory
 * is allocated to the byte, so that a sanitizer sees every step beside it. */
#include "boxes.h"
#include "checkpoint/plan_private.h"

#define CASES 3000

static void any_part_of_any_box_is_gathered_as_element_by_element(void **state) {
    (void)state;
    uint64_t rng = test_seed(11);
    for (int i = 0; i < CASES; i++) {
        struct box b;
        const struct memory m = random_box(&rng, &b);
        const struct bwi_tensor_source s = b.s;
        uint8_t *want = image_of(&s);
        for (int k = 0; k < 6; k++) {
            const uint64_t from = k == 0 ? 0 : below(&rng, s.bytes + 1);
            const uint64_t n = k == 0 ? s.bytes : below(&rng, s.bytes - from + 1);
            uint8_t *got = malloc(n + 1);
            got[n] = 0xa5;
            bwi_gather(&s, from, n, got);
            assert_memory_equal(got, want + from, n);
            assert_int_equal(got[n], 0xa5);
            free(got);
        }
        free(want);
        free(m.ptr);
    }
}

/* Strides without aliases: in an expanded destination the last writer of an element is not of interest. */
static void unalias(struct box *b, struct memory *m, uint64_t *rng) {
    const unsigned dims = b->s.dims;
    const size_t elem = bw_dtype_bytes(b->s.dtype);
    bool aliased = true;
    while (aliased) {
        random_strides(rng, dims, elem, b->extent, b->stride);
        aliased = false;
        for (unsigned d = 0; d < dims; d++) aliased = aliased || (b->stride[d] == 0 && b->extent[d] > 1);
    }
    free(m->ptr);
    *m = memory_for(dims, elem, b->extent, b->stride);
    b->s.data = m->ptr + m->first;
}

static void any_part_of_any_box_is_scattered_and_nothing_else_is_touched(void **state) {
    (void)state;
    uint64_t rng = test_seed(12);
    for (int i = 0; i < CASES; i++) {
        struct box b;
        struct memory m = random_box(&rng, &b);
        unalias(&b, &m, &rng);
        const struct bwi_tensor_source s = b.s;
        const size_t elem = bw_dtype_bytes(s.dtype);
        const struct bwi_strided d = {m.ptr + m.first, s.dims, (uint8_t)elem, s.extent, s.stride};
        const uint64_t from = below(&rng, s.bytes + 1);
        const uint64_t n = below(&rng, s.bytes - from + 1);
        uint8_t *src = malloc(n + 1);
        fill_random(&rng, src, n);
        uint8_t *want = malloc(m.bytes + 1);
        memset(want, 0xcc, m.bytes);
        memset(m.ptr, 0xcc, m.bytes);
        for (uint64_t k = from; k < from + n; k++) {
            uint64_t index[BWI_DIMS_MAX];
            unravel(s.dims, s.extent, k / elem, index);
            const int64_t at = element_offset(s.dims, index, s.stride) + (int64_t)(k % elem);
            want[(int64_t)m.first + at] = src[k - from];
        }
        bwi_scatter(&d, from, n, src);
        assert_memory_equal(m.ptr, want, m.bytes);
        free(src);
        free(want);
        free(m.ptr);
    }
}

static void an_expanded_destination_gets_an_element_of_its_row(void **state) {
    (void)state;
    uint16_t cell = 0;
    const uint16_t row[] = {1, 2, 3, 4};
    const uint64_t extent[] = {4};
    const int64_t stride[] = {0};
    const struct bwi_strided d = {(uint8_t *)&cell, 1, 2, extent, stride};
    bwi_scatter(&d, 0, sizeof row, (const uint8_t *)row);
    assert_int_equal(cell, 4);
}

static void bits_come_through_as_they_are(void **state) {
    (void)state;
    /* Signalling and quiet NaN with payloads, -0.0, denormals; every second one, so that nothing is one memcpy. */
    const uint32_t bits[] = {0x7f800001, 0, 0xffc12345, 0, 0x80000000, 0, 0x00000001, 0, 0x7fbfffff, 0};
    const uint64_t extent[] = {5};
    const int64_t stride[] = {8};
    const struct bwi_tensor_source s = {
        .dtype = BW_F32, .dims = 1, .extent = extent, .stride = stride, .data = (const uint8_t *)bits, .bytes = 20};
    uint32_t got[5];
    bwi_gather(&s, 0, sizeof got, (uint8_t *)got);
    for (size_t i = 0; i < 5; i++) assert_int_equal(got[i], bits[2 * i]);
    uint32_t back[10] = {0};
    const struct bwi_strided d = {(uint8_t *)back, 1, 4, s.extent, s.stride};
    bwi_scatter(&d, 0, sizeof got, (const uint8_t *)got);
    assert_memory_equal(back, bits, sizeof bits);
}

static void sixteen_dimensions_work(void **state) {
    (void)state;
    uint64_t rng = test_seed(13);
    uint64_t extent[BWI_DIMS_MAX];
    int64_t stride[BWI_DIMS_MAX];
    struct bwi_tensor_source s = {.dtype = BW_I16, .dims = BWI_DIMS_MAX, .extent = extent, .stride = stride};
    for (unsigned d = 0; d < BWI_DIMS_MAX; d++) extent[d] = d % 3 == 0 ? 2 : 1 + d % 2;
    for (int i = 0; i < 20; i++) {
        random_strides(&rng, s.dims, 2, extent, stride);
        const struct memory m = memory_for(s.dims, 2, s.extent, s.stride);
        fill_random(&rng, m.ptr, m.bytes);
        s.data = m.ptr + m.first;
        const uint64_t n = elements(s.dims, s.extent) * 2;
        uint8_t *want = image_of(&s);
        uint8_t *got = malloc(n);
        bwi_gather(&s, 1, n - 2, got);
        assert_memory_equal(got, want + 1, n - 2);
        free(got);
        free(want);
        free(m.ptr);
    }
}

static void expanded_memory_may_be_larger_than_any_machine(void **state) {
    (void)state;
    const uint64_t value = 0x1122334455667788;
    const uint64_t extent[] = {1 << 30, 1 << 28};
    const int64_t stride[] = {0, 0};
    const struct bwi_tensor_source s = {
        .dtype = BW_U64, .dims = 2, .extent = extent, .stride = stride, .data = (const uint8_t *)&value};
    uint8_t got[64];
    bwi_gather(&s, (UINT64_C(1) << 61) - 61, 61, got);
    for (unsigned i = 0; i < 61; i++) assert_int_equal(got[60 - i], ((const uint8_t *)&value)[7 - i % 8]);
}

static void rows_are_copied_at_any_distance(void **state) {
    (void)state;
    const uint64_t units[] = {1, 2, 3, 4, 5, 8, 12, 16, 17};
    uint8_t src[512], dst[512];
    for (unsigned i = 0; i < sizeof src; i++) src[i] = (uint8_t)(i * 7);
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        const int64_t n = (int64_t)units[u];
        memset(dst, 0, sizeof dst);
        bwi_copy_row(dst + 256, -n - 1, src + 128, n + 2, units[u], 5);
        for (int64_t i = 0; i < 5; i++) {
            assert_memory_equal(dst + 256 - i * (n + 1), src + 128 + i * (n + 2), units[u]);
            assert_int_equal(dst[256 - i * (n + 1) + n], 0);
        }
    }
}

/* Two pieces with a gap between them and one behind: what the caller's buffer held before must not be seen. */
static void a_chunk_has_zeros_between_its_pieces_and_each_piece_its_hash(void **state) {
    (void)state;
    const uint8_t a[3] = {1, 2, 3}, b[6] = {4, 5, 6, 7, 8, 9};
    const uint64_t extent[] = {3};
    const int64_t stride[] = {1};
    const struct bwi_tensor_source t = {
        .dtype = BW_U8, .dims = 1, .extent = extent, .stride = stride, .data = a, .bytes = 3};
    const struct bwi_blob_source blob = {NULL, b, 6};
    struct bwi_item_source items[] = {{&t, NULL}, {NULL, &blob}};
    struct bwi_piece pieces[] = {{0, 0, 0, 3, 4098}, {1, 2, 2, 4, 4105}};
    struct bwi_xxh extents[3] = {0};
    struct bwi_place places[3] = {0};
    struct bwi_plan p = {.items = items, .pieces = pieces, .places = places};
    p.content.extents = extents;
    const struct bwi_chunk c = {.pack_offset = 4096, .bytes = 16, .pieces = 2, .first_piece = 0};
    uint8_t dst[17];
    memset(dst, 0xee, sizeof dst);
    bwi_plan_fill(&p, &c, dst);
    bwi_plan_hash(&p, &c, dst);
    const uint8_t want[17] = {0, 0, 1, 2, 3, 0, 0, 0, 0, 6, 7, 8, 9, 0, 0, 0, 0xee};
    assert_memory_equal(dst, want, sizeof want);
    const struct bwi_xxh ha = bwi_xxh_of(bwi_span(a, 3)), hb = bwi_xxh_of(bwi_span(b + 2, 4));
    assert_true(bwi_xxh_eq(&extents[0], &ha) && bwi_xxh_eq(&places[0].stored, &ha));
    assert_true(bwi_xxh_eq(&extents[2], &hb) && bwi_xxh_eq(&places[2].stored, &hb));
    const struct bwi_xxh none = {{0}};
    assert_true(bwi_xxh_eq(&extents[1], &none) && bwi_xxh_eq(&places[1].stored, &none));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_part_of_any_box_is_gathered_as_element_by_element),
        cmocka_unit_test(any_part_of_any_box_is_scattered_and_nothing_else_is_touched),
        cmocka_unit_test(an_expanded_destination_gets_an_element_of_its_row),
        cmocka_unit_test(bits_come_through_as_they_are),
        cmocka_unit_test(sixteen_dimensions_work),
        cmocka_unit_test(expanded_memory_may_be_larger_than_any_machine),
        cmocka_unit_test(rows_are_copied_at_any_distance),
        cmocka_unit_test(a_chunk_has_zeros_between_its_pieces_and_each_piece_its_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
