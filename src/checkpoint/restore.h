/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a checkpoint: the coordinator behind restore.h of the public interface. doc/flows/restore.md.
 *
 * A bwi_restore is the state that is kept between calls: manifest, index head and blocks, metadata of groups. Each call
 * is one task that runs on the loop; calls follow one another. Metadata is fetched when it is needed and kept. */
#ifndef BWI_CHECKPOINT_RESTORE_H
#define BWI_CHECKPOINT_RESTORE_H

#include "checkpoint/source.h"
#include <breakwater/restore.h>

/* Which checkpoint. */
struct bwi_restore_target {
    struct bwi_id id;
    bool committed; /* a manifest exists: its hash is `manifest` */
    struct bwi_sha manifest;
    uint32_t world, groups; /* of an uncommitted one: from the history entry */
    struct bwi_uuid uuid;   /* of an uncommitted one */
    uint64_t wait_ns;       /* how long groups of an uncommitted one that are nowhere to be found yet are waited for */
    bool may_repair;        /* put damaged local copies right, leave damaged/<group> in the authority */
    uint64_t io_timeout_ns; /* without any progress a call fails with BW_E_TIMEOUT */
};

struct bwi_restore;
/* Stores and arena are those of ctx; tier[LOCAL] may be NULL. */
int bwi_restore_new(struct bwi_context *ctx, const struct bwi_restore_target *t, struct bwi_restore **ret,
                    struct bw_error *err);
void bwi_restore_free(struct bwi_restore *r); /* no call may be running */

/* A call: start it, run the loop until it has ended, look at task.error. The results are asked for afterwards through
 * the functions below, which never block. */
enum bwi_restore_what {
    BWI_RESTORE_MANIFEST, /* manifest (or, uncommitted, the summaries) and index head */
    BWI_RESTORE_TENSOR, /* the index block that holds `name` (uncommitted: all layouts, from which an index is made) */
    BWI_RESTORE_ALL_TENSORS, /* all blocks */
    BWI_RESTORE_BLOBS,       /* layouts and contents of all groups */
    BWI_RESTORE_RANK,        /* metadata of the group of rank `rank`: layout, content, placement */
    BWI_RESTORE_READ,        /* slices */
    BWI_RESTORE_BLOB,        /* bytes of a blob into buf */
};
struct bwi_restore_call {
    struct bwi_task task;
    struct bwi_restore *r;
    enum bwi_restore_what what;
    const char *name;
    uint32_t rank;
    const struct bw_slice *slices;
    size_t slice_count;
    void *buf; /* BLOB */
    size_t buf_bytes;
    size_t got_bytes; /* BLOB: its length, also with BW_E_LIMIT */
    struct bwi_restore_work *w;
    int state;
};
void bwi_restore_call_start(struct bwi_restore_call *c, struct bwi_loop *loop, struct bwi_task *parent);

/* After the call that fetches it; BW_E_STATE before. */
int bwi_restore_get_info(struct bwi_restore *r, struct bw_checkpoint_info *ret, struct bw_error *err); /* MANIFEST */
int bwi_restore_get_tensor(struct bwi_restore *r, const char *name, struct bw_tensor_info *ret,
                           struct bw_error *err); /* TENSOR */
int bwi_restore_get_tensor_at(struct bwi_restore *r, uint64_t i, struct bw_tensor_info *ret,
                              struct bw_error *err); /* ALL_TENSORS */
int bwi_restore_get_box(struct bwi_restore *r, const char *name, uint32_t i, struct bw_box_info *ret,
                        struct bw_error *err);
int bwi_restore_get_blob_count(struct bwi_restore *r, uint64_t *ret, struct bw_error *err);                  /* BLOBS */
int bwi_restore_get_blob(struct bwi_restore *r, uint64_t i, struct bw_blob_info *ret, struct bw_error *err); /* BLOBS */
int bwi_restore_get_metadata(struct bwi_restore *r, uint32_t rank, const char **ret, struct bw_error *err);  /* RANK */
/* Strict comparison; needs ALL_TENSORS. */
int bwi_restore_compare(struct bwi_restore *r, const struct bw_expected *e, size_t n, uint32_t flags,
                        struct bw_error *err);
const struct bw_restore_stats *bwi_restore_get_stats(const struct bwi_restore *r);
const struct bwi_manifest *
bwi_restore_manifest(const struct bwi_restore *r); /* NULL when uncommitted or not read yet */

#endif
