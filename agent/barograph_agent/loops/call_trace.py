"""Calls and iterations that the shim of one rank writes on demand, and the limits on their cost."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from barograph_agent.loops.anchors import Anchor, occurrences
from barograph_agent.loops.arrays import median, newest
from barograph_agent.loops.tokens import MAX_EVERY
from barograph_agent.ring.reader import CALL, Records, Ring, Want

MAX_CALL_RATE: Final = 400_000.0
"""Calls per second. Writing them takes 1 % of a core, at 25 ns each."""
MAX_FLOWING_CALL_RATE: Final = 40_000.0
"""The limit while collectives come in each step: 0.1 % of a core."""
REST: Final = 10.0
"""Pause of writing after a step that exceeded the limit, in multiples of its length."""
MAX_RECORD_RATE: Final = 250_000.0
"""Records and comparisons of an anchor per second: 1 % of a core. Above it there are no iterations."""
MIN_ITERATION_SECONDS: Final = 50e-6
"""Shorter iterations are recorded several at a time."""
AWAY_SECONDS: Final = 2.0
"""An anchor is away once it has not come for so long, and for AWAY_INTERVALS of the longest interval."""
AWAY_INTERVALS: Final = 4.0
MISSED_SECONDS: Final = 0.25
"""Time without the anchor after which calls are written: they have the iterations of the next loop."""


class CallTrace:
    """Calls and iterations of one ring. `read` is called once in each step."""

    def __init__(self, ring: Ring, max_calls: int) -> None:
        self.ring = ring
        self.calls: Records = np.empty(0, CALL)
        """The newest calls that were read since writing began, at most so many as given."""
        self._max_calls = max_calls
        self.called_ns = 0
        """End of the newest call that was read, by the ring's clock; 0 before the first."""
        self.filled = 0.0
        """Share of the table of calls that the last step has filled."""
        self.is_too_fast = False
        """Whether iterations are not recorded because of MAX_RECORD_RATE."""
        wanted = ring.wanted
        self._want = wanted if wanted.op else Want(calls=wanted.calls)
        self._position = 0
        self._read_at = self._rests_until = -math.inf
        self._came_at, self._longest = 0.0, 0.0
        self._iterations = self._compared = self._dropped = 0

    @property
    def anchor(self) -> Anchor | None:
        """The anchor whose iterations the shim records."""
        want = self._want
        return Anchor(want.op, want.site, want.match, want.value, want.every) if want.op else None

    def read(self, now: float, max_call_rate: float = MAX_CALL_RATE) -> None:
        """Read what has come since the last step. now: monotonic seconds. Raises RingError."""
        passed, ring = now - self._read_at, self.ring
        if self._read_at == -math.inf:
            passed, self._came_at = 0.0, now
            self._iterations, self._compared = ring.iterations.head, ring.compared
            self._dropped = ring.iterations.dropped
        self._read_at = now
        self._count_iterations(now, passed)
        self.filled = 0.0
        if self._want.calls:
            self._read_calls(now, passed, max_call_rate)

    def lacks_anchor(self, now: float, seconds: float = MISSED_SECONDS) -> bool:
        """Whether there is no anchor, or it has not come for so long."""
        return not self._want.op or now - self._came_at >= seconds

    def is_away(self, now: float) -> bool:
        """Whether there is no anchor, or its loop has ended."""
        return self.lacks_anchor(now, max(AWAY_SECONDS, AWAY_INTERVALS * self._longest))

    def write_calls(self, now: float, *, on: bool) -> None:
        """Let the shim write calls, unless that is suspended, or stop it."""
        if on and not self._want.calls and now >= self._rests_until and not self.is_too_fast:
            self.drop_calls()
            self._ask(self._want._replace(calls=True))
        elif not on:
            self._ask(self._want._replace(calls=False))

    def record(self, anchor: Anchor, now: float) -> Anchor:
        """Let the shim record each iteration of an anchor in `calls`. Returns the anchor with its final `every`."""
        calls = self.calls
        times = calls["exit_ns"][occurrences(calls, anchor)] * 1e-9
        anchor = spaced(anchor, times)
        self._longest, self._came_at = float(np.diff(times).max(initial=0.0)), now
        self._ask(Want(self._want.calls, *anchor, generation=self._want.generation % 255 + 1))
        return anchor

    def drop_anchor(self) -> None:
        """Let the shim record no iterations."""
        self._ask(Want(calls=self._want.calls, generation=self._want.generation))

    def drop_calls(self) -> None:
        """Drop the calls that were read."""
        self.calls = np.empty(0, CALL)

    def _count_iterations(self, now: float, passed: float) -> None:
        ring, want = self.ring, self._want
        came, compared = ring.iterations.head - self._iterations, ring.compared - self._compared
        if came:
            self._longest = max((now - self._came_at) / came, self._longest)
            self._came_at = now
        is_full = ring.iterations.dropped > self._dropped
        self._iterations, self._compared, self._dropped = (
            self._iterations + came, self._compared + compared, ring.iterations.dropped,
        )  # fmt: skip
        if want.op and not want.calls and passed > 0 and (came + compared) / passed > MAX_RECORD_RATE:
            self.is_too_fast = True
            self.drop_anchor()
        elif is_full and want.op and 2 * want.every <= MAX_EVERY:
            self._ask(want._replace(every=2 * want.every))

    def _read_calls(self, now: float, passed: float, max_rate: float) -> None:
        first, calls = self.ring.calls(self._position)
        if first > self._position:
            self.drop_calls()
        made, self._position = first + len(calls) - self._position, first + len(calls)
        self.filled = made / self.ring.call_capacity
        if len(calls):
            self.calls = newest(self.calls, calls, self._max_calls)
            self.called_ns = int(calls["exit_ns"][-1])
            passed = passed or (self.called_ns - self.ring.started_ns) * 1e-9
        if passed > 0 and made / passed > max_rate:
            self._rests_until = now + REST * passed
            self.write_calls(now, on=False)

    def _ask(self, want: Want) -> None:
        if want != self._want:
            self.ring.want(want)
            self._want = want


def spaced(anchor: Anchor, times: npt.NDArray[Any]) -> Anchor:
    """The anchor, of several iterations where these are too short. times: their ends, seconds."""
    distance = median(np.diff(times)) if len(times) > 1 else MIN_ITERATION_SECONDS
    factor = 1
    while factor * distance < MIN_ITERATION_SECONDS and 2 * factor * anchor.every <= MAX_EVERY:
        factor *= 2
    return anchor._replace(every=factor * anchor.every)
