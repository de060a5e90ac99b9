"""Which lake: where its files and its catalog are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self
from urllib.parse import urlsplit

from barograph_agent.system.disk import Disk
from barograph_agent.system.system import SYSTEM
from barograph_collector.storage.days.data_path import SCHEME, DataPath, split

CATALOG_FOLDER: Final = "lake-catalog"
"""In the state directory: the catalog of a lake in an object store, unless a database has it."""


class Lake(NamedTuple):
    """data: where its files are. directory: of the catalog and its lock. url: of a database with the catalog, or ''."""

    data: DataPath
    directory: Path
    url: str = ""

    @classmethod
    def at(cls, directory: Path, url: str = "", disk: Disk = SYSTEM.disk) -> Self:
        """The lake in a directory."""
        return cls(DataPath(directory.absolute(), disk), directory.absolute(), url)

    @classmethod
    def find(
        cls,
        place: str,
        state: Path,
        url: str = "",
        endpoint: str = "",
        credentials: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """The lake in a directory or s3://BUCKET/PREFIX, of a log in a state directory. Raises LakeError, ValueError.

        endpoint, credentials, environment: see `ObjectStore`.
        """
        if not place.startswith(SCHEME):
            return cls.at(Path(place), url)
        # Its client starts threads, for a lake in a bucket only.
        from barograph_collector.storage.days.object_store import ObjectStore

        return cls(ObjectStore(place, endpoint, credentials, environment), (state / CATALOG_FOLDER).absolute(), url)

    @property
    def name(self) -> str:
        """Of this lake and its catalog, without passwords."""
        return f"{self.data.lake} {urlsplit(self.url).hostname or ''}{urlsplit(self.url).path}".strip()


def lake_place(value: str) -> str:
    """Check a directory or s3://BUCKET/PREFIX. Raises ValueError."""
    if not value:
        raise ValueError(f"{value!r}, expected a directory or s3://BUCKET/PREFIX")
    if "://" in value:
        split(value)
    return value
