"""Independent parts of a back-test, computed by several processes or a Dask cluster, with the results in order."""

from __future__ import annotations

import argparse
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from barograph_lab.columns import count, note
from barograph_modeler.refits.batch import check_version, version
from barograph_modeler.refits.workers import DaskCluster, LocalProcesses, Workers
from barograph_modeler.settings import dask_address

TASKS: Final = 64
"""Tasks that the parts are sent in, at most."""
CONNECT_POLL_SECONDS: Final = 0.05
Part = TypeVar("Part")
Row = TypeVar("Row")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add --workers and --dask."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--workers", type=count, default=1, metavar="N", help="processes (default: %(default)s)")
    where.add_argument("--dask", type=dask_address, metavar="ADDRESS", help="the scheduler of a Dask cluster")


def workers_of(options: argparse.Namespace) -> Workers | None:
    """What the options ask for; None for this process alone. Raises ModuleNotFoundError if `distributed` is missing."""
    if options.dask is not None:
        return DaskCluster(options.dask)
    return LocalProcesses(options.workers) if options.workers > 1 else None


def spread(
    task: Callable[[Sequence[Part]], Iterable[Row]], parts: Sequence[Part], workers: Workers | None
) -> Iterator[Row]:
    """The rows of `task` for all parts, in their order.

    task: a function of a module; its rows of several parts are those of each. What workers cannot do is computed here,
    and a line on standard error says why.
    """
    if workers is None:
        yield from task(parts)
        return
    size = max(-(-len(parts) // TASKS), 1)
    slices = [parts[at : at + size] for at in range(0, len(parts), size)]
    futures: list[Any] = []
    try:
        while (executor := workers.executor()) is None:
            time.sleep(CONNECT_POLL_SECONDS)
        futures = [executor.submit(_rows, task, one, version()) for one in slices]
    except Exception as error:
        _tell(workers, error)
    try:
        for number, one in enumerate(slices):
            rows = None
            if futures:
                try:
                    rows = futures[number].result()
                except (Exception, CancelledError) as error:
                    _tell(workers, error)
                    futures = []
            yield from task(one) if rows is None else rows
    finally:
        workers.close()


def _rows(task: Callable[[Sequence[Part]], Iterable[Row]], parts: Sequence[Part], of_version: str) -> list[Row]:
    check_version(of_version)
    return list(task(parts))


def _tell(workers: Workers, error: BaseException) -> None:
    note(f"{workers.name}: {type(error).__name__}: {error}; the rest is computed here")
