/* SPDX-License-Identifier: Apache-2.0 */
/* A pull scanner for JSON (RFC 8259, strict; integers only): the caller asks for what it expects. Nothing recurses and
 * nothing is built that was not asked for: memory is bounded by the text, whatever it says, and there before it is
 * read, so that what is malformed and what there is no memory for cannot be taken for each other. */
#ifndef BWI_FORMAT_JSON_SCAN_H
#define BWI_FORMAT_JSON_SCAN_H

#include "base/span.h"
#include <breakwater/error.h>

struct bwi_scan {
    struct bwi_span in;
    size_t at;
    struct bwi_buf *text; /* strings are decoded into it; it has room for in.len bytes, so that it never moves */
    struct bw_error *err;
    const char *what; /* for messages: what is read */
    size_t before;    /* for offsets in messages: so many bytes stand before `in` */
};

/* The byte that comes next behind blanks; 0 at the end (a NUL byte is never right in JSON). */
uint8_t bwi_scan_peek(struct bwi_scan *s);
/* BW_E_FORMAT, with what stands here in the place of what was expected. */
int bwi_scan_unexpected(const struct bwi_scan *s, const char *expected);

/* Skips blanks, then expects this character. */
int bwi_scan_take(struct bwi_scan *s, char c);
/* Before each element of a list: whether there is one. `seen` elements were read so far; takes the comma, or
 * `close`. */
int bwi_scan_more(struct bwi_scan *s, char close, size_t seen, bool *ret_more);
/* A string without U+0000, decoded; the span lies in s->text. */
int bwi_scan_string(struct bwi_scan *s, struct bwi_span *ret);
/* A number of digits alone that fits 64 bits. */
int bwi_scan_u64(struct bwi_scan *s, uint64_t *ret);
/* An integer of 64 bits with its sign; -0 is 0. */
int bwi_scan_i64(struct bwi_scan *s, int64_t *ret);
/* These letters: true, false or null. */
int bwi_scan_word(struct bwi_scan *s, const char *word);
/* Nothing but blanks follows. */
int bwi_scan_end(struct bwi_scan *s);

#endif
