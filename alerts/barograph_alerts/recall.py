"""What the log has learned of a workload, read when a job of it begins: of most workloads no job runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from barograph_alerts.processor import Scorer
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused
from barograph_collector.client.selection import select
from barograph_collector.daemon.source import LogSource
from barograph_collector.storage.text import names_as_rows

LAST_COUNTS: Final = {"paces": ("workload",), "bands": ("workload", "kind", "method", "class_id")}
"""Tables of whose rows with equal values in these columns the last one counts."""
WORKLOADS: Final = 5_000
"""Workloads of a query, at most."""
SECONDS: Final = 10.0
"""Limit of one query: no row is judged meanwhile."""
RETRY_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


class Recall:
    """Reads for a scorer what it wants to know of workloads, those of all jobs that wait in one query of each table.

    connect: a reader of its own. clock: monotonic, in seconds.
    """

    def __init__(
        self, scorer: Scorer, connect: Callable[[], LogReader], clock: Callable[[], float], most: int = WORKLOADS
    ) -> None:
        """most: workloads of a query."""
        self._scorer, self._connect, self._clock, self._most = scorer, connect, clock, most
        self._source: LogSource | None = None
        self._reader: LogReader | None = None
        self._due = clock()

    def begin(self, source: LogSource) -> None:
        """Read the log of a source, which follows the rows behind its offsets."""
        self.close()
        self._source, self._reader = source, self._connect()
        self._scorer.begin_log()

    def poll(self, still: threading.Lock) -> None:
        """Read what is wanted. still: held while the scorer changes."""
        wanted = list(islice(self._scorer.wanted, self._most))
        if not wanted or self._source is None or self._source.trouble or self._clock() < self._due:
            return
        assert self._reader is not None
        try:
            rows = [
                (table, page.columns)
                for table in LAST_COUNTS
                for page in select(self._reader, table, _last_of(table, wanted), seconds=SECONDS)
            ]
        except (LogUnavailable, ReadRefused) as error:
            _log.warning("what was learned of %d workloads is not known: %s; retrying", len(wanted), error)
            self._due = self._clock() + RETRY_SECONDS
            return
        with still:
            self._scorer.learn(frozenset(wanted), rows)

    def close(self) -> None:
        """Close the connection."""
        if self._reader is not None:
            self._reader.close()


def _last_of(table: str, workloads: Iterable[str]) -> str:
    """The last rows of some workloads."""
    key, names = ", ".join(LAST_COUNTS[table]), names_as_rows(workloads)
    return f'log_offset IN (SELECT max(log_offset) FROM "{table}" WHERE workload IN (SELECT {names}) GROUP BY {key})'
