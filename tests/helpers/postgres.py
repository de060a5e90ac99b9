"""A PostgreSQL of Debian's on a scratch directory, as a user who is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

import pytest

from helpers.up import free_ports

PASSWORD = "hidden"


class Postgres:
    """A server from entry to exit, with the role `barograph` and a database for each test that asks for one."""

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        if not found:
            reason = "Debian's PostgreSQL is not installed"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        self._bin = found[-1].parent
        self.port = free_ports(1)

    def __enter__(self) -> Self:
        # Not below pytest's own directory, which other users may not enter.
        self.directory = Path(tempfile.mkdtemp(prefix="barograph-postgres-"))
        (self.directory / "password").write_text(PASSWORD)
        if os.geteuid() == 0:
            for path in (self.directory, self.directory / "password"):
                shutil.chown(path, "postgres", "postgres")
        data = f"{self.directory}/data"
        common = ["--no-sync", "--locale=C", "--auth=scram-sha-256", "--username=barograph"]
        self._run("initdb", "-D", data, *common, "--pwfile", f"{self.directory}/password")
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Start it, after `stop` too."""
        options = f"-p {self.port} -k {self.directory} -h 127.0.0.1 -F"
        self._run("pg_ctl", "-D", f"{self.directory}/data", "-o", options, "-l", f"{self.directory}/log", "-w", "start")

    def stop(self) -> None:
        """End it as a crash does."""
        self._run("pg_ctl", "-D", f"{self.directory}/data", "-m", "immediate", "-w", "stop")

    def database(self, name: str) -> str:
        """A new database: its URL."""
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "barograph", name)
        return self.url(name)

    def url(self, name: str, password: str = PASSWORD) -> str:
        """The URL of a database."""
        return f"postgresql://barograph:{password}@127.0.0.1:{self.port}/{name}"

    def _run(self, program: str, *arguments: str) -> None:
        user: dict[str, Any] = {}
        if os.geteuid() == 0:
            entry = pwd.getpwnam("postgres")
            user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        # A server that keeps a pipe open would keep whoever reads it.
        with (self.directory / "commands").open("ab") as log:
            subprocess.run(
                [self._bin / program, *arguments],
                cwd=self.directory,
                env={**os.environ, "PGPASSWORD": PASSWORD},
                check=True,
                stdout=log,
                stderr=log,
                **user,
            )
