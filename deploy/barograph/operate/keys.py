"""`barograph keys`: access control of the log and the page.

Writes key files, job tokens and viewers' tokens. Prints no secrets.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, get_args

import msgspec
from rich.table import Table
from rich.text import Text

from barograph.cli import CommandError, Parser
from barograph.options import identifier
from barograph.terminal import console
from barograph_agent.deliver.credential import issue
from barograph_agent.deliver.keys import Role
from barograph_agent.system.clock import CLOCK
from barograph_collector.auth import http_access, keys
from barograph_collector.daemon.service import Exit

DEFAULT_DIRECTORY: Final = Path("/etc/barograph/keys")
_TOKEN_OPTIONS: Final = """\
options of token:
  --output FILE  the token file, created with mode 600
  --owner UID    owner of the token file (default: you)
  --hours H      lifetime of the token (default: 48)
"""


def init(options: argparse.Namespace) -> None:
    """Create the key directory."""
    keys.init(options.keys)
    print(f"{options.keys}: ready. Add clients with `barograph keys add`, then start `barograph collector --keys`.")


def add(options: argparse.Namespace) -> None:
    """Add a client or a viewer."""
    if options.role in get_args(http_access.Right):
        path = http_access.add(options.keys, options.role, options.name)
        print(f"{path}: the token of {options.role} {options.name}, for the page and /predict. Move it to its owner.")
        return
    path = keys.add(options.keys, options.role, options.name)
    print(f"{path}: the key of {options.role} {options.name}. Move it to where it is used and set BAROGRAPH_KEY there.")


def show(options: argparse.Namespace) -> None:
    """List clients and viewers."""
    table = Table()
    for name in ("name", "role", "since", "public key"):
        table.add_column(name)
    for client in keys.load_clients(options.keys):
        table.add_row(*map(Text, (client.name, client.role, clock(client.added_at), client.public)))
    for viewer in http_access.load_all(options.keys):
        table.add_row(*map(Text, (viewer.name, viewer.right, clock(viewer.added_at), "a token")))
    console().print(table)


def revoke(options: argparse.Namespace) -> None:
    """Remove the client and the viewer of this name."""
    viewer = http_access.revoke(options.keys, options.name)
    if viewer is not None:
        print(f"{viewer.right} {viewer.name} is revoked; page and /predict refuse it within seconds.")
        if all(client.name != options.name for client in keys.load_clients(options.keys)):
            return
    gone = keys.revoke(options.keys, options.name)
    print(f"{gone.role} {gone.name} is revoked; a running collector refuses it within seconds.")


def token(options: argparse.Namespace) -> None:
    """Write a job token, readable only by the job's user."""
    expires = int(CLOCK.now() + options.hours * 3600)
    secret = bytes.fromhex(keys.load_collector(options.keys).token_secret)
    text = msgspec.json.encode(issue(secret, options.job, options.user, expires))
    try:
        options.output.unlink(missing_ok=True)
        with os.fdopen(os.open(options.output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            if options.owner is not None:
                os.fchown(file.fileno(), options.owner, -1)
            file.write(text)
    except OSError as error:
        raise keys.KeysError(f"cannot write {options.output}: {error.strerror}") from None
    until = clock(expires)
    print(f"{options.output}: {options.user} may write {options.job} until {until}. Set BAROGRAPH_TOKEN to this path.")


def clock(at: float) -> str:
    """Local date and time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def main(arguments: Sequence[str]) -> int:
    """Change or list a key directory; 73 where it is unusable."""
    options = _parser().parse_args(arguments)
    verb: Callable[[argparse.Namespace], None] = options.verb
    try:
        verb(options)
    except keys.KeysError as error:
        raise CommandError(str(error), Exit.STATE) from None
    return Exit.OK


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="barograph keys",
        description="Manage access to the log and the page.",
        epilog=_TOKEN_OPTIONS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--keys",
        type=Path,
        default=DEFAULT_DIRECTORY,
        metavar="DIR",
        help="the collector's key directory (default: %(default)s)",
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verbs.add_parser("init", help="create the directory").set_defaults(verb=init)
    adding = verbs.add_parser("add", help="add a client or a viewer, and write its key file or token")
    adding.add_argument(
        "role",
        choices=[*get_args(Role), *get_args(http_access.Right)],
        help="agent: writes its own jobs. reader: reads all. writer: reads all, writes conclusions. importer: writes "
        "past jobs. editor: names, splits and merges groups of work. operator: sees all on the page. user: sees own "
        "jobs on the page",
    )
    adding.add_argument("name", help="name of the client; prefix of a writer's streams; a user's account name")
    adding.set_defaults(verb=add)
    verbs.add_parser("list", help="list clients and viewers").set_defaults(verb=show)
    revoking = verbs.add_parser("revoke", help="remove a client or a viewer")
    revoking.add_argument("name", help="name of the client or viewer")
    revoking.set_defaults(verb=revoke)
    giving = verbs.add_parser("token", help="write a job token")
    giving.add_argument("job", type=identifier, help="CLUSTER/ID; covers all restarts and steps")
    giving.add_argument("user", type=identifier, help="user who may write the job")
    giving.add_argument("--output", type=Path, required=True, metavar="FILE", help="token file, created with mode 600")
    giving.add_argument("--owner", type=int, metavar="UID", help="owner of the token file (default: you)")
    giving.add_argument("--hours", type=float, default=48.0, metavar="H", help="lifetime of the token (default: 48)")
    giving.set_defaults(verb=token)
    return parser
