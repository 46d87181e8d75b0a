/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products for the model: float32, every sum in one fixed order, so results are the same bit for bit. */
#ifndef CHARLM_MATMUL_H
#define CHARLM_MATMUL_H

#include <stddef.h>

/* Dimensions m and n of every product are multiples of these. */
#define MATMUL_ROWS 4
#define MATMUL_COLS 8

/* c[m][n] += a[m][k] * b[k][n] */
void matmul_add(size_t m, size_t n, size_t k, const float *a, const float *b, float *c);

/* c[m][n] += a[k][m] transposed * b[k][n] */
void matmul_tn_add(size_t m, size_t n, size_t k, const float *a, const float *b, float *c);

/* to[cols][rows] = from[rows][cols] transposed */
void transpose(size_t rows, size_t cols, const float *from, float *to);

/* to[cols] += sum of the rows of from[rows][cols], first row first */
void column_sums_add(size_t rows, size_t cols, const float *from, float *to);

#endif
