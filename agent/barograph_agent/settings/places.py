"""Paths and addresses of the agent on a node. Its directories belong to the user, with mode 700."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from barograph_agent.system.disk import DISK
from barograph_agent.system.listening import is_listening

DEFAULT_ENDPOINT: Final = "tcp://127.0.0.1:7450"
PAGE_OFFSET: Final = 4
"""The port of the page above that of the collector, as `barograph up` assigns them."""
SITE: Final = Path("/etc/barograph")
SITE_RULES: Final = SITE / "rules.toml"
_NEXT: Final = re.compile(r",\s*(?=tcp://|ipc://)")
_ENDPOINT: Final = re.compile(r"tcp://[^\s:/]+:[0-9]{1,5}|tcp://\[[0-9a-fA-F:.]+\]:[0-9]{1,5}|ipc://\S+")


def endpoint(environment: Mapping[str, str]) -> str:
    """The collector's address, or several: BAROGRAPH_COLLECTOR, or this host's default."""
    return environment.get("BAROGRAPH_COLLECTOR") or DEFAULT_ENDPOINT


def endpoints(text: str) -> tuple[str, ...]:
    """The addresses in a text that has at least one, in their order.

    >>> endpoints("tcp://a:7450, tcp://b:7450")
    ('tcp://a:7450', 'tcp://b:7450')
    """
    return tuple(_NEXT.split(text.strip()))


def page(environment: Mapping[str, str], collectors: str) -> str:
    """The address of the page: BAROGRAPH_PAGE, or that of `barograph up` on this host if it listens; else empty.

    collectors: their addresses. `barograph up` has the page beside the first one.
    """
    if given := environment.get("BAROGRAPH_PAGE"):
        return given
    local = re.fullmatch(r"tcp://(127\.0\.0\.1|localhost):(\d+)", endpoints(collectors)[0])
    address = f"{local[1]}:{int(local[2]) + PAGE_OFFSET}" if local else ""
    return f"http://{address}" if address and is_listening(f"tcp://{address}") else ""


def job_address(job: str, collectors: str, environment: Mapping[str, str]) -> str:
    """A job's name, and the address of its page if that is known. collectors: their addresses."""
    address = page(environment, collectors)
    return f"{job}, {address.rstrip('/')}/job/{quote(job)}" if address else job


class EndpointError(argparse.ArgumentTypeError, ValueError):
    """An invalid address of a collector. The text names it and what was expected."""


def check_endpoint(text: str) -> str:
    """Check the address of one collector. Raises EndpointError."""
    if len(several := endpoints(text)) > 1:
        raise EndpointError(f"collector is {text!r}, expected one address in place of {len(several)}")
    if not _ENDPOINT.fullmatch(text):
        raise EndpointError(f"collector is {text!r}, expected tcp://HOST:PORT or ipc://PATH")
    return text


def check_endpoints(text: str) -> str:
    """Check addresses of collectors, separated by commas; returns them without spaces. Raises EndpointError."""
    found = [check_endpoint(one) for one in endpoints(text)]
    for one in found:
        if found.count(one) > 1:
            raise EndpointError(f"collector is {text!r}, which has {one} twice, expected each address once")
    return ",".join(found)


def add_collector_option(parser: argparse.ArgumentParser, default: str | None, *, several: bool = False) -> None:
    """Add the option --collector. default: checked like a given value, unless it is None.

    several: whether more than one collector may be given, separated by commas.
    """
    parser.add_argument(
        "--collector",
        type=check_endpoints if several else check_endpoint,
        default=default,
        metavar="ENDPOINT[,...]" if several else "ENDPOINT",
        help=f"the collector{'s' * several} (default: $BAROGRAPH_COLLECTOR or {DEFAULT_ENDPOINT})",
    )


def ring_root(environment: Mapping[str, str]) -> Path:
    """The directory of rings: in memory, one per user."""
    return Path(environment.get("BAROGRAPH_RINGS") or _user_directories(Path("/dev/shm"))[0])


def spool_root(environment: Mapping[str, str]) -> Path:
    """The directory of spools: on a disk of this node (BAROGRAPH_SPOOL), never on a parallel file system."""
    return spool_roots(environment)[0]


def spool_roots(environment: Mapping[str, str]) -> list[Path]:
    """Where spools of this user may be, the directory of new ones first."""
    given = environment.get("BAROGRAPH_SPOOL")
    return [Path(given)] if given else _user_directories(Path("/var/tmp"))


def _user_directories(folder: Path) -> list[Path]:
    """The user's in a folder that is open to all: barograph/UID if root has made it, barograph-UID."""
    own, made = folder / f"barograph-{os.getuid()}", folder / "barograph" / str(os.getuid())
    with contextlib.suppress(OSError):
        if made.parent.lstat().st_uid == 0 and made.lstat().st_uid == os.getuid():
            return [made, own]
    return [own]


def rules(environment: Mapping[str, str]) -> Path | None:
    """The site's rules: BAROGRAPH_RULES, else the default file if it exists, else None."""
    if given := environment.get("BAROGRAPH_RULES"):
        return Path(given)
    return SITE_RULES if os.access(SITE_RULES, os.F_OK) else None


def private_directory(path: Path) -> Path:
    """Create `path` with mode 700, or check that it belongs to this user. Raises PermissionError."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise PermissionError(f"{path}: {error.strerror}, expected a directory that this user can write") from error
    DISK.check_own(path)
    return path
