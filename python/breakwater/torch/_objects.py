# SPDX-License-Identifier: Apache-2.0
"""What optimizers and schedulers of PyTorch would refuse, or stumble over later, when they are given a state: told
before anything is read."""

import torch

from . import _placement
from ._values import join


def distributed_parameters(optimizer, path):
    """The parameters that are DTensors, by the path of their moments: those lie as they do."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    above = join(path, "state")
    return {join(above, i): p for i, p in enumerate(parameters) if _placement.is_distributed(p)}


def misfits(into, state, path):
    """Texts that say where a state does not fit an object, by path."""
    if isinstance(into, torch.optim.Optimizer):
        return _of_optimizer(into, state, path)
    if isinstance(into, torch.optim.lr_scheduler.LRScheduler):
        return _of_scheduler(into.state_dict(), state, path)
    return []


def _of_optimizer(into, state, path):
    groups, moments = state.get("param_groups"), state.get("state")
    if type(groups) is not list or type(moments) is not dict or not all(map(_is_group, groups)):
        return [f"{path or 'the state'} ({type(into).__name__} here, something else there)"]
    here, there = [len(g["params"]) for g in into.param_groups], [len(g["params"]) for g in groups]
    if here == there:
        return []
    return [f"{path or 'the state'} (parameter groups of {here} here, of {there} there)"]


def _is_group(group):
    return type(group) is dict and type(group.get("params")) is list


#: what a scheduler goes through entry by entry: of its own, of its optimizer, of the schedulers within it
_LISTS = ("lr_lambdas", "base_lrs", "_schedulers")


def _of_scheduler(here, there, path):
    found = []
    for name in _LISTS:
        mine, saved = here.get(name), there.get(name)
        if not isinstance(mine, list):
            continue
        if not isinstance(saved, list) or len(mine) != len(saved):
            what = f"{len(saved)} entries" if isinstance(saved, list) else "nothing"
            found.append(f"{path}.{name} ({len(mine)} entries here, {what} there)".removeprefix("."))
        elif name == "_schedulers":
            for i, (one, other) in enumerate(zip(mine, saved, strict=True)):
                found += _of_scheduler(one, other if isinstance(other, dict) else {}, f"{path}.{name}.{i}")
    return found
