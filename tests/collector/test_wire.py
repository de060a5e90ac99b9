"""The protocol: what is on the wire stays readable, and what is no message is told apart from what is."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES, Kind, Table
from barograph_collector.storage import messages
from helpers.hostile_wire import mutations
from helpers.protocol import EXAMPLES, RECORDED, decode, recorded

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/protocol.md"
STREAM = "hostile"
MUTATIONS = 30_000
"""`make bench` tries a million."""


def test_todays_encoder_gives_the_bytes_that_were_recorded_for_its_version(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--write"):
        lines = [f"{name} {wire.encode(message).hex()}\n" for name, message in EXAMPLES.items()]
        (RECORDED / f"v{wire.VERSION}.txt").write_text("".join(lines))
    assert recorded(wire.VERSION) == {name: wire.encode(message) for name, message in EXAMPLES.items()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_field_that_a_later_version_adds_is_skipped(name: str) -> None:
    message = msgspec.msgpack.decode(wire.encode(EXAMPLES[name]))
    later = msgspec.msgpack.encode({**message, "colour": ["blue", {"depth": 1.0}]})
    assert decode(later) == EXAMPLES[name]


@pytest.mark.parametrize("kind", [*get_args(wire.FromClient), *get_args(wire.FromCollector)])
def test_a_field_that_an_earlier_client_does_not_send_has_its_default(kind: Any) -> None:
    fields = msgspec.structs.fields(kind)
    required = [field.name for field in fields if field.default is msgspec.NODEFAULT]
    assert [field.name for field in fields][: len(required)] == required


@pytest.mark.parametrize("version", [0, 2, 2**40])
def test_a_hello_of_another_version_is_understood_as_that_whatever_else_it_says(version: int) -> None:
    frame = msgspec.msgpack.encode({"type": "hello", "version": version, "stream": "s", "credential": [1, {"a": None}]})
    assert messages.decode([frame]) == wire.Hello("s", version)


MANY = wire.MAX_APPEND_BYTES - 1000
BIG_FRAMES = {
    "arrays in a column": {"columns": {"job": [[]] * MANY}},
    "arrays in a column of numbers": {"columns": {"count": [[]] * MANY}},
    "texts in an unknown column": {"columns": {"unknown": [""] * MANY}},
    "more texts than rows can be": {"columns": {"job": [""] * MANY}},
    "columns": {"columns": {f"{number:x}": 0 for number in range(MANY // 8)}},
    "nothing": {"columns": [[]] * MANY},
    "tables": {"type": "read", "request": 1, "after": 0, "tables": {f"{n:x}": 0 for n in range(MANY // 8)}},
}


@pytest.mark.parametrize("name", BIG_FRAMES)
def test_a_frame_takes_no_memory_beyond_its_own_before_it_is_refused(name: str) -> None:
    heading = {"type": "append", "stream": "s", "seq": 1, "table": "blocks", "rows": 1}
    frame = msgspec.msgpack.encode({**heading, **BIG_FRAMES[name]})
    tracemalloc.start()
    try:
        message = messages.decode([frame])
    except messages.Undecodable:
        pass
    else:
        assert isinstance(message, wire.Append)
        refusal = messages.appended(message, frame, 0.0).refusal
        assert refusal is not None
        assert refusal.reason == "invalid"
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 1e6


def test_the_page_lists_every_message_with_its_fields_and_every_reason() -> None:
    text = PAGE.read_text()
    written = dict(re.findall(r"^\| `(\w+)` \| ((?:`\w+`,? ?)+)\|", text, re.MULTILINE))
    found = {
        kind.__struct_config__.tag: [field.name for field in msgspec.structs.fields(kind)]
        for kind in (*get_args(wire.FromClient), *get_args(wire.FromCollector))
    }
    assert {name: re.findall(r"`(\w+)`", fields) for name, fields in written.items()} == found


def test_columns_with_a_default_stand_at_the_end_and_the_default_is_of_their_kind() -> None:
    for table in TABLES.values():
        assert list(table.columns)[len(table.columns) - len(table.defaults) :] == list(table.defaults)
        kinds = {name: table.columns[name] for name in table.defaults}
        wire.check({}, kinds, 1, defaults=table.defaults)


DOMAINS = [(table, column) for table in TABLES.values() for column in table.domains]


@pytest.mark.parametrize(("table", "column"), DOMAINS, ids=[f"{table.name}.{column}" for table, column in DOMAINS])
def test_a_value_outside_of_its_domain_is_refused_with_its_column_and_row(table: Table, column: str) -> None:
    domain, rows = table.domains[column], 3
    inside: dict[str, Any] = {name: domain.high for name, domain in table.domains.items()}
    texts = dict.fromkeys(table.json, "")
    inside = {**{name: "x" if kind.is_text else 1 for name, kind in table.columns.items()}, **texts, **inside}
    is_float = domain.kind is Kind.F64
    outside = [np.nextafter(domain.low, -np.inf), 1.001 * domain.high, np.inf, -np.inf, -1e-320] if is_float else []
    outside = outside or [int(domain.low) - 1, int(domain.high) + 1, -(2**63), 2**63 - 1]
    outside += [] if domain.unknown or not is_float else [np.nan]
    good = [domain.low, domain.high, *([-0.0] if is_float else []), *([np.nan] if domain.unknown else [])]

    def refusal(value: Any) -> str:
        message = wire.append("s", 1, table.name, rows, {**inside, column: value})
        item = messages.appended(message, wire.encode(message), 0.0)
        return item.refusal.detail if item.refusal else ""

    for value in good:
        assert not refusal(value)
        assert not refusal(np.array([domain.low, value, domain.high], domain.kind.dtype))
    for value in outside:
        if is_float and domain.low <= value <= domain.high:
            continue  # -1e-320 of a difference
        assert refusal(value) == f"column {column!r} is {value}, expected {domain}"
        found = refusal(np.array([domain.low, value, domain.high], domain.kind.dtype))
        assert found == f"column {column!r} is {value} in row 1, expected {domain}"


@pytest.mark.parametrize("text", ["{", "nan", "[" * 60000, '{"a":' * 9999, '{"a": 1}', '"a"', '{"\\ud800": ""}', "[{}"])
@pytest.mark.parametrize(
    ("table", "column"), [("jobs", "params"), *(("works", column) for column in TABLES["works"].json)]
)
def test_text_that_is_not_the_json_of_its_column_is_refused(table: str, column: str, text: str) -> None:
    kinds = TABLES[table]
    row: dict[str, Any] = {
        name: "" if kind is Kind.TEXT else "x" if kind.is_text else 1 for name, kind in kinds.columns.items()
    }
    for values in (text, ["", text]):
        message = wire.append("s", 1, table, 2, {**row, column: values})
        refusal = messages.appended(message, wire.encode(message), 0.0).refusal
        assert refusal is not None
        assert refusal.detail.startswith(f"column {column!r} is {text[:140]!r}, expected JSON")


def test_rows_that_an_earlier_version_stored_are_replayed_whatever_their_values_are() -> None:
    columns = dict.fromkeys(TABLES["runs"].columns, 1) | {"job": "j", "runtime_seconds": -1.0}
    message = wire.append("s", 1, "runs", 1, columns)
    assert messages.appended(message, wire.encode(message), 0.0).refusal is not None
    assert messages.replayed(wire.encode(message)).columns["runtime_seconds"] == -1.0


def test_a_reader_leaves_out_a_column_that_it_does_not_know_a_collector_refuses_it() -> None:
    kinds = TABLES["sites"].columns
    row = {"job": "lab/1", "class_id": [1], "from_site": "a", "to_site": "b", "operation": "o"}
    columns = wire.pack(row, kinds) | {"colour": "blue"}
    assert wire.unpack(columns, kinds, 1, strict=False).keys() == kinds.keys()
    with pytest.raises(wire.Invalid, match="unknown column 'colour'"):
        wire.unpack(columns, kinds, 1)


@settings(deadline=None)
@given(st.data())
def test_rows_that_are_packed_come_out_as_they_went_in(data: st.DataObject) -> None:
    table = TABLES[data.draw(st.sampled_from(sorted(TABLES)))]
    rows = data.draw(st.integers(1, 20))
    values = {name: data.draw(_column(kind, rows)) for name, kind in table.columns.items()}
    message: Any = messages.decode([wire.encode(wire.append("s", 1, table.name, rows, values))])
    out = wire.unpack(message.columns, table.columns, rows)
    for name, value in values.items():
        expected = value if isinstance(value, list) else [value] * rows
        np.testing.assert_array_equal(np.asarray(out[name]), np.asarray(expected))


def _column(kind: Kind, rows: int) -> st.SearchStrategy[Any]:
    one: st.SearchStrategy[Any] = {
        Kind.NAME: st.from_regex(r"[A-Za-z0-9_.:@/+-]{1,128}", fullmatch=True),
        Kind.TEXT: st.text(max_size=50),
        Kind.F64: st.floats(),
        Kind.I64: st.integers(-(2**63), 2**63 - 1),
        Kind.U64: st.integers(0, 2**64 - 1),
    }[kind]
    return one | st.lists(one, min_size=rows, max_size=rows)


def test_a_mutated_message_is_a_message_or_is_refused_and_nothing_else() -> None:
    outcomes = {"item": 0, "refused": 0, "undecodable": 0}
    for frame in mutations(seed=1, count=MUTATIONS, stream=STREAM):
        try:
            message = messages.decode([frame])
        except messages.Undecodable:
            outcomes["undecodable"] += 1
            continue
        if isinstance(message, wire.Append) and message.stream == STREAM:  # others were never opened
            item = messages.appended(message, frame, 0.0)
            outcomes["refused" if item.refusal else "item"] += 1
    assert min(outcomes.values()) > MUTATIONS / 1000, outcomes
