"""What a view of one request needs: log, modeler, clock and viewer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barograph.views.collectors.joint_query import JointQuery
from barograph.views.collectors.log_views import LogViews
from barograph.views.log import MAX_AGE, CachedResult, Row
from barograph.views.modeler import Learning, ModelerClient, ModelerUnavailable, question
from barograph.views.refusal import NoResult
from barograph_collector.auth.http_access import ANYBODY, Viewer


@dataclass
class ViewContext:
    """The access of one request to log and modeler, and how complete the data is that it got.

    credentials: headers that authenticate the viewer to the modeler. oldest: Unix seconds of the oldest result used.
    truncated: whether a row limit cut a result. note: what a result was computed without. modeler_failed: whether the
    modeler did not answer.
    """

    log: LogViews
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

    def rows(self, asked: JointQuery, max_age: float = MAX_AGE, name: str = "") -> list[Row]:
        """The rows of all collectors. Raises LogUnavailable and ReadRefused."""
        return self._noted(self.log.query(asked, max_age, name))

    def of_job(self, job: str, query: str, max_age: float = MAX_AGE, name: str = "") -> list[Row]:
        """The rows of a query about one job. Raises as `rows` does."""
        return self._noted(self.log.of_job(job, query, max_age, name))

    def visible(self, asked: JointQuery, name: str = "") -> list[Row]:
        """The rows, each with a `user`, that the viewer may see. Raises as `rows` does."""
        return [row for row in self.rows(asked, name=name) if self.viewer.may_see(row["user"])]

    def _noted(self, result: CachedResult) -> list[Row]:
        self.oldest = result.at if self.oldest is None else min(self.oldest, result.at)
        self.truncated = self.truncated or result.truncated
        self.note = self.note or result.note
        return result.rows

    def predict_some(self, params: Mapping[str, str], **fields: object) -> tuple[dict[str, Any] | None, str]:
        """As `predict`; where the question leaves open which of several works or sizes it is about, of that which has
        run most often, and a warning names it."""
        answer, error = self.predict(params, **fields)
        if answer is None or answer["refusal"] is None or not answer["others"]:
            return answer, error
        most = max(answer["others"], key=lambda one: one["runs"])
        if not most["values"]:
            return answer, error
        found, failed = self.predict({**params, **most["values"]}, **fields)
        if found is None:
            return None, failed
        if found["refusal"] is not None:
            return answer, error
        found["warnings"] = [
            *found["warnings"],
            f"Runs have had several inputs or sizes: this is for {most['params']}, of which most are.",
        ]
        return found, ""

    def project(
        self, params: Mapping[str, str], largest: int, reach: int, **fields: object
    ) -> tuple[dict[str, Any] | None, str]:
        """As `predict_some`, on `reach` times the `largest` number of ranks; where the size grew with the ranks in all
        runs, of that series instead of the one size, which has run at one scale."""
        answer, error = self.predict_some(params, ranks=reach * largest, **fields)
        if answer is None or not (series := answer.get("series")):
            return answer, error
        rest = {name: text for name, text in params.items() if name not in series["names"]}
        found, _ = self.predict(rest, ranks=reach * series["largest_ranks"], **fields)
        return (answer, error) if found is None or found["refusal"] is not None else (found, "")

    def predict(self, params: Mapping[str, str], **fields: object) -> tuple[dict[str, Any] | None, str]:
        """The modeler's answer to `question`, or None and the reason why there is none."""
        try:
            return self.modeler.predict(question(params, **fields), self.credentials), ""
        except NoResult as error:
            self.modeler_failed = self.modeler_failed or isinstance(error, ModelerUnavailable)
            return None, f"{error}: ask again in a few seconds" if isinstance(error, Learning) else str(error)
