"""The course of the demo, and its command line."""

from __future__ import annotations

import contextlib
import math
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console

from barograph.cli import Parser
from barograph.demo.application import DemoError, Lammps
from barograph.demo.interference import Interference
from barograph.demo.outcome import DemoOutcome, headline
from barograph.demo.runs import DemoRun, newest_job, read_run, wait_intervals, wait_learned
from barograph.demo.service import MARGIN, Service
from barograph.report.command import main as write_report
from barograph.terminal import console
from barograph_alerts.detection.alarm import ALPHA
from barograph_alerts.detection.tolerance import tolerance
from barograph_collector.client.log_reader import LogReader

RUN_SECONDS: Final = 8.0
FEWEST_RUNS: Final = 3
LEARNING_RUNS: Final = 5
MAX_LEARNING_RUNS: Final = 8
CLEAR: Final = math.log(2.0)
"""Learning ends when the smallest slowdown that raises an alarm is below this logarithm."""
RUN_LIMIT_SECONDS: Final = 180.0
MAX_ATTEMPTS: Final = 3


class Demo:
    """One demo: its service, its application, and the jobs run so far."""

    def __init__(self, service: Service, lammps: Lammps, directory: Path, console: Console) -> None:
        self._service = service
        self._lammps = lammps
        self._directory = directory
        self._console = console
        self._reader = LogReader(service.endpoint, 20.0)
        self._jobs: set[str] = set()
        self._steps = 0
        self._repeated: list[DemoRun] = []

    def play(self) -> DemoOutcome:
        """Run healthy jobs to learn from, then a disturbed and a healthy one."""
        with self._console.status("warming up"):
            speed = self._lammps.steps_per_second()
        self._steps = max(200, round(speed * RUN_SECONDS / 100) * 100)
        self._console.print(
            f"LAMMPS makes {speed:,.0f} steps a second on {self._lammps.ranks} ranks; runs have {self._steps:,} steps."
        )
        learning, learned = self._learn()
        disturbed, hog_at = self._run_alone("disturbed", disturb_after=learning[0].counted // 2)
        healthy, _ = self._run_alone("healthy again")
        return DemoOutcome(learning, learned, disturbed, healthy, hog_at, self._repeated)

    def _learn(self) -> tuple[list[DemoRun], int]:
        """Run healthy jobs until the pace is precise enough; a noisy machine needs more of them.

        Returns them, and the number of runs of the pace: not all where the machine changes its speed.
        """
        runs: list[DemoRun] = []
        pace = None
        while len(runs) < MAX_LEARNING_RUNS:
            run, _ = self._run(f"healthy {len(runs) + 1}")
            runs.append(run)
            pace = wait_learned(self._reader, run.workload, (pace.runs if pace else 0) + 1, 15.0)
            if pace is not None and pace.runs >= LEARNING_RUNS and tolerance(pace, MARGIN, ALPHA / 8) < CLEAR:
                break
        if pace is None or pace.runs < FEWEST_RUNS:
            raise DemoError(f"only {pace.runs if pace else 0} of {len(runs)} healthy runs were learned from")
        return runs, pace.runs

    def _run_alone(self, title: str, disturb_after: int | None = None) -> tuple[DemoRun, float]:
        """Repeat a run whose verdict is not about the hog, MAX_ATTEMPTS times at most.

        It is about others that take its cores, or was there before the hog.
        """
        for left in reversed(range(MAX_ATTEMPTS)):
            run, hog_at = self._run(title, disturb_after)
            expected = run.alarmed_after(hog_at) if disturb_after is not None else not run.alarmed
            early = disturb_after is not None and run.alarmed
            if expected or (run.left_alone and not early) or not left:
                break
            reason = "It was slow before the hog began" if run.left_alone else "Others took these cores"
            self._repeated.append(run)
            self._console.print(f"  {reason}, so this run is repeated.", style="yellow")
        return run, hog_at

    def _run(self, title: str, disturb_after: int | None = None) -> tuple[DemoRun, float]:
        lines = self._directory / "run.txt"
        hog_at = math.nan
        others, taken = Interference(self._lammps.cores), math.nan
        process = self._lammps.start_watched(self._steps, self._service.environment, lines)
        try:
            with self._console.status(f"{title}: running") as status:
                job = newest_job(self._reader, self._jobs, 60.0)
                self._jobs.add(job)
                if disturb_after is None:
                    process.wait(RUN_LIMIT_SECONDS)
                else:
                    wait_intervals(self._reader, job, disturb_after, lambda: process.poll() is None)
                    taken = others.share()
                    status.update(f"{title}: a CPU hog is on its cores")
                    with self._lammps.hogged() as hog_at:
                        process.wait(RUN_LIMIT_SECONDS)
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise DemoError(f"run {title!r}: {error}\n{lines.read_text()}") from error
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        taken = taken if math.isfinite(taken) else others.share()
        if process.returncode != 0:
            raise DemoError(f"run {title!r} ended with status {process.returncode}:\n{lines.read_text()}")
        try:
            run = replace(read_run(self._reader, title, job), taken=taken)
        except TimeoutError as error:
            raise DemoError(f"run {title!r}: {error}") from None
        style = "red" if run.alarmed else ""
        others_took = "" if run.left_alone else f" [others took {run.taken:.0%} of its cores]"
        self._console.print(
            f"  {title:<14} {run.counted:,} intervals, {run.stored:,} rows, {run.runtime_seconds:6.2f} s  "
            f"{run.sentence}{others_took}",
            style=style,
            highlight=False,
            markup=False,
        )
        return run, hog_at


def report(outcome: DemoOutcome, service: Service, output: Path, console: Console) -> None:
    """Print the outcome, and write reports of the last two runs."""
    output.mkdir(parents=True, exist_ok=True)
    console.print(f"\n{headline(outcome)}.", style="bold")
    for name, run in (("disturbed", outcome.disturbed), ("healthy", outcome.healthy)):
        write_report(["--job", run.job, "--collector", service.endpoint, "--output", f"{output / name}.html"])
    console.print("Metrics: " + "  ".join(service.metrics))
    for holds, text in outcome.checks():
        console.print(f"  [{'green' if holds else 'bold red'}]{'yes' if holds else 'NO '}[/]  {text}", highlight=False)
    if outcome.interference:
        console.print(outcome.interference)


def main(arguments: Sequence[str]) -> int:
    """Run the demo; 1 if one of its checks fails."""
    parser = Parser(
        prog="barograph demo",
        description="Watch unmodified LAMMPS on two ranks, disturb one with a CPU hog, and show how it is detected. "
        f"Slowdowns below {MARGIN:.0%} are ignored: the speed of shared machines varies by that much.",
    )
    parser.add_argument("--keep", action="store_true", help="leave the daemons running")
    parser.add_argument("--output", type=Path, default="demo-output", metavar="DIR", help="(default: %(default)s)")
    options = parser.parse_args(arguments)
    out = console()
    # SIGTERM stops daemons and hogs like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    state = Path(tempfile.mkdtemp(prefix="barograph-demo-"))
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, state, ignore_errors=True)
        try:
            lammps = Lammps(state)
            service = Service(state)
            ending.callback(service.stop)
            with out.status("starting collector, modeler and alerts"):
                service.wait_ready()
            outcome = Demo(service, lammps, state, out).play()
            report(outcome, service, options.output, out)
            if options.keep:
                ending.pop_all()
                out.print(f"The daemons keep running: BAROGRAPH_COLLECTOR={service.endpoint}, state {state}")
                out.print(f"Stop them with: kill -INT {service.pid}")
        except DemoError as error:
            out.print(f"barograph demo: {error}", style="bold red", markup=False)
            return 1
        except KeyboardInterrupt:
            return 130
    return 0 if outcome.passed else 1
