/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever is saved comes back bit for bit: sizes, element types, layouts in memory, names, blobs, metadata. */
#include "job.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor as the test made it, and its bytes as they must come back: row-major, without gaps. */
struct item {
    char name[64];
    uint32_t dtype, dims;
    uint64_t shape[8];
    bool strided;
    int64_t stride[8];
    const void *data;
    unsigned char *want;
    uint64_t bytes;
};

static uint64_t count_of(const struct item *t) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->dims; d++) n *= t->shape[d];
    return n;
}

/* The plain definition: element by element, by its index. */
static void gather(struct item *t) {
    const size_t size = bw_dtype_bytes((int)t->dtype);
    const uint64_t n = count_of(t);
    t->bytes = n * size;
    t->want = malloc(t->bytes + 1);
    must(t->want != NULL);
    for (uint64_t i = 0; i < n; i++) {
        int64_t at = 0;
        uint64_t rest = i;
        int64_t dense = (int64_t)size;
        for (uint32_t d = t->dims; d-- > 0; rest /= t->shape[d]) {
            at += (int64_t)(rest % t->shape[d]) * (t->strided ? t->stride[d] : dense);
            dense *= (int64_t)t->shape[d];
        }
        memcpy(t->want + i * size, (const unsigned char *)t->data + at, size);
    }
}

static void describe(struct bw_save *v, struct item *t) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_tensor s = BW_TENSOR_INIT;
    s.dtype = t->dtype;
    s.name = t->name;
    s.data = t->data;
    s.dims = t->dims;
    s.shape = t->dims ? t->shape : NULL;
    s.stride_bytes = t->strided ? t->stride : NULL;
    must_ok(bw_save_tensor(v, &s, &err), &err);
}

static struct bw_slice slice_of(const struct item *t, void *to) {
    struct bw_slice s = BW_SLICE_INIT;
    s.dtype = t->dtype;
    s.name = t->name;
    s.data = to;
    s.dims = t->dims;
    s.shape = t->dims ? t->shape : NULL;
    return s;
}

static void compare(struct bw_restore *r, const struct item *items, size_t n) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_slice *slices = calloc(n, sizeof *slices);
    unsigned char **got = calloc(n, sizeof *got);
    must(slices != NULL && got != NULL);
    for (size_t i = 0; i < n; i++) {
        got[i] = malloc(items[i].bytes + 1);
        must(got[i] != NULL);
        memset(got[i], 0xa5, items[i].bytes + 1);
        slices[i] = slice_of(&items[i], got[i]);
    }
    must_ok(bw_restore_read(r, slices, n, &err), &err);
    for (size_t i = 0; i < n; i++) {
        must_at(memcmp(got[i], items[i].want, items[i].bytes) == 0, items[i].name, "bytes come back", __FILE__,
                __LINE__);
        must_at(got[i][items[i].bytes] == 0xa5, items[i].name, "nothing is written behind the end", __FILE__, __LINE__);
        free(got[i]);
    }
    free(got);
    free(slices);
}

/* Saves all, then reads all: with a reader, and in a new launch. Returns what the save had to say. */
static struct bw_save_stats round_trip(struct item *items, size_t n) {
    struct bw_error err = BW_ERROR_INIT;
    struct place p;
    struct bw_save_stats stats;
    struct bw_restore *r = NULL;
    place_make(&p);
    for (size_t i = 0; i < n; i++) gather(&items[i]);
    struct bw_checkpointer *ck = open_alone(&p, "first");
    struct bw_save *v = begin(ck, 1);
    for (size_t i = 0; i < n; i++) describe(v, &items[i]);
    start(v);
    wait_for(v, BW_COMMITTED);
    bw_save_stats(v, &stats);
    bw_save_release(v);
    close_ok(ck);
    r = reader_of(&p, 1);
    compare(r, items, n);
    bw_restore_close(r);
    ck = open_alone(&p, "second");
    must_ok(bw_restore_open(ck, &r, &err), &err);
    compare(r, items, n);
    bw_restore_close(r);
    close_ok(ck);
    place_drop(&p);
    for (size_t i = 0; i < n; i++) free(items[i].want);
    return stats;
}

/* --- sizes ---- */

static const uint64_t odd_sizes[] = {0,    1,     2,       7,       8,       511,     512,     513,     4095,   4096,
                                     4097, 65535, 1048575, 1048576, 1048577, 4194303, 4194304, 4194305, 9437189};
#define ODD_SIZES (sizeof odd_sizes / sizeof *odd_sizes)

static void every_odd_size_comes_back(void **state) {
    (void)state;
    struct item items[ODD_SIZES] = {0};
    const uint64_t most = 9437189;
    unsigned char *memory = malloc(most + ODD_SIZES);
    must(memory != NULL);
    fill(memory, most + ODD_SIZES, 1);
    for (size_t i = 0; i < ODD_SIZES; i++) {
        struct item *t = &items[i];
        (void)snprintf(t->name, sizeof t->name, "bytes.%zu", i);
        t->dtype = BW_U8;
        t->dims = 1;
        t->shape[0] = odd_sizes[i];
        t->data = memory + i; /* and aligned to nothing */
    }
    (void)round_trip(items, ODD_SIZES);
    free(memory);
}

static void scalars_and_empty_tensors_come_back(void **state) {
    (void)state;
    static const uint64_t scalar[2] = {UINT64_C(0x8000000000000001), UINT64_C(0xfff7123456789abc)};
    struct item items[5] = {
        {.name = "scalar.f64", .dtype = BW_F64, .data = scalar},
        {.name = "scalar.u8", .dtype = BW_U8, .data = scalar},
        {.name = "scalar.c128", .dtype = BW_C128, .data = scalar},
        {.name = "empty", .dtype = BW_F32, .dims = 1, .shape = {0}},
        {.name = "empty.shape", .dtype = BW_I64, .dims = 4, .shape = {3, 0, 5, UINT64_C(1) << 40}},
    };
    (void)round_trip(items, 5);
}

static void a_hundred_thousand_tiny_tensors_come_back(void **state) {
    (void)state;
    const size_t n = FULL_OR(100000, 4000);
    struct item *items = calloc(n, sizeof *items);
    uint32_t *memory = calloc(n, sizeof *memory);
    must(items != NULL && memory != NULL);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(items[i].name, sizeof items[i].name, "layers.%zu.bias", i);
        items[i].dtype = BW_F32;
        items[i].dims = 1;
        items[i].shape[0] = 1;
        items[i].data = &memory[i];
        memory[i] = element_value(7, i);
    }
    const struct bw_save_stats stats = round_trip(items, n);
    must_eq(stats.tensors, n);
    must_eq(stats.raw_bytes, 4 * n);
    free(memory);
    free(items);
}

/* --- element types ---- */

static void every_dtype_keeps_its_bits(void **state) {
    (void)state;
    /* Quiet and signalling NaNs with payloads, -0.0, denormals, infinities: of 16, 32 and 64 bits. */
    static const uint64_t special[] = {
        UINT64_C(0x7ff0000000000001), UINT64_C(0x7ff8dead0000beef), UINT64_C(0xfff123456789abcd),
        UINT64_C(0x8000000000000000), UINT64_C(0x7fa00001ffc12345), UINT64_C(0x8000000000000001),
        UINT64_C(0x7f800000ff800000), UINT64_C(0x7e017d02fc01fe03), UINT64_C(0x80007f8180017fc1),
        UINT64_C(0x7ff0000000000000), UINT64_C(0xffffffffffffffff), 0};
    enum { COUNT = 96 };
    struct item items[20] = {0};
    unsigned char memory[20][COUNT * 16];
    for (size_t i = 0; i < 20; i++) {
        struct item *t = &items[i];
        t->dtype = (uint32_t)i + 1;
        (void)snprintf(t->name, sizeof t->name, "t.%s", bw_dtype_name((int)t->dtype));
        must(bw_dtype_bytes((int)t->dtype) > 0);
        fill(memory[i], sizeof memory[i], i);
        if (t->dtype == BW_BOOL)
            for (size_t k = 0; k < sizeof memory[i]; k++) memory[i][k] &= 1;
        else
            memcpy(memory[i], special, sizeof special);
        t->dims = 2;
        t->shape[0] = 3;
        t->shape[1] = COUNT / 3;
        t->data = memory[i];
    }
    must_eq(bw_dtype_bytes(21), 0);
    (void)round_trip(items, 20);
}

/* --- layouts in memory ---- */

enum { STRIDED = 64 * 48 };

static uint32_t *strided_memory(void) {
    static uint32_t m[STRIDED];
    for (uint32_t i = 0; i < STRIDED; i++) m[i] = element_value(3, i);
    return m;
}

static struct item view(const char *name, uint32_t dtype, const void *data, uint32_t dims, const uint64_t *shape,
                        const int64_t *stride) {
    struct item t = {.dtype = dtype, .dims = dims, .strided = true, .data = data};
    (void)snprintf(t.name, sizeof t.name, "%s", name);
    memcpy(t.shape, shape, dims * sizeof *shape);
    memcpy(t.stride, stride, dims * sizeof *stride);
    return t;
}

#define SHAPE(...)  ((const uint64_t[]){__VA_ARGS__})
#define STRIDE(...) ((const int64_t[]){__VA_ARGS__})

static void strided_memory_is_saved_as_what_it_shows(void **state) {
    (void)state;
    const uint32_t *m = strided_memory();
    struct item items[] = {
        view("transposed", BW_F32, m, 2, SHAPE(48, 64), STRIDE(4, 192)),
        view("every second column", BW_F32, m, 2, SHAPE(64, 24), STRIDE(192, 8)),
        view("expanded", BW_F32, m, 3, SHAPE(5, 64, 3), STRIDE(0, 192, 0)),
        view("all one element", BW_F32, m + 5, 2, SHAPE(700, 300), STRIDE(0, 0)),
        view("backwards", BW_F32, m + STRIDED - 1, 1, SHAPE(STRIDED), STRIDE(-4)),
        view("mirrored", BW_F32, m + 47, 2, SHAPE(64, 48), STRIDE(192, -4)),
        view("permuted", BW_U16, m, 5, SHAPE(4, 2, 6, 16, 8), STRIDE(2, 3072, 512, 8, 192)),
        view("a window", BW_F32, m + 48 * 11 + 13, 2, SHAPE(7, 9), STRIDE(192, 4)),
        view("dims of one", BW_F32, m, 4, SHAPE(1, 64, 1, 48), STRIDE(INT64_C(1) << 60, 192, -77, 4)),
        view("odd bytes", BW_U8, (const char *)m + 1, 2, SHAPE(33, 5), STRIDE(67, 13)),
        view("unaligned f64", BW_F64, (const char *)m + 3, 2, SHAPE(9, 9), STRIDE(97, 9)),
    };
    (void)round_trip(items, sizeof items / sizeof *items);
}

/* Strided memory larger than any buffer, so that a box is cut in the middle of its rows. */
static void a_large_transposed_tensor_comes_back(void **state) {
    (void)state;
    const uint64_t rows = FULL_OR(3001, 701), cols = 2003;
    uint32_t *m = malloc(rows * cols * 4);
    must(m != NULL);
    fill(m, rows * cols * 4, 21);
    struct item items[] = {
        {.name = "m", .dtype = BW_I32, .dims = 2, .shape = {rows, cols}, .data = m},
        {.name = "m.T",
         .dtype = BW_I32,
         .dims = 2,
         .shape = {cols, rows},
         .strided = true,
         .stride = {4, (int64_t)cols * 4},
         .data = m},
    };
    (void)round_trip(items, 2);
    free(m);
}

static void of_a_view_only_the_view_is_written(void **state) {
    (void)state;
    const uint64_t storage = 64 * MIB;
    unsigned char *m = calloc(1, storage);
    must(m != NULL);
    fill(m + 12345, 4096, 8);
    struct item view = {.name = "view", .dtype = BW_U8, .dims = 1, .shape = {4096}, .data = m + 12345};
    const struct bw_save_stats stats = round_trip(&view, 1);
    must_eq(stats.raw_bytes, 4096);
    must_eq(stats.described_bytes, 4096);
    free(m);
}

static void two_names_of_one_storage_are_stored_once(void **state) {
    (void)state;
    static uint32_t m[50000];
    fill(m, sizeof m, 5);
    struct item items[] = {
        {.name = "embedding", .dtype = BW_F32, .dims = 2, .shape = {500, 100}, .data = m},
        {.name = "head", .dtype = BW_F32, .dims = 2, .shape = {500, 100}, .data = m},
        {.name = "head.again",
         .dtype = BW_F32,
         .dims = 2,
         .shape = {500, 100},
         .strided = true,
         .stride = {400, 4},
         .data = m},
        {.name = "same bytes, other type", .dtype = BW_I32, .dims = 2, .shape = {500, 100}, .data = m},
    };
    const struct bw_save_stats stats = round_trip(items, 4);
    must_eq(stats.described_bytes, 4 * sizeof m);
    must_eq(stats.raw_bytes, 2 * sizeof m);
}

static void overlapping_views_come_back_each(void **state) {
    (void)state;
    static uint64_t m[3000];
    fill(m, sizeof m, 6);
    struct item items[] = {
        {.name = "low", .dtype = BW_I64, .dims = 1, .shape = {2000}, .data = m},
        {.name = "high", .dtype = BW_I64, .dims = 1, .shape = {2000}, .data = m + 1000},
        {.name = "inside", .dtype = BW_F64, .dims = 1, .shape = {10}, .data = m + 1500},
    };
    const struct bw_save_stats stats = round_trip(items, 3);
    must_eq(stats.raw_bytes, 4010 * 8);
}

/* --- names ---- */

#define EMOJI "\xf0\x9f\xa6\x80\xf0\x9f\x8c\x8a"

static const char *const strange_names[] = {"a/b/c",
                                            "/",
                                            "//",
                                            "../../etc/passwd",
                                            "..",
                                            ".",
                                            ".hidden",
                                            "with space",
                                            " ",
                                            "a|b",
                                            "tab\tname",
                                            "new\nline",
                                            "quote\"s",
                                            "back\\slash",
                                            EMOJI,
                                            ("weights" EMOJI),
                                            "Layer",
                                            "layer",
                                            "LAYER",
                                            "__metadata__",
                                            "bw:0",
                                            "bw:1",
                                            "bw:",
                                            "bw",
                                            "store.json",
                                            "content",
                                            "history",
                                            "manifest",
                                            "index",
                                            "placement",
                                            "%00",
                                            "%2e%2e",
                                            "\x01",
                                            "\x7f",
                                            "null",
                                            "\xc3\xa9",
                                            "e\xcc\x81",
                                            "0",
                                            "-1",
                                            "{}",
                                            "[\"x\"]",
                                            "a.safetensors",
                                            "groups/000000",
                                            "model.layers.0.weight"};
#define STRANGE_NAMES (sizeof strange_names / sizeof *strange_names)

static void add_named(struct bw_save *v, const char *name, uint32_t *value) {
    struct bw_error err = BW_ERROR_INIT;
    add_box(v, name, BW_U32, value, 0, NULL, NULL, NULL);
    must_ok(bw_save_blob(v, name, value, sizeof *value, &err), &err);
}

static void check_named(struct bw_restore *r, const char *name, uint32_t want) {
    struct bw_error err = BW_ERROR_INIT;
    uint32_t got = 0, blob = 0;
    size_t bytes = 0;
    struct bw_slice s = BW_SLICE_INIT;
    s.dtype = BW_U32;
    s.name = name;
    s.data = &got;
    must_ok(bw_restore_read(r, &s, 1, &err), &err);
    must_at(got == want, name, "a tensor comes back under its name", __FILE__, __LINE__);
    must_ok(bw_restore_blob(r, 0, name, &blob, sizeof blob, &bytes, &err), &err);
    must_at(bytes == 4 && blob == want, name, "a blob comes back under its name", __FILE__, __LINE__);
}

/* All names of both kinds, in order, each once. */
static void check_order(struct bw_restore *r, size_t n) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_tensor_info t, last = {0};
    struct bw_blob_info b, before = {0};
    for (size_t i = 0; i < n; i++, last = t, before = b) {
        must_ok(bw_restore_tensor_at(r, i, &t, &err), &err);
        must_ok(bw_restore_blob_at(r, i, &b, &err), &err);
        must(last.name == NULL || strcmp(last.name, t.name) < 0);
        must(before.name == NULL || strcmp(before.name, b.name) < 0);
        must_eq(b.bytes, 4);
    }
    must_fail(bw_restore_tensor_at(r, n, &t, &err), BW_E_NOTFOUND, &err, NULL);
    must_fail(bw_restore_blob_at(r, n, &b, &err), BW_E_NOTFOUND, &err, NULL);
}

static void strange_names_come_back(void **state) {
    (void)state;
    struct place p;
    uint32_t values[STRANGE_NAMES + 3];
    char long_name[4097], longest[8193], longest_too[8193];
    place_make(&p);
    memset(long_name, 'n', 4096);
    long_name[4096] = 0;
    for (size_t i = 0; i < 8192; i += 4) memcpy(longest + i, EMOJI, 4);
    longest[8192] = 0;
    memcpy(longest_too, longest, sizeof longest);
    longest_too[8191] = '\x81';
    const char *long_names[] = {long_name, longest, longest_too};
    struct bw_checkpointer *ck = open_alone(&p, "first");
    struct bw_save *v = begin(ck, 1);
    for (size_t i = 0; i < STRANGE_NAMES + 3; i++) {
        values[i] = element_value(2, i);
        add_named(v, i < STRANGE_NAMES ? strange_names[i] : long_names[i - STRANGE_NAMES], &values[i]);
    }
    commit(v);
    close_ok(ck);
    struct bw_restore *r = reader_of(&p, 1);
    for (size_t i = 0; i < STRANGE_NAMES + 3; i++)
        check_named(r, i < STRANGE_NAMES ? strange_names[i] : long_names[i - STRANGE_NAMES], values[i]);
    check_order(r, STRANGE_NAMES + 3);
    bw_restore_close(r);
    place_drop(&p);
}

/* --- what is no tensor ---- */

static void blobs_come_back(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    const size_t large = FULL_OR(40, 5) * MIB + 3;
    char *m = malloc(large), *got = malloc(large), small[8];
    size_t bytes = 0;
    must(m != NULL && got != NULL);
    place_make(&p);
    fill(m, large, 9);
    struct bw_checkpointer *ck = open_alone(&p, "first");
    struct bw_save *v = begin(ck, 1);
    must_ok(bw_save_blob(v, "empty", NULL, 0, &err), &err);
    must_ok(bw_save_blob(v, "large", m, large, &err), &err);
    must_ok(bw_save_blob(v, "one", "\0", 1, &err), &err);
    commit(v);
    close_ok(ck);
    struct bw_restore *r = reader_of(&p, 1);
    must_ok(bw_restore_blob(r, 0, "empty", NULL, 0, &bytes, &err), &err);
    must_eq(bytes, 0);
    must_fail(bw_restore_blob(r, 0, "large", NULL, 0, &bytes, &err), BW_E_LIMIT, &err, "large");
    must_eq(bytes, large);
    must_fail(bw_restore_blob(r, 0, "large", got, large - 1, &bytes, &err), BW_E_LIMIT, &err, "large");
    must_ok(bw_restore_blob(r, 0, "large", got, large, &bytes, &err), &err);
    must(bytes == large && is_filled(got, large, 9));
    must_ok(bw_restore_blob(r, 0, "one", small, sizeof small, &bytes, &err), &err);
    must(bytes == 1 && small[0] == 0);
    must_fail(bw_restore_blob(r, 0, "two", small, sizeof small, &bytes, &err), BW_E_NOTFOUND, &err, "two");
    must_fail(bw_restore_blob(r, 1, "one", small, sizeof small, &bytes, &err), BW_E_NOTFOUND, &err, "rank 1");
    bw_restore_close(r);
    place_drop(&p);
    free(got);
    free(m);
}

static void metadata_comes_back_in_canonical_form(void **state) {
    (void)state;
    static const char given[] =
        "{ \"z\" : [1, -2, 9007199254740993, 9223372036854775807, -9223372036854775808], \"a\": "
        "{\"lr\": 0.1, \"tiny\": 1e-300, \"neg\": -0.5, \"nested\": {\"list\": [[], {}, null, true, \"" EMOJI
        "\"]}}, \"\": \"\" }";
    static const char want[] =
        "{\"\":\"\",\"a\":{\"lr\":0.1,\"neg\":-0.5,\"nested\":{\"list\":[[],{},null,true,\"" EMOJI
        "\"]},\"tiny\":1e-300},\"z\":[1,-2,9007199254740993,9223372036854775807,"
        "-9223372036854775808]}";
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    const char *got = NULL;
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "first");
    struct bw_save *v = begin(ck, 1);
    must_fail(bw_save_metadata(v, "{\"a\":1,\"a\":2}", &err), BW_E_INVALID, &err, "metadata");
    must_fail(bw_save_metadata(v, "[1]", &err), BW_E_INVALID, &err, "expected a JSON object");
    must_fail(bw_save_metadata(v, "{", &err), BW_E_INVALID, &err, "metadata");
    must_ok(bw_save_metadata(v, "{\"replaced\":1}", &err), &err);
    must_ok(bw_save_metadata(v, given, &err), &err);
    commit(v);
    v = begin(ck, 2);
    commit(v);
    close_ok(ck);
    struct bw_restore *r = reader_of(&p, 1);
    must_ok(bw_restore_metadata(r, 0, &got, &err), &err);
    must_at(strcmp(got, want) == 0, got, "metadata comes back", __FILE__, __LINE__);
    must_fail(bw_restore_metadata(r, 1, &got, &err), BW_E_NOTFOUND, &err, NULL);
    bw_restore_close(r);
    r = reader_of(&p, 2);
    must_ok(bw_restore_metadata(r, 0, &got, &err), &err);
    must_at(strcmp(got, "{}") == 0, got, "no metadata is an empty object", __FILE__, __LINE__);
    bw_restore_close(r);
    place_drop(&p);
}

/* --- values of the moment ---- */

/* Memory is overwritten as soon as it was captured, and freed and allocated again between the saves. */
static void every_save_holds_the_values_at_its_start(void **state) {
    (void)state;
    struct place p;
    const uint64_t n = FULL_OR(24, 3) * MIB + 77;
    enum { SAVES = 6 };
    place_make(&p);
    struct bw_options o = options_of(&p, "first", 0, 1);
    o.saves_in_flight_max = 4;
    struct bw_checkpointer *ck = open_with(&o);
    struct bw_save *saves[SAVES];
    for (uint64_t step = 1; step <= SAVES; step++) {
        char *m = malloc(n);
        must(m != NULL);
        fill(m, n, step);
        struct bw_save *v = saves[step - 1] = begin(ck, step);
        add_bytes(v, "w", m, n);
        start(v);
        wait_for(v, BW_CAPTURED);
        memset(m, 0xee, n);
        free(m);
    }
    for (size_t i = 0; i < SAVES; i++) {
        finish(saves[i]);
    }
    close_ok(ck);
    for (uint64_t step = 1; step <= SAVES; step++) check_bytes(&p, step, n, step);
    place_drop(&p);
}

/* Destinations may be strided as sources may. */
static void strided_destinations_are_filled(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    enum { R = 37, C = 53 };
    static uint32_t m[R * C], got[C * R], back[R * C];
    const uint64_t shape[2] = {R, C}, offset[2] = {5, 7}, extent[2] = {30, 40};
    const int64_t transposed[2] = {4, R * 4}, reversed[2] = {-C * 4, -4};
    place_make(&p);
    fill(m, sizeof m, 4);
    struct bw_checkpointer *ck = open_alone(&p, "first");
    struct bw_save *v = begin(ck, 1);
    add_box(v, "m", BW_F32, m, 2, shape, NULL, NULL);
    commit(v);
    close_ok(ck);
    struct bw_restore *r = reader_of(&p, 1);
    struct bw_slice s[2] = {BW_SLICE_INIT, BW_SLICE_INIT};
    s[0].dtype = s[1].dtype = BW_F32;
    s[0].name = s[1].name = "m";
    s[0].dims = s[1].dims = 2;
    s[0].data = got;
    s[0].offset = offset;
    s[0].extent = extent;
    s[0].stride_bytes = transposed;
    s[1].data = back + R * C - 1;
    s[1].stride_bytes = reversed;
    must_ok(bw_restore_read(r, s, 2, &err), &err);
    for (size_t i = 0; i < R; i++) {
        for (size_t k = 0; k < C; k++) {
            const bool in_box = i < 30 && k < 40;
            must_eq(got[k * R + i], in_box ? m[(i + 5) * C + k + 7] : 0);
            must_eq(back[R * C - 1 - (i * C + k)], m[i * C + k]);
        }
    }
    bw_restore_close(r);
    place_drop(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_odd_size_comes_back),
        cmocka_unit_test(scalars_and_empty_tensors_come_back),
        cmocka_unit_test(a_hundred_thousand_tiny_tensors_come_back),
        cmocka_unit_test(every_dtype_keeps_its_bits),
        cmocka_unit_test(strided_memory_is_saved_as_what_it_shows),
        cmocka_unit_test(a_large_transposed_tensor_comes_back),
        cmocka_unit_test(of_a_view_only_the_view_is_written),
        cmocka_unit_test(two_names_of_one_storage_are_stored_once),
        cmocka_unit_test(overlapping_views_come_back_each),
        cmocka_unit_test(strange_names_come_back),
        cmocka_unit_test(blobs_come_back),
        cmocka_unit_test(metadata_comes_back_in_canonical_form),
        cmocka_unit_test(every_save_holds_the_values_at_its_start),
        cmocka_unit_test(strided_destinations_are_filled),
    };
    return run_cases(tests);
}
