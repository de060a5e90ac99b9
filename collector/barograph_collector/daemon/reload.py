"""Reload of the configuration on SIGHUP."""

from __future__ import annotations

import logging
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge

from barograph_agent.settings.sources import ConfigError, Configuration, S
from barograph_agent.system.clock import CLOCK
from barograph_collector.daemon.notify import Notifier

_log = logging.getLogger(__name__)


class Reload:
    """Reads the configuration again, applies all changed settings or none, and exports the result as metrics."""

    def __init__(
        self,
        configuration: Configuration[S],
        apply: Callable[[], None],
        notifier: Notifier,
        registry: CollectorRegistry,
        clock: Callable[[], float] = CLOCK.now,
    ) -> None:
        """apply: called after a successful reload. clock: Unix seconds."""
        self._configuration = configuration
        self._apply = apply
        self._notifier = notifier
        self._clock = clock
        daemon = configuration.section.table
        success = "Whether the last reload of the configuration succeeded: 1, or 0 where the old values stayed."
        when = "Time of the last successful reload of the configuration, as Unix time in seconds."
        name = "barograph_config_last_reload_success"
        self._success = Gauge(f"{name}ful", success, ("daemon",), registry=registry).labels(daemon)
        self._when = Gauge(f"{name}_timestamp_seconds", when, ("daemon",), registry=registry).labels(daemon)
        self._success.set(1)
        self._when.set(clock())

    def run(self) -> None:
        """Reload. An invalid configuration changes nothing and is one error line."""
        configuration = self._configuration
        self._notifier.reloading()
        try:
            later = configuration.reload()
        except ConfigError as error:
            _log.error("configuration not read: %s; everything stays as it was", error)
            self._success.set(0)
        else:
            self._apply()
            _log.info("configuration read again from %s", configuration.file or "the environment")
            if later:
                _log.warning("changed, needs a restart: %s", ", ".join(later))
            self._success.set(1)
            self._when.set(self._clock())
        self._notifier.ready()
