/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pile.h"
#include "base/vec.h"
#include <stdint.h>

#define FIRST_BYTES 4000  /* few things are common */
#define BLOCK_BYTES 65000 /* below the size for which allocators map memory of its own */

struct bwi_pile_block {
    struct bwi_pile_block *next;
    size_t bytes, used;
    uint64_t data[]; /* for its alignment */
};

void bwi_pile_fini(struct bwi_pile *p) {
    if (p == NULL) return;
    for (struct bwi_pile_block *b = p->first, *next; b != NULL; b = next) {
        next = b->next;
        bwi_free(b);
    }
    *p = (struct bwi_pile){0};
}

static struct bwi_pile_block *new_block(size_t usual, size_t least) {
    const size_t bytes = usual > least ? usual : least;
    struct bwi_pile_block *b = bytes > SIZE_MAX - sizeof *b ? NULL : bwi_malloc(sizeof *b + bytes);
    if (b != NULL) *b = (struct bwi_pile_block){.bytes = bytes};
    return b;
}

/* The next block becomes the one that things are taken from: one that was left behind by rewinding, or a new one in
 * front of it if that is too small. */
static bool go_on(struct bwi_pile *p, size_t bytes) {
    struct bwi_pile_block **at = p->now == NULL ? &p->first : &p->now->next;
    struct bwi_pile_block *b = *at;
    if (b == NULL || b->bytes < bytes) {
        b = new_block(p->first == NULL ? FIRST_BYTES : BLOCK_BYTES, bytes);
        if (b == NULL) return false;
        b->next = *at;
        *at = b;
    }
    b->used = 0;
    p->now = b;
    return true;
}

void *bwi_pile_take(struct bwi_pile *p, size_t bytes) {
    if (bytes > SIZE_MAX - 7) return NULL;
    bytes = (bytes + 7) / 8 * 8;
    if ((p->now == NULL || p->now->bytes - p->now->used < bytes) && !go_on(p, bytes)) return NULL;
    void *taken = (uint8_t *)p->now->data + p->now->used;
    p->now->used += bytes;
    return taken;
}

void bwi_pile_rewind(struct bwi_pile *p, const void *to) {
    for (struct bwi_pile_block *b = p->first; b != NULL; b = b->next) {
        const uintptr_t begin = (uintptr_t)b->data, at = (uintptr_t)to;
        if (at < begin || at >= begin + b->used) continue;
        b->used = at - begin;
        p->now = b;
        return;
    }
}
