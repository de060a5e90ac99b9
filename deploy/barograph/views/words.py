"""Text for people: durations, ratios, times and parameters."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeGuard

import msgspec

from barograph_agent.protocol.tables import MAX_TIME
from barograph_modeler.recognition.request import family_of

DASH: Final = "\N{EN DASH}"
MINUS: Final = "\N{MINUS SIGN}"
MAX_DIGITS: Final = 1e15
"""Numbers from here on are written with an exponent."""
_UNITS: Final = ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms"))


def finite(value: float | None) -> TypeGuard[float]:
    """Whether a value is neither None nor NaN nor infinite."""
    return value is not None and math.isfinite(value)


def json_object(values: Mapping[str, object]) -> bytes:
    """A JSON object; numbers that are not finite are null.

    >>> json_object({"score": math.nan, "jobs": 3})
    b'{"score":null,"jobs":3}'
    """
    known = {name: None if isinstance(one, float) and not finite(one) else one for name, one in values.items()}
    return msgspec.json.encode(known)


def known_time(at: float | None) -> TypeGuard[float]:
    """Whether a value is a time at which a log can have been written: Unix seconds above 0 and below MAX_TIME.

    Rows of earlier versions may have any number in a column of times.
    """
    return finite(at) and 0 < at < MAX_TIME


def seconds(value: float | None) -> str:
    """A duration to three digits in ns, µs, ms, s, minutes or hours.

    >>> seconds(0.00402), seconds(12.34), seconds(200)
    ('4.02 ms', '12.3 s', '3 min 20 s')
    """
    if not finite(value):
        return DASH
    if value <= 0:
        return "0 s"
    factor, unit = _unit(value)
    value *= factor
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}" if unit else span(value)


def round_seconds(value: float) -> str:
    """A duration without trailing zeros, for ticks.

    >>> round_seconds(0.004), round_seconds(0.0), round_seconds(15), round_seconds(120)
    ('4 ms', '0', '15 s', '2 min')
    """
    if value <= 0:
        return "0"
    if not value < MAX_DIGITS:
        return f"{value:.3g} s"
    for size, unit in ((3600, "h"), (60, "min")):
        if value >= size and value % size == 0:
            return f"{value / size:,.0f} {unit}"
    factor, unit = _unit(value)
    return f"{value * factor:.4g} {unit}" if unit else span(value)


def _unit(value: float) -> tuple[float, str]:
    """The unit for a duration as units per second and name; the name is empty from 100 s on."""
    found = ((factor, unit) for limit, factor, unit in _UNITS if value < limit * 0.9995)
    return next(found, (1.0, "s" if value < 99.95 else ""))


def span(value: float) -> str:
    """A duration in seconds, minutes or hours, to two or three digits.

    >>> span(0.01234), span(12.34), span(200), span(93784)
    ('0.0123 s', '12.3 s', '3 min 20 s', '26 h 3 min')
    """
    if value < 99.95 or not value < MAX_DIGITS:
        return f"{value:.3g} s"
    if round(value) < 3600:
        return f"{round(value) // 60} min {round(value) % 60} s"
    minutes = round(value / 60)
    return f"{minutes // 60:,} h {minutes % 60} min"


def milliseconds(value: float) -> str:
    """A duration in milliseconds without the unit, for a column whose header has it.

    >>> milliseconds(1e-7), milliseconds(0.01234), milliseconds(12.3)
    ('<0.001', '12.3', '12,300')
    """
    if value < 1e-6:
        return "<0.001"
    return f"{1e3 * value:,.3g}" if value < 1 else f"{1e3 * value:,.0f}"


def time_limit(value: int) -> str:
    """A time limit as batch systems accept it.

    >>> time_limit(93780)
    '26:03:00'
    """
    return f"{value // 3600:02}:{value // 60 % 60:02}:{value % 60:02}"


def clock(at: float | None, now: float) -> str:
    """Local time of day, with the date where it is not the date of now."""
    if not known_time(at):
        return DASH
    there, here = time.localtime(at), time.localtime(now)
    day = "" if there[:3] == here[:3] else time.strftime("%d %b " if there[0] == here[0] else "%d %b %Y ", there)
    return f"{day}{time.strftime('%H:%M:%S', there)}"


def local(at: float) -> str:
    """Local date and time; a dash for 0, the time of an imported run without one, and for what is no time."""
    return "-" if not known_time(at) else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def utc(at: float | None) -> str:
    """Date and time in UTC, to the minute."""
    if not known_time(at):
        return "-"
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def iso(at: float) -> str:
    """A time in ISO 8601, in UTC; empty for what is no time."""
    return "" if not known_time(at) else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def age(value: float) -> str:
    """An age in whole units.

    >>> age(0.4), age(75), age(7300)
    ('just now', '1 min ago', '2 h ago')
    """
    if value < 1.5:
        return "just now"
    if not value < MAX_TIME:
        return DASH
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if value >= unit:
            return f"{value / unit:.0f} {name} ago" if value >= 2 * unit else f"1 {name} ago"
    return f"{value:.0f} s ago"


def percent(value: float | None, signed: bool = False) -> str:
    """A share in per cent: whole, below ten with one decimal.

    >>> percent(0.0123), percent(0.2, signed=True)
    ('1.2 %', '+20 %')
    """
    if not finite(value):
        return DASH
    hundreds = 100 * value
    if not abs(hundreds) < MAX_DIGITS:
        return f"{hundreds:.3g} %"
    sign = "+" if signed and hundreds > 0 else MINUS if hundreds < 0 else ""
    return f"{sign}{abs(hundreds):.{1 if 0 < abs(hundreds) < 9.95 else 0}f} %"


def share(ratio: float) -> str:
    """A share in per cent, to three digits.

    >>> share(0.01), share(0.4567), share(1.5)
    ('1 %', '45.7 %', '150 %')
    """
    return f"{100 * ratio:.3g} %" if ratio < 10 else f"{100 * ratio:,.0f} %"


def deviation(ratio: float) -> str:
    """A deviation in per cent with its sign, for ticks.

    >>> deviation(0.05), deviation(0.0)
    ('+5 %', '0 %')
    """
    return f"{100 * ratio:+.3g} %".replace("-", MINUS) if abs(ratio) > 1e-9 else "0 %"


def number(value: float | None, digits: int = 2, unit: str = "") -> str:
    """A number with so many decimals, or a dash.

    >>> number(1.237, unit="x")
    '1.24x'
    """
    if not finite(value):
        return DASH
    return f"{value:,.{digits}f}{unit}" if abs(value) < MAX_DIGITS else f"{value:.3g}{unit}"


def figure(value: float, unit: str = "") -> str:
    """A value to two decimals with its unit, `s` or `x`, for a terminal; a dash for NaN and infinity.

    >>> figure(1234.5, "s"), figure(1.5, "x"), figure(math.nan)
    ('1,234.50 s', '1.50x', '-')
    """
    return "-" if not math.isfinite(value) else number(value, unit=" s" if unit == "s" else unit)


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "rank"), plural(2048, "rank")
    ('1 rank', '2,048 ranks')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def period(text: str) -> str:
    """A sentence with its period."""
    return text if text.endswith(".") else f"{text}."


def verdict(sentence: str | None) -> str:
    """The sentence of a score without the state before its colon, which is displayed separately.

    >>> verdict("slow: 1.34x its history since 14:03:22"), verdict(None)
    ('1.34x its history since 14:03:22', 'not judged yet')
    """
    if not sentence:
        return "not judged yet"
    state, colon, rest = sentence.partition(": ")
    return rest if colon and state.isalpha() else sentence


def params(given: str) -> str:
    """The parameters of a job, a JSON object, as text. Other text is returned unchanged.

    >>> params('{"n": "4", "steps": "10"}'), params("{}"), params("n=4")
    ('n=4, steps=10', '', 'n=4')
    """
    found = _object(given)
    return given if found is None else ", ".join(f"{name}={value}" for name, value in found.items())


def param_map(given: str) -> dict[str, str]:
    """The parameters of a job by name; empty for text that is not a JSON object."""
    return {str(name): str(value) for name, value in (_object(given) or {}).items()}


def enumerated(names: Iterable[str]) -> str:
    """At least one name, in words.

    >>> enumerated(["64", "128", "256"]), enumerated(["64"])
    ('64, 128 and 256', '64')
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def listed(given: Mapping[str, object], between: str = ", ") -> str:
    """Parameters sorted by name.

    >>> listed({"steps": "10", "n": "4"})
    'n=4, steps=10'
    """
    return between.join(f"{name}={value}" for name, value in sorted(given.items()))


def _object(given: str) -> dict[str, object] | None:
    try:
        found = msgspec.json.decode(given)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def work_label(group: str) -> str:
    """What tells a group of like work from that of the first work of its family; empty for that.

    >>> work_label("lab/heat@2x1+3f2a1c"), work_label("lab/heat@2x1")
    ('3f2a1c', '')
    """
    return group.removeprefix(family_of(group)).removeprefix("+")
