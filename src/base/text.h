/* SPDX-License-Identifier: Apache-2.0 */
/* Strings: hex, decimal, UTF-8 and names. Pure; nothing here allocates. */
#ifndef BWI_BASE_TEXT_H
#define BWI_BASE_TEXT_H

#include "base/span.h"

/* Writes 2 * n lower-case digits and a NUL. */
void bwi_hex_encode(const void *src, size_t n, char *ret_text);
/* Exactly 2 * n lower-case digits, else false. Does not look for a NUL. */
bool bwi_hex_decode(const char *text, size_t text_len, void *ret_bytes, size_t n);
/* Exactly `digits` lower-case hex digits of a number. */
bool bwi_hex_u64(const char *text, size_t digits, uint64_t *ret);

/* Canonical decimal: digits only, no leading zero but "0" itself, fits 64 bits. Consumes all of `text`. */
bool bwi_dec_u64(struct bwi_span text, uint64_t *ret);
/* Decimal of exactly `digits` digits, zero-padded. */
bool bwi_dec_padded_u64(const char *text, size_t digits, uint64_t *ret);

/* The first code point of `s` (U+0000 too) and its length in bytes; 0 when `s` is empty or does not start with valid
 * UTF-8. */
size_t bwi_utf8_next(struct bwi_span s, uint32_t *ret_code);
bool bwi_utf8_valid(struct bwi_span s); /* RFC 3629: no surrogates, no overlong forms; U+0000 is refused too */

/* [A-Za-z0-9][A-Za-z0-9._-]{0,127}: names of runs, launches, jobs and labels. */
bool bwi_name_valid(const char *s);
#define BWI_NAME_MAX (127 + 1) /* bytes without the NUL */

/* snprintf that tells whether all fitted. */
bool bwi_format(char *buf, size_t buf_bytes, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Whether a character can neither start a second line nor reorder the one that it stands in. Not so: C0, DEL, C1, the
 * line and paragraph separators, and the bidirectional overrides and isolates. */
bool bwi_utf8_harmless(uint32_t code);

/* A copy that is one line of valid UTF-8, cut at a character's boundary where it does not fit: for notes and reasons
 * that are stored. Characters that are not harmless and bytes that are no UTF-8 become '?'. */
void bwi_text_line(char *buf, size_t buf_bytes, const char *text);

/* The length of the longest beginning of at most `max` bytes that ends between characters. */
size_t bwi_text_fit(const char *text, size_t max);
/* A copy; of a text that does not fit, the words that do and " ...". A word that is longer than half of that is cut.
 * buf_bytes is at least 5. */
void bwi_text_words(char *buf, size_t buf_bytes, const char *text);

/* "1.5 GiB" and the like, for people. */
void bwi_text_bytes(uint64_t bytes, char *buf, size_t buf_bytes);

#endif
