"""200 kills of a collector under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.chaos import Chaos
from helpers.printed import show

ROUNDS = 200


@pytest.mark.timeout(4 * 3600)
def test_two_hundred_deaths_lose_and_double_nothing(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path / "state", streams=4, seed=200)
    for _ in range(ROUNDS):
        chaos.round()
    chaos.settle()
    lost, doubled = chaos.verdict()
    show(
        f"{ROUNDS} deaths of the collector",
        [
            *(f"{accident:50} {times:4}" for accident, times in chaos.accidents.items()),
            f"{'messages doubled':50} {sum(stream.doubled for stream in chaos.streams):,}",
            f"{'messages swapped':50} {sum(stream.swapped for stream in chaos.streams):,}",
            f"{'rows sent and acknowledged':50} {sum(stream.rows for stream in chaos.streams):,}",
            f"{'lost, doubled':50} {lost}, {doubled}",
        ],
    )
    assert (lost, doubled) == (0, 0)
