/* SPDX-License-Identifier: Apache-2.0 */
/* Text of others: UTF-8, one line of it, numbers, names; and messages that quote it.
 * Reaches src/base/text.c src/base/error.c */
#include "base/error.h"
#include "base/text.h"
#include "fuzz.h"
#include <stdio.h>

static void must_be_a_line(const char *text, size_t buf_bytes) {
    const size_t n = strlen(text);
    fuzz_require(n < buf_bytes && bwi_utf8_valid(bwi_span(text, n)));
    for (size_t at = 0; at < n;) {
        uint32_t code = 0;
        const size_t one = bwi_utf8_next(bwi_span(text + at, n - at), &code);
        fuzz_require(one > 0 && bwi_utf8_harmless(code));
        at += one;
    }
}

/* Valid is what is valid character by character, and without U+0000. */
static void read_utf8(const uint8_t *data, size_t size) {
    bool sound = true;
    for (size_t at = 0; at < size && sound;) {
        uint32_t code = 0;
        const size_t one = bwi_utf8_next(bwi_span(data + at, size - at), &code);
        fuzz_require(one <= 4 && one <= size - at && code <= 0x10ffff);
        sound = one > 0 && code != 0;
        at += one;
    }
    fuzz_require(bwi_utf8_valid(bwi_span(data, size)) == sound);
}

static void read_numbers(const uint8_t *data, size_t size) {
    char text[32];
    uint8_t bytes[16];
    uint64_t n;
    if (bwi_dec_u64(bwi_span(data, size), &n)) {
        fuzz_require(snprintf(text, sizeof text, "%llu", (unsigned long long)n) == (int)size);
        fuzz_require(memcmp(text, data, size) == 0);
    }
    if (size >= 20 && bwi_dec_padded_u64((const char *)data, 20, &n)) {
        (void)snprintf(text, sizeof text, "%020llu", (unsigned long long)n);
        fuzz_require(memcmp(text, data, 20) == 0);
    }
    if (size >= 16 && bwi_hex_u64((const char *)data, 16, &n)) {
        (void)snprintf(text, sizeof text, "%016llx", (unsigned long long)n);
        fuzz_require(memcmp(text, data, 16) == 0);
    }
    if (bwi_hex_decode((const char *)data, size, bytes, size / 2 < 15 ? size / 2 : 15)) {
        bwi_hex_encode(bytes, size / 2, text);
        fuzz_require(memcmp(text, data, size) == 0);
    }
}

static void quote(const char *text, size_t size) {
    struct bw_error err = BW_ERROR_INIT;
    char line[64], full[2 * BW_ERROR_MESSAGE_BYTES];
    bwi_text_line(line, sizeof line, text);
    must_be_a_line(line, sizeof line);
    (void)bwi_error_set(&err, BW_E_FORMAT, "object \"%s\": found \"%.9s\"", text, text);
    must_be_a_line(err.message, sizeof err.message);
    (void)bwi_error_wrap(&err, "%.300s", text);
    must_be_a_line(err.message, sizeof err.message);
    (void)bw_error_format(&err, full, sizeof full);
    struct bw_error os = BW_ERROR_INIT;
    (void)bwi_error_errno(&os, (int)size, "%s", text);
    must_be_a_line(os.message, sizeof os.message);
    if (bwi_name_valid(text)) fuzz_require(strlen(text) <= BWI_NAME_MAX && strpbrk(text, "/\\ \n") == NULL);
}

void fuzz_one(uint8_t *data, size_t size) {
    read_utf8(data, size);
    read_numbers(data, size);
    char *text = fuzz_text(data, size);
    quote(text, size);
    free(text);
}
