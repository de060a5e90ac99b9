"""How many rows of `events`, which are never dropped, messages get that were refused, or tell of dropped rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from barograph_collector.auth.authorization import Authorization, Grant, Refused
from barograph_collector.auth.rate_limit import TokenBuckets
from barograph_collector.storage import messages

SECONDS_PER_EVENT: Final = 60.0
"""For each producer, on average."""
MAX_EVENTS: Final = 40
"""The same at once."""
MAX_UNRECORDED: Final = 100_000
"""Producers whose rows are counted until they get a row again; beyond it the oldest number is lost."""


class EventLimit:
    """Belongs to the receive thread."""

    def __init__(self, admission: Authorization, clock: Callable[[], float]) -> None:
        """clock: monotonic, in seconds."""
        self._admission = admission
        self._buckets = TokenBuckets(1 / SECONDS_PER_EVENT, clock, MAX_EVENTS * SECONDS_PER_EVENT)
        self._unrecorded: OrderedDict[tuple[str, str], int] = OrderedDict()

    def limited(self, grant: Grant, item: messages.Item) -> messages.Item:
        """The record of a message: without a row where its producer has had too many, whose next one counts it too."""
        producer, columns = grant.producer(item.stream), dict[str, Any](item.entry.columns)
        key, rows = (producer, columns["kind"]), columns["rows"]
        rows = min(self._unrecorded.pop(key, 0) + rows, 2**62)
        try:
            if self._buckets.consume(producer, 1):
                self._admission.check_kept(grant, item.entry.table, len(item.frame))
                return messages.with_rows(item, rows)
        except Refused:
            pass
        self._unrecorded[key] = rows
        if len(self._unrecorded) > MAX_UNRECORDED:
            self._unrecorded.popitem(last=False)
        return messages.with_rows(item, None)
