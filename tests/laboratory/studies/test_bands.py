import numpy as np
import pytest

from barograph_lab.studies.bands.methods import METHODS, refit
from barograph_lab.studies.bands.score import ScoreRow, pinball, score, summarize
from barograph_lab.studies.bands.tasks import prequential, programs, same_scale, scale_up
from barograph_lab.studies.series import BadTable, Join, Series, read_series
from barograph_modeler.maxima.predictive import SeriesLimits


@pytest.fixture
def table(tmp_path):
    def write(text, name="t.csv"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def one_series(values, scale=None, name="a"):
    return Series({"app": name}, scale, np.asarray(values, dtype=np.float64))


def rows_of(rows, method):
    return [row for row in rows if row.method == method]


# Reading


def test_rows_are_grouped_by_columns_in_the_order_of_the_file(table):
    path = table("app,note,input,s\nb,x,1,3\na,y,1,1.5\n\nb,,1,2e0\nb,,2,7\n")
    series = read_series(path, "s", ["app", "input"])
    assert [(one.key, one.scale, one.values.tolist()) for one in series] == [
        ({"app": "b", "input": "1"}, None, [3.0, 2.0]),
        ({"app": "a", "input": "1"}, None, [1.5]),
        ({"app": "b", "input": "2"}, None, [7.0]),
    ]
    assert series[0].name == "b, 1"


def test_a_scale_is_part_of_the_group_and_a_number(table):
    series = read_series(table("app,p,s\na,8,2\na,4,1\na,8.0,3\n"), "s", ["app"], scale="p")
    assert [(one.scale, one.values.tolist()) for one in series] == [(8.0, [2.0, 3.0]), (4.0, [1.0])]


def test_an_order_of_numbers_is_numeric_and_of_dates_alphabetic(table):
    numbers = table("a,at,s\nx,10,1\nx,9,2\nx,9,3\n")
    dates = table("a,at,s\nx,2025-02-01,1\nx,2024-12-30,2\n", "dates.csv")
    assert read_series(numbers, "s", ["a"], order="at")[0].values.tolist() == [2.0, 3.0, 1.0]
    assert read_series(dates, "s", ["a"], order="at")[0].values.tolist() == [2.0, 1.0]


def test_columns_of_a_second_file_join_by_a_shared_one(table):
    runs = table("set,s\n2,5\n1,6\n2,7\n")
    sets = table("set,p,s\n1,4,0\n2,8,0\n", "sets.csv")
    series = read_series(runs, "s", ["set"], scale="p", join=Join(sets, "set"))
    assert [(one.scale, one.values.tolist()) for one in series] == [(8.0, [5.0, 7.0]), (4.0, [6.0])]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "{} is empty, expected a line of column names and lines of values"),
        ("\n\n", "{} is empty, expected a line of column names and lines of values"),
        ("app,s\n", "{} has a line of column names only, expected lines of values"),
        ("app,t\na,1\n", "{} has no column 's', expected one of app, t"),
        ("app,s,s\na,1,2\n", "{}: column 's' is there twice, expected different names"),
        ("app,s\na,1\na,fast\n", "{}, line 3: column 's' is 'fast', expected a finite number"),
        ("app,s\na,\n", "{}, line 2: column 's' is '', expected a finite number"),
        ("app,s\na,inf\n", "{}, line 2: column 's' is 'inf', expected a finite number"),
        ("app,s\na,1\n\na,1,2\n", "{}, line 4: 3 cells, expected 2, one per column"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_file_line_and_column(table, text, message):
    path = table(text)
    with pytest.raises(BadTable) as refused:
        read_series(path, "s", ["app"])
    assert str(refused.value) == message.format(path)


def test_bytes_that_are_not_utf_8_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"app,s\na,\xff\n")
    with pytest.raises(BadTable, match=r"expected a CSV file in UTF-8$"):
        read_series(path, "s", ["app"])


def test_a_scale_that_is_not_above_0_is_refused(table):
    path = table("app,p,s\na,0,1\n")
    with pytest.raises(BadTable) as refused:
        read_series(path, "s", ["app"], scale="p")
    assert str(refused.value) == f"{path}, line 2: column 'p' is '0', expected a number above 0"


def test_a_join_must_be_unambiguous_and_complete(table):
    runs, twice = table("set,s\n1,5\n3,6\n"), table("set,p\n1,4\n1,8\n", "twice.csv")
    lacking = table("set,p\n1,4\n", "lacking.csv")
    with pytest.raises(BadTable) as refused:
        read_series(runs, "s", ["p"], join=Join(twice, "set"))
    assert str(refused.value) == f"{twice}, line 3: column 'set' is '1' again, expected each value once"
    with pytest.raises(BadTable) as refused:
        read_series(runs, "s", ["p"], join=Join(lacking, "set"))
    assert str(refused.value) == f"{runs}, line 3: column 'set' is '3', which is not in {lacking}"


# Scoring


def test_a_score_equals_one_computed_by_hand():
    values = np.array([1.0, 2.0, 3.0, 10.0, 5.0])
    limits = SeriesLimits(np.array([np.nan, 2.0, 3.5, 2.0, 2.0]), np.array([np.nan, 4.0, 5.5, 4.0, 5.0]))
    row = score("m", "t", one_series(values), limits, values, fitted=1)
    assert (row.scored, row.coverage, row.below, row.above) == (4, 0.5, 0.25, 0.25)
    # Lower: 0, 0.975 x 0.5, 0.025 x 8, 0.025 x 3. Upper: 0.025 x 2, 0.025 x 2.5, 0.975 x 6, 0.
    assert row.pinball == pytest.approx((0.4875 + 0.2 + 0.075 + 0.05 + 0.0625 + 5.85) / 4)
    ideal = np.quantile(values[1:], [0.025, 0.975])
    assert row.width_ratio == pytest.approx((2 + 2 + 2 + 3) / 4 / (ideal[1] - ideal[0]))
    assert row.pinball_ratio == pytest.approx(row.pinball / pinball(ideal[0], ideal[1], values[1:]))


def test_the_summary_counts_series_with_and_without_a_band():
    def row(coverage, scored, width):
        return ScoreRow("m", "t", {}, None, None, 9, scored, coverage, width_ratio=width, pinball_ratio=width)

    unknown = ScoreRow("m", "t", {}, None, None, 9, 0, reason="history cannot support the level")
    rows = [row(0.93, 100, 1.0), row(0.97, 100, None), row(0.80, 300, 3.0), unknown, row(0.975, 100, 2.0)]
    (summary,) = summarize(rows)
    assert (summary["series"], summary["unknown"]) == (4, 1)
    assert summary["share_within_2pp"] == 0.5
    assert summary["mean_coverage"] == pytest.approx((0.93 + 0.97 + 0.8 + 0.975) / 4)
    assert summary["pooled_coverage"] == pytest.approx((93 + 97 + 240 + 97.5) / 600)
    assert (summary["median_width_ratio"], summary["pinball"]) == (2.0, 2.0)
    (nothing,) = summarize([unknown])
    assert (nothing["series"], nothing["mean_coverage"], nothing["share_within_2pp"]) == (0, None, None)


# Tasks


def independent(size, seed, scale=None):
    return one_series(np.random.default_rng(seed).gumbel(10.0, 1.0, size), scale, f"s{seed}")


def test_a_fixed_band_depends_on_the_first_half_only():
    series = [one_series(np.r_[np.random.default_rng(0).normal(10, 1, 200), np.full(200, 99.0)])]
    for row in same_scale(series):
        assert (row.fitted, row.scored) == (200, 200)
        assert row.coverage == 0 if row.method != "barograph-live" else row.coverage > 0.9
    changed = [one_series(np.r_[series[0].values[:200], np.full(200, -5.0)])]
    assert [row.above for row in rows_of(same_scale(series), "empirical")] == [1.0]
    assert [row.below for row in rows_of(same_scale(changed), "empirical")] == [1.0]


def test_prequential_limits_do_not_depend_on_the_values_they_are_scored_on():
    x = np.random.default_rng(1).gumbel(10.0, 1.0, 300)
    shifted = np.r_[x[:200], x[200:] + 1000]
    for method in METHODS:
        follow = method.follow or (lambda values, fit=method.fit: refit(fit, values))
        if method.refits:
            before, after = follow(x), follow(shifted)
            assert np.array_equal(before.upper[:201], after.upper[:201], equal_nan=True), method.name
            assert (shifted[200] > after.upper[200]).all()


def test_steered_limits_are_near_95_percent_where_fixed_ones_are_not():
    rng = np.random.default_rng(2)
    series = [one_series(10 + np.cumsum(rng.normal(size=1000)) / 5 + rng.normal(size=1000)) for _ in range(12)]
    by_method = {row["method"]: row for row in summarize(prequential(series))}
    assert by_method["barograph"]["share_within_2pp"] == 1.0
    assert by_method["empirical"]["share_within_2pp"] < 0.5
    assert "emma" not in by_method


def test_every_larger_scale_is_scored_from_every_smaller_set_of_scales():
    series = [independent(100, ranks, float(ranks)) for ranks in (4, 16, 8)]
    series = [Series({"app": "a"}, one.scale, one.values) for one in series]
    rows = rows_of(scale_up(programs(series)), "barograph")
    assert [(row.task, row.scale, row.factor, row.fitted) for row in rows] == [
        ("scale-up-2x", 8.0, 2.0, 100),
        ("scale-up-4x", 16.0, 4.0, 100),
        ("scale-up-2x", 16.0, 2.0, 200),
    ]
    assert list(scale_up(programs([independent(100, 1, 4.0), independent(100, 2, 8.0)]))) == []


def test_a_row_without_a_band_has_a_reason():
    series = [one_series(np.linspace(-1, 1, 100), scale) for scale in (4.0, 8.0)]
    (row,) = rows_of(scale_up(programs(series)), "barograph")
    assert (row.coverage, row.reason) == (None, "value 0 at scale 4 is -1.0, expected more than 0")
    (row,) = rows_of(same_scale([one_series(range(1, 21))]), "empirical")
    assert (row.scored, row.reason) == (0, "history cannot support the level")


def test_methods_cover_about_95_percent_of_independent_values_at_one_scale():
    series = [independent(1000, seed) for seed in range(30)]
    by_method = {row["method"]: row["mean_coverage"] for row in summarize(same_scale(series))}
    for name in ("nonparametric", "gev", "gev-mle", "gumbel", "empirical", "barograph", "barograph-live"):
        assert by_method[name] == pytest.approx(0.95, abs=0.01), name
    assert max(by_method["emma"], by_method["emma-drawn"]) < 0.2  # an interval for the mean, not for single values
    assert by_method["range"] > 0.99
