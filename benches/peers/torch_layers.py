#!/usr/bin/env python3
"""PyTorch's GFLOP/s (oneDNN, MKL) on the layers of `lockstep bench ops`: forward, data gradient, weight gradient, each alone.

  python torch_layers.py [--batch 8] [--linear-batch 256] [--threads 2] [--layer vgg_c2]

One JSON row a pass: the median time of the faster memory format.
"""
import argparse, json, statistics, time
import torch

LAYERS = dict(  # name: (ic, oc, h, w, k, stride, pad); linear: (inputs, outputs)
    lenet_conv1=(1, 20, 28, 28, 5, 1, 0), lenet_conv2=(20, 50, 12, 12, 5, 1, 0),
    overfeat_c1=(3, 96, 231, 231, 11, 4, 0), overfeat_c2=(96, 256, 28, 28, 5, 1, 0), overfeat_c3=(256, 512, 12, 12, 3, 1, 1),
    overfeat_c5=(1024, 1024, 12, 12, 3, 1, 1), vgg_c1=(3, 64, 224, 224, 3, 1, 1), vgg_c2=(64, 128, 112, 112, 3, 1, 1),
    vgg_c4=(256, 256, 56, 56, 3, 1, 1), vgg_c6=(512, 512, 28, 28, 3, 1, 1), vgg_c7=(512, 512, 14, 14, 3, 1, 1),
    resnet_1x1a=(256, 64, 56, 56, 1, 1, 0), resnet_1x1b=(64, 256, 56, 56, 1, 1, 0), resnet_3x3=(128, 128, 28, 28, 3, 1, 1),
    resnet_1x1s2=(256, 512, 56, 56, 1, 2, 0), resnet_7x7s2=(3, 64, 224, 224, 7, 2, 3), resnet_late=(2048, 512, 7, 7, 1, 1, 0),
    lenet_fc1=(800, 500), fc_4096=(4096, 4096), fc_2048=(2048, 2048), fc_vgg6=(25088, 4096))

p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=8)
p.add_argument("--linear-batch", type=int, default=256)
p.add_argument("--threads", type=int)
p.add_argument("--layer", choices=LAYERS)
p.add_argument("--seconds", type=float, default=1.0)
a = p.parse_args()
torch.set_flush_denormal(True)
if a.threads:
    torch.set_num_threads(a.threads)


def timed(f):
    f()
    f()
    times, total = [], 0
    while len(times) < 4 or total < a.seconds:
        t = time.perf_counter()
        f()
        times.append(time.perf_counter() - t)
        total += times[-1]
    return statistics.median(times)


def linear(inputs, outputs):
    x, w, dy = torch.randn(a.linear_batch, inputs), torch.randn(outputs, inputs), torch.randn(a.linear_batch, outputs)
    passes = dict(forward=lambda: x @ w.t(), backward_data=lambda: dy @ w, backward_weights=lambda: dy.t() @ x)
    return a.linear_batch, 2 * a.linear_batch * inputs * outputs, [passes]


def convolution(ic, oc, h, w, k, stride, pad):
    formats = []
    for fmt in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(a.batch, ic, h, w).to(memory_format=fmt)
        wei = torch.randn(oc, ic, k, k).to(memory_format=fmt)
        y = torch.nn.functional.conv2d(x, wei, None, stride, pad)
        dy = torch.randn_like(y)

        def gradient(mask, x=x, wei=wei, dy=dy):
            return torch.ops.aten.convolution_backward(
                dy, x, wei, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], 1, mask)
        formats.append(dict(
            forward=lambda x=x, wei=wei: torch.nn.functional.conv2d(x, wei, None, stride, pad),
            backward_data=lambda gradient=gradient: gradient([True, False, False]),
            backward_weights=lambda gradient=gradient: gradient([False, True, False])))
    return a.batch, 2 * y.numel() * ic * k * k, formats


for name, sizes in LAYERS.items():
    if a.layer and a.layer != name:
        continue
    with torch.no_grad():
        batch, flops, formats = linear(*sizes) if len(sizes) == 2 else convolution(*sizes)
        for which in ("forward", "backward_data", "backward_weights"):
            best = min(timed(passes[which]) for passes in formats)
            print(json.dumps({"peer": "torch " + torch.__version__, "layer": name, "pass": which, "batch": batch,
                              "threads": torch.get_num_threads(), "gflops": round(flops / best / 1e9, 2)}), flush=True)
