# SPDX-License-Identifier: Apache-2.0
"""Ways to save a state and to load it again: Breakwater's, and what PyTorch's users would otherwise take.

A saver's save(state, directory, step) returns when training may go on, and gives a function that waits until all of it
is on the disk, fsync included; for those that sync nothing themselves the benchmark does it. A loader's load(directory,
target) brings what lies there into tensors that are there already, and tells when it had them in new ones, if it did.
"""

import os
import pathlib
import shutil
import subprocess
import time
import warnings

import breakwater
import breakwater.torch
import torch
import torch.distributed.checkpoint as dcp

warnings.filterwarnings("ignore")

ONE_DISK = breakwater.ALLOW_NODE_LOCAL  # the disk of this machine stands for one that others see
RUN = "bench"
WAIT_S = 600  # for a save of Breakwater's; the others have no deadline of their own


def flat(state, prefix=""):
    """The tensors of a nested dict, by their paths."""
    found = {}
    for key, value in state.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def files_below(directory):
    return [p for p in sorted(pathlib.Path(directory).rglob("*")) if p.is_file() and not p.is_symlink()]


def sync(directory):
    """Makes all below a directory durable."""
    for path in [*files_below(directory), *(d for d in pathlib.Path(directory).rglob("*") if d.is_dir()),
                 pathlib.Path(directory)]:  # fmt: skip
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def fill(target, values):
    """Copies new tensors into those of a state."""
    for name, tensor in flat(target).items():
        tensor.copy_(values[name])


class Way:
    """One way to do it. `home` is a directory of its own."""

    name = ""
    in_background = False  # training goes on while it saves

    def __init__(self, home):
        self.home = pathlib.Path(home)
        self.home.mkdir(parents=True)

    def at(self, step):
        return self.home / str(step)

    def forget(self, step):
        """Deletes all steps but this one."""
        for old in self.home.iterdir():
            if old != self.at(step):
                shutil.rmtree(old)

    def close(self):
        """Nothing is used after it."""


class TorchSave(Way):
    name = "torch.save, fsync"

    def save(self, state, step):
        self.at(step).mkdir()
        with open(self.at(step) / "state.pt", "wb") as f:
            torch.save(state, f)
        sync(self.at(step))
        return lambda: None

    def load(self, step, target):
        read = torch.load(self.at(step) / "state.pt", weights_only=True, mmap=True)
        had = None  # they are mapped, and read by being copied
        fill(target, flat(read))
        return had


class Safetensors(Way):
    name = "safetensors, fsync"

    def save(self, state, step):
        from safetensors.torch import save_file

        self.at(step).mkdir()
        save_file(flat(state), self.at(step) / "state.safetensors")
        sync(self.at(step))
        return lambda: None

    def load(self, step, target):
        from safetensors.torch import load_file

        read = load_file(self.at(step) / "state.safetensors")
        had = time.perf_counter()
        fill(target, read)
        return had


class FastSafetensors(Safetensors):
    """Loads what safetensors saved."""

    name = "fastsafetensors"

    def load(self, step, target):
        from fastsafetensors import SafeTensorsFileLoader, SingleGroup

        loader = SafeTensorsFileLoader(SingleGroup(), torch.device("cpu"), nogds=True)
        try:
            loader.add_filenames({0: [str(self.at(step) / "state.safetensors")]})
            buffers = loader.copy_files_to_device()
            read = {name: buffers.get_tensor(name) for name in flat(target)}
            had = time.perf_counter()
            fill(target, read)
            buffers.close()
        finally:
            loader.close()
        return had


class ModelStreamer(Safetensors):
    """Loads what safetensors saved."""

    name = "runai-model-streamer"

    def load(self, step, target):
        from runai_model_streamer import SafetensorsStreamer

        into = flat(target)
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(str(self.at(step) / "state.safetensors"))
            for name, tensor in streamer.get_tensors():
                into[name].copy_(tensor)


class DcpSave(Way):
    name = "DCP save, sync_files"

    def writer(self, step):
        return dcp.FileSystemWriter(self.at(step), sync_files=True)

    def save(self, state, step):
        dcp.save(state, storage_writer=self.writer(step))
        return lambda: None

    def load(self, step, target):
        dcp.load(target, storage_reader=dcp.FileSystemReader(self.at(step)))


class DcpThread(DcpSave):
    name = "DCP async_save, thread"
    in_background = True
    kind = "THREAD"

    def save(self, state, step):
        from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

        future = dcp.async_save(state, storage_writer=self.writer(step),
                                async_checkpointer_type=AsyncCheckpointerType[self.kind])  # fmt: skip
        return future.result


class DcpProcess(DcpThread):
    name = "DCP async_save, process"
    kind = "PROCESS"


class Torchsnapshot(Way):
    name = "torchsnapshot async_take, fsync"
    in_background = True

    def save(self, state, step):
        from torchsnapshot import Snapshot, StateDict

        pending = Snapshot.async_take(str(self.at(step)), {"state": StateDict(**flat(state))})

        def wait():
            pending.wait()
            sync(self.at(step))

        return wait

    def load(self, step, target):
        from torchsnapshot import Snapshot, StateDict

        Snapshot(str(self.at(step))).restore({"state": StateDict(**flat(target))})


class Breakwater(Way):
    name = "Breakwater, copy"
    in_background = True
    capture = breakwater.Capture.COPY

    def __init__(self, home, command, state_bytes):
        super().__init__(home)
        self._command = command
        self._checkpointer = breakwater.torch.Checkpointer(
            str(self.home), run=RUN, flags=ONE_DISK, keep_last=1, saves_in_flight_max=1, capture=self.capture,
            memory_budget_bytes=self.budget_bytes(state_bytes))

    @staticmethod
    def budget_bytes(state_bytes):
        """Training waits for what does not fit: with this all of it does."""
        return state_bytes + (64 << 20)

    def save(self, state, step):
        save = self._checkpointer.save(step, state)

        def wait():
            save.wait("committed", WAIT_S)
            self.captured = save.stats()["capture_mode"], save.stats()["capture_why"]
            save.release()

        return wait

    def load(self, step, target):
        breakwater.torch.load_from(str(self.home), RUN, step, state=target)

    def forget(self, step):
        done = subprocess.run([self._command, "prune", "--yes", "--grace", "0", RUN, "--remote", str(self.home)],
                              capture_output=True, text=True, check=False)  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"prune: {done.stderr}")

    def close(self):
        self._checkpointer.close()


class BreakwaterCow(Breakwater):
    name = "Breakwater, cow"
    capture = breakwater.Capture.COW

    @staticmethod
    def budget_bytes(state_bytes):
        """What is written while it is captured, and the ends of tensors that share a large page with others."""
        return state_bytes // 2 + (64 << 20)


OURS = (Breakwater, BreakwaterCow)
SAVERS = (TorchSave, Safetensors, DcpSave, DcpThread, DcpProcess, Torchsnapshot, *OURS)
LOADERS = (TorchSave, Safetensors, FastSafetensors, ModelStreamer, DcpSave, Torchsnapshot, Breakwater)
_NEEDS = {Safetensors: "safetensors", FastSafetensors: "fastsafetensors", ModelStreamer: "runai_model_streamer",
          Torchsnapshot: "torchsnapshot"}  # fmt: skip


def missing(way):
    """The package that a way needs and that is not installed, or None."""
    import importlib.util

    wanted = _NEEDS.get(way)
    lacks = [p for p in (wanted, "safetensors" if issubclass(way, Safetensors) else None) if p]
    return next((p for p in lacks if importlib.util.find_spec(p) is None), None)
