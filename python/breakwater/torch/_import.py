# SPDX-License-Identifier: Apache-2.0
"""A checkpoint from a file that torch.save has written."""

import pathlib
import uuid
from typing import Any

import torch

from .. import errors, runs
from ._checkpointer import Checkpointer
from ._encode import Encoder


def _read(path):
    """What the file holds: weights and plain values, mapped as far as its format allows; code is refused by PyTorch."""
    try:
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:  # the format of before PyTorch 1.6, which cannot be mapped, or no such file at all
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as e:
        first = str(e).strip().partition("\n")[0]
        raise errors.FormatError(f"{path}: expected a file of torch.save with weights and plain values only: {first}"
                                 ) from e


def check_history(url, run, job):
    """A run that is there is entered by a job of its own name only: another one that uses it is superseded."""
    try:
        there = job is None and any(r["run"] == run for r in runs(url))
    except errors.NotFoundError:  # nor is the store
        return
    if there:
        raise errors.InvalidError(f"run \"{run}\" has a history: expected job, the one that makes this checkpoint")


def import_pt(path: str | pathlib.Path, url: str, run: str, step: int, *, under: str | None = None,
              job: str | None = None, local: str | None = None, timeout_s: float | None = None, **options: Any) -> str:
    """Saves what a .pt file of torch.save holds as a checkpoint, and returns its id when it is committed.

    path       the file. It is read with weights_only=True: nothing in it is run, and what would have to be is refused
    url, run   where the checkpoint goes, as in Checkpointer
    step       the training step that it gets; above the newest one of the run
    under      the key that it is loaded by; None: the file's own structure. A model's state_dict that was saved alone
               and given under="model" is loaded by Checkpointer.load({"model": model})
    job        the job that makes it. Needed for a run that is there: another job that uses it is superseded
    timeout_s  how long committing may take; None: for ever
    local, options
               as in Checkpointer

    The tensors are mapped and captured from the file's pages: the file is not held in memory a second time.
    """
    check_history(url, run, job)
    held = _read(path)
    state = held if under is None else {under: held}
    if isinstance(state, torch.Tensor):
        raise errors.InvalidError(f"{path}: it holds a single tensor: expected under, the key that it gets")
    Encoder().encode(state)  # what cannot be saved is refused before there is a run
    with Checkpointer(url, run=run, local=local, rank=0, world=1, job=job or "import",
                      launch=f"import-{uuid.uuid4().hex}", **options) as ck:
        save = ck.save(step, state)
        save.wait("committed", timeout_s)
        id_ = save.stats()["id"]
        save.release()
        return id_
