#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a save of many tensors costs in Python before the library is called: a model, and its optimizer's moments.

    PYTHONPATH=build/python .venv-torch/bin/python bench/torch_walk.py [TENSORS] [ROUNDS]

Prints medians: of a save whose structure is that of the one before, of the first one, and of what PyTorch itself takes
to give the states.
"""

import statistics
import sys
import time

import torch
from breakwater.torch import _encode

TENSORS = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 15


class Model(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(layers))


def measured(call):
    """(wall, processor) milliseconds, medians."""
    taken = []
    for i in range(ROUNDS):
        wall, processor = time.perf_counter(), time.process_time()
        call(i)
        taken.append(((time.perf_counter() - wall) * 1e3, (time.process_time() - processor) * 1e3))
    return tuple(statistics.median(column) for column in zip(*taken, strict=True))


def main():
    model = Model(TENSORS // 8)  # weights and biases, and with Adam three more for each
    optimizer = torch.optim.AdamW(model.parameters())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    encoder, fresh = _encode.Encoder(), _encode.Encoder
    states = {"model": model, "optimizer": optimizer}
    given = {name: one.state_dict() for name, one in states.items()}
    count = len(encoder.encode(given | {"step": 0}).tensors)
    rows = {"as the save before": lambda i: encoder.encode(given | {"step": i}),
            "the first save": lambda i: fresh().encode(given | {"step": i}),
            "state_dict() of PyTorch": lambda _: [one.state_dict() for one in states.values()]}
    print(f"{count} tensors, median of {ROUNDS}     wall ms  processor ms")
    for name, call in rows.items():
        print("{:36s}{:8.1f}{:14.1f}".format(name, *measured(call)))


if __name__ == "__main__":
    main()
