"""Runs a workload on all ranks - barrier, work, halo, barrier - and measures each step."""

from __future__ import annotations

import gc
from collections.abc import Callable
from socket import gethostname
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_lab.bsp.workloads import Work

Nanoseconds = npt.NDArray[np.int64]


class Times(NamedTuple):
    """Nanoseconds. work: of each rank's work and halo, barrier: in its second barrier, both (ranks, intervals).

    maxima: from the end of the first barrier to the end of the second, as measured on rank 0, (intervals,). hosts: the
    host name of each rank.
    """

    work: Nanoseconds
    barrier: Nanoseconds
    maxima: Nanoseconds
    hosts: tuple[str, ...]


def run(comm: Any, work: Work, intervals: int, halo: Callable[[], None] | None) -> Times | None:
    """Run the intervals on a communicator of mpi4py. Returns the times on rank 0, None on other ranks.

    Between them there is no communication but barriers and halos, and no output.
    """
    begins, dones, ends = (np.zeros(intervals, np.int64) for _ in range(3))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for interval in range(intervals):
            comm.Barrier()
            begins[interval] = perf_counter_ns()
            work(interval)
            if halo is not None:
                halo()
            dones[interval] = perf_counter_ns()
            comm.Barrier()
            ends[interval] = perf_counter_ns()
    finally:
        if collecting:
            gc.enable()
    spent = np.stack([dones - begins, ends - dones])
    root = comm.Get_rank() == 0
    gathered = np.empty((comm.Get_size(), 2, intervals), np.int64) if root else None
    comm.Gather(spent, gathered, root=0)
    hosts = comm.gather(gethostname(), root=0)
    if gathered is None:
        return None
    return Times(gathered[:, 0], gathered[:, 1], ends - begins, tuple(hosts))


def halo_exchange(mpi: Any, comm: Any, size: int) -> Callable[[], None]:
    """An exchange of `size` bytes with each of four neighbours on a periodic grid of ranks. mpi: mpi4py.MPI."""
    dimensions = mpi.Compute_dims(comm.Get_size(), 2)
    grid = comm.Create_cart(dimensions, periods=[True, True])
    moves = [grid.Shift(axis, step) for axis in (0, 1) for step in (1, -1)]
    out, into = np.zeros(size, np.uint8), np.zeros(size, np.uint8)

    def exchange() -> None:
        for source, target in moves:
            grid.Sendrecv(out, target, recvbuf=into, source=source)

    return exchange
