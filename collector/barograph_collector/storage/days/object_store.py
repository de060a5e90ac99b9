"""Files of the lake in an object store that speaks S3.

DuckDB reads and writes them by its extension httpfs, pyarrow lists and deletes them. An object is there as a whole or
not at all, and durable once it is, so there is nothing to sync.
"""

from __future__ import annotations

import configparser
import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import duckdb
from pyarrow import fs

from barograph_collector.storage.days.data_path import DATA, MARKER, SCHEME, DataPath, split
from barograph_collector.storage.days.extensions import LakeError, extension
from barograph_collector.storage.text import literal

AMAZON: Final = "https://s3.amazonaws.com"
TIMEOUT_SECONDS: Final = 10
ATTEMPTS: Final = 3
_PROFILE: Final = "default"
_SETTINGS: Final = (
    f"SET http_timeout = {TIMEOUT_SECONDS}; SET http_retries = {ATTEMPTS - 1};"
    # Parts of 5 MiB, the least that S3 takes: each is in memory until it is sent.
    " SET s3_uploader_max_filesize = '40GB'; SET s3_uploader_thread_limit = 2"
)
_DENIED: Final = re.compile(
    r"ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH|INVALID_ACCESS_KEY|EXPIRED_TOKEN|\bHTTP (?:code )?40[13]\b"
)
_FULL: Final = re.compile(r"SERVICE_UNAVAILABLE|SLOW_DOWN|\bHTTP (?:code |status )?(?:413|503|507)\b")
_AWAY: Final = re.compile(r"NETWORK_CONNECTION|REQUEST_TIMEOUT|curlCode|error for HTTP [A-Z]+ to")


class Credentials(NamedTuple):
    """Of one account of an object store."""

    key: str
    secret: str
    token: str
    region: str

    @classmethod
    def find(cls, file: Path | None, environment: Mapping[str, str]) -> Credentials:
        """From a file as other programs for S3 have it, else from their environment variables. Raises LakeError."""
        region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
        if file is not None:
            found = _read(file)
            for name in ("aws_access_key_id", "aws_secret_access_key"):
                if not found.get(name):
                    raise LakeError(f"{file} has no {name} for the object store, expected one under [{_PROFILE}]")
            token = found.get("aws_session_token", "")
            return cls(found["aws_access_key_id"], found["aws_secret_access_key"], token, found.get("region", region))
        key, secret = environment.get("AWS_ACCESS_KEY_ID", ""), environment.get("AWS_SECRET_ACCESS_KEY", "")
        if not key or not secret:
            missing = "AWS_SECRET_ACCESS_KEY" if key else "AWS_ACCESS_KEY_ID"
            raise LakeError(f"the environment has no {missing} for the object store, expected it or lake_credentials")
        return cls(key, secret, environment.get("AWS_SESSION_TOKEN", ""), region)


class ObjectStore(DataPath):
    """The files of a lake in a bucket."""

    def __init__(
        self, place: str, endpoint: str, credentials: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """Connects to nothing. place: s3://BUCKET/PREFIX. endpoint: URL of the store, empty for Amazon's.

        credentials, environment: see `Credentials.find`. Raises LakeError, and ValueError for a place that is none.
        """
        self._bucket, prefix = split(place)
        self.lake = f"{SCHEME}{self._bucket}{prefix}"
        self.root = f"{self.lake}/{DATA}"
        environment = environment or {}
        self._file, self._environment = credentials, environment
        self._given = endpoint or environment.get("AWS_ENDPOINT_URL", "")
        self._endpoint = self._given or AMAZON
        self.refresh()

    def refresh(self) -> None:
        """Read credentials again."""
        found = self._credentials = Credentials.find(self._file, self._environment)
        options: dict[str, object] = {}
        if self._given:
            parts = urlsplit(self._endpoint)
            options = {"endpoint_override": parts.netloc, "scheme": parts.scheme}
        self._files = fs.S3FileSystem(
            access_key=found.key,
            secret_key=found.secret,
            session_token=found.token or None,
            region=found.region,
            connect_timeout=TIMEOUT_SECONDS,
            request_timeout=TIMEOUT_SECONDS,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
            **options,
        )

    def load(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Load the extension, and authorize."""
        connection.execute(f"LOAD {literal(str(extension('httpfs')))}")
        connection.execute(_SETTINGS)
        self.authorize(connection)

    def authorize(self, connection: duckdb.DuckDBPyConnection) -> None:
        """As a secret for this lake only, which no query can read."""
        values = {
            "KEY_ID": self._credentials.key,
            "SECRET": self._credentials.secret,
            "SESSION_TOKEN": self._credentials.token,
            "REGION": self._credentials.region,
            "SCOPE": self.lake,
        }
        if self._given:
            values |= {"ENDPOINT": urlsplit(self._endpoint).netloc, "URL_STYLE": "path"}
        options = ", ".join(f"{name} {literal(value)}" for name, value in values.items() if value)
        secure = str(self._endpoint.startswith("https:")).lower()
        connection.execute(f"CREATE OR REPLACE SECRET lake (TYPE s3, {options}, USE_SSL {secure})")

    def check(self, known: bool) -> None:
        """The bucket is there, and so is the lake if it was."""
        with self._explained():
            if self._files.get_file_info(self._bucket).type is fs.FileType.NotFound:
                raise LakeError(self._no_bucket)
        if known and not self._has(f"{self._key}/{MARKER}"):
            raise LakeError(f"the lake {self.lake} has no object {MARKER}, expected it: it has been deleted or moved")

    def begin(self, path: str) -> str:
        """Its name: an object is there as a whole or not at all."""
        return self.at(path)

    def finish(self, path: str) -> int:
        """Its size; it is durable already."""
        with self._explained():
            info = self._files.get_file_info(f"{self._key}/{DATA}/{path}")
        if info.type is not fs.FileType.File:
            raise LakeError(f"the object {self.at(path)} was written and is not there: is the store consistent?")
        return int(info.size)

    @property
    def free_bytes(self) -> None:
        """Unknown."""
        return None

    def explain(self, text: str) -> str:
        """What the store refuses, where it says so."""
        if _DENIED.search(text):
            expected = "expected a key that may list, read, write and delete there"
            return f"{self._endpoint} refuses the credentials for {self.lake}, {expected}"
        if "NO_SUCH_BUCKET" in text:
            return self._no_bucket
        if refused := _FULL.search(text):
            return f"{self._endpoint} takes nothing for {self.lake} ({refused[0]}): is it full, busy, or over a quota?"
        if _AWAY.search(text):
            return f"{self._endpoint} cannot be reached for {self.lake}: {text}"
        return text

    @property
    def _no_bucket(self) -> str:
        return f"{self._endpoint} has no bucket {self._bucket!r}, expected one: it is not made here"

    def _put(self, key: str, content: bytes) -> None:
        with self._explained(), self._files.open_output_stream(key) as stream:
            stream.write(content)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LakeError(self.explain(str(error).strip().splitlines()[0])) from None


def _read(file: Path) -> Mapping[str, str]:
    """The values in a file like ~/.aws/credentials. Raises LakeError."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        if (mode := file.stat().st_mode & 0o777) & 0o077:
            raise LakeError(f"{file} has mode {mode:o}, expected one that only its owner may read: chmod 600 {file}")
        parser.read_string(file.read_text())
    except OSError as error:
        raise LakeError(f"cannot read {file}: {error.strerror}, expected credentials of the object store") from None
    except (configparser.Error, UnicodeDecodeError):
        # Not the error's text, which has the line.
        raise LakeError(f"{file} has no credentials, expected [{_PROFILE}] and lines as in KEY = VALUE") from None
    if not parser.has_section(_PROFILE):
        raise LakeError(f"{file} has no section [{_PROFILE}], expected the credentials under it")
    return dict(parser[_PROFILE])
