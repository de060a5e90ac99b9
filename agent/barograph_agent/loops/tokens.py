"""The sequence of a rank's calls as tokens, and two detectors of a call that comes once in each iteration.

A token is a site and an operation. The calls of one site are several tokens where their communicators, or these with
the other rank and the tag, follow each other in a fixed order: a loop over the neighbours of a rank, or an interpreter,
all of whose calls have one site. In no order, as neighbours at random or the answers of a master, they are one token.

By segments: the most frequent token between two of whose occurrences the calls are alike. Tokens that are as frequent
come in nearly every segment, and rarer ones in few: an inner loop of three steps is part of the iteration around it,
and a loop whose every twentieth step writes a file is one of steps.

By the period, where every token comes several times in an iteration: the shortest lag at which the sequence equals
itself (autocorrelation). The anchor is each n-th occurrence of a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

import numpy as np
import numpy.typing as npt
from numpy import fft

from barograph_agent.loops.arrays import distinct
from barograph_agent.ring.reader import OPERATIONS, Records

MIN_ITERATIONS: Final = 6
"""Occurrences of a token that make a loop."""
MAX_CANDIDATES: Final = 48
MAX_EVERY: Final = 255
"""Occurrences of the anchor in an iteration: the shim counts them in a byte."""
RARE: Final = 0.8
"""A token is rare if it comes less often than this share of the candidate's occurrences."""
MIN_PRESENCE: Final = 0.75
"""Mean share of the segments in which tokens come that are not rare."""
MAX_RARE_SEGMENTS: Final = 0.15
"""Share of the segments with rare tokens. Adjacent ones count once, but at most twice the share has them: what comes
now and then may be in the end of one iteration and the begin of the next."""
MAX_RARE_TIME: Final = 0.5
"""Share of the time in segments with rare tokens."""
MAX_TAIL: Final = 2
"""Longest segments since the last occurrence after which the loop has ended."""
SAME_COUNT: Final = 0.9
"""Tokens whose counts are within this share come equally often."""
MIN_MATCH: Final = 0.85
"""Share of the calls that equal those one period later."""
MAX_ORDER: Final = 64
"""Longest order of the calls of one site."""
MAX_VALUES: Final = 4
"""Values in such an order, in multiples of its length."""
FROM_ANY: Final = ("Waitany", "Waitsome", "Testany", "Testsome")
FROM_ONE: Final = ("Recv", "Probe", "Mprobe", "Mrecv", "Iprobe", "Improbe")
"""Operations after which a master answers the worker that was first; of these, if their source is any."""
PROBES: Final = [number for number, name in OPERATIONS.items() if name in ("Probe", "Mprobe", "Iprobe", "Improbe")]
"""A master may test for a message while it has tasks, and wait for the last ones."""
COMM: Final = 1
DETAIL: Final = 2
"""Fields of a call that distinguish calls of one site: `match` of an anchor, 0 for neither."""

Integers = npt.NDArray[np.int64]


class Tokens:
    """The calls of one rank, in order, as tokens numbered from 0.

    A key has, from high to low bits, site, operation, match and value.
    """

    def __init__(self, calls: Records) -> None:
        base = calls["site"].astype(np.int64) << 16 | calls["op"]
        match = _matches(calls, base)
        value = np.select([match == DETAIL, match == COMM], [value_of(calls, DETAIL), value_of(calls, COMM)])
        self._keys, self._sequence, self._counts = np.unique(
            (base << 2 | match) << 16 | value, return_inverse=True, return_counts=True
        )
        self._times = calls["exit_ns"].astype(np.int64)
        # Probes for whatever comes next are one token in a segment.
        self._alike = np.arange(len(self._keys))
        probes = np.isin(self._keys >> 18 & 0xFFFF, PROBES) & (self._keys >> 16 & 3 == 0)
        self._alike[probes] = self._alike[probes].min(initial=len(self._keys))

    def key(self, token: int) -> tuple[int, int, int, int]:
        """Operation, site, match and value."""
        key = int(self._keys[token])
        return key >> 18 & 0xFFFF, key >> 34, key >> 16 & 3, key & 0xFFFF

    def by_segments(self) -> int | None:
        """The token; of several that come equally often, the one that waits for most ranks."""
        order = np.argsort(-self._counts, kind="stable")[:MAX_CANDIDATES]
        best: list[int] = []
        for token in order[self._counts[order] >= MIN_ITERATIONS].tolist():
            at = np.flatnonzero(self._sequence == token)
            if (not best or self._comes_with(at, best[0])) and self._has_like_segments(at):
                best.append(token)
        return min(best, key=self._rank_of) if best else None

    def by_period(self) -> tuple[int, int] | None:
        """The token, and its occurrences in a period."""
        for period in self._periods():
            iterations = len(self._sequence) // period
            counts = np.bincount(self._sequence[-iterations * period :], minlength=len(self._keys)) / iterations
            each = np.maximum(np.rint(counts), 1.0)
            fits = (np.abs(counts / each - 1) < 1 - SAME_COUNT) & (each <= MAX_EVERY)
            if iterations < MIN_ITERATIONS or not fits.any():
                continue
            fits &= each == each[fits].min()
            token = min(np.flatnonzero(fits).tolist(), key=self._rank_of)
            return token, int(each[token])
        return None

    def _comes_with(self, at: Integers, other: int) -> bool:
        """Whether a token comes as often as a more frequent one, from its first occurrence to its last.

        A master has sent a task to each worker before the first answer comes.
        """
        others = np.flatnonzero(self._sequence == other)
        between = int(np.count_nonzero((others > at[0]) & (others < at[-1])))
        lasts = at[-1] - at[0] >= (others[-1] - others[0]) / 2
        return bool(lasts) and len(at) >= _as_often(between)

    def _rank_of(self, token: int) -> tuple[int, int]:
        """Orders tokens that come equally often, alike on all ranks of a program."""
        operation, site, *_ = self.key(token)
        return _precedence(OPERATIONS.get(operation, "")), site

    def _has_like_segments(self, at: Integers) -> bool:
        """Whether the calls between these positions are alike."""
        number, tokens = len(at) - 1, len(self._keys)
        if len(self._sequence) - 1 - at[-1] > MAX_TAIL * np.diff(at).max():
            return False
        inner = self._alike[self._sequence[at[0] : at[-1]]]
        pairs = distinct(np.repeat(np.arange(number), np.diff(at)) * tokens + inner)
        presence = np.bincount(pairs % tokens, minlength=tokens) / number
        rare = np.bincount(inner, minlength=tokens) < RARE * number
        if presence[~rare].mean() < MIN_PRESENCE:
            return False
        with_rare = distinct(pairs[rare[pairs % tokens]] // tokens)
        if max(int((np.diff(with_rare, prepend=-2) > 1).sum()), len(with_rare) / 2) > MAX_RARE_SEGMENTS * number:
            return False
        seconds = np.diff(self._times[at])
        return bool(seconds[with_rare].sum() <= MAX_RARE_TIME * max(seconds.sum(), 1))

    def _periods(self) -> Iterator[int]:
        """Lags, up to a quarter of the sequence, at which it equals itself more than at adjacent ones.

        The autocorrelation of phases, one for each token, at equal distances and in random order, is the share of
        matches but for noise; of two tokens it is lower.
        """
        size, order = len(self._sequence), list(range(len(self._keys)))
        Random(size).shuffle(order)
        phases = np.exp(2j * np.pi * np.array(order) / len(order))
        power = np.abs(fft.fft(phases[self._sequence], 2 * size)) ** 2
        correlation = fft.ifft(power).real[: size // 4 + 1] / (size - np.arange(size // 4 + 1))
        likely = np.flatnonzero(correlation >= MIN_MATCH - 0.15)
        likely = likely[likely > 0]
        ranges = np.split(likely, np.flatnonzero(np.diff(likely) > 1) + 1) if len(likely) else []
        for lags in ranges[:MAX_CANDIDATES]:
            lag = int(lags[correlation[lags].argmax()])
            if (self._sequence[lag:] == self._sequence[:-lag]).mean() >= MIN_MATCH:
                yield lag


def value_of(calls: Records, match: int) -> Integers:
    """The values by which calls of one site are distinguished."""
    return calls["comm" if match == COMM else "detail"].astype(np.int64)


def _matches(calls: Records, base: Integers) -> Integers:
    """The field that distinguishes the calls of each site, for each call."""
    matches = np.zeros(len(calls), np.int64)
    order = np.argsort(base, kind="stable")
    sites = np.split(order, np.flatnonzero(np.diff(base[order])) + 1)
    for at in sites:
        matches[at] = next((match for match in (DETAIL, COMM) if _is_ordered(value_of(calls[at], match))), 0)
    requests = [at for at in sites if not matches[at[0]] and _is_from_any(calls[at])]
    for at in sites:
        # One answer for each request: workers that are equally fast take turns by chance.
        answered = (distinct(np.searchsorted(request, at)).size for request in requests)
        if any(one >= _as_often(max(len(at), len(request))) for one, request in zip(answered, requests, strict=True)):
            matches[at] = 0
    return matches


def _is_ordered(values: Integers) -> bool:
    """Whether values, at least two, follow each other in a fixed order. Tags that are counted up do not."""
    if len(distinct(values[: MAX_ORDER + 1])) < 2:
        return False
    least = max(len(distinct(values)) // MAX_VALUES, 2)
    lags = range(least, min(MAX_ORDER, len(values) // 3) + 1)
    return any((values[lag:] == values[:-lag]).mean() >= MIN_MATCH for lag in lags)


def _is_from_any(calls: Records) -> bool:
    """Whether the calls of a site receive from whichever rank was first."""
    operation, details = OPERATIONS.get(int(calls["op"][0]), ""), calls["detail"]
    return operation in FROM_ANY or (operation in FROM_ONE and bool((details == details[0]).all()))


def _as_often(count: int) -> float:
    """Least number of a call that comes as often as another of this count: of few, the last is to come."""
    return min(SAME_COUNT * count, count - 1)


def _precedence(operation: str) -> int:
    """Order of calls that come equally often: those that wait for many ranks, then for one, then for none."""
    if operation.startswith(("Wait", "Test")):
        return 1
    if operation in ("Recv", "Sendrecv", "Sendrecv_replace", "Mrecv"):
        return 2
    if operation.endswith("robe"):
        return 3  # a test for a message may be made by some ranks only, and now and then
    if operation.endswith("send") or operation == "Send":
        return 4
    return 0
