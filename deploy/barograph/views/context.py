"""What a view of one request needs: log, modeler, clock and viewer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barograph.views.log import MAX_AGE, LogView, Row
from barograph.views.modeler import ModelerClient, ModelerUnavailable, question
from barograph.views.refusal import NoResult
from barograph_collector.auth.http_access import ANYBODY, Viewer


@dataclass
class ViewContext:
    """The access of one request to log and modeler, and how complete the data is that it got.

    credentials: headers that authenticate the viewer to the modeler. oldest: Unix seconds of the oldest result used.
    truncated: whether a row limit cut a result. note: what a result was computed without. modeler_failed: whether the
    modeler did not answer.
    """

    log: LogView
    modeler: ModelerClient
    viewer: Viewer = ANYBODY
    credentials: Mapping[str, str] = field(default_factory=dict)
    oldest: float | None = field(default=None, init=False)
    truncated: bool = field(default=False, init=False)
    note: str = field(default="", init=False)
    modeler_failed: bool = field(default=False, init=False)

    @property
    def now(self) -> float:
        """Unix seconds."""
        return self.log.clock()

    @property
    def user(self) -> str | None:
        """The user whose jobs alone are visible; None where all are."""
        return None if self.viewer.operator else self.viewer.name

    def rows(self, query: str, max_age: float = MAX_AGE, name: str = "") -> list[Row]:
        """The rows of a query, as `LogView.query` returns them. Raises LogUnavailable and ReadRefused."""
        result = self.log.query(query, max_age, name)
        self.oldest = result.at if self.oldest is None else min(self.oldest, result.at)
        self.truncated = self.truncated or result.truncated
        self.note = self.note or result.note
        return result.rows

    def visible(self, query: str, name: str = "") -> list[Row]:
        """The rows, each with a `user`, that the viewer may see. Raises as `rows` does."""
        return [row for row in self.rows(query, name=name) if self.viewer.may_see(row["user"])]

    def predict(self, params: Mapping[str, str], **fields: object) -> tuple[dict[str, Any] | None, str]:
        """The modeler's answer to `question`, or None and the reason why there is none."""
        try:
            return self.modeler.predict(question(params, **fields), self.credentials), ""
        except NoResult as error:
            self.modeler_failed = self.modeler_failed or isinstance(error, ModelerUnavailable)
            return None, str(error)
