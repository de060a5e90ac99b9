"""Which region of a file is the total."""

import pytest

from barograph_modeler.studies.regions.table import SUM, total_region


@pytest.mark.parametrize("name", ["total", "Total", "main()", "TOTAL_elapsed", "Wall time", "elapsed time", "Runtime"])
def test_a_name_decides_if_no_region_is_larger(name):
    assert total_region([{name: 10.0, "a": 4.0}, {name: 20.0, "a": 5.0}]) == name
    assert total_region([{name: 1.0, "a": 4.0}, {name: 2.0, "a": 5.0}]) == SUM


def test_a_region_that_others_fill_is_the_total():
    assert total_region([{"solve": 10.0, "a": 6.0, "b": 3.9}, {"solve": 6.0, "a": 3.0, "b": 2.9}]) == "solve"


def test_a_region_that_is_exceeded_by_the_sum_of_those_inside_it_is_the_total():
    assert total_region([{"run": 10.0, "step": 9.0, "a": 6.0}, {"run": 8.0, "step": 7.0, "a": 5.0}]) == "run"


def test_a_region_that_is_larger_than_the_others_is_not_the_total():
    assert total_region([{"work": 10.0, "wait": 1.0}, {"work": 5.0, "wait": 2.0}]) == SUM


def test_a_path_that_all_begin_with_is_the_total():
    assert total_region([{"r": 10.0, "r/a": 2.0}, {"r": 5.0, "r/a": 2.0}]) == "r"
