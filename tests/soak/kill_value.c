/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that tell where they belong. */
#include "kill_value.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum part { PART_SPREAD, PART_OWN, PART_SAME, PART_BLOB };

struct place {
    uint64_t seed, step;
    unsigned launch, rank;
    enum part part;
};

static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t word_at(const struct place *p, uint64_t i) {
    const uint64_t where = ((p->launch * KILL_RANKS + p->rank) * UINT64_C(4) + p->part) * UINT64_C(1000003) + i;
    return mix(mix(p->seed + p->step * UINT64_C(0x9e3779b97f4a7c15)) ^ where * UINT64_C(0xd1342543de82ef95));
}

/* Whole words only. */
static void fill(uint8_t *to, size_t bytes, const struct place *p) {
    for (size_t i = 0; i < bytes / 8; i++) {
        const uint64_t w = word_at(p, i);
        memcpy(to + i * 8, &w, 8);
    }
}

void kill_state_fill(struct kill_state *s, const struct kill_account *a, unsigned launch, uint64_t step,
                     unsigned rank) {
    struct place p = {a->seed, step, launch, rank, PART_SPREAD};
    fill(s->spread + rank * KILL_SHARE, KILL_SHARE, &p);
    p.part = PART_OWN;
    fill(s->own, KILL_OWN, &p);
    p.part = PART_BLOB;
    fill(s->blob, KILL_BLOB, &p);
    p.part = PART_SAME;
    p.rank = 0;
    fill(s->same, KILL_OWN, &p);
}

static void own_name(unsigned rank, char ret[16]) {
    (void)snprintf(ret, 16, "own.%u", rank);
}

int kill_state_describe(const struct kill_state *s, struct bw_save *v, unsigned rank, struct bw_error *err) {
    const uint64_t shape = KILL_RANKS * KILL_SHARE, offset = rank * KILL_SHARE, extent = KILL_SHARE;
    char name[16];
    struct bw_tensor spread = BW_TENSOR_OF("spread", BW_U8, s->spread + offset, shape);
    struct bw_tensor same = BW_TENSOR_OF("same", BW_F32, s->same, KILL_OWN / 4);
    own_name(rank, name);
    spread.offset = &offset;
    spread.extent = &extent;
    same.replica_count = KILL_RANKS;
    same.replica_index = rank;
    int rc = bw_save_tensor(v, &spread, err);
    if (rc == 0) rc = bw_save_tensor(v, &same, err);
    if (rc == 0) rc = bw_save_tensor(v, &BW_TENSOR_OF(name, BW_I64, s->own, KILL_OWN / 8), err);
    if (rc == 0) rc = bw_save_blob(v, "state", s->blob, KILL_BLOB, err);
    return rc;
}

/* --- comparing ---- */

struct comparison {
    struct kill_account *a;
    const char *id;
    struct kill_state want, got;
};

static void compare(struct comparison *c, const char *what, const uint8_t *got, const uint8_t *want, size_t bytes) {
    size_t at = 0;
    while (at < bytes && got[at] == want[at]) at++;
    if (at < bytes) kill_violated(c->a, "%s of %s differs at byte %zu of %zu", what, c->id, at, bytes);
}

static void read_tensors(struct comparison *c, struct bw_restore *r, unsigned rank) {
    struct bw_error err = BW_ERROR_INIT;
    char name[16];
    own_name(rank, name);
    const struct bw_slice slices[] = {
        BW_SLICE_OF("spread", BW_U8, c->got.spread, KILL_RANKS * KILL_SHARE),
        BW_SLICE_OF("same", BW_F32, c->got.same, KILL_OWN / 4),
        BW_SLICE_OF(name, BW_I64, c->got.own, KILL_OWN / 8),
    };
    size_t got = 0;
    int rc = bw_restore_read(r, slices, 3, &err);
    if (rc == 0) rc = bw_restore_blob(r, rank, "state", c->got.blob, KILL_BLOB, &got, &err);
    if (rc != 0)
        kill_violated(c->a, "%s cannot be read: %s", c->id, err.message);
    else if (got != KILL_BLOB)
        kill_violated(c->a, "the blob of rank %u of %s has %zu bytes", rank, c->id, got);
}

void kill_state_compare(struct kill_account *a, struct bw_restore *r, const char *id) {
    struct comparison c = {.a = a, .id = id};
    uint64_t step = 0;
    uint32_t attempt = 0;
    if (sscanf(id, "%" SCNu64 ".%" SCNu32, &step, &attempt) != 2) {
        kill_violated(a, "\"%s\" is no id of a checkpoint", id);
        return;
    }
    const struct kill_launch *l = kill_launch_of(a, attempt);
    if (l == NULL) {
        kill_violated(a, "%s is of an attempt that nobody opened", id);
        return;
    }
    for (unsigned rank = 0; rank < KILL_RANKS; rank++)
        kill_state_fill(&c.want, a, (unsigned)(l - a->launch), step, rank);
    for (unsigned rank = 0; rank < KILL_RANKS; rank++) {
        kill_state_fill(&c.want, a, (unsigned)(l - a->launch), step, rank);
        memset(&c.got, 0, sizeof c.got);
        read_tensors(&c, r, rank);
        compare(&c, "the spread tensor", c.got.spread, c.want.spread, sizeof c.got.spread);
        compare(&c, "the tensor that all hold", c.got.same, c.want.same, sizeof c.got.same);
        compare(&c, rank == 0 ? "the tensor of rank 0" : "the tensor of rank 1", c.got.own, c.want.own,
                sizeof c.got.own);
        compare(&c, rank == 0 ? "the blob of rank 0" : "the blob of rank 1", c.got.blob, c.want.blob,
                sizeof c.got.blob);
    }
}
