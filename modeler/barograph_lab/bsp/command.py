"""`barograph bsp`: the measurement program of the maxima paper, under mpiexec."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
from pathlib import Path
from typing import Final

from barograph.cli import CommandError, Parser, checked
from barograph_agent.api.intervals import place
from barograph_agent.job.identity import JobError, parse_params
from barograph_lab.bsp import harness, report, workloads

CANNOT_WRITE: Final = 73
MOST_INTERVALS: Final = 10**7


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="barograph bsp",
        usage="mpiexec -n RANKS barograph bsp --workload NAME --intervals K [OPTION]...",
        description="Run K intervals of a workload on each rank, each between barriers, and report how long ranks "
        "worked, the maximum over ranks, and the cost of the barrier itself.",
    )
    add = parser.add_argument
    add("--workload", required=True, choices=[*workloads.UNITS, *workloads.SIZES])
    count = checked(int, lambda intervals: 0 < intervals <= MOST_INTERVALS, f"1 to {MOST_INTERVALS}")
    add("--intervals", required=True, type=count, metavar="K", help="number of intervals")
    add(
        "--dist",
        choices=list(workloads.DISTRIBUTIONS),
        default="normal",
        help="the work of ftq and fwq in an interval (default: %(default)s)",
    )
    add("--param", action="append", default=[], metavar="NAME=VALUE", help="a parameter of workload or distribution")
    add("--halo", type=int, default=0, metavar="BYTES", help="exchange BYTES with each of four neighbours per interval")
    add("--seed", type=int, default=0, help="of all random draws (default: %(default)s)")
    add("--output", type=Path, metavar="DIR", help="write ranks.csv and maxima.csv there")
    add("--json", action="store_true", help="print one JSON object")
    return parser


def main(arguments: list[str]) -> int:
    """Measure; rank 0 prints. 73 if the files cannot be written."""
    # Only rank 0 prints errors. Arguments are checked before MPI_Init because some launchers hang on an exit after it.
    quiet = contextlib.redirect_stderr(io.StringIO()) if place(os.environ)[0] > 0 else contextlib.nullcontext()
    with quiet:
        parser = _parser()
        options = parser.parse_args(arguments)
        if options.halo < 0 or options.seed < 0:
            parser.error("--halo and --seed, expected 0 or more")
        try:
            values = workloads.parameters(options.workload, options.dist, parse_params(options.param))
        except (JobError, workloads.BadParameter) as error:
            parser.error(str(error))
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    work = workloads.make(options.workload, options.dist, values, options.intervals, options.seed, comm.Get_rank())
    halo = harness.halo_exchange(MPI, comm, options.halo) if options.halo else None
    times = harness.run(comm, work, options.intervals, halo)
    if times is None:
        return 0
    found = {"seed": options.seed, "parameters": values, **report.summary(times)}
    print(json.dumps(found) if options.json else report.text(options.workload, found), flush=True)
    try:
        if options.output is not None:
            report.write(options.output, options.workload, times)
    except OSError as error:
        text = f"{error.filename}: {error.strerror}, expected a directory to write to"
        raise CommandError(text, CANNOT_WRITE) from error
    return 0
