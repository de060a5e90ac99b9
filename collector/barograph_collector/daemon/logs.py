"""Log lines on standard error: plain text, text for journald, or JSON."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import Final

_PRIORITIES: Final = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


def log_to_stderr(
    daemon: str, form: str = "text", *, environment: Mapping[str, str] = os.environ, level: int = logging.INFO
) -> None:
    """Send log records to standard error. form: `text` or `json`.

    `text`: one line per record with time (UTC), level, daemon and message; where standard error is connected to
    journald, which records time and daemon itself, with the priority as `<4>` and the message. `json`: one object per
    record.
    """
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(_Json(daemon))
    elif _is_journal(environment):
        handler.setFormatter(_Journal())
    else:
        formatter = logging.Formatter(f"%(asctime)s %(levelname)s {daemon} %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        formatter.converter = time.gmtime
        handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)


class _Json(logging.Formatter):
    """`at` (Unix seconds), `level`, `daemon`, `logger`, `message`, and for an exception `trace`."""

    def __init__(self, daemon: str) -> None:
        super().__init__()
        self._daemon = daemon

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "at": round(record.created, 6),
            "level": record.levelname.lower(),
            "daemon": self._daemon,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields)


class _Journal(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        # journald reads each line as a record.
        priority = _PRIORITIES.get(record.levelno, 6)
        return "\n".join(f"<{priority}>{line}" for line in super().format(record).splitlines())


def _is_journal(environment: Mapping[str, str]) -> bool:
    """Whether standard error is the stream in $JOURNAL_STREAM, which children inherit even when redirected."""
    try:
        status = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
