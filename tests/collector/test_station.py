"""A station sends the rows of many outputs in few messages, and none of them changed."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_collector.daemon.runner import ROWS, TEXT_ROWS, Output, merged

SIZES = st.lists(st.integers(1, 90), max_size=12)


def event(number: int, rows: int) -> Output:
    """Rows of a table with text, columns given as scalars and as lists."""
    numbers = np.arange(rows) + 1000 * number
    return Output(
        "events", rows, {"source": "s", "kind": ["k"] * rows, "rows": numbers, "detail": f"{number}", "at": 0.5}
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
