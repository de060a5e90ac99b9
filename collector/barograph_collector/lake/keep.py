"""How long the lake keeps rows, by table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from barograph_collector.storage.layout import DAILY, LOG_COLUMNS

_WORD: Final = re.compile(r"(?:(?P<table>\w*)=)?(?P<days>\d{1,6})")
MIN_VERDICT_DAYS: Final = 31
"""A restarted alerts daemon takes a job of the last 30 days that has no verdict for one that is open."""
FORM: Final = "DAYS or TABLE=DAYS, separated by spaces"


class Keep(NamedTuple):
    """Days before today that the lake keeps, 0 for all: by table, where '' stands for any.

    >>> keep = Keep.read("730 blocks=365 jobs=3650")
    >>> [keep.of(table) for table in ("phases", "blocks", "jobs", "runs")]
    [730, 365, 3650, 0]
    >>> Keep.read("scores=7").of("scores")
    31
    """

    days: Mapping[str, int]

    @classmethod
    def read(cls, text: str) -> Self:
        """From its text. Raises ValueError, which says what was expected."""
        days = {}
        for word in text.split():
            if (match := _WORD.fullmatch(word)) is None:
                raise ValueError(f"{word!r} is no period, expected {FORM}")
            if (table := match["table"] or "") and table not in LOG_COLUMNS:
                raise ValueError(f"{word!r} names no table, expected one of {', '.join(LOG_COLUMNS)}")
            days[table] = int(match["days"])
        return cls(days)

    def of(self, table: str) -> int:
        """The days of a table. Tables that are kept for ever in the log need a word of their own."""
        days = self.days.get(table, self.days.get("", 0) if table in DAILY else 0)
        return max(days, MIN_VERDICT_DAYS) if days and table == "scores" else days


KEEP_ALL: Final = Keep({})
