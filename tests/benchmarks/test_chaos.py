"""Two hundred deaths of a collector under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.chaos import Chaos

ROUNDS = 200


@pytest.mark.timeout(4 * 3600)
def test_two_hundred_deaths_lose_and_double_nothing(tmp_path: Path) -> None:
    chaos = Chaos(tmp_path / "state", streams=4, seed=200)
    for _ in range(ROUNDS):
        chaos.round()
    chaos.settle()
    lost, doubled = chaos.verdict()
    print(f"\n\n{ROUNDS} deaths of the collector\n" + "-" * 26)
    for accident, times in chaos.accidents.items():
        print(f"{accident:50} {times:4}")
    print(f"{'messages doubled':50} {sum(stream.doubled for stream in chaos.streams):,}")
    print(f"{'messages swapped':50} {sum(stream.swapped for stream in chaos.streams):,}")
    print(f"{'rows said and acknowledged':50} {sum(stream.rows for stream in chaos.streams):,}")
    print(f"{'lost, doubled':50} {lost}, {doubled}")
    assert (lost, doubled) == (0, 0)
