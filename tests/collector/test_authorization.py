"""Authentication, authorization and credentials, over real sockets with a simulated clock."""

from __future__ import annotations

import getpass
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import zmq

from barograph_agent.deliver import credential, munge
from barograph_agent.deliver import keys as client_keys
from barograph_agent.deliver.keys import ClientKey, Role
from barograph_agent.deliver.link import Link
from barograph_agent.deliver.outbox import Memory
from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_agent.system.listening import is_listening
from barograph_agent.system.network import Network
from barograph_collector.auth import authorization, keys
from barograph_collector.auth.authorization import Claim, Grant, Refused
from barograph_collector.auth.credentials import WINDOW_SECONDS, Verifier
from barograph_collector.auth.rate_limit import BURST_SECONDS, TokenBuckets
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused
from barograph_collector.main import main as daemon_main
from barograph_collector.server import Collector
from helpers.log import DEADLINE_SECONDS, Daemon, Producer, blocks, collector_on, wait_until
from helpers.munged import munged

JOB = "lab/4711.0.0"
STREAM = f"{JOB}/n1"
SECRET = bytes(range(32))
NOW = 1_800_000_000.0


@dataclass
class Facility:
    """A collector with keys, and the keys and credentials of its clients."""

    collector: Collector
    directory: Path
    held: dict[str, ClientKey] = field(default_factory=dict)

    def key(self, role: Role, name: str) -> ClientKey:
        if name not in self.held:
            self.held[name] = client_keys.load(keys.add(self.directory, role, name))
            self.refresh()
        return self.held[name]

    def refresh(self) -> None:
        ring = self.collector.keyring
        assert ring is not None
        ring.refresh()

    def proof(self, stream: str = STREAM, job: str = "lab/4711", user: str = "alice", at: float | None = None) -> str:
        secret = bytes.fromhex(keys.load_collector(self.directory).token_secret)
        token = credential.issue(secret, job, user, int(time.time()) + 3600)
        made = credential.prove(token, stream, time.time() if at is None else at, f"{time.monotonic_ns()}")
        return "token:" + msgspec.json.encode(made).decode()

    def agent(self, stream: str = STREAM, key: str = "nodes") -> Producer:
        return Producer(self.collector.endpoint, stream, self.key("agent", key))

    def refused(self) -> dict[str, int]:
        return {reason: count for reason, count in self.collector.counters.rejected.items() if count}

    def rows(self, table: str, column: str) -> list[object]:
        with LogReader(self.collector.endpoint, DEADLINE_SECONDS, self.key("reader", "staff")) as reader:
            return [value for batch in reader.read_all(table) for value in batch.columns[column]]


@pytest.fixture
def facility(tmp_path: Path) -> Iterator[Facility]:
    keys.init(tmp_path / "keys")
    with collector_on(tmp_path / "log.duckdb", keyring=keys.Keyring(tmp_path / "keys")) as collector:
        yield Facility(collector, tmp_path / "keys")


def job_row(job: str = JOB, user: str = "mallory") -> dict[str, object]:
    return {"job": job, "cluster": "lab", "workload": "w", "app": "a", "user": user, "params": "{}", "ranks": 1,
            "nodes": 1, "host": "n1", "started_at": 1.0,
            "scheduler": "none", "account": "", "unique_id": ""}  # fmt: skip


def test_an_agent_appends_to_its_own_job_as_the_verified_user(facility: Facility) -> None:
    with facility.agent() as agent:
        assert agent.hello(facility.proof()).acked == 0
        agent.append(1, "jobs", 1, job_row(user="root"))
        agent.append(2, "blocks", 3, blocks(3, job=JOB))
        agent.receive_ack(2)
    assert facility.rows("jobs", "user") == ["alice"]
    assert facility.rows("blocks", "job") == [JOB] * 3
    assert facility.refused() == {}


@pytest.mark.parametrize(
    ("table", "values", "reason"),
    [
        ("blocks", blocks(2, job="lab/1.0.0"), f"column 'job' is 'lab/1.0.0', expected '{JOB}'"),
        ("blocks", blocks(2) | {"job": [JOB, "lab/47110.0.0"]}, f"column 'job' is 'lab/47110.0.0', expected '{JOB}'"),
        ("jobs", job_row("lab/1.0.0"), f"column 'job' is 'lab/1.0.0', expected '{JOB}'"),
        (
            "events",
            {"source": "collector", "kind": "k", "rows": 0, "detail": "", "time": 0.0},
            f"column 'source' is 'collector', expected '{JOB}'",
        ),
        ("scores", {}, "table is 'scores', expected one of blocks, events"),
        ("bands", {}, "table is 'bands', expected one of"),
    ],
)
def test_a_forged_row_is_refused_and_recorded_and_consumes_its_number(
    facility: Facility, table: str, values: dict[str, object], reason: str
) -> None:
    with facility.agent() as agent:
        agent.hello(facility.proof())
        if not values:
            values = {name: "x" if kind.is_text else 0 for name, kind in wire.TABLES[table].columns.items()}
        agent.append(1, table, 2 if table == "blocks" else 1, values)
        refusal = agent.receive(wire.Refuse)
        assert (refusal.seq, refusal.reason) == (1, "forbidden")
        assert refusal.detail.startswith(reason)
        agent.receive_ack(1)
        agent.append(2, "blocks", 1, blocks(1, job=JOB))
        agent.receive_ack(2)
    assert facility.rows("blocks", "first_index") == [0]
    assert facility.rows("events", "kind") == ["refused"]
    assert facility.refused() == {"forbidden": 1}


@pytest.mark.parametrize("column", ["job", "colour", "count"])
def test_nested_values_of_an_admitted_agent_are_refused_before_authorization_reads_them(
    facility: Facility, column: str
) -> None:
    with facility.agent() as agent:
        agent.hello(facility.proof())
        good = wire.encode(wire.append(STREAM, 1, "jobs", 1, job_row()))
        nested = b"\x91" * 900 + b"\x01"
        name = msgspec.msgpack.encode(column)
        columns = b"".join(
            msgspec.msgpack.encode(key) + msgspec.msgpack.encode(value)
            for key, value in job_row().items()
            if key != column
        )
        number = len({*job_row(), column})
        head = good.partition(msgspec.msgpack.encode("columns"))[0] + msgspec.msgpack.encode("columns")
        agent.socket.send(head + b"\xde" + number.to_bytes(2, "big") + columns + name + nested)
        refusal = agent.receive(wire.Refuse)
        assert (refusal.seq, refusal.reason) == (1, "invalid")
        agent.receive_ack(1)
        agent.append(2, "blocks", 1, blocks(1, job=JOB))
        agent.receive_ack(2)
    assert facility.refused() == {"invalid": 1}


def test_tables_that_are_never_dropped_take_a_limited_size_of_a_user_in_a_day(facility: Facility) -> None:
    facility.collector._admission._kept.set_rate(10_000 / 86_400)
    site = {"job": JOB, "class_id": 1, "to_site": "", "operation": "o"}
    with facility.agent() as agent:
        agent.hello(facility.proof())
        agent.append(1, "sites", 1, {**site, "from_site": "x" * 20_000})
        agent.receive_ack(1)
        agent.append(2, "sites", 1, {**site, "from_site": ""})
        refusal = agent.receive(wire.Refuse)
        assert (refusal.seq, refusal.reason) == (2, "forbidden")
        assert refusal.detail.startswith("table 'sites' is kept for ever, expected at most")
        agent.append(3, "blocks", 1, blocks(1, job=JOB))
        agent.receive_ack(3)
    assert len(facility.rows("sites", "class_id")) == 1


def test_an_exception_while_a_message_is_handled_costs_its_sender_and_ends_nothing(
    facility: Facility, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Grant.check

    def fragile(self: Grant, message: wire.Append) -> bool:
        if message.table == "sidecars":
            raise RecursionError
        return check(self, message)

    monkeypatch.setattr(Grant, "check", fragile)
    with facility.agent() as agent:
        agent.hello(facility.proof())
        row = dict.fromkeys(TABLES["sidecars"].columns, 0) | {"sources": "", "job": JOB, "host": "n1"}
        agent.append(1, "sidecars", 1, row)
        agent.append(1, "blocks", 1, blocks(1, job=JOB))
        agent.receive_ack(1)
    assert facility.refused() == {"failed": 1}


def test_a_job_belongs_to_its_first_verified_user_also_after_a_restart(tmp_path: Path) -> None:
    keys.init(tmp_path / "keys")
    with collector_on(tmp_path / "log.duckdb", keyring=keys.Keyring(tmp_path / "keys")) as collector:
        facility = Facility(collector, tmp_path / "keys")
        with facility.agent() as alice, facility.agent(f"{JOB}/n2") as other:
            alice.hello(facility.proof())
            other.send(wire.Hello(other.stream, credential=facility.proof(other.stream, user="mallory")))
            assert other.receive(wire.Refuse).detail == f"job '{JOB}' is alice's, expected one of mallory's"
            alice.append(1, "jobs", 1, job_row())
            alice.receive_ack(1)
        held = facility.held
    with collector_on(tmp_path / "log.duckdb", keyring=keys.Keyring(tmp_path / "keys")) as collector:
        facility = Facility(collector, tmp_path / "keys", held)
        with facility.agent(f"{JOB}/n2") as other:
            other.send(wire.Hello(other.stream, credential=facility.proof(other.stream, user="mallory")))
            assert other.receive(wire.Refuse).reason == "credential"


def test_a_job_whose_owner_is_no_longer_in_memory_is_not_taken_over(
    facility: Facility, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorization, "JOBS_KEPT", 1)
    with facility.agent() as alice, facility.agent("lab/5.0.0/n1") as boris, facility.agent(f"{JOB}/n2") as mallory:
        alice.hello(facility.proof())
        alice.append(1, "jobs", 1, job_row())
        alice.receive_ack(1)
        assert facility.collector._writer.settle()
        assert facility.collector.counters.rows["jobs"] == 1
        boris.hello(facility.proof(boris.stream, job="lab/5", user="boris"))
        mallory.send(wire.Hello(mallory.stream, credential=facility.proof(mallory.stream, user="mallory")))
        refusal = mallory.receive(wire.Refuse)
        assert (refusal.reason, refusal.detail) == ("credential", f"job '{JOB}' is alice's, expected one of mallory's")
        mallory.hello(facility.proof(mallory.stream))


def test_a_hello_with_a_credential_of_megabytes_is_refused_before_it_waits_in_memory(facility: Facility) -> None:
    with facility.agent() as agent:
        agent.send(wire.Hello(agent.stream, credential="x" * 7_500_000))
        refusal = agent.receive(wire.Refuse)
        assert refusal.detail == "credential has 7500000 characters, expected at most 8192"
        agent.hello(facility.proof())


def test_a_reused_credential_is_refused_and_a_fresh_one_is_accepted(facility: Facility) -> None:
    with facility.agent() as agent, facility.agent() as other:
        shown = facility.proof()
        agent.hello(shown)
        other.send(wire.Hello(STREAM, credential=shown))
        refusal = other.receive(wire.Refuse)
        assert (refusal.reason, refusal.detail) == ("replayed", "job token: the proof has been used before")
        agent.hello(facility.proof())
        agent.append(1, "blocks", 1, blocks(1, job=JOB))
        agent.receive_ack(1)
    assert facility.refused() == {"replayed": 1}


@pytest.mark.parametrize("shown", ["", "token:", "token:{}", "munge:MUNGE:AAAA:", "password:x", "token:" + "[" * 9999])
def test_a_hello_without_a_valid_credential_is_refused_with_the_reason(facility: Facility, shown: str) -> None:
    with facility.agent() as agent:
        agent.send(wire.Hello(STREAM, credential=shown))
        assert agent.receive(wire.Refuse).reason == "credential"
        agent.append(1, "blocks", 1, blocks(1, job=JOB))
        assert agent.receive(wire.Refuse).reason == "unknown-stream"


def test_each_role_has_its_permissions_only(facility: Facility) -> None:
    endpoint = facility.collector.endpoint
    reader_key, writer_key = facility.key("reader", "staff"), facility.key("writer", "modeler")
    with Producer(endpoint, "staff/1", reader_key) as producer:
        producer.send(wire.Hello("staff/1"))
        refused = producer.receive(wire.Refuse)
        assert refused.detail == "role is reader, expected agent, importer, writer or editor to append"
    with Producer(endpoint, "alerts/1", writer_key) as producer:
        producer.send(wire.Hello("alerts/1"))
        assert producer.receive(wire.Refuse).detail == "stream is 'alerts/1', expected modeler/... with this key"
    with Producer(endpoint, "modeler/1", writer_key) as producer:
        producer.hello()
        producer.append(1, "blocks", 1, blocks(1, job=JOB))
        assert producer.receive(wire.Refuse).reason == "forbidden"
    texts = ("executable", "program", "script", "words", "inputs", "plain", "reason", "folder", "platform", "numbers")
    counts = {"ranks": 2, "nodes": 1, "ranks_per_node": 2, "threads": -1}
    asked = dict.fromkeys(texts, "") | counts | {"job": "lab/7.0.0"}
    with Producer(endpoint, "lab/7.0.0/import", facility.key("importer", "history")) as producer:
        producer.hello()
        producer.append(1, "jobs", 1, job_row("lab/7.0.0"))
        producer.receive_ack(1)
        producer.append(2, "blocks", 1, blocks(1, job="lab/7.0.0"))
        producer.receive_ack(2)
        producer.append(3, "works", 1, asked)
        producer.receive_ack(3)
        producer.append(4, "events", 1, {"source": "x", "kind": "k", "rows": 0, "detail": "", "time": 0.0})
        assert producer.receive(wire.Refuse).reason == "forbidden"
    edit = {"target": "lab/app@2x1", "action": "name", "argument": "a", "editor": "ada", "time": 0.0}
    with Producer(endpoint, "boss/1", facility.key("editor", "boss")) as producer:
        producer.hello()
        producer.append(1, "work_edits", 1, edit)
        producer.receive_ack(1)
        producer.append(2, "events", 1, {"source": "x", "kind": "k", "rows": 0, "detail": "", "time": 0.0})
        assert producer.receive(wire.Refuse).reason == "forbidden"
    with facility.agent() as agent:
        agent.hello(facility.proof())
        agent.append(1, "work_edits", 1, edit)
        assert agent.receive(wire.Refuse).reason == "forbidden"
    with facility.agent() as agent, LogReader(endpoint, DEADLINE_SECONDS, facility.key("agent", "nodes")) as stranger:
        agent.hello(facility.proof())
        for table in ("scores", "nodes"):
            agent.send(wire.Read(1, table, 0, 1, JOB))
            assert agent.receive(wire.Rows).error == ""
        for request in (
            wire.Read(2, "scores", 0, 1, "lab/1.0.0"),
            wire.Read(2, "nodes", 0, 1, "lab/1.0.0"),
            wire.Read(3, "jobs", 0, 1, JOB),
            wire.Read(4, "", 0, 1, tables={"scores": 0}),
            wire.Read(5, "scores", 0, 1, JOB, {"scores": 0}, 5.0),
        ):
            agent.send(request)
            error = agent.receive(wire.Rows).error
            assert error.startswith(f"an agent may read scores and nodes of its own job, {JOB}")
        with pytest.raises(ReadRefused, match="an agent may read scores and nodes of its own job, none yet"):
            stranger.query("SELECT 1")


def test_a_read_that_waits_is_refused_once_its_key_is_revoked(facility: Facility) -> None:
    gone = facility.key("reader", "gone")
    with facility.agent() as agent, Producer(facility.collector.endpoint, "reader", gone) as reader:
        agent.hello(facility.proof())
        reader.send(wire.Read(1, "", 0, 10, tables={"blocks": 0}, seconds=50.0))
        wait_until(lambda: len(facility.collector._receiver.waits), "it waits")
        keys.revoke(facility.directory, "gone")
        facility.refresh()
        agent.append(1, "blocks", 1, blocks(1, job=JOB))
        answer = reader.receive(wire.Rows)
        assert answer.rows == 0
        assert answer.error.startswith("this key is ")


def test_a_revoked_key_is_refused_on_open_connections(facility: Facility) -> None:
    gone = facility.key("reader", "gone")
    with facility.agent(key="old") as agent, LogReader(facility.collector.endpoint, DEADLINE_SECONDS, gone) as reader:
        agent.hello(facility.proof())
        assert reader.read("blocks", 0).rows == 0
        for name in ("old", "gone"):
            keys.revoke(facility.directory, name)
        facility.refresh()
        agent.append(1, "blocks", 1, blocks(1, job=JOB))
        assert agent.receive(wire.Refuse).reason == "key"
        with pytest.raises(ReadRefused, match="this key is unknown, or was revoked"):
            reader.read("blocks", 0)
    assert facility.refused() == {"key": 2}


def invalid_key(facility: Facility, what: str) -> ClientKey | None:
    known, other = facility.key("reader", "staff"), keys.init(facility.directory.parent / "other")
    public, secret = (half.decode() for half in zmq.curve_keypair())
    return {
        "no key": None,
        "a key of its own": ClientKey("x", "reader", public, secret, known.collector),
        "another collector's": ClientKey("x", "reader", known.public, known.secret, other.public),
    }[what]


@pytest.mark.parametrize(
    ("what", "seconds", "reason", "text"),
    [
        ("no key", 60.0, "handshake", "of collector and client only one uses keys (BAROGRAPH_KEY)"),
        ("a key of its own", 60.0, "key", "the collector rejects this key (BAROGRAPH_KEY)"),
        # The reader always waits for half of the time: a collector that is shutting down looks the same.
        pytest.param(
            "another collector's",
            10.0,
            "handshake",
            "the collector is not the one of this key file (BAROGRAPH_KEY)",
            marks=pytest.mark.process,
        ),
    ],
)
def test_clients_without_a_valid_key_get_the_reason_and_are_counted(
    facility: Facility, what: str, seconds: float, reason: str, text: str
) -> None:
    with LogReader(facility.collector.endpoint, seconds, invalid_key(facility, what)) as reader:

        def asks(question: Callable[[], object]) -> str:
            with pytest.raises(LogUnavailable) as refusal:
                question()
            return str(refusal.value)

        expected = f"not admitted by the collector at {facility.collector.endpoint}: {text}"
        assert asks(lambda: reader.read("blocks", 0)) == asks(reader.intake_trouble) == expected
        # A connection that the client closes before its handshake has failed here is none that was refused.
        wait_until(
            lambda: facility.refused().keys() == {reason} or not asks(lambda: reader.read("blocks", 0)),
            "the failed handshake is counted",
        )


def test_a_request_after_a_refused_key_fails_without_a_timeout(facility: Facility) -> None:
    key = invalid_key(facility, "a key of its own")
    assert key is not None
    with zmq.Context() as context:
        connection = Network(context).connect(facility.collector.endpoint, key, reads=True)
        wait_until(lambda: facility.refused() == {"key": 1}, "the key is refused")
        # Whether or not ZeroMQ accepts messages at this point, the reason is reported.
        assert not (connection.send(b"", 60) and connection.wait(60))
        assert connection.trouble == "the collector rejects this key (BAROGRAPH_KEY)"
        wait_until(lambda: not connection.can_send(), "ZeroMQ has no place for messages any more")
        assert not connection.send(b"", 60)
        connection.close()


def test_a_link_delivers_once_its_key_is_added(facility: Facility) -> None:
    key = facility.key("agent", "late")
    keys.revoke(facility.directory, "late")
    facility.refresh()
    outbox = Memory()
    outbox.put(1, wire.encode(wire.append(STREAM, 1, "blocks", 1, blocks(1, job=JOB))))
    link = Link(facility.collector.endpoint, STREAM, outbox, key=key, credential=facility.proof)
    try:
        wait_until(pumped(link, lambda: bool(link.trouble)), "the link has been turned down")
        assert link.trouble == "the collector rejects this key (BAROGRAPH_KEY)"
        clients = [*keys.load_clients(facility.directory), keys.Client("late", "agent", key.public, 0.0)]
        (facility.directory / keys.CLIENTS).write_bytes(msgspec.json.encode(clients))
        facility.refresh()
        wait_until(pumped(link, lambda: link.idle), "the link delivers")
        assert link.trouble == ""
    finally:
        link.close()


def test_a_link_without_a_credential_gives_the_reason(facility: Facility, tmp_path: Path) -> None:
    maker = credential.maker({"BAROGRAPH_TOKEN": str(tmp_path / "none")})
    link = Link(facility.collector.endpoint, STREAM, Memory(), key=facility.key("agent", "nodes"), credential=maker)
    try:
        wait_until(pumped(link, lambda: bool(link.trouble)), "the link knows")
        assert link.trouble == f"job token {tmp_path / 'none'}: No such file or directory"
    finally:
        link.close()


def pumped(link: Link, condition: Callable[[], bool]) -> Callable[[], bool]:
    def step() -> bool:
        link.pump(0.01)
        return condition()

    return step


@pytest.mark.process
def test_a_producer_beyond_its_rate_limit_is_delayed_and_loses_nothing(tmp_path: Path) -> None:
    with collector_on(tmp_path / "log.duckdb", rows_per_second=2000.0) as collector:
        outbox = Memory()
        for seq in range(1, 31):
            outbox.put(1000, wire.encode(wire.append("fast", seq, "blocks", 1000, blocks(1000, first=1000 * seq))))
        link = Link(collector.endpoint, "fast", outbox)
        try:
            wait_until(pumped(link, lambda: link.idle), "everything is acknowledged")
        finally:
            link.close()
        assert collector.counters.rejected["rate"] > 0
        with LogReader(collector.endpoint, DEADLINE_SECONDS) as reader:
            stored = [value for batch in reader.read_all("blocks") for value in batch.columns["first_index"]]
        assert stored == list(range(1000, 31_000))


@pytest.mark.process
def test_a_running_daemon_reloads_changed_keys_and_keeps_the_former_ones_if_they_are_unreadable(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "keys"
    keys.init(directory)
    staff = client_keys.load(keys.add(directory, "reader", "staff"))
    with Daemon(tmp_path / "state", "--keys", str(directory)) as daemon:
        assert daemon.first_line.endswith(f"; client keys in {directory}: 1\n")
        late = client_keys.load(keys.add(directory, "reader", "late"))
        wait_until(lambda: "clients.json has changed: 2 entries" in "".join(daemon.log), "the new key is known")
        (directory / keys.CLIENTS).write_text("[")
        wait_until(lambda: "the former entries stay valid" in "".join(daemon.log), "the bad file is logged")
        for key in (staff, late):
            with LogReader(daemon.endpoint, DEADLINE_SECONDS, key) as reader:
                assert reader.read("blocks", 0).rows == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--listen", "tcp://0.0.0.0:1"], "is not a loopback address, expected tcp://127.0.0.1:PORT, or keys with it"),
        (["--munge"], "munge: expected keys with it: without keys no credential is verified"),
        (["--rate", "0"], "argument --rate: '0', expected a number above 0"),
    ],
)
def test_an_unsafe_command_line_is_refused(
    tmp_path: Path, options: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        daemon_main(["--state", str(tmp_path), *options])
    assert end.value.code == 2
    assert text in capsys.readouterr().err


def test_a_missing_key_directory_is_one_line_and_status_73(tmp_path: Path) -> None:
    words = ["--state", str(tmp_path / "state"), "--keys", str(tmp_path / "none")]
    command = [sys.executable, "-m", "barograph_collector.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
    missing = tmp_path / "none" / "collector.json"
    text = f"cannot read {missing}: No such file or directory; `barograph keys init` makes it"
    assert (done.returncode, done.stderr) == (73, f"barograph collector: {text}\n")


# Parts


def test_a_bucket_allows_a_burst_and_then_the_rate_independently_of_others() -> None:
    now = [0.0]
    buckets = TokenBuckets(10.0, lambda: now[0])
    assert buckets.consume("a", int(10 * BURST_SECONDS))
    assert not buckets.consume("a", 1)
    assert buckets.consume("b", 1)
    taken = 0
    for _ in range(1000):
        now[0] += 0.1
        taken += buckets.consume("a", 2) * 2
    assert taken == pytest.approx(1000, abs=4)


@pytest.mark.parametrize(
    ("job", "stream", "age", "expires", "reason"),
    [
        ("lab/4711", STREAM, 0.0, 10, None),
        ("lab/4711", STREAM, WINDOW_SECONDS - 0.1, 10, None),
        ("lab/4711", STREAM, 0.1 - WINDOW_SECONDS, 10, None),
        ("lab/471", STREAM, 0.0, 10, "credential"),
        ("lab/4711", "lab/47110.0.0/n1", 0.0, 10, "credential"),
        ("lab/4711", JOB, 0.0, 10, "credential"),
        ("lab/4711", STREAM, 0.0, 0, "credential"),
        ("lab/4711", STREAM, WINDOW_SECONDS + 0.1, 10, "replayed"),
        ("lab/4711", STREAM, -WINDOW_SECONDS - 0.1, 10, "replayed"),
    ],
)
def test_a_token_is_valid_for_its_job_until_it_expires_with_a_fresh_proof(
    job: str, stream: str, age: float, expires: int, reason: str | None
) -> None:
    now = [NOW - 3600]
    verifier = Verifier(SECRET, None, lambda: now[0])
    now[0] = NOW
    made = credential.prove(credential.issue(SECRET, job, "alice", int(NOW) + expires), stream, NOW - age, "n")
    shown = "token:" + msgspec.json.encode(made).decode()
    if reason is None:
        assert verifier.verify(stream, shown) == Claim("alice", stream.rpartition("/")[0])
    else:
        with pytest.raises(Refused) as refusal:
            verifier.verify(stream, shown)
        assert refusal.value.reason == reason


@pytest.mark.parametrize("changed", ["job", "user", "expires", "at", "nonce", "mac", "stream", "secret"])
def test_a_proof_with_any_part_changed_is_refused(changed: str) -> None:
    secret = bytes(32) if changed == "secret" else SECRET
    made = credential.prove(credential.issue(secret, "lab/4711", "alice", int(NOW) + 9), STREAM, NOW, "n")
    other = {"job": "lab/47", "user": "bob", "expires": int(NOW) + 99, "at": NOW + 1, "nonce": "m", "mac": "0" * 64}
    if changed in other:
        made = msgspec.structs.replace(made, **{changed: other[changed]})
    stream = f"{JOB}/n2" if changed == "stream" else STREAM
    with pytest.raises(Refused, match="the proof is for another stream, or not of this facility"):
        Verifier(SECRET, None, lambda: NOW).verify(stream, "token:" + msgspec.json.encode(made).decode())


def test_a_proof_made_before_the_collector_started_is_refused() -> None:
    made = credential.prove(credential.issue(SECRET, "lab/4711", "alice", int(NOW) + 9), STREAM, NOW - 1, "n")
    with pytest.raises(Refused) as refusal:
        Verifier(SECRET, None, lambda: NOW).verify(STREAM, "token:" + msgspec.json.encode(made).decode())
    assert refusal.value.reason == "replayed"


def test_a_token_is_stored_for_its_job_and_used_from_there(tmp_path: Path) -> None:
    given, kept = tmp_path / "given", tmp_path / "kept"
    given.write_bytes(msgspec.json.encode(credential.issue(SECRET, "lab/4711", "alice", int(NOW))))
    environment = {"BAROGRAPH_TOKEN": str(given)}
    credential.keep_token(environment, "lab/4712.0.0", kept)
    assert not kept.exists()
    credential.keep_token(environment, JOB, kept)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    given.unlink()
    assert credential.maker(environment, kept)(STREAM).startswith('token:{"job":"lab/4711","user":"alice"')


@pytest.mark.integration
def test_a_munge_credential_is_accepted_once(tmp_path: Path) -> None:
    keys.init(tmp_path / "keys")
    ring = keys.Keyring(tmp_path / "keys")
    with (
        munged(tmp_path / "munge") as socket,
        collector_on(tmp_path / "log.duckdb", keyring=ring, munge_socket=socket) as collector,
    ):
        facility = Facility(collector, tmp_path / "keys")
        maker = credential.maker({"BAROGRAPH_MUNGE_SOCKET": socket})
        shown: list[str] = []
        wait_until(lambda: made(maker, shown), "munged answers")
        with facility.agent() as agent, facility.agent() as other:
            agent.hello(shown[0])
            agent.append(1, "jobs", 1, job_row(user="mallory"))
            agent.receive_ack(1)
            other.send(wire.Hello(STREAM, credential=shown[0]))
            refusal = other.receive(wire.Refuse)
            assert (refusal.reason, refusal.detail) == ("replayed", "MUNGE: Replayed credential")
            other.send(wire.Hello(STREAM, credential="munge:" + munge.encode(b"something else", socket)))
            assert "credential is for b'something else'" in other.receive(wire.Refuse).detail
            agent.hello(maker(STREAM))
        assert facility.rows("jobs", "user") == [getpass.getuser()]


def made(maker: Callable[[str], str], shown: list[str]) -> bool:
    try:
        shown.append(maker(STREAM))
    except credential.CredentialError:
        return False
    return True


def test_a_connection_that_only_asks_whether_anybody_listens_is_not_counted_as_rejected(tmp_path: Path) -> None:
    with collector_on(tmp_path / "log.duckdb") as collector:
        for _ in range(3):
            assert is_listening(collector.endpoint)
        host, port = collector.endpoint.removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port))) as other:
            other.sendall(b"\xff\0\0\0\0\0\0\0\1\x7f\3\0KEYS" + bytes(48))
            wait_until(lambda: collector.counters.rejected["handshake"], "another mechanism is counted")
        assert collector.counters.rejected["handshake"] == 1
