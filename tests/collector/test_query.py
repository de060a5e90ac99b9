"""SQL over real sockets: what it answers, what it refuses, and that nobody else waits for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import duckdb
import pyarrow as pa
import pytest

from barograph_agent.protocol import wire
from barograph_collector.client.log_reader import LogReader, ReadRefused
from barograph_collector.net.receiver import QUERIES_WAITING, REQUESTS_OF_ONE
from barograph_collector.query.sql import THREADS, Querier
from barograph_collector.query.statement import NotAllowed, check
from barograph_collector.server import Collector
from barograph_collector.storage.layout import LOG_COLUMNS
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


@pytest.mark.parametrize(
    ("name", "other", "named"),
    [
        ('"children"', '"arguments"', "kind FUNCTION without 'children'"),
        ('"value": "x"', '"text": "x"', "kind CONSTANT without 'value'"),
        ('"query"', '"query_node"', "kind SELECT_NODE without 'query'"),
        ('"COMPARISON"', '"LIKENESS"', "kind LIKENESS, expected columns"),
    ],
)
def test_a_tree_that_another_duckdb_writes_is_refused_with_what_is_not_understood(
    name: str, other: str, named: str
) -> None:
    text = "WITH t AS (SELECT contains(job, 'x') AS y FROM blocks WHERE count = 1) SELECT y FROM t"

    ((tree,),) = duckdb.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    other_tree = json.dumps(json.loads(tree)).replace(name, other)
    parser = SimpleNamespace(
        extract_statements=duckdb.extract_statements, execute=lambda *_: duckdb.execute("SELECT ?", [other_tree])
    )
    check(text, duckdb.connect())
    with pytest.raises(NotAllowed, match=named):
        check(text, parser)


def test_every_column_of_every_table_needs_no_quotes(reader: LogReader) -> None:
    for table, columns in LOG_COLUMNS.items():
        for column in columns:
            assert not reader.query(f"SELECT max({column}) AS {column} FROM {table} WHERE {column} IS NULL", 1).more


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


@pytest.mark.parametrize(
    ("text", "words"),
    {
        "SELEC 1": 'Parser Error: syntax error at or near "SELEC"',
        "SELECT x FROM blocks": 'Binder Error: Referenced column "x" not found',
        "": "query is nothing, expected one SELECT",
        "SELECT 1; SELECT 2": "query is SELECT, SELECT, expected one SELECT",
        "SELECT 1; DROP TABLE blocks": "query is SELECT, DROP, expected one SELECT",
        "FROM log.main.blocks a, blocks b": "query names log.main.blocks, expected blocks",
        "FROM blocks b, log.main.blocks a": "query names log.main.blocks, expected blocks",
        "FROM log.Blocks": "query names log.Blocks, expected Blocks",
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
        "SELECT string_agg('xxxxxxxxx') FROM range(1000000)": f"bytes, expected at most {READ_BYTES}: ask for",
    }.items(),
)
def test_whatever_is_no_question_to_the_log_is_refused_in_words(reader: LogReader, text: str, words: str) -> None:
    assert words in refusal(reader, text)
    answer = pa.ipc.open_stream(reader.query("SELECT count(*), max(count) FROM blocks").stream).read_all()
    assert [column[0].as_py() for column in answer.columns] == [1000, 1]


LONG = "a" * 15_000
SHORT_STEPS = [
    ENDLESS,
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
    f"SELECT sum(len('{LONG}' || i)) FROM range(1000000000) t(i)",
    f"SELECT count(*) FROM range(1000000000) t(i) WHERE '{LONG}' || i LIKE '%a%a%a%a%a%a%a%ab'",
    f"SELECT count(*) FROM range(1000000000) t(i) WHERE '{LONG[:900]}' || i ILIKE '%aaaaaaaaaaaa_b'",
    f"SELECT count(*) FROM range(1000000000) t(i) WHERE regexp_matches('{LONG[:900]}' || i, '((a?){{8}}.*){{8}}b')",
    f"SELECT max(a) FROM (SELECT max('{LONG[:900]}' || i) OVER (ORDER BY i) a FROM range(1000000000) t(i))",
    "SELECT sum(s) FROM (SELECT mode(i) OVER (ORDER BY i ROWS 100000 PRECEDING) s FROM range(1000000000) t(i))",
    "SELECT count(*) FROM (SELECT row_number() OVER (ORDER BY hash(i)) FROM range(1000000000) t(i))",
    "SELECT count(DISTINCT hash(i)), median(i) FROM range(1000000000) t(i)",
    "SELECT len(string_agg(i, ',')) FROM range(1000000000) t(i)",
    "SELECT list(i) FROM range(1000000000) t(i)",
    f"SELECT count(*) FROM range(10) t(i) GROUP BY CUBE({', '.join(f'i + {n}' for n in range(15))})",
    f"SELECT count(*) FROM range(1000000000) t(i) WHERE {' OR '.join(f'i * i = {n}' for n in range(2, 900))}",
]
"""Statements without an end, or nearly."""


@pytest.mark.parametrize("text", SHORT_STEPS, ids=range(len(SHORT_STEPS)))
def test_a_query_ends_when_its_time_or_memory_is_over(reader: LogReader, text: str) -> None:
    words = refusal(reader, text, 0.2)
    assert words == "not done within 0.2 s: ask for less, or for longer (at most 60 s)" or "Out of Memory" in words
    assert reader.query("SELECT 1").rows == 1


LONG_STEPS = {
    "SELECT len(range(1500000000))": "query calls range(), expected functions whose time and memory",
    "SELECT system.main.REPEAT([1], 9)": "query calls repeat()",
    "SELECT lpad('a', 1000000000, 'b')": "query calls lpad()",
    "SELECT format('{:1000000000d}', 1)": "query calls format()",
    "SELECT bitstring('1', 1000000000)": "query calls bitstring()",
    f"SELECT levenshtein('{LONG}', job) FROM blocks": "query calls levenshtein()",
    "SELECT [x + y for x in [1, 2]] FROM range(3) t(y)": "query calls list_apply()",
    "SELECT job -> 'a' FROM blocks": "query calls -> or lambda()",
    "SELECT NULL::INTEGER[99999] FROM range(3000)": "query casts to a type with ARRAY",
    "SELECT job LIKE '%a_a%a_b' FROM blocks": "pattern is '%a_a%a_b', expected one % besides one at its end",
    "SELECT job LIKE app FROM jobs": "~~ has an expression or a long text to look for",
    "SELECT job GLOB '*a*a*b' FROM blocks": "pattern is '*a*a*b'",
    f"SELECT instr(job, '{LONG}') FROM blocks": "instr has an expression or a long text to look for",
    "SELECT regexp_matches(job, '((a?){9}){9}b') FROM blocks": "expected a shorter one, or smaller numbers",
    f"SELECT regexp_matches('{LONG}' || job, 'b$') FROM blocks": "regexp_matches has a text as long as 15.6",
    "SELECT replace(replace(job, 'a', 'bbbbb'), 'b', 'ccccc') FROM blocks": "replace makes values as long as 25",
    f"SELECT {' || '.join(['job'] * 17)} FROM blocks": "|| makes values as long as 17 of the tables, expected 16",
    "SELECT a || a FROM (SELECT b || b || b AS a FROM (SELECT job || job || job AS b FROM blocks))": "long as 18",
    "WITH RECURSIVE r AS (SELECT 'a' x UNION ALL SELECT x || x FROM r) FROM r": "query lengthens the values of r",
    "SELECT max(l) FROM (SELECT list(first_index) l FROM blocks)": "query calls list() in a nested query or window",
    "SELECT string_agg(job) OVER (ORDER BY first_index) FROM blocks": "in a nested query or window",
    "SELECT sum(count) OVER (ROWS 9 PRECEDING EXCLUDE TIES) FROM blocks": "query has a window with EXCLUDE",
    "SELECT a FROM (SELECT arg_max(job, count, 9) a FROM blocks)": "query calls arg_max() in a nested query",
    "SELECT *, b.* FROM (SELECT *, a.* FROM blocks a) b": "query selects the same columns by several *",
    "WITH a AS (FROM range(2)), b AS (FROM a x, a y), c AS (FROM b x, b y), d AS (FROM c x, c y),"
    " e AS (FROM d x, d y), f AS (FROM e x, e y), g AS (FROM f x, f y), h AS (FROM g x, g y) FROM h": (
        "query reads more than 100 tables, those of WITH once for each reference"
    ),
    f"SELECT {'NOT ' * 900}true": "query is nested too deeply",
    f"SELECT 1{' ' * 65536}": "query has 65544 characters, expected at most 65536",
}


def test_a_query_whose_single_steps_may_be_long_is_refused(reader: LogReader) -> None:
    for text, words in LONG_STEPS.items():
        assert words in refusal(reader, text), text[:200]


def test_common_questions_are_answered(reader: LogReader) -> None:
    text = """
        WITH sums AS (SELECT job, sum(count) AS n, max(ended_at) AS last FROM blocks GROUP BY ALL)
        SELECT upper(replace(job, '/', ': ')) || ' ' || n AS label, strftime(to_timestamp(last), '%H:%M') AS at,
            round(quantile_cont(n, 0.5) OVER (PARTITION BY job), 2), [n, n][1], {'a': n}.a, split_part(job, '/', 1),
            CASE WHEN job LIKE '%_%' AND job NOT ILIKE 'x%' AND job SIMILAR TO '.*[0-9]{1,4}.*' THEN 1 END AS odd
        FROM sums WHERE n > (SELECT avg(count) FROM blocks) AND date_trunc('day', now()) > DATE '2020-01-01'
        ORDER BY 1 LIMIT 5
    """
    assert reader.query(text).rows == 1


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
        answer = Querier(store, lambda: True).answer(wire.Sql(1, "SELECT 1"))
    assert "ask again" in answer.error
