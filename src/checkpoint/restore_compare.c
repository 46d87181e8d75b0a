/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller expects against what a checkpoint holds, before a byte is read: both lists are walked in the order of
 * names. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/restore_private.h"
#include "format/shape.h"
#include <breakwater/tensor.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct compare {
    struct bwi_restore *r;
    struct bw_error first;
    uint64_t differences;
};

static int by_name(const void *left, const void *right) {
    const struct bw_expected *const *a = left;
    const struct bw_expected *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static int check_expected(const struct bw_expected *e, size_t i, struct bw_error *err) {
    if (e->name == NULL) return bwi_error_set(err, BW_E_INVALID, "expected tensor %zu: name is NULL", i);
    const struct bwi_shape_text t = bwi_shape_name_text(bwi_span_str(e->name));
    if (e->dtype > UINT8_MAX || bw_dtype_bytes((int)e->dtype) == 0) {
        return bwi_error_set(err, BW_E_INVALID, "expected tensor %s: unknown dtype %" PRIu32, t.s, e->dtype);
    }
    if (e->dims > BWI_DIMS_MAX) {
        return bwi_error_set(err, BW_E_LIMIT, "expected tensor %s: %" PRIu32 " dims, the limit is %d", t.s, e->dims,
                             BWI_DIMS_MAX);
    }
    if (e->dims == 0 || e->shape != NULL) return 0;
    return bwi_error_set(err, BW_E_INVALID, "expected tensor %s: shape is NULL, expected %" PRIu32 " sizes", t.s,
                         e->dims);
}

static int sort(const struct bw_expected *e, size_t n, const struct bw_expected ***ret, struct bw_error *err) {
    const struct bw_expected **order = bwi_calloc(n, sizeof *order);
    if (order == NULL) {
        (void)bwi_error_nomem(err, n * sizeof *order, "expected tensors");
        return BW_E_NOMEM;
    }
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = check_expected(&e[i], i, err);
        order[i] = &e[i];
    }
    if (rc == 0 && n > 1) qsort(order, n, sizeof *order, by_name);
    for (size_t i = 1; i < n && rc == 0; i++) {
        if (strcmp(order[i - 1]->name, order[i]->name) != 0) continue;
        rc = bwi_error_set(err, BW_E_INVALID, "expected tensor %s: is there twice",
                           bwi_shape_name_text(bwi_span_str(order[i]->name)).s);
    }
    if (rc < 0) {
        bwi_free(order);
        return rc;
    }
    *ret = order;
    return 0;
}

static struct bwi_shape_text text_of(uint32_t dtype, uint32_t dims, const uint64_t *shape) {
    return bwi_shape_text((uint8_t)dtype, (uint8_t)dims, shape);
}

static void missing(struct compare *x, const struct bw_expected *e) {
    if (x->differences++ > 0) return;
    (void)bwi_error_set(&x->first, BW_E_MISMATCH, "tensor %s: expected %s, the checkpoint has no such tensor",
                        bwi_shape_name_text(bwi_span_str(e->name)).s, text_of(e->dtype, e->dims, e->shape).s);
}

static void unexpected(struct compare *x, const struct bw_tensor_info *t) {
    if (x->differences++ > 0) return;
    (void)bwi_error_set(&x->first, BW_E_MISMATCH, "tensor %s: the checkpoint has %s, expected no such tensor",
                        bwi_shape_name_text(bwi_span_str(t->name)).s, text_of(t->dtype, t->dims, t->shape).s);
}

static void compare_one(struct compare *x, const struct bw_expected *e, const struct bw_tensor_info *t) {
    if (e->dtype == t->dtype && e->dims == t->dims && bwi_shape_same((uint8_t)e->dims, e->shape, t->shape)) return;
    if (x->differences++ > 0) return;
    (void)bwi_error_set(&x->first, BW_E_MISMATCH, "tensor %s: expected %s, the checkpoint has %s",
                        bwi_shape_name_text(bwi_span_str(e->name)).s, text_of(e->dtype, e->dims, e->shape).s,
                        text_of(t->dtype, t->dims, t->shape).s);
}

static int merge(struct compare *x, const struct bw_expected *const *order, size_t n, bool subset,
                 struct bw_error *err) {
    const uint64_t tensors = x->r->head.tensors;
    size_t e = 0;
    for (uint64_t i = 0; i < tensors || e < n;) {
        struct bw_tensor_info t = {0};
        if (i < tensors) {
            const int rc = bwi_restore_get_tensor_at(x->r, i, &t, err);
            if (rc < 0) return rc;
        }
        const int side = i == tensors ? -1 : e == n ? 1 : strcmp(order[e]->name, t.name);
        if (side < 0) {
            missing(x, order[e++]);
        } else if (side > 0) {
            if (!subset) unexpected(x, &t);
            i++;
        } else {
            compare_one(x, order[e++], &t);
            i++;
        }
    }
    return 0;
}

static int conclude(struct compare *x, struct bw_error *err) {
    if (x->differences == 0) return 0;
    if (x->differences > 1) {
        const struct bw_error first = x->first;
        return bwi_error_set(err, BW_E_MISMATCH, "%s (and %" PRIu64 " more differ)", first.message, x->differences - 1);
    }
    return bwi_error_copy(err, &x->first);
}

int bwi_restore_compare(struct bwi_restore *r, const struct bw_expected *e, size_t n, uint32_t flags,
                        struct bw_error *err) {
    struct compare x = {.r = r};
    const struct bw_expected **order = NULL;
    if ((flags & ~BW_CHECK_SUBSET) != 0) {
        return bwi_error_set(err, BW_E_INVALID, "check: unknown flags %#" PRIx32, flags);
    }
    if (n > 0 && e == NULL) return bwi_error_set(err, BW_E_INVALID, "check: expected is NULL, with %zu tensors", n);
    if (!r->head_set) {
        return bwi_error_set(err, BW_E_STATE, "checkpoint %s: its index has not been read yet", r->id_text);
    }
    int rc = sort(e, n, &order, err);
    if (rc == 0) rc = merge(&x, order, n, (flags & BW_CHECK_SUBSET) != 0, err);
    if (rc == 0) rc = conclude(&x, err);
    bwi_free(order);
    return rc;
}
