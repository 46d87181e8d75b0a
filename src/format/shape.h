/* SPDX-License-Identifier: Apache-2.0 */
/* Names, dtypes, shapes and boxes of tensors: the rules that layout and index share, and how messages show them. */
#ifndef BWI_FORMAT_SHAPE_H
#define BWI_FORMAT_SHAPE_H

#include "format/head.h"

/* What a tensor is, in front of its boxes. */
struct bwi_shape {
    struct bwi_span name;
    uint8_t dtype, dims;
    const uint64_t *sizes; /* dims of them */
};

/* Product of the sizes times the element's bytes; 0 if a size is 0. false: the product of those that are not 0 does not
 * fit 64 bits, so that no partial product ever overflows, in whatever order it is taken. */
bool bwi_shape_bytes(uint8_t dtype, uint8_t dims, const uint64_t *sizes, uint64_t *ret_bytes);

/* Equal in all dims numbers; with 0 dims always, whatever the pointers are. */
bool bwi_shape_same(uint8_t dims, const uint64_t *a, const uint64_t *b);

/* 1 .. BWI_TENSOR_NAME_MAX bytes of UTF-8 without NUL. noun: "tensor", "blob". */
int bwi_shape_name_check(const struct bwi_blame *b, const char *noun, struct bwi_span name);
/* Name, dtype, number of dimensions, sizes. */
int bwi_shape_check(const struct bwi_blame *b, const struct bwi_shape *s);
/* The box lies in the shape: offset + extent <= size in each dimension. */
int bwi_shape_box_check(const struct bwi_blame *b, const struct bwi_shape *s, const uint64_t *offset,
                        const uint64_t *extent);
/* The names of two neighbours ascend. */
int bwi_shape_order_check(const struct bwi_blame *b, const char *noun, struct bwi_span before, struct bwi_span after);

/* For messages: a name in quotes, cut if it is long, and "F32 [4, 8]". */
struct bwi_shape_text {
    char s[120];
};
struct bwi_shape_text bwi_shape_name_text(struct bwi_span name);
struct bwi_shape_text bwi_shape_text(uint8_t dtype, uint8_t dims, const uint64_t *sizes);

#endif
