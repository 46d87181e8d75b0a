/* SPDX-License-Identifier: Apache-2.0 */
/* The hashes, over libxxhash and libcrypto. States are placed by the caller and used where they lie: no allocation, so
 * hashing cannot fail. */
#include "hash/hash.h"
#include "base/text.h"

/* For sizeof(XXH3_state_t): the state's layout is published for static placement, the functions stay the library's. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>
#ifdef BWI_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* the same functions by the same names, for the processor at hand: AVX2, AVX-512 */
#endif

/* The EVP interface, which replaces these three functions, allocates for every digest and can fail. This one does
 * neither; it is deprecated since OpenSSL 3.0 and still there. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <openssl/sha.h>

#include <string.h>

_Static_assert(sizeof(XXH3_state_t) + _Alignof(XXH3_state_t) <= sizeof(struct bwi_xxh_state),
               "the XXH3 state must fit wherever it begins");
_Static_assert(sizeof(SHA256_CTX) <= sizeof(struct bwi_sha_state), "the SHA-256 state must fit");
_Static_assert(_Alignof(SHA256_CTX) <= _Alignof(struct bwi_sha_state), "the SHA-256 state must be aligned");

static XXH3_state_t *xxh_of(const struct bwi_xxh_state *s) {
    const uintptr_t align = _Alignof(XXH3_state_t);
    return (XXH3_state_t *)(((uintptr_t)s->opaque + align - 1) & ~(align - 1)); /* const as the caller's is */
}

static struct bwi_xxh canonical(XXH128_hash_t hash) {
    struct bwi_xxh r;
    XXH128_canonical_t c;
    _Static_assert(sizeof c.digest == sizeof r.b, "128 bits");
    XXH128_canonicalFromHash(&c, hash);
    memcpy(r.b, c.digest, sizeof r.b);
    return r;
}

struct bwi_xxh bwi_xxh_of(struct bwi_span data) {
    return canonical(XXH3_128bits(data.len == 0 ? "" : (const void *)data.ptr, data.len));
}

bool bwi_xxh_eq(const struct bwi_xxh *a, const struct bwi_xxh *b) {
    return memcmp(a->b, b->b, sizeof a->b) == 0;
}

void bwi_xxh_init(struct bwi_xxh_state *s) {
    XXH3_INITSTATE(xxh_of(s)); /* the library reads the seed that was there before it resets */
    (void)XXH3_128bits_reset(xxh_of(s));
}

void bwi_xxh_update(struct bwi_xxh_state *s, const void *p, size_t n) {
    if (n > 0) (void)XXH3_128bits_update(xxh_of(s), p, n);
}

struct bwi_xxh bwi_xxh_final(const struct bwi_xxh_state *s) {
    return canonical(XXH3_128bits_digest(xxh_of(s)));
}

static SHA256_CTX *sha_of(struct bwi_sha_state *s) {
    return (void *)s->opaque;
}

struct bwi_sha bwi_sha_of(struct bwi_span data) {
    struct bwi_sha_state s;
    bwi_sha_init(&s);
    bwi_sha_update(&s, data.ptr, data.len);
    return bwi_sha_final(&s);
}

bool bwi_sha_eq(const struct bwi_sha *a, const struct bwi_sha *b) {
    return memcmp(a->b, b->b, sizeof a->b) == 0;
}

bool bwi_sha_is_zero(const struct bwi_sha *a) {
    uint8_t any = 0;
    for (size_t i = 0; i < sizeof a->b; i++) any |= a->b[i];
    return any == 0;
}

void bwi_sha_hex(const struct bwi_sha *s, char ret_text[BWI_SHA_HEX_BYTES]) {
    bwi_hex_encode(s->b, sizeof s->b, ret_text);
}

bool bwi_sha_parse(const char *hex64, size_t len, struct bwi_sha *ret) {
    return bwi_hex_decode(hex64, len, ret->b, sizeof ret->b);
}

void bwi_sha_init(struct bwi_sha_state *s) {
    (void)SHA256_Init(sha_of(s));
}

void bwi_sha_update(struct bwi_sha_state *s, const void *p, size_t n) {
    if (n > 0) (void)SHA256_Update(sha_of(s), p, n);
}

struct bwi_sha bwi_sha_final(struct bwi_sha_state *s) {
    struct bwi_sha r;
    (void)SHA256_Final(r.b, sha_of(s));
    return r;
}
