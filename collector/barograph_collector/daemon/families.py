"""Metric families together with their samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

Samples: TypeAlias = Iterable[tuple[Sequence[str], float]]
"""Label values and the value."""
Family = TypeVar("Family", GaugeMetricFamily, CounterMetricFamily)


def gauge(name: str, text: str, values: float | Samples, *labels: str) -> GaugeMetricFamily:
    """A gauge of one value, or one with samples by label. text: the help."""
    if isinstance(values, int | float):
        return GaugeMetricFamily(name, text, value=values)
    return _filled(GaugeMetricFamily(name, text, labels=labels), values)


def counter(name: str, text: str, values: float | Samples, *labels: str) -> CounterMetricFamily:
    """The same of a counter."""
    if isinstance(values, int | float):
        return CounterMetricFamily(name, text, value=values)
    return _filled(CounterMetricFamily(name, text, labels=labels), values)


def _filled(family: Family, samples: Samples) -> Family:
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
