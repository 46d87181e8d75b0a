/* SPDX-License-Identifier: Apache-2.0 */
/* Copying past the caches is a copy: of every length, between any two alignments, and nothing beside it is touched. */
#include "base/copy.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

#define MARGIN 128u
#define MOST   ((size_t)200 << 10)

static void fill(uint8_t *p, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(test_random(&seed) >> 32);
}

static void check(const uint8_t *pattern, size_t n, size_t from, size_t to) {
    uint8_t *src = malloc(n + from + 1), *dst = malloc(n + to + MARGIN); /* to the byte, for a sanitizer */
    assert_true(src != NULL && dst != NULL);
    memcpy(src + from, pattern, n);
    void (*const ways[])(void *, const void *, size_t) = {bwi_copy_past_cache, bwi_copy_past_cache_baseline};
    for (size_t way = 0; way < 2; way++) {
        memset(dst, 0xa5, n + to + MARGIN);
        ways[way](dst + to, src + from, n);
        assert_memory_equal(dst + to, pattern, n);
        for (size_t i = 0; i < to; i++) assert_int_equal(dst[i], 0xa5);
        for (size_t i = to + n; i < to + n + MARGIN; i++) assert_int_equal(dst[i], 0xa5);
    }
    free(src);
    free(dst);
}

static void lengths_around_every_edge_are_copied(void **state) {
    (void)state;
    uint8_t *pattern = malloc(MOST);
    fill(pattern, MOST, 7);
    const size_t edges[] = {0,    1,     63,    64,    4095,  4096,  4097,  4159,     4160,
                            8192, 16383, 16384, 16447, 16448, 65599, 98304, MOST - 1, MOST};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) check(pattern, edges[i], 0, 0);
    free(pattern);
}

static void alignments_of_either_side_do_not_matter(void **state) {
    (void)state;
    uint8_t *pattern = malloc(MOST);
    fill(pattern, MOST, 8);
    const size_t offsets[] = {0, 1, 15, 16, 17, 31, 32, 33, 63};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
        for (size_t j = 0; j < sizeof offsets / sizeof *offsets; j++)
            for (size_t n = 4096; n < MOST - 4096; n *= 3) check(pattern, n + 1234 + i, offsets[i], offsets[j]);
    free(pattern);
}

static void random_copies_are_exact(void **state) {
    (void)state;
    uint8_t *pattern = malloc(MOST);
    fill(pattern, MOST, 9);
    uint64_t seed = 10;
    for (int i = 0; i < 200; i++)
        check(pattern, test_random(&seed) % MOST, test_random(&seed) % 64, test_random(&seed) % 64);
    free(pattern);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_around_every_edge_are_copied),
        cmocka_unit_test(alignments_of_either_side_do_not_matter),
        cmocka_unit_test(random_copies_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
