/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller says that it holds: any numbers in struct bw_tensor. What is accepted never leaves the memory that it
 * was given with, and its plan has a layout that is read back. Said once more it is the same, and its plan is used
 * again unless something was refused.
 * Reaches src/checkpoint/description.c src/checkpoint/owner.c src/checkpoint/plan.c src/checkpoint/plan_pack.c */
#include "checkpoint/plan.h"
#include "fuzz.h"

enum { TENSORS = 6, MEMORY = 4096 };

static uint8_t memory[MEMORY];

/* Mostly small numbers, some large ones. */
static uint64_t number(struct fuzz_input *in) {
    const uint64_t kind = fuzz_take(in, 1);
    return kind < 200 ? kind % 9 : fuzz_take(in, kind < 230 ? 2 : 8);
}

/* The element furthest from the first one lies in the address space: sums of what was accepted do not overflow. */
static void check_source(const struct bwi_tensor_source *s) {
    int64_t reach = 0;
    fuzz_require(s->dims <= BWI_DIMS_MAX && strlen(s->name) > 0);
    for (unsigned d = 0; d < s->dims; d++) {
        fuzz_require(s->offset[d] <= s->shape[d] && s->extent[d] <= s->shape[d] - s->offset[d]);
        if (s->bytes == 0) continue;
        int64_t span;
        fuzz_require(!__builtin_mul_overflow((int64_t)(s->extent[d] - 1), s->stride[d], &span));
        fuzz_require(!__builtin_add_overflow(reach, span, &reach));
    }
    fuzz_require(s->replica_index < s->replica_count);
}

static bool describe(struct bwi_description *d, struct fuzz_input *in) {
    uint64_t shape[20], offset[20], extent[20];
    int64_t stride[20];
    char name[16] = "";
    struct bw_tensor t = BW_TENSOR_INIT;
    struct bw_error err = BW_ERROR_INIT;
    const uint64_t flags = fuzz_take(in, 2);
    const struct bwi_span given = fuzz_take_span(in, flags & 7);
    memcpy(name, given.ptr, given.len);
    t.dims = (uint32_t)(fuzz_take(in, 1) % 18);
    for (uint32_t i = 0; i < t.dims; i++) {
        shape[i] = number(in);
        offset[i] = (flags & 8) != 0 ? number(in) : 0;
        extent[i] = (flags & 16) != 0 ? number(in) : shape[i];
        stride[i] = (int64_t)((flags & 512) != 0 ? 0 - number(in) : number(in));
    }
    t.name = (flags & 1024) != 0 ? NULL : name;
    t.dtype = (uint32_t)(fuzz_take(in, 1) % 24);
    t.shape = shape;
    t.offset = (flags & 8) != 0 ? offset : NULL;
    t.extent = (flags & 16) != 0 ? extent : NULL;
    t.stride_bytes = (flags & 32) != 0 ? stride : NULL;
    t.data = (flags & 64) != 0 ? NULL : memory + MEMORY / 2;
    if ((flags & 128) != 0) t.struct_size = (uint32_t)number(in) + (uint32_t)sizeof t - 8;
    if ((flags & 256) != 0) {
        t.replica_count = (uint32_t)number(in);
        t.replica_index = (uint32_t)number(in);
        t.replica_group = number(in);
    }
    const bool said = bwi_description_tensor(d, &t, &err) == 0;
    if (said)
        check_source(&d->tensors[d->tensor_count - 1]);
    else
        fuzz_failed(err);
    return said;
}

static void say_more(struct bwi_description *d, struct fuzz_input *in) {
    char text[64] = "";
    struct bw_error err = BW_ERROR_INIT;
    const struct bwi_span given = fuzz_take_span(in, fuzz_take(in, 1) % (sizeof text - 1));
    memcpy(text, given.ptr, given.len);
    if (bwi_description_metadata(d, text, &err) < 0) fuzz_failed(err);
    bw_error_clear(&err);
    if (bwi_description_blob(d, text, memory, number(in) % MEMORY, &err) < 0) fuzz_failed(err);
}

/* All of it; whether every tensor was accepted. */
static bool say(struct bwi_description *d, struct fuzz_input in) {
    bool whole = true;
    for (unsigned i = 0; i < TENSORS && in.left > 0; i++) whole = describe(d, &in) && whole;
    say_more(d, &in);
    return whole;
}

/* The layout of what was accepted is one that a reader accepts. */
static void check_plan(const struct bwi_plan *p) {
    struct bwi_layout again;
    struct bw_error err = BW_ERROR_INIT;
    fuzz_require(bwi_layout_decode(bwi_buf_span(&p->layout_bytes), &again, &err) == 0);
    fuzz_require(bwi_content_check(&p->content, &again, &err) == 0);
    bwi_layout_fini(&again);
}

static bool plan(struct bwi_description *d, struct bwi_plan *ret) {
    struct bw_error err = BW_ERROR_INIT;
    if (d->bytes > MEMORY || bwi_description_own(d, &err) < 0) return false;
    if (bwi_plan_make(d, 0, 4096, 1 << 20, ret, &err) == 0) return true;
    fuzz_failed(err);
    return false;
}

void fuzz_one(uint8_t *data, size_t size) {
    const struct fuzz_input in = {data, size};
    struct bwi_description d;
    struct bwi_plan p = {0};
    bwi_description_init(&d);
    const bool whole = say(&d, in);
    const bool planned = plan(&d, &p);
    if (planned) check_plan(&p);
    const size_t tensors = d.tensor_count, blobs = d.blob_count;
    const uint64_t bytes = d.bytes;
    bwi_description_reset(&d);
    (void)say(&d, in);
    fuzz_require(d.tensor_count == tensors && d.blob_count == blobs && d.bytes == bytes);
    const bool fits = bwi_plan_fits(&p, &d);
    fuzz_require(!fits || planned);
    fuzz_require(fits || !planned || !whole);
    if (fits) {
        bwi_plan_renew(&p, &d);
        check_plan(&p);
    }
    bwi_plan_fini(&p);
    bwi_description_fini(&d);
}
