"""A real object store for tests: OpenStack Swift with its S3 API, from a package, in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

import pytest
from pyarrow import fs

from barograph_collector.lake.place import Lake
from helpers.up import free_ports

KEY, SECRET = "lake:barograph", "secret"


class Swift:
    """A server from entry to exit, which may be killed and started again over the same files."""

    def __init__(self) -> None:
        if importlib.util.find_spec("swift") is None:
            reason = "the package swift is not installed"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        self.port = free_ports(4)
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def __enter__(self) -> Self:
        self._root = Path(tempfile.mkdtemp(prefix="barograph-swift-"))
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        shutil.rmtree(self._root, ignore_errors=True)

    def start(self, reserve: str = "0") -> None:
        """Start it, after `kill` too. reserve: the free space below which it takes no objects."""
        script = Path(__file__).with_name("swift_server.py")
        with (self._root.with_suffix(".log")).open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, script, self._root, str(self.port), reserve], stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"listening\n", self._root.with_suffix(".log").read_text()

    def kill(self) -> None:
        """End it as a crash does."""
        self._process.kill()
        self._process.communicate()
        self._root.with_suffix(".log").unlink(missing_ok=True)

    @property
    def objects(self) -> fs.S3FileSystem:
        """Its objects."""
        address = f"127.0.0.1:{self.port}"
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=address,
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
            allow_bucket_deletion=True,
        )

    def names(self, bucket: str) -> list[str]:
        """All objects of a bucket."""
        found = self.objects.get_file_info(fs.FileSelector(bucket, recursive=True))
        return sorted(info.path.removeprefix(f"{bucket}/") for info in found if info.type is fs.FileType.File)

    def lake(self, bucket: str, state: Path, url: str = "") -> Lake:
        """A lake in a new bucket."""
        self.objects.create_dir(bucket)
        return Lake.find(f"s3://{bucket}/some/lake", state, url, environment=self.environment)
