"""The schema of the log: tables, their columns, and the type and the values of each column.

The single definition of columns: producers build messages from it, the collector validates against it and derives its
DDL from it, readers get arrays of its types. New columns are added only at the end of a table, each with a default for
rows of older producers and for rows stored before.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np

MAX_NAME: Final = 128
"""Characters of an identifier."""
IDENTIFIER: Final = re.compile(rf"[A-Za-z0-9_.:@/+-]{{1,{MAX_NAME}}}")
MAX_APP: Final = 40
"""Characters of the name of an application, and of that of a parameter in rules."""
APP: Final = re.compile(rf"[A-Za-z0-9_.:@/+-]{{1,{MAX_APP}}}")
ITERATIONS: Final = 1 << 20
"""Added to the number of a world in rows of `node_blocks` about iterations, which are no sync points."""
TEXT_LIMIT: Final = 65536
ROWS_PER_SECOND: Final = 250.0
"""Rows of `blocks` that a run sends on average, unless it is given another budget."""


class Kind(enum.Enum):
    """Type of a column in a message."""

    NAME = ("an identifier of 1-128 characters from A-Z a-z 0-9 _ . : @ / + -", "")
    TEXT = (f"text of at most {TEXT_LIMIT} characters", "")
    F64 = ("64-bit floats", "<f8")
    I64 = ("64-bit signed integers", "<i8")
    U64 = ("64-bit unsigned integers", "<u8")

    def __init__(self, text: str, dtype: str) -> None:
        # Plain attributes: the collector reads them for every column of every message.
        self.text = text
        """The expected value, for error messages."""
        self.is_text = not dtype
        """True for kinds encoded as strings, False for those encoded as array bytes."""
        self._dtype = dtype or "O"

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The little-endian numpy type of a numeric kind."""
        import numpy as np  # not before: a launcher needs none

        return np.dtype(self._dtype)


@dataclass(frozen=True)
class Domain:
    """The values of a numeric column: `low` to `high`, both included, and NaN if `unknown`.

    `low` and `high` are integers for columns of integers.
    """

    kind: Kind
    low: float
    high: float
    unknown: bool = False

    def __str__(self) -> str:
        """As in error messages and in the reference.

        >>> print(Domain(Kind.F64, 0.0, 1e12, unknown=True))
        0 to 1e+12, or NaN
        """
        return f"{self.low:.12g} to {self.high:.12g}" + (", or NaN" if self.unknown else "")


class Json(enum.Enum):
    """What the JSON in a text column is; an empty text is unknown."""

    TEXTS = ("list of texts", list[str])
    NUMBERS = ("list of numbers", list[float])
    MAP = ("object of texts", dict[str, str])
    OBJECTS = ("list of objects of texts and integers", list[dict[str, str | int]])

    def __init__(self, text: str, type_: Any) -> None:
        self.text = text
        self.type = type_

    def __str__(self) -> str:
        return f"JSON, {self.text}"


@dataclass(frozen=True)
class Table:
    """A named list of typed columns, the defaults of columns added later, and the domains of what agents write."""

    name: str
    columns: dict[str, Kind]
    defaults: dict[str, str | int | float] = field(default_factory=dict)
    domains: dict[str, Domain] = field(default_factory=dict)
    json: dict[str, Json] = field(default_factory=dict)


_Spec = Kind | Domain | Json


def _table(name: str, /, **columns: _Spec | tuple[_Spec, str | int | float]) -> Table:
    pairs = {column: spec if isinstance(spec, tuple) else (spec, None) for column, spec in columns.items()}
    return Table(
        name,
        {column: _kind(spec) for column, (spec, _) in pairs.items()},
        {column: default for column, (_, default) in pairs.items() if default is not None},
        {column: spec for column, (spec, _) in pairs.items() if isinstance(spec, Domain)},
        {column: spec for column, (spec, _) in pairs.items() if isinstance(spec, Json)},
    )


def _kind(spec: _Spec) -> Kind:
    if isinstance(spec, Json):
        return Kind.TEXT
    return spec.kind if isinstance(spec, Domain) else spec


MAX_COUNT: Final = 10**15
"""Exact as a 64-bit float, in which readers compute."""
MAX_RANKS: Final = 100_000_000
"""Upper limit on plausible numbers of ranks."""
MAX_TIME: Final = 4_102_444_800.0
"""2100-01-01 in Unix seconds."""
MAX_SECONDS: Final = 1e12

_N, _T, _F, _I, _U = Kind.NAME, Kind.TEXT, Kind.F64, Kind.I64, Kind.U64
_COUNT = Domain(_I, 0, MAX_COUNT)
# Of one block: those of a job add up to less than 2**53.
_POSITIVE = Domain(_I, 1, 2**32)
_RANKS, _SOME_RANKS = Domain(_I, 0, MAX_RANKS), Domain(_I, 1, MAX_RANKS)
_UNKNOWN_COUNT = Domain(_I, -1, MAX_COUNT)
_FLAG = Domain(_I, 0, 1)
_STATUS = Domain(_I, -(2**31), 2**31 - 1)
_TIME = Domain(_F, 0.0, MAX_TIME)
_UNKNOWN_FIGURE = Domain(_F, 0.0, MAX_COUNT, unknown=True)
_SECONDS, _UNKNOWN_SECONDS = Domain(_F, 0.0, MAX_SECONDS), Domain(_F, 0.0, MAX_SECONDS, unknown=True)
# Own work is a difference of two times; in programs with several threads it may be negative.
_DIFFERENCE = Domain(_F, -MAX_SECONDS, MAX_SECONDS)
_MOMENT = Domain(_F, 0.0, MAX_SECONDS**3)
_FINITE = Domain(_F, -1e300, 1e300)

# fmt: off
TABLES: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        # One row per job step, written when its first MPI process has started (or at its end, if none did: ranks 0).
        # `job` is cluster/id.restart.step; runs of the same `workload` are comparable; times are Unix seconds.
        # `scheduler` is slurm, pbs, flux or none; `unique_id` is Slurm's SLUID, empty if there is none. The first row
        # of a job counts, here and in `works`: each node with a rank 0 of a run of several programs may write one.
        _table("jobs", job=_N, cluster=_N, workload=_N, app=_N, user=_N, params=Json.MAP, ranks=_RANKS, nodes=_RANKS,
               host=_N, started_at=_TIME, scheduler=(_N, "none"), account=(_T, ""), unique_id=(_T, "")),
        # What was asked for, of rank 0: one row per job step, at most 2 s after its first MPI process has started. All
        # texts but `job`, `plain` and `reason` are salted digests in hex, empty if unknown: `executable` of its build
        # id, else of its content; `program` of its name, of the script's for an interpreter; `script` of its content.
        # `words`: JSON, a digest for each word after the program or the script, key=value as two joined by "=".
        # `inputs`: JSON, word (index, -1: standard input), digest and bytes of each file that a word names. `folder`:
        # JSON, where there is none: digests of small files in the working folder by digests of their names. `threads`
        # as in OMP_NUM_THREADS and the like, -1 if unknown. `numbers`: JSON, where the site keeps them: of each word
        # that is a number, and of each small input file with numbers (`file` 1), `word` as in `inputs`, the numbers
        # (`values`, with spaces between) and `form`, a digest of the text with a mark for each. `plain`: the words
        # themselves (JSON), where the site keeps them. `reason`: why something is missing, in words.
        _table("works", job=_N, executable=_T, program=_T, script=_T, words=Json.TEXTS, inputs=Json.OBJECTS,
               ranks=_RANKS, nodes=_RANKS, ranks_per_node=_RANKS, threads=_UNKNOWN_COUNT, plain=Json.TEXTS, reason=_T,
               folder=(Json.MAP, ""), platform=(Json.MAP, ""), numbers=(Json.OBJECTS, "")),
        # The work that a job does, as the modeler recognises it. `workload` is the group of like work: that of the row
        # of `jobs` (`family`), or one with a digest of what was asked for after it. `how`: first, same, like, merged
        # or none (nothing is known of what was asked for). `reason`: in words. The last row of a job counts.
        _table("assignments", job=_N, workload=_N, family=_N, how=_N, reason=_T, time=_F),
        # What people say about groups of like work. `target`: the group. `action`: name, split (`argument`: the
        # features that matter, one per line) or merge (`argument`: the other group).
        _table("work_edits", target=_N, action=_N, argument=_T, editor=_N, time=_F),
        # What the first rank communicates: totals since the begin of the run of the classes with most intervals, when
        # `look` intervals have ended, 24, 192, 1536 and so on; 0 at the end of a shorter run, and in rows of earlier
        # versions, of runs of 3, 10 and 30 s. `bytes`: of the collectives that end the intervals, 0 where unknown.
        # `messages`, `message_bytes`: sent to single ranks within the intervals.
        _table("signatures", job=_N, class_id=_U, intervals=_COUNT, bytes=_COUNT, messages=_COUNT, message_bytes=_COUNT,
               elapsed_seconds=_SECONDS, time=_TIME, look=(_COUNT, 0)),
        # Meaning of a class id of a job: the call sites at the two ends of its intervals.
        _table("sites", job=_N, class_id=_U, from_site=_T, to_site=_T, operation=_N),
        # Consecutive intervals of one class, reduced; a block of one is the raw interval. `world` distinguishes the
        # MPI worlds of one job step, `first_index` counts synchronizing collectives of that world from 0.
        _table("blocks", job=_N, world=_COUNT, class_id=_U, first_index=_COUNT, count=_POSITIVE, sum_seconds=_SECONDS,
               sum_squares=_MOMENT, sum_cubes=_MOMENT, min_seconds=_SECONDS, max_seconds=_SECONDS, ended_at=_TIME),
        # Statistics of the ranks of a world on one node over `length` sync points from `first_index` on, of which
        # `count` are known for all `ranks` there. A block begins at a multiple of its length, a power of two: blocks
        # nest. `last_rank`: the rank that arrived last most often, `last_count` times, in total `late_seconds` after
        # the others. `own_rank`: the rank with the most own work, `own_rank_seconds` in total. Sums over ranks and sync
        # points: `own_seconds` (own work), `p2p_seconds` (in blocking point-to-point calls), `wait_seconds` (in the
        # collective). `least_wait_seconds`: total wait of the node's last ranks; the node with the least delays all
        # others. Iterations in place of sync points have a world of their own, 2^20 higher, and ranges of Unix time in
        # units of 16 us; `count` of them, of the ranks that make as many.
        _table("node_blocks", job=_N, host=_N, world=_COUNT, ranks=_SOME_RANKS, first_index=_COUNT, length=_POSITIVE,
               count=_POSITIVE, last_rank=_COUNT, last_count=_COUNT, late_seconds=_SECONDS, own_rank=_COUNT,
               own_rank_seconds=_DIFFERENCE, own_seconds=_DIFFERENCE, p2p_seconds=_SECONDS, wait_seconds=_SECONDS,
               least_wait_seconds=_SECONDS, ended_at=_TIME),
        # What a worker of a training did in `count` steps: own work, processor time of it, updates of the parameters
        # within it, and waiting until the gradients were reduced; `bytes` of the parameters. A row each 2 s, each 10 s
        # after the first minute.
        _table("workers", job=_N, host=_N, world=_COUNT, rank=_COUNT, count=_POSITIVE, own_seconds=_DIFFERENCE,
               cpu_seconds=_SECONDS, update_seconds=_SECONDS, wait_seconds=_SECONDS, bytes=_COUNT, ended_at=_TIME),
        # What the ranks of a world on one node did in all intervals of a class, known when the run ends: of the classes
        # with most time, 16 at most. `count`: intervals that are known of all `ranks` there. Sums over ranks and
        # intervals as in `node_blocks`: `own_seconds`, `p2p_seconds`, `wait_seconds`, `messages`, `message_bytes`. Sums
        # over intervals, which together are their time: `slowest_seconds`, the own work of the rank with most;
        # `exchange_seconds`, from that until the last rank arrives; `least_wait_seconds` of the last rank in the
        # collective. `bytes` of the collective, 0 where unknown. `rank_deviation_seconds`: standard deviation of the
        # ranks' means of own work, NaN for one rank. `deviations`, ascending: own work in one interval minus the rank's
        # mean, as shares of the mean of all; `shares` of the values that each stands for (both JSON).
        # `busiest_seconds`: own work of the node's rank with most in all classes.
        _table("phases", job=_N, host=_N, world=_COUNT, ranks=_SOME_RANKS, class_id=_U, count=_POSITIVE,
               own_seconds=_DIFFERENCE, p2p_seconds=_SECONDS, wait_seconds=_SECONDS, slowest_seconds=_DIFFERENCE,
               exchange_seconds=_SECONDS, least_wait_seconds=_SECONDS, rank_deviation_seconds=_UNKNOWN_SECONDS,
               bytes=_COUNT, messages=_COUNT, message_bytes=_COUNT, deviations=Json.NUMBERS, shares=Json.NUMBERS,
               time=_TIME, busiest_seconds=(_UNKNOWN_SECONDS, math.nan)),
        # While no interval ends although ranks live: a row after 5 s and then at growing distances, from the node of
        # rank 0. `since`: end of the last interval, or of MPI_Init before the first; `time`: up to when the sidecar saw
        # no further one. Both by the clock of `blocks.ended_at`, so that they compare with it whatever the clocks of
        # other machines say. `ranks`: those on this host that live and have not called MPI_Finalize.
        _table("silences", job=_N, host=_N, since=_TIME, time=_TIME, ranks=_RANKS),
        # What the kernel and the hardware of a node know, over seconds in which they knew something, and now and then
        # over quiet ones. `rank` -1 is the node with sums over the job's ranks there; ranks have a row where they have
        # lost time. NaN and -1 are unknown. Errors and throttles are growth, other figures of hardware means.
        _table("pressures", job=_N, host=_N, rank=_UNKNOWN_COUNT, began_at=_TIME, ended_at=_TIME,
               run_seconds=_UNKNOWN_SECONDS, delay_seconds=_UNKNOWN_SECONDS, stopped_seconds=_UNKNOWN_SECONDS,
               blocked_seconds=_UNKNOWN_SECONDS, major_faults=_UNKNOWN_COUNT, resident_bytes=_UNKNOWN_COUNT,
               core=_UNKNOWN_COUNT, process=_N, process_of=_N, process_core=_UNKNOWN_COUNT,
               process_seconds=_UNKNOWN_SECONDS, cores=_UNKNOWN_COUNT, busy_seconds=_UNKNOWN_SECONDS,
               steal_seconds=_UNKNOWN_SECONDS, cpu_pressure=_UNKNOWN_SECONDS, memory_pressure=_UNKNOWN_SECONDS,
               io_pressure=_UNKNOWN_SECONDS, swapped_pages=_UNKNOWN_COUNT, available_bytes=_UNKNOWN_COUNT,
               clock_hz=_UNKNOWN_FIGURE, throttles=_UNKNOWN_FIGURE,
               memory_errors=_UNKNOWN_FIGURE, link_rate=_UNKNOWN_FIGURE, link_errors=_UNKNOWN_FIGURE,
               accelerator_clock_hz=_UNKNOWN_FIGURE, accelerator_limited=_UNKNOWN_FIGURE,
               accelerator_celsius=_UNKNOWN_FIGURE, accelerator_errors=_UNKNOWN_FIGURE,
               transfer_seconds=(_UNKNOWN_SECONDS, math.nan)),
        # One row per job step at its end. `exit_status` as a shell reports it, -1 if unknown; `intervals` as counted
        # by the shim, `dropped`: those of them that are in no block. `imported`: 1 for a run of other records, that is
        # learned and not judged.
        _table("runs", job=_N, ended_at=_TIME, runtime_seconds=_UNKNOWN_SECONDS, exit_status=_STATUS, intervals=_COUNT,
               dropped=_COUNT, imported=(_FLAG, 0)),
        # What a sidecar has seen of an MPI world of a job on its node: a row at the end, and one at the begin where the
        # world has ranks on other nodes or a rank has started the sidecar. `world`: ranks of the world; `ranks`: those
        # of it on the node; `first`: 1 if rank 0 is among them; `lowest`: the lowest of them, -1 if unknown. `number`:
        # of the world, as in `blocks`. `intervals` and `dropped` as in `runs`, 0 without rank 0. `ended`: 1 at the end.
        _table("nodes", job=_N, host=_N, world=_RANKS, ranks=_RANKS, first=_FLAG, intervals=_COUNT, dropped=_COUNT,
               ended=_FLAG, time=_TIME, number=(_COUNT, 0), lowest=(_UNKNOWN_COUNT, -1)),
        # Cost of the sidecar up to the end of a run: processor time, peak resident memory and lifetime, which include
        # the delivery of earlier runs; steps of this run, processor time of the longest; error of the clock. `sources`:
        # JSON, of each source of rows (rings, kernel, ...) rows, time in microseconds, and failures.
        _table("sidecars", job=_N, host=_N, cpu_seconds=_SECONDS, resident_bytes=_COUNT, lived_seconds=_SECONDS,
               steps=_COUNT, longest_step_seconds=_SECONDS, clock_error_seconds=_SECONDS, time=_TIME,
               sources=(Json.OBJECTS, "")),
        # Lower, expected, upper for one class (kind interval) or a whole run (kind runtime, class 0).
        _table("bands", workload=_N, class_id=_U, kind=_N, method=_N, samples=_I, runs=_I, lower_seconds=_F,
               expected_seconds=_F, upper_seconds=_F, shape=_F, location_seconds=_F, scale_seconds=_F, fitted_at=_F),
        # Pace of healthy runs of a workload, window by window: the reference of the sequential score.
        # `means` maps class id to mean seconds, `residuals` lists sorted log ratios, `progress` is elapsed time at
        # equal progress (all JSON; empty if the runs cannot be aligned). `limits` maps class id to the intervals of a
        # run for which a mean of little data holds (JSON; empty in rows of earlier versions).
        _table("paces", workload=_N, runs=_I, windows=_I, window_seconds=_F, spread=_F, means=_T, residuals=_T,
               fitted_at=_F, progress=(_T, ""), limits=(_T, "")),
        # Evidence against "healthy" for one job; above 1 alarms. `final` is 1 in the row that follows the run's end.
        # `members` lists the nodes or ranks of the cause, `evidence` its figures (both JSON). `basis`: history, own
        # (its own first windows) or scaling. `hosts` lists the nodes of the run, in the row with `final` 1 (JSON).
        _table("scores", job=_N, workload=_N, state=_N, score=_F, slowdown=_F, onset_at=_F, alarmed_at=_F, windows=_I,
               final=_I, sentence=_T, time=_F, cause=(_N, "none"), members=(_T, "[]"), evidence=(_T, "{}"),
               basis=(_N, "history"), recovered_at=(_F, math.nan), hosts=(_T, "[]")),
        # Nodes that delay job after job: a row when the evidence has changed, the last one of a node counts. `jobs`: on
        # several nodes, in which it was compared; `blamed`: those in which it was the straggler or had the most own
        # work. `score`: above 1 is significant. `excess`: its own work over the median of the job's nodes, minus 1, a
        # mean over jobs; NaN if unknown. `suspected`: 1 if that is significant and enough to matter.
        _table("suspects", host=_N, jobs=_I, blamed=_I, score=_F, excess=_F, suspected=_I, advice=_T, time=_F),
        # Features reported by a program on one host: the `reduction` (largest value) over `processes`, and the seconds
        # from their start until it was known. A row is written when a feature is stable, and at the end for each whose
        # value has changed. `source`: file:line:column of the probe, empty for features named by the program.
        _table("features", job=_N, host=_N, name=_T, value=_FINITE, known_seconds=_SECONDS, processes=_COUNT,
               reduction=_N, source=_T, time=_TIME),
        # Fitted models of features. `version` is a digest of the training data; `features` maps names to importance
        # (JSON). Errors are means of abs(log(predicted / actual)) over the newest `scored` runs, by models trained on
        # older ones: this model, and the model of scales alone (NaN if it predicted less than half of them). `chosen`:
        # the one of the two that is used.
        _table("models", application=_N, version=_N, features=_T, runs=_I, scored=_I, error=_F, scaling_error=_F,
               chosen=_N, fitted_at=_F),
        # Events of the pipeline itself: drops, refusals, restarts.
        _table("events", source=_N, kind=_N, rows=_COUNT, detail=_T, time=_TIME),
        # Predicted runtime of a job, written while it ran. `application` is cluster/app, `problem` adds the parameters,
        # `model` names the scaling laws, `runs` counts the past runs used, at `scales` different numbers of ranks; both
        # are 0 if only other problems of the application are known. `method` is features for a prediction from the
        # run's features, scaling or empty for one from its scale.
        _table("predictions", job=_N, application=_N, problem=_T, ranks=_I, nodes=_I, model=_T, runs=_I,
               lower_seconds=_F, expected_seconds=_F, upper_seconds=_F, made_at=_F, scales=(_I, 0),
               method=(_N, "scaling")),
        # Outcome of a prediction. `result` is inside or outside (of its limits) for a run with exit status 0, withheld
        # for one that alarmed, failed for other exit statuses. relative_error is expected / actual - 1.
        _table("outcomes", job=_N, application=_N, result=_N, expected_seconds=_F, actual_seconds=_F, relative_error=_F,
               time=_F, method=(_N, "scaling")),
    )
}
# fmt: on
