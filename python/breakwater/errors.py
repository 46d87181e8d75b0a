# SPDX-License-Identifier: Apache-2.0
# Made by tools/gen_status.py from tools/status.json. Do not edit.
"""The exceptions: one for each status of the library, all of them Error."""


class Error(Exception):
    """Something that the library says has failed.

    Its text names the object, what was expected and what was found. Where a built-in exception says what kind of
    failure it is, it is one of these as well: a deadline is a TimeoutError, a full disk an OSError.
    """

    status = 0  #: the library's number
    stage = 0  #: part of a flow, a number of enum bw_stage
    os_errno = 0  #: of the system call that failed, or 0
    http_status = 0  #: of an object store's answer, or 0


class InvalidError(Error, ValueError):
    """Invalid argument. An argument is null, out of range, overlaps another one, or contradicts one that was given
    earlier. Nothing was changed; the message names the argument, what was expected and what was found.

    Try again: no.
    """

    status = -1


class StateError(Error):
    """Call not allowed now. The object is in a state in which this call has no meaning: a save that was started
    already, a handle that is closing.

    Try again: once the object is in another state.
    """

    status = -2


class NoMemoryError(Error, MemoryError):
    """Out of memory. An allocation failed. The operation was undone; what existed before is untouched.

    Try again: yes, once memory is free.
    """

    status = -3


class StorageError(Error, OSError):
    """Input/output error. A system call on a tier failed. A failed fsync is final for its file: the save is
    abandoned, never synced again. This is not damage: data that cannot be read now may be readable later.

    Try again: yes; a save as another try of its step.
    """

    status = -4


class NoSpaceError(Error, OSError):
    """No space left. The file system, its quota, or the quota that was set for the local tier is full. What had been
    written of this save was given back.

    Try again: yes, once room is made.
    """

    status = -5


class AccessError(Error, PermissionError):
    """Access denied. The place is read-only or this user may not write or read there.

    Try again: once access is granted.
    """

    status = -6


class NotFoundError(Error, LookupError):
    """Not found. The run, checkpoint, tensor, blob or object that was named does not exist.

    Try again: no.
    """

    status = -7


class ExistsError(Error, FileExistsError):
    """Exists already with other content. An object that is created once exists already and holds other bytes than
    those offered.

    Try again: no.
    """

    status = -8


class CorruptError(Error):
    """Damaged. A hash does not match, or an object that must exist is gone, on every tier that can be reached. The
    message names the object. Never skipped, never served.

    Try again: from another tier (done already where there is one).
    """

    status = -9


class FormatError(Error):
    """Malformed. An object breaks a rule of its format: a length that does not fit, an offset outside the file, a
    duplicate key, a nesting that is too deep. It was refused; nothing outside it was touched.

    Try again: no.
    """

    status = -10


class VersionError(Error):
    """Made by a newer version. The object carries a major format version that this release does not know.

    Try again: with a newer Breakwater.
    """

    status = -11


class DeadlineError(Error, TimeoutError):
    """Deadline passed. A wait reached its deadline. What was waited for goes on: a deadline ends a wait, never a
    save. An open that reaches its deadline has ended, and its launch id is used up.

    Try again: yes; a launch that could not open: all ranks, under a new launch id.
    """

    status = -12


class UnknownOutcomeError(Error):
    """Outcome unknown. No answer came about an operation that may have happened. It is neither reported as done nor
    as failed; the history tells.

    Try again: yes: read the history.
    """

    status = -13


class SupersededError(Error):
    """Superseded by another job. Another job has registered in this run. This job's attempts can never commit again,
    and its restarts are refused.

    Try again: no: only with a takeover on demand.
    """

    status = -14


class LaunchLostError(Error):
    """Another launch of the same job won. Another launch of the same job registered before or after this one. A
    restart of all ranks is right.

    Try again: restart all ranks under a new launch id.
    """

    status = -15


class NotMemberError(Error):
    """This process is not part of the launch. A single rank was restarted alone, or a second process was started
    with the same launch id and rank.

    Try again: restart all ranks under a new launch id.
    """

    status = -16


class AbortedError(Error):
    """The save was aborted. Some group of this try failed or was skipped, or a later step was committed first. Older
    checkpoints are untouched.

    Try again: save the step again or go on with the next.
    """

    status = -17


class SkippedError(Error):
    """The save was skipped. As many saves as allowed are in flight and the policy is to skip.

    Try again: at the next step.
    """

    status = -18


class BusyError(Error):
    """Busy. As many saves as allowed are in flight and the policy is to fail; or another process holds a lock that
    this call needs.

    Try again: yes, later.
    """

    status = -19


class CoverageError(Error, ValueError):
    """Tensors are not covered exactly once. The boxes of the ranks leave a gap in a tensor or overlap. The message
    names the tensor, the boxes and the ranks.

    Try again: no.
    """

    status = -20


class MismatchError(Error, ValueError):
    """Does not match the checkpoint. A tensor is missing, unexpected, or has another dtype or shape than asked for.
    Nothing is cast or dropped.

    Try again: no.
    """

    status = -21


class LimitError(Error):
    """Limit exceeded. A size, count or length is above a documented limit.

    Try again: not with this size.
    """

    status = -22


class UnsupportedError(Error):
    """Not supported. This build, kernel or tier cannot do what was asked for, or a URL names a kind of store that is
    not built in.

    Try again: no.
    """

    status = -23


class ForeignError(Error):
    """Belongs to another life. Data whose uuid is not in the run's lineage, or a store whose id is not that of its
    newest entry (an archive). Never mixed in, never deleted on its own.

    Try again: no.
    """

    status = -24


class RefusedError(Error):
    """Refused by a rule. A rule that protects data forbids the request as it stands, such as a fresh start over a
    live run without a label, or retiring the newest checkpoint. The message names the rule and what would be
    allowed.

    Try again: not as it stands.
    """

    status = -25


class CancelledError(Error):
    """Cancelled. The caller cancelled the operation, or closed the handle while it ran.

    Try again: yes.
    """

    status = -26


class InternalError(Error):
    """Internal error. A broken invariant inside Breakwater. Please report it with the message.

    Try again: no.
    """

    status = -27


_BY_STATUS = {
    error.status: error
    for error in (
        InvalidError,
        StateError,
        NoMemoryError,
        StorageError,
        NoSpaceError,
        AccessError,
        NotFoundError,
        ExistsError,
        CorruptError,
        FormatError,
        VersionError,
        DeadlineError,
        UnknownOutcomeError,
        SupersededError,
        LaunchLostError,
        NotMemberError,
        AbortedError,
        SkippedError,
        BusyError,
        CoverageError,
        MismatchError,
        LimitError,
        UnsupportedError,
        ForeignError,
        RefusedError,
        CancelledError,
        InternalError,
    )
}

def make(status, message, stage=0, os_errno=0, http_status=0):
    """The exception of a status, not raised. A number that this version does not know is an InternalError."""
    error = _BY_STATUS.get(status, InternalError)(message)
    error.status, error.stage, error.os_errno, error.http_status = status, stage, os_errno, http_status
    if os_errno and isinstance(error, OSError):
        error.errno = os_errno
    return error
