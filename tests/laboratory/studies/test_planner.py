"""Complexities as expressions, and configurations of constant work per process."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph.cli import main as barograph
from barograph_lab.studies.weak.complexity import BadExpression, Complexity
from barograph_lab.studies.weak.planner import WIDEST, dimensions, plan

CUBE = Complexity.parse("N**3")


@pytest.mark.parametrize(
    ("text", "work"),
    [
        ("N**3", 4096.0),
        ("N*log2(N)", 64.0),
        ("2*N**2 + 10*N", 672.0),
        ("n * sqrt(n)", 64.0),
        ("N**2/4 - (+1)", 63.0),
        ("log10(N)*cbrt(8)*log(N)", math.log10(16) * 2 * math.log(16)),
    ],
)
def test_an_expression_is_evaluated(text, work):
    assert Complexity.parse(text).work(16) == pytest.approx(work)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no expression"),
        ("N**", "'N**' is no expression"),
        ("3", "'3' has no variable, expected one"),
        ("N*M", "'N*M' has the variables M, N, expected one"),
        ("__import__('os').system('true')", "contains \"__import__('os').system('true')\", expected numbers"),
        ("N.real", "'N.real' contains 'N.real'"),
        ("(lambda: N)()", "contains '(lambda: N)()'"),
        ("[N]", "contains '[N]'"),
        ("N if N else 1", "contains 'N if N else 1'"),
        ("N**True", "contains 'True'"),
        ("log2(N, 2)", "contains 'log2(N, 2)'"),
        ("exp(N)", "contains 'exp(N)'"),
        ("N" * 201, "the expression has 201 characters, expected at most 200"),
        ("-" * 190 + "N", None),
        ("(" * 99 + "N" + ")" * 99, None),
    ],
)
def test_anything_but_arithmetic_is_refused_and_not_executed(text, message):
    if message is None:
        assert Complexity.parse(text).variable == "N"
        return
    with pytest.raises(BadExpression) as refused:
        Complexity.parse(text)
    assert message in str(refused.value)


@pytest.mark.parametrize("text", ["9**9**9**9*N", "1/(N-16)", "log2(16-N)", "16-N", "sqrt(0-N)", "(0-N)**0.5"])
def test_a_size_without_a_value_is_refused(text):
    with pytest.raises(BadExpression, match="is no finite number above 0 for N = 16"):
        Complexity.parse(text).work(16)


@given(st.floats(1.001, 1e5), st.sampled_from(["N**3", "N", "N*log2(N)", "N**2+100*N", "sqrt(N)"]))
def test_the_size_follows_from_its_work(size, text):
    complexity = Complexity.parse(text)
    assert complexity.size(complexity.work(size)) == pytest.approx(size, rel=1e-6)


@pytest.mark.parametrize(("text", "work"), [("10 + 1/N", 20.0), ("N**3", 0.5), ("N + 100", 50.0)])
def test_unreachable_work_is_refused(text, work):
    with pytest.raises(BadExpression, match=f"{work:g} for"):
        Complexity.parse(text).size(work)


def test_the_papers_hpl_configurations_follow_from_their_constant():
    """Mokrov (2020), tables 1 and 2, C1: 50 thousand on 125 processes; targets within the paper's three digits."""
    made = plan(CUBE, 50_000, at_ranks=125, max_ranks=156, size_multiple=100, targets=[225, 400, 576, 784, 1369])
    targets = made[-5:]
    assert [one.ranks for one in targets] == [225, 400, 576, 784, 1369]
    assert [one.size for one in targets] == pytest.approx([60_800, 73_700, 83_200, 92_200, 111_000], rel=1e-3)
    # And the cubes that DNS needs, table 7: 4.5 thousand on one process.
    dns = plan(CUBE, 4_500, max_ranks=216, count=6, grid="cube")
    assert [(one.ranks, one.size) for one in dns] == [(27, 13_500), (64, 18_000), (125, 22_500), (216, 27_000)]
    assert dns[0].grid == (3, 3, 3)


@given(
    st.integers(16, 5000),
    st.sampled_from(["any", "rectangle", "square", "cube"]),
    st.integers(1, 8),
    st.sampled_from([1.0, 10.0, 128.0]),
    st.sampled_from(["N**3", "N**2", "N*log2(N)"]),
)
@settings(max_examples=150, deadline=None)
def test_a_plan_has_feasible_ranks_and_sizes_and_their_change_of_work(most, grid, multiple, block, text):
    complexity = Complexity.parse(text)
    try:
        made = plan(complexity, 2000, max_ranks=most, grid=grid, ranks_multiple=multiple, size_multiple=block)
    except ValueError as refused:
        assert "are feasible up to" in str(refused)  # noqa: PT017 - a refusal is one of two right answers
        return
    work = complexity.work(2000)
    ranks = [one.ranks for one in made]
    assert ranks == sorted(set(ranks))
    assert ranks[-1] <= most
    for one in made:
        assert one.ranks % multiple == 0
        assert math.prod(one.grid) == one.ranks
        assert one.size % block == 0
        assert complexity.work(one.wanted_size) == pytest.approx(work * one.ranks, rel=1e-6)
        assert one.work_change == pytest.approx(complexity.work(one.size) / one.ranks / work - 1)
        if grid == "rectangle":
            assert max(one.grid) <= WIDEST * min(one.grid)
        if grid in ("square", "cube"):
            assert len(set(one.grid)) == 1


def test_a_grid_is_the_closest_to_square():
    assert [dimensions(ranks) for ranks in (1, 7, 12, 36, 98)] == [(1, 1), (7, 1), (4, 3), (6, 6), (14, 7)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-ranks", "1000000000"], "max ranks: 1000000000, expected 1 to 100000000"),
        (["--max-ranks", "0"], "max ranks: 0, expected 1 to 100000000"),
        (["--max-ranks", "64", "--targets", "0"], "target ranks: 0, expected 1 to 100000000"),
        (["--max-ranks", "64", "--at-ranks", "-1"], "ranks of the given size: -1, expected 1 to 100000000"),
        (["--max-ranks", "3"], "2 of 8 configurations are feasible up to 3 ranks (rectangle grid, multiples of 1)"),
        (["--max-ranks", "64", "--grid", "cube", "--ranks-multiple", "7"], "0 of 8 configurations are feasible"),
        (["--max-ranks", "64", "--count", "2"], "2 configurations, expected at least 4"),
        (["--max-ranks", "64", "--size", "-5"], "size is -5, expected a finite number above 0"),
        (["--max-ranks", "64", "--size", "nan"], "size is nan, expected a finite number above 0"),
        (["--max-ranks", "64", "--size-multiple", "0"], "multiples are 1 ranks and size 0, expected above 0"),
        (["--max-ranks", "64", "--complexity", "import os"], "'import os' is no expression"),
    ],
)
def test_infeasible_numbers_are_refused_in_one_line(options, message, capsys):
    assert barograph(["plan", "--complexity", "N**3", "--size", "1000", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_the_command_prints_a_table_and_warns_of_large_rounding(capsys):
    exact = ["plan", "--complexity", "N**3", "--size", "18000", "--at-ranks", "6", "--max-ranks", "196"]
    assert barograph([*exact, "--targets", "1369"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[:2] for line in out.splitlines() if line.startswith(" measure")][-1] == ["measure", "196"]
    target = next(line for line in out.splitlines() if line.startswith(" target"))
    assert target.split() == ["target", "1369", "1369", "37x37", "109991", "109991", "+0.00%"]
    assert "N**3 / ranks = 9.72e+11 everywhere, to 0.0%. Run each configuration 5 to 7 times." in out
    assert "Rounding" not in out
    assert barograph([*exact, "--size-multiple", "4096"]) == 0
    assert "Rounding moved the work per rank by more than 5 %" in capsys.readouterr().out


def test_the_json_has_runs_to_measure_and_targets(capsys):
    words = ["plan", "--complexity", "N*log2(N)", "--size", "1e6", "--max-ranks", "64", "--targets", "512", "--json"]
    assert barograph(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["work_per_rank"] == pytest.approx(1e6 * math.log2(1e6))
    assert [one["ranks"] for one in found["measure"]] == [8, 16, 24, 32, 40, 48, 56, 64]
    assert found["targets"][0]["ranks"] == 512
