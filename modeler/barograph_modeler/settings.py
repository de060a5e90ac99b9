"""The settings of the modeler."""

from __future__ import annotations

import argparse
from typing import Annotated, Literal

from msgspec import Meta

from barograph_agent.settings.setting import Directory, Form, Option
from barograph_collector.daemon.service import host_and_port
from barograph_collector.daemon.settings import AccessFile, FollowerSettings, HostPort, check_loopback
from barograph_modeler.pace.windows import WINDOW_SECONDS, check_window_seconds


def window_seconds(value: str) -> float:
    """Parse the length of windows. Raises ArgumentTypeError or ValueError."""
    try:
        seconds = float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r}, expected seconds above 0") from None
    return check_window_seconds(seconds)


def dask_address(value: str) -> str:
    """Parse the address of a scheduler. Raises ArgumentTypeError."""
    scheme, separator, place = value.partition("://")
    if scheme not in ("tcp", "tls") or not separator:
        raise argparse.ArgumentTypeError(f"{value!r}, expected tcp://HOST:PORT or tls://HOST:PORT")
    host_and_port(place)
    return value


class ModelerSettings(FollowerSettings, frozen=True):
    """The settings of the modeler. `barograph modeler` has each key as an option."""

    table = "modeler"

    metrics: Annotated[HostPort, Option("where Prometheus scrapes, and where /predict is asked")] = ("127.0.0.1", 7452)
    access: AccessFile = None
    window: Annotated[
        float,
        Form("SECONDS", "seconds above 0", window_seconds),
        Option("length of the windows in which jobs are compared: longer is steadier, shorter alarms sooner"),
    ] = WINDOW_SECONDS
    seed: Annotated[int, Form("N", "a whole number"), Option("seed of the bootstraps")] = 0
    state: Annotated[
        Directory,
        Option("where a snapshot is kept, to go on from after a restart", otherwise="none, the log is read again"),
    ] = None
    classes: Annotated[
        int,
        Meta(ge=1),
        Form("N", "1 or more"),
        Option("classes kept, over all workloads; the least recently learned go first"),
    ] = 100_000
    accept: Annotated[
        int,
        Meta(ge=0),
        Form("N", "0 or more"),
        Option("alarmed runs in a row that, if they agree, become the history; 0: never"),
    ] = 5
    histories: Annotated[
        Literal["user", "account", "shared"],
        Form("WHOSE", "user, account or shared"),
        Option("whose runs a run is compared with: those of its user, of its account, or all"),
    ] = "user"
    refit: Annotated[
        float, Meta(ge=0), Form("SECONDS", "seconds, 0 or more"), Option("CPU time for fits in each half second")
    ] = 0.2
    workers: Annotated[
        int,
        Meta(ge=0),
        Form("N", "0 or more"),
        Option("processes that fit, while a thousand classes or more wait; 0: none"),
    ] = 1
    dask: Annotated[
        str | None,
        Form("ADDRESS", "tcp://HOST:PORT or tls://HOST:PORT", dask_address),
        Option("the scheduler of a Dask cluster that fits instead of local processes"),
    ] = None

    def check(self) -> None:
        """Check that /predict is not open to others without access control. Raises ConfigError."""
        check_loopback("metrics", self.metrics, self.access, " and serves /predict")
