"""What a hostile agent may write ends no daemon, puts no job in quarantine, and can be exposed."""

from __future__ import annotations

from typing import Any

import pytest

from barograph_alerts.processor import Scorer
from simulation.values import play

SEEDS = (1, 2, 3, 4, 36, 141, 201)
"""Some of which have ended a daemon. CI plays 250 of them: `make simulate-values`."""


@pytest.mark.parametrize("seed", SEEDS)
def test_no_value_that_the_collector_accepts_raises_in_a_daemon(seed: int) -> None:
    found = play(seed)
    assert found["accepted"] > 100
    assert found["assignments written"] > 10


def test_rounds_learn_and_judge() -> None:
    found = play(1) + play(2)
    assert min(found[f"{table} written"] for table in ("bands", "paces", "scores")) > 0


def test_an_exception_is_found_and_names_seed_and_round(monkeypatch: pytest.MonkeyPatch) -> None:
    def fragile(self: Scorer, columns: Any) -> None:
        raise OverflowError

    monkeypatch.setattr(Scorer, "_read_blocks", fragile)
    with pytest.raises(OverflowError) as caught:
        play(1)
    assert caught.value.__notes__[0].startswith("seed ")
