"""The cost of a prediction with 10,000 known workloads, that of a finished run, and memory of many sets of parameters.

Asserted times are CPU time of this thread, which does not depend on the load of the machine; wall-clock times are
printed only.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import time
import urllib.request

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from barograph_collector.daemon.service import serve_metrics
from barograph_lab.bench.measured_collector import Usage
from barograph_lab.studies.rivals.extrap import search
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.history import Application, WorkloadPlace
from barograph_modeler.forecasts.library import PredictorLibrary
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import fit
from barograph_modeler.serving.page import PredictPage
from helpers.executor import Inline
from helpers.features import inline_features
from helpers.printed import show
from helpers.scaling import law

APPLICATIONS, PROBLEMS, SCALES = 100, 10, 10
QUESTIONS = 2_000
SETS = 250
BYTES_OF_SETS = 40e6


def full() -> Forecaster:
    """A forecaster with APPLICATIONS x PROBLEMS x SCALES workloads of one run each."""
    forecaster, rng = Forecaster(PredictorLibrary(Inline())), np.random.default_rng(1)
    for number in range(APPLICATIONS):
        application = Application("lab", f"app{number}")
        for n in range(1, PROBLEMS + 1):
            for ranks in 2 ** np.arange(SCALES):
                place = WorkloadPlace(f"{application}@{ranks}x1:{n}", application, (("n", str(n)),), int(ranks), 1)
                forecaster.history.learn(place, law(ranks, n) * float(rng.lognormal(0, 0.02)))
    forecaster.restore(forecaster.state())  # as after a restart, when everything must be fitted
    while forecaster.library.waiting:
        forecaster.step(0.0)
    return forecaster


def quantiles(seconds: list[float]) -> tuple[float, float]:
    """Median and 99th percentile in milliseconds."""
    return float(1000 * np.median(seconds)), float(1000 * np.quantile(seconds, 0.99))


def test_a_question_takes_less_than_20_milliseconds_with_10_000_workloads() -> None:
    began = time.thread_time()
    forecaster = full()
    learned = time.thread_time() - began
    page, rng = PredictPage(forecaster, inline_features()), np.random.default_rng(2)
    asked = [
        f"app=app{rng.integers(APPLICATIONS)}&param.n={rng.integers(1, PROBLEMS + 1)}&ranks={rng.integers(1, 5000)}"
        for _ in range(QUESTIONS)
    ]
    cpu, wall = [], []
    for query in asked:
        start = time.thread_time()
        body = b"".join(page({"REQUEST_METHOD": "GET", "QUERY_STRING": query}, lambda *_: None))  # type: ignore[arg-type,return-value]
        cpu.append(time.thread_time() - start)
        assert json.loads(body)["refusal"] is None
    served = serve_metrics(CollectorRegistry(), "127.0.0.1", 0, {"/predict": page})
    host, port = served.address
    for query in asked:
        start = time.perf_counter()
        urllib.request.urlopen(f"http://{host}:{port}/predict?{query}").read()
        wall.append(time.perf_counter() - start)
    served.stop()
    show(
        f"{APPLICATIONS * PROBLEMS * SCALES:,} workloads of {APPLICATIONS} applications, {QUESTIONS:,} questions",
        [
            f"learning all of it   {learned:8.2f} s of CPU time",
            "a question, CPU      {:8.2f} ms median, {:.2f} ms p99".format(*quantiles(cpu)),
            "over HTTP, wall      {:8.2f} ms median, {:.2f} ms p99".format(*quantiles(wall)),
        ],
    )
    assert quantiles(cpu)[1] < 20


def test_a_finished_run_updates_an_application_of_1_000_runs_in_less_than_a_second() -> None:
    rng = np.random.default_rng(3)
    problems = {}
    for n in range(1, 11):
        ranks = np.repeat(2.0 ** np.arange(10), 10)
        seconds = np.array([law(one, n) for one in ranks]) * rng.lognormal(0, 0.02, ranks.size)
        problems[f"lab/app n={n}"] = Runs.of(ranks, seconds)
    start, began = time.thread_time(), time.perf_counter()
    fit(problems)
    cpu, wall = time.thread_time() - start, time.perf_counter() - began
    show(
        "1,000 runs: 10 problems, 10 scales, 10 repeats",
        [f"barograph, in all    {cpu:8.2f} s of CPU time, {wall:.2f} s"],
    )
    if importlib.util.find_spec("extrap") is None:
        print("Extra-P              not installed: pip install 'barograph[rivals]'")
    else:
        start = time.thread_time()
        for runs in problems.values():
            search(runs)
        print(f"Extra-P, each alone  {time.thread_time() - start:8.2f} s of CPU time")
    assert cpu < 1


@pytest.mark.parametrize("name", ["input", "n"])
def test_memory_of_many_sets_of_parameters(name: str) -> None:
    """Words, each a problem of its own, and numbers, which are sizes of one problem."""
    forecaster, rng = Forecaster(PredictorLibrary(Inline())), np.random.default_rng(4)
    application = Application("lab", "study")
    for n in range(SETS):
        params = ((name, f"case{n}" if name == "input" else str(100 + n)),)
        for ranks in (4, 8, 16, 32):
            for _ in range(2):
                place = WorkloadPlace(f"{n}@{ranks}", application, params, ranks, 1)
                forecaster.history.learn(place, law(ranks, 1 + n / 10) * float(rng.lognormal(0, 0.02)))
    gc.collect()
    before = Usage.of_this_process().resident_bytes
    forecaster.restore(forecaster.state())
    while forecaster.library.waiting:
        forecaster.step(0.0)
    place = forecaster.library.published[application]
    place.predict(place.space.locate(dict(params)), 64, None)
    gc.collect()
    more = Usage.of_this_process().resident_bytes - before
    show(f"{SETS} values of {name} on four numbers of ranks", [f"memory               {more / 1e6:8.1f} MB more"])
    assert more < BYTES_OF_SETS
