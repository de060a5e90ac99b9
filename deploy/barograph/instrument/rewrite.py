"""Insertion of probes into sources, and their output."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from clang.cindex import Diagnostic, Index, TranslationUnit

from barograph.instrument.compiler import NotInstrumentable
from barograph.instrument.probes import ProbePlan

HEADER: Final = Path(__file__).with_name("barograph_features.h")


class Instrumented(NamedTuple):
    """A source with its probes. includes: the headers included directly or indirectly."""

    source: Path
    text: bytes
    plan: ProbePlan
    includes: frozenset[Path]


def instrument(source: Path, arguments: Sequence[str], kept: frozenset[str] | None) -> Instrumented:
    """Parse a source with these arguments of clang, and insert probes.

    kept: names of the wanted features, without time stamps; None for all, with the time of their last change. Raises
    NotInstrumentable for a source that does not parse or has probes already.
    """
    try:
        text = source.read_bytes()
    except OSError as error:
        raise NotInstrumentable(f"{source}: {error.strerror}, expected a C or C++ source") from None
    if HEADER.name.encode() in text:
        raise NotInstrumentable(f"{source} includes {HEADER.name} already, expected a source without probes")
    unit = Index.create().parse(str(source), args=list(arguments), options=TranslationUnit.PARSE_NONE)
    for problem in unit.diagnostics:
        if problem.severity >= Diagnostic.Error:
            place = f"{problem.location.file}:{problem.location.line}" if problem.location.file else str(source)
            raise NotInstrumentable(
                f"{place}: {problem.spelling}; expected a source that parses: see --compile-commands, --cc"
            )
    plan = ProbePlan(text, source.name, kept)
    plan.walk(unit.cursor)
    includes = frozenset(Path(one.include.name).resolve() for one in unit.get_includes())
    return Instrumented(source, _with_probes(text, plan, source, stamps=kept is None), plan, includes)


def _with_probes(text: bytes, plan: ProbePlan, source: Path, *, stamps: bool) -> bytes:
    if not plan.names:
        return text
    # At the top, before the #define lines of the source: the header includes nothing. Line numbers do not change.
    names = " ".join(json.dumps(f"{name}\n") for name in plan.names)
    head = (
        f"#define BAROPROBES {len(plan.names)}\n"
        f"#define BAROPROBE_STAMPS {int(stamps)}\n"
        f"#define BAROPROBE_NAMES {names}\n"
        f'#include "{HEADER.name}"\n'
        f"#line 1 {json.dumps(source.name)}\n"
    )
    pieces, at = [head.encode()], 0
    for edit in sorted(plan.edits, key=lambda edit: edit.offset):
        pieces += [text[at : edit.offset], edit.text.encode()]
        at = edit.offset
    return b"".join([*pieces, text[at:]])


def write(instrumented: Sequence[Instrumented], target: Path) -> None:
    """Write sources, their headers and the header of the probes under `target`, all or none.

    Sources, and headers below their common folder, keep their relative places, so that includes resolve as before.
    Raises NotInstrumentable.
    """
    root = Path(os.path.commonpath([one.source.resolve().parent for one in instrumented]))
    files = {target / one.source.resolve().relative_to(root): one.text for one in instrumented}
    for header in frozenset().union(*(one.includes for one in instrumented)):
        if header.is_relative_to(root):
            files.setdefault(target / header.relative_to(root), header.read_bytes())
    for folder in {path.parent for path in list(files)}:
        files[folder / HEADER.name] = HEADER.read_bytes()
    partial = {path: path.with_name(f".{path.name}.partial") for path in files}
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            partial[path].write_bytes(text)
    except OSError as error:
        for path in partial.values():
            with contextlib.suppress(OSError):
                path.unlink()
        raise NotInstrumentable(f"{error.filename}: {error.strerror}, expected a folder to write to") from None
    for path, temporary in partial.items():
        temporary.replace(path)
