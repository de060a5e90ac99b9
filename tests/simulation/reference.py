"""What healthy runs of the simulated program are like: learned once, by the learner, from undisturbed runs."""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path

from barograph_agent.protocol import wire
from barograph_alerts.main import TABLES
from barograph_alerts.processor import Scorer
from barograph_collector.daemon.runner import Output
from barograph_collector.storage import messages
from barograph_collector.storage.rows import Entry
from barograph_modeler.learning.learner import Learner
from simulation.database import SimulatedDatabase, Tables
from simulation.facility import Facility, SimulatedJob

RUNS = 6
SECONDS = 5.0
PER_SECOND = 40.0


@functools.cache
def healthy_history() -> tuple[Entry, ...]:
    """Rows of `bands` and `paces`."""
    root = Path(tempfile.mkdtemp(prefix="reference-"))
    try:
        facility = Facility(0, root)
        node = facility.node(0.0)
        for number in range(RUNS):
            facility.jobs.append(
                SimulatedJob(node, f"past{number}", ranks=1, seconds=SECONDS, per_second=PER_SECOND, capacity=1024)
            )
            facility.machine.run(30.0)
        facility.kept_running = False
        for one in facility.nodes:
            for process in one.processes:
                process.kill()
        facility.machine.run(0.0)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    learner = Learner(clock=lambda: 0.0)
    database = SimulatedDatabase(facility.tables)
    found: list[Entry] = []
    for table in ("jobs", "blocks", "runs", "scores"):
        learner.observe(table, database.read(table, 0, 10**6).columns, facility.server.clock.now())
    for _ in range(5):
        for output in learner.step(facility.server.clock.now() + 1000.0):
            found.append(checked(output))
    return tuple(found)


def checked(output: Output) -> Entry:
    """Rows as the collector stores them."""
    message = wire.append("reference", 1, output.table, output.rows, output.columns)
    item = messages.appended(message, b"", 0.0)
    assert item.refusal is None, item.refusal
    return item


def alarms_without_pipeline(tables: Tables) -> set[str]:
    """Jobs that ever alarm where a scorer reads the same rows in the order of the log, and steps after each."""
    scorer, database = Scorer(), SimulatedDatabase(tables)
    pages = {table: database.read(table, 0, 10**6) for table in TABLES}
    now = float(max(pages["runs"].columns["ended_at"], default=0.0))
    offsets = [(int(at), table, row) for table in TABLES for row, at in enumerate(pages[table].columns["log_offset"])]
    alarmed = set()
    for _, table, row in sorted(offsets):
        scorer.observe(table, {name: values[row : row + 1] for name, values in pages[table].columns.items()}, now)
        for output in scorer.step(now):
            if output.table == "scores" and output.columns["alarmed_at"] == output.columns["alarmed_at"]:
                alarmed.add(output.columns["job"])
    return alarmed
