/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a checkpoint on one tier or both: every hash from the history's manifest hash down to every extent, sizes,
 * coverage. Damage is a finding, not a failure. doc/flows/verify.md. */
#ifndef BWI_CHECKPOINT_VERIFY_H
#define BWI_CHECKPOINT_VERIFY_H

#include "checkpoint/source.h"
#include <breakwater/catalog.h>

/* Findings, collected by verify, prune, repair, drain. */
struct bwi_findings {
    struct bw_finding *list;
    size_t count, cap;
    bool failed; /* out of memory */
};
void bwi_findings_fini(struct bwi_findings *f);
/* NULL and "" are allowed for tier, id, object, tensor. */
void bwi_findings_add(struct bwi_findings *f, uint32_t severity, int status, const char *tier, const struct bwi_id *id,
                      const char *object, const char *tensor, const char *fmt, ...)
    __attribute__((format(printf, 8, 9)));

#define BWI_FINDING_TEXT_BYTES sizeof(((struct bw_finding *)0)->message)
/* What was found of an object, without its quoted key, which is long and stands in the finding's `object` as well. */
void bwi_finding_about(const char *object, const char *found, char ret[BWI_FINDING_TEXT_BYTES]);
/* The same, and why it cannot be put right: what does not fit is cut so that something of both is left. */
void bwi_finding_not_mended(const char *object, const char *found, const char *why, char ret[BWI_FINDING_TEXT_BYTES]);

struct bwi_verify {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    struct bwi_id id;
    bool committed;
    struct bwi_sha manifest;     /* committed */
    uint32_t groups;             /* uncommitted */
    bool fast;                   /* no extents: sizes and metadata only */
    bool tiers[BWI_TIERS];       /* which ones; a group that is not on the local tier is no damage there */
    const uint32_t *only_groups; /* NULL: all */
    size_t only_group_count;
    struct bwi_findings *findings; /* added to */
    /* out */
    uint64_t bytes, damaged_objects; /* verified; found damaged or missing in the authority or on the local tier */
    uint32_t *bad_groups[BWI_TIERS]; /* groups with damage, ascending; owned: bwi_verify_fini */
    size_t bad_count[BWI_TIERS];
    /* inside */
    int state;
    struct bwi_verify_work *w;
};
void bwi_verify_start(struct bwi_verify *v, struct bwi_loop *loop, struct bwi_task *parent);
void bwi_verify_fini(struct bwi_verify *v);

#endif
