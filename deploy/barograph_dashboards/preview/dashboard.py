"""A dashboard as it stands in its JSON: panels, and variables put into their queries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from barograph_dashboards.preview.prometheus import Prometheus, Sample

Panel = dict[str, Any]


class Dashboard:
    """One file of JSON. given: values of variables; the others get the first value there is, as in Grafana."""

    def __init__(self, path: Path, prometheus: Prometheus, rate_interval: str, given: Mapping[str, str]) -> None:
        document = json.loads(path.read_text())
        self.title: str = document["title"]
        self.panels: list[Panel] = document["panels"]
        self.variables = {"__rate_interval": rate_interval, **given}
        self._prometheus = prometheus
        for one in document["templating"]["list"]:
            if one["type"] == "query" and one["name"] not in given:
                self.variables[one["name"]] = next(iter(self._values(one)), "")

    def ask(self, panel: Panel) -> Iterator[tuple[Panel, list[Sample]]]:
        """The panel's queries with what Prometheus says to them. Raises QueryError."""
        for target in panel.get("targets", ()):
            expr = self.filled(target["expr"])
            if target.get("instant"):
                yield target, self._prometheus.now(expr)
            else:
                yield target, self._prometheus.over_time(expr, _seconds(target.get("interval", "0s")))

    def filled(self, text: str) -> str:
        """The text with variables replaced."""
        for name, value in self.variables.items():
            text = text.replace(f"${{{name}:regex}}", _escaped(value))
            text = re.sub(rf"\$\{{{name}(:\w+)?\}}|\${name}\b", value.replace("\\", r"\\"), text)
        return text

    def _values(self, variable: Mapping[str, Any]) -> Iterator[str]:
        query = self.filled(variable["query"])
        if found := re.fullmatch(r"label_values\((.*), (\w+)\)", query):
            texts = self._prometheus.label_values(found[1], found[2])
        elif found := re.fullmatch(r"query_result\((.*)\)", query):
            texts = [_series(one) for one in self._prometheus.now(found[1])]
        else:
            raise ValueError(f"variable {variable['name']}: {query}, expected label_values or query_result")
        regex = re.sub(r"\(\?<", "(?P<", (variable.get("regex") or "").strip("/"))
        for text in texts:
            if not regex:
                yield text
            elif match := re.search(regex, text):
                yield match.groupdict().get("value") or match[1]


def _seconds(text: str) -> float:
    """A duration of one number and one unit."""
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def _escaped(value: str) -> str:
    """As Grafana does it for a regular expression in a string of PromQL."""
    return re.sub(r"([\\^$*+?.()|{}\[\]/])", r"\\\\\1", value)


def _series(sample: Sample) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in sample.labels.items()) + "}"
