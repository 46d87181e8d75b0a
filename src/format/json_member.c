/* SPDX-License-Identifier: Apache-2.0 */
/* Typed access to JSON values, members and heads, with messages that say what was expected and what was found. */
#include "base/error.h"
#include "base/text.h"
#include "format/json.h"
#include <stdio.h>
#include <string.h>

struct found {
    char s[64];
};

static struct found describe(const json_t *v) {
    struct found f = {"nothing"};
    if (v == NULL) return f;
    switch (json_typeof(v)) {
    case JSON_OBJECT: (void)snprintf(f.s, sizeof f.s, "an object"); break;
    case JSON_ARRAY: (void)snprintf(f.s, sizeof f.s, "an array of %zu", json_array_size(v)); break;
    case JSON_STRING: (void)snprintf(f.s, sizeof f.s, "\"%.40s\"", json_string_value(v)); break;
    case JSON_INTEGER: (void)snprintf(f.s, sizeof f.s, "%" JSON_INTEGER_FORMAT, json_integer_value(v)); break;
    case JSON_REAL: (void)snprintf(f.s, sizeof f.s, "a real number"); break;
    case JSON_TRUE: (void)snprintf(f.s, sizeof f.s, "true"); break;
    case JSON_FALSE: (void)snprintf(f.s, sizeof f.s, "false"); break;
    case JSON_NULL: (void)snprintf(f.s, sizeof f.s, "null"); break;
    }
    return f;
}

static int ill_typed(const json_t *o, const char *key, const char *expected, const char *what, struct bw_error *err) {
    return bwi_error_set(err, BW_E_FORMAT, "%s: member \"%s\": expected %s, found %s", what, key, expected,
                         describe(json_object_get(o, key)).s);
}

bool bwi_json_value_u64(const json_t *v, uint64_t max, uint64_t *ret) {
    if (!json_is_integer(v)) return false;
    const json_int_t n = json_integer_value(v);
    if (n < 0 || (uint64_t)n > max) return false;
    *ret = (uint64_t)n;
    return true;
}

bool bwi_json_value_u32(const json_t *v, uint32_t max, uint32_t *ret) {
    uint64_t wide;
    if (!bwi_json_value_u64(v, max, &wide)) return false;
    *ret = (uint32_t)wide;
    return true;
}

bool bwi_json_value_str(const json_t *v, const char **ret) {
    if (!json_is_string(v)) return false;
    const char *s = json_string_value(v);
    if (strlen(s) != json_string_length(v)) return false;
    *ret = s;
    return true;
}

bool bwi_json_value_sha(const json_t *v, struct bwi_sha *ret) {
    const char *s;
    return bwi_json_value_str(v, &s) && bwi_sha_parse(s, strlen(s), ret);
}

bool bwi_json_value_uuid(const json_t *v, struct bwi_uuid *ret) {
    const char *s;
    return bwi_json_value_str(v, &s) && bwi_uuid_parse(bwi_span_str(s), ret);
}

bool bwi_json_value_id(const json_t *v, struct bwi_id *ret) {
    const char *s;
    return bwi_json_value_str(v, &s) && bwi_id_parse(bwi_span_str(s), ret);
}

bool bwi_json_value_hex(const json_t *v, size_t digits, uint64_t *ret) {
    const char *s;
    return bwi_json_value_str(v, &s) && strlen(s) == digits && bwi_hex_u64(s, digits, ret);
}

bool bwi_json_is_row(const json_t *v, size_t n, bool newer) {
    return json_is_array(v) && (json_array_size(v) == n || (newer && json_array_size(v) > n));
}

int bwi_json_u64(const json_t *o, const char *key, uint64_t max, uint64_t *ret, const char *what,
                 struct bw_error *err) {
    if (bwi_json_value_u64(json_object_get(o, key), max, ret)) return 0;
    char expected[64];
    (void)snprintf(expected, sizeof expected, "an integer from 0 to %llu", (unsigned long long)max);
    return ill_typed(o, key, expected, what, err);
}

int bwi_json_u32(const json_t *o, const char *key, uint32_t max, uint32_t *ret, const char *what,
                 struct bw_error *err) {
    uint64_t wide = 0;
    const int rc = bwi_json_u64(o, key, max, &wide, what, err);
    if (rc == 0) *ret = (uint32_t)wide;
    return rc;
}

int bwi_json_i64(const json_t *o, const char *key, int64_t *ret, const char *what, struct bw_error *err) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v)) return ill_typed(o, key, "an integer", what, err);
    *ret = json_integer_value(v);
    return 0;
}

int bwi_json_bool(const json_t *o, const char *key, bool *ret, const char *what, struct bw_error *err) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_boolean(v)) return ill_typed(o, key, "true or false", what, err);
    *ret = json_is_true(v);
    return 0;
}

int bwi_json_str(const json_t *o, const char *key, const char **ret, const char *what, struct bw_error *err) {
    return bwi_json_value_str(json_object_get(o, key), ret) ? 0 : ill_typed(o, key, "a string", what, err);
}

int bwi_json_text(const json_t *o, const char *key, char *ret, size_t ret_bytes, const char *what,
                  struct bw_error *err) {
    const char *s = "";
    const int rc = bwi_json_str(o, key, &s, what, err);
    if (rc < 0) return rc;
    const size_t bytes = strlen(s) + 1;
    if (bytes > ret_bytes)
        return bwi_error_set(err, BW_E_FORMAT, "%s: member \"%s\": expected at most %zu bytes, found %zu", what, key,
                             ret_bytes - 1, bytes - 1);
    memcpy(ret, s, bytes);
    return 0;
}

int bwi_json_name(const json_t *o, const char *key, char ret[BWI_NAME_BUF], bool may_be_null, const char *what,
                  struct bw_error *err) {
    const json_t *v = json_object_get(o, key);
    const char *s = "";
    if (may_be_null && json_is_null(v)) {
        ret[0] = '\0';
        return 0;
    }
    if (!bwi_json_value_str(v, &s) || !bwi_name_valid(s))
        return ill_typed(o, key, may_be_null ? "a name or null" : "a name", what, err);
    memcpy(ret, s, strlen(s) + 1);
    return 0;
}

int bwi_json_array(const json_t *o, const char *key, size_t max, const json_t **ret, const char *what,
                   struct bw_error *err) {
    const json_t *v = json_object_get(o, key);
    if (json_is_array(v) && json_array_size(v) <= max) {
        *ret = v;
        return 0;
    }
    char expected[64];
    (void)snprintf(expected, sizeof expected, "an array of at most %zu", max);
    return ill_typed(o, key, expected, what, err);
}

int bwi_json_sha(const json_t *o, const char *key, struct bwi_sha *ret, const char *what, struct bw_error *err) {
    return bwi_json_value_sha(json_object_get(o, key), ret) ? 0 : ill_typed(o, key, "64 hex digits", what, err);
}

int bwi_json_uuid(const json_t *o, const char *key, struct bwi_uuid *ret, const char *what, struct bw_error *err) {
    return bwi_json_value_uuid(json_object_get(o, key), ret) ? 0 : ill_typed(o, key, "32 hex digits", what, err);
}

int bwi_json_id(const json_t *o, const char *key, struct bwi_id *ret, const char *what, struct bw_error *err) {
    return bwi_json_value_id(json_object_get(o, key), ret) ? 0 : ill_typed(o, key, "a checkpoint id", what, err);
}

int bwi_json_writer(const json_t *o, const char *key, uint64_t *ret, const char *what, struct bw_error *err) {
    return bwi_json_value_hex(json_object_get(o, key), 16, ret) ? 0 : ill_typed(o, key, "16 hex digits", what, err);
}

int bwi_json_size(struct bwi_span in, uint64_t max, const char *what, struct bw_error *err) {
    if (in.len <= max) return 0;
    return bwi_error_set(err, BW_E_FORMAT, "%s: expected at most %llu bytes, found %zu", what, (unsigned long long)max,
                         in.len);
}

static bool listed(const char *key, const char *const *known) {
    for (; *known != NULL; known++) {
        if (strcmp(key, *known) == 0) return true;
    }
    return false;
}

int bwi_json_known(const json_t *o, const char *const *known, bool newer, const char *what, struct bw_error *err) {
    if (!json_is_object(o))
        return bwi_error_set(err, BW_E_FORMAT, "%s: expected an object, found %s", what, describe(o).s);
    if (newer) return 0;
    const char *key;
    json_t *child;
    json_object_foreach((json_t *)(uintptr_t)o, key, child) {
        if (!listed(key, known)) return bwi_error_set(err, BW_E_FORMAT, "%s: unknown member \"%.40s\"", what, key);
    }
    return 0;
}

/* The two numbers of "version". */
static bool version_of(const json_t *o, uint32_t *ret_major, uint32_t *ret_minor) {
    const json_t *v = json_object_get(o, "version");
    return bwi_json_is_row(v, 2, false) && bwi_json_value_u32(json_array_get(v, 0), UINT32_MAX, ret_major) &&
           bwi_json_value_u32(json_array_get(v, 1), UINT32_MAX, ret_minor);
}

bool bwi_json_newer(const json_t *o, uint32_t minor) {
    uint32_t its_major, its_minor;
    return version_of(o, &its_major, &its_minor) && its_minor > minor;
}

int bwi_json_head(const json_t *o, const char *name, uint32_t major, uint32_t minor, const char *const *known,
                  const char *what, struct bw_error *err) {
    const char *format;
    if (!bwi_json_value_str(json_object_get(o, "format"), &format) || strcmp(format, name) != 0) {
        char expected[64];
        (void)snprintf(expected, sizeof expected, "\"%s\"", name);
        return ill_typed(o, "format", expected, what, err);
    }
    uint32_t its_major, its_minor;
    if (!version_of(o, &its_major, &its_minor)) return ill_typed(o, "version", "[major, minor]", what, err);
    if (its_major > major)
        return bwi_error_set(err, BW_E_VERSION, "%s: has format \"%s\" version %u.%u, this release reads up to %u.x",
                             what, name, its_major, its_minor, major);
    if (its_major < major)
        return bwi_error_set(err, BW_E_FORMAT, "%s: has format \"%s\" version %u.%u, which never existed", what, name,
                             its_major, its_minor);
    if (its_minor > minor) return 0;
    const char *key;
    json_t *child;
    json_object_foreach((json_t *)(uintptr_t)o, key, child) {
        if (strcmp(key, "format") != 0 && strcmp(key, "version") != 0 && !listed(key, known))
            return bwi_error_set(err, BW_E_FORMAT, "%s: unknown member \"%.40s\"", what, key);
    }
    return 0;
}
