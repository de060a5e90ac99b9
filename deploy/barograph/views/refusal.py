"""Why a command that reads log or modeler has no result: one line on stderr and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from barograph_agent.deliver import keys
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused
from barograph_collector.daemon.service import Exit


class NoResult(Exception):
    """There is no answer. The text says why and what was expected; `status` is the command's exit status."""

    status = Exit.DATA

    def __init__(self, text: str, status: Exit | None = None) -> None:
        super().__init__(text)
        self.status = self.status if status is None else status


class NothingKnown(NoResult):
    """The log has no application or job of this name that may be seen. The text names it."""


def refuse(command: str, reason: NoResult | str, status: Exit = Exit.DATA) -> Exit:
    """Print the reason as the command's only line on stderr; returns the exit status, a NoResult's own if it is one."""
    print(f"barograph {command}: {reason}", file=sys.stderr)
    return reason.status if isinstance(reason, NoResult) else status


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
    """A reader of the log with the key that the environment names. seconds: for one read. Raises NoResult."""
    with log_errors(read_refused), LogReader(endpoint, seconds, keys.from_environment(os.environ)) as reader:
        yield reader
