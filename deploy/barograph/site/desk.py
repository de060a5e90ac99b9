"""What every view is made with: the log, the modeler, the clock, and who looks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barograph.commands.predict import ModelerUnreachable as ModelerAway
from barograph.commands.predict import PredictionRefused, ask
from barograph.site.log import FRESH, CachedLog, Row
from barograph_collector.auth.http_access import Viewer


class NotThere(LookupError):
    """Nothing of this name that the viewer may see. The text names it."""


class ModelerClient:
    """Asks the modeler and remembers since when it does not answer. Any thread may ask."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self.url = url
        self.away_since: float | None = None
        self.trouble = ""
        self._clock = clock
        self._lock = threading.Lock()

    def predict(self, fields: Mapping[str, Any], proof: Mapping[str, str]) -> dict[str, Any]:
        """Its answer. proof: headers that say who asks. Raises Refused, and Away where it is not there."""
        try:
            said = ask(self.url, fields, proof)
        except ModelerAway as error:
            with self._lock:
                self.away_since = self.away_since or self._clock()
                self.trouble = str(error)
            raise
        except PredictionRefused:
            self._answered()
            raise
        self._answered()
        return said

    def _answered(self) -> None:
        with self._lock:
            self.away_since, self.trouble = None, ""


@dataclass
class RequestContext:
    """One request's way to what it shows. `oldest` is when the log gave the oldest of the answers taken.

    cut: whether the log had more rows than it gives at once. asked_in_vain: whether the modeler did not answer.
    """

    log: CachedLog
    modeler: ModelerClient
    viewer: Viewer
    proof: Mapping[str, str] = field(default_factory=dict)
    """The headers by which the viewer is known, for the modeler may ask too."""
    oldest: float | None = field(default=None, init=False)
    cut: bool = field(default=False, init=False)
    asked_in_vain: bool = field(default=False, init=False)

    @property
    def now(self) -> float:
        """Unix seconds."""
        return self.log.clock()

    @property
    def user(self) -> str | None:
        """The user whose jobs alone may be seen; None for all of them."""
        return None if self.viewer.operator else self.viewer.name

    def ask(self, query: str, fresh: float = FRESH, name: str = "") -> list[Row]:
        """Rows of the log, as `Log.ask` gives them. Raises Away."""
        answer = self.log.ask(query, fresh, name)
        self.oldest = answer.at if self.oldest is None else min(self.oldest, answer.at)
        self.cut = self.cut or answer.more
        return answer.rows

    def predict(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The modeler's answer. Raises Refused, and Away of `barograph.commands.predict`."""
        try:
            return self.modeler.predict(fields, self.proof)
        except ModelerAway:
            self.asked_in_vain = True
            raise

    def mine(self, rows: list[Row]) -> list[Row]:
        """Those of the rows, each with a `user`, that the viewer may see."""
        return [row for row in rows if self.viewer.may_see(row["user"])]
