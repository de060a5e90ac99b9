"""Insertion of probes into sources and their headers, and their output."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from clang.cindex import Cursor, Diagnostic, Index, TranslationUnit

from barograph.instrument.compiler import SUFFIXES, NotInstrumentable
from barograph.instrument.probes import ProbePlan

HEADER: Final = Path(__file__).with_name("barograph_features.h")


class Instrumented(NamedTuple):
    """A source and its probes. text: without them. includes: the headers included directly or indirectly."""

    source: Path
    text: bytes
    plan: ProbePlan
    includes: frozenset[Path]


class Headers:
    """The probes of the headers below a folder, which all sources that include them share.

    A source sets aside slots for each header it includes, and defines where they begin before it includes anything.
    """

    def __init__(self, root: Path, sources: Sequence[Path], kept: frozenset[str] | None) -> None:
        self.plans: dict[Path, ProbePlan] = {}
        self.texts: dict[Path, bytes] = {}
        self._root, self._kept = root, kept
        self._sources = {source.resolve() for source in sources}

    def plan(self, header: Path) -> ProbePlan | None:
        """The plan of a header; None for what lies outside of the folder or is a source."""
        if not header.is_relative_to(self._root) or header in self._sources or header.suffix in SUFFIXES:
            return None
        if header not in self.plans:
            name = header.relative_to(self._root).as_posix()
            base = "BAROPROBE_" + re.sub(r"\W", "_", name).upper() + f"_{len(self.plans)}"
            self.texts[header] = header.read_bytes()
            self.plans[header] = ProbePlan(self.texts[header], name, self._kept, base=base)
        return self.plans[header]

    def text(self, header: Path) -> bytes:
        """A header with its probes."""
        plan = self.plans.get(header)
        if plan is None or not plan.names:
            return header.read_bytes()
        head = f'#include "{HEADER.name}"\n#line 1 {json.dumps(header.name)}\n'
        return head.encode() + _edited(self.texts[header], plan)


def common_folder(sources: Sequence[Path]) -> Path:
    """The innermost folder that has all sources in it."""
    return Path(os.path.commonpath([source.resolve().parent for source in sources]))


def instrument(source: Path, arguments: Sequence[str], kept: frozenset[str] | None, headers: Headers) -> Instrumented:
    """Parse a source with these arguments of clang, and plan its probes and those of its headers.

    kept: names of the wanted features; None for all. Raises NotInstrumentable for a source that does not parse or has
    probes already.
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
    files: dict[str, list[Cursor]] = {}
    for cursor in unit.cursor.get_children():
        if cursor.location.file is not None:
            files.setdefault(cursor.location.file.name, []).append(cursor)
    cplusplus = SUFFIXES[source.suffix] == "c++"
    plan = ProbePlan(text, source.name, kept)
    plan.walk(files.pop(unit.cursor.spelling, []), unit.cursor.spelling, cplusplus=cplusplus)
    for file, declarations in files.items():
        if (of_header := headers.plan(Path(file).resolve())) is not None:
            of_header.walk(declarations, file, cplusplus=cplusplus)
    includes = frozenset(Path(one.include.name).resolve() for one in unit.get_includes())
    return Instrumented(source, text, plan, includes)


def _with_probes(one: Instrumented, headers: Headers, *, stamps: bool) -> bytes:
    names, bases = list(one.plan.names), []
    for header in sorted(one.includes):
        plan = headers.plans.get(header)
        if plan is not None and plan.names:
            bases.append(f"#define {plan.base} {len(names)}\n")
            names += plan.names
    if not names:
        return one.text
    # At the top, before the #define lines of the source: the header includes nothing. Line numbers do not change.
    listed = " ".join(json.dumps(f"{name}\n") for name in names)
    head = (
        f"#define BAROPROBES {len(names)}\n"
        f"#define BAROPROBE_STAMPS {int(stamps)}\n"
        f"#define BAROPROBE_NAMES {listed}\n"
        f"{''.join(bases)}"
        f'#include "{HEADER.name}"\n'
        f"#line 1 {json.dumps(one.source.name)}\n"
    )
    return head.encode() + _edited(one.text, one.plan)


def _edited(text: bytes, plan: ProbePlan) -> bytes:
    pieces, at = [], 0
    for edit in sorted(plan.edits, key=lambda edit: edit.offset):
        pieces += [text[at : edit.offset], edit.text.encode()]
        at = edit.offset
    return b"".join([*pieces, text[at:]])


def write(instrumented: Sequence[Instrumented], target: Path, headers: Headers, *, stamps: bool) -> None:
    """Write sources, their headers and the header of the probes under `target`, all or none.

    stamps: whether each feature gets the time of its last change. Sources, and headers below their common folder, keep
    their relative places, so that includes resolve as before. Raises NotInstrumentable.
    """
    root = common_folder([one.source for one in instrumented])
    files = {
        target / one.source.resolve().relative_to(root): _with_probes(one, headers, stamps=stamps)
        for one in instrumented
    }
    for header in frozenset().union(*(one.includes for one in instrumented)):
        if header.is_relative_to(root):
            files.setdefault(target / header.relative_to(root), headers.text(header))
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
