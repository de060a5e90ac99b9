"""200 rounds of the kill matrix (`helpers.kills`): the number of intervals, and of lost and doubled ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from helpers import mpi as mpis
from helpers.kills import play
from helpers.service import Node, Service

ROUNDS = 200


@pytest.mark.timeout(7200)
def test_two_hundred_rounds_of_kills(tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "agent/programs/paced.c"
    program = mpis.find("mpich").compile(source, tmp_path / "paced")
    totals: Counter[str] = Counter()
    with Service(tmp_path) as service:
        for number in range(ROUNDS):
            outcome = play(Node(tmp_path / f"{number}", service.endpoint), service, program, number, seed=2)
            totals.update(
                rounds=1,
                intervals=len(outcome.stored),
                lost=outcome.lost,
                doubled=outcome.doubled,
                invented=outcome.invented,
                dropped=outcome.dropped,
            )
            if (number + 1) % 50 == 0:
                print("\n" + ", ".join(f"{name} {count:,}" for name, count in totals.items()), flush=True)
    assert totals["lost"] == totals["doubled"] == totals["invented"] == totals["dropped"] == 0
