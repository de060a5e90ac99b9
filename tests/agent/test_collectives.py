"""What is remembered of collectives and calls, and what a look at them costs."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from barograph_agent.loops.anchors import MIN_ITERATIONS
from barograph_agent.loops.collectives import MAX_POINTS, MIN_IN_ROUNDS, MIN_ROUNDS, Collectives
from barograph_agent.loops.loop import Loop
from barograph_agent.loops.newest import SPARE, Newest
from barograph_agent.ring.reader import Ring
from helpers.rings import STARTED_NS, FakeShim

SEND = 34
NONE = np.empty(0, np.int64)


@pytest.mark.parametrize("seed", range(20))
def test_calls_between_collectives_are_counted_as_if_all_were_looked_at_at_once(tmp_path: Path, seed: int) -> None:
    """Calls and collectives come between looks at random, also a collective after a look before its calls are read."""
    rng = np.random.default_rng(seed)
    calls = np.sort(rng.choice(3000, 400, replace=False))
    points = np.sort(rng.choice(3000, int(rng.integers(2, 60)), replace=False))
    shim = FakeShim(tmp_path / "rank-0.1.ring", 4096)
    with Ring(shim.path) as ring:
        found, read, made = Collectives(ring, recalls=True), 0, 0
        for now in [*np.sort(rng.choice(3000, 30)).tolist(), 3001]:
            until = int(np.searchsorted(calls, now - rng.integers(0, 20)))
            while made < len(points) and points[made] < now:
                shim.put(int(points[made]))
                made += 1
            fresh, read = calls[read:until] + STARTED_NS, max(read, until)
            found.add(fresh, len(fresh), remembers=True)
        found.add(calls[read:] + STARTED_NS, len(calls) - read, remembers=True)
    numbers, counts = np.unique(np.searchsorted(points, calls), return_counts=True)
    whole = counts[(numbers > 0) & (numbers < len(points))][-MIN_ROUNDS:]
    assert found._complete() == whole.tolist()
    ended = counts[(numbers > 0) & (numbers < len(points))]
    long = ended[ended > MIN_ITERATIONS]
    assert found._ended == (len(long), long.sum(), ended.sum() - long.sum())
    are_most = len(long) >= MIN_ROUNDS and long.sum() >= MIN_IN_ROUNDS * ended.sum()
    assert found.are_rare == (are_most or (len(whole) == MIN_ROUNDS and whole.min() > MIN_ITERATIONS))


def test_as_many_collectives_are_remembered_as_are_needed(tmp_path: Path) -> None:
    shim = FakeShim(tmp_path / "rank-0.1.ring", 4 * MAX_POINTS)
    with Ring(shim.path) as ring:
        found = Collectives(ring, recalls=True)
        for look in range(8):
            for number in range(1000):
                shim.put(10 * (1000 * look + number))
            found.add(NONE, 0, remembers=True)
        assert len(found._ends) == MAX_POINTS
        assert found._ends.newest()[-1] == STARTED_NS + 79_990


@pytest.mark.parametrize("recalls", [True, False], ids=["of the rank that is told", "of another one"])
def test_looks_at_a_few_calls_copy_a_few_whatever_is_remembered(tmp_path: Path, *, recalls: bool) -> None:
    """After a collective, in each look: whether the calls since then are of iterations."""
    shim = FakeShim(tmp_path / "rank-0.1.ring", 64, calls=32_768)
    shim.site(0x10)
    with Ring(shim.path) as ring:
        loop, at, copied = Loop(ring, recalls=recalls), 0, 0
        for look in range(250):
            for _ in range(100 if look < 200 else 8):
                at += 1000
                shim.call(at, 1, SEND, detail=at % 7)
            if look == 200:
                shim.put(at + 1)
            tracemalloc.start()
            loop.step(look * 0.5, 0, may_search=False)
            copied += tracemalloc.get_traced_memory()[1] if look > 200 else 0
            tracemalloc.stop()
        assert loop.holds
        assert len(loop._calls) > 16_000
    # The rows move once. With a copy of 16,384 calls in each look it is 34 MB.
    assert 0 < copied < 1_000_000


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_a_window_has_the_newest_rows_and_no_more_room_than_it_needs(most: int) -> None:
    rng = np.random.default_rng(most)
    window, rows, begun = Newest(most, np.int64), np.empty(0, np.int64), 0
    for number in range(300):
        fresh = rng.integers(0, 100, int(rng.integers(0, 2 * most)))
        window.append(fresh)
        rows = np.concatenate([rows, fresh])
        begun = max(begun, len(rows) - most)
        if number % 7 == 0:
            dropped = len(window) // 2
            window.drop(dropped)
            begun += dropped
        assert window.newest().tolist() == rows[begun:].tolist()
        assert window.newest(3).tolist() == rows[max(begun, len(rows) - 3) :].tolist()
        assert window.dropped == begun
        assert len(window._rows) <= max(most * (1 + SPARE), 256)
    window.clear()
    assert (len(window), window.dropped) == (0, 0)
