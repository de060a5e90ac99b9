"""Runtime at a scale from the phases of smaller runs, with its distribution by sampling.

    seconds = other + sum over classes of count x (own x slowest / own + exchange + collective)

Each draw takes its laws from their posteriors: own work (`work`), the maximum over ranks (`maximum`), exchange,
collective and what is outside of classes (`communication`), counts and bytes (`growth`). Added is what differs between
runs of one configuration: which nodes they have, and how fast their network is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.parts.communication import LinearLaw, collective_terms, exchange_terms, serial_terms
from barograph_modeler.parts.deviations import deviation_exponents, scaled_deviations
from barograph_modeler.parts.growth import PowerLaw
from barograph_modeler.parts.maximum import Deviations, deviations_of, expected_slowest
from barograph_modeler.parts.measurement import PhaseRun, pooled_spread
from barograph_modeler.parts.work import WorkLaw

DRAWS: Final = 200
SPREAD_DRAWS: Final = 10
"""Draws of the differences between ranks, whose maximum is costly."""
MIN_RUNS: Final = 4
PARTS: Final = ("own work", "waiting for the slowest rank", "point-to-point", "collectives")
OTHER: Final = "other"
NEAREST: Final = 8
"""Runs of the nearest load whose deviations are pooled."""
LOCAL: Final = 2.0
"""Doublings of the load after which a run counts half for how deviations change with the work."""
UNSEEN: Final = 0.6
"""Where work is shorter than in any learned run, noise of the system may appear that the work's jitter hid: the excess
of the slowest rank grows by up to as many times as the work is shorter. Standard deviation of the exponent."""
MIN_LIKE: Final = 8
"""Ranks from which a run's deviations are used where there are such runs."""
WIDENED: Final = 1.25
"""Factor of the limits' distance from the median, from simulated scenarios of other seeds."""
MIN_FREEDOM: Final = 2.0
UNEXPLAINED: Final = 0.004
"""Standard deviation of log seconds that runs of one configuration have in any case."""


@dataclass(frozen=True)
class PhasesPrediction:
    """A distribution of the runtime. parts: median seconds of PARTS and OTHER, largest first."""

    expected_seconds: float
    lower_seconds: float
    upper_seconds: float
    parts: Mapping[str, float]

    @property
    def summary(self) -> str:
        """The part that decides, as text."""
        name, seconds = next(iter(self.parts.items()))
        return f"{100 * seconds / sum(self.parts.values()):.0f} % is {name}"


class _Phase:
    """The laws of one call-site class."""

    def __init__(self, runs: Sequence[PhaseRun], name: str, rng: np.random.Generator) -> None:
        rows = [run.phases[name] for run in runs]
        self._runs, self._rows = runs, rows
        ranks, nodes, sizes = (np.array([getattr(run, one) for run in runs]) for one in ("ranks", "nodes", "size"))
        self._loads = sizes / ranks
        column = {one: np.array([getattr(row, one) for row in rows]) for one in ("count", "own", "between", "within")}
        sent = {one: np.array([getattr(row, one) for row in rows]) for one in ("messages", "exchange_bytes")}
        self._count = PowerLaw(sizes, ranks, column["count"])
        self._own = WorkLaw(self._loads, ranks / nodes, column["own"])
        freedom = {"between": nodes - 1.0, "within": (ranks - nodes).astype(np.float64)}
        self._spreads = [pooled_spread(column[one], freedom[one]) for one in ("between", "within")]
        exchange = np.array([row.exchange for row in rows])
        exchange_all = exchange_terms(nodes.astype(float), sent["messages"], sent["exchange_bytes"])
        self._exchange = LinearLaw(exchange_all, exchange, DRAWS, rng)
        self._messages = float(sent["messages"].max())
        some = sent["messages"] == self._messages
        self._bytes = None
        if self._messages > 0 and (sent["exchange_bytes"][some] > 0).all():
            self._bytes = PowerLaw(self._loads[some], np.ones(some.sum()), sent["exchange_bytes"][some])
        together = np.array([row.collective_bytes for row in rows])
        terms = collective_terms(nodes.astype(float), ranks / nodes, together)
        self._collective = LinearLaw(terms, np.array([row.collective for row in rows]), DRAWS, rng)
        self._collective_bytes = float(np.median(together))

    def draw(self, ranks: int, nodes: int, size: float, rng: np.random.Generator) -> dict[str, Floats]:
        """Seconds of each of PARTS in a run, by draw: (DRAWS,) each."""
        load, per_node = size / ranks, ranks / nodes
        count = self._count.draw(size, ranks, DRAWS, rng)
        own = self._own.draw(load, per_node, DRAWS, rng)
        between, within = (_spread_draws(*spread, rng) for spread in self._spreads)
        nodes_column = np.array([float(nodes)])
        slowest, lasting = expected_slowest(
            self._near(load, float(np.median(own))), between, within, per_node, nodes_column
        )
        # Each draw of the spreads serves several draws of the other laws.
        excess = np.resize(slowest[:, 0] - 1, DRAWS) + np.resize(lasting[:, 0], DRAWS) * rng.standard_normal(DRAWS)
        shorter = max(float(min(row.own for row in self._rows) / np.median(own)), 1.0)
        excess = excess * shorter ** np.minimum(np.abs(UNSEEN * rng.standard_normal(DRAWS)), 1.0)
        sent = np.zeros(DRAWS) if self._bytes is None else self._bytes.draw(load, 1.0, DRAWS, rng)
        halo = exchange_terms(nodes_column, np.array([self._messages]), np.array([np.median(sent)]))[0]
        tree = collective_terms(nodes_column, np.array([per_node]), np.array([self._collective_bytes]))[0]
        exchange, collective = self._exchange.draw(halo, rng), self._collective.draw(tree, rng)
        seconds = own, own * np.maximum(excess, 0.0), exchange, collective
        return {part: count * one for part, one in zip(PARTS, seconds, strict=True)}

    def _near(self, load: float, own: float) -> Deviations:
        """Deviations at a load with `own` seconds of work, from runs of the nearest loads; few ranks have seen few."""
        many = [i for i, run in enumerate(self._runs) if run.ranks >= MIN_LIKE] or list(range(len(self._runs)))
        distance = np.abs(np.log2(self._loads[many] / load))
        rows = [self._rows[i] for i in many]
        body, tail = deviation_exponents(rows, 2.0 ** (-distance / LOCAL))
        nearest = np.argsort(distance, kind="stable")[:NEAREST]
        weights = [self._runs[many[i]].ranks * rows[i].count for i in nearest]
        values = [scaled_deviations(rows[i], own / rows[i].own, body, tail) for i in nearest]
        shares = [rows[i].shares * weight for i, weight in zip(nearest, weights, strict=True)]
        return deviations_of(np.concatenate(values), np.concatenate(shares))


class PhasesPredictor:
    """Runtimes of one program on one machine from the phases of its runs. seed: of the draws."""

    def __init__(self, runs: Sequence[PhaseRun], *, seed: int = 0) -> None:
        """runs: MIN_RUNS or more, with the same classes, at any ranks and sizes."""
        if len(runs) < MIN_RUNS:
            raise ValueError(f"{len(runs)} runs, expected at least {MIN_RUNS}")
        names = tuple(runs[0].phases)
        if odd := next((run for run in runs if set(run.phases) != set(names)), None):
            raise ValueError(f"a run has classes {', '.join(odd.phases)}, expected {', '.join(names)} as the first has")
        self._seed = seed
        rng = np.random.default_rng(seed)
        self._phases = [_Phase(runs, name, rng) for name in names]
        self._per_node = max(run.per_node for run in runs)
        sizes, ranks = (np.array([float(getattr(run, one)) for run in runs]) for one in ("size", "ranks"))
        self._other = LinearLaw(serial_terms(ranks, sizes), np.array([run.other for run in runs]), DRAWS, rng)

    def predict(self, ranks: int, size: float, *, nodes: int | None = None) -> PhasesPrediction:
        """The runtime on `ranks` ranks. nodes: as full as the fullest of the learned runs, if not given."""
        many = nodes if nodes is not None else max(1, round(ranks / self._per_node))
        rng = np.random.default_rng(self._seed)  # the same at all scales, so that curves are smooth
        drawn = [phase.draw(ranks, many, size, rng) for phase in self._phases]
        parts = {part: np.sum([one[part] for one in drawn], axis=0) for part in PARTS}
        parts[OTHER] = self._other.draw(serial_terms(np.array([float(ranks)]), np.array([size]))[0], rng)
        total = np.sum(list(parts.values()), axis=0) * np.exp(UNEXPLAINED * rng.standard_normal(DRAWS))
        logs = np.log(total)
        middle = float(np.median(logs))
        # Half the central 95 % of few draws is steadier as a multiple of the standard deviation.
        reach = WIDENED * 1.96 * float(logs.std())
        medians = sorted(((part, float(np.median(one))) for part, one in parts.items()), key=lambda item: -item[1])
        lower, upper = float(np.exp(middle - reach)), float(np.exp(middle + reach))
        return PhasesPrediction(float(np.exp(middle)), lower, upper, dict(medians))


def _spread_draws(spread: float, freedom: float, rng: np.random.Generator) -> Floats:
    """Draws of a standard deviation from its scaled inverse chi-square posterior: (SPREAD_DRAWS,)."""
    if not freedom:
        return np.zeros(SPREAD_DRAWS)
    wide = max(freedom, MIN_FREEDOM)
    return np.asarray(spread * np.sqrt(wide / rng.chisquare(wide, SPREAD_DRAWS)))
