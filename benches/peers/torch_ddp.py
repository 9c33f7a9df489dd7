#!/usr/bin/env python3
"""PyTorch's DistributedDataParallel over gloo on the networks of `lockstep bench net`: one rank a process, a row from rank 0.

  python torch_ddp.py --net alexnet --batch 32                                                     one rank, no DDP
  python torch_ddp.py --net alexnet --batch 32 --world 2 --rank 0 --master 10.0.0.1:29500 --interface eth0

A step is forward, backward, the exchange of gradients and SGD with momentum, on one minibatch in memory, `--batch` samples a rank.
The row holds the median step of rank 0, and what of it is exposed communication: the median step less the median of steps
under `no_sync`, which exchange nothing.
DDP is given its best: gradients as views of its buckets, its default buckets of 25 MB, the fused optimizer, activations in place,
the memory format that is asked for (the race asks for the faster one), denormals flushed.
"""
import argparse, json, math, os, statistics, time
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch_nets import NETS, peak_rss_mb

FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def connect(a):
    os.environ["GLOO_SOCKET_IFNAME"] = a.interface
    dist.init_process_group("gloo", init_method=f"tcp://{a.master}", rank=a.rank, world_size=a.world)


def agreed(a, number):
    """Rank 0's number, on all ranks: they must do the same steps."""
    if a.world == 1:
        return number
    tensor = torch.tensor([number])
    dist.broadcast(tensor, 0)
    return int(tensor.item())


def timed(step, count):
    """Seconds of `count` steps, each by itself."""
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return seconds


def run(a):
    torch.manual_seed(0)
    model, shape, classes = NETS[a.net]()
    x, y = torch.randn(a.batch, *shape), torch.randint(classes, (a.batch,))
    if len(shape) == 3:
        model, x = (t.to(memory_format=FORMATS[a.format]) for t in (model, x))
    net = model
    if a.world > 1:
        net = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)

    def step():
        opt.zero_grad(set_to_none=True)
        F.cross_entropy(net(x), y).backward()
        opt.step()

    timed(step, a.warm_up)
    count = agreed(a, max(3, math.ceil(a.seconds / min(timed(step, 2)))))
    exchanging = statistics.median(timed(step, count))
    exposed = 0.0
    if a.world > 1:
        with net.no_sync():
            timed(step, 1)
            alone = statistics.median(timed(step, max(3, count // 2)))
        exposed = max(0.0, exchanging - alone)
        dist.barrier()
    return dict(peer="torch " + torch.__version__, net=a.net, batch_per_rank=a.batch, ranks=a.world, format=a.format,
                threads=torch.get_num_threads(), steps=count, per_s=round(a.world * a.batch / exchanging, 3),
                step_ms=round(1e3 * exchanging, 3), exposed_ms=round(1e3 * exposed, 3), peak_rss_mb=round(peak_rss_mb(), 1))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--net", choices=NETS, required=True)
    p.add_argument("--batch", type=int, default=16, help="samples a rank")
    p.add_argument("--format", choices=FORMATS, default="channels_last")
    p.add_argument("--seconds", type=float, default=2.0)
    p.add_argument("--warm-up", type=int, default=3)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rank", type=int, default=0)
    p.add_argument("--world", type=int, default=1)
    p.add_argument("--master", default="127.0.0.1:29500", help="address and port where rank 0 listens")
    p.add_argument("--interface", default="lo", help="network interface that gloo uses")
    a = p.parse_args()
    torch.set_flush_denormal(True)
    torch.set_num_threads(a.threads)
    if a.world > 1:
        connect(a)
    row = run(a)
    if a.rank == 0:
        print(json.dumps(row), flush=True)
    if a.world > 1:
        dist.destroy_process_group()
