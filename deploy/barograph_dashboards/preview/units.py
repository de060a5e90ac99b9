"""Numbers as Grafana would write them, nearly."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

_SPANS: Final = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES: Final = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
_COUNTS: Final = ((1e9, "Bil"), (1e6, "Mil"), (1e3, "K"))


def written(value: float, unit: str, decimals: int | None = None, clock: Callable[[], float] = time.time) -> str:
    """A value with its unit. clock: Unix seconds, for times that are told from now."""
    if math.isnan(value):
        return "-"
    if unit == "dateTimeFromNow":
        return _from_now(value / 1000 - clock())
    if unit == "percentunit":
        return f"{100 * value:.{1 if decimals is None else decimals}f} %"
    if unit == "locale":
        return f"{value:,.{decimals or 0}f}"
    scales = {"s": _SPANS, "bytes": _SIZES}.get(unit, _COUNTS)
    suffix = {"cps": " /s", "bytes": "B"}.get(unit, "")
    for scale, name in scales:
        if abs(value) >= scale:
            return f"{_number(value / scale, decimals)} {name}{'' if unit in ('s', 'bytes') else suffix}"
    return f"{_number(value, decimals)}{' s' if unit == 's' else suffix}"


def _number(value: float, decimals: int | None) -> str:
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:.0f}" if value == round(value) else f"{value:.3g}"


def _from_now(seconds: float) -> str:
    amount = next((f"{abs(seconds) / s:.0f} {name}" for s, name in _SPANS[:4] if abs(seconds) >= s), "a moment")
    return f"in {amount}" if seconds > 0 else f"{amount} ago"
