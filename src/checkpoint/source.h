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
    const struct bwi_sha *want_layout, *want_content; /* from the manifest, or NULL */
    const struct bwi_uuid *want_uuid;                 /* or NULL */
    const struct bwi_manifest
        *want_whole; /* or NULL: what the summary says of the whole checkpoint is held against it */
    bool summary_only;
    struct bwi_group_meta *meta; /* out: owned by the caller */
    uint64_t objects;            /* read */
    /* inside */
    int state;
    struct bwi_call calls[4];
    struct bwi_key keys[4];
};
void bwi_meta_read_start(struct bwi_meta_read *r, struct bwi_loop *loop, struct bwi_task *parent);

/* ---- checkpoint/source.c ---- */

/* What should be there is missing, or is not what it should be. Any other failure (an I/O error, a time-out, a newer
 * version) says nothing about it: it may be sound. */
bool bwi_is_damage(int status);

/* BW_E_CORRUPT with both hashes; `by` says who names the one that is expected. */
int bwi_sha_check(struct bwi_span bytes, const struct bwi_sha *want, const char *by, struct bw_error *err);
/* Decodes the manifest of a checkpoint when it is the one that the history names. It borrows nothing of `bytes`. */
int bwi_manifest_take(struct bwi_span bytes, const struct bwi_sha *want, const struct bwi_id *id,
                      struct bwi_manifest *ret, struct bw_error *err);
/* The index that the layouts of all groups give, which have to cover every tensor. Appends to `out`. */
int bwi_index_make(const struct bwi_layout *layouts, uint32_t groups, struct bwi_buf *out, struct bwi_index_info *ret,
                   struct bw_error *err);

/* Packs of a placement that has been checked. */
struct bwi_key bwi_pack_key_of(const struct bwi_placement *p, uint32_t pack);
/* Of this group of this checkpoint, not of another one that is referred to. */
bool bwi_pack_is_own(const struct bwi_placement *p, uint32_t pack, const struct bwi_id *id, uint32_t group);
bool bwi_pack_find(const struct bwi_placement *p, const char *key, uint32_t *ret_pack);

#endif
