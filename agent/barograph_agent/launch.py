"""`barograph run`: one command under the shim, its sidecar beside it, and three lines at the end.

Whatever goes wrong with the watching, the command runs, and its exit status is the exit status.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO

from barograph_agent import shim
from barograph_agent.job.identity import Job
from barograph_agent.job.rules import Findings, RulesError
from barograph_agent.reduce.blocks import ROWS_PER_SECOND
from barograph_agent.settings import places
from barograph_agent.sidecar.plan import END as END_FILE
from barograph_agent.sidecar.plan import (
    PLAN,
    REPORT,
    RING_VARIABLE,
    CommandEnd,
    DeliveryReport,
    RunPlan,
    load_report,
    myself,
    save,
)

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_CHECK_SECONDS: Final = 0.25
_RESTART_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 20.0
"""How long a sidecar's report is waited for beyond the time for delivery: a busy node starts one late."""
_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)


@dataclass(frozen=True)
class RunOptions:
    """What `barograph run` was told about the watching."""

    endpoint: str
    drain_seconds: float = 10.0
    spool_bytes: int = 256 * 2**20
    rows_per_second: float = ROWS_PER_SECOND
    findings: Findings = field(default_factory=Findings)


def run(command: Sequence[str], job: Job, settings: RunOptions, environment: Mapping[str, str], out: TextIO) -> int:
    """Run `command` watched; returns its exit status as a shell says it, 126 or 127 where it could not be started."""
    guard = None
    try:
        _check_startable(command[0], environment)
        if _wanted(job, settings, environment, out):
            try:
                guard = SidecarGuard(job, settings, environment)
            except (OSError, ValueError) as error:
                print(f"barograph: not watching this run: {error}", file=out)
        status, runtime = _run_command(command, guard.environment if guard else environment, guard)
    except CannotStart as error:
        if guard is not None:
            guard.cancel()
        print(f"barograph: {error}", file=out)
        return error.status
    if guard is not None:
        try:
            _summarize(guard.finish(CommandEnd(time.time(), runtime, status)), runtime, guard, settings, out)
        except KeyboardInterrupt:
            print("barograph: interrupted; the sidecar goes on and delivers what it can", file=out)
    return status


def _wanted(job: Job, settings: RunOptions, environment: Mapping[str, str], out: TextIO) -> bool:
    """False where the user watches nothing, or other applications only."""
    if environment.get("BAROGRAPH_DISABLE", "0") not in ("", "0"):
        return False
    apps = environment.get("BAROGRAPH_APPS", "")
    try:
        return not apps or re.fullmatch(apps, settings.findings.settle(job, "").app) is not None
    except (re.error, RulesError) as error:
        print(f"barograph: not watching this run: BAROGRAPH_APPS is {apps!r}: {error}", file=out)
        return False


class CannotStart(Exception):
    """A command that cannot be started. The text says why; `status` is what a shell would exit with."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class SidecarGuard:
    """The sidecar of one run, kept alive: started, started again where it dies, and heard at the end."""

    def __init__(self, job: Job, settings: RunOptions, environment: Mapping[str, str]) -> None:
        places.check_endpoint(settings.endpoint)
        self._environment = dict(environment)
        preload = shim.preload(shim.library(), environment.get("LD_PRELOAD", ""))
        unique = f"{job.key.replace('/', '-')}-{secrets.token_hex(4)}"
        self.spool = places.private_directory(places.spool_root(environment)) / unique
        rings = places.private_directory(places.ring_root(environment)) / unique
        self.spool.mkdir(mode=0o700)
        rings.mkdir(mode=0o700)
        launcher, launcher_born = myself()
        given = environment.get("BAROGRAPH_FEATURES")
        # A batch system's hook names one folder for all that a job step starts: a run's own is better.
        if given == environment.get(RING_VARIABLE):
            given = None
        features = str(Path(given or rings).absolute())
        self.plan = RunPlan(
            job=job,
            stream=f"{job.key}/{secrets.token_hex(4)}",
            endpoint=settings.endpoint,
            ring_directory=str(rings),
            started_at=time.time(),
            launcher=launcher,
            launcher_born=launcher_born,
            drain_seconds=settings.drain_seconds,
            spool_bytes=settings.spool_bytes,
            findings=settings.findings,
            rows_per_second=settings.rows_per_second,
            feature_directory=features,
        )
        save(self.spool, PLAN, self.plan)
        # All ranks record unless the user wants fewer: which one is slow can be seen in no other way.
        ranks = environment.get("BAROGRAPH_RANKS") or "all"
        self.environment = {
            **environment,
            "LD_PRELOAD": preload,
            RING_VARIABLE: str(rings),
            "BAROGRAPH_RANKS": ranks,
            "BAROGRAPH_FEATURES": features,
        }
        self._start()

    def check(self) -> None:
        """Start the sidecar again where it has died."""
        if self._process.poll() is None or time.monotonic() - self._started <= _RESTART_SECONDS:
            return
        if not (self.spool / REPORT).exists():
            self._start()

    def cancel(self) -> None:
        """Leave no trace of a run that did not begin."""
        self._process.kill()
        self._process.wait()
        self._clear()

    def finish(self, end: CommandEnd) -> DeliveryReport | None:
        """Tell the sidecar how the run ended and wait for its report, for as long as the plan allows."""
        with contextlib.suppress(OSError):
            save(self.spool, END_FILE, end)
        # The verdict is waited for after delivery; a sidecar that needs longer is told to stop where it stands.
        deadline = time.monotonic() + self.plan.drain_seconds + _ANSWER_SECONDS
        told = False
        while (report := load_report(self.spool)) is None:
            self.check()
            if time.monotonic() > deadline:
                if told:
                    break
                told, deadline = True, deadline + 2.0
                self._process.terminate()
            time.sleep(0.02)
        # The sidecar itself may stay: it goes on with what earlier runs have left.
        if report is not None and report.delivered:
            self._clear()
        return report

    def _start(self) -> None:
        # A session of its own: the terminal's Ctrl-C is for the command, the sidecar must outlive it.
        self._started = time.monotonic()
        with (self.spool / "sidecar.log").open("ab") as log:
            self._process = subprocess.Popen(
                # -P: the user's working directory may hold a random.py of its own.
                [sys.executable, "-P", "-m", "barograph_agent.sidecar.main", str(self.spool)],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def _clear(self) -> None:
        shutil.rmtree(self.plan.ring_directory, ignore_errors=True)
        shutil.rmtree(self.spool, ignore_errors=True)


def _check_startable(program: str, environment: Mapping[str, str]) -> None:
    if shutil.which(program, path=environment.get("PATH")) is not None:
        return
    path = Path(program)
    if "/" in program and path.exists():
        what = "a directory" if path.is_dir() else "not executable"
        raise CannotStart(NOT_EXECUTABLE, f"command {program!r} is {what}, expected an executable program")
    where = "" if "/" in program else " in PATH"
    raise CannotStart(NOT_FOUND, f"command {program!r} not found{where}, expected a program to run")


def _run_command(
    command: Sequence[str], environment: Mapping[str, str], guard: SidecarGuard | None
) -> tuple[int, float]:
    """Exit status and runtime in seconds of a command that gets our signals."""
    started = time.monotonic()
    with _signals_held() as held:
        try:
            process = subprocess.Popen(command, env=dict(environment))
        except OSError as error:
            text = f"command {command[0]!r} cannot be run: {error.strerror}, expected an executable program"
            raise CannotStart(NOT_EXECUTABLE, text) from error
        held.begin(process)
        with _ended(process) as ended:
            while not ended(_CHECK_SECONDS):
                if guard is not None:
                    with contextlib.suppress(OSError):
                        guard.check()
        status = process.wait()
    return (status if status >= 0 else 128 - status), time.monotonic() - started


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[Callable[[float], bool]]:
    """A function that waits so many seconds for the process and says whether it has ended, the moment it has.

    Popen.wait with a timeout looks only now and then, and would make the runtime up to 50 ms too long.
    """
    try:
        file = os.pidfd_open(process.pid)
    except OSError:  # a kernel before 5.3
        yield lambda seconds: _waited(process, seconds)
        return
    try:
        poller = select.poll()
        poller.register(file, select.POLLIN)
        yield lambda seconds: bool(poller.poll(seconds * 1000))
    finally:
        os.close(file)


def _waited(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


class _Held:
    def __init__(self) -> None:
        self._target: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """From now on signals are this process's, those that came while it was being started too."""
        self._target = process
        for number in self._early:
            process.send_signal(number)

    def forward(self, number: int, frame: Any) -> None:
        if self._target is None:
            self._early.append(number)
        else:
            self._target.send_signal(number)

    def ignore(self, number: int, frame: Any) -> None:
        """The terminal has sent it to the command too. (A handler, because SIG_IGN would be inherited.)"""


@contextlib.contextmanager
def _signals_held() -> Iterator[_Held]:
    held = _Held()
    handlers = dict.fromkeys(_FORWARDED, held.forward) | dict.fromkeys(_TERMINAL, held.ignore)
    # What is ignored stays ignored, here and in the command: nohup means it so.
    heard = {number: handler for number, handler in handlers.items() if signal.getsignal(number) != signal.SIG_IGN}
    before = {number: signal.signal(number, handler) for number, handler in heard.items()}
    try:
        yield held
    finally:
        for number, handler in before.items():
            # None: a preloaded library had installed one, which Python can neither name nor put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _summarize(
    report: DeliveryReport | None, runtime: float, guard: SidecarGuard, settings: RunOptions, out: TextIO
) -> None:
    lines = {"runtime": f"{runtime:.2f} s"}
    if report is None:
        lines["intervals"] = f"unknown: the sidecar did not answer, see {guard.spool}/sidecar.log"
        lines["verdict"] = "unknown: nothing was reported"
    else:
        lines["intervals"] = _intervals(report, guard)
        lines["verdict"] = _verdict(report, settings)
    for name in ("intervals", "runtime", "verdict"):
        print(f"barograph: {name:<9} {lines[name]}", file=out)
    for note in report.notes if report else []:
        print(f"barograph: note      {note}", file=out)


def _intervals(report: DeliveryReport, guard: SidecarGuard) -> str:
    if report.ranks == 0:
        return "none seen: no process of this command called MPI_Init or MPI_Init_thread through a shared MPI library"
    text = f"{report.seen:,} seen on {report.ranks} ranks, {report.stored:,} stored"
    if report.spooled:
        text += f", {report.spooled:,} spooled in {guard.spool} until the collector is back"
    if report.dropped:
        text += f", {report.dropped:,} dropped"
    return text


def _verdict(report: DeliveryReport, settings: RunOptions) -> str:
    if report.verdict:
        return report.verdict
    if not report.reached:
        return f"unknown: no collector answered at {settings.endpoint}"
    return "unknown: no alerts daemon gave one"
