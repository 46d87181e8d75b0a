/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of packs: encoding, the length field, and the rules that bind entries either way. Decoding is in
 * pack_decode.c. */
#include "format/pack.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "format/json.h"
#include "format/pack_private.h"
#include "format/rules.h"
#include <breakwater/tensor.h>
#include <stdlib.h>
#include <string.h>

#define WHAT BWI_PACK_WHAT

bool bwi_pack_dtype(uint8_t dtype) {
    return dtype >= BW_BOOL && dtype <= BW_U64;
}

void bwi_pack_header_fini(struct bwi_pack_header *h) {
    if (h == NULL) return;
    bwi_free(h->entries);
    bwi_buf_fini(&h->names);
    *h = (struct bwi_pack_header){0};
}

int bwi_pack_header_length(struct bwi_span first8, uint64_t file_bytes, uint64_t *ret_bytes, struct bw_error *err) {
    if (file_bytes < BWI_PACK_LENGTH_BYTES || first8.len < BWI_PACK_LENGTH_BYTES)
        return bwi_error_set(err, BW_E_FORMAT, WHAT ": expected at least %u bytes, found %llu", BWI_PACK_LENGTH_BYTES,
                             (unsigned long long)bwi_min_u64(file_bytes, first8.len));
    if (file_bytes > BWI_PACK_BYTES_MAX)
        return bwi_error_set(err, BW_E_FORMAT, WHAT ": the file has %llu bytes, at most %llu are allowed",
                             (unsigned long long)file_bytes, (unsigned long long)BWI_PACK_BYTES_MAX);
    const uint64_t length = bwi_le64(first8.ptr);
    if (length > BWI_PACK_HEADER_MAX)
        return bwi_error_set(err, BW_E_FORMAT, WHAT ": its length %llu is above %llu", (unsigned long long)length,
                             (unsigned long long)BWI_PACK_HEADER_MAX);
    if (length > file_bytes - BWI_PACK_LENGTH_BYTES)
        return bwi_error_set(err, BW_E_FORMAT, WHAT ": its length %llu does not fit a file of %llu bytes",
                             (unsigned long long)length, (unsigned long long)file_bytes);
    *ret_bytes = BWI_PACK_LENGTH_BYTES + length;
    return 0;
}

/* --- rules --- */

/* Bytes of a tensor. Dimensions of 0 do not hide an overflow of the others: readers multiply in any order. */
static bool shape_bytes(const struct bwi_pack_entry *e, uint64_t *ret) {
    uint64_t bytes = bw_dtype_bytes(e->dtype);
    bool empty = false;
    for (uint32_t d = 0; d < e->dims; d++) {
        if (e->shape[d] == 0)
            empty = true;
        else if (!bwi_mul_u64(bytes, e->shape[d], &bytes))
            return false;
    }
    *ret = empty ? 0 : bytes;
    return true;
}

static int check_name(const struct bwi_pack_entry *e, bool writing, struct bw_error *err) {
    if (e->name.len > BWI_TENSOR_NAME_MAX)
        return bwi_error_set(err, bwi_rule_over(writing),
                             WHAT ": tensor \"%.*s...\": its name has %zu bytes, at most %d", BWI_PACK_NAME(e),
                             e->name.len, BWI_TENSOR_NAME_MAX);
    if (e->name.len == 0) return bwi_error_set(err, bwi_rule_bad(writing), WHAT ": a tensor has no name");
    if (!bwi_utf8_valid(e->name))
        return bwi_error_set(err, bwi_rule_bad(writing), WHAT ": tensor \"%.*s\": its name is not UTF-8 without NUL",
                             BWI_PACK_NAME(e));
    if (bwi_span_eq(e->name, bwi_span_str(BWI_PACK_METADATA_KEY)))
        return bwi_error_set(err, bwi_rule_bad(writing), WHAT ": a tensor has the reserved name \"%s\"",
                             BWI_PACK_METADATA_KEY);
    return 0;
}

static int check_entry(const struct bwi_pack_entry *e, uint64_t expected_begin, bool writing, struct bw_error *err) {
    const int bad = bwi_rule_bad(writing);
    const unsigned long long begin = e->begin, end = e->end;
    const int rc = check_name(e, writing, err);
    if (rc < 0) return rc;
    if (e->dims > BWI_DIMS_MAX)
        return bwi_error_set(err, bwi_rule_over(writing), WHAT ": tensor \"%.*s\": has %u dimensions, at most %d",
                             BWI_PACK_NAME(e), e->dims, BWI_DIMS_MAX);
    if (bw_dtype_bytes(e->dtype) == 0 || (writing && !bwi_pack_dtype(e->dtype)))
        return bwi_error_set(err, bad, WHAT ": tensor \"%.*s\": dtype %s (%u) cannot be in a pack", BWI_PACK_NAME(e),
                             bw_dtype_name(e->dtype), e->dtype);
    if (e->begin != expected_begin)
        return bwi_error_set(err, bad, WHAT ": tensor \"%.*s\": begins at %llu, expected %llu (%s)", BWI_PACK_NAME(e),
                             begin, (unsigned long long)expected_begin,
                             e->begin > expected_begin ? "a hole before it" : "it overlaps the one before");
    uint64_t bytes;
    if (!shape_bytes(e, &bytes))
        return bwi_error_set(err, bad, WHAT ": tensor \"%.*s\": its shape has more than 2^64 bytes", BWI_PACK_NAME(e));
    if (e->end < e->begin || e->end - e->begin != bytes)
        return bwi_error_set(err, bad, WHAT ": tensor \"%.*s\": shape and dtype make %llu bytes, offsets %llu to %llu",
                             BWI_PACK_NAME(e), (unsigned long long)bytes, begin, end);
    return 0;
}

static int by_name(const void *a, const void *b) {
    const struct bwi_pack_entry *const *x = a, *const *y = b;
    return bwi_span_cmp((*x)->name, (*y)->name);
}

/* Sorted instead of hashed: a hostile header cannot make it slow. */
static int check_unique(const struct bwi_pack_header *h, bool writing, struct bw_error *err) {
    if (h->count < 2) return 0;
    const struct bwi_pack_entry **sorted = bwi_calloc(h->count, sizeof *sorted);
    if (sorted == NULL) return bwi_error_nomem(err, h->count * sizeof *sorted, WHAT);
    for (size_t i = 0; i < h->count; i++) sorted[i] = &h->entries[i];
    qsort(sorted, h->count, sizeof *sorted, by_name);
    int rc = 0;
    for (size_t i = 1; i < h->count && rc == 0; i++) {
        if (bwi_span_eq(sorted[i - 1]->name, sorted[i]->name))
            rc = bwi_error_set(err, bwi_rule_bad(writing), WHAT ": tensor \"%.*s\" is there twice",
                               BWI_PACK_NAME(sorted[i]));
    }
    bwi_free(sorted);
    return rc;
}

int bwi_pack_check(const struct bwi_pack_header *h, bool writing, struct bw_error *err) {
    uint64_t at = 0;
    int rc = 0;
    for (size_t i = 0; i < h->count && rc == 0; i++) {
        rc = check_entry(&h->entries[i], at, writing, err);
        at = h->entries[i].end;
    }
    if (rc == 0 && at != h->data_bytes)
        rc = bwi_error_set(err, bwi_rule_bad(writing), WHAT ": its tensors end at %llu, the data at %llu",
                           (unsigned long long)at, (unsigned long long)h->data_bytes);
    if (rc == 0) rc = check_unique(h, writing, err);
    return rc;
}

/* --- encoding --- */

static int check_metadata(struct bwi_span metadata, struct bw_error *err) {
    if (metadata.len == 0) return 0;
    json_t *o = NULL;
    struct bw_error why = BW_ERROR_INIT;
    const int rc = bwi_json_decode(metadata, "metadata", &o, &why);
    bool fits = json_is_object(o);
    const char *key;
    json_t *value;
    json_object_foreach(o, key, value) {
        fits = fits && json_is_string(value);
    }
    json_decref(o);
    if (fits) return 0;
    if (rc == BW_E_NOMEM) return bwi_error_copy(err, &why);
    return bwi_error_set(err, BW_E_INVALID, WHAT ": expected metadata to be a canonical JSON object of strings%s%s",
                         rc < 0 ? ": " : "", why.message);
}

/* Three to a dozen of these per tensor: printf would take most of the time. */
static void put_number(struct bwi_buf *out, uint64_t v) {
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    bwi_buf_put(out, digits + at, sizeof digits - at);
}

static void put_entry(struct bwi_buf *out, const struct bwi_pack_entry *e) {
    bwi_json_put_string(out, e->name);
    bwi_buf_str(out, ":{\"dtype\":\"");
    bwi_buf_str(out, bw_dtype_name(e->dtype));
    bwi_buf_str(out, "\",\"shape\":[");
    for (uint32_t d = 0; d < e->dims; d++) {
        if (d > 0) bwi_buf_u8(out, ',');
        put_number(out, e->shape[d]);
    }
    bwi_buf_str(out, "],\"data_offsets\":[");
    put_number(out, e->begin);
    bwi_buf_u8(out, ',');
    put_number(out, e->end);
    bwi_buf_str(out, "]}");
}

static void put_json(struct bwi_buf *out, const struct bwi_pack_header *h) {
    bool first = true;
    bwi_buf_u8(out, '{');
    if (h->metadata.len > 0) {
        bwi_buf_str(out, "\"" BWI_PACK_METADATA_KEY "\":");
        bwi_buf_put(out, h->metadata.ptr, h->metadata.len);
        first = false;
    }
    for (size_t i = 0; i < h->count; i++, first = false) {
        if (!first) bwi_buf_u8(out, ',');
        put_entry(out, &h->entries[i]);
    }
    bwi_buf_u8(out, '}');
}

/* Behind the JSON at out->ptr + start: blanks up to the alignment, and the length in front. */
static int finish(struct bwi_buf *out, size_t start, uint64_t align, uint64_t data_bytes, struct bw_error *err) {
    while (!out->failed && (out->len - start) % align != 0) bwi_buf_u8(out, ' ');
    if (out->failed) return bwi_error_nomem(err, out->len - start + 1, WHAT);
    const uint64_t bytes = out->len - start, json = bytes - BWI_PACK_LENGTH_BYTES;
    if (json > BWI_PACK_HEADER_MAX)
        return bwi_error_set(err, BW_E_LIMIT, WHAT ": has %llu bytes of JSON, at most %llu are allowed",
                             (unsigned long long)json, (unsigned long long)BWI_PACK_HEADER_MAX);
    if (data_bytes > BWI_PACK_BYTES_MAX - bytes)
        return bwi_error_set(err, BW_E_LIMIT, WHAT ": with %llu bytes of data the pack is above %llu bytes",
                             (unsigned long long)data_bytes, (unsigned long long)BWI_PACK_BYTES_MAX);
    bwi_put_le64(out->ptr + start, json);
    return 0;
}

int bwi_pack_header_encode(const struct bwi_pack_header *h, uint64_t align, struct bwi_buf *out, struct bw_error *err) {
    if (align == 0 || (align & (align - 1)) != 0 || align > BWI_PACK_HEADER_MAX)
        return bwi_error_set(err, BW_E_INVALID, WHAT ": expected an alignment that is a power of two, found %llu",
                             (unsigned long long)align);
    int rc = bwi_pack_check(h, true, err);
    if (rc == 0) rc = check_metadata(h->metadata, err);
    if (rc < 0) return rc;
    const size_t start = out->len;
    bwi_buf_u64(out, 0);
    put_json(out, h);
    rc = finish(out, start, align, h->data_bytes, err);
    if (rc < 0) out->len = start;
    return rc;
}

size_t bwi_pack_entry_json_bytes(const struct bwi_pack_entry *e) {
    static const char fixed[] = ",\"\":{\"dtype\":\"F8_E4M3FNUZ\",\"shape\":[],\"data_offsets\":[,]}";
    enum { NUMBER = 20, ESCAPE = 6 }; /* digits of 2^64 - 1; bytes of \u001F */
    size_t bytes = sizeof fixed + (size_t)e->dims * (NUMBER + 1) + (size_t)2 * NUMBER + e->name.len;
    for (size_t i = 0; i < e->name.len; i++) {
        const uint8_t c = e->name.ptr[i];
        if (c < 0x20 || c == '"' || c == '\\') bytes += ESCAPE - 1;
    }
    return bytes;
}
