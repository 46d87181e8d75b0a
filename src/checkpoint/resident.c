/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/resident.h"

#include "base/vec.h"
#include "io/loop.h"
#include <assert.h>
#include <string.h>

static void give_back(struct bwi_resident *k, size_t chunk) {
    const struct bwi_resident_buffer b = k->buffers[chunk];
    k->buffers[chunk] = (struct bwi_resident_buffer){0};
    if (!b.in_use) k->lender.bytes -= b.bytes;
    bwi_arena_release(k->arena, b.ptr, b.bytes);
}

/* The last one that is not being sent. */
static bool lend(struct bwi_arena_lender *lender) {
    struct bwi_resident *k = bwi_container_of(lender, struct bwi_resident, lender);
    while (k->last > 0 && k->buffers[k->last - 1].ptr == NULL) k->last--;
    for (size_t i = k->last; i-- > 0;) {
        if (k->buffers[i].ptr == NULL || k->buffers[i].in_use) continue;
        give_back(k, i);
        return true;
    }
    return false;
}

void bwi_resident_begin(struct bwi_resident *k, struct bwi_arena *arena, const struct bwi_plan *plan) {
    *k = (struct bwi_resident){.plan = plan, .buffers = bwi_calloc(plan->chunk_count, sizeof *k->buffers)};
    if (k->buffers == NULL) return;
    k->arena = arena;
    k->lender.lend = lend;
    bwi_arena_add_lender(arena, &k->lender);
}

void bwi_resident_end(struct bwi_resident *k) {
    if (k->arena == NULL) return;
    bwi_arena_remove_lender(k->arena, &k->lender);
    for (size_t i = 0; i < k->last; i++) {
        assert(!k->buffers[i].in_use);
        if (k->buffers[i].ptr != NULL) give_back(k, i);
    }
    bwi_free(k->buffers);
    *k = (struct bwi_resident){0};
}

bool bwi_resident_put(struct bwi_resident *k, size_t chunk, uint8_t *ptr, size_t bytes) {
    if (k == NULL || k->arena == NULL || bwi_arena_is_wanted(k->arena)) return false;
    assert(chunk < k->plan->chunk_count && k->buffers[chunk].ptr == NULL);
    k->buffers[chunk] = (struct bwi_resident_buffer){.ptr = ptr, .bytes = bytes};
    k->lender.bytes += bytes;
    if (chunk >= k->last) k->last = chunk + 1;
    return true;
}

/* The first chunk of a pack that begins at `offset` or behind it: chunks lie in the order of their offsets. */
static size_t first_from(const struct bwi_plan *p, size_t pack, uint64_t offset) {
    size_t low = p->packs[pack].first_chunk, high = low + p->packs[pack].chunks;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (p->chunks[middle].pack_offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t bwi_resident_find(const struct bwi_resident *k, size_t pack, uint64_t offset) {
    if (k == NULL || k->arena == NULL || k->spoilt || pack >= k->plan->pack_count) return SIZE_MAX;
    const struct bwi_pack_plan *p = &k->plan->packs[pack];
    for (size_t i = first_from(k->plan, pack, offset); i < p->first_chunk + p->chunks && i < k->last; i++)
        if (k->buffers[i].ptr != NULL) return i;
    return SIZE_MAX;
}

static bool is_zero(const uint8_t *p, size_t n) {
    return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0); /* each byte equals the one before */
}

bool bwi_resident_is_sound(const struct bwi_resident *k, size_t chunk) {
    const struct bwi_chunk *c = &k->plan->chunks[chunk];
    const uint8_t *bytes = k->buffers[chunk].ptr;
    size_t done = 0;
    for (size_t i = c->first_piece; i < c->first_piece + c->pieces; i++) {
        const struct bwi_piece *p = &k->plan->pieces[i];
        const size_t at = (size_t)(p->pack_offset - c->pack_offset);
        const struct bwi_xxh is = bwi_xxh_of(bwi_span(bytes + at, p->bytes));
        if (!is_zero(bytes + done, at - done) || !bwi_xxh_eq(&is, &k->plan->places[p->extent].stored)) return false;
        done = at + p->bytes;
    }
    return is_zero(bytes + done, c->bytes - done);
}

const uint8_t *bwi_resident_use(struct bwi_resident *k, size_t chunk) {
    assert(k->buffers[chunk].ptr != NULL && !k->buffers[chunk].in_use);
    k->buffers[chunk].in_use = true;
    k->lender.bytes -= k->buffers[chunk].bytes;
    return k->buffers[chunk].ptr;
}

void bwi_resident_drop(struct bwi_resident *k, size_t chunk) {
    assert(k->buffers[chunk].in_use);
    give_back(k, chunk);
}
