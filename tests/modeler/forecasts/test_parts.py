"""What the time of runs consists of: from rows of the log to the answer of `predict`."""

from __future__ import annotations

import numpy as np
import pytest

from barograph.views.advice import sentences
from barograph.views.projection import plot
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.history import Application, WorkloadPlace
from barograph_modeler.forecasts.library import PredictorLibrary
from barograph_modeler.forecasts.parts.history import MAX_RUNS, PARTS, PartsHistory, RunParts
from barograph_modeler.learning.learner import Learner
from barograph_modeler.processor import ModelerProcessor
from barograph_modeler.serving.answer import answer
from barograph_modeler.serving.question import Question
from helpers.executor import Inline
from helpers.features import inline_features
from helpers.scaling import Campaign, law

APP = Application("lab", "solver")


def node_blocks(job: str, own: float, p2p: float, wait: float, nodes: int = 1) -> dict:
    """Rows with these sums over all ranks, spread evenly over nodes and four ranges."""
    rows, share = 4 * nodes, 1 / (4 * nodes)
    return {
        "job": [job] * rows,
        "own_seconds": np.full(rows, own * share),
        "p2p_seconds": np.full(rows, p2p * share),
        "wait_seconds": np.full(rows, wait * share),
    }


def place(ranks: int) -> WorkloadPlace:
    return WorkloadPlace(f"lab/solver@{ranks}x1", APP, (), ranks, 1)


def test_sums_of_nodes_and_ranges_become_means_over_ranks():
    history = PartsHistory()
    history.read(node_blocks("j", 80.0, 8.0, 4.0, nodes=2))
    history.read(node_blocks("other", 1.0, 1.0, 1.0))
    history.end("j", place(4), 30.0)
    assert history.of([(place(4), None), (place(8), None)]) == {
        place(4): [RunParts(30.0, pytest.approx((20.0, 2.0, 1.0)))]
    }


@pytest.mark.parametrize(
    ("parts", "seconds", "known"),
    [((80.0, 8.0, 4.0), 22.0, False), ((80.0, 8.0, 4.0), None, False), ((-1e9, 8.0, 4.0), 30.0, True)],
    ids=["more than the runtime", "no runtime", "negative own work"],
)
def test_contradictory_rows_are_not_learned(parts, seconds, known):
    history = PartsHistory()
    history.read(node_blocks("j", *parts))
    history.end("j", place(4), seconds)
    assert bool(history.of([(place(4), None)])) is known


def test_a_run_that_was_not_healthy_leaves_nothing_and_old_runs_are_dropped():
    history = PartsHistory()
    for number in range(MAX_RUNS + 3):
        history.read(node_blocks(f"j{number}", 4.0, 0.0, 0.0))
        history.end(f"j{number}", place(4) if number else None, 10.0 + number)
    kept = history.of([(place(4), None)])[place(4)]
    assert [run.seconds for run in kept] == [10.0 + number for number in range(3, MAX_RUNS + 3)]
    other = PartsHistory()
    other.restore(history.state())
    assert other.of([(place(4), None)]) == {place(4): kept}


def learned() -> Forecaster:
    """One that has learned runs whose own work is divided, and whose collectives grow with the logarithm."""
    forecaster, campaign = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0)), Campaign(noise=0.002)
    processor = ModelerProcessor(Learner(), forecaster, inline_features())
    for ranks in (2, 4, 8, 16, 32):
        columns = campaign.run(ranks)
        job = columns["jobs"]["job"][0]
        processor.observe("jobs", columns["jobs"], 0.0)
        processor.observe("node_blocks", node_blocks(job, 400.0, 0.2 * ranks, 0.5 * ranks * np.log2(ranks)), 0.0)
        processor.observe("runs", columns["runs"], 0.0)
    processor.step(0.0)
    processor.step(0.0)
    return forecaster


def test_the_answer_names_the_parts_of_the_predicted_time():
    said = answer(learned().library.published[APP], Question("solver", 128, params={"n": "1"}))
    parts = said["parts"]
    assert sum(parts.values()) == pytest.approx(said["expected_seconds"])
    own, wait = PARTS["own_seconds"], PARTS["wait_seconds"]
    assert parts[own] / said["expected_seconds"] == pytest.approx(400 / 128 / law(128), rel=0.25)
    assert parts[wait] / said["expected_seconds"] == pytest.approx(0.5 * 7 / law(128), rel=0.35)
    line = next(line for line in sentences(said) if line.startswith("It consists of"))
    assert own in line
    assert wait in line


def test_the_plot_has_the_shares_of_the_parts_over_ranks(tmp_path):
    drawn = tmp_path / "parts.png"
    said = answer(learned().library.published[APP], Question("solver", 128, params={"n": "1"}, curve=True))
    assert [ranks for ranks, _ in said["parts_curve"]] == [2, 4, 8, 16, 32, 64, 128]
    shares = [parts[PARTS["wait_seconds"]] / sum(parts.values()) for _, parts in said["parts_curve"]]
    assert shares == sorted(shares)
    plot(said, drawn)
    assert drawn.stat().st_size > 10_000


def test_without_rows_of_nodes_there_are_no_parts():
    forecaster, campaign = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0)), Campaign()
    processor = ModelerProcessor(Learner(), forecaster, inline_features())
    for ranks in (2, 4, 8):
        for table, columns in campaign.run(ranks).items():
            processor.observe(table, columns, 0.0)
    processor.step(0.0)
    processor.step(0.0)
    assert answer(forecaster.library.published[APP], Question("solver", 16, params={"n": "1"}))["parts"] is None
