"""The settings of the alerts daemon."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from barograph_agent.settings.setting import Form, Option
from barograph_alerts.detection.alarm import ALPHA, MARGIN
from barograph_collector.daemon.settings import FollowerSettings, Metrics


class AlertsSettings(FollowerSettings, frozen=True):
    """Judges running jobs. `barograph alerts` has each key as an option."""

    table = "alerts"
    per_application = ("alpha", "margin")

    metrics: Metrics = ("127.0.0.1", 7453)
    alpha: Annotated[
        float,
        Meta(gt=0, lt=1),
        Form("SHARE", "between 0 and 1"),
        Option("bound on the share of healthy jobs that ever alarm", reloads=True),
    ] = ALPHA
    margin: Annotated[
        float,
        Meta(ge=0, lt=100),
        Form("RATIO", "from 0 to 100; 0.05 is 5 %"),
        Option("slowdown that does not matter, 0.05 is 5 %", reloads=True),
    ] = MARGIN
    labels: Annotated[
        tuple[Literal["user"], ...],
        Form("NAME,...", "names out of user"),
        Option("further labels of job metrics: user; everybody who may scrape sees them", reloads=True),
    ] = ()
    processes: Annotated[
        Literal["own", "all"],
        Form("WHOSE", "own or all"),
        Option("whose processes verdicts name: of the job's user only, or of all users of its nodes", reloads=True),
    ] = "own"
