#!/usr/bin/env python3
"""Trains on MNIST in PyTorch what `lockstep train` trains by default: the same network, samples, batch and schedule.

Prints one JSON line an epoch: training seconds (scoring not counted), samples a second, loss and top-1 on the test images.
PyTorch is given its best: all images lie normalized in memory, so that no data loader's time is counted; the memory format
is the faster one of a short trial; the optimizer is the fused one.
"""
import argparse
import gzip
import json
import math
import pathlib
import struct
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MEAN, DEVIATION = 0.1307, 0.3081


def read_idx(path):
    """The bytes of an IDX file, plain or gzip, in its shape."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    rank = raw[3]
    shape = struct.unpack(f">{rank}I", raw[4 : 4 + 4 * rank])
    return torch.frombuffer(bytearray(raw[4 + 4 * rank :]), dtype=torch.uint8).reshape(shape)


def read_split(directory, part):
    """Normalized images (n, 1, 28, 28) and labels of one split."""
    files = [next(iter(sorted(directory.glob(f"{part}-{kind}*ubyte*")))) for kind in ("images", "labels")]
    images, labels = (read_idx(file) for file in files)
    return ((images.float() / 255 - MEAN) / DEVIATION).unsqueeze(1), labels.long()


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(inplace=True), nn.Linear(500, 10),
    )


def score(model, images, labels):
    """Mean loss and share of right answers."""
    model.eval()
    loss, right = 0.0, 0
    with torch.inference_mode():
        for x, y in zip(images.split(1000), labels.split(1000)):
            out = model(x)
            loss += F.cross_entropy(out, y, reduction="sum").item()
            right += (out.argmax(1) == y).sum().item()
    return loss / len(labels), right / len(labels)


class Trainer:
    """A model in one memory format with its optimizer."""

    def __init__(self, args, memory_format):
        torch.manual_seed(args.seed)
        self.args, self.memory_format = args, memory_format
        self.model = lenet().to(memory_format=memory_format)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=args.momentum,
                                         weight_decay=args.weight_decay, fused=True)

    def step(self, x, y, rate):
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(self.model(x.contiguous(memory_format=self.memory_format)), y).backward()
        self.optimizer.step()

    def train(self, images, labels, first_step, total_steps, most_steps=None):
        """One epoch (or its beginning) in a new order; returns its steps."""
        self.model.train()
        batches = torch.randperm(len(labels)).split(self.args.batch)[:most_steps]
        for number, ids in enumerate(batches, first_step):
            # Half a cosine from the first step's rate to zero.
            rate = self.args.lr * (1 + math.cos(math.pi * number / total_steps)) / 2
            self.step(images[ids], labels[ids], rate)
        return len(batches)


def faster_format(args, images, labels):
    """The memory format that takes less time for 60 steps, after 20 to warm up."""
    seconds = {}
    for memory_format in (torch.contiguous_format, torch.channels_last):
        trial = Trainer(args, memory_format)
        trial.train(images, labels, 0, 100, most_steps=20)
        began = time.perf_counter()
        trial.train(images, labels, 0, 100, most_steps=60)
        seconds[memory_format] = time.perf_counter() - began
    return min(seconds, key=seconds.get)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path, help="MNIST's four IDX files, plain or .gz")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)

    images, labels = read_split(args.directory, "train")
    test = read_split(args.directory, "t10k")
    trainer = Trainer(args, faster_format(args, images, labels))
    total_steps = args.epochs * math.ceil(len(labels) / args.batch)
    step = 0
    for epoch in range(1, args.epochs + 1):
        began = time.perf_counter()
        step += trainer.train(images, labels, step, total_steps)
        seconds = time.perf_counter() - began
        loss, top1 = score(trainer.model, *test)
        print(json.dumps({
            "peer": f"torch {torch.__version__}", "threads": args.threads, "batch": args.batch,
            "format": str(trainer.memory_format), "epoch": epoch, "seconds": seconds,
            "samples_per_s": len(labels) / seconds, "loss": loss, "top1": top1,
        }), flush=True)


if __name__ == "__main__":
    main()
