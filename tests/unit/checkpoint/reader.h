/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a fixture's checkpoint back in tests: calls that run to their end, and a check of every element against
 * what it has to be. */
#ifndef BW_TEST_CHECKPOINT_READER_H
#define BW_TEST_CHECKPOINT_READER_H

#include "checkpoint/restore.h"
#include "fixture.h"

struct reader {
    struct fixture *f;
    struct bwi_restore *r;
    struct bw_error error; /* of the last call */
    size_t got_bytes;
};

static inline struct bwi_restore_target reader_target(const struct fixture *f, bool committed) {
    return (struct bwi_restore_target){.id = f->id,
                                       .committed = committed,
                                       .manifest = f->manifest,
                                       .world = f->world,
                                       .groups = f->world,
                                       .uuid = f->uuid,
                                       .may_repair = true,
                                       .io_timeout_ns = 120 * BWI_NS_PER_S};
}

static inline void reader_open(struct reader *x, struct fixture *f, const struct bwi_restore_target *t) {
    struct bw_error err = BW_ERROR_INIT;
    *x = (struct reader){.f = f};
    assert_ok(bwi_restore_new(&f->w->ctx, t, &x->r, &err), &err);
}

static inline void reader_close(struct reader *x) {
    bwi_restore_free(x->r);
    x->r = NULL;
}

static inline int reader_call(struct reader *x, struct bwi_restore_call *c) {
    c->r = x->r;
    bwi_restore_call_start(c, x->f->w->loop, NULL);
    world_run(x->f->w);
    assert_int_equal(c->task.pending, 0);
    assert_null(c->w);
    x->error = c->task.error;
    x->got_bytes = c->got_bytes;
    return x->error.status;
}

static inline int reader_ask(struct reader *x, enum bwi_restore_what what, const char *name, uint32_t rank) {
    struct bwi_restore_call c = {.what = what, .name = name, .rank = rank};
    return reader_call(x, &c);
}

static inline int reader_read(struct reader *x, const struct bw_slice *slices, size_t n) {
    struct bwi_restore_call c = {.what = BWI_RESTORE_READ, .slices = slices, .slice_count = n};
    return reader_call(x, &c);
}

static inline int reader_blob(struct reader *x, uint32_t rank, const char *name, void *buf, size_t bytes) {
    struct bwi_restore_call c = {.what = BWI_RESTORE_BLOB, .rank = rank, .name = name, .buf = buf, .buf_bytes = bytes};
    return reader_call(x, &c);
}

/* A slice of a fixture's tensor with memory of its own, all 0xee before. */
struct piece {
    const struct fixture *f;
    size_t tensor;
    uint64_t offset[4], extent[4];
    int64_t stride[4];
    uint8_t *memory;
    uint64_t bytes;
    struct bw_slice slice;
};

static inline uint64_t piece_count(const struct piece *p) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < p->f->tensors[p->tensor].dims; d++) n *= p->extent[d];
    return n;
}

static inline void piece_make(struct piece *p, const struct fixture *f, size_t tensor, const uint64_t *offset,
                              const uint64_t *extent) {
    const struct fixture_tensor *t = &f->tensors[tensor];
    *p = (struct piece){.f = f, .tensor = tensor};
    for (uint32_t d = 0; d < t->dims; d++) {
        p->offset[d] = offset[d];
        p->extent[d] = extent[d];
    }
    p->bytes = piece_count(p) * bw_dtype_bytes(t->dtype);
    p->memory = bwi_malloc(p->bytes + 1);
    assert_non_null(p->memory);
    memset(p->memory, 0xee, p->bytes + 1);
    p->slice = (struct bw_slice)BW_SLICE_INIT;
    p->slice.dtype = (uint32_t)t->dtype;
    p->slice.name = t->name;
    p->slice.data = p->memory;
    p->slice.dims = t->dims;
    p->slice.shape = t->shape;
    p->slice.offset = p->offset;
    p->slice.extent = p->extent;
}

/* The memory is the box with its dimensions in the opposite order. */
static inline void piece_transpose(struct piece *p) {
    const struct fixture_tensor *t = &p->f->tensors[p->tensor];
    int64_t step = (int64_t)bw_dtype_bytes(t->dtype);
    for (uint32_t d = 0; d < t->dims; d++) {
        p->stride[d] = step;
        step *= (int64_t)p->extent[d];
    }
    p->slice.stride_bytes = p->stride;
}

/* Which elements differ from what they have to be. */
static inline uint64_t piece_wrong(const struct piece *p) {
    const struct fixture_tensor *t = &p->f->tensors[p->tensor];
    const size_t elem = bw_dtype_bytes(t->dtype);
    const uint64_t count = piece_count(p);
    uint64_t wrong = p->memory[p->bytes] != 0xee;
    for (uint64_t i = 0; i < count; i++) {
        uint8_t want[16];
        uint64_t left = i;
        uint64_t pitch = 1;
        uint64_t number = 0;
        int64_t at = 0;
        uint64_t index[4] = {0};
        for (uint32_t d = t->dims; d-- > 0;) {
            index[d] = left % p->extent[d];
            left /= p->extent[d];
            number += (p->offset[d] + index[d]) * pitch;
            pitch *= t->shape[d];
        }
        for (uint32_t d = 0; d < t->dims; d++) {
            at += p->slice.stride_bytes == NULL ? 0 : (int64_t)index[d] * p->stride[d];
        }
        if (p->slice.stride_bytes == NULL) at = (int64_t)(i * elem);
        fixture_element(p->f, p->tensor, number, want);
        wrong += memcmp(p->memory + at, want, elem) != 0;
    }
    return wrong;
}

/* All tensors, whole. Returns the status; when it is 0 every element has been checked. */
static inline int reader_all(struct reader *x) {
    struct piece pieces[FIXTURE_TENSORS];
    struct bw_slice slices[FIXTURE_TENSORS];
    const uint64_t zero[4] = {0};
    for (size_t i = 0; i < x->f->tensor_count; i++) {
        piece_make(&pieces[i], x->f, i, zero, x->f->tensors[i].shape);
        slices[i] = pieces[i].slice;
    }
    const int rc = reader_read(x, slices, x->f->tensor_count);
    for (size_t i = 0; i < x->f->tensor_count; i++) {
        if (rc == 0) assert_int_equal(piece_wrong(&pieces[i]), 0);
        bwi_free(pieces[i].memory);
    }
    return rc;
}

#endif
