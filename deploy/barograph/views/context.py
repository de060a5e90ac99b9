"""What every view is made with: the log, the modeler, the clock, and who looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barograph.views.log import FRESH, LogView, Row
from barograph.views.modeler import ModelerAway, ModelerClient
from barograph_collector.auth.http_access import ANYBODY, Viewer


@dataclass
class ViewContext:
    """One request's access to what it shows. `oldest` is when the log gave the oldest of the answers used.

    cut: whether the log had more rows than it gives at once. asked_in_vain: whether the modeler did not answer.
    """

    log: LogView
    modeler: ModelerClient
    viewer: Viewer = ANYBODY
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

    def rows(self, query: str, fresh: float = FRESH, name: str = "") -> list[Row]:
        """Rows of the log, as `LogView.ask` gives them. Raises LogUnavailable and ReadRefused."""
        answer = self.log.ask(query, fresh, name)
        self.oldest = answer.at if self.oldest is None else min(self.oldest, answer.at)
        self.cut = self.cut or answer.more
        return answer.rows

    def visible(self, query: str, name: str = "") -> list[Row]:
        """Those of the rows, each with a `user`, that the viewer may see. Raises as `rows` does."""
        return [row for row in self.rows(query, name=name) if self.viewer.may_see(row["user"])]

    def predict(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The modeler's answer. Raises NoResult, and ModelerAway where it does not answer."""
        try:
            return self.modeler.predict(fields, self.proof)
        except ModelerAway:
            self.asked_in_vain = True
            raise
