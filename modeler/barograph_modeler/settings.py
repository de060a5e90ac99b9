"""The settings of the modeler."""

from __future__ import annotations

import argparse
from typing import Final

from barograph_agent.settings.agent import COLLECTOR_ADDRESS
from barograph_agent.settings.setting import Section, Setting, number, path, whole
from barograph_agent.settings.sources import ConfigError
from barograph_collector.auth.http_access import is_loopback
from barograph_collector.settings import ACCESS, KEY, LOG_FORMAT, metrics
from barograph_modeler.pace.windows import WINDOW_SECONDS, check_window_seconds


def window(value: str) -> float:
    """Check the length of windows. Raises ValueError."""
    try:
        seconds = float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r}, expected seconds above 0") from None
    return check_window_seconds(seconds)


MODELER: Final = Section(
    "modeler",
    [
        COLLECTOR_ADDRESS,
        KEY,
        metrics(7452, "where Prometheus scrapes, and where /predict is asked"),
        ACCESS,
        Setting(
            "window",
            "number",
            window,
            f"{WINDOW_SECONDS:g}",
            "SECONDS",
            "seconds above 0",
            "pieces in which jobs are compared: longer is steadier, shorter alarms sooner",
        ),
        Setting("seed", "whole number", int, "0", "N", "a whole number", "of the bootstraps"),
        Setting(
            "state",
            "text",
            path,
            None,
            "DIR",
            "a directory",
            "where a snapshot is kept, to go on from after a restart",
            otherwise="none, the log is read again",
        ),
        Setting(
            "classes",
            "whole number",
            whole(1),
            "100000",
            "N",
            "1 or more",
            "classes kept, over all workloads; the least recently learned go first",
        ),
        Setting(
            "accept",
            "whole number",
            whole(0),
            "5",
            "N",
            "0 or more",
            "alarmed runs in a row that, if they agree, become the history; 0: never",
        ),
        Setting(
            "refit",
            "number",
            number(0, including_low=True),
            "0.2",
            "SECONDS",
            "seconds, 0 or more",
            "of CPU time for fits in each half second",
        ),
        LOG_FORMAT,
    ],
)


def check_modeler(options: argparse.Namespace) -> None:
    """Whether the settings go together. Raises ConfigError."""
    host, port = options.metrics
    if options.access is None and not is_loopback(host):
        raise ConfigError(
            f"metrics: '{host}:{port}' is not a loopback address and serves /predict, expected one, or access with it"
        )
