"""The `barograph` command: finds the subcommand and imports only the module of that.

A compute node has the agent alone, so a subcommand that needs more names the extra to install.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Final, NamedTuple

USAGE_ERROR: Final = 2
MISSING_EXTRA: Final = 3


class Command(NamedTuple):
    """A subcommand: where its `main(argv) -> int` is, the extra it needs, and its line in the help."""

    module: str
    extra: str
    help: str


COMMANDS: Final[dict[str, Command]] = {
    "run": Command("barograph.commands.run", "", "run a command and watch it"),
    "up": Command("barograph.operate.up", "server", "run collector, modeler, alerts and page on this host, supervised"),
    "status": Command("barograph.commands.status", "server", "show jobs, bands and alarms"),
    "page": Command("barograph.site", "server", "serve a web page of jobs, alarms, applications and predictions"),
    "sql": Command("barograph.commands.sql", "server", "ask the log with a SELECT"),
    "export": Command("barograph.commands.export", "server", "write rows of the log to a file: Parquet, CSV, Extra-P"),
    "predict": Command(
        "barograph.commands.predict", "server", "how long a run will take, also at a scale nobody has run yet"
    ),
    "report": Command("barograph.report", "server", "write a page about an application or a job, to look at or mail"),
    "import": Command("barograph.imports", "server", "put run history into the log: sacct, SWF, CSV"),
    "demo": Command("barograph.demo", "demo", "watch real LAMMPS runs, disturb one, and tell the story"),
    "config": Command(
        "barograph.operate.config", "server", "show the settings of all daemons, or check a file of them"
    ),
    "keys": Command("barograph.operate.keys", "server", "say who may use the log: keys and job tokens"),
    "collector": Command("barograph_collector.main", "server", "the log: takes rows, keeps them, gives them back"),
    "modeler": Command("barograph_modeler.main", "server", "learns bands from the log and writes them back"),
    "alerts": Command("barograph_alerts.main", "server", "scores running jobs against their bands"),
    "backtest": Command("barograph.lab.backtest.command", "server", "score bands and models on past measurements"),
    "bench": Command("barograph.lab.bench.command", "server", "measure how much a collector takes on this machine"),
    "plan": Command("barograph.lab.plan", "server", "propose the runs to measure for a model of weak scaling"),
    "study": Command("barograph.lab.study", "server", "make the tables of the papers on scaling from your own runs"),
    "replay": Command("barograph.lab.replay.command", "server", "judge a recorded run as if it happened now"),
    "record": Command("barograph.lab.replay.record", "", "make such a recording of a live job"),
    "canary": Command(
        "barograph.operate.canary", "server", "prove with a made-up job that an alarm would come through"
    ),
    "instrument": Command("barograph.instrument", "instrument", "put probes into C and C++ sources: features of a run"),
    "features": Command("barograph.lab.features", "server", "from instrumented runs to the features worth keeping"),
    "bsp": Command("barograph.lab.bsp.command", "harness", "measure intervals of a known workload, under mpiexec"),
    "spool": Command("barograph.operate.spool", "", "list or deliver what earlier runs could not deliver"),
    "doctor": Command("barograph.operate.doctor", "", "check whether runs on this node can be watched"),
    "ring": Command("barograph.commands.ring", "", "print what a ring file holds"),
    "files": Command("barograph.operate.files", "", "say where units, hooks, rules and dashboards were installed"),
    "completion": Command(
        "barograph.commands.completion", "server", "print a script that completes commands in a shell"
    ),
}


def usage() -> str:
    """The help text."""
    lines = [f"  {name:<10} {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: barograph COMMAND [ARGUMENT...]",
            "",
            "Watches MPI jobs from outside and says when one is slower than its history.",
            "",
            "commands:",
            *lines,
            "",
            "`barograph COMMAND --help` tells more about one of them.",
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; returns its exit status."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        status = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. The flush when Python ends must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return status


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
        print(f"barograph: unknown command {words[0]!r}, expected one of {', '.join(COMMANDS)}", file=sys.stderr)
        return USAGE_ERROR
    try:
        status: int = importlib.import_module(command.module).main(words[1:])
    except ModuleNotFoundError as error:
        if not command.extra or (error.name or "").partition(".")[0].startswith("barograph"):
            raise
        print(
            f"barograph: `{words[0]}` needs the module {error.name!r}, which is not installed here: "
            f"pip install 'barograph[{command.extra}]'",
            file=sys.stderr,
        )
        return MISSING_EXTRA
    return status
