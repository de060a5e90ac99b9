"""Asks a Prometheus the queries of a dashboard as Grafana does: variables replaced, answers merged into one table."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

RANGE_SECONDS = 20.0
"""What a dashboard shows. What was otherwise before that is forgotten soon."""
RATE_INTERVAL = "10s"
Panel = dict[str, Any]
Row = dict[str, str | float]


class QueryError(Exception):
    """Prometheus refused a query. The text is the query and the reason."""


class Series(NamedTuple):
    """Labels without the metric's name, and values: one for an instant query."""

    labels: Mapping[str, str]
    values: list[float]


class Prometheus:
    """The HTTP API of one server. since, until: the time range in Unix seconds."""

    def __init__(self, url: str, seconds: float = RANGE_SECONDS) -> None:
        self._url = url
        self._until = time.time()
        self._since = self._until - seconds

    def instant(self, expr: str) -> list[Series]:
        result = self._get("query", query=expr, time=self._until)["result"]
        return [Series(_labels(one["metric"]), [float(one["value"][1])]) for one in result]

    def range(self, expr: str, step: float = 0.0) -> list[Series]:
        """step: least seconds between two points. The last point is at the end of the range."""
        step = max(step, 1.0)
        start = self._until - (self._until - self._since) // step * step
        result = self._get("query_range", query=expr, step=step, start=start, end=self._until)["result"]
        return [Series(_labels(one["metric"]), [float(value) for _, value in one["values"]]) for one in result]

    def label_values(self, selector: str, label: str) -> list[str]:
        found: list[str] = self._get(
            f"label/{label}/values", **{"match[]": selector, "start": self._since, "end": self._until}
        )
        return found

    def labels(self, metric: str) -> set[str]:
        """The labels that any series of a metric has."""
        return set(self._get("labels", **{"match[]": metric, "start": self._since, "end": self._until}))

    def _get(self, path: str, **parameters: object) -> Any:
        address = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=120) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise QueryError(f"{parameters}: {json.load(error)['error']}") from error


class Board:
    """A dashboard on a Prometheus. given: values of variables; every other one gets its first value, as in Grafana."""

    def __init__(self, document: Mapping[str, Any], prometheus: Prometheus, given: Mapping[str, str]) -> None:
        self.panels: list[Panel] = [panel for panel in document["panels"] if panel["type"] != "row"]
        self.variables = {"__rate_interval": RATE_INTERVAL, **given}
        self._prometheus = prometheus
        for one in document["templating"]["list"]:
            if one["type"] == "query" and one["name"] not in given:
                self.variables[one["name"]] = next(iter(self.values(one)), "")

    def ask(self, panel: Panel) -> Iterator[tuple[dict[str, Any], list[Series]]]:
        """The panel's queries, each with its answer. Raises QueryError."""
        for target in panel["targets"]:
            expr = self.filled(target["expr"])
            if target.get("instant"):
                yield target, self._prometheus.instant(expr)
            else:
                yield target, self._prometheus.range(expr, _seconds(target.get("interval", "0s")))

    def filled(self, text: str) -> str:
        """The text with variables replaced."""
        for name, value in self.variables.items():
            text = text.replace(f"${{{name}:regex}}", _escaped(value))
            text = re.sub(rf"\$\{{{name}(:\w+)?\}}|\${name}\b", value.replace("\\", r"\\"), text)
        return text

    def values(self, variable: Mapping[str, Any]) -> Iterator[str]:
        """The choices that a variable offers."""
        query = self.filled(variable["query"])
        if found := re.fullmatch(r"label_values\((.*), (\w+)\)", query):
            selector = found[1]
            texts = self._prometheus.label_values(selector, found[2])
        elif found := re.fullmatch(r"query_result\((.*)\)", query):
            texts = [
                "{" + ",".join(f'{name}="{value}"' for name, value in one.labels.items()) + "}"
                for one in self._prometheus.instant(found[1])
            ]
        else:
            raise ValueError(f"variable {variable['name']}: {query}, expected label_values or query_result")
        regex = variable.get("regex", "").strip("/").replace("(?<", "(?P<") or "(.*)"
        for match in filter(None, (re.search(regex, text) for text in texts)):
            yield match.groupdict().get("value") or match[1]

    def table(self, panel: Panel) -> list[Row]:
        """Rows by title of column: what the panel's transformations `merge` and `organize` make of its answers."""
        merged: list[Row] = []
        for target, answer in self.ask(panel):
            value = "Value" if len(panel["targets"]) == 1 else f"Value #{target['refId']}"
            for one in answer:
                same = [row for row in merged if all(row.get(name) == text for name, text in one.labels.items())]
                if not same:
                    same = [dict(one.labels)]
                    merged += same
                for row in same:
                    row[value] = one.values[-1]
        names = columns(panel)
        return [{title: row[name] for name, title in names.items() if name in row} for row in merged]


def columns(panel: Panel) -> dict[str, str]:
    """The columns of a table or chart: label, or `Value #` and the query's letter, to title."""
    [options] = [one["options"] for one in panel["transformations"] if one["id"] == "organize"]
    names: dict[str, str] = options["renameByName"]
    return {name: names[name] for name in sorted(names, key=lambda name: options["indexByName"][name])}


def _labels(metric: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in metric.items() if name != "__name__"}


def _seconds(text: str) -> float:
    """A duration of one number and one unit."""
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def _escaped(value: str) -> str:
    """As Grafana escapes a value for a regular expression within a string of PromQL."""
    return re.sub(r"([\\^$*+?.()|{}\[\]/])", r"\\\\\1", value)
