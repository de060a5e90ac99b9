"""The demo from beginning to end."""

from __future__ import annotations

import argparse
import contextlib
import math
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from barograph.demo.application import DemoError, Lammps
from barograph.demo.chronicle import Chapter, newest_job, read_band, read_chapter, wait_intervals, wait_learned
from barograph.demo.service import MARGIN, Service
from barograph.demo.story import DemoStory, headline, learned, write_page
from barograph_alerts.detection.evidence import ALPHA
from barograph_alerts.detection.tolerance import tolerance

RUN_SECONDS: Final = 8.0
FEWEST_RUNS: Final = 3
LEARNING_RUNS: Final = 5
MAX_LEARNING_RUNS: Final = 8
CLEAR: Final = math.log(2.0)
"""Enough has been learned once a run has to be this much slower, as a logarithm, to alarm."""
RUN_LIMIT_SECONDS: Final = 180.0


class Demo:
    """One demo: a service, an application, and the runs made so far."""

    def __init__(self, service: Service, lammps: Lammps, directory: Path, console: Console) -> None:
        self._service = service
        self._lammps = lammps
        self._directory = directory
        self._console = console
        self._reader = service.reader()
        self._jobs: set[str] = set()
        self._steps = 0

    def play(self) -> DemoStory:
        """Learn, disturb, and run once more."""
        with self._console.status("warming up"):
            speed = self._lammps.steps_per_second()
        self._steps = max(200, round(speed * RUN_SECONDS / 100) * 100)
        self._console.print(
            f"LAMMPS makes {speed:,.0f} steps a second on {self._lammps.ranks} ranks; runs are {self._steps:,} steps."
        )
        learning = self._learn()
        disturbed, hog_at = self._run("disturbed", disturb_after=learning[0].counted // 2)
        healthy, _ = self._run("healthy again")
        band = read_band(self._reader, disturbed.workload, learning)
        return DemoStory(learning, disturbed, healthy, band, hog_at)

    def _learn(self) -> list[Chapter]:
        """Healthy runs until the pace rests on enough of them: on a noisy machine more are needed."""
        chapters: list[Chapter] = []
        pace = None
        while len(chapters) < MAX_LEARNING_RUNS:
            chapter, _ = self._run(f"healthy {len(chapters) + 1}")
            chapters.append(chapter)
            pace = wait_learned(self._reader, chapter.workload, (pace.runs if pace else 0) + 1, 15.0)
            if pace is not None and pace.runs >= LEARNING_RUNS and tolerance(pace, MARGIN, ALPHA / 8) < CLEAR:
                break
        if pace is None or pace.runs < FEWEST_RUNS:
            raise DemoError(f"only {pace.runs if pace else 0} of {len(chapters)} healthy runs were learned from")
        return chapters

    def _run(self, title: str, disturb_after: int | None = None) -> tuple[Chapter, float]:
        lines = self._directory / "run.txt"
        hog_at = math.nan
        process = self._lammps.start_watched(self._steps, self._service.environment, lines)
        try:
            with self._console.status(f"{title}: running") as status:
                job = newest_job(self._reader, self._jobs, 60.0)
                self._jobs.add(job)
                if disturb_after is None:
                    process.wait(RUN_LIMIT_SECONDS)
                else:
                    wait_intervals(self._reader, job, disturb_after, lambda: process.poll() is None)
                    status.update(f"{title}: a CPU hog is on its cores")
                    with self._lammps.hogged() as hog_at:
                        process.wait(RUN_LIMIT_SECONDS)
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise DemoError(f"run {title!r}: {error}\n{lines.read_text()}") from error
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if process.returncode != 0:
            raise DemoError(f"run {title!r} ended with status {process.returncode}:\n{lines.read_text()}")
        try:
            chapter = read_chapter(self._reader, title, job)
        except TimeoutError as error:
            raise DemoError(f"run {title!r}: {error}") from None
        style = "red" if chapter.state == "slow" else ""
        self._console.print(
            f"  {title:<14} {chapter.counted:,} intervals, {chapter.stored:,} rows, {chapter.runtime_seconds:6.2f} s  "
            f"{chapter.sentence}",
            style=style,
            highlight=False,
        )
        return chapter, hog_at


def tell(story: DemoStory, service: Service, output: Path, console: Console) -> None:
    """Print the story, write picture and page."""
    output.mkdir(parents=True, exist_ok=True)
    console.print(f"\n{headline(story)}.", style="bold")
    console.print(learned(story.band))
    if story.band is not None:
        from barograph.demo.picture import draw

        draw(story.disturbed, story.healthy, story.band, story.hog_at, output / "demo.png")
        write_page(story, output / "demo.png", output / "demo.html")
        console.print(f"Picture: {output / 'demo.png'}   Report: {output / 'demo.html'}")
    console.print("Metrics: " + "  ".join(service.metrics))
    for holds, text in story.checks():
        console.print(f"  [{'green' if holds else 'bold red'}]{'yes' if holds else 'NO '}[/]  {text}", highlight=False)
    if not story.true and story.restless:
        console.print(story.restless)


def main(arguments: Sequence[str]) -> int:
    """Run the demo; 0 only if everything it tells really happened."""
    parser = argparse.ArgumentParser(
        prog="barograph demo",
        description="Watch unmodified LAMMPS on two ranks, disturb one run with a CPU hog, and tell how it was caught. "
        f"Slowdowns below {MARGIN:.0%} are not news here: shared machines change pace by that much on their own.",
    )
    parser.add_argument("--keep", action="store_true", help="leave the daemons running, and say how to stop them")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("demo-output"),
        metavar="DIR",
        help="for picture and report (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200)
    # SIGTERM ends daemons and hogs too, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    state = Path(tempfile.mkdtemp(prefix="barograph-demo-"))
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, state, ignore_errors=True)
        try:
            lammps = Lammps(state)
            service = Service(state)
            ending.callback(service.stop)
            with console.status("starting collector, modeler and alerts"):
                service.wait_ready()
            story = Demo(service, lammps, state, console).play()
            tell(story, service, options.output, console)
            if options.keep:
                ending.pop_all()
                console.print(f"The daemons stay up: BAROGRAPH_COLLECTOR={service.endpoint}, state {state}")
                console.print(f"Stop them with: kill -INT {service.pid}")
        except DemoError as error:
            console.print(f"barograph demo: {error}", style="bold red", markup=False)
            return 1
        except KeyboardInterrupt:
            return 130
    return 0 if story.true else 1
