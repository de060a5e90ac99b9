"""`barograph study`: the papers' tables from a CSV file of runs, on applications with known results."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from barograph.cli import main as barograph
from barograph_lab.studies.greybox.greybox_study import LABELS
from barograph_lab.studies.greybox.split import split
from barograph_lab.studies.runs import Grid, figure
from barograph_lab.studies.weak import weak_study
from barograph_lab.studies.weak.weak_study import best_of_repeats
from barograph_modeler.scaling.history import Runs

SCALES = [1, 2, 4, 8, 16, 32, 64]


def grey_csv(path, edges=(10, 20, 40), repeats=2):
    """Two applications over edges of a cube: one is Amdahl's law with p = 0.99, the other slows down as ranks grow."""
    rng = np.random.default_rng(0)
    lines = ["app,nodes,ranks,edge,time,extra"]
    for app, slope in (("exact", 0.0), ("heavy", 0.02)):
        for edge in edges:
            for n in SCALES:
                for _ in range(repeats):
                    seconds = edge**3 / 100 * (0.01 + 0.99 / n) * (1 + slope * n) * (1 + 0.002 * rng.random())
                    lines.append(f"{app},{-(-n // 4)},{n},{edge},{seconds},")
    path.write_text("\n".join(lines) + "\n")
    return path


def weak_csv(path, scales=SCALES):
    rng = np.random.default_rng(0)
    lines = ["series,ranks,size,time,rate"]
    for series, beta in (("flat", 0.0), ("rising", 0.08)):
        for n in scales:
            for _ in range(3):
                seconds = 100 * n**beta * (1 + 0.01 * rng.random())
                lines.append(f"{series},{n},{round(1000 * n ** (1 / 3))},{seconds},{n * 1e6 / seconds}")
    path.write_text("\n".join(lines) + "\n")
    return path


def rows_of(capsys, words):
    assert barograph(["study", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


GREY = ["--time", "time", "--ranks", "ranks", "--size", "edge", "--by", "app", "--complexity", "edge**3"]


def test_the_grey_box_tables_have_the_papers_rows_and_the_law_wins_where_it_holds(tmp_path, capsys):
    found = rows_of(
        capsys, ["grey-box", str(grey_csv(tmp_path / "runs.csv")), *GREY, "--scaling", "strong,hybrid,weak"]
    )
    table = found["tables"][0]
    assert table["title"] == "RMSE of speedup, strong scaling"
    assert table["rows"] == list(LABELS)
    assert table["columns"] == ["exact", "heavy"]
    error = {(row["application"][0], row["scaling"], row["model"]): row["rmse_relative"] for row in found["rows"]}
    for scaling in ("strong", "hybrid", "weak"):
        # Where Amdahl's law is exact, every estimate of p is right, and there is no overhead to learn.
        assert all(error["exact", scaling, label] < 0.02 for label in LABELS if label.startswith("Amdahl"))
        assert error["exact", scaling, "RF"] < 0.05
        # With a growing overhead, full data reduce the error of the law but do not remove it.
        assert error["heavy", scaling, "Amdahl Optimal p FD"] < error["heavy", scaling, "Amdahl Aggregate p"]
        assert error["heavy", scaling, "Amdahl Aggregate p"] > 0.1
    assert error["heavy", "strong", "Oliveira"] > 0
    assert error["heavy", "hybrid", "Oliveira"] is None


def test_two_levels_of_parallelism_add_a_column(tmp_path, capsys):
    path = str(grey_csv(tmp_path / "runs.csv", edges=(10, 20), repeats=1))
    one = rows_of(capsys, ["grey-box", path, *GREY])
    two = rows_of(capsys, ["grey-box", path, *GREY, "--nodes", "nodes"])
    learned = [next(row["errors"] for row in found["rows"] if row["model"] == "NN") for found in (one, two)]
    assert learned[0] != learned[1]
    assert one["tables"][0]["cells"][-1] == two["tables"][0]["cells"][-1]  # Amdahl's law does not depend on nodes


def test_few_training_targets_and_extrapolation_are_noted_with_the_tables(tmp_path, capsys):
    path = str(grey_csv(tmp_path / "runs.csv"))
    assert barograph(["study", "grey-box", path, *GREY, "--scaling", "strong"]) == 0
    out, err = capsys.readouterr()
    # Scales 1 to 64, c_f = 8 and c_h = 4: sizes 10 and 20 at 8 ranks are the targets.
    assert "**Distinct training targets, strong scaling**" in out
    assert "| median | 2 | 2 |" in out
    assert "strong: fewer than 5 distinct training targets (median over applications), the data cannot decide" in err
    assert "overhead models: exact 2, heavy 2" in err
    assert "overhead models extrapolate in m, in 2 of 2 applications: by up to 8 of its range" in err
    # Learned ranks: 2 and 4 in the context, 8 as the target, which is constant; 16 to 64 are predicted.
    assert "overhead models extrapolate in processes, in 2 of 2 applications: it never varied in training" in err


def dense_csv(path, scales=(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32, 48)):
    rows = [(n, edge) for edge in (10, 20, 40) for n in scales]
    lines = [f"dense,{n},{edge},{edge**3 / 100 * (0.01 + 0.99 / n)}" for n, edge in rows]
    path.write_text("\n".join(["app,ranks,edge,time", *lines]) + "\n")
    return path


def test_enough_training_targets_are_not_noted(tmp_path, capsys):
    path = str(dense_csv(tmp_path / "runs.csv"))
    assert barograph(["study", "grey-box", path, *GREY]) == 0
    out, err = capsys.readouterr()
    assert "| median | 8 |" in out  # 5, 6, 7 and 8 ranks of two sizes
    assert "cannot decide" not in err


def test_scored_runs_lie_beyond_the_cutoff_and_weak_lines_keep_the_work_per_process():
    n, m = (grid.ravel() for grid in np.meshgrid([1, 2, 4, 8], [1.0, 3.0, 4.0]))
    runs = Runs.of(n, m / n, size=m)
    strong = split(runs, "strong")
    assert (runs.ranks[strong.scored] > 2).all()
    assert set(runs.size[strong.trained]) == {1.0, 3.0}
    hybrid = split(runs, "hybrid")
    assert set(hybrid.w[hybrid.scored]) == {1 / 3, 1 / 4}
    weak = split(runs, "weak")  # 4 / 4 and 4 / 8 are work per process of size 1 on 1 and 2; thirds are of none
    assert runs.ranks[weak.scored].tolist() == [4, 8]
    assert runs.size[weak.scored].tolist() == [4, 4]


def test_the_weak_tables_score_scales_beyond_those_learned(tmp_path, capsys):
    path = str(weak_csv(tmp_path / "runs.csv"))
    words = ["weak", path, "--time", "time", "--performance", "rate", "--ranks", "ranks", "--by", "series"]
    found = rows_of(capsys, [*words, "--size", "size", "--complexity", "N**3", "--largest", "16"])
    assert {(row["series"][0], row["kind"], row["ranks"]) for row in found["rows"]} == {
        (series, kind, p) for series in ("flat", "rising") for kind in ("time", "performance") for p in (32, 64)
    }
    for row in found["rows"]:
        assert row["errors"]["log-bilinear"] < 0.05
        assert row["errors"]["log-bilinear + intercept"] < 0.05
    assert found["tables"][1]["rows"] == ["mean", "median", "largest"]
    without = rows_of(capsys, [*words, "--largest", "16"])
    assert all(row["errors"]["log-bilinear"] < 0.05 for row in without["rows"])


def test_scales_below_the_smallest_are_not_learned(tmp_path, capsys):
    path = weak_csv(tmp_path / "runs.csv")
    lines = path.read_text().splitlines()
    # One rank, alone on its node, takes half as long.
    odd = [",".join([*line.split(",")[:3], "50,20000"]) if ",1,1000," in line else line for line in lines]
    path.write_text("\n".join(odd) + "\n")
    words = ["weak", str(path), "--time", "time", "--ranks", "ranks", "--by", "series", "--largest", "16"]
    every, from_two = rows_of(capsys, words), rows_of(capsys, [*words, "--smallest", "2"])
    assert min(row["errors"]["log-bilinear"] for row in every["rows"]) > 0.1
    assert max(row["errors"]["log-bilinear"] for row in from_two["rows"]) < 0.05


def test_the_best_of_repeats_is_the_least_time_and_the_largest_performance():
    runs = Runs.of([2, 2, 1, 2], [3.0, 2.0, 5.0, 4.0])
    assert best_of_repeats(runs, "time").seconds.tolist() == [5, 2]
    assert best_of_repeats(runs, "performance").seconds.tolist() == [5, 4]


def test_a_grid_is_markdown_with_figures_of_three_decimals():
    grid = Grid("RMSE", ["RF", "NN"], ["a", "b"], [[0.56149, None], [1e6, 12.0]])
    assert grid.markdown() == "\n".join(
        ["**RMSE**", "", "| model | a | b |", "|---|---:|---:|", "| RF | 0.561 | N/A |", "| NN | 1.0e+06 | 12.000 |"]
    )
    assert figure(float("nan")) == "N/A"


def test_markdown_is_what_the_command_prints(tmp_path, capsys):
    path = str(weak_csv(tmp_path / "runs.csv"))
    assert barograph(["study", "weak", path, "--time", "time", "--ranks", "ranks", "--by", "series"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("**Relative error of time, per cent, per target**\n\n| target | log-bilinear |")
    assert re.search(r"^\| flat, 32 (\| \d+\.\d{3} ){5}\|$", out, re.MULTILINE)


BAD_GREY = ["--time", "time", "--ranks", "ranks", "--by", "app"]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({3: "x,1,0,10,1.0,"}, "line 4: column 'ranks' is '0', expected a number above 0"),
        ({3: "x,1,1000000000,10,1.0,"}, "ranks are 1e+09, expected a whole number from 1 to 100000000"),
        ({2: "x,1,2,10,0,"}, "line 3: column 'time' is '0', expected a number above 0"),
        ({2: "x,1,2,10,-4,"}, "line 3: column 'time' is '-4', expected a number above 0"),
        ({2: "x,1,2,10,,"}, "line 3: column 'time' is '', expected a number above 0"),
        ({2: "x,1,1,10,4000,"}, "repeats on 1 ranks, size 1, are 4 and 4000, expected within a factor of 100"),
    ],
)
def test_an_invalid_run_is_refused_with_its_line(tmp_path, capsys, cells, message):
    lines = ["app,nodes,ranks,edge,time,extra", "x,1,1,10,4,", "x,1,2,10,2,", "x,1,4,10,1,"]
    for at, text in cells.items():
        lines[at] = text
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(lines) + "\n")
    assert barograph(["study", "grey-box", str(path), *BAD_GREY]) == 65
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--scaling", "hybrid"], 2, "--scaling hybrid needs --size"),
        (["--scaling", "sideways"], 2, "'sideways', expected strong, hybrid, weak"),
        (["--complexity", "N**2"], 2, "--complexity is of a size, expected --size too"),
        (["--size", "edge", "--complexity", "N**"], 65, "'N**' is no expression"),
        (["--size", "missing"], 65, "has no column 'missing', expected one of app"),
        (["--size", "extra"], 65, "column 'extra' is '', expected a number above 0"),
        (["--where", "app=none"], 65, "no line has app=none"),
        (["--where", "ranks=1"], 65, "nothing to study in 2 applications; the first: exact, strong:"),
        (["--cutoff-ranks", "1"], 2, "'1', expected a number between 0 and 1"),
    ],
)
def test_invalid_options_and_columns_are_refused(tmp_path, capsys, words, status, message):
    path = str(grey_csv(tmp_path / "runs.csv"))
    try:
        found = barograph(["study", "grey-box", path, *BAD_GREY, *words])
    except SystemExit as end:
        found = end.code
    assert found == status
    assert message in capsys.readouterr().err


def test_one_scale_is_left_out_by_name(tmp_path, capsys):
    path = weak_csv(tmp_path / "runs.csv")
    path.write_text(path.read_text() + "alone,8,1,3.5,1\n")
    assert barograph(["study", "weak", str(path), "--time", "time", "--ranks", "ranks", "--by", "series"]) == 0
    assert "left out: alone, time: 1 scale, expected at least 2" in capsys.readouterr().err


PAGE = Path(__file__).resolve().parents[3] / "docs/engineer/scaling-papers.md"


def test_the_tables_in_the_documentation_have_the_form_that_the_command_prints():
    tables = re.findall(r"^\*\*(.+)\*\*\n\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    assert len(tables) >= 10
    for title, text in tables:
        header, ruler, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines())
        first = {"per target": "target", "targets": "over targets"}
        assert header[0] == next((name for end, name in first.items() if title.endswith(end)), "model"), title
        assert ruler == ["---", *["---:"] * (len(header) - 1)], title
        names = [row[0] for row in rows]
        if title.startswith("RMSE"):
            assert names == list(LABELS), title
        elif title.startswith("Distinct training targets"):
            assert names == ["fewest", "median", "most"], title
        else:
            assert title.startswith("Relative error of"), title
            assert header[1:] == list(weak_study.laws_of("time")), title
        for row in rows:
            assert len(row) == len(header), title
            assert all(re.fullmatch(r"\d+(\.\d{3})?|\d\.\de\+\d\d|N/A", cell) for cell in row[1:]), row
