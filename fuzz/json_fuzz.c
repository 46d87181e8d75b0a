/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of the store: what is accepted is canonical, sealed or not; and any JSON that jansson reads is written in one
 * form, which is then accepted. Reaches src/format/json.c src/format/json_build.c
 * src/format/json_member.c src/format/json_read.c src/format/json_scan.c */
#include "format/json.h"
#include "fuzz.h"

static void must_be_canonical(const json_t *v, const uint8_t *data, size_t size, bool sealed) {
    struct bwi_buf again = {0};
    struct bw_error err = BW_ERROR_INIT;
    fuzz_require((sealed ? bwi_json_encode_sealed(v, &again, &err) : bwi_json_encode(v, &again, &err)) == 0);
    fuzz_require(again.len == size && memcmp(again.ptr, data, size) == 0);
    bwi_buf_fini(&again);
}

static void read_plain(const uint8_t *data, size_t size) {
    json_t *v = NULL;
    struct bw_error err = BW_ERROR_INIT;
    if (bwi_json_decode(bwi_span(data, size), "input", &v, &err) == 0) {
        must_be_canonical(v, data, size, false);
        json_decref(v);
    } else {
        fuzz_failed(err);
    }
}

/* Each way to ask for a member answers with a status, whatever is there. */
static void ask(const json_t *o, const char *key) {
    struct bw_error err = BW_ERROR_INIT;
    uint64_t n;
    uint32_t small;
    int64_t i;
    bool b;
    const char *text;
    char name[BWI_NAME_BUF], line[8];
    struct bwi_sha sha;
    struct bwi_uuid uuid;
    struct bwi_id id;
    const json_t *array;
    if (bwi_json_u64(o, key, 1000, &n, "input", &err) == 0) fuzz_require(n <= 1000);
    if (bwi_json_u32(o, key, 7, &small, "input", &err) == 0) fuzz_require(small <= 7);
    if (bwi_json_array(o, key, 2, &array, "input", &err) == 0) fuzz_require(json_array_size(array) <= 2);
    if (bwi_json_text(o, key, line, sizeof line, "input", &err) == 0) fuzz_require(strlen(line) < sizeof line);
    if (bwi_json_str(o, key, &text, "input", &err) == 0) fuzz_require(text != NULL);
    if (bwi_json_name(o, key, name, true, "input", &err) == 0) fuzz_require(strlen(name) <= BWI_NAME_BYTES);
    (void)bwi_json_i64(o, key, &i, "input", &err);
    (void)bwi_json_bool(o, key, &b, "input", &err);
    (void)bwi_json_sha(o, key, &sha, "input", &err);
    (void)bwi_json_uuid(o, key, &uuid, "input", &err);
    (void)bwi_json_id(o, key, &id, "input", &err);
    (void)bwi_json_writer(o, key, &n, "input", &err);
}

static void read_sealed(uint8_t *data, size_t size) {
    static const char *const known[] = {"a", "b", "id", NULL};
    json_t *v = NULL;
    struct bw_error err = BW_ERROR_INIT;
    fuzz_seal_json(data, size);
    if (bwi_json_decode_sealed(bwi_span(data, size), "input", &v, &err) < 0) {
        fuzz_failed(err);
        return;
    }
    must_be_canonical(v, data, size, true);
    (void)bwi_json_head(v, "input", 1, 0, known, "input", &err);
    const char *key;
    json_t *value;
    json_object_foreach(v, key, value) ask(v, key);
    ask(v, "absent");
    json_decref(v);
}

static void write_any(const uint8_t *data, size_t size) {
    json_t *v = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    struct bwi_buf text = {0};
    struct bw_error err = BW_ERROR_INIT;
    if (v != NULL && bwi_json_encode(v, &text, &err) == 0) read_plain(text.ptr, text.len);
    bwi_buf_fini(&text);
    json_decref(v);
}

void fuzz_one(uint8_t *data, size_t size) {
    read_plain(data, size);
    write_any(data, size);
    read_sealed(data, size);
}
