#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT, sharded with FSDP2 over the ranks of torchrun, and saves it with torch.distributed.checkpoint.

    torchrun --nproc-per-node N examples/pytorch/gpt.py DIR [--steps N] [--every N] [--hash]

Killed at any moment and started again, with as many ranks or with another number of them, it goes on from the newest
checkpoint in DIR. On SIGTERM it saves once more and ends. A batch is made from the step's number, and each rank takes
its part of it, so that a run may be repeated: with as many ranks it ends with the same bits. --hash prints a hash of
all weights and moments, whole, after loading and at the end: it does not depend on the number of ranks.
"""

import argparse
import hashlib
import signal

import breakwater.torch.dcp
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 64, 96, 4, 3, 32, 12
ONE_DISK = breakwater.ALLOW_SAME_DEVICE | breakwater.ALLOW_NODE_LOCAL  # two tiers on one disk: for demonstrations


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        heads = [t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).clone()  # FSDP's hooks want no view


def batch(step, rank, world):
    """This rank's part of the step's sequences: each counts on from some number in steps of another."""
    drawn = torch.Generator().manual_seed(step)
    begin, stride = (torch.randint(1, VOCABULARY, (BATCH, 1), generator=drawn) for _ in range(2))
    return ((begin + stride * torch.arange(CONTEXT + 1)) % VOCABULARY).tensor_split(world)[rank]


def whole_hash(model, optimizer):
    """Of every weight and moment by name, put together from all ranks."""
    found = hashlib.sha256()
    for part in get_state_dict(model, optimizer):
        for name, value in sorted(flat(part, "").items()):
            tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
            found.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def flat(state, path):
    below = state.items() if isinstance(state, dict) else ()
    tensors = {path: state} if isinstance(state, torch.Tensor) else {}
    for key, value in below:
        tensors |= flat(value, f"{path}.{key}")
    return tensors


def train(args, writer, rank, world):
    model = GPT()
    for part in (*model.blocks, model):
        fully_shard(part)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def state():
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments}

    step = 0
    if writer.resumed_step is not None:
        loaded = state()
        dcp.load(loaded, storage_reader=writer.reader())
        set_state_dict(model, optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
        step = writer.resumed_step
        report(args, rank, f"resumed step {step} on {world} ranks", model, optimizer)
    asked = torch.zeros(1)  # for the end, by SIGTERM to any of the ranks
    signal.signal(signal.SIGTERM, lambda *_: asked.fill_(1))
    saving, planning = None, dist.new_group()  # DCP's exchange of plans must not meet that of the training
    while step < args.steps:
        step += 1
        x = batch(step, rank, world)
        logits = model(x[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten(), reduction="sum") / (BATCH * CONTEXT) * world
        loss.backward()  # FSDP takes the mean over the ranks
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach() / world
        dist.all_reduce(mean)
        ends = asked.clone()
        dist.all_reduce(ends, op=dist.ReduceOp.MAX)
        if rank == 0:
            print(f"step {step} loss {mean.item():.4f} {mean.item().hex()}", flush=True)
        if step % args.every == 0 or step == args.steps or ends.item():
            if saving is not None:
                saving.result()
            saving = dcp.async_save(state(), checkpoint_id=step, storage_writer=writer, process_group=planning)
        if ends.item():
            break
    if saving is not None:
        saving.result()
    report(args, rank, f"ended with step {step}", model, optimizer)


def report(args, rank, what, model, optimizer):
    told = f" hash {whole_hash(model, optimizer)}" if args.hash else ""
    if rank == 0:
        print(what + told, flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("dir")
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--every", type=int, default=10)
    p.add_argument("--hash", action="store_true")
    args = p.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with breakwater.torch.dcp.StorageWriter(f"{args.dir}/remote", local=f"{args.dir}/local", run="gpt",
                                            flags=ONE_DISK, memory_budget_bytes=64 << 20) as writer:
        train(args, writer, dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
