/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of packs: our own, foreign ones, and every refusal. Another implementation reads and writes the same
 * files in tests/integration/pack_safetensors.py. */
#include "format/pack.h"
#include "growth.h"
#include "json_fixture.h"
#include <breakwater/tensor.h>

/* A file's first bytes: length and JSON. */
static struct bwi_buf head_of(const void *json, size_t len) {
    struct bwi_buf b = {0};
    bwi_buf_u64(&b, len);
    bwi_buf_put(&b, json, len);
    return b;
}

static int decode_json(const char *json, size_t data_bytes, struct bwi_pack_header *ret, struct bw_error *err) {
    struct bwi_buf b = head_of(json, strlen(json));
    const int rc = bwi_pack_header_decode(bwi_buf_span(&b), b.len + data_bytes, ret, err);
    bwi_buf_fini(&b);
    return rc;
}

static bool named(const struct bwi_pack_entry *e, const char *name) {
    return bwi_span_eq(e->name, bwi_span_str(name));
}

static struct bwi_pack_entry entry(const char *name, uint8_t dtype, uint64_t begin, uint64_t n) {
    struct bwi_pack_entry e = {.name = bwi_span_str(name), .dtype = dtype, .dims = 1, .begin = begin};
    e.shape[0] = n;
    e.end = begin + n * bw_dtype_bytes(dtype);
    return e;
}

static void our_own_header_has_these_bytes(void **state) {
    (void)state;
    static const char golden[] = "{\"__metadata__\":{\"breakwater\":\"1.0\",\"run\":\"gpt-small\"},"
                                 "\"wte\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                                 "\"empty\":{\"dtype\":\"BF16\",\"shape\":[0,7],\"data_offsets\":[24,24]},"
                                 "\"scalar\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[24,32]},"
                                 "\"bw:0\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[32,37]}}";
    struct bwi_pack_entry entries[] = {
        {.name = bwi_span_str("wte"), .dtype = BW_F32, .dims = 2, .shape = {2, 3}, .begin = 0, .end = 24},
        {.name = bwi_span_str("empty"), .dtype = BW_BF16, .dims = 2, .shape = {0, 7}, .begin = 24, .end = 24},
        {.name = bwi_span_str("scalar"), .dtype = BW_I64, .dims = 0, .begin = 24, .end = 32},
        {.name = bwi_span_str("bw:0"), .dtype = BW_U8, .dims = 1, .shape = {5}, .begin = 32, .end = 37},
    };
    const struct bwi_pack_header h = {.entries = entries,
                                      .count = 4,
                                      .data_bytes = 37,
                                      .metadata = bwi_span_str("{\"breakwater\":\"1.0\",\"run\":\"gpt-small\"}")};
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    assert_ok(bwi_pack_header_encode(&h, 1, &out, &err), &err);
    assert_int_equal(out.len, 8 + strlen(golden));
    assert_true(bwi_le64(out.ptr) == strlen(golden));
    assert_memory_equal(out.ptr + 8, golden, strlen(golden));

    bwi_buf_reset(&out);
    const struct bwi_span file = fixture("good-pack.safetensors");
    assert_ok(bwi_pack_header_encode(&h, 4096, &out, &err), &err);
    assert_int_equal(out.len, 4096);
    assert_memory_equal(out.ptr, file.ptr, 4096);
    span_free(file);
    bwi_buf_fini(&out);
}

static void our_own_header_comes_back(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_pack_header h;
    struct bwi_buf out = {0};
    const struct bwi_span file = fixture("good-pack.safetensors");
    assert_ok(bwi_pack_header_decode(file, file.len, &h, &err), &err);
    assert_true(h.count == 4 && h.data_bytes == 37 &&
                h.metadata.len == strlen("{\"breakwater\":\"1.0\",\"run\":\"gpt-small\"}"));
    assert_true(named(&h.entries[1], "empty") && h.entries[1].dims == 2 && h.entries[1].shape[1] == 7);
    assert_ok(bwi_pack_header_encode(&h, 4096, &out, &err), &err);
    assert_memory_equal(out.ptr, file.ptr, out.len);
    bwi_pack_header_fini(&h);
    bwi_pack_header_fini(&h);
    bwi_pack_header_fini(NULL);
    bwi_buf_fini(&out);
    span_free(file);
}

static void a_foreign_header_is_read_and_put_in_order(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_pack_header h;
    const struct bwi_span file = fixture("good-pack-foreign.safetensors");
    assert_ok(bwi_pack_header_decode(file, file.len, &h, &err), &err);
    assert_int_equal(h.count, 2);
    assert_true(named(&h.entries[0], "a") && h.entries[0].dtype == BW_F64 && h.entries[0].begin == 0);
    assert_true(named(&h.entries[1], "b\xc3\xa9\xf0\x9f\x98\x80/\"\\") && h.entries[1].dtype == BW_C64 &&
                h.entries[1].end == 24);
    static const char metadata[] = "{\"a\":\"\",\"z\":\"\\n/\"}";
    assert_int_equal(h.metadata.len, strlen(metadata));
    assert_memory_equal(h.metadata.ptr, metadata, h.metadata.len);
    bwi_pack_header_fini(&h);
    span_free(file);
}

static void a_file_without_tensors_is_a_pack(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_pack_header h;
    assert_ok(decode_json("{}", 0, &h, &err), &err);
    assert_true(h.count == 0 && h.metadata.len == 0);
    bwi_pack_header_fini(&h);
    assert_ok(decode_json("{ \"__metadata__\" : { } }\n", 0, &h, &err), &err);
    assert_true(h.count == 0 && h.metadata.len == 2 && memcmp(h.metadata.ptr, "{}", 2) == 0);
    bwi_pack_header_fini(&h);
}

static void empty_tensors_stay_where_they_stand_in_the_text(void **state) {
    (void)state;
    static const char json[] = "{\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]},\"y\":{\"dtype\":\"U8\","
                               "\"shape\":[0,3],\"data_offsets\":[2,2]},"
                               "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]},\"a\":{\"dtype\":\"U8\","
                               "\"shape\":[2],\"data_offsets\":[0,2]}}";
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_pack_header h;
    assert_ok(decode_json(json, 3, &h, &err), &err);
    assert_true(named(&h.entries[0], "a") && named(&h.entries[1], "z") && named(&h.entries[2], "y") &&
                named(&h.entries[3], "b"));
    bwi_pack_header_fini(&h);
}

static void every_dtype_has_its_name_and_size(void **state) {
    (void)state;
    for (uint8_t dtype = BW_BOOL; dtype <= BW_F8_E8M0; dtype++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_pack_header h;
        struct bwi_buf out = {0};
        char json[128];
        const size_t bytes = 3 * bw_dtype_bytes(dtype);
        (void)snprintf(json, sizeof json, "{\"t\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}",
                       bw_dtype_name(dtype), bytes);
        assert_ok(decode_json(json, bytes, &h, &err), &err);
        assert_int_equal(h.entries[0].dtype, dtype);
        assert_int_equal(bwi_pack_dtype(dtype), dtype <= BW_U64);
        const int rc = bwi_pack_header_encode(&h, 1, &out, &err);
        if (dtype <= BW_U64)
            assert_ok(rc, &err);
        else
            assert_fails(rc, BW_E_INVALID, &err, "cannot be in a pack");
        bwi_buf_fini(&out);
        bwi_pack_header_fini(&h);
    }
    assert_false(bwi_pack_dtype(0));
    assert_false(bwi_pack_dtype(21));
}

#define T(name, dtype, shape, offsets)                                                                                 \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"
#define SEVENTEEN "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"

static const struct {
    const char *json;
    size_t data_bytes;
    int want;
    const char *message;
} refusals[] = {
    /* grammar */
    {"", 0, BW_E_FORMAT, "expected '{' right behind the length"},
    {" {}", 0, BW_E_FORMAT, "expected '{' right behind the length"},
    {"[]", 0, BW_E_FORMAT, "expected '{' right behind the length"},
    {"{", 0, BW_E_FORMAT, "byte 9: expected a string, found the end"},
    {"{}}", 0, BW_E_FORMAT, "byte 10: expected nothing but blanks behind it, found '}'"},
    {"{} x", 0, BW_E_FORMAT, "byte 11: expected nothing but blanks"},
    {"{,}", 0, BW_E_FORMAT, "byte 9: expected a string, found ','"},
    {"{" T("a", "U8", "1", "0,1") ",}", 1, BW_E_FORMAT, "expected a string, found '}'"},
    {"{" T("a", "U8", "1", "0,1") "\"b\"}", 1, BW_E_FORMAT, "expected ',' or '}', found '\"'"},
    {"{\"a\" {}}", 0, BW_E_FORMAT, "expected ':', found '{'"},
    {"{\"a\":[]}", 0, BW_E_FORMAT, "expected '{', found '['"},
    {"{\"a\":null}", 0, BW_E_FORMAT, "expected '{', found 'n'"},
    {"{\"a\":{}}", 0, BW_E_FORMAT, "tensor \"a\": expected \"dtype\", \"shape\", \"data_offsets\""},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, BW_E_FORMAT, "tensor \"a\": expected \"dtype\""},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 1, BW_E_FORMAT, "tensor \"a\": \"dtype\" is there twice"},
    {"{\"a\":{\"stride\":[1]}}", 1, BW_E_UNSUPPORTED, "tensor \"a\": member \"stride\" is not known"},
    {"{\"a\":{\"dtype\":8}}", 1, BW_E_FORMAT, "expected a string, found '8'"},
    {"{\"a\":{\"shape\":1}}", 1, BW_E_FORMAT, "expected '[', found '1'"},
    {"{\"a\":{\"shape\":[[1]]}}", 1, BW_E_FORMAT, "expected a number without a sign, found '['"},
    {"{'a':1}", 0, BW_E_FORMAT, "expected a string, found '''"},
    /* strings */
    {"{\"a", 0, BW_E_FORMAT, "expected the rest of a string, found the end"},
    {"{\"a\n\":1}", 0, BW_E_FORMAT, "expected the rest of a string, found byte 0x0a"},
    {"{\"\\x41\":1}", 0, BW_E_FORMAT, "expected an escape, found 'x'"},
    {"{\"\\u12g4\":1}", 0, BW_E_FORMAT, "expected a hex digit, found 'g'"},
    {"{\"\\u12", 0, BW_E_FORMAT, "expected a hex digit, found the end"},
    {"{\"\\ud83d\":1}", 0, BW_E_FORMAT, "expected the escape of a low surrogate"},
    {"{\"\\ud83d\\n\":1}", 0, BW_E_FORMAT, "expected the escape of a low surrogate"},
    {"{\"\\ud83d\\u0041\":1}", 0, BW_E_FORMAT, "expected a low surrogate behind a high one"},
    {"{\"\\ude00\":1}", 0, BW_E_FORMAT, "expected a high surrogate before a low one"},
    {"{\"\\u0000\":1}", 0, BW_E_FORMAT, "expected UTF-8 without NUL in a string"},
    {"{\"\xff\":1}", 0, BW_E_FORMAT, "byte 9: expected UTF-8 without NUL in a string"},
    {"{\"\xc0\x80\":1}", 0, BW_E_FORMAT, "expected UTF-8"},
    {"{\"\xed\xa0\x80\":1}", 0, BW_E_FORMAT, "expected UTF-8"},
    {"{" T("", "U8", "1", "0,1") "}", 1, BW_E_FORMAT, "a tensor has no name"},
    /* numbers */
    {"{" T("a", "U8", "1.0", "0,1") "}", 1, BW_E_FORMAT, "expected ',' or ']', found '.'"},
    {"{" T("a", "U8", "1e0", "0,1") "}", 1, BW_E_FORMAT, "expected ',' or ']', found 'e'"},
    {"{" T("a", "U8", "-1", "0,1") "}", 1, BW_E_FORMAT, "expected a number without a sign, found '-'"},
    {"{" T("a", "U8", "01", "0,1") "}", 1, BW_E_FORMAT, "expected a number that fits 64 bits, without leading zeros"},
    {"{" T("a", "U8", "18446744073709551616", "0,1") "}", 1, BW_E_FORMAT, "expected a number that fits 64 bits"},
    {"{" T("a", "U8", "1,", "0,1") "}", 1, BW_E_FORMAT, "expected a number"},
    {"{" T("a", "U8", "\"1\"", "0,1") "}", 1, BW_E_FORMAT, "expected a number"},
    /* metadata */
    {"{\"__metadata__\":{\"a\":1}}", 0, BW_E_FORMAT, "expected a string, found '1'"},
    {"{\"__metadata__\":{\"a\":{}}}", 0, BW_E_FORMAT, "expected a string, found '{'"},
    {"{\"__metadata__\":null}", 0, BW_E_FORMAT, "expected '{', found 'n'"},
    {"{\"__metadata__\":{\"a\":\"\",\"\\u0061\":\"\"}}", 0, BW_E_FORMAT, "metadata repeats the key \"a\""},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, BW_E_FORMAT, "\"__metadata__\" is there twice"},
    {"{\"__metadata__\":{\"a\":\"\\u0000\"}}", 0, BW_E_FORMAT, "expected UTF-8 without NUL"},
    /* tensors */
    {"{" T("a", "F4", "1", "0,1") "}", 1, BW_E_UNSUPPORTED, "tensor \"a\": dtype \"F4\" is not known"},
    {"{" T("a", "f32", "1", "0,4") "}", 4, BW_E_UNSUPPORTED, "tensor \"a\": dtype \"f32\" is not known"},
    {"{" T("a", "a_name_that_is_too_long", "1", "0,4") "}", 4, BW_E_UNSUPPORTED,
     "dtype \"a_name_that_is_too_long\" is not known"},
    {"{" T("a", "", "1", "0,4") "}", 4, BW_E_UNSUPPORTED, "dtype \"\" is not known"},
    {"{" T("a", "U8", SEVENTEEN, "0,1") "}", 1, BW_E_FORMAT, "tensor \"a\": more than 16 dimensions"},
    {"{" T("a", "U8", "1", "0,1,2") "}", 1, BW_E_FORMAT, "tensor \"a\": more than 2 offsets"},
    {"{" T("a", "U8", "1", "0") "}", 1, BW_E_FORMAT, "tensor \"a\": expected 2 offsets, found 1"},
    {"{" T("a", "U8", "1", "") "}", 1, BW_E_FORMAT, "tensor \"a\": expected 2 offsets, found 0"},
    {"{" T("a", "U8", "2", "0,1") "}", 1, BW_E_FORMAT, "tensor \"a\": shape and dtype make 2 bytes, offsets 0 to 1"},
    {"{" T("a", "F32", "1", "0,1") "}", 1, BW_E_FORMAT, "tensor \"a\": shape and dtype make 4 bytes, offsets 0 to 1"},
    {"{" T("a", "U8", "0", "1,0") "}", 1, BW_E_FORMAT, "tensor \"a\": begins at 1, expected 0 (a hole before it)"},
    {"{" T("a", "U8", "1", "0,1") "," T("b", "U8", "1", "1,0") "}", 1, BW_E_FORMAT,
     "tensor \"b\": shape and dtype make 1 bytes, offsets 1 to 0"},
    {"{" T("a", "F64", "2305843009213693952", "0,0") "}", 0, BW_E_FORMAT,
     "tensor \"a\": its shape has more than 2^64 bytes"},
    {"{" T("a", "U8", "4294967296,4294967296,0", "0,0") "}", 0, BW_E_FORMAT, "its shape has more than 2^64 bytes"},
    {"{" T("a", "U8", "1", "1,2") "}", 2, BW_E_FORMAT, "tensor \"a\": begins at 1, expected 0 (a hole before it)"},
    {"{" T("a", "U8", "1", "0,1") "," T("b", "U8", "1", "2,3") "}", 3, BW_E_FORMAT,
     "tensor \"b\": begins at 2, expected 1 (a hole before it)"},
    {"{" T("a", "U8", "2", "0,2") "," T("b", "U8", "2", "1,3") "}", 3, BW_E_FORMAT,
     "tensor \"b\": begins at 1, expected 2 (it overlaps"},
    {"{" T("a", "U8", "1", "0,1") "," T("b", "U8", "1", "0,1") "}", 1, BW_E_FORMAT,
     "begins at 0, expected 1 (it overlaps"},
    {"{" T("a", "U8", "1", "0,1") "}", 2, BW_E_FORMAT, "its tensors end at 1, the data at 2"},
    {"{" T("a", "U8", "2", "0,2") "}", 1, BW_E_FORMAT, "its tensors end at 2, the data at 1"},
    {"{" T("a", "U8", "1", "0,1") "," T("a", "U8", "1", "1,2") "}", 2, BW_E_FORMAT, "tensor \"a\" is there twice"},
    {"{" T("a", "U8", "1", "0,1") "," T("\\u0061", "U8", "1", "1,2") "}", 2, BW_E_FORMAT,
     "tensor \"a\" is there twice"},
    {"{}", 1, BW_E_FORMAT, "its tensors end at 0, the data at 1"},
};

static void each_rule_is_refused_with_a_message_that_names_the_tensor(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_pack_header h = {.count = 99};
        const long before = bwi_alloc_live();
        const int rc = decode_json(refusals[i].json, refusals[i].data_bytes, &h, &err);
        if (rc != refusals[i].want || strstr(err.message, refusals[i].message) == NULL)
            fail_msg("%s: status %d, message \"%s\", expected \"%s\"", refusals[i].json, rc, err.message,
                     refusals[i].message);
        assert_int_equal(h.count, 99);
        assert_int_equal(bwi_alloc_live(), before);
    }
}

static void the_length_is_checked_against_the_file_and_the_limit(void **state) {
    (void)state;
    static const struct {
        uint64_t length, file_bytes;
        const char *message;
    } cases[] = {
        {2, 10, NULL},
        {2, 9, "its length 2 does not fit a file of 9 bytes"},
        {0, 7, "expected at least 8 bytes, found 7"},
        {UINT64_MAX, UINT64_C(1) << 40, "its length 18446744073709551615 is above 16777216"},
        {UINT64_C(16) << 20, UINT64_C(1) << 40, NULL},
        {(UINT64_C(16) << 20) + 1, UINT64_C(1) << 40, "its length 16777217 is above 16777216"},
        {2, (UINT64_C(1) << 40) + 1, "the file has 1099511627777 bytes, at most 1099511627776"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bw_error err = BW_ERROR_INIT;
        uint8_t first[8];
        uint64_t bytes = 0;
        bwi_put_le64(first, cases[i].length);
        const int rc = bwi_pack_header_length(bwi_span(first, 8), cases[i].file_bytes, &bytes, &err);
        if (cases[i].message == NULL) {
            assert_ok(rc, &err);
            assert_true(bytes == 8 + cases[i].length);
        } else {
            assert_fails(rc, BW_E_FORMAT, &err, cases[i].message);
        }
    }
    struct bw_error err = BW_ERROR_INIT;
    uint64_t bytes;
    assert_fails(bwi_pack_header_length(bwi_span("1234567", 7), 100, &bytes, &err), BW_E_FORMAT, &err,
                 "expected at least 8 bytes, found 7");
}

static void every_cut_of_a_header_is_refused(void **state) {
    (void)state;
    static const char *const names[] = {"good-pack.safetensors", "good-pack-foreign.safetensors"};
    for (size_t k = 0; k < 2; k++) {
        const struct bwi_span file = fixture(names[k]);
        const size_t header = 8 + (size_t)bwi_le64(file.ptr);
        for (size_t n = 0; n < header; n++) {
            struct bw_error err = BW_ERROR_INIT;
            struct bwi_pack_header h;
            uint8_t *cut = malloc(n + 1);
            assert_non_null(cut);
            memcpy(cut, file.ptr, n);
            assert_fails(bwi_pack_header_decode(bwi_span(cut, n), file.len, &h, &err), BW_E_FORMAT, &err,
                         "pack header: ");
            /* The JSON itself is cut, the length tells so, and the file ends there. */
            if (n >= 8 && n < header - 3) {
                bwi_put_le64(cut, n - 8);
                bw_error_clear(&err);
                assert_fails(bwi_pack_header_decode(bwi_span(cut, n), n, &h, &err), BW_E_FORMAT, &err, "pack header: ");
            }
            free(cut);
        }
        span_free(file);
    }
}

/* Whatever the bytes are, decoding ends with a status, and what it accepts keeps the rules. */
static void noise_in_a_header_never_breaks_the_decoder(void **state) {
    (void)state;
    uint64_t rng = test_seed(4711);
    const struct bwi_span file = fixture("good-pack-foreign.safetensors");
    uint8_t *copy = malloc(file.len);
    assert_non_null(copy);
    for (int round = 0; round < 50000; round++) {
        memcpy(copy, file.ptr, file.len);
        for (uint64_t flips = 1 + test_random(&rng) % 3; flips > 0; flips--) {
            const uint64_t r = test_random(&rng);
            copy[8 + r % (file.len - 8)] = (uint8_t)(r >> 32);
        }
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_pack_header h;
        if (bwi_pack_header_decode(bwi_span(copy, file.len), file.len, &h, &err) < 0) continue;
        assert_true(h.count == 0 || h.entries[h.count - 1].end == h.data_bytes);
        bwi_pack_header_fini(&h);
    }
    free(copy);
    span_free(file);
}

static void names_of_any_kind_come_back(void **state) {
    (void)state;
    char all[130];
    for (int i = 0; i < 127; i++) all[i] = (char)(i + 1);
    all[127] = '\0';
    static char longest[8193];
    memset(longest, 'x', 8192);
    const char *const names[] = {"..", "/", ".hidden", " ",          "a|b", "\xf0\x9f\x98\x80",
                                 "A",  "a", "bw:0",    "__metadata", all,   longest};
    enum { N = sizeof names / sizeof names[0] };
    struct bwi_pack_entry entries[N];
    for (size_t i = 0; i < N; i++) entries[i] = entry(names[i], BW_U16, 2 * i, 1);
    const struct bwi_pack_header h = {.entries = entries, .count = N, .data_bytes = 2 * (size_t)N};
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    struct bwi_pack_header back;
    assert_ok(bwi_pack_header_encode(&h, 1, &out, &err), &err);
    assert_ok(bwi_pack_header_decode(bwi_buf_span(&out), out.len + h.data_bytes, &back, &err), &err);
    for (size_t i = 0; i < N; i++) {
        assert_true(named(&back.entries[i], names[i]));
        struct bwi_buf one = {0};
        const struct bwi_pack_entry single = entry(names[i], BW_U16, 0, 1);
        const struct bwi_pack_header alone = {
            .entries = (struct bwi_pack_entry *)(uintptr_t)&single, .count = 1, .data_bytes = 2};
        assert_ok(bwi_pack_header_encode(&alone, 1, &one, &err), &err);
        assert_true(bwi_pack_entry_json_bytes(&single) >= one.len - 8 - 2 + 1); /* less the braces, with a comma */
        bwi_buf_fini(&one);
    }
    bwi_pack_header_fini(&back);
    bwi_buf_fini(&out);
}

static void the_bound_of_an_entry_holds_for_the_largest_numbers(void **state) {
    (void)state;
    struct bwi_pack_entry e = {
        .name = bwi_span_str("\x01\x01"), .dtype = BW_F8_E5M2, .dims = 16, .begin = UINT64_MAX, .end = UINT64_MAX};
    for (int d = 0; d < 16; d++) e.shape[d] = UINT64_MAX;
    /* ,"\u0001\u0001":{"dtype":"F8_E5M2","shape":[...],"data_offsets":[..., ...]} */
    const size_t exact =
        1 + 14 + strlen(":{\"dtype\":\"F8_E5M2\",\"shape\":[],\"data_offsets\":[,]}") + 16 * 20 + 15 + 40;
    assert_true(bwi_pack_entry_json_bytes(&e) >= exact);
    assert_true(bwi_pack_entry_json_bytes(&e) < exact + 16);
}

static void a_writer_is_held_to_the_rules(void **state) {
    (void)state;
    static char too_long[8194];
    memset(too_long, 'x', 8193);
    const struct {
        struct bwi_pack_entry a, b;
        uint64_t data_bytes, align;
        const char *metadata;
        int want;
        const char *message;
    } cases[] = {
        {entry("a", BW_U8, 0, 1), entry("b", BW_U8, 1, 1), 2, 1, "", 0, NULL},
        {entry("a", BW_U8, 0, 1), entry("a", BW_U8, 1, 1), 2, 1, "", BW_E_INVALID, "tensor \"a\" is there twice"},
        {entry("a", BW_U8, 0, 1), entry("b", BW_U8, 2, 1), 3, 1, "", BW_E_INVALID,
         "tensor \"b\": begins at 2, expected 1"},
        {entry("a", BW_U8, 0, 1), entry("b", BW_U8, 1, 1), 3, 1, "", BW_E_INVALID,
         "its tensors end at 2, the data at 3"},
        {entry("__metadata__", BW_U8, 0, 1), entry("b", BW_U8, 1, 1), 2, 1, "", BW_E_INVALID,
         "the reserved name \"__metadata__\""},
        {entry("", BW_U8, 0, 1), entry("b", BW_U8, 1, 1), 2, 1, "", BW_E_INVALID, "a tensor has no name"},
        {entry("\xff", BW_U8, 0, 1), entry("b", BW_U8, 1, 1), 2, 1, "", BW_E_INVALID, "its name is not UTF-8"},
        {entry(too_long, BW_U8, 0, 1), entry("b", BW_U8, 1, 1), 2, 1, "", BW_E_LIMIT,
         "its name has 8193 bytes, at most 8192"},
        {entry("a", BW_C64, 0, 1), entry("b", BW_U8, 8, 1), 9, 1, "", BW_E_INVALID,
         "tensor \"a\": dtype C64 (16) cannot be in a pack"},
        {entry("a", BW_U8, 0, 1), entry("b", BW_U8, 1, 1), 2, 3, "", BW_E_INVALID, "a power of two, found 3"},
        {entry("a", BW_U8, 0, 1), entry("b", BW_U8, 1, 1), 2, 0, "", BW_E_INVALID, "a power of two, found 0"},
        {entry("a", BW_U8, 0, 1), entry("b", BW_U8, 1, 1), 2, 1, "{\"a\":1}", BW_E_INVALID,
         "metadata to be a canonical JSON object of strings"},
        {entry("a", BW_U8, 0, 1), entry("b", BW_U8, 1, 1), 2, 1, "[\"a\"]", BW_E_INVALID,
         "metadata to be a canonical JSON object of strings"},
        {entry("a", BW_U8, 0, 1), entry("b", BW_U8, 1, 1), 2, 1, "{\"a\": \"\"}", BW_E_INVALID,
         "strings: metadata: not canonical"},
        {entry("a", BW_U8, 0, 1), entry("b", BW_U8, 1, UINT64_C(1) << 40), (UINT64_C(1) << 40) + 1, 1, "", BW_E_LIMIT,
         "the pack is above 1099511627776"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bwi_pack_entry entries[] = {cases[i].a, cases[i].b};
        const struct bwi_pack_header h = {.entries = entries,
                                          .count = 2,
                                          .data_bytes = cases[i].data_bytes,
                                          .metadata = bwi_span_str(cases[i].metadata)};
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_buf out = {0};
        bwi_buf_str(&out, "abc");
        const int rc = bwi_pack_header_encode(&h, cases[i].align, &out, &err);
        if (cases[i].want == 0) {
            assert_ok(rc, &err);
        } else {
            assert_fails(rc, cases[i].want, &err, cases[i].message);
            assert_int_equal(out.len, 3);
        }
        bwi_buf_fini(&out);
    }
}

static void dimensions_above_sixteen_are_the_writers_limit(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    struct bwi_pack_entry e = entry("a", BW_U8, 0, 1);
    e.dims = 17;
    const struct bwi_pack_header h = {.entries = &e, .count = 1, .data_bytes = 1};
    assert_fails(bwi_pack_header_encode(&h, 1, &out, &err), BW_E_LIMIT, &err,
                 "tensor \"a\": has 17 dimensions, at most 16");
    bwi_buf_fini(&out);
}

static void a_header_above_sixteen_mebibytes_is_not_made(void **state) {
    (void)state;
    enum { N = 2100 };
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    struct bwi_pack_entry *entries = calloc(N, sizeof *entries);
    char *names = malloc((size_t)N * 8001);
    assert_true(entries != NULL && names != NULL);
    memset(names, 'n', (size_t)N * 8001);
    for (size_t i = 0; i < N; i++) {
        char *name = names + i * 8001;
        (void)snprintf(name, 8, "%06zu", i);
        name[6] = 'n';
        name[8000] = '\0';
        entries[i] = entry(name, BW_U8, i, 1);
    }
    struct bwi_pack_header h = {.entries = entries, .count = N, .data_bytes = N};
    assert_fails(bwi_pack_header_encode(&h, 4096, &out, &err), BW_E_LIMIT, &err, "at most 16777216 are allowed");
    assert_int_equal(out.len, 0);
    h.count = h.data_bytes = N - 20;
    assert_ok(bwi_pack_header_encode(&h, 4096, &out, &err), &err);
    assert_int_equal(out.len % 4096, 0);
    bwi_buf_fini(&out);
    free(entries);
    free(names);
}

static void the_header_is_padded_to_any_power_of_two(void **state) {
    (void)state;
    for (uint64_t align = 1; align <= 8192; align *= 2) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_buf out = {0};
        struct bwi_pack_header back;
        struct bwi_pack_entry e = entry("tensor", BW_F32, 0, 10);
        const struct bwi_pack_header h = {.entries = &e, .count = 1, .data_bytes = 40};
        assert_ok(bwi_pack_header_encode(&h, align, &out, &err), &err);
        assert_true(out.len % align == 0 && bwi_le64(out.ptr) == out.len - 8);
        assert_ok(bwi_pack_header_decode(bwi_buf_span(&out), out.len + 40, &back, &err), &err);
        assert_int_equal(back.count, 1);
        bwi_pack_header_fini(&back);
        bwi_buf_fini(&out);
    }
}

/* A header of n tensors, in no order of their names, there and back; each way is timed. */
static void time_a_header(size_t n, double *ret_encode_s, double *ret_decode_s) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    struct bwi_pack_header back;
    struct bwi_pack_entry *entries = calloc(n, sizeof *entries);
    char(*names)[64] = calloc(n, sizeof *names);
    assert_true(entries != NULL && names != NULL);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(names[i], sizeof names[i], "transformer.h.%zu.attn.c_proj.weight", (i * 7919) % n);
        entries[i] = entry(names[i], BW_F32, 12 * i, 3);
    }
    const struct bwi_pack_header h = {.entries = entries, .count = n, .data_bytes = 12 * n};
    clock_t start = clock();
    assert_ok(bwi_pack_header_encode(&h, 4096, &out, &err), &err);
    *ret_encode_s = seconds_since(start);
    start = clock();
    assert_ok(bwi_pack_header_decode(bwi_buf_span(&out), out.len + h.data_bytes, &back, &err), &err);
    *ret_decode_s = seconds_since(start);
    assert_int_equal(back.count, n);
    for (size_t i = 0; i < n; i++)
        assert_true(named(&back.entries[i], names[i]) && back.entries[i].end == entries[i].end);
    bwi_pack_header_fini(&back);
    bwi_buf_fini(&out);
    free(entries);
    free(names);
}

static double seconds_of_encoding(size_t n) {
    double encode_s, decode_s;
    time_a_header(n, &encode_s, &decode_s);
    return encode_s;
}

static double seconds_of_decoding(size_t n) {
    double encode_s, decode_s;
    time_a_header(n, &encode_s, &decode_s);
    return decode_s;
}

static void a_hundred_thousand_tensors_take_time_by_their_number(void **state) {
    (void)state;
    assert_no_square(seconds_of_encoding, 100000);
    assert_no_square(seconds_of_decoding, 100000);
}

/* Deep nesting of two kinds and one name for all entries, in a header of n bytes. */
static double seconds_of_refusal(int kind, size_t n) {
    static const char *const parts[] = {"[", "{\"a\":", T("a", "U8", "0", "0,0") ","};
    const size_t part = strlen(parts[kind]);
    char *json = malloc(n);
    assert_non_null(json);
    for (size_t i = 0; i < n; i++) json[i] = parts[kind][i % part];
    json[0] = '{';
    if (kind == 0) memcpy(json, "{\"a\":", 5);
    struct bwi_buf in = head_of(json, n);
    if (kind == 2) { /* whole entries, then blanks and the end */
        memmove(in.ptr + 9, in.ptr + 8, n - 1);
        in.ptr[8] = '{';
        const size_t whole = (n - 10) / part * part;
        for (size_t i = 0; i < whole; i++) in.ptr[9 + i] = (uint8_t)parts[kind][i % part];
        memset(in.ptr + 9 + whole - 1, ' ', n - whole);
        in.ptr[8 + n - 1] = '}';
    }
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_pack_header h;
    const clock_t start = clock();
    assert_fails(bwi_pack_header_decode(bwi_buf_span(&in), in.len, &h, &err),
                 kind == 1 ? BW_E_UNSUPPORTED : BW_E_FORMAT, &err,
                 kind == 2 ? "tensor \"a\" is there twice" : "pack header");
    const double took_s = seconds_since(start);
    bwi_buf_fini(&in);
    free(json);
    return took_s;
}

static double seconds_of_brackets(size_t n) {
    return seconds_of_refusal(0, n);
}

static double seconds_of_objects(size_t n) {
    return seconds_of_refusal(1, n);
}

static double seconds_of_one_name(size_t n) {
    return seconds_of_refusal(2, n);
}

static void a_hostile_header_takes_time_by_its_length(void **state) {
    (void)state;
    enum { LARGEST = 16 << 20 };
    assert_no_square(seconds_of_brackets, LARGEST);
    assert_no_square(seconds_of_objects, LARGEST);
    (void)seconds_of_one_name(LARGEST);
    assert_no_square(seconds_of_one_name, LARGEST / 4); /* as long as the processor's caches hold it */
}

static int whole_life(void *arg, struct bw_error *err) {
    const struct bwi_span *file = arg;
    struct bwi_pack_header h = {0};
    struct bwi_buf out = {0};
    int rc = bwi_pack_header_decode(*file, file->len, &h, err);
    for (size_t i = 0; i < h.count; i++) {
        if (!bwi_pack_dtype(h.entries[i].dtype)) h.entries[i].dtype = BW_F64; /* of the same size */
    }
    if (rc == 0) rc = bwi_pack_header_encode(&h, 4096, &out, err);
    bwi_buf_fini(&out);
    bwi_pack_header_fini(&h);
    return rc;
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void **state) {
    (void)state;
    static const char *const names[] = {"good-pack.safetensors", "good-pack-foreign.safetensors"};
    for (size_t i = 0; i < 2; i++) {
        struct bwi_span file = fixture(names[i]);
        survives_without_memory(whole_life, &file);
        span_free(file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(our_own_header_has_these_bytes),
        cmocka_unit_test(our_own_header_comes_back),
        cmocka_unit_test(a_foreign_header_is_read_and_put_in_order),
        cmocka_unit_test(a_file_without_tensors_is_a_pack),
        cmocka_unit_test(empty_tensors_stay_where_they_stand_in_the_text),
        cmocka_unit_test(every_dtype_has_its_name_and_size),
        cmocka_unit_test(each_rule_is_refused_with_a_message_that_names_the_tensor),
        cmocka_unit_test(the_length_is_checked_against_the_file_and_the_limit),
        cmocka_unit_test(every_cut_of_a_header_is_refused),
        cmocka_unit_test(noise_in_a_header_never_breaks_the_decoder),
        cmocka_unit_test(names_of_any_kind_come_back),
        cmocka_unit_test(the_bound_of_an_entry_holds_for_the_largest_numbers),
        cmocka_unit_test(a_writer_is_held_to_the_rules),
        cmocka_unit_test(dimensions_above_sixteen_are_the_writers_limit),
        cmocka_unit_test(a_header_above_sixteen_mebibytes_is_not_made),
        cmocka_unit_test(the_header_is_padded_to_any_power_of_two),
        cmocka_unit_test(a_hundred_thousand_tensors_take_time_by_their_number),
        cmocka_unit_test(a_hostile_header_takes_time_by_its_length),
        cmocka_unit_test(every_failed_allocation_is_reported_and_nothing_leaks),
    };
    return cmocka_run_group_tests_name("format/pack", tests, NULL, NULL);
}
