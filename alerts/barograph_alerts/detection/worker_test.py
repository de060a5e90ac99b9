"""A worker of a training that is slow among its like from its first steps on.

Workers that train copies of one network do the same work, each on data of its own. So the slow one needs no history;
but more data must not be taken for a slow worker. Among healthy workers any may be the one with most own work in a
round of rows; that it is the same one round after round is evidence, of the size that a bet on it would have won. A
round counts only if the worker with most own work

- delays the step by the margin or more, and
- needs longer for what is the same whatever the data: the update of the parameters; or has not used as much more of a
  processor as it took longer, while the others waited for its gradients. More data would use a processor.

Workers whose parameters have different sizes, such as the stages of a pipeline, do other work and are not compared. A
worker that becomes slow later is found by the other tests.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

STAKE: Final = 0.8
"""Share of the capital that is bet on the same worker again."""
MIN_UPDATE_SECONDS: Final = 2e-5
"""A shorter update is not timed well enough."""
MIN_UPDATE_EXCESS: Final = 0.1
"""Least excess of an update over those of the others, as its share."""
BUSY: Final = 0.5
"""A worker with more data uses at least this share more of a processor, of the share that it takes longer."""
WAITED: Final = 0.5
"""Share of the delay that the others wait for gradients."""
MIN_STEPS: Final = 3
"""Least steps in a row that counts."""
RECOVERED: Final = 3
"""Rounds in a row without SHARE of the delay end the disturbance."""
SHARE: Final = 0.5
MAX_WORKERS: Final = 65_536
MAX_ROUNDS: Final = 256

Floats = npt.NDArray[np.float64]


class WorkerRow(NamedTuple):
    """What a worker did in some steps; times are seconds per step, ended_at Unix seconds."""

    host: str
    rank: int
    steps: int
    own: float
    cpu: float
    update: float
    wait: float
    bytes: int
    ended_at: float


class Round(NamedTuple):
    """One row of each worker. worst: place of the worker with most own work; -1 if it does not count as slow."""

    began_at: float
    worst: int
    delay: float
    """Own work of the worst worker over the median of the others, seconds per step."""
    step: float
    """Length of a step, seconds."""
    update: float
    """Update of the worst worker over the median of the others; NaN if it is too short."""


class SlowWorker(NamedTuple):
    """The worker that delays the others. delay: seconds per step. update: its update over theirs, NaN if unknown."""

    host: str
    rank: int
    since: float
    slowdown: float
    delay: float
    update: float


class WorkerTest:
    """Tests one training. alpha: chance of an alarm if the workers are alike. margin: share of a step that matters."""

    def __init__(self, alpha: float, margin: float, workers: int) -> None:
        self._limit = -math.log(alpha)
        self._margin = margin
        self._size = workers if 1 < workers <= MAX_WORKERS else 0
        """Their number; 0 if they are not compared."""
        self._rows: dict[int, WorkerRow] = {}
        self._hosts: dict[int, str] = {}
        self._ranks: list[int] = []
        self._log_e: Floats = np.zeros(max(self._size, 1))
        """Of the bet on each worker."""
        self._rounds: deque[Round] = deque(maxlen=MAX_ROUNDS)
        self._began_at = math.nan

    @property
    def log_e(self) -> float:
        """Log e-value of the hypothesis that the workers are alike: the mean of the bets on each."""
        highest = float(self._log_e.max())
        return highest + math.log(float(np.exp(self._log_e - highest).mean()))

    @property
    def score(self) -> float:
        """Above 1 if a worker is slow."""
        return max(self.log_e, 0.0) / self._limit

    def add(self, row: WorkerRow) -> bool:
        """Add a row; whether it completes a round."""
        if not row.rank < self._size or row.steps < MIN_STEPS or not row.own > 0:
            return False
        self._rows[row.rank] = row
        if len(self._rows) < self._size:
            return False
        rows, self._rows = [self._rows[rank] for rank in sorted(self._rows)], {}
        ended_at = max(one.ended_at for one in rows)
        began_at = self._began_at if self._began_at == self._began_at else ended_at - _length(rows)
        self._began_at = ended_at
        ranks = [one.rank for one in rows]
        if ranks != self._ranks:
            self._ranks, self._hosts = ranks, {one.rank: one.host for one in rows}
            self.reset()
        self._bet(self._judge(began_at, rows))
        return True

    def slow(self) -> SlowWorker | None:
        """The worker with most evidence, if there is enough."""
        if self.score <= 1:
            return None
        place = int(self._log_e.argmax())
        since = list(self._rounds)
        while since and since[0].worst != place:
            since.pop(0)
        counted = [one for one in since if one.worst == place]
        delay, step = (float(np.mean([getattr(one, name) for one in counted])) for name in ("delay", "step"))
        updates = [one.update for one in counted if one.update == one.update]
        rank = self._ranks[place]
        return SlowWorker(
            self._hosts[rank],
            rank,
            since[0].began_at,
            step / max(step - delay, 0.01 * step),
            delay,
            float(np.median(updates)) if updates else math.nan,
        )

    def recovered_at(self, slow: SlowWorker) -> float:
        """From when on a worker that was slow has been like the others; NaN while it is slow."""
        rounds = list(self._rounds)[-RECOVERED:]
        place = self._ranks.index(slow.rank) if slow.rank in self._ranks else -1
        is_slow = [one.worst == place and one.delay >= SHARE * slow.delay for one in rounds]
        return rounds[0].began_at if len(rounds) == RECOVERED and not any(is_slow) else math.nan

    def reset(self) -> None:
        """Forget the evidence."""
        self._log_e[:] = 0.0
        self._rounds.clear()

    def _judge(self, began_at: float, rows: list[WorkerRow]) -> Round:
        own, cpu, update, wait = np.array([one[3:7] for one in rows]).T
        worst = int(own.argmax())
        others = np.arange(len(rows)) != worst
        usual = float(np.median(own[others]))
        delay, step = float(own[worst]) - usual, float(np.median(own + wait))
        updated = float(np.median(update[others]))
        updates = float(update[worst]) / updated if updated >= MIN_UPDATE_SECONDS else math.nan
        used = float(np.median(cpu[others]))
        more_used = float(cpu[worst]) / used - 1 if used > 0 else math.inf
        idle = more_used < BUSY * delay / usual and float(np.median(wait[others])) - wait[worst] >= WAITED * delay
        by_update = updates >= 1 + max(self._margin, MIN_UPDATE_EXCESS)
        is_slow = delay >= self._margin * step and (by_update or idle) and len({one.bytes for one in rows}) == 1
        return Round(began_at, worst if is_slow else -1, delay, step, updates)

    def _bet(self, found: Round) -> None:
        self._rounds.append(found)
        self._log_e += math.log(1 - STAKE)
        if found.worst >= 0:
            self._log_e[found.worst] += math.log((1 - STAKE + STAKE * self._size) / (1 - STAKE))


def _length(rows: list[WorkerRow]) -> float:
    """Time of the steps of a round, in seconds."""
    return float(np.median([one.steps * (one.own + one.wait) for one in rows]))
