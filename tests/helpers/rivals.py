"""What a facility would otherwise write such records to, each started on a scratch directory and fed by one client."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest

from barograph_agent.protocol.tables import TABLES, Kind
from helpers.up import free_ports

FIELDS = ("count", "sum_seconds", "sum_squares", "sum_cubes", "min_seconds", "max_seconds", "first_index")
"""What of a block is a value; job, world and class_id say whose, ended_at says when."""
Message = Mapping[str, Any]
"""Columns of `blocks`, each an array of as many values."""


class Rival(ABC):
    """A database server of Debian's. Messages are encoded beforehand; only sending and storing is timed."""

    name: ClassVar[str]
    program: ClassVar[str]

    def __init__(self) -> None:
        elsewhere = Path("/usr/lib/postgresql").glob(f"*/bin/{self.program}")
        found = shutil.which(self.program) or next(map(str, elsewhere), "")
        if not found:
            reason = f"Debian's {self.name} is not installed"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        self.executable = Path(found).resolve()
        self.port = free_ports(2)

    def __enter__(self) -> Self:
        # Not below pytest's own directory, which other users, such as PostgreSQL's, may not enter.
        self.directory = Path(tempfile.mkdtemp(prefix="barograph-rival-"))
        with (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, **self.options())
        deadline = time.monotonic() + 60
        while not self.listens():
            assert self.process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < deadline, f"{self.name} does not listen"
            time.sleep(0.1)
        self.prepare()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)
        shutil.rmtree(self.directory)

    def measure(self, messages: list[Message]) -> tuple[float, float]:
        """Records a second, and records per second of CPU time of server and client.

        All of them, encoded beforehand, until the server has taken the last one.
        """
        encoded = self.packed([self.encode(message) for message in messages])
        rows = sum(len(message["first_index"]) for message in messages)
        began, used = time.perf_counter(), self._cpu_seconds()
        self.send(encoded)
        seconds, cpu_seconds = time.perf_counter() - began, self._cpu_seconds() - used
        assert self.stored() == rows
        return rows / seconds, rows / cpu_seconds

    def _cpu_seconds(self) -> float:
        """Of the server, its children, and this process, each with the children it has waited for."""
        times = os.times()
        client = times.user + times.system + times.children_user + times.children_system
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rpartition(")")[2].split()
            except OSError:  # has ended meanwhile; its parent has its time
                continue
            if self.process.pid in (int(path.parent.name), int(fields[1])):
                ticks += sum(map(int, fields[11:15]))
        return client + ticks / os.sysconf("SC_CLK_TCK")

    def packed(self, encoded: list[bytes]) -> list[bytes]:
        """Messages as they are sent: one by one, unless said otherwise."""
        return encoded

    def options(self) -> dict[str, Any]:
        """How to start it, for Popen."""
        return {}

    def prepare(self) -> None:
        """Create what rows go into; nothing, unless said otherwise."""
        return

    def listens(self) -> bool:
        """Whether its port can be connected to."""
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0

    def post(self, path: str, data: bytes | None = None) -> bytes:
        """One HTTP request."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", data, 60) as answer:
            text: bytes = answer.read()
            return text

    @abstractmethod
    def command(self) -> list[str]:
        """How to start it."""

    @abstractmethod
    def encode(self, message: Message) -> bytes:
        """One message as it takes them."""

    @abstractmethod
    def send(self, encoded: list[bytes]) -> None:
        """Send all of them."""

    @abstractmethod
    def stored(self) -> int:
        """Records it has."""


class VictoriaMetrics(Rival):
    """The JSON line import: per job, class and field a series, with all values of the message in one line."""

    name, program = "VictoriaMetrics", "victoria-metrics"

    def command(self) -> list[str]:
        data = f"-storageDataPath={self.directory}/data"
        return [str(self.executable), data, f"-httpListenAddr=127.0.0.1:{self.port}", "-retentionPeriod=100y"]

    def encode(self, message: Message) -> bytes:
        lines = []
        stamps = (np.asarray(message["ended_at"]) * 1000).astype(np.int64)
        for class_id in np.unique(message["class_id"]):
            of_class = message["class_id"] == class_id
            times = ",".join(map(str, stamps[of_class].tolist()))
            labels = f'"job":"{message["job"][0]}","class":"{class_id}"'
            for field in FIELDS:
                values = ",".join(map(repr, np.asarray(message[field])[of_class].tolist()))
                series = f'{{"__name__":"blocks_{field}",{labels}}}'
                lines.append(f'{{"metric":{series},"values":[{values}],"timestamps":[{times}]}}\n')
        return "".join(lines).encode()

    def send(self, encoded: list[bytes]) -> None:
        for body in encoded:
            self.post("/api/v1/import", body)

    def stored(self) -> int:
        lines = self.post("/metrics").decode().splitlines()
        taken = [line for line in lines if line.startswith('vm_rows_inserted_total{type="vmimport"}')]
        return int(float(taken[0].split()[-1])) // len(FIELDS)


class InfluxDB(Rival):
    """The line protocol: per record one line."""

    name, program = "InfluxDB", "influxd"

    def command(self) -> list[str]:
        config = self.directory / "influxdb.conf"
        config.write_text(
            f'reporting-disabled = true\nbind-address = "127.0.0.1:{self.port + 1}"\n'
            f'[meta]\ndir = "{self.directory}/meta"\n'
            f'[data]\ndir = "{self.directory}/data"\nwal-dir = "{self.directory}/wal"\nmax-series-per-database = 0\n'
            f'[http]\nbind-address = "127.0.0.1:{self.port}"\nlog-enabled = false\nmax-body-size = 0\n'
            "[monitor]\nstore-enabled = false\n"
        )
        return [str(self.executable), "-config", str(config)]

    def prepare(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            try:
                self.post("/query?q=CREATE+DATABASE+log", b"")
            except urllib.error.URLError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            else:
                return

    def encode(self, message: Message) -> bytes:
        stamps = (np.asarray(message["ended_at"]) * 1e9).astype(np.int64).tolist()
        fields = [[f"{name}={value!r}" for value in np.asarray(message[name]).tolist()] for name in FIELDS]
        who = [f"blocks,job={message['job'][0]},class={c}" for c in message["class_id"].tolist()]
        lines = zip(who, map(",".join, zip(*fields, strict=True)), stamps, strict=True)
        return "\n".join(f"{tags} {values} {stamp}" for tags, values, stamp in lines).encode()

    def send(self, encoded: list[bytes]) -> None:
        for body in encoded:
            self.post("/write?db=log&precision=ns", body)

    def stored(self) -> int:
        answer = json.loads(self.post("/query?db=log&q=SELECT+count(sum_seconds)+FROM+blocks"))
        return int(answer["results"][0]["series"][0]["values"][0][1])


class PostgreSQL(Rival):
    """COPY from files, one transaction per 10,000 records, fsync on, everything else as it is by default."""

    name, program = "PostgreSQL", "initdb"
    per_commit = 10_000

    def command(self) -> list[str]:
        if os.getuid() == 0:
            shutil.chown(self.directory, "postgres")
        data = self.directory / "data"
        setup = [str(self.executable), "-D", str(data), "-U", "log", "-A", "trust", "--no-instructions"]
        subprocess.run(setup, check=True, stdout=subprocess.DEVNULL, **self.options())
        server = str(self.executable.with_name("postgres"))
        return [server, "-D", str(data), "-p", str(self.port), "-c", "listen_addresses=127.0.0.1", "-k", str(data)]

    def options(self) -> dict[str, Any]:
        if os.getuid() != 0:
            return {}
        user = pwd.getpwnam("postgres")
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}

    def prepare(self) -> None:
        types = {Kind.F64: "double precision", Kind.I64: "bigint", Kind.U64: "numeric(20)", Kind.NAME: "text"}
        columns = ", ".join(f"{name} {types[kind]}" for name, kind in TABLES["blocks"].columns.items())
        deadline = time.monotonic() + 30
        while self._psql("-c", "SELECT 1").returncode:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert self._psql("-c", f"CREATE TABLE blocks ({columns})").returncode == 0

    def encode(self, message: Message) -> bytes:
        columns = [np.asarray(message[name]).tolist() for name in TABLES["blocks"].columns]
        return "".join("\t".join(map(str, row)) + "\n" for row in zip(*columns, strict=True)).encode()

    def packed(self, encoded: list[bytes]) -> list[bytes]:
        """One file per transaction, and the script that copies them."""
        lines = b"".join(encoded).splitlines(keepends=True)
        script = []
        for first in range(0, len(lines), self.per_commit):
            path = self.directory / f"{first}.tsv"
            path.write_bytes(b"".join(lines[first : first + self.per_commit]))
            script.append(f"\\copy blocks from '{path}'\n")
        (self.directory / "script.sql").write_text("".join(script))
        return encoded

    def send(self, encoded: list[bytes]) -> None:
        done = self._psql("-q", "-f", str(self.directory / "script.sql"))
        assert done.returncode == 0, done.stderr

    def stored(self) -> int:
        return int(self._psql("-At", "-c", "SELECT count(*) FROM blocks").stdout)

    def _psql(self, *words: str) -> subprocess.CompletedProcess[str]:
        server = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "log", "-d", "postgres", "-v", "ON_ERROR_STOP=1"]
        return subprocess.run(["psql", *server, *words], capture_output=True, text=True, check=False)
