/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file checkpointer.h
 * A checkpointer is one rank's place in one launch of a training job: it
 * resumes, saves in the background, and commits.
 *
 * Life
 *   1. Fill `struct bw_options` and call bw_checkpointer_open. All ranks of a
 *      launch do so; the call agrees with them, through the remote store alone,
 *      on the checkpoint to go on from, and registers the launch as the run's
 *      new **attempt**. From then on no older attempt can commit anything.
 *   2. bw_checkpointer_resumed tells what to load; restore.h loads it.
 *   3. Save as often as you like (save.h).
 *   4. bw_checkpointer_close drains what is in flight, within a deadline.
 *
 *     struct bw_options o = BW_OPTIONS_INIT;
 *     o.run = "gpt"; o.job = job; o.launch = launch; o.rank = rank; o.world = world;
 *     o.local_url = "file:///nvme/bw"; o.remote_url = "file:///lustre/bw";
 *     struct bw_checkpointer *ck;
 *     if (bw_checkpointer_open(&o, &ck, &err) < 0) ...
 *
 * Tiers
 *   The **local** tier is a directory of the node's own disk: fast, and lost with the
 *   node. The **remote** tier is shared by all ranks and decides what counts; it is
 *   also called the authority. A save is LOCAL when it is synced on the first, and
 *   COMMITTED only once all ranks' data lies in the second. Without a local tier
 *   saves go straight to the remote one. The local tier keeps the newest committed
 *   checkpoint and what may still be committed; older ones it keeps as well, and evicts
 *   them only for room.
 *
 * Guarantees
 *   - What a restart finds is exactly one committed checkpoint, or exactly one newer
 *     one that every rank still holds complete; never a mix of steps.
 *   - Killing any process at any moment, or all of them, leaves older checkpoints
 *     untouched and the run openable.
 *   - Of two launches that run at once at most one can commit; the other learns of it
 *     (BW_E_SUPERSEDED or BW_E_LAUNCH_LOST), whatever the timing.
 *
 * Threads
 *   Every function here may be called from any thread; calls on one handle are
 *   serialised inside. One background thread per handle drives the work and a small
 *   pool does the I/O. Nothing here may be called from a signal handler.
 *
 * Caveats
 *   - A launch id must be unique per start and the same on all ranks. A launcher's restart
 *     counter is usually not unique; the pair of Slurm's job id and restart count is.
 *   - On NFS the remote tier needs version 4 for atomic links; every rank must see the
 *     others' files within the open timeout.
 *   - After fork() the handle is the parent's: in the child every call on it is BW_E_STATE.
 *   - A mount that does not answer is waited for 30 seconds beyond `open_timeout_ms` and the
 *     deadline of a close, no longer. What hangs in the kernel is left to a thread that frees it
 *     once the mount answers.
 */
#ifndef BW_CHECKPOINTER_H
#define BW_CHECKPOINTER_H

#include <breakwater/error.h>
#include <breakwater/io.h>
#include <breakwater/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A rank's open place in a run. Opaque; opened by bw_checkpointer_open. */
struct bw_checkpointer;

/** From where a launch goes on. Everything but the default needs a label. */
enum bw_resume {
    /** The newest committed checkpoint, or a newer one that is whole; from nothing in an empty run. */
    BW_RESUME_NEWEST = 0,
    /** The committed checkpoint of `resume_step`; newer ones are shelved (kept, but out of the way). */
    BW_RESUME_ROLLBACK = 1,
    /** From nothing; all committed checkpoints are shelved. */
    BW_RESUME_FRESH = 2,
    /** Like the default, by a job that another one has superseded and that is to have the run back. */
    BW_RESUME_TAKEOVER = 3,
};

/** What bw_save_begin does when `saves_in_flight_max` saves are on their way. */
enum bw_on_busy {
    BW_BUSY_WAIT = 0, /**< waits, at most `busy_timeout_ms`; then as BW_BUSY_FAIL */
    BW_BUSY_SKIP = 1, /**< BW_E_SKIPPED at once; the other ranks learn that this step will not come */
    BW_BUSY_FAIL = 2, /**< BW_E_BUSY at once; the other ranks learn that this step will not come */
};

/** What opening does when the newest checkpoint is damaged on every tier. */
enum bw_on_damage {
    BW_DAMAGE_PREVIOUS = 0, /**< goes on from the newest one that verifies, and reports it */
    BW_DAMAGE_FAIL = 1,     /**< BW_E_CORRUPT */
};

/**
 * Which committed checkpoints to keep. A checkpoint is retired when no rule keeps it; the
 * newest one never is, nor pinned ones, nor what others refer to. All zero keeps everything.
 * Never fewer than `saves_in_flight_max` + 1 are kept; shelved ones are retired only on
 * demand; the bytes come back after a grace of an hour.
 */
struct bw_retention {
    uint32_t keep_last;        /**< the newest so many; 0 switches retention off */
    uint32_t reserved;         /**< 0 */
    uint64_t keep_every_steps; /**< besides, every checkpoint whose step is a multiple of this; 0: none */
    uint64_t keep_younger_ms;  /**< besides, everything committed less than this ago; 0: none */
};

/** Two tiers on one device are accepted: they fail together, so this is for tests and demonstrations. */
#define BW_ALLOW_SAME_DEVICE UINT32_C(1)
/**
 * A remote tier on a node-local file system is accepted: for jobs of one node, which is
 * lost with that node.
 */
#define BW_ALLOW_NODE_LOCAL UINT32_C(2)

/**
 * Packs of checkpoints that go from the local tier are deleted, never written over. Without this flag a save's packs
 * are written into the files of those that go at that moment anyway, where that is faster (ext4, xfs, tmpfs) and nobody
 * else has them open: a program that has opened or mapped such a pack itself goes on with what it opened, and a file of
 * which there is a hard link, or that has another owner or mode than this process gives, is deleted.
 */
#define BW_NO_RECYCLING UINT32_C(4)

/** How to open a checkpointer. Strings are copied. Initialise with BW_OPTIONS_INIT. */
struct bw_options {
    /** sizeof(struct bw_options) of the caller; set by BW_OPTIONS_INIT. */
    uint32_t struct_size;
    /** BW_ALLOW_..., BW_NO_RECYCLING; default 0. */
    uint32_t flags;
    /** Required. The run's name: [A-Za-z0-9][A-Za-z0-9._-]{0,127}. */
    const char *run;
    /** Required. What the launcher keeps over its restarts. Same form as `run`. */
    const char *job;
    /** Required. One start of all ranks: unique, the same on all of them. Same form as `run`. */
    const char *launch;
    /** Required. This process, 0 .. world - 1. Rank 0 coordinates. */
    uint32_t rank;
    /** Required. Number of ranks, 1 .. 999999. */
    uint32_t world;
    /**
     * Optional. URL of the local tier (file:///path, or a plain absolute path); NULL: none. Several ranks
     * of a node share one; runs of one name in two remote tiers must not. Directories that are missing, parents
     * included, are made with mode 0700, files with 0600, whatever the umask says: all ranks, and all who are to read,
     * run as one user.
     */
    const char *local_url;
    /**
     * Required. URL of the remote tier, the authority, the same for all ranks. Paths and missing
     * directories as for `local_url`.
     */
    const char *remote_url;
    /**
     * Optional. Host memory for all buffers, mapped and touched at open. Default 256 MiB, at least 64 MiB.
     */
    uint64_t memory_budget_bytes;
    /** Optional. Threads for I/O and copying; 0: by the number of CPUs. */
    uint32_t io_threads;
    /** Optional. Saves between begin and their end; default 2, 1 .. 16; 0 is BW_E_INVALID. */
    uint32_t saves_in_flight_max;
    /** Optional. enum bw_on_busy; default BW_BUSY_WAIT. */
    uint32_t on_busy;
    /** Optional. enum bw_resume; default BW_RESUME_NEWEST. The same on all ranks. */
    uint32_t resume;
    /** Step for BW_RESUME_ROLLBACK. */
    uint64_t resume_step;
    /**
     * Required for every `resume` but the default: a name for this wish. A label works once in a run; used
     * again it means the default, so a launcher that restarts the same command does not go back twice.
     */
    const char *label;
    /** Optional. enum bw_on_damage; default BW_DAMAGE_PREVIOUS. */
    uint32_t on_damage;
    /** Optional. enum bw_io_backend; default BW_IO_AUTO. */
    uint32_t io_backend;
    /** Optional. How long opening may take, waiting for other ranks included; default 300,000 ms, 0: at once. */
    uint64_t open_timeout_ms;
    /** Optional. For BW_BUSY_WAIT; default 600,000 ms, 0: at once. */
    uint64_t busy_timeout_ms;
    /**
     * Optional. A restore without any progress for so long fails; default 120,000 ms, 0: never. A read that
     * hangs in the kernel is waited for all the same: it may still write to the caller's memory. Saves end by
     * the deadlines of their waits.
     */
    uint64_t io_timeout_ms;
    /**
     * Optional. Bytes that this rank's data of the run may take on the local tier; 0: what the file system
     * has. On a disk that ranks share, each counts its own; only when that is full do old copies of other ranks
     * go as well.
     */
    uint64_t local_quota_bytes;
    /** Optional. Pace of this rank's drain; 0: unlimited. */
    uint64_t drain_bytes_per_s;
    /** Optional. Acted on by rank 0 after each commit. Default: keep everything. */
    struct bw_retention retention;
    /** Optional. enum bw_capture; default BW_CAPTURE_COPY. */
    uint32_t capture;
    /**
     * Optional. Threads that copy while training waits, 0 .. 256; they do nothing else. 0: as many as there are
     * CPUs, 16 at most. Where not all of them can be had, those that can do the work. With BW_CAPTURE_COW they protect;
     * what is copied behind that is work for `io_threads`.
     */
    uint32_t capture_threads;
    /**
     * Optional. With BW_CAPTURE_COW: a write to a tensor waits for no longer than this until its piece is
     * captured (a tier that hangs, a budget far below the state); then all tensors are given free and the save
     * fails. To be above the state divided by the speed of the first tier, unless the budget is as large as
     * the state. Default 30,000 ms; 0: for ever.
     */
    uint64_t capture_wait_ms;
    /**
     * Optional. How far the threads of `io_threads` give way to the trainer's (nice(2)), 0 .. 19; default 10. What
     * training waits for, and the thread that hands work out, do not.
     */
    uint32_t background_nice;
    /** Reserved, 0. */
    uint32_t reserved;
    /**
     * Optional. CPUs on which all threads of this handle run, as a list ("0-3,8"); NULL: those of the thread that
     * opens it. Numbers of threads that are 0 go by it.
     */
    const char *cpus;
    /**
     * Optional. Writes of 4 MiB that a save has in flight to the local tier, 1 .. 64. More than the memory budget holds
     * are not in flight, nor more than 64 of the whole handle. 0: 16, unless a probe finds that another number is
     * clearly better. It writes to a hidden temporary of the local tier, at most 656 MiB, on most disks 112 MiB, on
     * slow ones 16 MiB, and begins nothing after 150 ms; beside the opening, and no longer than until the first
     * bw_save_begin, which does not wait for it. It leaves out what is no file system of this node alone, what lies in
     * memory, is nearly full or is being measured by another rank. bw_checkpointer_stats tells what was chosen and why
     * (`local_io_depth`).
     */
    uint32_t local_io_depth;
    /** Optional. The same for the remote tier, where a drain and a save without a local tier write; 0: 16. */
    uint32_t remote_io_depth;
};

/** Defaults for everything that is optional. */
#define BW_OPTIONS_INIT                                                                                                \
    {                                                                                                                  \
        sizeof(struct bw_options), 0, 0, 0, 0, 0, 0, 0, 0, UINT64_C(268435456), 0, 2, 0, 0, 0, 0, 0, 0,                \
            UINT64_C(300000), UINT64_C(600000), UINT64_C(120000), 0, 0, {0, 0, 0, 0}, 0, 0, UINT64_C(30000), 10, 0, 0, \
            0, 0                                                                                                       \
    }

/** Bytes of a checkpoint id as text, NUL included. */
#define BW_ID_BYTES 64

/**
 * What a launch goes on from, and why. All ranks go on from the same checkpoint; but `committed`
 * and `reason` are what this rank saw when it opened. What was not committed then may be a
 * moment later, so a rank that comes late finds 1 where an earlier one has 0. Decide nothing
 * by them that all ranks must decide alike.
 */
struct bw_resumed {
    uint32_t from_checkpoint; /**< 1: load `id`; 0: start from nothing */
    uint32_t committed;       /**< 1: it was committed; 0: newer than that, held complete by the ranks */
    uint64_t step;            /**< step of the checkpoint */
    char id[BW_ID_BYTES];     /**< its id, or "" */
    uint32_t attempt;         /**< number of the attempt that this launch is now */
    uint32_t world;           /**< world size that it was saved with */
    char reason[256];         /**< one line for people: what was chosen and why */
};

/**
 * Opens a run for one rank of a launch. Blocks until all ranks have arrived and rank 0 has
 * registered the attempt, or until `open_timeout_ms`.
 *
 * Where rank 0 cannot open, the others fail with its status and reason within seconds, once it
 * has come as far as its inventory of the launch. Until then (a wrong option, a store that it
 * does not reach, a local tier that it cannot read) it is as if it had not been started, and may
 * be started again under the same launch id; the others wait for it until their own
 * `open_timeout_ms`. Where another rank cannot open, rank 0 waits until its `open_timeout_ms`,
 * and names it.
 *
 * @param options  borrowed for the call
 * @param ret_ck   set on success; close with bw_checkpointer_close
 * @return 0, or among others: BW_E_INVALID (names the option), BW_E_TIMEOUT (names ranks
 *         that are missing), BW_E_REFUSED (a fresh start over a live run without a label,
 *         tiers on one device), BW_E_SUPERSEDED, BW_E_LAUNCH_LOST, BW_E_NOT_MEMBER,
 *         BW_E_CORRUPT, BW_E_VERSION. Nothing is left behind on failure but this rank's
 *         inventory of the launch.
 */
BW_API int bw_checkpointer_open(const struct bw_options *options, struct bw_checkpointer **ret_ck,
                                struct bw_error *err);

/** What to go on from. Never blocks, cannot fail once the handle is open. */
BW_API void bw_checkpointer_resumed(struct bw_checkpointer *ck, struct bw_resumed *ret_info);

/**
 * Ends the handle: no new saves; what is in flight is drained and committed within
 * `timeout_ms`. Saves that are complete on the local tier by then stay there for the next
 * launch; the others are given up and the other ranks are told. Save handles that were not
 * released are released. Always frees `ck`.
 *
 * @return 0 when everything that was begun is committed, was released without a start, or was
 *         reported as failed before;
 *         else the first failure that no call has reported yet: a background failure never
 *         goes unheard. BW_E_TIMEOUT: something was left for the next launch (the message
 *         says which steps).
 */
BW_API int bw_checkpointer_close(struct bw_checkpointer *ck, uint64_t timeout_ms, struct bw_error *err);

/** Something that happened in the background. */
enum bw_event_type {
    BW_EVENT_LEVEL = 1,      /**< a save has reached `level` */
    BW_EVENT_SAVE_ENDED = 2, /**< a save has ended: status 0 and level COMMITTED, or why it failed */
    BW_EVENT_ATTEMPT = 3,    /**< this attempt cannot go on: status is BW_E_SUPERSEDED or BW_E_LAUNCH_LOST */
    BW_EVENT_NOTE = 4,       /**< something worth a line in a log: damage that was repaired, an eviction, a retry */
};

/** An event, taken from the queue by bw_checkpointer_poll. */
struct bw_event {
    uint32_t type;     /**< enum bw_event_type */
    int32_t status;    /**< 0 or negative enum bw_status */
    uint64_t step;     /**< of the save, where there is one */
    uint32_t level;    /**< enum bw_level that the save has now */
    uint32_t lost;     /**< events dropped before this one, because nobody polled (the queue holds 256) */
    char message[256]; /**< one line, of a longer one whole words and "..."; "" where there is nothing to say */
};

/** An eventfd that is readable while events wait: for poll, epoll or asyncio. Belongs to the handle. */
BW_API int bw_checkpointer_fd(struct bw_checkpointer *ck);

/** Takes the oldest event. Returns 1, or 0 when there is none. Never blocks. */
BW_API int bw_checkpointer_poll(struct bw_checkpointer *ck, struct bw_event *ret_event);

/**
 * Tells the handle that somebody has heard, by a way of his own (MPI, a message between the trainers), that something
 * has happened in the run. It looks into the authority now, instead of when its pause is over: at the history, and on
 * rank 0 at what waits to be committed. Nothing is believed because of it, and nothing is lost without it; a call for
 * nothing costs a few requests, so of many ranks not all should call at one moment. Never blocks.
 */
BW_API void bw_checkpointer_look(struct bw_checkpointer *ck);

/** Counters of a handle since it was opened. */
struct bw_checkpointer_stats {
    uint64_t saves_begun;          /**< begin calls that gave a handle */
    uint64_t saves_committed;      /**< ended COMMITTED */
    uint64_t saves_failed;         /**< ended otherwise, skipped ones not counted */
    uint64_t saves_skipped;        /**< BW_E_SKIPPED */
    uint64_t local_bytes_written;  /**< to the local tier */
    uint64_t remote_bytes_written; /**< to the authority */
    uint64_t remote_bytes_read;    /**< from the authority */
    uint64_t local_store_calls;    /**< operations on the local tier */
    uint64_t remote_store_calls;   /**< operations on the authority */
    uint64_t memory_budget_bytes;  /**< of the arena */
    uint64_t memory_peak_bytes;    /**< most of it that was in use at once */
    char io_backend[32];           /**< what moves the bytes: "io_uring" or "threads" */
    uint32_t capture_threads;      /**< that copy or protect while training waits: those that could be had */
    uint32_t reserved;             /**< 0 */
    char io_lacks[256];            /**< what it goes without, and why: an io_uring, one that knows the memory
                                        budget, threads for capturing that were asked for; "": nothing */
    uint32_t local_io_depth;       /**< writes that a save begins to have in flight to the local tier; 0: none */
    uint32_t remote_io_depth;      /**< writes that a drain has in flight to the remote tier */
    uint64_t local_io_bytes_per_s; /**< that the probe of the local tier saw written; 0: it saw nothing */
    char local_io_why[96];         /**< why `local_io_depth`: "given", "usual: ...", or "measured: ..." */
};

/** Fills the counters. Never blocks for I/O. */
BW_API void bw_checkpointer_stats(struct bw_checkpointer *ck, struct bw_checkpointer_stats *ret_stats);

#ifdef __cplusplus
}
#endif

#endif
