"""`barograph backtest bands` on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from barograph.cli import main

SUMMARY = {
    "method",
    "task",
    "factor",
    "series",
    "unknown",
    "mean_coverage",
    "pooled_coverage",
    "share_within_2pp",
    "median_width_ratio",
    "pinball",
    "median_error",
    "relative_width",
}
SERIES = {
    "method",
    "task",
    "by",
    "scale",
    "factor",
    "fitted",
    "scored",
    "coverage",
    "below",
    "above",
    "width_ratio",
    "pinball",
    "pinball_ratio",
    "median_error",
    "relative_width",
    "reason",
}


@pytest.fixture
def measured(tmp_path):
    """Two applications at 4, 8 and 16 ranks, 120 values each, and one with two values."""
    rng = np.random.default_rng(0)
    lines = ["app,ranks,i,seconds"]
    for app in ("cg", "mg"):
        for ranks in (4, 8, 16):
            lines += [f"{app},{ranks},{i},{v:.4f}" for i, v in enumerate(rng.gumbel(10, 1, 120) * ranks**0.3)]
    lines += ["lu,4,0,1.0", "lu,4,1,1.0"]
    path = tmp_path / "measured.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def bands(*words):
    return main(["backtest", "bands", *map(str, words)])


def test_json_has_a_row_per_method_and_task_and_a_row_per_series(measured, capsys):
    assert bands(measured, "--value", "seconds", "--by", "app", "--scale", "ranks", "--order", "i", "--json") == 0
    out, err = capsys.readouterr()
    assert err == "barograph backtest: 1 of 7 series have fewer than 6 values and are left out\n"
    answer = json.loads(out)
    assert set(answer) == {"summary", "series"}
    assert all(set(row) == SUMMARY for row in answer["summary"])
    assert all(set(row) == SERIES for row in answer["series"])
    series = {(row["method"], row["task"]): row["series"] for row in answer["summary"]}
    assert len(series) == len(answer["summary"])
    assert [series["barograph", task] for task in ("same-scale", "scale-up-2x", "scale-up-4x")] == [6, 4, 2]
    assert {row["method"] for row in answer["summary"]} == {
        "nonparametric",
        "emma",
        "gev",
        "gev-mle",
        "gumbel",
        "emma-drawn",
        "empirical",
        "range",
        "barograph",
        "runtimes",
        "barograph-live",
    }
    one = next(row for row in answer["series"] if row["method"] == "barograph" and row["factor"] == 4.0)
    assert (one["by"], one["scale"], one["fitted"], one["scored"]) == ({"app": "cg"}, 16.0, 120, 120)


def test_the_table_names_methods_and_tasks(measured, capsys):
    assert bands(measured, "--value", "seconds", "--by", "app,ranks", "--mode", "prequential") == 0
    out = capsys.readouterr().out
    assert [
        word for word in ("prequential", "nonparametric", "gev", "barograph", "width ratio") if word not in out
    ] == []
    assert "same-scale" not in out


def table(path, **columns):
    """A CSV file with one line for each combination of cells and its values."""
    names = [*columns.pop("names"), "seconds"]
    lines = [",".join([*cells, f"{v:.6f}"]) for cells, values in columns["series"].items() for v in values]
    path.write_text("\n".join([",".join(names), *lines]) + "\n")
    return path


def test_whole_runs_are_scored_by_the_intervals_of_earlier_ones(tmp_path, capsys):
    rng = np.random.default_rng(1)
    runs = {("cg", f"r{i}"): rng.gumbel(10, 1, 50) * rng.lognormal(0, 0.05) for i in range(40)}
    runs |= {("mg", "r0"): np.ones(50)}
    path = table(tmp_path / "runs.csv", names=("app", "run"), series=runs)
    assert bands(path, "--value", "seconds", "--by", "app", "--run", "run", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    found = {row["method"]: row["mean_coverage"] for row in answer["summary"]}
    assert {row["task"] for row in answer["summary"]} == {"whole-run"}
    assert found["log-t"] == pytest.approx(0.95, abs=0.05)
    assert found["sums-plain"] <= found["sums"] == pytest.approx(0.9, abs=0.07)  # limited to the few observed runs
    assert {row["scored"] for row in answer["series"]} == {37}


def test_the_maximum_over_all_ranks_is_scored_by_the_series_of_some_of_them(tmp_path, capsys):
    rng = np.random.default_rng(2)
    ranks = {(app, f"r{i}"): rng.gumbel(100, 2, 400) for app in ("a", "b", "c", "d") for i in range(16)}
    path = table(tmp_path / "ranks.csv", names=("app", "rank"), series=ranks)
    assert bands(path, "--value", "seconds", "--by", "app", "--rank", "rank", "--json") == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert {row["task"]: row["factor"] for row in summary} == {"ranks-8x": 8.0, "ranks-4x": 4.0, "ranks-2x": 2.0}
    found = {(row["method"], row["task"]): row["mean_coverage"] for row in summary}
    # The bootstraps assume independent ranks.
    for method in ("inter-node", "inter-node-mom", "intra-node", "intra-node-mom", "emma"):
        assert found[method, "ranks-2x"] >= 0.75, method
    off = {(row["method"], row["task"]): row["median_error"] for row in summary}
    assert max(off.values()) < 0.1


def hosts(path, spread):
    """A program on four hosts of four ranks, in rows that mix the hosts, whose speeds differ by `spread`."""
    rng = np.random.default_rng(5)
    speed = 1 + spread * rng.normal(size=4)
    ranks = {("a", f"h{i % 4}", f"r{i}"): speed[i % 4] * rng.gumbel(100, 2, 400) for i in range(16)}
    return table(path, names=("app", "host", "rank"), series=ranks)


def test_with_hosts_whole_nodes_are_seen_and_unlike_ones_widen_the_bootstrap_by_node(tmp_path, capsys):
    widths = {}
    for spread in (0.0, 0.1):
        path = hosts(tmp_path / f"{spread}.csv", spread)
        words = ("--value", "seconds", "--by", "app", "--rank", "rank", "--node", "host", "--json")
        assert bands(path, *words) == 0
        rows = json.loads(capsys.readouterr().out)["series"]
        assert {row["task"] for row in rows} == {"nodes-4x", "nodes-2x"}
        assert {row["fitted"] for row in rows if row["task"] == "nodes-4x"} == {4 * 200}
        assert {row["fitted"] for row in rows if row["task"] == "nodes-2x"} == {8 * 200}
        assert {tuple(row["by"].items()) for row in rows} == {(("app", "a"),)}
        widths[spread] = {row["method"]: row["relative_width"] for row in rows if row["task"] == "nodes-2x"}
    assert widths[0.1]["inter-node"] > 2 * widths[0.0]["inter-node"]
    # The maximum over one rank of each node is always one of the slowest node.
    assert widths[0.1]["intra-node"] < 2 * widths[0.0]["intra-node"]


@pytest.mark.parametrize(
    ("option", "wanted"), [("--run", "4 runs of a series"), ("--rank", "4 ranks of a series with 30 intervals each")]
)
def test_too_few_runs_or_ranks_are_one_line_and_status_65(measured, capsys, option, wanted):
    assert bands(measured, "--value", "seconds", "--by", "app", option, "ranks") == 65
    err = capsys.readouterr().err.splitlines()
    assert err[-1] == f"barograph backtest: {measured}: nothing to score, expected at least {wanted}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "{} is empty, expected a line of column names and lines of values"),
        ("app,s\na,1\n", "{} has no column 'seconds', expected one of app, s"),
        ("app,seconds\na,1\na,1 s\n", "{}, line 3: column 'seconds' is '1 s', expected a finite number"),
        (
            "app,seconds\na,1\nb,2\n",
            "{}: the longest of 2 series by app has 1 value, expected at least 6: some to learn from and some to score",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_and_status_65(tmp_path, capsys, text, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert bands(path, "--value", "seconds", "--by", "app") == 65
    assert capsys.readouterr() == ("", f"barograph backtest: {message.format(path)}\n")


def test_a_missing_file_is_one_line_and_status_65(tmp_path, capsys):
    assert bands(tmp_path / "none.csv", "--value", "seconds", "--by", "app") == 65
    assert capsys.readouterr().err == f"barograph backtest: {tmp_path / 'none.csv'}: No such file or directory\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mode", "sideways"], "argument --mode: 'sideways', expected half or prequential"),
        (["--by", "app,"], "argument --by: 'app,', expected names of columns with commas between them"),
        (["--node", "i"], "--node needs --rank: hosts are of ranks"),
        (["--run", "app", "--rank", "i"], "argument --rank: not allowed with argument --run"),
        (["--join", "sets.csv"], "--join and --on go together, expected both or none"),
    ],
)
def test_a_wrong_option_is_refused_with_status_2(measured, capsys, words, message):
    with pytest.raises(SystemExit) as refused:
        bands(measured, "--value", "seconds", "--by", "app", *words)
    assert refused.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f": error: {message}")


def test_one_page_of_help_has_every_option(capsys):
    with pytest.raises(SystemExit):
        main(["backtest", "--help"])
    out = capsys.readouterr().out
    options = (
        "--value",
        "--by",
        "--scale",
        "--order",
        "--mode",
        "--run",
        "--rank",
        "--node",
        "--join",
        "--on",
        "--json",
    )
    assert [option for option in options if f"\n  {option} " not in out] == []
