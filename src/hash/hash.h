/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes: XXH3-128 finds damage in bulk data, SHA-256 names and chains metadata. Streaming states are caller-placed and
 * nothing allocates. */
#ifndef BWI_HASH_HASH_H
#define BWI_HASH_HASH_H

#include "base/span.h"

struct bwi_xxh {
    uint8_t b[16]; /* canonical (big-endian) form */
};
struct bwi_sha {
    uint8_t b[32];
};

struct bwi_xxh bwi_xxh_of(struct bwi_span data);
struct bwi_sha bwi_sha_of(struct bwi_span data);
bool bwi_xxh_eq(const struct bwi_xxh *a, const struct bwi_xxh *b);
bool bwi_sha_eq(const struct bwi_sha *a, const struct bwi_sha *b);
bool bwi_sha_is_zero(const struct bwi_sha *a);

#define BWI_SHA_HEX_BYTES 65
void bwi_sha_hex(const struct bwi_sha *s, char ret_text[BWI_SHA_HEX_BYTES]);
bool bwi_sha_parse(const char *hex64, size_t len, struct bwi_sha *ret);

/* Streaming. The state is opaque memory of its library's type. XXH3's has to lie on 64 bytes, which no allocator
 * promises: it lies where it fits in here, and is not to be moved. */
struct bwi_xxh_state {
    unsigned char opaque[704];
};
void bwi_xxh_init(struct bwi_xxh_state *s);
void bwi_xxh_update(struct bwi_xxh_state *s, const void *p, size_t n);
struct bwi_xxh bwi_xxh_final(const struct bwi_xxh_state *s);

struct bwi_sha_state {
    _Alignas(16) unsigned char opaque[128];
};
void bwi_sha_init(struct bwi_sha_state *s);
void bwi_sha_update(struct bwi_sha_state *s, const void *p, size_t n);
struct bwi_sha bwi_sha_final(struct bwi_sha_state *s);

#endif
