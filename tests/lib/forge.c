/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes are found by their value: whatever holds the old one, in binary, in hex or in its key, gets the new one. */
#include "forge.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEX_BYTES = 64, SEAL_BYTES = 66, SUMMARY_SHAS = 80, SUMMARY_SIZES = 176, PLACES_AT = 72, INDEX_BLOCKS_AT = 48 };

/* --- objects ---- */

static void *sure(void *p) {
    if (p == NULL) abort();
    return p;
}

static void make_room(struct forge_object *o, size_t bytes) {
    if (bytes <= o->cap) return;
    o->cap = bytes + 256;
    o->bytes = sure(realloc(o->bytes, o->cap));
}

static bool is_kind(const struct forge_object *o, const char *part) {
    return strstr(o->key, part) != NULL;
}

static size_t index_head_bytes(const struct forge_object *o);

/* What others call its hash: of an index it is the root. */
static struct bwi_sha name_of(const struct forge_object *o) {
    return bwi_sha_of(bwi_span(o->bytes, is_kind(o, "/index.") ? index_head_bytes(o) : o->len));
}

struct forge_object *forge_add(struct forge *f, const char *key, const void *bytes, size_t n) {
    if (f->count == f->cap) {
        f->cap = f->cap * 2 + 64;
        f->objects = sure(realloc(f->objects, f->cap * sizeof *f->objects));
    }
    struct forge_object *o = &f->objects[f->count++];
    *o = (struct forge_object){.len = n};
    (void)snprintf(o->key, sizeof o->key, "%s", key);
    make_room(o, n + 1);
    if (n > 0) memcpy(o->bytes, bytes, n);
    o->sha = name_of(o);
    return o;
}

void forge_fini(struct forge *f) {
    for (size_t i = 0; i < f->count; i++) free(f->objects[i].bytes);
    free(f->objects);
    *f = (struct forge){0};
}

struct forge_object *forge_find(const struct forge *f, const char *part) {
    for (size_t i = 0; i < f->count; i++)
        if (!f->objects[i].gone && is_kind(&f->objects[i], part)) return &f->objects[i];
    return NULL;
}

void forge_put(struct forge_object *o, size_t at, const void *bytes, size_t n) {
    if (at > o->len) at = o->len;
    memcpy(o->bytes + at, bytes, n < o->len - at ? n : o->len - at);
}

void forge_splice(struct forge_object *o, size_t at, size_t gone, const void *bytes, size_t n) {
    if (at > o->len) at = o->len;
    if (gone > o->len - at) gone = o->len - at;
    make_room(o, o->len - gone + n);
    memmove(o->bytes + at + n, o->bytes + at + gone, o->len - at - gone);
    if (n > 0) memcpy(o->bytes + at, bytes, n);
    o->len += n - gone;
}

bool forge_replace(struct forge_object *o, const char *from, const char *to) {
    const uint8_t *at = memmem(o->bytes, o->len, from, strlen(from));
    if (at != NULL) forge_splice(o, (size_t)(at - o->bytes), strlen(from), to, strlen(to));
    return at != NULL;
}

/* --- numbers ---- */

static uint64_t number(const struct forge_object *o, size_t at, size_t bytes) {
    uint64_t v = 0;
    for (size_t i = 0; i < bytes && at + i < o->len; i++) v |= (uint64_t)o->bytes[at + i] << 8 * i;
    return v;
}

static void put_number(struct forge_object *o, size_t at, uint64_t v) {
    uint8_t bytes[8];
    for (size_t i = 0; i < 8; i++) bytes[i] = (uint8_t)(v >> 8 * i);
    forge_put(o, at, bytes, sizeof bytes);
}

/* The decimal behind `"<hash>",` of a manifest's row. */
static void put_row_bytes(struct forge_object *o, const char *hash, uint64_t v) {
    char text[24];
    const uint8_t *found = memmem(o->bytes, o->len, hash, HEX_BYTES);
    if (found == NULL) return;
    const size_t at = (size_t)(found - o->bytes) + HEX_BYTES + 2;
    size_t digits = 0;
    while (at + digits < o->len && o->bytes[at + digits] >= '0' && o->bytes[at + digits] <= '9') digits++;
    if (digits == 0) return;
    const int n = snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    forge_splice(o, at, digits, text, (size_t)n);
}

/* --- a hash that has become another ---- */

static void replace_all(struct forge_object *o, const void *from, const void *to, size_t n) {
    for (size_t at = 0; at + n <= o->len;) {
        uint8_t *found = memmem(o->bytes + at, o->len - at, from, n);
        if (found == NULL) return;
        memcpy(found, to, n);
        at = (size_t)(found - o->bytes) + n;
    }
}

/* The digits that stand in its own key. */
static void rename_object(struct forge_object *o, const char *from, const char *to) {
    static const size_t lengths[] = {32, 16};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char *at = memmem(o->key, strlen(o->key), from, lengths[i]);
        if (at == NULL) continue;
        memcpy(at, to, lengths[i]);
        return;
    }
}

static void put_sizes(struct forge_object *o, const struct forge_object *of, const char *hash) {
    if (is_kind(o, "/manifest.")) put_row_bytes(o, hash, of->len);
    if (!is_kind(o, "/groups/")) return;
    for (size_t i = 0; i < 3; i++)
        if (SUMMARY_SHAS + 32 * (i + 1) <= o->len && memcmp(o->bytes + SUMMARY_SHAS + 32 * i, &of->sha, 32) == 0)
            put_number(o, SUMMARY_SIZES + 8 * i, of->len);
}

/* Where the id of its checkpoint stands in a key; NULL: it is of none. */
static const char *checkpoint_of(const struct forge_object *o) {
    const char *at = strstr(o->key, "/checkpoints/");
    if (at != NULL) return at + strlen("/checkpoints/");
    at = strstr(o->key, "/data/");
    return at != NULL ? at + strlen("/data/00/") : NULL;
}

/* Objects of two checkpoints may have the same hash, and then are two all the same. */
static bool may_name(const struct forge_object *other, const struct forge_object *o) {
    const char *a = checkpoint_of(o), *b = checkpoint_of(other);
    return a == NULL || b == NULL || strncmp(a, b, strcspn(a, "/") + 1) == 0;
}

static void tell_others(struct forge *f, struct forge_object *o) {
    char from[BWI_SHA_HEX_BYTES], to[BWI_SHA_HEX_BYTES];
    const struct bwi_sha old = o->sha;
    o->sha = name_of(o);
    if (bwi_sha_eq(&old, &o->sha)) return;
    bwi_sha_hex(&old, from);
    bwi_sha_hex(&o->sha, to);
    rename_object(o, from, to);
    for (size_t i = 0; i < f->count; i++) {
        struct forge_object *other = &f->objects[i];
        if (other == o || is_kind(other, ".safetensors") || !may_name(other, o)) continue;
        replace_all(other, &old, &o->sha, sizeof old);
        replace_all(other, from, to, HEX_BYTES);
        put_sizes(other, o, to);
    }
}

/* --- what an object says about bytes elsewhere, or about its own ---- */

static void seal(struct forge_object *o) {
    if (is_kind(o, "/groups/") && o->len >= 32) {
        const struct bwi_sha sha = bwi_sha_of(bwi_span(o->bytes, o->len - 32));
        memcpy(o->bytes + o->len - 32, &sha, 32);
    } else if (o->len >= SEAL_BYTES && o->bytes[0] == '{' && !is_kind(o, "/manifest.")) {
        char hex[BWI_SHA_HEX_BYTES];
        const struct bwi_sha sha = bwi_sha_of(bwi_span(o->bytes, o->len - SEAL_BYTES));
        bwi_sha_hex(&sha, hex);
        memcpy(o->bytes + o->len - SEAL_BYTES, hex, HEX_BYTES);
    }
}

/* The end of the references to blocks; makes nothing right. */
static size_t index_head_bytes(const struct forge_object *o) {
    size_t at = INDEX_BLOCKS_AT;
    for (uint64_t n = number(o, 16, 4); n > 0 && at + 52 <= o->len; n--) at += 52 + (size_t)number(o, at + 48, 4);
    return at < o->len ? at : o->len;
}

static void mend_blocks(struct forge_object *o) {
    const size_t head = index_head_bytes(o);
    for (size_t at = INDEX_BLOCKS_AT; at + 52 <= head; at += 52 + (size_t)number(o, at + 48, 4)) {
        const uint64_t offset = number(o, at, 8), bytes = number(o, at + 8, 4);
        if (offset > o->len || bytes > o->len - offset) continue;
        const struct bwi_sha sha = bwi_sha_of(bwi_span(o->bytes + offset, (size_t)bytes));
        memcpy(o->bytes + at + 16, &sha, 32);
    }
}

/* 16 bytes at `at`, and wherever the content has the same, become the hash of [offset, offset + n) of the pack. */
static void mend_xxh(struct forge_object *o, size_t at, struct forge_object *content, const struct forge_object *pack,
                     uint64_t offset, uint64_t n) {
    if (at + 16 > o->len || pack == NULL || offset > pack->len || n > pack->len - offset) return;
    const struct bwi_xxh hash = bwi_xxh_of(bwi_span(pack->bytes + offset, (size_t)n));
    if (memcmp(o->bytes + at, &hash, 16) == 0) return;
    if (content != NULL) replace_all(content, o->bytes + at, &hash, 16);
    memcpy(o->bytes + at, &hash, 16);
}

static struct forge_object *content_of(struct forge *f, const struct forge_object *placement) {
    char key[sizeof placement->key];
    (void)snprintf(key, sizeof key, "%s", placement->key);
    char *at = strstr(key, "/placement-");
    if (at != NULL) memcpy(at, "/content", sizeof "/content");
    return forge_find(f, key);
}

static void mend_placement(struct forge *f, struct forge_object *o) {
    enum { PACKS = 16 };
    const struct forge_object *packs[PACKS] = {0};
    struct forge_object *content = content_of(f, o);
    size_t at = PLACES_AT;
    for (uint64_t i = 0, n = number(o, 56, 4); i < n && i < PACKS && at + 34 <= o->len; i++) {
        char key[512] = "";
        const size_t key_bytes = (size_t)number(o, at + 32, 2);
        if (key_bytes < sizeof key && key_bytes <= o->len - at - 34) memcpy(key, o->bytes + at + 34, key_bytes);
        packs[i] = key[0] != '\0' ? forge_find(f, key) : NULL;
        mend_xxh(o, at + 16, NULL, packs[i], 0, number(o, at + 8, 8));
        at += 34 + key_bytes;
    }
    for (uint64_t n = number(o, 64, 8); n > 0 && at + 40 <= o->len; n--, at += 40) {
        const uint64_t pack = number(o, at, 4);
        if (pack < PACKS) mend_xxh(o, at + 24, content, packs[pack], number(o, at + 8, 8), number(o, at + 16, 8));
    }
}

/* --- all of it ---- */

void forge_mend(struct forge *f) {
    static const char *const order[] = {"/layouts/", "/placement-", "/content",   "/placement-",
                                        "/groups/",  "/index.",     "/manifest.", "/history/"};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
        for (size_t i = 0; i < f->count; i++) {
            struct forge_object *o = &f->objects[i];
            if (o->gone || !is_kind(o, order[k])) continue;
            if (k == 1) { /* before the content: of its extents */
                mend_placement(f, o);
                continue;
            }
            if (is_kind(o, "/index.")) mend_blocks(o);
            seal(o);
            tell_others(f, o);
        }
    }
    for (size_t i = 0; i < f->count; i++) seal(&f->objects[i]);
}
