/* SPDX-License-Identifier: Apache-2.0 */
/* Canonical JSON, the seal, and typed members. */
#include "format/json.h"
#include "growth.h"
#include "json_fixture.h"

static struct bwi_span text(const char *s) {
    return bwi_span_str(s);
}

static int decode(const char *s, struct bw_error *err) {
    json_t *v = NULL;
    const int rc = bwi_json_decode(text(s), "thing", &v, err);
    json_decref(v);
    return rc;
}

static void assert_refused(const char *s, const char *message) {
    struct bw_error err = BW_ERROR_INIT;
    assert_fails(decode(s, &err), BW_E_FORMAT, &err, message);
}

static void encoding_sorts_keys_and_leaves_no_blanks(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    json_t *v = json_pack("{s:i,s:[i,b,n],s:s,s:{}}", "b", 1, "a", -7, 1, "\xc3\xa9", "\"\\/\b\f\n\r\t\x01\x7f", "Z");
    bwi_buf_str(&out, "before");
    assert_ok(bwi_json_encode(v, &out, &err), &err);
    bwi_buf_u8(&out, 0);
    assert_string_equal(out.ptr, "before{\"Z\":{},\"a\":[-7,true,null],\"b\":1,"
                                 "\"\xc3\xa9\":\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\x7f\"}");
    json_decref(v);
    bwi_buf_fini(&out);
}

static void a_string_put_by_itself_is_the_string_that_encoding_writes(void **state) {
    (void)state;
    char all[256];
    for (size_t i = 0; i < 127; i++) all[i] = (char)(i + 1);
    (void)strcpy(all + 127, "\xc3\xa9\xf0\x9f\x98\x80/\"\\");
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf whole = {0}, single = {0};
    json_t *v = json_pack("[s]", all);
    assert_ok(bwi_json_encode(v, &whole, &err), &err);
    bwi_buf_u8(&single, '[');
    bwi_json_put_string(&single, text(all));
    bwi_buf_u8(&single, ']');
    assert_int_equal(single.len, whole.len);
    assert_memory_equal(single.ptr, whole.ptr, whole.len);
    json_decref(v);
    bwi_buf_fini(&whole);
    bwi_buf_fini(&single);
}

static void integers_are_exact_to_64_bits(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    json_t *v = NULL;
    int64_t n = 0;
    uint64_t u = 0;
    assert_ok(bwi_json_decode(text("{\"a\":9223372036854775807,\"b\":-9223372036854775808}"), "thing", &v, &err), &err);
    assert_ok(bwi_json_u64(v, "a", UINT64_MAX, &u, "thing", &err), &err);
    assert_true(u == INT64_MAX);
    assert_ok(bwi_json_i64(v, "b", &n, "thing", &err), &err);
    assert_true(n == INT64_MIN);
    json_decref(v);
    assert_refused("{\"a\":9223372036854775808}", "thing: not JSON");
    assert_refused("{\"a\":-9223372036854775809}", "thing: not JSON");
    assert_refused("{\"a\":99999999999999999999999999999999999999999}", "thing: not JSON");
}

static void what_is_not_canonical_is_refused(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(decode("{\"a\":1,\"b\":[2,\"\xc3\xa9\"]}", &err), &err);
    assert_refused("{\"a\":1, \"b\":2}", "not canonical from byte 7");
    assert_refused(" {\"a\":1}", "not canonical from byte 0");
    assert_refused("{\"a\":1}\n", "not canonical from byte 7");
    assert_refused("{\"b\":1,\"a\":2}", "not canonical from byte 2");
    assert_refused("{\"a\":-0}", "not canonical from byte 5");
    assert_refused("{\"a\":\"\\u0041\"}", "not canonical from byte 6");
    assert_refused("{\"a\":\"\\/\"}", "not canonical from byte 6");
    assert_refused("{\"a\":\"\\u000a\"}", "not canonical from byte 7");
    assert_refused("{\"a\":\"\\u001f\"}", "not canonical from byte 11"); /* upper case: \u001F */
    assert_refused("{\"a\":\"\\u00e9\"}", "not canonical");
}

static void reals_are_refused(void **state) {
    (void)state;
    assert_refused("{\"a\":1.0}", "expected integers only, found a real number at byte 6");
    assert_refused("{\"a\":1e3}", "expected integers only");
    assert_refused("{\"a\":1E3}", "expected integers only");
    assert_refused("[0.5]", "expected integers only");
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(decode("[\"1.5e3\",true,false,\"\\\"1.5\"]", &err), &err);
}

static void malformed_text_is_refused(void **state) {
    (void)state;
    assert_refused("", "expected JSON, found nothing");
    assert_refused("{", "not JSON");
    assert_refused("{\"a\":1,\"a\":1}", "not JSON");
    assert_refused("{\"a\":1}}", "not JSON");
    assert_refused("7", "not JSON");
    assert_refused("\"text\"", "not JSON");
    assert_refused("{\"a\":\"\xff\"}", "not JSON");
    assert_refused("{\"a\":\"\\u0000\"}", "not JSON");
    assert_refused("{\"a\":\"\\ud800\"}", "not JSON");
    assert_refused("{\"a\":\"\x01\"}", "not JSON");
    assert_refused("[1,]", "not JSON");
    assert_refused("[01]", "not JSON");
    assert_refused("[nul]", "not JSON");
    assert_refused("]]]]", "not JSON");
    assert_refused("{\"a\":1,\"a\":1}", "thing: not JSON: byte 7: expected a name that is not there yet, found '\"'");
    assert_refused("[-]", "byte 2: expected a digit behind the sign, found ']'");
    assert_refused("[--1]", "byte 2: expected a digit behind the sign, found '-'");
    assert_refused("[-9223372036854775809]", "byte 1: expected a number that fits 64 bits with its sign, found '-'");
    assert_refused("[9223372036854775808]", "byte 1: expected a number that fits 64 bits with its sign, found '9'");
    assert_refused("[trub]", "byte 1: expected true, found 't'");
    assert_refused("[nul", "byte 1: expected null, found 'n'");
    assert_refused("[truest]", "byte 5: expected ',' or ']', found 's'");
    assert_refused("7", "byte 0: expected '{' or '[', found '7'");
    assert_refused("{1:2}", "byte 1: expected a string, found '1'");
    assert_refused("{\"a\" 2}", "byte 5: expected ':', found '2'");
    struct bw_error err = BW_ERROR_INIT;
    json_t *v = NULL;
    assert_fails(bwi_json_decode(bwi_span("{\"a\":\0}", 7), "thing", &v, &err), BW_E_FORMAT, &err, "not JSON");
}

static void nesting_is_allowed_to_sixteen_levels(void **state) {
    (void)state;
    char s[64];
    struct bw_error err = BW_ERROR_INIT;
    (void)memset(s, '[', 16);
    (void)memset(s + 16, ']', 16);
    s[32] = '\0';
    assert_ok(decode(s, &err), &err);
    (void)memset(s, '[', 17);
    (void)memset(s + 17, ']', 17);
    s[34] = '\0';
    assert_refused(s, "nested deeper than 16 levels at byte 16");
}

static char *brackets(size_t n, const char *pair) {
    char *s = malloc(n + 1);
    assert_non_null(s);
    for (size_t i = 0; i < n; i++) s[i] = pair[i % 2];
    s[n] = '\0';
    return s;
}

/* Nobody follows them down: they are refused where the limit is. */
static void a_million_brackets_are_refused_at_the_seventeenth(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    char *s = brackets(2000000, "[[");
    assert_fails(decode(s, &err), BW_E_FORMAT, &err, NULL);
    assert_string_equal(err.message, "thing: nested deeper than 16 levels at byte 16");
    free(s);
}

/* Wide instead of deep, and wrong at the front. */
static double seconds_of_wide_nonsense(size_t n) {
    char *s = brackets(n, "[]");
    struct bw_error err = BW_ERROR_INIT;
    json_t *v = NULL;
    s[0] = 'x';
    const clock_t start = clock();
    assert_fails(bwi_json_decode(bwi_span(s, n), "thing", &v, &err), BW_E_FORMAT, &err, "not JSON");
    const double took_s = seconds_since(start);
    free(s);
    return took_s;
}

/* [1,1,1 ... ] */
static double seconds_of_a_wide_array(size_t n) {
    char *s = brackets(2 * n + 1, ",1");
    struct bw_error err = BW_ERROR_INIT;
    json_t *v = NULL;
    s[0] = '[';
    s[2 * n] = ']';
    const clock_t start = clock();
    assert_ok(bwi_json_decode(bwi_span(s, 2 * n + 1), "thing", &v, &err), &err);
    const double took_s = seconds_since(start);
    assert_int_equal(json_array_size(v), n);
    json_decref(v);
    free(s);
    return took_s;
}

static void wide_texts_take_time_by_their_length(void **state) {
    (void)state;
    assert_no_square(seconds_of_wide_nonsense, 2000000);
    assert_no_square(seconds_of_a_wide_array, 200000);
}

static void brackets_in_strings_do_not_nest(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(decode("[\"[[[[[[[[[[[[[[[[[[[[\\\"[[[[[[[[[[[[[[[[[[[[[[\\\\\",[]]", &err), &err);
    assert_refused("[\"unfinished", "not JSON");
    assert_refused("[\"unfinished\\", "not JSON");
}

static void encoding_refuses_what_no_reader_takes(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    json_t *real = json_pack("[{s:f}]", "a", 0.5);
    assert_fails(bwi_json_encode(real, &out, &err), BW_E_INVALID, &err, "a real number");
    json_decref(real);
    json_t *deep = json_array();
    for (int i = 1; i < 17; i++) deep = json_pack("[o]", deep);
    bw_error_clear(&err);
    assert_fails(bwi_json_encode(deep, &out, &err), BW_E_INVALID, &err, "above 16 levels");
    json_decref(deep);
    json_t *scalar = json_integer(1);
    bw_error_clear(&err);
    assert_fails(bwi_json_encode(scalar, &out, &err), BW_E_INVALID, &err, "an object or an array");
    bw_error_clear(&err);
    assert_fails(bwi_json_encode(NULL, &out, &err), BW_E_INVALID, &err, "an object or an array");
    bw_error_clear(&err);
    assert_fails(bwi_json_encode_sealed(scalar, &out, &err), BW_E_INVALID, &err, "an object to seal");
    json_decref(scalar);
    assert_int_equal(out.len, 0);
    bwi_buf_fini(&out);
}

static struct bwi_buf sealed(const json_t *v) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    assert_ok(bwi_json_encode_sealed(v, &out, &err), &err);
    return out;
}

static int decode_sealed(struct bwi_span in, struct bw_error *err) {
    json_t *v = NULL;
    const int rc = bwi_json_decode_sealed(in, "thing", &v, err);
    json_decref(v);
    return rc;
}

static void a_sealed_object_ends_with_the_hash_of_what_stands_before(void **state) {
    (void)state;
    json_t *v = json_pack("{s:i}", "a", 1), *back = NULL;
    struct bwi_buf out = sealed(v);
    /* printf '{"a":1,"~sha256":"' | sha256sum */
    static const char golden[] =
        "{\"a\":1,\"~sha256\":\"1009abcd85aa8a724a63fc0b01a3838d63874df6c5b0cc570b6debc40d5507c4\"}";
    struct bw_error err = BW_ERROR_INIT;
    assert_int_equal(out.len, sizeof golden - 1);
    assert_memory_equal(out.ptr, golden, out.len);
    assert_ok(bwi_json_decode_sealed(bwi_buf_span(&out), "thing", &back, &err), &err);
    assert_true(json_equal(v, back)); /* the seal is taken off */
    json_decref(v);
    json_decref(back);
    bwi_buf_fini(&out);
}

static void an_empty_object_can_be_sealed(void **state) {
    (void)state;
    json_t *v = json_object(), *back = NULL;
    struct bwi_buf out = sealed(v);
    struct bw_error err = BW_ERROR_INIT;
    assert_memory_equal(out.ptr, "{\"~sha256\":\"", 12);
    assert_ok(bwi_json_decode_sealed(bwi_buf_span(&out), "thing", &back, &err), &err);
    assert_int_equal(json_object_size(back), 0);
    json_decref(v);
    json_decref(back);
    bwi_buf_fini(&out);
}

static void the_seal_covers_only_its_own_object_in_a_longer_buffer(void **state) {
    (void)state;
    json_t *v = json_pack("{s:i}", "a", 1);
    struct bwi_buf alone = sealed(v), out = {0};
    struct bw_error err = BW_ERROR_INIT;
    bwi_buf_str(&out, "something before");
    assert_ok(bwi_json_encode_sealed(v, &out, &err), &err);
    assert_memory_equal(out.ptr + 16, alone.ptr, alone.len);
    json_decref(v);
    bwi_buf_fini(&alone);
    bwi_buf_fini(&out);
}

static void a_member_that_sorts_behind_the_seal_is_refused(void **state) {
    (void)state;
    static const char *const names[] = {"~sha256", "~z", "\x7f", "\xc3\xa9"};
    for (size_t i = 0; i < 4; i++) {
        struct bw_error err = BW_ERROR_INIT;
        struct bwi_buf out = {0};
        json_t *v = json_pack("{s:i}", names[i], 1);
        assert_fails(bwi_json_encode_sealed(v, &out, &err), BW_E_INVALID, &err, "sorts behind \"~sha256\"");
        json_decref(v);
        bwi_buf_fini(&out);
    }
}

static void every_flipped_bit_and_every_cut_of_a_sealed_object_is_damage(void **state) {
    (void)state;
    json_t *v = json_pack("{s:i,s:[s]}", "a", 1, "b", "\xc3\xa9");
    struct bwi_buf out = sealed(v);
    detects_every_bit(bwi_buf_span(&out), decode_sealed);
    refuses_every_cut(bwi_buf_span(&out), decode_sealed, BW_E_CORRUPT);
    json_decref(v);
    bwi_buf_fini(&out);
}

static void a_seal_is_taken_only_as_the_last_member_of_the_object(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{\"a\":{\"b\":1}",                 /* the seal would be in the inner object */
        "[{\"b\":1}",                       /* of an array */
        "{\"a\": 1}",                       /* not canonical */
        "{\"~sha256\":\"x\",\"~sha256\":1}" /* there twice */
    };
    for (size_t i = 0; i < 4; i++) {
        struct bw_error err = BW_ERROR_INIT;
        char *body = strdup(bodies[i]);
        assert_non_null(body);
        const struct bwi_span in = sealed_again(body);
        assert_fails(decode_sealed(in, &err), BW_E_FORMAT, &err, "thing: ");
        span_free(in);
    }
    /* The name of the member ends like a seal. */
    struct bw_error err = BW_ERROR_INIT;
    char head[] = "{\"x\\\"~sha256\":\"";
    char whole[128];
    const struct bwi_sha sha = bwi_sha_of(bwi_span(head, strlen(head)));
    char hex[BWI_SHA_HEX_BYTES];
    bwi_sha_hex(&sha, hex);
    (void)snprintf(whole, sizeof whole, "%s%s\"}", head, hex);
    assert_ok(decode(whole, &err), &err);
    assert_fails(decode_sealed(text(whole), &err), BW_E_CORRUPT, &err, "does not end with its own hash");
}

static void a_message_about_damage_gives_both_hashes(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    static const char wrong[] =
        "{\"a\":2,\"~sha256\":\"1009abcd85aa8a724a63fc0b01a3838d63874df6c5b0cc570b6debc40d5507c4\"}";
    assert_fails(decode_sealed(text(wrong), &err), BW_E_CORRUPT, &err, "it says 1009abcd85aa8a72...");
}

struct member_rule {
    const char *json, *message;
};

static json_t *object(const char *s) {
    json_t *v = json_loads(s, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_non_null(v);
    return v;
}

static void an_ill_typed_member_is_named_with_what_was_expected_and_found(void **state) {
    (void)state;
    static const struct member_rule rules[] = {
        {"{}", "thing: member \"m\": expected an integer from 0 to 5, found nothing"},
        {"{\"m\":6}", "expected an integer from 0 to 5, found 6"},
        {"{\"m\":-1}", "found -1"},
        {"{\"m\":null}", "found null"},
        {"{\"m\":true}", "found true"},
        {"{\"m\":false}", "found false"},
        {"{\"m\":1.5}", "found a real number"},
        {"{\"m\":\"5\"}", "found \"5\""},
        {"{\"m\":[1]}", "found an array of 1"},
        {"{\"m\":{}}", "found an object"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        json_t *o = object(rules[i].json);
        struct bw_error err = BW_ERROR_INIT;
        uint64_t u = 77;
        uint32_t u32 = 77;
        assert_fails(bwi_json_u64(o, "m", 5, &u, "thing", &err), BW_E_FORMAT, &err, rules[i].message);
        bw_error_clear(&err);
        assert_fails(bwi_json_u32(o, "m", 5, &u32, "thing", &err), BW_E_FORMAT, &err, rules[i].message);
        assert_true(u == 77 && u32 == 77);
        json_decref(o);
    }
}

/* Each of the other getters on a value of the right type and on wrong ones. */
static void getters_take_their_own_type_only(void **state) {
    (void)state;
    json_t *o =
        object("{\"bool\":true,\"i\":-3,\"nul\":null,\"s\":\"x\",\"a\":[1,2],\"nulstr\":\"a\\u0000b\",\"name\":\"run-"
               "1\",\"bad\":\"-x\","
               "\"sha\":\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\",\"uuid\":"
               "\"00112233445566778899aabbccddeeff\","
               "\"id\":\"00000000000000000400.3-deadbeef.1\",\"w\":\"fedcba9876543210\",\"W\":\"FEDCBA9876543210\"}");
    struct bw_error err = BW_ERROR_INIT;
    bool b = false;
    int64_t i = 0;
    const char *s = NULL;
    char name[BWI_NAME_BUF] = "?", small[2];
    const json_t *a = NULL;
    struct bwi_sha sha;
    struct bwi_uuid uuid;
    struct bwi_id id;
    uint64_t w = 0;
    assert_ok(bwi_json_bool(o, "bool", &b, "thing", &err), &err);
    assert_ok(bwi_json_i64(o, "i", &i, "thing", &err), &err);
    assert_ok(bwi_json_str(o, "s", &s, "thing", &err), &err);
    assert_ok(bwi_json_text(o, "s", small, sizeof small, "thing", &err), &err);
    assert_ok(bwi_json_array(o, "a", 2, &a, "thing", &err), &err);
    assert_ok(bwi_json_sha(o, "sha", &sha, "thing", &err), &err);
    assert_ok(bwi_json_uuid(o, "uuid", &uuid, "thing", &err), &err);
    assert_ok(bwi_json_id(o, "id", &id, "thing", &err), &err);
    assert_ok(bwi_json_writer(o, "w", &w, "thing", &err), &err);
    assert_ok(bwi_json_name(o, "nul", name, true, "thing", &err), &err);
    assert_string_equal(name, "");
    assert_ok(bwi_json_name(o, "name", name, false, "thing", &err), &err);
    assert_string_equal(name, "run-1");
    assert_true(b && i == -3 && w == UINT64_C(0xfedcba9876543210) && id.step == 400 && id.tri == 1 &&
                sha.b[1] == 0x11 && uuid.b[15] == 0xff);
#define WRONG(call, part)                                                                                              \
    bw_error_clear(&err);                                                                                              \
    assert_fails(call, BW_E_FORMAT, &err, part)
    WRONG(bwi_json_bool(o, "i", &b, "thing", &err), "expected true or false, found -3");
    WRONG(bwi_json_i64(o, "s", &i, "thing", &err), "expected an integer, found \"x\"");
    WRONG(bwi_json_str(o, "i", &s, "thing", &err), "expected a string");
    WRONG(bwi_json_str(o, "nulstr", &s, "thing", &err), "expected a string");
    WRONG(bwi_json_text(o, "name", small, sizeof small, "thing", &err), "expected at most 1 bytes, found 5");
    WRONG(bwi_json_array(o, "a", 1, &a, "thing", &err), "expected an array of at most 1, found an array of 2");
    WRONG(bwi_json_array(o, "s", 1, &a, "thing", &err), "expected an array");
    WRONG(bwi_json_sha(o, "uuid", &sha, "thing", &err), "expected 64 hex digits");
    WRONG(bwi_json_uuid(o, "sha", &uuid, "thing", &err), "expected 32 hex digits");
    WRONG(bwi_json_id(o, "s", &id, "thing", &err), "expected a checkpoint id");
    WRONG(bwi_json_writer(o, "W", &w, "thing", &err), "expected 16 hex digits");
    WRONG(bwi_json_writer(o, "uuid", &w, "thing", &err), "expected 16 hex digits");
    WRONG(bwi_json_name(o, "nul", name, false, "thing", &err), "expected a name, found null");
    WRONG(bwi_json_name(o, "bad", name, true, "thing", &err), "expected a name or null, found \"-x\"");
#undef WRONG
    json_decref(o);
}

static void the_head_decides_about_versions_and_unknown_members(void **state) {
    (void)state;
    static const char *const known[] = {"a", NULL};
    static const struct {
        const char *json;
        int want;
        const char *message;
    } cases[] = {
        {"{\"format\":\"f\",\"version\":[3,1],\"a\":1}", 0, NULL},
        {"{\"format\":\"f\",\"version\":[3,0]}", 0, NULL},
        {"{\"format\":\"f\",\"version\":[3,2],\"b\":1}", 0, NULL},
        {"{\"format\":\"f\",\"version\":[3,1],\"b\":1}", BW_E_FORMAT, "thing: unknown member \"b\""},
        {"{\"format\":\"f\",\"version\":[4,0],\"b\":1}", BW_E_VERSION,
         "thing: has format \"f\" version 4.0, this release reads up to 3.x"},
        {"{\"format\":\"f\",\"version\":[2,9]}", BW_E_FORMAT, "version 2.9, which never existed"},
        {"{\"format\":\"g\",\"version\":[4,0]}", BW_E_FORMAT, "member \"format\": expected \"f\", found \"g\""},
        {"{\"version\":[3,1]}", BW_E_FORMAT, "member \"format\": expected \"f\", found nothing"},
        {"{\"format\":\"f\"}", BW_E_FORMAT, "member \"version\": expected [major, minor], found nothing"},
        {"{\"format\":\"f\",\"version\":[3]}", BW_E_FORMAT, "expected [major, minor], found an array of 1"},
        {"{\"format\":\"f\",\"version\":[3,1,0]}", BW_E_FORMAT, "found an array of 3"},
        {"{\"format\":\"f\",\"version\":[3,-1]}", BW_E_FORMAT, "expected [major, minor]"},
        {"[]", BW_E_FORMAT, "member \"format\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *o = object(cases[i].json);
        struct bw_error err = BW_ERROR_INIT;
        const int rc = bwi_json_head(o, "f", 3, 1, known, "thing", &err);
        if (cases[i].want == 0)
            assert_ok(rc, &err);
        else
            assert_fails(rc, cases[i].want, &err, cases[i].message);
        json_decref(o);
    }
}

static int encode_and_decode(void *arg, struct bw_error *err) {
    struct bwi_buf out = {0};
    json_t *v = NULL;
    int rc = bwi_json_encode_sealed(arg, &out, err);
    if (rc == 0) rc = bwi_json_decode_sealed(bwi_buf_span(&out), "thing", &v, err);
    if (rc == 0 && !json_equal(v, arg)) rc = BW_E_INTERNAL;
    json_decref(v);
    bwi_buf_fini(&out);
    return rc;
}

static void encoding_survives_every_failed_allocation(void **state) {
    (void)state;
    json_t *v = json_object();
    for (int i = 0; i < 200; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "key%d", i);
        assert_int_equal(json_object_set_new(v, key, json_integer(i)), 0);
    }
    survives_without_memory(encode_and_decode, v);
    json_decref(v);
}

static unsigned long allocations, failing;
static bool fails_for_ever;

static void *failing_malloc(size_t bytes) {
    allocations++;
    return allocations == failing || (fails_for_ever && allocations > failing) ? NULL : malloc(bytes);
}

/* The first allocation that fails is the n-th; from then on all do, or only that one does. */
static int decode_failing(const char *s, unsigned long n, bool for_ever, struct bw_error *err) {
    allocations = 0;
    failing = n;
    fails_for_ever = for_ever;
    return decode(s, err);
}

/* Else an object that is sound would be called damaged. Wherever it runs out: inside strings and numbers, too, which
 * jansson's own parser cuts then, or reads on behind. */
static void a_parser_without_memory_says_so(void **state) {
    (void)state;
    static const char sound[] = "[1,[23,-4],{},[[]],true,null,{\"a\":\"fourteen_bytes\",\"a name of many bytes\":"
                                "\"and a value of more of them, \\\"quoted\\\"\"},-123456789012345678]";
    json_malloc_t before_malloc;
    json_free_t before_free;
    json_get_alloc_funcs(&before_malloc, &before_free);
    json_set_alloc_funcs(failing_malloc, free);
    for (int for_ever = 0; for_ever < 2; for_ever++) {
        unsigned long n = 0;
        for (int rc = -1; rc != 0; n++) {
            struct bw_error err = BW_ERROR_INIT;
            rc = decode_failing(sound, n + 1, for_ever == 1, &err);
            if (rc != 0) assert_fails(rc, BW_E_NOMEM, &err, "for thing");
            assert_true(n < 1000);
        }
        assert_true(n > 20);
    }
    json_set_alloc_funcs(before_malloc, before_free);
}

static void a_text_above_its_limit_is_not_made(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    bwi_buf_str(&out, "before");
    bool failed = false;
    json_t *o = bwi_json_start("f", 1, 0, &failed);
    assert_fails(bwi_json_finish(o, failed, true, 40, "thing", &out, &err), BW_E_LIMIT, &err,
                 "thing: has 107 bytes, at most 40");
    assert_int_equal(out.len, 6);
    bw_error_clear(&err);
    o = bwi_json_start("f", 1, 0, &failed);
    bwi_json_set(o, "x", NULL, &failed); /* what a failed allocation looks like */
    assert_fails(bwi_json_finish(o, failed, true, 400, "thing", &out, &err), BW_E_NOMEM, &err, "thing: out of memory");
    assert_int_equal(out.len, 6);
    bwi_buf_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoding_sorts_keys_and_leaves_no_blanks),
        cmocka_unit_test(a_string_put_by_itself_is_the_string_that_encoding_writes),
        cmocka_unit_test(integers_are_exact_to_64_bits),
        cmocka_unit_test(what_is_not_canonical_is_refused),
        cmocka_unit_test(reals_are_refused),
        cmocka_unit_test(malformed_text_is_refused),
        cmocka_unit_test(nesting_is_allowed_to_sixteen_levels),
        cmocka_unit_test(a_million_brackets_are_refused_at_the_seventeenth),
        cmocka_unit_test(wide_texts_take_time_by_their_length),
        cmocka_unit_test(brackets_in_strings_do_not_nest),
        cmocka_unit_test(encoding_refuses_what_no_reader_takes),
        cmocka_unit_test(a_sealed_object_ends_with_the_hash_of_what_stands_before),
        cmocka_unit_test(an_empty_object_can_be_sealed),
        cmocka_unit_test(the_seal_covers_only_its_own_object_in_a_longer_buffer),
        cmocka_unit_test(a_member_that_sorts_behind_the_seal_is_refused),
        cmocka_unit_test(every_flipped_bit_and_every_cut_of_a_sealed_object_is_damage),
        cmocka_unit_test(a_seal_is_taken_only_as_the_last_member_of_the_object),
        cmocka_unit_test(a_message_about_damage_gives_both_hashes),
        cmocka_unit_test(an_ill_typed_member_is_named_with_what_was_expected_and_found),
        cmocka_unit_test(getters_take_their_own_type_only),
        cmocka_unit_test(the_head_decides_about_versions_and_unknown_members),
        cmocka_unit_test(encoding_survives_every_failed_allocation),
        cmocka_unit_test(a_parser_without_memory_says_so),
        cmocka_unit_test(a_text_above_its_limit_is_not_made),
    };
    return cmocka_run_group_tests_name("format/json", tests, NULL, NULL);
}
