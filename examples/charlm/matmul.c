/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tile of 4 x 8 sums stays in registers while k runs from 0 upwards. The order of the additions is thus fixed by the
 * source and by nothing else: vectors are of a fixed width, and the compiler may not change the order (no -ffast-math).
 */
#include "matmul.h"

#include <string.h>

/* Four floats, which every 64-bit x86 and ARM machine has in one register. */
typedef float quad __attribute__((vector_size(16)));
#define QUAD  4
#define QUADS (MATMUL_COLS / QUAD)

static quad load(const float *from) {
    quad q;
    memcpy(&q, from, sizeof q);
    return q;
}

/* a(i, l) is a[i * a_row + l * a_col]: one tile for both ways to store a. */
static void tile(size_t n, size_t k, const float *restrict a, size_t a_row, size_t a_col, const float *restrict b,
                 float *restrict c) {
    quad sum[MATMUL_ROWS][QUADS];
    for (size_t i = 0; i < MATMUL_ROWS; i++)
        for (size_t j = 0; j < QUADS; j++) sum[i][j] = load(c + i * n + j * QUAD);
    for (size_t l = 0; l < k; l++) {
        const quad left = load(b + l * n), right = load(b + l * n + QUAD);
        for (size_t i = 0; i < MATMUL_ROWS; i++) {
            const float factor = a[i * a_row + l * a_col];
            sum[i][0] += factor * left;
            sum[i][1] += factor * right;
        }
    }
    for (size_t i = 0; i < MATMUL_ROWS; i++) memcpy(c + i * n, sum[i], sizeof sum[i]);
}

void matmul_add(size_t m, size_t n, size_t k, const float *a, const float *b, float *c) {
    for (size_t j = 0; j < n; j += MATMUL_COLS)
        for (size_t i = 0; i < m; i += MATMUL_ROWS) tile(n, k, a + i * k, k, 1, b + j, c + i * n + j);
}

void matmul_tn_add(size_t m, size_t n, size_t k, const float *a, const float *b, float *c) {
    for (size_t j = 0; j < n; j += MATMUL_COLS)
        for (size_t i = 0; i < m; i += MATMUL_ROWS) tile(n, k, a + i, 1, m, b + j, c + i * n + j);
}

void transpose(size_t rows, size_t cols, const float *from, float *to) {
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) to[c * rows + r] = from[r * cols + c];
}

void column_sums_add(size_t rows, size_t cols, const float *from, float *to) {
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) to[c] += from[r * cols + c];
}
