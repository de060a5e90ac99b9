"""Fits by other processes, in batches. What these do not do in time, the modeler does itself."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from barograph_agent.system.clock import CLOCK
from barograph_modeler.refits.batch import fit_windows, version
from barograph_modeler.refits.workers import Workers

BATCH: Final = 100
"""Fits of a task: a tenth of a second, beside which sending 200 kB counts for little."""
MIN_WAITING: Final = 1000
"""Workers begin when so many classes wait. Fewer take the modeler itself some seconds."""
MIN_BATCHES: Final = 4
AHEAD_SECONDS: Final = 5.0
"""Batches in flight: one more for each that is done sooner than this, one less for each that is done later, at least
MIN_BATCHES. The modeler fits what is not sent, and slow workers do not hold what it would have done by then."""
SLOW_SECONDS: Final = 60.0
"""Workers that finish nothing for so long are given up: they are none, too busy, or gone without a word."""
MAX_BATCH_SECONDS: Final = 600.0
"""So are workers that finish other batches while one takes longer than this."""
RETRY_SECONDS: Final = 60.0
"""Pause after a failure."""
IDLE_SECONDS: Final = 60.0
"""Workers that had nothing to do for so long are left."""
Failure = Literal["refused", "lost", "slow"]
Key = TypeVar("Key", bound=Hashable)
_log = logging.getLogger(__name__)


class Loan(NamedTuple, Generic[Key]):
    """What is to be fitted, as of a class a window. regime: an object of it that is another one after a change of
    level."""

    key: Key
    window: Any
    regime: object


class _Batch(NamedTuple, Generic[Key]):
    loans: Sequence[Loan[Key]]
    future: Future[list[Any]]
    sent_at: float


class Dispatch(Generic[Key]):
    """Sends batches to workers, and gets their results in any order. Used by one thread; no method waits.

    seed: of the bootstraps. clock: seconds. fitted: windows fitted by workers. failures: by kind. A failure gives up
    everything in flight, and the workers are not asked again for RETRY_SECONDS.

    fit: a function of a module that fits windows, with the seed and the version of the package. batch: fits of a task.
    min_waiting: workers begin when so many wait.
    """

    def __init__(
        self,
        workers: Workers,
        seed: int = 0,
        clock: Callable[[], float] = CLOCK.monotonic,
        *,
        fit: Callable[[Sequence[Any], int, str], list[Any]] = fit_windows,
        batch: int | None = None,
        min_waiting: int | None = None,
    ) -> None:
        self.fitted = 0
        self.batch = BATCH if batch is None else batch
        self._min_waiting = MIN_WAITING if min_waiting is None else min_waiting
        self._fit = fit
        self.failures: Counter[Failure] = Counter()
        self._workers = workers
        self._seed = seed
        self._clock = clock
        self._version = version()
        self._batches: list[_Batch[Key]] = []
        self._back: list[Loan[Key]] = []
        self._allowed = MIN_BATCHES
        self._used = False
        self._failed = False
        self._retry_at = self._used_at = self._finished_at = clock()

    @property
    def is_failed(self) -> bool:
        """Whether the last that is known of the workers is a failure."""
        return self._failed

    def room(self, waiting: int) -> int:
        """How many batches can be sent. waiting: classes that are not lent."""
        now = self._clock()
        if now < self._retry_at or waiting < (self.batch if self._used else self._min_waiting):
            return 0
        try:
            ready = self._workers.executor() is not None
        except Exception as error:
            self._fail("refused", error)
            return 0
        self._used, self._used_at = True, now
        free = min(self._workers.batches, self._allowed) - len(self._batches)
        return min(free, waiting // self.batch) if ready else 0

    def send(self, loans: Sequence[Loan[Key]]) -> bool:
        """Send a batch. Returns whether workers have taken it."""
        now = self._clock()
        try:
            executor = self._workers.executor()
            if executor is None:
                self._back += loans
                return False
            future = executor.submit(self._fit, [one.window for one in loans], self._seed, self._version)
        except Exception as error:
            self._back += loans
            self._fail("refused", error)
            return False
        if not self._batches:
            self._finished_at = now
        self._batches.append(_Batch(loans, future, now))
        return True

    def poll(self) -> list[tuple[Loan[Key], Any]]:
        """Fits that are done."""
        now = self._clock()
        done: list[tuple[Loan[Key], Any]] = []
        waiting: list[_Batch[Key]] = []
        failure: BaseException | None = None
        for batch in self._batches:
            if not batch.future.done():
                waiting.append(batch)
                continue
            self._allowed = max(MIN_BATCHES, self._allowed + (1 if now < batch.sent_at + AHEAD_SECONDS else -1))
            try:
                done += zip(batch.loans, batch.future.result(), strict=True)
            except (Exception, CancelledError) as error:
                failure = error
                self._back += batch.loans
        self._batches = waiting
        self.fitted += len(done)
        if done:
            self._used_at = self._finished_at = now
            if self._failed and failure is None:
                _log.info("%s: fits again", self._workers.name)
                self._failed = False
        if failure is not None:
            self._fail("lost", failure)
        elif waiting and (now >= self._finished_at + SLOW_SECONDS or now >= waiting[0].sent_at + MAX_BATCH_SECONDS):
            seconds = now - waiting[0].sent_at
            self._fail("slow", TimeoutError(f"{self.batch} fits are not done after {seconds:.0f} seconds"))
        elif self._used and not waiting and now > self._used_at + IDLE_SECONDS:
            self._leave()
        return done

    def take_back(self) -> list[Loan[Key]]:
        """The loans since the last call that workers do not fit."""
        back, self._back = self._back, []
        return back

    def close(self) -> None:
        """Leave the workers."""
        self._leave()
        self._batches.clear()

    def _leave(self) -> None:
        self._used = False
        self._allowed = MIN_BATCHES
        self._workers.close()

    def _fail(self, kind: Failure, error: BaseException) -> None:
        """Leave the workers for a while, and give back all loans in flight."""
        self.failures[kind] += 1
        if not self._failed:
            text = "%s: %s; the modeler fits by itself, and tries again in %g seconds"
            _log.warning(text, self._workers.name, f"{type(error).__name__}: {error}"[:300], RETRY_SECONDS)
        self._failed = True
        self._retry_at = self._clock() + RETRY_SECONDS
        for batch in self._batches:
            self._back += batch.loans
            batch.future.cancel()
        self._batches.clear()
        self._leave()
