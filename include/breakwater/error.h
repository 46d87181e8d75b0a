/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file error.h
 * The error object: what went wrong, where, and on which object.
 *
 * Every function of Breakwater that can fail returns 0 or a negative
 * `enum bw_status`, and fills the `struct bw_error` that its caller passes as
 * the last argument. That pointer may be NULL when the caller does not care.
 *
 *     struct bw_error err = BW_ERROR_INIT;
 *     if (bw_checkpointer_open(&options, &ck, &err) < 0)
 *         fprintf(stderr, "%s\n", err.message);
 *
 * Guarantees
 *   - The first error wins: nothing that happens during clean-up overwrites it.
 *   - A function clears the object when it begins: after success it says that nothing failed, after
 *     a failure it holds that failure, whatever an earlier call left in it.
 *   - No allocation: the object has a fixed size and may be copied with `=`.
 *
 * Messages are one line, lower case, context outermost first. They name the
 * object, what was expected and what was found:
 *
 *     save step 1200: write pack "runs/gpt/data/...": no space left on device
 *
 * Threads: an error object belongs to its caller; calls on different threads
 * must be given different objects.
 */
#ifndef BW_ERROR_H
#define BW_ERROR_H

#include <breakwater/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of a message, its final NUL included. Longer messages are cut. */
#define BW_ERROR_MESSAGE_BYTES 496

/**
 * The part of a flow in which an error arose (see doc/flows/). It tells a
 * program that wants to react without parsing the message what was going on.
 */
enum bw_stage {
    BW_STAGE_NONE = 0,    /**< argument checks and other work outside of a flow */
    BW_STAGE_OPEN = 1,    /**< opening stores, launch, resolve, register */
    BW_STAGE_PLAN = 2,    /**< turning a description of tensors into a layout */
    BW_STAGE_CAPTURE = 3, /**< copying the caller's memory */
    BW_STAGE_WRITE = 4,   /**< writing packs and their metadata to the first tier */
    BW_STAGE_DRAIN = 5,   /**< copying a group to the next tier */
    BW_STAGE_COMMIT = 6,  /**< index, manifest, history entry */
    BW_STAGE_RESTORE = 7, /**< reading a checkpoint back */
    BW_STAGE_VERIFY = 8,  /**< checking hashes and coverage */
    BW_STAGE_PRUNE = 9,   /**< retiring, sweeping, evicting */
};

/** What went wrong. Owned by the caller; plain memory without pointers. */
struct bw_error {
    int32_t status;      /**< a negative enum bw_status, or 0 when nothing failed */
    int32_t os_errno;    /**< errno of the system call that failed, or 0 */
    int32_t http_status; /**< HTTP status of an object store's answer, or 0 */
    int32_t stage;       /**< enum bw_stage */
    /** One line of UTF-8, NUL-terminated, empty when nothing failed. */
    char message[BW_ERROR_MESSAGE_BYTES];
};

/** An error object in which nothing has failed. */
#define BW_ERROR_INIT                                                                                                  \
    {                                                                                                                  \
        0, 0, 0, 0, {                                                                                                  \
            0                                                                                                          \
        }                                                                                                              \
    }

/** Sets *err back to "nothing failed". NULL is allowed. */
BW_API void bw_error_clear(struct bw_error *err);

/**
 * Writes a description for people, of several lines at most, into `buf`:
 * message, code, and what may be done about it. Returns the length that the
 * whole text has, like snprintf; `buf` is always NUL-terminated when
 * `buf_bytes` is above 0.
 */
BW_API size_t bw_error_format(const struct bw_error *err, char *buf, size_t buf_bytes);

#ifdef __cplusplus
}
#endif

#endif
