#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small model on made-up data; killed at any moment and started again, it goes on and ends with the same bits.
Told to end (SIGTERM), it saves once more and does.

    examples/pytorch/train.py DIR [STEPS]    DIR: where the checkpoints go
"""

import sys

import breakwater.torch
import torch

DIR, STEPS = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 50
ONE_DISK = breakwater.ALLOW_SAME_DEVICE | breakwater.ALLOW_NODE_LOCAL  # two tiers on one disk: for demonstrations

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

with breakwater.torch.Checkpointer(f"{DIR}/remote", local=f"{DIR}/local", run="example", flags=ONE_DISK) as ck, \
        breakwater.torch.Preemption(ck, grace_s=25) as preemption:
    state = {"model": model, "optimizer": optimizer, "rng": torch.get_rng_state(), "step": 0}
    if ck.resumed_step is not None:
        torch.set_rng_state(ck.load(state)["rng"])
    for step in range(state["step"] + 1, STEPS + 1):
        x = torch.randn(32, 8)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item().hex()}", flush=True)
        ck.save(step, state | {"rng": torch.get_rng_state(), "step": step})
        if preemption.is_last(step):
            break
