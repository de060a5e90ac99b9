"""The views of all collectors, asked at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

from barograph.views import queries
from barograph.views.collectors.joint_query import JointQuery
from barograph.views.log import INTERACTIVE, MAX_AGE, RETRY_SECONDS, CachedResult, LogView, QueryLimits
from barograph_agent.deliver.keys import ClientKey
from barograph_agent.settings import places
from barograph_agent.system.clock import CLOCK
from barograph_collector.client.log_reader import LogUnavailable, ReadRefused

SEVERAL_RETRY_SECONDS: Final = 15.0
"""RETRY_SECONDS of one among several: viewers wait for each attempt, and the others have answers."""
THREADS: Final = 4
"""For each collector: an attempt at one that does not answer holds a thread for seconds."""


class LogViews:
    """All collectors, each with a cache. Thread-safe. clock: Unix seconds.

    One that does not answer is left out of what all are asked, and named in `away`. An only one raises its errors.
    """

    def __init__(
        self,
        collectors: str,
        key: ClientKey | None = None,
        limits: QueryLimits = INTERACTIVE,
        clock: Callable[[], float] = CLOCK.now,
    ) -> None:
        """collectors: an address, or several with commas between."""
        addresses = places.endpoints(collectors)
        retry = RETRY_SECONDS if len(addresses) == 1 else SEVERAL_RETRY_SECONDS
        self.views = {one: LogView(one, key, limits, clock, retry) for one in addresses}
        self.clock = clock
        self._pool = ThreadPoolExecutor(THREADS * len(addresses), "collectors")

    @property
    def away(self) -> dict[str, float]:
        """Since when (Unix seconds) those collectors have not answered that do not, by their addresses."""
        found = {one: view.unavailable_since for one, view in self.views.items()}
        return {one: since for one, since in found.items() if since is not None}

    @property
    def intake_troubles(self) -> list[str]:
        """Why collectors take no rows of anybody."""
        named = "{1}" if len(self.views) == 1 else "{0}: {1}"
        return [named.format(one, view.intake_trouble) for one, view in self.views.items() if view.intake_trouble]

    def query(self, asked: JointQuery, max_age: float = MAX_AGE, name: str = "") -> CachedResult:
        """The answer of all collectors, as `LogView.query` has that of one.

        Raises LogUnavailable and ReadRefused where none has an answer.
        """
        views = list(self.views.values())
        if len(views) == 1:
            return _merged(asked, [views[0].query(asked.text, max_age, name)])
        asking = [self._pool.submit(view.query, asked.text, max_age, name) for view in views]
        found: list[CachedResult] = []
        errors: list[LogUnavailable | ReadRefused] = []
        notes: list[str] = []
        for address, answer in zip(self.views, asking, strict=True):
            try:
                found.append(answer.result())
            except LogUnavailable as error:
                errors.append(error)
            except ReadRefused as error:
                errors.append(error)
                notes.append(f"{address} is left out here: {error}")
        if not found:
            raise errors[0]
        return _merged(asked, found, notes)

    def of_job(self, job: str, query: str, max_age: float = MAX_AGE, name: str = "") -> CachedResult:
        """The answer of the collector that has a job. Raises LogUnavailable and ReadRefused."""
        return self._of_job(job).query(query, max_age, name)

    def _of_job(self, job: str) -> LogView:
        """The view that has a job, else the first. Raises where one does not answer that may have it."""
        views, failed = list(self.views.values()), list[LogUnavailable | ReadRefused]()
        for view in views if len(views) > 1 else ():
            try:
                if view.query(queries.has_job(job)).rows:
                    return view
            except (LogUnavailable, ReadRefused) as error:
                failed.append(error)
        if failed:
            raise type(failed[0])(str(failed[0]))
        return views[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.shutdown()
        for view in self.views.values():
            view.close()


def _merged(asked: JointQuery, found: Sequence[CachedResult], notes: Sequence[str] = ()) -> CachedResult:
    return CachedResult(
        asked.merge([one.rows for one in found]),
        min(one.at for one in found),
        truncated=any(one.truncated for one in found),
        note="; ".join(dict.fromkeys([*notes, *(one.note for one in found if one.note)])),
    )
