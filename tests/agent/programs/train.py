"""train.py STEPS [KIND] - data-parallel training of a small network over gloo. KIND: sgd, accumulate (two passes a
step), closure, two (optimizers), manual (gradients are averaged by the script), alone (no workers).

$SLOW is "WORKER SECONDS": this worker sleeps longer by so much in each forward pass."""

import os
import sys
import time

import torch
import torch.distributed as dist

steps = int(sys.argv[1])
kind = sys.argv[2] if len(sys.argv) > 2 else "sgd"
slow, more = os.environ.get("SLOW", "-1 0").split()
torch.set_num_threads(1)
rank, size = 0, 1
if kind != "alone":
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
model = net if kind in ("manual", "alone") else torch.nn.parallel.DistributedDataParallel(net)
halves = [net[0].parameters(), net[2].parameters()] if kind == "two" else [net.parameters()]
optimizers = [torch.optim.SGD(half, 0.01) for half in halves]
data = torch.randn(64, 64)


def loss() -> torch.Tensor:
    time.sleep(0.01 + (float(more) if rank == int(slow) else 0.0))
    value = model(data).square().mean()
    value.backward()
    return value


for _ in range(steps):
    for optimizer in optimizers:
        optimizer.zero_grad()
    if kind == "closure":
        optimizers[0].step(loss)
        continue
    for _ in range(2 if kind == "accumulate" else 1):
        loss()
    if kind == "manual":
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
    for optimizer in optimizers:
        optimizer.step()
print(f"worker {rank} of {size}: {steps} steps")
