"""What people say about groups of like work, as rows of `work_edits`: that two are one, or one is several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from barograph_collector.daemon.runner import Output
from barograph_modeler.recognition.family import Merge, UnknownWork
from barograph_modeler.recognition.recognizer import Recognizer

ANSWERED_SECONDS: Final = 60.0
"""Edits are answered at this age at most: the log is also read again."""


class WorkEdit(NamedTuple):
    """A row. argument: the name, the features that matter, one per line, or the group to merge with."""

    target: str
    action: str
    argument: str
    editor: str = ""
    time: float = 0.0


def edits(columns: Mapping[str, Any]) -> Iterator[WorkEdit]:
    """The edits in rows of the table."""
    for target, action, argument, editor, time in zip(*(columns[name] for name in WorkEdit._fields), strict=True):
        yield WorkEdit(target, action, argument, editor, float(time))


def apply(edit: WorkEdit, recognizer: Recognizer, now: float) -> tuple[Merge | None, list[Output]]:
    """Make an edit; the merge that it is, and the rows of `events` that answer it. now: Unix seconds."""
    merge = None
    try:
        match edit.action:
            case "merge":
                merge = recognizer.join(edit.target, edit.argument, f"merged by {edit.editor}", now)
                text = f"{edit.target} is one with {edit.argument}"
            case "split":
                names = recognizer.split(edit.target, frozenset(edit.argument.splitlines()), edit.time)
                text = f"{edit.target} is split: {', '.join(names)}"
            case _:
                return None, []  # names are for readers
        kind = "work-edited"
    except UnknownWork as error:
        text, kind = str(error), "work-edit-refused"
    if now - edit.time > ANSWERED_SECONDS:
        return merge, []
    return merge, [Output("events", 1, {"source": edit.target, "kind": kind, "rows": 1, "detail": text, "time": now})]
