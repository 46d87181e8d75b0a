/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file catalog.h
 * Looking after runs: what there is, whether it is sound, and making room.
 *
 * A catalog is a pair of tiers that is open for looking and, on demand, for
 * changing. It takes part in no launch, and may be used while training goes on.
 *
 *     struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
 *     o.remote_url = "file:///lustre/bw";
 *     bw_catalog_open(&o, &catalog, &err);
 *     bw_catalog_checkpoints(catalog, "gpt", &list, &err);
 *     for (size_t i = 0; bw_list_checkpoint(list, i, &c); i++) ...
 *     bw_list_free(list);
 *     bw_catalog_close(catalog);
 *
 * Lists are snapshots: plain memory, independent of the catalog that made them.
 *
 * Guarantees
 *   - Only a run's history says what counts. Names, dates and directories are never
 *     believed, so a copy of a tree made with `cp -r` shows the same.
 *   - Nothing that is live, shelved, pinned, referred to, resumable or still being written is
 *     ever deleted. Data of another life of the run is reported and kept.
 *   - Deleting is a retire entry first and a sweep afterwards; a crash in between is finished
 *     by the next sweep.
 *
 * Deadlines: a mount that does not answer cannot be called off, but nobody has to wait for it.
 *   - A call that sees no sign of life from the tiers for `io_timeout_ms` returns
 *     BW_E_TIMEOUT. What it asked for ends at the next point at which it can, once the mount
 *     answers again; until then it may have happened in part, as if the process had been
 *     killed. Its arguments are copies, so nothing of the caller's is touched any more.
 *   - The catalog stays usable: the next call waits, with the same deadline, until the one
 *     before has come back. Closing never waits for it: what hangs frees the rest by itself.
 *   - A process that ends meanwhile may be held by the kernel until the mount answers.
 *
 * Threads: one thread at a time per catalog; different catalogs are independent. The calls
 * block; each does its work on a thread of its own, and a pool does the I/O.
 */
#ifndef BW_CATALOG_H
#define BW_CATALOG_H

#include <breakwater/checkpointer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** An open pair of tiers. Opaque. */
struct bw_catalog;

/** A snapshot of rows of one kind. Opaque. */
struct bw_list;

/** How to open a catalog. Strings are borrowed for the call. Initialise with BW_CATALOG_OPTIONS_INIT. */
struct bw_catalog_options {
    uint32_t struct_size;         /**< set by BW_CATALOG_OPTIONS_INIT */
    uint32_t flags;               /**< BW_CATALOG_READ_ONLY or 0 */
    const char *remote_url;       /**< Required. The authority, or an archive. */
    const char *local_url;        /**< Optional. A node's local tier. */
    uint64_t memory_budget_bytes; /**< Optional. Default 256 MiB, at least 64 MiB; touched as needed. */
    uint64_t io_timeout_ms; /**< Optional. Without an answer for so long a call fails; default 120,000, 0: never. */
    uint32_t io_threads;    /**< Optional. 0: by the number of CPUs. */
    uint32_t io_backend;    /**< Optional. enum bw_io_backend; default BW_IO_AUTO. */
};

/** The tiers are opened read-only; nothing that changes them is allowed. */
#define BW_CATALOG_READ_ONLY UINT32_C(1)

/** Defaults for everything that is optional. */
#define BW_CATALOG_OPTIONS_INIT                                                                                        \
    { sizeof(struct bw_catalog_options), 0, 0, 0, UINT64_C(268435456), UINT64_C(120000), 0, 0 }

/**
 * Opens. BW_E_NOTFOUND: the remote tier does not exist (a catalog never creates one);
 * BW_E_TIMEOUT: a tier does not answer.
 */
BW_API int bw_catalog_open(const struct bw_catalog_options *options, struct bw_catalog **ret_catalog,
                           struct bw_error *err);

/** Closes. NULL is allowed. Does not wait for a call that has ended with BW_E_TIMEOUT. */
BW_API void bw_catalog_close(struct bw_catalog *catalog);

/** How far a long call has come. Any thread may ask while another one is inside a call of the catalog. */
struct bw_progress {
    uint64_t done_bytes;  /**< bytes dealt with */
    uint64_t total_bytes; /**< bytes to deal with, 0 while unknown */
    uint64_t done_items;  /**< objects dealt with */
    uint64_t total_items; /**< objects to deal with, 0 while unknown */
};

/** Fills the progress of the call that runs now, or of the last one. Never blocks. */
BW_API void bw_catalog_progress(struct bw_catalog *catalog, struct bw_progress *ret_progress);

/** Frees a list. NULL is allowed. */
BW_API void bw_list_free(struct bw_list *list);

/** Number of rows. */
BW_API size_t bw_list_count(const struct bw_list *list);

/** Bytes of a run's name as text, NUL included. */
#define BW_NAME_BYTES 132

/** A run, as bw_catalog_runs lists it. */
struct bw_run_info {
    char run[BW_NAME_BYTES]; /**< name */
    int32_t status;          /**< 0, or what is wrong with its history; BW_E_CORRUPT: the newest entry is damaged */
    uint32_t attempt;        /**< number of the current attempt, 0: none */
    uint64_t live;           /**< committed checkpoints that are live */
    uint64_t shelved;        /**< committed ones that were set aside */
    uint64_t newest_step;    /**< of the newest live one; UINT64_MAX when there is none */
    uint64_t bytes;          /**< of all live and shelved checkpoints */
    int64_t newest_unix_ms;  /**< when the newest was committed; 0: none */
    char job[BW_NAME_BYTES]; /**< job of the current attempt */
};

/** All runs of the remote tier, by name. */
BW_API int bw_catalog_runs(struct bw_catalog *catalog, struct bw_list **ret_list, struct bw_error *err);
/** One run, without a look at the others. BW_E_NOTFOUND: there is none of that name. */
BW_API int bw_catalog_run(struct bw_catalog *catalog, const char *run, struct bw_run_info *ret_run,
                          struct bw_error *err);
/** The i-th run. false when i is not below the count. */
BW_API bool bw_list_run(const struct bw_list *list, size_t i, struct bw_run_info *ret_run);

/** What a checkpoint is to its run. */
enum bw_checkpoint_state {
    BW_CKPT_LIVE = 1,    /**< committed, and a launch may resume from it */
    BW_CKPT_SHELVED = 2, /**< committed, set aside by a rollback or a fresh start */
    BW_CKPT_PENDING = 3, /**< not committed yet, and it may still be */
    BW_CKPT_DEAD = 4,    /**< never to be committed, or retired; a sweep will take it */
    BW_CKPT_FOREIGN = 5, /**< of another life of the run; never touched without demand */
    BW_CKPT_AHEAD = 6,   /**< of an attempt or try beyond the entry that was read */
};

/** A checkpoint, as bw_catalog_checkpoints lists it. */
struct bw_checkpoint_row {
    char id[BW_ID_BYTES];   /**< checkpoint id */
    uint64_t step;          /**< training step */
    uint32_t attempt;       /**< attempt that made it */
    uint32_t save_try;      /**< which making of the step in that attempt: 0, and one more for each repetition */
    uint32_t world;         /**< ranks; 0: unknown */
    uint32_t groups;        /**< groups; 0: unknown */
    uint32_t state;         /**< enum bw_checkpoint_state */
    uint32_t level;         /**< enum bw_level: COMMITTED, or what all groups have reached at least */
    uint32_t groups_remote; /**< groups that are complete in the remote tier */
    uint32_t groups_local;  /**< groups that are complete on the local tier that was given */
    uint32_t pinned;        /**< 1: retention leaves it alone */
    uint32_t damaged;       /**< groups that a reader has marked as damaged */
    uint32_t failed;        /**< groups that gave up */
    uint32_t refs;          /**< other checkpoints whose data it refers to */
    uint64_t bytes;         /**< raw bytes; 0: unknown */
    int64_t unix_ms;        /**< when it was committed; 0: not committed */
};

/** All checkpoints of a run, by id, whatever their state. */
BW_API int bw_catalog_checkpoints(struct bw_catalog *catalog, const char *run, struct bw_list **ret_list,
                                  struct bw_error *err);
/** The i-th checkpoint. */
BW_API bool bw_list_checkpoint(const struct bw_list *list, size_t i, struct bw_checkpoint_row *ret_row);

/** An object that a checkpoint consists of, and where it lies. */
struct bw_object_row {
    char tier[8];     /**< "local" or "remote" */
    char kind[16];    /**< "pack", "content", "placement", "layout", "summary", "manifest", "index" */
    uint32_t group;   /**< group that it belongs to; UINT32_MAX: the whole checkpoint */
    uint32_t present; /**< 1: found with the right size */
    uint64_t bytes;   /**< size that it must have */
    char key[512];    /**< key in its store */
};

/** Where the bytes of a checkpoint lie: every object that its summaries name, on both tiers. */
BW_API int bw_catalog_objects(struct bw_catalog *catalog, const char *run, const char *id, struct bw_list **ret_list,
                              struct bw_error *err);
/** The i-th object. */
BW_API bool bw_list_object(const struct bw_list *list, size_t i, struct bw_object_row *ret_row);

/** A reference between checkpoints: `from` needs data of `to`. */
struct bw_ref_row {
    char from[BW_ID_BYTES]; /**< the one that refers */
    char to[BW_ID_BYTES];   /**< the one that is referred to */
};

/** All references of a run's live and shelved checkpoints. */
BW_API int bw_catalog_refs(struct bw_catalog *catalog, const char *run, struct bw_list **ret_list,
                           struct bw_error *err);
/** The i-th reference. */
BW_API bool bw_list_ref(const struct bw_list *list, size_t i, struct bw_ref_row *ret_row);

/** An entry of the history. */
struct bw_history_row {
    uint32_t era;     /**< era of the lineage */
    uint32_t attempt; /**< current attempt after it */
    uint64_t n;       /**< number of the entry */
    int64_t unix_ms;  /**< when, by the clock of who wrote it */
    /** "register", "commit", "abort", "retire", "pin", "unpin", "repair", "promote", "era-end" */
    char event[16];
    char mode[16];              /**< of a register: "default", "rollback", "fresh", "takeover", "damage" */
    char subject[BW_ID_BYTES];  /**< the first checkpoint that it is about, "" if none */
    uint32_t subjects;          /**< how many it is about */
    int32_t status;             /**< 0, or BW_E_CORRUPT ... when this entry cannot be read */
    uint64_t live;              /**< live checkpoints after it */
    uint64_t shelved;           /**< shelved ones after it */
    char job[BW_NAME_BYTES];    /**< job of the current attempt */
    char launch[BW_NAME_BYTES]; /**< launch of the current attempt */
    char label[BW_NAME_BYTES];  /**< label of a register on demand */
    char host[64];              /**< who wrote it, for people */
    char note[256];             /**< why */
};

/**
 * The log of a run, oldest first; at most the last 900 entries exist. Damaged entries
 * appear with their status.
 */
BW_API int bw_catalog_history(struct bw_catalog *catalog, const char *run, struct bw_list **ret_list,
                              struct bw_error *err);
/** The i-th entry. */
BW_API bool bw_list_history(const struct bw_list *list, size_t i, struct bw_history_row *ret_row);

/** A finding of verify, repair, prune, drain, rollback or doctor. */
struct bw_finding {
    uint32_t severity;    /**< 0: fact, 1: warning, 2: damage or failure */
    int32_t status;       /**< 0 or negative enum bw_status */
    char tier[8];         /**< "local", "remote" or "" */
    char id[BW_ID_BYTES]; /**< checkpoint, or "" */
    char object[512];     /**< key of the object, or the name of what was examined */
    char tensor[256];     /**< tensor that is hit, cut if longer; or "" */
    char message[400];    /**< one line; of a longer one whole words and "..." */
};
/** The i-th finding. */
BW_API bool bw_list_finding(const struct bw_list *list, size_t i, struct bw_finding *ret_finding);

/** Sizes and metadata only: that every object is there, has its size, and that all metadata hash and fit. */
#define BW_VERIFY_FAST UINT32_C(1)

/**
 * Verifies one checkpoint (`id` not NULL) or all live and shelved ones of a run, the
 * history included, on both tiers: every hash, every coverage. Damage is not a failure of
 * the call: it is in the list, every damaged object named, with severity 2. A sound
 * checkpoint gives one finding of severity 0 per tier. The history comes first, then (of a
 * whole run) what launches have left there, with severity 1 where it is damaged, since
 * nothing depends on it; then one checkpoint after the other, and of each the findings by
 * tier, object and tensor.
 */
BW_API int bw_catalog_verify(struct bw_catalog *catalog, const char *run, const char *id, uint32_t flags,
                             struct bw_list **ret_list, struct bw_error *err);

/** What to prune. Zero-initialise, then set. */
struct bw_prune_options {
    uint32_t struct_size;          /**< Required. sizeof(struct bw_prune_options) */
    uint32_t dry_run;              /**< 1: only tell what would go */
    struct bw_retention retention; /**< keep_last 0: retire nothing, sweep only */
    const char *const *retire_ids; /**< besides, exactly these, live or shelved; copied */
    size_t retire_count;           /**< how many */
    uint64_t grace_ms;             /**< data that died less than this ago stays; UINT64_MAX: the default of one hour */
    uint32_t drop_foreign;         /**< 1: data of another life of the run goes too */
    uint32_t retire_shelved;       /**< 1: besides, all shelved ones but those pinned or needed by the open one */
};

/**
 * Retires what the rules do not keep, then sweeps what is dead, in the remote tier and on
 * the local one. The list names what went, or would go. BW_E_REFUSED: a checkpoint in
 * `retire_ids` is the newest, pinned, or needed by the open one.
 */
BW_API int bw_catalog_prune(struct bw_catalog *catalog, const char *run, const struct bw_prune_options *options,
                            struct bw_list **ret_list, struct bw_error *err);

/** Pins (`pinned` 1) or unpins (0) a live or shelved checkpoint. */
BW_API int bw_catalog_pin(struct bw_catalog *catalog, const char *run, const char *id, uint32_t pinned,
                          struct bw_error *err);

/**
 * Goes back on demand: the live checkpoint of `step` (or the live or shelved one named
 * `id`, if not NULL) becomes the newest, those above are shelved. A running launch loses
 * its attempt (BW_E_LAUNCH_LOST) and a restart resumes from there. With `dry_run` only the
 * list is made.
 */
BW_API int bw_catalog_rollback(struct bw_catalog *catalog, const char *run, uint64_t step, const char *id,
                               const char *label, uint32_t dry_run, struct bw_list **ret_list, struct bw_error *err);

/**
 * Finishes what a dead process left: copies groups that are complete on the local tier and
 * may still count to the remote tier, and commits what is complete there. The list says
 * what was done and what still lacks which groups.
 */
BW_API int bw_catalog_drain(struct bw_catalog *catalog, const char *run, struct bw_list **ret_list,
                            struct bw_error *err);

/** What bw_catalog_repair may do; 0: tell only. */
#define BW_REPAIR_COPIES UINT32_C(1) /**< put right damaged copies from a sound one on the other tier */
#define BW_REPAIR_HISTORY                                                                                              \
    UINT32_C(2)                       /**< if the newest entry is damaged: begin a new era from the newest sound one   \
                                       */
#define BW_REPAIR_PROMOTE UINT32_C(4) /**< if the store is an archive: let it decide from now on */

/**
 * Repairs a run. The list says what was damaged, what was put right, and what is lost or
 * stays. In an archive a damaged newest entry begins no era: it is to be copied again.
 */
BW_API int bw_catalog_repair(struct bw_catalog *catalog, const char *run, uint32_t what, struct bw_list **ret_list,
                             struct bw_error *err);

/**
 * What bw_doctor examines besides the machine. Strings are borrowed for the call. Initialise
 * with BW_DOCTOR_OPTIONS_INIT.
 */
struct bw_doctor_options {
    uint32_t struct_size;   /**< set by BW_DOCTOR_OPTIONS_INIT */
    uint32_t reserved;      /**< 0 */
    const char *remote_url; /**< Optional. NULL or "": no remote tier. */
    const char *local_url;  /**< Optional. NULL or "": no local tier. */
    uint64_t timeout_ms;    /**< Optional. How long a tier may take, all in all; default 120,000 ms, 0: for ever. */
};

/** No tier, and two minutes for each. */
#define BW_DOCTOR_OPTIONS_INIT                                                                                         \
    { sizeof(struct bw_doctor_options), 0, 0, 0, UINT64_C(120000) }

/**
 * What this machine and these tiers can do: direct I/O, io_uring, huge pages, userfaultfd,
 * locked memory, free space, and whether creating once really holds there, by racing it.
 * Works on directories that are no stores yet; leaves nothing behind. `object` of a finding
 * is the name of the check. A tier that does not answer within `timeout_ms` is a finding of
 * severity 2 with BW_E_TIMEOUT, and the other one is examined all the same; what was written
 * to it goes once it answers, unless the process has ended by then.
 */
BW_API int bw_doctor(const struct bw_doctor_options *options, struct bw_list **ret_list, struct bw_error *err);

#ifdef __cplusplus
}
#endif

#endif
