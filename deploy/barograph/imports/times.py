"""Durations and dates in the formats of job accounts."""

from __future__ import annotations

import contextlib
import math
import re
from datetime import datetime
from typing import Final

from barograph.imports.record import UnreadableLine

_CLOCK: Final = re.compile(r"(?:(?:(\d+)-)?(\d{1,3}):)?(\d{1,2}):(\d{1,2}(?:\.\d+)?)")
_UNKNOWN: Final = {"", "unknown", "none", "n/a", "-1"}
_DIGITS: Final = re.compile(r"(19|20)\d\d[01]\d[0-3]\d(\d{4}|\d{6})?")
"""A date of digits alone, no number of seconds."""
_LATEST: Final = 2**40  # Unix seconds, far in the future: larger numbers have another unit


def duration(name: str, text: str) -> float:
    """Seconds, above 0, from a number or from [[DAYS-]HOURS:]MINUTES:SECONDS. Raises UnreadableLine.

    >>> duration("seconds", "1-02:03:04"), duration("seconds", "02:03.5"), duration("seconds", "7.25")
    (93784.0, 123.5, 7.25)
    """
    seconds = math.nan
    if match := _CLOCK.fullmatch(text):
        days, hours, minutes, rest = (float(part or 0) for part in match.groups())
        if minutes < 60 and rest < 60 and (match[1] is None or hours < 24):
            seconds = 86400 * days + 3600 * hours + 60 * minutes + rest
    else:
        with contextlib.suppress(ValueError):
            seconds = float(text)
    if not (math.isfinite(seconds) and seconds > 0):
        raise UnreadableLine(f"{name} is {text[:80]!r}, expected seconds above 0 or [[DAYS-]HOURS:]MINUTES:SECONDS")
    return seconds


def instant(name: str, text: str, fold: int = 0) -> float:
    """Unix seconds from a number or an ISO date, in local time unless it has a zone; 0 for an unknown time.

    fold: 1 for the later of two local times, in the hour that clocks are set back. Raises UnreadableLine.
    """
    if text.lower() in _UNKNOWN:
        return 0.0
    try:
        seconds = math.nan if _DIGITS.fullmatch(text) else float(text)
    except ValueError:
        try:
            seconds = datetime.fromisoformat(text).replace(fold=fold).timestamp()
        except (ValueError, OverflowError, OSError):
            seconds = math.nan
    if not 0 <= seconds < _LATEST:
        raise UnreadableLine(f"{name} is {text[:80]!r}, expected a date such as 2026-05-04T13:30:00, or Unix seconds")
    return seconds


def span(start: str, end: str, seconds: float) -> tuple[float, float]:
    """Unix seconds of start and end, of a run of so many seconds; 0 and 0 where both texts are unknown times.

    An unknown one is computed from the other. Of local times that occur twice those count that fit the runtime best.
    Raises UnreadableLine, also for an end before the start.
    """
    if not (first := instant("start", start)):
        ended_at = instant("end", end)
        return max(ended_at - seconds, 0.0) if ended_at else 0.0, ended_at
    if not instant("end", end):
        return first, first + seconds
    starts, ends = ({instant(name, text, fold) for fold in (0, 1)} for name, text in (("start", start), ("end", end)))
    pairs = [(began_at, ended_at) for began_at in starts for ended_at in ends if began_at <= ended_at]
    if not pairs:
        raise UnreadableLine(f"end is {end!r}, expected a time after the start, {start!r}")
    return min(pairs, key=lambda pair: abs(pair[1] - pair[0] - seconds))
