"""Names of classes of intervals, from the call sites in the log."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from barograph.views.log import rows_of
from barograph.views.queries import newest
from barograph_agent.deliver import keys
from barograph_agent.settings import places
from barograph_agent.system.network import is_listening
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused

ANSWER_SECONDS: Final = 2.0


def site_names(collectors: str, class_ids: Collection[int]) -> Mapping[int, str]:
    """The innermost frames before and at the end of each class, with the operation.

    Without those that no log has and of collectors that do not answer, since a class has its id as well.
    """
    names: dict[int, str] = {}
    for endpoint in places.endpoints(collectors):
        names |= _names_at(endpoint, [class_id for class_id in class_ids if class_id not in names])
    return names


def _names_at(endpoint: str, class_ids: Iterable[int]) -> Mapping[int, str]:
    ids = ", ".join(f"{class_id:d}" for class_id in class_ids)
    if not ids or not is_listening(endpoint):
        return {}
    query = f'SELECT class_id, "before", "at", operation FROM sites WHERE class_id IN ({ids}) {newest("class_id")}'
    try:
        with LogReader(endpoint, ANSWER_SECONDS, keys.from_environment(os.environ)) as reader:
            rows = rows_of(reader.query(query, seconds=ANSWER_SECONDS))
    except (LogUnavailable, ReadRefused, keys.KeyFileError):
        return {}
    return {
        int(row["class_id"]): f"{_innermost(row['before'])} to {_innermost(row['at'])} ({row['operation']})"
        for row in rows
    }


def _innermost(path: str) -> str:
    return path.partition(" < ")[0]
