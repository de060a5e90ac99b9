"""`barograph nodes`, and the nodes on the page of alarms: from rows of `suspects`."""

from __future__ import annotations

import json
import math

import pytest

from barograph.operate.nodes import main
from barograph_collector.server import Collector
from helpers.log import Producer


def put(collector: Collector, *rows: tuple[str, float, int]) -> None:
    """Rows of suspects: node, score, whether suspected."""
    with Producer(collector.endpoint, "alerts") as producer:
        seq = producer.hello().acked
        for host, score, suspected in rows:
            seq += 1
            excess, check = 0.045 if suspected else math.nan, "a benchmark beside another node"
            values = {"host": host, "jobs": 30, "blamed": 20, "score": score, "excess": excess, "suspected": suspected,
                      "advice": check, "time": 1.7e9}  # fmt: skip
            producer.append(seq, "suspects", 1, values)
            producer.receive_ack(seq)


def test_the_newest_row_of_a_node_counts_and_those_without_evidence_are_left_out(
    collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    put(collector, ("n1", 0.7, 0), ("n2", 2.2, 1), ("n3", 1.5, 1), ("n1", 1.1, 1), ("n3", 0.2, 0))
    assert main(["--collector", collector.endpoint, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["host"], row["score"], row["suspected"]) for row in rows] == [("n2", 2.2, 1), ("n1", 1.1, 1)]
    assert main(["--collector", collector.endpoint]) == 0
    shown = capsys.readouterr().out
    assert "4.5 %" in shown
    assert "a benchmark beside another node" in shown


def test_without_suspects_there_is_a_sentence(collector: Collector, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--collector", collector.endpoint]) == 0
    assert capsys.readouterr().out.startswith("No node stands out")
