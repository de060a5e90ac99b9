"""A collector is drained and started again while an agent of today and one of version 0.1.0 deliver to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from barograph.cli import main
from barograph.upkeep import drain
from barograph_collector.client.log_reader import LogReader
from barograph_collector.ingest.intake import DRAINED
from barograph_collector.storage.store import LOG
from helpers.lakes import rows_of
from helpers.log import DEADLINE_SECONDS, Daemon, wait_until
from helpers.up import free_ports

RECORDED = Path(__file__).resolve().parents[1] / "data/agent/v0.1.0.tar.xz"
ROWS = 5
DELIVER = f"""
import sys, time
import numpy as np
from barograph_agent.deliver.link import Link
from barograph_agent.deliver.outbox import Memory
from barograph_agent.protocol import wire
endpoint, stream = sys.argv[1:]
outbox = Memory()
link = Link(endpoint, stream, outbox)
told, left, number = False, 20, 0
while left or not link.idle:
    if left:
        index = np.arange({ROWS} * number, {ROWS} * (number + 1))
        row = dict.fromkeys(("sum_seconds", "sum_squares", "sum_cubes", "min_seconds", "max_seconds", "ended_at"), 1.0)
        row |= {{"job": stream, "world": 0, "class_id": 1, "first_index": index, "count": 1}}
        outbox.put({ROWS}, wire.encode(wire.append(stream, outbox.next_seq, "blocks", {ROWS}, row)))
        number += 1
    deadline = time.monotonic() + 0.05
    while time.monotonic() < deadline:
        link.pump(0.01)
    if link.trouble and not told:
        told = True
        print(link.trouble, flush=True)
    if told and link.connected:  # again
        left -= left > 0
print("delivered", number, link.acked, flush=True)
"""


@contextmanager
def producer(endpoint: str, stream: str, log: Path, package: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that delivers rows. package: of another agent than that of today."""
    environment = {**os.environ, **({} if package is None else {"PYTHONPATH": str(package)})}
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-c", DELIVER, endpoint, stream], stdout=output, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def barograph(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barograph", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.process
def test_a_drained_collector_holds_all_it_received_and_agents_of_two_versions_deliver_the_rest_after_its_restart(
    tmp_path: Path,
) -> None:
    with tarfile.open(RECORDED) as archive:
        archive.extractall(tmp_path / "old", filter="data")
    state, lake = tmp_path / "state", tmp_path / "lake"
    endpoint = f"tcp://127.0.0.1:{free_ports(1)}"
    streams = {"test/1.0.0": None, "test/2.0.0": tmp_path / "old"}
    logs = {stream: tmp_path / f"log{number}" for number, stream in enumerate(streams)}
    one, old = streams.items()
    with (
        Daemon(state, f"--lake={lake}", listen=endpoint) as collector,
        LogReader(endpoint, DEADLINE_SECONDS) as reader,
        producer(endpoint, one[0], logs[one[0]]) as new,
        producer(endpoint, old[0], logs[old[0]], old[1]) as older,
    ):
        for stream in streams:
            wait_until(lambda s=stream: reader.read("blocks", 0, 10, s).rows, "rows arrive")
        done = barograph("drain", "--state", state)
        assert done.returncode == 0, done.stderr
        found = re.fullmatch(
            r"no row is taken: the log has rows up to offset ([\d,]+), in the lake up to \1;"
            r" stop the collector, or let it take rows again with --end\n",
            done.stdout,
        )
        assert found, done.stdout
        offset = int(found[1].replace(",", ""))
        for log in logs.values():
            wait_until(lambda log=log: DRAINED in log.read_text(), "producers are told why")
        assert reader.intake_trouble() == DRAINED
        assert (new.poll(), older.poll()) == (None, None)
        assert collector.end(signal.SIGTERM) == 0
        with duckdb.connect(state / LOG, read_only=True) as log:
            assert log.execute('SELECT max("offset") FROM blocks').fetchone() == (offset,)
        assert len(rows_of(lake, "blocks")[0]) == offset
        with Daemon(state, f"--lake={lake}", listen=endpoint):
            assert (new.wait(120), older.wait(120)) == (0, 0)
            for stream, log in logs.items():
                told = re.fullmatch(rf"{re.escape(DRAINED)}\ndelivered (\d+) \1\n", log.read_text())
                assert told, log.read_text()
                got = [i for batch in reader.read_all("blocks", job=stream) for i in batch.columns["first_index"]]
                assert got == list(range(ROWS * int(told[1])))
                assert len(got) > offset // 2


@pytest.mark.process
def test_a_drain_ends_on_request_and_needs_a_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    missing = barograph("drain", "--state", state)
    assert (missing.returncode, missing.stderr) == (
        65,
        f"barograph drain: {state / LOG}: not found, expected the log of a collector\n",
    )
    with Daemon(state) as collector, LogReader(collector.endpoint, DEADLINE_SECONDS) as reader:
        assert barograph("drain", "--end", "--state", state).stdout == "there was no drain\n"
        assert barograph("drain", "--state", state).returncode == 0
        assert reader.intake_trouble() == DRAINED
        assert barograph("drain", "--end", "--state", state).returncode == 0
        wait_until(lambda: reader.intake_trouble() == "", "rows are taken again")
        collector.end(signal.SIGTERM)
    monkeypatch.setattr(drain, "ANSWER_SECONDS", 0.2)
    assert main(["drain", "--state", str(state)]) == 69
    assert "no collector answered in" in capsys.readouterr().err
    assert not (state / "drain").exists()
