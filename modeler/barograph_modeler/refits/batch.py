"""A batch of fits, which another process does. It imports this module: its version must be that of the modeler."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

from barograph_modeler.bands.class_model import GevFit, fit_gevs
from barograph_modeler.maxima.sample import Floats


class OtherVersion(Exception):
    """A worker has another version than the modeler. The message has both."""


def version() -> str:
    """The version of this package."""
    return importlib.metadata.version("barograph")


def check_version(expected: str) -> None:
    """Raises OtherVersion unless this is that version of the package."""
    if expected != version():
        raise OtherVersion(f"the worker has barograph {version()}, expected {expected}")


def fit_windows(windows: Sequence[Floats], seed: int, of_version: str) -> list[GevFit]:
    """Fit each window, as the modeler does. Raises OtherVersion."""
    check_version(of_version)
    return fit_gevs(windows, seed)
