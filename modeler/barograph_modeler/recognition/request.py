"""What was asked for: the features of a job that are the same for the same work."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

import msgspec

LABEL_DIGITS: Final = 6
UNKNOWN: Final = "unknown"
"""The label of runs of which nothing is known, where the name of the family is that of other work."""
_GROUP: Final = re.compile(rf"\+([0-9a-f]{{{LABEL_DIGITS}}}|{UNKNOWN})$")
WORDS: Final = 64
INPUTS: Final = 32
"""Words and inputs that are features of their own; the further ones of a job are one feature together."""
FILES: Final = 64
NUMBERS: Final = 64
"""Numbers of one word or file."""
RECORDED: Final = ("job name", "batch script", "requested time", "requested memory")
"""What `folder` has of an imported run in place of digests of names: what its scheduler recorded."""
SCALED: Final = RECORDED[2:]
"""Those that follow the number of ranks."""
FOLDER: Final = "file "
"""What begins the name of a feature that is a file in the working folder."""


class Request(NamedTuple):
    """Features by name, in order of their names: program, script, threads, words, inputs, files in the working folder.

    Values are digests as they are in the log, sizes, or numbers. The build of the executable is none of them: the work
    of a program that was compiled again is the same.
    """

    features: tuple[tuple[str, str], ...]

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self | None:
        """The request in a row of `works`; None if the row does not say what was asked for.

        Raises ValueError for a row whose `words` or `inputs` are no JSON of the expected form.
        """
        try:
            words = msgspec.json.decode(row["words"] or "[]", type=list[str])
            inputs = msgspec.json.decode(row["inputs"] or "[]", type=list[_Input])
            folder = msgspec.json.decode(row["folder"] or "{}", type=dict[str, str])
        except msgspec.MsgspecError as error:
            found = ", ".join(f"{name} {row[name][:70]!r}" for name in ("words", "inputs", "folder"))
            raise ValueError(f"{found}: {error}") from None
        # Words are known before the executable: where they are not, the process had ended.
        is_asked = words or row["executable"] or not row["reason"]
        if not is_asked or not (row["program"] or row["executable"]):
            return None
        features = {"program": row["program"] or row["executable"], "threads": str(row["threads"])}
        if row["script"]:
            features["script"] = row["script"]
        features |= {f"word {number}": word for number, word in enumerate(words[:WORDS], 1)}
        if words[WORDS:]:
            features["further words"] = label_of(words[WORDS:])
        if inputs[INPUTS:]:
            features["further inputs"] = label_of([one.digest for one in inputs[INPUTS:]])
        for one in inputs[:INPUTS]:
            name = f"input {one.word + 1}" if one.word >= 0 else "standard input"
            if one.digest:
                # The name of a file does not matter where its content is known.
                features.pop(f"word {one.word + 1}", None)
            features[name] = one.digest or f"{one.bytes} bytes"
        features |= {FOLDER + name: folder[name] for name in sorted(folder)[:FILES]}
        return cls(tuple(sorted((sys.intern(name), value) for name, value in features.items())))

    def asked(self, row: Mapping[str, Any]) -> Asked:
        """This request apart from its numbers. row: its row of `works`. Raises ValueError as `of_row`."""
        try:
            numbers = msgspec.json.decode(row.get("numbers") or "[]", type=list[_Numbers])
        except msgspec.MsgspecError as error:
            raise ValueError(f"numbers {row['numbers'][:70]!r}: {error}") from None
        features = {name: value for name, value in self.features if name.removeprefix(FOLDER) not in SCALED}
        for name in (FOLDER + one for one in RECORDED if FOLDER + one in features):
            features[name] = features[name].partition("=")[0]  # names of jobs often have the number of ranks
        values: dict[str, str] = {}
        for one in numbers[:INPUTS]:
            place = f"{'input' if one.file else 'word'}{one.word + 1}" if one.word >= 0 else "stdin"
            name = place.replace("word", "word ").replace("input", "input ").replace("stdin", "standard input")
            if name not in features:
                continue  # a file that a word names is known by its content
            features[name] = one.form
            found = one.values.split()[:NUMBERS]
            values |= {place if len(found) == 1 else f"{place}.{i}": text for i, text in enumerate(found, 1)}
        if (threads := features.pop("threads", "-1")) != "-1":
            values["threads"] = threads
        return Asked(Request(tuple(sorted(features.items()))), tuple(sorted(values.items())))

    @property
    def label(self) -> str:
        """A short digest, the same at each scale."""
        return label_of(self.features)

    def differences(self, other: Request) -> frozenset[str]:
        """The names of the features in which two requests differ.

        A file that lies in only one of the working folders is no difference, since a run may have left it there, but
        folders that have no file of the same name are.
        """
        mine, theirs = dict(self.features), dict(other.features)
        files, others = ({name for name in one if name.startswith(FOLDER)} for one in (mine, theirs))
        names = (mine.keys() | theirs.keys()) - (files ^ others)
        found = {name for name in names if mine.get(name) != theirs.get(name)}
        return frozenset(found | {"working folder"} if files and others and not files & others else found)


class Asked(NamedTuple):
    """What a run asked for: form, with marks for numbers, and the numbers by their names, such as `word2` or `input1.3`
    for the third number of the file that the first word names."""

    form: Request
    numbers: tuple[tuple[str, str], ...]

    @property
    def is_recorded(self) -> bool:
        """Whether this is what a scheduler has recorded of an imported run, and not what a watched one asked for."""
        return any(name.removeprefix(FOLDER) in RECORDED for name, _ in self.form.features)


def label_of(value: Any) -> str:
    """A short digest of anything that JSON can hold."""
    return hashlib.blake2b(msgspec.json.encode(value), digest_size=LABEL_DIGITS // 2).hexdigest()


def family_of(group: str) -> str:
    """The name of the family of a group.

    >>> family_of("lab/heat@2x1+a1b2c3")
    'lab/heat@2x1'
    """
    return _GROUP.sub("", group)


class _Numbers(msgspec.Struct):
    word: int
    file: int
    form: str
    values: str


class _Input(msgspec.Struct):
    word: int
    digest: str
    bytes: int
