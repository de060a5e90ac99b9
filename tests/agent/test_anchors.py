"""Anchors are found in generated sequences of calls, from a seed, and in none where there is no loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from barograph_agent.reduce import anchors
from barograph_agent.reduce.anchors import Anchor
from barograph_agent.ring.reader import CALL, OPERATIONS, Records

NUMBERS = {name: number for number, name in OPERATIONS.items()}
PROGRAMS = 300

Call = tuple[int, str, int, int]
"""Site, operation, communicator and other rank."""
Part = Callable[[int], list[Call]]
"""What a part of a program calls in an iteration."""


def records(calls: list[Call], seconds: list[float] | None = None) -> Records:
    found = np.zeros(len(calls), CALL)
    found["site"] = [site for site, *_ in calls]
    found["op"] = [NUMBERS[operation] for _, operation, *_ in calls]
    found["comm"] = [comm for *_, comm, _ in calls]
    found["detail"] = [comm + 100 * peer for *_, comm, peer in calls]
    found["exit_ns"] = np.cumsum(np.array(seconds or [1e-4] * len(calls)) * 1e9).astype(np.uint64)
    return found


class Program:
    """A loop of a random program. `iterate` is one iteration."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.site = 1
        kinds = (self.halo, self.grid, self.random_neighbours, self.solver, self.stages, self.wrapped)
        self.parts = [kinds[number] for number in rng.choice(len(kinds), rng.integers(1, 4), replace=False)]
        self.made = [part() for part in self.parts]
        self.writes = int(rng.integers(12, 60)) if rng.random() < 0.3 else 0
        self.write = [(self.next(), "Gather", 3, 0), (self.next(), "Send", 1, 0)]

    def next(self) -> int:
        self.site += 1
        return self.site

    def iterations(self, number: int) -> Iterator[list[Call]]:
        for i in range(number):
            found = [call for part in self.made for call in part(i)]
            yield found + (self.write if self.writes and i % self.writes == 0 else [])

    def halo(self) -> Part:
        neighbours = range(int(self.rng.integers(1, 7)))
        sends = [self.next() for _ in neighbours] if self.rng.random() < 0.5 else [self.next()] * len(neighbours)
        calls = [(site, "Isend", 1, peer) for site, peer in zip(sends, neighbours, strict=True)]
        calls.append((self.next(), "Waitall", 0, 0))
        return lambda i: calls

    def grid(self) -> Part:
        """Collectives on communicators of rows and columns, from one site or two."""
        first, second = self.next(), self.next()
        one = self.rng.random() < 0.5
        calls = [(first, "Allreduce", 5, 0), (first if one else second, "Allreduce", 6, 0)]
        return lambda i: calls

    def random_neighbours(self) -> Part:
        send, receive, last = self.next(), self.next(), (self.next(), "Waitall", 0, 0)
        most = int(self.rng.integers(2, 8))
        return lambda i: [
            *[
                (site, operation, 1, int(peer))
                for peer in self.rng.integers(0, 16, int(self.rng.integers(0, most + 1)))
                for site, operation in ((send, "Send"), (receive, "Recv"))
            ],
            last,
        ]

    def solver(self) -> Part:
        """An inner loop until convergence, of few steps, between calls that come once."""
        before, step, norm, after = (self.next() for _ in range(4))
        least, most = sorted(int(n) for n in self.rng.integers(1, 6, 2))
        return lambda i: [
            (before, "Sendrecv", 1, 2),
            *[(step, "Sendrecv", 1, 2), (norm, "Wait", 0, 0)] * int(self.rng.integers(least, most + 1)),
            (after, "Bcast", 4, 0),
        ]

    def stages(self) -> Part:
        """A nested loop of a fixed number of stages, with a loop in each."""
        stages, steps = int(self.rng.integers(2, 5)), int(self.rng.integers(1, 4))
        a, b, c = self.next(), self.next(), self.next()
        calls = [*[*[(a, "Isend", 1, 1), (b, "Wait", 0, 0)] * steps, (c, "Waitall", 0, 0)] * stages]
        last = (self.next(), "Reduce", 4, 0)
        return lambda i: [*calls, last]

    def wrapped(self) -> Part:
        """All calls from one site, as those of an interpreter are."""
        site = self.next()
        calls = [(site, "Send", 1, 1), (site, "Recv", 1, 1), (site, "Send", 1, 2), (site, "Recv", 1, 2)]
        return lambda i: calls


def counted(rng: np.random.Generator) -> tuple[int, int, list[str]]:
    """Iterations of a program, and those by its anchor in the second half of its calls; the kinds of its parts."""
    program = Program(rng)
    start = [(900 + int(n), "Send", 1, 0) for n in range(int(rng.integers(0, 200)))]
    whole = list(program.iterations(400))
    calls = start + [call for one in whole for call in one]
    anchor = anchors.find(records(calls[: len(start) + len(calls) // 2]))
    kinds = [part.__name__ for part in program.parts]
    return len(whole), 0 if anchor is None else len(anchors.occurrences(records(calls), anchor)), kinds


def test_the_iterations_of_generated_programs_are_found() -> None:
    missed = []
    for seed in range(PROGRAMS):
        made, found, kinds = counted(np.random.default_rng(seed))
        if abs(found - made) > 0.02 * made:
            missed.append((seed, made, found, kinds))
    assert len(missed) <= 0.05 * PROGRAMS, missed[:20]


def test_a_loop_in_which_every_token_comes_twice_has_each_second_one() -> None:
    a, b = (1, "Send", 1, 0), (2, "Recv", 1, 0)
    anchor = anchors.find(records([a, a, b, b] * 100))
    assert anchor is not None
    assert anchor.every == 2
    assert len(anchors.occurrences(records([a, a, b, b] * 100), anchor)) == 100


def test_a_rare_call_that_takes_most_of_the_time_is_the_iteration() -> None:
    inner, outer = (1, "Sendrecv", 1, 1), (2, "Bcast", 4, 0)
    calls = [*[inner] * 20, outer] * 30
    quick = anchors.find(records(calls))
    slow = anchors.find(records(calls, [1.0 if call == outer else 1e-4 for call in calls]))
    assert quick == Anchor(NUMBERS["Sendrecv"], 1)
    assert slow == Anchor(NUMBERS["Bcast"], 2)


def test_the_loop_may_have_begun_with_the_last_quarter() -> None:
    calls = [(1, "Send", 1, 0), (2, "Recv", 1, 0), (3, "Wait", 0, 0)] * 300 + [(7, "Waitall", 0, 0)] * 250
    assert anchors.find(records(calls)) == Anchor(NUMBERS["Waitall"], 7)


@pytest.mark.parametrize("seed", range(5))
def test_calls_in_no_order_have_no_anchor_but_the_most_frequent(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = ["Send", "Recv", "Wait", "Bcast"]
    calls = [(int(n), names[n % 4], 1, 0) for n in rng.integers(1, 30, 500)]
    assert anchors.find(records(calls)) is None


def test_few_calls_have_none() -> None:
    assert anchors.find(records([])) is None
    assert anchors.find(records([(1, "Wait", 0, 0)] * 5)) is None
    assert anchors.find(records([(1, "Wait", 0, 0)] * 6)) == Anchor(NUMBERS["Wait"], 1)
