/* SPDX-License-Identifier: Apache-2.0 */
/* Hulls: what is covered, what is an edge, and that nothing is lost between the two. Mappings are made up. */
#include "base/vec.h"
#include "io/hull.h"
#include "test.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

struct maps {
    const struct bwi_mapping *list;
    size_t count;
};

static int find(void *user, uint64_t address, struct bwi_mapping *ret) {
    const struct maps *m = user;
    for (size_t i = 0; i < m->count; i++)
        if (m->list[i].end > address) {
            *ret = m->list[i];
            return 0;
        }
    return -ENOENT;
}

static struct bwi_hulls make(const struct bwi_range *ranges, size_t count, const struct bwi_mapping *list,
                             size_t maps) {
    struct maps m = {list, maps};
    struct bwi_hulls h;
    struct bw_error err = BW_ERROR_INIT;
    assert_int_equal(bwi_hulls_make(ranges, count, find, &m, &h, &err), 0);
    return h;
}

static void check_range(const struct bwi_range *r, uint64_t start_mib, uint64_t end_mib) {
    assert_int_equal(r->start, start_mib * MIB);
    assert_int_equal(r->end, end_mib * MIB);
}

static const struct bwi_mapping one[] = {{0, 1000 * MIB, true}};

static void a_hull_is_rounded_in_and_the_rest_are_edges(void **state) {
    (void)state;
    const struct bwi_range r[] = {{3 * MIB, 9 * MIB}};
    struct bwi_hulls h = make(r, 1, one, 1);
    assert_int_equal(h.hull_count, 1);
    check_range(&h.hulls[0], 4, 8);
    assert_int_equal(h.edge_count, 2);
    check_range(&h.edges[0], 3, 4);
    check_range(&h.edges[1], 8, 9);
    assert_int_equal(h.inside_bytes, 4 * MIB);
    assert_int_equal(h.edge_bytes, 2 * MIB);
    bwi_hulls_fini(&h);
}

static void small_gaps_are_bridged_and_large_ones_are_not(void **state) {
    (void)state;
    const struct bwi_range r[] = {{60 * MIB, 70 * MIB}, {10 * MIB, 20 * MIB}, {26 * MIB, 36 * MIB}};
    struct bwi_hulls h = make(r, 3, one, 1);
    assert_int_equal(h.run_count, 3);
    assert_int_equal(h.hull_count, 2);
    check_range(&h.hulls[0], 10, 36);
    check_range(&h.hulls[1], 60, 70);
    assert_int_equal(h.edge_count, 0);
    assert_int_equal(h.inside_bytes, 30 * MIB);
    assert_int_equal(h.hull_bytes, 36 * MIB);
    bwi_hulls_fini(&h);
}

static void a_gap_larger_than_what_lies_around_it_is_not_bridged(void **state) {
    (void)state;
    const struct bwi_range r[] = {{10 * MIB, 10 * MIB + 64}, {17 * MIB, 17 * MIB + 64}};
    struct bwi_hulls h = make(r, 2, one, 1);
    assert_int_equal(h.hull_count, 0);
    assert_int_equal(h.edge_bytes, 128);
    bwi_hulls_fini(&h);
}

/* However much lies before them. */
static void few_bytes_far_from_each_other_are_no_hull(void **state) {
    (void)state;
    struct bwi_range r[50] = {{8 * MIB, 40 * MIB}};
    for (size_t i = 1; i < 50; i++) r[i] = (struct bwi_range){(40 + 6 * i) * MIB, (40 + 6 * i) * MIB + 4096};
    struct bwi_hulls h = make(r, 50, one, 1);
    assert_int_equal(h.hull_count, 1);
    check_range(&h.hulls[0], 8, 46); /* one gap, for there was much before it */
    assert_int_equal(h.edge_bytes, 49 * 4096);
    bwi_hulls_fini(&h);
}

static void touching_and_overlapping_ranges_are_one_run(void **state) {
    (void)state;
    const struct bwi_range r[] = {{5 * MIB, 9 * MIB}, {2 * MIB, 6 * MIB}, {9 * MIB, 10 * MIB}, {3 * MIB, 3 * MIB}};
    struct bwi_hulls h = make(r, 4, one, 1);
    assert_int_equal(h.run_count, 1);
    check_range(&h.runs[0], 2, 10);
    check_range(&h.hulls[0], 2, 10);
    bwi_hulls_fini(&h);
}

static void no_gap_between_mappings_is_bridged(void **state) {
    (void)state;
    const struct bwi_mapping maps[] = {{0, 11 * MIB, true}, {12 * MIB, 100 * MIB, true}};
    const struct bwi_range r[] = {{4 * MIB, 10 * MIB}, {13 * MIB, 20 * MIB}};
    struct bwi_hulls h = make(r, 2, maps, 2);
    assert_int_equal(h.hull_count, 2);
    check_range(&h.hulls[0], 4, 10);
    check_range(&h.hulls[1], 14, 20);
    assert_int_equal(h.edge_count, 1);
    check_range(&h.edges[0], 13, 14);
    bwi_hulls_fini(&h);
}

static void memory_that_is_not_plain_or_not_there_is_an_edge(void **state) {
    (void)state;
    const struct bwi_mapping maps[] = {
        {4 * MIB, 10 * MIB, true}, {10 * MIB, 20 * MIB, false}, {24 * MIB, 30 * MIB, true}};
    const struct bwi_range r[] = {{2 * MIB, 22 * MIB}, {40 * MIB, 44 * MIB}};
    struct bwi_hulls h = make(r, 2, maps, 3);
    assert_int_equal(h.hull_count, 1);
    check_range(&h.hulls[0], 4, 10);
    assert_int_equal(h.inside_bytes, 6 * MIB);
    assert_int_equal(h.edge_bytes, 18 * MIB);
    bwi_hulls_fini(&h);
}

static uint64_t up_to(uint64_t *seed, uint64_t n) {
    return test_random(seed) % n;
}

/* Every byte of a range is in exactly one hull or one edge; hulls are whole units within plain mappings. */
static void check_all(const struct bwi_hulls *h, const struct bwi_range *r, size_t count, struct maps *m) {
    uint64_t inside = 0, edges = 0, runs = 0;
    for (size_t i = 0; i < count; i++)
        for (uint64_t at = r[i].start; at < r[i].end; at += 128 << 10)
            assert_true((bwi_range_find(h->hulls, h->hull_count, at) == SIZE_MAX) !=
                        (bwi_range_find(h->edges, h->edge_count, at) == SIZE_MAX));
    for (size_t i = 0; i < h->run_count; i++) runs += h->runs[i].end - h->runs[i].start;
    for (size_t i = 0; i < h->edge_count; i++) {
        edges += h->edges[i].end - h->edges[i].start;
        assert_true(i == 0 || h->edges[i].start >= h->edges[i - 1].end);
        assert_true(bwi_range_find(h->runs, h->run_count, h->edges[i].start) != SIZE_MAX);
    }
    for (size_t i = 0; i < h->hull_count; i++) {
        const struct bwi_range hull = h->hulls[i];
        struct bwi_mapping in = {0};
        assert_true(hull.start % BWI_UNIT == 0 && hull.end % BWI_UNIT == 0 && hull.start < hull.end);
        assert_true(i == 0 || hull.start >= h->hulls[i - 1].end);
        assert_int_equal(find(m, hull.start, &in), 0);
        assert_true(in.plain && in.start <= hull.start && hull.end <= in.end);
        for (size_t k = 0; k < h->run_count; k++) {
            const uint64_t from = h->runs[k].start > hull.start ? h->runs[k].start : hull.start;
            const uint64_t to = h->runs[k].end < hull.end ? h->runs[k].end : hull.end;
            if (from < to) inside += to - from;
        }
    }
    assert_int_equal(edges, h->edge_bytes);
    assert_int_equal(inside, h->inside_bytes);
    assert_int_equal(inside + edges, runs);
}

static void random_layouts_lose_nothing(void **state) {
    (void)state;
    uint64_t seed = test_seed(31);
    for (int round = 0; round < 300; round++) {
        struct bwi_mapping maps[8];
        struct bwi_range r[40];
        uint64_t at = 0;
        const size_t map_count = 1 + up_to(&seed, 8), count = 1 + up_to(&seed, 40);
        for (size_t i = 0; i < map_count; i++) {
            at += up_to(&seed, 3) * 4096 * up_to(&seed, 1000);
            maps[i] = (struct bwi_mapping){at, at + 4096 * (1 + up_to(&seed, 10000)), up_to(&seed, 4) != 0};
            at = maps[i].end;
        }
        for (size_t i = 0; i < count; i++) {
            r[i].start = up_to(&seed, at + MIB);
            r[i].end = r[i].start + (up_to(&seed, 2) ? up_to(&seed, 20 * MIB) : up_to(&seed, 100000));
        }
        struct maps m = {maps, map_count};
        struct bwi_hulls h = make(r, count, maps, map_count);
        check_all(&h, r, count, &m);
        bwi_hulls_fini(&h);
    }
}

static void missing_memory_is_told_and_leaves_nothing(void **state) {
    (void)state;
    const struct bwi_range r[] = {{3 * MIB, 9 * MIB}, {900 * MIB, 950 * MIB}};
    struct maps m = {one, 1};
    struct bwi_hulls h;
    (void)bwi_alloc_fail_at(0);
    const long live = bwi_alloc_live();
    int rc = BW_E_NOMEM;
    for (unsigned long n = 1; rc != 0; n++) {
        struct bw_error err = BW_ERROR_INIT;
        (void)bwi_alloc_fail_at(n);
        rc = bwi_hulls_make(r, 2, find, &m, &h, &err);
        (void)bwi_alloc_fail_at(0);
        assert_true(rc == 0 || rc == BW_E_NOMEM);
        if (rc != 0) assert_int_equal(bwi_alloc_live(), live);
    }
    bwi_hulls_fini(&h);
    assert_int_equal(bwi_alloc_live(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hull_is_rounded_in_and_the_rest_are_edges),
        cmocka_unit_test(small_gaps_are_bridged_and_large_ones_are_not),
        cmocka_unit_test(a_gap_larger_than_what_lies_around_it_is_not_bridged),
        cmocka_unit_test(few_bytes_far_from_each_other_are_no_hull),
        cmocka_unit_test(touching_and_overlapping_ranges_are_one_run),
        cmocka_unit_test(no_gap_between_mappings_is_bridged),
        cmocka_unit_test(memory_that_is_not_plain_or_not_there_is_an_edge),
        cmocka_unit_test(random_layouts_lose_nothing),
        cmocka_unit_test(missing_memory_is_told_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
