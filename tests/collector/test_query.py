"""SQL over real sockets: what it answers, what it refuses, and that nobody else waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from barograph_agent.protocol import wire
from barograph_collector.client.log_reader import LogReader, ReadRefused
from barograph_collector.net.requests import QUERIES_WAITING, REQUESTS_OF_ONE
from barograph_collector.query.sql import THREADS, Querier
from barograph_collector.server import Collector
from barograph_collector.storage.pages import READ_BYTES
from barograph_collector.storage.store import Store
from helpers.log import DEADLINE_SECONDS, Producer, blocks, collector_on

# More than any machine does in the time of a test; the limit on the result is no help, for it counts.
ENDLESS = "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c WHERE a.range + b.range < c.range"

# Up to DuckDB 1.5 a pragma is parsed as the SELECT that it stands for.
PRAGMA_REFUSED = (
    "query is no SELECT: Only SELECT statements can be serialized to json!"
    if duckdb.__version__.startswith("1.")
    else "query is PRAGMA, expected one SELECT"
)


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    with collector_on(tmp_path / "log.duckdb") as running, Producer(running.endpoint) as producer:
        producer.hello()
        producer.append(1, "blocks", 1000, blocks(1000))
        producer.receive_ack(1)
        yield running


@pytest.fixture
def reader(collector: Collector) -> Iterator[LogReader]:
    with LogReader(collector.endpoint, timeout=DEADLINE_SECONDS) as connected:
        yield connected


def refusal(reader: LogReader, text: str, seconds: float = 30.0) -> str:
    with pytest.raises(ReadRefused) as refused:
        reader.query(text, seconds=seconds)
    return str(refused.value)


def test_a_select_is_answered_with_types_and_says_where_its_limit_cut_it_off(reader: LogReader) -> None:
    answer = reader.query("SELECT first_index, job, {'a': [1, 2]} AS nested FROM blocks ORDER BY first_index DESC", 3)
    rows = pa.ipc.open_stream(answer.stream).read_all()
    assert rows.column("first_index").to_pylist() == [999, 998, 997]
    assert rows.column("nested")[0].as_py() == {"a": [1, 2]}
    assert (answer.rows, answer.more) == (3, True)
    assert not reader.query("SELECT 1", 1).more


@pytest.mark.parametrize("text", ["SELECT 1 AS a, 2 AS b;", "SELECT 1 AS a, 2 AS b -- one"])
def test_a_select_may_end_with_a_semicolon_or_a_comment(reader: LogReader, text: str) -> None:
    assert pa.ipc.open_stream(reader.query(text).stream).read_all().to_pylist() == [{"a": 1, "b": 2}]


def test_a_refusal_names_no_other_text_than_the_query(reader: LogReader) -> None:
    assert "LIMIT" not in refusal(reader, "SELECT x FROM blocks")


@pytest.mark.parametrize(
    ("text", "words"),
    {
        "SELEC 1": 'Parser Error: syntax error at or near "SELEC"',
        "SELECT x FROM blocks": 'Binder Error: Referenced column "x" not found',
        "": "query is nothing, expected one SELECT",
        "SELECT 1; SELECT 2": "query is SELECT, SELECT, expected one SELECT",
        "SELECT 1; DROP TABLE blocks": "query is SELECT, DROP, expected one SELECT",
        "DROP TABLE blocks": "query is DROP, expected one SELECT",
        "INSERT INTO streams VALUES ('a', 1, 1) RETURNING *": "query is INSERT, expected one SELECT",
        "UPDATE blocks SET count = 2": "query is UPDATE, expected one SELECT",
        "COPY blocks TO '/tmp/out.csv'": "query is COPY, expected one SELECT",
        "ATTACH '/tmp/other.duckdb'": "query is ATTACH, expected one SELECT",
        "SET memory_limit = '1TB'": "query is SET, expected one SELECT",
        "PRAGMA database_size": PRAGMA_REFUSED,
        "CHECKPOINT": "query is CALL, expected one SELECT",
        "SELECT * FROM force_checkpoint()": "query calls force_checkpoint(), expected none but",
        "WITH x AS (SELECT (SELECT count(*) FROM enable_logging())) FROM x": "query calls enable_logging(),",
        "FROM query('SELECT 1')": "query calls query(), expected none but",
        "FROM read_csv('/etc/passwd')": "query calls read_csv(), expected none but",
        "FROM '/etc/passwd'": "query names '/etc/passwd', expected a table of the log",
        "FROM incoming": "Catalog Error: Table with name incoming does not exist!",
        "SELECT repeat('x', 9000000)": f"bytes, expected at most {READ_BYTES}: ask for fewer rows or columns",
    }.items(),
)
def test_whatever_is_no_question_to_the_log_is_refused_in_words(reader: LogReader, text: str, words: str) -> None:
    assert words in refusal(reader, text)
    answer = pa.ipc.open_stream(reader.query("SELECT count(*), max(count) FROM blocks").stream).read_all()
    assert [column[0].as_py() for column in answer.columns] == [1000, 1]


def test_a_query_ends_when_its_time_is_over(reader: LogReader) -> None:
    assert refusal(reader, ENDLESS, 0.2) == "not done within 0.2 s: ask for less, or for longer (at most 60 s)"


def test_while_a_query_runs_rows_are_taken_and_read_and_a_stop_does_not_wait_for_it(collector: Collector) -> None:
    with (
        Producer(collector.endpoint, "second") as person,
        LogReader(collector.endpoint, timeout=DEADLINE_SECONDS) as daemon,
    ):
        person.send(wire.Sql(1, ENDLESS, 1, 60.0))
        person.hello()  # answered after the query was taken
        person.append(1, "blocks", 5, blocks(5, first=1000))
        person.receive_ack(1)
        assert daemon.read("blocks", 1000).rows == 5
        assert collector.stop(30)
        stopped = "the collector is stopping: ask for less, or for longer (at most 60 s)"
        assert person.receive(wire.Result).error == stopped


def test_a_short_query_does_not_wait_for_a_long_one(collector: Collector, reader: LogReader) -> None:
    with Producer(collector.endpoint) as person:
        person.send(wire.Sql(1, ENDLESS, 1, 60.0))
        person.hello()  # answered after the query was taken
        assert reader.query("SELECT 1", seconds=20.0).rows == 1  # with its patience less than the long one may take


def test_more_queries_than_can_wait_are_refused_at_once(collector: Collector) -> None:
    with ExitStack() as held:
        crowd = [held.enter_context(Producer(collector.endpoint)) for _ in range(QUERIES_WAITING // REQUESTS_OF_ONE)]
        for one in crowd:
            for request in range(REQUESTS_OF_ONE):
                one.send(wire.Sql(request, ENDLESS, 1, 60.0))
            one.hello()  # answered after the queries were taken
        last = held.enter_context(Producer(collector.endpoint))
        for request in range(THREADS + 1):  # so many of all these may be at work, and wait no longer
            last.send(wire.Sql(request, ENDLESS, 1, 60.0))
        assert last.receive(wire.Result).error == "too many of its kind are waiting, ask again later"


def test_a_query_whose_database_is_closed_under_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*words: object) -> None:
        raise RuntimeError("bad_weak_ptr")

    monkeypatch.setattr(Querier, "_select", closed)
    with Store(tmp_path / "log.duckdb") as store:
        answer = Querier(store, lambda: None).answer(wire.Sql(1, "SELECT 1"))
    assert "ask again" in answer.error
