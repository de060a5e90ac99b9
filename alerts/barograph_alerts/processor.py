"""The scorer of jobs: rows in, scores out, no I/O."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Final, get_args

import numpy as np

from barograph_agent.protocol.first_rows import FirstRows
from barograph_agent.protocol.wire import Column
from barograph_alerts.attribution.alignment import Outcome
from barograph_alerts.attribution.cause import Cause, KernelKind
from barograph_alerts.attribution.coincidence import Coincidences, Neighbour
from barograph_alerts.attribution.fleet import NodeRanking, closed_e_bh, facility_share
from barograph_alerts.attribution.imbalance import Imbalances
from barograph_alerts.attribution.kernel.pressure import pressure
from barograph_alerts.attribution.node_phases import NodePhases
from barograph_alerts.attribution.suspects import Suspect, SuspectRows, suspects
from barograph_alerts.attribution.work import WorkSpan
from barograph_alerts.detection.alarm import ALPHA, MARGIN
from barograph_alerts.detection.node_test import JobNodes
from barograph_alerts.detection.runtime_prior import FROM_FEATURES, FROM_PROGRESS, RuntimePrior
from barograph_alerts.detection.stall import SilentSpan
from barograph_alerts.detection.worker_test import WorkerRow
from barograph_alerts.job.disturbances import DisturbanceHistory
from barograph_alerts.job.job import UNASSIGNED, WatchedJob
from barograph_alerts.job.monitor import JobMonitor
from barograph_alerts.job.progress import ProgressHistory
from barograph_alerts.job.references import References, accepted_workloads
from barograph_alerts.job.remaining import JobRemaining
from barograph_alerts.job.rows import JobVerdict, remaining_output, score_output, unjudged_output, verdicts
from barograph_collector.daemon.quarantine import Quarantine
from barograph_collector.daemon.runner import Output
from barograph_modeler.pace.pace import Pace
from barograph_modeler.pace.remaining import with_coming
from barograph_modeler.pace.windows import blocks_by_job
from barograph_modeler.recognition.signature import looks, may_move
from barograph_modeler.state import lru
from barograph_modeler.state.fair import FairJobs

MAX_JOBS: Final = 20_000
"""Jobs watched, and ended jobs that are kept."""
MAX_JUDGED: Final = 200_000
"""Jobs with a final verdict that are known: a late row of an older one is taken for a job's whose begin was lost."""
MAX_HELD: Final = 5_000  # rows of blocks of a job whose row of `jobs` has not come
MAX_SUSPECTS: Final = 100
"""Nodes with most evidence that are reported."""
UNKNOWN_PROGRAM: Final = "unknown"
"""All whose name is not known count as one."""
WAIT_SECONDS: Final = 10.0
"""How long a job waits to be assigned to a group of like work, where jobs are, and for what was learned of it; then it
is judged by itself."""
MOVE_SECONDS: Final = 3.0
"""How long the verdict of an ended job waits for the word that it remains in its group."""
FIRST_SHARE: Final = 2 / 3
"""Of alpha, for a job's first judging; as much of the rest for each further one, as it is found in another group."""
BLAMING: Final = frozenset({"straggler", *get_args(KernelKind)})
"""Causes whose members are the nodes to blame."""


class Scorer:
    """Scores jobs as their intervals arrive.

    Call `observe` with rows of the tables in `main.TABLES`, and `step` whenever everything up to some offset has been
    read. At the start, rows of `scores` restore final verdicts, and with them the evidence about nodes.

    alpha: bound on the share of healthy jobs that ever alarm. margin: slowdown that does not matter, 0.05 is 5 %.
    applications: `alpha` and `margin` of single applications by name.
    """

    def __init__(
        self,
        *,
        alpha: float = ALPHA,
        margin: float = MARGIN,
        applications: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        self.jobs: FairJobs[WatchedJob] = FairJobs(MAX_JOBS)
        self.finished: Counter[str] = Counter()
        self.ended: OrderedDict[str, tuple[WatchedJob, float]] = OrderedDict()
        self.nodes = NodeRanking()
        self.discovered: frozenset[str] = frozenset()
        """Jobs rejected by closed e-BH among all running jobs, with those that were when they ended."""
        self.sync_points: Counter[Outcome] = Counter()
        """Sync points of nodes, by what became of them when nodes were compared."""
        self._first_rows = FirstRows()
        self.facility = 0.0
        """Share of slow jobs among running jobs if a common cause is likely, else 0."""
        self.quarantine = Quarantine(self._give_up)
        self.names_others = False
        """Whether sentences name processes of users other than the job's."""
        self.judge_by(alpha=alpha, margin=margin, applications=applications or {})
        self._references = References()
        self._progress = ProgressHistory()
        self._disturbances = DisturbanceHistory()
        self._surroundings = Coincidences()
        self._node_phases = NodePhases()
        self._imbalances = Imbalances()
        self._suspects = SuspectRows()
        self._ranked: OrderedDict[str, None] = OrderedDict()
        """Jobs whose nodes are in `nodes`: each counts once."""
        self._judged: OrderedDict[str, None] = OrderedDict()
        self._given_up: list[tuple[str, str, str]] = []
        """Jobs without a verdict that will have none, their workloads, and why."""
        self._has_groups = False
        """Whether jobs are assigned to groups of like work."""
        self.wanted: dict[str, None] = {}
        """Workloads of jobs for which `learn` is to be called."""
        self._readers: Mapping[str, Callable[[Mapping[str, Column]], None]] = {
            "events": self._read_events,
            "scores": self._read_scores,
            "jobs": self._read_jobs,
            "assignments": self._read_assignments,
            "blocks": self._read_blocks,
            "sites": self._read_sites,
            "features": self._read_features,
            "silences": self._read_silences,
            "node_blocks": self._read_node_blocks,
            "workers": self._read_workers,
            "nodes": self._read_nodes,
            "phases": self._node_phases.read_phases,
            "pressures": self._read_pressures,
            "predictions": self._read_predictions,
            "runs": self._read_runs,
            "signatures": self._read_signatures,
        }

    def open_jobs(self, names: Collection[str], upto: int) -> dict[str, int]:
        """Jobs of a log that have no final verdict, and the offsets of their rows of `jobs`, 0 where that is unknown.

        names: the jobs of this log. upto: the last offset that counts.
        """
        return {name: job.offset for name, job in self.jobs.items() if name in names and job.offset <= upto}

    def begun(self, names: Iterable[str]) -> list[tuple[str, str, float]]:
        """Of these jobs the name, the workload, and the begin in Unix seconds."""
        return [(name, job.workload, job.started_at) for name in names if (job := self.jobs.get(name)) is not None]

    def begin_with(self, name: str, row: Mapping[str, Any]) -> None:
        """Compare a job with a pace that its workload had when it began. row: of `paces`."""
        with self.quarantine.guard("paces"):
            self.jobs[name].first_pace = row["workload"], Pace.from_row(row)

    def begin_log(self) -> None:
        """Of a log, which may be another one than before, rows of `paces` and `bands` count after `learn` only."""
        self._references.is_partial = True
        self._references.forget()

    def learn(self, workloads: Collection[str], rows: Iterable[tuple[str, Mapping[str, Column]]]) -> None:
        """Read the last rows of `paces` and `bands` that the log has of wanted workloads, in their order."""
        with self.quarantine.guard("paces"):
            self._references.learn(workloads, rows)
        for job in self.jobs.values():
            # It has not waited for so long.
            if job.has_no_pace and job.workload in workloads and self._references.has_pace(job.workload):
                job.judge_anew()

    def close(self, names: Iterable[str]) -> None:
        """Watch jobs no further: they have their final verdicts."""
        for name in names:
            self._close(name)

    def judge_by(self, *, alpha: float, margin: float, applications: Mapping[str, Mapping[str, float]]) -> None:
        """Set the parameters for jobs that begin from now on; running jobs keep theirs."""
        self.alpha = alpha
        self._margin = margin
        self._applications = applications

    def observe(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Read rows of one table as the log gives them. now: of no effect, rows have their times."""
        self._readers.get(table, partial(self._references.read, table))(self._first_rows.of(table, columns))

    def add_work(self, name: str, spans: Sequence[WorkSpan]) -> None:
        """Add the work of the ranks or nodes of a job, in order of time."""
        if (job := self._job(name)) is not None:
            job.work += spans

    def remaining(self, job: WatchedJob, now: float) -> JobRemaining | None:
        """What a job has left; None if that is unknown. now: Unix seconds."""
        found = job.remaining(self._references.runtime(job.workload), self._share(job), now)
        if found is None:
            return None
        coming = self._disturbances.coming(_application(job.family))
        return found._replace(left=with_coming(found.left, max(0.0, now - job.started_at), coming))

    def has_run(self, job: WatchedJob) -> bool:
        """Whether runtimes of the job's work are known."""
        return self._references.runtime(job.workload) is not None

    def suspects(self) -> list[Suspect]:
        """The nodes with most evidence against them, at most MAX_SUSPECTS."""
        return suspects(self.nodes, MAX_SUSPECTS)

    @property
    def idle(self) -> bool:
        """Whether no job waits for its group, what is known of it, or the word that it remains. The rest, sidecars
        report."""
        if self._node_phases.waiting or self.wanted:
            return False
        waiting = (job.ended and job.may_move for job in self.jobs.values())
        return not self._has_groups or (all(job.how or not job.app for job in self.jobs.values()) and not any(waiting))

    def step(self, now: float) -> list[Output]:
        """Evaluate new data; returns the rows to write of `scores`, `predictions`, `suspects`. now: Unix seconds."""
        scores = []
        self.wanted.clear()
        for name, job in list(self.jobs.items()):
            try:
                if (score := self._step_job(name, job, now)) is not None:
                    scores.append(score)
                if (news := self._look_at_end(name, job, now)) is not None:
                    scores.append(news)
            except Exception as error:
                self.quarantine.add("step", name, error)
        with self.quarantine.guard("fleet"):
            self._judge_fleet(now)
            scores += self._compare_nodes(now)
        scores += [unjudged_output(name, workload, reason, now) for name, workload, reason in self._given_up]
        self._given_up.clear()
        return scores

    def _step_job(self, name: str, job: WatchedJob, now: float) -> Output | None:
        """Evaluate the new data of one job; its row of `scores`, if one is due."""
        if not job.workload or job.imported:
            if job.ended:
                # A run of other records is history; without a row of `jobs`, there is nothing to compare it with.
                self._progress.end(name, job.exit_status, job.points)
                self._close(name)
            return None
        if self._has_groups and not job.how:
            job.seen_at = min(job.seen_at, now) if job.seen_at == job.seen_at else now
            if now - job.seen_at <= WAIT_SECONDS:
                return None
            job.assign(f"{job.family[:100]}+{UNASSIGNED}", UNASSIGNED)
        if self._awaits_history(job, now):
            return None
        job.work += job.node_work.finish() if job.ended else job.node_work.step(now)
        if job.waiting or job.silences or ((job.work or job.workers.waiting) and job.monitor is not None):
            self._judge(job)
            job.changed_at = now
        if job.monitor is not None:
            job.monitor.take_silences()
            self._judge_runtime(job, job.monitor)
            job.monitor.step()
        if job.ended and not self._awaits_group(job, now):
            score = self._score(name, job, now)
            self._finish(name, job, now)
            return score
        if not job.ended and (key := job.report_key) != job.reported:
            job.reported = key
            return self._score(name, job, now)
        return None

    def _look_at_end(self, name: str, job: WatchedJob, now: float) -> Output | None:
        """The row of `predictions` of a running job, if its expected end is news."""
        elapsed = max(0.0, now - job.started_at)
        if job.problem is None or job.monitor is None or not job.monitor.news.is_due(elapsed, now):
            return None
        found = self.remaining(job, now)
        if found is None or not job.monitor.news.is_news(found, elapsed, now):
            return None
        return remaining_output(name, job, found, now)

    def forget_before(self, offset: int, names: Collection[str]) -> None:
        """Watch no job of a log whose row of `jobs` is before an offset: it may have its final verdict."""
        for name in self._jobs_before(offset, names):
            self._close(name)

    def give_up_before(self, offset: int, names: Collection[str]) -> None:
        """Judge no job of a log whose row of `jobs` is before an offset, and write so."""
        for name in self._jobs_before(offset, names):
            self._give_up(name, "it began long ago and has no end")

    def _jobs_before(self, offset: int, names: Collection[str]) -> list[str]:
        return [name for name, job in self.jobs.items() if name in names and job.offset < offset]

    def _give_up(self, name: str, reason: str = "its data cannot be evaluated, see the job's row of events") -> None:
        """Judge a job no further."""
        job = self._close(name)
        self.finished["unknown"] += 1
        self._given_up.append((name, job.workload if job is not None else "", reason))

    def _awaits_history(self, job: WatchedJob, now: float) -> bool:
        """Whether a job waits for what was learned of its workload."""
        lacking = [one for one in (job.workload, job.former) if one and not self._references.use(one)]
        self.wanted.update(dict.fromkeys(lacking))
        job.lacking_since = min(job.lacking_since, now) if lacking else math.inf
        return now - job.lacking_since <= WAIT_SECONDS if lacking else False

    def _awaits_group(self, job: WatchedJob, now: float) -> bool:
        """Whether an ended job may yet be found to belong to another group."""
        job.ended_at = min(job.ended_at, now)
        return job.may_move and now - job.ended_at <= MOVE_SECONDS

    def _judge_runtime(self, job: WatchedJob, monitor: JobMonitor) -> None:
        points = job.points if job.ended else sum(job.sync_points.values())
        history = self._references.runtime(job.workload)
        length = self._progress.length(job.workload)
        is_less = length is not None and points < length.lower
        # With fewer sync points it has done less, which is no reason to take longer.
        did_less = is_less and history is not None and job.runtime_seconds > history.expected_seconds
        job.other_length = length is not None and not length.has(points) and (job.ended or not is_less) and not did_less
        if job.other_length or job.has_features or job.is_unread:
            monitor.evidence.expect_another_runtime()
        elif history is not None and not history.vague:
            monitor.evidence.expect_runtime(history)
        elif job.runtime_prior is not None and not job.is_new:
            monitor.evidence.expect_runtime(job.runtime_prior)
        former = self._references.runtime(job.former) if job.ended and history is None else None
        monitor.evidence.is_unread, monitor.evidence.is_undecided = job.is_unread, False
        if former is not None and not former.vague and job.runtime_seconds > former.upper_seconds:
            if monitor.lost_to_others(job.started_at, job.runtime_seconds, former.expected_seconds):
                monitor.evidence.expect_runtime(former)
            else:
                monitor.evidence.is_undecided = True
        runtime = job.runtime_seconds if job.ended else math.nan
        monitor.judge_runtime(job.started_at, self._share(job), runtime, did_less=did_less)

    def _share(self, job: WatchedJob) -> float:
        """Completed share of the job's sync points, if other scales of its problem tell how many there are."""
        points = self._progress.sync_points(job.problem) if job.problem is not None else 0
        return sum(job.sync_points.values()) / points if points else math.nan

    def _judge_fleet(self, now: float) -> None:
        evidence = {
            name: job.monitor.evidence for name, job in self.jobs.items() if job.monitor is not None and job.score >= 0
        }
        newest = takewhile(lambda item: item[1][1] == now, reversed(self.ended.items()))
        ended = {name: job.monitor.evidence for name, (job, _) in newest if job.monitor is not None and job.score >= 0}
        significant = closed_e_bh({name: one.log_e for name, one in (evidence | ended).items()})
        self.discovered = significant.union(self.discovered.intersection(self.ended))
        slow = sum(one.open is not None and one.open.kind == "slow" for one in evidence.values())
        self.facility = facility_share(slow, len(evidence))

    def _compare_nodes(self, now: float) -> list[Output]:
        """Take the nodes of ended jobs as evidence; returns the rows of `suspects` to write."""
        compared = self._node_phases.take(now, self.jobs.__contains__)
        for one in compared:
            program = self._imbalances.program_of(one.job) or UNKNOWN_PROGRAM
            beyond = self._imbalances.add(one)
            if not self._is_new_evidence(one.job):
                continue
            self.nodes.compare(one.excess, program, has_places=beyond is not None)
            if beyond is not None and one.places is not None:
                self.nodes.compare_places(one.places.hosts, beyond, one.excess)
        return list(self._suspects.rows(self.suspects(), now)) if compared else []

    def _is_new_evidence(self, job: str) -> bool:
        """Whether the nodes of a job have not been counted yet, by its verdict or by their own work."""
        is_new = job not in self._ranked
        lru.store(self._ranked, job, None, MAX_JUDGED)
        return is_new

    def _read_jobs(self, columns: Mapping[str, Column]) -> None:
        self._progress.read_jobs(columns)
        for row in range(len(columns["job"])):
            if (job := self._job(columns["job"][row], columns["user"][row])) is not None:
                job.offset = int(columns["log_offset"][row])
                job.begin({name: values[row] for name, values in columns.items()}, self.sync_points)
                self._surroundings.began(columns["job"][row], job.started_at)

    def _read_assignments(self, columns: Mapping[str, Column]) -> None:
        self._has_groups = True
        rows = zip(*(columns[name] for name in ("job", "workload", "how", "log_offset")), strict=True)
        for name, workload, how, offset in rows:
            self._progress.assign(name, workload)
            if (job := self._job(name)) is not None:
                job.assign(workload, how, int(offset))

    def _read_signatures(self, columns: Mapping[str, Column]) -> None:
        for look in looks(columns):
            if may_move(look.elapsed_seconds, look.signature.intervals) and (job := self._job(look.job)) is not None:
                job.has_early_traffic = True

    def _read_runs(self, columns: Mapping[str, Column]) -> None:
        # Studies have no log.
        later = [columns.get(name, [0] * len(columns["job"])) for name in ("imported", "log_offset")]
        names = ("job", "runtime_seconds", "exit_status", "intervals")
        for name, runtime, status, points, other, at in zip(*(columns[name] for name in names), *later, strict=True):
            if (job := self._job(name)) is not None:
                job.runtime_seconds, job.ended, job.imported = float(runtime), True, bool(other)
                job.exit_status, job.points, job.end_offset = int(status), int(points), int(at)
            else:
                self._progress.end(name, int(status), int(points))

    def _read_events(self, columns: Mapping[str, Column]) -> None:
        """Restart running jobs of workloads whose alarmed runs were accepted as history."""
        accepted = accepted_workloads(columns)
        for job in self.jobs.values():
            if job.workload in accepted:
                job.monitor, job.first_pace, job.reported = None, None, ()

    def _read_scores(self, columns: Mapping[str, Column]) -> None:
        for verdict in verdicts(columns):
            self._close(verdict.job)
            self._record(verdict)

    def _read_features(self, columns: Mapping[str, Column]) -> None:
        for name in set(columns["job"]):
            if (job := self._job(name)) is not None:
                job.has_features = True

    def _read_silences(self, columns: Mapping[str, Column]) -> None:
        for name, since, at in zip(columns["job"], columns["since"], columns["time"], strict=True):
            if (job := self._job(name)) is not None:
                job.silences.append(SilentSpan(float(since), float(at)))

    def _read_blocks(self, columns: Mapping[str, Column]) -> None:
        for name, rows, blocks in blocks_by_job(columns):
            if (job := self._job(name)) is not None:
                ends = np.asarray(columns["first_index"][rows]) + np.asarray(columns["count"][rows])
                job.reach(np.asarray(columns["world"][rows]), ends)
                if job.workload or sum(len(held.class_ids) for held, _ in job.waiting) < MAX_HELD:
                    job.waiting.append((blocks, np.asarray(columns["max_seconds"][rows])))

    def _read_sites(self, columns: Mapping[str, Column]) -> None:
        names = ("job", "class_id", "from_site", "to_site")
        for name, class_id, before, at in zip(*(columns[c] for c in names), strict=True):
            if (job := self._job(name)) is not None:
                job.name_class(int(class_id), before, at)

    def _read_predictions(self, columns: Mapping[str, Column]) -> None:
        names = ("job", "method", "lower_seconds", "expected_seconds", "upper_seconds", "runs", "scales")
        for name, method, lower, expected, upper, runs, scales in zip(*(columns[c] for c in names), strict=True):
            # Those made after the begin of the run are not what it is tested against.
            if method in (FROM_FEATURES, FROM_PROGRESS):
                continue
            if (job := self._job(name)) is not None and 0 < expected <= upper < math.inf:
                job.runtime_prior = RuntimePrior(float(lower), float(expected), float(upper), int(runs), int(scales))

    def _read_node_blocks(self, columns: Mapping[str, Column]) -> None:
        names = list(columns)
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(names, values, strict=True))
            if (job := self._job(row["job"])) is not None and (span := job.node_work.add(row)) is not None:
                job.work.append(span)

    def _read_nodes(self, columns: Mapping[str, Column]) -> None:
        self._node_phases.read_nodes(columns)
        if "number" not in columns:
            return
        texts = (columns[name] for name in ("job", "host"))
        numbers = (columns[name] for name in ("number", "lowest", "ranks", "world"))
        for name, host, number, lowest, ranks, size in zip(*texts, *numbers, strict=True):
            if (job := self._job(name)) is not None:
                job.work += job.node_work.add_ranks(int(number), str(host), int(lowest), int(ranks), int(size))

    def _read_workers(self, columns: Mapping[str, Column]) -> None:
        texts = (columns[name] for name in ("job", "host"))
        numbers = (columns[name] for name in ("rank", "count", "bytes", "ended_at"))
        times = zip(*(columns[f"{name}_seconds"] for name in ("own", "cpu", "update", "wait")), strict=True)
        for name, host, rank, steps, size, at, spent in zip(*texts, *numbers, times, strict=True):
            if (job := self._job(name)) is not None:
                own, cpu, update, wait = (float(one) / int(steps) for one in spent)
                row = WorkerRow(host, int(rank), int(steps), own, cpu, update, wait, int(size), float(at))
                job.workers.waiting.append(row)

    def _read_pressures(self, columns: Mapping[str, Column]) -> None:
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            if (job := self._job(row["job"])) is not None:
                onset_at = job.monitor.open_since if job.monitor is not None else math.inf
                ahead = job.node_work.clock_ahead(row["host"])
                job.kernel.add(pressure(row, names_others=self.names_others, ahead=ahead), onset_at)

    def _job(self, name: str, user: str = "") -> WatchedJob | None:
        """The watched job; None once it has its final verdict."""
        return None if name in self._judged else self.jobs.use(name, WatchedJob, user)

    def _judge(self, job: WatchedJob) -> None:
        if job.monitor is None:
            job.monitor = self._new_monitor(job)
        work, job.work = job.work, []
        job.monitor.add_work(work)
        silences, job.silences = job.silences, []
        job.monitor.add_silences(silences)
        for batch in job.take_waiting():
            job.monitor.add(*batch)
        job.monitor.add_workers(job.workers.take(), job.ranks)

    def _new_monitor(self, job: WatchedJob) -> JobMonitor:
        longest = self._references.longest_seconds(job.workload)
        own = self._applications.get(job.app, {})
        alpha, margin = own.get("alpha", self.alpha), own.get("margin", self._margin)
        nodes = JobNodes(job.nodes, self._imbalances.places_of(job.workload))
        workload, pace = (not job.is_unread and job.first_pace) or ("", None)
        if workload != job.workload and not job.is_unread:
            with self.quarantine.guard("paces"):
                pace = self._references.pace(job.workload)
        share = FIRST_SHARE * (1 - FIRST_SHARE) ** job.judgings
        return JobMonitor(pace, share * alpha, margin, longest, job.kernel, nodes)

    def _score(self, name: str, job: WatchedJob, now: float) -> Output:
        job.monitor = monitor = job.monitor or self._new_monitor(job)
        if job.ended:
            self._judge_runtime(job, monitor)
        self._find_coincidences(name, job, monitor)
        found = self.remaining(job, now)
        left = found.left.expected_seconds if found is not None else math.nan
        return score_output(name, job, monitor, self._references, now, left=left)

    def _find_coincidences(self, name: str, job: WatchedJob, monitor: JobMonitor) -> None:
        """Find coincidences with the latest alarm, again if other members are blamed."""
        alarms, blamed = monitor.evidence.alarms, monitor.cause.members
        if not alarms or job.explained == (len(alarms), blamed):
            return
        job.explained = len(alarms), blamed
        onset_at = monitor.evidence.onset_at or alarms[-1].onset_at
        near = (
            Neighbour(other, frozenset(one.hosts), at)
            for at, other in self._surroundings.near(onset_at)
            if other != name and (one := self.jobs.get(other)) is not None
        )
        job.coincidences = self._surroundings.find(job.workload, job.hosts, blamed, onset_at, near)

    def _finish(self, name: str, job: WatchedJob, now: float) -> None:
        cause = job.monitor.cause if job.monitor is not None else Cause()
        self._record(JobVerdict(name, job.workload, cause.kind, cause.members, job.hosts, job.state, job.excess))
        self.finished[job.state] += 1
        self._close(name)
        self._progress.end(name, job.exit_status, job.points)
        lru.store(self.ended, name, (job, now), MAX_JOBS)

    def _close(self, name: str) -> WatchedJob | None:
        """Watch a job no further; what was watched of it."""
        lru.store(self._judged, name, None, MAX_JUDGED)
        return self.jobs.pop(name)

    def _record(self, verdict: JobVerdict) -> None:
        """Record the evidence of an ended job about its nodes."""
        # On one node the members are ranks, which are not comparable between jobs.
        if verdict.cause in BLAMING and len(verdict.hosts) > 1 and self._is_new_evidence(verdict.job):
            self.nodes.add(verdict.hosts, verdict.members, verdict.excess)
        self._disturbances.add(_application(verdict.workload), verdict.excess)
        # The first run of a workload has nothing to be compared with, and is the history of the second one.
        is_healthy = verdict.state in ("healthy", "unknown")
        self._imbalances.add_verdict(verdict.job, verdict.workload, is_healthy=is_healthy)
        self._surroundings.ended(verdict.workload, verdict.hosts)


def _application(workload: str) -> str:
    """Cluster and program of a workload."""
    return workload.partition("@")[0]
