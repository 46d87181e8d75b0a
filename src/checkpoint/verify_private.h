/* SPDX-License-Identifier: Apache-2.0 */
/* What the files behind verify.h share: the state of the whole, and the machine that verifies one group on one
 * tier. */
#ifndef BWI_CHECKPOINT_VERIFY_PRIVATE_H
#define BWI_CHECKPOINT_VERIFY_PRIVATE_H

#include "checkpoint/extent_check.h"
#include "checkpoint/history_head.h"
#include "checkpoint/transfer.h"
#include "checkpoint/verify.h"

#define BWI_VERIFY_LANES  4u  /* groups at once */
#define BWI_VERIFY_PROBES 4u  /* extents that a group reads one by one at once */
#define BWI_VERIFY_NAMES  16u /* tensors that are named of one damaged object; the rest is counted */
#define BWI_VERIFY_BAD                                                                                                 \
    65536u /* damaged extents that are remembered of one pack; every one beyond is counted in the message of its pack  \
            */

enum bwi_probe_state { BWI_PROBE_FREE, BWI_PROBE_BUFFER, BWI_PROBE_READ, BWI_PROBE_CHECK };
struct bwi_verify_group;
struct bwi_verify_probe {
    enum bwi_probe_state state;
    struct bwi_verify_group *g;
    uint64_t number; /* of the extent */
    struct bwi_extent extent;
    struct bwi_key pack;
    struct bwi_arena_wait buffer;
    struct bwi_call call;
    struct bwi_io_req req;
    bool working;
    int verdict;
    char why[BWI_EXTENT_WHY_BYTES];
};

struct bwi_verify_pack {
    bool own;  /* of this group of this checkpoint, not of another one that is referred to */
    bool skip; /* its extents have been reported */
};

/* One group on one tier. A task, child of the verify. */
struct bwi_verify_group {
    struct bwi_task task;
    struct bwi_verify *v;
    enum bwi_tier tier;
    uint32_t group;
    bool used; /* the lane is taken */
    /* out */
    bool there; /* its summary is on this tier */
    uint64_t packs, bytes;
    /* inside */
    int state;
    struct bwi_group_meta meta;
    struct bwi_meta_read read;
    struct bwi_call call;
    int object; /* that is inspected */
    unsigned bad_objects;
    struct bwi_call look;          /* whether the summary is still there */
    int back;                      /* the state that wants to know */
    bool still_there;              /* the answer */
    uint32_t pack;                 /* at hand */
    struct bwi_verify_pack *known; /* per pack */
    struct bwi_pack_copy copy;
    struct bwi_arena_wait header;
    uint64_t *bad; /* extents, of probes */
    size_t bad_count, bad_cap;
    bool missing;  /* a pack was, for one of them */
    uint32_t item; /* of the extent at hand: probes go up */
    uint64_t next; /* extent */
    struct bwi_verify_probe probes[BWI_VERIFY_PROBES];
};

struct bwi_verify_work {
    bool manifest_set;
    struct bwi_manifest manifest;
    uint32_t groups; /* of the checkpoint */
    uint32_t *order; /* groups that are verified */
    size_t order_count;
    struct bwi_call call;
    size_t next; /* group times tier */
    struct bwi_verify_group lanes[BWI_VERIFY_LANES];
    /* per group: */
    struct bwi_buf *layout_bytes; /* of the first sound copy; empty: none */
    struct bwi_layout *layouts;
    bool *seen[BWI_TIERS]; /* is on this tier */
    bool *bad[BWI_TIERS];
    uint64_t found[BWI_TIERS]; /* severities 2 */
    uint64_t group_count[BWI_TIERS], pack_count[BWI_TIERS], byte_count[BWI_TIERS];
    size_t first_finding; /* of this verify */
    struct bwi_head_read read;
    struct bwi_head head;
};

/* verify_report.c. All add findings of severity 2. */
/* An object is damaged (counted), or could not be looked at (not counted: it may be sound). group: UINT32_MAX for
 * objects of the whole checkpoint. */
void bwi_verify_report(struct bwi_verify *v, enum bwi_tier tier, uint32_t group, const char *key, int status,
                       const char *text);
/* A pack of a group is damaged, in these n extents (sorted in place); names the tensors that are hit. */
void bwi_verify_report_pack(struct bwi_verify_group *g, uint32_t pack, const struct bw_error *why, uint64_t *bad,
                            size_t n);

/* verify_group.c */
void bwi_verify_group_start(struct bwi_verify_group *g, struct bwi_loop *loop, struct bwi_task *parent);
void bwi_verify_group_free(struct bwi_verify_group *g);

/* verify_probe.c: the extents that bwi_pack_copy does not answer for: in packs of other checkpoints, and compressed
 * ones. */
bool bwi_verify_probes_step(struct bwi_verify_group *g); /* true: all have been probed */
bool bwi_verify_probes_stop(struct bwi_verify_group *g); /* true: nothing is in flight */

#endif
