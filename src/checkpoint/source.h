/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a checkpoint's metadata and extents: the ground that restore, verify, diff and drain stand on. Everything is
 * verified against the chain when it is read; from the nearest tier first, falling through to the next on damage or
 * absence. doc/flows/restore.md. */
#ifndef BWI_CHECKPOINT_SOURCE_H
#define BWI_CHECKPOINT_SOURCE_H

#include "checkpoint/context.h"
#include "checkpoint/plan.h"
#include "format/manifest.h"

/* A group's metadata on one tier: its summary there, layout, content and placement, fetched and checked against each
 * other. */
struct bwi_group_meta {
    bool summary_ok, meta_ok; /* summary read; all four read and checked */
    struct bwi_summary summary;
    struct bwi_buf layout_bytes, content_bytes, placement_bytes;
    struct bwi_layout layout;
    struct bwi_content content;
    struct bwi_placement placement;
};
void bwi_group_meta_fini(struct bwi_group_meta *m);

/* Task: fetches the metadata of group `group` of `id` from one tier. On success meta->meta_ok. Expectations that are
 * given (not NULL) are checked: a summary whose layout or content differ from them is BW_E_CORRUPT. Missing summary:
 * BW_E_NOTFOUND. Missing or damaged others: BW_E_CORRUPT naming the object. */
struct bwi_meta_read {
    struct bwi_task task;
    struct bwi_context *ctx;
    enum bwi_tier tier;
    struct bwi_id id;
    uint32_t group;
    bool fan_out;                                     /* used when the summary cannot say; the summary's own counts */
    const struct bwi_sha *want_layout, *want_content; /* from the manifest, or NULL */
    const struct bwi_uuid *want_uuid;                 /* or NULL */
    bool summary_only;
    struct bwi_group_meta *meta; /* out: owned by the caller */
    uint64_t objects;            /* read */
    /* inside */
    int state;
    struct bwi_call calls[4];
    struct bwi_key keys[4];
};
void bwi_meta_read_start(struct bwi_meta_read *r, struct bwi_loop *loop, struct bwi_task *parent);

#endif
