/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about names, shapes and boxes, applied alike to what is written and to what is read. */
#include "format/shape.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "format/limits.h"
#include <breakwater/tensor.h>
#include <inttypes.h>
#include <string.h>

#define NAME_SHOWN 96 /* bytes of a name in a message: several fit into one */

struct bwi_shape_text bwi_shape_name_text(struct bwi_span name) {
    struct bwi_shape_text t = {{0}};
    size_t n = name.len < NAME_SHOWN ? name.len : NAME_SHOWN;
    /* Cut between characters, not within one. */
    while (n < name.len && n > 0 && (name.ptr[n] & 0xc0) == 0x80) n--;
    (void)bwi_format(t.s, sizeof t.s, "\"%.*s%s\"", (int)n, name.ptr == NULL ? "" : (const char *)name.ptr,
                     n < name.len ? "..." : "");
    return t;
}

struct bwi_shape_text bwi_shape_text(uint8_t dtype, uint8_t dims, const uint64_t *sizes) {
    struct bwi_shape_text t = {{0}};
    (void)bwi_format(t.s, sizeof t.s, "%s [", bw_dtype_name(dtype));
    for (unsigned d = 0; d < dims; d++) {
        const size_t at = strlen(t.s);
        /* A shape of many huge sizes is cut; room for the end is kept. */
        if (at + 28 > sizeof t.s) {
            (void)bwi_format(t.s + at, sizeof t.s - at, "...");
            break;
        }
        (void)bwi_format(t.s + at, sizeof t.s - at, "%" PRIu64 "%s", sizes[d], d + 1u < dims ? ", " : "");
    }
    const size_t at = strlen(t.s);
    (void)bwi_format(t.s + at, sizeof t.s - at, "]");
    return t;
}

bool bwi_shape_bytes(uint8_t dtype, uint8_t dims, const uint64_t *sizes, uint64_t *ret_bytes) {
    uint64_t bytes = bw_dtype_bytes(dtype);
    bool empty = false;
    for (unsigned d = 0; d < dims; d++) {
        if (sizes[d] == 0) empty = true;
        if (sizes[d] != 0 && !bwi_mul_u64(bytes, sizes[d], &bytes)) return false;
    }
    *ret_bytes = empty ? 0 : bytes;
    return true;
}

bool bwi_shape_same(uint8_t dims, const uint64_t *a, const uint64_t *b) {
    return dims == 0 || memcmp(a, b, sizeof *a * dims) == 0;
}

int bwi_shape_name_check(const struct bwi_blame *b, const char *noun, struct bwi_span name) {
    if (name.len == 0) return bwi_error_set(b->err, b->broken, "%s: empty name of a %s", b->what, noun);
    const struct bwi_shape_text t = bwi_shape_name_text(name);
    if (name.len > BWI_TENSOR_NAME_MAX) {
        return bwi_error_set(b->err, b->above, "%s: %s %s: name of %zu bytes, the limit is %d", b->what, noun, t.s,
                             name.len, BWI_TENSOR_NAME_MAX);
    }
    if (bwi_utf8_valid(name)) return 0;
    return bwi_error_set(b->err, b->broken, "%s: %s %s: name is not UTF-8 without NUL", b->what, noun, t.s);
}

int bwi_shape_order_check(const struct bwi_blame *b, const char *noun, struct bwi_span before, struct bwi_span after) {
    const int order = bwi_span_cmp(before, after);
    if (order < 0) return 0;
    const struct bwi_shape_text t = bwi_shape_name_text(after);
    if (order == 0) return bwi_error_set(b->err, b->broken, "%s: two %ss are named %s", b->what, noun, t.s);
    return bwi_error_set(b->err, b->broken, "%s: %ss are not sorted: %s comes after %s", b->what, noun, t.s,
                         bwi_shape_name_text(before).s);
}

int bwi_shape_check(const struct bwi_blame *b, const struct bwi_shape *s) {
    const int rc = bwi_shape_name_check(b, "tensor", s->name);
    if (rc < 0) return rc;
    const struct bwi_shape_text t = bwi_shape_name_text(s->name);
    if (bw_dtype_bytes(s->dtype) == 0) {
        return bwi_error_set(b->err, b->broken, "%s: tensor %s: unknown dtype %u", b->what, t.s, s->dtype);
    }
    if (s->dims > BWI_DIMS_MAX) {
        return bwi_error_set(b->err, b->above, "%s: tensor %s: %u dimensions, the limit is %d", b->what, t.s, s->dims,
                             BWI_DIMS_MAX);
    }
    uint64_t bytes;
    if (bwi_shape_bytes(s->dtype, s->dims, s->sizes, &bytes)) return 0;
    return bwi_error_set(b->err, b->broken, "%s: tensor %s: bytes of %s do not fit 64 bits", b->what, t.s,
                         bwi_shape_text(s->dtype, s->dims, s->sizes).s);
}

int bwi_shape_box_check(const struct bwi_blame *b, const struct bwi_shape *s, const uint64_t *offset,
                        const uint64_t *extent) {
    for (unsigned d = 0; d < s->dims; d++) {
        if (offset[d] <= s->sizes[d] && extent[d] <= s->sizes[d] - offset[d]) continue;
        return bwi_error_set(b->err, b->broken,
                             "%s: tensor %s: box leaves the shape in dimension %u: offset %" PRIu64 ", extent %" PRIu64
                             ", size %" PRIu64,
                             b->what, bwi_shape_name_text(s->name).s, d, offset[d], extent[d], s->sizes[d]);
    }
    return 0;
}
