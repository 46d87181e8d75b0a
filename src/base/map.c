/* SPDX-License-Identifier: Apache-2.0 */
/* The map: open addressing with linear probing, at most three quarters full. The hash is SipHash-1-3 under a random
 * key, because the keys are names out of files that somebody else may have written; nothing that can be seen depends
 * on the key. */
#include "base/map.h"
#include "base/env.h"
#include "base/vec.h"
#include <string.h>

#define CAP_FIRST 16

static uint64_t rotl(uint64_t v, unsigned by) {
    return v << by | v >> (64 - by);
}

static void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[0] = rotl(v[0], 32);
    v[2] += v[3];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
}

static uint64_t hash_of(uint64_t seed, struct bwi_span key) {
    const uint64_t second = seed * UINT64_C(0x9e3779b97f4a7c15) + 1; /* the other half of the 128-bit key */
    uint64_t v[4] = {seed ^ UINT64_C(0x736f6d6570736575), second ^ UINT64_C(0x646f72616e646f6d),
                     seed ^ UINT64_C(0x6c7967656e657261), second ^ UINT64_C(0x7465646279746573)};
    size_t at = 0;
    for (; key.len - at >= 8; at += 8) {
        const uint64_t word = bwi_le64(key.ptr + at);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)key.len << 56;
    for (size_t i = 0; at + i < key.len; i++) last |= (uint64_t)key.ptr[at + i] << (8 * i);
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* The slot that holds the key or, when none does, the free one where it belongs. There is always a free one. */
static struct bwi_map_slot *find(const struct bwi_map *m, struct bwi_span key, uint64_t hash) {
    size_t at = (size_t)hash & (m->cap - 1);
    while (m->slots[at].key.ptr != NULL) {
        if (m->slots[at].hash == hash && bwi_span_eq(m->slots[at].key, key)) break;
        at = (at + 1) & (m->cap - 1);
    }
    return &m->slots[at];
}

static bool grow(struct bwi_map *m) {
    struct bwi_map next = {.cap = m->cap == 0 ? CAP_FIRST : m->cap * 2, .len = m->len, .seed = m->seed};
    if (next.cap < m->cap) return false;
    next.slots = bwi_calloc(next.cap, sizeof *next.slots);
    if (next.slots == NULL) return false;
    for (size_t i = 0; i < m->cap; i++) {
        if (m->slots[i].key.ptr != NULL) *find(&next, m->slots[i].key, m->slots[i].hash) = m->slots[i];
    }
    bwi_free(m->slots);
    *m = next;
    return true;
}

void bwi_map_fini(struct bwi_map *m) {
    if (m == NULL) return;
    bwi_free(m->slots);
    *m = (struct bwi_map){0};
}

/* A pointer of NULL marks a free slot, so an empty key without an address gets one. */
static struct bwi_span addressed(struct bwi_span key) {
    return key.ptr != NULL ? key : bwi_span("", 0);
}

bool bwi_map_put(struct bwi_map *m, struct bwi_span key, uint64_t value, uint64_t *ret_old, bool *ret_was) {
    key = addressed(key);
    if (m->cap == 0) {
        struct bwi_env *env = bwi_env_system();
        m->seed = env->random_u64(env);
        if (!grow(m)) return false;
    }
    const uint64_t hash = hash_of(m->seed, key);
    struct bwi_map_slot *slot = find(m, key, hash);
    if (slot->key.ptr != NULL) {
        if (ret_old != NULL) *ret_old = slot->value;
        if (ret_was != NULL) *ret_was = true;
        return true;
    }
    if (m->len >= m->cap / 4 * 3) {
        if (!grow(m)) return false;
        slot = find(m, key, hash);
    }
    *slot = (struct bwi_map_slot){key, value, hash};
    m->len++;
    if (ret_was != NULL) *ret_was = false;
    return true;
}

bool bwi_map_get(const struct bwi_map *m, struct bwi_span key, uint64_t *ret_value) {
    if (m->cap == 0) return false;
    key = addressed(key);
    const struct bwi_map_slot *slot = find(m, key, hash_of(m->seed, key));
    if (slot->key.ptr == NULL) return false;
    if (ret_value != NULL) *ret_value = slot->value;
    return true;
}
