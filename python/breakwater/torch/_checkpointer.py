# SPDX-License-Identifier: Apache-2.0
"""Checkpointer and load_from: a training job's state into a run, and back."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from .. import Checkpointer as _Core
from .. import Reader, Save, errors
from . import _ranks
from ._decode import Document, Loader
from ._encode import Encoder
from ._reading import read

Paths = str | Sequence[str]  #: "model", or ["model", "optimizer.state"]

TREE = "tree"  #: name of the blob
_OPEN_TIMEOUT_MS = 300_000


def _prefixes(what, given):
    """A tuple of paths, or None."""
    if given is None:
        return None
    paths = (given,) if isinstance(given, str) else () if isinstance(given, bool) else tuple(given)
    if given is True or not all(isinstance(p, str) and p for p in paths):
        raise errors.InvalidError(f"{what}: expected paths such as \"model\" or \"model.head\", found {given!r}")
    return paths


def _load(reader, rank, state, *, only, strict, shared_only):
    """Reads the state of a rank; into `state` unless that is None."""
    document = Document(reader.blob(rank, TREE))
    loader = Loader(document, _prefixes("only", only), strict)
    own = loader.own_part(document.tree) if shared_only else None
    if own is not None:
        raise errors.MismatchError(
            f"{own} belongs to one rank alone, and the checkpoint was saved by {document.world} ranks: say whose to "
            "take (from_rank), load what is replicated (only), or save with replicated")
    reader.check(document.stand_ins(), subset=True)
    loaded = loader.build(document.tree) if state is None else loader.fill(state, document.tree)
    loader.check()
    read(reader, loader.reads)
    loader.finish()
    return loaded


class Checkpointer:
    """This rank's place in a launch of a training job.

    url         URL or absolute path of the remote tier, the same for all ranks
    local       URL or path of the node's own disk; None: saves go straight to the remote tier
    run         the run's name: what is resumed is its newest checkpoint
    replicated  what all ranks hold alike, as paths ("model", or ["model", "optimizer"]) or True for everything: saved
                once, the work shared. Everything else is each rank's own, but for DTensors, which are one tensor of all
                ranks wherever they lie. Nobody checks that the bytes are the same
    rank, world, job, launch
                as in breakwater.Checkpointer. By default rank and world are those of torch.distributed (0 of 1 without
                a process group), and rank 0 draws the launch. The job is the launcher's where it has a unique one
                (TORCHELASTIC_RUN_ID, SLURM_JOB_ID), else rank 0's parent process: torchrun's agent, or the shell
    options     any other option of breakwater.Checkpointer

    Blocks until all ranks have come, at most open_timeout_ms. Calls belong to one thread at a time. What is open when
    the interpreter ends is closed then.
    """

    def __init__(self, url: str, *, run: str, local: str | None = None, replicated: bool | Paths = (),
                 rank: int | None = None, world: int | None = None, job: str | None = None, launch: str | None = None,
                 **options: Any) -> None:
        timeout_s = options.get("open_timeout_ms", _OPEN_TIMEOUT_MS) / 1000
        replicated = True if replicated is True else _prefixes("replicated", replicated) or ()
        self._ranks = _ranks.find(rank, world, run, timeout_s)
        job, launch = _ranks.identity(self._ranks, job, launch)
        self._launch = launch
        self._core = _Core(run=run, job=job, launch=launch, rank=self._ranks.rank, world=self._ranks.world,
                           local_url=local, remote_url=url, **options)
        self._resumed = self._core.resumed
        self._encoder = Encoder(self._ranks.rank, self._ranks.world, replicated)
        self._held = []  # (save, tensors) that are not captured yet

    @property
    def rank(self) -> int:
        """This rank."""
        return self._ranks.rank

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self._ranks.world

    @property
    def resumed(self) -> dict[str, Any]:
        """What this launch goes on from, and why: a dict, see breakwater.Checkpointer."""
        return self._resumed

    @property
    def resumed_step(self) -> int | None:
        """The step that this launch goes on from, or None when it begins from nothing."""
        return self._resumed["step"] if self._resumed["from_checkpoint"] else None

    def save(self, step: int, state: Any, *, wait: bool = True, timeout_s: float | None = None) -> Save:
        """Saves a state, and returns a breakwater.Save once the state may change again.

        state      dict, list or tuple, nested, of tensors, NumPy arrays, plain values, and of objects with state_dict
                   and load_state_dict (modules, optimizers, schedulers)
        wait       False: returns at once; call wait_writable of what is returned before anything is changed
        timeout_s  seconds that waiting may take; None: for ever

        InvalidError names the path of what cannot be saved; nothing has begun then. Others: see breakwater.Save.
        """
        self._let_go()
        plan = self._encoder.encode(state)
        save = self._core.begin(step)
        try:
            save.keep(plan.alive)  # whoever lets go of this first
            save.add(plan.tensors)
            save.blob(TREE, plan.tree)
            save.start()
            if wait:
                save.wait_writable(timeout_s)
        except BaseException:
            save.release()
            raise
        self._held.append((save, plan.alive))
        self._let_go()
        return save

    def load(self, state: Any = None, *, only: Paths | None = None, strict: bool = True,
             from_rank: int | None = None) -> Any:
        """Loads what this launch goes on from: into `state`, or without one as a new state of CPU tensors.

        state      as in save. Tensors and writable arrays are read into where they are, dicts and lists are changed,
                   objects get load_state_dict; a None takes whatever was saved. Nothing is touched if anything is
                   missing, unexpected, or of another dtype or shape, or if an optimizer has other parameter groups or a
                   scheduler other parts: MismatchError names them by path. What an object of another kind refuses
                   when it is given its state, it refuses after everything has been read
        only       a path, or several, such as "model": loads what is under them and nothing else. A dot in a key is
                   like one between keys. Parts of a module can be named, not those of an optimizer or a scheduler
        strict     False: what is missing or unexpected is left alone
        from_rank  whose state to take, after a change of the number of ranks; None: this rank's. A state of which
                   everything asked for is replicated or sharded needs none: a DTensor reads its own part, whatever
                   mesh it was saved from

        Returns the state. NotFoundError: this launch begins from nothing (see resumed_step).
        """
        self._let_go()
        with self._core.restore() as reader:
            saved = reader.info()["world"]
            rank = self.rank % saved if from_rank is None else from_rank
            other = from_rank is None and saved != self.world
            return _load(reader, rank, state, only=only, strict=strict, shared_only=other)

    def poll(self) -> dict[str, Any] | None:
        """The oldest event of the background as a dict, or None."""
        return self._core.poll()

    def stats(self) -> dict[str, Any]:
        """Counters since it was opened, as a dict."""
        self._let_go()
        return self._core.stats()

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._core.closed

    def close(self, timeout_s: float | None = 600) -> None:
        """Drains what is in flight for at most timeout_s seconds (None: for ever), and ends. Raises what no call has
        told yet."""
        try:
            self._core.close(timeout_s)
        finally:
            self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            self._core.__exit__(kind, error, trace)
        finally:
            self._forget()

    def _forget(self):
        if self._core.closed:  # the extension itself keeps what is read still
            self._held.clear()

    def _let_go(self):
        """Tensors are kept as long as they are read."""
        self._held = [(save, alive) for save, alive in self._held if _is_read(save)]


def _is_read(save):
    try:
        return save.level == "none" and save.error is None
    except ValueError:  # released, after it was captured
        return False


def load_from(url: str, run: str, step: int | None = None, *, state: Any = None, rank: int = 0,
              only: Paths | None = None, strict: bool = True, local: str | None = None, **options: Any) -> Any:
    """Loads from any checkpoint of any run, without a job and without disturbing one: that of a step, or the newest.

    rank        whose state, 0 .. the world size that saved it - 1
    state, only, strict
                as in Checkpointer.load
    local, options
                as in breakwater.Reader: id, memory_budget_bytes, ...
    """
    with Reader(url, run, step, local_url=local, **options) as reader:
        return _load(reader, rank, state, only=only, strict=strict, shared_only=False)
