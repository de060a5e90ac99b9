"""The investigation of one job in a thread: a file system may not answer, and rings must be read meanwhile."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any, Final

from barograph_agent.system.system import System
from barograph_agent.work.evidence import WorkEvidence

SECONDS: Final = 2.0
"""After so much time the row is written with what is known."""
FIRST_SECONDS: Final = 0.05
"""How long the first step waits for the end: most investigations take less."""


class Inquiry:
    """investigate: yields what is known so far; its parameter is the deadline, in monotonic seconds."""

    def __init__(self, system: System, investigate: Callable[[float], Iterator[WorkEvidence]]) -> None:
        self._system = system
        self._investigate = investigate
        self._answers: Any = None
        self._deadline = 0.0
        self._evidence = WorkEvidence()
        self._is_over = False

    def columns(self, *, final: bool = False) -> dict[str, Any]:
        """Columns of the row; empty until the investigation or its time is over. final: wait for that."""
        monotonic = self._system.clock.monotonic
        wait = 0.0
        if self._answers is None:
            self._answers = self._system.threads.queue()
            self._deadline = monotonic() + SECONDS
            wait = FIRST_SECONDS
            self._system.threads.start("work", self._run)
        self._receive(self._deadline if final else monotonic() + wait)
        if not self._is_over and (final or monotonic() >= self._deadline):
            self._evidence = self._evidence.but(f"time: not everything was read in {SECONDS:g} s")
            self._is_over = True
        return self._evidence.columns() if self._is_over else {}

    def _receive(self, until: float) -> None:
        """Take what was found out, waiting for it until then."""
        while not self._is_over:
            left = until - self._system.clock.monotonic()
            if left <= 0 and self._answers.empty():
                return
            try:
                found = self._answers.get(timeout=max(left, 0.001))
            except queue.Empty:
                return
            self._is_over = found is None
            self._evidence = found or self._evidence

    def _run(self) -> None:
        put = self._answers.put
        last = WorkEvidence()
        try:
            for last in self._investigate(self._deadline):
                put(last)
        except Exception as error:
            # Without its text, which may have words of the command line.
            put(last.but(f"failed: {type(error).__name__}"))
        put(None)
