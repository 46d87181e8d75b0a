# SPDX-License-Identifier: Apache-2.0
"""Which rank this is, and what all ranks of a launch have to know alike. All collectives are here.

They run on a Gloo group of their own with a deadline, so they meet neither the training's own collectives nor a GPU.
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import secrets
import socket

import torch
import torch.distributed as dist

from .. import errors

_TEXT_BYTES = 1024
_NAME_BYTES = 128


class Alone:
    """One rank, or ranks that need not be asked because they were told everything."""

    def __init__(self, rank=0, world=1):
        self.rank, self.world = rank, world

    def agree(self, text):
        """The text of rank 0."""
        return text


class Group:
    """The ranks of torch.distributed. Made by all of them, in the same order among their own groups."""

    def __init__(self, timeout_s):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self._group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=timeout_s))

    def agree(self, text):
        """The text of rank 0, on all ranks. Raises RuntimeError when the deadline of the group has passed."""
        data = text.encode()
        if len(data) > _TEXT_BYTES:
            raise errors.LimitError(f"expected at most {_TEXT_BYTES} bytes to send to all ranks, found {len(data)}")
        sent = torch.frombuffer(bytearray(data.ljust(_TEXT_BYTES, b"\0")), dtype=torch.uint8)
        dist.broadcast(sent, src=0, group=self._group)
        return bytes(sent.tolist()).rstrip(b"\0").decode()


def find(rank, world, timeout_s):
    """The ranks of this launch: as told, as torch.distributed has them, or this one alone."""
    if (rank is None) != (world is None):
        raise errors.InvalidError("rank and world: expected both or neither")
    if rank is not None:
        return Alone(rank, world)
    if dist.is_available() and dist.is_initialized():
        return Group(timeout_s)
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
