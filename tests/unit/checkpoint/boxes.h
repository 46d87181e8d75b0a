/* SPDX-License-Identifier: Apache-2.0 */
/* Random boxes in strided memory, and the slow, obvious way to walk them: what the tests of capture, plan and
 * intersect hold the fast ways against. */
#ifndef BW_TEST_BOXES_H
#define BW_TEST_BOXES_H

#include "checkpoint/plan.h"
#include "test.h"
#include <breakwater/tensor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline uint64_t below(uint64_t *rng, uint64_t n) {
    return test_random(rng) % n;
}

static inline uint64_t elements(unsigned dims, const uint64_t *extent) {
    uint64_t n = 1;
    for (unsigned d = 0; d < dims; d++) n *= extent[d];
    return n;
}

/* Index of the i-th element in row-major order. */
static inline void unravel(unsigned dims, const uint64_t *extent, uint64_t i, uint64_t *ret_index) {
    for (unsigned d = dims; d-- > 0;) {
        ret_index[d] = i % extent[d];
        i /= extent[d];
    }
}

static inline int64_t element_offset(unsigned dims, const uint64_t *index, const int64_t *stride) {
    int64_t at = 0;
    for (unsigned d = 0; d < dims; d++) at += (int64_t)index[d] * stride[d];
    return at;
}

/* Exactly the memory that a box reaches, so that a sanitizer sees every step beside it. */
struct memory {
    uint8_t *ptr;
    size_t bytes;
    size_t first; /* of the element with index 0 in every dimension */
};

static inline struct memory memory_for(unsigned dims, size_t elem, const uint64_t *extent, const int64_t *stride) {
    int64_t low = 0;
    int64_t high = 0;
    for (unsigned d = 0; d < dims; d++) {
        if (extent[d] == 0) return (struct memory){malloc(1), 0, 0};
        const int64_t span = (int64_t)(extent[d] - 1) * stride[d];
        *(span < 0 ? &low : &high) += span;
    }
    const size_t bytes = (size_t)(high - low) + elem;
    return (struct memory){malloc(bytes), bytes, (size_t)-low};
}

static inline void fill_random(uint64_t *rng, uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)test_random(rng);
}

/* Strides of every kind: dimensions in any order in memory, gaps, reversed, expanded. */
static inline void random_strides(uint64_t *rng, unsigned dims, size_t elem, const uint64_t *extent, int64_t *ret) {
    unsigned order[BWI_DIMS_MAX];
    const bool plain = below(rng, 3) == 0;
    for (unsigned d = 0; d < dims; d++) order[d] = dims - 1 - d;
    for (unsigned d = dims; d > 1 && !plain; d--) {
        const uint64_t with = below(rng, d);
        const unsigned t = order[d - 1];
        order[d - 1] = order[with];
        order[with] = t;
    }
    int64_t step = (int64_t)elem;
    for (unsigned i = 0; i < dims; i++) {
        const unsigned d = order[i];
        ret[d] = step;
        step *= (int64_t)(extent[d] == 0 ? 1 : extent[d]);
        if (plain) continue;
        if (below(rng, 4) == 0) step += (int64_t)below(rng, 7);
        if (below(rng, 4) == 0) ret[d] = -ret[d];
        if (below(rng, 8) == 0) ret[d] = 0;
    }
}

/* A tensor source with its numbers. A copy has to be bound again. */
struct box {
    struct bwi_tensor_source s;
    uint64_t shape[BWI_DIMS_MAX], offset[BWI_DIMS_MAX], extent[BWI_DIMS_MAX];
    int64_t stride[BWI_DIMS_MAX];
};

static inline void bind_box(struct box *b) {
    b->s.shape = b->shape;
    b->s.offset = b->offset;
    b->s.extent = b->extent;
    b->s.stride = b->stride;
}

/* On memory of its own, without a name. */
static inline struct memory random_box(uint64_t *rng, struct box *ret) {
    *ret = (struct box){0};
    bind_box(ret);
    ret->s.dtype = (uint8_t)(1 + below(rng, BW_F8_E8M0));
    ret->s.dims = (uint8_t)below(rng, 6);
    const size_t elem = bw_dtype_bytes(ret->s.dtype);
    for (unsigned d = 0; d < ret->s.dims; d++) {
        ret->extent[d] = below(rng, 20) == 0 ? 0 : 1 + below(rng, 6);
        ret->offset[d] = below(rng, 3);
        ret->shape[d] = ret->offset[d] + ret->extent[d] + below(rng, 3);
    }
    random_strides(rng, ret->s.dims, elem, ret->extent, ret->stride);
    const struct memory m = memory_for(ret->s.dims, elem, ret->extent, ret->stride);
    fill_random(rng, m.ptr, m.bytes);
    ret->s.data = m.ptr + m.first;
    ret->s.bytes = elements(ret->s.dims, ret->extent) * elem;
    return m;
}

/* The row-major image of a box, element by element. The caller frees it. */
static inline uint8_t *image_of(const struct bwi_tensor_source *s) {
    const size_t elem = bw_dtype_bytes(s->dtype);
    const uint64_t n = elements(s->dims, s->extent);
    uint8_t *image = malloc(n * elem + 1);
    assert_non_null(image);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t index[BWI_DIMS_MAX];
        unravel(s->dims, s->extent, i, index);
        memcpy(image + i * elem, s->data + element_offset(s->dims, index, s->stride), elem);
    }
    return image;
}

/* A description's tensor of a source made by hand. */
static inline struct bw_tensor tensor_of(const struct bwi_tensor_source *s, const char *name) {
    struct bw_tensor t = BW_TENSOR_INIT;
    t.name = name;
    t.dtype = s->dtype;
    t.dims = s->dims;
    t.shape = s->shape;
    t.offset = s->offset;
    t.extent = s->extent;
    t.stride_bytes = s->stride;
    t.data = s->data;
    return t;
}

#endif
