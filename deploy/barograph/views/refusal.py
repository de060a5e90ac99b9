"""Errors of commands that read the log or ask the modeler."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from barograph.cli import CommandError
from barograph.views.log import PatientReader
from barograph_agent.deliver import keys
from barograph_agent.settings import places
from barograph_agent.system.listening import is_listening
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused
from barograph_collector.daemon.service import Exit


class NoResult(CommandError):
    """The log or the modeler has no answer. The text says why and what was expected."""


class NothingKnown(NoResult):
    """The log has no application or job of this name that may be seen. The text names it."""


@contextmanager
def log_errors(read_refused: Exit = Exit.DATA) -> Iterator[None]:
    """Turns what the log's client raises into NoResult. read_refused: the status where the collector refuses a read."""
    try:
        yield
    except LogUnavailable as error:
        raise NoResult(str(error), Exit.UNAVAILABLE) from None
    except ReadRefused as error:
        raise NoResult(str(error), read_refused) from None
    except keys.KeyFileError as error:
        raise NoResult(str(error)) from None


@contextmanager
def opened(endpoint: str, seconds: float, read_refused: Exit = Exit.DATA) -> Iterator[LogReader]:
    """A reader of the log with the key that the environment names. seconds: for one read. Raises NoResult.

    Where nothing listens at the endpoint, a line on standard error announces the wait for it.
    """
    listens = announced(endpoint)
    with log_errors(read_refused), PatientReader(endpoint, seconds, keys.from_environment(os.environ)) as reader:
        if not listens:
            # A query would wait longer: it may queue behind others.
            reader.read("events", -1, 1)
        yield reader


class OpenedLogs(NamedTuple):
    """Readers of the logs of several shards. away: the collectors that do not answer."""

    readers: Sequence[LogReader]
    away: Sequence[str]

    @property
    def status(self) -> Exit:
        """The exit status of a command that has shown what they have."""
        return Exit.UNAVAILABLE if self.away else Exit.OK


@contextmanager
def opened_each(collectors: str, seconds: float, read_refused: Exit = Exit.DATA) -> Iterator[OpenedLogs]:
    """The logs of a list of collectors that answer, the others named on standard error. Raises NoResult.

    Each answer of a reader is of the jobs of its shard.
    """
    addresses = places.endpoints(collectors)
    with ExitStack() as stack:
        readers: list[LogReader] = []
        away: list[str] = []
        for endpoint in addresses:
            try:
                readers.append(stack.enter_context(opened(endpoint, seconds, read_refused)))
            except NoResult as error:
                if len(addresses) == 1:
                    raise
                print(f"barograph: {error}; its jobs are missing here", file=sys.stderr, flush=True)
                away.append(endpoint)
        if not readers:
            raise NoResult(f"none of the collectors {collectors} answers", Exit.UNAVAILABLE)
        yield OpenedLogs(readers, away)


def announced(endpoint: str) -> bool:
    """Whether a collector listens; where none does, a line on standard error says what is waited for."""
    if is_listening(endpoint):
        return True
    text = f"waiting for the collector at {endpoint}, where nothing listens; `barograph up` starts one"
    print(f"barograph: {text}", file=sys.stderr, flush=True)
    return False


def similar(name: str, names: Iterable[str]) -> str:
    """A clause with the names that resemble one that is unknown; empty without any.

    >>> similar("gromcas", ["gromacs", "wrf"]), similar("x", ["gromacs"])
    ('; similar: gromacs', '')
    """
    near = difflib.get_close_matches(name, list(names), 3)
    return f"; similar: {', '.join(near)}" if near else ""
