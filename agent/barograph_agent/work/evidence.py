"""The evidence of one job: what is known by the time that its row is written."""

from __future__ import annotations

from typing import Any, Final, Self

import msgspec

from barograph_agent.protocol.tables import TEXT_LIMIT

MOST_REASONS: Final = 20


class Input(msgspec.Struct, frozen=True):
    """A file that a word names, by the word's index; -1: standard input. digest: empty if unknown."""

    word: int
    digest: str
    bytes: int


class NumbersOfText(msgspec.Struct, frozen=True):
    """The numbers of a word, by its index, or of the file that it names; -1: of standard input.

    values: with spaces between. form: the digest of the text with a mark for each number. file: 1 for a file.
    """

    word: int
    file: int
    form: str
    values: str


class WorkEvidence(msgspec.Struct, frozen=True):
    """A row of `works` without the job's own columns."""

    executable: str = ""
    program: str = ""
    script: str = ""
    words: list[str] = []
    inputs: list[Input] = []
    folder: dict[str, str] = {}
    """Digests of small files in the working folder, by digests of their names."""
    numbers: list[NumbersOfText] = []
    platform: dict[str, str] = {}
    """What it runs on, in words."""
    threads: int = -1
    plain: list[str] | None = None
    """None: the site does not keep plain words."""
    reasons: tuple[str, ...] = ()

    def but(self, *reasons: str, **changes: Any) -> Self:
        """This evidence with changes, and with reasons why something is missing."""
        return msgspec.structs.replace(self, reasons=(*self.reasons, *(one for one in reasons if one)), **changes)

    def columns(self) -> dict[str, Any]:
        """Columns of the row."""
        plain, reasons = "", list(self.reasons)
        if self.plain is not None and len(plain := _json(self.plain)) > TEXT_LIMIT:
            plain = ""
            reasons.append(f"plain words: {len(_json(self.plain))} characters, expected at most {TEXT_LIMIT}")
        more = len(reasons) - MOST_REASONS
        return {
            "executable": self.executable,
            "program": self.program,
            "script": self.script,
            "words": _json(self.words),
            "inputs": _json(self.inputs),
            "numbers": _json(self.numbers) if self.numbers else "",
            "folder": _json(self.folder) if self.folder else "",
            "platform": _json(self.platform) if self.platform else "",
            "threads": self.threads,
            "plain": plain,
            "reason": "; ".join([*reasons[:MOST_REASONS], *([f"and {more} more"] if more > 0 else [])]),
        }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
