/* SPDX-License-Identifier: Apache-2.0 */
/* Byte spans, the growing buffer, and the little-endian encoder and decoder over them. */
#include "base/span.h"
#include "base/vec.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct bwi_span bwi_span_str(const char *s) {
    return bwi_span(s, s == NULL ? 0 : strlen(s));
}

bool bwi_span_eq(struct bwi_span a, struct bwi_span b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

int bwi_span_cmp(struct bwi_span a, struct bwi_span b) {
    const size_t common = a.len < b.len ? a.len : b.len;
    const int order = common == 0 ? 0 : memcmp(a.ptr, b.ptr, common);
    if (order != 0) return order < 0 ? -1 : 1;
    return (a.len > b.len) - (a.len < b.len);
}

void bwi_buf_fini(struct bwi_buf *b) {
    if (b == NULL) return;
    bwi_free(b->ptr);
    *b = (struct bwi_buf){0};
}

void bwi_buf_reset(struct bwi_buf *b) {
    b->len = 0;
    b->failed = false;
}

bool bwi_buf_reserve(struct bwi_buf *b, size_t more) {
    if (b->failed) return false;
    if (more <= b->cap - b->len) return true;
    /* Records are a few hundred bytes: the first step skips the tiny sizes. */
    size_t want;
    void *ptr = b->ptr;
    if (__builtin_add_overflow(b->len, more, &want) || !bwi_vec_reserve(&ptr, &b->cap, want < 256 ? 256 : want, 1)) {
        b->failed = true;
        return false;
    }
    b->ptr = ptr;
    return true;
}

void bwi_buf_put(struct bwi_buf *b, const void *src, size_t n) {
    if (n == 0 || !bwi_buf_reserve(b, n)) return;
    memcpy(b->ptr + b->len, src, n);
    b->len += n;
}

void bwi_buf_zero(struct bwi_buf *b, size_t n) {
    if (n == 0 || !bwi_buf_reserve(b, n)) return;
    memset(b->ptr + b->len, 0, n);
    b->len += n;
}

void bwi_buf_u8(struct bwi_buf *b, uint8_t v) {
    bwi_buf_put(b, &v, 1);
}

void bwi_buf_u16(struct bwi_buf *b, uint16_t v) {
    uint8_t raw[2];
    bwi_put_le16(raw, v);
    bwi_buf_put(b, raw, sizeof raw);
}

void bwi_buf_u32(struct bwi_buf *b, uint32_t v) {
    uint8_t raw[4];
    bwi_put_le32(raw, v);
    bwi_buf_put(b, raw, sizeof raw);
}

void bwi_buf_u64(struct bwi_buf *b, uint64_t v) {
    uint8_t raw[8];
    bwi_put_le64(raw, v);
    bwi_buf_put(b, raw, sizeof raw);
}

void bwi_buf_str(struct bwi_buf *b, const char *s) {
    bwi_buf_put(b, s, strlen(s));
}

void bwi_buf_printf(struct bwi_buf *b, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const int chars = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (chars < 0) b->failed = true;
    /* vsnprintf ends with a NUL; it needs room but is no part of the contents. */
    if (chars <= 0 || !bwi_buf_reserve(b, (size_t)chars + 1)) return;
    va_start(args, fmt);
    (void)vsnprintf((char *)b->ptr + b->len, (size_t)chars + 1, fmt, args);
    va_end(args);
    b->len += (size_t)chars;
}

uint16_t bwi_le16(const uint8_t *p) {
    return (uint16_t)(p[0] | (unsigned)p[1] << 8);
}

uint32_t bwi_le32(const uint8_t *p) {
    return bwi_le16(p) | (uint32_t)bwi_le16(p + 2) << 16;
}

uint64_t bwi_le64(const uint8_t *p) {
    return bwi_le32(p) | (uint64_t)bwi_le32(p + 4) << 32;
}

void bwi_put_le16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

void bwi_put_le32(uint8_t *p, uint32_t v) {
    bwi_put_le16(p, (uint16_t)v);
    bwi_put_le16(p + 2, (uint16_t)(v >> 16));
}

void bwi_put_le64(uint8_t *p, uint64_t v) {
    bwi_put_le32(p, (uint32_t)v);
    bwi_put_le32(p + 4, (uint32_t)(v >> 32));
}

size_t bwi_reader_left(const struct bwi_reader *r) {
    return r->failed ? 0 : r->in.len - r->at;
}

/* The next n bytes, or NULL (and stuck from then on) when there are fewer. */
static const uint8_t *take(struct bwi_reader *r, size_t n) {
    if (r->failed || n > r->in.len - r->at) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *p = r->in.ptr + r->at;
    r->at += n;
    return p;
}

uint8_t bwi_read_u8(struct bwi_reader *r) {
    const uint8_t *p = take(r, 1);
    return p != NULL ? *p : 0;
}

uint16_t bwi_read_u16(struct bwi_reader *r) {
    const uint8_t *p = take(r, 2);
    return p != NULL ? bwi_le16(p) : 0;
}

uint32_t bwi_read_u32(struct bwi_reader *r) {
    const uint8_t *p = take(r, 4);
    return p != NULL ? bwi_le32(p) : 0;
}

uint64_t bwi_read_u64(struct bwi_reader *r) {
    const uint8_t *p = take(r, 8);
    return p != NULL ? bwi_le64(p) : 0;
}

struct bwi_span bwi_read_bytes(struct bwi_reader *r, size_t n) {
    if (n == 0) return BWI_SPAN_NONE;
    const uint8_t *p = take(r, n);
    return p != NULL ? bwi_span(p, n) : BWI_SPAN_NONE;
}

void bwi_read_into(struct bwi_reader *r, void *dst, size_t n) {
    if (n == 0) return;
    const uint8_t *p = take(r, n);
    if (p != NULL) {
        memcpy(dst, p, n);
    } else {
        memset(dst, 0, n);
    }
}
