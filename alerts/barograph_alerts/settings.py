"""The settings of the alerts daemon."""

from __future__ import annotations

from typing import Final

from barograph_agent.settings.agent import COLLECTOR_ADDRESS
from barograph_agent.settings.setting import Section, Setting, number, subset
from barograph_alerts.detection.evidence import ALPHA, MARGIN
from barograph_collector.settings import KEY, LOG_FORMAT, metrics

LABELS: Final = ("user",)
"""What may be told of jobs in metrics beside what they are called."""
_JUDGED_BY: Final = (
    Setting(
        "alpha",
        "number",
        number(0, 1),
        f"{ALPHA:g}",
        "SHARE",
        "between 0 and 1",
        "bound on the share of healthy jobs that ever alarm",
        reloads=True,
    ),
    Setting(
        "margin",
        "number",
        number(0, 100, including_low=True),
        f"{MARGIN:g}",
        "RATIO",
        "from 0 to 100; 0.05 is 5 %",
        "slowdown that does not matter, 0.05 is 5 %",
        reloads=True,
    ),
)
ALERTS: Final = Section(
    "alerts",
    [
        COLLECTOR_ADDRESS,
        KEY,
        metrics(7453),
        *_JUDGED_BY,
        Setting(
            "labels",
            "list",
            subset(LABELS),
            "",
            "NAME,...",
            f"names out of {', '.join(LABELS)}",
            "what metrics tell of jobs besides: user; everybody who may scrape reads it",
            otherwise="none",
            reloads=True,
        ),
        LOG_FORMAT,
    ],
    applications=_JUDGED_BY,
)
