/* SPDX-License-Identifier: Apache-2.0 */
/* Whole checkpoints for tests: any tensors, split over any number of ranks in any of a few ways, written to both
 * tiers as a job would, and committed. Every element has a value that tells which one it is, so that whatever is
 * read can be checked without a copy of what was saved.
 *
 *     struct world w;
 *     struct fixture f;
 *     world_open(&w, 0, 1 << 20);
 *     fixture_init(&f, &w, 3, FIXTURE_ROWS);        (three ranks, each a group)
 *     fixture_tensor(&f, "w", BW_F32, 2, (uint64_t[]){10, 7});
 *     fixture_blob(&f, "rng", 100);                 (every rank has one)
 *     fixture_save(&f);                             (groups on both tiers, index, manifest)
 *     ... f.id, f.manifest ...
 *     world_close(&w); */
#ifndef BW_TEST_CHECKPOINT_FIXTURE_H
#define BW_TEST_CHECKPOINT_FIXTURE_H

#include "checkpoint/source.h"
#include "transfer_fixture.h"

#define FIXTURE_TENSORS 20
#define FIXTURE_GROUPS  96

/* How a tensor is split over n ranks. Shares are of ceil(size / n), so the last ranks may get less, or nothing. */
enum fixture_split {
    FIXTURE_ROWS,    /* the first dimension */
    FIXTURE_COLUMNS, /* the last one */
    FIXTURE_GRID,    /* both: as square a grid as n allows */
};

struct fixture_tensor {
    const char *name;
    int dtype;
    uint32_t dims;
    uint64_t shape[4];
    int tied; /* number of the tensor whose memory this is; -1 */
};

struct fixture_blob {
    const char *name;
    uint64_t bytes;
};

struct fixture {
    struct world *w;
    struct bwi_id id;
    struct bwi_uuid uuid;
    uint32_t world;
    bool fan_out;
    enum fixture_split split;
    uint32_t extent_bytes;
    uint64_t pack_bytes;
    bool tiers[BWI_TIERS]; /* which get the groups: both */
    struct fixture_tensor tensors[FIXTURE_TENSORS];
    size_t tensor_count;
    struct fixture_blob blobs[4];
    size_t blob_count;
    uint64_t salt;        /* another one gives other values to the same elements */
    const char *metadata; /* of every rank, canonical; NULL: none */
    /* after fixture_save */
    struct bwi_sha manifest;
    struct bwi_sha root; /* of the index */
};

void fixture_init(struct fixture *f, struct world *w, uint32_t world, enum fixture_split split);
void fixture_tensor(struct fixture *f, const char *name, int dtype, uint32_t dims, const uint64_t *shape);
void fixture_tie(struct fixture *f, const char *name, int to); /* another name of tensor number `to` */
void fixture_blob(struct fixture *f, const char *name, uint64_t bytes);
/* A small one of everything: two dimensions, one, none, a tie, a blob, an empty one, metadata. */
void fixture_small(struct fixture *f, struct world *w, uint32_t world);
/* As many tensors as there may be, with names so long that each block of the index holds a few. */
void fixture_long_names(struct fixture *f, struct world *w, uint32_t world);
/* Layout, content, packs, placement and summary of one group on one tier. */
void fixture_save_group(struct fixture *f, uint32_t group, enum bwi_tier tier);
/* Index and manifest, from what the remote tier's summaries and layouts say. */
void fixture_commit(struct fixture *f);
void fixture_save(struct fixture *f); /* all of it */

/* Puts the group's bytes into a new pack on this tier, with a codec, and gives the group a placement that says so.
 * `into`: the pack is one of that checkpoint, and the summary refers to it; NULL: of its own. The pack begins with
 * bytes that are no extent of this group's if `into` is given. To be called before fixture_commit for the remote
 * tier. */
void fixture_repack(struct fixture *f, uint32_t group, enum bwi_tier tier, uint8_t codec, const struct bwi_id *into);
/* All of it, with every group repacked in this way on the remote tier. */
void fixture_save_repacked(struct fixture *f, uint8_t codec, const struct bwi_id *into);

/* The box of rank `rank` of `world` in a tensor of this shape. */
void fixture_box(enum fixture_split split, uint32_t dims, const uint64_t *shape, uint32_t world, uint32_t rank,
                 uint64_t *offset, uint64_t *extent);
/* The bytes of one element, by its row-major number in the whole tensor. */
void fixture_element(const struct fixture *f, size_t tensor, uint64_t number, uint8_t *ret);
uint8_t fixture_blob_byte(const char *name, uint32_t rank, uint64_t at);

/* A group's metadata as it is on a tier now; all of it is sound. */
void fixture_meta(struct fixture *f, uint32_t group, enum bwi_tier tier, struct bwi_group_meta *ret);
/* Gives the group another placement, and a summary that names it. */
void fixture_place(struct fixture *f, enum bwi_tier tier, struct bwi_group_meta *m);

/* Damage. */
enum fixture_damage { FIXTURE_FLIP, FIXTURE_TRUNCATE, FIXTURE_EXTEND, FIXTURE_DELETE, FIXTURE_SWAP, FIXTURE_DAMAGES };
const char *fixture_damage_name(enum fixture_damage d);
/* Damages the object; SWAP puts an object of the same size but other bytes there. at: the byte that is flipped
 * (UINT64_MAX: the middle). */
void fixture_damage(struct world *w, enum bwi_tier tier, const char *key, enum fixture_damage d, uint64_t at);

#endif
