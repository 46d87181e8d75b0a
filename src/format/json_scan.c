/* SPDX-License-Identifier: Apache-2.0 */
/* The pull scanner for JSON. */
#include "format/json_scan.h"
#include "base/error.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>

static bool is_blank(uint8_t c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(struct bwi_scan *s) {
    while (s->at < s->in.len && is_blank(s->in.ptr[s->at])) s->at++;
}

static uint8_t peek(const struct bwi_scan *s) {
    return s->at < s->in.len ? s->in.ptr[s->at] : 0;
}

uint8_t bwi_scan_peek(struct bwi_scan *s) {
    skip_blanks(s);
    return peek(s);
}

static int refuse(const struct bwi_scan *s, size_t at, const char *expected, const char *found) {
    return bwi_error_set(s->err, BW_E_FORMAT, "%s: byte %zu: expected %s%s%s", s->what, s->before + at, expected,
                         found != NULL ? ", found " : "", found != NULL ? found : "");
}

int bwi_scan_unexpected(const struct bwi_scan *s, const char *expected) {
    char found[24] = "the end";
    const uint8_t c = peek(s);
    if (s->at < s->in.len) (void)snprintf(found, sizeof found, c > 0x20 && c < 0x7f ? "'%c'" : "byte 0x%02x", c);
    return refuse(s, s->at, expected, found);
}

int bwi_scan_take(struct bwi_scan *s, char c) {
    skip_blanks(s);
    const char expected[] = {'\'', c, '\'', '\0'};
    if (peek(s) != (uint8_t)c) return bwi_scan_unexpected(s, expected);
    s->at++;
    return 0;
}

int bwi_scan_more(struct bwi_scan *s, char close, size_t seen, bool *ret_more) {
    skip_blanks(s);
    const uint8_t c = peek(s);
    if (c == (uint8_t)close) {
        s->at++;
        *ret_more = false;
        return 0;
    }
    if (seen > 0) {
        const char expected[] = {'\'', ',', '\'', ' ', 'o', 'r', ' ', '\'', close, '\'', '\0'};
        if (c != ',') return bwi_scan_unexpected(s, expected);
        s->at++;
    }
    *ret_more = true;
    return 0;
}

static int hex_digit(uint8_t c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* The four digits behind \u. */
static int read_unit(struct bwi_scan *s, uint32_t *ret) {
    uint32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        const int digit = hex_digit(peek(s));
        if (digit < 0) return bwi_scan_unexpected(s, "a hex digit");
        unit = unit << 4 | (uint32_t)digit;
        s->at++;
    }
    *ret = unit;
    return 0;
}

static void put_utf8(struct bwi_buf *b, uint32_t c) {
    if (c < 0x80) {
        bwi_buf_u8(b, (uint8_t)c);
        return;
    }
    if (c < 0x800) {
        bwi_buf_u8(b, (uint8_t)(0xc0 | c >> 6));
    } else if (c < 0x10000) {
        bwi_buf_u8(b, (uint8_t)(0xe0 | c >> 12));
        bwi_buf_u8(b, (uint8_t)(0x80 | (c >> 6 & 0x3f)));
    } else {
        bwi_buf_u8(b, (uint8_t)(0xf0 | c >> 18));
        bwi_buf_u8(b, (uint8_t)(0x80 | (c >> 12 & 0x3f)));
        bwi_buf_u8(b, (uint8_t)(0x80 | (c >> 6 & 0x3f)));
    }
    bwi_buf_u8(b, (uint8_t)(0x80 | (c & 0x3f)));
}

/* Behind \u: one unit, or two that make a pair. */
static int read_code_point(struct bwi_scan *s) {
    uint32_t high = 0, low = 0;
    int rc = read_unit(s, &high);
    if (rc < 0) return rc;
    if (high < 0xd800 || high > 0xdfff) {
        put_utf8(s->text, high);
        return 0;
    }
    if (high > 0xdbff) return bwi_scan_unexpected(s, "a high surrogate before a low one");
    if (peek(s) != '\\') return bwi_scan_unexpected(s, "the escape of a low surrogate");
    s->at++;
    if (peek(s) != 'u') return bwi_scan_unexpected(s, "the escape of a low surrogate");
    s->at++;
    rc = read_unit(s, &low);
    if (rc < 0) return rc;
    if (low < 0xdc00 || low > 0xdfff) return bwi_scan_unexpected(s, "a low surrogate behind a high one");
    put_utf8(s->text, 0x10000 + ((high - 0xd800) << 10 | (low - 0xdc00)));
    return 0;
}

static int read_escape(struct bwi_scan *s) {
    static const char letters[] = "\"\\/bfnrt";
    static const char meant[] = "\"\\/\b\f\n\r\t";
    const uint8_t c = peek(s);
    for (size_t i = 0; letters[i] != '\0'; i++) {
        if (c != (uint8_t)letters[i]) continue;
        bwi_buf_u8(s->text, (uint8_t)meant[i]);
        s->at++;
        return 0;
    }
    if (c != 'u') return bwi_scan_unexpected(s, "an escape");
    s->at++;
    return read_code_point(s);
}

int bwi_scan_string(struct bwi_scan *s, struct bwi_span *ret) {
    skip_blanks(s);
    if (peek(s) != '"') return bwi_scan_unexpected(s, "a string");
    const size_t opened = s->at++;
    const size_t start = s->text->len;
    for (;;) {
        size_t run = s->at;
        while (run < s->in.len && s->in.ptr[run] >= 0x20 && s->in.ptr[run] != '"' && s->in.ptr[run] != '\\') run++;
        bwi_buf_put(s->text, s->in.ptr + s->at, run - s->at);
        s->at = run;
        const uint8_t c = peek(s);
        if (c != '"' && c != '\\') return bwi_scan_unexpected(s, "the rest of a string");
        s->at++;
        if (c == '"') break;
        const int rc = read_escape(s);
        if (rc < 0) return rc;
    }
    const struct bwi_span text = bwi_span(s->text->ptr + start, s->text->len - start);
    if (!bwi_utf8_valid(text)) return refuse(s, opened, "UTF-8 without NUL in a string", NULL);
    *ret = text;
    return 0;
}

int bwi_scan_u64(struct bwi_scan *s, uint64_t *ret) {
    skip_blanks(s);
    const size_t start = s->at;
    while (peek(s) >= '0' && peek(s) <= '9') s->at++;
    if (bwi_dec_u64(bwi_span(s->in.ptr + start, s->at - start), ret)) return 0;
    if (s->at == start) return bwi_scan_unexpected(s, "a number without a sign");
    s->at = start;
    return bwi_scan_unexpected(s, "a number that fits 64 bits, without leading zeros");
}

int bwi_scan_i64(struct bwi_scan *s, int64_t *ret) {
    const bool negative = bwi_scan_peek(s) == '-';
    const size_t start = s->at;
    uint64_t magnitude = 0;
    s->at += negative;
    if (negative && (peek(s) < '0' || peek(s) > '9')) return bwi_scan_unexpected(s, "a digit behind the sign");
    const int rc = bwi_scan_u64(s, &magnitude);
    if (rc < 0) return rc;
    if (magnitude > (uint64_t)INT64_MAX + negative) {
        s->at = start;
        return bwi_scan_unexpected(s, "a number that fits 64 bits with its sign");
    }
    *ret = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    return 0;
}

int bwi_scan_word(struct bwi_scan *s, const char *word) {
    skip_blanks(s);
    const size_t bytes = strlen(word);
    if (bytes > s->in.len - s->at || memcmp(s->in.ptr + s->at, word, bytes) != 0) return bwi_scan_unexpected(s, word);
    s->at += bytes;
    return 0;
}

int bwi_scan_end(struct bwi_scan *s) {
    skip_blanks(s);
    return s->at == s->in.len ? 0 : bwi_scan_unexpected(s, "nothing but blanks behind it");
}
