/* SPDX-License-Identifier: Apache-2.0 */
/* Strings in their one canonical form: what one side writes, the other side reads, and nothing else is accepted. */
#include "base/text.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void bwi_hex_encode(const void *src, size_t n, char *ret_text) {
    static const char digits[] = "0123456789abcdef";
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) {
        ret_text[2 * i] = digits[p[i] >> 4];
        ret_text[2 * i + 1] = digits[p[i] & 15];
    }
    ret_text[2 * n] = '\0';
}

/* 0 to 15, or 16 for anything but a lower-case digit. */
static unsigned hex_digit(char c) {
    if (c >= '0' && c <= '9') return (unsigned)(c - '0');
    if (c >= 'a' && c <= 'f') return (unsigned)(c - 'a' + 10);
    return 16;
}

bool bwi_hex_decode(const char *text, size_t text_len, void *ret_bytes, size_t n) {
    if (n > SIZE_MAX / 2 || text_len != 2 * n) return false;
    for (size_t i = 0; i < text_len; i++) {
        if (hex_digit(text[i]) > 15) return false;
    }
    uint8_t *out = ret_bytes;
    for (size_t i = 0; i < n; i++) {
        out[i] = (uint8_t)(hex_digit(text[2 * i]) << 4 | hex_digit(text[2 * i + 1]));
    }
    return true;
}

bool bwi_hex_u64(const char *text, size_t digits, uint64_t *ret) {
    if (digits == 0 || digits > 16) return false;
    uint64_t v = 0;
    for (size_t i = 0; i < digits; i++) {
        const unsigned digit = hex_digit(text[i]);
        if (digit > 15) return false;
        v = v << 4 | digit;
    }
    *ret = v;
    return true;
}

bool bwi_dec_padded_u64(const char *text, size_t digits, uint64_t *ret) {
    if (digits == 0) return false;
    uint64_t v = 0;
    for (size_t i = 0; i < digits; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        if (__builtin_mul_overflow(v, 10u, &v)) return false;
        if (__builtin_add_overflow(v, (uint64_t)(text[i] - '0'), &v)) return false;
    }
    *ret = v;
    return true;
}

bool bwi_dec_u64(struct bwi_span text, uint64_t *ret) {
    if (text.len > 1 && text.ptr[0] == '0') return false;
    return bwi_dec_padded_u64((const char *)text.ptr, text.len, ret);
}

/* How many bytes a sequence has by its first byte, the least code point that needs as many, and that byte's share. */
static size_t utf8_lead(uint8_t lead, uint32_t *ret_least, uint32_t *ret_bits) {
    if (lead >= 0xc2 && lead <= 0xdf) {
        *ret_least = 0x80;
        *ret_bits = lead & 0x1fu;
        return 2;
    }
    if ((lead & 0xf0) == 0xe0) {
        *ret_least = 0x800;
        *ret_bits = lead & 0x0fu;
        return 3;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
        *ret_least = 0x10000;
        *ret_bits = lead & 0x07u;
        return 4;
    }
    return 0;
}

size_t bwi_utf8_next(struct bwi_span s, uint32_t *ret_code) {
    if (s.len == 0) return 0;
    if (s.ptr[0] < 0x80) {
        *ret_code = s.ptr[0];
        return 1;
    }
    uint32_t least = 0;
    uint32_t code = 0;
    const size_t n = utf8_lead(s.ptr[0], &least, &code);
    if (n == 0 || n > s.len) return 0;
    for (size_t i = 1; i < n; i++) {
        if ((s.ptr[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (s.ptr[i] & 0x3fu);
    }
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return 0;
    *ret_code = code;
    return n;
}

bool bwi_utf8_valid(struct bwi_span s) {
    while (s.len > 0) {
        uint32_t code = 0;
        const size_t n = bwi_utf8_next(s, &code);
        if (n == 0 || code == 0) return false;
        s = bwi_span(s.ptr + n, s.len - n);
    }
    return true;
}

bool bwi_utf8_harmless(uint32_t code) {
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
    if (code == 0x2028 || code == 0x2029) return false;
    return !(code >= 0x202a && code <= 0x202e) && !(code >= 0x2066 && code <= 0x2069);
}

static bool is_alnum(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool bwi_name_valid(const char *s) {
    if (s == NULL || !is_alnum(s[0])) return false;
    size_t n = 1;
    for (; s[n] != '\0'; n++) {
        if (n >= BWI_NAME_MAX) return false;
        if (!is_alnum(s[n]) && s[n] != '.' && s[n] != '_' && s[n] != '-') return false;
    }
    return true;
}

bool bwi_format(char *buf, size_t buf_bytes, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const int chars = vsnprintf(buf, buf_bytes, fmt, args);
    va_end(args);
    return chars >= 0 && (size_t)chars < buf_bytes;
}

void bwi_text_line(char *buf, size_t buf_bytes, const char *text) {
    struct bwi_span in = bwi_span_str(text);
    size_t at = 0, out = 0;
    if (buf_bytes == 0) return;
    while (at < in.len) {
        uint32_t code = 0;
        size_t n = bwi_utf8_next(bwi_span(in.ptr + at, in.len - at), &code);
        bool keep = n > 0 && bwi_utf8_harmless(code);
        size_t take = keep ? n : 1;
        if (out + take >= buf_bytes) break;
        if (keep)
            memcpy(buf + out, in.ptr + at, n);
        else
            buf[out] = '?';
        out += take;
        at += n > 0 ? n : 1;
    }
    buf[out] = '\0';
}

size_t bwi_text_fit(const char *text, size_t max) {
    const size_t len = strnlen(text, max + 1);
    size_t n = len < max ? len : max;
    while (n > 0 && n < len && ((uint8_t)text[n] & 0xc0) == 0x80) n--;
    return n;
}

void bwi_text_words(char *buf, size_t buf_bytes, const char *text) {
    static const char more[] = " ...";
    const size_t len = strnlen(text, buf_bytes);
    if (len < buf_bytes) {
        memcpy(buf, text, len + 1);
        return;
    }
    const size_t max = bwi_text_fit(text, buf_bytes - sizeof more);
    size_t n = max;
    while (n > 0 && text[n] != ' ') n--;
    if (n < max / 2) n = max;
    memcpy(buf, text, n);
    memcpy(buf + n, more, sizeof more);
}

void bwi_text_bytes(uint64_t bytes, char *buf, size_t buf_bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        (void)bwi_format(buf, buf_bytes, "%u B", (unsigned)bytes);
        return;
    }
    size_t unit = 0;
    double v = (double)bytes / 1024.0;
    while (v >= 1023.95) { /* would be shown as 1024.0 */
        v /= 1024.0;
        unit++;
    }
    (void)bwi_format(buf, buf_bytes, "%.1f %s", v, units[unit]);
}
