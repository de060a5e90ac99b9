"""What an older version left on disk is read by this one: log, rings, spool and plan, recorded when all was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from barograph_agent.ring.reader import Ring
from barograph_collector.client.log_reader import LogReader
from helpers.log import DEADLINE_SECONDS, collector_on

RECORDED = Path(__file__).resolve().parents[1] / "data/state"
BARRIERS = 1000
STORED = {"jobs": 5, "runs": 3, "blocks": 6912, "bands": 8, "paces": 3, "scores": 8, "sidecars": 3, "sites": 10}
"""Rows as the version itself gave them back."""


@pytest.fixture(params=sorted(path.name.removesuffix(".tar.xz") for path in RECORDED.glob("*.tar.xz")))
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder as that version left it, with the plan's ring directory where it is now."""
    with tarfile.open(RECORDED / f"{request.param}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    directory = tmp_path / request.param
    (rings,) = (directory / "rings").iterdir()
    (plan,) = (directory / "spool").glob("*/plan.json")
    values = json.loads(plan.read_text()) | {"ring_directory": str(rings), "feature_directory": str(rings)}
    plan.write_text(json.dumps(values))
    return directory


def count(reader: LogReader, table: str, job: str = "") -> int:
    """Rows of a table."""
    return sum(batch.rows for batch in reader.read_all(table, job=job))


def test_rings_are_read(left: Path) -> None:
    for path in left.glob("rings/*/*.ring"):
        with Ring(path) as ring:
            assert (ring.size, ring.finalized, ring.dropped, ring.head) == (2, True, 0, BARRIERS)


def test_the_log_keeps_its_rows_and_takes_those_of_an_orphaned_spool_once(left: Path) -> None:
    (spool,) = (left / "spool").iterdir()
    plan: dict[str, Any] = json.loads((spool / "plan.json").read_text())
    job = plan["stream"].rpartition("/")[0]
    with (
        collector_on(left / "state/log.duckdb") as collector,
        LogReader(collector.endpoint, DEADLINE_SECONDS) as reader,
    ):
        assert {table: count(reader, table) for table in STORED} == STORED
        command = [sys.executable, "-m", "barograph", "spool", "--send", "--collector", collector.endpoint]
        environment = {**os.environ, "BAROGRAPH_SPOOL": str(left / "spool")}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, f"delivered  {job}\n"), done.stderr
        first = [index for batch in reader.read_all("blocks", job=job) for index in batch.columns["first_index"]]
        counts = [number for batch in reader.read_all("blocks", job=job) for number in batch.columns["count"]]
        assert len(set(first)) == len(first)
        assert sum(counts) == BARRIERS
        assert count(reader, "runs") == STORED["runs"] + 1
    assert not list((left / "spool").iterdir())
    assert not list(left.glob("rings/*"))
