/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share. Each target states one property of one decoder: whatever the bytes, it neither crashes
 * nor leaks; and what it accepts is canonical, so that encoding it gives the same bytes again. */
#ifndef BW_FUZZ_H
#define BW_FUZZ_H

#include "base/span.h"
#include "hash/hash.h"
#include <breakwater/error.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A broken property ends the fuzzer with a crash that it reports and keeps the input of. */
static inline void fuzz_require(bool holds) {
    if (!holds) __builtin_trap();
}

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

/* A copy of the input in memory of exactly its size, so that a read past its end is seen. */
static inline uint8_t *fuzz_copy(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size != 0 ? size : 1);
    if (copy == NULL) abort();
    if (size != 0) memcpy(copy, data, size);
    return copy;
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
