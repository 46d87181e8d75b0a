# SPDX-License-Identifier: Apache-2.0
"""Preemption: a signal that the job has to end soon leads to a last save of the same step by all ranks."""

import contextlib
import signal
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from .. import errors
from ._checkpointer import Checkpointer

_KEY = "last step"


class Preemption(contextlib.AbstractContextManager["Preemption"]):
    """Says which step is the last one, once any rank has been told to end::

        with Checkpointer(...) as ck, Preemption(ck, grace_s=25) as preemption:
            for step in ...:
                train()
                last = preemption.is_last(step)
                if last or step % 100 == 0:
                    ck.save(step, state)
                if last:
                    break

    checkpointer  closed at the end of the block within what is left of the grace period, if there was a signal
    grace_s       seconds from the signal until the job is killed, less what ending takes otherwise: torchrun gives 30,
                  Slurm KillWait, Kubernetes terminationGracePeriodSeconds
    signals       what tells it: SIGTERM, or what the scheduler was asked to send before

    Signal handlers are those of the process, so it is made in the main thread; those from before come back at the end.
    """

    def __init__(self, checkpointer: Checkpointer, grace_s: float = 25,
                 signals: Iterable[int] = (signal.SIGTERM,)) -> None:
        if not checkpointer._ranks.can_note:
            raise errors.InvalidError("Preemption: ranks that were given by hand cannot agree on their last step")
        self._checkpointer, self._grace_s = checkpointer, grace_s
        self._told = None  # when the first signal came
        self._last = None
        self._before = {number: signal.signal(number, self._tell) for number in signals}

    def _tell(self, *_):
        if self._told is None:
            self._told = time.monotonic()

    @property
    def left_s(self) -> float | None:
        """Seconds that are left of the grace period; None: nobody has told this rank to end."""
        return None if self._told is None else max(0.0, self._told + self._grace_s - time.monotonic())

    def is_last(self, step: int) -> bool:
        """Whether all ranks end after this step, which has just been made. Call it once after each, on all ranks.

        The ranks have to be in step: in each step is something for which all wait, as the exchange of gradients. One
        that is told to end notes in the store of torch.distributed that the next step is the last, before it goes on:
        nobody has come to that step's end by then, and everybody finds the note there. A rank alone ends at once.
        """
        ranks = self._checkpointer._ranks
        if ranks.world == 1:
            return self._told is not None
        key = f"{_KEY}/{self._checkpointer._launch}"
        if self._last is None:
            noted = ranks.noted(key)
            if noted is None and self._told is not None:
                noted = ranks.note(key, str(step + 1))
            self._last = None if noted is None else int(noted)
            if noted is not None:
                self._tell()  # the others were: time runs for this one as well
        return self._last is not None and step >= self._last

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            if kind is None and self._told is not None:
                self._checkpointer.close(self.left_s)
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def __enter__(self) -> Self:
        return self
