"""Jobs whose nodes are compared in units of several kinds: long sync points, and iterations between them."""

from __future__ import annotations

from typing import Final, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph_alerts.attribution import cause as reasons
from barograph_alerts.attribution.cause import ALL, Cause, CoreWaits, Uncompared
from barograph_alerts.attribution.work import Unit, Work, WorkSpan
from barograph_alerts.detection.alarm import Alarm
from barograph_alerts.detection.evidence import Evidence
from barograph_alerts.detection.node_test import JobNodes
from barograph_alerts.job.monitor import JobMonitor
from barograph_alerts.job.verdict import sentence
from barograph_modeler.pace.windows import JobBlocks

ONSET: Final = 30
"""Spans of 2 s before n2 becomes slow."""
UNITS: Final[dict[Unit, float]] = {"sync point": 0.4, "iteration": 0.04}
"""Seconds per unit."""
FEW: Final = {"max_size": 5}


def watched(*units: Unit, spans: int, seed: int = 1) -> JobMonitor:
    """Monitor of a job on four nodes; from span ONSET on n2 works 1.5 times as long, and the others wait for it."""
    rng, monitor, at = np.random.default_rng(seed), JobMonitor(None, 0.01, 0.05, 0.0, nodes=JobNodes(4)), 0.0
    for i in range(spans):
        unit = units[i % len(units)]
        longest = 1.5 if i >= ONSET else 1.0
        pace = UNITS[unit] * longest
        count = int(2.0 / UNITS[unit])
        ends = at + pace * np.arange(1, count + 1)
        at = float(ends[-1])
        members = []
        for k in range(4):
            own = 0.9 * UNITS[unit] * (1.5 if i >= ONSET and k == 2 else 1.0) * rng.lognormal(0, 0.01)
            members.append(Work(f"n{k}", count, own * count, max(pace - own, 1e-6) * count, rank=k))
        monitor.add_work([WorkSpan(at, tuple(members), unit)])
        # The log has single intervals of long sync points only.
        monitor.add(JobBlocks(np.full(count, 7, np.uint64), np.full(count, pace), ends), np.full(count, pace))
        monitor.step()
    return monitor


@pytest.mark.parametrize("spans", range(ONSET + 3, ONSET + 9))
def test_a_node_that_is_found_within_few_sync_points_is_named(spans: int) -> None:
    """Its alarm comes after three spans of five sync points, fewer than attribution compares."""
    monitor = watched("sync point", spans=spans)
    if monitor.evidence.open is None:
        assert spans < ONSET + 5
        return
    assert (monitor.cause.kind, monitor.cause.members) == ("straggler", ("n2",))
    assert monitor.cause.numbers["own"] == pytest.approx(0.18, rel=0.15)
    text = sentence(monitor.evidence, "lab/app", monitor.cause, unit="sync point")
    assert ": n2 worked 1" in text
    assert " ms longer per sync point, the others waited" in text


def test_times_of_sync_points_and_of_iterations_are_not_averaged() -> None:
    """Iterations come more often after the onset: their mean with sync points would fall, though both take longer."""
    monitor = watched("sync point", "iteration", "iteration", spans=ONSET + 20)
    assert [(alarm.kind, alarm.ended_at) for alarm in monitor.evidence.alarms] == [("slow", None)]
    assert (monitor.cause.kind, monitor.cause.members) == ("straggler", ("n2",))
    expected = {"sync point": 0.18, "iteration": 0.018}
    assert monitor.cause.unit is not None
    assert monitor.cause.numbers["own"] == pytest.approx(expected[monitor.cause.unit], rel=0.15)


causes = st.builds(
    Cause,
    reason=st.one_of(*(st.from_type(one) for one in get_args(reasons.Reason))),
    members=st.one_of(st.just(ALL), st.lists(st.text("n123", min_size=1, **FEW), **FEW).map(tuple)),
    unit=st.sampled_from(["sync point", "iteration", None]),
    uncompared=st.none() | st.builds(Uncompared, st.integers(0, 9), st.integers(0, 9)),
    cores=st.none() | st.builds(CoreWaits, st.floats(0, 1), st.floats(0, 1), st.integers(0, 9)),
    silent=st.lists(st.just("n1"), max_size=2).map(tuple),
)


@given(causes, st.sampled_from(["slow", "stalled"]), st.booleans())
def test_every_reason_has_a_sentence_and_figures(cause: Cause, kind: str, excused: bool) -> None:
    evidence = Evidence(None)
    alarm = Alarm(kind, "its own first windows", 1000.0, 1030.0, 1.5, 1.2)  # type: ignore[arg-type]
    evidence.excused, evidence.alarms = (alarm, []) if excused else (None, [alarm])
    text = sentence(evidence, "lab/app", cause)
    assert text.startswith("inconclusive: " if excused else f"{kind}: ")
    assert all(name.isidentifier() and np.isfinite(value) for name, value in cause.numbers.items())
