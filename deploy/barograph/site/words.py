"""Figures in words: times, ratios, ages, as a person reads them."""

from __future__ import annotations

import json
import math
import time
from typing import Final

from barograph.views.advice import span

DASH: Final = "\N{EN DASH}"
_UNITS: Final = ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms"))


def known(value: float | None) -> bool:
    """Whether there is a figure: neither None nor NaN nor infinite."""
    return value is not None and math.isfinite(value)


def seconds(value: float | None) -> str:
    """A duration with the unit that suits it, to three digits.

    >>> seconds(0.00402), seconds(12.34), seconds(200)
    ('4.02 ms', '12.3 s', '3 min 20 s')
    """
    if value is None or not math.isfinite(value):
        return DASH
    if value <= 0:
        return "0 s"
    for limit, factor, unit in _UNITS:
        if value < limit * 0.9995:
            return f"{_three(value * factor)} {unit}"
    return f"{_three(value)} s" if value < 99.95 else span(value)


def round_seconds(value: float) -> str:
    """The same without digits that say nothing, for ticks.

    >>> round_seconds(0.004), round_seconds(0.0), round_seconds(15), round_seconds(120)
    ('4 ms', '0', '15 s', '2 min')
    """
    if value <= 0:
        return "0"
    for size, unit in ((3600, "h"), (60, "min")):
        if value >= size and value % size == 0:
            return f"{value / size:,.0f} {unit}"
    if value >= 99.95:
        return span(value)
    factor, unit = next(((f, unit) for limit, f, unit in _UNITS if value < limit * 0.9995), (1.0, "s"))
    return f"{value * factor:.3g} {unit}"


def said(sentence: str | None) -> str:
    """A sentence of the alerts daemon without the state at its head, which is shown beside it.

    >>> said("slow: 1.34x its history since 14:03:22"), said(None)
    ('1.34x its history since 14:03:22', 'not judged yet')
    """
    if not sentence:
        return "not judged yet"
    state, colon, rest = sentence.partition(": ")
    return rest if colon and state.isalpha() else sentence


def times(value: float | None) -> str:
    """A slowdown.

    >>> times(1.237)
    '1.24x'
    """
    return f"{value:.2f}x" if value is not None and math.isfinite(value) else DASH


def percent(value: float | None, signed: bool = False) -> str:
    """A share in whole per cent, below ten with one more digit.

    >>> percent(0.0123), percent(0.2, signed=True)
    ('1.2 %', '+20 %')
    """
    if value is None or not math.isfinite(value):
        return DASH
    hundreds = 100 * value
    sign = "+" if signed and hundreds > 0 else "\N{MINUS SIGN}" if hundreds < 0 else ""
    return f"{sign}{abs(hundreds):.{1 if 0 < abs(hundreds) < 9.95 else 0}f} %"


def number(value: float | None, digits: int = 2) -> str:
    """A figure without a unit, or a dash."""
    return f"{value:,.{digits}f}" if value is not None and math.isfinite(value) else DASH


def clock(at: float | None, now: float) -> str:
    """Local time of day, with the date where that is another one than now's."""
    if at is None or not math.isfinite(at) or at <= 0:
        return DASH
    there, here = time.localtime(at), time.localtime(now)
    day = "" if there[:3] == here[:3] else time.strftime("%d %b " if there[0] == here[0] else "%d %b %Y ", there)
    return f"{day}{time.strftime('%H:%M:%S', there)}"


def iso(at: float) -> str:
    """A time as machines read it, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def age(value: float) -> str:
    """How long ago something was, in whole units.

    >>> age(0.4), age(75), age(7300)
    ('just now', '1 min ago', '2 h ago')
    """
    if value < 1.5:
        return "just now"
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if value >= unit:
            return f"{value / unit:.0f} {name} ago" if value >= 2 * unit else f"1 {name} ago"
    return f"{value:.0f} s ago"


def params(given: str) -> str:
    """Parameters of a job, as the log has them, for people; what is no JSON object is shown as it is.

    >>> params('{"n": "4", "steps": "10"}'), params("{}")
    ('n=4, steps=10', '')
    """
    return (
        ", ".join(f"{name}={value}" for name, value in param_map(given).items())
        if _object(given) is not None
        else given
    )


def param_map(given: str) -> dict[str, str]:
    """Parameters by name; empty for what is no JSON object."""
    return {str(name): str(value) for name, value in (_object(given) or {}).items()}


def _object(given: str) -> dict[str, object] | None:
    try:
        found = json.loads(given)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _three(value: float) -> str:
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
