"""Which parameters make up a size."""

from __future__ import annotations

import pytest

from barograph_agent.protocol.tables import IDENTIFIER, MAX_NAME
from barograph_modeler.forecasts.history import Application, WorkloadPlace
from barograph_modeler.forecasts.problems import NO_SIZE, ProblemSize, ProblemSpace, UnlocatedQuestion

APP = Application("lab", "solver")


def space(*rows: tuple[dict[str, str], int, float]) -> ProblemSpace:
    return ProblemSpace.of(
        APP,
        [(WorkloadPlace(str(i), APP, tuple(sorted(p.items())), ranks, 0), t) for i, (p, ranks, t) in enumerate(rows)],
    )


def test_numbers_with_several_values_are_a_size_and_the_rest_names_the_problem():
    known = space(({"n": "100", "grid": "a", "dt": "0.1"}, 4, 1.0), ({"n": "200", "grid": "b", "dt": "0.1"}, 4, 2.0))
    assert known.sizes[""].names == ("n",)
    assert known.locate({"n": "6400", "grid": "a", "dt": "0.1"}) == ProblemSize("lab/solver dt=0.1 grid=a", (6400.0,))
    assert known.locate({"grid": "a", "dt": "0.1"}) == ProblemSize("lab/solver dt=0.1 grid=a", None)


@pytest.mark.parametrize("text", ["fine", "-1", "0", "inf", "nan", ""])
def test_a_parameter_that_is_no_number_above_0_in_some_run_names_problems(text):
    known = space(({"n": "100"}, 4, 1.0), ({"n": "200"}, 4, 2.0), ({"n": text}, 4, 2.0))
    assert known.sizes[""].names == ()
    assert known.locate({"n": "100"}) == ProblemSize("lab/solver n=100", NO_SIZE)


def test_a_parameter_with_one_value_names_the_problem():
    known = space(({"n": "100"}, 4, 1.0), ({"n": "100"}, 8, 2.0))
    assert known.locate({"n": "100"}) == ProblemSize("lab/solver n=100", NO_SIZE)


def test_runs_with_a_part_of_the_size_are_a_problem_of_their_own():
    known = space(({"n": "100", "m": "1"}, 4, 1.0), ({"n": "200", "m": "2"}, 4, 2.0))
    assert known.locate({"n": "100"}) == ProblemSize("lab/solver n=100", NO_SIZE)
    assert known.locate({"n": "100", "m": "x"}) == ProblemSize("lab/solver m=x n=100", NO_SIZE)


def test_a_number_under_a_name_that_no_run_has_had_is_no_problem_of_its_own():
    known = space(({"n": "100"}, 4, 1.0), ({"n": "200"}, 4, 2.0))
    with pytest.raises(UnlocatedQuestion, match=r"^no run has had a parameter N, expected n$"):
        known.locate({"N": "6400"})
    # Words are; and a number beside the size.
    assert known.locate({"mesh": "fine"}).size is None
    assert known.locate({"n": "400", "dt": "2"}).size == (400.0,)


def laid_out(*times: float, nodes: tuple[int, ...] = (1, 2, 4)) -> ProblemSpace:
    """Runs of 16 and 32 ranks on some numbers of nodes, as many times as long."""
    places = [WorkloadPlace(f"{p}{n}", APP, (), p, n) for p in (16, 32) for n in nodes]
    return ProblemSpace.of(APP, list(zip(places, [t * 16 / p for p in (16, 32) for t in times], strict=True)))


def test_ranks_per_node_are_a_number_of_the_size_where_runtimes_follow_them():
    known = laid_out(1.3, 1.15, 1.0)
    assert known.sizes[""].names == ("ranks_per_node",)
    assert known.of_run(WorkloadPlace("", APP, (), 64, 8)) == ("lab/solver", (8.0,))
    assert known.locate({"ranks_per_node": "16"}).size == (16.0,)
    assert laid_out(1.02, 1.0, 1.01).sizes[""].names == ()
    assert laid_out(1.3, 1.0, 1.25).sizes[""].names == ()  # not by the layout
    assert laid_out(1.3, 1.15, nodes=(1, 0)).sizes[""].names == ()  # not known of all runs


def test_a_size_that_is_left_out_is_asked_for_beside_ranks_per_node():
    places = [WorkloadPlace(f"{n}{k}", APP, (("n", str(n)),), 16, k) for n in (100, 200) for k in (1, 4)]
    known = ProblemSpace.of(APP, list(zip(places, [1.5, 1.0, 3.0, 2.0], strict=True)))
    assert known.sizes[""].names == ("n", "ranks_per_node")
    assert known.locate({"ranks_per_node": "4"}) == ProblemSize("lab/solver", None)
    with pytest.raises(UnlocatedQuestion, match="no run has had a parameter N"):
        known.locate({"ranks_per_node": "4", "N": "100"})


def seeds(*factors: float) -> ProblemSpace:
    """Runs of four numbers of ranks with eight seeds; the factors are of the even ones."""
    return space(
        *(
            ({"seed": str(s)}, p, 100 / p * (factors[p % len(factors)] if s % 2 else 1.0))
            for s in range(1, 9)
            for p in (1, 2, 4, 8)
        )
    )


def test_a_number_that_runs_show_not_to_matter_is_no_size():
    known = seeds(1.01)
    assert known.sizes[""].names == ()
    assert known.locate({"seed": "99"}) == known.locate({}) == ProblemSize("lab/solver", NO_SIZE)
    # Inputs with numbers as names differ without an order; and few runs show nothing.
    assert seeds(1.4).sizes[""].names == ("seed",)
    assert space(({"n": "1"}, 4, 1.0), ({"n": "2"}, 4, 1.0), ({"n": "3"}, 4, 1.0)).sizes[""].names == ("n",)
    slow = [({"n": str(n)}, p, n**0.2 / p) for n in (100, 200, 400) for p in (1, 2, 4)]
    assert space(*slow).sizes[""].names == ("n",)


def test_seeds_that_begin_with_0_do_not_matter_either():
    rows = [({"seed": str(s), "n": "100"}, p, 100 / p * (1 + 0.01 * (s % 2))) for s in range(6) for p in (1, 2, 4)]
    known = space(*rows)
    for params in ({"seed": "9", "n": "100"}, {"n": "100"}):
        assert known.locate(params) == ProblemSize("lab/solver n=100", NO_SIZE)
    # Inputs with numbers as names, one of them 0, are problems as before.
    inputs = space(*[({"case": str(c)}, p, (100 if c else 180) / p) for c in range(6) for p in (1, 2, 4)])
    assert inputs.locate({"case": "0"}).name == "lab/solver case=0"


def test_a_scale_that_is_the_logarithm_of_a_size_is_found_by_the_times():
    rows = [
        ({"SC": str(s), "EF": str(e)}, p, 2.0**s * e / p) for s in (20, 21, 22, 24) for e in (8, 16) for p in (2, 8)
    ]
    known = space(*rows)
    assert known.sizes[""].names == ("EF", "SC")
    assert known.sizes[""].logarithms == {"SC"}
    problem = known.locate({"SC": "26", "EF": "16"})
    assert problem.size == (16.0, 2.0**26)
    assert known.text({}, problem.size) == "EF=16 SC=26"
    linear = space(*[({"n": str(n)}, 2, float(n) ** 2) for n in (10, 20, 40, 60)])
    assert linear.sizes[""].logarithms == frozenset()


def test_an_application_of_the_longest_names_has_a_name_of_the_log():
    assert IDENTIFIER.fullmatch(str(Application("x" * MAX_NAME, "app")))
