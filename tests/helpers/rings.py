"""A ring written from Python, as the shim writes it: what a test wants in it, and nothing that MPI would add."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from barograph_agent.reduce.ring_set import RingSet
from barograph_agent.ring.reader import (
    BYTES_UNKNOWN,
    CALL,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MODULE,
    OPERATIONS,
    RECORD,
    SITE,
    VERSION,
    Want,
)

STARTED_NS = 5_000_000_000
MESSAGE_BYTES = 100
"""Of each Send."""
STARTED_UNIX_NS = 1_700_000_000_000_000_000
MAX_UNSEEN = 1 << 20
"""WRITER_MAX_UNSEEN of the shim."""


class FakeShim:
    """The writing end of a ring: drops what finds it full, numbers what it sees, dropped or not."""

    def __init__(
        self,
        path: Path,
        capacity: int = 64,
        *,
        pid: int | None = None,
        started_ns: int = STARTED_NS,
        calls: int = 0,
        sites: int = 8,
    ) -> None:
        """calls: capacity of the tables of calls and of iterations. sites: of the table of sites."""
        self.path = path
        modules = 4
        at = HEADER_BYTES + modules * MODULE.itemsize + sites * SITE.itemsize
        records_end = at + capacity * RECORD.itemsize
        iterations_end = records_end + calls * RECORD.itemsize
        # As an array, whose views take less time than those of a memmap.
        self._bytes = np.asarray(np.memmap(path, np.uint8, "w+", shape=iterations_end + calls * CALL.itemsize))
        self.header = self._bytes[:HEADER_BYTES].view(HEADER)
        self.modules = self._bytes[HEADER_BYTES : HEADER_BYTES + modules * MODULE.itemsize].view(MODULE)
        self.sites = self._bytes[HEADER_BYTES + modules * MODULE.itemsize : at].view(SITE)
        self.records = self._bytes[at:records_end].view(RECORD)
        self.iterations = self._bytes[records_end:iterations_end].view(RECORD)
        self.calls = self._bytes[iterations_end:].view(CALL)
        self.capacity = capacity
        self.seen = self.iterations_seen = self._passed = self._messages = 0
        self.set(
            version=VERSION,
            header_bytes=HEADER_BYTES,
            record_bytes=RECORD.itemsize,
            capacity=capacity,
            iteration_capacity=calls,
            call_capacity=calls,
            wanted=1,
            module_capacity=modules,
            site_capacity=sites,
            size=2,
            pid=os.getpid() if pid is None else pid,
            clock=1,
            started_ns=started_ns,
            started_unix_ns=STARTED_UNIX_NS,
            program=b"/opt/bin/lmp",
            state=1,
            sites=1,
            magic=MAGIC,
        )
        self.module(b"/opt/bin/lmp")

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self._bytes)

    def get(self, field: str) -> int:
        """A number of the header."""
        return int(self.header[field][0])

    def set(self, **fields: int | bytes) -> None:
        """Overwrite fields of the header, whatever they say."""
        for name, value in fields.items():
            self.header[name] = value

    def module(self, path: bytes) -> int:
        """Add a module; returns its index."""
        index = self.get("modules")
        self.modules[index] = path
        self.set(modules=index + 1)
        return index

    def site(self, *offsets: int, module: int = 0) -> int:
        """Add a call site, the frames of its path innermost first, all of one module; returns its index."""
        index = self.get("sites")
        self.sites[index]["offset"][: len(offsets)] = offsets
        self.sites[index]["module"][: len(offsets)] = module
        self.sites[index]["frames"] = len(offsets)
        self.set(sites=index + 1)
        return index

    def put(
        self,
        exit_ns: int,
        site: int = 1,
        op: int = 8,
        *,
        wait_ns: int = 1,
        p2p_ns: int = 0,
        bytes_: int = BYTES_UNKNOWN,
        sent: tuple[int, int] = (0, 0),
    ) -> bool:
        """One collective that ends `exit_ns` after the start; says whether there was room for it.

        sent: messages before it, and their bytes.
        """
        head = self.get("head")
        room = head - self.get("tail") < self.capacity
        if room:
            at = STARTED_NS + exit_ns
            self.records[head % self.capacity] = (at - wait_ns, at, p2p_ns, bytes_, self.seen, site, op, 0, *sent)
            self.set(head=head + 1)
        else:
            self.set(dropped=self.get("dropped") + 1)
        self.seen += 1
        return room

    def call(self, exit_ns: int, site: int, op: int, *, wait_ns: int = 1, p2p_ns: int = 0, detail: int = 1) -> None:
        """Any other call, as the shim treats it with what is wanted."""
        want, at = Want.of(self.get("wanted")), STARTED_NS + exit_ns
        self._messages += OPERATIONS[op] == "Send"
        if want.calls:
            head = self.get("call_head")
            self.calls[head % len(self.calls)] = (at, site, op, 1, detail)
            self.set(call_head=head + 1)
        is_it = (want.op, want.site) == (op, site)
        self._passed += is_it and (want.match < 2 or want.value == detail)
        if want.op and self._passed >= max(want.every, 1):
            self._passed = 0
            head = self.get("iteration_head")
            if head - self.get("iteration_tail") < len(self.iterations):
                record = (
                    at - wait_ns,
                    at,
                    p2p_ns,
                    BYTES_UNKNOWN,
                    self.iterations_seen,
                    site,
                    op,
                    want.every,
                    self._messages,
                    MESSAGE_BYTES * self._messages,
                )
                self._messages = 0
                self.iterations[head % len(self.iterations)] = record
                self.set(iteration_head=head + 1)
            else:
                self.set(iterations_dropped=self.get("iterations_dropped") + 1)
            self.iterations_seen += 1


def world(folder: Path, size: int, ranks: list[int] | None = None, **options: Any) -> list[FakeShim]:
    """The rings of some ranks of a world of `size` ranks, each with the call sites 1 and 2."""
    shims = []
    for rank in range(size) if ranks is None else ranks:
        shim = FakeShim(folder / f"rank-{rank}.{options.get('started_ns', 0)}.ring", **options)
        shim.set(rank=rank, size=size)
        shim.site(0x10)
        shim.site(0x20)
        shims.append(shim)
    return shims


def take(rings: RingSet, table: str, *, final: bool = False) -> list[dict[str, Any]]:
    """The next rows of a table, of all records that are there."""
    rings.find()
    found, before = [], -1
    while rings.position != before:
        before = rings.position
        for rows in rings.read(final=final):
            if rows.table == table:
                each = {name: np.broadcast_to(one, rows.length) for name, one in rows.values.items()}
                found += [{name: column[i] for name, column in each.items()} for i in range(rows.length)]
        rings.release()
    return found


class BatchedShim(FakeShim):
    """A rank that writes records in batches, which takes less time."""

    def put_many(self, index: int, ends: np.ndarray, sites: np.ndarray) -> None:
        """Write collectives index, index+1 ... with these ends, in nanoseconds after the start, as one slice."""
        slot = self.get("head") % self.capacity
        records = self.records[slot : slot + len(ends)]
        records["enter_ns"] = STARTED_NS + ends - 50_000
        records["exit_ns"] = STARTED_NS + ends
        records["bytes"] = BYTES_UNKNOWN
        records["index"] = index + np.arange(len(ends))
        records["site"] = sites
        records["op"] = 9
        self.set(head=self.get("head") + len(ends))


class TracedShim(FakeShim):
    """A rank that makes many calls between two looks of the sidecar: what is wanted does not change meanwhile."""

    def __init__(self, path: Path, capacity: int, *, calls: int, pid: int) -> None:
        super().__init__(path, capacity, calls=calls, pid=pid, sites=2048)
        self.recorded = 0
        """Calls that were written, compared with the anchor, or recorded."""
        self.anchors, self.named_ns = 0, 2**62
        """Times that the anchor came, and when it was first looked for."""
        self._applied = Want()

    @property
    def wanted(self) -> Want:
        """What the sidecar has asked for."""
        return Want.of(self.get("wanted"))

    def call_many(
        self, ends_ns: np.ndarray, sites: np.ndarray, ops: np.ndarray, comms: np.ndarray, details: np.ndarray
    ) -> None:
        """Calls, one at least, that end so many nanoseconds after the start, and take no time."""
        want = self.wanted
        if want.calls:
            self._write(ends_ns, sites, ops, comms, details)
        if not want.op:
            return
        near = (ops == want.op) & (self.sites["offset"][sites, 0] == self.sites["offset"][want.site % 2048, 0])
        anchors = near & (sites == want.site)
        if want.match:
            anchors &= (comms if want.match == 1 else details) == want.value
        if not want.calls:
            self.recorded += int(near.sum())
            self.set(compared=self.get("compared") + int((near & ~anchors).sum()))
        self.named_ns = min(self.named_ns, int(ends_ns[0]))
        self.anchors += int(anchors.sum())
        self._record(ends_ns[anchors], want)

    def _write(self, ends_ns: np.ndarray, *columns: np.ndarray) -> None:
        head = self.get("call_head")
        room = max(MAX_UNSEEN - (head - self.get("call_tail")), 0)
        count = min(len(ends_ns), room)
        kept = slice(max(count - len(self.calls), 0), count)
        at = (head + np.arange(count)[kept]) % len(self.calls)
        self.calls["exit_ns"][at] = STARTED_NS + ends_ns[kept]
        for name, column in zip(("site", "op", "comm", "detail"), columns, strict=True):
            self.calls[name][at] = column[kept]
        self.set(call_head=head + count)
        self.recorded += count

    def _record(self, ends_ns: np.ndarray, want: Want) -> None:
        every = max(want.every, 1)
        if want._replace(calls=False) != self._applied:
            self._applied, self._passed = want._replace(calls=False), 0
        taken = ends_ns[every - 1 - self._passed :: every]
        self._passed = (self._passed + len(ends_ns)) % every
        head = self.get("iteration_head")
        count = min(len(taken), self.get("iteration_tail") + len(self.iterations) - head)
        at = (head + np.arange(count)) % len(self.iterations)
        records = np.zeros(count, RECORD)
        records["enter_ns"] = records["exit_ns"] = STARTED_NS + taken[:count]
        records["bytes"] = BYTES_UNKNOWN
        records["index"] = self.iterations_seen + np.arange(count)
        records["site"], records["op"], records["flags"] = want.site, want.op, every
        self.iterations[at] = records
        self.iterations_seen += len(taken)
        self.set(iteration_head=head + count, iterations_dropped=self.get("iterations_dropped") + len(taken) - count)
