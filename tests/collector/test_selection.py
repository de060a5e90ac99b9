"""Rows of a table that meet a condition, in pages that fit into an answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from barograph_collector.client import selection
from barograph_collector.client.log_reader import LogReader
from barograph_collector.client.selection import select
from helpers.log import Producer, collector_on

TEXTS = ["[]", "x" * 300, "y" * 10, "", "z" * 10]


@pytest.fixture
def endpoint(tmp_path: Path):
    with collector_on(tmp_path / "log.duckdb") as collector, Producer(collector.endpoint) as producer:
        producer.hello()
        rows = {
            "workload": ["w", "v", "w", "w", "w"], "runs": np.arange(5), "windows": 1, "window_seconds": 1.0,
            "spread": 0.5, "means": TEXTS, "residuals": "[]", "fitted_at": 1.0, "progress": "", "limits": "",
        }  # fmt: skip
        producer.append(1, "paces", 5, rows)
        producer.receive_ack(1)
        yield collector.endpoint


@pytest.mark.parametrize(("rows", "size"), [(50_000, 4 * 2**20), (2, 4 * 2**20), (50_000, 150), (3, 150), (1, 1)])
def test_pages_have_all_rows_once_and_in_order_however_they_are_cut(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, rows: int, size: int
) -> None:
    monkeypatch.setattr(selection, "PAGE_ROWS", rows)
    monkeypatch.setattr(selection, "PAGE_BYTES", size)
    with LogReader(endpoint) as reader:
        pages = list(select(reader, "paces", "workload = 'w' OR runs = 1"))
    assert [text for page in pages for text in page.columns["means"]] == TEXTS
    assert [page.next_offset for page in pages] == [page.columns["log_offset"][-1] for page in pages]
    for page in pages:
        assert page.rows == 1 or sum(map(len, page.columns["means"])) <= size
        assert page.rows <= rows


def test_only_the_rows_and_columns_that_are_asked_for_come(endpoint: str) -> None:
    with LogReader(endpoint) as reader:
        (page,) = select(reader, "paces", "workload = 'w' AND runs > 0", ["means"])
        assert not list(select(reader, "paces", "runs > 9"))
    assert page.rows == 3
    assert set(page.columns) == {"log_offset", "means"}
    assert page.columns["means"] == TEXTS[2:]
