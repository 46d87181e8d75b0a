/* SPDX-License-Identifier: Apache-2.0 */
/* A pull scanner for the JSON of a pack's header. The grammar of a header is fixed and four levels deep, so nothing
 * recurses and nothing is built that the caller did not ask for: memory is bounded by the text, whatever it says. */
#ifndef BWI_FORMAT_PACK_SCAN_H
#define BWI_FORMAT_PACK_SCAN_H

#include "base/span.h"
#include <breakwater/error.h>

struct bwi_scan {
    struct bwi_span in;
    size_t at;
    struct bwi_buf *text; /* strings are decoded into it; it has room for in.len bytes, so that it never moves */
    struct bw_error *err;
};

/* Skips blanks, then expects this character. */
int bwi_scan_take(struct bwi_scan *s, char c);
/* Before each element of a list: whether there is one. `seen` elements were read so far; takes the comma, or
 * `close`. */
int bwi_scan_more(struct bwi_scan *s, char close, size_t seen, bool *ret_more);
/* A string without U+0000, decoded; the span lies in s->text. */
int bwi_scan_string(struct bwi_scan *s, struct bwi_span *ret);
/* A number of digits alone that fits 64 bits. */
int bwi_scan_u64(struct bwi_scan *s, uint64_t *ret);
/* Nothing but blanks follows. */
int bwi_scan_end(struct bwi_scan *s);

#endif
