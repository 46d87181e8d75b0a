/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding the header of any safetensors file. What is not a header by the grammar of doc/format/pack.md is refused
 * where it stands; entries are then put in order of their bytes and checked like our own. */
#include "base/error.h"
#include "base/vec.h"
#include "format/json.h"
#include "format/json_scan.h"
#include "format/pack_private.h"
#include <breakwater/tensor.h>
#include <stdlib.h>
#include <string.h>

#define WHAT BWI_PACK_WHAT

static bool is(struct bwi_span text, const char *name) {
    return bwi_span_eq(text, bwi_span_str(name));
}

/* --- metadata --- */

struct pair {
    struct bwi_span key, value;
};
struct pairs {
    struct pair *at;
    size_t count, cap;
};

static int by_key(const void *a, const void *b) {
    const struct pair *x = a, *y = b;
    return bwi_span_cmp(x->key, y->key);
}

static int scan_pairs(struct bwi_scan *s, struct pairs *p) {
    int rc = bwi_scan_take(s, '{');
    for (bool more; rc == 0; p->count++) {
        rc = bwi_scan_more(s, '}', p->count, &more);
        if (rc < 0 || !more) return rc;
        void *at = p->at;
        if (!bwi_vec_reserve(&at, &p->cap, p->count + 1, sizeof *p->at))
            return bwi_error_nomem(s->err, (p->count + 1) * sizeof *p->at, WHAT);
        p->at = at;
        rc = bwi_scan_string(s, &p->at[p->count].key);
        if (rc == 0) rc = bwi_scan_take(s, ':');
        if (rc == 0) rc = bwi_scan_string(s, &p->at[p->count].value);
    }
    return rc;
}

static int put_canonical(struct pairs *p, struct bwi_buf *out, struct bw_error *err) {
    if (p->count > 0) qsort(p->at, p->count, sizeof *p->at, by_key);
    for (size_t i = 0; i < p->count; i++) {
        if (i > 0 && bwi_span_eq(p->at[i - 1].key, p->at[i].key))
            return bwi_error_set(err, BW_E_FORMAT, WHAT ": metadata repeats the key \"%.*s\"",
                                 (int)(p->at[i].key.len < BWI_PACK_SHOWN ? p->at[i].key.len : BWI_PACK_SHOWN),
                                 (const char *)p->at[i].key.ptr);
        bwi_buf_u8(out, i > 0 ? ',' : '{');
        bwi_json_put_string(out, p->at[i].key);
        bwi_buf_u8(out, ':');
        bwi_json_put_string(out, p->at[i].value);
    }
    bwi_buf_str(out, p->count > 0 ? "}" : "{}");
    return out->failed ? bwi_error_nomem(err, out->len + 1, WHAT) : 0;
}

/* The canonical text takes the place of the decoded strings. It is never longer than the text it was read from: every
 * character has its shortest form. So the buffer still does not move. */
static int scan_metadata(struct bwi_scan *s, struct bwi_pack_header *h) {
    if (h->metadata.len > 0)
        return bwi_error_set(s->err, BW_E_FORMAT, WHAT ": \"%s\" is there twice", BWI_PACK_METADATA_KEY);
    struct pairs p = {0};
    struct bwi_buf canonical = {0};
    const size_t start = s->text->len;
    int rc = scan_pairs(s, &p);
    if (rc == 0) rc = put_canonical(&p, &canonical, s->err);
    if (rc == 0) {
        s->text->len = start;
        bwi_buf_put(s->text, canonical.ptr, canonical.len);
        h->metadata = bwi_span(s->text->ptr + start, canonical.len);
    }
    bwi_free(p.at);
    bwi_buf_fini(&canonical);
    return rc;
}

/* --- entries --- */

static int scan_dtype(struct bwi_scan *s, struct bwi_pack_entry *e) {
    struct bwi_span text;
    const size_t start = s->text->len;
    const int rc = bwi_scan_string(s, &text);
    if (rc < 0) return rc;
    char name[16] = "";
    if (text.len < sizeof name) memcpy(name, text.ptr, text.len);
    const int dtype = bw_dtype_parse(name);
    if (dtype == 0)
        return bwi_error_set(s->err, BW_E_UNSUPPORTED, WHAT ": tensor \"%.*s\": dtype \"%.*s\" is not known",
                             BWI_PACK_NAME(e), (int)(text.len < 32 ? text.len : 32), (const char *)text.ptr);
    s->text->len = start;
    e->dtype = (uint8_t)dtype;
    return 0;
}

/* Up to max numbers. */
static int scan_numbers(struct bwi_scan *s, uint64_t *numbers, size_t max, size_t *ret_count,
                        const struct bwi_pack_entry *e, const char *of) {
    size_t n = 0;
    int rc = bwi_scan_take(s, '[');
    for (bool more; rc == 0; n++) {
        rc = bwi_scan_more(s, ']', n, &more);
        if (rc < 0) return rc;
        if (!more) {
            *ret_count = n;
            return 0;
        }
        if (n == max)
            return bwi_error_set(s->err, BW_E_FORMAT, WHAT ": tensor \"%.*s\": more than %zu %s", BWI_PACK_NAME(e), max,
                                 of);
        rc = bwi_scan_u64(s, &numbers[n]);
    }
    return rc;
}

static int scan_shape(struct bwi_scan *s, struct bwi_pack_entry *e) {
    size_t dims = 0;
    const int rc = scan_numbers(s, e->shape, BWI_DIMS_MAX, &dims, e, "dimensions");
    if (rc == 0) e->dims = (uint8_t)dims;
    return rc;
}

static int scan_offsets(struct bwi_scan *s, struct bwi_pack_entry *e) {
    uint64_t offsets[2] = {0, 0};
    size_t n = 0;
    const int rc = scan_numbers(s, offsets, 2, &n, e, "offsets");
    if (rc < 0) return rc;
    if (n != 2)
        return bwi_error_set(s->err, BW_E_FORMAT, WHAT ": tensor \"%.*s\": expected 2 offsets, found %zu",
                             BWI_PACK_NAME(e), n);
    e->begin = offsets[0];
    e->end = offsets[1];
    return 0;
}

/* One of the three members; `seen` has a bit for each. A member that is not known may change what the bytes mean, so it
 * is not passed over. */
static int scan_member(struct bwi_scan *s, struct bwi_pack_entry *e, unsigned *seen) {
    static const char *const names[] = {"dtype", "shape", "data_offsets"};
    static int (*const readers[])(struct bwi_scan *, struct bwi_pack_entry *) = {scan_dtype, scan_shape, scan_offsets};
    struct bwi_span name;
    const size_t start = s->text->len;
    int rc = bwi_scan_string(s, &name);
    if (rc == 0) rc = bwi_scan_take(s, ':');
    if (rc < 0) return rc;
    for (unsigned i = 0; i < 3; i++) {
        if (!is(name, names[i])) continue;
        if ((*seen & 1u << i) != 0)
            return bwi_error_set(s->err, BW_E_FORMAT, WHAT ": tensor \"%.*s\": \"%s\" is there twice", BWI_PACK_NAME(e),
                                 names[i]);
        *seen |= 1u << i;
        s->text->len = start;
        return readers[i](s, e);
    }
    return bwi_error_set(s->err, BW_E_UNSUPPORTED, WHAT ": tensor \"%.*s\": member \"%.*s\" is not known",
                         BWI_PACK_NAME(e), (int)(name.len < 32 ? name.len : 32), (const char *)name.ptr);
}

static int scan_entry(struct bwi_scan *s, struct bwi_pack_entry *e) {
    unsigned seen = 0;
    int rc = bwi_scan_take(s, '{');
    for (size_t n = 0; rc == 0; n++) {
        bool more;
        rc = bwi_scan_more(s, '}', n, &more);
        if (rc < 0) return rc;
        if (!more) break;
        rc = scan_member(s, e, &seen);
    }
    if (rc == 0 && seen != 7)
        rc = bwi_error_set(s->err, BW_E_FORMAT,
                           WHAT ": tensor \"%.*s\": expected \"dtype\", \"shape\", \"data_offsets\"", BWI_PACK_NAME(e));
    return rc;
}

static int scan_tensor(struct bwi_scan *s, struct bwi_span name, struct bwi_pack_header *h) {
    void *entries = h->entries;
    if (!bwi_vec_reserve(&entries, &h->cap, h->count + 1, sizeof *h->entries))
        return bwi_error_nomem(s->err, (h->count + 1) * sizeof *h->entries, WHAT);
    h->entries = entries;
    struct bwi_pack_entry *e = &h->entries[h->count];
    e->name = name;
    const int rc = scan_entry(s, e);
    if (rc == 0) h->count++;
    return rc;
}

static int scan_header(struct bwi_scan *s, struct bwi_pack_header *h) {
    /* The format wants the brace right at the beginning. */
    if (s->in.len == 0 || s->in.ptr[0] != '{')
        return bwi_error_set(s->err, BW_E_FORMAT, WHAT ": expected '{' right behind the length");
    int rc = bwi_scan_take(s, '{');
    for (size_t n = 0; rc == 0; n++) {
        bool more;
        rc = bwi_scan_more(s, '}', n, &more);
        if (rc < 0) return rc;
        if (!more) break;
        struct bwi_span name;
        rc = bwi_scan_string(s, &name);
        if (rc == 0) rc = bwi_scan_take(s, ':');
        if (rc == 0) rc = is(name, BWI_PACK_METADATA_KEY) ? scan_metadata(s, h) : scan_tensor(s, name, h);
    }
    return rc == 0 ? bwi_scan_end(s) : rc;
}

/* Among empty tensors at one place the order of the text counts: names lie in the buffer in that order. */
static int by_bytes(const void *a, const void *b) {
    const struct bwi_pack_entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return (x->name.ptr > y->name.ptr) - (x->name.ptr < y->name.ptr);
}

static void sort_by_bytes(struct bwi_pack_header *h) {
    bool sorted = true;
    for (size_t i = 1; i < h->count && sorted; i++) sorted = by_bytes(&h->entries[i - 1], &h->entries[i]) < 0;
    if (!sorted) qsort(h->entries, h->count, sizeof *h->entries, by_bytes);
}

int bwi_pack_header_decode(struct bwi_span in, uint64_t file_bytes, struct bwi_pack_header *ret, struct bw_error *err) {
    uint64_t bytes;
    int rc = bwi_pack_header_length(in, file_bytes, &bytes, err);
    if (rc < 0) return rc;
    if (bytes > in.len)
        return bwi_error_set(err, BW_E_FORMAT, WHAT ": expected %llu bytes, found %zu", (unsigned long long)bytes,
                             in.len);
    struct bwi_pack_header h = {.data_bytes = file_bytes - bytes};
    const struct bwi_span json = bwi_span(in.ptr + BWI_PACK_LENGTH_BYTES, (size_t)bytes - BWI_PACK_LENGTH_BYTES);
    if (!bwi_buf_reserve(&h.names, json.len)) return bwi_error_nomem(err, json.len, WHAT);

    struct bwi_scan scan = {.in = json, .text = &h.names, .err = err, .what = WHAT, .before = BWI_PACK_LENGTH_BYTES};
    rc = scan_header(&scan, &h);
    if (rc == 0) sort_by_bytes(&h);
    if (rc == 0) rc = bwi_pack_check(&h, false, err);
    if (rc < 0) {
        bwi_pack_header_fini(&h);
        return rc;
    }
    *ret = h;
    return 0;
}
