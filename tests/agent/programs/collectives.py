"""The mpi4py side of collectives.c: ROUNDS END: rounds of 11 collectives that count, each checked; prints bad=N."""

import os
import signal
import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
same, part = world.Dup(), world.Split(rank == 0)
bad = 0
ranks = np.arange(size)
ones, reverse = np.ones(size, int), np.arange(size)[::-1].copy()

for _ in range(int(sys.argv[1])):
    world.Barrier()
    total = np.array([rank])
    world.Allreduce(MPI.IN_PLACE, total)
    bad += total[0] != ranks.sum()
    out = np.empty(size, int)
    world.Allgather(np.array([rank]), out)
    bad += (out != ranks).any()
    world.Allgatherv(np.array([rank]), [out, ones, reverse, MPI.INT64_T])
    bad += (out != ranks[::-1]).any()
    sent = 100 * rank + ranks
    world.Alltoall(sent, out)
    bad += (out != 100 * ranks + rank).any()
    world.Alltoallv([sent, ones, reverse, MPI.INT64_T], [out, ones, reverse, MPI.INT64_T])
    bad += (out != (100 * ranks + size - 1 - rank)[::-1]).any()
    out[:] = 100 * rank + ranks
    world.Alltoallv(MPI.IN_PLACE, [out, ones, ranks, MPI.INT64_T])
    bad += (out != 100 * ranks + rank).any()
    one = np.empty(1, int)
    world.Reduce_scatter(sent, one, ones)
    bad += one[0] != 100 * ranks.sum() + size * rank
    types, bytes_ = [MPI.INT64_T] * size, 8 * reverse
    world.Alltoallw([sent, ones, bytes_, types], [out, ones, bytes_, types])
    bad += (out != (100 * ranks + size - 1 - rank)[::-1]).any()
    world.Reduce_scatter_block(sent, one)
    bad += one[0] != 100 * ranks.sum() + size * rank
    same.Barrier()
    if size > 1:
        part.Barrier()

sys.stdout.write(f"bad={int(bad)}\n")  # one write: the ranks share the pipe, and print makes two
sys.stdout.flush()
end = sys.argv[2] if rank == 0 else "finalize"
if end == "exit":
    sys.exit(5)
if end == "_exit":
    os._exit(5)
if end == "abort":
    os.abort()
if end == "MPI_Abort":
    world.Abort(5)
if end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
