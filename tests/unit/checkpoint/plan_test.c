/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of random descriptions, each judged by plan_check.h, and the rules of packs one by one. */
#include "base/vec.h"
#include "checkpoint/plan_private.h"
#include "plan_check.h"
#include <time.h>

static uint8_t zeros[4096];

static void add(struct bwi_description *d, const char *name, int dtype, uint64_t n, const void *data) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_tensor t = BW_TENSOR_INIT;
    t.name = name;
    t.dtype = (uint32_t)dtype;
    t.dims = 1;
    t.shape = &n;
    t.data = data;
    assert_ok(bwi_description_tensor(d, &t, &err), &err);
}

/* A tensor of any size that needs no memory: one zero byte, expanded. */
static void add_expanded(struct bwi_description *d, const char *name, uint64_t n) {
    struct bw_error err = BW_ERROR_INIT;
    const int64_t stride = 0;
    struct bw_tensor t = BW_TENSOR_INIT;
    t.name = name;
    t.dtype = BW_U8;
    t.dims = 1;
    t.shape = &n;
    t.stride_bytes = &stride;
    t.data = zeros;
    assert_ok(bwi_description_tensor(d, &t, &err), &err);
}

static void make(struct bwi_description *d, uint32_t extent_bytes, uint64_t pack_bytes, struct bwi_plan *ret) {
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_description_own(d, &err), &err);
    assert_ok(bwi_plan_make(d, 3, extent_bytes, pack_bytes, ret, &err), &err);
}

static struct bwi_pack_header header_of(const struct bwi_plan *p, size_t pack) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_pack_header h;
    assert_ok(bwi_pack_header_decode(bwi_buf_span(&p->packs[pack].header), p->packs[pack].file_bytes, &h, &err), &err);
    return h;
}

static bool is_named(const struct bwi_pack_entry *e, const char *name) {
    return bwi_span_eq(e->name, bwi_span_str(name));
}

/* ---- random descriptions ---- */

#define MOST 60

struct world {
    struct bwi_description d;
    struct box boxes[MOST];
    struct memory memories[MOST];
    size_t count;
    uint8_t blobs[3][70000];
};

static void name_of(uint64_t *rng, size_t i, char *ret, size_t size) {
    static const char *const odd[] = {"__metadata__", "bw:0", "bw:", "..", "a/b", "\xf0\x9f\x8c\x8a \"q\"\n"};
    if (i < sizeof odd / sizeof odd[0] && below(rng, 2) == 0) {
        snprintf(ret, size, "%s", odd[i]);
    } else {
        snprintf(ret, size, "t%llu.%zu", (unsigned long long)below(rng, 1000), i);
    }
}

/* Box, or a second name for the memory of an earlier one: the same view, or another view of it. */
static void add_random(struct world *w, uint64_t *rng) {
    struct bw_error err = BW_ERROR_INIT;
    const size_t i = w->count++;
    char name[64];
    name_of(rng, i, name, sizeof name);
    if (i > 0 && below(rng, 4) == 0) {
        w->boxes[i] = w->boxes[below(rng, i)];
        bind_box(&w->boxes[i]);
        w->memories[i] = (struct memory){NULL, 0, 0};
        if (below(rng, 2) == 0 && w->boxes[i].s.dims > 0 && w->boxes[i].extent[0] > 0) w->boxes[i].extent[0]--;
    } else {
        w->memories[i] = random_box(rng, &w->boxes[i]);
    }
    struct bw_tensor t = tensor_of(&w->boxes[i].s, name);
    t.replica_count = below(rng, 4) == 0 ? 2 : 0;
    assert_ok(bwi_description_tensor(&w->d, &t, &err), &err);
}

static void random_world(struct world *w, uint64_t *rng) {
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&w->d);
    w->count = 0;
    for (uint64_t n = below(rng, MOST); n > 0; n--) add_random(w, rng);
    for (unsigned i = 0; i < below(rng, 4); i++) {
        char name[16];
        snprintf(name, sizeof name, "blob%u", 9 - i);
        fill_random(rng, w->blobs[i], sizeof w->blobs[i]);
        const size_t n = below(rng, 5) == 0 ? 0 : below(rng, sizeof w->blobs[i]);
        assert_ok(bwi_description_blob(&w->d, name, w->blobs[i], n, &err), &err);
    }
    if (below(rng, 2) == 0) assert_ok(bwi_description_metadata(&w->d, "{\"lr\":0.5}", &err), &err);
}

static bool same_view(const struct bwi_tensor_source *a, const struct bwi_tensor_source *b) {
    if (a->bytes == 0 || a->data != b->data || a->dtype != b->dtype || a->dims != b->dims) return false;
    for (unsigned d = 0; d < a->dims; d++) {
        if (a->extent[d] != b->extent[d] || a->stride[d] != b->stride[d]) return false;
    }
    return true;
}

/* Sorted, only what is ours, and tied exactly to the first of the same view. */
static void check_layout(const struct world *w, const struct bwi_plan *p) {
    const struct bwi_layout *l = &p->layout;
    size_t mine = 0;
    for (size_t i = 0; i < w->d.tensor_count; i++) mine += w->d.tensors[i].mine;
    assert_int_equal(l->box_count, mine);
    assert_int_equal(l->tensor_count, mine);
    assert_int_equal(l->blob_count, w->d.blob_count);
    assert_int_equal(l->rank_count, 1);
    assert_int_equal(l->ranks[0], 3);
    for (uint32_t i = 0; i < l->box_count; i++) {
        const struct bwi_tensor_source *s = p->items[i].tensor;
        assert_true(s->mine && l->boxes[i].rank == 3 && l->boxes[i].tensor == i);
        assert_string_equal((const char *)l->tensors[i].name.ptr, s->name);
        if (i > 0) assert_true(strcmp(p->items[i - 1].tensor->name, s->name) < 0);
        uint32_t first = 0;
        while (first < i && !same_view(p->items[first].tensor, s)) first++;
        assert_int_equal(l->boxes[i].tied, first < i ? first : BWI_NOT_TIED);
        assert_int_equal(p->content.raw_bytes[i], first < i ? 0 : s->bytes);
    }
}

static void every_plan_of_a_random_description_is_sound(void **state) {
    (void)state;
    uint64_t rng = test_seed(41);
    static struct world w;
    const uint64_t pack_bytes[] = {BWI_PLAN_PACK_BYTES, 20000, 100000, 4096, UINT64_MAX};
    for (int i = 0; i < 300; i++) {
        random_world(&w, &rng);
        struct bwi_plan p;
        const uint32_t extent = UINT32_C(4096) << below(&rng, 4);
        const uint64_t most = pack_bytes[below(&rng, 5)];
        make(&w.d, extent, most, &p);
        check_layout(&w, &p);
        check_plan(&p);
        for (size_t k = 0; k < p.pack_count; k++) { /* larger only for the sake of one item */
            const bool small = p.packs[k].file_bytes <= most;
            struct bwi_pack_header h = header_of(&p, k);
            size_t full = 0;
            for (size_t e = 0; e < h.count; e++) full += h.entries[e].end > h.entries[e].begin;
            assert_true(small || full == 1);
            bwi_pack_header_fini(&h);
        }
        bwi_plan_fini(&p);
        bwi_plan_fini(&p);
        bwi_description_fini(&w.d);
        for (size_t k = 0; k < w.count; k++) free(w.memories[k].ptr);
        assert_int_equal(bwi_alloc_live(), 0);
    }
}

static void the_order_of_description_does_not_matter(void **state) {
    (void)state;
    struct bwi_description d[2];
    struct bwi_plan p[2];
    const char *names[] = {"b", "a", "c"};
    for (size_t k = 0; k < 2; k++) {
        bwi_description_init(&d[k]);
        for (size_t i = 0; i < 3; i++) add(&d[k], names[k == 0 ? i : 2 - i], BW_F32, 3 + (k == 0 ? i : 2 - i), zeros);
        make(&d[k], BWI_EXTENT_BYTES, BWI_PLAN_PACK_BYTES, &p[k]);
    }
    assert_true(bwi_sha_eq(&p[0].layout_sha, &p[1].layout_sha));
    assert_true(bwi_span_eq(bwi_buf_span(&p[0].packs[0].header), bwi_buf_span(&p[1].packs[0].header)));
    for (size_t k = 0; k < 2; k++) {
        bwi_plan_fini(&p[k]);
        bwi_description_fini(&d[k]);
    }
}

/* ---- what a pack holds ---- */

static void nothing_makes_no_pack(void **state) {
    (void)state;
    struct bwi_description d;
    struct bwi_plan p;
    bwi_description_init(&d);
    make(&d, BWI_EXTENT_BYTES, BWI_PLAN_PACK_BYTES, &p);
    assert_int_equal(p.pack_count + p.chunk_count + p.piece_count + p.layout.box_count, 0);
    check_formats(&p);
    bwi_plan_fini(&p);
    add(&d, "empty", BW_F32, 0, NULL);
    make(&d, BWI_EXTENT_BYTES, BWI_PLAN_PACK_BYTES, &p);
    assert_int_equal(p.pack_count, 0);
    assert_int_equal(p.layout.box_count, 1);
    check_formats(&p);
    bwi_plan_fini(&p);
    bwi_description_fini(&d);
}

static void big_boxes_come_first_then_small_ones_by_element_size_then_blobs(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_description d;
    struct bwi_plan p;
    uint8_t *big = malloc((1 << 20) + 3);
    memset(big, 1, (1 << 20) + 3);
    bwi_description_init(&d);
    add(&d, "a", BW_U8, 5, zeros);
    add(&d, "b", BW_F32, 3, zeros + 8);
    add(&d, "c", BW_F64, 2, zeros + 16);
    add(&d, "d", BW_F64, 0, NULL);
    add(&d, "e", BW_BF16, 3, zeros + 32);
    add(&d, "f", BW_C128, 1, zeros + 64);
    add(&d, "x", BW_U8, (1 << 20) + 3, big);
    add(&d, "y", BW_U8, (1 << 20) - 1, big);
    add(&d, "z", BW_U8, 1 << 20, big);
    assert_ok(bwi_description_blob(&d, "rng", zeros, 10, &err), &err);
    make(&d, BWI_EXTENT_BYTES, BWI_PLAN_PACK_BYTES, &p);
    struct bwi_pack_header h = header_of(&p, 0);
    const struct {
        const char *name;
        uint64_t bytes;
    } want[] = {{"x", (1 << 20) + 3},
                {"bw:0", 4093},
                {"z", 1 << 20},
                {"bw:1", 16},
                {"c", 16},
                {"d", 0},
                {"b", 12},
                {"e", 6},
                {"a", 5},
                {"y", 1048575},
                {"bw:2", 10}};
    assert_int_equal(h.count, sizeof want / sizeof want[0]);
    for (size_t i = 0; i < h.count; i++) {
        assert_true(is_named(&h.entries[i], want[i].name));
        assert_int_equal(h.entries[i].end - h.entries[i].begin, want[i].bytes);
    }
    assert_int_equal(p.chunk_count, 3); /* x, z, all the others */
    check_plan(&p);
    bwi_pack_header_fini(&h);
    bwi_plan_fini(&p);
    bwi_description_fini(&d);
    free(big);
}

static void names_and_dtypes_that_a_reader_would_not_expect_are_stored_as_bytes(void **state) {
    (void)state;
    struct bwi_description d;
    struct bwi_plan p;
    const char *names[] = {"__metadata__", "bw:", "bw:7", "bw:x"};
    bwi_description_init(&d);
    for (size_t i = 0; i < 4; i++) add(&d, names[i], BW_F32, 1, zeros + 16 * i);
    for (int t = BW_BOOL; t <= BW_F8_E8M0; t++) {
        char name[32];
        snprintf(name, sizeof name, "dtype %02d", t);
        add(&d, name, t, 1, zeros + 64 + 16 * t);
    }
    add(&d, "bw", BW_F32, 1, zeros + 1024);
    add(&d, "Bw:0", BW_F32, 1, zeros + 1028);
    make(&d, BWI_EXTENT_BYTES, BWI_PLAN_PACK_BYTES, &p);
    struct bwi_pack_header h = header_of(&p, 0);
    size_t own = 0;
    size_t numbered = 0;
    for (size_t i = 0; i < h.count; i++) {
        const bool bytes = memcmp(h.entries[i].name.ptr, "bw:", 3) == 0;
        numbered += bytes;
        own += !bytes;
        if (bytes) assert_int_equal(h.entries[i].dtype, BW_U8);
    }
    assert_int_equal(own, 15 + 2);
    assert_int_equal(numbered, 4 + 5);
    check_plan(&p);
    bwi_pack_header_fini(&h);
    bwi_plan_fini(&p);
    bwi_description_fini(&d);
}

static void two_names_of_one_view_are_stored_once_and_overlapping_views_twice(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_description d;
    struct bwi_plan p;
    uint32_t shared[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    bwi_description_init(&d);
    add(&d, "d same", BW_U32, 6, shared);
    add(&d, "a first", BW_U32, 6, shared);
    add(&d, "b shorter", BW_U32, 5, shared);
    add(&d, "c shifted", BW_U32, 6, shared + 1);
    add(&d, "e other dtype", BW_F32, 6, shared);
    add(&d, "f same", BW_U32, 6, shared);
    const uint64_t six = 6;
    const int64_t expanded = 0;
    struct bw_tensor t = {.struct_size = sizeof t, .dtype = BW_U32, .name = "g other strides", .dims = 1};
    t.data = shared;
    t.shape = &six;
    t.stride_bytes = &expanded;
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    make(&d, BWI_EXTENT_BYTES, BWI_PLAN_PACK_BYTES, &p);
    const uint32_t tied[] = {BWI_NOT_TIED, BWI_NOT_TIED, BWI_NOT_TIED, 0, BWI_NOT_TIED, 0, BWI_NOT_TIED};
    for (size_t i = 0; i < 7; i++) assert_int_equal(p.layout.boxes[i].tied, tied[i]);
    assert_int_equal(p.raw_bytes, (6 + 5 + 6 + 6 + 6) * 4);
    struct bwi_pack_header h = header_of(&p, 0);
    assert_int_equal(h.count, 5);
    check_plan(&p);
    bwi_pack_header_fini(&h);
    bwi_plan_fini(&p);
    bwi_description_fini(&d);
}

static void a_scalar_and_sixteen_dimensions_have_entries_of_their_own_shape(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_description d;
    struct bwi_plan p;
    uint64_t shape[BWI_DIMS_MAX];
    for (unsigned i = 0; i < BWI_DIMS_MAX; i++) shape[i] = 1 + i % 2;
    struct bwi_tensor_source s = {.dtype = BW_F64, .dims = 0, .data = zeros};
    struct bw_tensor t = tensor_of(&s, "scalar");
    bwi_description_init(&d);
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    t.name = "many";
    t.dtype = BW_U8;
    t.dims = BWI_DIMS_MAX;
    t.shape = shape;
    t.offset = NULL;
    t.extent = NULL;
    t.stride_bytes = NULL;
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    make(&d, BWI_EXTENT_BYTES, BWI_PLAN_PACK_BYTES, &p);
    struct bwi_pack_header h = header_of(&p, 0);
    assert_int_equal(h.entries[0].dims, 0);
    assert_int_equal(h.entries[1].dims, BWI_DIMS_MAX);
    check_plan(&p);
    bwi_pack_header_fini(&h);
    bwi_plan_fini(&p);
    bwi_description_fini(&d);
}

/* ---- sizes ---- */

static void sizes_around_every_edge_are_sound(void **state) {
    (void)state;
    const uint64_t sizes[] = {1,     511,     512,     513,     4095, 4096, 4097,  8191,  8192,        12287,
                              65536, 1048575, 1048576, 1048577, 0,    3,    65537, 65535, 1048576 * 3, 1048576 * 2 + 5};
    uint64_t rng = test_seed(42);
    uint8_t *bytes = malloc(4 << 20);
    fill_random(&rng, bytes, 4 << 20);
    for (uint32_t extent = 4096; extent <= BWI_EXTENT_BYTES_MAX; extent *= 16) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_description d;
        struct bwi_plan p;
        bwi_description_init(&d);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            char name[32];
            snprintf(name, sizeof name, "t%zu", i);
            add(&d, name, BW_U8, sizes[i], bytes + i);
            if (i % 3 == 0) assert_ok(bwi_description_blob(&d, name, bytes + 2 * i, sizes[i], &err), &err);
        }
        make(&d, extent, BWI_PLAN_PACK_BYTES, &p);
        check_plan(&p);
        bwi_plan_fini(&p);
        make(&d, extent, 2 << 20, &p);
        assert_true(p.pack_count > 3);
        check_plan(&p);
        bwi_plan_fini(&p);
        bwi_description_fini(&d);
    }
    free(bytes);
}

static void a_full_header_begins_a_second_pack(void **state) {
    (void)state;
    struct bwi_description d;
    struct bwi_plan p;
    enum { COUNT = 2500 };
    uint32_t *data = calloc(COUNT, sizeof *data);
    char *name = malloc(8193);
    bwi_description_init(&d);
    memset(name, 'n', 8192);
    name[8192] = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        char digits[8];
        snprintf(digits, sizeof digits, "%07u", i);
        memcpy(name + 8185, digits, 7);
        data[i] = i;
        add(&d, name, BW_U32, 1, data + i);
    }
    make(&d, BWI_EXTENT_BYTES, BWI_PLAN_PACK_BYTES, &p);
    assert_int_equal(p.pack_count, 2);
    assert_true(p.packs[0].header.len > BWI_PACK_HEADER_MAX / 32 * 31);
    /* check_plan looks an entry up for each item: too slow here. */
    struct written w = write_packs(&p);
    assert_int_equal(w.headers[0].count + w.headers[1].count, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t value;
        memcpy(&value, w.files[p.places[i].pack] + p.places[i].offset, 4);
        assert_int_equal(value, i);
    }
    check_formats(&p);
    written_free(&w, &p);
    bwi_plan_fini(&p);
    bwi_description_fini(&d);
    free(name);
    free(data);
}

static void a_tensor_above_the_limit_of_a_pack_is_cut_and_stored_as_bytes(void **state) {
    (void)state;
    struct bwi_description d;
    struct bwi_plan p;
    bwi_description_init(&d);
    add_expanded(&d, "huge", (UINT64_C(5) << 39) + 1);
    add(&d, "small", BW_F32, 3, zeros);
    make(&d, BWI_EXTENT_BYTES_MAX, UINT64_MAX, &p);
    assert_int_equal(p.pack_count, 3);
    check_numbering(&p);
    uint64_t bytes = 0;
    for (size_t i = 0; i < 3; i++) {
        assert_true(p.packs[i].file_bytes <= BWI_PACK_BYTES_MAX);
        struct bwi_pack_header h = header_of(&p, i);
        assert_true(is_named(&h.entries[0], "bw:0"));
        assert_int_equal(h.count, i == 2 ? 3 : 1);
        bytes += h.entries[0].end;
        bwi_pack_header_fini(&h);
    }
    assert_int_equal(bytes, (UINT64_C(5) << 39) + 1);
    for (size_t i = 1; i < p.piece_count - 1; i++) { /* the cut is at an extent's edge */
        assert_int_equal(p.pieces[i].item_offset, i * (uint64_t)BWI_EXTENT_BYTES_MAX);
    }
    check_formats(&p);
    bwi_plan_fini(&p);
    bwi_description_fini(&d);
}

static void a_tensor_larger_than_pack_bytes_goes_whole_into_one_pack(void **state) {
    (void)state;
    struct bwi_description d;
    struct bwi_plan p;
    bwi_description_init(&d);
    add_expanded(&d, "a", UINT64_C(100) << 20);
    add_expanded(&d, "b", UINT64_C(3) << 20);
    add(&d, "c", BW_F32, 3, zeros);
    make(&d, BWI_EXTENT_BYTES, 8 << 20, &p);
    assert_int_equal(p.pack_count, 2);
    assert_int_equal(p.packs[0].file_bytes, 4096 + (100 << 20));
    assert_int_equal(p.packs[1].file_bytes, 4096 + (3 << 20) + 12);
    bwi_plan_fini(&p);
    bwi_description_fini(&d);
}

/* Their number alone: a plan that has as many as there may be gets another one. */
static void too_many_packs_are_refused(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_description d;
    struct bwi_plan p;
    bwi_description_init(&d);
    add(&d, "t", BW_U8, 100, zeros);
    make(&d, 4096, BWI_PLAN_PACK_BYTES, &p);
    struct bwi_plan full = p;
    full.chunks = NULL;
    full.chunk_count = full.piece_count = 0;
    full.pack_count = BWI_PACKS_MAX;
    assert_fails(bwi_plan_pack(&full, BWI_PLAN_PACK_BYTES, &err), BW_E_LIMIT, &err,
                 "plan: more than 65536 packs, the limit");
    bwi_free(full.places);
    bwi_free(full.pieces);
    bwi_free(full.chunks);
    bwi_plan_fini(&p);
    bwi_description_fini(&d);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void too_many_extents_are_refused(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_description d;
    struct bwi_plan p = {.raw_bytes = 77};
    bwi_description_init(&d);
    add_expanded(&d, "huge", (UINT64_C(4096) << 28) + 1);
    assert_ok(bwi_description_own(&d, &err), &err);
    assert_fails(bwi_plan_make(&d, 0, 4096, BWI_PLAN_PACK_BYTES, &p, &err), BW_E_LIMIT, &err, "extents");
    bw_error_clear(&err);
    assert_fails(bwi_plan_make(&d, 0, 5000, BWI_PLAN_PACK_BYTES, &p, &err), BW_E_INVALID, &err,
                 "expected a power of two");
    assert_int_equal(p.raw_bytes, 77);
    bwi_description_fini(&d);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void a_hundred_thousand_tiny_tensors_make_one_pack_quickly(void **state) {
    (void)state;
    struct bwi_description d;
    struct bwi_plan p;
    uint64_t *data = calloc(100000, sizeof *data);
    bwi_description_init(&d);
    for (unsigned i = 0; i < 100000; i++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.%u.bias", i);
        data[i] = i;
        add(&d, name, BW_F64, 1, &data[i]);
    }
    const clock_t start = clock();
    make(&d, BWI_EXTENT_BYTES, BWI_PLAN_PACK_BYTES, &p);
    const double planned = (double)(clock() - start) / CLOCKS_PER_SEC;
    uint8_t *buffer = malloc(BWI_EXTENT_BYTES + 4096);
    for (size_t i = 0; i < p.chunk_count; i++) {
        bwi_plan_fill(&p, &p.chunks[i], buffer);
        bwi_plan_hash(&p, &p.chunks[i], buffer);
    }
    print_message("100000 tensors planned in %.3f s, captured after %.3f s\n", planned,
                  (double)(clock() - start) / CLOCKS_PER_SEC);
    assert_true(planned < 10);
    assert_int_equal(p.pack_count, 1);
    assert_int_equal(p.chunk_count, 1);
    check_formats(&p);
    free(buffer);
    free(data);
    bwi_plan_fini(&p);
    bwi_description_fini(&d);
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void **state) {
    (void)state;
    uint64_t rng = test_seed(43);
    static struct world w;
    struct bw_error ok = BW_ERROR_INIT;
    do {
        random_world(&w, &rng);
        if (w.count > 10 && w.d.blob_count > 0) break;
        bwi_description_fini(&w.d);
        for (size_t k = 0; k < w.count; k++) free(w.memories[k].ptr);
    } while (true);
    assert_ok(bwi_description_own(&w.d, &ok), &ok);
    const long before = bwi_alloc_live();
    unsigned long n = 1;
    for (;; n++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_plan p = {.raw_bytes = 77};
        (void)bwi_alloc_fail_at(n);
        const int rc = bwi_plan_make(&w.d, 0, 4096, 20000, &p, &err);
        (void)bwi_alloc_fail_at(0);
        if (rc == 0) {
            bwi_plan_fini(&p);
            break;
        }
        assert_fails(rc, BW_E_NOMEM, &err, NULL);
        assert_int_equal(p.raw_bytes, 77);
        assert_int_equal(bwi_alloc_live(), before);
    }
    assert_true(n > 15);
    assert_int_equal(bwi_alloc_live(), before);
    bwi_description_fini(&w.d);
    for (size_t k = 0; k < w.count; k++) free(w.memories[k].ptr);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plan_of_a_random_description_is_sound),
        cmocka_unit_test(the_order_of_description_does_not_matter),
        cmocka_unit_test(nothing_makes_no_pack),
        cmocka_unit_test(big_boxes_come_first_then_small_ones_by_element_size_then_blobs),
        cmocka_unit_test(names_and_dtypes_that_a_reader_would_not_expect_are_stored_as_bytes),
        cmocka_unit_test(two_names_of_one_view_are_stored_once_and_overlapping_views_twice),
        cmocka_unit_test(a_scalar_and_sixteen_dimensions_have_entries_of_their_own_shape),
        cmocka_unit_test(sizes_around_every_edge_are_sound),
        cmocka_unit_test(a_full_header_begins_a_second_pack),
        cmocka_unit_test(a_tensor_above_the_limit_of_a_pack_is_cut_and_stored_as_bytes),
        cmocka_unit_test(a_tensor_larger_than_pack_bytes_goes_whole_into_one_pack),
        cmocka_unit_test(too_many_packs_are_refused),
        cmocka_unit_test(too_many_extents_are_refused),
        cmocka_unit_test(a_hundred_thousand_tiny_tensors_make_one_pack_quickly),
        cmocka_unit_test(every_failed_allocation_is_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
