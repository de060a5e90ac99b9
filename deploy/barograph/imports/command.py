"""`barograph import FILE`: imports past runs into the log; nothing twice, nothing silently dropped."""

from __future__ import annotations

import argparse
import lzma
import os
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from barograph.cli import CommandError, Parser
from barograph.imports.delivery import CollectorUnreachable, Delivery
from barograph.imports.mapping import FIELDS, BadMap, parse_map
from barograph.imports.record import Bad, Entry, RunRecord, Skipped, UnreadableLine, UnusedColumns, app_name
from barograph.imports.source import FORMATS, Options, entries, opened
from barograph.imports.swf import UNKNOWN_STATE
from barograph.imports.works import WorkDigests
from barograph.views.words import plural
from barograph_agent.deliver import keys
from barograph_agent.job.identity import clean
from barograph_agent.settings import agent, places
from barograph_agent.settings.sources import ConfigError
from barograph_collector.daemon.service import Exit
from barograph_modeler.recognition.recorded import UnreadableSalt

SHOWN: Final = 20
MAX_APPS: Final = 1000


class ImportTally:
    """Counts runs, skipped lines and bad lines; prints the first SHOWN bad ones."""

    def __init__(self, console: Console, works: WorkDigests) -> None:
        self.runs = 0
        self.skipped: Counter[str] = Counter()
        self.bad = 0
        self.unused: Sequence[str] = ()
        """Columns of which nothing is imported."""
        self.apps: set[str] = set()
        """Applications of the runs, at most MAX_APPS."""
        self._console = console
        self._works = works
        self._lines: dict[str, tuple[int, int, float]] = {}
        """Line, ranks and seconds of each job step."""

    def records(self, found: Iterable[Entry]) -> Iterator[RunRecord]:
        """The runs among the entries, each job step once."""
        for entry in found:
            match entry:
                case Bad():
                    self.complain(entry.line, entry.reason)
                case UnusedColumns():
                    self.unused = [name for name in entry.names if name]
                case Skipped():
                    self.skipped[entry.state] += 1
                case RunRecord():
                    line, *earlier = self._lines.setdefault(entry.job.key, (entry.line, entry.ranks, entry.seconds))
                    if line == entry.line:
                        self.runs += 1
                        if len(self.apps) < MAX_APPS:
                            self.apps.add(entry.job.app)
                        self._works.note(entry)
                        yield entry
                    elif earlier == [entry.ranks, entry.seconds]:
                        self.skipped["repeated line"] += 1
                    else:
                        self.complain(
                            entry.line, f"job {entry.job.key} is in line {line} already, expected another id or step"
                        )

    def complain(self, line: int, reason: str) -> None:
        """Count a bad line, and print it if it is one of the first."""
        self.bad += 1
        if self.bad <= SHOWN:
            self._console.print(f"line {line}: {reason}", markup=False, highlight=False, soft_wrap=True)
        elif self.bad == SHOWN + 1:
            self._console.print(f"more than {SHOWN} bad lines; the others are counted only", highlight=False)

    def sentences(self, app: str) -> Iterator[str]:
        """What was not imported, and why. app: the value of --app."""
        yield "not learned: " + (
            ", ".join(f"{count:,} {state}" for state, count in self.skipped.most_common()) or "none"
        )
        yield plural(self.bad, "bad line")
        if unknown := self.skipped[UNKNOWN_STATE]:
            yield f"the state of {plural(unknown, 'run')} is unknown: --assume-completed takes them for completed"
        if self.unused:
            yield f"columns not used: {', '.join(self.unused)}; --map param:NAME=COLUMN makes one a parameter"
        if app and self.apps and len(self.apps) < MAX_APPS and app not in self.apps:
            yield f"--app {app} was not used: all lines name an application, expected --map app=COLUMN for others"


def main(arguments: Sequence[str]) -> int:
    """Import a file; 65 without a run or if a line cannot be read, 69 if the collector does not answer."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        app = app_name(options.app) if options.app else ""
        cluster = clean(options.cluster, "local", 24)
        reading = Options(options.format, parse_map(options.map), cluster, app, options.assume_completed)
    except (BadMap, UnreadableLine) as error:
        parser.error(str(error))
    console = Console(stderr=True)
    try:
        works = WorkDigests.of_site(os.environ)
    except (UnreadableSalt, ConfigError) as error:
        raise CommandError(str(error)) from error
    tally = ImportTally(console, works)
    columns = [TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()]
    try:
        key = keys.from_environment(os.environ)
        with (
            Delivery(options.collector, key, works=works) as delivery,
            Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
        ):
            task = progress.add_task("importing", total=None)
            with opened(options.file, progress) as lines:
                records = tally.records(entries(options.file, lines, reading))
                for number, _ in enumerate(records if options.dry_run else delivery.send(records), 1):
                    if number % 256 == 0:
                        progress.update(task, description=f"{number:,} runs")
    except keys.KeyFileError as error:
        raise CommandError(str(error)) from error
    except (BadMap, OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise CommandError(f"{options.file}: {getattr(error, 'strerror', None) or error}") from error
    except CollectorUnreachable as error:
        done = f"{delivery.added:,} runs added by then; the same command continues from there"
        raise CommandError(f"{error}; {done}", Exit.UNAVAILABLE) from error
    except KeyboardInterrupt as error:
        raise CommandError("interrupted; the same command continues from there", 130) from error
    for line, reason in delivery.refused:
        tally.complain(line, f"refused by the collector: {reason}")
    sent = f"{plural(delivery.added, 'run')} added, {delivery.known:,} known already"
    print(f"{plural(tally.runs, 'run')} found, nothing sent" if options.dry_run else sent)
    print(*tally.sentences(app), sep="\n")
    if sentence := works.sentence(delivery.work_refusal):
        print(sentence)
    if not tally.runs:
        print("barograph import: no run that ended well in the file, expected at least one", file=sys.stderr)
    return Exit.DATA if tally.bad or not tally.runs else Exit.OK


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="barograph import",
        description="Import run history into the log: runs that ended well, as if they had been watched. Runs that are "
        "in the log already are not added again.",
        epilog=f"fields of --map: {', '.join(FIELDS)}, param:NAME. Needed: app, ranks, seconds.",
    )
    parser.add_argument("file", metavar="FILE", help="a file, which may be compressed, or - for standard input")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="",
        help="sacct: output of `sacct -P`; swf: Standard Workload Format; csv (default: detected)",
    )
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="FIELD=COLUMN[,...]",
        help="the columns of fields (default: columns named as the fields, or as by sacct)",
    )
    parser.add_argument("--app", default="", help="the application of lines without one")
    parser.add_argument(
        "--cluster",
        default=os.environ.get("BAROGRAPH_CLUSTER") or os.environ.get("SLURM_CLUSTER_NAME", ""),
        help="the cluster of lines without one (default: $BAROGRAPH_CLUSTER, $SLURM_CLUSTER_NAME or local)",
    )
    parser.add_argument("--assume-completed", action="store_true", help="in SWF, runs of unknown state ended well")
    parser.add_argument("--dry-run", action="store_true", help="read and report, send nothing")
    places.add_collector_option(parser, agent.endpoint(os.environ), several=True)
    return parser
