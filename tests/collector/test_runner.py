"""A runner sends the rows of many outputs in few messages, none of them changed, and says when it has nothing to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_collector.client.follow import Follower
from barograph_collector.client.log_reader import LogUnavailable, Round
from barograph_collector.daemon.quarantine import Quarantine
from barograph_collector.daemon.runner import ROWS, TEXT_ROWS, Output, Runner, merged

SIZES = st.lists(st.integers(1, 90), max_size=12)


def event(number: int, rows: int) -> Output:
    """Rows of a table with text, columns given as scalars and as lists."""
    numbers = np.arange(rows) + 1000 * number
    return Output(
        "events", rows, {"source": "s", "kind": ["k"] * rows, "rows": numbers, "detail": f"{number}", "time": 0.5}
    )


def stream(number: int, rows: int) -> Output:
    """Rows of a table without."""
    columns: dict[str, Any] = dict.fromkeys(TABLES["runs"].columns, 1)
    return Output("runs", rows, {**columns, "job": "j", "runtime_seconds": np.full(rows, float(number))})


def rows(outputs: list[Output]) -> dict[str, list[tuple[Any, ...]]]:
    """What arrives in each table, row by row, after a way over the wire."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for output in outputs:
        kinds = TABLES[output.table].columns
        columns = wire.unpack(wire.pack(output.columns, kinds), kinds, output.rows)
        found.setdefault(output.table, []).extend(zip(*(list(column) for column in columns.values()), strict=True))
    return found


@given(SIZES, SIZES)
def test_rows_are_the_same_and_in_their_order_in_fewer_and_bounded_outputs(some, others):
    outputs = [event(number, size) for number, size in enumerate(some)]
    outputs += [stream(number, size) for number, size in enumerate(others)]
    fewer = list(merged(outputs))
    assert rows(fewer) == rows(outputs)
    for output in fewer:
        # One that was larger by itself stays whole.
        assert output.rows <= (TEXT_ROWS if output.table == "events" else ROWS) or any(output is one for one in outputs)
    assert sum(output.table == "runs" for output in fewer) == (1 if others else 0)


class Log:
    """A log of one row, which can be away, and what a runner does to it as a sink and as a processor."""

    def __init__(self) -> None:
        self.away = False
        self.idle = True
        self.done: list[str] = []
        self.quarantine = Quarantine()

    def read(self, *arguments: Any) -> Any:
        raise NotImplementedError

    def follow(self, offsets: Mapping[str, int], limit: int, seconds: float) -> Round:
        if self.away:
            raise LogUnavailable("away")
        return 1, {} if offsets["runs"] else {"runs": {"log_offset": np.array([1])}}

    def put(self, *output: Any) -> None:
        self.done.append("put")

    def pump(self) -> None:
        self.done.append("pump")

    def observe(self, table: str, columns: Mapping[str, Any], now: float) -> None:
        self.done.append(f"{table} at {now:g}")

    def step(self, now: float) -> list[Output]:
        self.done.append("step")
        return [event(1, 1)]


def test_a_runner_steps_after_each_round_or_once_without_one_and_only_pumps_while_the_log_is_away() -> None:
    log = Log()
    runner = Runner(log, Follower(log, ["runs"]), log, clock=lambda: 7.0)
    runner.step()
    assert log.done == ["pump", "runs at 7", "step", "put", "pump"]
    assert runner.idle
    log.done.clear()
    runner.step()
    assert log.done == ["pump", "step", "put", "pump"]
    log.done.clear()
    log.away = True
    runner.step()
    assert log.done == ["pump"]
    assert not runner.idle
    log.away = False
    runner.step()
    assert log.done == ["pump", "pump", "step", "put", "pump"]
    log.idle = False
    assert not runner.idle
