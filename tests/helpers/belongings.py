"""What a reader of the documentation has at hand: measurements, a history, programs, under the names the pages use."""

from __future__ import annotations

import csv
import gzip
import itertools
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from helpers import job_log as job_logs
from helpers import mpi as mpis
from helpers.scaling import law

PROGRAMS: Final = Path(__file__).resolve().parents[1] / "agent/programs"
SACCT: Final = """\
JobID|JobName|State|ElapsedRaw|NTasks|NNodes|NCPUS|Start|End|User|Cluster|Restarts|NodeList
4711|job.sh|COMPLETED|70||1|4|2026-01-02T03:04:05|2026-01-02T03:05:15|alice|lab|0|n1
4711.0|wave|COMPLETED|60|4|1|4|2026-01-02T03:04:06|2026-01-02T03:05:06|alice|lab|0|n1
"""
LAMMPS: Final = """\
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 ${x} 0 4 0 4
create_box 1 box
create_atoms 1 box
mass 1 1.0
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
run 100
"""
SOLVE: Final = """\
from barograph_agent import interval

for _ in range(10):
    with interval("step"):
        sum(range(1000))
"""
DAYS: Final = (*(f"2022_03_{day}" for day in range(20, 31)), "2022_05_09", "2022_05_10")
"""Enough of them healthy for the table of what can be found."""
CASES: Final = ("solver", "hpcg", "lammps")
"""What the pages' examples are called, programs and inputs alike."""


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """The rows as a CSV file with a line of column names."""
    lines = list(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def runs(
    time: str, scale: str, other: Mapping[str, Any], *, sizes: str = "", cases: str = "", largest: int = 64
) -> list[dict[str, Any]]:
    """Runs of several cases and of two sizes, where there is a column for them, on 1 to so many ranks."""
    scales = 2 ** np.arange(largest.bit_length())
    rng = np.random.default_rng(1)
    rows = []
    for case, n, ranks in itertools.product(CASES if cases else CASES[:1], (1, 2) if sizes else (1,), scales):
        row = dict(other) | ({cases: case} if cases else {}) | ({sizes: 1000 * n} if sizes else {})
        seconds = law(ranks, n) * (1.0 if case == CASES[0] else 2.0) * float(rng.lognormal(0, 0.01))
        rows.append(row | {scale: ranks, time: round(seconds, 6)})
    return rows


def maxima(folder: Path) -> None:
    """Series of interval maxima at four scales."""
    rng = np.random.default_rng(2)
    sets = [
        {
            "set_id": number,
            "system": "daint",
            "collective": "allreduce",
            "msg_bytes": size,
            "p": p,
            "date_utc_local": day,
        }
        for number, (size, p, day) in enumerate(itertools.product((8,), (4, 8), DAYS))
    ]
    write(folder / "sets.csv", sets)
    values = ((row["set_id"], i, rng.gumbel(10 + row["p"] / 8, 1)) for row in sets for i in range(640))
    write(folder / "samples.csv", ({"set_id": s, "iter": i, "max_us": round(v, 4)} for s, i, v in values))
    shutil.copy(folder / "samples.csv", folder / "shuffled.csv")
    ranks = itertools.product(range(16), range(200))
    single = ({"system": "daint", "collective": "allreduce", "rank": r, "us": rng.gumbel(10, 1)} for r, _ in ranks)
    write(folder / "perrank.csv", single)
    windows = ({"trace_no": 1, "sum_us": round(u, 3)} for u in rng.gamma(2.0, 20.0, 4400))
    write(folder / "windows.csv", windows)


def job_log(folder: Path) -> None:
    """A log of a scheduler."""
    log = job_logs.write(folder / "log.swf", job_logs.repetitive(200, 1))
    (folder / "LANL-CM5-1994-4.1-cln.swf.gz").write_bytes(gzip.compress(log.read_bytes()))


def features(folder: Path) -> None:
    """Runs whose time follows from what they counted, on two machines."""
    rng = np.random.default_rng(3)

    def made(factor: float, time: str, count: int = 20) -> list[dict[str, Any]]:
        rows = []
        for _ in range(count):
            m, n, nodes = rng.integers(100, 1000), rng.integers(10, 100), 2 ** rng.integers(0, 5)
            seconds = factor * (1 + 1e-3 * m * n / nodes) * rng.lognormal(0, 0.02)
            rows.append({"m": m, "n": n, "nodes": nodes, "ppn": 4 + n % 3, time: round(seconds, 5)})
        return rows

    write(folder / "runs.csv", made(1, "runtime_seconds"))
    for name, factor, count in (("train", 1.0, 24), ("test", 1.0, 24), ("there", 1.0, 220), ("here", 2.5, 220)):
        write(folder / f"{name}.csv", made(factor, "time_s", count))


def scaling(folder: Path) -> None:
    """Runs at several scales, in the columns that the page on the predictor names."""
    rows = runs("seconds", "ranks", {"application": "solver"}, sizes="n", cases="input")
    write(folder / "runs.csv", rows)
    write(folder / "small.csv", (row for row in rows if row["ranks"] <= 8))
    write(folder / "large.csv", (row for row in rows if row["ranks"] > 8))
    public(folder)


def public(folder: Path) -> None:
    """Stand-ins for published measurements, with their columns."""
    cabana = {"campaign": "c", "memory_type": "device", "send_type": "s", "nodes": 1}
    backend = {"backend": "Cray-MPICH-CXI-GPU-Enabled"}
    exchanges = (runs("time_s", "p", {**cabana, **backend, "ppn": ppn}, sizes="n_edge") for ppn in (1, 4))
    write(folder / "cabanaghost_strong.csv", itertools.chain.from_iterable(exchanges))
    write(folder / "epcc_apps.csv", runs("time_s", "nodes", {"config_dir": "c", "params": ""}, cases="benchmark"))
    blocks = runs("time_s", "p", {"scaling": "weak"}, cases="series", largest=256)
    write(
        folder / "athenak_polaris.csv", (row | {"zone_cycles_per_s": 1e6 * row["p"] / row["time_s"]} for row in blocks)
    )
    elements = runs("time_s", "nodes", {"alg": "SL", "qsize": 10}, sizes="n_elem")
    write(folder / "e3sm_hommexx_summit.csv", elements)
    write(folder / "e3sm_v2_chrysalis_strong.csv", runs("time_s", "p", {"compset": "A"}, cases="case"))
    write(folder / "wavetrisk_strong.csv", runs("time_s", "p", {}, cases="system"))


def programs(folder: Path) -> None:
    """Programs with MPI and without, and an input of LAMMPS, under the names that pages give to the reader's own."""
    mpis.find("mpich").compile(PROGRAMS / "blocking.c", folder / "app")
    (folder / "in.lj").write_text(LAMMPS)
    (folder / "solve.py").write_text(SOLVE)


def history(folder: Path) -> None:
    """What a batch system remembers."""
    (folder / "history.txt").write_text(SACCT)
    write(folder / "runs.csv", runs("walltime", "np", {"mesh": "fine"}, cases="code"))


def tutorial(folder: Path) -> None:
    """The program that the tutorial prints."""
    page = Path(__file__).resolve().parents[2] / "docs/user/tutorial.md"
    program = page.read_text().partition("```python\n")[2].partition("```")[0]
    (folder / "app.py").write_text(program)


BY_PAGE: Final[dict[str, list[Callable[[Path], None]]]] = {
    "docs/engineer/alerts.md": [maxima],
    "docs/engineer/backtest.md": [maxima, job_log],
    "docs/engineer/features.md": [features],
    "docs/engineer/recognition.md": [programs],
    "docs/engineer/scaling.md": [scaling],
    "docs/engineer/scaling-papers.md": [public],
    "docs/engineer/variability.md": [maxima],
    "docs/operator/import.md": [history],
    "docs/engineer/bsp.md": [programs],
    "docs/user/in-app.md": [programs],
    "docs/user/run.md": [programs],
    "README.md": [programs],
}
