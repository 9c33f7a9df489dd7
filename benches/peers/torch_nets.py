#!/usr/bin/env python3
"""PyTorch's throughput (oneDNN, MKL) on the networks of `lockstep bench net`: one JSON row a run.

  python torch_nets.py --net vgg-a --mode train --batch 8 --threads 2 [--format best] [--seconds 2]

A step is forward, backward and SGD with momentum on one minibatch in memory (train), or forward under inference_mode (score).
The row holds the median step; `--format best` measures both memory formats and gives the faster one.
GFLOP/s count two operations a multiply-add, three forward passes a training step.
"""
import argparse, json, resource, statistics, time
import torch
import torch.nn as nn
import torch.nn.functional as F


def conv(ci, co, k, s=1, p=0):
    return [nn.Conv2d(ci, co, k, s, p), nn.ReLU(inplace=True)]


def vgg_a(classes=1000):
    layers, ci = [], 3
    for co in (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"):
        if co == "M":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += conv(ci, co, 3, 1, 1)
            ci = co
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True),
                         nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, classes)), (3, 224, 224), classes


def overfeat_fast(classes=1000):
    return nn.Sequential(*conv(3, 96, 11, 4), nn.MaxPool2d(2), *conv(96, 256, 5), nn.MaxPool2d(2),
                         *conv(256, 512, 3, 1, 1), *conv(512, 1024, 3, 1, 1), *conv(1024, 1024, 3, 1, 1),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024 * 6 * 6, 3072), nn.ReLU(inplace=True),
                         nn.Linear(3072, 4096), nn.ReLU(inplace=True), nn.Linear(4096, classes)), (3, 231, 231), classes


def alexnet(classes=1000):
    """One-tower AlexNet (Krizhevsky 2014), no normalization."""
    return nn.Sequential(*conv(3, 64, 11, 4, 2), nn.MaxPool2d(3, 2), *conv(64, 192, 5, 1, 2), nn.MaxPool2d(3, 2),
                         *conv(192, 384, 3, 1, 1), *conv(384, 256, 3, 1, 1), *conv(256, 256, 3, 1, 1),
                         nn.MaxPool2d(3, 2), nn.Flatten(), nn.Linear(256 * 6 * 6, 4096), nn.ReLU(inplace=True),
                         nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, classes)), (3, 224, 224), classes


def cd_dnn(classes=9304):
    dims = [429] + [2048] * 7
    layers = []
    for a, b in zip(dims, dims[1:]):
        layers += [nn.Linear(a, b), nn.Sigmoid()]
    return nn.Sequential(*layers, nn.Linear(2048, classes)), (429,), classes


class Bottleneck(nn.Module):
    def __init__(self, ci, w, s):
        super().__init__()
        co = 4 * w
        self.body = nn.Sequential(
            nn.Conv2d(ci, w, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU(inplace=True),
            nn.Conv2d(w, w, 3, s, 1, bias=False), nn.BatchNorm2d(w), nn.ReLU(inplace=True),
            nn.Conv2d(w, co, 1, bias=False), nn.BatchNorm2d(co))
        self.skip = nn.Identity() if ci == co and s == 1 else nn.Sequential(
            nn.Conv2d(ci, co, 1, s, bias=False), nn.BatchNorm2d(co))

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x), inplace=True)


def resnet50(classes=1000):
    layers, ci = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for w, n, s in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(n):
            layers.append(Bottleneck(ci, w, s if i == 0 else 1))
            ci = 4 * w
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, classes)), (3, 224, 224), classes


def lenet(classes=10):
    return nn.Sequential(*conv(1, 20, 5), nn.MaxPool2d(2), *conv(20, 50, 5), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(800, 500), nn.ReLU(inplace=True), nn.Linear(500, classes)), (1, 28, 28), classes


NETS = {"vgg-a": vgg_a, "overfeat-fast": overfeat_fast, "alexnet": alexnet, "cd-dnn": cd_dnn, "resnet50": resnet50, "lenet": lenet}


def madds(model, shape):
    total, hooks = [0], []

    def hook(m, i, o):
        total[0] += m.weight[0].numel() * o[0].numel()
    for m in model.modules():
        if isinstance(m, (nn.Conv2d, nn.Linear)):
            hooks.append(m.register_forward_hook(hook))
    model.eval()
    with torch.inference_mode():
        model(torch.zeros(1, *shape))
    for h in hooks:
        h.remove()
    return total[0]


def peak_rss_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def run(a, fmt):
    torch.manual_seed(0)
    model, shape, classes = NETS[a.net]()
    flops = 2 * madds(model, shape) * (3 if a.mode == "train" else 1)
    x, y = torch.randn(a.batch, *shape), torch.randint(classes, (a.batch,))
    if fmt == "channels_last" and len(shape) == 3:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    model.train(a.mode == "train")
    f = torch.compile(model) if a.compile else model
    opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)

    def step():
        if a.mode == "score":
            with torch.inference_mode():
                f(x)
        else:
            opt.zero_grad(set_to_none=True)
            F.cross_entropy(f(x), y).backward()
            opt.step()
    for _ in range(a.warm_up):
        step()
    times, began = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - began < a.seconds:
        t = time.perf_counter()
        step()
        times.append(time.perf_counter() - t)
    med = statistics.median(times)
    return dict(peer="torch " + torch.__version__, net=a.net, mode=a.mode, batch=a.batch, threads=torch.get_num_threads(),
                format=fmt, compile=a.compile, steps=len(times), per_s=round(a.batch / med, 3),
                gflops=round(flops * a.batch / med / 1e9, 2), peak_rss_mb=round(peak_rss_mb(), 1))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--net", choices=NETS, required=True)
    p.add_argument("--mode", choices=("train", "score"), default="train")
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--format", choices=("contiguous", "channels_last", "best"), default="best")
    p.add_argument("--seconds", type=float, default=2.0)
    p.add_argument("--warm-up", type=int, default=3)
    p.add_argument("--threads", type=int)
    p.add_argument("--compile", action="store_true")
    a = p.parse_args()
    torch.set_flush_denormal(True)
    if a.threads:
        torch.set_num_threads(a.threads)
    formats = ("contiguous", "channels_last") if a.format == "best" else (a.format,)
    print(json.dumps(max((run(a, f) for f in formats), key=lambda r: r["per_s"])))
