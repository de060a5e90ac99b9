"""Some generated programs; `make simulate-calls` has 10,000."""

from __future__ import annotations

import pytest

from barograph_agent.reduce.iterations import IterationReducer
from simulation.calls import MIN_FOUND, attempt

PROGRAMS = 40
FAST = 293
"""A program that makes 900,000 calls a second."""
KILLED = range(1, 21)
"""Programs of which some sidecars are killed."""
CHANGING = (18, 53, 66)
"""Programs with several loops one after the other."""


def test_iterations_of_generated_programs_are_found_and_no_invariant_breaks() -> None:
    outcomes = [attempt(seed) for seed in range(1, PROGRAMS + 1)]
    broken = [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert broken == []
    missed = [outcome for outcome in outcomes if not isinstance(outcome, str) and not outcome.found]
    assert len(missed) <= (1 - MIN_FOUND) * PROGRAMS, missed


def test_a_rank_whose_calls_are_written_without_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barograph_agent.loops.loop.MAX_CALL_RATE", 1e9)
    monkeypatch.setattr("barograph_agent.loops.loop.MAX_HISTORY", 2**40)  # after half of it an anchor is sought
    assert "more than 1% of a core" in str(attempt(FAST))


def test_ranges_that_overlap_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barograph_agent.reduce.iterations._read_tick", lambda member: -1)
    monkeypatch.setattr(IterationReducer, "_until", property(lambda self: 0, lambda self, value: None), raising=False)
    assert any("overlap" in str(attempt(seed)) for seed in CHANGING)


def test_intervals_that_a_killed_sidecar_takes_with_it_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copy.deepcopy", lambda progress: progress)
    assert any("in blocks" in str(attempt(seed)) for seed in KILLED)
