"""The `barograph` command: dispatches to a subcommand and imports only that subcommand's module.

A compute node has only the agent installed. A subcommand with further dependencies names the extra to install.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from barograph_agent.command import NotRunnable, complete_streams, of_arguments, replace
from barograph_agent.shim import is_disabled

if sys.version_info < (3, 11):  # noqa: UP036 - a checkout may be run by any Python
    sys.exit(f"barograph: Python is {sys.version.split()[0]}, expected 3.11 or later")

DESCRIPTION: Final = "Watches MPI jobs from outside and says when one is slower than its history."
USAGE_ERROR: Final = 2
MISSING_EXTRA: Final = 3
DATA_ERROR: Final = 65
Value = TypeVar("Value")


class CommandError(Exception):
    """A subcommand has no result. The text is its one line on standard error, `status` its exit status."""

    status: int = DATA_ERROR

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        if status is not None:
            self.status = status


class Parser(argparse.ArgumentParser):
    """A parser that takes options by their whole names only: the next version may give an abbreviation two meanings."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options | {"allow_abbrev": False})


class Command(NamedTuple):
    """A subcommand. module: has `main(argv) -> int`. extra: of the package, to install. help: line in --help."""

    module: str
    extra: str
    help: str

    def lacks(self, error: ModuleNotFoundError) -> bool:
        """Whether the module that is not found belongs to the extra."""
        return bool(self.extra) and not (error.name or "").partition(".")[0].startswith("barograph")


COMMANDS: Final[dict[str, Command]] = {
    "run": Command("barograph.commands.run", "", "run a command and watch it"),
    "up": Command("barograph.operate.up", "server", "run collector, modeler, alerts and page on this host, supervised"),
    "status": Command("barograph.commands.status", "server", "show jobs, bands and alarms"),
    "work": Command("barograph.operate.work", "server", "show or change the groups of like work"),
    "nodes": Command("barograph.operate.nodes", "server", "show nodes that delay job after job"),
    "page": Command(
        "barograph.site.command", "server", "serve a web page of jobs, alarms, applications and predictions"
    ),
    "sql": Command("barograph.commands.sql", "server", "query the log with a SELECT"),
    "predict": Command(
        "barograph.commands.predict", "server", "predict the runtime of a run, also at scales that have not been run"
    ),
    "report": Command("barograph.report", "server", "write a page about an application or a job, to look at or mail"),
    "import": Command("barograph.imports", "server", "put run history into the log: sacct, SWF, CSV"),
    "demo": Command("barograph.demo", "demo", "watch LAMMPS runs, disturb one, and show how it is detected"),
    "config": Command("barograph.operate.config", "server", "show the settings of all daemons, or check a file"),
    "keys": Command("barograph.operate.keys", "server", "manage access to the log: keys and job tokens"),
    "collector": Command("barograph_collector.main", "server", "the log: stores rows and serves reads"),
    "modeler": Command("barograph_modeler.main", "server", "learns bands from the log and writes them back"),
    "alerts": Command("barograph_alerts.main", "server", "scores running jobs against their bands"),
    "backtest": Command("barograph_lab.backtest.command", "lab", "score bands and models on past measurements"),
    "bench": Command("barograph_lab.bench.command", "lab", "measure a collector's throughput on this machine"),
    "plan": Command("barograph_lab.plan", "lab", "propose the runs to measure for a model of weak scaling"),
    "study": Command("barograph_lab.study", "lab", "make the tables of the papers on scaling from your own runs"),
    "replay": Command("barograph_lab.replay.command", "lab", "score a recorded run as if it were live"),
    "record": Command("barograph_lab.replay.record", "", "record a live job for `barograph replay`"),
    "canary": Command("barograph.operate.canary", "server", "check alarms end to end with a synthetic job"),
    "instrument": Command("barograph.instrument", "instrument", "insert probes of run features into C and C++ sources"),
    "features": Command("barograph_lab.features", "lab", "tabulate and select features of instrumented runs"),
    "bsp": Command("barograph_lab.bsp.command", "lab", "measure intervals of a known workload, under mpiexec"),
    "backup": Command("barograph.upkeep.backup", "server", "copy the log while the collector runs"),
    "restore": Command("barograph.upkeep.restore", "server", "make a backup the log of a collector"),
    "erase": Command("barograph.upkeep.erase", "server", "remove a user's jobs from the log and the lake"),
    "spool": Command("barograph.operate.spool", "", "list or deliver what earlier runs could not deliver"),
    "doctor": Command("barograph.operate.doctor", "", "check whether runs on this node can be watched"),
    "files": Command("barograph.operate.files", "", "list the installed units, hooks, rules and dashboards"),
    "completion": Command("barograph.commands.completion", "server", "print a shell completion script"),
}


READERS: Final[dict[str, tuple[str, ...]]] = {
    "users": ("run", "status", "predict", "spool", "instrument"),
    "operators": ("up", "page", "nodes", "import", "config", "keys", "backup", "restore", "erase", "doctor",
                  "canary", "files", "completion", "collector", "modeler", "alerts"),
    "performance engineers": ("work", "report", "sql", "features", "plan"),
    "developers, and studies": ("demo", "record", "replay", "backtest", "bench", "study", "bsp"),
}  # fmt: skip
"""The commands by their readers, as --help lists them."""


def checked(convert: Callable[[str], Value], good: Callable[[Value], object], wanted: str) -> Callable[[str], Value]:
    """An option type: converts the text and requires `good`. wanted: `good` in words, for the error."""

    def parse(text: str) -> Value:
        try:
            if good(value := convert(text)):
                return value
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r}, expected {wanted}")

    return parse


def usage() -> str:
    """The help text."""
    lines = []
    for reader, names in READERS.items():
        lines += [f"for {reader}:", *(f"  {name:<10} {COMMANDS[name].help}" for name in names), ""]
    return "\n".join(
        [
            "usage: barograph COMMAND [ARGUMENT...]",
            "",
            DESCRIPTION,
            "",
            *lines,
            "`barograph COMMAND --help` describes one of them.",
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; returns its exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    complete_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names and table lines may have characters that the locale has not.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. The flush at interpreter exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return status


def _unwatched(arguments: list[str]) -> int:
    """`barograph run` without what it imports; it returns only if the command cannot be started."""
    try:
        replace(of_arguments(arguments), os.environ)
    except NotRunnable as error:
        print(f"barograph: {error}", file=sys.stderr)
        return error.status
    return 0


def _main_of(words: list[str], module: str) -> Callable[[list[str]], int]:
    """The function of a subcommand. A command runs also where what watches it cannot be imported, or is disabled."""
    is_run = words[0] == "run" and of_arguments(words[1:])
    if is_run and is_disabled(os.environ):
        return _unwatched
    try:
        main: Callable[[list[str]], int] = importlib.import_module(module).main
    except Exception as error:
        if not is_run:
            raise
        print(f"barograph: not watching this run: {type(error).__name__}: {error}", file=sys.stderr)
        return _unwatched
    return main


def _run(words: list[str]) -> int:
    if words and words[0] == "--version":
        from importlib.metadata import version

        print(f"barograph {version('barograph')}")
        return 0
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else USAGE_ERROR
    command = COMMANDS.get(words[0])
    if command is None:
        near = difflib.get_close_matches(words[0], COMMANDS, 1)
        expected = f"did you mean {near[0]!r}?" if near else "`barograph --help` lists them"
        print(f"barograph: unknown command {words[0]!r}; {expected}", file=sys.stderr)
        return USAGE_ERROR
    try:
        status = _main_of(words, command.module)(words[1:])
    except ModuleNotFoundError as error:
        if not command.lacks(error):
            raise
        print(
            f"barograph: `{words[0]}` needs the module {error.name!r}, which is not installed here: "
            f"pip install 'barograph[{command.extra}]'",
            file=sys.stderr,
        )
        return MISSING_EXTRA
    except CommandError as error:
        print(f"barograph {words[0]}: {error}", file=sys.stderr)
        return error.status
    return status
