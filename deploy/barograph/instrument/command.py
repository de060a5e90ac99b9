"""The command line of `barograph instrument`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from barograph.cli import CommandError, Parser
from barograph.instrument.compiler import NotInstrumentable, arguments
from barograph.instrument.rewrite import Headers, common_folder, instrument, write
from barograph_collector.daemon.service import Exit


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="barograph instrument",
        description="Put probes into C and C++ sources: values assigned outside loops, branches, cases, loop iterations"
        " and sizes of MPI messages become features from which the runtime can be predicted. Fortran is out of scope.",
    )
    parser.add_argument(
        "sources", nargs="+", type=Path, metavar="SRC", help="C or C++ sources; headers below their folder too"
    )
    parser.add_argument(
        "-o",
        "--output",
        dest="target",
        required=True,
        type=Path,
        metavar="OUT",
        help="folder for the sources with their probes",
    )
    parser.add_argument(
        "--compile-commands",
        type=Path,
        metavar="DIR",
        help="folder of compile_commands.json, with the arguments of each source",
    )
    parser.add_argument("--cc", default="cc", metavar="COMMAND", help="compiler whose headers are used (default: cc)")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FILE.json",
        help="only these features, without time stamps: see barograph features",
    )
    parser.add_argument("--list", action="store_true", help="also list the places without probes, and why")
    return parser


def main(words: Sequence[str]) -> int:
    """Write the sources with their probes, or nothing; 65 for a source that cannot be read."""
    at = words.index("--") if "--" in words else len(words)
    parser = _parser()
    parser.usage = f"{parser.format_usage().removeprefix('usage: ').rstrip()} [-- COMPILER-FLAG ...]"
    options = parser.parse_args(words[:at])
    try:
        kept = None if options.keep is None else _kept(options.keep)
        headers = Headers(common_folder(options.sources), options.sources, kept)
        done = [
            instrument(source, arguments(source, options.cc, words[at + 1 :], options.compile_commands), kept, headers)
            for source in options.sources
        ]
        write(done, options.target, headers, stamps=kept is None)
    except NotInstrumentable as error:
        raise CommandError(str(error)) from error
    plans = {**{one.source: one.plan for one in done}, **headers.plans}
    for path, plan in plans.items():
        kinds = Counter(name.split(":")[3] for name in plan.names)
        if plan.base and not kinds:
            continue
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "nothing to probe"
        print(f"{path}: {counts}; {len(plan.skipped)} places without probes")
        for line, why in plan.skipped if options.list else ():
            print(f"  line {line}: {why}")
    return Exit.OK


class _Features(msgspec.Struct):
    features: frozenset[str]


def _kept(path: Path) -> frozenset[str]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Features).features
    except OSError as error:
        raise NotInstrumentable(f"{path}: {error.strerror}, expected a list of features") from None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise NotInstrumentable(f'{path}: expected {{"features": ["main.c:75:5:value:n", ...]}}') from None
