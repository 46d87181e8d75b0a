/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a checkpoint back and compares every bit with what the try that made it has saved. */
#include "system.h"

#include "base/text.h"
#include "base/vec.h"
#include "test.h"
#include <inttypes.h>
#include <string.h>

struct compare {
    struct part *part;
    struct bwi_restore *restore;
    struct bwi_id id;
    uint32_t world;
    struct state got;
    struct bw_slice slices[2];
    uint64_t shape[2], cols;
    struct bwi_restore_call read, blob;
    uint32_t rank; /* whose blob is read */
    bool reads_blobs;
};

static uint32_t mixed(uint64_t a, uint64_t b, uint64_t c) {
    uint64_t x = a * UINT64_C(0x9e3779b97f4a7c15) ^ b * UINT64_C(0xd1342543de82ef95) ^ c;
    x ^= x >> 31;
    return (uint32_t)(x * UINT64_C(0xbf58476d1ce4e5b9) >> 32);
}

/* The attempt and the try make other bits of the same step. */
void state_fill(struct state *s, const struct bwi_id *id, uint32_t rank) {
    const uint64_t key = id->step * 64 + id->tri + ((uint64_t)id->attempt << 20) + ((uint64_t)id->nonce << 32);
    for (unsigned i = 0; i < ROWS; i++)
        for (unsigned k = 0; k < COLS; k++) s->sharded[i][k] = mixed(key, i, k);
    for (unsigned k = 0; k < COLS; k++) s->same[k] = mixed(key, ROWS, k);
    memset(s->blob, 0, sizeof s->blob);
    bwi_format(s->blob, sizeof s->blob, "rng-%08x", mixed(key, ROWS + 1, rank));
}

static void read_blob(struct compare *c) {
    c->blob = (struct bwi_restore_call){.r = c->restore,
                                        .what = BWI_RESTORE_BLOB,
                                        .name = "rng",
                                        .rank = c->rank,
                                        .buf = c->got.blob,
                                        .buf_bytes = sizeof c->got.blob};
    memset(c->got.blob, 0, sizeof c->got.blob);
    bwi_restore_call_start(&c->blob, c->part->loop, NULL);
}

struct compare *compare_new(struct system *s, struct part *p, const struct bwi_restore_target *t) {
    struct bw_error err = BW_ERROR_INIT;
    struct compare *c = bwi_calloc(1, sizeof *c);
    (void)s;
    assert_non_null(c);
    c->part = p;
    c->id = t->id;
    c->world = t->world;
    assert_ok(bwi_restore_new(&p->ctx, t, &c->restore, &err), &err);
    c->shape[0] = ROWS;
    c->shape[1] = c->cols = COLS;
    for (int i = 0; i < 2; i++) {
        c->slices[i] = (struct bw_slice)BW_SLICE_INIT;
        c->slices[i].dtype = BW_U32;
    }
    c->slices[0].name = "sharded";
    c->slices[0].dims = 2;
    c->slices[0].shape = c->shape;
    c->slices[0].data = c->got.sharded;
    c->slices[1].name = "same";
    c->slices[1].dims = 1;
    c->slices[1].shape = &c->cols;
    c->slices[1].data = c->got.same;
    c->read =
        (struct bwi_restore_call){.r = c->restore, .what = BWI_RESTORE_READ, .slices = c->slices, .slice_count = 2};
    bwi_restore_call_start(&c->read, p->loop, NULL);
    return c;
}

static void compare_tensors(struct system *s, const struct compare *c, const struct state *want) {
    if (memcmp(want->sharded, c->got.sharded, sizeof want->sharded) != 0 ||
        memcmp(want->same, c->got.same, sizeof want->same) != 0)
        violated(s, "a restore of step %" PRIu64 " gave other bits than were saved", c->id.step);
}

static bool end(struct system *s, struct compare *c, const struct bw_error *e, struct bw_error *ret) {
    (void)s;
    *ret = *e;
    bwi_restore_free(c->restore);
    bwi_free(c);
    return true;
}

bool compare_has_ended(struct system *s, struct compare *c, struct bw_error *ret) {
    struct state want;
    if (c->read.task.running || (c->reads_blobs && c->blob.task.running)) return false;
    if (c->read.task.error.status != 0) return end(s, c, &c->read.task.error, ret);
    if (c->reads_blobs && c->blob.task.error.status != 0) return end(s, c, &c->blob.task.error, ret);
    state_fill(&want, &c->id, c->rank);
    if (!c->reads_blobs) {
        compare_tensors(s, c, &want);
        c->reads_blobs = true;
        if (bwi_restore_manifest(c->restore) != NULL) c->world = bwi_restore_manifest(c->restore)->world;
    } else {
        if (memcmp(want.blob, c->got.blob, sizeof want.blob) != 0)
            violated(s, "the blob of rank %u of step %" PRIu64 " is not the one that was saved", c->rank, c->id.step);
        c->rank++;
    }
    if (c->rank < c->world) {
        read_blob(c);
        return false;
    }
    s->restored++;
    return end(s, c, &c->read.task.error, ret);
}
