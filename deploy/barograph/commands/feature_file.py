"""Feature files: a JSON object of numbers, or lines NAME=VALUE."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Final

from barograph.views.refusal import NoResult

MOST: Final = 400
"""Limit of features per file."""


class BadFeatures(NoResult):
    """An invalid feature file. The text names the file, the line or feature, and what was expected."""


def read_features(path: Path) -> dict[str, float]:
    """Values by name. Raises BadFeatures."""
    try:
        text = path.read_text()
    except OSError as error:
        raise BadFeatures(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadFeatures(f"{path} is no text, expected a JSON object or lines NAME=VALUE") from None
    try:
        given = json.loads(text) if text.lstrip().startswith("{") else _lines(path, text)
    except ValueError as error:
        raise BadFeatures(f"{path} is no JSON: {error}") from None
    if not 0 < len(given) <= MOST:
        raise BadFeatures(f"{path} has {len(given)} features, expected 1 to {MOST}")
    return {name: _number(path, name, value) for name, value in given.items()}


def _lines(path: Path, text: str) -> dict[str, object]:
    given: dict[str, object] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        # The name of a probe may contain "=".
        name, equals, value = line.rpartition("=")
        if not equals or not name.strip():
            raise BadFeatures(f"{path}, line {number}: {line[:80]!r}, expected NAME=VALUE")
        if name.strip() in given:
            raise BadFeatures(f"{path}, line {number}: {name.strip()[:80]!r} comes twice")
        given[name.strip()] = value.strip()
    return given


def _number(path: Path, name: str, value: object) -> float:
    try:
        number = float(value) if isinstance(value, int | float | str) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadFeatures(f"{path}: feature {name[:80]!r} is {str(value)[:80]!r}, expected a finite number")
    return number
