/* SPDX-License-Identifier: Apache-2.0 */
/* Slices: what a caller asks for is checked before a byte is read, against itself and then against the checkpoint. */
#include "base/checked.h"
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/restore_private.h"
#include "format/shape.h"
#include <breakwater/tensor.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct bwi_shape_text name_of(const char *name) {
    return bwi_shape_name_text(bwi_span_str(name));
}

/* ---- by itself ---- */

static int check_shape(const struct bw_slice *s, size_t i, struct bw_error *err) {
    if (s->struct_size != sizeof *s) {
        return bwi_error_set(err, BW_E_INVALID, "slice %zu: struct_size is %" PRIu32 ", expected %zu", i,
                             s->struct_size, sizeof *s);
    }
    if (s->name == NULL) return bwi_error_set(err, BW_E_INVALID, "slice %zu: name is NULL", i);
    if (s->reserved != 0) {
        return bwi_error_set(err, BW_E_INVALID, "slice of tensor %s: reserved is %" PRIu32 ", expected 0",
                             name_of(s->name).s, s->reserved);
    }
    if (s->dtype > UINT8_MAX || bw_dtype_bytes((int)s->dtype) == 0) {
        return bwi_error_set(err, BW_E_INVALID, "slice of tensor %s: unknown dtype %" PRIu32, name_of(s->name).s,
                             s->dtype);
    }
    if (s->dims > BWI_DIMS_MAX) {
        return bwi_error_set(err, BW_E_LIMIT, "slice of tensor %s: %" PRIu32 " dims, the limit is %d",
                             name_of(s->name).s, s->dims, BWI_DIMS_MAX);
    }
    return 0;
}

int bwi_restore_slices_shape(const struct bw_slice *slices, size_t n, struct bw_error *err) {
    int rc = 0;
    if (n > 0 && slices == NULL) return bwi_error_set(err, BW_E_INVALID, "read: slices is NULL, with %zu slices", n);
    for (size_t i = 0; i < n && rc == 0; i++) rc = check_shape(&slices[i], i, err);
    return rc;
}

/* ---- against the tensor ---- */

static int check_type(const struct bw_slice *s, const struct bwi_index_tensor *t, struct bw_error *err) {
    if (s->dtype != t->dtype) {
        return bwi_error_set(err, BW_E_MISMATCH, "tensor %s: the slice has dtype %s, the checkpoint %s",
                             name_of(s->name).s, bw_dtype_name((int)s->dtype), bw_dtype_name(t->dtype));
    }
    if (s->dims != t->dims) {
        return bwi_error_set(err, BW_E_MISMATCH, "tensor %s: the slice has %" PRIu32 " dimensions, the checkpoint %s",
                             name_of(s->name).s, s->dims, bwi_shape_text(t->dtype, t->dims, t->shape).s);
    }
    if (s->shape == NULL || bwi_shape_same(t->dims, s->shape, t->shape)) return 0;
    return bwi_error_set(err, BW_E_MISMATCH, "tensor %s: the slice expects %s, the checkpoint has %s",
                         name_of(s->name).s, bwi_shape_text(t->dtype, t->dims, s->shape).s,
                         bwi_shape_text(t->dtype, t->dims, t->shape).s);
}

static int take_box(const struct bw_slice *s, const struct bwi_index_tensor *t, struct bwi_restore_want *w,
                    struct bw_error *err) {
    for (unsigned d = 0; d < t->dims; d++) {
        w->offset[d] = s->offset == NULL ? 0 : s->offset[d];
        w->extent[d] = s->extent == NULL ? t->shape[d] : s->extent[d];
        if (w->offset[d] <= t->shape[d] && w->extent[d] <= t->shape[d] - w->offset[d]) continue;
        return bwi_error_set(err, BW_E_INVALID,
                             "slice of tensor %s: offset %" PRIu64 " + extent %" PRIu64
                             " in dimension %u is above the shape's %" PRIu64,
                             name_of(s->name).s, w->offset[d], w->extent[d], d, t->shape[d]);
    }
    (void)bwi_shape_bytes(t->dtype, t->dims, w->extent, &w->bytes); /* a part of a shape that fits */
    if (w->bytes <= INT64_MAX) return 0;
    return bwi_error_set(err, BW_E_INVALID, "slice of tensor %s: %" PRIu64 " bytes do not fit the address space",
                         name_of(s->name).s, w->bytes);
}

static void take_strides(const struct bw_slice *s, struct bwi_restore_want *w, unsigned dims, size_t elem) {
    int64_t step = (int64_t)elem;
    for (unsigned d = dims; d-- > 0;) {
        w->stride[d] = s->stride_bytes == NULL ? step : s->stride_bytes[d];
        if (w->bytes > 0) step *= (int64_t)w->extent[d]; /* all of it fits: these are the box's bytes */
    }
}

/* Every byte lies in the address space, and no two indices of a dimension share one. */
static int check_strides(const struct bwi_restore_want *w, unsigned dims, size_t elem, struct bw_error *err) {
    int64_t low = 0;
    int64_t high = (int64_t)elem;
    bool fits = true;
    for (unsigned d = 0; d < dims && fits; d++) {
        int64_t span = 0;
        const int64_t stride = w->stride[d];
        const bool single = w->extent[d] == 1;
        if (!single && stride > -(int64_t)elem && stride < (int64_t)elem) {
            return bwi_error_set(err, BW_E_INVALID,
                                 "slice of tensor %s: stride of %" PRId64
                                 " bytes in dimension %u: elements of %zu bytes overlap",
                                 name_of(w->name).s, stride, d, elem);
        }
        fits = !__builtin_mul_overflow((int64_t)(w->extent[d] - 1), stride, &span) &&
               !__builtin_add_overflow(span < 0 ? low : high, span, span < 0 ? &low : &high);
    }
    const uintptr_t at = (uintptr_t)w->to.data;
    fits = fits && low > -INT64_MAX && (uint64_t)-low <= at && (uint64_t)high <= UINTPTR_MAX - at;
    if (fits) return 0;
    return bwi_error_set(err, BW_E_INVALID, "slice of tensor %s: its strides leave the address space",
                         name_of(w->name).s);
}

static int take_slice(const struct bwi_restore *r, const struct bw_slice *s, struct bwi_restore_want *w,
                      struct bw_error *err) {
    const struct bwi_index_tensor *t = bwi_restore_find_tensor(r, bwi_span_str(s->name));
    if (t == NULL) {
        return bwi_error_set(err, BW_E_NOTFOUND, "checkpoint %s: no tensor %s", r->id_text, name_of(s->name).s);
    }
    const size_t elem = bw_dtype_bytes(t->dtype);
    w->name = s->name;
    w->tensor = t;
    int rc = check_type(s, t, err);
    if (rc == 0) rc = take_box(s, t, w, err);
    if (rc < 0) return rc;
    take_strides(s, w, t->dims, elem);
    w->to = (struct bwi_strided){s->data, t->dims, (uint8_t)elem, w->extent, w->stride};
    if (w->bytes == 0) return 0;
    if (s->data == NULL) {
        return bwi_error_set(err, BW_E_INVALID, "slice of tensor %s: data is NULL, expected room for %" PRIu64 " bytes",
                             name_of(s->name).s, w->bytes);
    }
    return check_strides(w, t->dims, elem, err);
}

/* ---- against each other ---- */

static bool is_contiguous(const struct bwi_restore_want *w) {
    int64_t step = w->to.elem_bytes;
    for (unsigned d = w->to.dims; d-- > 0;) {
        if (w->extent[d] != 1 && w->stride[d] != step) return false;
        step *= (int64_t)w->extent[d];
    }
    return true;
}

static int by_address(const void *left, const void *right) {
    const struct bwi_restore_want *const *a = left;
    const struct bwi_restore_want *const *b = right;
    const uintptr_t x = (uintptr_t)(*a)->to.data;
    const uintptr_t y = (uintptr_t)(*b)->to.data;
    return (x > y) - (x < y);
}

static int check_apart(const struct bwi_restore_want *wants, size_t n, struct bw_error *err) {
    const struct bwi_restore_want **order = bwi_calloc(n, sizeof *order);
    size_t count = 0;
    int rc = 0;
    if (order == NULL) return bwi_error_nomem(err, n * sizeof *order, "slices");
    for (size_t i = 0; i < n; i++) {
        if (wants[i].bytes > 0 && is_contiguous(&wants[i])) order[count++] = &wants[i];
    }
    if (count > 1) qsort(order, count, sizeof *order, by_address);
    for (size_t i = 1; i < count && rc == 0; i++) {
        const struct bwi_restore_want *a = order[i - 1];
        const struct bwi_restore_want *b = order[i];
        if ((uintptr_t)b->to.data - (uintptr_t)a->to.data >= a->bytes) continue;
        rc = bwi_error_set(err, BW_E_INVALID, "the memory of the slices of tensor %s and tensor %s overlaps",
                           name_of(a->name).s, name_of(b->name).s);
    }
    bwi_free(order);
    return rc;
}

int bwi_restore_slices_take(struct bwi_restore_call *c, struct bw_error *err) {
    struct bwi_restore_work *w = c->w;
    const size_t n = c->slice_count;
    w->wants = bwi_calloc(n, sizeof *w->wants);
    if (w->wants == NULL) return bwi_error_nomem(err, n * sizeof *w->wants, "slices");
    w->want_count = n;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) rc = take_slice(c->r, &c->slices[i], &w->wants[i], err);
    if (rc == 0) rc = check_apart(w->wants, n, err);
    return rc;
}
