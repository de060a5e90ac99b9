"""Rows of `workers`: what each worker of a training did."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from barograph_agent.reduce.ring_set import Progress, RingSet
from barograph_agent.ring.reader import STEP
from helpers.rings import STARTED_UNIX_NS, take, world

MS = 1_000_000
WORKERS = 3


def test_each_worker_has_rows_often_at_first(tmp_path: Path) -> None:
    shims, worlds = world(tmp_path, WORKERS, capacity=1024), RingSet(tmp_path, Progress())
    ended, rows = 0, []
    for step in range(1000):
        own = [60 * MS, 90 * MS, 60 * MS]
        enters = [ended + one for one in own]
        ended = max(enters) + 10 * MS
        for rank, shim in enumerate(shims):
            shim.put(ended, op=STEP, wait_ns=ended - enters[rank], bytes_=4096, sent=((10 + rank) * MS, 2 * MS))
        if step % 10 == 9:  # once a second
            rows += take(worlds, "workers")
    rows += take(worlds, "workers", final=True)
    worlds.close()
    assert {row["rank"] for row in rows} == set(range(WORKERS))
    for row in rows:
        assert row["own_seconds"] == pytest.approx(row["count"] * (0.09 if row["rank"] == 1 else 0.06))
        assert row["wait_seconds"] == pytest.approx(row["count"] * (0.01 if row["rank"] == 1 else 0.04))
        assert row["cpu_seconds"] == pytest.approx(row["count"] * (10 + row["rank"]) * 1e-3)
        assert (row["update_seconds"], row["bytes"]) == (pytest.approx(row["count"] * 0.002), 4096)
    mine = [row for row in rows if row["rank"] == 0]
    # 100 s of steps, all but those after the last row: 2 s apart in the first minute, then 10 s.
    assert sum(row["count"] for row in mine) > 890
    ends = [row["ended_at"] - STARTED_UNIX_NS * 1e-9 for row in mine]
    gaps = [after - before for before, after in itertools.pairwise(ends)]
    assert all(2 <= gap < 4 for gap, end in zip(gaps, ends, strict=False) if end < 58)
    assert all(10 <= gap < 13 for gap, end in zip(gaps, ends, strict=False) if end > 62)


def test_figures_of_steps_are_no_messages(tmp_path: Path) -> None:
    shims, worlds = world(tmp_path, WORKERS, capacity=1024), RingSet(tmp_path, Progress())
    for step in range(1, 101):
        for shim in shims:
            shim.put(step * 100 * MS, op=STEP, bytes_=4096, sent=(5 * MS, 2 * MS))
    tables = {rows.table: rows.values for _ in [worlds.find()] for rows in worlds.read(final=True)}
    worlds.close()
    for table in ("phases", "signatures"):
        assert not any([*tables[table]["messages"], *tables[table]["message_bytes"]])
    assert sum(tables["signatures"]["bytes"]) == 4096 * (24 + 100)


def test_a_worker_alone_and_collectives_have_no_such_rows(tmp_path: Path) -> None:
    for folder, size, op in ((tmp_path / "alone", 1, STEP), (tmp_path / "mpi", 2, 9)):
        folder.mkdir()
        shims, worlds = world(folder, size, capacity=1024), RingSet(folder, Progress())
        for step in range(1, 101):
            for shim in shims:
                shim.put(step * 100 * MS, op=op)
        assert not take(worlds, "workers", final=True)
        worlds.close()
