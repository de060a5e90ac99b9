"""How often a loop has been passed through, by the sites at which intervals end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from barograph_agent.launch import _intervals
from barograph_agent.reduce.passes import MAX_SITES, Passes
from barograph_agent.reduce.ring_set import Progress, RingSet
from barograph_agent.sidecar.plan import DeliveryReport
from helpers.rings import FakeShim

STEPS = [1, 2, 3] * 100


def passes_of(sites: list[int], seconds: float | list[float] = 1.0, *, at_once: int = 7) -> int:
    passes = Passes()
    times = np.broadcast_to(np.array(seconds, float), len(sites))
    for first in range(0, len(sites), at_once):
        passes.add(np.array(sites[first : first + at_once]), times[first : first + at_once])
    return passes.number()


@pytest.mark.parametrize(
    ("sites", "expected"),
    [
        (STEPS, 100),
        # Set-up, an output after each tenth step, a step that is cut off.
        ([9, 9, 8, *[one for n in range(10) for one in (*[1, 2, 3] * 10, 7)], 1, 2], 101),
        ([4] * 100, 0),
        ([], 0),
        (list(range(1000)), 0),
        # Of loops in a loop, the inner one.
        ([one for _ in range(10) for one in (*[1, 2] * 30, 3)], 300),
        # Branches: what follows differs, the ends do not.
        ([one for n in range(100) for one in ((1, 2, 5) if n % 3 else (1, 4, 5))], 100),
    ],
)
def test_passes_are_what_sites_of_most_intervals_have_in_common(sites: list[int], expected: int) -> None:
    assert passes_of(sites) == expected


def test_a_loop_of_little_time_is_not_it() -> None:
    assert passes_of([*STEPS, *[4] * 20], [*[0.01] * 300, *[1.0] * 20]) == 20
    assert passes_of([*STEPS, *[4] * 20], [*[0.1] * 300, *[1.0] * 20]) == 100
    assert passes_of(list(range(MAX_SITES + 100)) * 8) == 8


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
    assert rings.passes() == 100
    rings.close()
    # Of a run whose begin another sidecar has read, nothing is known.
    rings = RingSet(tmp_path, progress)
    rings.find()
    list(rings.read(final=True))
    assert rings.passes() == 0
    rings.close()
    report = DeliveryReport(1, 300, 300, 0, 0, reached=True, verdict="", passes=100)
    assert _intervals(report, None, []) == "300 seen on 1 rank, 300 stored; 100 passes of a loop"  # type: ignore[arg-type]
