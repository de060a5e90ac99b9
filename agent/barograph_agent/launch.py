"""`barograph run`: runs a command under the shim with a sidecar, and prints a summary at the end.

The command runs even if watching it fails, and its exit status is returned.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec

from barograph_agent import shim
from barograph_agent.command import NotRunnable, start
from barograph_agent.job.identity import Job
from barograph_agent.job.rules import RulesError
from barograph_agent.settings import places
from barograph_agent.sidecar.plan import END as END_FILE
from barograph_agent.sidecar.plan import (
    NO_VERDICT,
    PLAN,
    RING_VARIABLE,
    RUN_VARIABLE,
    SIDECAR_VARIABLE,
    CommandEnd,
    DeliveryReport,
    RunOptions,
    begin_run,
    delete_rings,
    leave,
    load_report,
)
from barograph_agent.system.clock import CLOCK, until_step
from barograph_agent.system.listening import is_listening
from barograph_agent.system.processes import PROCESSES
from barograph_agent.work.hidden import MAX_PROGRAMS, Hidden, HiddenPrograms, of_command

_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_ISOLATION: Final = "-I" if sys.flags.isolated else "-P"  # -P: the user's PYTHONPATH has brought this module
_RESTART_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 20.0
"""Timeout for the sidecar's report, added to the time for delivery: a loaded node delays the sidecar's start."""


def run(command: Sequence[str], job: Job, settings: RunOptions, environment: Mapping[str, str], out: TextIO) -> int:
    """Run and watch `command`; returns its exit status as a shell reports it, 126 or 127 if it cannot be started."""
    guard = None
    try:
        if _wanted(job, settings, environment, out):
            try:
                guard = SidecarGuard(command, job, settings, environment)
            except Exception as error:
                print(f"barograph: not watching this run: {error}", file=out)
        status, runtime = _run_command(command, guard.environment if guard else environment, guard)
    except NotRunnable as error:
        if guard is not None:
            guard.clear()
        print(f"barograph: {error}", file=out)
        return error.status
    if guard is not None:
        try:
            if settings.drain_seconds > 0 and not is_listening(guard.plan.endpoint):
                where = f"at {guard.plan.endpoint}, where nothing listens; `barograph up` starts one"
                print(f"barograph: waiting up to {settings.drain_seconds:g} s for the collector {where}", file=out)
            end = CommandEnd(CLOCK.now(), runtime, status)
            report = guard.finish(end)
            _summarize(report, end, guard, _hidden(report, guard, command), out)
            print(f"barograph: job       {places.job_address(job.key, settings.endpoint, environment)}", file=out)
        except KeyboardInterrupt:
            print("barograph: interrupted; the sidecar continues delivery in the background", file=out)
        except Exception as error:
            # Whatever fails here, such as a descriptor that is missing, the exit status is the command's.
            with contextlib.suppress(OSError, ValueError):
                print(f"barograph: no summary: {error}; the sidecar continues in the background", file=out)
    return status


def _wanted(job: Job, settings: RunOptions, environment: Mapping[str, str], out: TextIO) -> bool:
    """False if the user watches other applications only."""
    apps = environment.get("BAROGRAPH_APPS", "")
    try:
        return not apps or re.fullmatch(apps, settings.findings.apply_to(job, "").app) is not None
    except (re.error, RulesError) as error:
        print(f"barograph: not watching this run: BAROGRAPH_APPS is {apps!r}: {error}", file=out)
        return False


class SidecarGuard:
    """Supervises the sidecar of one run: starts it, restarts it when it dies, and reads its report at the end."""

    def __init__(self, command: Sequence[str], job: Job, settings: RunOptions, environment: Mapping[str, str]) -> None:
        settings = msgspec.structs.replace(settings, endpoint=places.check_endpoints(settings.endpoint))
        self._environment = dict(environment)
        preload = shim.preload(shim.library(), environment.get("LD_PRELOAD", ""))
        unique = f"{job.key.replace('/', '-')}-{secrets.token_hex(4)}"
        self.spool = places.private_directory(places.spool_root(environment)) / unique
        rings = places.private_directory(places.ring_root(environment)) / unique
        rings.mkdir(mode=0o700)
        given = environment.get("BAROGRAPH_FEATURES", "")
        # A hook of a batch system sets one folder for all programs of a job step: this run uses its own.
        own = not given or given == environment.get(RING_VARIABLE)
        features = (rings if own else Path(given)).absolute()
        # All ranks record unless the user wants fewer: finding the slow rank needs all of them.
        ranks = environment.get("BAROGRAPH_RANKS") or "all"
        fields: dict[str, Any] = {
            "feature_directory": str(features),
            "has_companions": ranks == "all",
            # Words of any bytes: the plan is text.
            "command": tuple(word.encode("utf-8", "backslashreplace").decode() for word in command),
        }
        try:
            self.plan = begin_run(self.spool, job, rings, settings, **fields)
        except (OSError, ValueError):
            shutil.rmtree(self.spool, ignore_errors=True)
            shutil.rmtree(rings, ignore_errors=True)
            raise
        self.environment = {
            **environment,
            "LD_PRELOAD": preload,
            "PYTHONPATH": shim.python_path(environment.get("PYTHONPATH", "")),
            RING_VARIABLE: str(rings),
            "BAROGRAPH_RANKS": ranks,
            "BAROGRAPH_FEATURES": str(features),
            "ASAN_OPTIONS": shim.asan_options(environment.get("ASAN_OPTIONS", "")),
        }
        if self.plan.has_companions:
            # The first rank on another node starts a sidecar there. The words of the command stay here.
            plan = msgspec.json.encode(msgspec.structs.replace(self.plan, command=())).decode()
            self.environment |= {SIDECAR_VARIABLE: sys.executable, RUN_VARIABLE: plan}
        self.refused, self.containers = 0, list[str]()
        """Of this node: ranks that had no room for a ring, and container runtimes in which the shim is not visible."""
        self.hidden = HiddenPrograms(shim.LIBRARY, PROCESSES)
        self._process: subprocess.Popen[bytes] | None = None

    def check(self, pid: int, passed: float) -> None:
        """Look for programs that are not seen, and start the sidecar, again if it has died.

        pid: of the command. passed: seconds since its start.
        """
        self._revive()
        self.hidden.scan(pid, passed)

    def _revive(self) -> None:
        if self._process is not None:
            if self._process.poll() is None or CLOCK.monotonic() - self._started <= _RESTART_SECONDS:
                return
            if load_report(self.spool, self.plan) is not None:
                return
        self._start()

    def finish(self, end: CommandEnd) -> DeliveryReport | None:
        """Write the run's end for the sidecar and wait for its report; None after a timeout."""
        left = sorted(Path(self.plan.ring_directory).glob("*.*"))
        self.refused = sum(path.suffix == ".refused" for path in left)
        self.containers = [path.stem for path in left if path.suffix == ".container"]
        with contextlib.suppress(OSError):
            leave(self.spool, END_FILE, end, self.plan)
        # The verdict follows delivery. A sidecar that exceeds the deadline is stopped, and reports its counts so far.
        deadline = CLOCK.monotonic() + self.plan.drain_seconds + _ANSWER_SECONDS
        terminated = False
        while (report := load_report(self.spool, self.plan)) is None:
            self._revive()
            if self._process and self._process.stdin:
                self._process.stdin.close()  # the sidecar waits for that
            if CLOCK.monotonic() > deadline:
                if terminated:
                    break
                terminated, deadline = True, deadline + 2.0
                if self._process:
                    self._process.terminate()
            CLOCK.sleep(0.02)
        # The sidecar may still run, to deliver the spools of earlier runs.
        if report is not None and report.delivered:
            self.clear()
        return report

    def _start(self) -> None:
        # In a session of its own: Ctrl-C in the terminal is for the command and must not end the sidecar.
        self._started = CLOCK.monotonic()
        with (self.spool / "sidecar.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, _ISOLATION, "-m", "barograph_agent.sidecar.main", str(self.spool)],
                # The linear algebra of numpy, which is not used, would start a thread for each core.
                env={**self._environment, "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def clear(self) -> None:
        """Delete the files of the run."""
        delete_rings(self.plan)
        # First, as in WatchedRun.delete.
        (self.spool / PLAN).unlink(missing_ok=True)
        shutil.rmtree(self.spool, ignore_errors=True)


def _run_command(
    command: Sequence[str], environment: Mapping[str, str], guard: SidecarGuard | None
) -> tuple[int, float]:
    """Run a command, forwarding signals to it; returns its exit status and its runtime in seconds."""
    started = CLOCK.monotonic()
    with _forwarded_signals() as begin:
        begin(process := start(command, environment))
        # A thread, because Popen.wait with a timeout polls, which adds up to 50 ms to the runtime.
        waiter = threading.Thread(target=process.wait, daemon=True)
        # If no thread can be started the command still runs, but it is not watched.
        with contextlib.suppress(RuntimeError):
            waiter.start()
        while waiter.is_alive():
            if guard is not None:
                with contextlib.suppress(OSError, ValueError):
                    guard.check(process.pid, CLOCK.monotonic() - started)
            waiter.join(until_step(CLOCK.now()))
        status = process.wait()
    return (status if status >= 0 else 128 - status), CLOCK.monotonic() - started


@contextlib.contextmanager
def _forwarded_signals() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Forward signals to the process that is given then, and those to it that were received before."""
    early: list[int] = []
    targets: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: Any) -> None:
        (targets[0].send_signal if targets else early.append)(number)

    def begin(process: subprocess.Popen[bytes]) -> None:
        targets.append(process)
        for number in early:
            process.send_signal(number)

    # The terminal sends these to the command too. With SIG_IGN, the command would inherit that.
    handlers = dict.fromkeys(_FORWARDED, forward) | dict.fromkeys((signal.SIGINT, signal.SIGQUIT), lambda *_: None)
    # Ignored signals stay ignored, here and in the command, as under nohup.
    handled = {number: handler for number, handler in handlers.items() if signal.getsignal(number) != signal.SIG_IGN}
    before = {number: signal.signal(number, handler) for number, handler in handled.items()}
    try:
        yield begin
    finally:
        for number, handler in before.items():
            # None: a handler installed by a preloaded library, which Python cannot restore.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _hidden(report: DeliveryReport | None, guard: SidecarGuard, command: Sequence[str]) -> list[Hidden]:
    """Programs of a run that were not seen. Where others were, only those that use MPI."""
    found = list(guard.hidden.found.values())
    if report is not None and report.ranks == 0:
        return [one for one in found if one.is_mpi] or found or of_command(command, guard.environment)
    return [one for one in found if one.is_mpi]


def _summarize(
    report: DeliveryReport | None, end: CommandEnd, guard: SidecarGuard, hidden: list[Hidden], out: TextIO
) -> None:
    intervals = f"unknown: the sidecar did not answer, see {guard.spool}/sidecar.log"
    verdict = "unknown: nothing was reported"
    if report is not None:
        intervals, verdict = _intervals(report, guard, hidden), _verdict(report, end, guard.plan.endpoint)
    print(f"barograph: intervals {intervals}", file=out)
    print(f"barograph: runtime   {end.runtime_seconds:.2f} s", file=out)
    print(f"barograph: verdict   {verdict}", file=out)
    for note in report.notes if report else []:
        print(f"barograph: note      {note}", file=out)
    if report is not None and report.ranks:
        for one in hidden[:MAX_PROGRAMS]:
            print(f"barograph: note      not seen: {one}", file=out)
    if report is not None and report.unseen_ranks:
        print(f"barograph: note      {_unseen(report, end, guard)}", file=out)


def _refused(guard: SidecarGuard) -> str:
    return f"there was no room for the rings of {guard.refused} in {places.ring_root(guard.environment)}"


def _intervals(report: DeliveryReport, guard: SidecarGuard, hidden: list[Hidden]) -> str:
    if report.ranks == 0 and (guard.containers or guard.refused):
        runtimes = ", ".join(guard.containers)
        return f"none seen: {f'the shim is not visible in containers of {runtimes}' if runtimes else _refused(guard)}"
    if report.unknown and not report.nodes:
        return f"unknown: no rank was on this node, and {guard.plan.endpoint} did not say what others have seen"
    if report.ranks == 0 and hidden:
        return "none seen: " + "; ".join(map(str, hidden[:MAX_PROGRAMS]))
    if report.ranks == 0:
        return "none seen: no MPI_Init through a shared MPI library, and no step of a PyTorch optimizer"
    where = f"{report.ranks} rank{'s' * (report.ranks != 1)}"
    if report.unknown:
        where = f"{report.ranks - report.unseen_ranks} of {where}, those of this node"
    if report.nodes > 1:
        where += f" of {report.nodes} nodes"
    text = f"{report.seen:,} seen on {where}, {report.stored:,} stored"
    if report.spooled:
        text += f", {report.spooled:,} spooled in {guard.spool} until the collector is back"
    if report.dropped:
        text += f", {report.dropped:,} dropped"
    return text


def _unseen(report: DeliveryReport, end: CommandEnd, guard: SidecarGuard) -> str:
    if guard.refused >= report.unseen_ranks:
        return f"{report.unseen_ranks} of {report.ranks} ranks were not seen: {_refused(guard)}"
    ended = "they ended before MPI_Init was over, or " if end.exit_status else ""
    return (
        f"{report.unseen_ranks} of {report.ranks} ranks were not seen: {ended}on their nodes {sys.executable} does not"
        " run Barograph, the launcher did not pass on the environment, or the collector was not reached"
    )


def _verdict(report: DeliveryReport, end: CommandEnd, endpoint: str) -> str:
    if end.exit_status and report.verdict.startswith("unknown"):
        return f"unknown: the command failed with exit status {end.exit_status}, and is compared with no other run"
    if report.verdict:
        return report.verdict
    if report.trouble:
        return f"unknown: {report.trouble}"
    if not report.reached:
        return f"unknown: no collector answered at {endpoint}"
    return NO_VERDICT
