/* SPDX-License-Identifier: Apache-2.0 */
/* Canonical JSON: encoding, decoding with all its refusals, and the seal. Parsing is in json_read.c,
 * typed access to members in json_member.c, building in json_build.c. */
#include "format/json.h"
#include "base/error.h"
#include <string.h>

#define DUMP_FLAGS      (JSON_SORT_KEYS | JSON_COMPACT)
#define SEAL_KEY        "~sha256"
#define SEAL_HEAD       "\"" SEAL_KEY "\":\"" /* what stands before the digits */
#define SEAL_HEAD_BYTES (sizeof SEAL_HEAD - 1)
#define SEAL_DIGITS     ((size_t)64)
#define SEAL_END_BYTES  ((size_t)2) /* the closing quote and brace */

/* Integers only, and no deeper than readers accept. Recursion is bounded by that depth. */
static bool value_fits(const json_t *v, int depth) {
    if (json_is_real(v)) return false;
    if (!json_is_object(v) && !json_is_array(v)) return true;
    if (depth >= BWI_JSON_DEPTH_MAX) return false;
    const char *key;
    json_t *child;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)v, key, child) {
        if (!value_fits(child, depth + 1)) return false;
    }
    json_array_foreach(v, i, child) {
        if (!value_fits(child, depth + 1)) return false;
    }
    return true;
}

static int append(const char *text, size_t bytes, void *to) {
    struct bwi_buf *out = to;
    bwi_buf_put(out, text, bytes);
    return out->failed ? -1 : 0;
}

int bwi_json_encode(const json_t *v, struct bwi_buf *out, struct bw_error *err) {
    if (!json_is_object(v) && !json_is_array(v))
        return bwi_error_set(err, BW_E_INVALID, "json: expected an object or an array to encode");
    if (!value_fits(v, 0))
        return bwi_error_set(err, BW_E_INVALID, "json: a real number, or a nesting above %d levels",
                             BWI_JSON_DEPTH_MAX);
    const size_t start = out->len;
    if (json_dump_callback(v, append, out, DUMP_FLAGS) == 0 && !out->failed) return 0;
    const size_t reached = out->len - start;
    out->len = start;
    return bwi_error_nomem(err, reached + 1, "json text");
}

/* The seal has to be the last member in canonical order, which only the names of the others can spoil. */
static bool seal_would_be_last(const json_t *object) {
    const char *key;
    json_t *child;
    json_object_foreach((json_t *)(uintptr_t)object, key, child) {
        if (strcmp(key, SEAL_KEY) >= 0) return false;
    }
    return true;
}

int bwi_json_encode_sealed(const json_t *object, struct bwi_buf *out, struct bw_error *err) {
    if (!json_is_object(object)) return bwi_error_set(err, BW_E_INVALID, "json: expected an object to seal");
    if (!seal_would_be_last(object))
        return bwi_error_set(err, BW_E_INVALID, "json: a member sorts behind \"%s\", so the object cannot be sealed",
                             SEAL_KEY);
    const size_t start = out->len;
    int rc = bwi_json_encode(object, out, err);
    if (rc < 0) return rc;

    out->len--; /* the brace comes back behind the seal */
    if (json_object_size(object) > 0) bwi_buf_u8(out, ',');
    bwi_buf_str(out, SEAL_HEAD);
    if (!out->failed) {
        const struct bwi_sha sha = bwi_sha_of(bwi_span(out->ptr + start, out->len - start));
        char hex[BWI_SHA_HEX_BYTES];
        bwi_sha_hex(&sha, hex);
        bwi_buf_str(out, hex);
        bwi_buf_str(out, "\"}");
    }
    if (!out->failed) return 0;
    out->len = start;
    return bwi_error_nomem(err, SEAL_DIGITS, "json text");
}

/* Looks at the bytes before any tree is built, so that a hostile nesting costs nothing. Strings are skipped; whatever
 * else is wrong is left to bwi_json_read. */
static int scan(struct bwi_span in, const char *what, struct bw_error *err) {
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < in.len; i++) {
        const uint8_t c = in.ptr[i];
        if (in_string) {
            if (c == '\\') i++;
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > BWI_JSON_DEPTH_MAX)
                return bwi_error_set(err, BW_E_FORMAT, "%s: nested deeper than %d levels at byte %zu", what,
                                     BWI_JSON_DEPTH_MAX, i);
        } else if (c == '}' || c == ']') {
            depth -= depth > 0;
        } else if ((c == '.' || c == 'e' || c == 'E') && i > 0 && in.ptr[i - 1] >= '0' && in.ptr[i - 1] <= '9') {
            return bwi_error_set(err, BW_E_FORMAT, "%s: expected integers only, found a real number at byte %zu", what,
                                 i);
        }
    }
    return 0;
}

/* Re-encodes into a comparison instead of a buffer. */
struct comparison {
    struct bwi_span with;
    size_t at;
    bool differs;
};

static int compare(const char *text, size_t bytes, void *to) {
    struct comparison *c = to;
    size_t same = 0;
    while (same < bytes && c->at < c->with.len && c->with.ptr[c->at] == (uint8_t)text[same]) {
        c->at++;
        same++;
    }
    c->differs = same != bytes;
    return c->differs ? -1 : 0;
}

static int check_canonical(const json_t *v, struct bwi_span in, const char *what, struct bw_error *err) {
    struct comparison c = {in, 0, false};
    const int rc = json_dump_callback(v, compare, &c, DUMP_FLAGS);
    if (rc == 0 && c.at == in.len) return 0;
    if (rc != 0 && !c.differs) return bwi_error_nomem(err, in.len, what);
    return bwi_error_set(err, BW_E_FORMAT, "%s: not canonical from byte %zu on", what, c.at);
}

int bwi_json_decode(struct bwi_span in, const char *what, json_t **ret, struct bw_error *err) {
    json_t *v = NULL;
    if (in.len == 0) return bwi_error_set(err, BW_E_FORMAT, "%s: expected JSON, found nothing", what);
    int rc = scan(in, what, err);
    if (rc == 0) rc = bwi_json_read(in, what, &v, err);
    if (rc < 0) return rc;
    rc = check_canonical(v, in, what, err);
    if (rc < 0) {
        json_decref(v);
        return rc;
    }
    *ret = v;
    return 0;
}

static int check_seal(struct bwi_span in, const char *what, struct bw_error *err) {
    const size_t tail = SEAL_HEAD_BYTES + SEAL_DIGITS + SEAL_END_BYTES;
    if (in.len < tail + 1)
        return bwi_error_set(err, BW_E_CORRUPT, "%s: %zu bytes are too few to hold its hash", what, in.len);
    const uint8_t *head = in.ptr + in.len - tail;
    const uint8_t *digits = head + SEAL_HEAD_BYTES;
    struct bwi_sha written;
    /* A comma or brace before it: so the quote opens a name and is not an escaped one inside of a string. */
    if ((head[-1] != ',' && head[-1] != '{') || memcmp(head, SEAL_HEAD, SEAL_HEAD_BYTES) != 0 ||
        memcmp(digits + SEAL_DIGITS, "\"}", SEAL_END_BYTES) != 0 ||
        !bwi_sha_parse((const char *)digits, SEAL_DIGITS, &written))
        return bwi_error_set(err, BW_E_CORRUPT, "%s: does not end with its own hash (cut off, or damaged there)", what);

    const struct bwi_sha found = bwi_sha_of(bwi_span(in.ptr, (size_t)(digits - in.ptr)));
    if (bwi_sha_eq(&written, &found)) return 0;
    char want[BWI_SHA_HEX_BYTES], got[BWI_SHA_HEX_BYTES];
    bwi_sha_hex(&written, want);
    bwi_sha_hex(&found, got);
    return bwi_error_set(err, BW_E_CORRUPT, "%s: its bytes hash to %.16s..., it says %.16s...", what, got, want);
}

int bwi_json_decode_sealed(struct bwi_span in, const char *what, json_t **ret, struct bw_error *err) {
    json_t *v = NULL;
    int rc = check_seal(in, what, err);
    if (rc == 0) rc = bwi_json_decode(in, what, &v, err);
    if (rc < 0) return rc;
    (void)json_object_del(v, SEAL_KEY); /* it is there: what is JSON and ends with a seal is an object that has one */
    *ret = v;
    return 0;
}
