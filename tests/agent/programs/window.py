"""window.py BYTES: fills a shared window of so many bytes on each rank."""

import sys

from mpi4py import MPI

size = int(sys.argv[1])
window = MPI.Win.Allocate_shared(size, 1, comm=MPI.COMM_WORLD)
memory = window.tomemory()
for at in range(0, size, 4096):
    memory[at] = 1
for _ in range(100):
    MPI.COMM_WORLD.Barrier()
print("filled")
window.Free()
