# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of PyTorch's states::

    with breakwater.torch.Checkpointer("/lustre/bw", local="/nvme/bw", run="gpt") as ck:
        state = {"model": model, "optimizer": optimizer, "rng": torch.get_rng_state(), "step": 0}
        if ck.resumed_step is not None:
            ck.load(state)
        ...
        state["step"] = step
        ck.save(step, state)

Tensors are captured from their own memory: no clone, no pickle, nothing that could run when it is read. What has no
form of its own in a checkpoint is refused by its path before anything is saved. doc/flows/pytorch.md says how states
are written.
"""

from ._checkpointer import Checkpointer, load_from
from ._import import import_pt
from ._preemption import Preemption

__all__ = ["Checkpointer", "Preemption", "import_pt", "load_from"]
