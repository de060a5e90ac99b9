"""One run as a row of training data for models of features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

Value: TypeAlias = float | str
"""A number, or a text as an unordered label."""


PARAM: Final = "param."
"""What begins the name of a feature that is a parameter."""


class RunFeatures(NamedTuple):
    """Features of a run known before its end.

    values: features by name, including `ranks`, `nodes` and parameters as `param.NAME`. seconds: time from the start of
    the run until each was known; 0 if absent. ranks, nodes: its scale; nodes 0 if unknown.
    """

    values: Mapping[str, Value]
    seconds: Mapping[str, float]
    ranks: int
    nodes: int


class FeatureRun(NamedTuple):
    """The features and runtime of a healthy run."""

    features: RunFeatures
    runtime_seconds: float


def feature_values(
    ranks: int, nodes: int, params: Mapping[str, str], features: Mapping[str, Value]
) -> dict[str, Value]:
    """All features of a run by name. Parameters stay texts; one that is a number in all runs is used as a number."""
    fixed: dict[str, Value] = {"ranks": float(ranks), "nodes": float(nodes)}
    return fixed | {f"{PARAM}{name}": text for name, text in params.items()} | dict(features)
