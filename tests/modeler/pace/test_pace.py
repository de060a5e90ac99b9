import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_agent.protocol.tables import TEXT_LIMIT
from barograph_agent.reduce.blocks import Intervals, reduce
from barograph_alerts.detection.tolerance import tolerance
from barograph_modeler.pace.pace import Pace, fit_pace
from barograph_modeler.pace.progress import fit_progress
from barograph_modeler.pace.timeline import Timeline
from barograph_modeler.pace.windows import RunPace, Window, Windower

durations = st.lists(
    st.tuples(st.integers(0, 3) | st.just(2**64 - 1), st.floats(0, 3) | st.just(0.1)), min_size=1, max_size=60
)


def intervals(rows):
    seconds = np.array([s for _, s in rows])
    return np.array([c for c, _ in rows], dtype=np.uint64), seconds, 1000.0 + np.cumsum(seconds)


def run_of(windows, window_seconds=1.0):
    run = RunPace(window_seconds)
    run.add(windows)
    return run


def steady(factor, windows=10, classes=(1, 2)):
    """A run whose classes take `factor` times 10 ms and 20 ms, 30 intervals of each to a window."""
    means = {c: 0.01 * (i + 1) * factor for i, c in enumerate(classes)}
    return run_of(
        Window(dict.fromkeys(means, 30), {c: 30 * m for c, m in means.items()}, float(i), i + 0.9)
        for i in range(windows)
    )


@settings(deadline=None)
@given(durations, st.lists(st.integers(0, 60), max_size=8).map(sorted))
def test_windows_are_the_same_however_intervals_arrive(rows, at):
    columns = intervals(rows)
    whole = Windower().add(*columns)
    pieces, single = Windower(), Windower()
    cut = [w for part in zip(*(np.split(c, at) for c in columns), strict=True) for w in pieces.add(*part)]
    one_by_one = [w for i in range(len(rows)) for w in single.add(*(c[i : i + 1] for c in columns))]
    assert whole == cut == one_by_one
    assert sum(sum(w.counts.values()) for w in whole) <= len(rows)
    assert all(w.actual_seconds >= 1 - 1e-9 for w in whole)


def test_a_window_closes_with_the_interval_that_fills_it():
    class_ids, seconds, ended_at = intervals([(1, 0.5), (2, 0.25), (1, 0.5), (2, 3.0), (1, 0.75)])
    assert Windower().add(class_ids, seconds, ended_at) == [
        Window({1: 2, 2: 1}, {1: 1.0, 2: 0.25}, 1000.0, 1001.25),
        Window({2: 1}, {2: 3.0}, 1001.25, 1004.25),
    ]


def test_bad_intervals_are_refused_and_none_of_the_batch_is_taken():
    windower = Windower()
    with pytest.raises(ValueError, match=r"^duration 1 is -1.0 seconds, expected a finite number of at least 0$"):
        windower.add(*intervals([(1, 0.9), (1, -1.0)]))
    with pytest.raises(ValueError, match=r"^got 2 class ids, 1 durations and 2 times, expected as many of each$"):
        windower.add(np.ones(2, dtype=np.uint64), np.ones(1), np.ones(2))
    assert windower.add(*intervals([(1, 0.9)])) == []
    with pytest.raises(ValueError, match=r"^window length is 0 seconds, expected a finite number above 0$"):
        Windower(0)


def test_a_long_run_keeps_evenly_spread_windows_and_the_sums_of_all():
    run = run_of(Window({7: 1}, {7: 2.0}, float(i), i + 1.0) for i in range(5000))
    starts = np.array([w.started_at for w in run.windows])
    assert 256 <= starts.size <= 512
    assert set(np.diff(starts)) == {16.0}
    assert run.counts == {7: 5000}
    assert run.seconds == {7: 10_000.0}


def test_spread_is_the_deviation_between_runs_and_residuals_are_within_them():
    factors = np.exp([-0.03, 0.0, 0.03, 0.01])
    pace = fit_pace([steady(f) for f in factors])
    assert (pace.runs, pace.windows) == (4, 40)
    assert pace.spread == pytest.approx(np.log(factors).std(ddof=1), rel=0.02)
    assert pace.residuals == pytest.approx(np.zeros(40), abs=2e-7)
    assert pace.means == pytest.approx({1: 0.01 * factors.mean(), 2: 0.02 * factors.mean()})


def test_spread_and_residuals_of_random_runs_are_those_they_were_drawn_with():
    rng = np.random.default_rng(11)
    runs = []
    for effect in rng.normal(0, 0.02, 200):
        times = np.exp(effect + rng.normal(0, 0.03, 30))
        runs.append(run_of(Window({1: 100}, {1: float(t)}, 0.0, 1.0) for t in times))
    pace = fit_pace(runs)
    # The mean of 30 windows adds its own error to the effect of a run.
    assert pace.spread == pytest.approx(math.hypot(0.02, 0.03 / math.sqrt(30)), rel=0.12)
    assert pace.residuals.std() == pytest.approx(0.03, rel=0.05)
    assert pace.residuals.size == 512
    assert (np.diff(pace.residuals) >= 0).all()


def test_a_run_is_judged_by_the_others_alone():
    # Against a mean that includes itself the slow run would look 1.5 / 1.125 times slower; against the others, 1.5.
    pace = fit_pace([steady(1.0), steady(1.0), steady(1.0), steady(1.5)])
    others = math.log(1 / (3.5 / 3))
    rms = math.sqrt((3 * others**2 + math.log(1.5) ** 2) / 3)
    assert pace.spread == pytest.approx(3 / 4 * rms)


def test_classes_that_no_other_run_has_are_left_out_on_both_sides():
    plain = fit_pace([steady(1.0), steady(1.0), steady(1.0)])
    odd = steady(1.0)
    odd.add([Window({99: 1}, {99: 0.5}, 10.0, 10.5), Window({1: 10, 99: 1}, {1: 0.1, 99: 0.05}, 11.0, 12.0)])
    mixed = fit_pace([steady(1.0), steady(1.0), odd])
    assert mixed.spread == pytest.approx(plain.spread, abs=1e-12)
    assert mixed.residuals == pytest.approx(np.zeros(31), abs=2e-7)
    assert mixed.means[99] == pytest.approx(0.275)


def test_runs_with_nothing_in_common_count_as_one():
    unrelated = fit_pace([steady(1.0, classes=(i,)) for i in range(5)])
    assert (unrelated.runs, unrelated.residuals.size) == (1, 0)
    assert math.isnan(unrelated.spread)
    assert fit_pace([RunPace(), RunPace()]).runs == 0


def test_runs_cut_differently_are_not_mixed():
    with pytest.raises(ValueError, match=r"^window lengths of 2 runs are \[1.0, 2.0\], expected one length for all$"):
        fit_pace([RunPace(1.0), RunPace(2.0)])


def test_a_healthy_next_run_exceeds_the_tolerance_as_seldom_as_alpha_says():
    rng = np.random.default_rng(2)
    exceeded = 0
    for _ in range(2000):
        *past, following = rng.normal(0, 0.03, 6)
        pace = fit_pace([steady(math.exp(e), windows=1, classes=(1,)) for e in past])
        [window] = steady(math.exp(following), windows=1, classes=(1,)).windows
        exceeded += pace.log_ratio(window).log > tolerance(pace, 0.0, 0.1)
    # Standard error 0.0067.
    assert exceeded / 2000 == pytest.approx(0.1, abs=0.02)


def test_a_window_is_compared_over_the_classes_that_are_known():
    pace = Pace(3, 30, 1.0, 0.01, {1: 0.01, 2: 0.02}, np.zeros(0))
    ratio = pace.log_ratio(Window({1: 10, 3: 4}, {1: 0.2, 3: 0.6}, 0.0, 0.8))
    assert ratio == pytest.approx((math.log(2), 0.25, 0.2, 0.1))
    unknown = pace.log_ratio(Window({3: 4}, {3: 0.6}, 0.0, 0.8))
    assert math.isnan(unknown.log)
    assert unknown.share == 0


def test_a_mean_of_little_data_holds_for_few_intervals():
    usual = [Window({1: 90}, {1: 0.9}, float(i), i + 0.9) for i in range(30)]
    rare = Window({2: 40}, {2: 0.4}, 30.0, 30.4)
    pace = fit_pace([run_of([*usual, rare])])
    assert pace.limits == {2: 80}
    assert pace.log_ratio(Window({2: 80}, {2: 1.6}, 0.0, 1.6)).log == pytest.approx(math.log(2))
    assert pace.log_ratio(Window({1: 10, 2: 81}, {1: 0.1, 2: 1.6}, 0.0, 1.7)).actual_seconds == pytest.approx(0.1)


def test_runs_that_are_long_in_what_others_are_short_in_are_compared_in_the_rest():
    """A class takes twice as long in the run that has next to nothing of it."""
    usual = [Window({1: 90}, {1: 0.9}, float(i), i + 0.9) for i in range(30)]
    rare, often = ([Window({2: n}, {2: n * s}, 30.0, 30.0 + n * s)] for n, s in ((20, 0.02), (2000, 0.01)))
    pace = fit_pace([run_of([*usual, *rare]), run_of([*usual, *often])])
    assert pace.spread == pytest.approx(0.0, abs=0.005)
    assert pace.limits == {}


@pytest.mark.parametrize("runs", [1, 5])
def test_a_pace_survives_the_way_through_its_columns(runs):
    rng = np.random.default_rng(runs)
    timelines = []
    for _ in range(runs):
        timeline = Timeline()
        windows = [Window({2**64 - 1: 20}, {2**64 - 1: 0.5}, float(i), i + rng.uniform(0.5, 0.9)) for i in range(30)]
        timeline.add(windows)
        timelines.append(timeline)
    several = [steady(rng.uniform(0.9, 1.1), classes=(2**64 - 1, 5)) for _ in range(runs)]
    pace = replace(fit_pace(several), progress=fit_progress(timelines))
    columns = pace.columns()
    read = Pace.from_row(columns)
    assert read.columns() | {"spread": str(read.spread)} == columns | {"spread": str(pace.spread)}
    assert read.means == pytest.approx(pace.means, rel=1e-8)
    assert read.residuals == pytest.approx(pace.residuals, rel=1e-5)
    assert set(json.loads(columns["means"])) == {"5", "18446744073709551615"}


def test_limits_of_rare_classes_are_in_the_columns():
    few = fit_pace([steady(1.0, windows=1, classes=(2**64 - 1, 5))])
    assert Pace.from_row(few.columns()).limits == few.limits == {5: 60, 2**64 - 1: 60}


def test_texts_of_a_program_with_very_many_classes_fit_the_log_and_keep_the_longest():
    big = 2**64
    windows = [Window({big - i: 1}, {big - i: 1 + i / 7}, 0.0, 1.0) for i in range(1, 3000)]
    pace = fit_pace([run_of(windows) for _ in range(3)])
    assert max(len(pace.columns()[name]) for name in ("means", "residuals")) < TEXT_LIMIT
    assert big - 2999 in pace.means
    assert big - 1 not in pace.means


BAD = {
    "means": ["", "[1]", '{"a": 1}', '{"1": null}', '{"1": -1}', '{"1": NaN}'],
    "limits": ["[1]", '{"a": 1}', '{"1": -1}', '{"1": 0.5}'],
    "residuals": ["", "{}", "[[1]]", '["x"]', "[NaN]", "3"],
}


@pytest.mark.parametrize(("column", "text"), [(column, text) for column, texts in BAD.items() for text in texts])
def test_columns_that_are_no_pace_are_refused(column, text):
    row = fit_pace([steady(1.0)]).columns() | {column: text}
    with pytest.raises(ValueError, match=f"^{column} are "):
        Pace.from_row(row)


def test_blocks_of_many_intervals_count_as_what_they_stand_for() -> None:
    rng = np.random.default_rng(5)
    raw = Intervals(
        rng.integers(1, 4, 900).astype(np.uint64), np.arange(900), rng.uniform(0, 1e-3, 900), np.arange(900.0)
    )
    blocks = reduce(raw, 30)
    whole, pieces = RunPace(), RunPace()
    whole.add(Windower(1e-9).add(raw.class_ids, raw.seconds, raw.ended_at))
    counts = blocks["count"]
    pieces.add(Windower(1e-9).add(blocks["class_id"], blocks["sum_seconds"] / counts, blocks["ended_at"], counts))
    assert pieces.counts == whole.counts
    assert pieces.seconds == pytest.approx(whole.seconds)


def with_residuals(values, runs=3):
    return Pace(runs, len(values), 1.0, 0.01, {}, np.sort(values))


NOISE = {
    "normal": lambda rng, size: rng.normal(0, 0.5, size),
    "Laplace": lambda rng, size: rng.laplace(0, 0.5, size),
    "Student's t": lambda rng, size: rng.standard_t(3, size),
    "exponential": lambda rng, size: rng.exponential(1.0, size),
    "uniform": lambda rng, size: rng.uniform(0, 1.0, size),
}


@pytest.mark.parametrize(("windows", "most"), [(40, 0.05), (80, 0.01), (512, 0.0)])
@pytest.mark.parametrize("name", NOISE)
def test_noise_of_any_width_is_of_one_kind(name, windows, most):
    rng = np.random.default_rng(1)
    kinds = [with_residuals(NOISE[name](rng, windows)).kinds() for _ in range(1000)]
    alarms = sum(one is not None for one in kinds)
    print(f"{name} noise, {windows} windows: {alarms} of 1,000 histories are a mixture")
    assert alarms <= most * 1000


@pytest.mark.parametrize(
    "values",
    [
        # A disturbance of a few windows; too close; iterations that become longer and longer.
        np.repeat([0.0, 2.0], [480, 32]),
        np.repeat([0.0, math.log(1.3)], 256),
        np.linspace(-1.0, 1.0, 200),
        np.zeros(512),
        np.zeros(1),
        np.zeros(0),
    ],
)
def test_windows_of_one_kind(values):
    assert with_residuals(values).kinds() is None


def test_two_runs_and_forty_windows_are_needed_for_two_kinds():
    values = np.repeat([0.0, 1.0], 20)
    assert with_residuals(values, runs=2).kinds() is not None
    assert with_residuals(values, runs=1).kinds() is None
    assert with_residuals(values[1:], runs=2).kinds() is None


@pytest.mark.parametrize("share", [0.15, 0.5, 0.85])
def test_a_history_of_two_kinds_of_windows_has_their_share_and_ratio(share):
    rng = np.random.default_rng(1)
    longer = int(400 * share)
    values = np.append(rng.normal(0, 0.05, 400 - longer), rng.normal(math.log(3.0), 0.05, longer))
    kinds = with_residuals(values - values.mean()).kinds()
    assert kinds.share == pytest.approx(share, abs=0.01)
    assert kinds.ratio == pytest.approx(3.0, rel=0.02)
