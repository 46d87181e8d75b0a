/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share. Each states properties of what it reaches: whatever the bytes, no crash, no leak, and
 * memory in proportion to the input; what is accepted is canonical, so that encoding it gives the same bytes again.
 *
 * A target is one file, NAME_fuzz.c. It is built twice: with libFuzzer, for ./dev fuzz; and with replay.c, as a test
 * that runs the target's corpus and some thousands of mutations of it. */
#ifndef BW_FUZZ_H
#define BW_FUZZ_H

#include "base/span.h"
#include "hash/hash.h"
#include <breakwater/error.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The target. `data` has exactly `size` bytes, so that a read past its end is seen; they may be changed. */
void fuzz_one(uint8_t *data, size_t size);
/* Before the first input. A target that needs nothing leaves it out. */
void fuzz_init(void);
/* The most bytes that may be held at once for an input of this size; a target may have its own. What is held when
 * fuzz_one returns must be what was held before. */
size_t fuzz_memory_max(size_t size);

/* A broken property ends the process with a crash; the input is kept. */
#define fuzz_require(holds) fuzz_require_at((holds), #holds, __FILE__, __LINE__)
void fuzz_require_at(bool holds, const char *what, const char *file, int line);

/* What a failure always tells. */
#define fuzz_failed(err) fuzz_require((err).status < 0 && (err).message[0] != '\0')

/* Takes numbers from the front of the input; 0 when there are none left. */
struct fuzz_input {
    const uint8_t *at;
    size_t left;
};
uint64_t fuzz_take(struct fuzz_input *in, size_t bytes);
struct bwi_span fuzz_take_span(struct fuzz_input *in, size_t bytes); /* fewer if there are not so many */

/* A part of the input in memory of exactly its size. */
static inline uint8_t *fuzz_copy(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size != 0 ? size : 1);
    if (copy == NULL) abort();
    if (size != 0) memcpy(copy, data, size);
    return copy;
}

/* The bytes with a NUL behind them; freed by the caller. */
char *fuzz_text(const void *bytes, size_t n) __attribute__((returns_nonnull));

/* Objects of a newer minor version may hold what this release does not know, and so cannot write. */
static inline bool fuzz_newer(const uint8_t *data, size_t size) {
    static const char json[] = "\"version\":[1,0]";
    if (size > 0 && data[0] == '{') return memmem(data, size, json, sizeof json - 1) == NULL;
    return size < 12 || data[10] != 0 || data[11] != 0;
}

static inline void fuzz_same(struct bwi_buf *again, const uint8_t *data, size_t size) {
    fuzz_require(!again->failed);
    if (!fuzz_newer(data, size)) fuzz_require(again->len == size && memcmp(again->ptr, data, size) == 0);
    bwi_buf_fini(again);
}

/* Objects that end with their own SHA-256 would all be refused at the first byte that changes: makes the last 32 bytes
 * right, so that what is behind the seal is tried too. */
static inline void fuzz_seal_binary(uint8_t *data, size_t size) {
    if (size < 32) return;
    const struct bwi_sha sha = bwi_sha_of(bwi_span(data, size - 32));
    memcpy(data + size - 32, &sha, 32);
}

/* As above for JSON, whose last 66 bytes are 64 hex digits, a quote and a brace. */
static inline void fuzz_seal_json(uint8_t *data, size_t size) {
    char hex[BWI_SHA_HEX_BYTES];
    if (size < 66) return;
    const struct bwi_sha sha = bwi_sha_of(bwi_span(data, size - 66));
    bwi_sha_hex(&sha, hex);
    memcpy(data + size - 66, hex, 64);
}

#endif
