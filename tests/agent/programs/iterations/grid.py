"""Iterations of mpi4py programs: grid.py FORM ITERATIONS SECONDS

FORM: grid (Bcast and Allreduce on the rows and columns of a process grid), objects (allreduce of Python objects),
exchange (arrays with each other rank, by Sendrecv). Ends with "iterations N".
"""

import sys
import time

import numpy as np
from mpi4py import MPI

form, iterations, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
rows, columns = MPI.Compute_dims(size, 2)
grid = world.Create_cart((rows, columns), reorder=False)
row, column = grid.Sub((False, True)), grid.Sub((True, False))
block, total = np.ones((20, 20)), np.zeros((20, 20))
world.Barrier()
for _ in range(iterations):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        total += block @ block
    if form == "grid":
        row.Bcast(block, root=0)
        column.Bcast(block, root=0)
        row.Allreduce(MPI.IN_PLACE, total)
        column.Allreduce(MPI.IN_PLACE, total)
    elif form == "objects":
        world.allreduce(float(total[0, 0]))
    else:
        for step in range(1, size):
            world.Sendrecv(block, dest=(rank + step) % size, recvbuf=total, source=(rank - step) % size)
world.Barrier()
if rank == 0:
    print("iterations", iterations)
