/* SPDX-License-Identifier: Apache-2.0 */
/* Made by tools/gen_status.py from tools/status.json. Do not edit. */
/**
 * @file status.h
 * The status codes: what every function of Breakwater that can fail returns.
 *
 * 0 is success, failures are negative. The numbers are stable for ever; a new
 * code takes the next free number, so a program must be ready for numbers that
 * it does not know and treat them like BW_E_INTERNAL.
 *
 * A code is coarse on purpose: it answers "what may be done about it". What
 * happened to which object stands in the message of struct bw_error.
 *
 * Everything here is a pure function of a number: safe on any thread, nothing
 * to free; the strings are static and never NULL.
 */
#ifndef BW_STATUS_H
#define BW_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Marks what the shared library exports; nothing else is visible outside of it. */
#define BW_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/**
 * What a call came to.
 *
 * "Try again" says whether the same call can succeed later, and when. "Object
 * still usable" says whether the handle that was used may be used on.
 */
enum bw_status {
    /**
     * Success. The call did what it says.
     */
    BW_OK = 0,
    /**
     * Invalid argument. An argument is null, out of range, overlaps another one, or contradicts
     * one that was given earlier. Nothing was changed; the message names the argument, what was
     * expected and what was found.
     *
     * Try again: no.
     * Object still usable: yes.
     */
    BW_E_INVALID = -1,
    /**
     * Call not allowed now. The object is in a state in which this call has no meaning: a save
     * that was started already, a handle that is closing.
     *
     * Try again: once the object is in another state.
     * Object still usable: yes.
     */
    BW_E_STATE = -2,
    /**
     * Out of memory. An allocation failed. The operation was undone; what existed before is
     * untouched.
     *
     * Try again: yes, once memory is free.
     * Object still usable: yes.
     */
    BW_E_NOMEM = -3,
    /**
     * Input/output error. A system call on a tier failed. A failed fsync is final for its file:
     * the save is abandoned, never synced again. This is not damage: data that cannot be read
     * now may be readable later.
     *
     * Try again: yes; a save as another try of its step.
     * Object still usable: yes.
     */
    BW_E_IO = -4,
    /**
     * No space left. The file system, its quota, or the quota that was set for the local tier
     * is full. What had been written of this save was given back.
     *
     * Try again: yes, once room is made.
     * Object still usable: yes.
     */
    BW_E_NOSPACE = -5,
    /**
     * Access denied. The place is read-only or this user may not write or read there.
     *
     * Try again: once access is granted.
     * Object still usable: yes.
     */
    BW_E_ACCESS = -6,
    /**
     * Not found. The run, checkpoint, tensor, blob or object that was named does not exist.
     *
     * Try again: no.
     * Object still usable: yes.
     */
    BW_E_NOTFOUND = -7,
    /**
     * Exists already with other content. An object that is created once exists already and
     * holds other bytes than those offered.
     *
     * Try again: no.
     * Object still usable: yes.
     */
    BW_E_EXISTS = -8,
    /**
     * Damaged. A hash does not match, or an object that must exist is gone, on every tier that
     * can be reached. The message names the object. Never skipped, never served.
     *
     * Try again: from another tier (done already where there is one).
     * Object still usable: yes.
     */
    BW_E_CORRUPT = -9,
    /**
     * Malformed. An object breaks a rule of its format: a length that does not fit, an offset
     * outside the file, a duplicate key, a nesting that is too deep. It was refused; nothing
     * outside it was touched.
     *
     * Try again: no.
     * Object still usable: yes.
     */
    BW_E_FORMAT = -10,
    /**
     * Made by a newer version. The object carries a major format version that this release does
     * not know.
     *
     * Try again: with a newer Breakwater.
     * Object still usable: yes.
     */
    BW_E_VERSION = -11,
    /**
     * Deadline passed. A wait reached its deadline. What was waited for goes on: a deadline
     * ends a wait, never a save. An open that reaches its deadline has ended, and its launch id
     * is used up.
     *
     * Try again: yes; a launch that could not open: all ranks, under a new launch id.
     * Object still usable: yes.
     */
    BW_E_TIMEOUT = -12,
    /**
     * Outcome unknown. No answer came about an operation that may have happened. It is neither
     * reported as done nor as failed; the history tells.
     *
     * Try again: yes: read the history.
     * Object still usable: yes.
     */
    BW_E_UNKNOWN = -13,
    /**
     * Superseded by another job. Another job has registered in this run. This job's attempts
     * can never commit again, and its restarts are refused.
     *
     * Try again: no: only with a takeover on demand.
     * Object still usable: only to close it.
     */
    BW_E_SUPERSEDED = -14,
    /**
     * Another launch of the same job won. Another launch of the same job registered before or
     * after this one. A restart of all ranks is right.
     *
     * Try again: restart all ranks under a new launch id.
     * Object still usable: only to close it.
     */
    BW_E_LAUNCH_LOST = -15,
    /**
     * This process is not part of the launch. A single rank was restarted alone, or a second
     * process was started with the same launch id and rank.
     *
     * Try again: restart all ranks under a new launch id.
     * Object still usable: only to close it.
     */
    BW_E_NOT_MEMBER = -16,
    /**
     * The save was aborted. Some group of this try failed or was skipped, or a later step was
     * committed first. Older checkpoints are untouched.
     *
     * Try again: save the step again or go on with the next.
     * Object still usable: yes.
     */
    BW_E_ABORTED = -17,
    /**
     * The save was skipped. As many saves as allowed are in flight and the policy is to skip.
     *
     * Try again: at the next step.
     * Object still usable: yes.
     */
    BW_E_SKIPPED = -18,
    /**
     * Busy. As many saves as allowed are in flight and the policy is to fail; or another
     * process holds a lock that this call needs.
     *
     * Try again: yes, later.
     * Object still usable: yes.
     */
    BW_E_BUSY = -19,
    /**
     * Tensors are not covered exactly once. The boxes of the ranks leave a gap in a tensor or
     * overlap. The message names the tensor, the boxes and the ranks.
     *
     * Try again: no.
     * Object still usable: yes.
     */
    BW_E_COVERAGE = -20,
    /**
     * Does not match the checkpoint. A tensor is missing, unexpected, or has another dtype or
     * shape than asked for. Nothing is cast or dropped.
     *
     * Try again: no.
     * Object still usable: yes.
     */
    BW_E_MISMATCH = -21,
    /**
     * Limit exceeded. A size, count or length is above a documented limit.
     *
     * Try again: not with this size.
     * Object still usable: yes.
     */
    BW_E_LIMIT = -22,
    /**
     * Not supported. This build, kernel or tier cannot do what was asked for, or a URL names a
     * kind of store that is not built in.
     *
     * Try again: no.
     * Object still usable: yes.
     */
    BW_E_UNSUPPORTED = -23,
    /**
     * Belongs to another life. Data whose uuid is not in the run's lineage, or a store whose id
     * is not that of its newest entry (an archive). Never mixed in, never deleted on its own.
     *
     * Try again: no.
     * Object still usable: yes.
     */
    BW_E_FOREIGN = -24,
    /**
     * Refused by a rule. A rule that protects data forbids the request as it stands, such as a
     * fresh start over a live run without a label, or retiring the newest checkpoint. The
     * message names the rule and what would be allowed.
     *
     * Try again: not as it stands.
     * Object still usable: yes.
     */
    BW_E_REFUSED = -25,
    /**
     * Cancelled. The caller cancelled the operation, or closed the handle while it ran.
     *
     * Try again: yes.
     * Object still usable: yes.
     */
    BW_E_CANCELLED = -26,
    /**
     * Internal error. A broken invariant inside Breakwater. Please report it with the message.
     *
     * Try again: no.
     * Object still usable: only to close it.
     */
    BW_E_INTERNAL = -27,
};

/** The name of a code as it is written in C, such as "BW_E_NOSPACE"; "?" for a number that is no code. */
BW_API const char *bw_status_name(int status);

/** A few words of lower-case English, such as "no space left"; "unknown status" for a number that is no code. */
BW_API const char *bw_status_text(int status);

/**
 * The exit code that a process should end with when it fails with this status,
 * and that the command line does end with:
 *
 *   - 0: success
 *   - 1: failed
 *   - 2: wrong usage
 *   - 3: damaged data
 *   - 4: not found
 *   - 5: superseded by another job or launch
 *
 * 1 for a number that is no code.
 */
BW_API int bw_status_exit_code(int status);

/** Whether and when to try again, such as "yes, once room is made"; "no" for a number that is no code. */
BW_API const char *bw_status_retry_text(int status);

#ifdef __cplusplus
}
#endif

#endif
