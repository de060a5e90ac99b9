"""Retention of raw rows: whole days are dropped, the oldest first, by age and by size."""

from __future__ import annotations

import datetime
import logging
from dataclasses import dataclass
from typing import Final

from barograph_agent.system.clock import Clock

DAY_SECONDS: Final = 86400.0
EPOCH: Final = datetime.date(1970, 1, 1)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Retention:
    """days: number of days kept before today. bytes: size limit of the daily tables. 0: no limit.

    hot_days: with a lake, the number of days before the newest that stay in the database.
    The newest day is never dropped.
    """

    days: int = 0
    bytes: int = 0
    hot_days: int = 7


KEEP_ALL: Final = Retention()


class Calendar:
    """The present day, counted from 1970-01-01, which does not follow a jump of the clock by a day or more at once.

    After such a jump the day is that before it, and goes on with the monotonic clock. A clock that stays so for a day
    is right, and so is one that a person confirms. Until then nothing is dropped by age: a wrong clock would drop all
    days, and rows would be stored under a day that is not over for a long time. Nor is anything dropped while the clock
    is a day or more behind the newest rows: one of the two is wrong. Only a person can confirm the clock then.
    """

    def __init__(self, clock: Clock, last_day: int | None) -> None:
        """last_day: of the newest rows that are stored, None without any."""
        self._clock = clock
        self._day = self._read() if last_day is None else last_day
        self._at = clock.monotonic()
        self._held_since: float | None = None
        self._confirmed = False
        self._is_behind = False
        self.today()

    @property
    def held(self) -> bool:
        """Whether the clock is behind the newest rows, or has jumped, which neither time nor a person has confirmed."""
        return self._is_behind or self._held_since is not None

    def confirm(self) -> None:
        """Follow the clock as it is: a person has checked it. From any thread."""
        self._confirmed = True

    def today(self) -> int:
        """The present day."""
        monotonic, read = self._clock.monotonic(), self._read()
        passed = self._day + int((monotonic - self._at) // DAY_SECONDS)
        confirmed, self._confirmed = self._confirmed, False
        behind, self._is_behind = self._is_behind, read < self._day - 1
        if self._is_behind and confirmed:
            self._is_behind = False
            return self._follow(read)
        if self._is_behind and not behind:
            text = (
                "the clock is %d days behind the newest rows: others are stored under their day, %s, until then, or"
                " until a reload confirms the clock"
            )
            _log.warning(text, self._day - read, EPOCH + datetime.timedelta(self._day))
        if read <= passed + 1 or confirmed:
            return self._follow(max(read, self._day))
        if self._held_since is None:
            self._held_since = monotonic
            text = (
                "%d days are missing: the clock has jumped, or the service was off; nothing is dropped by age for a day"
            )
            _log.warning(text, read - passed)
        elif monotonic - self._held_since >= DAY_SECONDS:
            return self._follow(read)
        return passed

    def _read(self) -> int:
        return int(self._clock.now() // DAY_SECONDS)

    def _follow(self, day: int) -> int:
        if day != self._day:
            self._day, self._at = day, self._clock.monotonic()
        self._held_since = None
        return day
