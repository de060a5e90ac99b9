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


def instant(name: str, text: str) -> float:
    """Unix seconds from a number or an ISO date, in local time unless it has a zone; 0 for an unknown one.

    Raises UnreadableLine.
    """
    if text.lower() in _UNKNOWN:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError):
            seconds = math.nan
    if not 0 <= seconds < _LATEST:
        raise UnreadableLine(f"{name} is {text[:80]!r}, expected a date such as 2026-05-04T13:30:00, or Unix seconds")
    return seconds


def span(started_at: float, ended_at: float, seconds: float) -> tuple[float, float]:
    """Start and end, one computed from the other where it is 0; 0 and 0 where both are."""
    if not ended_at and started_at:
        return started_at, started_at + seconds
    if ended_at and not started_at:
        return max(ended_at - seconds, 0.0), ended_at
    return started_at, ended_at
