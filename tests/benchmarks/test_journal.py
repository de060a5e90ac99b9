"""What a journal on other storage costs: acknowledgements wait for it, and so does the rate of a saturated collector.

Each sync of the journal takes so much longer as storage on the network does; and `JOURNALS=DIR,DIR make bench
PYTEST="-k journal"` has the journal in these directories, of file systems that are mounted here.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from barograph_agent.system.disk import Disk
from barograph_agent.system.system import SYSTEM
from barograph_collector.storage.store import LOG, put_journal
from barograph_lab.bench.load import Load
from helpers.log import collector_on
from helpers.printed import show

STREAMS, ROWS, SECONDS, PACE = 100, 100, 5.0, 20_000.0
DELAYS = (0.0, 0.001, 0.005, 0.02, 0.1)


class SlowDisk(Disk):
    """Each sync of data takes so many seconds more."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def sync_data(self, descriptor: int) -> None:
        super().sync_data(descriptor)
        time.sleep(self.seconds)


def measured(state: Path, delay: float = 0.0, journal: Path | None = None) -> tuple[float, float, float]:
    """Records a second of a saturated collector; seconds to the acknowledgement at a low rate: p50 and p99."""
    state.mkdir()
    if journal is not None:
        put_journal(state, journal)
    with collector_on(state / LOG, system=SYSTEM._replace(disk=SlowDisk(delay))) as collector:
        collector.store.journal._disk = SlowDisk(delay)
        load = Load(collector.endpoint, STREAMS, ROWS, "bench")
        assert load.open(60)
        waits = load.pace(SECONDS, PACE).waits
        report = load.saturate(SECONDS, window=8)
        load.close()
    p50, p99 = np.quantile(waits, [0.5, 0.99])
    return report.records / report.seconds, float(p50), float(p99)


def test_the_price_of_a_journal_elsewhere(tmp_path: Path) -> None:
    found = {f"{delay * 1e3:g} ms more a sync": measured(tmp_path / f"{delay}", delay) for delay in DELAYS}
    for number, place in enumerate(filter(None, os.environ.get("JOURNALS", "").split(","))):
        apart = Path(place) / f"bench-{os.getpid()}"
        found[place] = measured(tmp_path / f"place{number}", journal=apart)
    (local, *_), *_ = found.values()
    show(
        f"a journal elsewhere: {STREAMS} producers, acknowledgements at {PACE:,.0f} records/s, and the highest rate",
        [
            f"{name:<21} p50 {p50 * 1e3:6.1f} ms, p99 {p99 * 1e3:6.1f}; {rate:9,.0f} records/s, {rate / local:.2f} x"
            for name, (rate, p50, p99) in found.items()
        ],
    )
    assert found["100 ms more a sync"][1] >= 0.1, "an acknowledgement waits for the sync"
