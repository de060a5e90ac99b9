"""Reload of the configuration on SIGHUP."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from barograph_agent.settings.sources import ConfigError, Configuration
from barograph_agent.system.clock import CLOCK
from barograph_collector.daemon.notify import Notifier

_log = logging.getLogger(__name__)


@dataclass
class Reload:
    """Reads the configuration again, applies all changed settings or none, and exports the result as metrics.

    apply: called after a successful reload. clock: Unix seconds.
    """

    configuration: Configuration[Any]
    apply: Callable[[], None]
    notifier: Notifier
    registry: CollectorRegistry
    clock: Callable[[], float] = CLOCK.now

    def __post_init__(self) -> None:
        configuration, registry = self.configuration, self.registry
        daemon = configuration.section.table
        success = "Whether the last reload of the configuration succeeded: 1, or 0 where the old values stayed."
        when = "Time of the last successful reload of the configuration, as Unix time in seconds."
        name = "barograph_config_last_reload_success"
        self._success = Gauge(f"{name}ful", success, ("daemon",), registry=registry).labels(daemon)
        self._when = Gauge(f"{name}_timestamp_seconds", when, ("daemon",), registry=registry).labels(daemon)
        self._success.set(1)
        self._when.set(self.clock())

    def run(self) -> None:
        """Reload. An invalid configuration changes nothing and is one error line."""
        configuration = self.configuration
        self.notifier.reloading()
        try:
            later = configuration.reload()
        except ConfigError as error:
            _log.error("configuration not read: %s; everything stays as it was", error)
            self._success.set(0)
        else:
            self.apply()
            _log.info("configuration read again from %s", configuration.file or "the environment")
            if later:
                _log.warning("changed, needs a restart: %s", ", ".join(later))
            self._success.set(1)
            self._when.set(self.clock())
        self.notifier.ready()
