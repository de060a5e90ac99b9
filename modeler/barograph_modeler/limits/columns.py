"""A job as a row of numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Column(IntEnum):
    """The positions in a row. Those from FAILED on are known when the job has ended."""

    USER = 0
    EXECUTABLE = 1
    PROCESSORS = 2
    REQUESTED = 3
    QUEUE = 4
    GROUP = 5
    MEMORY = 6
    LOG_PROCESSORS = 7
    LOG_REQUESTED = 8
    """Natural logarithm of seconds, 0 if unknown."""
    LAST_PROGRAM = 9
    """Log seconds of the last ended job of user and executable, -1 without one."""
    LAST_USER = 10
    """Likewise of the user."""
    SINCE_USER = 11
    """Log of 1 + seconds since the user's last submission."""
    SINCE_PROGRAM = 12
    """Likewise of user and executable."""
    LONGEST_RUNNING = 13
    """Log of the seconds that the longest running job of user and executable runs already."""
    IN_FLIGHT = 14
    """Jobs of user and executable that wait or run."""
    HOUR = 15
    FAILED = 16
    LOG_SECONDS = 17
    ENDED = 18
    """Seconds, as the submission."""
    USER_RUNS = 19
    """Position among the ended jobs of the user, from 1."""
    PROGRAM_RUNS = 20
    """Likewise of user and executable."""


COLUMNS: Final = len(Column)
NAMES: Final = slice(Column.USER, Column.LOG_PROCESSORS)
"""What is equal or not."""
SITUATION: Final = slice(Column.LOG_PROCESSORS, Column.HOUR)
"""What is more or less alike."""
