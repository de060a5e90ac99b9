"""One run as a model of features sees it: what was known of it early, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

Value: TypeAlias = float | str
"""A number, or a text that is a label without order."""


class RunFeatures(NamedTuple):
    """What is known of a run before its end.

    values: features by name, parameters among them as `param.NAME`, and `ranks` and `nodes`. seconds: how long after
    its start each was known, 0 for those that are not here. problem, ranks, nodes: its place in scaling; nodes 0 where
    they are not known.
    """

    values: Mapping[str, Value]
    seconds: Mapping[str, float]
    problem: str
    ranks: int
    nodes: int


class FeatureRun(NamedTuple):
    """A run that ended well, and how long it took, in seconds."""

    known: RunFeatures
    runtime_seconds: float


def feature_values(ranks: int, nodes: int, params: Mapping[str, str], noted: Mapping[str, Value]) -> dict[str, Value]:
    """All features of a run by name. A parameter that is a number in all runs is used as one."""
    fixed: dict[str, Value] = {"ranks": float(ranks), "nodes": float(nodes)}
    return fixed | {f"param.{name}": text for name, text in params.items()} | dict(noted)
