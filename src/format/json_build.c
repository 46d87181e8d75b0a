/* SPDX-License-Identifier: Apache-2.0 */
/* Building JSON values from our types, and strings with the fewest escapes. */
#include "base/error.h"
#include "format/json.h"
#include <stdio.h>

void bwi_json_set(json_t *object, const char *key, json_t *value, bool *failed) {
    if (json_object_set_new(object, key, value) != 0) *failed = true;
}

void bwi_json_push(json_t *array, json_t *value, bool *failed) {
    if (json_array_append_new(array, value) != 0) *failed = true;
}

json_t *bwi_json_of_u64(uint64_t v) {
    return json_integer((json_int_t)v);
}

json_t *bwi_json_of_name(const char *s) {
    return s[0] == '\0' ? json_null() : json_string(s);
}

json_t *bwi_json_of_sha(const struct bwi_sha *v) {
    char text[BWI_SHA_HEX_BYTES];
    bwi_sha_hex(v, text);
    return json_string(text);
}

json_t *bwi_json_of_uuid(const struct bwi_uuid *v) {
    char text[BWI_UUID_TEXT_BYTES];
    bwi_uuid_text(v, text);
    return json_string(text);
}

json_t *bwi_json_of_id(const struct bwi_id *v) {
    char text[BWI_ID_TEXT_BYTES];
    bwi_id_text(v, text);
    return json_string(text);
}

json_t *bwi_json_of_hex(uint64_t v, int digits) {
    char text[17];
    (void)snprintf(text, sizeof text, "%0*llx", digits, (unsigned long long)v);
    return json_string(text);
}

json_t *bwi_json_start(const char *name, uint32_t major, uint32_t minor, bool *failed) {
    json_t *o = json_object();
    json_t *version = json_array();
    bwi_json_push(version, bwi_json_of_u64(major), failed);
    bwi_json_push(version, bwi_json_of_u64(minor), failed);
    bwi_json_set(o, "format", json_string(name), failed);
    bwi_json_set(o, "version", version, failed);
    return o;
}

int bwi_json_finish(json_t *o, bool failed, bool sealed, uint64_t max, const char *what, struct bwi_buf *out,
                    struct bw_error *err) {
    const size_t start = out->len;
    int rc;
    if (failed || o == NULL)
        rc = bwi_error_set(err, BW_E_NOMEM, "%s: out of memory while its text was made", what);
    else
        rc = sealed ? bwi_json_encode_sealed(o, out, err) : bwi_json_encode(o, out, err);
    json_decref(o);
    if (rc == 0 && out->len - start > max) {
        rc = bwi_error_set(err, BW_E_LIMIT, "%s: has %zu bytes, at most %llu are allowed", what, out->len - start,
                           (unsigned long long)max);
        out->len = start;
    }
    return rc;
}

/* The letter behind the backslash for characters that have a short escape, else 0. */
static char short_escape(uint8_t c) {
    switch (c) {
    case '"': return '"';
    case '\\': return '\\';
    case '\b': return 'b';
    case '\f': return 'f';
    case '\n': return 'n';
    case '\r': return 'r';
    case '\t': return 't';
    default: return 0;
    }
}

void bwi_json_put_string(struct bwi_buf *out, struct bwi_span utf8) {
    bwi_buf_u8(out, '"');
    size_t plain = 0; /* where the run of characters without escapes began */
    for (size_t i = 0; i < utf8.len; i++) {
        const uint8_t c = utf8.ptr[i];
        const char letter = short_escape(c);
        if (letter == 0 && c >= 0x20) continue;
        bwi_buf_put(out, utf8.ptr + plain, i - plain);
        plain = i + 1;
        if (letter != 0)
            bwi_buf_printf(out, "\\%c", letter);
        else
            bwi_buf_printf(out, "\\u%04X", c);
    }
    if (utf8.len > plain) bwi_buf_put(out, utf8.ptr + plain, utf8.len - plain);
    bwi_buf_u8(out, '"');
}
