/* SPDX-License-Identifier: Apache-2.0 */
/* What a description accepts, what it refuses and with which words, and that a refusal changes nothing. */
#include "base/vec.h"
#include "boxes.h"
#include <jansson.h>
#include <time.h>

static uint8_t memory[4096];

static struct bw_tensor plain(const char *name, uint32_t dims, const uint64_t *shape) {
    struct bw_tensor t = BW_TENSOR_INIT;
    t.name = name;
    t.dtype = BW_F32;
    t.dims = dims;
    t.shape = shape;
    t.data = memory;
    return t;
}

/* A description with one tensor and one blob, to see that a refused call leaves it alone. */
static void setup(struct bwi_description *d) {
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(d);
    const uint64_t shape[] = {2, 3};
    const struct bw_tensor t = plain("first", 2, shape);
    assert_ok(bwi_description_tensor(d, &t, &err), &err);
    assert_ok(bwi_description_blob(d, "first", memory, 5, &err), &err);
}

static void assert_untouched(const struct bwi_description *d) {
    assert_int_equal(d->tensor_count, 1);
    assert_int_equal(d->blob_count, 1);
    assert_int_equal(d->bytes, 24 + 5);
    assert_int_equal(d->names.len, 1);
    assert_int_equal(d->blob_names.len, 1);
    assert_string_equal(d->tensors[0].name, "first");
}

static void refuse(const struct bw_tensor *t, int status, const char *message) {
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    setup(&d);
    assert_fails(bwi_description_tensor(&d, t, &err), status, &err, message);
    assert_untouched(&d);
    assert_int_equal(bwi_description_tensor(&d, t, NULL), status);
    bwi_description_fini(&d);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void a_scalar_is_one_element(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    const struct bw_tensor t = plain("s", 0, NULL);
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    assert_int_equal(d.tensors[0].bytes, 4);
    assert_int_equal(d.tensors[0].replica_count, 1);
    assert_int_equal(d.bytes, 4);
    bwi_description_fini(&d);
}

static void without_offset_extent_and_strides_the_box_is_the_shape_row_by_row(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    uint64_t shape[] = {5, 3, 2};
    char name[] = "w";
    struct bw_tensor t = plain(name, 3, shape);
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    shape[0] = 77; /* only borrowed for the call */
    name[0] = 'x';
    const struct bwi_tensor_source *s = &d.tensors[0];
    assert_string_equal(s->name, "w");
    const uint64_t want_shape[] = {5, 3, 2}, none[] = {0, 0, 0};
    const int64_t want_stride[] = {24, 8, 4};
    assert_memory_equal(s->shape, want_shape, sizeof want_shape);
    assert_memory_equal(s->extent, want_shape, sizeof want_shape);
    assert_memory_equal(s->offset, none, sizeof none);
    assert_memory_equal(s->stride, want_stride, sizeof want_stride);
    assert_int_equal(s->bytes, 120);
    bwi_description_fini(&d);
}

static void default_strides_follow_the_extent_and_not_the_shape(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    const uint64_t shape[] = {8, 100}, offset[] = {4, 50}, extent[] = {4, 7};
    struct bw_tensor t = plain("w", 2, shape);
    t.offset = offset;
    t.extent = extent;
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    assert_int_equal(d.tensors[0].stride[0], 28);
    assert_int_equal(d.tensors[0].stride[1], 4);
    assert_int_equal(d.tensors[0].bytes, 112);
    bwi_description_fini(&d);
}

static void an_extent_without_an_offset_begins_at_zero(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    const uint64_t shape[] = {8}, extent[] = {3};
    struct bw_tensor t = plain("w", 1, shape);
    t.extent = extent;
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    assert_int_equal(d.tensors[0].offset[0], 0);
    assert_int_equal(d.tensors[0].extent[0], 3);
    bwi_description_fini(&d);
}

static void empty_boxes_need_no_memory(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    const uint64_t empty_shape[] = {3, 0}, shape[] = {8, 4}, offset[] = {8, 0}, extent[] = {0, 4};
    const uint64_t huge[] = {UINT64_C(1) << 40, 0, UINT64_C(1) << 21};
    struct bw_tensor t = plain("empty shape", 2, empty_shape);
    t.data = NULL;
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    t = plain("empty box", 2, shape);
    t.data = NULL;
    t.offset = offset;
    t.extent = extent;
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    t = plain("huge but empty", 3, huge);
    t.dtype = BW_U8;
    t.data = NULL;
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    assert_int_equal(d.bytes, 0);
    bwi_description_fini(&d);
}

static void members_that_are_wrong_are_named(void **state) {
    (void)state;
    const uint64_t shape[] = {8, 4}, offset[] = {5, 0}, extent[] = {4, 4}, far[] = {9, 0}, none[] = {0, 0};
    const uint64_t over[] = {UINT64_MAX, 4};

    refuse(NULL, BW_E_INVALID, "tensor: NULL, expected a struct bw_tensor");
    struct bw_tensor t = plain("w", 2, shape);
    t.dtype = 0;
    refuse(&t, BW_E_INVALID, "tensor \"w\": unknown dtype 0");
    t.dtype = BW_F8_E8M0 + 1;
    refuse(&t, BW_E_INVALID, "tensor \"w\": unknown dtype 21");
    t.dtype = 256 + BW_F32;
    refuse(&t, BW_E_INVALID, "tensor \"w\": unknown dtype 268");
    t.dtype = UINT32_MAX;
    refuse(&t, BW_E_INVALID, "tensor \"w\": unknown dtype 4294967295");

    t = plain("w", 17, shape);
    refuse(&t, BW_E_LIMIT, "tensor \"w\": 17 dims, the limit is 16");
    t = plain("w", 2, NULL);
    refuse(&t, BW_E_INVALID, "tensor \"w\": shape is NULL, expected 2 sizes");
    t = plain("w", 2, shape);
    t.flags = 6;
    refuse(&t, BW_E_INVALID, "tensor \"w\": flags are 0x6, expected BW_TENSOR_DEVICE or 0");
    t = plain("w", 2, shape);
    t.data = NULL;
    refuse(&t, BW_E_INVALID, "tensor \"w\": data is NULL, expected 128 bytes");

    t = plain("w", 2, shape);
    t.offset = offset;
    refuse(&t, BW_E_INVALID, "tensor \"w\": offset 5 in dimension 0 without an extent, expected 0");
    t.extent = extent;
    refuse(&t, BW_E_INVALID, "tensor \"w\": offset 5 + extent 4 in dimension 0 is above the shape's 8");
    t.offset = none;
    t.extent = over;
    refuse(&t, BW_E_INVALID, "offset 0 + extent 18446744073709551615 in dimension 0 is above the shape's 8");
    t.offset = far;
    t.extent = none;
    refuse(&t, BW_E_INVALID, "offset 9 + extent 0 in dimension 0 is above the shape's 8");

    t = plain("w", 2, shape);
    t.replica_count = 3;
    t.replica_index = 3;
    refuse(&t, BW_E_INVALID, "tensor \"w\": replica_index is 3, expected it below replica_count, 3");
    t.replica_count = 0;
    t.replica_index = 1;
    refuse(&t, BW_E_INVALID, "tensor \"w\": replica_index is 1, expected it below replica_count, 1");
    t.replica_count = (UINT32_C(1) << 24) + 1;
    refuse(&t, BW_E_LIMIT, "tensor \"w\": replica_count is 16777217, the limit is 16777216");
}

static void offset_zero_without_an_extent_is_allowed(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    const uint64_t shape[] = {8, 4}, none[] = {0, 0};
    struct bw_tensor t = plain("w", 2, shape);
    t.offset = none;
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    assert_int_equal(d.tensors[0].bytes, 128);
    bwi_description_fini(&d);
}

static void sizes_that_overflow_are_refused(void **state) {
    (void)state;
    const uint64_t wide[] = {UINT64_C(1) << 32, UINT64_C(1) << 31}, one[] = {1, 1}, none[] = {0, 0};
    const uint64_t hidden[] = {UINT64_C(1) << 32, 0, UINT64_C(1) << 32};
    const uint64_t half[] = {UINT64_C(1) << 63};
    struct bw_tensor t = plain("w", 2, wide);
    refuse(&t, BW_E_INVALID, "tensor \"w\": bytes of the shape F32 [4294967296, 2147483648] do not fit 64 bits");
    t.offset = none;
    t.extent = one; /* the box is small, but nobody could hold the tensor */
    refuse(&t, BW_E_INVALID, "do not fit 64 bits");
    t = plain("w", 3, hidden);
    refuse(&t, BW_E_INVALID, "do not fit 64 bits");
    t = plain("w", 1, half);
    t.dtype = BW_U8;
    refuse(&t, BW_E_INVALID, "tensor \"w\": bytes of the extent U8 [9223372036854775808] do not fit the address space");
}

static void strides_that_leave_the_address_space_are_refused(void **state) {
    (void)state;
    const char *message = "tensor \"w\": stride_bytes times the extent F32 [2, 3] leaves the address space";
    const uint64_t shape[] = {2, 3};
    const int64_t wraps[] = {INT64_MAX, INT64_MAX}, lowest[] = {INT64_MIN, 4}, down[] = {-64, 4};
    const int64_t adds_up[] = {INT64_MAX - 64, 64}, high[] = {4096, 4};
    struct bw_tensor t = plain("w", 2, shape);
    t.stride_bytes = wraps;
    refuse(&t, BW_E_INVALID, message);
    t.stride_bytes = lowest;
    refuse(&t, BW_E_INVALID, message);
    t.stride_bytes = adds_up;
    refuse(&t, BW_E_INVALID, message);
    t.stride_bytes = down;
    t.data = (const void *)(uintptr_t)63; /* the second row would begin below 0 */
    refuse(&t, BW_E_INVALID, message);
    t.stride_bytes = high;
    t.data = (const void *)(UINTPTR_MAX - 4096 - 8 - 2); /* the last element would reach over the end */
    refuse(&t, BW_E_INVALID, message);

    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    t.stride_bytes = down;
    t.data = (const void *)(uintptr_t)64;
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    t.name = "top";
    t.stride_bytes = high;
    t.data = (const void *)(UINTPTR_MAX - 4096 - 8 - 4);
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    bwi_description_fini(&d);
}

static void names_are_checked(void **state) {
    (void)state;
    char longest[8194];
    memset(longest, 'n', sizeof longest);
    longest[8193] = 0;
    struct bw_tensor t = plain(NULL, 0, NULL);
    refuse(&t, BW_E_INVALID, "tensor: name is NULL, expected UTF-8");
    t.name = "";
    refuse(&t, BW_E_INVALID, "tensor: name is empty, expected 1 byte or more");
    t.name = longest;
    refuse(&t, BW_E_LIMIT, "name is longer than 8192 bytes, the limit");
    t.name = "a\xff";
    refuse(&t, BW_E_INVALID, "tensor \"a?\": name is not valid UTF-8");
    t.name = "first";
    refuse(&t, BW_E_INVALID, "tensor \"first\": name is there already, expected each once in a rank");

    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    setup(&d);
    longest[8192] = 0;
    t.name = longest;
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    const char *odd[] = {"/", "..", ".x", "a b", "|", "\xf0\x9f\x8c\x8a", "First", "__metadata__", "bw:0", "\n"};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        t.name = odd[i];
        assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    }
    assert_int_equal(d.tensor_count, 12);
    bwi_description_fini(&d);
}

static void the_size_of_the_struct_tells_the_version(void **state) {
    (void)state;
    const size_t oldest = offsetof(struct bw_tensor, replica_group);
    struct bw_tensor t = plain("w", 0, NULL);
    t.struct_size = (uint32_t)oldest - 1;
    refuse(&t, BW_E_INVALID, "tensor: struct_size is 71, expected 72 to 80");
    t.struct_size = sizeof t + 1;
    refuse(&t, BW_E_INVALID, "tensor: struct_size is 81, expected 72 to 80");
    t.struct_size = 0;
    refuse(&t, BW_E_INVALID, "struct_size is 0");

    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    t.struct_size = (uint32_t)oldest;
    t.replica_group = 99; /* behind what an old caller has */
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    assert_int_equal(d.tensors[0].replica_group, 0);
    t.name = "new";
    t.struct_size = sizeof t;
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    assert_int_equal(d.tensors[1].replica_group, 99);
    bwi_description_fini(&d);
}

static void blobs_are_checked_and_have_names_of_their_own(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    setup(&d); /* a tensor and a blob are named "first" */
    const struct {
        const char *name;
        const void *bytes;
        size_t n;
        const char *message;
    } bad[] = {
        {NULL, memory, 1, "blob: name is NULL"},
        {"", memory, 1, "blob: name is empty"},
        {"\xc0\x80", memory, 1, "name is not valid UTF-8"},
        {"first", memory, 1, "blob \"first\": name is there already"},
        {"b", NULL, 1, "blob \"b\": bytes is NULL, expected 1 bytes"},
        {"b", memory, SIZE_MAX, "blob \"b\": 18446744073709551615 bytes leave the address space"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct bw_error e = BW_ERROR_INIT;
        assert_fails(bwi_description_blob(&d, bad[i].name, bad[i].bytes, bad[i].n, &e), BW_E_INVALID, &e,
                     bad[i].message);
        assert_untouched(&d);
    }
    assert_ok(bwi_description_blob(&d, "nothing", NULL, 0, &err), &err);
    assert_int_equal(d.blob_count, 2);
    assert_int_equal(d.blobs[1].bytes, 0);
    bwi_description_fini(&d);
}

static void the_total_may_not_overflow(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    const uint64_t shape[] = {INT64_MAX};
    const int64_t expanded[] = {0};
    struct bw_tensor t = plain("a", 1, shape);
    t.dtype = BW_U8;
    t.stride_bytes = expanded;
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    t.name = "b";
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    t.name = "c";
    assert_fails(bwi_description_tensor(&d, &t, &err), BW_E_INVALID, &err, "description: bytes overflow");
    assert_int_equal(d.tensor_count, 2);
    assert_int_equal(d.bytes, UINT64_MAX - 1);
    bwi_description_fini(&d);
}

/* Counts alone: nobody has memory for so many. */
static void more_tensors_or_blobs_than_a_layout_holds_are_refused(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    const struct bw_tensor t = plain("more", 0, NULL);
    setup(&d);
    d.tensor_count = BWI_TENSORS_MAX;
    d.blob_count = BWI_BLOBS_MAX;
    assert_fails(bwi_description_tensor(&d, &t, &err), BW_E_LIMIT, &err,
                 "tensor \"more\": 16777216 tensors are described already, the limit");
    bw_error_clear(&err);
    assert_fails(bwi_description_blob(&d, "more", memory, 5, &err), BW_E_LIMIT, &err,
                 "blob \"more\": 1048576 blobs are described already, the limit");
    d.tensor_count = d.blob_count = 1;
    assert_untouched(&d);
    bwi_description_fini(&d);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void metadata_is_canonical(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    assert_ok(bwi_description_metadata(
                  &d, " { \"b\" : [1, 2] , \"a\":{\"z\":null,\"y\":0.1}, \"\\u00e9\":\"\\u00e9\" } ", &err),
              &err);
    const char *want = "{\"a\":{\"y\":0.1,\"z\":null},\"b\":[1,2],\"\xc3\xa9\":\"\xc3\xa9\"}";
    assert_int_equal(d.metadata.len, strlen(want));
    assert_memory_equal(d.metadata.ptr, want, strlen(want));
    char again[128];
    snprintf(again, sizeof again, "%s", want);
    assert_ok(bwi_description_metadata(&d, again, &err), &err); /* replaces, and is a fixed point */
    assert_int_equal(d.metadata.len, strlen(want));
    assert_memory_equal(d.metadata.ptr, want, strlen(want));
    assert_ok(bwi_description_metadata(&d, "{}", &err), &err);
    assert_int_equal(d.metadata.len, 2);
    bwi_description_fini(&d);
}

static void reals_come_back_as_they_were_in_the_fewest_digits(void **state) {
    (void)state;
    static const char *const texts[][2] = {
        {"0.1", "0.1"},
        {"3e-4", "0.0003"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"5e-324", NULL}, /* how an exponent is written is left open */
        {"1.7976931348623157e308", NULL},
        {"-2.5", "-2.5"},
        {"1.0", "1.0"},
        {"123456789012345678.0", NULL},
        {"2.2250738585072014e-308", NULL},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct bwi_description d;
        struct bw_error err = BW_ERROR_INIT;
        char json[64], found[64];
        bwi_description_init(&d);
        (void)snprintf(json, sizeof json, "{\"-1.5 \\\" 0.1\":%s}", texts[i][0]);
        assert_ok(bwi_description_metadata(&d, json, &err), &err);
        const size_t before = strlen("{\"-1.5 \\\" 0.1\":"); /* what is inside a text is no number */
        assert_memory_equal(d.metadata.ptr, json, before);
        (void)snprintf(found, sizeof found, "%.*s", (int)(d.metadata.len - before - 1),
                       (const char *)d.metadata.ptr + before);
        if (strtod(found, NULL) != strtod(texts[i][0], NULL)) fail_msg("%s came back as %s", texts[i][0], found);
        if (texts[i][1] != NULL) assert_string_equal(found, texts[i][1]);
        bwi_description_fini(&d);
    }
}

static void metadata_that_is_no_object_is_refused_and_the_old_one_stays(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    assert_ok(bwi_description_metadata(&d, "{\"k\":1}", &err), &err);
    const struct {
        const char *json, *message;
    } bad[] = {
        {NULL, "metadata: NULL, expected a JSON object"},
        {"", "metadata: expected a JSON object, at byte 0"},
        {"[1]", "metadata: expected a JSON object, found an array"},
        {"1", "metadata: expected a JSON object, at byte"},
        {"{\"a\":1,\"a\":2}", "duplicate object key"},
        {"{\"a\":1} x", "end of file expected"},
        {"{\"a\":NaN}", "metadata: expected a JSON object, at byte"},
        {"{\"a\":99999999999999999999}", "too big integer"},
        {"{\"a\":\"\xff\"}", "metadata: expected a JSON object, at byte"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct bw_error e = BW_ERROR_INIT;
        assert_fails(bwi_description_metadata(&d, bad[i].json, &e), BW_E_INVALID, &e, bad[i].message);
        assert_int_equal(d.metadata.len, 7);
        assert_memory_equal(d.metadata.ptr, "{\"k\":1}", 7);
    }
    bwi_description_fini(&d);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void metadata_has_at_most_one_mebibyte(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    const size_t most = 1 << 20;
    char *json = malloc(most + 2);
    memset(json, 'x', most + 2);
    memcpy(json, "{\"a\":\"", 6);
    memcpy(json + most - 2, "\"}", 3);
    assert_ok(bwi_description_metadata(&d, json, &err), &err);
    assert_int_equal(d.metadata.len, most);
    memcpy(json + most - 2, "x\"}", 4);
    assert_fails(bwi_description_metadata(&d, json, &err), BW_E_LIMIT, &err,
                 "metadata: longer than 1048576 bytes, the limit");
    /* Short as it is written, above the limit with the digits that reals need. */
    size_t at = (size_t)sprintf(json, "{\"a\":[1e9");
    while (at + 8 < most) at += (size_t)sprintf(json + at, ",1e9");
    sprintf(json + at, "]}");
    struct bw_error e = BW_ERROR_INIT;
    assert_fails(bwi_description_metadata(&d, json, &e), BW_E_LIMIT, &e, "bytes in canonical form");
    assert_int_equal(d.metadata.len, most);
    free(json);
    bwi_description_fini(&d);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void every_failed_allocation_is_reported_and_changes_nothing(void **state) {
    (void)state;
    unsigned long n = 0;
    for (int left = 3; left > 0;) {
        struct bwi_description d;
        bwi_description_init(&d);
        const struct bw_tensor t = plain("w", 0, NULL);
        (void)bwi_alloc_fail_at(++n);
        struct bw_error err = BW_ERROR_INIT;
        int rc = bwi_description_tensor(&d, &t, &err);
        if (rc < 0) assert_int_equal(d.tensor_count + d.names.len + d.bytes, 0);
        if (rc == 0) rc = bwi_description_blob(&d, "b", memory, 3, &err);
        if (rc < 0) assert_int_equal(d.blob_count + d.blob_names.len, 0);
        if (rc == 0) rc = bwi_description_metadata(&d, "{\"a\":1}", &err);
        if (rc < 0) assert_int_equal(d.metadata.len, 0);
        (void)bwi_alloc_fail_at(0);
        if (rc == 0) {
            left = 0;
        } else {
            assert_fails(rc, BW_E_NOMEM, &err, NULL);
            /* It works when there is memory again. */
            struct bw_error none = BW_ERROR_INIT;
            if (d.tensor_count == 0) assert_ok(bwi_description_tensor(&d, &t, &none), &none);
        }
        bwi_description_fini(&d);
        bwi_description_fini(&d);
        assert_int_equal(bwi_alloc_live(), 0);
    }
    assert_true(n >= 7);
}

static unsigned long json_allocations, json_failing;

static void *json_malloc(size_t bytes) {
    return ++json_allocations == json_failing ? NULL : malloc(bytes);
}

static void metadata_for_which_the_parser_has_no_memory_is_no_bad_metadata(void **state) {
    (void)state;
    struct bwi_description d;
    bwi_description_init(&d);
    json_malloc_t before_malloc;
    json_free_t before_free;
    int rc = -1;
    json_get_alloc_funcs(&before_malloc, &before_free);
    json_set_alloc_funcs(json_malloc, free);
    for (json_failing = 1; rc != 0 && json_failing < 1000; json_failing++) {
        struct bw_error err = BW_ERROR_INIT;
        json_allocations = 0;
        rc = bwi_description_metadata(&d, "{}", &err);
        if (rc != 0) assert_fails(rc, BW_E_NOMEM, &err, "metadata");
        assert_int_equal(d.metadata.len > 0, rc == 0);
    }
    json_set_alloc_funcs(before_malloc, before_free);
    assert_in_range(json_failing, 4, 999);
    bwi_description_fini(&d);
    assert_int_equal(bwi_alloc_live(), 0);
}

/* ---- the same again ---- */

static void describe_three(struct bwi_description *d, const char *second) {
    static const uint64_t shape[] = {4, 6}, extent[] = {2, 3};
    static const int64_t columns[] = {4, 16};
    struct bw_error err = BW_ERROR_INIT;
    struct bw_tensor t = plain("a", 2, shape);
    assert_ok(bwi_description_tensor(d, &t, &err), &err);
    t.name = second;
    t.extent = extent;
    assert_ok(bwi_description_tensor(d, &t, &err), &err);
    t.name = "c";
    t.stride_bytes = columns;
    assert_ok(bwi_description_tensor(d, &t, &err), &err);
}

static void what_was_described_before_is_taken_without_any_allocation(void **state) {
    (void)state;
    struct bwi_description d;
    bwi_description_init(&d);
    describe_three(&d, "b");
    const uint64_t bytes = d.bytes;
    bwi_description_reset(&d);
    assert_int_equal(d.tensor_count + d.bytes, 0);
    (void)bwi_alloc_fail_at(0);
    describe_three(&d, "b");
    assert_int_equal(bwi_alloc_fail_at(0), 0);
    assert_int_equal(d.tensor_count, 3);
    assert_int_equal(d.bytes, bytes);
    assert_true(d.tensors[0].contiguous && d.tensors[1].contiguous && !d.tensors[2].contiguous);
    bwi_description_fini(&d);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void from_the_first_difference_on_all_is_checked_anew(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    const uint64_t shape[] = {4, 6};
    bwi_description_init(&d);
    describe_three(&d, "b");
    bwi_description_reset(&d);
    describe_three(&d, "other"); /* and "c" is there once, not twice */
    assert_int_equal(d.tensor_count, 3);
    assert_string_equal(d.tensors[1].name, "other");
    assert_int_equal(d.names.len, 3);
    struct bw_tensor t = plain("c", 2, shape);
    assert_fails(bwi_description_tensor(&d, &t, &err), BW_E_INVALID, &err, "\"c\": name is there already");
    bwi_description_reset(&d);
    t.name = "a"; /* fewer than before */
    assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    bwi_description_reset(&d);
    describe_three(&d, "other");
    assert_int_equal(d.tensor_count, 3);
    bwi_description_fini(&d);
    assert_int_equal(bwi_alloc_live(), 0);
}

static void assert_same_source(const struct bwi_tensor_source *a, const struct bwi_tensor_source *b) {
    struct bwi_tensor_source like_b = *a;
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->dims, b->dims);
    assert_memory_equal(a->shape, b->shape, a->dims * sizeof *a->shape);
    assert_memory_equal(a->offset, b->offset, a->dims * sizeof *a->offset);
    assert_memory_equal(a->extent, b->extent, a->dims * sizeof *a->extent);
    assert_memory_equal(a->stride, b->stride, a->dims * sizeof *a->stride);
    like_b.name = b->name;
    like_b.shape = b->shape;
    like_b.offset = b->offset;
    like_b.extent = b->extent;
    like_b.stride = b->stride;
    assert_memory_equal(&like_b, b, offsetof(struct bwi_tensor_source, mine));
}

/* A state that changes at each save does not grow. */
static void what_is_forgotten_gives_its_memory_back(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    long live = 0;
    for (unsigned save = 0; save < 200; save++) {
        for (unsigned i = 0; i < 100; i++) {
            char name[64];
            snprintf(name, sizeof name, "w%u of %u", i, i < 3 ? 0 : save % 10);
            const uint64_t shape[] = {2, 2};
            const struct bw_tensor t = plain(name, 2, shape);
            assert_ok(bwi_description_tensor(&d, &t, &err), &err);
            snprintf(name, sizeof name, "blob %u of %u", i, save % 10);
            assert_ok(bwi_description_blob(&d, name, memory, i, &err), &err);
        }
        bwi_description_reset(&d);
        if (save == 0) live = bwi_alloc_live();
        assert_int_equal(bwi_alloc_live(), live);
    }
    bwi_description_fini(&d);
    assert_int_equal(bwi_alloc_live(), 0);
}

/* One member after the other is another one: it is noticed, and what is there then is what was said. */
static void no_difference_is_overlooked(void **state) {
    (void)state;
    const uint64_t shape[] = {4, 6}, other_shape[] = {4, 7}, extent[] = {4, 5}, offset[] = {0, 1};
    const int64_t stride[] = {4, 16};
    for (int k = 0; k < 9; k++) {
        struct bwi_description d, fresh;
        struct bw_error err = BW_ERROR_INIT;
        bwi_description_init(&d);
        bwi_description_init(&fresh);
        struct bw_tensor t = plain("w", 2, shape);
        assert_ok(bwi_description_tensor(&d, &t, &err), &err);
        bwi_description_reset(&d);
        if (k == 0) t.dtype = BW_I32;
        if (k == 1) t.shape = other_shape;
        if (k == 2) t.extent = extent;
        if (k == 3) t.extent = extent, t.offset = offset;
        if (k == 4) t.stride_bytes = stride;
        if (k == 5) t.data = memory + 8;
        if (k == 6) t.flags = BW_TENSOR_DEVICE;
        if (k == 7) t.replica_count = 2;
        if (k == 8) t.replica_count = 2, t.replica_index = 1, t.replica_group = 5;
        assert_ok(bwi_description_tensor(&d, &t, &err), &err);
        assert_ok(bwi_description_tensor(&fresh, &t, &err), &err);
        assert_same_source(&d.tensors[0], &fresh.tensors[0]);
        bwi_description_fini(&d);
        bwi_description_fini(&fresh);
    }
    assert_int_equal(bwi_alloc_live(), 0);
}

static void a_hundred_thousand_tensors_are_quick(void **state) {
    (void)state;
    struct bwi_description d;
    struct bw_error err = BW_ERROR_INIT;
    bwi_description_init(&d);
    const clock_t start = clock();
    for (unsigned i = 0; i < 100000; i++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.%u.weight", i);
        const uint64_t shape[] = {2, 2};
        const struct bw_tensor t = plain(name, 2, shape);
        assert_ok(bwi_description_tensor(&d, &t, &err), &err);
    }
    const double s = (double)(clock() - start) / CLOCKS_PER_SEC;
    print_message("100000 tensors described in %.3f s\n", s);
    assert_true(s < 10);
    assert_int_equal(d.bytes, 1600000);
    bwi_description_fini(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scalar_is_one_element),
        cmocka_unit_test(without_offset_extent_and_strides_the_box_is_the_shape_row_by_row),
        cmocka_unit_test(default_strides_follow_the_extent_and_not_the_shape),
        cmocka_unit_test(an_extent_without_an_offset_begins_at_zero),
        cmocka_unit_test(empty_boxes_need_no_memory),
        cmocka_unit_test(members_that_are_wrong_are_named),
        cmocka_unit_test(offset_zero_without_an_extent_is_allowed),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(strides_that_leave_the_address_space_are_refused),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(the_size_of_the_struct_tells_the_version),
        cmocka_unit_test(blobs_are_checked_and_have_names_of_their_own),
        cmocka_unit_test(the_total_may_not_overflow),
        cmocka_unit_test(more_tensors_or_blobs_than_a_layout_holds_are_refused),
        cmocka_unit_test(metadata_is_canonical),
        cmocka_unit_test(reals_come_back_as_they_were_in_the_fewest_digits),
        cmocka_unit_test(metadata_that_is_no_object_is_refused_and_the_old_one_stays),
        cmocka_unit_test(metadata_has_at_most_one_mebibyte),
        cmocka_unit_test(every_failed_allocation_is_reported_and_changes_nothing),
        cmocka_unit_test(metadata_for_which_the_parser_has_no_memory_is_no_bad_metadata),
        cmocka_unit_test(what_was_described_before_is_taken_without_any_allocation),
        cmocka_unit_test(from_the_first_difference_on_all_is_checked_anew),
        cmocka_unit_test(what_is_forgotten_gives_its_memory_back),
        cmocka_unit_test(no_difference_is_overlooked),
        cmocka_unit_test(a_hundred_thousand_tensors_are_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
