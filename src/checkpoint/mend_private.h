/* SPDX-License-Identifier: Apache-2.0 */
/* What the files behind mend.h share: what is damaged, the machine that mends one group on one tier, and the one that
 * makes index and manifest again. */
#ifndef BWI_CHECKPOINT_MEND_PRIVATE_H
#define BWI_CHECKPOINT_MEND_PRIVATE_H

#include "checkpoint/mend.h"
#include "checkpoint/transfer.h"

enum bwi_mend_outcome {
    BWI_MEND_OPEN = 0,
    BWI_MEND_DONE, /* mended, or would be */
    BWI_MEND_LOST, /* see why */
    BWI_MEND_PASS, /* sound by now */
    BWI_MEND_GONE, /* its group is not on this tier: evicted, or named by mistake; the next look tells */
};

/* A damaged object of one tier. */
struct bwi_mend_object {
    enum bwi_tier tier;
    struct bwi_id id; /* whose: packs may be of a checkpoint that is referred to */
    uint32_t group;   /* BWI_MEND_NO_GROUP: it cannot be mended */
    enum bwi_key_kind kind;
    size_t finding, findings; /* what verify says about it, one after the other */
    const char *key;
    enum bwi_mend_outcome outcome;
    struct bw_error why;
};
#define BWI_MEND_NO_GROUP UINT32_MAX

/* Task: mends what is damaged of one group on one tier, from the other one. It fails only when memory runs out, a pack
 * does not fit into the memory budget, or it is cancelled. */
struct bwi_mend_group {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    enum bwi_tier tier;
    struct bwi_id id;
    uint32_t group;
    bool guest; /* of a checkpoint that is referred to: only packs are mended */
    bool dry_run;
    const struct bwi_sha *want_layout, *want_content; /* or NULL */
    const struct bwi_uuid *want_uuid;
    const struct bwi_manifest *want_whole;
    struct bwi_mend_object *objects; /* outcome and why: out */
    size_t count;
    /* out */
    bool anew; /* its metadata was replaced: its packs are to be verified */
    /* inside */
    int state;
    struct bwi_meta_read read[BWI_TIERS];
    struct bwi_group_meta meta[BWI_TIERS];
    size_t at;   /* object */
    bool taking; /* the other tier's metadata with all packs takes the place of this tier's */
    uint32_t pack;
    bool over;
    struct bwi_pack_copy copy;
    int part; /* of the metadata */
    struct bwi_buf summary;
    struct bwi_call call;
};
void bwi_mend_group_start(struct bwi_mend_group *g, struct bwi_loop *loop, struct bwi_task *parent);
void bwi_mend_group_fini(struct bwi_mend_group *g);

/* Task: index and manifest of a checkpoint as its summaries and layouts give them, each taken from the first tier that
 * has it sound, the remote one first. It fails with the first thing that no tier has. */
struct bwi_mend_build {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    struct bwi_id id;
    uint32_t groups;
    /* out */
    struct bwi_buf index, manifest;
    struct bwi_index_info info;
    /* inside */
    int state;
    uint32_t group;
    int order;             /* of the tier that is asked */
    struct bw_error first; /* what the tier before had to say */
    struct bwi_meta_read read;
    struct bwi_group_meta meta;
    struct bwi_call call;
    struct bwi_summary *summaries;
    struct bwi_layout *layouts;
    struct bwi_buf *layout_bytes;
};
void bwi_mend_build_start(struct bwi_mend_build *b, struct bwi_loop *loop, struct bwi_task *parent);
void bwi_mend_build_fini(struct bwi_mend_build *b);

/* mend_object.c: what is damaged, from what verify says. */
struct bwi_mend_objects {
    struct bwi_mend_object *list; /* by tier, checkpoint, group, kind, key; no key twice on a tier */
    size_t count, cap;
};
/* Takes the damage in `found` over; keys are borrowed from it. What verify could not look at is left to the caller.
 * false: out of memory. */
bool bwi_mend_objects_make(struct bwi_mend_objects *o, const struct bwi_findings *found, const struct bwi_id *id,
                           const struct bwi_manifest *manifest);
void bwi_mend_objects_fini(struct bwi_mend_objects *o);
/* How many objects from `at` on are of one group on one tier. */
size_t bwi_mend_objects_run(const struct bwi_mend_objects *o, size_t at);

#endif
