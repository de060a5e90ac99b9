"""`make simulate-calls`: generated MPI programs, as calls, before the sidecar that looks for their iterations.

    python -m simulation.calls --programs 10000      so many, on all cores
    python -m simulation.calls --replay 4711         one, with what it does and what was found

A program of a seed has loops in loops, communicators of rows and columns, neighbours at random, loops until
convergence, tasks, phases, pipelines; its ranks write rings under a virtual clock, as the shim does. Prints programs
whose iterations are not found, and those that break an invariant: each interval is counted once, their sum is the
runtime, recording costs a share of a core that is bounded. Exit status 1 if one is broken, or if iterations are found
in less than MIN_FOUND.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_agent.loops.collectives import MAX_QUIET_SECONDS
from barograph_agent.loops.tokens import MIN_ITERATIONS
from barograph_agent.reduce.ring_set import Progress, RingSet
from barograph_agent.ring.reader import OPERATIONS
from helpers.rings import TracedShim
from simulation.schedule import Broken

MIN_FOUND: Final = 0.97
TOLERANCE: Final = 0.02
"""Iterations that may be missing or too many, as a share of all."""
EDGE: Final = 8
"""The same as a number: begin and end of a loop."""
CHANGE_SECONDS: Final = 3.0
"""Of a loop that follows another one, so long there are no intervals: the anchor that stays away is sought again."""
MAX_SHARE: Final = 0.01
"""Of a core for recording, in the long run."""
MAX_START_SECONDS: Final = 0.03
"""The same before it is known how fast calls come."""
CALL_SECONDS: Final = 25e-9
"""What writing, comparing or recording one call takes."""
NUMBERS: Final = {name: number for number, name in OPERATIONS.items()}

Floats = npt.NDArray[np.float64]
Call = tuple[int, int, int, int]
"""Site, operation, communicator, and a hash of that, the other rank and the tag."""
Part = Callable[[], list[Call]]
"""What a part of a program calls in one pass."""


class Loop(NamedTuple):
    """A loop of a program: its name, when its passes end, and whether its passes may be the iterations."""

    name: str
    ends: list[float]
    may_be: bool


@dataclass
class Trace:
    """What one rank does: calls and when they end, in seconds."""

    calls: list[Call] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    collectives: list[float] = field(default_factory=list)
    """Of all ranks, without the others."""
    now: float = 0.0
    fast: tuple[npt.NDArray[np.int64], Floats] | None = None
    """Calls, and when they end: after the others, and too many for lists."""

    def make(self, calls: list[Call], seconds: float) -> None:
        """Calls one after the other, in this time together."""
        if calls:
            each = seconds / len(calls)
            self.ends += [self.now + each * (i + 1) for i in range(len(calls))]
            self.calls += calls
        self.now += seconds

    def arrays(self) -> tuple[npt.NDArray[np.int64], Floats]:
        """All calls, one in a row, and when they end."""
        calls, ends = np.array(self.calls or np.zeros((0, 4)), np.int64), np.array(self.ends)
        if self.fast is None:
            return calls, ends
        return np.concatenate([calls, self.fast[0]]), np.concatenate([ends, self.fast[1]])


class Parts:
    """Parts of random programs. Sites are numbered as they are made, so all ranks of a program have the same."""

    def __init__(self, rng: np.random.Generator, rank: int) -> None:
        self.rng, self.rank, self.sites = rng, rank, 0

    def some(self, most: int) -> Part:
        """One part after another."""
        kinds = (self.halo, self.grid, self.random_neighbours, self.stages, self.wrapped, self.solver)
        chosen = self.rng.choice(len(kinds), self.rng.integers(1, most + 1), replace=False)
        made = [kinds[number]() for number in chosen]
        return lambda: [call for part in made for call in part()]

    def call(self, operation: str, comm: int = 0, peer: int | None = None, site: int | None = None) -> Call:
        """A call from a site, by default a new one."""
        if site is None:
            self.sites += 1
            site = self.sites
        detail = (comm * 31 + (0 if peer is None else peer + 1) * 997) & 0xFFFF
        return site, NUMBERS[operation], comm, detail

    def halo(self) -> Part:
        """Messages with neighbours, from one site or several."""
        count, one = int(self.rng.integers(1, 7)), self.rng.random() < 0.5
        first = self.call("Isend", 1, self.rank + 1)
        sends = [first]
        sends += [self.call("Isend", 1, self.rank + i, first[0] if one else None) for i in range(2, count + 1)]
        calls = [*sends, self.call("Waitall")]
        return lambda: calls

    def grid(self) -> Part:
        """Collectives on communicators of rows and columns, from one site or two."""
        row = self.call("Allreduce", 5 + self.rank % 2)
        column = self.call("Allreduce", 9 + self.rank // 2, site=row[0] if self.rng.random() < 0.5 else None)
        return lambda: [row, column]

    def random_neighbours(self) -> Part:
        """Messages with others at random, as many as there happen to be."""
        send, receive, last = self.call("Send")[0], self.call("Recv")[0], self.call("Waitall")
        rng, most = self.rng, int(self.rng.integers(2, 8))

        def calls() -> list[Call]:
            found = []
            for peer in rng.integers(0, 16, int(rng.integers(0, most + 1))).tolist():
                found += [self.call("Send", 1, peer, send), self.call("Recv", 1, peer, receive)]
            return [*found, last]

        return calls

    def solver(self) -> Part:
        """A loop until convergence of few steps, between calls that come once."""
        before, after = self.call("Sendrecv", 1, 2), self.call("Bcast", 4)
        step = [self.call("Sendrecv", 1, 2), self.call("Wait")]
        least, most = sorted(int(n) for n in self.rng.integers(1, MIN_ITERATIONS - 1, 2))
        rng = self.rng
        return lambda: [before, *step * int(rng.integers(least, most + 1)), after]

    def stages(self) -> Part:
        """A fixed number of stages, with a loop in each."""
        stages, steps = int(self.rng.integers(2, 5)), int(self.rng.integers(1, 4))
        inner = [self.call("Isend", 1, 1), self.call("Wait")] * steps
        calls = [*[*inner, self.call("Waitall")] * stages, self.call("Reduce", 4)]
        return lambda: calls

    def wrapped(self) -> Part:
        """All calls from one site, as those of an interpreter are."""
        first = self.call("Send", 1, 1)
        calls = [first, *(self.call(*what, first[0]) for what in (("Recv", 1, 1), ("Send", 1, 2), ("Recv", 1, 2)))]
        return lambda: calls


class Program:
    """A random program as its ranks execute it. `kind` is its structure."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        rng = np.random.default_rng(seed)
        kinds = (
            *(self.steps, self.nested, self.converging, self.tasks, self.rounds),
            *(
                self.phases,
                self.rare,
                self.regular,
                self.fast,
                self.sweeps,
                self.prints,
                self.dumps,
                self.solvers,
                self.folded,
                self.rows,
                self.cycles,
            ),
        )
        self.ranks = int(rng.choice([1, 1, 1, 1, 2, 4]))
        shares = (0.18, 0.15, 0.15, 0.08, 0.06, 0.1, 0.06, 0.05, 0.05, 0.02, 0.02, 0.02, 0.02, 0.02, 0.01, 0.01)
        build = kinds[int(rng.choice(len(kinds), p=shares))]
        self.kind = build.__name__
        self.changes = 0
        self.before: int | None = None
        """Collectives that are ends of intervals; None: all."""
        self.step_seconds = float(rng.choice([0.2, 0.5, 0.5, 0.5]))
        """Between two looks of the sidecar."""
        self.loops: list[Loop] = []
        """Of rank 0."""
        self.traces = [build(np.random.default_rng([seed, 1]), rank) for rank in reversed(range(self.ranks))][::-1]

    def _begin(self, rng: np.random.Generator, rank: int) -> tuple[Parts, Trace]:
        """Set-up: calls that come once."""
        parts, trace = Parts(rng, rank), Trace()
        self.loops = []
        for _ in range(int(rng.integers(0, 60))):
            trace.make([parts.call("Send", 1, 0)], 0.001)
        trace.collectives += [trace.now + 0.01 * i for i in range(1, int(rng.integers(0, 6)))]
        trace.now += 0.06
        return parts, trace

    def _run(self, trace: Trace, part: Part, passes: int, seconds: float, rng: np.random.Generator) -> list[float]:
        """Passes of a part, of about so many seconds; when they end."""
        ends = []
        for noise in rng.gamma(20.0, 1 / 20.0, passes).tolist():
            trace.make(part(), seconds * noise)
            ends.append(trace.now)
        return ends

    def steps(self, rng: np.random.Generator, rank: int) -> Trace:
        """One loop, which may write something now and then."""
        parts, trace = self._begin(rng, rank)
        part, passes, seconds = parts.some(3), int(rng.integers(150, 500)), float(rng.uniform(0.02, 0.1))
        writes = int(rng.integers(12, 60)) if rng.random() < 0.3 else 0
        write = [parts.call("Gather", 3), parts.call("Send", 1, 0)]
        made = 0

        def one() -> list[Call]:
            nonlocal made
            made += 1
            return part() + (write if writes and made % writes == 0 else [])

        self.loops = [Loop("steps", self._run(trace, one, passes, seconds, rng), may_be=True)]
        return trace

    def _around(self, rng: np.random.Generator, rank: int, counts: list[int]) -> Trace:
        """A loop with an inner one that runs so often in each pass."""
        parts, trace = self._begin(rng, rank)
        before, inner, after = parts.some(1), parts.some(2), parts.some(1)
        each = float(rng.uniform(8.0, 30.0)) / sum(counts)
        outer_ends, inner_ends = [], []
        for count in counts:
            trace.make(before(), each)
            inner_ends += self._run(trace, inner, count, each, rng)
            trace.make(after(), each)
            outer_ends.append(trace.now)
        mean = float(np.mean(counts))
        self.loops = [
            Loop("outer", outer_ends, may_be=mean <= 2 * MIN_ITERATIONS or min(counts) < MIN_ITERATIONS),
            Loop("inner", inner_ends, may_be=max(counts) > MIN_ITERATIONS - 2),
        ]
        return trace

    def nested(self, rng: np.random.Generator, rank: int) -> Trace:
        """An inner loop of a fixed number of passes."""
        count = int(rng.choice([2, 3, 4, 5, 8, 10, 20, 50]))
        return self._around(rng, rank, [count] * max(800 // count, 24))

    def sweeps(self, rng: np.random.Generator, rank: int) -> Trace:
        """Steps with two loops, one after the other: sweeps through a grid, plane by plane, there and back."""
        parts, trace = self._begin(rng, rank)
        there, back, rest = parts.call("Recv", 1, 1), parts.call("Send", 1, 1), parts.some(1)
        planes, seconds = int(rng.integers(10, 100)), float(rng.uniform(0.1, 2.5))
        each = seconds * float(rng.uniform(0.25, 0.45)) / planes
        ends = []
        for _ in range(int(80.0 / seconds)):
            for call in (there, back):
                self._run(trace, lambda call=call: [call], planes, each, rng)  # type: ignore[misc]
            ends += self._run(trace, rest, 1, seconds - 2 * planes * each, rng)
        self.loops = [Loop("steps", ends, may_be=True)]
        return trace

    def rows(self, rng: np.random.Generator, rank: int) -> Trace:
        """A pipeline through all ranks, row by row, each with a tag of its own; the last rank answers the first one."""
        parts, trace = self._begin(rng, rank)
        receive, send, answer, answered = (parts.call(one)[0] for one in ("Recv", "Send", "Send", "Recv"))
        last = max(self.ranks, 2) - 1
        rows, seconds = int(rng.integers(30, 2000)), float(rng.uniform(0.05, 1.0))
        calls: list[Call] = []
        for tag in range(rows):
            calls += [(receive, NUMBERS["Recv"], 1, tag * 997 & 0xFFFF)] if rank else []
            calls += [(send, NUMBERS["Send"], 1, tag * 997 & 0xFFFF)] if rank < last else []
        calls += [parts.call("Send", 0, 0, answer)] if rank == last else []
        calls += [parts.call("Recv", 0, last, answered)] if rank == 0 else []
        ends = self._run(trace, lambda: calls, int(40.0 / seconds), seconds, rng)
        self.loops = [Loop("sweeps", ends, may_be=True)]
        return trace

    def cycles(self, rng: np.random.Generator, rank: int) -> Trace:
        """V-cycles of a multigrid solver: the same messages on each level, down and up, with less and less to do."""
        parts, trace = self._begin(rng, rank)
        down, residual, smooth, norm = (parts.halo() for _ in range(4))
        kind = int(rng.integers(3))
        if kind == 0:
            residual = smooth = down
        elif kind == 1:
            norm = residual  # each call comes on many levels
        levels, coarser, seconds = int(rng.integers(7, 11)), float(rng.choice([2, 4, 8])), float(rng.uniform(0.1, 1.0))
        each = [seconds * coarser**-level + 1e-4 for level in range(levels)]
        ends = []
        for _ in range(int(40.0 / seconds)):
            for level in range(levels):
                self._run(trace, down, 1, each[level] / 4, rng)
            for level in reversed(range(levels)):
                self._run(trace, residual, 1, each[level] / 4, rng)
                self._run(trace, smooth, 1, each[level] / 4, rng)
            ends += self._run(trace, norm, 1, each[0] / 4, rng)
        self.loops = [Loop("cycles", ends, may_be=True)]
        return trace

    def folded(self, rng: np.random.Generator, rank: int) -> Trace:
        """Steps of molecules: both neighbours in a direction are one rank, so all calls come twice; every so many steps
        some of them do not come, and others do."""
        parts, trace = self._begin(rng, rank)
        there, back, moved = (parts.call("Sendrecv")[0] for _ in range(3))
        peers = [one for peer in range(1, int(rng.integers(2, 5))) for one in (peer, peer)]
        usual = [parts.call("Sendrecv", 1, peer, there) for peer in peers]
        returned = [parts.call("Sendrecv", 1, peer, back) for peer in reversed(peers)]
        others = [parts.call("Sendrecv", 1, peer, moved) for peer in peers for _ in range(2)]
        every, made = int(rng.integers(8, 40)), 0

        def one() -> list[Call]:
            nonlocal made
            made += 1
            return usual + (returned if made % every else others)

        steps = self._run(trace, one, int(rng.integers(400, 1000)), float(rng.uniform(0.01, 0.05)), rng)
        self.loops = [Loop("steps", steps, may_be=True)]
        return trace

    def converging(self, rng: np.random.Generator, rank: int) -> Trace:
        """The number of inner passes changes at random, and in the long run."""
        begin, end = rng.uniform(2.0, 40.0, 2)
        means = np.geomspace(begin, end, max(int(1600 / (begin + end)), 24))
        return self._around(rng, rank, [max(int(n), 1) for n in rng.poisson(means)])

    def tasks(self, rng: np.random.Generator, rank: int) -> Trace:
        """A master gives tasks to whoever asks: in the order of their answers, or with a probe before."""
        parts, trace = self._begin(rng, rank)
        probes, workers = rng.random() < 0.5, max(self.ranks - 1, 3)
        seconds, passes = float(rng.uniform(0.01, 0.06)), int(rng.integers(200, 600))
        first, probe, receive, send = (parts.call(name)[0] for name in ("Send", "Probe", "Recv", "Send"))
        if rank == 0:
            trace.make([parts.call("Send", 1, peer, first) for peer in range(1, workers + 1)], 0.001)

        def one() -> list[Call]:
            peer = int(rng.integers(1, workers + 1)) if rank == 0 else 0
            found = [parts.call("Probe", 1, None, probe)] if probes else []
            return [*found, parts.call("Recv", 1, peer, receive), parts.call("Send", 1, peer, send)]

        self.loops = [Loop("tasks", self._run(trace, one, passes, seconds, rng), may_be=True)]
        return trace

    def rounds(self, rng: np.random.Generator, rank: int) -> Trace:
        """A master deals out a list of tasks, waits for all, and deals out the next: it tests for an answer as long as
        it has tasks, and waits for one once it has none."""
        parts, trace = self._begin(rng, rank)
        workers = max(self.ranks - 1, 3)
        each = workers * int(rng.integers(2, 13))
        seconds = float(rng.uniform(0.003, 0.03))
        test, wait, receive, send, first = (parts.call(one)[0] for one in ("Iprobe", "Probe", "Recv", "Send", "Send"))
        first = first if rng.random() < 0.5 else send
        task_ends, round_ends = [], []
        for _ in range(max(int(20.0 / (seconds * each)), 8)):
            if rank == 0:
                trace.make([parts.call("Send", 1, peer, first) for peer in range(1, workers + 1)], 1e-4)
            for noise, left in zip(rng.gamma(20.0, 1 / 20.0, each).tolist(), reversed(range(each)), strict=True):
                peer = int(rng.integers(1, workers + 1)) if rank == 0 else 0
                probe = parts.call("Iprobe", 1, None, test) if left >= workers else parts.call("Probe", 1, None, wait)
                found = [probe, parts.call("Recv", 1, peer, receive)]
                if rank != 0 or left >= workers:
                    found.append(parts.call("Send", 1, peer, send))
                trace.make(found if rank == 0 else found[1:], seconds * noise)
                task_ends.append(trace.now)
            round_ends.append(trace.now)
        may_be_round = rank == 0 and each < 2 * MIN_ITERATIONS
        self.loops = [Loop("tasks", task_ends, may_be=True), Loop("rounds", round_ends, may_be=may_be_round)]
        return trace

    def phases(self, rng: np.random.Generator, rank: int) -> Trace:
        """Two or three loops, one after the other."""
        parts, trace = self._begin(rng, rank)
        number, ends = int(rng.integers(2, 4)), []
        for _ in range(number):
            seconds = float(rng.uniform(0.05, 0.2))
            ends += self._run(trace, parts.some(2), int(rng.uniform(12.0, 16.0) / seconds), seconds, rng)
        self.changes = number - 1
        self.loops = [Loop("steps", ends, may_be=True)]
        return trace

    def rare(self, rng: np.random.Generator, rank: int) -> Trace:
        """Steps with a collective of all ranks once in a while, too seldom to be the intervals."""
        parts, trace = self._begin(rng, rank)
        part, seconds, ends = parts.some(2), float(rng.uniform(0.1, 0.4)), []
        for _ in range(2):
            ends += self._run(trace, part, int(1.5 * MAX_QUIET_SECONDS / seconds), seconds, rng)
            trace.now += 0.001
            trace.collectives.append(trace.now)
        self.loops = [Loop("steps", ends, may_be=True)]
        return trace

    def regular(self, rng: np.random.Generator, rank: int) -> Trace:
        """Steps with collectives of all ranks after a few: these are the intervals."""
        parts, trace = self._begin(rng, rank)
        part, seconds, each = parts.some(2), float(rng.uniform(0.02, 0.1)), int(rng.integers(1, 6))
        for _ in range(int(15 / (each * seconds))):
            self._run(trace, part, each, seconds, rng)
            trace.now += 0.0001
            trace.collectives.append(trace.now)
        self.loops = [Loop("collectives", [], may_be=True)]
        return trace

    def prints(self, rng: np.random.Generator, rank: int) -> Trace:
        """Steps with some collectives of all ranks after many: the steps are the intervals."""
        parts, trace = self._begin(rng, rank)
        # Of messages with others at random alone, it is not known whether they are steps.
        same, more = parts.halo(), parts.some(1)
        seconds, each = float(rng.uniform(0.002, 0.1)), int(rng.integers(10, 41))
        several, ends = int(rng.integers(1, 4)), []
        self.before = len(trace.collectives)
        for _ in range(max(int(rng.uniform(4, 25) / (each * seconds)), 8)):
            for _ in range(several):
                trace.now += 0.0001
                trace.collectives.append(trace.now)
            ends += self._run(trace, lambda: [*same(), *more()], each, seconds, rng)
        self.loops = [Loop("steps", ends, may_be=True)]
        return trace

    def dumps(self, rng: np.random.Generator, rank: int) -> Trace:
        """Steps, and after many of them some collectives of all ranks with a few calls between two, as for output."""
        parts, trace = self._begin(rng, rank)
        same, more, write = parts.halo(), parts.some(1), parts.call("Send", 1, 0)
        seconds, each = float(rng.uniform(0.002, 0.05)), int(rng.integers(20, 81))
        several, ends = int(rng.integers(2, 6)), []
        self.before = len(trace.collectives)
        for _ in range(max(int(rng.uniform(8, 25) / (each * seconds)), 6)):
            ends += self._run(trace, lambda: [*same(), *more()], each, seconds, rng)
            for _ in range(several):
                trace.now += 0.0001
                trace.collectives.append(trace.now)
                trace.make([write] * int(rng.integers(1, 5)), 0.0001)
        self.loops = [Loop("steps", ends, may_be=True)]
        return trace

    def solvers(self, rng: np.random.Generator, rank: int) -> Trace:
        """Time steps: some steps of a solver with two collectives of all ranks in each, then many of another one, with
        a check after each tenth or so; on a quiet node or on a busy one."""
        parts, trace = self._begin(rng, rank)
        same, first, each = parts.halo(), int(rng.integers(5, 26)), int(rng.integers(10, 21))
        checks, seconds, ends = int(rng.integers(10, 21)), float(rng.uniform(0.001, 0.05)), []
        self.before, late = len(trace.collectives), 20 * seconds if rng.random() < 0.5 else 0.0

        def run(passes: int) -> list[float]:
            """On a busy node, where a rank loses its core now and then."""
            found = []
            for _ in range(passes):
                trace.now += late if rng.random() < 0.1 else 0.0
                found += self._run(trace, same, 1, seconds, rng)
            return found

        for _ in range(max(int(rng.uniform(10, 40) / ((first + checks * each) * seconds)), 4)):
            for _ in range(first):
                ends += run(1)
                trace.collectives += [trace.now, trace.now + 0.0001]
                trace.now += 0.0002
            for _ in range(checks):
                ends += run(each)
                trace.now += 0.0001
                trace.collectives.append(trace.now)
        self.loops = [Loop("steps", ends, may_be=True)]
        return trace

    def fast(self, rng: np.random.Generator, rank: int) -> Trace:
        """Iterations of microseconds, up to some million calls a second."""
        parts, trace = self._begin(rng, rank)
        part, rate = parts.halo() if rng.random() < 0.5 else parts.grid(), float(np.exp(rng.uniform(9.0, 13.9)))
        calls = part()
        passes = int(rate * 4.0) // len(calls)
        ends = trace.now + np.arange(1, passes * len(calls) + 1) / rate
        trace.fast = np.tile(np.array(calls, np.int64), (passes, 1)), ends
        trace.now = float(ends[-1])
        self.loops = [Loop("steps", ends[len(calls) - 1 :: len(calls)].tolist(), may_be=True)]
        return trace


class Rank:
    """A rank that executes its part of a program, look by look."""

    def __init__(self, folder: Path, rank: int, size: int, trace: Trace) -> None:
        self.shim = TracedShim(folder / f"rank-{rank}.{rank + 1}.ring", 1024, calls=16384, pid=rank + 1)
        self.shim.set(rank=rank, size=size)
        calls, ends = trace.arrays()
        self._sites, self._operations, self._comms, self._details = calls.T
        for site in range(1, int(self._sites.max(initial=0)) + 2):
            self.shim.site(0x10 * site)
        self._ends = np.round(ends * 1e9).astype(np.int64)
        self._collectives = np.round(np.array(trace.collectives) * 1e9).astype(np.int64)
        self._position = self._made = 0

    def run(self, until: float) -> None:
        """Execute what ends before this time."""
        part = slice(self._position, int(np.searchsorted(self._ends, until * 1e9, "right")))
        self._position = part.stop
        if part.start < part.stop:
            self.shim.call_many(
                self._ends[part], self._sites[part], self._operations[part], self._comms[part], self._details[part]
            )
        made = int(np.searchsorted(self._collectives, until * 1e9, "right"))
        for end in self._collectives[self._made : made].tolist():
            self.shim.put(end)
        self._made = made


class Outcome(NamedTuple):
    """What was found in a program."""

    seed: int
    kind: str
    found: bool
    says: str


def play(seed: int) -> Outcome:
    """Execute a program beside a sidecar. Raises Broken, with the seed, if an invariant is broken."""
    program = Program(seed)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        try:
            return _Watched(program, Path(name)).outcome()
        except Exception as error:
            raise Broken(f"seed {seed}, {program.kind}: {type(error).__name__}: {error}") from error


class _Watched:
    """A program and the sidecar beside it."""

    def __init__(self, program: Program, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.progress = Progress()
        self.rings = RingSet(folder, self.progress)
        self.intervals: list[tuple[int, float, float]] = []
        """Number, seconds and end of each."""
        self.ranges: list[dict[str, Any]] = []
        self.seconds = max(trace.now for trace in program.traces)
        self.ranks = [Rank(folder, rank, program.ranks, trace) for rank, trace in enumerate(program.traces)]
        rng = np.random.default_rng([program.seed, 2])
        looks = int(self.seconds / program.step_seconds)
        self.killed_at = int(rng.integers(0, looks + 1)) if rng.random() < 0.15 else -1
        """The look in which the sidecar is killed, before it commits; a second one continues."""
        self.away = int(rng.integers(1, 40))
        """After how many looks."""
        self._run(looks)

    def _run(self, looks: int) -> None:
        for look in range(1, looks + 1):
            for rank in self.ranks:
                rank.run(look * self.program.step_seconds)
            if self.killed_at < look < self.killed_at + self.away and self.killed_at >= 0:
                continue
            if look == self.killed_at:
                committed = copy.deepcopy(self.progress)
                self._look(look * self.program.step_seconds, commits=False)
                self.rings.close()
                self.progress = committed
                self.rings = RingSet(self.folder, committed)
                continue
            self._look(look * self.program.step_seconds)
        for rank in self.ranks:
            rank.run(self.seconds + 1.0)
        self.too_fast = self.rings.too_fast
        for _ in range(3):
            self._look(self.seconds + 1.0, final=True)
        self.counted, self.rows = self.rings.counted(), self.rings.rows
        self.rings.close()

    def _look(self, now: float, *, commits: bool = True, final: bool = False) -> None:
        self.rings.find()
        for rows in self.rings.read(final=final, now=now):
            values = rows.values
            if commits and rows.table == "blocks":
                columns = (values["first_index"], values["count"], values["sum_seconds"], values["ended_at"])
                for first, count, total, end in zip(*(column.tolist() for column in columns), strict=True):
                    self.intervals += [(first + i, total / count, end) for i in range(count)]
            elif commits and rows.table == "node_blocks":
                names = list(values)
                columns = (values[name].tolist() for name in names)
                self.ranges += [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        if commits:
            self.rings.release()

    def outcome(self) -> Outcome:
        """What was found. Raises Broken."""
        self._check_count()
        self._check_ranges()
        self._check_cost()
        program, made = self.program, len(self.program.traces[0].collectives)
        made = made if program.before is None else program.before
        found = self.counted[0] - made
        likely = [loop for loop in program.loops if loop.may_be]
        says = f"{found} intervals of " + ", ".join(f"{len(loop.ends)} {loop.name}" for loop in likely)
        if self.killed_at >= 0:
            return Outcome(program.seed, program.kind, True, f"{says}; killed in look {self.killed_at}")
        if program.kind == "fast":
            # Several are recorded together, or none where that costs too much.
            shim = self.ranks[0].shim
            passes = int((np.array(likely[0].ends) * 1e9 >= shim.named_ns).sum())
            near = passes > 0 and abs(shim.anchors - passes) <= TOLERANCE * passes + EDGE
            says = f"{says}; {shim.anchors} of {passes} since named, too fast: {self.too_fast}"
            return Outcome(program.seed, program.kind, bool(self.too_fast) or near, says)
        near = any(self._is_near(found, loop) for loop in likely)
        return Outcome(program.seed, program.kind, near, f"{says}; {self.ranks[0].shim.wanted}")

    def _is_near(self, found: int, loop: Loop) -> bool:
        missing = self.program.changes * CHANGE_SECONDS / (loop.ends[-1] - loop.ends[0]) if loop.ends else 0.0
        least = (1 - TOLERANCE - missing) * len(loop.ends) - EDGE
        return least <= found <= (1 + TOLERANCE) * len(loop.ends) + EDGE

    def _check_count(self) -> None:
        numbers = [number for number, *_ in self.intervals]
        seen, lost = self.counted
        if self.rows != len(numbers) or seen - lost != self.rows:
            raise Broken(f"{seen} intervals seen, {lost} lost, {self.rows} rows, {len(numbers)} in blocks")
        if len(set(numbers)) != len(numbers):
            raise Broken("an interval is in two blocks")
        if lost == 0 and numbers != list(range(len(numbers))):
            raise Broken("an interval is in no block, and none was lost")
        if lost == 0 and self.intervals and self.program.kind != "fast":
            total, end = sum(seconds for _, seconds, _ in self.intervals), self.intervals[-1][2]
            began = 1_700_000_000.0
            if abs(total - (end - began)) > 1e-3:
                raise Broken(f"intervals take {total:.3f} s together, the run until the last one {end - began:.3f} s")

    def _check_ranges(self) -> None:
        ends: dict[int, int] = {}
        for row in self.ranges:
            if row["first_index"] < ends.get(row["world"], 0):
                raise Broken(f"ranges of world {row['world']} overlap at {row['first_index']}")
            ends[row["world"]] = row["first_index"] + row["length"]
            if not 1 <= row["ranks"] <= self.program.ranks or row["own_seconds"] < -1e-6 or row["wait_seconds"] < -1e-6:
                raise Broken(f"impossible values of a range: {row}")

    def _check_cost(self) -> None:
        for number, rank in enumerate(self.ranks):
            calls = rank.shim.recorded
            if calls * CALL_SECONDS > MAX_SHARE * self.seconds + MAX_START_SECONDS:
                raise Broken(
                    f"rank {number} recorded {calls} calls in {self.seconds:.1f} s: more than {MAX_SHARE:.0%} of a core"
                )


def attempt(seed: int) -> Outcome | str:
    """The outcome of a program, or what it broke."""
    try:
        return play(seed)
    except Broken as error:
        return str(error)


def main() -> int:
    """Play; returns the exit status."""
    parser = argparse.ArgumentParser(prog="simulation.calls", description=__doc__.partition("\n")[0])
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=int)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.replay is not None:
        found = attempt(options.replay)
        print(found)
        return int(isinstance(found, str))
    began = time.monotonic()
    made: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    broken = 0
    seeds: Iterator[int] = iter(range(options.seed, options.seed + options.programs))
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        for found in pool.imap_unordered(attempt, seeds, chunksize=8):
            if isinstance(found, str):
                broken += 1
                print(f"BROKEN {found}", flush=True)
                continue
            made[found.kind] += 1
            if not found.found:
                missed[found.kind] += 1
                print(f"missed: seed {found.seed}, {found.kind}: {found.says}", flush=True)
    seconds, total = time.monotonic() - began, sum(made.values())
    for kind, number in sorted(made.items()):
        print(f"  {number:6} {kind}: iterations found in {1 - missed[kind] / number:.1%}")
    share = 1 - sum(missed.values()) / max(total, 1)
    print(
        f"{total} programs from seed {options.seed} on, {broken} broken,"
        f" iterations found in {share:.1%}, {seconds:.0f} s"
    )
    return int(broken > 0 or share < MIN_FOUND)


if __name__ == "__main__":
    raise SystemExit(main())
