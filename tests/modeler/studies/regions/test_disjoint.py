"""Which regions are disjoint parts of the total."""

import numpy as np
import pytest

from barograph_modeler.scaling.history import Runs
from barograph_modeler.studies.regions.disjoint import REST, disjoint, with_rest
from barograph_modeler.studies.regions.runs import RegionRuns

P = np.array([1.0, 2, 4, 8, 16])
WORK, HALO, SOLVE, INPUT = 100 / P, 10 / P**0.5, 40 / P + 1, 2 + 0.1 * P


def runs_of(total, **regions):
    return RegionRuns(Runs.of(P, total), {name: np.asarray(one) for name, one in regions.items()})


def test_regions_side_by_side_are_all_parts_and_what_they_leave_is_the_rest():
    problem = runs_of(WORK + HALO + SOLVE + INPUT, work=WORK, halo=HALO, solve=SOLVE)
    parts = disjoint({"a": problem})["a"]
    assert set(parts) == {"work", "halo", "solve"}
    seconds = with_rest(problem, parts)
    assert seconds[REST] == pytest.approx(INPUT)
    assert sum(seconds.values()) == pytest.approx(problem.runs.seconds)


def test_timers_inside_timers_are_replaced_by_their_leaves():
    step = WORK + HALO
    loop = (step + SOLVE) * 1.001
    problem = runs_of(loop + INPUT, loop=loop, wrapper=loop * 0.9995, step=step, work=WORK, halo=HALO, solve=SOLVE)
    assert set(disjoint({"a": problem})["a"]) >= {"work", "halo", "solve"}
    assert not {"loop", "wrapper", "step"} & set(disjoint({"a": problem})["a"])


def test_paths_decide_where_there_are_any():
    inner = WORK + HALO
    regions = {"main": inner + SOLVE, "main/step": inner, "main/step/work": WORK, "main/step/halo": HALO}
    problem = RegionRuns(Runs.of(P, inner + SOLVE + INPUT), regions | {"main/solve": SOLVE})
    assert set(disjoint({"a": problem})["a"]) == {"main/step/work", "main/step/halo", "main/solve"}


def test_parts_never_exceed_the_total():
    """Two regions that overlap without one being inside the other."""
    problem = runs_of(np.full(5, 10.0), a=np.full(5, 7.0), b=np.full(5, 6.0))
    seconds = with_rest(problem, disjoint({"x": problem})["x"])
    assert sum(seconds.values()) == pytest.approx(problem.runs.seconds)
    assert all((one >= 0).all() for one in seconds.values())


def test_a_region_that_is_missing_in_a_run_is_in_the_rest():
    problem = runs_of(WORK + SOLVE, work=WORK, solve=np.where(P > 8, np.nan, SOLVE))
    assert disjoint({"a": problem})["a"] == ("work",)
    assert with_rest(problem, ("work",))[REST] == pytest.approx(SOLVE)


def test_small_parts_are_in_the_rest():
    problem = runs_of(WORK * 1.005, work=WORK, tiny=WORK * 0.005)
    assert list(with_rest(problem, ("work", "tiny"))) == ["work"]


def test_seconds_below_0_are_an_error():
    with pytest.raises(ValueError, match=r"region work is -1.0 s, expected at least 0"):
        runs_of(WORK, work=WORK * 0 - 1)
