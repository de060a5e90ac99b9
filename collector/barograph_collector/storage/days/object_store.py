"""Files of the lake in an object store that speaks S3.

DuckDB reads and writes them by its extension httpfs, pyarrow lists and deletes them. An object is there as a whole or
not at all, and durable once it is, so there is nothing to sync.
"""

from __future__ import annotations

import configparser
import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import duckdb
from pyarrow import fs

from barograph_collector.storage.days.data_path import DATA, SCHEME, split
from barograph_collector.storage.days.extensions import LakeError, extension
from barograph_collector.storage.text import literal

MARKER: Final = "barograph-lake"
"""An object beside the files: without it a bucket has no lake."""
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


class ObjectStore:
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
        self._credentials = Credentials.find(self._file, self._environment)
        self._objects: fs.S3FileSystem | None = None

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
        if self._kind(self._key(MARKER)) is fs.FileType.File:
            return
        if self._kind(self._bucket) is fs.FileType.NotFound:
            raise LakeError(self._no_bucket)
        if known:
            raise LakeError(f"the lake {self.lake} has no object {MARKER}, expected one: it has been deleted or moved")

    def make(self) -> None:
        """The marker, which also shows whether the credentials can write."""
        key = self._key(MARKER)
        if self._kind(key) is fs.FileType.File:
            return
        with self._told(), self._filesystem().open_output_stream(key) as stream:
            stream.write(f"A lake of Barograph: its files are below {DATA}.\n".encode())

    def has_files(self) -> bool:
        """Whether there is any."""
        return self._kind(self._key(DATA)) is not fs.FileType.NotFound

    def at(self, path: PurePosixPath | str) -> str:
        """Its URL."""
        return f"{self.root}/{path}"

    def below(self, file: str) -> PurePosixPath:
        """The key without the prefix."""
        return PurePosixPath(file.removeprefix(f"{self.root}/"))

    def clear(self, folder: PurePosixPath, pattern: str) -> None:
        """Nothing: an object of the same name is replaced, others are deleted as orphans."""

    def finish(self, path: PurePosixPath) -> int:
        """Its size; it is durable already."""
        with self._told():
            info = self._filesystem().get_file_info(self._path(path))
        if info.type is not fs.FileType.File:
            raise LakeError(f"the object {self.at(path)} was written and is not there: is the store consistent?")
        return int(info.size)

    def unlink(self, path: PurePosixPath) -> None:
        """Delete an object."""
        with self._told():
            self._filesystem().delete_file(self._path(path))

    def find(self, prefix: str) -> Iterator[PurePosixPath]:
        """In the whole lake."""
        base = self._key(DATA)
        with self._told():
            found = self._filesystem().get_file_info(fs.FileSelector(base, recursive=True, allow_not_found=True))
        for info in found:
            if info.type is fs.FileType.File and info.base_name.startswith(prefix):
                yield PurePosixPath(info.path.removeprefix(f"{base}/"))

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

    def _key(self, name: str) -> str:
        """As pyarrow has it: with the bucket."""
        return f"{self.lake}/{name}".removeprefix(SCHEME)

    def _path(self, path: PurePosixPath) -> str:
        return self._key(f"{DATA}/{path}")

    def _kind(self, path: str) -> fs.FileType:
        with self._told():
            return self._filesystem().get_file_info(path).type

    @property
    def _no_bucket(self) -> str:
        return f"{self._endpoint} has no bucket {self._bucket!r}, expected one: it is not made here"

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LakeError(self.explain(str(error).strip().splitlines()[0])) from None

    def _filesystem(self) -> fs.S3FileSystem:
        if self._objects is None:
            found = self._credentials
            options: dict[str, object] = {}
            if self._given:
                parts = urlsplit(self._endpoint)
                options = {"endpoint_override": parts.netloc, "scheme": parts.scheme}
            self._objects = fs.S3FileSystem(
                access_key=found.key,
                secret_key=found.secret,
                session_token=found.token or None,
                region=found.region,
                connect_timeout=TIMEOUT_SECONDS,
                request_timeout=TIMEOUT_SECONDS,
                retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
                **options,
            )
        return self._objects


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
