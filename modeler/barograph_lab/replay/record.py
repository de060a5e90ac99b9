"""`barograph record`: copies the rings of a live job to a trace for `barograph replay`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from barograph.cli import CommandError, Parser
from barograph_agent.ring.reader import RECORD, STEP, Records, Ring, RingError
from barograph_agent.settings import places
from barograph_lab.replay.trace import WORKER

POLL_SECONDS: Final = 0.2
EXIT_STATE: Final = 73


@dataclass
class RingCopy:
    """The records copied from one ring. read: number of records seen, copied or lost."""

    ring: Ring
    parts: list[Records] = field(default_factory=list)
    read: int = 0


class Recorder:
    """Copies records from the rings of one job, beside its sidecar, without releasing them.

    Records that the sidecar has released count as lost if they were overwritten, or are zeros, before they were copied.
    """

    def __init__(self, directory: Path) -> None:
        self.lost = 0
        self._directory = directory
        self._copies: dict[int, RingCopy] = {}

    @property
    def ended(self) -> bool:
        """True once every ring belongs to an ended process."""
        rings = [copy.ring for copy in self._copies.values()]
        return bool(rings) and all(ring.finalized or not Path(f"/proc/{ring.pid}").exists() for ring in rings)

    @property
    def collectives(self) -> int:
        """Number of records of rank 0 copied so far."""
        return sum(map(len, self._copies[0].parts)) if 0 in self._copies else 0

    def step(self) -> None:
        """Copy new records. Raises RingError for an inconsistent ring."""
        for path in sorted(self._directory.glob("*.ring")):
            if any(copy.ring.path == path for copy in self._copies.values()):
                continue
            ring = Ring(path)
            # A second world of the same job, which a launcher may start, would need its own trace.
            if ring.rank in self._copies:
                ring.close()
                continue
            self._copies[ring.rank] = RingCopy(ring)
        for copy in self._copies.values():
            ring, head = copy.ring, copy.ring.head
            oldest = max(copy.read, head - ring.capacity)
            # The shim overwrites in order: records before the present head less the capacity may have been overwritten.
            kept = ring.records(oldest, head)[max(0, ring.head - ring.capacity - oldest) :]
            kept = kept[kept["exit_ns"] > 0]
            self.lost += head - copy.read - len(kept)
            copy.parts.append(kept)
            copy.read = head

    def save(self, file: Path) -> None:
        """Write the trace. Raises OSError, and RingError without a record of rank 0."""
        if not self.collectives:
            raise RingError(self._directory, "no collective of rank 0, expected at least one")
        with file.open("wb") as out:
            np.savez_compressed(out, allow_pickle=False, **self._arrays())

    def close(self) -> None:
        """Close the rings; the files stay."""
        for copy in self._copies.values():
            copy.ring.close()

    def _arrays(self) -> dict[str, Any]:
        first = self._copies[0].ring
        arrays: dict[str, Any] = {}
        for rank, copy in self._copies.items():
            ring, records = copy.ring, np.concatenate([np.empty(0, RECORD), *copy.parts])
            enter, ends = (records[name].astype(np.int64) for name in ("enter_ns", "exit_ns"))
            # Entries of ranks of other nodes are converted to rank 0's clock by way of the real time.
            shift = (ring.started_unix_ns - ring.started_ns) - (first.started_unix_ns - first.started_ns)
            arrays[f"op_{rank}"] = records["op"]
            arrays[f"gap_ns_{rank}"] = np.concatenate(([0], enter[1:] - ends[:-1])) if len(records) else enter
            arrays[f"dur_ns_{rank}"] = ends - enter
            arrays[f"t_first_ns_{rank}"] = enter[:1] + shift - first.started_ns
            if "p2p_ns" in (RECORD.names or ()):
                arrays[f"p2p_ns_{rank}"] = records["p2p_ns"].astype(np.int64)
            if len(records) and int(records["op"][0]) == STEP:
                for name, words in zip(WORKER, ("messages", "message_bytes", "bytes"), strict=True):
                    arrays[f"{name}_{rank}"] = records[words].astype(np.int64)
            if rank == 0:
                sites, place = np.unique(records["site"], return_inverse=True)
                arrays["site"] = place
                arrays["sites"] = np.array([first.site(int(site)) for site in sites])
        meta = {
            "exe": first.program,
            "size": first.size,
            "t0_mono_ns": first.started_ns,
            "t0_real_ns": first.started_unix_ns,
            "lost": self.lost,
        }
        return {**arrays, "meta": np.array(json.dumps(meta))}


def main(arguments: Sequence[str], clock: Callable[[], float] = time.monotonic) -> int:
    """Record until the job ends, the time is over or Ctrl-C; 65 if there is nothing to record."""
    parser = Parser(prog="barograph record", description="Copy the rings of a live job to a trace.")
    add = parser.add_argument
    add("out", type=Path, metavar="OUT.npz", help="the trace; written at the end")
    add("--rings", type=Path, metavar="DIR", help="the job's ring directory (default: the newest of this user's)")
    add("--seconds", type=float, default=float("inf"), metavar="S", help="stop after S seconds")
    options = parser.parse_args(arguments)
    directory = options.rings or _newest(places.ring_root(os.environ))
    if directory is None:
        raise CommandError(f"no job under {places.ring_root(os.environ)}, expected one that runs or --rings")
    recorder = Recorder(directory)
    until = clock() + options.seconds
    try:
        _record(recorder, until, clock)
        recorder.save(options.out)
    except RingError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{options.out}: {error.strerror}", EXIT_STATE) from error
    finally:
        recorder.close()
    lost = f", {recorder.lost} overwritten before they were copied" if recorder.lost else ""
    print(f"{options.out}: {recorder.collectives} collectives{lost}")
    return 0


def _record(recorder: Recorder, until: float, clock: Callable[[], float]) -> None:
    try:
        while True:
            # Checked before the rings are read, so that no record is missed.
            ended = recorder.ended
            recorder.step()
            if ended or clock() >= until:
                return
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        recorder.step()


def _newest(root: Path) -> Path | None:
    directories = [path for path in root.glob("*") if any(path.glob("*.ring"))]
    return max(directories, key=lambda path: path.stat().st_mtime, default=None)
