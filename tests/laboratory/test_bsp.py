"""The measurement program: reproducible amounts, consistent times, and output files."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from barograph.cli import main as barograph
from barograph_lab.bsp import report, workloads
from barograph_lab.bsp.harness import Times
from barograph_lab.bsp.workloads import DISTRIBUTIONS, BadParameter, amounts, make, parameters
from helpers import mpi as mpis
from helpers.mpi import Mpi


@pytest.fixture(params=mpis.WHEELS)
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return mpis.find(request.param)


def bsp(mpi: Mpi, ranks: int, *words: str | Path) -> subprocess.CompletedProcess[str]:
    assert mpi.python is not None
    environment = {**os.environ, **mpi.environment(), "OMP_NUM_THREADS": "1"}
    if str(mpi.python.parent.parent) != sys.prefix:
        # That environment has mpi4py and numpy; other dependencies of the agent come from this one, after them.
        sources = [Path(__file__).parents[2] / name for name in ("agent", "collector", "modeler", "deploy")]
        environment["PYTHONPATH"] = ":".join(map(str, [*sources, sysconfig.get_paths()["purelib"]]))
    program = [str(mpi.python), "-m", "barograph", "bsp", *map(str, words)]
    return subprocess.run(
        mpi.command(ranks, program), env=environment, capture_output=True, text=True, check=False, timeout=200
    )


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_amounts_depend_on_seed_and_rank_and_have_the_requested_mean(distribution: str) -> None:
    values = parameters("ftq", distribution, {})
    drawn = amounts("ftq", distribution, values, 20_000, seed=1, rank=0)
    assert (drawn == amounts("ftq", distribution, values, 20_000, seed=1, rank=0)).all()
    others = [amounts("ftq", distribution, values, 20_000, seed, rank) for seed, rank in [(1, 1), (2, 0)]]
    assert all((drawn != other).any() for other in others) or distribution == "constant"
    assert drawn.mean() == pytest.approx(1e6, rel=0.05)  # a millisecond
    assert drawn.min() >= 0
    assert amounts("fwq", distribution, parameters("fwq", distribution, {}), 10, 1, 0).max() < 1e6


def test_parameters_are_checked_by_name_and_range() -> None:
    assert parameters("ftq", "gamma", {"shape": "2"}) == {"unit": 1e-3, "shape": 2.0, "scale": 0.25}
    for workload, given, words in [
        ("ftq", {"sd": "1"}, "parameter 'sd' of ftq, expected one of unit, shape, scale"),
        ("ftq", {"shape": "-1"}, "parameter shape is -1, expected a number of at least 0"),
        ("ftq", {"shape": "nan"}, "parameter shape is nan, expected a number of at least 0"),
        ("dgemm", {"size": "0"}, "parameter size is 0, expected a number of at least 1"),
        ("spmv", {"size": "many"}, "parameter size is 'many', expected a number"),
    ]:
        with pytest.raises(BadParameter) as raised:
            parameters(workload, "gamma", given)
        assert str(raised.value) == words


def test_the_sparse_product_equals_the_five_point_stencil(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = np.add.reduceat
    monkeypatch.setattr(workloads.np, "add", type("Add", (), {"reduceat": lambda *a: seen.append(original(*a))}))
    make("spmv", "normal", {"size": 5, "times": 1}, 1, seed=3, rank=2)(0)
    x = np.random.default_rng([3, 2]).random((5, 5))
    around = sum(np.roll(x, shift, axis) for shift in (1, -1) for axis in (0, 1))
    assert seen[0].reshape(5, 5) == pytest.approx(4 * x - around)


def test_the_cost_of_a_barrier_is_the_time_of_its_last_rank() -> None:
    work, barrier = np.array([[4, 8], [6, 2]]), np.array([[3, 1], [1, 7]])
    times = Times(work * 10**6, barrier * 10**6, np.array([7, 9]) * 10**6, ("a", "b"))
    found = report.summary(times)
    assert found["barrier"]["mean"] == pytest.approx(1e-3)
    assert found["barrier"]["share"] == pytest.approx(2 / 16)
    assert found["work"]["mean"] == pytest.approx(5e-3)
    assert (found["maxima"]["max"], found["ranks"], found["intervals"]) == (pytest.approx(9e-3), 2, 2)


def test_each_row_of_a_rank_has_its_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = np.random.default_rng(1).integers(900, 1100, size=(4, 60)) * 1000
    times = Times(drawn, np.zeros_like(drawn), drawn.max(axis=0), ("n1", "n1", "n2", "n2"))
    report.write(tmp_path, "ftq", times)
    with (tmp_path / "ranks.csv").open() as file:
        hosts = {(row["rank"], row["host"]) for row in csv.DictReader(file)}
    assert hosts == {("0", "n1"), ("1", "n1"), ("2", "n2"), ("3", "n2")}
    words = ["--value", "work_seconds", "--by", "workload", "--rank", "rank", "--node", "host"]
    assert barograph(["backtest", "bands", str(tmp_path / "ranks.csv"), *words]) == 0
    assert "nodes-2x" in capsys.readouterr().out


@pytest.mark.parametrize("workload", ["ftq", "fwq", "dgemm", "spmv"])
def test_two_ranks_measure_and_write_their_times(mpi: Mpi, tmp_path: Path, workload: str) -> None:
    given = ["--param", "size=32"] if workload in workloads.SIZES else ["--dist", "gamma", "--param", "shape=9"]
    words = ["--workload", workload, "--intervals", "20", "--halo", "100", "--json", "--output", tmp_path, *given]
    done = bsp(mpi, 2, *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["ranks"], found["intervals"], found["seed"]) == (2, 20, 0)
    with (tmp_path / "ranks.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (tmp_path / "maxima.csv").open() as file:
        maxima = [float(row["maximum_seconds"]) for row in csv.DictReader(file)]
    assert (len(rows), len(maxima)) == (40, 20)
    assert {row["host"] for row in rows} == {socket.gethostname()}
    for row in rows:
        if row["rank"] == "0":
            both = float(row["work_seconds"]) + float(row["barrier_seconds"])
            assert both == pytest.approx(maxima[int(row["interval"])], abs=3e-9)
    if workload == "ftq":
        values = parameters("ftq", "gamma", {"shape": "9"})
        for rank in (0, 1):
            asked = amounts("ftq", "gamma", values, 20, seed=0, rank=rank) * 1e-9
            spent = [float(row["work_seconds"]) for row in rows if row["rank"] == str(rank)]
            assert all(one >= least - 1e-8 for one, least in zip(spent, asked, strict=True))


def test_the_backtest_reads_maxima(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = bsp(mpis.find("mpich"), 2, "--workload", "fwq", "--intervals", "60", "--output", tmp_path)
    assert done.returncode == 0
    assert (
        barograph(["backtest", "bands", str(tmp_path / "maxima.csv"), "--value", "maximum_seconds", "--by", "workload"])
        == 0
    )
    assert "same-scale" in capsys.readouterr().out


def test_an_error_is_printed_once(tmp_path: Path) -> None:
    for words, line in [
        (["--workload", "ftq", "--intervals", "0"], "argument --intervals: '0', expected 1 to 10000000"),
        (
            ["--workload", "ftq", "--intervals", "5", "--param", "x=1"],
            "parameter 'x' of ftq, expected one of unit, mean, sd",
        ),
    ]:
        done = bsp(mpis.find("mpich"), 2, *words)
        assert done.returncode != 0
        assert done.stderr.count(f"barograph bsp: error: {line}\n") == 1
    blocked = tmp_path / "file"
    blocked.touch()
    done = bsp(mpis.find("mpich"), 1, "--workload", "ftq", "--intervals", "5", "--output", blocked)
    assert done.returncode == 73
    assert done.stderr == f"barograph bsp: {blocked}: File exists, expected a directory to write to\n"
