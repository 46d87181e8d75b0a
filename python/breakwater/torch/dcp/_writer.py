# SPDX-License-Identifier: Apache-2.0
"""What torch.distributed.checkpoint saves, as saves of the library."""

import contextlib
import inspect
import threading
import time
from types import TracebackType
from typing import Any, Self

import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import WriteItemType
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from ... import Save, errors
from .. import _tensors
from .._checkpointer import TREE, Checkpointer
from .._encode import Encoder
from .._values import refuse
from . import _index
from ._reader import StorageReader

_LOOK_UP_S = 0.1  # how often a waiter looks whether the thread that it waits for is alive


class _Handover:
    """A save that another thread makes: its caller waits until the memory has been captured, or is not needed."""

    def __init__(self):
        self._over, self._thread = threading.Event(), None

    def comes(self):
        """The calling thread makes the save."""
        self._thread = threading.current_thread()

    def over(self):
        """The memory is read no more."""
        self._over.set()

    def join(self, timeout_s):
        """Waits for the end of the save. False: it has not come."""
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def wait(self, timeout_s):
        """A thread that has ended reads nothing either: where planning fails, nobody else says so."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._over.wait(_LOOK_UP_S):
            if self._thread is not None and not self._thread.is_alive():
                return
            if deadline is not None and time.monotonic() > deadline:
                raise errors.DeadlineError(f"the state was not captured within {timeout_s:g} s: it may be read still")


class StorageWriter(dcp.StorageWriter, AsyncStager):
    """The storage_writer of torch.distributed.checkpoint's save and async_save, for all saves of a launch.

    url, run, local, rank, world, job, launch, options
                 as in breakwater.torch.Checkpointer, which this opens: on all ranks, once
    timeout_s    seconds for each of its waits; None: for ever. A save that is late goes on
    synchronize  False: async_save returns before the state is captured; call synchronize_staging before it changes

    The step is save's checkpoint_id: a number, or a path that ends in one. save returns when the checkpoint is
    committed; async_save when the state is captured, and its future ends as save would.
    """

    def __init__(self, url: str, *, run: str, local: str | None = None, timeout_s: float | None = 600,
                 synchronize: bool = True, **options: Any) -> None:
        super().__init__()
        self._timeout_s, self._synchronize_after_execute = timeout_s, synchronize
        self._checkpointer = Checkpointer(url, run=run, local=local, **options)
        self._checkpoint_id, self._step, self._index = None, None, None
        self._save, self._alive = None, []  # the last one, and what it reads
        self._plans = None  # on rank 0: of all ranks
        self._planned, self._finished = None, True  # on rank 0: what others may wait for: a step, or the last save
        self._handover = None  # of an async_save

    # ---- the launch ----

    @property
    def rank(self) -> int:
        """This rank."""
        return self._checkpointer.rank

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self._checkpointer.world

    @property
    def resumed(self) -> dict[str, Any]:
        """What this launch goes on from, and why: a dict, see breakwater.Checkpointer."""
        return self._checkpointer.resumed

    @property
    def resumed_step(self) -> int | None:
        """The step that this launch goes on from, or None when it begins from nothing."""
        return self._checkpointer.resumed_step

    @property
    def last(self) -> Save | None:
        """The last save of this rank, or None: its level, its error, its stats. Another one begins without it."""
        return self._save

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._checkpointer.closed

    def reader(self, *, cast: bool = False) -> StorageReader:
        """The storage_reader of what this launch goes on from. NotFoundError, when it is used: from nothing."""
        return StorageReader._of(self._checkpointer, cast)

    def close(self) -> None:
        """Waits for the save that is being made, drains what is in flight, and ends, within timeout_s each. Raises what
        no call has told yet."""
        self._wait_for_thread()
        self._give_up()
        self._checkpointer.close(self._timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._checkpointer.__exit__(kind, error, trace)

    def __reduce__(self):
        if self._handover is not None:
            self._handover.over()
        raise errors.InvalidError("a StorageWriter stays in its process: expected AsyncCheckpointerType.THREAD")

    # ---- AsyncStager: nothing is cloned ----

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Hands the state on as it is. It is captured from where it lies before synchronize_staging returns."""
        self._wait_for_thread()
        self._handover = _Handover()
        return state_dict

    def synchronize_staging(self) -> None:
        """Waits until the state that async_save was given may change again: it is captured, or will not be saved."""
        if self._handover is not None:
            self._handover.wait(self._timeout_s)

    def _wait_for_thread(self):
        """DCP saves one after the other; so does this."""
        if self._handover is not None and not self._handover.join(self._timeout_s):
            raise errors.DeadlineError(f"the save before this one has not ended within {self._timeout_s:g} s")

    def _came(self):
        if self._handover is not None:
            self._handover.comes()

    # ---- StorageWriter: called by save, in its thread ----

    def reset(self, checkpoint_id: Any = None) -> None:
        """Notes the step. Whatever is wrong with it is told where all ranks hear it."""
        self._came()
        self._checkpoint_id = checkpoint_id

    def storage_meta(self) -> StorageMeta | None:
        """Who asks here makes the save."""
        self._came()
        return StorageMeta(checkpoint_id=self._checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Begins nothing yet: compares what DCP and this rank take for granted."""
        if not kwargs.get("use_collectives", True):
            raise errors.InvalidError("use_collectives=False makes each rank's part a checkpoint of its own: expected "
                                      "True")
        rank = kwargs.get("rank", self.rank)
        if rank != self.rank:
            raise errors.InvalidError(f"this is rank {self.rank} of {self.world} for Breakwater and rank {rank} of the "
                                      "process group that saves: expected the same ranks in both")
        self._step = _index.step_of(self._checkpoint_id)
        self._index, self._plans = None, None
        self._end_last(is_coordinator)

    def _end_last(self, is_coordinator):
        """Where some rank has failed before it wrote, the others wait for it: DCP has told their callers, and the
        library knows of nothing. So rank 0 tells it. All wait until theirs is over: the step can be saved again."""
        if is_coordinator:
            self._give_up()
        save, self._save = self._save, None
        if save is None or save.error is not None:
            return
        try:
            save.wait("committed", self._timeout_s)
        except errors.DeadlineError:
            raise
        except errors.Error:
            pass  # the save that it belongs to has failed

    def _give_up(self):
        planned, self._planned = self._planned, None
        if planned is not None:
            with contextlib.suppress(errors.Error):  # what stands in the way stands in the way of the next save too
                self._checkpointer._core.begin(planned).release()
        elif self._save is not None and not self._finished:
            self._save.cancel()

    def prepare_local_plan(self, plan: dcp.SavePlan) -> dcp.SavePlan:
        """As it is."""
        return plan

    def prepare_global_plan(self, plans: list[dcp.SavePlan]) -> list[dcp.SavePlan]:
        """Plans as they are; rank 0 notes what they come to."""
        if len(plans) != self.world:
            raise errors.InvalidError(f"{len(plans)} ranks save, and this launch has {self.world}: expected all of "
                                      "them")
        self._plans, self._planned = plans, self._step
        return plans

    def write_data(self, plan: dcp.SavePlan, planner: dcp.SavePlanner) -> Future[list[WriteResult]]:
        """Captures, and waits for this rank's data. A save that was begun and not started is heard of by all ranks."""
        try:
            save = self._begin(plan, planner)
        finally:
            if self._handover is not None:
                self._handover.over()
        save.wait("remote", self._timeout_s)
        self._alive.clear()
        future = Future()
        future.set_result([WriteResult(i.index, i.tensor_storage_size() or 0, None) for i in plan.items])
        return future

    def _begin(self, plan, planner):
        self._planned = None  # whatever comes now, the library hears of it
        save = self._checkpointer._core.begin(self._step)
        try:
            boxes, memory = _boxes(plan, planner)
            values = self._encoded(_values(plan, planner))
            self._alive = [memory, values.alive]
            save.keep(self._alive)  # whoever lets go of this first
            save.add([*boxes, *values.tensors])
            save.blob(TREE, values.tree)
            if self._plans is not None:
                self._index = _index_of(self._plans, planner)
                save.blob(_index.BLOB, _index.dump(self._index))
            save.start()
        except BaseException:
            save.release()
            raise
        self._save, self._finished = save, False
        self._wait_writable(save)
        return save

    def _encoded(self, values):
        encoder = Encoder(self.rank, self.world)
        encoded = encoder.encode(values)
        if encoder.distributed:
            raise refuse(encoder.distributed[0], "a DTensor in a value that one rank writes for all; expected it in "
                                                 "dicts and lists only")
        return encoded

    def _wait_writable(self, save):
        try:
            save.wait_writable(self._timeout_s)
        except BaseException:  # whoever hears of it takes the memory for his own again
            save.cancel()
            raise

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Rank 0 waits for the commit. All ranks' data is there by now."""
        if metadata.planner_data != self._index.planner_data and (metadata.planner_data or self._index.planner_data):
            self._save.cancel()
            raise errors.InvalidError("the planner's create_global_plan makes planner_data that differs from the "
                                      "plans': expected its Metadata as the planner's attribute metadata")
        self._save.wait("committed", self._timeout_s)
        self._finished = True

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Whether it says a step."""
        return _index.says_step(checkpoint_id)


def _index_of(plans, planner):
    """The Index of all plans. A planner that keeps plans from save to save gives DCP only those that have changed."""
    if not all(plan.usable for plan in plans):
        plans = getattr(planner, "global_plan", plans)
    if not all(plan.usable for plan in plans):
        raise errors.InvalidError("the planner gives no plans for some ranks: expected all as its attribute "
                                  "global_plan")
    index, metadata = _index.of_plans(plans), getattr(planner, "metadata", None)
    return index._replace(planner_data=metadata.planner_data) if isinstance(metadata, Metadata) else index


# ---- a rank's items ----


def _boxes(plan, planner):
    """(descriptions, memory) of the tensors that a rank writes, each straight from the planner."""
    boxes, alive, names = [], [], set()
    for item in plan.items:
        if item.type == WriteItemType.BYTE_IO:
            continue
        if item.index.fqn in names:
            raise refuse(item.index.fqn, "this rank has several parts of it: expected one box for each rank")
        names.add(item.index.fqn)
        memory = planner.resolve_data(item).detach()
        _check(item, memory)
        memory = _tensors.resolved(memory)
        chunk = item.tensor_data.chunk
        boxes.append(_index.row_of(item).source(chunk.offsets, chunk.sizes).described(memory))
        alive.append(memory)
    return boxes, alive


def _check(item, memory):
    _tensors.check(memory, item.index.fqn)
    data = item.tensor_data
    if memory.dtype != data.properties.dtype or memory.shape != data.chunk.sizes:
        raise refuse(item.index.fqn, f"the planner gives {memory.dtype} {list(memory.shape)}, and has planned "
                                     f"{data.properties.dtype} {list(data.chunk.sizes)}")


def _values(plan, planner):
    """What a rank writes that is no tensor, by name."""
    items = [item for item in plan.items if item.type == WriteItemType.BYTE_IO]
    if _gives_objects(planner):
        return {item.index.fqn: planner.lookup_object(item.index) for item in items}
    return {item.index.fqn: _unpacked(item.index.fqn, planner.resolve_data(item)) for item in items}


def _gives_objects(planner):
    """Whether the bytes that it would give are those of what it looks up, and nothing else."""
    return all(inspect.getattr_static(type(planner), name, None) is inspect.getattr_static(DefaultSavePlanner, name)
               for name in ("resolve_data", "transform_object"))


def _unpacked(fqn, data):
    data.seek(0)
    try:
        return torch.load(data, map_location="cpu", weights_only=True)
    except Exception as e:
        raise refuse(fqn, f"the planner gives bytes that are no plain values: {e}") from None
