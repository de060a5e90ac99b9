"""The mpi4py side of pairs.c: ROUNDS of 4 sync points: pairs of arrays, and of objects gathered and sent back."""

import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
one, total, bad = np.ones(1, "i"), np.zeros(1, "i"), 0
for _ in range(int(sys.argv[1])):
    world.Reduce(one, total, root=0)
    world.Bcast(total, root=0)  # 1
    bad += total[0] != world.size
    everybody = np.zeros(world.size, "i")
    world.Gather(one, everybody, root=1)
    world.Scatter(everybody, total, root=1)  # 2
    bad += total[0] != 1
    world.Bcast(total, root=0)
    # Lower-case methods gather sizes and objects; the sizes of what is sent to all come first.
    found = world.gather(world.rank, root=0)
    found = world.bcast(found, root=0)  # 3
    bad += found != list(range(world.size))
    world.Barrier()  # 4
sys.stdout.write(f"bad={int(bad)}\n")
