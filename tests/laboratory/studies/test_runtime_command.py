"""`barograph backtest runtime` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from barograph.cli import main
from barograph_lab.studies.features.identifiers import identifier_reason
from barograph_lab.studies.features.selected import MAX_SELECTED, SelectedTrees
from barograph_modeler.features.estimators import learners
from barograph_modeler.features.estimators.trees import Trees
from barograph_modeler.features.sample import Sample

SUMMARY = {
    "model",
    "learned",
    "scored",
    "mean_ape",
    "median_ape",
    "rank_accuracy",
    "coverage_95",
    "median_spread",
    "coverage_sigma",
    "coverage_2_sigma",
    "stopped",
}


def write(path: Path, n: int, seed: int, speed: float = 1.0) -> Path:
    """Runs with a size, ranks, a solver by name, a constant machine, and a note that is blank in some runs."""
    rng = np.random.default_rng(seed)
    lines = ["size,ranks,solver,machine,note,seconds"]
    for i in range(n):
        size, ranks, solver = int(rng.integers(10, 3000)), int(2 ** rng.integers(0, 7)), rng.choice(["cg", "mg"])
        seconds = size**1.2 / ranks * (2 if solver == "mg" else 1) / speed * float(np.exp(rng.normal(0, 0.05)))
        lines.append(f"{size},{ranks},{solver},one,{'a' if i % 2 else ''},{seconds:.6f}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def runs(tmp_path):
    return write(tmp_path / "runs.csv", 120, 0)


def runtime(*words):
    return main(["backtest", "runtime", *map(str, words)])


def test_json_has_a_row_per_model_and_used_and_left_out_features(runs, capsys):
    assert runtime(runs, "--time", "seconds", "--models", "forest,barograph", "--json") == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert [set(row) for row in answer["summary"]] == [SUMMARY] * 2
    assert [row["model"] for row in answer["summary"]] == ["forest", "barograph"]
    assert {row["learned"] for row in answer["summary"]} == {60}
    assert {row["scored"] for row in answer["summary"]} == {60}
    assert answer["summary"][1]["mean_ape"] < 0.2
    assert answer["summary"][0]["coverage_sigma"] is not None
    assert answer["summary"][1]["coverage_sigma"] is None
    assert set(answer["features"]) == {"size", "ranks", "solver"}
    assert sum(answer["features"].values()) == pytest.approx(1)
    assert answer["left_out"] == {"machine": "always one", "note": "blank in line 2"}
    assert "left out: machine (always one); note (blank in line 2)" in err


def with_identifiers(path, n=60):
    """Runs that became slower one after another, so that an identifier predicts their times."""
    rng = np.random.default_rng(3)
    lines = ["run_id,started,size,label,threads,seconds"]
    for i in range(n):
        size, threads = int(rng.integers(10, 3000)), int(2 ** rng.integers(0, 5))
        lines.append(f"{i % 7},{1_500_000_000 + 60 * i},{size},r{i:03},{threads},{size / threads * (1 + i):.6f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_identifiers_of_runs_are_no_features_unless_they_are_named(tmp_path, capsys):
    path = with_identifiers(tmp_path / "runs.csv")
    words = (path, "--time", "seconds", "--models", "trees-log", "--json")
    assert runtime(*words) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert set(answer["features"]) == {"size", "threads"}
    assert {name: reason.partition(":")[0] for name, reason in answer["left_out"].items()} == {
        "run_id": "named as an identifier",
        "started": "whole numbers in the order of the lines",
        "label": "another text in each line",
    }
    assert "run_id (named as an identifier: --features includes it)" in err
    assert runtime(*words, "--features", "size,threads,started,run_id") == 0
    named = json.loads(capsys.readouterr().out)
    assert set(named["features"]) == {"size", "threads", "started", "run_id"}
    assert named["left_out"] == {}
    assert named["summary"][0]["mean_ape"] < answer["summary"][0]["mean_ape"]


@pytest.mark.parametrize(
    ("name", "cells", "identifier"),
    [
        ("Run", ["3", "1", "3"], True),
        ("jobid", ["3", "1", "3"], True),
        ("job index", ["3", "1", "3"], True),
        ("run2", ["3", "1", "3"], True),
        ("4", ["3", "1", "3"], False),
        ("runs", ["3", "1", "3"], False),
        ("grid", ["3", "1", "3"], False),
        ("indexes_built", ["3", "1", "3"], False),
        ("n", ["1", "2", "3"], True),
        ("n", ["9", "5", "3"], True),
        ("n", ["1", "3", "2"], False),  # distinct, in no order: sizes of a random plan
        ("n", ["1", "2", "2"], False),
        ("tolerance", ["0.1", "0.2", "0.3"], False),
        ("host", ["a", "b", "c"], True),
        ("host", ["a", "b", "a"], False),
    ],
)
def test_an_identifier_is_recognised_by_name_or_by_distinct_ordered_cells(name, cells, identifier):
    assert (identifier_reason(name, cells) is not None) == identifier


def test_a_file_with_nothing_but_identifiers_keeps_them(tmp_path, capsys):
    lines = [f"{i},{(i * 7) % 11 + 1}" for i in range(1, 41)]
    (tmp_path / "r.csv").write_text("n,seconds\n" + "\n".join(lines) + "\n")
    assert runtime(tmp_path / "r.csv", "--time", "seconds", "--models", "lasso", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer["features"]) == {"n"}
    assert answer["left_out"] == {}


def test_a_model_that_stops_at_its_limit_is_marked(runs, monkeypatch, capsys):
    words = (runs, "--time", "seconds", "--models", "svr,forest")
    monkeypatch.setattr(learners, "SVR_ITERATIONS", 3)
    assert runtime(*words) == 0
    out = capsys.readouterr().out
    assert "svr *" in out
    assert "forest *" not in out
    assert "* had not converged at its limit of iterations, and is scored as it stood" in out


def test_all_of_a_file_is_learned_and_another_one_scored(runs, tmp_path, capsys):
    test = write(tmp_path / "test.csv", 40, 1)
    assert runtime(runs, "--test", test, "--time", "seconds", "--models", "trees-log", "--json") == 0
    row = json.loads(capsys.readouterr().out)["summary"][0]
    assert (row["learned"], row["scored"]) == (120, 40)


def test_with_a_source_transfer_models_are_better_than_models_of_the_target_alone(runs, tmp_path, capsys):
    target = write(tmp_path / "target.csv", 200, 2, speed=3.0)
    words = ("--source", runs, "--time", "seconds", "--train-share", "0.1", "--json")
    assert runtime(target, *words, "--models", "transfer,ratio,barograph-transfer,transfer-forest,forest") == 0
    errors = {row["model"]: row["mean_ape"] for row in json.loads(capsys.readouterr().out)["summary"]}
    assert max(errors[name] for name in ("transfer", "barograph-transfer", "transfer-forest")) < errors["forest"]


def wide(n, seed, noise=28):
    """Runs whose time is a product of two of many features."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(1, 10, size=(n, 2 + noise))
    names = ("a", "b", *(f"noise{i}" for i in range(noise)))
    return Sample(names, values, values[:, 0] ** 2 * values[:, 1])


def test_many_features_are_selected_by_importance_before_the_expansion_to_order_3():
    learned, scored = wide(300, 0), wide(100, 1)
    selected, plain = SelectedTrees(seed=1).fit(learned), Trees(seed=1).fit(learned)
    assert MAX_SELECTED == 16
    assert (selected.order, plain.order) == (3, 2)
    errors = [np.abs(one.predict(scored.values) / scored.seconds - 1).mean() for one in (selected, plain)]
    assert errors[0] < errors[1]
    assert selected.moments(scored.values).sigma.shape == (100,)
    broken = scored.values.copy()
    broken[3, 29] = np.nan
    with pytest.raises(ValueError, match="run 3: feature 'noise27' is nan, expected a finite number"):
        selected.predict(broken)


def test_few_features_are_expanded_as_they_are():
    learned, scored = wide(80, 0, noise=3), wide(20, 1, noise=3)
    both = [one.fit(learned).predict(scored.values) for one in (SelectedTrees(seed=1), Trees(seed=1))]
    assert (both[0] == both[1]).all()


def test_the_table_lists_the_best_model_first(runs, capsys):
    assert runtime(runs, "--time", "seconds", "--models", "lasso,trees-log") == 0
    out = capsys.readouterr().out
    assert "60 runs learned, 60 scored" in out
    assert out.index("trees-log") < out.index("lasso")
    assert "importance: " in out


def test_a_feature_that_orders_runs_as_their_times_do_is_noted(tmp_path, capsys):
    lines = [f"{i},{i * 2.5 + 1}" for i in range(1, 41)]
    (tmp_path / "r.csv").write_text("cycles,seconds\n" + "\n".join(lines) + "\n")
    assert runtime(tmp_path / "r.csv", "--time", "seconds", "--models", "lasso") == 0
    assert "column 'cycles' orders the runs as their times do" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--time", "walltime"],
            "has no column 'walltime', expected one of size, ranks, solver, machine, note, seconds",
        ),
        (["--time", "seconds", "--features", "sise"], "has no column 'sise'"),
        (
            ["--time", "seconds", "--features", "size,note"],
            "line 2: column 'note' is blank, expected a value in each line",
        ),
        (["--time", "seconds", "--features", "machine"], "has no column to predict 'seconds' from"),
        (["--time", "seconds", "--features", "size,seconds"], "column 'seconds' is both time and feature"),
        (["--time", "seconds", "--models", "magic"], "--models: no model 'magic', expected all or some of lasso, "),
        (["--time", "seconds", "--train-share", "0.05"], "6 of 120 runs are to learn, expected at least 10"),
        (["--time", "seconds", "--train-share", "1"], "0 of 120 runs are to score, expected at least 2"),
        (["--time", "solver"], "line 2: column 'solver' is "),
    ],
)
def test_bad_input_is_named(runs, capsys, words, message):
    assert runtime(runs, *words) == 65
    assert message in capsys.readouterr().err


def test_a_train_share_above_1_is_refused(runs, capsys):
    with pytest.raises(SystemExit) as refused:
        runtime(runs, "--time", "seconds", "--train-share", "5")
    assert refused.value.code == 2
    assert "'5', expected a share above 0 and at most 1" in capsys.readouterr().err
