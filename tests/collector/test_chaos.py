"""The collector killed at random instants under load, its files spoilt: nothing lost, nothing doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.chaos import ACCIDENTS, Chaos

ROUNDS = len(ACCIDENTS)
"""`make bench` has 200."""


@pytest.mark.process
@pytest.mark.timeout(900)
def test_no_row_is_lost_or_doubled_whatever_happens_to_process_and_files(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path / "state", streams=4, seed=4)
    for _ in range(ROUNDS):
        chaos.round()
    chaos.settle()
    assert chaos.verdict() == (0, 0)
    assert sum(stream.rows for stream in chaos.streams) > 1000
