"""`barograph collector`: starts store, server and metrics, and stops them in reverse order."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barograph_agent.settings.sources import Configuration
from barograph_agent.system.processes import raise_descriptor_limit
from barograph_collector.auth.keys import Keyring, KeysError
from barograph_collector.backup.archive import BackupError
from barograph_collector.backup.restore import remake
from barograph_collector.daemon.notify import Notifier
from barograph_collector.daemon.options import run_daemon
from barograph_collector.daemon.reload import Reload
from barograph_collector.daemon.service import (
    CannotListen,
    CannotStart,
    Exit,
    Frozen,
    Shutdown,
    daemon_registry,
    serve_metrics,
)
from barograph_collector.exporter import Exporter, LakeExporter
from barograph_collector.lake.keep import Keep
from barograph_collector.lake.place import Lake
from barograph_collector.lake.sealer import Sealer
from barograph_collector.server import Collector
from barograph_collector.settings import CollectorSettings
from barograph_collector.storage.connection import StoreDamaged, StoreError
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.store import LOG, Store, put_journal

ARENAS: Final = 2
HEARTBEAT_SECONDS: Final = 5.0
LEAVE_SECONDS = 2.0
"""Time limit after SIGTERM, below the kill timeout of supervisors: a kill loses nothing but counts as a failure."""
_M_ARENA_MAX: Final = -8  # malloc.h
_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the collector until SIGTERM or SIGINT; returns an `Exit`."""
    return run_daemon(CollectorSettings, "Keep the log: one database, two verbs.", _start, argv)


def _start(configuration: Configuration[CollectorSettings]) -> int:
    try:
        return _serve(configuration)
    except (StoreError, KeysError, LakeError) as error:
        raise CannotStart(str(error), Exit.STATE) from None


def _serve(configuration: Configuration[CollectorSettings]) -> int:
    raise_descriptor_limit()
    limit_arenas()
    settings = configuration.settings
    notifier = Notifier(os.environ)
    state = settings.state or Path()
    keyring = Keyring(settings.keys) if settings.keys else None
    lake = _prepare(settings, state)
    with Shutdown() as shutdown, _opened(state, lake, settings.lake_period) as store:
        sealer = None if lake is None else Sealer(store, lake, keep=Keep.read(settings.lake_keep))
        collector = Collector(
            store,
            settings.listen,
            on_failure=shutdown.request,
            keyring=keyring,
            munge_socket=settings.munge,
            rows_per_second=settings.rate,
            retention=settings.retention,
            reserve_bytes=settings.reserve,
            sealer=sealer,
        )
        registry, beat = daemon_registry("collector")
        registry.register(Frozen(Exporter(collector.counters, store.path), collector.counters.still))
        if sealer is not None:
            registry.register(LakeExporter(sealer.figures))

        def apply() -> None:
            now = configuration.settings
            collector.limit(now.rate, now.retention, now.reserve)
            if sealer is not None:
                sealer.keep = Keep.read(now.lake_keep)
            store.calendar.confirm()

        reload = Reload(configuration, apply, notifier, registry)
        collector.start()
        try:
            exposition = serve_metrics(registry, *settings.metrics)
        except CannotListen:
            collector.stop()
            raise
        _log.info(
            "listening on %s, log in %s, metrics on %s; %s",
            collector.endpoint,
            store.path,
            exposition.url,
            "no keys: any client on this host may connect"
            if keyring is None
            else f"client keys in {settings.keys}: {len(keyring)}",
        )
        notifier.ready()
        while not shutdown.wait(min(HEARTBEAT_SECONDS, notifier.alive_seconds)):
            # The main thread only waits: the heartbeat is that of the receive thread.
            if collector.pulse():
                beat()
                notifier.alive()
            if shutdown.hung_up():
                reload.run()
            if keyring is not None:
                keyring.poll()
            if sealer is not None:
                sealer.watch()
        notifier.stopping()
        timer = threading.Timer(LEAVE_SECONDS, _leave, [collector])
        timer.daemon = True
        timer.start()
        in_time = collector.stop(2 * LEAVE_SECONDS)
        exposition.stop()
    return Exit.OK if in_time and collector.failure is None else Exit.FAILED


def _opened(state: Path, lake: Lake | None, period_seconds: float) -> Store:
    """The log in a state directory, made again of the lake and its journal where it is damaged. Raises StoreError."""
    open_store = functools.partial(Store, state / LOG, lake=lake and lake.data, period_seconds=period_seconds)
    try:
        return open_store()
    except StoreDamaged as error:
        if lake is None:
            raise
        _log.error("%s", error)
        try:
            made = remake(state, lake)
        except BackupError as missing:
            raise StoreError(f"{error}. It cannot be made again of the lake: {missing}") from None
    _log.warning(
        "made again of the lake and the journal, up to offset %d: what is damaged is in %s",
        made.backup.head,
        made.aside,
    )
    return open_store()


def _prepare(settings: CollectorSettings, state: Path) -> Lake | None:
    """Make the state directory, with the journal where it is to be; returns the lake. Raises StoreError, LakeError."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot create the state directory {state}: {error.strerror}") from None
    lake = settings.lake_of(state)  # before a log is made
    put_journal(state, settings.journal)
    return lake


def limit_arenas() -> None:
    """Let all threads share ARENAS arenas of glibc, which has up to eight per core. Call it before threads start.

    Memory of a connection is allocated by one thread and freed by another, so with 10,000 connections the arenas grow
    to several times the memory in use.
    """
    with contextlib.suppress(OSError, AttributeError):  # a C library without mallopt
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, ARENAS)


def _leave(collector: Collector) -> None:
    """Exit even while a thread waits for a commit, a checkpoint or the disk: acknowledged rows are in the journal."""
    _log.warning("not done within %g s: the next start commits the rest of the journal to the database", LEAVE_SECONDS)
    os._exit(Exit.OK if collector.failure is None else Exit.FAILED)


if __name__ == "__main__":
    sys.exit(main())
