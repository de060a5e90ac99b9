"""Independent parts of a back-test, computed by several processes or a Dask cluster, with the results in order."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from barograph_lab.columns import count
from barograph_lab.studies.series import BadTable
from barograph_modeler.settings import dask_address
from barograph_modeler.workers import Started, call_as, dask_cluster, local_processes, version

TASKS: Final = 64
"""Tasks that the parts are sent in, at most."""
Part = TypeVar("Part")
Row = TypeVar("Row")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add --workers and --dask."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--workers", type=count, default=1, metavar="N", help="processes (default: %(default)s)")
    where.add_argument("--dask", type=dask_address, metavar="ADDRESS", help="the scheduler of a Dask cluster")


def workers_of(options: argparse.Namespace) -> Callable[[], Started] | None:
    """What starts the workers of the options; None for this process alone."""
    if options.dask is not None:
        return partial(dask_cluster, options.dask)
    return partial(local_processes, options.workers) if options.workers > 1 else None


def spread(
    task: Callable[[Sequence[Part]], Iterable[Row]], parts: Sequence[Part], start: Callable[[], Started] | None
) -> Iterator[Row]:
    """The rows of `task` for all parts, in their order. Raises BadTable where workers fail.

    task: a function of a module; its rows of several parts are those of each.
    """
    if start is None:
        yield from task(parts)
        return
    size = max(-(-len(parts) // TASKS), 1)
    executor, end = start()
    try:
        tasks = [partial(_rows, task, parts[at : at + size]) for at in range(0, len(parts), size)]
        for future in [executor.submit(call_as, version(), one) for one in tasks]:
            yield from future.result()
    except (RuntimeError, OSError) as error:
        raise BadTable(f"workers: {type(error).__name__}: {error}, expected some that do not fail") from error
    finally:
        end()


def _rows(task: Callable[[Sequence[Part]], Iterable[Row]], parts: Sequence[Part]) -> list[Row]:
    return list(task(parts))
