/* SPDX-License-Identifier: Apache-2.0 */
/* One look at one checkpoint that is not committed: commit it if it is complete, abort it if a group has failed.
 * doc/flows/commit.md. Everybody who finds all summaries may do it, twice without harm: index and manifest are a pure
 * function of them. */
#ifndef BWI_CHECKPOINT_COMMIT_H
#define BWI_CHECKPOINT_COMMIT_H

#include "checkpoint/decide.h"
#include "format/index.h"
#include "format/manifest.h"

enum bwi_commit_result {
    BWI_COMMIT_INCOMPLETE = 1, /* some groups are missing: see `missing`; or, with none missing, it is ahead of the
                                  history: a lower try of its step is still open */
    BWI_COMMIT_DONE,           /* it is live now, by this task or by somebody else */
    BWI_COMMIT_ABORTED,        /* the try is closed: by this task or by somebody else */
};

/* The index of the last set of layouts: training repeats the same set step after step, so coverage is checked once per
 * set. */
struct bwi_index_cache {
    bool set;
    struct bwi_sha key; /* SHA-256 over the layouts' hashes in order of groups */
    struct bwi_buf bytes;
    struct bwi_index_info info;
};
void bwi_index_cache_fini(struct bwi_index_cache *c);

struct bwi_commit {
    struct bwi_task task;
    /* in */
    struct bwi_context *ctx;
    struct bwi_id id;
    uint32_t groups, world;
    struct bwi_uuid
        uuid; /* lineage row that the summaries must carry: any of the run's is accepted when it is the open from */
    const struct bwi_entry *lineage_of; /* head whose lineage the uuids are checked against */
    struct bwi_index_cache *cache;      /* may be NULL */
    uint64_t deadline_ns;               /* of the decision */
    bool look_only;                     /* marks and which groups are there, no more: what is complete stays INCOMPLETE
                                           with nothing missing */
    bool dry_run;                       /* with prepare_only: nothing is written either */
    bool prepare_only; /* repair: index and manifest are written, but nothing is decided; DONE means that it could be */
    /* out, valid when task.error.status is 0 */
    enum bwi_commit_result result;
    uint32_t missing; /* INCOMPLETE: how many groups are not there */
    uint32_t first_missing;
    char missing_list[96]; /* the first ones: "1, 3, 4", with ", ..." behind if there are more */
    char reason[400];      /* ABORTED: why, from the first `failed` mark or from coverage */
    int reason_status;
    struct bwi_head head; /* the newest head after the decision, where there was one (found) */
    struct bwi_kept kept; /* DONE: what was, or would be, entered */
    uint64_t objects;
    /* inside */
    int state;
    struct bwi_commit_work *w;
};
void bwi_commit_start(struct bwi_commit *c, struct bwi_loop *loop, struct bwi_task *parent);
void bwi_commit_fini(struct bwi_commit *c);

#endif
