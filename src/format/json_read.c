/* SPDX-License-Identifier: Apache-2.0 */
/* JSON text to jansson's values, by the scanner. jansson's own parser does not look whether its buffer for one token
 * could grow: with too little memory it calls what is sound malformed, or ends the process. */
#include "base/error.h"
#include "base/text.h"
#include "format/json.h"
#include "format/json_scan.h"

struct json_reading {
    struct bwi_scan scan;
    const char *what;
};

static int read_value(struct json_reading *r, json_t **ret);

static int no_memory(const struct json_reading *r) {
    return bwi_error_nomem(r->scan.err, r->scan.in.len, r->what);
}

static int read_elements(struct json_reading *r, json_t *array) {
    for (size_t seen = 0;; seen++) {
        json_t *element = NULL;
        bool more = false;
        int rc = bwi_scan_more(&r->scan, ']', seen, &more);
        if (rc < 0 || !more) return rc;
        rc = read_value(r, &element);
        if (rc < 0) return rc;
        if (json_array_append_new(array, element) != 0) return no_memory(r);
    }
}

/* Without U+0000 in it, so it is one for C as well. */
static int read_name(struct json_reading *r, const json_t *object, const char **ret) {
    struct bwi_span name;
    (void)bwi_scan_peek(&r->scan);
    const size_t at = r->scan.at;
    const int rc = bwi_scan_string(&r->scan, &name);
    if (rc < 0) return rc;
    bwi_buf_u8(r->scan.text, 0);
    *ret = (const char *)name.ptr;
    if (json_object_get(object, *ret) == NULL) return 0;
    r->scan.at = at;
    return bwi_scan_unexpected(&r->scan, "a name that is not there yet");
}

static int read_members(struct json_reading *r, json_t *object) {
    for (size_t seen = 0;; seen++) {
        const char *name = NULL;
        json_t *value = NULL;
        bool more = false;
        int rc = bwi_scan_more(&r->scan, '}', seen, &more);
        if (rc < 0 || !more) return rc;
        rc = read_name(r, object, &name);
        if (rc == 0) rc = bwi_scan_take(&r->scan, ':');
        if (rc == 0) rc = read_value(r, &value);
        if (rc < 0) return rc;
        if (json_object_set_new_nocheck(object, name, value) != 0) return no_memory(r);
    }
}

/* Nobody comes deeper than BWI_JSON_DEPTH_MAX: the text was looked through before. */
static int read_container(struct json_reading *r, char open, json_t **ret) {
    json_t *v = open == '{' ? json_object() : json_array();
    if (v == NULL) return no_memory(r);
    int rc = bwi_scan_take(&r->scan, open);
    if (rc == 0) rc = open == '{' ? read_members(r, v) : read_elements(r, v);
    if (rc == 0)
        *ret = v;
    else
        json_decref(v);
    return rc;
}

static int read_string(struct json_reading *r, json_t **ret) {
    struct bwi_span text;
    const int rc = bwi_scan_string(&r->scan, &text);
    if (rc < 0) return rc;
    *ret = json_stringn_nocheck((const char *)text.ptr, text.len);
    return *ret != NULL ? 0 : no_memory(r);
}

static int read_integer(struct json_reading *r, json_t **ret) {
    int64_t n = 0;
    const int rc = bwi_scan_i64(&r->scan, &n);
    if (rc < 0) return rc;
    *ret = json_integer(n);
    return *ret != NULL ? 0 : no_memory(r);
}

static int read_value(struct json_reading *r, json_t **ret) {
    int rc = 0;
    const uint8_t c = bwi_scan_peek(&r->scan);
    switch (c) {
    case '{':
    case '[': return read_container(r, (char)c, ret);
    case '"': return read_string(r, ret);
    case 't': rc = bwi_scan_word(&r->scan, "true"), *ret = json_true(); break;
    case 'f': rc = bwi_scan_word(&r->scan, "false"), *ret = json_false(); break;
    case 'n': rc = bwi_scan_word(&r->scan, "null"), *ret = json_null(); break;
    default: return read_integer(r, ret);
    }
    return rc;
}

int bwi_json_read(struct bwi_span in, const char *what, json_t **ret, struct bw_error *err) {
    char not_json[96];
    struct bwi_buf text = {0};
    json_t *v = NULL;
    bwi_format(not_json, sizeof not_json, "%.80s: not JSON", what);
    struct json_reading r = {.scan = {.in = in, .text = &text, .err = err, .what = not_json}, .what = what};
    const uint8_t first = bwi_scan_peek(&r.scan);
    int rc = first == '{' || first == '[' ? 0 : bwi_scan_unexpected(&r.scan, "'{' or '['");
    if (rc == 0 && !bwi_buf_reserve(&text, in.len)) rc = no_memory(&r);
    if (rc == 0) rc = read_container(&r, (char)first, &v);
    if (rc == 0) rc = bwi_scan_end(&r.scan);
    bwi_buf_fini(&text);
    if (rc == 0)
        *ret = v;
    else
        json_decref(v);
    return rc;
}
