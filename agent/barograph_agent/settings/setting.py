"""Settings as tables: each key is declared once, and command line, environment, file and reference follow from it."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

Kind: TypeAlias = Literal["text", "number", "whole number", "size", "list"]
Parse: TypeAlias = Callable[[str], Any]
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Setting:
    """One key. Whatever it comes from, its value is a text that `parse` understands or refuses.

    name: as in the file; the option is the same with hyphens. parse: raises ArgumentTypeError or ValueError with a text
    that has the value and what was expected. default: a text like any other, or None for nothing. expected: range or
    form in words. variable: in the environment. reloads: whether a daemon takes a new value without a restart.
    """

    name: str
    kind: Kind
    parse: Parse
    default: str | None
    metavar: str
    expected: str
    meaning: str
    variable: str = ""
    reloads: bool = False
    otherwise: str = "none"
    """What happens without a value, where there is no default."""
    alone: str | None = None
    """The value of the option where it is given without one; None where it needs one."""

    @property
    def option(self) -> str:
        """As on the command line."""
        return f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class Section:
    """The settings of one daemon, or of the agent: a table of the file.

    applications: those that may be otherwise for single applications, in tables of theirs.
    """

    name: str
    settings: Sequence[Setting]
    applications: Sequence[Setting] = ()

    def variable(self, setting: Setting) -> str:
        """The environment variable of a setting: its own, else section and key behind BAROGRAPH."""
        return setting.variable or f"BAROGRAPH_{self.name}_{setting.name}".upper()


def text(value: str) -> str:
    """Any text."""
    return value


def words(value: str) -> tuple[str, ...]:
    """Words with commas between."""
    return tuple(word.strip() for word in value.split(",") if word.strip())


def subset(allowed: Sequence[str]) -> Parse:
    """Words with commas between, of those allowed."""

    def parse(value: str) -> tuple[str, ...]:
        for word in words(value):
            if word not in allowed:
                raise argparse.ArgumentTypeError(f"{word!r}, expected one of {', '.join(allowed)}")
        return words(value)

    return parse


def choice(*allowed: str) -> Parse:
    """One of a few words."""

    def parse(value: str) -> str:
        if value not in allowed:
            raise argparse.ArgumentTypeError(f"{value!r}, expected {' or '.join(allowed)}")
        return value

    return parse


def number(low: float, high: float = math.inf, *, including_low: bool = False) -> Parse:
    """A number above `low`, or from it on, and below `high`."""
    if math.isinf(high):
        expected = f"of at least {low:g}" if including_low else f"above {low:g}"
    else:
        expected = f"from {low:g} to {high:g}" if including_low else f"between {low:g} and {high:g}"

    def parse(value: str) -> float:
        try:
            figure = float(value)
        except ValueError:
            figure = math.nan
        if not low <= figure < high or (figure == low and not including_low):
            raise argparse.ArgumentTypeError(f"{value!r}, expected a number {expected}")
        return figure

    return parse


def whole(least: int) -> Parse:
    """A whole number of at least so many."""

    def parse(value: str) -> int:
        try:
            figure = int(value)
        except ValueError:
            figure = least - 1
        if figure < least:
            raise argparse.ArgumentTypeError(f"{value!r}, expected a whole number of at least {least}")
        return figure

    return parse


def size(value: str) -> int:
    """Bytes, from a number with K, M, G or T behind it (powers of 1024). Raises argparse.ArgumentTypeError."""
    match = re.fullmatch(r"([0-9]+)([KMGT]?)", value)
    if match is None:
        raise argparse.ArgumentTypeError(f"{value!r} is no size, expected bytes, or as in 500G with K, M, G or T")
    return int(match[1]) * _UNITS[match[2]]


def path(value: str) -> Path:
    """A path."""
    if not value:
        raise argparse.ArgumentTypeError(f"{value!r}, expected a path")
    return Path(value)
