/* SPDX-License-Identifier: Apache-2.0 */
/* The check of what was read, on a worker, and the way to all places that want something of it. Where the store shows
 * the bytes while they arrive, they are hashed there and then, out of the processor's cache; else piece by piece, and
 * each piece is copied while it is at hand. What is copied before the last piece was hashed is not told to anybody
 * unless all of it was sound. */
#include "base/checked.h"
#include "checkpoint/restore_private.h"
#include <string.h>

struct bwi_extent bwi_restore_extent_at(const struct bwi_restore_job *j, size_t pair) {
    const struct bwi_group_meta *m = &j->batch->group->tier[j->tier].meta;
    const struct bwi_restore_pair *p = &j->batch->pairs[pair];
    return bwi_extent_of(&m->content, &m->placement, p->item, p->extent);
}

/* ---- one extent, as it comes ---- */

/* `at`: where the piece begins in what is read. In front of the extent and behind it lies something else. */
static void take(struct bwi_restore_job *j, uint64_t at, const uint8_t *piece, uint64_t n) {
    const uint64_t lead = j->extent.place->offset - j->from;
    const uint64_t skip = at < lead ? bwi_min_u64(lead - at, n) : 0;
    const uint64_t taken = bwi_min_u64(n - skip, j->extent.place->stored_bytes - j->hashed);
    bwi_xxh_update(&j->hash, piece + skip, (size_t)taken);
    if (j->straight != NULL && !j->into_caller && taken > 0) memcpy(j->straight + j->hashed, piece + skip, taken);
    j->hashed += taken;
}

static struct bwi_xxh hash_of(struct bwi_restore_job *j) {
    const struct bwi_store_op *op = &j->call.op;
    for (uint64_t at = op->looked; at < op->bytes; at += BWI_RESTORE_PIECE) {
        take(j, at, (const uint8_t *)op->buf + at, bwi_min_u64(op->bytes - at, BWI_RESTORE_PIECE));
    }
    return bwi_xxh_final(&j->hash);
}

/* ---- to their places ---- */

static size_t next_extent(const struct bwi_restore_job *j, size_t pair) {
    const struct bwi_restore_pair *pairs = j->batch->pairs;
    size_t i = pair + 1;
    while (i < j->first + j->count && pairs[i].extent == pairs[pair].extent) i++;
    return i;
}

uint8_t *bwi_restore_row(const struct bwi_restore_job *j, size_t pair, const struct bwi_extent *x) {
    const struct bwi_restore_work *w = j->c->w;
    const struct bwi_restore_pair *p = &j->batch->pairs[pair];
    const struct bwi_restore_hit *h = &w->hits[p->hit];
    const struct bwi_restore_want *want = &w->wants[h->want];
    if (x->place->codec != BWI_CODEC_RAW || next_extent(j, pair) > pair + 1) return NULL;
    return bwi_intersect_whole(h->box_offset, h->box_extent, p->item_offset, x->raw_bytes, want->offset, &want->to);
}

static void place(struct bwi_restore_job *j, size_t pair, const uint8_t *raw, uint64_t raw_bytes) {
    const struct bwi_restore_work *w = j->c->w;
    struct bwi_restore_pair *p = &j->batch->pairs[pair];
    const struct bwi_restore_hit *h = &w->hits[p->hit];
    const struct bwi_restore_want *x = &w->wants[h->want];
    p->copied = bwi_intersect_copy(h->box_offset, h->box_extent, raw, p->item_offset, raw_bytes, x->offset, &x->to);
}

/* The extent of `pair`, of whose stored bytes the hash is known. in_place: they are where they belong; else they are in
 * the buffer. */
static int settle(struct bwi_restore_job *j, size_t pair, const struct bwi_extent *x, const struct bwi_xxh *stored,
                  bool in_place) {
    const uint8_t *raw = NULL;
    const uint8_t *bytes = (const uint8_t *)j->call.op.buf + (x->place->offset - j->from);
    uint8_t *room = (uint8_t *)j->call.op.buf + j->call.op.room_bytes; /* behind all that was read, for a codec */
    const int rc = bwi_extent_settle(x, stored, bytes, room, &raw, j->why);
    if (rc != 0) return rc;
    j->stored_bytes += x->place->stored_bytes;
    j->raw_bytes += x->raw_bytes;
    if (in_place)
        j->batch->pairs[pair].copied = x->raw_bytes;
    else
        for (size_t i = pair; i < next_extent(j, pair); i++) place(j, i, raw, x->raw_bytes);
    return 0;
}

/* ---- a run ---- */

static bool is_run_done(const struct bwi_restore_job *j) {
    return j->at == j->first + j->count;
}

/* Piece by piece to where they belong, as far as that is a row; all else, and what lies between them, to the buffer. */
uint8_t *bwi_restore_aim(struct bwi_store_op *op, size_t at, size_t *bytes) {
    struct bwi_restore_job *j = bwi_container_of(op, struct bwi_restore_job, call.op);
    uint8_t *const buffered = (uint8_t *)op->buf + at;
    j->aimed = true;
    if (is_run_done(j)) return buffered;
    const struct bwi_extent x = bwi_restore_extent_at(j, j->at);
    const uint64_t begin = x.place->offset - j->from, end = begin + x.place->stored_bytes;
    if (at >= end) return buffered; /* behind one that was not sound */
    *bytes = bwi_min_u64(*bytes, (at < begin ? begin : end) - at);
    uint8_t *row = at < begin ? NULL : bwi_restore_row(j, j->at, &x);
    return row == NULL ? buffered : row + (at - begin);
}

/* Side by side, of which so many bytes have come: each is small, so that it is still in the cache when it is hashed,
 * and copied if it came to the buffer. */
static void check_run(struct bwi_restore_job *j, uint64_t came) {
    while (!is_run_done(j) && j->verdict == 0) {
        const struct bwi_extent x = bwi_restore_extent_at(j, j->at);
        const uint64_t begin = x.place->offset - j->from;
        if (begin + x.place->stored_bytes > came) return;
        const uint8_t *row = j->aimed ? bwi_restore_row(j, j->at, &x) : NULL;
        const uint8_t *bytes = row == NULL ? (const uint8_t *)j->call.op.buf + begin : row;
        const struct bwi_xxh stored = bwi_xxh_of(bwi_span(bytes, (size_t)x.place->stored_bytes));
        j->verdict = settle(j, j->at, &x, &stored, row != NULL);
        j->at = next_extent(j, j->at);
    }
}

/* ---- the whole ---- */

void bwi_restore_check_begin(struct bwi_restore_job *j) {
    bwi_xxh_init(&j->hash);
    j->hashed = j->stored_bytes = j->raw_bytes = 0;
    j->at = j->first;
    j->aimed = false;
    j->verdict = 0;
}

void bwi_restore_look(struct bwi_store_op *op, const uint8_t *piece, size_t bytes) {
    struct bwi_restore_job *j = bwi_container_of(op, struct bwi_restore_job, call.op);
    if (j->several)
        check_run(j, op->looked + bytes);
    else
        take(j, op->looked, piece, bytes);
}

void bwi_restore_check(struct bwi_restore_job *j) {
    if (j->several) {
        check_run(j, j->call.op.bytes);
        return;
    }
    const struct bwi_xxh stored = hash_of(j);
    j->verdict = settle(j, j->first, &j->extent, &stored, j->straight != NULL);
}
