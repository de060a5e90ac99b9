"""The C that reads records, compared with plain Python on generated runs."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barograph_agent.reduce.intervals import Cursor, class_id
from barograph_agent.reduce.library import _Block, _Intervals, _Reduction
from barograph_agent.reduce.ranks import Member, NodeReducer
from barograph_agent.ring.reader import Ring
from helpers.mpi import REPOSITORY
from helpers.rings import STARTED_NS, FakeShim

CAPACITY, SITES = 256, 4


class Point(NamedTuple):
    """What one rank did up to one sync point. Nanoseconds."""

    enter: int
    exit: int
    gap: int
    p2p: int
    messages: int
    sites: tuple[int, int]


def play(shims: list[FakeShim], rng: np.random.Generator, steps: int, made: list[dict[int, Point]], end: int) -> int:
    """Some sync points, of which full rings lack some; adds what can be known of each to `made`. Returns the end."""
    for _ in range(steps):
        p2p, site = rng.integers(0, 10**6, len(shims)), int(rng.integers(1, SITES + 1))
        enters = end + rng.integers(1, 10**7, len(shims)) + p2p
        end = int(enters.max() + rng.integers(1, 1000))
        for rank, shim in enumerate(shims):
            number, messages = shim.seen, int(rng.integers(0, 9))
            before = shim.records[(shim.get("head") - 1) % CAPACITY].copy() if shim.get("head") else None
            wait, own = int(end - enters[rank]), int(p2p[rank])
            if not shim.put(end, site, wait_ns=wait, p2p_ns=own, sent=(messages, 3 * messages)):
                continue
            fields = ("exit_ns", "index", "site")
            began, last, earlier = (int(before[name]) for name in fields) if before is not None else (STARTED_NS, -1, 0)
            if last + 1 == number:
                enter = STARTED_NS + int(enters[rank])
                made[rank][number] = Point(enter, STARTED_NS + end, enter - began, own, messages, (earlier, site))
    return end


def expected(made: list[dict[int, Point]], first: int, length: int) -> dict[str, float]:
    """The row of a block, by its definition."""
    points = [[rank[at] for rank in made] for at in range(first, first + length) if all(at in rank for rank in made)]
    last = [max(range(len(made)), key=lambda rank, point=point: point[rank].enter) for point in points]
    latest = max(range(len(made)), key=last.count)
    own = [sum(point[rank].gap - point[rank].p2p for point in points) for rank in range(len(made))]
    late = [sorted(one.enter for one in point)[-2:] for point, rank in zip(points, last, strict=True) if rank == latest]
    return {
        "count": len(points),
        "last_rank": latest,
        "last_count": last.count(latest),
        "late_seconds": sum(b - a for a, b in late) * 1e-9,
        "own_rank": own.index(max(own)),
        "own_rank_seconds": max(own) * 1e-9,
        "own_seconds": sum(own) * 1e-9,
        "p2p_seconds": sum(one.p2p for point in points for one in point) * 1e-9,
        "wait_seconds": sum(one.exit - one.enter for point in points for one in point) * 1e-9,
        "least_wait_seconds": sum(min(one.exit - one.enter for one in point) for point in points) * 1e-9,
    }


def by_class(points: list[list[Point]], ring: Ring) -> dict[int, list[float]]:
    """Count, longest work, exchange, least wait, messages and work of each class."""
    found: defaultdict[int, list[float]] = defaultdict(lambda: [0.0] * 6)
    for point in points:
        slowest, gap = max(one.gap - one.p2p for one in point), max(one.gap for one in point)
        wait, messages = min(one.exit - one.enter for one in point), sum(one.messages for one in point)
        own = sum(one.gap - one.p2p for one in point) * 1e-9
        total = found[class_id(*map(ring.site, point[0].sites))]
        for place, value in enumerate((1, slowest * 1e-9, (gap - slowest) * 1e-9, wait * 1e-9, messages, own)):
            total[place] += value
    return found


def reducer(folder: Path, ranks: int) -> tuple[list[FakeShim], list[Member]]:
    shims = [FakeShim(folder / f"rank-{rank}.ring", CAPACITY) for rank in range(ranks)]
    for shim in shims:
        for site in range(SITES):
            shim.site(16 * site + 16)
    return shims, [Member(Ring(shim.path), Cursor(0, rank, ranks)) for rank, shim in enumerate(shims)]


@given(st.integers(0, 2**32), st.integers(2, 5), st.lists(st.integers(0, 400), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_what_their_definitions_say(tmp_path: Path, seed: int, ranks: int, steps: list[int]) -> None:
    rng, made, end = np.random.default_rng(seed), [{} for _ in range(ranks)], 0
    shims, members = reducer(tmp_path, ranks)
    node, rows = NodeReducer(0, members), []
    for number, count in enumerate(steps):
        end = play(shims, rng, count, made, end)
        rows += node.read(final=number == len(steps) - 1)
        for ring, cursor in members:
            ring.release(max(cursor.node_position - 1, ring.tail))
    phases, read, ring = node.pop_phases(), set(), members[0].ring
    for row in rows:
        want = expected(made, row["first_index"], row["length"])
        assert {name: row[name] for name in want} == pytest.approx(want)
        read |= set(range(row["first_index"], row["first_index"] + row["length"]))
    points = [[rank[at] for rank in made] for at in sorted(read) if all(at in rank for rank in made)]
    columns = ("count", "slowest_seconds", "exchange_seconds", "least_wait_seconds", "messages", "own_seconds")
    reported = zip(*(phases[name] for name in ("class_id", *columns)), strict=True) if phases else ()
    assert any(shim.get("dropped") for shim in shims) or len(read) == sum(steps)
    for class_, *values in reported:
        assert values == pytest.approx(by_class(points, ring)[class_])
    for ring, _ in members:
        ring.close()


def test_the_structures_are_those_of_the_headers() -> None:
    text = "".join(path.read_text() for path in (REPOSITORY / "agent/shim/reader").glob("*.h"))
    for name, structure in {"block": _Block, "intervals": _Intervals, "reduction": _Reduction}.items():
        body = re.sub(r"/\*.*?\*/", "", re.search(rf"struct {name} {{(.*?)\n}};", text, re.DOTALL)[1], flags=re.DOTALL)
        assert re.findall(r"(\w+)[;,]", body) == [field for field, _ in structure._fields_]
