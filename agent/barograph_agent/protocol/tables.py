"""The tables of the log: which columns each has, and what a value of each column may be.

This is the one place that names columns. Producers build columns to it, the collector validates against it and
derives its DDL from it, readers get arrays typed by it. A table grows by new columns at its end only, each with a
default: what the rows of an older producer have there, and the rows that were stored before.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

IDENTIFIER: Final = re.compile(r"[A-Za-z0-9_.:@/+-]{1,128}")
TEXT_LIMIT: Final = 65536


class Kind(enum.Enum):
    """What a column holds, as it travels."""

    NAME = ("an identifier of 1-128 characters from A-Z a-z 0-9 _ . : @ / + -", "")
    TEXT = (f"text of at most {TEXT_LIMIT} characters", "")
    F64 = ("64-bit floats", "<f8")
    I64 = ("64-bit signed integers", "<i8")
    U64 = ("64-bit unsigned integers", "<u8")

    def __init__(self, text: str, dtype: str) -> None:
        # Plain attributes: a collector asks for them with every column of every message.
        self.text = text
        """What is expected of a value, for errors."""
        self.is_text = not dtype
        """True for the kinds that travel as strings, False for those that travel as array bytes."""
        self.dtype: np.dtype[Any] = np.dtype(dtype or object)
        """The little-endian numpy type of a numeric kind."""


@dataclass(frozen=True)
class Table:
    """A named list of typed columns, and the defaults of those that came later."""

    name: str
    columns: dict[str, Kind]
    defaults: dict[str, str | int | float] = field(default_factory=dict)


def _table(name: str, /, **columns: Kind | tuple[Kind, str | int | float]) -> Table:
    pairs = {column: kind if isinstance(kind, tuple) else (kind, None) for column, kind in columns.items()}
    defaults = {column: default for column, (_, default) in pairs.items() if default is not None}
    return Table(name, {column: kind for column, (kind, _) in pairs.items()}, defaults)


_N, _T, _F, _I, _U = Kind.NAME, Kind.TEXT, Kind.F64, Kind.I64, Kind.U64

TABLES: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        # One row per job step, when its first MPI process has started (or at its end, if none did: ranks 0).
        # `job` is cluster/id.restart.step; `workload` is what makes runs comparable; times are Unix seconds.
        # `scheduler` is slurm, pbs, flux or none; `unique_id` is Slurm's SLUID, empty where there is none.
        _table(
            "jobs",
            job=_N,
            cluster=_N,
            workload=_N,
            app=_N,
            user=_N,
            params=_T,
            ranks=_I,
            nodes=_I,
            host=_N,
            started_at=_F,
            scheduler=(_N, "none"),
            account=(_T, ""),
            unique_id=(_T, ""),
        ),
        # What a class id stands for: the call sites an interval of this class lies between.
        _table("sites", class_id=_U, before=_T, at=_T, operation=_N),
        # Consecutive intervals of one class, reduced; a block of one is the raw interval. `world` tells apart the
        # MPI worlds of one job step, `first_index` counts synchronizing collectives of that world from 0.
        _table(
            "blocks",
            job=_N,
            world=_I,
            class_id=_U,
            first_index=_I,
            count=_I,
            sum_seconds=_F,
            sum_squares=_F,
            sum_cubes=_F,
            min_seconds=_F,
            max_seconds=_F,
            ended_at=_F,
        ),
        # What the ranks of a world did on one node, over `length` sync points from `first_index` on; `count` of them
        # are known of all `ranks` there. A block begins at a multiple of its length, a power of two: blocks nest.
        # `last_rank` was the last of the node's ranks to arrive more often than the others, `last_count` times, then
        # `late_seconds` after the others in all; `own_rank` worked most, `own_rank_seconds` in all. Sums over ranks and
        # sync points: `own_seconds` (own work), `p2p_seconds` (in blocking point-to-point calls) and `wait_seconds`
        # (in the collective). `least_wait_seconds` sums how long the node's last rank still waited: the node with the
        # least is the one that all others waited for.
        _table(
            "node_blocks",
            job=_N,
            host=_N,
            world=_I,
            ranks=_I,
            first_index=_I,
            length=_I,
            count=_I,
            last_rank=_I,
            last_count=_I,
            late_seconds=_F,
            own_rank=_I,
            own_rank_seconds=_F,
            own_seconds=_F,
            p2p_seconds=_F,
            wait_seconds=_F,
            least_wait_seconds=_F,
            ended_at=_F,
        ),
        # One row per job step at its end. `exit_status` as a shell would say it, -1 where nobody knows it;
        # `intervals` as the shim counted them, `dropped` those of them that never became a block.
        _table("runs", job=_N, ended_at=_F, runtime_seconds=_F, exit_status=_I, intervals=_I, dropped=_I),
        # What the sidecar itself has cost by the end of a run: its processor time, the most memory it ever had, and how
        # long it has lived. One that also delivers earlier runs has them in the sum.
        _table("sidecars", job=_N, host=_N, cpu_seconds=_F, resident_bytes=_I, lived_seconds=_F, at=_F),
        # Lower, expected, upper for one class (kind interval) or a whole run (kind runtime, class 0).
        _table(
            "bands",
            workload=_N,
            class_id=_U,
            kind=_N,
            method=_N,
            samples=_I,
            runs=_I,
            lower_seconds=_F,
            expected_seconds=_F,
            upper_seconds=_F,
            shape=_F,
            location_seconds=_F,
            scale_seconds=_F,
            fitted_at=_F,
        ),
        # How fast healthy runs of a workload go, window by window; what the sequential score judges against.
        # `means` maps class id to mean seconds, `residuals` lists sorted log ratios (both JSON).
        _table(
            "paces",
            workload=_N,
            runs=_I,
            windows=_I,
            window_seconds=_F,
            spread=_F,
            means=_T,
            residuals=_T,
            fitted_at=_F,
        ),
        # Evidence against "healthy" for one job; above 1 alarms. `final` is 1 in the row that follows the run's end.
        # `members` lists who the cause is put down to, `evidence` the figures behind it (both JSON). `basis`: history,
        # own (its own first windows) or scaling. `hosts` lists the nodes it ran on, in the row with `final` 1 (JSON).
        _table(
            "scores",
            job=_N,
            workload=_N,
            state=_N,
            score=_F,
            slowdown=_F,
            onset_at=_F,
            alarmed_at=_F,
            windows=_I,
            final=_I,
            sentence=_T,
            at=_F,
            cause=(_N, "none"),
            members=(_T, "[]"),
            evidence=(_T, "{}"),
            basis=(_N, "history"),
            recovered_at=(_F, math.nan),
            hosts=(_T, "[]"),
        ),
        # What a program has noted of itself on one host: the largest value over `processes` of them, as `reduction`
        # says, and how long after their start it was known. A row when a feature has not changed for as long as it took
        # to get its value, and at the end one for each that has another value by then. `source` is its place in the
        # program's text, file:line:column, empty for what the program has named itself.
        _table(
            "features",
            job=_N,
            host=_N,
            name=_T,
            value=_F,
            known_seconds=_F,
            processes=_I,
            reduction=_N,
            source=_T,
            at=_F,
        ),
        # Models of features as they were fitted. `version` is a digest of what was learned; `features` maps names to
        # importance (JSON). Errors are means of abs(log(predicted / actual)) over the newest runs, `scored` of them, by
        # models that had learned the older ones: of this one, and of the one that knows scales alone, NaN where it gave
        # no answer to most. `chosen` is which of the two is asked.
        _table(
            "models",
            application=_N,
            version=_N,
            features=_T,
            runs=_I,
            scored=_I,
            error=_F,
            scaling_error=_F,
            chosen=_N,
            fitted_at=_F,
        ),
        # What happened to the pipeline itself: drops, refusals, restarts.
        _table("events", source=_N, kind=_N, rows=_I, detail=_T, at=_F),
        # How long a job was expected to take, written while it ran; `application` is cluster/app, `problem` adds the
        # parameters, `model` says which laws it came from, `runs` how many past runs it rests on, at `scales` different
        # ranks; both 0 where only other problems of the application are known. `method` is features for one that was
        # made of the run's features, and scaling or empty for one of its scale.
        _table(
            "predictions",
            job=_N,
            application=_N,
            problem=_T,
            ranks=_I,
            nodes=_I,
            model=_T,
            runs=_I,
            lower_seconds=_F,
            expected_seconds=_F,
            upper_seconds=_F,
            made_at=_F,
            scales=(_I, 0),
            method=(_N, "scaling"),
        ),
        # What became of a prediction: `result` is inside or outside of its limits for a run that ended well, withheld
        # for one that had alarmed, failed for one with another exit status. relative_error is expected / actual - 1.
        _table(
            "outcomes",
            job=_N,
            application=_N,
            result=_N,
            expected_seconds=_F,
            actual_seconds=_F,
            relative_error=_F,
            at=_F,
            method=(_N, "scaling"),
        ),
    )
}
