"""The usual length of runs."""

from __future__ import annotations

import pytest

from barograph_modeler.pace.length import Length


@pytest.mark.parametrize(
    ("runs", "usual", "other"),
    [
        ([1000], [1000, 1019, 981], [1021, 979]),
        ([1000, 2000], [2000], [1000]),
        ([1000, 2000, 1000], [1000], [2000]),
        ([1000, 1001, 999, 3000], [1000], [3000]),
        ([1000, 1300, 1150, 1500, 1090], [1000, 1200, 1500], [900, 1600]),
        ([0, 0], [0], [1]),
    ],
)
def test_the_usual_length_is_that_of_most_runs_or_all_that_occurred(runs, usual, other):
    length = Length.of_runs(runs)
    assert [length.has(points) for points in usual] == [True] * len(usual)
    assert [length.has(points) for points in other] == [False] * len(other)


def test_without_runs_there_is_none():
    with pytest.raises(ValueError, match="no runs, expected at least one"):
        Length.of_runs([])
