"""Statistics of the ranks of one world on this node, over blocks of sync points: last arrivals, own work, waiting.

The same records, by class of intervals and over the whole run, are summed in `phases`.

Sync point i is the same collective on every rank, so ranks and nodes are aligned by its number and not by clocks. Ranks
of one node share a clock. Nodes are compared by the wait of their last rank: on the node that delays all others, the
last rank does not wait.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_agent.reduce.intervals import ClassIds, Cursor
from barograph_agent.reduce.phases import PhaseSums
from barograph_agent.reduce.workers import WorkerSums
from barograph_agent.ring.reader import BYTES_UNKNOWN, RECORD, STEP, Ring, RingError

BLOCK_SECONDS: Final = 2.0
FIRST_BLOCK_SECONDS: Final = 0.5
BLOCK_SHARE: Final = 0.25
"""Blocks that begin early in a run are shorter, this share of the time until then: so some are there within seconds,
and a node that is slow from the begin is found soon."""
LONGEST: Final = 8192
"""Limit of sync points in a block, further limited to a quarter of a ring's capacity: blocks end before it is full."""

WORDS: Final = RECORD.itemsize // 8


def _word(name: str) -> int:
    """The number of a record's 8-byte word."""
    return int(RECORD.fields[name][1]) // 8  # type: ignore[index]


ENTER, EXIT, P2P, INDEX = (_word(name) for name in ("enter_ns", "exit_ns", "p2p_ns", "index"))
MESSAGES, MESSAGE_BYTES = _word("messages"), _word("message_bytes")
COLUMNS: Final = ("enter", "exit", "gap", "p2p")
"""Times that are read of each rank's sync points."""
SENT: Final = ("messages", "message bytes")
"""Counts of which only the sum over ranks is kept, or those words of a step."""

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Member(NamedTuple):
    """One rank's ring and its read position."""

    ring: Ring
    cursor: Cursor


def block_seconds(age: float) -> float:
    """Length of a block that begins so many seconds after the begin of the run."""
    return min(max(FIRST_BLOCK_SECONDS, BLOCK_SHARE * age), BLOCK_SECONDS)


class NodeReducer:
    """Reads the rings of one world's ranks on this node together, starting at their cursors."""

    def __init__(self, world: int, members: list[Member]) -> None:
        self._world = world
        self._members = sorted(members, key=lambda member: member.cursor.rank)
        self._phases = PhaseSums(world, len(members))
        self._workers = WorkerSums(world, [member.cursor.rank for member in self._members])
        self._is_whole = not any(member.cursor.node_position for member in members)
        self._classes = ClassIds(self._members[0].ring)

    def has(self, members: list[Member]) -> bool:
        """Whether these are the ranks that are read."""
        return {member.ring.path for member in members} == {member.ring.path for member in self._members}

    def take_phases(self) -> dict[str, Any] | None:
        """The columns of `phases` (without job, host and time), once; None if they would not be of the whole run."""
        return self._phases.take() if self._is_whole else None

    def read(self, *, final: bool) -> list[dict[str, Any]]:
        """Complete blocks as rows of `node_blocks` (without job and host). Advances the cursors.

        A block has 2^m sync points and begins at a multiple of 2^m, so blocks of different nodes nest for any m. It is
        complete once it spans BLOCK_SECONDS, early in a run less, or LONGEST sync points, or at the end of the run.
        Raises RingError if a ring is inconsistent.
        """
        rows: list[dict[str, Any]] = []
        if not (final or self._may_be_due()):
            return rows
        while (at := self._align()) is not None and (length := self._due(at, final)):
            times = np.zeros((len(self._members), len(COLUMNS), length), np.int64)
            known = np.zeros((len(self._members), length), bool)
            sites, bytes_, is_training = _calls(self._members[0], at, length)
            # Of a training they are other times of each worker, elsewhere counts of which only the sum matters.
            sent = np.zeros((len(self._members) if is_training else 1, len(SENT), length), np.int64)
            for number, (member, into, flags) in enumerate(zip(self._members, times, known, strict=True)):
                _read(member, at, into, sent[number if is_training else 0], flags)
            whole = known.all(axis=0)
            if whole.any():
                if not whole.all():
                    times, sites = times[:, :, whole], sites[whole]
                    sent, bytes_ = sent[:, :, whole], bytes_[whole]
                if is_training and self._members[0].cursor.size > 1:
                    self._workers.add(times, sent, bytes_)
                sent = np.zeros_like(sent[0]) if is_training else sent[0]
                self._phases.add(self._classes.of(*sites.T)[0], times, np.vstack([bytes_, sent]))
                if self._members[0].cursor.size > 1:
                    rows.append(self._row(at, length, times))
        return rows

    def take_workers(self) -> dict[str, Any] | None:
        """The columns of `workers` (without job and host) that are due; None if none are."""
        return self._workers.take(self._members[0].ring)

    def _may_be_due(self) -> bool:
        """A fast check of one ring, and of whether any is half full: usually no block is complete."""
        ring, cursor = self._members[0]
        unread = ring.head - max(cursor.node_position, ring.tail)
        if unread > 0 and (unread >= min(LONGEST, ring.capacity // 4) or self._spans_block()):
            return True
        return any(ring.head - cursor.node_position > ring.capacity // 2 for ring, cursor in self._members)

    def _align(self) -> int | None:
        """Advance all cursors to the next sync point that every ring has; None if a ring has no more."""
        at = 0
        while True:
            aligned = True
            for ring, cursor in self._members:
                cursor.node_position = max(cursor.node_position, ring.tail)
                if cursor.node_position >= ring.head:
                    self._skip_stalled()
                    return None
                index = _index(ring, cursor.node_position)
                cursor.node_position = min(cursor.node_position + max(at - index, 0), ring.head)
                aligned &= index == at
                at = max(at, index)
            if aligned:
                return at

    def _skip_stalled(self) -> None:
        """Skip records that one rank does not have, so that the rings of the others do not fill up."""
        for ring, cursor in self._members:
            cursor.node_position = max(cursor.node_position, ring.head - ring.capacity // 2)

    def _due(self, at: int, final: bool) -> int:
        """Length of the block that begins at sync point `at`; 0 if it is not complete."""
        ready = min(_index(ring, ring.head - 1) for ring, _ in self._members) + 1 - at
        longest = min(LONGEST, *(ring.capacity // 4 for ring, _ in self._members))
        full = any(ring.head - cursor.node_position > ring.capacity // 2 for ring, cursor in self._members)
        if ready <= 0 or not (final or full or ready >= longest or self._spans_block()):
            return 0
        return min(1 << (min(ready, longest).bit_length() - 1), (at & -at) or longest)

    def _spans_block(self) -> bool:
        """Whether the unread records of one ring span a block; the others have the same sync points."""
        ring, cursor = self._members[0]
        places = max(cursor.node_position - 1, ring.tail), ring.head - 1
        begin, end = (int(ring.records(at, at + 1)["exit_ns"][0]) for at in places)
        begin = begin if cursor.node_position else ring.started_ns
        return (end - begin) / 1e9 >= block_seconds((begin - ring.started_ns) / 1e9)

    def _row(self, at: int, length: int, times: Times) -> dict[str, Any]:
        """times: nanoseconds, ranks x COLUMNS x sync points."""
        enter, exits, gap, p2p = times.swapaxes(0, 1)
        own, wait = gap - p2p, exits - enter
        ranks = [member.cursor.rank for member in self._members]
        # The last two arrivals.
        order = np.partition(enter, -2, axis=0)[-2:] if len(ranks) > 1 else None
        late = order[1] - order[0] if order is not None else np.zeros(enter.shape[1], np.int64)
        last = enter.argmax(axis=0)
        times_last = np.bincount(last, minlength=len(ranks))
        latest, busiest = int(times_last.argmax()), int(own.sum(axis=1).argmax())
        ring = self._members[0].ring
        return {
            "world": self._world,
            "ranks": len(ranks),
            "first_index": at,
            "length": length,
            "count": enter.shape[1],
            "last_rank": ranks[latest],
            "last_count": int(times_last[latest]),
            "late_seconds": float(late[last == latest].sum()) * 1e-9,
            "own_rank": ranks[busiest],
            "own_rank_seconds": float(own[busiest].sum()) * 1e-9,
            "own_seconds": float(own.sum()) * 1e-9,
            "p2p_seconds": float(p2p.sum()) * 1e-9,
            "wait_seconds": float(wait.sum()) * 1e-9,
            "least_wait_seconds": float(wait.min(axis=0).sum()) * 1e-9,
            "ended_at": (int(exits[0].max()) - ring.started_ns + ring.started_unix_ns) * 1e-9,
        }


def _index(ring: Ring, position: int) -> int:
    """The sync point of record `position`: the position plus the number of records dropped before it."""
    return int(ring.records(position, position + 1)["index"][0]) if ring.dropped else position


def _calls(member: Member, at: int, length: int) -> tuple[Times, Times, bool]:
    """Of `length` sync points from `at` on: the call sites at both ends of their intervals, (length, 2), and bytes.

    Bytes are 0 where unknown, all are 0 where the record or the one before it is missing. Also whether they are the
    steps of a training. The cursor stays.
    """
    ring, cursor = member
    begin = max(cursor.node_position - 1, ring.tail)
    records = ring.records(begin, min(cursor.node_position + length, ring.head))
    index = records["index"].astype(np.int64)
    fresh = (np.diff(index, prepend=-1) == 1) & (index >= at) & (index < at + length)
    site = records["site"].astype(np.int64)
    sites, bytes_ = np.zeros((length, 2), np.int64), np.zeros(length, np.int64)
    columns = index[fresh] - at
    sites[columns, 0], sites[columns, 1] = np.append(0, site[:-1])[fresh], site[fresh]
    bytes_[columns] = np.where(records["bytes"] == BYTES_UNKNOWN, 0, records["bytes"])[fresh].astype(np.int64)
    return sites, bytes_, int(records["op"][-1]) == STEP


def _read(member: Member, at: int, into: Times, sent: Times, known: Flags) -> None:
    """Read COLUMNS of the sync points from `at` on into the columns of `into`, and add SENT to those of `sent`.

    Advances the cursor. Raises RingError if the number of the first record is not `at`.
    """
    ring, cursor = member
    length = into.shape[1]
    # One more at the front: the gap begins at the end of the previous sync point.
    begin = max(cursor.node_position - 1, ring.tail)
    first = cursor.node_position - begin
    words = ring.records(begin, min(cursor.node_position + length, ring.head)).view(np.int64).reshape(-1, WORDS)
    index = words[:, INDEX]
    if index[first] != at:
        raise RingError(f"ring {ring.path}: record {cursor.node_position} is number {index[first]}, expected {at}")
    cursor.node_position += int((index[first:] < at + length).sum())
    if first and len(words) == length + 1 and int(index[-1]) - int(index[0]) == length:
        # The common case: no record is missing.
        known[:] = True
        into[0], into[1], into[3] = words[1:, ENTER], words[1:, EXIT], words[1:, P2P]
        sent += words[1:, [MESSAGES, MESSAGE_BYTES]].T
        np.subtract(words[1:, ENTER], words[:-1, EXIT], out=into[2])
        return
    fresh = (np.diff(index, prepend=-1) == 1) & (index >= at) & (index < at + length)
    gap = words[:, ENTER] - np.append(ring.started_ns, words[:-1, EXIT])
    columns = index[fresh] - at
    known[columns] = True
    sent[:, columns] += words[fresh][:, [MESSAGES, MESSAGE_BYTES]].T
    for row, values in enumerate((words[:, ENTER], words[:, EXIT], gap, words[:, P2P])):
        into[row, columns] = values[fresh]
