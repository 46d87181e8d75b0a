/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file save.h
 * Saving: describe, start, go on training, learn how safe it is.
 *
 *     struct bw_save *save;
 *     bw_save_begin(ck, step, &save, &err);
 *     bw_save_tensor(save, &tensor, &err);             (describes memory; copies nothing)
 *     bw_save_blob(save, "rng", bytes, n, &err);
 *     bw_save_start(save, &err);                       (returns at once)
 *     bw_save_wait_writable(save, 60000, &err);        (now the tensors may change)
 *     ... train ...
 *     bw_save_wait(save, BW_COMMITTED, 600000, &err);  (optional: close waits too)
 *     bw_save_release(save);
 *
 * Life of a save
 *   begun -> started -> CAPTURED -> LOCAL -> REMOTE -> COMMITTED
 *   Any state may lead to "failed" instead. A failed save never stops the training,
 *   leaves older checkpoints untouched, and is reported by its handle, by the next
 *   bw_save_begin (as an event), by the events and by close.
 *
 * Rules
 *   - All ranks of the launch save the same steps. Steps rise within a handle; only the
 *     highest step begun may be saved again (after a failure, with the same state).
 *   - Each rank describes the same tensors in every save of a launch, or others: a new
 *     description costs one more object, nothing else.
 *   - Every element of every tensor is described by exactly one rank, except where
 *     `replica_count` says that several hold the same bytes: then one of them writes it.
 *     Gaps and overlaps are found before the commit (BW_E_COVERAGE), never ignored.
 *   - Steps commit in order: committing a step ends uncommitted saves of lower steps.
 *
 * Guarantees
 *   - A save holds exactly the values that the described memory had at bw_save_start,
 *     provided that nobody changes it until bw_save_wait_writable has returned.
 *   - A level is announced only when it is true (tensor.h says what each survives).
 *   - A deadline ends a wait, never a save.
 *
 * Threads: any thread; calls on one save are serialised inside.
 */
#ifndef BW_SAVE_H
#define BW_SAVE_H

#include <breakwater/checkpointer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One save of one step. Opaque; released with bw_save_release. */
struct bw_save;

/**
 * Memory of this rank that belongs to a tensor. All pointers are borrowed: names, shapes
 * and strides for the call, `data` until the save is CAPTURED or has failed.
 * Zero-initialise, then set.
 */
struct bw_tensor {
    /** Required. sizeof(struct bw_tensor). */
    uint32_t struct_size;
    /** Required. enum bw_dtype. */
    uint32_t dtype;
    /** Required. UTF-8, 1 .. 8192 bytes, any character but NUL. */
    const char *name;
    /** Required unless the box is empty. The element with index 0 in every dimension of the box. */
    const void *data;
    /** Required. Number of dimensions, 0 .. 16; 0 is a scalar of one element. */
    uint32_t dims;
    /** Optional. BW_TENSOR_DEVICE or 0. */
    uint32_t flags;
    /** Required when dims > 0. The tensor's global shape. */
    const uint64_t *shape;
    /** Optional. Where this rank's box begins; NULL: at 0. */
    const uint64_t *offset;
    /** Optional. How far this rank's box reaches; NULL: the whole shape (then offset is NULL or 0). */
    const uint64_t *extent;
    /** Optional. Bytes from one index to the next, per dimension, any sign; NULL: row-major without gaps. */
    const int64_t *stride_bytes;
    /**
     * Optional. How many ranks hold these same bytes; 0 and 1: only this one. All of them describe the
     * tensor alike; one of them, computed alike by all, writes it.
     */
    uint32_t replica_count;
    /** This rank's place among them, 0 .. replica_count - 1. */
    uint32_t replica_index;
    /**
     * Optional. A number for the set of ranks that replicate together. Writers are balanced by bytes among
     * the tensors of one (replica_count, replica_group); every rank of a set must describe the same
     * tensors with it. One set of all ranks (plain data parallelism) needs no number: leave it 0.
     */
    uint64_t replica_group;
};

/**
 * A device, a network card or another process may write this memory while it is captured (pinned or
 * registered memory): with BW_CAPTURE_COW it is copied all the same, because such writes pass by the
 * protection. Shared mappings and those of files are recognised without it.
 */
#define BW_TENSOR_DEVICE UINT32_C(1)

/** A zeroed tensor with its struct_size. */
#define BW_TENSOR_INIT                                                                                                 \
    { sizeof(struct bw_tensor), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

#ifndef __cplusplus
/**
 * The commonest tensor, whole and row-major: its shape comes last, one number or more.
 *
 *     bw_save_tensor(save, &BW_TENSOR_OF("layer.0.weight", BW_F32, weight, rows, columns), &err);
 *
 * It lives until the end of the block in which it is written. C only: C++ has no such literals.
 */
#define BW_TENSOR_OF(tensor_name, tensor_dtype, memory, ...)                                                           \
    ((struct bw_tensor){.struct_size = sizeof(struct bw_tensor),                                                       \
                        .dtype = (tensor_dtype),                                                                       \
                        .name = (tensor_name),                                                                         \
                        .data = (memory),                                                                              \
                        .dims = (uint32_t)(sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)),                \
                        .shape = (const uint64_t[]){__VA_ARGS__}})
#endif

/**
 * Begins a save of `step` (at most BW_STEP_MAX). When too many saves are in flight,
 * `on_busy` of the options decides.
 *
 * @return 0; BW_E_SKIPPED, BW_E_BUSY; BW_E_INVALID (a step above BW_STEP_MAX);
 *         BW_E_REFUSED (a step below the highest one begun, or not above what was committed or
 *         resumed from); BW_E_SUPERSEDED, BW_E_LAUNCH_LOST (this attempt is over: stop
 *         training); BW_E_STATE (closing, or this step is being saved).
 */
BW_API int bw_save_begin(struct bw_checkpointer *ck, uint64_t step, struct bw_save **ret_save, struct bw_error *err);

/**
 * Describes memory. Two tensors with equal data, dtype, extent and strides are saved as one
 * and come back as two.
 *
 * @return 0; BW_E_INVALID (names the tensor and the member: unknown dtype, a box outside
 *         the shape, a null pointer, a name twice in this rank, sizes that overflow);
 *         BW_E_LIMIT; BW_E_STATE after start. After a failure the save can still be used;
 *         the tensor is not part of it.
 */
BW_API int bw_save_tensor(struct bw_save *save, const struct bw_tensor *tensor, struct bw_error *err);

/**
 * Adds bytes under a name that is unique in this rank: random number generators, positions
 * in the data, anything that is not a tensor. Each rank has its own blobs. `bytes` is
 * borrowed until CAPTURED; NULL is allowed when n is 0.
 */
BW_API int bw_save_blob(struct bw_save *save, const char *name, const void *bytes, size_t n, struct bw_error *err);

/**
 * Sets this rank's metadata: a JSON object as text, at most 1 MiB, copied. It comes back in
 * canonical form (sorted keys, no blanks). Integers must fit 64 bits with a sign; other
 * numbers become doubles, written with the fewest digits that bring them back. BW_E_INVALID when it is not such a JSON
 * object.
 */
BW_API int bw_save_metadata(struct bw_save *save, const char *json, struct bw_error *err);

/**
 * Starts the save and returns at once. From here until bw_save_wait_writable has returned nobody may
 * change what was described, and until CAPTURED it must stay where it is. BW_E_INVALID if tensors or
 * blobs contradict each other; BW_E_NOSPACE is found later, in the background, and so is all that
 * planning finds (BW_E_LIMIT, BW_E_NOMEM) with BW_CAPTURE_COW: the waits say so.
 */
BW_API int bw_save_start(struct bw_save *save, struct bw_error *err);

/**
 * Waits until the save has reached `level` or a higher one.
 *
 * @param timeout_ms  0 asks without waiting
 * @return 0; BW_E_TIMEOUT (the save goes on); the save's own failure (BW_E_NOSPACE,
 *         BW_E_IO, BW_E_ABORTED: another rank failed or a later step was committed first,
 *         BW_E_SUPERSEDED, BW_E_LAUNCH_LOST, BW_E_COVERAGE, BW_E_CANCELLED); BW_E_UNKNOWN (the
 *         history cannot be read: it may be committed). Gaps and overlaps are BW_E_COVERAGE on
 *         rank 0, and BW_E_ABORTED with the same reason on the others.
 *         Without a local tier waiting for BW_LOCAL returns at BW_REMOTE.
 */
BW_API int bw_save_wait(struct bw_save *save, enum bw_level level, uint64_t timeout_ms, struct bw_error *err);

/** The level that the save has now. A save that failed keeps the last one that was true. Never blocks. */
BW_API enum bw_level bw_save_level(struct bw_save *save);

/** The save's failure: 0 and *err untouched while it is alive or committed. Never blocks. */
BW_API int bw_save_error(struct bw_save *save, struct bw_error *err);

/**
 * Waits until the tensors may be written again, at most `timeout_ms`: until CAPTURED where they are
 * copied, until they are write-protected with BW_CAPTURE_COW. Freed or unmapped they may be only once
 * CAPTURED. This is all that a training loop waits for in a save.
 *
 * @return 0; BW_E_TIMEOUT: not yet; or the save's failure, after which they may be written as well.
 */
BW_API int bw_save_wait_writable(struct bw_save *save, uint64_t timeout_ms, struct bw_error *err);

/** Times and sizes of one save on this rank. Times are 0 until the point was reached. */
struct bw_save_stats {
    uint64_t step;              /**< the training step */
    char id[BW_ID_BYTES];       /**< checkpoint id, "" before start */
    uint64_t raw_bytes;         /**< bytes that this rank writes: what other replicas write is not counted */
    uint64_t described_bytes;   /**< bytes of all that this rank described */
    uint64_t tensors;           /**< tensors described */
    uint64_t objects_local;     /**< objects created on the local tier */
    uint64_t objects_remote;    /**< objects created in the authority by this rank */
    uint64_t stall_ns;          /**< start until the tensors may be written: what the training waits for */
    uint64_t capture_ns;        /**< start to CAPTURED: how long the tensors were needed */
    uint64_t local_ns;          /**< start to LOCAL */
    uint64_t remote_ns;         /**< start to REMOTE */
    uint64_t committed_ns;      /**< start to COMMITTED, as seen by this rank */
    uint64_t arena_wait_ns;     /**< time during which capturing waited for buffers */
    uint64_t protect_ns;        /**< "cow": how long write-protecting took; part of the stall */
    uint64_t copied_bytes;      /**< "cow": bytes that could not be protected and were copied at once */
    uint64_t writes_caught;     /**< "cow": writes that came to what was not captured yet */
    uint64_t writes_waited;     /**< "cow": of them, those that waited for the capture */
    uint64_t write_wait_max_ns; /**< "cow": the longest of these waits */
    char capture_mode[16];      /**< mode that really ran: "copy" or "cow" */
    char capture_why[96];       /**< why not "cow", although BW_CAPTURE_COW was asked for */
    char write_path[32];        /**< path that the bytes really took to the first tier, once they have:
                                     "io_uring" or "threads"; "direct" (past the page cache), "buffered" or "direct
                                     in part" */
    uint32_t tiers;             /**< bit 0: the local tier holds it, bit 1: the authority does */
    uint32_t reserved;          /**< 0 */
    uint64_t from_memory_bytes; /**< bytes that went to the second tier straight from memory; the others were
                                     read from the first */
    uint64_t recycled_bytes; /**< of what lies on the local tier, bytes that were written into the files of packs that
                                  went (see BW_NO_RECYCLING) */
};

/** Fills times and sizes as known so far. Never blocks. */
BW_API void bw_save_stats(struct bw_save *save, struct bw_save_stats *ret_stats);

/**
 * Gives the save up: it ends with BW_E_CANCELLED unless it is committed already, or with
 * BW_E_UNKNOWN where nobody can tell whether it was; the other ranks learn of it. Waits until
 * this rank's memory is no longer read, so the tensors may be freed afterwards.
 *
 * @return 0, for a save that is committed or has failed already too; BW_E_TIMEOUT (the
 *         capture does not end: the memory is still read). How the save ended is told a moment
 *         later, by its handle and by the events.
 */
BW_API int bw_save_cancel(struct bw_save *save, struct bw_error *err);

/**
 * Lets go of the handle; the save goes on. A save that was never started is dropped (the
 * other ranks learn of it). Before CAPTURED this waits for the capture, because the
 * caller's memory is still read. NULL is allowed.
 */
BW_API void bw_save_release(struct bw_save *save);

#ifdef __cplusplus
}
#endif

#endif
