/* SPDX-License-Identifier: Apache-2.0 */
/* Byte spans, a growing buffer, and cursors that encode and decode little-endian records.
 *
 * Both the buffer and the reader are sticky: after a failed append (out of memory) or a read past the end every
 * further call does nothing (reads give 0), and one check at the end of a record tells. That keeps codecs straight. */
#ifndef BWI_BASE_SPAN_H
#define BWI_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bwi_span {
    const uint8_t *ptr;
    size_t len;
};

#define BWI_SPAN_NONE ((struct bwi_span){NULL, 0})

static inline struct bwi_span bwi_span(const void *ptr, size_t len) {
    return (struct bwi_span){(const uint8_t *)ptr, len};
}
struct bwi_span bwi_span_str(const char *s); /* without the NUL */
bool bwi_span_eq(struct bwi_span a, struct bwi_span b);
int bwi_span_cmp(struct bwi_span a, struct bwi_span b); /* bytewise, shorter first */

/* A growing buffer. Zero-initialised is empty and valid; free with bwi_buf_fini (idempotent). */
struct bwi_buf {
    uint8_t *ptr;
    size_t len;
    size_t cap;
    bool failed; /* an allocation failed; contents are void */
};

void bwi_buf_fini(struct bwi_buf *b);
void bwi_buf_reset(struct bwi_buf *b);                /* len = 0, keeps memory, clears failed */
bool bwi_buf_reserve(struct bwi_buf *b, size_t more); /* room for `more` further bytes */
void bwi_buf_put(struct bwi_buf *b, const void *src, size_t n);
void bwi_buf_zero(struct bwi_buf *b, size_t n);
void bwi_buf_u8(struct bwi_buf *b, uint8_t v);
void bwi_buf_u16(struct bwi_buf *b, uint16_t v);
void bwi_buf_u32(struct bwi_buf *b, uint32_t v);
void bwi_buf_u64(struct bwi_buf *b, uint64_t v);
void bwi_buf_str(struct bwi_buf *b, const char *s); /* bytes of s without NUL */
void bwi_buf_printf(struct bwi_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline struct bwi_span bwi_buf_span(const struct bwi_buf *b) {
    return bwi_span(b->ptr, b->len);
}

/* Unchecked little-endian access, for records whose bounds are known. */
uint16_t bwi_le16(const uint8_t *p);
uint32_t bwi_le32(const uint8_t *p);
uint64_t bwi_le64(const uint8_t *p);
void bwi_put_le16(uint8_t *p, uint16_t v);
void bwi_put_le32(uint8_t *p, uint32_t v);
void bwi_put_le64(uint8_t *p, uint64_t v);

/* A decoding cursor over a span that outlives it. */
struct bwi_reader {
    struct bwi_span in;
    size_t at;
    bool failed; /* something was read past the end */
};

static inline struct bwi_reader bwi_reader(struct bwi_span in) {
    return (struct bwi_reader){in, 0, false};
}
size_t bwi_reader_left(const struct bwi_reader *r);
uint8_t bwi_read_u8(struct bwi_reader *r);
uint16_t bwi_read_u16(struct bwi_reader *r);
uint32_t bwi_read_u32(struct bwi_reader *r);
uint64_t bwi_read_u64(struct bwi_reader *r);
struct bwi_span bwi_read_bytes(struct bwi_reader *r, size_t n); /* borrowed from the input */
void bwi_read_into(struct bwi_reader *r, void *dst, size_t n);  /* zero-fills on failure */

#endif
