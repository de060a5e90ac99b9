"""How often a loop has been passed through, by the sites at which intervals end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from barograph_agent.launch import _intervals
from barograph_agent.reduce.passes import Passes
from barograph_agent.reduce.ring_set import Progress, RingSet
from barograph_agent.ring.reader import RECORD, Records
from barograph_agent.sidecar.plan import DeliveryReport
from helpers.rings import FakeShim

STEPS = [1, 2, 3] * 100


def ends(sites: list[int], seconds: float | list[float] = 1.0, size: int | list[int] = 8) -> Records:
    found = np.zeros(len(sites), RECORD)
    found["site"], found["op"], found["bytes"] = sites, 9, size
    found["exit_ns"] = np.cumsum(np.broadcast_to(np.array(seconds, float), len(sites))) * 1e9
    return found


def passes_of(records: Records, *, at_once: int = 7, are_iterations: bool = False) -> list[int]:
    passes = Passes()
    seconds = np.diff(records["exit_ns"].astype(np.int64), prepend=0) * 1e-9
    for first in range(0, len(records), at_once):
        part = slice(first, first + at_once)
        passes.add(records[part], np.full(len(records[part]), are_iterations), seconds[part])
    return passes.numbers()


@pytest.mark.parametrize(
    ("sites", "expected"),
    [
        (STEPS, [100]),
        # Set-up, an output after each tenth step, a step that is cut off.
        ([9, 9, 8, *[one for n in range(10) for one in (*[1, 2, 3] * 10, 7)], 1, 2], [101, 10]),
        ([4] * 100, []),
        ([], []),
        (list(range(1000)), []),
        # Loops in a loop.
        ([one for _ in range(10) for one in (*[1, 2] * 30, 3)], [300]),
        ([one for _ in range(20) for one in (*[1, 2] * 3, 3)], [60, 20]),
        # Branches: what follows differs, the ends do not.
        ([one for n in range(100) for one in ((1, 2, 5) if n % 3 else (1, 4, 5))], [100, 66, 34]),
    ],
)
def test_passes_are_those_of_the_loops_that_time_ends_in(sites: list[int], expected: list[int]) -> None:
    assert passes_of(ends(sites)) == expected


def test_a_loop_of_little_time_or_a_short_one_is_not_told() -> None:
    after = [4] * 20
    assert passes_of(ends([*STEPS, *after], [*[1.0] * 300, *[0.01] * 20])) == [100]
    assert passes_of(ends([*STEPS, *[5, 6] * 40])) == [100]


@pytest.mark.parametrize("share", [1.0, 0.2, 0.0])
def test_of_many_loops_in_loops_the_one_around_all_is_told(share: float) -> None:
    """Time steps of OpenFOAM: corrections of the pressure, a solver for each, and its iterations."""
    sites = [one for _ in range(20) for one in (*([*[1, 2] * 10, 3, 4] * 3 + [5]) * 3, 6)]
    seconds = {3: 3.0, 4: 3.0, 5: 10.0, 6: share * 30.0}
    told = passes_of(ends(sites, [seconds.get(site, 1.0) for site in sites]))
    assert told == ([1800, 180, 20] if share else [1800, 180, 60])


def test_the_steps_around_a_loop_that_most_time_is_in_are_told() -> None:
    """SPARTA migrates particles once or twice a step, and most time ends there."""
    steps = [one for n in np.random.default_rng(1).integers(1, 3, 200) for one in (*[1] * n, 2)]
    assert passes_of(ends(steps, [1.0 if one == 1 else 0.3 for one in steps])) == [steps.count(1), 200]


def test_bytes_tell_calls_of_one_site_apart() -> None:
    """Those of an interpreter."""
    assert passes_of(ends([1] * 400, size=[8, 8, 64, 8] * 100)) == [100]
    random = np.random.default_rng(1).integers(0, 2**40, 30_000).tolist()
    assert passes_of(ends([1, 2] * 15_000, size=random), at_once=999) == [15_000]


def test_bytes_of_iterations_do_not_matter() -> None:
    assert passes_of(ends([1] * 400, size=[8, 8, 64, 8] * 100), are_iterations=True) == []


def test_the_last_line_has_passes_where_intervals_are_others(tmp_path: Path) -> None:
    shim = FakeShim(tmp_path / "rank-0.1.ring", 1024)
    shim.set(rank=0, size=1)
    for site in range(1, 4):
        shim.site(0x10 * site)
    for number, site in enumerate(STEPS):
        shim.put(1_000_000 * (number + 1), site)
    progress = Progress()
    rings = RingSet(tmp_path, progress)
    rings.find()
    list(rings.read(final=True))
    assert rings.passes() == [100]
    rings.close()
    # Of a run whose begin another sidecar has read, nothing is known.
    rings = RingSet(tmp_path, progress)
    rings.find()
    list(rings.read(final=True))
    assert rings.passes() == []
    rings.close()
    report = DeliveryReport(1, 300, 300, 0, 0, reached=True, verdict="", loops=[100])
    assert _intervals(report, None, []) == "300 seen on 1 rank, 300 stored; 100 passes of a loop"  # type: ignore[arg-type]
    report = DeliveryReport(1, 900, 900, 0, 0, reached=True, verdict="", loops=[1200, 400])
    assert _intervals(report, None, []).endswith("; 1,200, 400 passes of loops")  # type: ignore[arg-type]
