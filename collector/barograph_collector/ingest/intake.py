"""Whether rows are taken: not onto a full disk, and not while the collector is drained for maintenance."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from barograph_collector.ingest.space import DiskSpace

DRAINED: Final = "the collector is drained for maintenance; no row is taken, and producers keep theirs until it is back"


class Withheld(NamedTuple):
    """Why no row is taken, for a refusal: the producer keeps its rows, and sends hello until it is accepted."""

    reason: str
    detail: str


class DrainProgress(msgspec.Struct, frozen=True):
    """How far a drain is.

    waiting: rows that are accepted and not in the database. offset: of the last row in it. lake: up to which rows are
    in the lake; None without one.
    """

    draining: bool
    waiting: int
    offset: int
    lake: int | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is accepted and everything is where it belongs."""
        return self.draining and not self.waiting and self.lake in (None, self.offset)


class Intake:
    """For the receive thread."""

    def __init__(self, space: DiskSpace) -> None:
        self.draining = False
        self._space = space

    def withheld(self) -> Withheld | None:
        """Why no row is taken at present; None where they are."""
        if self.draining:
            return Withheld("draining", DRAINED)
        return Withheld("disk-full", self._space.complaint) if self._space.is_short() else None
