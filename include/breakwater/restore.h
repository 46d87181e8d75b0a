/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file restore.h
 * Reading a checkpoint: any box of any tensor, whatever the world size it was saved with.
 *
 *     struct bw_restore *restore;
 *     bw_restore_open(ck, &restore, &err);             (the checkpoint that the launch resumes from)
 *     bw_restore_check(restore, expected, n, 0, &err); (strict: names, dtypes, shapes)
 *     bw_restore_read(restore, slices, n, &err);       (boxes into strided memory)
 *     bw_restore_blob(restore, rank, "rng", buf, sizeof buf, &got, &err);
 *     bw_restore_close(restore);
 *
 * bw_reader_open opens any checkpoint of any run, read-only, without an attempt and
 * without disturbing a training job; it gives the same object.
 *
 * Guarantees
 *   - Every byte that is handed out was verified against the hash chain that begins in the
 *     run's history. A mismatch is BW_E_CORRUPT and names the object.
 *   - Each extent comes from the nearest tier that has it sound. Where the local copy was
 *     damaged it is served from the remote tier, and put right if the handle may write.
 *   - Nothing is cast and nothing dropped silently.
 *   - All that one object reads is one checkpoint. If that is retired and swept away
 *     meanwhile, reading fails with BW_E_NOTFOUND; it never continues with another.
 *   - Memory stays within the budget, whatever the size of the checkpoint.
 *
 * When a read fails, the destination's contents are undefined.
 *
 * Deadlines: opening a reader ends by `io_timeout_ms` even where a mount does not answer. Later
 * calls end by it too, but wait for what hangs in the kernel at that moment: it may still write
 * to the destination, which the caller would otherwise free under it. So does closing.
 *
 * Threads: any thread; calls on one object are serialised inside.
 */
#ifndef BW_RESTORE_H
#define BW_RESTORE_H

#include <breakwater/checkpointer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** An open checkpoint. Opaque; closed with bw_restore_close. */
struct bw_restore;

/**
 * Opens the checkpoint that `ck` resumed from. BW_E_NOTFOUND when it resumed from nothing.
 * The checkpointer must stay open until the object is closed. A checkpoint that is not
 * committed yet may be read; data that lies only on another node's disk is waited for, at
 * most `open_timeout_ms`.
 */
BW_API int bw_restore_open(struct bw_checkpointer *ck, struct bw_restore **ret_restore, struct bw_error *err);

/**
 * Which checkpoint of which run a reader opens. Initialise with BW_READER_OPTIONS_INIT;
 * strings are borrowed for the call.
 */
struct bw_reader_options {
    uint32_t struct_size;         /**< set by BW_READER_OPTIONS_INIT */
    uint32_t flags;               /**< reserved, 0 */
    const char *run;              /**< Required. */
    const char *remote_url;       /**< Required. The authority, or an archive of it. */
    const char *local_url;        /**< Optional. A nearer tier to read from first. */
    const char *id;               /**< Optional. A checkpoint id, live or shelved; NULL: by step. */
    uint64_t step;                /**< Optional. The live checkpoint of this step; UINT64_MAX: the newest live one. */
    uint64_t memory_budget_bytes; /**< Optional. Default 256 MiB, at least 64 MiB; touched as needed. */
    uint64_t io_timeout_ms; /**< Optional. Without any progress for so long a call fails; default 120,000, 0: never. */
    uint32_t io_threads;    /**< Optional. 0: by the number of CPUs. */
    uint32_t io_backend;    /**< Optional. enum bw_io_backend; default BW_IO_AUTO. */
};

/** Defaults for everything that is optional: the newest live checkpoint. */
#define BW_READER_OPTIONS_INIT                                                                                         \
    { sizeof(struct bw_reader_options), 0, 0, 0, 0, 0, UINT64_MAX, UINT64_C(268435456), UINT64_C(120000), 0, 0 }

/**
 * Opens a checkpoint of any run read-only. BW_E_NOTFOUND: no such run, nothing committed,
 * or no such step; BW_E_TIMEOUT: a tier does not answer.
 */
BW_API int bw_reader_open(const struct bw_reader_options *options, struct bw_restore **ret_restore,
                          struct bw_error *err);

/** Closes and frees. NULL is allowed. */
BW_API void bw_restore_close(struct bw_restore *restore);

/** What a checkpoint is. */
struct bw_checkpoint_info {
    char id[BW_ID_BYTES]; /**< checkpoint id */
    uint64_t step;        /**< training step */
    uint32_t attempt;     /**< attempt that made it */
    uint32_t world;       /**< ranks that saved it */
    uint32_t groups;      /**< groups whose data it consists of */
    uint32_t committed;   /**< 1 once its commit token exists */
    uint64_t raw_bytes;   /**< of all tensors and blobs, ties counted once */
    uint64_t tensors;     /**< number of tensors */
};

/** Facts about the open checkpoint. The first call may read metadata. */
BW_API int bw_restore_info(struct bw_restore *restore, struct bw_checkpoint_info *ret_info, struct bw_error *err);

/** A tensor of the checkpoint. Pointers are valid until the object is closed. */
struct bw_tensor_info {
    const char *name;      /**< NUL-terminated UTF-8 */
    uint32_t dtype;        /**< enum bw_dtype */
    uint32_t dims;         /**< number of dimensions */
    const uint64_t *shape; /**< global shape; NULL when dims is 0 */
    uint64_t bytes;        /**< of the whole tensor */
    uint32_t boxes;        /**< boxes that it was saved in */
    uint32_t reserved;     /**< 0 */
};

/**
 * The i-th tensor in bytewise order of names. BW_E_NOTFOUND when i is not below `tensors` of
 * bw_restore_info.
 */
BW_API int bw_restore_tensor_at(struct bw_restore *restore, uint64_t i, struct bw_tensor_info *ret_tensor,
                                struct bw_error *err);

/** The tensor of that name, or BW_E_NOTFOUND. Reads the one block of the index that it needs. */
BW_API int bw_restore_tensor(struct bw_restore *restore, const char *name, struct bw_tensor_info *ret_tensor,
                             struct bw_error *err);

/**
 * Where a box of a tensor lies: for tools that show it. `offset` and `extent` have `dims`
 * elements, valid until close.
 */
struct bw_box_info {
    const uint64_t *offset; /**< where the box begins */
    const uint64_t *extent; /**< how far it reaches */
    uint32_t group;         /**< group that wrote it */
    uint32_t item;          /**< its number in that group's layout */
};

/** The i-th box of a tensor. */
BW_API int bw_restore_box_at(struct bw_restore *restore, const char *name, uint32_t i, struct bw_box_info *ret_box,
                             struct bw_error *err);

/** A tensor that the caller expects. */
struct bw_expected {
    const char *name;      /**< Required. */
    uint32_t dtype;        /**< Required. enum bw_dtype */
    uint32_t dims;         /**< Required. */
    const uint64_t *shape; /**< Required when dims > 0. Global shape. */
};

/** The checkpoint may hold tensors that are not expected: for loading a part, such as the weights only. */
#define BW_CHECK_SUBSET UINT32_C(1)

/**
 * Compares what is expected with what is there, before a byte is read. BW_E_MISMATCH names
 * the first tensor that is missing, unexpected, or of another dtype or shape, both sides,
 * and how many more there are.
 */
BW_API int bw_restore_check(struct bw_restore *restore, const struct bw_expected *expected, size_t n, uint32_t flags,
                            struct bw_error *err);

/** A box of a tensor and the memory that it goes to. Zero-initialise, then set. */
struct bw_slice {
    uint32_t struct_size;        /**< Required. sizeof(struct bw_slice) */
    uint32_t dtype;              /**< Required. The tensor's dtype: another one is BW_E_MISMATCH. */
    const char *name;            /**< Required. */
    void *data;                  /**< Required unless empty. Element 0 of the box. */
    uint32_t dims;               /**< Required. The tensor's number of dimensions. */
    uint32_t reserved;           /**< 0 */
    const uint64_t *shape;       /**< Optional. The tensor's global shape, checked where given. */
    const uint64_t *offset;      /**< Optional. NULL: 0. */
    const uint64_t *extent;      /**< Optional. NULL: the whole tensor. */
    const int64_t *stride_bytes; /**< Optional. NULL: row-major without gaps. Elements must not overlap. */
};

/** A zeroed slice with its struct_size. */
#define BW_SLICE_INIT                                                                                                  \
    { sizeof(struct bw_slice), 0, 0, 0, 0, 0, 0, 0, 0, 0 }

#ifndef __cplusplus
/**
 * A whole tensor into row-major memory: what BW_TENSOR_OF has saved, with its shape last. Lives
 * until the end of the block in which it is written. C only.
 */
#define BW_SLICE_OF(tensor_name, tensor_dtype, memory, ...)                                                            \
    ((struct bw_slice){.struct_size = sizeof(struct bw_slice),                                                         \
                       .dtype = (tensor_dtype),                                                                        \
                       .name = (tensor_name),                                                                          \
                       .data = (memory),                                                                               \
                       .dims = (uint32_t)(sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)),                 \
                       .shape = (const uint64_t[]){__VA_ARGS__}})
#endif

/**
 * Reads boxes of tensors into memory; many at once are read in the order in which they lie.
 * Destinations must not overlap (checked for the outer bounds of slices that are
 * contiguous; BW_E_INVALID names both). In a checkpointer it waits until the saves that have been
 * started are CAPTURED, for the memory may be theirs: BW_E_TIMEOUT after `io_timeout_ms`.
 */
BW_API int bw_restore_read(struct bw_restore *restore, const struct bw_slice *slices, size_t n, struct bw_error *err);

/** A blob of the checkpoint. `name` is valid until close. */
struct bw_blob_info {
    const char *name;  /**< NUL-terminated UTF-8 */
    uint32_t rank;     /**< rank that saved it */
    uint32_t reserved; /**< 0 */
    uint64_t bytes;    /**< its length */
};

/**
 * Number of blobs of all ranks. Reads the layouts and contents of all groups on its first call:
 * a rank that wants its own blobs asks for them by name instead.
 */
BW_API int bw_restore_blob_count(struct bw_restore *restore, uint64_t *ret_count, struct bw_error *err);

/** The i-th blob, ordered by (rank, name). Reads the layouts of all groups on its first call. */
BW_API int bw_restore_blob_at(struct bw_restore *restore, uint64_t i, struct bw_blob_info *ret_blob,
                              struct bw_error *err);

/**
 * Reads a blob of a rank. `*ret_bytes` is its length; when that is above `buf_bytes`
 * nothing is read and the call fails with BW_E_LIMIT with *ret_bytes set (the one exception
 * to outputs on success only), so a first call with 0 asks for the length. BW_E_NOTFOUND:
 * the rank has no such blob; a rank beyond the world that saved has none. Waits for captures as
 * bw_restore_read does.
 */
BW_API int bw_restore_blob(struct bw_restore *restore, uint32_t rank, const char *name, void *buf, size_t buf_bytes,
                           size_t *ret_bytes, struct bw_error *err);

/**
 * The metadata of a rank as canonical JSON text ("{}" when it gave none), valid until close.
 * BW_E_NOTFOUND: a rank beyond the world that saved.
 */
BW_API int bw_restore_metadata(struct bw_restore *restore, uint32_t rank, const char **ret_json, struct bw_error *err);

/** Counters of one restore object. */
struct bw_restore_stats {
    uint64_t local_bytes;      /**< read from the local tier */
    uint64_t remote_bytes;     /**< read from the remote tier */
    uint64_t verified_bytes;   /**< hashed and found sound */
    uint64_t metadata_objects; /**< manifests, indices, layouts, contents, placements, summaries read */
    uint64_t damaged_extents;  /**< found damaged on some tier and served from another */
    uint64_t repaired_objects; /**< local copies that were put right */
    uint64_t read_ns;          /**< time inside bw_restore_read */
};

/** Fills the counters. Waits for a call on the same object that is running. */
BW_API void bw_restore_stats(struct bw_restore *restore, struct bw_restore_stats *ret_stats);

#ifdef __cplusplus
}
#endif

#endif
