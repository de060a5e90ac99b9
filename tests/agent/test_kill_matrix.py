"""Application, sidecar and collector killed once each in every order, without loss, duplicates or other rows.

`make bench` plays 200 rounds, and tests/simulation has deaths at all instants. Here the processes are real.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import mpi as mpis
from helpers.kills import ORDERS, play
from helpers.service import Node, Service

pytestmark = pytest.mark.process

ROUNDS = len(ORDERS)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("programs") / "paced"
    return mpis.find("mpich").compile(Path(__file__).with_name("programs") / "paced.c", output)


@pytest.mark.parametrize("number", range(ROUNDS), ids=lambda number: f"{number}-{'-'.join(ORDERS[number % 6])}")
def test_each_interval_is_stored_once_for_any_sequence_of_kills(
    tmp_path: Path, service: Service, program: Path, number: int
) -> None:
    outcome = play(Node(tmp_path, service.endpoint), service, program, number, seed=1)
    assert (outcome.lost, outcome.doubled, outcome.invented, outcome.dropped) == (0, 0, 0, 0)
