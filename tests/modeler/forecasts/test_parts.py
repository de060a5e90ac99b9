"""What the time of runs consists of: from rows of the log to the answer of `predict`."""

from __future__ import annotations

import re
from html import unescape
from itertools import pairwise

import numpy as np
import pytest

from barograph.charts.figure import BOTTOM, TOP
from barograph.charts.page import plot
from barograph.charts.parts import parts_chart
from barograph.views.advice import sentences
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.history import Application, WorkloadPlace
from barograph_modeler.forecasts.library import PredictorLibrary
from barograph_modeler.forecasts.parts.history import MAX_OPEN, MAX_RUNS, PartsHistory
from barograph_modeler.learning.learner import Learner
from barograph_modeler.processor import ModelerProcessor
from barograph_modeler.serving.answer import answer
from barograph_modeler.serving.question import Question
from helpers.executor import Inline
from helpers.features import inline_features
from helpers.phases import PhasedProgram, node_rows, observe_run
from helpers.scaling import Campaign

APP = Application("lab", "solver")


def place(ranks: int, nodes: int = 1) -> WorkloadPlace:
    return WorkloadPlace(f"lab/solver@{ranks}x{nodes}", APP, (), ranks, nodes)


def work(intervals: int, ranks: int, seed: int = 0) -> np.ndarray:
    """Own work of 10 ms with 5 % jitter, of which the ranks differ by 10 %."""
    rng = np.random.default_rng(seed)
    lasting = 1 + 0.1 * rng.standard_normal(ranks)
    return 0.01 * (lasting + 0.05 * rng.standard_normal((intervals, ranks)))


def test_rows_of_nodes_are_one_run_in_whatever_order_they_and_the_end_arrive():
    own = work(400, 8)
    rows = [node_rows("j", f"n{i}", own[:, 4 * i : 4 * i + 4], exchange=0.001, collective=2e-4) for i in range(2)]
    found = []
    for order in (["a", "b", "end"], ["b", "end", "a"], ["end", "a", "b"]):
        history = PartsHistory()
        done = set()
        for step in order:
            if step == "end":
                history.end("j", place(8, 2), 10.0)
            else:
                done |= history.read(rows["ab".index(step)])
        assert done == (set() if order[-1] == "end" else {place(8, 2)})
        (run,) = history.of([(place(8, 2), None)])[place(8, 2)]
        found.append(run)
    assert found[0].classes == found[1].classes == found[2].classes
    for run in found:
        assert (run.ranks, run.nodes, run.seconds) == (8, 2, 10.0)
        (phase,) = run.phases().values()
        assert phase.count == 400
        assert phase.own == pytest.approx(own.mean(), rel=1e-4)
        means = own.mean(axis=0).reshape(2, 4)
        assert phase.within == pytest.approx(np.sqrt(means.var(axis=1, ddof=1).mean()) / own.mean(), rel=0.01)
        assert phase.exchange == pytest.approx(0.001, rel=1e-3)
        # What is the later of both nodes is waiting, and no time of the collective.
        assert 0 <= phase.collective < 2e-4
        slowest = max(own[:, :4].max(1).mean(), own[:, 4:].max(1).mean())
        assert phase.slowest + phase.collective == pytest.approx(slowest + 2e-4, rel=1e-4)
        assert phase.shares @ phase.deviations**2 == pytest.approx((0.05 * 0.01 / own.mean()) ** 2, rel=0.1)


def test_nodes_that_differ_are_told_from_ranks_that_differ():
    rng = np.random.default_rng(4)
    speeds = 1 + 0.1 * rng.standard_normal(40)
    history = PartsHistory()
    for number, speed in enumerate(speeds):
        own = 0.01 * speed * (1 + 0.02 * rng.standard_normal((1, 4)) + 0.1 * rng.standard_normal((300, 4)))
        history.read(node_rows("j", f"n{number}", own))
    history.end("j", place(160, 40), 10.0)
    (run,) = history.of([(place(160, 40), None)])[place(160, 40)]
    (phase,) = run.phases().values()
    assert phase.between == pytest.approx(speeds.std(ddof=1), rel=0.05)
    assert phase.within == pytest.approx(0.02, rel=0.25)


@pytest.mark.parametrize(
    ("ranks", "seconds"), [(8, 10.0), (4, 1.0), (4, float("nan"))], ids=["a node is missing", "too long", "no runtime"]
)
def test_rows_that_contradict_the_run_are_not_learned(ranks, seconds):
    history = PartsHistory()
    history.read(node_rows("j", "n1", work(400, 4)))
    history.end("j", place(ranks), seconds)
    assert history.of([(place(ranks), None)]) == {}


def test_unreadable_distributions_leave_the_other_numbers():
    history, rows = PartsHistory(), node_rows("j", "n1", work(400, 4))
    history.read(rows | {"deviations": ["[1e308, NaN"], "shares": ["[-1, 2]"]})
    history.end("j", place(4), 10.0)
    (run,) = history.of([(place(4), None)])[place(4)]
    (phase,) = run.phases().values()
    assert phase.deviations.tolist() == [0.0]
    assert phase.own == pytest.approx(0.01, rel=0.2)


def test_a_run_that_was_not_healthy_leaves_nothing_and_old_runs_are_dropped():
    history = PartsHistory()
    for number in range(MAX_RUNS + 3):
        history.read(node_rows(f"j{number}", "n1", work(400, 4)))
        history.end(f"j{number}", place(4) if number else None, 10.0 + number)
    kept = history.of([(place(4), None)])[place(4)]
    assert [run.seconds for run in kept] == [10.0 + number for number in range(3, MAX_RUNS + 3)]
    other = PartsHistory()
    other.restore(history.state())
    assert [run.seconds for run in other.of([(place(4), None)])[place(4)]] == [run.seconds for run in kept]


def test_jobs_that_never_end_are_forgotten():
    history, rows = PartsHistory(), node_rows("j", "n1", work(400, 4))
    for number in range(MAX_OPEN + 1):
        history.read(rows | {"job": [f"j{number}"]})
    for number in (0, 1):
        history.end(f"j{number}", place(4), 10.0)
    assert len(history.of([(place(4), None)])[place(4)]) == 1


def learned(program: PhasedProgram, scales: tuple[int, ...] = (1, 2, 4, 8, 16, 32), *, with_rows: bool = True):
    """What the service has published after two runs at each scale."""
    return modeler(Inline(), program, scales, with_rows=with_rows).forecaster.library.published[APP]


def modeler(executor, program: PhasedProgram, scales=(1, 2, 4, 8, 16, 32), *, with_rows: bool = True):
    processor = ModelerProcessor(
        Learner(), Forecaster(PredictorLibrary(executor, worked=lambda: 0.0)), inline_features()
    )
    for number, ranks in enumerate([ranks for ranks in scales for _ in range(2)]):
        observe_run(processor, number + 1, ranks, program.run(ranks), {}, with_rows=with_rows)
    processor.step(0.0)
    return processor


def test_the_answer_names_the_parts_of_the_predicted_time():
    said = answer(learned(PhasedProgram()), Question("solver", 128))
    parts = said["parts"]
    assert sum(parts.values()) == pytest.approx(said["expected_seconds"])
    measured = answer(learned(PhasedProgram()), Question("solver", 32))
    shares = {name: seconds / measured["expected_seconds"] for name, seconds in measured["parts"].items()}
    assert parts == pytest.approx({name: share * said["expected_seconds"] for name, share in shares.items()})
    assert shares["own work"] * measured["expected_seconds"] == pytest.approx(200 * 0.8 / 32, rel=0.1)
    assert measured["parts"]["start-up, end and what was not measured"] == pytest.approx(3.0, rel=0.2)
    line = next(line for line in sentences(said) if line.startswith("It consists of"))
    assert "waiting for the slowest rank" in line
    assert "point-to-point" not in line  # the program has none


def test_the_plot_has_the_shares_of_the_parts_over_ranks(tmp_path):
    drawn = tmp_path / "parts.html"
    said = answer(learned(PhasedProgram()), Question("solver", 128, curve=True))
    assert [ranks for ranks, _ in said["parts_curve"]] == [1, 2, 4, 8, 16, 32, 64, 128]
    shares = [parts["own work"] / sum(parts.values()) for _, parts in said["parts_curve"]]
    assert shares == pytest.approx(sorted(shares, reverse=True))
    plot(said, drawn)
    text = drawn.read_text()
    assert text.count("<svg") == 2
    assert str(parts_chart(said).chart) in text
    assert [unescape(line) for line in re.findall("<p>(.*?)</p>", text)] == sentences(said)
    keys = re.findall(r'<i class="swatch \w+"></i>(.*?)</li>', text)
    assert keys[:5] == ["run", "expected", "95 % of runs", "128 ranks", "largest scale run, ideal speedup"]
    assert keys[5:] == [
        "own work",
        "waiting for the slowest rank",
        "collectives",
        "start-up, end and what was not measured",
    ]
    assert not re.findall(r"(?:src|href)=", text)


def test_the_chart_of_the_page_stacks_the_parts_up_to_the_whole():
    said = answer(learned(PhasedProgram()), Question("solver", 128, curve=True))
    found = parts_chart(said)
    assert found is not None
    polygons = re.findall(r'<polygon class="(\w+)" points="([^"]+)"', found.chart)
    assert [kind for kind, _ in polygons] == ["own", "waiting", "exchange", "collective", "rest"]
    edges = [[[float(one) for one in point.split(",")] for point in points.split()] for _, points in polygons]
    assert edges[0][-1][1] == BOTTOM  # of the lowest part: the last point is the lower left one
    assert edges[-1][0][1] == TOP
    for below, above in pairwise(edges):
        assert below[: len(below) // 2] == above[: len(above) // 2 - 1 : -1]
    assert "start-up, end and what was not measured" in found.key
    assert parts_chart(said | {"parts_curve": said["parts_curve"][:1]}) is None


def test_parts_are_those_of_the_nearest_measured_scale():
    known = learned(PhasedProgram(), (2, 16))
    near, far = (answer(known, Question("solver", ranks)) for ranks in (4, 64))
    shares = [said["parts"]["own work"] / said["expected_seconds"] for said in (near, far)]
    assert shares[0] > 1.3 * shares[1]


def test_without_rows_of_nodes_there_are_no_parts():
    forecaster, campaign = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0)), Campaign()
    processor = ModelerProcessor(Learner(), forecaster, inline_features())
    for ranks in (2, 4, 8):
        for table, columns in campaign.run(ranks).items():
            processor.observe(table, columns, 0.0)
    processor.step(0.0)
    processor.step(0.0)
    assert answer(forecaster.library.published[APP], Question("solver", 16, params={"n": "1"}))["parts"] is None
