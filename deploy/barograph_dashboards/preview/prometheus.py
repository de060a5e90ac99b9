"""Asks Prometheus what Grafana would ask it."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

TIMEOUT_SECONDS: Final = 60.0


class QueryError(Exception):
    """Prometheus refused a query, or does not answer. The text says which and why."""


class Sample(NamedTuple):
    """Labels, and pairs of Unix seconds and value: one as of now, many over time."""

    labels: Mapping[str, str]
    points: list[tuple[float, float]]


class Prometheus:
    """One server. url: such as http://127.0.0.1:9090. since, until: the time range in Unix seconds."""

    def __init__(self, url: str, since: float, until: float, points: int = 200) -> None:
        self._url = url.rstrip("/")
        self._range = {"start": since, "end": until}
        self.since, self.until = since, until
        self.step = max(1, round((until - since) / points))

    def now(self, expr: str) -> list[Sample]:
        """The answer at the end of the range. Raises QueryError."""
        data = self._get("query", {"query": expr, "time": self.until})
        return [Sample(_labels(one), [_point(one["value"])]) for one in data["result"]]

    def over_time(self, expr: str, step: float = 0) -> list[Sample]:
        """The answers over the range, the last at its end. step: seconds between them, at least. Raises QueryError."""
        step = max(step, self.step)
        start = self.until - (self.until - self.since) // step * step
        data = self._get("query_range", {"query": expr, "step": step, "start": start, "end": self.until})
        return [Sample(_labels(one), [_point(pair) for pair in one["values"]]) for one in data["result"]]

    def label_values(self, selector: str, label: str) -> list[str]:
        """Values of a label of the series of the range that match. Raises QueryError."""
        return [str(value) for value in self._get(f"label/{label}/values", {"match[]": selector, **self._range})]

    def _get(self, path: str, parameters: Mapping[str, object]) -> Any:
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{query}", timeout=TIMEOUT_SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise QueryError(f"{parameters.get('query', path)}: {json.load(error)['error']}") from error
        except OSError as error:
            raise QueryError(f"{self._url}: {error}, expected Prometheus") from error


def _labels(one: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in one["metric"].items() if name != "__name__"}


def _point(pair: list[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
