#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saving and loading a PyTorch state by Breakwater and by what its users would otherwise take, side by side.

    ./dev bench pytorch DIR [--mib N] [--rounds N] [--only save|steps|memory|load] [--json FILE]

All ways take turns in one process, in another order each round, on one state whose every byte has changed since the
last save. A package that is not installed is left out, and named.
"""

import argparse
import gc
import logging
import os
import pathlib
import shutil
import statistics
import sys
import threading
import time

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # PyTorch's own switch for large pages: for all ways alike

import figures
import machine
import peers
import torch

LAYERS_OF = 1024  # width of the model whose state this is
PARTS = ("save", "steps", "memory", "load")
STEPS_ALONE = 40


def make_state(nbytes):
    """What a transformer and AdamW's moments hold, in 32 bits: layers until there are so many bytes."""
    width = LAYERS_OF if nbytes >= 1 << 28 else 64
    shapes = {"qkv": (3 * width, width), "out": (width, width), "up": (4 * width, width), "down": (width, 4 * width),
              "norm": (width,), "qkv_bias": (3 * width,), "up_bias": (4 * width,)}  # fmt: skip
    state = {"model": {}, "exp_avg": {}, "exp_avg_sq": {}}
    block, used, layer = torch.rand(1 << 20), 0, 0
    while used < nbytes:
        for name, shape in shapes.items():
            for part in state.values():
                tensor = torch.empty(shape)
                flat = tensor.view(-1)
                for at in range(0, flat.numel(), block.numel()):
                    piece = flat[at:at + block.numel()]
                    piece.copy_(block[:piece.numel()]).add_(float(layer + at))
                part[f"layers.{layer}.{name}"] = tensor
                used += tensor.nbytes
        layer += 1
    return state, used


def change(state):
    for tensor in peers.flat(state).values():
        tensor.mul_(1.0009765625)


def zeros_like(state):
    if isinstance(state, dict):
        return {key: zeros_like(value) for key, value in state.items()}
    return torch.zeros_like(state)


def same(a, b):
    other = peers.flat(b)
    return all(torch.equal(tensor, other[name]) for name, tensor in peers.flat(a).items())


class Bench:
    def __init__(self, args, report):
        self.args, self.report = args, report
        self.state, self.bytes = make_state(args.mib << 20)
        self.step = 0
        self.out = {}

    def open(self, ways):
        """Those that can be had, by their names; Breakwater's always can."""
        opened = {}
        for way in ways:
            lacks = peers.missing(way)
            if lacks is not None:
                self.out[way.name] = lacks
                continue
            home = self.args.dir / f"{len(opened)}-{self.step}"
            more = (self.args.prune, self.bytes) if issubclass(way, peers.Breakwater) else ()
            opened[way.name] = way(home, *more)
        return opened

    def close(self, opened):
        for way in opened.values():
            way.close()
            shutil.rmtree(way.home)

    def turns(self, names):
        """Rounds, each in another order."""
        names = list(names)
        for i in range(self.args.rounds):
            at = i % len(names)
            yield names[at:] + names[:at]

    def once(self, way):
        """Seconds until training may go on, until all is on the disk, and of the processors."""
        self.step += 1
        change(self.state)
        gc.collect()
        os.sync()
        cpu, began = machine.cpu_s(), time.perf_counter()
        wait = way.save(self.state, self.step)
        stalled = time.perf_counter()
        wait()
        ended, used = time.perf_counter(), machine.cpu_s() - cpu
        way.forget(self.step)
        return stalled - began, ended - began, used

    # ---- saves ----

    def saves(self):
        opened = self.open(peers.SAVERS)
        seen = {name: [] for name in opened}
        for way in opened.values():
            self.once(way)  # warms up what it keeps
        for names in self.turns(opened):
            for name in names:
                seen[name].append(self.once(opened[name]))
        captured = {name: way.captured for name, way in opened.items() if isinstance(way, peers.Breakwater)}
        self.close(opened)
        rows = [(name, figures.spread([s[0] for s in all_]), figures.spread([s[1] for s in all_]),
                 f"{statistics.median(s[2] for s in all_) / (self.bytes * 1e-9):.2f}")
                for name, all_ in seen.items()]  # fmt: skip
        self.report.table(f"A save of {self.bytes / 2**20:,.0f} MiB",
                          ("stall, ms", "until durable, ms", "CPU s per GB"), rows)
        for name, (mode, why) in captured.items():
            print(f"  {name}: was captured by {mode}{': ' + why if why else ''}")
        self.report.heading()
        for ours in (peers.Breakwater.name, peers.BreakwaterCow.name):
            for theirs in (n for n, way in opened.items() if not isinstance(way, peers.Breakwater)):
                self._compare_saves(ours, theirs, seen)

    def _compare_saves(self, ours, theirs, seen):
        for i, (what, against, target) in enumerate([("stall", peers.DcpThread.name, 0.2),
                                                     ("until durable", peers.DcpSave.name, 0.5)]):  # fmt: skip
            pairs = figures.Pairs([s[i] for s in seen[ours]], [s[i] for s in seen[theirs]])
            self.report.figure(f"{what}, {ours}", theirs, pairs, self.bytes, target if theirs == against else None)

    # ---- steps of a training beside it ----

    def steps(self):
        opened = self.open([way for way in peers.SAVERS if way.in_background])
        seen = {name: [] for name in opened}
        work = _Work()
        for way in opened.values():
            self.once(way)
        for names in self.turns(opened):
            for name in names:
                alone = work.steps(lambda done: done >= STEPS_ALONE)
                beside = self._steps_beside(opened[name], work)
                seen[name].append([f(beside) / f(alone) for f in (statistics.median, _p99)])
        self.close(opened)
        rows = [(name, *(f"{statistics.median(s[i] for s in all_):.2f} ({min(s[i] for s in all_):.2f} to "
                         f"{max(s[i] for s in all_):.2f})" for i in (0, 1)))
                for name, all_ in seen.items()]  # fmt: skip
        self.report.table("Steps of a computation on all processors while it saves, over steps alone",
                          ("median", "p99"), rows)
        self.report.heading()
        for ours in (peers.Breakwater.name, peers.BreakwaterCow.name):
            for theirs in (n for n, way in opened.items() if not isinstance(way, peers.Breakwater)):
                for i, what in enumerate(("step beside a save", "p99 of steps beside a save")):
                    pairs = figures.Pairs([s[i] for s in seen[ours]], [s[i] for s in seen[theirs]])
                    self.report.figure(f"{what}, {ours}", theirs, pairs, self.bytes)

    def _steps_beside(self, way, work):
        self.step += 1
        change(self.state)
        os.sync()
        wait = way.save(self.state, self.step)
        ended, failed = threading.Event(), []

        def watch():
            try:
                wait()
            except BaseException as e:
                failed.append(e)
            ended.set()

        thread = threading.Thread(target=watch)
        thread.start()
        beside = work.steps(lambda done: ended.is_set() and done >= 10)
        thread.join()
        if failed:
            raise failed[0]
        way.forget(self.step)
        return beside

    # ---- memory ----

    def memory(self):
        """Of the first save, and of what has to be open for it."""
        rows = []
        for kind in peers.SAVERS:
            gc.collect()
            with machine.Peak() as peak:
                opened = self.open([kind])
                for way in opened.values():
                    self.once(way)
            self.close(opened)
            if not opened:
                continue
            rows.append((kind.name, f"{peak.extra_bytes / 2**20:,.0f}"))
            self.report.line(name=f"peak memory, {kind.name}", ratio=round(peak.extra_bytes / self.bytes, 5),
                             low=None, high=None, target=None, at_least=False, met=None, against="the state",
                             bytes=peak.extra_bytes, pairs=1)  # fmt: skip
        self.report.table("Peak memory of a first save, above what was in use before", ("MiB",), rows)

    # ---- loads ----

    def loads(self):
        opened = self.open(peers.LOADERS)
        for way in opened.values():
            self.step += 1
            way.save(self.state, self.step)()
            way.saved = self.step
        target = zeros_like(self.state)
        seen = {name: {"cold": [], "warm": []} for name in opened}
        for names in self.turns(opened):
            for name in names:
                for heat, prepare in (("cold", machine.make_cold), ("warm", machine.make_warm)):
                    seen[name][heat].append(self._load(opened, opened[name], prepare, target))
        self.close(opened)
        rows = [(name, *(figures.spread([s[0] for s in heats[heat]]) for heat in ("cold", "warm")),
                 figures.spread([s[1] or s[0] for s in heats["warm"]])) for name, heats in seen.items()]  # fmt: skip
        self.report.table(f"A load of {self.bytes / 2**20:,.0f} MiB into tensors that are there, ms",
                          ("cold", "warm", "warm, into new tensors"), rows)
        self.report.heading()
        for heat in ("cold", "warm"):
            others = [n for n in opened if n != peers.Breakwater.name]
            fastest = min(others, key=lambda n: statistics.median(s[0] for s in seen[n][heat]))
            for theirs in others:
                targets = [t for n, t in ((peers.DcpSave.name, 0.5), (fastest, 1.0)) if n == theirs]
                pairs = figures.Pairs([s[0] for s in seen[peers.Breakwater.name][heat]],
                                      [s[0] for s in seen[theirs][heat]])  # fmt: skip
                self.report.figure(f"load, {heat}", theirs, pairs, self.bytes, min(targets, default=None))

    def _load(self, opened, way, prepare, target):
        """Seconds until the values are in the target, and until they were in new tensors (None: they never were)."""
        for other in opened.values():
            machine.make_cold(peers.files_below(other.home))
        prepare(peers.files_below(way.home))
        for tensor in peers.flat(target).values():
            tensor.zero_()
        gc.collect()
        began = time.perf_counter()
        had = way.load(way.saved, target)
        ended = time.perf_counter()
        if not same(target, self.state):
            raise RuntimeError(f"{way.name} loaded other values")
        return ended - began, had and had - began


class _Work:
    """Steps of some twenty milliseconds on all processors."""

    def __init__(self):
        self._a, self._times = torch.rand(768, 768), 1
        while self._one() < 0.02:
            self._times += 1

    def _one(self):
        began = time.perf_counter()
        for _ in range(self._times):
            torch.mm(self._a, self._a)
        return time.perf_counter() - began

    def steps(self, enough):
        """Seconds of each, until there are enough."""
        seen = []
        while not enough(len(seen)):
            seen.append(self._one())
        return seen


def _p99(values):
    return sorted(values)[min(len(values) - 1, len(values) * 99 // 100)]


def parse(argv):
    p = argparse.ArgumentParser(prog="bench pytorch", description="Breakwater beside other ways to save and load.")
    p.add_argument("dir", type=pathlib.Path, help="empty, and emptied by whoever gave it")
    p.add_argument("--mib", type=int, default=2048)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--only", choices=PARTS)
    p.add_argument("--json")
    p.add_argument("--prune", required=True, help="the breakwater command")
    args = p.parse_args(argv)
    if args.mib < 1 or not 1 <= args.rounds <= 1000:
        p.error("expected --mib of at least 1, and --rounds from 1 to 1000")
    return args


def main(argv):
    args = parse(argv)
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    report = figures.Report(args.json)
    logging.getLogger().setLevel(logging.ERROR)  # DCP tells of every save
    bench = Bench(args, report)
    report.machine(torch=torch.__version__, bytes=bench.bytes, tensors=len(peers.flat(bench.state)),
                   rounds=args.rounds)  # fmt: skip
    for name, part in {"save": bench.saves, "steps": bench.steps, "memory": bench.memory, "load": bench.loads}.items():
        if args.only in (None, name):
            part()
    for name, lacks in bench.out.items():
        print(f"left out: {name}: {lacks} is not installed")
        report.line(name=f"left out: {name}", lacks=lacks)
    report.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
