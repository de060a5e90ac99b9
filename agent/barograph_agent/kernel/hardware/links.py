"""Links to other nodes: InfiniBand and Omni-Path, Slingshot, Ethernet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from barograph_agent.kernel.hardware.source import CounterSource, Figures
from barograph_agent.system.processes import Processes

_PORT: Final = "/sys/class/infiniband/*/ports/*"
_ERRORS: Final = (
    *(f"{_PORT}/counters/{name}" for name in ("symbol_error", "link_error_recovery", "port_rcv_errors")),
    *(f"/sys/class/cxi/*/device/telemetry/hni_{name}"
      for name in ("pcs_uncorrected_cw", "llr_tx_replay_event", "llr_rx_replay_event")),
)  # fmt: skip
_CARD_ERRORS: Final = ("statistics/rx_errors", "statistics/tx_errors", "carrier_changes")


class LinkSource:
    """`link_rate`, bit/s of all links together that are up, and `link_errors`: what they lost or had to repeat."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        # Cards of the machine, and not of a container or a tunnel.
        cards = [path.removesuffix("/device") for path in processes.matching("/sys/class/net/*/device")]
        errors = [f"{card}/{name}" for card in cards for name in _CARD_ERRORS]
        self._errors = CounterSource(processes, "link_errors", *_ERRORS, *errors)
        self._rates = dict.fromkeys(processes.matching(f"{_PORT}/rate"), 1e9) | {f"{card}/speed": 1e6 for card in cards}

    def read(self, cores: Sequence[int]) -> Figures:
        """As of a source."""
        rates = [unit * rate for path, unit in self._rates.items() if (rate := self._processes.number(path)) > 0]
        return {"link_rate": sum(rates) or math.nan} | self._errors.read()
