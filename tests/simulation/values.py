"""A hostile agent: rows of every table with values that are extreme, missing or contradict each other.

`python -m simulation.values --rounds 10000 --seed 1`. Rows that the collector accepts go to modeler and scorer, what
these write goes to each other, and their metrics are rendered. No exception may leave them, not even into quarantine,
and no warning of numpy, which is an error here.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import multiprocessing
import os
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry, generate_latest

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES, Domain, Json, Kind
from barograph_alerts.export.exporter import AlertsExporter
from barograph_alerts.main import TABLES as ALERTS_TABLES
from barograph_alerts.processor import Scorer
from barograph_collector.daemon.runner import Output
from barograph_collector.storage import messages
from barograph_collector.storage.rows import Entry
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.library import PredictorLibrary
from barograph_modeler.learning.learner import Learner
from barograph_modeler.main import TABLES as MODELER_TABLES
from barograph_modeler.processor import ModelerProcessor
from barograph_modeler.serving.exporter import ModelerExporter
from helpers.executor import Inline
from helpers.features import inline_features

NOW: Final = 1_764_000_000.0
WRITTEN: Final = (
    "jobs", "works", "signatures", "sites", "blocks", "node_blocks", "workers", "phases", "silences", "pressures",
    "features", "runs", "nodes", "sidecars", "events",
)  # fmt: skip
MAX_TABLE_ROWS: Final = 12
MAX_BLOCKS: Final = 200
ROUNDS_PER_SERVICE: Final = 40
NAMES: Final = ("a", "0", "-", "@", "a/b.c", "x" * 128, "none", "nan", "+", "..", "https://x", "other-user")
STRANGE_JOBS: Final = ("j", "/" * 128, "lab/1.0.0")
TEXTS: Final = (
    "", " ", "{}", "[]", "null", "0", "nan", "NaN", "Infinity", '"x"', "<script>alert(1)</script>", "\0", "\n", "\r\n",
    "\x1b[2J", "\u202e", "\U0001f600" * 50, "%s%n", "' OR 1=1 --", "x" * 65536, "[" * 60000, '{"a":' * 10000, "]", "{",
    '{"\\ud800": "\\udfff"}', '{"a": NaN}', '{"a": 1e999}', f'{{"a": {"9" * 5000}}}', '{"": ""}', '{"a": {"b": "c"}}',
    '["a", 1, null, {"b": []}]', '[{"word": -1, "digest": "", "bytes": -1}]', '[{"word": 1e300}]', '{"mpi": 1}',
    '[{"word": 99999999999999999999, "digest": "a", "bytes": 0}]', '{"n": "1", "grid": "2x2"}', "a < b < c", "a=b=c",
)  # fmt: skip
"""Texts of columns, most of them JSON in name only."""


class Hostile:
    """Makes appends of a hostile agent. Seeded."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._round = 0
        self._classes = [self.random.randrange(2**64) for _ in range(3)]

    def appends(self) -> list[wire.Append]:
        """The messages of one round: some tables, in any order, now and then without the row that begins a job."""
        self._round += 1
        self._wildness = self.random.choice([0.0, 0.002, 0.02, 0.3, 1.0])
        self._factor = self.random.choice([1.0, 1.0, 1.0, 1.5, 1e-6, 1e6])
        tables = [table for table in WRITTEN if self.random.random() < 0.8]
        if self.random.random() < 0.3:
            self.random.shuffle(tables)
        return [self._append(table) for table in tables]

    def _append(self, table: str) -> wire.Append:
        most = MAX_BLOCKS if table in ("blocks", "node_blocks") else MAX_TABLE_ROWS
        single = table in ("jobs", "works", "runs") or self.random.random() < 0.2
        rows = 1 if single else self.random.randint(1, most)
        wild = self._wildness
        job = self._job()
        columns: dict[str, Any] = {}
        for name, kind in TABLES[table].columns.items():
            domain = TABLES[table].domains.get(name)
            about = TABLES[table].json.get(name)
            if name in ("job", "source") and self.random.random() < 0.9:
                values = [job] * rows
            elif about is not None and self.random.random() < 0.97:
                values = self.random.choices(_JSON[about], k=rows)
            else:
                values = [self._value(name, kind, domain, wild) for _ in range(rows)]
            columns[name] = values if kind.is_text else np.array(values, kind.dtype)
        return wire.append("hostile", 1, table, rows, columns)

    def _job(self) -> str:
        if self.random.random() < 0.03:
            return self.random.choice(STRANGE_JOBS)
        return f"lab/{self._round // 2 + self.random.choice([0, 0, 0, 1])}.0.0"

    def _value(self, name: str, kind: Kind, domain: Domain | None, wild: float) -> Any:
        is_wild = self.random.random() < wild
        if kind is Kind.NAME:
            if name in ("job", "source"):
                return self._job()
            return self.random.choice(NAMES) if is_wild else _USUAL_NAMES.get(name, "app")
        if kind is Kind.TEXT:
            return self.random.choice(TEXTS) if is_wild else _USUAL_TEXTS.get(name, "{}")
        if kind is Kind.U64:
            return self.random.choice([0, 2**64 - 1]) if is_wild else self.random.choice(self._classes)
        assert domain is not None, name
        return self.random.choice(_extremes(domain)) if is_wild else self._usual(name, domain)

    def _usual(self, name: str, domain: Domain) -> float:
        if name in ("exit_status", "world"):
            return 0
        if domain.kind is Kind.I64:
            return max(self.random.choice([0, 1, 1, 2, 2, 4]), int(domain.low))
        if domain.high < 1e10:
            return NOW + self.random.uniform(-100, 100)
        if name == "runtime_seconds":
            return self._factor * self.random.lognormvariate(3, 0.05)
        return self._factor * self.random.lognormvariate(-3, 0.3)


@functools.cache
def _extremes(domain: Domain) -> list[float]:
    """Values at and near the ends of a domain, and those that have broken programs before."""
    low, high = domain.low, domain.high
    found = [low, high, 0, 1, 2, high / 2, low + 1, high - 1, NOW, NOW + 1, 2**31, 2**53]
    if domain.kind is Kind.F64:
        found += [1e-300, 5e-324, 1e-9, 1e300, -1e-9, -1.0, float(np.nextafter(high, 0.0)), -0.0]
        found += [float("nan")] * (3 * domain.unknown)
    inside = [value for value in found if low <= value <= high or math.isnan(value)]
    return [float(value) if domain.kind is Kind.F64 else int(value) for value in inside]


_MAP: Final = (
    "",
    "{}",
    '{"n": "1"}',
    '{"": ""}',
    '{"mpi": "\\u0000", "x": "\\n"}',
    json.dumps({"x" * 999: "<b>" * 999}),
)
_JSON: Final = {
    Json.MAP: _MAP,
    Json.TEXTS: ("", "[]", '["a"]', '["a=b", "", "\\u202e"]', json.dumps(["x"] * 3000)),
    Json.NUMBERS: (
        "", "[]", "[0.0]", "[1]", "[-0.5, 0.1, 3.0]", "[0.5, 0.4, 0.1]", "[1e308, -1e308, 1e-320]", "[1, 0, -1]",
        json.dumps([0.001] * 3000),
    ),
    Json.OBJECTS: (
        "", "[]", "[{}]", '[{"word": -1, "digest": "", "bytes": -1}]', '[{"word": "a", "digest": 1, "bytes": ""}]',
        '[{"word": 9223372036854775807, "digest": "a", "bytes": 0}, {"word": 0, "digest": "a", "bytes": 1}]',
    ),
}  # fmt: skip
_USUAL_NAMES: Final = {"workload": "lab/app@2x1", "cluster": "lab", "app": "app", "user": "amara", "host": "n1"}
_USUAL_TEXTS: Final = {
    "words": "[]",
    "inputs": "[]",
    "params": '{"n": "10"}',
    "name": "cells",
    "account": "physics",
    "deviations": "[-0.1, 0.1]",
    "shares": "[0.5, 0.5]",
}


class Service:
    """Modeler and scorer over the rows that a collector accepts."""

    def __init__(self) -> None:
        self.modeler = ModelerProcessor(Learner(accept=2), Forecaster(PredictorLibrary(Inline())), inline_features())
        self.scorer = Scorer()
        self.modeler.quarantine.add = self.scorer.quarantine.add = _raise  # type: ignore[method-assign]
        self.registry = CollectorRegistry()
        self.registry.register(
            ModelerExporter(self.modeler.learner, self.modeler.forecaster, self.modeler.features, self.modeler.changes)
        )
        self.registry.register(AlertsExporter(self.scorer, lambda: self.now, labels=("user",)))
        self.offset = 0
        self.log: list[Entry] = []
        """All rows, of the agent and of the daemons."""
        self.now = NOW
        self.found: Counter[str] = Counter()

    def take(self, appends: Iterable[wire.Append]) -> None:
        """One round: rows, then steps until nothing is written, and a scrape now and then."""
        rows = [columns for append in appends if (columns := self._accept(append)) is not None]
        for _ in range(4):
            rows = self._step(rows)
        self.now += 20.0
        if self.offset % 7 == 0:
            generate_latest(self.registry)

    def _accept(self, append: wire.Append) -> tuple[str, dict[str, Any]] | None:
        frame = wire.encode(append)
        message = messages.decode([frame])
        assert isinstance(message, wire.Append)
        item = messages.appended(message, frame, self.now)
        self.found["refused" if item.refusal else "accepted"] += 1
        if item.refusal is not None:
            return None
        self.log.append(item)
        return append.table, self._columns(item.table, item.rows, item.columns)

    def _columns(self, table: str, rows: int, columns: Any) -> dict[str, Any]:
        kinds = TABLES[table].columns
        whole = {name: wire.spread(value, kinds[name], rows) for name, value in columns.items()}
        self.offset += rows
        return {"log_offset": np.arange(self.offset - rows, self.offset), **whole}

    def _step(self, rows: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
        outputs: list[Output] = []
        for processor, tables in ((self.modeler, MODELER_TABLES), (self.scorer, ALERTS_TABLES)):
            for table in tables:
                for name, columns in rows:
                    if name == table:
                        processor.quarantine.observe(table, columns, partial(self._observe, processor))
            outputs += processor.step(self.now)
        return [(output.table, self._written(output)) for output in outputs]

    def _observe(self, processor: Any, table: str, columns: Any) -> None:
        processor.observe(table, columns, self.now)

    def _written(self, output: Output) -> dict[str, Any]:
        """The rows as a reader of the log has them."""
        self.found[f"{output.table} written"] += output.rows
        append = wire.append("daemon", 1, output.table, output.rows, output.columns)
        append = msgspec.msgpack.decode(wire.encode(append), type=wire.Append)
        checked = wire.check(append.columns, TABLES[output.table].columns, output.rows)
        self.log.append(Entry(output.table, output.rows, checked))
        return self._columns(output.table, output.rows, checked)


def _raise(place: str, job: str, error: Exception) -> None:
    raise error


def play(seed: int, rounds: int = ROUNDS_PER_SERVICE) -> Counter[str]:
    """So many rounds before one service; what became of the rows. Raises what leaves a handler, with seed and round."""
    return serve(seed, rounds).found


def serve(seed: int, rounds: int = ROUNDS_PER_SERVICE) -> Service:
    """The service after so many rounds. Raises what leaves a handler, with seed and round."""
    service, agent = Service(), Hostile(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for number in range(rounds):
            try:
                service.take(agent.appends())
            except Exception as error:
                error.add_note(f"seed {seed}, round {number}")
                raise
    service.found["rounds"] += rounds
    return service


def _attempt(seed: int) -> Counter[str] | str:
    import traceback

    try:
        return play(seed)
    except Exception:
        return traceback.format_exc()


def main() -> int:
    """Run; returns the exit status."""
    parser = argparse.ArgumentParser(prog="simulation.values", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    found: Counter[str] = Counter()
    broken: dict[str, int] = {}
    seeds = range(options.seed, options.seed + -(-options.rounds // ROUNDS_PER_SERVICE))
    began = time.monotonic()
    with multiprocessing.get_context("fork").Pool(options.processes) as pool:
        for result in pool.imap_unordered(_attempt, seeds):
            if isinstance(result, str):
                key = "\n".join([line for line in result.splitlines() if line.startswith("  File")][-2:])
                if key not in broken:
                    print(result, flush=True)
                broken[key] = broken.get(key, 0) + 1
            else:
                found.update(result)
    print(f"{found['rounds']} rounds, {sum(broken.values())} services broken in {len(broken)} ways, ", end="")
    print(f"in {time.monotonic() - began:.0f} s: {json.dumps(dict(sorted(found.items())))}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
