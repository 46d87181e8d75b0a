# SPDX-License-Identifier: Apache-2.0
"""Checkpoints for AI training that do not stop it: saved in the background, committed atomically, verified when read.

A rank opens a Checkpointer, loads what it resumed from, and saves::

    ck = breakwater.Checkpointer(run="gpt", job=job, launch=launch, rank=rank, world=world,
                                 local_url="/nvme/bw", remote_url="/lustre/bw")
    tensors = [breakwater.Tensor("w", w), breakwater.Tensor("b", b)]
    if ck.resumed["from_checkpoint"]:
        with ck.restore() as r:
            r.read(tensors)
    ...
    save = ck.save(step, tensors)        # returns once the tensors may be written again
    ...
    save.wait("committed")               # optional: close waits too
    ck.close()

States of PyTorch are saved and loaded by breakwater.torch, which needs PyTorch.

Memory is anything with the buffer protocol, or an address. Times that are given are seconds (`_s`) where one waits,
and milliseconds (`_ms`) in options, as in the C library; sizes are bytes. What can go wrong is an Error: see errors.
"""

import atexit as _atexit
import enum as _enum
import os as _os
import sys as _sys
import warnings as _warnings
import weakref as _weakref

from . import errors
from ._core import Checkpointer as _Checkpointer
from ._core import Reader, Save, Tensor, checkpoints, library_version, runs, verify
from .errors import Error

__all__ = [
    "Capture", "Checkpointer", "Error", "IoBackend", "OnBusy", "OnDamage", "Reader", "Resume", "Save", "Tensor",
    "ALLOW_NODE_LOCAL", "ALLOW_SAME_DEVICE", "NO_RECYCLING", "checkpoints", "errors", "library_version", "runs",
    "verify",
]

ALLOW_SAME_DEVICE = 1  #: both tiers on one device: they fail together
ALLOW_NODE_LOCAL = 2  #: a remote tier on a node's own file system: lost with that node
NO_RECYCLING = 4  #: packs that leave the local tier are deleted, never written over


class Resume(_enum.IntEnum):
    """From where a launch goes on. Everything but NEWEST needs a label."""

    NEWEST = 0
    ROLLBACK = 1
    FRESH = 2
    TAKEOVER = 3


class OnBusy(_enum.IntEnum):
    """What begin does when too many saves are in flight."""

    WAIT = 0
    SKIP = 1
    FAIL = 2


class OnDamage(_enum.IntEnum):
    """What opening does when the newest checkpoint is damaged on every tier."""

    PREVIOUS = 0
    FAIL = 1


class Capture(_enum.IntEnum):
    """How memory is captured: copied at once, or write-protected and copied behind training's back."""

    COPY = 0
    COW = 1


class IoBackend(_enum.IntEnum):
    """What moves the bytes."""

    AUTO = 0
    THREADS = 1
    URING = 2


_open = _weakref.WeakSet()
_os.register_at_fork(after_in_child=_open.clear)  # a child has none: those are its parent's


class Checkpointer(_Checkpointer):
    """A rank's place in one launch of a job.

    Takes the members of `struct bw_options` by name: run, job, launch, rank, world and remote_url are required;
    local_url, memory_budget_bytes, saves_in_flight_max, on_busy, resume, label, open_timeout_ms, capture, keep_last and
    so on are optional. Opening blocks until all ranks have come. One that is open when the interpreter ends is closed
    then, within exit_timeout_s.
    """

    #: seconds that closing at the interpreter's end may take
    exit_timeout_s = 60.0

    def __init__(self, **options):
        super().__init__()
        _open.add(self)

    def save(self, step, tensors, *, blobs=None, metadata=None, timeout_s=None):
        """Saves tensors (a sequence of Tensor), blobs (a dict of bytes) and metadata (JSON text). Returns the Save once
        the tensors may be written again."""
        save = self.begin(step)
        try:
            save.add(tensors)
            for name, data in (blobs or {}).items():
                save.blob(name, data)
            if metadata is not None:
                save.metadata(metadata)
            save.start()
            save.wait_writable(timeout_s)
        except BaseException:
            save.release()
            raise
        return save

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.close()
            return
        try:
            self.close(0)
        except Error as e:
            _tell(f"closing after {kind.__name__}: {e}", 3)


@_atexit.register
def _close_all():
    for ck in list(_open):
        if not ck.closed:
            try:
                ck.close(ck.exit_timeout_s)
            except Exception as e:  # whatever it is, the others are closed as well
                _tell(f"closing at the interpreter's end: {e}", 2)


def _tell(text, level):
    """A warning. Where warnings are errors a line at least: an exception is on its way, or nobody is left to catch."""
    try:
        _warnings.warn(text, RuntimeWarning, stacklevel=level + 1)
    except RuntimeWarning:
        print(f"breakwater: {text}", file=_sys.stderr)
