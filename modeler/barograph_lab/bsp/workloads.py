"""The work of a rank in one interval (table I of the paper), in amounts drawn beforehand from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Work = Callable[[int], None]
"""Called with the number of the interval, from 0."""


class BadParameter(ValueError):
    """An invalid parameter. The text states its name, its value and what was expected."""


DISTRIBUTIONS: Final[dict[str, dict[str, float]]] = {
    "constant": {"mean": 1.0},
    "uniform": {"low": 0.5, "high": 1.5},
    "normal": {"mean": 1.0, "sd": 0.1},
    "gamma": {"shape": 4.0, "scale": 0.25},
    "exponential": {"mean": 1.0},
    "lognormal": {"mu": 0.0, "sigma": 0.25},
}
"""Parameters of each distribution in the order of numpy's generator, with defaults for a mean of about 1, which `unit`
multiplies."""

UNITS: Final = {"ftq": 1e-3, "fwq": 1e4}
"""Defaults of `unit`, the amount of a drawn 1: a millisecond (in seconds), ten thousand additions."""

SIZES: Final[dict[str, dict[str, float]]] = {"dgemm": {"size": 128, "times": 1}, "spmv": {"size": 128, "times": 10}}
"""Rows of the matrix (of the square grid for spmv), and multiplications per interval."""


def parameters(workload: str, distribution: str, given: Mapping[str, str]) -> dict[str, float]:
    """All parameters of a workload: those given and defaults. Raises BadParameter."""
    known = dict(SIZES[workload]) if workload in SIZES else {"unit": UNITS[workload], **DISTRIBUTIONS[distribution]}
    for name, text in given.items():
        if name not in known:
            raise BadParameter(f"parameter {name!r} of {workload}, expected one of {', '.join(known)}")
        try:
            known[name] = float(text)
        except ValueError:
            raise BadParameter(f"parameter {name} is {text!r}, expected a number") from None
        least = None if name == "mu" else 1.0 if workload in SIZES else 0.0
        if not np.isfinite(known[name]) or (least is not None and known[name] < least):
            raise BadParameter(f"parameter {name} is {text}, expected a number of at least {least:g}")
    return known


def amounts(workload: str, distribution: str, values: Mapping[str, float], count: int, seed: int, rank: int) -> Floats:
    """The work of each of `count` intervals of this rank: nanoseconds (ftq) or additions (fwq), at least 0.

    A seed gives the same amounts on the same rank and independent amounts on different ranks.
    """
    rng = np.random.default_rng([seed, rank])
    arguments = [values[name] for name in DISTRIBUTIONS[distribution]]
    if distribution == "uniform":
        arguments[1] = max(arguments)
    if distribution == "constant":
        drawn = np.full(count, arguments[0])
    else:
        drawn = getattr(rng, distribution)(*arguments, count)
    scale = values["unit"] * (1e9 if workload == "ftq" else 1.0)
    return np.maximum(drawn * scale, 0.0)


def make(workload: str, distribution: str, values: Mapping[str, float], count: int, seed: int, rank: int) -> Work:
    """The work of this rank. Amounts are drawn and memory is allocated here, not in the work."""
    if workload in SIZES:
        kernel = _dgemm if workload == "dgemm" else _spmv
        return kernel(int(values["size"]), int(values["times"]), np.random.default_rng([seed, rank]))
    drawn = [int(amount) for amount in amounts(workload, distribution, values, count, seed, rank)]
    return _spin(drawn) if workload == "ftq" else _add(drawn)


def _spin(nanoseconds: list[int]) -> Work:
    """Fixed time quantum: wait for the drawn time."""

    def work(interval: int) -> None:
        until = perf_counter_ns() + nanoseconds[interval]
        while perf_counter_ns() < until:
            pass

    return work


def _add(additions: list[int]) -> Work:
    """Fixed work quantum: the drawn number of integer additions."""

    def work(interval: int) -> None:
        total = 0
        for number in range(additions[interval]):
            total += number

    return work


def _dgemm(size: int, times: int, rng: np.random.Generator) -> Work:
    a, b, out = rng.random((size, size)), rng.random((size, size)), np.empty((size, size))

    def work(interval: int) -> None:
        for _ in range(times):
            np.matmul(a, b, out=out)

    return work


def _spmv(size: int, times: int, rng: np.random.Generator) -> Work:
    """The five-point stencil on a square grid, as compressed rows."""
    grid = np.arange(size * size).reshape(size, size)
    around: list[Any] = [grid, *(np.roll(grid, shift, axis) for shift in (1, -1) for axis in (0, 1))]
    columns = np.stack(around, axis=-1).reshape(-1)
    values = np.tile([4.0, -1.0, -1.0, -1.0, -1.0], size * size)
    starts = np.arange(0, columns.size, 5)
    x = rng.random(size * size)

    def work(interval: int) -> None:
        for _ in range(times):
            np.add.reduceat(values * x[columns], starts)

    return work
