"""How many collectors one catalog takes, with the rows of ten clusters of 10,000 nodes: a simulation.

`make bench PYTEST="-k ten_clusters"`. Publishers, compaction and the wait for the lease are the real ones, under a
virtual clock, so the machine has no effect; catalog, files and databases are those of the simulation. One row stands
for SCALE rows, and commits are as many as at full size. A transaction takes TRANSACTION_SECONDS in the mean, as that of
DuckLake with PostgreSQL did (ADR 63), and a core writes WRITTEN rows a second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from barograph_agent.system.network import Network
from barograph_agent.system.processes import Processes
from barograph_agent.system.system import System
from barograph_collector.ingest.writer import BATCH_ROWS as COMMIT_ROWS
from barograph_collector.ingest.writer import SMALL_BATCH_SECONDS
from barograph_collector.lake.batches import BATCH_ROWS
from barograph_collector.lake.compaction import Compactor
from barograph_collector.lake.files import LakeFile
from barograph_collector.lake.publisher import Publisher
from barograph_collector.storage.store import Store
from helpers.lakes import any_rows
from helpers.printed import show
from simulation.database import SimulatedDatabase, Tables
from simulation.disk import Platters, SimulatedDisk
from simulation.lake import Failures, SimulatedBatches, SimulatedLake, SimulatedWriter
from simulation.machine import Machine, Process, SimulatedThreads, VirtualClock

ROWS_PER_SECOND: Final = (175_000, 1_760_000)
"""Of all ten clusters: docs/operator/sizing.md."""
COLLECTORS: Final = (10, 20, 40, 80)
SCALE: Final = 5_000
SECONDS: Final = 400.0
WARM_SECONDS: Final = 120.0
TRANSACTION_SECONDS: Final = 0.11
WRITTEN: Final = 500_000
SHARES: Final = {"blocks": 0.9, "node_blocks": 0.1}
MAX_P99_SECONDS: Final = 30.0


class Outcome(NamedTuple):
    """Of a number of collectors. lags: in seconds."""

    commits: float
    merges: int
    busy: float
    """Share of the time in which the lease was held."""
    lags: list[float]
    refused: int


class ManyCommits(SimulatedLake):
    """Its checks of each commit are for tests. Adds up how long the lease was held."""

    held = 0.0

    def check(self) -> None:
        """Nothing."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "holder":
            now, before = self.machine.seconds, self.__dict__.get("holder")
            self.__dict__["held"] = self.held + (now - self.__dict__["since"] if before is not None else 0.0)
            self.__dict__["since"] = now
        self.__dict__[name] = value


class SlowWriter(SimulatedWriter):
    """Writes as fast as a core."""

    def _put(self, table: str, path: Any, rows: pa.Table) -> LakeFile:
        self._lake.machine.sleep(rows.num_rows * SCALE / WRITTEN)
        return super()._put(table, path, rows)


class ScaledBatches(SimulatedBatches):
    """Batches with as many rows as the real ones stand for."""

    limit = BATCH_ROWS // SCALE


def published(collectors: int, rows_per_second: int) -> Outcome:
    """What the lake is like while collectors share so many rows."""
    machine = Machine(1)
    lake = ManyCommits(machine)
    # Of a transaction: two files and the marks, the look at the positions, and the end, each of half that in the mean.
    lake.failures = Failures(seconds=2 * TRANSACTION_SECONDS / (len(SHARES) + 3))
    parts = lake.parts()._replace(
        writer=lambda connection, data, name, word: SlowWriter(lake, name),  # type: ignore[arg-type,return-value]
        batches=ScaledBatches,
        compactor=Compactor,
    )
    publishers: list[Publisher] = []
    processes: list[Process] = []

    def collect(number: int) -> None:
        process = machine.process(f"collector {number}")
        processes.append(process)
        platters = Platters(machine.random)
        path = Path("/log/barograph.duckdb")
        platters.directories.add(path.parent)
        system = System(
            VirtualClock(machine), SimulatedDisk(process, platters), Network(), SimulatedThreads(process),
            Processes(), machine.random,
        )  # fmt: skip
        tables = Tables(f"log{number}", rows_of_day=10**9)

        def run() -> None:
            store = Store(
                path,
                system=system,
                open_database=lambda _: SimulatedDatabase(tables),  # type: ignore[arg-type,return-value]
                lake=lake.lake().data,
            )
            publisher = Publisher(store, lake.lake(), system, parts=parts)
            publishers.append(publisher)
            system.threads.start("publisher", publisher.run)
            numbers, rate = np.random.default_rng(number), rows_per_second / collectors
            wait = min(SMALL_BATCH_SECONDS, COMMIT_ROWS / rate)
            machine.sleep(wait * number / collectors)
            while True:
                machine.sleep(wait)
                publisher.watch()
                rows = {table: max(1, round(rate * wait * share / SCALE)) for table, share in SHARES.items()}
                entries = [any_rows(table, count, numbers, 1) for table, count in rows.items()]
                store.commit(entries, {"s": store.head + 1, "": store.head + 1})

        machine.start(process, "main", run)

    for number in range(collectors):
        collect(number)
    lags: list[float] = []
    clock = VirtualClock(machine)

    def sample() -> None:
        lags.extend(one.figures.lag_seconds(clock.monotonic()) for one in publishers)
        machine.at(1.0, sample)

    machine.at(WARM_SECONDS, sample)
    machine.run(SECONDS, most_steps=10**9)
    for process in processes:
        process.kill()
    machine.run(0.0, most_steps=10**9)
    return Outcome(
        lake.commits / SECONDS, lake.merges, lake.held / SECONDS, lags, sum(one.figures.failures for one in publishers)
    )


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("rows", ROWS_PER_SECOND)
def test_one_catalog_takes_the_commits_of_ten_clusters(rows: int) -> None:
    found = {count: published(count, rows) for count in COLLECTORS}
    show(
        f"{rows:,} rows a second; a transaction takes {TRANSACTION_SECONDS} s",
        [
            f"{count:3} collectors: {one.commits:5.2f} commits a second and {one.merges} merges, the lease is held"
            f" {one.busy:4.0%} of the time, lag p50 {np.quantile(one.lags, 0.5):4.1f} s,"
            f" p99 {np.quantile(one.lags, 0.99):5.1f} s, refused {one.refused} times"
            for count, one in found.items()
        ],
    )
    if rows == ROWS_PER_SECOND[0]:
        assert np.quantile(found[COLLECTORS[0]].lags, 0.99) <= MAX_P99_SECONDS
        assert found[COLLECTORS[0]].refused == 0
