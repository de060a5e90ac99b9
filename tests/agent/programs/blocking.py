"""The mpi4py side of blocking.c: MPI_X_c where the library has it, else what the shim makes of it."""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

world, me = MPI.COMM_WORLD, MPI.COMM_SELF
ring = me.Create_cart([1], [True])
out, into, two = np.ones(1, "i"), np.zeros(1, "i"), np.zeros(2, "i")
pending: list[MPI.Request] = []


def nothing() -> None:
    """Between two barriers."""


def receive() -> None:
    pending.append(me.Irecv(into, 0))


def send() -> None:
    pending.append(me.Isend(out, 0))


def finish() -> None:
    while pending:
        if pending[-1].Test():
            pending.pop()


def step(
    name: str, call: Callable[[], Any], before: Callable[[], Any] = nothing, after: Callable[[], Any] = nothing
) -> None:
    before()
    world.Barrier()
    begin = time.monotonic_ns()
    call()
    took = time.monotonic_ns() - begin
    world.Barrier()
    after()
    finish()
    if world.rank == 0:
        print(name, took, flush=True)


step("nothing", nothing)
step("Send", lambda: me.Send(out, 0), receive)
step("Ssend", lambda: me.Ssend(out, 0), receive)
step("Rsend", lambda: me.Rsend(out, 0), receive)
step("Recv", lambda: me.Recv(into, 0), send)
step("Sendrecv", lambda: me.Sendrecv(out, 0, 0, into, 0))
step("Sendrecv_replace", lambda: me.Sendrecv_replace(into, 0, 0, 0))
step("Probe", lambda: me.Probe(0), send, lambda: me.Recv(into, 0))
step("Mprobe and Mrecv", lambda: me.Mprobe(0).Recv(into), send)
step("Bsend", lambda: me.Bsend(out, 0), lambda: (MPI.Attach_buffer(bytearray(1000 + MPI.BSEND_OVERHEAD)), receive()))
step("Wait", lambda: MPI.Request.Wait(pending[-1]), lambda: (send(), receive()))
step("Bcast", lambda: me.Bcast(into))
step("Reduce", lambda: me.Reduce(out, into))
step("Scan", lambda: me.Scan(out, into))
step("Exscan", lambda: me.Exscan(out, into))
step("Gather", lambda: me.Gather(out, into))
step("Scatter", lambda: me.Scatter(out, into))
step("Neighbor_allgather", lambda: ring.Neighbor_allgather(out, two))
step("Neighbor_alltoall", lambda: ring.Neighbor_alltoall(np.ones(2, "i"), two))
sys.exit(into[0] != 1 or two.tolist() != [1, 1])
