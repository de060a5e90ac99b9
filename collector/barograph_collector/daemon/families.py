"""Metric families together with their samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

Samples: TypeAlias = Iterable[tuple[Sequence[str], float]]
"""Label values and the value."""
Family = TypeVar("Family", GaugeMetricFamily, CounterMetricFamily)


def gauge(name: str, text: str, values: float | Samples, *labels: str) -> GaugeMetricFamily:
    """A gauge of one value, or with samples by label. text: the help."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), values)


def counter(name: str, text: str, values: float | Samples, *labels: str) -> CounterMetricFamily:
    """A counter of one value, or with samples by label. text: the help."""
    return _filled(CounterMetricFamily(name, text, labels=labels), values)


def _filled(family: Family, values: float | Samples) -> Family:
    for labels, value in [((), values)] if isinstance(values, int | float) else values:
        family.add_metric(labels, value)
    return family
