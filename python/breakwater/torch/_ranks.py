# SPDX-License-Identifier: Apache-2.0
"""Which rank this is, and what all ranks of a launch have to know alike. All that ranks say to each other is here.

They say it through the store of torch.distributed, where all of them are known: no collective, no connection of their
own, nothing on a GPU. The store may be older than the ranks: torchrun's lives on while it restarts its workers, with
all that those before have left in it.
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import secrets
import socket
import time

import torch.distributed as dist

from .. import errors

_NAME_BYTES = 128
_LOOK_UP_S = 0.02  # how often rank 0 looks whether others have come
_SLICE_S = 0.5  # how long another rank waits before signals are answered


class Alone:
    """One rank, or ranks that need not be asked because they were told everything."""

    def __init__(self, rank=0, world=1):
        self.rank, self.world = rank, world
        self.can_note = world == 1  # as nobody else has to find it

    def agree(self, text):
        """The text of rank 0."""
        return text


class Group:
    """The ranks of torch.distributed."""

    can_note = True

    def __init__(self, run, timeout_s):
        self.rank, self.world, self._timeout_s = dist.get_rank(), dist.get_world_size(), timeout_s
        store = dist.distributed_c10d._get_default_store()
        if store is None:
            raise errors.InvalidError("torch.distributed has no store for this backend: give rank, world, job, launch")
        self._store = dist.PrefixStore(f"breakwater/{run}", store)

    def agree(self, text):
        """The text of rank 0, on all ranks. DeadlineError: some have not come.

        Each rank asks under a word of its own, so it can take no old answer for its own. Rank 0 answers whatever it
        finds asked, and is done with a rank once that has said that it heard this very answer.
        """
        deadline = time.monotonic() + self._timeout_s
        if self.rank != 0:
            return self._ask(deadline)
        self._tell(f"{secrets.token_hex(8)} {text}", deadline)
        return text

    def note(self, key, text):
        """Notes a text for all ranks, unless another is noted already. What is noted."""
        return self._store.compare_set(key, "", text).decode()

    def noted(self, key):
        """What is noted for all ranks, or None."""
        return self._store.get(key).decode() if self._store.check([key]) else None

    def _ask(self, deadline):
        word = secrets.token_hex(8)
        self._store.set(f"ask/{self.rank}", word)
        while not self._is_told(word):
            if time.monotonic() > deadline:
                raise errors.DeadlineError(f"rank 0 did not say within {self._timeout_s:g} s which launch this is")
        told = self._store.get(f"told/{word}").decode()
        self._store.set(f"heard/{word}", told)
        return told.partition(" ")[2]

    def _is_told(self, word):
        try:
            self._store.wait([f"told/{word}"], datetime.timedelta(seconds=_SLICE_S))
        except RuntimeError as e:  # a store in a file says so with an error of no kind of its own
            if isinstance(e, dist.DistStoreError) or str(e) == "Wait timeout":
                return False
            raise
        return True

    def _tell(self, text, deadline):
        left = range(1, self.world)
        while left := [rank for rank in left if not self._has_heard(rank, text)]:
            if time.monotonic() > deadline:
                more = f" and {len(left) - 5} more" if len(left) > 5 else ""
                raise errors.DeadlineError(f"ranks {', '.join(map(str, left[:5]))}{more} have not come within "
                                           f"{self._timeout_s:g} s")
            time.sleep(_LOOK_UP_S)

    def _has_heard(self, rank, text):
        if not self._store.check([f"ask/{rank}"]):
            return False
        word = self._store.get(f"ask/{rank}").decode()
        if self._store.check([f"heard/{word}"]) and self._store.get(f"heard/{word}").decode() == text:
            return True
        self._store.set(f"told/{word}", text)
        return False


def find(rank, world, run, timeout_s):
    """The ranks of this launch: as told, as torch.distributed has them, or this one alone."""
    if (rank is None) != (world is None):
        raise errors.InvalidError("rank and world: expected both or neither")
    if rank is not None:
        return Alone(rank, world)
    if dist.is_available() and dist.is_initialized():
        return Group(run, timeout_s)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise errors.InvalidError("WORLD_SIZE says that there are several ranks, but torch.distributed has no process "
                                  "group: call init_process_group first, or give rank, world, job and launch")
    return Alone()


def identity(ranks, job, launch):
    """(job, launch), the same on all ranks: what rank 0 was told, or finds out and draws."""
    if isinstance(ranks, Alone) and ranks.world > 1 and not (job and launch):
        raise errors.InvalidError("job and launch: expected, when rank and world are given by hand")
    told = json.dumps([job or job_of_launcher(), launch or secrets.token_hex(10)])
    return tuple(json.loads(ranks.agree(told)))


def job_of_launcher(environ=os.environ):
    """What the launcher keeps over its restarts, as an id: its own where that is unique, else who it is."""
    run_id = environ.get("TORCHELASTIC_RUN_ID", "none")
    if run_id not in ("", "none"):
        return as_id(f"torchrun-{run_id}")
    if environ.get("SLURM_JOB_ID"):
        return as_id(f"slurm-{environ.get('SLURM_CLUSTER_NAME', '')}-{environ['SLURM_JOB_ID']}")
    return as_id(f"parent-{socket.gethostname()}-{os.getppid()}-{_life_of(os.getppid())}")


def _life_of(pid):
    """What no other process shares that has, or gets, the same number: its boot, its namespace, and when it began."""
    parts = []
    for read in (lambda: pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip(),
                 lambda: os.readlink("/proc/self/ns/pid"),
                 lambda: pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]):
        try:
            parts.append(read())
        except OSError:
            parts.append("")
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def as_id(text):
    """A text in the form of an id; what had to be changed for that is told apart by a hash."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", text)
    if name == text and len(name) <= _NAME_BYTES:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    return f"{name[:_NAME_BYTES - 17]}-{digest}"
