"""How far the lake is behind the log, while a collector takes paced load, and whether it then has every row once.

`make bench PYTEST="-k lag"`. The lag is the age of the oldest row in the database that the lake lacks, as
`barograph_lake_lag_seconds` has it, read every quarter of a second.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from barograph.lab.bench.load import Load
from barograph_agent.system.clock import CLOCK
from barograph_collector.lake.place import Lake
from barograph_collector.lake.publisher import Publisher
from barograph_collector.storage.days.data_path import DirectoryPath
from helpers.lakes import opened
from helpers.log import collector_on, wait_until
from helpers.printed import show

SECONDS: Final = 90.0
ROWS_PER_SECOND: Final = (1_000, 20_000, 60_000)
MAX_P99_SECONDS: Final = 30.0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rate", ROWS_PER_SECOND)
def test_the_lag_of_the_lake_has_a_bound(tmp_path: Path, rate: int) -> None:
    lake = Lake.at(tmp_path / "lake")
    options = {"lake": DirectoryPath(lake), "rows_per_second": 1e9}
    with collector_on(
        tmp_path / "log.duckdb", publisher_of=lambda s: Publisher(s, Lake.at(lake)), **options
    ) as collector:
        publisher = collector.publisher
        assert publisher is not None
        lags: list[float] = []
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.25):
                lags.append(publisher.figures.lag_seconds(CLOCK.monotonic()))

        watching = threading.Thread(target=watch)
        watching.start()
        load = Load(collector.endpoint, 20, 100, "lag")
        assert load.open(60.0)
        sent = load.pace(SECONDS, rate)
        over.set()
        watching.join()
        load.close()
        wait_until(lambda: publisher.figures.position == collector.counters.last_offset, "the lake has all rows")
        commits, busy = publisher.figures.commits.count, publisher.figures.commits.seconds
    with opened(lake) as reader:
        query = 'SELECT count(*), count(DISTINCT "offset") FROM lake.blocks'
        assert reader.execute(query).fetchone() == (sent.records, sent.records)
    show(
        f"{sent.records:,} rows in {SECONDS:g} s, all in the lake once; {commits} commits of {busy / commits:.2f} s",
        [f"lag p50 {np.median(lags):.1f} s, p99 {np.quantile(lags, 0.99):.1f} s, longest {max(lags):.1f} s"],
    )
    assert np.quantile(lags, 0.99) <= MAX_P99_SECONDS
