/* SPDX-License-Identifier: Apache-2.0 */
/* Whether work grows with what is worked on, and not with its square. The processor's time for a size is compared with
 * that for a tenth of it in the same run, so it does not matter how fast the machine is. */
#ifndef BW_TEST_GROWTH_H
#define BW_TEST_GROWTH_H

#include "sanitized.h"
#include "test.h"
#include <time.h>

/* Ten times as much takes about 10 times the time, with sorting and fuller caches perhaps 20; a square takes 100. */
#define GROWTH_MAX 40.0
/* What takes less than this for a tenth is as good as nothing. */
#define GROWTH_NOTHING_S 100e-6

static inline double seconds_since(clock_t start) {
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* `seconds_of` does the work on n things, checks what comes out, and returns how long the work alone took. Noise only
 * ever adds, so the least of a few times counts. */
static inline void assert_no_square(double (*seconds_of)(size_t n), size_t n) {
    double few = 1e9, many = 1e9;
    for (int round = 0; round < FULL_OR(3, 1); round++) {
        const double a = seconds_of(n / 10), b = seconds_of(n);
        few = a < few ? a : few;
        many = b < many ? b : many;
    }
    few = few < GROWTH_NOTHING_S ? GROWTH_NOTHING_S : few;
    print_message("%zu take %.2f ms, %zu take %.2f ms\n", n / 10, 1e3 * few, n, 1e3 * many);
    if (!SANITIZED) assert_true(many <= GROWTH_MAX * few);
}

#endif
