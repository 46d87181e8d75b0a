/* SPDX-License-Identifier: Apache-2.0 */
/* What the files behind restore.h share: the state that is kept between calls, and the state of the call that runs.
 *
 * Everything runs on the loop's thread, except restore_check.c, which runs on a worker: it reads the metadata of the
 * group, which stays as it is, and writes to nothing but its job, the pairs of that job, and the bytes of the
 * destination that they fill. */
#ifndef BWI_CHECKPOINT_RESTORE_PRIVATE_H
#define BWI_CHECKPOINT_RESTORE_PRIVATE_H

#include "checkpoint/extent_check.h"
#include "checkpoint/publish.h"
#include "checkpoint/restore.h"
#include "checkpoint/transfer.h"

#define BWI_RESTORE_GROUPS 64u /* groups whose metadata is kept: what a call uses at once is far below */
#define BWI_RESTORE_JOBS   16u /* reads in flight: enough to keep a fast disk and all workers busy */
#define BWI_RESTORE_PIECE  (UINT64_C(256) << 10) /* is hashed and copied while it lies in a processor's cache */
#define BWI_RESTORE_OPEN   16u                   /* packs kept open during a call */
#define BWI_RESTORE_AHEAD  4u                    /* groups whose metadata is fetched before their turn */
#define BWI_RESTORE_WINDOW 8u                    /* metadata objects, or groups, asked for at once */
#define BWI_RESTORE_FIXES  64u                   /* repairs after one call; the rest is found again by later ones */

/* ---- kept between calls ---- */

/* What one tier says about a group. */
enum bwi_source_state { BWI_SOURCE_UNKNOWN, BWI_SOURCE_FETCHING, BWI_SOURCE_SOUND, BWI_SOURCE_FAILED };
struct bwi_restore_source {
    enum bwi_source_state state;
    struct bw_error error; /* FAILED */
    struct bwi_group_meta meta;
    struct bwi_meta_read *read; /* FETCHING */
};
struct bwi_restore_group {
    uint32_t group;
    unsigned pins; /* users; one that has any is not evicted */
    uint64_t used; /* clock of the last use */
    struct bwi_restore_source tier[BWI_TIERS];
};

struct bwi_restore_block {
    bool loaded;
    struct bwi_buf bytes;
    struct bwi_index_block block;
    char *text;         /* all names, NUL-terminated */
    const char **names; /* per tensor */
};

struct bwi_restore_blob {
    char *name;
    uint32_t rank, group, item;
    uint64_t bytes;
};

struct bwi_restore_metadata {
    uint32_t rank;
    char *json;
};

struct bwi_restore {
    struct bwi_context *ctx;
    struct bwi_restore_target target;
    char id_text[BWI_ID_TEXT_BYTES];
    bool manifest_set, head_set, blobs_set;
    struct bwi_manifest manifest;  /* of an uncommitted one: made in memory */
    struct bwi_summary *summaries; /* of an uncommitted one: the manifest borrows their ranks */
    struct bwi_buf index;          /* the head; of an uncommitted one: the whole index */
    struct bwi_buf made;           /* the whole index of a committed one, made again because the stored one is lost */
    struct bwi_index_head head;
    struct bwi_restore_block *blocks; /* per block of the head */
    struct bwi_restore_group *groups[BWI_RESTORE_GROUPS];
    uint64_t clock;
    struct bwi_restore_blob *blobs;
    size_t blob_count, blob_cap;
    struct bwi_restore_metadata *metadata;
    size_t metadata_count, metadata_cap;
    struct bw_restore_stats stats;
    struct bwi_restore_call *running;
};

/* ---- one call ---- */

enum bwi_ready { BWI_READY, BWI_WAIT, BWI_NOWHERE };

/* Memory that bytes go to: a slice, or a blob's buffer. */
struct bwi_restore_want {
    const char *name;
    bool blob;
    const struct bwi_index_tensor *tensor; /* NULL: a blob */
    uint64_t offset[BWI_DIMS_MAX], extent[BWI_DIMS_MAX];
    int64_t stride[BWI_DIMS_MAX];
    struct bwi_strided to; /* points to the arrays above */
    uint64_t bytes, got;
};

/* A saved box that a want needs something of. */
struct bwi_restore_hit {
    uint32_t group, item;
    size_t want;
    const uint64_t *box_offset, *box_extent;
};

/* An extent, and a hit that needs something of it. Neighbours with the same extent are one job. */
struct bwi_restore_pair {
    uint64_t extent; /* number in the content */
    uint32_t item;   /* whose bytes it holds: ties are followed */
    uint64_t item_offset;
    size_t hit;
    uint64_t copied; /* bytes, by the job */
};

/* All that is read of one group. */
struct bwi_restore_batch {
    struct bwi_restore_group *group; /* pinned */
    enum bwi_tier tier;              /* by whose placement they are sorted */
    struct bwi_restore_pair *pairs;  /* sorted by where the extents lie */
    size_t count, cap, at;
    unsigned jobs;
};

/* A pack that is kept open. */
struct bwi_restore_open {
    uint32_t group, pack;
    enum bwi_tier tier;
    struct bwi_store_handle *handle;
    unsigned users;
    bool taken;
    struct bwi_call release;
};

enum bwi_job_state { BWI_JOB_FREE, BWI_JOB_META, BWI_JOB_BUFFER, BWI_JOB_READ, BWI_JOB_CHECK };

/* What is read at once: one extent, or a run of small ones that lie side by side in one pack. A run that is not served
 * as a whole is read again, one extent after the other. */
struct bwi_restore_job {
    struct bwi_restore_call *c;
    enum bwi_job_state state;
    struct bwi_restore_batch *batch;
    size_t first, count; /* pairs that are read now */
    size_t end;          /* of all its pairs */
    bool alone;          /* no runs any more */
    bool several;        /* what is read now is a run */
    enum bwi_tier tier;
    struct bwi_extent extent; /* the first one of now */
    struct bwi_key pack;
    uint64_t from, to;                /* what is read of the pack; from a whole block on, if into a buffer */
    uint8_t *straight;                /* where all bytes of the one extent belong in a row; NULL: nowhere */
    bool into_caller;                 /* they are read to there, else into a buffer */
    bool uncached;                    /* the store has said so */
    struct bw_error error[BWI_TIERS]; /* why this tier did not serve */
    struct bwi_arena_wait buffer;
    struct bwi_restore_open *open;
    struct bwi_call call;
    struct bwi_io_req req;
    bool working; /* a worker has it */
    /* the worker's */
    struct bwi_xxh_state hash; /* of the one extent, as far as its bytes have come */
    uint64_t hashed;
    size_t at;  /* of a run: the first pair whose extent is not checked yet */
    bool aimed; /* of a run: what belongs in a row went there at once */
    int verdict;
    char why[BWI_EXTENT_WHY_BYTES];
    uint64_t stored_bytes, raw_bytes; /* of what was sound */
};

/* Something on the local tier that is damaged and sound on the remote one. */
struct bwi_restore_fix {
    uint32_t group;
    bool metadata; /* the group's metadata, else the pack */
    struct bwi_key pack;
};

struct bwi_restore_fetch {
    struct bwi_call call;
    bool used;
    uint32_t block;
};

struct bwi_restore_gather;
struct bwi_restore_repair;

struct bwi_restore_work {
    int sub;               /* of the stage at hand */
    struct bw_error error; /* the first one */
    uint64_t begin_ns;
    uint64_t progress, seen_progress, seen_ns; /* of io_timeout_ns */
    uint64_t retry_ns;                         /* BWI_NEVER, or when a stage wants to be called again */
    bool lost_set;                             /* a group has data that is sound nowhere */
    uint32_t lost_group;
    bool missing; /* manifest or index: the remote tier should have it, and has not */
    struct bwi_call call;
    /* blocks of the index */
    uint32_t *need;
    size_t need_count, need_at;
    struct bwi_restore_fetch fetch[BWI_RESTORE_WINDOW];
    struct bwi_store_handle *index_handle;
    /* groups one after the other, several at once */
    struct bwi_restore_group *walk[BWI_RESTORE_WINDOW];
    uint32_t walk_next;
    struct bwi_restore_gather *gather;
    struct bw_error index_lost; /* why the stored index does not serve: it is made again from the layouts */
    /* extents */
    struct bwi_restore_want *wants;
    size_t want_count;
    struct bwi_restore_hit *hits;
    size_t hit_count, hit_cap;
    size_t hit_at; /* the first hit whose group has not been planned */
    struct bwi_restore_batch *batch;
    struct bwi_restore_job jobs[BWI_RESTORE_JOBS];
    struct bwi_restore_open open[BWI_RESTORE_OPEN];
    /* afterwards */
    struct bwi_restore_fix fixes[BWI_RESTORE_FIXES];
    size_t fix_count;
    struct bwi_restore_repair *repair;
    bool unfit; /* not committed, and its groups do not fit together: nobody can ever commit it */
    struct bwi_mark_put mark;
    struct bwi_restore_gone *gone;
};

/* restore.c */
void bwi_restore_fail(struct bwi_restore_call *c, const struct bw_error *e); /* the first one wins */
void bwi_restore_nomem(struct bwi_restore_call *c, size_t bytes, const char *what);
void bwi_restore_lost(struct bwi_restore_call *c, uint32_t group, const struct bw_error *e);

/* Stages. BWI_WAIT also when the call has failed. */
enum bwi_ready
bwi_restore_manifest_step(struct bwi_restore_call *c); /* restore_index.c: manifest and head of the index */
enum bwi_ready bwi_restore_blocks_step(struct bwi_restore_call *c);
int bwi_restore_take_head(struct bwi_restore *r, struct bw_error *err); /* of the bytes in r->index */
enum bwi_ready bwi_restore_gather_step(struct bwi_restore_call *c);     /* restore_gather.c */
void bwi_restore_gather_free(struct bwi_restore_call *c);
enum bwi_ready bwi_restore_blobs_step(struct bwi_restore_call *c); /* restore_meta.c */
enum bwi_ready bwi_restore_rank_step(struct bwi_restore_call *c);
enum bwi_ready bwi_restore_extents_step(struct bwi_restore_call *c); /* restore_read.c */
enum bwi_ready bwi_restore_blob_step(struct bwi_restore_call *c);
enum bwi_ready bwi_restore_gone_step(struct bwi_restore_call *c); /* restore_gone.c */
void bwi_restore_gone_free(struct bwi_restore_call *c);
enum bwi_ready bwi_restore_repair_step(struct bwi_restore_call *c); /* restore_repair.c */
void bwi_restore_repair_free(struct bwi_restore_call *c);

/* restore_group.c */
/* The entry of a group, pinned. NULL: out of memory, and the call has failed; or all are in use (later). */
struct bwi_restore_group *bwi_restore_group_pin(struct bwi_restore_call *c, uint32_t group);
void bwi_restore_group_unpin(struct bwi_restore_group *g);
/* The nearest tier from `from` on that has the group's metadata sound; asks for it. BWI_WAIT: the call is woken when
 * more is known. */
enum bwi_ready bwi_restore_group_find(struct bwi_restore_call *c, struct bwi_restore_group *g, enum bwi_tier from,
                                      enum bwi_tier *ret);
void bwi_restore_group_nowhere(struct bwi_restore_call *c,
                               const struct bwi_restore_group *g); /* fails the call accordingly */
void bwi_restore_source_forget(struct bwi_restore_source *s);
/* Of a group of this checkpoint, to be started; it is held against what is known of the checkpoint. */
struct bwi_meta_read bwi_restore_meta_read(const struct bwi_restore *r, enum bwi_tier tier, uint32_t group,
                                           struct bwi_group_meta *meta);
/* Before a call: what failed is asked again, except for what the local tier simply does not have. */
void bwi_restore_groups_renew(struct bwi_restore *r);
uint64_t bwi_restore_groups_progress(const struct bwi_restore *r);
bool bwi_restore_groups_settle(
    struct bwi_restore_call *c); /* cancels what is being fetched; true: nothing is any more */
void bwi_restore_groups_free(struct bwi_restore *r);

/* restore_slice.c */
int bwi_restore_slices_shape(const struct bw_slice *slices, size_t n, struct bw_error *err); /* what needs no tensor */
int bwi_restore_slices_take(struct bwi_restore_call *c, struct bw_error *err);               /* makes the wants */

/* restore_plan.c */
int bwi_restore_plan_hits(struct bwi_restore_call *c, struct bw_error *err);
int bwi_restore_hit_add(struct bwi_restore_work *w, const struct bwi_restore_hit *h, struct bw_error *err);
/* From the hits of one group, beginning with w->hit_at; moves that on. */
int bwi_restore_plan_batch(struct bwi_restore_call *c, struct bwi_restore_group *g, enum bwi_tier tier,
                           struct bwi_restore_batch **ret, struct bw_error *err);
void bwi_restore_batch_free(struct bwi_restore_batch *b);

/* restore_extent.c: what is read at once, from the store to its places. */
void bwi_restore_job_begin(struct bwi_restore_job *j, struct bwi_restore_batch *b);
bool bwi_restore_job_step(struct bwi_restore_job *j); /* true: something happened, call again */
void bwi_restore_job_drop(struct bwi_restore_job *j); /* when nothing of it is in flight */
/* restore_check.c: on a worker. */
struct bwi_extent bwi_restore_extent_at(const struct bwi_restore_job *j, size_t pair);
void bwi_restore_check_begin(struct bwi_restore_job *j);
/* Where all of the extent of `pair` belongs in a row. NULL: it is cut up, or wanted twice, or packed. */
uint8_t *bwi_restore_row(const struct bwi_restore_job *j, size_t pair, const struct bwi_extent *x);
uint8_t *bwi_restore_aim(struct bwi_store_op *op, size_t at, size_t *bytes);        /* of a run's call */
void bwi_restore_look(struct bwi_store_op *op, const uint8_t *piece, size_t bytes); /* of a job's call */
void bwi_restore_check(struct bwi_restore_job *j);                                  /* fills what is the worker's */
/* restore_open.c: packs that are kept open. NULL: read without a handle. */
struct bwi_restore_open *bwi_restore_open_take(struct bwi_restore_call *c, uint32_t group, enum bwi_tier tier,
                                               uint32_t pack);
void bwi_restore_open_leave(struct bwi_restore_open *o);
void bwi_restore_open_release(struct bwi_restore_call *c); /* all that are not in use */

/* restore_repair.c */
void bwi_restore_fix_add(struct bwi_restore_call *c, uint32_t group, const struct bwi_key *pack); /* NULL: metadata */

/* restore_meta.c */
const struct bwi_index_tensor *bwi_restore_find_tensor(const struct bwi_restore *r, struct bwi_span name);
int bwi_restore_group_of_rank(const struct bwi_restore *r, uint32_t rank, uint32_t *ret, struct bw_error *err);
void bwi_restore_blobs_free(struct bwi_restore *r);

#endif
