"""Smooths an array, and writes it to a file together after every few steps: `checkpoint.py STEPS FILE`."""

import sys

import numpy as np
from mpi4py import MPI

CELLS, BETWEEN = 200_000, 20
steps, path = int(sys.argv[1]), sys.argv[2]
world = MPI.COMM_WORLD
field = np.random.default_rng(world.rank).random(CELLS)
largest = np.empty(1)
file = MPI.File.Open(world, path, MPI.MODE_CREATE | MPI.MODE_WRONLY)
for step in range(steps):
    field[1:-1] = 0.25 * field[:-2] + 0.5 * field[1:-1] + 0.25 * field[2:]
    world.Allreduce(field[:1].copy(), largest, MPI.MAX)
    if step % BETWEEN == 0:
        file.Write_at_all(world.rank * field.nbytes, field)
        file.Sync()
file.Close()
