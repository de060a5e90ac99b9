"""One schedule: a facility, what is done to it, and what must hold afterwards. All of it follows from a seed."""

from __future__ import annotations

import itertools
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from barograph_agent.system.system import System
from simulation.database import SimulatedDatabase
from simulation.facility import SPOOLS, Facility, JudgingTally, Node, Shard, SimulatedJob, deliver
from simulation.lake import Failures
from simulation.learned import KEYS, ON_DEMAND, LearnedRows, first_paces, last_rows, rows_to_read
from simulation.machine import Stuck
from simulation.recognition import AskingJobs, AssigningTally
from simulation.reference import PER_SECOND, SECONDS, alarms_without_pipeline, healthy_history

SHARDED = 3
"""One of so many schedules has two shards."""
WITH_LAKE = 2
"""One of so many schedules has a lake."""
LOSES_DISK = 4
"""In one of so many schedules a collector loses its disk, with a lake."""
ASSIGNS, ASSIGNED = 5, 3
"""In one of so many schedules, of this remainder, the modeler's recognition follows the log, if alerts does not."""
FAILED_QUERIES = 0.0, 0.0, 0.05, 0.0, 0.3
"""Shares of the questions in SQL that alerts has no answer to, until calm, by the remainder of the seed."""
DISTURBED_SECONDS = 8.0
CALM_SECONDS = 300.0
"""Within this time after the last disturbance everything must be delivered."""


class Broken(AssertionError):
    """An invariant does not hold. The text has the seed, which replays the schedule."""


@dataclass
class Report:
    """What a schedule did. done: the disturbances, with their times."""

    seed: int
    done: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    stored: int = 0
    dropped: int = 0
    lost: int = 0
    """With disks of collectors, after they were acknowledged."""
    sealed: int = 0
    seconds: float = 0.0
    steps: int = 0


class Schedule:
    """Runs one schedule."""

    def __init__(self, seed: int, root: Path) -> None:
        self.report = Report(seed)
        self.facility = facility = Facility(
            seed, root, shards=2 if seed % SHARDED == 0 else 1, lake=seed % WITH_LAKE == 0
        )
        self.machine = facility.machine
        self.random = facility.machine.random
        self._disks: list[Any] = []
        facility.judged = self.random.random() < 0.25
        self._given = 0
        for shard in facility.shards if facility.judged else ():
            self._given = SimulatedDatabase(shard.tables).commit(healthy_history(), {}, 0)
        for shard in facility.shards if facility.lake is not None else ():
            if self.random.random() < 0.5:
                shard.put_journal_apart()
        if facility.judged:
            LearnedRows(facility.watcher, facility.tables, seed)
            facility.failed_queries = FAILED_QUERIES[seed % len(FAILED_QUERIES)]
        facility.disturb = self._disturb_disk
        self._fails = self._slow = 0.0
        for number in range(self.random.choice([1, 1, 2])):
            self.machine.at(self.random.random() * 2, lambda number=number: self._begin(number))
        self._nodes: list[Node] = [facility.node(self.random.choice([0.0, 0.0, -3.0, 40.0, -40.0]))]
        if self.random.random() < 0.3:
            self._nodes.append(facility.node(0.0))
        self._asking: AskingJobs | None = None
        if not facility.judged and len(facility.shards) == 1 and seed % ASSIGNS == ASSIGNED:
            facility.make_tally = self._assigns
            self._asking = AskingJobs(self._nodes[0], seed)

    def run(self) -> Report:
        """Run it. Raises Broken."""
        machine, facility = self.machine, self.facility
        try:
            self._plan()
            machine.run(DISTURBED_SECONDS)
            self._calm()
            machine.run(CALM_SECONDS, until=self._is_quiet)
            deliveries = [node.start("delivery", partial(deliver, facility.collectors)) for node in self._nodes]
            machine.run(CALM_SECONDS, until=lambda: all(self._over(one) for one in deliveries))
            self._predict_no_more()
            machine.run(60.0, until=lambda: self._has_followed() and not self._held() and not self._lake_lacks())
            self._check()
        except Stuck as error:
            raise self._broken(str(error)) from None
        self.report.seconds, self.report.steps = machine.seconds, machine.steps
        return self.report

    def _assigns(self, system: System) -> AssigningTally:
        return AssigningTally(self.facility.may_resend, self.random)

    def close(self) -> None:
        """End all processes."""
        self.facility.end()

    def _begin(self, number: int) -> None:
        node, judged = self.random.choice(self._nodes), self.facility.judged
        job = SimulatedJob(
            node,
            f"job{self.report.seed}x{number}",
            ranks=1 if judged else self.random.choice([1, 2]),
            seconds=SECONDS if judged else self.random.choice([0.3, 2.0, 6.0]),
            per_second=PER_SECOND if judged else self.random.choice([5, 40, 100]),
            capacity=self.random.choice([64, 1024]),
        )
        if self.random.random() < 0.3:
            job.dies_at = self.random.randrange(1, 200)
            self._note("sidecar dies at a call of the disk", f"job{number}, call {job.dies_at}")
        if self.random.random() < 0.15:
            job.spool_bytes = 8192
        if self.random.random() < 0.1:
            job.silent_seconds = self.random.choice([4.0, 12.0, 60.0])
            self._note("program is silent", f"job{number} for {job.silent_seconds} s")
        self.facility.jobs.append(job)

    def _plan(self) -> None:
        """Choose disturbances."""
        random, facility = self.random, self.facility
        weather = facility.wire.weather
        weather.delay = random.choice([0.001, 0.001, 0.05, 0.5])
        if random.random() < 0.3:
            weather.loss = random.choice([0.01, 0.1, 0.3])
            self._note("messages are lost", f"with probability {weather.loss}")
        if random.random() < 0.2:
            weather.repeats = random.choice([0.01, 0.2])
            self._note("messages are repeated", f"with probability {weather.repeats}")
        if random.random() < 0.2:
            weather.reorders = random.choice([0.01, 0.2])
            self._note("messages change their order", f"with probability {weather.reorders}")
        if random.random() < 0.3:
            self._let_collector_die()
        if random.random() < 0.2:
            self._fails = random.choice([0.01, 0.2])
            self._note("syncs fail", f"with probability {self._fails}")
        if random.random() < 0.3:
            self._slow = random.choice([0.02, 1.0, 4.0])
            self._note("syncs are slow", f"up to {self._slow} s")
        if random.random() < 0.15:
            for shard in facility.shards:
                shard.tables.fails = lambda: random.random() < 0.1
            self._note("commits fail", "one of ten")
        acts: list[Callable[[], None]] = [
            self._kill_sidecar,
            self._kill_sidecar,
            self._kill_collector,
            self._kill_collector,
            self._stop_collector,
            self._stop_collector,
            self._kill_follower,
            self._kill_launcher,
            self._separate,
            self._separate,
            self._reset,
            self._fill,
            self._lose_power,
            self._lose_server_power,
        ]
        if facility.lake is not None:
            acts += [self._take_lake_away, self._lose_disk]
            self._disturb_lake(facility.lake.failures)
            if self.report.seed % LOSES_DISK == 0:
                self.machine.at(random.random() * DISTURBED_SECONDS, self._lose_disk)
        kills = [1, 2, 3] if self._asking is not None else [0, 1, 2] if facility.judged else [0]
        for _ in range(random.choice(kills)):
            self.machine.at(random.random() * DISTURBED_SECONDS, self._kill_follower)
        for _ in range(random.choice([0, 1, 2, 3, 6])):
            act = random.choice(acts)
            self.machine.at(random.random() * DISTURBED_SECONDS, act)

    def _note(self, what: str, of: str = "") -> None:
        self.report.done.append(f"{self.machine.seconds:7.3f} {what} {of}".rstrip())
        self.report.kinds[what] += 1

    def _disturb_disk(self, disk: Any) -> None:
        disk.fails, disk.slow_seconds = self._fails, self._slow
        self._disks.append(disk)

    def _shard(self) -> Shard:
        """One of the collectors."""
        shards = self.facility.shards
        return self.random.choice(shards) if len(shards) > 1 else shards[0]

    def _let_collector_die(self) -> None:
        shard = self._shard()
        shard.dies_at = self.random.randrange(1, 100)
        self._note("collector dies at a call of the disk", f"{shard.endpoint}, call {shard.dies_at}")
        self.machine.at(self.random.random() * 5, shard.process.kill)

    def _kill_sidecar(self) -> None:
        jobs = [job for job in self.facility.jobs if job.sidecar is not None and job.sidecar.lives]
        if jobs:
            job = self.random.choice(jobs)
            self._note("kill sidecar", f"of {job.key}")
            assert job.sidecar is not None
            job.sidecar.kill()

    def _kill_collector(self) -> None:
        shard = self._shard()
        self._note("kill collector", shard.endpoint)
        shard.process.kill()

    def _stop_collector(self) -> None:
        shard = self._shard()
        self._note("stop collector", shard.endpoint)
        shard.stop()

    def _kill_follower(self) -> None:
        self._note("kill follower")
        self._shard().follower.kill()

    def _kill_launcher(self) -> None:
        jobs = [job for job in self.facility.jobs if job.launcher.lives]
        if jobs:
            job = self.random.choice(jobs)
            self._note("kill launcher", f"of {job.key}")
            job.launcher.kill()

    def _separate(self) -> None:
        node, seconds = self.random.choice(self.facility.nodes), self.random.choice([0.5, 3.0, 10.0])
        self._note("separate a node", f"{node.name} for {seconds} s")
        self.facility.wire.separate(node.name, seconds)

    def _reset(self) -> None:
        node = self.random.choice(self.facility.nodes)
        self._note("reset connections", f"of {node.name}")
        self.facility.wire.reset(node.name)

    def _fill(self) -> None:
        node, seconds = self.random.choice(self.facility.nodes), self.random.choice([0.5, 3.0, 10.0])
        room = self.random.choice([0, 100, 5000])
        node.platters.capacity = node.platters.used + room
        self._note("fill a disk", f"of {node.name} but for {room} bytes for {seconds} s")
        self.machine.at(seconds, lambda: setattr(node.platters, "capacity", 2**40))

    def _lose_power(self) -> None:
        node = self.random.choice(self._nodes)
        self._note("power lost on a node", node.name)
        node.lose_power()

    def _lose_server_power(self) -> None:
        server = self._shard().server
        self._note("power lost on the server", server.name)
        server.lose_power()

    def _lose_disk(self) -> None:
        lake, shard, seconds = self.facility.lake, self._shard(), self.random.choice([1.0, 3.0, 10.0])
        assert lake is not None
        # What was there before the schedule has no message in the journal.
        if not shard.is_kept_running or lake.position(shard.tables.name) < self._given:
            return
        self._note(
            "disk lost" + " but the journal" * shard.is_apart, f"by {shard.endpoint}, restored {seconds} s later"
        )
        shard.lose_disk(seconds)

    def _disturb_lake(self, failures: Failures) -> None:
        failures.seconds = self.random.choice([0.0, 0.05, 0.3])
        if self.random.random() < 0.5:
            failures.lost = self.random.choice([0.1, 0.5])
            self._note("ends of writes to the lake are not known", f"with probability {failures.lost}")
        if self.random.random() < 0.4:
            failures.refused = self.random.choice([0.01, 0.1])
            self._note("calls of the lake are refused", f"with probability {failures.refused}")

    def _take_lake_away(self) -> None:
        lake, seconds = self.facility.lake, self.random.choice([0.5, 5.0, 20.0])
        assert lake is not None
        self._note("the lake is away", f"for {seconds} s")
        lake.is_away = True
        self.machine.at(seconds, lambda: setattr(lake, "is_away", False))

    def _calm(self) -> None:
        """End all disturbances; whatever is down is started again."""
        facility = self.facility
        self._note("calm")
        facility.wire.calm()
        for shard in facility.shards:
            shard.tables.fails = lambda: False
            shard.dies_at = 0  # of one that is started later, after its disk was lost
        if facility.lake is not None:
            facility.lake.failures, facility.lake.is_away = Failures(), False
        self._fails = self._slow = facility.failed_queries = 0.0
        for disk in self._disks:
            disk.fails = disk.slow_seconds = 0.0
            disk.dies_at = 0
        for node in facility.nodes:
            node.platters.capacity = 2**40

    def _over(self, process: Any) -> bool:
        return not process.lives or all(thread.done for thread in process.threads)

    def _is_quiet(self) -> bool:
        """Whether all that was begun has ended."""
        jobs = self.facility.jobs
        if any(shard.collector is None for shard in self.facility.shards):
            return False  # its log is being made again
        # What belongs to a program that still runs, without launcher and sidecar, is no orphan yet.
        if not all(self._over(program) for node in self._nodes for program in node.variables.values()):
            return False
        return all(self._over(job.launcher) and (job.sidecar is None or self._over(job.sidecar)) for job in jobs)

    def _heads(self) -> dict[tuple[str, str], int]:
        """The last offset of each table that is followed and has rows, by the name of the log and table."""
        return {
            (shard.name, table): shard.tables.rows[table][-1]["log_offset"][-1].as_py()
            for shard in self.facility.shards
            for table in shard.tally.tables
            if shard.tables.rows[table]
        }

    def _has_followed(self) -> bool:
        """Whether the follower has read everything, and the collector what it has written."""
        return all(map(self._has_read, self.facility.shards)) and self._is_read()

    def _has_read(self, shard: Shard) -> bool:
        runner, source = shard.runner, shard.source
        is_idle = runner is not None and runner.idle and source is not None and not source.is_behind
        return is_idle and shard.follower.lives

    def _is_read(self) -> bool:
        last = {key: at for shard in self.facility.shards for key, at in shard.tally.last.items()}
        skipped = {key: at for shard in self.facility.shards for key, at in shard.tally.skipped.items()}
        # The lost log may have had later rows, which were read.
        restored = {(one.name, *row) for one in self.facility.shards if one.loses_rows for row in one.restored}
        return all(
            last.get(key, 0) == head
            or skipped.get(key, 0) >= head
            or ((*key, head) in restored and last.get(key, 0) > head)
            for key, head in self._heads().items()
        )

    def _held(self) -> str:
        """What a collector has in memory: bytes, rows, unacknowledged messages."""
        for collector in (shard.collector for shard in self.facility.shards if shard.collector is not None):
            receiver, rows = collector._receiver, collector.counters.queue_rows
            held = (receiver._queued_bytes, rows, receiver.streams.under_way)
            if any(held):
                return "{} bytes, {} rows, {} messages".format(*held)
        return ""

    def _predict_no_more(self) -> None:
        """Let no row of `predictions` follow: of a job whose end was lost with a disk they never end, and neither
        collector nor lake would ever have all rows."""
        for shard in self.facility.shards:
            if isinstance(shard.tally, JudgingTally) and shard.loses_rows:
                shard.tally.predicts = False

    def _broken(self, text: str) -> Broken:
        done = "\n  ".join(self.report.done)
        return Broken(f"seed {self.report.seed}: {text}\n  {done}")

    def _check(self) -> None:
        facility = self.facility
        if not all(map(_is_of_disk, facility.failures)):
            raise self._broken(f"a daemon failed: {facility.failures[:3]}")
        for tally in facility.tallies:
            if tally.wrong:
                raise self._broken(f"a follower was told wrong: {tally.wrong[:3]}")
        self._check_memory()
        self._check_lake()
        for shard in facility.shards:
            self._check_reads(shard)
        blocks, runs, events, scores = (facility.all(name) for name in ("blocks", "runs", "events", "scores"))
        for job in facility.jobs:
            self._check_job(job, blocks, runs, events)
        self._check_assignments()
        known = facility.all("jobs")["job"]
        finals = [job for job, final in zip(scores["job"], scores["final"], strict=True) if final]
        for job in runs["job"]:
            # A run whose row of `jobs` was dropped has none.
            verdict = {1 if not facility.judged or job in known else 0}
            if (verdicts := finals.count(job)) not in verdict | ({0, 1} if job in facility.loss.touched else set()):
                raise self._broken(f"{job} has {verdicts} final scores")
        asked = facility.all("works")["job"]
        if len(set(asked)) < len(asked):
            raise self._broken("what was asked for is told twice")
        self._check_silences()
        alarms = {job for job, at in zip(scores["job"], scores["alarmed_at"], strict=True) if at > 0}
        alarms -= facility.loss.touched
        given = (alarms_without_pipeline(shard.tables) for shard in facility.shards)
        if alarms and (caused := alarms - set().union(*given)):
            raise self._broken(f"alarms that its rows do not give: {sorted(caused)}")
        if not self._has_followed():
            last = [shard.tally.last for shard in facility.shards]
            raise self._broken(f"followers have read up to {last}, expected {self._heads()}")

    def _check_reads(self, shard: Shard) -> None:
        """The follower has read all rows that it is to read, also of before its start."""
        tally = shard.tally
        if (start := tally.starts.get(shard.name)) is None:
            wanted = {table: set(shard.tables.all(table)["log_offset"]) for table in tally.tables}
        else:
            wanted = rows_to_read(shard.tables, start)
        for table, offsets in wanted.items():
            read = tally.read[shard.name, table]
            if table in KEYS and read - set(shard.tables.all(table)["log_offset"]):
                continue  # what was the last row of its key then was lost with a disk since
            if lacks := offsets - read:
                raise self._broken(f"a follower has not read rows {sorted(lacks)[:5]} of {table} of {shard.name}")
        if not isinstance(tally, JudgingTally) or start is None:
            return
        self._check_learned(tally, shard)
        for job, at in first_paces(shard.tables, start, start.offsets["paces"]).items():
            if tally.first_paces.get(job, 0) < at:
                raise self._broken(f"{job} is not compared with the pace there was when it began, of row {at}")

    def _check_learned(self, tally: JudgingTally, first: Shard) -> None:
        """Of each workload that jobs needed the scorer has all that counts, and of others nothing."""
        for table in ON_DEMAND:
            read = tally.read[first.name, table]
            if read - set(first.tables.all(table)["log_offset"]):
                continue  # with a disk rows were lost that count
            for workload, learned in tally.scorer._references._learned.items():
                wanted = last_rows(first.tables, table, workload)
                if wanted - read or learned.offsets.get(table, 0) != max(wanted, default=0):
                    found = f"{sorted(wanted - read)[:5]}, the last one is {learned.offsets}"
                    raise self._broken(f"of {workload} rows of {table} were not read: {found}")

    def _check_assignments(self) -> None:
        """Jobs that ask for the same are in one group, and others are not, whatever was restarted when."""
        if self._asking is None:
            return
        known = set(self.facility.all("jobs")["job"]) & set(self.facility.all("works")["job"])
        # What was read of rows that were lost with a disk is in groups of the log.
        touched = self.facility.loss.touched
        if wrong := self._asking.wrong(self.facility.all("assignments"), known) if not touched else "":
            raise self._broken(wrong)

    def _lake_lacks(self) -> str:
        """What the lake has yet to get."""
        if self.facility.lake is None:
            return ""
        return ", ".join(
            f"{shard.tables.name}: {shard.tables.sealed} of {last}"
            for shard in self.facility.shards
            if shard.is_kept_running and shard.tables.sealed < (last := shard.tables.last)
        )

    def _check_lake(self) -> None:
        """Each row of each log is in the lake once, up to its position."""
        lake = self.facility.lake
        if lake is None:
            return
        if lake.wrong:
            raise self._broken(f"the lake: {lake.wrong[:3]}")
        if lacks := self._lake_lacks():
            raise self._broken(f"the lake has rows of {lacks}")
        for shard in self.facility.shards:
            position = lake.position(shard.tables.name)
            listed = {file.name(shard.tables.name) for file in shard.tables.files}
            if lake.listed.get(shard.tables.name, frozenset()) != listed:
                raise self._broken(f"the catalog lists other files of {shard.tables.name} than its log")
            for table, parts in shard.tables.rows.items():
                logged = [offset for part in parts for offset in part["log_offset"].to_pylist() if offset <= position]
                if (found := lake.offsets(table, shard.tables.name)) != logged:
                    raise self._broken(f"{shard.tables.name}, {table}: the lake has {len(found)} of {len(logged)} rows")
                self.report.sealed += len(found)

    def _check_silences(self) -> None:
        """No sidecar reports a silence that its program did not have, whatever happened to either."""
        silences = self.facility.all("silences")
        had = {job.key: job.longest_silence for job in self.facility.jobs}
        for job, since, at in zip(silences["job"], silences["since"], silences["time"], strict=True):
            if at - since > had[job] + 0.001:
                raise self._broken(
                    f"{job}: a silence of {at - since:.3f} s, there was none of more than {had[job]:.3f} s"
                )

    def _check_memory(self) -> None:
        facility = self.facility
        if not all(shard.process.lives for shard in facility.shards):
            raise self._broken("the collector is not running")
        if held := self._held():
            raise self._broken(f"the collector still holds {held}")
        for node in facility.nodes:
            # The power was lost before there was a plan, or after everything else was deleted.
            fine = ("plan.json.part", "lock")
            left = [str(path) for path in node.platters.names if path.is_relative_to(SPOOLS) and path.name not in fine]
            if left and node not in [shard.server for shard in facility.shards]:
                raise self._broken(f"{node.name} still has {left}")

    def _check_job(self, job: SimulatedJob, blocks: Any, runs: Any, events: Any) -> None:
        """Every interval that the shim counted is stored once, or counted as lost."""
        ranges = sorted(
            (world, first, count)
            for name, world, first, count in zip(
                blocks["job"], blocks["world"], blocks["first_index"], blocks["count"], strict=True
            )
            if name == job.key
        )
        for (world, first, count), (other, second, _) in itertools.pairwise(ranges):
            if world == other and first + count > second:
                raise self._broken(f"{job.key}: intervals {second} of world {world} are stored twice")
        stored = sum(count for _, _, count in ranges)
        home = self.facility.home(job.key)
        read = home.tally.intervals.get(job.key, 0)
        # Those that were read of a log that is lost may be gone, or have come again.
        has_begun = job.key in self.facility.all("jobs")["job"]
        is_less = read < stored and home.tally.must_read(job.key, has_begun=has_begun)
        if is_less or (read > stored and not any(one.loses_rows for one in self.facility.shards)):
            raise self._broken(f"{job.key}: a follower has read {read} of {stored} intervals")
        ends = [lost for name, lost in zip(runs["job"], runs["dropped"], strict=True) if name == job.key]
        columns = (events[name] for name in ("source", "kind", "rows", "detail"))
        dropped = sum(
            rows
            for source, kind, rows, reason in zip(*columns, strict=True)
            if kind == "dropped" and source == job.stream and reason != "forgotten"
        )
        loss = self.facility.loss
        self.report.stored += stored
        self.report.dropped += dropped + sum(ends)
        if len(ends) > 1:
            raise self._broken(f"{job.key}: {len(ends)} ends")
        if job.node.lost_power or not job.shims:
            return
        if not dropped and len(ends) != 1 and job.key not in loss.ended:
            raise self._broken(f"{job.key}: no end, and no row was dropped")
        seen = job.shims[0].seen
        lost = seen - stored - sum(ends) - dropped
        may_be_lost = loss.intervals[job.key] + loss.dropped[job.key] + loss.dropped[job.stream]
        self.report.lost += lost if ends else 0
        if ends and not 0 <= lost <= may_be_lost:
            raise self._broken(
                f"{job.key}: {seen} intervals counted, {stored} stored, {sum(ends)} lost in rings, {dropped} dropped,"
                f" at most {may_be_lost} may be lost with a disk"
            )


def run(seed: int) -> Report:
    """Run the schedule of a seed. Raises Broken."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    root = Path(tempfile.mkdtemp(prefix="simulation-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        schedule = Schedule(seed, root)
        try:
            return schedule.run()
        finally:
            schedule.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)
        logging.disable(disabled)


def _is_of_disk(failure: str) -> bool:
    """Whether a disk that failed has ended a collector as it opened its database or journal: systemd starts it again.

    A journal that is another log's is no failure of a disk.
    """
    if "cannot open the journal of" in failure:
        return "expected" not in failure
    return "the simulated disk of the database" in failure
