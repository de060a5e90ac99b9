"""The anchor of a loop: a call that comes once in each iteration, found in the sequence of a rank's calls.

A call is a token: site and operation. The calls of one site are several tokens where their communicators, or these with
the other rank and the tag, follow each other in a fixed order: a loop over the neighbours of a rank, or an interpreter,
all of whose calls have one site. Where they are in no order, as with neighbours at random, they are one, and so are the
answers of a master.

A token is a candidate if the calls between two of its occurrences are alike:

- tokens that are as frequent as it come in nearly every such segment, and
- rarer ones in few of them. So an inner loop of three steps is part of the iteration around it, and a loop whose every
  twentieth step writes a file is one of steps.

A rank that only sends has not been told anything: where it begins a pipeline, row by row, the iteration is what ends
with an answer, if there is one.

Where ranks answer whatever message comes, several together are alike, and an iteration is as many.

Of all candidates the most frequent one has the shortest iteration, whatever the number of calls in it. Where every
token comes several times in an iteration, the anchor is each n-th occurrence: by the period at which the sequence is
most like itself (autocorrelation), or because the calls after each n-th one are alike, and those after the others
differ. A loop that is interrupted again and again, as a sweep through a grid that is followed by another one, is the
iteration only if nothing else is. One whose passes are of very different lengths, at the same places each time, as a
V-cycle through coarser and coarser grids, is a part of the one around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_agent.ring.reader import OPERATIONS, Records

MIN_ITERATIONS: Final = 6
"""Occurrences of an anchor from which on it is one."""
MAX_CALLS: Final = 16_384
"""The newest calls, in which it is sought."""
MAX_CANDIDATES: Final = 48
RARE: Final = 0.8
"""A token is rare if it comes less often than this share of the candidate's occurrences."""
MAX_RARE_SEGMENTS: Final = 0.15
"""Share of the segments that may contain rare tokens. Neighbours with rare tokens count as one: what comes now and then
may be in the end of one iteration and the begin of the next."""
MAX_RARE_NEIGHBOURS: Final = 2
"""The same without that, as a multiple."""
MAX_RARE_TIME: Final = 0.5
"""The same of their time."""
MIN_PRESENCE: Final = 0.75
"""Mean share of the segments in which tokens come that are not rare."""
MIN_GROUP_PRESENCE: Final = 0.98
"""The same of several messages together."""
MIN_GROUPS: Final = 50
"""Such groups, from which on they are an iteration."""
MESSAGES: Final = (2, 4, 8, 16, 32, 64)
"""Messages that are one iteration together, where their order is by chance."""
SAME_COUNT: Final = 0.9
"""Candidates whose counts are within this share come equally often."""
MIN_SPAN: Final = 0.5
"""They do so over at least this share of the calls of the more frequent one."""
MIN_MATCH: Final = 0.85
"""Share of the calls that are those one period later."""
MAX_EXACT: Final = 8
"""Tokens whose autocorrelation is calculated one by one."""
ALWAYS: Final = 0.98
"""Calls in a period that come in nearly every one, as a share of the most frequent one's."""
SAME_PEAK: Final = 0.05
"""Lags whose matches are within this share of the best one beside them are as good."""
MAX_ORDER: Final = 64
"""Longest order of the calls of one site."""
MAX_VALUES: Final = 4
"""Values in such an order, in multiples of its length."""
FROM_ANY: Final = ("Waitany", "Waitsome", "Testany", "Testsome")
FROM_ONE: Final = ("Recv", "Probe", "Mprobe", "Mrecv", "Iprobe", "Improbe")
"""Operations after which a master answers the worker that was first; the latter if their source is any."""
PROBES: Final = [number for number, name in OPERATIONS.items() if name in ("Probe", "Mprobe", "Iprobe", "Improbe")]
"""Operations that look for a message. A master may test for one as long as it has tasks, and wait for the last ones."""
SENDS: Final = [number for number, name in OPERATIONS.items() if name.endswith("send") or name == "Send"]
MAX_TAIL: Final = 2
"""Longest segments since the last occurrence, from which on the loop has ended."""
MAX_EVERY: Final = 255
SHARES: Final = (1.0, 0.25)
"""Parts of the calls that are tried, the newest: the loop may have begun with them."""
TIMES: Final = (0.5, 0.25)
"""Parts of their time that are tried then: a loop may call less often than the one before it."""
MAX_SHARE: Final = 1 / 6
"""The most calls that such a part has, as a share of all."""
MAX_LOOPS: Final = 4
"""Loops that are sought in the calls of one rank, one before the other."""
MIN_LOOP_SECONDS: Final = 1.0
"""Least time of a loop that is not the last one."""
MIN_TURN: Final = 0.85
"""Share of the segments of one turn, from which on a token comes in it, and below the rest of which it does not."""
MIN_PAUSE: Final = 3.0
"""Calls between two occurrences of an anchor, in multiples of the usual number, that interrupt its loop."""
MIN_PAUSES: Final = 2
"""Such pauses, from which on its loop is a part of another one, if they take more than MAX_PAUSE_TIME."""
MAX_PAUSE_TIME: Final = 0.4
"""The same as a share of the time: of two loops that take turns, each is interrupted."""
MIN_UNEVEN: Final = 0.5
"""Share of the time of a loop in the longest quarter of its passes, from which on it is a part of the one around it."""
MAX_BREAK: Final = 10.0
"""Calls between two occurrences of an anchor, in multiples of the usual number, from which on its loop begins anew."""

MAX_MARKS: Final = 16
"""Bytes for each value up to which distinct ones are marked, not sorted: 256 KiB for MAX_CALLS."""

Integers = npt.NDArray[np.int64]


class Anchor(NamedTuple):
    """A call that ends an iteration. The fields are those of `Want`."""

    op: int
    site: int
    match: int = 0
    value: int = 0
    every: int = 1
    thread: int = 0


def find(calls: Records, most_calls: int = MAX_CALLS) -> Anchor | None:
    """The anchor of the loop in these calls of one rank, in order; None if there is none.

    most_calls: the newest, in which it is sought: 10 ms for the default.
    Of several threads that call, it is that of the one that calls most: chance decides who of them is next.
    """
    calls = calls[-most_calls:]
    made = np.bincount(calls["thread"])
    most = int(made.argmax()) if len(made) else 0
    if several := np.count_nonzero(made) > 1:
        calls = calls[calls["thread"] == most]
    anchor = _find(calls)
    return anchor and anchor._replace(thread=most + 1 if several else 0)


def _find(calls: Records) -> Anchor | None:
    """The same of one thread."""
    parts: list[_Tokens] = []
    inner: list[Anchor] = []
    for part in _newest(calls):
        parts.append(tokens := _Tokens(part))
        anchor = _better(part, tokens)
        if anchor is not None and is_inner(calls, anchor):
            inner.append(anchor)
        elif anchor is not None:
            return anchor
    return next(filter(None, (tokens.by_messages() for tokens in parts)), inner[0] if inner else None)


def _better(calls: Records, tokens: _Tokens) -> Anchor | None:
    """The anchor of the loop around it where its iterations are of different lengths in each pass of that."""
    found = _best(calls, tokens)
    if found is None:
        return None
    at, period = occurrences(calls, found), tokens.by_period
    if around := tokens.around(at):
        return around
    return period if period and tokens.is_uneven(at, occurrences(calls, period)) else found


def _best(calls: Records, tokens: _Tokens) -> Anchor | None:
    """The anchor by segments, or that by the period if several segments are one, or many of it are in one segment.

    That by turns if many of it are in one iteration of these.
    """
    found = _by_segments_or_period(calls, tokens)
    if found is None:
        return tokens.by_turns()
    if tokens.most_calls <= 2 * MIN_ITERATIONS * len(occurrences(calls, found)):
        return found
    turns = tokens.by_turns()
    if turns is None or is_inner(calls, turns):
        return found
    return turns if _ratio(calls, turns, found) > MIN_ITERATIONS else found


def _by_segments_or_period(calls: Records, tokens: _Tokens) -> Anchor | None:
    segments, period = tokens.by_segments(), tokens.by_period
    if not segments or not period:
        return segments or period
    ratio = _ratio(calls, segments, period)
    if ratio < 1 / MIN_ITERATIONS:
        return segments if is_inner(calls, period) else period
    return period if tokens.takes_turns(occurrences(calls, segments), round(ratio)) else segments


def _ratio(calls: Records, anchor: Anchor, other: Anchor) -> float:
    return len(occurrences(calls, anchor)) / max(len(occurrences(calls, other)), 1)


def is_inner(calls: Records, anchor: Anchor) -> bool:
    """Whether the loop of this anchor is likely a part of another one."""
    at = occurrences(calls, anchor)
    sends = np.isin(calls["op"], SENDS)
    # The first rank of a pipeline never does anything but send.
    has_others = len(at) > 1 and not sends[at[0] : at[-1]].all()
    return (has_others and _only_sends(sends, at)) or _is_interrupted(calls, at)


def _only_sends(sends: npt.NDArray[np.bool_], at: Integers) -> bool:
    """Whether a rank does nothing but send between most of these calls. sends: of each call, whether it does that."""
    others = np.cumsum(~sends)[at]
    return len(at) > 1 and bool(sends[at[0]]) and float((np.diff(others) > 0).mean()) <= MAX_RARE_SEGMENTS


def _is_interrupted(calls: Records, at: Integers) -> bool:
    """Whether the loop of an anchor has been interrupted again and again, for a large part of the time."""
    gaps = np.diff(at)
    pauses = gaps > MIN_PAUSE * np.median(gaps) if len(gaps) else np.zeros(0, bool)
    seconds = np.diff(calls["exit_ns"][at].astype(np.int64))
    return bool(pauses.sum() >= MIN_PAUSES and seconds[pauses].sum() > MAX_PAUSE_TIME * seconds.sum())


def _newest(calls: Records) -> Iterator[Records]:
    """The parts of the calls that are tried."""
    lengths = [max(int(len(calls) * share), 1) for share in SHARES]
    if len(calls):
        times = calls["exit_ns"].astype(np.int64)
        ages = (times[-1] - times) / max(times[-1] - times[0], 1)
        late = [int(np.count_nonzero(ages <= share)) for share in TIMES]
        lengths += [length for length in late if length <= MAX_SHARE * len(calls)]
    for length in dict.fromkeys(lengths):
        if length >= MIN_ITERATIONS:
            yield calls[-length:]


def loops(calls: Records, anchor: Anchor) -> list[tuple[Anchor, Integers]]:
    """The loop of this anchor, which is the last one in these calls of a rank, and those before it, the oldest first.

    Each with the positions of its anchor, of which each n-th ends an iteration. Of those before it, only such that took
    MIN_LOOP_SECONDS: what a program does when it starts is no loop.
    """
    found: list[tuple[Anchor, Integers]] = []
    end = len(calls)
    while True:
        at = occurrences(calls[:end], anchor._replace(every=1))
        first = _last_begin(at, anchor.every)
        # Its first iteration begins somewhere before.
        before = int(at[first]) if len(at) else 0
        earlier = find(calls[:before]) if len(found) + 1 < MAX_LOOPS else None
        passes = len(at) - first
        if earlier is None or not lasts(calls[:before], earlier) or _is_part(calls[:end], earlier, before, passes):
            return [(anchor, at), *found]
        found.insert(0, (anchor, at[first:]))
        anchor, end = earlier, before


def _is_part(calls: Records, earlier: Anchor, before: int, passes: int) -> bool:
    """Whether a loop that was found before the first pass of another one is in each of its passes too."""
    at = occurrences(calls, earlier)
    number = int(np.searchsorted(at, before))
    return number * passes <= MAX_TAIL * (len(at) - number)


def _last_begin(at: Integers, every: int) -> int:
    """Number of the occurrence since which an anchor comes regularly. every: how often in an iteration."""
    gaps = at[every:] - at[:-every]
    breaks = np.flatnonzero(gaps > MAX_BREAK * np.median(gaps)) if len(gaps) else gaps
    return int(breaks[-1]) + 1 if len(breaks) else 0


def lasts(calls: Records, anchor: Anchor) -> bool:
    """Whether a loop takes MIN_LOOP_SECONDS."""
    at = occurrences(calls, anchor)
    return len(at) > 0 and float(np.ptp(calls["exit_ns"][at])) * 1e-9 >= MIN_LOOP_SECONDS


def occurrences(calls: Records, anchor: Anchor) -> Integers:
    """Positions of the calls that end an iteration."""
    is_one = (calls["op"] == anchor.op) & (calls["site"] == anchor.site)
    if anchor.thread:
        is_one &= calls["thread"] == anchor.thread - 1
    if anchor.match:
        is_one &= _value(calls, anchor.match) == anchor.value
    found = np.flatnonzero(is_one).astype(np.int64)
    return found[anchor.every - 1 :: anchor.every]


def _value(calls: Records, match: int) -> Integers:
    return calls["comm" if match == 1 else "detail"].astype(np.int64)


def _distinct(values: Integers, limit: int) -> Integers:
    """The distinct ones of values from 0 to below a limit, in order: without sorting where the limit is low."""
    if limit > MAX_MARKS * len(values):
        return np.unique(values)
    marks = np.zeros(limit, bool)
    marks[values] = True
    return np.flatnonzero(marks)


def _is_ordered(values: Integers) -> bool:
    """Whether values follow each other in a fixed order, of two at least. Not of many that come for a while each: tags
    that are counted up."""
    if len(np.unique(values[: MAX_ORDER + 1])) < 2:
        return False
    least = max(len(np.unique(values)) // MAX_VALUES, 2)
    lags = range(least, min(MAX_ORDER, len(values) // 3) + 1)
    return any((values[lag:] == values[:-lag]).mean() >= MIN_MATCH for lag in lags)


def _exactness(calls: Records, base: Integers) -> Integers:
    """What tells the calls of each site apart: 2 the detail, 1 the communicator, 0 nothing; for each call."""
    found = np.zeros(len(calls), np.int64)
    order = np.argsort(base, kind="stable")
    places = np.split(order, np.flatnonzero(np.diff(base[order])) + 1)
    for at in places:
        found[at] = next((match for match in (2, 1) if _is_ordered(_value(calls[at], match))), 0)
    requests = [at for at in places if not found[at[0]] and _is_from_any(calls[at])]
    for at in places:
        if found[at[0]] and any(_answers(at, asked) for asked in requests):
            found[at] = 0
    return found


def _is_from_any(calls: Records) -> bool:
    """Whether the calls of a site receive from whoever was first."""
    operation = OPERATIONS.get(int(calls["op"][0]), "")
    return operation in FROM_ANY or (operation in FROM_ONE and len(np.unique(calls["detail"])) == 1)


def _answers(at: Integers, asked: Integers) -> bool:
    """Whether there is one call of a site for each request: workers that are as fast take turns by chance."""
    each = np.unique(np.searchsorted(asked, at)).size
    return each >= _as_often(max(len(at), len(asked)))


class _Tokens:
    """The sequence, with tokens numbered from 0. A key has, from high to low bits, site, operation, match and value."""

    def __init__(self, calls: Records) -> None:
        base = calls["site"].astype(np.int64) << 16 | calls["op"]
        match = _exactness(calls, base)
        value = np.select([match == 2, match == 1], [_value(calls, 2), _value(calls, 1)])
        self._keys, self._sequence, self._counts = np.unique(
            (base << 2 | match) << 16 | value, return_inverse=True, return_counts=True
        )
        self._times = calls["exit_ns"].astype(np.int64)
        details = calls["detail"]
        some = np.zeros(len(self._keys), details.dtype)
        some[self._sequence] = details
        differs = np.bincount(self._sequence, details != some[self._sequence], len(self._keys)) > 0
        self._is_to_any = differs & (self._keys >> 16 & 3 == 0)
        """Of each token, whether it is with different ranks in no order."""
        self._alike = self._alike_tokens()
        self._sends = np.isin(calls["op"], SENDS)
        """Of each call, whether it sends a message and receives none."""

    @property
    def most_calls(self) -> int:
        """Of one token."""
        return int(self._counts.max(initial=0))

    def _alike_tokens(self) -> Integers:
        """By token, the first one that does the same in a segment: probes for whatever comes next are one."""
        alike = np.arange(len(self._keys))
        operations, matches = self._keys >> 18 & 0xFFFF, self._keys >> 16 & 3
        probes = np.isin(operations, PROBES) & (matches == 0)
        alike[probes] = alike[probes].min(initial=len(alike))
        return alike

    def by_segments(self) -> Anchor | None:
        """The most frequent token whose segments are alike; of several, the one that waits for most ranks.

        One between which the rank only sends is left out if there is another one.
        """
        found: list[int] = []
        sending: list[int] = []
        for token in self._candidates():
            if self._counts[token] < MIN_ITERATIONS:
                break
            if (found and not self._comes_with(token, found[0])) or not self._has_like_segments(token):
                continue
            if not _only_sends(self._sends, np.flatnonzero(self._sequence == token)):
                found.append(token)
            elif not sending or self._comes_with(token, sending[0]):
                sending.append(token)
        return self._anchor(min(found or sending, key=self._rank_of)) if found or sending else None

    def by_turns(self) -> Anchor | None:
        """Each n-th of the most frequent token, after which the calls are alike, and after the others are not."""
        for token in self._candidates()[:MAX_EXACT]:
            if self._counts[token] < 2 * MIN_ITERATIONS:
                break
            at = np.flatnonzero(self._sequence == token)
            for number in range(2, MIN_ITERATIONS + 1):
                if self.takes_turns(at, number) and self._has_like_segments(token, number, MIN_PRESENCE):
                    return self._anchor(token, number)
        return None

    def around(self, at: Integers) -> Anchor | None:
        """A rarer token, between two of which there are as many of these calls again and again, and some of them are at
        the same places much farther apart than most: a V-cycle through coarser and coarser grids."""
        found: list[int] = []
        for token in self._candidates():
            number = int(self._counts[token])
            if number < (SAME_COUNT * self._counts[found[0]] if found else MIN_ITERATIONS):
                break
            outer = np.flatnonzero(self._sequence == token)
            if number * MIN_ITERATIONS < len(at) and self.is_uneven(at, outer) and self._has_like_segments(token):
                found.append(token)
        return self._anchor(min(found, key=self._rank_of)) if found else None

    def is_uneven(self, at: Integers, outer: Integers) -> bool:
        """Whether of calls between others, the same number each time, those at a quarter of the places take most time.

        These places are sought in each second pass, and their time is that of the others: noise is of none.
        """
        if len(outer) < MIN_ITERATIONS:
            return False
        before = np.searchsorted(at, outer)
        each = np.diff(before)
        number = int(np.median(each))
        alike = before[:-1][each == number]
        if number <= MIN_ITERATIONS or len(alike) < MIN_TURN * len(each):
            return False
        seconds = np.diff(self._times[at[alike[:, None] + np.arange(number)]], axis=1)
        sought, usual = (np.median(seconds[i::2], axis=0) for i in range(2))
        longest = np.argsort(-sought)[: -(-len(sought) // 4)]
        return bool(usual[longest].sum() > MIN_UNEVEN * usual.sum())

    def _comes_with(self, token: int, other: int) -> bool:
        """Whether a token comes as often as another that is more frequent, from its first occurrence to its last.

        A master has sent a task to each worker before the first answer comes.
        """
        at, others = (np.flatnonzero(self._sequence == one) for one in (token, other))
        between = np.searchsorted(others, at[-1]) - np.searchsorted(others, at[0])
        lasts = at[-1] - at[0] >= MIN_SPAN * (others[-1] - others[0])
        return bool(lasts and len(at) >= _as_often(int(between)))

    @cached_property
    def by_period(self) -> Anchor | None:
        """By the shortest lag at which the sequence equals itself, and after which a call has come equally often."""
        for period in self._periods():
            iterations = len(self._sequence) // period
            counts = np.bincount(self._sequence[-iterations * period :], minlength=len(self._keys)) / iterations
            each = np.maximum(np.rint(counts), 1.0)
            fits = (np.abs(counts / each - 1) < 1 - SAME_COUNT) & (each <= MAX_EVERY)
            if iterations < MIN_ITERATIONS or not fits.any():
                continue
            fits &= each == each[fits].min()
            # What is left out now and then is no anchor.
            fits &= counts >= ALWAYS * counts[fits].max()
            token = min(np.flatnonzero(fits).tolist(), key=self._rank_of)
            return self._anchor(token, int(each[token]))
        return None

    def takes_turns(self, at: Integers, number: int) -> bool:
        """Whether a token that comes in one of so many segments is missing in another one, again and again."""
        if not 2 <= number <= MIN_ITERATIONS:
            return False
        segment = np.repeat(np.arange(len(at) - 1), np.diff(at))
        inner = self._sequence[at[0] : at[-1]]
        tokens = len(self._keys)
        pairs = _distinct(segment * tokens + inner, len(at) * tokens)
        turns = np.bincount(pairs // tokens % number * tokens + pairs % tokens, minlength=number * tokens)
        presence = turns.reshape(number, tokens) * (number / (len(at) - 1))
        return bool(((presence.max(axis=0) >= MIN_TURN) & (presence.min(axis=0) <= 1 - MIN_TURN)).any())

    def by_messages(self) -> Anchor | None:
        """Each n-th message that is received: where ranks answer whatever comes, what one takes differs by chance.

        What n take is alike.
        """
        most = self._counts.max()
        received = [token for token in self._candidates() if self._receives(self._anchor(token))]
        for every in MESSAGES:
            likely = [one for one in received if self._counts[one] >= max(every * MIN_GROUPS, SAME_COUNT * most)]
            found = [one for one in likely if self._has_like_segments(one, every, MIN_GROUP_PRESENCE)]
            if found:
                return self._anchor(min(found, key=self._rank_of), every)
        return None

    def _candidates(self) -> list[int]:
        """Tokens, the most frequent first."""
        order: list[int] = np.argsort(-self._counts, kind="stable")[:MAX_CANDIDATES].tolist()
        return order

    @staticmethod
    def _receives(anchor: Anchor) -> bool:
        """Whether all calls of a site receive messages."""
        return not anchor.match and OPERATIONS.get(anchor.op, "") in (*FROM_ONE, *FROM_ANY)

    def _rank_of(self, token: int) -> tuple[int, int]:
        """Orders tokens that come equally often, alike on all ranks of a program."""
        anchor = self._anchor(token)
        return _precedence(OPERATIONS.get(anchor.op, "")), anchor.site

    def _anchor(self, token: int, every: int = 1) -> Anchor:
        key = int(self._keys[token])
        return Anchor(key >> 18 & 0xFFFF, key >> 34, key >> 16 & 3, key & 0xFFFF, every)

    def _has_like_segments(self, token: int, every: int = 1, presence_needed: float = MIN_PRESENCE) -> bool:
        at = np.flatnonzero(self._sequence == token)[every - 1 :: every]
        if len(at) < MIN_ITERATIONS:
            return False
        first, last, number = int(at[0]), int(at[-1]), len(at) - 1
        if len(self._sequence) - 1 - last > MAX_TAIL * int(np.diff(at).max()):
            return False
        inner = self._alike[self._sequence[first:last]]
        segment = np.repeat(np.arange(number), np.diff(at))
        tokens = len(self._keys)
        pairs = _distinct(segment * tokens + inner, number * tokens)
        presence = np.bincount(pairs % tokens, minlength=tokens) / number
        counts = np.bincount(inner, minlength=tokens)
        rare = counts < RARE * number * every
        if presence[~rare].mean() < presence_needed:
            return False
        if self._is_to_any[token]:
            # A master that has no task left does not answer.
            rare &= ~(self._is_to_any & np.isin(self._keys >> 18 & 0xFFFF, SENDS))
        with_rare = _distinct(pairs[rare[pairs % tokens]] // tokens, number)
        most = MAX_RARE_SEGMENTS * number
        together = np.count_nonzero(np.diff(with_rare, prepend=-2) > 1)
        if together > most or len(with_rare) > MAX_RARE_NEIGHBOURS * most:
            return False
        seconds = np.diff(self._times[at])
        return bool(seconds[with_rare].sum() <= MAX_RARE_TIME * max(seconds.sum(), 1))

    def _periods(self) -> Iterator[int]:
        """Lags, up to a quarter of the sequence, at which it equals itself, more than at those beside them.

        The autocorrelation of each of few tokens, in sum, is a match's share. That of random phases, one for each of
        many tokens, is it but for noise.
        """
        size, tokens = len(self._sequence), len(self._keys)
        if tokens <= MAX_EXACT:
            signals = (self._sequence == np.arange(tokens)[:, None]).astype(float)
        else:
            signals = np.exp(2j * np.pi * np.random.default_rng(size).random(tokens))[None, self._sequence]
        power = (np.abs(np.fft.fft(signals, 2 * size)) ** 2).sum(axis=0)
        correlation = np.fft.ifft(power).real[: size // 4 + 1] / (size - np.arange(size // 4 + 1))
        likely = np.flatnonzero(correlation >= MIN_MATCH - 0.1)
        likely = likely[likely > 0]
        ranges = np.split(likely, np.flatnonzero(np.diff(likely) > 1) + 1) if len(likely) else []
        for lags in ranges[:MAX_CANDIDATES]:
            values = correlation[lags]
            peaks = (values >= np.append(values[1:], 0)) & (values >= np.append(0, values[:-1]))
            lag = int(lags[peaks & (values >= values.max() - SAME_PEAK)][0])
            if (self._sequence[lag:] == self._sequence[:-lag]).mean() >= MIN_MATCH:
                yield lag


def _as_often(count: int) -> float:
    """Least number of a call that comes as often as one that has come so often: of few, the last one is to come."""
    return min(SAME_COUNT * count, count - 1)


def _precedence(operation: str) -> int:
    """Calls after which ranks are most alike come first: they wait for many, for one, or for nobody.

    >>> [_precedence(one) for one in ("Allreduce", "Waitall", "Recv", "Iprobe", "Isend")]
    [0, 1, 2, 3, 4]
    """
    if operation.startswith(("Wait", "Test")):
        return 1
    if operation in ("Recv", "Sendrecv", "Sendrecv_replace", "Mrecv"):
        return 2
    if operation.endswith("robe"):
        return 3  # a test for a message may be made by some ranks only, and now and then
    if operation.endswith("send") or operation == "Send":
        return 4
    return 0
