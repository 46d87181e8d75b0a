/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank says that it holds: checked when it is said, so that everything behind it may rely on sound names,
 * boxes, sizes and addresses. Here are tensors; blobs and metadata are at the end. */
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/plan.h"
#include "format/json.h"
#include "format/shape.h"
#include <breakwater/tensor.h>
#include <inttypes.h>
#include <string.h>

/* Bytes of the oldest struct bw_tensor that is in use: all up to replica_group. */
#define TENSOR_LEAST offsetof(struct bw_tensor, replica_group)

void bwi_description_init(struct bwi_description *d) {
    *d = (struct bwi_description){0};
}

void bwi_description_fini(struct bwi_description *d) {
    if (d == NULL) return;
    bwi_free(d->tensors);
    bwi_free(d->blobs);
    bwi_map_fini(&d->names);
    bwi_map_fini(&d->blob_names);
    bwi_pile_fini(&d->kept);
    bwi_pile_fini(&d->blobs_kept);
    bwi_buf_fini(&d->metadata);
    *d = (struct bwi_description){0};
}

void bwi_description_reset(struct bwi_description *d) {
    d->known_tensors = bwi_max_u64(d->tensor_count, d->known_tensors);
    d->known_blobs = bwi_max_u64(d->blob_count, d->known_blobs);
    d->tensor_count = d->blob_count = 0;
    d->bytes = 0;
    bwi_buf_fini(&d->metadata);
}

/* ---- names ---- */

static int check_name(const char *noun, const char *name, struct bwi_span *ret, struct bw_error *err) {
    if (name == NULL) return bwi_error_set(err, BW_E_INVALID, "%s: name is NULL, expected UTF-8", noun);
    const struct bwi_span s = bwi_span(name, strnlen(name, BWI_TENSOR_NAME_MAX + 1));
    if (s.len == 0) return bwi_error_set(err, BW_E_INVALID, "%s: name is empty, expected 1 byte or more", noun);
    if (s.len > BWI_TENSOR_NAME_MAX) {
        return bwi_error_set(err, BW_E_LIMIT, "%s %s: name is longer than %d bytes, the limit", noun,
                             bwi_shape_name_text(s).s, BWI_TENSOR_NAME_MAX);
    }
    if (!bwi_utf8_valid(s))
        return bwi_error_set(err, BW_E_INVALID, "%s %s: name is not valid UTF-8", noun, bwi_shape_name_text(s).s);
    *ret = s;
    return 0;
}

static int check_new(const struct bwi_map *names, const char *noun, struct bwi_span name, struct bw_error *err) {
    if (!bwi_map_get(names, name, NULL)) return 0;
    return bwi_error_set(err, BW_E_INVALID, "%s %s: name is there already, expected each once in a rank", noun,
                         bwi_shape_name_text(name).s);
}

/* ---- a tensor, member by member; `name` is for messages, which are rare: it is quoted only there ---- */

#define QUOTED(name) bwi_shape_name_text(name).s

static int read_struct(const struct bw_tensor *tensor, struct bw_tensor *ret, struct bw_error *err) {
    if (tensor == NULL) return bwi_error_set(err, BW_E_INVALID, "tensor: NULL, expected a struct bw_tensor");
    if (tensor->struct_size < TENSOR_LEAST || tensor->struct_size > sizeof *tensor) {
        return bwi_error_set(err, BW_E_INVALID, "tensor: struct_size is %" PRIu32 ", expected %zu to %zu",
                             tensor->struct_size, TENSOR_LEAST, sizeof *tensor);
    }
    *ret = (struct bw_tensor)BW_TENSOR_INIT;
    memcpy(ret, tensor, tensor->struct_size == sizeof *tensor ? sizeof *tensor : TENSOR_LEAST);
    return 0;
}

/* Where the numbers of a tensor are put together. */
struct numbers {
    uint64_t shape[BWI_DIMS_MAX], offset[BWI_DIMS_MAX], extent[BWI_DIMS_MAX];
    int64_t stride[BWI_DIMS_MAX];
};

static int take_type(const struct bw_tensor *t, struct bwi_span name, struct bwi_tensor_source *s,
                     struct bw_error *err) {
    if (t->dtype > UINT8_MAX || bw_dtype_bytes((int)t->dtype) == 0) {
        return bwi_error_set(err, BW_E_INVALID, "tensor %s: unknown dtype %" PRIu32, QUOTED(name), t->dtype);
    }
    if (t->dims > BWI_DIMS_MAX) {
        return bwi_error_set(err, BW_E_LIMIT, "tensor %s: %" PRIu32 " dims, the limit is %d", QUOTED(name), t->dims,
                             BWI_DIMS_MAX);
    }
    if ((t->flags & ~BW_TENSOR_DEVICE) != 0) {
        return bwi_error_set(err, BW_E_INVALID, "tensor %s: flags are %#" PRIx32 ", expected BW_TENSOR_DEVICE or 0",
                             QUOTED(name), t->flags);
    }
    if (t->dims > 0 && t->shape == NULL) {
        return bwi_error_set(err, BW_E_INVALID, "tensor %s: shape is NULL, expected %" PRIu32 " sizes", QUOTED(name),
                             t->dims);
    }
    s->dtype = (uint8_t)t->dtype;
    s->dims = (uint8_t)t->dims;
    s->device = (t->flags & BW_TENSOR_DEVICE) != 0;
    return 0;
}

static int take_box(const struct bw_tensor *t, struct bwi_span name, struct numbers *n, struct bw_error *err) {
    for (unsigned d = 0; d < t->dims; d++) {
        const uint64_t shape = t->shape[d];
        const uint64_t offset = t->offset == NULL ? 0 : t->offset[d];
        const uint64_t extent = t->extent == NULL ? shape : t->extent[d];
        if (t->extent == NULL && offset != 0) {
            return bwi_error_set(err, BW_E_INVALID,
                                 "tensor %s: offset %" PRIu64 " in dimension %u without an extent, expected 0",
                                 QUOTED(name), offset, d);
        }
        if (offset > shape || extent > shape - offset) {
            return bwi_error_set(err, BW_E_INVALID,
                                 "tensor %s: offset %" PRIu64 " + extent %" PRIu64
                                 " in dimension %u is above the shape's %" PRIu64,
                                 QUOTED(name), offset, extent, d, shape);
        }
        n->shape[d] = shape;
        n->offset[d] = offset;
        n->extent[d] = extent;
    }
    return 0;
}

static int take_bytes(struct bwi_span name, struct bwi_tensor_source *s, struct bw_error *err) {
    uint64_t whole;
    if (!bwi_shape_bytes(s->dtype, s->dims, s->shape, &whole)) {
        return bwi_error_set(err, BW_E_INVALID, "tensor %s: bytes of the shape %s do not fit 64 bits", QUOTED(name),
                             bwi_shape_text(s->dtype, s->dims, s->shape).s);
    }
    /* Of a shape that fits every box fits. Signed: addresses are walked by signed strides. */
    if (bwi_shape_bytes(s->dtype, s->dims, s->extent, &s->bytes) && s->bytes <= INT64_MAX) return 0;
    return bwi_error_set(err, BW_E_INVALID, "tensor %s: bytes of the extent %s do not fit the address space",
                         QUOTED(name), bwi_shape_text(s->dtype, s->dims, s->extent).s);
}

static void take_strides(const struct bw_tensor *t, const struct bwi_tensor_source *s, struct numbers *n) {
    uint64_t step = bw_dtype_bytes(s->dtype);
    for (unsigned d = s->dims; d-- > 0;) {
        if (t->stride_bytes != NULL) {
            n->stride[d] = t->stride_bytes[d];
        } else if (s->bytes > 0) { /* else nothing is ever addressed, and the product may overflow */
            n->stride[d] = (int64_t)step;
            step *= n->extent[d];
        }
    }
}

/* How far a box reaches below and above its first element. false: farther than signed arithmetic does. */
static bool reach_of(const struct bwi_tensor_source *s, uint64_t *ret_below, uint64_t *ret_above) {
    uint64_t below = 0;
    uint64_t above = 0;
    for (unsigned d = 0; d < s->dims; d++) {
        const bool down = s->stride[d] < 0;
        const uint64_t step = down ? 0 - (uint64_t)s->stride[d] : (uint64_t)s->stride[d];
        uint64_t *side = down ? &below : &above;
        uint64_t span;
        if (!bwi_mul_u64(s->extent[d] - 1, step, &span) || !bwi_add_u64(*side, span, side) || *side > INT64_MAX) {
            return false;
        }
    }
    *ret_below = below;
    *ret_above = above;
    return true;
}

static bool is_contiguous(const struct bwi_tensor_source *s) {
    uint64_t step = bw_dtype_bytes(s->dtype);
    for (unsigned d = s->dims; d-- > 0; step *= s->extent[d])
        if (s->extent[d] > 1 && s->stride[d] != (int64_t)step) return false;
    return true;
}

static int take_data(const struct bw_tensor *t, struct bwi_span name, struct bwi_tensor_source *s,
                     struct bw_error *err) {
    s->data = t->data;
    s->contiguous = s->bytes > 0 && is_contiguous(s);
    if (s->bytes == 0) return 0;
    if (t->data == NULL) {
        return bwi_error_set(err, BW_E_INVALID, "tensor %s: data is NULL, expected %" PRIu64 " bytes", QUOTED(name),
                             s->bytes);
    }
    const uint64_t at = (uint64_t)(uintptr_t)t->data;
    uint64_t below;
    uint64_t above;
    uint64_t end;
    if (reach_of(s, &below, &above) && below <= at && bwi_add_u64(at, above, &end) &&
        bwi_add_u64(end, bw_dtype_bytes(s->dtype), &end)) {
        return 0;
    }
    return bwi_error_set(err, BW_E_INVALID, "tensor %s: stride_bytes times the extent %s leaves the address space",
                         QUOTED(name), bwi_shape_text(s->dtype, s->dims, s->extent).s);
}

static int take_replica(const struct bw_tensor *t, struct bwi_span name, struct bwi_tensor_source *s,
                        struct bw_error *err) {
    s->replica_count = t->replica_count == 0 ? 1 : t->replica_count;
    s->replica_index = t->replica_index;
    s->replica_group = t->replica_group;
    if (s->replica_count > BWI_WORLD_MAX) {
        return bwi_error_set(err, BW_E_LIMIT, "tensor %s: replica_count is %" PRIu32 ", the limit is %" PRIu32,
                             QUOTED(name), s->replica_count, BWI_WORLD_MAX);
    }
    if (s->replica_index < s->replica_count) return 0;
    return bwi_error_set(err, BW_E_INVALID,
                         "tensor %s: replica_index is %" PRIu32 ", expected it below replica_count, %" PRIu32,
                         QUOTED(name), s->replica_index, s->replica_count);
}

/* All but the name. The source points to the numbers. */
static int take_tensor(const struct bw_tensor *t, struct bwi_span name, struct numbers *n, struct bwi_tensor_source *s,
                       struct bw_error *err) {
    *s = (struct bwi_tensor_source){.shape = n->shape, .offset = n->offset, .extent = n->extent, .stride = n->stride};
    int rc = take_type(t, name, s, err);
    if (rc == 0) rc = take_box(t, name, n, err);
    if (rc == 0) rc = take_bytes(name, s, err);
    if (rc == 0) take_strides(t, s, n);
    if (rc == 0) rc = take_data(t, name, s, err);
    if (rc == 0) rc = take_replica(t, name, s, err);
    return rc;
}

/* ---- adding what was checked ---- */

/* Room in a pile for `before` bytes and, behind them, a copy of a name that `names` holds from now on, with the number
 * of its owner. */
static int keep_name(struct bwi_pile *pile, struct bwi_map *names, struct bwi_span name, size_t before, size_t number,
                     void **ret, struct bw_error *err) {
    uint8_t *kept = bwi_pile_take(pile, before + name.len + 1);
    if (kept == NULL) return bwi_error_nomem(err, before + name.len + 1, "name");
    memcpy(kept + before, name.ptr, name.len);
    kept[before + name.len] = 0;
    if (!bwi_map_put(names, bwi_span(kept + before, name.len), number, NULL, NULL)) {
        bwi_pile_rewind(pile, kept);
        return bwi_error_nomem(err, sizeof(struct bwi_map_slot), "map of names");
    }
    *ret = kept;
    return 0;
}

static const uint64_t *keep_numbers(uint64_t **at, const void *numbers, unsigned dims) {
    uint64_t *kept = *at;
    memcpy(kept, numbers, dims * sizeof *kept);
    *at += dims;
    return kept;
}

/* The name and the numbers, which were borrowed so far. */
static int keep_tensor(struct bwi_description *d, struct bwi_span name, struct bwi_tensor_source *s,
                       struct bw_error *err) {
    void *kept = NULL;
    const size_t bytes = 4 * s->dims * sizeof *s->shape;
    const int rc = keep_name(&d->kept, &d->names, name, bytes, d->tensor_count, &kept, err);
    if (rc < 0) return rc;
    uint64_t *at = kept;
    s->shape = keep_numbers(&at, s->shape, s->dims);
    s->offset = keep_numbers(&at, s->offset, s->dims);
    s->extent = keep_numbers(&at, s->extent, s->dims);
    s->stride = (const int64_t *)keep_numbers(&at, s->stride, s->dims);
    s->name = (const char *)at;
    return 0;
}

static int check_total(uint64_t described, uint64_t more, uint64_t *ret, struct bw_error *err) {
    if (bwi_add_u64(described, more, ret)) return 0;
    return bwi_error_set(err, BW_E_INVALID,
                         "description: bytes overflow: %" PRIu64 " described already and %" PRIu64 " more", described,
                         more);
}

static int add_tensor(struct bwi_description *d, struct bwi_span name, struct bwi_tensor_source *s,
                      struct bw_error *err) {
    if (d->tensor_count >= BWI_TENSORS_MAX) {
        return bwi_error_set(err, BW_E_LIMIT, "tensor %s: %zu tensors are described already, the limit",
                             bwi_shape_name_text(name).s, d->tensor_count);
    }
    uint64_t total = 0;
    int rc = check_total(d->bytes, s->bytes, &total, err);
    if (rc < 0) return rc;
    if (!bwi_vec_reserve((void **)&d->tensors, &d->tensor_cap, d->tensor_count + 1, sizeof *d->tensors)) {
        return bwi_error_nomem(err, sizeof *d->tensors, "description of a tensor");
    }
    rc = keep_tensor(d, name, s, err);
    if (rc < 0) return rc;
    d->tensors[d->tensor_count++] = *s;
    d->bytes = total;
    d->version++;
    return 0;
}

/* ---- what is known from the last time ---- */

static bool same_box(const struct bw_tensor *t, const struct bwi_tensor_source *s) {
    uint64_t step = bw_dtype_bytes(s->dtype);
    for (unsigned d = s->dims; d-- > 0;) {
        const uint64_t offset = t->offset == NULL ? 0 : t->offset[d];
        const uint64_t extent = t->extent == NULL ? t->shape[d] : t->extent[d];
        const int64_t own = s->bytes > 0 ? (int64_t)step : 0; /* as take_strides does */
        const int64_t stride = t->stride_bytes == NULL ? own : t->stride_bytes[d];
        if (t->shape[d] != s->shape[d] || offset != s->offset[d] || extent != s->extent[d] || stride != s->stride[d])
            return false;
        step *= extent;
    }
    return true;
}

/* Whether checking would lead to what is there. */
static bool is_known(const struct bw_tensor *t, const struct bwi_tensor_source *s) {
    const uint32_t replicas = t->replica_count == 0 ? 1 : t->replica_count;
    return t->name != NULL && t->data == s->data && t->dtype == s->dtype && t->dims == s->dims &&
           t->flags == (s->device ? BW_TENSOR_DEVICE : 0) && replicas == s->replica_count &&
           t->replica_index == s->replica_index && t->replica_group == s->replica_group &&
           (t->dims == 0 || t->shape != NULL) && strcmp(t->name, s->name) == 0 && same_box(t, s);
}

/* The map of the first `count` names only. A source of either kind begins with its name. */
static int forget_names(struct bwi_map *names, const void *sources, size_t size, size_t count, struct bw_error *err) {
    struct bwi_map fewer = {0};
    for (size_t i = 0; i < count; i++) {
        const char *name;
        memcpy(&name, (const char *)sources + i * size, sizeof name);
        if (bwi_map_put(&fewer, bwi_span_str(name), i, NULL, NULL)) continue;
        bwi_map_fini(&fewer);
        return bwi_error_nomem(err, sizeof(struct bwi_map_slot), "map of names");
    }
    bwi_map_fini(names);
    *names = fewer;
    return 0;
}

/* What comes is another one: nothing is known of those behind it. */
static int forget_tensors(struct bwi_description *d, struct bw_error *err) {
    if (d->tensor_count < d->known_tensors) {
        const int rc = forget_names(&d->names, d->tensors, sizeof *d->tensors, d->tensor_count, err);
        if (rc < 0) return rc;
        bwi_pile_rewind(&d->kept, d->tensors[d->tensor_count].shape);
    }
    d->known_tensors = 0;
    d->version++;
    return 0;
}

static int forget_blobs(struct bwi_description *d, struct bw_error *err) {
    if (d->blob_count < d->known_blobs) {
        const int rc = forget_names(&d->blob_names, d->blobs, sizeof *d->blobs, d->blob_count, err);
        if (rc < 0) return rc;
        bwi_pile_rewind(&d->blobs_kept, d->blobs[d->blob_count].name);
    }
    d->known_blobs = 0;
    d->version++;
    return 0;
}

/* The usual case: a trainer describes at each save what it has described at the last one. */
static bool take_known(struct bwi_description *d, const struct bw_tensor *t) {
    const struct bwi_tensor_source *s = &d->tensors[d->tensor_count];
    if (d->tensor_count >= d->known_tensors || !is_known(t, s) || !bwi_add_u64(d->bytes, s->bytes, &d->bytes))
        return false;
    d->tensor_count++;
    return true;
}

static int add_new(struct bwi_description *d, const struct bw_tensor *t, struct bwi_span name, struct bw_error *err) {
    struct numbers n = {0};
    struct bwi_tensor_source s;
    const int rc = take_tensor(t, name, &n, &s, err);
    return rc < 0 ? rc : add_tensor(d, name, &s, err);
}

int bwi_description_tensor(struct bwi_description *d, const struct bw_tensor *t, struct bw_error *err) {
    struct bw_tensor given;
    struct bwi_span name;
    int rc = read_struct(t, &given, err);
    if (rc == 0 && take_known(d, &given)) return 0;
    if (rc == 0 && d->known_tensors > 0) rc = forget_tensors(d, err);
    if (rc == 0) rc = check_name("tensor", given.name, &name, err);
    if (rc == 0) rc = check_new(&d->names, "tensor", name, err);
    if (rc == 0) rc = add_new(d, &given, name, err);
    return rc;
}

/* ---- blobs ---- */

static int take_blob(struct bwi_span name, const void *bytes, size_t n, struct bwi_blob_source *s,
                     struct bw_error *err) {
    uint64_t end;
    if (n > 0 && bytes == NULL) {
        return bwi_error_set(err, BW_E_INVALID, "blob %s: bytes is NULL, expected %zu bytes",
                             bwi_shape_name_text(name).s, n);
    }
    if (!bwi_add_u64((uint64_t)(uintptr_t)bytes, n, &end)) {
        return bwi_error_set(err, BW_E_INVALID, "blob %s: %zu bytes leave the address space",
                             bwi_shape_name_text(name).s, n);
    }
    *s = (struct bwi_blob_source){NULL, bytes, n};
    return 0;
}

static int add_blob(struct bwi_description *d, struct bwi_span name, struct bwi_blob_source *s, struct bw_error *err) {
    if (d->blob_count >= BWI_BLOBS_MAX) {
        return bwi_error_set(err, BW_E_LIMIT, "blob %s: %zu blobs are described already, the limit",
                             bwi_shape_name_text(name).s, d->blob_count);
    }
    uint64_t total = 0;
    int rc = check_total(d->bytes, s->bytes, &total, err);
    if (rc < 0) return rc;
    if (!bwi_vec_reserve((void **)&d->blobs, &d->blob_cap, d->blob_count + 1, sizeof *d->blobs)) {
        return bwi_error_nomem(err, sizeof *d->blobs, "description of a blob");
    }
    void *kept = NULL;
    rc = keep_name(&d->blobs_kept, &d->blob_names, name, 0, d->blob_count, &kept, err);
    if (rc < 0) return rc;
    s->name = kept;
    d->blobs[d->blob_count++] = *s;
    d->bytes = total;
    d->version++;
    return 0;
}

static bool is_known_blob(const struct bwi_description *d, struct bwi_span name) {
    return d->blob_count < d->known_blobs && bwi_span_eq(name, bwi_span_str(d->blobs[d->blob_count].name));
}

/* The name stays; where the bytes lie is another place each time, and how many there are may be another number. */
static int take_known_blob(struct bwi_description *d, const struct bwi_blob_source *s, struct bw_error *err) {
    struct bwi_blob_source *known = &d->blobs[d->blob_count];
    const int rc = check_total(d->bytes, s->bytes, &d->bytes, err);
    if (rc < 0) return rc;
    if (known->bytes != s->bytes) d->version++;
    known->data = s->data;
    known->bytes = s->bytes;
    d->blob_count++;
    return 0;
}

int bwi_description_blob(struct bwi_description *d, const char *name, const void *bytes, size_t n,
                         struct bw_error *err) {
    struct bwi_span s;
    struct bwi_blob_source blob;
    int rc = check_name("blob", name, &s, err);
    const bool known = rc == 0 && is_known_blob(d, s);
    if (rc == 0 && !known && d->known_blobs > 0) rc = forget_blobs(d, err);
    if (rc == 0 && !known) rc = check_new(&d->blob_names, "blob", s, err);
    if (rc == 0) rc = take_blob(s, bytes, n, &blob, err);
    if (rc == 0) rc = known ? take_known_blob(d, &blob, err) : add_blob(d, s, &blob, err);
    return rc;
}

/* ---- metadata ---- */

#define REAL_BYTES 32 /* of a real with 17 digits, sign and exponent */

static int append(const char *text, size_t bytes, void *to) {
    struct bwi_buf *out = to;
    bwi_buf_put(out, text, bytes);
    return out->failed ? -1 : 0;
}

/* Bit for bit: -0.0 is not 0.0. */
static bool same_double(double a, double b) {
    uint64_t bits[2];
    memcpy(&bits[0], &a, sizeof a);
    memcpy(&bits[1], &b, sizeof b);
    return bits[0] == bits[1];
}

/* Writes a real with the fewest digits that bring it back; `text` has it with 17, which always do. */
static bool put_shortest(const char *text, size_t bytes, struct bwi_buf *out) {
    char shorter[REAL_BYTES];
    json_t *real = json_loadb(text, bytes, JSON_DECODE_ANY, NULL);
    bool found = false;
    for (size_t digits = 15; real != NULL && !found && digits < 17; digits++) {
        const size_t n = json_dumpb(real, shorter, sizeof shorter, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        json_t *again = n <= sizeof shorter ? json_loadb(shorter, n, JSON_DECODE_ANY, NULL) : NULL;
        found = json_is_real(again) && same_double(json_real_value(real), json_real_value(again));
        if (found) bwi_buf_put(out, shorter, n);
        json_decref(again);
    }
    if (!found) bwi_buf_put(out, text, bytes);
    json_decref(real);
    return real != NULL && !out->failed;
}

/* Copies JSON without blanks, with every real as short as it can be. */
static bool shorten_reals(const struct bwi_buf *from, struct bwi_buf *out) {
    const char *text = (const char *)from->ptr;
    bool ok = true;
    for (size_t at = 0; ok && at < from->len;) {
        size_t end = at + 1;
        const bool number = text[at] == '-' || (text[at] >= '0' && text[at] <= '9');
        if (number) {
            while (end < from->len && text[end] != '\0' && strchr("0123456789+-.eE", text[end]) != NULL) end++;
        } else if (text[at] == '"') {
            for (; text[end] != '"'; end++) end += text[end] == '\\';
            end++;
        }
        const bool real =
            number && (memchr(text + at, '.', end - at) != NULL || memchr(text + at, 'e', end - at) != NULL);
        if (real)
            ok = put_shortest(text + at, end - at, out);
        else
            bwi_buf_put(out, text + at, end - at);
        at = end;
    }
    return ok && !out->failed;
}

/* Users put learning rates here, so reals are allowed: 0.1 is to come back as 0.1, and each as what it was. */
static int canonical_of(const json_t *object, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_buf exact = {0};
    bool ok = json_dump_callback(object, append, &exact, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(17)) == 0;
    ok = ok && shorten_reals(&exact, out);
    bwi_buf_fini(&exact);
    if (!ok) return bwi_error_nomem(err, out->len + 1, "metadata");
    if (out->len <= BWI_METADATA_MAX) return 0;
    return bwi_error_set(err, BW_E_LIMIT, "metadata: %zu bytes in canonical form, the limit is %" PRIu32, out->len,
                         BWI_METADATA_MAX);
}

/* Where the parser could not even begin, it gives no reason, and without one it has no code. Not all of it can be told:
 * it does not look whether its buffer for one token could grow (lex_save in load.c of jansson 2.14), so one of 16 bytes
 * or more for which there was no memory is called malformed, or an assertion ends the process. What is in a store is
 * parsed by bwi_json_read, without it; that has no reals. */
static bool had_no_memory(const json_error_t *why) {
    return why->text[0] == '\0' || json_error_code(why) == json_error_out_of_memory;
}

static int parse_metadata(const char *json, size_t bytes, json_t **ret, struct bw_error *err) {
    json_error_t why;
    json_t *v = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &why);
    if (v == NULL && had_no_memory(&why)) {
        return bwi_error_nomem(err, bytes, "metadata");
    }
    if (v == NULL) {
        return bwi_error_set(err, BW_E_INVALID, "metadata: expected a JSON object, at byte %d: %s", why.position,
                             why.text);
    }
    if (json_is_object(v)) {
        *ret = v;
        return 0;
    }
    json_decref(v);
    return bwi_error_set(err, BW_E_INVALID, "metadata: expected a JSON object, found an array");
}

int bwi_description_metadata(struct bwi_description *d, const char *json, struct bw_error *err) {
    if (json == NULL) return bwi_error_set(err, BW_E_INVALID, "metadata: NULL, expected a JSON object");
    const size_t bytes = strnlen(json, (size_t)BWI_METADATA_MAX + 1);
    if (bytes > BWI_METADATA_MAX) {
        return bwi_error_set(err, BW_E_LIMIT, "metadata: longer than %" PRIu32 " bytes, the limit", BWI_METADATA_MAX);
    }
    json_t *object = NULL;
    int rc = parse_metadata(json, bytes, &object, err);
    if (rc < 0) return rc;
    struct bwi_buf text = {0};
    rc = canonical_of(object, &text, err);
    json_decref(object);
    if (rc < 0) {
        bwi_buf_fini(&text);
        return rc;
    }
    bwi_buf_fini(&d->metadata);
    d->metadata = text;
    return 0;
}
