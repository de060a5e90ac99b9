"""`make simulate SECONDS=600 SEED=1`: runs schedules, as many as fit, and prints those that break an invariant.

    python -m simulation --seconds 600 --seed 1      from a seed on
    python -m simulation --schedules 10000           so many
    python -m simulation --seed 4 --step 4           each fourth, in which a collector loses its disk
    python -m simulation --replay 4711               one, with what is done in it

Exit status 1 if an invariant was broken.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from simulation.reference import healthy_history
from simulation.schedule import Broken, Report, run

PROGRESS_SECONDS = 10.0


def attempt(seed: int) -> Report | str:
    """The report of a schedule, or what it broke."""
    try:
        return run(seed)
    except Broken as error:
        return str(error)


def seeds(first: int, step: int, count: int | None, until: float) -> Iterator[int]:
    """Each `step`-th seed from the first on: so many, or until a time."""
    seed = first
    while (seed < first + count * step) if count is not None else (time.monotonic() < until):
        yield seed
        seed += step


def main() -> int:
    """Run; returns the exit status."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--schedules", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--replay", type=int)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.replay is not None:
        found = attempt(options.replay)
        print(
            found if isinstance(found, str) else "\n  ".join([f"seed {found.seed}: all invariants hold", *found.done])
        )
        return int(isinstance(found, str))
    began = shown = time.monotonic()
    done = broken = stored = dropped = lost = 0
    kinds: Counter[str] = Counter()
    healthy_history()  # once, not in each process
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        chosen = seeds(options.seed, options.step, options.schedules, began + options.seconds)
        for found in pool.imap_unordered(attempt, chosen):
            done += 1
            if isinstance(found, str):
                broken += 1
                print(f"BROKEN {found}", flush=True)
            else:
                kinds.update(found.kinds)
                stored, dropped, lost = stored + found.stored, dropped + found.dropped, lost + found.lost
            if (now := time.monotonic()) - shown > PROGRESS_SECONDS:
                shown = now
                print(f"{done} schedules, {broken} broken, {done / (now - began):.1f} a second", flush=True)
    seconds = time.monotonic() - began
    print(
        f"{done} schedules from seed {options.seed} on, {broken} broken,"
        f" in {seconds:.0f} s: {done / seconds:.1f} a second"
    )
    print(f"{stored} intervals stored, {dropped} dropped with a reason, {lost} lost with a disk; disturbances:")
    for kind, times in sorted(kinds.items()):
        print(f"  {times:6} {kind}")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
